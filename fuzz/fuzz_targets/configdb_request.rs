//! No JSON makes the reader of ConfigDB's requests panic.
#![no_main]

#[allow(dead_code, reason = "each target uses one function of it")]
#[path = "../src/configdb.rs"]
mod configdb;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| configdb::request(bytes));
