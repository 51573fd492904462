//! The running service: the one place that knows the store, the edge node, the clock and the state together.

use std::time::{Duration, Instant};

use anyhow::Context;
use configdb_contract::configdb_node;
use configdb_schema::Organisation;
use service_runtime::exit;
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig, spawn_edge_node};
use uuid::Uuid;

use crate::config::Config;
use crate::event::{Effect, Event};
use crate::model::Limits;
use crate::state::{State, Turn};
use crate::store::{STORE_FILE, SqliteStore, Store, StoreError};

/// Commands taken into one turn: few enough that an answer is not held up by many others, many enough that a burst of writes shares one sync of the disk.
const TURN_EVENTS_MAX: usize = 64;
/// Attempts at a commit; then the process ends, so that a fresh one begins with what is really stored.
const COMMIT_ATTEMPTS: u32 = 5;
/// Wait between two attempts.
const COMMIT_PAUSE: Duration = Duration::from_secs(1);

/// Runs ConfigDB on its database until it is asked to stop.
///
/// # Errors
/// The configuration is not valid, the database cannot be opened, or a commit failed for good.
pub async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    let (organisation, limits) = config.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    config.state_dir.create().with_context(|| format!("state_dir {} cannot be made", config.state_dir.display()))?;
    let file = config.state_dir.join(STORE_FILE);
    let bd_seq = BdSeqStore::in_directory(&config.state_dir, &configdb_node(&organisation));
    let store = if config.new_store {
        SqliteStore::open(&file).await?
    } else {
        let opened = SqliteStore::open_known(&file, bd_seq.is_used()).await;
        opened.map_err(|error| match error {
            StoreError::Lost { .. } => exit::with_code(exit::REFUSED, error),
            other => other.into(),
        })?
    };
    run_on(store, &organisation, limits, &config.mqtt, bd_seq, shutdown, health).await
}

/// Runs ConfigDB on any store until it is asked to stop.
///
/// # Errors
/// The store cannot be read, or a commit failed for good.
pub async fn run_on<S: Store>(
    mut store: S,
    organisation: &Organisation,
    limits: Limits,
    mqtt: &MqttConfig,
    bd_seq: BdSeqStore,
    shutdown: Shutdown,
    health: Health,
) -> anyhow::Result<()> {
    describe_metrics();
    health.component("store", false, "loading");
    health.component("mqtt", false, "not connected yet");
    let started = Instant::now();
    let clock = Clock::new();
    let mut state = State::new(&store.load().await?, limits)?;
    state.on_event(Event::Start { timeline: Uuid::new_v4().as_u64_pair().0 }, clock.now());
    let first = state.take_turn();
    let first = committed(&mut store, first, &health).await?;
    let node_config = EdgeNodeConfig {
        message_bytes_max: limits.message_bytes_max,
        ..EdgeNodeConfig::for_any_reader(configdb_node(organisation))
    };
    let node = spawn_edge_node(node_config, state.node_metrics(), mqtt, bd_seq, clock)?;
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(
        objects = state.model().object_count(),
        revision = state.model().revision(),
        elapsed_ms,
        "ConfigDB loaded"
    );
    let mut service = Service { store, state, node, clock, health };
    let ended = service.serve(first, &shutdown).await;
    service.node.stop().await;
    service.store.close().await;
    ended
}

struct Service<S> {
    store: S,
    state: State,
    node: EdgeNodeHandle,
    clock: Clock,
    health: Health,
}

impl<S: Store> Service<S> {
    async fn serve(&mut self, first: Vec<Effect>, shutdown: &Shutdown) -> anyhow::Result<()> {
        let mut effects = first;
        loop {
            let mut waiting = self.execute(effects, shutdown).await?;
            if waiting.is_empty() {
                waiting = tokio::select! {
                    () = shutdown.wait() => return Ok(()),
                    event = self.node.recv() => match event {
                        Some(event) => vec![Event::Node(event)],
                        None => return Ok(()),
                    },
                };
            }
            while waiting.len() < TURN_EVENTS_MAX {
                let Ok(event) = self.node.events().try_recv() else { break };
                waiting.push(Event::Node(event));
            }
            for event in waiting {
                self.observe(&event);
                self.state.on_event(event, self.clock.now());
            }
            let turn = self.state.take_turn();
            effects = committed(&mut self.store, turn, &self.health).await?;
            self.count();
        }
    }

