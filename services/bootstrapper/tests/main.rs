//! The integration tests of this package, in one program.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod disk;
mod join;
mod kubernetes;
mod package;
mod process;
#[path = "support/programs.rs"]
mod programs;
mod secrets;
mod support;
mod tasks;
#[cfg(feature = "tpm")]
mod tpm;
