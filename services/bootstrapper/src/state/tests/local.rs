//! A member whom no issuer answers.

use join_protocol::attestation::Admitted;
use join_protocol::refusal::{Refusal, RefusalCode};
use join_protocol::selection::Bank;
use join_protocol::terms::Kind;

use super::world::{Failure, Run, World};
use crate::event::Ending;
use crate::platform::Mark;
use crate::record::NodeRecord;

const BACK: [&str; 5] = ["unlock sealed", "lock again", "inspect", "mount-directories", "resume"];

fn admitted() -> Option<Admitted> {
    Some(Admitted { bank: Bank::Sha256, pcrs: [(4, vec![vec![4; 32]]), (15, vec![vec![0; 32]])].into() })
}

/// A member with a second key, switched off.
fn member() -> World {
    let mut world = World::new(Kind::Join);
    world.join_service.local_unlock = admitted();
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    assert_eq!(world.tasks.last(), Some(&"seal"));
    assert!(world.host.sealed.is_some());
    world.power_off();
    world.tasks.clear();
    world.start();
    world
}

#[test]
fn a_member_without_an_answer_comes_back_by_its_tpm_and_asks_whether_it_still_may() {
    let mut world = member();
    world.join_service_answers = false;
    world.run_for(59_000);
    assert_eq!(world.tasks, ["inspect"], "it asks first");
    world.run_for(10_000);
    assert_eq!(world.tasks, [&["inspect"], &BACK[..]].concat());
    assert!(world.host.locked);
    assert_eq!((world.kind(), world.host.renewed.len()), ("renew", 0));
    // What it brought up by itself answers it.
    world.join_service_answers = true;
    assert_eq!(world.go_on(), Run::Ended(Ending::Member));
    assert_eq!((world.host.renewed.len(), world.host.sealed.is_some()), (1, true));
    assert_eq!((world.host.mark, world.host.reboots), (Some(Mark::Initialised), 0));
    assert_eq!(world.state().node().state, "member");
}

#[test]
fn without_an_answer_for_good_it_is_a_member_nevertheless_and_a_member_with_an_answer_takes_nothing() {
    let mut world = member();
    world.join_service_answers = false;
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    assert_eq!(world.tasks, [&["inspect"], &BACK[..]].concat());
    let mut world = member();
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    assert_eq!(world.tasks, ["inspect", "unlock", "lock", "mount-directories", "resume", "seal"]);
    // Started again it asks whether it still may, although no certificate is old.
    world.tasks.clear();
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    assert_eq!(world.tasks, ["inspect", "mount-directories", "resume", "renew"]);
}

#[test]
fn a_refused_member_does_not_come_back_by_itself_and_one_that_has_to_wait_does() {
    for code in [RefusalCode::EndorsementRevoked, RefusalCode::Measurement, RefusalCode::PolicyInvalid] {
        let mut world = member();
        world.join_service.refuse = Some(Refusal::new(code, "as planned"));
        world.run_for(600_000);
        let is_revoked = code == RefusalCode::EndorsementRevoked;
        let tasks: &[_] = if is_revoked { &["inspect", "close and remove sealed"] } else { &["inspect"] };
        assert_eq!((world.tasks.as_slice(), world.host.locked), (tasks, false), "{code}");
        assert_eq!(world.host.sealed.is_none(), is_revoked, "{code}");
        // Whom a join service forgives has its key nevertheless.
        world.join_service.refuse = None;
        assert_eq!(world.go_on(), Run::Ended(Ending::Member), "{code}");
    }
    // One that cannot be removed is tried again with the next refusal.
    let mut world = member();
    world.failure = Some(Failure::Fails("close and remove sealed", 1));
    world.join_service.refuse = Some(Refusal::new(RefusalCode::EndorsementRevoked, "as planned"));
    world.run_for(600_000);
    assert_eq!((world.tasks.len(), world.host.sealed), (3, None), "{:?}", world.tasks);
    let mut world = member();
    world.join_service.refuse = Some(Refusal::new(RefusalCode::IssuingFailed, "as planned"));
    world.run_for(70_000);
    assert!(world.host.locked && world.tasks.contains(&"unlock sealed"), "{:?}", world.tasks);
}

