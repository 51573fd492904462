//! The Kubernetes adapters against an API server: the simulated one, or the one that KUBECONFIG names.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod support;

use edge_sync::adapters::kubernetes::Kubernetes;
use edge_sync::event::{Deletion, Effect, ErrorClass, Event, Observation, PreparedObject};
use edge_sync::object::{Kind, LABEL_MANAGED_BY, LABEL_UUID, MANAGER, Marks, ObjectKey, ObservedObject};
use edge_sync::record::{IndexRecord, RECORD_NAME, StoredRecord};
use edge_sync_contract::{Commit, DesiredIndex, DesiredManifests, Digest, Others, Sources};
use kube::api::{DeleteParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use support::cluster::TestCluster;
use support::in_time;
use tokio::sync::mpsc;
use uuid::Uuid;

const CONFIG_MAP: &str = "v1/ConfigMap";
const DEPLOYMENT: Uuid = Uuid::from_u128(0xD);

fn kind() -> Kind {
    CONFIG_MAP.parse().unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { kind: kind(), name: name.to_owned() }
}

fn prepared(namespace: &str, name: &str, version: u64, is_ours: bool) -> PreparedObject {
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"version": version.to_string()}});
    let digest = Digest::of(&manifest);
    let marks = Marks {
        namespace,
        deployment: DEPLOYMENT,
        name: "Cell 1",
        version,
        digest,
        objects: 1,
        applied_at: 9,
        generation: None,
    };
    PreparedObject { key: key(name), is_ours, body: marks.put_on(&manifest) }
}

async fn answer(kubernetes: &Kubernetes, effect: Effect) -> Event {
    in_time("an answer", kubernetes.execute(effect).expect("it concerns Kubernetes")).await
}

async fn apply(kubernetes: &Kubernetes, objects: Vec<PreparedObject>) -> (Vec<ObservedObject>, Option<ErrorClass>) {
    let effect = Effect::Apply { deployment: DEPLOYMENT, digest: Digest::of(&json!(1)), objects };
    match answer(kubernetes, effect).await {
        Event::Applied { applied, failed, .. } => (applied, failed.map(|(_, error)| error.class)),
        other => panic!("{other:?}"),
    }
}

async fn delete(kubernetes: &Kubernetes, object: &ObservedObject) -> Result<Deletion, ErrorClass> {
    let (uid, resource_version) = (object.uid.clone(), object.resource_version.clone());
    match answer(kubernetes, Effect::Delete { key: object.key.clone(), uid, resource_version }).await {
        Event::Deleted { result, .. } => result.map_err(|error| error.class),
        other => panic!("{other:?}"),
    }
}

/// The next news of a watch of ConfigMaps; others are skipped.
async fn news(inbox: &mut mpsc::Receiver<Event>) -> Observation<ObservedObject> {
    loop {
        match in_time("news of a watch", inbox.recv()).await.expect("the watch runs") {
            Event::Objects(of, observation) if of == kind() => return observation,
            _ => {}
        }
    }
}

#[tokio::test]
async fn an_applied_object_carries_the_marks_and_the_watch_tells_what_becomes_of_it() {
    let cluster = TestCluster::start().await;
    let kubernetes = cluster.kubernetes(&[CONFIG_MAP]);
    let (sender, mut inbox) = mpsc::channel(16);
    let watches = kubernetes.watch(&sender);
    assert_eq!(news(&mut inbox).await, Observation::Listed(vec![]));
    cluster.make("theirs", json!({})).await;

    let (applied, failed) = apply(&kubernetes, vec![prepared(&cluster.namespace, "x", 1, false)]).await;
    assert_eq!((applied.len(), failed), (1, None));
    assert_eq!((applied[0].deployment, applied[0].version, applied[0].deleting), (Some(DEPLOYMENT), Some(1), false));
    assert_eq!(news(&mut inbox).await, Observation::Changed(applied[0].clone()), "theirs is not told");
    let stored = cluster.config_maps().get("x").await.unwrap();
    let managers: Vec<_> =
        stored.metadata.managed_fields.unwrap().into_iter().map(|fields| (fields.manager, fields.operation)).collect();
    assert_eq!(managers, [(Some(MANAGER.to_owned()), Some("Apply".to_owned()))]);
    assert_eq!(stored.metadata.labels.unwrap()[LABEL_UUID], DEPLOYMENT.to_string());

    let (changed, _) = apply(&kubernetes, vec![prepared(&cluster.namespace, "x", 2, true)]).await;
    assert_eq!(changed[0].uid, applied[0].uid);
    assert!(applied[0].is_older_than(&changed[0]));
    assert_eq!(news(&mut inbox).await, Observation::Changed(changed[0].clone()));

    assert_eq!(delete(&kubernetes, &applied[0]).await, Err(ErrorClass::Conflict), "it has changed since");
    assert_eq!(delete(&kubernetes, &changed[0]).await, Ok(Deletion::Gone));
    assert!(matches!(news(&mut inbox).await, Observation::Gone(gone) if gone.key == key("x")));
    assert_eq!(delete(&kubernetes, &changed[0]).await, Ok(Deletion::Gone), "gone already");
    let left: Vec<_> = cluster.config_maps().list(&Default::default()).await.unwrap().items;
    assert!(left.iter().any(|object| object.metadata.name.as_deref() == Some("theirs")));
    drop(watches);
    cluster.stop().await;
}

