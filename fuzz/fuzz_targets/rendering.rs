//! No template makes its expansion panic.
#![no_main]

#[allow(dead_code, reason = "the list of targets is for tests")]
#[path = "../src/rendering.rs"]
mod rendering;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rendering::rendering(bytes));
