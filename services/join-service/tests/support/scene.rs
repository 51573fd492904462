//! The whole service between a Kubernetes API, simulated or real, and a Mosquitto; a host on the broker, and a cluster manager that sends the policy and looks on.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use join_protocol::host::Event as HostInput;
use join_protocol::metrics::{HostMessage, IssuerMessage};
use join_service::config::{ClusterConfig, Distribution, JoinConfig, KubernetesConfig, TrustConfig};
use join_service_contract::{DesiredPolicy, JoinReplica, names};
use join_trust::replica::Files;
use kube::api::{ListParams, Patch, PatchParams};
use kubernetes_tests::audit::Audit;
use kubernetes_tests::cluster::TestCluster;
use kubernetes_tests::definitions;
use serde_json::{Value, json};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use simulator::cluster::ClusterSpec;
use simulator::flux::chart::Charts;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::host::HostConfig;
use sparkplug::{EdgeNodeDescriptor, GroupId, Properties};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, HostHandle};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::host::SimHost;
use super::mosquitto::Mosquitto;
use super::site::{self, CLUSTER, GROUP};

/// Longer than any step takes; only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub struct Scene {
    pub cluster: TestCluster,
    pub broker: Mosquitto,
    pub directory: TempDir,
    /// Where services find the Kubernetes API.
    pub url: String,
}

impl Scene {
    pub async fn new() -> Self {
        Self::of(TestCluster::start(spec(), Charts::new()).await).await
    }

    /// What a service account asks of a control plane of the test's own is written down.
    pub async fn audited(account: &str) -> (Self, Audit) {
        let (cluster, audit) = TestCluster::audited(spec(), Charts::new(), account).await;
        (Self::of(cluster).await, audit)
    }

    async fn of(mut cluster: TestCluster) -> Self {
        let url = cluster.url().await;
        Self { cluster, broker: Mosquitto::start(), directory: tempfile::tempdir().unwrap(), url }
    }

    /// The files of a replica, with an authority of `openssl`.
    pub fn trust(&self, replica: u8) -> std::path::PathBuf {
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

    pub fn start(&self, replica: u8, distribution: Distribution) -> Running {
        let trust = TrustConfig { directory: Some(self.trust(replica)), secret: None };
        self.start_with(replica, distribution, trust)
    }

    pub fn start_with(&self, replica: u8, distribution: Distribution, trust: TrustConfig) -> Running {
        let config = join_service::Config {
            state_dir: self.directory.path().join(format!("state-{replica}")).into(),
            simulated: true,
            replica: format!("join-{replica}"),
            cluster: ClusterConfig { name: "Cell".to_owned(), uuid: Some(CLUSTER) },
            kubernetes: KubernetesConfig {
                namespace: self.cluster.namespace().to_owned(),
                url: Some(self.url.clone()),
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
        std::fs::create_dir_all(&*config.state_dir).unwrap();
        let shutdown = Shutdown::new();
        let task = tokio::spawn(join_service::run(config, shutdown.clone(), Health::new()));
        Running { shutdown, task }
    }

    /// Names of the nodes.
    pub async fn nodes(&self) -> Vec<String> {
        let nodes = definitions::api_everywhere(self.cluster.client(), "v1", "Node");
        nodes.list(&ListParams::default()).await.unwrap().into_iter().map(|node| node.metadata.name.unwrap()).collect()
    }

    /// A kubelet registers itself.
    pub async fn add_node(&self, name: &str) {
        let nodes = definitions::api_everywhere(self.cluster.client(), "v1", "Node");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        nodes.patch(name, &PatchParams::apply("kubelet"), &Patch::Apply(&node)).await.unwrap();
    }

    /// Puts the files of a replica into a Secret.
    pub async fn put_secret(&self, name: &str, files: &Files) {
        let data: Value = files.iter().map(|(name, content)| (name.clone(), json!(base64(content)))).collect();
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data, "metadata": {"name": name}});
        let secrets = definitions::api(self.cluster.client(), "v1", "Secret", self.cluster.namespace());
        secrets.patch(name, &PatchParams::apply("test"), &Patch::Apply(&secret)).await.unwrap();
    }

    /// Join tokens in `kube-system`.
    pub async fn tokens(&self) -> Vec<Value> {
        let secrets = definitions::api(self.cluster.client(), "v1", "Secret", "kube-system");
        let secrets = secrets.list(&ListParams::default()).await.unwrap().into_iter();
        let secrets = secrets.map(|secret| serde_json::to_value(secret).unwrap());
        secrets.filter(|secret| secret["type"] == "bootstrap.kubernetes.io/token").collect()
    }
}

fn spec() -> ClusterSpec {
    ClusterSpec { flux: false, ..ClusterSpec::new("Cell") }
}

pub fn openssl(directory: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

pub struct Running {
    shutdown: Shutdown,
    pub task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub async fn stop(self) {
        self.shutdown.trigger();
        tokio::time::timeout(PATIENCE, self.task).await.expect("a clean stop").unwrap().unwrap();
    }
}

/// Sends the policy and looks on.
pub struct Manager {
    host: HostHandle,
    pub replica: JoinReplica,
}

impl Manager {
    pub fn start(broker: &Mosquitto) -> Self {
        let node = names::join_node(GroupId::new("ACME-Cell").unwrap());
        let filters = vec![("spBv1.0/ACME-Cell/#".to_owned(), sparkplug::session::QoS::AtLeastOnce)];
        let config =
            HostConfig { rebirth_jitter: Duration::from_millis(10), filters, ..HostConfig::of_contracts(None) };
        let host = sparkplug_mqtt::spawn_host(config, &broker.config(), Clock::new()).unwrap();
        Self { host, replica: JoinReplica::new(node) }
    }

    pub async fn until(&mut self, what: &str, is_so: impl Fn(&JoinReplica) -> bool) {
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

    pub async fn send(&mut self, policy: &DesiredPolicy) {
        self.until("a birth", JoinReplica::is_complete).await;
        self.host.request(policy.to_request(self.replica.address().clone())).await.unwrap();
        let (version, digest) = (policy.version, policy.digest());
        self.until("the policy", |join| join.node().is_some_and(|node| node.has_policy(version, digest))).await;
    }
}

/// A host on the broker.
pub struct Station {
    pub host: SimHost,
    node: EdgeNodeHandle,
    clock: Clock,
    repeats: u32,
}

impl Station {
    pub fn start(scene: &Scene, host: SimHost) -> Self {
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

    pub async fn feed(&mut self, event: HostInput<'_>) {
        let published = self.host.on_event(event, self.clock.now());
        self.publish(published).await;
    }

    pub async fn until(&mut self, what: &str, is_so: impl Fn(&SimHost) -> bool) {
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

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub fn base64_of(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}
