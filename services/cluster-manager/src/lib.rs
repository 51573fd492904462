//! The cluster manager: sets edge clusters up, keeps their repositories, and sends each cluster what to run.
//!
//! ```text
//!  ConfigDB (births, data) ──────────────┐                    ┌─> setup::decide ─────> steps: DCMD to ConfigDB, git work
//!  every */Sync (births, data) ──────────┼─> fleet::FleetView ├─> reconcile::plan ───> NCMD index, DCMD manifests to Sync
//!  every */Join, */Keys (births, data) ──┤     (read only)    ├─> controllers ───────> NCMD policy to Join, commits to Sync; accounts
//!  Identity (its enrolment key) ─────────┤          │         └─> a Device per cluster, totals of the node
//!  the git server (copies, pushes) ──────┘          │
//!  git results, deadlines, Setup/Retry ──┬───────> state
//!  users who push over git ──────────────┘          └───────────> answers
//! ```
//!
//! One cluster's way:
//! 1. An `EdgeCluster` entry appears. `setup` decides the next step from what ConfigDB holds; the step is a write to ConfigDB, or work on the cluster's
//!    repository ([`cluster_repo`] says what is in it). Its effect comes back as data, and the next step is decided. The last one makes the cluster `ready`.
//! 2. The edge enrols, and later renews, at the service Identity. What that needs of the manager is the login of the cluster's repository, sealed, in the cluster's Device
//!    (`controllers::logins`); what it has done is in the `EdgeClusterIdentity` entry (`identity`).
//! 3. The edge is bootstrapped: an operator with one of the cluster's tokens fetches its script ([`bootstrap`], [`adapters::bootstrap_http`]) and runs it. Its Flux clones the
//!    repository from the git server, which has a copy (`controllers::git_copies`), its Sync is born. `status` turns what Sync reports into the `EdgeClusterStatus` entry.
//! 4. An `EdgeDeployment` entry appears. [`mod@manifests::render`] makes manifests of it and its chart template ([`manifests::template`], [`manifests::merge`], [`manifests::names`]). [`reconcile`] compares what the cluster shall
//!    have with what Sync reports. The index and the manifests are sent, with growing pauses, until Sync reports them applied or refused.
//! 5. An `AttestationPolicy` entry is brought to the cluster's Join node in the same way; whether Join has taken it over, and why not, is reported in the cluster's Device.
//! 6. A KerberosKey wants an account for its principal: `accounts` judges the request, the account is written to ConfigDB, and sent to the cluster's Keys node until Keys reports it.
//! 7. A `SealedSecret` entry is brought into the cluster's repository, key by key ([`secrets`]); Flux applies it. The cluster's Device says which secrets are there.
//! 8. A changed entry or template starts the steps again that it affects. A deleted `EdgeCluster` entry starts the tear-down.
//!
//! What users push the git server receives; here it is judged and taken over (`controllers::git_pushes`, `controllers::git_users`, [`adapters::git_pushes`]). Who may do what is in
//! [`access`].
//!
//! Nothing is stored here for the state: what is wanted and how far it is are in ConfigDB, what an edge has is reported by the edge. So the effects of a turn
//! never wait for a commit, and there is no ledger. The disk holds only repositories, their passwords, the bdSeq and the record of writes.
#![warn(unreachable_pub)]

mod accounts;
pub mod adapters;
pub mod bootstrap;
pub mod cluster_repo;
pub mod config;
mod controllers;
mod devices;
pub mod event;
mod fleet;
pub mod git_users;
mod identity;
pub mod reconcile;
mod requests;
mod rollout;
pub mod secrets;
mod setup;
mod shared_repository;
pub mod state;
mod status;
pub mod wanted_by;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use cluster_manager_contract::{NodeMetrics, SealedLogin};
use enrolment_protocol::identity::IdentityKey;
use enrolment_protocol::login::Login;
use git_hosting::client::Credentials;
use git_hosting::credential::CredentialKeyPair;
use git_hosting::external::External;
use git_hosting::pulls::{Pull, Pulled, Pulls};
use git_hosting::push::{Hooks, Receiver};
use git_hosting::repositories::{Kind, Repositories, RepositoryRecord};
use manifests::git_address::GitAddress;
use manifests::render;
use service_runtime::config::ExposeSecret as _;
use service_runtime::exit;
use service_runtime::health::Health;
use service_runtime::http::server;
use service_runtime::http::tls::Tls;
use service_runtime::record::{self, RecordFile};
use service_runtime::service::{self, ServiceIo};
use service_runtime::sessions::{self, Sessions};
use service_runtime::shutdown::Shutdown;
use sparkplug_mqtt::Clock;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use uuid::Uuid;

