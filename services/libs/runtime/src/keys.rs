//! Documented configuration keys: what `--help` and the reference print, kept honest by a test.
//!
//! A service lists its keys once and lets a test compare them with its real defaults:
//!
//! ```
//! use serde::Serialize;
//! use service_runtime::keys::{self, ConfigKey};
//!
//! #[derive(Serialize)]
//! struct Config { organisation: String, listen: Option<String> }
//!
//! impl Default for Config {
//!     fn default() -> Self {
//!         Self { organisation: "ACME".to_owned(), listen: None }
//!     }
//! }
//!
//! const KEYS: &[ConfigKey] = &[
//!     ConfigKey { key: "organisation", default: "ACME", help: "prefix of every group id" },
//!     ConfigKey { key: "listen", default: "", help: "address for health and metrics; absent: none" },
//! ];
//!
//! keys::check::<Config>(KEYS)?;
//! # Ok::<(), keys::KeysError>(())
//! ```
//!
//! This module must not know any key.

use crate::config::{ConfigError, PREFIX, Tree, text_of};
use serde::Serialize;
use std::fmt::Write;

/// One configuration key as it is explained to a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigKey {
    /// Dotted, as in the file: `mqtt.client_id`.
    pub key: &'static str,
    /// The default as it would be written in the environment, empty if there is none. In parentheses: a description of a
    /// default that depends on the machine, such as `(the host's name)`.
    pub default: &'static str,
    /// One sentence: what it does, with its unit.
    pub help: &'static str,
}

impl ConfigKey {
    /// The environment variable that sets this key.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.replace('.', "__").to_uppercase())
    }
}

/// The documented keys are not the real ones.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The defaults cannot be serialised.
    #[error(transparent)]
    Defaults(#[from] ConfigError),
    /// What to change in the documentation, one item a difference.
    #[error("documented configuration keys differ from the real ones: {}", .0.join("; "))]
    Differ(Vec<String>),
}

/// Checks that `keys` are exactly the keys of `T::default()`, each once, each with its real default.
///
/// # Errors
/// Every difference, by name.
pub fn check<T: Default + Serialize>(keys: &[ConfigKey]) -> Result<(), KeysError> {
    let tree = Tree::of(&T::default())?;
    let mut differences = Vec::new();
    let real = tree.leaves();
    for (key, value) in &real {
        let default = text_of(value);
        let documented: Vec<_> = keys.iter().filter(|documented| documented.key == key).collect();
        match documented[..] {
            [] => differences.push(format!("{key} is not documented")),
            [one] if one.default.starts_with('(') || one.default == default => {}
            [one] => differences.push(format!("the default of {key} is {default:?}, not {:?}", one.default)),
            _ => differences.push(format!("{key} is documented more than once")),
        }
    }
    for documented in keys {
        if !real.iter().any(|(key, _)| key == documented.key) {
            differences.push(format!("{} does not exist", documented.key));
        }
    }
    if differences.is_empty() { Ok(()) } else { Err(KeysError::Differ(differences)) }
}

/// The keys as aligned text, for `--help`.
#[must_use]
pub fn help(keys: &[ConfigKey]) -> String {
    let width = keys.iter().map(|key| key.key.len()).max().unwrap_or_default();
    let mut text = String::new();
    for ConfigKey { key, default, help } in keys {
        let default = if default.is_empty() { String::new() } else { format!(" [default: {default}]") };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {key:width$}  {help}{default}");
    }
    text
}

/// The keys as a Markdown table, for the reference.
#[must_use]
pub fn markdown(keys: &[ConfigKey]) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let mut text = String::from("| Key | Environment | Default | Meaning |\n|---|---|---|---|\n");
    for key in keys {
        let default = if key.default.is_empty() { String::new() } else { format!("`{}`", cell(key.default)) };
        let _ = writeln!(text, "| `{}` | `{}` | {default} | {} |", key.key, key.variable(), cell(key.help));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Mqtt {
        servers: Vec<&'static str>,
        password: crate::config::Secret,
    }

    #[derive(Serialize)]
    struct Config {
        name: &'static str,
        mqtt: Mqtt,
    }

    impl Default for Config {
        fn default() -> Self {
            Self { name: "box-7", mqtt: Mqtt { servers: vec!["a", "b"], password: "secret".into() } }
        }
    }

    const NAME: ConfigKey = ConfigKey { key: "name", default: "(the host's name)", help: "who | what" };
    const SERVERS: ConfigKey = ConfigKey { key: "mqtt.servers", default: "a,b", help: "brokers, tried in turn" };
    const PASSWORD: ConfigKey = ConfigKey { key: "mqtt.password", default: "", help: "of the broker" };

    #[test]
    fn the_real_keys_pass() {
        check::<Config>(&[PASSWORD, NAME, SERVERS]).unwrap();
    }

    #[test]
    fn every_difference_is_told() {
        let wrong = [ConfigKey { default: "a", ..SERVERS }, ConfigKey { key: "mqtt.passwd", ..PASSWORD }, NAME, NAME];
        let KeysError::Differ(differences) = check::<Config>(&wrong).unwrap_err() else { panic!("defaults are fine") };
        let expected = [
            "name is documented more than once",
            "the default of mqtt.servers is \"a,b\", not \"a\"",
            "mqtt.password is not documented",
            "mqtt.passwd does not exist",
        ];
        assert_eq!(differences, expected);
    }

    #[test]
    fn help_is_aligned_and_markdown_is_escaped() {
        assert_eq!(
            help(&[NAME, SERVERS]),
            "  name          who | what [default: (the host's name)]\n  mqtt.servers  brokers, tried in turn [default: a,b]\n"
        );
        let row = markdown(&[NAME]).lines().last().unwrap().to_owned();
        assert_eq!(row, "| `name` | `SPARKFLEET__NAME` | `(the host's name)` | who \\| what |");
    }
}
