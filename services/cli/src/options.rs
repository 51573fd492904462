//! Options that many commands share: how a command reaches the broker and as whom, how it waits and how it prints.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Names the context where no option does.
pub const CONTEXT_VARIABLE: &str = "SPARKFLEET_CONTEXT";

/// Names the web console where no option does.
pub const CONSOLE_VARIABLE: &str = "SPARKFLEET_CONSOLE";

/// Where `sparkfleet up` serves the web console unless an option of it says otherwise.
pub const CONSOLE_DEFAULT: &str = "http://127.0.0.1:8482";

/// Names the MQTT server where no option does.
pub const BROKER_VARIABLE: &str = "SPARKFLEET_BROKER";

/// Names the file with the token for the console where no option does.
pub const CONSOLE_TOKEN_VARIABLE: &str = "SPARKFLEET_CONSOLE_TOKEN_FILE";

/// Names the file with the authorities of the console's certificate where no option does.
pub const CONSOLE_CA_VARIABLE: &str = "SPARKFLEET_CONSOLE_CA_FILE";

/// How a command reaches the broker, and as whom.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// Context to take the settings from that no option gives (`sparkfleet context list`)
    #[arg(long, env = CONTEXT_VARIABLE, global = true)]
    pub context: Option<String>,
    /// MQTT server: mqtt://HOST:PORT, or mqtts://HOST:PORT for TLS
    #[arg(long, env = BROKER_VARIABLE, default_value = "mqtt://127.0.0.1:1883", global = true)]
    pub broker: String,
    /// Version of MQTT: 3.1.1, 5, or auto, which is 5 where the server speaks it
    #[arg(long, env = "SPARKFLEET_PROTOCOL", default_value = "auto", global = true)]
    pub protocol: sparkplug_mqtt::Protocol,
    /// Organisation: the first part of every Sparkplug group
    #[arg(long, env = "SPARKFLEET_ORGANISATION", default_value = "ACME", global = true)]
    pub organisation: String,
    /// MQTT user
    #[arg(long, env = "SPARKFLEET_USERNAME", global = true)]
    pub username: Option<String>,
    /// File that holds the MQTT password
    #[arg(long, env = "SPARKFLEET_PASSWORD_FILE", global = true)]
    pub password_file: Option<PathBuf>,
    /// PEM file of the certificate authorities to trust, for mqtts
    #[arg(long, env = "SPARKFLEET_CA_FILE", global = true)]
    pub ca_file: Option<PathBuf>,
    /// PEM file of the own certificate, for mqtts
    #[arg(long, env = "SPARKFLEET_CERT_FILE", requires = "key_file", global = true)]
    pub cert_file: Option<PathBuf>,
    /// PEM file of the own private key, for mqtts
    #[arg(long, env = "SPARKFLEET_KEY_FILE", requires = "cert_file", global = true)]
    pub key_file: Option<PathBuf>,
    /// Host Application id under which STATE is published
    #[arg(long, env = "SPARKFLEET_HOST_ID", default_value = "sparkfleet-cli", global = true)]
    pub host_id: String,
}

/// How a command waits and prints.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct Presentation {
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = OutputForm::Table, global = true)]
    pub output: OutputForm,
    /// Give up after this time, for example 20s or 2m
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration, global = true)]
    pub timeout: std::time::Duration,
}

/// How a command prints that reaches nothing outside of this machine.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct Printing {
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = OutputForm::Table)]
    pub output: OutputForm,
}

/// Forms of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    /// For people
    Table,
    /// For people: a list with more columns
    Wide,
    /// A name a line, as other commands take it
    Name,
    /// For programs
    Json,
    /// For people and programs
    Yaml,
}

impl OutputForm {
    /// The form of a document, which people read as YAML.
    #[must_use]
    pub const fn of_document(self) -> Self {
        match self {
            Self::Table | Self::Wide => Self::Yaml,
            other => other,
        }
    }
}

/// What every command on the fleet takes.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub connection: Connection,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub presentation: Presentation,
}

/// Where the web console is, and how its HTTP API is reached.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConsoleAddress {
    /// Context to take the settings from that no option gives (`sparkfleet context list`)
    #[arg(long, env = CONTEXT_VARIABLE)]
    pub context: Option<String>,
    /// Address of the web console, as `sparkfleet up` prints it
    #[arg(long, env = CONSOLE_VARIABLE, default_value = CONSOLE_DEFAULT)]
    pub console: String,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub access: ConsoleAccess,
}

/// As whom the console is asked, and whose certificate it must have.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConsoleAccess {
    /// File with a token (`sparkfleet token create`), for a console that shows nothing without one
    #[arg(id = "console_token_file", long = "console-token-file", env = CONSOLE_TOKEN_VARIABLE)]
    pub token_file: Option<PathBuf>,
    /// PEM file of the certificate authorities to trust, for a console with https; by default those of the system
    #[arg(id = "console_ca_file", long = "console-ca-file", env = CONSOLE_CA_VARIABLE)]
    pub ca_file: Option<PathBuf>,
}

/// Where a list is read, and whether it is followed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Reading")]
pub struct ListOptions {
    /// Go on, and show what changes: the whole list in place on a terminal, the rows that change elsewhere
    #[arg(long, short)]
    pub watch: bool,
    /// Wait until every birth is received, up to --timeout; without it what is known soon is shown, and standard error says what is missing
    #[arg(long)]
    pub complete: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub source: ReadingSource,
}

/// Where a command reads.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Reading")]
pub struct ReadingSource {
    /// Where to read; by default the console where a context or --console names one, else the broker
    #[arg(long, value_enum)]
    pub from: Option<Source>,
    /// Address of a web console to read from
    #[arg(long, env = CONSOLE_VARIABLE)]
    pub console: Option<String>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub access: ConsoleAccess,
}

/// Where a list is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// The HTTP API of the web console; never the broker
    Console,
    /// The broker
    Broker,
}
