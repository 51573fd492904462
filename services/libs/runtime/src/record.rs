//! The append-only record of the writes that people asked for: `<state_dir>/audit.jsonl`, one line of JSON each, mode 0600, chained ([`chain`]). It is opened for each record, so that it can be rotated without a signal to the service.
//! A line that a crash has cut was never answered for, and is taken away before the next.

pub mod chain;

use std::fs::File;
use std::io::{self, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use tokio::fs::OpenOptions;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use chain::Chain;

/// Most records that are read at once.
pub const RECORDS_MAX: usize = 1000;

/// Most bytes of the file that are read for it: a record has some 300.
const READ_BYTES_MAX: u64 = 1 << 20;

/// Up to so many bytes are written on the thread that asks, if they need not be on the disk. To copy them takes less than to wake another thread, and an answer waits for it.
const SHORT_BYTES_MAX: usize = 16 << 10;

/// The file in a state directory.
#[must_use]
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("audit.jsonl")
}

/// The file, for the one task that writes it.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    /// Where the file's chain is; None: it is read. After a failure it is read again.
    chain: Option<Chain>,
    /// What was written to it may not be on the disk.
    unsynced: Option<Arc<File>>,
}

impl RecordFile {
    /// The file at that path, which need not exist.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self { path, chain: None, unsynced: None }
    }

    /// Keeps a record; it is on the disk when this returns. One that cannot be kept is logged as an error and counted.
    pub async fn keep(&mut self, record: &impl Serialize) {
        self.keep_all(std::slice::from_ref(record)).await;
    }

    /// Keeps records in their order; they are on the disk when this returns true. Otherwise some may be, which [`RecordFile::last`] shows, and that is logged as an error and counted.
    pub async fn keep_all(&mut self, records: &[impl Serialize]) -> bool {
        let kept = self.append(records, true).await;
        self.is_kept(kept)
    }

    /// As [`RecordFile::keep_all`], for records that can be made again: they are in the file, and on the disk after [`RecordFile::sync`].
    pub async fn write_all(&mut self, records: &[impl Serialize]) -> bool {
        let kept = self.append(records, false).await;
        self.is_kept(kept)
    }

    /// What was written is on the disk when this returns.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn sync(&mut self) -> io::Result<()> {
        if let Some(file) = self.unsynced.clone() {
            tokio::task::spawn_blocking(move || file.sync_data()).await.map_err(io::Error::other)??;
        }
        self.unsynced = None;
        Ok(())
    }

    fn is_kept(&self, kept: io::Result<()>) -> bool {
        if let Err(error) = &kept {
            tracing::error!(path = %self.path.display(), error = %error, "the record of a write could not be kept");
            metrics::counter!("sparkfleet_audit_failures_total").increment(1);
        }
        kept.is_ok()
    }

    /// The last record of the file; None: it has none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn last(&self) -> io::Result<Option<serde_json::Value>> {
        Ok(newest(&self.path, 1).await?.pop())
    }

    async fn append(&mut self, records: &[impl Serialize], syncs: bool) -> io::Result<()> {
        let mut chain = match self.chain.take() {
            Some(chain) => chain,
            None => resume(&self.path).await?,
        };
        let mut lines = Vec::new();
        for record in records {
            let serde_json::Value::Object(record) = serde_json::to_value(record)? else {
                return Err(io::Error::other("a record is an object"));
            };
            let line = chain.line(record);
            chain = Chain::after(&line);
            lines.extend(line);
            lines.push(b'\n');
        }
        let (path, before) = (self.path.clone(), self.unsynced.clone());
        let is_short = !syncs && lines.len() <= SHORT_BYTES_MAX;
        let written = move || write_lines(&path, &lines, before.as_deref(), syncs);
        let unsynced = match is_short {
            true => written()?,
            false => tokio::task::spawn_blocking(written).await.map_err(io::Error::other)??,
        };
        self.unsynced = unsynced.map(Arc::new);
        self.chain = Some(chain);
        Ok(())
    }
}

/// Appends lines, and gives the file if it is not on the disk yet. `before`: the file that was written to last and is not on the disk either.
fn write_lines(path: &Path, lines: &[u8], before: Option<&File>, syncs: bool) -> io::Result<Option<File>> {
    let mut file = File::options().append(true).create(true).mode(0o600).open(path)?;
    file.write_all(lines)?;
    // It may have been rotated away.
    if let Some(before) = before
        && before.metadata()?.ino() != file.metadata()?.ino()
    {
        before.sync_data()?;
    }
    if syncs {
        file.sync_data()?;
        return Ok(None);
    }
    Ok(Some(file))
}

/// The newest records, the newest first: at most `limit` of them, and no more than the last MiB holds. Those of a file that was rotated away are not among them.
///
/// # Errors
/// The file cannot be read. That there is none yet is not an error.
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
    // A line that was cut is not a record: the first may begin before the MiB, the last may be under way.
    let records = bytes.split(|byte| *byte == b'\n').rev().filter_map(|line| serde_json::from_slice(line).ok());
    Ok(records.filter(serde_json::Value::is_object).take(limit).collect())
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

    fn record(at: u64) -> serde_json::Value {
        serde_json::json!({ "at": at, "who": "token:ada" })
    }

    #[tokio::test]
    async fn the_chain_continues_over_restarts_a_line_that_was_cut_and_a_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        let mut file = RecordFile::new(path.clone());
        file.append(&[record(1)], true).await.unwrap();
        file.append(&[record(2)], true).await.unwrap();
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"at\":3,\"wh");
        std::fs::write(&path, text).unwrap();
        let mut file = RecordFile::new(path.clone());
        file.append(&[record(4)], true).await.unwrap();
        let first = chain::verify(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((first.records, first.end.number), (3, 3));
        std::fs::rename(&path, dir.path().join("audit.1")).unwrap();
        file.append(&[record(5)], true).await.unwrap();
        let second = chain::verify(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((second.begins_after, second.end.number), (first.end.head, 4));
    }

    #[tokio::test]
    async fn what_is_synced_later_is_in_the_file_at_once_whatever_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        let long: Vec<serde_json::Value> = (0..1000).map(record).collect();
        let mut file = RecordFile::new(path.clone());
        for records in [&long[..1], &long[..]] {
            assert!(file.write_all(records).await);
            assert_eq!(file.last().await.unwrap().unwrap()["at"], records[records.len() - 1]["at"]);
        }
        assert!(std::fs::metadata(&path).unwrap().len() > 2 * SHORT_BYTES_MAX as u64);
        assert_eq!(chain::verify(&std::fs::read(&path).unwrap()).unwrap().records, 1001);
        file.sync().await.unwrap();
        let mut nowhere = RecordFile::new(dir.path().to_path_buf());
        for records in [&long[..1], &long[..]] {
            assert!(!nowhere.write_all(records).await, "it names a directory");
        }
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
        let read = |limit| {
            let path = path.clone();
            async move { newest(&path, limit).await.unwrap().iter().map(|one| one["at"].as_u64().unwrap()).collect() }
        };
        let three: Vec<u64> = read(3).await;
        assert_eq!(three, [4999, 4998, 4997]);
        let all: Vec<u64> = read(RECORDS_MAX * 10).await;
        assert!(all.len() < 5000 && all.is_sorted_by(|a, b| *a == b + 1), "{} are the last MiB", all.len());
    }
}
