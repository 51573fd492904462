//! Each service as a process of its own answers what its Helm chart asks it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use join_protocol::terms::Purpose;
use join_trust::files::{self as trust, Present, Wanted};
use serde_json::Value;
use simulator::cluster::{CLUSTER_AUTHORITY, ClusterSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use sparkfleet::service::services;
use sparkfleet_up::broker::{Broker, BrokerConfig};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, Command};
use uuid::Uuid;

/// Longest wait for anything; a machine under load is slow.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);
const CLUSTER: Uuid = Uuid::from_u128(7);

/// A service that runs.
struct Process {
    name: &'static str,
    health: SocketAddr,
    _log: Lines<BufReader<ChildStderr>>,
    _child: Child,
}

impl Process {
    /// Starts it, and reads from its log where it serves health.
    async fn start(name: &'static str, config: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sparkfleet"));
        command.args([name, "--log-format", "json", "--config"]).arg(config).env("SPARKFLEET_LOG", "info");
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let address = async {
            loop {
                let Some(line) = log.next_line().await.unwrap() else { panic!("{name} ended: {said:#?}") };
                let entry: Value = serde_json::from_str(&line).unwrap_or_default();
                if entry["message"] == "serving health and metrics" {
                    return entry["addr"].as_str().unwrap().parse().unwrap();
                }
                said.push(line);
            }
        };
        let health = tokio::time::timeout(PATIENCE, address).await;
        let health = health.unwrap_or_else(|_| panic!("{name} never said where it serves health: {said:#?}"));
        Self { name, health, _log: log, _child: child }
    }

    /// Status and body of a page.
    async fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.health).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    async fn is_ready_in_time(&self) {
        let mut last = String::new();
        let ready = async {
            loop {
                let (status, body) = self.get("/readyz").await;
                if status == 200 {
                    return;
                }
                last = body;
                tokio::time::sleep(LOOK).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, ready).await.is_ok(), "{} is not ready: {last}", self.name);
    }
}

/// The template whose container is another project's.
const OF_OTHERS: &str = "sealed-secrets.yaml";

/// The paths that the probes of the shipped charts ask of our services.
fn probed() -> BTreeSet<String> {
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../helm");
    let templates = ["edge-cluster", "sparkfleet"].map(|chart| charts.join(chart).join("templates"));
    let files = templates.iter().flat_map(|directory| std::fs::read_dir(directory).unwrap());
    let ours = files.map(|file| file.unwrap().path()).filter(|path| !path.ends_with(OF_OTHERS));
    let texts = ours.map(|path| std::fs::read_to_string(path).unwrap());
    let paths = |text: String| -> Vec<String> {
        let probes = text.split("httpGet: { path: ").skip(1);
        probes.filter_map(|rest| Some(rest.split_once(',')?.0.to_owned())).collect()
    };
    texts.flat_map(paths).collect()
}

/// Keys of a join service, as an administrator makes them.
fn join_keys(directory: &Path) -> String {
    let (root, own) = (directory.join("trust"), directory.join("trust/own"));
    trust::init(&root, false).unwrap();
    let wanted =
        Wanted { cluster: CLUSTER, purpose: Purpose::JoinIssuer, days: 30, epoch: 1, present: Present::Refuse };
    trust::issue(&root, &own, &wanted, trust::now_ms()).unwrap();
    std::fs::write(own.join("ca.crt"), CLUSTER_AUTHORITY).unwrap();
    std::fs::set_permissions(own.join("ca.crt"), Permissions::from_mode(0o600)).unwrap();
    own.display().to_string()
}

/// What a service needs beside a broker and a directory, and whether all of it is there so that it gets ready.
fn needs(service: &str, kubernetes: &str, directory: &Path) -> (String, bool) {
    let cluster = format!(
        "[cluster]\nname = \"Paint_Shop\"\nuuid = \"{CLUSTER}\"\n[kubernetes]\nnamespace = \"fplus-edge\"\nurl = \"{kubernetes}\"\n"
    );
    match service {
        "configdb" | "identity" | "git-server" => (String::new(), true),
        "cluster-manager" => ("[bootstrap]\nlisten = \"127.0.0.1:0\"\n".to_owned(), true),
        "console" => ("[web]\nlisten = \"127.0.0.1:0\"\n".to_owned(), true),
        "edge-sync" | "edge-monitor" => (cluster, true),
        "join-service" => {
            let join = "[join]\nservers = [\"https://10.0.0.1:6443\"]\nkubernetes_version = \"v1.33.0\"\n";
            (format!("{cluster}{join}[trust]\ndirectory = \"{}\"\n", join_keys(directory)), true)
        }
        // There is no KDC here.
        "krb-keys" => {
            let kerberos = "[kerberos]\nadmin_principal = \"a/Paint@EXAMPLE\"\nkeytab_file = \"/nonexistent\"\n";
            (format!("{cluster}{kerberos}"), false)
        }
        other => panic!("{other}: say how it is configured, so that its health is looked at"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_service_answers_the_probes_of_its_chart() {
    let probed = probed();
    assert!(probed.contains("/livez") && probed.contains("/readyz"), "{probed:?}");
    let directory = tempfile::tempdir().unwrap();
    let listen = BrokerConfig { listen: "127.0.0.1:0".parse().unwrap(), ..BrokerConfig::default() };
    let broker = Broker::start(listen).await.unwrap();
    let cluster = SimulatedCluster::start(ClusterSpec::new("Paint_Shop"), Charts::new()).await.unwrap();
    let mut running = Vec::new();
    for (name, _) in services() {
        let (tables, gets_ready) = needs(name, &cluster.url(), directory.path());
        let state = directory.path().join(name);
        std::fs::create_dir(&state).unwrap();
        let config = directory.path().join(format!("{name}.toml"));
        let text = format!(
            "state_dir = \"{}\"\n[mqtt]\nservers = [\"{}\"]\n[http]\nlisten = \"127.0.0.1:0\"\n{tables}",
            state.display(),
            broker.url()
        );
        std::fs::write(&config, text).unwrap();
        running.push((Process::start(name, &config).await, gets_ready));
    }
    for (process, gets_ready) in &running {
        for path in &probed {
            let (status, body) = process.get(path).await;
            assert!([200, 503].contains(&status), "{} answers {path} with {status}: {body}", process.name);
        }
        assert_eq!(process.get("/livez").await.0, 200, "{}", process.name);
        assert_eq!(process.get("/metrics").await.0, 200, "{}", process.name);
        if *gets_ready {
            process.is_ready_in_time().await;
        }
    }
    drop(running);
    cluster.stop().await;
}
