//! Every example shape of Factory+ is accepted by its schema and survives its Rust type; what is no such shape is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use configdb_schema::document::{
    AgentConfig, AlertAcknowledgements, ApiToken, AttestationPolicy, BootstrapScript, ChartRollout, Document,
    EdgeAccount, EdgeCluster, EdgeClusterEnrolment, EdgeClusterIdentity, EdgeClusterRecovery, EdgeClusterRollout,
    EdgeClusterSetup, EdgeClusterStatus, EdgeDeployment, EvidenceVariant, FluxItem, FluxTemplate, GitConfig,
    HelmChartTemplate, Info, K8sTemplate, Registration, SealedSecret, SealingScope, SparkplugAddress, TokenScope,
};
use configdb_schema::{APPLICATIONS, Application, application, defaults};
use serde_json::{Value, json};

const A: &str = "6c1de0b4-5d0e-4a7b-9a55-3f0f8f2f9a10";
const B: &str = "b1f4a1c2-0000-4000-8000-00000000000b";

fn errors(schema: &str, value: &Value) -> Vec<String> {
    let schema: Value = serde_json::from_str(schema).unwrap();
    let validator = jsonschema::draft202012::options().build(&schema).unwrap();
    validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path())).collect()
}

/// Accepted by the schema, read by the type, written back as it was.
fn accepted<T: Document>(value: &Value) -> T {
    assert_eq!(errors(T::application().schema, value), Vec::<String>::new(), "{value}");
    let typed: T = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(&serde_json::to_value(&typed).unwrap(), value);
    typed
}

fn refused(application: &Application, value: &Value) {
    assert!(!errors(application.schema, value).is_empty(), "{}: {value}", application.slug);
}

#[test]
fn edge_clusters_are_closed_and_keep_their_values() {
    let cluster: EdgeCluster = accepted(&json!({"name": "Paint_Shop", "namespace": "fplus-edge", "chart": A,
        "values": {"sealedSecrets": {"enabled": false}}, "bare": true}));
    assert!(cluster.bare);
    accepted::<EdgeCluster>(&json!({"name": "P", "namespace": "n"}));
    let open: EdgeCluster = accepted(&json!({"name": "P", "namespace": "n", "podSecurity": "privileged"}));
    assert_eq!(open.pod_security.name(), "privileged");
    refused(&application::EDGE_CLUSTER, &json!({"name": "P", "namespace": "n", "podSecurity": "none"}));
    for bad in [
        json!({"name": "P"}),
        json!({"namespace": "n"}),
        json!({"name": "P", "namespace": "n", "colour": 1}),
        json!({"name": "Paint-Shop", "namespace": "n"}),
        json!({"name": "Central", "namespace": "n"}),
        json!({"name": "P", "namespace": "N_N"}),
        json!({"name": "P", "namespace": "n", "chart": "edge-cluster"}),
        json!({"name": "P", "namespace": "n", "values": []}),
        json!([]),
    ] {
        refused(&application::EDGE_CLUSTER, &bad);
    }
    assert!(serde_json::from_value::<EdgeCluster>(json!({"name": "P", "namespace": "n", "colour": 1})).is_err());
}

#[test]
fn setup_status_is_read_in_old_and_present_form() {
    let setup: EdgeClusterSetup = accepted(&json!({
        "spec": {"name": "Paint_Shop", "namespace": "fplus-edge"}, "flux": {"uuid": A, "done": true}, "krbkeys": B,
        "self_link": "apiVersion: v1", "ready": true, "fluxVersion": "2.7.5", "error": "git away", "step": "repository"}));
    let (flux, krbkeys) = (setup.flux.unwrap(), setup.krbkeys.unwrap());
    assert!(flux.is_done() && !krbkeys.is_done());
    assert_eq!(krbkeys.uuid().to_string(), B);
    assert_eq!(setup.extra["step"], "repository");
    refused(&application::EDGE_CLUSTER_SETUP, &json!({"flux": 3}));
    refused(&application::EDGE_CLUSTER_SETUP, &json!({"ready": "yes"}));
}

