//! A cluster enrols by a one-time token behind the walls: Mosquitto asks for certificates, the site's own authority signs them.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use e2e::centre::{free_port, git_password, service_process_with};
use e2e::cli::{Cli, Outcome};
use e2e::mosquitto::Mosquitto;
use e2e::process::{Process, Processes};
use e2e::program;
use enrolment_protocol::token::Token;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use simulator::cluster::{ClusterSpec, HostSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, ListenerEvent, MqttConfig, spawn_listener};
use uuid::Uuid;

use crate::factory::uuid;
use crate::walls::{mqtt, walled};

pub const LIMIT: Duration = Duration::from_secs(120);

/// A centre with the authority of the site behind Mosquitto.
pub struct Site {
    pub server: Mosquitto,
    pub directory: tempfile::TempDir,
    pub processes: Processes,
    pub cli: Cli,
    git: SocketAddr,
}

impl Site {
    async fn start() -> Self {
        Self::start_as("", |_| String::new()).await
    }

    /// With further tables in the cluster manager's configuration.
    pub async fn start_with(lifetime_s: u32, tables: impl FnOnce(&Self) -> String) -> Self {
        Self::start_as(&format!("lifetime_s = {lifetime_s}\n"), tables).await
    }

    /// With certificates that live for so many seconds.
    pub async fn start_for(lifetime_s: u32) -> Self {
        Self::start_with(lifetime_s, |_| String::new()).await
    }

    async fn start_as(identity: &str, tables: impl FnOnce(&Self) -> String) -> Self {
        let server = walled("mosquitto", "sparkfleet.acl", "/etc/mosquitto/sparkfleet.acl").await;
        let url = format!("mqtts://localhost:{}", server.address().port());
        let cli = Cli::new(&url).with_environment(files("SPARKFLEET_", server.directory(), "ACME-Central-Operator"));
        let directory = tempfile::tempdir().unwrap();
        let site = Self { server, directory, processes: Processes::default(), cli, git: free_port() };
        let at = |name: &str| site.server.directory().join(name).display().to_string();
        let identity = format!(
            "[identity]\n{identity}authority_cert_file = \"{}\"\nauthority_key_file = \"{}\"\n",
            at("sparkfleet-ca.pem"),
            at("ca.key")
        );
        site.run("configdb", "ACME-Central", "", site.server.directory());
        let tables = format!("{identity}[git]\nlisten = \"{}\"\n{}", site.git, tables(&site));
        site.run("cluster-manager", "ACME-Central", &tables, site.server.directory());
        site
    }

    /// Starts a service with the certificate `name` in `directory`.
    pub fn run(&self, service: &str, name: &str, tables: &str, directory: &Path) {
        let folder = self.directory.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        let url = format!("mqtts://localhost:{}", self.server.address().port());
        let mut environment = files("SPARKFLEET__MQTT__", directory, name);
        environment.push(("SPARKFLEET__MQTT__SERVERS".to_owned(), url));
        let environment: Vec<(&str, &str)> = environment.iter().map(|(key, value)| (&**key, &**value)).collect();
        let head = if service == "edge-sync" { "simulated = true\n" } else { "" };
        let address = self.server.address();
        self.processes.insert(service_process_with(service, head, tables, address, &folder, &environment));
    }

    /// Where the MQTT server is.
    pub fn url(&self) -> String {
        format!("mqtts://localhost:{}", self.server.address().port())
    }

    /// Where git is served.
    pub fn git(&self) -> SocketAddr {
        self.git
    }

    /// Where a service of the centre keeps its state.
    pub fn state_dir(&self, service: &str) -> std::path::PathBuf {
        self.directory.path().join("ACME-Central").join(service)
    }

    /// The manager's directory of identities.
    pub fn identity(&self, file: &str) -> std::path::PathBuf {
        self.state_dir("cluster-manager").join("identity").join(file)
    }

    /// Whether the list of void certificates has that serial number, in upper case.
    pub fn lists(&self, serial: &str) -> bool {
        let mut shown = Command::new("openssl");
        shown.args(["crl", "-noout", "-text", "-in"]).arg(self.identity("revoked.pem"));
        String::from_utf8(shown.output().unwrap().stdout).unwrap().contains(serial)
    }

    pub async fn until<T>(&self, what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
        let limit = tokio::time::Instant::now() + LIMIT;
        loop {
            if let Some(found) = found().await {
                return found;
            }
            assert!(tokio::time::Instant::now() < limit, "not in time: {what}\n{}", self.processes.tails());
        }
    }

