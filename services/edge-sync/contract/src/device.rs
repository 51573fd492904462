//! The metrics of a host device and of a deployment device.

use std::fmt;
use std::str::FromStr;

use sparkplug::edge_node::NodeUpdate;
use sparkplug::{DataType, Metric, NameError, Value};
use uuid::Uuid;

use crate::digest::Digest;
use crate::field::{self, FieldError};
use crate::names::{SyncDevice, deployment, host};
use crate::node::digest_or_null;

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
    /// What the host is set apart for.
    pub specialised: Option<String>,
}

impl HostDevice {
    const REQUIRED: &[&str] = &[
        host::HOSTNAME,
        host::ARCHITECTURE,
        host::KUBERNETES_VERSION,
        host::OPERATING_SYSTEM,
        host::CONTROL_PLANE,
        host::READY,
        host::SPECIALISED,
    ];

    /// All metrics.
    #[must_use]
    pub fn to_metrics(&self) -> Vec<Metric> {
        vec![
            Metric::new(host::HOSTNAME, self.hostname.as_str()),
            Metric::new(host::ARCHITECTURE, self.architecture.as_str()),
            Metric::new(host::KUBERNETES_VERSION, self.kubernetes_version.as_str()),
            Metric::new(host::OPERATING_SYSTEM, self.operating_system.as_str()),
            Metric::new(host::CONTROL_PLANE, self.control_plane),
            Metric::new(host::READY, self.ready),
            Metric::string(host::SPECIALISED, self.specialised.as_deref()),
        ]
    }

    /// What makes the device known, or brings it up to date.
    ///
    /// # Errors
    /// The hostname is no device id.
    pub fn to_update(&self) -> Result<NodeUpdate, NameError> {
        let device = SyncDevice::Host(self.hostname.clone()).id()?;
        Ok(NodeUpdate::DeviceBirth { device, metrics: self.to_metrics() })
    }

    /// From the metrics of a DBIRTH; others are skipped.
    ///
    /// # Errors
    /// A metric is missing or has another type.
    pub fn from_metrics(metrics: &[Metric]) -> Result<Self, FieldError> {
        field::require(metrics, Self::REQUIRED)?;
        let mut host = Self::default();
        host.merge(metrics)?;
        Ok(host)
    }

    /// Takes the metrics of a DDATA over; others are skipped.
    ///
    /// # Errors
    /// A metric has another type; those before it are taken over.
    pub fn merge(&mut self, metrics: &[Metric]) -> Result<(), FieldError> {
        for metric in metrics.iter().filter(|metric| !metric.is_historical) {
            match &*metric.name {
                host::HOSTNAME => self.hostname = field::text(metric)?,
                host::ARCHITECTURE => self.architecture = field::text(metric)?,
                host::KUBERNETES_VERSION => self.kubernetes_version = field::text(metric)?,
                host::OPERATING_SYSTEM => self.operating_system = field::text(metric)?,
                host::CONTROL_PLANE => self.control_plane = field::flag(metric)?,
                host::READY => self.ready = field::flag(metric)?,
                host::SPECIALISED => self.specialised = field::text_or_null(metric)?,
                _ => {}
            }
        }
        Ok(())
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

/// The text is none of the states.
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
    /// Name for people; empty before its manifests came.
    pub name: String,
    /// How far it is.
    pub state: DeploymentState,
    /// Why it is in this state.
    pub reason: Option<String>,
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
}

impl DeploymentDevice {
    const REQUIRED: &[&str] = &[
        deployment::NAME,
        deployment::STATE,
        deployment::REASON,
        deployment::VERSION,
        deployment::DIGEST,
        deployment::REFUSED_DIGEST,
        deployment::READY,
        deployment::MESSAGE,
        deployment::APPLIED_AT,
    ];

    /// Whether it runs exactly what `digest` stands for.
    #[must_use]
    pub fn is_applied(&self, digest: Digest) -> bool {
        self.state == DeploymentState::Applied && self.digest == Some(digest)
    }

