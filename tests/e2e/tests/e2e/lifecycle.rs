//! One cluster's life on Mosquitto, through the command line alone; then the wire is looked at.

use e2e::mosquitto::Mosquitto;
use e2e::recorder::Recorder;
use e2e::wait;
use e2e::wire::{self, Reader};
use serde_json::json;
use sparkplug::Value;

use crate::factory::{Up, uuid};

const GROUP: &str = "ACME-Paint_Shop";

// long: one story in its order
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_lives_from_creation_to_deletion_and_nothing_on_the_wire_breaks_a_rule() {
    let server = Mosquitto::start();
    let recorder = Recorder::start(server.address()).await;
    let mut up = Up::on(server.address()).await;
    let cli = up.cli.clone();

    let created = cli.json(&["cluster", "create", "Paint_Shop", "--wait"]).await;
    assert_eq!(created["state"], "alive");
    let cluster = uuid(&created);
    let password = up.git_password(cluster).await;
    // A cluster is alive with its first host; the others join after it.
    up.process.says("cluster Paint_Shop: setup ready, edge alive, hosts 3/3 ready").await;
    let shown = cli.json(&["cluster", "show", "Paint_Shop"]).await;
    assert_eq!(shown["cluster"]["setup"], "ready", "{shown:#}");
    assert_eq!(shown["cluster"]["hosts"], json!({ "ready": 3, "total": 3 }));
    assert_eq!(shown["cluster"]["simulated"], true);
    let hosts = shown["hosts"].as_array().unwrap();
    let names: Vec<&str> = hosts.iter().map(|host| host["hostname"].as_str().unwrap()).collect();
    assert_eq!(names, ["paint-shop-1", "paint-shop-2", "paint-shop-3"]);
    assert_eq!(hosts[0]["role"], "control-plane");

    let create = ["deployment", "create", "Oven_1", "--cluster", "Paint_Shop", "--host", "paint-shop-2", "--wait"];
    let deployed = cli.json(&create).await;
    assert_eq!(deployed["state"], "ready");
    assert_eq!(deployed["deployment"]["host"], "paint-shop-2");
    let oven = uuid(&deployed).to_string();
    let config = r#"{"deviceConnections": [{"name": "PLC", "connType": "Simulated", "pollInt": 200,
        "devices": [{"deviceId": "Burner"}]}]}"#;
    cli.json_with(&["config", "put", &oven, "AgentConfig", "-"], config).await;
    wait_for(&recorder, "the agent and its machine to be born", |reader| {
        reader.node(GROUP, "Oven_1").is_some_and(|agent| agent.is_alive && agent.devices.contains_key("Burner"))
    })
    .await;
    wait_for(&recorder, "the monitor to see the agent online", |reader| {
        let device = reader.node(GROUP, "Monitor").and_then(|monitor| monitor.devices.get("Oven_1"));
        device.is_some_and(|metrics| metrics["Status/State"] == Some(Value::from("online")))
    })
    .await;

    let moved = cli.json(&["deployment", "move", "Paint_Shop/Oven_1", "--host", "paint-shop-3", "--wait"]).await;
    assert_eq!(moved["deployment"]["host"], "paint-shop-3");
    assert_eq!(moved["deployment"]["state"], "applied");

    let refused = cli.run(&["cluster", "delete", "Paint_Shop"]).await;
    refused.refused(5, "Oven_1");
    let deleted = cli.json(&["deployment", "delete", "Paint_Shop/Oven_1", "--wait"]).await;
    assert_eq!(deleted["state"], "deleted");
    wait_for(&recorder, "the death of the agent", |reader| !reader.node(GROUP, "Oven_1").unwrap().is_alive).await;
    let deleted = cli.json(&["cluster", "delete", "Paint_Shop", "--wait"]).await;
    assert_eq!(deleted["state"], "deleted");
    wait_for(&recorder, "the deaths of the edge's services", |reader| {
        ["Sync", "Monitor"].iter().all(|node| !reader.node(GROUP, node).unwrap().is_alive)
    })
    .await;
    assert_eq!(cli.json(&["cluster", "list"]).await, json!([]));
    assert_eq!(cli.json(&["deployment", "list"]).await, json!([]));

    up.process.interrupt();
    let status = up.process.ended().await;
    assert_eq!(status.code(), Some(0), "{}", up.process.tail());
    wait_for(&recorder, "the deaths of the central services", |reader| {
        reader.nodes().values().all(|node| !node.is_alive)
    })
    .await;

    let messages = recorder.messages();
    let reader = Reader::read(&messages);
    reader.assert_clean();
    for (name, node) in reader.nodes() {
        assert_eq!(node.sessions, node.deaths, "{name}: every session ends with its NDEATH");
    }
    let (hosts, nodes): (Vec<String>, Vec<String>) =
        reader.nodes().keys().map(ToString::to_string).partition(|node| node.starts_with(&format!("{GROUP}-Join/")));
    assert!(hosts.len() <= 2, "two of the three hosts join: {hosts:?}");
    let expected = ["ConfigDB", "Cluster-Manager", "Console", "Git", "Identity", "Monitor"]
        .map(|node| format!("ACME-Central/{node}"));
    let of_cluster = ["Join", "Sync", "Monitor", "Oven_1"].map(|node| format!("{GROUP}/{node}"));
    let mut expected: Vec<String> = expected.into_iter().chain(of_cluster).collect();
    expected.sort();
    assert_eq!(nodes, expected);

    assert!(password.len() >= 16, "a shorter text would not be found");
    let secret = password.as_bytes();
    let encoded = base64_of_login("Paint_Shop", &password);
    for message in &messages {
        let holds = |needle: &[u8]| message.payload.windows(needle.len()).any(|window| window == needle);
        assert!(!holds(secret) && !holds(encoded.as_bytes()), "the git password is in a message on {}", message.topic);
    }
    let logs = up.logs();
    assert!(logs.contains("sparkfleet"), "there are no logs to look at");
    assert!(!logs.contains(&password) && !logs.contains(&encoded), "the git password is in the log");
}

/// What an HTTP client makes of a login; a log of requests could hold it.
fn base64_of_login(user: &str, password: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = format!("{user}:{password}");
    // Whole groups only: the last characters depend on nothing but the password, and most of it is compared in any case.
    text.as_bytes()
        .chunks_exact(3)
        .flat_map(|group| {
            let bits = u32::from(group[0]) << 16 | u32::from(group[1]) << 8 | u32::from(group[2]);
            [18, 12, 6, 0].map(|shift| char::from(DIGITS[(bits >> shift & 63) as usize]))
        })
        .collect()
}

/// Waits until a recording says so.
pub async fn wait_for(recorder: &Recorder, what: &str, says: impl Fn(&Reader) -> bool) {
    let mut reader = Reader::default();
    let found = || {
        reader.follow(recorder);
        says(&reader).then_some(())
    };
    let diagnosis = || {
        let messages = recorder.messages();
        let nodes = Reader::read(&messages);
        let nodes: Vec<String> = nodes.nodes().iter().map(|(name, node)| described(name, node)).collect();
        format!("--- nodes\n{}", nodes.join("\n"))
    };
    wait::until(what, found, diagnosis).await;
}

fn described(name: &sparkplug::EdgeNodeDescriptor, node: &wire::Node) -> String {
    let devices: Vec<&str> = node.devices.keys().map(String::as_str).collect();
    let devices = if devices.len() > 8 { format!("{} devices", devices.len()) } else { devices.join(" ") };
    format!("{name}: alive {}, sessions {}, deaths {}, {devices}", node.is_alive, node.sessions, node.deaths)
}
