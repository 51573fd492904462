//! The two programs, as processes, on a Mosquitto of their own: what a user types into one is read in the other.

use std::process::Command;

use sparkplug::state::HostState;

use crate::mosquitto::Mosquitto;
use crate::program::Program;
use crate::tap::Tap;

const NODE: &str = env!("CARGO_BIN_EXE_tck-node");
const HOST: &str = env!("CARGO_BIN_EXE_tck-host");

fn program(path: &str, server: &Mosquitto, args: &[&str]) -> Program {
    Program::start(Command::new(path).args(["--server", &server.url(), "--keep-alive", "2"]).args(args))
}

fn edge_node(server: &Mosquitto, args: &[&str]) -> Program {
    program(NODE, server, &[&["--group", "Plant", "--node", "Press"], args].concat())
}

/// A host that is online, so that it misses nothing.
fn host_application(server: &Mosquitto) -> Program {
    let mut host = program(HOST, server, &["--host-id", "Office"]);
    host.says(&["online"]);
    host
}

#[test]
fn births_and_commands_and_their_answers_and_a_dropped_node_s_death_are_seen() {
    let server = Mosquitto::start();
    let mut host = host_application(&server);
    let mut node = edge_node(&server, &["--device", "Motor 1", "--primary-host", "Office", "--aliases"]);
    node.says(&["born bdSeq=0 rebirth=false"]);
    host.says(&["NBIRTH Plant Press bdSeq=0"]);
    host.says(&["  Temperature Double 20.5"]);
    host.says(&["DBIRTH Plant Press \"Motor 1\"", "  Counter Int32 0"]);

    host.type_line("ncmd Plant Press Temperature Double 23");
    node.says(&["NCMD", "  Temperature Double 23.0"]);
    host.says(&["NDATA Plant Press", "  Temperature Double 23.0"]);
    host.type_line("dcmd Plant Press \"Motor 1\" Counter Int32 -7");
    node.says(&["DCMD \"Motor 1\"", "  Counter Int32 -7"]);
    host.says(&["DDATA Plant Press \"Motor 1\"", "  Counter Int32 -7"]);
    host.type_line("ncmd Plant Press Pressure Double 1");
    host.says(&["rejected spBv1.0/Plant/NCMD/Press: metric \"Pressure\" is not in the birth"]);

    node.type_line("device death \"Motor 1\"");
    host.says(&["DDEATH Plant Press \"Motor 1\""]);
    node.type_line("device birth \"Motor 1\"");
    host.says(&["DBIRTH Plant Press \"Motor 1\"", "  Counter Int32 -7"]);
    node.type_line("property Temperature engUnit String °C");
    host.says(&["NDATA Plant Press", "  Temperature Double 23.0 engUnit=\"°C\""]);
    host.type_line("rebirth Plant Press");
    node.says(&["born bdSeq=0 rebirth=true"]);
    host.says(&["NBIRTH Plant Press bdSeq=0"]);

    node.type_line("drop");
    assert!(node.ends());
    host.says(&["NDEATH Plant Press"]);
    host.type_line("stop");
    host.says(&["stopped"]);
    assert!(host.ends());
}

#[test]
fn a_node_leaves_when_its_primary_host_is_dropped_and_comes_back_with_it() {
    let server = Mosquitto::start();
    let mut host = host_application(&server);
    let mut node = edge_node(&server, &["--primary-host", "Office"]);
    node.says(&["born bdSeq=0 rebirth=false"]);
    host.type_line("drop");
    assert!(host.ends());
    // Beyond this line no birth of the first session can be meant.
    node.says(&["offline: primary host went offline"]);
    let mut host = host_application(&server);
    node.says(&["born bdSeq=1 rebirth=false"]);
    host.says(&["NBIRTH Plant Press bdSeq=1"]);
    node.type_line("stop");
    node.says(&["stopped"]);
    assert!(node.ends());
    host.says(&["NDEATH Plant Press"]);
}

