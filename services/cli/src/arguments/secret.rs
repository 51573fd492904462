//! Commands about sealed secrets.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::options::Options;

/// `sparkfleet secret ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum SecretCommand {
    /// Print a SealedSecret: put it into the cluster's repository under by-hand/, or apply it. The plain values leave this machine only sealed
    Seal {
        /// Cluster name or UUID; the certificate is the one that it has reported
        #[arg(required_unless_present = "certificate")]
        cluster: Option<String>,
        /// Name of the Secret
        #[arg(long)]
        name: String,
        /// Namespace of the Secret
        #[arg(long, default_value = "fplus-edge")]
        namespace: String,
        /// A value: KEY=FILE, or KEY=- for standard input; once for each. Values are never arguments, because others on this machine see these
        #[arg(long = "from-file", required = true, value_name = "KEY=FILE")]
        from_file: Vec<String>,
        /// What the values are bound to
        #[arg(long, value_enum, default_value_t = SealingScope::Strict)]
        scope: SealingScope,
        /// Type of the Secret
        #[arg(long = "type", default_value = "Opaque")]
        secret_type: String,
        /// PEM file of the controller's certificate, instead of the one that the cluster publishes; needs no broker
        #[arg(long, conflicts_with = "cluster")]
        certificate: Option<PathBuf>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Seal a value on this machine and write it into the cluster's repository, as one key of a Secret; the other keys stay
    Put(PutArguments),
    /// List the secrets in a cluster's repository, and the values that are to be put again because the cluster has another certificate
    List {
        /// Cluster name or UUID
        cluster: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Delete keys of a Secret in the cluster's repository; with the last key the Secret goes
    Delete {
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        place: SecretRef,
        /// Keys in the Secret
        #[arg(required = true)]
        keys: Vec<String>,
        /// Find out whether it could be done, and leave everything as it is
        #[arg(long)]
        dry_run: bool,
        /// Do not wait until it is in the repository
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// `sparkfleet secret put`.
#[derive(Debug, Clone, Args)]
pub struct PutArguments {
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub place: SecretRef,
    /// Key in the Secret
    pub key: String,
    /// File with the value, taken byte by byte; - for standard input. The value is never an argument, because others on this machine see these
    #[arg(long, default_value = "-")]
    pub file: PathBuf,
    /// SHA-256 fingerprint of the certificate that the cluster must have; without it what the cluster has reported is taken
    #[arg(long, value_parser = fingerprint)]
    pub fingerprint: Option<String>,
    /// What the value is bound to; all keys of a Secret share it
    #[arg(long, value_enum, default_value_t = SealingScope::Strict)]
    pub scope: SealingScope,
    /// Type of the Secret; all its keys share it
    #[arg(long = "type", default_value = "Opaque")]
    pub secret_type: String,
    /// Find out whether it could be done, and leave everything as it is
    #[arg(long)]
    pub dry_run: bool,
    /// Do not wait until the value is in the repository
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub options: Options,
}

/// Which Secret.
#[derive(Debug, Clone, Args)]
pub struct SecretRef {
    /// Cluster name or UUID
    pub cluster: String,
    /// Name of the Secret
    pub name: String,
    /// Namespace of the Secret
    #[arg(long, default_value = "fplus-edge")]
    pub namespace: String,
}

/// What sealed values are bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SealingScope {
    /// Namespace and name
    Strict,
    /// Namespace
    NamespaceWide,
    /// Cluster
    ClusterWide,
}

impl From<SealingScope> for configdb_schema::document::SealingScope {
    fn from(scope: SealingScope) -> Self {
        match scope {
            SealingScope::Strict => Self::Strict,
            SealingScope::NamespaceWide => Self::NamespaceWide,
            SealingScope::ClusterWide => Self::ClusterWide,
        }
    }
}

/// SHA-256 as programs print it, with and without colons.
fn fingerprint(text: &str) -> Result<String, String> {
    let digits: String = text.chars().filter(|c| *c != ':').map(|c| c.to_ascii_lowercase()).collect();
    let is_hash = digits.len() == 64 && digits.chars().all(|c| c.is_ascii_hexdigit());
    is_hash.then_some(digits).ok_or_else(|| "a SHA-256 fingerprint has 64 hexadecimal digits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn a_fingerprint_is_taken_as_openssl_and_as_the_list_print_it() {
        let plain = "0f".repeat(32);
        let colons = vec!["0F"; 32].join(":");
        assert_eq!(fingerprint(&plain), Ok(plain.clone()));
        assert_eq!(fingerprint(&colons), Ok(plain));
        for bad in ["", "0f", &"0g".repeat(32), &"0f".repeat(33)] {
            assert!(fingerprint(bad).is_err(), "{bad}");
        }
    }
}
