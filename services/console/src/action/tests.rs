//! What actions come to.

use std::collections::BTreeSet;

use configdb_schema::document::TokenScope;
use fleet_view::bench::{Bench, CLUSTER, NAME};
use serde_json::json;

use super::*;

const WALL: u64 = 1_800_000_000_000;

fn parse(name: &str, body: Value) -> Action {
    Action::parse(name, body.to_string().as_bytes()).unwrap()
}

fn plan(fleet: &Fleet, name: &str, body: Value) -> Result<Plan, RequestError> {
    parse(name, body).plan(Replicas { fleet, explorer: &Explorer::default() }, "a1", "console/token:ada", WALL)
}

fn principal(scope: TokenScope, clusters: Option<&[Uuid]>) -> Principal {
    let clusters = clusters.map(|clusters| clusters.iter().copied().collect::<BTreeSet<_>>());
    Principal { name: "token:ada".to_owned(), grants: vec![Grant { scope, clusters }] }
}

#[test]
fn every_action_of_the_list_is_read_and_has_its_operation() {
    for (name, operation) in ACTIONS {
        let body = json!({ "cluster": CLUSTER, "name": "A", "chart": "c", "deployment": CLUSTER, "node": "G/N", "metric": "m", "object": CLUSTER, "application": "Info", "value": {}, "etag": CLUSTER, "wave": 1, "alert": "a", "host": "h", "template": CLUSTER, "class": CLUSTER });
        let error = Action::parse(name, body.to_string().as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("unknown field "), "{name}: {error}");
        assert_ne!(operation.as_str(), "");
    }
    assert_eq!(parse("cluster.wave", json!({ "cluster": CLUSTER, "wave": 1 })).name(), "cluster.wave");
    assert!(Action::parse("host.approve", b"{}").unwrap_err().to_string().contains("cluster.create, cluster.delete"));
}

#[test]
fn a_viewer_may_nothing_and_who_is_for_one_cluster_creates_none() {
    assert!(allowed(&principal(TokenScope::Viewer, None)).is_empty());
    let of_one = allowed(&principal(TokenScope::Operator, Some(&[CLUSTER])));
    assert!(of_one.contains(&"deployment.create") && !of_one.contains(&"cluster.create"), "{of_one:?}");
    assert!(!of_one.iter().any(|name| name.starts_with("rollout.")), "a chart template is of all clusters: {of_one:?}");
    let operator = allowed(&principal(TokenScope::Operator, None));
    assert!(operator.contains(&"cluster.create") && !operator.contains(&"entry.put"), "{operator:?}");
    assert_eq!(allowed(&principal(TokenScope::Administrator, None)).len(), ACTIONS.len());
}

