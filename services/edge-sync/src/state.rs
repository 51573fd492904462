//! All decisions of Sync. Time comes in with each event; what is to be done comes out as effects.
//!
//! ```text
//! watches ──> objects, nodes ─┐
//! commands ─> index, manifests ┼─> reconcile::plan per deployment ─> Apply, Delete
//! answers ──> failures, marks ─┘                └─> report ─> DBIRTH/DDATA/DDEATH, NDATA
//! ```
//!
//! Nothing is done or reported before the record of the accepted index has been read and every watch has listed. Half a picture would
//! prune objects and would report hosts as gone. The parts of the state have a module each below `state/`.

pub mod deployment;
pub mod flux;
pub mod index;
pub mod link;
pub mod objects;
pub mod prune;
pub mod reports;
pub mod sealing;
pub mod source;
pub mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use edge_sync_contract::{DesiredManifests, HostDevice, SyncCommand, SyncNode};
use sparkplug::backoff::Backoff;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::replication::Outcome;
use sparkplug::{DeviceId, Metric, Now};
use uuid::Uuid;

use crate::event::{Deletion, Effect, ErrorClass, Event, KubernetesError, Observation, PreparedObject};
use crate::hosts::{self, ObservedNode};
use crate::object::{Kind, Marks, ObjectKey, ObservedObject, Readiness};
use crate::reconcile::{self, Plan};
use crate::record::RECORD_NAME;
use crate::validate::Rules;
use crate::workload;
use deployment::{Deployment, Desired};
use flux::Flux;
use index::AcceptedIndex;
use link::{Link, Watch};
use objects::Objects;
use prune::{PruneLimits, Pruner};
use reports::Reports;
use sealing::Sealing;
use source::Source;
use workloads::Workloads;

/// Manifests that came before the index that lists them, at most; each may have the size of one message. Those beyond are sent again.
const EARLY_MAX: usize = 32;
/// Manifests that are kept to repair what others delete. Beyond it those of deployments in place are let go; the sender has them.
const MANIFESTS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What the state needs of the configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Object of the cluster.
    pub cluster_uuid: Uuid,
    /// Name of the cluster.
    pub cluster_name: String,
    /// Version of the software.
    pub version: String,
    /// The cluster is simulated.
    pub simulated: bool,
    pub namespace: String,
    /// Kinds that may be applied, and are watched.
    pub kinds: Vec<Kind>,
    /// Deployments that are applied at the same time, at most.
    pub applies_max: usize,
    /// First and longest wait before a retry.
    pub retry: (Duration, Duration),
    pub prune: PruneLimits,
    /// There is a sealed secrets controller.
    pub sealing: bool,
    /// How often its certificate is read.
    pub sealing_refresh: Duration,
    /// First and longest wait after its certificate could not be read.
    pub sealing_retry: (Duration, Duration),
    /// Seed of all jitter.
    pub seed: u64,
}

/// Kind of what Helm installs.
const RELEASE: &str = "HelmRelease";

/// The state of Sync.
#[derive(Debug)]
pub struct State {
    settings: Settings,
    rules: Rules,
    index: AcceptedIndex,
    nodes: Option<BTreeMap<String, HostDevice>>,
    objects: Objects,
    deployments: BTreeMap<Uuid, Deployment>,
    early: BTreeMap<Uuid, DesiredManifests>,
    /// Objects of manifests that are here: the first deployment that brings one has it.
    claims: BTreeMap<ObjectKey, Uuid>,
    deleting: BTreeMap<ObjectKey, Uuid>,
    pruner: Pruner,
    sealing: Sealing,
    source: Source,
    flux: Flux,
    workloads: Workloads,
    link: Link,
    reports: Reports,
    /// Deployments to be planned again.
    dirty: BTreeSet<Uuid>,
    /// Deployments to be reported again.
    touched: BTreeSet<Uuid>,
    repeat_index: bool,
    repeat_source: bool,
    repeat: BTreeSet<Uuid>,
    /// Someone has asked for the entries that everything here was made from.
    gives_entries: bool,
    is_born: bool,
    is_stopping: bool,
    ready: Option<(bool, String)>,
    settled_at: Duration,
    effects: Vec<Effect>,
}

