//! A site for tests: a root, issuers that share keys, and hosts with simulated TPMs. Every key comes from a number.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use std::sync::Arc;
use std::time::Duration;

use join_protocol::certificate::{IssuerCertificate, SigningKey, TrustAnchor};
use join_protocol::host::{
    Challenged, Committed, EvidenceSent, HelloSent, HostSettings, Opened, Quoting, TicketOutcome,
};
use join_protocol::issuer::{EvidenceAnswer, HelloAnswer, Issuer, IssuerKeys, IssuerPolicy, IssuerResponse, Verified};
use join_protocol::message::evidence::EvidenceBody;
use join_protocol::message::grant::{Grant, Membership, Setup};
use join_protocol::message::local_unlock::{LocalUnlock, UnlockValue};
use join_protocol::refusal::Refusal;
use join_protocol::secret::{Entropy, Secret, cluster_id};
use join_protocol::selection::Bank;
use join_protocol::simulated::{SimulatedTpm, SimulatedVerifier};
use join_protocol::terms::{Address, HostClock, Kind, Purpose, Role, Suite, Variant};
use uuid::Uuid;

pub const CLUSTER: Uuid = Uuid::from_u128(0xC1);
pub const GROUP: &str = "ACME-Cell-Join";
pub const NOW_MS: u64 = 1_800_000_000_000;
pub const CLOCK: HostClock = HostClock::Trusted(NOW_MS);

pub fn secret(byte: u8) -> Secret {
    Secret::new([byte; 32])
}

/// What a second key of a disk is sealed to. No TPM verifies the signatures here.
pub fn local_unlock() -> LocalUnlock {
    let values = vec![UnlockValue { value: vec![4; 32], signature: [1; 64] }];
    LocalUnlock { bank: Bank::Sha256, key: [2; 64], pcrs: [(4, values)].into() }
}

