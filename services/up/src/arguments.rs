//! The arguments of `up` and of what is simulated on its own.

use std::path::PathBuf;

use clap::Args;
use join_protocol::simulated::LOCK_PCR;
use sparkfleet_cli::arguments::replay::Speed;
use sparkfleet_cli::options::{Connection, Options};

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
    #[arg(long, env = "SPARKFLEET_BROKER")]
    pub broker: Option<String>,
    /// Version of MQTT that every part speaks: 3.1.1, 5, or auto, which is 5 where the server speaks it
    #[arg(long, env = "SPARKFLEET_PROTOCOL", default_value = "auto")]
    pub protocol: sparkplug_mqtt::Protocol,
    /// Displace the services of this organisation that run on the broker, instead of ending when there are some
    #[arg(long)]
    pub take_over: bool,
    /// Begin an empty database although there was one: clusters that follow the lost one hold what they run until `sparkfleet recover`
    #[arg(long)]
    pub new_store: bool,
    /// Address of the git server
    #[arg(long, default_value = "127.0.0.1:8480")]
    pub git: std::net::SocketAddr,
    /// Address of the scripts that bootstrap clusters
    #[arg(long, default_value = "127.0.0.1:8483")]
    pub bootstrap: std::net::SocketAddr,
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
    /// Show a fleet as it was instead of running one: an export (`sparkfleet events --export FILE`) or a recording (`sparkfleet watch --record FILE`)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["load", "take_over", "new_store", "hosts"])]
    pub replay: Option<PathBuf>,
    /// With --replay: how many times as fast as it was, for example 60 or 0.5; max: as fast as it goes
    #[arg(long, requires = "replay", default_value = "1", value_parser = sparkfleet_cli::arguments::replay::speed, allow_hyphen_values = true)]
    pub speed: Speed,
    /// With --replay: begin again at the end
    #[arg(long = "loop", requires = "replay")]
    pub repeat: bool,
    /// Print one line per change instead of a live table (also when the output is not a terminal)
    #[arg(long)]
    pub plain: bool,
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
    /// It has started other software: PCR=TEXT is measured in addition
    #[arg(long, value_parser = measurement)]
    pub measure: Vec<(u32, String)>,
    /// As a member it renews its certificates so often, for example 1m; by default when two thirds of their validity period are over
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
    let (pcr, what) = text.split_once('=').ok_or("write PCR=TEXT, such as 4=other-boot-loader")?;
    let pcr = pcr.parse().ok().filter(|pcr| *pcr < 24 && *pcr != LOCK_PCR);
    let pcr = pcr.ok_or_else(|| format!("a PCR is a number from 0 to 23 and not {LOCK_PCR}, which is the lock"))?;
    Ok((pcr, what.to_owned()))
}
