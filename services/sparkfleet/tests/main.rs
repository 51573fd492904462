//! The integration tests of this package, in one program.

mod embedded_broker;
mod health;
mod http_api;
mod shipped;
mod watch;
