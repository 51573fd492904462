//! The seeds of the fuzz targets, and what else of a corpus lies beside them, go through the same functions as under the fuzzer.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;

#[test]
fn every_seed_of_every_fuzz_target_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut folders: Vec<String> = fs::read_dir(&folder)
        .expect("there are seeds")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("a plain name"))
        // Those go through a test of `join-protocol`.
        .filter(|name| !name.starts_with("join_"))
        .collect();
    folders.sort();
    assert_eq!(folders, fuzz::TARGETS.map(|(name, _)| name), "each target has seeds, and nothing else has");
    for (name, target) in fuzz::TARGETS {
        let seeds: Vec<_> =
            fs::read_dir(folder.join(name)).expect("readable").map(|e| e.expect("readable").path()).collect();
        assert!(seeds.len() >= 3, "{name} has {} seeds", seeds.len());
        for seed in seeds {
            let bytes = fs::read(&seed).expect("readable");
            let outcome = std::panic::catch_unwind(|| target(&bytes));
            assert!(outcome.is_ok(), "{}", seed.display());
        }
    }
}
