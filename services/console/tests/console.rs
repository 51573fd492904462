//! The console on a real Mosquitto: what it receives it shows, to many and live; what it is asked for causes no message.

use std::net::SocketAddr;
use std::time::Duration;

use cluster_manager_contract::NodeMetrics;
use configdb_contract::names;
use edge_monitor_contract::MonitorNode;
use identity_contract::IdentityNode;
use serde_json::Value;
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use sparkplug::edge_node::{EdgeNodeConfig, NodeUpdate};
use sparkplug::session::QoS;
use sparkplug::{EdgeNodeDescriptor, Metric, TypedMetrics};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, ListenerEvent, spawn_edge_node, spawn_listener};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::mosquitto::Mosquitto;

/// Every wait of these tests ends here.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct Scene {
    pub(crate) broker: Mosquitto,
    address: SocketAddr,
    shutdown: Shutdown,
    running: tokio::task::JoinHandle<anyhow::Result<()>>,
    pub(crate) state: tempfile::TempDir,
    _central: Vec<EdgeNodeHandle>,
}

/// A node that lives as long as the handle.
pub(crate) fn node(broker: &Mosquitto, group: &str, node: &str, metrics: Vec<Metric>) -> EdgeNodeHandle {
    let descriptor = EdgeNodeDescriptor::parse(group, node).unwrap();
    let config = EdgeNodeConfig::for_any_reader(descriptor);
    spawn_edge_node(config, metrics, &broker.config(), BdSeqStore::Memory, Clock::new()).unwrap()
}

fn config(broker: &Mosquitto, state: &tempfile::TempDir) -> console::Config {
    console::Config { state_dir: state.path().into(), mqtt: broker.config(), ..console::Config::default() }
}

async fn run(config: console::Config) -> (SocketAddr, Shutdown, tokio::task::JoinHandle<anyhow::Result<()>>) {
    let listener = console::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let running = tokio::spawn(console::serve(config, listener, shutdown.clone(), Health::new()));
    (address, shutdown, running)
}

impl Scene {
    /// A console, and the central services with an empty store.
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// The same with another configuration.
    pub(crate) async fn start_with(change: impl FnOnce(&mut console::Config)) -> Self {
        let broker = Mosquitto::start();
        let config_metrics = vec![
            Metric::new(names::CONFIG_STORE, uuid::Uuid::from_u128(5).to_string()),
            Metric::new(names::CONFIG_REVISION, 1_u64),
            Metric::new(names::CONFIG_OBJECTS, 0_u64),
            Metric::string(names::REQUEST_RESULT, None),
        ];
        let central = vec![
            node(&broker, "ACME-Central", "ConfigDB", config_metrics),
            node(&broker, "ACME-Central", "Cluster-Manager", NodeMetrics::default().to_metrics()),
            node(&broker, "ACME-Central", "Identity", IdentityNode::default().to_metrics()),
            node(&broker, "ACME-Central", "Monitor", MonitorNode::default().to_metrics()),
        ];
        let state = tempfile::tempdir().unwrap();
        let mut config = config(&broker, &state);
        change(&mut config);
        let (address, shutdown, running) = run(config).await;
        let scene = Self { broker, address, shutdown, running, state, _central: central };
        scene.until("console", |rows| rows.iter().any(|row| row["complete"] == true)).await;
        scene
    }

