//! The deployments of all clusters: rendered, held until their wave's turn has come, and sent to each Sync until it reports them applied or refused.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster_manager_contract::{DesiredState, RefusedDeployments, RolloutReport};
use configdb_contract::Entry;
use configdb_schema::Document;
use configdb_schema::document::{AgentConfig, ChartRollout, EdgeCluster, EdgeDeployment, Info};
use edge_sync_contract::{DeploymentDevice, DesiredIndex, DesiredManifests, Digest, Entries, SyncNode};
use manifests::git_address::GitAddress;
use manifests::names::{Claim, LABEL_CHARACTERS_MAX, unique};
use manifests::render::{self, Input, RenderError};
use sparkplug::replication::{Origin, Pace, Repetition, Report};
use sparkplug::{EdgeNodeDescriptor, Now};
use uuid::Uuid;

use super::{Controller, Forgotten, Pacing};
use crate::event::Effect;
use crate::fleet::{FleetView, Placement};
use crate::reconcile::{self, DeploymentIntent, DerivedFrom, Plan, Reported, SentVersions};
use crate::rollout::{Blocker, Rollout};

/// A cluster is compared at most so often: a burst of changes is one index, not many.
const SETTLE: Duration = Duration::from_millis(50);

/// Commands with manifests that may be unanswered at the same time: commands are QoS 0, and a burst would only overrun queues.
const WINDOW: usize = 64;

/// Attempts after which an unanswered command no longer counts in the window, so that dumb deployments do not hold up the others.
const ATTEMPTS_IN_WINDOW: u32 = 3;

/// Most deployments on one cluster: their index must fit into one message of 256 KiB.
pub(crate) const DEPLOYMENTS_MAX: usize = 1_500;

/// Bytes that one deployment takes in the index.
const ENTRY_BYTES: usize = 140;

/// Bytes that are left for the cluster's own entries in the index of a cluster with [`DEPLOYMENTS_MAX`] deployments.
const ENTRIES_BYTES_MIN: usize = 16 * 1024;

/// Bytes that names may take in an index, beside the entries.
const NAMES_BYTES_MAX: usize = 8 * 1024;

/// A deployment that some cluster shall have.
#[derive(Debug)]
struct Deployment {
    /// Its entry; Err: what is wrong with it.
    entry: Result<EdgeDeployment, String>,
    /// Its name in Kubernetes, unique on its cluster.
    k8s_name: String,
    /// Why another deployment goes before it.
    conflict: Option<String>,
    /// What it comes to.
    intent: DeploymentIntent,
    /// Objects that it was rendered from.
    rendered_from: BTreeSet<Uuid>,
}

/// Boxed, because most clusters have few, and a map makes room for eleven at once.
type DeploymentsOfCluster = BTreeMap<Uuid, Box<Deployment>>;

/// What of a cluster waits, and what of it has not settled.
#[derive(Debug, Default)]
struct Waiting {
    /// For the cluster's Device.
    report: RolloutReport,
    /// Chart templates that it waits for.
    waits_for: BTreeSet<Uuid>,
    /// Chart templates of deployments that have not settled.
    unsettled: BTreeSet<Uuid>,
}

/// What an index says beside what the cluster shall have.
struct Provenance {
    from: DerivedFrom,
    entries: Option<Entries>,
}

/// A cluster whose deployments are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    /// Which.
    pub uuid: Uuid,
    /// Its name.
    pub name: &'a str,
    /// It is torn down: it shall have none.
    pub deleting: bool,
    /// Where its Sync listens; None: no Sync is expected.
    pub node: Option<&'a EdgeNodeDescriptor>,
}

/// What comparing has come to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// For the cluster's Device.
    pub desired: DesiredState,
    /// Deployments that are refused, here or there.
    pub refused: RefusedDeployments,
    /// What to send.
    pub commands: Vec<Effect>,
    /// Clusters that may go on because this one has settled.
    pub released: Vec<Uuid>,
}

