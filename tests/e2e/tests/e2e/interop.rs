//! Other implementations: `sparkplug-payload` and `sparkplug-client` of npm, `pysparkplug` and `mqtt-spb-wrapper` of PyPI. They read what a whole factory publishes. Our Host
//! Application replicates and commands their Edge Nodes, and they command our Edge Node. All this is tested on Mosquitto and on the embedded broker. What a client cannot do is
//! named where it is passed over, and in docs/sparkplug.md. They are installed by name into the target directory; a test that cannot have them fails and says so.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use e2e::cli::Cli;
use e2e::mosquitto::Mosquitto;
use e2e::recorder::{Message, Recorder};
use e2e::wait;
use e2e::wire::Reader;
use futures::future::join_all;
use serde_json::{Value, json};
use sparkfleet_up::broker::{Broker, BrokerConfig};
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::payload::{Dialect, EncodeOptions, Form, Limits, Payload, decode, encode};
use sparkplug::session::QoS;
use sparkplug::{DataType, EdgeNodeDescriptor, HostId, MessageKind, Metric, PropertyValue, Topic};
use sparkplug_mqtt::{
    BdSeqStore, Clock, EdgeNodeHandle, HostHandle, ListenerEvent, MqttConfig, Protocol, spawn_edge_node, spawn_listener,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::factory::Up;
use crate::lifecycle::wait_for;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interop")
}

/// Where packages are kept between two runs.
fn cache(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(3).unwrap();
    target.join("interop").join(name)
}

/// Installs once; `stamp` says what is installed, so that another version is installed again.
pub fn installed(name: &str, stamp: &str, install: impl FnOnce(&Path) -> Result<(), String>) -> PathBuf {
    let directory = cache(name);
    fs::create_dir_all(&directory).unwrap();
    // Two test programs may be at it at the same time.
    let lock = File::create(directory.join("lock")).unwrap();
    lock.lock().unwrap();
    let stamp_file = directory.join("stamp");
    if fs::read_to_string(&stamp_file).ok().as_deref() != Some(stamp) {
        let content = directory.join("content");
        let _ = fs::remove_dir_all(&content);
        fs::create_dir_all(&content).unwrap();
        install(&content)
            .unwrap_or_else(|reason| panic!("{name} packages for the tests cannot be installed: {reason}"));
        fs::write(stamp_file, stamp).unwrap();
    }
    directory.join("content")
}

pub fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{:?} cannot be started: {error}", command.get_program()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{}{}", text(&output.stdout), text(&output.stderr))) }
}

/// A script of `interop/` for node, with its packages beside it.
fn node_script(name: &str) -> Command {
    let files = ["package.json", "package-lock.json"];
    let stamp: String = files.map(|file| fs::read_to_string(sources().join(file)).unwrap()).concat();
    let directory = installed("node", &stamp, |directory| {
        for file in files {
            fs::copy(sources().join(file), directory.join(file)).map_err(|error| error.to_string())?;
        }
        run(Command::new("npm").args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(directory))
    });
    let mut command = Command::new("node");
    command.arg(sources().join(name)).env("NODE_PATH", directory.join("node_modules"));
    command
}

/// A script of `interop/` for Python.
fn python_script(name: &str) -> Command {
    python_with("python", "requirements.txt", name)
}

/// The same for `mqtt-spb-wrapper`.
fn wrapper_script(name: &str) -> Command {
    python_with("python-wrapper", "requirements-wrapper.txt", name)
}

fn python_with(place: &str, requirements: &str, name: &str) -> Command {
    let requirements = sources().join(requirements);
    let stamp = fs::read_to_string(&requirements).unwrap();
    let directory = installed(place, &stamp, |directory| {
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"];
        run(Command::new("python3").args(pip).arg(directory).arg("--requirement").arg(&requirements))
    });
    let mut command = Command::new("python3");
    command.arg(sources().join(name)).env("PYTHONPATH", directory);
    command
}

/// Gives a script lines and returns what it prints, a JSON value a line.
async fn filter(command: Command, lines: &[String]) -> Vec<Value> {
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = lines.join("\n") + "\n";
    let (written, output) = tokio::join!(
        async move {
            let written = stdin.write_all(text.as_bytes()).await;
            drop(stdin);
            written
        },
        child.wait_with_output()
    );
    let output = output.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && written.is_ok(), "the script failed: {stderr}");
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (i, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            text.push(if i <= group.len() { char::from(DIGITS[(bits >> shift & 63) as usize]) } else { '=' });
        }
    }
    text
}

/// What stands between the two sides.
struct Server {
    broker: AnyBroker,
    /// What our side speaks, and the other where it can.
    protocol: Protocol,
}

enum AnyBroker {
    Mosquitto(Mosquitto),
    Embedded(Broker),
}

impl Server {
    fn mosquitto(protocol: Protocol) -> Self {
        Self { broker: AnyBroker::Mosquitto(Mosquitto::start()), protocol }
    }

    async fn embedded(protocol: Protocol) -> Self {
        let listen = "127.0.0.1:0".parse().unwrap();
        let embedded = Broker::start(BrokerConfig { listen, ..BrokerConfig::default() }).await.unwrap();
        Self { broker: AnyBroker::Embedded(embedded), protocol }
    }

    /// Both servers, over both versions of MQTT.
    async fn all() -> [Self; 4] {
        [
            Self::mosquitto(Protocol::V311),
            Self::embedded(Protocol::V311).await,
            Self::mosquitto(Protocol::V5),
            Self::embedded(Protocol::V5).await,
        ]
    }

    fn address(&self) -> SocketAddr {
        match &self.broker {
            AnyBroker::Mosquitto(server) => server.address(),
            AnyBroker::Embedded(server) => server.local_addr(),
        }
    }

    /// The version as the option `--protocol` has it.
    fn version(&self) -> &'static str {
        if self.protocol == Protocol::V5 { "5" } else { "3.1.1" }
    }

    /// The version's number in CONNECT.
    fn level(&self) -> &'static str {
        if self.protocol == Protocol::V5 { "5" } else { "4" }
    }

    fn url(&self) -> String {
        format!("mqtt://{}", self.address())
    }

    /// What a script in Python gets: host, port, group, edge node.
    fn arguments(&self, node: &str) -> [String; 4] {
        let address = self.address();
        [address.ip().to_string(), address.port().to_string(), "ACME-Interop".to_owned(), node.to_owned()]
    }

    fn mqtt(&self) -> MqttConfig {
        MqttConfig { servers: vec![self.url()], protocol: self.protocol, ..MqttConfig::default() }
    }
}

