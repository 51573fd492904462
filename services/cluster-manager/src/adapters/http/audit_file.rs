//! The append-only record of every write: `<state_dir>/audit.jsonl`, one line of JSON each, mode 0600, chained ([`cluster_manager_contract::audit_chain`]). It is opened for each record, so that whoever rotates it needs to tell nobody.
//! A line that a crash has cut was never answered for, and is taken away before the next.

use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};

use tokio::fs::OpenOptions;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::state_client::{Published, Waiting};
use crate::access::audit::AuditRecord;
use cluster_manager_contract::audit_chain::Chain;

/// Most records that are told at once.
pub const RECORDS_MAX: usize = 1000;

/// Most bytes of the file that are read for it: a record has some 300.
const READ_BYTES_MAX: u64 = 1 << 20;

/// A record, and who waits until it is kept.
#[derive(Debug)]
pub struct Entry {
    /// The record.
    pub record: AuditRecord,
    /// The answer, and who waits for it; None: nobody does.
    pub answer: Option<(Published, Waiting)>,
}

/// The file in a state directory.
#[must_use]
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("audit.jsonl")
}

/// Keeps each record, then lets its answer go, until nobody sends any more. A record that cannot be kept is told in the log; the write has happened.
pub async fn run(path: PathBuf, mut entries: mpsc::Receiver<Entry>) {
    let mut chain = None;
    while let Some(Entry { record, answer }) = entries.recv().await {
        if let Err(error) = append(&path, &mut chain, &record).await {
            tracing::error!(path = %path.display(), error = %error, "the record of a write could not be kept");
            metrics::counter!("sparkfleet_audit_failures_total").increment(1);
        }
        if let Some((reply, waiting)) = answer {
            waiting.tell(reply);
        }
    }
}

/// The newest records, the newest first: at most `limit` of them, and no more than the last MiB holds. Of a file that was rotated away nothing is told.
///
/// # Errors
/// The file cannot be read. That there is none yet is no error.
pub async fn newest(path: &Path, limit: usize) -> io::Result<Vec<serde_json::Value>> {
    let mut file = match OpenOptions::new().read(true).open(path).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let begin = file.metadata().await?.len().saturating_sub(READ_BYTES_MAX);
    file.seek(SeekFrom::Start(begin)).await?;
    let mut bytes = Vec::new();
    file.take(READ_BYTES_MAX).read_to_end(&mut bytes).await?;
    // A line that was cut is no record: the first may begin before the MiB, the last may be under way.
    let records = bytes.split(|byte| *byte == b'\n').rev().filter_map(|line| serde_json::from_slice(line).ok());
    Ok(records.filter(serde_json::Value::is_object).take(limit).collect())
}

/// `chain`: where the file's chain is; None: it is read. After a failure it is read again.
async fn append(path: &Path, chain: &mut Option<Chain>, record: &AuditRecord) -> io::Result<()> {
    let before = match chain.take() {
        Some(chain) => chain,
        None => resume(path).await?,
    };
    let serde_json::Value::Object(record) = serde_json::to_value(record)? else {
        return Err(io::Error::other("a record is an object"));
    };
    let mut line = before.line(record);
    let after = Chain::after(&line);
    line.push(b'\n');
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path).await?;
    file.write_all(&line).await?;
    file.flush().await?;
    file.sync_data().await?;
    *chain = Some(after);
    Ok(())
}

/// Where the chain of the file is. What comes after the last whole line is cut off.
async fn resume(path: &Path) -> io::Result<Chain> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Chain::begin()),
        Err(error) => return Err(error),
    };
    let length = file.metadata().await?.len();
    let begin = length.saturating_sub(READ_BYTES_MAX);
    file.seek(SeekFrom::Start(begin)).await?;
    let mut bytes = Vec::new();
    (&mut file).take(READ_BYTES_MAX).read_to_end(&mut bytes).await?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < bytes.len() {
        tracing::warn!(path = %path.display(), bytes = bytes.len() - whole, "a record of a write that a crash has cut is taken away");
        file.set_len(begin + whole as u64).await?;
        bytes.truncate(whole);
    }
    let last = bytes.strip_suffix(b"\n").and_then(|lines| lines.rsplit(|byte| *byte == b'\n').next());
    Ok(last.map_or_else(Chain::begin, Chain::after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Operation;
    use crate::access::audit::AuditResult;
    use cluster_manager_contract::audit_chain as chain;

    fn record(at: u64) -> AuditRecord {
        AuditRecord {
            at,
            who: "token:ada".to_owned(),
            from: "192.0.2.1".to_owned(),
            operation: Operation::PutSecret,
            cluster: None,
            target: "n/s/k".to_owned(),
            result: AuditResult::Done { commit: None },
        }
    }

    #[tokio::test]
    async fn the_chain_goes_on_over_restarts_a_line_that_was_cut_and_a_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        let mut chain = None;
        append(&path, &mut chain, &record(1)).await.unwrap();
        append(&path, &mut chain, &record(2)).await.unwrap();
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"at\":3,\"wh");
        std::fs::write(&path, text).unwrap();
        let mut chain = None;
        append(&path, &mut chain, &record(4)).await.unwrap();
        let first = chain::verify(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((first.records, first.end.number), (3, 3));
        std::fs::rename(&path, dir.path().join("audit.1")).unwrap();
        append(&path, &mut chain, &record(5)).await.unwrap();
        let second = chain::verify(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((second.begins_after, second.end.number), (first.end.head, 4));
    }

    #[tokio::test]
    async fn the_newest_records_come_first_and_a_line_that_was_cut_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        assert_eq!(newest(&path, 5).await.unwrap(), Vec::<serde_json::Value>::new());
        let line = |at: u64| format!("{{\"at\":{at},\"pad\":\"{}\"}}\n", "x".repeat(280));
        let mut text: String = (0..5000).map(line).collect();
        text.push_str("{\"at\":5000,\"pa");
        std::fs::write(&path, text).unwrap();
        let told = |limit| {
            let path = path.clone();
            async move { newest(&path, limit).await.unwrap().iter().map(|one| one["at"].as_u64().unwrap()).collect() }
        };
        let three: Vec<u64> = told(3).await;
        assert_eq!(three, [4999, 4998, 4997]);
        let all: Vec<u64> = told(RECORDS_MAX * 10).await;
        assert!(all.len() < 5000 && all.is_sorted_by(|a, b| *a == b + 1), "{} are the last MiB", all.len());
    }
}