    pub async fn entry(&self, cluster: Uuid, slug: &str) -> Option<Value> {
        let outcome = self.cli.run(&["config", "get", &cluster.to_string(), slug, "--output", "json"]).await;
        (outcome.code == 0).then(|| serde_json::from_str::<Value>(&outcome.stdout).unwrap())
    }

    /// A cluster that is set up, with that token; returns the manager's key as well.
    pub async fn cluster(&self, name: &str, token: &Token, expires: &str) -> (Uuid, String) {
        let cluster = uuid(&self.cli.json(&["cluster", "create", name]).await);
        let key = self.until("the manager's key", async || {
            self.entry(cluster, "EdgeClusterIdentity").await.and_then(|entry| Some(entry["key"].as_str()?.to_owned()))
        });
        let key = key.await;
        let token =
            json!({"hash": token.hash().as_str(), "issued": "2026-01-01T00:00:00Z", "expires": expires, "by": "e2e"});
        self.put(cluster, &json!({"tokens": [token]})).await;
        (cluster, key)
    }

    pub async fn put(&self, cluster: Uuid, entry: &Value) {
        let put = ["config", "put", &cluster.to_string(), "EdgeClusterEnrolment", "-"];
        let outcome = self.cli.run_with(&put, &entry.to_string()).await;
        assert_eq!(outcome.code, 0, "{outcome:#?}");
    }

    pub async fn enrol(&self, cluster: Uuid, key: &str, token: &Token, kubernetes: &str) -> Outcome {
        let environment = self.enrolment(cluster, key, token, kubernetes);
        Cli::new("mqtt://127.0.0.1:1").with_environment(environment).run(&["enrol"]).await
    }

    /// What `sparkfleet enrol` goes by.
    fn enrolment(&self, cluster: Uuid, key: &str, token: &Token, kubernetes: &str) -> Vec<(String, String)> {
        let file = self.directory.path().join("token");
        fs::write(&file, token.expose()).unwrap();
        let variables = [
            ("SPARKFLEET_ENROL_CLUSTER", cluster.to_string()),
            ("SPARKFLEET_ENROL_NAME", "Paint_Shop".to_owned()),
            ("SPARKFLEET_ENROL_TOKEN_FILE", file.display().to_string()),
            ("SPARKFLEET_ENROL_MANAGER_KEY", key.to_owned()),
            ("SPARKFLEET_ENROL_TIMEOUT", "2m".to_owned()),
            ("SPARKFLEET_MQTT_SERVERS", format!("mqtts://localhost:{}", self.server.address().port())),
            ("SPARKFLEET_KUBERNETES_URL", kubernetes.to_owned()),
        ];
        let own = variables.map(|(key, value)| (key.to_owned(), value));
        own.into_iter().chain(files("SPARKFLEET_MQTT_", self.server.directory(), "ACME-Enrol")).collect()
    }
}

pub fn files(prefix: &str, directory: &Path, name: &str) -> Vec<(String, String)> {
    let file = |key: &str, name: String| (format!("{prefix}{key}"), directory.join(name).display().to_string());
    vec![
        file("CA_FILE", "sparkfleet-ca.pem".to_owned()),
        file("CERT_FILE", format!("{name}.pem")),
        file("KEY_FILE", format!("{name}.key")),
    ]
}

pub async fn kubernetes(name: &str) -> SimulatedCluster {
    let spec = ClusterSpec { hosts: vec![HostSpec::control_plane("paint-1")], flux: false, ..ClusterSpec::new(name) };
    SimulatedCluster::start(spec, Charts::new()).await.unwrap()
}

/// The Secrets of the cluster's namespace.
pub fn secrets(cluster: &SimulatedCluster) -> Api<Secret> {
    let client = kube::Client::try_from(kube::Config::new(cluster.url().parse().unwrap())).unwrap();
    Api::namespaced(client, "fplus-edge")
}

pub async fn secret(cluster: &SimulatedCluster, name: &str) -> std::collections::BTreeMap<String, String> {
    let secret = secrets(cluster).get(name).await.unwrap();
    let text = |bytes: k8s_openapi::ByteString| String::from_utf8(bytes.0).unwrap();
    secret.data.unwrap().into_iter().map(|(key, value)| (key, text(value))).collect()
}

