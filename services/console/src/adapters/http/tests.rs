//! The server over real sockets, with tables of the test's own in place of the state. The tests check how many streams there may be, how much waits for a slow client, and
//! what a client that comes again gets.

mod limited;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use fleet_view::deltas::Table;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use super::super::history::History;
use super::super::hub::Request;
use super::*;
use crate::published::Published;

/// Every wait of these tests ends here.
const LIMIT: Duration = Duration::from_secs(60);

const CLUSTERS: TableName = TableName::Clusters;

/// The server with tables of the test's own.
struct Scene {
    hub: Hub,
    address: SocketAddr,
    table: Arc<Published>,
    streams: Arc<Semaphore>,
    stop: Shutdown,
    serving: JoinHandle<io::Result<()>>,
}

fn row(key: &str, n: u64, bytes: usize) -> Value {
    json!({ "key": key, "n": n, "text": "x".repeat(bytes) })
}

impl Scene {
    /// With so many clusters of so many bytes each.
    async fn start(slow_max: Duration, count: usize, bytes: usize) -> Self {
        let config = Config::default();
        let settings = config.validate(1).unwrap();
        let (hub, mut requests) = Hub::new();
        let (clock, nowhere) = (Clock::new(), std::path::Path::new("/nonexistent"));
        let history = History::start(nowhere, None, clock).reader();
        let site = Site::new(&config, &settings, hub.clone(), history, clock).unwrap();
        let streams = Arc::clone(&site.streams);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), Shutdown::new());
        let serving = tokio::spawn(serve(listener, Site { slow_max, ..site }, None, stop.clone()));
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                if let Request::Read { table, answer } = request {
                    let _ = answer.send(Arc::new(Published::first(table, 1, Table::new())));
                }
            }
        });
        let keys = (0..count).map(|n| format!("{n:05}"));
        let rows = keys.map(|key| (key.clone(), row(&key, 0, bytes))).collect();
        let table = Arc::new(Published::first(CLUSTERS, 100, rows));
        hub.publish(Arc::clone(&table));
        Self { hub, address, table, streams, stop, serving }
    }

    /// One row changes.
    fn change(&mut self, n: u64, bytes: usize) {
        let mut rows = (*self.table.rows).clone();
        rows.insert("00000".to_owned(), row("00000", n, bytes));
        self.table = Arc::new(self.table.changed(self.table.rev + 1, rows).unwrap());
        self.hub.publish(Arc::clone(&self.table));
    }

    async fn ask(&self, mut stream: TcpStream, fields: &str) -> TcpStream {
        let request = format!("GET /api/v1/stream?tables=clusters HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn follow(&self, fields: &str) -> Follower {
        let stream = self.ask(TcpStream::connect(self.address).await.unwrap(), fields).await;
        Follower { lines: BufReader::new(stream), id: None, rows: BTreeMap::new() }
    }

    /// A client that reads nothing, whose system takes little for it.
    async fn follow_without_reading(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let stream = self.ask(socket.connect(self.address).await.unwrap(), "").await;
        tokio::time::timeout(LIMIT, stream.readable()).await.unwrap().unwrap();
        stream
    }

    async fn end(self) {
        self.stop.trigger();
        tokio::time::timeout(LIMIT, self.serving).await.unwrap().unwrap().unwrap();
    }
}

struct Follower {
    lines: BufReader<TcpStream>,
    id: Option<u64>,
    rows: BTreeMap<String, u64>,
}

impl Follower {
    /// Takes the next frame, and says whether it was full.
    async fn frame(&mut self) -> bool {
        let read = async {
            loop {
                let mut line = String::new();
                assert!(self.lines.read_line(&mut line).await.unwrap() > 0, "the stream ended");
                if let Some(id) = line.strip_prefix("id: ") {
                    self.id = Some(id.trim().parse().unwrap());
                }
                let Some(data) = line.strip_prefix("data: ") else { continue };
                let frame: Value = serde_json::from_str(data).unwrap();
                if frame["full"] == true {
                    self.rows.clear();
                }
                for row in frame["set"].as_array().unwrap() {
                    self.rows.insert(row["key"].as_str().unwrap().to_owned(), row["n"].as_u64().unwrap());
                }
                for key in frame["del"].as_array().unwrap() {
                    self.rows.remove(key.as_str().unwrap());
                }
                return frame["full"] == true;
            }
        };
        tokio::time::timeout(LIMIT, read).await.unwrap()
    }

    /// Reads until the row that changes has that value.
    async fn until(&mut self, n: u64) {
        while self.rows.get("00000") != Some(&n) {
            self.frame().await;
        }
    }
}

