//! Files of trust: their content, their modes, and what is never replaced.

use std::os::unix::fs::PermissionsExt as _;

use join_protocol::certificate::TrustAnchor;
use join_protocol::terms::HostClock;

use super::*;

const NOW_MS: u64 = 1_800_000_000_000;
const CLUSTER: Uuid = Uuid::from_u128(0xC1);

fn wanted(purpose: Purpose, present: Present) -> Wanted {
    Wanted { cluster: CLUSTER, purpose, days: 30, epoch: 2, present }
}

fn mode(file: &Path) -> u32 {
    std::fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[test]
fn an_issued_key_is_believed_by_who_pins_the_root_for_its_cluster_purpose_time_and_epoch() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let root = init(dir, false).unwrap();
    let anchor = TrustAnchor { root: root.public_key, cluster: CLUSTER, epoch_min: 2 };
    for purpose in [Purpose::JoinIssuer, Purpose::ClusterAdmin] {
        let issued = issue(dir, &dir.join("cluster"), &wanted(purpose, Present::Refuse), NOW_MS).unwrap();
        let chain = certificates(&issued.certificates_file).unwrap();
        let key = signing_key(&issued.key_file).unwrap().public_key();
        let check = |anchor: &TrustAnchor, at| anchor.check(&chain, purpose, HostClock::Trusted(at));
        assert_eq!(check(&anchor, NOW_MS), Ok(key));
        assert!(check(&anchor, issued.not_after_ms + 1).is_err());
        assert!(check(&TrustAnchor { cluster: Uuid::from_u128(0xC2), ..anchor.clone() }, NOW_MS).is_err());
        assert!(check(&TrustAnchor { epoch_min: 3, ..anchor.clone() }, NOW_MS).is_err());
        assert_eq!(std::fs::read_to_string(&issued.root_file).unwrap().trim(), hex::encode(root.public_key));
        assert_eq!(issued.master_file.is_some(), purpose == Purpose::JoinIssuer);
        assert_eq!((mode(&issued.key_file), mode(&issued.certificates_file)), (0o600, 0o644));
    }
    assert_eq!((mode(&root.key_file), mode(&dir.join("cluster/master.key"))), (0o600, 0o600));
}

#[test]
fn a_key_is_replaced_only_if_asked_renewed_as_it_is_and_the_master_secret_never_changes() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let first = init(dir, false).unwrap();
    let error = init(dir, false).unwrap_err();
    assert_eq!(exit::code_of(&error), exit::REFUSED);
    assert!(error.to_string().contains("--force"), "{error}");
    let issued = issue(dir, dir, &wanted(Purpose::JoinIssuer, Present::Refuse), NOW_MS).unwrap();
    let read = |file: &Path| std::fs::read_to_string(file).unwrap();
    let master = read(issued.master_file.as_ref().unwrap());
    let (key, certificate) = (read(&issued.key_file), read(&issued.certificates_file));
    assert!(issue(dir, dir, &wanted(Purpose::JoinIssuer, Present::Refuse), NOW_MS).is_err());
    assert_eq!((read(&issued.key_file), read(&issued.certificates_file)), (key.clone(), certificate.clone()));
    issue(dir, dir, &wanted(Purpose::JoinIssuer, Present::Renew), NOW_MS + 1).unwrap();
    assert_eq!(read(&issued.key_file), key);
    assert_ne!(read(&issued.certificates_file), certificate);
    issue(dir, dir, &wanted(Purpose::JoinIssuer, Present::Replace), NOW_MS).unwrap();
    assert_ne!(read(&issued.key_file), key);
    assert_ne!(init(dir, true).unwrap().public_key, first.public_key);
    assert_eq!(read(issued.master_file.as_ref().unwrap()), master);
}

#[test]
fn a_missing_root_and_a_file_that_holds_something_else_are_errors_without_what_they_hold() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let error = issue(dir, dir, &wanted(Purpose::JoinIssuer, Present::Refuse), NOW_MS).unwrap_err();
    assert_eq!(exit::code_of(&error), exit::CONFIG);
    assert!(error.to_string().contains("trust init"), "{error}");
    let file = dir.join("root.key");
    for content in ["", "abc", "zz", &"ab".repeat(33)] {
        std::fs::write(&file, content).unwrap();
        let error = format!("{:#}", secret(&file).unwrap_err());
        assert!(error.contains("64 hexadecimal digits"), "{error}");
        assert!(content.is_empty() || !error.contains(content), "{error}");
    }
    std::fs::write(&file, "no certificate\n").unwrap();
    assert!(certificates(&file).is_err());
}
