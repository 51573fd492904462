//! Requests made by `openssl` become certificates that `openssl` verifies, and whatever a host must not ask for is refused.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use crate::openssl;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use join_tickets::certificate::{Authority, IssueError, Purpose, to_pem};
use join_tickets::kubeadm::discovery_pins;
use join_tickets::request::{Allowed, KubeletRequest, RequestError};
use openssl::Bench;
use proptest::prelude::*;

const SUBJECT: &str = "-subj /O=system:nodes/CN=system:node:press-shop-2";
const EC: &str = "ecparam -name prime256v1 -genkey -noout";
const DAY: Duration = Duration::from_secs(24 * 3600);

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

fn check(der: &[u8]) -> Result<KubeletRequest, RequestError> {
    let addresses: BTreeSet<IpAddr> = ["10.2.0.7", "fd00::7"].iter().map(|text| text.parse().unwrap()).collect();
    KubeletRequest::check(der, &Allowed { node_name: "press-shop-2", addresses: &addresses })
}

#[track_caller]
fn refused(der: &[u8]) -> String {
    check(der).unwrap_err().to_string()
}

#[test]
fn a_certificate_of_each_kind_of_authority_is_verified_by_openssl() {
    let request =
        Bench::new().request(&format!("{SUBJECT} -addext subjectAltName=IP:10.2.0.7,IP:fd00::7,DNS:press-shop-2"));
    let request = check(&request).unwrap();
    for key in [
        EC,
        "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256",
        "ecparam -name secp384r1 -genkey -noout",
        "genrsa -traditional",
        "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048",
        "genpkey -algorithm ED25519",
    ] {
        let bench = Bench::new();
        bench.authority(key);
        let authority = Authority::from_pem(&bench.read("ca.pem"), &bench.read("ca.key")).unwrap();
        let certificate = authority.issue(&request, Purpose::Serving, [0xff; 16], now(), 365 * DAY).unwrap();
        bench.write("node.pem", to_pem(&certificate));
        let verify = |purpose: &str| {
            bench.run("openssl", &format!("verify -x509_strict -CAfile ca.pem -purpose {purpose} node.pem"))
        };
        let verified = verify("sslserver");
        assert!(verified.status.success(), "{key}: {}", String::from_utf8_lossy(&verified.stderr));
        assert!(!verify("sslclient").status.success(), "serves, and is not a client");
        let both = authority.issue(&request, Purpose::ServingAndClient, [1; 16], now(), DAY).unwrap();
        bench.write("node.pem", to_pem(&both));
        assert!(verify("sslclient").status.success() && verify("sslserver").status.success());
    }
}

#[test]
fn a_certificate_says_what_was_allowed_and_nothing_else() {
    let bench = Bench::new();
    bench.authority(EC);
    let request = check(&bench.request(&format!("{SUBJECT} -addext subjectAltName=IP:10.2.0.7"))).unwrap();
    let authority = Authority::from_pem(&bench.read("ca.pem"), &bench.read("ca.key")).unwrap();
    let at = Duration::from_secs(1_800_000_000);
    let certificate = authority.issue(&request, Purpose::Serving, [0; 16], at, 365 * DAY).unwrap();
    bench.write("node.pem", to_pem(&certificate));
    let text = bench.succeed("openssl", "x509 -in node.pem -noout -text");
    for wanted in [
        "Version: 3 (0x2)",
        "40:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00",
        "Issuer: CN = kubernetes",
        "Not Before: Jan 15 06:00:00 2027 GMT",
        "Not After : Jan 15 08:00:00 2028 GMT",
        "CN = system:node:press-shop-2",
        "O = system:nodes",
        "X509v3 Key Usage: critical\n                Digital Signature\n",
        "X509v3 Basic Constraints: critical\n                CA:FALSE\n",
        "X509v3 Extended Key Usage: \n                TLS Web Server Authentication\n",
        "X509v3 Subject Alternative Name: \n                IP Address:10.2.0.7\n",
        "X509v3 Authority Key Identifier:",
    ] {
        assert!(text.contains(wanted), "{wanted:?} is not in\n{text}");
    }
    // The key of the request is the key of the certificate.
    let key = bench.succeed("openssl", "x509 -in node.pem -noout -pubkey");
    assert_eq!(key, bench.succeed("openssl", "pkey -in node.key -pubout"));
}