#[test]
fn cluster_status_lists_hosts() {
    let host = json!({"hostname": "ps-gw1", "arch": "arm64", "k8s_version": "v1.31.4+k3s1", "control_plane": true,
        "os_version": "Debian GNU/Linux 12 (bookworm)", "ready": true});
    let mut specialised = host.clone();
    specialised["specialised"] = json!("switched-off-at-night");
    let status: EdgeClusterStatus =
        accepted(&json!({"hosts": [host, specialised], "kubeseal_cert": "-----BEGIN CERTIFICATE-----\n"}));
    assert_eq!(status.hosts.unwrap()[1].specialised.as_deref(), Some("switched-off-at-night"));
    accepted::<EdgeClusterStatus>(&json!({}));
    refused(&application::EDGE_CLUSTER_STATUS, &json!({"hosts": [{"hostname": "ps-gw1"}]}));
}

#[test]
fn deployments_name_a_chart_in_old_or_present_form() {
    let deployment: EdgeDeployment =
        accepted(&json!({"cluster": B, "name": "Robot_Cell_3", "chart": A, "hostname": "ps-gw1",
        "values": {"drivers": {"plc": {"image": "modbus"}}}, "createdAt": "2026-01-02T03:04:05Z", "note": "kept"}));
    assert_eq!(deployment.chart_templates().len(), 1);
    let old: EdgeDeployment = accepted(&json!({"cluster": B, "name": "x", "charts": [A, B]}));
    assert_eq!(old.chart_templates().len(), 2);
    let at = "2026-11-25T08:00:00.123Z";
    let asked: EdgeDeployment =
        accepted(&json!({"cluster": B, "name": "x", "chart": A, "suspend": true, "reconcileRequestedAt": at}));
    assert!(asked.suspend && asked.reconcile_requested_at.as_deref() == Some(at));
    for bad in [
        json!({"cluster": B, "name": "x"}),
        json!({"cluster": B, "chart": A}),
        json!({"name": "x", "chart": A}),
        json!({"cluster": B, "name": "a/b", "chart": A}),
        json!({"cluster": B, "name": "Sync", "chart": A}),
        json!({"cluster": B, "name": "x", "chart": A, "hostname": null}),
        json!({"cluster": B, "name": "x", "charts": []}),
        json!({"cluster": B, "name": "x", "chart": A, "values": "a: 1"}),
        json!({"cluster": B, "name": "x", "chart": A, "suspend": "yes"}),
        json!({"cluster": B, "name": "x", "chart": A, "reconcileRequestedAt": "now"}),
    ] {
        refused(&application::EDGE_DEPLOYMENT, &bad);
    }
}

#[test]
fn chart_templates_need_a_prefix_when_the_chart_lies_in_a_folder() {
    accepted::<HelmChartTemplate>(&json!({"chart": "charts/barcode-reader", "prefix": "barcode", "source": A,
        "values": {"id": "{{uuid}}", "label": "Reader {{name}}", "node": "{{hostname}}"}}));
    accepted::<HelmChartTemplate>(&json!({"chart": "edge-agent", "values": {}}));
    for bad in [
        json!({"chart": "charts/barcode-reader", "values": {}}),
        json!({"chart": "../secrets", "values": {}, "prefix": "p"}),
        json!({"chart": "edge-agent"}),
        json!({"chart": "edge-agent", "values": {}, "version": "1"}),
    ] {
        refused(&application::HELM_CHART_TEMPLATE, &bad);
    }
}

