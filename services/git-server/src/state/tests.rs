//! The state with a clock and a disk that the tests move.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster_manager_contract::NodeMetrics;
use git_hosting::credential::CredentialKeyPair;
use git_hosting::gatekeeper::Change as RefChange;
use git_server_contract::names::{push_device, repository_device};
use git_server_contract::pack::{PART_BYTES_MAX, Pack};
use git_server_contract::{Kind, PushDevice, RepositoryCopy, RepositoryPath};
use sparkplug::BdSeq;
use uuid::Uuid;

use super::*;
use crate::event::{CopyOutcome, CopyResult, CopyWork, PersistedCopy};

const A: Uuid = Uuid::from_u128(0xA);
const B: Uuid = Uuid::from_u128(0xB);
const PUSH: Uuid = Uuid::from_u128(0x9);
const MAIN: &str = "refs/heads/main";
const WALL: u64 = 1_800_000_000_000;

fn at(seconds: u64) -> Now {
    Now { mono: Duration::from_secs(seconds), wall: WALL + 1000 * seconds }
}

fn settings() -> Settings {
    Settings {
        organisation: Organisation::new("ACME").unwrap(),
        version: "1".to_owned(),
        url: "http://git".to_owned(),
        rate: Rate::per_minute(300),
        retry: (Duration::from_secs(1), Duration::from_secs(60)),
        push_limit: Duration::from_secs(600),
    }
}

fn commit(digit: u8) -> String {
    format!("{digit:x}").repeat(40)
}

fn desired(repository: Uuid, version: u64) -> DesiredRepository {
    DesiredRepository {
        repository,
        version,
        place: Some(RepositoryPath { path: "cluster/A".to_owned(), kind: Kind::Cluster }),
        refs: [(MAIN.to_owned(), commit(u8::try_from(version).unwrap()))].into(),
        password: Some("ab".repeat(32)),
        pulled: [].into(),
        no_push: None,
    }
}

/// The state, with its Devices as a reader has them.
struct Run {
    state: State,
    works: Vec<CopyWork>,
    copies: BTreeMap<Uuid, RepositoryCopy>,
    pushes: BTreeMap<Uuid, PushDevice>,
    ended: Vec<(Uuid, Result<(), Denial>)>,
    now: u64,
}

impl Run {
    fn new(persisted: PersistedCopies) -> Self {
        let state = State::new(settings(), persisted, at(100));
        let mut run = Self {
            state,
            works: Vec::new(),
            copies: BTreeMap::new(),
            pushes: BTreeMap::new(),
            ended: Vec::new(),
            now: 100,
        };
        run.take();
        run
    }

    fn on(&mut self, event: Event) {
        self.state.on_event(event, at(self.now));
        self.take();
    }

    /// Lets time pass, with every deadline in between.
    fn wait(&mut self, seconds: u64) {
        let end = self.now + seconds;
        while let Some(next) = self.state.next_deadline().filter(|next| *next <= Duration::from_secs(end)) {
            self.now = self.now.max(next.as_secs_f64().ceil() as u64);
            self.on(Event::DeadlineReached);
        }
        self.now = end;
    }

    fn take(&mut self) {
        for effect in self.state.poll_effects() {
            match effect {
                Effect::Copy(work) => self.works.push(*work),
                Effect::PushEnded(push, ended) => self.ended.push((push, ended)),
                Effect::Node(NodeUpdate::DeviceBirth { device, metrics }) => match repository_of(&device) {
                    Some(uuid) => drop(self.copies.insert(uuid, RepositoryCopy::from_metrics(&metrics).unwrap())),
                    None => {
                        let push = PushDevice::from_metrics(&metrics).unwrap();
                        self.pushes.insert(push_of(&device).unwrap(), push);
                    }
                },
                Effect::Node(NodeUpdate::Set { device: Some(device), metrics }) => match repository_of(&device) {
                    Some(uuid) => self.copies.get_mut(&uuid).unwrap().merge(&metrics).unwrap(),
                    None => self.pushes.get_mut(&push_of(&device).unwrap()).unwrap().merge(&metrics).unwrap(),
                },
                Effect::Node(NodeUpdate::DeviceDeath { device }) => {
                    self.pushes.remove(&push_of(&device).unwrap()).unwrap();
                }
                _ => {}
            }
            let (repositories, pushes) = (self.copies.len(), self.pushes.len());
            assert!(repositories <= self.state.copies.len() && pushes <= self.state.pushes.published());
        }
    }

