//! A model of the protocol of desired states, checked by trying everything.
//!
//! What is real: the judgement of origins and the timelines (`sparkplug::replication`), and edge sync's keeper of the accepted index with its record. The index on the wire and
//! the cluster manager's plan are real, too. What is modelled: ConfigDB's [`store`], an operator, disks, crashes, and a channel that loses, repeats and reorders.
//!
//! Safety is checked in every state that can be reached. The fair continuation of every such state (`settle.rs`) shows that edge and store come to agree, or that the edge
//! holds for a reason and says so. Each [`fault`] that is seeded must be found.
//!
//! `make prove` runs the long one; `cargo run -p model -- --help` says what can be chosen.

pub mod edge;
pub mod fault;
pub mod manager;
pub mod protocol;
mod settle;
pub mod store;
pub mod system;
