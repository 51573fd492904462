//! What a token for one cluster of two is answered over HTTP: every table, the stream, the past, events and the export.

use std::path::Path as FilePath;
use std::sync::Mutex;

use access::{Grant, Principal};
use cluster_manager_contract::api_token::{RANDOM_BYTES, text};
use configdb_schema::document::TokenScope;
use fleet_view::history::export::{Line, Replayed};
use fleet_view::history::{View, transitions};
use service_runtime::config::ExposeSecret as _;
use service_runtime::record::RecordFile;
use uuid::Uuid;

use super::*;
use crate::api::{ApiOperation, ApiOutcome};
use crate::record::{Record, Retention, StoreEvent as Stored};

const OWN: Uuid = Uuid::from_u128(0xA);
const OTHER: Uuid = Uuid::from_u128(0xB);

/// Rows of two clusters, of which the second one has this number; of the first one a host is ill at the third.
fn tables(n: u64) -> BTreeMap<View, Table> {
    let rows = |rows: Vec<(String, Value)>| rows.into_iter().collect::<Table>();
    let of = |cluster: &str, n: u64| json!({ "cluster": cluster, "health": "good", "name": "x", "n": n });
    let ill =
        json!({ "cluster": "Paint_Shop", "health": if n == 3 { "attention" } else { "good" }, "name": "x", "n": 0 });
    let cluster = |name: &str, n: u64| json!({ "name": name, "health": "good", "setup": "ready", "n": n, "reasons": ["like Press_Shop"] });
    let both =
        || rows(vec![("Paint_Shop/x".to_owned(), ill.clone()), ("Press_Shop/x".to_owned(), of("Press_Shop", n))]);
    let waves = json!({ "template": "agent", "blocked": null, "waves": [{ "wave": 1, "clusters": [{ "name": "Press_Shop", "state": "runs" }] }] });
    BTreeMap::from([
        (
            View::Clusters,
            rows(vec![(OWN.to_string(), cluster("Paint_Shop", 0)), (OTHER.to_string(), cluster("Press_Shop", n))]),
        ),
        (View::Hosts, both()),
        (View::Deployments, both()),
        (View::Alerts, both()),
        (View::Services, rows(vec![("ACME-Press_Shop/Sync".to_owned(), json!({ "n": n }))])),
        (View::Rollout, rows(vec![("agent".to_owned(), waves)])),
        (View::Fleet, rows(vec![("fleet".to_owned(), json!({ "alerts": 2, "n": n }))])),
    ])
}

fn table_at(name: &TableName, n: u64) -> Table {
    if let Some(view) = name.view() {
        return tables(n).remove(&view).unwrap_or_default();
    }
    if *name == TableName::Console {
        let row = json!({ "missing": ["Press_Shop"], "reasons": ["Press_Shop"], "online": true });
        return BTreeMap::from([("console".to_owned(), row)]);
    }
    let row = json!({ "cluster": "Press_Shop", "who": "token:ben", "missing": ["Press_Shop"], "online": true, "n": n });
    BTreeMap::from([(format!("ACME-Press_Shop/{n}"), row)])
}

struct Limited {
    address: SocketAddr,
    n: Arc<Mutex<u64>>,
    hub: Hub,
    stop: Shutdown,
    token: String,
    /// Who has the token at present.
    holder: Arc<Mutex<Option<Principal>>>,
}

fn holder(clusters: Option<&[Uuid]>) -> Principal {
    let clusters = clusters.map(|clusters| clusters.iter().copied().collect());
    Principal { name: "token:ada".to_owned(), grants: vec![Grant { scope: TokenScope::Viewer, clusters }] }
}

impl Limited {
    async fn start(history: Reader) -> Self {
        Self::start_in(FilePath::new("/nonexistent"), history).await
    }

