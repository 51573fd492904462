//! `sparkfleet up`: what can go wrong at its start, how it ends, and that the next start continues.

use std::net::TcpListener;
use std::process::{Command, Output};

use e2e::mosquitto::Mosquitto;
use e2e::program;
use e2e::recorder::Recorder;
use e2e::wire::Reader;

use crate::factory::{EMPTY, Up, arguments};

const UUID: &str = "5b2e0000-0000-4000-8000-000000000001";

/// Runs `up` until it gives up by itself.
fn failing(more: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let arguments = arguments(&directory.path().join("data"), more);
    Command::new(program::sparkfleet()).args(arguments).output().unwrap()
}

/// The one line of an explanation.
fn explanation(output: &Output, code: i32) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 1, "one line: {stderr}");
    lines[0].to_owned()
}

#[test]
fn a_taken_port_ends_up_with_one_clear_line_and_code_4() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for option in ["--listen", "--git", "--bootstrap", "--http", "--console-listen"] {
        let line = explanation(&failing(&[option, &address]), 4);
        assert!(line.contains(&address), "{option}: {line}");
        assert!(line.contains(option), "says which option to change, {option}: {line}");
    }
}

#[test]
fn a_broker_on_an_address_that_others_can_reach_is_refused() {
    let output = failing(&["--listen", "0.0.0.0:0"]);
    let line = explanation(&output, 4);
    assert!(line.contains("loopback"), "{line}");
}

#[test]
fn content_that_cannot_be_loaded_ends_up_with_code_3_and_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let cases = [
        (directory.path().join("missing.yaml").display().to_string(), "No such file"),
        (file("broken.yaml", "service: [unclosed"), "dump"),
        (file("version.yaml", &EMPTY.replace("version: 2", "version: 9")), "version 9"),
        (file("tags.yaml", &format!("{EMPTY}objects: {{ !u CLASS: {{}} }}\n")), "tags"),
    ];
    for (path, reason) in cases {
        let line = explanation(&failing(&["--load", &path]), 3);
        assert!(line.contains(&path) && line.contains(reason), "{reason}: {line}");
    }
}

#[test]
fn a_cluster_manager_that_is_set_up_as_the_certificate_authority_says_where_that_is_now() {
    let directory = tempfile::tempdir().unwrap();
    let (file, state) = (directory.path().join("manager.toml"), directory.path().join("state"));
    let run = |tables: &str, variable: &str| {
        std::fs::write(&file, format!("state_dir = \"{}\"\n{tables}\n", state.display())).unwrap();
        let mut command = Command::new(program::sparkfleet());
        command.args(["cluster-manager", "--config"]).arg(&file).env(variable, "x");
        explanation(&command.output().unwrap(), 3)
    };
    let line = run("[identity]\nlifetime_s = 3600", "OTHER");
    assert!(line.contains("identity.lifetime_s is now lifetime_s of the service Identity"), "{line}");
    let line = run("[identity.kerberos]\nrealm = \"ACME.EXAMPLE\"", "OTHER");
    assert!(line.contains("identity.kerberos.realm is now kerberos.realm"), "{line}");
    let line = run("", "SPARKFLEET__IDENTITY__KERBEROS__REALM");
    assert!(line.contains("is now SPARKFLEET__KERBEROS__REALM"), "{line}");
    std::fs::create_dir_all(state.join("identity")).unwrap();
    std::fs::write(state.join("identity/enrolment.key"), "00").unwrap();
    let line = run("", "OTHER");
    assert!(line.contains("move the directory identity into the state directory of `sparkfleet identity`"), "{line}");
}

