//! The console. Whatever bytes a browser or a program sends over its connection, the console answers in HTTP and signs in no stranger. No body of an action makes its reader or its plan panic.
//!
//! There are two consoles. One is the console that `sparkfleet console` runs, with a broker that is away and a history of its own. The other one replays an export, so that there
//! is a past to ask for.
//!
//! Apart from the other targets, because a test of `console` includes this file by its path.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;

use console::Config;
use console::action::{ACTIONS, Action, Plan, Replicas};
use console::adapters::replay::Source;
use console::replay::Progress;
use fleet_view::Fleet;
use fleet_view::bench::Bench;
use fleet_view::explorer::Explorer;
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use sparkplug_mqtt::MqttConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;

#[path = "connection.rs"]
mod connection;

use connection::contains;

/// A fuzz target: its name, which is that of its folder of seeds, too, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 2] = [("console_action", action), ("console_http", http)];

/// Nothing listens there.
const NO_BROKER: &str = "mqtt://127.0.0.1:1";
const EXPORT: &str = "{\"sparkfleetHistory\":1,\"organisation\":\"ACME\",\"since\":1000,\"until\":9000}\n\
    {\"at\":1000,\"view\":\"clusters\",\"key\":\"a\",\"change\":{\"row\":{\"key\":\"a\",\"name\":\"Fuzz\"}}}\n{\"end\":1}\n";
const WALL: u64 = 1_800_000_000_000;

/// Bytes as all that a client sends over one connection, to a console and to a replay.
pub fn http(bytes: &[u8]) {
    connection::run(async {
        for is_replay in [false, true] {
            let state = tempfile::tempdir().expect("a temporary directory");
            let (address, shutdown, serving) = start(state.path(), is_replay).await;
            check(&connection::exchange(address, bytes).await);
            let session = b"GET /api/v1/session HTTP/1.1\r\nHost: localhost\r\n\r\n";
            let session = connection::exchange(address, session).await;
            assert!(contains(&session, b"\"user\":null"), "no stranger has signed in");
            shutdown.trigger();
            serving.await.expect("the console does not panic").expect("the console ends well");
        }
    });
}

type Serving = tokio::task::JoinHandle<anyhow::Result<()>>;

async fn start(state: &Path, is_replay: bool) -> (SocketAddr, Shutdown, Serving) {
    let mqtt = MqttConfig { servers: vec![NO_BROKER.to_owned()], ..MqttConfig::default() };
    let config = Config { state_dir: state.into(), mqtt, ..Config::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, shutdown) = (listener.local_addr().expect("an address"), Shutdown::new());
    let serving = if is_replay {
        let file = state.join("export");
        std::fs::write(&file, EXPORT).expect("a file");
        let progress = watch::Sender::new(Progress::default());
        let source = Source { file, speed: None, repeat: false, progress };
        tokio::spawn(console::replay(config, source, listener, shutdown.clone(), Health::new()))
    } else {
        tokio::spawn(console::serve(config, listener, shutdown.clone(), Health::new()))
    };
    (address, shutdown, serving)
}

fn check(answers: &[u8]) {
    assert!(answers.is_empty() || answers.starts_with(b"HTTP/1."), "an answer is HTTP");
    assert!(!contains(answers, b"HTTP/1.1 500"), "nothing is unexpected");
    assert!(!contains(answers, b"HTTP/1.1 202"), "a stranger does nothing");
    let is_page = answers.starts_with(b"HTTP/1.1 200");
    assert!(
        !is_page || contains(answers, b"content-security-policy: default-src 'none'"),
        "a page runs no foreign script"
    );
}

/// A line with the name of an action, then its body. What is planned is the same twice, and each request names who asks.
pub fn action(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let name = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let action = match Action::parse(&name, parts.next().unwrap_or_default()) {
        Ok(action) => action,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(ACTIONS.contains(&(action.name(), action.operation())) && action.name() == name);
    let (fleet, explorer) = known();
    let replicas = Replicas { fleet, explorer };
    let _ = (action.cluster(fleet), action.target(fleet));
    let plan = action.plan(replicas, "a1", "console/fuzz", WALL);
    assert_eq!(action.plan(replicas, "a1", "console/fuzz", WALL), plan);
    match plan {
        Ok(Plan::Writes(requests)) => {
            let is_named = requests
                .iter()
                .all(|request| request.id.starts_with("a1-") && request.writer.as_deref() == Some("console/fuzz"));
            assert!(is_named, "{requests:?}");
        }
        Ok(Plan::Rebirth(_) | Plan::Replay(_) | Plan::Command(_)) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A fleet with a cluster, a host and a deployment, and the Edge Nodes that it was made from.
fn known() -> &'static (Fleet, Explorer) {
    static KNOWN: OnceLock<(Fleet, Explorer)> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let mut bench = Bench::with_cluster();
        bench.deployment(uuid::Uuid::from_u128(0xD), "Robot", None);
        let mut explorer = Explorer::default();
        bench.events.iter().for_each(|event| explorer.on_event(event, WALL));
        (bench.fleet, explorer)
    })
}