// long: one story, each step of which needs the one before
#[tokio::test(flavor = "multi_thread")]
async fn a_token_lets_one_cluster_in_once_and_what_is_revoked_stays_out() {
    let site = Site::start().await;
    let (token, other, wrong) = (Token::new([1; 32]), Token::new([2; 32]), Token::new([3; 32]));
    let (cluster, key) = site.cluster("Paint_Shop", &token, "2099-01-01T00:00:00Z").await;
    let (late, _) = site.cluster("Weld_Shop", &other, "2026-01-02T00:00:00Z").await;
    let (own, thief) = (kubernetes("Paint_Shop").await, kubernetes("Thief").await);

    for (asked, token, reason) in
        [(cluster, &wrong, "unknown-token"), (cluster, &other, "unknown-token"), (late, &other, "token-expired")]
    {
        let outcome = site.enrol(asked, &key, token, &thief.url()).await;
        assert_eq!(outcome.code, 1, "{outcome:#?}\n{}", site.processes.tails());
        assert!(outcome.stderr.contains(reason), "{outcome:#?}");
    }
    let first = site.enrol(cluster, &key, &token, &own.url()).await;
    assert_eq!(first.code, 0, "{first:#?}\n{}", site.processes.tails());
    let again = site.enrol(cluster, &key, &token, &own.url()).await;
    assert!(again.code == 0 && again.stderr.contains("already"), "{again:#?}");
    let second = site.enrol(cluster, &key, &token, &thief.url()).await;
    assert!(second.code == 1 && second.stderr.contains("token-used"), "{second:#?}");
    let identity = site.entry(cluster, "EdgeClusterIdentity").await.unwrap();
    assert_eq!(identity["alerts"][0]["kind"], "token-reused", "{identity}");
    assert_eq!(identity["certificates"].as_array().unwrap().len(), 1, "{identity}");
    let serial = identity["certificates"][0]["serial"].as_str().unwrap().to_owned();

    let git = secret(&own, "flux-secrets").await;
    let state_dir = site.state_dir("cluster-manager");
    assert_eq!(
        (git["username"].as_str(), &git["password"]),
        (&*cluster.to_string(), &git_password(&state_dir, cluster).await)
    );
    let credentials = secret(&own, "sparkfleet-identity").await;
    let folder = site.directory.path().join("edge");
    fs::create_dir_all(&folder).unwrap();
    for (key, file) in [("tls.crt", "edge.pem"), ("tls.key", "edge.key"), ("ca.crt", "sparkfleet-ca.pem")] {
        fs::write(folder.join(file), &credentials[key]).unwrap();
    }
    let tables = format!(
        "[cluster]\nname = \"Paint_Shop\"\nuuid = \"{cluster}\"\n[kubernetes]\nnamespace = \"fplus-edge\"\nurl = \"{}\"\n",
        own.url()
    );
    site.run("edge-sync", "edge", &tables, &folder);
    site.until("the birth of edge sync under its own certificate", async || {
        let rows = site.cli.json(&["cluster", "list"]).await;
        rows.as_array().unwrap().iter().any(|row| row["name"] == "Paint_Shop" && row["alive"] == true).then_some(())
    })
    .await;

    let listed = || site.lists(&serial.to_uppercase());
    assert!(!listed());
    site.put(cluster, &json!({"fence": 1})).await;
    site.until("the list of void certificates", async || listed().then_some(())).await;
    let edge = MqttConfig {
        cert_file: Some(folder.join("edge.pem")),
        key_file: Some(folder.join("edge.key")),
        ..mqtt(&site.server, "ACME-Central-Operator")
    };
    void_certificates_are_refused(&site, edge).await;

    // No secret was logged.
    let (logs, password) = (site.processes.logs(), git["password"].clone());
    for hidden in [token.expose(), &password, "PRIVATE KEY"] {
        assert!(!logs.contains(hidden) && !first.stderr.contains(hidden));
    }
    site.processes.stop().await;
    own.stop().await;
    thief.stop().await;
}

