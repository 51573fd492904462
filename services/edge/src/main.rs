//! What an edge cluster runs: edge sync and edge monitor in one small process, configured by one file. Nothing of the control plane is in it.
//!
//! Both run side by side on one thread. If one fails, the other is stopped cleanly (its death is published), and the process ends with the
//! first one's error, so that Kubernetes starts it again.

mod arguments;
mod config;

use std::process::ExitCode;

use arguments::{Arguments, ParsedArgs};
use config::Config;
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use service_runtime::{exit, logging, service};

fn main() -> ExitCode {
    let arguments = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(ParsedArgs::Run(arguments)) => arguments,
        Ok(ParsedArgs::Print(text)) => {
            // A reader that closes the pipe early has read enough.
            let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(error) => return exit::report(&exit::with_code(exit::USAGE, error)),
    };
    match start(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}

fn start(arguments: Arguments) -> anyhow::Result<()> {
    let config: Config =
        service_runtime::config::load("edge", configdb_schema::address::SERVICES, arguments.config.as_deref())?;
    logging::init(config.log.format, &config.log.filter).map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(service::run(config, run))
}

async fn run(config: Config, shutdown: Shutdown, health: Health) -> anyhow::Result<()> {
    let (sync, monitor) = config.split();
    let one_ends_both = |ended: anyhow::Result<()>| {
        shutdown.trigger();
        ended
    };
    let sync = async { one_ends_both(edge_sync::run(sync, shutdown.child(), health.clone()).await) };
    let monitor = async { one_ends_both(edge_monitor::run(monitor, shutdown.child(), health.clone()).await) };
    let (sync, monitor) = tokio::join!(sync, monitor);
    if let (Err(_), Err(error)) = (&sync, &monitor) {
        tracing::error!(error = format!("{error:#}"), "edge monitor failed as well");
    }
    sync.and(monitor)
}
