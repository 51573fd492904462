//! Programs that are run to their end.

use std::process::Command;

/// Runs a program that has to succeed; its standard output, without blanks at its ends.
///
/// # Panics
/// It cannot be started, or fails; the message has what it printed.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{errors}{out}", output.status);
    out.trim().to_owned()
}
