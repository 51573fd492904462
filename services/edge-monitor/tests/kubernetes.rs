//! The whole service: `run()` between a Kubernetes API, simulated or real, simulated edge agents and a Mosquitto, received by a Host Application.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod support;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use edge_monitor::config::{ClusterConfig, KubernetesConfig, Mode, ReloadConfig};
use edge_monitor_contract::{MonitorReplica, MonitoredNodeDevice, NodeState, Presence, identity};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kubernetes_tests::cluster::TestCluster;
use kubernetes_tests::definitions;
use serde_json::{Value, json};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use simulator::cluster::ClusterSpec;
use simulator::edge_agent::{Agents, AgentsOptions, Behaviour};
use simulator::flux::chart::Charts;
use simulator::kubernetes::{Kubernetes, KubernetesOptions};
use sparkplug::EdgeNodeDescriptor;
use sparkplug::host::HostConfig;
use sparkplug_mqtt::{Clock, HostHandle, MqttConfig};
use support::mosquitto::Mosquitto;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use uuid::Uuid;

const CLUSTER: Uuid = Uuid::from_u128(0xC);
const AGENT: Uuid = Uuid::from_u128(0xA);
const NAME: &str = "Robot";
/// Longer than any step takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited too long for {what}"),
    }
}

struct Site {
    broker: Mosquitto,
    cluster: TestCluster,
    /// Where services find its API.
    url: String,
    agents: Agents,
    /// What is mounted into the agents.
    mounted: Kubernetes,
    directory: TempDir,
    host: HostHandle,
    replica: MonitorReplica,
}

impl Site {
    async fn start() -> Self {
        let broker = Mosquitto::start();
        let spec = ClusterSpec { sealed_secrets: false, flux: false, ..ClusterSpec::new("Test") };
        let mut cluster = TestCluster::start(spec, Charts::new()).await;
        let url = cluster.url().await;
        let mounted = Kubernetes::new(KubernetesOptions::default());
        mounted.ensure_namespace(cluster.namespace());
        let agents = Agents::new(AgentsOptions {
            group_id: "ACME-Test".to_owned(),
            mqtt: broker.config(),
            seed: 1,
            config_retry: Duration::from_millis(200),
        });
        let config = HostConfig { rebirth_jitter: Duration::from_millis(10), ..HostConfig::of_contracts(None) };
        let host = sparkplug_mqtt::spawn_host(config, &broker.config(), Clock::new()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        Self { broker, cluster, url, agents, mounted, directory, host, replica: MonitorReplica::new() }
    }

    fn monitor(&self) -> Running {
        let config = edge_monitor::Config {
            cluster: ClusterConfig { name: "Test".to_owned(), uuid: Some(CLUSTER) },
            kubernetes: KubernetesConfig {
                namespace: self.cluster.namespace().to_owned(),
                url: Some(self.url.clone()),
            },
            ..config(self.broker.config(), self.directory.path())
        };
        Running::start(config)
    }

    fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        definitions::api(self.cluster.client(), api_version, kind, self.cluster.namespace())
    }

    async fn apply(&self, object: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let api = self.api(&text(&object["apiVersion"]), &text(&object["kind"]));
        let params = PatchParams::apply("test").force();
        api.patch(&text(&object["metadata"]["name"]), &params, &Patch::Apply(object)).await.unwrap();
    }

    async fn apply_node(&self, spec: Value) {
        self.apply(&json!({
            "apiVersion": "factoryplus.app.amrc.co.uk/v1",
            "kind": "SparkplugNode",
            "metadata": {"name": "edge-agent.robot"},
            "spec": spec,
        }))
        .await;
    }