    fn command(&mut self, device: Option<DeviceId>, metrics: Vec<Metric>) {
        self.on(Event::Node(NodeEvent::Command { device, metrics, timestamp: None }));
    }

    fn desire(&mut self, desired: &DesiredRepository) {
        let HostRequest::Command { metrics, .. } = desired.to_request(configdb_node(&settings().organisation)) else {
            panic!("a command")
        };
        self.command(None, metrics);
    }

    fn part(&mut self, repository: Uuid, part: &PackPart) {
        self.command(Some(repository_device(repository)), part.to_metrics());
    }

    fn answer(&mut self, received: u64, outcome: Option<Result<(), String>>) {
        self.command(Some(push_device(PUSH)), PushAnswer { received, outcome }.to_metrics());
    }

    /// The disk does the work that is waiting. The desired state that it worked for.
    fn copied(&mut self, refs: &DesiredRepository, outcome: CopyOutcome) -> CopyWork {
        let work = self.works.remove(0);
        self.on(Event::Copied(CopyResult {
            repository: work.desired.repository,
            version: work.desired.version,
            is_recorded: true,
            refs: refs.refs.clone(),
            is_served: refs.place.is_some(),
            outcome,
            pack_error: None,
        }));
        work
    }

    fn with(desired: &DesiredRepository) -> Self {
        let copy = PersistedCopy { desired: desired.clone(), refs: desired.refs.clone(), is_placed: true };
        Self::new([(desired.repository, copy)].into())
    }

    /// The cluster manager is there, or not.
    fn manager(&mut self, is_alive: bool) {
        let node = EdgeNodeDescriptor {
            edge_node: EdgeNodeId::new(CLUSTER_MANAGER_NODE).unwrap(),
            ..configdb_node(&settings().organisation)
        };
        let git_key = CredentialKeyPair::new([1; 32]).public().to_string();
        let metrics = NodeMetrics { git_key, ..NodeMetrics::default() }.to_metrics().into();
        self.on(Event::Host(match is_alive {
            true => HostEvent::NodeBirth { node, bd_seq: BdSeq::ZERO, timestamp: 0, uuid: None, metrics },
            false => HostEvent::NodeDeath { node, timestamp: 0 },
        }));
    }

    fn push(&mut self, pack: Vec<u8>) {
        let change = RefChange { before: Some(commit(1)), after: Some(commit(2)) };
        self.on(Event::Pushed(PushRequest {
            id: PUSH,
            repository: A,
            from: "10.0.0.7".to_owned(),
            credential: "hush".to_owned().into(),
            changes: [(MAIN.to_owned(), change)].into(),
            pack,
            randomness: [9; 32],
        }));
    }
}

#[test]
fn what_is_on_the_disk_is_published_at_once_and_only_what_differs_is_worked_on() {
    let (good, other) = (desired(A, 1), desired(B, 2));
    let copy = |desired: &DesiredRepository, refs: &DesiredRepository| PersistedCopy {
        desired: desired.clone(),
        refs: refs.refs.clone(),
        is_placed: true,
    };
    let mut run = Run::new([(A, copy(&good, &good)), (B, copy(&other, &good))].into());
    assert_eq!(run.state.node().repositories, 2);
    assert_eq!((run.copies[&A].version, &run.copies[&A].applied), (1, &Some(good.digest())));
    assert_eq!((run.copies[&B].version, &run.copies[&B].applied), (2, &None));
    assert_eq!(run.works.len(), 1);
    assert!(run.works[0].is_recorded);
    run.copied(&other, CopyOutcome::Applied);
    assert_eq!(run.copies[&B].state(), "served");
    assert_eq!(run.state.waiting(), 0);
}

