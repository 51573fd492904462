//! The integration tests of this package, in one program.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the lint exempts test functions, not their helpers")]

mod fuzz_seeds;
mod kubelet;
mod openssl;
mod ssh;