    /// All metrics.
    #[must_use]
    pub fn to_metrics(&self) -> Vec<Metric> {
        let digest = |digest: Option<Digest>| digest.map(|digest| Value::from(digest.to_string()));
        let maybe =
            |name: &str, datatype: DataType, value: Option<Value>| Metric { value, ..Metric::null(name, datatype) };
        vec![
            Metric::new(deployment::NAME, self.name.as_str()),
            Metric::new(deployment::STATE, self.state.as_str()),
            Metric::string(deployment::REASON, self.reason.as_deref()),
            Metric::new(deployment::VERSION, self.version),
            maybe(deployment::DIGEST, DataType::String, digest(self.digest)),
            maybe(deployment::REFUSED_DIGEST, DataType::String, digest(self.refused_digest)),
            maybe(deployment::READY, DataType::Boolean, self.ready.map(Value::Boolean)),
            Metric::string(deployment::MESSAGE, self.message.as_deref()),
            maybe(deployment::APPLIED_AT, DataType::DateTime, self.applied_at.map(Value::DateTime)),
        ]
    }

    /// What makes the device of deployment `uuid` known, or brings it up to date.
    #[must_use]
    pub fn to_update(&self, uuid: Uuid) -> NodeUpdate {
        NodeUpdate::DeviceBirth { device: SyncDevice::deployment_id(uuid), metrics: self.to_metrics() }
    }

    /// From the metrics of a DBIRTH; others are skipped.
    ///
    /// # Errors
    /// A metric is missing or has another type.
    pub fn from_metrics(metrics: &[Metric]) -> Result<Self, FieldError> {
        field::require(metrics, Self::REQUIRED)?;
        let mut device = Self::default();
        device.merge(metrics)?;
        Ok(device)
    }

    /// Takes the metrics of a DDATA over; others are skipped.
    ///
    /// # Errors
    /// A metric has another type; those before it are taken over.
    pub fn merge(&mut self, metrics: &[Metric]) -> Result<(), FieldError> {
        for metric in metrics.iter().filter(|metric| !metric.is_historical) {
            match &*metric.name {
                deployment::NAME => self.name = field::text(metric)?,
                deployment::STATE => {
                    let state = field::text(metric)?.parse();
                    self.state =
                        state.map_err(|e: UnknownDeploymentState| FieldError::new(deployment::STATE, e.to_string()))?;
                }
                deployment::REASON => self.reason = field::text_or_null(metric)?,
                deployment::VERSION => self.version = field::number(metric)?,
                deployment::DIGEST => self.digest = digest_or_null(metric)?,
                deployment::REFUSED_DIGEST => self.refused_digest = digest_or_null(metric)?,
                deployment::READY => self.ready = field::flag_or_null(metric)?,
                deployment::MESSAGE => self.message = field::text_or_null(metric)?,
                deployment::APPLIED_AT => self.applied_at = field::number_or_null(metric)?,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> DeploymentDevice {
        let digest = Digest::of(&serde_json::json!(1));
        DeploymentDevice {
            name: "Robot_Cell_3".to_owned(),
            state: DeploymentState::Failed,
            reason: Some("HelmRelease x: forbidden".to_owned()),
            version: 4,
            digest: Some(digest),
            refused_digest: Some(digest),
            ready: Some(false),
            message: Some("install retries exhausted".to_owned()),
            applied_at: Some(1_700_000_000_000),
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
    fn null_and_absent_differ() {
        let mut device = full();
        device.merge(&[Metric::null(deployment::READY, DataType::Boolean)]).unwrap();
        assert_eq!(device, DeploymentDevice { ready: None, ..full() });
        let error = DeploymentDevice::from_metrics(&full().to_metrics()[1..]).unwrap_err();
        assert_eq!(error.to_string(), "metric \"Name\" is missing in the birth");
    }

    #[test]
    fn wrong_types_and_states_are_named_and_historical_values_are_skipped() {
        let mut device = full();
        for (metric, message) in [
            (
                Metric::new(deployment::STATE, "done"),
                "metric \"State\" must be pending, applied, refused, failed or deleting",
            ),
            (Metric::new(deployment::NAME, 1_u64), "metric \"Name\" must be a String, but is UInt64"),
            (Metric::null(deployment::NAME, DataType::String), "metric \"Name\" must not be null"),
            (Metric::new(deployment::READY, "true"), "metric \"Ready\" must be a Boolean, but is String"),
            (
                Metric::new(deployment::DIGEST, "no"),
                "metric \"Digest\" must be the 64 lower-case hex digits of a SHA-256 digest",
            ),
        ] {
            assert_eq!(device.merge(&[metric]).unwrap_err().to_string(), message);
        }
        device.merge(&[Metric::new(deployment::NAME, "old").historical(), Metric::new("Other", true)]).unwrap();
        assert_eq!(device, full());
    }
}
