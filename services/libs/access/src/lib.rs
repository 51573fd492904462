//! Who may do what over HTTP: tokens, scopes, limits, and the record of what was done. Every service that people reach over HTTP judges by it.
//!
//! | module | knows |
//! |---|---|
//! | [`token`] | bearer tokens, known by their hash |
//! | [`rate`] | how often a client may ask |
//! | [`claims`] | who a user is whom an identity provider vouches for |
//! | [`audit`] | the record of a write |
//!
//! Pure: time and randomness are arguments. This package must not know HTTP, nor how anything is done that is asked for.
#![warn(missing_docs, unreachable_pub)]

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
    /// Write a key of a secret.
    PutSecret,
    /// Remove a key of a secret.
    DeleteSecret,
    /// Make a line that bootstraps a cluster.
    BootstrapLine,
    /// Make a token.
    CreateToken,
    /// Revoke a token.
    RevokeToken,
    /// See who wrote what.
    ReadAudit,
    /// Clone a repository.
    ReadRepository,
    /// Push to a cluster's repository.
    Push,
    /// Push to a repository that clusters share.
    PushShared,
    /// Write an entry in ConfigDB.
    PutEntry,
    /// Delete an entry in ConfigDB.
    DeleteEntry,
    /// Sign in at the console.
    SignIn,
    /// Create a cluster.
    CreateCluster,
    /// Begin the tear-down of a cluster.
    DeleteCluster,
    /// Create or replace a deployment.
    CreateDeployment,
    /// Bind a deployment to a host, or to none.
    MoveDeployment,
    /// Suspend a deployment, or resume it.
    SuspendDeployment,
    /// Ask Flux to reconcile deployments at once.
    ReconcileDeployment,
    /// Delete a deployment.
    DeleteDeployment,
    /// Choose a cluster's wave in rollouts.
    SetWave,
    /// Hold the rollout of a chart template, or resume it.
    HoldRollout,
    /// Let later waves of a rollout not wait for a cluster.
    FreeRollout,
    /// Say that a user looks after an alert.
    AcknowledgeAlert,
    /// Ask an Edge Node for its birth.
    AskRebirth,
    /// Write a metric of an Edge Node that is not a service of this project.
    WriteMetric,
    /// Ask ConfigDB for the history of an object.
    ReadHistory,
}

impl Operation {
    /// As it is recorded and counted.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PutSecret => "put-secret",
            Self::DeleteSecret => "delete-secret",
            Self::BootstrapLine => "bootstrap-url",
            Self::CreateToken => "create-token",
            Self::RevokeToken => "revoke-token",
            Self::ReadAudit => "read-audit",
            Self::ReadRepository => "read-repository",
            Self::Push => "push",
            Self::PushShared => "push-shared",
            Self::PutEntry => "put-entry",
            Self::DeleteEntry => "delete-entry",
            Self::SignIn => "sign-in",
            Self::CreateCluster => "create-cluster",
            Self::DeleteCluster => "delete-cluster",
            Self::CreateDeployment => "create-deployment",
            Self::MoveDeployment => "move-deployment",
            Self::SuspendDeployment => "suspend-deployment",
            Self::ReconcileDeployment => "reconcile-deployment",
            Self::DeleteDeployment => "delete-deployment",
            Self::SetWave => "set-wave",
            Self::HoldRollout => "hold-rollout",
            Self::FreeRollout => "free-rollout",
            Self::AcknowledgeAlert => "acknowledge-alert",
            Self::AskRebirth => "ask-rebirth",
            Self::WriteMetric => "write-metric",
            Self::ReadHistory => "read-history",
        }
    }

    /// The least scope that may do it.
    #[must_use]
    pub const fn needs(self) -> TokenScope {
        match self {
            Self::CreateToken | Self::RevokeToken | Self::ReadAudit => TokenScope::Administrator,
            Self::ReadRepository | Self::SignIn => TokenScope::Viewer,
            Self::PutSecret | Self::DeleteSecret | Self::BootstrapLine | Self::Push | Self::PushShared => {
                TokenScope::Operator
            }
            Self::CreateCluster | Self::DeleteCluster | Self::SetWave => TokenScope::Operator,
            Self::HoldRollout | Self::FreeRollout => TokenScope::Operator,
            Self::CreateDeployment | Self::MoveDeployment | Self::DeleteDeployment => TokenScope::Operator,
            Self::SuspendDeployment | Self::ReconcileDeployment => TokenScope::Operator,
            Self::AcknowledgeAlert | Self::AskRebirth | Self::WriteMetric | Self::ReadHistory => TokenScope::Operator,
            // Any entry: tokens and templates, too. Over the broker its access control says who may.
            Self::PutEntry | Self::DeleteEntry => TokenScope::Administrator,
        }
    }

    /// It changes something, so it is recorded.
    #[must_use]
    pub const fn is_write(self) -> bool {
        !matches!(self, Self::ReadRepository | Self::ReadAudit)
    }

    /// It concerns all clusters at once: a user who is admitted for some of them may not do it.
    const fn is_for_all(self) -> bool {
        let of_people = matches!(self, Self::CreateToken | Self::RevokeToken | Self::ReadAudit);
        let of_rollouts = matches!(self, Self::HoldRollout | Self::FreeRollout);
        of_people
            || of_rollouts
            || matches!(self, Self::PushShared | Self::CreateCluster | Self::PutEntry | Self::DeleteEntry)
    }
}

/// What a user may do, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// What they may do.
    pub scope: TokenScope,
    /// The clusters that this is for; None: all.
    pub clusters: Option<BTreeSet<Uuid>>,
}

