//! The commands about hosts that join: who is trusted, by which policy, and which hosts there are.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use join_protocol::terms::Purpose;
use uuid::Uuid;

use super::Options;

/// `sparkfleet trust ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum TrustCommand {
    /// Make the organisation's root: the key whose public half every host pins
    Init {
        /// Directory of the files `root.key` and `root.pub`
        #[arg(long, default_value = "trust")]
        dir: PathBuf,
        /// Replace a root that is there: nothing that it certified is valid any more
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Certify a key for one cluster: that of its join service, of an administrator, or of who signs its policy
    Issue {
        /// Cluster: UUID, or name (which is looked up in ConfigDB)
        cluster: String,
        /// What the key may do
        #[arg(long, value_enum)]
        purpose: IssuedPurpose,
        /// Directory of the root's files
        #[arg(long, default_value = "trust")]
        dir: PathBuf,
        /// Directory for what is made; by default a directory of the cluster in that of the root
        #[arg(long)]
        out: Option<PathBuf>,
        /// Days that the certificate is valid
        #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3660))]
        days: u32,
        /// Epoch of the certificate: hosts accept none below the epoch that they pin
        #[arg(long, default_value_t = 1)]
        epoch: u32,
        /// Certify the key that is there again, instead of making one
        #[arg(long, conflicts_with = "force")]
        renew: bool,
        /// Replace a key that is there
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// What an issued key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IssuedPurpose {
    /// Answer hosts that join, and members that come back: the join service
    JoinIssuer,
    /// Make the first member, and recover members when no join service is left: a person
    ClusterAdmin,
    /// Sign the attestation policy: the person who decides which hosts are admitted
    PolicySigner,
}

/// With which key a policy is signed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Signing")]
pub struct SignerArguments {
    /// Directory of the organisation's trust; the key is CLUSTER_UUID/policy-signer.key below it. By default `trust`, or that of `sparkfleet up` in this directory
    #[arg(long, env = "SPARKFLEET_TRUST")]
    pub trust_root: Option<PathBuf>,
    /// Days from now that a join service takes the policy over; one that has it keeps it
    #[arg(long, default_value_t = 366, value_parser = clap::value_parser!(u32).range(1..=3660))]
    pub valid_days: u32,
    /// Serial number of the policy; by default one more than that of the policy in ConfigDB
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub serial: Option<u64>,
}

impl IssuedPurpose {
    /// What the certificate says.
    #[must_use]
    pub const fn purpose(self) -> Purpose {
        match self {
            Self::JoinIssuer => Purpose::JoinIssuer,
            Self::ClusterAdmin => Purpose::ClusterAdmin,
            Self::PolicySigner => Purpose::PolicySigner,
        }
    }
}

/// `sparkfleet policy ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum PolicyCommand {
    /// Show the attestation policy of a cluster
    Show {
        /// Cluster name or UUID
        cluster: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Sign and write the attestation policy of a cluster; one that would admit no host is refused
    Set {
        /// Cluster name or UUID
        cluster: String,
        /// JSON or YAML file; - for standard input
        file: PathBuf,
        /// Only if the entry still has this ETag; `none` if it must not exist
        #[arg(long)]
        if_match: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        signer: SignerArguments,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Take the registers that a host has shown as allowed values
    Capture(Box<CaptureArguments>),
    /// List what a boot image will measure, so that hosts that are booted with it are admitted
    FromImage(Box<FromImageArguments>),
}

/// `sparkfleet policy from-image`.
#[derive(Debug, Clone, Args)]
pub struct FromImageArguments {
    /// Cluster name or UUID
    pub cluster: String,
    /// Unified kernel images as hosts boot them: after they were signed
    #[arg(required = true)]
    pub images: Vec<PathBuf>,
    /// Certificate (PEM or DER) by which Secure Boot admits the image; Secure Boot must be on from here on
    #[arg(long = "signer", value_name = "CERTIFICATE")]
    pub certificate: Vec<PathBuf>,
    /// Command line of an image that holds none
    #[arg(long, value_name = "TEXT")]
    pub command_line: Vec<String>,
    /// Digest of the initrd as a host's register 9 shows it, where the stub adds to that of the image
    #[arg(long, value_name = "DIGEST")]
    pub initrd: Vec<String>,
    /// What is listed here is all that is allowed; by default it is added to what the policy has
    #[arg(long)]
    pub replace: bool,
    /// Take registers 4, 9 and 11 out of `pcrs`, and 7 where Secure Boot is demanded: events are judged instead of their values
    #[arg(long, conflicts_with = "pcr_11")]
    pub unpin: bool,
    /// Add the values that register 11 will have to `pcrs`, for each phase of the boot
    #[arg(long = "pcr-11")]
    pub pcr_11: bool,
    /// Print the policy instead of writing it
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub signer: SignerArguments,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub options: Options,
}

/// `sparkfleet policy capture`.
#[derive(Debug, Clone, Args)]
pub struct CaptureArguments {
    /// UUID of its state disk, name, or CLUSTER/NAME
    pub host: String,
    /// Only these registers, also such as the policy has not; by default those that the policy has values for
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..24))]
    pub pcr: Vec<u8>,
    /// Ask for registers that the host has not quoted: put them into the policy to be observed, and wait for its next quote (with --timeout 3m, for example)
    #[arg(long, conflicts_with = "dry_run")]
    pub ask: bool,
    /// The values are the only allowed ones; by default they are added to those that the policy has
    #[arg(long)]
    pub replace: bool,
    /// Print the policy instead of writing it
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub signer: SignerArguments,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub options: Options,
}

