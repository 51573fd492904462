//! The examples, as processes, on a Mosquitto of their own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support;

use std::path::PathBuf;
use std::process::Command;

use support::mosquitto::Mosquitto;
use support::program::Program;

/// Cargo builds examples together with tests, but gives tests no path of them: they lie beside the folder of the tests.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name);
    assert!(program.exists(), "{} is missing: cargo build -p sparkplug-mqtt --examples", program.display());
    program
}

/// An example takes nothing but the address of the server.
fn short(name: &str, server: &Mosquitto) -> Program {
    Program::start(Command::new(program(name)).arg(server.url()))
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
    let template = short("template", &server);
    fleet.says(&["Plant/Robot is born with 5 metrics"]);
    drop(template);
    fleet.says(&["Plant/Robot is dead"]);

    let mut obey = short("obey", &server);
    fleet.says(&["Plant/Line is born with 2 metrics"]);
    fleet.says(&["Plant/Line/Motor is born"]);
    let mut write = short("write", &server);
    write.says(&["done"]);
    assert!(write.ends());
    fleet.says(&["Setpoint = Some(UInt32(900))"]);
    obey.says(&["commanded: Setpoint = Some(UInt32(900))"]);
    drop(obey);
    fleet.says(&["Plant/Line is dead"]);

    let mut callbacks = short("callbacks", &server);
    fleet.says(&["Plant/Line/Motor is born"]);
    let mut write = short("write", &server);
    write.says(&["done"]);
    assert!(write.ends());
    callbacks.says(&["the motor turns with Some(UInt32(900))"]);
    fleet.says(&["Setpoint = Some(UInt32(900))"]);
}
