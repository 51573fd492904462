//! The running service: the one place that knows the store, the edge node, the clock and the state together.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use configdb_contract::{RequestResult, configdb_node};
use service_runtime::health::Health;
use service_runtime::service::{self, ServiceIo};
use service_runtime::sessions;
use service_runtime::shutdown::Shutdown;
use service_runtime::{Effects, Unsaved, exit};
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent};
use sparkplug::replication::Timelines;
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle};
use uuid::Uuid;

use crate::config::Config;
use crate::event::{Effect, Event};
use crate::model::{Inconsistent, Limits};
use crate::record::{Recorder, Stored};
use crate::state::{State, Turn};
use crate::store::{Commit, Retention, STORE_FILE, Snapshot, SqliteStore, Store, StoreError, Transaction};
use crate::turns::{Input, NotStored, Output, Turns};

/// Commands taken into one turn: few enough that an answer is not held up by many others, many enough that a burst of writes shares one sync of the disk.
const TURN_EVENTS_MAX: usize = 64;
/// Attempts at a commit; then the process ends, so that a fresh one begins with what is really stored.
const COMMIT_ATTEMPTS: u32 = 5;
/// Wait between two attempts.
const COMMIT_PAUSE: Duration = Duration::from_secs(1);
/// Prunings at a time; writes wait for them.
const PRUNES_MAX: u32 = 4;

/// Runs ConfigDB on its database until it is asked to stop.
///
/// # Errors
/// The configuration is not valid, the database cannot be opened, or a commit failed for good.
pub async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    let (organisation, _) = config.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
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
    run_on(store, &config, bd_seq, shutdown, health).await
}

/// Runs ConfigDB on any store until it is asked to stop.
///
/// # Errors
/// The configuration is not valid, the store cannot be read, or a commit failed for good.
pub async fn run_on<S: Store>(
    mut store: S,
    config: &Config,
    bd_seq: BdSeqStore,
    shutdown: Shutdown,
    health: Health,
) -> anyhow::Result<()> {
    let (organisation, limits) = config.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    describe_metrics();
    health.component("store", false, "loading");
    health.component("mqtt", false, "not connected yet");
    let started = Instant::now();
    let clock = Clock::new();
    let mut state = new_state(&store.load().await?, limits, config)?;
    let mut recorder = Recorder::new(&config.state_dir);
    recorder.begin(stored(&state), clock.now().wall).await;
    let timeline = new_timeline();
    state.on_event(Event::Start { timeline }, clock.now());
    let Turn { commit, effects } = state.take_turn();
    let first = match committed(&mut store, &commit, effects, &health).await? {
        Committed::Effects(effects) => effects,
        Committed::Full(error) => {
            let stored = store.load().await?;
            if stored.objects.is_empty() {
                return Err(error).context("a new database cannot be made");
            }
            state = new_state(&stored, limits, config)?;
            state.set_read_only(error.to_string());
            state.on_event(Event::Start { timeline }, clock.now());
            state.take_turn().effects.nothing_to_save().into_iter().collect()
        }
    };
    let node_config = EdgeNodeConfig {
        message_bytes_max: limits.message_bytes_max,
        // Two stores cannot both acknowledge: no write is answered before it is known that no other ConfigDB speaks.
        commands_wait: true,
        ..EdgeNodeConfig::for_one_speaker(configdb_node(&organisation))
    };
    let node = sessions::spawn_node(node_config, state.node_metrics(), &config.mqtt, bd_seq, clock)?;
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(
        objects = state.model().object_count(),
        revision = state.model().revision(),
        elapsed_ms,
        "ConfigDB loaded"
    );
    let follower =
        Follower { recorder, timelines: state.model().timelines().clone(), revision: state.model().revision() };
    let mut io = Io {
        store,
        follower,
        node,
        clock,
        health,
        shutdown,
        waiting: VecDeque::new(),
        keep: limits.history,
        is_read_only: None,
    };
    let ended = io.run(state, first).await;
    io.node.stop().await;
    io.follower.record(&mut io.store, io.clock.now().wall).await;
    io.store.close().await;
    ended
}

/// The record of writes, and how far the store is that it follows.
struct Follower {
    recorder: Recorder,
    timelines: Timelines,
    revision: u64,
}

impl Follower {
    /// Records what was written and is not recorded yet, and keeps how far the record is.
    async fn record<S: Store>(&mut self, store: &mut S, wall: u64) {
        let stored = Stored { timelines: &self.timelines, revision: self.revision };
        self.recorder.follow(store, stored, wall).await;
        self.recorder.keep_mark().await;
    }

