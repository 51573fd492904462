//! The seeds of the fuzz targets go through the same functions as under the fuzzer.

use std::fs;
use std::path::Path;

#[path = "../../../../fuzz/src/enrolment.rs"]
mod fuzz;

#[test]
fn every_seed_holds() {
    for (name, target) in fuzz::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/seeds").join(name);
        let seeds: Vec<_> =
            fs::read_dir(&folder).expect("there are seeds").map(|entry| entry.expect("readable").path()).collect();
        assert!(seeds.len() >= 3, "{name} has {} seeds", seeds.len());
        for seed in seeds {
            let bytes = fs::read(&seed).expect("readable");
            let outcome = std::panic::catch_unwind(|| target(&bytes));
            assert!(outcome.is_ok(), "{}", seed.display());
        }
    }
}
