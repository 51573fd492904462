//! Every command on a fleet, with its options and defaults. What a command does is in [`crate::command`].

pub mod access;
pub mod apply;
pub mod check;
pub mod context;
pub mod joining;
pub mod past;
pub mod recover;
pub mod replay;
pub mod secret;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use configdb_schema::document::GitRef;
use uuid::Uuid;

use crate::options::{CONSOLE_VARIABLE, CONTEXT_VARIABLE, ListOptions, Options, ReadingSource};
use crate::selector::Selector;
use crate::watch::WatchArguments;
use access::{AuditCommand, TokenCommand};
use apply::{ApplyArguments, DiffArguments};
use check::CheckArguments;
use context::{ContextCommand, LoginArguments};
use joining::{HostCommand, PolicyCommand, TrustCommand};
use past::{AtArguments, EventsArguments};
use recover::RecoverCommand;
use replay::{ReplayArguments, WriteArguments};
use secret::SecretCommand;

/// Examples below the help of `sparkfleet cluster list`.
const CLUSTER_LIST_EXAMPLES: &str = "\
Examples:
  sparkfleet cluster list -o wide          # with UUIDs and more columns
  sparkfleet cluster list --watch          # until Ctrl-C
  sparkfleet cluster list -l site=Graz     # set by `sparkfleet cluster label`
  sparkfleet cluster list --from console   # needs no login at the broker
";

/// Examples below the help of `sparkfleet deployment list`.
const DEPLOYMENT_LIST_EXAMPLES: &str = "\
Examples:
  sparkfleet deployment list --cluster Paint_Shop
  sparkfleet deployment list --watch -o json   # one object a line for each change
  sparkfleet deployment list -o name | xargs -n 1 sparkfleet deployment show
";

/// Examples below the help of `sparkfleet alert list`.
const ALERT_LIST_EXAMPLES: &str = "\
Examples:
  sparkfleet alert list --cluster Paint_Shop
  sparkfleet alert list --check   # for scripts: exit code 1 if there is any
  sparkfleet alert list --watch   # until Ctrl-C
";

/// Every command on a fleet that runs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print Sparkplug messages as they pass, decoded; record them; or show a tree of who is alive
    Watch(WatchArguments),
    /// Publish the births, data and deaths of a recording again
    Replay(ReplayArguments),
    /// Write one metric of any Edge Node or device, with the datatype of its birth
    Write(WriteArguments),
    /// Keep settings of several fleets by name, so that commands need no options
    #[command(subcommand)]
    Context(ContextCommand),
    /// Try a token at a web console, and keep both as the current context
    Login(LoginArguments),
    /// Print the address of the web console, and open it where there is a desktop
    Ui(UiArguments),
    /// Create, list, show and delete edge clusters
    #[command(subcommand, alias = "clusters")]
    Cluster(ClusterCommand),
    /// Create, list, show, move and delete deployments on edge clusters
    #[command(subcommand, alias = "deployments")]
    Deployment(DeploymentCommand),
    /// Bring clusters, deployments and entries to what files say, in one transaction
    Apply(ApplyArguments),
    /// Show what differs from what files say: exit code 1 if anything does
    Diff(DiffArguments),
    /// Show on one page whether the broker, the central services and every cluster are well, and what waits
    Status {
        /// Go on, and show what changes: in place on a terminal, the whole page again elsewhere
        #[arg(long, short)]
        watch: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        source: ReadingSource,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Check broker, TLS, rights, message size, clocks, services, git server and console, and say what to do: exit code 1 if anything has failed
    Check(CheckArguments),
    /// Show rollouts of chart templates, hold and resume them, and let them continue without a cluster
    #[command(subcommand, alias = "rollouts")]
    Rollout(RolloutCommand),
    /// List active alerts of all clusters and central services
    #[command(subcommand, alias = "alerts")]
    Alert(AlertCommand),
    /// List what happened in the fleet, as the web console has recorded it
    Events(EventsArguments),
    /// List clusters, hosts, deployments or alerts as they were at a time, or what changed between two times
    At(AtArguments),
    /// Decide what clusters follow after ConfigDB was restored from a backup, or lost
    #[command(subcommand)]
    Recover(RecoverCommand),
    /// List, show, approve and revoke hosts that join by attestation
    #[command(subcommand, alias = "hosts")]
    Host(HostCommand),
    /// Show and write the attestation policy of an edge cluster
    #[command(subcommand, alias = "policies")]
    Policy(PolicyCommand),
    /// Generate the fleet's signing keys
    #[command(subcommand)]
    Trust(TrustCommand),
    /// Seal secrets so that only one edge cluster can open them; put them into its repository, list and delete them
    #[command(subcommand)]
    Secret(SecretCommand),
    /// Make, list and revoke tokens for the web console and for git
    #[command(subcommand, alias = "tokens")]
    Token(TokenCommand),
    /// Check the records of writes of cluster manager and console
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Write the access control of an MQTT server: who may publish and subscribe to what
    #[command(subcommand)]
    Acl(AclCommand),
}