#[tokio::test]
async fn a_later_object_of_the_same_name_is_not_deleted_for_the_earlier_one() {
    let cluster = TestCluster::start().await;
    let kubernetes = cluster.kubernetes(&[CONFIG_MAP]);
    let (first, _) = apply(&kubernetes, vec![prepared(&cluster.namespace, "x", 1, false)]).await;
    cluster.config_maps().delete("x", &DeleteParams::default()).await.unwrap();
    let (second, _) = apply(&kubernetes, vec![prepared(&cluster.namespace, "x", 1, false)]).await;
    assert_ne!(first[0].uid, second[0].uid);
    assert_eq!(delete(&kubernetes, &first[0]).await, Err(ErrorClass::Conflict));
    assert!(cluster.config_maps().get_opt("x").await.unwrap().is_some());
    cluster.stop().await;
}

#[tokio::test]
async fn objects_of_others_are_not_taken_over_and_what_follows_them_is_not_tried() {
    let cluster = TestCluster::start().await;
    let kubernetes = cluster.kubernetes(&[CONFIG_MAP]);
    cluster.make("theirs", json!({"labels": {LABEL_MANAGED_BY: "Helm"}})).await;
    cluster
        .make("neighbours", json!({"labels": {LABEL_MANAGED_BY: MANAGER, LABEL_UUID: Uuid::from_u128(9).to_string()}}))
        .await;
    for name in ["theirs", "neighbours"] {
        let before = cluster.config_maps().get(name).await.unwrap().metadata.resource_version;
        let objects = ["first", name, "last"].map(|name| prepared(&cluster.namespace, name, 1, false));
        let (applied, failed) = apply(&kubernetes, objects.to_vec()).await;
        assert_eq!((applied.len(), failed), (1, Some(ErrorClass::Refused)), "{name}");
        assert_eq!(cluster.config_maps().get(name).await.unwrap().metadata.resource_version, before);
        assert!(cluster.config_maps().get_opt("last").await.unwrap().is_none());
    }
    cluster.stop().await;
}

#[tokio::test]
async fn an_object_with_a_finalizer_is_waited_for() {
    let cluster = TestCluster::start().await;
    let kubernetes = cluster.kubernetes(&[CONFIG_MAP]);
    apply(&kubernetes, vec![prepared(&cluster.namespace, "x", 1, false)]).await;
    let guarded = cluster.set_finalizers("x", &["sparkfleet.io/test"]).await;
    let object =
        ObservedObject::read(&kind(), &serde_json::from_value(serde_json::to_value(&guarded).unwrap()).unwrap())
            .unwrap();
    assert_eq!(delete(&kubernetes, &object).await, Ok(Deletion::Waiting));

    let (sender, mut inbox) = mpsc::channel(16);
    let _watches = kubernetes.watch(&sender);
    assert!(matches!(news(&mut inbox).await, Observation::Listed(listed) if listed.len() == 1 && listed[0].deleting));
    cluster.set_finalizers("x", &[]).await;
    while !matches!(news(&mut inbox).await, Observation::Gone(_)) {}
    cluster.stop().await;
}

