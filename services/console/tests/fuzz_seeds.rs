//! The seeds of the fuzz targets go through the same functions as under the fuzzer.

#[path = "../../../fuzz/src/configuration.rs"]
mod configuration;
#[path = "../../../fuzz/src/console.rs"]
mod fuzz;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

#[test]
fn every_seed_holds() {
    for (name, target) in fuzz::TARGETS {
        seeds::hold(name, target, 15);
    }
}

#[test]
fn every_configuration_file_is_read_or_refused() {
    let check = |config: &console::Config| config.validate(1).map(drop).map_err(|error| error.to_string());
    seeds::hold(configuration::NAME, |bytes| configuration::configuration("console", bytes, check), 15);
}
