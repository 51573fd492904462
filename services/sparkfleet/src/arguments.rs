//! The command line of the program: the commands on a fleet ([`sparkfleet_cli::Command`]), `up`, and each service as a subcommand.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use service_runtime::exit;
use sparkfleet_cli::options::{Connection, Printing};
use sparkfleet_up::arguments::{SimulateArguments, SimulateHostArguments, UpArguments};
use uuid::Uuid;

use crate::service::{self, ConfigDbArguments, ServiceArguments};

/// Explained below every `--help`.
const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 configuration not usable; 4 broker or port not available; \
5 refused (the reason is printed); 6 not reached in time; 7 not found; 130 interrupted.";

/// Examples below the help of `sparkfleet completions`.
const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(sparkfleet completions bash)      # in ~/.bashrc
  source <(sparkfleet completions zsh)       # in ~/.zshrc, after compinit
  sparkfleet completions fish | source       # in ~/.config/fish/config.fish
";

/// Commission and run factory edge clusters over nothing but an MQTT broker and Sparkplug.
#[derive(Debug, Parser)]
#[command(name = "sparkfleet", version, max_term_width = 110)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// The command line as clap knows it, with the exit codes below every `--help`, and the configuration keys of each service above them.
    #[must_use]
    pub fn described() -> clap::Command {
        let services = service::services();
        let command = services.into_iter().fold(Self::command(), |command, (service, keys)| {
            command.mut_subcommand(service, |subcommand| subcommand.after_help(service::keys_help(&keys)))
        });
        with_exit_codes(command)
    }

    /// Reads the process's arguments in the context that they, the environment or the user's file name; ends the process for `--help`, `--version` and wrong usage.
    ///
    /// # Errors
    /// As [`sparkfleet_cli::context::read`].
    pub fn read() -> anyhow::Result<Self> {
        let words = std::env::args_os().collect();
        let parse = |command: clap::Command, words: Vec<std::ffi::OsString>| command.try_get_matches_from(words);
        let matches = sparkfleet_cli::context::read(Self::described(), words, parse)?;
        let matches = matches.unwrap_or_else(|error| error.exit());
        if let Some(("up", up)) = matches.subcommand() {
            check_broker_of_up(up)?;
        }
        Ok(Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
    }
}

/// The embedded broker and another one exclude each other. clap would name `--broker` also where the environment names it, which the user has not written.
///
/// # Errors
/// With [`exit::USAGE`], naming what was set.
fn check_broker_of_up(up: &clap::ArgMatches) -> anyhow::Result<()> {
    let set_by = match up.value_source("broker") {
        Some(ValueSource::CommandLine) => "--broker",
        Some(ValueSource::EnvVariable) => "SPARKFLEET_BROKER",
        _ => return Ok(()),
    };
    let of_embedded =
        [("listen", "--listen is of the embedded broker"), ("replay", "--replay is shown on a broker of its own")];
    let given = of_embedded.iter().find(|(id, _)| up.value_source(id) == Some(ValueSource::CommandLine));
    let Some((id, what)) = given else { return Ok(()) };
    let broker = up.get_one::<String>("broker").map_or("", String::as_str);
    let mend = if set_by == "--broker" { "leave out" } else { "unset" };
    let error =
        anyhow::anyhow!("{what}, and {set_by} names another one ({broker}): {mend} {set_by}, or leave out --{id}");
    Err(exit::with_code(exit::USAGE, error))
}

