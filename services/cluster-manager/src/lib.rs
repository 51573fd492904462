//! The cluster manager: sets edge clusters up, keeps their repositories, and tells each cluster what to run.
//!
//! ```text
//!  ConfigDB (births, data) ──> replica ──┐
//!                                        ├─> state ──> setup::decide ───────> steps: DCMD to ConfigDB, git work
//!  every */Sync (births, data) ──────────┤        ├──> reconcile::plan ─────> NCMD index, DCMD manifests to Sync
//!  every */Join (births, data) ──────────┤        ├──> policy forwarding ───> NCMD policy to Join
//!  every */Keys (births, data) ──────────┤        ├──> accounts::plan ──────> DCMD to ConfigDB, DCMD answers to Keys
//!  clusters in the quarantine group ─────┤        ├──> authority::judge ────> the record in ConfigDB, then the sealed answer: NCMD
//!  git results, deadlines, Setup/Retry ──┤        ├──> a Device per cluster, totals of the node
//!  questions over HTTP ──────────────────┘        └──> answers, work on secrets
//! ```
//!
//! One cluster's way:
//! 1. An `EdgeCluster` entry appears. [`setup`] decides the next step from what ConfigDB holds; the step is a write to ConfigDB, or work on the cluster's
//!    repository ([`cluster_repo`] says what is in it). Its effect comes back as data, and the next step is decided. The last one makes the cluster `ready`.
//! 2. The edge enrols, and later renews: [`authority`] judges its token or certificate, the use is recorded in `EdgeClusterIdentity`, and only then [`adapters::authority`] signs its certificate.
//! 3. The edge is bootstrapped: whoever has one of the cluster's tokens fetches its script ([`bootstrap`], [`adapters::bootstrap_http`]) and runs it. Its Flux clones the
//!    repository over HTTP ([`adapters::git_http`]), its Sync is born. [`status`] turns what Sync reports into the `EdgeClusterStatus` entry.
//! 4. An `EdgeDeployment` entry appears. [`mod@render`] makes manifests of it and its chart template ([`template`], [`merge`], [`names`]); [`reconcile`] compares what the cluster shall
//!    have with what Sync reports; the index and the manifests are sent, with growing pauses, until Sync reports them applied or refused.
//! 5. An `AttestationPolicy` entry is brought to the cluster's Join node in the same way; whether Join has taken it over, and why not, stands in the cluster's Device.
//! 6. A KerberosKey wants an account for its principal: [`accounts`] judges the wish, the account is written to ConfigDB, and the cluster's Keys node is told of it until it shows that it knows.
//! 7. A changed entry or template starts the steps again that it affects. A deleted `EdgeCluster` entry starts the tear-down.
//!
//! People ask over HTTP ([`adapters::http`]); who may do what is in [`access`], what is done to secrets in [`secrets`].
//!
//! Nothing is stored here for the state: what is wanted and how far it is stands in ConfigDB, what an edge has is reported by the edge. So the effects of a turn
//! never wait for a commit, and there is no ledger. The disk holds only repositories, their passwords, the keys of the authority, the bdSeq and the record of writes.
#![warn(missing_docs)]

pub mod access;
pub mod accounts;
pub mod adapters;
pub mod api;
pub mod authority;
pub mod bootstrap;
pub mod catalog;
pub mod cluster_repo;
pub mod config;
pub mod event;
pub mod git_address;
pub mod merge;
pub mod names;
pub mod reconcile;
pub mod render;
pub mod rollout;
pub mod secrets;
pub mod setup;
pub mod shared_repository;
pub mod state;
pub mod status;
pub mod template;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use cluster_manager_contract::NodeMetrics;
use service_runtime::exit;
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use sparkplug_mqtt::{Clock, unless_displaced};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use access::rate::Rate;
use adapters::authority::Authority;
use adapters::bootstrap_http::{self, Board};
use adapters::external::External;
use adapters::git_client::Credentials;
use adapters::git_push::Hooks;
use adapters::http::desk::{Desk, QUESTIONS_MAX};
use adapters::http::identities::Identities;
use adapters::http::oidc::{Limits, Provider};
use adapters::http::tls::Tls;
use adapters::http::{audit_file, people, server};
use adapters::kdc::Realm;
use adapters::pulls::Pulls;
use adapters::quarantine::QuarantineFiles;
use adapters::repositories::Repositories;
use adapters::sparkplug::Sessions;
use adapters::{git_http, git_work};
use api::Asked;
use bootstrap::FluxSource;
use event::{Effect, Event, SharedAction, SharedWork};
use git_address::GitAddress;
use state::{ClusterManager, Left, Settings};