    /// Carries effects out; yields the events that they lead to.
    async fn execute(&mut self, effects: Vec<Effect>, shutdown: &Shutdown) -> anyhow::Result<Vec<Event>> {
        let mut events = Vec::new();
        for effect in effects {
            match effect {
                Effect::Node(update) => {
                    let taken = tokio::select! {
                        taken = self.node.update(update) => taken,
                        // Everything is stored; who asks for a stop does not wait for a slow connection.
                        () = shutdown.wait() => return Ok(events),
                    };
                    if let Err(error) = taken {
                        tracing::error!(error = %error, "the edge node refused what the model allowed");
                    }
                }
                Effect::ReadHistory(request) => {
                    let history = self.store.history(&request).await.map_err(|error| error.to_string());
                    events.push(Event::History { request, history });
                }
            }
        }
        Ok(events)
    }

    fn observe(&self, event: &Event) {
        match event {
            Event::Node(NodeEvent::Born { bd_seq, rebirth }) => {
                self.health.component("mqtt", true, "born");
                tracing::info!(bd_seq = bd_seq.get(), rebirth, "ConfigDB is born");
            }
            Event::Node(NodeEvent::Offline { reason }) => {
                self.health.component("mqtt", false, reason.clone());
                tracing::warn!(error = reason, "ConfigDB is offline");
            }
            Event::Node(NodeEvent::Rejected { topic, reason }) => {
                tracing::warn!(topic, error = reason, "message refused");
            }
            _ => {}
        }
    }

    fn count(&self) {
        let counters = self.state.counters();
        for (outcome, count) in
            [("applied", counters.applied), ("refused", counters.refused), ("repeated", counters.repeated)]
        {
            metrics::counter!("configdb_requests_total", "outcome" => outcome).absolute(count);
        }
        let model = self.state.model();
        // A gauge is a float; revisions stay exact up to 2^53.
        #[expect(clippy::cast_precision_loss, reason = "see above")]
        metrics::gauge!("configdb_revision").set(model.revision() as f64);
        #[expect(clippy::cast_precision_loss, reason = "bounded by objects_max")]
        metrics::gauge!("configdb_objects").set(model.object_count() as f64);
    }
}

/// Stores what the turn has to store; yields what may be done then.
async fn committed<S: Store>(store: &mut S, turn: Turn, health: &Health) -> anyhow::Result<Vec<Effect>> {
    let Turn { commit, mut effects } = turn;
    if commit.is_empty() {
        health.component("store", true, "loaded");
        return Ok(effects.nothing_to_save().into_iter().collect());
    }
    let mut attempt = 1;
    loop {
        match effects.commit_async(store.commit(&commit)).await {
            Ok(((), saved)) => {
                health.component("store", true, "committed");
                return Ok(saved.into_iter().collect());
            }
            Err((error, unsaved)) => {
                health.component("store", false, error.to_string());
                if attempt == COMMIT_ATTEMPTS {
                    return Err(error).context("a transaction could not be stored; nothing of it was published");
                }
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(attempt, error = %error, cause, "commit failed, trying again");
                effects = unsaved;
                attempt += 1;
                tokio::time::sleep(COMMIT_PAUSE).await;
            }
        }
    }
}

fn describe_metrics() {
    metrics::describe_counter!("configdb_requests_total", "Requests by outcome: applied, refused, repeated");
    metrics::describe_gauge!("configdb_revision", "Revision of the last transaction");
    metrics::describe_gauge!("configdb_objects", "Objects that exist");
}
