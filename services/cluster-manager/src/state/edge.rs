//! One cluster's edge: what its Sync reports, what it shall have, and when to say so again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster_manager_contract::{DesiredState, RefusedDeployments, RolloutReport};
use configdb_schema::document::{AgentConfig, EdgeCluster, EdgeClusterRecovery, EdgeDeployment, Info};
use configdb_schema::{ClusterName, Document, Organisation};
use edge_sync_contract::{Change, DeploymentDevice, DesiredManifests, Digest, Entries, SyncNode, SyncReplica, names};
use sparkplug::host::HostEvent;
use sparkplug::replication::{Origin, Point};
use sparkplug::{EdgeNodeDescriptor, GroupId, Now};
use uuid::Uuid;

use super::ClusterManager;
use super::repeat::Repeat;
use crate::event::Effect;
use crate::names::{LABEL_CHARACTERS_MAX, unique};
use crate::reconcile::{self, DeploymentIntent, Plan, Reported, SentVersions};
use crate::render::{self, Input, RenderError};
use crate::setup::Edge;

/// A cluster is compared at most so often: a burst of changes is one index, not many.
const SETTLE: Duration = Duration::from_millis(50);

/// Commands with manifests that may be unanswered at the same time: commands are QoS 0, and a burst would only overrun queues.
const WINDOW: usize = 64;

/// Attempts after which an unanswered command no longer counts in the window, so that dumb deployments do not hold up the others.
const ATTEMPTS_IN_WINDOW: u32 = 3;

/// Most deployments on one cluster: their index must fit into one message of 256 KiB.
pub const DEPLOYMENTS_MAX: usize = 1_500;

/// Bytes that one deployment takes in the index.
const ENTRY_BYTES: usize = 140;

/// Bytes that are left for the cluster's own entries in the index of a cluster with [`DEPLOYMENTS_MAX`] deployments.
const ENTRIES_BYTES_MIN: usize = 16 * 1024;

/// Most Syncs that are listened to; more than any organisation has clusters.
const SYNCS_MAX: usize = 20_000;

/// A Sync that was heard.
#[derive(Debug, Clone)]
pub struct Sync {
    /// What it says.
    pub replica: SyncReplica,
    /// UTC ms since when it is alive, or not.
    pub since: Option<u64>,
    /// `Now::mono` at which it died, or at which track of it was lost: it may have died since.
    lost_at: Option<Duration>,
    /// `Now::mono` of the first request for its birth since then, in this session of the host: only who was asked can be said not to answer.
    asked_at: Option<Duration>,
    /// Track of it was lost, and it did not come back in time.
    is_given_up: bool,
}

impl Sync {
    fn new(address: EdgeNodeDescriptor) -> Self {
        Self { replica: SyncReplica::new(address), since: None, lost_at: None, asked_at: None, is_given_up: false }
    }

    /// Born, not dead as far as is known, and not away for so long that it must be.
    pub const fn is_alive(&self) -> bool {
        self.replica.is_alive() && !self.is_given_up
    }

    /// Alive, and nothing of it was missed.
    pub const fn is_followed(&self) -> bool {
        self.replica.is_alive() && self.replica.is_in_track()
    }

    /// Takes an event over; true if something was about it.
    pub fn on_event(&mut self, event: &HostEvent, now: Now) -> bool {
        let (was_alive, was_followed) = (self.is_alive(), self.is_followed());
        let change = self.replica.on_event(event);
        let asked_at = self.asked_at;
        if self.is_followed() {
            self.lost_at = None;
            self.asked_at = None;
            self.is_given_up = false;
        } else if was_followed || was_alive && !self.replica.is_alive() {
            self.lost_at = Some(now.mono);
            self.asked_at = None;
        }
        match event {
            HostEvent::Offline { .. } => self.asked_at = None,
            HostEvent::RebirthRequested { .. } if !self.is_followed() => {
                self.asked_at = self.asked_at.or(Some(now.mono));
            }
            _ => {}
        }
        if self.is_alive() != was_alive {
            self.since = Some(now.wall);
        }
        if let Some(Change::Other(device)) = &change {
            tracing::debug!(node = %self.replica.address(), device_id = %device, "a device of Sync cannot be used");
        }
        change.is_some() || self.asked_at != asked_at
    }

