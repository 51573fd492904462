//! No file makes the reader of exports of a history panic.
#![no_main]

#[allow(dead_code, reason = "the list of targets is for tests")]
#[path = "../src/history.rs"]
mod history;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| history::export(bytes));
