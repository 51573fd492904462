//! The parts of the factory: started in order, stopped in reverse. Knows every service's `run`; decides nothing.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use broker_acl::Principal;
use cluster_manager_contract::SetupState;
use configdb_contract::dump::{Dump, LoadOptions};
use configdb_contract::{Change, WriteRequest, Writer, WriterConfig, WriterOutput};
use configdb_schema::Document as _;
use configdb_schema::address::{ClusterName, Organisation};
use configdb_schema::document::{AttestationPolicy, EdgeClusterSetup};
use join_service_contract::JoinReplica;
use join_service_contract::policy::PolicyState;
use service_runtime::exit;
use service_runtime::health::Health;
use service_runtime::logging::{self, LogFormat};
use service_runtime::shutdown::Shutdown;
use service_runtime::state_dir::StateDir;
use sparkplug::host::HostRequest;
use sparkplug::{HostId, Now};
use sparkplug_mqtt::{MqttConfig, Protocol};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::arguments::UpArguments;
use crate::broker::{Broker, BrokerConfig, Guard};
use crate::edge::{self, EdgeSpec, SimulatedEdge};
use crate::gate::Gate;
use crate::hints::{self, Places};
use crate::host::Machine;
use crate::joining::Joining;
use fleet_view::Fleet;
use sparkfleet_cli::client::{refusal, request_id};

/// The content of a first start.
const FACTORY: &str = include_str!("../../../examples/factory.yaml");

/// Host id of the table that is shown.
pub(crate) const TABLE: &str = "sparkfleet-up";

/// How long a simulated edge that could not be started waits for the next attempt.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Everything that runs.
#[derive(Debug)]
pub(crate) struct Factory {
    broker: Option<Broker>,
    mqtt: Reach,
    places: Places,
    central: Shutdown,
    edge_shutdown: Shutdown,
    services: Mutex<JoinSet<anyhow::Error>>,
    edges: Arc<Mutex<BTreeMap<Uuid, SimulatedEdge>>>,
    manager_state: PathBuf,
    arguments: UpArguments,
}

/// Reads the dump of the first start.
///
/// # Errors
/// With [`exit::CONFIG`], naming the file and the place in it.
pub(crate) fn read_load(file: Option<&Path>) -> anyhow::Result<Dump> {
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    let Some(file) = file else { return Dump::parse(FACTORY).context("the built-in factory").map_err(wrong) };
    let text = std::fs::read_to_string(file).with_context(|| format!("--load {}", file.display())).map_err(wrong)?;
    Dump::parse(&text).with_context(|| format!("--load {}", file.display())).map_err(wrong)
}

/// Makes the data directory, takes its lock, and sends the log to a file in it. The lock is held as long as the file lives.
///
/// # Errors
/// With [`exit::CONFIG`] if the directory cannot be used, [`exit::UNAVAILABLE`] if another factory uses it.
pub(crate) fn prepare(arguments: &UpArguments) -> anyhow::Result<File> {
    let dir = &arguments.data_dir;
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    let named = || format!("--data-dir {}", dir.display());
    StateDir::from(dir.as_path()).create().with_context(named).map_err(wrong)?;
    let lock = File::create(dir.join("lock")).with_context(named).map_err(wrong)?;
    if lock.try_lock().is_err() {
        let error =
            anyhow!("{} is in use by another `sparkfleet up`; stop it, or choose another --data-dir", dir.display());
        return Err(exit::with_code(exit::UNAVAILABLE, error));
    }
    let filter = std::env::var("SPARKFLEET_LOG").unwrap_or_else(|_| "info".to_owned());
    logging::init_to_file(LogFormat::Human, &filter, &hints::log_file(arguments)).context("log").map_err(wrong)?;
    Ok(lock)
}

