//! `sparkfleet config ...`, its refusals and its forms.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::factory::user;
use crate::support::program::User;

const PUMP: &str = "0f000000-0000-4000-8000-000000000001";

#[test]
fn an_entry_is_written_under_conditions_and_what_a_user_reads_of_that() {
    let user = user();
    let put = format!("config put {PUMP} Info - --class Device");
    let first = user.run_with(&put, "name: Pump\n");
    let line = first.done();
    assert!(line.starts_with(&format!("Info of {PUMP} created: revision ")) && line.contains(", ETag "), "{line}");
    let etag = line.trim_end().rsplit(' ').next().unwrap().to_owned();
    let same = user.run_with(&put, "{\"name\": \"Pump\"}");
    assert!(same.done().contains(" unchanged: revision ") && same.done().contains(&etag), "{same:#?}");
    for (more, input, code, part) in [
        ("--if-match none", "name: Other", 5, "Info"),
        ("--if-match 00000000-0000-4000-8000-000000000000", "name: Other", 5, "Info"),
        ("--if-match seven", "name: Other", 2, "--if-match is neither a UUID nor `none`"),
        ("", "name: 7", 5, "name"),
        ("", "name: [", 3, "neither JSON nor YAML"),
    ] {
        let outcome = user.run_with(format!("config put Pump Info - {more}").trim_end(), input);
        assert!(outcome.refused(code).contains(part), "{more} {input}: {outcome:#?}");
    }
    assert_eq!(user.run("config get Pump Info").done(), "name: Pump\n");
    let patched =
        user.run_with(&format!("config patch Pump Info - --if-match {etag} -o json"), "deprecated: true").json();
    assert_eq!((&patched["change"], &patched["outcome"]), (&json!("changed"), &json!("applied")), "{patched:#}");
    let history = user.run(&format!("config history {PUMP} Info"));
    let lines = history.lines();
    let header: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(header, ["REVISION", "TIME", "WRITER", "APPLICATION", "VALUE"]);
    assert!(lines.len() == 3 && lines[1..].iter().all(|line| line.contains("sparkfleet-cli/ada")), "{history:#?}");
    assert_eq!(user.run(&format!("config history {PUMP} --limit 1")).lines().len(), 2);
    let by_uuid = user.run(&format!("config history {PUMP} 64a8bfa9-7772-45c4-9d1a-9e6290690957 -o json"));
    assert!(matches!(by_uuid.code(), 0 | 7), "{by_uuid:#?}");
    user.run(&format!("config delete {PUMP} --if-match {etag}")).refused(2);
    let deleted = user.run(&format!("config delete {PUMP} Info"));
    assert!(deleted.done().starts_with(&format!("Info of {PUMP} deleted: revision ")), "{deleted:#?}");
    user.run(&format!("config get {PUMP} Info")).refused(7);
    let gone = user.run(&format!("config delete {PUMP}"));
    assert!(gone.done().starts_with(&format!("object of {PUMP} deleted: revision ")), "{gone:#?}");
}

#[test]
fn a_hostile_name_is_stored_as_it_is_and_shown_as_escapes() {
    let user = user();
    let object = "0f000000-0000-4000-8000-000000000002";
    let name = "Valve\u{1b}[2J\u{202e}\u{9b}1A \u{7}é";
    let value = json!({ "name": name });
    user.run_with(&format!("config put {object} Info - --class Device"), &value.to_string()).done();
    assert_eq!(user.run(&format!("config get {object} Info -o json")).json(), value, "what was written is read");
    let yaml = user.run(&format!("config get {object} Info"));
    let read: Value = serde_saphyr::from_str(yaml.done()).unwrap();
    assert_eq!(read, value, "people's YAML is the same document");
    let listed = user.run("config list Info --class Device");
    assert!(listed.done().contains("Valve\\u{1b}[2J\\u{202e}\\u{9b}1A \\u{7}é"), "{listed:#?}");
    let found = user.run_words(&["config", "get", name, "Info", "-o", "json"], "");
    assert_eq!(found.json(), value, "and found by it");
    let history = user.run(&format!("config history {object} Info"));
    assert!(history.lines().len() >= 2, "{history:#?}");
    user.run(&format!("config delete {object}")).done();
}

#[test]
fn of_two_objects_with_one_name_the_caller_chooses() {
    let user = user();
    let objects = ["0f000000-0000-4000-8000-000000000003", "0f000000-0000-4000-8000-000000000004"];
    for object in objects {
        user.run_with(&format!("config put {object} Info - --class Device"), "name: Mixer").done();
    }
    for line in ["config get Mixer Info", "config history Mixer", "config delete Mixer"] {
        let outcome = user.run(line);
        let error = outcome.refused(2);
        assert!(objects.iter().all(|object| error.contains(object)), "{error}");
    }
    for object in objects {
        user.run(&format!("config delete {object}")).done();
    }
    assert!(user.run("config get Mixer Info").refused(7).contains("there is no object named \"Mixer\""));
}

