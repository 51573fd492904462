//! The Kubernetes adapters.

use std::collections::BTreeMap;

use edge_sync::adapters::kubernetes::Kubernetes;
use edge_sync::event::{Deletion, Effect, ErrorClass, Event, Observation, PreparedObject};
use edge_sync::object::{Kind, LABEL_MANAGED_BY, LABEL_UUID, MANAGER, Marks, ObjectKey, ObservedObject};
use edge_sync::record::{IndexRecord, RECORD_NAME, StoredRecord};
use edge_sync_contract::{Commit, DesiredIndex, DesiredManifests, Digest, OtherCommits, Sources};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use simulator::kubernetes::faults::Fault;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::support::cluster::{Cable, TestCluster};
use crate::support::in_time;
use crate::support::mosquitto::port;

const CONFIG_MAP: &str = "v1/ConfigMap";
const RELEASE: &str = "helm.toolkit.fluxcd.io/v2/HelmRelease";
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
        entries: None,
    };
    PreparedObject { key: key(name), is_ours, body: marks.put_on(&manifest) }
}

/// A release with values, suspended so that a Flux that runs there leaves it alone.
fn prepared_release(namespace: &str, name: &str, generation: i64) -> PreparedObject {
    let chart = json!({"spec": {"chart": "x", "sourceRef": {"kind": "GitRepository", "name": "none"}}});
    let manifest = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": name},
        "spec": {"interval": "1m", "chart": chart, "values": {"version": "1"}}});
    let digest = Digest::of(&manifest);
    let generation = Some(generation);
    let marks = Marks {
        namespace,
        deployment: DEPLOYMENT,
        name: "Cell 1",
        version: 1,
        digest,
        objects: 1,
        applied_at: 9,
        generation,
        entries: None,
    };
    let key = ObjectKey { kind: RELEASE.parse().unwrap(), name: name.to_owned() };
    PreparedObject { key, is_ours: false, body: marks.put_on(&manifest) }
}

