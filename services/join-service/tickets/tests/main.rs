//! The integration tests of this package, in one program.

mod fuzz_seeds;
mod kubelet;
mod openssl;
mod ssh;
