//! How a bootstrap script is fetched: its address, the command to paste at the edge, and how long its token may live.

use std::time::Duration;

use uuid::Uuid;

use crate::token::Token;

/// How long a token lives, unless it is said.
pub const LIFETIME: Duration = Duration::from_secs(3600);

/// Shortest validity of a token: clocks differ, and an operator has to paste the command.
pub const LIFETIME_MIN: Duration = Duration::from_secs(60);

/// Longest validity of a token: a forgotten token must end by itself.
pub const LIFETIME_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The command to paste at the edge. The token reaches curl on standard input, so that it is in no list of processes. A cluster manager that has just been started is asked again for
/// 20 seconds.
#[must_use]
pub fn command(base_url: &str, cluster: Uuid, token: &Token) -> String {
    command_for(&script_url(base_url, cluster), token)
}

/// The same, with the address of the script.
#[must_use]
pub fn command_for(url: &str, token: &Token) -> String {
    let url = shell_word(url);
    let header = shell_word(&format!("header = \"Authorization: Bearer {}\"", token.expose()));
    format!("printf '%s\\n' {header} | curl -fsS --retry 10 --retry-delay 2 --retry-connrefused -K - {url} | sh")
}

/// Where the script of a cluster is fetched.
#[must_use]
pub fn script_url(base_url: &str, cluster: Uuid) -> String {
    format!("{}/bootstrap/{cluster}", base_url.trim_end_matches('/'))
}

/// One word of the shell, whatever is in it: within single quotes nothing is special but the quote itself.
#[must_use]
pub fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
