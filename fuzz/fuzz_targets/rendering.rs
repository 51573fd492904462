//! No template makes its expansion panic.
#![no_main]

// The one file of the cluster manager that is needed, under the name that it has there: the rest of it does not belong under a sanitizer.
extern crate self as cluster_manager;
#[allow(dead_code, reason = "the target uses a part of it")]
#[path = "../../services/cluster-manager/src/template.rs"]
pub mod template;

#[allow(dead_code, reason = "the list of targets is for tests")]
#[path = "../src/rendering.rs"]
mod rendering;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rendering::rendering(bytes));
