//! What is between the cluster manager and the git server beside their disks: packs, keys, what the one knows of the other, and users who push.

use std::collections::{BTreeMap, BTreeSet};

use access::{Grant, Principal};
use cluster_manager::event::PushWork;
use configdb_schema::document::TokenScope;
use git_hosting::credential::CredentialKeyPair;
use git_server_contract::pack::Pack;
use uuid::Uuid;

use crate::model::ids::ProcessId;

/// Who pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pusher {
    /// May push everywhere.
    Operator,
    /// May push into the repository of one cluster.
    Local(Uuid),
    /// May only read.
    Viewer,
}

/// A push that the cluster manager decides over.
#[derive(Debug)]
pub(crate) struct Deciding {
    /// Which life of the cluster manager.
    pub(crate) of: (ProcessId, u64),
    pub(crate) work: PushWork,
    /// How it ended on the disk; None: who pushes is judged first.
    pub(crate) ended: Option<Result<(), String>>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Pushing {
    /// Packs that a cluster manager has made for copies, by their digests.
    pub(crate) packs: BTreeMap<ProcessId, BTreeMap<(Uuid, String), Pack>>,
    /// What the key of each cluster manager is derived from.
    pub(crate) seeds: BTreeMap<ProcessId, u64>,
    /// Which life of which git server a cluster manager takes for alive.
    pub(crate) alive: BTreeMap<ProcessId, (ProcessId, u64)>,
    /// Users who have asked whether they may push, and where.
    pub(crate) asked: BTreeMap<u64, (Pusher, Uuid)>,
    /// Pushes that are with the git server: into which repository, and which commit.
    pub(crate) under_way: BTreeMap<Uuid, (Uuid, u32)>,
    /// By the number of the question to the cluster manager.
    pub(crate) decided: BTreeMap<u64, Deciding>,
    /// Pushes whose users know that they were taken.
    pub taken: u64,
    /// Commits that edges were sent.
    pub sent: BTreeSet<String>,
}

impl Pusher {
    /// What the user presents.
    pub(crate) fn credential(self) -> String {
        match self {
            Self::Operator => "operator".to_owned(),
            Self::Local(cluster) => cluster.to_string(),
            Self::Viewer => "viewer".to_owned(),
        }
    }

    /// Who presents that.
    pub(crate) fn of(credential: &str) -> Self {
        match credential.parse() {
            Ok(cluster) => Self::Local(cluster),
            Err(_) if credential == "operator" => Self::Operator,
            Err(_) => Self::Viewer,
        }
    }

    pub(crate) fn principal(self) -> Principal {
        let (scope, clusters) = match self {
            Self::Operator => (TokenScope::Operator, None),
            Self::Local(cluster) => (TokenScope::Operator, Some(BTreeSet::from([cluster]))),
            Self::Viewer => (TokenScope::Viewer, None),
        };
        Principal { name: format!("oidc:{}", self.credential()), grants: vec![Grant { scope, clusters }] }
    }

    /// Whether the user may push into that repository.
    pub(crate) fn may(self, repository: Uuid) -> bool {
        match self {
            Self::Operator => true,
            Self::Local(cluster) => cluster == repository,
            Self::Viewer => false,
        }
    }
}

/// The key pair that a cluster manager makes at its start.
pub(crate) fn key_pair(seed: u64) -> CredentialKeyPair {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    CredentialKeyPair::new(bytes)
}