#[test]
fn a_host_on_two_servers_at_once_receives_nodes_on_both() {
    let (first, second) = (Mosquitto::start(), Mosquitto::start());
    let mut host = program(HOST, &first, &["--server", &second.url(), "--all-servers", "--host-id", "Office"]);
    host.says(&["STATE Office online"]);
    host.says(&["STATE Office online"]);
    let _other = program(NODE, &second, &["--node", "Other", "--primary-host", "Office"]);
    host.says(&["NBIRTH Plant Other bdSeq=0"]);
    let mut node = edge_node(&first, &["--primary-host", "Office"]);
    host.says(&["NBIRTH Plant Press bdSeq=0"]);
    host.type_line("ncmd Plant Press Temperature Double 23");
    node.says(&["NCMD", "  Temperature Double 23.0"]);
    host.says(&["NDATA Plant Press", "  Temperature Double 23.0"]);
    host.type_line("stop");
    host.says(&["stopped"]);
    assert!(host.ends());
    node.says(&["offline: primary host went offline"]);
}

#[test]
fn every_datatype_can_be_typed_into_the_node_and_is_read_in_the_host() {
    let values = [
        "Int8 -128",
        "Int16 -32768",
        "Int32 -2147483648",
        "Int64 -9223372036854775808",
        "UInt8 255",
        "UInt16 65535",
        "UInt32 4294967295",
        "UInt64 18446744073709551615",
        "Float 0.1",
        "Double \"NaN\"",
        "Boolean true",
        "String \"two\\nlines\"",
        "DateTime 1700000000000",
        "Text \"\"",
        "Uuid \"11ad7b32-1d32-4c4a-b0c9-fa049208939a\"",
        "DataSet {\"columns\":[[\"a\",\"Int32\"],[\"b\",\"String\"]],\"rows\":[[1,\"x\"],[null,\"y\"]]}",
        "Bytes \"00c0ffee\"",
        "File \"ff\"",
        "Template {\"ref\":\"Motor\",\"version\":\"1\",\"members\":[[\"Speed\",\"Double\",0.5]],\"parameters\":[[\"Unit\",\"String\",\"rpm\"]]}",
        "Int8Array [-1,2]",
        "Int16Array [-1,2]",
        "Int32Array [-1,2]",
        "Int64Array [-1,2]",
        "UInt8Array [1,2]",
        "UInt16Array [1,2]",
        "UInt32Array [1,2]",
        "UInt64Array [1,2]",
        "FloatArray [0.1,2.0]",
        "DoubleArray [0.1,2.0]",
        "BooleanArray [true,false,true,true,false,false,false,true]",
        "StringArray [\"a\",\"\",\"c\"]",
        "DateTimeArray [0,1700000000000]",
    ];
    let datatypes = values.map(|line| line.split_once(' ').unwrap().0);
    // Every metric is born as null, named like its datatype; then each gets its value, and loses it again.
    let born = datatypes.map(|datatype| format!("--metric={datatype} {datatype} null"));
    let mut args = born.each_ref().map(String::as_str).to_vec();
    // Only births publish a definition.
    args.push("--metric=Motor Template {\"definition\":true,\"members\":[[\"Speed\",\"Double\",0.0]],\"parameters\":[[\"Unit\",\"String\",\"rpm\"]]}");
    let server = Mosquitto::start();
    let mut host = host_application(&server);
    let mut node = edge_node(&server, &args);
    host.says(&["NBIRTH Plant Press bdSeq=0"]);
    host.says(&[&format!("  {}", &args[args.len() - 1]["--metric=".len()..])]);
    for (line, datatype) in values.into_iter().zip(datatypes) {
        node.type_line(&format!("set {datatype} {line}"));
        host.says(&["NDATA Plant Press", &format!("  {datatype} {line}")]);
        node.type_line(&format!("set {datatype} {datatype} null"));
        host.says(&["NDATA Plant Press", &format!("  {datatype} {datatype} null")]);
    }
    assert_eq!(datatypes.len(), 32, "all that a metric can have: 34 without the two of properties");
}

