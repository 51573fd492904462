//! What people ask of the console beside reads, and what they are answered. [`crate::adapters::http`] speaks HTTP, [`crate::state`] answers. Pure.

use std::time::Duration;

use access::audit::AuditRecord;
use access::rate::TooOften;
use access::{Denied, Principal};
use cluster_manager_contract::api_token::TokenHash;
use configdb_schema::document::AttestationPolicy;
use fleet_view::policy::HostOutlook;
use fleet_view::requests::RequestError;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::action::Action;
use crate::preview::Step;

/// SHA-256 of the id of a session: the console never keeps what a browser shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionHash([u8; 32]);

impl SessionHash {
    /// Of the text in a cookie.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// As it is kept: hexadecimal in lower case.
    #[must_use]
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    /// As [`SessionHash::to_hex`] writes it; None: the text is something else.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

/// What a caller shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// Nothing, or nothing that has the form of a credential.
    None,
    /// A token, by its hash.
    Token(TokenHash),
    /// A session, by the hash of its id.
    Session(SessionHash),
}

/// A question with who asks it.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiRequest {
    /// Names the answer to it; no two have the same.
    pub id: u64,
    /// The address that asks.
    pub from: String,
    /// What was shown.
    pub credential: Credential,
    /// What is asked.
    pub question: ApiOperation,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiOperation {
    /// Who am I?
    Who,
    /// Who am I who only looks? A session is not used by that, and one that rests is good enough.
    Watches,
    /// Begin a session under this hash.
    SignIn(SessionHash),
    /// Begin a session of a user whom the identity provider vouches for.
    SignInAs(SessionHash, Principal),
    /// End the session that was shown.
    SignOut,
    /// What would this policy say of the hosts of a cluster? Nothing comes of it.
    Simulate {
        /// Which cluster.
        cluster: Uuid,
        /// The policy.
        policy: Box<AttestationPolicy>,
    },
    /// What would be done? Nothing comes of it.
    Plan(Action),
    /// Do something.
    Act {
        /// Chosen by who asks: the same key and action are done once.
        key: String,
        /// What.
        action: Action,
    },
    /// A command that bootstraps a cluster.
    Bootstrap {
        /// As of [`ApiOperation::Act`].
        key: String,
        /// Which cluster.
        cluster: Uuid,
        /// Of the token that was made for it, as in `enrolment_protocol::token::TokenHash`.
        hash: String,
        /// How long that lives.
        lifetime: Duration,
    },
}

/// An answer, on its way.
#[derive(Debug, Clone)]
pub struct ApiResponse {
    /// As in [`ApiRequest::id`].
    pub id: u64,
    /// The answer.
    pub reply: Result<ApiOutcome, ApiError>,
    /// To be recorded before it is answered.
    pub audit: Option<AuditRecord>,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum ApiOutcome {
    /// Who asks; None: a caller who has not signed in.
    Who(Option<Principal>),
    /// The session has begun.
    SignedIn(Principal),
    /// It has ended, or there was none.
    SignedOut,
    /// What the policy would say.
    Simulated(Vec<HostOutlook>),
    /// What an action would do, in this order.
    Planned(Vec<Step>),
    /// The action is under way; its end is in table `actions`, by this key.
    Accepted {
        /// The key.
        id: String,
    },
    /// The key was used for this very action before, and nothing comes of it again: what is shown once was shown then.
    Repeated {
        /// The key in table `actions`.
        id: String,
    },
    /// The token opens the cluster's script.
    Offered {
        /// The key in table `actions`.
        id: String,
        /// Where the script is fetched.
        url: String,
        /// When the token ends, RFC 3339.
        expires: String,
    },
}

/// Why something is not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// Who they are is not shown.
    #[error("{0}")]
    Unauthenticated(String),
    /// They may not.
    #[error(transparent)]
    Forbidden(#[from] Denied),
    /// No user may.
    #[error("{0}")]
    ReadOnly(&'static str),
    /// Too often.
    #[error(transparent)]
    TooOften(#[from] TooOften),
    /// The action cannot be done.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The key was used for something else.
    #[error("Idempotency-Key: was used for another action; choose a new one")]
    KeyReused,
    /// Not at present.
    #[error("{0}")]
    NotNow(String),
}
