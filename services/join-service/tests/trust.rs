//! The files that a replica begins with: what is missing or wrong is named, and never shown.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use crate::support;

use join_protocol::terms::Purpose;
use join_trust::keys::KeyProvider;
use join_trust::replica::{Files, Trust, cluster_keys};
use support::site::{CLUSTER, files, files_of};
use uuid::Uuid;
use zeroize::Zeroizing;

fn error(change: impl FnOnce(&mut Files)) -> String {
    let mut files = files(0);
    change(&mut files);
    Trust::read(&files, CLUSTER).unwrap_err().to_string()
}

fn set(file: &'static str, content: &'static str) -> impl FnOnce(&mut Files) {
    move |files| drop(files.insert(file.to_owned(), Zeroizing::new(content.as_bytes().to_vec())))
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    for file in ["issuer.key", "issuer.certificates", "root.pub", "master.key", "ca.crt"] {
        assert_eq!(error(|files| drop(files.remove(file))), format!("{file} is missing"));
    }
    assert_eq!(error(set("issuer.key", "secret")), "issuer.key must be hexadecimal digits and a newline");
    assert_eq!(error(set("issuer.key", "abcd")), "issuer.key must be 64 hexadecimal digits");
    assert_eq!(error(set("root.pub", "abcd")), "root.pub must be 64 hexadecimal digits");
    assert_eq!(error(set("issuer.certificates", "\n")), "issuer.certificates holds no certificate");
    assert!(
        error(set("issuer.certificates", "abcd\n")).starts_with("issuer.certificates issuer certificate is malformed")
    );
    assert!(error(set("master.key", "4b4b")).starts_with("master.key is too short"));
    assert!(error(set("master.salt", "00")).starts_with("master.key is too short: master salt has 1 bytes"));
    assert!(error(set("ca.crt", "x")).starts_with("ca.crt the cluster's authority is not PEM"));
    // A token without the authority's hash lets any machine pose as the server.
    assert_eq!(error(set("k3s-server-token", "abc")), "k3s-server-token must be a secure token, which begins with K10");
}

#[test]
fn a_certificate_of_another_key_cluster_or_purpose_is_refused_at_the_start() {
    let read = |files: &Files| Trust::read(files, CLUSTER).map(drop).map_err(|error| error.to_string());
    assert_eq!(read(&files(0)), Ok(()));
    let admin = read(&files_of(0, Purpose::ClusterAdmin, CLUSTER)).unwrap_err();
    assert!(admin.ends_with("is not for a join issuer"), "{admin}");
    let other = read(&files_of(0, Purpose::JoinIssuer, Uuid::from_u128(9))).unwrap_err();
    assert!(other.contains("another cluster's issuer"), "{other}");
    let mut mixed = files(0);
    mixed.insert("issuer.key".to_owned(), files(1)["issuer.key"].clone());
    assert!(read(&mixed).unwrap_err().contains("another key than issuer.key"));
}

#[test]
fn keys_follow_from_the_master_secret_and_the_cluster_alone() {
    let disk = Uuid::from_u128(5);
    let key = |files: &Files, cluster| cluster_keys(files, cluster).unwrap().state_disk_key(disk, None);
    let alone: Files = files(0).into_iter().filter(|(name, _)| name == "master.key").collect();
    assert_eq!(key(&alone, CLUSTER), Trust::read(&files(1), CLUSTER).unwrap().keys.state_disk_key(disk, None));
    assert_ne!(key(&alone, CLUSTER), key(&alone, Uuid::from_u128(9)), "without a salt it follows from the cluster");
    let shown = format!("{:?}", Trust::read(&files(0), CLUSTER).unwrap());
    assert!(!shown.contains("4b4b") && !shown.contains("hush"), "{shown}");
}
