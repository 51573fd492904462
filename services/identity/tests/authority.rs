//! The authority on a real disk: made once, kept, replaceable by the site's own; its list is what OpenSSL reads.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use configdb_schema::Organisation;
use identity::Config;
use identity::adapters::authority::Authority;

const NOW: u64 = 1_800_000_000_000;

fn load(directory: &Path, config: &Config) -> Result<Authority, String> {
    let config = Config { state_dir: directory.into(), ..config.clone() };
    Authority::load(&config, &Organisation::new("ACME").unwrap(), NOW).map_err(|error| error.to_string())
}

#[test]
fn keys_are_made_once_and_only_their_owner_reads_them() {
    let directory = tempfile::tempdir().unwrap();
    let first = load(directory.path(), &Config::default()).unwrap().terms();
    let again = load(directory.path(), &Config::default()).unwrap().terms();
    assert_eq!(first, again);
    assert_eq!(first.authority_ends_ms, NOW + 3650 * 24 * 3600 * 1000);
    for file in ["enrolment.key", "authority.key"] {
        let mode = fs::metadata(directory.path().join("identity").join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    // Killed after the key and before the certificate: the same key gets one.
    fs::remove_file(directory.path().join("identity/authority.pem")).unwrap();
    assert_eq!(load(directory.path(), &Config::default()).unwrap().terms().key, first.key);
}

#[test]
fn an_authority_of_the_site_is_taken_if_certificate_and_key_belong_together() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    load(own.path(), &Config::default()).unwrap();
    load(other.path(), &Config::default()).unwrap();
    let file = |directory: &Path, name: &str| Some(directory.join("identity").join(name));
    let config = |key: &Path| Config {
        authority_cert_file: file(own.path(), "authority.pem"),
        authority_key_file: file(key, "authority.key"),
        ..Config::default()
    };
    let third = tempfile::tempdir().unwrap();
    let terms = load(third.path(), &config(own.path())).unwrap().terms();
    assert_eq!(terms.authority, fs::read_to_string(own.path().join("identity/authority.pem")).unwrap());
    assert!(!third.path().join("identity/authority.key").exists(), "it makes none of its own");
    let error = load(third.path(), &config(other.path())).unwrap_err();
    assert!(error.ends_with("must be the certificate of the configured key"), "{error}");
}

#[test]
fn the_list_of_revoked_certificates_grows_and_forgets_what_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let authority = load(directory.path(), &Config::default()).unwrap();
    let revoked = |serial: &str, ends: &str| [(serial.to_owned(), ends.to_owned())].into();
    authority.revoke(revoked("4a01", "2027-06-01T00:00:00Z"), NOW).unwrap();
    authority.revoke(revoked("4a02", "2027-01-20T00:00:00Z"), NOW).unwrap();
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

#[test]
fn the_watched_lists_are_the_own_one_and_the_configured_files() {
    let (own, site) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    load(site.path(), &Config::default()).unwrap().revoke([].into(), NOW - 9 * 24 * 3600 * 1000).unwrap();
    let list = site.path().join("identity/revoked.pem");
    let both = site.path().join("both.pem");
    fs::write(&both, [fs::read(&list).unwrap(), fs::read(&list).unwrap()].concat()).unwrap();
    let (authority, missing) = (site.path().join("identity/authority.pem"), site.path().join("missing.pem"));
    let crl_files = vec![both, missing, authority];
    let config = Config { crl_files, ..Config::default() };
    let authority = load(own.path(), &config).unwrap();
    assert_eq!(authority.lists().len(), 4, "there is no own one yet");
    authority.revoke([].into(), NOW).unwrap();
    let lists = authority.lists();
    let ends: Vec<_> = lists.iter().flatten().map(|list| list.ends.unwrap()).collect();
    let day = 24 * 3600 * 1000;
    assert_eq!(ends, [NOW + 30 * day, NOW + 21 * day, NOW + 21 * day]);
    assert_eq!(lists[0].as_ref().unwrap().begins, NOW - 3_600_000);
    let errors: Vec<_> = lists.iter().filter_map(|list| list.as_ref().err()).collect();
    assert!(errors[0].contains("missing.pem cannot be read"), "{errors:?}");
    assert!(errors[1].ends_with("holds something else than revocation lists in PEM"), "{errors:?}");
}
