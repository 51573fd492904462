//! The authority on a real disk: made once, kept, replaceable by the site's own; its list is what OpenSSL reads.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use cluster_manager::adapters::authority::Authority;
use cluster_manager::config::IdentityConfig;
use configdb_schema::Organisation;

const NOW: u64 = 1_800_000_000_000;

fn load(directory: &Path, config: &IdentityConfig) -> Result<Authority, String> {
    Authority::load(directory, &Organisation::new("ACME").unwrap(), config, NOW).map_err(|error| error.to_string())
}

#[test]
fn keys_are_made_once_and_only_their_owner_reads_them() {
    let directory = tempfile::tempdir().unwrap();
    let first = load(directory.path(), &IdentityConfig::default()).unwrap().identity().terms;
    let again = load(directory.path(), &IdentityConfig::default()).unwrap().identity().terms;
    assert_eq!(first, again);
    assert_eq!(first.authority_ends_ms, NOW + 3650 * 24 * 3600 * 1000);
    for file in ["enrolment.key", "authority.key"] {
        let mode = fs::metadata(directory.path().join("identity").join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    // Killed after the key and before the certificate: the same key gets one.
    fs::remove_file(directory.path().join("identity/authority.pem")).unwrap();
    assert_eq!(load(directory.path(), &IdentityConfig::default()).unwrap().identity().terms.key, first.key);
}

#[test]
fn an_authority_of_the_site_is_taken_if_certificate_and_key_belong_together() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    load(own.path(), &IdentityConfig::default()).unwrap();
    load(other.path(), &IdentityConfig::default()).unwrap();
    let file = |directory: &Path, name: &str| Some(directory.join("identity").join(name));
    let config = |key: &Path| IdentityConfig {
        authority_cert_file: file(own.path(), "authority.pem"),
        authority_key_file: file(key, "authority.key"),
        ..IdentityConfig::default()
    };
    let third = tempfile::tempdir().unwrap();
    let terms = load(third.path(), &config(own.path())).unwrap().identity().terms;
    assert_eq!(terms.authority, fs::read_to_string(own.path().join("identity/authority.pem")).unwrap());
    assert!(!third.path().join("identity/authority.key").exists(), "it makes none of its own");
    let error = load(third.path(), &config(other.path())).unwrap_err();
    assert!(error.ends_with("must be the certificate of the configured key"), "{error}");
}

#[test]
fn the_list_of_void_certificates_grows_and_forgets_what_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let authority = load(directory.path(), &IdentityConfig::default()).unwrap();
    let void = |serial: &str, ends: &str| [(serial.to_owned(), ends.to_owned())].into();
    authority.revoke(void("4a01", "2027-06-01T00:00:00Z"), NOW).unwrap();
    authority.revoke(void("4a02", "2027-01-20T00:00:00Z"), NOW).unwrap();
    let listed = || {
        let list = directory.path().join("identity/revoked.pem");
        let shown = Command::new("openssl").args(["crl", "-noout", "-text", "-in"]).arg(list).output().unwrap();
        let text = String::from_utf8(shown.stdout).unwrap();
        ["4A01", "4A02"].map(|serial| text.contains(&format!("Serial Number: {serial}")))
    };
    assert_eq!(listed(), [true, true]);
    authority.revoke([].into(), NOW + 30 * 24 * 3600 * 1000).unwrap();
    assert_eq!(listed(), [true, false]);
}
