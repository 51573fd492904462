//! Runs the machines of `sparkplug` on a real MQTT server.
//!
//! [`spawn_edge_node`], [`spawn_host`] and [`spawn_listener`] start a task that owns one machine and its MQTT session, and return a handle: updates or requests go in, events
//! come out. The task reconnects for ever, with the waits that the machine decides on; it ends after a stop.
//!
//! | module | knows |
//! |---|---|
//! | `config`, `server_address`, `password`, `pem`, `tls` | the `[mqtt]` table and what is in it; PEM files; the TLS client |
//! | `machine` | what the machines have in common |
//! | `merger` | a host with a session on every server |
//! | `listener` | the smallest machine, for tools: every message as it is |
//! | `session`, `receipts` | one MQTT session; what of it has arrived for certain |
//! | `link` | MQTT 3.1.1 and 5; the only module that knows rumqttc |
//! | `journal` | the store of an Edge Node on disk |
//! | `backlog`, `events` | events that wait for the application; how it gets them |
//! | `driver` | the loop |
//! | `bd_seq`, `client_id`, `clock`, `speaker` | what its name says |
//!
//! # What a session guarantees
//! - A session is one CONNECT with its own will and its own queues. Nothing that was meant for an earlier session is ever sent.
//! - The driver reports "subscribed" to the machine only after SUBACK, with every filter granted. A refused filter ends the session with a reason that names it.
//! - Any error ends the session; the machine then decides when to connect again. Reasons are written for operators and arrive as `Offline` events.
//! - A stop is complete when NDEATH or STATE offline is out (acknowledged, if it has QoS 1), DISCONNECT is out, and the server has closed the socket; or after 2 seconds.
//! - The bdSeq for the next session is on disk before the CONNECT of this one goes out.
//!
//! # Back-pressure
//! An application that does not take its events fast enough never blocks the task. Events wait, up to `mqtt.waiting_events_max` and `mqtt.waiting_bytes_max`; then the socket
//! is not read for at most a quarter of the keep-alive time, so that TCP slows the server down. If that does not help, messages are taken until twice the limit waits, and
//! then dropped; the nodes they came from are noted. When the application has caught up, the Host Application turns those nodes stale and asks them for rebirth, so the application ends with
//! a complete replica again. The link, its pings and its will stay in order all the time.
//!
//! Towards the server: `update` and `request` wait while more than 4 MiB or 2,000 messages are on their way to the socket; births that are due wait as well.
#![warn(missing_docs, unreachable_pub)]

mod backlog;
mod bd_seq;
mod client_id;
mod clock;
mod config;
mod config_error;
mod driver;
mod events;
mod handle;
mod journal;
mod link;
mod listener;
mod machine;
mod merger;
mod password;
mod pem;
mod plain_name;
mod receipts;
mod server_address;
mod session;
mod snapshot;
mod speaker;
mod tls;

use sparkplug::Metric;
use sparkplug::edge_node::{EdgeNode, EdgeNodeConfig, StoreConfig, UpdateError, WhenFull};
use sparkplug::host::{HostApplication, HostConfig, HostEvent};
use sparkplug::session::QoS;
use tokio::sync::mpsc;
use tracing::Instrument;

pub use bd_seq::{BdSeqError, BdSeqStore};
pub use clock::Clock;
pub use config::{MqttConfig, MqttConfigKey, Protocol, Store, StoreWhenFull};
pub use config_error::MqttConfigError;
pub use events::Events;
pub use handle::{
    EdgeNodeHandle, HostHandle, HostRequests, ListenerHandle, NodeUpdates, PendingUpdate, Stopped, TryError,
    WeakNodeUpdates,
};
pub use journal::StoreError;
pub use listener::ListenerEvent;
pub use password::Password;
pub use pem::PemError;
pub use snapshot::{DeviceSnapshot, NodeSnapshot};
pub use speaker::{Displaced, unless_displaced};

use driver::{Driver, DriverHandles, Submission};
use handle::EventSender;
use journal::Journal;
use listener::Listener;
use machine::Machine;
use session::Connector;

