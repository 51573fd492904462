//! The attested join protocol AJP/1: proto3, package `sparkfleet.join.v1`, schema in `join.proto` beside this package's manifest.
//!
//! Sizes, meanings and what is hashed: `docs/join-protocol.md`. Several messages hold secrets, therefore their `Debug` tells only their names.

use std::fmt;

use prost::Message;

/// A host wants in. Clear; not authenticated by itself, but hashed into everything that follows.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Hello {
    /// Version of the protocol: 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Id of the attempt, 16 random bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub request: Vec<u8>,
    /// 32 random bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub host_nonce: Vec<u8>,
    /// 1 join, 2 rejoin, 3 recover, 4 init.
    #[prost(uint32, tag = "4")]
    pub kind: u32,
    /// 1 worker, 2 control plane.
    #[prost(uint32, tag = "5")]
    pub role: u32,
    /// UUID of the state disk, 16 bytes.
    #[prost(bytes = "vec", tag = "6")]
    pub disk: Vec<u8>,
    /// HPKE suites that the host speaks, the preferred first.
    #[prost(uint32, repeated, tag = "7")]
    pub suites: Vec<u32>,
    /// Names of the attestation variants that the host can do, the preferred first.
    #[prost(string, repeated, tag = "8")]
    pub variants: Vec<String>,
    /// Public attestation key in the form of the variant.
    #[prost(bytes = "vec", tag = "9")]
    pub attestation_key: Vec<u8>,
    /// Public endorsement key in the form of the variant.
    #[prost(bytes = "vec", tag = "10")]
    pub endorsement_key: Vec<u8>,
    /// Certificates of the endorsement key, DER, leaf first.
    #[prost(bytes = "vec", repeated, tag = "11")]
    pub endorsement_certificates: Vec<Vec<u8>>,
}

/// The issuer's answer to a hello. The signature covers the transcript, the body and the cookie.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Challenge {
    /// An encoded `ChallengeBody`.
    #[prost(bytes = "vec", tag = "1")]
    pub body: Vec<u8>,
    /// HMAC of the issuers over transcript and body, 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub cookie: Vec<u8>,
    /// Ed25519, 64 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub signature: Vec<u8>,
}

/// What a challenge says.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct ChallengeBody {
    /// Version of the protocol: 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Id of the attempt, 16 random bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub request: Vec<u8>,
    /// 32 random bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub issuer_nonce: Vec<u8>,
    /// End of the challenge by the issuer's clock, UTC ms.
    #[prost(uint64, tag = "4")]
    pub expires_ms: u64,
    /// Which keys of the issuers the challenge is made with.
    #[prost(uint32, tag = "5")]
    pub key_epoch: u32,
    /// The suite that was chosen.
    #[prost(uint32, tag = "6")]
    pub suite: u32,
    /// The variant that was chosen.
    #[prost(string, tag = "7")]
    pub variant: String,
    /// Which policy will be applied.
    #[prost(uint64, tag = "8")]
    pub policy_epoch: u64,
    /// UUID of the cluster, 16 bytes.
    #[prost(bytes = "vec", tag = "9")]
    pub cluster: Vec<u8>,
    /// Public key to which evidence is sealed.
    #[prost(bytes = "vec", tag = "10")]
    pub issuer_key: Vec<u8>,
    /// Credential that only the TPM of the endorsement key opens, in the form of the variant.
    #[prost(bytes = "vec", tag = "11")]
    pub credential: Vec<u8>,
    /// Encoded `IssuerCertificate`s, the issuer first, the root left out.
    #[prost(bytes = "vec", repeated, tag = "12")]
    pub issuer_certificates: Vec<Vec<u8>>,
    /// Name of the bank that is to be quoted.
    #[prost(string, tag = "13")]
    pub bank: String,
    /// Registers that are to be quoted, each greater than the one before.
    #[prost(uint32, repeated, tag = "14")]
    pub registers: Vec<u32>,
}

