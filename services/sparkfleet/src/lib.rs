//! The one program: the commands on a fleet (`sparkfleet_cli`), `up` (`sparkfleet_up`), and each service as a subcommand.
//!
//! ```text
//! arguments -> sparkfleet_cli   -> commands on a fleet
//!           -> sparkfleet_up    -> broker, services, simulated edge clusters, live table
//!           -> service          -> run() of one service
//!           -> store            -> the files of ConfigDB's store
//!           -> explore          -> the console's look at any broker
//!           -> enrol            -> an Edge Node of the quarantine group, Secrets of this cluster
//!           -> completion       -> the scripts of shells, and what their users may type next
//!           -> version          -> what this program is
//! ```
#![warn(unreachable_pub)]

pub mod arguments;
pub mod completion;
pub mod enrol;
pub mod explore;
pub mod service;
pub mod store;
pub mod version;

use anyhow::Context as _;
use arguments::{Arguments, Command, ConfigCommand};

/// Carries out a command.
///
/// # Errors
/// Whatever went wrong; `service_runtime::exit` knows its exit code.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.command {
        Command::Fleet(command) => sparkfleet_cli::run(command).await,
        Command::Config(ConfigCommand::Entries(command)) => sparkfleet_cli::command::config::run(command).await,
        Command::Config(ConfigCommand::Backup { file, store }) => store::backup(&file, &store).await,
        Command::Config(ConfigCommand::Restore { file, yes, store }) => store::restore(&file, yes, &store).await,
        Command::Up(arguments) => sparkfleet_up::run(arguments).await,
        Command::Explore(arguments) => explore::run(&arguments).await,
        Command::ConfigDb(arguments) => service::configdb(&arguments).await,
        Command::ClusterManager(arguments) => service::cluster_manager(&arguments).await,
        Command::Identity(arguments) => service::identity(&arguments).await,
        Command::GitServer(arguments) => service::git_server(&arguments).await,
        Command::EdgeSync(arguments) => service::edge_sync(&arguments).await,
        Command::EdgeMonitor(arguments) => service::edge_monitor(&arguments).await,
        Command::JoinService(arguments) => service::join_service(&arguments).await,
        Command::Console(arguments) => service::console(&arguments).await,
        #[cfg(feature = "kerberos")]
        Command::KrbKeys(arguments) => service::krb_keys(&arguments).await,
        Command::Enrol(arguments) => enrol::run(*arguments).await,
        Command::SimulateCluster(arguments) => sparkfleet_up::simulate::run(arguments).await,
        Command::SimulateHost(arguments) => sparkfleet_up::simulate::run_host(arguments).await,
        Command::Version(printing) => version::run(&printing),
        Command::Completions { shell } => {
            completion::print_script(shell);
            Ok(())
        }
        Command::Complete { shell, words } => {
            completion::print_candidates(shell, words).await;
            Ok(())
        }
        Command::Man { directory } => {
            let written = clap_mangen::generate_to(Arguments::described(), &directory);
            written.with_context(|| format!("{} cannot be written", directory.display()))
        }
    }
}
