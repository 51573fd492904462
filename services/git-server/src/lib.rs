//! The git server: copies of the fleet's repositories, served to clusters and users over HTTP. It makes no commit and holds no key.
//!
//! ```text
//!  cluster manager ── NCMD: what each copy shall be ──> state/copies.rs ──> adapters/copying.rs: the disk
//!                  ── DCMD: packs of objects ─────────>        │
//!                  <── a Device for each copy ─────────────────┘
//!                  <── a Device for each push, DCMD ── state/pushes.rs
//!  ConfigDB (tokens of users) ───────────────────────> state/users.rs
//!                                                              │ asked by adapters/gatekeeper.rs
//!  clusters, by their passwords; users, by tokens ───> git_hosting::http
//! ```
//!
//! One commit's way to a cluster:
//! 1. The cluster manager commits to its own repository, and commands what the copy's references shall be ([`git_server_contract::desired`]).
//! 2. The desired state is recorded on the disk. If objects are missing, the Device of the copy says so, and the cluster manager sends them as a pack in parts ([`git_server_contract::pack`]).
//! 3. The pack is judged apart ([`git_hosting::scratch`]). Only when all objects of the desired references are there, these move, all together ([`git_hosting::copies`]).
//! 4. The Device shows the new commit, and the cluster fetches it.
//!
//! A push's way:
//! 1. It is received apart from the copy, and judged by the rules of paths ([`git_hosting::push`]).
//! 2. A Device shows what it changes, with the user's credential sealed to the cluster manager, and brings its objects part by part.
//! 3. The cluster manager decides as if the user had come to it, and moves its branch. Then the copy's desired state is another one, and the client's push ends.
//!
//! There is no `reconcile.rs`: what shall be and what is are compared in `state/copies.rs`, for one copy.
//!
//! A thief of this process logs in nowhere: passwords and tokens are here as digests. But edges follow branch `main` without a signature, so it could serve them other content.
#![warn(unreachable_pub)]

pub mod adapters;
pub mod config;
pub mod event;
pub mod state;

use std::sync::Arc;
use std::time::Duration;

use access::rate::Rate;
use anyhow::Context as _;
use git_hosting::push::Hooks;
use git_hosting::repositories::Repositories;
use git_hosting::upkeep::Upkeep;
use service_runtime::exit;
use service_runtime::health::Health;
use service_runtime::http::server;
use service_runtime::http::tls::Tls;
use service_runtime::record::{self, RecordFile};
use service_runtime::service::{self, ServiceIo};
use service_runtime::sessions::{self, Sessions};
use service_runtime::shutdown::Shutdown;
use sparkplug::edge_node::NodeEvent;
use sparkplug_mqtt::Clock;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use uuid::Uuid;

pub use config::Config;

use adapters::copying;
use adapters::gatekeeper::{QUESTIONS_MAX, StateGatekeeper};
use adapters::sparkplug::{host_config, node_config, own_descriptor};
use adapters::store::Store;
use event::{Effect, Event, GitRequest, PushRequest};
use state::{Settings, State};

/// Polls of clusters that wait for the loop.
const POLLS_MAX: usize = 256;

/// Copies that the disk works on at the same time: each may take a core and some 100 MB while it takes a pack.
const COPYING_MAX: usize = 4;

/// Repositories that wait to be tidied up; one that is left out is looked at after its next change.
const UPKEEP_MAX: usize = 256;

/// Runs the git server until `shutdown`; returns when its death is published.
///
/// # Errors
/// The configuration, the state directory, the address, or a session that ended by itself.
pub async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    // The configuration is judged first: it says better what is wrong than a port that is taken.
    config.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("listen: cannot listen on {}", config.listen))
        .map_err(|error| exit::with_code(exit::UNAVAILABLE, error))?;
    serve(config, listener, shutdown, health).await
}

/// The same with an address that is taken already.
///
/// # Errors
/// As [`run`].
// long: everything is made once, in the order in which one thing needs another.
pub async fn serve(config: Config, listener: TcpListener, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    let organisation = config.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    config.mqtt.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let state_dir = config.state_dir.clone();
    let (store, persisted, hooks) = tokio::task::spawn_blocking(move || {
        state_dir.create().with_context(|| format!("state_dir {} cannot be made", state_dir.display()))?;
        let (store, persisted) = Store::load(&state_dir)?;
        let hooks = Hooks::install(&state_dir).context("state_dir")?;
        anyhow::Ok((store, persisted, hooks))
    })
    .await?
    .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let tls = tls(&config)?;
    let identities = config.users.oidc.identities().map_err(config::ConfigError::Oidc);
    let identities = identities.map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let local = listener.local_addr().context("listen")?;
    let url = format!("{}://{local}", if tls.is_some() { "https" } else { "http" });
    tracing::info!(addr = %local, url, repositories = persisted.len(), "serving git");

    let clock = Clock::new();
    let settings = Settings {
        organisation: organisation.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        url,
        rate: Rate::per_minute(config.users.requests_per_minute),
        retry: (Duration::from_millis(config.retry_first_ms), Duration::from_millis(config.retry_max_ms)),
        push_limit: Duration::from_secs(config.request_timeout_s),
    };
    let mut state = State::new(settings, persisted, clock.now());
    let configs = (node_config(own_descriptor(&organisation)?), host_config(&organisation)?);
    let sessions = Sessions::start(configs, state.node_metrics(), &config.mqtt, &config.state_dir, clock)?;
    // Clusters read what an earlier process left, whatever else is away: such a process is ready at once.
    let is_ready = state.node().repositories > 0;
    health.component("mqtt", is_ready, "connecting");
    health.component("configdb", is_ready, "not known completely: users are not admitted");
    let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
    let (polls, polled) = mpsc::channel(POLLS_MAX);
    let (changed, upkeep) = mpsc::channel(UPKEEP_MAX);
    let (pushes, pushed) = mpsc::channel(QUESTIONS_MAX);
    let gatekeeper = StateGatekeeper::new(questions, pushes, polls, identities);
    let serving = git_hosting::http::Settings {
        anonymous: config.anonymous,
        children_max: config.children_max,
        request_timeout: Duration::from_secs(config.request_timeout_s),
        passwords: store.passwords.clone(),
        hooks,
        pushed: changed.clone(),
        scratches: Some(store.scratches.clone()),
    };
    let router = git_hosting::http::router(store.repositories.clone(), gatekeeper.clone(), serving);
    // The server ends with the loop, also when that ends with an error.
    let stop = shutdown.child();
    let serving = tokio::spawn(server::serve(listener, router, tls, stop.clone()));
    let tidying = tokio::spawn(tidy_up(store.repositories.clone(), upkeep));
    let mut io = Io {
        sessions,
        store,
        record: RecordFile::new(record::path(&config.state_dir)),
        gatekeeper,
        asked,
        pushed,
        polled,
        copying: JoinSet::new(),
        places: Arc::new(Semaphore::new(COPYING_MAX)),
        changed,
        was_born: is_ready,
        was_known: is_ready,
        health,
    };
    let ended = service::serve(&mut state, &mut io, clock, &shutdown).await;
    stop.trigger();
    // What is under way on the disk is ended by its end; it is begun again at the next start.
    tidying.abort();
    io.stop().await;
    let served = serving.await.context("HTTP server")?;
    ended?;
    served.context("HTTP server")
}