pub use adapters::repositories::password_file;
pub use config::Config;

/// Results of git work that wait for the loop. It takes them one by one and never waits for the worker, so any small number does.
const GIT_RESULTS_MAX: usize = 64;

/// Largest manifests of Flux that travel in a script; those of Flux 2.7 have some 500 KiB.
const FLUX_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Runs the cluster manager until `shutdown`; returns when its death is published.
///
/// # Errors
/// The configuration, the state directory, the address of the git server, or a session that ended by itself.
// long: everything is made once, in the order in which one thing needs another.
pub async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    let organisation = config.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    config.mqtt.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let state_dir = config.state_dir.clone();
    let charts_dir = config.git.charts_dir.clone();
    let (repositories, (charts_commit, charts)) = tokio::task::spawn_blocking(move || {
        state_dir.create().with_context(|| format!("state_dir {} cannot be made", state_dir.display()))?;
        let repositories = Repositories::load(&state_dir)?;
        let charts = git_work::write_shared(&repositories, charts_dir.as_deref())?;
        anyhow::Ok((repositories, charts))
    })
    .await?
    .context("repositories")?;
    let (repositories, external) = external(&config.git, repositories).await?;

    let flux = flux_source(&config.bootstrap.flux).map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let login = QuarantineFiles::new(&organisation, &config.bootstrap);
    // They are read again for each script; what is wrong with them is to be seen at the start.
    login.read().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let clock = Clock::new();
    let (state_dir, organisation_name, identity) =
        (config.state_dir.clone(), organisation.clone(), config.identity.clone());
    let now_ms = clock.now().wall;
    let authority =
        tokio::task::spawn_blocking(move || Authority::load(&state_dir, &organisation_name, &identity, now_ms))
            .await?
            .context("identity")
            .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let authority = Arc::new(authority);

    let realm = Realm::open(&config.identity.kerberos, &config.state_dir)
        .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let addr = config.git.listen;
    let listener = TcpListener::bind(addr).await.with_context(|| format!("git.listen: cannot listen on {addr}"))?;
    let local = listener.local_addr().context("git.listen")?;
    let tls = tls(&config.git)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let git_url = config.git.public_url.clone().unwrap_or_else(|| format!("{scheme}://{local}"));
    let git_url = git_url.trim_end_matches('/').to_owned();
    tracing::info!(addr = %local, url = git_url, "serving git and the API");

    // Charts that the site keeps on its own server are not to be seen here.
    let charts = Some(charts).filter(|_| config.git.external.url.is_none() || config.git.charts_dir.is_some());
    let charts_commit = Some(charts_commit);
    let settings = Settings { charts_commit, charts, ..settings(&config, organisation.clone(), git_url, &authority) };
    let left = Left { clusters: repositories.open_clusters(), shared: repositories.open_shared() };
    let manager = ClusterManager::new(settings, left, random()?, clock.now());
    let sessions = Sessions::start(&organisation, manager.node_metrics(), &config.mqtt, &config.state_dir, clock)?;
    let identities = identities(&config.api.oidc)?;
    let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
    let (records, entries) = mpsc::channel(QUESTIONS_MAX);
    let desk = Desk::new(questions, records);
    let recorder = tokio::spawn(audit_file::run(audit_file::path(&config.state_dir), entries));
    let peers = Rate::per_minute(config.api.address_requests_per_minute);
    let board = Board::default();
    let scripts =
        bootstrap_http::router(board.clone(), repositories.clone(), script_settings(&config, flux, login), clock);
    let people = people::router(
        desk.clone(),
        peers,
        tls.is_some(),
        identities.clone(),
        &audit_file::path(&config.state_dir),
        clock,
    );
    let state_dir = config.state_dir.clone();
    let hooks = tokio::task::spawn_blocking(move || Hooks::install(&state_dir)).await?.context("state_dir")?;
    let (polls, polled) = mpsc::channel(POLLS_MAX);
    let (pushed, pushes) = mpsc::channel(POLLS_MAX);
    let links = git_http::Links { desk: desk.clone(), identities, hooks, polls, pushed };
    let router = git_http::router(repositories.clone(), links, &config.git);
    let router = router.merge(people).merge(scripts);
    // The server ends with the loop, also when that ends with an error.
    let http_stop = shutdown.child();
    let http_server = tokio::spawn(server::serve(listener, router, tls, http_stop.clone()));
    let git = &config.git;
    let limit = Duration::from_secs(git.pull_timeout_s);
    let pulls = Pulls::new(repositories.clone(), git.credentials_dir.clone(), git.ca_file.clone(), limit);
    let outside = Outside {
        external,
        sessions,
        repositories,
        authority,
        realm,
        pulls,
        board,
        desk,
        questions: asked,
        polled,
        pushes,
    };
    let ended = serve(manager, outside, clock, &shutdown, &health).await;
    http_stop.trigger();
    let http_ended = http_server.await;
    recorder.await.context("record of writes")?;
    ended?;
    http_ended.context("HTTP server")?.context("HTTP server")
}

