//! What services report of themselves on Sparkplug.

use std::collections::BTreeMap;

use cluster_manager_contract::{ClusterDevice, SetupState};
use sparkplug::TypedMetrics;
use sparkplug::edge_node::EdgeNode;
use uuid::Uuid;

use crate::model::endpoint::{Machine, Side};
use crate::model::ids::ClusterId;
use crate::model::role::Role;
use crate::world::World;

pub(crate) fn node_of<'a>(world: &'a World, role: &Role) -> Option<&'a EdgeNode> {
    let process = &world.processes[&world.process_of(role)?];
    match &process.endpoints.get(&Side::Node)?.machine {
        Machine::Node(node) => Some(node),
        Machine::Host(_) => None,
    }
}

pub(crate) fn cluster_devices(world: &World) -> BTreeMap<Uuid, ClusterDevice> {
    let Some(node) = node_of(world, &Role::ClusterManager) else { return BTreeMap::new() };
    let devices = node.devices().filter_map(|id| {
        let device = ClusterDevice::from_metrics(&node.metrics(Some(id))?).ok()?;
        Some((device.uuid, device))
    });
    devices.collect()
}

/// The cluster manager says that a cluster is ready.
pub(crate) fn is_set_up(world: &World, site: ClusterId) -> bool {
    let device = world.clusters.get(&site).and_then(|cluster| cluster_devices(world).remove(&cluster.uuid));
    device.is_some_and(|device| device.setup.state == SetupState::Ready)
}
