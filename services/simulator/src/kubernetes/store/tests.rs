//! The store's verbs as short stories on a fresh store; no HTTP and no task.

use super::super::selector::Selector;
use super::*;

const WALL: u64 = 1_900_000_000_000;

fn store() -> Store {
    let mut store = Store::new(Uuid::nil(), 100, 0);
    for namespace in ["n", "m"] {
        create(&mut store, "", "namespaces", "", json!({"metadata": {"name": namespace}})).unwrap();
    }
    store
}

fn kind(store: &Store, group: &str, plural: &str) -> Arc<Kind> {
    let found = store.kinds().iter().find(|k| k.group == group && k.plural == plural);
    found.expect("kind is served").clone()
}

fn create(
    store: &mut Store,
    group: &str,
    plural: &str,
    namespace: &str,
    object: Value,
) -> Result<Arc<Value>, ApiError> {
    let kind = kind(store, group, plural);
    store.create(&kind, namespace, object, &WriteOptions::by("test", WALL))
}

fn config_map(store: &mut Store, name: &str) -> Arc<Value> {
    create(store, "", "configmaps", "n", json!({"metadata": {"name": name}, "data": {"k": "v"}})).unwrap()
}

fn merge(store: &mut Store, plural: &str, name: &str, patch: Value) -> Result<Arc<Value>, ApiError> {
    let kind = kind(store, "", plural);
    let namespace = if kind.namespaced { "n" } else { "" };
    store.patch(&kind, namespace, name, &Patch::Merge(patch), &WriteOptions::by("test", WALL)).map(|(object, _)| object)
}

fn delete(store: &mut Store, group: &str, plural: &str, name: &str) -> Result<Deleted, ApiError> {
    let kind = kind(store, group, plural);
    let namespace = if kind.namespaced { "n" } else { "" };
    store.delete(&kind, namespace, name, &DeleteOptions::default(), WALL)
}

fn exists(store: &Store, group: &str, plural: &str, name: &str) -> bool {
    let kind = kind(store, group, plural);
    store.get(&kind, if kind.namespaced { "n" } else { "" }, name).is_ok()
}

fn widgets(store: &mut Store) {
    let definition = json!({"metadata": {"name": "widgets.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {
                "spec": {"type": "object", "required": ["size"], "properties": {"size": {"type": "integer"}, "colour": {"type": "string", "default": "red"}}},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}});
    create(store, "apiextensions.k8s.io", "customresourcedefinitions", "", definition).unwrap();
}

#[test]
fn creation_stamps_the_object_once() {
    let mut store = store();
    let before = store.version();
    let made = config_map(&mut store, "a");
    assert_eq!(store.version(), before + 1);
    assert_eq!(made["metadata"]["resourceVersion"], json!((before + 1).to_string()));
    assert_eq!(made["metadata"]["creationTimestamp"], "2030-03-17T17:46:40Z");
    assert!(made["metadata"]["uid"].as_str().unwrap().parse::<Uuid>().is_ok());
    assert_eq!(made["apiVersion"], "v1");
    let again = create(&mut store, "", "configmaps", "n", json!({"metadata": {"name": "a"}})).unwrap_err();
    assert_eq!((again.code, again.reason), (409, "AlreadyExists"));
    assert_eq!(again.message, "configmaps \"a\" already exists");
    assert_eq!(store.version(), before + 1);
}

#[test]
fn generated_names_differ() {
    let mut store = store();
    let mut make = || {
        create(&mut store, "", "configmaps", "n", json!({"metadata": {"generateName": "x-"}})).unwrap()["metadata"]["name"].clone()
    };
    let (one, two) = (make(), make());
    assert_ne!(one, two);
    assert_eq!(one.as_str().unwrap().len(), 7);
}

#[test]
fn objects_need_their_namespace() {
    let mut store = store();
    let absent = create(&mut store, "", "configmaps", "nowhere", json!({"metadata": {"name": "a"}})).unwrap_err();
    assert_eq!(absent.message, "namespaces \"nowhere\" not found");
    let other =
        create(&mut store, "", "configmaps", "n", json!({"metadata": {"name": "a", "namespace": "m"}})).unwrap_err();
    assert_eq!(other.code, 400);
}

