//! A store on disk, of a process that is killed.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use sparkplug::Value;

use crate::mosquitto::Mosquitto;
use crate::soon;
use crate::tap::{Seen, Tap};

const NODE: &str = env!("CARGO_BIN_EXE_tck-node");

/// Values of the counter and timestamps; all of the message must be historical.
fn history(seen: &Seen) -> (u64, u64) {
    let payload = seen.sparkplug();
    let [metric] = &payload.metrics[..] else { panic!("{payload:?}") };
    assert!(metric.is_historical, "{payload:?}");
    (metric.value.as_ref().and_then(Value::as_u64).unwrap(), metric.timestamp.unwrap())
}

/// Whole entries in the segments of the directory.
fn entries(directory: &Path) -> usize {
    let Ok(files) = fs::read_dir(directory) else { return 0 };
    let count = |bytes: Vec<u8>| {
        let mut rest = &bytes[..];
        let mut entries = 0;
        while let Some(length) = rest.get(..4) {
            let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
            let Some(next) = rest.get(8 + length..) else { break };
            (rest, entries) = (next, entries + 1);
        }
        entries
    };
    files.map(|file| count(fs::read(file.unwrap().path()).unwrap())).sum()
}

/// The node is killed with SIGKILL while it keeps values; a torn end is added for good measure.
#[tokio::test]
async fn a_store_on_disk_survives_a_kill_of_the_process() {
    let mut server = Mosquitto::start();
    let directory = tempfile::tempdir().unwrap();
    let url = server.url();
    let start = || {
        let at = directory.path().display().to_string();
        Command::new(NODE)
            .args(["--server", &url, "--group", "ACME-Plant", "--node", "Sync", "--keep-alive", "1"])
            .args(["--metric", "Counter UInt64 0", "--store", "disk", "--store-dir", &at, "--state-dir", &at])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut tap = Tap::start(server.address().port()).await;
    let mut process = start();
    tap.expect("NBIRTH").await;
    server.kill();
    let mut input = process.stdin.take().unwrap();
    for value in 1..=20 {
        std::io::Write::write_all(&mut input, format!("set Counter UInt64 {value}\n").as_bytes()).unwrap();
    }
    let store = directory.path().join("ACME-Plant.Sync.store");
    soon("the records are on disk", async {
        while entries(&store) < 20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    // SIGKILL.
    process.kill().unwrap();
    process.wait().unwrap();
    let segment = fs::read_dir(&store).unwrap().next().unwrap().unwrap().path();
    let torn = [fs::read(&segment).unwrap(), vec![40, 0, 0, 0, 1, 2, 3]].concat();
    fs::write(&segment, torn).unwrap();

    server.restart();
    let mut tap = Tap::start(server.address().port()).await;
    let mut process = start();
    tap.until("NBIRTH").await;
    let mut values = Vec::new();
    while values.len() < 20 {
        values.push(history(&tap.expect("NDATA").await).0);
    }
    assert_eq!(values, (1..=20).collect::<Vec<_>>());
    // It arrived, so it is forgotten on disk as well.
    soon("the store is emptied", async {
        while fs::read_dir(&store).unwrap().count() > 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    process.kill().unwrap();
    process.wait().unwrap();
}
