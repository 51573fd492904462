//! What hosts with real TPMs join: Mosquitto, control plane, join service and the API of the cluster, with trust and a certificate authority of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use simulator::cluster::{ClusterSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use tempfile::TempDir;
use uuid::Uuid;

use crate::central_services::{CentralServices, free_port, service_process_with};
use crate::cli::Cli;
use crate::mosquitto::Mosquitto;
use crate::process::Process;
use crate::recorder::Recorder;
use crate::wait;

/// Name of the cluster.
pub const CLUSTER: &str = "Cell";

/// Runs a program that has to succeed; standard output, without blanks at its ends.
///
/// # Panics
/// It cannot be started, or fails.
pub fn succeed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Central services, join service and the API of the cluster that is joined.
#[derive(Debug)]
pub struct Site {
    /// The cluster's API.
    pub cluster: SimulatedCluster,
    /// The cluster's object in ConfigDB.
    pub uuid: Uuid,
    /// The join service.
    pub join: Process,
    /// What is said over the broker.
    pub recorder: Recorder,
    /// The operator, who holds the trust.
    pub cli: Cli,
    // What follows is needed by all of the above.
    _central: CentralServices,
    directory: TempDir,
    /// The broker of all.
    pub broker: Mosquitto,
}

impl Site {
    /// Starts it for hosts of a distribution, `kubeadm` or `k3s`.
    ///
    /// # Panics
    /// A part of it does not start.
    pub async fn start(distribution: &str) -> Self {
        let (broker, directory) = (Mosquitto::start(), tempfile::tempdir().expect("a directory"));
        let recorder = Recorder::start(broker.address()).await;
        let (central, cli) = (CentralServices::start(broker.address(), free_port()), Cli::new(&broker.url()));
        let cluster = SimulatedCluster::start(ClusterSpec::new(CLUSTER), Charts::new()).await.expect("a cluster");
        let created = cli.json(&["cluster", "create", CLUSTER]).await;
        let uuid: Uuid = created["uuid"].as_str().and_then(|text| text.parse().ok()).expect("a UUID");
        let trust = directory.path().join("trust");
        let (text, own) = (trust.display().to_string(), trust.join(uuid.to_string()));
        cli.json(&["trust", "init", "--dir", &text]).await;
        for purpose in ["join-issuer", "policy-signer"] {
            cli.json(&["trust", "issue", &uuid.to_string(), "--purpose", purpose, "--dir", &text]).await;
        }
        let cli = cli.with_environment([("SPARKFLEET_TRUST".to_owned(), text)]);
        // The authority of the cluster.
        let (key, certificate) = (own.join("ca.key").display().to_string(), own.join("ca.crt").display().to_string());
        succeed("openssl", &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]);
        let request = ["req", "-x509", "-key", &key, "-subj", "/CN=kubernetes", "-days", "365", "-out", &certificate];
        succeed("openssl", &[&request[..], &["-addext", "keyUsage=critical,keyCertSign"]].concat());
        succeed("chmod", &["600", &key, &certificate]);
        let keys = format!("directory = \"{}\"", own.display());
        let join = Joining::simulated(distribution, &cluster).start(uuid, &keys, broker.address(), directory.path());
        Self { cluster, uuid, join, recorder, cli, _central: central, directory, broker }
    }

    /// Starts the join service again; it takes its keys from that Secret of its cluster.
    pub fn start_join_with_secret(&mut self, distribution: &str, secret: &str) {
        self.start_join(distribution, &format!("secret = \"{secret}\""));
    }

    /// Starts the join service again; it takes its keys from the directory of the cluster.
    pub fn start_join_with_directory(&mut self, distribution: &str) {
        let directory = self.trust().join(self.uuid.to_string());
        self.start_join(distribution, &format!("directory = \"{}\"", directory.display()));
    }

    /// Starts the join service again, for the cluster of kubeadm of that kubeconfig; it takes its keys from the Secret that `trust secret` has written there. Hosts join by the API server at that
    /// address, and may have addresses of that network.
    pub fn start_join_by_kubeconfig(&mut self, kubeconfig: &Path, server: &str, network: &str) {
        self.join.kill();
        let joining = Joining {
            distribution: "kubeadm",
            kubernetes: String::new(),
            kubeconfig: Some(kubeconfig),
            server: &format!("https://{server}"),
            network,
            // Without hardware virtualisation a control plane may take a quarter of an hour.
            control_plane_minutes: 60,
        };
        let keys = "secret = \"sparkfleet-join\"";
        self.join = joining.start(self.uuid, keys, self.broker.address(), self.directory.path());
    }

    fn start_join(&mut self, distribution: &str, keys: &str) {
        self.join.kill();
        let joining = Joining::simulated(distribution, &self.cluster);
        self.join = joining.start(self.uuid, keys, self.broker.address(), self.directory.path());
    }

    /// The directory of trust, as `sparkfleet trust` makes it.
    #[must_use]
    pub fn trust(&self) -> PathBuf {
        self.directory.path().join("trust")
    }

    /// The public key of the root of trust, as hosts have it.
    ///
    /// # Panics
    /// It is not there.
    #[must_use]
    pub fn root(&self) -> String {
        fs::read_to_string(self.trust().join("root.pub")).expect("the root is there").trim().to_owned()
    }

    /// Writes the policy, and waits until the join service judges by it.
    pub async fn set_policy(&self, policy: &Value) {
        let set = self.cli.json_with(&["policy", "set", CLUSTER, "-"], &policy.to_string()).await;
        self.agree(&set).await;
    }

    /// Waits until the join service judges by what a command has written.
    ///
    /// # Panics
    /// The command has written no policy.
    pub async fn agree(&self, written: &Value) {
        in_force(&self.cli, CLUSTER, written["revision"].as_u64().expect("a revision")).await;
    }

    /// What `host list` says of a host, as soon as `found` likes it.
    pub async fn host(&self, name: &str, what: &str, found: impl Fn(&Value) -> bool) -> Value {
        listed(&self.cli, &self.join, name, what, found).await
    }

    /// The same, in that state.
    pub async fn in_state(&self, name: &str, state: &str) -> Value {
        self.host(name, state, |row| row["state"] == state).await
    }

    /// Join tokens that are valid.
    #[must_use]
    pub fn tokens(&self) -> usize {
        let all = self.cluster.kubernetes().list("v1", "Secret", Some("kube-system"));
        all.iter().filter(|secret| secret["type"] == "bootstrap.kubernetes.io/token").count()
    }
}

