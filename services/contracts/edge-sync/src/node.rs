//! The metrics of the Sync node itself, without those that every Edge Node has.

use sparkplug::replication::Origin;
use sparkplug::typed::form;
use uuid::Uuid;

use crate::digest::Digest;
use crate::entries::Entries;
use crate::names::{
    CLUSTER_ENTRIES, CLUSTER_NAME, CLUSTER_UUID, DEPLOYMENTS_READY, DEPLOYMENTS_TOTAL, DESIRED_DIGEST, DESIRED_HELD,
    DESIRED_HOLD_REASON, DESIRED_ORIGIN, DESIRED_REASON, DESIRED_VERSION, HOSTS_READY, HOSTS_TOTAL,
    SEALING_CERTIFICATE, SEALING_REASON, SERVICE, SERVICE_NAME, SIMULATED, SOURCE_APPLIED, SOURCE_CHARTS,
    SOURCE_COMMIT, SOURCE_OTHERS, SOURCE_READY, SOURCE_READY_REASON, SOURCE_REASON, SOURCE_VERSION, VERSION,
};
use crate::source::{Commit, OtherCommits};

/// What a Sync node says of itself and of its cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SyncNode {
    /// Version of the software.
    pub version: String,
    /// The cluster behind it is simulated.
    pub simulated: bool,
    /// Object of the cluster.
    pub cluster_uuid: Uuid,
    /// Name of the cluster.
    pub cluster_name: String,
    /// Entries that the cluster was last made from, while they are asked for.
    pub cluster_entries: Option<Entries>,
    /// Certificate to seal secrets with, PEM.
    pub sealing_certificate: Option<String>,
    /// Why the certificate could not be read.
    pub sealing_error: Option<String>,
    /// Version of the accepted index; 0 before the first.
    pub desired_version: u64,
    /// Digest of the accepted index.
    pub desired_digest: Option<Digest>,
    /// Where the accepted index comes from.
    pub desired_origin: Option<Origin>,
    /// What the control plane sends is held; None: this Sync does not judge where an index comes from.
    pub desired_held: Option<bool>,
    /// Why it is held.
    pub desired_hold_reason: Option<String>,
    /// Why the last index was refused, or what keeps the accepted one from being carried out.
    pub desired_error: Option<String>,
    /// Version of the last commits that it has received, 0 before the first; None: this Sync cannot notify Flux.
    pub source_version: Option<u64>,
    /// Last commit of the cluster's repository of which it notified Flux.
    pub source_commit: Option<Commit>,
    /// Last commit of the shared charts of which it notified Flux.
    pub source_charts: Option<Commit>,
    /// Last commits of other repositories of which it notified Flux.
    pub source_others: OtherCommits,
    /// Why it could not notify Flux of later ones.
    pub source_error: Option<String>,
    /// Commit of the cluster's repository that Flux has applied last, as a whole.
    pub source_applied: Option<Commit>,
    /// Whether what Flux applies from the cluster's repository is ready; None: not known.
    pub source_ready: Option<bool>,
    /// What of it is not ready, and why.
    pub source_message: Option<String>,
    /// Host devices alive.
    pub hosts_total: u32,
    /// Of them ready.
    pub hosts_ready: u32,
    /// Deployment devices alive.
    pub deployments_total: u32,
    /// Of them with Flux' Ready condition.
    pub deployments_ready: u32,
}

