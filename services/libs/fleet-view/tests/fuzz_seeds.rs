//! The seeds of the fuzz target go through the same function as under the fuzzer.

#[path = "../../../../fuzz/src/history.rs"]
mod fuzz;
#[path = "../../../../fuzz/src/seeds.rs"]
mod seeds;

#[test]
fn every_seed_holds() {
    for (name, target) in fuzz::TARGETS {
        seeds::hold(name, target, 8);
    }
}
