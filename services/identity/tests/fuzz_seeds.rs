//! The seeds of the fuzz target go through the same function as under the fuzzer.

#[path = "../../../fuzz/src/revocations.rs"]
mod fuzz;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

#[test]
fn every_seed_holds() {
    seeds::hold(fuzz::NAME, fuzz::revocation_list, 5);
}
