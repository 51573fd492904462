//! What reaches the terminal: never a text of others that steers it, no colour that was not asked for, and no failure where a reader has had enough.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use cluster_manager_contract::SetupState;
use configdb_schema::document::{ApiToken, Info, TokenScope};
use edge_sync_contract::{DeploymentState, SyncNode};
use fleet_view::bench::{Bench, CLUSTER, NAME, reported};
use join_service_contract::{HostState, JoinHost};
use sparkplug::TypedMetrics as _;
use sparkplug::edge_node::NodeUpdate;
use uuid::Uuid;

use crate::support::factory::{PATIENCE, factory, user};
use crate::support::made_up::MadeUp;
use crate::support::program::{Outcome, User, explained};

/// Erases the screen, sets the title, moves the cursor, turns writing round, and makes a line of its own.
const HOSTILE: &str = "x\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}1A\u{202e}\u{feff}\r\nWAITING\ndone";

/// How people read the beginning of it.
const SHOWN: &str = "x\\u{1b}[2J";

const OVEN: Uuid = Uuid::from_u128(0x10);
const GHOST: Uuid = Uuid::from_u128(0x11);
const DISK: Uuid = Uuid::from_u128(0xD1);

/// A fleet in which everything that an edge, a host or a writer can say is hostile.
fn hostile() -> MadeUp {
    let text = || HOSTILE.to_owned();
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven_1", Some("paint-1"));
    bench.entry(Uuid::from_u128(0x20), &Info { name: text(), ..Info::default() });
    let token = ApiToken {
        name: text(),
        hash: "0f".repeat(32),
        scope: TokenScope::Viewer,
        clusters: None,
        issued: text(),
        expires: text(),
        by: text(),
    };
    bench.entry(Uuid::from_u128(0x21), &token);
    let (mut oven, mut ghost) = (
        reported("Oven_1", DeploymentState::Failed, Some(false)),
        reported(HOSTILE, DeploymentState::Applied, Some(true)),
    );
    (oven.reason, oven.message) = (Some(text()), Some(text()));
    (ghost.reason, ghost.message) = (Some(text()), Some(text()));
    let node = SyncNode {
        version: text(),
        cluster_uuid: CLUSTER,
        cluster_name: text(),
        source_ready: Some(false),
        source_message: Some(text()),
        source_error: Some(text()),
        desired_held: Some(true),
        desired_hold_reason: Some(text()),
        desired_error: Some(text()),
        ..SyncNode::default()
    };
    bench.sync(NAME, &node, &[(OVEN, oven), (GHOST, ghost)]);
    let host = JoinHost {
        name: text(),
        role: text(),
        variant: text(),
        endorsement_key: text(),
        state: HostState::Pending,
        verdict: Some(text()),
        detail: Some(text()),
        kind: text(),
        stage: Some(text()),
        pcrs: Some([(7, text())].into()),
        warnings: Some(text()),
        ..JoinHost::default()
    };
    bench.join(NAME, &[(DISK, host)]);
    bench.cluster(CLUSTER, NAME, |cluster| {
        cluster.sync_alive = true;
        cluster.join.alive = true;
        cluster.setup.state = SetupState::Refused;
        cluster.setup.reason = Some(text());
        cluster.git_url = Some(text());
    });
    MadeUp::of(&bench)
}

/// `Outcome` looks for what steers a terminal in whatever a command prints; here for lines of its own.
fn is_harmless(user: &User, command: &str, form: &str, has: &str) {
    let outcome = user.run(&format!("{command} -o {form}"));
    let text = outcome.done();
    let is_for_people = matches!(form, "table" | "wide");
    assert!(!is_for_people || text.contains(has), "{outcome:#?}");
    let forged = text.lines().filter(|line| *line == "WAITING").count();
    let own = usize::from(command == "status" && is_for_people);
    assert_eq!(forged, own, "no text makes a line of its own: {outcome:#?}");
}

