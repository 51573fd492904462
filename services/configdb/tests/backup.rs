//! Backups of the SQLite store: one state of a store that is being written, and a restore that loses nothing of what it replaces.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use configdb::Event;
use configdb::model::{Limits, Model};
use configdb::state::State;
use configdb::store::backup::{self, BackupError, Restore, StoreInfo};
use configdb::store::{STORE_FILE, SqliteStore, Store, StoreError};
use configdb_contract::command::device_id;
use configdb_contract::{ReplayRequest, WriteRequest};
use configdb_schema::document::{EdgeClusterRecovery, RecoveryDecision};
use configdb_schema::known::class;
use serde_json::json;
use sparkplug::Now;
use sparkplug::edge_node::NodeEvent;
use tempfile::TempDir;
use uuid::Uuid;

fn now(wall: u64) -> Now {
    Now::new(Duration::from_millis(wall), wall)
}

struct Running {
    state: State,
    store: SqliteStore,
    clusters: u128,
}

impl Running {
    async fn start(directory: &Path) -> Self {
        let mut store = SqliteStore::open(&directory.join(STORE_FILE)).await.unwrap();
        let mut state = State::new(&store.load().await.unwrap(), Limits::default()).unwrap();
        state.on_event(Event::Start { timeline: 1 }, now(1));
        store.commit(&state.take_turn().commit).await.unwrap();
        Self { state, store, clusters: 0 }
    }

    async fn request(&mut self, request: WriteRequest, wall: u64) {
        let device = Some(device_id(request.object));
        let event = NodeEvent::Command { device, metrics: request.to_metrics(), timestamp: None };
        self.state.on_event(Event::Node(event), now(wall));
        self.store.commit(&self.state.take_turn().commit).await.unwrap();
    }

    /// One more cluster, which is one transaction.
    async fn write(&mut self) {
        self.clusters += 1;
        let n = self.clusters;
        let request = WriteRequest::put(format!("r{n}"), Uuid::from_u128(n)).by("tester");
        let document = json!({"name": format!("Cluster_{n}"), "namespace": "edge"});
        let request = request.create_object(class::EDGE_CLUSTER, None).entry("EdgeCluster", document);
        self.request(request, 1_000 + u64::try_from(n).unwrap()).await;
    }
}