    /// A console that shows an export, as fast as it goes, beside a broker that it does not know.
    pub(crate) async fn replay(file: std::path::PathBuf) -> Self {
        let (broker, state) = (Mosquitto::start(), tempfile::tempdir().unwrap());
        let listener = console::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), Shutdown::new());
        let (progress, _) = tokio::sync::watch::channel(console::replay::Progress::default());
        let source = console::adapters::replay::Source { file, speed: None, repeat: false, progress };
        let config = console::Config { state_dir: state.path().into(), ..console::Config::default() };
        let running = tokio::spawn(console::replay(config, source, listener, shutdown.clone(), Health::new()));
        Self { broker, address, shutdown, running, state, _central: Vec::default() }
    }

    /// Stops the console and starts another one in its place.
    pub(crate) async fn restart(&mut self) {
        let (address, shutdown, running) = {
            self.shutdown.trigger();
            (&mut self.running).await.unwrap().unwrap();
            run(config(&self.broker, &self.state)).await
        };
        (self.address, self.shutdown, self.running) = (address, shutdown, running);
    }

    /// Waits until what happens is recorded.
    pub(crate) async fn recording(&self) {
        self.until("console", |rows| rows[0]["history"]["recording"] == true).await;
    }

    pub(crate) async fn get(&self, path: &str, fields: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let host = if fields.contains("Host:") { String::new() } else { format!("Host: {}\r\n", self.address) };
        let request = format!("GET {path} HTTP/1.1\r\n{host}{fields}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(LIMIT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_ascii_lowercase(), body.to_owned())
    }

    pub(crate) async fn rows(&self, table: &str) -> Vec<Value> {
        let (status, _, body) = self.get(&format!("/api/v1/{table}"), "").await;
        assert_eq!(status, 200, "{body}");
        let value: Value = serde_json::from_str(&body).unwrap();
        value["rows"].as_array().unwrap().clone()
    }

    pub(crate) async fn until(&self, table: &str, found: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let deadline = tokio::time::Instant::now() + LIMIT;
        loop {
            let rows = self.rows(table).await;
            if found(&rows) {
                return rows;
            }
            assert!(tokio::time::Instant::now() < deadline, "{table}: {rows:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn follow(&self, tables: &str, fields: &str) -> Follower {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET /api/v1/stream?tables={tables} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        Follower { lines: BufReader::new(stream), id: None }
    }

    pub(crate) async fn stop(self) {
        self.shutdown.trigger();
        self.running.await.unwrap().unwrap();
    }
}

struct Follower {
    lines: BufReader<TcpStream>,
    id: Option<String>,
}

impl Follower {
    /// The data of the next frame.
    async fn frame(&mut self) -> Value {
        let read = async {
            loop {
                let mut line = String::new();
                assert!(self.lines.read_line(&mut line).await.unwrap() > 0, "the stream ended");
                if let Some(id) = line.strip_prefix("id: ") {
                    self.id = Some(id.trim().to_owned());
                }
                if let Some(data) = line.strip_prefix("data: ") {
                    return serde_json::from_str(data).unwrap();
                }
            }
        };
        tokio::time::timeout(LIMIT, read).await.unwrap()
    }
}

fn of_key<'a>(rows: &'a [Value], key: &str) -> Option<&'a Value> {
    rows.iter().find(|row| row["key"] == key)
}

#[tokio::test]
async fn a_foreign_node_is_shown_live_with_its_metrics_until_it_dies() {
    let scene = Scene::start().await;
    let mut follower = scene.follow("nodes,metrics%3AForeign%2FPress%20%3Cimg%3E", "").await;
    let (first, second) = (follower.frame().await, follower.frame().await);
    assert!(first["full"] == true && second["full"] == true, "{first} {second}");
    let press = node(&scene.broker, "Foreign", "Press <img>", vec![Metric::new("Speed", 1_u32)]);
    let mut speed = Value::Null;
    while speed["value"] != 1 {
        let frame = follower.frame().await;
        speed = of_key(frame["set"].as_array().unwrap(), "|Speed").cloned().unwrap_or_default();
    }
    let metrics = vec![Metric::new("Speed", 7_u32)];
    press.update(NodeUpdate::Set { device: None, metrics }).await.unwrap();
    while speed["value"] != 7 {
        let frame = follower.frame().await;
        speed = of_key(frame["set"].as_array().unwrap(), "|Speed").cloned().unwrap_or_default();
    }
    assert_eq!(speed["datatype"], "UInt32");
    assert_eq!(speed["trend"].as_array().unwrap().last().unwrap()[1], 7.0);
    // As people write it, and as programs do.
    for path in ["metrics:Foreign/Press%20%3Cimg%3E", "metrics%3AForeign%2FPress%20%3Cimg%3E"] {
        let (status, _, body) = scene.get(&format!("/api/v1/{path}"), "").await;
        assert!(status == 200 && body.contains("\"Speed\""), "{path}: {status} {body}");
    }
    assert_eq!(scene.get("/api/v1/clusters/Foreign", "").await.0, 404);
    press.stop().await;
    let rows =
        scene.until("nodes", |rows| of_key(rows, "Foreign/Press <img>").is_some_and(|row| row["alive"] == false));
    assert_eq!(of_key(&rows.await, "Foreign/Press <img>").unwrap()["health"], "away");
    scene.stop().await;
}

