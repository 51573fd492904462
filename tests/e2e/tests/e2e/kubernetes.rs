//! Edge sync against a Kubernetes API, with the ordinary client and the ordinary configuration: a kubeconfig file. With `KUBECONFIG` set it is the cluster that the file names,
//! in a namespace of the test's own; else it is a simulated one. The test is the sender of the desired state.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use e2e::central_services::service_process_with;
use e2e::mosquitto::Mosquitto;
use e2e::process::Process;
use e2e::recorder::Recorder;
use e2e::wait;
use e2e::wire::{Metrics, Reader};
use edge_sync_contract::{DesiredIndex, DesiredManifests, SyncDevice};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use simulator::cluster::{ClusterSpec, HostSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use sparkplug::EdgeNodeDescriptor;
use sparkplug::host::{HostConfig, HostRequest};
use sparkplug_mqtt::{Clock, HostHandle, MqttConfig};
use tempfile::TempDir;
use uuid::Uuid;

const GROUP: &str = "ACME-K8s_Test";
const ROBOT: Uuid = uuid::uuid!("50b00000-0000-4000-8000-000000000001");

/// A cluster to test on.
struct Cluster {
    client: kube::Client,
    kubeconfig: PathBuf,
    namespace: String,
    simulated: Option<SimulatedCluster>,
    _directory: TempDir,
}

impl Cluster {
    async fn get() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (kubeconfig, simulated) = match std::env::var_os("KUBECONFIG") {
            Some(file) => (PathBuf::from(file), None),
            None => {
                let hosts = vec![HostSpec::control_plane("k8s-test-1"), HostSpec::worker("k8s-test-2")];
                let spec = ClusterSpec { hosts, ..ClusterSpec::new("K8s_Test") };
                let cluster = SimulatedCluster::start(spec, Charts::new()).await.unwrap();
                let file = directory.path().join("kubeconfig");
                std::fs::write(&file, cluster.kube_config()).unwrap();
                (file, Some(cluster))
            }
        };
        let read = Kubeconfig::read_from(&kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let namespace = format!("sparkfleet-e2e-{}", &Uuid::new_v4().simple().to_string()[..8]);
        let object = serde_json::from_value(json!({ "metadata": { "name": namespace } })).unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
        Self { client, kubeconfig, namespace, simulated, _directory: directory }
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// ConfigMaps that the test's deployments bring, by name; those that every namespace gets left out.
    async fn content(&self) -> BTreeMap<String, ConfigMap> {
        let list = self.config_maps().list(&ListParams::default()).await.unwrap();
        let named = list.items.into_iter().map(|map| (map.metadata.name.clone().unwrap_or_default(), map));
        named.filter(|(name, _)| name != "kube-root-ca.crt" && name != "edge-sync-desired").collect()
    }

    /// Waits until the ConfigMaps are these, and returns them.
    async fn holds(&self, names: &[&str], sync: &Process) -> BTreeMap<String, ConfigMap> {
        let deadline = std::time::Instant::now() + wait::PATIENCE;
        loop {
            let content = self.content().await;
            if content.keys().eq(names) {
                return content;
            }
            let found: Vec<&String> = content.keys().collect();
            assert!(std::time::Instant::now() < deadline, "waited for {names:?}, found {found:?}\n{}", sync.tail());
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    async fn give_back(self) {
        // The namespace takes everything in it along.
        let namespaces = Api::<Namespace>::all(self.client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.unwrap();
        if let Some(simulated) = self.simulated {
            simulated.stop().await;
        }
    }
}

/// The sender of the desired state.
struct Sender {
    host: HostHandle,
    sync: EdgeNodeDescriptor,
}

impl Sender {
    fn new(broker: SocketAddr) -> Self {
        let mqtt = MqttConfig { servers: vec![format!("mqtt://{broker}")], ..MqttConfig::default() };
        let host = sparkplug_mqtt::spawn_host(HostConfig::of_contracts(None), &mqtt, Clock::new()).unwrap();
        Self { host, sync: EdgeNodeDescriptor::parse(GROUP, "Sync").unwrap() }
    }

    async fn online(&mut self) {
        while !matches!(self.host.recv().await.unwrap(), sparkplug::host::HostEvent::Online) {}
    }

    /// Sends an index with at most one deployment, then its manifests, and waits for what Sync reports.
    async fn want(
        &self,
        watched: &Watched<'_>,
        version: u64,
        manifests: Option<Vec<Value>>,
        what: &str,
        reported: impl Fn(&Reader) -> bool,
    ) {
        let desired = manifests.map(|manifests| DesiredManifests::new(version, "Robot_1", manifests));
        let deployments = desired.iter().map(|desired| (ROBOT, desired.entry())).collect();
        let names = desired.iter().map(|_| (ROBOT, "Robot_1".to_owned())).collect();
        let index =
            DesiredIndex { version, deployments, origin: None, follows: None, decided_for: None, entries: None, names };
        self.send(index.to_request(self.sync.clone())).await;
        let accepted = |reader: &Reader| {
            reader.node(GROUP, "Sync").is_some_and(|sync| sync.metrics["Desired/Version"] == Some(version.into()))
        };
        watched.until("the index to be accepted", accepted).await;
        if let Some(desired) = &desired {
            self.send(desired.to_request(self.sync.clone(), SyncDevice::deployment_id(ROBOT, "Robot_1"), ROBOT)).await;
        }
        watched.until(what, reported).await;
    }

    async fn send(&self, request: HostRequest) {
        self.host.request(request).await.unwrap();
    }
}

/// What is received of Sync.
struct Watched<'a> {
    recorder: &'a Recorder,
    sync: &'a Process,
}

impl Watched<'_> {
    async fn until(&self, what: &str, says: impl Fn(&Reader) -> bool) {
        let mut reader = Reader::default();
        let found = || {
            reader.follow(self.recorder);
            says(&reader).then_some(())
        };
        wait::until(what, found, || self.sync.tail()).await;
    }
}

fn deployment(reader: &Reader) -> Option<&Metrics> {
    reader.node(GROUP, "Sync")?.devices.get("deployment-Robot_1")
}

fn is_state(reader: &Reader, state: &str, version: u64) -> bool {
    let Some(device) = deployment(reader) else { return false };
    let version_is = state != "applied" || device["Deployment/Version"] == Some(version.into());
    device["Status/State"] == Some(state.into()) && version_is
}

fn config_map(name: &str, value: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "value": value } })
}

