//! What must always be true, and what must be true in the end. Names are those of the architecture's invariants.
//!
//! `after_step` is called after every step. `unsettled` says what has not converged; after everything is mended it must come to say nothing.

mod console;
mod enrolment;
mod joins;
mod keys;
mod settled;
mod share;
mod speakers;
mod stores;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use configdb_schema::Document;
use configdb_schema::document::{EdgeCluster, EdgeClusterRecovery, EdgeDeployment};
use edge_sync::object::ObjectKey;
use edge_sync::record::IndexRecord;
use sparkplug::host::HostEvent;
use sparkplug::payload::{self, Limits};
use sparkplug::replication::Point;
use sparkplug::session::Publish;
use sparkplug::{EdgeNodeDescriptor, MessageKind, Topic};
use uuid::Uuid;

use crate::fleet::Role;
use crate::world::{ClusterId, ProcessId, World};

pub use console::past_is_what_was_shown;
pub use joins::secrets_on_the_wire;
pub use settled::unsettled;

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
    failed: Option<Violation>,
    /// Sessions of nodes that a host may take for alive: bdSeq of births that were delivered, without a death since.
    born: BTreeMap<ProcessId, BTreeMap<EdgeNodeDescriptor, BTreeSet<u64>>>,
    asked: BTreeMap<(ProcessId, EdgeNodeDescriptor), Duration>,
    /// A record of an accepted index was written since the last look.
    pub is_record_written: bool,
    records: BTreeMap<ClusterId, String>,
    /// Deployments that were wanted on a cluster and are not, or were not for a while.
    wanted: BTreeSet<(Uuid, Uuid)>,
    released: BTreeSet<(Uuid, Uuid)>,
    store_state: Option<(Uuid, u64)>,
    /// Every deployment that ever was in a store, as it was last.
    entries: BTreeMap<Uuid, EdgeDeployment>,
    /// Requests whose records were lost with a store.
    lost_requests: BTreeSet<String>,
    /// Clusters that were lost with a store.
    lost_clusters: BTreeSet<Uuid>,
    /// Another store, or another state of it, has taken the place of ConfigDB's.
    was_store_replaced: bool,
    /// Their names are wanted by clusters that a restored store brought back.
    contested_clusters: BTreeSet<Uuid>,
    /// Epochs that an operator decided, by cluster.
    decisions: BTreeSet<(Uuid, u64)>,
    /// Births that were forged: topics of the deaths that end them.
    forged: BTreeSet<String>,
    /// Nodes of which a host lost track, and since when no one asked them.
    unasked: BTreeMap<(ProcessId, EdgeNodeDescriptor), Duration>,
    /// A second ConfigDB had a store of its own for some time.
    pub(crate) had_two_stores: bool,
    /// Edge Nodes of which two processes speak, and since when.
    two_speak: BTreeMap<EdgeNodeDescriptor, Duration>,
    deletions: Vec<(ClusterId, ObjectKey, Option<Uuid>)>,
}

impl Checks {
    /// Called after every step.
    ///
    /// # Errors
    /// A check failed.
    pub fn after_step(world: &mut World) -> Result<(), Violation> {
        if let Some(failed) = world.checks.failed.take() {
            return Err(failed);
        }
        if let Some(error) = crate::errors::take() {
            return Err(Violation::new("input-is-hostile", format!("an ERROR was logged: {error}")));
        }
        if let Some(refusal) = world.checks.refusals.pop() {
            return Err(Violation::new(
                "input-is-hostile",
                format!("an Edge Node refused its own application: {refusal}"),
            ));
        }
        Self::version_never_falls(world)?;
        Self::no_prune_from_ignorance(world)?;
        Self::joins(world)?;
        Self::enrolment(world)?;
        Self::one_speaker(world)?;
        Self::fair_share(world)
    }

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

