//! The one program: command line, each service as a subcommand, and `up`, which runs the whole factory in one process.
//!
//! ```text
//! arguments -> cli -> command/{cluster,deployment,status,...} -> client (a Host Application session) -> fleet (replicas) -> output
//!                  -> command/config -> one_object         -> a listener, for what one object of ConfigDB has
//!                  -> command/secret -> http_api            -> the cluster manager's HTTP API
//!                  -> command/past -> console_api            -> the console's HTTP API: what happened, and what was there at a time
//!                  -> command/acl                          -> broker_acl: access control for MQTT servers
//!                  -> command/service                      -> run() of one service
//!                  -> enrol                                -> an Edge Node of the quarantine group, Secrets of this cluster
//!                  -> up                                   -> broker, services, simulated edge clusters, live table
//!                  -> watch                                -> a listener that prints every message
//! ```
//!
//! The commands need only the broker, those on secrets in repositories and on the past aside: what they show they have replicated, what they change they have asked for and seen reported. There is no `event.rs` and no `state.rs`: the
//! program holds no state of the fleet, only replicas of it ([`fleet_view::Fleet`]), and its configuration is its arguments ([`cli`]).

pub mod broker;
pub mod cli;
pub mod client;
pub mod command;
pub mod console_api;
pub mod enrol;
pub mod http_api;
pub mod load;
pub mod one_object;
pub mod output;
pub mod recovery;
pub mod trust;
pub mod up;
pub mod watch;

use cli::{Arguments, Command};

/// Carries out a command.
///
/// # Errors
/// Whatever went wrong; `service_runtime::exit` knows its exit code.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::Up(arguments) => up::run(arguments).await,
        Command::Ui(arguments) => command::console::ui(&arguments),
        Command::Explore(arguments) => command::console::explore(&arguments).await,
        Command::Watch(arguments) => watch::run(arguments).await,
        Command::Replay(arguments) => command::replay::run(arguments).await,
        Command::Write(arguments) => command::write::run(arguments).await,
        Command::Cluster(command) => command::cluster::run(command).await,
        Command::Deployment(command) => command::deployment::run(command).await,
        Command::Secret(command) => command::secret::run(command).await,
        Command::Token(command) => command::token::run(command).await,
        Command::Audit(command) => command::audit::run(command),
        Command::Acl(command) => command::acl::run(&command),
        Command::Status { options } => command::status::run(&options).await,
        Command::Alert(command) => command::alert::run(command).await,
        Command::Events(arguments) => command::past::events(&arguments).await,
        Command::At(arguments) => command::past::at(&arguments).await,
        Command::Config(command) => command::config::run(command).await,
        Command::Recover(command) => command::recover::run(command).await,
        Command::Host(command) => command::host::run(command).await,
        Command::Policy(command) => command::policy::run(command).await,
        Command::Trust(command) => command::trust::run(command).await,
        Command::ConfigDb(arguments) => command::service::configdb(&arguments).await,
        Command::ClusterManager(arguments) => command::service::cluster_manager(&arguments).await,
        Command::EdgeSync(arguments) => command::service::edge_sync(&arguments).await,
        Command::EdgeMonitor(arguments) => command::service::edge_monitor(&arguments).await,
        Command::JoinService(arguments) => command::service::join_service(&arguments).await,
        Command::Console(arguments) => command::service::console(&arguments).await,
        #[cfg(feature = "kerberos")]
        Command::KrbKeys(arguments) => command::service::krb_keys(&arguments).await,
        Command::Enrol(arguments) => enrol::run(*arguments).await,
        Command::SimulateCluster(arguments) => command::simulate::run(arguments).await,
        Command::SimulateHost(arguments) => command::simulate::run_host(arguments).await,
        Command::Completions { shell } => {
            let mut command = <Arguments as clap::CommandFactory>::command();
            clap_complete::generate(shell, &mut command, "sparkfleet", &mut std::io::stdout());
            Ok(())
        }
    }
}
