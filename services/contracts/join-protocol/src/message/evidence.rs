//! The third message: evidence of a host, sealed to the issuers.

use prost::Message;
use proto::join as wire;

use super::{Fields, WireError, decode, decode_versioned};
use crate::limits::{
    CERTIFICATE_REQUEST_BYTES_MAX, CHALLENGE_BYTES_MAX, EVIDENCE_BYTES_MAX, HASH_BYTES, HELLO_BYTES_MAX, ID_BYTES,
    NAME_BYTES_MAX, PRINCIPALS_MAX, QUOTE_BYTES_MAX, SSH_HOST_KEY_BYTES_MAX, VERSION,
};
use crate::terms::RequestId;

/// Evidence as it travels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Id of the attempt.
    pub request: RequestId,
    /// The hello, byte by byte.
    pub hello: Vec<u8>,
    /// The accepted challenge, byte by byte.
    pub challenge: Vec<u8>,
    /// HPKE encapsulated key.
    pub encapsulated_key: Vec<u8>,
    /// HPKE ciphertext of an [`EvidenceContent`].
    pub ciphertext: Vec<u8>,
}

impl Evidence {
    const NAME: &'static str = "evidence";

    /// As on the wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let evidence = wire::Evidence {
            version: VERSION,
            request: self.request.0.to_vec(),
            hello: self.hello.clone(),
            challenge: self.challenge.clone(),
            encapsulated_key: self.encapsulated_key.clone(),
            ciphertext: self.ciphertext.clone(),
        };
        evidence.encode_to_vec()
    }

    /// From the wire.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let evidence: wire::Evidence =
            decode_versioned(Self::NAME, bytes, EVIDENCE_BYTES_MAX, |evidence: &wire::Evidence| evidence.version)?;
        let fields = Fields(Self::NAME);
        fields.some("hello", &evidence.hello, HELLO_BYTES_MAX)?;
        fields.some("challenge", &evidence.challenge, CHALLENGE_BYTES_MAX)?;
        Ok(Self {
            request: fields.request(&evidence.request)?,
            hello: evidence.hello,
            challenge: evidence.challenge,
            encapsulated_key: evidence.encapsulated_key,
            ciphertext: evidence.ciphertext,
        })
    }
}

/// What is sealed in [`Evidence`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvidenceContent {
    /// Ephemeral public key of the host; not yet checked against the suite.
    pub host_key: Vec<u8>,
    /// An encoded [`EvidenceBody`].
    pub body: Vec<u8>,
    /// Quote in the form of the variant; may be empty, which is a refusal of its own.
    pub quote: Vec<u8>,
    /// Code under the activated credential.
    pub proof: [u8; HASH_BYTES],
}

impl EvidenceContent {
    const NAME: &'static str = "evidence content";

    /// As under the seal.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let content = wire::EvidenceContent {
            host_key: self.host_key.clone(),
            body: self.body.clone(),
            quote: self.quote.clone(),
            proof: self.proof.to_vec(),
        };
        content.encode_to_vec()
    }

    /// From under the seal.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let content: wire::EvidenceContent = decode(Self::NAME, bytes, EVIDENCE_BYTES_MAX)?;
        let fields = Fields(Self::NAME);
        fields.at_most("quote", &content.quote, QUOTE_BYTES_MAX)?;
        let proof = fields.hash("proof", &content.proof)?;
        Ok(Self { host_key: content.host_key, body: content.body, quote: content.quote, proof })
    }
}

/// What the host asks for; bound into the quote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EvidenceBody {
    /// Id of this boot.
    pub boot: [u8; ID_BYTES],
    /// Name that the node wants: an RFC 1123 subdomain. Empty: the issuer names it.
    pub node_name: String,
    /// PKCS#10 request for the kubelet's certificate, DER; may be empty.
    pub certificate_request: Vec<u8>,
    /// SSH host key, SSH wire format; may be empty.
    pub ssh_host_key: Vec<u8>,
    /// Names and addresses for the SSH host certificate.
    pub principals: Vec<String>,
    /// SHA-256 of the node password, if the node has one.
    pub node_password_hash: Option<[u8; HASH_BYTES]>,
    /// What was drawn when the state disk was made: its key follows from it. None: a disk that was made without.
    pub disk_generation: Option<[u8; ID_BYTES]>,
    /// Names the second key of the disk that the TPM gives out: the one that the host has, or would make. None: the host takes none.
    pub local_unlock: Option<[u8; ID_BYTES]>,
}

impl EvidenceBody {
    const NAME: &'static str = "evidence body";