/// Evidence of a host, sealed to the key of the challenge. It carries hello and challenge, so that the issuer needs no memory.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Evidence {
    /// Version of the protocol: 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Id of the attempt, 16 random bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub request: Vec<u8>,
    /// The hello, byte by byte.
    #[prost(bytes = "vec", tag = "3")]
    pub hello: Vec<u8>,
    /// The challenge that was accepted, byte by byte.
    #[prost(bytes = "vec", tag = "4")]
    pub challenge: Vec<u8>,
    /// HPKE encapsulated key.
    #[prost(bytes = "vec", tag = "5")]
    pub encapsulated_key: Vec<u8>,
    /// HPKE ciphertext.
    #[prost(bytes = "vec", tag = "6")]
    pub ciphertext: Vec<u8>,
}

/// What is sealed in Evidence.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct EvidenceContent {
    /// Ephemeral public key of the host.
    #[prost(bytes = "vec", tag = "1")]
    pub host_key: Vec<u8>,
    /// An encoded `EvidenceBody`.
    #[prost(bytes = "vec", tag = "2")]
    pub body: Vec<u8>,
    /// Quote in the form of the variant.
    #[prost(bytes = "vec", tag = "3")]
    pub quote: Vec<u8>,
    /// HMAC under the activated credential, 32 bytes.
    #[prost(bytes = "vec", tag = "4")]
    pub proof: Vec<u8>,
}

/// What the host asks for; bound into the quote.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct EvidenceBody {
    /// Id of this boot, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub boot: Vec<u8>,
    /// Name that the node wants or gets.
    #[prost(string, tag = "2")]
    pub node_name: String,
    /// PKCS#10, DER.
    #[prost(bytes = "vec", tag = "3")]
    pub certificate_request: Vec<u8>,
    /// SSH host key, SSH wire format.
    #[prost(bytes = "vec", tag = "4")]
    pub ssh_host_key: Vec<u8>,
    /// Names and addresses for the SSH host certificate.
    #[prost(string, repeated, tag = "5")]
    pub principals: Vec<String>,
    /// SHA-256 of the node password, or empty.
    #[prost(bytes = "vec", tag = "6")]
    pub node_password_hash: Vec<u8>,
}

/// A ticket or a refusal, sealed to the host's key and its TPM. The signature covers the transcript and the body.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Ticket {
    /// An encoded `TicketBody`.
    #[prost(bytes = "vec", tag = "1")]
    pub body: Vec<u8>,
    /// Ed25519, 64 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub signature: Vec<u8>,
}

/// What a ticket says in clear.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct TicketBody {
    /// Version of the protocol: 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Id of the attempt, 16 random bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub request: Vec<u8>,
    /// Encoded `IssuerCertificate`s, the issuer first, the root left out.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub issuer_certificates: Vec<Vec<u8>>,
    /// HPKE encapsulated key.
    #[prost(bytes = "vec", tag = "4")]
    pub encapsulated_key: Vec<u8>,
    /// HPKE ciphertext.
    #[prost(bytes = "vec", tag = "5")]
    pub ciphertext: Vec<u8>,
}

/// What is sealed in Ticket, before padding. Exactly one of grant, refusal and renewal.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct TicketContent {
    /// Key of progress and acknowledgement, 32 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub acknowledgement_key: Vec<u8>,
    /// What the host receives.
    #[prost(message, optional, tag = "2")]
    pub grant: Option<Grant>,
    /// Why there is nothing.
    #[prost(message, optional, tag = "3")]
    pub refusal: Option<Refusal>,
    /// What a member receives.
    #[prost(message, optional, tag = "4")]
    pub renewal: Option<Renewal>,
}

