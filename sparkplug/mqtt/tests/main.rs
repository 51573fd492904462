//! The integration tests of this package, in one program.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod edge_node;
mod examples;
mod host;
mod last_words;
mod mqtt5;
mod oversized;
mod several_servers;
mod stall;
mod store;
mod support;
mod tls;
mod websocket;
