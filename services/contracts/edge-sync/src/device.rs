//! The metrics of a host device and of a deployment device.

use std::fmt;
use std::str::FromStr;

use sparkplug::edge_node::NodeUpdate;
use sparkplug::typed::{Form, TypedMetrics, form};
use sparkplug::{DataType, DeviceId, NameError, Value};
use uuid::Uuid;

use crate::digest::Digest;
use crate::entries::Entries;
use crate::names::{SyncDevice, deployment, host};

/// A host of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostDevice {
    /// Label `kubernetes.io/hostname`, or the name of the Kubernetes node.
    pub hostname: String,
    /// CPU architecture.
    pub architecture: String,
    /// Version of the kubelet.
    pub kubernetes_version: String,
    /// Name and version of the operating system.
    pub operating_system: String,
    /// Runs the control plane.
    pub control_plane: bool,
    /// Kubernetes' own Ready condition is true.
    pub ready: bool,
    /// Message of that condition, if it is not.
    pub reason: Option<String>,
    /// Since when, UTC ms; None: not known.
    pub since: Option<u64>,
    /// What the host is set apart for.
    pub specialised: Option<String>,
}

/// [`HostDevice::ready`] as a state.
struct ReadyState;

impl Form<bool> for ReadyState {
    const DATATYPE: DataType = DataType::String;

    fn write(field: &bool) -> Option<Value> {
        Some(if *field { READY } else { NOT_READY }.into())
    }

    fn read(value: Option<&Value>) -> Result<bool, String> {
        match value.and_then(Value::as_str) {
            Some(READY) => Ok(true),
            Some(NOT_READY) => Ok(false),
            _ => Err(format!("must be {READY} or {NOT_READY}")),
        }
    }
}

const READY: &str = "ready";
const NOT_READY: &str = "not-ready";

sparkplug::typed_metrics! {
    HostDevice {
        /// ready or not-ready: Kubernetes' own Ready condition.
        ready as ReadyState => host::STATE,
        /// Message of that condition where the host is not ready; null: it is.
        #[optional]
        reason => host::REASON,
        /// Since when it is in that state; null while unknown.
        #[optional]
        since as form::Nullable<form::DateTime> => host::SINCE,
        /// Host name: label kubernetes.io/hostname, or the name of the Kubernetes node.
        hostname => host::HOSTNAME,
        /// CPU architecture.
        architecture => host::ARCHITECTURE,
        /// Version of the kubelet.
        kubernetes_version => host::KUBERNETES_VERSION,
        /// Name and version of the operating system.
        operating_system => host::OPERATING_SYSTEM,
        /// The host runs the control plane.
        control_plane => host::CONTROL_PLANE,
        /// What the host is set apart for; null: nothing.
        specialised => host::SPECIALISED,
    }
}

impl HostDevice {
    /// What makes the device known, or brings it up to date.
    ///
    /// # Errors
    /// The hostname is not a device id.
    pub fn to_update(&self) -> Result<NodeUpdate, NameError> {
        let device = SyncDevice::Host(self.hostname.clone()).id()?;
        Ok(NodeUpdate::DeviceBirth { device, metrics: self.to_metrics() })
    }
}

/// How far a deployment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum DeploymentState {
    /// Its manifests have not arrived, or are being applied.
    #[default]
    Pending,
    /// The manifests that the index lists are applied.
    Applied,
    /// The manifests are not acceptable; what ran before still runs.
    Refused,
    /// Kubernetes did not take the manifests; it is tried again.
    Failed,
    /// Not desired any more; its objects are being deleted.
    Deleting,
}

impl DeploymentState {
    /// As on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Applied => "applied",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Deleting => "deleting",
        }
    }
}

impl fmt::Display for DeploymentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not one of the states.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be pending, applied, refused, failed or deleting")]
pub struct UnknownDeploymentState;

impl FromStr for DeploymentState {
    type Err = UnknownDeploymentState;