/// The desired state of one cluster, and what is unanswered of it.
#[derive(Debug)]
struct EdgeState {
    /// What this process has assigned.
    assigned: SentVersions,
    /// Deployments to be rendered again.
    stale: BTreeSet<Uuid>,
    /// All of them are.
    all_stale: bool,
    /// Names have to be compared again.
    names_stale: bool,
    /// Whether deployments wait for an earlier wave; the wave is reported beside it.
    rollout: RolloutReport,
    manifests: BTreeMap<Uuid, Repetition<(u64, Digest)>>,
    compared_at: Option<Duration>,
    compare_at: Option<Duration>,
    desired: DesiredState,
    refused: BTreeMap<Uuid, String>,
    retry_refused: bool,
    pace: Pace,
}

impl EdgeState {
    /// Nothing is known; everything is to be rendered.
    fn new(pace: Pace) -> Self {
        Self {
            assigned: SentVersions::default(),
            stale: BTreeSet::new(),
            all_stale: true,
            names_stale: true,
            rollout: RolloutReport::default(),
            manifests: BTreeMap::new(),
            compared_at: None,
            compare_at: None,
            desired: DesiredState::default(),
            refused: BTreeMap::new(),
            retry_refused: false,
            pace,
        }
    }

    /// Send everything that is not agreed again, at once, the refused as well.
    fn retry(&mut self) {
        self.assigned.index.pause();
        self.manifests.clear();
        self.retry_refused = true;
        self.compared_at = None;
    }

    /// When there is something to compare or to repeat. While a comparison is put off, so is every repetition.
    fn next_deadline(&self) -> Option<Duration> {
        let manifests = self.manifests.values().map(Repetition::next);
        let repeats = self.assigned.index.next_deadline().into_iter().chain(manifests);
        self.compare_at.or_else(|| repeats.min())
    }

    /// There is no report to compare with.
    fn without_report(&mut self, intents: &BTreeMap<Uuid, DeploymentIntent>) -> Outcome {
        self.assigned.index.pause();
        self.manifests.clear();
        // Who has a name depends on what runs at the edge.
        self.names_stale = true;
        self.desired.agreed = false;
        self.refused = unrenderable(intents);
        self.outcome()
    }

    fn outcome(&self) -> Outcome {
        let refused = RefusedDeployments(self.refused.clone());
        Outcome { desired: self.desired.clone(), refused, commands: Vec::new(), released: Vec::new() }
    }

    /// What the edge refused is sent to it once more, if an operator has asked for that.
    fn take_retry(&mut self, reported: &BTreeMap<Uuid, DeploymentDevice>) {
        if std::mem::take(&mut self.retry_refused) {
            let refused = reported.iter().filter(|(_, device)| device.refused_digest.is_some());
            refused.for_each(|(deployment, _)| self.assigned.retry(*deployment));
        }
    }
}

/// The deployments of all clusters.
#[derive(Debug)]
pub(crate) struct DeploymentsController {
    settings: render::Settings,
    pacing: Pacing,
    /// Of clusters that exist.
    clusters: BTreeMap<Uuid, EdgeState>,
    /// By cluster, also of clusters that do not exist.
    deployments: BTreeMap<Uuid, DeploymentsOfCluster>,
    /// Deployments whose entry does not say on which cluster they are, and why.
    invalid: BTreeMap<Uuid, String>,
    /// Deployments that are rendered from an object, with their cluster.
    dependents: BTreeMap<Uuid, BTreeSet<(Uuid, Uuid)>>,
    /// Which of them a changed chart template may reach.
    rollout: Rollout<Uuid>,
}

impl Controller for DeploymentsController {
    fn retry(&mut self, uuid: Uuid) {
        self.edge(uuid).retry();
    }

    fn next_deadline(&self, uuid: Uuid, _now: Now) -> Option<Duration> {
        self.clusters.get(&uuid)?.next_deadline()
    }

