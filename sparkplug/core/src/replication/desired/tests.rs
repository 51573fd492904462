//! Stores that are restored, replaced and restarted in every order, and a receiver that must not take a word from one that does not know what it knows.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn point(timeline: u64, revision: u64) -> Point {
    Point { timeline, revision }
}

fn origin(store: u128, epoch: u64, timeline: u64, revision: u64) -> Origin {
    Origin { store: Uuid::from_u128(store), epoch, point: point(timeline, revision) }
}

fn stamp(origin: Option<Origin>, follows: Option<Point>, version: u64, digest: u64) -> Stamp<u64> {
    Stamp { origin, follows, decided_for: None, version, digest }
}

#[test]
fn texts_are_read_back_and_others_are_refused() {
    let full = origin(7, 3, 0xAB, 12);
    assert_eq!(full.to_string(), "00000000-0000-0000-0000-000000000007/3/00000000000000ab/12");
    assert_eq!(full.to_string().parse(), Ok(full));
    let mut timelines = Timelines::default();
    assert_eq!((timelines.to_string(), timelines.at(4)), (String::new(), None));
    timelines.begin(1, 0);
    timelines.begin(2, 10);
    assert_eq!(timelines.to_string(), "0000000000000001/0 0000000000000002/11");
    assert_eq!(timelines.to_string().parse(), Ok(timelines));
    for wrong in ["", "x", "00000000-0000-0000-0000-000000000007/3/ab/12", "7/3/00000000000000ab"] {
        assert!(wrong.parse::<Origin>().is_err(), "{wrong}");
    }
    for wrong in ["0000000000000001/2 0000000000000002/2", "1/1"] {
        assert!(wrong.parse::<Timelines>().is_err(), "{wrong}");
    }
}

#[test]
fn a_timeline_ends_where_the_next_begins_and_one_that_wrote_nothing_is_replaced() {
    let mut timelines = Timelines::default();
    timelines.begin(1, 0);
    timelines.begin(2, 10);
    timelines.begin(3, 10);
    assert_eq!(timelines.last_of(1, 15), Some(point(1, 10)));
    assert_eq!(timelines.last_of(2, 15), None);
    assert_eq!(timelines.last_of(3, 15), Some(point(3, 15)));
    assert_eq!((timelines.at(10), timelines.at(15)), (Some(point(1, 10)), Some(point(3, 15))));
    for n in 0..2 * Timelines::MAX as u64 {
        timelines.begin(100 + n, 20 + n);
    }
    assert_eq!(timelines.to_string().parse::<Timelines>().map(|read| read.0.len()), Ok(Timelines::MAX));
}

#[test]
fn a_timeline_ages_before_it_is_forgotten() {
    let mut timelines = Timelines::default();
    let last = u64::try_from(Timelines::MAX).unwrap() * 2;
    for timeline in 1..=last {
        timelines.begin(timeline, timeline);
    }
    let kept = |timeline| timelines.last_of(timeline, last + 1).is_some();
    let oldest = (1..=last).find(|timeline| kept(*timeline)).unwrap();
    let youngest = (1..=last).rfind(|timeline| timelines.is_ageing(*timeline)).unwrap();
    assert!(timelines.is_ageing(oldest) && !timelines.is_ageing(oldest - 1), "what is forgotten is not renewed");
    assert_eq!((youngest - oldest + 1, last - oldest + 1), (500, 1_000));
}

#[test]
fn a_decision_counts_for_what_was_accepted_when_it_was_made() {
    let accepted = stamp(Some(origin(1, 0, 5, 10)), None, 7, 70);
    let released = |store, follows, decided_for| {
        accepted.judge(&Stamp { decided_for, ..stamp(Some(origin(store, 1, 9, 20)), follows, 8, 80) })
    };
    assert_eq!(released(2, None, None), Outcome::Accepted);
    assert_eq!(released(2, None, Some(70)), Outcome::Accepted);
    assert_eq!(released(2, None, Some(69)), Outcome::Held(Hold::OtherDecision));
    assert_eq!(released(1, None, Some(69)), Outcome::Held(Hold::OtherDecision));
    assert_eq!(released(1, Some(point(5, 10)), Some(69)), Outcome::Accepted, "nothing that was accepted is missing");
    // Once it is followed, the epoch needs no decision any more.
    let followed = stamp(Some(origin(2, 1, 9, 20)), None, 8, 80);
    let next = Stamp { decided_for: Some(70), ..stamp(Some(origin(2, 1, 9, 21)), None, 9, 90) };
    assert_eq!(followed.judge(&next), Outcome::Accepted);
}

