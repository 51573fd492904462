//! `sparkfleet ui`: where the web console is.

use std::process::{Command, Stdio};

use anyhow::anyhow;
use service_runtime::exit;

use crate::arguments::UiArguments;

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
    if !arguments.print && has_desktop(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        let mut program = Command::new("xdg-open");
        program.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match program.status() {
            Ok(ended) if ended.success() => {}
            Ok(ended) => crate::output::progress(&format!("xdg-open could not open it ({ended})")),
            Err(error) => crate::output::progress(&format!("xdg-open cannot be started: {error}")),
        }
    }
    Ok(())
}

/// Whether a browser could be shown.
fn has_desktop(is_set: impl Fn(&str) -> bool) -> bool {
    is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
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
        let error = ui(&UiArguments { context: None, url: "ftp://x".to_owned(), print: true }).unwrap_err();
        assert_eq!(error.to_string(), "--url ftp://x must begin with http:// or https://");
    }
}
