//! A sender that restarts, over a store that is restored, and a receiver behind a channel that loses, repeats and reorders in both directions.

use std::collections::VecDeque;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::replication::{DesiredReceiver, Outcome, Stamp, Timelines};

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

fn pace() -> Pace {
    Pace { first: FIRST, longest: LONGEST, seed: 7 }
}

fn at(mono: Duration) -> Now {
    Now { mono, wall: 0 }
}

fn desired(digest: u64, revision: u64) -> Desired<u64> {
    Desired { digest, origin: None, follows: None, is_ageing: false, revision }
}

fn report(version: u64, digest: Option<u64>) -> Report<u64> {
    Report { version, digest, origin: None, held: None }
}

#[test]
fn a_version_is_that_of_the_report_or_the_one_given_or_one_that_was_not_seen() {
    let mut sender = DesiredSender::default();
    let mut version = |digest, revision, report| sender.compare(&desired(digest, revision), &report).version;
    assert_eq!(version(1, 40, report(0, None)), 40, "that of the store");
    assert_eq!(version(1, 57, report(0, None)), 40, "what is unanswered stays as it is");
    assert_eq!(version(2, 3, report(40, Some(1))), 41, "the store began again");
    assert_eq!(version(2, 3, report(41, Some(9))), 42, "another sender has given that version");
    let mut restarted = DesiredSender::default();
    let compared = restarted.compare(&desired(2, 3), &report(42, Some(2)));
    assert_eq!((compared.version, compared.is_agreed()), (42, true));
    assert!(restarted.has_assigned(42, &2) && !restarted.has_assigned(42, &1));
}

#[test]
fn it_is_agreed_only_with_a_receiver_that_follows_this_store() {
    let timelines = |at| crate::replication::Point { timeline: 1, revision: at };
    let here = Origin { store: Uuid::from_u128(1), epoch: 0, point: timelines(5) };
    let elsewhere = Origin { store: Uuid::from_u128(2), ..here };
    let wanted = Desired { origin: Some(here), ..desired(1, 5) };
    let agreed = |origin, held| {
        let report = Report { origin, held, ..report(5, Some(1)) };
        DesiredSender::default().compare(&wanted, &report).is_agreed()
    };
    assert!(agreed(Some(here), Some(false)) && agreed(None, None), "one that does not judge follows every store");
    assert!(!agreed(Some(elsewhere), Some(false)) && !agreed(Some(here), Some(true)) && !agreed(None, Some(false)));
}

#[test]
fn what_was_accepted_from_a_timeline_that_ages_is_sent_again_as_one_new_version() {
    let mut sender = DesiredSender::default();
    let ageing = Desired { is_ageing: true, ..desired(1, 50) };
    for _ in 0..2 {
        let compared = sender.compare(&ageing, &report(5, Some(1)));
        assert_eq!((compared.version, compared.is_agreed()), (50, false));
    }
    let compared = sender.compare(&desired(1, 60), &report(50, Some(1)));
    assert_eq!((compared.version, compared.is_agreed()), (50, true));
}

#[test]
fn it_is_sent_at_once_then_with_growing_pauses_and_at_once_again_when_it_is_another() {
    let mut sender = DesiredSender::default();
    let mut now = Duration::ZERO;
    let mut step = FIRST;
    for _ in 0..20 {
        let compared = sender.compare(&desired(1, 5), &report(0, None));
        assert!(sender.send(compared.clone(), pace(), at(now)));
        assert!(!sender.send(compared, pace(), at(now)));
        let next = sender.next_deadline().unwrap();
        assert!(next - now >= step / 2 && next - now <= step, "{:?} of {step:?}", next - now);
        (now, step) = (next, (step * 2).min(LONGEST));
    }
    let compared = sender.compare(&desired(2, 6), &report(0, None));
    assert!(sender.send(compared, pace(), at(now)));
    assert!(sender.next_deadline().unwrap() - now <= FIRST);
    sender.pause();
    assert_eq!(sender.next_deadline(), None);
    let compared = sender.compare(&desired(2, 6), &report(6, Some(2)));
    assert!(!sender.send(compared, pace(), at(now)) && sender.next_deadline().is_none());
}

/// The sender's store: its content is the number of the last transaction.
#[derive(Debug, Clone)]
struct Store {
    timelines: Timelines,
    revision: u64,
    content: u64,
}

/// What is stored by the receiver, and what it holds since.
#[derive(Debug, Default)]
struct Edge {
    receiver: DesiredReceiver<u64>,
    accepted: Option<Stamp<u64>>,
}

impl Edge {
    fn report(&self) -> Report<u64> {
        Report {
            version: self.accepted.as_ref().map_or(0, |stamp| stamp.version),
            digest: self.accepted.as_ref().map(|stamp| stamp.digest),
            origin: self.accepted.as_ref().and_then(|stamp| stamp.origin),
            held: Some(self.receiver.held().is_some()),
        }
    }
}

/// Both sides, and what is on its way between them.
struct World {
    store: Store,
    sender: DesiredSender<u64>,
    /// The report that the sender received last.
    known: Option<Report<u64>>,
    edge: Edge,
    down: VecDeque<Stamp<u64>>,
    up: VecDeque<Report<u64>>,
    now: Duration,
    sends: u32,
}

impl World {
    fn new() -> Self {
        let mut timelines = Timelines::default();
        timelines.begin(0, 0);
        Self {
            store: Store { timelines, revision: 1, content: 0 },
            sender: DesiredSender::default(),
            known: None,
            edge: Edge::default(),
            down: VecDeque::new(),
            up: VecDeque::new(),
            now: Duration::ZERO,
            sends: 0,
        }
    }

