//! The SQLite store: what is committed is there after the process is gone, and what cannot be opened says why.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::Path;
use std::time::Duration;

use configdb::model::Limits;
use configdb::state::State;
use configdb::store::{MemoryStore, Retention, SqliteStore, Store, StoreError};
use configdb::{Effect, Event};
use configdb_contract::command::device_id;
use configdb_contract::{ReplayRequest, WriteRequest};
use configdb_schema::known::class;
use serde_json::json;
use sparkplug::Now;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use uuid::Uuid;

fn now(wall: u64) -> Now {
    Now::new(Duration::from_millis(wall), wall)
}

fn command(request: &WriteRequest) -> Event {
    let device = Some(device_id(request.object));
    Event::Node(NodeEvent::Command { device, metrics: request.to_metrics(), timestamp: None })
}

async fn started(store: &mut impl Store) -> State {
    let mut state = State::new(&store.load().await.unwrap(), Limits::default()).unwrap();
    state.on_event(Event::Start { timeline: 1 }, now(1));
    store.commit(&state.take_turn().commit).await.unwrap();
    state
}

fn file(directory: &tempfile::TempDir) -> std::path::PathBuf {
    directory.path().join("config #1.sqlite")
}

fn cluster(n: u128) -> WriteRequest {
    let request = WriteRequest::put(format!("r{n}"), Uuid::from_u128(n)).by("tester");
    let document = json!({"name": format!("Cluster_{n}"), "namespace": "edge"});
    request.create_object(class::EDGE_CLUSTER, None).entry("EdgeCluster", document)
}

#[tokio::test]
async fn what_was_committed_before_a_kill_is_loaded_published_and_answered_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&file(&directory)).await.unwrap();
    let mut state = started(&mut store).await;
    state.on_event(command(&cluster(1)), now(2));
    let turn = state.take_turn();
    store.commit(&turn.commit).await.unwrap();
    // Killed here: the effects are never executed.
    drop(turn.effects);
    drop(store);

    let mut store = SqliteStore::open(&file(&directory)).await.unwrap();
    let snapshot = store.load().await.unwrap();
    let mut again = State::new(&snapshot, Limits::default()).unwrap();
    assert_eq!(again.model().to_snapshot(), state.model().to_snapshot());
    again.on_event(Event::Start { timeline: 2 }, now(3));
    let turn = again.take_turn();
    assert!(turn.commit.is_empty());
    let device = device_id(Uuid::from_u128(1));
    let births = turn.effects.nothing_to_save().into_iter();
    let born = births.filter(|e| matches!(e, Effect::Node(NodeUpdate::DeviceBirth { device: d, .. }) if *d == device));
    assert_eq!(born.count(), 1);
    again.on_event(command(&cluster(1)), now(4));
    assert!(again.take_turn().commit.is_empty(), "the repeated request is answered from the record");
    assert_eq!(again.counters().repeated, 1);
}

/// Revisions of the history of an object.
async fn revisions(store: &mut impl Store, object: u128) -> Vec<u64> {
    let replay = ReplayRequest { limit: 1_000, ..ReplayRequest::new("h", Uuid::from_u128(object), 0) };
    let mut found: Vec<u64> = store.history(&replay).await.unwrap().iter().map(|entry| entry.revision).collect();
    found.dedup();
    found
}

/// Writes an object again and again, a second apart from the first, and prunes as often as there is something to be forgotten.
async fn pruned(store: &mut impl Store, writes: u64, keep: Retention, wall: u64) -> (Vec<u64>, u64) {
    let mut state = started(store).await;
    state.on_event(command(&cluster(1)), now(1_000));
    store.commit(&state.take_turn().commit).await.unwrap();
    for n in 0..writes {
        let document = json!({"name": format!("Cluster_{n}"), "namespace": "edge"});
        let request = WriteRequest::put(format!("w{n}"), Uuid::from_u128(1)).entry("EdgeCluster", document);
        state.on_event(command(&request), now(1_000 * (n + 2)));
        store.commit(&state.take_turn().commit).await.unwrap();
    }
    let before = revisions(store, 1).await;
    let mut turns = 0;
    while store.prune(&keep, wall).await.unwrap() > 0 {
        turns += 1;
    }
    let after = revisions(store, 1).await;
    assert!(before.ends_with(&after), "the oldest goes first: {before:?} {after:?}");
    (after, turns)
}

