//! What can be wrong with a configuration, in one line that says which key, where, and what to write instead.
//!
//! No message repeats a value: it could be a secret that someone wrote to the wrong key.

use config::{Value, ValueKind};
use std::io;
use std::path::PathBuf;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// The configuration file is not TOML.
    #[error("{} is not valid TOML: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The parser's reason with line and column.
        reason: String,
    },
    /// No such key.
    #[error("unknown key {key} in {origin}{}", nearest.as_ref().map(|near| format!(", did you mean {near}?")).unwrap_or_default())]
    UnknownKey {
        /// The key as it was given, dotted.
        key: String,
        /// File or environment variable.
        origin: String,
        /// The known key that looks most like it.
        nearest: Option<String>,
    },
    /// The value has the wrong type.
    #[error("{key} in {origin} must be {expected}, not {found}")]
    WrongType {
        /// The key, dotted.
        key: String,
        /// The type of the key.
        expected: &'static str,
        /// The type of the value.
        found: &'static str,
        /// File or environment variable.
        origin: String,
    },
    /// The value has the right type but is not accepted.
    #[error("{key} in {origin} is invalid: {reason}")]
    Invalid {
        /// The key, dotted.
        key: String,
        /// File or environment variable.
        origin: String,
        /// Why it is not accepted.
        reason: String,
    },
    /// Both a key and the file that holds it are given in one place.
    #[error("both {key} and {key}_file are given in {origin}: keep one of them")]
    GivenTwice {
        /// The key, dotted, without `_file`.
        key: String,
        /// File or environment variable.
        origin: String,
    },
    /// The file that should hold a value cannot be read.
    #[error("cannot read {}, which {key} in {origin} names", path.display())]
    ValueFile {
        /// The key that ends in `_file`.
        key: String,
        /// The file it names.
        path: PathBuf,
        /// File or environment variable.
        origin: String,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
    /// An environment variable is not text.
    #[error("environment variable {variable} is not valid UTF-8")]
    NotUnicode {
        /// Its name.
        variable: String,
    },
    /// The service's own defaults cannot be serialised; a defect of the program.
    #[error("the default configuration cannot be used: {reason}")]
    Defaults {
        /// Why.
        reason: String,
    },
}

impl ConfigError {
    /// Merging checked layers has no known way to fail.
    pub(super) fn from_merge(error: &config::ConfigError) -> Self {
        Self::Defaults { reason: flat(&error.to_string()) }
    }

    /// Explains why the merged `values` do not make a `T`; `choices` is serde's list of variants, if that was the problem.
    pub(super) fn from_type(error: &config::ConfigError, values: &Value, choices: Option<String>) -> Self {
        let (key, reason) = explain(error);
        let key = key.unwrap_or_else(|| "the configuration".to_owned());
        let origin = origin_of(&key, values).unwrap_or_else(|| "file and environment".to_owned());
        Self::Invalid { key, origin, reason: choices.unwrap_or(reason) }
    }
}

fn explain(error: &config::ConfigError) -> (Option<String>, String) {
    match error {
        config::ConfigError::Type { unexpected, expected, key, .. } => {
            let found = unexpected.to_string();
            let kind = found.split(['`', '"']).next().unwrap_or_default().trim().to_owned();
            (key.clone(), format!("expected {expected}, found {kind}"))
        }
        config::ConfigError::At { error, key, .. } => {
            let (inner, reason) = explain(error);
            (key.clone().or(inner), reason)
        }
        config::ConfigError::NotFound(key) => (Some(key.clone()), "it is required and has no default".to_owned()),
        other => (None, flat(&other.to_string())),
    }
}

/// Where the value of a dotted key (or the closest table above it) comes from.
fn origin_of(key: &str, values: &Value) -> Option<String> {
    let mut found = values;
    for part in key.split('.') {
        let name = part.split('[').next().unwrap_or(part);
        match &found.kind {
            ValueKind::Table(table) => match table.get(name) {
                Some(value) => found = value,
                None => break,
            },
            _ => break,
        }
    }
    found.origin().map(str::to_owned)
}

/// The line and the reason of a TOML error, without the drawing between them.
pub(super) fn toml_reason(error: &config::ConfigError) -> String {
    let text = error.to_string();
    let lines =
        text.lines().filter(|line| !line.contains('|')).map(|line| line.trim_start_matches("TOML parse error at "));
    flat(&lines.collect::<Vec<_>>().join(": "))
}

/// One line from any text: runs of white space, control characters and marks of writing direction become one space.
pub(crate) fn flat(text: &str) -> String {
    // Unicode Bidi_Control, and the mark of byte order.
    let is_mark = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    text.split(|c: char| c.is_whitespace() || c.is_control() || is_mark(c))
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