#[test]
fn a_desired_state_counts_from_its_record_on_and_an_older_one_never() {
    let mut run = Run::with(&desired(A, 3));
    run.desire(&desired(A, 2));
    run.desire(&DesiredRepository { password: None, ..desired(A, 3) });
    run.desire(&desired(A, 3));
    assert!(run.works.is_empty(), "what is there, older, or of the same version does nothing");
    run.desire(&desired(A, 5));
    assert_eq!(run.copies[&A].version, 3);
    run.desire(&desired(A, 6));
    assert_eq!(run.works.len(), 1, "one piece of work at a time");
    assert_eq!(run.copied(&desired(A, 5), CopyOutcome::Applied).desired.version, 5);
    assert_eq!((run.copies[&A].version, &run.copies[&A].applied), (5, &Some(desired(A, 3).digest())));
    assert_eq!(run.copied(&desired(A, 6), CopyOutcome::Applied).desired.version, 6);
    assert_eq!((run.copies[&A].version, &run.copies[&A].applied), (6, &Some(desired(A, 6).digest())));
}

#[test]
fn work_that_failed_is_tried_again_with_growing_pauses_and_at_once_for_what_is_sent_again() {
    let mut run = Run::new(PersistedCopies::new());
    run.desire(&desired(A, 1));
    assert_eq!(run.copies[&A].state(), "not-served");
    run.copied(&DesiredRepository { refs: [].into(), ..desired(A, 1) }, CopyOutcome::Failed("full".to_owned()));
    assert_eq!(run.copies[&A].reason.as_deref(), Some("full"));
    assert!(run.works.is_empty());
    run.wait(120);
    assert_eq!(run.works.len(), 1);
    run.copied(&desired(A, 1), CopyOutcome::Failed("full".to_owned()));
    run.desire(&desired(A, 1));
    run.copied(&desired(A, 1), CopyOutcome::Applied);
    assert_eq!((run.copies[&A].reason.as_deref(), run.copies[&A].state()), (None, "served"));
}

#[test]
fn a_pack_is_taken_while_objects_are_missing_and_then_no_more() {
    let mut run = Run::with(&desired(A, 1));
    let pack = Pack::new(vec![7; PART_BYTES_MAX + 5].into());
    run.part(A, &pack.part(0));
    assert_eq!(run.copies[&A].pack, None, "nothing is missing");
    run.desire(&desired(A, 2));
    run.part(A, &pack.part(0));
    assert_eq!(run.copies[&A].pack, None, "it is not known whether something is missing");
    run.copied(&desired(A, 1), CopyOutcome::Missing);
    assert!(run.copies[&A].missing);
    run.part(A, &pack.part(PART_BYTES_MAX as u64));
    assert_eq!(run.copies[&A].pack, None, "its begin is missing");
    run.part(A, &pack.part(0));
    assert_eq!((run.copies[&A].pack.as_deref(), run.copies[&A].received), (Some(pack.digest()), PART_BYTES_MAX as u64));
    run.part(A, &pack.part(0));
    run.part(A, &pack.part(PART_BYTES_MAX as u64));
    assert_eq!(run.copies[&A].received, PART_BYTES_MAX as u64 + 5);
    let work = run.copied(&desired(A, 2), CopyOutcome::Applied);
    assert!(work.builds_on && work.packs == [pack]);
    assert_eq!((run.copies[&A].missing, &run.copies[&A].pack, run.copies[&A].received), (false, &None, 0));
}

#[test]
fn after_a_pack_that_left_something_out_the_next_one_is_to_be_whole() {
    let mut run = Run::with(&desired(A, 1));
    run.desire(&desired(A, 2));
    run.copied(&desired(A, 1), CopyOutcome::Missing);
    let pack = Pack::new(vec![7; 5].into());
    run.part(A, &pack.part(0));
    run.copied(&desired(A, 1), CopyOutcome::Missing);
    assert_eq!(
        (run.copies[&A].refs.len(), &run.copies[&A].commit),
        (0, &Some(commit(1))),
        "it says that it has nothing"
    );
    run.part(A, &pack.part(0));
    let work = run.copied(&desired(A, 2), CopyOutcome::Applied);
    assert!(!work.builds_on);
    assert_eq!(run.copies[&A].refs, desired(A, 2).refs);
}

