//! `resume-anywhere`: whatever is killed, at whichever step, and started again, the end is that of an undisturbed run.
//!
//! A run goes through a cluster's life: created, bootstrapped, deployed to, deleted. In each phase one victim is killed with SIGKILL at the moment a step is seen on the wire, and
//! started again. After each phase ConfigDB's content, the git trees, the objects in Kubernetes and all that is reported are compared with an undisturbed run. They must become
//! equal to what they were at that point of it. The n-th run takes the n-th step of every phase.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use configdb_schema::address;
use e2e::central_services::{CentralServices, free_port};
use e2e::cli::Cli;
use e2e::edge::Edge;
use e2e::mosquitto::Mosquitto;
use e2e::process::Processes;
use e2e::recorder::{Message, Recorder};
use e2e::wire::{self, Reader};
use e2e::{end_state, wait};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use uuid::Uuid;

const NAME: &str = "Paint_Shop";
const CLUSTER: Uuid = uuid::uuid!("c1000000-0000-4000-8000-000000000001");
const SET_UP: [&str; 7] = ["spec", "address", "flux-account", "krbkeys-account", "git-config", "repository", "ready"];
const TEAR_DOWN: [&str; 5] = ["tear-down", "edge-emptied", "accounts-removed", "config-removed", "repository-closed"];

/// Runs of one victim at a time.
const LANES: usize = 2;

/// How often a whole state is looked at: many runs do, and what they wait for takes the same processors.
const LOOK: Duration = Duration::from_millis(200);

fn oven() -> Uuid {
    address::v5(&["EdgeDeployment", &CLUSTER.to_string(), "Oven_1"])
}

/// The service that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Broker,
    ConfigDb,
    ClusterManager,
    GitServer,
    CentralMonitor,
    EdgeSync,
    EdgeMonitor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Create,
    Bootstrap,
    Deploy,
    Delete,
}

const PHASES: [Phase; 4] = [Phase::Create, Phase::Bootstrap, Phase::Deploy, Phase::Delete];

/// A step that can be seen on the wire.
struct Step {
    name: String,
    is_seen: Arc<dyn Fn(&Message) -> bool + Send + Sync>,
}

fn step(name: impl Into<String>, is_seen: impl Fn(&Message) -> bool + Send + Sync + 'static) -> Step {
    Step { name: name.into(), is_seen: Arc::new(is_seen) }
}

/// A message of that kind and device (or node), in the group of the control plane or of the cluster.
fn is(message: &Message, topic: &str) -> bool {
    let topic = topic.replace("CENTRAL", "spBv1.0/ACME-Central").replace("EDGE", &format!("spBv1.0/ACME-{NAME}"));
    message.topic == topic
}

/// An entry that ConfigDB publishes, with a birth or as data.
fn is_entry(message: &Message, object: Uuid, slug: &str) -> bool {
    let of = |kind: &str| is(message, &format!("CENTRAL/{kind}/ConfigDB/{object}"));
    (of("DBIRTH") || of("DDATA")) && wire::text(message, slug).is_some()
}

fn is_entry_deleted(message: &Message, object: Uuid, slug: &str) -> bool {
    is(message, &format!("CENTRAL/DDATA/ConfigDB/{object}")) && wire::is_null(message, slug)
}

/// A step as it is recorded in ConfigDB, and as the cluster manager reports it.
fn recorded(steps: &'static [&'static str]) -> impl Iterator<Item = Step> {
    steps.iter().flat_map(|&name| {
        let record = step(format!("record of {name}"), move |message| {
            let entry =
                wire::text(message, "EdgeClusterSetup").filter(|_| is_entry(message, CLUSTER, "EdgeClusterSetup"));
            let entry: Option<Value> = entry.and_then(|text| serde_json::from_str(&text).ok());
            entry.is_some_and(|entry| entry["step"] == name)
        });
        let report = step(format!("report of {name}"), move |message| {
            message.topic.contains("/Cluster-Manager/") && wire::text(message, "Setup/Step").as_deref() == Some(name)
        });
        [record, report]
    })
}