    async fn configure_agent(&self, revision: Uuid) {
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": format!("edge-agent-config-{AGENT}"),
                "annotations": {"factoryplus.app.amrc.co.uk/config-revision": revision.to_string()},
            },
            // A machine that is read all the time, so that a monitor that starts late receives the agent.
            "data": {"config.json": r#"{"deviceConnections": [{"pollInt": 100, "devices": [{"deviceId": "Press"}]}]}"#},
        });
        self.apply(&object).await;
        object["metadata"]["namespace"] = json!(self.cluster.namespace());
        self.mounted.apply("kubelet", object).unwrap();
    }

    /// Someone seals the secret `s`, and its controller unseals it.
    async fn seal(&self, text: &str, generation: u64) {
        let secret = json!({
            "apiVersion": "bitnami.com/v1alpha1",
            "kind": "SealedSecret",
            "metadata": {"name": "s"},
            "spec": {"encryptedData": {"password": text}},
        });
        self.apply(&secret).await;
        let status = json!({"observedGeneration": generation, "conditions": [{"type": "Synced", "status": "True"}]});
        let status = Patch::Merge(json!({"status": status}));
        let secrets = self.api("bitnami.com/v1alpha1", "SealedSecret");
        secrets.patch_status("s", &PatchParams::default(), &status).await.unwrap();
    }

    async fn start_agent(&self) {
        self.agents.start(AGENT, NAME, &self.mounted, self.cluster.namespace()).await.unwrap();
    }

    /// Waits until what the cluster's monitor says of a device is as it should be; None: there is no such device.
    async fn until(&mut self, what: &str, device: &str, is_so: impl Fn(Option<&MonitoredNodeDevice>) -> bool) {
        self.until_of("ACME-Test", what, device, is_so).await;
    }

    /// The same of the monitor of a group.
    async fn until_of(
        &mut self,
        group: &str,
        what: &str,
        device: &str,
        is_so: impl Fn(Option<&MonitoredNodeDevice>) -> bool,
    ) {
        let node = EdgeNodeDescriptor::parse(group, "Monitor").unwrap();
        let said = async {
            loop {
                let view = self.replica.monitor(&node).filter(|view| view.presence() == Presence::Alive);
                let found = view.and_then(|view| view.devices().find(|(id, _)| id.as_str() == device));
                if view.is_some() && is_so(found.map(|(_, device)| device)) {
                    return;
                }
                let event = self.host.recv().await.unwrap();
                self.replica.on_event(&event);
            }
        };
        in_time(what, said).await;
    }

    async fn stop(self) {
        self.agents.stop_all().await;
        self.host.stop().await;
        self.cluster.stop().await;
    }
}

struct Running {
    shutdown: Shutdown,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    fn start(config: edge_monitor::Config) -> Self {
        let shutdown = Shutdown::new();
        let task = tokio::spawn(edge_monitor::run(config, shutdown.clone(), Health::new()));
        Self { shutdown, task }
    }

    async fn stop(self) {
        self.shutdown.trigger();
        in_time("a clean stop", self.task).await.unwrap().unwrap();
    }
}

fn config(mqtt: MqttConfig, state_dir: &Path) -> edge_monitor::Config {
    edge_monitor::Config {
        state_dir: state_dir.into(),
        simulated: true,
        reload: ReloadConfig {
            jitter_ms: 50,
            pause_ms_min: 1_000,
            pause_ms_max: 1_000,
            rest_ms: 100,
            attempts_max: 2,
            ..ReloadConfig::default()
        },
        mqtt,
        ..edge_monitor::Config::default()
    }
}

