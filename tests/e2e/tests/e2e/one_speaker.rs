//! A second process of an Edge Node by mistake: it ends and names the first, no acknowledged write is lost, and nothing at the edge is touched.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use e2e::central_services::{CentralServices, free_port, service_process};
use e2e::cli::Cli;
use e2e::mosquitto::Mosquitto;
use e2e::process::Process;
use e2e::recorder::{Message, Recorder};
use e2e::wait;
use e2e::wire::Reader;
use sparkplug::{EdgeNodeDescriptor, Value};

use crate::factory::Up;

const CONFIGDB: &str = "another ConfigDB of ACME-Central is on this MQTT server: instance ";
const ADVICE: &str = "; stop it, or displace it with mqtt.take_over = true (sparkfleet up --take-over)";

/// What an operator reads whose write went to the ConfigDB that ends: nothing is acknowledged.
const AGAIN: &str = "another ConfigDB with another store speaks on this MQTT server now";

/// How long a factory that has to end may take: shorter than any wait, so that both logs can be shown.
const MOMENT: Duration = Duration::from_secs(100);

/// Creates clusters with these names, and does what the command says where it was not acknowledged.
async fn create(cli: &Cli, names: &[&str]) {
    for name in names {
        loop {
            let outcome = cli.run(&["cluster", "create", name]).await;
            match outcome.code {
                0 => break,
                _ => outcome.refused(4, AGAIN),
            };
        }
    }
}