#[test]
fn an_update_from_an_old_version_is_a_conflict() {
    let mut store = store();
    let first = config_map(&mut store, "a");
    merge(&mut store, "configmaps", "a", json!({"data": {"k": "w"}})).unwrap();
    let kind = kind(&store, "", "configmaps");
    let options = WriteOptions::by("test", WALL);
    let refused = store.update(&kind, "n", "a", first.as_ref().clone(), &options).unwrap_err();
    assert_eq!((refused.code, refused.reason), (409, "Conflict"));
    let mut versionless = first.as_ref().clone();
    versionless["metadata"].as_object_mut().unwrap().shift_remove("resourceVersion");
    assert_eq!(store.update(&kind, "n", "a", versionless, &options).unwrap()["data"]["k"], "v");
    let stale = merge(&mut store, "configmaps", "a", json!({"metadata": {"resourceVersion": "1"}, "data": {"k": "x"}}))
        .unwrap_err();
    assert_eq!(stale.code, 409);
}

#[test]
fn a_write_that_changes_nothing_is_not_a_write() {
    let mut store = store();
    let made = config_map(&mut store, "a");
    let same = merge(&mut store, "configmaps", "a", json!({"data": {"k": "v"}})).unwrap();
    assert_eq!(made, same);
    assert_eq!(made["metadata"]["resourceVersion"], json!(store.version().to_string()));
}

#[test]
fn generation_counts_specifications_and_not_labels_or_status() {
    let mut store = store();
    widgets(&mut store);
    let widget = kind(&store, "example.org", "widgets");
    let options = WriteOptions::by("test", WALL);
    let made = store
        .create(
            &widget,
            "n",
            json!({"metadata": {"name": "w"}, "spec": {"size": 1}, "status": {"sneaked": true}}),
            &options,
        )
        .unwrap();
    assert_eq!(
        (&made["metadata"]["generation"], &made["status"], &made["spec"]["colour"]),
        (&json!(1), &Value::Null, &json!("red"))
    );
    let mut patch =
        |value: Value, options: &WriteOptions| store.patch(&widget, "n", "w", &Patch::Merge(value), options).unwrap().0;
    assert_eq!(patch(json!({"metadata": {"labels": {"a": "b"}}}), &options)["metadata"]["generation"], 1);
    let status = patch(json!({"spec": {"size": 9}, "status": {"ready": true}}), &options.clone().status());
    assert_eq!(
        (&status["metadata"]["generation"], &status["spec"]["size"], &status["status"]["ready"]),
        (&json!(1), &json!(1), &json!(true))
    );
    let spec = patch(json!({"spec": {"size": 2}, "status": {"ready": false}}), &options);
    assert_eq!(
        (&spec["metadata"]["generation"], &spec["spec"]["size"], &spec["status"]["ready"]),
        (&json!(2), &json!(2), &json!(true))
    );
}

#[test]
fn an_object_that_breaks_its_schema_is_invalid_and_names_the_field() {
    let mut store = store();
    widgets(&mut store);
    let refused =
        create(&mut store, "example.org", "widgets", "n", json!({"metadata": {"name": "w"}, "spec": {"size": "big"}}))
            .unwrap_err();
    assert_eq!((refused.code, refused.reason), (422, "Invalid"));
    assert!(refused.message.starts_with("Widget.example.org \"w\" is invalid: spec.size:"), "{}", refused.message);
}

#[test]
fn an_applied_value_of_a_wrong_type_is_an_error_of_the_server() {
    let mut store = store();
    let kind = kind(&store, "", "configmaps");
    for (object, what) in [
        (json!({"metadata": {"name": "a"}, "data": 7}), ".data: expected map, got 7"),
        (json!({"metadata": {"name": "a"}, "data": {"x": true}}), ".data.x: expected string, got true"),
        (json!({"metadata": {"name": "a", "labels": {"x": 1}}}), ".metadata.labels.x: expected string, got 1"),
    ] {
        let mut object = object;
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("ConfigMap");
        let refused = store.patch(&kind, "n", "a", &Patch::Apply(object), &WriteOptions::by("m", WALL)).unwrap_err();
        assert_eq!((refused.code, refused.reason), (500, ""));
        assert_eq!(refused.message, format!("failed to create typed patch object (/a; v1, Kind=ConfigMap): {what}"));
    }
}