#[test]
fn resource_templates_are_read_in_old_and_present_form() {
    accepted::<K8sTemplate>(&json!({"resources": [{"apiVersion": "v1", "kind": "ConfigMap"}],
        "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{name}}"}, "data": {"url": "{{url}}"}}}));
    accepted::<K8sTemplate>(
        &json!({"resources": [{"apiVersion": "helm.toolkit.fluxcd.io/v2beta1", "kind": "HelmRelease"}],
        "template": {"apiVersion": "helm.toolkit.fluxcd.io/v2beta1", "kind": "HelmRelease",
            "metadata": {"name": "{{prefix}}-{{uuid}}"},
            "spec": {"chart": {"spec": {"chart": "{{chart}}", "sourceRef": {"kind": "GitRepository", "name": "{{source}}"}}},
                     "values": "{{values}}"}}}),
    );
    refused(&application::K8S_TEMPLATE, &json!({"resources": [], "template": {"kind": "X"}}));
    refused(
        &application::K8S_TEMPLATE,
        &json!({"resources": [{"kind": "X"}], "template": {"apiVersion": "v1", "kind": "X"}}),
    );
    refused(
        &application::K8S_TEMPLATE,
        &json!({"resources": [], "template": {"apiVersion": "v1", "kind": "X"}, "x": 1}),
    );
}

#[test]
fn flux_templates_are_files_of_manifests_and_placeholders() {
    let flux: FluxTemplate = accepted(&json!({
        "self-link.yaml": [{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "self-link", "namespace": "{{namespace}}"}, "spec": {"url": "{{url.self}}", "interval": "5m"}}],
        "cluster.yaml": ["{{helm}}"]}));
    assert_eq!(flux.all_files().keys().copied().collect::<Vec<_>>(), ["cluster.yaml", "self-link.yaml"]);
    assert_eq!(flux.files["cluster.yaml"], [FluxItem::Placeholder("{{helm}}".to_owned())]);
    for bad in [
        json!({"cluster.yaml": []}),
        json!({"self-link.yaml": [], "../../x.yaml": []}),
        json!({"self-link.yaml": [], "x.yaml": ["plain text"]}),
        json!({"self-link.yaml": [{"kind": "X"}]}),
    ] {
        refused(&application::FLUX_TEMPLATE, &bad);
    }
}

#[test]
fn bootstrap_scripts_are_closed() {
    accepted::<BootstrapScript>(&json!({"files": {"hello.txt": "joining {{name}} to {{realm}}"},
        "wrapper": "cd \"$(mktemp -d)\" && {{files}}\ncat hello.txt"}));
    refused(&application::BOOTSTRAP_SCRIPT, &json!({"files": {}}));
    refused(&application::BOOTSTRAP_SCRIPT, &json!({"files": {"../x": ""}, "wrapper": ""}));
}

#[test]
fn git_configs_have_a_path_without_escapes() {
    accepted::<GitConfig>(&json!({"path": "shared/site-charts", "pull": {"upstream": {
        "url": "https://code.example/site/charts.git", "ref": "release", "interval": "20m", "merge": "main",
        "auth": {"secretRef": "code-bot"}}}}));
    for path in ["/etc", "a/../b", "", "a//b", ".git"] {
        refused(&application::GIT_CONFIG, &json!({ "path": path }));
    }
}

#[test]
fn addresses_of_groups_nodes_and_devices_are_distinguished() {
    let group: SparkplugAddress = accepted(&json!({"group_id": "ACME-Paint_Shop"}));
    assert_eq!(group, SparkplugAddress::group("ACME-Paint_Shop"));
    let node: SparkplugAddress = accepted(&json!({"group_id": "ACME-Paint_Shop", "node_id": "Robot_Cell_3"}));
    assert_eq!(node, SparkplugAddress::node("ACME-Paint_Shop", "Robot_Cell_3"));
    for bad in [
        json!({"group_id": "a/b"}),
        json!({"group_id": "a", "device_id": "d"}),
        json!({"node_id": "n"}),
        json!({"group_id": ""}),
    ] {
        refused(&application::SPARKPLUG_ADDRESS, &bad);
    }
}

