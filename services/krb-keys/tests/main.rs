//! The integration tests of this package, in one program.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod crd;
#[cfg(feature = "kerberos")]
mod service;
#[cfg(feature = "kerberos")]
mod support;