/// What a member receives that renews its certificates: nothing in it is secret.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Renewal {
    /// Name of the node.
    #[prost(string, tag = "1")]
    pub node_name: String,
    /// Kubelet certificate, DER.
    #[prost(bytes = "vec", tag = "2")]
    pub kubelet_certificate: Vec<u8>,
    /// SSH authority, an authorized_keys line.
    #[prost(string, tag = "3")]
    pub ssh_authority: String,
    /// SSH host certificate, one line.
    #[prost(string, tag = "4")]
    pub ssh_host_certificate: String,
}

/// What a host receives. Which fields must be there depends on the kind of the request.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Grant {
    /// Key of the state disk, 32 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub disk_key: Vec<u8>,
    /// Secret from which the cluster id is derived, 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub measurement_secret: Vec<u8>,
    /// Salt of the same, 32 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub measurement_salt: Vec<u8>,
    /// How to become a member.
    #[prost(message, optional, tag = "4")]
    pub membership: Option<Membership>,
    /// Key to which the result of an init is sealed.
    #[prost(bytes = "vec", tag = "5")]
    pub result_key: Vec<u8>,
    /// Parameters of an init, in a form of the admin tool.
    #[prost(bytes = "vec", tag = "6")]
    pub parameters: Vec<u8>,
}

/// How to become a member of the Kubernetes cluster.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Membership {
    /// Name that the node wants or gets.
    #[prost(string, tag = "1")]
    pub node_name: String,
    /// URLs of the API servers.
    #[prost(string, repeated, tag = "2")]
    pub servers: Vec<String>,
    /// Join token.
    #[prost(string, tag = "3")]
    pub token: String,
    /// Pin of the cluster authority.
    #[prost(string, tag = "4")]
    pub authority_pin: String,
    /// Password of the node.
    #[prost(string, tag = "5")]
    pub node_password: String,
    /// Version to install.
    #[prost(string, tag = "6")]
    pub kubernetes_version: String,
    /// What to install.
    #[prost(message, repeated, tag = "7")]
    pub components: Vec<Component>,
    /// Certificate, DER.
    #[prost(bytes = "vec", tag = "8")]
    pub kubelet_certificate: Vec<u8>,
    /// SSH authority, an authorized_keys line.
    #[prost(string, tag = "9")]
    pub ssh_authority: String,
    /// SSH host certificate, one line.
    #[prost(string, tag = "10")]
    pub ssh_host_certificate: String,
    /// Labels of the node, `key=value`.
    #[prost(string, repeated, tag = "11")]
    pub labels: Vec<String>,
    /// Taints of the node, `key=value:effect`.
    #[prost(string, repeated, tag = "12")]
    pub taints: Vec<String>,
    /// Files of a control plane.
    #[prost(message, repeated, tag = "13")]
    pub files: Vec<File>,
}

/// A binary to install, by hash.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Component {
    /// Where it is.
    #[prost(string, tag = "1")]
    pub url: String,
    /// What it is, 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub sha256: Vec<u8>,
    /// Where it goes.
    #[prost(string, tag = "3")]
    pub path: String,
}

/// A file of a control plane.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct File {
    /// Where it goes.
    #[prost(string, tag = "1")]
    pub path: String,
    /// What it holds.
    #[prost(bytes = "vec", tag = "2")]
    pub content: Vec<u8>,
}

/// Why there is no ticket.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Refusal {
    /// Stable number of the reason.
    #[prost(uint32, tag = "1")]
    pub code: u32,
    /// For people; no secret.
    #[prost(string, tag = "2")]
    pub detail: String,
    /// Wait at least so long; 0: no advice.
    #[prost(uint64, tag = "3")]
    pub retry_after_ms: u64,
}

/// A refusal before the host has shown that it owns its TPM: clear and signed. The signature covers the transcript and the body.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct ClearRefusal {
    /// An encoded `ClearRefusalBody`.
    #[prost(bytes = "vec", tag = "1")]
    pub body: Vec<u8>,
    /// Ed25519, 64 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub signature: Vec<u8>,
}