#[test]
fn finalizers_hold_an_object_until_the_last_is_gone() {
    let mut store = store();
    create(&mut store, "", "configmaps", "n", json!({"metadata": {"name": "a", "finalizers": ["x/one", "x/two"]}}))
        .unwrap();
    let Deleted::Pending(marked) = delete(&mut store, "", "configmaps", "a").unwrap() else { panic!("is held") };
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2030-03-17T17:46:40Z");
    let version = store.version();
    assert!(matches!(delete(&mut store, "", "configmaps", "a").unwrap(), Deleted::Pending(_)));
    assert_eq!(store.version(), version, "deleting twice changes nothing");
    let added =
        merge(&mut store, "configmaps", "a", json!({"metadata": {"finalizers": ["x/one", "x/two", "x/three"]}}))
            .unwrap_err();
    assert_eq!(added.code, 422);
    merge(&mut store, "configmaps", "a", json!({"metadata": {"finalizers": ["x/two"]}})).unwrap();
    assert!(exists(&store, "", "configmaps", "a"));
    merge(&mut store, "configmaps", "a", json!({"metadata": {"finalizers": null}})).unwrap();
    assert!(!exists(&store, "", "configmaps", "a"));
}

#[test]
fn deletion_preconditions_are_obeyed() {
    let mut store = store();
    let made = config_map(&mut store, "a");
    let kind = kind(&store, "", "configmaps");
    let wrong = DeleteOptions { uid: Some("other".into()), ..DeleteOptions::default() };
    assert_eq!(store.delete(&kind, "n", "a", &wrong, WALL).unwrap_err().code, 409);
    let right = DeleteOptions { uid: made["metadata"]["uid"].as_str().map(str::to_string), ..DeleteOptions::default() };
    assert!(matches!(store.delete(&kind, "n", "a", &right, WALL).unwrap(), Deleted::Removed(_)));
    assert_eq!(store.delete(&kind, "n", "a", &right, WALL).unwrap_err().code, 404);
}

#[test]
fn dependents_go_with_their_owner_unless_orphaned_or_shared() {
    for (orphan, expected) in [(false, [false, true]), (true, [true, true])] {
        let mut store = store();
        let one = config_map(&mut store, "one");
        let two = config_map(&mut store, "two");
        let reference = |owner: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": owner["metadata"]["uid"]});
        let mut own = |name: &str, owners: Value| {
            create(&mut store, "", "secrets", "n", json!({"metadata": {"name": name, "ownerReferences": owners}}))
                .unwrap();
        };
        own("of-one", json!([reference(&one)]));
        own("of-both", json!([reference(&one), reference(&two)]));
        let kind = kind(&store, "", "configmaps");
        store.delete(&kind, "n", "one", &DeleteOptions { orphan, ..DeleteOptions::default() }, WALL).unwrap();
        assert_eq!([exists(&store, "", "secrets", "of-one"), exists(&store, "", "secrets", "of-both")], expected);
    }
}

#[test]
fn a_namespace_goes_with_its_contents_and_waits_for_finalizers() {
    let mut store = store();
    config_map(&mut store, "a");
    create(&mut store, "", "configmaps", "n", json!({"metadata": {"name": "held", "finalizers": ["x/y"]}})).unwrap();
    assert!(matches!(delete(&mut store, "", "namespaces", "n").unwrap(), Deleted::Pending(_)));
    assert!(!exists(&store, "", "configmaps", "a"));
    let refused = create(&mut store, "", "configmaps", "n", json!({"metadata": {"name": "late"}})).unwrap_err();
    assert_eq!(refused.code, 403);
    merge(&mut store, "configmaps", "held", json!({"metadata": {"finalizers": []}})).unwrap();
    assert!(!exists(&store, "", "configmaps", "held"));
    assert!(!exists(&store, "", "namespaces", "n"));
}