    fn clear(&mut self) {
        for (uuid, edge) in &mut self.clusters {
            let mut assigned = std::mem::take(&mut edge.assigned);
            assigned.index.pause();
            *edge = EdgeState { assigned, ..EdgeState::new(self.pacing.of(*uuid, 34)) };
        }
        self.deployments.clear();
        self.invalid.clear();
        self.dependents.clear();
        self.rollout = Rollout::default();
    }

    fn retain(&mut self, is_left: &dyn Fn(&Uuid) -> bool) -> Vec<Effect> {
        self.clusters.retain(|uuid, _| is_left(uuid));
        Vec::new()
    }

    fn forget(&mut self, uuid: Uuid) -> Forgotten {
        self.clusters.remove(&uuid);
        Forgotten { effects: Vec::new(), released: self.rollout.remove(uuid) }
    }
}

impl DeploymentsController {
    /// Nothing is known.
    pub(crate) fn new(settings: render::Settings, pacing: Pacing) -> Self {
        Self {
            settings,
            pacing,
            clusters: BTreeMap::new(),
            deployments: BTreeMap::new(),
            invalid: BTreeMap::new(),
            dependents: BTreeMap::new(),
            rollout: Rollout::default(),
        }
    }

    fn edge(&mut self, uuid: Uuid) -> &mut EdgeState {
        let pace = self.pacing.of(uuid, 34);
        self.clusters.entry(uuid).or_insert_with(|| EdgeState::new(pace))
    }

    /// Puts a cluster into a wave; all of its deployments are rendered again. Clusters that may go on by that.
    pub(crate) fn set_wave(&mut self, uuid: Uuid, wave: u8) -> Vec<Uuid> {
        self.edge(uuid).all_stale = true;
        self.rollout.set_wave(uuid, wave)
    }

    /// Takes over what operators have decided about the rollout of a chart template, whose entry has the ETag `template`. Says which clusters may continue because of that.
    pub(crate) fn decide_rollout(&mut self, chart: Uuid, decided: &ChartRollout, template: Option<Uuid>) -> Vec<Uuid> {
        let mut released = self.rollout.set_held(chart, decided.hold.is_some());
        let passed = decided.passed(template).map(|(cluster, _)| cluster);
        released.extend(self.rollout.set_passed(&chart, passed));
        released
    }

    /// The wave of a cluster.
    pub(crate) fn wave(&self, uuid: Uuid) -> u8 {
        self.rollout.wave(uuid)
    }

    /// Whether a cluster may block others.
    pub(crate) fn blocks_others(&self, uuid: Uuid) -> bool {
        self.rollout.blocks_rollout(uuid)
    }

    /// Whether deployments of a cluster wait for an earlier wave.
    pub(crate) fn rollout_report(&self, uuid: Uuid) -> RolloutReport {
        self.clusters.get(&uuid).map(|edge| edge.rollout.clone()).unwrap_or_default()
    }

    /// How many deployments a cluster shall have.
    pub(crate) fn count(&self, uuid: Uuid) -> usize {
        self.deployments.get(&uuid).map_or(0, BTreeMap::len)
    }

    /// Objects that the deployments of a cluster are rendered from.
    pub(crate) fn rendered_from(&self, uuid: Uuid) -> BTreeSet<Uuid> {
        let deployments = self.deployments.get(&uuid).into_iter().flat_map(BTreeMap::values);
        deployments.flat_map(|deployment| &deployment.rendered_from).copied().collect()
    }

    /// Clusters with a deployment that is rendered from an object.
    pub(crate) fn followers(&self, object: Uuid) -> BTreeSet<Uuid> {
        self.dependents.get(&object).into_iter().flatten().map(|(cluster, _)| *cluster).collect()
    }

