//! What must end, compared with what there is: attempts whose time is over or whose host is revoked, a lease without a holder, names and disks without a host.
//!
//! No token is without an attempt (it is written down before the token is made), so revoking by attempts leaves none behind.

use join_attestation::Policy;
use join_protocol::issuer::Phase;
use join_protocol::terms::{Kind, RequestId, Role};
use join_service_contract::HostState;

use crate::cache::{Cache, Entry};
use crate::document::{HostRecord, Key, Request, to_text};
use crate::event::{Operation, Version};

/// How much longer than its claim an attempt may wait for its evidence to come again, ms. Hosts repeat evidence for 120 s.
const CLAIM_GRACE_MS: u64 = 120_000;
/// How long an attempt is remembered after its end, ms: late repeats of its evidence are not taken for a first.
const FORGET_MS: u64 = 600_000;
/// How old a binding has to be before it is given back, ms: it may be part of a transaction of another replica.
const BINDING_MS: u64 = 300_000;

/// Why an attempt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The host is a member, or has its keys again.
    Member,
    /// The host says that it failed.
    Failed,
    /// Its time is over.
    Expired,
    /// Another attempt of the same host took its place.
    Superseded,
    /// The endorsement key is revoked.
    Revoked,
}

impl Ending {
    /// For people.
    #[must_use]
    pub(crate) const fn detail(self) -> &'static str {
        match self {
            Self::Member => "is a member",
            Self::Failed => "the host failed",
            Self::Expired => "the ticket was not used in time",
            Self::Superseded => "another attempt took its place",
            Self::Revoked => "the endorsement key is revoked",
        }
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DueWork {
    /// End an attempt.
    End(RequestId, Ending),
    /// Give a document back.
    Delete(Key, String),
    /// Take the node of a revoked host out of the cluster.
    DeleteNode(String),
}

/// Everything that is due at `wall_ms`. `token_ms`: how long a token is valid.
#[must_use]
pub(crate) fn due(cache: &Cache, policy: &Policy, wall_ms: u64, token_ms: u64) -> Vec<DueWork> {
    let mut due = Vec::new();
    for (id, entry) in cache.requests() {
        let request = &entry.is;
        if let Some(ending) = ending(cache, policy, request, wall_ms, token_ms) {
            due.push(DueWork::End(*id, ending));
        } else if !request.is_live() && wall_ms > request.changed_ms.saturating_add(FORGET_MS) {
            due.push(DueWork::Delete(Key::Request(*id), entry.version.clone()));
        }
    }
    if let Some(lease) = cache.control_plane() {
        let holder = cache.requests().values().find(|entry| entry.is.record.request.to_string() == lease.is.request);
        if wall_ms > lease.is.until_ms || holder.is_some_and(|holder| !holder.is.is_live()) {
            due.push(DueWork::Delete(Key::ControlPlane, lease.version.clone()));
        }
    }
    let is_old = |since_ms: u64| wall_ms > since_ms.saturating_add(BINDING_MS);
    for (disk, entry) in cache.disks() {
        let is_owned = cache.host(&entry.is.ek).is_some_and(|host| host.is.disk == *disk);
        if !is_owned && is_old(entry.is.since_ms) {
            due.push(DueWork::Delete(Key::Disk(*disk), entry.version.clone()));
        }
    }
    for (name, entry) in cache.names() {
        let is_owned = cache.host(&entry.is.ek).is_some_and(|host| host.is.name == *name);
        if !is_owned && is_old(entry.is.since_ms) {
            due.push(DueWork::Delete(Key::Name(name.clone()), entry.version.clone()));
        }
    }
    due.extend(revoked_nodes(cache, policy).map(DueWork::DeleteNode));
    due
}

/// Nodes of revoked workers. With a Node go its pods, and with these all that its kubelet may read; one that registers itself again is taken out again. A control plane is left to
/// people: it has to leave etcd first.
fn revoked_nodes<'a>(cache: &'a Cache, policy: &'a Policy) -> impl Iterator<Item = String> + use<'a> {
    let is_out = |ek, host: &HostRecord| {
        policy.is_revoked(ek) && host.role == Role::Worker.name() && cache.name_owner(&host.name) == Some(*ek)
    };
    let hosts = cache.hosts().iter().filter(move |(ek, entry)| is_out(ek, &entry.is));
    hosts.map(|(_, entry)| entry.is.name.clone()).filter(|name| cache.is_node(name))
}

fn ending(cache: &Cache, policy: &Policy, request: &Request, wall_ms: u64, token_ms: u64) -> Option<Ending> {
    if !request.is_live() {
        return None;
    }
    if policy.is_revoked(&request.ek) {
        return Some(Ending::Revoked);
    }
    let id = request.record.request.to_string();
    let current = cache.host(&request.ek).and_then(|host| host.is.request.as_ref());
    let is_claimed = matches!(request.record.phase, Phase::Claimed { .. });
    // A claim is written before the host's record names it.
    if !is_claimed && current.is_some_and(|current| *current != id) {
        return Some(Ending::Superseded);
    }
    if !is_claimed && joins_control_plane(request) {
        let lease = cache.control_plane().filter(|lease| lease.is.request == id && lease.is.until_ms >= wall_ms);
        if lease.is_none() {
            return Some(Ending::Expired);
        }
    }
    let ends_ms = match request.record.phase {
        Phase::Claimed { until_ms, .. } => until_ms.saturating_add(CLAIM_GRACE_MS),
        _ => request.changed_ms.saturating_add(token_ms),
    };
    (wall_ms > ends_ms).then_some(Ending::Expired)
}

fn joins_control_plane(request: &Request) -> bool {
    request.record.kind == Kind::Join && request.record.role == Role::ControlPlane
}

/// The operations that end an attempt: the token first, then the note that it ended, so that a crash in between is followed by the same again.
#[must_use]
pub(crate) fn end(cache: &Cache, entry: &Entry<Request>, ending: Ending, wall_ms: u64) -> Vec<Operation> {
    let request = &entry.is;
    let id = request.record.request.to_string();
    let mut operations: Vec<Operation> =
        request.token.iter().map(|id| Operation::DeleteToken { id: id.clone() }).collect();
    if let Some(host) = cache.host(&request.ek).filter(|host| host.is.request.as_ref() == Some(&id)) {
        let ended = ended_host(&host.is, request, ending, wall_ms);
        operations.push(Operation::Replace {
            key: Key::Host(request.ek),
            text: to_text(&ended),
            version: Version::Known(host.version.clone()),
        });
    }
    let mut done = request.clone();
    done.record.phase = Phase::Done;
    done.changed_ms = wall_ms;
    operations.push(Operation::Replace {
        key: Key::Request(request.record.request),
        text: done.to_text(),
        version: Version::Known(entry.version.clone()),
    });
    // Last: an attempt without its lease would be taken for one whose time is over.
    if let Some(lease) = cache.control_plane().filter(|lease| lease.is.request == id) {
        operations.push(Operation::Delete { key: Key::ControlPlane, version: lease.version.clone() });
    }
    operations
}

fn ended_host(host: &HostRecord, request: &Request, ending: Ending, wall_ms: u64) -> HostRecord {
    let state = match (ending, request.record.kind, &request.record.phase) {
        // It runs, whatever became of its certificates.
        (_, Kind::Renew, _) => HostState::Member,
        (Ending::Member, _, _) => HostState::Member,
        (Ending::Failed, _, _) => HostState::Failed,
        // A member stays one whatever becomes of a rejoin; a host that is locked already has what its ticket gave.
        (_, Kind::Rejoin, _) if host.bound => HostState::Member,
        (_, _, Phase::Acknowledged { .. }) => HostState::Locked,
        (Ending::Expired | Ending::Superseded | Ending::Revoked, _, _) => HostState::Failed,
    };
    let detail = match ending {
        Ending::Member | Ending::Failed => host.detail.clone(),
        other => Some(other.detail().to_owned()),
    };
    // A host is not taken for a member before it has shown its lock.
    let bound = host.bound || ending == Ending::Member;
    HostRecord { state: state.to_string(), bound, request: None, detail, last_seen: wall_ms, ..host.clone() }
}
