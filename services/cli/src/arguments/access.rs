//! Commands about who may use the web console and git.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use crate::options::{Options, Printing};

/// `sparkfleet audit ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum AuditCommand {
    /// Follow the chain of the records of writes: no line was changed, left out or put in between
    ///
    /// Each record holds the hash of the one before it. The command prints the head, which is the hash of the last record: keep it elsewhere, and compare it later. Without that it does not show
    /// when the end of a file was cut off, or the whole file was written again. Where files are rotated, give the head of one to --after when you check the next. Exit code 5 comes with the line
    /// at which the chain breaks.
    Verify {
        /// audit.jsonl in the state directory of ConfigDB, the cluster manager, the git server or the console, or one that was rotated away
        file: PathBuf,
        /// Head of the file before this one; also without it the command says what the file begins after
        #[arg(long, value_name = "HEAD")]
        after: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        printing: Printing,
    },
}

/// `sparkfleet token ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it, this once; ConfigDB keeps its hash
    Create {
        /// Name, unique in the organisation: letters, digits, `.`, `_` and `-`
        name: String,
        /// What its holder may do
        #[arg(long, value_enum)]
        scope: Scope,
        /// Cluster name or UUID that it is for; once for each, all without
        #[arg(long)]
        cluster: Vec<String>,
        /// How long it is valid, for example 90d or 12h
        #[arg(long, default_value = "90d", value_parser = humantime::parse_duration)]
        expires: Duration,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// List tokens: who made them, for what, until when
    List {
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Revoke a token: no request is authorised by it any more
    Revoke {
        /// Its name
        name: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// What the holder of a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    /// Look at clusters and at the names of their secrets
    Viewer,
    /// Also write and remove secrets
    Operator,
    /// Also make tokens and approve identities
    Administrator,
}