    /// The sender's turn. True: both agree, as far as it knows.
    fn turn(&mut self) -> bool {
        let Some(report) = &self.known else { return false };
        let store = &self.store;
        let origin = store.timelines.at(store.revision).map(|point| Origin { store: Uuid::nil(), epoch: 0, point });
        let follows = report.origin.and_then(|at| store.timelines.last_of(at.point.timeline, store.revision));
        let wanted = Desired { digest: store.content, origin, follows, is_ageing: false, revision: store.revision };
        let compared = self.sender.compare(&wanted, report);
        let (version, is_agreed) = (compared.version, compared.is_agreed());
        if self.sender.send(compared, pace(), at(self.now)) {
            self.sends += 1;
            self.down.push_back(Stamp { origin, follows, decided_for: None, version, digest: store.content });
        }
        is_agreed
    }

    /// A command arrives; what is accepted is stored before it is reported.
    fn deliver(&mut self, stamp: &Stamp<u64>) {
        let outcome = self.edge.receiver.receive(stamp);
        if outcome == Outcome::Accepted {
            let before = self.edge.accepted.as_ref().map_or(0, |accepted| accepted.version);
            assert!(stamp.version > before, "a version fell: {} after {before}", stamp.version);
            self.edge.receiver.set_accepted(Some(stamp.clone()));
            self.edge.accepted = Some(stamp.clone());
        }
        self.up.push_back(self.edge.report());
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write,
    Restore(usize),
    RestartSender,
    RestartReceiver,
    Wait(u16),
    /// The message in the middle of a queue; it is delivered, lost, or delivered and kept.
    Command(u8, Fate),
    Report(u8, Fate),
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    Delivered,
    Lost,
    Repeated,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fate = || prop_oneof![3 => Just(Fate::Delivered), 1 => Just(Fate::Lost), 1 => Just(Fate::Repeated)];
    let step = prop_oneof![
        3 => Just(Step::Write),
        1 => any::<usize>().prop_map(Step::Restore),
        1 => Just(Step::RestartSender),
        1 => Just(Step::RestartReceiver),
        4 => any::<u16>().prop_map(Step::Wait),
        5 => (any::<u8>(), fate()).prop_map(|(at, fate)| Step::Command(at, fate)),
        5 => (any::<u8>(), fate()).prop_map(|(at, fate)| Step::Report(at, fate)),
    ];
    prop::collection::vec(step, 1..80)
}

/// Takes a message out of a queue, at any place; None: it is lost, or there is none.
fn taken<T: Clone>(queue: &mut VecDeque<T>, at: u8, fate: Fate) -> Option<T> {
    let at = usize::from(at).checked_rem(queue.len())?;
    match fate {
        Fate::Delivered => queue.remove(at),
        Fate::Repeated => queue.get(at).cloned(),
        Fate::Lost => queue.remove(at).and(None),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever is lost, repeated, overtaken, restarted or restored, versions never fall at the receiver (`deliver`). The pauses keep the number of commands small.
    /// As soon as messages arrive again both agree, or the receiver holds.
    #[test]
    // long: an arm for each thing that can happen to the two sides
    fn both_agree_or_the_receiver_holds(steps in steps()) {
        let mut world = World::new();
        let mut backups = vec![world.store.clone()];
        let (mut names, mut changes) = (0, 1);
        world.up.push_back(world.edge.report());
        for step in steps {
            match step {
                Step::Write => {
                    names += 1;
                    changes += 1;
                    world.store.revision += 1;
                    world.store.content = names;
                    backups.push(world.store.clone());
                }
                Step::Restore(n) => {
                    names += 1;
                    changes += 1;
                    world.store = backups[n % backups.len()].clone();
                    let revision = world.store.revision;
                    world.store.timelines.begin(names, revision);
                }
                Step::RestartSender => {
                    changes += 1;
                    (world.sender, world.known) = (DesiredSender::default(), None);
                    world.up.push_back(world.edge.report());
                }
                Step::RestartReceiver => {
                    // It reads what it stored; what it held it does not know any more.
                    changes += 1;
                    let accepted = world.edge.accepted.clone();
                    world.edge.receiver = DesiredReceiver::default();
                    world.edge.receiver.set_accepted(accepted);
                    world.up.push_back(world.edge.report());
                }
                Step::Wait(ms) => world.now += Duration::from_millis(ms.into()),
                Step::Command(at, fate) => {
                    if let Some(stamp) = taken(&mut world.down, at, fate) {
                        world.deliver(&stamp);
                    }
                }
                Step::Report(at, fate) => {
                    if let Some(report) = taken(&mut world.up, at, fate) {
                        changes += 1;
                        world.known = Some(report);
                    }
                }
            }
            world.turn();
            // Each wait lasts at least half of the first one, and each change may send at once.
            let waits = 2 * world.now.as_millis() / FIRST.as_millis();
            prop_assert!(u128::from(world.sends) <= waits + changes + 1, "{} commands", world.sends);
        }
        // From here on every message arrives.
        (world.down, world.up) = (VecDeque::new(), VecDeque::new());
        world.known = Some(world.edge.report());
        for _ in 0..20 {
            if world.turn() {
                break;
            }
            while let Some(stamp) = world.down.pop_front() {
                world.deliver(&stamp);
            }
            world.known = Some(world.edge.report());
            world.now += LONGEST;
        }
        let is_held = world.edge.receiver.held().is_some();
        prop_assert!(world.turn() || is_held, "{:?} and {:?}", world.store, world.edge);
        if !is_held {
            prop_assert_eq!(world.edge.report().digest, Some(world.store.content));
            prop_assert_eq!(world.sender.next_deadline(), None);
        }
    }
}
