//! The whole service: `run()` between a cluster and a Mosquitto, commanded and watched by a Host Application.

use std::collections::BTreeMap;
use std::time::Duration;

use edge_sync::config::{ClusterConfig, KubernetesConfig, SealingConfig, SyncConfig};
use edge_sync_contract::{DeploymentState, DesiredIndex, DesiredManifests, SyncReplica, names};
use kube::api::DeleteParams;
use kubernetes_tests::repository::Repository;
use serde_json::{Value, json};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use simulator::cluster::SEALED_SECRETS;
use sparkplug::GroupId;
use sparkplug::host::{HostConfig, HostEvent};
use sparkplug_mqtt::{Clock, HostHandle};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::support::cluster::TestCluster;
use crate::support::mosquitto::Mosquitto;
use crate::support::{PATIENCE, in_time};

const DEPLOYMENT: Uuid = Uuid::from_u128(0xD);
/// How often a state is polled that does not report its changes.
const LOOK: Duration = Duration::from_millis(20);
const RELEASES: (&str, &str) = ("helm.toolkit.fluxcd.io/v2", "HelmRelease");
const CONFIG_MAPS: (&str, &str) = ("v1", "ConfigMap");

/// What stands around edge sync.
struct Scene {
    cluster: TestCluster,
    /// Where the service finds the API.
    url: String,
    broker: Mosquitto,
    directory: TempDir,
}

impl Scene {
    async fn of(mut cluster: TestCluster) -> Self {
        let url = cluster.url().await;
        Self { cluster, url, broker: Mosquitto::start(), directory: tempfile::tempdir().unwrap() }
    }

    async fn start() -> Self {
        Self::of(TestCluster::start().await).await
    }

    fn sync(&self) -> Running {
        Running::start(self)
    }

    async fn get(&self, (api_version, kind): (&str, &str), name: &str) -> Option<Value> {
        let found = self.cluster.api(api_version, kind).get_opt(name).await.unwrap();
        found.map(|object| serde_json::to_value(object).unwrap())
    }
}

/// A running edge sync.
struct Running {
    shutdown: Shutdown,
    health: Health,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    fn start(scene: &Scene) -> Self {
        let namespace = scene.cluster.namespace.clone();
        let config = edge_sync::Config {
            state_dir: scene.directory.path().into(),
            simulated: true,
            cluster: ClusterConfig { name: "Test".to_owned(), uuid: Some(Uuid::from_u128(0xC)) },
            kubernetes: KubernetesConfig { namespace: namespace.clone(), url: Some(scene.url.clone()) },
            sync: SyncConfig { prune_interval_ms: 100, retry_ms_min: 100, retry_ms_max: 500, ..SyncConfig::default() },
            sealing: SealingConfig { namespace, service: SEALED_SECRETS.1.to_owned(), ..SealingConfig::default() },
            mqtt: scene.broker.config(),
            ..edge_sync::Config::default()
        };
        let (shutdown, health) = (Shutdown::new(), Health::new());
        let task = tokio::spawn(edge_sync::run(config, shutdown.clone(), health.clone()));
        Self { shutdown, health, task }
    }

    async fn stop(self) {
        self.shutdown.trigger();
        in_time("a clean stop", self.task).await.unwrap().unwrap();
    }

    /// Killed: no death, no farewell.
    async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// Listens to Sync, and commands it.
struct Manager {
    host: HostHandle,
    replica: SyncReplica,
}

impl Manager {
    fn start(broker: &Mosquitto) -> Self {
        let node = names::sync_node(GroupId::new("ACME-Test").unwrap());
        let config = HostConfig { rebirth_jitter: Duration::from_millis(10), ..HostConfig::of_contracts(None) };
        let host = sparkplug_mqtt::spawn_host(config, &broker.config(), Clock::new()).unwrap();
        Self { host, replica: SyncReplica::new(node) }
    }

