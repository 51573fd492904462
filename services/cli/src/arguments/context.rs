//! Options of the commands about contexts, and of `login`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::options::{Presentation, Printing};

/// `sparkfleet context ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum ContextCommand {
    /// List contexts; the current one has a star
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        printing: Printing,
    },
    /// Make a context the current one
    Use {
        /// Its name
        name: String,
    },
    /// Show the settings of a context
    Show {
        /// Its name; by default the current one
        name: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        printing: Printing,
    },
    /// Create a context, or change settings of one
    Set(Box<SetArguments>),
    /// Give a context another name
    Rename {
        /// Its name
        name: String,
        /// Its new name
        new: String,
    },
    /// Delete a context, and the token that `login` has stored for it
    #[command(visible_alias = "rm")]
    Delete {
        /// Its name
        name: String,
    },
}

/// `sparkfleet context set`.
#[derive(Debug, Clone, Args)]
pub struct SetArguments {
    /// Name: letters, digits, `.`, `_` and `-`
    pub name: String,
    /// MQTT server: mqtt://HOST:PORT, or mqtts://HOST:PORT for TLS
    #[arg(long)]
    pub broker: Option<String>,
    /// Version of MQTT: 3.1.1, 5, or auto, which is 5 where the server speaks it
    #[arg(long, value_parser = protocol)]
    pub protocol: Option<String>,
    /// Organisation: the first part of every Sparkplug group
    #[arg(long)]
    pub organisation: Option<String>,
    /// MQTT user
    #[arg(long)]
    pub username: Option<String>,
    /// File that holds the MQTT password
    #[arg(long)]
    pub password_file: Option<PathBuf>,
    /// PEM file of the certificate authorities to trust, for mqtts
    #[arg(long)]
    pub ca_file: Option<PathBuf>,
    /// PEM file of the own certificate, for mqtts
    #[arg(long)]
    pub cert_file: Option<PathBuf>,
    /// PEM file of the own private key, for mqtts
    #[arg(long)]
    pub key_file: Option<PathBuf>,
    /// Host Application id under which STATE is published
    #[arg(long)]
    pub host_id: Option<String>,
    /// Address of the web console; lists are read there
    #[arg(long)]
    pub console: Option<String>,
    /// File with a token for the console
    #[arg(long)]
    pub token_file: Option<PathBuf>,
    /// PEM file of the certificate authorities to trust, for https of the console
    #[arg(long)]
    pub http_ca_file: Option<PathBuf>,
    /// Setting to take away, by the name of its option without dashes; may be given several times
    #[arg(long, value_name = "SETTING")]
    pub unset: Vec<String>,
    /// Make it the current one
    #[arg(long = "use")]
    pub make_current: bool,
}

/// `sparkfleet login`.
#[derive(Debug, Clone, Args)]
pub struct LoginArguments {
    /// Address of the web console, as a browser shows it
    pub url: String,
    /// File with the token (`sparkfleet token create`); - for standard input, whose token is stored for the owner alone
    #[arg(long, default_value = "-")]
    pub token_file: PathBuf,
    /// Name of the context; by default the host name of the address
    #[arg(long)]
    pub name: Option<String>,
    /// PEM file of the certificate authorities to trust, for https; by default those of the system
    #[arg(long)]
    pub ca_file: Option<PathBuf>,
    /// MQTT server of the context: mqtt://HOST:PORT, or mqtts://HOST:PORT for TLS; what writes needs it
    #[arg(long)]
    pub broker: Option<String>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub presentation: Presentation,
}

/// A version of MQTT as it is written.
fn protocol(text: &str) -> Result<String, String> {
    let protocol = text.parse::<sparkplug_mqtt::Protocol>().map_err(|error| error.to_string());
    protocol.map(|_| text.to_owned())
}
