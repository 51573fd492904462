//! krb-keys: keeps keys in the KDC of a Factory+ site and in Secrets of an edge cluster in step, as KerberosKey and LocalSecret resources say.
//!
//! ```text
//! KerberosKey, LocalSecret        state.rs          births and data of <group>/Keys
//!   adapters/resources  --->  reconcile.rs   --->
//!                               ^      |
//!                    what is    |      v   one step
//!                             adapters/key_executor  <--->  KDC (kerberos-client), Secrets (adapters/secrets), SealedSecrets (adapters/sealing)
//! ```
//!
//! 1. `spec.rs` says what a resource asks for, or which rule it breaks.
//! 2. `state.rs` takes one resource after another and looks at KDC and Secret; `reconcile.rs` decides the next step from what there is; `adapters/key_executor.rs` does it, and then it looks again.
//! 3. What a resource makes is recorded on it first, and a finalizer keeps it until its end is carried out. Then its principals get no tickets any more (they are never deleted), and its keys go.
//!
//! 4. The account that a resource wants is published as a Device. The cluster manager keeps accounts, in ConfigDB, and answers by command; the resource is in step when its account is (`account.rs`, `state/accounts.rs`).
//!
//! `keytab.rs` and `trust.rs` know the forms of what is in Secrets, `krb-keys-contract` the metrics, `event.rs` lists all that comes in and goes out.
//!
//! A key is replaced only when the KDC said in known words that it is wrong, when an operator asks for it, or when there is none. An outage or a restart replaces nothing. Some keys cannot be
//! asked about (the key is sealed, or belongs to a trust that begins in another realm). Then the delivery is recorded, and repeated if the recorded state is gone. Nothing is stored here but the
//! bdSeq.
#![warn(unreachable_pub)]

mod account;
pub mod adapters;
pub mod config;
pub mod event;
pub mod keytab;
pub mod reconcile;
pub mod spec;
pub mod state;
pub mod trust;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use configdb_schema::known::special::FACTORY_PLUS;
use kerberos_client::Kdc;
use service_runtime::exit;
use service_runtime::health::Health;
use service_runtime::service::{self, ServiceIo};
use service_runtime::sessions;
use service_runtime::shutdown::Shutdown;
use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub use config::Config;

use adapters::key_executor::KeyExecutor;
use adapters::resources;
use event::{Effect, Event, KeyError};
use state::State;

/// Label of Secrets that are written.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
pub const MANAGER: &str = "krbkeys.factoryplus.app.amrc.co.uk";

/// Events of resources that wait for the loop. While it is busy the watches wait, and Kubernetes keeps what changed.
const INBOX_MAX: usize = 64;

/// How long the last step may take when the service ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// Runs the service until `shutdown`; returns when its death is published.
///
/// # Errors
/// The configuration is not usable, no client for Kubernetes can be made of it, or the state directory cannot be used.
pub async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    let clock = Clock::new();
    let (descriptor, settings) = config
        .validate()
        .context("the configuration is not usable")
        .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let kdc = Kdc::open(config.kerberos.clone(), &config.state_dir.join("keys")).context("state_dir: keys")?;
    let client = kubernetes_client::connect(config.kubernetes.url.as_deref()).await?;
    let executor = KeyExecutor::new(client.clone(), &config.kubernetes.namespace, kdc);
    let mut state = State::new(settings);
    let (inbox, watch_events) = mpsc::channel(INBOX_MAX);
    let _watches = resources::watch(&client, &config.kubernetes.namespace, &inbox, &health);
    let node = EdgeNodeConfig {
        payload_uuid: Some(Arc::from(FACTORY_PLUS.to_string())),
        ..EdgeNodeConfig::for_one_speaker(descriptor.clone())
    };
    let bd_seq = BdSeqStore::in_directory(&config.state_dir, &descriptor);
    let node = sessions::spawn_node(node, state.node_metrics(), &config.mqtt, bd_seq, clock)?;
    health.component("mqtt", false, "connecting");
    let mut io = Io { executor, node, watch_events, work: JoinSet::new(), health };
    service::serve(&mut state, &mut io, clock, &shutdown).await?;
    // A step that is cut off is found half done by the next start, and finished; this only spares a second key.
    let _ = tokio::time::timeout(FAREWELL, async { while io.work.join_next().await.is_some() {} }).await;
    io.node.stop().await;
    Ok(())
}

service_runtime::service_core!(State, Event, Effect);

/// Everything outside of the state.
struct Io {
    executor: KeyExecutor,
    node: EdgeNodeHandle,
    watch_events: mpsc::Receiver<Event>,
    /// One look or step, and statuses that are being written.
    work: JoinSet<Option<Event>>,
    health: Health,
}

impl ServiceIo for Io {
    type Core = State;

    async fn recv(&mut self) -> anyhow::Result<Event> {
        loop {
            return Ok(tokio::select! {
                biased;
                Some(done) = self.work.join_next() => match done.context("a piece of work panicked")? {
                    Some(event) => event,
                    None => continue,
                },
                event = self.node.recv() => {
                    Event::Node(service::admitted(event.context("the task of the edge node ended")?)?)
                }
                Some(event) = self.watch_events.recv() => event,
            });
        }
    }

    async fn execute(&mut self, effect: Effect) -> anyhow::Result<()> {
        if let Effect::Node(update) = effect {
            sessions::update(&self.node, update).await;
        } else {
            let executor = self.executor.clone();
            self.work.spawn(async move { execute(&executor, effect).await });
        }
        Ok(())
    }

    fn report(&mut self, event: &Event) {
        let health = &self.health;
        match event {
            Event::Node(event) => service::report_node(health, "mqtt", event),
            Event::Seen(_, Err(error @ KeyError::Kdc(_))) if error.is_outage() => {
                health.component("kdc", false, error.to_string());
            }
            Event::Seen(_, Ok(_)) => health.component("kdc", true, "answers"),
            _ => {}
        }
    }

    fn publish(&mut self, state: &State) {
        let node = state.node();
        for (state, number) in [("all", node.total), ("ready", node.ready), ("failed", node.failed)] {
            metrics::gauge!("krb_keys", "state" => state).set(f64::from(number));
        }
    }
}

async fn execute(executor: &KeyExecutor, effect: Effect) -> Option<Event> {
    match effect {
        Effect::Observe(id, request) => Some(Event::Seen(id, executor.look(request).await)),
        Effect::Act { id, uid, action } => {
            let result = executor.act(&id, &uid, action).await;
            Some(Event::Acted(id, result))
        }
        Effect::WriteStatus { id, status } => {
            let is_written = executor.write_status(&id, &status).await;
            (!is_written).then_some(Event::StatusLost(id))
        }
        Effect::Node(_) => None,
    }
}
