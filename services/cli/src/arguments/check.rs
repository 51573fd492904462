//! `sparkfleet check`.

use std::path::PathBuf;

use clap::Args;

use crate::options::{Options, ReadingSource};

/// `sparkfleet check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArguments {
    /// Write an archive for support into a new file (.tar.gz): the findings, and rows of clusters, hosts, deployments, alerts and services; no values, no secrets
    #[arg(long, value_name = "FILE")]
    pub bundle: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub source: ReadingSource,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub options: Options,
}
