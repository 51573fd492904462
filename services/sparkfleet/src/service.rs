//! Each service on its own: configuration, log, signals, and then the service's own `run`.

use serde::Serialize;
use serde::de::DeserializeOwned;
use service_runtime::health::Health;
use service_runtime::keys::{self, ConfigKey};
use service_runtime::service::ServiceConfig;
use service_runtime::shutdown::Shutdown;
use service_runtime::{config, exit, logging};
use sparkplug_mqtt::MqttConfig;

use crate::arguments::{ConfigDbArguments, ServiceArguments};

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
    let new_store = arguments.new_store;
    let service = |config, shutdown, health| configdb::run(configdb::Config { new_store, ..config }, shutdown, health);
    start("configdb", &arguments.service, service).await
}

/// Runs the cluster manager.
///
/// # Errors
/// As documented for the exit codes.
pub async fn cluster_manager(arguments: &ServiceArguments) -> anyhow::Result<()> {
    start("cluster-manager", arguments, cluster_manager::run).await
}

/// Runs edge sync.
///
/// # Errors
/// As documented for the exit codes.
pub async fn edge_sync(arguments: &ServiceArguments) -> anyhow::Result<()> {
    start("edge-sync", arguments, edge_sync::run).await
}

/// Runs an edge monitor or the central monitor.
///
/// # Errors
/// As documented for the exit codes.
pub async fn edge_monitor(arguments: &ServiceArguments) -> anyhow::Result<()> {
    start("edge-monitor", arguments, edge_monitor::run).await
}

/// Runs a replica of the join service.
///
/// # Errors
/// As documented for the exit codes.
pub async fn join_service(arguments: &ServiceArguments) -> anyhow::Result<()> {
    start("join-service", arguments, join_service::run).await
}

/// Runs the web console.
///
/// # Errors
/// As documented for the exit codes.
pub async fn console(arguments: &ServiceArguments) -> anyhow::Result<()> {
    start("console", arguments, console::run).await
}

/// Runs the keeper of Kerberos keys.
///
/// # Errors
/// As documented for the exit codes.
#[cfg(feature = "kerberos")]
pub async fn krb_keys(arguments: &ServiceArguments) -> anyhow::Result<()> {
    start("krb-keys", arguments, krb_keys::run).await
}

/// Log and configuration of a service, then the start that all services share.
async fn start<C, F>(
    name: &str,
    arguments: &ServiceArguments,
    service: impl FnOnce(C, Shutdown, Health) -> F,
) -> anyhow::Result<()>
where
    C: ServiceConfig + Default + Serialize + DeserializeOwned,
    F: Future<Output = anyhow::Result<()>>,
{
    logging::init(arguments.log_format, "info").map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let config: C = config::load(name, arguments.config.as_deref())?;
    service_runtime::service::run(config, service).await
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
        ("console", all_keys(console::config::KEYS)),
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

    /// An environment that several services share names each of them; a name that is not known would be taken for a key.
    #[test]
    fn every_service_can_be_named_in_the_environment() {
        for (name, _) in services() {
            assert!(config::SERVICES.contains(&name), "{name} is not among the services of the environment");
        }
    }

    #[test]
    fn every_key_of_every_service_is_documented_with_its_default() {
        keys::check::<configdb::Config>(&all_keys(configdb::config::KEYS)).unwrap();
        keys::check::<cluster_manager::Config>(&all_keys(cluster_manager::config::KEYS)).unwrap();
        keys::check::<edge_sync::Config>(&all_keys(edge_sync::config::KEYS)).unwrap();
        keys::check::<edge_monitor::Config>(&all_keys(edge_monitor::config::KEYS)).unwrap();
        keys::check::<join_service::Config>(&all_keys(join_service::config::KEYS)).unwrap();
        keys::check::<console::Config>(&all_keys(console::config::KEYS)).unwrap();
        #[cfg(feature = "kerberos")]
        keys::check::<krb_keys::Config>(&all_keys(krb_keys::config::KEYS)).unwrap();
    }
}
