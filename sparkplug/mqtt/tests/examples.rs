//! The two example programs, as processes, on a Mosquitto of their own: what a person types into one is read in the other.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Instant;

use support::SOON;
use support::mosquitto::Mosquitto;

/// A running example. It is killed when dropped.
struct Program {
    name: &'static str,
    process: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    /// What it said, for the message of a failure.
    said: Vec<String>,
}

impl Program {
    fn start(name: &'static str, server: &Mosquitto, args: &[&str]) -> Self {
        let mut process = Command::new(program(name))
            .args(["--server", &server.url(), "--keep-alive", "2"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { name, input: process.stdin.take(), process, output, said: Vec::new() }
    }

    fn type_line(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits for exactly these lines, one directly after the other; other lines may come before them.
    fn says(&mut self, lines: &[&str]) {
        let until = Instant::now() + SOON;
        let mut next = 0;
        while next < lines.len() {
            match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    next = if line == lines[next] { next + 1 } else { usize::from(line == lines[0]) };
                    self.said.push(line);
                }
                Err(error) => panic!("{} does not say {lines:?} ({error}), but {:#?}", self.name, self.said),
            }
        }
    }

    /// Waits for the end of it, and returns whether it calls that a success.
    fn ends(mut self) -> bool {
        let until = Instant::now() + SOON;
        loop {
            match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return self.process.wait().unwrap().success(),
                Err(RecvTimeoutError::Timeout) => panic!("{} does not end", self.name),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Cargo builds examples together with tests, but tells tests nothing of them: they lie beside the folder of the tests.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name);
    assert!(program.exists(), "{} is missing: cargo build -p sparkplug-mqtt --examples", program.display());
    program
}

fn edge_node(server: &Mosquitto, args: &[&str]) -> Program {
    Program::start("edge_node", server, &[&["--group", "Plant", "--node", "Press"], args].concat())
}

/// A host that is online, so that it misses nothing.
fn host_application(server: &Mosquitto) -> Program {
    let mut host = Program::start("host_application", server, &["--host-id", "Office"]);
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
fn a_host_on_two_servers_at_once_hears_nodes_on_both() {
    let (first, second) = (Mosquitto::start(), Mosquitto::start());
    let mut host = Program::start(
        "host_application",
        &first,
        &["--server", &second.url(), "--all-servers", "--host-id", "Office"],
    );
    host.says(&["STATE Office online"]);
    host.says(&["STATE Office online"]);
    let _other = Program::start("edge_node", &second, &["--node", "Other", "--primary-host", "Office"]);
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
    // A definition is told by births only.
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

/// A short example; it takes nothing but the address of the server.
fn short(name: &'static str, server: &Mosquitto) -> Program {
    let mut process = Command::new(program(name)).arg(server.url()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let (sender, output) = mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    Program { name, input: None, process, output, said: Vec::new() }
}

#[test]
fn the_short_examples_do_what_they_say() {
    let server = Mosquitto::start();
    let mut fleet = short("fleet", &server);
    fleet.says(&["listening"]);
    let publish = short("publish", &server);
    // Its own, and those that every node has: bdSeq and Node Control/Rebirth.
    fleet.says(&["Plant/Press is born with 3 metrics"]);
    fleet.says(&["Process/Temperature = Some(Double(21.0))"]);
    drop(publish);
    fleet.says(&["Plant/Press is dead"]);
    let table = short("table", &server);
    fleet.says(&["Plant/Mill is born with 5 metrics"]);
    drop(table);
    fleet.says(&["Plant/Mill is dead"]);

    let mut obey = short("obey", &server);
    fleet.says(&["Plant/Line is born with 2 metrics"]);
    fleet.says(&["Plant/Line/Motor is born"]);
    let mut write = short("write", &server);
    write.says(&["done"]);
    assert!(write.ends());
    fleet.says(&["Setpoint = Some(UInt32(900))"]);
    obey.says(&["told: Setpoint = Some(UInt32(900))"]);
}
