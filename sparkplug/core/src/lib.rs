//! Eclipse Sparkplug 3.0 as pure state machines: no sockets, clock, randomness or async.
//!
//! | module | knows |
//! |---|---|
//! | [`name`] | group, edge node, device and host ids, validated when made |
//! | [`topic`] | topic text <-> message kind and ids; subscription filters |
//! | [`metric`] | metrics, their typed values and properties |
//! | [`payload`] | bytes <-> payloads; the only module that knows protobuf |
//! | [`seq`] | `seq` and `bdSeq`: the only wrapping arithmetic |
//! | [`state`] | the STATE message of a Host Application |
//! | [`session`] | what a machine asks of an MQTT session, and what it reports |
//! | [`edge_node`] | the Edge Node machine |
//! | [`host`] | the Host Application machine |
//! | [`typed`] | Rust structs as metrics: births, changes, and back |
//! | [`replication`] | desired states: where they come from, and what a receiver makes of one |
//!
//! A machine is fed with inputs and the time ([`Now`]), and drained with `poll_output`; `next_deadline`
//! says when it wants to be called again. Its driver owns the socket and the clock.
//!
//! What holds whatever the inputs are (each is a property test of the machines):
//!
//! - `seq` has no gap within a session, and every set of births begins with 0.
//! - No data leaves an Edge Node before all its births, none of a device that is not born, nothing after an NDEATH.
//! - The bdSeq of a will, of all NBIRTHs of its session and of its NDEATH are the same.
//! - Events of a Host Application speak of a node or device only between its birth and its death, and in the order of `seq`.
//! - After losses, repetitions and reorderings have ended, a replica equals its source.
//! - No input panics, waits busily, or makes memory grow without bound.
//!
//! ```
//! use std::time::Duration;
//!
//! use sparkplug::edge_node::{EdgeNode, EdgeNodeConfig, NodeEvent, NodeOutput, NodeUpdate};
//! use sparkplug::session::{TransportAction, TransportEvent};
//! use sparkplug::{EdgeNodeDescriptor, Metric, Now};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = Now::new(Duration::ZERO, 1_700_000_000_000);
//! let config = EdgeNodeConfig::new(EdgeNodeDescriptor::parse("Plant", "Press")?);
//! let mut node = EdgeNode::new(config, vec![Metric::new("Temperature", 20.5)], now)?;
//! let mut topics = Vec::new();
//! loop {
//!     match node.poll_output() {
//!         // A driver would do these over MQTT and report how it went.
//!         Some(NodeOutput::Transport(TransportAction::Connect(_))) => node.on_transport(TransportEvent::Connected, now),
//!         Some(NodeOutput::Transport(TransportAction::Subscribe(_))) => node.on_transport(TransportEvent::Subscribed, now),
//!         Some(NodeOutput::Transport(TransportAction::Publish(message))) => topics.push(message.topic),
//!         Some(NodeOutput::Event(NodeEvent::Born { .. })) => {
//!             node.update(NodeUpdate::Set { device: None, metrics: vec![Metric::new("Temperature", 21.0)] }, now)?;
//!         }
//!         Some(_) => {}
//!         None => break,
//!     }
//! }
//! assert_eq!(topics, ["spBv1.0/Plant/NBIRTH/Press", "spBv1.0/Plant/NDATA/Press"]);
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs, unreachable_pub)]

pub mod backoff;
pub mod edge_node;
mod heartbeat;
pub mod host;
pub mod metric;
pub mod name;
pub mod payload;
pub mod replication;
pub mod seq;
pub mod session;
pub mod state;
pub mod time;
pub mod topic;
pub mod typed;

pub use metric::{DataType, Metric, Properties, PropertyValue, Quality, Value};
pub use name::{DeviceId, EdgeNodeDescriptor, EdgeNodeId, GroupId, HostId, NameError};
pub use seq::{BdSeq, Seq};
pub use time::Now;
pub use topic::{MessageKind, Topic, TopicError};
pub use typed::TypedMetrics;

/// The page of the package, so that its code is run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Page;
