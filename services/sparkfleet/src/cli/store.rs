//! Options of the commands on the files of ConfigDB's store.

use std::path::PathBuf;

use clap::Args;

use super::Printing;

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
