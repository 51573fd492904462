//! No sequence of inputs makes the Edge Node machine panic, wait busily or break the order of births, data and deaths.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sparkfleet_fuzz::edge_node(bytes));