    async fn start_in(state_dir: &FilePath, history: Reader) -> Self {
        let web = crate::config::WebConfig { private: true, ..Default::default() };
        let config = Config { web, state_dir: state_dir.into(), ..Config::default() };
        let settings = config.validate(1).unwrap();
        let (hub, mut requests) = Hub::new();
        let site = Site::new(&config, &settings, hub.clone(), history, Clock::new()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), Shutdown::new());
        tokio::spawn(serve(listener, site, None, stop.clone()));
        let (n, who) = (Arc::new(Mutex::new(1)), Arc::new(Mutex::new(Some(holder(Some(&[OWN]))))));
        let (at, known, publish) = (Arc::clone(&n), Arc::clone(&who), hub.clone());
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                let n = *at.lock().unwrap();
                match request {
                    Request::Read { table, answer } => {
                        let rows = table_at(&table, n);
                        let _ = answer.send(Arc::new(Published::first(table, n, rows)));
                    }
                    Request::Ask { question, answer, .. } => {
                        assert!(matches!(*question, ApiOperation::Who | ApiOperation::Watches), "{question:?}");
                        let _ = answer.send(Ok(ApiOutcome::Who(known.lock().unwrap().clone())));
                    }
                    Request::Watch(tables) => {
                        for table in tables {
                            let rows = table_at(&table, n);
                            publish.publish(Arc::new(Published::first(table, n, rows)));
                        }
                    }
                    Request::Unwatch(_) => {}
                }
            }
        });
        let token = text(&[7; RANDOM_BYTES]).expose_secret().to_owned();
        Self { address, n, hub, stop, token, holder: who }
    }

    async fn send(&self, path: &str, fields: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let token = &self.token;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n{fields}\r\n", self.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Status, entity tag, body.
    async fn get(&self, path: &str, fields: &str) -> (u16, Option<String>, String) {
        let mut answer = String::new();
        let mut stream = self.send(path, &format!("{fields}Connection: close\r\n")).await;
        tokio::time::timeout(LIMIT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).map(str::to_owned);
        (head.split(' ').nth(1).unwrap().parse().unwrap(), tag, body.to_owned())
    }
}

fn nothing_of_others(text: &str, what: &str) {
    assert!(!text.contains("Press_Shop") && !text.contains(&OTHER.to_string()), "{what}: {text}");
}

