//! The public face of an edge cluster's Keys node on the wire, pure and typed.
//!
//! | module | knows |
//! |---|---|
//! | [`names`] | the node's id, its device ids, every metric name |
//! | [`node`] | the metrics of the node itself |
//! | [`account`] | what a resource wants of an account, as a Device, and the command that answers it |
//! | [`replica`] | a typed copy of one Keys node, kept by its consumers |
//!
//! How an account is asked for. A KerberosKey with an account is a Device; its metric [`names::account::REQUEST`] says what is wanted. The cluster manager writes the account, and answers
//! by DCMD [`names::account::ANSWER`] with the digest of the request: an account, or a reason. Keys takes the answer over and shows it in the Device; the sender repeats the command until it does.
//! An answer to another request than the present one is ignored. A Device that goes is an account that is not wanted any more. Only a complete replica shows that: a dead Keys still wants what it wanted.
//!
//! This package must not know Kubernetes, MQTT or the KDC. No secret is in any metric.
#![warn(missing_docs, unreachable_pub)]

pub mod account;
pub mod names;
pub mod node;
pub mod replica;

pub use account::{AccountDecision, AccountDevice, AccountError, AccountRequest, NodeAddress};
pub use node::KeysNode;
pub use replica::{KeysContract, KeysReplica};
