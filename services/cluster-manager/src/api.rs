//! What people and programs ask the cluster manager over HTTP, and what it answers. [`crate::adapters::http`] speaks HTTP, [`crate::state`] answers.
//!
//! A value of a secret is in neither: it is sealed before it is asked for to be written.

use std::time::Duration;

use cluster_manager_contract::ClusterDevice;
use configdb_schema::document::ApiToken;
use serde_json::Value;
use uuid::Uuid;

use crate::secrets::{SecretFault, SecretKey, StoredSecret};
use access::audit::AuditRecord;
use access::rate::TooOften;
use access::{Denied, Grant, Operation, Principal};
use cluster_manager_contract::api_token::TokenHash;

/// A question with who asks it.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// Names the answer to it; no two have the same.
    pub id: u64,
    /// From where, for the record.
    pub from: String,
    /// What was shown.
    pub credential: Credential,
    /// What is wanted.
    pub question: Question,
}

/// The credential that a client shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// Nothing, or nothing that has the form of a credential.
    None,
    /// A token, by its hash.
    Token(TokenHash),
    /// The identity provider vouches for them.
    Verified(Principal),
}

/// What is wanted.
#[derive(Debug, Clone, PartialEq)]
pub enum Question {
    /// The clusters.
    Clusters,
    /// One cluster.
    Status {
        /// Which.
        cluster: Uuid,
    },
    /// The certificate that a value has to be sealed for. Who may not write it does not get it.
    Certificate {
        /// Of which cluster.
        cluster: Uuid,
        /// What is to be written.
        key: SecretKey,
    },
    /// The certificate that a cluster's values are sealed for.
    SealingCertificate {
        /// Of which cluster.
        cluster: Uuid,
    },
    /// A line that bootstraps a cluster.
    BootstrapLine {
        /// Which cluster.
        cluster: Uuid,
        /// Of the token that was made for it, as in [`enrolment_protocol::token::TokenHash`].
        hash: String,
        /// How long the token lives.
        lifetime: Duration,
    },
    /// The tokens.
    Tokens,
    /// Create a token.
    CreateToken {
        /// Its name.
        name: String,
        /// Of its text.
        hash: TokenHash,
        /// What its holder may do.
        grant: Grant,
        /// How long it lives.
        lifetime: Duration,
    },
    /// Revoke a token.
    RevokeToken {
        /// Its name.
        name: String,
    },
    /// Whether they may read the record of writes.
    Audit,
    /// Names of the secrets in a cluster's repository.
    Secrets {
        /// Which cluster.
        cluster: Uuid,
    },
    /// Write one key of a secret.
    PutSecret {
        /// Of which cluster.
        cluster: Uuid,
        /// Which.
        key: SecretKey,
        /// The SealedSecret with this key alone.
        sealed: Box<Value>,
        /// Of the certificate that it is sealed for.
        fingerprint: String,
        /// Do everything but keep it.
        dry_run: bool,
    },
    /// Read a repository over git, or push to it.
    Repository {
        /// Which.
        repository: Uuid,
        /// It is not a cluster's.
        shared: bool,
        /// To push.
        push: bool,
    },
    /// Not a question: a push that was allowed has ended.
    Pushed(RepositoryPush),
    /// Remove one key of a secret.
    DeleteSecret {
        /// Of which cluster.
        cluster: Uuid,
        /// Which.
        key: SecretKey,
        /// Do everything but keep it.
        dry_run: bool,
    },
}

/// A push that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryPush {
    /// Into which repository.
    pub repository: Uuid,
    /// It is not a cluster's.
    pub shared: bool,
    /// Commit of branch `main` before it; None: there was none.
    pub before: Option<String>,
    /// And after it.
    pub after: Option<String>,
}

