//! No payload, however malformed, makes the decoder panic or ask for memory without bound.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sparkfleet_fuzz::payload(bytes));
