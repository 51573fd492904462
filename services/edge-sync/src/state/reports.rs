//! What has been said on Sparkplug, and what of it changed.
//!
//! Devices are published before the counters of the node, so a subscriber that sees a counter has seen what it counts.

use std::collections::{BTreeMap, BTreeSet};

use edge_sync_contract::names::{
    DESIRED_DIGEST, DESIRED_HELD, DESIRED_ORIGIN, DESIRED_REASON, DESIRED_VERSION, SOURCE_CHARTS, SOURCE_COMMIT,
    SOURCE_REASON, SOURCE_VERSION, deployment,
};
use edge_sync_contract::{DeploymentDevice, HostDevice, SyncDevice, SyncNode};
use sparkplug::edge_node::NodeUpdate;
use sparkplug::{DeviceId, Metric, Properties, TypedMetrics};
use uuid::Uuid;

#[derive(Debug, Default)]
pub struct Reports {
    node: Option<SyncNode>,
    hosts: BTreeMap<String, HostDevice>,
    deployments: BTreeMap<Uuid, DeploymentDevice>,
}

impl Reports {
    /// The node as it was published last.
    pub fn node(&self) -> Option<&SyncNode> {
        self.node.as_ref()
    }

    /// The deployment as it was published last.
    pub fn deployment(&self, uuid: Uuid) -> Option<&DeploymentDevice> {
        self.deployments.get(&uuid)
    }

    /// The hosts are these.
    pub fn set_hosts(&mut self, hosts: BTreeMap<String, HostDevice>) -> Vec<NodeUpdate> {
        let mut updates = Vec::new();
        for name in self.hosts.keys().filter(|name| !hosts.contains_key(*name)) {
            if let Ok(device) = SyncDevice::Host(name.clone()).id() {
                updates.push(NodeUpdate::DeviceDeath { device });
            }
        }
        for (name, host) in &hosts {
            if self.hosts.get(name) != Some(host) {
                match host.to_update() {
                    Ok(update) => updates.push(update),
                    Err(error) => tracing::warn!(host = name, %error, "host cannot be reported"),
                }
            }
        }
        // A host without a device is not counted either.
        self.hosts = hosts.into_iter().filter(|(_, host)| host.to_update().is_ok()).collect();
        updates
    }

    /// The deployment is this, in its state since `now` (UTC ms) if that is another one; None: it is gone.
    pub fn set_deployment(&mut self, uuid: Uuid, device: Option<DeploymentDevice>, now: u64) -> Option<NodeUpdate> {
        let Some(mut device) = device else {
            let known = self.deployments.remove(&uuid);
            known.as_ref()?;
            tracing::info!(deployment = %uuid, "deployment is gone");
            return Some(NodeUpdate::DeviceDeath { device: SyncDevice::deployment_id(uuid) });
        };
        let known = self.deployments.get(&uuid);
        device.since = known.filter(|known| known.state == device.state).map_or(now, |known| known.since);
        if known == Some(&device) {
            return None;
        }
        if known.is_none_or(|known| known.state != device.state || known.refused_digest != device.refused_digest) {
            let DeploymentDevice { state, reason, version, .. } = &device;
            tracing::info!(deployment = %uuid, %state, reason, version, "deployment reported");
        }
        let update = device.to_update(uuid);
        self.deployments.insert(uuid, device);
        Some(update)
    }

    /// The node is this, with the counters of what has been published.
    pub fn set_node(&mut self, mut node: SyncNode) -> Option<NodeUpdate> {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        node.hosts_total = count(self.hosts.len());
        node.hosts_ready = count(self.hosts.values().filter(|host| host.ready).count());
        node.deployments_total = count(self.deployments.len());
        node.deployments_ready = count(self.deployments.values().filter(|device| device.ready == Some(true)).count());
        if self.node.as_ref() == Some(&node) {
            return None;
        }
        let metrics = self.node.as_ref().map_or_else(|| node.to_metrics(), |known| node.changes_since(known));
        self.node = Some(node);
        Some(NodeUpdate::Set { device: None, metrics })
    }

    /// Says again what answers an index.
    pub fn repeat_index(&self, now: u64) -> Option<NodeUpdate> {
        let metrics = self.node.as_ref()?.to_metrics();
        Some(repeat(
            None,
            metrics,
            &[DESIRED_VERSION, DESIRED_DIGEST, DESIRED_ORIGIN, DESIRED_HELD, DESIRED_REASON],
            now,
        ))
    }

    /// Says again what answers new commits.
    pub fn repeat_source(&self, now: u64) -> Option<NodeUpdate> {
        let metrics = self.node.as_ref()?.to_metrics();
        Some(repeat(None, metrics, &[SOURCE_VERSION, SOURCE_COMMIT, SOURCE_CHARTS, SOURCE_REASON], now))
    }

    /// Says again what answers the manifests of a deployment.
    pub fn repeat_deployment(&self, uuid: Uuid, now: u64) -> Option<NodeUpdate> {
        let metrics = self.deployments.get(&uuid)?.to_metrics();
        let names = [deployment::STATE, deployment::VERSION, deployment::DIGEST, deployment::REFUSED_DIGEST];
        Some(repeat(Some(SyncDevice::deployment_id(uuid)), metrics, &names, now))
    }
}

/// The values that stand, as historical ones: values that did not change would otherwise not be sent. Who missed the data before sees the
/// gap in `seq` and asks for a rebirth; who did not, learns nothing else. Births alone describe metrics.
fn repeat(device: Option<DeviceId>, metrics: Vec<Metric>, names: &[&str], now: u64) -> NodeUpdate {
    let names: BTreeSet<_> = names.iter().copied().collect();
    let named = metrics.into_iter().filter(|metric| names.contains(&*metric.name));
    NodeUpdate::Historical {
        device,
        metrics: named.map(|metric| metric.with_properties(Properties::new()).at(now).historical()).collect(),
    }
}