/// What a clear refusal says.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct ClearRefusalBody {
    /// Version of the protocol: 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Id of the attempt, 16 random bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub request: Vec<u8>,
    /// Encoded `IssuerCertificate`s, the issuer first, the root left out.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub issuer_certificates: Vec<Vec<u8>>,
    /// Why there is nothing.
    #[prost(message, optional, tag = "4")]
    pub refusal: Option<Refusal>,
}

/// Progress or acknowledgement of a host, under a key that only the ticket holds.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Authenticated {
    /// An encoded `Progress` or `Acknowledgement`.
    #[prost(bytes = "vec", tag = "1")]
    pub body: Vec<u8>,
    /// HMAC under the acknowledgement key, 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub mac: Vec<u8>,
}

/// How far a host is.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Progress {
    /// Version of the protocol: 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Id of the attempt, 16 random bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub request: Vec<u8>,
    /// Counts from 1 within the request.
    #[prost(uint32, tag = "3")]
    pub sequence: u32,
    /// Number of the stage.
    #[prost(uint32, tag = "4")]
    pub stage: u32,
    /// For people; no secret.
    #[prost(string, tag = "5")]
    pub detail: String,
}

/// The host is locked to the cluster; the quote shows it. The result, of an init only, is sealed to the key of the grant.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct Acknowledgement {
    /// Version of the protocol: 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Id of the attempt, 16 random bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub request: Vec<u8>,
    /// Quote in the form of the variant.
    #[prost(bytes = "vec", tag = "3")]
    pub quote: Vec<u8>,
    /// HPKE encapsulated key.
    #[prost(bytes = "vec", tag = "4")]
    pub encapsulated_key: Vec<u8>,
    /// HPKE ciphertext.
    #[prost(bytes = "vec", tag = "5")]
    pub ciphertext: Vec<u8>,
}

/// Who may issue: a link of the chain from the pinned root to the issuer.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct IssuerCertificate {
    /// An encoded `IssuerCertificateBody`.
    #[prost(bytes = "vec", tag = "1")]
    pub body: Vec<u8>,
    /// Ed25519, 64 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub signature: Vec<u8>,
}

/// What an issuer certificate says.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct IssuerCertificateBody {
    /// Version of the protocol: 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Ed25519 public key, 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub public_key: Vec<u8>,
    /// 1 authority, 2 join issuer, 3 cluster admin.
    #[prost(uint32, tag = "3")]
    pub purpose: u32,
    /// UUID of the cluster, 16 bytes.
    #[prost(bytes = "vec", tag = "4")]
    pub cluster: Vec<u8>,
    /// UTC ms.
    #[prost(uint64, tag = "5")]
    pub not_before_ms: u64,
    /// UTC ms.
    #[prost(uint64, tag = "6")]
    pub not_after_ms: u64,
    /// Certificates of an epoch below the pinned one are void.
    #[prost(uint32, tag = "7")]
    pub epoch: u32,
}

/// The variant `simulated`, which proves nothing about a machine. A credential that only one simulated TPM opens.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct SimulatedCredential {
    /// HPKE encapsulated key.
    #[prost(bytes = "vec", tag = "1")]
    pub encapsulated_key: Vec<u8>,
    /// HPKE ciphertext.
    #[prost(bytes = "vec", tag = "2")]
    pub ciphertext: Vec<u8>,
}

/// A quote of a simulated TPM.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct SimulatedQuote {
    /// An encoded `SimulatedQuoteBody`.
    #[prost(bytes = "vec", tag = "1")]
    pub body: Vec<u8>,
    /// Ed25519, 64 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub signature: Vec<u8>,
}

/// What a simulated quote says.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct SimulatedQuoteBody {
    /// What the quote is about, 32 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub qualifying_data: Vec<u8>,
    /// Name of the bank of registers.
    #[prost(string, tag = "2")]
    pub bank: String,
    /// Registers, by rising index.
    #[prost(message, repeated, tag = "3")]
    pub registers: Vec<SimulatedRegister>,
}