    /// The store has taken a commit.
    fn on_stored(&mut self, commit: &Commit) {
        if let Some(timelines) = &commit.timelines {
            self.timelines = timelines.clone();
        }
        if let Some(last) = commit.transactions.last() {
            self.revision = last.revision;
        }
    }

    /// Records the transactions of a commit that the store has taken, unless something before them could not be recorded.
    async fn add<S: Store>(&mut self, transactions: &[Transaction], store: &mut S, wall: u64) {
        if !self.recorder.is_failing() {
            let stored = Stored { timelines: &self.timelines, revision: self.revision };
            self.recorder.add(store, stored, transactions, wall).await;
        }
    }
}

struct Io<S> {
    store: S,
    follower: Follower,
    node: EdgeNodeHandle,
    clock: Clock,
    health: Health,
    shutdown: Shutdown,
    /// History that is kept.
    keep: Retention,
    /// What is given to the core next.
    waiting: VecDeque<Input>,
    /// What health says of it; None: nothing yet.
    is_read_only: Option<bool>,
}

impl<S: Store> Io<S> {
    async fn run(&mut self, state: State, first: Vec<Effect>) -> anyhow::Result<()> {
        let mut turns = Turns::new(state, self.clock.now());
        self.publish(&turns);
        self.follower.record(&mut self.store, self.clock.now().wall).await;
        // What it stored is recorded.
        self.execute_all(first, &Commit::default()).await;
        let shutdown = self.shutdown.clone();
        service::serve(&mut turns, self, self.clock, &shutdown).await
    }

    /// Stores a turn, and does what follows from it.
    async fn turn(&mut self, turn: Turn) -> anyhow::Result<()> {
        let Turn { commit, effects } = turn;
        match committed(&mut self.store, &commit, effects, &self.health).await? {
            Committed::Effects(effects) => {
                self.follower.on_stored(&commit);
                self.execute_all(effects, &commit).await;
            }
            Committed::Full(error) => self.refuse(&error, commit).await?,
        }
        Ok(())
    }

    /// Goes back to what is stored, refuses what was not, and writes nothing until there is room.
    async fn refuse(&mut self, error: &StoreError, commit: Commit) -> anyhow::Result<()> {
        let before = commit.transactions.first().map(|first| first.revision.saturating_sub(1));
        let answers: Vec<RequestResult> = commit.requests.into_iter().map(|request| request.result).collect();
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::error!(error = %error, cause, requests = answers.len(), "nothing can be stored; writes are refused until there is room");
        let stored = self.store.load().await?;
        // A disk that fails while it syncs may have taken what it refused. Only a fresh process publishes that to readers.
        anyhow::ensure!(before.is_none_or(|before| before == stored.revision), "a transaction was stored that failed");
        self.waiting.push_front(Input::NotStored(Box::new(NotStored { stored, answers, reason: error.to_string() })));
        Ok(())
    }

    /// Records what could not be recorded, forgets old history, and looks whether writes can be carried out again.
    async fn look_after_store(&mut self, is_read_only: bool) {
        // Before anything is forgotten.
        self.follower.record(&mut self.store, self.clock.now().wall).await;
        let has_more = self.prune().await;
        let has_room = is_read_only && self.store.probe().await.is_ok();
        self.waiting.push_back(Input::Upkept { has_room, has_more });
    }

    /// Forgets a part of the history that is not to be kept any more. Whether there is more.
    async fn prune(&mut self) -> bool {
        for _ in 0..PRUNES_MAX {
            match self.store.prune(&self.keep, self.clock.now().wall).await {
                Ok(0) => return false,
                Ok(lines) => metrics::counter!("configdb_history_forgotten_total").increment(lines),
                Err(error) => {
                    tracing::warn!(error = %error, "old history could not be forgotten");
                    return false;
                }
            }
        }
        true
    }

    /// Carries effects of a turn out; what they lead to waits.
    async fn execute_all(&mut self, effects: Vec<Effect>, commit: &Commit) {
        let mut events = Vec::new();
        for effect in effects {
            match effect {
                Effect::Node(update) => {
                    tokio::select! {
                        // That the node has stopped is its next event.
                        _ = self.node.submit(update) => {}
                        // Everything is stored; who asks for a stop does not wait for a slow connection.
                        () = self.shutdown.wait() => return,
                    }
                }
                Effect::Record => {
                    self.follower.add(&commit.transactions, &mut self.store, self.clock.now().wall).await;
                }
                Effect::ReadHistory(request) => {
                    let history = self.store.history(&request).await.map_err(|error| error.to_string());
                    events.push(Event::History { request, history });
                }
            }
        }
        if !events.is_empty() {
            self.waiting.push_back(Input::Events(events));
        }
    }

