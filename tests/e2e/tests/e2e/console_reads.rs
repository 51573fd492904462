//! The command line at a real console that shows nothing without a token. What it reads there is what it reads from the broker. The tests also check what it says where a credential is not enough.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Instant;

use e2e::central_services::{CentralServices, free_port, service_process};
use e2e::cli::{Cli, Outcome};
use e2e::mosquitto::Mosquitto;
use e2e::recorder::Message;
use e2e::wait::{LOOK, PATIENCE};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::factory::{Up, uuid, word_after};
use crate::site::{NAME, Site};

/// A cluster without an edge.
const OTHER: &str = "Press_Shop";

/// Runs a command until its outcome is as wanted.
async fn until(cli: &Cli, arguments: &[&str], input: &str, is_wanted: impl Fn(&Outcome) -> bool) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let outcome = cli.run_with(arguments, input).await;
        if is_wanted(&outcome) {
            return outcome;
        }
        assert!(Instant::now() < deadline, "{outcome:#?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until a list of the console and of the broker are the same text, and `is_wanted` accepts it; its rows.
async fn same(cli: &Cli, list: &[&str], is_wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let of = async |source| cli.run(&[list, &["--output", "json", "--from", source]].concat()).await;
        let (console, broker) = (of("console").await, of("broker").await);
        // A console that is not complete says so.
        if console.code == 0 && broker.code == 0 && console.stdout == broker.stdout {
            let rows = broker.json();
            let rows = rows.as_array().unwrap();
            if is_wanted(rows) {
                return rows.clone();
            }
        }
        assert!(Instant::now() < deadline, "console: {console:#?}\nbroker: {broker:#?}");
        tokio::time::sleep(LOOK).await;
    }
}

/// A site with a private console, and a user's own directory.
struct Hall {
    site: Site,
    home: TempDir,
    /// Address of the console.
    console: String,
    /// Commands of a user who has that directory.
    cli: Cli,
}

impl Hall {
    async fn start() -> Self {
        let site = Site::start().await;
        site.cli.json(&["cluster", "create", OTHER]).await;
        let (listen, home) = (free_port(), tempfile::tempdir().unwrap());
        let web = format!("[web]\nlisten = \"{listen}\"\nprivate = true\n");
        let broker = site.server.address();
        let console = service_process("console", "", &web, broker, site.central.directory());
        site.central.processes.insert(console);
        let directory = [("XDG_CONFIG_HOME".to_owned(), home.path().display().to_string())];
        let cli = Cli::new(&site.server.url()).with_environment(directory);
        Self { site, home, console: format!("http://{listen}"), cli }
    }

    /// A token, and the file that holds it.
    async fn token(&self, name: &str, more: &[&str]) -> (String, String) {
        let made = self.cli.json(&[&["token", "create", name], more].concat()).await;
        let token = made["token"].as_str().unwrap().to_owned();
        let file = self.file(name);
        std::fs::write(&file, &token).unwrap();
        (token, file.display().to_string())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(format!("{name}.token"))
    }

    /// Makes a context `hall` of a token.
    async fn log_in(&self, token: &str) -> Value {
        let login = ["login", &self.console, "--name", "hall", "--output", "json"];
        until(&self.cli, &login, token, |outcome| outcome.code == 0).await.json()
    }
}

