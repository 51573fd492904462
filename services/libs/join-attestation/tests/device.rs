//! Initial attestation keys of makers of machines: made and certified by `openssl` and in software with one thing wrong at a time, and by a real TPM (swtpm).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by it")]

use crate::forge;
use crate::swtpm;

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::EcdsaKeyPair;
use forge::{Area, Machine, in_force, key, sized};
use join_attestation::{Hash, KeyEvidence, Keys, Public, Refusal, RefusalCode, judge_keys};
use serde_json::{Value, json};
use swtpm::{EK_RSA, Swtpm};
use tempfile::TempDir;

const LEAF: &str = "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n";
const AUTHORITY: &str = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n";
/// tcg-cap-verifiedTPMResidency, -Fixed, -Restricted.
const POLICIES: &str = "certificatePolicies=2.23.133.11.1.1,2.23.133.11.1.2,2.23.133.11.1.3\n";
const ENDORSEMENT_HIERARCHY: [u8; 4] = [0x40, 0, 0, 0x0b];
const GENERATED: u32 = 0xff54_4347;
const CERTIFY: u16 = 0x8017;
const QUOTE: u16 = 0x8018;

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

fn spki(public: &[u8]) -> Vec<u8> {
    Public::parse(public).unwrap().key.subject_public_key_info().unwrap()
}

fn hash(public: &[u8]) -> String {
    hex::encode(Hash::Sha256.digest(&[&spki(public)]))
}

/// A maker of machines: root, issuing authority, and files of `openssl`.
struct Maker {
    directory: TempDir,
}

impl Maker {
    fn new() -> Self {
        let maker = Self { directory: tempfile::tempdir().unwrap() };
        for name in ["root.key", "issuer.key"] {
            maker.openssl(&format!("ecparam -name prime256v1 -genkey -noout -out {name}"));
        }
        maker.openssl("req -x509 -key root.key -subj /CN=maker -days 3650 -out root.pem");
        maker.openssl("req -new -key issuer.key -subj /CN=issuer -out issuer.csr");
        maker.sign("issuer", "root", AUTHORITY, 3000);
        maker
    }

    fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.directory.path().join(name), content).unwrap();
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        let output = command.args(arguments.split(' ')).current_dir(self.directory.path()).output().unwrap();
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn sign(&self, name: &str, issuer: &str, extensions: &str, days: u32) {
        self.write("extensions", format!("[leaf]\n{extensions}").as_bytes());
        let signed = format!("-CA {issuer}.pem -CAkey {issuer}.key -CAcreateserial -days {days}");
        self.openssl(&format!(
            "x509 -req -in {name}.csr {signed} -extfile extensions -extensions leaf -out {name}.pem"
        ));
    }

    fn der(&self, name: &str) -> Vec<u8> {
        self.openssl(&format!("x509 -in {name}.pem -outform der -out {name}.der"));
        std::fs::read(self.directory.path().join(format!("{name}.der"))).unwrap()
    }

    /// A certificate of this key (DER of its `SubjectPublicKeyInfo`), as makers issue them.
    fn certify(&self, public: &[u8], extensions: &str) -> Vec<u8> {
        self.write("iak.spki", public);
        self.openssl("pkey -pubin -inform der -in iak.spki -out iak.pub");
        self.write("extensions", format!("[leaf]\n{extensions}").as_bytes());
        self.openssl("ecparam -name prime256v1 -genkey -noout -out any.key");
        self.openssl("req -new -key any.key -subj /CN=press-shop-2 -out iak.csr");
        let signed = "-CA issuer.pem -CAkey issuer.key -CAcreateserial -days 30 -force_pubkey iak.pub";
        self.openssl(&format!("x509 -req -in iak.csr {signed} -extfile extensions -extensions leaf -out iak.pem"));
        self.der("iak")
    }

    fn root(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("root.pem")).unwrap()
    }
}

/// A machine with an IAK, and what the IAK says; each field can be changed before it is signed.
struct Device {
    machine: Machine,
    key: EcdsaKeyPair,
    iak: Area,
    magic: u32,
    kind: u16,
    signer: Option<Vec<u8>>,
    name: Vec<u8>,
}

impl Device {
    fn new() -> Self {
        let (machine, key) = (Machine::new(), key());
        let iak = Area::attestation(&key);
        let name = Public::parse(&machine.attestation().bytes()).unwrap().name();
        Self { machine, key, iak, magic: GENERATED, kind: CERTIFY, signer: None, name }
    }

