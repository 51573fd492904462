//! The command line of the program.

use std::ffi::OsString;
use std::path::PathBuf;

use bootstrapper::Config;
use service_runtime::config::ConfigTable as _;
use service_runtime::keys;

/// What the program is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ParsedArgs {
    /// To run with this configuration file, if there is one.
    Run(Option<PathBuf>),
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
    let mut file = None;
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--config" | "-c") => file = Some(arguments.next().ok_or(ArgumentError::NoFile)?.into()),
            Some("--help" | "-h") => return Ok(ParsedArgs::Print(help())),
            Some("--version" | "-V") => {
                return Ok(ParsedArgs::Print(format!("sparkfleet-bootstrapper {}\n", env!("CARGO_PKG_VERSION"))));
            }
            Some(text) if text.starts_with("--config=") => file = Some(text["--config=".len()..].into()),
            _ => return Err(ArgumentError::Unknown(argument)),
        }
    }
    Ok(ParsedArgs::Run(file))
}

fn help() -> String {
    let tpm = if cfg!(feature = "tpm") { "with" } else { "without" };
    format!(
        "Takes this machine into a Sparkfleet cluster: proves what it is by its TPM, takes its ticket over the broker, locks\n\
         itself to the cluster, gives its state disk the key, and makes itself a member. Built {tpm} a TPM.\n\n\
         Usage: sparkfleet-bootstrapper [--config <file.toml>]\n\n\
         \x20 -c, --config <file>  configuration file (TOML)\n\
         \x20 -h, --help           this text\n\
         \x20 -V, --version        version\n\n\
         Exit codes: 0 the machine is a member, or the program was stopped before the lock; 1 it failed, or a reboot is under\n\
         way; 2 wrong usage; 3 configuration not usable; 4 the address for health is taken; 5 the machine cannot be joined as\n\
         it is, an operator has to look at it.\n\n\
         Keys of the file. Each can be set by a variable, too: mqtt.servers by SPARKFLEET__MQTT__SERVERS; a key whose\n\
         value is secret or absent by default also by the path of a file that holds it: mqtt.password_file.\n\n{}",
        keys::help(&Config::keys())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<ParsedArgs, ArgumentError> {
        parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn the_file_can_be_given_in_every_usual_form_and_what_is_not_understood_is_named() {
        assert_eq!(parsed(&[]), Ok(ParsedArgs::Run(None)));
        for arguments in [&["--config", "a.toml"][..], &["-c", "a.toml"], &["--config=a.toml"]] {
            assert_eq!(parsed(arguments), Ok(ParsedArgs::Run(Some("a.toml".into()))));
        }
        assert_eq!(parsed(&["join"]), Err(ArgumentError::Unknown("join".into())));
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
