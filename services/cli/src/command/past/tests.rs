//! The past as lines for people, and how the console is asked for it.

use super::*;
use crate::Command;
use crate::served::Served;

fn event(at: u64, cluster: Option<&str>, text: &str) -> EventRow {
    let request = (text == "added, spec").then(|| "r-1".to_owned());
    let (cluster, text) = (cluster.map(str::to_owned), text.to_owned());
    EventRow {
        key: at.to_string(),
        at,
        cluster,
        kind: String::new(),
        subject: String::new(),
        old: None,
        new: None,
        text,
        request,
    }
}

#[test]
fn events_and_gaps_stand_in_the_order_of_time() {
    let events = [event(1_000, Some("Paint_Shop"), "added, spec"), event(9_000, None, "service a/b died")];
    let gaps = [Gap { since: 5_000, until: Some(7_000), reason: "the console was stopped".to_owned() }];
    let expected = [
        "TIME                  CLUSTER     EVENT",
        "1970-01-01T00:00:01Z  Paint_Shop  added, spec [request r-1]",
        "1970-01-01T00:00:05Z  (gap)       nothing was received until 1970-01-01T00:00:07Z: the console was stopped",
        "1970-01-01T00:00:09Z  (central)   service a/b died",
    ];
    assert_eq!(event_lines(&events, &gaps, None, false), expected);
    assert_eq!(event_lines(&[], &[], Some(3_000), false), ["no events", "the history begins at 1970-01-01T00:00:03Z"]);
    let more = event_lines(&events[1..], &gaps, None, true);
    assert!(more.len() == 3 && more[2].contains("--limit"), "{more:?}");
}

#[test]
fn a_table_of_the_past_says_its_time_and_its_gap() {
    let row = json!({ "key": "u", "name": "Paint_Shop", "health": "away", "setup": "ready", "edge": "away",
        "hosts": { "ready": 1, "total": 3 }, "deployments": { "ready": 0, "total": 0 }, "alerts": 1, "reasons": ["why"] });
    let rows = Rows::from([("u".to_owned(), row)]);
    let expected = [
        "state at 1970-01-01T00:00:09Z",
        "nothing was received from 1970-01-01T00:00:08Z on: this is what was known then",
        "CLUSTER     HEALTH  SETUP  EDGE  HOSTS  DEPLOYMENTS  ALERTS  REASON",
        "Paint_Shop  away    ready  away  1/3    0/0          1       why",
    ];
    assert_eq!(state_lines(PastTable::Clusters, &rows, Some((8_000, None)), 9_000), expected);
    assert_eq!(state_lines(PastTable::Alerts, &Rows::new(), None, 0)[1..], ["nothing was there"]);
}

#[test]
fn the_difference_of_two_times_is_shown_as_events_are() {
    let row = |name: &str, state: &str, version: u64| {
        (
            name.to_owned(),
            json!({ "key": name, "name": name, "cluster": "Paint_Shop", "state": state, "version": version }),
        )
    };
    let old = Rows::from([row("a", "sending", 1), row("b", "applied", 1), row("c", "applied", 1)]);
    let new = Rows::from([row("a", "applied", 1), row("b", "applied", 2), row("c", "applied", 1)]);
    let found = differences(View::Deployments, &old, &new);
    let texts: Vec<&str> = found.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(texts, ["deployment a state: sending → applied", "b: version"]);
    assert_eq!((found[1].cluster.as_str(), &found[1].fields), ("Paint_Shop", &vec!["version".to_owned()]));
}

fn page(events: &[EventRow], next: impl Serialize) -> String {
    json!({ "rows": events, "next": next, "gaps": [], "begins": 1 }).to_string()
}

