//! Exit codes, and how an error is printed for a person: in one line.
//!
//! `run()` returns an [`anyhow::Error`]; where the code matters to a script, the error is made with [`with_code`] and `main`
//! finds the code again with [`code_of`]. This module must not know which error means what: the service says so.

use crate::config::{ConfigError, flat};
use std::error::Error;
use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

/// It worked.
pub const OK: u8 = 0;
/// It failed, for a reason that none of the other codes names.
pub const FAILURE: u8 = 1;
/// The command line was wrong.
pub const USAGE: u8 = 2;
/// The configuration was wrong: file, environment or secret file.
pub const CONFIG: u8 = 3;
/// Something outside is not available: broker not reachable, port taken, API down. Worth trying again.
pub const UNAVAILABLE: u8 = 4;
/// The other side understood and refused: invalid document, stale ETag, forbidden.
pub const REFUSED: u8 = 5;
/// The wanted state was not reached in the time given.
pub const TIMEOUT: u8 = 6;
/// What was named does not exist: no cluster, deployment, host, object or entry of that name.
pub const NOT_FOUND: u8 = 7;
/// Ended by a signal before it was done.
pub const INTERRUPTED: u8 = 130;

/// An error that knows its exit code; prints as the error it carries.
struct Coded {
    code: u8,
    error: anyhow::Error,
}

impl fmt::Debug for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl Error for Coded {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Gives an error an exit code.
///
/// ```
/// use service_runtime::exit;
///
/// let error = exit::with_code(exit::UNAVAILABLE, anyhow::anyhow!("connection refused").context("cannot reach the broker"));
/// assert_eq!(exit::code_of(&error), exit::UNAVAILABLE);
/// assert_eq!(exit::one_line(error.as_ref()), "sparkfleet: cannot reach the broker: connection refused");
/// ```
pub fn with_code(code: u8, error: impl Into<anyhow::Error>) -> anyhow::Error {
    anyhow::Error::new(Coded { code, error: error.into() })
}

/// The code given with [`with_code`], the outermost first; [`CONFIG`] for a [`ConfigError`]; else [`FAILURE`].
#[must_use]
pub fn code_of(error: &anyhow::Error) -> u8 {
    // A context wraps the error it is put on, and only anyhow's own downcast sees through it.
    if let Some(coded) = error.downcast_ref::<Coded>() {
        return coded.code;
    }
    let coded = error.chain().find_map(|cause| cause.downcast_ref::<Coded>()).map(|coded| coded.code);
    let config = || error.chain().any(|cause| cause.is::<ConfigError>()).then_some(CONFIG);
    coded.or_else(config).unwrap_or(FAILURE)
}

/// The whole chain of causes in one line: `sparkfleet: <message>: <cause>: <cause of that>`.
///
/// Line breaks and other control characters become spaces. A cause whose text the message above already ends with is
/// not said twice.
#[must_use]
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    let mut line = String::from("sparkfleet: ");
    line.push_str(&flat(&error.to_string()));
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = flat(&error.to_string());
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        cause = error.source();
    }
    line
}

/// Prints [`one_line`] to stderr and returns the process's exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    // Who has closed standard error still gets the exit code.
    let _ = writeln!(std::io::stderr(), "{}", one_line(error.as_ref()));
    ExitCode::from(code_of(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn the_chain_is_printed_in_one_line_without_control_characters() {
        let error = anyhow!("no route\n  to host\u{1b}[31m").context("cannot reach 192.0.2.1:1883");
        assert_eq!(one_line(error.as_ref()), "sparkfleet: cannot reach 192.0.2.1:1883: no route to host [31m");
        let turned = anyhow!("no cluster \u{202e}pohS\u{202c}\u{2069} \u{feff}\u{200f}here");
        assert_eq!(one_line(turned.as_ref()), "sparkfleet: no cluster pohS here");
    }

    #[test]
    fn a_cause_that_the_message_repeats_is_printed_once() {
        let error = anyhow!("disk full").context("cannot save: disk full");
        assert_eq!(one_line(error.as_ref()), "sparkfleet: cannot save: disk full");
    }

    #[test]
    fn an_error_without_a_code_is_a_failure() {
        assert_eq!(code_of(&anyhow!("odd")), FAILURE);
    }

    #[test]
    fn a_code_is_found_below_and_above_contexts() {
        let inner = with_code(REFUSED, anyhow!("schema").context("refused"));
        assert_eq!(code_of(&inner), REFUSED);
        let outer: anyhow::Error = Err::<(), _>(inner).context("apply").unwrap_err();
        assert_eq!(code_of(&outer), REFUSED);
        assert_eq!(one_line(outer.as_ref()), "sparkfleet: apply: refused: schema");
        assert_eq!(code_of(&with_code(TIMEOUT, outer)), TIMEOUT);
    }
}