#[test]
fn agent_configs_are_passed_through() {
    accepted::<AgentConfig>(
        &json!({"sparkplug": {"asyncPubMode": true}, "deviceConnections": [{"uuid": A, "name": "Press PLC",
        "connType": "Driver", "pollInt": 500, "payloadFormat": "Defined by Protocol",
        "DriverDetails": {"host": "10.2.0.7", "password": "__FPSI__9c3b2c1e-5f0d-4d0e-8f7a-3a2f1b7c6d5e"},
        "devices": [{"deviceId": "Press_1", "tags": [{"Name": "Force", "type": "Float", "method": "GET", "address": "h1",
            "recordToDB": true}]}]}]}),
    );
    refused(&application::AGENT_CONFIG, &json!({}));
    refused(&application::AGENT_CONFIG, &json!({"deviceConnections": {}}));
}

#[test]
fn attestation_policies_name_pcrs_a_lock_and_who_vouches() {
    let (digest, ek) = ("5a".repeat(32), "0f1e".repeat(16));
    let good = json!({"variants": ["tpm2", "simulated"], "bank": "sha256", "pcrs": {"4": {"expected": [digest, digest]}, "11": {"expected": [digest], "warnOnly": true}},
        "lock": {"pcr": 15, "before": digest}, "endorsement": {"require": "both",
            "manufacturers": ["-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"],
            "enrolled": [{"ek": ek, "host": "ps-gw1.plant.example", "disk": A, "controlPlane": true}, {"ek": ek}],
            "revoked": [ek]}});
    let policy: AttestationPolicy = accepted(&good);
    assert!(policy.pcrs["11"].warn_only && policy.endorsement.enrolled[0].control_plane);
    let mut observed = good.clone();
    observed["pcrs"]["11"] = json!({"warnOnly": true});
    assert_eq!(accepted::<AttestationPolicy>(&observed).pcrs["11"].expected, [""; 0]);
    let mut unnamed = good.clone();
    unnamed.as_object_mut().unwrap().remove("variants");
    assert_eq!(accepted::<AttestationPolicy>(&unnamed).variants, [EvidenceVariant::Tpm2]);
    let mut by_events = good.clone();
    by_events["pcrs"] = json!({});
    by_events["boot"] = json!({"secureBoot": true, "signers": [ek], "images": [digest], "commandLines": [digest]});
    let policy: AttestationPolicy = accepted(&by_events);
    assert!(
        policy.boot.is_some_and(|boot| boot.secure_boot && boot.images == [digest.clone()] && boot.initrds.is_empty())
    );
    for (key, value) in [("dbx", json!([])), ("images", json!(["5a"])), ("signers", json!(["5a".repeat(48)]))] {
        let mut bad = by_events.clone();
        bad["boot"][key] = value;
        refused(&application::ATTESTATION_POLICY, &bad);
    }
    let mut unlocking = good.clone();
    unlocking["localUnlock"] = json!({"pcrs": [0]});
    assert_eq!(accepted::<AttestationPolicy>(&unlocking).local_unlock.unwrap().pcrs, [0]);
    unlocking["localUnlock"]["pcrs"] = json!([16]);
    refused(&application::ATTESTATION_POLICY, &unlocking);
    let changed = |pointer: &str, value: Value| {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        bad
    };
    for bad in [
        json!({}),
        changed("/variants", json!([])),
        changed("/variants", json!(["dummy"])),
        changed("/endorsement/enrolled/0/disk", json!(A.to_uppercase())),
        changed("/bank", json!("sha1")),
        changed("/pcrs", json!({})),
        changed("/pcrs", json!({"24": {"expected": ["5a".repeat(32)]}})),
        changed("/pcrs", json!({"04": {"expected": ["5a".repeat(32)]}})),
        changed("/pcrs/4/expected", json!([])),
        changed("/pcrs/4/expected", json!(["5a"])),
        changed("/lock/pcr", json!(16)),
        changed("/endorsement/require", json!("none")),
        changed("/endorsement/enrolled/0/host", json!("PS_GW1")),
        changed("/endorsement/revoked/0", json!("0f")),
    ] {
        refused(&application::ATTESTATION_POLICY, &bad);
    }
}