/// A value as all scripts write it.
fn text(value: &sparkplug::Value) -> String {
    use sparkplug::Value as V;
    match value {
        V::Boolean(b) => b.to_string(),
        V::Double(x) => x.to_string(),
        V::Float(x) => f64::from(*x).to_string(),
        V::DateTime(n) | V::UInt64(n) => n.to_string(),
        V::Int64(n) => n.to_string(),
        V::UInt32(n) => n.to_string(),
        V::Int32(n) => n.to_string(),
        V::Int16(n) => n.to_string(),
        V::Int8(n) => n.to_string(),
        V::UInt16(n) => n.to_string(),
        V::UInt8(n) => n.to_string(),
        V::Bytes(bytes) => hex::encode(bytes),
        other => other.as_str().map_or_else(|| format!("{other:?}"), str::to_owned),
    }
}

/// What a client makes of integers of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wide {
    Whole,
    /// It has no integers beyond 2^53 but the nearest Double.
    NearestDouble,
}

/// Whether a client reads what is meant: a table by its cells, Float and Double as the very number, everything else to the letter.
fn is_same(theirs: Option<&str>, ours: Option<&sparkplug::Value>, wide: Wide) -> bool {
    use sparkplug::Value as V;
    let (Some(theirs), Some(ours)) = (theirs, ours) else { return theirs.is_none() && ours.is_none() };
    match ours {
        // A client may write the shortest decimal of single precision, or that of the same number in double precision.
        V::Float(x) => theirs.parse::<f32>().is_ok_and(|read| read.to_bits() == x.to_bits()),
        V::Double(x) => theirs.parse::<f64>().is_ok_and(|read| read.to_bits() == x.to_bits()),
        V::Int64(_) | V::UInt64(_) | V::DateTime(_) if wide == Wide::NearestDouble => {
            let exact = text(ours);
            let double = |text: &str| text.parse::<f64>().ok();
            let is_beyond = double(&exact).is_some_and(|number| number.abs() >= 9_007_199_254_740_992.0);
            theirs == exact || is_beyond && double(theirs) == double(&exact)
        }
        V::DataSet(table) => {
            let theirs: Value = serde_json::from_str(theirs).unwrap();
            theirs.as_object().is_some_and(|columns| columns.len() == table.columns.len())
                && table.columns.iter().enumerate().all(|(at, (name, _))| {
                    let cells = theirs[&**name].as_array().map_or(&[][..], Vec::as_slice);
                    cells.len() == table.rows.len()
                        && cells.iter().zip(&table.rows).all(|(cell, row)| is_same_cell(cell, row[at].as_ref(), wide))
                })
        }
        other => theirs == text(other),
    }
}

