//! When each step between a written deployment and a ready one was reported first, by the timestamps of the messages that reported it.
//!
//! ```text
//! ConfigDB: entry of revision R -> cluster manager: Desired/Version >= R -> edge sync: Desired/Origin or Desired/Version >= R -> Deployment/Version >= R -> Deployment/Ready
//! ```
//!
//! The version of a desired state is at least the revision of ConfigDB that it was derived from, so the revision of an entry can be followed to its edge.
//! A birth after a loss of messages says what holds, and not since when: then the time is not known. Times are those of each service's own clock.

use std::collections::{BTreeMap, VecDeque};

use configdb_contract::{Change, RequestResult};
use configdb_schema::Document as _;
use configdb_schema::document::{AgentConfig, EdgeDeployment, HelmChartTemplate};
use edge_sync_contract::{DeploymentDevice, SyncNode};
use serde_json::Value;
use sparkplug::EdgeNodeDescriptor;
use sparkplug::host::HostEvent;
use uuid::Uuid;

use crate::deltas::Table;

/// Names of the steps, in order.
pub const STEPS: [&str; 5] = ["desired", "acknowledged", "received", "applied", "ready"];

/// Writes whose times are kept: those of the highest revisions.
const WRITES_MAX: usize = 10_000;

/// Versions of one sender or receiver whose times are kept: the latest.
const VERSIONS_MAX: usize = 16;

/// A write to ConfigDB.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Write {
    /// Number of the message that reported it.
    order: u64,
    /// UTC ms.
    at: u64,
    /// `Request/Id` of the request that wrote it.
    request: Option<String>,
}

/// A version that was reported first by the message of that number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    version: u64,
    order: u64,
    /// UTC ms; None: something was missed before.
    at: Option<u64>,
}

/// The latest versions that one service reported.
#[derive(Debug, Clone, Default)]
struct Versions {
    marks: VecDeque<Mark>,
    is_stale: bool,
}

impl Versions {
    fn note(&mut self, version: u64, order: u64, at: u64) {
        let is_stale = std::mem::take(&mut self.is_stale);
        let at = match self.marks.back() {
            Some(last) if last.version == version => return,
            Some(last) if last.version < version => Some(at).filter(|_| !is_stale),
            // The first one, or versions of another store: since when it holds is not known.
            _ => {
                self.marks.clear();
                None
            }
        };
        if self.marks.len() >= VERSIONS_MAX {
            self.marks.pop_front();
            // What it stands for now was reached by a version that is forgotten.
            if let Some(first) = self.marks.front_mut() {
                first.at = None;
            }
        }
        self.marks.push_back(Mark { version, order, at });
    }

    /// Whether `wanted` is reached.
    fn has(&self, wanted: u64) -> bool {
        self.marks.back().is_some_and(|last| last.version >= wanted)
    }

    /// When it was reached, if a message after that of number `after` said so.
    fn reached_at(&self, wanted: u64, after: u64) -> Option<u64> {
        let first = self.marks.iter().find(|mark| mark.version >= wanted)?;
        first.at.filter(|_| first.order > after)
    }
}

/// What an edge reported of a deployment.
#[derive(Debug, Clone, Copy, Default)]
struct DeploymentReport {
    version: u64,
    /// Number of the message that reported the version first.
    order: u64,
    is_ready: bool,
    /// UTC ms; None: not ready, or since when is not known.
    ready_at: Option<u64>,
    is_stale: bool,
}

/// Times of one deployment as they were recorded.
#[derive(Debug, Clone, Copy)]
struct Recalled {
    revision: u64,
    at: [Option<u64>; STEPS.len()],
}

/// Where an intent is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Intent<'a> {
    /// The deployment.
    pub deployment: Uuid,
    /// Highest revision among the entries that it is made of.
    pub revision: u64,
    /// Its cluster.
    pub cluster: Uuid,
    /// Edge sync of that cluster.
    pub sync: Option<&'a EdgeNodeDescriptor>,
    /// What that reports of the deployment.
    pub device: Option<&'a DeploymentDevice>,
}

/// How far an intent is, as far as was received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// UTC ms of each of [`STEPS`]; None: not reached, or not known.
    pub at: [Option<u64>; STEPS.len()],
    /// `Request/Id` of the write.
    pub request: Option<String>,
    /// The cluster manager has made a desired state of the revision, or of a later one.
    pub is_acknowledged: bool,
    /// The edge has accepted that.
    pub is_received: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Intents {
    order: u64,
    /// By revision.
    writes: BTreeMap<u64, Write>,
    /// Desired states of the cluster manager, by cluster.
    acknowledged: BTreeMap<Uuid, Versions>,
    /// Revisions that edges have accepted.
    received: BTreeMap<EdgeNodeDescriptor, Versions>,
    deployments: BTreeMap<EdgeNodeDescriptor, BTreeMap<Uuid, DeploymentReport>>,
    recalled: BTreeMap<Uuid, Recalled>,
}

impl Intents {
    /// A message arrives; what follows is about it.
    pub(crate) fn begin(&mut self, event: &HostEvent, manager: &EdgeNodeDescriptor) {
        self.order += 1;
        match event {
            HostEvent::Offline { .. } => {
                self.lose_manager();
                self.received.values_mut().for_each(|versions| versions.is_stale = true);
                self.deployments.values_mut().flat_map(BTreeMap::values_mut).for_each(|one| one.is_stale = true);
            }
            HostEvent::NodeStale { node, .. } | HostEvent::NodeDeath { node, .. } if node == manager => {
                self.lose_manager();
            }
            HostEvent::NodeStale { node, .. } | HostEvent::NodeDeath { node, .. } => {
                if let Some(versions) = self.received.get_mut(node) {
                    versions.is_stale = true;
                }
                let of_node = self.deployments.get_mut(node);
                of_node.into_iter().flat_map(BTreeMap::values_mut).for_each(|one| one.is_stale = true);
            }
            _ => {}
        }
    }

