//! `sparkfleet version`: what this program is. It reaches nothing outside of this machine.

use clap::CommandFactory as _;
use serde_json::json;
use sparkfleet_cli::options::Printing;
use sparkfleet_cli::output;

use crate::arguments::Arguments;

/// Prints name and version as `--version` does; for programs also the operating system and processor architecture that the program was built for.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(printing: &Printing) -> anyhow::Result<()> {
    let command = Arguments::command();
    let value = json!({
        "name": command.get_name(), "version": command.get_version(),
        "os": std::env::consts::OS, "arch": std::env::consts::ARCH,
    });
    output::print(printing.output, || vec![command.render_version()], &value)
}
