//! The whole service: `run()` between a simulated Kubernetes API and a Mosquitto, with a host that speaks the real protocol and a centre that sends the policy and looks on.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use join_protocol::host::Event as HostInput;
use join_protocol::message::acknowledgement::Stage;
use join_protocol::metrics::{HostMessage, IssuerMessage};
use join_protocol::terms::{Kind, Role};
use join_service::config::{ClusterConfig, Distribution, JoinConfig, KubernetesConfig, TrustConfig};
use join_service_contract::{DesiredPolicy, HostState, JoinReplica, PolicyState, names};
use serde_json::{Value, json};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use simulator::cluster::{ClusterSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::host::HostConfig;
use sparkplug::{EdgeNodeDescriptor, GroupId, Properties};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, HostHandle};
use support::host::SimHost;
use support::mosquitto::Mosquitto;
use support::site::{self, CLUSTER, GROUP, entry, policy};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// Longer than any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(120);

struct Scene {
    cluster: SimulatedCluster,
    broker: Mosquitto,
    directory: TempDir,
}

impl Scene {
    async fn new() -> Self {
        let cluster = SimulatedCluster::start(ClusterSpec::new("Cell"), Charts::new()).await.unwrap();
        Self { cluster, broker: Mosquitto::start(), directory: tempfile::tempdir().unwrap() }
    }

