//! No bytes make the parser of event logs panic.
#![no_main]

#[allow(dead_code, reason = "each target uses one function of it")]
#[path = "../src/attestation.rs"]
mod attestation;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attestation::event_log(bytes));
