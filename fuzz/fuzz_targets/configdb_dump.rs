//! No dump makes the reader of dumps panic, and what is read is written and read again as the same.
#![no_main]

#[allow(dead_code, reason = "the list of targets is for tests")]
#[path = "../src/configdb.rs"]
mod configdb;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| configdb::dump(bytes));
