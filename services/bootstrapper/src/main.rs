//! The bootstrapper of one machine, as a program that systemd starts at every boot.

mod arguments;

use std::process::ExitCode;

use anyhow::Context as _;
use arguments::ParsedArgs;
use bootstrapper::adapters::machine;
use bootstrapper::adapters::supervisor::Supervisor;
use bootstrapper::{Config, Ending};
use service_runtime::shutdown::Shutdown;
use service_runtime::{exit, logging};

fn main() -> ExitCode {
    let ended = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(ParsedArgs::Print(text)) => {
            // A reader that closes the pipe early has read enough.
            let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Ok(ParsedArgs::Run(file)) => start(file.as_deref()),
        Err(error) => Err(exit::with_code(exit::USAGE, error)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}

fn start(file: Option<&std::path::Path>) -> anyhow::Result<()> {
    let config: Config = service_runtime::config::load("bootstrapper", configdb_schema::address::SERVICES, file)?;
    logging::init(config.log.format, &config.log.filter).map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let unusable = |error| exit::with_code(exit::CONFIG, anyhow::Error::new(error));
    let checked = config.validate().map_err(unusable).context("the configuration is not usable")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let platform = machine::platform(&config, &checked)?;
        bootstrapper::run(config, platform, Supervisor::from_environment(), Shutdown::on_signals()?).await
    });
    // A TPM that does not answer does not delay the end.
    runtime.shutdown_background();
    match ended? {
        Ending::Member | Ending::Stopped => Ok(()),
        Ending::Reboot(reason) => Err(anyhow::anyhow!("a reboot is asked for: {reason}")),
        Ending::Blocked(reason) => Err(exit::with_code(exit::REFUSED, anyhow::anyhow!(reason))),
    }
}