// long: one story in its order
#[tokio::test(flavor = "multi_thread")]
async fn a_user_logs_in_and_reads_at_the_console_what_the_broker_has() {
    let hall = Hall::start().await;
    let cli = &hall.cli;
    let (token, _) = hall.token("ada", &["--scope", "operator"]).await;
    let login = hall.log_in(&token).await;
    assert_eq!((&login["user"], &login["role"]), (&json!("token:ada"), &json!("operator")), "{login:#}");
    assert_eq!((&login["context"], &login["organisation"]), (&json!("hall"), &json!("ACME")), "{login:#}");
    let stored = hall.home.path().join("sparkfleet/tokens/hall");
    assert_eq!(std::fs::read_to_string(&stored).unwrap(), token);
    assert_eq!(std::fs::metadata(&stored).unwrap().permissions().mode() & 0o777, 0o600);

    cli.run(&["context", "set", "elsewhere", "--broker", "mqtt://127.0.0.1:1", "--use"]).await;
    let contexts = cli.json(&["context", "list"]).await;
    assert_eq!(contexts["current"], "elsewhere", "{contexts:#}");
    assert!(!contexts.to_string().contains("sfp_"), "{contexts:#}");
    cli.run(&["context", "use", "hal"]).await.refused(7, "did you mean \"hall\"?");
    let used = cli.run(&["context", "use", "hall"]).await;
    assert_eq!((used.code, used.stdout.trim()), (0, "hall is the current context"), "{used:#?}");
    let shown = cli.json(&["context", "show"]).await;
    assert_eq!((&shown["name"], &shown["settings"]["console"]), (&json!("hall"), &json!(hall.console)), "{shown:#}");

    same(cli, &["cluster", "list"], |rows| rows.len() == 2 && rows[0]["alive"] == true).await;
    same(cli, &["alert", "list"], <[Value]>::is_empty).await;
    hall.site.cli.json(&["deployment", "create", "Oven_1", "--cluster", NAME, "--wait"]).await;
    same(cli, &["deployment", "list"], |rows| rows.len() == 1 && rows[0]["ready"] == true).await;
    same(cli, &["deployment", "list", "--cluster", OTHER], <[Value]>::is_empty).await;
    let oven = format!("{NAME}/Oven_1");
    let read = async |source| cli.json(&["deployment", "show", &oven, "--from", source]).await;
    assert_eq!(read("console").await, read("broker").await);
    // What is rendered here from the same entries is what the edge has applied.
    let rendered = async |source| cli.json(&["deployment", "manifests", &oven, "--from", source]).await;
    let (console, broker) = (rendered("console").await, rendered("broker").await);
    assert_eq!(console, broker);
    assert!(broker["digest"].is_string() && broker["digest"] == broker["applied"], "{broker:#}");
    assert_eq!(broker["manifests"][0]["kind"], "HelmRelease", "{broker:#}");
    let printed = cli.run(&["deployment", "manifests", &oven]).await;
    assert!(printed.stdout.starts_with("---\napiVersion: "), "{printed:#?}");
    assert!(printed.stderr.contains("the edge has applied these manifests"), "{printed:#?}");

    hall.site.edge.processes.kill("edge-sync");
    let of_sync = |row: &Value| row["node"] == "Sync" && row["alert"] == "Offline";
    let alerts = same(cli, &["alert", "list"], |rows| rows.iter().any(of_sync)).await;
    assert!(alerts.iter().all(|row| row["acknowledged"].is_null()), "{alerts:#?}");
    // A monitor that lives beside it is received.
    let stands = |rows: &Value| {
        let fields = ["name", "alive", "seen", "monitored", "alerts", "setup", "alive_since"];
        fields.map(|field| rows[0][field].clone())
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let of = async |source| cli.run(&["cluster", "list", "--output", "json", "--from", source]).await;
        let (console, broker) = (of("console").await, of("broker").await);
        if console.code == 0 && broker.code == 0 {
            let (console, broker) = (console.json(), broker.json());
            if stands(&console) == stands(&broker) && broker[0]["alive"] == false && broker[0]["monitored"] == true {
                // The broker has it no more; ConfigDB has what the edge reported last.
                for rows in [&console, &broker] {
                    assert_eq!(rows[0]["hosts"], json!({ "ready": 2, "total": 2 }), "{rows:#}");
                }
                let table = cli.run(&["cluster", "list", "--from", "broker"]).await;
                assert!(table.stdout.contains("2/2?"), "{table:#?}");
                break;
            }
        }
        assert!(Instant::now() < deadline, "console: {console:#?}\nbroker: {broker:#?}");
        tokio::time::sleep(LOOK).await;
    }
    let check = cli.run(&["alert", "list", "--cluster", NAME, "--check", "--from", "console"]).await;
    assert!(check.code == 1 && check.stdout.contains("Offline"), "{check:#?}");
    let about = format!("{NAME}/Sync");
    cli.json(&["alert", "ack", &about, "--note", "on my way"]).await;
    let is_known = |row: &Value| row["acknowledged"]["by"] == "sparkfleet-cli/e2e";
    let known = same(cli, &["alert", "list"], |rows| rows.iter().any(|row| of_sync(row) && is_known(row))).await;
    assert_eq!(known.iter().find(|row| of_sync(row)).unwrap()["acknowledged"]["note"], "on my way");
    let acknowledged = |outcome: &Outcome| outcome.code == 0 && outcome.stdout.contains("alert acknowledged");
    let events = ["events", "--since", "1h", "--cluster", NAME, "--output", "json"];
    let events = until(cli, &events, "", acknowledged).await.json();
    let of_cluster = events["events"].as_array().unwrap();
    assert!(of_cluster.iter().all(|event| event["cluster"] == NAME), "{events:#}");
    let nothing = cli.json(&["events", "--since", "1h", "--cluster", "Nowhere"]).await;
    assert_eq!(nothing["events"], json!([]));
    let event = of_cluster.iter().find(|event| event["kind"] == "alert acknowledged").unwrap();
    assert_eq!((&event["subject"], &event["new"]), (&json!("alert Offline of Sync"), &json!("sparkfleet-cli/e2e")));
    let at = event["at"].as_u64().unwrap();
    let past = cli.json(&["at", &at.to_string(), "alerts"]).await;
    assert!(past["rows"].as_array().unwrap().iter().any(|row| of_sync(row) && is_known(row)), "{past:#}");
    let before = cli.json(&["at", &(at - 1).to_string(), "alerts"]).await;
    assert!(!before["rows"].as_array().unwrap().iter().any(is_known), "{before:#}");

    let until = |row: &Value| row["acknowledged"]["until"].as_u64();
    cli.json(&["alert", "silence", &about, "--for", "1h", "--note", "maintenance"]).await;
    let is_silenced = |row: &Value| of_sync(row) && until(row).is_some();
    same(cli, &["alert", "list"], |rows| rows.iter().any(is_silenced)).await;
    // One that ends is not looked after any more, without that anyone does something.
    cli.json(&["alert", "silence", &about, "--for", "1s"]).await;
    same(cli, &["alert", "list"], |rows| rows.iter().any(|row| of_sync(row) && row["acknowledged"].is_null())).await;
}

