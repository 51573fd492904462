//! The whole service on a real MQTT server: what is written arrives at every reader, durably, with an answer.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use crate::support;

use configdb_contract::{Change, ReplayRequest, WriteRequest};
use configdb_schema::document::{EdgeCluster, Info};
use configdb_schema::known::class;
use serde_json::json;
use support::{Broker, Reader, Service};
use uuid::Uuid;

const CLUSTER: Uuid = Uuid::from_u128(0xc1);

fn cluster(name: &str) -> EdgeCluster {
    EdgeCluster { name: name.to_owned(), namespace: "edge".to_owned(), ..EdgeCluster::default() }
}

fn create(id: &str, object: Uuid, name: &str) -> WriteRequest {
    WriteRequest::put(id, object)
        .create_object(class::EDGE_CLUSTER, None)
        .document(&cluster(name))
        .unwrap()
        .by("tester")
}

#[tokio::test]
async fn a_write_arrives_at_every_reader_before_its_answer_and_survives_a_kill() {
    let broker = Broker::start();
    let service = Service::start(broker.config());
    let mut reader = Reader::start(&broker).await;
    reader.complete().await;
    let created = reader.write(create("r1", CLUSTER, "Paint_Shop")).await;
    assert!(created.is_applied(), "{created:?}");
    let entry = reader.replica.entry(CLUSTER, "EdgeCluster").expect("the data came before the answer");
    assert_eq!(Some(&entry.etag), created.etags.get("EdgeCluster"));
    assert_eq!(reader.replica.revision(), created.revision);
    assert!(service.health.is_ready(), "{:?}", service.health.not_ready());

    let refused = reader.write(WriteRequest::patch("r2", CLUSTER).entry("EdgeCluster", json!({"name": "a b"}))).await;
    assert_eq!((refused.is_applied(), refused.field.as_deref()), (false, Some("EdgeCluster/name")));
    let stale =
        WriteRequest::put("r3", CLUSTER).document(&cluster("B")).unwrap().if_match("EdgeCluster", Some(Uuid::nil()));
    assert_eq!(reader.write(stale).await.field.as_deref(), Some("EdgeCluster"));
    let current = WriteRequest::put("r4", CLUSTER)
        .document(&cluster("B"))
        .unwrap()
        .if_match("EdgeCluster", created.etags.get("EdgeCluster").copied());
    assert!(reader.write(current).await.is_applied());

    service.kill().await;
    reader.until("the death", |reader| !reader.replica.is_complete()).await;
    assert!(reader.replica.entry(CLUSTER, "EdgeCluster").is_some(), "what was known stays known");
    reader.changes.clear();
    let service = Service::start(broker.config());
    reader.complete().await;
    assert_eq!(reader.replica.document::<EdgeCluster>(CLUSTER).unwrap(), Some(cluster("B")));
    let lost = reader.changes.iter().any(|change| {
        matches!(change, Change::Entry { .. } | Change::ObjectGone { .. } | Change::StoreReplaced { .. })
    });
    assert!(!lost, "{:?}", reader.changes);
    let repeated = reader.write(create("r1", CLUSTER, "Paint_Shop")).await;
    assert_eq!((repeated.revision, &repeated.etags), (created.revision, &created.etags), "the recorded answer");
    assert_eq!(reader.replica.document::<EdgeCluster>(CLUSTER).unwrap(), Some(cluster("B")), "and nothing else");
    service.stop().await;
    reader.host.stop().await;
}

/// A machine that is set back with its memory cannot know it, but its sessions are over.
#[tokio::test]
async fn each_session_that_writes_is_a_timeline_and_one_that_writes_nothing_leaves_the_state_its_name() {
    let mut broker = Broker::start();
    let service = Service::start(broker.config());
    let mut reader = Reader::start(&broker).await;
    reader.complete().await;
    assert!(reader.write(create("r1", CLUSTER, "First")).await.is_applied());
    let first = reader.replica.origin(0).unwrap();
    for _ in 0..2 {
        broker.restart();
        reader.until("the end of the session", |reader| !reader.replica.is_complete()).await;
        reader.complete().await;
        assert_eq!(reader.replica.origin(0), Some(first));
    }
    assert!(reader.write(create("r2", CLUSTER, "Second")).await.is_applied());
    let second = reader.replica.origin(0).unwrap();
    assert_ne!(second.point.timeline, first.point.timeline);
    assert_eq!(reader.replica.follows(first), Some(first.point), "the store contains what was before");
    assert!(reader.write(create("r3", CLUSTER, "Third")).await.is_applied());
    assert_eq!(reader.replica.state().unwrap().timeline, second.point.timeline);
    service.stop().await;
    reader.host.stop().await;
}