#[test]
fn no_text_of_an_edge_a_host_or_a_writer_steers_the_terminal_in_any_form() {
    let fleet = hostile();
    let user = fleet.user();
    let show = format!("host show {DISK}");
    // What lines for people must have of it, so that it is known to be shown.
    let commands = [
        ("status", SHOWN),
        ("cluster list", SHOWN),
        ("cluster show Paint_Shop", SHOWN),
        ("deployment list", SHOWN),
        ("deployment show Paint_Shop/Oven_1", SHOWN),
        ("host list", SHOWN),
        (show.as_str(), SHOWN),
        ("alert list", ""),
        ("token list", SHOWN),
        ("config list", SHOWN),
        ("config dump", ""),
        ("recover status", SHOWN),
    ];
    // The nodes answer who asks for their births at their own pace, all of them at once.
    std::thread::scope(|scope| {
        for form in ["table", "wide", "json", "yaml"] {
            // A half each: a machine with two cores starts no fifty processes at once.
            for part in commands.chunks(6) {
                let user = &user;
                scope.spawn(move || part.iter().for_each(|(command, has)| is_harmless(user, command, form, has)));
            }
        }
    });
    for list in ["deployment list", "host list", "cluster list"] {
        let outcome = user.run(&format!("{list} -o name"));
        assert!(!outcome.lines().is_empty(), "{outcome:#?}");
    }
}

#[test]
fn programs_read_a_hostile_text_as_it_is() {
    let fleet = hostile();
    let rows = fleet.user().run("deployment list -o json").json();
    let row = rows.as_array().unwrap().iter().find(|row| row["uuid"] == GHOST.to_string());
    assert_eq!(row.unwrap()["name"], HOSTILE, "{rows:#}");
    let host = fleet.user().run(&format!("host show {DISK} -o json")).json();
    assert_eq!(host["host"]["warnings"], HOSTILE, "{host:#}");
}

#[test]
fn an_error_about_a_hostile_name_is_one_line() {
    let fleet = hostile();
    let user = fleet.user();
    for words in [
        ["deployment", "move", HOSTILE],
        ["deployment", "show", "Paint_Shop/Ovn"],
        ["host", "show", "press-9"],
        ["cluster", "show", HOSTILE],
        ["token", "revoke", "ci"],
        ["recover", "discard", NAME],
    ] {
        let outcome = user.run_words(&words, "");
        assert_ne!(outcome.code(), 0, "{outcome:#?}");
        assert_eq!(outcome.explained().len(), 1, "{outcome:#?}");
    }
}

#[test]
fn a_name_of_ten_thousand_letters_is_refused_or_named_and_hides_no_other() {
    let user = user();
    let long = "x".repeat(10_000);
    for words in [
        vec!["cluster", "show", &long],
        vec!["deployment", "show", &long],
        vec!["host", "show", &long],
        vec!["config", "get", &long, "Info"],
        vec!["config", "get", "Robot_Cell_1", &long],
    ] {
        let outcome = user.run_words(&words, "");
        outcome.refused(7);
        assert!(outcome.stderr.contains("there are: "), "{outcome:#?}");
    }
    user.run_words(&["cluster", "create", &long], "").refused(2);
    user.run_words(&["token", "create", &long, "--scope", "viewer"], "").refused(2);
}

#[test]
fn colours_are_shown_where_they_are_wanted_and_nowhere_else() {
    let fleet = MadeUp::of(&Bench::with_cluster());
    let escapes = |user: &User| {
        let output = user.start(&["cluster", "list"]).wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout.contains(&0x1b)
    };
    assert!(!escapes(&fleet.user()), "a pipe shows no colours");
    assert!(escapes(&fleet.user().with("CLICOLOR_FORCE", "1")));
    assert!(!escapes(&fleet.user().with("NO_COLOR", "1")));
    // A program that reads a document gets no colours, whatever the environment says.
    let json = fleet.user().with("CLICOLOR_FORCE", "1").run("cluster list -o json");
    assert_eq!(json.json()[0]["name"], NAME);
}