/// A register and its value.
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub struct SimulatedRegister {
    /// Its index.
    #[prost(uint32, tag = "1")]
    pub index: u32,
    /// Its value, 32 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

macro_rules! debug_names_only {
    ($($message:ident),+ $(,)?) => {
        $(impl fmt::Debug for $message {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($message)).finish_non_exhaustive()
            }
        })+
    };
}

debug_names_only!(
    Hello,
    Challenge,
    ChallengeBody,
    Evidence,
    EvidenceContent,
    EvidenceBody,
    Ticket,
    TicketBody,
    TicketContent,
    Renewal,
    Grant,
    Membership,
    Component,
    File,
    Refusal,
    ClearRefusal,
    ClearRefusalBody,
    Authenticated,
    Progress,
    Acknowledgement,
    IssuerCertificate,
    IssuerCertificateBody,
    SimulatedCredential,
    SimulatedQuote,
    SimulatedQuoteBody,
    SimulatedRegister
);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    /// Message -> fields as `number name type`.
    type Schema = BTreeMap<String, Vec<String>>;

    fn of_schema(text: &str) -> Schema {
        let mut schema = Schema::new();
        let mut message = String::new();
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
            if let Some(name) = line.strip_prefix("message ") {
                message = name.trim_end_matches(" {").to_owned();
                schema.insert(message.clone(), Vec::new());
            } else if let Some((field, number)) = line.strip_suffix(';').and_then(|line| line.split_once(" = "))
                && let Some((kind, name)) = field.rsplit_once(' ')
                && let Ok(number) = number.parse::<u32>()
            {
                schema.get_mut(&message).unwrap().push(format!("{number} {name} {kind}"));
            }
        }
        schema
    }

    fn of_types(text: &str) -> Schema {
        let mut schema = Schema::new();
        let (mut message, mut attribute) = (String::new(), String::new());
        for line in text.split("#[cfg(test)]").next().unwrap().lines().map(str::trim) {
            if let Some(name) = line.strip_prefix("pub struct ") {
                message = name.trim_end_matches(" {").to_owned();
                schema.insert(message.clone(), Vec::new());
            } else if let Some(inner) = line.strip_prefix("#[prost(").filter(|inner| inner.contains("tag = ")) {
                attribute = inner.to_owned();
            } else if let Some((name, rust)) = line.strip_prefix("pub ").and_then(|field| field.split_once(": ")) {
                let number = attribute.split("tag = \"").nth(1).unwrap().split('"').next().unwrap();
                let inner = rust.trim_end_matches(',').trim_start_matches("Option<").trim_end_matches('>');
                let repeated = if attribute.contains("repeated") { "repeated " } else { "" };
                let scalar = attribute.split([',', ' ']).next().unwrap();
                let kind = if scalar == "message" { inner.trim_start_matches("Vec<") } else { scalar };
                schema.get_mut(&message).unwrap().push(format!("{number} {name} {repeated}{kind}"));
            }
        }
        schema
    }

    #[test]
    fn the_types_are_those_of_the_schema() {
        let (schema, types) = (of_schema(include_str!("../join.proto")), of_types(include_str!("join.rs")));
        assert!(schema.len() > 15 && schema.values().map(Vec::len).sum::<usize>() > 80, "{schema:#?}");
        assert_eq!(schema, types);
    }

    #[test]
    fn the_types_of_the_enrolment_are_those_of_its_schema() {
        let (schema, types) = (of_schema(include_str!("../enrol.proto")), of_types(include_str!("enrol.rs")));
        assert!(schema.len() == 7 && schema.values().map(Vec::len).sum::<usize>() > 15, "{schema:#?}");
        assert_eq!(schema, types);
    }

    #[test]
    fn debug_does_not_show_what_a_message_holds() {
        let grant = super::Grant { disk_key: vec![7; 32], ..Default::default() };
        assert_eq!(format!("{grant:?}"), "Grant { .. }");
    }
}
