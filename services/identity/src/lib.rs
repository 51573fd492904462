//! Identity: the fleet's certificate authority. It certifies clusters that enrol, renews and revokes their certificates, and speaks Sparkplug and nothing else.
//!
//! ```text
//!  ConfigDB (births, data) ──────────────> clusters.rs ──┐
//!  cluster manager (sealed logins) ──────────────────────┤
//!  clusters in the quarantine group ─┐                   ├─> state.rs ──> EdgeClusterIdentity: DCMD to ConfigDB
//!  */Identity of every cluster ──────┴──> requests.rs ───┘      │  │
//!                                                  authority.rs │  ├──> adapters/ledger.rs, then adapters/authority.rs ──> NCMD: the sealed answer
//!                                                    issued.rs ─┘  └──> revocations.rs ──> the revocation list, the metrics of <ORG>-Central/Identity
//! ```
//!
//! A request's way:
//! 1. A cluster asks in the quarantine group by a one-time token, or in its own group by the certificate that it has. Only clusters that ConfigDB knows are listened to.
//! 2. [`authority`] judges the request by the cluster's entries. Its use is written to `EdgeClusterIdentity`, and read again there.
//! 3. What was issued is written to the own disk ([`issued`]). A ConfigDB that was restored from a backup does not make Identity forget a use or a revocation.
//! 4. The certificate is signed, the login of the cluster's repository is opened, and both are sealed for the cluster. Whatever is killed in between, the same request has the same certificate.
//!
//! Identity has no HTTP but health, and no repository. The login of a repository it knows only as the cluster manager has sealed it to the enrolment key, and opens it for one answer.
//!
//! There is no `reconcile.rs`: what shall be and what is are compared in `authority.rs`, for one cluster's entries.
#![warn(unreachable_pub)]

pub mod adapters;
pub mod authority;
pub mod config;
pub mod event;
pub mod issued;
pub mod revocation_lists;
pub mod state;

mod clusters;
mod requests;
mod revocations;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use identity_contract::IdentityNode;
use service_runtime::exit;
use service_runtime::health::Health;
use service_runtime::service::{self, ServiceIo};
use service_runtime::sessions::{self, Sessions};
use service_runtime::shutdown::Shutdown;
use sparkplug_mqtt::Clock;
use tokio::task::JoinSet;

pub use config::Config;

use adapters::authority::Authority;
use adapters::ledger::Ledger;
use adapters::sparkplug::{host_config, node_config, own_descriptor};
use event::{Effect, Event, IssueCertificate, RevocationsReport};
use state::{Settings, State};

/// Runs Identity until `shutdown`; returns when its death is published.
///
/// # Errors
/// The configuration, the keys, the ledger, or a session that ended by itself.
pub async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    let organisation = config.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    config.mqtt.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let clock = Clock::new();
    let now_ms = clock.now().wall;
    let (own, name) = (config.clone(), organisation.clone());
    let (authority, (ledger, issued)) = tokio::task::spawn_blocking(move || {
        own.state_dir.create().with_context(|| format!("state_dir {} cannot be made", own.state_dir.display()))?;
        let authority = Authority::load(&own, &name, now_ms)?;
        let ledger = Ledger::load(authority.directory(), now_ms)?;
        anyhow::Ok((authority, ledger))
    })
    .await?
    .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let authority = Arc::new(authority);
    let settings = Settings {
        organisation: organisation.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        key_pair: authority.key_pair(),
        terms: authority.terms(),
        replaces_keys: config.replace_keys,
        retry: (Duration::from_millis(config.retry_first_ms), Duration::from_millis(config.retry_max_ms)),
    };
    let mut state = State::new(settings, issued, random()?, clock.now());
    let configs = (node_config(own_descriptor(&organisation)?), host_config(&organisation)?);
    let sessions = Sessions::start(configs, state.node_metrics(), &config.mqtt, &config.state_dir, clock)?;
    health.component("mqtt", false, "connecting");
    let mut io = Io { sessions, authority, ledger: Some(ledger), reads: JoinSet::new(), ready: None, health };
    let ended = service::serve(&mut state, &mut io, clock, &shutdown).await;
    io.sessions.stop().await;
    ended
}

fn random() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| anyhow::anyhow!("the system yields no random numbers"))?;
    Ok(u64::from_le_bytes(bytes))
}

service_runtime::service_core!(State, Event, Effect);

/// Everything outside of the state.
struct Io {
    sessions: Sessions,
    authority: Arc<Authority>,
    /// None only while a worker has it.
    ledger: Option<Ledger>,
    /// Revocation lists that are being read.
    reads: JoinSet<Event>,
    /// What was last reported to health about ConfigDB's replica.
    ready: Option<bool>,
    health: Health,
}

