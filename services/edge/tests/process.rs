//! The program itself: one process, two nodes, one health page, a clean end.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../sparkplug/mqtt/tests/support/mosquitto.rs"]
mod mosquitto;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::time::Duration;

use mosquitto::Mosquitto;
use simulator::cluster::{ClusterSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use sparkplug::host::{HostConfig, HostEvent};
use sparkplug_mqtt::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

const PATIENCE: Duration = Duration::from_secs(60);

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sparkfleet-edge"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    // What the tests' own environment holds is not for the program.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SPARKFLEET")) {
        command.env_remove(name);
    }
    command
}

async fn output(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let running = program().args(arguments).envs(environment.iter().copied()).output();
    tokio::time::timeout(PATIENCE, running).await.expect("the program ends").unwrap()
}

/// Status of a page; None: no one listens yet.
async fn status(addr: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(addr).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.split(' ').nth(1).map(str::to_owned)
}

#[tokio::test]
async fn both_nodes_are_born_are_ready_and_die_when_the_process_is_asked_to_end() {
    let cluster = SimulatedCluster::start(ClusterSpec::new("Test"), Charts::new()).await.unwrap();
    let broker = Mosquitto::start();
    let directory = tempfile::tempdir().unwrap();
    let health = mosquitto::port::free();
    let config = format!(
        "state_dir = {:?}\nsimulated = true\ncluster = {{ name = \"Test\", uuid = \"6f6ee2b1-5f6c-4f0e-9b5c-0f2a4e7d9c11\" }}\n\
         kubernetes = {{ url = {:?} }}\nmqtt = {{ servers = [{:?}] }}\nhttp = {{ listen = \"{health}\" }}\n",
        directory.path().display().to_string(),
        cluster.url(),
        broker.config().servers[0],
    );
    let file = directory.path().join("edge.toml");
    std::fs::write(&file, config).unwrap();
    let mut host = sparkplug_mqtt::spawn_host(HostConfig::new(None), &broker.config(), Clock::new()).unwrap();
    let process = program().arg("--config").arg(&file).spawn().unwrap();

    let both = BTreeSet::from(["ACME-Test/Monitor".to_owned(), "ACME-Test/Sync".to_owned()]);
    let births = async {
        let mut born = BTreeSet::new();
        while born != both {
            if let HostEvent::NodeBirth { node, .. } = host.recv().await.unwrap() {
                born.insert(node.to_string());
            }
        }
    };
    tokio::time::timeout(PATIENCE, births).await.expect("both nodes are born");
    let ready = async {
        while status(health, "/readyz").await.as_deref() != Some("200") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ready).await.expect("all components are ready");
    assert_eq!(status(health, "/livez").await.as_deref(), Some("200"));

    let id = process.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
    let output = tokio::time::timeout(PATIENCE, process.wait_with_output()).await.expect("it ends").unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.is_empty(), "what is logged goes to stderr");
    let deaths = async {
        let mut dead = BTreeSet::new();
        while dead != both {
            if let HostEvent::NodeDeath { node, .. } = host.recv().await.unwrap() {
                dead.insert(node.to_string());
            }
        }
    };
    tokio::time::timeout(PATIENCE, deaths).await.expect("both deaths are published");
    cluster.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_reported_in_one_line_and_by_the_exit_code() {
    type Case = (&'static [&'static str], &'static [(&'static str, &'static str)], i32, &'static str);
    let table: [Case; 4] = [
        (&["--verbose"], &[], 2, "sparkfleet: unknown argument \"--verbose\""),
        (&["--config", "/nonexistent/edge.toml"], &[], 3, "sparkfleet: "),
        (&[], &[("SPARKFLEET__SYNC__APPLIES", "3")], 3, "sparkfleet: "),
        (
            &[],
            &[("SPARKFLEET__CLUSTER__NAME", "Central")],
            3,
            "sparkfleet: the configuration is not usable: cluster.name: ",
        ),
    ];
    for (arguments, environment, code, message) in table {
        let output = output(arguments, environment).await;
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.lines().any(|line| line.starts_with(message)), "{text}");
    }
}

#[tokio::test]
async fn help_is_printed_to_stdout() {
    let output = output(&["--help"], &[]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    for key in
        ["  cluster.uuid ", "  sync.prune_max_percent ", "  monitor.interval_ms ", "  mqtt.servers ", "  http.listen "]
    {
        assert!(text.contains(key), "{key}");
    }
}
