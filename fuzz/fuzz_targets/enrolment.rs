//! No bytes make either side of an enrolment panic.
#![no_main]

#[allow(dead_code, reason = "the list of targets is for tests")]
#[path = "../src/enrolment.rs"]
mod enrolment;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| enrolment::enrolment(bytes));