impl Factory {
    /// Starts broker and control plane. Every port is taken before anything is said to run.
    ///
    /// # Errors
    /// With [`exit::UNAVAILABLE`] for a port that is taken.
    // long: a paragraph a service, in the order in which they start.
    pub(crate) async fn start(arguments: &UpArguments, shutdown: &Shutdown) -> anyhow::Result<Self> {
        let (broker, reach) = broker(arguments).await?;
        let url = reach.mqtt.servers.concat();
        let mqtt = reach.login(&Principal::ControlPlane)?;
        // The edge stops first and the control plane last, so that the control plane still receives the deaths of the edge.
        let (central, edge_shutdown) = (Shutdown::new(), shutdown.child());
        let health = Health::new();
        let http = service_runtime::health::serve(arguments.http, health.clone(), central.clone())
            .await
            .context("--http")
            .map_err(|error| exit::with_code(exit::UNAVAILABLE, error))?;
        let dir = &arguments.data_dir;
        let manager_state = dir.join("cluster-manager");
        let git_listener = listener("--git", "git", arguments.git).await?;
        let git = git_listener.local_addr()?;
        let scripts_listener = listener("--bootstrap", "the bootstrap scripts", arguments.bootstrap).await?;
        let bootstrap = scripts_listener.local_addr()?;
        let mut services = JoinSet::new();
        let organisation = &arguments.organisation;
        let console_listener = console_listener(arguments).await?;
        let console_address = console_listener.local_addr()?;
        let console = console_config(arguments, &reach)?;
        let configdb = configdb::Config {
            organisation: organisation.clone(),
            state_dir: dir.join("configdb").into(),
            mqtt: mqtt.clone(),
            new_store: arguments.new_store,
            ..configdb::Config::default()
        };
        spawn(&mut services, "configdb", configdb::run(configdb, central.clone(), health.clone()));
        let identity = identity_config(arguments, &reach, &manager_state)?;
        let manager = cluster_manager::Config {
            organisation: organisation.clone(),
            state_dir: manager_state.clone().into(),
            mqtt: mqtt.clone(),
            git: cluster_manager::config::GitConfig {
                public_url: Some(format!("http://{git}")),
                ..cluster_manager::config::GitConfig::default()
            },
            bootstrap: cluster_manager::config::BootstrapConfig {
                listen: bootstrap,
                ..cluster_manager::config::BootstrapConfig::default()
            },
            ..cluster_manager::Config::default()
        };
        let charts = crate::charts::shipped();
        let running = cluster_manager::serve(manager, charts, scripts_listener, central.clone(), health.clone());
        spawn(&mut services, "cluster manager", running);
        spawn(&mut services, "identity", identity::run(identity, central.clone(), health.clone()));
        let git_server = git_server::Config {
            organisation: organisation.clone(),
            state_dir: dir.join("git-server").into(),
            listen: git,
            anonymous: git_server::config::Anonymous::Loopback,
            mqtt: reach.login(&Principal::Git)?,
            ..git_server::Config::default()
        };
        let running = git_server::serve(git_server, git_listener, central.clone(), health.clone());
        spawn(&mut services, "git server", running);
        let monitor = edge_monitor::Config {
            organisation: organisation.clone(),
            mode: edge_monitor::config::Mode::Central,
            state_dir: dir.join("monitor").into(),
            mqtt: mqtt.clone(),
            ..edge_monitor::Config::default()
        };
        spawn(&mut services, "central monitor", edge_monitor::run(monitor, central.clone(), health.clone()));
        spawn(&mut services, "console", console::serve(console, console_listener, central.clone(), health));
        Ok(Self {
            broker,
            mqtt: reach,
            places: Places { broker: url, console: console_address, git, bootstrap, http },
            central,
            edge_shutdown,
            services: Mutex::new(services),
            edges: Arc::default(),
            manager_state,
            arguments: arguments.clone(),
        })
    }

    /// How the table reaches the broker.
    ///
    /// # Errors
    /// The system yields no random numbers.
    pub(crate) fn table_mqtt(&self) -> anyhow::Result<MqttConfig> {
        self.mqtt.login(&Principal::Operator)
    }

