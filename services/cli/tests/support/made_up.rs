//! A fleet that someone made up: Edge Nodes on a Mosquitto say what a bench says, with valid Sparkplug and whatever texts the test wants.

use std::collections::BTreeMap;

use fleet_view::bench::Bench;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::host::HostEvent;
use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, spawn_edge_node};
use tokio::runtime::Runtime;

use super::factory::PATIENCE;
use super::mosquitto::Mosquitto;
use super::program::User;

/// See the module.
pub struct MadeUp {
    pub server: Mosquitto,
    nodes: BTreeMap<EdgeNodeDescriptor, EdgeNodeHandle>,
    runtime: Runtime,
}

/// What a node and its Devices say.
#[derive(Default)]
struct Node {
    own: Vec<Metric>,
    devices: BTreeMap<DeviceId, Vec<Metric>>,
}

impl MadeUp {
    /// The nodes of a bench as they were born last.
    pub fn of(bench: &Bench) -> Self {
        let mut said: BTreeMap<EdgeNodeDescriptor, Node> = BTreeMap::new();
        for event in &bench.events {
            match event {
                HostEvent::NodeBirth { node, metrics, .. } => {
                    said.insert(node.clone(), Node { own: metrics.to_vec(), devices: BTreeMap::new() });
                }
                HostEvent::DeviceBirth { node, device, metrics, .. } => {
                    said.get_mut(node).unwrap().devices.insert(device.clone(), metrics.to_vec());
                }
                other => panic!("a birth, and not {other:?}"),
            }
        }
        let (server, runtime) = (Mosquitto::start(), Runtime::new().unwrap());
        let nodes = runtime.block_on(async {
            let mut nodes = BTreeMap::new();
            for (node, said) in said {
                nodes.insert(node.clone(), born(&server, node, said).await);
            }
            nodes
        });
        Self { server, nodes, runtime }
    }

    /// A node, such as `ACME-Central/Cluster-Manager`, says something else.
    pub fn says(&self, node: &str, update: NodeUpdate) {
        let (group, node) = node.split_once('/').unwrap();
        let node = self.nodes.get(&EdgeNodeDescriptor::parse(group, node).unwrap()).unwrap();
        self.runtime.block_on(node.update(update)).unwrap();
    }

    /// A user of it.
    pub fn user(&self) -> User {
        User::of(&self.server.url())
    }
}

async fn born(server: &Mosquitto, node: EdgeNodeDescriptor, said: Node) -> EdgeNodeHandle {
    let mut handle =
        spawn_edge_node(EdgeNodeConfig::new(node), said.own, &server.config(), BdSeqStore::Memory, Clock::new())
            .unwrap();
    let births = async { while !matches!(handle.recv().await, Some(NodeEvent::Born { .. })) {} };
    tokio::time::timeout(PATIENCE, births).await.expect("the node is born");
    for (device, metrics) in said.devices {
        handle.update(NodeUpdate::DeviceBirth { device, metrics }).await.unwrap();
    }
    handle
}