/// The site's own git server, if clusters follow theirs there.
async fn external(
    config: &config::GitConfig,
    repositories: Repositories,
) -> anyhow::Result<(Repositories, Option<External>)> {
    let readers = match config.external.cluster_credentials_file.clone() {
        Some(file) => {
            let read = tokio::task::spawn_blocking(move || Credentials::read(&file)).await?;
            let read = read.context("git.external.cluster_credentials_file");
            Some(read.map_err(|error| exit::with_code(exit::CONFIG, error))?)
        }
        None => None,
    };
    let repositories = repositories.with_readers(readers);
    let limit = Duration::from_secs(config.pull_timeout_s);
    let external = External::new(&config.external, config.ca_file.clone(), limit);
    if let Some(external) = external.clone().filter(|_| config.charts_dir.is_some()) {
        tokio::spawn(git_work::share(repositories.clone(), external));
    }
    Ok((repositories, external))
}

/// What the loop speaks with.
struct Outside {
    external: Option<External>,
    sessions: Sessions,
    repositories: Repositories,
    authority: Arc<Authority>,
    realm: Realm,
    pulls: Pulls,
    board: Board,
    desk: Desk,
    questions: mpsc::Receiver<Asked>,
    polled: mpsc::Receiver<uuid::Uuid>,
    pushes: mpsc::Receiver<uuid::Uuid>,
}

fn identities(config: &config::OidcConfig) -> anyhow::Result<Option<Identities>> {
    let Some(issuer) = &config.issuer else { return Ok(None) };
    let provider = Provider::new(issuer, &config.audience, config.ca_file.as_deref(), Limits::default());
    let provider = provider.map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let rules = config.rules().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    Ok(Some(Identities { provider, rules }))
}

fn tls(config: &config::GitConfig) -> anyhow::Result<Option<Tls>> {
    let (Some(cert_file), Some(key_file)) = (&config.cert_file, &config.key_file) else { return Ok(None) };
    Tls::load(cert_file, key_file).map(Some).map_err(|error| exit::with_code(exit::CONFIG, error))
}

/// Polls of Flux that wait for the loop.
const POLLS_MAX: usize = 256;