/// Reads of people go to a service that holds the replica already: no service publishes because of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_reads_of_the_console_publish_nothing_and_one_of_the_broker_publishes_one_object() {
    const READS: usize = 1_000;
    let hall = Hall::start().await;
    let (token, _) = hall.token("ada", &["--scope", "viewer"]).await;
    hall.log_in(&token).await;
    let recorder = &hall.site.recorder;
    // What the console has asked for since it started is not caused by a read.
    let is_of_console = |message: &Message| message.topic == "spBv1.0/STATE/ACME-Central-Console";
    let started = recorder.messages().iter().position(|message| is_of_console(message)).unwrap();
    for node in ["Git", "Identity", "Monitor"] {
        let birth = format!("spBv1.0/ACME-Central/NBIRTH/{node}");
        recorder.wait_for(&birth, started, |message| (message.topic == birth).then_some(())).await;
    }
    same(&hall.cli, &["cluster", "list"], |rows| rows.len() == 2 && rows[0]["alive"] == true).await;
    let cluster = hall.site.cluster.to_string();
    let place = recorder.count();
    let address = hall.console.strip_prefix("http://").unwrap().to_owned();
    let paths = ["clusters", "objects", "hosts", &format!("entries:{cluster}")].map(|name| format!("/api/v1/{name}"));
    let mut stream = BufReader::new(TcpStream::connect(&address).await.unwrap());
    for path in paths.iter().cycle().take(READS) {
        let (status, length) = get(&mut stream, &address, path, &token).await;
        assert!(status == 200 && length > 2, "{path}: {status}, {length} bytes");
    }
    let said = |place: usize, is_meant: &dyn Fn(&str) -> bool| {
        let messages = recorder.since(place);
        messages.iter().map(|message| message.topic.clone()).filter(|topic| is_meant(topic)).collect::<Vec<_>>()
    };
    let assert_none_of = |place: usize, is_meant: &dyn Fn(&str) -> bool| {
        let none = Vec::<String>::new();
        assert_eq!(said(place, is_meant), none, "--- all messages since\n{}", recorder.topics_since(place));
    };
    let is_birth = |topic: &str| topic.contains("/NBIRTH/") || topic.contains("/DBIRTH/");
    let of_configdb = |topic: &str| topic.starts_with("spBv1.0/ACME-Central/") && topic.contains("/ConfigDB");
    assert_none_of(place, &|topic| is_birth(topic) || of_configdb(topic));

    // The command line at the broker: what ConfigDB says is about the object that was asked for, or an answer.
    let place = recorder.count();
    for _ in 0..20 {
        let read = hall.site.cli.json(&["config", "get", &cluster, "EdgeCluster", "--from", "broker"]).await;
        assert_eq!(read["name"], NAME);
    }
    assert_none_of(place, &is_birth);
    let own = ["NDATA/ConfigDB".to_owned(), format!("DDATA/ConfigDB/{cluster}"), format!("DCMD/ConfigDB/{cluster}")];
    assert_none_of(place, &|topic| of_configdb(topic) && !own.iter().any(|own| topic.ends_with(own)));
    assert!(!said(place, &|topic| topic.ends_with(&own[1])).is_empty(), "so that this test can fail");
}

