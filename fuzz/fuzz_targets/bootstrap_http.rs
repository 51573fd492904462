//! No bytes of a client make the server of bootstrap scripts panic, hang, or give anything to a stranger.
#![no_main]

#[allow(dead_code, reason = "the list of targets is for tests")]
#[path = "../src/bootstrap.rs"]
mod bootstrap;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bootstrap::bootstrap_http(bytes));
