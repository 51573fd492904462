//! All that can come in, all that can go out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster_manager_contract::{SealedLogin, SecretsReport};
use configdb_schema::document::SealedSecret;
use git_server_contract::push::RefChange;
use sparkplug::EdgeNodeDescriptor;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::replication::Origin;
use uuid::Uuid;

use crate::bootstrap::BootstrapGrant;
use crate::bootstrap::site::SiteScript;
use crate::git_users::{GitRequest, GitResponse};
use crate::wanted_by::WantedBy;
use git_hosting::pulls::Pull;
use git_hosting::repositories::{Kind, RepositoryFiles};

/// What comes in to the manager.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// By its Host Application: ConfigDB and Identity, and Sync and Join of every cluster.
    Host(HostEvent),
    /// By its own Edge Node.
    Node(NodeEvent),
    /// By the disk: how work on a repository ended.
    Git(GitResult),
    /// By a user over git; each is answered by one [`Effect::GitResponse`].
    GitRequest(GitRequest),
    /// By the disk, or by another git server: how work on a shared repository ended.
    Shared(SharedResult),
    /// By the KDC: how work on principals ended.
    Principals(PrincipalsResult),
    /// By the disk: what a copy of a repository needs.
    Copy(CopyResult),
    /// By the disk: a push that the git server received is taken over, or not.
    PushTaken(PushResult),
    /// By the disk: the sealed login of a repository.
    LoginSealed(LoginResult),
    /// By the clock: a deadline has passed.
    DeadlineReached,
}

/// What the manager wants done, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// By its Host Application: commands to ConfigDB, Sync and Join.
    Host(HostRequest),
    /// By its own Edge Node.
    Node(NodeUpdate),
    /// On the disk; each is answered by one [`Event::Git`].
    Git(GitWork),
    /// To a user over git.
    GitResponse(Box<GitResponse>),
    /// On the disk, or with another git server; each is answered by one [`Event::Shared`].
    Shared(SharedWork),
    /// At the KDC; each is answered by one [`Event::Principals`].
    Principals(PrincipalsWork),
    /// By the HTTP server: who may fetch the script that bootstraps a cluster; None: no one.
    BootstrapGrant {
        /// The cluster.
        cluster: Uuid,
        /// Its offer.
        offer: Option<BootstrapGrant>,
    },
    /// By the HTTP server: scripts are made of the site's own; None: of the shipped one.
    Script(Option<Arc<SiteScript>>),
    /// On the disk; a look and a pack are answered by one [`Event::Copy`] each.
    Copy(CopyWork),
    /// On the disk; each is answered by one [`Event::PushTaken`].
    Push(Box<PushWork>),
    /// On the disk: seal the login of a cluster's repository; each is answered by one [`Event::LoginSealed`].
    SealLogin {
        /// The cluster.
        cluster: Uuid,
        /// Identity's enrolment key, base64url.
        key: String,
    },
}

/// Work for the copy of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyWork {
    /// Which repository.
    pub repository: Uuid,
    /// What to do.
    pub action: CopyAction,
}

/// What to do for the copy of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyAction {
    /// Say what the repository is.
    Inspect,
    /// Pack what a copy needs that shall have these refs. A pack that was made before is dropped.
    Pack {
        /// The refs with their objects.
        refs: BTreeMap<String, String>,
        /// Objects that the copy has, with all that is reachable from them.
        has: BTreeSet<String>,
    },
    /// Send the part of the pack that begins at `offset`.
    Part {
        /// To whom.
        node: EdgeNodeDescriptor,
        /// The pack.
        file: PackFile,
        /// Where the part begins.
        offset: u64,
    },
    /// The pack is not needed any more.
    DropPack(PackFile),
}

/// A pack on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackFile {
    /// SHA-256, hexadecimal.
    pub digest: String,
    /// Its size.
    pub bytes: u64,
}

/// An open repository, as far as a copy of it is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// Such as `cluster/Paint_Shop`.
    pub path: String,
    /// Whose it is.
    pub kind: Kind,
    /// Its branches and tags with their objects, hexadecimal.
    pub refs: BTreeMap<String, String>,
    /// SHA-256 of the password by which its cluster reads, hexadecimal.
    pub password: Option<String>,
}

/// What became of work for a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyResult {
    /// Which repository.
    pub repository: Uuid,
    /// What became of it.
    pub outcome: CopyOutcome,
}

/// What became of work for a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyOutcome {
    /// What the repository is; None: it is not open. Err: it cannot be read, for people.
    Inspected(Result<Option<Original>, String>),
    /// The pack; None: the copy needs none. Err: why not, for people.
    Packed(Result<Option<PackFile>, String>),
}