/// The steps of a phase, in the order in which they are seen.
fn steps(phase: Phase) -> Vec<Step> {
    let device = "deployment-Oven_1";
    let state = |wanted: &'static str| {
        move |message: &Message| {
            let of = |kind: &str| is(message, &format!("EDGE/{kind}/Sync/{device}"));
            (of("DBIRTH") || of("DDATA")) && wire::text(message, "Status/State").as_deref() == Some(wanted)
        }
    };
    let index = || {
        step("index sent", |message| is(message, "EDGE/NCMD/Sync") && wire::text(message, "Desired/Index").is_some())
    };
    match phase {
        Phase::Create => {
            let entry = step("EdgeCluster entry", |message| is_entry(message, CLUSTER, "EdgeCluster"));
            std::iter::once(entry).chain(recorded(&SET_UP)).collect()
        }
        Phase::Bootstrap => vec![
            step("Sync's birth", |message| is(message, "EDGE/NBIRTH/Sync")),
            step("EdgeClusterStatus entry", |message| is_entry(message, CLUSTER, "EdgeClusterStatus")),
        ],
        Phase::Deploy => {
            vec![
                step("EdgeDeployment entry", |message| is_entry(message, oven(), "EdgeDeployment")),
                index(),
                step("manifests sent", move |message| is(message, &format!("EDGE/DCMD/Sync/{device}"))),
                step("deployment applied", state("applied")),
                step("agent's birth", |message| is(message, "EDGE/NBIRTH/Oven_1")),
            ]
        }
        Phase::Delete => {
            let mut steps = vec![
                step("EdgeDeployment deleted", |message| is_entry_deleted(message, oven(), "EdgeDeployment")),
                index(),
                step("deployment gone", move |message| is(message, &format!("EDGE/DDEATH/Sync/{device}"))),
                step("EdgeCluster deleted", |message| is_entry_deleted(message, CLUSTER, "EdgeCluster")),
            ];
            steps.extend(recorded(&TEAR_DOWN));
            steps
        }
    }
}

/// One factory.
struct Run {
    server: Arc<Mutex<Mosquitto>>,
    broker: SocketAddr,
    recorder: Recorder,
    reader: Mutex<Reader>,
    central: CentralServices,
    cli: Cli,
    edge_services: Processes,
    edge: OnceLock<Edge>,
}

impl Run {
    async fn start((git, api): (SocketAddr, SocketAddr)) -> Self {
        let server = Mosquitto::start();
        let broker = server.address();
        let recorder = Recorder::start(broker).await;
        let central = CentralServices::start_at(broker, git, api);
        let cli = Cli::new(&server.url());
        let server = Arc::new(Mutex::new(server));
        let run = Self {
            server,
            broker,
            recorder,
            reader: Mutex::default(),
            central,
            cli,
            edge_services: Processes::default(),
            edge: OnceLock::new(),
        };
        let alive = |reader: &Reader| {
            let mut nodes = ["ConfigDB", "Cluster-Manager", "Identity", "Git", "Monitor"].iter();
            nodes.all(|name| reader.node("ACME-Central", name).is_some_and(|node| node.is_alive))
        };
        let born = || alive(&run.reader()).then_some(());
        wait::until("the births of the central services", born, || run.diagnosis()).await;
        run
    }

