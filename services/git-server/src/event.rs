//! All that can come in, all that can go out.

use std::collections::BTreeMap;
use std::fmt;

use access::Principal;
use access::audit::AuditRecord;
use cluster_manager_contract::api_token::TokenHash;
use git_hosting::copies::Refs;
use git_hosting::gatekeeper::{Admission, Change, Denial};
use git_server_contract::DesiredRepository;
use git_server_contract::pack::Pack;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::host::{HostEvent, HostRequest};
use uuid::Uuid;
use zeroize::Zeroizing;

/// What comes in.
#[derive(Debug)]
pub enum Event {
    /// By its Host Application: ConfigDB, the cluster manager.
    Host(HostEvent),
    /// By its own Edge Node: among it what the cluster manager commands.
    Node(NodeEvent),
    /// By HTTP: a user wants to read or push.
    GitRequest(GitRequest),
    /// By HTTP: a push was received apart.
    Pushed(PushRequest),
    /// By HTTP: a cluster has asked for a repository.
    Polled(Uuid),
    /// By the disk: how work on a copy ended.
    Copied(CopyResult),
    /// By the clock: a deadline has passed.
    DeadlineReached,
}

/// What shall be done, in order.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// By its Host Application.
    Host(HostRequest),
    /// By its own Edge Node.
    Node(NodeUpdate),
    /// By HTTP: the answer to [`Event::GitRequest`].
    Answer(u64, Result<Admission, Denial>),
    /// On the disk: the record of a push that was refused here. The cluster manager records those that reach it.
    Record(Box<AuditRecord>),
    /// By HTTP: how [`Event::Pushed`] ended.
    PushEnded(Uuid, Result<(), Denial>),
    /// On the disk; answered by one [`Event::Copied`].
    Copy(Box<CopyWork>),
}

/// A user wants to read or push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRequest {
    /// Names the answer.
    pub id: u64,
    /// Address of the user.
    pub from: String,
    /// Who.
    pub credential: Credential,
    /// Which repository, and whether it is a shared one; None: there is none at the path.
    pub repository: Option<(Uuid, bool)>,
    /// To push; else to read.
    pub push: bool,
}

/// Who a user is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// The holder of a token, by its hash.
    Token(TokenHash),
    /// The identity provider vouches for them.
    Verified(Principal),
}

/// A push that was received apart, and has changed nothing yet.
pub struct PushRequest {
    /// Names the push; no two have the same.
    pub id: Uuid,
    /// Into which repository.
    pub repository: Uuid,
    /// Address of the client.
    pub from: String,
    /// What the user presented.
    pub credential: Zeroizing<String>,
    /// What it changes.
    pub changes: BTreeMap<String, Change>,
    /// The objects that are new; empty: none are.
    pub pack: Vec<u8>,
    /// From a cryptographic source, for the seal of the credential alone.
    pub randomness: [u8; 32],
}

impl fmt::Debug for PushRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PushRequest({}, into {})", self.id, self.repository)
    }
}

/// Work on one copy: record what it shall be, take a pack, move its references, serve it or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyWork {
    /// What it shall be.
    pub desired: DesiredRepository,
    /// It is on the disk already.
    pub is_recorded: bool,
    /// Objects to be taken first.
    pub packs: Vec<Pack>,
    /// Packs may build on what the copy has.
    pub builds_on: bool,
}

/// How work on a copy ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyResult {
    /// Which repository.
    pub repository: Uuid,
    /// Version of the desired state that the work was for.
    pub version: u64,
    /// That version is on the disk.
    pub is_recorded: bool,
    /// The references that it has now.
    pub refs: Refs,
    /// Clients can fetch it.
    pub is_served: bool,
    /// What became of it.
    pub outcome: CopyOutcome,
    /// Why a pack was not taken.
    pub pack_error: Option<String>,
}

/// What became of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyOutcome {
    /// It is as it shall be.
    Applied,
    /// Objects are missing.
    Missing,
    /// Why it could not be changed, for people.
    Failed(String),
}

/// What an earlier process left on the disk of one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistedCopy {
    /// What it shall be.
    pub desired: DesiredRepository,
    /// The references that it has.
    pub refs: Refs,
    /// It is served where it shall be, or not served as it shall be.
    pub is_placed: bool,
}

/// All that is on the disk.
pub type PersistedCopies = BTreeMap<Uuid, PersistedCopy>;