use access::rate::Rate;
use adapters::bootstrap_http::{self, ScriptStore};
use adapters::gatekeeper::StateGatekeeper;
use adapters::git_copies::GitCopies;
use adapters::git_pushes::PushTaker;
use adapters::git_work;
use adapters::git_work::Hosted;
use adapters::kdc::Realm;
use adapters::passwords::ClusterPasswords;
use adapters::quarantine::QuarantineFiles;
use adapters::sparkplug::{host_config, node_config, own_descriptor};
use adapters::state_client::{QUESTIONS_MAX, StateClient, keep_records};
use bootstrap::FluxSource;
use event::{CopyAction, CopyWork, Effect, Event, LoginResult, SharedAction, SharedOutcome, SharedResult, SharedWork};
use git_users::GitRequest;
use state::{ClusterManager, PersistedRepositories, PersistedRepository, Settings};

pub use adapters::passwords::password_file;
pub use config::Config;

/// Results of git work that wait for the loop. It takes them one by one and never waits for the worker, so any small number does.
const GIT_RESULTS_MAX: usize = 64;

/// Largest manifests of Flux that travel in a script; those of Flux 2.7 have some 500 KiB.
const FLUX_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Runs the cluster manager until `shutdown`; returns when its death is published.
///
/// # Errors
/// The configuration, the state directory, the address of the git server, or a session that ended by itself.
pub async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    // The configuration is judged first: it says better what is wrong than a port that is taken.
    config.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let listen = config.bootstrap.listen;
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("bootstrap.listen: cannot listen on {listen}"))
        .map_err(|error| exit::with_code(exit::UNAVAILABLE, error))?;
    serve(config, ShippedCharts::new(), listener, shutdown, health).await
}

/// Charts with which the shared repository begins, each file by its path: from then on it is the site's.
pub type ShippedCharts = BTreeMap<String, Vec<u8>>;

