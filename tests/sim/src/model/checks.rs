//! What the checks remember of what happened. Names are those of the architecture's invariants.
//!
//! Each step says here what it did. What can be judged at once is judged here, everything else after the step.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use configdb_schema::document::EdgeDeployment;
use edge_sync::object::ObjectKey;
use krb_keys::spec::{ResourceId, SecretKey};
use sparkplug::host::HostEvent;
use sparkplug::payload::Limits;
use sparkplug::session::Publish;
use sparkplug::{EdgeNodeDescriptor, MessageKind, Topic, payload};
use uuid::Uuid;

use crate::model::ids::{ClusterId, ProcessId};
use crate::model::role::Role;

/// Two requests for rebirth of one host to one node are at least this far apart.
const REBIRTH_REQUESTS_APART: Duration = Duration::from_millis(1_500);

/// A check that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Name of the invariant.
    pub invariant: &'static str,
    /// What was seen.
    pub detail: String,
}

impl Violation {
    /// A failed check.
    #[must_use]
    pub const fn new(invariant: &'static str, detail: String) -> Self {
        Self { invariant, detail }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.detail)
    }
}

/// What the checks remember.
#[derive(Debug, Default)]
pub struct Checks {
    /// Crashes so far.
    pub crashes: u64,
    /// Kerberos keys that were made so far.
    pub rotations: u64,
    /// Garbage published so far.
    pub garbage: u64,
    /// Updates that an Edge Node refused.
    pub refusals: Vec<String>,
    /// Messages that the broker took, by kind.
    pub messages: BTreeMap<String, u64>,
    pub(crate) failed: Option<Violation>,
    /// Sessions of nodes that a host may take for alive: bdSeq of births that were delivered, without a death since.
    born: BTreeMap<ProcessId, BTreeMap<EdgeNodeDescriptor, BTreeSet<u64>>>,
    asked: BTreeMap<(ProcessId, EdgeNodeDescriptor), Duration>,
    /// A record of an accepted index was written since the last look.
    pub is_record_written: bool,
    pub(crate) records: BTreeMap<ClusterId, String>,
    /// Deployments that were wanted on a cluster and are not, or were not for a while.
    pub(crate) wanted: BTreeSet<(Uuid, Uuid)>,
    pub(crate) released: BTreeSet<(Uuid, Uuid)>,
    pub(crate) store_state: Option<(Uuid, u64)>,
    /// Every deployment that ever was in a store, as it was last.
    pub(crate) entries: BTreeMap<Uuid, EdgeDeployment>,
    /// Requests whose records were lost with a store.
    lost_requests: BTreeSet<String>,
    /// Clusters that were lost with a store.
    lost_clusters: BTreeSet<Uuid>,
    /// Another store, or another state of it, has taken the place of ConfigDB's.
    was_store_replaced: bool,
    /// Their names are wanted by clusters that a restored store brought back.
    contested_clusters: BTreeSet<Uuid>,
    /// Epochs that an operator decided, by cluster.
    pub(crate) decisions: BTreeSet<(Uuid, u64)>,
    /// Births that were forged: topics of the deaths that end them.
    forged: BTreeSet<String>,
    /// Nodes whose replica at a host is stale, and since when no one asked them.
    pub(crate) unasked: BTreeMap<(ProcessId, EdgeNodeDescriptor), Duration>,
    /// A second ConfigDB had a store of its own for some time.
    pub(crate) had_two_stores: bool,
    /// Edge Nodes of which two processes speak, and since when.
    pub(crate) two_speak: BTreeMap<EdgeNodeDescriptor, Duration>,
    pub(crate) deletions: Vec<(ClusterId, ObjectKey, Option<Uuid>)>,
}

impl Checks {
    /// A message is published by a process.
    pub fn on_publish(&mut self, id: ProcessId, publish: &Publish, mono: Duration) {
        let Ok(Topic::Node { node, kind: MessageKind::NCmd }) = Topic::parse(&publish.topic) else { return };
        let Ok(payload) = payload::decode(&publish.payload, &Limits::default()) else { return };
        if !payload.metrics.iter().any(|metric| metric.name.as_deref() == Some("Node Control/Rebirth")) {
            return;
        }
        self.asked(id, &node);
        let last = self.asked.insert((id, node.clone()), mono);
        if let Some(last) = last.filter(|last| mono < *last + REBIRTH_REQUESTS_APART) {
            let detail = format!("{id:?} asks {node} for rebirth twice within {:?}", mono.saturating_sub(last));
            self.fail("one-storm-one-rebirth", detail);
        }
    }

