//! `sparkfleet explore`: the console's look at any broker.

use anyhow::{Context as _, anyhow};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use service_runtime::{exit, logging};
use sparkfleet_cli::client::mqtt_config;

use crate::arguments::ExploreArguments;

/// Shows every Edge Node of a broker in a browser until it is stopped.
///
/// # Errors
/// The address is taken or not a loopback one, or the connection options cannot be used.
pub async fn run(arguments: &ExploreArguments) -> anyhow::Result<()> {
    logging::init(logging::LogFormat::Human, "warn").map_err(|error| exit::with_code(exit::CONFIG, error))?;
    let listen = arguments.listen;
    if !listen.ip().is_loopback() {
        let error = anyhow!("--listen {listen} must be a loopback address: the page has no login");
        return Err(exit::with_code(exit::CONFIG, error));
    }
    let mqtt = mqtt_config(&arguments.connection)?;
    let config = console::Config { mqtt, ..console::Config::default() };
    let listener = console::bind(listen).await.context("choose another address with --listen")?;
    let address = listener.local_addr()?;
    let shutdown = Shutdown::on_signals().context("cannot listen to signals")?;
    sparkfleet_cli::output::print_text(&format!("http://{address}{}", console::adapters::http::EXPLORER))?;
    console::explore(config, listener, arguments.rebirth, shutdown, Health::new()).await
}