    /// The entry of a deployment changed, and with it perhaps its cluster. Says which clusters are concerned; None: every one.
    pub(crate) fn on_entry(
        &mut self,
        uuid: Uuid,
        placement: Placement,
        entry: Option<&Entry>,
    ) -> Option<BTreeSet<Uuid>> {
        let parsed = entry.map(|entry| entry.parse::<EdgeDeployment>().map_err(|error| error.to_string()));
        let mut concerns_all = self.invalid.remove(&uuid).is_some();
        if let (Some(Err(reason)), None) = (&parsed, placement.now) {
            self.invalid.insert(uuid, reason.clone());
            concerns_all = true;
        }
        if let Some(before) = placement.before.filter(|before| Some(*before) != placement.now) {
            self.remove(before, uuid);
        }
        if let (Some(cluster), Some(entry)) = (placement.now, parsed) {
            let fresh = || {
                Box::new(Deployment {
                    entry: Err(String::new()),
                    k8s_name: String::new(),
                    conflict: None,
                    intent: DeploymentIntent::Unrenderable(String::new()),
                    rendered_from: BTreeSet::new(),
                })
            };
            self.deployments.entry(cluster).or_default().entry(uuid).or_insert_with(fresh).entry = entry;
            self.mark(cluster, uuid);
            if let Some(edge) = self.clusters.get_mut(&cluster) {
                edge.names_stale = true;
            }
        }
        (!concerns_all).then(|| placement.before.into_iter().chain(placement.now).collect())
    }

    fn remove(&mut self, cluster: Uuid, uuid: Uuid) {
        let Some(on_cluster) = self.deployments.get_mut(&cluster) else { return };
        let removed = on_cluster.remove(&uuid);
        if on_cluster.is_empty() {
            self.deployments.remove(&cluster);
        }
        if let Some(deployment) = removed {
            self.set_dependencies((cluster, uuid), &deployment.rendered_from, &BTreeSet::new());
        }
        if let Some(edge) = self.clusters.get_mut(&cluster) {
            edge.stale.remove(&uuid);
            edge.names_stale = true;
        }
    }

    /// A deployment of a cluster is to be rendered again.
    pub(crate) fn mark(&mut self, cluster: Uuid, deployment: Uuid) {
        if let Some(edge) = self.clusters.get_mut(&cluster) {
            edge.stale.insert(deployment);
        }
    }

    /// All deployments are to be rendered again.
    pub(crate) fn mark_all(&mut self) {
        for (uuid, edge) in &mut self.clusters {
            edge.all_stale = true;
            self.rollout.unknown(*uuid);
        }
    }

    /// What is rendered from an object is to be rendered again. Says which clusters are concerned.
    pub(crate) fn on_template(&mut self, object: Uuid) -> BTreeSet<Uuid> {
        let dependents = self.dependents.get(&object).cloned().unwrap_or_default();
        for (cluster, deployment) in &dependents {
            self.rollout.unknown(*cluster);
            self.mark(*cluster, *deployment);
        }
        dependents.into_iter().map(|(cluster, _)| cluster).collect()
    }

    /// Notes from which objects a deployment is rendered.
    fn set_dependencies(&mut self, dependent: (Uuid, Uuid), before: &BTreeSet<Uuid>, after: &BTreeSet<Uuid>) {
        for object in before.symmetric_difference(after) {
            let of_object = self.dependents.entry(*object).or_default();
            if after.contains(object) {
                of_object.insert(dependent);
            } else {
                of_object.remove(&dependent);
            }
            if of_object.is_empty() {
                self.dependents.remove(object);
            }
        }
    }

    /// Nothing of the cluster can settle. Clusters that may go on by that.
    fn clear_rollout_block(&mut self, uuid: Uuid) -> Vec<Uuid> {
        self.edge(uuid).rollout = RolloutReport::default();
        self.rollout.wait(uuid, BTreeSet::new());
        self.rollout.compared(uuid, BTreeSet::new())
    }

    /// For a cluster that has no group yet.
    pub(crate) fn without_edge(&mut self, uuid: Uuid) -> Outcome {
        let released = self.clear_rollout_block(uuid);
        Outcome { released, ..self.edge(uuid).outcome() }
    }

