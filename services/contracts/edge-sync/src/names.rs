//! The node's id, its device ids and every metric name. Nothing else may spell them.

use std::fmt;

use sparkplug::{DeviceId, EdgeNodeDescriptor, EdgeNodeId, GroupId, NameError};
use uuid::Uuid;

/// Edge Node id of Sync in the group of its cluster.
pub const EDGE_NODE_ID: &str = configdb_schema::address::SYNC_NODE;

/// Value of [`SERVICE`].
pub const SERVICE_NAME: &str = "edge-sync";

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
/// Certificate to seal secrets with (String, PEM; null while unknown).
pub const SEALING_CERTIFICATE: &str = "Sealing/Certificate";
/// Why the certificate could not be read (String, null if it could).
pub const SEALING_REASON: &str = "Sealing/Reason";
/// Version of the accepted index (UInt64, 0 before the first).
pub const DESIRED_VERSION: &str = "Desired/Version";
/// Digest of the accepted index (String, null before the first).
pub const DESIRED_DIGEST: &str = "Desired/Digest";
/// Where the accepted index comes from (String, `STORE/EPOCH/TIMELINE/REVISION`, null before the first or if its sender did not say).
pub const DESIRED_ORIGIN: &str = "Desired/Origin";
/// What the control plane sends is held: nothing of it is applied until an operator decides (Boolean; absent: this Sync does not judge where an index comes from).
pub const DESIRED_HELD: &str = "Desired/Held";
/// Why (String, null if it is not).
pub const DESIRED_HOLD_REASON: &str = "Desired/Hold_Reason";
/// Why the last index was refused, or what keeps the accepted one from being carried out (String, null if nothing).
pub const DESIRED_REASON: &str = "Desired/Reason";
/// Version of the last commits of its repositories that Sync has received (UInt64, 0 before the first; absent: this Sync cannot notify Flux).
pub const SOURCE_VERSION: &str = "Source/Version";
/// Last commit of the cluster's repository of which Sync notified Flux (String, null before the first).
pub const SOURCE_COMMIT: &str = "Source/Commit";
/// Last commit of the shared charts of which Sync notified Flux (String, null before the first).
pub const SOURCE_CHARTS: &str = "Source/Charts";
/// Last commits of other repositories of which Sync notified Flux (DataSet of `URL` and `Commit`).
pub const SOURCE_OTHERS: &str = "Source/Others";
/// Why Sync could not notify Flux of later ones (String, null if it could).
pub const SOURCE_REASON: &str = "Source/Reason";
/// Commit of the cluster's repository that Flux has applied last, as a whole (String, null while unknown).
pub const SOURCE_APPLIED: &str = "Source/Applied";
/// Whether what Flux applies from the cluster's repository is ready (Boolean, null while unknown).
pub const SOURCE_READY: &str = "Source/Ready";
/// What of it is not ready, and why (String, null if nothing).
pub const SOURCE_READY_REASON: &str = "Source/Ready_Reason";
/// Host devices alive (UInt64).
pub const HOSTS_TOTAL: &str = "Hosts/Total";
/// Of them ready (UInt64).
pub const HOSTS_READY: &str = "Hosts/Ready";
/// Deployment devices alive (UInt64).
pub const DEPLOYMENTS_TOTAL: &str = "Deployments/Total";
/// Of them with `Ready` true (UInt64).
pub const DEPLOYMENTS_READY: &str = "Deployments/Ready";

/// Entries of ConfigDB that the cluster itself was last made from (String JSON `{slug: entry}`; null until [`RECOVER_ENTRIES`] asks for it, or if none came).
pub const CLUSTER_ENTRIES: &str = "Cluster/Entries";
/// NCMD, Boolean: whether [`CLUSTER_ENTRIES`] and [`deployment::ENTRIES`] are to be published.
pub const RECOVER_ENTRIES: &str = "Recover/Entries";

/// NCMD: the complete index of desired deployments (String JSON).
pub const DESIRED_INDEX: &str = "Desired/Index";
/// NCMD: the commits that its repositories are at (String JSON).
pub const DESIRED_SOURCE: &str = "Desired/Source";
/// DCMD to a deployment's device: its manifests (String JSON).
pub const DESIRED_MANIFESTS: &str = "Desired/Manifests";

/// Metric names of a host device.
pub mod host {
    /// Host name, as in the label `kubernetes.io/hostname`, or the name of the Kubernetes node (String).
    pub const HOSTNAME: &str = "Host/Name";
    /// CPU architecture (String).
    pub const ARCHITECTURE: &str = "Host/Architecture";
    /// Version of the kubelet (String).
    pub const KUBERNETES_VERSION: &str = "Host/Kubernetes_Version";
    /// Name and version of the operating system (String).
    pub const OPERATING_SYSTEM: &str = "Host/Operating_System";
    /// Runs the control plane (Boolean).
    pub const CONTROL_PLANE: &str = "Host/Control_Plane";
    /// Kubernetes' own Ready condition: `ready` or `not-ready` (String).
    pub const STATE: &str = "Status/State";
    /// Message of that condition where it is not ready (String or null).
    pub const REASON: &str = "Status/Reason";
    /// Since when it is in that state (DateTime, null while unknown).
    pub const SINCE: &str = "Status/Since";
    /// What the host is set apart for (String, null if for nothing).
    pub const SPECIALISED: &str = "Host/Specialised";
}