#[tokio::test]
async fn the_record_is_replaced_only_by_who_has_read_it() {
    let cluster = TestCluster::start().await;
    let kubernetes = cluster.kubernetes(&[CONFIG_MAP]);
    assert_eq!(kubernetes.load_index().await, Ok(StoredRecord::default()));
    let record = |version: u64| {
        let entry = DesiredManifests::new(version, "n", vec![]).entry();
        IndexRecord::following(None, DesiredIndex { version, deployments: [(DEPLOYMENT, entry)].into() })
    };
    let save = async |version: u64, replaces: Option<String>| {
        let record = record(version);
        let then = [record.clone()].into_iter().collect();
        match answer(&kubernetes, Effect::SaveIndex { record, replaces, then }).await {
            Event::IndexSaved { resource_version, saved } => {
                assert_eq!(saved.into_iter().map(|record| record.index.version).collect::<Vec<_>>(), [version]);
                Ok(resource_version)
            }
            Event::IndexNotSaved(error) => Err(error.class),
            other => panic!("{other:?}"),
        }
    };
    let first = save(1, None).await.unwrap();
    let second = save(2, Some(first.clone())).await.unwrap();
    assert_eq!(save(3, Some(first)).await, Err(ErrorClass::Conflict));
    assert_eq!(save(3, None).await, Err(ErrorClass::Conflict));
    let stored = kubernetes.load_index().await.unwrap();
    assert_eq!((stored.record, stored.resource_version.as_ref()), (Some(record(2)), Some(&second)));
    cluster.config_maps().delete(RECORD_NAME, &DeleteParams::default()).await.unwrap();
    assert_eq!(save(3, Some(second)).await, Err(ErrorClass::Conflict), "it is gone");

    cluster.make(RECORD_NAME, json!({})).await;
    let stored = kubernetes.load_index().await.unwrap();
    assert_eq!(stored.unreadable.as_deref(), Some("in ConfigMap edge-sync-desired has no index.json"));
    assert!(save(4, stored.resource_version).await.is_ok());
    cluster.stop().await;
}

