//! Endorsement certificates, made by `openssl` with one thing wrong at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by it")]

use crate::forge;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der};
use configdb_schema::document::AttestationPolicy;
use forge::{Machine, in_force};
use join_attestation::{KeyEvidence, Keys, Policy, Refusal, RefusalCode, judge_keys};
use serde_json::json;
use tempfile::TempDir;

/// The critical alternative name of endorsement certificates: manufacturer, model and version of the TPM. In the section `tpm`, openssl takes a first number away.
const SAN: &str = "subjectAltName=critical,dirName:tpm\n";
const USAGE: &str = "extendedKeyUsage=2.23.133.8.1\n";
const LEAF: &str = "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,keyAgreement\n";
const AUTHORITY: &str = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n";
const DAYS: u64 = 24 * 3600;

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// A manufacturer with a root, an issuing authority, and the endorsement key of one machine.
struct Manufacturer {
    directory: TempDir,
    machine: Machine,
}

impl Manufacturer {
    fn new() -> Self {
        let manufacturer = Self { directory: tempfile::tempdir().unwrap(), machine: Machine::new() };
        let private = manufacturer.machine.endorsement_key.private_key();
        let der = AsDer::<EcPrivateKeyRfc5915Der<'_>>::as_der(&private).unwrap();
        std::fs::write(manufacturer.path("ek.key.der"), der.as_ref()).unwrap();
        manufacturer.openssl("ec -inform der -in ek.key.der -out ek.key");
        for name in ["root.key", "issuer.key", "other.key"] {
            manufacturer.openssl(&format!("ecparam -name prime256v1 -genkey -noout -out {name}"));
        }
        manufacturer.openssl("req -x509 -key root.key -subj /CN=root -days 3650 -out root.pem");
        manufacturer.issue("issuer", "issuer.key", "root", AUTHORITY);
        manufacturer
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        let output = command.args(arguments.split(' ')).current_dir(self.directory.path()).output().unwrap();
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Issues `name`.pem for a key, with these extensions, valid for 30 days.
    fn issue(&self, name: &str, key: &str, issuer: &str, extensions: &str) {
        let model = "[tpm]\n1.2.23.133.2.1=id:00001014\n2.2.23.133.2.2=swtpm\n3.2.23.133.2.3=id:20191023\n";
        std::fs::write(self.path("extensions"), format!("[leaf]\n{extensions}{model}")).unwrap();
        self.openssl(&format!("req -new -key {key} -subj /CN={name} -out {name}.csr"));
        let signed = format!("-CA {issuer}.pem -CAkey {issuer}.key -CAcreateserial -days 30");
        self.openssl(&format!(
            "x509 -req -in {name}.csr {signed} -extfile extensions -extensions leaf -out {name}.pem"
        ));
    }

    fn der(&self, name: &str) -> Vec<u8> {
        self.openssl(&format!("x509 -in {name}.pem -outform der -out {name}.der"));
        std::fs::read(self.path(&format!("{name}.der"))).unwrap()
    }

    fn policy(&self, require: &str, enrolled: bool) -> Policy {
        let root = std::fs::read_to_string(self.path("root.pem")).unwrap();
        let mut entry = self.machine.policy();
        entry["endorsement"]["require"] = json!(require);
        entry["endorsement"]["manufacturers"] = json!([root]);
        if !enrolled {
            let stranger = Machine::new().ek_hash();
            entry["endorsement"]["enrolled"] = json!([{"ek": stranger}]);
        }
        in_force(&entry)
    }

    fn judge(&self, policy: &Policy, certificate: Option<&[u8]>, now: Duration) -> Result<Keys, Refusal> {
        let (endorsement, attestation) = (self.machine.endorsement().bytes(), self.machine.attestation().bytes());
        let issuer = self.der("issuer");
        let evidence = KeyEvidence {
            endorsement: &endorsement,
            certificate,
            intermediates: &[&issuer],
            attestation: &attestation,
        };
        judge_keys(policy, &evidence, now)
    }

    /// The code with which a certificate is refused.
    #[track_caller]
    fn refused(&self, certificate: &[u8], now: Duration) -> RefusalCode {
        self.judge(&self.policy("certificate", false), Some(certificate), now).unwrap_err().code
    }
}

#[test]
fn a_certificate_of_the_manufacturer_or_an_enrolment_or_both_vouch_for_a_key() {
    let manufacturer = Manufacturer::new();
    manufacturer.issue("ek", "ek.key", "issuer", &format!("{LEAF}{USAGE}{SAN}"));
    let certificate = manufacturer.der("ek");
    let judge = |require, enrolled, certificate| {
        let keys = manufacturer.judge(&manufacturer.policy(require, enrolled), certificate, now());
        keys.map(|keys| (keys.certified, keys.enrolment.is_some())).map_err(|refusal| refusal.code)
    };
    let certificate = Some(certificate.as_slice());
    assert_eq!(judge("certificate", false, certificate), Ok((true, false)));
    assert_eq!(judge("certificate", true, None), Err(RefusalCode::EkCertificateMissing));
    assert_eq!(judge("enrolment", true, None), Ok((false, true)));
    assert_eq!(judge("enrolment", false, certificate), Err(RefusalCode::EkNotEnrolled));
    assert_eq!(judge("both", true, certificate), Ok((true, true)));
    assert_eq!(judge("both", false, certificate), Err(RefusalCode::EkNotEnrolled));
    assert_eq!(judge("both", true, None), Err(RefusalCode::EkCertificateMissing));
    assert_eq!(judge("either", false, certificate), Ok((true, false)));
    assert_eq!(judge("either", true, None), Ok((false, true)));
    assert_eq!(judge("either", false, None), Err(RefusalCode::EkCertificateMissing));
    assert_eq!(judge("either", true, Some(b"no certificate")), Ok((false, true)));
}

#[test]
fn a_certificate_that_is_expired_or_not_valid_yet() {
    let manufacturer = Manufacturer::new();
    manufacturer.issue("ek", "ek.key", "issuer", &format!("{LEAF}{USAGE}{SAN}"));
    let certificate = manufacturer.der("ek");
    let days = |days: u64| Duration::from_secs(days * DAYS);
    assert_eq!(manufacturer.refused(&certificate, now() + days(31)), RefusalCode::EkCertificateTime);
    assert_eq!(manufacturer.refused(&certificate, now() - days(1)), RefusalCode::EkCertificateTime);
    let policy = manufacturer.policy("certificate", false);
    assert!(manufacturer.judge(&policy, Some(&certificate), now() + days(29)).is_ok());
}

#[test]
fn a_certificate_for_another_use_of_another_key_or_of_another_authority() {
    let manufacturer = Manufacturer::new();
    let refused = |name: &str| manufacturer.refused(&manufacturer.der(name), now());
    manufacturer.issue("no_usage", "ek.key", "issuer", &format!("{LEAF}{SAN}"));
    assert_eq!(refused("no_usage"), RefusalCode::EkCertificateUsage);
    manufacturer.issue("tls", "ek.key", "issuer", &format!("{LEAF}extendedKeyUsage=serverAuth\n"));
    assert_eq!(refused("tls"), RefusalCode::EkCertificateUsage);
    manufacturer.issue("other_key", "other.key", "issuer", &format!("{LEAF}{USAGE}{SAN}"));
    assert_eq!(refused("other_key"), RefusalCode::EkCertificateKey);
    manufacturer.issue("authority", "ek.key", "issuer", &format!("{AUTHORITY}{USAGE}"));
    assert_eq!(refused("authority"), RefusalCode::EkCertificateUntrusted);
    manufacturer.issue("unknown", "ek.key", "issuer", &format!("{LEAF}{USAGE}{SAN}1.2.3.4=critical,ASN1:NULL\n"));
    assert_eq!(refused("unknown"), RefusalCode::EkCertificateMalformed);
    // The same names, other keys.
    let impostor = Manufacturer::new();
    impostor.openssl(&format!("ec -in {} -out ek.key", manufacturer.path("ek.key").display()));
    impostor.issue("ek", "ek.key", "issuer", &format!("{LEAF}{USAGE}{SAN}"));
    assert_eq!(manufacturer.refused(&impostor.der("ek"), now()), RefusalCode::EkCertificateUntrusted);
    // A key that issues its own certificate.
    let own = "req -x509 -key ek.key -subj /CN=ek -days 30 -addext extendedKeyUsage=2.23.133.8.1 -out own.pem";
    manufacturer.openssl(own);
    assert_eq!(refused("own"), RefusalCode::EkCertificateUntrusted);
}

#[test]
fn a_certificate_that_is_cut_off_lengthened_or_changed() {
    let manufacturer = Manufacturer::new();
    manufacturer.issue("ek", "ek.key", "issuer", &format!("{LEAF}{USAGE}{SAN}"));
    let certificate = manufacturer.der("ek");
    for end in (0..certificate.len()).step_by(7) {
        assert_eq!(manufacturer.refused(&certificate[..end], now()), RefusalCode::EkCertificateMalformed, "{end}");
    }
    let longer = [certificate.as_slice(), &[0]].concat();
    assert_eq!(manufacturer.refused(&longer, now()), RefusalCode::EkCertificateMalformed);
    let mut changed = certificate;
    let last = changed.len() - 1;
    changed[last] ^= 1;
    assert_eq!(manufacturer.refused(&changed, now()), RefusalCode::EkCertificateUntrusted);
}

#[test]
fn the_policy_takes_several_manufacturers_in_one_text() {
    let (one, two) = (Manufacturer::new(), Manufacturer::new());
    two.issue("ek", "ek.key", "issuer", &format!("{LEAF}{USAGE}{SAN}"));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let mut entry = two.machine.policy();
    entry["endorsement"]["require"] = json!("certificate");
    let both = format!("{}{}", read(&one.path("root.pem")), read(&two.path("root.pem")));
    entry["endorsement"]["manufacturers"] = json!([both]);
    let entry: AttestationPolicy = serde_json::from_value(entry).unwrap();
    assert!(two.judge(&Policy::new(&entry, 1), Some(&two.der("ek")), now()).unwrap().certified);
}