#[tokio::test]
async fn a_client_that_comes_again_gets_what_changed_meanwhile() {
    let scene = Scene::start().await;
    let mut follower = scene.follow("services", "").await;
    assert_eq!(follower.frame().await["full"], true);
    let id = follower.id.clone().unwrap();
    drop(follower);
    let _keeper = scene.follow("services", "").await;
    let service = vec![Metric::new("Properties/Service", "historian")];
    let _historian = node(&scene.broker, "Foreign", "Historian", service);
    scene.until("services", |rows| of_key(rows, "Foreign/Historian").is_some()).await;
    let mut again = scene.follow("services", &format!("Last-Event-ID: {id}\r\n")).await;
    let frame = again.frame().await;
    assert_eq!(frame["full"], false);
    assert!(of_key(frame["set"].as_array().unwrap(), "Foreign/Historian").is_some(), "{frame}");
    let mut stranger = scene.follow("services", "Last-Event-ID: 5\r\n").await;
    assert_eq!(stranger.frame().await["full"], true, "an id of another process");
    scene.stop().await;
}

/// A read never causes a message.
#[tokio::test]
async fn a_thousand_reads_cause_no_message() {
    let scene = Scene::start().await;
    scene.recording().await;
    // The last thing that the console says of itself on its own.
    let own = "metrics%3AACME-Central%2FConsole";
    scene.until(own, |rows| of_key(rows, "|Replica/Complete").is_some_and(|row| row["value"] == true)).await;
    let filters = vec![("#".to_owned(), QoS::AtMostOnce)];
    let mut listener = spawn_listener(filters, &scene.broker.config(), Clock::new()).unwrap();
    while !matches!(listener.recv().await, Some(ListenerEvent::Online)) {}
    // Four at each turn.
    for n in 0..250 {
        let table = console::TableName::FIXED[n % console::TableName::FIXED.len()].to_string();
        scene.rows(&table).await;
        assert_eq!(scene.get("/", "").await.0, 200);
        assert_eq!(scene.get("/api/v1/events?limit=5", "").await.0, 200);
        let past = scene.get("/api/v1/services?at=1", "").await;
        assert_eq!(past.0, 404, "{past:?}");
    }
    // What comes after the reads is the mark that all before it has arrived.
    let _mark = node(&scene.broker, "Foreign", "Mark", vec![]);
    let mut said = Vec::new();
    loop {
        match tokio::time::timeout(LIMIT, listener.recv()).await.unwrap().unwrap() {
            ListenerEvent::Message { topic, .. } if topic == "spBv1.0/Foreign/NBIRTH/Mark" => break,
            // What the server had stored is of before.
            ListenerEvent::Message { topic, retain: false, .. } => said.push(topic),
            _ => {}
        }
    }
    assert!(said.is_empty(), "{said:?}");
    scene.stop().await;
}

