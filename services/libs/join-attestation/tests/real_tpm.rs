//! The whole way of a host with a real TPM: certificate, keys, credential, quote, lock, reboot.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by it")]

use crate::swtpm;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use configdb_schema::document::AttestationPolicy;
use join_attestation::{
    AdmittedHost, Credential, KeyEvidence, Keys, Phase, Policy, QuoteEvidence, Refusal, RefusalCode, Seed, judge,
    judge_keys, pcr,
};
use serde_json::{Value, json};
use swtpm::{EK_P384, EK_RSA, Swtpm};

/// PCRs that the tests quote: those of the policy and the lock.
const INDICES: [u8; 9] = [0, 2, 4, 7, 8, 9, 11, 14, 15];
const SELECTION: &str = "sha256:0,2,4,7,8,9,11,14,15";
const CLUSTER: &[u8] = b"a cluster's id of thirty-two byte";
const ECDSA: &[&str] = &["-G", "ecc", "-g", "sha256", "-s", "ecdsa"];
const RSASSA: &[&str] = &["-G", "rsa", "-g", "sha256", "-s", "rsassa"];

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// What firmware and kernel would measure.
fn boot(tpm: &Swtpm) {
    for index in INDICES.into_iter().filter(|index| *index < 15) {
        tpm.write("event.bin", format!("what is measured into {index}").as_bytes());
        tpm.tool("tpm2_pcrevent", &[&index.to_string(), "event.bin"]);
    }
}

/// The parts of a host's evidence that stay the same.
struct Host {
    endorsement: Vec<u8>,
    certificate: Vec<u8>,
    issuer: Vec<u8>,
    attestation: Vec<u8>,
}

impl Host {
    fn new(tpm: &Swtpm, attestation: &[&str]) -> Self {
        tpm.tool("tpm2_readpublic", &["-c", EK_RSA, "-f", "tss", "-o", "ek.pub"]);
        tpm.tool("tpm2_nvread", &["0x1C00002", "-o", "ek.der"]);
        Self {
            endorsement: tpm.file("ek.pub"),
            certificate: tpm.file("ek.der"),
            issuer: der(&tpm.path("ca/issuercert.pem")),
            attestation: tpm.make_attestation_key(EK_RSA, attestation),
        }
    }

