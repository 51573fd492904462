//! The web console's server: receives everything that is said over Sparkplug, makes tables of it, and serves them over HTTP as reads and as a live stream.
//!
//! ```text
//! browsers --HTTP--> adapters/http (reads, page) ----------> read(table) --+
//!                    adapters/stream (SSE) <-- published tables -- Hub <---+-- state.rs: replicas -> tables -> deltas
//!                                                                          ^
//!                         births, data, deaths of all nodes: adapters/sparkplug (Host Application, Edge Node ORG-Central/Console)
//! ```
//!
//! It calls no service. It stores nothing but its bdSeq, its history, the hashes of sessions and the record of what people did here. It can be stopped, and nothing else changes. A read never causes a message.
//!
//! What people do ([`action`]) is asked of the state (`api`). `state/users.rs` says who they are, and [`access`] whether they may. [`fleet_view::requests`]
//! says what it comes to as requests to ConfigDB, and `state/actions.rs` what ConfigDB answers. `adapters/answers.rs` records it before it is answered. What a table means is
//! [`fleet_view`]'s, so that the console judges as the command line does.
//!
//! Tables that are recorded go on to `adapters/history`, as `state/recorder.rs` decides: what changed, and where nothing was received. Reads of the past read there.
//!
//! A table is computed when a client looks at it or it is recorded, and something changed that it is made of. That is at most ten times a second, and takes a tenth of the time at most.
#![warn(unreachable_pub)]

pub mod action;
pub mod adapters;
mod api;
pub mod config;
pub mod event;
mod event_marks;
mod kept;
mod notice;
mod preview;
mod reconcile;
pub mod record;
pub mod replay;
mod sight;
mod state;

mod node;
mod published;

use std::time::Duration;

use anyhow::Context as _;
use service_runtime::exit;
use service_runtime::health::Health;
use service_runtime::http::tls::Tls;
use service_runtime::record::{self as records, RecordFile};
use service_runtime::service::{self, ServiceIo};
use service_runtime::shutdown::Shutdown;
use sparkplug::host::HostEvent;
use sparkplug_mqtt::Clock;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub use config::Config;
pub use published::{Published, TableName};
pub use state::State;

use adapters::alertmanager::Alertmanager;
use adapters::answers::Answers;
use adapters::history::History;
use adapters::hub::{Hub, Request};
use adapters::replay::Source;
use adapters::sessions::SessionFile;
use adapters::sparkplug::{Sessions, host_event, node_event};
use config::{Role, Settings, WebConfig};
use event::{Effect, Event};
use replay::Step;

/// Takes the console's address.
///
/// # Errors
/// With [`exit::UNAVAILABLE`] if it is taken, naming the key.
pub async fn bind(listen: std::net::SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(listen)
        .await
        .with_context(|| format!("web.listen: cannot listen on {listen}"))
        .map_err(|error| exit::with_code(exit::UNAVAILABLE, error))
}

/// Runs the console until `shutdown`; returns when its death is published.
///
/// # Errors
/// The configuration is not usable, its address is taken, or the stored bdSeq cannot be read.
pub async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    let listener = bind(config.web.listen).await?;
    serve(config, listener, shutdown, health).await
}

/// The same with an address that is taken already.
///
/// # Errors
/// As [`run`].
pub async fn serve(config: Config, listener: TcpListener, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    serve_as(Role::Console, None, config, listener, shutdown, health).await
}

/// Shows every Edge Node of any broker until `shutdown`, without being one. Publishes nothing, unless `rebirths`: then nodes whose birth was not received are asked for it.
///
/// # Errors
/// As [`run`].
pub async fn explore(
    config: Config,
    listener: TcpListener,
    rebirths: bool,
    shutdown: Shutdown,
    health: Health,
) -> anyhow::Result<()> {
    serve_as(Role::Explorer { rebirths }, None, config, listener, shutdown, health).await
}

/// Shows until `shutdown` what an export of a history holds, without a broker. It keeps a history of its own, so that its past can be looked at, too.
///
/// # Errors
/// As [`run`].
pub async fn replay(
    config: Config,
    source: Source,
    listener: TcpListener,
    shutdown: Shutdown,
    health: Health,
) -> anyhow::Result<()> {
    serve_as(Role::Replay, Some(source), config, listener, shutdown, health).await
}

