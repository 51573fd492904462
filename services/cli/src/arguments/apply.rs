//! `sparkfleet apply` and `sparkfleet diff`.

use std::path::PathBuf;

use clap::Args;

use crate::options::Options;

/// `sparkfleet apply`.
#[derive(Debug, Clone, Args)]
pub struct ApplyArguments {
    /// File of documents in YAML or JSON, each of kind Cluster, Deployment or Entry; a directory with such files; - for standard input; may be given several times
    #[arg(long, short, required = true)]
    pub file: Vec<PathBuf>,
    /// Delete deployments that no document names, on clusters that are among the documents
    #[arg(long)]
    pub prune: bool,
    /// Write nothing, and print what would be written, value by value
    #[arg(long)]
    pub dry_run: bool,
    /// Write it although edges delete something that --prune does not: a deployment that gets another chart
    #[arg(long)]
    pub allow_delete: bool,
    /// Wait until edges report what was written: deployments applied and ready, suspended, or gone, and clusters set up
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub options: Options,
}

/// `sparkfleet diff`.
#[derive(Debug, Clone, Args)]
pub struct DiffArguments {
    /// As of `apply`; may be given several times
    #[arg(long, short, required = true)]
    pub file: Vec<PathBuf>,
    /// Show deployments that `apply --prune` would delete, too
    #[arg(long)]
    pub prune: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub options: Options,
}