#[test]
fn a_copy_that_is_closed_shows_no_commit_until_it_is_served_again() {
    let closed = |version| DesiredRepository { version, place: None, password: None, ..desired(A, 1) };
    let shown = |run: &Run| run.copies[&A].commit.clone();
    let mut run = Run::with(&desired(A, 1));
    assert_eq!(shown(&run), Some(commit(1)));
    run.desire(&closed(2));
    run.copied(&closed(2), CopyOutcome::Applied);
    assert_eq!((shown(&run), run.copies[&A].refs.clone()), (None, desired(A, 1).refs), "its objects stay");
    run.desire(&DesiredRepository { version: 3, ..desired(A, 1) });
    assert_eq!(shown(&run), None);
    run.copied(&desired(A, 1), CopyOutcome::Applied);
    assert_eq!(shown(&run), Some(commit(1)));
    assert_eq!(shown(&Run::with(&closed(2))), None, "nor after a start");
    let copy = PersistedCopy { desired: desired(A, 1), refs: desired(A, 1).refs, is_placed: false };
    assert_eq!(shown(&Run::new([(A, copy)].into())), None);
}

#[test]
fn packs_are_bounded_and_one_that_stops_is_dropped() {
    let mut run = Run::new(PersistedCopies::new());
    let all: Vec<Uuid> = (1..=3).map(Uuid::from_u128).collect();
    for uuid in &all {
        run.desire(&desired(*uuid, 1));
        run.copied(&DesiredRepository { refs: [].into(), ..desired(*uuid, 1) }, CopyOutcome::Missing);
        let data: Arc<[u8]> = vec![1; PART_BYTES_MAX].into();
        let digest = format!("{:064x}", uuid.as_u128());
        let total = git_server_contract::pack::PACK_BYTES_MAX;
        run.part(*uuid, &PackPart { digest, total, offset: 0, data });
    }
    assert!(run.copies[&all[1]].pack.is_some() && run.copies[&all[2]].pack.is_none());
    assert!(run.copies[&all[2]].reason.as_ref().unwrap().contains("too many packs"));
    run.wait(301);
    assert!(run.copies[&all[0]].pack.is_none() && run.copies[&all[1]].pack.is_none());
    let small = Pack::new(vec![1; 9].into());
    run.part(all[2], &small.part(0));
    assert_eq!((run.works.len(), run.copies[&all[2]].reason.as_deref()), (1, None));
}

#[test]
fn that_a_cluster_asks_is_said_once_a_minute() {
    let mut run = Run::with(&desired(A, 1));
    for _ in 0..130 {
        run.on(Event::Polled(A));
        run.on(Event::Polled(B));
        let polled = run.copies[&A].polled.unwrap();
        assert!(
            polled <= at(run.now).wall
                && at(run.now).wall - polled < 60_000
                && (polled - at(100).wall).is_multiple_of(60_000)
        );
        run.wait(1);
    }
    assert_eq!(run.copies.len(), 1);
}

#[test]
fn a_push_goes_part_by_part_and_ends_when_the_copy_shows_it() {
    let mut run = Run::with(&desired(A, 1));
    run.push(vec![1; 3]);
    assert!(matches!(&run.ended[..], [(PUSH, Err(Denial::NotAtPresent(_)))]), "the cluster manager is away");
    run.ended.clear();
    run.manager(true);
    run.push(vec![1; PART_BYTES_MAX + 3]);
    let push = run.pushes[&PUSH].clone();
    assert_eq!((push.offset, push.data.len(), push.state()), (0, PART_BYTES_MAX, "sending"));
    let opened = CredentialKeyPair::new([1; 32]).open((A, PUSH), &push.credential).unwrap();
    assert_eq!(opened.as_str(), "hush");
    assert_eq!(run.state.node().pushes, 1);
    run.wait(5);
    assert_eq!(run.pushes[&PUSH].attempt, 2, "it is sent again");
    run.answer(PART_BYTES_MAX as u64, None);
    assert_eq!((run.pushes[&PUSH].offset, run.pushes[&PUSH].state()), (PART_BYTES_MAX as u64, "deciding"));
    run.answer(0, None);
    assert_eq!(run.pushes[&PUSH].offset, 0, "a cluster manager that has started again has nothing");
    run.answer(PART_BYTES_MAX as u64, None);
    run.answer(PART_BYTES_MAX as u64 + 3, None);
    run.answer(PART_BYTES_MAX as u64 + 3, Some(Ok(())));
    assert!(run.pushes.is_empty() && run.ended.is_empty());
    assert_eq!(run.copied(&desired(A, 1), CopyOutcome::Applied).packs.len(), 1, "the copy has the objects already");
    assert!(run.ended.is_empty(), "it is not there yet");
    run.desire(&desired(A, 2));
    run.copied(&desired(A, 2), CopyOutcome::Applied);
    assert_eq!(run.ended, [(PUSH, Ok(()))]);
    run.answer(3, Some(Err("late".to_owned())));
    assert_eq!(run.ended.len(), 1);
}