/// Why a machine was not started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The `[mqtt]` table.
    #[error(transparent)]
    Config(#[from] MqttConfigError),
    /// The stored bdSeq.
    #[error(transparent)]
    BdSeq(#[from] BdSeqError),
    /// The store on disk.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The first metrics.
    #[error("the edge node refuses its first metrics")]
    Metrics(#[from] UpdateError),
}

/// Starts an Edge Node that is born with `metrics` (and `bdSeq` and `Node Control/Rebirth`) as soon as it can.
///
/// The number of servers, the store, the dialect (if set there), whether births describe metrics, and the bdSeq in `config` are taken from `mqtt` and `bd_seq`.
/// A seed of 0 is replaced by a random one, and an empty instance or host of its speaker by a random UUID and the name of this machine. To be called inside a tokio runtime. Reads the
/// bdSeq and the certificate files, so it may block on the disk for a moment.
///
/// # Errors
/// [`SpawnError`]; nothing runs then.
pub fn spawn_edge_node(
    config: EdgeNodeConfig,
    metrics: Vec<Metric>,
    mqtt: &MqttConfig,
    bd_seq: BdSeqStore,
    clock: Clock,
) -> Result<EdgeNodeHandle, SpawnError> {
    let node = config.descriptor.clone();
    // Of two processes without a speaker none would end: there the server's choice is as good as another.
    let yields = config.speaker.is_some();
    let client_id = client_id::of_edge_node(&mqtt.client_id_prefix, &node, &bd_seq, yields)?;
    let connector = Connector::new(mqtt.clone(), client_id)?;
    let config = EdgeNodeConfig {
        bd_seq: bd_seq.load()?,
        servers: connector.servers(),
        seed: seed(config.seed),
        store: store_of(mqtt),
        dialect: mqtt.dialect.unwrap_or(config.dialect),
        descriptions: mqtt.descriptions && config.descriptions,
        speaker: config.speaker.map(|speaker| speaker::named(speaker, mqtt.take_over)),
        ..config
    };
    let mut machine = EdgeNode::new(config, metrics, clock.now())?;
    let journal = match &mqtt.store_directory {
        Some(directory) if mqtt.store == Store::Disk => {
            let (journal, records) = Journal::open(&Journal::directory_of(directory, &node))?;
            machine.restore(records);
            Some(journal)
        }
        _ => None,
    };
    let span = tracing::info_span!("edge_node", group_id = %node.group, edge_node_id = %node.edge_node);
    let (updates, event_sender) = spawn(machine, connector, (bd_seq, journal), clock, span);
    Ok(EdgeNodeHandle { updates, event_sender })
}

/// Starts a Host Application; without a host id in `config`, a listener.
///
/// With `mqtt.all_servers` it has a session on each of the servers, with a STATE and a will of its own, and one replica of all. The limits in `config` and `mqtt` then count for
/// each session. The number of servers in `config` is taken from `mqtt`, and the dialect if it is set there; a seed of 0 is replaced by a random one. To be called inside a tokio
/// runtime. Reads the certificate files, so it may block on the disk for a moment.
///
/// # Errors
/// [`MqttConfigError`]; nothing runs then.
pub fn spawn_host(config: HostConfig, mqtt: &MqttConfig, clock: Clock) -> Result<HostHandle, MqttConfigError> {
    let client_id = client_id::of_host(&mqtt.client_id_prefix, config.host_id.as_ref());
    let connector = Connector::new(mqtt.clone(), client_id)?;
    let config = HostConfig { dialect: mqtt.dialect.unwrap_or(config.dialect), ..config };
    if !mqtt.all_servers || connector.servers() == 1 {
        let (requests, event_sender) = spawn_session(config, connector, clock);
        return Ok(HostHandle { requests, event_sender });
    }
    let session = |server: usize| {
        // Sessions must not wait the same random times either.
        let config = HostConfig { seed: seed(config.seed).wrapping_add(server as u64), ..config.clone() };
        spawn_session(config, connector.only(server), clock)
    };
    let (requests, event_sender) = merger::spawn((0..connector.servers()).map(session).collect());
    Ok(HostHandle { requests, event_sender })
}

fn spawn_session(
    config: HostConfig,
    connector: Connector,
    clock: Clock,
) -> (mpsc::Sender<Submission<HostApplication>>, EventSender<HostEvent>) {
    let span = match &config.host_id {
        Some(host_id) => tracing::info_span!("host_application", host_id = %host_id),
        None => tracing::info_span!("host_application"),
    };
    let config = HostConfig { servers: connector.servers(), seed: seed(config.seed), ..config };
    let machine = HostApplication::new(config, clock.now());
    spawn(machine, connector, (BdSeqStore::Memory, None), clock, span)
}

/// Starts a listener of `filters`: it receives every message as it is, and has neither replica nor STATE nor will.
///
/// To be called inside a tokio runtime. Reads the certificate files, so it may block on the disk for a moment.
///
/// # Errors
/// [`MqttConfigError`]; nothing runs then.
pub fn spawn_listener(
    filters: Vec<(String, QoS)>,
    mqtt: &MqttConfig,
    clock: Clock,
) -> Result<ListenerHandle, MqttConfigError> {
    let connector = Connector::new(mqtt.clone(), client_id::of_host(&mqtt.client_id_prefix, None))?;
    let machine = Listener::new(filters, connector.servers());
    let span = tracing::info_span!("listener");
    let (requests, event_sender) = spawn(machine, connector, (BdSeqStore::Memory, None), clock, span);
    Ok(ListenerHandle { requests, event_sender })
}

fn spawn<M: Machine>(
    machine: M,
    connector: Connector,
    (bd_seq, journal): (BdSeqStore, Option<Journal>),
    clock: Clock,
    span: tracing::Span,
) -> (mpsc::Sender<Submission<M>>, EventSender<M::Event>) {
    let (driver, DriverHandles { submissions, events, stop }) = Driver::new(machine, clock, connector, bd_seq, journal);
    (submissions, EventSender::new(events, stop, tokio::spawn(driver.run().instrument(span))))
}

fn store_of(mqtt: &MqttConfig) -> Option<StoreConfig> {
    let when_full = match mqtt.store_when_full {
        StoreWhenFull::Oldest => WhenFull::DropOldest,
        StoreWhenFull::Newest => WhenFull::DropNewest,
    };
    let mirrored = mqtt.store == Store::Disk;
    let bytes_max = mqtt.store_bytes_max;
    (mqtt.store != Store::Off).then(|| StoreConfig { bytes_max, when_full, mirrored, ..StoreConfig::default() })
}

/// Machines of a fleet must not wait the same random times.
fn seed(wanted: u64) -> u64 {
    if wanted == 0 { client_id::random() } else { wanted }
}

/// The page of the package, so that its code is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Page;
