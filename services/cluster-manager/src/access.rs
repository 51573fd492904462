//! Who may do what over HTTP: tokens, scopes, limits, and the record of what was done.
//!
//! | module | knows |
//! |---|---|
//! | [`token`] | bearer tokens, known by their hash |
//! | [`rate`] | how often somebody may ask |
//! | [`claims`] | who somebody is whom an identity provider vouches for |
//! | [`audit`] | the record of a write |
//!
//! Pure: time and randomness are arguments. This module must not know HTTP, nor how anything is done that is asked for.

pub mod audit;
pub mod claims;
pub mod rate;
pub mod token;

use std::collections::BTreeSet;

use configdb_schema::document::TokenScope;
use uuid::Uuid;

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// See which clusters there are.
    ListClusters,
    /// See how far a cluster is.
    ReadStatus,
    /// See which secrets a cluster has; their values nobody sees.
    ListSecrets,
    /// Write a key of a secret.
    PutSecret,
    /// Remove a key of a secret.
    DeleteSecret,
    /// Make a line that bootstraps a cluster.
    BootstrapLine,
}

impl Operation {
    /// As it is recorded and counted.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ListClusters => "list-clusters",
            Self::ReadStatus => "read-status",
            Self::ListSecrets => "list-secrets",
            Self::PutSecret => "put-secret",
            Self::DeleteSecret => "delete-secret",
            Self::BootstrapLine => "bootstrap-url",
        }
    }

    /// The least scope that may do it.
    #[must_use]
    pub const fn needs(self) -> TokenScope {
        match self {
            Self::ListClusters | Self::ReadStatus | Self::ListSecrets => TokenScope::Viewer,
            Self::PutSecret | Self::DeleteSecret | Self::BootstrapLine => TokenScope::Operator,
        }
    }

    /// It changes something, so it is recorded.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::PutSecret | Self::DeleteSecret | Self::BootstrapLine)
    }
}

/// Somebody who has shown who they are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Principal {
    /// For the record, such as `token:press-shop`.
    pub name: String,
    /// What they may do.
    pub scope: TokenScope,
    /// The clusters that this is for; None: all.
    pub clusters: Option<BTreeSet<Uuid>>,
}

/// Why somebody may not. Says nothing about what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The scope is too small.
    #[error("{} needs the scope {}; yours is {}", operation.as_str(), operation.needs().as_str(), scope.as_str())]
    Scope {
        /// What was asked for.
        operation: Operation,
        /// What the principal has.
        scope: TokenScope,
    },
    /// The credential is for other clusters.
    #[error("your credential is not for this cluster")]
    Cluster,
}

impl Principal {
    /// Whether they may do that, on that cluster if it concerns one. The answer is the same for a cluster that does not exist.
    ///
    /// # Errors
    /// Why not.
    pub fn may(&self, operation: Operation, cluster: Option<Uuid>) -> Result<(), Denied> {
        if cluster.is_some_and(|cluster| !self.sees(cluster)) {
            return Err(Denied::Cluster);
        }
        if self.scope < operation.needs() {
            return Err(Denied::Scope { operation, scope: self.scope });
        }
        Ok(())
    }

    /// The credential is for that cluster.
    #[must_use]
    pub fn sees(&self, cluster: Uuid) -> bool {
        self.clusters.as_ref().is_none_or(|clusters| clusters.contains(&cluster))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uuid = Uuid::from_u128(0xA);
    const B: Uuid = Uuid::from_u128(0xB);
    const ALL: [Operation; 6] = [
        Operation::ListClusters,
        Operation::ReadStatus,
        Operation::ListSecrets,
        Operation::PutSecret,
        Operation::DeleteSecret,
        Operation::BootstrapLine,
    ];

    fn principal(scope: TokenScope, clusters: Option<&[Uuid]>) -> Principal {
        let clusters = clusters.map(|clusters| clusters.iter().copied().collect());
        Principal { name: "token:x".to_owned(), scope, clusters }
    }

    #[test]
    fn a_viewer_looks_and_nobody_reaches_beyond_the_clusters_of_the_credential() {
        for operation in ALL {
            let viewer = principal(TokenScope::Viewer, None).may(operation, Some(A));
            assert_eq!(viewer.is_ok(), !operation.is_write(), "{operation:?}");
            for scope in [TokenScope::Operator, TokenScope::Administrator] {
                assert_eq!(principal(scope, None).may(operation, Some(A)), Ok(()));
                assert_eq!(principal(scope, Some(&[A])).may(operation, Some(A)), Ok(()));
                assert_eq!(principal(scope, Some(&[A])).may(operation, Some(B)), Err(Denied::Cluster));
            }
        }
        assert_eq!(principal(TokenScope::Viewer, Some(&[A])).may(Operation::ListClusters, None), Ok(()));
    }

    #[test]
    fn a_refusal_names_the_scope_that_is_needed() {
        let denied = principal(TokenScope::Viewer, None).may(Operation::PutSecret, Some(A)).unwrap_err();
        assert_eq!(denied.to_string(), "put-secret needs the scope operator; yours is viewer");
    }
}
