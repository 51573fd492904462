//! What ConfigDB says of a cluster's identities, which the service Identity records.

use cluster_manager_contract::IdentityReport;
use configdb_contract::EntryError;
use configdb_schema::document::{CertificateState, EdgeClusterEnrolment, EdgeClusterIdentity, IssuedCertificate};
use configdb_schema::timestamp;
use uuid::Uuid;

use crate::fleet::FleetView;

/// What ConfigDB says of a cluster's identities, or why it cannot be read.
#[derive(Debug)]
pub(crate) struct IdentityEntries {
    /// What was done.
    pub recorded: Result<Option<EdgeClusterIdentity>, EntryError>,
    /// What an operator wants.
    pub wanted: Result<EdgeClusterEnrolment, EntryError>,
}

impl IdentityEntries {
    /// Reads them.
    pub(crate) fn of(fleet: &FleetView, uuid: Uuid) -> Self {
        let wanted = fleet.config().document(uuid).map(Option::unwrap_or_default);
        Self { recorded: fleet.config().document(uuid), wanted }
    }

    /// What was done, if it can be read.
    pub(crate) fn identity(&self) -> Option<&EdgeClusterIdentity> {
        self.recorded.as_ref().ok()?.as_ref()
    }

    /// A certificate is not revoked.
    pub(crate) fn has_certificate(&self) -> bool {
        let certificates = self.identity().map(|identity| &identity.certificates);
        certificates.into_iter().flatten().any(|one| one.state != CertificateState::Revoked)
    }

    /// What the cluster's Device says of its identities.
    pub(crate) fn report(&self) -> IdentityReport {
        let Some(identity) = self.identity() else { return IdentityReport::default() };
        let is_valid = |certificate: &&IssuedCertificate| certificate.state == CertificateState::Valid;
        let newest = identity.certificates.iter().rev().find(is_valid);
        IdentityReport {
            serial: newest.map(|certificate| certificate.serial.clone()),
            expires: newest.and_then(|certificate| timestamp::from_text(&certificate.expires)),
            alert: identity.alerts.last().map(|alert| alert.text.clone()),
        }
    }
}
