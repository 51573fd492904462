//! Which users may read a repository, and push to it, is decided by the program that hosts the repositories. Clusters read by their passwords ([`crate::passwords`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use access::Principal;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::repositories::Open;

/// Decides who may use which repository. Clones are the same.
pub trait Gatekeeper: std::fmt::Debug + Clone + Send + Sync + 'static {
    /// A cluster has asked for a repository.
    fn polled(&self, cluster: Uuid);

    /// Whether a user may read or push.
    ///
    /// # Errors
    /// [`Denial`]
    fn admit(&self, request: AdmissionRequest) -> impl Future<Output = Result<Admission, Denial>> + Send;

    /// A push has ended. False: that could not be recorded, and is to be said again.
    fn pushed(&self, push: Push) -> impl Future<Output = bool> + Send;

    /// Hands a push that was received apart to where it is decided, and waits until the repository is as it says.
    ///
    /// # Errors
    /// Why the push is refused, or cannot be decided at present. Where nothing is handed on, that.
    fn hand_over(&self, _push: ReceivedPush) -> impl Future<Output = Result<(), Denial>> + Send {
        std::future::ready(Err(Denial::NotAtPresent("pushes are not handed on here".to_owned())))
    }
}

/// A user who wants to read a repository, or to push to it.
#[derive(Debug)]
pub struct AdmissionRequest {
    /// Which repository. None: there is none at the path; the denial must be the same as for one that is not for this user.
    pub repository: Option<Open>,
    /// What the user presented, as a password or as a bearer token.
    pub credential: Zeroizing<String>,
    /// The user's address.
    pub from: IpAddr,
    /// To push; else to read.
    pub push: bool,
}

/// What is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The user.
    pub who: Principal,
    /// Branches that take no pushes, because they are pulled from elsewhere.
    pub pulled: BTreeSet<String>,
}

/// A push that has ended.
#[derive(Debug, Clone)]
pub struct Push {
    /// Into which repository.
    pub repository: Open,
    /// Who pushed.
    pub who: Principal,
    /// From where.
    pub from: IpAddr,
    /// Commit of branch `main` before it; None: there was none.
    pub before: Option<String>,
    /// And after it.
    pub after: Option<String>,
}

/// A push that was received, and has changed nothing yet.
#[derive(Debug)]
pub struct ReceivedPush {
    /// Into which repository.
    pub repository: Open,
    /// Who pushes.
    pub who: Principal,
    /// From where.
    pub from: IpAddr,
    /// What the user presented.
    pub credential: Zeroizing<String>,
    /// What it changes.
    pub changes: BTreeMap<String, Change>,
    /// A pack of the objects that are new; empty: none are.
    pub pack: Vec<u8>,
}

/// A reference that a push changes: its object before and after, hexadecimal. None: there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Before the push.
    pub before: Option<String>,
    /// And after it.
    pub after: Option<String>,
}

impl Denial {
    /// Why, for people.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::NotACredential | Self::Unknown => "the credential is not accepted",
            Self::NotFound => "there is no such repository, or it is not for this user",
            Self::NotAccepted(reason) | Self::Forbidden(reason) | Self::TooOften(reason) => reason,
            Self::NotAtPresent(reason) | Self::Broken(reason) => reason,
        }
    }
}

/// Why nothing is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// What was presented is not the credential of a user.
    NotACredential,
    /// The credential is unknown, revoked or expired.
    Unknown,
    /// The identity provider does not accept it, for this reason.
    NotAccepted(String),
    /// There is no such repository, or it is not for this user.
    NotFound,
    /// The user may not, for this reason.
    Forbidden(String),
    /// The user has asked too often.
    TooOften(String),
    /// It cannot be decided at present.
    NotAtPresent(String),
    /// The gatekeeper failed.
    Broken(String),
}

#[cfg(test)]
pub(crate) mod fake;
