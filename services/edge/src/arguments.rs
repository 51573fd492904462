//! The command line: one file to read, or one text to print. Four words do not need a library, which would be a tenth of the program.

use std::ffi::OsString;
use std::path::PathBuf;

use service_runtime::config::ConfigTable as _;
use service_runtime::keys;

use crate::config::Config;

/// To run the process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Arguments {
    /// Configuration file; None: environment and defaults alone.
    pub config: Option<PathBuf>,
}

/// What the command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ParsedArgs {
    Run(Arguments),
    /// To print this and end.
    Print(String),
}

/// The command line is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgumentError {
    /// Not an argument of this program.
    #[error("unknown argument {0:?}; see --help")]
    Unknown(OsString),
    /// `--config` without a file.
    #[error("--config needs the path of a TOML file; see --help")]
    NoFile,
}

/// Reads the arguments after the program's name.
///
/// # Errors
/// [`ArgumentError`]
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<ParsedArgs, ArgumentError> {
    let mut arguments = arguments.into_iter();
    let mut found = Arguments::default();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--config" | "-c") => found.config = Some(arguments.next().ok_or(ArgumentError::NoFile)?.into()),
            Some("--help" | "-h") => return Ok(ParsedArgs::Print(help())),
            Some("--version" | "-V") => {
                return Ok(ParsedArgs::Print(format!("sparkfleet-edge {}\n", env!("CARGO_PKG_VERSION"))));
            }
            Some(text) if text.starts_with("--config=") => found.config = Some(text["--config=".len()..].into()),
            _ => return Err(ArgumentError::Unknown(argument)),
        }
    }
    Ok(ParsedArgs::Run(found))
}

fn help() -> String {
    let keys = keys::help(&Config::keys());
    format!(
        "Edge sync and edge monitor of one Sparkfleet edge cluster, in one process.\n\n\
         Usage: sparkfleet-edge [--config <file.toml>]\n\n\
         \x20 -c, --config <file>  configuration file (TOML)\n\
         \x20 -h, --help           this text\n\
         \x20 -V, --version        version\n\n\
         Keys of the file. Each can be set by a variable, too: mqtt.servers by SPARKFLEET__MQTT__SERVERS; a key whose\n\
         value is secret or absent by default also by the path of a file that holds it: mqtt.password_file.\n\n{keys}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<ParsedArgs, ArgumentError> {
        parse(arguments.iter().map(OsString::from))
    }

    fn with_file(file: &str) -> Result<ParsedArgs, ArgumentError> {
        Ok(ParsedArgs::Run(Arguments { config: Some(file.into()) }))
    }

    #[test]
    fn the_file_can_be_given_in_every_usual_form() {
        assert_eq!(parsed(&[]), Ok(ParsedArgs::Run(Arguments::default())));
        for arguments in [&["--config", "a.toml"][..], &["-c", "a.toml"], &["--config=a.toml"]] {
            assert_eq!(parsed(arguments), with_file("a.toml"));
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert_eq!(parsed(&["run"]), Err(ArgumentError::Unknown("run".into())));
        assert_eq!(parsed(&["--config"]), Err(ArgumentError::NoFile));
    }

    #[test]
    fn help_lists_every_key() {
        let Ok(ParsedArgs::Print(text)) = parsed(&["--help"]) else { panic!("a text") };
        for key in Config::keys() {
            assert!(text.contains(&format!("  {} ", key.key)), "{}", key.key);
        }
    }
}
