//! The seeds of the fuzz targets go through the same functions as under the fuzzer.

#[path = "../../../fuzz/src/bootstrap.rs"]
mod bootstrap;
#[path = "../../../fuzz/src/configuration.rs"]
mod configuration;
#[path = "../../../fuzz/src/rendering.rs"]
mod fuzz;
#[path = "../../../fuzz/src/seeds.rs"]
mod seeds;

#[test]
fn every_seed_holds() {
    for (name, target) in fuzz::TARGETS {
        seeds::hold(name, target, 3);
    }
}

#[test]
fn every_client_of_bootstrap_scripts_is_answered() {
    seeds::hold(bootstrap::NAME, bootstrap::bootstrap_http, 10);
}

#[test]
fn every_configuration_file_is_read_or_refused() {
    let check = |config: &cluster_manager::Config| config.validate().map(drop).map_err(|error| error.to_string());
    seeds::hold(configuration::NAME, |bytes| configuration::configuration("cluster-manager", bytes, check), 15);
}