#[test]
fn enrolments_hold_hashes_of_tokens_and_never_a_token() {
    let (hash, time) = ("5a".repeat(32), "2026-11-22T04:00:00Z");
    let token = json!({"hash": hash, "issued": time, "expires": "2026-11-23T04:00:00.5Z", "by": "ada"});
    let good = json!({"tokens": [token], "fence": 2, "revoked": ["0f1e"], "approved": ["0f1f"]});
    let enrolment: EdgeClusterEnrolment = accepted(&good);
    assert_eq!((enrolment.fence, enrolment.tokens[0].hash.as_str()), (2, hash.as_str()));
    accepted::<EdgeClusterEnrolment>(&json!({}));
    let changed = |pointer: &str, value: Value| {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        bad
    };
    for bad in [
        changed("/tokens/0/hash", json!("sft_0123456789012345678901234567890123456789012")),
        changed("/tokens/0/expires", json!("tomorrow")),
        changed("/tokens/0/by", json!("")),
        changed("/fence", json!(-1)),
        changed("/revoked/0", json!("0F1E")),
        json!({"tokens": [{"hash": hash, "issued": time, "expires": time, "by": "ada", "token": "sft_x"}]}),
    ] {
        refused(&application::EDGE_CLUSTER_ENROLMENT, &bad);
    }
}

#[test]
fn rollouts_have_a_wave_and_pins_of_one_kind() {
    let pins = json!({A: {"commit": "5a".repeat(20)}, B: {"semver": ">=1.2"}});
    let rollout: EdgeClusterRollout = accepted(&json!({"wave": 2, "pins": pins}));
    assert_eq!((rollout.wave, rollout.pins.len()), (2, 2));
    assert_eq!(accepted::<EdgeClusterRollout>(&json!({})), EdgeClusterRollout::default());
    assert_eq!(EdgeClusterRollout::default().wave, 9);
    for bad in [
        json!({"wave": 0}),
        json!({"wave": 10}),
        json!({"wave": "1"}),
        json!({"pins": {"shared/helm": {"branch": "main"}}}),
        json!({"pins": {A: {}}}),
        json!({"pins": {A: {"commit": "main"}}}),
        json!({"pins": {A: {"branch": "main", "tag": "v1"}}}),
        json!({"pin": {}}),
    ] {
        refused(&application::EDGE_CLUSTER_ROLLOUT, &bad);
    }
}

#[test]
fn a_chart_rollout_says_who_decided_what_and_for_which_template() {
    let decision = json!({"by": "console/token:ada", "at": "2026-11-25T08:00:00Z"});
    let good = json!({"hold": decision, "without": {"template": A, "clusters": {B: decision}}});
    let known: ChartRollout = accepted(&good);
    let passed = |template: &str| {
        known.passed(template.parse().ok()).map(|(cluster, _)| cluster.to_string()).collect::<Vec<_>>()
    };
    assert_eq!((passed(A), passed(B)), (vec![B.to_owned()], Vec::new()));
    assert_eq!(accepted::<ChartRollout>(&json!({})), ChartRollout::default());
    for bad in [
        json!({"hold": true}),
        json!({"hold": {"by": "ada"}}),
        json!({"hold": {"by": "ada", "at": "today"}}),
        json!({"without": {"clusters": {B: decision}}}),
        json!({"without": {"template": A, "clusters": {}}}),
        json!({"without": {"template": A, "clusters": {"Paint_Shop": decision}}}),
        json!({"wave": 1}),
    ] {
        refused(&application::CHART_ROLLOUT, &bad);
    }
}

