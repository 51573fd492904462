//! The integration tests of this package, in one program.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the lint exempts test functions, not their helpers")]

mod boot;
mod certificates;
mod device;
mod event_log;
mod forge;
mod fuzz_seeds;
mod hostile;
mod image;
mod logs;
mod policy;
mod real_tpm;
mod recorded;
mod signed;
mod swtpm;