// long: all adapters are made and started here, in the order in which they need each other.
async fn serve_as(
    role: Role,
    source: Option<Source>,
    config: Config,
    listener: TcpListener,
    shutdown: Shutdown,
    health: Health,
) -> anyhow::Result<()> {
    let clock = Clock::new();
    let settings = settings(role, &config, clock)?;
    let tls = tls(&config.web)?;
    let alertmanager = alertmanager(&settings, &config)?;
    let sessions = Sessions::start(&settings, &config.mqtt, &config.state_dir, clock)?;
    let (hub, requests) = Hub::new();
    let history = History::start(&config.state_dir, settings.history, clock);
    let site = adapters::http::Site::new(&config, &settings, hub.clone(), history.reader(), clock)?;
    let answers = Answers::new(RecordFile::new(records::path(&config.state_dir)));
    let (session_file, kept) = SessionFile::open(&config.state_dir, &settings.rules);
    let mut state = State::new(settings, clock.now())?;
    if role == Role::Console {
        state.restore_sessions(kept, clock.now());
    }
    if role == Role::Console {
        report(&health, "mqtt", Err("connecting"));
    }
    if role != Role::Replay {
        report(&health, "mqtt_host", Err("connecting"));
    }
    let replayed = source.map(adapters::replay::start);
    state.on_event(Event::Started, clock.now());
    let http_stop = shutdown.child();
    let http = tokio::spawn(adapters::http::serve(listener, site, tls, http_stop.clone()));
    let mut io = Io {
        hub,
        requests,
        sessions,
        history,
        answers,
        session_file,
        alertmanager,
        replayed,
        http,
        clock,
        health,
        cost: Cost::None,
    };
    let ended = service::serve(&mut state, &mut io, clock, &shutdown).await;
    http_stop.trigger();
    ended?;
    if let Some(record) = state.last_record(clock.now()) {
        io.history.record(record);
    }
    if let Some(sessions) = state.take_sessions(clock.now()) {
        io.session_file.write(&sessions).await;
    }
    io.history.stop().await;
    io.answers.stop().await;
    io.sessions.stop().await;
    let _ = io.http.await;
    Ok(())
}

service_runtime::service_core!(State, Event, Effect);

/// How long the computation of tables took that a deadline has led to.
#[derive(Debug, Clone, Copy)]
enum Cost {
    None,
    /// It began then.
    Since(Duration),
    /// The state does not know it yet.
    Known(Duration),
}

/// Everything outside of the state.
struct Io {
    hub: Hub,
    requests: mpsc::UnboundedReceiver<Request>,
    sessions: Sessions,
    history: History,
    answers: Answers,
    session_file: SessionFile,
    alertmanager: Option<Alertmanager>,
    replayed: Option<mpsc::Receiver<Step>>,
    http: JoinHandle<std::io::Result<()>>,
    clock: Clock,
    health: Health,
    cost: Cost,
}

impl Io {
    fn on_request(&mut self, request: Request) -> Event {
        match request {
            Request::Read { table, answer } => Event::Read { id: self.answers.read(answer), table },
            Request::Ask { from, credential, question, answer } => {
                Event::ApiRequest(Box::new(self.answers.ask(from, credential, *question, answer)))
            }
            Request::Watch(tables) => Event::Watch(tables),
            Request::Unwatch(tables) => Event::Unwatch(tables),
        }
    }

    fn take_cost(&mut self) {
        if let Cost::Since(began) = self.cost {
            self.cost = Cost::Known(self.clock.now().mono.saturating_sub(began));
        }
    }
}

impl ServiceIo for Io {
    type Core = State;

