//! Whatever is read as a STATE message is written back as one that says the same; nothing panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sparkfleet_fuzz::state(bytes));
