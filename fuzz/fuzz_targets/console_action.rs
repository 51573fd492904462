//! No body makes the reader of the actions of the console panic.
#![no_main]

#[allow(dead_code, reason = "the list of targets is for tests")]
#[path = "../src/console.rs"]
mod console;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| console::action(bytes));
