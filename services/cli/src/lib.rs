//! The commands on a fleet. This package imports contracts, protocols and libraries only: a command is a client like any other, and knows nothing of how a service works inside.
//!
//! ```text
//! arguments -> command/{cluster,deployment,status,...} -> client (a Host Application session) -> fleet (replicas) -> output
//!           -> command/config -> one_object             -> a listener, for what one object of ConfigDB has
//!           -> command/apply -> wanted                  -> what files want of the fleet, as writes
//!           -> listing -> console_api                   -> the console's tables, where a command that reads is to ask it
//!           -> command/past -> console_api              -> the console's HTTP API: what happened, and what was there at a time
//!           -> command/acl                              -> broker_acl: access control for MQTT servers
//!           -> completion -> console_api                -> names that arguments can have, for a shell
//!           -> watch                                    -> a listener that prints every message
//! ```
//!
//! The commands need only the broker, except those on secrets in repositories and on the past. What they show they have replicated, or read from the console. What they change they
//! have asked for, and have seen reported. There is no `event.rs` and no `state.rs`: the command line holds no state of the fleet, only replicas of it ([`fleet_view::Fleet`]), and
//! its configuration is its arguments ([`arguments`]).
#![warn(unreachable_pub)]

pub mod arguments;
mod bearer;
mod certificate;
pub mod client;
pub mod command;
pub mod completion;
mod console_api;
pub mod context;
pub mod input;
mod listing;
mod load;
pub mod look_up;
#[cfg(test)]
mod offline;
mod one_object;
pub mod options;
pub mod output;
mod recovery;
mod selector;
#[cfg(test)]
mod served;
pub mod tables;
mod usage_error;
mod wanted;
pub mod watch;

pub use arguments::Command;

/// Carries out a command.
///
/// # Errors
/// Whatever went wrong; `service_runtime::exit` knows its exit code.
pub async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Context(command) => command::context::run(command),
        Command::Login(arguments) => command::context::login(arguments).await,
        Command::Ui(arguments) => command::console::ui(&arguments),
        Command::Watch(arguments) => watch::run(arguments).await,
        Command::Replay(arguments) => command::replay::run(arguments).await,
        Command::Write(arguments) => command::write::run(arguments).await,
        Command::Cluster(command) => command::cluster::run(command).await,
        Command::Deployment(command) => command::deployment::run(command).await,
        Command::Secret(command) => command::secret::run(command).await,
        Command::Token(command) => command::token::run(command).await,
        Command::Audit(command) => command::audit::run(command),
        Command::Acl(command) => command::acl::run(command).await,
        Command::Status { watch, source, options } => command::status::run(watch, &source, &options).await,
        Command::Check(arguments) => command::check::run(&arguments).await,
        Command::Apply(arguments) => command::apply::apply(&arguments).await,
        Command::Diff(arguments) => command::apply::diff(&arguments).await,
        Command::Rollout(command) => command::chart_rollout::run(command).await,
        Command::Alert(command) => command::alert::run(command).await,
        Command::Events(arguments) => command::past::events(&arguments).await,
        Command::At(arguments) => command::past::at(&arguments).await,
        Command::Recover(command) => command::recover::run(command).await,
        Command::Host(command) => command::host::run(command).await,
        Command::Policy(command) => command::policy::run(command).await,
        Command::Trust(command) => command::trust::run(command).await,
    }
}
