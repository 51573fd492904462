//! No bytes make the parser of a TPM's public area panic.
#![no_main]

#[path = "../src/attestation.rs"]
mod attestation;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| attestation::tpm_public(bytes));