    async fn recv(&mut self) -> anyhow::Result<Event> {
        if let Cost::Known(cost) = self.cost {
            self.cost = Cost::None;
            return Ok(Event::Computed { cost });
        }
        tokio::select! {
            biased;
            event = node_event(&mut self.sessions.node) => {
                Ok(Event::Node(service::admitted(event.context("the task of the edge node ended")?)?))
            }
            Some(request) = self.requests.recv() => Ok(self.on_request(request)),
            answer = self.history.recv() => Ok(Event::History(answer)),
            event = host_event(&mut self.sessions.host) => {
                Ok(Event::Host(event.context("the task of the host application ended")?))
            }
            answer = Alertmanager::recv(&mut self.alertmanager) => Ok(Event::Notified(answer)),
            step = adapters::replay::next(&mut self.replayed) => Ok(Event::Replayed(step.context("the replay ended")?)),
            ended = &mut self.http => {
                ended.context("the HTTP server has panicked")?.context("the HTTP server ended")?;
                anyhow::bail!("the HTTP server ended")
            }
        }
    }

    async fn execute(&mut self, effect: Effect) -> anyhow::Result<()> {
        self.take_cost();
        match effect {
            Effect::Publish(table) => self.hub.publish(table),
            Effect::Retire(table) => self.hub.retire(&table),
            Effect::Rows { id, table } => self.answers.rows(id, table),
            Effect::Record(record) => self.history.record(record),
            Effect::ApiResponse(answer) => self.answers.answer(*answer),
            Effect::Keep(record) => self.answers.keep(*record),
            Effect::KeepSessions(sessions) => self.session_file.write(&sessions).await,
            Effect::Notify(notices) => {
                if let Some(alertmanager) = &mut self.alertmanager {
                    alertmanager.send(&notices);
                }
            }
            Effect::Node(update) => self.sessions.update(update).await,
            Effect::Host(request) => self.sessions.request(request).await.context("a session ended")?,
        }
        Ok(())
    }

    fn report(&mut self, event: &Event) {
        report_event(&self.health, event);
        if matches!(event, Event::DeadlineReached) {
            self.cost = Cost::Since(self.clock.now().mono);
        }
    }

    fn publish(&mut self, state: &State) {
        self.take_cost();
        metrics::gauge!("console_streams").set(f64::from(state.viewers()));
    }
}

fn settings(role: Role, config: &Config, clock: Clock) -> anyhow::Result<Settings> {
    let settings = config
        .validate(clock.now().wall)
        .context("the configuration is not usable")
        .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    // Who looks at a broker for a while leaves nothing behind.
    let history = settings.history.filter(|_| !matches!(role, Role::Explorer { .. }));
    let read_only = match role {
        Role::Explorer { .. } => Some("an explorer only looks"),
        Role::Replay => Some("a replay only shows what was"),
        Role::Console => settings.read_only,
    };
    let broker = if role == Role::Replay { "none: a replay".to_owned() } else { settings.broker };
    let notifies = settings.notifies && role == Role::Console;
    Ok(Settings { role, history, read_only, broker, notifies, ..settings })
}

fn alertmanager(settings: &Settings, config: &Config) -> anyhow::Result<Option<Alertmanager>> {
    if !settings.notifies {
        return Ok(None);
    }
    let alertmanager = Alertmanager::new(&config.alertmanager).context("alertmanager.ca_file");
    alertmanager.map_err(|error| exit::with_code(exit::CONFIG, error))
}

fn tls(config: &WebConfig) -> anyhow::Result<Option<Tls>> {
    let (Some(cert_file), Some(key_file)) = (&config.cert_file, &config.key_file) else { return Ok(None) };
    let tls = Tls::load(["web.cert_file", "web.key_file"], cert_file, key_file);
    tls.map(Some).map_err(|error| exit::with_code(exit::CONFIG, error))
}

fn report_event(health: &Health, event: &Event) {
    match event {
        Event::Node(event) => service::report_node(health, "mqtt", event),
        Event::Host(HostEvent::Online) => report(health, "mqtt_host", Ok("listening")),
        Event::Host(HostEvent::Offline { reason }) => report(health, "mqtt_host", Err(reason)),
        _ => {}
    }
}

fn report(health: &Health, component: &str, state: Result<&str, &str>) {
    let (Ok(reason) | Err(reason)) = state;
    health.component(component, state.is_ok(), reason);
}
