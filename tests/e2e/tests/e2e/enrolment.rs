//! A cluster enrols by a one-time token where the broker ACL applies: Mosquitto asks for certificates, the site's own authority signs them.

use std::fs;

use e2e::central_services::git_password;
use e2e::mosquitto::Mosquitto;
use e2e::process::Process;
use e2e::program;
use e2e::secured_site::{LIMIT, Site, mqtt};
use enrolment_protocol::token::Token;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use simulator::cluster::{ClusterSpec, HostSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use sparkplug::session::QoS;
use sparkplug_mqtt::{Clock, ListenerEvent, MqttConfig, spawn_listener};
use uuid::Uuid;

pub async fn kubernetes(name: &str) -> SimulatedCluster {
    let spec = ClusterSpec { hosts: vec![HostSpec::control_plane("paint-1")], flux: false, ..ClusterSpec::new(name) };
    SimulatedCluster::start(spec, Charts::new()).await.unwrap()
}

/// The Secrets of the cluster's namespace.
pub fn secrets(cluster: &SimulatedCluster) -> Api<Secret> {
    let client = kube::Client::try_from(kube::Config::new(cluster.url().parse().unwrap())).unwrap();
    Api::namespaced(client, "fplus-edge")
}

pub async fn secret(cluster: &SimulatedCluster, name: &str) -> std::collections::BTreeMap<String, String> {
    let secret = secrets(cluster).get(name).await.unwrap();
    let text = |bytes: k8s_openapi::ByteString| String::from_utf8(bytes.0).unwrap();
    secret.data.unwrap().into_iter().map(|(key, value)| (key, text(value))).collect()
}

// long: one story, each step of which needs the one before
#[tokio::test(flavor = "multi_thread")]
async fn a_token_lets_one_cluster_in_once_and_what_is_revoked_stays_out() {
    let site = Site::start().await;
    let (token, other, wrong) = (Token::new([1; 32]), Token::new([2; 32]), Token::new([3; 32]));
    let (cluster, key) = site.cluster("Paint_Shop", &token, "2099-01-01T00:00:00Z").await;
    let (late, _) = site.cluster("Weld_Shop", &other, "2026-01-02T00:00:00Z").await;
    let (own, thief) = (kubernetes("Paint_Shop").await, kubernetes("Thief").await);

    for (asked, token, reason) in
        [(cluster, &wrong, "unknown-token"), (cluster, &other, "unknown-token"), (late, &other, "token-expired")]
    {
        let outcome = site.enrol(asked, &key, token, &thief.url()).await;
        assert_eq!(outcome.code, 1, "{outcome:#?}\n{}", site.processes.tails());
        assert!(outcome.stderr.contains(reason), "{outcome:#?}");
    }
    let first = site.enrol(cluster, &key, &token, &own.url()).await;
    assert_eq!(first.code, 0, "{first:#?}\n{}", site.processes.tails());
    let again = site.enrol(cluster, &key, &token, &own.url()).await;
    assert!(again.code == 0 && again.stderr.contains("already"), "{again:#?}");
    let second = site.enrol(cluster, &key, &token, &thief.url()).await;
    assert!(second.code == 1 && second.stderr.contains("token-used"), "{second:#?}");
    let identity = site.entry(cluster, "EdgeClusterIdentity").await.unwrap();
    assert_eq!(identity["alerts"][0]["kind"], "token-reused", "{identity}");
    assert_eq!(identity["certificates"].as_array().unwrap().len(), 1, "{identity}");
    let serial = identity["certificates"][0]["serial"].as_str().unwrap().to_owned();

    let git = secret(&own, "flux-secrets").await;
    let state_dir = site.state_dir("cluster-manager");
    assert_eq!(
        (git["username"].as_str(), &git["password"]),
        (&*cluster.to_string(), &git_password(&state_dir, cluster).await)
    );
    let credentials = secret(&own, "sparkfleet-identity").await;
    let folder = site.directory.path().join("edge");
    fs::create_dir_all(&folder).unwrap();
    for (key, file) in [("tls.crt", "edge.pem"), ("tls.key", "edge.key"), ("ca.crt", "sparkfleet-ca.pem")] {
        fs::write(folder.join(file), &credentials[key]).unwrap();
    }
    let tables = format!(
        "[cluster]\nname = \"Paint_Shop\"\nuuid = \"{cluster}\"\n[kubernetes]\nnamespace = \"fplus-edge\"\nurl = \"{}\"\n",
        own.url()
    );
    site.run("edge-sync", "edge", &tables, &folder);
    site.until("the birth of edge sync under its own certificate", async || {
        let rows = site.cli.json(&["cluster", "list"]).await;
        rows.as_array().unwrap().iter().any(|row| row["name"] == "Paint_Shop" && row["alive"] == true).then_some(())
    })
    .await;

    let listed = || site.lists(&serial.to_uppercase());
    assert!(!listed());
    site.put(cluster, &json!({"fence": 1})).await;
    site.until("the list of revoked certificates", async || listed().then_some(())).await;
    let edge = MqttConfig {
        cert_file: Some(folder.join("edge.pem")),
        key_file: Some(folder.join("edge.key")),
        ..mqtt(&site.server, "ACME-Central-Operator")
    };
    revoked_certificates_are_refused(&site, edge).await;

    // No secret was logged.
    let (logs, password) = (site.processes.logs(), git["password"].clone());
    for hidden in [token.expose(), &password, "PRIVATE KEY"] {
        assert!(!logs.contains(hidden) && !first.stderr.contains(hidden));
    }
    site.processes.stop().await;
    own.stop().await;
    thief.stop().await;
}

/// A server that reads Identity's list admits the operator, and refuses the cluster whose certificate is revoked.
async fn revoked_certificates_are_refused(site: &Site, edge: MqttConfig) {
    let names = ["sparkfleet-ca.pem", "server.pem", "server.key"];
    let lines = "cafile {dir}/sparkfleet-ca.pem\ncertfile {dir}/server.pem\nkeyfile {dir}/server.key\nrequire_certificate true\nuse_identity_as_username true\ncrlfile {dir}/revoked.pem";
    let server = Mosquitto::with(lines, |own| {
        for name in names {
            fs::copy(site.server.directory().join(name), own.join(name)).unwrap();
        }
        fs::copy(site.identity("revoked.pem"), own.join("revoked.pem")).unwrap();
    });
    let servers = vec![format!("mqtts://localhost:{}", server.address().port())];
    let operator = MqttConfig { servers: servers.clone(), ..mqtt(&site.server, "ACME-Central-Operator") };
    let edge = MqttConfig { servers, ..edge };
    for (config, may_connect) in [(operator, true), (edge, false)] {
        let mut listener = spawn_listener(vec![("#".to_owned(), QoS::AtMostOnce)], &config, Clock::new()).unwrap();
        let event = tokio::time::timeout(LIMIT, listener.recv()).await.unwrap().unwrap();
        assert_eq!(event == ListenerEvent::Online, may_connect, "{event:?}");
        listener.stop().await;
    }
}

// long: one enrolment after the other, each killed at another step
#[tokio::test(flavor = "multi_thread")]
async fn an_enrolment_that_was_killed_at_any_step_ends_the_same_when_it_is_run_again() {
    let site = Site::start().await;
    let (token, other) = (Token::new([1; 32]), Token::new([2; 32]));
    let (cluster, key) = site.cluster("Paint_Shop", &token, "2099-01-01T00:00:00Z").await;
    let own = kubernetes("Paint_Shop").await;
    let api = secrets(&own);
    let started = |cluster: Uuid, token: &Token, own: &SimulatedCluster| {
        let environment = site.enrolment(cluster, &key, token, &own.url());
        let environment: Vec<(&str, &str)> = environment.iter().map(|(key, value)| (&**key, &**value)).collect();
        Process::with("enrol", &program::sparkfleet(), &["enrol"], &environment, site.directory.path())
    };
    let value = |secret: &Secret, name: &str| secret.data.as_ref().unwrap()[name].0.clone();

    // Killed when the keys were kept, and no one had answered.
    site.processes.kill("identity");
    let mut enrol = started(cluster, &token, &own);
    let kept = site.until("the kept keys", async || api.get_opt("sparkfleet-enrolment-keys").await.unwrap()).await;
    enrol.kill();
    assert!(api.get_opt("sparkfleet-identity").await.unwrap().is_none());
    site.processes.restart("identity");
    let outcome = site.enrol(cluster, &key, &token, &own.url()).await;
    assert_eq!(outcome.code, 0, "{outcome:#?}\n{}", site.processes.tails());
    let kept_by_then = api.get("sparkfleet-enrolment-keys").await.unwrap();
    assert_eq!(value(&kept_by_then, "key"), value(&kept, "key"));
    let first = secret(&own, "sparkfleet-identity").await;
    assert_eq!(first["manager.key"], key);

    // Killed between the answer and the last Secret, and before the first of them.
    for lost in [&["sparkfleet-identity"][..], &["sparkfleet-identity", "flux-secrets"]] {
        for name in lost {
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
        let outcome = site.enrol(cluster, &key, &token, &own.url()).await;
        assert_eq!(outcome.code, 0, "{outcome:#?}\n{}", site.processes.tails());
        let again = secret(&own, "sparkfleet-identity").await;
        assert_eq!(again["tls.key"], first["tls.key"]);
        assert!(secret(&own, "flux-secrets").await.contains_key("password"));
    }

    // Killed as soon as the request has been recorded.
    let (second, _) = site.cluster("Weld_Shop", &other, "2099-01-01T00:00:00Z").await;
    let welding = kubernetes("Weld_Shop").await;
    let mut enrol = started(second, &other, &welding);
    let certificates =
        async |cluster| site.entry(cluster, "EdgeClusterIdentity").await.unwrap()["certificates"].clone();
    site.until("the record", async || certificates(second).await.is_array().then_some(())).await;
    enrol.kill();
    let outcome = site.enrol(second, &key, &other, &welding.url()).await;
    assert_eq!(outcome.code, 0, "{outcome:#?}\n{}", site.processes.tails());
    for cluster in [cluster, second] {
        assert_eq!(certificates(cluster).await.as_array().unwrap().len(), 1);
        let identity = site.entry(cluster, "EdgeClusterIdentity").await.unwrap();
        assert!(identity.get("alerts").is_none(), "{identity}");
    }
    site.processes.stop().await;
    own.stop().await;
    welding.stop().await;
}