    /// Follows Sync until the replica is as wanted.
    async fn until(&mut self, what: &str, is_so: impl Fn(&SyncReplica) -> bool) {
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

    async fn send_index(&self, version: u64, deployments: &[(Uuid, &DesiredManifests)]) {
        let deployments = deployments.iter().map(|(uuid, manifests)| (*uuid, manifests.entry())).collect();
        let index = DesiredIndex {
            version,
            deployments,
            origin: None,
            follows: None,
            decided_for: None,
            entries: None,
            names: BTreeMap::new(),
        };
        self.host.request(index.to_request(self.replica.address().clone())).await.unwrap();
    }

    /// Sends them once the Device of the deployment is born: its id is in that birth.
    async fn send_manifests(&mut self, uuid: Uuid, manifests: &DesiredManifests) {
        self.until("the Device of the deployment", |replica| replica.devices().device_of(uuid).is_some()).await;
        let device = self.replica.devices().device_of(uuid).expect("a device").clone();
        self.host.request(manifests.to_request(self.replica.address().clone(), device, uuid)).await.unwrap();
    }
}

fn release(name: &str, version: u64) -> DesiredManifests {
    let object = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": name},
        "spec": {"interval": "1m", "values": {"n": version}, "chart": {"spec": {"chart": "edge-agent",
            "sourceRef": {"kind": "GitRepository", "name": "charts"}, "reconcileStrategy": "Revision"}}}
    });
    DesiredManifests::new(version, "Robot_Cell_3", vec![object])
}

fn config_map(version: u64, name: &str) -> DesiredManifests {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": version.to_string()}});
    DesiredManifests::new(version, name, vec![object])
}

fn is_applied(replica: &SyncReplica, uuid: Uuid, manifests: &DesiredManifests) -> bool {
    replica.devices().deployments.get(&uuid).is_some_and(|device| device.is_applied(manifests.digest()))
}

#[tokio::test]
async fn a_deployment_is_installed_by_flux_changed_and_removed_again() {
    let mut cluster = TestCluster::with_flux().await;
    cluster.start_sealing().await;
    let scene = Scene::of(cluster).await;
    let charts = Repository::start().await;
    charts.commit(&[("edge-agent/Chart.yaml", "apiVersion: v2\nname: edge-agent\nversion: 1.0.0\n")]);
    let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": {"name": "charts"},
        "spec": {"url": charts.url(), "interval": "1h", "ref": {"branch": "main"}}});
    scene.cluster.put(source, json!({})).await;
    let mut manager = Manager::start(&scene.broker);
    let sync = scene.sync();
    manager
        .until("the birth", |replica| {
            replica.is_complete() && replica.node().is_some_and(|node| node.sealing_certificate.is_some())
        })
        .await;
    let node = manager.replica.node().unwrap();
    assert_eq!((&*node.cluster_name, node.desired_version, node.hosts_total, node.simulated), ("Test", 0, 1, true));
    assert!(manager.replica.devices().hosts.values().all(|host| host.control_plane && host.ready));

    let first = release("edge-agent-1", 1);
    manager.send_index(1, &[(DEPLOYMENT, &first)]).await;
    manager
        .until("the deployment to be known", |replica| replica.devices().deployments.contains_key(&DEPLOYMENT))
        .await;
    assert_eq!(manager.replica.devices().deployments[&DEPLOYMENT].state, DeploymentState::Pending);
    manager.send_manifests(DEPLOYMENT, &first).await;
    manager
        .until("Flux to be ready", |replica| {
            is_applied(replica, DEPLOYMENT, &first) && replica.devices().deployments[&DEPLOYMENT].ready == Some(true)
        })
        .await;
    let device = &manager.replica.devices().deployments[&DEPLOYMENT];
    assert_eq!((device.version, &*device.name), (1, "Robot_Cell_3"));
    assert!(device.message.is_some() && device.applied_at.is_some());

    let second = release("edge-agent-1", 2);
    manager.send_index(2, &[(DEPLOYMENT, &second)]).await;
    manager.send_manifests(DEPLOYMENT, &second).await;
    manager.until("the second version", |replica| is_applied(replica, DEPLOYMENT, &second)).await;
    let object = scene.get(RELEASES, "edge-agent-1").await.unwrap();
    assert_eq!(object["spec"]["values"]["n"], 2);
    assert!(
        object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty()),
        "Flux keeps its finalizer"
    );

    manager.send_index(3, &[]).await;
    manager.until("the removal", |replica| replica.is_complete() && replica.devices().deployments.is_empty()).await;
    assert_eq!(scene.get(RELEASES, "edge-agent-1").await, None);
    sync.stop().await;
    manager.until("the death", |replica| !replica.is_alive()).await;
    scene.cluster.stop().await;
}