    fn from_str(text: &str) -> Result<Self, UnknownDeploymentState> {
        let states = [Self::Pending, Self::Applied, Self::Refused, Self::Failed, Self::Deleting];
        states.into_iter().find(|state| state.as_str() == text).ok_or(UnknownDeploymentState)
    }
}

/// A deployment as the cluster reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeploymentDevice {
    /// Its object in ConfigDB.
    pub uuid: Uuid,
    /// Name for people; empty while it is unknown.
    pub name: String,
    /// How far it is.
    pub state: DeploymentState,
    /// Why it is in this state.
    pub reason: Option<String>,
    /// Since when, UTC ms, as far as Sync has seen it; 0: never reported.
    pub since: u64,
    /// Version of the manifests applied; 0 before the first.
    pub version: u64,
    /// Digest of the manifests applied.
    pub digest: Option<Digest>,
    /// Digest of the manifests that were refused, or whose application failed.
    pub refused_digest: Option<Digest>,
    /// Flux' Ready condition.
    pub ready: Option<bool>,
    /// Message of the Ready condition.
    pub message: Option<String>,
    /// When the manifests were applied, UTC ms.
    pub applied_at: Option<u64>,
    /// A release of it is suspended: Flux changes nothing of it, and judges nothing.
    pub suspended: bool,
    /// Entries that they were made from, while they are asked for.
    pub entries: Option<Entries>,
}

sparkplug::typed_metrics! {
    DeploymentDevice {
        /// pending, applied, refused, failed or deleting.
        state as form::Parsed => deployment::STATE,
        /// Why it is in this state; null: nothing to say.
        reason => deployment::REASON,
        /// Since when it is in this state, as far as Sync has seen it.
        #[optional]
        since as form::DateTime => deployment::SINCE,
        /// Object of the deployment in ConfigDB.
        uuid as form::Uuid => deployment::UUID,
        /// Name of the deployment; empty while it is unknown.
        name => deployment::NAME,
        /// Version of the manifests applied; 0 before the first.
        version => deployment::VERSION,
        /// Digest of the manifests applied; null before the first.
        digest as form::Nullable<form::Parsed> => deployment::DIGEST,
        /// Digest of the manifests that were refused, or whose application failed; null: none.
        refused_digest as form::Nullable<form::Parsed> => deployment::REFUSED_DIGEST,
        /// Flux' Ready condition, and whether the pods of its workloads run; null while unknown.
        ready => deployment::READY,
        /// Why it is not ready; null: nothing to say.
        message => deployment::READY_REASON,
        /// When the manifests were applied; null before the first.
        applied_at as form::Nullable<form::DateTime> => deployment::APPLIED_AT,
        /// A release of it is suspended: Flux changes nothing of it until it is resumed.
        #[optional]
        suspended => deployment::SUSPENDED,
        /// Entries of ConfigDB that the applied manifests were made from, JSON; null while no recovery asks for them.
        #[optional]
        entries as form::Nullable<form::Plain> => deployment::ENTRIES,
    }
}

impl DeploymentDevice {
    /// Whether it runs exactly what `digest` stands for.
    #[must_use]
    pub fn is_applied(&self, digest: Digest) -> bool {
        self.state == DeploymentState::Applied && self.digest == Some(digest)
    }

    /// Whether any of its manifests were applied. An edge also reports what it was only listed, as long as it holds or waits for the manifests.
    #[must_use]
    pub const fn runs(&self) -> bool {
        self.version > 0
    }

