//! The seeds of a fuzz target go through the same function as under the fuzzer. This is for the test of the package whose code the target feeds. That test includes this file by its path.

use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

/// The folder with a folder of seeds for each target.
///
/// # Panics
/// The package that includes this file does not lie in the repository.
pub fn folder() -> PathBuf {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|above| above.join("fuzz/seeds"));
    folders.into_iter().find(|folder| folder.is_dir()).expect("there are seeds")
}

/// Feeds each seed of a target to it.
///
/// # Panics
/// There are fewer than `least` seeds, or one of them does not hold; it is named.
pub fn hold(name: &str, target: impl Fn(&[u8]), least: usize) {
    let entries = fs::read_dir(folder().join(name)).expect("there are seeds");
    let seeds: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    assert!(seeds.len() >= least, "{name} has {} seeds", seeds.len());
    for seed in seeds {
        let bytes = fs::read(&seed).expect("readable");
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| target(&bytes)));
        assert!(outcome.is_ok(), "{}", seed.display());
    }
}