    /// As in the content.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = wire::EvidenceBody {
            boot: self.boot.to_vec(),
            node_name: self.node_name.clone(),
            certificate_request: self.certificate_request.clone(),
            ssh_host_key: self.ssh_host_key.clone(),
            principals: self.principals.clone(),
            node_password_hash: self.node_password_hash.map(Vec::from).unwrap_or_default(),
            disk_generation: self.disk_generation.map(Vec::from).unwrap_or_default(),
            unsigned_local_unlock: false,
            local_unlock: self.local_unlock.map(Vec::from).unwrap_or_default(),
        };
        body.encode_to_vec()
    }

    /// From the content.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let body: wire::EvidenceBody = decode(Self::NAME, bytes, EVIDENCE_BYTES_MAX)?;
        let fields = Fields(Self::NAME);
        let node_password_hash = match body.node_password_hash.as_slice() {
            [] => None,
            bytes => Some(fields.hash("node_password_hash", bytes)?),
        };
        let id = |field, bytes: &[u8]| match bytes {
            [] => Ok(None),
            bytes => fields.array(field, bytes).map(Some),
        };
        let body = Self {
            boot: fields.array("boot", &body.boot)?,
            node_name: body.node_name,
            certificate_request: body.certificate_request,
            ssh_host_key: body.ssh_host_key,
            principals: body.principals,
            node_password_hash,
            disk_generation: id("disk_generation", &body.disk_generation)?,
            local_unlock: id("local_unlock", &body.local_unlock)?,
        };
        body.check()?;
        Ok(body)
    }

    /// Checks what a host fills in itself.
    ///
    /// # Errors
    /// The [`WireError`] names the field and the rule.
    pub fn check(&self) -> Result<(), WireError> {
        let fields = Fields(Self::NAME);
        if !self.node_name.is_empty() && !is_node_name(&self.node_name) {
            return Err(
                fields.error("node_name", "is not an RFC 1123 subdomain: a-z, 0-9, - and . between letters or digits")
            );
        }
        fields.at_most("certificate_request", &self.certificate_request, CERTIFICATE_REQUEST_BYTES_MAX)?;
        fields.at_most("ssh_host_key", &self.ssh_host_key, SSH_HOST_KEY_BYTES_MAX)?;
        fields.count("principals", self.principals.len(), PRINCIPALS_MAX)?;
        for principal in &self.principals {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '_');
            if principal.is_empty() || principal.len() > NAME_BYTES_MAX || !principal.chars().all(plain) {
                return Err(fields.error("principals", "holds what is neither a host name nor an address"));
            }
        }
        Ok(())
    }
}

/// True for an RFC 1123 subdomain, which a Kubernetes node must be called by.
#[must_use]
pub fn is_node_name(name: &str) -> bool {
    let label = |label: &str| {
        let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let bytes = label.as_bytes();
        let plain = bytes.iter().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == b'-');
        plain && bytes.len() <= 63 && edge(bytes.first().copied()) && edge(bytes.last().copied())
    };
    name.len() <= NAME_BYTES_MAX && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_of_a_disk_goes_both_ways_and_has_16_bytes_or_none() {
        for disk_generation in [None, Some([7; ID_BYTES])] {
            let local_unlock = disk_generation.map(|_| [8; ID_BYTES]);
            let body = EvidenceBody { disk_generation, local_unlock, ..EvidenceBody::default() };
            assert_eq!(EvidenceBody::decode(&body.encode()), Ok(body));
        }
        let wire = wire::EvidenceBody { boot: vec![0; ID_BYTES], disk_generation: vec![7; 15], ..Default::default() };
        let error = EvidenceBody::decode(&wire.encode_to_vec()).unwrap_err().to_string();
        assert_eq!(error, "evidence body.disk_generation has 15 bytes; it must have 16");
        let boot = vec![0; ID_BYTES];
        let wire = wire::EvidenceBody { boot, unsigned_local_unlock: true, ..Default::default() };
        assert_eq!(EvidenceBody::decode(&wire.encode_to_vec()), Ok(EvidenceBody::default()), "no second key");
    }

    #[test]
    fn node_names_are_subdomains() {
        for good in ["edge-1", "edge-1.plant.example", "0", "a.b"] {
            assert!(is_node_name(good), "{good}");
        }
        for bad in ["", "Edge", "a_b", "-a", "a-", "a..b", ".a", "a.", "a/b", "ü"] {
            assert!(!is_node_name(bad), "{bad}");
        }
        assert!(!is_node_name(&"a".repeat(64)) && !is_node_name(&["a"; 128].join(".")));
    }

    #[test]
    fn a_body_names_the_field_at_fault() {
        let bad = EvidenceBody { node_name: "../etcd".to_owned(), ..Default::default() };
        assert!(
            EvidenceBody::decode(&bad.encode())
                .unwrap_err()
                .to_string()
                .starts_with("evidence body.node_name is not an")
        );
        let bad = EvidenceBody { principals: vec!["a\nb".to_owned()], ..Default::default() };
        let message = EvidenceBody::decode(&bad.encode()).unwrap_err().to_string();
        assert_eq!(message, "evidence body.principals holds what is neither a host name nor an address");
        let good = EvidenceBody {
            principals: vec!["fe80::1".to_owned()],
            node_password_hash: Some([1; 32]),
            ..Default::default()
        };
        assert_eq!(EvidenceBody::decode(&good.encode()), Ok(good));
    }
}