    /// A program forgets a node, and with it when that was asked.
    pub fn on_forget(&mut self, id: ProcessId, node: &EdgeNodeDescriptor) {
        self.asked.remove(&(id, node.clone()));
        self.unfollow(id, Some(node));
    }

    /// The broker took a message.
    pub fn on_broker_publish(&mut self, topic: &str) {
        let kind = topic.split('/').nth(2).unwrap_or_default();
        *self.messages.entry(kind.to_owned()).or_default() += 1;
    }

    /// A message arrives at a host.
    pub fn on_delivery(&mut self, id: ProcessId, topic: &str, bytes: &[u8]) {
        let Ok(Topic::Node { node, kind: kind @ (MessageKind::NBirth | MessageKind::NDeath) }) = Topic::parse(topic)
        else {
            return;
        };
        let Ok(payload) = payload::decode(bytes, &Limits::default()) else { return };
        let bd_seq = payload.metrics.into_iter().find(|metric| metric.name.as_deref() == Some("bdSeq"));
        let bd_seq = bd_seq.and_then(|metric| {
            let datatype = metric.own_datatype().ok()?;
            metric.resolve("bdSeq".into(), datatype, None).ok()?.as_u64()
        });
        let Some(bd_seq) = bd_seq else { return };
        let born = self.born.entry(id).or_default().entry(node).or_default();
        if kind == MessageKind::NBirth {
            born.insert(bd_seq);
        } else {
            born.remove(&bd_seq);
        }
    }

    /// A process ended: its next instance knows nothing of what this one asked.
    pub fn on_end(&mut self, id: ProcessId) {
        self.asked.retain(|(process, _), _| *process != id);
        self.unfollow(id, None);
    }

    /// A host lost its session: what it received in it proves nothing any more.
    pub fn on_session_over(&mut self, id: ProcessId) {
        self.born.remove(&id);
    }

    /// The program of a Host Application receives an event; `fault`: what cannot be, as far as a reader can see.
    pub fn on_host_event(&mut self, id: ProcessId, event: &HostEvent, fault: Option<&str>, mono: Duration) {
        if let Some(fault) = fault {
            self.fail("alive-means-born", format!("{id:?} received {fault}"));
        }
        self.follow(id, event, mono);
        match event {
            HostEvent::NodeBirth { node, bd_seq, .. } => {
                let bd_seq = u64::try_from(bd_seq.get()).unwrap_or_default();
                if !self.is_born(id, node, Some(bd_seq)) {
                    let detail = format!(
                        "{id:?} reports a birth of {node} with bdSeq {bd_seq} that it did not receive, or that a death has ended, at {mono:?}"
                    );
                    self.fail("alive-means-born", detail);
                }
            }
            HostEvent::NodeData { node, .. }
            | HostEvent::DeviceBirth { node, .. }
            | HostEvent::DeviceData { node, .. }
            | HostEvent::DeviceDeath { node, .. }
                if !self.is_born(id, node, None) =>
            {
                let detail =
                    format!("{id:?} reports data of {node}, which is not between a birth and its death, at {mono:?}");
                self.fail("alive-means-born", detail);
            }
            _ => {}
        }
    }

    /// Kubernetes is asked to delete an object, by Sync.
    pub fn on_deletion(&mut self, cluster: ClusterId, key: &ObjectKey, owner: Option<Uuid>, _: Duration) {
        self.deletions.push((cluster, key.clone(), owner));
    }

    /// An Edge Node refused an update of its program.
    pub fn refused(&mut self, role: &Role, error: &str) {
        self.refusals.push(format!("{role}: {error}"));
    }

    pub(crate) fn is_born(&self, id: ProcessId, node: &EdgeNodeDescriptor, bd_seq: Option<u64>) -> bool {
        let born = self.born.get(&id).and_then(|of| of.get(node));
        born.is_some_and(|born| bd_seq.map_or(!born.is_empty(), |bd_seq| born.contains(&bd_seq)))
    }

    /// A check elsewhere failed.
    pub(crate) fn fail_with(&mut self, violation: Violation) {
        self.failed.get_or_insert(violation);
    }