#[test]
fn properties_of_the_start_are_born() {
    let server = Mosquitto::start();
    let mut host = host_application(&server);
    let properties =
        ["--property", "Temperature engUnit String °C", "--device-property", "Counter readOnly Boolean true"];
    let _node = edge_node(&server, &[&properties[..], &["--device", "Motor"]].concat());
    host.says(&["NBIRTH Plant Press bdSeq=0"]);
    host.says(&["  Temperature Double 20.5 engUnit=\"°C\""]);
    host.says(&["DBIRTH Plant Press Motor", "  Counter Int32 0 readOnly=true"]);
    let refused = edge_node(&server, &["--property", "Pressure engUnit String bar"]);
    assert!(!refused.ends(), "there is no such metric");
}

#[test]
fn the_host_prints_since_when_nodes_and_devices_are_dead() {
    let server = Mosquitto::start();
    let mut host = host_application(&server);
    host.type_line("state Plant Press");
    host.says(&["state Plant Press unknown"]);
    let mut node = edge_node(&server, &["--device", "Drill", "--device", "Motor"]);
    host.says(&["DBIRTH Plant Press Motor"]);
    host.type_line("state Plant Press");
    host.says(&["state Plant Press alive", "  Drill alive", "  Motor alive"]);
    node.type_line("device death Motor");
    host.says(&["DDEATH Plant Press Motor"]);
    node.type_line("stop");
    host.says(&["NDEATH Plant Press"]);
    host.type_line("state Plant Press");
    let died: u64 = host.says_of("state Plant Press dead ").parse().unwrap();
    let with_it: u64 = host.says_of("  Drill dead ").parse().unwrap();
    let before: u64 = host.says_of("  Motor dead ").parse().unwrap();
    assert_eq!(with_it, died, "a device dies with its node");
    assert!(before > 1_700_000_000_000 && before <= died, "{before} {died}");
}

/// A farewell without a DISCONNECT: the death, with the time of its sending, comes before the server publishes the will, whose time is that of the connection.
#[tokio::test]
async fn close_says_farewell_and_ends_the_connection_without_a_disconnect() {
    let server = Mosquitto::start();
    let mut tap = Tap::start(server.address().port()).await;
    let state = |payload: &[u8]| HostState::decode(payload).unwrap();
    let mut host = program(HOST, &server, &["--host-id", "Office", "--relay"]);
    host.says(&["online"]);
    let birth = state(&tap.expect("STATE").await.payload);
    host.type_line("close");
    host.says(&["stopped"]);
    let (farewell, will) = (tap.expect("STATE").await, tap.expect("STATE").await);
    let (farewell, will) = (state(&farewell.payload), state(&will.payload));
    assert_eq!([birth.online, farewell.online, will.online], [true, false, false]);
    assert_eq!(will.timestamp, birth.timestamp, "it is the will");
    assert!(farewell.timestamp >= birth.timestamp);
    assert!(host.ends());

    let mut node = edge_node(&server, &["--relay"]);
    tap.until("NBIRTH").await;
    node.type_line("close");
    tap.expect("NDEATH").await;
    tap.expect("NDEATH").await;
    assert!(node.ends());
}

#[test]
fn close_needs_a_relay_and_stop_sends_its_disconnect_through_one() {
    let server = Mosquitto::start();
    let mut host = host_application(&server);
    host.type_line("close");
    let mut node = edge_node(&server, &["--relay", "--backoff", "100..200", "--dialect", "tahu"]);
    host.says(&["NBIRTH Plant Press bdSeq=0"]);
    node.type_line("stop");
    node.says(&["stopped"]);
    assert!(node.ends());
    host.says(&["NDEATH Plant Press"]);
    let log = std::fs::read_to_string(server.directory().join("mosquitto.log")).unwrap();
    assert!(log.contains("Received DISCONNECT"), "{log}");
}