/// The same with an address for the bootstrap scripts that is taken already, and with charts for a shared repository that is made now.
///
/// # Errors
/// As [`run`].
// long: everything is made once, in the order in which one thing needs another.
pub async fn serve(
    config: Config,
    shipped: ShippedCharts,
    listener: TcpListener,
    shutdown: Shutdown,
    health: Health,
) -> anyhow::Result<()> {
    let organisation = config.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    config.mqtt.validate().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let state_dir = config.state_dir.clone();
    let left = state_dir.join("identity").join("enrolment.key");
    if left.exists() {
        let error = anyhow::anyhow!(
            "{} is a private key of Identity, which is a service of its own: move the directory identity into the state directory of `sparkfleet identity`",
            left.display()
        );
        return Err(exit::with_code(exit::CONFIG, error));
    }
    let charts_dir = config.git.charts_dir.clone();
    let (repositories, passwords, (charts_commit, charts)) = tokio::task::spawn_blocking(move || {
        state_dir.create().with_context(|| format!("state_dir {} cannot be made", state_dir.display()))?;
        let repositories = Repositories::load(&state_dir)?;
        let charts = git_work::write_shared(&repositories, charts_dir.as_deref(), shipped)?;
        let clusters = repositories.open_of(Kind::Cluster).into_iter().map(|(cluster, _)| cluster);
        let passwords = ClusterPasswords::load(&state_dir, clusters)?;
        anyhow::Ok((repositories, passwords, charts))
    })
    .await?
    .context("repositories")?;
    let hosted = hosted(&config.git, repositories.clone(), passwords).await?;
    let passwords = hosted.passwords.clone();

    let flux = flux_source(&config.bootstrap.flux).map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let login = QuarantineFiles::new(&organisation, &config.bootstrap);
    // They are read again for each script; what is wrong with them is to be seen at the start.
    login.read().map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let clock = Clock::new();
    let realm =
        Realm::open(&config.kerberos, &config.state_dir).map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let scripts_addr = listener.local_addr().context("bootstrap.listen")?;
    let tls = tls(&config.bootstrap)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let without_slash = |url: String| url.trim_end_matches('/').to_owned();
    let scripts_url = config.bootstrap.public_url.clone();
    let scripts_url = scripts_url.map_or_else(|| format!("{scheme}://{scripts_addr}"), without_slash);
    let git_url = config.git.public_url.clone().map(without_slash);
    tracing::info!(addr = %scripts_addr, url = scripts_url, "serving the bootstrap scripts");

    // Charts that the site keeps on its own server are not to be seen here.
    let charts = Some(charts).filter(|_| config.git.external.url.is_none() || config.git.charts_dir.is_some());
    let charts_commit = Some(charts_commit);
    let git_key = Arc::new(CredentialKeyPair::new(random_bytes()?));
    let settings = Settings {
        charts_commit,
        charts,
        scripts_url,
        git_key: git_key.public().to_string(),
        ..settings(&config, organisation.clone(), git_url)
    };
    let mut manager = ClusterManager::new(settings, persisted(&repositories), random()?, clock.now());
    let configs = (node_config(own_descriptor(&organisation)?), host_config(&organisation)?);
    let sessions = Sessions::start(configs, manager.node_metrics(), &config.mqtt, &config.state_dir, clock)?;
    let identities = config.git.oidc.identities().map_err(config::ConfigError::Oidc);
    let identities = identities.map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let (questions, asked) = mpsc::channel(QUESTIONS_MAX);
    let (records, entries) = mpsc::channel(QUESTIONS_MAX);
    let state_client = StateClient::new(questions, records);
    let recorder = tokio::spawn(keep_records(RecordFile::new(record::path(&config.state_dir)), entries));
    let script_store = ScriptStore::default();
    let scripts =
        bootstrap_http::router(script_store.clone(), passwords.clone(), script_settings(&config, flux, login), clock);
    let (state_dir, opened, own) = (config.state_dir.clone(), repositories.clone(), passwords.clone());
    let open = move || io::Result::Ok((Hooks::install(&state_dir)?, GitCopies::open(&state_dir, opened, own)?));
    let (hooks, copies) = tokio::task::spawn_blocking(open).await?.context("state_dir")?;
    let (pushed, pushes) = mpsc::channel(PUSHES_MAX);
    let gatekeeper =
        StateGatekeeper { state_client: state_client.clone(), identities, has_external: hosted.external.is_some() };
    let receiver = Receiver { hooks, gatekeeper, repositories: repositories.clone(), limit: PUSH_MAX, pushed };
    let taker = PushTaker::new(git_key, receiver);
    // The server ends with the loop, also when that ends with an error.
    let http_stop = shutdown.child();
    let http_server = tokio::spawn(server::serve(listener, scripts, tls, http_stop.clone()));
    let git = &config.git;
    let limit = Duration::from_secs(git.pull_timeout_s);
    let pulls = Pulls::new(repositories, git.credentials_dir.clone(), git.ca_file.clone(), limit);
    let (work, inbox) = mpsc::channel(1);
    let (result_sender, results) = mpsc::channel(GIT_RESULTS_MAX);
    let worker = tokio::spawn(git_work::run(hosted, inbox, pushes, result_sender));
    let mut io = Io {
        sessions,
        passwords,
        realm,
        pulls,
        script_store,
        state_client,
        questions: asked,
        copies,
        taker,
        calls: JoinSet::new(),
        sealing: Arc::new(Semaphore::new(1)),
        work,
        waiting: VecDeque::new(),
        results,
        ready: None,
        health,
    };
    let ended = service::serve(&mut manager, &mut io, clock, &shutdown).await;
    io.stop().await;
    worker.await.context("git worker")?;
    http_stop.trigger();
    let http_ended = http_server.await.context("HTTP server")?;
    recorder.await.context("record of writes")?;
    ended?;
    http_ended.context("HTTP server")
}

/// What an earlier process left open on the disk.
fn persisted(repositories: &Repositories) -> PersistedRepositories {
    let cluster = |(cluster, place): (Uuid, RepositoryRecord)| {
        let name = place.path.rsplit('/').next().unwrap_or_default().to_owned();
        PersistedRepository { cluster, name, wanted_by: git_work::wanted_by(&place) }
    };
    let shared = |(uuid, place): (Uuid, RepositoryRecord)| (uuid, git_work::wanted_by(&place));
    PersistedRepositories {
        clusters: repositories.open_of(Kind::Cluster).into_iter().map(cluster).collect(),
        shared: repositories.open_of(Kind::Shared).into_iter().map(shared).collect(),
    }
}