    fn fail(&mut self, invariant: &'static str, detail: String) {
        self.failed.get_or_insert(Violation::new(invariant, detail));
    }

    /// A forged birth needs a death.
    pub fn expect_forged(&mut self, kind: &str, topic: &str) {
        if kind == "NBIRTH" {
            self.forged.insert(topic.replace("/NBIRTH/", "/NDEATH/"));
        }
    }

    /// Topics of the deaths that end what was forged.
    pub fn take_forged(&mut self) -> std::collections::BTreeSet<String> {
        std::mem::take(&mut self.forged)
    }

    /// A host's replica of a node is stale, or current again.
    pub(crate) fn follow(&mut self, id: ProcessId, event: &HostEvent, mono: Duration) {
        match event {
            HostEvent::NodeStale { node, .. } if !is_forged(node) => {
                self.unasked.entry((id, node.clone())).or_insert(mono);
            }
            HostEvent::NodeBirth { node, .. } | HostEvent::NodeDeath { node, .. } => {
                self.unasked.remove(&(id, node.clone()));
            }
            HostEvent::Offline { .. } => self.unasked.retain(|(host, _), _| *host != id),
            _ => {}
        }
    }

    /// A request for a birth went out.
    pub(crate) fn asked(&mut self, id: ProcessId, node: &EdgeNodeDescriptor) {
        self.unasked.remove(&(id, node.clone()));
    }

    /// A host ended, or forgot a node.
    pub(crate) fn unfollow(&mut self, id: ProcessId, node: Option<&EdgeNodeDescriptor>) {
        self.unasked.retain(|(host, known), _| *host != id || node.is_some_and(|node| node != known));
    }

    /// Another store, or another state of it, takes the place of ConfigDB's; these requests are not recorded any more, and these clusters are not in it.
    pub fn on_store_replaced(&mut self, lost: impl Iterator<Item = String>, clusters: impl Iterator<Item = Uuid>) {
        self.lost_requests.extend(lost);
        self.lost_clusters.extend(clusters);
        self.store_state = None;
        self.was_store_replaced = true;
    }

    /// A restored store brought back clusters with the names of these.
    pub fn on_names_contested(&mut self, clusters: impl Iterator<Item = Uuid>) {
        self.contested_clusters.extend(clusters);
    }

    /// The store of a second ConfigDB is gone, with these requests and clusters.
    pub fn on_second_store_gone(&mut self, lost: impl Iterator<Item = String>, clusters: impl Iterator<Item = Uuid>) {
        self.lost_requests.extend(lost);
        self.lost_clusters.extend(clusters);
    }

    /// An operator lets a cluster delete a deployment.
    pub fn release(&mut self, cluster: Uuid, deployment: Uuid) {
        self.released.insert((cluster, deployment));
    }

    /// An operator decides that a cluster follows the store.
    pub fn on_decision(&mut self, cluster: Uuid, epoch: u64) {
        self.decisions.insert((cluster, epoch));
    }

    /// A deployment as it was in a store last.
    #[must_use]
    pub fn entry(&self, deployment: Uuid) -> Option<EdgeDeployment> {
        self.entries.get(&deployment).cloned()
    }

    /// Whether another store, or another state of it, has taken the place of ConfigDB's.
    #[must_use]
    pub const fn was_store_replaced(&self) -> bool {
        self.was_store_replaced
    }

    /// Whether a restored store brought back another cluster of its name.
    #[must_use]
    pub fn is_cluster_contested(&self, cluster: Uuid) -> bool {
        self.contested_clusters.contains(&cluster)
    }

    /// Whether a cluster was lost with a store.
    #[must_use]
    pub fn is_cluster_lost(&self, cluster: Uuid) -> bool {
        self.lost_clusters.contains(&cluster)
    }

    /// Whether the record of a request was lost with a store.
    #[must_use]
    pub fn is_lost(&self, request: &str) -> bool {
        self.lost_requests.contains(request)
    }

    /// A key was replaced that is good, and that no one wanted to be another one.
    pub(crate) fn rotated_without_proof(&mut self, id: &ResourceId, place: &SecretKey) {
        self.fail("rotate-only-on-proof", format!("{id} has got another key in {place}, and the one before was good"));
    }
}

fn is_forged(node: &EdgeNodeDescriptor) -> bool {
    node.edge_node.as_str().starts_with("Forged-")
}