    fn lose_manager(&mut self) {
        self.acknowledged.values_mut().for_each(|versions| versions.is_stale = true);
    }

    /// ConfigDB has changed at `at`; None: the message was one of many births, and says nothing of when.
    pub(crate) fn on_change(&mut self, change: &Change, at: Option<u64>) {
        match change {
            Change::StoreReplaced { .. } => {
                self.writes.clear();
                self.recalled.clear();
            }
            Change::Entry { slug, new: Some(entry), .. } if is_source(slug) => {
                if let Some(at) = at {
                    let order = self.order;
                    self.writes.entry(entry.revision).or_insert(Write { order, at, request: None });
                }
                while self.writes.len() > WRITES_MAX {
                    self.writes.pop_first();
                }
            }
            Change::Result(result) if result.is_applied() => self.on_result(result),
            _ => {}
        }
    }

    fn on_result(&mut self, result: &RequestResult) {
        if let Some(write) = self.writes.get_mut(&result.revision) {
            write.request.get_or_insert_with(|| result.id.clone());
        }
    }

    /// The cluster manager says which version of the desired state a cluster shall have.
    pub(crate) fn on_acknowledged(&mut self, cluster: Uuid, version: u64, at: u64) {
        self.acknowledged.entry(cluster).or_default().note(version, self.order, at);
    }

    /// A Sync says which desired state it has accepted.
    pub(crate) fn on_received(&mut self, sync: &EdgeNodeDescriptor, node: &SyncNode, at: u64) {
        let revision = node.desired_origin.map_or(node.desired_version, |origin| origin.point.revision);
        let order = self.order;
        match self.received.get_mut(sync) {
            Some(versions) => versions.note(revision, order, at),
            None => self.received.entry(sync.clone()).or_default().note(revision, order, at),
        }
    }

    /// A Sync says how a deployment stands; None: it does not have it any more.
    pub(crate) fn on_deployment(
        &mut self,
        sync: &EdgeNodeDescriptor,
        deployment: Uuid,
        device: Option<&DeploymentDevice>,
        at: u64,
    ) {
        let order = self.order;
        let Some(device) = device else {
            if let Some(of_node) = self.deployments.get_mut(sync) {
                of_node.remove(&deployment);
            }
            return;
        };
        let of_node = self.deployments.entry(sync.clone()).or_default();
        let is_ready = device.ready == Some(true);
        let next = match of_node.get(&deployment) {
            None => DeploymentReport { version: device.version, order, is_ready, ready_at: None, is_stale: false },
            Some(before) => {
                let is_other = before.version != device.version;
                let ready_at = match is_ready {
                    false => None,
                    true if before.is_ready && !is_other => before.ready_at,
                    true => Some(at).filter(|_| !before.is_stale),
                };
                let order = if is_other { order } else { before.order };
                DeploymentReport { version: device.version, order, is_ready, ready_at, is_stale: false }
            }
        };
        of_node.insert(deployment, next);
    }

    /// Takes over times that were recorded before this process began. `deployments`: the table of that name.
    pub(crate) fn recall(&mut self, deployments: &Table) {
        let of = |(key, row): (&String, &Value)| {
            let legs = row.get("path")?.as_array()?;
            let mut at = [None; STEPS.len()];
            for (time, name) in at.iter_mut().zip(STEPS) {
                *time = legs.iter().find(|leg| leg["leg"] == name).and_then(|leg| leg["at"].as_u64());
            }
            Some((Uuid::try_parse(key).ok()?, Recalled { revision: row.get("revision")?.as_u64()?, at }))
        };
        self.recalled = deployments.iter().filter_map(of).collect();
    }

    /// How far an intent is.
    #[must_use]
    pub fn progress(&self, intent: Intent<'_>) -> Progress {
        let Intent { deployment, revision, cluster, sync, device } = intent;
        let write = self.writes.get(&revision);
        let after = write.map_or(0, |write| write.order);
        let acknowledged = self.acknowledged.get(&cluster);
        let received = sync.and_then(|sync| self.received.get(sync));
        let reported = sync.and_then(|sync| self.deployments.get(sync)?.get(&deployment));
        let applied = device.zip(reported).filter(|(device, reported)| {
            device.version >= revision && reported.order > after && reported.version == device.version
        });
        let live = [
            write.map(|write| write.at),
            acknowledged.and_then(|versions| versions.reached_at(revision, after)),
            received.and_then(|versions| versions.reached_at(revision, after)),
            applied.and_then(|(device, _)| device.applied_at),
            applied.and_then(|(_, reported)| reported.ready_at),
        ];
        let is_acknowledged = acknowledged.is_some_and(|versions| versions.has(revision));
        let is_received = received.is_some_and(|versions| versions.has(revision));
        let mut at = live;
        if let Some(recalled) = self.recalled.get(&deployment).filter(|recalled| recalled.revision == revision) {
            let is_reached = [true, is_acknowledged, is_received, applied.is_some(), applied.is_some()];
            for ((time, known), is_reached) in at.iter_mut().zip(recalled.at).zip(is_reached) {
                *time = time.or(known.filter(|_| is_reached));
            }
            if !reported.is_some_and(|reported| reported.is_ready) {
                at[STEPS.len() - 1] = None;
            }
        }
        Progress { at, request: write.and_then(|write| write.request.clone()), is_acknowledged, is_received }
    }
}

/// Whether deployments are made of entries of that application.
fn is_source(slug: &str) -> bool {
    [EdgeDeployment::slug(), AgentConfig::slug(), HelmChartTemplate::slug()].contains(&slug)
}