/// A push that the git server has received, to be taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushWork {
    /// Its id.
    pub push: Uuid,
    /// Into which repository.
    pub repository: Uuid,
    /// Address of the user, as the git server says.
    pub from: String,
    /// What the user has shown, sealed to our key.
    pub credential: Arc<[u8]>,
    /// What it changes.
    pub refs: BTreeMap<String, RefChange>,
    /// What is new; None: nothing is.
    pub pack: Option<Arc<[u8]>>,
}

/// What became of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushResult {
    /// As in the work.
    pub push: Uuid,
    /// As in the work.
    pub repository: Uuid,
    /// Err: why it is refused, for the user.
    pub outcome: Result<(), String>,
}

/// How sealing the login of a repository ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginResult {
    /// The cluster.
    pub cluster: Uuid,
    /// As in the effect.
    pub key: String,
    /// Err: why not, for people, without secrets.
    pub sealed: Result<SealedLogin, String>,
}

/// Work on the principals of one cluster. Doing it twice is doing it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrincipalsWork {
    /// The cluster.
    pub cluster: Uuid,
    /// Whose, with realm.
    pub principals: Vec<String>,
    /// They get tickets, and are made if they are not there; or they get none.
    pub allowed: bool,
}

/// How work on principals ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrincipalsResult {
    /// The cluster.
    pub cluster: Uuid,
    /// As in the work.
    pub allowed: bool,
    /// Err: what went wrong, for people, without secrets.
    pub result: Result<(), String>,
}

/// Work on the repository of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitWork {
    /// The cluster.
    pub cluster: Uuid,
    /// What to do.
    pub action: GitAction,
}

/// What to do with a repository. Doing it twice is doing it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitAction {
    /// Serve the repository at `path`, and bring branch `main` to these files.
    Write {
        /// Such as `cluster/Paint_Shop`.
        path: String,
        /// State of ConfigDB that wants it so.
        origin: Origin,
        /// That state is recorded also where nothing changes, because ConfigDB will forget the one that is recorded.
        renews: bool,
        /// The files.
        files: RepositoryFiles,
        /// If the branch holds other ones, it stays as it is.
        hold: bool,
        /// What ConfigDB has of the cluster's secrets, to be brought into the repository in any case.
        secrets: Vec<Arc<SealedSecret>>,
    },
    /// Serve it no longer and forget its password; the storage stays.
    Close,
}

/// How work on a repository ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitResult {
    /// The cluster.
    pub cluster: Uuid,
    /// The end.
    pub outcome: GitOutcome,
    /// It has changed nothing that the copies of the repository have: branches, place, password.
    pub is_as_before: bool,
}

/// How work on a repository ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitOutcome {
    /// Branch `main` is this commit.
    Written {
        /// Hexadecimal.
        commit: String,
        /// State of ConfigDB that it was brought to.
        wanted_by: WantedBy,
        /// Its secrets.
        secrets: SecretsReport,
    },
    /// Branch `main` is this commit, with other files than those that it was compared with.
    Held {
        /// Hexadecimal.
        commit: String,
        /// State of ConfigDB that it was brought to.
        wanted_by: WantedBy,
        /// Its secrets.
        secrets: SecretsReport,
    },
    /// It is closed.
    Closed,
    /// It did not work; for people.
    Failed {
        /// Without secrets.
        reason: String,
    },
}

impl GitOutcome {
    /// What branch `main` is, if that is known.
    #[must_use]
    pub fn commit(&self) -> Option<&str> {
        match self {
            Self::Written { commit, .. } | Self::Held { commit, .. } => Some(commit),
            Self::Closed | Self::Failed { .. } => None,
        }
    }
}

/// Work on a shared repository. There is at most one piece under way for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedWork {
    /// The repository.
    pub repository: Uuid,
    /// What to do.
    pub action: SharedAction,
}

/// What to do with a shared repository. Doing it twice is doing it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedAction {
    /// Serve it at `path`; make it if it does not exist.
    Open {
        /// Such as `shared/charts`.
        path: String,
        /// State of ConfigDB that wants it.
        origin: Origin,
    },
    /// Serve it no longer; the storage stays.
    Close,
    /// Bring a branch to where it is elsewhere.
    Pull {
        /// Its name here.
        branch: String,
        /// From where.
        pull: Pull,
    },
}

/// How work on a shared repository ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedResult {
    /// The repository.
    pub repository: Uuid,
    /// The branch, if it was a pull.
    pub branch: Option<String>,
    /// Err: what went wrong, for people, without secrets.
    pub outcome: Result<SharedOutcome, String>,
}

/// Work on a shared repository that is done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SharedOutcome {
    /// Commit of branch `main`, hexadecimal; None: it has none yet.
    pub main: Option<String>,
    /// Commit that was pulled.
    pub pulled: Option<String>,
    /// The branch that should follow has commits of its own.
    pub diverged: bool,
}