#[test]
fn each_case_has_its_answer() {
    let accepted = stamp(Some(origin(1, 0, 5, 10)), None, 7, 70);
    let judge = |origin, follows, version, digest| accepted.judge(&stamp(origin, follows, version, digest));
    // The same run of the store, later; the same store after a restart.
    assert_eq!(judge(Some(origin(1, 0, 5, 11)), None, 8, 80), Outcome::Accepted);
    assert_eq!(judge(Some(origin(1, 0, 6, 20)), Some(point(5, 12)), 8, 80), Outcome::Accepted);
    // Repetitions.
    assert_eq!(judge(Some(origin(1, 0, 5, 9)), None, 7, 70), Outcome::Duplicate);
    assert_eq!(judge(Some(origin(1, 0, 5, 12)), None, 6, 60), Outcome::Stale);
    assert_eq!(judge(Some(origin(1, 0, 5, 12)), None, 7, 71), Outcome::Conflict);
    // A backup of revision 8, which has come to revision 30 since.
    let older = Outcome::Held(Hold::Older { revisions: 2 });
    assert_eq!(judge(Some(origin(1, 0, 6, 30)), Some(point(5, 8)), 31, 80), older);
    assert_eq!(judge(Some(origin(1, 0, 5, 8)), None, 8, 80), older);
    assert_eq!(judge(Some(origin(1, 0, 6, 30)), None, 31, 80), Outcome::Held(Hold::Forked));
    // Another store, whatever it wants; one that does not say which it is.
    let (store, followed) = (Uuid::from_u128(2), Uuid::from_u128(1));
    let other = Outcome::Held(Hold::OtherStore { store, followed });
    assert_eq!(judge(Some(origin(2, 0, 5, 11)), None, 8, 80), other);
    assert_eq!(judge(Some(origin(2, 0, 5, 11)), None, 7, 70), other);
    assert_eq!(judge(None, None, 8, 80), Outcome::Held(Hold::NoOrigin));
    // An operator has decided; what was decided against comes back.
    assert_eq!(judge(Some(origin(2, 1, 9, 1)), None, 8, 80), Outcome::Accepted);
    assert_eq!(judge(Some(origin(2, 1, 9, 1)), None, 7, 70), Outcome::Accepted);
    let released = stamp(Some(origin(2, 1, 9, 1)), None, 8, 80);
    let back = stamp(Some(origin(1, 0, 5, 40)), None, 40, 90);
    assert_eq!(released.judge(&back), Outcome::Held(Hold::OldEpoch { epoch: 0, accepted: 1 }));
    // Accepted before stores were named.
    let upgraded = stamp(None, None, 7, 70);
    assert_eq!(upgraded.judge(&stamp(Some(origin(2, 0, 9, 1)), None, 7, 70)), Outcome::Accepted);
    assert_eq!(upgraded.judge(&stamp(None, None, 8, 80)), Outcome::Accepted);
}

#[test]
fn a_hold_ends_with_what_is_accepted() {
    let mut receiver = DesiredReceiver::default();
    let first = stamp(Some(origin(1, 0, 5, 10)), None, 7, 70);
    assert_eq!(receiver.receive(&first), Outcome::Accepted);
    receiver.set_accepted(Some(first.clone()));
    receiver.receive(&stamp(Some(origin(2, 0, 5, 11)), None, 8, 80));
    assert!(receiver.held().is_some_and(|hold| hold.to_string().contains("another store")));
    receiver.receive(&stamp(Some(origin(1, 0, 5, 11)), None, 6, 60));
    assert!(receiver.held().is_some(), "a stale command says nothing");
    receiver.receive(&first);
    assert_eq!(receiver.held(), None);
}

/// A store: what each of its revisions wrote is named by a number that no other transaction has.
#[derive(Debug, Clone)]
struct Store {
    identity: Uuid,
    epoch: u64,
    timelines: Timelines,
    transactions: Vec<u64>,
}