/// What a join service is started for.
struct Joining<'a> {
    distribution: &'a str,
    /// Keys of its table `kubernetes`.
    kubernetes: String,
    /// Where it finds the API, if the table does not say so.
    kubeconfig: Option<&'a Path>,
    server: &'a str,
    network: &'a str,
    control_plane_minutes: u32,
}

impl<'a> Joining<'a> {
    fn simulated(distribution: &'a str, cluster: &SimulatedCluster) -> Self {
        let kubernetes = format!("namespace = \"{}\"\nurl = \"{}\"\n", cluster.namespace(), cluster.url());
        let (server, network) = ("https://10.1.0.1:6443", "10.1.0.0/16");
        Self { distribution, kubernetes, kubeconfig: None, server, network, control_plane_minutes: 10 }
    }

    fn start(&self, uuid: Uuid, keys: &str, broker: SocketAddr, directory: &Path) -> Process {
        let Self { distribution, kubernetes, server, network, control_plane_minutes, .. } = self;
        let tables = format!(
            "[cluster]\nname = \"{CLUSTER}\"\nuuid = \"{uuid}\"\n[kubernetes]\n{kubernetes}[trust]\n{keys}\n\
             [join]\ndistribution = \"{distribution}\"\nservers = [\"{server}\"]\nnetworks = [\"{network}\"]\n\
             control_plane_minutes = {control_plane_minutes}\n"
        );
        let kubeconfig = self.kubeconfig.map(|path| path.display().to_string());
        let environment: Vec<(&str, &str)> = kubeconfig.iter().map(|path| ("KUBECONFIG", path.as_str())).collect();
        service_process_with("join-service", "", &tables, broker, directory, &environment)
    }
}

/// The row of a host in `host list`, as soon as `found` accepts it. The failure shows the log of `process`.
///
/// # Panics
/// It never does.
pub async fn listed(cli: &Cli, process: &Process, name: &str, what: &str, found: impl Fn(&Value) -> bool) -> Value {
    listed_within(wait::PATIENCE, wait::LOOK, cli, name, what, found)
        .await
        .unwrap_or_else(|text| panic!("{text}\n{}", process.tail()))
}

/// The same with another patience; asks each time after `interval`.
///
/// # Errors
/// It never does: what the host was seen as.
///
/// # Panics
/// `host list` fails.
pub async fn listed_within(
    patience: Duration,
    interval: Duration,
    cli: &Cli,
    name: &str,
    what: &str,
    found: impl Fn(&Value) -> bool,
) -> Result<Value, String> {
    let deadline = Instant::now() + patience;
    loop {
        let rows = cli.json(&["host", "list"]).await;
        let rows = rows.as_array().expect("a list");
        let row = rows.iter().find(|row| row["name"] == name).cloned().unwrap_or_default();
        if found(&row) {
            return Ok(row);
        }
        if Instant::now() >= deadline {
            return Err(format!("waited for {name} to be {what}: {row:#}"));
        }
        tokio::time::sleep(interval).await;
    }
}

/// Waits until the join service of a cluster judges by a policy of at least this revision.
///
/// # Panics
/// It never does.
pub async fn in_force(cli: &Cli, cluster: &str, revision: u64) {
    let deadline = Instant::now() + wait::PATIENCE;
    loop {
        let policy = cli.json(&["policy", "show", cluster]).await;
        let at_cluster = &policy["join_service"];
        if at_cluster["agreed"] == true && at_cluster["revision"].as_u64() >= Some(revision) {
            return;
        }
        assert!(Instant::now() < deadline, "the policy does not arrive: {policy:#}");
    }
}