/// Status and length of what a path of the console holds.
async fn get(stream: &mut BufReader<TcpStream>, host: &str, path: &str, token: &str) -> (u16, usize) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).await.unwrap(), 0, "{path}: the connection was closed");
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(rest) = line.strip_prefix("http/1.1 ") {
            status = rest[..3].parse().unwrap();
        } else if let Some(rest) = line.strip_prefix("content-length:") {
            length = rest.trim().parse().unwrap();
        } else if line.is_empty() {
            break;
        }
    }
    stream.read_exact(&mut vec![0; length]).await.unwrap();
    (status, length)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_for_one_cluster_shows_that_one_and_a_bad_one_says_what_to_do() {
    let hall = Hall::start().await;
    let cli = &hall.cli;
    let (token, _) = hall.token("ada", &["--scope", "viewer"]).await;
    hall.log_in(&token).await;
    same(cli, &["cluster", "list"], |rows| rows.len() == 2 && rows[0]["alive"] == true).await;
    // As the context's console, and as another user.
    let (_, press_file) = hall.token("press", &["--scope", "viewer", "--cluster", OTHER]).await;
    let limited = cli.clone().with_environment([("SPARKFLEET_CONSOLE_TOKEN_FILE".to_owned(), press_file)]);
    let list = ["cluster", "list", "--from", "console", "--output", "json"];
    let rows = until(&limited, &list, "", |outcome| outcome.code == 0).await.json();
    let names: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, [OTHER]);
    limited.run(&["deployment", "list", "--from", "console", "--cluster", NAME]).await.refused(7, NAME);
    let events = until(&limited, &["events", "--output", "json"], "", |outcome| outcome.code == 0).await.json();
    assert!(events["events"].as_array().unwrap().iter().all(|event| event["cluster"] == OTHER), "{events:#}");
    let other = limited.json(&["events", "--cluster", NAME]).await;
    assert_eq!(other["events"], json!([]), "{other:#}");
    let past = limited.json(&["at", "0s", "clusters"]).await;
    assert!(past["rows"].as_array().unwrap().iter().all(|row| row["name"] == OTHER), "{past:#}");

    let unknown = format!("sfp_{}", "A".repeat(43));
    std::fs::write(hall.file("unknown"), &unknown).unwrap();
    let file = hall.file("unknown").display().to_string();
    let read = ["cluster", "list", "--from", "console", "--console-token-file", &file];
    let line = cli.run(&read).await.refused(5, "the token is unknown or revoked, or has expired");
    assert!(line.contains(&format!("`sparkfleet login {}`", hall.console)) && !line.contains(&unknown), "{line}");
    let login = ["login", &hall.console, "--name", "bad"];
    let line = cli.run_with(&login, &unknown).await.refused(5, "does not know this token");
    assert!(line.contains("`sparkfleet token create") && !line.contains(&unknown), "{line}");
    assert!(!hall.home.path().join("sparkfleet/tokens/bad").exists(), "a token that does not count is not stored");
    assert_eq!(cli.json(&["context", "list"]).await["contexts"].as_object().unwrap().len(), 1);
    let nothing = Cli::new("mqtt://127.0.0.1:1");
    let open = ["cluster", "list", "--from", "console", "--console", &hall.console];
    let line = nothing.run(&open).await.refused(5, "sign in; this console shows nothing to others");
    assert!(line.contains("`sparkfleet login "), "{line}");

    // A token that ends while it is used.
    let (_, short) = hall.token("short", &["--scope", "viewer", "--expires", "1s"]).await;
    let read = ["cluster", "list", "--from", "console", "--console-token-file", &short];
    until(cli, &read, "", |outcome| outcome.code == 5 && outcome.stderr.contains("or has expired")).await;
    cli.json(&["token", "revoke", "press"]).await;
    until(&limited, &list, "", |outcome| outcome.code == 5 && outcome.stderr.contains("revoked")).await;
}

