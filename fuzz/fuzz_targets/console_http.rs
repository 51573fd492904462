//! No bytes of a client make the console panic, hang, or sign in a stranger.
#![no_main]

#[allow(dead_code, reason = "the list of targets is for tests")]
#[path = "../src/console.rs"]
mod console;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| console::http(bytes));