impl Io {
    /// Writes to the ledger on a thread that may block. False: something is not written yet.
    async fn write_ledger(&mut self, work: impl FnOnce(&mut Ledger) + Send + 'static) -> anyhow::Result<bool> {
        let mut ledger = self.ledger.take().context("the ledger was lost")?;
        let ledger = tokio::task::spawn_blocking(move || {
            work(&mut ledger);
            let written = ledger.write();
            (ledger, written)
        });
        let (ledger, written) = ledger.await.context("ledger")?;
        self.ledger = Some(ledger);
        let error = written.err().map(|error| format!("{:#}", anyhow::Error::new(error)));
        if let Some(error) = &error {
            tracing::error!(error, "what was issued cannot be written; nothing is issued until it can");
        }
        self.health.component("ledger", error.is_none(), error.as_deref().unwrap_or("written"));
        Ok(error.is_none())
    }

    async fn answer(&mut self, order: &IssueCertificate) -> anyhow::Result<()> {
        // What could not be written before is tried again: no certificate leaves that the disk does not know.
        let is_written = order.answer.is_err() || self.write_ledger(|_| ()).await?;
        if !is_written {
            return Ok(());
        }
        match self.authority.answer(order) {
            Ok(command) => self.sessions.request(command).await.context("a session ended"),
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::new(error));
                tracing::warn!(cluster_id = %order.opened.cluster, error, "a cluster that asks cannot be answered");
                Ok(())
            }
        }
    }
}

impl ServiceIo for Io {
    type Core = State;

    async fn recv(&mut self) -> anyhow::Result<Event> {
        Ok(tokio::select! {
            event = self.sessions.host.recv() => {
                Event::Host(event.context("the Host Application's session ended by itself")?)
            }
            event = self.sessions.node.recv() => {
                Event::Node(service::admitted(event.context("the Edge Node's session ended by itself")?)?)
            }
            Some(read) = self.reads.join_next() => read.context("revocation lists")?,
        })
    }

    async fn execute(&mut self, effect: Effect) -> anyhow::Result<()> {
        match effect {
            Effect::Node(update) => sessions::update(&self.sessions.node, update).await,
            Effect::Host(request) => self.sessions.request(request).await.context("a session ended")?,
            Effect::Remember(issued) => drop(self.write_ledger(|ledger| ledger.remember(issued)).await?),
            Effect::Answer(order) => self.answer(&order).await?,
            Effect::Revocations { revoked, at } => {
                let authority = Arc::clone(&self.authority);
                // One list after the other, and none is left out.
                let written = tokio::task::spawn_blocking(move || authority.revoke(revoked, at)).await;
                let written = written.context("revocation list")?;
                let written = written.map_err(|error| format!("{:#}", anyhow::Error::new(error)));
                if let Err(error) = &written {
                    tracing::error!(error, "the list of revoked certificates cannot be written");
                }
                let authority = Arc::clone(&self.authority);
                drop(self.reads.spawn(report(authority, Some(written))));
            }
            Effect::ReadRevocations => drop(self.reads.spawn(report(Arc::clone(&self.authority), None))),
        }
        Ok(())
    }

    fn report(&mut self, event: &Event) {
        if let Event::Node(event) = event {
            service::report_node(&self.health, "mqtt", event);
        }
    }

    fn publish(&mut self, state: &State) {
        let is_ready = state.is_ready();
        if self.ready.replace(is_ready) != Some(is_ready) {
            let reason = if is_ready { "known completely" } else { "not known completely" };
            self.health.component("configdb", is_ready, reason);
        }
        count(state.node());
    }
}

async fn report(authority: Arc<Authority>, written: Option<Result<(), String>>) -> Event {
    let lists = tokio::task::spawn_blocking(move || authority.lists()).await;
    let lists = lists.unwrap_or_else(|error| vec![Err(format!("revocation lists cannot be read: {error}"))]);
    Event::Revocations(RevocationsReport { written, lists })
}

/// The same numbers for Prometheus as on the wire.
fn count(node: &IdentityNode) {
    metrics::gauge!("sparkfleet_identity_waiting").set(f64::from(node.waiting));
    metrics::gauge!("sparkfleet_identity_clusters").set(f64::from(node.clusters));
    metrics::gauge!("sparkfleet_identity_revoked").set(f64::from(node.revoked));
    metrics::gauge!("sparkfleet_identity_alert").set(f64::from(u8::from(node.authority_alert.is_some())));
    let alert = node.revocations_alert.is_some();
    metrics::gauge!("sparkfleet_revocation_lists_alert").set(f64::from(u8::from(alert)));
    if let Some(ends) = node.revocations_next_update.and_then(|ends| u32::try_from(ends / 1000).ok()) {
        metrics::gauge!("sparkfleet_revocation_lists_next_update_seconds").set(f64::from(ends));
    }
}