impl Question {
    /// What it is, for deciding who may.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Clusters => Operation::ListClusters,
            Self::Status { .. } => Operation::ReadStatus,
            Self::BootstrapLine { .. } => Operation::BootstrapLine,
            Self::Secrets { .. } => Operation::ListSecrets,
            Self::SealingCertificate { .. } => Operation::ReadCertificate,
            Self::Certificate { .. } | Self::PutSecret { .. } => Operation::PutSecret,
            Self::DeleteSecret { .. } => Operation::DeleteSecret,
            Self::Tokens => Operation::ListTokens,
            Self::CreateToken { .. } => Operation::CreateToken,
            Self::RevokeToken { .. } => Operation::RevokeToken,
            Self::Audit => Operation::ReadAudit,
            Self::Repository { push: false, .. } => Operation::ReadRepository,
            Self::Repository { shared: true, .. } | Self::Pushed(RepositoryPush { shared: true, .. }) => {
                Operation::PushShared
            }
            Self::Repository { .. } | Self::Pushed(_) => Operation::Push,
        }
    }

    /// The cluster that it concerns.
    #[must_use]
    pub const fn cluster(&self) -> Option<Uuid> {
        match self {
            Self::Clusters | Self::Tokens | Self::CreateToken { .. } | Self::RevokeToken { .. } | Self::Audit => None,
            Self::Repository { shared: true, .. } | Self::Pushed(RepositoryPush { shared: true, .. }) => None,
            Self::Repository { repository, .. } | Self::Pushed(RepositoryPush { repository, .. }) => Some(*repository),
            Self::Status { cluster }
            | Self::BootstrapLine { cluster, .. }
            | Self::Certificate { cluster, .. }
            | Self::Secrets { cluster }
            | Self::SealingCertificate { cluster }
            | Self::PutSecret { cluster, .. }
            | Self::DeleteSecret { cluster, .. } => Some(*cluster),
        }
    }

    /// What is written, for the record. A token is named by the beginning of its hash, as in the log.
    #[must_use]
    pub fn target(&self) -> Option<String> {
        match self {
            Self::Certificate { key, .. } | Self::PutSecret { key, .. } | Self::DeleteSecret { key, .. } => {
                Some(key.to_string())
            }
            Self::BootstrapLine { hash, .. } => Some(format!("token {}", hash.get(..8).unwrap_or_default())),
            Self::CreateToken { name, .. } | Self::RevokeToken { name } => Some(name.clone()),
            Self::Repository { push: true, repository, .. } => Some(format!("repository {repository}")),
            Self::Pushed(push) => {
                let short = |commit: &Option<String>| {
                    commit.as_deref().map_or("nothing", |commit| &commit[..commit.len().min(12)]).to_owned()
                };
                Some(format!("repository {} main {}..{}", push.repository, short(&push.before), short(&push.after)))
            }
            Self::Clusters | Self::Status { .. } | Self::Secrets { .. } | Self::Tokens | Self::Audit => None,
            Self::SealingCertificate { .. } | Self::Repository { .. } => None,
        }
    }
}

/// An answer, on its way.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// As in [`Asked::id`].
    pub id: u64,
    /// The answer.
    pub reply: Result<Reply, Refusal>,
    /// To be recorded before it is answered.
    pub audit: Option<AuditRecord>,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The clusters that they may see.
    Clusters(Vec<(Uuid, ClusterDevice)>),
    /// One cluster.
    Status(Uuid, Box<ClusterDevice>),
    /// PEM.
    Certificate(String),
    /// The secrets, and the fingerprint of the certificate that the cluster seals with.
    Secrets(Vec<StoredSecret>, Option<String>),
    /// It is done.
    Written,
    /// The tokens, in the order of their names.
    Tokens(Vec<ApiToken>),
    /// The token is in force.
    Created {
        /// When it ends, RFC 3339.
        expires: String,
    },
    /// They may; the answer itself is not the state's.
    Permitted,
    /// They may read the repository, or push to it.
    Repository {
        /// Who they are.
        who: Principal,
        /// Branches that take no push, because they are pulled from elsewhere.
        pulled: std::collections::BTreeSet<String>,
    },
    /// The script of the cluster is offered to the token.
    Offered {
        /// Where it is fetched.
        url: String,
        /// When the token ends, UTC ms.
        expires: u64,
    },
}

/// Why a question is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Who they are is not shown.
    #[error("{0}")]
    Unauthenticated(String),
    /// They may not.
    #[error(transparent)]
    Forbidden(#[from] Denied),
    /// Too often.
    #[error(transparent)]
    TooOften(#[from] TooOften),
    /// There is none.
    #[error("there is no such cluster")]
    NoCluster,
    /// There is none.
    #[error("there is no such token")]
    NoToken,
    /// Another token has the name.
    #[error("there is a token of that name; revoke it first, or choose another name")]
    NameTaken,
    /// What is asked for breaks a rule: field and rule.
    #[error("{0}")]
    Invalid(String),
    /// Not at present.
    #[error("{0}")]
    NotAtPresent(String),
    /// The repository does not allow it.
    #[error(transparent)]
    Secret(#[from] SecretFault),
}