#[test]
fn what_is_not_there_is_named_with_the_nearest() {
    let user = user();
    let missing = [
        ("config get Robot_Cell_11 Info", "did you mean \"Robot_Cell_1\"?"),
        ("config get Robot_Cell_1 Inof", "there is no application \"Inof\"; did you mean \"Info\"?"),
        ("config list Inof", "there is no application \"Inof\"; did you mean \"Info\"?"),
        ("config list --class Devcie", "there is no object named \"Devcie\"; did you mean \"Device\"?"),
        ("config get Robot_Cell_1 GitConfig", "has no entry GitConfig"),
        ("config get 0f000000-0000-4000-8000-0000000000ff Info", "there is no object 0f000000-"),
        ("config history 0f000000-0000-4000-8000-0000000000ff Info", "device id"),
    ];
    for (outcome, (_, part)) in user.run_all(&missing.map(|(line, _)| line)).iter().zip(missing) {
        assert!(outcome.refused(7).contains(part), "{outcome:#?}");
    }
    let put = user.run_with("config put Robot_Cell_1 Inof -", "name: x");
    assert!(put.refused(7).contains("did you mean \"Info\"?"), "{put:#?}");
    let file = user.run("config put Robot_Cell_1 Info @/none");
    assert!(file.refused(3).contains("cannot read"), "{file:#?}");
}

#[test]
fn a_dump_is_loaded_as_a_whole_or_not_at_all_and_again_writes_nothing() {
    let user = user();
    for (text, part) in [("[]", ""), ("service: x", ""), ("version: 9", ""), ("{", "")] {
        let outcome = user.run_with("config load -", text);
        assert!(outcome.refused(3).contains(part), "{outcome:#?}");
    }
    assert!(user.run("config load @/none").refused(3).contains("cannot read"));
    let empty = "service: af15f175-78a0-4e05-97c0-2a0bb82b9f3b\nversion: 2\n";
    let nothing = user.run_with("config load -", empty);
    assert!(nothing.done().starts_with("0 writes: revision "), "{nothing:#?}");
    let class = "18773d6d-a70d-443a-b29a-3f1583195290";
    let object = "0f000000-0000-4000-8000-000000000005";
    let dump = format!("{empty}objects:\n  {class}:\n    {object}: {{ name: Loaded }}\n");
    let dry = user.run_with("config load - --dry-run", &dump);
    assert_eq!(dry.lines()[0], "OBJECT                                WRITES");
    assert!(dry.lines()[1..].iter().all(|line| line.starts_with(object)), "{dry:#?}");
    user.run(&format!("config get {object} Info")).refused(7);
    let loaded = user.run_with("config load - -o json", &dump).json();
    assert!(loaded["writes"].as_u64() > Some(0) && loaded["deletes"] == json!([]), "{loaded:#}");
    assert_eq!(user.run(&format!("config get {object} Info -o json")).json()["name"], "Loaded");
    assert_eq!(user.run_with("config load - -o json", &dump).json()["writes"], 0);
    user.run(&format!("config delete {object}")).done();
}

/// An editor that is a script; `"$1"` is the file.
fn editor(user: &User, script: &str) -> String {
    let path = user.file("editor", format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn an_entry_is_edited_and_what_is_refused_is_kept_for_who_typed_it() {
    let object = "0f000000-0000-4000-8000-000000000006";
    let user = user();
    user.run_with(&format!("config put {object} Info - --class Device"), "name: Lathe\n").done();
    let same = user.run(&format!("config edit {object} Info"));
    assert_eq!(same.done(), format!("Info of {object} unchanged\n"));
    let renames = editor(&user, "sed -i s/Lathe/Lathe_2/ \"$1\"");
    let user = user.with("VISUAL", &renames);
    let changed = user.run(&format!("config edit {object} Info"));
    assert!(changed.done().starts_with(&format!("Info of {object} changed: revision ")), "{changed:#?}");
    assert_eq!(user.run(&format!("config get {object} Info")).done(), "name: Lathe_2\n");
    // As JSON, with what was done as a document.
    editor(&user, "grep -q '\"name\": \"Lathe_2\"' \"$1\" && sed -i s/Lathe_2/Lathe_3/ \"$1\"");
    let json = user.run("config edit Lathe_2 Info -o json").json();
    assert_eq!(
        (&json["object"], &json["application"], &json["change"]),
        (&json!(object), &json!("Info"), &json!("changed"))
    );
    // What ConfigDB refuses is opened again with the reason; who leaves it as it is finds what was typed.
    editor(&user, "cp \"$1\" \"$1.seen\"; mv \"$1.seen\" \"$(dirname \"$0\")/seen\"; echo 'name: 7' > \"$1\"");
    let refused = user.run("config edit Lathe_3 Info");
    let error = refused.refused(5);
    let (_, kept) = error.split_once("nothing was written, what you typed is in ").unwrap();
    assert_eq!(std::fs::read_to_string(kept).unwrap().lines().last(), Some("name: 7"), "{error}");
    std::fs::remove_file(kept).unwrap();
    let seen = std::fs::read_to_string(user.path("seen")).unwrap();
    assert!(seen.lines().any(|line| line.starts_with("# ") && line.contains("name")), "the reason is above it: {seen}");
    editor(&user, "exit 3");
    let failed = user.run("config edit Lathe_3 Info");
    assert!(failed.refused(2).contains("ended with exit code 3, nothing was written"), "{failed:#?}");
    assert_eq!(user.run(&format!("config get {object} Info")).done(), "name: Lathe_3\n");
    user.run(&format!("config delete {object}")).done();
}
