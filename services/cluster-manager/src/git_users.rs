//! What users ask who use repositories over git, and what they are answered. [`crate::adapters::gatekeeper`] asks, `controllers::git_users` answers.

use std::collections::BTreeSet;

use access::audit::AuditRecord;
use access::rate::TooOften;
use access::{Denied, Operation, Principal};
use cluster_manager_contract::api_token::TokenHash;
use uuid::Uuid;

/// A question with who asks it.
#[derive(Debug, Clone, PartialEq)]
pub struct GitRequest {
    /// Names the answer to it; no two have the same.
    pub id: u64,
    /// From where, for the record.
    pub from: String,
    /// What was shown.
    pub credential: Credential,
    /// What is wanted.
    pub question: GitOperation,
}

/// The credential that a user shows.
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
pub enum GitOperation {
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

impl GitOperation {
    /// What it is, for deciding who may.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self {
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
            Self::Repository { shared: true, .. } | Self::Pushed(RepositoryPush { shared: true, .. }) => None,
            Self::Repository { repository, .. } | Self::Pushed(RepositoryPush { repository, .. }) => Some(*repository),
        }
    }

    /// What is written, for the record. None: nothing is.
    #[must_use]
    pub fn target(&self) -> Option<String> {
        match self {
            Self::Repository { push: true, repository, .. } => Some(format!("repository {repository}")),
            Self::Repository { .. } => None,
            Self::Pushed(push) => {
                let short = |commit: &Option<String>| {
                    commit.as_deref().map_or("nothing", |commit| &commit[..commit.len().min(12)]).to_owned()
                };
                Some(format!("repository {} main {}..{}", push.repository, short(&push.before), short(&push.after)))
            }
        }
    }
}

/// An answer, on its way.
#[derive(Debug, Clone, PartialEq)]
pub struct GitResponse {
    /// As in [`GitRequest::id`].
    pub id: u64,
    /// The answer.
    pub reply: Result<GitOutcome, GitAccessError>,
    /// To be recorded before it is answered.
    pub audit: Option<AuditRecord>,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub enum GitOutcome {
    /// They may read the repository, or push to it.
    Repository {
        /// Who they are.
        who: Principal,
        /// Branches that take no push, because they are pulled from elsewhere.
        pulled: BTreeSet<String>,
    },
    /// The push is recorded.
    Recorded,
}

/// Why a question is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitAccessError {
    /// Who they are is not shown.
    #[error("{0}")]
    Unauthenticated(String),
    /// They may not.
    #[error(transparent)]
    Forbidden(#[from] Denied),
    /// Too often.
    #[error(transparent)]
    TooOften(#[from] TooOften),
    /// Not at present.
    #[error("{0}")]
    NotAtPresent(String),
}
