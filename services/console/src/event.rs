//! All that can come in and all that can go out: the reader's index of this service.

use std::sync::Arc;
use std::time::Duration;

use access::audit::AuditRecord;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::host::{HostEvent, HostRequest};

use crate::api::{ApiRequest, ApiResponse};
use crate::kept::KeptSession;
use crate::notice::Notice;
use crate::published::{Published, TableName};
use crate::record::{Record, StoreEvent};
use crate::replay::Step;

/// What comes in.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The sessions are there; once.
    Started,
    /// A deadline of the state passed.
    DeadlineReached,
    /// What the last deadline led to was computed in that time.
    Computed {
        /// How long it took.
        cost: Duration,
    },
    /// From the session as Host Application: every Edge Node of the broker.
    Host(HostEvent),
    /// From the session as Edge Node `ORG-Central/Console`.
    Node(NodeEvent),
    /// From the history.
    History(StoreEvent),
    /// The Alertmanager has taken what it was sent, or why not.
    Notified(Result<(), String>),
    /// From an export that is replayed.
    Replayed(Step),
    /// A client reads a table.
    Read {
        /// Names the answer, [`Effect::Rows`].
        id: u64,
        /// Which.
        table: TableName,
    },
    /// A client asks something.
    ApiRequest(Box<ApiRequest>),
    /// A client follows these tables.
    Watch(Vec<TableName>),
    /// It does no more.
    Unwatch(Vec<TableName>),
}

/// What goes out. The console promises nothing that must survive it: what the history lacks is shown as a gap.
#[derive(Debug, Clone)]
pub enum Effect {
    /// To the own Edge Node.
    Node(NodeUpdate),
    /// To the own Host Application.
    Host(HostRequest),
    /// To who asked.
    ApiResponse(Box<ApiResponse>),
    /// To the record of writes.
    Keep(Box<AuditRecord>),
    /// To the file of sessions, before anything that comes after.
    KeepSessions(Vec<KeptSession>),
    /// To the Alertmanager; answered by [`Event::Notified`].
    Notify(Vec<Notice>),
    /// To the history.
    Record(Arc<Record>),
    /// A table as it is now, to who reads it.
    Rows {
        /// As in [`Event::Read`].
        id: u64,
        /// The table.
        table: Arc<Published>,
    },
    /// A table has changed, or a client looks at it for the first time.
    Publish(Arc<Published>),
    /// No client follows this table any more, and it is not one of [`TableName::FIXED`].
    Retire(TableName),
}