    /// `Now::mono` since when nothing was heard of it though it should have been, in a session of the host that began then. None: it is followed, or was not asked yet.
    fn unheard_since(&self, online_since: Duration) -> Option<Duration> {
        if self.is_followed() {
            return None;
        }
        let lost_at = self.lost_at.unwrap_or_default();
        let died_in_this_session = !self.replica.is_alive() && lost_at >= online_since;
        if died_in_this_session { Some(lost_at) } else { self.asked_at }
    }
}

/// What tells one index from the next: its version and digest, and what the edge judges it by, without the revision, which moves with every write to ConfigDB.
type SentIndex = (u64, Digest, SentOrigin);

/// Store and epoch, and whether the store contains what the receiver accepted.
pub(super) type SentOrigin = (Option<(Uuid, u64)>, bool);

/// What a receiver that accepted something judges the next desired state by, without its revision.
pub(super) fn sent_origin(origin: Option<Origin>, follows: Option<Point>, accepted: Option<Origin>) -> SentOrigin {
    let from = origin.map(|origin| (origin.store, origin.epoch));
    let contains = follows.zip(accepted).is_some_and(|(end, accepted)| end.revision >= accepted.point.revision);
    (from, contains)
}

/// See [`ClusterManager::provenance`].
struct Provenance {
    origin: Option<Origin>,
    follows: Option<Point>,
    sent: SentOrigin,
    entries: Option<Entries>,
}

/// The desired state of one cluster, and what is unanswered of it.
#[derive(Debug, Clone)]
pub struct EdgeState {
    /// What this life has assigned.
    pub assigned: SentVersions,
    /// Deployments to be rendered again.
    pub stale: BTreeSet<Uuid>,
    /// All of them are.
    pub all_stale: bool,
    /// Names have to be compared again.
    pub names_stale: bool,
    /// Whether deployments wait for an earlier wave; the wave is told beside it.
    pub rollout: RolloutReport,
    index: Option<Repeat<SentIndex>>,
    manifests: BTreeMap<Uuid, Repeat<(u64, Digest)>>,
    compared_at: Option<Duration>,
    compare_at: Option<Duration>,
    desired: DesiredState,
    refused: BTreeMap<Uuid, String>,
    retry_refused: bool,
    retry: (Duration, Duration),
    seed: u64,
}

impl EdgeState {
    /// Nothing is known; everything is to be rendered.
    pub fn new(retry: (Duration, Duration), seed: u64) -> Self {
        Self {
            assigned: SentVersions::default(),
            stale: BTreeSet::new(),
            all_stale: true,
            names_stale: true,
            rollout: RolloutReport::default(),
            index: None,
            manifests: BTreeMap::new(),
            compared_at: None,
            compare_at: None,
            desired: DesiredState::default(),
            refused: BTreeMap::new(),
            retry_refused: false,
            retry,
            seed,
        }
    }

    /// Send everything that is not agreed again, at once, the refused as well.
    pub fn retry(&mut self) {
        self.index = None;
        self.manifests.clear();
        self.retry_refused = true;
        self.compared_at = None;
    }

    /// When there is something to compare or to repeat. While a comparison is put off, so is every repetition.
    pub fn next_deadline(&self) -> Option<Duration> {
        let manifests = self.manifests.values().map(|repeat| repeat.next);
        let repeats = self.index.iter().map(|repeat| repeat.next).chain(manifests);
        self.compare_at.or_else(|| repeats.min())
    }

    /// There is no report to compare with.
    fn not_heard(&mut self, intents: &BTreeMap<Uuid, DeploymentIntent>) -> (DesiredState, RefusedDeployments) {
        self.index = None;
        self.manifests.clear();
        // Who has a name depends on what runs at the edge.
        self.names_stale = true;
        self.desired.agreed = false;
        self.refused = unrenderable(intents);
        self.told()
    }

    fn told(&self) -> (DesiredState, RefusedDeployments) {
        (self.desired.clone(), RefusedDeployments(self.refused.clone()))
    }

    /// What the edge refused is given to it once more, if somebody has asked for that.
    fn take_retry(&mut self, reported: &BTreeMap<Uuid, DeploymentDevice>) {
        if std::mem::take(&mut self.retry_refused) {
            let refused = reported.iter().filter(|(_, device)| device.refused_digest.is_some());
            refused.for_each(|(deployment, _)| self.assigned.retry(*deployment));
        }
    }
}

/// The Sync node of a cluster.
pub fn sync_node(organisation: &Organisation, cluster: &ClusterName) -> Option<EdgeNodeDescriptor> {
    GroupId::new(organisation.cluster_group(cluster)).ok().map(names::sync_node)
}

