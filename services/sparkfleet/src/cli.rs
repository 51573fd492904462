//! The command line: every command, option and default. What a command does is in [`crate::command`].

pub mod access;
pub mod joining;
pub mod past;
pub mod recover;
pub mod replay;
pub mod secret;
pub mod store;

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use configdb_schema::document::GitRef;
use join_protocol::simulated::LOCK_REGISTER;
use uuid::Uuid;

use crate::watch::WatchArguments;
use access::{AuditCommand, TokenCommand};
use joining::{HostCommand, PolicyCommand, TrustCommand};
use past::{AtArguments, EventsArguments};
use recover::RecoverCommand;
use replay::{ReplayArguments, WriteArguments};
use secret::SecretCommand;
use store::StoreArguments;

/// Explained below every `--help`.
const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 configuration not usable; 4 broker or port not available; \
5 refused (the reason is printed); 6 not reached in time; 7 not found; 130 interrupted.";

/// Commission and run factory edge clusters over nothing but an MQTT broker and Sparkplug.
#[derive(Debug, Parser)]
#[command(name = "sparkfleet", version, after_help = EXIT_CODES, max_term_width = 110)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// The command line as clap knows it, with the exit codes below every `--help`, and the configuration keys of each service above them.
    #[must_use]
    pub fn described() -> clap::Command {
        let services = crate::command::service::services();
        let command = services.into_iter().fold(Self::command(), |command, (service, keys)| {
            let help = format!("{}\n{EXIT_CODES}", crate::command::service::keys_help(&keys));
            command.mut_subcommand(service, |subcommand| subcommand.after_help(help))
        });
        with_exit_codes(command)
    }

    /// Reads the process's arguments; ends the process for `--help`, `--version` and wrong usage.
    #[must_use]
    pub fn read() -> Self {
        let matches = Self::described().get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// clap shows the text below a command's help for that command alone.
fn with_exit_codes(command: clap::Command) -> clap::Command {
    let command = if command.get_after_help().is_none() { command.after_help(EXIT_CODES) } else { command };
    let below: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    below.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_exit_codes))
}

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a whole factory on this machine: broker, centre and simulated edge clusters
    Up(UpArguments),
    /// Print Sparkplug messages as they pass, decoded; record them; or show a tree of who is alive
    Watch(WatchArguments),
    /// Publish the births, data and deaths of a recording again
    Replay(ReplayArguments),
    /// Write one metric of any Edge Node or device, with the datatype of its birth
    Write(WriteArguments),
    /// Print the address of the web console, and open it where there is a desktop
    Ui(UiArguments),
    /// Show every Edge Node of any broker in a browser: needs no factory, and publishes nothing
    Explore(ExploreArguments),
    /// Create, list, show and delete edge clusters
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Create, list, show, move and delete deployments on edge clusters
    #[command(subcommand)]
    Deployment(DeploymentCommand),
    /// Show on one page whether the broker, the central services and every cluster are well, and what waits
    Status {
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// List active alerts of all clusters and central services
    #[command(subcommand)]
    Alert(AlertCommand),
    /// List what happened in the fleet, as the web console has recorded it
    Events(EventsArguments),
    /// List clusters, hosts, deployments or alerts as they were at a time, or what changed between two times
    At(AtArguments),
    /// Read and write ConfigDB entries
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Decide what clusters follow after ConfigDB was restored from a backup, or lost
    #[command(subcommand)]
    Recover(RecoverCommand),
    /// List, show, approve and revoke hosts that join by attestation
    #[command(subcommand)]
    Host(HostCommand),
    /// Show and write the attestation policy of an edge cluster
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Make the keys that joining hosts believe
    #[command(subcommand)]
    Trust(TrustCommand),
    /// Seal secrets so that only one edge cluster can open them; put them into its repository, list and delete them
    #[command(subcommand)]
    Secret(SecretCommand),
    /// Make, list and revoke tokens for the cluster manager's HTTP API
    #[command(subcommand)]
    Token(TokenCommand),
    /// Check the cluster manager's record of writes
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Write the access control of an MQTT server: who may say and hear what
    #[command(subcommand)]
    Acl(AclCommand),
    /// Run the ConfigDB against a broker
    #[command(name = "configdb")]
    ConfigDb(ConfigDbArguments),
    /// Run the cluster manager and its git server against a broker
    ClusterManager(ServiceArguments),
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
    /// Enrol this edge cluster: ask the cluster manager for its certificate by a one-time token, and write the Secrets of it
    Enrol(Box<EnrolArguments>),
    /// Run one simulated edge cluster against a broker
    SimulateCluster(SimulateArguments),
    /// Run one simulated host that wants to join a cluster of `sparkfleet up`, or any other whose policy names simulated evidence
    SimulateHost(SimulateHostArguments),
    /// Print the completion script of a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// `sparkfleet ui`.
#[derive(Debug, Clone, Args)]
pub struct UiArguments {
    /// Address of the console
    #[arg(long, env = "SPARKFLEET_CONSOLE", default_value = "http://127.0.0.1:8482/")]
    pub url: String,
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
    /// Public enrolment key of the cluster manager, base64url
    #[arg(long, env = "SPARKFLEET_ENROL_MANAGER_KEY")]
    pub manager_key: String,
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

/// How a command reaches the broker, and as whom.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// MQTT server: mqtt://HOST:PORT, or mqtts://HOST:PORT for TLS
    #[arg(long, env = "SPARKFLEET_BROKER", default_value = "mqtt://127.0.0.1:1883", global = true)]
    pub broker: String,
    /// Version of MQTT: 3.1.1 or 5
    #[arg(long, env = "SPARKFLEET_PROTOCOL", default_value = "3.1.1", global = true)]
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
    /// For programs
    Json,
    /// For people and programs
    Yaml,
}

/// `sparkfleet up`.
#[derive(Debug, Clone, Args)]
pub struct UpArguments {
    /// Directory that keeps everything between two runs
    #[arg(long, env = "SPARKFLEET_DATA_DIR", default_value = ".sparkfleet")]
    pub data_dir: PathBuf,
    /// Address of the embedded MQTT broker
    #[arg(long, default_value = "127.0.0.1:1883")]
    pub listen: std::net::SocketAddr,
    /// Use the broker of the site instead of an embedded one: mqtt://HOST:PORT
    #[arg(long, env = "SPARKFLEET_BROKER", conflicts_with = "listen")]
    pub broker: Option<String>,
    /// Version of MQTT that every part speaks: 3.1.1 or 5
    #[arg(long, env = "SPARKFLEET_PROTOCOL", default_value = "3.1.1")]
    pub protocol: sparkplug_mqtt::Protocol,
    /// Displace the services of this organisation that run on the broker, instead of ending when there are some
    #[arg(long)]
    pub take_over: bool,
    /// Address of the git server
    #[arg(long, default_value = "127.0.0.1:8480")]
    pub git: std::net::SocketAddr,
    /// Address of health and metrics pages (/livez /readyz /metrics)
    #[arg(long, default_value = "127.0.0.1:8481")]
    pub http: std::net::SocketAddr,
    /// Address of the web console; must be a loopback address
    #[arg(long, default_value = "127.0.0.1:8482")]
    pub console_listen: std::net::SocketAddr,
    /// ConfigDB dump to load at the first start; by default the one built in (examples/factory.yaml)
    #[arg(long)]
    pub load: Option<PathBuf>,
    /// Organisation: the first part of every Sparkplug group
    #[arg(long, env = "SPARKFLEET_ORGANISATION", default_value = "ACME")]
    pub organisation: String,
    /// Hosts of each simulated edge cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub hosts: u16,
    /// Print one line per change instead of a live table (also when the output is no terminal)
    #[arg(long)]
    pub plain: bool,
}

/// A service on its own.
#[derive(Debug, Clone, Args)]
pub struct ServiceArguments {
    /// Configuration file (TOML); environment variables SPARKFLEET__SECTION__KEY override it
    #[arg(long, env = "SPARKFLEET_CONFIG")]
    pub config: Option<PathBuf>,
    /// Form of the log on standard error: human or json; SPARKFLEET_LOG filters it
    #[arg(long, env = "SPARKFLEET_LOG_FORMAT", default_value = "human")]
    pub log_format: service_runtime::logging::LogFormat,
}

/// `sparkfleet configdb`.
#[derive(Debug, Clone, Args)]
pub struct ConfigDbArguments {
    /// What every service takes.
    #[command(flatten)]
    pub service: ServiceArguments,
    /// Begin an empty database although this ConfigDB has run with one before
    #[arg(long)]
    pub new_store: bool,
}

/// `sparkfleet simulate-cluster`.
#[derive(Debug, Clone, Args)]
pub struct SimulateArguments {
    /// Name of the edge cluster, as created with `sparkfleet cluster create`
    pub name: String,
    /// Namespace of the edge services, as in the cluster's configuration
    #[arg(long, default_value = "fplus-edge")]
    pub namespace: String,
    /// File with the manifests that make Flux follow the cluster's repository (`self_link` of EdgeClusterSetup); - for standard input
    #[arg(long, default_value = "-")]
    pub self_link: PathBuf,
    /// File that holds the password of the repository; none where the server allows anonymous reading
    #[arg(long)]
    pub git_password_file: Option<PathBuf>,
    /// Number of simulated hosts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub hosts: u16,
    /// Directory for the edge services' state
    #[arg(long, default_value = ".sparkfleet/edge")]
    pub data_dir: PathBuf,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub connection: Connection,
}

/// `sparkfleet simulate-host`.
#[derive(Debug, Clone, Args)]
pub struct SimulateHostArguments {
    /// Name that it asks for, such as press-shop-4
    pub name: String,
    /// Cluster name or UUID
    #[arg(long)]
    pub cluster: String,
    /// File with the public key of the organisation's root
    #[arg(long, default_value = ".sparkfleet/trust/root.pub")]
    pub root: PathBuf,
    /// Directory of simulated hosts; what is below CLUSTER/NAME there is this machine: its TPM and its disk
    #[arg(long, default_value = ".sparkfleet/hosts")]
    pub data_dir: PathBuf,
    /// It wants to join the control plane
    #[arg(long)]
    pub control_plane: bool,
    /// It has started other software: REGISTER=TEXT is measured in addition
    #[arg(long, value_parser = measurement)]
    pub measure: Vec<(u32, String)>,
    /// As a member it renews its certificates so often, for example 1m; by default when two thirds of their life are over
    #[arg(long, value_parser = humantime::parse_duration)]
    pub renew_every: Option<std::time::Duration>,
    /// MQTT server that the host itself speaks over, if that is another one than the operator's
    #[arg(long)]
    pub host_broker: Option<String>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub options: Options,
}

fn measurement(text: &str) -> Result<(u32, String), String> {
    let (register, what) = text.split_once('=').ok_or("write REGISTER=TEXT, such as 4=other-boot-loader")?;
    let register = register.parse().ok().filter(|register| *register < 24 && *register != LOCK_REGISTER);
    let register = register
        .ok_or_else(|| format!("a register is a number from 0 to 23 and not {LOCK_REGISTER}, which is the lock"))?;
    Ok((register, what.to_owned()))
}

/// `sparkfleet cluster ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum ClusterCommand {
    /// Create an edge cluster: writes its EdgeCluster entry
    Create {
        /// Name: letters, digits and `_`, beginning with a letter
        name: String,
        /// Kubernetes namespace of the edge services
        #[arg(long, default_value = "fplus-edge")]
        namespace: String,
        /// The site manages Flux and sealed secrets itself
        #[arg(long)]
        bare: bool,
        /// UUID to use; by default derived from organisation and name, so that a repeated command changes nothing
        #[arg(long)]
        uuid: Option<Uuid>,
        /// Wait until its setup is ready and its edge sync is born
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// List edge clusters with their setup, their liveness and what Flux says of their own release
    List {
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Show one edge cluster: setup, Flux, hosts, deployments, alerts
    Show {
        /// Name or UUID
        cluster: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Print the line that makes a Kubernetes cluster this edge cluster, to be pasted where kubectl reaches it
    Bootstrap {
        /// Name or UUID
        cluster: String,
        /// How long the line can be used, for example 2h
        #[arg(long, default_value = "24h", value_parser = humantime::parse_duration)]
        expires: std::time::Duration,
        /// Print none; revoke all that were printed for this cluster
        #[arg(long)]
        revoke: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Show and end the identities of an edge cluster
    #[command(subcommand)]
    Identity(IdentityCommand),
    /// Show or change when a changed chart template reaches an edge cluster, and where it stays in repositories of charts
    Rollout {
        /// Name or UUID
        cluster: String,
        /// Its wave: a change goes to it when every cluster of an earlier wave runs it and is ready; 9 is the last, and that of clusters that have none
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=9))]
        wave: Option<u8>,
        /// Stay at a place in a git repository: REPOSITORY=commit:HASH, or tag:NAME, semver:RANGE, branch:NAME; may be given several times
        #[arg(long, value_parser = crate::command::rollout::pin)]
        pin: Vec<(String, GitRef)>,
        /// Follow a git repository again as its template says; may be given several times
        #[arg(long, value_name = "REPOSITORY")]
        unpin: Vec<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Delete an edge cluster; its tear-down runs in order, and what stays on its Kubernetes is printed with the command that removes it
    Delete {
        /// Name or UUID
        cluster: String,
        /// Delete its deployments too; without this a cluster that has any is refused
        #[arg(long)]
        with_deployments: bool,
        /// Wait until the tear-down is complete
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// `sparkfleet cluster identity ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum IdentityCommand {
    /// Show a cluster's certificates, tokens and alerts
    Show {
        /// Name or UUID
        cluster: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Make certificates of a cluster void: all that count, or those named
    Revoke {
        /// Name or UUID
        cluster: String,
        /// Serial number, hexadecimal; may be given several times
        #[arg(long)]
        serial: Vec<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Let a cluster whose certificate has expired renew it, once
    Approve {
        /// Name or UUID
        cluster: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Fence the present machines of a cluster off: every identity and token of it is void, and only a new token lets others in
    Replace {
        /// Name or UUID
        cluster: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// `sparkfleet deployment ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum DeploymentCommand {
    /// Create a deployment, or change the one of that name
    Create {
        /// Name, unique in the cluster; of an edge agent it is the edge node id
        name: String,
        /// Cluster name or UUID
        #[arg(long)]
        cluster: String,
        /// Chart template: name or UUID
        #[arg(long, default_value = "Edge agent")]
        chart: String,
        /// Host to run on, one that the cluster has; floating without
        #[arg(long)]
        host: Option<String>,
        /// Helm values, as a JSON or YAML file; - for standard input
        #[arg(long)]
        values: Option<PathBuf>,
        /// Wait until the edge reports it applied and ready
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// List deployments with what the edge reports of them, also those that it is still removing
    List {
        /// Only of this cluster (name or UUID)
        #[arg(long)]
        cluster: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Show one deployment: its entry and what the edge reports of it
    Show {
        /// UUID, or CLUSTER/NAME
        deployment: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Move a deployment to another host of its cluster
    Move {
        /// UUID, or CLUSTER/NAME
        deployment: String,
        /// The host; without it the deployment floats
        #[arg(long)]
        host: Option<String>,
        /// Wait until the edge reports the change applied
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Delete a deployment
    Delete {
        /// UUID, or CLUSTER/NAME
        deployment: String,
        /// Wait until the edge reports it gone
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// `sparkfleet alert ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum AlertCommand {
    /// List active alerts, the oldest first
    List {
        /// Only of this cluster (name or UUID)
        #[arg(long)]
        cluster: Option<String>,
        /// End with exit code 1 if there is any
        #[arg(long)]
        check: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// `sparkfleet config ...`. OBJECT is a UUID or a unique name, APPLICATION a slug (EdgeCluster, EdgeDeployment, ...).
#[derive(Debug, Clone, Subcommand)]
pub enum ConfigCommand {
    /// Print an entry
    Get {
        /// Object: UUID or unique name
        object: String,
        /// Application: slug or UUID
        application: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Write an entry
    Put {
        /// Object: UUID or unique name
        object: String,
        /// Application: slug or UUID
        application: String,
        /// JSON or YAML file; - for standard input
        file: PathBuf,
        /// Only if the entry still has this ETag; `none` if it must not exist
        #[arg(long)]
        if_match: Option<String>,
        /// Create the object as a member of this class (name or UUID) if it does not exist
        #[arg(long)]
        class: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Change parts of an entry by a JSON merge patch (RFC 7396)
    Patch {
        /// Object: UUID or unique name
        object: String,
        /// Application: slug or UUID
        application: String,
        /// JSON or YAML file; - for standard input
        file: PathBuf,
        /// Only if the entry still has this ETag
        #[arg(long)]
        if_match: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Delete an entry, or a whole object
    Delete {
        /// Object: UUID or unique name
        object: String,
        /// Application: slug or UUID; without it the object itself is deleted
        application: Option<String>,
        /// Only if the entry still has this ETag
        #[arg(long)]
        if_match: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// List objects, or the objects that have an entry of an application
    List {
        /// Application: slug or UUID
        application: Option<String>,
        /// Only members of this class (name or UUID)
        #[arg(long)]
        class: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Load a ConfigDB dump (JSON or YAML, versions 1 and 2) in one transaction: all of it is written, or nothing
    Load {
        /// The file; - for standard input
        file: PathBuf,
        /// Check it, print what would be written, and what edges would delete because of it
        #[arg(long)]
        dry_run: bool,
        /// Load it although edges delete something because of it; without this such a load is refused
        #[arg(long)]
        allow_delete: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Print the whole ConfigDB as a dump (version 2)
    Dump {
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
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
    /// Print the changes of an object's entries: time, writer, revision, value
    History {
        /// Object: UUID or unique name
        object: String,
        /// Application: slug or UUID; all without
        application: Option<String>,
        /// Only changes from this revision on
        #[arg(long, default_value_t = 0)]
        since: u64,
        /// At most so many, the newest
        #[arg(long, default_value_t = 100)]
        limit: u64,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// `sparkfleet acl ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum AclCommand {
    /// Write the configuration files by which a server keeps clusters apart, for users named by their certificates
    Generate(AclGenerateArguments),
    /// Put the revocation lists of all authorities into one file for the server; one that would lock somebody out is refused
    Crl(AclCrlArguments),
}

/// `sparkfleet acl crl`.
#[derive(Debug, Clone, Args)]
pub struct AclCrlArguments {
    /// PEM file of every authority that signs client certificates, as the server has it (`cafile` of Mosquitto)
    #[arg(long)]
    pub ca: PathBuf,
    /// PEM file with lists, such as identity/revoked.pem of the cluster manager; once for each
    #[arg(long, required = true)]
    pub list: Vec<PathBuf>,
    /// File to write (`crlfile` of Mosquitto)
    #[arg(long)]
    pub out: PathBuf,
}

/// `sparkfleet acl generate`.
#[derive(Debug, Clone, Args)]
pub struct AclGenerateArguments {
    /// Kind of the MQTT server
    #[arg(long, value_enum)]
    pub broker: BrokerKind,
    /// Organisation: the first part of every Sparkplug group
    #[arg(long, env = "SPARKFLEET_ORGANISATION", default_value = "ACME")]
    pub organisation: String,
    /// Name of an edge cluster; once for each
    #[arg(long)]
    pub cluster: Vec<String>,
    /// File with what `sparkfleet cluster list -o json` prints; - for standard input
    #[arg(long)]
    pub clusters_from: Option<PathBuf>,
    /// Host Application id that an operator publishes STATE under; once for each
    #[arg(long, default_value = "sparkfleet-cli")]
    pub operator_host: Vec<String>,
    /// Host Application id that a viewer (historian, dashboard) publishes STATE under; once for each
    #[arg(long)]
    pub viewer_host: Vec<String>,
    /// Every host has credentials of its own, named by the UUID of its state disk: give each the topics of its own, and leave out the users that the hosts of a cluster share
    #[arg(long)]
    pub own_host_credentials: bool,
    /// Write the files into this directory instead of printing them
    #[arg(long)]
    pub directory: Option<PathBuf>,
}

/// Kinds of MQTT servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BrokerKind {
    /// Eclipse Mosquitto 2, static files
    Mosquitto,
    /// Eclipse Mosquitto 2, plugin dynamic-security
    MosquittoDynsec,
    /// EMQX 5, file source
    Emqx,
    /// HiveMQ 4, extension File RBAC
    Hivemq,
    /// VerneMQ, static files
    Vernemq,
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