/// What is hosted, with the site's own git server, if clusters follow theirs there.
async fn hosted(
    config: &config::GitConfig,
    repositories: Repositories,
    passwords: ClusterPasswords,
) -> anyhow::Result<Hosted> {
    let readers = match config.external.cluster_credentials_file.clone() {
        Some(file) => {
            let read = tokio::task::spawn_blocking(move || Credentials::read(&file)).await?;
            let read = read.context("git.external.cluster_credentials_file");
            Some(read.map_err(|error| exit::with_code(exit::CONFIG, error))?)
        }
        None => None,
    };
    let limit = Duration::from_secs(config.pull_timeout_s);
    let (credentials, ca_file) = (&config.external.credentials_file, &config.ca_file);
    let external = config.external.url.clone();
    let external = external.map(|url| External::new(url, credentials.clone(), ca_file.clone(), limit));
    if let Some(external) = external.clone().filter(|_| config.charts_dir.is_some()) {
        tokio::spawn(git_work::share(repositories.clone(), external));
    }
    Ok(Hosted { repositories, passwords: passwords.with_readers(readers), external })
}

/// Everything outside of the state.
struct Io {
    sessions: Sessions,
    passwords: ClusterPasswords,
    realm: Realm,
    pulls: Pulls,
    script_store: ScriptStore,
    state_client: StateClient,
    questions: mpsc::Receiver<GitRequest>,
    copies: GitCopies,
    taker: PushTaker,
    /// Pulls, what is asked of a KDC, and logins to be sealed.
    calls: JoinSet<Event>,
    /// One login is sealed after the other: a start has thousands of them, and each would have a thread of its own.
    sealing: Arc<Semaphore>,
    /// To the worker, which has few places.
    work: mpsc::Sender<git_work::Work>,
    /// What waits for it, so that the loop never waits for a disk; a cluster has at most one piece under way.
    waiting: VecDeque<git_work::Work>,
    results: mpsc::Receiver<Event>,
    /// What was last reported to health about ConfigDB's replica.
    ready: Option<bool>,
    health: Health,
}

fn tls(config: &config::BootstrapConfig) -> anyhow::Result<Option<Tls>> {
    let (Some(cert_file), Some(key_file)) = (&config.cert_file, &config.key_file) else { return Ok(None) };
    Tls::load(["bootstrap.cert_file", "bootstrap.key_file"], cert_file, key_file)
        .map(Some)
        .map_err(|error| exit::with_code(exit::CONFIG, error))
}

/// Repositories that were pushed to and wait for the worker.
const PUSHES_MAX: usize = 256;

/// What taking one push over may take.
const PUSH_MAX: Duration = Duration::from_secs(600);

/// A cluster is looked at once for its birth, those of its devices and the answers of workers, if they are there together.
const EVENTS_AT_ONCE: usize = 64;

service_runtime::service_core!(ClusterManager, Event, Effect, at_once: EVENTS_AT_ONCE);

impl Io {
    /// Work for the copy of a repository. A part is read at once, so that no more than one is in memory.
    async fn work_on_copy(&mut self, repository: Uuid, action: CopyAction) -> anyhow::Result<()> {
        match action {
            CopyAction::Inspect => drop(self.calls.spawn(self.copies.clone().look(repository))),
            CopyAction::Pack { refs, has } => {
                drop(self.calls.spawn(self.copies.clone().pack(repository, refs, has)));
            }
            CopyAction::Part { node, file, offset } => match self.copies.part(repository, file, offset).await {
                Ok(part) => {
                    let request = part.to_request(node, repository);
                    self.sessions.request(request).await.context("Sparkplug session")?;
                }
                Err(error) => tracing::warn!(%repository, error = %error, "a part of a pack cannot be read"),
            },
            CopyAction::DropPack(file) => self.copies.drop_pack(repository, &file).await,
        }
        Ok(())
    }

    /// Says that the manager dies. Then it lets go of all that workers, the record and users who push wait for.
    async fn stop(self) {
        self.sessions.stop().await;
    }
}

impl ServiceIo for Io {
    type Core = ClusterManager;

    async fn recv(&mut self) -> anyhow::Result<Event> {
        loop {
            return Ok(tokio::select! {
                event = self.sessions.host.recv() => {
                    Event::Host(event.context("the Host Application's session ended by itself")?)
                }
                event = self.sessions.node.recv() => {
                    Event::Node(service::admitted(event.context("the Edge Node's session ended by itself")?)?)
                }
                Some(result) = self.results.recv() => result,
                Some(asked) = self.questions.recv() => Event::GitRequest(asked),
                Some(answer) = self.calls.join_next() => answer.context("call of another server")?,
                Ok(place) = self.work.reserve(), if !self.waiting.is_empty() => {
                    if let Some(git) = self.waiting.pop_front() {
                        place.send(git);
                    }
                    continue;
                }
            });
        }
    }

