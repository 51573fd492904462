//! The Device of one repository: what its copy is.

use std::collections::BTreeMap;

use sparkplug::typed::form;

use crate::names;

/// Columns of [`RepositoryCopy::refs`].
#[derive(Debug)]
pub struct Refs;

impl form::Columns for Refs {
    const KEY: &'static str = "Ref";
    const VALUE: &'static str = "Commit";
}

/// What the git server says of one repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepositoryCopy {
    /// Where it is served, such as `cluster/Paint_Shop`.
    pub path: String,
    /// Why it is not as wanted, for people; None: it is, or will be soon.
    pub reason: Option<String>,
    /// Since when [`RepositoryCopy::state`] is what it is, UTC ms.
    pub since: u64,
    /// Version of the desired state that was accepted last; 0: none was.
    pub version: u64,
    /// Digest of the desired state that the copy is; None: it is none yet.
    pub applied: Option<String>,
    /// Commit of branch `main`, if clients can fetch it.
    pub commit: Option<String>,
    /// The refs that the copy has, with their commits.
    pub refs: BTreeMap<String, String>,
    /// It lacks objects of the desired state that was accepted last.
    pub missing: bool,
    /// Digest of the pack that is being received.
    pub pack: Option<String>,
    /// Bytes of it that have arrived.
    pub received: u64,
    /// UTC ms at which the cluster asked for a repository last, at most once a minute. None: it has not, as far as is known, or the repository is not a cluster's.
    pub polled: Option<u64>,
}

sparkplug::typed_metrics! {
    RepositoryCopy {
        /// served (as wanted), waiting (served, but not yet as wanted) or not-served.
        (|copy| copy.state().into()) => names::STATUS_STATE,
        /// Why it is not as wanted; null: it is, or will be soon.
        reason => names::STATUS_REASON,
        /// Since when it is in that state.
        #[optional]
        since as form::DateTime => names::STATUS_SINCE,
        /// Path on the git server.
        path => names::REPOSITORY_PATH,
        /// Version of the desired state that was accepted last.
        version as form::Count => names::DESIRED_VERSION,
        /// Digest of the desired state that the copy is; null: it is none yet.
        applied => names::APPLIED_DIGEST,
        /// Commit of branch main that clients can fetch; null: there is none, or the copy is not served.
        commit => names::GIT_COMMIT,
        /// Refs with their commits.
        #[omit_null]
        refs as form::Table<Refs> => names::GIT_REFS,
        /// The copy lacks objects of its desired state.
        missing => names::PACK_MISSING,
        /// Digest of the pack that is being received; null: none is.
        pack => names::PACK_DIGEST,
        /// Bytes of it that have arrived.
        #[properties("engUnit" = "B")]
        received as form::Count => names::PACK_RECEIVED,
        /// When the cluster asked for a repository last, at most once a minute; null: it has not.
        polled as form::Nullable<form::DateTime> => names::CLUSTER_POLLED,
    }
}

impl RepositoryCopy {
    /// `served`, `waiting` or `not-served`.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match &self.applied {
            None => "not-served",
            Some(_) if self.missing || self.reason.is_some() => "waiting",
            Some(_) => "served",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::TypedMetrics;

    #[test]
    fn what_was_written_is_read() {
        let copy = RepositoryCopy {
            path: "cluster/Paint".to_owned(),
            reason: Some("disk".to_owned()),
            since: 4,
            version: 2,
            applied: Some("ab".to_owned()),
            commit: Some("c".to_owned()),
            refs: [("refs/heads/main".to_owned(), "c".to_owned())].into(),
            missing: true,
            pack: Some("d".to_owned()),
            received: 10,
            polled: Some(5),
        };
        assert_eq!(RepositoryCopy::from_metrics(&copy.to_metrics()), Ok(copy.clone()));
        assert_eq!(copy.state(), "waiting");
        let empty = RepositoryCopy::default();
        assert_eq!(RepositoryCopy::from_metrics(&empty.to_metrics()), Ok(empty.clone()));
        assert_eq!(empty.state(), "not-served");
    }
}