#[derive(Debug, Clone)]
enum Step {
    Write,
    Restart,
    Backup,
    Restore(usize),
    Replace,
    RaiseEpoch,
    Send { delayed: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Write),
        2 => Just(Step::Restart),
        2 => Just(Step::Backup),
        2 => any::<usize>().prop_map(Step::Restore),
        1 => Just(Step::Replace),
        1 => Just(Step::RaiseEpoch),
        6 => any::<bool>().prop_map(|delayed| Step::Send { delayed }),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Whatever happens to the store, what is accepted without an operator contains every transaction that was accepted before.
    // long: an arm for each thing that can happen to a store
    #[test]
    fn without_an_operator_nothing_that_was_accepted_is_lost(steps in steps()) {
        let fresh = |identity: u128, timeline| {
            let mut timelines = Timelines::default();
            timelines.begin(timeline, 0);
            Store { identity: Uuid::from_u128(identity), epoch: 0, timelines, transactions: Vec::new() }
        };
        let (mut names, mut identities) = (0, 1);
        let mut store = fresh(1, 0);
        let mut backups: Vec<Store> = Vec::new();
        let mut receiver = DesiredReceiver::default();
        let mut accepted: Option<(Stamp<u64>, Vec<u64>)> = None;
        let mut sent: BTreeMap<u64, (Stamp<u64>, Vec<u64>)> = BTreeMap::new();
        for step in steps {
            names += 1;
            let restarted = |mut store: Store| {
                store.timelines.begin(names, store.transactions.len() as u64);
                store
            };
            match step {
                Step::Write => store.transactions.push(names),
                Step::Restart => store = restarted(store),
                Step::Backup => backups.push(store.clone()),
                Step::Restore(n) if !backups.is_empty() => store = restarted(backups[n % backups.len()].clone()),
                Step::Restore(_) => {}
                Step::Replace => {
                    identities += 1;
                    store = fresh(identities, names);
                }
                Step::RaiseEpoch => {
                    let reported = accepted.as_ref().and_then(|(stamp, _)| stamp.origin).map_or(0, |origin| origin.epoch);
                    store.epoch = store.epoch.max(reported) + 1;
                }
                Step::Send { delayed } => {
                    let revision = store.transactions.len() as u64;
                    let reported = accepted.as_ref().and_then(|(stamp, _)| stamp.origin);
                    let follows = reported
                        .filter(|reported| reported.store == store.identity)
                        .and_then(|reported| store.timelines.last_of(reported.point.timeline, revision));
                    let point = store.timelines.at(revision).expect("a store has a timeline");
                    let origin = Origin { store: store.identity, epoch: store.epoch, point };
                    let version = accepted.as_ref().map_or(1, |(stamp, _)| stamp.version + 1);
                    let stamp = Stamp { origin: Some(origin), follows, decided_for: None, version, digest: names };
                    sent.insert(names, (stamp, store.transactions.clone()));
                    // What was sent earlier may come only now.
                    let key = if delayed { *sent.keys().next().unwrap() } else { names };
                    let (stamp, content) = sent.remove(&key).unwrap();
                    let outcome = receiver.receive(&stamp);
                    if outcome == Outcome::Accepted {
                        let by = |stamp: &Stamp<u64>| stamp.origin.expect("every sender says its origin");
                        if let Some((before, known)) = &accepted {
                            prop_assert!(stamp.version > before.version);
                            prop_assert!(by(&stamp).epoch >= by(before).epoch);
                            if by(&stamp).epoch == by(before).epoch {
                                prop_assert_eq!(by(&stamp).store, by(before).store);
                                prop_assert!(content.starts_with(known), "{:?} lacks some of {:?}", content, known);
                            }
                        }
                        receiver.set_accepted(Some(stamp.clone()));
                        accepted = Some((stamp, content));
                    }
                    prop_assert_eq!(matches!(outcome, Outcome::Held(_)), receiver.held().is_some() && outcome != Outcome::Stale);
                }
            }
        }
        // An operator's decision ends every hold.
        if let Some((before, _)) = &accepted {
            let reported = before.origin.expect("every sender says its origin");
            let revision = store.transactions.len() as u64;
            let point = store.timelines.at(revision).expect("a store has a timeline");
            let epoch = reported.epoch.max(store.epoch) + 1;
            let origin = Origin { store: store.identity, epoch, point };
            let decided_for = Some(before.digest);
            let decided = Stamp { origin: Some(origin), follows: None, decided_for, version: before.version + 1, digest: 0 };
            prop_assert_eq!(receiver.receive(&decided), Outcome::Accepted);
        }
    }
}