impl ClusterManager {
    /// Takes an event of somebody's Sync over.
    pub(super) fn on_sync_event(&mut self, node: &EdgeNodeDescriptor, event: &HostEvent, now: Now) {
        let Some(name) = self.settings.organisation.cluster_of_group(node.group.as_str()) else { return };
        let name = String::from(name);
        if !self.syncs.contains_key(&name) {
            if self.syncs.len() >= SYNCS_MAX || !matches!(event, HostEvent::NodeBirth { .. }) {
                return;
            }
            self.syncs.insert(name.clone(), Sync::new(node.clone()));
        }
        let Some(sync) = self.syncs.get_mut(&name) else { return };
        if sync.on_event(event, now)
            && let Some(clusters) = self.claims.get(&name)
        {
            self.dirty.extend(clusters);
        }
    }

    /// The Sync of a cluster, if it says that it is that cluster's.
    pub(super) fn sync_of(&self, uuid: Uuid, name: &str) -> Option<&Sync> {
        self.syncs.get(name).filter(|sync| sync.replica.node().is_some_and(|node| node.cluster_uuid == uuid))
    }

    /// What is wrong if another cluster's Sync speaks in this cluster's group.
    pub(super) fn foreign_sync(&self, uuid: Uuid, name: &str) -> Option<String> {
        let sync = self.syncs.get(name).filter(|sync| sync.is_alive())?;
        let other = sync.replica.node()?.cluster_uuid;
        (other != uuid).then(|| {
            format!("the Sync in this cluster's group says that it is of cluster {other}; bootstrap the edge again")
        })
    }

    /// What is left of a cluster at its edge.
    pub(super) fn edge_left(&self, uuid: Uuid, name: Option<&str>, now: Now) -> Edge {
        let Some(name) = name else { return Edge::Away };
        match self.syncs.get(name).filter(|sync| sync.is_followed()) {
            Some(sync) if self.sync_of(uuid, name).is_none() => {
                // Of another cluster: nothing of this one is there.
                if sync.replica.node().is_some() { Edge::Away } else { Edge::Unknown }
            }
            Some(sync) if !sync.replica.is_complete() => Edge::Unknown,
            Some(sync) => {
                let left = sync.replica.deployments().len();
                let empty = edge_sync_contract::DesiredIndex {
                    version: 0,
                    deployments: BTreeMap::new(),
                    origin: None,
                    follows: None,
                    entries: None,
                };
                let accepted = sync.replica.node().is_some_and(|node| node.desired_digest == Some(empty.digest()));
                if left == 0 && accepted { Edge::Empty } else { Edge::Busy(left) }
            }
            None => match self.away_at(name) {
                Some(at) if at <= now.mono => Edge::Away,
                _ => Edge::Unknown,
            },
        }
    }

    /// When a Sync that is not followed counts as away. None: it is followed, nobody can hear it now, or it has not been asked yet.
    pub(super) fn away_at(&self, name: &str) -> Option<Duration> {
        Some(self.lost_at(name)? + self.settings.away)
    }

    /// Since when a Sync is not followed; None: it is, nobody can hear it now, or it has not been asked for its birth since.
    pub(super) fn lost_at(&self, name: &str) -> Option<Duration> {
        let online_since = self.online_since?;
        self.syncs.get(name).map_or(Some(online_since), |sync| sync.unheard_since(online_since))
    }

    /// When a Sync of which track was lost is given up, unless it is born before. None: there is nothing to give up.
    pub(super) fn give_up_at(&self, name: &str) -> Option<Duration> {
        self.syncs.get(name).filter(|sync| sync.is_alive() && !sync.is_followed())?;
        self.away_at(name)
    }

    /// Gives a Sync up of which track was lost and that was not born in time: it died unheard, while the own session was down.
    pub(super) fn give_up(&mut self, name: &str, now: Now) {
        if self.give_up_at(name).is_some_and(|at| at <= now.mono)
            && let Some(sync) = self.syncs.get_mut(name)
        {
            sync.is_given_up = true;
            sync.since = Some(now.wall);
        }
    }

    /// For a cluster that has no group yet.
    pub(super) fn without_edge(&mut self, uuid: Uuid) -> (DesiredState, RefusedDeployments) {
        self.holds_up_nobody(uuid);
        self.clusters.get(&uuid).map(|cluster| cluster.edge.told()).unwrap_or_default()
    }

