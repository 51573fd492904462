//! What passes now and what happened before: `watch`, `write`, `events`, `at` and `ui`.

use std::io::{BufRead as _, BufReader};

use edge_sync_contract::SyncNode;
use fleet_view::bench::{Bench, NAME};
use serde_json::{Value, json};
use sparkplug::Metric;
use sparkplug::edge_node::NodeUpdate;

use crate::support::factory::{factory, until, user};
use crate::support::made_up::MadeUp;
use crate::support::program::{Outcome, User};

/// Waits until the history of the factory's console has begun.
fn historian() -> User {
    let user = user().with("SPARKFLEET_CONSOLE", &factory().console);
    until(|| user.run("events -o json"), |outcome| outcome.code() == 0 && outcome.json()["begins"].is_u64());
    user
}

#[test]
fn what_happened_is_read_by_time_by_cluster_and_as_many_as_are_wanted() {
    let user = historian();
    let made = user.run("cluster create Past_1 -o json").json();
    assert_eq!(made["change"], "created");
    let is_there = |outcome: &Outcome| {
        let all = outcome.json();
        all["events"].as_array().unwrap().iter().any(|event| event["text"].as_str().unwrap().starts_with("added"))
    };
    let events = until(|| user.run("events --cluster Past_1 -o json"), is_there).json();
    let fields: Vec<&String> = events.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["events", "gaps", "begins", "complete"]);
    assert!(events["events"].as_array().unwrap().iter().all(|event| event["cluster"] == "Past_1"), "{events:#}");
    let added =
        events["events"].as_array().unwrap().iter().find(|event| event["text"].as_str().unwrap().starts_with("added"));
    let at = added.unwrap()["at"].as_u64().unwrap();
    let table = user.run("events --cluster Past_1");
    let header: Vec<&str> = table.lines()[0].split_whitespace().collect();
    assert_eq!(header, ["TIME", "CLUSTER", "EVENT"]);
    let one = user.run("events --limit 1");
    let last = *one.lines().last().unwrap();
    assert_eq!(last, "there are earlier events: --limit says how many are shown", "{one:#?}");
    assert_eq!(user.run("events --limit 1 -o json").json()["events"].as_array().unwrap().len(), 1);
    assert_eq!(user.run("events --since 1s --until 2s").code(), 2);
    // A moment before it was not there, and what was different then is said.
    let names = |outcome: Outcome| -> Vec<String> {
        outcome.json()["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(!names(user.run(&format!("at {} clusters -o json", at - 1))).contains(&"Past_1".to_owned()));
    assert!(names(user.run(&format!("at {at} clusters -o json"))).contains(&"Past_1".to_owned()));
    let differs = user.run(&format!("at {} clusters --diff {at} --cluster Past_1 -o json", at - 1)).json();
    assert_eq!(differs["differences"][0]["cluster"], "Past_1", "{differs:#}");
    assert_eq!(differs["differences"][0]["table"], "clusters", "{differs:#}");
    let shown = user.run(&format!("at {at} services"));
    assert!(shown.lines()[0].starts_with("state at ") && shown.lines()[1].starts_with("SERVICE "), "{shown:#?}");
    let same = user.run(&format!("at {at} --diff {at}"));
    assert_eq!(same.done(), "nothing is different\n");
}

#[test]
fn a_time_before_the_history_is_not_found_and_one_that_is_none_is_wrong_use() {
    let user = historian();
    let before = user.run("at 2001-01-01T00:00:00Z clusters");
    assert_eq!(before.code(), 7, "{before:#?}");
    for time in ["yesterday", "5", "-1h", "2026-13-01T00:00:00Z"] {
        let outcome = user.run_words(&["at", time, "clusters"], "");
        assert!(matches!(outcome.code(), 2 | 7), "{outcome:#?}");
        assert_eq!(outcome.stdout, "", "{outcome:#?}");
    }
    assert_eq!(user.run("at 1s chairs").code(), 2);
    assert_eq!(user.run("events --limit 0").code(), 2);
}

#[test]
fn an_export_is_written_whole_into_a_new_file_and_over_no_other() {
    let user = historian();
    let exported = user.run("events --since 1h --export @/night.jsonl -o json").json();
    assert!(exported["changes"].as_u64() > Some(0), "{exported:#}");
    let text = std::fs::read_to_string(user.path("night.jsonl")).unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "a document a line");
    let again = user.run("events --since 1h --export @/night.jsonl");
    assert!(again.refused(3).contains("night.jsonl"), "{again:#?}");
    assert_eq!(std::fs::read_to_string(user.path("night.jsonl")).unwrap(), text);
}

#[test]
fn the_address_of_the_console_is_printed_and_nothing_else() {
    let user = user();
    assert_eq!(user.run("ui --print").done(), "http://127.0.0.1:8482/\n");
    assert_eq!(user.run("ui --print --url https://c.example/x").done(), "https://c.example/x\n");
    user.run("context set hall --console https://hall.example").done();
    assert_eq!(user.run("ui --print").done(), "https://hall.example\n");
    assert!(user.run("ui --print --url javascript:x").refused(2).contains("must begin with http"));
}

