//! A site: root, issuers, master secret, policy. Every key comes from a number.

use std::time::Duration;

use configdb_schema::document::AttestationPolicy;
use join_attestation::signed::{self, Claims};
use join_protocol::attestation::{HostKeys, Verifier};
use join_protocol::certificate::{IssuerCertificate, SigningKey, TrustAnchor};
use join_protocol::secret::{Entropy, Secret};
use join_protocol::simulated::{SimulatedTpm, SimulatedVerifier};
use join_protocol::terms::{Purpose, Variant};
use join_service::config::Distribution;
use join_service::settings::{Network, Settings};
use join_service_contract::DesiredPolicy;
use join_trust::replica::{Files, Trust};
use serde_json::{Value, json};
use uuid::Uuid;
use zeroize::Zeroizing;

pub const CLUSTER: Uuid = Uuid::from_u128(0xC1);
pub const GROUP: &str = "ACME-Cell-Join";
/// A certificate of an authority; nothing is signed with it here.
const AUTHORITY: &str = include_str!("../../../libs/join-attestation/tests/recorded/root.pem");
/// What every good host has measured into PCR 4.
pub const MEASURED: [u8; 32] = [0x4D; 32];

pub fn secret(byte: u8) -> Secret {
    Secret::new([byte; 32])
}

pub fn entropy(number: u64) -> Entropy {
    Entropy::new(*numbered(number).expose())
}

pub fn numbered(number: u64) -> Secret {
    let mut bytes = [0xE1; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    Secret::new(bytes)
}

fn root() -> SigningKey {
    SigningKey::from_seed(&secret(0x70)).unwrap()
}

pub fn anchor() -> TrustAnchor {
    TrustAnchor { root: root().public_key(), cluster: CLUSTER, epoch_min: 1 }
}

/// The files of a replica; replicas have issuer keys of their own and share all else.
pub fn files(replica: u8) -> Files {
    files_of(replica, Purpose::JoinIssuer, CLUSTER)
}

pub fn files_of(replica: u8, purpose: Purpose, cluster: Uuid) -> Files {
    let seed = [0x80 + replica; 32];
    let public_key = SigningKey::from_seed(&Secret::new(seed)).unwrap().public_key();
    let certificate =
        IssuerCertificate { public_key, purpose, cluster, not_before_ms: 0, not_after_ms: u64::MAX, epoch: 1 };
    let text = |name: &str, text: String| (name.to_owned(), Zeroizing::new(text.into_bytes()));
    [
        text("issuer.key", format!("{}\n", hex::encode(seed))),
        text("issuer.certificates", format!("{}\n", hex::encode(certificate.sign(&root())))),
        text("root.pub", format!("{}\n", hex::encode(root().public_key()))),
        text("master.key", format!("{}\n", "4b".repeat(32))),
        text("ca.crt", AUTHORITY.to_owned()),
        text("k3s-server-token", "K10abc::server:hush\n".to_owned()),
    ]
    .into()
}

pub fn trust(replica: u8) -> Trust {
    Trust::read(&files(replica), CLUSTER).unwrap()
}

pub fn settings(replica: &str) -> Settings {
    Settings {
        cluster_uuid: CLUSTER,
        cluster_name: "Cell".to_owned(),
        join_group: GROUP.to_owned(),
        version: "0".to_owned(),
        simulated: true,
        replica: replica.to_owned(),
        distribution: Distribution::K3s,
        servers: vec!["https://10.1.0.1:6443".to_owned()],
        kubernetes_version: "v1.33.1".to_owned(),
        components: Vec::new(),
        labels: Vec::new(),
        taints: Vec::new(),
        networks: vec![Network::new("10.1.0.0".parse().unwrap(), 16).unwrap()],
        token_lifetime: Duration::from_secs(900),
        control_plane_lifetime: Duration::from_secs(600),
        certificate_lifetime: Duration::from_secs(90 * 86_400),
        hosts_max: 1_000,
        hellos_per_second_max: 50,
        evidence_per_second_max: 20,
    }
}

/// An SSH host key, in the form of RFC 8709.
pub fn ssh_host_key() -> Vec<u8> {
    [&11_u32.to_be_bytes()[..], b"ssh-ed25519", &32_u32.to_be_bytes(), &[0x5A; 32]].concat()
}

/// A simulated TPM after a boot of a good machine.
pub fn tpm(number: u64) -> SimulatedTpm {
    let mut tpm = SimulatedTpm::new(&numbered(number).derive("tpm", &[])).unwrap();
    tpm.extend(4, &MEASURED);
    tpm
}

/// The endorsement key of a TPM as policies write it.
pub fn ek(tpm: &SimulatedTpm) -> String {
    hex::encode(join_protocol::transcript::endorsement_key_id(&tpm.endorsement_key()))
}

/// PCR 4 of a good machine.
fn measured() -> String {
    let tpm = tpm(0);
    let (attestation, endorsement) = (tpm.attestation_key(), tpm.endorsement_key());
    let keys = HostKeys {
        variant: Variant::Simulated,
        attestation_key: &attestation,
        endorsement_key: &endorsement,
        endorsement_certificates: &[],
    };
    let pcrs = SimulatedVerifier::default().read_pcrs(&keys, &tpm.quote(&[1; 32]), &[1; 32]).unwrap();
    hex::encode(pcrs[4].1)
}

/// The entry of a policy with these enrolled hosts (`ek`, and what else the enrolment says) and these revoked keys.
pub fn entry(enrolled: &[Value], revoked: &[String]) -> Value {
    json!({"variants": ["simulated"], "bank": "sha256", "pcrs": {"4": {"expected": [measured()]}}, "lock": {"pcr": 15},
        "endorsement": {"require": "enrolment", "enrolled": enrolled, "revoked": revoked}})
}

/// What the signer says of a policy with this serial number.
pub const fn claims(serial: u64) -> Claims {
    Claims { cluster: CLUSTER, serial, not_after_ms: u64::MAX }
}

/// The entry, signed by a key that the organisation's root has certified for the cluster of the claims.
pub fn signed(claims: &Claims, entry: &Value) -> String {
    signed_below(&root(), claims, entry)
}

/// The entry, signed by a key that this root has certified.
pub fn signed_below(root: &SigningKey, claims: &Claims, entry: &Value) -> String {
    let policy: AttestationPolicy = serde_json::from_value(entry.clone()).unwrap();
    let key = SigningKey::from_seed(&secret(0x71)).unwrap();
    let certificate = IssuerCertificate {
        public_key: key.public_key(),
        purpose: Purpose::PolicySigner,
        cluster: claims.cluster,
        not_before_ms: 0,
        not_after_ms: u64::MAX,
        epoch: 1,
    };
    let signed = signed::sign(&policy, claims, &key, &[certificate.sign(root)]);
    serde_json::to_string(&signed).unwrap()
}

/// A signed policy whose serial number is its version.
pub fn policy(version: u64, entry: &Value) -> DesiredPolicy {
    DesiredPolicy {
        version,
        revision: 100 + version,
        entry: Some(signed(&claims(version), entry)),
        ..DesiredPolicy::default()
    }
}
