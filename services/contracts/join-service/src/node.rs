//! The metrics of the Join node itself, without those that every Edge Node has and without its counters.

use sparkplug::replication::Origin;
use sparkplug::typed::form;
use uuid::Uuid;

use crate::names::{
    CLUSTER_NAME, CLUSTER_UUID, CONTROL_PLANE_HOLDER, CONTROL_PLANE_UNTIL, HOSTS_LOCKED_OUT, HOSTS_MEMBERS,
    HOSTS_PENDING, HOSTS_TOTAL, POLICY_DIGEST, POLICY_ENTRY, POLICY_HELD, POLICY_HOLD_REASON, POLICY_ORIGIN,
    POLICY_REASON, POLICY_REVISION, POLICY_STATE, POLICY_VERSION, REPLICA, SERVICE, SERVICE_NAME, SIMULATED,
    STATUS_REASON, TICKETS_ACKNOWLEDGED, TICKETS_ISSUED, TICKETS_RESENT, TOKENS_LIVE, TOKENS_REVOKED, VERSION,
};
use crate::policy::{PolicyDigest, PolicyState};

/// What a Join node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JoinNode {
    /// Version of the software.
    pub version: String,
    /// The cluster behind it is simulated.
    pub simulated: bool,
    /// Object of the cluster.
    pub cluster_uuid: Uuid,
    /// Name of the cluster.
    pub cluster_name: String,
    /// Name of the replica that publishes.
    pub replica: String,
    /// Version of the policy taken over; 0 before the first.
    pub policy_version: u64,
    /// Digest of it.
    pub policy_digest: Option<PolicyDigest>,
    /// Revision of its entry; 0 without one.
    pub policy_revision: u64,
    /// Where it comes from.
    pub policy_origin: Option<Origin>,
    /// What the control plane sends is held; None: this service does not judge where a policy comes from.
    pub policy_held: Option<bool>,
    /// Why it is held.
    pub policy_hold_reason: Option<String>,
    /// The policy's entry, while it is asked for.
    pub policy_entry: Option<String>,
    /// What it does.
    pub policy_state: PolicyState,
    /// Why it admits no host, or why the last command was refused.
    pub policy_error: Option<String>,
    /// Host devices alive.
    pub hosts_total: u32,
    /// Of them those that wait for an approval.
    pub hosts_pending: u32,
    /// Of them members.
    pub hosts_members: u32,
    /// Of them members that were refused their keys.
    pub hosts_locked_out: u32,
    /// Tickets made since the start of the replica.
    pub tickets_issued: u64,
    /// Tickets sent again since then.
    pub tickets_resent: u64,
    /// Tickets acknowledged since then.
    pub tickets_acknowledged: u64,
    /// Join tokens that are valid.
    pub tokens_live: u32,
    /// Join tokens revoked since the start of the replica.
    pub tokens_revoked: u64,
    /// State disk of the host that is joining the control plane.
    pub control_plane_holder: Option<Uuid>,
    /// Until when it may, UTC ms.
    pub control_plane_until: Option<u64>,
    /// What keeps the service from working.
    pub error: Option<String>,
}

