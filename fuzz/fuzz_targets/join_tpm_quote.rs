//! No bytes make the parsers of a TPM's quote panic.
#![no_main]

#[path = "../src/attestation.rs"]
mod attestation;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attestation::tpm_quote(bytes));