    async fn execute(&mut self, effect: Effect) -> anyhow::Result<()> {
        match effect {
            Effect::Node(update) => sessions::update(&self.sessions.node, update).await,
            Effect::Host(request) => self.sessions.request(request).await.context("Sparkplug session")?,
            Effect::Git(git) => self.waiting.push_back(git_work::Work::Git(git)),
            Effect::Shared(SharedWork { repository, action: SharedAction::Pull { branch, pull } }) => {
                drop(self.calls.spawn(carry_out_pull(self.pulls.clone(), repository, branch, pull)));
            }
            Effect::Shared(shared) => self.waiting.push_back(git_work::Work::Shared(shared)),
            Effect::Principals(work) => drop(self.calls.spawn(self.realm.clone().carry_out(work))),
            Effect::GitResponse(answer) => self.state_client.answer(*answer),
            Effect::BootstrapGrant { cluster, offer } => self.script_store.set(cluster, offer),
            Effect::Script(script) => self.script_store.set_script(script),
            Effect::Copy(CopyWork { repository, action }) => self.work_on_copy(repository, action).await?,
            Effect::Push(work) => drop(self.calls.spawn(self.taker.clone().take(*work))),
            Effect::SealLogin { cluster, key } => {
                let (passwords, sealing) = (self.passwords.clone(), Arc::clone(&self.sealing));
                drop(self.calls.spawn(async move {
                    let _turn = sealing.acquire().await.expect("it is never closed");
                    let sealed = tokio::task::spawn_blocking(move || seal_login(&passwords, cluster, key));
                    Event::LoginSealed(sealed.await.expect("sealing does not panic"))
                }));
            }
        }
        Ok(())
    }

    fn report(&mut self, event: &Event) {
        if let Event::Node(event) = event {
            service::report_node(&self.health, "mqtt", event);
        }
    }

    fn publish(&mut self, manager: &ClusterManager) {
        let is_ready = manager.is_ready();
        if self.ready.replace(is_ready) != Some(is_ready) {
            let reason = if is_ready { "known completely" } else { "not known completely" };
            self.health.component("configdb", is_ready, reason);
            if is_ready {
                self.script_store.complete();
            }
        }
        count(manager.totals());
    }
}

async fn carry_out_pull(pulls: Pulls, repository: Uuid, branch: String, pull: Pull) -> Event {
    let outcome = pulls.pull(repository, &branch, &pull).await;
    let outcome =
        outcome.map(|Pulled { main, commit, diverged }| SharedOutcome { main, pulled: Some(commit), diverged });
    Event::Shared(SharedResult { repository, branch: Some(branch), outcome })
}

/// Seals the login of a cluster's repository to Identity's key.
fn seal_login(passwords: &ClusterPasswords, cluster: Uuid, key: String) -> LoginResult {
    let seal = || {
        let (username, password) = passwords.login(cluster).ok_or("the cluster's repository is not open")?;
        let recipient = key.parse::<IdentityKey>().map_err(|error| error.to_string())?;
        let mut randomness = [0; 32];
        aws_lc_rs::rand::fill(&mut randomness).map_err(|_| "the system yields no random numbers")?;
        let login = Login { username, password: password.expose_secret().into() };
        let sealed = login.seal(&recipient, cluster, randomness).map_err(|error| error.to_string())?;
        Ok(SealedLogin(sealed.into()))
    };
    let sealed = seal();
    LoginResult { cluster, key, sealed }
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

fn settings(config: &Config, organisation: configdb_schema::Organisation, git_url: Option<String>) -> Settings {
    let is_git_fixed = git_url.is_some();
    let git = GitAddress { own: git_url.unwrap_or_default(), external: config.git.external.url.clone() };
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
        rate: Rate::per_minute(config.git.requests_per_minute),
        retry: (Duration::from_millis(config.timing.retry_first_ms), Duration::from_millis(config.timing.retry_max_ms)),
        realm: config.realm().map(str::to_owned),
        scripts_url: String::new(),
        git_key: String::new(),
        is_git_fixed,
        awaits_git: true,
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
    Ok(u64::from_le_bytes(random_bytes()?))
}

fn random_bytes<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| anyhow::anyhow!("the system yields no random numbers"))?;
    Ok(bytes)
}
