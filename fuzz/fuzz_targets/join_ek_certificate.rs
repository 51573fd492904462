//! No bytes make the check of an endorsement certificate panic.
#![no_main]

#[path = "../src/attestation.rs"]
mod attestation;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attestation::ek_certificate(bytes));
