//! The web console from the command line: where it is, and a look at any broker.

use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use service_runtime::{exit, logging};

use crate::cli::{ExploreArguments, UiArguments};
use crate::client::mqtt_config;

/// Prints the address of the console, and opens it where there is a desktop.
///
/// # Errors
/// With [`exit::USAGE`] if the address is not one of HTTP.
pub fn ui(arguments: &UiArguments) -> anyhow::Result<()> {
    let url = &arguments.url;
    if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(exit::with_code(exit::USAGE, anyhow!("--url {url} must begin with http:// or https://")));
    }
    crate::output::print_text(url)?;
    if has_desktop(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        let mut program = Command::new("xdg-open");
        program.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match program.status() {
            Ok(ended) if ended.success() => {}
            Ok(ended) => eprintln!("xdg-open could not open it ({ended})"),
            Err(error) => eprintln!("xdg-open cannot be started: {error}"),
        }
    }
    Ok(())
}

/// Whether a browser could be shown.
fn has_desktop(is_set: impl Fn(&str) -> bool) -> bool {
    is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

/// Shows every Edge Node of a broker in a browser until it is stopped.
///
/// # Errors
/// The address is taken or not a loopback one, or the connection options cannot be used.
pub async fn explore(arguments: &ExploreArguments) -> anyhow::Result<()> {
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
    crate::output::print_text(&format!("http://{address}{}", console::adapters::http::EXPLORER))?;
    console::explore(config, listener, arguments.rebirth, shutdown, Health::new()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_desktop_has_a_browser_to_open() {
        assert!(has_desktop(|name| name == "DISPLAY") && has_desktop(|name| name == "WAYLAND_DISPLAY"));
        assert!(!has_desktop(|_| false));
    }

    #[test]
    fn an_address_that_no_browser_takes_is_refused() {
        let error = ui(&UiArguments { url: "ftp://x".to_owned() }).unwrap_err();
        assert_eq!(error.to_string(), "--url ftp://x must begin with http:// or https://");
    }
}
