//! What a host sends about its TPM: no bytes make the parsers panic, and what is parsed is written back as the same bytes.
//!
//! Apart from the other targets, because a test of `join-attestation` includes this file by its path.

use std::sync::OnceLock;
use std::time::Duration;

use configdb_schema::document::{
    AttestationPolicy, EndorsementProof, EndorsementRules, EvidenceVariant, PcrBank, PcrLock, PcrRule,
};
use join_attestation::attest::{Quote, Signature};
use join_attestation::pcr::parse_digests;
use join_attestation::{
    EventLog, Hash, KeyEvidence, Policy, Public, QuoteEvidence, Seed, check_attestation_key, check_endorsement_key,
    judge_keys, make_credential,
};

/// A fuzz target: its name, which is that of its folder of seeds, too, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 5] = [
    ("attestation_policy", attestation_policy),
    ("join_ek_certificate", ek_certificate),
    ("join_event_log", event_log),
    ("join_tpm_public", tpm_public),
    ("join_tpm_quote", tpm_quote),
];

const ENDORSEMENT: &[u8] = include_bytes!("../../services/libs/join-attestation/tests/recorded/endorsement.public");
const ATTESTATION: &[u8] = include_bytes!("../../services/libs/join-attestation/tests/recorded/attestation.public");
const CERTIFICATE: &[u8] = include_bytes!("../../services/libs/join-attestation/tests/recorded/endorsement.der");
const ROOT: &str = include_str!("../../services/libs/join-attestation/tests/recorded/root.pem");

/// A public area: its rules, its name, and a credential for it.
pub fn tpm_public(bytes: &[u8]) {
    let Ok(public) = Public::parse(bytes) else { return };
    assert_eq!(public.to_bytes(), bytes);
    assert!(public.key.subject_public_key_info().is_ok(), "what was parsed can be encoded");
    let name = public.name();
    assert_eq!(name.len(), 2 + public.name_hash.size());
    let _ = check_attestation_key(&public);
    if check_endorsement_key(&public).is_ok() {
        let _ = make_credential(&public, &name, &[7; 32], &Seed::new([1; 32]));
    }
}

/// A quote as it travels, and each of its parts alone.
pub fn tpm_quote(bytes: &[u8]) {
    if let Ok(quote) = QuoteEvidence::parse(bytes) {
        assert_eq!(quote.to_bytes(), bytes);
        assert!(Signature::parse(quote.signature).is_ok());
        let _ = Quote::parse(quote.attest);
        let _ = parse_digests(quote.pcr_values);
    }
    let _ = Quote::parse(bytes);
    let _ = Signature::parse(bytes);
    if let Ok(digests) = parse_digests(bytes) {
        assert!(digests.len() <= 24);
    }
}

/// What firmware says that it measured, in every bank.
pub fn event_log(bytes: &[u8]) {
    let Ok(log) = EventLog::parse(bytes) else { return };
    for bank in [Hash::Sha1, Hash::Sha256, Hash::Sha384, Hash::Sha512] {
        if let Ok(pcrs) = log.replay(bank) {
            assert!(pcrs.len() == 24 && pcrs.values().all(|value| value.len() == bank.size()));
        }
    }
}

/// The certificate of an endorsement key, and one between it and the manufacturer's.
pub fn ek_certificate(bytes: &[u8]) {
    let judged = |certificate, intermediate| {
        let evidence = KeyEvidence {
            endorsement: ENDORSEMENT,
            certificate: Some(certificate),
            intermediates: &[intermediate],
            attestation: ATTESTATION,
        };
        judge_keys(policy(), &evidence, Duration::from_secs(1_800_000_000))
    };
    let _ = judged(bytes, bytes);
    let _ = judged(CERTIFICATE, bytes);
}

/// The document of a policy: one that breaks a rule admits no host and says which rule, and one that is written and read again says the same.
pub fn attestation_policy(bytes: &[u8]) {
    let Ok(entry) = serde_json::from_slice::<AttestationPolicy>(bytes) else { return };
    let policy = Policy::new(&entry, 1);
    assert_eq!(policy.error().is_some(), policy.selection().is_none(), "who cannot quote is not admitted");
    assert_eq!(policy.error().is_some(), policy.variants().is_empty());
    let _ = policy.asked();
    let written = serde_json::to_vec(&entry).expect("what was read can be written");
    let again: AttestationPolicy = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(Policy::new(&again, 1).error(), policy.error());
}

fn policy() -> &'static Policy {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    POLICY.get_or_init(|| {
        let expected = vec!["0123456789abcdef0123456789abcdef0123456789abcdef00112233445566aa".to_owned()];
        let entry = AttestationPolicy {
            variants: vec![EvidenceVariant::Tpm2],
            bank: PcrBank::Sha256,
            pcrs: [("4".to_owned(), PcrRule { expected, warn_only: false })].into(),
            boot: None,
            lock: PcrLock { pcr: 15, before: None, after: None },
            local_unlock: None,
            endorsement: EndorsementRules {
                require: EndorsementProof::Certificate,
                manufacturers: vec![ROOT.to_owned()],
                device_manufacturers: Vec::new(),
                enrolled: Vec::new(),
                revoked: Vec::new(),
            },
            signature: None,
        };
        let policy = Policy::new(&entry, 1);
        assert_eq!(policy.error(), None);
        policy
    })
}
