//! The commits of the repositories that a cluster follows. They are sent to Sync, so that Flux fetches them at once instead of at its next interval.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::{Value as Json, json};
use sparkplug::host::HostRequest;
use sparkplug::replication::{Origin, Point};
use sparkplug::typed::{Form as _, MetricValue, form};
use sparkplug::{DataType, EdgeNodeDescriptor, Metric, Value};

use crate::names::DESIRED_SOURCE;
use crate::provenance::{CommandError, origin_of, put_origin};

/// The GitRepository of the cluster's repository, in Sync's own namespace, as the default Flux template calls it.
pub const REPOSITORY_SOURCE: &str = "self-link";

/// The Kustomization that applies it, likewise.
pub const REPOSITORY_KUSTOMIZATION: &str = "self-link";

/// The GitRepository of the shared charts, in the same namespace.
pub const CHARTS_SOURCE: &str = "helm-charts";

/// A commit of git: the SHA-1 of it, 40 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Commit([u8; 20]);

/// A text is not a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be the 40 lower-case hex digits of a commit")]
pub struct CommitError;

impl FromStr for Commit {
    type Err = CommitError;

    fn from_str(text: &str) -> Result<Self, CommitError> {
        let is_hex = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 40 || !text.bytes().all(is_hex) {
            return Err(CommitError);
        }
        let mut bytes = [0; 20];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| CommitError)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| CommitError)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Commit({self})")
    }
}

/// Most repositories beside those two whose commits are sent to a cluster; Flux polls the rest.
pub const OTHERS_MAX: usize = 100;

/// Largest URL of one of them.
const URL_BYTES_MAX: usize = 2048;

/// Commits of other repositories that a cluster takes charts from, by their URLs as GitRepositories have them. As a metric a DataSet, in commands a JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OtherCommits(pub BTreeMap<String, Commit>);

impl OtherCommits {
    fn to_json(&self) -> Json {
        self.0
            .iter()
            .map(|(url, commit)| (url.clone(), json!(commit.to_string())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    fn from_json(value: &Json) -> Result<Self, &'static str> {
        let object = value.as_object().ok_or("must be an object from URLs to commits")?;
        if object.len() > OTHERS_MAX {
            return Err("has more than 100 members");
        }
        let mut others = BTreeMap::new();
        for (url, commit) in object {
            if url.len() > URL_BYTES_MAX {
                return Err("has a URL of more than 2048 bytes");
            }
            let commit = commit.as_str().unwrap_or_default().parse();
            others.insert(url.clone(), commit.map_err(|_| "has a value that is not a commit")?);
        }
        Ok(Self(others))
    }
}

impl form::Columns for OtherCommits {
    const KEY: &'static str = "URL";
    const VALUE: &'static str = "Commit";
}

impl MetricValue for OtherCommits {
    const DATATYPE: DataType = DataType::DataSet;

    fn to_value(&self) -> Option<Value> {
        form::Table::<Self>::write(&self.0)
    }

    fn from_value(value: &Value) -> Result<Self, String> {
        let commits: BTreeMap<String, Commit> = form::Table::<Self>::read(Some(value))?;
        if commits.len() > OTHERS_MAX {
            return Err("has more than 100 rows".to_owned());
        }
        match commits.keys().find(|url| url.len() > URL_BYTES_MAX) {
            Some(_) => Err("has a URL of more than 2048 bytes".to_owned()),
            None => Ok(Self(commits)),
        }
    }

    fn of_null() -> Option<Self> {
        Some(Self::default())
    }
}

/// The commits that the branches are at which a cluster follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// Of the cluster's own repository.
    pub repository: Commit,
    /// Of the repository of shared charts; None: not known.
    pub charts: Option<Commit>,
    /// Of others that it takes charts from.
    pub others: OtherCommits,
}

/// NCMD [`DESIRED_SOURCE`]: the cluster's repositories are at these commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredSource {
    /// Grows with every change; at least 1.
    pub version: u64,
    /// The commits.
    pub sources: Sources,
    /// As of [`crate::DesiredIndex`].
    pub origin: Option<Origin>,
    /// Likewise.
    pub follows: Option<Point>,
}