    fn spki(&self) -> Vec<u8> {
        spki(&self.iak.bytes())
    }

    /// What the host sends as its attestation key.
    fn attestation(&self) -> Vec<u8> {
        let own = Public::parse(&self.iak.bytes()).unwrap().qualified_name(&ENDORSEMENT_HIERARCHY);
        let mut attest = [self.magic.to_be_bytes().as_slice(), &self.kind.to_be_bytes()].concat();
        attest.extend(sized(self.signer.as_ref().unwrap_or(&own)));
        attest.extend(sized(&[]));
        // Clock, resets, restarts, safe, firmware.
        attest.extend([0; 16]);
        attest.push(1);
        attest.extend([0; 8]);
        attest.extend(sized(&self.name));
        attest.extend(sized(&[7; 34]));
        let signature = self.key.sign(&SystemRandom::new(), &attest).unwrap();
        let (r, s) = signature.as_ref().split_at(32);
        let signature = [&[0, 0x18, 0, 0x0b], sized(r).as_slice(), &sized(s)].concat();
        [self.machine.attestation().bytes(), self.iak.bytes(), sized(&attest), signature].concat()
    }

    /// A policy that enrols the machine and trusts this maker.
    fn policy(&self, maker: &Maker) -> Value {
        let mut policy = self.machine.policy();
        policy["endorsement"]["require"] = json!("both");
        policy["endorsement"]["deviceManufacturers"] = json!([maker.root()]);
        policy
    }

    fn judge(&self, policy: &Value, certificates: &[&[u8]], now: Duration) -> Result<Keys, Refusal> {
        judge(policy, &self.machine.endorsement().bytes(), &self.attestation(), certificates, now)
    }
}

fn judge(
    policy: &Value,
    endorsement: &[u8],
    attestation: &[u8],
    certificates: &[&[u8]],
    now: Duration,
) -> Result<Keys, Refusal> {
    let policy = in_force(policy);
    assert_eq!(policy.error(), None);
    let (certificate, intermediates) = (certificates.first().copied(), certificates.get(1..).unwrap_or_default());
    judge_keys(&policy, &KeyEvidence { endorsement, certificate, intermediates, attestation }, now)
}

fn code(judged: Result<Keys, Refusal>) -> RefusalCode {
    judged.unwrap_err().code
}

#[test]
fn the_maker_of_a_machine_vouches_for_an_enrolled_host_beside_its_endorsement_key() {
    let (maker, device) = (Maker::new(), Device::new());
    let certificate = maker.certify(&device.spki(), &format!("{LEAF}{POLICIES}"));
    let issuer = maker.der("issuer");
    let all: &[&[u8]] = &[&certificate, &issuer];
    let policy = device.policy(&maker);
    let keys = device.judge(&policy, all, now()).unwrap();
    assert!(keys.certified && keys.enrolment.is_some());
    assert_eq!(hex::encode(keys.ek_hash), device.machine.ek_hash(), "a host is known by its endorsement key");
    // In whatever order, and with another certificate before it.
    device.judge(&policy, &[&issuer, &certificate], now()).unwrap();
    // The usage of an attestation key says the same as the policy of the certificate.
    let usage = maker.certify(&device.spki(), &format!("{LEAF}extendedKeyUsage=2.23.133.8.3\n"));
    device.judge(&policy, &[&usage, &issuer], now()).unwrap();

    // The maker cannot say whose endorsement key it is beside, so it admits none that is not enrolled.
    let mut stranger = policy.clone();
    stranger["endorsement"]["enrolled"] = json!([{"ek": Machine::new().ek_hash()}]);
    assert_eq!(code(device.judge(&stranger, all, now())), RefusalCode::EkNotEnrolled);
    stranger["endorsement"]["require"] = json!("either");
    device.judge(&stranger, all, now()).unwrap_err();
    // What it says is not asked for where the policy names no makers.
    let mut plain = device.machine.policy();
    assert!(!device.judge(&plain, all, now()).unwrap().certified);
    plain["endorsement"]["revoked"] = json!([device.machine.ek_hash()]);
    assert_eq!(code(device.judge(&plain, all, now())), RefusalCode::EkRevoked);
}

