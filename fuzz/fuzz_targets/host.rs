//! No sequence of inputs makes the Host Application machine panic, wait busily or speak of what is not alive.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sparkfleet_fuzz::host(bytes));
