//! Each service on its own: configuration, log, signals, and then the service's own `run`.

use std::path::PathBuf;

use clap::Args;
use configdb_schema::address::SERVICES;
use serde::Serialize;
use serde::de::DeserializeOwned;
use service_runtime::config::{ConfigError, ConfigKey, ConfigTable as _};
use service_runtime::health::Health;
use service_runtime::keys;
use service_runtime::service::ServiceConfig;
use service_runtime::shutdown::Shutdown;
use service_runtime::{config, exit, logging};

/// A service on its own.
#[derive(Debug, Clone, Args)]
pub struct ServiceArguments {
    /// Configuration file (TOML); environment variables SPARKFLEET__SECTION__KEY override it
    #[arg(long, env = "SPARKFLEET_CONFIG")]
    pub config: Option<PathBuf>,
    /// Form of the log on standard error: human or json; SPARKFLEET_LOG filters it
    #[arg(long, env = "SPARKFLEET_LOG_FORMAT", default_value = "human")]
    pub log_format: service_runtime::logging::LogFormat,
}

/// `sparkfleet configdb`.
#[derive(Debug, Clone, Args)]
pub struct ConfigDbArguments {
    /// What every service takes.
    #[command(flatten)]
    pub service: ServiceArguments,
    /// Begin an empty database although this ConfigDB has run with one before
    #[arg(long)]
    pub new_store: bool,
}

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
    check_moved_variables(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))?;
    let ended = start("cluster-manager", arguments, cluster_manager::run).await;
    ended.map_err(|error| {
        let moved = match error.downcast_ref() {
            Some(ConfigError::UnknownKey { key, .. }) => cluster_manager::config::moved(key),
            _ => None,
        };
        match moved {
            Some(moved) => exit::with_code(exit::CONFIG, error.context(moved)),
            None => error,
        }
    })
}

/// Variables of a cluster manager that was the certificate authority name the service Identity now, so that the cluster manager would not see them.
///
/// # Errors
/// With [`exit::CONFIG`], naming the variable that has to be used.
fn check_moved_variables(variables: impl Iterator<Item = String>) -> anyhow::Result<()> {
    for variable in variables {
        let Some(rest) = variable.strip_prefix("SPARKFLEET__IDENTITY__KERBEROS__") else { continue };
        let error = anyhow::anyhow!("the environment variable {variable} is now SPARKFLEET__KERBEROS__{rest}");
        return Err(exit::with_code(exit::CONFIG, error));
    }
    Ok(())
}

/// Runs Identity.
///
/// # Errors
/// As documented for the exit codes.
pub async fn identity(arguments: &ServiceArguments) -> anyhow::Result<()> {
    start("identity", arguments, identity::run).await
}

/// Runs the git server.
///
/// # Errors
/// As documented for the exit codes.
pub async fn git_server(arguments: &ServiceArguments) -> anyhow::Result<()> {
    start("git-server", arguments, git_server::run).await
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
    let config: C = config::load(name, SERVICES, arguments.config.as_deref())?;
    service_runtime::service::run(config, service).await
}

/// The subcommand of each service, with all its keys.
#[must_use]
pub fn services() -> Vec<(&'static str, Vec<ConfigKey>)> {
    vec![
        ("configdb", configdb::Config::keys()),
        ("cluster-manager", cluster_manager::Config::keys()),
        ("identity", identity::Config::keys()),
        ("git-server", git_server::Config::keys()),
        ("edge-sync", edge_sync::Config::keys()),
        ("edge-monitor", edge_monitor::Config::keys()),
        ("join-service", join_service::Config::keys()),
        ("console", console::Config::keys()),
        // The last one, so that its chapter can be separated from the others by a program that is built without it.
        #[cfg(feature = "kerberos")]
        ("krb-keys", krb_keys::Config::keys()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_called_otherwise_now_is_not_passed_over() {
        let check = |variable: &str| check_moved_variables(std::iter::once(variable.to_owned()));
        let error = check("SPARKFLEET__IDENTITY__KERBEROS__REALM").unwrap_err();
        assert_eq!(exit::code_of(&error), exit::CONFIG);
        assert!(error.to_string().ends_with("is now SPARKFLEET__KERBEROS__REALM"), "{error}");
        // It is Identity's, and the environment may be shared.
        check("SPARKFLEET__IDENTITY__LIFETIME_S").unwrap();
    }

    /// An environment that several services share names each of them; a name that is not known would be taken for a key.
    #[test]
    fn every_service_can_be_named_in_the_environment() {
        for (name, _) in services() {
            assert!(SERVICES.contains(&name), "{name} is not among the services of the environment");
        }
    }
}
