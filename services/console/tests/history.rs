//! The past, as it is asked for over HTTP: what was shown is found again, and where nothing was received is said.

use serde_json::Value;
use sparkplug::Metric;

use crate::console::{LIMIT, Scene, node};

const HISTORIAN: &str = "Foreign/Historian";

fn historian(scene: &Scene) -> sparkplug_mqtt::EdgeNodeHandle {
    node(&scene.broker, "Foreign", "Historian", vec![Metric::new("Properties/Service", "historian")])
}

async fn json(scene: &Scene, path: &str) -> Value {
    let (status, _, body) = scene.get(path, "").await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// The first answer about events of which that is true.
async fn events_until(scene: &Scene, query: &str, found: impl Fn(&Value) -> bool) -> Value {
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        let answer = json(scene, &format!("/api/v1/events{query}")).await;
        if found(&answer) {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "{answer}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn event<'a>(answer: &'a Value, kind: &str) -> Option<&'a Value> {
    answer["rows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["kind"] == kind && row["subject"] == "service Foreign/Historian")
}

fn row<'a>(answer: &'a Value, key: &str) -> Option<&'a Value> {
    answer["rows"].as_array().unwrap().iter().find(|row| row["key"] == key)
}

#[tokio::test]
async fn the_state_before_a_death_is_found_after_it() {
    let scene = Scene::start().await;
    scene.recording().await;
    let historian = historian(&scene);
    let born = events_until(&scene, "", |answer| event(answer, "birth").is_some()).await;
    let born = event(&born, "birth").unwrap()["at"].as_u64().unwrap();
    let live = json(&scene, "/api/v1/services").await;
    historian.stop().await;
    let died = events_until(&scene, "", |answer| event(answer, "death").is_some()).await;
    let died = event(&died, "death").unwrap()["at"].as_u64().unwrap();
    let then = json(&scene, &format!("/api/v1/services?at={born}")).await;
    assert_eq!(row(&then, HISTORIAN), row(&live, HISTORIAN));
    assert_eq!((&then["at"], &then["gaps"]), (&born.into(), &Value::Array(vec![])));
    let earlier = json(&scene, &format!("/api/v1/services?at={}", born - 1)).await;
    assert_eq!(row(&earlier, HISTORIAN), None);
    let later = json(&scene, &format!("/api/v1/services?at={died}")).await;
    assert_eq!(row(&later, HISTORIAN).unwrap()["alive"], false);
    // So are the events: those until then, in the table of that time and in a page of them.
    let until = json(&scene, &format!("/api/v1/events?at={}", died - 1)).await;
    assert!(event(&until, "birth").is_some() && event(&until, "death").is_none(), "{until}");
    let page = json(&scene, &format!("/api/v1/events?at={}&limit=1", died - 1)).await;
    assert_eq!(page["rows"][0], until["rows"][0]);
    let (status, _, body) = scene.get("/api/v1/events?at=1", "").await;
    assert!(status == 404 && body.contains("the history begins at") && body.contains(r#""field":"at""#), "{body}");
    // What is past may be kept.
    let path = format!("/api/v1/services?at={born}");
    let (_, head, _) = scene.get(&path, "").await;
    assert!(head.contains("cache-control: private, max-age=86400, immutable"), "{head}");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let (status, _, body) = scene.get(&path, &format!("If-None-Match: {tag}\r\n")).await;
    assert_eq!((status, body.as_str()), (304, ""));
    // The events are a table like any other, too.
    let rows = scene.until("console", |rows| rows[0]["history"]["recording"] == true).await;
    assert_eq!(rows[0]["history"]["reason"], Value::Null);
    let of_none = json(&scene, "/api/v1/events?cluster=Paint_Shop").await;
    assert_eq!(of_none["rows"], Value::Array(vec![]));
    scene.stop().await;
}

#[tokio::test]
async fn while_the_console_was_away_there_is_a_gap_and_then_what_changed() {
    let mut scene = Scene::start().await;
    scene.recording().await;
    let historian = historian(&scene);
    events_until(&scene, "", |answer| event(answer, "birth").is_some()).await;
    scene.restart().await;
    historian.stop().await;
    scene.recording().await;
    // It was there before, and the new process has not received it.
    let answer = events_until(&scene, "", |answer| event(answer, "removed").is_some()).await;
    let gap = &answer["gaps"][0];
    assert_eq!(gap["reason"], "the console was stopped");
    let (since, until) = (gap["since"].as_u64().unwrap(), gap["until"].as_u64().unwrap());
    assert!(since <= until, "{gap}");
    assert_eq!(event(&answer, "removed").unwrap()["at"].as_u64(), Some(until));
    let then = json(&scene, &format!("/api/v1/services?at={since}")).await;
    assert_eq!(then["gaps"], serde_json::json!([[since, until]]));
    assert_eq!(row(&then, HISTORIAN).unwrap()["alive"], true, "what was known when the gap began");
    assert!(scene.state.path().join("history/history.sqlite").exists());
    scene.stop().await;
}

#[tokio::test]
async fn an_export_is_shown_again_without_a_broker() {
    let scene = Scene::start().await;
    scene.recording().await;
    let historian = historian(&scene);
    events_until(&scene, "", |answer| event(answer, "birth").is_some()).await;
    historian.stop().await;
    events_until(&scene, "", |answer| event(answer, "death").is_some()).await;
    let live = json(&scene, "/api/v1/services").await;
    let (status, head, body) = scene.get("/api/v1/export", "").await;
    assert!(status == 200 && head.contains("cache-control: no-store"), "{head}");
    scene.stop().await;
    // The body comes in chunks, whose lengths are lines of their own.
    let lines: String = body.lines().filter(|line| line.starts_with('{')).flat_map(|line| [line, "\n"]).collect();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("export.jsonl");
    std::fs::write(&file, lines).unwrap();
    let contents = console::adapters::replay::check(&file).await.unwrap();
    assert!(contents.is_whole && contents.header.organisation == "ACME", "{contents:?}");
    let again = Scene::replay(file).await;
    let shown = again.until("services", |rows| rows.iter().any(|row| row["alive"] == false)).await;
    assert_eq!(serde_json::json!(shown), live["rows"]);
    let own = again.until("console", |rows| rows[0]["reasons"][0].as_str().unwrap().contains("it has ended")).await;
    assert_eq!((&own[0]["online"], &own[0]["broker"]), (&true.into(), &"none: a replay".into()));
    // What it shows it has recorded, so that its past can be looked at; and nothing can be done.
    again.recording().await;
    let (status, _, body) = again.get("/api/v1/session", "").await;
    let session: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &session["can_sign_in"], &session["read_only"]),
        (200, &false.into(), &"a replay only shows what was".into())
    );
    again.stop().await;
}

#[tokio::test]
async fn a_broker_that_is_gone_is_a_gap() {
    let mut scene = Scene::start().await;
    scene.recording().await;
    scene.broker.kill();
    let answer =
        events_until(&scene, "", |answer| answer["gaps"][0]["until"].is_null() && answer["gaps"][0].is_object()).await;
    let reason = answer["gaps"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("no session with the broker: "), "{reason}");
    scene.broker.restart();
    scene.recording().await;
    events_until(&scene, "", |answer| answer["gaps"][0]["until"].is_u64()).await;
    scene.stop().await;
}

#[tokio::test]
async fn a_wrong_question_about_the_past_is_refused_with_its_field_and_the_rule() {
    let scene = Scene::start().await;
    scene.recording().await;
    for (path, status, field, rule) in [
        ("/api/v1/events?since=yesterday", 400, "since", "milliseconds"),
        ("/api/v1/events?limit=5000", 400, "limit", "from 1 to 1000"),
        ("/api/v1/clusters?at=x", 400, "at", "milliseconds"),
        ("/api/v1/clusters?at=99999999999999", 400, "at", "later than now"),
        ("/api/v1/nodes?at=1", 400, "at", "that of fleet, clusters"),
        ("/api/v1/clusters?at=1", 404, "at", "the history begins at"),
    ] {
        let (answered, _, body) = scene.get(path, "").await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((answered, body["field"].as_str()), (status, Some(field)), "{path}: {body}");
        assert!(body["error"].as_str().unwrap().contains(rule), "{path}: {body}");
    }
    scene.stop().await;
}

#[tokio::test]
async fn a_console_without_history_runs_and_says_so() {
    let scene = Scene::start_with(|config| config.history_days = 0).await;
    let (status, _, body) = scene.get("/api/v1/events", "").await;
    assert_eq!(status, 503);
    assert!(body.contains("history_days is 0"), "{body}");
    assert_eq!(scene.rows("console").await[0]["health"], "good");
    scene.stop().await;
    let scene = Scene::start_with(|config| {
        std::fs::write(config.state_dir.join("history"), "in the way").unwrap();
    })
    .await;
    let rows = scene.until("console", |rows| rows[0]["health"] == "attention").await;
    let reason = rows[0]["history"]["reason"].as_str().unwrap();
    assert!(reason.contains("the directory of the history cannot be used"), "{reason}");
    assert_eq!(scene.get("/api/v1/clusters?at=1", "").await.0, 503);
    assert_eq!(scene.get("/api/v1/clusters", "").await.0, 200);
    scene.stop().await;
}
