//! The service with the rights that the chart gives it and no others: none is missing, and each single one is needed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use join_protocol::host::Event as HostInput;
use join_protocol::terms::{Kind, Role};
use join_service::config::{Distribution, TrustConfig};
use join_service::document::{Binding, ControlPlaneLease, Key, to_text};
use join_service_contract::{HostState, JoinReplica};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kubernetes_tests::audit::{Audit, Right};
use kubernetes_tests::definitions;
use kubernetes_tests::proxy::Proxy;
use serde_json::{Value, json};
use simulator::kubernetes::rbac::{self, chart};
use uuid::Uuid;

use crate::support::host::SimHost;
use crate::support::scene::{Manager, PATIENCE, Scene, Station};
use crate::support::site::{self, entry, policy};

const TEMPLATE: &str = include_str!("../../../../helm/edge-cluster/templates/join-service.yaml");
const VALUES: &str = include_str!("../../../../helm/edge-cluster/values.yaml");
const LABEL: &str = "app.kubernetes.io/managed-by";
const SECRET: &str = "sparkfleet-join";
const ACCOUNT: &str = "sparkfleet-join";
/// What the chart lets the account do with Secrets in kube-system.
const TOKENS: &str = "verbs: [create, delete]";
/// How often a state is polled whose changes cannot be watched.
const LOOK: Duration = Duration::from_millis(20);

/// The service account of the chart, and what it has asked for.
enum Account {
    Simulated(Arc<rbac::Account>),
    Real { audit: Audit, granted: BTreeSet<Right>, _proxy: Proxy },
}

impl Account {
    /// A scene in which the service is that account, with other rights over Secrets in kube-system than [`TOKENS`].
    async fn with(tokens: &str) -> (Scene, Self) {
        let (mut scene, audit) = Scene::audited(ACCOUNT).await;
        let namespace = scene.cluster.namespace().to_owned();
        if let Some(simulated) = scene.cluster.simulated() {
            let values: Value = serde_saphyr::from_str(VALUES).unwrap();
            let grants = chart::grants(&[&TEMPLATE.replace(TOKENS, tokens)], &values, &namespace, ACCOUNT).unwrap();
            assert!(!grants.is_empty());
            let user = format!("system:serviceaccount:{namespace}:{ACCOUNT}");
            let account = Arc::new(rbac::Account::new(user, grants));
            let served = simulated.kubernetes().serve_as(account.clone()).await.unwrap();
            scene.url = format!("http://{served}");
            return (scene, Self::Simulated(account));
        }
        assert!(scene.cluster.own().is_some(), "the audit log of a foreign API server cannot be read");
        let changed = |rendered: &str| rendered.replace(TOKENS, tokens);
        scene.cluster.apply_accounts("join-service.yaml", "cluster.name=Cell,join.enabled=true", changed).await;
        let client = scene.cluster.client();
        let granted = audit.granted(&client).await;
        audit.until_in_force(&client, &granted).await;
        let proxy = Proxy::start(scene.cluster.client_of(ACCOUNT).await).await;
        scene.url = proxy.url();
        (scene, Self::Real { audit, granted, _proxy: proxy })
    }

    /// What was refused, for people.
    fn refused(&self) -> Vec<String> {
        match self {
            Self::Simulated(account) => account.refused(),
            Self::Real { audit, .. } => audit.forbidden(),
        }
    }

    /// The rights that no request has used, for people.
    fn unused(&self) -> Vec<String> {
        match self {
            Self::Simulated(account) => account.unused(),
            Self::Real { audit, granted, .. } => audit.unused(granted),
        }
    }
}

/// A document that another client wrote; without the label the service does not see it before it wants to write there.
async fn written_before(scene: &Scene, key: &Key, text: &str, is_seen: bool) {
    let labels = if is_seen { json!({LABEL: "sparkfleet-join-service"}) } else { json!({}) };
    let metadata = json!({"name": key.to_string(), "namespace": scene.cluster.namespace(), "labels": labels});
    let object = match key {
        Key::ControlPlane | Key::Leader => {
            let mut metadata = metadata;
            metadata["annotations"] = json!({"sparkfleet.io/document": text});
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}})
        }
        _ => {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"document.json": text}})
        }
    };
    let kind = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let params = PatchParams::apply("other-client");
    api(scene, kind).patch(&key.to_string(), &params, &Patch::Apply(&object)).await.unwrap();
}

