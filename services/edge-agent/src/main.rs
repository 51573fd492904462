//! The edge agent that is shipped, as a program: one optional argument, the configuration file.

use std::path::PathBuf;
use std::process::ExitCode;

use edge_agent::Config;
use service_runtime::{exit, logging, service};

const USAGE: &str =
    "usage: sparkfleet-edge-agent [--config FILE]; every key can be set by a variable, too: SPARKFLEET__MQTT__SERVERS";

/// The arguments are not understood.
#[derive(Debug, thiserror::Error)]
#[error("{USAGE}")]
struct Misused;

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}

fn start() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let file = match &arguments[..] {
        [] => None,
        [flag, file] if flag == "--config" => Some(PathBuf::from(file)),
        _ => return Err(exit::with_code(exit::USAGE, Misused)),
    };
    let config: Config =
        service_runtime::config::load("edge-agent", configdb_schema::address::SERVICES, file.as_deref())?;
    logging::init(config.log.format, &config.log.filter).map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(service::run(config, edge_agent::run))
}
