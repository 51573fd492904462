//! A second process of an Edge Node by mistake: it ends and names the first, no acknowledged write is lost, and nothing at the edge is touched.

use std::time::{Duration, Instant};

use e2e::central_services::{CentralServices, free_port};
use e2e::cli::Cli;
use e2e::mosquitto::Mosquitto;
use e2e::recorder::Recorder;
use e2e::wait;
use e2e::wire::Reader;

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
