//! The simulated API as kube-rs sees it over a socket.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
    WatchEvent, WatchParams,
};
use kube::core::{GroupVersionKind, ObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::{Client, Config};
use serde_json::{Value, json};
use simulator::kubernetes::faults::{Break, Fault};
use simulator::kubernetes::{Kubernetes, KubernetesOptions};

async fn cluster_with(options: KubernetesOptions) -> (Kubernetes, Client) {
    let kubernetes = Kubernetes::new(options);
    let address = kubernetes.serve(0).await.unwrap();
    let config = Config::new(format!("http://{address}").parse().unwrap());
    (kubernetes, Client::try_from(config).unwrap())
}

async fn cluster() -> (Kubernetes, Client) {
    cluster_with(KubernetesOptions::default()).await
}

fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": value}})).unwrap()
}

fn dynamic(client: &Client, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    Api::namespaced_with(client.clone(), "default", &resource)
}

fn code(error: kube::Error) -> (u16, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.reason),
        other => panic!("no API error: {other}"),
    }
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), what).await.expect("in time")
}

#[tokio::test]
async fn the_version_says_that_it_is_simulated() {
    let (_kubernetes, client) = cluster().await;
    let version = client.apiserver_version().await.unwrap();
    assert!(version.git_version.ends_with("+sparkfleet-simulated"), "{}", version.git_version);
    let groups = client.list_api_groups().await.unwrap();
    assert!(groups.groups.iter().any(|g| g.name == "helm.toolkit.fluxcd.io"));
}

#[tokio::test]
async fn objects_are_created_read_replaced_and_deleted() {
    let (_kubernetes, client) = cluster().await;
    let api = config_maps(&client);
    let post = PostParams::default();
    let made = api.create(&post, &config_map("a", "1")).await.unwrap();
    assert!(made.metadata.uid.is_some() && made.metadata.creation_timestamp.is_some());
    assert_eq!(code(api.create(&post, &config_map("a", "1")).await.unwrap_err()), (409, "AlreadyExists".into()));

    let mut changed = made.clone();
    changed.data = Some([("k".to_string(), "2".to_string())].into());
    let replaced = api.replace("a", &post, &changed).await.unwrap();
    assert_ne!(replaced.metadata.resource_version, made.metadata.resource_version);
    assert_eq!(code(api.replace("a", &post, &changed).await.unwrap_err()), (409, "Conflict".into()));

    assert!(api.delete("a", &DeleteParams::default()).await.unwrap().is_right());
    assert!(api.get_opt("a").await.unwrap().is_none());
    assert_eq!(code(api.delete("a", &DeleteParams::default()).await.unwrap_err()), (404, "NotFound".into()));
}