fn api(scene: &Scene, (api_version, kind): (&str, &str)) -> Api<DynamicObject> {
    definitions::api(scene.cluster.client(), api_version, kind, scene.cluster.namespace())
}

#[tokio::test]
async fn the_rights_of_the_chart_are_those_that_are_used() {
    let (scene, account) = Account::with(TOKENS).await;
    scene.put_secret(SECRET, &site::files(0)).await;
    let (worker, control_plane) = (SimHost::new(1, Role::Worker), SimHost::new(2, Role::ControlPlane));
    // The disk of a host that is not known any more is given back.
    let forgotten = Key::Disk(Uuid::from_u128(99));
    written_before(&scene, &forgotten, &to_text(&Binding { ek: [9; 32], since_ms: 0 }), true).await;
    // These are in the way, and have to be read first.
    let own = Binding { ek: worker.ek_bytes(), since_ms: 0 };
    written_before(&scene, &Key::Disk(worker.disk), &to_text(&own), false).await;
    let lease = ControlPlaneLease { request: "gone".to_owned(), disk: Uuid::from_u128(98), until_ms: 0 };
    written_before(&scene, &Key::ControlPlane, &to_text(&lease), false).await;

    let trust = TrustConfig { directory: None, secret: Some(SECRET.to_owned()) };
    let join = scene.start_with(0, Distribution::K3s, trust);
    let mut manager = Manager::start(&scene.broker);
    let enrolled = [json!({"ek": worker.ek()}), json!({"ek": control_plane.ek(), "controlPlane": true})];
    manager.send(&policy(1, &entry(&enrolled, &[]))).await;
    let revoked = worker.ek();
    for host in [worker, control_plane] {
        let disk = host.disk;
        let mut station = Station::start(&scene, host);
        station.feed(HostInput::Start).await;
        station.until("the ticket", |host| host.disk_keys.len() == 1).await;
        let is_member =
            |join: &JoinReplica| join.devices().get(&disk).is_some_and(|host| host.state == HostState::Member);
        manager.until("the member", is_member).await;
        station.host.reboot(Kind::Rejoin);
        station.feed(HostInput::Start).await;
        station.until("the keys", |host| host.disk_keys.len() == 2).await;
    }
    assert_eq!(scene.tokens().await.len(), 0);
    let nodes = scene.nodes().await;
    scene.add_node("edge-1").await;
    manager.send(&policy(2, &entry(&enrolled, &[revoked]))).await;
    let disks = api(&scene, ("v1", "ConfigMap"));
    let gone = async {
        while scene.nodes().await != nodes || disks.get_opt(&forgotten.to_string()).await.unwrap().is_some() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the node and the disk to be gone");
    join.stop().await;
    assert_eq!(account.refused(), [""; 0]);
    assert_eq!(account.unused(), [""; 0]);
    scene.cluster.stop().await;
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_missed() {
    let (scene, account) = Account::with("verbs: [delete]").await;
    let join = scene.start(0, Distribution::K3s);
    let mut manager = Manager::start(&scene.broker);
    let host = SimHost::new(1, Role::Worker);
    manager.send(&policy(1, &entry(&[json!({"ek": host.ek()})], &[]))).await;
    let mut station = Station::start(&scene, host);
    station.feed(HostInput::Start).await;
    station.until("the refusal", |_| !account.refused().is_empty()).await;
    let refused = account.refused();
    let is_it = |refused: &String| ["create", "secrets", "kube-system"].iter().all(|part| refused.contains(part));
    assert!(refused.iter().all(is_it), "{refused:?}");
    join.stop().await;
    scene.cluster.stop().await;
}