    /// Compares what the cluster shall have with what its Sync reports, and sends what is missing.
    pub(super) fn reconcile(
        &mut self,
        uuid: Uuid,
        name: &str,
        deleting: bool,
        now: Now,
    ) -> (DesiredState, RefusedDeployments) {
        let accepted = self.sync_of(uuid, name).and_then(|sync| sync.replica.node()?.desired_digest);
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return Default::default() };
        let edge = &mut cluster.edge;
        // The edge has just taken the index that was sent: the manifests that waited for that need not wait for a burst to end.
        let just_agreed =
            !edge.desired.agreed && accepted.is_some_and(|digest| edge.desired.digest == Some(digest.to_string()));
        let settled = edge.compared_at.map(|at| at + SETTLE).filter(|at| *at > now.mono && !just_agreed);
        edge.compare_at = settled;
        if settled.is_some() {
            return edge.told();
        }
        edge.compared_at = Some(now.mono);
        if !deleting {
            self.settle_names(uuid, name);
            self.render_stale(uuid, name);
        }
        let nothing = BTreeMap::new();
        let deployments = if deleting { None } else { self.deployments.get(&uuid) };
        let mut intents: BTreeMap<Uuid, DeploymentIntent> =
            deployments.into_iter().flatten().map(|(uuid, deployment)| (*uuid, deployment.intent.clone())).collect();
        // Until the set-up is complete the edge is told nothing, so that a half-known configuration empties nobody.
        let sync = self.syncs.get(name).filter(|sync| {
            sync.replica.is_complete() && sync.replica.node().is_some_and(|node| node.cluster_uuid == uuid)
        });
        let node = sync.and_then(|sync| sync.replica.node());
        let provenance = self.provenance(uuid, node.and_then(|node| node.desired_origin));
        let held = node.and_then(held);
        let reported = sync.and_then(|sync| {
            let node = node?;
            let deployments = sync.replica.deployments();
            let follows_us = reconcile::follows(provenance.origin, node.desired_origin, node.desired_held);
            let (index_version, index_digest) = (node.desired_version, node.desired_digest);
            Some(Reported { index_version, index_digest, follows_us, deployments })
        });
        let Some(reported) = reported else {
            if deleting || self.away_at(name).is_some_and(|at| at <= now.mono) {
                self.holds_up_nobody(uuid);
            }
            let Some(cluster) = self.clusters.get_mut(&uuid) else { return Default::default() };
            return cluster.edge.not_heard(&intents);
        };
        // What is born while a later state of the store arrives is a mixture of two: nothing may be concluded from it.
        if !self.replica.is_one_state() {
            return self.clusters.get(&uuid).map(|cluster| cluster.edge.told()).unwrap_or_default();
        }
        let waiting = self.hold(uuid, &mut intents, reported.deployments);
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return Default::default() };
        let edge = &mut cluster.edge;
        edge.rollout = waiting.report;
        self.rollout.wait(uuid, waiting.waits_for);
        self.dirty.extend(self.rollout.compared(uuid, waiting.unsettled));
        edge.take_retry(reported.deployments);
        let unattributed = if deleting { &nothing } else { &self.unattributed };
        let revision = self.replica.revision().max(self.newest_revision);
        let mut plan = reconcile::plan(&intents, unattributed, reported, &mut edge.assigned, revision);
        (plan.index.origin, plan.index.follows) = (provenance.origin, provenance.follows);
        plan.index.entries = provenance.entries;
        let (version, digest) = (plan.index.version, Some(plan.digest.to_string()));
        edge.desired = DesiredState { version, digest, agreed: plan.agreed, held, held_since: None };
        edge.refused.clone_from(&plan.refused);
        self.send(uuid, name, &plan, provenance.sent, now);
        self.clusters.get(&uuid).map(|cluster| cluster.edge.told()).unwrap_or_default()
    }

    /// Where that comes from which a cluster is sent: this store, at the epoch that an operator released the cluster to.
    pub(super) fn origin(&self, uuid: Uuid) -> Option<Origin> {
        let recovery = self.replica.document::<EdgeClusterRecovery>(uuid).unwrap_or_else(|error| {
            tracing::warn!(cluster_id = %uuid, error = %error, "EdgeClusterRecovery cannot be read; the cluster is not released");
            None
        });
        let released = recovery.filter(|recovery| Some(recovery.store) == self.replica.store());
        self.replica.origin(released.map_or(0, |recovery| recovery.epoch))
    }

    /// What an index says beside what the cluster shall have, to an edge that accepted its last one from there.
    fn provenance(&self, uuid: Uuid, accepted: Option<Origin>) -> Provenance {
        let origin = self.origin(uuid);
        let follows = accepted.and_then(|accepted| self.replica.follows(accepted));
        let deployments = self.deployments.get(&uuid).map_or(0, BTreeMap::len);
        let room = DEPLOYMENTS_MAX.saturating_sub(deployments) * ENTRY_BYTES + ENTRIES_BYTES_MIN;
        let entries = self.entries(uuid, &[EdgeCluster::slug(), Info::slug()], room);
        Provenance { origin, follows, sent: sent_origin(origin, follows, accepted), entries }
    }

    /// What the edge keeps of ConfigDB, so that a control plane that lost it can have it again. None: there is no room for it in the message.
    fn entries(&self, object: Uuid, slugs: &[&str], room: usize) -> Option<Entries> {
        let entry = |slug: &&str| Some(((*slug).to_owned(), self.replica.entry(object, slug)?.value().ok()?));
        let entries = Entries(slugs.iter().filter_map(entry).collect());
        entries.to_text().is_some_and(|text| text.len() * 2 <= room).then_some(entries)
    }

    /// Sends the index until it is agreed, then the manifests until each is applied or refused.
    fn send(&mut self, uuid: Uuid, name: &str, plan: &Plan, origin: SentOrigin, now: Now) {
        let Some(node) = self.clusters.get(&uuid).and_then(|cluster| cluster.expecting.clone()) else { return };
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let edge = &mut cluster.edge;
        if plan.agreed {
            edge.index = None;
        } else {
            let what = (plan.index.version, plan.digest, origin);
            if Repeat::send(&mut edge.index, what, edge.retry, edge.seed, now) {
                self.effects.push(Effect::Host(plan.index.to_request(node.clone())));
            }
        }
        let mut due = Vec::new();
        edge.manifests.retain(|deployment, repeat| {
            let listed = plan.index.deployments.get(deployment).map(|desired| (desired.version, desired.digest));
            plan.manifests.contains(deployment) && listed == Some(repeat.what)
        });
        let fresh = |repeat: &&Repeat<(u64, Digest)>| repeat.attempt() <= ATTEMPTS_IN_WINDOW;
        let mut room = WINDOW.saturating_sub(edge.manifests.values().filter(fresh).count());
        for deployment in &plan.manifests {
            let Some(desired) = plan.index.deployments.get(deployment) else { continue };
            let what = (desired.version, desired.digest);
            let is_due = match edge.manifests.get_mut(deployment) {
                Some(repeat) => repeat.is_due(now),
                None if room == 0 => false,
                None => {
                    room -= 1;
                    let seed = edge.seed ^ deployment.as_u64_pair().0;
                    edge.manifests.insert(*deployment, Repeat::first(what, edge.retry, seed, now));
                    true
                }
            };
            if is_due {
                edge.assigned.sent(*deployment);
                due.push((*deployment, desired.version, desired.digest));
            }
        }
        for (deployment, version, digest) in due {
            // Rendered again rather than kept: what waits for an edge that is away would fill the memory.
            match self.render(uuid, deployment, name) {
                Ok(rendered) if rendered.digest == digest => {
                    let slugs = [EdgeDeployment::slug(), AgentConfig::slug(), Info::slug()];
                    let bytes: usize = rendered.manifests.iter().map(|manifest| manifest.to_string().len() + 1).sum();
                    let room = self.settings.deployment.manifests_bytes_max.saturating_sub(bytes);
                    let entries = self.entries(deployment, &slugs, room);
                    let mut desired = DesiredManifests::new(version, rendered.name, rendered.manifests);
                    desired.entries = entries;
                    self.effects.push(Effect::Host(desired.to_request(node.clone(), deployment)));
                }
                _ => {
                    tracing::warn!(cluster_id = %uuid, object_id = %deployment, "a deployment renders differently twice")
                }
            }
        }
    }

    /// Gives every deployment of a cluster its name in Kubernetes. Who runs at the edge keeps a name, then who was sent there, then who was made first: a name that changed its
    /// owner would run twice, because what is refused stays as it is at the edge.
    fn settle_names(&mut self, uuid: Uuid, name: &str) {
        let reported = self.sync_of(uuid, name).map(|sync| sync.replica.deployments().keys().copied());
        let at_edge: BTreeSet<Uuid> = reported.into_iter().flatten().collect();
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let edge = &mut cluster.edge;
        let Some(deployments) = self.deployments.get_mut(&uuid).filter(|_| std::mem::take(&mut edge.names_stale))
        else {
            return;
        };
        let mut order: Vec<((bool, bool), String, Uuid, String)> = deployments
            .iter()
            .filter_map(|(uuid, deployment)| {
                let entry = deployment.entry.as_ref().ok()?;
                // An entry without the time of its making comes after those that have it.
                let made = entry.created_at.clone().unwrap_or_else(|| "~".to_owned());
                // What was sent to an edge that holds does not run there.
                let rank = (!at_edge.contains(uuid), !edge.assigned.knows(*uuid));
                Some((rank, made, *uuid, entry.name.clone()))
            })
            .collect();
        order.sort();
        let k8s_names = unique(order.iter().map(|(_, _, _, name)| name.as_str()), LABEL_CHARACTERS_MAX);
        let mut first: BTreeMap<&str, Uuid> = BTreeMap::new();
        for (position, (_, _, uuid, name)) in order.iter().enumerate() {
            let holder = *first.entry(name).or_insert(*uuid);
            let conflict = if position >= DEPLOYMENTS_MAX {
                Some(format!("the cluster has {DEPLOYMENTS_MAX} older deployments, which is the most it can have"))
            } else if holder != *uuid {
                Some(format!("name {name:?} is taken by deployment {holder} on this cluster; choose another name"))
            } else {
                None
            };
            let Some(deployment) = deployments.get_mut(uuid) else { continue };
            let k8s_name = &k8s_names[name.as_str()];
            if deployment.conflict != conflict || deployment.k8s_name != *k8s_name {
                deployment.conflict = conflict;
                deployment.k8s_name.clone_from(k8s_name);
                edge.stale.insert(*uuid);
            }
        }
    }

    fn render_stale(&mut self, uuid: Uuid, name: &str) {
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let mut stale = std::mem::take(&mut cluster.edge.stale);
        if std::mem::take(&mut cluster.edge.all_stale) {
            stale.extend(self.deployments.get(&uuid).into_iter().flat_map(BTreeMap::keys));
        }
        for deployment in stale {
            let intent = match self.render(uuid, deployment, name) {
                Ok(rendered) => DeploymentIntent::Rendered(rendered.digest),
                Err(reason) => DeploymentIntent::Unrenderable(reason),
            };
            let Some(known) = self.deployments.get_mut(&uuid).and_then(|on| on.get_mut(&deployment)) else { continue };
            let after: BTreeSet<Uuid> = match &known.entry {
                Ok(entry) => {
                    render::sources(entry, &self.catalog).chain(entry.chart_templates().iter().copied()).collect()
                }
                Err(_) => BTreeSet::new(),
            };
            known.intent = intent;
            let before = std::mem::replace(&mut known.rendered_from, after.clone());
            self.set_dependencies((uuid, Some(deployment)), &before, &after);
        }
    }

    fn render(&self, cluster: Uuid, uuid: Uuid, cluster_name: &str) -> Result<render::Rendered, String> {
        let known = self.deployments.get(&cluster).and_then(|on| on.get(&uuid)).ok_or("it is gone")?;
        let deployment = known.entry.as_ref().map_err(|reason| format!("EdgeDeployment cannot be read: {reason}"))?;
        if let Some(conflict) = &known.conflict {
            return Err(conflict.clone());
        }
        let agent_config = self.replica.entry(uuid, AgentConfig::slug()).map(|entry| (&*entry.json, entry.etag));
        let pins = &self.clusters.get(&cluster).ok_or("its cluster is gone")?.pins;
        let input = Input { uuid, deployment, k8s_name: &known.k8s_name, agent_config, cluster_name, pins };
        render::deployment(input, &self.catalog, &self.settings.deployment)
            .map_err(|error: RenderError| error.to_string())
    }
}

/// Why a Sync holds what it is sent; None: it does not.
fn held(node: &SyncNode) -> Option<String> {
    (node.desired_held == Some(true)).then(|| node.desired_hold_reason.clone().unwrap_or_default())
}

fn unrenderable(intents: &BTreeMap<Uuid, DeploymentIntent>) -> BTreeMap<Uuid, String> {
    let refused = intents.iter().filter_map(|(uuid, intent)| match intent {
        DeploymentIntent::Unrenderable(reason) => Some((*uuid, reason.clone())),
        DeploymentIntent::Rendered(_) | DeploymentIntent::Held => None,
    });
    refused.collect()
}
