//! One cluster's repositories: that one has a new commit is told to its Sync, until Sync has heard it. To bring Flux to fetch it is Sync's part.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use configdb_schema::known;
use edge_sync_contract::SyncNode;
use edge_sync_contract::source::{DesiredSource, OTHERS_MAX, Others, Sources};
use sparkplug::Now;
use uuid::Uuid;

use super::ClusterManager;
use super::repeat::Repeat;
use crate::event::Effect;
use crate::reconcile;

/// The commits on their way.
#[derive(Debug, Clone)]
pub struct SourceForwarding {
    assigned: Option<(u64, Sources)>,
    repeat: Option<Repeat<(u64, Sources)>>,
    retry: (Duration, Duration),
    seed: u64,
}

impl SourceForwarding {
    /// Nothing was sent.
    pub fn new(retry: (Duration, Duration), seed: u64) -> Self {
        Self { assigned: None, repeat: None, retry, seed }
    }

    /// When there is something to repeat.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.repeat.as_ref().map(|repeat| repeat.next)
    }

    /// Whether Sync has heard these commits: it has told Flux, or still tries to, with the version that they were given.
    fn is_heard(&self, (version, told): &(u64, Option<Sources>), sources: &Sources) -> bool {
        let assigned = self.assigned.as_ref();
        told.as_ref() == Some(sources) || assigned.is_some_and(|(given, to)| given == version && to == sources)
    }
}

impl ClusterManager {
    /// Compares the commits of the cluster's repositories with what its Sync has heard, and sends them until it has. A Sync that reports no version cannot tell Flux.
    pub(super) fn forward_source(&mut self, uuid: Uuid, name: &str, now: Now) {
        // What an operator has to decide first is not decided by the commits of a repository either.
        let is_held = |node: &SyncNode| node.desired_held == Some(true);
        let known = self.sync_of(uuid, name).and_then(|sync| sync.replica.node()?.desired_origin);
        let (origin, follows) = (self.origin(uuid), known.and_then(|accepted| self.replica.follows(accepted)));
        let reported = self.sync_of(uuid, name).filter(|sync| sync.is_alive()).and_then(|sync| {
            let node = sync.replica.node().filter(|node| !is_held(node))?;
            let told = node.source_commit.map(|repository| Sources {
                repository,
                charts: node.source_charts,
                others: node.source_others.clone(),
            });
            Some((node.source_version?, told))
        });
        let revision = self.replica.revision().max(self.newest_revision);
        let charts = self.shared.commit(known::repository::HELM_CHARTS).and_then(|commit| commit.parse().ok());
        let others = self.other_sources(uuid);
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        let repository = cluster.git.commit.as_ref().and_then(|commit| commit.parse().ok());
        let forwarding = &mut cluster.source;
        let (Some(reported), Some(repository), Some(node)) = (reported, repository, cluster.expecting.clone()) else {
            forwarding.repeat = None;
            return;
        };
        let sources = Sources { repository, charts, others };
        if forwarding.is_heard(&reported, &sources) {
            forwarding.repeat = None;
            return;
        }
        let version = reconcile::version(reported, &mut forwarding.assigned, sources.clone(), revision);
        if Repeat::send(&mut forwarding.repeat, (version, sources.clone()), forwarding.retry, forwarding.seed, now) {
            self.effects.push(Effect::Host(DesiredSource { version, sources, origin, follows }.to_request(node)));
        }
    }

    /// Commits of the shared repositories beside the charts that the cluster, or a deployment on it, is rendered from.
    fn other_sources(&self, uuid: Uuid) -> Others {
        let own = self.clusters.get(&uuid).map(|cluster| &cluster.rendered_from);
        let deployments = self.deployments.get(&uuid).into_iter().flat_map(BTreeMap::values);
        let objects: BTreeSet<Uuid> =
            deployments.map(|deployment| &deployment.rendered_from).chain(own).flatten().copied().collect();
        let commit = |object: Uuid| self.shared.commit(object)?.parse().ok();
        let told = objects
            .into_iter()
            .filter(|object| *object != known::repository::HELM_CHARTS)
            .filter_map(|object| Some((self.settings.deployment.git.shared(object), commit(object)?)));
        Others(told.take(OTHERS_MAX).collect())
    }
}