sparkplug::typed_metrics! {
    SyncNode {
        /// Which service the node is.
        (|_| SERVICE_NAME.into()) => SERVICE,
        /// Version of the software.
        #[optional]
        version => VERSION,
        /// The cluster behind it is simulated.
        #[optional]
        simulated => SIMULATED,
        /// Object of the cluster in ConfigDB.
        cluster_uuid as form::Uuid => CLUSTER_UUID,
        /// Name of the cluster.
        cluster_name => CLUSTER_NAME,
        /// Entries of ConfigDB that the cluster was last made from, JSON; null while no recovery asks for them.
        #[optional]
        cluster_entries as form::Nullable<form::Plain> => CLUSTER_ENTRIES,
        /// Certificate to seal secrets with, PEM; null while unknown.
        sealing_certificate => SEALING_CERTIFICATE,
        /// Why the certificate could not be read; null: it could.
        sealing_error => SEALING_REASON,
        /// Version of the accepted index of deployments; 0 before the first.
        desired_version => DESIRED_VERSION,
        /// Digest of the accepted index; null before the first.
        desired_digest as form::Nullable<form::Parsed> => DESIRED_DIGEST,
        /// State of ConfigDB that the accepted index was derived from: STORE/EPOCH/TIMELINE/REVISION.
        #[optional]
        desired_origin as form::Nullable<form::Parsed> => DESIRED_ORIGIN,
        /// Nothing of what the control plane sends is applied until an operator decides.
        #[optional]
        desired_held => DESIRED_HELD,
        /// Why it is held; null: it is not.
        #[optional]
        desired_hold_reason => DESIRED_HOLD_REASON,
        /// Why the last index was refused, or what keeps the accepted one from being carried out; null: nothing.
        desired_error => DESIRED_REASON,
        /// Version of the last commits that it has received; 0 before the first.
        #[optional]
        source_version => SOURCE_VERSION,
        /// Commit of the cluster's repository that Flux was notified of last; null before the first.
        #[optional]
        source_commit as form::Nullable<form::Parsed> => SOURCE_COMMIT,
        /// Commit of the shared charts that Flux was notified of last; null before the first.
        #[optional]
        source_charts as form::Nullable<form::Parsed> => SOURCE_CHARTS,
        /// Commits of other repositories that Flux was notified of last; absent: none.
        #[omit_null]
        source_others => SOURCE_OTHERS,
        /// Why Flux could not be notified of later ones; null: it could.
        #[optional]
        source_error => SOURCE_REASON,
        /// Commit of the cluster's repository that Flux has applied last, as a whole; null while unknown.
        #[optional]
        source_applied as form::Nullable<form::Parsed> => SOURCE_APPLIED,
        /// What Flux applies from the cluster's repository is ready; null while unknown.
        #[optional]
        source_ready => SOURCE_READY,
        /// What of it is not ready, and why; null: nothing.
        #[optional]
        source_message => SOURCE_READY_REASON,
        /// Host devices that are alive.
        hosts_total as form::Count => HOSTS_TOTAL,
        /// Hosts that are ready.
        hosts_ready as form::Count => HOSTS_READY,
        /// Deployment devices that are alive.
        deployments_total as form::Count => DEPLOYMENTS_TOTAL,
        /// Deployments that are ready.
        deployments_ready as form::Count => DEPLOYMENTS_READY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::TypedMetrics;

    #[test]
    fn names_and_types_on_the_wire_are_fixed_and_only_changes_are_published() {
        let commit = "0123456789abcdef0123456789abcdef01234567".parse().unwrap();
        let source_others = OtherCommits([("http://git/x".to_owned(), commit)].into());
        let node = SyncNode { cluster_uuid: Uuid::from_u128(1), source_others, ..SyncNode::default() };
        let metrics = node.to_metrics();
        let listed: Vec<String> = metrics.iter().map(|m| format!("{} {:?}", m.name, m.datatype)).collect();
        let expected = [
            (SERVICE, "String"),
            (VERSION, "String"),
            (SIMULATED, "Boolean"),
            (CLUSTER_UUID, "Uuid"),
            (CLUSTER_NAME, "String"),
            (CLUSTER_ENTRIES, "String"),
            (SEALING_CERTIFICATE, "String"),
            (SEALING_REASON, "String"),
            (DESIRED_VERSION, "UInt64"),
            (DESIRED_DIGEST, "String"),
            (DESIRED_ORIGIN, "String"),
            (DESIRED_HELD, "Boolean"),
            (DESIRED_HOLD_REASON, "String"),
            (DESIRED_REASON, "String"),
            (SOURCE_VERSION, "UInt64"),
            (SOURCE_COMMIT, "String"),
            (SOURCE_CHARTS, "String"),
            (SOURCE_OTHERS, "DataSet"),
            (SOURCE_REASON, "String"),
            (SOURCE_APPLIED, "String"),
            (SOURCE_READY, "Boolean"),
            (SOURCE_READY_REASON, "String"),
            (HOSTS_TOTAL, "UInt64"),
            (HOSTS_READY, "UInt64"),
            (DEPLOYMENTS_TOTAL, "UInt64"),
            (DEPLOYMENTS_READY, "UInt64"),
        ];
        assert_eq!(listed, expected.map(|(name, datatype)| format!("{name} {datatype}")));
        assert_eq!(SyncNode::from_metrics(&metrics), Ok(node.clone()));
        let later = SyncNode { hosts_total: 2, desired_digest: Some(Digest::of_manifests(&[])), ..node.clone() };
        let changed: Vec<String> = later.changes_since(&node).iter().map(|m| m.name.to_string()).collect();
        assert_eq!(changed, [DESIRED_DIGEST, HOSTS_TOTAL]);
    }
}
