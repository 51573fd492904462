//! No document makes the reader of attestation policies panic.
#![no_main]

#[allow(dead_code, reason = "each target uses one function of it")]
#[path = "../src/attestation.rs"]
mod attestation;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attestation::attestation_policy(bytes));
