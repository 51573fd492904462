//! The service with the rights that the chart gives it and no others: none is missing, and each single one is needed.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod support;

use std::sync::Arc;

use join_protocol::host::Event as HostInput;
use join_protocol::terms::{Kind, Role};
use join_service::config::{Distribution, TrustConfig};
use join_service::document::{Binding, ControlPlaneLease, Key, to_text};
use join_service_contract::{HostState, JoinReplica};
use serde_json::{Value, json};
use simulator::kubernetes::Kubernetes;
use simulator::kubernetes::rbac::{Account, chart};
use support::host::SimHost;
use support::scene::{Centre, PATIENCE, Scene, Station};
use support::site::{self, entry, policy};
use uuid::Uuid;

const TEMPLATE: &str = include_str!("../../../helm/edge-cluster/templates/join-service.yaml");
const VALUES: &str = include_str!("../../../helm/edge-cluster/values.yaml");
const LABEL: &str = "app.kubernetes.io/managed-by";
const SECRET: &str = "sparkfleet-join";

/// The service account of the chart.
fn account(namespace: &str) -> Account {
    let values: Value = serde_saphyr::from_str(VALUES).unwrap();
    let grants = chart::grants(&[TEMPLATE], &values, namespace, "sparkfleet-join").unwrap();
    assert!(!grants.is_empty());
    Account::new(format!("system:serviceaccount:{namespace}:sparkfleet-join"), grants)
}

/// A document that was written by somebody else; without the label the service does not see it before it wants to write there.
fn written_before(scene: &Scene, key: &Key, text: &str, is_seen: bool) {
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
    scene.cluster.simulated().unwrap().kubernetes().apply("somebody", object).unwrap();
}

fn has(kubernetes: &Kubernetes, namespace: &str, key: &Key) -> bool {
    kubernetes.get("v1", "ConfigMap", namespace, &key.to_string()).is_ok()
}

#[tokio::test]
async fn the_rights_of_the_chart_are_those_that_are_used() {
    let mut scene = Scene::new().await;
    let kubernetes = scene.cluster.simulated().unwrap().kubernetes().clone();
    let namespace = scene.cluster.namespace().to_owned();
    let account = Arc::new(account(&namespace));
    scene.url = format!("http://{}", kubernetes.serve_as(account.clone()).await.unwrap());
    scene.put_secret(SECRET, &site::files(0)).await;
    let (worker, control_plane) = (SimHost::new(1, Role::Worker), SimHost::new(2, Role::ControlPlane));
    // The disk of a host that is not known any more is given back.
    let forgotten = Key::Disk(Uuid::from_u128(99));
    written_before(&scene, &forgotten, &to_text(&Binding { ek: [9; 32], since_ms: 0 }), true);
    // These are in the way, and have to be read first.
    let own = Binding { ek: worker.ek_bytes(), since_ms: 0 };
    written_before(&scene, &Key::Disk(worker.disk), &to_text(&own), false);
    let lease = ControlPlaneLease { request: "gone".to_owned(), disk: Uuid::from_u128(98), until_ms: 0 };
    written_before(&scene, &Key::ControlPlane, &to_text(&lease), false);

    let trust = TrustConfig { directory: None, secret: Some(SECRET.to_owned()) };
    let join = scene.start_with(0, Distribution::K3s, trust);
    let mut centre = Centre::start(&scene.broker);
    let enrolled = [json!({"ek": worker.ek()}), json!({"ek": control_plane.ek(), "controlPlane": true})];
    centre.send(&policy(1, &entry(&enrolled, &[]))).await;
    let revoked = worker.ek();
    for host in [worker, control_plane] {
        let disk = host.disk;
        let mut station = Station::start(&scene, host);
        station.tell(HostInput::Start).await;
        station.until("the ticket", |host| host.disk_keys.len() == 1).await;
        let is_member =
            |join: &JoinReplica| join.hosts().get(&disk).is_some_and(|host| host.state == HostState::Member);
        centre.until("the member", is_member).await;
        station.host.reboot(Kind::Rejoin);
        station.tell(HostInput::Start).await;
        station.until("the keys", |host| host.disk_keys.len() == 2).await;
    }
    assert_eq!(scene.tokens().await.len(), 0);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge-1"}});
    kubernetes.apply("kubelet", node).unwrap();
    centre.send(&policy(2, &entry(&enrolled, &[revoked]))).await;
    let mut changes = kubernetes.changes();
    let done =
        |_: &u64| kubernetes.get("v1", "Node", "", "edge-1").is_err() && !has(&kubernetes, &namespace, &forgotten);
    tokio::time::timeout(PATIENCE, changes.wait_for(done)).await.expect("the node and the disk to be gone").unwrap();
    join.stop().await;
    assert_eq!(account.refused(), [""; 0]);
    assert_eq!(account.unused(), [""; 0]);
    scene.cluster.stop().await;
}

#[tokio::test]
async fn a_right_that_is_taken_away_is_missed() {
    let mut scene = Scene::new().await;
    let kubernetes = scene.cluster.simulated().unwrap().kubernetes().clone();
    let namespace = scene.cluster.namespace().to_owned();
    let values: Value = serde_saphyr::from_str(VALUES).unwrap();
    let without = TEMPLATE.replace("verbs: [create, delete]", "verbs: [delete]");
    let grants = chart::grants(&[&without], &values, &namespace, "sparkfleet-join").unwrap();
    let account = Arc::new(Account::new("without", grants));
    scene.url = format!("http://{}", kubernetes.serve_as(account.clone()).await.unwrap());
    let join = scene.start(0, Distribution::K3s);
    let mut centre = Centre::start(&scene.broker);
    let host = SimHost::new(1, Role::Worker);
    centre.send(&policy(1, &entry(&[json!({"ek": host.ek()})], &[]))).await;
    let mut station = Station::start(&scene, host);
    station.tell(HostInput::Start).await;
    let refused = |_: &SimHost| !account.refused().is_empty();
    station.until("the refusal", refused).await;
    let refused = account.refused();
    let message = "cannot create resource \"secrets\" in API group \"\" in the namespace \"kube-system\"";
    assert!(refused[0].ends_with(message), "{refused:?}");
    join.stop().await;
    scene.cluster.stop().await;
}
