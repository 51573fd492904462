//! Each service on its own: configuration, log, signals, and then the service's own `run`.

use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use service_runtime::health::Health;
use service_runtime::keys::{self, ConfigKey};
use service_runtime::shutdown::Shutdown;
use service_runtime::{config, exit, logging};
use sparkplug_mqtt::MqttConfig;

use crate::cli::{ConfigDbArguments, ServiceArguments};

/// Keys of `[http]`, the same in every service.
const HTTP_KEYS: &[ConfigKey] = &[ConfigKey {
    key: "http.listen",
    default: "",
    help: "address for /livez, /readyz and /metrics; absent: not served",
}];

/// Runs ConfigDB.
///
/// # Errors
/// As documented for the exit codes.
pub async fn configdb(arguments: &ConfigDbArguments) -> anyhow::Result<()> {
    let (config, shutdown) = begin::<configdb::Config>("configdb", &arguments.service)?;
    let config = configdb::Config { new_store: arguments.new_store, ..config };
    configdb::run(config, shutdown, Health::new()).await
}

/// Runs the cluster manager.
///
/// # Errors
/// As documented for the exit codes.
pub async fn cluster_manager(arguments: &ServiceArguments) -> anyhow::Result<()> {
    let (config, shutdown) = begin("cluster-manager", arguments)?;
    cluster_manager::run(config, shutdown, Health::new()).await
}

/// Runs edge sync.
///
/// # Errors
/// As documented for the exit codes.
pub async fn edge_sync(arguments: &ServiceArguments) -> anyhow::Result<()> {
    let (config, shutdown) = begin("edge-sync", arguments)?;
    edge_sync::run(config, shutdown, Health::new()).await
}

/// Runs an edge monitor or the central monitor.
///
/// # Errors
/// As documented for the exit codes.
pub async fn edge_monitor(arguments: &ServiceArguments) -> anyhow::Result<()> {
    let (config, shutdown) = begin("edge-monitor", arguments)?;
    edge_monitor::run(config, shutdown, Health::new()).await
}

/// Runs a replica of the join service.
///
/// # Errors
/// As documented for the exit codes.
pub async fn join_service(arguments: &ServiceArguments) -> anyhow::Result<()> {
    let (config, shutdown) = begin("join-service", arguments)?;
    join_service::run(config, shutdown, Health::new()).await
}

/// Runs the keeper of Kerberos keys.
///
/// # Errors
/// As documented for the exit codes.
#[cfg(feature = "kerberos")]
pub async fn krb_keys(arguments: &ServiceArguments) -> anyhow::Result<()> {
    let (config, shutdown) = begin("krb-keys", arguments)?;
    krb_keys::run(config, shutdown, Health::new()).await
}

/// Configuration, log and signals of a service.
fn begin<T>(service: &str, arguments: &ServiceArguments) -> anyhow::Result<(T, Shutdown)>
where
    T: Default + Serialize + DeserializeOwned,
{
    logging::init(arguments.log_format, "info").map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let file: Option<&Path> = arguments.config.as_deref();
    let config = config::load(service, file)?;
    let shutdown = Shutdown::on_signals().context("cannot listen to signals")?;
    Ok((config, shutdown))
}

/// The subcommand of each service, with all its keys.
#[must_use]
pub fn services() -> Vec<(&'static str, Vec<ConfigKey>)> {
    vec![
        ("configdb", all_keys(configdb::config::KEYS)),
        ("cluster-manager", all_keys(cluster_manager::config::KEYS)),
        ("edge-sync", all_keys(edge_sync::config::KEYS)),
        ("edge-monitor", all_keys(edge_monitor::config::KEYS)),
        ("join-service", all_keys(join_service::config::KEYS)),
        // The last one, so that its chapter can be told from the others by a program that is built without it.
        #[cfg(feature = "kerberos")]
        ("krb-keys", all_keys(krb_keys::config::KEYS)),
    ]
}

/// The keys of a service as `--help` shows them.
#[must_use]
pub fn keys_help(keys: &[ConfigKey]) -> String {
    format!(
        "Configuration keys (the environment variable of mqtt.servers is SPARKFLEET__MQTT__SERVERS):\n{}",
        keys::help(keys)
    )
}

/// A service's own keys, and those of the tables that every service has.
fn all_keys(own: &[ConfigKey]) -> Vec<ConfigKey> {
    let mqtt = MqttConfig::KEYS.iter().map(|key| ConfigKey { key: key.key, default: key.default, help: key.help });
    let mut all: Vec<ConfigKey> = own.iter().copied().chain(mqtt).chain(HTTP_KEYS.iter().copied()).collect();
    // A service that documents a shared key itself knows better.
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|key| seen.insert(key.key));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_every_service_is_documented_with_its_default() {
        keys::check::<configdb::Config>(&all_keys(configdb::config::KEYS)).unwrap();
        keys::check::<cluster_manager::Config>(&all_keys(cluster_manager::config::KEYS)).unwrap();
        keys::check::<edge_sync::Config>(&all_keys(edge_sync::config::KEYS)).unwrap();
        keys::check::<edge_monitor::Config>(&all_keys(edge_monitor::config::KEYS)).unwrap();
        keys::check::<join_service::Config>(&all_keys(join_service::config::KEYS)).unwrap();
        #[cfg(feature = "kerberos")]
        keys::check::<krb_keys::Config>(&all_keys(krb_keys::config::KEYS)).unwrap();
    }
}
