//! A Mosquitto with the shipped ACL that asks for client certificates, and central services on it whose Identity is the site's certificate authority.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use enrolment_protocol::token::Token;
use serde_json::{Value, json};
use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, ListenerEvent, ListenerHandle, MqttConfig, spawn_listener};
use uuid::Uuid;

use crate::central_services::{ORGANISATION, free_port, git_server_head, service_process_with};
use crate::cli::{Cli, Outcome};
use crate::mosquitto::Mosquitto;
use crate::process::{Process, Processes};
use crate::wait;

/// The users that have a certificate of the fleet; a user is named by its group.
pub const USERS: [&str; 7] = [
    "ACME-Central",
    "ACME-Central-Identity",
    "ACME-Central-Git",
    "ACME-Central-Operator",
    "ACME-Paint_Shop",
    "ACME-Paint_Shop-Join",
    "ACME-Weld_Shop",
];

/// The user that only reads, and the id under which it publishes STATE.
pub const VIEWER: &str = "ACME-Central-Viewer";
/// See [`VIEWER`].
pub const VIEWER_HOST: &str = "Historian";

/// Longest wait for anything at a broker with the shipped ACL.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Sparkplug group of another make that operators and the console may command.
pub const FOREIGN_GROUP: &str = "Line_7";

/// A control plane with the authority of the site behind Mosquitto.
#[derive(Debug)]
pub struct Site {
    /// The MQTT server; the certificates are in its directory.
    pub server: Mosquitto,
    /// Where the services keep their state.
    pub directory: tempfile::TempDir,
    /// The services.
    pub processes: Processes,
    /// The operator's command line.
    pub cli: Cli,
    git: SocketAddr,
    scripts: SocketAddr,
    protocol: String,
}

impl Site {
    /// The same over that version of MQTT, as `mqtt.protocol` has it. Where `operators` are named, each has a user of their own, made by `sparkfleet acl operator`, and the command line is the first one's.
    pub async fn start_over(protocol: &str, operators: &[&str]) -> Self {
        let named = operators.iter().flat_map(|name| ["--operator", name]);
        let named: Vec<&str> = named.chain(["--foreign-group", FOREIGN_GROUP]).collect();
        let server = with_acl("mosquitto", "sparkfleet.acl", "/etc/mosquitto/sparkfleet.acl", &named).await;
        for name in operators {
            let at = |file: &str| server.directory().join(file).display().to_string();
            let (ca, key, directory) = (at("sparkfleet-ca.pem"), at("ca.key"), at(""));
            let make = ["acl", "operator", name, "--ca", &ca, "--ca-key", &key, "--directory", &directory];
            let outcome = Cli::new("mqtt://127.0.0.1:1").run(&make).await;
            assert_eq!(outcome.code, 0, "{outcome:#?}");
        }
        let configdb = if operators.is_empty() { "" } else { "operators_named = true\n" };
        let operator = operators.first().map_or_else(String::new, |name| format!("-{name}"));
        let site = Self::on(server, protocol, &format!("ACME-Central-Operator{operator}"));
        site.control_plane(configdb, "", |_| String::new());
        site
    }

    /// The command line of another user.
    pub fn cli_of(&self, user: &str) -> Cli {
        let protocol = ("SPARKFLEET_PROTOCOL".to_owned(), self.protocol.clone());
        Cli::new(&self.url())
            .with_environment(files("SPARKFLEET_", self.server.directory(), user).into_iter().chain([protocol]))
    }

    /// Starts it, with certificates that live as long as Identity has them by default.
    ///
    /// # Panics
    /// A program cannot be started; so do all other functions here.
    pub async fn start() -> Self {
        Self::start_as("", |_| String::new()).await
    }

    /// With more in the cluster manager's configuration: keys of its table `git`, then further tables.
    pub async fn start_with(lifetime_s: u32, tables: impl FnOnce(&Self) -> String) -> Self {
        Self::start_as(&format!("lifetime_s = {lifetime_s}\n"), tables).await
    }

    /// With certificates that live for so many seconds.
    pub async fn start_for(lifetime_s: u32) -> Self {
        Self::start_with(lifetime_s, |_| String::new()).await
    }

    async fn start_as(identity: &str, tables: impl FnOnce(&Self) -> String) -> Self {
        let server = with_shipped_acl("mosquitto", "sparkfleet.acl", "/etc/mosquitto/sparkfleet.acl").await;
        let site = Self::on(server, "auto", "ACME-Central-Operator");
        site.control_plane("", identity, tables);
        site
    }