#[test]
fn a_reader_that_has_had_enough_is_not_a_failure() {
    let user = user();
    for line in [
        "cluster list",
        "config list -o json",
        "config dump",
        "deployment list --watch",
        "status --watch -o json",
        "watch --rebirth",
    ] {
        // The harness would not write its own lines to such a pipe: this is the program.
        let words: Vec<&str> = line.split(' ').collect();
        let mut child = user.program(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "{line} does not end without a reader");
            // Nodes are born again, so that there is something to write.
            user.run("watch --count 1 --for 1s --rebirth").done();
        };
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert!(status.success(), "{line}: {status}, {stderr}");
    }
}

#[test]
fn a_full_disk_is_a_failure_that_is_said() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = user().program(&["cluster", "list"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let errors = explained(&stderr);
    assert!(matches!(errors[..], [line] if line.contains("No space left")), "{stderr}");
}

/// Sends a signal to a command.
fn signal(child: &std::process::Child, name: &str) {
    let kill = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
}

#[test]
fn a_wait_that_is_interrupted_ends_with_130_and_prints_nothing() {
    let mut bench = Bench::new();
    // An edge sync that is alive, says the manager, and is not born: the command waits for it.
    bench.cluster(CLUSTER, NAME, |cluster| cluster.sync_alive = true);
    let fleet = MadeUp::of(&bench);
    let user = fleet.user();
    let words = ["cluster", "show", NAME, "--timeout", "5m"];
    let mut child = user.start(&words);
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "waiting for every edge sync that is alive to be born ...\n");
    signal(&child, "INT");
    let outcome = Outcome::of(&words, child);
    assert_eq!((outcome.code(), outcome.stdout.as_str()), (130, ""), "{outcome:#?}");
    // Who gives up by itself says what it has waited for.
    let line = user.run("cluster show Paint_Shop --timeout 3s");
    let error = line.refused(6);
    assert!(error.starts_with("waited 3s for every edge sync that is alive to be born; not reached"), "{error}");
}

#[test]
fn what_has_died_meanwhile_is_not_waited_for() {
    for (words, what) in
        [(["cluster", "list", "--complete"], "edge sync"), (["host", "list", "--complete"], "join service")]
    {
        let mut bench = Bench::new();
        bench.cluster(CLUSTER, NAME, |cluster| {
            (cluster.sync_alive, cluster.join.alive) = (true, what == "join service")
        });
        let fleet = MadeUp::of(&bench);
        let mut child = fleet.user().start(&words);
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert_eq!(line, format!("waiting for every {what} that is alive to be born ...\n"));
        bench.cluster(CLUSTER, NAME, |_| {});
        let device = bench.fleet.manager.cluster(CLUSTER).unwrap().to_metrics();
        let id = cluster_manager_contract::names::unnamed_device(CLUSTER);
        fleet.says("ACME-Central/Cluster-Manager", NodeUpdate::DeviceBirth { device: id, metrics: device });
        let outcome = Outcome::of(&words, child);
        assert_eq!(outcome.code(), 0, "{outcome:#?}");
    }
}

#[test]
fn a_list_that_is_followed_ends_by_ctrl_c_as_done() {
    for words in [vec!["cluster", "list", "--watch"], vec!["status", "--watch"], vec!["watch"]] {
        let user = user();
        let mut child = user.start(&words);
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        // The harness says two lines; then comes the first of the command.
        let mut line = String::new();
        for _ in 0..3 {
            line.clear();
            stdout.read_line(&mut line).unwrap();
        }
        assert!(!line.is_empty(), "{words:?}");
        signal(&child, "INT");
        assert_eq!(Outcome::of(&words, child).code(), 0, "{words:?}");
    }
    assert!(factory().broker.starts_with("mqtt://"));
}