#[tokio::test]
async fn history_that_is_too_old_is_forgotten_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&file(&directory)).await.unwrap();
    let keep = Retention { age: Duration::from_secs(10), ..Retention::default() };
    // Write n is of second n + 2.
    let (kept, _) = pruned(&mut store, 40, keep, 42_000).await;
    let mut memory = MemoryStore::new(store.load().await.unwrap().identity);
    assert_eq!(kept.len(), 10);
    assert_eq!(pruned(&mut memory, 40, keep, 42_000).await.0.len(), 10);
    let loaded = store.load().await.unwrap();
    assert_eq!(loaded.revision, *kept.last().unwrap());
    assert!(
        loaded
            .entries
            .iter()
            .any(|(object, _, entry)| *object == Uuid::from_u128(1) && entry.json.contains("Cluster_39"))
    );
    // Again, nothing is left to be forgotten, also after a restart.
    drop(store);
    let mut store = SqliteStore::open(&file(&directory)).await.unwrap();
    assert_eq!(store.prune(&keep, 42_000).await.unwrap(), 0);
    assert_eq!(store.prune(&keep, 100_000).await.unwrap(), 10);
    assert!(revisions(&mut store, 1).await.is_empty());
}

#[tokio::test]
async fn history_that_is_too_much_is_forgotten_in_small_turns_until_it_fits() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&file(&directory)).await.unwrap();
    let keep = Retention { bytes: 30_000, ..Retention::default() };
    let (kept, turns) = pruned(&mut store, 700, keep, 1_000_000).await;
    assert!(turns > 1, "{turns}");
    // A line has some 300 bytes.
    assert!((60..200).contains(&kept.len()), "{}", kept.len());
    while store.prune(&Retention { bytes: 0, ..keep }, 1_000_000).await.unwrap() > 0 {}
    assert!(revisions(&mut store, 1).await.is_empty(), "the count of bytes is right to the end");
}

#[tokio::test]
async fn history_is_kept_with_time_writer_and_request_and_is_read_in_pages() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&file(&directory)).await.unwrap();
    let memory = MemoryStore::new(store.load().await.unwrap().identity);
    let mut state = started(&mut memory.clone()).await;
    started(&mut store).await;
    let object = Uuid::from_u128(1);
    let patches = (0..5).map(|i| {
        let patch = WriteRequest::patch(format!("p{i}"), object).by("tester");
        patch.entry("EdgeCluster", json!({"values": {"i": i}}))
    });
    let delete = WriteRequest::put("d", object).delete("EdgeCluster");
    for (i, request) in std::iter::once(cluster(1)).chain(patches).chain([delete]).enumerate() {
        state.on_event(command(&request), now(100 + i as u64));
        let commit = state.take_turn().commit;
        store.commit(&commit).await.unwrap();
        memory.commit_now(&commit);
    }
    let all = ReplayRequest::new("r", object, 0);
    let history = store.history(&all).await.unwrap();
    assert_eq!(history, memory.history_now(&all), "both stores hold the same");
    assert_eq!(history.len(), 2 + 1 + 5 + 1);
    let last = history.last().unwrap();
    assert_eq!((last.time, &*last.writer, &*last.request, &last.json, last.etag), (106, "unknown", "d", &None, None));
    let page = ReplayRequest {
        slug: Some("EdgeCluster".to_owned()),
        limit: 2,
        ..ReplayRequest::new("r", object, history[4].revision)
    };
    let page = store.history(&page).await.unwrap();
    assert_eq!(page, history[4..6]);
}

#[tokio::test]
async fn remembered_requests_are_bounded_in_the_file_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&file(&directory)).await.unwrap();
    started(&mut store).await;
    let limits = Limits { requests_max: 3, ..Limits::default() };
    let mut state = State::new(&store.load().await.unwrap(), limits).unwrap();
    for n in 1..=5 {
        state.on_event(command(&cluster(n)), now(2));
        store.commit(&state.take_turn().commit).await.unwrap();
    }
    let kept: Vec<String> = store.load().await.unwrap().requests.into_iter().map(|r| r.result.id).collect();
    assert_eq!(kept, ["r3", "r4", "r5"]);
}