#[tokio::test]
async fn no_table_and_no_tag_shows_other_clusters() {
    let history = History::start(std::path::Path::new("/nonexistent"), None, Clock::new()).reader();
    let limited = Limited::start(history).await;
    // Those come from the history.
    for name in TableName::FIXED.into_iter().filter(|name| *name != TableName::Events) {
        let path = format!("/api/v1/{name}");
        *limited.n.lock().unwrap() = 1;
        let (status, tag, body) = limited.get(&path, "").await;
        assert_eq!(status, 200, "{name}: {body}");
        nothing_of_others(&body, &path);
        // Another cluster changes: neither the tag nor a revision says so.
        *limited.n.lock().unwrap() = 2;
        let (_, later, unchanged) = limited.get(&path, "").await;
        assert_eq!((&later, &unchanged), (&tag, &body), "{name}");
        let (status, ..) = limited.get(&path, &format!("If-None-Match: {}\r\n", tag.unwrap())).await;
        assert_eq!(status, 304, "{name}");
    }
    let (_, _, body) = limited.get("/api/v1/hosts", "").await;
    assert!(body.contains("Paint_Shop/x") || body.contains(r#""cluster":"Paint_Shop""#), "{body}");
    let (_, _, body) = limited.get("/api/v1/fleet", "").await;
    assert!(body.contains(r#""alerts":1"#), "{body}");
    for path in [format!("/api/v1/entries:{OTHER}"), "/api/v1/metrics:ACME-Press_Shop%2FSync".to_owned()] {
        let (status, _, body) = limited.get(&path, "").await;
        assert_eq!((status, body.contains(r#""rows":[]"#)), (200, true), "{path}: {body}");
    }
    // Who has a credential for all of them gets all.
    *limited.holder.lock().unwrap() = Some(holder(None));
    assert!(limited.get("/api/v1/hosts", "").await.2.contains("Press_Shop"));
    *limited.holder.lock().unwrap() = None;
    assert_eq!(limited.get("/api/v1/hosts", "").await.0, 401);
    limited.stop.trigger();
}

#[tokio::test]
async fn the_stream_is_of_the_same_rows_is_silent_on_others_and_ends_with_the_right_to_it() {
    let history = History::start(std::path::Path::new("/nonexistent"), None, Clock::new()).reader();
    let limited = Limited::start(history).await;
    let stream = limited.send("/api/v1/stream?tables=hosts,fleet,objects", "Last-Event-ID: 1\r\n").await;
    let mut lines = BufReader::new(stream).lines();
    let mut seen = Vec::new();
    let mut changed = false;
    let read = async {
        while let Ok(Some(line)) = lines.next_line().await {
            let Some(data) = line.strip_prefix("data: ") else { continue };
            nothing_of_others(data, "stream");
            let frame: Value = serde_json::from_str(data).unwrap();
            seen.push((
                frame["table"].as_str().unwrap().to_owned(),
                frame["full"] == true,
                frame["rev"].as_u64().unwrap(),
            ));
            if seen.len() == 3 && !changed {
                changed = true;
                // A row of another cluster changes, and then one of the own: of the first nothing comes.
                for (rev, own) in [(102, 0), (103, 9)] {
                    let mut rows = table_at(&TableName::Hosts, 2);
                    rows.get_mut("Paint_Shop/x").unwrap()["n"] = json!(own);
                    limited.hub.publish(Arc::new(Published::first(TableName::Hosts, rev, rows)));
                }
            } else if seen.len() == 4 {
                assert_eq!(frame["set"][0]["n"], 9, "{frame}");
                // The token is revoked: the stream ends.
                *limited.holder.lock().unwrap() = None;
            }
        }
    };
    tokio::time::timeout(LIMIT, read).await.unwrap();
    let tables: Vec<&str> = seen.iter().map(|(table, ..)| table.as_str()).collect();
    assert_eq!(tables, ["hosts", "fleet", "objects", "hosts"]);
    assert!(seen[..3].iter().all(|(_, full, _)| *full) && !seen[3].1, "{seen:?}");
    assert!(seen.iter().all(|(.., rev)| *rev <= 4), "revisions are those of this stream: {seen:?}");
    limited.stop.trigger();
}

/// A history of the three states, and the last of them.
async fn history_in(directory: &FilePath) -> (History, BTreeMap<View, Table>) {
    let keep = Retention { days: 30, bytes: 1 << 30 };
    let mut history = History::start(directory, Some(keep), Clock::new());
    assert!(matches!(history.recv().await, Stored::Opened(_)));
    let mut old = BTreeMap::<View, Table>::new();
    for n in 1..=3 {
        let new = tables(n);
        let found =
            new.iter().flat_map(|(view, table)| transitions(*view, old.get(view).unwrap_or(&Table::new()), table));
        let transitions = found.collect::<Vec<_>>();
        let snapshot = (n == 1).then(|| new.iter().map(|(view, table)| (*view, Arc::new(table.clone()))).collect());
        let record = Record { transitions, snapshot, ..Record::of_time(1_000 * n) };
        history.record(Arc::new(record));
        assert!(matches!(history.recv().await, Stored::Stored { .. }));
        old = new;
    }
    (history, old)
}

#[tokio::test]
async fn the_past_events_and_the_export_are_of_the_same_rows() {
    let directory = tempfile::tempdir().unwrap();
    let (history, old) = history_in(directory.path()).await;
    let limited = Limited::start(history.reader()).await;
    for view in View::ALL {
        let (status, tag, body) = limited.get(&format!("/api/v1/{view}?at=1500"), "").await;
        assert_eq!(status, 200, "{view}: {body}");
        nothing_of_others(&body, view.as_str());
        let (_, later, _) = limited.get(&format!("/api/v1/{view}?at=2500"), "").await;
        assert_eq!(tag, later, "{view}: nothing has changed for this user");
    }
    let (status, _, body) = limited.get("/api/v1/events", "").await;
    assert_eq!(status, 200, "{body}");
    nothing_of_others(&body, "events");
    assert!(body.contains("Paint_Shop"), "{body}");
    // Numbers would count the events of others: there are marks, by which the events are paged all the same.
    let (mut before, mut keys) = (String::new(), Vec::new());
    while keys.len() < 10 {
        let (_, _, body) = limited.get(&format!("/api/v1/events?limit=1{before}"), "").await;
        let page: Value = serde_json::from_str(body.lines().find(|line| line.starts_with('{')).unwrap()).unwrap();
        keys.extend(page["rows"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        before = format!("&before={next}");
    }
    let one_page = serde_json::from_str::<Value>(body.lines().find(|line| line.starts_with('{')).unwrap()).unwrap();
    let all: Vec<&str> = one_page["rows"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect();
    assert!(keys.len() > 1 && keys == all, "{keys:?} {all:?}");
    assert!(keys.iter().all(|key| key.len() == 32), "{keys:?}");
    assert_eq!(limited.get("/api/v1/events?before=3", "").await.0, 400);
    let (_, _, body) = limited.get("/api/v1/events?cluster=Press_Shop", "").await;
    assert!(body.contains(r#""rows":[]"#), "{body}");
    let (_, _, body) = limited.get("/api/v1/export", "").await;
    nothing_of_others(&body, "export");
    // The body comes in chunks, whose lengths are lines of their own.
    let lines = body.lines().filter(|line| line.starts_with('{')).skip(1);
    let mut replayed = Replayed::default();
    lines.for_each(|line| replayed.apply(&Line::parse(line.as_bytes()).unwrap()).unwrap());
    assert_eq!(replayed.table(View::Hosts).len(), 1);
    assert_eq!(replayed.table(View::Fleet)["fleet"]["alerts"], 1);
    // Who sees everything gets everything, and it leads to what is there.
    *limited.holder.lock().unwrap() = Some(holder(None));
    let (_, _, body) = limited.get("/api/v1/export?since=1500", "").await;
    let mut replayed = Replayed::default();
    let mut lines = body.lines().filter(|line| line.starts_with('{'));
    assert!(lines.next().unwrap().contains(r#""since":1500"#), "{body}");
    lines.for_each(|line| replayed.apply(&Line::parse(line.as_bytes()).unwrap()).unwrap());
    for view in View::ALL {
        assert_eq!(&*replayed.table(view), &old[&view], "{view}");
    }
    limited.stop.trigger();
    history.stop().await;
}

#[tokio::test]
async fn the_record_of_actions_is_for_administrators_of_all_clusters() {
    let directory = tempfile::tempdir().unwrap();
    let history = History::start(FilePath::new("/nonexistent"), None, Clock::new()).reader();
    let limited = Limited::start_in(directory.path(), history).await;
    let as_scope = |scope, clusters: Option<&[Uuid]>| {
        let mut known = holder(clusters);
        known.grants[0].scope = scope;
        *limited.holder.lock().unwrap() = Some(known);
    };
    for (scope, clusters) in
        [(TokenScope::Viewer, None), (TokenScope::Operator, None), (TokenScope::Administrator, Some(&[OWN][..]))]
    {
        as_scope(scope, clusters);
        let (status, _, body) = limited.get("/api/v1/audit", "").await;
        assert!(status == 403 && body.contains("read-audit"), "{scope:?}: {status} {body}");
    }
    as_scope(TokenScope::Administrator, None);
    assert_eq!(limited.get("/api/v1/audit", "").await.2, r#"{"rows":[]}"#, "there is no file yet");
    let mut file = RecordFile::new(service_runtime::record::path(directory.path()));
    for at in 1..=3 {
        file.keep(&json!({ "at": at, "who": "token:ada", "operation": "create-cluster" })).await;
    }
    let (status, _, body) = limited.get("/api/v1/audit?limit=2", "").await;
    let times: Vec<u64> = serde_json::from_str::<Value>(&body).unwrap()["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["at"].as_u64().unwrap())
        .collect();
    assert_eq!((status, times), (200, vec![3, 2]), "the newest first");
    for wrong in ["0", "1001", "x", ""] {
        assert_eq!(limited.get(&format!("/api/v1/audit?limit={wrong}"), "").await.0, 400, "{wrong}");
    }
    *limited.holder.lock().unwrap() = None;
    assert_eq!(limited.get("/api/v1/audit", "").await.0, 401);
}

/// Routes that are read without being a table: the session, the way to the identity provider, and what never ends or is read once.
const UNTAGGED: [&str; 5] =
    ["/api/v1/session", "/api/v1/session/oidc", "/api/v1/session/oidc/callback", "/api/v1/stream", "/api/v1/export"];

/// Addresses of a route of the description, with every table in place of the parameter.
fn addresses(route: &str) -> Vec<String> {
    let of_one = ["entries", "history"].map(|word| format!("{word}:{OWN}"));
    match route {
        "/api/v1/{table}/{node}" => vec!["/api/v1/metrics:ACME-Paint_Shop/Sync".to_owned()],
        "/api/v1/{table}" => {
            let fixed = TableName::FIXED.iter().map(TableName::to_string);
            fixed.chain(of_one).map(|name| format!("/api/v1/{name}")).collect()
        }
        other => vec![other.to_owned()],
    }
}

#[tokio::test]
async fn every_read_of_the_description_has_a_tag_and_is_not_sent_twice() {
    let directory = tempfile::tempdir().unwrap();
    let (history, _) = history_in(directory.path()).await;
    let limited = Limited::start_in(directory.path(), history.reader()).await;
    RecordFile::new(service_runtime::record::path(directory.path()))
        .keep(&json!({ "at": 1, "who": "token:ada" }))
        .await;
    let mut all = holder(None);
    all.grants[0].scope = TokenScope::Administrator;
    let description = super::openapi::description();
    let reads = description["paths"].as_object().unwrap().iter().filter(|(_, item)| item.get("get").is_some());
    let (mut tried, mut untagged) = (0, Vec::new());
    for (route, item) in reads {
        if item["get"]["responses"].get("304").is_none() {
            untagged.push(route.as_str());
            continue;
        }
        for path in addresses(route) {
            // Those who see everything and those who see one cluster get tags of their own.
            for principal in [all.clone(), holder(Some(&[OWN]))] {
                if path == "/api/v1/audit" && principal != all {
                    continue;
                }
                *limited.holder.lock().unwrap() = Some(principal);
                let (status, tag, body) = limited.get(&path, "").await;
                assert_eq!(status, 200, "{path}: {body}");
                let tag = tag.unwrap_or_else(|| panic!("{path} has no ETag"));
                let (status, again, body) = limited.get(&path, &format!("If-None-Match: {tag}\r\n")).await;
                assert_eq!((status, again.as_ref(), body.as_str()), (304, Some(&tag), ""), "{path}");
                let (status, ..) = limited.get(&path, "If-None-Match: \"another\"\r\n").await;
                assert_eq!(status, 200, "{path}");
                tried += 1;
            }
        }
    }
    assert_eq!(untagged.iter().copied().collect::<std::collections::BTreeSet<_>>(), UNTAGGED.into());
    assert!(tried > 2 * TableName::FIXED.len(), "{tried}");
    // A table that changes has another tag.
    *limited.holder.lock().unwrap() = Some(all);
    let tag = async |n: u64| {
        *limited.n.lock().unwrap() = n;
        limited.get("/api/v1/metrics:ACME-Paint_Shop/Sync", "").await.1
    };
    assert_ne!(tag(1).await, tag(2).await);
    limited.stop.trigger();
    history.stop().await;
}