    /// Where everything is reached.
    #[must_use]
    pub(crate) const fn places(&self) -> &Places {
        &self.places
    }

    /// Waits for a service that ends by itself, which none should.
    pub(crate) async fn failed(&self) -> anyhow::Error {
        match self.services.lock().await.join_next().await {
            Some(Ok(error)) => error,
            Some(Err(panic)) => anyhow::Error::new(panic).context("a service has panicked"),
            None => anyhow!("no service runs"),
        }
    }

    /// Starts and stops simulated edges as clusters come and go.
    #[must_use]
    pub(crate) fn edges(&self) -> Edges {
        Edges {
            running: std::sync::Arc::clone(&self.edges),
            shutdown: self.edge_shutdown.clone(),
            manager_state: self.manager_state.clone(),
            arguments: self.arguments.clone(),
            mqtt: self.mqtt.clone(),
            not_before: BTreeMap::new(),
            policies: Vec::new(),
        }
    }

    /// Stops edges, then the control plane, then the broker.
    pub(crate) async fn stop(mut self) {
        let edges = std::mem::take(&mut *self.edges.lock().await);
        futures::future::join_all(edges.into_values().map(SimulatedEdge::stop)).await;
        self.central.trigger();
        let mut services = self.services.lock().await;
        while services.join_next().await.is_some() {}
        drop(services);
        if let Some(broker) = self.broker.take() {
            broker.stop().await;
        }
    }
}

/// Identity's configuration. The keys of a factory whose cluster manager had them are moved to where Identity looks for them.
fn identity_config(arguments: &UpArguments, reach: &Reach, manager_state: &Path) -> anyhow::Result<identity::Config> {
    let state_dir = arguments.data_dir.join("identity");
    let (before, now) = (manager_state.join("identity"), state_dir.join("identity"));
    if before.exists() && !now.exists() {
        StateDir::from(state_dir.as_path()).create().context("--data-dir")?;
        std::fs::rename(&before, &now)
            .with_context(|| format!("cannot move {} to {}", before.display(), now.display()))
            .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    }
    Ok(identity::Config {
        organisation: arguments.organisation.clone(),
        state_dir: state_dir.into(),
        mqtt: reach.login(&Principal::Identity)?,
        ..identity::Config::default()
    })
}

fn console_config(arguments: &UpArguments, reach: &Reach) -> anyhow::Result<console::Config> {
    Ok(console::Config {
        organisation: arguments.organisation.clone(),
        state_dir: arguments.data_dir.join("console").into(),
        mqtt: reach.login(&Principal::Console)?,
        ..console::Config::default()
    })
}

/// Takes the address of a service.
///
/// # Errors
/// With [`exit::UNAVAILABLE`] if it is taken, naming the option.
async fn listener(option: &str, what: &str, wanted: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(wanted)
        .await
        .with_context(|| format!("cannot listen on {wanted} for {what}; stop what uses it, or choose another {option}"))
        .map_err(|error| exit::with_code(exit::UNAVAILABLE, error))
}

/// The console's address. It is served without login, so no one else's machine may reach it.
pub(crate) async fn console_listener(arguments: &UpArguments) -> anyhow::Result<TcpListener> {
    let listen = arguments.console_listen;
    if !listen.ip().is_loopback() {
        let error = anyhow!("--console-listen {listen} must be a loopback address: the console of `up` has no login");
        return Err(exit::with_code(exit::CONFIG, error));
    }
    listener("--console-listen", "the web console", listen).await
}

