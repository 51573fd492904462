//! Whatever parses as a topic is written back as the same text; nothing panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sparkfleet_fuzz::topic(bytes));