    fn on(server: Mosquitto, protocol: &str, operator: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (processes, protocol, cli) = (Processes::default(), protocol.to_owned(), Cli::new(""));
        let mut site = Self { server, directory, processes, cli, git: free_port(), scripts: free_port(), protocol };
        site.cli = site.cli_of(operator);
        site
    }

    /// Starts the central services, with these keys of ConfigDB and Identity.
    fn control_plane(&self, configdb: &str, identity: &str, tables: impl FnOnce(&Self) -> String) {
        let tables = format!("[git]\n{}", tables(self));
        for (service, name, head) in self.services(self.git, configdb, identity) {
            let tables = if service == "cluster-manager" { &*tables } else { "" };
            self.run_with(service, name, (&head, tables), self.server.directory());
        }
    }

    /// Starts the central services once more, with a state of their own below `folder`; they are not among those of the site.
    #[must_use]
    pub fn second_control_plane(&self, folder: &Path) -> Processes {
        let second = Processes::default();
        for (service, name, head) in self.services(free_port(), "", "") {
            second.insert(self.process(service, name, (&head, ""), self.server.directory(), &folder.join(name)));
        }
        second
    }

    /// Each central service, its user, and the keys before its first table. The git server listens on `git`.
    fn services(&self, git: SocketAddr, configdb: &str, identity: &str) -> [(&'static str, &'static str, String); 4] {
        let at = |name: &str| self.server.directory().join(name).display().to_string();
        let identity = format!(
            "{identity}authority_cert_file = \"{}\"\nauthority_key_file = \"{}\"\n",
            at("sparkfleet-ca.pem"),
            at("ca.key")
        );
        [
            ("configdb", "ACME-Central", configdb.to_owned()),
            ("cluster-manager", "ACME-Central", String::new()),
            ("identity", "ACME-Central-Identity", identity),
            ("git-server", "ACME-Central-Git", git_server_head(git)),
        ]
    }

    /// Starts a service with the certificate `name` in `directory`.
    pub fn run(&self, service: &str, name: &str, tables: &str, directory: &Path) {
        let head = if service == "edge-sync" { "simulated = true\n" } else { "" };
        self.run_with(service, name, (head, tables), directory);
    }

    /// The same, with keys before the first table.
    pub fn run_with(&self, service: &str, name: &str, (head, tables): (&str, &str), directory: &Path) {
        let folder = self.directory.path().join(name);
        self.processes.insert(self.process_at(service, name, (head, tables), (directory, &folder), self.scripts));
    }

    /// The same as a process that is not among those of the site, with its state below `folder`.
    #[must_use]
    pub fn process(
        &self,
        service: &str,
        name: &str,
        (head, tables): (&str, &str),
        directory: &Path,
        folder: &Path,
    ) -> Process {
        self.process_at(service, name, (head, tables), (directory, folder), free_port())
    }

    /// The same; a cluster manager serves bootstrap scripts at `scripts`.
    fn process_at(
        &self,
        service: &str,
        name: &str,
        (head, tables): (&str, &str),
        (directory, folder): (&Path, &Path),
        scripts: SocketAddr,
    ) -> Process {
        fs::create_dir_all(folder).unwrap();
        let mut environment = files("SPARKFLEET__MQTT__", directory, name);
        environment.push(("SPARKFLEET__MQTT__SERVERS".to_owned(), self.url()));
        if service == "cluster-manager" {
            environment.push(("SPARKFLEET__BOOTSTRAP__LISTEN".to_owned(), scripts.to_string()));
        }
        let environment: Vec<(&str, &str)> = environment.iter().map(|(key, value)| (&**key, &**value)).collect();
        let address = self.server.address();
        // They come behind the table `mqtt`.
        let tables = &format!("protocol = \"{}\"\n{tables}", self.protocol);
        service_process_with(service, head, tables, address, folder, &environment)
    }

    /// Where the MQTT server is.
    pub fn url(&self) -> String {
        format!("mqtts://localhost:{}", self.server.address().port())
    }

    /// Where git is served.
    #[must_use]
    pub fn git(&self) -> SocketAddr {
        self.git
    }

    /// Where the cluster manager serves the scripts that bootstrap clusters.
    #[must_use]
    pub fn scripts(&self) -> SocketAddr {
        self.scripts
    }

    /// Where a service of the control plane keeps its state.
    pub fn state_dir(&self, service: &str) -> PathBuf {
        self.directory.path().join("ACME-Central").join(service)
    }

