//! The append-only record of every write: `<state_dir>/audit.jsonl`, one line of JSON each, mode 0600. It is opened for each record, so that whoever rotates it needs to tell nobody.

use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};

use tokio::fs::OpenOptions;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::desk::{Told, Waiting};
use crate::access::audit::AuditRecord;

/// Most records that are told at once.
pub const RECORDS_MAX: usize = 1000;

/// Most bytes of the file that are read for it: a record has some 300.
const READ_BYTES_MAX: u64 = 1 << 20;

/// A record, and who is answered when it is kept.
#[derive(Debug)]
pub struct Entry {
    /// The record.
    pub record: AuditRecord,
    /// The answer.
    pub reply: Told,
    /// Who waits for it.
    pub waiting: Waiting,
}

/// The file in a state directory.
#[must_use]
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("audit.jsonl")
}

/// Keeps each record, then lets its answer go, until nobody sends any more. A record that cannot be kept is told in the log; the write has happened.
pub async fn run(path: PathBuf, mut entries: mpsc::Receiver<Entry>) {
    while let Some(Entry { record, reply, waiting }) = entries.recv().await {
        if let Err(error) = append(&path, &record).await {
            tracing::error!(path = %path.display(), error = %error, "the record of a write could not be kept");
            metrics::counter!("sparkfleet_audit_failures_total").increment(1);
        }
        waiting.tell(reply);
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

async fn append(path: &Path, record: &AuditRecord) -> io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path).await?;
    file.write_all(&line).await?;
    file.flush().await?;
    file.sync_data().await
}

#[cfg(test)]
mod tests {
    use super::*;

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
