//! The whole service: `run()` between a Kubernetes API and a Mosquitto, with a host that speaks the real protocol and a cluster manager that sends the policy and looks on.

use std::time::Duration;

use join_protocol::host::Event as HostInput;
use join_protocol::message::acknowledgement::Stage;
use join_protocol::terms::{Kind, Role};
use join_service::config::{Distribution, TrustConfig};
use join_service_contract::{HostState, JoinReplica, PolicyState};
use serde_json::json;

use crate::support::host::SimHost;
use crate::support::scene::{Manager, PATIENCE, Scene, Station, base64_of, openssl};
use crate::support::site::{self, entry, policy};

/// How often it is looked whether the node is gone.
const LOOK: Duration = Duration::from_millis(20);

/// Its node is taken out of the cluster, and no other.
async fn loses_its_node_when_it_is_revoked(scene: &Scene, manager: &mut Manager, ek: &str) {
    let before = scene.nodes().await;
    scene.add_node("edge-1").await;
    assert_eq!(scene.nodes().await.len(), before.len() + 1);
    manager.send(&policy(3, &entry(&[json!({"ek": ek})], &[ek.to_owned()]))).await;
    let gone = async {
        while scene.nodes().await != before {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the node to be gone");
}

#[tokio::test]
async fn a_host_joins_by_kubeadm_and_what_it_was_given_is_good() {
    let scene = Scene::new().await;
    let join = scene.start(0, Distribution::Kubeadm);
    let mut manager = Manager::start(&scene.broker);
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
    station.feed(HostInput::Start).await;
    station.until("the refusal", |host| host.last_refusal() == Some(47)).await;
    manager.until("the device", |join| join.devices().values().any(|host| host.verdict.is_some())).await;
    assert_eq!(manager.replica.node().unwrap().policy_state, PolicyState::Unknown);

    // Not enrolled: it waits for approval, and its device says by which key.
    manager.send(&policy(1, &entry(&[], &[]))).await;
    station.host.reboot(Kind::Join);
    station.feed(HostInput::Start).await;
    station.until("the pending answer", |host| host.last_refusal() == Some(45)).await;
    let disk = station.host.disk;
    let is =
        |state: HostState| move |join: &JoinReplica| join.devices().get(&disk).is_some_and(|host| host.state == state);
    manager.until("the pending device", is(HostState::Pending)).await;
    let ek = manager.replica.devices()[&disk].endorsement_key.clone();

    // Approved: it gets its ticket and locks itself.
    manager.send(&policy(2, &entry(&[json!({"ek": ek})], &[]))).await;
    station.host.reboot(Kind::Join);
    station.feed(HostInput::Start).await;
    station.until("the lock", |host| host.machine.condition().name() == "committed").await;
    let tokens = scene.tokens().await;
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
    manager.until("the locked device", is(HostState::Locked)).await;

    // A member: the token is revoked.
    station.feed(HostInput::Stage(Stage::Member, String::new())).await;
    manager.until("the member", is(HostState::Member)).await;
    assert_eq!(scene.tokens().await.len(), 0);
    manager.until("the counters", |join| join.node().is_some_and(|node| node.tokens_revoked == 1)).await;
    let node = manager.replica.node().unwrap();
    assert_eq!((node.tickets_issued, node.tickets_acknowledged, node.hosts_members), (1, 1, 1));

    // After a reboot it gets the same disk key again.
    station.host.reboot(Kind::Rejoin);
    station.feed(HostInput::Start).await;
    station.until("the keys", |host| host.disk_keys.len() == 2).await;
    assert_eq!(station.host.disk_keys[0], station.host.disk_keys[1]);
    loses_its_node_when_it_is_revoked(&scene, &mut manager, &ek).await;
    join.stop().await;
    scene.cluster.stop().await;
}

#[tokio::test]
async fn the_second_replica_continues_where_the_first_stopped_with_policy_and_hosts() {
    let scene = Scene::new().await;
    let first = scene.start(0, Distribution::K3s);
    let mut manager = Manager::start(&scene.broker);
    let host = SimHost::new(1, Role::Worker);
    manager.send(&policy(1, &entry(&[json!({"ek": host.ek()})], &[]))).await;
    assert_eq!(manager.replica.node().unwrap().replica, "join-0");
    let second = scene.start(1, Distribution::K3s);
    let mut station = Station::start(&scene, host);
    station.feed(HostInput::Start).await;
    station.until("the ticket", |host| host.tokens.len() == 1).await;
    let disk = station.host.disk;
    manager
        .until("the member", |join| join.devices().get(&disk).is_some_and(|host| host.state == HostState::Member))
        .await;
    assert!(station.host.tokens[0].starts_with("K10"));

    first.stop().await;
    manager
        .until("the second", |join| join.is_complete() && join.node().is_some_and(|node| node.replica == "join-1"))
        .await;
    assert_eq!(manager.replica.node().unwrap().policy_state, PolicyState::InForce);
    assert_eq!(manager.replica.devices()[&disk].state, HostState::Member);
    station.host.reboot(Kind::Rejoin);
    station.feed(HostInput::Start).await;
    station.until("the keys", |host| host.disk_keys.len() == 2).await;
    second.stop().await;
    scene.cluster.stop().await;
}

#[tokio::test]
async fn keys_come_from_a_secret_of_the_cluster_as_well_and_a_wrong_one_ends_the_start() {
    let scene = Scene::new().await;
    scene.put_secret("keys", &site::files(0)).await;
    let mut wrong = site::files(1);
    wrong.remove("master.key");
    scene.put_secret("wrong", &wrong).await;
    let named = |name: &str| TrustConfig { directory: None, secret: Some(name.to_owned()) };
    let join = scene.start_with(0, Distribution::K3s, named("keys"));
    Manager::start(&scene.broker).until("the birth", JoinReplica::is_complete).await;
    join.stop().await;
    let refused = tokio::time::timeout(PATIENCE, scene.start_with(1, Distribution::K3s, named("wrong")).task).await;
    assert_eq!(refused.unwrap().unwrap().unwrap_err().to_string(), "master.key is missing");
    let absent = tokio::time::timeout(PATIENCE, scene.start_with(2, Distribution::K3s, named("absent")).task).await;
    let absent = absent.unwrap().unwrap().unwrap_err().to_string();
    assert!(absent.starts_with("cannot read the Secret absent in namespace"), "{absent}");
    scene.cluster.stop().await;
}
