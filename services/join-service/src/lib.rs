//! The join service: lets hosts into an edge cluster that have proven with their TPM what they are, and gives each what it needs, sealed to it, once.
//!
//! ```text
//!  quarantine group ORG-<cluster>-Join                                                 Kubernetes API
//!  hello, evidence,    ──> Host Application ──> state.rs ──> claim (create), lease, host ──> ConfigMaps join-*, Leases
//!  progress, acknowledgement                       │  ^          token                   ──> Secret bootstrap-token-*
//!  challenge, refusal, <── NCMD <──────────────────┤  └── answers, watches               <──
//!  ticket (only when it is stored)                 │
//!  Edge Node ORG-<cluster>/Join  <── report ───────┘   NCMD Desired/Policy ──> state/policy.rs
//! ```
//!
//! 1. *Hello* (`state/exchange.rs`): within the limits (`limits.rs`) a challenge is made and forgotten; nothing is remembered of a host that has proven nothing.
//! 2. *Evidence*: an answer that exists is sent again, byte by byte. Otherwise the protocol and the policy judge it (`join-protocol`, `join-attestation`), then `identity.rs` says who is
//!    who. A refusal is sealed and shown on the host's Device.
//! 3. *Claim*: one transaction creates the record of the attempt, takes the lease of the control plane, binds disk and name, writes the host's record, and ends an earlier attempt.
//!    Nothing has left the service so far.
//! 4. *Ticket* (`issue.rs`): keys are derived, certificates signed, the ticket sealed. A second transaction makes the token valid and stores the ticket; only then it is sent.
//! 5. *Acknowledgement and progress* (`state/members.rs`): the second quote binds the host; a member, or a host that failed, ends the attempt, which revokes the token.
//! 6. *Time* (`reconcile.rs`): what must end is compared with what there is. A token is never without a record that names it, so none is left behind, whatever was killed when.
//!
//! Replicas share keys and the store; the one that holds the lease `join-leader` speaks (`state/leadership.rs`), all others wait. What makes an answer the only one is not the lease but
//! compare-and-swap, see `docs/decisions/0010-join-service-replicas.md`. `document.rs` says what is stored, `event.rs` all that comes in and goes out, package `join-trust` where keys come from.
//!
//! While the control plane is away the store has the last policy, and hosts keep joining. While the Kubernetes API is away no host gets a ticket, and `Error` says so.
#![warn(unreachable_pub)]

pub mod adapters;
mod cache;
pub mod config;
pub mod document;
pub mod event;
mod identity;
mod issue;
mod limits;
mod reconcile;
pub mod settings;
pub mod state;

use std::time::Duration;

use anyhow::Context;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use join_protocol::secret::Secret;
use service_runtime::exit;
use service_runtime::health::Health;
use service_runtime::service::{self, ServiceIo};
use service_runtime::shutdown::Shutdown;
use sparkplug::edge_node::NodeEvent;
use sparkplug::host::HostEvent;
use sparkplug_mqtt::Clock;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;

pub use config::Config;
pub use settings::Settings;
pub use state::State;

use adapters::kubernetes::Kubernetes;
use adapters::sparkplug::Sessions;
use event::{Effect, Event};

/// Events of watches that wait for the loop. A list is one event; while the loop is busy the watches wait, and Kubernetes keeps what changed.
const INBOX_MAX: usize = 64;
/// How long the last writes may take when the service ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// Health component: the store, and whether this replica speaks.
const KUBERNETES: &str = "join_kubernetes";
/// Health component: the Edge Node.
const MQTT: &str = "join_mqtt";
/// Health component: the Host Application.
const HOSTS: &str = "join_hosts";

