//! One attempt of a host: the protocol's record, and what the service adds to it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use join_attestation::EkHash;
use join_protocol::issuer::{Phase, Record};
use join_protocol::limits::{
    ENDORSEMENT_CERTIFICATE_BYTES_MAX, ENDORSEMENT_CERTIFICATES_MAX, PUBLIC_KEY_BYTES_MAX, TICKET_BYTES_MAX,
};
use join_protocol::terms::{Address, Kind, RequestId, Role, Variant};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{from_text, to_text};

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What the protocol remembers of it.
    pub record: Record,
    /// Endorsement key of the host.
    pub ek: EkHash,
    /// Id of the join token that is made for it. It is written here before the token is made, so that no token is without an owner.
    pub token: Option<String>,
    /// When its phase changed last, UTC ms.
    pub changed_ms: u64,
}

impl Request {
    /// True while a token or a lease may belong to it.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        !matches!(self.record.phase, Phase::Done)
    }

    /// The text of its document.
    #[must_use]
    pub fn to_text(&self) -> String {
        to_text(&RequestDocument::of(self))
    }

    /// Reads its document.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_text(text: &str) -> Result<Self, String> {
        from_text::<RequestDocument>(text)?.read()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RequestDocument {
    request: String,
    evidence_hash: String,
    th3: String,
    key_epoch: u32,
    group: String,
    node: String,
    kind: String,
    role: String,
    disk: Uuid,
    variant: String,
    attestation_key: String,
    endorsement_key: String,
    endorsement_certificates: Vec<String>,
    node_name: String,
    boot: String,
    sequence: u32,
    phase: PhaseForm,
    ek: String,
    token: Option<String>,
    changed_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
enum PhaseForm {
    Claimed {
        holder: String,
        #[serde(rename = "untilMs")]
        until_ms: u64,
    },
    Granted {
        ticket: String,
        th4: String,
    },
    Acknowledged {
        th4: String,
    },
    Done,
}

impl RequestDocument {
    fn of(request: &Request) -> Self {
        let Request { record, ek, token, changed_ms } = request;
        let phase = match &record.phase {
            Phase::Claimed { holder, until_ms } => PhaseForm::Claimed { holder: holder.clone(), until_ms: *until_ms },
            Phase::Granted { ticket, th4 } => {
                PhaseForm::Granted { ticket: STANDARD.encode(ticket), th4: hex::encode(th4) }
            }
            Phase::Acknowledged { th4 } => PhaseForm::Acknowledged { th4: hex::encode(th4) },
            Phase::Done => PhaseForm::Done,
        };
        Self {
            request: record.request.to_string(),
            evidence_hash: hex::encode(record.evidence_hash),
            th3: hex::encode(record.th3),
            key_epoch: record.key_epoch,
            group: record.address.group.clone(),
            node: record.address.node.clone(),
            kind: record.kind.name().to_owned(),
            role: record.role.name().to_owned(),
            disk: record.disk,
            variant: record.variant.name().to_owned(),
            attestation_key: STANDARD.encode(&record.attestation_key),
            endorsement_key: STANDARD.encode(&record.endorsement_key),
            endorsement_certificates: record.endorsement_certificates.iter().map(|one| STANDARD.encode(one)).collect(),
            node_name: record.node_name.clone(),
            boot: hex::encode(record.boot),
            sequence: record.sequence,
            phase,
            ek: hex::encode(ek),
            token: token.clone(),
            changed_ms: *changed_ms,
        }
    }

    fn read(self) -> Result<Request, String> {
        if self.endorsement_certificates.len() > ENDORSEMENT_CERTIFICATES_MAX {
            return Err(format!("endorsementCertificates holds more than {ENDORSEMENT_CERTIFICATES_MAX}"));
        }
        let certificate = |text: &String| bytes("endorsementCertificates", text, ENDORSEMENT_CERTIFICATE_BYTES_MAX);
        let named = |field: &str| format!("{field} is not known");
        let phase = match self.phase {
            PhaseForm::Claimed { holder, until_ms } => Phase::Claimed { holder, until_ms },
            PhaseForm::Granted { ticket, th4 } => {
                Phase::Granted { ticket: bytes("ticket", &ticket, TICKET_BYTES_MAX)?, th4: array("th4", &th4)? }
            }
            PhaseForm::Acknowledged { th4 } => Phase::Acknowledged { th4: array("th4", &th4)? },
            PhaseForm::Done => Phase::Done,
        };
        let kind = Kind::ALL.iter().copied().find(|kind| kind.name() == self.kind).ok_or_else(|| named("kind"))?;
        let role = Role::ALL.iter().copied().find(|role| role.name() == self.role).ok_or_else(|| named("role"))?;
        let record = Record {
            request: RequestId(array("request", &self.request)?),
            evidence_hash: array("evidenceHash", &self.evidence_hash)?,
            th3: array("th3", &self.th3)?,
            key_epoch: self.key_epoch,
            address: Address { group: self.group, node: self.node },
            kind,
            role,
            disk: self.disk,
            variant: Variant::from_name(&self.variant).ok_or_else(|| named("variant"))?,
            attestation_key: bytes("attestationKey", &self.attestation_key, PUBLIC_KEY_BYTES_MAX)?,
            endorsement_key: bytes("endorsementKey", &self.endorsement_key, PUBLIC_KEY_BYTES_MAX)?,
            endorsement_certificates: self
                .endorsement_certificates
                .iter()
                .map(certificate)
                .collect::<Result<_, _>>()?,
            node_name: self.node_name,
            boot: array("boot", &self.boot)?,
            sequence: self.sequence,
            phase,
        };
        let ek = array("ek", &self.ek)?;
        Ok(Request { record, ek, token: self.token, changed_ms: self.changed_ms })
    }
}

fn array<const N: usize>(field: &str, text: &str) -> Result<[u8; N], String> {
    let read = hex::decode(text).ok().and_then(|bytes| bytes.try_into().ok());
    read.ok_or_else(|| format!("{field} must be {} hexadecimal digits", 2 * N))
}

fn bytes(field: &str, text: &str, max: usize) -> Result<Vec<u8>, String> {
    if text.len() > max.div_ceil(3) * 4 {
        return Err(format!("{field} is longer than {max} bytes"));
    }
    STANDARD.decode(text).map_err(|_| format!("{field} is not Base64"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A request in some phase.
    pub(crate) fn request(number: u8, phase: Phase) -> Request {
        let disk = Uuid::from_u128(u128::from(number));
        let record = Record {
            request: RequestId([number; 16]),
            evidence_hash: [2; 32],
            th3: [3; 32],
            key_epoch: 4,
            address: Address::of_disk("ACME-Cell-Join", disk),
            kind: Kind::Join,
            role: Role::Worker,
            disk,
            variant: Variant::Tpm2,
            attestation_key: vec![5; 120],
            endorsement_key: vec![6; 300],
            endorsement_certificates: vec![vec![7; 900]],
            node_name: "press-1".to_owned(),
            boot: [8; 16],
            sequence: 9,
            phase,
        };
        Request { record, ek: [number; 32], token: Some("abcdef".to_owned()), changed_ms: 10 }
    }

    #[test]
    fn every_phase_is_read_back() {
        for phase in [
            Phase::Claimed { holder: "join-0".to_owned(), until_ms: 11 },
            Phase::Granted { ticket: vec![1; 9_000], th4: [12; 32] },
            Phase::Acknowledged { th4: [13; 32] },
            Phase::Done,
        ] {
            let request = request(1, phase);
            assert_eq!(Request::from_text(&request.to_text()), Ok(request));
        }
    }

    #[test]
    fn damage_is_named_and_bounded() {
        let text = request(1, Phase::Done).to_text();
        let error = |from: &str, to: &str| Request::from_text(&text.replace(from, to)).unwrap_err();
        assert_eq!(error("\"variant\":\"tpm2\"", "\"variant\":\"none\""), "variant is not known");
        assert_eq!(error(&hex::encode([8; 16]), "08"), "boot must be 32 hexadecimal digits");
        assert!(error("\"done\"", "\"gone\"").starts_with("is not a document"));
        let long = STANDARD.encode(vec![5; 2_000]);
        assert_eq!(error(&STANDARD.encode([5; 120]), &long), "attestationKey is longer than 1024 bytes");
    }
}
