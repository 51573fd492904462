//! A host's whole way in without a host: a model of TPM, disk and record, an issuer in memory, virtual time. Every task can fail, hang, or be the last before the power goes.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

#[allow(dead_code, unreachable_pub, reason = "other tests use the rest")]
#[path = "../../tests/support/issuer.rs"]
mod issuer;
mod local;
mod world;

use join_protocol::message::acknowledgement::Stage;
use join_protocol::refusal::{Refusal, RefusalCode};
use join_protocol::terms::{Kind, Role};

use crate::event::{Ending, Task};
use crate::platform::Mark;
use crate::record::Progress;
use crate::renewal::ValidityPeriod;
use issuer::{KEY_FILE, NODE_PASSWORD, TOKEN};
use world::{Failure, Run, World, name_of};

/// Tasks of a join, in their order; those from [`LOCK`] on are after the lock.
const JOIN: [&str; 10] = [
    "inspect",
    "save joining",
    "lock",
    "set-key",
    "mount-directories",
    "write",
    "install",
    "join",
    "save member",
    "mark initialised",
];
const INIT: [&str; 10] = [
    "inspect",
    "save joining",
    "lock",
    "set-key",
    "mount-directories",
    "write-authority",
    "install",
    "init",
    "save member",
    "mark initialised",
];
const REJOIN: [&str; 5] = ["inspect", "unlock", "lock", "mount-directories", "resume"];
const LOCK: &str = "lock";

#[test]
fn a_join_an_init_and_a_rejoin_are_these_steps_and_no_others() {
    let mut world = World::new(Kind::Join);
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    assert_eq!(world.tasks, [&["inspect", "prepare"], &JOIN[..]].concat());
    assert!(world.host.locked && world.host.mark == Some(Mark::Initialised));
    world.power_off();
    world.tasks.clear();
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    assert_eq!(world.tasks, REJOIN);

    let mut world = World::new(Kind::Init);
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    assert_eq!(world.tasks, [&["inspect", "prepare"], &INIT[..]].concat());
    assert_eq!(world.administrator.kubeconfig.as_deref(), Some(b"kubeconfig".as_slice()));
    world.power_off();
    world.tasks.clear();
    assert_eq!(world.run(), Run::Ended(Ending::Member), "recovered");
    assert_eq!(world.tasks, REJOIN);
    assert_eq!(world.kind(), "recover");
}

/// A member that runs, whose certificates are past two thirds of their validity.
fn aged() -> World {
    let mut world = World::new(Kind::Rejoin);
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    assert_eq!(world.kind(), "rejoin");
    world.tasks.clear();
    world.stages.clear();
    world.host.certificates = vec![ValidityPeriod { from_ms: 0, until_ms: world::START_MS * 3 / 2 }];
    world
}

#[test]
fn a_member_that_is_started_again_renews_its_certificates_when_two_thirds_of_their_life_are_over() {
    let mut world = aged();
    world.host.certificates[0].until_ms *= 2;
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    assert_eq!(
        (world.tasks.as_slice(), world.host.renewed.len()),
        (["inspect", "mount-directories", "resume"].as_slice(), 0)
    );
    let mut world = aged();
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    assert_eq!(world.tasks, ["inspect", "mount-directories", "resume", "renew"]);
    assert_eq!((world.kind(), world.host.renewed[0].node_name.as_str()), ("renew", "edge-1"));
    assert!(world.stages.iter().any(|(stage, _)| *stage == Stage::Member), "{:?}", world.stages);
    assert_eq!((world.host.mark, world.host.reboots), (Some(Mark::Initialised), 0));
    assert_eq!(world.state().node().state, "member");
}

#[test]
fn a_member_whose_kubernetes_does_not_run_yet_says_so_and_stays_one() {
    for started_again in [false, true] {
        let mut world = World::new(Kind::Rejoin);
        if started_again {
            assert_eq!(world.run(), Run::Ended(Ending::Member));
            assert_eq!(world.state().node().last_error, None);
        }
        world.host.fault = Some("k3s.service does not run".to_owned());
        assert_eq!(world.run(), Run::Ended(Ending::Member));
        let node = world.state().node();
        assert_eq!((node.state.as_str(), node.last_error.as_deref()), ("member", Some("k3s.service does not run")));
        assert_eq!((world.host.reboots, world.host.locked), (0, true));
    }
}

/// Its bootstrapper is configured as that of a worker, as most are.
#[test]
fn a_first_member_renews_as_the_control_plane_that_it_is() {
    let mut world = World::new(Kind::Init);
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    world.host.certificates = vec![ValidityPeriod { from_ms: 0, until_ms: world::START_MS * 3 / 2 }];
    world.join_service_answers = true;
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    assert_eq!((world.kind(), world.host.renewed.len()), ("renew", 1));
    assert_eq!(world.roles.last(), Some(&Role::ControlPlane));
}