    /// For a cluster of which nothing is concluded at present.
    pub(crate) fn unchanged(&mut self, uuid: Uuid) -> Outcome {
        self.edge(uuid).outcome()
    }

    /// Clusters reach repositories elsewhere than before: everything is rendered again.
    pub(crate) fn set_git(&mut self, git: GitAddress) {
        self.settings.git = git;
        self.mark_all();
    }

    /// Compares what the cluster shall have with what its Sync reports, and says what is missing. `names`: how people call a cluster.
    pub(crate) fn reconcile(
        &mut self,
        fleet: &FleetView,
        target: Target<'_>,
        names: &dyn Fn(Uuid) -> String,
        now: Now,
    ) -> Outcome {
        let Target { uuid, name, deleting, .. } = target;
        let accepted = fleet.sync_of(uuid, name).and_then(|sync| sync.replica.node()?.desired_digest);
        let edge = self.edge(uuid);
        // The edge has just taken the index that was sent: the manifests that waited for that need not wait for a burst to end.
        let just_agreed =
            !edge.desired.agreed && accepted.is_some_and(|digest| edge.desired.digest == Some(digest.to_string()));
        let settled = edge.compared_at.map(|at| at + SETTLE).filter(|at| *at > now.mono && !just_agreed);
        edge.compare_at = settled;
        if settled.is_some() {
            return edge.outcome();
        }
        edge.compared_at = Some(now.mono);
        if !deleting {
            self.settle_names(fleet, uuid, name);
            self.render_stale(fleet, uuid, name);
        }
        let nothing = BTreeMap::new();
        let deployments = if deleting { None } else { self.deployments.get(&uuid) };
        let mut intents: BTreeMap<Uuid, DeploymentIntent> =
            deployments.into_iter().flatten().map(|(uuid, deployment)| (*uuid, deployment.intent.clone())).collect();
        // Until the set-up is complete the edge is sent nothing, so that a half-known configuration empties no cluster.
        let sync = fleet.sync_of(uuid, name).filter(|sync| sync.replica.is_complete());
        let node = sync.and_then(|sync| sync.replica.node());
        let provenance = self.provenance(fleet, uuid, node.and_then(|node| node.desired_origin));
        let held = node.and_then(held);
        let reported = sync.and_then(|sync| {
            let node = node?;
            let (version, digest) = (node.desired_version, node.desired_digest);
            let index = Report { version, digest, origin: node.desired_origin, held: node.desired_held };
            Some(Reported { index, deployments: &sync.replica.devices().deployments })
        });
        let Some(reported) = reported else {
            let is_gone = deleting || fleet.is_away(name, now);
            let released = if is_gone { self.clear_rollout_block(uuid) } else { Vec::new() };
            return Outcome { released, ..self.edge(uuid).without_report(&intents) };
        };
        // What is born while a later state of the store arrives is a mixture of two: nothing may be concluded from it.
        if !fleet.config().is_one_state() {
            return self.edge(uuid).outcome();
        }
        let waiting = self.hold((fleet, names), uuid, &mut intents, reported.deployments);
        self.rollout.wait(uuid, waiting.waits_for);
        let released = self.rollout.compared(uuid, waiting.unsettled);
        let invalid = if deleting { &nothing } else { &self.invalid };
        let Some(edge) = self.clusters.get_mut(&uuid) else { return Outcome::default() };
        edge.rollout = waiting.report;
        edge.take_retry(reported.deployments);
        let mut plan = reconcile::plan(&intents, invalid, &reported, &mut edge.assigned, provenance.from);
        plan.index.entries = provenance.entries;
        plan.index.names = names_of_new(deployments, &plan.index, reported.deployments);
        let (version, digest) = (plan.index.version, Some(plan.digest.to_string()));
        edge.desired = DesiredState { version, digest, agreed: plan.agreed, held, held_since: None };
        edge.refused.clone_from(&plan.refused);
        let commands = self.send(fleet, target, plan, now);
        Outcome { commands, released, ..self.edge(uuid).outcome() }
    }

