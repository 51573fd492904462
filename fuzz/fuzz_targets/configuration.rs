//! No text makes the reader of configuration files panic, or repeat a secret.
#![no_main]

#[allow(dead_code, reason = "its name is for tests")]
#[path = "../src/configuration.rs"]
mod configuration;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    configuration::configuration("console", bytes, |config: &console::Config| {
        config.validate(1).map(drop).map_err(|error| error.to_string())
    });
    configuration::configuration("cluster-manager", bytes, |config: &cluster_manager::Config| {
        config.validate().map(drop).map_err(|error| error.to_string())
    });
});
