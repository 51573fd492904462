//! The integration tests of this package, in one program.

mod embedded_broker;
mod health;
mod http_api;
#[path = "../../../sparkplug/mqtt/tests/support/replication.rs"]
mod replication;
mod shipped;
mod watch;