/// The embedded broker with its gate, unless the factory uses another one.
async fn broker(arguments: &UpArguments) -> anyhow::Result<(Option<Broker>, Reach)> {
    if let Some(url) = &arguments.broker {
        return Ok((None, Reach::of(url, arguments.protocol, arguments.take_over, None)));
    }
    let organisation = Organisation::new(arguments.organisation.clone()).context("--organisation")?;
    let gate = Arc::new(Gate::new(organisation, HostId::new(TABLE).context("host id")?));
    let guard: Arc<dyn Guard> = gate.clone();
    let config = BrokerConfig { listen: arguments.listen, guard: Some(guard), ..BrokerConfig::default() };
    let broker = Broker::start(config).await.map_err(|error| exit::with_code(exit::UNAVAILABLE, error))?;
    // This process owns the broker, so no other one speaks for its services by right, and no command has to wait until that is sure.
    let reach = Reach::of(&broker.url(), arguments.protocol, true, Some(gate));
    Ok((Some(broker), reach))
}

fn spawn(
    services: &mut JoinSet<anyhow::Error>,
    name: &'static str,
    service: impl Future<Output = anyhow::Result<()>> + Send + 'static,
) {
    services.spawn(async move {
        match service.await {
            Ok(()) => anyhow!("{name} has stopped"),
            Err(error) => error.context(format!("{name} has failed")),
        }
    });
}

/// How the factory reaches its broker.
#[derive(Debug, Clone)]
struct Reach {
    mqtt: MqttConfig,
    /// Of the embedded broker. The access control of another one is that of its site.
    gate: Option<Arc<Gate>>,
}

impl Reach {
    fn of(url: &str, protocol: Protocol, take_over: bool, gate: Option<Arc<Gate>>) -> Self {
        Self { mqtt: MqttConfig { servers: vec![url.to_owned()], protocol, take_over, ..MqttConfig::default() }, gate }
    }

    fn login(&self, principal: &Principal) -> anyhow::Result<MqttConfig> {
        self.gate.as_ref().map_or_else(|| Ok(self.mqtt.clone()), |gate| gate.login(principal, &self.mqtt))
    }
}

/// The simulated edges of the clusters that are set up.
#[derive(Debug)]
pub(crate) struct Edges {
    running: Arc<Mutex<BTreeMap<Uuid, SimulatedEdge>>>,
    shutdown: Shutdown,
    manager_state: PathBuf,
    arguments: UpArguments,
    mqtt: Reach,
    not_before: BTreeMap<Uuid, tokio::time::Instant>,
    policies: Vec<(Uuid, AttestationPolicy)>,
}

impl Edges {
    /// Brings the edges in line with the cluster manager's Devices: one for each cluster that is ready, none for one that is gone.
    pub(crate) async fn follow(&mut self, fleet: &Fleet) {
        if !fleet.manager.is_complete() || !fleet.config.is_complete() {
            return;
        }
        let mut running = self.running.lock().await;
        let gone: Vec<Uuid> = running.keys().copied().filter(|uuid| fleet.manager.cluster(*uuid).is_none()).collect();
        for uuid in gone {
            if let Some(edge) = running.remove(&uuid) {
                edge.stop().await;
            }
        }
        for (uuid, edge) in running.iter_mut().filter(|(_, edge)| edge.has_machines_off()) {
            let name = fleet.manager.cluster(*uuid).map(|cluster| cluster.name.as_str()).unwrap_or_default();
            let join = fleet.join(name).and_then(JoinReplica::node);
            if join.is_some_and(|join| join.cluster_uuid == *uuid && join.policy_state == PolicyState::InForce) {
                edge.switch_on(*uuid);
            }
        }
        for (uuid, cluster) in fleet.manager.clusters() {
            let waiting = self.not_before.get(&uuid).is_some_and(|instant| *instant > tokio::time::Instant::now());
            if cluster.setup.state != SetupState::Ready || running.contains_key(&uuid) || waiting {
                continue;
            }
            // After a start with another --git the record names the old place until the cluster manager has written the new one; then it changes, and this is asked again.
            let Some(self_link) = self_link(fleet, uuid, cluster.git_url.as_deref()) else { continue };
            match self.start(self_link, uuid, &cluster.name, &cluster.namespace).await {
                Ok((edge, policy)) => {
                    running.insert(uuid, edge);
                    // Once: who deletes it later means it.
                    let written = self.policy_written(uuid).exists();
                    let is_there = fleet.config.entry(uuid, AttestationPolicy::slug()).is_some();
                    self.policies.extend(Some((uuid, policy)).filter(|_| !written && !is_there));
                    self.not_before.remove(&uuid);
                }
                Err(error) => {
                    tracing::warn!(
                        cluster = cluster.name,
                        error = format!("{error:#}"),
                        "a simulated edge cluster cannot be started"
                    );
                    self.not_before.insert(uuid, tokio::time::Instant::now() + PAUSE_AFTER_FAILURE);
                }
            }
        }
    }