/// Puts the exit codes below the help of a command and of all below it, after what stands there: clap shows that text for one command alone.
fn with_exit_codes(command: clap::Command) -> clap::Command {
    let text = command.get_after_help().map_or_else(|| EXIT_CODES.to_owned(), |own| format!("{own}\n{EXIT_CODES}"));
    let command = command.after_help(text);
    let below: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    below.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_exit_codes))
}

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a whole factory on this machine: broker, central services and simulated edge clusters
    Up(UpArguments),
    /// A command on a fleet that runs.
    #[command(flatten)]
    Fleet(sparkfleet_cli::Command),
    /// Read and write ConfigDB entries
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Show every Edge Node of any broker in a browser: needs no factory, and publishes nothing
    Explore(ExploreArguments),
    /// Run the ConfigDB against a broker
    #[command(name = "configdb")]
    ConfigDb(ConfigDbArguments),
    /// Run the cluster manager against a broker
    ClusterManager(ServiceArguments),
    /// Run Identity, the certificate authority of the clusters, against a broker
    Identity(ServiceArguments),
    /// Run the git server, from which clusters and users read repositories, against a broker
    GitServer(ServiceArguments),
    /// Run an edge sync on an edge cluster
    EdgeSync(ServiceArguments),
    /// Run an edge monitor on an edge cluster, or the central monitor
    EdgeMonitor(ServiceArguments),
    /// Run the join service of an edge cluster
    JoinService(ServiceArguments),
    /// Run the web console against a broker
    Console(ServiceArguments),
    /// Run the keeper of Kerberos keys on an edge cluster
    #[cfg(feature = "kerberos")]
    KrbKeys(ServiceArguments),
    /// Enrol this edge cluster: ask Identity for its certificate by a one-time token, and write the Secrets of it
    Enrol(Box<EnrolArguments>),
    /// Run one simulated edge cluster against a broker
    SimulateCluster(SimulateArguments),
    /// Run one simulated host that wants to join a cluster of `sparkfleet up`, or any other whose policy names simulated evidence
    SimulateHost(SimulateHostArguments),
    /// Print the version of this program, also for programs: -o json
    Version(Printing),
    /// Print the completion script of a shell; in bash, zsh and fish it completes names of the fleet, too
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print what the last word of a command line can be, for the scripts of `completions`
    #[command(hide = true)]
    Complete {
        /// Whose script asks
        shell: Asking,
        /// The words up to the cursor, the program first
        #[arg(last = true)]
        words: Vec<OsString>,
    },
    /// Write the manual pages of all commands into a directory, such as /usr/local/share/man/man1
    Man {
        /// The directory
        directory: PathBuf,
    },
}

/// Shells whose scripts ask the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Asking {
    /// It takes candidates alone; words come as they were typed, in quotes.
    Bash,
    /// It takes candidates with what they mean, after a tab; words come as they were typed, in quotes.
    Zsh,
    /// It takes candidates with what they mean, after a tab; only the last word comes as it was typed.
    Fish,
}

/// `sparkfleet config ...`: its entries, and the files of its store.
#[derive(Debug, Clone, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one of it, while the command line is read")]
pub enum ConfigCommand {
    /// A command on entries.
    #[command(flatten)]
    Entries(sparkfleet_cli::arguments::ConfigCommand),
    /// Copy ConfigDB's store into one file, while ConfigDB runs or not; on the machine where its state directory is
    Backup {
        /// The new file; - for standard output
        file: PathBuf,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        store: StoreArguments,
    },
    /// Put a backup in the place of ConfigDB's store, while ConfigDB is stopped; what was there is kept beside it
    Restore {
        /// A file that `config backup` has made
        file: PathBuf,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        store: StoreArguments,
    },
}

/// `sparkfleet explore`.
#[derive(Debug, Clone, Args)]
pub struct ExploreArguments {
    /// Address of the page; must be a loopback address. Port 0 chooses one
    #[arg(long, default_value = "127.0.0.1:8483")]
    pub listen: std::net::SocketAddr,
    /// Ask nodes whose birth was not received for a rebirth
    #[arg(long)]
    pub rebirth: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub connection: Connection,
}

