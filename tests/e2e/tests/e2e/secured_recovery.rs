//! What must hold when stores are restored, services run twice and operators write. The tests run on a Mosquitto with client certificates and the rules of `sparkfleet acl generate`, over both versions of MQTT.

use std::fs;

use e2e::secured_site::{FOREIGN_GROUP, Site, listener, mqtt};
use e2e::wait;
use serde_json::Value;
use simulator::cluster::{ClusterSpec, HostSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use sparkplug::Metric;
use sparkplug::payload::{EncodeOptions, Form, Payload, encode};
use sparkplug_mqtt::{ListenerEvent, ListenerHandle};

use crate::factory::uuid;
use crate::recovery::{path, remove_database, running};

const OPERATOR: &str = "ACME-Central-Operator";
const ADA: &str = "ACME-Central-Operator-ada";
const BOB: &str = "ACME-Central-Operator-bob";

/// A line of ConfigDB's record of writes.
fn records(site: &Site) -> Vec<Value> {
    let text = fs::read_to_string(site.state_dir("configdb").join("audit.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Who wrote the entries of that application, in order.
fn writers(site: &Site, slug: &str) -> Vec<String> {
    let of_slug = records(site).into_iter().filter(|record| {
        record["target"].as_str().is_some_and(|target| target.contains(&format!("/{slug} revision ")))
    });
    of_slug.map(|record| record["who"].as_str().unwrap().to_owned()).collect()
}

/// A session of `user` that receives these topics.
async fn listening(site: &Site, user: &str, topics: &[&str]) -> ListenerHandle {
    listener(&mqtt(&site.server, user), topics).await
}

/// Patches the entry `Info` by the connection of `user`, in a command to ConfigDB's Device `device`, and claims to be ada.
async fn forge(site: &Site, user: &str, device: &str, object: &str, id: &str) {
    let listener = listening(site, user, &["NBIRTH/ConfigDB"]).await;
    let value = serde_json::json!({ "name": id }).to_string();
    let mut metrics = vec![
        Metric::new("Request/Id", id),
        Metric::new("Request/Mode", "patch"),
        Metric::new("Request/Writer", format!("user:{ADA}")),
        Metric::new("Info", value),
    ];
    if device != object {
        metrics.push(Metric::new("Request/Object", object));
    }
    let payload = encode(&Payload { metrics, ..Payload::default() }, &EncodeOptions::for_any_reader(Form::Command));
    listener.publish(format!("spBv1.0/ACME-Central/DCMD/ConfigDB/{device}"), payload).await.unwrap();
    listener.stop().await;
}

async fn operators_are_distinguished(protocol: &str) {
    let site = Site::start_over(protocol, &["ada", "bob"]).await;
    let bob = site.cli_of(BOB);
    let alpha = uuid(&site.cli.json(&["cluster", "create", "Alpha"]).await).to_string();
    bob.json_with(&["config", "patch", &alpha, "Info", "-"], r#"{"name": "Alpha 2"}"#).await;
    bob.json(&["token", "create", "ci", "--scope", "viewer"]).await;
    assert_eq!(writers(&site, "EdgeCluster"), [format!("user:{ADA}")]);
    assert_eq!(writers(&site, "Info").last(), Some(&format!("user:{BOB}")));
    let token = records(&site).into_iter().find(|record| record["operation"] == "create-token").unwrap();
    assert_eq!((&token["who"], &token["target"]), (&format!("user:{BOB}").into(), &"ci".into()));
    // Reading works without the right to send to the Device of the object.
    assert_eq!(bob.json(&["config", "get", &alpha, "Info"]).await["name"], "Alpha 2");
    let history = bob.json(&["config", "history", &alpha, "Info"]).await;
    assert!(history.to_string().contains(&format!("user:{BOB}")), "{history:#}");
    // A claim in the request says nothing, and neither the other's name nor none can be used.
    forge(&site, BOB, ADA, &alpha, "as-ada").await;
    forge(&site, BOB, &alpha, &alpha, "as-none").await;
    forge(&site, BOB, BOB, &alpha, "as-bob").await;
    let arrived = || records(&site).iter().any(|record| record["request"] == "as-bob").then_some(());
    wait::until("the write in bob's own name", arrived, || site.processes.tails()).await;
    assert_eq!(writers(&site, "Info").last(), Some(&format!("user:{BOB}")));
    let written = records(&site).iter().any(|record| ["as-ada", "as-none"].iter().any(|id| record["request"] == *id));
    assert!(!written, "{:#?}", records(&site));
    assert_eq!(bob.json(&["config", "get", &alpha, "Info"]).await["name"], "as-bob");
    let file = site.state_dir("configdb").join("audit.jsonl").display().to_string();
    assert!(bob.json(&["audit", "verify", &file]).await["records"].as_u64() > Some(3));
    // The server does what the rules say of both.
    let directory = site.server.directory().display().to_string();
    let check = ["acl", "check", "--credentials", &directory, "--cluster", "Paint_Shop", "--cluster", "Weld_Shop"];
    let named = ["--operator", "ada", "--operator", "bob", "--foreign-group", FOREIGN_GROUP];
    let rows = site.cli.json(&[&check[..], &named].concat()).await;
    for user in [ADA, BOB] {
        let row = rows.as_array().unwrap().iter().find(|row| row["user"] == user).unwrap();
        assert!(row["tried"].as_u64() > Some(30), "{row:#}");
    }
    site.processes.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_distinguished_by_the_server_in_mqtt_3_1_1() {
    operators_are_distinguished("3.1.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_distinguished_by_the_server_in_mqtt_5() {
    operators_are_distinguished("5").await;
}

/// The cluster as `cluster list` has it, once it is so.
async fn row(site: &Site, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    site.until(what, async || {
        let listed = site.cli.run(&["cluster", "list", "--output", "json"]).await;
        let rows: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap_or_default();
        rows.into_iter().find(|row| row["name"] == "Paint_Shop" && is_so(row))
    })
    .await
}

/// A control plane, and cluster `Paint_Shop` with its edge.
struct Story {
    site: Site,
    cluster: SimulatedCluster,
}

impl Story {
    async fn start(protocol: &str) -> Self {
        let site = Site::start_over(protocol, &[]).await;
        let hosts = vec![HostSpec::control_plane("paint-1")];
        let spec = ClusterSpec { hosts, flux: false, ..ClusterSpec::new("Paint_Shop") };
        let cluster = SimulatedCluster::start(spec, Charts::new()).await.unwrap();
        let created = uuid(&site.cli.json(&["cluster", "create", "Paint_Shop"]).await);
        let tables = format!(
            "[cluster]\nname = \"Paint_Shop\"\nuuid = \"{created}\"\n[kubernetes]\nnamespace = \"fplus-edge\"\nurl = \"{}\"\n",
            cluster.url()
        );
        for service in ["edge-sync", "edge-monitor"] {
            site.run_with(service, "ACME-Paint_Shop", ("simulated = true\n", &tables), site.server.directory());
        }
        Self { site, cluster }
    }

    /// Creates the last of these deployments; then all of them run.
    async fn deploy(&self, names: &[&str]) {
        let name = names[names.len() - 1];
        self.site.cli.json(&["deployment", "create", name, "--cluster", "Paint_Shop"]).await;
        self.until_running(names).await;
    }

    async fn until_running(&self, names: &[&str]) {
        let runs = || (running(&self.cluster) == names).then_some(());
        wait::until(&format!("{names:?} to run"), runs, || self.site.processes.tails()).await;
    }

    fn assert_untouched(&self) {
        assert_eq!(running(&self.cluster), ["Oven_1", "Oven_2"]);
    }

    async fn adopt(&self) {
        self.site.cli.json(&["recover", "adopt", "Paint_Shop", "--timeout", "120s"]).await;
        self.assert_untouched();
        row(&self.site, "the hold to end", |row| row["held"].is_null() && row["setup"] == "ready").await;
        let listed = self.site.cli.json(&["deployment", "list"]).await;
        let names: Vec<&str> = listed.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["Oven_1", "Oven_2"]);
    }

    /// ConfigDB loses its database.
    fn lose_store(&self) {
        assert!(self.site.processes.kill("configdb"));
        remove_database(&self.site.state_dir("configdb"));
    }

    async fn stop(self) {
        self.site.processes.stop().await;
        self.cluster.stop().await;
    }
}

/// What ConfigDB publishes while `during` runs, by topic.
async fn published_by_configdb(site: &Site, during: impl Future<Output = ()>) -> Vec<String> {
    let topics = ["NBIRTH/ConfigDB", "DBIRTH/ConfigDB/+", "DDATA/ConfigDB/+"];
    let mut listener = listening(site, OPERATOR, &topics).await;
    during.await;
    let mut received = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(wait::LOOK, listener.recv()).await {
        if let ListenerEvent::Message { topic, .. } = event {
            received.push(topic);
        }
    }
    listener.stop().await;
    received
}

// long: one story in its order
async fn an_empty_store_deletes_nothing_and_is_filled_from_the_edge_or_a_dump(protocol: &str) {
    let story = Story::start(protocol).await;
    let site = &story.site;
    story.deploy(&["Oven_1"]).await;
    let dump = site.cli.json(&["config", "dump"]).await;
    story.deploy(&["Oven_1", "Oven_2"]).await;

    // An empty store. The edge dies meanwhile, and every list is answered.
    story.lose_store();
    site.processes.restart_with("configdb", &["--new-store"]);
    row(site, "the cluster to be known by its edge alone", |row| row["setup"] == "not desired").await;
    story.assert_untouched();
    assert!(site.processes.kill("edge-sync") && site.processes.kill("edge-monitor"));
    for list in ["cluster", "deployment", "host", "alert"] {
        site.cli.json(&[list, "list"]).await;
    }
    ["edge-sync", "edge-monitor"].iter().for_each(|service| site.processes.restart(service));
    row(site, "the edge to be back", |row| row["setup"] == "not desired" && row["alive"] == true).await;
    story.adopt().await;

    // One object is read without a word about any other.
    let shown = site.cli.json(&["deployment", "show", "Paint_Shop/Oven_2"]).await;
    let oven = shown["deployment"]["uuid"].as_str().unwrap();
    let read = async {
        for _ in 0..3 {
            assert_eq!(site.cli.json(&["config", "get", oven, "EdgeDeployment"]).await["name"], "Oven_2");
        }
    };
    let published = published_by_configdb(site, read).await;
    let of_object = format!("spBv1.0/ACME-Central/DDATA/ConfigDB/{oven}");
    assert!(!published.is_empty() && published.iter().all(|topic| *topic == of_object), "{published:?}");

    // Another empty store, of which no operator has raised the epoch, and a dump of before the second deployment.
    story.lose_store();
    site.processes.restart("configdb");
    site.cli.json_with(&["config", "load", "-"], &dump.to_string()).await;
    let held = row(site, "the cluster to be held", |row| row["held"].is_string()).await;
    assert!(held["held"].as_str().unwrap().contains("the control plane is at epoch 0"), "{held:#}");
    story.assert_untouched();
    story.adopt().await;
    story.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_access_rules_an_empty_store_deletes_nothing_and_is_filled_from_the_edge_or_a_dump_in_mqtt_3_1_1() {
    an_empty_store_deletes_nothing_and_is_filled_from_the_edge_or_a_dump("3.1.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_access_rules_an_empty_store_deletes_nothing_and_is_filled_from_the_edge_or_a_dump_in_mqtt_5() {
    an_empty_store_deletes_nothing_and_is_filled_from_the_edge_or_a_dump("5").await;
}

async fn a_restored_store_deletes_nothing_and_a_second_one_ends(protocol: &str) {
    let story = Story::start(protocol).await;
    let Story { site, cluster } = &story;
    story.deploy(&["Oven_1"]).await;
    let (backup, state) = (site.directory.path().join("backup.sqlite"), site.state_dir("configdb"));
    site.cli.json(&["config", "backup", path(&backup), "--state", path(&state)]).await;
    story.deploy(&["Oven_1", "Oven_2"]).await;

    // A second control plane, with a store of its own.
    let second = site.second_control_plane(&site.directory.path().join("second"));
    for service in ["configdb", "cluster-manager", "identity", "git-server"] {
        let code = || second.exit_code(service);
        let code = wait::until(&format!("the second {service} to end"), code, || second.tails()).await;
        assert_eq!(code, 5, "{service}\n{}\n{}", second.tails(), site.processes.tails());
        assert!(site.processes.runs(service), "{service}\n{}", site.processes.tails());
    }
    let said = second.logs();
    for service in ["ConfigDB", "Cluster-Manager", "Identity", "Git"] {
        let line = format!("sparkfleet: another {service} of ACME-Central is on this MQTT server: instance ");
        assert!(said.contains(&line), "{service}\n{said}");
    }
    let listed = site.cli.json(&["cluster", "list"]).await;
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed:#}");
    assert_eq!(running(cluster), ["Oven_1", "Oven_2"]);

    // The store of before the second deployment.
    assert!(site.processes.kill("configdb"));
    site.cli.json(&["config", "restore", path(&backup), "--state", path(&state), "--yes"]).await;
    site.processes.restart("configdb");
    let held = row(site, "the cluster to be held", |row| row["held"].is_string()).await;
    assert!(held["held"].as_str().unwrap().contains("older"), "{held:#}");
    assert_eq!(running(cluster), ["Oven_1", "Oven_2"]);
    let status = site.cli.json(&["recover", "status", "Paint_Shop"]).await;
    assert_eq!(status[0]["only_at_edge"][0]["name"], "Oven_2", "{status:#}");
    site.cli.json(&["recover", "adopt", "Paint_Shop", "--timeout", "120s"]).await;
    row(site, "the hold to end", |row| row["held"].is_null()).await;
    assert_eq!(running(cluster), ["Oven_1", "Oven_2"]);
    // The record says where the store was set back, and its chain holds over it.
    let set_back = records(site).iter().filter(|record| record["operation"] == "replace-store").count();
    assert_eq!(set_back, 1, "{:#?}", records(site));
    let file = state.join("audit.jsonl");
    site.cli.json(&["audit", "verify", path(&file)]).await;
    story.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_access_rules_a_restored_store_deletes_nothing_and_a_second_one_ends_in_mqtt_3_1_1() {
    a_restored_store_deletes_nothing_and_a_second_one_ends("3.1.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_access_rules_a_restored_store_deletes_nothing_and_a_second_one_ends_in_mqtt_5() {
    a_restored_store_deletes_nothing_and_a_second_one_ends("5").await;
}
