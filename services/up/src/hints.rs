//! What `up` suggests to try next.

use std::net::SocketAddr;

use crate::arguments::UpArguments;

/// Where everything of this factory is reached.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// URL of the broker.
    pub broker: String,
    /// Web console.
    pub console: SocketAddr,
    /// Git server.
    pub git: SocketAddr,
    /// The scripts that bootstrap clusters.
    pub bootstrap: SocketAddr,
    /// Health and metrics.
    pub http: SocketAddr,
}

/// The lines above the table.
#[must_use]
pub(crate) fn header(arguments: &UpArguments, places: &Places) -> Vec<String> {
    let kind = if arguments.broker.is_some() { "broker" } else { "embedded broker" };
    vec![
        format!(
            "sparkfleet {}: factory {} with simulated edge clusters",
            env!("CARGO_PKG_VERSION"),
            arguments.organisation
        ),
        format!("console   http://{}/", places.console),
        format!("{kind} {}   git http://{}/git/", places.broker, places.git),
        format!("bootstrap http://{}/   health http://{}/readyz", places.bootstrap, places.http),
        format!("data {}   log {}", arguments.data_dir.display(), log_file(arguments).display()),
    ]
}

/// The file that the log goes to while the terminal shows the table.
#[must_use]
pub(crate) fn log_file(arguments: &UpArguments) -> std::path::PathBuf {
    arguments.data_dir.join("sparkfleet.log")
}

/// The lines below the table.
#[must_use]
pub(crate) fn next(arguments: &UpArguments, places: &Places) -> Vec<String> {
    let program = std::env::args().next().unwrap_or_else(|| "sparkfleet".to_owned());
    let broker = match places.broker.as_str() {
        "mqtt://127.0.0.1:1883" => String::new(),
        other => format!(" --broker {other}"),
    };
    let organisation = match arguments.organisation.as_str() {
        "ACME" => String::new(),
        other => format!(" --organisation {other}"),
    };
    let with = format!("{broker}{organisation}");
    let git = places.git;
    vec![
        "Try in another terminal:".to_owned(),
        format!("  {program} cluster create Paint_Shop --wait{with}"),
        format!("  {program} deployment create Oven_1 --cluster Paint_Shop --wait{with}"),
        format!("  {program} watch --kind NBIRTH --kind NDATA{broker}"),
        format!("  git clone http://{git}/git/cluster/Paint_Shop"),
        "Ctrl-C stops everything; the next start resumes.".to_owned(),
    ]
}
