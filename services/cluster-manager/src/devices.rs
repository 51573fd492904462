//! The Devices of clusters, as they were published last.

use std::collections::BTreeMap;

use cluster_manager_contract::{ClusterDevice, SealedLogin, names};
use sparkplug::edge_node::NodeUpdate;
use sparkplug::{DeviceId, TypedMetrics};
use uuid::Uuid;

use crate::event::Effect;

/// The published Devices.
#[derive(Debug, Default)]
pub(crate) struct ClusterDevices {
    published: BTreeMap<Uuid, Published>,
    owners: BTreeMap<DeviceId, Uuid>,
}

#[derive(Debug)]
struct Published {
    id: DeviceId,
    device: ClusterDevice,
}

impl ClusterDevices {
    /// The Device of a cluster.
    pub(crate) fn get(&self, cluster: Uuid) -> Option<&ClusterDevice> {
        self.published.get(&cluster).map(|published| &published.device)
    }

    /// The cluster that a Device belongs to.
    pub(crate) fn cluster_of(&self, id: &DeviceId) -> Option<Uuid> {
        self.owners.get(id).copied()
    }

    /// The name of a cluster as it was published last, or its UUID.
    pub(crate) fn name_of(&self, cluster: Uuid) -> String {
        self.get(cluster).map_or_else(|| cluster.to_string(), |device| device.name.clone())
    }

    /// Publishes the Device of a cluster. None: it is published already.
    ///
    /// Its id stays as long as the Device is alive: the cluster's name, unless another cluster's Device has it.
    pub(crate) fn publish(&mut self, device: ClusterDevice) -> Option<Effect> {
        let cluster = device.uuid;
        if self.get(cluster) == Some(&device) {
            return None;
        }
        let metrics = device.to_metrics();
        let id = match self.published.get_mut(&cluster) {
            Some(published) => {
                published.device = device;
                published.id.clone()
            }
            None => {
                let named = names::device(cluster, &device.name);
                let id = if self.owners.contains_key(&named) { names::unnamed_device(cluster) } else { named };
                self.owners.insert(id.clone(), cluster);
                self.published.insert(cluster, Published { id: id.clone(), device });
                id
            }
        };
        Some(Effect::Node(NodeUpdate::DeviceBirth { device: id, metrics }))
    }

    /// Publishes the login of a cluster. None: it is published already, or the cluster has no Device yet.
    pub(crate) fn publish_login(&mut self, cluster: Uuid, login: Option<&SealedLogin>) -> Option<Effect> {
        let device = self.get(cluster)?;
        self.publish(ClusterDevice { login: login.cloned(), ..device.clone() })
    }

    /// The cluster is gone. None: it had no Device.
    pub(crate) fn remove(&mut self, cluster: Uuid) -> Option<Effect> {
        let Published { id, .. } = self.published.remove(&cluster)?;
        self.owners.remove(&id);
        Some(Effect::Node(NodeUpdate::DeviceDeath { device: id }))
    }
}
