//! Edge monitor: knows which nodes of a cluster are alive and run the configuration that they should, raises alerts when not, and asks for rebirth and reload. With
//! `mode = "central"` it watches the monitors of all clusters in the same way.
//!
//! ```text
//!                     SparkplugNode, SealedSecret, ConfigMap (edge)
//!                                     |
//!                            adapters/kubernetes
//!                                     v
//! births, data, deaths  --->       state.rs       --->  births and data of <group>/Monitor
//! of the group (edge),        edge.rs | central.rs      NCMD Rebirth, NCMD Reload Edge Agent Config
//! of monitors and ConfigDB          watched_nodes.rs
//! (central)                    watch.rs: liveness.rs
//!                                        config_freshness.rs
//! ```
//!
//! 1. `edge.rs` (resources and births) or `central.rs` (ConfigDB and births) decides whom to watch, and where that node is.
//! 2. `liveness.rs` decides whether it is alive: births and deaths first, silence second. `config_freshness.rs` decides whether an edge agent must reload.
//! 3. `watched_nodes.rs` says what changed: the device of each node, with its alerts; whose birth the Host Application manages.
//!
//! Other files: `spec.rs` validates a resource, `reconcile.rs` compares resources with what is watched, `event.rs` lists all that comes in and goes out.
//!
//! A monitor stores nothing but its bdSeq. After a restart it asks every node for its birth and reads all resources again; secrets that exist then are taken to be those that
//! the agents have read. Nothing is concluded from what is absent before a list of resources, or the replica of ConfigDB, is complete.
#![warn(unreachable_pub)]

pub mod adapters;
pub mod config;
pub mod config_freshness;
pub mod event;
pub mod spec;
pub mod state;

mod central;
mod edge;
mod jitter;
mod liveness;
mod reconcile;
mod watch;
mod watched_nodes;

use anyhow::Context;
use service_runtime::exit;
use service_runtime::health::Health;
use service_runtime::service::{self, ServiceIo};
use service_runtime::sessions::{self, Sessions};
use service_runtime::shutdown::Shutdown;
use sparkplug::host::HostEvent;
use sparkplug_mqtt::Clock;
use tokio::sync::mpsc;

pub use config::Config;
pub use state::State;

use adapters::kubernetes;
use adapters::sparkplug::{host_config, node_config, own_descriptor};
use event::{Effect, Event};
use state::Scope;

/// Events of resources that wait for the loop. They come seldom; while the loop is busy the watches wait, and Kubernetes keeps what changed.
const INBOX_MAX: usize = 64;

/// Runs a monitor until `shutdown`; returns when its death is published.
///
/// # Errors
/// The configuration is not usable, or Kubernetes or the stored bdSeq cannot be read at the start.
pub async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    let clock = Clock::new();
    let settings = config
        .validate(clock.now().wall)
        .context("the configuration is not usable")
        .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let scope = settings.scope.clone();
    let mut state = State::new(settings);
    let (inbox_sender, inbox) = mpsc::channel(INBOX_MAX);
    let _watches = match scope {
        Scope::Edge { .. } => {
            let client = kubernetes_client::connect(config.kubernetes.url.as_deref()).await?;
            Some(kubernetes::watch(&client, &config.kubernetes.namespace, &inbox_sender, health.clone()))
        }
        Scope::Central { .. } => None,
    };
    let configs = (node_config(own_descriptor(&scope)?), host_config(&scope)?);
    let sessions = Sessions::start(configs, state.node_metrics(), &config.mqtt, &config.state_dir, clock)?;
    report(&health, "mqtt", Err("connecting"));
    report(&health, "mqtt_host", Err("connecting"));
    let mut io = Io { sessions, inbox, health };
    service::serve(&mut state, &mut io, clock, &shutdown).await?;
    drop(inbox_sender);
    io.sessions.stop().await;
    Ok(())
}

service_runtime::service_core!(State, Event, Effect);

/// Everything outside of the state.
struct Io {
    sessions: Sessions,
    /// Its sender lives as long as the loop, also at the control plane, where nothing sends.
    inbox: mpsc::Receiver<Event>,
    health: Health,
}

impl ServiceIo for Io {
    type Core = State;

    async fn recv(&mut self) -> anyhow::Result<Event> {
        Ok(tokio::select! {
            biased;
            event = self.sessions.node.recv() => {
                Event::Node(service::admitted(event.context("the task of the edge node ended")?)?)
            }
            event = self.sessions.host.recv() => Event::Host(event.context("the task of the host application ended")?),
            Some(event) = self.inbox.recv() => event,
        })
    }

    async fn execute(&mut self, effect: Effect) -> anyhow::Result<()> {
        match effect {
            Effect::Node(update) => sessions::update(&self.sessions.node, update).await,
            Effect::Host(request) => self.sessions.request(request).await.context("a session ended")?,
        }
        Ok(())
    }

    fn report(&mut self, event: &Event) {
        let health = &self.health;
        match event {
            Event::Node(event) => service::report_node(health, "mqtt", event),
            Event::Host(HostEvent::Online) => report(health, "mqtt_host", Ok("listening")),
            Event::Host(HostEvent::Offline { reason }) => report(health, "mqtt_host", Err(reason)),
            _ => {}
        }
    }

    fn publish(&mut self, state: &State) {
        let node = state.node();
        metrics::gauge!("edge_monitor_nodes").set(f64::from(node.nodes_total));
        metrics::gauge!("edge_monitor_nodes_online").set(f64::from(node.nodes_online));
        metrics::gauge!("edge_monitor_alerts_active").set(f64::from(node.alerts_active));
    }
}

fn report(health: &Health, component: &str, state: Result<&str, &str>) {
    let (Ok(reason) | Err(reason)) = state;
    health.component(component, state.is_ok(), reason);
}