async fn clusters(cli: &Cli) -> Vec<String> {
    let listed = cli.json(&["cluster", "list"]).await;
    let mut names: Vec<String> =
        listed.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_second_control_plane_ends_with_code_5_and_names_the_first_and_no_acknowledged_write_is_lost() {
    let broker = Mosquitto::start();
    let recorder = Recorder::start(broker.address()).await;
    let first = CentralServices::start(broker.address(), free_port());
    let cli = Cli::new(&format!("mqtt://{}", broker.address()));
    create(&cli, &["Alpha"]).await;
    let second = CentralServices::start(broker.address(), free_port());
    let ended = async {
        for service in ["configdb", "cluster-manager", "identity", "edge-monitor"] {
            let code = || second.processes.exit_code(service);
            let code = wait::until(&format!("the second {service} to end"), code, || second.processes.tails()).await;
            assert_eq!(code, 5, "{service}\n{}", second.processes.tails());
        }
    };
    tokio::join!(create(&cli, &["Beta", "Gamma", "Delta"]), ended);
    let log = second.processes.logs();
    let line =
        log.lines().find(|line| line.starts_with("sparkfleet: another ConfigDB")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains(CONFIGDB) && line.contains(" on host ") && line.contains(" since 20"), "{line}");
    assert!(line.ends_with(ADVICE), "{line}");
    assert_eq!(clusters(&cli).await, ["Alpha", "Beta", "Delta", "Gamma"]);
    // What the second cluster manager wrote of its own place is put right.
    let listed = cli.json(&["cluster", "list"]).await;
    for uuid in listed.as_array().unwrap().iter().map(|row| row["uuid"].as_str().unwrap()) {
        let setup = async || cli.json(&["config", "get", uuid, "EdgeClusterSetup"]).await.to_string();
        let until = Instant::now() + wait::PATIENCE;
        while !setup().await.contains(&first.git().to_string()) {
            assert!(Instant::now() < until, "{}", setup().await);
            tokio::time::sleep(wait::LOOK).await;
        }
    }
    for service in ["configdb", "cluster-manager", "identity", "edge-monitor"] {
        assert!(first.processes.runs(service), "{service}\n{}", first.processes.tails());
    }
    assert!(first.processes.logs().contains("this process continues and asks the other to end"));
    let births = Reader::read(&recorder.messages());
    assert!(births.node("ACME-Central", "ConfigDB").is_some_and(|node| node.is_alive));
}

#[tokio::test]
async fn who_takes_over_displaces_the_services_that_run() {
    let broker = Mosquitto::start();
    let mut first = Up::on(broker.address()).await;
    // Of two that come at the same time either may be the first, for each service.
    first.ready().await;
    let cli = Cli::new(&format!("mqtt://{}", broker.address()));
    let mut second = Up::on(broker.address()).await;
    let ended = tokio::time::timeout(MOMENT, second.process.ended()).await;
    let ended = ended.unwrap_or_else(|_| panic!("the second still runs\n{}\n{}", first.logs(), second.logs()));
    assert_eq!(ended.code(), Some(5), "{}", second.logs());
    assert!(second.logs().contains("is on this MQTT server: instance "), "{}", second.logs());
    let mut third = Up::on_with(broker.address(), &["--take-over"]).await;
    let ended = tokio::time::timeout(MOMENT, first.process.ended()).await;
    let ended = ended.unwrap_or_else(|_| panic!("the first still runs\n{}\n{}", first.logs(), third.logs()));
    assert_eq!(ended.code(), Some(5), "{}", first.logs());
    create(&cli, &["Alpha"]).await;
    assert_eq!(clusters(&cli).await, ["Alpha"]);
    assert!(third.process.is_running(), "{}", third.logs());
}

/// The process of an NBIRTH of the central monitor, and whether it is established.
fn birth_of_monitor(message: &Message) -> Option<(String, bool)> {
    if message.topic != "spBv1.0/ACME-Central/NBIRTH/Monitor" {
        return None;
    }
    let mut reader = Reader::default();
    reader.take(message);
    let metrics = &reader.node("ACME-Central", "Monitor").unwrap().metrics;
    match (&metrics["Speaker/Instance"], &metrics["Speaker/Established"]) {
        (Some(Value::String(instance)), Some(Value::Boolean(established))) => {
            Some((instance.to_string(), *established))
        }
        other => panic!("{other:?}"),
    }
}

/// A machine was cloned: what a service keeps, its MQTT client id among it, is there twice, and so is its process. `protocol`: of MQTT.
async fn a_copy_of_the_state_directory_ends(protocol: &str) {
    const MEANING: &str = "as after a copy of its state directory";
    let broker = Mosquitto::start();
    let recorder = Recorder::start(broker.address()).await;
    let (original, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let protocol = format!("protocol = \"{protocol}\"\n");
    let start = |directory: &Path| {
        service_process("edge-monitor", "mode = \"central\"\n", &protocol, broker.address(), directory)
    };
    let mut first = start(original.path());
    let (instance, _) = recorder.wait_for("the first birth", 0, birth_of_monitor).await;
    fs::create_dir(copy.path().join("edge-monitor")).unwrap();
    let mut files = Vec::new();
    for file in fs::read_dir(original.path().join("edge-monitor")).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), copy.path().join("edge-monitor").join(file.file_name())).unwrap();
        files.push(file.file_name().into_string().unwrap());
    }
    assert!(files.iter().any(|name| name.ends_with(".client_id")), "{files:?}");

    let mut second = start(copy.path());
    let code = second.ended().await.code();
    let logs = || format!("--- the first\n{}\n--- the second\n{}", first.output(), second.output());
    assert_eq!(code, Some(5), "{}", logs());
    let last = second.output().lines().last().unwrap_or_default().to_owned();
    let named =
        format!("sparkfleet: another Monitor of ACME-Central is on this MQTT server: instance {instance} on host ");
    assert!(last.starts_with(&named) && last.ends_with(ADVICE), "{last}\n{}", logs());
    let said = |process: &Process| process.output().matches(MEANING).count();
    assert!(said(&first) < 2 && said(&second) < 2 && said(&first) + said(&second) > 0, "{}", logs());
    continues(&recorder, &instance).await;

    // Its supervisor starts it again.
    second.restart();
    assert_eq!(second.ended().await.code(), Some(5), "{}", second.tail());
    continues(&recorder, &instance).await;
    assert!(first.is_running(), "{}", first.tail());
    assert!(Reader::read(&recorder.messages()).node("ACME-Central", "Monitor").is_some_and(|node| node.is_alive));
}

/// Waits for births by which the process has had one session for so long that no other one can object.
async fn continues(recorder: &Recorder, instance: &str) {
    let until = Instant::now() + wait::PATIENCE;
    loop {
        let place = recorder.count();
        recorder.ask(EdgeNodeDescriptor::parse("ACME-Central", "Monitor").unwrap());
        let (speaker, is_established) = recorder.wait_for("a birth", place, birth_of_monitor).await;
        assert_eq!(speaker, instance);
        if is_established {
            return;
        }
        assert!(Instant::now() < until, "sessions do not last");
    }
}

#[tokio::test]
async fn a_process_with_a_copy_of_the_state_directory_ends_with_code_5_and_names_the_first_in_mqtt_3_1_1() {
    a_copy_of_the_state_directory_ends("3.1.1").await;
}

#[tokio::test]
async fn a_process_with_a_copy_of_the_state_directory_ends_with_code_5_and_names_the_first_in_mqtt_5() {
    a_copy_of_the_state_directory_ends("5").await;
}