/// `sparkfleet ui`.
#[derive(Debug, Clone, Args)]
pub struct UiArguments {
    /// Context to take the settings from that no option gives (`sparkfleet context list`)
    #[arg(long, env = CONTEXT_VARIABLE)]
    pub context: Option<String>,
    /// Address of the console
    #[arg(
        id = "console",
        long = "url",
        visible_alias = "console",
        env = CONSOLE_VARIABLE,
        default_value = "http://127.0.0.1:8482/"
    )]
    pub url: String,
    /// Only print the address
    #[arg(long)]
    pub print: bool,
}

/// `sparkfleet cluster ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum ClusterCommand {
    /// Create an edge cluster: writes its EdgeCluster entry
    Create {
        /// Name: letters, digits and `_`, beginning with a letter
        name: String,
        /// Kubernetes namespace of the edge services
        #[arg(long, default_value = "fplus-edge")]
        namespace: String,
        /// The site manages Flux and sealed secrets itself
        #[arg(long)]
        bare: bool,
        /// UUID to use; by default derived from organisation and name, so that a repeated command changes nothing
        #[arg(long)]
        uuid: Option<Uuid>,
        /// Wait until its setup is ready and its edge sync is born
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// List edge clusters with their setup, their liveness and what Flux says of their own release
    #[command(visible_alias = "ls", after_help = CLUSTER_LIST_EXAMPLES)]
    List {
        /// Only with these labels: KEY=VALUE, KEY!=VALUE, KEY or !KEY, joined by commas
        #[arg(long, short = 'l', value_name = "LABELS")]
        selector: Option<Selector>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        reading: ListOptions,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Set labels of an edge cluster, by which lists choose (-l), or take them away
    Label {
        /// Name or UUID
        cluster: String,
        /// KEY=VALUE, or KEY- to take it away
        #[arg(required = true, value_parser = label)]
        labels: Vec<(String, Option<String>)>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Show one edge cluster: setup, Flux, hosts, deployments, alerts
    #[command(visible_alias = "get")]
    Show {
        /// Name or UUID
        cluster: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        source: ReadingSource,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Edit the EdgeCluster entry of a cluster in $VISUAL or $EDITOR, as YAML, or JSON with -o json; what is refused is opened again with the reason
    Edit {
        /// Name or UUID
        cluster: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Print the line that makes a Kubernetes cluster this edge cluster, to be pasted where kubectl reaches it
    Bootstrap {
        /// Name or UUID
        cluster: String,
        /// How long the line can be used, for example 2h
        #[arg(long, default_value = "24h", value_parser = humantime::parse_duration)]
        expires: std::time::Duration,
        /// Print none; revoke all that were printed for this cluster
        #[arg(long)]
        revoke: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Show and end the identities of an edge cluster
    #[command(subcommand)]
    Identity(IdentityCommand),
    /// Show or change when a changed chart template reaches an edge cluster, and where it stays in repositories of charts
    Rollout {
        /// Name or UUID
        cluster: String,
        /// Its wave: a change goes to it when every cluster of an earlier wave runs it and is ready; 9 is the last, and that of clusters that have none
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=9))]
        wave: Option<u8>,
        /// Stay at a place in a git repository: REPOSITORY=commit:HASH, or tag:NAME, semver:RANGE, branch:NAME; may be given several times
        #[arg(long, value_parser = pin)]
        pin: Vec<(String, GitRef)>,
        /// Follow a git repository again as its template says; may be given several times
        #[arg(long, value_name = "REPOSITORY")]
        unpin: Vec<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Ask Flux to reconcile all deployments of an edge cluster now; those that are suspended are left out
    Reconcile {
        /// Name or UUID
        cluster: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Delete an edge cluster; its tear-down runs in order, and what stays on its Kubernetes is printed with the command that removes it
    #[command(visible_alias = "rm")]
    Delete {
        /// Name or UUID
        cluster: String,
        /// Delete its deployments too; without this a cluster that has any is refused
        #[arg(long)]
        with_deployments: bool,
        /// Wait until the tear-down is complete
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// `sparkfleet cluster identity ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum IdentityCommand {
    /// Show a cluster's certificates, tokens and alerts
    Show {
        /// Name or UUID
        cluster: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Revoke certificates of a cluster: all that are valid, or those named
    Revoke {
        /// Name or UUID
        cluster: String,
        /// Serial number, hexadecimal; may be given several times
        #[arg(long)]
        serial: Vec<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Let a cluster whose certificate has expired renew it, once
    Approve {
        /// Name or UUID
        cluster: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Fence the present machines of a cluster off: every identity and token of it is revoked, and only a new token enrols others
    Replace {
        /// Name or UUID
        cluster: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// `sparkfleet deployment ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum DeploymentCommand {
    /// Create a deployment, or change the one of that name
    Create {
        /// Name, unique in the cluster; of an edge agent it is the edge node id
        name: String,
        /// Cluster name or UUID
        #[arg(long)]
        cluster: String,
        /// Chart template: name or UUID
        #[arg(long, default_value = "Edge agent")]
        chart: String,
        /// Host to run on, one that the cluster has; floating without
        #[arg(long)]
        host: Option<String>,
        /// Helm values, as a JSON or YAML file; - for standard input
        #[arg(long)]
        values: Option<PathBuf>,
        /// Wait until the edge reports it applied and ready
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// List deployments with what the edge reports of them, also those that it is still removing
    #[command(visible_alias = "ls", after_help = DEPLOYMENT_LIST_EXAMPLES)]
    List {
        /// Only of this cluster (name or UUID)
        #[arg(long)]
        cluster: Option<String>,
        /// Only with these labels: KEY=VALUE, KEY!=VALUE, KEY or !KEY, joined by commas
        #[arg(long, short = 'l', value_name = "LABELS")]
        selector: Option<Selector>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        reading: ListOptions,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Set labels of a deployment, by which lists choose (-l), or take them away
    Label {
        /// UUID, or CLUSTER/NAME
        deployment: String,
        /// KEY=VALUE, or KEY- to take it away
        #[arg(required = true, value_parser = label)]
        labels: Vec<(String, Option<String>)>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Show one deployment: its entry and what the edge reports of it
    #[command(visible_alias = "get")]
    Show {
        /// UUID, or CLUSTER/NAME
        deployment: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        source: ReadingSource,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Print the Kubernetes manifests that a deployment is rendered to, as YAML documents, and say whether the edge runs them
    Manifests {
        /// UUID, or CLUSTER/NAME
        deployment: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        source: ReadingSource,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Edit the EdgeDeployment entry of a deployment in $VISUAL or $EDITOR, as YAML, or JSON with -o json; what is refused is opened again with the reason
    Edit {
        /// UUID, or CLUSTER/NAME
        deployment: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Move a deployment to another host of its cluster
    Move {
        /// UUID, or CLUSTER/NAME
        deployment: String,
        /// The host; without it the deployment floats
        #[arg(long)]
        host: Option<String>,
        /// Wait until the edge reports the change applied
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Suspend a deployment: Flux changes nothing of it until it is resumed, and what runs continues to run
    Suspend {
        /// UUID, or CLUSTER/NAME
        deployment: String,
        /// Wait until the edge reports it suspended
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Resume a deployment that is suspended
    Resume {
        /// UUID, or CLUSTER/NAME
        deployment: String,
        /// Wait until the edge reports it applied and ready
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Ask Flux to reconcile a deployment now, and not at its next interval
    Reconcile {
        /// UUID, or CLUSTER/NAME
        deployment: String,
        /// Wait until the edge reports it applied and ready
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Delete a deployment
    #[command(visible_alias = "rm")]
    Delete {
        /// UUID, or CLUSTER/NAME
        deployment: String,
        /// Wait until the edge reports it gone
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// `sparkfleet rollout ...`. CHART is the name or UUID of a chart template.
#[derive(Debug, Clone, Subcommand)]
pub enum RolloutCommand {
    /// List chart templates with their clusters by wave, what blocks them, and what operators decided
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        source: ReadingSource,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Hold a rollout: a change of the template reaches no deployment that runs another one
    Hold {
        /// Name or UUID of the chart template
        chart: String,
        /// Why
        #[arg(long)]
        note: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Let a rollout that is held continue, wave after wave
    Resume {
        /// Name or UUID of the chart template
        chart: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Let later waves not wait for a cluster, until the template changes again
    Free {
        /// Name or UUID of the chart template
        chart: String,
        /// The cluster that blocks it: name or UUID
        #[arg(long)]
        cluster: String,
        /// Why
        #[arg(long, conflicts_with = "withdraw")]
        note: Option<String>,
        /// Later waves wait for the cluster again
        #[arg(long)]
        withdraw: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// `sparkfleet alert ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum AlertCommand {
    /// List active alerts, the oldest first
    #[command(visible_alias = "ls", after_help = ALERT_LIST_EXAMPLES)]
    List {
        /// Only of this cluster (name or UUID)
        #[arg(long)]
        cluster: Option<String>,
        /// End with exit code 1 if there is any
        #[arg(long, conflicts_with = "watch")]
        check: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        reading: ListOptions,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Say that you look after alerts: all users see your name, and the alerts stay active until their cause ends
    #[command(visible_alias = "acknowledge")]
    Ack {
        /// What they are about: CLUSTER or CLUSTER/NODE, or the node of a central service
        about: String,
        /// Only this alert, such as Offline
        #[arg(long)]
        alert: Option<String>,
        /// What you do about it
        #[arg(long, conflicts_with = "withdraw")]
        note: Option<String>,
        /// Take it back, also a silence: no user looks after them
        #[arg(long)]
        withdraw: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Silence alerts for a time, also where they end meanwhile and become active again; `ack --withdraw` ends it before
    Silence {
        /// What they are about: CLUSTER or CLUSTER/NODE, or the node of a central service
        about: String,
        /// How long, for example 2h or 7d; 30d at most
        #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
        time: std::time::Duration,
        /// Only this alert, such as Offline
        #[arg(long)]
        alert: Option<String>,
        /// Why
        #[arg(long)]
        note: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// `sparkfleet config ...`. OBJECT is a UUID or a unique name, APPLICATION a slug (EdgeCluster, EdgeDeployment, ...).
#[derive(Debug, Clone, Subcommand)]
pub enum ConfigCommand {
    /// Print an entry
    Get {
        /// Object: UUID or unique name
        object: String,
        /// Application: slug or UUID
        application: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        source: ReadingSource,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Write an entry
    Put {
        /// Object: UUID or unique name
        object: String,
        /// Application: slug or UUID
        application: String,
        /// JSON or YAML file; - for standard input
        file: PathBuf,
        /// Only if the entry still has this ETag; `none` if it must not exist
        #[arg(long)]
        if_match: Option<String>,
        /// Create the object as a member of this class (name or UUID) if it does not exist
        #[arg(long)]
        class: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Edit an entry in $VISUAL or $EDITOR, as YAML, or JSON with -o json; what is refused is opened again with the reason
    Edit {
        /// Object: UUID or unique name
        object: String,
        /// Application: slug or UUID
        application: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Change parts of an entry by a JSON merge patch (RFC 7396)
    Patch {
        /// Object: UUID or unique name
        object: String,
        /// Application: slug or UUID
        application: String,
        /// JSON or YAML file; - for standard input
        file: PathBuf,
        /// Only if the entry still has this ETag
        #[arg(long)]
        if_match: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Delete an entry, or a whole object
    #[command(visible_alias = "rm")]
    Delete {
        /// Object: UUID or unique name
        object: String,
        /// Application: slug or UUID; without it the object itself is deleted
        application: Option<String>,
        /// Only if the entry still has this ETag
        #[arg(long)]
        if_match: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// List objects, or the objects that have an entry of an application
    #[command(visible_alias = "ls")]
    List {
        /// Application: slug or UUID
        application: Option<String>,
        /// Only members of this class (name or UUID)
        #[arg(long)]
        class: Option<String>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        source: ReadingSource,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Load a ConfigDB dump (JSON or YAML, versions 1 and 2) in one transaction: all of it is written, or nothing
    Load {
        /// The file; - for standard input
        file: PathBuf,
        /// Check it, print what would be written, and what edges would delete because of it
        #[arg(long)]
        dry_run: bool,
        /// Load it although edges delete something because of it; without this such a load is refused
        #[arg(long)]
        allow_delete: bool,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Print the whole ConfigDB as a dump (version 2), or write it to a new file that only its owner can read
    Dump {
        /// The new file; without one, or with -, standard output
        file: Option<PathBuf>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
    /// Print the changes of an object's entries: time, writer, revision, value
    History {
        /// Object: UUID or unique name
        object: String,
        /// Application: slug or UUID; all without
        application: Option<String>,
        /// Only changes from this revision on
        #[arg(long, default_value_t = 0)]
        since: u64,
        /// At most so many, the newest
        #[arg(long, default_value_t = 100)]
        limit: u64,
        #[command(flatten)]
        #[expect(missing_docs, reason = "options are documented where they are defined")]
        options: Options,
    },
}

/// `sparkfleet acl ...`.
#[derive(Debug, Clone, Subcommand)]
pub enum AclCommand {
    /// Write the configuration files by which a server keeps clusters apart, for users named by their certificates
    Generate(AclGenerateArguments),
    /// Try on a running server what each user may and may not do: exit code 1 if it does not keep to what `generate` writes
    Check(Box<AclCheckArguments>),
    /// Make the key and the certificate of an operator's own user
    Operator(AclOperatorArguments),
    /// Put the revocation lists of all authorities into one file for the server; one that would lock out a client is refused
    Crl(AclCrlArguments),
}

/// `sparkfleet acl operator`.
#[derive(Debug, Clone, Args)]
pub struct AclOperatorArguments {
    /// Name of the operator: letters, digits and _
    pub name: String,
    /// Organisation: the first part of every Sparkplug group
    #[arg(long, env = "SPARKFLEET_ORGANISATION", default_value = "ACME")]
    pub organisation: String,
    /// PEM file of the authority that signs client certificates for the server
    #[arg(long)]
    pub ca: PathBuf,
    /// PEM file of its private key
    #[arg(long)]
    pub ca_key: PathBuf,
    /// Days for which the certificate counts
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub days: u16,
    /// Directory for USER.pem and USER.key; files that are there are not overwritten
    #[arg(long)]
    pub directory: PathBuf,
}

/// `sparkfleet acl crl`.
#[derive(Debug, Clone, Args)]
pub struct AclCrlArguments {
    /// PEM file of every authority that signs client certificates, as the server has it (`cafile` of Mosquitto)
    #[arg(long)]
    pub ca: PathBuf,
    /// PEM file with lists, such as identity/revoked.pem of the cluster manager; once for each
    #[arg(long, required = true)]
    pub list: Vec<PathBuf>,
    /// File to write (`crlfile` of Mosquitto)
    #[arg(long)]
    pub out: PathBuf,
}

/// Of which clusters and hosts the users of a server are.
#[derive(Debug, Clone, Args)]
pub struct AclSite {
    /// Name of an edge cluster; once for each
    #[arg(long)]
    pub cluster: Vec<String>,
    /// File with what `sparkfleet cluster list -o json` prints; - for standard input
    #[arg(long)]
    pub clusters_from: Option<PathBuf>,
    /// Name of an operator with a user of their own (`sparkfleet acl operator`), in whose name they write to ConfigDB; once for each. With any, there is no user that operators share
    #[arg(long)]
    pub operator: Vec<String>,
    /// Host Application id that an operator publishes STATE under; once for each
    #[arg(long, default_value = "sparkfleet-cli")]
    pub operator_host: Vec<String>,
    /// Host Application id that a viewer (historian, dashboard) publishes STATE under; once for each
    #[arg(long)]
    pub viewer_host: Vec<String>,
    /// Sparkplug group of Edge Nodes of other makes, of which operators and the console may write metrics and ask for births; once for each
    #[arg(long)]
    pub foreign_group: Vec<String>,
    /// Every host has credentials of its own, named by the UUID of its state disk. Give each host topics of its own, and leave out the users that the hosts of a cluster share
    #[arg(long)]
    pub own_host_credentials: bool,
    /// The web console may ask for births and command no device: for one with web.read_only
    #[arg(long)]
    pub read_only_console: bool,
}

/// `sparkfleet acl check`.
#[derive(Debug, Clone, Args)]
pub struct AclCheckArguments {
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub site: AclSite,
    /// Directory with what users connect with: USER.pem and USER.key, or USER.password; in its folder `revoked`, certificates and keys that the server must refuse
    #[arg(long)]
    pub credentials: PathBuf,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub options: Options,
}

/// `sparkfleet acl generate`.
#[derive(Debug, Clone, Args)]
pub struct AclGenerateArguments {
    /// Kind of the MQTT server
    #[arg(long, value_enum)]
    pub broker: BrokerKind,
    /// Organisation: the first part of every Sparkplug group
    #[arg(long, env = "SPARKFLEET_ORGANISATION", default_value = "ACME")]
    pub organisation: String,
    #[command(flatten)]
    #[expect(missing_docs, reason = "options are documented where they are defined")]
    pub site: AclSite,
    /// Write the files into this directory instead of printing them
    #[arg(long)]
    pub directory: Option<PathBuf>,
}

/// Kinds of MQTT servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BrokerKind {
    /// Eclipse Mosquitto 2, static files
    Mosquitto,
    /// Eclipse Mosquitto 2, plugin dynamic-security
    MosquittoDynsec,
    /// EMQX 5, file source
    Emqx,
    /// HiveMQ 4, extension File RBAC
    Hivemq,
    /// VerneMQ, static files
    Vernemq,
}

/// A label: `KEY=VALUE`, or `KEY-`, by which it is taken away.
///
/// # Errors
/// Says the form.
fn label(text: &str) -> Result<(String, Option<String>), String> {
    let (key, value) = match (text.split_once('='), text.strip_suffix('-')) {
        (Some((key, value)), _) => (key, Some(value)),
        (None, Some(key)) => (key, None),
        (None, None) => (text, Some("")),
    };
    let is_edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_key = key.len() <= 63
        && is_edge(key.chars().next())
        && is_edge(key.chars().last())
        && key.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    if !is_key || value.is_some_and(|value| value.is_empty() || value.chars().count() > 63) {
        return Err("write KEY=VALUE, or KEY- to take it away; a key has 1 to 63 letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit, a value 1 to 63 characters".to_owned());
    }
    Ok((key.to_owned(), value.map(str::to_owned)))
}

/// Reads `REPOSITORY=KIND:PLACE`.
///
/// # Errors
/// Says the form.
fn pin(text: &str) -> Result<(String, GitRef), String> {
    let form = "write REPOSITORY=commit:HASH, REPOSITORY=tag:NAME, REPOSITORY=semver:RANGE or REPOSITORY=branch:NAME";
    let (repository, place) = text.split_once('=').ok_or(form)?;
    let (kind, place) = place.split_once(':').filter(|(_, place)| !place.is_empty()).ok_or(form)?;
    let place = place.to_owned();
    let pin = match kind {
        "commit" => GitRef::Commit(place),
        "tag" => GitRef::Tag(place),
        "semver" => GitRef::Semver(place),
        "branch" => GitRef::Branch(place),
        _ => return Err(form.to_owned()),
    };
    Ok((repository.to_owned(), pin))
}

/// A command line as the program reads it, its first word the program.
#[cfg(test)]
pub(crate) fn parsed<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Command, clap::Error> {
    let matches = Command::augment_subcommands(clap::Command::new("sparkfleet")).try_get_matches_from(words)?;
    <Command as clap::FromArgMatches>::from_arg_matches(&matches)
}

#[cfg(test)]
mod tests;