sparkplug::typed_metrics! {
    JoinNode {
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
        /// Name of the replica that publishes the node.
        replica => REPLICA,
        /// Version of the policy that was taken over; 0 before the first.
        policy_version => POLICY_VERSION,
        /// Digest of the policy; null before the first.
        policy_digest as form::Nullable<form::Parsed> => POLICY_DIGEST,
        /// Revision of ConfigDB at which the policy stands; 0 without an entry.
        policy_revision => POLICY_REVISION,
        /// State of ConfigDB that the policy was derived from: STORE/EPOCH/TIMELINE/REVISION.
        #[optional]
        policy_origin as form::Nullable<form::Parsed> => POLICY_ORIGIN,
        /// The policy in force stays, whatever the control plane sends, until an operator decides.
        #[optional]
        policy_held => POLICY_HELD,
        /// Why it is held; null: it is not.
        #[optional]
        policy_hold_reason => POLICY_HOLD_REASON,
        /// The policy's entry, JSON; null while no recovery asks for it.
        #[optional]
        policy_entry => POLICY_ENTRY,
        /// unknown, none, in-force or invalid. Hosts are admitted only in-force.
        policy_state as form::Parsed => POLICY_STATE,
        /// Why the policy admits no host, or why the last command was refused; null: nothing.
        policy_error => POLICY_REASON,
        /// Host devices that are alive.
        hosts_total as form::Count => HOSTS_TOTAL,
        /// Hosts that wait for an approval.
        hosts_pending as form::Count => HOSTS_PENDING,
        /// Hosts that are members.
        hosts_members as form::Count => HOSTS_MEMBERS,
        /// Members that were refused their keys.
        #[optional]
        hosts_locked_out as form::Count => HOSTS_LOCKED_OUT,
        /// Tickets made since the start of the replica.
        tickets_issued => TICKETS_ISSUED,
        /// Tickets sent again since the start of the replica.
        tickets_resent => TICKETS_RESENT,
        /// Tickets acknowledged by a second quote since the start of the replica.
        tickets_acknowledged => TICKETS_ACKNOWLEDGED,
        /// Join tokens that are valid at present.
        tokens_live as form::Count => TOKENS_LIVE,
        /// Join tokens revoked since the start of the replica.
        tokens_revoked => TOKENS_REVOKED,
        /// State disk of the host that is joining the control plane; null: none.
        control_plane_holder as form::Nullable<form::Uuid> => CONTROL_PLANE_HOLDER,
        /// Until when it may; null: none.
        control_plane_until as form::Nullable<form::DateTime> => CONTROL_PLANE_UNTIL,
        /// What keeps the service from working; null: nothing.
        error => STATUS_REASON,
    }
}

impl JoinNode {
    /// Whether the policy with that version and digest is taken over, in force or not.
    #[must_use]
    pub fn has_policy(&self, version: u64, digest: PolicyDigest) -> bool {
        self.policy_version == version && self.policy_digest == Some(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::DesiredPolicy;
    use sparkplug::TypedMetrics;

    #[test]
    fn names_and_types_on_the_wire_are_fixed_and_only_changes_are_published() {
        let node = JoinNode { cluster_uuid: Uuid::from_u128(1), ..JoinNode::default() };
        let metrics = node.to_metrics();
        let listed: Vec<String> = metrics.iter().map(|m| format!("{} {:?}", m.name, m.datatype)).collect();
        let expected = [
            "Properties/Service String",
            "Properties/Version String",
            "Properties/Simulated Boolean",
            "Cluster/UUID Uuid",
            "Cluster/Name String",
            "Replica/Name String",
            "Policy/Version UInt64",
            "Policy/Digest String",
            "Policy/Revision UInt64",
            "Policy/Origin String",
            "Policy/Held Boolean",
            "Policy/Hold_Reason String",
            "Policy/Entry String",
            "Policy/State String",
            "Policy/Reason String",
            "Hosts/Total UInt64",
            "Hosts/Pending UInt64",
            "Hosts/Members UInt64",
            "Hosts/Locked_Out UInt64",
            "Tickets/Issued UInt64",
            "Tickets/Resent UInt64",
            "Tickets/Acknowledged UInt64",
            "Tokens/Live UInt64",
            "Tokens/Revoked UInt64",
            "Control_Plane/Holder Uuid",
            "Control_Plane/Until DateTime",
            "Status/Reason String",
        ];
        assert_eq!(listed, expected);
        assert_eq!(JoinNode::from_metrics(&metrics), Ok(node.clone()));
        let digest = DesiredPolicy { version: 1, ..DesiredPolicy::default() }.digest();
        let later = JoinNode {
            policy_version: 1,
            policy_digest: Some(digest),
            policy_state: PolicyState::None,
            ..node.clone()
        };
        let changed: Vec<String> = later.changes_since(&node).iter().map(|m| m.name.to_string()).collect();
        assert_eq!(changed, [POLICY_VERSION, POLICY_DIGEST, POLICY_STATE]);
        assert!(later.has_policy(1, digest) && !later.has_policy(2, digest) && !node.has_policy(0, digest));
    }
}