/// The loop: one owner of the state.
// long: an arm for each source of events and each kind of effect.
async fn serve(
    mut manager: ClusterManager,
    outside: Outside,
    clock: Clock,
    shutdown: &Shutdown,
    health: &Health,
) -> anyhow::Result<()> {
    let Outside {
        external,
        mut sessions,
        repositories,
        authority,
        realm,
        pulls,
        board,
        desk,
        mut questions,
        mut polled,
        pushes,
    } = outside;
    let mut calls = JoinSet::new();
    // The worker takes one piece at a time. What waits is kept here, so that the loop never waits for a disk; a cluster has at most one piece under way.
    let (work, inbox) = mpsc::channel::<git_work::Work>(1);
    let mut waiting = VecDeque::new();
    let (outlet, mut results) = mpsc::channel(GIT_RESULTS_MAX);
    let worker = tokio::spawn(git_work::run(repositories.clone(), external, inbox, pushes, outlet));
    let mut ready = None;
    let ended = loop {
        let is_ready = manager.is_ready();
        if ready.replace(is_ready) != Some(is_ready) {
            health.component("configdb", is_ready, if is_ready { "known completely" } else { "not known completely" });
        }
        count(manager.totals());
        let effects = manager.take_effects().nothing_to_save();
        let mut lost = None;
        for effect in effects {
            let Some(effect) = certify(&authority, &repositories, effect).await else { continue };
            match sessions.execute(effect).await {
                Ok(Some(Effect::Git(git))) => waiting.push_back(git_work::Work::Git(git)),
                Ok(Some(Effect::Secret(secret))) => waiting.push_back(git_work::Work::Secret(secret)),
                Ok(Some(Effect::Shared(SharedWork { repository, action: SharedAction::Pull { branch, pull } }))) => {
                    drop(calls.spawn(pulls.clone().carry_out(repository, branch, pull)));
                }
                Ok(Some(Effect::Shared(shared))) => waiting.push_back(git_work::Work::Shared(shared)),
                Ok(Some(Effect::Principals(work))) => drop(calls.spawn(realm.clone().carry_out(work))),
                Ok(Some(Effect::Answer(answer))) => desk.answer(*answer),
                Ok(Some(Effect::Record(record))) => desk.record(*record),
                Ok(Some(Effect::Offer { cluster, offer })) => board.set(cluster, offer),
                Ok(Some(Effect::Script(script))) => board.set_script(script),
                Ok(_) => {}
                Err(stopped) => lost = Some(stopped),
            }
        }
        if let Some(stopped) = lost {
            break Err(anyhow::Error::from(stopped).context("Sparkplug session"));
        }
        let event = tokio::select! {
            () = shutdown.wait() => break Ok(()),
            event = sessions.host.recv() => match event {
                Some(event) => Event::Host(event),
                None => break Err(anyhow::anyhow!("the Host Application's session ended by itself")),
            },
            event = sessions.node.recv() => match event {
                Some(event) => match unless_displaced(event) {
                    Ok(event) => Event::Node(event),
                    Err(other) => break Err(exit::with_code(exit::REFUSED, other)),
                },
                None => break Err(anyhow::anyhow!("the Edge Node's session ended by itself")),
            },
            Some(result) = results.recv() => result,
            Some(asked) = questions.recv() => Event::Asked(asked),
            Some(cluster) = polled.recv() => Event::Polled(cluster),
            Some(answer) = calls.join_next() => match answer {
                Ok(event) => event,
                Err(error) => break Err(anyhow::Error::from(error).context("call of another server")),
            },
            Ok(place) = work.reserve(), if !waiting.is_empty() => {
                if let Some(git) = waiting.pop_front() {
                    place.send(git);
                }
                continue;
            }
            () = clock.sleep_until(manager.next_deadline()) => Event::Tick,
        };
        manager.on_event(event, clock.now());
    };
    sessions.stop().await;
    drop(work);
    drop(results);
    worker.await.context("git worker")?;
    ended
}