pub fn entropy(number: u64) -> Entropy {
    let mut bytes = [0xE1; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    Entropy::new(bytes)
}

pub fn signing_key(byte: u8) -> SigningKey {
    SigningKey::from_seed(&secret(byte)).unwrap()
}

/// The root of the organisation.
pub fn root() -> SigningKey {
    signing_key(0x70)
}

pub fn anchor() -> TrustAnchor {
    TrustAnchor { root: root().public_key(), cluster: CLUSTER, epoch_min: 1 }
}

pub fn certificate(key: &SigningKey, purpose: Purpose, cluster: Uuid) -> Vec<u8> {
    let (not_before_ms, not_after_ms) = (NOW_MS - 3_600_000, NOW_MS + 86_400_000);
    let public_key = key.public_key();
    IssuerCertificate { public_key, purpose, cluster, not_before_ms, not_after_ms, epoch: 1 }.sign(&root())
}

pub fn policy() -> IssuerPolicy {
    IssuerPolicy {
        cluster: CLUSTER,
        group: GROUP.to_owned(),
        kinds: vec![Kind::Join, Kind::Rejoin, Kind::Renew],
        suites: vec![Suite::XWing, Suite::X25519],
        variants: vec![Variant::Simulated],
        policy_epoch: 5,
        locked_to: Some(cluster_id(&secret(0xD2), &secret(0xD3))),
    }
}

pub fn keys() -> IssuerKeys {
    IssuerKeys::new((4, &secret(0x44)), Some((3, &secret(0x43))))
}

/// A replica of the join service; all replicas share keys, each signs with its own.
pub fn replica(number: u8) -> Issuer {
    let key = signing_key(0x80 + number);
    let chain = vec![certificate(&key, Purpose::JoinIssuer, CLUSTER)];
    Issuer::new(policy(), keys(), key, chain)
}

/// An administrator.
pub fn admin() -> Issuer {
    let key = signing_key(0xA0);
    let chain = vec![certificate(&key, Purpose::ClusterAdmin, CLUSTER)];
    let kinds = vec![Kind::Recover, Kind::Init];
    Issuer::new(IssuerPolicy { kinds, ..policy() }, IssuerKeys::new((1, &secret(0x55)), None), key, chain)
}

pub struct Host {
    pub tpm: SimulatedTpm,
    pub settings: HostSettings,
}

/// The host with this number; its disk has the number as UUID.
pub fn host(number: u8) -> Host {
    let tpm = SimulatedTpm::new(&secret(number)).unwrap();
    let disk = Uuid::from_u128(number.into());
    let settings = HostSettings {
        address: Address::of_disk(GROUP, disk),
        disk,
        kind: Kind::Join,
        role: Role::Worker,
        suites: vec![Suite::X25519],
        variant: Variant::Simulated,
        attestation_key: tpm.attestation_key(),
        endorsement_key: tpm.endorsement_key(),
        endorsement_certificates: Vec::new(),
        lock_pcr: 15,
        body: EvidenceBody {
            boot: [number; 16],
            node_name: format!("edge-{number}"),
            certificate_request: b"request".to_vec(),
            ..Default::default()
        },
        anchor: anchor(),
    };
    Host { tpm, settings }
}

pub fn grant_for(kind: Kind, name: &str) -> Grant {
    let membership = Membership { node_name: name.to_owned(), token: "join-token".into(), ..Default::default() };
    Grant {
        disk_key: secret(0xD1),
        measurement_secret: secret(0xD2),
        measurement_salt: secret(0xD3),
        membership: (kind == Kind::Join).then_some(membership),
        setup: None,
        local_unlock: None,
    }
}

pub fn with_setup(grant: Grant, result_key: &[u8]) -> Grant {
    Grant { setup: Some(Setup { result_key: result_key.to_vec(), parameters: "kind: init".into() }), ..grant }
}

impl Host {
    pub fn hello(&self, number: u64) -> HelloSent {
        HelloSent::new(Arc::new(self.settings.clone()), &entropy(number)).unwrap()
    }

    /// Up to the activated credential.
    pub fn quoting(&self, challenged: Challenged) -> Quoting {
        let secret = self.tpm.activate_credential(challenged.credential()).expect("it is for this TPM");
        challenged.on_credential_activated(secret, &entropy(2))
    }

    /// Up to the evidence, honestly.
    pub fn evidence(&self, issuer: &Issuer) -> EvidenceSent {
        self.evidence_with(issuer, |tpm, data| tpm.quote(data))
    }

    /// Up to the evidence, with this quote.
    pub fn evidence_with(
        &self,
        issuer: &Issuer,
        quote: impl FnOnce(&SimulatedTpm, &[u8; 32]) -> Vec<u8>,
    ) -> EvidenceSent {
        let hello = self.hello(1);
        let challenge = challenge(issuer, self, hello.message());
        let quoting = self.quoting(hello.on_challenge(&challenge, CLOCK).unwrap());
        let quote = quote(&self.tpm, &quoting.qualifying_data());
        quoting.on_quoted(quote, &entropy(3)).unwrap()
    }

    /// After the ticket: locks and acknowledges.
    pub fn commit(&mut self, opened: Opened, result: Option<&[u8]>) -> Committed {
        self.tpm.lock(&opened.cluster_id());
        let quote = self.tpm.quote(&opened.qualifying_data());
        opened.on_locked(quote, result, &entropy(4)).unwrap()
    }
}

pub fn challenge(issuer: &Issuer, host: &Host, hello: &[u8]) -> Vec<u8> {
    let answer = issuer.on_hello(&host.settings.address, hello, NOW_MS, entropy(9), &SimulatedVerifier::default());
    match answer {
        HelloAnswer::Challenge { message, .. } => message,
        other => panic!("no challenge: {other:?}"),
    }
}

pub fn judge(issuer: &Issuer, host: &Host, evidence: &[u8], verifier: &SimulatedVerifier) -> EvidenceAnswer {
    issuer.on_evidence(&host.settings.address, evidence, NOW_MS + 1_000, verifier)
}

pub fn verified(issuer: &Issuer, host: &Host, evidence: &EvidenceSent) -> Verified {
    match judge(issuer, host, evidence.message(), &SimulatedVerifier::default()) {
        EvidenceAnswer::Verified(verified) => *verified,
        other => panic!("not verified: {other:?}"),
    }
}

pub fn ticket(issuer: &Issuer, host: &Host, evidence: &EvidenceSent) -> (Verified, IssuerResponse) {
    let verified = verified(issuer, host, evidence);
    let grant = grant_for(host.settings.kind, &host.settings.body.node_name);
    let answer = issuer.grant(&verified, grant, entropy(5)).unwrap();
    (verified, answer)
}

pub fn opened(evidence: EvidenceSent, ticket: &[u8]) -> Opened {
    match evidence.on_ticket(ticket, CLOCK).unwrap() {
        TicketOutcome::Opened(opened) => *opened,
        other => panic!("no ticket: {other:?}"),
    }
}

pub fn refused(evidence: EvidenceSent, ticket: &[u8]) -> Refusal {
    match evidence.on_ticket(ticket, CLOCK).unwrap() {
        TicketOutcome::Refused(refusal) => refusal,
        other => panic!("a ticket: {other:?}"),
    }
}

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
