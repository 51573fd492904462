//! The integration tests of this package, in one program.

mod backup;
mod reload;
mod service;
mod store;
mod support;
