//! No compressed payload makes the decoder panic or inflate without bound, and compression is undone without loss.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sparkfleet_fuzz::compressed(bytes));