/// `sparkfleet host init`.
#[derive(Debug, Clone, Args)]
pub struct InitArguments {
    /// UUID of its state disk, as the host logs it
    pub host: Uuid,
    /// Cluster name or UUID
    #[arg(long)]
    pub cluster: String,
    /// Directory with admin.key, admin.certificates and master.key; by default that of the cluster below `trust`
    #[arg(long)]
    pub trust: Option<PathBuf>,
    /// File that the administrator's kubeconfig is written to, mode 0600
    #[arg(long, default_value = "kubeconfig")]
    pub kubeconfig: PathBuf,
    /// What its Node is to be called
    #[arg(long)]
    pub name: Option<String>,
    /// JSON or YAML file with further parameters: kubernetesVersion, endpoint, podSubnet, serviceSubnet, labels, taints, components, ...
    #[arg(long)]
    pub parameters: Option<PathBuf>,
    /// Replace a kubeconfig that is there
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub options: Options,
}

/// `sparkfleet host recover`.
#[derive(Debug, Clone, Args)]
pub struct RecoverArguments {
    /// UUID of its state disk, as the host logs it
    pub host: Uuid,
    /// Cluster name or UUID
    #[arg(long)]
    pub cluster: String,
    /// Directory with admin.key, admin.certificates and master.key; by default that of the cluster below `trust`
    #[arg(long)]
    pub trust: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub options: Options,
}

/// `sparkfleet host ...`. HOST is the UUID of a state disk, a name, or CLUSTER/NAME.
#[derive(Debug, Clone, Subcommand)]
pub enum HostCommand {
    /// List the hosts that have proven their TPM, with what became of their requests
    List {
        /// Only of this cluster (name or UUID)
        #[arg(long)]
        cluster: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Show one host: identity, verdict, registers
    Show {
        /// UUID of its state disk, name, or CLUSTER/NAME
        host: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Enrol a host in the policy of its cluster; compare its endorsement key with the machine in front of you first
    Approve {
        /// UUID of its state disk, name, or CLUSTER/NAME
        host: String,
        /// The only name that it may have; by default the one that it asks for
        #[arg(long)]
        name: Option<String>,
        /// Approve only the machine with this endorsement key, 64 hexadecimal digits, or their beginning of at least 16; a name alone is what a machine says of itself
        #[arg(long, value_name = "HEX")]
        ek: Option<String>,
        /// It may join the control plane
        #[arg(long)]
        control_plane: bool,
        /// Wait until it is a member; a host asks again every minute
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        signer: SignerArguments,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Enrol hosts of a list in the policy of a cluster, before they are switched on; all or none
    Enrol {
        /// Cluster name or UUID
        cluster: String,
        /// A line for each host: `EK[,NAME[,DISK[,ROLE]]]`, # begins a comment; - for standard input
        file: PathBuf,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        signer: SignerArguments,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Make a host the first member of its cluster, as its administrator; writes the kubeconfig
    Init(Box<InitArguments>),
    /// Give a member the key of its disk, as its administrator, when no join service is left to do it
    Recover(Box<RecoverArguments>),
    /// Refuse a host from here on, whatever else holds, and revoke its join tokens
    Revoke {
        /// UUID of its state disk, name, or CLUSTER/NAME
        host: String,
        /// Wait until the join service reports it revoked
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        signer: SignerArguments,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}
