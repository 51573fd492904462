//! The metrics of the Sync node itself, without those that every Edge Node has.

use sparkplug::{DataType, Metric};
use uuid::Uuid;

use crate::digest::Digest;
use crate::field::{self, FieldError};
use crate::names::{
    CLUSTER_NAME, CLUSTER_UUID, DEPLOYMENTS_READY, DEPLOYMENTS_TOTAL, DESIRED_DIGEST, DESIRED_ERROR, DESIRED_VERSION,
    HOSTS_READY, HOSTS_TOTAL, SEALING_CERTIFICATE, SEALING_ERROR, SERVICE, SERVICE_NAME, SIMULATED, VERSION,
};

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
    /// Certificate to seal secrets with, PEM.
    pub sealing_certificate: Option<String>,
    /// Why the certificate could not be read.
    pub sealing_error: Option<String>,
    /// Version of the accepted index; 0 before the first.
    pub desired_version: u64,
    /// Digest of the accepted index.
    pub desired_digest: Option<Digest>,
    /// Why the last index was refused, or what keeps the accepted one from being carried out.
    pub desired_error: Option<String>,
    /// Host devices alive.
    pub hosts_total: u32,
    /// Of them ready.
    pub hosts_ready: u32,
    /// Deployment devices alive.
    pub deployments_total: u32,
    /// Of them with Flux' Ready condition.
    pub deployments_ready: u32,
}

impl SyncNode {
    const REQUIRED: &[&str] = &[
        CLUSTER_UUID,
        CLUSTER_NAME,
        SEALING_CERTIFICATE,
        SEALING_ERROR,
        DESIRED_VERSION,
        DESIRED_DIGEST,
        DESIRED_ERROR,
        HOSTS_TOTAL,
        HOSTS_READY,
        DEPLOYMENTS_TOTAL,
        DEPLOYMENTS_READY,
    ];

    /// All metrics.
    #[must_use]
    pub fn to_metrics(&self) -> Vec<Metric> {
        vec![
            Metric::new(SERVICE, SERVICE_NAME),
            Metric::new(VERSION, self.version.as_str()),
            Metric::new(SIMULATED, self.simulated),
            Metric::new(CLUSTER_UUID, self.cluster_uuid.to_string()),
            Metric::new(CLUSTER_NAME, self.cluster_name.as_str()),
            Metric::string(SEALING_CERTIFICATE, self.sealing_certificate.as_deref()),
            Metric::string(SEALING_ERROR, self.sealing_error.as_deref()),
            Metric::new(DESIRED_VERSION, self.desired_version),
            self.desired_digest.map_or_else(
                || Metric::null(DESIRED_DIGEST, DataType::String),
                |digest| Metric::new(DESIRED_DIGEST, digest.to_string()),
            ),
            Metric::string(DESIRED_ERROR, self.desired_error.as_deref()),
            Metric::new(HOSTS_TOTAL, self.hosts_total),
            Metric::new(HOSTS_READY, self.hosts_ready),
            Metric::new(DEPLOYMENTS_TOTAL, self.deployments_total),
            Metric::new(DEPLOYMENTS_READY, self.deployments_ready),
        ]
    }

    /// From the metrics of an NBIRTH; others are skipped.
    ///
    /// # Errors
    /// A metric is missing or has another type.
    pub fn from_metrics(metrics: &[Metric]) -> Result<Self, FieldError> {
        field::require(metrics, Self::REQUIRED)?;
        let mut node = Self::default();
        node.merge(metrics)?;
        Ok(node)
    }

    /// Takes the metrics of an NDATA over; others are skipped.
    ///
    /// # Errors
    /// A metric has another type; those before it are taken over.
    pub fn merge(&mut self, metrics: &[Metric]) -> Result<(), FieldError> {
        for metric in metrics.iter().filter(|metric| !metric.is_historical) {
            match &*metric.name {
                VERSION => self.version = field::text(metric)?,
                SIMULATED => self.simulated = field::flag(metric)?,
                CLUSTER_UUID => self.cluster_uuid = uuid(metric)?,
                CLUSTER_NAME => self.cluster_name = field::text(metric)?,
                SEALING_CERTIFICATE => self.sealing_certificate = field::text_or_null(metric)?,
                SEALING_ERROR => self.sealing_error = field::text_or_null(metric)?,
                DESIRED_VERSION => self.desired_version = field::number(metric)?,
                DESIRED_DIGEST => self.desired_digest = digest_or_null(metric)?,
                DESIRED_ERROR => self.desired_error = field::text_or_null(metric)?,
                HOSTS_TOTAL => self.hosts_total = field::count(metric)?,
                HOSTS_READY => self.hosts_ready = field::count(metric)?,
                DEPLOYMENTS_TOTAL => self.deployments_total = field::count(metric)?,
                DEPLOYMENTS_READY => self.deployments_ready = field::count(metric)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn uuid(metric: &Metric) -> Result<Uuid, FieldError> {
    Uuid::try_parse(&field::text(metric)?).map_err(|_| FieldError::new(&metric.name, "must be a UUID"))
}

pub(crate) fn digest_or_null(metric: &Metric) -> Result<Option<Digest>, FieldError> {
    let text = field::text_or_null(metric)?;
    text.map(|text| text.parse())
        .transpose()
        .map_err(|e: crate::digest::DigestError| FieldError::new(&metric.name, e.to_string()))
}