    /// First policies of clusters that were started, to be written.
    pub(crate) fn take_policies(&mut self) -> Vec<FirstPolicy> {
        let policies = std::mem::take(&mut self.policies);
        policies
            .into_iter()
            .map(|(cluster, policy)| FirstPolicy { cluster, policy, done: self.policy_written(cluster) })
            .collect()
    }

    /// The file that says that a cluster has got its first policy.
    fn policy_written(&self, cluster: Uuid) -> PathBuf {
        self.arguments.data_dir.join("trust").join(cluster.to_string()).join("policy-written")
    }

    async fn start(
        &self,
        self_link: String,
        uuid: Uuid,
        name: &str,
        namespace: &str,
    ) -> anyhow::Result<(SimulatedEdge, AttestationPolicy)> {
        let file = cluster_manager::password_file(&self.manager_state, uuid);
        let password = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let names = edge::host_names(name, self.arguments.hosts);
        let joining = Joining::prepare(&self.arguments.data_dir, uuid, &names)?;
        let policy = joining.policy()?;
        let login = |machine: &Machine| Ok((machine.disk, self.mqtt.login(&Principal::JoiningHost(machine.disk))?));
        let cluster = ClusterName::new(name).context("name of the cluster")?;
        if let Some(gate) = &self.mqtt.gate {
            gate.add_cluster(cluster.clone())?;
        }
        let spec = EdgeSpec {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            self_link,
            git_password: password.trim_end().to_owned(),
            hosts: self.arguments.hosts,
            state_dir: self.arguments.data_dir.join("edge").join(uuid.to_string()),
            organisation: self.arguments.organisation.clone(),
            mqtt: self.mqtt.login(&Principal::Cluster(cluster))?,
            host_logins: joining.machines.iter().map(login).collect::<anyhow::Result<_>>()?,
            joining: Some(joining),
        };
        Ok((SimulatedEdge::start(spec, &self.shutdown).await?, policy))
    }
}

/// The manifests that make a cluster follow its repository, if they name the place where it is served.
fn self_link(fleet: &Fleet, cluster: Uuid, git_url: Option<&str>) -> Option<String> {
    let setup: Option<EdgeClusterSetup> = fleet.config.document(cluster).ok()?;
    setup?.self_link.filter(|self_link| git_url.is_some_and(|url| self_link.contains(url)))
}

/// The first policy of a cluster.
#[derive(Debug)]
pub(crate) struct FirstPolicy {
    cluster: Uuid,
    policy: AttestationPolicy,
    /// File that says that it is written.
    done: PathBuf,
}

/// Loads the first content once, and writes the first policy of each simulated cluster. A file in the data directory says that it is done; until then a start continues where the last one ended.
#[derive(Debug)]
pub(crate) struct FirstContent {
    dump: Option<Dump>,
    done: PathBuf,
    phases: VecDeque<Vec<WriteRequest>>,
    waiting: usize,
    policies: BTreeMap<String, PathBuf>,
    writer: Writer,
}

