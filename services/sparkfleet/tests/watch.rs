//! `sparkfleet watch` as a process, against the embedded broker and an Edge Node.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value as Json;
use sparkfleet_up::broker::{Broker, BrokerConfig};
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::{EdgeNodeDescriptor, Metric, Value};
use sparkplug_mqtt::{BdSeqStore, Clock, EdgeNodeHandle, MqttConfig, spawn_edge_node, spawn_listener};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Longest time that anything may take on a machine under load.
const SOON: Duration = Duration::from_secs(120);

async fn broker() -> (Broker, MqttConfig) {
    let listen = "127.0.0.1:0".parse().unwrap();
    let broker = Broker::start(BrokerConfig { listen, ..BrokerConfig::default() }).await.unwrap();
    let mqtt = MqttConfig { servers: vec![broker.url()], ..MqttConfig::default() };
    (broker, mqtt)
}

async fn born(mqtt: &MqttConfig, edge_node: &str) -> EdgeNodeHandle {
    let config = EdgeNodeConfig {
        aliases: true,
        ..EdgeNodeConfig::new(EdgeNodeDescriptor::parse("ACME-Plant", edge_node).unwrap())
    };
    let metrics = vec![Metric::new("Temperature", 20.5_f32), Metric::new("Mode", "auto")];
    let mut node = spawn_edge_node(config, metrics, mqtt, BdSeqStore::Memory, Clock::new()).unwrap();
    let births = async { while !matches!(node.recv().await, Some(NodeEvent::Born { .. })) {} };
    tokio::time::timeout(SOON, births).await.expect("the node is born");
    node
}

struct Watch {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

fn watch(broker: &Broker, arguments: &[&str]) -> Watch {
    let mut process = Command::new(env!("CARGO_BIN_EXE_sparkfleet"))
        .args(["watch", "--broker", &broker.url()])
        .args(arguments)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    Watch { process, lines }
}

impl Watch {
    async fn line(&mut self) -> String {
        let line = tokio::time::timeout(SOON, self.lines.next_line()).await.expect("a line is printed");
        line.unwrap().expect("watch runs")
    }

    async fn json(&mut self) -> Json {
        serde_json::from_str(&self.line().await).unwrap()
    }