    /// Holds what must wait for an earlier wave.
    ///
    /// What runs waits; what is new, and what was changed itself since it was sent, does not: an operator wants that on this cluster.
    fn hold(
        &self,
        (fleet, names): (&FleetView, &dyn Fn(Uuid) -> String),
        uuid: Uuid,
        intents: &mut BTreeMap<Uuid, DeploymentIntent>,
        reported: &BTreeMap<Uuid, DeploymentDevice>,
    ) -> Waiting {
        let mut held = Waiting::default();
        let (Some(deployments), Some(edge)) = (self.deployments.get(&uuid), self.clusters.get(&uuid)) else {
            return held;
        };
        let reason = |Blocker { wave, cluster }| {
            let name = names(cluster);
            format!("waits for cluster {name} of wave {wave}, whose deployments of the same chart are not ready")
        };
        // Revision at which the deployment itself was changed.
        let changed_at = |deployment| {
            let revision = |slug| fleet.config().entry(deployment, slug).map_or(0, |entry| entry.revision);
            revision(EdgeDeployment::slug()).max(revision(AgentConfig::slug()))
        };
        for (deployment, intent) in intents {
            let DeploymentIntent::Rendered(digest) = *intent else { continue };
            let device = reported.get(deployment);
            if device.is_some_and(|device| device.is_applied(digest) && device.ready == Some(true)) {
                continue;
            }
            let entry = deployments.get(deployment).and_then(|known| known.entry.as_ref().ok());
            let charts: BTreeSet<Uuid> = entry.into_iter().flat_map(|entry| entry.chart_templates().to_vec()).collect();
            let runs_other = device.is_some_and(|device| device.digest.is_some_and(|runs| runs != digest));
            let sent_at = device.map_or(0, |device| device.version);
            let waits = || {
                let hold = self.rollout.held(&charts).map(|chart| hold_reason(fleet, *chart));
                hold.or_else(|| self.rollout.blocker(uuid, &charts).map(reason))
            };
            if runs_other
                && !edge.assigned.is_listed_with(*deployment, digest)
                && changed_at(*deployment) <= sent_at
                && let Some(reason) = waits()
            {
                *intent = DeploymentIntent::Held;
                held.report.waiting += 1;
                held.report.reason.get_or_insert(reason);
                held.waits_for.extend(&charts);
            }
            held.unsettled.extend(charts);
        }
        held
    }

    /// What an index says beside what the cluster shall have, to an edge that accepted its last one from there.
    fn provenance(&self, fleet: &FleetView, uuid: Uuid, accepted: Option<Origin>) -> Provenance {
        let origin = fleet.origin(uuid);
        let follows = accepted.and_then(|accepted| fleet.config().follows(accepted));
        let room = DEPLOYMENTS_MAX.saturating_sub(self.count(uuid)) * ENTRY_BYTES + ENTRIES_BYTES_MIN;
        let entries = entries(fleet, uuid, &[EdgeCluster::slug(), Info::slug()], room);
        let decided_for = fleet.decided_for(uuid);
        let is_ageing = accepted.is_some_and(|accepted| fleet.config().is_ageing(accepted));
        Provenance {
            from: DerivedFrom { origin, follows, decided_for, is_ageing, revision: fleet.revision() },
            entries,
        }
    }

