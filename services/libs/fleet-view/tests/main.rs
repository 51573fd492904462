//! The integration tests of this package, in one program.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

mod fuzz_seeds;
mod metrics_page;
