//! Everything that can come in and everything that can go out: the index of this service.

use join_protocol::terms::RequestId;
use join_tickets::kubeadm::BootstrapToken;
pub use kubernetes_client::error::{ErrorClass, KubernetesError as StoreError};
use service_runtime::{Effects, Saved, Unsaved};
use sparkplug::Metric;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::host::{HostEvent, HostRequest};

use crate::document::{Document, Key, Store};

/// Everything that can come in.
#[derive(Debug)]
pub enum Event {
    /// About the documents in one kind of object.
    Documents(Store, Observation<Document>),
    /// About the names of the cluster's nodes.
    Nodes(Observation<String>),
    /// Answer to [`Effect::Read`].
    Read {
        /// Which.
        key: Key,
        /// The document, if there is one.
        result: Result<Option<Document>, StoreError>,
    },
    /// A transaction ended.
    Written {
        /// Which.
        transaction: u64,
        /// What was written: all of it, and only then there is something to execute; or what came before the first operation that failed.
        written: Vec<Written>,
        /// What follows, if everything was written.
        result: Result<Effects<Saved, Effect>, TransactionError>,
    },
    /// From the Host Application that listens to the quarantine group.
    Host(HostEvent),
    /// From the own Edge Node.
    Node(NodeEvent),
    /// `State::next_deadline` has come.
    DeadlineReached,
    /// The process is asked to end.
    Stop,
}

/// What a watch reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation<T> {
    /// All there are: replaces what was known.
    Listed(Vec<T>),
    /// One came or changed.
    Changed(T),
    /// One went; its last state.
    Gone(T),
    /// The watch is interrupted and is tried again; what is known may be old.
    Failed(StoreError),
}

/// A transaction stopped at an operation; those before it were done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {error}")]
pub struct TransactionError {
    /// What could not be done, for people.
    pub at: String,
    /// Its document, if it has one.
    pub key: Option<Key>,
    /// Why.
    pub error: StoreError,
}

/// What an operation left in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Which.
    pub key: Key,
    /// Its new version and text; None: it is gone.
    pub document: Option<(String, String)>,
}

/// A join token that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// The token; its Debug shows only the id.
    pub token: BootstrapToken,
    /// For which attempt.
    pub request: RequestId,
    /// Group that its bearer is in.
    pub group: &'static str,
    /// Now and how long it lives, s.
    pub times: (i64, i64),
}

/// Which version is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    /// This one.
    Known(String),
    /// The one that an earlier operation of the transaction on the same document left.
    Own,
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Make a document; a conflict if there is one.
    Create {
        /// Which.
        key: Key,
        /// Its text.
        text: String,
    },
    /// Replace a document; a conflict if it has another version.
    Replace {
        /// Which.
        key: Key,
        /// Its text.
        text: String,
        /// What is replaced.
        version: Version,
    },
    /// Delete a document; a conflict if it has another version, done if it is gone.
    Delete {
        /// Which.
        key: Key,
        /// What is deleted.
        version: String,
    },
    /// Make a join token valid; done if it exists, because what it is follows from the request.
    CreateToken(NewToken),
    /// Take a node out of the cluster; done if it is gone.
    DeleteNode {
        /// Its name.
        name: String,
    },
    /// Revoke a join token; done if it is gone.
    DeleteToken {
        /// Its id.
        id: String,
    },
}

/// Operations one after another, up to the first that fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Transaction {
    /// Names it in the answer.
    pub id: u64,
    /// What is done.
    pub operations: Vec<Operation>,
    /// What may only go out when everything is done.
    pub then: Effects<Unsaved, Effect>,
}

/// Everything that can go out.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Write to the store.
    Run(Transaction),
    /// Read one document.
    Read(Key),
    /// This replica speaks from here on: start the Edge Node with these metrics of its own, and listen to the quarantine group.
    BecomeLeader(Vec<Metric>),
    /// It speaks no longer: end both sessions.
    StepDown,
    /// Give this to the Edge Node. Only between [`Effect::BecomeLeader`] and [`Effect::StepDown`].
    Node(NodeUpdate),
    /// Ask of the Host Application. Only between the same.
    Host(HostRequest),
    /// The service works, or why not.
    Ready {
        /// Whether.
        ready: bool,
        /// For people.
        reason: String,
    },
}
