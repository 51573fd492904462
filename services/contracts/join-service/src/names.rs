//! The node's id, its device ids and every metric name. Nothing else may spell them.

use sparkplug::{DeviceId, EdgeNodeDescriptor, EdgeNodeId, GroupId};
use uuid::Uuid;

/// Edge Node id of Join in the group of its cluster.
pub const EDGE_NODE_ID: &str = configdb_schema::address::JOIN_NODE;

/// Value of [`SERVICE`].
pub const SERVICE_NAME: &str = "join-service";

/// Which service the node is (String): [`SERVICE_NAME`].
pub const SERVICE: &str = "Properties/Service";
/// Version of the software (String).
pub const VERSION: &str = "Properties/Version";
/// The cluster behind it is simulated (Boolean).
pub const SIMULATED: &str = "Properties/Simulated";
/// Object of the cluster (UUID).
pub const CLUSTER_UUID: &str = "Cluster/UUID";
/// Name of the cluster (String).
pub const CLUSTER_NAME: &str = "Cluster/Name";
/// Name of the replica that publishes the node (String).
pub const REPLICA: &str = "Replica/Name";
/// Version of the policy that was sent last and taken over (UInt64, 0 before the first).
pub const POLICY_VERSION: &str = "Policy/Version";
/// Where the policy comes from (String, `STORE/EPOCH/TIMELINE/REVISION`, null before the first or if its sender did not say).
pub const POLICY_ORIGIN: &str = "Policy/Origin";
/// What the control plane sends is held: the policy in force stays until an operator decides (Boolean; absent: this service does not judge where a policy comes from).
pub const POLICY_HELD: &str = "Policy/Held";
/// The policy's entry (String JSON, null until [`RECOVER_ENTRIES`] asks for it, without an entry, or if it is too large for a message).
pub const POLICY_ENTRY: &str = "Policy/Entry";
/// NCMD, Boolean: whether [`POLICY_ENTRY`] is to be published.
pub const RECOVER_ENTRIES: &str = "Recover/Entries";
/// Why (String, null if it is not).
pub const POLICY_HOLD_REASON: &str = "Policy/Hold_Reason";
/// Digest of it (String, null before the first).
pub const POLICY_DIGEST: &str = "Policy/Digest";
/// Revision of its entry in ConfigDB (UInt64, 0 without an entry).
pub const POLICY_REVISION: &str = "Policy/Revision";
/// `unknown`, `none`, `in-force` or `invalid` (String). Hosts are admitted only `in-force`.
pub const POLICY_STATE: &str = "Policy/State";
/// Why the policy admits no host, or why the last command was refused (String, null if nothing).
pub const POLICY_REASON: &str = "Policy/Reason";
/// Host devices alive (UInt64).
pub const HOSTS_TOTAL: &str = "Hosts/Total";
/// Of them those that wait for an approval (UInt64).
pub const HOSTS_PENDING: &str = "Hosts/Pending";
/// Of them members (UInt64).
pub const HOSTS_MEMBERS: &str = "Hosts/Members";
/// Of them members that were refused their keys (UInt64).
pub const HOSTS_LOCKED_OUT: &str = "Hosts/Locked_Out";
/// Tickets made since the start of the replica (UInt64).
pub const TICKETS_ISSUED: &str = "Tickets/Issued";
/// Tickets sent again since the start of the replica (UInt64).
pub const TICKETS_RESENT: &str = "Tickets/Resent";
/// Tickets acknowledged by a second quote since the start of the replica (UInt64).
pub const TICKETS_ACKNOWLEDGED: &str = "Tickets/Acknowledged";
/// Join tokens that are valid at present (UInt64).
pub const TOKENS_LIVE: &str = "Tokens/Live";
/// Join tokens revoked since the start of the replica (UInt64).
pub const TOKENS_REVOKED: &str = "Tokens/Revoked";
/// State disk of the host that is joining the control plane (UUID, null if none).
pub const CONTROL_PLANE_HOLDER: &str = "Control_Plane/Holder";
/// Until when it may (DateTime, null if none).
pub const CONTROL_PLANE_UNTIL: &str = "Control_Plane/Until";
/// What keeps the service from working, such as a Kubernetes API that does not answer (String, null if nothing).
pub const STATUS_REASON: &str = "Status/Reason";
/// `Requests/<kind>`: requests of hosts that have proven their TPM, since the start of the replica (UInt64).
pub const REQUESTS: &str = "Requests/";
/// `Refusals/<reason>`: refusals since the start of the replica (UInt64).
pub const REFUSALS: &str = "Refusals/";
/// `Ignored/<reason>`: messages without an answer since the start of the replica (UInt64).
pub const IGNORED: &str = "Ignored/";

