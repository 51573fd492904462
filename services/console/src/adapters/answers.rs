//! Who waits for which answer of the state. What is to be recorded is on the disk before it is answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::audit::AuditRecord;
use service_runtime::record::RecordFile;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::hub::Outcome;
use crate::api::{ApiOperation, ApiRequest, ApiResponse, Credential};
use crate::published::Published;

/// Records that wait for the disk.
const RECORDS_MAX: usize = 1_024;

/// A record, and who waits until it is kept.
#[derive(Debug)]
struct Entry {
    record: AuditRecord,
    answer: Option<(oneshot::Sender<Outcome>, Outcome)>,
}

/// See the module.
#[derive(Debug)]
pub struct Answers {
    asked: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Outcome>>,
    reading: BTreeMap<u64, oneshot::Sender<Arc<Published>>>,
    records: mpsc::Sender<Entry>,
    keeper: JoinHandle<()>,
}

impl Answers {
    /// Empty. `file`: the record of writes.
    #[must_use]
    pub fn new(mut file: RecordFile) -> Self {
        let (records, mut entries) = mpsc::channel::<Entry>(RECORDS_MAX);
        let keeper = tokio::spawn(async move {
            while let Some(Entry { record, answer }) = entries.recv().await {
                file.keep(&record).await;
                if let Some((waiting, outcome)) = answer {
                    // Who does not wait any more needs no answer.
                    let _ = waiting.send(outcome);
                }
            }
        });
        Self { asked: 0, waiting: BTreeMap::new(), reading: BTreeMap::new(), records, keeper }
    }

    /// A question for the state, whose answer goes to `answer`.
    pub fn ask(
        &mut self,
        from: String,
        credential: Credential,
        question: ApiOperation,
        answer: oneshot::Sender<Outcome>,
    ) -> ApiRequest {
        self.asked += 1;
        self.waiting.insert(self.asked, answer);
        ApiRequest { id: self.asked, from, credential, question }
    }

    /// Names the answer to who reads a table.
    pub fn read(&mut self, answer: oneshot::Sender<Arc<Published>>) -> u64 {
        self.asked += 1;
        self.reading.insert(self.asked, answer);
        self.asked
    }

    /// Brings a table to who reads it.
    pub fn rows(&mut self, id: u64, table: Arc<Published>) {
        if let Some(reading) = self.reading.remove(&id) {
            // Who does not wait any more needs no answer.
            let _ = reading.send(table);
        }
    }

    /// Brings an answer to who waits for it, after its record.
    pub fn answer(&mut self, answer: ApiResponse) {
        let ApiResponse { id, reply, audit } = answer;
        let waiting = self.waiting.remove(&id);
        match (audit, waiting) {
            (Some(record), waiting) => self.send(Entry { record, answer: waiting.map(|waiting| (waiting, reply)) }),
            (None, Some(waiting)) => drop(waiting.send(reply)),
            (None, None) => {}
        }
    }

    /// Records what no client waits for.
    pub fn keep(&self, record: AuditRecord) {
        self.send(Entry { record, answer: None });
    }

    fn send(&self, entry: Entry) {
        let AuditRecord { who, from, operation, cluster, target: what, result, .. } = &entry.record;
        let (operation, result) = (operation.as_str(), result.as_str());
        let cluster_id = cluster.map(tracing::field::display);
        tracing::info!(target: "audit", who, from, operation, cluster_id, what, result, "write");
        metrics::counter!("console_writes_total", "operation" => operation, "result" => result).increment(1);
        if let Err(error) = self.records.try_send(entry) {
            let (mpsc::error::TrySendError::Full(entry) | mpsc::error::TrySendError::Closed(entry)) = error;
            tracing::error!(what = entry.record.target, "the record of a write could not be kept in the file");
            metrics::counter!("sparkfleet_audit_failures_total").increment(1);
            if let Some((waiting, outcome)) = entry.answer {
                let _ = waiting.send(outcome);
            }
        }
    }

    /// Ends when every record is kept.
    pub async fn stop(self) {
        drop(self.records);
        let _ = self.keeper.await;
    }
}