/// A user or program that has proved who it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Principal {
    /// For the record, such as `token:press-shop`.
    pub name: String,
    /// What they may do. They may what one of these allows.
    pub grants: Vec<Grant>,
}

/// Why an operation is denied. Says nothing about what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The scope is too small.
    #[error("{} needs the scope {}; yours is {}", operation.as_str(), operation.needs().as_str(), scope.as_str())]
    Scope {
        /// What was asked for.
        operation: Operation,
        /// What the principal has there.
        scope: TokenScope,
    },
    /// The credential is for other clusters.
    #[error("your credential is not for this cluster")]
    Cluster,
    /// The credential is for some clusters, and this concerns all.
    #[error("{} needs a credential for all clusters", operation.as_str())]
    NotForAll {
        /// What was asked for.
        operation: Operation,
    },
}

impl Grant {
    fn covers(&self, cluster: Uuid) -> bool {
        self.clusters.as_ref().is_none_or(|clusters| clusters.contains(&cluster))
    }
}

impl Principal {
    /// Whether they may do that, on that cluster if it concerns one. The answer is the same for a cluster that does not exist.
    ///
    /// # Errors
    /// Why not.
    pub fn may(&self, operation: Operation, cluster: Option<Uuid>) -> Result<(), Denied> {
        let is_enough = |grant: &Grant| !operation.is_for_all() || grant.clusters.is_none();
        let there = |grant: &&Grant| is_enough(grant) && cluster.is_none_or(|cluster| grant.covers(cluster));
        let scope = self.grants.iter().filter(there).map(|grant| grant.scope).max();
        match scope {
            None if operation.is_for_all() => Err(Denied::NotForAll { operation }),
            None => Err(Denied::Cluster),
            Some(scope) if scope < operation.needs() => Err(Denied::Scope { operation, scope }),
            Some(_) => Ok(()),
        }
    }

    /// They may look at that cluster.
    #[must_use]
    pub fn sees(&self, cluster: Uuid) -> bool {
        self.grants.iter().any(|grant| grant.covers(cluster))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uuid = Uuid::from_u128(0xA);
    const B: Uuid = Uuid::from_u128(0xB);
    const OF_CLUSTERS: [Operation; 5] = [
        Operation::ReadRepository,
        Operation::Push,
        Operation::PutSecret,
        Operation::DeleteSecret,
        Operation::BootstrapLine,
    ];
    const OF_ALL: [Operation; 3] = [Operation::CreateToken, Operation::RevokeToken, Operation::ReadAudit];

    fn grant(scope: TokenScope, clusters: Option<&[Uuid]>) -> Grant {
        Grant { scope, clusters: clusters.map(|clusters| clusters.iter().copied().collect()) }
    }

    fn principal(scope: TokenScope, clusters: Option<&[Uuid]>) -> Principal {
        Principal { name: "token:x".to_owned(), grants: vec![grant(scope, clusters)] }
    }

    #[test]
    fn a_viewer_looks_and_no_user_reaches_beyond_the_clusters_of_the_credential() {
        for operation in OF_CLUSTERS {
            let viewer = principal(TokenScope::Viewer, None).may(operation, Some(A));
            assert_eq!(viewer.is_ok(), !operation.is_write(), "{operation:?}");
            for scope in [TokenScope::Operator, TokenScope::Administrator] {
                assert_eq!(principal(scope, None).may(operation, Some(A)), Ok(()));
                assert_eq!(principal(scope, Some(&[A])).may(operation, Some(A)), Ok(()));
                assert_eq!(principal(scope, Some(&[A])).may(operation, Some(B)), Err(Denied::Cluster));
            }
        }
        assert_eq!(principal(TokenScope::Viewer, Some(&[A])).may(Operation::ReadRepository, None), Ok(()));
    }

    #[test]
    fn tokens_are_for_administrators_of_all_clusters_alone() {
        for operation in OF_ALL {
            for scope in [TokenScope::Viewer, TokenScope::Operator] {
                assert_eq!(principal(scope, None).may(operation, None), Err(Denied::Scope { operation, scope }));
            }
            let of_one = principal(TokenScope::Administrator, Some(&[A]));
            assert_eq!(of_one.may(operation, None), Err(Denied::NotForAll { operation }));
            assert_eq!(principal(TokenScope::Administrator, None).may(operation, None), Ok(()));
        }
    }

    #[test]
    fn of_several_grants_the_largest_counts_on_each_cluster() {
        let grants = vec![grant(TokenScope::Viewer, None), grant(TokenScope::Administrator, Some(&[A]))];
        let both = Principal { name: "oidc:ada".to_owned(), grants };
        assert_eq!(both.may(Operation::PutSecret, Some(A)), Ok(()));
        let operation = Operation::PutSecret;
        assert_eq!(both.may(operation, Some(B)), Err(Denied::Scope { operation, scope: TokenScope::Viewer }));
        assert_eq!(both.may(Operation::ReadRepository, Some(B)), Ok(()));
        let operation = Operation::CreateToken;
        assert_eq!(both.may(operation, None), Err(Denied::Scope { operation, scope: TokenScope::Viewer }));
    }

    #[test]
    fn a_refusal_names_the_scope_that_is_needed() {
        let denied = principal(TokenScope::Viewer, None).may(Operation::PutSecret, Some(A)).unwrap_err();
        assert_eq!(denied.to_string(), "put-secret needs the scope operator; yours is viewer");
    }
}
