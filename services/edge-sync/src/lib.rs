//! Edge sync: makes an edge cluster run the deployments that the control plane lists, and reports what the cluster is and what runs on it.
//!
//! ```text
//!  Kubernetes API                                                                    Sparkplug: <group>/Sync
//!  nodes, own objects ──> observe ──┐                                  ┌── NCMD Desired/Index
//!                                   v                                  v   DCMD Desired/Manifests
//!                               state.rs  <── validate.rs (kinds, namespace, names) ──┘
//!                                   │
//!                                   ├── reconcile.rs: (desired, observed) -> plan of one deployment
//!                                   v
//!  server-side apply, delete <── apply          report ──> DBIRTH, DDATA, DDEATH of host.* and deployment.*, NDATA
//!  ConfigMap edge-sync-desired <── save (before it is acted on)
//! ```
//!
//! 1. *Observe* (`adapters/kubernetes/observe.rs`): nodes, and the objects that carry Sync's label. The marks on those objects (version, digest, number) are the
//!    memory of what is applied; nothing else is stored but the accepted index.
//! 2. *Validate* (`validate.rs`): manifests are checked again at the edge, and Flux acts for them as an account of few rights (`confine.rs`). What is refused is refused for one deployment.
//! 3. *Plan* (`reconcile.rs`): what is missing or old is applied; only when it is in place, what is left over is deleted. What the accepted index does not list is removed.
//! 4. *Apply* (`adapters/kubernetes/apply.rs`): objects of one deployment one after another, several deployments at a time. Deletions name the very state of the object that
//!    was looked at.
//! 5. *Report* (`adapters/sparkplug.rs`): each host and each deployment is a Device. A deployment is ready when Flux says so of its release and what that has made runs (`workload.rs`). The node is born when everything has been listed, so its birth is true.
//!
//! What Flux makes of the cluster's own repository is reported as well (`flux.rs`), so that the control plane sees whether a change of it was taken.
//!
//! Beside all that the cluster's certificate is renewed: `renewal.rs` says when, `adapters/identity/renewal.rs` does it.
//!
//! `state.rs` and its parts in `state/` decide when; `event.rs` lists all that comes in and goes out; `object.rs`, `hosts.rs` and `record.rs` know how things are written in
//! Kubernetes.
//!
//! What is guaranteed, and where:
//! - Versions never fall (`state/index.rs`, `record.rs`).
//! - Nothing is deleted from ignorance: nothing happens before every list is complete (`state.rs`, `reconcile.rs`).
//! - A large removal waits visibly and then continues slowly (`state/prune.rs`).
//! - What fails is tried again with growing waits (`state/deployment.rs`).
//!
//! While the broker or the control plane is away, everything runs on. While the API server is away, what is known is kept and `Desired/Reason` says why. What others change in an object
//! is applied again, ever more seldom while they continue (`state/deployment.rs`). In kinds that count no generations, such as ConfigMap, only if they delete it or touch its marks.
#![warn(unreachable_pub)]

pub mod adapters;
pub mod config;
mod confine;
pub mod event;
pub mod flux;
pub mod hosts;
pub mod object;
mod reconcile;
pub mod record;
mod renewal;
pub mod state;
mod validate;
mod workload;

use anyhow::Context;
use service_runtime::exit;
use service_runtime::health::Health;
use service_runtime::service::{self, ServiceIo};
use service_runtime::shutdown::Shutdown;
use sparkplug::edge_node::NodeEvent;
use sparkplug_mqtt::Clock;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;

pub use config::Config;
pub use state::{Settings, State};

use adapters::identity::Secrets;
use adapters::kubernetes::{Kubernetes, SealingService};
use adapters::sparkplug::Session;
use event::{Effect, Event};

/// Events of watches that wait for the loop. A list is one event; while the loop is busy the watches wait, and Kubernetes keeps what changed.
const INBOX_MAX: usize = 64;

/// Health component: the link to the Kubernetes API.
const KUBERNETES: &str = "sync_kubernetes";
/// Health component: the Edge Node.
const MQTT: &str = "sync_mqtt";