async fn asked(served: &Served, line: &str) -> anyhow::Result<()> {
    let address = ["--console", &served.address];
    let words = std::iter::once("sparkfleet").chain(line.split(' ')).chain(address);
    match crate::arguments::parsed(words)? {
        Command::Events(arguments) => events(&arguments).await,
        Command::At(arguments) => at(&arguments).await,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn pages_are_asked_for_until_there_are_no_more_or_enough() {
    let latest: Vec<EventRow> = (0..3).map(|n| event(9 - n, Some("Paint_Shop"), "x")).collect();
    let pages = |last| {
        let first = ("/api/v1/events", 200, page(&latest, 7));
        Served::start(vec![first, ("/api/v1/events", 200, page(&latest[..1], last))])
    };
    let served = pages(None::<u64>).await;
    asked(&served, "events --since 5 --until 99 --cluster Paint_Shop --limit 4").await.unwrap();
    let common = "/api/v1/events?since=5&until=99&limit=";
    assert_eq!(
        served.paths(),
        [format!("{common}4&cluster=Paint%5FShop"), format!("{common}1&cluster=Paint%5FShop&before=7")]
    );
    let enough = pages(Some(3)).await;
    asked(&enough, "events --since 5 --until 99 --limit 3").await.unwrap();
    assert_eq!(enough.paths().len(), 1);
    // For a credential of some clusters the place is a text.
    let first = ("/api/v1/events", 200, page(&latest[..1], "a1b2"));
    let marked = Served::start(vec![first, ("/api/v1/events", 200, page(&latest[..1], None::<u64>))]).await;
    asked(&marked, "events --since 5 --until 99").await.unwrap();
    assert_eq!(marked.paths()[1], format!("{common}199&before=a1b2"));
}

#[tokio::test]
async fn a_time_that_the_history_does_not_reach_is_not_found_and_one_that_ends_before_it_begins_is_wrong_use() {
    let refusal = r#"{"error":"the history begins at 5 (UTC ms)","field":"at"}"#.to_owned();
    let served = Served::start(vec![("/api/v1/hosts", 404, refusal)]).await;
    let error = asked(&served, "at 3 hosts").await.unwrap_err();
    assert_eq!(service_runtime::exit::code_of(&error), service_runtime::exit::NOT_FOUND);
    assert_eq!(served.paths(), ["/api/v1/hosts?at=3"]);
    let error = asked(&served, "events --since 9 --until 5").await.unwrap_err();
    assert_eq!(service_runtime::exit::code_of(&error), service_runtime::exit::USAGE);
    assert_eq!(served.paths().len(), 1, "nothing was asked");
}

#[tokio::test]
async fn a_difference_asks_for_both_times_of_every_table_that_is_wanted() {
    let table = |name| (name, 200, json!({ "rows": [], "gaps": [] }).to_string());
    let served = Served::start(vec![table("/api/v1/alerts")]).await;
    asked(&served, "at 3 alerts --diff 8").await.unwrap();
    assert_eq!(served.paths(), ["/api/v1/alerts?at=3", "/api/v1/alerts?at=8"]);
    let tables = ["clusters", "hosts", "deployments", "alerts", "services"];
    let all = ["/api/v1/clusters", "/api/v1/hosts", "/api/v1/deployments", "/api/v1/alerts", "/api/v1/services"];
    let served = Served::start(all.map(table).to_vec()).await;
    asked(&served, "at 3 --diff 8").await.unwrap();
    let expected: Vec<String> =
        tables.iter().flat_map(|name| [3, 8].map(|at| format!("/api/v1/{name}?at={at}"))).collect();
    assert_eq!(served.paths(), expected);
}

#[tokio::test]
async fn an_answer_that_is_not_of_a_console_is_not_shown() {
    for body in ["<html></html>", r#"{"rows":[]}"#, "[]"] {
        let served = Served::start(vec![("/api/v1/events", 200, body.to_owned())]).await;
        let error = asked(&served, "events").await.unwrap_err();
        assert!(format!("{error:#}").contains("is not of a console"), "{body}: {error:#}");
    }
}

#[test]
fn a_field_is_shown_as_people_read_it() {
    let row = json!({ "none": null, "text": "a", "count": { "ready": 1, "total": 3 }, "flag": true, "list": ["x"] });
    let shown = ["/none", "/missing", "/text", "/count", "/flag", "/list/0"].map(|place| text(&row, place));
    assert_eq!(shown, ["", "", "a", "1/3", "true", "x"]);
}

#[tokio::test]
async fn a_file_that_is_there_is_refused_before_the_console_is_asked_and_one_that_is_not_whole_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("night.jsonl");
    std::fs::write(&file, "mine").unwrap();
    let end = r#"{"end":{"changes":0}}"#;
    let served =
        Served::start(vec![("/api/v1/export", 200, format!("{end}\n")), ("/api/v1/export", 200, "cut".to_owned())])
            .await;
    let line = format!("events --export {}", file.display());
    let error = asked(&served, &line).await.unwrap_err();
    assert_eq!(service_runtime::exit::code_of(&error), service_runtime::exit::CONFIG);
    assert_eq!((served.paths().len(), std::fs::read_to_string(&file).unwrap()), (0, "mine".to_owned()));
    std::fs::remove_file(&file).unwrap();
    let _ = asked(&served, &line).await;
    let _ = std::fs::remove_file(&file);
    let error = asked(&served, &line).await.unwrap_err();
    assert!(error.to_string().contains("has broken off the export"), "{error:#}");
    assert!(!file.exists());
}
