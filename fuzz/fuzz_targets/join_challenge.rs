//! No bytes make the decoders of a challenge panic.
#![no_main]

#[allow(dead_code, reason = "each target uses one function of it")]
#[path = "../src/join.rs"]
mod join;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| join::challenge(bytes));