    /// Its exit code, and that nothing was printed but what was read.
    async fn ended(mut self) -> i32 {
        let rest = tokio::time::timeout(SOON, self.lines.next_line()).await.expect("watch ends").unwrap();
        assert_eq!(rest, None);
        self.process.wait().await.unwrap().code().unwrap()
    }
}

fn set(name: &str, value: f32) -> NodeUpdate {
    NodeUpdate::Set { device: None, metrics: vec![Metric::new(name, value)] }
}

#[tokio::test(flavor = "multi_thread")]
async fn asked_for_a_rebirth_it_knows_the_names_behind_the_aliases_of_what_follows() {
    let (broker, mqtt) = broker().await;
    let node = born(&mqtt, "Press").await;
    let arguments = ["--output", "json", "--group", "ACME-Plant", "--node", "Press", "--rebirth", "--count", "3"];
    let mut watch = watch(&broker, &arguments);
    let command = watch.json().await;
    assert_eq!((&command["kind"], &command["metrics"][0]["name"]), (&"NCMD".into(), &"Node Control/Rebirth".into()));
    let birth = watch.json().await;
    assert_eq!((&birth["kind"], &birth["seq"], &birth["node"]), (&"NBIRTH".into(), &0.into(), &"Press".into()));
    node.update(set("Temperature", 21.5)).await.unwrap();
    let data = watch.json().await;
    assert_eq!(data["kind"], "NDATA");
    let metric = &data["metrics"][0];
    assert!(metric["alias"].is_u64(), "{data}");
    assert_eq!(
        (&metric["name"], &metric["type"], &metric["value"]),
        (&"Temperature".into(), &"Float".into(), &21.5.into())
    );
    assert_eq!(data["notes"], Json::Null);
    assert_eq!(watch.ended().await, 0);
    node.stop().await;
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_birth_it_says_so_and_shows_the_alias() {
    let (broker, mqtt) = broker().await;
    let node = born(&mqtt, "Press").await;
    let other = born(&mqtt, "Other").await;
    let mut watch = watch(&broker, &["--node", "Press", "--kind", "ndata", "--count", "1"]);
    // Until it has subscribed, data passes unseen.
    let chatter = async {
        for number in 0.. {
            other.update(set("Temperature", number as f32)).await.unwrap();
            node.update(set("Temperature", number as f32)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let headline = tokio::select! {
        line = watch.line() => line,
        () = chatter => unreachable!(),
    };
    assert!(headline.contains("  spBv1.0/ACME-Plant/NDATA/Press  seq="), "{headline}");
    assert!(headline.ends_with("[stale: no birth of this node seen]"), "{headline}");
    let metric = watch.line().await;
    assert!(metric.trim_start().starts_with("alias ") && metric.contains("Float"), "{metric}");
    assert_eq!(watch.ended().await, 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undecodable_payload_is_marked_with_the_reason_and_does_not_end_it() {
    let (broker, mqtt) = broker().await;
    let mut watch = watch(&broker, &["--group", "ACME-Plant", "--count", "1"]);
    let mut vandal =
        spawn_listener(vec![("x".to_owned(), sparkplug::session::QoS::AtMostOnce)], &mqtt, Clock::new()).unwrap();
    vandal.recv().await.unwrap();
    let vandalism = async {
        loop {
            let payload = vec![0xff, 0xff, 0xff].into();
            vandal.publish("spBv1.0/ACME-Plant/NDATA/Press".to_owned(), payload).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let line = tokio::select! {
        line = watch.line() => line,
        () = vandalism => unreachable!(),
    };
    assert!(line.contains("UNDECODABLE: ") && line.ends_with("; 3 bytes: ffffff"), "{line}");
    assert_eq!(watch.ended().await, 0);
    broker.stop().await;
}

#[tokio::test]
async fn without_a_broker_it_ends_with_the_code_for_that() {
    let (broker, _) = broker().await;
    let url = broker.url();
    broker.stop().await;
    let ended =
        Command::new(env!("CARGO_BIN_EXE_sparkfleet")).args(["watch", "--broker", &url]).output().await.unwrap();
    assert_eq!(ended.status.code(), Some(4));
    let errors = String::from_utf8(ended.stderr).unwrap();
    assert!(errors.contains(&url) && errors.contains("cannot reach"), "{errors}");
}

fn sparkfleet(broker: &Broker, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sparkfleet"));
    command.args(arguments).args(["--broker", &broker.url()]).kill_on_drop(true);
    command
}

/// Standard output and standard error of a command that ends by itself, with its exit code.
async fn ran(mut command: Command) -> (Option<i32>, String, String) {
    let ended = tokio::time::timeout(SOON, command.output()).await.expect("it ends").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_recorded_is_decoded_shown_as_a_tree_and_replayed_for_others() {
    let (source, mqtt) = broker().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("press.jsonl");
    let file = file.to_str().unwrap();
    let node = born(&mqtt, "Press").await;
    let arguments =
        ["--protocol", "5", "--group", "ACME-Plant", "--node", "Press", "--rebirth", "--count", "3", "--record", file];
    let mut recording = watch(&source, &arguments);
    while !recording.line().await.contains("NBIRTH") {}
    node.update(set("Temperature", 21.5)).await.unwrap();
    while !recording.line().await.contains("NDATA") {}
    assert_eq!(recording.process.wait().await.unwrap().code(), Some(0));
    // Where the node itself is alive, a replay does not publish for it.
    let (code, _, errors) = ran(sparkfleet(&source, &["replay", file, "--speed", "max"])).await;
    assert_eq!(code, Some(5), "{errors}");
    assert!(errors.contains("ACME-Plant/Press lives on this broker"), "{errors}");
    assert!(errors.contains("0 messages replayed"), "{errors}");
    node.stop().await;
    source.stop().await;

    // Read without any server.
    let (other, _) = broker().await;
    let (code, decoded, _) = ran(sparkfleet(&other, &["watch", "--read", file, "--kind", "NDATA", "-o", "json"])).await;
    let data: Json = serde_json::from_str(decoded.trim()).unwrap();
    assert_eq!(
        (code, &data["metrics"][0]["name"], &data["metrics"][0]["value"]),
        (Some(0), &"Temperature".into(), &21.5.into())
    );
    let (_, tree, _) = ran(sparkfleet(&other, &["watch", "--read", file, "--output", "tree"])).await;
    let press: Vec<&str> = tree.lines().find(|line| line.contains("Press")).unwrap().split_whitespace().collect();
    assert_eq!((press[1], press[5], press[6], press[7]), ("alive", "2", "1", "0"), "{tree}");

    // A listener there sees the birth and the data of another group, and the death that ends the replay.
    let mut watched = watch(
        &other,
        &[
            "--group",
            "Replay-ACME-Plant",
            "--kind",
            "NBIRTH",
            "--kind",
            "NDATA",
            "--kind",
            "NDEATH",
            "--count",
            "3",
            "-o",
            "json",
        ],
    );
    let replay = async {
        loop {
            let (code, _, errors) =
                ran(sparkfleet(&other, &["replay", file, "--speed", "max", "--group-prefix", "Replay-"])).await;
            assert_eq!(code, Some(0), "{errors}");
            assert!(errors.contains("2 messages replayed, 1 left out; 1 nodes"), "{errors}");
        }
    };
    let messages = async { [watched.json().await, watched.json().await, watched.json().await] };
    let messages = tokio::select! {
        messages = messages => messages,
        () = replay => unreachable!(),
    };
    // It may have begun to listen within a replay, of which there are as many as it takes.
    let kinds: Vec<&str> = messages.iter().map(|message| message["kind"].as_str().unwrap()).collect();
    let round = ["NBIRTH", "NDATA", "NDEATH", "NBIRTH", "NDATA"];
    assert!(round.windows(3).any(|order| order == kinds), "{kinds:?}");
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metric_is_written_by_the_datatype_of_its_birth_and_the_report_is_awaited() {
    let (broker, mqtt) = broker().await;
    let mut node = born(&mqtt, "Press").await;
    let written = ran(sparkfleet(&broker, &["write", "ACME-Plant/Press", "Temperature", "-3.5", "--timeout", "1m"]));
    let obey = async {
        loop {
            match node.recv().await {
                Some(NodeEvent::Command { metrics, .. }) => {
                    node.update(NodeUpdate::Set { device: None, metrics }).await.unwrap();
                }
                Some(_) => {}
                None => unreachable!(),
            }
        }
    };
    let (code, _, errors) = tokio::select! {
        written = written => written,
        () = obey => unreachable!(),
    };
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("Temperature is written as Float; waiting"), "{errors}");
    // A node that reports by exception says nothing of a value that it has reported. It is commanded all the same.
    let arguments = ["write", "ACME-Plant/Press", "Temperature", "-3.5", "--timeout", "1m"];
    let (code, _, errors) = ran(sparkfleet(&broker, &arguments)).await;
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("the node reports this value already"), "{errors}");
    let commanded = async {
        loop {
            match node.recv().await {
                Some(NodeEvent::Command { metrics, .. }) if &*metrics[0].name == "Temperature" => return metrics,
                Some(_) => {}
                None => unreachable!(),
            }
        }
    };
    let metrics = tokio::time::timeout(SOON, commanded).await.expect("the command arrives");
    assert_eq!(metrics[0].value, Some(Value::Float(-3.5)));

    for (arguments, code, part) in [
        (["ACME-Plant/Press", "Temprature", "1"], 7, "did you mean \"Temperature\"?"),
        (["ACME-Plant/Press", "Temperature", "warm"], 2, "\"warm\" is not a value of datatype Float"),
        (["ACME-Plant/Press", "Temperature", "NaN"], 2, "\"NaN\" is not a finite number of datatype Float"),
        (["ACME-Plant", "Temperature", "1"], 2, "is not GROUP/NODE or GROUP/NODE/DEVICE"),
        (["ACME-Plant/Press", "Mode", "manual"], 6, "Mode was written; ACME-Plant/Press reported nothing of it"),
    ] {
        let timeout = if code == 6 { "1s" } else { "1m" };
        let mut command = sparkfleet(&broker, &["write", "--timeout", timeout]);
        command.args(arguments);
        let (ended, _, errors) = ran(command).await;
        assert_eq!(ended, Some(code), "{errors}");
        assert!(errors.contains(part), "{errors}");
    }
    node.stop().await;
    broker.stop().await;
}