#[tokio::test]
async fn a_second_process_is_refused_while_the_first_holds_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let first = SqliteStore::open(&file(&directory)).await.unwrap();
    let error = SqliteStore::open(&file(&directory)).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("another process holds it; stop that one first") && !text.contains('\n'), "{text}");
    first.close().await;
    SqliteStore::open(&file(&directory)).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_opened_says_what_to_do_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let check = async |path: &Path, hint: &str| {
        let error = SqliteStore::open(path).await.unwrap_err();
        assert!(matches!(error, StoreError::Open { .. }), "{error}");
        assert!(error.to_string().contains(hint) && error.to_string().lines().count() == 1, "{error}");
    };
    let damaged = directory.path().join("damaged.sqlite");
    std::fs::write(&damaged, vec![b'x'; 8192]).unwrap();
    check(&damaged, "it is damaged or no SQLite database").await;
    check(&directory.path().join("none/x.sqlite"), "check path and permissions").await;
    check(directory.path(), "check path and permissions").await;
}

#[tokio::test]
async fn a_copy_without_its_write_ahead_log_is_missed_and_complete_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&file(&directory)).await.unwrap();
    let mut state = started(&mut store).await;
    state.on_event(command(&cluster(1)), now(2));
    store.commit(&state.take_turn().commit).await.unwrap();
    let copy = directory.path().join("copy.sqlite");
    std::fs::copy(file(&directory), &copy).unwrap();
    for was_used in [false, true] {
        let error = SqliteStore::open_known(&copy, was_used).await.unwrap_err();
        assert!(matches!(error, StoreError::Lost { .. }), "{error}");
    }
    // Who then copies the log as well has everything.
    std::fs::copy(directory.path().join("config #1.sqlite-wal"), directory.path().join("copy.sqlite-wal")).unwrap();
    let snapshot = SqliteStore::open_known(&copy, true).await.unwrap().load().await.unwrap();
    assert_eq!(State::new(&snapshot, Limits::default()).unwrap().model().to_snapshot(), state.model().to_snapshot());
}

#[tokio::test]
async fn a_file_of_a_newer_program_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    SqliteStore::open(&file(&directory)).await.unwrap().close().await;
    let newer = async |version: &str| {
        use sqlx::Connection;
        sqlx::any::install_default_drivers();
        let url = format!("sqlite://{}", file(&directory).display().to_string().replace('#', "%23"));
        let mut connection = sqlx::AnyConnection::connect(&url).await.unwrap();
        let update = sqlx::query("UPDATE meta SET value = $1 WHERE key = 'schema_version'").bind(version.to_owned());
        update.execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    };
    newer("99").await;
    let error = SqliteStore::open(&file(&directory)).await.unwrap_err();
    assert!(matches!(error, StoreError::Version { found: 99, known: 2 }), "{error}");
    newer("1").await;
    SqliteStore::open(&file(&directory)).await.unwrap();
}

#[tokio::test]
async fn ten_thousand_objects_are_stored_loaded_and_fit_their_births() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = SqliteStore::open(&file(&directory)).await.unwrap();
    let mut state = started(&mut store).await;
    let before = state.model().object_count();
    for n in 1..=10_000 {
        state.on_event(command(&cluster(n)), now(2));
        if n % 500 == 0 {
            store.commit(&state.take_turn().commit).await.unwrap();
        }
    }
    drop(store);
    let mut store = SqliteStore::open(&file(&directory)).await.unwrap();
    let mut again = State::new(&store.load().await.unwrap(), Limits::default()).unwrap();
    assert_eq!(again.model().object_count(), before + 10_000);
    assert_eq!(again.model().to_snapshot(), state.model().to_snapshot());
    again.on_event(Event::Start { timeline: 3 }, now(3));
    let config = sparkplug::edge_node::EdgeNodeConfig::new(configdb_contract::configdb_node(
        &configdb_schema::Organisation::new("ACME").unwrap(),
    ));
    let mut node = sparkplug::edge_node::EdgeNode::new(config, again.node_metrics(), now(3)).unwrap();
    let mut births = 0;
    for effect in again.take_turn().effects.nothing_to_save() {
        let Effect::Node(update) = effect else { panic!("only births") };
        births += usize::from(matches!(update, NodeUpdate::DeviceBirth { .. }));
        node.update(update, now(3)).expect("every object fits a message");
    }
    assert_eq!(births, before + 10_000);
}