#[tokio::test]
async fn answers_carry_their_protection_and_are_not_sent_twice() {
    let scene = Scene::start().await;
    let (status, head, body) = scene.get("/cluster/Paint_Shop", "").await;
    assert_eq!(status, 200);
    assert!(body.contains("<html") && head.contains("content-type: text/html"), "{head}");
    for field in [
        "content-security-policy: default-src 'none'; script-src 'self';",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cross-origin-opener-policy: same-origin",
        "cross-origin-resource-policy: same-origin",
    ] {
        assert!(head.contains(field), "{field}: {head}");
    }
    let (mut client, mut answer) = (TcpStream::connect(scene.address).await.unwrap(), Vec::new());
    let host = format!("Host: {}\r\n", scene.address);
    let request = format!("GET /app.js HTTP/1.1\r\n{host}Accept-Encoding: gzip, br\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    client.read_to_end(&mut answer).await.unwrap();
    let head = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    assert!(head.contains("content-encoding: gzip\r\n") && head.contains("vary: accept-encoding\r\n"), "{head:.500}");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let known = format!("If-None-Match: {tag}\r\n");
    let (status, head, _) = scene.get("/app.js", &format!("{known}Accept-Encoding: gzip\r\n")).await;
    assert!(status == 304 && head.contains("vary: accept-encoding"), "{head}");
    let (status, head, body) = scene.get("/app.js", &known).await;
    assert!(status == 200 && !head.contains("content-encoding") && !body.is_empty(), "{head}");
    let (_, head, _) = scene.get("/api/v1/clusters", "").await;
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let (status, _, body) = scene.get("/api/v1/clusters", &format!("If-None-Match: {tag}\r\n")).await;
    assert_eq!((status, body.as_str()), (304, ""));
    scene.stop().await;
}

#[tokio::test]
async fn a_request_under_another_name_and_an_unknown_table_are_refused_with_the_rule() {
    let scene = Scene::start().await;
    let (status, _, body) = scene.get("/api/v1/clusters", "Host: evil.example\r\n").await;
    assert_eq!(status, 421);
    assert!(body.contains("web.allowed_hosts"), "{body}");
    let (status, _, body) = scene.get("/api/v1/cluster", "").await;
    assert_eq!(status, 404);
    assert!(body.contains("metrics:GROUP/NODE"), "{body}");
    let (status, _, body) = scene.get("/api/v1/stream?tables=clusters,no", "").await;
    assert_eq!(status, 400, "{body}");
    let (status, _, body) = scene.get("/api/v1/session", "").await;
    let session: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &session["organisation"], &session["role"]), (200, &"ACME".into(), &"viewer".into()));
    scene.stop().await;
}

#[tokio::test]
async fn a_console_whose_broker_is_gone_says_so_and_recovers() {
    let mut scene = Scene::start().await;
    scene.broker.kill();
    let rows = scene.until("console", |rows| rows[0]["online"] == false).await;
    assert_eq!((&rows[0]["complete"], &rows[0]["health"]), (&false.into(), &"away".into()));
    scene.broker.restart();
    scene.until("console", |rows| rows[0]["complete"] == true).await;
    scene.stop().await;
}

/// A look at a broker without a fleet: what is there is shown, and nothing is published.
#[tokio::test]
async fn an_explorer_shows_a_foreign_node_and_says_nothing() {
    let broker = Mosquitto::start();
    let filters = vec![("#".to_owned(), QoS::AtMostOnce)];
    let mut listener = spawn_listener(filters, &broker.config(), Clock::new()).unwrap();
    while !matches!(listener.recv().await, Some(ListenerEvent::Online)) {}
    let state = tempfile::tempdir().unwrap();
    let config =
        console::Config { state_dir: state.path().into(), mqtt: broker.config(), ..console::Config::default() };
    let taken = console::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = taken.local_addr().unwrap();
    let (shutdown, health) = (Shutdown::new(), Health::new());
    let running = tokio::spawn(console::explore(config, taken, false, shutdown.clone(), health.clone()));
    let scene = Scene { broker, address, shutdown, running, state, _central: Vec::default() };
    scene.until("console", |rows| rows.iter().any(|row| row["complete"] == true && row["health"] == "good")).await;
    assert!(health.is_ready());
    let press = node(&scene.broker, "Foreign", "Press", vec![Metric::new("Speed", 7_u32)]);
    let rows = scene.until("nodes", |rows| of_key(rows, "Foreign/Press").is_some_and(|row| row["alive"] == true)).await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    let metrics = scene.rows("metrics%3AForeign%2FPress").await;
    assert_eq!(of_key(&metrics, "|Speed").unwrap()["value"], 7);
    let (status, head, _) = scene.get("/", "").await;
    assert!(status == 307 && head.contains("location: /explorer"), "{head}");
    assert_eq!(scene.get("/explorer", "").await.0, 200);
    press.stop().await;
    let mut topics = Vec::new();
    loop {
        match tokio::time::timeout(LIMIT, listener.recv()).await.unwrap().unwrap() {
            ListenerEvent::Message { topic, .. } if topic == "spBv1.0/Foreign/NDEATH/Press" => break,
            ListenerEvent::Message { topic, .. } => topics.push(topic),
            _ => {}
        }
    }
    assert_eq!(topics, ["spBv1.0/Foreign/NBIRTH/Press"]);
    assert_eq!(std::fs::read_dir(scene.state.path()).unwrap().count(), 0, "nothing is left behind");
    scene.stop().await;
}
