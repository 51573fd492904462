//! The seeds of the fuzz targets go through the same functions as under the fuzzer.

#[path = "../../../../fuzz/src/attestation.rs"]
mod fuzz;
#[path = "../../../../fuzz/src/seeds.rs"]
mod seeds;

#[test]
fn every_seed_holds() {
    for (name, target) in fuzz::TARGETS {
        seeds::hold(name, target, 3);
    }
}