fn is_online(device: Option<&MonitoredNodeDevice>) -> bool {
    device.is_some_and(|device| device.state == NodeState::Online && !device.offline.active)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_is_followed_from_its_resource_over_its_deaths_to_the_end_of_the_resource() {
    let mut site = Site::start().await;
    let running = site.monitor();
    site.apply_node(json!({"uuid": AGENT, "edgeAgent": true})).await;
    site.until("the node that was never received", &AGENT.to_string(), |device| {
        device.is_some_and(|device| device.state == NodeState::Unknown && device.node == Some(AGENT))
    })
    .await;
    site.configure_agent(Uuid::from_u128(1)).await;
    site.start_agent().await;
    site.until("the agent online under its node id", NAME, is_online).await;
    site.agents.stop(AGENT).await;
    site.until("its death as an alert", NAME, |device| {
        device.is_some_and(|device| device.state == NodeState::Offline && device.offline.active)
    })
    .await;
    site.start_agent().await;
    site.until("its birth", NAME, is_online).await;
    let nodes = site.api("factoryplus.app.amrc.co.uk/v1", "SparkplugNode");
    nodes.delete("edge-agent.robot", &DeleteParams::default()).await.unwrap();
    site.until("the end of the device", NAME, |device| device.is_none()).await;
    running.stop().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_ignores_reload_requests_raises_will_not_reload_until_it_obeys() {
    let mut site = Site::start().await;
    site.configure_agent(Uuid::from_u128(1)).await;
    site.apply_node(json!({"uuid": AGENT, "edgeAgent": true})).await;
    site.start_agent().await;
    let running = site.monitor();
    let has = |device: Option<&MonitoredNodeDevice>, revision: u128, is_refusing: bool| {
        let revision = Some(Uuid::from_u128(revision).to_string());
        device.is_some_and(|device| device.config_reported == revision && device.will_not_reload.active == is_refusing)
    };
    site.until("the first configuration", NAME, |device| has(device, 1, false)).await;
    assert!(site.agents.set_behaviour(AGENT, Behaviour::NeverReloads).await);
    site.configure_agent(Uuid::from_u128(2)).await;
    site.until("the alert", NAME, |device| has(device, 1, true)).await;
    let ignored = *site.agents.reloads_ignored(AGENT).await.unwrap().borrow();
    assert!(ignored >= 2, "asked {ignored} times before the alert");
    assert!(site.agents.set_behaviour(AGENT, Behaviour::Normal).await);
    site.until("the second configuration", NAME, |device| has(device, 2, false)).await;
    running.stop().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_secret_makes_an_agent_reload_and_a_restart_of_the_monitor_does_not() {
    let mut site = Site::start().await;
    site.seal("AgA=", 1).await;
    site.configure_agent(Uuid::from_u128(1)).await;
    site.apply_node(json!({"uuid": AGENT, "edgeAgent": true, "secrets": ["s"]})).await;
    site.start_agent().await;
    assert!(site.agents.set_behaviour(AGENT, Behaviour::NeverReloads).await);
    let mut asked = site.agents.reloads_ignored(AGENT).await.unwrap();
    for _ in 0..2 {
        let running = site.monitor();
        site.until("the agent online", NAME, is_online).await;
        running.stop().await;
    }
    assert_eq!(*asked.borrow(), 0, "nothing changed");
    let running = site.monitor();
    site.until("the agent online", NAME, is_online).await;
    // When the monitor has listed the secrets is not to be seen from outside, and what it lists first is its baseline: so it is sealed until it is noticed.
    let sealed_again = async {
        for generation in 2.. {
            site.seal(&format!("AgB{generation}="), generation).await;
            let noticed = tokio::time::timeout(Duration::from_secs(2), asked.wait_for(|count| *count > 0)).await;
            if noticed.is_ok() {
                return;
            }
        }
    };
    in_time("a reload request", sealed_again).await;
    running.stop().await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_central_monitor_shows_the_monitor_of_a_cluster_and_its_death() {
    let mut site = Site::start().await;
    let central = edge_monitor::Config { mode: Mode::Central, ..config(site.broker.config(), site.directory.path()) };
    let central = Running::start(central);
    let edge = site.monitor();
    let edge_instance = Some(identity::monitor_of_cluster(CLUSTER));
    site.until_of("ACME-Central", "the monitor of the cluster", "ACME-Test", |device| {
        is_online(device) && device.is_some_and(|device| device.node == edge_instance)
    })
    .await;
    edge.stop().await;
    site.until_of("ACME-Central", "its death", "ACME-Test", |device| {
        device.is_some_and(|device| device.state == NodeState::Offline && device.offline.active)
    })
    .await;
    central.stop().await;
    site.stop().await;
}