    fn reader(&self) -> MutexGuard<'_, Reader> {
        let mut reader = self.reader.lock().unwrap();
        reader.follow(&self.recorder);
        reader
    }

    fn diagnosis(&self) -> String {
        let messages = self.recorder.messages();
        // ConfigDB's births fill the recording whenever a command asks for them.
        let shown = messages.iter().rev().filter(|message| !message.topic.contains("/DBIRTH/ConfigDB/"));
        let topics: Vec<String> = shown.take(30).map(|m| format!("{:?} {}", m.at, m.topic)).collect();
        let tails = [self.central.processes.tails(), self.edge_services.tails()].join("\n");
        format!("{tails}\n--- last messages, the newest first\n{}", topics.join("\n"))
    }

    fn service(&self, victim: Victim) -> Option<(Processes, &'static str)> {
        let (processes, name) = match victim {
            Victim::Broker => return None,
            Victim::ConfigDb => (&self.central.processes, "configdb"),
            Victim::ClusterManager => (&self.central.processes, "cluster-manager"),
            Victim::GitServer => (&self.central.processes, "git-server"),
            Victim::CentralMonitor => (&self.central.processes, "edge-monitor"),
            Victim::EdgeSync => (&self.edge_services, "edge-sync"),
            Victim::EdgeMonitor => (&self.edge_services, "edge-monitor"),
        };
        Some((processes.clone(), name))
    }

    /// Kills the victim at once when the step is seen; resolves when that has happened.
    fn kill_at(&self, step: &Step, victim: Victim) -> oneshot::Receiver<()> {
        let (done, killed) = oneshot::channel();
        let mut done = Some(done);
        let (is_seen, service, server) = (Arc::clone(&step.is_seen), self.service(victim), Arc::clone(&self.server));
        self.recorder.on_message(move |message| {
            if !is_seen(message) {
                return false;
            }
            match &service {
                Some((processes, name)) => assert!(processes.kill(name), "{name} is not there"),
                None => server.lock().unwrap().kill(),
            }
            done.take().is_some_and(|done| done.send(()).is_ok())
        });
        killed
    }

    fn restart(&self, victim: Victim) {
        match self.service(victim) {
            Some((processes, name)) => processes.restart(name),
            None => self.server.lock().unwrap().restart(),
        }
    }

    /// Goes through a phase; kills the victim at the step, and starts it again.
    async fn go(&self, phase: Phase, kill: Option<(Victim, &Step)>) {
        let Some((victim, step)) = kill else {
            self.begin(phase).await;
            return;
        };
        let killed = self.kill_at(step, victim);
        let restart = async {
            let killed = tokio::time::timeout(wait::PATIENCE, killed).await;
            assert!(matches!(killed, Ok(Ok(()))), "{phase:?}: {} is not seen\n{}", step.name, self.diagnosis());
            self.restart(victim);
        };
        tokio::join!(self.begin(phase), restart);
    }

    /// Does what begins a phase.
    async fn begin(&self, phase: Phase) {
        match phase {
            Phase::Create => {
                self.cli.json(&["cluster", "create", NAME, "--uuid", &CLUSTER.to_string()]).await;
            }
            Phase::Bootstrap => {
                let setup = self.cli.json(&["config", "get", &CLUSTER.to_string(), "EdgeClusterSetup"]).await;
                let password = self.central.git_password(CLUSTER).await;
                let link = setup["self_link"].as_str().expect("a set-up cluster has a link to itself");
                let services = self.edge_services.clone();
                let edge = Edge::start_with(NAME, 2, link, &password, self.broker, services).await;
                assert!(self.edge.set(edge).is_ok(), "a run bootstraps once");
            }
            Phase::Deploy => {
                let create = ["deployment", "create", "Oven_1", "--cluster", NAME, "--host", "paint-shop-2"];
                self.cli.json(&create).await;
            }
            Phase::Delete => {
                self.cli.json(&["cluster", "delete", NAME, "--with-deployments"]).await;
            }
        }
    }

    /// Waits for the end of a phase that no one disturbs; returns the state that it leads to.
    async fn settled(&self, phase: Phase) -> Value {
        let ended = || {
            let has_ended = ended(phase, &self.reader()) && self.has_flux_ended(phase);
            has_ended.then(|| self.state())
        };
        let look = || wait::until("the end of a phase", ended, || format!("{phase:?}\n{}", self.diagnosis()));
        // What continues after the last message that is waited for is over when a command, which takes a birth of ConfigDB, has seen the same before and after.
        let mut before = look().await;
        for _ in 0..20 {
            self.cli.json(&["config", "list"]).await;
            let state = look().await;
            if state == before {
                return state;
            }
            before = state;
        }
        panic!("{phase:?} does not come to rest\n{}", self.diagnosis());
    }

    /// Flux works beside the services: nothing on the wire says when it has set a cluster up.
    fn has_flux_ended(&self, phase: Phase) -> bool {
        match phase {
            Phase::Create | Phase::Delete => true,
            Phase::Bootstrap | Phase::Deploy => {
                self.edge.get().is_some_and(|edge| end_state::is_flux_ready(&edge.cluster))
            }
        }
    }

    /// Waits until the state is this one.
    async fn becomes(&self, wanted: &Value, what: &str) {
        let mut differences = Vec::new();
        let deadline = Instant::now() + wait::PATIENCE;
        while Instant::now() < deadline {
            let state = self.state();
            if state == *wanted {
                return;
            }
            differences = end_state::differences(wanted, &state);
            tokio::time::sleep(LOOK).await;
        }
        let differences = differences.join("\n");
        panic!("{what}\n{}\n--- wanted (first) and found (second) differ:\n{differences}", self.diagnosis());
    }

    /// All that must be equal.
    fn state(&self) -> Value {
        let reader = self.reader();
        json!({
            "config": end_state::config(&reader, "ACME-Central"),
            "git": end_state::git_trees(&self.central.state_dir("cluster-manager")),
            "copies": end_state::git_trees(&self.central.state_dir("git-server")),
            "kubernetes": self.edge.get().map(|edge| end_state::kubernetes(&edge.cluster)),
            "reported": end_state::reported(&reader),
        })
    }
}