    /// What makes the device known, or brings it up to date.
    #[must_use]
    pub fn to_update(&self, device: DeviceId) -> NodeUpdate {
        NodeUpdate::DeviceBirth { device, metrics: self.to_metrics() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::Metric;

    fn full() -> DeploymentDevice {
        let digest = Digest::of(&serde_json::json!(1));
        DeploymentDevice {
            uuid: Uuid::from_u128(7),
            name: "Robot_Cell_3".to_owned(),
            state: DeploymentState::Failed,
            reason: Some("HelmRelease x: forbidden".to_owned()),
            since: 1_700_000_000_001,
            version: 4,
            digest: Some(digest),
            refused_digest: Some(digest),
            ready: Some(false),
            message: Some("install retries exhausted".to_owned()),
            applied_at: Some(1_700_000_000_000),
            suspended: true,
            entries: Some(Entries([("Info".to_owned(), serde_json::json!({"name": "x"}))].into())),
        }
    }

    #[test]
    fn devices_survive_the_trip_as_metrics() {
        for device in [full(), DeploymentDevice::default()] {
            assert_eq!(DeploymentDevice::from_metrics(&device.to_metrics()), Ok(device));
        }
        let host = HostDevice {
            hostname: "a".to_owned(),
            ready: true,
            specialised: Some("x".to_owned()),
            ..HostDevice::default()
        };
        assert_eq!(HostDevice::from_metrics(&host.to_metrics()), Ok(host));
    }

    #[test]
    fn names_and_types_on_the_wire_are_fixed() {
        let listed = |metrics: Vec<Metric>| {
            metrics.iter().map(|metric| format!("{} {:?}", metric.name, metric.datatype)).collect::<Vec<_>>()
        };
        let expected = [
            "Status/State String",
            "Status/Reason String",
            "Status/Since DateTime",
            "Host/Name String",
            "Host/Architecture String",
            "Host/Kubernetes_Version String",
            "Host/Operating_System String",
            "Host/Control_Plane Boolean",
            "Host/Specialised String",
        ];
        assert_eq!(listed(HostDevice::default().to_metrics()), expected);
        let expected = [
            "Status/State String",
            "Status/Reason String",
            "Status/Since DateTime",
            "Deployment/UUID Uuid",
            "Deployment/Name String",
            "Deployment/Version UInt64",
            "Deployment/Digest String",
            "Deployment/Refused_Digest String",
            "Deployment/Ready Boolean",
            "Deployment/Ready_Reason String",
            "Deployment/Applied_At DateTime",
            "Deployment/Suspended Boolean",
            "Deployment/Entries String",
        ];
        assert_eq!(listed(DeploymentDevice::default().to_metrics()), expected);
        assert_eq!(listed(full().to_metrics()), expected);
    }

    #[test]
    fn null_and_absent_differ() {
        let mut device = full();
        device.merge(&[Metric::null(deployment::READY, DataType::Boolean)]).unwrap();
        assert_eq!(device, DeploymentDevice { ready: None, ..full() });
        let error = DeploymentDevice::from_metrics(&full().to_metrics()[1..]).unwrap_err();
        assert_eq!(error.to_string(), "metric \"Status/State\" is missing in the birth");
    }

    #[test]
    fn wrong_types_and_states_are_named_and_historical_values_are_skipped() {
        let mut device = full();
        for (metric, message) in [
            (
                Metric::new(deployment::STATE, "done"),
                "metric \"Status/State\" must be pending, applied, refused, failed or deleting",
            ),
            (Metric::new(deployment::NAME, 1_u64), "metric \"Deployment/Name\" must be a String, but is UInt64"),
            (Metric::null(deployment::NAME, DataType::String), "metric \"Deployment/Name\" must not be null"),
            (Metric::new(deployment::READY, "true"), "metric \"Deployment/Ready\" must be a Boolean, but is String"),
            (
                Metric::new(deployment::DIGEST, "no"),
                "metric \"Deployment/Digest\" must be the 64 lower-case hex digits of a SHA-256 digest",
            ),
        ] {
            assert_eq!(device.merge(&[metric]).unwrap_err().to_string(), message);
        }
        device.merge(&[Metric::new(deployment::NAME, "old").historical(), Metric::new("Other", true)]).unwrap();
        assert_eq!(device, full());
    }
}