/// NCMD: the attestation policy of the cluster (String JSON).
pub const DESIRED_POLICY: &str = "Desired/Policy";

/// Metric names of a host device.
pub mod host {
    /// Name of the Kubernetes node that it is or wants to be (String; empty if the service names it).
    pub const NAME: &str = "Host/Name";
    /// `worker` or `control-plane` (String).
    pub const ROLE: &str = "Host/Role";
    /// Form of its keys: `tpm2` or `simulated` (String).
    pub const VARIANT: &str = "Host/Variant";
    /// Endorsement key in the form in which a policy enrols and revokes it: 64 hex digits (String).
    pub const ENDORSEMENT_KEY: &str = "Host/Endorsement_Key";
    /// `pending`, `refused`, `admitted`, `locked`, `member`, `locked-out`, `failed` or `revoked` (String).
    pub const STATE: &str = "Status/State";
    /// Reason of the last refusal by its stable name (String, null if it was not refused).
    pub const REFUSAL: &str = "Status/Refusal";
    /// Why it is in that state: the refusal for people, or what the host last reported of its progress (String or null).
    pub const REASON: &str = "Status/Reason";
    /// Since when it is in that state, as far as the replica has seen it (DateTime).
    pub const SINCE: &str = "Status/Since";
    /// What it asked for last: `join` or `rejoin` (String).
    pub const KIND: &str = "Host/Kind";
    /// Stage of its last progress (String or null).
    pub const STAGE: &str = "Host/Stage";
    /// Revision of the policy by which it was judged last (UInt64).
    pub const POLICY_REVISION: &str = "Policy/Revision";
    /// PCRs of its last quote (DataSet of `Register`, decimal, and `Value`, hexadecimal; null if no quote could be read).
    pub const PCRS: &str = "Host/Registers";
    /// PCRs that differ where the policy only warns, and other remarks, for people (String or null).
    pub const WARNINGS: &str = "Status/Warnings";
    /// The state disk that it names, if that is another host's (UUID, null if not).
    pub const FOREIGN_DISK: &str = "Host/Foreign_Disk";
    /// When it was first seen (DateTime).
    pub const FIRST_SEEN: &str = "Host/First_Seen";
    /// When it was last judged (DateTime).
    pub const LAST_SEEN: &str = "Host/Last_Seen";
}

/// The Join node of a group.
#[must_use]
pub fn join_node(group: GroupId) -> EdgeNodeDescriptor {
    let edge_node = EdgeNodeId::new(EDGE_NODE_ID).expect("a constant without forbidden characters is an id");
    EdgeNodeDescriptor::new(group, edge_node)
}

/// The id of a host that names the state disk of another one, so that no such host takes the place of another. It is a UUID of version 8 (RFC 9562) from the first 16 bytes of the hash of
/// its endorsement key.
#[must_use]
pub fn keyed_host(endorsement_key: &[u8; 32]) -> Uuid {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&endorsement_key[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// Device id of the host with this state disk, or of a [`keyed_host`]: its UUID, lower-case with hyphens.
#[must_use]
pub fn host_device(id: Uuid) -> DeviceId {
    DeviceId::new(id.hyphenated().to_string()).expect("hex digits and hyphens make an id")
}

/// The UUID in the id of a host device: its state disk, or a [`keyed_host`]. None if it is not one of Join's.
#[must_use]
pub fn host_of(device: &DeviceId) -> Option<Uuid> {
    // Only the lower-case hyphenated form: another spelling would be a second device of one host.
    Uuid::try_parse(device.as_str()).ok().filter(|id| id.hyphenated().to_string() == device.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_ids_are_read_back_and_foreign_ones_are_not_ours() {
        let disk = Uuid::from_u128(0xAB);
        assert_eq!(host_device(disk).as_str(), "00000000-0000-0000-0000-0000000000ab");
        assert_eq!(host_of(&host_device(disk)), Some(disk));
        for foreign in ["host.a", "000000000000000000000000000000ab", "00000000-0000-0000-0000-0000000000AB"] {
            assert_eq!(host_of(&DeviceId::new(foreign).unwrap()), None, "{foreign}");
        }
    }

    #[test]
    fn a_host_by_its_key_has_an_id_that_no_random_disk_has() {
        let id = keyed_host(&[0xFF; 32]);
        assert_eq!(id.to_string(), "ffffffff-ffff-8fff-bfff-ffffffffffff");
        assert_eq!(host_of(&host_device(id)), Some(id));
    }
}
