//! An attacker has the credentials that all hosts of a cluster share. Over a real Mosquitto it speaks in the name of a host that waits, and in the names of as many others as there is room for.

use std::time::Duration;

use join_protocol::host::Event as HostInput;
use join_protocol::metrics::{EVIDENCE, HostMessage, TICKET};
use join_protocol::terms::{Kind, Role};
use join_service::config::Distribution;
use join_service_contract::{HostState, JoinReplica};
use serde_json::json;
use sparkplug::payload::{EncodeOptions, Form, Payload, encode};
use sparkplug::session::QoS;
use sparkplug::{Metric, Value};
use sparkplug_mqtt::{Clock, ListenerEvent, ListenerHandle, spawn_listener};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::support::host::SimHost;
use crate::support::scene::{Manager, Scene, Station};
use crate::support::site::{GROUP, entry, policy};

/// Between two rounds, in each of which the host dies, is born and says hello once, and so does a stranger: each of them a hundred times in a second.
const ROUND: Duration = Duration::from_millis(10);
/// So many rounds are more than a service answers at once by default.
const ROUNDS: i64 = 200;
/// Beyond the numbers of all hosts of the test.
const STRANGERS: u64 = 10_000;

fn payload(seq: Option<u64>, metrics: Vec<Metric>) -> Payload {
    // An hour from now: later than what the host says itself.
    let timestamp = Clock::new().now().wall + 3_600_000;
    Payload { timestamp: Some(timestamp), seq, metrics, ..Payload::default() }
}

fn hello(host: &mut SimHost) -> HostMessage {
    host.reboot(Kind::Join);
    host.on_event(HostInput::Start, Clock::new().now()).remove(0)
}

async fn say(listener: &ListenerHandle, kind: &str, node: Uuid, payload: Payload) {
    let bytes = encode(&payload, &EncodeOptions::new(Form::Birth));
    listener.publish(format!("spBv1.0/{GROUP}/{kind}/{node}"), bytes).await.unwrap();
}

/// Speaks in the name of the host with that disk until it is aborted. Returns when more has been said than is answered at once.
async fn spoof(scene: &Scene, disk: Uuid) -> JoinHandle<()> {
    let commands = vec![(format!("spBv1.0/{GROUP}/NCMD/{}", Uuid::nil()), QoS::AtMostOnce)];
    let mut listener = spawn_listener(commands, &scene.broker.config(), Clock::new()).unwrap();
    assert_eq!(listener.recv().await, Some(ListenerEvent::Online));
    let (flood, is_flood) = oneshot::channel();
    let task = tokio::spawn(async move {
        let mut flood = Some(flood);
        let mut forged = SimHost::with(STRANGERS, disk, "edge-1", Role::Worker);
        let mut interval = tokio::time::interval(ROUND);
        for number in 0_i64.. {
            interval.tick().await;
            if number == ROUNDS
                && let Some(flood) = flood.take()
            {
                flood.send(()).unwrap();
            }
            let bd_seq = Metric::new("bdSeq", number % 256);
            let nonsense = Metric::new(EVIDENCE, Value::Bytes(vec![7; 200].into()));
            let birth = vec![bd_seq.clone(), hello(&mut forged).to_metric(), nonsense, Metric::new(TICKET, "none")];
            say(&listener, "NBIRTH", disk, payload(Some(0), birth)).await;
            say(&listener, "NDEATH", disk, payload(None, vec![bd_seq])).await;
            let other = STRANGERS + 1 + number.unsigned_abs();
            let mut stranger = SimHost::with(other, Uuid::from_u128(other.into()), "stranger", Role::Worker);
            let data = vec![hello(&mut stranger).to_metric()];
            say(&listener, "NDATA", stranger.disk, payload(Some(1), data)).await;
        }
    });
    is_flood.await.unwrap();
    task
}

#[tokio::test]
async fn a_host_in_whose_name_an_attacker_is_born_dies_and_says_hello_joins_and_comes_back() {
    let scene = Scene::new().await;
    let join = scene.start(0, Distribution::K3s);
    let mut manager = Manager::start(&scene.broker);
    let host = SimHost::new(1, Role::Worker);
    let disk = host.disk;
    manager.send(&policy(1, &entry(&[json!({"ek": host.ek()})], &[]))).await;
    let spoofer = spoof(&scene, disk).await;

    let mut station = Station::start(&scene, host);
    station.feed(HostInput::Start).await;
    station.until("the ticket", |host| host.tokens.len() == 1).await;
    let is_member = |join: &JoinReplica| join.devices().get(&disk).is_some_and(|host| host.state == HostState::Member);
    station.until("the lock", |host| host.machine.condition().name() == "committed").await;
    manager.until("the member", is_member).await;
    station.host.reboot(Kind::Rejoin);
    station.feed(HostInput::Start).await;
    station.until("the keys", |host| host.disk_keys.len() == 2).await;

    spoofer.abort();
    join.stop().await;
    scene.cluster.stop().await;
}
