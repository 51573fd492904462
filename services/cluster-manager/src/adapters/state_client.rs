//! Which request waits for which answer of the state. A question whose client has gone away is answered all the same, and its write is recorded.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use access::audit::AuditRecord;
use service_runtime::record::RecordFile;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::git_users::{Credential, GitAccessError, GitOperation, GitOutcome, GitRequest, GitResponse};

/// Questions under way at the same time.
pub const QUESTIONS_MAX: usize = 64;

/// The answer to a question.
pub type Published = Result<GitOutcome, GitAccessError>;

/// A record, and who waits until it is kept.
#[derive(Debug)]
pub struct Entry {
    /// The record.
    pub record: AuditRecord,
    /// The answer, and the request that waits for it.
    pub answer: (Published, Waiting),
}

/// Keeps each record, then lets its answer go, until no sender is left.
pub async fn keep_records(mut file: RecordFile, mut entries: mpsc::Receiver<Entry>) {
    while let Some(Entry { record, answer: (reply, waiting) }) = entries.recv().await {
        file.keep(&record).await;
        waiting.send(reply);
    }
}

/// Brings questions to the state and answers back. Clones share one table of waiting requests.
#[derive(Debug, Clone)]
pub struct StateClient {
    questions: mpsc::Sender<GitRequest>,
    records: mpsc::Sender<Entry>,
    places: Arc<Semaphore>,
    waiting: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    asked: u64,
    waiting: BTreeMap<u64, Waiting>,
}

/// Who waits. The place is kept until the answer, also when the client has gone away.
#[derive(Debug)]
pub struct Waiting {
    sender: oneshot::Sender<Published>,
    _place: OwnedSemaphorePermit,
}

impl Waiting {
    /// Sends the answer; a client that has gone away does not get it.
    pub fn send(self, answer: Published) {
        let _ = self.sender.send(answer);
    }
}

impl StateClient {
    /// A client; `questions` leads to the loop, `records` to the file. Both need room for [`QUESTIONS_MAX`].
    #[must_use]
    pub fn new(questions: mpsc::Sender<GitRequest>, records: mpsc::Sender<Entry>) -> Self {
        Self { questions, records, places: Arc::new(Semaphore::new(QUESTIONS_MAX)), waiting: Arc::default() }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The refusal of the state, or that there are too many questions already.
    pub async fn ask(&self, from: IpAddr, credential: Credential, question: GitOperation) -> Published {
        let busy = || GitAccessError::NotAtPresent("too many requests are under way; try again".to_owned());
        let stopping = || GitAccessError::NotAtPresent("the cluster manager is stopping".to_owned());
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| busy())?;
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut table = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            table.asked += 1;
            let id = table.asked;
            table.waiting.insert(id, Waiting { sender, _place: place });
            id
        };
        if self.questions.try_send(GitRequest { id, from: from.to_string(), credential, question }).is_err() {
            self.take(id);
            return Err(stopping());
        }
        answer.await.map_err(|_| stopping())?
    }

    /// Brings an answer to the request that waits for it; what is to be recorded is recorded first.
    pub fn answer(&self, answer: GitResponse) {
        let GitResponse { id, reply, audit } = answer;
        let Some(waiting) = self.take(id) else { return };
        let Some(record) = audit else { return waiting.send(reply) };
        self.keep(Entry { record, answer: (reply, waiting) });
    }

    fn keep(&self, entry: Entry) {
        log_record(&entry.record);
        if let Err(error) = self.records.try_send(entry) {
            let (mpsc::error::TrySendError::Full(entry) | mpsc::error::TrySendError::Closed(entry)) = error;
            tracing::error!(target = entry.record.target, "the record of a write could not be kept in the file");
            metrics::counter!("sparkfleet_audit_failures_total").increment(1);
            let (reply, waiting) = entry.answer;
            waiting.send(reply);
        }
    }

    fn take(&self, id: u64) -> Option<Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).waiting.remove(&id)
    }
}

/// The record as a line of the log, and as a number.
fn log_record(record: &AuditRecord) {
    let AuditRecord { who, from, operation, cluster, target: what, result, .. } = record;
    let (operation, result) = (operation.as_str(), result.as_str());
    let cluster_id = cluster.map(tracing::field::display);
    tracing::info!(target: "audit", who, from, operation, cluster_id, what, result, "write");
    metrics::counter!("sparkfleet_http_writes_total", "operation" => operation, "result" => result).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use access::Principal;
    use uuid::Uuid;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn each_request_gets_the_answer_to_its_own_question_and_too_many_are_turned_away() {
        let (question_sender, mut questions) = mpsc::channel(QUESTIONS_MAX);
        let (records, _records) = mpsc::channel(QUESTIONS_MAX);
        let state_client = StateClient::new(question_sender, records);
        let ask = |state_client: StateClient| async move {
            let question = GitOperation::Repository { repository: Uuid::nil(), shared: true, push: false };
            state_client.ask(HOME, Credential::None, question).await
        };
        let asking: Vec<_> = (0..QUESTIONS_MAX).map(|_| tokio::spawn(ask(state_client.clone()))).collect();
        let mut ids = Vec::new();
        for _ in 0..QUESTIONS_MAX {
            ids.push(questions.recv().await.unwrap().id);
        }
        let refused = ask(state_client.clone()).await.unwrap_err();
        assert!(refused.to_string().contains("too many requests"), "{refused}");
        for id in ids {
            let who = Principal { name: id.to_string(), grants: Vec::new() };
            let reply = GitOutcome::Repository { who, pulled: std::collections::BTreeSet::new() };
            state_client.answer(GitResponse { id, reply: Ok(reply), audit: None });
        }
        let mut answers = std::collections::BTreeSet::new();
        for task in asking {
            let Ok(GitOutcome::Repository { who, .. }) = task.await.unwrap() else { panic!("answered") };
            assert!(answers.insert(who.name), "each asked its own question");
        }
        drop(questions);
        assert!(ask(state_client).await.unwrap_err().to_string().contains("stopping"));
    }
}
