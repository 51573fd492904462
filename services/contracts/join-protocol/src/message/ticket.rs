//! The fourth message: a ticket or a refusal, sealed to the host. From outside the two look the same.

use prost::Message;
use proto::join as wire;
use zeroize::Zeroizing;

use super::grant::Grant;
use super::renewal::Renewal;
use super::{Fields, WireError, decode, decode_versioned};
use crate::limits::{CONTROL_PLANE_CONTENT_BYTES, SIGNATURE_BYTES, TICKET_BYTES_MAX, VERSION, WORKER_CONTENT_BYTES};
use crate::refusal::Refusal;
use crate::secret::{Secret, wipe};
use crate::terms::{RequestId, Role};

/// What a ticket says in clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketBody {
    /// Id of the attempt.
    pub request: RequestId,
    /// Encoded certificates, the issuer first.
    pub issuer_certificates: Vec<Vec<u8>>,
    /// HPKE encapsulated key.
    pub encapsulated_key: Vec<u8>,
    /// HPKE ciphertext of a padded [`TicketContent`].
    pub ciphertext: Vec<u8>,
}

impl TicketBody {
    const NAME: &'static str = "ticket body";

    /// As in the ticket.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = wire::TicketBody {
            version: VERSION,
            request: self.request.0.to_vec(),
            issuer_certificates: self.issuer_certificates.clone(),
            encapsulated_key: self.encapsulated_key.clone(),
            ciphertext: self.ciphertext.clone(),
        };
        body.encode_to_vec()
    }

    /// From a ticket.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let body: wire::TicketBody =
            decode_versioned(Self::NAME, bytes, TICKET_BYTES_MAX, |body: &wire::TicketBody| body.version)?;
        let fields = Fields(Self::NAME);
        fields.issuer_certificates(&body.issuer_certificates)?;
        Ok(Self {
            request: fields.request(&body.request)?,
            issuer_certificates: body.issuer_certificates,
            encapsulated_key: body.encapsulated_key,
            ciphertext: body.ciphertext,
        })
    }
}

/// A ticket as it travels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// An encoded [`TicketBody`].
    pub body: Vec<u8>,
    /// Signature of the issuer.
    pub signature: [u8; SIGNATURE_BYTES],
}

impl Ticket {
    const NAME: &'static str = "ticket";

    /// As on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        wire::Ticket { body: self.body.clone(), signature: self.signature.to_vec() }.encode_to_vec()
    }

    /// From the wire; the body is not looked into.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let ticket: wire::Ticket = decode(Self::NAME, bytes, TICKET_BYTES_MAX)?;
        let signature = Fields(Self::NAME).array("signature", &ticket.signature)?;
        Ok(Self { body: ticket.body, signature })
    }
}

/// What is sealed in a [`Ticket`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketContent {
    /// Key of progress and acknowledgement.
    pub acknowledgement_key: Secret,
    /// What the host receives, or why it receives nothing.
    pub verdict: Result<TicketPayload, Refusal>,
}

/// What a host receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TicketPayload {
    /// Keys, and how to become a member.
    Grant(Box<Grant>),
    /// Certificates of a member.
    Renewal(Renewal),
}

/// A content does not fit into the size that all tickets of its role have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the content of a ticket for a {role} has {bytes} bytes; at most {max} fit")]
pub struct ContentTooLarge {
    /// Role of the host.
    pub role: Role,
    /// Size of the content.
    pub bytes: usize,
    /// The limit.
    pub max: usize,
}

impl TicketContent {
    const NAME: &'static str = "ticket content";

    /// Length (4 bytes, big endian), content, zeros up to the size of the role.
    ///
    /// # Errors
    /// The content does not fit.
    pub fn encode_padded(&self, role: Role) -> Result<Zeroizing<Vec<u8>>, ContentTooLarge> {
        let (grant, renewal, refusal) = match &self.verdict {
            Ok(TicketPayload::Grant(grant)) => (Some(grant.to_wire()), None, None),
            Ok(TicketPayload::Renewal(renewal)) => (None, Some(renewal.to_wire()), None),
            Err(refusal) => (None, None, Some(refusal.to_wire())),
        };
        let acknowledgement_key = self.acknowledgement_key.expose().to_vec();
        let mut content = wire::TicketContent { acknowledgement_key, grant, refusal, renewal };
        let encoded = Zeroizing::new(content.encode_to_vec());
        wipe_content(&mut content);
        let padded_bytes = padded_bytes(role);
        let max = padded_bytes - LENGTH_BYTES;
        let too_large = ContentTooLarge { role, bytes: encoded.len(), max };
        let length = u32::try_from(encoded.len()).map_err(|_| too_large)?;
        if encoded.len() > max {
            return Err(too_large);
        }
        let mut padded = Zeroizing::new(Vec::with_capacity(padded_bytes));
        padded.extend_from_slice(&length.to_be_bytes());
        padded.extend_from_slice(&encoded);
        padded.resize(padded_bytes, 0);
        Ok(padded)
    }

    /// From under the seal. The size must be that of the role, the padding zeros.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode_padded(padded: &[u8], role: Role) -> Result<Self, WireError> {
        let fields = Fields(Self::NAME);
        let wrong = || fields.error("padding", "is not that of the role");
        let (length, rest) = padded.split_at_checked(LENGTH_BYTES).ok_or_else(wrong)?;
        let length = u32::from_be_bytes(fields.array("padding", length)?);
        let (encoded, zeros) =
            usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length)).ok_or_else(wrong)?;
        if padded.len() != padded_bytes(role) || zeros.iter().any(|byte| *byte != 0) {
            return Err(wrong());
        }
        let mut content: wire::TicketContent = decode(Self::NAME, encoded, CONTROL_PLANE_CONTENT_BYTES)?;
        let read = Self::from_wire(&mut content, fields);
        wipe_content(&mut content);
        read
    }

    fn from_wire(content: &mut wire::TicketContent, fields: Fields) -> Result<Self, WireError> {
        let acknowledgement_key = Secret::from_slice(&content.acknowledgement_key)
            .ok_or_else(|| fields.error("acknowledgement_key", "must have 32 bytes"))?;
        let verdict = match (&mut content.grant, content.refusal.take(), content.renewal.take()) {
            (Some(grant), None, None) => Ok(TicketPayload::Grant(Box::new(Grant::from_wire(grant)?))),
            (None, Some(refusal), None) => Err(Refusal::from_wire(refusal)?),
            (None, None, Some(renewal)) => Ok(TicketPayload::Renewal(Renewal::from_wire(renewal)?)),
            _ => return Err(fields.error("grant", "or renewal or refusal must be there, and only one of them")),
        };
        Ok(Self { acknowledgement_key, verdict })
    }
}

const LENGTH_BYTES: usize = 4;

/// How large the content of every ticket and every refusal for a role is.
const fn padded_bytes(role: Role) -> usize {
    match role {
        Role::Worker => WORKER_CONTENT_BYTES,
        Role::ControlPlane => CONTROL_PLANE_CONTENT_BYTES,
    }
}

fn wipe_content(content: &mut wire::TicketContent) {
    wipe(&mut content.acknowledgement_key);
    if let Some(grant) = &mut content.grant {
        super::grant::wipe_grant(grant);
    }
}