#[test]
fn a_custom_resource_is_served_as_long_as_its_definition() {
    let mut store = store();
    assert!(store.kinds().get("example.org", "v1", "widgets").is_none());
    widgets(&mut store);
    create(&mut store, "example.org", "widgets", "n", json!({"metadata": {"name": "w"}, "spec": {"size": 1}})).unwrap();
    let definitions = kind(&store, "apiextensions.k8s.io", "customresourcedefinitions");
    store.delete(&definitions, "", "widgets.example.org", &DeleteOptions::default(), WALL).unwrap();
    assert!(store.kinds().get("example.org", "v1", "widgets").is_none());
    widgets(&mut store);
    assert!(!exists(&store, "example.org", "widgets", "w"), "its objects went with it");
}

#[test]
fn pages_show_one_version_whatever_is_written_between_them() {
    let mut store = store();
    for name in ["a", "b", "c", "d", "e"] {
        config_map(&mut store, name);
    }
    let kind = kind(&store, "", "configmaps");
    let names = |page: &Page| {
        page.items.iter().map(|o| o["metadata"]["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let mut options = ListOptions { limit: 2, ..ListOptions::default() };
    let first = store.list(&kind, Some("n"), &options).unwrap();
    assert_eq!((names(&first), first.remaining), (vec!["a".to_string(), "b".to_string()], Some(3)));
    delete(&mut store, "", "configmaps", "d").unwrap();
    config_map(&mut store, "bb");
    options.continue_token = first.continue_token;
    let second = store.list(&kind, Some("n"), &options).unwrap();
    assert_eq!((names(&second), second.version), (vec!["c".to_string(), "d".to_string()], first.version));
    options.continue_token = second.continue_token.clone();
    let third = store.list(&kind, Some("n"), &options).unwrap();
    assert_eq!((names(&third), third.continue_token), (vec!["e".to_string()], None));
    store.expire_log();
    assert_eq!(store.list(&kind, Some("n"), &options).unwrap_err().code, 410);
    options.continue_token = Some("garbage".into());
    assert_eq!(store.list(&kind, Some("n"), &options).unwrap_err().code, 400);
}

#[test]
fn an_apply_creates_then_changes_and_asks_for_a_manager_and_a_kind() {
    let mut store = store();
    let kind = kind(&store, "", "configmaps");
    let object =
        |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}});
    let options = WriteOptions::by("sync", WALL);
    let mut apply =
        |object: Value, options: &WriteOptions| store.patch(&kind, "n", "a", &Patch::Apply(object), options);
    let (made, created) = apply(object("1"), &options).unwrap();
    assert!(created);
    let (same, created) = apply(object("1"), &options).unwrap();
    assert_eq!((&same, created), (&made, false));
    let (changed, _) = apply(object("2"), &options).unwrap();
    assert_eq!(changed["data"]["k"], "2");
    assert_ne!(changed["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    assert_eq!(apply(object("3"), &WriteOptions::by("", WALL)).unwrap_err().code, 422);
    assert_eq!(apply(json!({"metadata": {"name": "a"}}), &options).unwrap_err().code, 400);
    assert_eq!(apply(object("3"), &WriteOptions::by("other", WALL)).unwrap_err().code, 409);
    assert_eq!(apply(object("3"), &WriteOptions::by("other", WALL).forced()).unwrap().0["data"]["k"], "3");
}

#[test]
fn a_dry_run_checks_and_stores_nothing() {
    let mut store = store();
    let version = store.version();
    let kind = kind(&store, "", "configmaps");
    let options = WriteOptions { dry_run: true, ..WriteOptions::by("test", WALL) };
    store.create(&kind, "n", json!({"metadata": {"name": "a"}}), &options).unwrap();
    assert_eq!(store.create(&kind, "n", json!({"metadata": {"name": "A"}}), &options).unwrap_err().code, 422);
    assert!(!exists(&store, "", "configmaps", "a"));
    assert_eq!(store.version(), version);
}

#[test]
fn a_version_of_another_life_is_gone() {
    let store = store();
    let resource = ResourceId::new("", "configmaps");
    let mut cursor = Cursor { resource, namespace: None, selector: Selector::default(), version: store.version() + 1 };
    assert_eq!(store.poll(&mut cursor).map_err(|e| e.code), Err(410));
}
