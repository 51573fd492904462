//! The commands about hosts that join: who is trusted, by which policy, and which hosts there are.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use join_protocol::terms::Purpose;
use uuid::Uuid;

use crate::options::{ListOptions, Options, ReadingSource};

/// Examples below the help of `sparkfleet host list`.
const HOST_LIST_EXAMPLES: &str = "\
Examples:
  sparkfleet host list --cluster Paint_Shop
  sparkfleet host list --watch   # until Ctrl-C
  sparkfleet host list -o wide   # with UUIDs and more columns
";

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
    /// Give a cluster's join service its keys: write them to a Secret of the cluster
    Secret(Box<JoinSecretArguments>),
}

/// `sparkfleet trust secret`.
#[derive(Debug, Clone, Args)]
pub struct JoinSecretArguments {
    /// Cluster: UUID, or name (which is looked up in ConfigDB)
    pub cluster: String,
    /// Directory of the root's files; those of the cluster are in CLUSTER_UUID/ below it
    #[arg(long, default_value = "trust")]
    pub dir: PathBuf,
    /// Copy of a control plane's /etc/kubernetes/pki (kubeadm); without it the cluster's ca.crt is asked of Kubernetes
    #[arg(long, value_name = "DIR")]
    pub pki: Option<PathBuf>,
    /// Copy of a server's /var/lib/rancher/k3s/server/token (k3s), for further servers
    #[arg(long, value_name = "FILE", conflicts_with = "pki")]
    pub server_token: Option<PathBuf>,
    /// Namespace of the edge services
    #[arg(long, default_value = "fplus-edge")]
    pub namespace: String,
    /// Name of the Secret; as in `join.trustSecret` of the chart
    #[arg(long, default_value = "sparkfleet-join")]
    pub name: String,
    /// API server without authentication; by default that of the kubeconfig
    #[arg(long)]
    pub kubernetes_url: Option<String>,
    /// Write the manifest to this file (mode 0600) instead, or with - to standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub options: Options,
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

/// Days that a join service takes a signed policy over, unless something else is said.
pub const POLICY_DAYS: u32 = 366;

/// With which key a policy is signed.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Signing")]
pub struct SignerArguments {
    /// Directory of the organisation's trust; the key is CLUSTER_UUID/policy-signer.key below it. By default `trust`, or that of `sparkfleet up` in this directory
    #[arg(long, env = "SPARKFLEET_TRUST")]
    pub trust_root: Option<PathBuf>,
    /// Days from now that a join service takes the policy over; one that has it keeps it
    #[arg(long, default_value_t = POLICY_DAYS, value_parser = clap::value_parser!(u32).range(1..=3660))]
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
    #[command(visible_alias = "get")]
    Show {
        /// Cluster name or UUID
        cluster: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        source: ReadingSource,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Sign and write the first policy of a cluster. It admits no host; hosts that ask are shown with the values of these PCRs
    Init {
        /// Cluster name or UUID
        cluster: String,
        /// PCRs that hosts quote
        #[arg(long, value_delimiter = ',', default_value = "0,2,4,7,9,11", value_parser = clap::value_parser!(u8).range(0..24))]
        pcr: Vec<u8>,
        /// PCR that a host extends when it takes its ticket; as in `attestation.lock_pcr` of the hosts
        #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u8).range(0..16))]
        lock: u8,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        signer: SignerArguments,
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
    /// Take the PCRs that a host has shown as allowed values
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
    /// Digest of the initrd as a host's PCR 9 shows it, where the stub adds to that of the image
    #[arg(long, value_name = "DIGEST")]
    pub initrd: Vec<String>,
    /// What is listed here is all that is allowed; by default it is added to what the policy has
    #[arg(long)]
    pub replace: bool,
    /// Take PCRs 4, 9 and 11 out of `pcrs`, and 7 where Secure Boot is demanded: events are judged instead of their values
    #[arg(long, conflicts_with = "pcr_11")]
    pub unpin: bool,
    /// Add the values that PCR 11 will have to `pcrs`, for each phase of the boot
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
    /// Only these PCRs, also such as the policy has not; by default those that the policy has values for, or, if it has none, all that it observes
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..24))]
    pub pcr: Vec<u8>,
    /// Ask for PCRs that the host has not quoted: put them into the policy to be observed, and wait for its next quote (with --timeout 3m, for example)
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
    /// UUID of its state disk, or the name that it asks for; by default the only host that waits
    pub host: Option<String>,
    /// Cluster name or UUID
    #[arg(long)]
    pub cluster: String,
    /// Directory with admin.key, admin.certificates, master.key, and policy-signer.key for the enrolment of the host; by default that of the cluster below `trust`
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
    /// UUID of its state disk, or its name; by default the only member that waits
    pub host: Option<String>,
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

/// What runs Kubernetes on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HostDistributionArgument {
    /// k3s
    K3s,
    /// kubeadm
    Kubeadm,
}