    fn evidence<T>(&self, use_it: impl FnOnce(&KeyEvidence<'_>) -> T) -> T {
        use_it(&KeyEvidence {
            endorsement: &self.endorsement,
            certificate: Some(&self.certificate),
            intermediates: &[&self.issuer],
            attestation: &self.attestation,
        })
    }

    fn keys(&self, policy: &Policy) -> Result<Keys, Refusal> {
        self.evidence(|evidence| judge_keys(policy, evidence, now()))
    }

    fn judge(
        &self,
        policy: &Policy,
        quoted: &Quoted,
        extra_data: &[u8],
        phase: Phase<'_>,
    ) -> Result<AdmittedHost, Refusal> {
        let quote = QuoteEvidence {
            attest: &quoted.attest,
            signature: &quoted.signature,
            pcr_values: &quoted.values,
            event_log: None,
        };
        self.evidence(|evidence| judge(policy, evidence, Some(&quote), extra_data, phase, now())).outcome
    }
}

struct Quoted {
    attest: Vec<u8>,
    signature: Vec<u8>,
    values: Vec<u8>,
}

fn quote(tpm: &Swtpm, extra_data: &[u8]) -> Quoted {
    let (attest, signature) = tpm.quote("ak.ctx", SELECTION, extra_data);
    Quoted { attest, signature, values: tpm.pcrs("sha256", &INDICES) }
}

fn der(pem: &Path) -> Vec<u8> {
    use rustls_pki_types::pem::PemObject;
    rustls_pki_types::CertificateDer::from_pem_slice(&std::fs::read(pem).unwrap()).unwrap().as_ref().to_vec()
}

/// A policy that wants what this TPM's PCRs hold and trusts its manufacturer.
fn policy(tpm: &Swtpm) -> Value {
    let values = pcr::parse_digests(&tpm.pcrs("sha256", &INDICES)).unwrap();
    let pcrs = INDICES.iter().zip(values).filter(|(index, _)| **index < 15);
    let pcrs: serde_json::Map<String, Value> =
        pcrs.map(|(index, value)| (index.to_string(), json!({"expected": [hex::encode(value)]}))).collect();
    let root = String::from_utf8(tpm.file("ca/swtpm-localca-rootca-cert.pem")).unwrap();
    json!({"bank": "sha256", "pcrs": pcrs, "lock": {"pcr": 15},
        "endorsement": {"require": "certificate", "manufacturers": [root]}})
}

fn in_force(policy: &Value) -> Policy {
    let entry: AttestationPolicy = serde_json::from_value(policy.clone()).unwrap();
    let policy = Policy::new(&entry, 7);
    assert_eq!(policy.error(), None);
    policy
}

/// After a reboot the key has to be loaded again.
fn load_attestation_key(tpm: &Swtpm) {
    tpm.with_endorsement_session(|| {
        let key = ["-C", EK_RSA, "-u", "ak.pub", "-r", "ak.priv", "-c", "ak.ctx", "-P", "session:session.ctx"];
        tpm.tool("tpm2_load", &key);
    });
}

/// What `tpm2_activatecredential` reads.
fn credential_file(credential: &Credential) -> Vec<u8> {
    [&[0xba, 0xdc, 0xc0, 0xde, 0, 0, 0, 1], credential.id_object.as_slice(), &credential.encrypted_secret].concat()
}

/// The secret that the TPM gives back, if it does.
fn activate(tpm: &Swtpm, endorsement: &str, credential: &Credential) -> Option<Vec<u8>> {
    tpm.write("credential.bin", &credential_file(credential));
    let _ = std::fs::remove_file(tpm.path("secret.bin"));
    let arguments = ["-c", "ak.ctx", "-C", endorsement, "-i", "credential.bin", "-o", "secret.bin"];
    let activated = if endorsement == EK_P384 {
        tpm.try_tool("tpm2_activatecredential", &arguments)
    } else {
        tpm.with_endorsement_session(|| {
            let arguments = [&arguments, ["-P", "session:session.ctx"].as_slice()].concat();
            tpm.try_tool("tpm2_activatecredential", &arguments)
        })
    };
    activated.then(|| tpm.file("secret.bin"))
}

#[test]
fn a_host_with_a_real_tpm_is_admitted_locks_itself_and_is_not_admitted_again_before_it_reboots() {
    let mut tpm = Swtpm::manufacture("sha256");
    boot(&tpm);
    let policy = in_force(&policy(&tpm));
    let host = Host::new(&tpm, ECDSA);

    let keys = host.keys(&policy).unwrap();
    assert!(keys.certified);
    // As docs/attestation.md describes for operators.
    tpm.tool("tpm2_readpublic", &["-c", EK_RSA, "-f", "der", "-o", "ek.spki"]);
    assert_eq!(join_attestation::Hash::Sha256.digest(&[&tpm.file("ek.spki")]), keys.ek_hash);
    let secret = [0x5e; 32];
    let credential = keys.credential(&secret, &Seed::new([1; 32])).unwrap();
    assert_eq!(activate(&tpm, EK_RSA, &credential).as_deref(), Some(secret.as_slice()));

    let first = host.judge(&policy, &quote(&tpm, b"first"), b"first", Phase::Joining).unwrap();
    assert!(first.clock.safe && first.pcrs.len() == INDICES.len() && first.firmware_version != 0);

    tpm.write("cluster.bin", CLUSTER);
    tpm.tool("tpm2_pcrevent", &["15", "cluster.bin"]);
    let locked = quote(&tpm, b"second");
    host.judge(&policy, &locked, b"second", Phase::Locked { cluster_id: CLUSTER }).unwrap();
    let again = host.judge(&policy, &locked, b"second", Phase::Joining).unwrap_err();
    assert_eq!((again.code, again.differences[0].index), (RefusalCode::LockMismatch, 15));
    let other = host.judge(&policy, &locked, b"second", Phase::Locked { cluster_id: b"another" }).unwrap_err();
    assert_eq!(other.code, RefusalCode::LockMismatch);

    tpm.reboot();
    boot(&tpm);
    load_attestation_key(&tpm);
    let rebooted = host.judge(&policy, &quote(&tpm, b"third"), b"third", Phase::Joining).unwrap();
    assert_eq!(rebooted.clock.reset_count, first.clock.reset_count + 1);
    assert_eq!(rebooted.check_after(first.clock), Ok(()));
    assert_eq!(first.check_after(rebooted.clock).unwrap_err().code, RefusalCode::CountersBackwards);
    record(&tpm, &host, &policy, &quote(&tpm, b"recorded"));
}

#[test]
fn a_cleared_tpm_keeps_its_endorsement_key_and_its_counters_go_back() {
    let mut tpm = Swtpm::manufacture("sha256");
    tpm.reboot();
    tpm.reboot();
    boot(&tpm);
    let policy = in_force(&policy(&tpm));
    let host = Host::new(&tpm, ECDSA);
    let before = host.judge(&policy, &quote(&tpm, b"x"), b"x", Phase::Joining).unwrap();
    tpm.tool("tpm2_clear", &["-c", "p"]);
    // The key is evicted; made again from the seed that stays, it is the same.
    tpm.tool("tpm2_createek", &["-G", "rsa", "-c", EK_RSA, "-u", "ek.pub"]);
    let cleared = Host::new(&tpm, ECDSA);
    let after = cleared.judge(&policy, &quote(&tpm, b"x"), b"x", Phase::Joining).unwrap();
    assert_eq!(before.keys.ek_hash, after.keys.ek_hash);
    assert_ne!(before.keys.attestation, after.keys.attestation);
    assert_eq!(after.check_after(before.clock).unwrap_err().code, RefusalCode::CountersBackwards);
}

#[test]
fn a_tpm_opens_credentials_for_each_kind_of_endorsement_key_and_only_for_its_own_attestation_key() {
    let tpm = Swtpm::manufacture("sha256");
    boot(&tpm);
    let policy = in_force(&policy(&tpm));
    let mut host = Host::new(&tpm, ECDSA);
    tpm.tool("tpm2_createek", &["-G", "ecc", "-c", "ek_p256.ctx", "-u", "ek_p256.pub"]);
    tpm.tool("tpm2_readpublic", &["-c", EK_P384, "-f", "tss", "-o", "ek_p384.pub"]);
    let certified = host.keys(&policy).unwrap();
    let keys_of = |name: &str| Keys {
        endorsement: join_attestation::Public::parse(&tpm.file(name)).unwrap(),
        ..certified.clone()
    };
    for (handle, keys) in
        [(EK_RSA, certified.clone()), ("ek_p256.ctx", keys_of("ek_p256.pub")), (EK_P384, keys_of("ek_p384.pub"))]
    {
        join_attestation::check_endorsement_key(&keys.endorsement).unwrap();
        for (secret, seed) in [(vec![7; 32], [9; 32]), (vec![1], [0; 32]), (vec![0; 32], [0xff; 32])] {
            let credential = keys.credential(&secret, &Seed::new(seed)).unwrap();
            assert_eq!(credential, keys.credential(&secret, &Seed::new(seed)).unwrap(), "the seed decides");
            assert_eq!(activate(&tpm, handle, &credential), Some(secret), "{handle}");
        }
    }

    // The attestation key is another one than that of the hello: the TPM refuses.
    let named = certified.credential(&[7; 32], &Seed::new([3; 32])).unwrap();
    host.attestation = tpm.make_attestation_key(EK_RSA, ECDSA);
    assert_eq!(activate(&tpm, EK_RSA, &named), None);
    // And with the name of the one that is there it opens.
    let named = host.keys(&policy).unwrap().credential(&[7; 32], &Seed::new([3; 32])).unwrap();
    assert_eq!(activate(&tpm, EK_RSA, &named), Some(vec![7; 32]));
}

#[test]
fn an_attestation_key_of_another_tpm_is_of_no_use() {
    let (owner, stranger) = (Swtpm::manufacture("sha256"), Swtpm::manufacture("sha256"));
    boot(&owner);
    boot(&stranger);
    let policy = in_force(&policy(&owner));
    let (mut host, other) = (Host::new(&owner, ECDSA), Host::new(&stranger, ECDSA));
    let untrusted = other.keys(&policy).unwrap_err();
    assert_eq!(untrusted.code, RefusalCode::EkCertificateUntrusted);

    // The owner's endorsement key and the stranger's attestation key: no TPM can open the credential.
    host.attestation = other.attestation.clone();
    let credential = host.keys(&policy).unwrap().credential(&[7; 32], &Seed::new([3; 32])).unwrap();
    assert_eq!(activate(&owner, EK_RSA, &credential), None);
    assert_eq!(activate(&stranger, EK_RSA, &credential), None);
    // And an honest TPM says below which endorsement key its attestation key lies.
    let refused = host.judge(&policy, &quote(&stranger, b"x"), b"x", Phase::Joining).unwrap_err();
    assert_eq!(refused.code, RefusalCode::AkHierarchy);
}

#[test]
fn rsa_attestation_keys_and_keys_at_the_top_of_the_hierarchy_are_admitted_and_those_of_the_owner_are_not() {
    let tpm = Swtpm::manufacture("sha256");
    boot(&tpm);
    let policy = in_force(&policy(&tpm));
    let host = Host::new(&tpm, RSASSA);
    host.judge(&policy, &quote(&tpm, b"x"), b"x", Phase::Joining).unwrap();

    let attributes = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign";
    for (hierarchy, admitted) in [("e", true), ("o", false)] {
        let key = ["-C", hierarchy, "-G", "ecc256:ecdsa-sha256:null", "-a", attributes, "-c", "ak.ctx"];
        tpm.tool("tpm2_createprimary", &key);
        tpm.tool("tpm2_readpublic", &["-c", "ak.ctx", "-f", "tss", "-o", "ak.pub"]);
        let host = Host { attestation: tpm.file("ak.pub"), ..Host::new_keys(&host) };
        let judged = host.judge(&policy, &quote(&tpm, b"x"), b"x", Phase::Joining);
        match admitted {
            true => assert_eq!(judged.map(|_| ()), Ok(())),
            false => assert_eq!(judged.unwrap_err().code, RefusalCode::AkHierarchy),
        }
    }
}

impl Host {
    /// The same endorsement key, without an attestation key.
    fn new_keys(host: &Self) -> Self {
        Self {
            endorsement: host.endorsement.clone(),
            certificate: host.certificate.clone(),
            issuer: host.issuer.clone(),
            attestation: Vec::new(),
        }
    }
}

#[test]
fn quotes_of_a_sha1_bank_of_zero_pcrs_and_of_other_pcrs_are_refused() {
    let tpm = Swtpm::manufacture("sha1,sha256");
    let host = Host::new(&tpm, ECDSA);
    let unmeasured = quote(&tpm, b"x");
    boot(&tpm);
    let policy = in_force(&policy(&tpm));
    let refused = |quoted: &Quoted| host.judge(&policy, quoted, b"x", Phase::Joining).unwrap_err().code;
    assert_eq!(refused(&unmeasured), RefusalCode::PcrAllZero);

    let of = |selection: &str| {
        let (attest, signature) = tpm.quote("ak.ctx", selection, b"x");
        Quoted { attest, signature, values: tpm.pcrs("sha256", &INDICES) }
    };
    assert_eq!(refused(&of(&SELECTION.replace("sha256", "sha1"))), RefusalCode::QuoteSha1);
    assert_eq!(refused(&of("sha256:0,2,4,7,8,9,11,15")), RefusalCode::QuoteSelection);
    assert_eq!(refused(&of(&format!("{SELECTION},16"))), RefusalCode::QuoteSelection);
    assert_eq!(refused(&of(&format!("{SELECTION}+sha1:1"))), RefusalCode::QuoteBank);

    // Another kernel: two PCRs differ, and both are named.
    tpm.write("event.bin", b"something else");
    for index in ["4", "11"] {
        tpm.tool("tpm2_pcrevent", &[index, "event.bin"]);
    }
    let differs = host.judge(&policy, &quote(&tpm, b"x"), b"x", Phase::Joining).unwrap_err();
    assert_eq!(differs.code, RefusalCode::PcrMismatch);
    assert_eq!(differs.differences.iter().map(|difference| difference.index).collect::<Vec<_>>(), [4, 11]);
}

#[test]
fn a_tpm_that_was_switched_off_without_warning_does_not_vouch_for_its_clock() {
    let mut tpm = Swtpm::manufacture("sha256");
    let host = Host::new(&tpm, ECDSA);
    // Some seconds after its start it has stored its clock, and vouches for it again: a busy machine may be too slow for one try.
    let mut resets = 0;
    let cut = (0..10).find_map(|_| {
        tpm.power_cut();
        boot(&tpm);
        load_attestation_key(&tpm);
        let verified = host.judge(&in_force(&policy(&tpm)), &quote(&tpm, b"x"), b"x", Phase::Joining).unwrap();
        assert!(verified.clock.reset_count > resets, "the resets show the order where the clock does not");
        resets = verified.clock.reset_count;
        Some(verified.clock).filter(|clock| !clock.safe)
    });
    assert!(cut.is_some(), "a quote from soon after the start");
}

/// With `SPARKFLEET_WRITE_EVIDENCE=1`: keeps one host's evidence for the tests that need no TPM, the benchmark and the seeds of the fuzz targets.
fn record(tpm: &Swtpm, host: &Host, policy: &Policy, quoted: &Quoted) {
    if std::env::var_os("SPARKFLEET_WRITE_EVIDENCE").is_none() {
        return;
    }
    let credential = host.keys(policy).unwrap().credential(&[7; 32], &Seed::new([1; 32])).unwrap();
    assert_eq!(activate(tpm, EK_RSA, &credential), Some(vec![7; 32]));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    std::fs::create_dir_all(&folder).unwrap();
    let root = tpm.file("ca/swtpm-localca-rootca-cert.pem");
    for (name, bytes) in [
        ("endorsement.public", &host.endorsement),
        ("endorsement.der", &host.certificate),
        ("issuer.der", &host.issuer),
        ("root.pem", &root),
        ("attestation.public", &host.attestation),
        ("quote.attest", &quoted.attest),
        ("quote.signature", &quoted.signature),
        ("quote.values", &quoted.values),
        ("credential.id_object", &credential.id_object),
        ("credential.encrypted_secret", &credential.encrypted_secret),
    ] {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}
