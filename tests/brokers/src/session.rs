//! Sparkplug sessions of the library on a server: births, data in order, commands, rebirths, deaths by will, retained STATE, large births.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use configdb_schema::address::{MONITOR_NODE, host_id};
use e2e::wait::PATIENCE;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::session::QoS;
use sparkplug::state::HostState;
use sparkplug::{DeviceId, EdgeNodeDescriptor, HostId, Metric, Value};
use sparkplug_mqtt::{
    BdSeqStore, Clock, EdgeNodeHandle, HostHandle, ListenerEvent, MqttConfig, Protocol, spawn_edge_node, spawn_host,
    spawn_listener,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::Step;

/// Data messages that are to arrive in their order.
const MESSAGES: u32 = 300;

/// Metrics of a large birth, each with a text of [`TEXT_BYTES`].
const METRICS: usize = 1_000;
const TEXT_BYTES: usize = 200;

/// The last step.
pub const STATE_IS_RETAINED: &str = "STATE is retained, and says offline after the host has gone";

fn mqtt(address: SocketAddr, protocol: Protocol) -> MqttConfig {
    MqttConfig { servers: vec![format!("mqtt://{address}")], protocol, ..MqttConfig::default() }
}

// long: one story, in which each step needs what the one before it has made
/// Goes through all of it.
///
/// # Panics
/// Something is not as Sparkplug says.
pub async fn story(server: SocketAddr, protocol: Protocol, step: &Step) {
    let (press, device) =
        (EdgeNodeDescriptor::parse("ACME-Plant", "Press").expect("ids"), DeviceId::new("Oven").expect("id"));
    step.begin("a host connects and publishes STATE");
    let host_id = HostId::new(host_id(press.group.as_str(), MONITOR_NODE)).expect("id");
    let config = HostConfig::new(Some(host_id.clone()));
    let mut host = spawn_host(config, &mqtt(server, protocol), Clock::new()).expect("a configuration");
    received(&mut host, |event| matches!(event, HostEvent::Online)).await;

    step.begin("births of a node and its device arrive");
    let cable = Cable::to(server).await;
    let mut node = born(&press, cable.address, protocol, vec![Metric::new("Mode", "auto")]).await;
    let birth = NodeUpdate::DeviceBirth { device: device.clone(), metrics: vec![Metric::new("Count", 0_u32)] };
    node.update(birth).await.expect("a birth");
    received(&mut host, |event| matches!(event, HostEvent::NodeBirth { .. })).await;
    received(&mut host, |event| matches!(event, HostEvent::DeviceBirth { device: born, .. } if *born == device)).await;

    step.begin("data arrive in their order, none is missing");
    for count in 1..=MESSAGES {
        let metrics = vec![Metric::new("Count", count)];
        node.update(NodeUpdate::Set { device: Some(device.clone()), metrics }).await.expect("data");
        // One message each: what is set while nothing can be sent is joined.
        let counted = |event: &HostEvent| match event {
            HostEvent::NodeStale { reason, .. } => panic!("the replica is stale: {reason}"),
            HostEvent::DeviceData { metrics, .. } => metrics[0].value == Some(Value::UInt32(count)),
            _ => false,
        };
        received(&mut host, counted).await;
    }

    step.begin("a command reaches the device");
    let metrics = vec![Metric::new("Count", 7_u32)];
    let command = HostRequest::Command { node: press.clone(), device: Some(device.clone()), metrics };
    host.requests().request(command).await.expect("the host runs");
    let obeyed = async {
        loop {
            if let Some(NodeEvent::Command { device: to, metrics, .. }) = node.recv().await {
                assert_eq!((to.as_ref(), &metrics[0].value), (Some(&device), &Some(Value::UInt32(7))));
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, obeyed).await.expect("the command arrives");

    step.begin("a rebirth is asked for and comes");
    host.requests().request(HostRequest::Rebirth { node: press.clone() }).await.expect("the host runs");
    received(&mut host, |event| matches!(event, HostEvent::NodeBirth { .. })).await;

    step.begin("the server publishes the will of a node whose connection breaks, and the node comes back");
    cable.cut();
    received(&mut host, |event| matches!(event, HostEvent::NodeDeath { .. })).await;
    received(&mut host, |event| matches!(event, HostEvent::NodeBirth { .. })).await;
    received(&mut host, |event| matches!(event, HostEvent::DeviceBirth { .. })).await;
    node.stop().await;
    received(&mut host, |event| matches!(event, HostEvent::NodeDeath { .. })).await;

    step.begin("a birth of 228 kB arrives");
    let large = EdgeNodeDescriptor::parse("ACME-Plant", "Large").expect("ids");
    let text = "x".repeat(TEXT_BYTES);
    let metrics = (0..METRICS).map(|number| Metric::new(format!("Folder/{number}"), text.as_str())).collect();
    let node = born(&large, server, protocol, metrics).await;
    let whole = |event: &HostEvent| matches!(event, HostEvent::NodeBirth { metrics, .. } if metrics.len() >= METRICS);
    received(&mut host, whole).await;
    node.stop().await;

    step.begin(STATE_IS_RETAINED);
    host.stop().await;
    let topic = format!("spBv1.0/STATE/{}", host_id.as_str());
    let filters = vec![(topic.clone(), QoS::AtLeastOnce)];
    let mut listener = spawn_listener(filters, &mqtt(server, protocol), Clock::new()).expect("a configuration");
    let state = async {
        loop {
            if let Some(ListenerEvent::Message { topic: of, payload, retain }) = listener.recv().await {
                assert_eq!((of, retain), (topic.clone(), true));
                return HostState::decode(&payload).expect("a STATE message");
            }
        }
    };
    let state = tokio::time::timeout(PATIENCE, state).await.expect("STATE is retained");
    assert!(!state.online, "the host has said that it leaves");
    listener.stop().await;
}

async fn born(
    node: &EdgeNodeDescriptor,
    server: SocketAddr,
    protocol: Protocol,
    metrics: Vec<Metric>,
) -> EdgeNodeHandle {
    let config = EdgeNodeConfig::new(node.clone());
    let mqtt = mqtt(server, protocol);
    let mut handle =
        spawn_edge_node(config, metrics, &mqtt, BdSeqStore::Memory, Clock::new()).expect("a configuration");
    let births = async { while !matches!(handle.recv().await, Some(NodeEvent::Born { .. })) {} };
    tokio::time::timeout(PATIENCE, births).await.expect("the node is born");
    handle
}

/// Waits for an event of the host.
async fn received(host: &mut HostHandle, mut wanted: impl FnMut(&HostEvent) -> bool) {
    let found = async {
        loop {
            match host.recv().await {
                Some(event) if wanted(&event) => return,
                Some(_) => {}
                None => panic!("the host has stopped"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("the host emits the event");
}

/// A way to a server that can be cut, so that a connection ends without a word.
struct Cable {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
    _accepting: AbortOnDrop,
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Cable {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let connections = Arc::<Mutex<Vec<JoinHandle<()>>>>::default();
        let all = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let carry = tokio::spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(server).await {
                        // Either side may end it at any time.
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    }
                });
                all.lock().unwrap_or_else(PoisonError::into_inner).push(carry);
            }
        });
        Self { address, connections, _accepting: AbortOnDrop(accepting) }
    }

    /// Ends every connection; new ones may be opened.
    fn cut(&self) {
        let connections = std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner));
        connections.iter().for_each(JoinHandle::abort);
    }
}
