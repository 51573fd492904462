//! Which host may be approved, and by which key.

use configdb_schema::document::{EndorsementProof, EndorsementRules, PcrBank, PcrLock};
use fleet_view::bench::{Bench, NAME};
use join_service_contract::JoinHost;
use uuid::Uuid;

use super::*;

const DISK: Uuid = Uuid::from_u128(0xD1);

fn key() -> String {
    "ab".repeat(32)
}

/// A host that asks to join, as its row.
fn row(change: impl FnOnce(&mut JoinHost)) -> JoiningHostRow {
    let mut host = JoinHost {
        name: "press-1".to_owned(),
        role: "worker".to_owned(),
        endorsement_key: key(),
        state: HostState::Pending,
        ..JoinHost::default()
    };
    change(&mut host);
    let mut bench = Bench::with_cluster();
    bench.join(NAME, &[(DISK, host)]);
    bench.fleet.joining_hosts(None).remove(0)
}

fn policy(revoked: &[String]) -> AttestationPolicy {
    AttestationPolicy {
        variants: Vec::new(),
        bank: PcrBank::Sha256,
        pcrs: std::collections::BTreeMap::new(),
        boot: None,
        lock: PcrLock { pcr: 15, before: None, after: None },
        local_unlock: None,
        endorsement: EndorsementRules {
            require: EndorsementProof::Enrolment,
            manufacturers: Vec::new(),
            device_manufacturers: Vec::new(),
            enrolled: Vec::new(),
            revoked: revoked.to_vec(),
        },
        signature: None,
    }
}

#[test]
fn the_key_that_was_read_off_the_machine_has_to_be_that_of_the_host() {
    let row = row(|_| {});
    for good in [&key()[..16], &key()[..40], &key(), &key().to_uppercase()] {
        check_ek(&row, good).unwrap();
    }
    let other = check_ek(&row, &"cd".repeat(8)).unwrap_err();
    assert_eq!(exit::code_of(&other), exit::REFUSED);
    assert!(other.to_string().contains(&key()), "{other}");
    // A host could be given that agrees in a few digits.
    for bad in ["", "ab", &key()[..15], "abababababababxy", &format!("{}ab", key())] {
        assert_eq!(exit::code_of(&check_ek(&row, bad).unwrap_err()), exit::USAGE, "{bad}");
    }
}

#[test]
fn a_host_that_waits_is_approved_and_a_revoked_one_is_not() {
    check_approval(&row(|_| {}), &policy(&[]), false).unwrap();
    let error = check_approval(&row(|_| {}), &policy(&[key().to_uppercase()]), false).unwrap_err();
    assert_eq!(exit::code_of(&error), exit::REFUSED);
    assert!(error.to_string().starts_with("press-1 is revoked") && error.to_string().contains(&key()), "{error}");
}

#[test]
fn who_has_the_disk_of_another_host_is_not_approved_in_its_place() {
    let thief = row(|host| host.foreign_disk = Some(Uuid::from_u128(0xD2)));
    let error = check_approval(&thief, &policy(&[]), true).unwrap_err();
    assert_eq!(exit::code_of(&error), exit::REFUSED);
    assert!(error.to_string().contains(&Uuid::from_u128(0xD2).to_string()), "{error}");
}

#[test]
fn a_control_plane_is_approved_as_one_or_not_at_all() {
    let wants_more = row(|host| host.role = "control-plane".to_owned());
    let error = check_approval(&wants_more, &policy(&[]), false).unwrap_err();
    assert!(exit::code_of(&error) == exit::USAGE && error.to_string().contains("--control-plane"), "{error}");
    check_approval(&wants_more, &policy(&[]), true).unwrap();
    check_approval(&row(|_| {}), &policy(&[]), true).unwrap();
}

#[test]
fn the_command_that_deletes_a_node_takes_the_name_of_the_host_as_one_name() {
    let hint = |name: &str| after_revocation(&row(|host| name.clone_into(&mut host.name)));
    assert!(hint("press-1").ends_with("(`kubectl delete node -- press-1`)."));
    assert!(hint("a; reboot").ends_with("(`kubectl delete node -- 'a; reboot'`)."));
    assert!(hint("--all").ends_with("(`kubectl delete node -- --all`)."));
    let control_plane = after_revocation(&row(|host| "control-plane".clone_into(&mut host.role)));
    assert!(control_plane.ends_with("or the server token (`k3s token rotate`)."), "{control_plane}");
}
