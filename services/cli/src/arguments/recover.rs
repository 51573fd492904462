//! Commands for after a ConfigDB was restored from a backup, or lost.

use clap::Subcommand;

use crate::options::Options;

/// `sparkfleet recover ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum RecoverCommand {
    /// Show which clusters hold what this control plane sends, and what differs between ConfigDB and each edge
    Status {
        /// Cluster name; once for each. Without, every cluster whose edge sync is alive
        cluster: Vec<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Write what runs at the edge back into ConfigDB, then release the cluster: nothing is deleted
    Adopt {
        /// Cluster name; once for each
        #[arg(required_unless_present = "all")]
        cluster: Vec<String>,
        /// Every cluster whose edge sync is alive and holds
        #[arg(long, conflicts_with = "cluster")]
        all: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Release a cluster as ConfigDB has it: what ConfigDB does not list is deleted at the edge
    Discard {
        /// Cluster name
        cluster: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}