#[test]
fn a_renewal_that_fails_leaves_the_member_what_it_is() {
    let still_a_member = |mut world: World, what: &str| {
        assert_eq!(world.run(), Run::Ended(Ending::Member), "{what}");
        assert_eq!((world.host.renewed.len(), world.host.reboots), (0, 0), "{what}");
        assert_eq!((world.host.mark, world.host.locked), (Some(Mark::Initialised), true), "{what}");
        assert!(!world.tasks.contains(&LOCK), "{what}: {:?}", world.tasks);
    };
    for failure in [Failure::Fails("renew", usize::MAX), Failure::Hangs("renew")] {
        let mut world = aged();
        world.failure = Some(failure);
        still_a_member(world, "failure");
    }
    for code in [RefusalCode::EndorsementRevoked, RefusalCode::Lock, RefusalCode::Superseded] {
        let mut world = aged();
        world.join_service.refuse = Some(Refusal::new(code, "as planned"));
        still_a_member(world, code.name());
    }
    let mut world = aged();
    world.join_service_answers = false;
    still_a_member(world, "no issuer answers");
    let mut world = aged();
    world.join_service.renews_for = Some("edge-2".to_owned());
    still_a_member(world, "of another node");
    let mut world = aged();
    world.join_service_answers = false;
    world.start();
    world.run_for(1_000);
    // An administrator renews nothing, and a stop ends it at once.
    world.command_administrator(true);
    assert_eq!(world.kinds_received().last(), Some(&Kind::Renew));
    assert_eq!(world.stop(), Run::Ended(Ending::Member));
}

#[test]
fn what_fails_before_the_lock_is_reported_and_tried_again() {
    for (kind, task) in [
        (Kind::Join, "save joining"),
        (Kind::Init, "save joining"),
        (Kind::Rejoin, "unlock"),
        (Kind::Recover, "unlock"),
    ] {
        let mut world = World::new(kind);
        world.failure = Some(Failure::Fails(task, 1));
        assert_eq!(world.run(), Run::Ended(Ending::Member), "{kind} {task}");
        assert_eq!(world.tasks.iter().filter(|name| **name == task).count(), 2);
        assert_eq!(world.tasks.iter().filter(|name| **name == LOCK).count(), 1, "it is locked once");
        assert!(
            world.stages.iter().any(|(stage, text)| *stage == Stage::Failed && text.contains("as planned")),
            "{:?}",
            world.stages
        );
        assert_eq!(world.host.reboots, 0);
    }
}

#[test]
fn what_fails_after_the_lock_marks_the_disk_reports_it_to_the_issuer_and_reboots() {
    for (kind, tasks) in [(Kind::Join, &JOIN), (Kind::Init, &INIT)] {
        for task in tasks.iter().skip_while(|task| **task != LOCK) {
            let mut world = World::new(kind);
            world.failure = Some(Failure::Fails(task, usize::MAX));
            let Run::Ended(Ending::Reboot(reason)) = world.run() else { panic!("{kind} {task}: {:?}", world.tasks) };
            assert!(reason.contains("as planned"), "{reason}");
            assert_eq!((world.host.mark, world.host.reboots), (Some(Mark::Reset), 1), "{kind} {task}");
            assert!(world.stages.iter().any(|(stage, _)| *stage == Stage::Failed), "{kind} {task}: {:?}", world.stages);
            assert_eq!(world.state().node().state, "failed");
            // And then it is a new host.
            world.failure = None;
            world.power_off();
            assert_eq!(world.run(), Run::Ended(Ending::Member), "{kind} {task}");
        }
    }
}

#[test]
fn a_members_disk_is_never_marked_whatever_fails() {
    for kind in [Kind::Rejoin, Kind::Recover] {
        for task in ["lock", "mount-directories", "resume"] {
            let mut world = World::new(kind);
            world.failure = Some(Failure::Fails(task, usize::MAX));
            assert!(matches!(world.run(), Run::Ended(Ending::Reboot(_))), "{kind} {task}");
            assert_eq!((world.host.mark, world.host.reboots), (Some(Mark::Initialised), 1));
            world.failure = None;
            world.power_off();
            assert_eq!(world.run(), Run::Ended(Ending::Member));
        }
    }
}

