//! Waves of one cluster: what of it waits, and whom it holds up.

use std::collections::{BTreeMap, BTreeSet};

use cluster_manager_contract::RolloutReport;
use configdb_schema::Document;
use configdb_schema::document::{AgentConfig, EdgeClusterRollout, EdgeDeployment};
use edge_sync_contract::DeploymentDevice;
use uuid::Uuid;

use super::ClusterManager;
use crate::reconcile::Wish;
use crate::rollout::Blocker;

impl ClusterManager {
    /// Takes over what ConfigDB says of a cluster's rollout; what cannot be read says nothing. Of what is no cluster nothing could ever settle, so it has no wave.
    pub(super) fn read_rollout(&mut self, uuid: Uuid) {
        let entry = self.replica.document::<EdgeClusterRollout>(uuid).unwrap_or_else(|error| {
            tracing::warn!(cluster_id = %uuid, error = %error, "EdgeClusterRollout cannot be read; the cluster is in the last wave");
            None
        });
        let EdgeClusterRollout { wave, pins } = entry.unwrap_or_default();
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        cluster.pins = pins;
        cluster.rendered = None;
        cluster.edge.all_stale = true;
        self.dirty.insert(uuid);
        self.dirty.extend(self.rollout.set_wave(uuid, wave));
    }

    /// Nothing of the cluster can settle.
    pub(super) fn holds_up_nobody(&mut self, uuid: Uuid) {
        self.rollout.wait(uuid, BTreeSet::new());
        let released = self.rollout.compared(uuid, BTreeSet::new());
        self.dirty.extend(released);
        if let Some(cluster) = self.clusters.get_mut(&uuid) {
            cluster.edge.rollout = RolloutReport::default();
        }
    }

    /// Holds what must wait for an earlier wave.
    ///
    /// What runs waits; what is new, and what was changed itself since it was sent, does not: somebody wants that on this cluster.
    pub(super) fn hold(
        &self,
        uuid: Uuid,
        wishes: &mut BTreeMap<Uuid, Wish>,
        reported: &BTreeMap<Uuid, DeploymentDevice>,
    ) -> Held {
        let mut held = Held::default();
        let (Some(deployments), Some(cluster)) = (self.deployments.get(&uuid), self.clusters.get(&uuid)) else {
            return held;
        };
        for (deployment, wish) in wishes {
            let Wish::Rendered(digest) = *wish else { continue };
            let device = reported.get(deployment);
            if device.is_some_and(|device| device.is_applied(digest) && device.ready == Some(true)) {
                continue;
            }
            let entry = deployments.get(deployment).and_then(|known| known.entry.as_ref().ok());
            let charts: BTreeSet<Uuid> = entry.into_iter().flat_map(|entry| entry.chart_templates().to_vec()).collect();
            let runs_other = device.is_some_and(|device| device.digest.is_some_and(|runs| runs != digest));
            let sent_at = device.map_or(0, |device| device.version);
            if runs_other
                && !cluster.edge.assigned.has(*deployment, digest)
                && self.changed_at(*deployment) <= sent_at
                && let Some(blocker) = self.rollout.blocker(uuid, &charts)
            {
                *wish = Wish::Held;
                held.report.waiting += 1;
                held.report.reason.get_or_insert_with(|| self.reason(blocker));
                held.waits_for.extend(&charts);
            }
            held.unsettled.extend(charts);
        }
        held
    }

    /// Revision at which somebody changed the deployment itself.
    fn changed_at(&self, deployment: Uuid) -> u64 {
        let revision = |slug| self.replica.entry(deployment, slug).map_or(0, |entry| entry.revision);
        revision(EdgeDeployment::slug()).max(revision(AgentConfig::slug()))
    }

    fn reason(&self, blocker: Blocker) -> String {
        let Blocker { wave, cluster } = blocker;
        let device = self.clusters.get(&cluster).and_then(|cluster| cluster.device());
        let name = device.map_or_else(|| cluster.to_string(), |device| device.name.clone());
        format!("waits for cluster {name} of wave {wave}, whose deployments of the same chart are not ready")
    }
}

/// What of a cluster waits, and what of it has not settled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Held {
    /// For the cluster's Device.
    pub report: RolloutReport,
    /// Chart templates that it waits for.
    pub waits_for: BTreeSet<Uuid>,
    /// Chart templates of deployments that have not settled.
    pub unsettled: BTreeSet<Uuid>,
}
