//! One way to write logs: to stderr or a file, for people or as one JSON object a line.
//!
//! What is logged is the service's business. The variable `SPARKFLEET_LOG` (syntax of `RUST_LOG`, for example
//! `info,sparkplug_mqtt=debug`) wins over the configured filter.

use crate::config_table;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// The environment variable that overrides the configured filter.
pub const FILTER_VARIABLE: &str = "SPARKFLEET_LOG";

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Coloured text where stderr is a terminal, plain text elsewhere.
    #[default]
    Human,
    /// One JSON object a line, fields at the top level.
    Json,
}

config_table! {
    /// How and what is logged, as a section of a configuration file.
    pub struct LogSection {
        /// `human` or `json`.
        format: LogFormat = LogFormat::Human;
        /// What is logged, in the syntax of `RUST_LOG`, such as `info,sparkplug_mqtt=debug`.
        filter: String = "info".to_owned();
    }
}

/// The text is not a log format.
#[derive(Debug, thiserror::Error)]
#[error("unknown log format {0:?}: use human or json")]
pub struct UnknownLogFormat(String);

/// The filter cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("log filter {filter:?} from {origin} is invalid: write for example \"info,sparkplug_mqtt=debug\"")]
pub struct FilterError {
    filter: String,
    origin: &'static str,
    #[source]
    source: tracing_subscriber::filter::ParseError,
}

/// A log file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileLogError {
    /// It cannot be opened.
    #[error("cannot open the log file {}", .file.display())]
    Open {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The filter cannot be parsed.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

impl FromStr for LogFormat {
    type Err = UnknownLogFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            other => Err(UnknownLogFormat(other.to_owned())),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Human => "human",
            Self::Json => "json",
        })
    }
}

/// Installs the process's log writer, to stderr. A second call (tests, several services in one process) changes nothing.
///
/// # Errors
/// The filter, or the one in `SPARKFLEET_LOG`, cannot be parsed.
pub fn init(format: LogFormat, filter: &str) -> Result<(), FilterError> {
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    install(format, filter, colour, io::stderr)
}

/// The same, appended to a file: for programs whose terminal shows something else.
///
/// # Errors
/// As [`init`], or the file cannot be opened.
pub fn init_to_file(format: LogFormat, filter: &str, file: &Path) -> Result<(), FileLogError> {
    let opened = OpenOptions::new().create(true).append(true).open(file);
    let opened = opened.map_err(|source| FileLogError::Open { file: file.to_owned(), source })?;
    Ok(install(format, filter, false, Arc::new(opened))?)
}

fn install<W>(format: LogFormat, filter: &str, colour: bool, writer: W) -> Result<(), FilterError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let from_environment = std::env::var(FILTER_VARIABLE).ok().filter(|filter| !filter.trim().is_empty());
    let filter = match &from_environment {
        Some(filter) => parse(filter, "SPARKFLEET_LOG")?,
        None => parse(filter, "the configuration")?,
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colour);
    // `try_init` fails when a writer is installed already, which is what "idempotent" asks us to accept.
    let _already_installed = match format {
        LogFormat::Human => builder.try_init().is_err(),
        LogFormat::Json => builder.json().flatten_event(true).try_init().is_err(),
    };
    Ok(())
}

/// Libraries that say each failure of a request, which the services say themselves, once and with what follows. A directive for the same target says otherwise.
const SILENT: &str = "kube_client::client=off,kube_runtime::watcher=off";

fn parse(filter: &str, origin: &'static str) -> Result<EnvFilter, FilterError> {
    EnvFilter::try_new(format!("{SILENT},{filter}")).map_err(|source| FilterError {
        filter: filter.to_owned(),
        origin,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialising_twice_is_accepted() {
        init(LogFormat::Human, "warn").unwrap();
        init(LogFormat::Json, "info,service_runtime=debug").unwrap();
    }

    #[test]
    fn an_invalid_filter_is_named_with_its_origin() {
        let error = parse("info,x=loud", "the configuration").unwrap_err();
        assert!(
            error.to_string().starts_with("log filter \"info,x=loud\" from the configuration is invalid"),
            "{error}"
        );
    }

    /// What is written of two errors, with a filter.
    fn written(filter: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        let writer = Arc::new(file.reopen().unwrap());
        let filter = parse(filter, "the configuration").unwrap();
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(target: "kube_client::client::builder", "failed with status 503");
            tracing::warn!(target: "edge_sync", "object not applied");
        });
        std::fs::read_to_string(file.path()).unwrap()
    }

    #[test]
    fn what_services_say_themselves_is_not_said_by_libraries_unless_asked_for() {
        let of_service = written("info");
        assert!(of_service.contains("object not applied") && !of_service.contains("failed with"), "{of_service}");
        let all = written("info,kube_client::client=error");
        assert!(all.contains("object not applied") && all.contains("failed with status 503"), "{all}");
    }

    #[test]
    fn a_format_is_read_and_written_by_its_name() {
        for format in [LogFormat::Human, LogFormat::Json] {
            assert_eq!(format.to_string().parse::<LogFormat>().unwrap(), format);
        }
        assert_eq!(
            "xml".parse::<LogFormat>().unwrap_err().to_string(),
            "unknown log format \"xml\": use human or json"
        );
    }
}