#[test]
fn killed_at_any_step_the_end_is_the_same() {
    for (kind, tasks) in
        [(Kind::Join, &JOIN[..]), (Kind::Init, &INIT), (Kind::Rejoin, &REJOIN), (Kind::Recover, &REJOIN)]
    {
        for task in tasks {
            for is_done in [false, true] {
                for power_off in [false, true] {
                    let what = format!("{kind}, killed at {task}, done: {is_done}, power off: {power_off}");
                    let mut world = World::new(kind);
                    world.failure = Some(Failure::Kills(task, is_done));
                    assert_eq!(world.run(), Run::Killed, "{what}");
                    world.failure = None;
                    if power_off {
                        world.power_off();
                    }
                    world.run_to_the_end(&what);
                    assert!(world.host.locked && world.host.mark == Some(Mark::Initialised), "{what}");
                    let progress = world.host.record.as_ref().map(|record| record.progress);
                    assert_eq!(progress, Some(Progress::Member), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_step_that_hangs_is_given_up() {
    for (kind, task, committed) in [
        (Kind::Join, "save joining", false),
        (Kind::Rejoin, "unlock", false),
        (Kind::Join, "lock", true),
        (Kind::Join, "join", true),
        (Kind::Init, "init", true),
        (Kind::Rejoin, "resume", true),
    ] {
        let mut world = World::new(kind);
        world.failure = Some(Failure::Hangs(task));
        let ended = world.run();
        if committed {
            let Run::Ended(Ending::Reboot(reason)) = ended else { panic!("{kind} {task}: {ended:?}") };
            assert!(reason.ends_with("it took too long"), "{reason}");
        } else {
            assert_eq!(ended, Run::Ended(Ending::Member), "{kind} {task}");
        }
    }
}

#[test]
fn a_disk_that_cannot_be_marked_does_not_keep_a_failed_host_from_its_reboot() {
    for failure in [Failure::Fails("mark reset", usize::MAX), Failure::Hangs("mark reset")] {
        let mut world = World::new(Kind::Join);
        world.also = Some(Failure::Fails("join", usize::MAX));
        world.failure = Some(failure);
        let Run::Ended(Ending::Reboot(reason)) = world.run() else { panic!("{:?}", world.tasks) };
        assert!(reason.contains("could not be marked for reset"), "{reason}");
        // The token never said that it is a member's, so the next boot formats it again.
        (world.failure, world.also) = (None, None);
        world.power_off();
        world.run_to_the_end("after a mark that failed");
        assert_eq!(world.tasks.iter().filter(|task| **task == "prepare").count(), 2);
    }
}

#[test]
fn join_service_and_administrator_are_asked_side_by_side_and_one_ticket_locks() {
    let mut world = World::new(Kind::Join);
    world.ask_administrator_at_once = true;
    world.join_service_answers = true;
    assert_eq!(world.run(), Run::Ended(Ending::Member));
    assert_eq!(world.tasks.iter().filter(|task| **task == LOCK).count(), 1);
    let acknowledged = world.join_service.acknowledged.len() + world.administrator.acknowledged.len();
    assert_eq!(acknowledged, 1, "only one of them has a host that is locked");
}

#[test]
fn asking_an_administrator_ends_by_itself_and_is_reminded_no_more_than_once_a_second() {
    let mut world = World::new(Kind::Join);
    (world.join_service_answers, world.administrator_answers) = (false, false);
    world.run_for(1_000);
    assert_eq!(world.kinds_received(), [Kind::Join]);
    world.command_administrator(true);
    world.run_for(10);
    assert_eq!((world.kinds_received(), world.state().node().administrator), (vec![Kind::Join, Kind::Init], true));
    let said = world.hellos.len();
    for _ in 0..50 {
        world.command_administrator(true);
    }
    assert_eq!(world.hellos.len(), said, "not in the same second");
    world.run_for(11 * 60 * 1_000);
    assert!(!world.state().node().administrator, "ten minutes after the last command");
    world.hellos.clear();
    world.run_for(60 * 1_000);
    assert_eq!(world.kinds_received(), [Kind::Join]);
    world.command_administrator(true);
    world.run_for(10);
    world.command_administrator(false);
    assert!(!world.state().node().administrator);
}

#[test]
fn a_stop_is_clean_before_the_lock_and_waits_for_the_end_after_it() {
    let mut world = World::new(Kind::Join);
    world.join_service_answers = false;
    world.run_for(5_000);
    assert_eq!(world.stop(), Run::Ended(Ending::Stopped));
    assert!(!world.host.locked);

    for (failure, member) in [(None, true), (Some(Failure::Fails("join", usize::MAX)), false)] {
        let mut world = World::new(Kind::Join);
        world.failure = failure;
        world.stop_at = Some("install");
        let ended = world.run();
        if member {
            assert_eq!(ended, Run::Ended(Ending::Member));
        } else {
            let Run::Ended(Ending::Blocked(reason)) = ended else { panic!("{ended:?}") };
            assert!(reason.ends_with("the host has to be rebooted"), "{reason}");
            assert_eq!((world.host.mark, world.host.reboots), (Some(Mark::Reset), 0));
            // The next start says so again, and reboots.
            world.failure = None;
            world.run_to_the_end("started again after a stop");
            assert_eq!(world.host.reboots, 1);
        }
    }
}

#[test]
fn a_ticket_that_cannot_be_used_is_given_up_before_the_lock() {
    let mut world = World::new(Kind::Join);
    world.join_service.change = Some(Box::new(|grant| grant.membership.as_mut().unwrap().servers.clear()));
    world.run_for(120_000);
    assert!(!world.tasks.contains(&LOCK) && !world.host.locked);
    let error = world.state().node().last_error.clone().unwrap();
    assert_eq!(error, "the ticket cannot be used: membership.servers is empty");
    assert!(world.join_service.tickets > 1, "it asks again");
    assert!(world.stages.contains(&(Stage::Failed, error)), "the issuer knows, and may revoke: {:?}", world.stages);
}

#[test]
fn a_refusal_is_reported_and_a_disk_of_another_cluster_is_not_taken_in() {
    let mut world = World::new(Kind::Join);
    world.join_service.refuse = Some(Refusal::new(RefusalCode::ApprovalPending, "ask the operator"));
    world.run_for(10_000);
    let node = world.state().node();
    assert_eq!((node.state.as_str(), node.refusals), ("resting", 1));
    assert_eq!(node.last_error.as_deref(), Some("join refused: approval-pending: ask the operator"));

    let mut world = World::new(Kind::Rejoin);
    world.host.record.as_mut().unwrap().measurement_salt = "00".repeat(32);
    world.run_for(60_000);
    assert!(!world.host.locked);
    let error = world.state().node().last_error.clone().unwrap();
    assert!(error.ends_with("the state disk belongs to a member of another cluster than the ticket"), "{error}");
}

#[test]
fn a_host_with_a_wrong_clock_says_so_and_comes_in_when_it_is_right() {
    let mut world = World::new(Kind::Rejoin);
    // Beyond the end of the issuer's certificate.
    world.ahead_ms = 4_000_000_000_000;
    world.run_for(60_000);
    assert!(!world.host.locked);
    let error = world.state().node().last_error.clone().unwrap();
    assert!(error.contains("is not valid at the time of this machine's clock: set the clock"), "{error}");
    world.ahead_ms = 0;
    world.run_to_the_end("with the right clock");
    assert!(world.host.locked);
}

#[test]
fn what_cannot_be_looked_at_ends_the_run_and_touches_nothing() {
    let mut world = World::new(Kind::Join);
    world.failure = Some(Failure::Fails("inspect", usize::MAX));
    assert_eq!(world.run(), Run::Ended(Ending::Blocked("as planned".to_owned())));
    assert_eq!(world.tasks, ["inspect"]);
    let mut world = World::new(Kind::Join);
    world.host.locked = true;
    let Run::Ended(Ending::Blocked(reason)) = world.run() else { panic!("{:?}", world.tasks) };
    assert!(reason.starts_with("the lock PCR was extended before this host locked itself"), "{reason}");
    assert_eq!(world.tasks, ["inspect"]);
}

#[test]
fn nothing_that_is_done_shows_a_secret() {
    for kind in [Kind::Join, Kind::Init, Kind::Rejoin] {
        let mut world = World::new(kind);
        assert_eq!(world.run(), Run::Ended(Ending::Member));
        for secret in [TOKEN, NODE_PASSWORD, KEY_FILE, "kubeconfig\""] {
            assert!(!world.shown.contains(secret), "{kind}: {secret}");
        }
        let key = issuer::master().state_disk_key(world::DISK, Some(&world::GENERATION));
        let bytes = format!("{:?}", key.expose());
        assert!(!world.shown.contains(&hex::encode(key.expose())) && !world.shown.contains(&bytes[1..bytes.len() - 1]));
    }
}

#[test]
fn messages_that_are_not_believed_are_counted_and_make_the_host_say_little() {
    let mut world = World::new(Kind::Join);
    (world.join_service_answers, world.administrator_answers) = (false, false);
    world.run_for(5_000);
    let said = world.said;
    for number in 0..1_000_u32 {
        world.command(join_protocol::metrics::IssuerMessage::Challenge(number.to_be_bytes().to_vec()).to_metric());
    }
    assert!(world.said <= said + 1, "{} messages", world.said - said);
    assert_eq!(world.state().node().ignored, 1_000);
    world.run_for(60_000);
    assert_eq!(world.dashboard().unwrap().ignored, 1_000, "the next message reports it");
}

#[test]
fn every_task_has_a_name() {
    assert_eq!(name_of(&Task::Reboot(String::new())), "reboot");
}