    /// A file of the authority.
    pub fn identity(&self, file: &str) -> PathBuf {
        self.directory.path().join("ACME-Central-Identity").join("identity").join("identity").join(file)
    }

    /// Whether the list of revoked certificates has that serial number, in upper case.
    pub fn lists(&self, serial: &str) -> bool {
        let mut shown = Command::new("openssl");
        shown.args(["crl", "-noout", "-text", "-in"]).arg(self.identity("revoked.pem"));
        String::from_utf8(shown.output().unwrap().stdout).unwrap().contains(serial)
    }

    /// Waits until `found` yields something, at most [`LIMIT`].
    ///
    /// # Panics
    /// It does not; the message holds `what` and the ends of the logs.
    pub async fn until<T>(&self, what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
        let limit = tokio::time::Instant::now() + LIMIT;
        loop {
            if let Some(found) = found().await {
                return found;
            }
            assert!(tokio::time::Instant::now() < limit, "not in time: {what}\n{}", self.processes.tails());
        }
    }

    /// An entry of ConfigDB, if it is there.
    pub async fn entry(&self, cluster: Uuid, slug: &str) -> Option<Value> {
        let outcome = self.cli.run(&["config", "get", &cluster.to_string(), slug, "--output", "json"]).await;
        (outcome.code == 0).then(|| serde_json::from_str::<Value>(&outcome.stdout).unwrap())
    }

    /// A cluster that is set up, with that token; returns the manager's key as well.
    pub async fn cluster(&self, name: &str, token: &Token, expires: &str) -> (Uuid, String) {
        let made = self.cli.json(&["cluster", "create", name]).await;
        let cluster: Uuid = made["uuid"].as_str().unwrap().parse().unwrap();
        let key = self.until("the manager's key", async || {
            self.entry(cluster, "EdgeClusterIdentity").await.and_then(|entry| Some(entry["key"].as_str()?.to_owned()))
        });
        let key = key.await;
        let token =
            json!({"hash": token.hash().as_str(), "issued": "2026-01-01T00:00:00Z", "expires": expires, "by": "e2e"});
        self.put(cluster, &json!({"tokens": [token]})).await;
        (cluster, key)
    }

    /// Writes what ConfigDB says of a cluster's enrolment.
    pub async fn put(&self, cluster: Uuid, entry: &Value) {
        let put = ["config", "put", &cluster.to_string(), "EdgeClusterEnrolment", "-"];
        let outcome = self.cli.run_with(&put, &entry.to_string()).await;
        assert_eq!(outcome.code, 0, "{outcome:#?}");
    }

    /// Runs `sparkfleet enrol` to its end.
    pub async fn enrol(&self, cluster: Uuid, key: &str, token: &Token, kubernetes: &str) -> Outcome {
        let environment = self.enrolment(cluster, key, token, kubernetes);
        Cli::new("mqtt://127.0.0.1:1").with_environment(environment).run(&["enrol"]).await
    }

    /// What `sparkfleet enrol` goes by.
    #[must_use]
    pub fn enrolment(&self, cluster: Uuid, key: &str, token: &Token, kubernetes: &str) -> Vec<(String, String)> {
        let file = self.directory.path().join("token");
        fs::write(&file, token.expose()).unwrap();
        let variables = [
            ("SPARKFLEET_ENROL_CLUSTER", cluster.to_string()),
            ("SPARKFLEET_ENROL_NAME", "Paint_Shop".to_owned()),
            ("SPARKFLEET_ENROL_TOKEN_FILE", file.display().to_string()),
            ("SPARKFLEET_ENROL_IDENTITY_KEY", key.to_owned()),
            ("SPARKFLEET_ENROL_TIMEOUT", "2m".to_owned()),
            ("SPARKFLEET_MQTT_SERVERS", format!("mqtts://localhost:{}", self.server.address().port())),
            ("SPARKFLEET_KUBERNETES_URL", kubernetes.to_owned()),
        ];
        let own = variables.map(|(key, value)| (key.to_owned(), value));
        own.into_iter().chain(files("SPARKFLEET_MQTT_", self.server.directory(), "ACME-Enrol")).collect()
    }
}

/// The variables that lead a program to the certificate `name` in `directory`.
#[must_use]
pub fn files(prefix: &str, directory: &Path, name: &str) -> Vec<(String, String)> {
    let file = |key: &str, name: String| (format!("{prefix}{key}"), directory.join(name).display().to_string());
    vec![
        file("CA_FILE", "sparkfleet-ca.pem".to_owned()),
        file("CERT_FILE", format!("{name}.pem")),
        file("KEY_FILE", format!("{name}.key")),
    ]
}