impl FirstContent {
    /// Nothing is written until ConfigDB is known completely.
    #[must_use]
    pub(crate) fn new(dump: Dump, data_dir: &Path, fleet: &Fleet) -> Self {
        let done = data_dir.join("loaded");
        let seed = Uuid::new_v4().as_u64_pair().0;
        let writer = Writer::new(WriterConfig::new(fleet.config.node().clone()), seed);
        let dump = Some(dump).filter(|_| !done.exists());
        Self { dump, done, phases: VecDeque::new(), waiting: 0, policies: BTreeMap::new(), writer }
    }

    /// Writes policies where there are none; returns what is to be sent.
    ///
    /// # Errors
    /// A policy that has no JSON form, which each has.
    pub(crate) fn write_policies(&mut self, policies: Vec<FirstPolicy>, now: Now) -> anyhow::Result<Vec<HostRequest>> {
        for FirstPolicy { cluster, policy, done } in policies {
            let request = WriteRequest::put(request_id(), cluster).by("sparkfleet-up").document(&policy)?;
            let request = request.if_match(AttestationPolicy::slug(), None);
            self.policies.insert(request.id.clone(), done);
            self.writer.submit(request, now)?;
        }
        self.proceed(now)
    }

    /// Takes what changed in ConfigDB; returns what is to be sent.
    ///
    /// # Errors
    /// ConfigDB refuses the content.
    pub(crate) fn on_changes(
        &mut self,
        fleet: &Fleet,
        changes: &[Change],
        now: Now,
    ) -> anyhow::Result<Vec<HostRequest>> {
        for change in changes {
            self.writer.on_change(change, now);
        }
        if fleet.config.is_complete()
            && let Some(dump) = self.dump.take()
        {
            let options = LoadOptions { id_prefix: request_id(), writer: "sparkfleet-up".to_owned() };
            self.phases = dump.requests(&fleet.config, &options)?.into();
            // An empty phase at the end, so that there is a moment at which everything is answered.
            self.phases.push_back(Vec::new());
        }
        self.proceed(now)
    }

    /// When a repetition is due.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.writer.next_deadline()
    }

    /// Takes the time; returns the repetitions that are due.
    ///
    /// # Errors
    /// ConfigDB does not answer.
    pub(crate) fn handle_timeout(&mut self, now: Now) -> anyhow::Result<Vec<HostRequest>> {
        self.writer.handle_timeout(now);
        self.proceed(now)
    }

    fn proceed(&mut self, now: Now) -> anyhow::Result<Vec<HostRequest>> {
        let mut sends = Vec::new();
        loop {
            while let Some(output) = self.writer.poll_output() {
                match output {
                    WriterOutput::Send(request) => sends.push(request),
                    WriterOutput::Answered(result) if self.policies.contains_key(&result.id) => {
                        if !result.is_applied() {
                            // Someone else was first, or the object is gone: either way it is not for this program.
                            tracing::info!(object_id = %result.object, reason = refusal(&result), "no first policy is written");
                        }
                        if let Some(done) = self.policies.remove(&result.id) {
                            std::fs::write(&done, "The cluster has got its first attestation policy.\n")
                                .with_context(|| done.display().to_string())?;
                        }
                    }
                    WriterOutput::Answered(result) => {
                        self.waiting -= 1;
                        if !result.is_applied() {
                            return Err(anyhow!("the first content, {}: {}", result.object, refusal(&result)));
                        }
                    }
                    WriterOutput::GaveUp { object, .. } => {
                        return Err(anyhow!("the first content, {object}: ConfigDB does not answer"));
                    }
                }
            }
            if self.waiting > 0 {
                return Ok(sends);
            }
            let Some(phase) = self.phases.pop_front() else { return Ok(sends) };
            if phase.is_empty() {
                std::fs::write(&self.done, "The first content is loaded.\n")
                    .with_context(|| self.done.display().to_string())?;
            }
            for request in phase {
                self.writer.submit(request, now)?;
                self.waiting += 1;
            }
        }
    }
}
