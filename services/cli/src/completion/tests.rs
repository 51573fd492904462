//! What arguments can name, from a console that answers as a test says.

use std::collections::BTreeMap;

use clap::Subcommand as _;
use fleet_view::bench::{Bench, CLUSTER};
use serde_json::json;

use super::*;
use crate::arguments::{Command, ConfigCommand};
use crate::options::ConsoleAccess;
use crate::served::{Served, ServedResponse};

fn table(rows: Value) -> String {
    json!({ "rev": 1, "at": 1, "rows": rows }).to_string()
}

/// Rows of the console for a fleet of one cluster with such names.
fn answers() -> Vec<ServedResponse> {
    let mut bench = Bench::new();
    bench.cluster(CLUSTER, "Paint_Shop", |_| {});
    let clusters: Vec<Value> = fleet_view::tables::Rows::of(&bench.fleet).clusters().into_values().collect();
    let hosts = json!([
        { "key": "1", "cluster": "Paint_Shop", "name": "paint-1" },
        { "key": "2", "cluster": "Paint_Shop", "name": "paint-2\u{1b}]0;hacked\u{7}" },
        { "key": "3", "cluster": "Paint_Shop", "name": "two\nlines" },
        { "key": "4", "cluster": "Paint_Shop", "name": "--help" },
        { "key": "5", "cluster": "Paint_Shop", "name": "a\u{202e}b" },
        { "key": "6", "cluster": "Paint_Shop", "name": "" },
    ]);
    let objects = json!([
        { "key": "1", "name": "Edge agent", "class_name": "Helm chart", "deleted": false },
        { "key": "2", "name": "Edge old", "class_name": "Helm chart", "deleted": true },
        { "key": "3", "name": null, "class_name": null, "deleted": false },
        { "key": "4", "name": "API token ada", "class_name": "API token", "deleted": false, "entries": ["ApiToken", "Info"] },
        { "key": "5", "name": "API token ben", "class_name": "API token", "deleted": false, "entries": ["Info"] },
        { "key": "6", "name": "Shared charts", "class_name": "Git repository", "deleted": false, "entries": ["GitConfig"] },
        { "key": "7", "name": "Gone", "class_name": "Git repository", "deleted": true, "entries": ["GitConfig"] },
    ]);
    let keys = json!([{ "key": "password", "state": "written" }, { "key": "user\u{7}", "state": "written" }]);
    let secrets = json!([{ "key": "1", "cluster": "Paint_Shop", "namespace": "fplus-edge", "name": "press-login", "keys": keys }]);
    vec![
        ("/api/v1/clusters", 200, table(json!(clusters))),
        ("/api/v1/hosts", 200, table(hosts)),
        ("/api/v1/objects", 200, table(objects)),
        ("/api/v1/applications", 200, table(json!([{ "key": "EdgeCluster", "name": "Edge cluster" }]))),
        ("/api/v1/entries:6", 200, table(json!([{ "key": "GitConfig", "json": r#"{"path":"shared/charts"}"# }]))),
        ("/api/v1/secrets", 200, table(secrets)),
        ("/api/v1/rollout", 200, table(json!([{ "key": "1", "template": "Edge agent" }]))),
    ]
}

fn names(address: &str) -> Names {
    let console = ConsoleOfContext { address: address.to_owned(), access: ConsoleAccess::default() };
    Names { console: Some(console), contexts: vec!["plant".to_owned(), "up".to_owned()] }
}

fn command() -> clap::Command {
    let config = ConfigCommand::augment_subcommands(clap::Command::new("config"));
    Command::augment_subcommands(clap::Command::new("sparkfleet")).subcommand(config)
}

/// What is offered for the last word of a line, options left out.
async fn offered(names: Names, line: &str) -> Vec<String> {
    let words: Vec<OsString> = std::iter::once("sparkfleet").chain(line.split(' ')).map(OsString::from).collect();
    let complete = move || {
        let last = words.len() - 1;
        let candidates = clap_complete::engine::complete(&mut names.complete(command()), words, last, None).unwrap();
        let texts = candidates.iter().map(|candidate| candidate.get_value().to_str().unwrap().to_owned());
        texts.filter(|text| !text.starts_with('-')).collect()
    };
    tokio::task::spawn_blocking(complete).await.unwrap()
}

#[tokio::test]
async fn arguments_are_completed_by_what_the_console_has() {
    let served = Served::start(answers()).await;
    for (line, expected) in [
        ("cluster show ", &["Paint_Shop"][..]),
        ("clusters get Pa", &["Paint_Shop"]),
        ("cluster show paint", &[]),
        ("secret put ", &["Paint_Shop"]),
        ("token create t --cluster ", &["Paint_Shop"]),
        ("deployment create a --host ", &["paint-1"]),
        ("host move ", &["Paint_Shop/--help", "Paint_Shop/paint-1"]),
        ("host move Paint_Shop/paint-1 --to ", &["paint-1"]),
        ("rollout hold ", &["Edge agent"]),
        ("config get ", &["API token ada", "API token ben", "Edge agent", "Shared charts"]),
        ("token revoke ", &["ada"]),
        ("secret delete Paint_Shop ", &["press-login"]),
        ("secret delete Paint_Shop press-login ", &["password"]),
        ("cluster rollout Paint_Shop --unpin ", &["shared/charts"]),
        ("cluster rollout Paint_Shop --pin sha", &["shared/charts="]),
        ("config get x ", &["EdgeCluster"]),
        ("config list --class ", &["API token", "Git repository", "Helm chart"]),
        ("context use ", &["plant", "up"]),
        ("status --context p", &["plant"]),
    ] {
        assert_eq!(offered(names(&served.address), line).await, expected, "{line:?}");
    }
}

#[tokio::test]
async fn where_a_console_says_nothing_useful_in_time_there_are_no_names() {
    let other_version = vec![("/api/v1/clusters", 200, table(json!([{ "key": "1" }])))];
    let refusing = vec![("/api/v1/clusters", 401, r#"{"error":"sign in"}"#.to_owned())];
    for answers in [other_version, refusing, vec![("/api/v1/clusters", 200, "<html>".to_owned())]] {
        let served = Served::start(answers).await;
        assert_eq!(offered(names(&served.address), "cluster show ").await, [""; 0]);
    }
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let begun = std::time::Instant::now();
    let address = format!("http://{}", silent.local_addr().unwrap());
    assert_eq!(offered(names(&address), "cluster show ").await, [""; 0]);
    assert!(begun.elapsed() < Duration::from_secs(10), "a user would wait");
    assert_eq!(offered(Names::default(), "cluster show ").await, [""; 0]);
}

#[test]
fn every_argument_that_is_called_like_a_thing_of_the_fleet_is_completed() {
    fn collect(command: &clap::Command, path: &str, found: &mut BTreeMap<String, Option<Kind>>) {
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            found.insert(format!("{path}:{id}"), Kind::of(path, id));
        }
        for below in command.get_subcommands() {
            collect(below, format!("{path} {}", below.get_name()).trim_start(), found);
        }
    }
    let mut found = BTreeMap::new();
    collect(&command(), "", &mut found);
    for (argument, kind) in [
        ("deployment move:host", Kind::HostName),
        ("host move:host", Kind::Host),
        ("host move:to", Kind::HostName),
        ("host approve:host", Kind::JoiningHost),
        ("policy capture:host", Kind::JoiningHost),
        ("host init:host", Kind::HostName),
        ("alert ack:about", Kind::Alert),
        ("context delete:name", Kind::Context),
        ("recover adopt:cluster", Kind::Cluster),
        ("config put:class", Kind::Class),
        ("deployment create:chart", Kind::Chart),
        ("token revoke:name", Kind::Token),
        ("secret delete:keys", Kind::SecretKey),
        ("cluster rollout:pin", Kind::Pin),
    ] {
        assert_eq!(found.get(argument), Some(&Some(kind)), "{argument}");
    }
    // A name that is to be new is not one of those that there are.
    for argument in
        ["cluster create:name", "deployment create:name", "context rename:new", "secret put:name", "token create:name"]
    {
        assert_eq!(found.get(argument), Some(&None), "{argument}");
    }
}