#[test]
fn acknowledgements_say_who_looks_after_which_alert() {
    let (key, at) = ("Paint_Shop/Sync/Offline/ACME-Central/Cluster-Manager", "2026-11-25T08:00:00Z");
    let good = json!({"alerts": {key: {"by": "console/token:ada", "at": at, "note": "on it", "since": 5}}});
    let known: AlertAcknowledgements = accepted(&good);
    assert_eq!((known.alerts[key].since, known.alerts[key].reason.as_deref()), (Some(5), None));
    assert_eq!(accepted::<AlertAcknowledgements>(&json!({})), AlertAcknowledgements::default());
    let silenced = json!({"alerts": {key: {"by": "ada", "at": at, "until": at}}});
    assert_eq!(accepted::<AlertAcknowledgements>(&silenced).alerts[key].until.as_deref(), Some(at));
    let long = "x".repeat(1_001);
    for bad in [
        json!({"alerts": {key: {"by": "ada"}}}),
        json!({"alerts": {key: {"by": "ada", "at": "today"}}}),
        json!({"alerts": {key: {"by": "ada", "at": at, "note": long}}}),
        json!({"alerts": {key: {"by": "ada", "at": at, "until": "tomorrow"}}}),
        json!({"alerts": {key: {"by": "ada", "at": at, "silent": true}}}),
        json!({"alerts": {"x".repeat(1_025): {"by": "ada", "at": at}}}),
        json!({"silences": {}}),
    ] {
        refused(&application::ALERT_ACKNOWLEDGEMENTS, &bad);
    }
}

#[test]
fn recoveries_name_the_store_and_an_epoch_that_was_raised() {
    let recovery: EdgeClusterRecovery = accepted(&json!({"store": A, "epoch": 2, "decision": "adopt"}));
    assert_eq!((recovery.store.to_string().as_str(), recovery.epoch), (A, 2));
    let digest = "5a".repeat(32);
    let recovery: EdgeClusterRecovery =
        accepted(&json!({"store": A, "epoch": 2, "decision": "adopt", "accepted": digest}));
    assert_eq!(recovery.accepted, Some(digest));
    for bad in [
        json!({"store": A, "epoch": 1, "decision": "adopt", "accepted": "5A"}),
        json!({"store": A, "epoch": 0, "decision": "adopt"}),
        json!({"store": "x", "epoch": 1, "decision": "adopt"}),
        json!({"store": A, "epoch": 1, "decision": "delete"}),
        json!({"epoch": 1, "decision": "discard"}),
    ] {
        refused(&application::EDGE_CLUSTER_RECOVERY, &bad);
    }
}

#[test]
fn identities_say_what_was_issued_to_whom() {
    let (hash, time) = ("5a".repeat(32), "2026-11-22T04:00:00Z");
    let good = json!({"key": "A".repeat(43), "authority": "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n",
        "tokens": [{"hash": hash, "used": time, "key": hash}],
        "certificates": [{"serial": "4a01", "node": "cluster", "kind": "mqtt", "key": hash, "issued": time,
            "expires": "2026-12-22T04:00:00Z", "fence": 0, "state": "valid"}],
        "alerts": [{"kind": "token-reused", "at": time, "text": "a second key used a token"}]});
    accepted::<EdgeClusterIdentity>(&good);
    accepted::<EdgeClusterIdentity>(&json!({"key": "A".repeat(43), "authority": "-----BEGIN CERTIFICATE-----"}));
    let changed = |pointer: &str, value: Value| {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        bad
    };
    for bad in [
        json!({}),
        changed("/key", json!("too short")),
        changed("/authority", json!("-----BEGIN PRIVATE KEY-----")),
        changed("/certificates/0/kind", json!("ssh")),
        changed("/certificates/0/state", json!("unknown")),
        changed("/alerts/0/kind", json!("x")),
    ] {
        refused(&application::EDGE_CLUSTER_IDENTITY, &bad);
    }
}