#[test]
fn a_service_with_an_unusable_configuration_ends_with_code_3_and_names_the_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("configdb.toml");
    let cases = [
        ("organisation = [", "configdb.toml"),
        ("organisatoin = \"ACME\"", "organisatoin"),
        ("organisation = \"A-B\"", "organisation"),
        ("[mqtt]\nservers = [\"http://x\"]", "mqtt.servers"),
        ("[mqtt]\nkeep_alive_s = 0", "keep_alive_s"),
    ];
    for service in ["configdb", "cluster-manager", "identity", "edge-sync", "edge-monitor"] {
        for (text, named) in cases {
            let state = directory.path().join("state");
            let head = if text.contains('[') && text.starts_with("org") { "" } else { "state_dir = \"STATE\"\n" };
            std::fs::write(&file, format!("{}{text}\n", head.replace("STATE", &state.display().to_string()))).unwrap();
            // What an edge service cannot do without.
            let cluster = [("SPARKFLEET__CLUSTER__NAME", "Paint_Shop"), ("SPARKFLEET__CLUSTER__UUID", UUID)];
            let is_edge = service.starts_with("edge-");
            let output = Command::new(program::sparkfleet())
                .args([service, "--config"])
                .arg(&file)
                .envs(cluster.into_iter().filter(|_| is_edge))
                .output()
                .unwrap();
            let line = explanation(&output, 3);
            assert!(line.contains(named), "{service}, {text:?}: {line}");
        }
        let output =
            Command::new(program::sparkfleet()).args([service, "--config", "/nowhere/x.toml"]).output().unwrap();
        assert!(explanation(&output, 3).contains("/nowhere/x.toml"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_factory_in_the_same_directory_is_refused() {
    let server = Mosquitto::start();
    let up = Up::on(server.address()).await;
    let arguments = arguments(&up.data_dir(), &[]);
    let output = Command::new(program::sparkfleet()).args(arguments).output().unwrap();
    assert!(explanation(&output, 4).contains("in use by another"));
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_publishes_every_death_and_the_next_start_resumes_by_itself() {
    let mut up = Up::embedded().await;
    let recorder = Recorder::start(up.broker).await;
    up.process.says("deployment Press_Shop/Stacker_1: applied, ready").await;
    up.process.says("deployment Body_Shop/Robot_Cell_2: applied, ready").await;
    for cluster in ["Body_Shop", "Press_Shop"] {
        up.process.says(&format!("cluster {cluster}: setup ready, edge alive, hosts 3/3 ready")).await;
    }
    let before = up.content().await;
    let revision = revision(&recorder);
    up.process.interrupt();
    let status = up.process.ended().await;
    assert_eq!(status.code(), Some(0), "{}", up.process.tail());

    let reader = Reader::read_late(&recorder.messages());
    reader.assert_clean();
    let alive: Vec<String> =
        reader.nodes().iter().filter(|(_, node)| node.is_alive).map(|(name, _)| name.to_string()).collect();
    assert!(alive.is_empty(), "no NDEATH of {alive:?}");
    for name in ["ConfigDB", "Cluster-Manager", "Identity", "Monitor"] {
        assert!(reader.node("ACME-Central", name).is_some_and(|node| node.deaths == 1), "{name}");
    }

    let directory = up.directory;
    drop(up.process);
    let again = Up::again(directory).await;
    let recorder = Recorder::start(again.broker).await;
    for cluster in ["Body_Shop", "Press_Shop"] {
        again.process.says(&format!("cluster {cluster}: setup ready, edge alive, hosts 3/3 ready")).await;
    }
    again.process.says("deployment Press_Shop/Stacker_1: applied, ready").await;
    // The command makes ConfigDB be born for it, so the recorder receives it too.
    let after = again.content().await;
    assert!(self::revision(&recorder) >= revision);
    let differences =
        e2e::end_state::differences(&e2e::end_state::without_times(&before), &e2e::end_state::without_times(&after));
    assert!(differences.is_empty(), "{differences:#?}");
}

#[tokio::test]
async fn a_database_that_is_gone_is_missed_and_begun_again_only_by_its_option() {
    let mut up = Up::embedded().await;
    up.ready().await;
    up.process.interrupt();
    assert_eq!(up.process.ended().await.code(), Some(0), "{}", up.process.tail());
    let data = up.data_dir();
    let directory = up.directory;
    drop(up.process);
    let files = std::fs::read_dir(data.join("configdb")).unwrap().map(|file| file.unwrap().path());
    let store = files.filter(|file| file.file_name().unwrap().to_string_lossy().starts_with("configdb.sqlite"));
    store.for_each(|file| std::fs::remove_file(file).unwrap());

    let output = Command::new(program::sparkfleet()).args(arguments(&data, &[])).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("start with --new-store"), "{text}");

    let again = Up::again_with(directory, &["--new-store"]).await;
    again.ready().await;
}

/// The revision that ConfigDB said last.
fn revision(recorder: &Recorder) -> u64 {
    let reader = Reader::read_late(&recorder.messages());
    let configdb = reader.node("ACME-Central", "ConfigDB").expect("ConfigDB was born");
    configdb.metrics["Config/Revision"].as_ref().and_then(sparkplug::Value::as_u64).expect("it has a revision")
}