#[test]
fn a_push_that_is_refused_or_not_answered_ends_with_the_reason() {
    let mut run = Run::with(&desired(A, 1));
    run.manager(true);
    run.push(vec![]);
    assert_eq!((&*run.pushes[&PUSH].digest, run.pushes[&PUSH].state()), ("", "deciding"));
    run.answer(0, Some(Err("not on Fridays".to_owned())));
    assert_eq!(run.ended.remove(0), (PUSH, Err(Denial::Forbidden("not on Fridays".to_owned()))));
    assert!(run.pushes.is_empty() && run.works.is_empty());

    run.push(vec![1; 3]);
    run.manager(false);
    run.wait(59);
    assert!(run.ended.is_empty() && run.pushes[&PUSH].attempt > 20);
    run.wait(2);
    assert!(
        matches!(run.ended.remove(0), (PUSH, Err(Denial::NotAtPresent(reason))) if reason.contains("does not answer"))
    );
    assert!(run.pushes.is_empty());
    run.manager(true);

    // It answers for ever that it has all and decides nothing.
    run.push(vec![1; 3]);
    for _ in 0..700 {
        run.answer(3, None);
        run.wait(1);
    }
    assert!(matches!(run.ended.remove(0), (PUSH, Err(Denial::NotAtPresent(_)))));

    // It is accepted, and the copy does not follow.
    run.push(vec![1; 3]);
    run.answer(3, Some(Ok(())));
    run.wait(61);
    assert_eq!(run.ended, [(PUSH, Ok(()))]);
    assert_eq!(run.state.next_deadline(), None);
}

#[test]
fn pushes_are_bounded_in_memory() {
    let mut run = Run::with(&desired(A, 1));
    run.manager(true);
    let large = usize::try_from(git_server_contract::pack::PACK_BYTES_MAX).unwrap();
    run.push(vec![0; large + 1]);
    assert!(matches!(&run.ended.remove(0).1, Err(Denial::Forbidden(reason)) if reason.contains("too large")));
}

#[test]
fn no_user_is_admitted_before_configdb_is_known() {
    let mut run = Run::with(&desired(A, 1));
    let credential = crate::event::Credential::Verified(access::Principal { name: "ada".to_owned(), grants: vec![] });
    let asked =
        GitRequest { id: 1, from: "10.0.0.7".to_owned(), credential, repository: Some((A, false)), push: false };
    let denied = run.state.admit(&asked, at(100)).unwrap_err();
    assert!(matches!(denied, Denial::NotAtPresent(reason) if reason.contains("ConfigDB")));
}

#[test]
fn rubbish_is_ignored() {
    let mut run = Run::with(&desired(A, 1));
    for device in [None, Some(repository_device(A)), Some(repository_device(B)), Some(push_device(PUSH))] {
        for metrics in [
            vec![],
            vec![Metric::new("Desired/Repository", "{}")],
            vec![Metric::new("Pack/Digest", "x")],
            vec![Metric::new("Answer/Received", "x")],
            vec![Metric::new("Answer/Received", 1_u64), Metric::new("Answer/Accepted", true)],
        ] {
            run.command(device.clone(), metrics);
        }
    }
    assert!(run.works.is_empty() && run.ended.is_empty() && run.copies.len() == 1);
}
