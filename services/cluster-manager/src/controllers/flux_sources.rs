//! That a repository of a cluster has a new commit is sent to its Sync, until Sync has accepted it. To bring Flux to fetch it is Sync's part.

use std::collections::BTreeMap;
use std::time::Duration;

use edge_sync_contract::source::{DesiredSource, OtherCommits, Sources};
use sparkplug::replication::{Desired, DesiredSender, Report};
use sparkplug::{EdgeNodeDescriptor, Now};
use uuid::Uuid;

use super::{Controller, Forgotten, Pacing};
use crate::event::Effect;
use crate::fleet::FleetView;

/// At which commits the repositories of a cluster are, hexadecimal.
#[derive(Debug)]
pub(crate) struct Commits<'a> {
    /// Its own; None: not known yet.
    pub repository: Option<&'a str>,
    /// That of the shared charts.
    pub charts: Option<&'a str>,
    /// Of other shared repositories that it follows.
    pub others: OtherCommits,
}

/// The commits of all clusters on their way.
#[derive(Debug)]
pub(crate) struct FluxSourcesController {
    pacing: Pacing,
    clusters: BTreeMap<Uuid, DesiredSender<Sources>>,
}

impl Controller for FluxSourcesController {
    fn next_deadline(&self, uuid: Uuid, _now: Now) -> Option<Duration> {
        self.clusters.get(&uuid)?.next_deadline()
    }

    fn clear(&mut self) {
        self.clusters.clear();
    }

    fn forget(&mut self, uuid: Uuid) -> Forgotten {
        self.clusters.remove(&uuid);
        Forgotten::default()
    }
}

impl FluxSourcesController {
    /// Nothing was sent.
    pub(crate) const fn new(pacing: Pacing) -> Self {
        Self { pacing, clusters: BTreeMap::new() }
    }

    /// Compares the commits with what the Sync of the cluster of that name has, and sends them until it has them. `node`: where that Sync listens; None: no Sync is expected.
    pub(crate) fn reconcile(
        &mut self,
        fleet: &FleetView,
        (uuid, name): (Uuid, &str),
        node: Option<&EdgeNodeDescriptor>,
        commits: Commits<'_>,
        now: Now,
    ) -> Option<Effect> {
        let sender = self.clusters.entry(uuid).or_default();
        let report = reported(fleet, uuid, name);
        let repository = commits.repository.and_then(|commit| commit.parse().ok());
        let (Some(report), Some(repository), Some(node)) = (report, repository, node) else {
            sender.pause();
            return None;
        };
        let charts = commits.charts.and_then(|commit| commit.parse().ok());
        let sources = Sources { repository, charts, others: commits.others };
        // Sync has them, and has not yet passed them to Flux. Or ConfigDB is being born again: it cannot be said of which state they are, and Sync would refuse them.
        if sender.has_assigned(report.version, &sources) || !fleet.config().is_one_state() {
            sender.pause();
            return None;
        }
        let origin = fleet.origin(uuid);
        let follows = report.origin.and_then(|accepted| fleet.config().follows(accepted));
        // Sync judges by the index that it accepted.
        let desired =
            Desired { digest: sources.clone(), origin, follows, is_ageing: false, revision: fleet.revision() };
        let comparison = sender.compare(&desired, &report);
        let version = comparison.version;
        let is_sent = sender.send(comparison, self.pacing.of(uuid, 9), now);
        is_sent.then(|| Effect::Host(DesiredSource { version, sources, origin, follows }.to_request(node.clone())))
    }
}

/// What a Sync reports. A Sync that reports no version cannot pass commits to Flux. A Sync that waits for an operator's decision gets no commits either.
fn reported(fleet: &FleetView, uuid: Uuid, name: &str) -> Option<Report<Sources>> {
    let sync = fleet.sync_of(uuid, name).filter(|sync| sync.is_alive())?;
    let node = sync.replica.node().filter(|node| node.desired_held != Some(true))?;
    let digest = node.source_commit.map(|repository| Sources {
        repository,
        charts: node.source_charts,
        others: node.source_others.clone(),
    });
    // Sync judges where commits come from by the index that it accepted.
    Some(Report { version: node.source_version?, digest, origin: node.desired_origin, held: None })
}