/// Runs a test of this module again in a process of its own, where no other test takes memory. True: this is that process.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "CONSOLE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", &format!("adapters::http::tests::{test}")]).env(ALONE, "1").output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// Bytes that this process has in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn clients_that_read_nothing_take_less_than_a_mebibyte_each_and_delay_no_other() {
    const SLOW: u64 = 100;
    const ROW_BYTES: usize = 8_000;
    if !is_alone("clients_that_read_nothing_take_less_than_a_mebibyte_each_and_delay_no_other") {
        return;
    }
    // No client is cut off before the memory is looked at.
    let mut scene = Scene::start(Duration::from_secs(600), 500, ROW_BYTES).await;
    let mut quick = scene.follow("").await;
    quick.until(0).await;
    let before = resident();
    let (mut slow, mut tables) = (Vec::new(), Vec::new());
    // Each comes to another state of the table, which is four megabytes.
    for n in 1..=SLOW {
        slow.push(scene.follow_without_reading().await);
        tables.push(Arc::downgrade(&scene.table.rows));
        scene.change(n, ROW_BYTES);
        quick.until(n).await;
    }
    let kept = tables.iter().filter(|table| table.upgrade().is_some()).count();
    assert_eq!(kept, 0, "a slow client keeps no table alive");
    let more = resident().saturating_sub(before);
    assert!(more < 1024 * 1024 * slow.len(), "{} KiB a client", more / 1024 / slow.len());
    // Streams whose clients are gone end, so that the server can.
    drop(slow);
    scene.end().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_cut_off_and_its_place_is_free_again() {
    let mut scene = Scene::start(Duration::from_secs(2), 2_000, 2_000).await;
    let mut quick = scene.follow("").await;
    let mut slow = scene.follow_without_reading().await;
    let mut n = 0;
    while scene.streams.available_permits() < STREAMS_MAX - 1 {
        n += 1;
        scene.change(n, 2_000);
        quick.until(n).await;
    }
    let mut rest = Vec::new();
    // What its system had taken for it is less than the table, and then the connection ends.
    let _ = tokio::time::timeout(LIMIT, slow.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.len() < 4_000_000, "{}", rest.len());
    scene.end().await;
}

#[tokio::test]
async fn two_hundred_streams_are_served_and_one_more_is_refused_until_one_ends() {
    let mut scene = Scene::start(stream::SLOW_MAX, 3, 10).await;
    let mut followers = Vec::new();
    for _ in 0..STREAMS_MAX {
        let mut follower = scene.follow("").await;
        assert!(follower.frame().await);
        followers.push(follower);
    }
    let mut answer = String::new();
    let mut refused = scene.ask(TcpStream::connect(scene.address).await.unwrap(), "Connection: close\r\n").await;
    refused.read_to_string(&mut answer).await.unwrap();
    let answer = answer.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 503 ") && answer.contains("\r\nretry-after: 10\r\n"), "{answer}");
    assert!(answer.contains("there are 200 streams already"), "{answer}");
    scene.change(7, 10);
    for follower in &mut followers {
        follower.until(7).await;
    }
    followers.pop();
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        let mut follower = scene.follow("").await;
        let mut line = String::new();
        follower.lines.read_line(&mut line).await.unwrap();
        if line.contains(" 200 ") {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{line}");
    }
    drop(followers);
    scene.end().await;
}

#[tokio::test]
async fn who_comes_again_gets_what_it_missed_or_the_whole_table() {
    let mut scene = Scene::start(stream::SLOW_MAX, 500, 2_000).await;
    let mut follower = scene.follow("").await;
    while follower.id.is_none() {
        follower.frame().await;
    }
    assert_eq!(follower.rows.len(), 500, "the id comes with the last part");
    let seen = follower.id.unwrap();
    for n in 1..=60 {
        scene.change(n, 10);
    }
    let last = |id: u64| format!("Last-Event-ID: {id}\r\n");
    let mut again = scene.follow(&last(seen)).await;
    assert!(!again.frame().await, "only what was missed");
    assert_eq!(again.rows, BTreeMap::from([("00000".to_owned(), 60)]));
    assert_eq!(again.id, Some(scene.table.rev));
    for n in 61..=200 {
        scene.change(n, 10);
    }
    for unknown in [seen, scene.table.rev + 1_000_000] {
        let mut stranger = scene.follow(&last(unknown)).await;
        assert!(stranger.frame().await, "{unknown}");
        stranger.until(200).await;
    }
    scene.end().await;
}

#[test]
fn names_of_tables_are_decoded_twice_and_split_in_between() {
    let query = RawQuery(Some("x=1&tables=clusters,metrics%3AG%2FA%252CB".to_owned()));
    let tables = parameter(&query, "tables").unwrap();
    assert_eq!(tables.split(',').map(percent_decoded).collect::<Vec<_>>(), ["clusters", "metrics:G/A,B"]);
    assert_eq!(percent_decoded("100%"), "100%");
    assert_eq!(percent_decoded("%zz%C3%A4"), "%zzä");
}

#[test]
fn gzip_is_sent_to_those_who_take_it() {
    let takes = |field: &str| {
        takes_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_str(field).unwrap())]))
    };
    for field in ["gzip", "br, GZIP", "gzip;q=0.5, br", "*", "deflate, * ; q=0.1"] {
        assert!(takes(field), "{field}");
    }
    for field in ["", "br", "gzip;q=0", "gzip;q=0, *", "identity", "xgzip", "gzip;x"] {
        assert!(!takes(field), "{field}");
    }
    assert!(!takes_gzip(&HeaderMap::new()));
}