impl State {
    /// A state that knows nothing and wants to look.
    #[must_use]
    pub fn new(settings: Settings, now: Now) -> Self {
        let retry = |range: (Duration, Duration), salt: u64| Backoff::new(range, settings.seed ^ salt);
        let rules = Rules {
            namespace: settings.namespace.clone(),
            kinds: settings.kinds.clone(),
            record: RECORD_NAME.to_owned(),
        };
        let mut state = Self {
            rules,
            index: AcceptedIndex::new(retry(settings.retry, 1)),
            nodes: None,
            objects: Objects::default(),
            deployments: BTreeMap::new(),
            early: BTreeMap::new(),
            claims: BTreeMap::new(),
            deleting: BTreeMap::new(),
            pruner: Pruner::new(settings.prune),
            sealing: Sealing::new(settings.sealing, settings.sealing_refresh, retry(settings.sealing_retry, 2)),
            source: Source::new(retry(settings.retry, 4)),
            flux: Flux::new(retry(settings.retry, 5)),
            workloads: Workloads::new(retry(settings.retry, 6)),
            link: Link::new(retry((Duration::from_secs(1), Duration::from_secs(10)), 3)),
            reports: Reports::default(),
            dirty: BTreeSet::new(),
            touched: BTreeSet::new(),
            repeat_index: false,
            repeat_source: false,
            repeat: BTreeSet::new(),
            gives_entries: false,
            is_born: false,
            is_stopping: false,
            ready: None,
            settled_at: Duration::ZERO,
            effects: Vec::new(),
            settings,
        };
        state.settle(now);
        state
    }

    pub fn on_event(&mut self, event: Event, now: Now) {
        if self.is_stopping {
            return;
        }
        match event {
            Event::IndexLoaded(Ok(stored)) => {
                self.answered(now);
                if self.index.on_loaded(stored) {
                    self.index_accepted();
                }
            }
            Event::IndexLoaded(Err(error)) | Event::IndexNotSaved(error) => {
                self.failed(&error, now);
                self.index.on_error(&error, now.mono);
            }
            Event::IndexSaved { resource_version, saved } => {
                self.answered(now);
                self.index.on_saved(resource_version, saved);
                self.index_accepted();
            }
            Event::Nodes(observation) => self.on_nodes(observation, now),
            Event::Objects(kind, observation) => self.on_objects(&kind, observation, now),
            Event::Applied { deployment, applied, failed } => self.on_applied(deployment, applied, failed, now),
            Event::Deleted { key, uid, result } => self.on_deleted(&key, &uid, result, now),
            Event::Certificate(answer) => {
                self.sealing.on_answer(answer.map_err(|error| error.message), now.mono);
            }
            Event::Annotated(result) => {
                match &result {
                    Ok(()) => self.answered(now),
                    Err(error) => self.failed(error, now),
                }
                self.source.on_answer(result, now.mono);
            }
            Event::FluxChanged => self.flux.changed(),
            Event::FluxSeen(seen) => {
                match &seen {
                    Ok(_) => self.answered(now),
                    Err(error) => self.failed(error, now),
                }
                self.flux.on_answer(seen, now.mono);
            }
            Event::WorkloadsChanged(releases) => self.on_workloads(&releases),
            Event::WorkloadsSeen { release, seen } => {
                match &seen {
                    Ok(_) => self.answered(now),
                    Err(error) => self.failed(error, now),
                }
                self.workloads.on_answer(&release, seen, now.mono);
                let named = self.objects.releases().filter(|(name, _)| *name == release);
                self.touched.extend(named.filter_map(|(_, deployment)| deployment));
            }
            Event::Probed(Ok(())) => self.answered(now),
            Event::Probed(Err(error)) if error.class == ErrorClass::Unreachable => {
                self.link.probe_failed(&error, now.mono);
            }
            Event::Probed(Err(_)) => self.answered(now),
            Event::Node(NodeEvent::Command { device, metrics, .. }) => self.on_command(device.as_ref(), &metrics),
            Event::Node(_) | Event::DeadlineReached => {}
            Event::Stop => {
                self.is_stopping = true;
                if self.is_born {
                    self.effects.push(Effect::Node(NodeUpdate::Stop));
                }
                return;
            }
        }
        self.settle(now);
    }