/// Mosquitto with the files of `sparkfleet acl generate`, changed only where they name directories and the port.
pub async fn with_shipped_acl(kind: &str, file: &str, installed: &str) -> Mosquitto {
    with_acl(kind, file, installed, &[]).await
}

/// The same with more options of `sparkfleet acl generate`.
async fn with_acl(kind: &str, file: &str, installed: &str, options: &[&str]) -> Mosquitto {
    let files = tempfile::tempdir().unwrap();
    let directory = files.path().display().to_string();
    let arguments = ["acl", "generate", "--broker", kind, "--cluster", "Paint_Shop", "--cluster", "Weld_Shop"];
    let rest = ["--viewer-host", VIEWER_HOST, "--directory", &directory];
    let outcome = Cli::new("mqtt://127.0.0.1:1").run(&[&arguments[..], &rest, options].concat()).await;
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let conf = fs::read_to_string(files.path().join("sparkfleet.conf")).unwrap();
    let conf = conf.replace("/etc/mosquitto/certs/", "{dir}/").replace(installed, &format!("{{dir}}/{file}"));
    let lines: Vec<&str> = conf.lines().filter(|line| !line.starts_with("listener ")).collect();
    // The listener of a test has a port of its own; everything else belongs to it as in the file.
    Mosquitto::with(&lines.join("\n"), |own| {
        certificates(own);
        fs::copy(files.path().join(file), own.join(file)).unwrap();
    })
}

/// An authority, a server certificate, and a certificate for each user, named by its group.
fn certificates(directory: &Path) {
    let at = |name: &str| directory.join(name).display().to_string();
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    let authority = ["-subj", "/CN=test fleet", "-keyout", &at("ca.key"), "-out", &at("sparkfleet-ca.pem")];
    openssl(&[&["req", "-x509"], &key[..], &authority].concat());
    let issue = |name: &str, common_name: &str, extension: &str| {
        let (request, file) = (at(&format!("{name}.csr")), at(&format!("{name}.ext")));
        fs::write(&file, extension).unwrap();
        let subject = format!("/CN={common_name}/OU=test");
        let private = at(&format!("{name}.key"));
        openssl(&[&["req"], &key[..5], &["-subj", &subject, "-keyout", &private, "-out", &request]].concat());
        let (ca, ca_key, out) = (at("sparkfleet-ca.pem"), at("ca.key"), at(&format!("{name}.pem")));
        let signed = ["-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial", "-extfile", &file, "-days", "2", "-out", &out];
        openssl(&[&["x509", "-req", "-in", &request], &signed[..]].concat());
    };
    issue("server", "server", "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n");
    for user in USERS.into_iter().chain([VIEWER]) {
        issue(user, user, "extendedKeyUsage=clientAuth\n");
    }
    issue("ACME-Enrol", "ACME-Enrol", "extendedKeyUsage=clientAuth\n");
    issue("stranger", "ACME-Stranger", "extendedKeyUsage=clientAuth\n");
}

fn openssl(arguments: &[&str]) {
    let done = Command::new("openssl").args(arguments).output().expect("openssl is installed");
    assert!(done.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A session with these settings that receives these topics of the central services, such as `NDATA/ConfigDB`.
///
/// # Panics
/// It does not come online.
pub async fn listener(mqtt: &MqttConfig, topics: &[&str]) -> ListenerHandle {
    let filter = |topic: &&str| (format!("spBv1.0/{ORGANISATION}-Central/{topic}"), QoS::AtMostOnce);
    let mut listener = spawn_listener(topics.iter().map(filter).collect(), mqtt, Clock::new()).unwrap();
    let online = tokio::time::timeout(wait::PATIENCE, listener.recv()).await.unwrap();
    assert_eq!(online, Some(ListenerEvent::Online));
    listener
}

/// What a program needs to connect as a user.
pub fn mqtt(server: &Mosquitto, user: &str) -> MqttConfig {
    let file = |name: &str| Some(server.directory().join(name));
    MqttConfig {
        servers: vec![format!("mqtts://localhost:{}", server.address().port())],
        ca_file: file("sparkfleet-ca.pem"),
        cert_file: file(&format!("{user}.pem")),
        key_file: file(&format!("{user}.key")),
        ..MqttConfig::default()
    }
}