/// The authority's part of an effect: an answer becomes the command that carries it. None: nothing is left to do.
async fn certify(authority: &Arc<Authority>, repositories: &Repositories, effect: Effect) -> Option<Effect> {
    match effect {
        Effect::Enrol(order) => match authority.answer(&order, repositories) {
            Ok(command) => Some(Effect::Host(command)),
            Err(error) => {
                let error = format!("{:#}", anyhow::Error::new(error));
                tracing::warn!(cluster_id = %order.opened.cluster, error, "a cluster that enrols cannot be answered");
                None
            }
        },
        Effect::Revocations { void, at } => {
            let authority = Arc::clone(authority);
            // One list after the other, and none is left out; only a panic in it would not come back.
            let written = tokio::task::spawn_blocking(move || authority.revoke(void, at)).await.ok()?;
            if let Err(error) = written {
                let error = format!("{:#}", anyhow::Error::new(error));
                tracing::error!(error, "the list of void certificates cannot be written");
            }
            None
        }
        other => Some(other),
    }
}

/// The same numbers for Prometheus as on the wire.
fn count(totals: &NodeMetrics) {
    for (state, number) in [
        ("all", totals.clusters_total),
        ("ready", totals.clusters_ready),
        ("refused", totals.clusters_refused),
        ("deleting", totals.clusters_deleting),
        ("held", totals.clusters_held),
    ] {
        metrics::gauge!("sparkfleet_clusters", "state" => state).set(f64::from(number));
    }
    for (state, number) in [("all", totals.deployments_total), ("refused", totals.deployments_refused)] {
        metrics::gauge!("sparkfleet_deployments", "state" => state).set(f64::from(number));
    }
}

/// What a script leaves for the way back, if it enrols at all.
fn quarantine(config: &config::BootstrapConfig) -> Option<cluster_repo::Quarantine> {
    let (certificate, username) = (config.mqtt_cert_file.is_some(), config.mqtt_username.clone());
    let leaves = config.image.is_some() && (certificate || username.is_some());
    leaves.then_some(cluster_repo::Quarantine { certificate, username })
}

fn settings(
    config: &Config,
    organisation: configdb_schema::Organisation,
    git_url: String,
    authority: &Authority,
) -> Settings {
    let git = GitAddress { own: git_url, external: config.git.external.url.clone() };
    Settings {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cluster: cluster_repo::Settings {
            organisation: config.organisation.clone(),
            git: git.clone(),
            mqtt_servers: config.edge.mqtt_servers.clone(),
            mqtt_secret: config.edge.mqtt_secret.clone(),
            quarantine: quarantine(&config.bootstrap),
            realm: config.realm().map(str::to_owned),
        },
        deployment: render::Settings {
            git,
            base_values: config.base_values(),
            manifests_bytes_max: config.edge.manifests_bytes_max,
        },
        away: Duration::from_secs(config.timing.away_s),
        flux_away: Duration::from_secs(config.timing.flux_away_s),
        rate: Rate::per_minute(config.api.requests_per_minute),
        retry: (Duration::from_millis(config.timing.retry_first_ms), Duration::from_millis(config.timing.retry_max_ms)),
        identity: Some(authority.identity()),
        realm: config.realm().map(str::to_owned),
        charts_commit: None,
        charts: None,
        charts_written: config.git.charts_dir.is_some(),
        organisation,
    }
}

fn script_settings(config: &Config, flux: FluxSource, login: QuarantineFiles) -> bootstrap_http::Settings {
    bootstrap_http::Settings {
        organisation: config.organisation.clone(),
        flux,
        image: config.bootstrap.image.clone(),
        mqtt_servers: config.edge.mqtt_servers.clone(),
        login,
    }
}

/// An address that the edge fetches Flux from, or a file here that travels in the script. Blocks, once at the start.
fn flux_source(source: &str) -> anyhow::Result<FluxSource> {
    if source.starts_with("http://") || source.starts_with("https://") {
        return Ok(FluxSource::Url(source.to_owned()));
    }
    let manifests = std::fs::read_to_string(source).with_context(|| format!("bootstrap.flux: cannot read {source}"))?;
    anyhow::ensure!(manifests.len() <= FLUX_BYTES_MAX, "bootstrap.flux: {source} has more than {FLUX_BYTES_MAX} bytes");
    Ok(FluxSource::Manifests(manifests.into()))
}

fn random() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| anyhow::anyhow!("the system yields no random numbers"))?;
    Ok(u64::from_le_bytes(bytes))
}
