//! The history on disk: one task writes it, forgets what is too old, and tries again where it could not; readers have connections of their own.

mod reader;
mod store;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use service_runtime::state_dir::StateDir;
use sparkplug_mqtt::Clock;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub use reader::{EventPage, EventQuery, ExportBase, Past, ReadError, Reader};
pub use store::{HistoryError, Store};

use crate::record::{HistoryStatus, Record, Retention, StoreEvent};

/// A store that could not be opened or written is tried again after this time.
const RETRY: Duration = Duration::from_secs(10);

/// How often it is looked whether something is too old.
const UPKEEP: Duration = Duration::from_secs(60);

/// Between two steps of forgetting, so that a record is not kept waiting.
const STEP: Duration = Duration::from_millis(20);

/// Records on their way: the recorder sends one at a time, and a last one when the console stops.
const RECORDS: usize = 2;

/// Why nothing was received before the first record of a process.
const NOT_RUNNING: &str = "the console was not running";

/// The state's end of it.
#[derive(Debug)]
pub struct History {
    records: mpsc::Sender<Arc<Record>>,
    answers: Option<mpsc::Receiver<StoreEvent>>,
    reader: Reader,
    task: Option<JoinHandle<()>>,
}

impl History {
    /// Starts it below `state_dir`; None: the configuration wants none.
    #[must_use]
    pub fn start(state_dir: &Path, keep: Option<Retention>, clock: Clock) -> Self {
        Self::retrying(state_dir, keep, clock, RETRY)
    }

    fn retrying(state_dir: &Path, keep: Option<Retention>, clock: Clock, retry: Duration) -> Self {
        let (records, received) = mpsc::channel(RECORDS);
        let status = watch::Sender::new(if keep.is_some() { HistoryStatus::Opening } else { HistoryStatus::Off });
        let directory = state_dir.join("history");
        let reader = Reader::new(store::file(&directory), status.subscribe());
        let Some(keep) = keep else {
            return Self { records, answers: None, reader, task: None };
        };
        let (sender, answers) = mpsc::channel(RECORDS);
        let writer = Writer { directory, keep, clock, retry, records: received, answers: sender, status };
        Self { records, answers: Some(answers), reader, task: Some(tokio::spawn(writer.run())) }
    }

    /// For those who look at the past.
    #[must_use]
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// Stores a record; the answer says what became of it.
    pub fn record(&self, record: Arc<Record>) {
        if self.records.try_send(record).is_err() {
            tracing::warn!(waiting_max = self.records.max_capacity(), "a record of the history was not taken");
        }
    }

    /// What the store says next.
    pub async fn recv(&mut self) -> StoreEvent {
        let answer = match &mut self.answers {
            Some(answers) => answers.recv().await,
            None => None,
        };
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }

    /// Waits until what was sent is stored.
    pub async fn stop(self) {
        drop(self.records);
        // No task takes its answers any more.
        drop(self.answers);
        if let Some(task) = self.task {
            let _ = task.await;
        }
    }
}

struct Writer {
    directory: PathBuf,
    keep: Retention,
    clock: Clock,
    retry: Duration,
    records: mpsc::Receiver<Arc<Record>>,
    answers: mpsc::Sender<StoreEvent>,
    status: watch::Sender<HistoryStatus>,
}

impl Writer {
    async fn run(mut self) {
        let mut gap = NOT_RUNNING.to_owned();
        loop {
            let failed = match self.open(&gap).await {
                Ok(mut store) => {
                    let worked = self.work(&mut store).await;
                    store.close().await;
                    match worked {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            let reason = failed.to_string();
            if self.status.send_replace(HistoryStatus::Failed(reason.clone())) != HistoryStatus::Failed(reason.clone())
            {
                tracing::error!(error = %reason, directory = %self.directory.display(), "the past is not recorded");
            }
            metrics::gauge!("console_history_open").set(0);
            gap = format!("the history could not be written: {reason}");
            // Who is gone needs no answer; what is sent meanwhile is for a store that is not there.
            let _ = self.answers.send(StoreEvent::Failed { reason }).await;
            let again = tokio::time::sleep(self.retry);
            tokio::pin!(again);
            loop {
                tokio::select! {
                    () = &mut again => break,
                    record = self.records.recv() => if record.is_none() { return },
                }
            }
        }
    }

    async fn open(&self, gap: &str) -> Result<Store, HistoryError> {
        StateDir::from(&*self.directory).create().map_err(HistoryError::Directory)?;
        let opened = match Store::open(&self.directory, gap).await {
            Err(error) if error.is_damaged() => {
                let aside = store::set_aside(&self.directory).map_err(HistoryError::Directory)?;
                tracing::error!(error = %error, file = %aside.display(), "the history is damaged: it is set aside, and a new one begins");
                Store::open(&self.directory, gap).await
            }
            opened => opened,
        };
        let (store, known) = opened?;
        if matches!(*self.status.borrow(), HistoryStatus::Failed(_)) {
            tracing::info!(directory = %self.directory.display(), "the past is recorded again");
        }
        self.status.send_replace(HistoryStatus::Open);
        metrics::gauge!("console_history_open").set(1);
        let _ = self.answers.send(StoreEvent::Opened(Box::new(known))).await;
        Ok(store)
    }

    /// Ends without an error when the console does.
    async fn work(&mut self, store: &mut Store) -> Result<(), HistoryError> {
        let mut upkeep = tokio::time::Instant::now();
        loop {
            tokio::select! {
                biased;
                record = self.records.recv() => {
                    let Some(record) = record else { return Ok(()) };
                    let first = store.write(&record).await?;
                    metrics::counter!("console_history_transitions_total").increment(record.transitions.len() as u64);
                    let _ = self.answers.send(StoreEvent::Stored { first }).await;
                }
                () = tokio::time::sleep_until(upkeep) => {
                    let is_done = store.forget(&self.keep, self.clock.now().wall).await?;
                    upkeep = tokio::time::Instant::now() + if is_done { UPKEEP } else { STEP };
                    metrics::gauge!("console_history_bytes").set(store.bytes().await? as f64);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