#[tokio::test]
async fn what_was_accepted_survives_a_kill_and_is_in_the_next_birth() {
    let scene = Scene::start().await;
    let mut manager = Manager::start(&scene.broker);
    let sync = scene.sync();
    manager.until("the birth", SyncReplica::is_complete).await;
    let set = config_map(4, "x");
    manager.send_index(7, &[(DEPLOYMENT, &set)]).await;
    manager.until("the index", |replica| replica.node().is_some_and(|node| node.desired_version == 7)).await;
    manager.send_manifests(DEPLOYMENT, &set).await;
    manager.until("the deployment", |replica| is_applied(replica, DEPLOYMENT, &set)).await;
    let applied = scene.get(CONFIG_MAPS, "x").await.unwrap();
    sync.kill().await;
    manager.until("the death", |replica| !replica.is_alive()).await;

    let sync = scene.sync();
    manager.until("the next birth", |replica| replica.is_alive() && replica.is_complete()).await;
    // No one follows a repository here; that is reported as soon as it was looked for, and nothing else comes unasked.
    let looked = |replica: &SyncReplica| replica.node().is_some_and(|node| node.source_message.is_some());
    manager.until("the look at Flux", looked).await;
    let node = manager.replica.node().unwrap();
    assert_eq!((node.desired_version, node.desired_error.as_deref()), (7, None));
    assert!(is_applied(&manager.replica, DEPLOYMENT, &set));
    assert_eq!(manager.replica.devices().deployments[&DEPLOYMENT].version, 4);
    // The accepted index, sent again, is answered with what stands.
    manager.send_index(7, &[(DEPLOYMENT, &set)]).await;
    let answer = in_time("the answer to a repeat", async {
        loop {
            match manager.host.recv().await.unwrap() {
                HostEvent::NodeData { metrics, .. } if metrics.iter().any(|metric| metric.is_historical) => {
                    break metrics;
                }
                event => assert_eq!(manager.replica.on_event(&event), None, "{event:?}"),
            }
        }
    })
    .await;
    assert!(
        answer.iter().any(|metric| &*metric.name == names::DESIRED_VERSION && metric.as_u64() == Some(7)),
        "{answer:?}"
    );
    // An older index changes nothing; the next one does.
    manager.send_index(6, &[]).await;
    let other = config_map(1, "y");
    manager.send_index(8, &[(DEPLOYMENT, &set), (Uuid::from_u128(2), &other)]).await;
    manager.send_manifests(Uuid::from_u128(2), &other).await;
    manager.until("the other deployment", |replica| is_applied(replica, Uuid::from_u128(2), &other)).await;
    assert_eq!(scene.get(CONFIG_MAPS, "x").await, Some(applied), "nothing was applied again");
    sync.stop().await;
    scene.cluster.stop().await;
}

#[tokio::test]
async fn while_the_broker_is_away_the_cluster_is_kept_and_the_next_birth_is_true() {
    let mut scene = Scene::start().await;
    let mut manager = Manager::start(&scene.broker);
    let sync = scene.sync();
    manager.until("the birth", SyncReplica::is_complete).await;
    let set = config_map(1, "x");
    manager.send_index(1, &[(DEPLOYMENT, &set)]).await;
    manager.send_manifests(DEPLOYMENT, &set).await;
    manager.until("the deployment", |replica| is_applied(replica, DEPLOYMENT, &set)).await;

    scene.broker.kill();
    let late = scene.cluster.make_node().await;
    scene.cluster.config_maps().delete("x", &DeleteParams::default()).await.unwrap();
    let repaired = async {
        while scene.get(CONFIG_MAPS, "x").await.is_none() {
            tokio::time::sleep(LOOK).await;
        }
    };
    in_time("the repair", repaired).await;
    scene.broker.restart();
    manager
        .until("the birth with the late host", |replica| {
            replica.is_complete() && replica.devices().hosts.contains_key(&late)
        })
        .await;
    assert!(is_applied(&manager.replica, DEPLOYMENT, &set));
    scene.cluster.remove_node(&late).await;
    manager
        .until("the host's death", |replica| replica.is_complete() && !replica.devices().hosts.contains_key(&late))
        .await;
    sync.stop().await;
    scene.cluster.stop().await;
}