#[test]
fn a_certificate_ends_with_its_authority_and_not_later_than_allowed() {
    let bench = Bench::new();
    bench.succeed("openssl", &format!("{EC} -out ca.key"));
    bench.succeed("openssl", "req -x509 -key ca.key -subj /CN=kubernetes -days 2 -out ca.pem");
    let request = check(&bench.request(SUBJECT)).unwrap();
    let authority = Authority::from_pem(&bench.read("ca.pem"), &bench.read("ca.key")).unwrap();
    let issue = |now, lifetime| authority.issue(&request, Purpose::Serving, [7; 16], now, lifetime);
    bench.write("node.pem", to_pem(&issue(now(), 365 * DAY).unwrap()));
    let end = |file| bench.succeed("openssl", &format!("x509 -in {file} -noout -enddate"));
    assert_eq!(end("node.pem"), end("ca.pem"));
    assert_eq!(issue(now() + 3 * DAY, DAY), Err(IssueError::Time));
    assert_eq!(issue(now(), Duration::ZERO), Err(IssueError::Time));
}

#[test]
fn what_is_not_an_authority_issues_nothing() {
    let (one, other) = (Bench::new(), Bench::new());
    one.authority(EC);
    other.authority(EC);
    let error = |certificate: &[u8], key: &[u8]| Authority::from_pem(certificate, key).unwrap_err().to_string();
    let (certificate, key) = (one.read("ca.pem"), one.read("ca.key"));
    assert!(error(&certificate, &other.read("ca.key")).ends_with("do not belong together"));
    assert_eq!(error(&certificate, b""), "key of the cluster's authority: is not PEM with a private key");
    assert!(error(b"", &key).ends_with("is not PEM with a certificate"));
    one.succeed("openssl", "ecparam -name secp521r1 -genkey -noout -out p521.key");
    assert!(error(&certificate, &one.read("p521.key")).contains("is not an RSA"));
    let leaf = "req -x509 -key ca.key -subj /CN=x -days 3 -addext basicConstraints=critical,CA:FALSE -out leaf.pem";
    one.succeed("openssl", leaf);
    assert!(error(&one.read("leaf.pem"), &key).ends_with("is not that of an authority"));
    assert!(!format!("{:?}", Authority::from_pem(&certificate, &key).unwrap()).contains("PRIVATE"));
}

#[test]
fn a_host_asks_only_for_its_own_name() {
    let bench = Bench::new();
    let subject = |subject: &str| refused(&bench.request(&format!("-subj {subject}")));
    let name = "certificate request: subject: the common name must be system:node:press-shop-2";
    assert_eq!(subject("/O=system:nodes/CN=system:node:press-shop-3"), name);
    assert_eq!(subject("/O=system:nodes/CN=press-shop-2"), name);
    let masters = "certificate request: subject: the organisation must be system:nodes";
    assert_eq!(subject("/O=system:masters/CN=system:node:press-shop-2"), masters);
    assert_eq!(subject("/O=system:nodes/O=system:masters/CN=system:node:press-shop-2"), masters);
    let twice = "certificate request: subject: must have exactly one organisation";
    assert_eq!(subject("/O=system:nodes/O=system:nodes/CN=system:node:press-shop-2"), twice);
    assert_eq!(subject("/CN=system:node:press-shop-2"), twice);
    assert_eq!(subject("/O=system:nodes"), "certificate request: subject: must have exactly one common name");
    assert!(subject("/O=system:nodes/OU=x/CN=system:node:press-shop-2").contains("attribute 2.5.4.11 is not allowed"));
}

