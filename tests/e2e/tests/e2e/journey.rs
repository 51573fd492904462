//! One cluster's life on a Mosquitto with the shipped ACL, as its operator and the user at the edge see it. The bootstrap command with sh, kubectl and curl sets it up, the Job that the
//! script starts enrols it, and it is born with its own certificate. Then it gets a deployment and a secret, is renewed, revoked, enrolled again and deleted. None of the secrets on the way
//! is where it does not belong. The journey runs undisturbed, and with a service killed at each step ([`BLOWS`]).

use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use e2e::edge::Edge;
use e2e::process::Processes;
use e2e::secured_site::{LIMIT, Site, mqtt};
use e2e::shell::{ExitedCommand, Shell};
use e2e::wait;
use serde_json::Value;
use simulator::flux::install;
use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, ListenerEvent, MqttConfig, spawn_listener};
use uuid::Uuid;

const NAME: &str = "Paint_Shop";
const GROUP: &str = "ACME-Paint_Shop";
const NAMESPACE: &str = "fplus-edge";
/// How long a certificate lives, in seconds: the edge renews it at two thirds, and has the last third to take the other one up.
const LIFETIME_S: u32 = 180;

const VALUE: &str = "correct horse battery staple";

const CLUSTER: Uuid = uuid::uuid!("c1000000-0000-4000-8000-000000000002");

/// The parts of the life, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    Bootstrap,
    Deploy,
    Seal,
    Rotate,
    Revoke,
    EnrolAgain,
    Delete,
}

/// In each step: when the first message on a topic is received, which service is killed and started again. `CLUSTER` stands for the UUID of the cluster, `NAME` for its name.
const BLOWS: [(Step, &str, &str); 17] = [
    (Step::Create, "ACME-Central/DBIRTH/ConfigDB/CLUSTER", "cluster-manager"),
    (Step::Create, "ACME-Central/DBIRTH/Cluster-Manager/NAME", "configdb"),
    (Step::Bootstrap, "ACME-Enrol/NBIRTH/CLUSTER", "identity"),
    (Step::Bootstrap, "ACME-Enrol/NCMD/CLUSTER", "configdb"),
    (Step::Bootstrap, "ACME-Paint_Shop/NBIRTH/Sync", "edge-sync"),
    (Step::Bootstrap, "ACME-Paint_Shop/NBIRTH/Monitor", "edge-monitor"),
    (Step::Deploy, "ACME-Paint_Shop/NCMD/Sync", "cluster-manager"),
    (Step::Deploy, "ACME-Paint_Shop/DBIRTH/Sync/deployment-Oven_1", "edge-sync"),
    (Step::Deploy, "ACME-Paint_Shop/NBIRTH/Oven_1", "configdb"),
    (Step::Seal, "ACME-Paint_Shop/NCMD/Sync", "cluster-manager"),
    (Step::Rotate, "ACME-Paint_Shop/NBIRTH/Identity", "identity"),
    (Step::Rotate, "ACME-Paint_Shop/NCMD/Identity", "edge-sync"),
    (Step::Revoke, "ACME-Central/DDATA/ConfigDB/CLUSTER", "identity"),
    (Step::EnrolAgain, "ACME-Enrol/NBIRTH/CLUSTER", "configdb"),
    (Step::EnrolAgain, "ACME-Enrol/NCMD/CLUSTER", "identity"),
    (Step::Delete, "ACME-Paint_Shop/DDEATH/Sync/deployment-Oven_1", "edge-sync"),
    (Step::Delete, "ACME-Central/DDATA/ConfigDB/CLUSTER", "cluster-manager"),
];

/// Topic and payload of a message.
type Message = (String, Vec<u8>);

/// A service that is killed when a topic is received.
#[derive(Debug, Clone)]
struct Blow {
    topic: String,
    processes: Processes,
    service: &'static str,
}

/// Every message, as the operator receives it, and the action that it triggers.
#[derive(Debug, Clone, Default)]
struct Record {
    messages: Arc<Mutex<Vec<Message>>>,
    armed: Arc<Mutex<Vec<Blow>>>,
}

impl Record {
    fn of(site: &Site) -> Self {
        let record = Self::default();
        let all = record.clone();
        let filters = vec![("spBv1.0/#".to_owned(), QoS::AtMostOnce)];
        let mut listener = spawn_listener(filters, &mqtt(&site.server, "ACME-Central-Operator"), Clock::new()).unwrap();
        tokio::spawn(async move {
            while let Some(event) = listener.recv().await {
                if let ListenerEvent::Message { topic, payload, .. } = event {
                    all.strike(&topic);
                    locked(&all.messages).push((topic, payload.to_vec()));
                }
            }
        });
        record
    }