fn tls(config: &Config) -> anyhow::Result<Option<Tls>> {
    let (Some(cert_file), Some(key_file)) = (&config.cert_file, &config.key_file) else { return Ok(None) };
    let tls = Tls::load(["cert_file", "key_file"], cert_file, key_file);
    tls.map(Some).map_err(|error| exit::with_code(exit::CONFIG, error))
}

/// Packs repositories that have become many files, one after the other.
async fn tidy_up(repositories: Repositories, mut changed: mpsc::Receiver<Uuid>) {
    let upkeep = Upkeep::default();
    while let Some(repository) = changed.recv().await {
        upkeep.look_after(&repositories, repository).await;
    }
}

service_runtime::service_core!(State, Event, Effect);

/// Everything outside of the state.
struct Io {
    sessions: Sessions,
    store: Store,
    /// Of pushes that were refused here.
    record: RecordFile,
    gatekeeper: StateGatekeeper,
    asked: mpsc::Receiver<GitRequest>,
    pushed: mpsc::Receiver<PushRequest>,
    polled: mpsc::Receiver<Uuid>,
    copying: JoinSet<Event>,
    places: Arc<Semaphore>,
    /// Gets the repositories that have become more files; while it is full it gets none.
    changed: mpsc::Sender<Uuid>,
    /// It was ready for other nodes once.
    was_born: bool,
    /// ConfigDB was known once.
    was_known: bool,
    health: Health,
}

impl Io {
    /// Lets go of the clients that wait for the state, and says that the node dies.
    async fn stop(self) {
        self.gatekeeper.stop();
        self.sessions.stop().await;
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
            Some(asked) = self.asked.recv() => Event::GitRequest(asked),
            Some(push) = self.pushed.recv() => Event::Pushed(push),
            Some(cluster) = self.polled.recv() => Event::Polled(cluster),
            Some(copied) = self.copying.join_next() => copied.context("work on a copy")?,
        })
    }

    async fn execute(&mut self, effect: Effect) -> anyhow::Result<()> {
        match effect {
            Effect::Node(update) => sessions::update(&self.sessions.node, update).await,
            Effect::Host(request) => self.sessions.request(request).await.context("a session ended")?,
            Effect::Answer(id, answer) => self.gatekeeper.answer(id, answer),
            Effect::Record(record) => self.record.keep(&*record).await,
            Effect::PushEnded(id, ended) => self.gatekeeper.end_push(id, ended),
            Effect::Copy(work) => {
                let (store, places, changed) = (self.store.clone(), Arc::clone(&self.places), self.changed.clone());
                self.copying.spawn(async move {
                    let _place = places.acquire_owned().await;
                    let (repository, has_packs) = (work.desired.repository, !work.packs.is_empty());
                    let result = copying::copy(store, *work).await;
                    if has_packs {
                        // If this one is not sent, a later change sends another.
                        let _ = changed.try_send(repository);
                    }
                    Event::Copied(result)
                });
            }
        }
        Ok(())
    }

    /// What was ready once stays ready: to take clusters away from a server that they can read from would help no one.
    fn report(&mut self, event: &Event) {
        match event {
            Event::Node(NodeEvent::Offline { reason }) if self.was_born => {
                self.health.component("mqtt", true, format!("{reason}; clusters read what is here"));
            }
            Event::Node(event) => {
                self.was_born |= matches!(event, NodeEvent::Born { .. });
                service::report_node(&self.health, "mqtt", event);
            }
            _ => {}
        }
    }

    fn publish(&mut self, state: &State) {
        self.was_known |= state.is_ready();
        if self.was_known {
            let reason =
                if state.is_ready() { "known completely" } else { "not known completely: users are not admitted" };
            self.health.component("configdb", true, reason);
        }
        let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        metrics::gauge!("sparkfleet_git_copies").set(f64::from(state.node().repositories));
        metrics::gauge!("sparkfleet_git_pushes").set(f64::from(state.node().pushes));
        metrics::gauge!("sparkfleet_git_copies_waiting").set(count(state.waiting()));
    }
}