/// Runs edge sync until `shutdown`; returns when its death is published.
///
/// # Errors
/// The configuration is not usable, no client for Kubernetes can be made of it, or the stored bdSeq cannot be read.
pub async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    let clock = Clock::new();
    let (seed, _) = Uuid::new_v4().as_u64_pair();
    let unusable =
        |error| exit::with_code(exit::CONFIG, anyhow::Error::new(error).context("the configuration is not usable"));
    let checked = config.validate(seed).map_err(unusable)?;
    let client = kubernetes_client::connect(config.kubernetes.url.as_deref()).await?;
    let sealing = SealingService { namespace: config.sealing.namespace, service: config.sealing.service };
    let mut renewals = JoinSet::new();
    if let Some(renewal) = checked.renewal {
        let secrets = Secrets::new(client.clone(), &checked.settings.namespace);
        renewals.spawn(renewal.run(secrets, clock, shutdown.child()));
    }
    let kubernetes = Kubernetes::new(client, &checked.settings.namespace, &checked.settings.kinds, sealing);
    let (inbox, watch_events) = mpsc::channel(INBOX_MAX);
    let _watches = kubernetes.watch(&inbox);
    let session = Session::new(checked.node, config.mqtt, config.state_dir.to_path_buf(), clock);
    // Requests under way; the state bounds them: one load or save, one certificate, one probe, some applies, one pass of deletions.
    let mut io = Io { kubernetes, session, watch_events, answers: JoinSet::new(), health };
    io.health.component(MQTT, false, "waits until the cluster has been listed");
    let mut state = State::new(checked.settings, clock.now());
    service::serve(&mut state, &mut io, clock, &shutdown).await?;
    while renewals.join_next().await.is_some() {}
    Ok(())
}

service_runtime::service_core!(State, Event, Effect, stop: Event::Stop);

/// Everything outside of the state.
struct Io {
    kubernetes: Kubernetes,
    session: Session,
    watch_events: mpsc::Receiver<Event>,
    answers: JoinSet<Event>,
    health: Health,
}

impl ServiceIo for Io {
    type Core = State;

    async fn recv(&mut self) -> anyhow::Result<Event> {
        Ok(tokio::select! {
            biased;
            event = self.session.recv() => Event::Node(service::admitted(event?)?),
            Some(answer) = self.answers.join_next() => answer.context("a request to Kubernetes panicked")?,
            Some(event) = self.watch_events.recv() => event,
        })
    }

    async fn execute(&mut self, effect: Effect) -> anyhow::Result<()> {
        match effect {
            Effect::Ready { ready, reason } => self.health.component(KUBERNETES, ready, reason),
            Effect::Birth(metrics) => {
                self.health.component(MQTT, false, "connecting");
                self.session.start(metrics)?;
            }
            Effect::Node(update) => self.session.update(update).await,
            other => {
                if let Some(answer) = self.kubernetes.execute(other) {
                    self.answers.spawn(answer);
                }
            }
        }
        Ok(())
    }

    fn report(&mut self, event: &Event) {
        match event {
            Event::Node(NodeEvent::Rejected { topic, reason }) => tracing::warn!(topic, reason, "message dropped"),
            Event::Node(event) => service::report_node(&self.health, MQTT, event),
            _ => {}
        }
    }

    fn publish(&mut self, state: &State) {
        let Some(node) = state.node_report() else { return };
        metrics::gauge!("edge_sync_hosts").set(f64::from(node.hosts_total));
        metrics::gauge!("edge_sync_hosts_ready").set(f64::from(node.hosts_ready));
        metrics::gauge!("edge_sync_deployments").set(f64::from(node.deployments_total));
        metrics::gauge!("edge_sync_deployments_ready").set(f64::from(node.deployments_ready));
        metrics::gauge!("edge_sync_desired_error").set(if node.desired_error.is_some() { 1.0 } else { 0.0 });
    }
}