    /// Adds an event of the node to those that share a commit.
    fn take(&self, event: NodeEvent, events: &mut Vec<Event>) -> anyhow::Result<()> {
        let event = service::admitted(event)?;
        service::report_node(&self.health, "mqtt", &event);
        match &event {
            NodeEvent::Born { bd_seq, rebirth } => {
                tracing::info!(bd_seq = bd_seq.get(), rebirth, "ConfigDB is born");
            }
            NodeEvent::Offline { reason } => tracing::warn!(error = reason, "ConfigDB is offline"),
            NodeEvent::Rejected { topic, reason } => tracing::warn!(topic, error = reason, "message refused"),
            _ => {}
        }
        let is_over = matches!(event, NodeEvent::Offline { .. });
        events.push(Event::Node(event));
        if is_over {
            events.push(Event::SessionEnded { timeline: new_timeline() });
        }
        Ok(())
    }
}

impl<S: Store> ServiceIo for Io<S> {
    type Core = Turns;

    async fn recv(&mut self) -> anyhow::Result<Input> {
        if let Some(input) = self.waiting.pop_front() {
            return Ok(input);
        }
        let first = self.node.recv().await.context("the task of the edge node ended")?;
        let mut events = Vec::new();
        self.take(first, &mut events)?;
        while events.len() < TURN_EVENTS_MAX {
            let Ok(event) = self.node.events().try_recv() else { break };
            self.take(event, &mut events)?;
        }
        Ok(Input::Events(events))
    }

    async fn execute(&mut self, output: Output) -> anyhow::Result<()> {
        match output {
            Output::Turn(turn) => self.turn(turn).await,
            Output::Upkeep { is_read_only } => {
                self.look_after_store(is_read_only).await;
                Ok(())
            }
        }
    }

    fn report(&mut self, _input: &Input) {}

    fn publish(&mut self, turns: &Turns) {
        let state = turns.state();
        let read_only = state.read_only();
        if self.is_read_only.replace(read_only.is_some()) != Some(read_only.is_some()) {
            match read_only {
                Some(reason) => self.health.component("store", false, format!("{reason}: read-only")),
                None => self.health.component("store", true, "loaded"),
            }
            metrics::gauge!("configdb_read_only").set(f64::from(u8::from(read_only.is_some())));
        }
        let counters = state.counters();
        for (outcome, count) in
            [("applied", counters.applied), ("refused", counters.refused), ("repeated", counters.repeated)]
        {
            metrics::counter!("configdb_requests_total", "outcome" => outcome).absolute(count);
        }
        let model = state.model();
        // A gauge is a float; revisions stay exact up to 2^53.
        #[expect(clippy::cast_precision_loss, reason = "see above")]
        metrics::gauge!("configdb_revision").set(model.revision() as f64);
        #[expect(clippy::cast_precision_loss, reason = "bounded by objects_max")]
        metrics::gauge!("configdb_objects").set(model.object_count() as f64);
    }
}

fn new_state(snapshot: &Snapshot, limits: Limits, config: &Config) -> Result<State, Inconsistent> {
    let mut state = State::new(snapshot, limits)?;
    if config.operators_named {
        state.trust_users();
    }
    Ok(state)
}

fn stored(state: &State) -> Stored<'_> {
    Stored { timelines: state.model().timelines(), revision: state.model().revision() }
}

/// A number that no other run and no other session has. Of a machine that was set back with its memory the system may draw the same again, but not at the same time.
fn new_timeline() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Uuid::new_v4().as_u64_pair().0 ^ u64::from(since.subsec_nanos()) ^ since.as_secs().rotate_left(32)
}

/// What became of a turn's commit.
enum Committed {
    /// It is stored, and this follows.
    Effects(Vec<Effect>),
    /// Nothing of it is stored: the disk is full.
    Full(StoreError),
}

/// Stores what the turn has to store.
async fn committed<S: Store>(
    store: &mut S,
    commit: &Commit,
    mut effects: Effects<Unsaved, Effect>,
    health: &Health,
) -> anyhow::Result<Committed> {
    if commit.is_empty() {
        return Ok(Committed::Effects(effects.nothing_to_save().into_iter().collect()));
    }
    let mut attempt = 1;
    loop {
        match effects.commit_async(store.commit(commit)).await {
            Ok(((), saved)) => {
                health.component("store", true, "committed");
                return Ok(Committed::Effects(saved.into_iter().collect()));
            }
            Err((error @ StoreError::Full { .. }, _)) => return Ok(Committed::Full(error)),
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
    metrics::describe_counter!(
        "configdb_history_forgotten_total",
        "Lines of history that were older or more than is kept"
    );
    metrics::describe_gauge!("configdb_read_only", "1: writes are refused, because the disk is full");
}
