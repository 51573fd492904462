//! Every metric name of a joining host but those of the join protocol. Nothing else may spell them.

/// Value of [`SERVICE`].
pub const SERVICE_NAME: &str = "bootstrapper";

/// Which service the node is (String): [`SERVICE_NAME`].
pub const SERVICE: &str = "Properties/Service";
/// Version of the software (String).
pub const VERSION: &str = "Properties/Version";
/// The host is a simulation: its attester proves nothing (Boolean).
pub const SIMULATED: &str = "Properties/Simulated";
/// Where the host stands (String).
pub const STATE: &str = "Host/State";
/// How far it is since it has a ticket (String, null before).
pub const STAGE: &str = "Host/Stage";
/// What it does at the moment, for people (String, null if nothing worth telling).
pub const ACTIVITY: &str = "Host/Activity";
/// What went wrong last (String, null if nothing).
pub const LAST_ERROR: &str = "Host/Last_Error";
/// What it asks for: `join` or `rejoin`, and of an administrator `init` or `recover` (String).
pub const KIND: &str = "Host/Kind";
/// `worker` or `control-plane` (String).
pub const ROLE: &str = "Host/Role";
/// The name that it asks for, or has (String, null: the issuer names it).
pub const NODE_NAME: &str = "Host/Node_Name";
/// `kubeadm` or `k3s` (String).
pub const DISTRIBUTION: &str = "Host/Distribution";
/// Variant of its attestation (String).
pub const VARIANT: &str = "Host/Variant";
/// Attempts begun since the process started (UInt64).
pub const ATTEMPTS: &str = "Host/Attempts";
/// Refusals believed since the process started (UInt64).
pub const REFUSALS: &str = "Host/Refusals";
/// Messages that were not believed since the process started (UInt64).
pub const IGNORED: &str = "Host/Ignored";
/// Kubernetes version of the ticket (String, null before).
pub const KUBERNETES_VERSION: &str = "Host/Kubernetes_Version";
/// True while the host asks an administrator, too (Boolean). A command that says true makes it do so for ten minutes.
pub const ADMINISTRATOR: &str = "Host/Administrator";