impl DesiredSource {
    /// As on the wire.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut value = json!({"version": self.version, "repository": self.sources.repository.to_string()});
        if let Some(charts) = self.sources.charts {
            value["charts"] = json!(charts.to_string());
        }
        if !self.sources.others.0.is_empty() {
            value["others"] = self.sources.others.to_json();
        }
        put_origin(&mut value, self.origin, self.follows);
        value
    }

    /// From the wire.
    ///
    /// # Errors
    /// [`CommandError`] names the field and the rule.
    pub fn from_json(text: &str) -> Result<Self, CommandError> {
        let error = |version, member: &str, rule: String| CommandError {
            deployment: None,
            version,
            digest: None,
            field: format!("{DESIRED_SOURCE}{member}"),
            rule,
        };
        let value: Json =
            serde_json::from_str(text).map_err(|reason| error(None, "", format!("is not JSON: {reason}")))?;
        let version = value.get("version").and_then(Json::as_u64).filter(|version| *version > 0);
        let version = version.ok_or_else(|| error(None, " version", "must be an integer of at least 1".to_owned()))?;
        let commit = |member: &Json, name: &str| {
            let commit = member.as_str().unwrap_or_default().parse();
            commit.map_err(|rule: CommitError| error(Some(version), name, rule.to_string()))
        };
        let repository = commit(&value["repository"], " repository")?;
        let charts = match &value["charts"] {
            Json::Null => None,
            charts => Some(commit(charts, " charts")?),
        };
        let others = match &value["others"] {
            Json::Null => OtherCommits::default(),
            others => {
                OtherCommits::from_json(others).map_err(|rule| error(Some(version), " others", rule.to_owned()))?
            }
        };
        let none = serde_json::Map::new();
        let (origin, follows) = origin_of(value.as_object().unwrap_or(&none))
            .map_err(|(member, rule)| error(Some(version), &format!(" {member}"), rule.to_string()))?;
        Ok(Self { version, sources: Sources { repository, charts, others }, origin, follows })
    }

    /// The request to a Host Application that sends it.
    #[must_use]
    pub fn to_request(&self, sync: EdgeNodeDescriptor) -> HostRequest {
        let metrics = vec![Metric::new(DESIRED_SOURCE, self.to_json().to_string())];
        HostRequest::Command { node: sync, device: None, metrics }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SyncCommand;
    use sparkplug::GroupId;

    #[test]
    fn what_is_sent_is_what_is_read_and_a_fault_names_its_field() {
        let commit: Commit = "0123456789abcdef0123456789abcdef01234567".parse().unwrap();
        assert_eq!(commit.to_string(), "0123456789abcdef0123456789abcdef01234567");
        let sync = crate::names::sync_node(GroupId::new("ACME-Cell").unwrap());
        let others = OtherCommits([("http://git/uuid/1".to_owned(), commit)].into());
        for (charts, others) in [
            (None, OtherCommits::default()),
            (Some("89abcdef0123456789abcdef0123456789abcdef".parse().unwrap()), others),
        ] {
            let desired = DesiredSource {
                version: 3,
                sources: Sources { repository: commit, charts, others },
                origin: "00000000-0000-0000-0000-000000000007/2/00000000000000ab/12".parse().ok(),
                follows: None,
            };
            let read: Result<OtherCommits, String> =
                form::Plain::read(form::Plain::write(&desired.sources.others).as_ref());
            assert_eq!(read.as_ref(), Ok(&desired.sources.others));
            let request = desired.to_request(sync.clone());
            let HostRequest::Command { device: None, metrics, .. } = request else { panic!("an NCMD") };
            assert_eq!(SyncCommand::from_event(None, &metrics), Ok(Some(SyncCommand::Source(desired))));
        }
        for (text, message) in [
            ("x", "Desired/Source is not JSON"),
            ("[]", "Desired/Source version must be an integer of at least 1"),
            (r#"{"version": 0}"#, "Desired/Source version must be an integer of at least 1"),
            (r#"{"version": 1}"#, "Desired/Source repository must be the 40 lower-case hex digits"),
            (
                r#"{"version": 1, "repository": "0123456789ABCDEF0123456789abcdef01234567"}"#,
                "Desired/Source repository must be",
            ),
            (
                r#"{"version": 1, "repository": "0123456789abcdef0123456789abcdef01234567", "charts": 5}"#,
                "Desired/Source charts must be",
            ),
            (
                r#"{"version": 1, "repository": "0123456789abcdef0123456789abcdef01234567", "others": {"http://x": "y"}}"#,
                "Desired/Source others has a value that is not a commit",
            ),
            (
                r#"{"version": 1, "repository": "0123456789abcdef0123456789abcdef01234567", "others": []}"#,
                "Desired/Source others must be an object",
            ),
            (r#"{"version": 1, "repository": "éééééééééééééééééééé"}"#, "Desired/Source repository must be"),
        ] {
            let error = DesiredSource::from_json(text).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
        }
    }
}