#[test]
fn a_verdict_that_comes_while_the_tpm_works_ends_that() {
    for code in [RefusalCode::EndorsementRevoked, RefusalCode::Measurement] {
        let mut world = member();
        (world.join_service_answers, world.failure) = (false, Some(Failure::Hangs("unlock sealed")));
        world.run_for(61_000);
        assert_eq!(world.tasks, ["inspect", "unlock sealed"]);
        world.join_service_answers = true;
        world.join_service.refuse = Some(Refusal::new(code, "as planned"));
        world.run_for(60_000);
        assert!(matches!(world.tasks.get(2), Some(&"close" | &"close and remove sealed")), "{:?}", world.tasks);
        assert_eq!((world.tasks.len(), world.host.open, world.host.locked), (3, false, false), "{code}");
        assert_eq!(world.host.sealed.is_none(), code == RefusalCode::EndorsementRevoked, "{code}");
    }
}

#[test]
fn a_disk_that_proves_to_be_none_of_a_member_is_not_left_open() {
    let mut world = member();
    world.join_service_answers = false;
    let record = world.host.record.clone().unwrap();
    world.host.record = Some(NodeRecord { cluster: uuid::Uuid::from_u128(0xBAD), ..record.clone() });
    world.run_for(600_000);
    assert_eq!(world.tasks, ["inspect", "unlock sealed", "close"]);
    assert_eq!((world.host.open, world.host.locked), (false, false));
    (world.host.record, world.join_service_answers) = (Some(record), true);
    assert_eq!(world.run(), Run::Ended(Ending::Member));
}

#[test]
fn another_image_gets_nothing_of_the_tpm_and_asks_on() {
    let mut world = member();
    (world.join_service_answers, world.host.has_other_image) = (false, true);
    world.run_for(600_000);
    assert_eq!(world.tasks, ["inspect", "unlock sealed", "close"], "the TPM is asked once");
    assert_eq!((world.host.locked, world.host.reboots), (false, 0));
    let error = world.dashboard().unwrap().last_error.clone().unwrap();
    assert_eq!(error, "unlocking the state disk by the TPM: the second key is not given out");
    world.join_service_answers = true;
    assert_eq!(world.run(), Run::Ended(Ending::Member));
}

#[test]
fn a_second_key_that_is_not_wanted_any_more_is_taken_away() {
    // By the next ticket.
    let mut world = member();
    world.join_service.local_unlock = None;
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    assert_eq!((world.tasks.last(), world.host.sealed), (Some(&"remove sealed"), None));
    // By a renewal of a member that came back by itself; and by one that says that it is revoked.
    for is_revoked in [false, true] {
        let mut world = member();
        world.join_service_answers = false;
        world.run_for(70_000);
        world.join_service_answers = true;
        world.join_service.local_unlock = None;
        let refusal = Refusal::new(RefusalCode::EndorsementRevoked, "as planned");
        world.join_service.refuse = is_revoked.then_some(refusal);
        assert_eq!(world.go_on(), Run::Ended(Ending::Member));
        assert_eq!((world.host.sealed, world.host.reboots), (None, 0), "revoked: {is_revoked}");
    }
}

#[test]
fn a_second_key_that_cannot_be_made_costs_nothing_but_itself() {
    for failure in [Failure::Fails("seal", 1), Failure::Hangs("seal")] {
        let mut world = World::new(Kind::Join);
        world.join_service.local_unlock = admitted();
        world.failure = Some(failure);
        assert_eq!(world.run(), Run::Ended(Ending::Member));
        assert_eq!((world.host.mark, world.host.sealed, world.host.reboots), (Some(Mark::Initialised), None, 0));
        let error = world.state().node().last_error.clone().unwrap();
        assert!(error.starts_with("giving the state disk its second key: "), "{error}");
    }
}

#[test]
fn killed_at_any_step_it_comes_back_in_the_same_boot() {
    for step in ["unlock sealed", "lock again", "mount-directories", "resume"] {
        for is_done in [false, true] {
            let mut world = member();
            (world.join_service_answers, world.failure) = (false, Some(Failure::Kills(step, is_done)));
            assert_eq!(world.run(), Run::Killed, "{step}, done: {is_done}");
            world.failure = None;
            assert_eq!(world.run(), Run::Ended(Ending::Member), "{step}, done: {is_done}");
            assert_eq!((world.host.locked, world.host.mark), (true, Some(Mark::Initialised)));
        }
    }
}

#[test]
fn a_lock_that_fails_without_a_ticket_is_followed_by_a_reboot_as_any_other() {
    let mut world = member();
    (world.join_service_answers, world.failure) = (false, Some(Failure::Fails("lock again", 1)));
    assert!(matches!(world.run(), Run::Ended(Ending::Reboot(_))));
    assert_eq!(world.host.mark, Some(Mark::Initialised));
    world.power_off();
    assert_eq!(world.run(), Run::Ended(Ending::Member));
}