#[test]
fn a_host_without_a_statement_or_a_certificate_of_its_iak_is_refused() {
    let (maker, device) = (Maker::new(), Device::new());
    let issuer = maker.der("issuer");
    let policy = device.policy(&maker);
    assert_eq!(code(device.judge(&policy, &[], now())), RefusalCode::IakCertificate);
    assert_eq!(code(device.judge(&policy, &[&issuer], now())), RefusalCode::IakCertificate);
    let silent =
        judge(&policy, &device.machine.endorsement().bytes(), &device.machine.attestation().bytes(), &[], now());
    assert_eq!(code(silent), RefusalCode::EkCertificateMissing);
}

#[test]
fn a_certificate_of_another_device_of_another_maker_for_another_use_or_at_another_time() {
    let (maker, device) = (Maker::new(), Device::new());
    let policy = device.policy(&maker);
    let good = maker.certify(&device.spki(), &format!("{LEAF}{POLICIES}"));
    let issuer = maker.der("issuer");
    let refused = |certificate: &[u8], now| {
        let refusal = device.judge(&policy, &[certificate, &issuer], now).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::IakCertificate, "{refusal}");
        refusal.text
    };
    let days = |days: u64| Duration::from_secs(days * 24 * 3600);
    assert!(refused(&good, now() + days(31)).contains("expired"));
    assert!(refused(&good, now() - days(1)).contains("not valid yet"));
    let other = maker.certify(&Device::new().spki(), &format!("{LEAF}{POLICIES}"));
    assert!(refused(&other, now()).contains("none of this key"));
    let impostor = Maker::new();
    let forged = impostor.certify(&device.spki(), &format!("{LEAF}{POLICIES}"));
    assert!(refused(&forged, now()).contains("leads to no manufacturer"));
    assert_eq!(
        code(device.judge(&policy, &[&forged, &impostor.der("issuer")], now())),
        RefusalCode::IakCertificate,
        "whatever chain the host brings"
    );
    // An IDevID signs whatever it is given, such as a quote that no TPM made. Its certificate is of the same maker.
    for usage in ["", "certificatePolicies=2.23.133.11.1.1,2.23.133.11.1.2\n", "extendedKeyUsage=clientAuth\n"] {
        let identity = maker.certify(&device.spki(), &format!("{LEAF}{usage}"));
        assert!(refused(&identity, now()).contains("has neither the certificate policy"), "{usage}");
    }
    let server = maker.certify(&device.spki(), &format!("{LEAF}{POLICIES}extendedKeyUsage=serverAuth\n"));
    refused(&server, now());
    let authority = maker.certify(&device.spki(), &format!("{AUTHORITY}{POLICIES}"));
    refused(&authority, now());
    let mut changed = good.clone();
    *changed.last_mut().unwrap() ^= 1;
    refused(&changed, now());
    for end in (0..good.len()).step_by(41) {
        refused(&good[..end], now());
    }
}

#[test]
fn a_key_that_is_not_restricted_not_of_its_tpm_or_says_something_else() {
    let maker = Maker::new();
    let issuer = maker.der("issuer");
    let changed = |change: &dyn Fn(&mut Device)| {
        let mut device = Device::new();
        change(&mut device);
        let certificate = maker.certify(&device.spki(), &format!("{LEAF}{POLICIES}"));
        code(device.judge(&device.policy(&maker), &[&certificate, &issuer], now()))
    };
    // Without restricted, fixedTPM, fixedParent, sensitiveDataOrigin, sign; and with decrypt.
    for attribute in [1 << 16, 1 << 1, 1 << 4, 1 << 5, 1 << 18] {
        let without = |device: &mut Device| device.iak.attributes &= !attribute;
        assert_eq!(changed(&without), RefusalCode::IakUnsuitable, "{attribute:#x}");
    }
    assert_eq!(changed(&|device| device.iak.attributes |= 1 << 17), RefusalCode::IakUnsuitable);
    // Forged: made by no TPM, of another kind, about another key, by another key, of another hierarchy.
    assert_eq!(changed(&|device| device.magic ^= 1), RefusalCode::IakStatement);
    assert_eq!(changed(&|device| device.kind = QUOTE), RefusalCode::IakStatement);
    // A statement of another host, replayed: its attestation key is another.
    assert_eq!(changed(&|device| device.name = Device::new().name), RefusalCode::IakStatement);
    assert_eq!(changed(&|device| device.key = key()), RefusalCode::IakStatement);
    assert_eq!(changed(&|device| device.signer = Some(vec![0; 34])), RefusalCode::IakStatement);

    let device = Device::new();
    let whole = device.attestation();
    let start = device.machine.attestation().bytes().len();
    for end in (0..whole.len()).filter(|end| *end != start) {
        let judged = judge(&device.policy(&maker), &device.machine.endorsement().bytes(), &whole[..end], &[], now());
        assert_eq!(code(judged), RefusalCode::EvidenceMalformed, "{end}");
    }
    let longer = [whole.as_slice(), &[0]].concat();
    let judged = judge(&device.policy(&maker), &device.machine.endorsement().bytes(), &longer, &[], now());
    assert_eq!(code(judged), RefusalCode::EvidenceMalformed);
}