#[tokio::test]
async fn metadata_can_be_read_alone() {
    let (_kubernetes, client) = cluster().await;
    let api = config_maps(&client);
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert_eq!(api.get_metadata("a").await.unwrap().metadata.name.as_deref(), Some("a"));
    assert_eq!(api.list_metadata(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn selectors_restrict_lists_and_watches() {
    let (_kubernetes, client) = cluster().await;
    let api = config_maps(&client);
    for (name, app) in [("a", "sync"), ("b", "monitor"), ("c", "sync")] {
        let mut object = config_map(name, "1");
        object.metadata.labels = Some([("app".to_string(), app.to_string())].into());
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let names = |params: ListParams| {
        let api = api.clone();
        async move { api.list(&params).await.unwrap().into_iter().filter_map(|o| o.metadata.name).collect::<Vec<_>>() }
    };
    assert_eq!(names(ListParams::default().labels("app=sync")).await, ["a", "c"]);
    assert_eq!(names(ListParams::default().labels("app in (monitor, other)")).await, ["b"]);
    assert_eq!(names(ListParams::default().fields("metadata.name=b")).await, ["b"]);

    let version = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events = api.watch(&WatchParams::default().labels("app=monitor"), &version).await.unwrap().boxed();
    let relabel = |app: &str| Patch::Merge(json!({"metadata": {"labels": {"app": app}}}));
    api.patch("a", &PatchParams::default(), &relabel("monitor")).await.unwrap();
    api.patch("b", &PatchParams::default(), &relabel("sync")).await.unwrap();
    let entered = soon(events.try_next()).await.unwrap().unwrap();
    assert!(matches!(entered, WatchEvent::Added(o) if o.metadata.name.as_deref() == Some("a")));
    let left = soon(events.try_next()).await.unwrap().unwrap();
    assert!(matches!(left, WatchEvent::Deleted(o) if o.metadata.name.as_deref() == Some("b")));
}

#[tokio::test]
async fn lists_come_in_pages() {
    let (_kubernetes, client) = cluster().await;
    let api = config_maps(&client);
    for number in 0..7 {
        api.create(&PostParams::default(), &config_map(&format!("m{number}"), "1")).await.unwrap();
    }
    let first = api.list(&ListParams::default().limit(5)).await.unwrap();
    assert_eq!((first.items.len(), first.metadata.remaining_item_count), (5, Some(2)));
    let token = first.metadata.continue_.unwrap();
    let second = api.list(&ListParams::default().limit(5).continue_token(&token)).await.unwrap();
    assert_eq!((second.items.len(), second.metadata.continue_), (2, None));
    assert_eq!(code(api.list(&ListParams::default().continue_token("garbage")).await.unwrap_err()).0, 400);
}

#[tokio::test]
async fn applies_respect_other_managers_unless_forced() {
    let (_kubernetes, client) = cluster().await;
    let api = config_maps(&client);
    let object =
        |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}});
    api.patch("a", &PatchParams::apply("one"), &Patch::Apply(object("1"))).await.unwrap();
    let refused = api.patch("a", &PatchParams::apply("two"), &Patch::Apply(object("2"))).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("no API error: {refused}") };
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert_eq!(status.details.unwrap().causes[0].field, ".data.k");

    let forced = api.patch("a", &PatchParams::apply("two").force(), &Patch::Apply(object("2"))).await.unwrap();
    assert_eq!(forced.data.unwrap()["k"], "2");
    // Manager one gives its field up; it is two's, so it stays.
    let empty = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"l": "1"}}});
    let after = api.patch("a", &PatchParams::apply("one"), &Patch::Apply(&empty)).await.unwrap();
    assert_eq!(after.data.unwrap()["k"], "2");
    // Manager two gives it up: it goes.
    let after = api.patch("a", &PatchParams::apply("two").force(), &Patch::Apply(&empty)).await.unwrap();
    assert_eq!(after.data, None);
}

#[tokio::test]
async fn status_is_a_subresource_of_its_own() {
    let (_kubernetes, client) = cluster().await;
    let api: Api<Deployment> = Api::namespaced(client, "default");
    let object = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let made = api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    assert_eq!(made.metadata.generation, Some(1));
    let patch = Patch::Merge(json!({"spec": {"replicas": 5}, "status": {"readyReplicas": 1}}));
    let status = api.patch_status("d", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(
        (status.spec.as_ref().unwrap().replicas, status.status.unwrap().ready_replicas, status.metadata.generation),
        (Some(1), Some(1), Some(1))
    );
    let main = api.patch("d", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((main.spec.unwrap().replicas, main.metadata.generation), (Some(5), Some(2)));

    let apply = Patch::Apply(
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "status": {"availableReplicas": 1}}),
    );
    let applied = api.patch_status("d", &PatchParams::apply("controller"), &apply).await.unwrap();
    let status = applied.status.unwrap();
    assert_eq!((status.ready_replicas, status.available_replicas), (Some(1), Some(1)));
}

