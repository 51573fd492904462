//! The public face of ConfigDB on Sparkplug: what it is born with, what it publishes, which commands it takes. Pure: no I/O, no clock, no randomness.
//!
//! Every object is a Device of the edge node `ORG-Central/ConfigDB`, its entries are String metrics named by the slugs of the applications. Writing is a DCMD to the
//! object's device ([`WriteRequest`]), answered by the data itself and then by `Request/Result` ([`RequestResult`]).
//!
//! | module | knows |
//! |---|---|
//! | [`names`] | every metric and property name |
//! | [`node`] | the metrics of the node itself |
//! | [`entry`] | entries and their history <-> metrics |
//! | [`command`] | write and replay requests <-> commands |
//! | [`result`] | the answer to a request |
//! | [`replica`] | a typed, ordered copy of ConfigDB that knows whether it is complete |
//! | [`writer`] | repeats a request until it is answered or its deadline ends it |
//! | [`dump`] | Factory+ dump files <-> requests and replicas |
//!
//! A reader feeds a [`ConfigReplica`] with the events of its Host Application, a writer feeds a [`Writer`] with the replica's changes.
#![warn(missing_docs, unreachable_pub)]

pub mod command;
pub mod dump;
pub mod entry;
pub mod names;
pub mod node;
pub mod replica;
pub mod result;
pub mod writer;

use configdb_schema::Organisation;
use configdb_schema::address::CONFIGDB_NODE;
use sparkplug::EdgeNodeDescriptor;

pub use command::{
    Command, CommandError, CommitRequest, MembershipChange, Mode, PartRequest, RegistrationChange, ReplayRequest,
    WriteRequest,
};
pub use dump::{Dump, DumpError, LoadOptions};
pub use entry::{Entry, EntryError, HistoryEntry};
pub use node::ConfigNode;
pub use replica::{Change, ConfigReplica, ObjectReplica};
pub use result::{Outcome, RequestResult};
pub use writer::{GaveUpReason, Writer, WriterConfig, WriterOutput};

/// The edge node that an organisation's ConfigDB is: `ORG-Central/ConfigDB`.
#[must_use]
pub fn configdb_node(organisation: &Organisation) -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse(&organisation.central_group(), CONFIGDB_NODE)
        .expect("an organisation's name holds only characters that are allowed in a group id")
}