impl HostDistributionArgument {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::K3s => "k3s",
            Self::Kubeadm => "kubeadm",
        }
    }
}

/// `sparkfleet host prepare`.
#[derive(Debug, Clone, Args)]
pub struct PrepareArguments {
    /// Cluster name or UUID
    pub cluster: String,
    /// MQTT servers as hosts reach them, tried in turn
    #[arg(long, required = true, value_name = "URL")]
    pub server: Vec<String>,
    /// PEM file here of the authorities that hosts trust the servers by, for mqtts
    #[arg(long, value_name = "FILE")]
    pub server_ca: Option<PathBuf>,
    /// User that hosts log in as; by default that of all joining hosts of the cluster, or with --disk that of the disk
    #[arg(long, value_name = "USER")]
    pub host_username: Option<String>,
    /// Path on the host of the file with the user's password; by default /etc/sparkfleet/mqtt/password
    #[arg(long, value_name = "PATH")]
    pub host_password_file: Option<PathBuf>,
    /// Path on the host of its certificate, where it logs in by one
    #[arg(long, value_name = "PATH", requires = "host_key_file", conflicts_with_all = ["host_username", "host_password_file"])]
    pub host_cert_file: Option<PathBuf>,
    /// Path on the host of the certificate's key
    #[arg(long, value_name = "PATH", requires = "host_cert_file")]
    pub host_key_file: Option<PathBuf>,
    /// The host wants to be a control plane; the policy decides
    #[arg(long)]
    pub control_plane: bool,
    /// Name that the host asks for; by default its host name
    #[arg(long)]
    pub name: Option<String>,
    /// Addresses by which the host is reached
    #[arg(long, value_name = "ADDRESS")]
    pub address: Vec<String>,
    /// UUID of the host's state disk, which a blank one gets: for a host with broker credentials of its own
    #[arg(long, value_name = "UUID")]
    pub disk: Option<Uuid>,
    /// Block device of the state disk
    #[arg(long, value_name = "PATH", default_value = "/dev/disk/by-partlabel/sparkfleet-state")]
    pub device: PathBuf,
    /// What runs Kubernetes
    #[arg(long, value_enum, default_value = "k3s")]
    pub distribution: HostDistributionArgument,
    /// Lock PCR, as in the cluster's policy
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u8).range(0..16))]
    pub lock: u8,
    /// Directory with root.pub
    #[arg(long, default_value = "trust")]
    pub trust: PathBuf,
    /// Write to this file; by default to standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub options: Options,
}

/// `sparkfleet host ...`. HOST is the UUID of a state disk, a name, or CLUSTER/NAME.
#[derive(Debug, Clone, Subcommand)]
pub enum HostCommand {
    /// List the hosts that have proven their TPM, with what became of their requests
    #[command(visible_alias = "ls", after_help = HOST_LIST_EXAMPLES)]
    List {
        /// Only of this cluster (name or UUID)
        #[arg(long)]
        cluster: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        reading: ListOptions,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Show one host: identity, verdict, PCRs
    #[command(visible_alias = "get")]
    Show {
        /// UUID of its state disk, name, or CLUSTER/NAME
        host: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        source: ReadingSource,
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
        /// Wait until it is a member
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
        /// A line for each host: `EK[,NAME[,DISK[,ROLE[,IAK]]]]`, # begins a comment; - for standard input
        file: PathBuf,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        signer: SignerArguments,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Write cloud-init's user data for the hosts of a cluster: the bootstrapper's configuration, without secrets
    Prepare(Box<PrepareArguments>),
    /// Make a host the first member of its cluster, as its administrator; writes the kubeconfig
    Init(Box<InitArguments>),
    /// Give a member the key of its disk, as its administrator, when no join service is left to do it
    Recover(Box<RecoverArguments>),
    /// Bind the deployments that are bound to a host to another one, or to none: before the host is switched off
    Move {
        /// The host, as CLUSTER/HOST
        #[arg(value_name = "CLUSTER/HOST")]
        host: String,
        /// Host of the same cluster that they move to; by default they float
        #[arg(long)]
        to: Option<String>,
        /// Print what would be moved
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
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