// long: one story in its order
#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_of_the_console_are_those_of_the_broker() {
    let server = Mosquitto::start();
    let up = Up::on(server.address()).await;
    let line = up.process.says("console   http://").await;
    let console = word_after(&line, "console   ").to_owned();
    let cli = up.cli.clone().with_environment([("SPARKFLEET_CONSOLE".to_owned(), console)]);
    cli.json(&["cluster", "create", NAME, "--wait"]).await;
    up.process.says(&format!("cluster {NAME}: setup ready, edge alive, hosts 3/3 ready")).await;
    // What both say of a host that has joined.
    let of_broker = |row: &Value| {
        json!({ "cluster": row["cluster"], "name": row["name"], "role": row["role"], "ek": row["endorsement_key"], "disk": row["disk"],
            "variant": row["variant"], "policy": row["policy_revision"], "state": row["state"], "registers": row["registers"] })
    };
    let of_console = |row: &Value| {
        let quoted = row["pcrs"].as_array().unwrap().iter().filter(|pcr| !pcr["quoted"].is_null());
        let pcrs: serde_json::Map<String, Value> =
            quoted.map(|pcr| (pcr["register"].to_string(), pcr["quoted"].clone())).collect();
        let state = if row["joined"] == true { "member" } else { "other" };
        json!({ "cluster": row["cluster"], "name": row["name"], "role": row["role"], "ek": row["ek"], "disk": row["disk"],
            "variant": row["variant"], "policy": row["policy_revision"], "state": state, "registers": pcrs })
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let broker = cli.json(&["host", "list"]).await;
        let console = cli.run(&["at", "0s", "hosts", "--output", "json"]).await;
        let broker: Vec<Value> = broker.as_array().unwrap().iter().map(of_broker).collect();
        let shown = if console.code == 0 { console.json()["rows"].clone() } else { json!([]) };
        let joined = shown.as_array().unwrap().iter().filter(|row| !row["ek"].is_null());
        let joined: Vec<Value> = joined.map(of_console).collect();
        if broker.len() == 2 && broker == joined {
            break;
        }
        assert!(Instant::now() < deadline, "broker: {broker:#?}\nconsole: {joined:#?} {console:#?}");
        tokio::time::sleep(LOOK).await;
    }
    // The command line reads either.
    let read = async |command: &[&str], source: &str| {
        cli.run(&[command, &["--output", "json", "--from", source]].concat()).await
    };
    let cluster = uuid(&cli.json(&["cluster", "show", NAME]).await["cluster"]).to_string();
    // A page of the console says whose session with which broker it is.
    let shown_by = |outcome: &Outcome| {
        let mut value = outcome.json();
        if let Some(page) = value.as_object_mut().filter(|page| page.contains_key("waiting")) {
            page.retain(|field, _| !matches!(field.as_str(), "broker" | "console"));
        }
        value
    };
    let one = format!("{NAME}/{}", cli.json(&["host", "list"]).await[0]["name"].as_str().unwrap());
    for command in [
        &["host", "list"][..],
        &["host", "list", "--cluster", NAME],
        &["host", "show", &one],
        &["cluster", "show", NAME],
        &["rollout", "list"],
        &["policy", "show", NAME],
        &["config", "get", &cluster, "EdgeCluster"],
        &["config", "get", NAME, "AttestationPolicy"],
        &["config", "get", NAME, "Registration"],
        &["status"],
    ] {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (console, broker) = (read(command, "console").await, read(command, "broker").await);
            if console.code == 0 && broker.code == 0 && shown_by(&console) == shown_by(&broker) {
                break;
            }
            assert!(Instant::now() < deadline, "{command:?}\nconsole: {console:#?}\nbroker: {broker:#?}");
            tokio::time::sleep(LOOK).await;
        }
    }
    cli.run(&["host", "show", "absent-1", "--from", "console"]).await.refused(7, "absent-1");
    cli.run(&["config", "get", NAME, "ChartRollout", "--from", "console"])
        .await
        .refused(7, "has no entry ChartRollout");
    let policy = cli.json(&["policy", "show", NAME, "--from", "console"]).await;
    assert_eq!(
        (&policy["join_service"]["state"], &policy["join_service"]["agreed"]),
        (&json!("in-force"), &json!(true))
    );
    let shown = cli.json(&["cluster", "show", NAME]).await;
    let members: Vec<&Value> = shown["hosts"].as_array().unwrap().iter().map(|host| &host["hostname"]).collect();
    let past = cli.json(&["at", "0s", "hosts"]).await;
    let rows: Vec<&Value> = past["rows"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!(members, rows, "{past:#}");
    assert!(past["rows"].as_array().unwrap().iter().all(|row| row["ready"] == true), "{past:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_another_writer_changes_while_it_is_edited_is_not_overwritten_and_no_text_is_lost() {
    let server = Mosquitto::start();
    let _central = CentralServices::start(server.address(), free_port());
    let directory = tempfile::tempdir().unwrap();
    let cli = Cli::new(&server.url()).with_environment([("TMPDIR".to_owned(), directory.path().display().to_string())]);
    let cluster = uuid(&cli.json(&["cluster", "create", NAME]).await).to_string();
    // The editor of one user is open while another one writes.
    let editor = directory.path().join("editor");
    let program = e2e::program::sparkfleet().display().to_string();
    let cases = [
        (vec!["cluster", "edit", NAME], "EdgeCluster", "namespace", "s/^namespace:.*/namespace: mine/"),
        (vec!["config", "edit", &cluster, "Info"], "Info", "name", "s/^name:.*/name: mine/"),
    ];
    for (command, application, field, change) in cases {
        let theirs = json!({ field: "theirs" });
        let script = format!(
            "#!/bin/sh\nset -e\necho '{theirs}' | env -u EDITOR {program} config patch {cluster} {application} - >&2\nsed -i '{change}' \"$1\"\n"
        );
        std::fs::write(&editor, script).unwrap();
        std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o700)).unwrap();
        let user = cli.clone().with_environment([
            ("EDITOR".to_owned(), editor.display().to_string()),
            ("VISUAL".to_owned(), String::new()),
        ]);
        let outcome = user.run(&command).await;
        assert_eq!(outcome.code, 5, "{outcome:#?}");
        let line = outcome.stderr.lines().last().unwrap();
        assert!(line.contains("another writer") && line.contains("nothing was written"), "{outcome:#?}");
        assert!(line.contains("edit it again"), "it says what to do: {outcome:#?}");
        let path = line.split_once("what you typed is in ").unwrap().1.split([';', ' ']).next().unwrap();
        let typed = std::fs::read_to_string(path).unwrap();
        assert!(typed.contains(&format!("{field}: mine")), "{typed}");
        let entry = cli.json(&["config", "get", &cluster, application]).await;
        assert_eq!(entry[field], "theirs", "{entry:#}");
    }
}