fn start_sync(cluster: &Cluster, broker: SocketAddr, directory: &Path) -> Process {
    // Pruning without long pauses: the share is the whole, because there is one deployment.
    let tables = format!(
        "[cluster]\nname = \"K8s_Test\"\nuuid = \"{}\"\n[kubernetes]\nnamespace = \"{}\"\n[sync]\nprune_max_percent = 100\nprune_interval_ms = 200\n[sealing]\nenabled = false\n",
        Uuid::from_u128(7),
        cluster.namespace
    );
    let kubeconfig = cluster.kubeconfig.display().to_string();
    service_process_with("edge-sync", "", &tables, broker, directory, &[("KUBECONFIG", &kubeconfig)])
}

// long: one story in its order
#[tokio::test(flavor = "multi_thread")]
async fn edge_sync_applies_repairs_prunes_and_reports_on_a_kubernetes_api() {
    let cluster = Cluster::get().await;
    let server = Mosquitto::start();
    let recorder = Recorder::start(server.address()).await;
    let directory = tempfile::tempdir().unwrap();
    let mut sync = start_sync(&cluster, server.address(), directory.path());
    let mut sender = Sender::new(server.address());
    sender.online().await;

    let nodes = Api::<Node>::all(cluster.client.clone()).list(&ListParams::default()).await.unwrap();
    let watched = Watched { recorder: &recorder, sync: &sync };
    watched
        .until("every host", |reader| {
            let node = reader.node(GROUP, "Sync");
            let hosts = node.map(|node| node.devices.keys().filter(|device| device.starts_with("host-")).count());
            hosts == Some(nodes.items.len())
        })
        .await;

    // Someone's own object, which no deployment may take over.
    let foreign: ConfigMap = serde_json::from_value(config_map("mine", "by hand")).unwrap();
    cluster.config_maps().create(&PostParams::default(), &foreign).await.unwrap();

    let wanted = vec![config_map("robot-a", "1"), config_map("robot-b", "1")];
    sender.want(&watched, 1, Some(wanted), "version 1 to be applied", |reader| is_state(reader, "applied", 1)).await;
    let content = cluster.holds(&["mine", "robot-a", "robot-b"], &sync).await;
    let labels = content["robot-a"].metadata.labels.clone().unwrap_or_default();
    assert_eq!(labels.get("factoryplus.app.amrc.co.uk/uuid"), Some(&ROBOT.to_string()), "{labels:?}");
    assert_eq!(
        labels.get("app.kubernetes.io/managed-by").map(String::as_str),
        Some("edge-sync.factoryplus.app.amrc.co.uk")
    );
    let managers = content["robot-a"].metadata.managed_fields.clone().unwrap_or_default();
    assert!(managers.iter().any(|field| field.manager.as_deref() == Some("edge-sync.factoryplus.app.amrc.co.uk")));
    assert!(
        cluster.config_maps().get_opt("edge-sync-desired").await.unwrap().is_some(),
        "the accepted index is recorded"
    );

    // What others delete comes back.
    cluster.config_maps().delete("robot-a", &DeleteParams::default()).await.unwrap();
    cluster.holds(&["mine", "robot-a", "robot-b"], &sync).await;

    // What a version leaves out goes.
    let wanted = vec![config_map("robot-b", "2")];
    sender.want(&watched, 2, Some(wanted), "version 2 to be applied", |reader| is_state(reader, "applied", 2)).await;
    let content = cluster.holds(&["mine", "robot-b"], &sync).await;
    assert_eq!(content["robot-b"].data.as_ref().unwrap()["value"], "2");

    // Killed, and born again with the same picture; nothing is taken away meanwhile.
    let births = |reader: &Reader| reader.node(GROUP, "Sync").is_some_and(|node| node.sessions == 2 && node.is_alive);
    sync.restart();
    let watched = Watched { recorder: &recorder, sync: &sync };
    watched.until("Sync to be born again", |reader| births(reader) && is_state(reader, "applied", 2)).await;
    assert!(cluster.content().await.keys().eq(["mine", "robot-b"]));

    // Refused: another's object, another namespace, another kind. What was applied stays.
    let elsewhere =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x", "namespace": "default" } });
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "x" }, "rules": [] });
    for (version, (manifest, reason)) in
        (3..).zip([(config_map("mine", "taken over"), "mine"), (elsewhere, "namespace"), (role, "ClusterRole")])
    {
        let wanted = vec![config_map("robot-b", "2"), manifest];
        let refused = |reader: &Reader| {
            let said = deployment(reader)
                .and_then(|device| device["Status/Reason"].as_ref())
                .and_then(|reason| reason.as_str());
            (is_state(reader, "refused", version) || is_state(reader, "failed", version))
                && said.is_some_and(|said| said.contains(reason))
        };
        sender.want(&watched, version, Some(wanted), &format!("{reason} to be refused"), refused).await;
    }
    let content = cluster.holds(&["mine", "robot-b"], &sync).await;
    assert_eq!(content["mine"].data.as_ref().unwrap()["value"], "by hand");

    // The end: everything of the deployment goes, and nothing else.
    sender.want(&watched, 9, None, "the deployment to be gone", |reader| deployment(reader).is_none()).await;
    cluster.holds(&["mine"], &sync).await;

    sender.host.stop().await;
    sync.interrupt();
    assert!(sync.ended().await.success());
    // The process has sent its death when it ends; the recorder receives it later.
    let watched = Watched { recorder: &recorder, sync: &sync };
    let is_dead = |reader: &Reader| reader.node(GROUP, "Sync").is_some_and(|node| !node.is_alive);
    watched.until("the death of Sync", is_dead).await;
    Reader::read(&recorder.messages()).assert_clean();
    cluster.give_back().await;
}