fn directory() -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let state = root.path().join("state #1");
    std::fs::create_dir(&state).unwrap();
    (root, state)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_live_store_is_copied_with_its_identity() {
    let (root, state) = directory();
    let mut running = Running::start(&state).await;
    running.write().await;
    let identity = running.state.model().identity();
    let recovery = EdgeClusterRecovery { store: identity, epoch: 3, decision: RecoveryDecision::Adopt, accepted: None };
    let raise = WriteRequest::put("e", Uuid::from_u128(1)).document(&recovery).unwrap();
    running.request(raise, 2_000).await;
    let file = root.path().join("backup.sqlite");
    let info = backup::backup(&state, &file, 7_000).await.unwrap();
    let model = running.state.model();
    let expected = StoreInfo {
        store: identity,
        epoch: 3,
        revision: model.revision(),
        objects: model.object_count() as u64,
        written: Some(2_000),
        backed_up: Some(7_000),
        tokens: std::collections::BTreeMap::new(),
    };
    assert_eq!(info, expected);
    assert_eq!(backup::describe(&file).await.unwrap(), expected);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(names(root.path()), ["backup.sqlite", "state #1"], "one file, and nothing beside it");
    let error = backup::backup(&state, &file, 8_000).await.unwrap_err();
    assert!(matches!(error, BackupError::Exists { .. }), "{error}");
    // The store continues.
    running.write().await;
    assert_eq!(backup::describe(&file).await.unwrap(), expected);
    let live = backup::describe(&state.join(STORE_FILE)).await.unwrap();
    assert_eq!(
        live,
        StoreInfo { revision: expected.revision + 1, objects: expected.objects + 1, backed_up: None, ..live.clone() }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_backup_of_a_store_that_is_being_written_is_one_state_of_it() {
    let (root, state) = directory();
    let mut running = Running::start(&state).await;
    let start = running.state.model().revision();
    let writes = tokio::spawn(async move {
        for _ in 0..200 {
            running.write().await;
        }
        running
    });
    let mut taken = Vec::new();
    while !writes.is_finished() {
        let file = root.path().join(format!("backup-{}", taken.len()));
        taken.push((backup::backup(&state, &file, 1).await.unwrap(), file));
    }
    let running = writes.await.unwrap();
    assert_eq!(running.state.model().revision(), start + 200, "no write was refused for a backup");
    assert!(taken.len() > 1);
    for (info, file) in taken {
        let mut copy = SqliteStore::open(&file).await.unwrap();
        let snapshot = copy.load().await.unwrap();
        let model = Model::from_snapshot(&snapshot, Limits::default()).unwrap();
        let clusters = usize::try_from(info.revision - start).unwrap();
        assert_eq!((model.revision(), model.object_count() as u64), (info.revision, info.objects));
        assert_eq!((1..=200).filter(|n| model.live_object(Uuid::from_u128(*n)).is_some()).count(), clusters);
    }
}

#[tokio::test]
async fn a_restore_needs_a_stopped_configdb_and_keeps_what_it_replaces() {
    let (root, state) = directory();
    let mut running = Running::start(&state).await;
    running.write().await;
    let file = root.path().join("backup.sqlite");
    let backed_up = backup::backup(&state, &file, 7_000).await.unwrap();
    let before = running.state.model().to_snapshot();
    running.write().await;
    let after = running.state.model().to_snapshot();
    let error = Restore::prepare(&state, &file).await.unwrap_err().to_string();
    assert!(error.contains("another process holds it; stop that one first"), "{error}");
    // Killed: its last transactions are in the log.
    drop(running);

    let restore = Restore::prepare(&state, &file).await.unwrap();
    assert_eq!(restore.backup, backed_up);
    let present = restore.present.clone().unwrap().unwrap();
    assert_eq!((present.store, present.revision), (backed_up.store, backed_up.revision + 1));
    assert!(
        SqliteStore::open(&state.join(STORE_FILE)).await.is_err(),
        "no other process takes the store between question and answer"
    );
    let kept = restore.finish("then").unwrap().unwrap();
    assert_eq!(kept, state.join("configdb.sqlite.replaced-then"));

    let load = async |path: &Path| {
        let mut store = SqliteStore::open(path).await.unwrap();
        let model = Model::from_snapshot(&store.load().await.unwrap(), Limits::default()).unwrap();
        let history = store.history(&ReplayRequest::new("h", Uuid::from_u128(1), 0)).await.unwrap();
        store.close().await;
        (model.to_snapshot(), history.len())
    };
    assert!(load(&state.join(STORE_FILE)).await == (before, 3), "the store is that of the backup, with its history");
    assert!(load(&kept).await == (after, 3), "what was replaced is whole, with what was only in its log");
    let info = backup::describe(&state.join(STORE_FILE)).await.unwrap();
    assert_eq!(info, StoreInfo { backed_up: None, ..backed_up });
}

#[tokio::test]
async fn a_restore_names_the_tokens_that_were_revoked_after_the_backup() {
    const REVOKED: Uuid = Uuid::from_u128(0x70);
    const KEPT: Uuid = Uuid::from_u128(0x71);
    let (root, state) = directory();
    let mut running = Running::start(&state).await;
    for (object, name) in [(REVOKED, "shift"), (KEPT, "line")] {
        let token = json!({
            "name": name, "hash": "ab".repeat(32), "scope": "viewer",
            "issued": "2026-01-01T00:00:00Z", "expires": "2027-01-01T00:00:00Z", "by": "ada",
        });
        let request = WriteRequest::put(name, object).by("tester").create_object(class::DEVICE, None);
        running.request(request.entry("ApiToken", token), 1_000).await;
    }
    let file = root.path().join("backup.sqlite");
    let info = backup::backup(&state, &file, 7_000).await.unwrap();
    assert_eq!(info.tokens, [(REVOKED, "shift".to_owned()), (KEPT, "line".to_owned())].into());
    running.request(WriteRequest::put("revoke", REVOKED).by("tester").delete_object(), 2_000).await;
    drop(running);
    let restore = Restore::prepare(&state, &file).await.unwrap();
    assert_eq!(restore.tokens_that_return(), ["shift"]);
}

#[tokio::test]
async fn a_restore_into_an_empty_directory_replaces_nothing() {
    let (root, state) = directory();
    let mut running = Running::start(&state).await;
    running.write().await;
    let file = root.path().join("backup.sqlite");
    let info = backup::backup(&state, &file, 7_000).await.unwrap();
    let other = root.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let restore = Restore::prepare(&other, &file).await.unwrap();
    assert_eq!(restore.present, None);
    assert_eq!(restore.finish("then").unwrap(), None);
    let restored = backup::describe(&other.join(STORE_FILE)).await.unwrap();
    assert_eq!(restored, StoreInfo { backed_up: None, ..info });
}

#[tokio::test]
async fn a_file_that_is_not_a_backup_is_refused_and_nothing_changes() {
    let (root, state) = directory();
    let mut running = Running::start(&state).await;
    running.write().await;
    let good = root.path().join("good");
    backup::backup(&state, &good, 7_000).await.unwrap();
    // What a copy without its log is: the file of a store whose transactions are all in the log.
    let without_log = root.path().join("without-log");
    std::fs::copy(state.join(STORE_FILE), &without_log).unwrap();
    running.store.close().await;
    let untouched = (names(&state), std::fs::read(state.join(STORE_FILE)).unwrap());

    let text = root.path().join("text");
    std::fs::write(&text, "objects:\n".repeat(1_000)).unwrap();
    let torn = root.path().join("torn");
    std::fs::copy(&good, &torn).unwrap();
    let bytes = std::fs::metadata(&torn).unwrap().len();
    std::fs::File::options().write(true).open(&torn).unwrap().set_len(bytes / 2).unwrap();
    let newer = root.path().join("newer");
    std::fs::copy(&good, &newer).unwrap();
    set_version(&newer, "99").await;
    for (file, expected) in [
        (&text, "damaged or no SQLite database"),
        (&torn, "damaged"),
        (&without_log, "made without its configdb.sqlite-wal"),
        (&root.path().join("nowhere"), "there is no file"),
    ] {
        let error = Restore::prepare(&state, file).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected), "{}: {text}", file.display());
    }
    let error = Restore::prepare(&state, &newer).await.unwrap_err();
    assert!(matches!(error, BackupError::Store(StoreError::Version { found: 99, .. })), "{error}");
    let now = (names(&state), std::fs::read(state.join(STORE_FILE)).unwrap());
    assert_eq!(now, untouched);
}

async fn set_version(file: &Path, version: &str) {
    use sqlx::Connection as _;
    sqlx::any::install_default_drivers();
    let mut connection = sqlx::AnyConnection::connect(&format!("sqlite://{}", file.display())).await.unwrap();
    let update = sqlx::query("UPDATE meta SET value = $1 WHERE key = 'schema_version'").bind(version.to_owned());
    update.execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}