    /// The files of a replica, with an authority of `openssl`.
    fn trust(&self, replica: u8) -> std::path::PathBuf {
        let directory = self.directory.path().join(format!("trust-{replica}"));
        std::fs::create_dir_all(&directory).unwrap();
        let write = |name: &str, content: &[u8]| {
            let path = directory.join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        site::files(replica).iter().for_each(|(name, content)| write(name, content));
        let authority = self.directory.path().join("ca.crt");
        if !authority.exists() {
            openssl(self.directory.path(), "ecparam -name prime256v1 -genkey -noout -out ca.key");
            let signs = "-addext keyUsage=critical,keyCertSign -days 365 -out ca.crt";
            openssl(self.directory.path(), &format!("req -x509 -key ca.key -subj /CN=kubernetes {signs}"));
        }
        for name in ["ca.crt", "ca.key"] {
            write(name, &std::fs::read(self.directory.path().join(name)).unwrap());
        }
        directory
    }

    fn start(&self, replica: u8, distribution: Distribution) -> Running {
        let trust = TrustConfig { directory: Some(self.trust(replica)), secret: None };
        self.start_with(replica, distribution, trust)
    }

    fn start_with(&self, replica: u8, distribution: Distribution, trust: TrustConfig) -> Running {
        let config = join_service::Config {
            state_dir: self.directory.path().join(format!("state-{replica}")),
            simulated: true,
            replica: format!("join-{replica}"),
            cluster: ClusterConfig { name: "Cell".to_owned(), uuid: Some(CLUSTER) },
            kubernetes: KubernetesConfig {
                namespace: self.cluster.namespace().to_owned(),
                url: Some(self.cluster.url()),
            },
            trust,
            join: JoinConfig {
                distribution,
                servers: vec!["https://10.1.0.1:6443".to_owned()],
                networks: vec!["10.1.0.0/16".to_owned()],
                ..JoinConfig::default()
            },
            mqtt: self.broker.config(),
            ..join_service::Config::default()
        };
        std::fs::create_dir_all(&config.state_dir).unwrap();
        let shutdown = Shutdown::new();
        let task = tokio::spawn(join_service::run(config, shutdown.clone(), Health::new()));
        Running { shutdown, task }
    }

    /// Names of the nodes.
    fn nodes(&self) -> Vec<String> {
        let nodes = self.cluster.kubernetes().list("v1", "Node", None).into_iter();
        nodes.map(|node| node["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Join tokens in `kube-system`.
    fn tokens(&self) -> Vec<Value> {
        let kubernetes = self.cluster.kubernetes();
        let secrets = kubernetes.list("v1", "Secret", Some("kube-system")).into_iter();
        secrets.map(|secret| (*secret).clone()).filter(|s| s["type"] == "bootstrap.kubernetes.io/token").collect()
    }
}

fn openssl(directory: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

struct Running {
    shutdown: Shutdown,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    async fn stop(self) {
        self.shutdown.trigger();
        tokio::time::timeout(PATIENCE, self.task).await.expect("a clean stop").unwrap().unwrap();
    }
}

/// Sends the policy and looks on.
struct Centre {
    host: HostHandle,
    replica: JoinReplica,
}

impl Centre {
    fn start(broker: &Mosquitto) -> Self {
        let node = names::join_node(GroupId::new("ACME-Cell").unwrap());
        let filters = vec![("spBv1.0/ACME-Cell/#".to_owned(), sparkplug::session::QoS::AtLeastOnce)];
        let config = HostConfig { rebirth_jitter: Duration::from_millis(10), filters, ..HostConfig::new(None) };
        let host = sparkplug_mqtt::spawn_host(config, &broker.config(), Clock::new()).unwrap();
        Self { host, replica: JoinReplica::new(node) }
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&JoinReplica) -> bool) {
        let follow = async {
            while !is_so(&self.replica) {
                let event = self.host.recv().await.expect("the host application runs");
                self.replica.on_event(&event);
            }
        };
        if tokio::time::timeout(PATIENCE, follow).await.is_err() {
            panic!("waited too long for {what}: {:#?}", self.replica);
        }
    }

    async fn send(&mut self, policy: &DesiredPolicy) {
        self.until("a birth", JoinReplica::is_complete).await;
        self.host.request(policy.to_request(self.replica.address().clone())).await.unwrap();
        let (version, digest) = (policy.version, policy.digest());
        self.until("the policy", |join| join.node().is_some_and(|node| node.has_policy(version, digest))).await;
    }
}

/// A host on the broker.
struct Station {
    host: SimHost,
    node: EdgeNodeHandle,
    clock: Clock,
    repeats: u32,
}

impl Station {
    fn start(scene: &Scene, host: SimHost) -> Self {
        let clock = Clock::new();
        let descriptor = EdgeNodeDescriptor::parse(GROUP, &host.settings.address.node).unwrap();
        let store = BdSeqStore::in_directory(scene.directory.path(), &descriptor);
        let birth = HostMessage::birth_metrics(&[]);
        let mqtt = scene.broker.config();
        let node =
            sparkplug_mqtt::spawn_edge_node(EdgeNodeConfig::new(descriptor), birth, &mqtt, store, clock).unwrap();
        Self { host, node, clock, repeats: 0 }
    }

    async fn publish(&mut self, messages: Vec<HostMessage>) {
        for message in messages {
            self.repeats += 1;
            // A repeat is the same bytes; without another property report by exception would swallow it.
            let mut metric = message.to_metric();
            metric.properties = Properties::new().with("Repeat", self.repeats);
            let metrics = vec![metric];
            self.node.update(NodeUpdate::Set { device: None, metrics }).await.unwrap();
        }
    }

    async fn tell(&mut self, event: HostInput<'_>) {
        let published = self.host.on_event(event, self.clock.now());
        self.publish(published).await;
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&SimHost) -> bool) {
        let work = async {
            while !is_so(&self.host) {
                let deadline = self.host.next_deadline();
                let published = tokio::select! {
                    event = self.node.recv() => match event.expect("the edge node runs") {
                        NodeEvent::Command { metrics, .. } => {
                            let messages = metrics.iter().filter_map(|metric| IssuerMessage::from_metric(metric).ok().flatten());
                            let now = self.clock.now();
                            messages.flat_map(|message| self.host.on_message(&message, now)).collect()
                        }
                        _ => Vec::new(),
                    },
                    () = self.clock.sleep_until(deadline) => self.host.on_event(HostInput::Timer, self.clock.now()),
                };
                self.publish(published).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, work).await;
        assert!(
            waited.is_ok(),
            "waited too long for {what}: {:?} {:?}",
            self.host.machine.condition(),
            self.host.refusals
        );
    }
}

/// Its node is taken out of the cluster, and no other.
async fn loses_its_node_when_it_is_revoked(scene: &Scene, centre: &mut Centre, ek: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge-1"}});
    let mut changes = scene.cluster.kubernetes().changes();
    let before = scene.nodes();
    scene.cluster.kubernetes().apply("kubelet", node).unwrap();
    assert_eq!(scene.nodes().len(), before.len() + 1);
    centre.send(&policy(3, &entry(&[json!({"ek": ek})], &[ek.to_owned()]))).await;
    let gone = changes.wait_for(|_| scene.nodes() == before);
    tokio::time::timeout(PATIENCE, gone).await.expect("the node to be gone").unwrap();
}

#[tokio::test]
async fn a_host_joins_by_kubeadm_and_what_it_was_given_is_good() {
    let scene = Scene::new().await;
    let join = scene.start(0, Distribution::Kubeadm);
    let mut centre = Centre::start(&scene.broker);
    let mut host = SimHost::new(1, Role::Worker);
    let directory = scene.directory.path();
    openssl(directory, "ecparam -name prime256v1 -genkey -noout -out node.key");
    let san = "-addext subjectAltName=DNS:edge-1,IP:10.1.0.7 -outform der -out node.csr";
    openssl(directory, &format!("req -new -key node.key -subj /O=system:nodes/CN=system:node:edge-1 {san}"));
    host.settings.body.certificate_request = std::fs::read(directory.join("node.csr")).unwrap();
    host.settings.body.principals = vec!["edge-1".to_owned(), "10.1.0.7".to_owned()];
    host.becomes_member = false;
    host.reboot(Kind::Join);

    // Without a policy it is refused, visibly.
    let mut station = Station::start(&scene, host);
    station.tell(HostInput::Start).await;
    station.until("the refusal", |host| host.last_refusal() == Some(47)).await;
    centre.until("the device", |join| join.hosts().values().any(|host| host.verdict.is_some())).await;
    assert_eq!(centre.replica.node().unwrap().policy_state, PolicyState::Unknown);

    // Not enrolled: it waits for approval, and its device says by which key.
    centre.send(&policy(1, &entry(&[], &[]))).await;
    station.host.reboot(Kind::Join);
    station.tell(HostInput::Start).await;
    station.until("the pending answer", |host| host.last_refusal() == Some(45)).await;
    let disk = station.host.disk;
    let is =
        |state: HostState| move |join: &JoinReplica| join.hosts().get(&disk).is_some_and(|host| host.state == state);
    centre.until("the pending device", is(HostState::Pending)).await;
    let ek = centre.replica.hosts()[&disk].endorsement_key.clone();

    // Approved: it gets its ticket and locks itself.
    centre.send(&policy(2, &entry(&[json!({"ek": ek})], &[]))).await;
    station.host.reboot(Kind::Join);
    station.tell(HostInput::Start).await;
    station.until("the lock", |host| host.machine.condition().name() == "committed").await;
    let tokens = scene.tokens();
    assert_eq!(tokens.len(), 1);
    let data = &tokens[0]["data"];
    let text = |key: &str| String::from_utf8(base64_of(data[key].as_str().unwrap())).unwrap();
    assert_eq!(format!("{}.{}", text("token-id"), text("token-secret")), station.host.tokens[0]);
    assert_eq!(text("auth-extra-groups"), "system:bootstrappers:kubeadm:default-node-token");
    let membership = station.host.machine.grant().unwrap().membership.clone().unwrap();
    assert!(membership.authority_pin.starts_with("sha256:"));
    std::fs::write(directory.join("kubelet.der"), &membership.kubelet_certificate).unwrap();
    openssl(directory, "x509 -inform der -in kubelet.der -out kubelet.pem");
    openssl(directory, "verify -x509_strict -CAfile ca.crt -purpose sslserver -verify_hostname edge-1 kubelet.pem");
    openssl(directory, "verify -CAfile ca.crt -purpose sslserver -verify_ip 10.1.0.7 kubelet.pem");
    centre.until("the locked device", is(HostState::Locked)).await;

    // A member: the token is revoked.
    station.tell(HostInput::Stage(Stage::Member, String::new())).await;
    centre.until("the member", is(HostState::Member)).await;
    assert_eq!(scene.tokens().len(), 0);
    centre.until("the counters", |join| join.node().is_some_and(|node| node.tokens_revoked == 1)).await;
    let node = centre.replica.node().unwrap();
    assert_eq!((node.tickets_issued, node.tickets_acknowledged, node.hosts_members), (1, 1, 1));

    // After a reboot it gets the same disk key again.
    station.host.reboot(Kind::Rejoin);
    station.tell(HostInput::Start).await;
    station.until("the keys", |host| host.disk_keys.len() == 2).await;
    assert_eq!(station.host.disk_keys[0], station.host.disk_keys[1]);
    loses_its_node_when_it_is_revoked(&scene, &mut centre, &ek).await;
    join.stop().await;
    scene.cluster.stop().await;
}

#[tokio::test]
async fn the_second_replica_goes_on_where_the_first_stopped_with_policy_and_hosts() {
    let scene = Scene::new().await;
    let first = scene.start(0, Distribution::K3s);
    let mut centre = Centre::start(&scene.broker);
    let host = SimHost::new(1, Role::Worker);
    centre.send(&policy(1, &entry(&[json!({"ek": host.ek()})], &[]))).await;
    assert_eq!(centre.replica.node().unwrap().replica, "join-0");
    let second = scene.start(1, Distribution::K3s);
    let mut station = Station::start(&scene, host);
    station.tell(HostInput::Start).await;
    station.until("the ticket", |host| host.tokens.len() == 1).await;
    let disk = station.host.disk;
    centre
        .until("the member", |join| join.hosts().get(&disk).is_some_and(|host| host.state == HostState::Member))
        .await;
    assert!(station.host.tokens[0].starts_with("K10"));

    first.stop().await;
    centre
        .until("the second", |join| join.is_complete() && join.node().is_some_and(|node| node.replica == "join-1"))
        .await;
    assert_eq!(centre.replica.node().unwrap().policy_state, PolicyState::InForce);
    assert_eq!(centre.replica.hosts()[&disk].state, HostState::Member);
    station.host.reboot(Kind::Rejoin);
    station.tell(HostInput::Start).await;
    station.until("the keys", |host| host.disk_keys.len() == 2).await;
    second.stop().await;
    scene.cluster.stop().await;
}

#[tokio::test]
async fn keys_come_from_a_secret_of_the_cluster_as_well_and_a_wrong_one_ends_the_start() {
    let scene = Scene::new().await;
    let secret = |name: &str, files: &join_service::trust::Files| {
        let data: Value = files.iter().map(|(name, content)| (name.clone(), json!(base64(content)))).collect();
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data,
            "metadata": {"name": name, "namespace": scene.cluster.namespace()}})
    };
    let kubernetes = scene.cluster.kubernetes();
    kubernetes.apply("test", secret("keys", &site::files(0))).unwrap();
    let mut wrong = site::files(1);
    wrong.remove("master.key");
    kubernetes.apply("test", secret("wrong", &wrong)).unwrap();
    let named = |name: &str| TrustConfig { directory: None, secret: Some(name.to_owned()) };
    let join = scene.start_with(0, Distribution::K3s, named("keys"));
    Centre::start(&scene.broker).until("the birth", JoinReplica::is_complete).await;
    join.stop().await;
    let refused = tokio::time::timeout(PATIENCE, scene.start_with(1, Distribution::K3s, named("wrong")).task).await;
    assert_eq!(refused.unwrap().unwrap().unwrap_err().to_string(), "master.key is missing");
    let absent = tokio::time::timeout(PATIENCE, scene.start_with(2, Distribution::K3s, named("absent")).task).await;
    let absent = absent.unwrap().unwrap().unwrap_err().to_string();
    assert!(absent.starts_with("cannot read the Secret absent in namespace"), "{absent}");
    scene.cluster.stop().await;
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn base64_of(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}