/// `sparkfleet enrol`, which a Job of the bootstrap script runs.
#[derive(Debug, Clone, Args)]
pub struct EnrolArguments {
    /// UUID of the cluster
    #[arg(long, env = "SPARKFLEET_ENROL_CLUSTER")]
    pub cluster: Uuid,
    /// Name of the cluster, for people
    #[arg(long, env = "SPARKFLEET_ENROL_NAME", default_value = "this cluster")]
    pub name: String,
    /// Organisation: the first part of every Sparkplug group
    #[arg(long, env = "SPARKFLEET_ENROL_ORGANISATION", default_value = "ACME")]
    pub organisation: String,
    /// Namespace of the Secrets
    #[arg(long, env = "SPARKFLEET_ENROL_NAMESPACE", default_value = "fplus-edge")]
    pub namespace: String,
    /// File with the one-time token
    #[arg(long, env = "SPARKFLEET_ENROL_TOKEN_FILE")]
    pub token_file: PathBuf,
    /// Public enrolment key of Identity, base64url
    #[arg(long, env = "SPARKFLEET_ENROL_IDENTITY_KEY")]
    pub identity_key: String,
    /// How long to ask
    #[arg(long, env = "SPARKFLEET_ENROL_TIMEOUT", default_value = "10m", value_parser = humantime::parse_duration)]
    pub timeout: std::time::Duration,
    /// MQTT servers, separated by commas
    #[arg(long, env = "SPARKFLEET_MQTT_SERVERS", value_delimiter = ',', default_value = "mqtt://127.0.0.1:1883")]
    pub servers: Vec<String>,
    /// MQTT user
    #[arg(long, env = "SPARKFLEET_MQTT_USERNAME")]
    pub username: Option<String>,
    /// File that holds the MQTT password
    #[arg(long, env = "SPARKFLEET_MQTT_PASSWORD_FILE")]
    pub password_file: Option<PathBuf>,
    /// PEM file of the certificate authorities to trust, for mqtts
    #[arg(long, env = "SPARKFLEET_MQTT_CA_FILE")]
    pub ca_file: Option<PathBuf>,
    /// PEM file of a certificate that may enrol
    #[arg(long, env = "SPARKFLEET_MQTT_CERT_FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,
    /// PEM file of its private key
    #[arg(long, env = "SPARKFLEET_MQTT_KEY_FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,
    /// API server without authentication (a simulator); by default the pod's service account, or kubeconfig
    #[arg(long, env = "SPARKFLEET_KUBERNETES_URL")]
    pub kubernetes_url: Option<String>,
}

/// Which store, and how what was done is printed.
#[derive(Debug, Clone, Args)]
pub struct StoreArguments {
    /// State directory of ConfigDB; by default that of its configuration (/var/lib/sparkfleet/configdb)
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// ConfigDB's configuration file (TOML), as ConfigDB takes it
    #[arg(long, env = "SPARKFLEET_CONFIG")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub printing: Printing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_beside_the_embedded_one_is_refused_by_what_the_user_has_set() {
        let refusal = |words: &[&str], variable: Option<&'static str>| {
            let command = Arguments::command().mut_subcommand("up", |up| {
                // The environment of the test is not to be changed: a variable that is there stands for ours.
                up.mut_arg("broker", |broker| match variable {
                    Some(name) => broker.env(name),
                    None => broker.env(None::<&'static str>),
                })
            });
            let matches = command.try_get_matches_from(["sparkfleet", "up"].iter().chain(words)).unwrap();
            check_broker_of_up(matches.subcommand().unwrap().1).map_err(|error| {
                assert_eq!(exit::code_of(&error), exit::USAGE);
                error.to_string()
            })
        };
        // PATH is set wherever a test runs.
        let path = std::env::var("PATH").unwrap();
        let listen = ["--listen", "127.0.0.1:1"];
        assert_eq!(
            refusal(&listen, Some("PATH")),
            Err(format!(
                "--listen is of the embedded broker, and SPARKFLEET_BROKER names another one ({path}): unset SPARKFLEET_BROKER, or leave out --listen"
            ))
        );
        let both = [&listen[..], &["--broker", "mqtt://a"]].concat();
        let text = "--listen is of the embedded broker, and --broker names another one (mqtt://a): leave out --broker, or leave out --listen";
        assert_eq!(refusal(&both, None), Err(text.to_owned()));
        assert_eq!(refusal(&listen, None), Ok(()));
        assert_eq!(refusal(&["--broker", "mqtt://a"], None), Ok(()));
        let replay = refusal(&["--replay", "f", "--broker", "mqtt://a"], None).unwrap_err();
        assert!(replay.ends_with("leave out --replay"), "{replay}");
    }
}
