//! The whole service: `run()` between a simulated cluster and a Mosquitto, commanded and watched by a Host Application.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod support;

use std::path::Path;
use std::time::Duration;

use edge_sync::config::{ClusterConfig, KubernetesConfig, SyncConfig};
use edge_sync_contract::{DeploymentState, DesiredIndex, DesiredManifests, SyncReplica, names};
use serde_json::{Value, json};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use simulator::cluster::{ClusterSpec, HostSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use simulator::flux::git::write_charts;
use simulator::kubernetes::Place;
use simulator::kubernetes::faults::{Break, Fault};
use sparkplug::GroupId;
use sparkplug::host::{HostConfig, HostEvent};
use sparkplug_mqtt::{Clock, HostHandle};
use support::in_time;
use support::mosquitto::Mosquitto;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use uuid::Uuid;

const DEPLOYMENT: Uuid = Uuid::from_u128(0xD);

/// A running edge sync.
struct Running {
    shutdown: Shutdown,
    health: Health,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    fn start(cluster: &SimulatedCluster, broker: &Mosquitto, state_dir: &Path) -> Self {
        let config = edge_sync::Config {
            state_dir: state_dir.into(),
            simulated: true,
            cluster: ClusterConfig { name: "Test".to_owned(), uuid: Some(Uuid::from_u128(0xC)) },
            kubernetes: KubernetesConfig { namespace: cluster.namespace().to_owned(), url: Some(cluster.url()) },
            sync: SyncConfig { prune_interval_ms: 100, retry_ms_min: 100, retry_ms_max: 500, ..SyncConfig::default() },
            mqtt: broker.config(),
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
struct Centre {
    host: HostHandle,
    replica: SyncReplica,
}

impl Centre {
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
        if tokio::time::timeout(support::PATIENCE, follow).await.is_err() {
            panic!("waited too long for {what}: {:#?}", self.replica);
        }
    }

    async fn send_index(&self, version: u64, deployments: &[(Uuid, &DesiredManifests)]) {
        let deployments = deployments.iter().map(|(uuid, manifests)| (*uuid, manifests.entry())).collect();
        let request = DesiredIndex { version, deployments, origin: None, follows: None, entries: None }
            .to_request(self.replica.address().clone());
        self.host.request(request).await.unwrap();
    }

    async fn send_manifests(&self, uuid: Uuid, manifests: &DesiredManifests) {
        self.host.request(manifests.to_request(self.replica.address().clone(), uuid)).await.unwrap();
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
    replica.deployments().get(&uuid).is_some_and(|device| device.is_applied(manifests.digest()))
}

fn get(cluster: &SimulatedCluster, api_version: &str, kind: &str, name: &str) -> Option<Value> {
    let simulated = cluster.kubernetes();
    simulated.get(api_version, kind, cluster.namespace(), name).ok().map(|object| (*object).clone())
}

async fn scene() -> (SimulatedCluster, Mosquitto, TempDir) {
    let cluster = SimulatedCluster::start(ClusterSpec::new("Test"), Charts::new()).await.unwrap();
    (cluster, Mosquitto::start(), tempfile::tempdir().unwrap())
}

#[tokio::test]
async fn a_deployment_is_installed_by_flux_changed_and_removed_again() {
    let (cluster, broker, directory) = scene().await;
    let charts = tempfile::tempdir().unwrap();
    let url = write_charts(charts.path(), &["edge-agent"]).unwrap();
    let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": {"name": "charts", "namespace": cluster.namespace()},
        "spec": {"url": url, "interval": "1h", "ref": {"branch": "main"}}});
    cluster.kubernetes().apply("test", source).unwrap();
    let mut centre = Centre::start(&broker);
    let sync = Running::start(&cluster, &broker, directory.path());
    centre
        .until("the birth", |replica| {
            replica.is_complete() && replica.node().is_some_and(|node| node.sealing_certificate.is_some())
        })
        .await;
    let node = centre.replica.node().unwrap();
    assert_eq!((&*node.cluster_name, node.desired_version, node.hosts_total, node.simulated), ("Test", 0, 1, true));
    assert!(centre.replica.hosts().values().all(|host| host.control_plane && host.ready));

    let first = release("edge-agent-1", 1);
    centre.send_index(1, &[(DEPLOYMENT, &first)]).await;
    centre.until("the deployment to be known", |replica| replica.deployments().contains_key(&DEPLOYMENT)).await;
    assert_eq!(centre.replica.deployments()[&DEPLOYMENT].state, DeploymentState::Pending);
    centre.send_manifests(DEPLOYMENT, &first).await;
    centre
        .until("Flux to be ready", |replica| {
            is_applied(replica, DEPLOYMENT, &first) && replica.deployments()[&DEPLOYMENT].ready == Some(true)
        })
        .await;
    let device = &centre.replica.deployments()[&DEPLOYMENT];
    assert_eq!((device.version, &*device.name), (1, "Robot_Cell_3"));
    assert!(device.message.is_some() && device.applied_at.is_some());

    let second = release("edge-agent-1", 2);
    centre.send_index(2, &[(DEPLOYMENT, &second)]).await;
    centre.send_manifests(DEPLOYMENT, &second).await;
    centre.until("the second version", |replica| is_applied(replica, DEPLOYMENT, &second)).await;
    let object = get(&cluster, "helm.toolkit.fluxcd.io/v2", "HelmRelease", "edge-agent-1").unwrap();
    assert_eq!(object["spec"]["values"]["n"], 2);
    assert!(
        object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty()),
        "Flux keeps its finalizer"
    );

    centre.send_index(3, &[]).await;
    centre.until("the removal", |replica| replica.is_complete() && replica.deployments().is_empty()).await;
    assert_eq!(get(&cluster, "helm.toolkit.fluxcd.io/v2", "HelmRelease", "edge-agent-1"), None);
    sync.stop().await;
    centre.until("the death", |replica| !replica.is_alive()).await;
    cluster.stop().await;
}

#[tokio::test]
async fn what_was_accepted_survives_a_kill_and_is_told_by_the_next_birth() {
    let (cluster, broker, directory) = scene().await;
    let mut centre = Centre::start(&broker);
    let sync = Running::start(&cluster, &broker, directory.path());
    centre.until("the birth", SyncReplica::is_complete).await;
    let set = config_map(4, "x");
    centre.send_index(7, &[(DEPLOYMENT, &set)]).await;
    centre.until("the index", |replica| replica.node().is_some_and(|node| node.desired_version == 7)).await;
    centre.send_manifests(DEPLOYMENT, &set).await;
    centre.until("the deployment", |replica| is_applied(replica, DEPLOYMENT, &set)).await;
    let applied = get(&cluster, "v1", "ConfigMap", "x").unwrap();
    sync.kill().await;
    centre.until("the death", |replica| !replica.is_alive()).await;

    let sync = Running::start(&cluster, &broker, directory.path());
    centre.until("the next birth", |replica| replica.is_alive() && replica.is_complete()).await;
    // Nobody follows a repository here; that is told as soon as it was looked for, and nothing else comes unasked.
    let looked = |replica: &SyncReplica| replica.node().is_some_and(|node| node.source_message.is_some());
    centre.until("the look at Flux", looked).await;
    let node = centre.replica.node().unwrap();
    assert_eq!((node.desired_version, node.desired_error.as_deref()), (7, None));
    assert!(is_applied(&centre.replica, DEPLOYMENT, &set));
    assert_eq!(centre.replica.deployments()[&DEPLOYMENT].version, 4);
    // The accepted index, sent again, is answered with what stands.
    centre.send_index(7, &[(DEPLOYMENT, &set)]).await;
    let answer = in_time("the answer to a repeat", async {
        loop {
            match centre.host.recv().await.unwrap() {
                HostEvent::NodeData { metrics, .. } if metrics.iter().any(|metric| metric.is_historical) => {
                    break metrics;
                }
                event => assert_eq!(centre.replica.on_event(&event), None, "{event:?}"),
            }
        }
    })
    .await;
    assert!(
        answer.iter().any(|metric| &*metric.name == names::DESIRED_VERSION && metric.as_u64() == Some(7)),
        "{answer:?}"
    );
    // An older index changes nothing; the next one does.
    centre.send_index(6, &[]).await;
    let other = config_map(1, "y");
    centre.send_index(8, &[(DEPLOYMENT, &set), (Uuid::from_u128(2), &other)]).await;
    centre.send_manifests(Uuid::from_u128(2), &other).await;
    centre.until("the other deployment", |replica| is_applied(replica, Uuid::from_u128(2), &other)).await;
    assert_eq!(get(&cluster, "v1", "ConfigMap", "x"), Some(applied), "nothing was applied again");
    sync.stop().await;
    cluster.stop().await;
}

#[tokio::test]
async fn while_the_broker_is_away_the_cluster_is_kept_and_the_next_birth_is_true() {
    let (cluster, mut broker, directory) = scene().await;
    let mut centre = Centre::start(&broker);
    let sync = Running::start(&cluster, &broker, directory.path());
    centre.until("the birth", SyncReplica::is_complete).await;
    let set = config_map(1, "x");
    centre.send_index(1, &[(DEPLOYMENT, &set)]).await;
    centre.send_manifests(DEPLOYMENT, &set).await;
    centre.until("the deployment", |replica| is_applied(replica, DEPLOYMENT, &set)).await;

    broker.kill();
    cluster.add_host(&HostSpec::worker("late")).unwrap();
    let place = Place { api_version: "v1", kind: "ConfigMap", namespace: cluster.namespace(), name: "x" };
    cluster.kubernetes().delete(&place).unwrap();
    let mut changes = cluster.kubernetes().changes();
    let repaired = async {
        while get(&cluster, "v1", "ConfigMap", "x").is_none() {
            changes.changed().await.unwrap();
        }
    };
    in_time("the repair", repaired).await;
    broker.restart();
    centre
        .until("the birth with the late host", |replica| replica.is_complete() && replica.hosts().contains_key("late"))
        .await;
    assert!(is_applied(&centre.replica, DEPLOYMENT, &set));
    cluster.remove_host("late").unwrap();
    centre.until("the host's death", |replica| replica.is_complete() && !replica.hosts().contains_key("late")).await;
    sync.stop().await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_refusing_api_server_fails_one_deployment_visibly_and_is_tried_again() {
    let (cluster, broker, directory) = scene().await;
    let simulated = cluster.kubernetes();
    let mut centre = Centre::start(&broker);
    let sync = Running::start(&cluster, &broker, directory.path());
    centre.until("the birth", SyncReplica::is_complete).await;
    let (bad, good, evil) = (
        config_map(1, "bad"),
        config_map(1, "good"),
        DesiredManifests::new(1, "evil", vec![json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})]),
    );
    let [first, second, third] = [1, 2, 3].map(Uuid::from_u128);
    simulated.inject(Fault::next(3, 403).method("PATCH").path("/configmaps/bad"));
    centre.send_index(1, &[(first, &bad), (second, &good), (third, &evil)]).await;
    for (uuid, manifests) in [(first, &bad), (second, &good), (third, &evil)] {
        centre.send_manifests(uuid, manifests).await;
    }
    let state = |replica: &SyncReplica, uuid: Uuid| replica.deployments().get(&uuid).map(|device| device.state);
    centre
        .until("a failure and a refusal", |replica| {
            state(replica, first) == Some(DeploymentState::Failed)
                && state(replica, third) == Some(DeploymentState::Refused)
                && is_applied(replica, second, &good)
        })
        .await;
    let failed = &centre.replica.deployments()[&first];
    assert_eq!(failed.refused_digest, Some(bad.digest()));
    assert!(
        failed.reason.as_ref().is_some_and(|reason| reason.starts_with("ConfigMap bad: ") && reason.ends_with("(403)")),
        "{failed:?}"
    );
    assert!(
        centre.replica.deployments()[&third]
            .reason
            .as_ref()
            .is_some_and(|reason| reason.starts_with("manifests[0] kind v1/Pod is not allowed"))
    );
    centre.until("the retry", |replica| is_applied(replica, first, &bad)).await;
    assert_eq!(get(&cluster, "v1", "Pod", "p"), None);
    sync.stop().await;
    cluster.stop().await;
}