/// Runs a replica of the join service until `shutdown`; returns when its death is published.
///
/// # Errors
/// The configuration or a key file is not usable, no client for Kubernetes can be made of it, or the stored bdSeq cannot be read.
pub async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    let clock = Clock::new();
    let name = format!("join-{}", &Uuid::new_v4().simple().to_string()[..8]);
    let unusable =
        |error| exit::with_code(exit::CONFIG, anyhow::Error::new(error).context("the configuration is not usable"));
    let checked = config.validate(&name).map_err(unusable)?;
    let client = kubernetes_client::connect(config.kubernetes.url.as_deref()).await?;
    let trust =
        adapters::trust::read(&config.trust, &client, &config.kubernetes.namespace, checked.settings.cluster_uuid);
    let trust = trust.await.map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let kubernetes = Kubernetes::new(client, &config.kubernetes.namespace);
    let (inbox, watch_events) = mpsc::channel(INBOX_MAX);
    let _watches = kubernetes.watch(&inbox);
    let sessions = Sessions::new(checked.node, &checked.settings, config.mqtt, config.state_dir.to_path_buf(), clock);
    // Requests under way; the state bounds them: one for the leader's lease, one or two for each attempt that is worked on.
    let mut io = Io { kubernetes, sessions, watch_events, answers: JoinSet::new(), health };
    let mut state = State::new(checked.settings, trust, clock.now());
    state.on_event(Event::DeadlineReached, clock.now(), entropy()?);
    service::serve(&mut state, &mut io, clock, &shutdown).await?;
    // What was written but not answered is taken up by the next replica; this only spares it the wait.
    let _ = tokio::time::timeout(FAREWELL, async { while io.answers.join_next().await.is_some() {} }).await;
    Ok(())
}

fn entropy() -> anyhow::Result<Secret> {
    let mut bytes = zeroize::Zeroizing::new([0; 32]);
    SystemRandom::new().fill(bytes.as_mut()).ok().context("the operating system gives no random numbers")?;
    Ok(Secret::new(*bytes))
}

service_runtime::service_core!(State, Event, Effect, stop: Event::Stop, entropy: entropy);

/// Everything outside of the state.
struct Io {
    kubernetes: Kubernetes,
    sessions: Sessions,
    /// Of the watches.
    watch_events: mpsc::Receiver<Event>,
    answers: JoinSet<Event>,
    health: Health,
}

impl ServiceIo for Io {
    type Core = State;

    async fn recv(&mut self) -> anyhow::Result<Event> {
        Ok(tokio::select! {
            biased;
            Some(answer) = self.answers.join_next() => answer.context("a request to Kubernetes panicked")?,
            event = self.sessions.recv() => match event? {
                Event::Node(event) => Event::Node(service::admitted(event)?),
                event => event,
            },
            Some(event) = self.watch_events.recv() => event,
        })
    }

    async fn execute(&mut self, effect: Effect) -> anyhow::Result<()> {
        match effect {
            Effect::Ready { ready, reason } => self.health.component(KUBERNETES, ready, reason),
            Effect::BecomeLeader(metrics) => {
                self.health.component(MQTT, false, "connecting");
                self.health.component(HOSTS, false, "connecting");
                self.sessions.start(metrics)?;
            }
            Effect::StepDown => {
                self.sessions.stop().await;
                self.health.component(MQTT, true, "standing by");
                self.health.component(HOSTS, true, "standing by");
            }
            Effect::Node(update) => self.sessions.update(update).await,
            Effect::Host(request) => self.sessions.request(request).await?,
            Effect::Run(transaction) => {
                let kubernetes = self.kubernetes.clone();
                self.answers.spawn(async move { kubernetes.run(transaction).await });
            }
            Effect::Read(key) => {
                let kubernetes = self.kubernetes.clone();
                self.answers.spawn(async move { kubernetes.read(key).await });
            }
        }
        Ok(())
    }

    fn report(&mut self, event: &Event) {
        match event {
            Event::Host(HostEvent::Online) => self.health.component(HOSTS, true, "listening"),
            Event::Host(HostEvent::Offline { reason }) => self.health.component(HOSTS, false, reason.as_str()),
            Event::Node(NodeEvent::Rejected { topic, reason }) => tracing::debug!(topic, reason, "message dropped"),
            Event::Node(event) => service::report_node(&self.health, MQTT, event),
            _ => {}
        }
    }

    fn publish(&mut self, state: &State) {
        let Some(node) = state.node_report() else { return };
        metrics::gauge!("join_hosts").set(f64::from(node.hosts_total));
        metrics::gauge!("join_hosts_pending").set(f64::from(node.hosts_pending));
        metrics::gauge!("join_hosts_members").set(f64::from(node.hosts_members));
        metrics::gauge!("join_tokens_live").set(f64::from(node.tokens_live));
        metrics::counter!("join_tickets_issued_total").absolute(node.tickets_issued);
        metrics::counter!("join_tickets_resent_total").absolute(node.tickets_resent);
        metrics::counter!("join_tokens_revoked_total").absolute(node.tokens_revoked);
        metrics::gauge!("join_error").set(if node.error.is_some() { 1.0 } else { 0.0 });
    }
}