/// Metric names of a deployment device.
pub mod deployment {
    /// Object of the deployment in ConfigDB (UUID).
    pub const UUID: &str = "Deployment/UUID";
    /// Name for people (String).
    pub const NAME: &str = "Deployment/Name";
    /// `pending`, `applied`, `refused`, `failed` or `deleting` (String).
    pub const STATE: &str = "Status/State";
    /// Why it is in this state (String or null).
    pub const REASON: &str = "Status/Reason";
    /// Since when it is in this state, as far as Sync has seen it (DateTime).
    pub const SINCE: &str = "Status/Since";
    /// Version of the manifests applied (UInt64, 0 before the first).
    pub const VERSION: &str = "Deployment/Version";
    /// Digest of the manifests applied (String, null before the first).
    pub const DIGEST: &str = "Deployment/Digest";
    /// Digest of the manifests that were refused, or whose application failed (String or null).
    pub const REFUSED_DIGEST: &str = "Deployment/Refused_Digest";
    /// Flux' Ready condition (Boolean, null while unknown).
    pub const READY: &str = "Deployment/Ready";
    /// Message of the Ready condition (String or null).
    pub const READY_REASON: &str = "Deployment/Ready_Reason";
    /// Entries of ConfigDB that the applied manifests were made from (String JSON `{slug: entry}`; null until [`RECOVER_ENTRIES`](super::RECOVER_ENTRIES) asks for it, or if none came).
    pub const ENTRIES: &str = "Deployment/Entries";
    /// When the manifests were applied (DateTime or null).
    pub const APPLIED_AT: &str = "Deployment/Applied_At";
    /// A release of it is suspended: Flux changes nothing of it until it is resumed (Boolean).
    pub const SUSPENDED: &str = "Deployment/Suspended";
}

/// The Sync node of a group.
#[must_use]
pub fn sync_node(group: GroupId) -> EdgeNodeDescriptor {
    let edge_node = EdgeNodeId::new(EDGE_NODE_ID).expect("a constant without forbidden characters is an id");
    EdgeNodeDescriptor::new(group, edge_node)
}

/// What a device of Sync stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncDevice {
    /// `host-<hostname>`, with `_` for each dot of the hostname
    Host(String),
    /// `deployment-<name>`, see [`SyncDevice::deployment_id`]. Whose Device it is says [`deployment::UUID`].
    Deployment(DeviceId),
}

const DEPLOYMENT: &str = "deployment-";

impl SyncDevice {
    /// Reads a device id; None if it is not one of Sync's.
    #[must_use]
    pub fn parse(device: &DeviceId) -> Option<Self> {
        let text = device.as_str();
        if let Some(hostname) = text.strip_prefix("host-") {
            return (!hostname.is_empty()).then(|| Self::Host(hostname.replace('_', ".")));
        }
        let name = text.strip_prefix(DEPLOYMENT)?;
        (!name.is_empty()).then(|| Self::Deployment(device.clone()))
    }

    /// The device's id. It has no dot, because some MQTT servers take one for a level of the topic, and some Host Applications allow none in the names of tags.
    ///
    /// # Errors
    /// A hostname has a character that Sparkplug forbids in ids.
    pub fn id(&self) -> Result<DeviceId, NameError> {
        DeviceId::new(self.to_string())
    }

    /// Device id of a deployment: `deployment-<name>`. It is [`SyncDevice::unnamed_deployment`] before the name is known, and where the name has a dot, makes no id, or is a UUID, which could
    /// be that of another deployment.
    #[must_use]
    pub fn deployment_id(deployment: Uuid, name: &str) -> DeviceId {
        let is_name = !name.is_empty() && !name.contains('.') && Uuid::try_parse(name).is_err();
        let named = is_name.then(|| DeviceId::new(format!("{DEPLOYMENT}{name}")).ok()).flatten();
        named.unwrap_or_else(|| Self::unnamed_deployment(deployment))
    }

    /// Device id of a deployment that has no name, or whose name another one still has: `deployment-<uuid>`.
    #[must_use]
    pub fn unnamed_deployment(deployment: Uuid) -> DeviceId {
        let id = DeviceId::new(format!("{DEPLOYMENT}{}", deployment.hyphenated()));
        id.expect("letters, hex digits and hyphens make an id")
    }
}

impl fmt::Display for SyncDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A hostname has no underscore.
            Self::Host(hostname) => write!(f, "host-{}", hostname.replace('.', "_")),
            Self::Deployment(device) => write!(f, "{device}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_ids_are_read_back_and_foreign_ones_are_not_ours() {
        let deployment = SyncDevice::Deployment(SyncDevice::deployment_id(Uuid::from_u128(7), "Oven_1"));
        for device in [SyncDevice::Host("ps-gw1".to_owned()), deployment] {
            assert_eq!(SyncDevice::parse(&device.id().unwrap()), Some(device));
        }
        let dotted = SyncDevice::Host("gw-1.plant.example".to_owned()).id().unwrap();
        assert_eq!(dotted.as_str(), "host-gw-1_plant_example");
        assert_eq!(SyncDevice::parse(&dotted), Some(SyncDevice::Host("gw-1.plant.example".to_owned())));
        for foreign in ["host-", "host.a", "deployment-", "deployment.a", "other"] {
            assert_eq!(SyncDevice::parse(&DeviceId::new(foreign).unwrap()), None, "{foreign}");
        }
        assert!(SyncDevice::Host("a/b".to_owned()).id().is_err());
    }

    #[test]
    fn a_deployment_has_its_name_as_device_id_unless_that_cannot_be() {
        let id = |name: &str| SyncDevice::deployment_id(Uuid::from_u128(7), name).as_str().to_owned();
        let unnamed = "deployment-00000000-0000-0000-0000-000000000007";
        assert_eq!(id("Oven_1"), "deployment-Oven_1");
        assert_eq!(id("Öfen Süd"), "deployment-Öfen Süd");
        for name in ["", "Oven.1", "a/b", "00000000-0000-0000-0000-000000000008", "00000000000000000000000000000008"] {
            assert_eq!(id(name), unnamed, "{name}");
        }
    }
}