/// A server that reads the manager's list lets the operator in, and not the cluster whose certificate is void.
async fn void_certificates_are_refused(site: &Site, edge: MqttConfig) {
    let names = ["sparkfleet-ca.pem", "server.pem", "server.key"];
    let lines = "cafile {dir}/sparkfleet-ca.pem\ncertfile {dir}/server.pem\nkeyfile {dir}/server.key\nrequire_certificate true\nuse_identity_as_username true\ncrlfile {dir}/revoked.pem";
    let server = Mosquitto::with(lines, |own| {
        for name in names {
            fs::copy(site.server.directory().join(name), own.join(name)).unwrap();
        }
        fs::copy(site.identity("revoked.pem"), own.join("revoked.pem")).unwrap();
    });
    let servers = vec![format!("mqtts://localhost:{}", server.address().port())];
    let operator = MqttConfig { servers: servers.clone(), ..mqtt(&site.server, "ACME-Central-Operator") };
    let edge = MqttConfig { servers, ..edge };
    for (config, is_let_in) in [(operator, true), (edge, false)] {
        let mut listener = spawn_listener(vec![("#".to_owned(), QoS::AtMostOnce)], &config, Clock::new()).unwrap();
        let event = tokio::time::timeout(LIMIT, listener.recv()).await.unwrap().unwrap();
        assert_eq!(event == ListenerEvent::Online, is_let_in, "{event:?}");
        listener.stop().await;
    }
}

// long: one enrolment after the other, each killed at another step
#[tokio::test(flavor = "multi_thread")]
async fn an_enrolment_that_was_killed_at_any_step_ends_the_same_when_it_is_run_again() {
    let site = Site::start().await;
    let (token, other) = (Token::new([1; 32]), Token::new([2; 32]));
    let (cluster, key) = site.cluster("Paint_Shop", &token, "2099-01-01T00:00:00Z").await;
    let own = kubernetes("Paint_Shop").await;
    let api = secrets(&own);
    let started = |cluster: Uuid, token: &Token, own: &SimulatedCluster| {
        let environment = site.enrolment(cluster, &key, token, &own.url());
        let environment: Vec<(&str, &str)> = environment.iter().map(|(key, value)| (&**key, &**value)).collect();
        Process::with("enrol", &program::sparkfleet(), &["enrol"], &environment, site.directory.path())
    };
    let value = |secret: &Secret, name: &str| secret.data.as_ref().unwrap()[name].0.clone();

    // Killed when the keys were kept, and nobody had answered.
    site.processes.kill("cluster-manager");
    let mut enrol = started(cluster, &token, &own);
    let kept = site.until("the kept keys", async || api.get_opt("sparkfleet-enrolment-keys").await.unwrap()).await;
    enrol.kill();
    assert!(api.get_opt("sparkfleet-identity").await.unwrap().is_none());
    site.processes.restart("cluster-manager");
    let outcome = site.enrol(cluster, &key, &token, &own.url()).await;
    assert_eq!(outcome.code, 0, "{outcome:#?}\n{}", site.processes.tails());
    let kept_by_then = api.get("sparkfleet-enrolment-keys").await.unwrap();
    assert_eq!(value(&kept_by_then, "key"), value(&kept, "key"));
    let first = secret(&own, "sparkfleet-identity").await;
    assert_eq!(first["manager.key"], key);

    // Killed between the answer and the last Secret, and before the first of them.
    for lost in [&["sparkfleet-identity"][..], &["sparkfleet-identity", "flux-secrets"]] {
        for name in lost {
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
        let outcome = site.enrol(cluster, &key, &token, &own.url()).await;
        assert_eq!(outcome.code, 0, "{outcome:#?}\n{}", site.processes.tails());
        let again = secret(&own, "sparkfleet-identity").await;
        assert_eq!(again["tls.key"], first["tls.key"]);
        assert!(secret(&own, "flux-secrets").await.contains_key("password"));
    }

    // Killed as soon as the request has been recorded.
    let (second, _) = site.cluster("Weld_Shop", &other, "2099-01-01T00:00:00Z").await;
    let welding = kubernetes("Weld_Shop").await;
    let mut enrol = started(second, &other, &welding);
    let certificates =
        async |cluster| site.entry(cluster, "EdgeClusterIdentity").await.unwrap()["certificates"].clone();
    site.until("the record", async || certificates(second).await.is_array().then_some(())).await;
    enrol.kill();
    let outcome = site.enrol(second, &key, &other, &welding.url()).await;
    assert_eq!(outcome.code, 0, "{outcome:#?}\n{}", site.processes.tails());
    for cluster in [cluster, second] {
        assert_eq!(certificates(cluster).await.as_array().unwrap().len(), 1);
        let identity = site.entry(cluster, "EdgeClusterIdentity").await.unwrap();
        assert!(identity.get("alerts").is_none(), "{identity}");
    }
    site.processes.stop().await;
    own.stop().await;
    welding.stop().await;
}
