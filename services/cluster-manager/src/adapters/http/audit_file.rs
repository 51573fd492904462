//! The append-only record of every write: `<state_dir>/audit.jsonl`, one line of JSON each, mode 0600. It is opened for each record, so that whoever rotates it needs to tell nobody.

use std::io;
use std::path::{Path, PathBuf};

use tokio::fs::OpenOptions;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use super::desk::{Told, Waiting};
use crate::access::audit::AuditRecord;

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

async fn append(path: &Path, record: &AuditRecord) -> io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path).await?;
    file.write_all(&line).await?;
    file.flush().await?;
    file.sync_data().await
}