#[test]
fn tokens_of_people_are_known_by_their_hash_and_end() {
    let (hash, time) = ("5a".repeat(32), "2026-11-22T04:00:00Z");
    let good = json!({"name": "press-shop", "hash": hash, "scope": "operator", "clusters": [A], "issued": time,
        "expires": "2027-02-20T04:00:00Z", "by": "ada"});
    let token: ApiToken = accepted(&good);
    assert_eq!((token.scope, token.clusters), (TokenScope::Operator, Some(vec![A.parse().unwrap()])));
    let changed = |key: &str, value: Option<Value>| {
        let mut bad = good.clone();
        match value {
            Some(value) => bad[key] = value,
            None => drop(bad.as_object_mut().unwrap().remove(key)),
        }
        bad
    };
    assert_eq!(accepted::<ApiToken>(&changed("clusters", None)).clusters, None);
    for bad in [
        changed("hash", Some(json!("sfp_0123456789012345678901234567890123456789012"))),
        changed("scope", Some(json!("root"))),
        changed("clusters", Some(json!([]))),
        changed("clusters", Some(json!(["Paint_Shop"]))),
        changed("expires", None),
        changed("expires", Some(json!("in 90 days"))),
        changed("name", Some(json!("a b"))),
        changed("token", Some(json!("sfp_x"))),
    ] {
        refused(&application::API_TOKEN, &bad);
    }
}

#[test]
fn accounts_name_their_cluster_and_principal_and_are_closed() {
    let account: EdgeAccount = accepted(&json!({"cluster": A, "principal": "nd1/Paint/Robot@ACME.EXAMPLE",
        "managed": true, "groups": [B], "node": "Robot"}));
    assert_eq!((account.groups.len(), account.node.as_deref()), (1, Some("Robot")));
    accepted::<EdgeAccount>(&json!({"cluster": A, "principal": "p@A", "managed": false}));
    for bad in [
        json!({"cluster": A, "managed": true}),
        json!({"cluster": "x", "principal": "p@A", "managed": true}),
        json!({"cluster": A, "principal": "p@A", "managed": true, "password": "x"}),
        json!({"cluster": A, "principal": "p@A", "managed": true, "groups": ["x"]}),
    ] {
        refused(&application::EDGE_ACCOUNT, &bad);
    }
}

#[test]
fn sealed_secrets_hold_ciphertext_under_names_of_kubernetes_and_are_closed() {
    let at = "2027-01-15T08:00:00.000Z";
    let secret = |changes: Value| {
        let mut secret = json!({"cluster": A, "namespace": "fplus-edge", "name": "press-login",
            "keys": {"password": {"value": "AAAA", "sealedFor": "0f".repeat(32), "at": at}, "old": {"at": at}}});
        secret.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        secret
    };
    let read: SealedSecret = accepted(&secret(json!({})));
    assert_eq!(
        (read.scope, read.secret_type.as_str(), read.keys["old"].value.as_ref()),
        (SealingScope::Strict, "Opaque", None)
    );
    accepted::<SealedSecret>(&secret(json!({"scope": "cluster-wide", "type": "kubernetes.io/tls", "keys": {}})));
    for bad in [
        json!({"namespace": "a/b"}),
        json!({"name": "../x"}),
        json!({"scope": "wide"}),
        json!({"type": "a b"}),
        json!({"value": "plain"}),
        json!({"keys": {"a/b": {"at": at}}}),
        json!({"keys": {"a": {"value": "plain text", "at": at}}}),
        json!({"keys": {"a": {"value": "AAAA"}}}),
        json!({"keys": {"a": {"value": "AAAA", "at": "2027-01-15T08:00:00Z"}}}),
        json!({"keys": {"a": {"value": "AAAA", "at": at, "sealedFor": "f1"}}}),
    ] {
        refused(&application::SEALED_SECRET, &secret(bad));
    }
}

#[test]
fn labels_are_texts_under_keys_that_a_selector_can_name() {
    let info: Info = accepted(&json!({"name": "Paint_Shop", "labels": {"site": "Graz", "acme.example-line": "2"}}));
    assert_eq!(info.labels["site"], "Graz");
    for bad in [json!({"site": 1}), json!({"site": ""}), json!({"a b": "c"}), json!({"-a": "b"}), json!(["site"])] {
        refused(&application::INFO, &json!({"name": "Paint_Shop", "labels": bad}));
    }
}