/// A fleet whose edge sync has a metric and a device of hostile names.
fn talking() -> MadeUp {
    let mut bench = Bench::with_cluster();
    let hostile = Metric::new("a\u{1b}[2J\u{202e}", "b\u{9b}1A\nWAITING");
    let long = Metric::new("x".repeat(5_000).as_str(), "y".repeat(5_000));
    bench.sync_with(NAME, &SyncNode::default(), &[hostile, long, Metric::new("Speed", 5_i32)]);
    MadeUp::of(&bench)
}

#[test]
fn messages_are_shown_as_they_pass_for_people_and_for_programs() {
    let fleet = talking();
    let user = fleet.user();
    let line = "watch --group ACME-Paint_Shop --node Sync --kind NBIRTH --rebirth --count 1";
    let text = user.run(line);
    assert!(text.lines()[0].contains("  spBv1.0/ACME-Paint_Shop/NBIRTH/Sync  seq=0  bdSeq="), "{text:#?}");
    assert!(text.done().contains("a\\u{1b}[2J\\u{202e}"), "{text:#?}");
    assert!(!text.lines().contains(&"WAITING"), "{text:#?}");
    assert!(text.lines().iter().all(|line| line.chars().count() < 500), "nothing that others say fills the screen");
    let full = user.run(&format!("{line} --full"));
    assert!(full.done().contains(&"x".repeat(5_000)) && full.done().contains(&"y".repeat(5_000)));
    let json: Value = serde_json::from_str(user.run(&format!("{line} -o json")).lines()[0]).unwrap();
    assert_eq!(
        (&json["kind"], &json["group"], &json["node"]),
        (&json!("NBIRTH"), &json!("ACME-Paint_Shop"), &json!("Sync"))
    );
    let metrics = json["metrics"].as_array().unwrap();
    let hostile = metrics.iter().find(|metric| metric["name"] == "a\u{1b}[2J\u{202e}").unwrap();
    assert_eq!(hostile["value"], "b\u{9b}1A\nWAITING", "programs read what was said");
    let tree = user.run(&format!("{line} --output tree"));
    assert!(tree.done().contains("ACME-Paint_Shop"), "{tree:#?}");
}

#[test]
fn what_is_watched_is_recorded_and_read_again_without_a_broker() {
    let fleet = talking();
    let user = fleet.user();
    let line = "watch --group ACME-Paint_Shop --node Sync --rebirth";
    user.run(&format!("{line} --count 2 --record @/day.jsonl")).done();
    let away = user.with("SPARKFLEET_BROKER", "mqtt://127.0.0.1:1");
    let read = away.run("watch --read @/day.jsonl --kind NBIRTH --count 1 -o json");
    let message: Value = serde_json::from_str(read.lines()[0]).unwrap();
    assert_eq!(message["topic"], "spBv1.0/ACME-Paint_Shop/NBIRTH/Sync");
    let other = away.run("watch --read @/day.jsonl --group ACME-Nowhere");
    assert_eq!(other.done(), "", "{other:#?}");
    let unreachable = away.run("watch --count 1");
    assert!(unreachable.refused(4).starts_with("cannot reach the broker mqtt://127.0.0.1:1"), "{unreachable:#?}");
}

#[test]
fn a_metric_is_written_as_its_birth_says_and_never_by_guess() {
    let fleet = talking();
    let user = fleet.user();
    let place = "ACME-Paint_Shop/Sync";
    for (words, code, part) in [
        (vec!["write", "Paint_Shop", "Speed", "5"], 2, "is not GROUP/NODE"),
        (vec!["write", place, "Sped", "5"], 7, "did you mean \"Speed\"?"),
        (vec!["write", place, "Speed", "fast"], 2, "is not a value of datatype Int32"),
        (vec!["write", place, "Speed", "99999999999"], 2, "does not fit into datatype Int32"),
        (vec!["write", "ACME-Paint_Shop/Nowhere", "Speed", "5", "--timeout", "1s"], 6, "is it alive"),
        (vec!["write", "ACME-Paint_Shop/Sync/None", "Speed", "5", "--timeout", "1s"], 6, ""),
        // This node obeys no command: it says nothing of the value.
        (vec!["write", place, "Speed", "-5", "--timeout", "1s"], 6, "reported nothing of it"),
    ] {
        let outcome = user.run_words(&words, "");
        assert!(outcome.refused(code).contains(part), "{part}: {outcome:#?}");
    }
    user.run_words(&["write", place, "Speed", "-5", "--no-wait"], "").done();
    let words = ["write", place, "Speed", "7", "--timeout", "2m"];
    let mut child = user.start(&words);
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "sparkfleet: ACME-Paint_Shop/Sync Speed is written as Int32; waiting for the node's report\n");
    fleet.says(place, NodeUpdate::Set { device: None, metrics: vec![Metric::new("Speed", 7_i32)] });
    let outcome = Outcome::of(&words, child);
    assert_eq!(outcome.code(), 0, "{outcome:#?}");
}