    /// A process ended: its next life knows nothing of what this one asked.
    pub fn on_end(&mut self, id: ProcessId) {
        self.asked.retain(|(asker, _), _| *asker != id);
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

    fn is_born(&self, id: ProcessId, node: &EdgeNodeDescriptor, bd_seq: Option<u64>) -> bool {
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

    /// A release is deleted only if someone has taken its deployment away from that cluster since.
    fn no_prune_from_ignorance(world: &mut World) -> Result<(), Violation> {
        if world.checks.deletions.is_empty() && !world.steps.is_multiple_of(16) {
            return Ok(());
        }
        world.learn_what_is_wanted();
        for (site, key, owner) in std::mem::take(&mut world.checks.deletions) {
            let (Some(cluster), Some(owner)) = (world.clusters.get(&site), owner) else { continue };
            let place = (cluster.uuid, owner);
            if &*key.kind.kind == "HelmRelease" && !world.checks.released.contains(&place) {
                let detail = format!(
                    "{key} of deployment {owner} is deleted on {}, but was not taken away from it",
                    cluster.name
                );
                return Err(Violation::new("no-prune-from-ignorance", detail));
            }
        }
        Ok(())
    }

    fn version_never_falls(world: &mut World) -> Result<(), Violation> {
        if !std::mem::take(&mut world.checks.is_record_written) {
            return Ok(());
        }
        for (id, cluster) in &world.clusters {
            let Some((text, _)) = &cluster.record else { continue };
            let before = world.checks.records.get(id);
            if before == Some(text) {
                continue;
            }
            let (old, new) = (before.and_then(|text| IndexRecord::from_text(text).ok()), IndexRecord::from_text(text));
            let new =
                new.map_err(|error| Violation::new("version-never-falls", format!("unreadable record: {error}")))?;
            if let Some(old) = old {
                world.acknowledged_is_kept(cluster, &old, &new)?;
                let fallen = new.index.deployments.keys().find(|uuid| {
                    let version = |record: &IndexRecord| record.entry(**uuid).map(|entry| entry.version);
                    version(&old).is_some_and(|before| version(&new).is_some_and(|after| after < before))
                });
                if new.index.version < old.index.version || fallen.is_some() {
                    let (from, to) = (old.index.version, new.index.version);
                    let detail = format!(
                        "the index of {} went from version {from} to {to}, deployment {fallen:?}",
                        cluster.name
                    );
                    return Err(Violation::new("version-never-falls", detail));
                }
            }
            world.checks.records.insert(*id, text.clone());
        }
        Ok(())
    }
}

impl World {
    /// What ConfigDB's database wants where, and what it has ceased to want.
    fn learn_what_is_wanted(&mut self) {
        let Some(disk) = self.process_of(&Role::ConfigDb).map(|id| self.processes[&id].disk.clone()) else { return };
        let Some(store) = disk.store() else { return };
        let state = Some((disk.identity(), store.revision_now()));
        if state == self.checks.store_state {
            return;
        }
        // What a store that came back older does not list, or another one, no one has taken away.
        let is_continued = self.checks.store_state.is_some();
        self.checks.store_state = state;
        let truth = Truth::of(&store.load_now());
        self.checks.entries.extend(truth.deployments.clone());
        let (wanted, homeless): (BTreeSet<_>, BTreeSet<_>) = truth
            .deployments
            .iter()
            .map(|(uuid, deployment)| (deployment.cluster, *uuid))
            .partition(|(cluster, _)| truth.clusters.contains_key(cluster));
        // A manager that has not received yet that the cluster is deleted brings the deployment there all the same, and takes it away as soon as it receives.
        self.checks.released.extend(homeless);
        for place in self.checks.wanted.difference(&wanted).filter(|_| is_continued) {
            self.checks.released.insert(*place);
        }
        self.checks.wanted = wanted;
    }
}

/// What ConfigDB's database wants.
#[derive(Debug, Default)]
pub struct Truth {
    /// Clusters.
    pub clusters: BTreeMap<Uuid, EdgeCluster>,
    /// Deployments, also of clusters that do not exist.
    pub deployments: BTreeMap<Uuid, EdgeDeployment>,
    /// The highest epoch that an operator decided.
    pub epoch: u64,
    /// State of the store; None: nothing was ever written.
    pub point: Option<Point>,
}

impl Truth {
    /// Reads it.
    #[must_use]
    pub fn of(snapshot: &configdb::store::Snapshot) -> Self {
        let mut truth = Self { point: snapshot.timelines.at(snapshot.revision), ..Self::default() };
        for (object, application, entry) in &snapshot.entries {
            if *application == EdgeCluster::application().uuid {
                if let Ok(cluster) = serde_json::from_str(&entry.json) {
                    truth.clusters.insert(*object, cluster);
                }
            } else if *application == EdgeClusterRecovery::application().uuid {
                let recovery = serde_json::from_str::<EdgeClusterRecovery>(&entry.json);
                truth.epoch = truth.epoch.max(recovery.map_or(0, |recovery| recovery.epoch));
            } else if *application == EdgeDeployment::application().uuid
                && let Ok(deployment) = serde_json::from_str(&entry.json)
            {
                truth.deployments.insert(*object, deployment);
            }
        }
        truth
    }
}