#[test]
fn a_host_asks_only_for_its_own_addresses_and_no_other_rights() {
    let bench = Bench::new();
    let extended = |extension: &str| refused(&bench.request(&format!("{SUBJECT} -addext {extension}")));
    assert_eq!(
        extended("subjectAltName=IP:10.2.0.8"),
        "certificate request: alternative name 10.2.0.8 is not this host's"
    );
    assert!(extended("subjectAltName=IP:10.2.0.7,DNS:kubernetes").contains("alternative name kubernetes is not"));
    assert!(extended("subjectAltName=URI:spiffe://x/y").contains("neither a name nor an address"));
    assert!(extended("subjectAltName=email:a@b.example").contains("neither a name nor an address"));
    assert!(extended("basicConstraints=CA:TRUE").contains("extension 2.5.29.19 is not allowed"));
    assert!(extended("keyUsage=keyCertSign").contains("extension 2.5.29.15 is not allowed"));
    assert!(extended("1.2.3.4=critical,ASN1:NULL").contains("extension 1.2.3.4 is not allowed"));
    let many: Vec<String> = (0..17).map(|_| "IP:10.2.0.7".to_owned()).collect();
    assert!(extended(&format!("subjectAltName={}", many.join(","))).contains("more than 16 alternative names"));
    bench.write("attributes.conf", "[req]\ndistinguished_name=dn\nattributes=a\nprompt=no\n[dn]\nO=system:nodes\nCN=system:node:press-shop-2\n[a]\nchallengePassword=secret\n");
    assert!(
        refused(&bench.request("-config attributes.conf")).contains("attribute 1.2.840.113549.1.9.7 is not allowed")
    );
}

#[test]
fn keys_of_other_kinds_and_signatures_of_other_keys_are_refused() {
    let bench = Bench::new();
    assert!(check(&bench.request_of("ecparam -name secp384r1 -genkey -noout", &format!("{SUBJECT} -sha384"))).is_ok());
    for (key, digest) in [
        ("genrsa 1024", ""),
        ("genrsa 2048", ""),
        ("ecparam -name secp521r1 -genkey -noout", ""),
        ("ecparam -name secp256k1 -genkey -noout", ""),
        ("genpkey -algorithm ED25519", ""),
        (EC, " -sha1"),
        (EC, " -sha384"),
    ] {
        // The bits come last in genrsa.
        let key = if let Some(bits) = key.strip_prefix("genrsa ") {
            format!("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:{bits}")
        } else {
            key.to_owned()
        };
        let request = bench.request_of(&key, &format!("{SUBJECT}{digest}"));
        assert_eq!(check(&request).unwrap_err(), RequestError::Key, "{key}{digest}");
    }
    let (one, two) = (bench.request(SUBJECT), bench.request(SUBJECT));
    assert!(check(&one).is_ok());
    // The first request's content with the second's key.
    let point = |request: &[u8]| request.windows(4).position(|bytes| bytes == [3, 66, 0, 4]).unwrap() + 4;
    let mut mixed = one.clone();
    mixed[point(&one)..point(&one) + 64].copy_from_slice(&two[point(&two)..point(&two) + 64]);
    assert!(matches!(check(&mixed).unwrap_err(), RequestError::Signature));
    assert_eq!(refused(&vec![0x30; 4097]), "certificate request: has 4097 bytes, and 4096 are allowed");
}

#[test]
fn requests_that_are_cut_off_or_lengthened_are_malformed() {
    let request = Bench::new().request(&format!("{SUBJECT} -addext subjectAltName=IP:10.2.0.7"));
    for end in 0..request.len() {
        assert!(matches!(check(&request[..end]).unwrap_err(), RequestError::Malformed(_)), "{end}");
    }
    assert!(matches!(check(&[request.as_slice(), &[0]].concat()).unwrap_err(), RequestError::Malformed(_)));
}

#[test]
fn the_pin_of_an_authority_is_the_hash_of_its_public_key() {
    let bench = Bench::new();
    bench.authority(EC);
    bench.succeed("openssl", "pkey -in ca.key -pubout -outform der -out ca.pub");
    let pin = bench.succeed("openssl", "dgst -sha256 -r ca.pub");
    let wanted = format!("sha256:{}", pin.split(' ').next().unwrap());
    assert_eq!(discovery_pins(&bench.read("ca.pem")), Ok(vec![wanted.clone()]));
    let twice = [bench.read("ca.pem"), bench.read("ca.pem")].concat();
    assert_eq!(discovery_pins(&twice), Ok(vec![wanted.clone(), wanted]));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(check(&bytes).is_err());
        let _ = discovery_pins(&bytes);
        let _ = Authority::from_pem(&bytes, &bytes);
    }
}
