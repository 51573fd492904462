//! No bytes make the check of a kubelet's certificate request panic.
#![no_main]

#[path = "../src/kubelet_request.rs"]
mod kubelet_request;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kubelet_request::kubelet_request(bytes));