#[tokio::test]
async fn nodes_are_listed_and_a_kind_that_does_not_exist_is_not_installed() {
    let cluster = TestCluster::start().await;
    let nothing = "sparkfleet.example/v1/Nothing";
    let kubernetes = cluster.kubernetes(&[nothing]);
    let (sender, mut inbox) = mpsc::channel(16);
    let _watches = kubernetes.watch(&sender);
    let (mut nodes, mut is_missing) = (Vec::new(), false);
    while nodes.is_empty() || !is_missing {
        match in_time("lists", inbox.recv()).await.unwrap() {
            Event::Nodes(Observation::Listed(listed)) => nodes = listed,
            Event::Objects(kind, Observation::NotInstalled) => is_missing = kind == nothing.parse().unwrap(),
            Event::FluxChanged => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(
        nodes.iter().all(|node| !node.host.hostname.is_empty() && !node.host.kubernetes_version.is_empty()),
        "{nodes:?}"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn an_api_server_that_is_not_there_is_unreachable_and_one_that_refuses_is_not() {
    let address = support::mosquitto::port::free();
    let client = kubernetes_client::connect(Some(&format!("http://{address}"))).await.unwrap();
    let cluster = TestCluster::start().await;
    let away = TestCluster { simulated: None, client, namespace: "x".to_owned() };
    let error = away.kubernetes(&[]).probe().await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Unreachable, "{error}");
    assert!(error.message.contains("refused"), "the reason is told to its end: {error}");

    assert_eq!(cluster.kubernetes(&[]).probe().await, Ok(()));
    let bad = PreparedObject {
        body: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": 7}),
        ..prepared("x", "x", 1, false)
    };
    assert_eq!(apply(&cluster.kubernetes(&[CONFIG_MAP]), vec![bad]).await, (vec![], Some(ErrorClass::Refused)));
    cluster.stop().await;
}

#[tokio::test]
async fn a_watch_that_missed_changes_lists_again() {
    let cluster = TestCluster::simulated().await;
    let kubernetes = cluster.kubernetes(&[CONFIG_MAP]);
    let (sender, mut inbox) = mpsc::channel(16);
    let _watches = kubernetes.watch(&sender);
    apply(&kubernetes, vec![prepared(&cluster.namespace, "x", 1, false)]).await;
    while !matches!(news(&mut inbox).await, Observation::Changed(_)) {}
    let simulated = cluster.simulated.as_ref().unwrap().kubernetes();
    simulated.set_latency(std::time::Duration::from_millis(100));
    simulated.break_watches(simulator::kubernetes::faults::Break::Cut);
    cluster.config_maps().delete("x", &DeleteParams::default()).await.unwrap();
    simulated.expire_log();
    loop {
        match news(&mut inbox).await {
            Observation::Listed(listed) => break assert_eq!(listed, vec![]),
            Observation::Gone(_) => break,
            Observation::Failed(error) => assert_eq!(error.class, ErrorClass::Unreachable, "{error}"),
            other => panic!("{other:?}"),
        }
    }
    cluster.stop().await;
}

#[tokio::test]
async fn how_far_flux_is_with_the_repository_is_read_whenever_something_of_it_changes() {
    let cluster = TestCluster::simulated().await;
    let kubernetes = cluster.kubernetes(&[]);
    let (sender, mut inbox) = mpsc::channel(16);
    let _watches = kubernetes.watch(&sender);
    let api = cluster.simulated.as_ref().unwrap().kubernetes();
    let seen = async || match answer(&kubernetes, Effect::LookAtFlux).await {
        Event::FluxSeen(seen) => seen.unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(seen().await.message.as_deref(), Some("there is no Kustomization self-link"));
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let source = json!({"kind": "GitRepository", "name": "none"});
    // Suspended, so that the simulated Flux leaves them alone.
    let spec = json!({"suspend": true, "interval": "1m", "prune": false, "sourceRef": source});
    let chart = json!({"suspend": true, "interval": "1m", "chart": {"spec": {"chart": "x", "sourceRef": source}}});
    let put = |api_version: &str, kind: &str, name: &str, status: serde_json::Value| {
        let labels = json!({"kustomize.toolkit.fluxcd.io/name": "self-link"});
        let metadata = json!({"name": name, "namespace": cluster.namespace, "labels": labels});
        let spec = if kind == "HelmRelease" { &chart } else { &spec };
        api.apply("test", json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}))
            .unwrap();
        let place = simulator::kubernetes::Place { api_version, kind, namespace: &cluster.namespace, name };
        api.merge_status("test", &place, status).unwrap();
    };
    let ready = |ready: &str| json!([{"type": "Ready", "status": ready, "message": "as the test says", "observedGeneration": 1}]);
    let applied = json!({"conditions": ready("True"), "lastAppliedRevision": format!("main@sha1:{commit}")});
    put("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "self-link", applied);
    put("helm.toolkit.fluxcd.io/v2", "HelmRelease", "edge", json!({"conditions": ready("False")}));
    let found = seen().await;
    assert_eq!((found.applied, found.ready), (commit.parse().ok(), Some(false)));
    assert_eq!(found.message.as_deref(), Some("HelmRelease edge: as the test says"));
    // Each watch has listed, and tells the next change.
    for _ in 0..2 {
        while !matches!(in_time("a list", inbox.recv()).await, Some(Event::FluxChanged)) {}
    }
    put("helm.toolkit.fluxcd.io/v2", "HelmRelease", "edge", json!({"conditions": ready("True")}));
    while !matches!(in_time("a change", inbox.recv()).await, Some(Event::FluxChanged)) {}
    assert_eq!((seen().await.ready, seen().await.message), (Some(true), None));
    cluster.stop().await;
}

#[tokio::test]
async fn the_sealing_certificate_is_read_through_the_api_server() {
    let cluster = TestCluster::simulated().await;
    let kubernetes = cluster.kubernetes(&[]);
    let text = kubernetes.certificate().await.unwrap();
    assert!(text.contains("-----BEGIN CERTIFICATE-----"), "{text}");
    cluster.simulated.as_ref().unwrap().set_sealed_secrets(false).await.unwrap();
    let error = kubernetes.certificate().await.unwrap_err();
    let reason = "service sealed-secrets in namespace sealed-secrets: ";
    assert!(error.message.starts_with(reason) && error.message.ends_with("(503)"), "{error}");
    cluster.stop().await;
}

#[tokio::test]
async fn flux_is_told_of_every_source_that_follows_a_repository_with_a_new_commit() {
    let cluster = TestCluster::simulated().await;
    let kubernetes = cluster.kubernetes(&[CONFIG_MAP]);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "GitRepository"));
    let sources: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource);
    for (name, url) in
        [("helm-a", "http://git/uuid/1"), ("helm-b", "http://git/uuid/1"), ("other", "http://git/uuid/2")]
    {
        let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": name}, "spec": {"url": url, "interval": "1h"}});
        sources.create(&PostParams::default(), &serde_json::from_value(source).unwrap()).await.unwrap();
    }
    let commit = |digit: &str| digit.repeat(40).parse::<Commit>().unwrap();
    let others = Others([("http://git/uuid/1".to_owned(), commit("b"))].into());
    let told = Sources { repository: commit("a"), charts: None, others };
    let Event::Annotated(result) = answer(&kubernetes, Effect::Annotate(told)).await else { panic!("an answer to it") };
    assert!(result.is_ok(), "{result:?}");
    for (name, expected) in [("helm-a", Some("b")), ("helm-b", Some("b")), ("other", None)] {
        let source = sources.get(name).await.unwrap();
        let asked = source.annotations().get("reconcile.fluxcd.io/requestedAt");
        assert_eq!(asked.cloned(), expected.map(|digit| digit.repeat(40)), "{name}");
    }
    cluster.stop().await;
}
