//! The seeds of the fuzz targets, and what else of a corpus lies beside them, go through the same functions as under the fuzzer.

use std::fs;

#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

/// Seeds that go through a test of another package; those of `join_*` through one of `join-protocol`, `join-attestation` or `join-tickets`.
const ELSEWHERE: [&str; 12] = [
    "attestation_policy",
    "bootstrap_http",
    "configdb_dump",
    "configdb_request",
    "configuration",
    "console_action",
    "console_http",
    "enrolment",
    "git_http",
    "history_export",
    "rendering",
    "revocation_list",
];

#[test]
fn every_seed_of_every_fuzz_target_holds() {
    let mut folders: Vec<String> = fs::read_dir(seeds::folder())
        .expect("there are seeds")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("a plain name"))
        .filter(|name| !name.starts_with("join_") && !ELSEWHERE.contains(&name.as_str()))
        .collect();
    folders.sort();
    assert_eq!(folders, fuzz::TARGETS.map(|(name, _)| name), "each target has seeds, and nothing else has");
    for (name, target) in fuzz::TARGETS {
        seeds::hold(name, target, 3);
    }
}