/// A script may leave a cell as it is.
fn is_same_cell(theirs: &Value, ours: Option<&sparkplug::Value>, wide: Wide) -> bool {
    let theirs = match theirs {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    is_same(theirs.as_deref(), ours, wide)
}

#[test]
fn neighbouring_numbers_and_texts_that_look_like_them_are_not_the_same() {
    use sparkplug::Value as V;
    let whole = |theirs: &str, ours: V| is_same(Some(theirs), Some(&ours), Wide::Whole);
    assert!(whole("9007199254740993", V::Int64(9_007_199_254_740_993)));
    assert!(!whole("9007199254740992", V::Int64(9_007_199_254_740_993)));
    assert!(!whole("18446744073709551614", V::UInt64(u64::MAX)) && !whole("7.0", V::UInt8(7)));
    assert!(whole("1", V::String("1".into())) && !whole("1.0", V::String("1".into())));
    assert!(
        whole("0.1", V::Float(0.1))
            && whole("0.10000000149011612", V::Float(0.1))
            && !whole("0.1000001", V::Float(0.1))
    );
    assert!(whole("1e+300", V::Double(1e300)) && !whole("0.10000000000000002", V::Double(0.1)));
    assert!(!is_same(None, Some(&V::UInt32(0)), Wide::Whole) && !is_same(Some(""), None, Wide::Whole));
    let nearest = |theirs: &str, ours: V| is_same(Some(theirs), Some(&ours), Wide::NearestDouble);
    assert!(nearest("9007199254740992", V::Int64(9_007_199_254_740_993)));
    assert!(!nearest("9007199254740990", V::Int64(9_007_199_254_740_993)));
    assert!(!nearest("9007199254740990", V::Int64(9_007_199_254_740_991)) && !nearest("7.0", V::UInt64(7)));
}

/// What we know of a message: kind, seq, and the metrics, whose types come from a birth.
struct Known {
    kind: MessageKind,
    seq: Option<u64>,
    timestamp: Option<u64>,
    metrics: Vec<Metric>,
}

/// Everything that a factory publishes, births, data and commands alike, from its start to its end.
async fn recorded(server: &Server) -> Vec<Arc<Message>> {
    let recorder = Recorder::start(server.address()).await;
    let mut up = Up::filled_on(server.address(), server.version()).await;
    for name in ["Body_Shop/Robot_Cell_1", "Body_Shop/Robot_Cell_2", "Press_Shop/Press_Line_1", "Press_Shop/Stacker_1"]
    {
        up.process.says(&format!("deployment {name}: applied, ready")).await;
    }
    wait_for(&recorder, "all machines to be born", |reader| {
        let agents = reader
            .nodes()
            .iter()
            .filter(|(name, _)| !["Sync", "Monitor", "ConfigDB"].contains(&name.edge_node.as_str()));
        agents.map(|(_, node)| node.devices.len()).sum::<usize>() >= 9
    })
    .await;
    let place = recorder.count();
    recorder.wait_for("data of a machine", place, |m| m.topic.contains("/DDATA/Robot_Cell_1/").then_some(())).await;
    up.process.interrupt();
    assert!(up.process.ended().await.success());
    let messages = recorder.messages();
    Reader::read(&messages).assert_clean();
    let has_dot = |message: &&Arc<Message>| message.topic.split_once('/').is_some_and(|(_, ids)| ids.contains('.'));
    assert_eq!(messages.iter().find(has_dot).map(|message| &message.topic), None, "some servers alter it");
    messages
}

/// Our reading of the payloads of a recording, in order; STATE left out.
fn known(messages: &[Arc<Message>]) -> (Vec<String>, Vec<Known>) {
    let mut types: BTreeMap<(String, String), DataType> = BTreeMap::new();
    let mut aliases: BTreeMap<(String, u64), Arc<str>> = BTreeMap::new();
    let mut lines = Vec::new();
    let mut all = Vec::new();
    for message in messages {
        let topic = Topic::parse(&message.topic).unwrap();
        let kind = topic.kind();
        let place = match topic {
            Topic::State { .. } => continue,
            Topic::Node { node, .. } => node.to_string(),
            Topic::Device { node, device, .. } => format!("{node}/{device}"),
        };
        let payload = decode(&message.payload, &Limits { bytes_max: 1 << 24, ..Limits::default() }).unwrap();
        let metrics = payload.metrics.into_iter().map(|metric| {
            let alias = metric.alias.map(|alias| (place.clone(), alias));
            let name = metric.name.clone().unwrap_or_else(|| aliases[alias.as_ref().unwrap()].clone());
            if let Some(alias) = alias {
                aliases.insert(alias, name.clone());
            }
            let declared = metric.declared_datatype().unwrap();
            let key = (place.clone(), name.to_string());
            let datatype = declared.unwrap_or_else(|| types[&key]);
            types.insert(key, datatype);
            metric.resolve(name, datatype, None).unwrap()
        });
        let metrics = metrics.collect();
        all.push(Known { kind, seq: payload.seq, timestamp: payload.timestamp, metrics });
        lines.push(json!({ "topic": message.topic, "payload": base64(&message.payload) }).to_string());
    }
    (lines, all)
}

/// Every metric: name, datatype, value, timestamp.
fn assert_same_metrics(theirs: &Value, ours: &Known, wide: Wide) {
    let list = theirs["metrics"].as_array().unwrap();
    assert_eq!(list.len(), ours.metrics.len(), "{theirs:#}");
    for (theirs_one, ours_one) in list.iter().zip(&ours.metrics) {
        assert_eq!(theirs_one["name"].as_str(), Some(&*ours_one.name));
        let datatype = format!("{:?}", ours_one.datatype).to_uppercase();
        assert_eq!(theirs_one["type"].as_str().map(str::to_uppercase), Some(datatype), "{theirs_one:#}");
        assert!(
            is_same(theirs_one["value"].as_str(), ours_one.value.as_ref(), wide),
            "{theirs_one:#} and {ours_one:?} in {}",
            theirs["topic"]
        );
        let timestamp = ours_one.timestamp.map(|ms| ms.to_string());
        assert_eq!(theirs_one["timestamp"].as_str(), timestamp.as_deref(), "{theirs_one:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_factory_publishes_is_read_alike_by_every_client() {
    for server in Server::all().await {
        let messages = recorded(&server).await;
        is_read_alike(&messages).await;
        // The payloads do not depend on the server.
        if matches!((&server.broker, server.protocol), (AnyBroker::Mosquitto(_), Protocol::V5)) {
            is_read_alike_by_node_red(&messages).await;
        }
    }
}

async fn is_read_alike(messages: &[Arc<Message>]) {
    let (lines, ours) = known(messages);
    let count = |kind| ours.iter().filter(|known| known.kind == kind).count();
    assert!(count(MessageKind::DBirth) > 100 && count(MessageKind::DData) > 10 && count(MessageKind::NDeath) > 8);

    // It keeps no births: what it makes of data is in them alone.
    let theirs = filter(node_script("decode.js"), &lines).await;
    assert_eq!(theirs.len(), ours.len());
    let (mut properties, mut described) = (0, 0);
    for (theirs, ours) in theirs.iter().zip(&ours) {
        let is_data = matches!(ours.kind, MessageKind::NData | MessageKind::DData);
        let seq = ours.seq.map(|seq| seq.to_string());
        assert_eq!(theirs["seq"].as_str(), seq.as_deref(), "{theirs:#}");
        let timestamp = ours.timestamp.map(|ms| ms.to_string());
        assert_eq!(theirs["timestamp"].as_str(), timestamp.as_deref(), "{theirs:#}");
        assert_same_metrics(theirs, ours, Wide::Whole);
        for (theirs, ours) in theirs["metrics"].as_array().unwrap().iter().zip(&ours.metrics) {
            for (key, value) in ours.properties.iter() {
                let PropertyValue::Value(value) = value else { continue };
                assert!(is_same(theirs["properties"][key].as_str(), Some(value), Wide::Whole), "{key} of {theirs:#}");
                properties += 1;
                described += usize::from(key == "documentation");
                assert!(key != "documentation" || !is_data, "only births describe: {theirs:#}");
            }
        }
    }
    assert!(properties > 100, "ConfigDB's entries have properties: {properties}");
    assert!(described > 300, "the births of services describe their metrics: {described}");
    // Printed with --nocapture: what descriptions cost.
    births_weighed(&ours, &lines);

    let theirs = filter(python_script("decode.py"), &lines).await;
    assert_eq!(theirs.len(), ours.len());
    let mut unread = 0;
    for (theirs, ours) in theirs.iter().zip(&ours) {
        // It has no DataSets, and reads no message with one: of a factory without problems a dozen, with the PCRs of its hosts.
        let has_table = |metric: &Metric| matches!(metric.value, Some(sparkplug::Value::DataSet(_)));
        if let Some(reason) = theirs["unread"].as_str() {
            assert!(reason.contains("DATASET") && ours.metrics.iter().any(has_table), "{theirs:#}");
            unread += 1;
            continue;
        }
        assert_eq!(theirs["seq"].as_str(), ours.seq.map(|seq| seq.to_string()).as_deref(), "{theirs:#}");
        assert_same_metrics(theirs, ours, Wide::Whole);
    }

    assert!(unread * 20 < theirs.len(), "hardly any message has a table: {unread} of {} unread", theirs.len());

    // It keeps no births either.
    let theirs = filter(wrapper_script("decode_wrapper.py"), &lines).await;
    assert_eq!(theirs.len(), ours.len());
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(theirs["seq"].as_str(), ours.seq.map(|seq| seq.to_string()).as_deref(), "{theirs:#}");
        assert_same_metrics(theirs, ours, Wide::Whole);
    }
}

/// Prints the bytes of the births of a factory, and how many of them are properties.
fn births_weighed(ours: &[Known], lines: &[String]) {
    let (mut all, mut bare) = (0, 0);
    for (known, line) in ours.iter().zip(lines) {
        if !matches!(known.kind, MessageKind::NBirth | MessageKind::DBirth) {
            continue;
        }
        let line: Value = serde_json::from_str(line).unwrap();
        all += line["payload"].as_str().unwrap().len() / 4 * 3;
        let plain =
            known.metrics.iter().map(|metric| Metric { properties: sparkplug::Properties::new(), ..metric.clone() });
        let payload =
            Payload { timestamp: known.timestamp, seq: known.seq, metrics: plain.collect(), ..Payload::default() };
        let options = EncodeOptions { dialect: Dialect::Tahu, ..EncodeOptions::new(Form::Birth) };
        bare += encode(&payload, &options).len();
    }
    eprintln!("births of a factory: {all} bytes, {bare} without properties");
}

/// Births and data of every basic type, at both ends of each, in the dialect that is meant for these clients.
#[tokio::test(flavor = "multi_thread")]
async fn every_basic_type_is_read_alike_in_births_and_data() {
    use sparkplug::Value as V;
    let values = [
        [V::Int8(-5), V::Int8(i8::MIN)],
        [V::Int16(-5), V::Int16(i16::MIN)],
        [V::Int32(-5), V::Int32(i32::MIN)],
        [V::Int64(-5), V::Int64(i64::MIN)],
        // Neighbours, of which no Double knows the first.
        [V::Int64(9_007_199_254_740_993), V::Int64(-9_007_199_254_740_993)],
        [V::UInt8(5), V::UInt8(u8::MAX)],
        [V::UInt16(5), V::UInt16(u16::MAX)],
        [V::UInt32(5), V::UInt32(u32::MAX)],
        [V::UInt64(5), V::UInt64(u64::MAX)],
        [V::UInt64(9_007_199_254_740_993), V::UInt64(u64::MAX - 1)],
        [V::Float(0.5), V::Float(-0.25)],
        [V::Float(0.1), V::Float(f32::MAX)],
        [V::Double(0.1), V::Double(-1e300)],
        [V::Double(0.1 + 0.2), V::Double(f64::MIN_POSITIVE)],
        [V::Boolean(true), V::Boolean(false)],
        [V::String("a".into()), V::String("Öfen, 炉".into())],
        [V::String("1.0".into()), V::String("".into())],
        [V::DateTime(1_700_000_000_123), V::DateTime(0)],
        [V::Text("a".into()), V::Text("b".into())],
        [
            V::Uuid("11ad7b32-1d32-4c4a-b0c9-fa049208939a".into()),
            V::Uuid("af15f175-78a0-4e05-97c0-2a0bb82b9f3b".into()),
        ],
        [V::Bytes(vec![0, 255].into()), V::Bytes(vec![7].into())],
    ];
    let metrics = values.into_iter().flatten().enumerate();
    let metrics: Vec<Metric> =
        metrics.map(|(i, value)| Metric::new(format!("m{i}"), value).at(1_700_000_000_000)).collect();
    // What is declared: see `Dialect::Tahu`.
    let declared = |metric: &Metric| match metric.value {
        Some(V::Int8(n)) => Metric::new(metric.name.clone(), i32::from(n)).at(1_700_000_000_000),
        Some(V::Int16(n)) => Metric::new(metric.name.clone(), i32::from(n)).at(1_700_000_000_000),
        _ => metric.clone(),
    };
    let payload = Payload { timestamp: Some(1), seq: Some(0), metrics: metrics.clone(), ..Payload::default() };
    let (mut lines, mut ours) = (Vec::new(), Vec::new());
    for (kind, form) in [(MessageKind::NBirth, Form::Birth), (MessageKind::NData, Form::Data)] {
        let bytes = encode(&payload, &EncodeOptions { dialect: Dialect::Tahu, ..EncodeOptions::new(form) });
        let topic = Topic::of(EdgeNodeDescriptor::parse("G", "E").unwrap(), kind, None).to_string();
        lines.push(json!({ "topic": topic, "payload": base64(&bytes) }).to_string());
        let metrics = metrics.iter().map(declared).collect();
        ours.push(Known { kind, seq: payload.seq, timestamp: payload.timestamp, metrics });
    }
    for command in [node_script("decode.js"), python_script("decode.py"), wrapper_script("decode_wrapper.py")] {
        let theirs = filter(command, &lines).await;
        theirs.iter().zip(&ours).for_each(|(theirs, ours)| assert_same_metrics(theirs, ours, Wide::Whole));
        assert_eq!(theirs.len(), ours.len());
    }
}

/// What the strict dialect is to clients that keep no births: the reason for the other one.
#[tokio::test(flavor = "multi_thread")]
async fn the_strict_dialect_is_not_read_by_clients_that_look_elsewhere() {
    let payload = Payload { metrics: vec![Metric::new("Count", 7_u32).at(5)], ..Payload::default() };
    let line = |form, dialect| {
        let bytes = encode(&payload, &EncodeOptions { dialect, ..EncodeOptions::new(form) });
        json!({ "topic": "", "payload": base64(&bytes) }).to_string()
    };
    let ways = [Form::Birth, Form::Data].into_iter().flat_map(|form| [(form, Dialect::Strict), (form, Dialect::Tahu)]);
    let read =
        filter(node_script("decode.js"), &ways.map(|(form, dialect)| line(form, dialect)).collect::<Vec<_>>()).await;
    let values: Vec<Option<&str>> = read.iter().map(|message| message["metrics"][0]["value"].as_str()).collect();
    assert_eq!(values, [None, Some("7"), None, Some("7")]);
}

/// Our Edge Node, as the services of the factory have it.
fn own_node(server: &Server, name: &str) -> EdgeNodeHandle {
    let descriptor = EdgeNodeDescriptor::parse("ACME-Interop", name).unwrap();
    let metrics = vec![
        Metric::new("Count", 1_u32),
        Metric::new("Small", -1_i8),
        Metric::new("Temperature", 20.5),
        Metric::new("Text", "a"),
    ];
    spawn_edge_node(
        EdgeNodeConfig::for_any_reader(descriptor),
        metrics,
        &server.mqtt(),
        BdSeqStore::Memory,
        Clock::new(),
    )
    .unwrap()
}

async fn next_event(node: &mut EdgeNodeHandle, what: &str) -> NodeEvent {
    let event = tokio::time::timeout(wait::PATIENCE, node.recv()).await;
    event.unwrap_or_else(|_| panic!("waited for {what}")).expect("the node runs")
}

/// The orders make it take over these values, and then be born again.
async fn is_commanded(node: &mut EdgeNodeHandle, foreign: &mut Foreign, orders: [Value; 2], expected: &[Metric]) {
    while !matches!(next_event(node, "the birth").await, NodeEvent::Born { rebirth: false, .. }) {}
    foreign.order(&orders[0].to_string()).await;
    let NodeEvent::Command { device: None, metrics, .. } = next_event(node, "the command").await else {
        panic!("no NCMD")
    };
    let plain = |metrics: &[Metric]| metrics.iter().map(|m| (m.name.clone(), m.value.clone())).collect::<Vec<_>>();
    assert_eq!(plain(&metrics), plain(expected));
    node.update(NodeUpdate::Set { device: None, metrics }).await.unwrap();
    foreign.order(&orders[1].to_string()).await;
    assert!(matches!(next_event(node, "the rebirth").await, NodeEvent::Born { rebirth: true, .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn our_edge_node_is_commanded_and_reborn_by_other_clients() {
    for server in Server::all().await {
        let mut node = own_node(&server, "ByJavaScript");
        let mut script = node_script("command.js");
        script.args([server.url().as_str(), "ACME-Interop", "ByJavaScript", server.level()]);
        let order = json!([{ "name": "Count", "type": "UInt32", "value": 7 }, { "name": "Small", "type": "Int32", "value": -7 }, { "name": "Text", "type": "String", "value": "wärmer" }]);
        let rebirth = json!([{ "name": "Node Control/Rebirth", "type": "Boolean", "value": true }]);
        let expected = [Metric::new("Count", 7_u32), Metric::new("Small", -7_i8), Metric::new("Text", "wärmer")];
        is_commanded(&mut node, &mut Foreign::start(script), [order, rebirth], &expected).await;
        node.stop().await;

        let mut node = own_node(&server, "ByPython");
        let mut script = python_script("command_pysparkplug.py");
        script.args(server.arguments("ByPython"));
        let order =
            json!([["Count", "UINT32", u32::MAX], ["Temperature", "DOUBLE", 23.5], ["Text", "STRING", "wärmer"]]);
        let rebirth = json!([["Node Control/Rebirth", "BOOLEAN", true]]);
        let expected =
            [Metric::new("Count", u32::MAX), Metric::new("Temperature", 23.5), Metric::new("Text", "wärmer")];
        is_commanded(&mut node, &mut Foreign::start(script), [order, rebirth], &expected).await;
        node.stop().await;

        let mut node = own_node(&server, "ByWrapper");
        let mut script = wrapper_script("command.py");
        script.args(server.arguments("ByWrapper"));
        let order = json!({ "Count": 7, "Temperature": 23.5, "Text": "wärmer" });
        let expected = [Metric::new("Count", 7_u32), Metric::new("Temperature", 23.5), Metric::new("Text", "wärmer")];
        is_commanded(
            &mut node,
            &mut Foreign::start(script),
            [order, json!({ "Node Control/Rebirth": true })],
            &expected,
        )
        .await;
        node.stop().await;
    }
}

/// The example flow as it is, in a Node-RED of its own.
fn node_red(server: &Server, directory: &Path) -> Command {
    let flow = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/node-red");
    let packages = ["node-red@4.1.0", "sparkplug-payload@1.0.3"];
    let install = |directory: &Path| {
        let install = ["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"];
        run(Command::new("npm").args(install).arg(directory).args(packages))
    };
    let place = installed("node-red", &packages.concat(), install);
    fs::copy(flow.join("settings.js"), directory.join("settings.js")).unwrap();
    let flows = fs::read_to_string(flow.join("flows.json")).unwrap();
    let version = format!(r#""protocolVersion": "{}""#, server.level());
    let of_server = flows.replace(r#""protocolVersion": "4""#, &version);
    assert!(of_server.contains(&version), "the flow names the version of MQTT");
    fs::write(directory.join("flows.json"), of_server).unwrap();
    fs::write(directory.join("package.json"), r#"{"dependencies": {"sparkplug-payload": "1.0.3"}}"#).unwrap();
    std::os::unix::fs::symlink(place.join("node_modules"), directory.join("node_modules")).unwrap();
    let mut command = Command::new("node");
    command.arg(place.join("node_modules/node-red/red.js")).arg("--userDir").arg(directory);
    let address = server.address();
    command.env("MQTT_HOST", address.ip().to_string()).env("MQTT_PORT", address.port().to_string());
    // Node makes the pipes that it is given non-blocking, also for others that write to them: what this test process says would be cut off.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Every metric of these births and data, in order, as the example flow of Node-RED publishes it.
async fn is_read_alike_by_node_red(messages: &[Arc<Message>]) {
    let server = Server::mosquitto(Protocol::V311);
    let directory = tempfile::tempdir().unwrap();
    let command = node_red(&server, directory.path());
    let recorder = Recorder::start(server.address()).await;
    let _runs = tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap();
    flow_answers(&recorder).await;
    let (_, ours) = known(messages);
    let carried = messages.iter().filter(|message| !matches!(Topic::parse(&message.topic), Ok(Topic::State { .. })));
    let mut compared = 0;
    for (message, ours) in carried.zip(&ours) {
        use MessageKind as Kind;
        if !matches!(ours.kind, Kind::NBirth | Kind::DBirth | Kind::NData | Kind::DData) {
            continue;
        }
        let place = recorder.count();
        recorder.publish(&message.topic, message.payload.clone()).await;
        let mut levels = message.topic.split('/').skip(1);
        let group = levels.next().unwrap();
        let prefix = format!("readable/{group}/{}/", levels.skip(1).collect::<Vec<_>>().join("/"));
        let mut metrics = Vec::new();
        let what = format!("what Node-RED makes of {}", message.topic);
        let all = |theirs: &Message| {
            if let Some(name) = theirs.topic.strip_prefix(&prefix) {
                metrics.push(in_node_red(name, &serde_json::from_slice(&theirs.payload).unwrap()));
            }
            (metrics.len() == ours.metrics.len()).then_some(())
        };
        recorder.wait_for(&what, place, all).await;
        compared += metrics.len();
        assert_same_metrics(&json!({ "topic": message.topic, "metrics": metrics }), ours, Wide::NearestDouble);
    }
    assert!(compared > 2_000, "a whole factory: {compared}");
}

/// Returns when the flow publishes what it reads.
async fn flow_answers(recorder: &Recorder) {
    let payload = Payload { metrics: vec![Metric::new("Ready", true)], ..Payload::default() };
    let bytes = encode(&payload, &EncodeOptions { dialect: Dialect::Tahu, ..EncodeOptions::new(Form::Data) }).to_vec();
    let mut again = tokio::time::interval(std::time::Duration::from_secs(1));
    let is_answer = |message: &Message| (message.topic == "readable/ACME-Interop/Probe/Ready").then_some(());
    let answered = recorder.wait_for("Node-RED", 0, is_answer);
    tokio::pin!(answered);
    loop {
        tokio::select! {
            () = &mut answered => return,
            _ = again.tick() => recorder.publish("spBv1.0/ACME-Interop/NDATA/Probe", bytes.clone()).await,
        }
    }
}

/// A metric in the form of the scripts, from what the flow publishes of it.
fn in_node_red(name: &str, published: &Value) -> Value {
    json!({
        "name": name,
        "type": published["type"],
        "value": node_red_text(&published["value"]),
        "timestamp": node_red_text(&published["timestamp"]),
    })
}

fn node_red_text(value: &Value) -> Option<String> {
    let byte = |value: &Value| u8::try_from(value.as_u64().unwrap()).unwrap();
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Object(fields) if fields.contains_key("rows") => {
            let (columns, rows) = (fields["columns"].as_array().unwrap(), fields["rows"].as_array().unwrap());
            let cells = |at: usize| rows.iter().map(|row| node_red_text(&row[at])).collect::<Vec<_>>();
            let columns = columns.iter().enumerate();
            let columns = columns.map(|(at, name)| (name.as_str().unwrap().to_owned(), json!(cells(at))));
            Some(Value::Object(columns.collect()).to_string())
        }
        // A number of 64 bits within a table.
        Value::Object(fields) if fields.contains_key("unsigned") => {
            let (low, high) = (fields["low"].as_i64().unwrap(), fields["high"].as_i64().unwrap());
            let number = high << 32 | (low & 0xffff_ffff);
            let is_unsigned = fields["unsigned"].as_bool().unwrap();
            Some(if is_unsigned { number.cast_unsigned().to_string() } else { number.to_string() })
        }
        // Bytes: of a Buffer, or of an array with numbered fields.
        Value::Object(fields) => {
            let bytes: Vec<u8> = match fields.get("data") {
                Some(data) => data.as_array().unwrap().iter().map(byte).collect(),
                None => (0..fields.len()).map(|at| byte(&fields[&at.to_string()])).collect(),
            };
            Some(hex::encode(bytes))
        }
        other => Some(other.to_string()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_flow_of_node_red_reads_births_and_data_and_commands() {
    for server in Server::all().await {
        node_red_reads_and_commands(&server).await;
    }
}

async fn node_red_reads_and_commands(server: &Server) {
    let directory = tempfile::tempdir().unwrap();
    let command = node_red(server, directory.path());
    let recorder = Recorder::start(server.address()).await;
    let _runs = tokio::process::Command::from(command).kill_on_drop(true).spawn().unwrap();
    flow_answers(&recorder).await;
    let filters = vec![("readable/ACME-Interop/ForNodeRed/#".to_owned(), QoS::AtMostOnce)];
    let mut readable = spawn_listener(filters, &server.mqtt(), Clock::new()).unwrap();
    assert_eq!(readable.recv().await, Some(ListenerEvent::Online));
    let mut node = own_node(server, "ForNodeRed");
    while !matches!(next_event(&mut node, "the birth").await, NodeEvent::Born { .. }) {}
    // A birth, then data.
    let mut seen: BTreeMap<String, Value> = BTreeMap::new();
    while seen.get("Temperature").is_none_or(|value| value["value"] != 22.25) {
        let event = tokio::time::timeout(wait::PATIENCE, readable.recv()).await;
        let Ok(Some(ListenerEvent::Message { topic, payload, .. })) = event else {
            panic!("{event:?} after {seen:#?}")
        };
        let name = topic.strip_prefix("readable/ACME-Interop/ForNodeRed/").unwrap().to_owned();
        if seen.insert(name, serde_json::from_slice(&payload).unwrap()).is_none() && seen.len() == 6 {
            let metrics =
                vec![Metric::new("Count", 8_u32), Metric::new("Small", -8_i8), Metric::new("Temperature", 22.25)];
            node.update(NodeUpdate::Set { device: None, metrics }).await.unwrap();
        }
    }
    let read = |name: &str| (seen[name]["type"].as_str().unwrap(), &seen[name]["value"]);
    assert_eq!(read("Count"), ("UInt32", &json!(8)));
    assert_eq!(read("Small"), ("Int32", &json!(-8)));
    assert_eq!(read("Temperature"), ("Double", &json!(22.25)));
    assert_eq!(read("Text"), ("String", &json!("a")));
    let send_write = async |metrics: Value| {
        let topic = "write/ACME-Interop/ForNodeRed".to_owned();
        readable.publish(topic, metrics.to_string().into()).await.unwrap();
    };
    send_write(json!([{ "name": "Count", "type": "UInt32", "value": 4_000_000_000_u32 }, { "name": "Text", "type": "String", "value": "wärmer" }])).await;
    let NodeEvent::Command { device: None, metrics, .. } = next_event(&mut node, "the command").await else {
        panic!("no NCMD")
    };
    let wanted = [("Count", 4_000_000_000_u32.into()), ("Text", "wärmer".into())];
    let received = metrics.iter().map(|metric| (&*metric.name, metric.value.clone().unwrap())).collect::<Vec<_>>();
    assert_eq!(received, wanted);
    send_write(json!([{ "name": "Node Control/Rebirth", "type": "Boolean", "value": true }])).await;
    assert!(matches!(next_event(&mut node, "the rebirth").await, NodeEvent::Born { rebirth: true, .. }));
    node.stop().await;
    readable.stop().await;
}

/// An Edge Node of another implementation.
struct Foreign {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Foreign {
    fn start(command: Command) -> Self {
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, stdin, stdout }
    }

    async fn order(&mut self, order: &str) {
        self.stdin.write_all(format!("{order}\n").as_bytes()).await.unwrap();
    }

    /// The next command that it prints.
    async fn next_command(&mut self) -> Value {
        let line = tokio::time::timeout(wait::PATIENCE, self.stdout.next_line()).await;
        serde_json::from_str(&line.expect("it prints a command").unwrap().unwrap()).unwrap()
    }
}

/// The events of our Host Application about one node.
#[derive(Default)]
struct Replica {
    is_alive: bool,
    births: usize,
    node: BTreeMap<String, Metric>,
    devices: BTreeMap<String, BTreeMap<String, Metric>>,
    updates: usize,
    complaints: Vec<String>,
}

impl Replica {
    fn take(&mut self, event: HostEvent) {
        let map = |metrics: &[Metric]| metrics.iter().map(|metric| (metric.name.to_string(), metric.clone())).collect();
        match event {
            HostEvent::NodeBirth { metrics, .. } => {
                self.is_alive = true;
                self.births += 1;
                self.node = map(&metrics);
                self.devices.clear();
            }
            HostEvent::NodeData { metrics, .. } => {
                self.updates += metrics.len();
                self.node.extend(map(&metrics));
            }
            HostEvent::NodeDeath { .. } => self.is_alive = false,
            HostEvent::DeviceBirth { device, metrics, .. } => {
                self.devices.insert(device.to_string(), map(&metrics));
            }
            HostEvent::DeviceData { device, metrics, .. } => {
                self.devices.entry(device.to_string()).or_default().extend(map(&metrics))
            }
            HostEvent::DeviceDeath { device, .. } => {
                self.devices.remove(device.as_str());
            }
            HostEvent::NodeStale { reason, .. } | HostEvent::Rejected { reason, .. } => self.complaints.push(reason),
            _ => {}
        }
    }

    fn value(&self, name: &str) -> Option<&sparkplug::Value> {
        self.node.get(name).and_then(|metric| metric.value.as_ref())
    }
}

async fn until(host: &mut HostHandle, replica: &mut Replica, what: &str, holds: impl Fn(&Replica) -> bool) {
    let deadline = tokio::time::Instant::now() + wait::PATIENCE;
    while !holds(replica) {
        let event = tokio::time::timeout_at(deadline, host.recv()).await;
        replica.take(event.unwrap_or_else(|_| panic!("waited for {what}: {:?}", replica.node)).expect("the host runs"));
    }
}

/// Our Host Application, as the services have it.
fn host(server: &Server) -> HostHandle {
    let config = HostConfig::of_contracts(Some(HostId::new("interop").unwrap()));
    sparkplug_mqtt::spawn_host(config, &server.mqtt(), Clock::new()).unwrap()
}

/// What both scripts publish first.
fn assert_first_birth(replica: &Replica) {
    use sparkplug::Value as V;
    let expected: [(&str, V); 6] = [
        ("Node Control/Rebirth", V::Boolean(false)),
        ("Temperature", V::Double(21.5)),
        ("Count", V::UInt32(4_000_000_000)),
        ("Small", V::Int8(-5)),
        ("Long", V::Int64(-9_007_199_254_740_991)),
        ("Text", "Öfen, 炉".into()),
    ];
    for (name, value) in expected {
        assert_eq!(replica.value(name), Some(&value), "{name}");
    }
    assert!(replica.node.contains_key("Nothing") && replica.value("Nothing").is_none());
    let burner = &replica.devices["Burner"];
    assert_eq!(burner["Flame"].value, Some(V::Boolean(true)));
    assert_eq!(burner["Power"].value, Some(V::Float(0.5)));
}

/// The life that both scripts lead: data, more data than seq has numbers, a device's end.
async fn lead_a_life(foreign: &mut Foreign, host: &mut HostHandle, replica: &mut Replica) {
    use sparkplug::Value as V;
    foreign.order("data").await;
    until(host, replica, "data", |replica| {
        replica.value("Temperature") == Some(&V::Double(22.25))
            && replica.devices["Burner"]["Flame"].value == Some(V::Boolean(false))
    })
    .await;
    assert_eq!(replica.value("Small"), Some(&V::Int8(-6)));
    let before = replica.updates;
    foreign.order("many").await;
    until(host, replica, "much data", |replica| replica.value("Count") == Some(&V::UInt32(299))).await;
    assert_eq!(replica.updates - before, 300, "none is lost where seq begins again");
    foreign.order("gone").await;
    until(host, replica, "the device's death", |replica| replica.devices.is_empty()).await;
    assert!(replica.is_alive);
}

async fn is_seen_dying(host: &mut HostHandle, replica: &mut Replica) {
    until(host, replica, "the node's death", |replica| !replica.is_alive).await;
    assert!(replica.complaints.is_empty(), "{:?}", replica.complaints);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_node_of_sparkplug_client_is_replicated_commanded_and_reborn() {
    join_all(Server::all().await.iter().map(leads_a_life_in_javascript)).await;
}

async fn leads_a_life_in_javascript(server: &Server) {
    let mut host = host(server);
    let mut replica = Replica::default();
    let mut script = node_script("edge_node.js");
    script.args([server.url().as_str(), "ACME-Interop", "JavaScript", server.level()]);
    let mut foreign = Foreign::start(script);
    until(&mut host, &mut replica, "the birth", |replica| replica.devices.contains_key("Burner")).await;
    assert_first_birth(&replica);
    let guarded = &replica.node["Guarded"].properties;
    assert_eq!(guarded.get("Quality"), Some(&sparkplug::Value::Int32(192)));
    assert_eq!(guarded.get("Unit").and_then(sparkplug::Value::as_str), Some("°C"));

    let node = EdgeNodeDescriptor::parse("ACME-Interop", "JavaScript").unwrap();
    let (command, read): (Vec<Metric>, Vec<Value>) = commands_of_every_kind().into_iter().unzip();
    host.request(HostRequest::Command { node: node.clone(), device: None, metrics: command }).await.unwrap();
    assert_eq!(foreign.next_command().await, json!({ "ncmd": read }));
    let device = Some(sparkplug::DeviceId::new("Burner").unwrap());
    let command = vec![Metric::new("Flame", false)];
    host.request(HostRequest::Command { node: node.clone(), device, metrics: command }).await.unwrap();
    assert_eq!(foreign.next_command().await, json!({ "dcmd": "Burner", "metrics": [["Flame", false]] }));
    host.request(HostRequest::Rebirth { node }).await.unwrap();
    until(&mut host, &mut replica, "the rebirth", |replica| {
        replica.births == 2 && replica.devices.contains_key("Burner")
    })
    .await;
    assert_eq!(foreign.next_command().await, json!({ "ncmd": [["Node Control/Rebirth", true]] }));
    is_written_to_from_the_command_line(server, &mut foreign).await;
    lead_a_life(&mut foreign, &mut host, &mut replica).await;
    foreign.order("stop").await;
    is_seen_dying(&mut host, &mut replica).await;
    host.stop().await;
}

/// Commands, and what `sparkplug-client` makes of each: its numbers of 64 bits are printed as texts.
fn commands_of_every_kind() -> Vec<(Metric, Value)> {
    let one = |metric: Metric, read: Value| {
        let read = json!([&*metric.name, read]);
        (metric, read)
    };
    vec![
        one(Metric::new("Temperature", 23.5_f64), json!(23.5)),
        one(Metric::new("Text", "wärmer"), json!("wärmer")),
        one(Metric::new("Count", u32::MAX), json!(u32::MAX)),
        one(Metric::new("Byte", 201_u8), json!(201)),
        one(Metric::new("Word", 60_001_u16), json!(60_001)),
        one(Metric::new("Small", -7_i8), json!(-7)),
        one(Metric::new("Long", i64::MIN + 1), json!((i64::MIN + 1).to_string())),
        one(Metric::new("Wide", u64::MAX), json!(u64::MAX.to_string())),
    ]
}

/// `sparkfleet write`, as it is without options, and in the strict dialect, of which this client reads no UInt32.
async fn is_written_to_from_the_command_line(server: &Server, foreign: &mut Foreign) {
    let cli = Cli::new(&server.url());
    let place = "ACME-Interop/JavaScript";
    for (more, read) in [(vec![], json!(4_000_000_001_u32)), (vec!["--dialect", "strict"], Value::Null)] {
        let words = [vec!["write", place, "Count", "4000000001", "--no-wait"], more].concat();
        let written = cli.run(&words).await;
        assert_eq!(written.code, 0, "{written:#?}");
        assert_eq!(foreign.next_command().await, json!({ "ncmd": [["Node Control/Rebirth", true]] }));
        assert_eq!(foreign.next_command().await, json!({ "ncmd": [["Count", read]] }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_node_of_pysparkplug_is_replicated_and_commanded() {
    join_all(Server::all().await.iter().map(leads_a_life_in_python)).await;
}

async fn leads_a_life_in_python(server: &Server) {
    let mut host = host(server);
    let mut replica = Replica::default();
    let mut script = python_script("edge_node.py");
    script.args(server.arguments("Python"));
    let mut foreign = Foreign::start(script);
    until(&mut host, &mut replica, "the birth", |replica| replica.devices.contains_key("Burner")).await;
    assert_first_birth(&replica);
    let identity = replica.value("Identity").and_then(sparkplug::Value::as_str);
    assert_eq!(identity, Some("11ad7b32-1d32-4c4a-b0c9-fa049208939a"));

    let node = EdgeNodeDescriptor::parse("ACME-Interop", "Python").unwrap();
    let command = vec![Metric::new("Temperature", 23.5_f64), Metric::new("Count", 7_u32)];
    host.request(HostRequest::Command { node: node.clone(), device: None, metrics: command }).await.unwrap();
    assert_eq!(foreign.next_command().await, json!({ "ncmd": null, "metrics": [["Temperature", 23.5], ["Count", 7]] }));
    let device = Some(sparkplug::DeviceId::new("Burner").unwrap());
    let command = vec![Metric::new("Flame", false), Metric::new("Power", 0.25_f32)];
    host.request(HostRequest::Command { node: node.clone(), device, metrics: command }).await.unwrap();
    assert_eq!(
        foreign.next_command().await,
        json!({ "dcmd": "Burner", "metrics": [["Flame", false], ["Power", 0.25]] })
    );
    // The request arrives; the client has nothing by which an application could answer it.
    host.request(HostRequest::Rebirth { node }).await.unwrap();
    assert_eq!(foreign.next_command().await, json!({ "ncmd": null, "metrics": [["Node Control/Rebirth", true]] }));
    lead_a_life(&mut foreign, &mut host, &mut replica).await;
    // Its own NDEATH would carry the bdSeq of a session that it has not begun, and such a death is not a death. Its will carries the right one.
    foreign.child.kill().await.unwrap();
    is_seen_dying(&mut host, &mut replica).await;
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_node_of_mqtt_spb_wrapper_is_read_commanded_and_reborn() {
    join_all(Server::all().await.iter().map(is_born_by_the_wrapper)).await;
}

/// Its data have other names than its births, so there are none.
async fn is_born_by_the_wrapper(server: &Server) {
    use sparkplug::Value as V;
    let mut host = host(server);
    let mut replica = Replica::default();
    let mut script = wrapper_script("edge_node_wrapper.py");
    script.args(server.arguments("Wrapper"));
    let mut foreign = Foreign::start(script);
    until(&mut host, &mut replica, "the birth", |replica| replica.births == 1).await;
    let born = ["DATA/Temperature", "DATA/Text", "DATA/On", "CMD/Setpoint"].map(|name| replica.value(name).cloned());
    assert_eq!(born, [V::Double(21.5), V::Text("Öfen, 炉".into()), V::Boolean(true), V::Double(20.0)].map(Some));
    let node = EdgeNodeDescriptor::parse("ACME-Interop", "Wrapper").unwrap();
    let metrics = vec![Metric::new("CMD/Setpoint", 22.5)];
    host.request(HostRequest::Command { node: node.clone(), device: None, metrics }).await.unwrap();
    assert_eq!(foreign.next_command().await, json!({ "ncmd": [["CMD/Setpoint", 22.5]] }));
    host.request(HostRequest::Rebirth { node }).await.unwrap();
    assert_eq!(foreign.next_command().await, json!({ "ncmd": [["Node Control/Rebirth", true]] }));
    until(&mut host, &mut replica, "the rebirth", |replica| replica.births == 2).await;
    assert!(replica.is_alive && replica.complaints.is_empty(), "{:?}", replica.complaints);
    host.stop().await;
}
