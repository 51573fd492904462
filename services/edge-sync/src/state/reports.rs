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
    deployments: BTreeMap<Uuid, Reported>,
}

/// A deployment as it was reported last, and the Device that it has.
#[derive(Debug)]
struct Reported {
    id: DeviceId,
    device: DeploymentDevice,
}

impl Reports {
    /// The node as it was published last.
    pub fn node(&self) -> Option<&SyncNode> {
        self.node.as_ref()
    }

    /// The deployment as it was published last.
    pub fn deployment(&self, uuid: Uuid) -> Option<&DeploymentDevice> {
        self.deployments.get(&uuid).map(|reported| &reported.device)
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

    /// The deployment is this, in its state since `now` (UTC ms) if that is another one; None: it is gone. Its Device is named after it.
    pub fn set_deployment(&mut self, uuid: Uuid, device: Option<DeploymentDevice>, now: u64) -> Vec<NodeUpdate> {
        let Some(mut device) = device else {
            let Some(known) = self.deployments.remove(&uuid) else { return Vec::new() };
            tracing::info!(deployment = %uuid, "deployment is gone");
            let mut updates = vec![NodeUpdate::DeviceDeath { device: known.id.clone() }];
            updates.extend(self.give_id(known.id));
            return updates;
        };
        device.uuid = uuid;
        let known = self.deployment(uuid);
        device.since = known.filter(|known| known.state == device.state).map_or(now, |known| known.since);
        if known == Some(&device) {
            return Vec::new();
        }
        if known.is_none_or(|known| known.state != device.state || known.refused_digest != device.refused_digest) {
            let DeploymentDevice { state, reason, version, .. } = &device;
            tracing::info!(deployment = %uuid, %state, reason, version, "deployment reported");
        }
        let wanted = SyncDevice::deployment_id(uuid, &device.name);
        // Two have one name for a while when one is being removed and the other is new.
        let is_taken = self.deployments.iter().any(|(other, reported)| *other != uuid && reported.id == wanted);
        let id = if is_taken { SyncDevice::unnamed_deployment(uuid) } else { wanted };
        let birth = device.to_update(id.clone());
        let before = self.deployments.insert(uuid, Reported { id: id.clone(), device });
        let Some(before) = before.map(|before| before.id).filter(|before| *before != id) else { return vec![birth] };
        let mut updates = vec![NodeUpdate::DeviceDeath { device: before.clone() }, birth];
        updates.extend(self.give_id(before));
        updates
    }

    /// The Device with that id is gone: a deployment that had to do without it, because its name is the same, gets it.
    fn give_id(&mut self, id: DeviceId) -> Vec<NodeUpdate> {
        let wants = |(uuid, reported): &(&Uuid, &mut Reported)| {
            reported.id != id && SyncDevice::deployment_id(**uuid, &reported.device.name) == id
        };
        let Some((_, reported)) = self.deployments.iter_mut().find(wants) else { return Vec::new() };
        let birth = reported.device.to_update(id.clone());
        vec![NodeUpdate::DeviceDeath { device: std::mem::replace(&mut reported.id, id) }, birth]
    }

    /// The node is this, with the counters of what has been published.
    pub fn set_node(&mut self, mut node: SyncNode) -> Option<NodeUpdate> {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        node.hosts_total = count(self.hosts.len());
        node.hosts_ready = count(self.hosts.values().filter(|host| host.ready).count());
        node.deployments_total = count(self.deployments.len());
        node.deployments_ready =
            count(self.deployments.values().filter(|reported| reported.device.ready == Some(true)).count());
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
        let reported = self.deployments.get(&uuid)?;
        let metrics = reported.device.to_metrics();
        let names = [deployment::STATE, deployment::VERSION, deployment::DIGEST, deployment::REFUSED_DIGEST];
        Some(repeat(Some(reported.id.clone()), metrics, &names, now))
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