    /// Sends the index until it is agreed, then the manifests until each is applied or refused.
    fn send(&mut self, fleet: &FleetView, target: Target<'_>, plan: Plan, now: Now) -> Vec<Effect> {
        let (uuid, mut commands) = (target.uuid, Vec::new());
        let Some(node) = target.node.cloned() else { return commands };
        let edge = self.edge(uuid);
        if edge.assigned.index.send(plan.comparison, edge.pace, now) {
            commands.push(Effect::Host(plan.index.to_request(node.clone())));
        }
        let mut due = Vec::new();
        edge.manifests.retain(|deployment, repeat| {
            let listed = plan.index.deployments.get(deployment).map(|desired| (desired.version, desired.digest));
            plan.manifests.contains(deployment) && listed == Some(*repeat.what())
        });
        let fresh = |repeat: &&Repetition<(u64, Digest)>| repeat.attempts() <= ATTEMPTS_IN_WINDOW;
        let mut room = WINDOW.saturating_sub(edge.manifests.values().filter(fresh).count());
        for deployment in &plan.manifests {
            let Some(desired) = plan.index.deployments.get(deployment) else { continue };
            let what = (desired.version, desired.digest);
            let is_due = match edge.manifests.get_mut(deployment) {
                Some(repeat) => repeat.is_due(now),
                None if room == 0 => false,
                None => {
                    room -= 1;
                    let pace = Pace { seed: edge.pace.seed ^ deployment.as_u64_pair().0, ..edge.pace };
                    edge.manifests.insert(*deployment, Repetition::first(what, pace, now));
                    true
                }
            };
            if is_due {
                edge.assigned.mark_sent(*deployment);
                due.push((*deployment, desired.version, desired.digest));
            }
        }
        let devices = fleet.sync_of(uuid, target.name).map(|sync| sync.replica.devices());
        for (deployment, version, digest) in due {
            // Sync reports a Device for each deployment of the index before it reports the index.
            let Some(device) = devices.and_then(|devices| devices.device_of(deployment)).cloned() else { continue };
            // Rendered again rather than kept: what waits for an edge that is away would fill the memory.
            match self.render(fleet, uuid, deployment, target.name) {
                Ok(rendered) if rendered.digest == digest => {
                    let slugs = [EdgeDeployment::slug(), AgentConfig::slug(), Info::slug()];
                    let bytes: usize = rendered.manifests.iter().map(|manifest| manifest.to_string().len() + 1).sum();
                    let room = self.settings.manifests_bytes_max.saturating_sub(bytes);
                    let mut desired = DesiredManifests::new(version, rendered.name, rendered.manifests);
                    desired.entries = entries(fleet, deployment, &slugs, room);
                    commands.push(Effect::Host(desired.to_request(node.clone(), device, deployment)));
                }
                _ => {
                    tracing::warn!(cluster_id = %uuid, object_id = %deployment, "a deployment renders differently twice")
                }
            }
        }
        commands
    }

