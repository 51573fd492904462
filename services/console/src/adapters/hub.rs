//! Between the state's loop and the clients of HTTP: requests one way, published tables the other.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::{mpsc, oneshot, watch};

use crate::api::{ApiError, ApiOperation, ApiOutcome, Credential};
use crate::published::{Published, TableName};

/// The answer to a question.
pub type Outcome = Result<ApiOutcome, ApiError>;

/// What clients ask of the state.
#[derive(Debug)]
pub enum Request {
    /// A table as it is now.
    Read {
        /// Which.
        table: TableName,
        /// Where to.
        answer: oneshot::Sender<Arc<Published>>,
    },
    /// A client asks for more than a table.
    Ask {
        /// The address.
        from: String,
        /// What is shown.
        credential: Credential,
        /// What is asked.
        question: Box<ApiOperation>,
        /// Where to.
        answer: oneshot::Sender<Outcome>,
    },
    /// A client follows these.
    Watch(Vec<TableName>),
    /// And does no more.
    Unwatch(Vec<TableName>),
}

/// A cheap handle; clones are the same hub. What waits in it is bounded by the number of clients.
#[derive(Debug, Clone)]
pub struct Hub {
    tables: Arc<RwLock<BTreeMap<TableName, Arc<Published>>>>,
    changes: watch::Sender<u64>,
    requests: mpsc::UnboundedSender<Request>,
}

/// The console is stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the console is stopping")]
pub struct Stopping;

impl Hub {
    /// A hub and the state's end of it.
    #[must_use]
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Request>) {
        let (requests, received) = mpsc::unbounded_channel();
        (Self { tables: Arc::default(), changes: watch::Sender::new(0), requests }, received)
    }

    /// A table has changed.
    pub fn publish(&self, table: Arc<Published>) {
        let rev = table.rev;
        self.tables.write().unwrap_or_else(PoisonError::into_inner).insert(table.name.clone(), table);
        self.changes.send_replace(rev);
    }

    /// No client follows a table any more that is not there always.
    pub fn retire(&self, table: &TableName) {
        self.tables.write().unwrap_or_else(PoisonError::into_inner).remove(table);
    }

    /// These tables, all at the same moment; None for those that were not published yet.
    #[must_use]
    pub fn tables(&self, names: &[TableName]) -> Vec<Option<Arc<Published>>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        names.iter().map(|name| tables.get(name).cloned()).collect()
    }

    /// Changes whenever a table does.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// A table as it is now.
    ///
    /// # Errors
    /// [`Stopping`]
    pub async fn read(&self, table: TableName) -> Result<Arc<Published>, Stopping> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request::Read { table, answer }).map_err(|_| Stopping)?;
        answered.await.map_err(|_| Stopping)
    }

    /// The answer to a question.
    ///
    /// # Errors
    /// The state's refusal, or that the console is stopping.
    pub async fn ask(&self, from: String, credential: Credential, question: ApiOperation) -> Outcome {
        let stopping = || ApiError::NotNow(Stopping.to_string());
        let (answer, answered) = oneshot::channel();
        let request = Request::Ask { from, credential, question: Box::new(question), answer };
        self.requests.send(request).map_err(|_| stopping())?;
        answered.await.map_err(|_| stopping())?
    }

    /// Follows tables until the guard is dropped; when it returns, they are published.
    ///
    /// # Errors
    /// [`Stopping`]
    pub async fn watch(&self, tables: Vec<TableName>) -> Result<Watching, Stopping> {
        self.requests.send(Request::Watch(tables.clone())).map_err(|_| Stopping)?;
        let watching = Watching { hub: self.clone(), tables };
        // The loop takes requests in order, and publishes in between.
        self.read(TableName::Console).await?;
        Ok(watching)
    }
}

/// A client follows tables.
#[derive(Debug)]
pub struct Watching {
    hub: Hub,
    tables: Vec<TableName>,
}

impl Watching {
    /// Which.
    #[must_use]
    pub fn tables(&self) -> &[TableName] {
        &self.tables
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // The loop that is gone has nothing to forget.
        let _ = self.hub.requests.send(Request::Unwatch(std::mem::take(&mut self.tables)));
    }
}
