//! The seeds of the fuzz target go through the same function as under the fuzzer.

use std::fs;
use std::path::Path;

#[path = "../../../../fuzz/src/kubelet_request.rs"]
mod fuzz;

#[test]
fn every_seed_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/seeds").join(fuzz::NAME);
    let seeds: Vec<_> =
        fs::read_dir(&folder).expect("there are seeds").map(|entry| entry.expect("readable").path()).collect();
    assert!(seeds.len() >= 3, "{} seeds", seeds.len());
    for seed in seeds {
        let bytes = fs::read(&seed).expect("readable");
        let outcome = std::panic::catch_unwind(|| fuzz::kubelet_request(&bytes));
        assert!(outcome.is_ok(), "{}", seed.display());
    }
}