fn with(object: &Value, field: &str, value: Value) -> Value {
    let mut object = object.clone();
    object[field] = value;
    object
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

/// The next event of a watch of ConfigMaps; others are skipped.
async fn next_observation(inbox: &mut mpsc::Receiver<Event>) -> Observation<ObservedObject> {
    loop {
        match in_time("an event of a watch", inbox.recv()).await.expect("the watch runs") {
            Event::Objects(of, observation) if of == kind() => return observation,
            _ => {}
        }
    }
}

#[tokio::test]
async fn an_applied_object_carries_the_marks_and_the_watch_reports_what_becomes_of_it() {
    let cluster = TestCluster::start().await;
    let kubernetes = cluster.kubernetes(&[CONFIG_MAP]);
    let (sender, mut inbox) = mpsc::channel(16);
    let watches = kubernetes.watch(&sender);
    assert_eq!(next_observation(&mut inbox).await, Observation::Listed(vec![]));
    cluster.make("theirs", json!({})).await;

    let (applied, failed) = apply(&kubernetes, vec![prepared(&cluster.namespace, "x", 1, false)]).await;
    assert_eq!((applied.len(), failed), (1, None));
    assert_eq!((applied[0].deployment, applied[0].version, applied[0].deleting), (Some(DEPLOYMENT), Some(1), false));
    assert_eq!(next_observation(&mut inbox).await, Observation::Changed(applied[0].clone()), "theirs is not reported");
    let stored = cluster.config_maps().get("x").await.unwrap();
    let managers: Vec<_> =
        stored.metadata.managed_fields.unwrap().into_iter().map(|fields| (fields.manager, fields.operation)).collect();
    assert_eq!(managers, [(Some(MANAGER.to_owned()), Some("Apply".to_owned()))]);
    assert_eq!(stored.metadata.labels.unwrap()[LABEL_UUID], DEPLOYMENT.to_string());

    let (changed, _) = apply(&kubernetes, vec![prepared(&cluster.namespace, "x", 2, true)]).await;
    assert_eq!(changed[0].uid, applied[0].uid);
    assert!(applied[0].is_older_than(&changed[0]));
    assert_eq!(next_observation(&mut inbox).await, Observation::Changed(changed[0].clone()));

    assert_eq!(delete(&kubernetes, &applied[0]).await, Err(ErrorClass::Conflict), "it has changed since");
    assert_eq!(delete(&kubernetes, &changed[0]).await, Ok(Deletion::Gone));
    assert!(matches!(next_observation(&mut inbox).await, Observation::Gone(gone) if gone.key == key("x")));
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
    assert!(
        matches!(next_observation(&mut inbox).await, Observation::Listed(listed) if listed.len() == 1 && listed[0].deleting)
    );
    cluster.set_finalizers("x", &[]).await;
    while !matches!(next_observation(&mut inbox).await, Observation::Gone(_)) {}
    cluster.stop().await;
}

#[tokio::test]
async fn the_record_is_replaced_only_by_who_has_read_it() {
    let cluster = TestCluster::start().await;
    let kubernetes = cluster.kubernetes(&[CONFIG_MAP]);
    assert_eq!(kubernetes.load_index().await, Ok(StoredRecord::default()));
    let record = |version: u64| {
        let entry = DesiredManifests::new(version, "n", vec![]).entry();
        IndexRecord::following(
            None,
            DesiredIndex {
                version,
                deployments: [(DEPLOYMENT, entry)].into(),
                origin: None,
                follows: None,
                decided_for: None,
                entries: None,
                names: BTreeMap::new(),
            },
        )
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
    let name = cluster.make_node().await;
    let nothing = "sparkfleet.example/v1/Nothing";
    let kubernetes = cluster.kubernetes(&[nothing]);
    let (sender, mut inbox) = mpsc::channel(16);
    let _watches = kubernetes.watch(&sender);
    let (mut nodes, mut is_missing) = (Vec::new(), false);
    while nodes.is_empty() || !is_missing {
        match in_time("lists", inbox.recv()).await.unwrap() {
            Event::Nodes(Observation::Listed(listed)) => nodes = listed,
            Event::Objects(kind, Observation::NotInstalled) => is_missing = kind == nothing.parse().unwrap(),
            // Controllers of the cluster change nodes, too.
            Event::Nodes(Observation::Changed(_)) | Event::FluxChanged | Event::WorkloadsChanged(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let node = nodes.iter().find(|node| node.node == name).unwrap();
    assert_eq!((&*node.host.hostname, &*node.host.kubernetes_version), (&*name, "v1.34.0"));
    cluster.remove_node(&name).await;
    cluster.stop().await;
}

#[tokio::test]
async fn an_api_server_that_is_not_there_is_unreachable_and_one_that_refuses_is_not() {
    let address = port::free();
    let client = kubernetes_client::connect(Some(&format!("http://{address}"))).await.unwrap();
    let cluster = TestCluster::start().await;
    let error = cluster.kubernetes_by(client, &[]).probe().await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Unreachable, "{error}");
    assert!(error.message.contains("refused"), "the reason is complete: {error}");

    assert_eq!(cluster.kubernetes(&[]).probe().await, Ok(()));
    cluster.stop().await;
}

#[tokio::test]
async fn a_value_of_a_wrong_type_is_a_failure_of_that_object_and_no_outage() {
    let cluster = TestCluster::start().await;
    let kubernetes = cluster.kubernetes(&[CONFIG_MAP, RELEASE]);
    let config_map = prepared(&cluster.namespace, "x", 1, false);
    let mut release = prepared_release(&cluster.namespace, "x", 1);
    release.body["spec"]["interval"] = json!(7);
    for (object, field) in [
        (
            PreparedObject { body: with(&config_map.body, "data", json!(7)), ..config_map.clone() },
            ".data: expected map",
        ),
        (
            PreparedObject { body: with(&config_map.body, "data", json!({"a": 7})), ..config_map },
            ".data.a: expected string",
        ),
        (release, ".spec.interval: expected string"),
    ] {
        let effect = Effect::Apply { deployment: DEPLOYMENT, digest: Digest::of(&json!(1)), objects: vec![object] };
        let Event::Applied { failed: Some((_, error)), .. } = answer(&kubernetes, effect).await else {
            panic!("a failure")
        };
        assert_eq!(error.class, ErrorClass::Refused, "{error}");
        assert!(error.message.contains(field) && error.message.ends_with("(500)"), "{error}");
    }
    let elsewhere = prepared("no-such-namespace", "x", 1, true);
    let effect = Effect::Apply { deployment: DEPLOYMENT, digest: Digest::of(&json!(1)), objects: vec![elsewhere] };
    let Event::Applied { failed: Some((_, error)), .. } = answer(&kubernetes, effect).await else {
        panic!("a failure")
    };
    assert_eq!(error.class, ErrorClass::Refused, "{error}");
    cluster.stop().await;
}

#[tokio::test]
async fn what_another_writer_changes_in_a_release_is_seen_and_what_controllers_write_is_not() {
    let cluster = TestCluster::start().await;
    let kubernetes = cluster.kubernetes(&[RELEASE]);
    let (applied, failed) = apply(&kubernetes, vec![prepared_release(&cluster.namespace, "x", 1)]).await;
    assert_eq!((failed, applied[0].generation, applied[0].is_changed), (None, Some(1), false));
    let releases = cluster.api("helm.toolkit.fluxcd.io/v2", "HelmRelease");
    let (sender, mut inbox) = mpsc::channel(16);
    let _watches = kubernetes.watch(&sender);
    let mut seen = async || loop {
        match in_time("an event of a watch", inbox.recv()).await.unwrap() {
            Event::Objects(_, Observation::Listed(listed)) => break listed[0].clone(),
            Event::Objects(_, Observation::Changed(object)) => break object,
            _ => {}
        }
    };
    assert!(!seen().await.is_changed);
    let conditions = json!([{"type": "Ready", "status": "True", "reason": "x", "message": "m", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let status = Patch::Merge(json!({"status": {"conditions": conditions}}));
    releases.patch_status("x", &PatchParams::default(), &status).await.unwrap();
    assert!(!seen().await.is_changed, "a status is not a change");
    let finalizers = Patch::Merge(json!({"metadata": {"finalizers": ["finalizers.fluxcd.io/x"]}}));
    releases.patch("x", &PatchParams::default(), &finalizers).await.unwrap();
    assert!(!seen().await.is_changed, "nor are metadata");

    let edit = Patch::Merge(json!({"spec": {"values": {"version": "by hand"}, "suspend": true}}));
    releases.patch("x", &PatchParams::default(), &edit).await.unwrap();
    let changed = seen().await;
    assert!(changed.is_changed);
    let again =
        PreparedObject { is_ours: true, ..prepared_release(&cluster.namespace, "x", changed.generation.unwrap() + 1) };
    let (repaired, _) = apply(&kubernetes, vec![again]).await;
    assert!(!repaired[0].is_changed && repaired[0].generation > changed.generation);
    let object = releases.get("x").await.unwrap();
    assert_eq!(object.data["spec"]["values"]["version"], "1");
    assert_eq!(object.data["spec"]["suspend"], true, "what is not in the manifest stays");
    // A guess that is wrong is put right.
    let guessed = PreparedObject { is_ours: true, ..prepared_release(&cluster.namespace, "x", 99) };
    let (right, _) = apply(&kubernetes, vec![guessed]).await;
    assert!(!right[0].is_changed && right[0].generation == repaired[0].generation);
    releases
        .patch("x", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}})))
        .await
        .unwrap();
    cluster.stop().await;
}

#[tokio::test]
async fn a_watch_that_missed_changes_lists_again_soon_after_the_server_is_back() {
    let cluster = TestCluster::start().await;
    let cable = Cable::to(&cluster).await;
    let kubernetes = cluster.kubernetes_by(cable.client(&cluster), &[CONFIG_MAP]);
    let (sender, mut inbox) = mpsc::channel(16);
    let _watches = kubernetes.watch(&sender);
    apply(&cluster.kubernetes(&[CONFIG_MAP]), vec![prepared(&cluster.namespace, "x", 1, false)]).await;
    while !matches!(next_observation(&mut inbox).await, Observation::Listed(listed) if listed.len() == 1) {
        // The list may be older than the object; then the object comes as a change.
        if matches!(next_observation(&mut inbox).await, Observation::Changed(_)) {
            break;
        }
    }
    cable.cut();
    // Long enough for pauses to grow.
    for _ in 0..4 {
        match next_observation(&mut inbox).await {
            Observation::Failed(error) => assert_eq!(error.class, ErrorClass::Unreachable, "{error}"),
            other => panic!("{other:?}"),
        }
    }
    cluster.config_maps().delete("x", &DeleteParams::default()).await.unwrap();
    if let Some(simulated) = cluster.simulated() {
        simulated.kubernetes().restart();
    }
    cable.mend();
    let back = async {
        loop {
            match next_observation(&mut inbox).await {
                Observation::Listed(listed) => break assert_eq!(listed, vec![]),
                Observation::Failed(error) => assert_eq!(error.class, ErrorClass::Unreachable, "{error}"),
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(kubernetes_client::watch::PAUSE_MAX, back).await.expect("a list within the longest pause");
    cluster.stop().await;
}

#[tokio::test]
async fn a_token_that_is_refused_is_read_again_from_its_file() {
    let cluster = TestCluster::start().await;
    let refuse = || {
        // A simulated API server knows no tokens.
        if let Some(simulated) = cluster.simulated() {
            simulated.kubernetes().inject(Fault::next(1, 401));
        }
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "expired").unwrap();
    let mut config = cluster.config.clone();
    config.auth_info = Default::default();
    config.auth_info.token_file = Some(file.path().display().to_string());
    let kubernetes = cluster.kubernetes_by(kubernetes_client::client(config).unwrap(), &[CONFIG_MAP]);
    refuse();
    let error = kubernetes.load_index().await.unwrap_err();
    assert!(error.class == ErrorClass::Unreachable && error.message.ends_with("(401)"), "{error}");
    refuse();
    assert_eq!(kubernetes.probe().await.unwrap_err().class, ErrorClass::Unreachable, "nothing else is answered either");

    std::fs::write(file.path(), cluster.token().await).unwrap();
    refuse();
    // Refused for what it may do is not refused for who it is.
    let answer = kubernetes.load_index().await;
    assert!(answer.as_ref().map_or_else(|error| error.message.ends_with("(403)"), |_| true), "{answer:?}");
    cluster.stop().await;
}

#[tokio::test]
async fn how_far_flux_is_with_the_repository_is_read_whenever_something_of_it_changes() {
    let cluster = TestCluster::start().await;
    let kubernetes = cluster.kubernetes(&[]);
    let (sender, mut inbox) = mpsc::channel(16);
    let _watches = kubernetes.watch(&sender);
    let seen = async || match answer(&kubernetes, Effect::LookAtFlux).await {
        Event::FluxSeen(seen) => seen.unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(seen().await.message.as_deref(), Some("there is no Kustomization self-link"));
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let source = json!({"kind": "GitRepository", "name": "none"});
    // Suspended, so that a Flux that runs there leaves them alone.
    let spec = json!({"suspend": true, "interval": "1m", "prune": false, "sourceRef": source});
    let chart = json!({"suspend": true, "interval": "1m", "chart": {"spec": {"chart": "x", "sourceRef": source}}});
    let put = async |api_version: &str, kind: &str, name: &str, status: Value| {
        let labels = json!({"kustomize.toolkit.fluxcd.io/name": "self-link"});
        let metadata = json!({"name": name, "namespace": cluster.namespace, "labels": labels});
        let spec = if kind == "HelmRelease" { &chart } else { &spec };
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
        cluster.put(object, status).await;
    };
    let ready = |ready: &str| {
        json!([{"type": "Ready", "status": ready, "reason": "Test", "message": "as the test says",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}])
    };
    let applied = json!({"conditions": ready("True"), "lastAppliedRevision": format!("main@sha1:{commit}")});
    put("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "self-link", applied).await;
    put("helm.toolkit.fluxcd.io/v2", "HelmRelease", "edge", json!({"conditions": ready("False")})).await;
    let found = seen().await;
    assert_eq!((found.applied, found.ready), (commit.parse().ok(), Some(false)));
    assert_eq!(found.message.as_deref(), Some("HelmRelease edge: as the test says"));
    put("helm.toolkit.fluxcd.io/v2", "HelmRelease", "edge", json!({"conditions": ready("True")})).await;
    // However many changes came before: the last one is reported, and then it is seen.
    while seen().await.ready != Some(true) {
        in_time("a change", inbox.recv()).await.unwrap();
    }
    assert_eq!(seen().await.message, None);
    while !matches!(in_time("a change", inbox.recv()).await, Some(Event::FluxChanged)) {}
    cluster.stop().await;
}

#[tokio::test]
async fn what_waits_for_a_host_that_there_is_not_has_failed_and_says_so() {
    let cluster = TestCluster::start().await;
    let kubernetes = cluster.kubernetes(&[]);
    let labels = json!({"app": "oven"});
    let pod = json!({"nodeSelector": {"kubernetes.io/hostname": cluster.node()}, "containers": [{"name": "oven", "image": "oven"}]});
    let spec = json!({"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}});
    let metadata = json!({"name": "oven", "labels": {"helm.toolkit.fluxcd.io/name": "oven"}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec});
    let deployments = cluster.api("apps/v1", "Deployment");
    deployments.patch("oven", &PatchParams::apply("helm"), &Patch::Apply(&deployment)).await.unwrap();
    let seen = async || match answer(&kubernetes, Effect::LookAtWorkloads { release: "oven".to_owned() }).await {
        Event::WorkloadsSeen { seen, .. } => seen.map(|seen| (seen.ready, seen.message)),
        other => panic!("{other:?}"),
    };
    let runs_not = "Deployment oven: 0 of 1 pods run";
    let reason = format!("{runs_not}: no Node matches host {}", cluster.node());
    assert_eq!(seen().await, Ok((Some(false), Some(reason))));
    let node = cluster.make_node().await;
    assert_eq!(seen().await, Ok((None, Some(runs_not.to_owned()))), "the host is there, its pod is not");
    cluster.remove_node(&node).await;
    cluster.stop().await;
}

#[tokio::test]
async fn the_sealing_certificate_is_read_through_the_api_server() {
    let mut cluster = TestCluster::start().await;
    let kubernetes = cluster.kubernetes(&[]);
    let absent = kubernetes.certificate().await.unwrap_err();
    assert!(absent.message.ends_with("(404)"), "{absent}");
    cluster.start_sealing().await;
    let text = kubernetes.certificate().await.unwrap();
    assert!(text.contains("-----BEGIN CERTIFICATE-----"), "{text}");
    cluster.stop_sealing().await;
    let error = kubernetes.certificate().await.unwrap_err();
    let reason = format!("service sealed-secrets in namespace {}: ", cluster.namespace);
    assert!(error.message.starts_with(&reason) && error.message.ends_with("(503)"), "{error}");
    cluster.stop().await;
}

#[tokio::test]
async fn flux_is_asked_to_fetch_every_source_that_follows_a_repository_with_a_new_commit() {
    let cluster = TestCluster::start().await;
    let kubernetes = cluster.kubernetes(&[CONFIG_MAP]);
    let sources = cluster.api("source.toolkit.fluxcd.io/v1", "GitRepository");
    for (name, url) in
        [("helm-a", "http://git/uuid/1"), ("helm-b", "http://git/uuid/1"), ("other", "http://git/uuid/2")]
    {
        let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": name}, "spec": {"url": url, "interval": "1h"}});
        sources.create(&PostParams::default(), &serde_json::from_value(source).unwrap()).await.unwrap();
    }
    let commit = |digit: &str| digit.repeat(40).parse::<Commit>().unwrap();
    let others = OtherCommits([("http://git/uuid/1".to_owned(), commit("b"))].into());
    let wanted = Sources { repository: commit("a"), charts: None, others };
    let Event::Annotated(result) = answer(&kubernetes, Effect::Annotate(wanted)).await else {
        panic!("an answer to it")
    };
    assert!(result.is_ok(), "{result:?}");
    for (name, expected) in [("helm-a", Some("b")), ("helm-b", Some("b")), ("other", None)] {
        let source = sources.get(name).await.unwrap();
        let asked = source.annotations().get("reconcile.fluxcd.io/requestedAt");
        assert_eq!(asked.cloned(), expected.map(|digit| digit.repeat(40)), "{name}");
    }
    cluster.stop().await;
}
