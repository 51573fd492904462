//! No bytes make the reader of revocation lists panic.
#![no_main]

#[allow(dead_code, reason = "the list of targets is for tests")]
#[path = "../src/revocations.rs"]
mod revocations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| revocations::revocation_list(bytes));