#[tokio::test]
async fn finalizers_hold_an_object() {
    let (_kubernetes, client) = cluster().await;
    let api = config_maps(&client);
    let mut object = config_map("a", "1");
    object.metadata.finalizers = Some(vec!["finalizers.fluxcd.io".into()]);
    let made = api.create(&PostParams::default(), &object).await.unwrap();
    let other = DeleteParams {
        preconditions: Some(Preconditions { uid: Some("no".into()), resource_version: None }),
        ..DeleteParams::background()
    };
    assert_eq!(code(api.delete("a", &other).await.unwrap_err()), (409, "Conflict".into()));
    let marked = api.delete("a", &DeleteParams::background()).await.unwrap().left().expect("is held");
    assert!(marked.metadata.deletion_timestamp.is_some());
    assert_eq!(marked.metadata.uid, made.metadata.uid);
    api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn custom_resources_appear_with_their_definition_and_are_validated() {
    let (kubernetes, client) =
        cluster_with(KubernetesOptions { with_definitions: false, ..KubernetesOptions::default() }).await;
    let nodes = dynamic(&client, "factoryplus.app.amrc.co.uk", "v1", "SparkplugNode", "sparkplugnodes");
    assert_eq!(code(nodes.list(&ListParams::default()).await.unwrap_err()).0, 404);

    let (with, _) = cluster().await;
    let definition = with
        .get("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "sparkplugnodes.factoryplus.app.amrc.co.uk")
        .unwrap();
    let spec = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": definition["metadata"]["name"]}, "spec": definition["spec"]});
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .patch("sparkplugnodes.factoryplus.app.amrc.co.uk", &PatchParams::apply("test"), &Patch::Apply(spec))
        .await
        .unwrap();

    assert!(nodes.list(&ListParams::default()).await.unwrap().items.is_empty());
    let object = |spec: Value| -> DynamicObject {
        serde_json::from_value(json!({"apiVersion": "factoryplus.app.amrc.co.uk/v1", "kind": "SparkplugNode", "metadata": {"name": "n"}, "spec": spec})).unwrap()
    };
    let uuid = "5b2e0b4e-0000-4000-8000-000000000000";
    for wrong in [
        json!({}),
        json!({"uuid": uuid, "address": "G/N"}),
        json!({"uuid": "short"}),
        json!({"uuid": uuid, "secrets": "x"}),
    ] {
        let refused = nodes.create(&PostParams::default(), &object(wrong.clone())).await.unwrap_err();
        assert_eq!(code(refused), (422, "Invalid".into()), "{wrong}");
    }
    let made = nodes.create(&PostParams::default(), &object(json!({"uuid": uuid, "unknown": 1}))).await.unwrap();
    assert_eq!(made.data["spec"], json!({"uuid": uuid, "edgeAgent": false}));
    kubernetes.stop();
}

/// Reads events until every object has been seen once more from the start.
async fn relisted<S>(events: &mut S) -> Vec<String>
where
    S: futures::Stream<Item = Result<Event<ConfigMap>, watcher::Error>> + Unpin,
{
    let mut names = Vec::new();
    let mut initial = false;
    loop {
        match soon(events.next()).await.unwrap() {
            Ok(Event::Init) => {
                initial = true;
                names.clear();
            }
            Ok(Event::InitApply(object)) => names.push(object.metadata.name.unwrap()),
            Ok(Event::InitDone) if initial => return names,
            _ => {}
        }
    }
}

async fn a_watcher_lists_again_after_410(config: watcher::Config) {
    let (kubernetes, client) = cluster_with(KubernetesOptions {
        bookmark_interval: Duration::from_millis(20),
        ..KubernetesOptions::default()
    })
    .await;
    let api = config_maps(&client);
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let mut events = watcher::watcher(api.clone(), config).boxed();
    assert_eq!(relisted(&mut events).await, ["a"]);
    api.create(&PostParams::default(), &config_map("b", "1")).await.unwrap();
    let added = soon(events.next()).await.unwrap().unwrap();
    assert!(matches!(added, Event::Apply(o) if o.metadata.name.as_deref() == Some("b")));
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(
        matches!(soon(events.next()).await.unwrap().unwrap(), Event::Delete(o) if o.metadata.name.as_deref() == Some("a"))
    );

    kubernetes.expire_log();
    api.create(&PostParams::default(), &config_map("c", "1")).await.unwrap();
    assert_eq!(relisted(&mut events).await, ["b", "c"]);
}

#[tokio::test]
async fn a_list_watcher_lists_again_after_410() {
    a_watcher_lists_again_after_410(watcher::Config::default()).await;
}

#[tokio::test]
async fn a_streaming_list_watcher_lists_again_after_410() {
    a_watcher_lists_again_after_410(watcher::Config::default().streaming_lists()).await;
}

#[tokio::test]
async fn a_broken_watch_is_taken_up_where_it_broke() {
    let (kubernetes, client) = cluster().await;
    let api = config_maps(&client);
    let mut events = watcher::watcher(api.clone(), watcher::Config::default()).boxed();
    assert!(relisted(&mut events).await.is_empty());
    for (round, how) in [Break::End, Break::Cut].into_iter().enumerate() {
        kubernetes.break_watches(how);
        let name = format!("m{round}");
        api.create(&PostParams::default(), &config_map(&name, "1")).await.unwrap();
        loop {
            match soon(events.next()).await.unwrap() {
                Ok(Event::Apply(object)) => {
                    assert_eq!(object.metadata.name.as_deref(), Some(name.as_str()));
                    break;
                }
                Ok(other) => panic!("listed again: {other:?}"),
                Err(_) => {}
            }
        }
    }
}

#[tokio::test]
async fn bookmarks_carry_the_version_of_other_objects_writes() {
    let (_kubernetes, client) = cluster_with(KubernetesOptions {
        bookmark_interval: Duration::from_millis(10),
        ..KubernetesOptions::default()
    })
    .await;
    let api = config_maps(&client);
    let mut events = api.watch(&WatchParams::default().timeout(1), "0").await.unwrap().boxed();
    let secrets: Api<Secret> = Api::namespaced(client, "default");
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})).unwrap();
    let made = secrets.create(&PostParams::default(), &secret).await.unwrap();
    let wanted = made.metadata.resource_version.unwrap();
    let mut bookmarks = Vec::new();
    while let Some(event) = soon(events.try_next()).await.unwrap() {
        let WatchEvent::Bookmark(bookmark) = event else { panic!("no config map was written: {event:?}") };
        bookmarks.push(bookmark.metadata.resource_version);
    }
    assert!(bookmarks.contains(&wanted), "{wanted} in {bookmarks:?}");
}

#[tokio::test]
async fn injected_faults_reach_the_client() {
    let (kubernetes, client) = cluster().await;
    let api = config_maps(&client);
    kubernetes.inject(Fault::next(1, 403).method("GET").path("/configmaps"));
    assert_eq!(code(api.list(&ListParams::default()).await.unwrap_err()).0, 403);
    assert!(api.list(&ListParams::default()).await.is_ok());
    kubernetes.set_latency(Duration::from_millis(50));
    let started = std::time::Instant::now();
    api.list(&ListParams::default()).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(50));
}

#[tokio::test]
async fn a_stopped_cluster_ends_its_watches() {
    let (kubernetes, client) = cluster().await;
    let api: Api<Namespace> = Api::all(client);
    let version = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    kubernetes.stop();
    assert!(soon(events.next()).await.is_none());
}

#[tokio::test]
async fn cluster_scoped_objects_have_no_namespace() {
    let (_kubernetes, client) = cluster().await;
    let api: Api<Node> = Api::all(client);
    let node = Node { metadata: ObjectMeta { name: Some("h".into()), ..ObjectMeta::default() }, ..Node::default() };
    let made = api.create(&PostParams::default(), &node).await.unwrap();
    assert_eq!(made.metadata.namespace, None);
}
