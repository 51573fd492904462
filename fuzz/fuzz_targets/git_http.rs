//! No bytes of a git client make the server panic, hang, or give away or lose anything.
#![no_main]

#[allow(dead_code, reason = "the list of targets is for tests")]
#[path = "../src/git.rs"]
mod git;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git::git_http(bytes));