    /// Kills what is to be killed on this topic, if it runs, and starts it again.
    fn strike(&self, topic: &str) {
        locked(&self.armed).retain(|blow| {
            let is_due = blow.topic == topic && blow.processes.kill(blow.service);
            if is_due {
                blow.processes.restart(blow.service);
            }
            !is_due
        });
    }

    fn messages(&self) -> Vec<Message> {
        locked(&self.messages).clone()
    }

    /// Waits until a node of the cluster is born, not counting the first `from` messages.
    async fn birth(&self, node: &str, from: usize, site: &Site, edge: &Edge) {
        let topic = format!("spBv1.0/{GROUP}/NBIRTH/{node}");
        let born = || self.messages()[from..].iter().any(|(said, _)| *said == topic).then_some(());
        let tails = || format!("{}\n{}\n{}", site.processes.tails(), edge.processes.tails(), edge.job_log());
        wait::until(&format!("the birth of {node}"), born, tails).await;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The central services, the edge and the user there.
struct Journey {
    /// Services are killed on the way.
    is_disturbed: bool,
    site: Site,
    edge: Edge,
    shell: Shell,
    record: Record,
    /// What must be nowhere.
    secrets: Vec<String>,
    /// What was shown to users, and printed by programs that have ended.
    shown: String,
}

impl Journey {
    async fn begin(is_disturbed: bool) -> Self {
        let site = Site::start_with(LIFETIME_S, |site| {
            let at = |name: &str| site.server.directory().join(name).display().to_string();
            let flux = at("flux.yaml");
            fs::write(&flux, install::manifests_yaml()).unwrap();
            format!(
                "[edge]\nmqtt_servers = [\"{}\"]\nmqtt_secret = \"sparkfleet-identity\"\n\
                 [bootstrap]\nflux = \"{flux}\"\nimage = \"sparkfleet:test\"\nmqtt_ca_file = \"{}\"\nmqtt_cert_file = \"{}\"\nmqtt_key_file = \"{}\"\n",
                site.url(),
                at("sparkfleet-ca.pem"),
                at("ACME-Enrol.pem"),
                at("ACME-Enrol.key")
            )
        })
        .await;
        let record = Record::of(&site);
        let edge = Edge::with_certificates(NAME, &site.url(), site.server.address()).await;
        let shell = Shell::new(&edge.cluster.kube_config());
        let key = fs::read_to_string(site.server.directory().join("ACME-Enrol.key")).unwrap();
        Self { is_disturbed, site, edge, shell, record, secrets: vec![line_of(&key)], shown: String::new() }
    }

    /// What the next step is. Nothing of the step before is waited for any more but the blows that belong to it.
    async fn enter(&self, step: Step) {
        self.are_struck().await;
        let blow = |topic: &str, service| {
            let topic = topic.replace("CLUSTER", &CLUSTER.to_string()).replace("NAME", NAME);
            let of_edge = e2e::edge::SERVICES.contains(&service);
            let processes = if of_edge { &self.edge.processes } else { &self.site.processes };
            Blow { topic: format!("spBv1.0/{topic}"), processes: processes.clone(), service }
        };
        let blows = BLOWS.into_iter().filter(|(of, ..)| self.is_disturbed && *of == step);
        locked(&self.record.armed).extend(blows.map(|(_, topic, service)| blow(topic, service)));
    }

    async fn are_struck(&self) {
        let struck = || locked(&self.record.armed).is_empty().then_some(());
        let left = || format!("{:?}\n{}", locked(&self.record.armed), self.site.processes.tails());
        wait::until("all blows of a step", struck, left).await;
    }

    async fn create(&self) {
        self.site.cli.json(&["cluster", "create", NAME, "--uuid", &CLUSTER.to_string()]).await;
    }

    /// Pastes a line that was made for this, and says yes.
    async fn bootstrap(&mut self) {
        let link = self.site.cli.json(&["cluster", "bootstrap", NAME]).await;
        let line = link["line"].as_str().unwrap();
        self.secrets.push(line[line.find("sft_").unwrap()..][..47].to_owned());
        let arguments = self.shell.path().join("arguments");
        for program in ["kubectl", "curl"] {
            self.shell.record_arguments(program, &arguments);
        }
        let done = self.shell.shell(&["-c", line], "", &[("SPARKFLEET_YES", "1")]).await;
        let ExitedCommand { output, code } = &done;
        assert_eq!(*code, Some(0), "{output}\n{}\n{}", self.edge.job_log(), self.site.processes.tails());
        done.alive();
        self.shown.push_str(output);
        self.shown.push_str(&fs::read_to_string(&arguments).unwrap());
        self.secrets.push(line_of(&self.secret("sparkfleet-identity", "tls.key")));
        self.secrets.push(self.secret("flux-secrets", "password"));
    }

    /// A value of a Secret at the edge.
    fn secret(&self, name: &str, key: &str) -> String {
        let secret = self.edge.cluster.kubernetes().get("v1", "Secret", NAMESPACE, name).unwrap();
        let bytes = BASE64_STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    async fn births(&self, from: usize) {
        for node in ["Sync", "Monitor"] {
            self.record.birth(node, from, &self.site, &self.edge).await;
        }
        let log = fs::read_to_string(self.site.server.directory().join("mosquitto.log")).unwrap();
        assert!(log.contains(&format!("u'{GROUP}'")), "it is known by its certificate");
    }

    async fn deploy(&self) {
        let created = ["deployment", "create", "Oven_1", "--cluster", NAME, "--wait", "--timeout", "2m"];
        let outcome = self.site.cli.run(&created).await;
        assert_eq!(outcome.code, 0, "{outcome:#?}\n{}", self.edge.processes.tails());
        self.record.birth("Oven_1", 0, &self.site, &self.edge).await;
    }

    /// A user puts a secret; it opens in the cluster.
    async fn seal(&mut self) {
        let put = ["secret", "put", NAME, "press-login", "password", "--timeout", "20s"];
        self.site
            .until("the secret to be taken", async || {
                let done = self.site.cli.run_with(&put, VALUE).await;
                (done.code == 0).then_some(())
            })
            .await;
        let kubernetes = self.edge.cluster.kubernetes();
        let opened = || kubernetes.get("v1", "Secret", NAMESPACE, "press-login").ok();
        wait::until("the Secret", opened, || self.edge.processes.tails()).await;
        assert_eq!(self.secret("press-login", "password"), VALUE);
        self.secrets.push(VALUE.to_owned());
    }

    /// In time edge sync asks for another certificate, and the services continue with it.
    async fn rotate(&mut self, before: &str, from: usize) {
        let another =
            || Some(self.secret("sparkfleet-identity", "tls.crt")).filter(|certificate| certificate != before);
        let limit = tokio::time::Instant::now() + Duration::from_secs(LIFETIME_S.into());
        while another().is_none() {
            assert!(
                tokio::time::Instant::now() < limit,
                "{}\n{}",
                self.site.processes.tails(),
                self.edge.processes.tails()
            );
            tokio::time::sleep(wait::LOOK).await;
        }
        self.births(from).await;
        let identity = self.site.entry(CLUSTER, "EdgeClusterIdentity").await.unwrap();
        assert_eq!(identity["certificates"][0]["state"], "renewed", "{identity}");
        self.secrets.push(line_of(&self.secret("sparkfleet-identity", "tls.key")));
    }

    /// The operator revokes the certificates, and the server gets the list of them. A client with one of them is refused.
    async fn revoke(&mut self) {
        let identity = self.site.entry(CLUSTER, "EdgeClusterIdentity").await.unwrap();
        let certificates = identity["certificates"].as_array().unwrap();
        let valid = certificates.iter().find(|certificate| certificate["state"] == "valid").unwrap();
        let serial = valid["serial"].as_str().unwrap().to_uppercase();
        let revoked = self.site.cli.run(&["cluster", "identity", "revoke", NAME]).await;
        assert_eq!(revoked.code, 0, "{revoked:#?}");
        self.site.until("the list of revoked certificates", async || self.site.lists(&serial).then_some(())).await;
        let conf = self.site.server.directory().join("mosquitto.conf");
        let list = format!("crlfile {}\n", self.site.identity("revoked.pem").display());
        fs::write(&conf, fs::read_to_string(&conf).unwrap() + &list).unwrap();
        self.site.server.kill();
        self.site.server.restart();
        let own =
            MqttConfig { ca_file: Some(self.site.server.directory().join("sparkfleet-ca.pem")), ..self.edge_mqtt() };
        let mut listener = spawn_listener(vec![("#".to_owned(), QoS::AtMostOnce)], &own, Clock::new()).unwrap();
        let event = tokio::time::timeout(LIMIT, listener.recv()).await.unwrap().unwrap();
        assert!(matches!(event, ListenerEvent::Offline { .. }), "{event:?}");
        listener.stop().await;
        self.site
            .until("the cluster to be away", async || {
                let rows = self.site.cli.run(&["cluster", "list", "--output", "json"]).await;
                let rows: Value = serde_json::from_str(&rows.stdout).ok()?;
                rows.as_array()?.iter().any(|row| row["name"] == NAME && row["alive"] == false).then_some(())
            })
            .await;
    }

    /// What the edge's services connect with.
    fn edge_mqtt(&self) -> MqttConfig {
        let file = |name: &str| Some(self.edge.directory().join("mqtt").join(name));
        MqttConfig {
            servers: vec![self.site.url()],
            cert_file: file("tls.crt"),
            key_file: file("tls.key"),
            ..MqttConfig::default()
        }
    }

    /// With another bootstrap command it is admitted again, with another key. Its services use the key as soon as the files change.
    async fn enrol_again(&mut self) {
        let before = self.secret("sparkfleet-identity", "tls.key");
        let from = self.record.messages().len();
        self.bootstrap().await;
        assert_ne!(self.secret("sparkfleet-identity", "tls.key"), before);
        self.births(from).await;
    }

    async fn delete(&mut self) {
        self.shown.push_str(&self.edge.processes.logs());
        let deleted = ["cluster", "delete", NAME, "--with-deployments", "--wait", "--timeout", "2m"];
        let outcome = self.site.cli.run(&deleted).await;
        assert_eq!(outcome.code, 0, "{outcome:#?}\n{}\n{}", self.site.processes.tails(), self.edge.processes.tails());
    }

    /// No secret is in a message, in a log, in what was shown, in git, in ConfigDB, or in an object of the edge that is not a Secret.
    async fn nothing_has_leaked(&self) {
        let state_dir = self.site.state_dir("cluster-manager");
        let repository = state_dir.join("git").join(format!("{CLUSTER}.git"));
        let mut git = std::process::Command::new("git");
        git.args(["-c", "safe.directory=*", "--git-dir"]).arg(&repository).args(["log", "--patch", "--all"]);
        let git = String::from_utf8(git.output().unwrap().stdout).unwrap();
        assert!(git.len() > 1000, "there is a history to look at");
        let kubernetes = self.edge.cluster.kubernetes();
        let mut objects = String::new();
        for (version, kind) in
            [("batch/v1", "Job"), ("v1", "ConfigMap"), ("apps/v1", "Deployment"), ("v1", "Namespace")]
        {
            kubernetes.list(version, kind, None).iter().for_each(|object| objects.push_str(&object.to_string()));
        }
        let dump = self.site.cli.run(&["config", "dump"]).await.stdout;
        let logs = self.site.processes.logs() + &self.edge.processes.logs() + &self.edge.job_log();
        let audit = fs::read_to_string(self.site.state_dir("configdb").join("audit.jsonl")).unwrap();
        let texts = [
            ("git", &git),
            ("the objects", &objects),
            ("ConfigDB", &dump),
            ("the logs", &logs),
            ("the record", &audit),
            ("what was shown", &self.shown),
        ];
        let messages = self.record.messages();
        assert!(messages.len() > 100 && self.secrets.len() == 9, "{} messages, {:?}", messages.len(), self.secrets);
        for secret in &self.secrets {
            for (place, text) in texts {
                assert!(!text.contains(secret), "{secret} is in {place}");
            }
            for (topic, payload) in &messages {
                let holds = payload.windows(secret.len()).any(|window| window == secret.as_bytes());
                assert!(!holds, "{secret} is in a message on {topic}");
            }
        }
    }
}

/// A line in the middle of a PEM text: it names the secret in whatever form the text is quoted.
fn line_of(pem: &str) -> String {
    pem.lines().nth(1).unwrap().to_owned()
}

async fn live(is_disturbed: bool) {
    let mut journey = Journey::begin(is_disturbed).await;
    journey.enter(Step::Create).await;
    journey.create().await;
    journey.enter(Step::Bootstrap).await;
    journey.bootstrap().await;
    let certificate = journey.secret("sparkfleet-identity", "tls.crt");
    journey.births(0).await;
    let born = journey.record.messages().len();
    journey.enter(Step::Deploy).await;
    journey.deploy().await;
    journey.enter(Step::Seal).await;
    journey.seal().await;
    journey.enter(Step::Rotate).await;
    journey.rotate(&certificate, born).await;
    journey.enter(Step::Revoke).await;
    journey.revoke().await;
    journey.enter(Step::EnrolAgain).await;
    journey.enrol_again().await;
    journey.enter(Step::Delete).await;
    journey.delete().await;
    journey.are_struck().await;
    journey.nothing_has_leaked().await;
    let Journey { site, edge, .. } = journey;
    edge.stop().await;
    site.processes.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_lives_under_the_broker_acl_from_bootstrap_to_deletion_and_no_secret_leaks() {
    live(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_lives_on_whichever_service_is_killed_at_whichever_step() {
    live(true).await;
}