#[test]
fn a_host_that_is_enrolled_with_its_iak_needs_no_certificate_and_no_other_iak_will_do() {
    let device = Device::new();
    let mut policy = device.machine.policy();
    policy["endorsement"]["enrolled"][0]["iak"] = json!(hash(&device.iak.bytes()));
    device.judge(&policy, &[], now()).unwrap();
    let (endorsement, plain) = (device.machine.endorsement().bytes(), device.machine.attestation().bytes());
    assert_eq!(code(judge(&policy, &endorsement, &plain, &[], now())), RefusalCode::IakUnsuitable, "it is left out");
    policy["endorsement"]["enrolled"][0]["iak"] = json!(hash(&Device::new().iak.bytes()));
    assert_eq!(code(device.judge(&policy, &[], now())), RefusalCode::IakOther);
    policy["endorsement"]["enrolled"] = json!([{"ek": device.machine.ek_hash(), "iak": hash(&device.iak.bytes())}, {"ek": Machine::new().ek_hash(), "iak": hash(&device.iak.bytes())}]);
    assert_eq!(in_force(&policy).error().unwrap().field, "endorsement.enrolled[1].iak");
}

#[test]
fn a_real_tpm_has_an_iak_whose_statement_is_believed_and_another_tpm_cannot_use_it() {
    let (maker, tpm, other) = (Maker::new(), Swtpm::manufacture("sha256"), Swtpm::manufacture("sha256"));
    let attributes = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign";
    let make = |tpm: &Swtpm| {
        let fixed = ["-C", "e", "-G", "ecc256:ecdsa-sha256:null", "-a", attributes, "-c", "iak.ctx"];
        tpm.tool("tpm2_createprimary", &fixed);
        tpm.tool("tpm2_readpublic", &["-c", "iak.ctx", "-f", "tss", "-o", "iak.pub"]);
        tpm.tool("tpm2_readpublic", &["-c", EK_RSA, "-f", "tss", "-o", "ek.pub"]);
        tpm.make_attestation_key(EK_RSA, &["-G", "ecc", "-g", "sha256", "-s", "ecdsa"]);
        let out = ["-g", "sha256", "-o", "said.attest", "-s", "said.signature", "-f", "tss"];
        tpm.tool("tpm2_certify", &[&["-c", "ak.ctx", "-C", "iak.ctx"], out.as_slice()].concat());
        let parts = ["ak.pub", "iak.pub"].map(|file| tpm.file(file)).concat();
        [parts, sized(&tpm.file("said.attest")), tpm.file("said.signature")].concat()
    };
    let (attestation, elsewhere) = (make(&tpm), make(&other));
    let certificate = maker.certify(&spki(&tpm.file("iak.pub")), &format!("{LEAF}{POLICIES}"));
    let certificates: &[&[u8]] = &[&certificate, &maker.der("issuer")];
    let mut policy = Machine::new().policy();
    policy["endorsement"] = json!({"require": "both", "deviceManufacturers": [maker.root()],
        "enrolled": [{"ek": hash(&tpm.file("ek.pub"))}, {"ek": hash(&other.file("ek.pub"))}]});
    assert!(judge(&policy, &tpm.file("ek.pub"), &attestation, certificates, now()).unwrap().certified);
    // The other machine has an IAK as well, and the certificate of the first.
    let judged = judge(&policy, &other.file("ek.pub"), &elsewhere, certificates, now());
    assert_eq!(code(judged), RefusalCode::IakCertificate);
    // It sends the statement of the first behind its own attestation key.
    let spliced = [other.file("ak.pub"), attestation[tpm.file("ak.pub").len()..].to_vec()].concat();
    let judged = judge(&policy, &other.file("ek.pub"), &spliced, certificates, now());
    assert_eq!(code(judged), RefusalCode::IakStatement);
}