#[test]
fn general_information_needs_a_name() {
    accepted::<Info>(
        &json!({"name": "Robot Cell 3", "contact": [{"name": "Cell team", "email": "cell3@acme.example"}]}),
    );
    refused(&application::INFO, &json!({"location": "Hall 2"}));
    refused(&application::INFO, &json!({"name": ""}));
    refused(&application::INFO, &json!({"name": "x", "contact": [{"email": "a@b"}]}));
}

#[test]
fn registrations_are_closed() {
    let value = json!({"uuid": B, "rank": 0, "class": "00da3c0b-f62b-4761-a689-39ad0c33f864",
        "owner": "091e796a-65c0-4080-adff-c3ce01a65b2e", "deleted": false, "strict": true});
    assert_eq!(errors(application::REGISTRATION_SCHEMA, &value), Vec::<String>::new());
    let typed: Registration = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), value);
    let mut bad = value;
    bad["rank"] = json!(4);
    assert!(!errors(application::REGISTRATION_SCHEMA, &bad).is_empty());
}

#[test]
fn every_schema_is_valid_json_schema_and_every_default_obeys_its_schema() {
    for application in APPLICATIONS {
        let schema: Value = serde_json::from_str(application.schema).unwrap();
        assert!(jsonschema::meta::is_valid(&schema), "{}", application.slug);
        assert_eq!(errors(application::CONFIG_SCHEMA.schema, &schema), Vec::<String>::new());
    }
    let known: Vec<_> = defaults::objects().map(|o| o.uuid).collect();
    for entry in defaults::entries() {
        let value = serde_json::from_str(entry.json).unwrap();
        assert_eq!(
            errors(entry.application.schema, &value),
            Vec::<String>::new(),
            "{} {}",
            entry.application.slug,
            entry.object
        );
        assert!(known.contains(&entry.object));
    }
}

/// What the entries of a fresh store name exists. The image of the central services contains each chart. Each directory that Flux is to apply is in the repository in which Flux looks for it.
#[test]
fn default_templates_name_nothing_that_is_not_shipped() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let image = std::fs::read_to_string(root.join("compose/Dockerfile")).unwrap();
    let mut charts = 0;
    for entry in defaults::entries() {
        if entry.application.slug == "HelmChartTemplate" {
            let template: HelmChartTemplate = serde_json::from_str(entry.json).unwrap();
            let chart = &template.chart;
            assert_eq!(template.source, None, "{chart} comes from the shared repository");
            for file in ["Chart.yaml", "values.yaml"] {
                assert!(root.join("helm").join(chart).join(file).is_file(), "helm/{chart} has no {file}");
            }
            assert!(image.contains(&format!("COPY helm/{chart} /usr/share/sparkfleet/charts/{chart}\n")), "{chart}");
            // A chart that takes none of them ignores what it is given.
            let values = std::fs::read_to_string(root.join("helm").join(chart).join("values.yaml")).unwrap();
            for key in template.values.keys() {
                assert!(values.lines().any(|line| line.starts_with(&format!("{key}:"))), "{chart}: {key}");
            }
            charts += 1;
        }
        if entry.application.slug == "FluxTemplate" {
            let template: Value = serde_json::from_str(entry.json).unwrap();
            let items = template.as_object().unwrap().values().flat_map(|items| items.as_array().unwrap());
            for item in items.filter(|item| item["kind"] == "Kustomization") {
                let from = (item["spec"]["path"].as_str(), item["spec"]["sourceRef"]["name"].as_str());
                assert_eq!(from, (Some("./"), Some("self-link")), "only the cluster's own repository has manifests");
            }
        }
    }
    assert!(charts >= 2, "{charts}");
}