/// Whether the last message of an undisturbed phase was received.
fn ended(phase: Phase, reader: &Reader) -> bool {
    let manager = reader.node("ACME-Central", "Cluster-Manager").and_then(|node| node.devices.get(NAME));
    let is =
        |name: &str, wanted: sparkplug::Value| manager.is_some_and(|device| device.get(name) == Some(&Some(wanted)));
    let group = format!("ACME-{NAME}");
    // Edge sync looks at the pods of a release from time to time: what it says may come later than the pods.
    let source = reader.node(&group, "Sync").and_then(|node| node.metrics.get("Source/Ready"));
    let has_said = source == Some(&Some(true.into()));
    match phase {
        Phase::Create => is("Status/State", "ready".into()),
        Phase::Bootstrap => {
            let watched = reader.node("ACME-Central", "Monitor").is_some_and(|node| node.devices.contains_key(&group));
            let agreed = is("Sync/Alive", true.into()) && is("Desired/Agreed", true.into());
            has_said && agreed && watched && reader.node(&group, "Monitor").is_some_and(|node| node.is_alive)
        }
        Phase::Deploy => {
            let monitor = reader.node(&group, "Monitor").and_then(|node| node.devices.get("Oven_1"));
            let sync = reader.node(&group, "Sync").and_then(|node| node.devices.get("deployment-Oven_1"));
            let ready = sync.is_some_and(|device| device.get("Deployment/Ready") == Some(&Some(true.into())));
            let online = monitor.is_some_and(|device| device.get("Status/State") == Some(&Some("online".into())));
            has_said && ready && online && is("Desired/Agreed", true.into())
        }
        Phase::Delete => {
            // The edge lives on without its cluster. A birth reports that, because the births before leave out a table without rows.
            let problems = reader.node("ACME-Central", "Monitor").and_then(|node| node.metrics.get("Nodes/Problems"));
            let is_missed =
                matches!(problems, Some(Some(sparkplug::Value::DataSet(problems))) if !problems.rows.is_empty());
            manager.is_none() && is_missed && reader.node(&group, "Oven_1").is_some_and(|node| !node.is_alive)
        }
    }
}

/// The states of an undisturbed run, by phase.
async fn undisturbed(addresses: (SocketAddr, SocketAddr)) -> BTreeMap<Phase, Value> {
    let run = Run::start(addresses).await;
    let mut states = BTreeMap::new();
    for phase in PHASES {
        run.go(phase, None).await;
        states.insert(phase, run.settled(phase).await);
    }
    run.reader().assert_clean();
    states
}

/// Runs with a victim killed at every step of these phases, in a few lanes at a time, because a run waits more than it works.
async fn killed_at_every_step(victim: Victim, phases: &'static [Phase], lanes: usize) {
    let lanes = (0..lanes).map(|lane| tokio::spawn(run_lane(victim, phases, lane, lanes)));
    for lane in futures::future::join_all(lanes).await {
        if let Err(error) = lane {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// Every run whose number fits the lane, one after the other: they share the addresses of git server and API, which are in what is compared.
async fn run_lane(victim: Victim, phases: &[Phase], lane: usize, lanes: usize) {
    let addresses = (free_port(), free_port());
    let wanted = undisturbed(addresses).await;
    let of = |phase: &Phase| if phases.contains(phase) { steps(*phase) } else { Vec::new() };
    let all: Vec<Vec<Step>> = PHASES.iter().map(of).collect();
    let runs = all.iter().map(Vec::len).max().unwrap_or_default();
    for n in (lane..runs).step_by(lanes) {
        let run = Run::start(addresses).await;
        let begun = Instant::now();
        let mut names = Vec::new();
        for (i, phase) in PHASES.into_iter().enumerate() {
            // Once there is nothing more to be killed, the rest of a life is that of the undisturbed run.
            if all[i..].iter().all(|steps| steps.len() <= n) {
                break;
            }
            let step = all[i].get(n);
            let name = step.map_or("not disturbed", |step| step.name.as_str());
            names.push(name.to_owned());
            run.go(phase, step.map(|step| (victim, step))).await;
            run.becomes(&wanted[&phase], &format!("{victim:?} killed, {phase:?}: {name}")).await;
        }
        run.reader().assert_clean();
        eprintln!("{victim:?}, run {n}: {} in {:?}", names.join(", "), begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn configdb_killed_at_any_step_ends_like_an_undisturbed_run() {
    killed_at_every_step(Victim::ConfigDb, &PHASES, LANES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_manager_killed_at_any_step_ends_like_an_undisturbed_run() {
    killed_at_every_step(Victim::ClusterManager, &PHASES, LANES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_git_server_killed_at_any_step_ends_like_an_undisturbed_run() {
    killed_at_every_step(Victim::GitServer, &[Phase::Create, Phase::Bootstrap, Phase::Delete], LANES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_broker_killed_at_any_step_ends_like_an_undisturbed_run() {
    killed_at_every_step(Victim::Broker, &PHASES, LANES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edge_sync_killed_at_any_step_ends_like_an_undisturbed_run() {
    killed_at_every_step(Victim::EdgeSync, &[Phase::Bootstrap, Phase::Deploy, Phase::Delete], LANES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_monitors_killed_while_something_is_deployed_end_like_an_undisturbed_run() {
    killed_at_every_step(Victim::EdgeMonitor, &[Phase::Deploy], 2).await;
    killed_at_every_step(Victim::CentralMonitor, &[Phase::Bootstrap], 1).await;
}