#[tokio::test]
async fn the_history_of_an_object_is_replayed_as_historical_data() {
    let broker = Broker::start();
    let service = Service::start(broker.config());
    let mut reader = Reader::start(&broker).await;
    reader.complete().await;
    reader.write(create("r1", CLUSTER, "First")).await;
    reader.write(create("r2", CLUSTER, "Second")).await;
    reader.write(WriteRequest::put("r3", CLUSTER).delete("EdgeCluster").by("another")).await;
    reader.replay(ReplayRequest { slug: Some("EdgeCluster".to_owned()), ..ReplayRequest::new("h", CLUSTER, 0) });
    reader.until("the answer", |reader| reader.answers.iter().any(|answer| answer.id == "h")).await;
    let history = reader.changes.iter().filter_map(|change| match change {
        Change::History(history) => Some((&*history.request, &*history.writer, history.json.is_some())),
        _ => None,
    });
    assert_eq!(history.collect::<Vec<_>>(), [("r1", "tester", true), ("r2", "tester", true), ("r3", "another", false)]);
    assert!(reader.replica.entry(CLUSTER, "EdgeCluster").is_none(), "the present is as it was");
    service.stop().await;
    reader.host.stop().await;
}

#[tokio::test]
async fn a_new_application_reaches_a_reader_without_the_loss_of_any_object() {
    let broker = Broker::start();
    let service = Service::start(broker.config());
    let mut reader = Reader::start(&broker).await;
    reader.complete().await;
    reader.write(create("r1", CLUSTER, "Paint_Shop")).await;
    reader.changes.clear();
    let application = Uuid::from_u128(0xa);
    let request = WriteRequest::put("r2", application).create_object(class::APPLICATION, None);
    assert!(reader.write(request.document(&Info::named("Shift plan")).unwrap()).await.is_applied());
    reader.complete().await;
    assert!(reader.write(WriteRequest::put("r3", CLUSTER).entry("Shiftplan", json!(["early"]))).await.is_applied());
    reader.complete().await;
    assert_eq!(&*reader.replica.entry(CLUSTER, "Shiftplan").unwrap().json, r#"["early"]"#);
    assert_eq!(reader.replica.slug_of(application), Some("Shiftplan"));
    assert!(
        !reader.changes.iter().any(|change| matches!(change, Change::ObjectGone { .. } | Change::Malformed { .. })),
        "{:?}",
        reader.changes
    );
    service.stop().await;
    reader.host.stop().await;
}

#[tokio::test]
async fn ten_thousand_objects_replicate_completely() {
    const OBJECTS: u128 = 10_000;
    let broker = Broker::start();
    let service = Service::start(broker.config());
    let mut reader = Reader::start(&broker).await;
    reader.complete().await;
    let before = reader.replica.objects().count();
    for n in 1..=OBJECTS {
        reader.submit(create(&format!("r{n}"), Uuid::from_u128(n), &format!("Cluster_{n}")));
    }
    reader.until("all answers", |reader| reader.answers.len() as u128 == OBJECTS).await;
    assert!(reader.answers.iter().all(configdb_contract::RequestResult::is_applied));
    reader.complete().await;
    assert_eq!(reader.replica.entries("EdgeCluster").count() as u128, OBJECTS);

    let mut late = Reader::start(&broker).await;
    late.complete().await;
    assert_eq!(late.replica.objects().count(), before + OBJECTS as usize);
    for (uuid, entry) in late.replica.entries("EdgeCluster") {
        assert_eq!(reader.replica.entry(uuid, "EdgeCluster"), Some(entry));
    }
    service.stop().await;
    late.until("the death", |late| !late.replica.is_complete()).await;
    late.host.stop().await;
    reader.host.stop().await;
}

#[tokio::test]
async fn a_dump_of_one_configdb_is_loaded_into_another() {
    use configdb_contract::{Dump, LoadOptions};
    let (first, second) = (Broker::start(), Broker::start());
    let services = [Service::start(first.config()), Service::start(second.config())];
    let mut source = Reader::start(&first).await;
    source.complete().await;
    let application = Uuid::from_u128(0xa);
    source.write(create("r1", CLUSTER, "Paint_Shop")).await;
    let request = WriteRequest::put("r2", application).create_object(class::APPLICATION, None);
    source
        .write(request.document(&Info::named("Shifts")).unwrap().entry("ConfigSchema", json!({"type": "array"})))
        .await;
    source.complete().await;
    source.write(WriteRequest::put("r3", CLUSTER).entry("Shifts", json!(["early", 2, null]))).await;
    let yaml = Dump::from_replica(&source.replica).unwrap().to_yaml().unwrap();

    let mut target = Reader::start(&second).await;
    target.complete().await;
    let dump = Dump::parse(&yaml).unwrap();
    let options = LoadOptions { id_prefix: "load".to_owned(), writer: "tester".to_owned() };
    for phase in dump.requests(&target.replica, &options).unwrap() {
        for request in phase {
            let result = target.write(request).await;
            assert!(result.is_applied(), "{result:?}");
        }
    }
    target.complete().await;
    assert_eq!(Dump::from_replica(&target.replica).unwrap().to_yaml().unwrap(), yaml);
    assert!(dump.requests(&target.replica, &options).unwrap().is_empty());
    for service in services {
        service.stop().await;
    }
    source.host.stop().await;
    target.host.stop().await;
}