#[tokio::test]
async fn an_api_server_that_is_away_is_told_and_followed_again_when_it_is_back() {
    let (cluster, broker, directory) = scene().await;
    let simulated = cluster.kubernetes();
    let mut centre = Centre::start(&broker);
    let sync = Running::start(&cluster, &broker, directory.path());
    centre.until("the birth", SyncReplica::is_complete).await;
    in_time("readiness", async {
        while !sync.health.is_ready() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    simulated.inject(Fault::next(u32::MAX, 503));
    simulated.break_watches(Break::Cut);
    centre.until("the error", |replica| replica.node().is_some_and(|node| node.desired_error.is_some())).await;
    let error = centre.replica.node().unwrap().desired_error.clone().unwrap();
    assert!(error.starts_with("the Kubernetes API is not reached"), "{error}");
    assert_eq!(sync.health.not_ready().iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["sync_kubernetes"]);
    assert_eq!(centre.replica.hosts().len(), 1, "what is known is kept");
    simulated.heal();
    centre
        .until("the recovery", |replica| {
            replica.is_complete() && replica.node().is_some_and(|node| node.desired_error.is_none())
        })
        .await;
    cluster.add_host(&HostSpec::worker("late")).unwrap();
    centre
        .until("a host that came after it", |replica| replica.is_complete() && replica.hosts().contains_key("late"))
        .await;
    sync.stop().await;
    cluster.stop().await;
}

#[tokio::test]
async fn without_the_cluster_there_is_no_birth_and_health_tells_why() {
    let (cluster, broker, directory) = scene().await;
    let simulated = cluster.kubernetes();
    simulated.inject(Fault::next(4, 503).path("/nodes"));
    let mut centre = Centre::start(&broker);
    let sync = Running::start(&cluster, &broker, directory.path());
    in_time("the reason", async {
        while !sync.health.not_ready().iter().any(|(name, reason)| name == "sync_kubernetes" && reason.contains("503"))
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(sync.health.not_ready().iter().any(|(_, reason)| reason == "waits until the cluster has been listed"));
    centre.until("the birth", |replica| replica.is_complete() && replica.hosts().len() == 1).await;
    sync.stop().await;
    cluster.stop().await;
}
