//! The command line: forms of output, exit codes, help, completions, and ConfigDB entry by entry.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use e2e::central_services::{CentralServices, free_port};
use e2e::cli::Cli;
use e2e::mosquitto::Mosquitto;
use e2e::recorder::Recorder;
use e2e::{program, wait};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Every command that there is, as words; found in the help of the one above it.
fn commands() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut open: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(command) = open.pop() {
        let help = help(&command);
        let below = help.split("Commands:").nth(1).and_then(|text| text.split("\n\n").next()).unwrap_or_default();
        for line in below.lines() {
            let name = line.trim_start();
            // Wrapped lines of a description are indented deeper.
            let is_name = line.len() - name.len() == 2;
            if let Some(word) = name.split_whitespace().next().filter(|word| is_name && *word != "help") {
                open.push([command.clone(), vec![word.to_owned()]].concat());
            }
        }
        found.push(command);
    }
    found
}

fn help(command: &[String]) -> String {
    let output = Command::new(program::sparkfleet()).args(command).arg("--help").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{command:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_help_of_every_command_lists_the_exit_codes() {
    let commands = commands();
    assert!(commands.len() > 20, "{commands:?}");
    for command in &commands {
        let help = help(command).split_whitespace().collect::<Vec<_>>().join(" ");
        for code in ["0 done", "2 wrong usage", "3 configuration", "4 broker", "5 refused", "6 not reached"] {
            assert!(help.contains(code), "sparkfleet {}: {code:?} is not in its help", command.join(" "));
        }
    }
}

#[test]
fn completions_are_scripts_that_their_shell_understands() {
    let script = Command::new(program::sparkfleet()).args(["completions", "bash"]).output().unwrap();
    assert_eq!(script.status.code(), Some(0));
    assert!(script.stdout.len() > 1000);
    let mut bash = Command::new("bash").args(["-n", "/dev/stdin"]).stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut bash.stdin.take().unwrap(), &script.stdout).unwrap();
    assert!(bash.wait().unwrap().success());
    // The first ones ask the program for everything, the others know the commands.
    let others =
        [("zsh", "complete zsh"), ("fish", "complete fish"), ("elvish", "deployment"), ("powershell", "deployment")];
    for (shell, part) in others {
        let script = Command::new(program::sparkfleet()).args(["completions", shell]).output().unwrap();
        assert!(script.status.success() && String::from_utf8_lossy(&script.stdout).contains(part), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let write = |to: &std::path::Path| Command::new(program::sparkfleet()).arg("man").arg(to).output().unwrap();
    let written = write(directory.path());
    assert!(written.status.success(), "{written:?}");
    for command in commands() {
        let page = format!("{}.1", [vec!["sparkfleet".to_owned()], command].concat().join("-"));
        let text =
            std::fs::read_to_string(directory.path().join(&page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".TH ") && text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    let create = std::fs::read_to_string(directory.path().join("sparkfleet-cluster-create.1")).unwrap();
    assert!(create.contains("wait") && create.contains("Exit codes"), "{create}");
    let missing = write(&directory.path().join("missing"));
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot be written"), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_say_what_there_should_be_and_are_applied_as_a_whole_or_not_at_all() {
    let server = Mosquitto::start();
    let _central = CentralServices::start(server.address(), free_port());
    let cli = Cli::new(&server.url());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("site.yaml").display().to_string();
    let deployment = |name: &str, replicas: u32| {
        format!("---\nkind: Deployment\ncluster: Paint_Shop\nname: {name}\nvalues: {{ replicas: {replicas} }}\n")
    };
    let cluster = "kind: Cluster\nname: Paint_Shop\nwave: 2\n".to_owned();
    let write = |documents: &[String]| std::fs::write(&file, documents.concat()).unwrap();
    let changes = |value: &Value| -> Vec<String> {
        let text =
            |change: &Value| format!("{} {}", change["name"].as_str().unwrap(), change["change"].as_str().unwrap());
        value["changes"].as_array().unwrap().iter().map(text).collect()
    };
    write(&[cluster.clone(), deployment("Oven_1", 1), deployment("Oven_2", 1)]);
    let all = ["Paint_Shop created", "Paint_Shop/Oven_1 created", "Paint_Shop/Oven_2 created"];
    let tried = cli.json(&["apply", "-f", &file, "--dry-run"]).await;
    assert_eq!(changes(&tried), all);
    assert_eq!(cli.json(&["cluster", "list"]).await, json!([]), "a dry run writes nothing");
    assert_eq!(changes(&cli.json(&["apply", "-f", &file]).await), all);
    let again = cli.json(&["apply", "-f", &file]).await;
    assert!(changes(&again).iter().all(|change| change.ends_with(" unchanged")), "{again:#}");
    let same = cli.run(&["diff", "-f", &file]).await;
    assert_eq!((same.code, same.stdout.trim()), (0, "nothing differs"), "{same:#?}");
    let rollout = cli.json(&["config", "get", "Paint_Shop", "EdgeClusterRollout"]).await;
    assert_eq!(rollout["wave"], 2);

    write(&[cluster.clone(), deployment("Oven_1", 3)]);
    let differs = cli.run(&["diff", "-f", &file, "--prune"]).await;
    assert_eq!(differs.code, 1, "{differs:#?}");
    for line in [
        "deployment Paint_Shop/Oven_1 changed",
        "  EdgeDeployment.values.replicas: 1 -> 3",
        "deployment Paint_Shop/Oven_2 deleted",
    ] {
        assert!(differs.stdout.lines().any(|shown| shown == line), "{differs:#?}");
    }
    // One document that ConfigDB refuses, and nothing of the file is written.
    write(&[
        cluster.clone(),
        deployment("Oven_1", 3),
        "---\nkind: Entry\nobject: Paint_Shop\napplication: Info\nvalue: { name: 7 }\n".to_owned(),
    ]);
    cli.run(&["apply", "-f", &file]).await.refused(5, "Info");
    let names = ["deployment", "list", "--output", "name", "--from", "broker"];
    let listed = cli.run(&names).await;
    assert_eq!(listed.stdout, "Paint_Shop/Oven_1\nPaint_Shop/Oven_2\n", "{listed:#?}");
    let entry = cli.json(&["config", "get", "Oven_1", "EdgeDeployment"]).await;
    assert_eq!(entry["values"]["replicas"], 1, "{entry:#}");

    write(&[cluster, deployment("Oven_1", 3)]);
    let pruned = cli.json(&["apply", "-f", &file, "--prune"]).await;
    assert_eq!(changes(&pruned), ["Paint_Shop unchanged", "Paint_Shop/Oven_1 changed", "Paint_Shop/Oven_2 deleted"]);
    assert_eq!(cli.json(&["config", "get", "Oven_1", "EdgeDeployment"]).await["values"]["replicas"], 3);
    let wide = cli.run(&["cluster", "list", "--output", "wide"]).await;
    assert!(wide.stdout.lines().next().unwrap().contains("UUID"), "{wide:#?}");
    cli.run(&["status", "--output", "name"]).await.refused(2, "has no name");
}

#[test]
fn wrong_usage_has_code_2() {
    for arguments in [vec!["clutser"], vec!["cluster", "create"], vec!["cluster", "list", "--output", "xml"], vec![]] {
        let output = Command::new(program::sparkfleet()).args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_broker_is_code_4_and_missing_central_services_are_code_6() {
    let offline = Cli::new(&format!("mqtt://{}", free_port()));
    let line = offline.run(&["cluster", "list"]).await.refused(4, "cannot reach the broker");
    assert!(line.contains("--broker"), "{line}");
    let server = Mosquitto::start();
    let empty = Cli::new(&server.url());
    let line = empty.run(&["cluster", "list", "--timeout", "2s"]).await.refused(6, "ConfigDB to be born");
    assert!(line.contains("2s"), "{line}");
    let wrong = Cli::new("mqtt://");
    wrong.run(&["cluster", "list"]).await.refused(3, "mqtt.servers");
}

/// A ConfigDB on a Mosquitto, and commands against it.
async fn configdb() -> (Mosquitto, CentralServices, Cli) {
    let server = Mosquitto::start();
    let central = CentralServices::start(server.address(), free_port());
    let cli = Cli::new(&server.url());
    cli.json(&["config", "list"]).await;
    (server, central, cli)
}

const OVEN: &str = "0e000000-0000-4000-8000-000000000001";

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_put_patched_guarded_by_etag_listed_and_have_a_history() {
    let (_server, _central, cli) = configdb().await;
    let info = |name: &str| json!({ "name": name }).to_string();
    cli.run_with(&["config", "put", OVEN, "Info", "-"], &info("Oven")).await.refused(5, "Registration");
    let put = ["config", "put", OVEN, "Info", "-", "--class", "Device"];
    let first = cli.json_with(&put, &info("Oven")).await;
    let etag = first["etags"]["Info"].as_str().unwrap().to_owned();
    assert_eq!(cli.json(&["config", "get", "Oven", "Info"]).await["name"], "Oven");

    let guarded = ["config", "patch", "Oven", "Info", "-", "--if-match", &etag];
    let second = cli.json_with(&guarded, r#"{"deprecated": true}"#).await;
    assert!(second["revision"].as_u64() > first["revision"].as_u64());
    let entry = cli.json(&["config", "get", OVEN, "Info"]).await;
    assert_eq!((&entry["name"], &entry["deprecated"]), (&json!("Oven"), &json!(true)), "{entry}");
    cli.run_with(&guarded, r#"{"deprecated": false}"#).await.refused(5, "Info");
    let absent = ["config", "put", OVEN, "Info", "-", "--if-match", "none"];
    cli.run_with(&absent, &info("Other")).await.refused(5, "Info");
    cli.run_with(&["config", "put", OVEN, "Info", "-"], r#"{"name": 7}"#).await.refused(5, "name");

    let history = cli.json(&["config", "history", OVEN, "Info"]).await;
    let values: Vec<&Value> = history.as_array().unwrap().iter().map(|change| &change["value"]["deprecated"]).collect();
    assert_eq!(values, [&Value::Null, &json!(true)], "{history:#}");
    assert_eq!(history[0]["writer"], "sparkfleet-cli/e2e");
    assert_eq!(history[0]["etag"], etag.as_str());

    let listed = cli.json(&["config", "list", "Info", "--class", "Device"]).await;
    assert!(
        listed.as_array().unwrap().iter().any(|object| object["uuid"] == OVEN && object["name"] == "Oven"),
        "{listed}"
    );
    cli.json(&["config", "delete", OVEN, "Info"]).await;
    cli.run(&["config", "get", OVEN, "Info"]).await.refused(7, "no entry Info");
    let history = cli.json(&["config", "history", OVEN, "Info"]).await;
    assert_eq!(history.as_array().unwrap().len(), 3);
    assert_eq!(history[2]["value"], Value::Null);
    cli.json(&["config", "delete", OVEN]).await;
    cli.run(&["config", "get", OVEN, "Registration"]).await.refused(7, "no object");
    cli.run(&["config", "get", "18773d6d-a70d-443a-b29a-3f1583195290", "Unheard_Of"]).await.refused(7, "there are:");
    cli.run(&["config", "get", "Unknown", "Info"]).await.refused(7, "no object named");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loaded_dump_is_dumped_equal() {
    let (_server, _central, cli) = configdb().await;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/factory.yaml");
    let dry = cli.json(&["config", "load", file, "--dry-run"]).await;
    let writes = dry["writes"].as_array().unwrap().len();
    assert!(writes >= 6 && dry["deletes"] == json!([]), "{dry}");
    assert_eq!(cli.json(&["cluster", "list"]).await, json!([]), "a dry run writes nothing");
    let loaded = cli.json(&["config", "load", file]).await;
    assert_eq!(loaded["writes"].as_u64(), Some(writes as u64));
    // The cluster manager continues writing until both clusters are set up, and Identity until both have their entry.
    let mut clusters = Value::Null;
    for _ in 0..200 {
        clusters = cli.json(&["cluster", "list"]).await;
        let mut is_done = clusters.as_array().unwrap().iter().all(|cluster| cluster["setup"] == "ready");
        for cluster in clusters.as_array().unwrap() {
            let uuid = cluster["uuid"].as_str().unwrap();
            is_done &= cli.run(&["config", "get", uuid, "EdgeClusterIdentity"]).await.code == 0;
        }
        if is_done {
            break;
        }
    }
    assert_eq!(clusters.as_array().unwrap().len(), 2, "{clusters:#}");
    let dump = cli.json(&["config", "dump"]).await;
    assert_eq!(cli.json(&["config", "dump"]).await, dump);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dump.yaml");
    let to_file = ["config", "dump", file.to_str().unwrap()];
    let written = cli.run(&to_file).await;
    assert_eq!(written.code, 0, "{}", written.stderr);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read_to_string(&file).unwrap();
    cli.run(&to_file).await.refused(5, "File exists");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before, "a file that is there stays");
    let again = cli.json(&["config", "load", file.to_str().unwrap()]).await;
    assert_eq!(again["writes"], 0, "a dump of what is there writes nothing: {again}");

    // Into a fresh store, whose writers are kept from adding anything of their own.
    let other_server = Mosquitto::start();
    let other = CentralServices::start(other_server.address(), free_port());
    assert!(other.processes.kill("cluster-manager") && other.processes.kill("identity"));
    let other_cli = Cli::new(&other_server.url());
    other_cli.json_with(&["config", "load", "-"], &dump.to_string()).await;
    let copy = other_cli.json(&["config", "dump"]).await;
    let differences = e2e::end_state::differences(&dump, &copy);
    assert!(differences.is_empty(), "{differences:#?}");
    let yaml = other_cli.run(&["config", "dump", "--output", "yaml"]).await;
    let again = other_cli.json_with(&["config", "load", "-"], &yaml.stdout).await;
    assert_eq!(again["writes"], 0, "YAML says the same: {again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_one_object_publishes_that_object_alone() {
    const READS: usize = 100;
    let (server, central, cli) = configdb().await;
    assert!(
        central.processes.kill("cluster-manager") && central.processes.kill("edge-monitor"),
        "no other service reads"
    );
    let put = ["config", "put", OVEN, "Info", "-", "--class", "18773d6d-a70d-443a-b29a-3f1583195290"];
    cli.json_with(&put, "{\"name\": \"Oven\"}").await;
    let recorder = Recorder::start(server.address()).await;
    let mut reads = JoinSet::new();
    for n in 0..READS {
        let cli = cli.clone();
        reads.spawn(async move {
            match n % 10 {
                0 => assert_eq!(cli.json(&["config", "history", OVEN, "Info"]).await[0]["value"]["name"], "Oven"),
                1 => drop(
                    cli.run(&["config", "get", "0e000000-0000-4000-8000-00000000dead", "Info"])
                        .await
                        .refused(7, "no object"),
                ),
                _ => assert_eq!(cli.json(&["config", "get", OVEN, "Info"]).await["name"], "Oven"),
            }
        });
        // As many at a time as users would start.
        while reads.len() >= 5 {
            reads.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(read) = reads.join_next().await {
        read.unwrap();
    }
    let messages = recorder.messages();
    let topics = |kind: &str| {
        let start = format!("spBv1.0/ACME-Central/{kind}/ConfigDB");
        messages.iter().map(|message| message.topic.as_str()).filter(move |topic| topic.starts_with(&start))
    };
    assert_eq!((topics("NBIRTH").count(), topics("DBIRTH").count(), topics("NCMD").count()), (0, 0, 0));
    let devices: BTreeSet<&str> = topics("DDATA").filter_map(|topic| topic.rsplit('/').next()).collect();
    assert_eq!(devices, [OVEN].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_is_all_or_nothing_and_deletes_at_no_edge_unasked() {
    let (_server, central, cli) = configdb().await;
    assert!(central.processes.kill("cluster-manager"), "no other service writes");
    cli.json(&["config", "load", concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/factory.yaml")]).await;
    let before = cli.json(&["config", "dump"]).await;
    let deployments = before["configs"].as_object().unwrap().values().find_map(|entries| {
        entries.as_object()?.iter().find(|(_, entry)| entry["cluster"].is_string() && entry["name"].is_string())
    });
    let (deployment, entry) = deployments.expect("the factory has a deployment");
    let (application, _) = before["configs"]
        .as_object()
        .unwrap()
        .iter()
        .find(|(_, entries)| entries.get(deployment.as_str()) == Some(entry))
        .unwrap();

    // The first write is good, the last one is not.
    let mut bad = before.clone();
    bad["configs"][application][deployment]["hostname"] = json!("another-host");
    bad["configs"][application]["00000000-0000-4000-8000-00000000bad0"] = json!({"name": "no object"});
    let refused = cli.run_with(&["config", "load", "-"], &bad.to_string()).await;
    refused.refused(5, "nothing was written: object 00000000-0000-4000-8000-00000000bad0");
    assert_eq!(cli.json(&["config", "dump"]).await, before);

    let mut moved = before.clone();
    moved["configs"][application][deployment]["cluster"] = json!("00000000-0000-4000-8000-00000000c1c1");
    let dry = cli.json_with(&["config", "load", "-", "--dry-run"], &moved.to_string()).await;
    assert_eq!(dry["deletes"][0]["uuid"], deployment.as_str(), "{dry:#}");
    let refused = cli.run_with(&["config", "load", "-"], &moved.to_string()).await;
    refused.refused(5, &format!("deleted at the edge of {}", dry["deletes"][0]["cluster"].as_str().unwrap()));
    assert_eq!(cli.json(&["config", "dump"]).await, before);
    let loaded = cli.json_with(&["config", "load", "-", "--allow-delete"], &moved.to_string()).await;
    assert_eq!(loaded["writes"], 1, "{loaded:#}");
    assert_eq!(cli.json(&["config", "dump"]).await, moved);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_listing_comes_as_table_json_and_yaml() {
    let (_server, central, cli) = configdb().await;
    cli.json(&["cluster", "create", "Paint_Shop"]).await;
    for command in
        [vec!["cluster", "list"], vec!["config", "list", "EdgeCluster"], vec!["cluster", "show", "Paint_Shop"]]
    {
        let with = |form| [command.clone(), vec!["--output", form]].concat();
        let table = cli.run(&with("table")).await;
        assert_eq!(table.code, 0, "{table:#?}");
        assert!(table.stdout.contains("Paint_Shop"), "{table:#?}");
        assert!(table.stdout.lines().all(|line| line == line.trim_end()), "{table:#?}");
        let json = cli.run(&with("json")).await.json();
        let yaml = cli.run(&with("yaml")).await;
        assert!(yaml.stdout.contains("Paint_Shop") && !yaml.stdout.contains('{'), "{yaml:#?}");
        assert!(json.to_string().contains("Paint_Shop"));
    }
    let missing = cli.run(&["cluster", "show", "Nowhere"]).await;
    missing.refused(7, "Nowhere");
    let edge_away = cli.run(&["cluster", "create", "Paint_Shop", "--wait", "--timeout", "3s"]).await;
    edge_away.refused(6, "its edge sync to be born");
    let found = || (!central.processes.logs().is_empty()).then_some(());
    wait::until("logs", found, String::new).await;
}