#[tokio::test]
async fn a_refusing_api_server_fails_one_deployment_visibly_and_is_tried_again() {
    let mut scene = Scene::start().await;
    scene.url = scene.cluster.url_that_refuses("bad").await;
    let mut manager = Manager::start(&scene.broker);
    let sync = scene.sync();
    manager.until("the birth", SyncReplica::is_complete).await;
    let (bad, good, evil) = (
        config_map(1, "bad"),
        config_map(1, "good"),
        DesiredManifests::new(1, "evil", vec![json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})]),
    );
    let [first, second, third] = [1, 2, 3].map(Uuid::from_u128);
    manager.send_index(1, &[(first, &bad), (second, &good), (third, &evil)]).await;
    for (uuid, manifests) in [(first, &bad), (second, &good), (third, &evil)] {
        manager.send_manifests(uuid, manifests).await;
    }
    let state = |replica: &SyncReplica, uuid: Uuid| replica.devices().deployments.get(&uuid).map(|device| device.state);
    manager
        .until("a failure and a refusal", |replica| {
            state(replica, first) == Some(DeploymentState::Failed)
                && state(replica, third) == Some(DeploymentState::Refused)
                && is_applied(replica, second, &good)
        })
        .await;
    let failed = &manager.replica.devices().deployments[&first];
    assert_eq!(failed.refused_digest, Some(bad.digest()));
    assert!(
        failed.reason.as_ref().is_some_and(|reason| reason.starts_with("ConfigMap bad: ") && reason.ends_with("(403)")),
        "{failed:?}"
    );
    assert!(
        manager.replica.devices().deployments[&third]
            .reason
            .as_ref()
            .is_some_and(|reason| reason.starts_with("manifests[0] kind v1/Pod is not allowed"))
    );
    scene.cluster.allow("bad").await;
    manager.until("the retry", |replica| is_applied(replica, first, &bad)).await;
    assert_eq!(scene.get(("v1", "Pod"), "p").await, None);
    sync.stop().await;
    scene.cluster.stop().await;
}

#[tokio::test]
async fn an_api_server_that_is_away_is_reported_and_followed_as_soon_as_it_is_there() {
    let mut scene = Scene::start().await;
    scene.cluster.lose_api();
    let mut manager = Manager::start(&scene.broker);
    let sync = scene.sync();
    let is_reported = |name: &str, reason: &str| name == "sync_kubernetes" && reason.contains("503");
    let waits = async {
        while !sync.health.not_ready().iter().any(|(name, reason)| is_reported(name, reason)) {
            tokio::time::sleep(LOOK).await;
        }
    };
    in_time("the reason", waits).await;
    assert!(
        sync.health.not_ready().iter().any(|(_, reason)| reason == "waits until the cluster has been listed"),
        "there is no birth"
    );
    scene.cluster.regain_api().await;
    manager.until("the birth", |replica| replica.is_complete() && replica.devices().hosts.len() == 1).await;
    let ready = async {
        while !sync.health.is_ready() {
            tokio::time::sleep(LOOK).await;
        }
    };
    in_time("readiness", ready).await;

    scene.cluster.lose_api();
    manager.until("the error", |replica| replica.node().is_some_and(|node| node.desired_error.is_some())).await;
    let error = manager.replica.node().unwrap().desired_error.clone().unwrap();
    assert!(error.starts_with("the Kubernetes API is not reached"), "{error}");
    assert_eq!(sync.health.not_ready().iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["sync_kubernetes"]);
    assert_eq!(manager.replica.devices().hosts.len(), 1, "what is known is kept");
    scene.cluster.regain_api().await;
    manager
        .until("the recovery", |replica| {
            replica.is_complete() && replica.node().is_some_and(|node| node.desired_error.is_none())
        })
        .await;
    let late = scene.cluster.make_node().await;
    manager
        .until("a host that came after it", |replica| {
            replica.is_complete() && replica.devices().hosts.contains_key(&late)
        })
        .await;
    scene.cluster.remove_node(&late).await;
    sync.stop().await;
    scene.cluster.stop().await;
}