    /// `Now::mono` at which [`Event::DeadlineReached`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let own = [
            self.index.next_deadline(),
            self.sealing.next_deadline(),
            self.source.next_deadline(),
            self.flux.next_deadline(),
            self.workloads.next_deadline(),
            self.link.next_deadline(),
        ];
        let deployments = self.deployments.values().map(Deployment::next_deadline);
        let prune = [self.pruner.guard_ends(), self.pruner.pass_ends()];
        let all = own.into_iter().chain(deployments).chain(prune).flatten();
        // What was due in the last turn and was not done waits for an event, not for the clock.
        if self.is_stopping { None } else { all.filter(|at| *at > self.settled_at).min() }
    }

    /// What is to be done, in order. None of it needs a save but [`Effect::SaveIndex`], which says so itself.
    pub fn poll_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The node as it was reported last; None before the birth.
    #[must_use]
    pub fn node_report(&self) -> Option<&SyncNode> {
        self.reports.node()
    }

    // ---- what comes in

    fn on_nodes(&mut self, observation: Observation<ObservedNode>, now: Now) {
        if let Observation::Failed(error) = observation {
            return self.watch_failed(Watch::Nodes, &error, now);
        }
        self.watch_answered(&Watch::Nodes, &observation, now);
        let nodes = self.nodes.get_or_insert_default();
        let is_other = match observation {
            Observation::Listed(listed) => {
                *nodes = listed.into_iter().map(|node| (node.node, node.host)).collect();
                true
            }
            Observation::Changed(ObservedNode { node, host }) => {
                let hostname = host.hostname.clone();
                nodes.insert(node, host).is_none_or(|before| before.hostname != hostname)
            }
            Observation::Gone(node) => nodes.remove(&node.node).is_some(),
            Observation::NotInstalled | Observation::Failed(_) => false,
        };
        if is_other {
            self.workloads.hosts_changed();
        }
    }

    fn on_objects(&mut self, kind: &Kind, observation: Observation<ObservedObject>, now: Now) {
        let watch = Watch::Objects(kind.clone());
        if let Observation::Failed(error) = &observation {
            return self.watch_failed(watch, error, now);
        }
        self.watch_answered(&watch, &observation, now);
        let is_less = matches!(observation, Observation::Listed(_) | Observation::Gone(_) | Observation::NotInstalled);
        let touched = self.objects.observe(kind, observation);
        if is_less && &*kind.kind == RELEASE {
            self.workloads.keep(&self.objects.releases().map(|(name, _)| name).collect());
        }
        self.objects_changed(touched);
    }

    fn on_workloads(&mut self, releases: &[String]) {
        let mut is_of_others = false;
        for release in releases {
            is_of_others |= !self.workloads.changed(release);
        }
        if is_of_others {
            self.flux.changed();
        }
    }

    fn on_applied(
        &mut self,
        deployment: Uuid,
        applied: Vec<ObservedObject>,
        failed: Option<(ObjectKey, KubernetesError)>,
        now: Now,
    ) {
        match &failed {
            Some((_, error)) => self.failed(error, now),
            None => self.answered(now),
        }
        for object in applied {
            let touched = self.objects.applied(object);
            self.objects_changed(touched);
        }
        if let Some(deployment) = self.deployments.get_mut(&deployment) {
            deployment.end_apply(failed, now.mono);
        }
        self.dirty.insert(deployment);
    }

    fn on_deleted(&mut self, key: &ObjectKey, uid: &str, result: Result<Deletion, KubernetesError>, now: Now) {
        let owner = self.deleting.remove(key);
        match result {
            Ok(deletion) => {
                self.answered(now);
                let touched = self.objects.deleted(key, uid, deletion);
                self.objects_changed(touched.into_iter().collect());
            }
            Err(error) => {
                self.failed(&error, now);
                if let Some(deployment) = owner.and_then(|owner| self.deployments.get_mut(&owner)) {
                    deployment.delete_failed(key, &error, now.mono);
                }
            }
        }
        self.dirty.extend(owner);
    }

    fn on_command(&mut self, device: Option<&DeviceId>, metrics: &[Metric]) {
        match SyncCommand::from_event(device, metrics) {
            Ok(None) => {}
            Ok(Some(SyncCommand::Index(index))) => {
                let version = index.version;
                let was_held = self.index.held();
                match self.index.on_command(index) {
                    Outcome::Accepted => {}
                    Outcome::Stale => tracing::debug!(version, "older index ignored"),
                    Outcome::Duplicate => self.repeat_index = true,
                    Outcome::Held(hold) => {
                        self.repeat_index = true;
                        if was_held != Some(hold) {
                            tracing::warn!(version, reason = %hold, "index held: nothing of it is applied until an operator decides");
                        }
                    }
                    Outcome::Conflict => {
                        tracing::warn!(version, "index refused, its version was given before with another digest")
                    }
                }
            }
            Ok(Some(SyncCommand::GiveEntries(give))) => {
                self.gives_entries = give;
                self.touched.extend(self.deployments.keys());
            }
            Ok(Some(SyncCommand::Source(desired))) => match self.index.hold_of(&desired) {
                Some(hold) => self.source.hold(hold.to_string()),
                None => self.repeat_source |= self.source.on_command(desired),
            },
            Ok(Some(SyncCommand::Manifests { deployment, desired })) => self.on_manifests(deployment, desired),
            Err(error) => {
                tracing::warn!(%error, "command refused");
                match error.deployment {
                    None => self.index.on_bad_command(&error),
                    Some(uuid) => {
                        if let Some(deployment) = self.deployments.get_mut(&uuid) {
                            deployment.refuse(error.digest, error.to_string());
                            self.dirty.insert(uuid);
                        }
                    }
                }
            }
        }
    }

    fn on_manifests(&mut self, uuid: Uuid, desired: DesiredManifests) {
        let Some(entry) = self.index.entry(uuid).filter(|entry| desired.version <= entry.version) else {
            let is_newer = self.early.get(&uuid).is_none_or(|early| early.version <= desired.version);
            if is_newer && (self.early.len() < EARLY_MAX || self.early.contains_key(&uuid)) {
                self.early.insert(uuid, desired);
            }
            return;
        };
        self.repeat.insert(uuid);
        self.dirty.insert(uuid);
        let Some(deployment) = self.deployments.get_mut(&uuid) else { return };
        if desired.digest() != entry.digest {
            if desired.version == entry.version {
                let (version, digest) = (entry.version, entry.digest);
                let reason = format!(
                    "the index lists version {version} with digest {digest}; send an index that lists these manifests"
                );
                deployment.refuse(Some(desired.digest()), reason);
            }
            return;
        }
        if deployment.manifests().is_some_and(|known| known.entry.digest == entry.digest) {
            return;
        }
        match self.rules.validate(uuid, desired) {
            Ok(manifests) => {
                let bytes = manifests.bytes;
                if self.make_room(uuid, bytes) {
                    self.release(uuid);
                    for (key, _) in &manifests.objects {
                        self.claims.entry(key.clone()).or_insert(uuid);
                    }
                    if let Some(deployment) = self.deployments.get_mut(&uuid) {
                        deployment.take_manifests(manifests);
                    }
                } else {
                    tracing::warn!(deployment = %uuid, bytes, "no room for manifests until others are applied, they will be sent again");
                }
            }
            Err(refusal) => {
                if let Some(deployment) = self.deployments.get_mut(&uuid) {
                    deployment.refuse(Some(entry.digest), refusal.to_string());
                }
            }
        }
    }

    // ---- what follows from it

    fn answered(&mut self, now: Now) {
        if self.link.answered(now.mono) {
            self.reachable_again();
        }
    }

    fn failed(&mut self, error: &KubernetesError, now: Now) {
        if self.link.failed(error, now.mono) {
            self.reachable_again();
        }
    }

    fn reachable_again(&mut self) {
        tracing::info!("Kubernetes API answers again");
        self.index.retry_now();
        self.source.retry_now();
        self.flux.retry_now();
        self.workloads.retry_now();
        for deployment in self.deployments.values_mut() {
            deployment.retry_now();
        }
    }

    fn watch_failed(&mut self, watch: Watch, error: &KubernetesError, now: Now) {
        self.failed(error, now);
        self.link.watch_interrupted(watch, error);
    }

    fn watch_answered<T>(&mut self, watch: &Watch, observation: &Observation<T>, now: Now) {
        self.link.watch_answered(watch);
        // What an open watch reports is not an answer to a request.
        if matches!(observation, Observation::Listed(_) | Observation::NotInstalled) {
            self.answered(now);
        }
    }

    fn index_accepted(&mut self) {
        let Some(record) = self.index.accepted() else { return };
        let (version, deployments) = (record.index.version, record.index.deployments.len());
        tracing::info!(version, deployments, "index accepted");
        let listed: Vec<_> =
            record.index.deployments.keys().filter_map(|uuid| Some((*uuid, record.entry(*uuid)?))).collect();
        for (uuid, entry) in &listed {
            self.deployment(*uuid).entry_changed(entry.digest);
        }
        self.dirty.extend(self.deployments.keys().copied());
        // What came before its index is taken now; what is older than it will not be wanted any more.
        for (uuid, desired) in std::mem::take(&mut self.early) {
            match self.index.entry(uuid) {
                Some(entry) if desired.version < entry.version => {}
                _ => self.on_manifests(uuid, desired),
            }
        }
    }

    fn deployment(&mut self, uuid: Uuid) -> &mut Deployment {
        let retry = self.settings.retry;
        let (high, low) = uuid.as_u64_pair();
        let seed = self.settings.seed ^ high ^ low;
        self.deployments.entry(uuid).or_insert_with(|| Deployment::new(Backoff::new(retry, seed)))
    }

    /// Deployments whose objects changed, and those that may have waited for them.
    fn objects_changed(&mut self, touched: BTreeSet<Uuid>) {
        if touched.is_empty() {
            return;
        }
        let is_waiting = |deployment: &Deployment| matches!(deployment.plan(), Some(Plan::Blocked(_)));
        let waiting = self.deployments.iter().filter(|(_, deployment)| is_waiting(deployment)).map(|(uuid, _)| *uuid);
        self.dirty.extend(waiting.collect::<Vec<_>>());
        self.dirty.extend(touched);
    }

    fn release(&mut self, uuid: Uuid) {
        let Some(manifests) = self.deployments.get_mut(&uuid).and_then(Deployment::drop_manifests) else { return };
        for (key, _) in manifests.objects {
            if self.claims.get(&key) == Some(&uuid) {
                self.claims.remove(&key);
            }
        }
        let blocked = self.deployments.iter().filter(|(_, other)| matches!(other.plan(), Some(Plan::Blocked(_))));
        self.dirty.extend(blocked.map(|(uuid, _)| *uuid).collect::<Vec<_>>());
    }

    /// Lets manifests of deployments in place go until `bytes` more fit.
    fn make_room(&mut self, uuid: Uuid, bytes: usize) -> bool {
        let mut kept: usize = self.deployments.values().map(Deployment::bytes).sum();
        let others_in_place =
            self.deployments.iter().filter(|(other, d)| **other != uuid && d.bytes() > 0 && d.is_in_place());
        for other in others_in_place.map(|(other, _)| *other).collect::<Vec<_>>() {
            if kept + bytes <= MANIFESTS_BYTES_MAX {
                break;
            }
            kept -= self.deployments.get(&other).map_or(0, Deployment::bytes);
            self.release(other);
        }
        kept + bytes <= MANIFESTS_BYTES_MAX
    }

    // ---- what goes out

    /// Does everything that is due, in an order that never reports what is not yet decided.
    fn settle(&mut self, now: Now) {
        self.settled_at = now.mono;
        // What is being deleted is unwanted by the accepted index; the next one may list it again.
        let may_save = self.deleting.is_empty();
        let own = [
            self.index.next_effect(now.mono, may_save),
            self.sealing.next_effect(now.mono),
            self.source.next_effect(now.mono),
            self.flux.next_effect(now.mono),
            self.link.next_effect(now.mono),
        ];
        self.effects.extend(own.into_iter().flatten());
        self.report_readiness();
        if !self.knows_all() {
            return;
        }
        if !self.is_born {
            self.dirty.extend(self.objects.deployments());
        }
        while let Some(uuid) = self.dirty.pop_first() {
            self.plan(uuid);
        }
        self.start_applies(now);
        self.start_deletes(now);
        self.report(now);
        // What is reported asks for what it has to know.
        let looks = self.workloads.next_effects(now.mono);
        self.effects.extend(looks);
    }

    fn knows_all(&self) -> bool {
        self.index.is_loaded() && self.nodes.is_some() && self.objects.knows_all(&self.settings.kinds)
    }

    /// Whether another process of this Sync may have applied a later index to the deployment: its manifests are not replaced by older ones, and the record is read.
    fn is_behind(&mut self, uuid: Uuid) -> bool {
        let later = self.objects.of(uuid).into_iter().filter_map(|object| object.version).max();
        let Some(later) = later.filter(|applied| self.index.may_be_behind(*applied)) else { return false };
        self.effects.extend(self.index.later_is_applied(later, self.settled_at));
        true
    }

    fn plan(&mut self, uuid: Uuid) {
        self.touched.insert(uuid);
        self.is_behind(uuid);
        let entry = self.index.entry(uuid);
        let has_objects = !self.objects.of(uuid).is_empty();
        let is_applying = self.deployments.get(&uuid).is_some_and(Deployment::is_applying);
        if entry.is_none() {
            self.release(uuid);
            if !has_objects && !is_applying {
                self.deployments.remove(&uuid);
                return;
            }
        }
        self.deployment(uuid);
        let Some(deployment) = self.deployments.get(&uuid) else { return };
        let observed = self.objects.of(uuid);
        let owner = |key: &ObjectKey| {
            let observed = self.objects.get(key).and_then(|object| object.deployment);
            observed.or_else(|| self.claims.get(key).copied()).filter(|owner| *owner != uuid)
        };
        let plan = entry.map(|entry| reconcile::plan(entry, deployment.manifests(), &observed, owner));
        let removal = if entry.is_none() { reconcile::removal(&observed) } else { Vec::new() };
        if let Some(deployment) = self.deployments.get_mut(&uuid) {
            if let Some(entry) = entry {
                deployment.apply_now_unless_again(entry.digest);
            }
            deployment.set_plan(plan, removal);
        }
    }

    fn start_applies(&mut self, now: Now) {
        let under_way = self.deployments.values().filter(|deployment| deployment.is_applying()).count();
        let free = self.settings.applies_max.max(1).saturating_sub(under_way);
        let due = self.deployments.iter().filter(|(_, deployment)| deployment.may_apply(now.mono));
        for uuid in due.map(|(uuid, _)| *uuid).take(free).collect::<Vec<_>>() {
            let Some(entry) = self.index.entry(uuid) else { continue };
            if self.is_behind(uuid) {
                continue;
            }
            let Some(deployment) = self.deployments.get_mut(&uuid) else { continue };
            let (Some(Plan::Apply(positions)), Some(manifests)) = (deployment.plan(), deployment.manifests()) else {
                continue;
            };
            let marks = Marks {
                namespace: &self.settings.namespace,
                deployment: uuid,
                name: &manifests.name,
                version: entry.version,
                digest: entry.digest,
                objects: manifests.objects.len(),
                applied_at: now.wall,
                generation: None,
                entries: None,
            };
            let prepared = |position: &usize| {
                let (key, manifest) = manifests.objects.get(*position)?;
                let known = self.objects.get(key);
                if known.is_some_and(|known| known.is_changed) {
                    tracing::warn!(deployment = %uuid, object = %key, "changed by another writer since it was applied: it is applied again");
                }
                // A new object counts from 1; an apply changes what is there, or there were no reason for it. A wrong guess costs a second write.
                let generation = known.map_or(Some(1), |known| known.generation.map(|generation| generation + 1));
                let entries = manifests.entries.as_ref().filter(|_| *position == 0);
                let body = Marks { generation, entries, ..marks }.put_on(manifest);
                Some(PreparedObject { key: key.clone(), is_ours: known.is_some(), body })
            };
            let objects = positions.iter().filter_map(prepared).collect();
            self.effects.push(Effect::Apply { deployment: uuid, digest: entry.digest, objects });
            deployment.begin_apply(entry.digest, now.mono);
            self.touched.insert(uuid);
        }
    }

    fn start_deletes(&mut self, now: Now) {
        let version = self.index.accepted().map_or(0, |record| record.index.version);
        let going: Vec<_> = self.objects.deployments().filter(|uuid| self.index.entry(*uuid).is_none()).collect();
        // Before the first index nothing is known to be unwanted, and while one is being stored it may be about to change.
        if version == 0 || self.index.is_saving() {
            return;
        }
        self.pruner.assess(version, going.len(), self.objects.deployments().count(), now.mono);
        let may_remove = self.pruner.may_remove(now.mono);
        let wanted: Vec<_> = self
            .deployments
            .iter()
            .filter(|(uuid, _)| may_remove || self.index.entry(**uuid).is_some())
            .flat_map(|(uuid, deployment)| deployment.to_delete(now.mono).iter().map(|key| (*uuid, key.clone())))
            .collect();
        for (uuid, key) in wanted {
            if self.deleting.contains_key(&key) {
                continue;
            }
            let Some(object) = self.objects.get(&key).filter(|object| object.deployment == Some(uuid)) else {
                continue;
            };
            // Another process of this Sync knows a later index, which may list it.
            if let Some(later) = object.version.filter(|applied| *applied > version) {
                self.effects.extend(self.index.later_is_applied(later, now.mono));
                continue;
            }
            if !self.pruner.take(now.mono) {
                return;
            }
            let (uid, resource_version) = (object.uid.clone(), object.resource_version.clone());
            self.effects.push(Effect::Delete { key: key.clone(), uid, resource_version });
            self.deleting.insert(key, uuid);
        }
    }

    fn report(&mut self, now: Now) {
        let mut updates = Vec::new();
        if let Some(nodes) = &self.nodes {
            updates.extend(self.reports.set_hosts(hosts::named(nodes)));
        }
        for uuid in std::mem::take(&mut self.touched) {
            let observed = self.objects.of(uuid);
            let runs = workloads_of(&observed, &mut self.workloads);
            let device = self.deployments.get(&uuid).map(|deployment| {
                let fallen = self.index.accepted().and_then(|record| record.fallen(uuid));
                let name = self.index.accepted().and_then(|record| record.name(uuid));
                let desired =
                    Desired { has_index: self.index.accepted().is_some(), entry: self.index.entry(uuid), fallen, name };
                let mut device = deployment.report(desired, &observed, runs.as_ref(), self.reports.deployment(uuid));
                let entries = observed.iter().find_map(|object| object.entries.as_ref());
                device.entries = entries.filter(|_| self.gives_entries).cloned();
                device
            });
            let changes = self.reports.set_deployment(uuid, device, now.wall);
            if !changes.is_empty() {
                self.repeat.remove(&uuid);
            }
            updates.extend(changes);
        }
        let node = self.node(now);
        let update = self.reports.set_node(node);
        if self.is_born {
            updates.extend(update);
        } else if let Some(NodeUpdate::Set { metrics, .. }) = update {
            self.is_born = true;
            self.effects.push(Effect::Birth(metrics));
        }
        self.effects.extend(updates.into_iter().map(Effect::Node));
        self.report_again(now);
    }

    /// Answers repeats of commands that changed nothing.
    fn report_again(&mut self, now: Now) {
        let mut again = Vec::new();
        if std::mem::take(&mut self.repeat_index) {
            again.extend(self.reports.repeat_index(now.wall));
        }
        if std::mem::take(&mut self.repeat_source) {
            again.extend(self.reports.repeat_source(now.wall));
        }
        for uuid in std::mem::take(&mut self.repeat) {
            again.extend(self.reports.repeat_deployment(uuid, now.wall));
        }
        self.effects.extend(again.into_iter().map(Effect::Node));
    }

    fn node(&self, now: Now) -> SyncNode {
        let accepted = self.index.accepted();
        let not_installed =
            self.objects.not_installed().map(|kind| format!("the cluster does not know the kind {kind}; install it"));
        let errors =
            self.index.errors().chain(self.link.error()).chain(not_installed).chain(self.pruner.error(now.mono));
        let errors: Vec<_> = errors.collect();
        SyncNode {
            version: self.settings.version.clone(),
            simulated: self.settings.simulated,
            cluster_uuid: self.settings.cluster_uuid,
            cluster_name: self.settings.cluster_name.clone(),
            cluster_entries: accepted.and_then(|r| r.index.entries.clone()).filter(|_| self.gives_entries),
            sealing_certificate: self.sealing.certificate().map(str::to_owned),
            sealing_error: self.sealing.error().map(str::to_owned),
            desired_version: accepted.map_or(0, |record| record.index.version),
            desired_digest: accepted.map(|record| record.index.digest()),
            desired_origin: accepted.and_then(|record| record.index.origin),
            desired_held: Some(self.index.held().is_some()),
            desired_hold_reason: self.index.held().map(|hold| hold.to_string()),
            desired_error: (!errors.is_empty()).then(|| errors.join("; ")),
            source_version: Some(self.source.version()),
            source_commit: self.source.published().map(|sources| sources.repository),
            source_charts: self.source.published().and_then(|sources| sources.charts),
            source_others: self.source.published().map(|sources| sources.others.clone()).unwrap_or_default(),
            source_error: self.source.error().map(str::to_owned),
            source_applied: self.flux.report().applied,
            source_ready: self.flux.report().ready,
            source_message: self.flux.report().message.clone(),
            ..SyncNode::default()
        }
    }

    fn report_readiness(&mut self) {
        let ready = match self.link.error() {
            Some(error) => (false, error),
            None if !self.knows_all() => (false, "the cluster has not been listed yet".to_owned()),
            None => (true, "the cluster is followed".to_owned()),
        };
        if self.ready.as_ref() != Some(&ready) {
            let (is_ready, reason) = ready.clone();
            self.effects.push(Effect::Ready { ready: is_ready, reason });
            self.ready = Some(ready);
        }
    }
}

/// Whether what the releases among these have made runs; None: that is not known yet.
fn workloads_of(observed: &[&ObservedObject], workloads: &mut Workloads) -> Option<Readiness> {
    let is_installed = |object: &&&ObservedObject| {
        let is_ready = object.readiness.as_ref().is_some_and(|readiness| readiness.ready == Some(true));
        is_ready && &*object.key.kind.kind == RELEASE
    };
    let verdicts = observed.iter().filter(is_installed);
    let verdicts: Vec<_> =
        verdicts.map(|object| workloads.of(&object.key.name, &object.resource_version).cloned()).collect();
    verdicts.into_iter().collect::<Option<Vec<_>>>().map(workload::worst)
}

#[cfg(test)]
mod tests;