    /// Gives every deployment of a cluster its name in Kubernetes. The deployment that runs at the edge keeps a name, then the one that was listed there, then the one that was
    /// made first. If a name changed its owner, it would run twice, because what is refused stays as it is at the edge.
    fn settle_names(&mut self, fleet: &FleetView, uuid: Uuid, name: &str) {
        let nothing = BTreeMap::new();
        let reported = fleet.sync_of(uuid, name).map_or(&nothing, |sync| &sync.replica.devices().deployments);
        let Some(edge) = self.clusters.get_mut(&uuid) else { return };
        let Some(deployments) = self.deployments.get_mut(&uuid).filter(|_| std::mem::take(&mut edge.names_stale))
        else {
            return;
        };
        let mut order: Vec<Claim> = deployments
            .iter()
            .filter_map(|(uuid, deployment)| {
                let runs = reported.get(uuid).is_some_and(DeploymentDevice::runs);
                let is_listed = reported.contains_key(uuid) || edge.assigned.is_listed(*uuid);
                Some(Claim::new(*uuid, deployment.entry.as_ref().ok()?, runs, is_listed))
            })
            .collect();
        order.sort();
        let k8s_names = unique(order.iter().map(|claim| claim.name.as_str()), LABEL_CHARACTERS_MAX);
        let mut first: BTreeMap<&str, Uuid> = BTreeMap::new();
        for (position, Claim { uuid, name, .. }) in order.iter().enumerate() {
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

    fn render_stale(&mut self, fleet: &FleetView, uuid: Uuid, name: &str) {
        let Some(edge) = self.clusters.get_mut(&uuid) else { return };
        let mut stale = std::mem::take(&mut edge.stale);
        if std::mem::take(&mut edge.all_stale) {
            stale.extend(self.deployments.get(&uuid).into_iter().flat_map(BTreeMap::keys));
        }
        for deployment in stale {
            let intent = match self.render(fleet, uuid, deployment, name) {
                Ok(rendered) => DeploymentIntent::Rendered(rendered.digest),
                Err(reason) => DeploymentIntent::Unrenderable(reason),
            };
            let Some(known) = self.deployments.get_mut(&uuid).and_then(|on| on.get_mut(&deployment)) else { continue };
            let after: BTreeSet<Uuid> = match &known.entry {
                Ok(entry) => {
                    render::sources(entry, fleet.catalog()).chain(entry.chart_templates().iter().copied()).collect()
                }
                Err(_) => BTreeSet::new(),
            };
            known.intent = intent;
            let before = std::mem::replace(&mut known.rendered_from, after.clone());
            self.set_dependencies((uuid, deployment), &before, &after);
        }
    }

    fn render(
        &self,
        fleet: &FleetView,
        cluster: Uuid,
        uuid: Uuid,
        cluster_name: &str,
    ) -> Result<render::Rendered, String> {
        let known = self.deployments.get(&cluster).and_then(|on| on.get(&uuid)).ok_or("it is gone")?;
        let deployment = known.entry.as_ref().map_err(|reason| format!("EdgeDeployment cannot be read: {reason}"))?;
        if let Some(conflict) = &known.conflict {
            return Err(conflict.clone());
        }
        let agent_config = fleet.config().entry(uuid, AgentConfig::slug()).map(|entry| (&*entry.json, entry.etag));
        let pins = fleet.pins(cluster);
        let input = Input { uuid, deployment, k8s_name: &known.k8s_name, agent_config, cluster_name, pins };
        render::deployment(input, fleet.catalog(), &self.settings).map_err(|error: RenderError| error.to_string())
    }
}

/// What the edge keeps of ConfigDB, so that a control plane that lost it can have it again. None: there is no room for it in the message.
fn entries(fleet: &FleetView, object: Uuid, slugs: &[&str], room: usize) -> Option<Entries> {
    let entry = |slug: &&str| Some(((*slug).to_owned(), fleet.config().entry(object, slug)?.value().ok()?));
    let entries = Entries(slugs.iter().filter_map(entry).collect());
    entries.to_text().is_some_and(|text| text.len() * 2 <= room).then_some(entries)
}

/// Why what is rendered from a chart template waits that an operator holds.
fn hold_reason(fleet: &FleetView, chart: Uuid) -> String {
    let info: Option<Info> = fleet.config().document(chart).ok().flatten();
    let name = info.map_or_else(|| chart.to_string(), |info| info.name);
    let decided: Option<ChartRollout> = fleet.config().document(chart).ok().flatten();
    let by = decided.and_then(|decided| decided.hold).map_or_else(String::new, |hold| format!(" by {}", hold.by));
    format!("the rollout of {name} is held{by}")
}

/// Names of those in the index that Sync does not report yet: their Devices have them from the first birth on. What finds no room is named by its manifests.
fn names_of_new(
    deployments: Option<&DeploymentsOfCluster>,
    index: &DesiredIndex,
    reported: &BTreeMap<Uuid, DeploymentDevice>,
) -> BTreeMap<Uuid, String> {
    let mut room = NAMES_BYTES_MAX;
    let named = deployments.into_iter().flatten().filter_map(|(uuid, deployment)| {
        let name = deployment.entry.as_ref().ok()?.name.clone();
        (index.deployments.contains_key(uuid) && !reported.contains_key(uuid)).then_some((*uuid, name))
    });
    let fits = |(_, name): &(Uuid, String)| {
        // Quotes, the member's name, and each character as an escape.
        let bytes = 16 + 6 * name.len();
        let fits = bytes <= room;
        room -= if fits { bytes } else { 0 };
        fits
    };
    named.filter(fits).collect()
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