#[test]
fn a_token_is_made_by_an_administrator_of_all_clusters_and_its_text_is_nowhere_in_the_action() {
    let mut bench = Bench::with_cluster();
    bench.entry(CLUSTER, &EdgeCluster::default());
    let Action::CreateToken(mut wanted) = parse("token.create", json!({ "name": "ci", "scope": "viewer" })) else {
        panic!("a token")
    };
    assert!(Action::parse("token.create", br#"{"name":"ci","scope":"viewer","hash":"00"}"#).is_err());
    wanted.hash = "0f".repeat(32);
    let action = Action::CreateToken(wanted);
    let Plan::Writes(writes) = action
        .plan(Replicas { fleet: &bench.fleet, explorer: &Explorer::default() }, "a1", "console/token:ada", WALL)
        .unwrap()
    else {
        panic!("writes")
    };
    let entry = writes[0].entries["ApiToken"].clone().unwrap();
    assert_eq!(
        (&entry["hash"], &entry["scope"], &entry["by"]),
        (&json!("0f".repeat(32)), &json!("viewer"), &json!("console/token:ada"))
    );
    assert_eq!(entry["expires"], "2027-04-15T08:00:00Z", "90 days");
    assert_eq!((action.cluster(&bench.fleet), action.operation()), (None, Operation::CreateToken));
    assert!(!allowed(&principal(TokenScope::Administrator, Some(&[CLUSTER]))).contains(&"token.create"));
    let revoke = |bench: &Bench| plan(&bench.fleet, "token.revoke", json!({ "name": "ci" }));
    assert!(revoke(&bench).unwrap_err().to_string().starts_with("name: there is no "));
    bench.apply(&writes[0]);
    assert!(revoke(&bench).is_ok());
}

#[test]
fn a_value_of_a_secret_is_written_if_it_is_sealed_for_the_cluster_and_for_nothing_else() {
    let mut bench = Bench::with_cluster();
    let pem = simulator::sealed_secrets::CERTIFICATE;
    let certificate = SealingCertificate::from_pem(pem, Duration::from_millis(WALL)).unwrap();
    let own = sealed_secrets::fingerprint(pem).unwrap();
    let request = sealed_secrets::Request {
        namespace: NAMESPACE,
        name: "login",
        scope: SealingScope::Strict,
        secret_type: "Opaque",
    };
    let plain = sealed_secrets::Plain {
        key: "password".to_owned(),
        value: zeroize::Zeroizing::new(b"correct horse".to_vec()),
        session_key: zeroize::Zeroizing::new([7; sealed_secrets::SESSION_KEY_BYTES]),
    };
    let sealed = sealed_secrets::sealed_secret(&certificate, request, &[plain]).unwrap();
    let sealed = sealed["spec"]["encryptedData"]["password"].as_str().unwrap().to_owned();
    let body = |changes: Value| {
        let mut body = json!({ "cluster": CLUSTER, "name": "login", "key": "password", "sealed": sealed });
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        body
    };
    bench.entry(CLUSTER, &EdgeCluster { name: NAME.to_owned(), ..EdgeCluster::default() });
    let put = |bench: &Bench, changes| plan(&bench.fleet, "secret.put", body(changes));
    assert!(put(&bench, json!({})).unwrap_err().to_string().starts_with("the cluster has published no sealing"));
    let status = configdb_schema::document::EdgeClusterStatus {
        kubeseal_cert: Some(pem.to_owned()),
        ..configdb_schema::document::EdgeClusterStatus::default()
    };
    bench.entry(CLUSTER, &status);
    for (changes, field) in [
        (json!({ "sealed": "correct horse" }), "sealed: "),
        (json!({ "name": "../x" }), "sealed: "),
        (json!({ "type": "a b" }), "sealed: "),
        (json!({ "fingerprint": "0f".repeat(32) }), "fingerprint: the cluster's certificate is "),
    ] {
        let error = put(&bench, changes).unwrap_err().to_string();
        assert!(error.starts_with(field) && !error.contains("correct horse"), "{error}");
    }
    let Plan::Writes(writes) = put(&bench, json!({ "fingerprint": own })).unwrap() else { panic!("writes") };
    let entry = writes[0].entries["SealedSecret"].clone().unwrap();
    assert_eq!((&entry["namespace"], &entry["keys"]["password"]["value"]), (&json!(NAMESPACE), &json!(sealed)));
    let none = json!({ "cluster": CLUSTER, "name": "login", "keys": ["password"] });
    assert!(plan(&bench.fleet, "secret.delete", none.clone()).unwrap_err().to_string().starts_with("key: there is no"));
    bench.apply(&writes[0]);
    let Plan::Writes(writes) = plan(&bench.fleet, "secret.delete", none).unwrap() else { panic!("writes") };
    assert_eq!(writes[0].entries["SealedSecret"].as_ref().unwrap()["keys"]["password"]["value"], Value::Null);
    let action = parse("secret.put", body(json!({})));
    assert_eq!((action.cluster(&bench.fleet), action.operation()), (Some(CLUSTER), Operation::PutSecret));
    assert!(action.target(&bench.fleet).ends_with("fplus-edge/login/password"));
}

#[test]
fn an_object_is_created_once_with_a_name_and_a_class_that_there_is() {
    let mut bench = Bench::new();
    bench.cluster(CLUSTER, NAME, |_| {});
    let create = |class: Uuid, name: &str| plan(&bench.fleet, "object.create", json!({ "class": class, "name": name }));
    let Plan::Writes(writes) = create(CLUSTER, "Oven").unwrap() else { panic!("writes") };
    let Plan::Writes(again) = create(CLUSTER, "Oven").unwrap() else { panic!("writes") };
    assert_eq!((writes.len(), writes[0].object), (1, again[0].object));
    assert!(create(Uuid::nil(), "Oven").unwrap_err().to_string().starts_with("class: there is no "));
    assert!(create(CLUSTER, " ").unwrap_err().to_string().starts_with("name: must not be empty"));
    let taken = plan(&bench.fleet, "object.create", json!({ "class": CLUSTER, "name": "A", "object": CLUSTER }));
    assert!(taken.unwrap_err().to_string().starts_with("object: there is an object"));
}

#[test]
fn the_history_of_an_object_is_asked_for_from_a_revision_on() {
    let mut bench = Bench::new();
    bench.cluster(CLUSTER, NAME, |_| {});
    let ask = json!({ "object": CLUSTER, "application": "EdgeCluster", "since": 7 });
    let Plan::Replay(replay) = plan(&bench.fleet, "object.history", ask).unwrap() else { panic!("a replay") };
    assert_eq!((replay.object, replay.from_revision, replay.slug.as_deref()), (CLUSTER, 7, Some("EdgeCluster")));
    assert!(plan(&bench.fleet, "object.history", json!({ "object": Uuid::nil() })).is_err());
}

#[test]
fn a_cluster_with_deployments_goes_with_them_or_not_at_all() {
    let mut bench = Bench::new();
    bench.cluster(CLUSTER, NAME, |_| {});
    let Plan::Writes(writes) = plan(&bench.fleet, "cluster.delete", json!({ "cluster": CLUSTER })).unwrap() else {
        panic!("writes")
    };
    assert_eq!((writes.len(), writes[0].id.as_str(), writes[0].object), (1, "a1-0", CLUSTER));
    let other = plan(&bench.fleet, "cluster.delete", json!({ "cluster": Uuid::nil() })).unwrap_err();
    assert!(other.to_string().starts_with("cluster: there is no "), "{other}");
}

#[test]
fn a_name_that_is_taken_and_a_wave_that_is_none_are_refused_by_their_field() {
    let mut bench = Bench::new();
    bench.cluster(CLUSTER, NAME, |_| {});
    let taken = plan(&bench.fleet, "cluster.create", json!({ "name": NAME })).unwrap_err();
    assert!(taken.to_string().starts_with("name: "), "{taken}");
    let wave = plan(&bench.fleet, "cluster.wave", json!({ "cluster": CLUSTER, "wave": 10 })).unwrap_err();
    assert_eq!(wave.to_string(), "wave: must be from 1 to 9");
    let chart = json!({ "cluster": CLUSTER, "name": "A", "chart": "Nothing" });
    let chart = plan(&bench.fleet, "deployment.create", chart).unwrap_err();
    assert_eq!(chart.to_string(), "chart: there is no \"Nothing\"");
}

#[test]
fn an_alert_is_of_its_cluster_and_one_of_a_central_service_or_that_is_over_of_none_that_a_grant_names() {
    let mut bench = Bench::with_cluster();
    bench.monitor(NAME, &["Oven_1"]);
    bench.central_monitor(&["ACME-Central"]);
    let keys: Vec<String> = bench.fleet.alerts().iter().map(AlertRow::key).collect();
    let of = |alert: &str| parse("alert.acknowledge", json!({ "alert": alert, "note": "on it" })).cluster(&bench.fleet);
    for key in &keys {
        let expected = if key.starts_with(NAME) { CLUSTER } else { Uuid::nil() };
        assert_eq!(of(key), Some(expected), "{key}");
    }
    assert_eq!(keys.len(), 2, "{keys:?}");
    assert_eq!(of("over"), Some(Uuid::nil()));
    let over = plan(&bench.fleet, "alert.acknowledge", json!({ "alert": "over" })).unwrap_err();
    assert_eq!(over.to_string(), "alert: there is no \"over\"");
    let key = keys.iter().find(|key| key.starts_with(NAME)).unwrap();
    for withdraw in [false, true] {
        let body = json!({ "alert": key, "withdraw": withdraw });
        let Plan::Writes(writes) = plan(&bench.fleet, "alert.acknowledge", body).unwrap() else { panic!("writes") };
        let record = &writes[0].entries["AlertAcknowledgements"].clone().unwrap()["alerts"][key];
        assert_eq!(record.get("by").and_then(Value::as_str), (!withdraw).then_some("console/token:ada"), "{record}");
    }
}

#[test]
fn an_alert_is_silenced_for_a_time_that_has_bounds() {
    let mut bench = Bench::with_cluster();
    bench.monitor(NAME, &["Oven_1"]);
    let key = bench.fleet.alerts()[0].key();
    let silence = |seconds: u64| plan(&bench.fleet, "alert.acknowledge", json!({ "alert": key, "silence_s": seconds }));
    let Plan::Writes(writes) = silence(3_600).unwrap() else { panic!("writes") };
    let record = &writes[0].entries["AlertAcknowledgements"].clone().unwrap()["alerts"][&key];
    assert_eq!(record["until"], "2027-01-15T09:00:00Z");
    for bad in [0, u64::MAX] {
        assert!(silence(bad).unwrap_err().to_string().starts_with("silence: must be"), "{bad}");
    }
    let action = parse("alert.acknowledge", json!({ "alert": key, "silence_s": 3_600 }));
    assert_eq!(action.target(&bench.fleet), format!("{key} silenced for 3600 s"));
}

#[test]
fn a_deployment_is_suspended_and_resumed_and_those_of_a_cluster_are_reconciled() {
    let mut bench = Bench::with_cluster();
    let (oven, press) = (Uuid::from_u128(1), Uuid::from_u128(2));
    bench.deployment(oven, "Oven", None);
    bench.deployment(press, "Press", None);
    let entries = |name: &str, body: Value| -> Vec<Value> {
        assert_eq!(parse(name, body.clone()).cluster(&bench.fleet), Some(CLUSTER), "{name}");
        let Plan::Writes(writes) = plan(&bench.fleet, name, body).unwrap() else { panic!("writes") };
        writes.iter().map(|write| write.entries["EdgeDeployment"].clone().unwrap()).collect()
    };
    assert_eq!(entries("deployment.suspend", json!({ "deployment": oven })), [json!({ "suspend": true })]);
    let resumed = entries("deployment.suspend", json!({ "deployment": oven, "withdraw": true }));
    assert_eq!(resumed, [json!({ "suspend": null })]);
    let asked = json!({ "reconcileRequestedAt": "2027-01-15T08:00:00Z" });
    assert_eq!(entries("deployment.reconcile", json!({ "deployment": oven }))[0], asked);
    assert_eq!(entries("cluster.reconcile", json!({ "cluster": CLUSTER })), [asked.clone(), asked]);
    assert!(plan(&bench.fleet, "cluster.reconcile", json!({ "cluster": Uuid::nil() })).is_err());
}

#[test]
fn a_deployment_that_is_not_known_and_a_foreign_node_are_of_no_cluster_that_a_grant_names() {
    let bench = Bench::new();
    let moved = parse("deployment.move", json!({ "deployment": CLUSTER, "host": null }));
    assert_eq!(moved.cluster(&bench.fleet), Some(Uuid::nil()));
    let foreign = parse("node.rebirth", json!({ "node": "Foreign/Gateway" }));
    assert_eq!(foreign.cluster(&bench.fleet), Some(Uuid::nil()));
}
