//! Copies and pushes against a git server that lives in this file. Its objects are commits; a pack names those in it and those that it builds on.

use super::*;
use crate::event::{
    CopyAction, CopyOutcome, CopyResult, CopyWork, Original, PackFile, PushResult, PushWork, SharedOutcome,
    SharedResult,
};
use git_hosting::repositories::Kind;
use git_server_contract::pack::{PART_BYTES_MAX, Pack, PackPart, Received};
use git_server_contract::push::RefChange;
use git_server_contract::{
    DesiredRepository, GitDevice, GitNode, PackReceiver, PushAnswer, PushDevice, RepositoryCopy,
};

const MAIN: &str = "refs/heads/main";
const SHARED: Uuid = Uuid::from_u128(0x51);
const PUSH: Uuid = Uuid::from_u128(0x9A);

/// One copy.
#[derive(Debug, Clone, Default)]
struct Stored {
    desired: Option<DesiredRepository>,
    shown: RepositoryCopy,
    objects: BTreeSet<String>,
    receiver: PackReceiver,
}

/// The git server.
#[derive(Debug, Default)]
pub(super) struct Git {
    url: String,
    stored: BTreeMap<Uuid, Stored>,
    pushes: BTreeMap<Uuid, PushDevice>,
    answers: BTreeMap<Uuid, PushAnswer>,
    /// Every so manieth command is lost.
    loses: Option<usize>,
    /// It reports that a pack has arrived before it judges it.
    shows_arrival: bool,
    /// It accepts versions and keeps what it has.
    keeps: bool,
    /// Packs that build on other objects are damaged here.
    fails_thin: bool,
    /// So are all.
    fails_all: bool,
    commands: usize,
    desired: usize,
    parts: usize,
}

fn node() -> EdgeNodeDescriptor {
    git_server_contract::names::node("ACME").unwrap()
}

fn data(repository: Uuid, copy: &RepositoryCopy) -> HostEvent {
    let device = git_server_contract::names::repository_device(repository);
    HostEvent::DeviceData { node: node(), device, timestamp: 0, metrics: copy.to_metrics() }
}

fn birth_of(repository: Uuid, copy: &RepositoryCopy) -> HostEvent {
    let device = git_server_contract::names::repository_device(repository);
    HostEvent::DeviceBirth { node: node(), device, timestamp: 0, metrics: copy.to_metrics().into() }
}

/// The births of a git server that has these commits, and to which one cluster came at that time.
pub(super) fn polled(cluster: Uuid, at: u64, commits: impl IntoIterator<Item = (Uuid, String)>) -> Vec<HostEvent> {
    let stored = |(repository, commit)| {
        let polled = (repository == cluster).then_some(at);
        let shown = RepositoryCopy { polled, commit: Some(commit), ..RepositoryCopy::default() };
        (repository, Stored { shown, ..Stored::default() })
    };
    Git { stored: commits.into_iter().map(stored).collect(), ..Git::default() }.birth()
}

impl Stored {
    /// As far as its objects go.
    fn apply(&mut self) {
        let Some(desired) = &self.desired else { return };
        let is_there = |object: &String| self.objects.contains(object);
        self.shown.missing = !desired.refs.values().all(is_there);
        if !self.shown.missing {
            self.shown.refs.clone_from(&desired.refs);
            self.shown.commit = desired.refs.get("refs/heads/main").cloned();
            self.shown.applied = Some(desired.digest());
            self.shown.reason = None;
        }
    }

    fn take(&mut self, pack: &Pack, fails_thin: bool, fails_all: bool) {
        let text = std::str::from_utf8(pack.bytes()).unwrap();
        let (base, objects) = text.trim_end().split_once('|').unwrap();
        let ids = |text: &str| text.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
        if !ids(base).is_subset(&self.objects) || fails_thin && !base.is_empty() || fails_all {
            self.shown.reason = Some("the pack cannot be taken: unresolved deltas".to_owned());
            return;
        }
        self.objects.extend(ids(objects));
    }
}

impl Git {
    fn up(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }

    fn node_metrics(&self) -> Vec<Metric> {
        let count = |number: usize| u32::try_from(number).unwrap();
        let node = GitNode {
            url: self.url.clone(),
            repositories: count(self.stored.len()),
            pushes: count(self.pushes.len()),
            ..GitNode::default()
        };
        node.to_metrics()
    }

    pub(super) fn birth(&self) -> Vec<HostEvent> {
        let metrics = self.node_metrics().into();
        let mut events =
            vec![HostEvent::NodeBirth { node: node(), bd_seq: BdSeq::ZERO, timestamp: 0, uuid: None, metrics }];
        events.extend(self.stored.iter().map(|(uuid, stored)| birth_of(*uuid, &stored.shown)));
        events.extend(self.pushes.iter().map(|(id, push)| HostEvent::DeviceBirth {
            node: node(),
            device: git_server_contract::names::push_device(*id),
            timestamp: 0,
            metrics: push.to_metrics().into(),
        }));
        events
    }

    fn count(&self) -> HostEvent {
        HostEvent::NodeData { node: node(), timestamp: 0, metrics: self.node_metrics() }
    }

    pub(super) fn command(&mut self, device: Option<&DeviceId>, metrics: &[Metric]) -> Vec<HostEvent> {
        self.commands += 1;
        if self.loses.is_some_and(|every| self.commands.is_multiple_of(every)) {
            return Vec::new();
        }
        if let Some(desired) = DesiredRepository::from_metrics(metrics) {
            self.desired += 1;
            return self.accept(desired.unwrap());
        }
        let device = device.expect("it is for a Device");
        if let Some(push) = git_server_contract::names::push_of(device) {
            self.answers.insert(push, PushAnswer::from_metrics(metrics).unwrap().unwrap());
            return Vec::new();
        }
        let repository = git_server_contract::names::repository_of(device).unwrap();
        self.parts += 1;
        let stored = self.stored.get_mut(&repository).expect("it was born");
        let mut events = Vec::new();
        match stored.receiver.receive(&PackPart::from_metrics(metrics).unwrap().unwrap()) {
            Received::Whole(pack) => {
                // It is judged after that.
                stored.shown.pack = Some(pack.digest().to_owned());
                stored.shown.received = pack.bytes().len() as u64;
                if self.shows_arrival {
                    events.push(data(repository, &stored.shown));
                }
                stored.take(&pack, self.fails_thin, self.fails_all);
                stored.apply();
            }
            Received::Wrong => panic!("a wrong pack"),
            Received::More | Received::Repeated => {}
        }
        let progress = stored.receiver.progress();
        stored.shown.pack = progress.map(|(digest, _)| digest.to_owned());
        stored.shown.received = progress.map_or(0, |(_, received)| received);
        events.push(data(repository, &stored.shown));
        events
    }

    fn accept(&mut self, desired: DesiredRepository) -> Vec<HostEvent> {
        let repository = desired.repository;
        let is_new = !self.stored.contains_key(&repository);
        let stored = self.stored.entry(repository).or_default();
        if desired.version < stored.shown.version {
            return vec![data(repository, &stored.shown)];
        }
        stored.shown.version = desired.version;
        if self.keeps {
            return vec![data(repository, &stored.shown)];
        }
        stored.shown.path = desired.place.as_ref().map(|place| place.path.clone()).unwrap_or_default();
        stored.desired = Some(desired);
        stored.apply();
        let shown = stored.shown.clone();
        if is_new { vec![self.count(), birth_of(repository, &shown)] } else { vec![data(repository, &shown)] }
    }

    /// A client pushes.
    fn push(&mut self, push: PushDevice) -> Vec<HostEvent> {
        let metrics = push.to_metrics().into();
        let device = git_server_contract::names::push_device(PUSH);
        self.pushes.insert(PUSH, push);
        vec![self.count(), HostEvent::DeviceBirth { node: node(), device, timestamp: 0, metrics }]
    }

    /// Shows the part that was asked for.
    fn next_part(&mut self, pack: &Pack) -> HostEvent {
        let push = self.pushes.get_mut(&PUSH).unwrap();
        push.set_part(pack.part(self.answers[&PUSH].received));
        let (device, metrics) = (git_server_contract::names::push_device(PUSH), push.to_metrics());
        HostEvent::DeviceData { node: node(), device, timestamp: 0, metrics }
    }
}

/// What the disk does for copies, and for pushes.
#[derive(Debug, Default)]
pub(super) struct Packs {
    made: BTreeMap<String, Pack>,
    dropped: usize,
    /// Bytes that each pack has at least.
    bytes: usize,
    /// The disk does not answer.
    hangs: bool,
    /// Branches of a cluster's repository beside `main`.
    branches: usize,
    /// Why no pack can be made.
    fails: Option<&'static str>,
    /// Pushes that were given to the disk.
    pub pushed: Vec<PushWork>,
}

impl World {
    /// A git server that has nothing yet.
    fn with_git(&mut self) {
        self.git = Some(Git::up("http://git"));
        let births = self.git.as_ref().unwrap().birth();
        self.feed(births);
    }

    fn git(&mut self) -> &mut Git {
        self.git.as_mut().unwrap()
    }

    fn git_dies(&mut self) {
        self.feed(vec![HostEvent::NodeDeath { node: node(), timestamp: 0 }]);
    }

    fn git_returns(&mut self) {
        let births = self.git().birth();
        self.feed(births);
    }

    fn original(&self, repository: Uuid) -> Option<Original> {
        let refs = |commit: String| BTreeMap::from([(MAIN.to_owned(), commit)]);
        if let Some(path) = self.disk.open.get(&repository) {
            let mut refs = refs(self.disk.commit(repository));
            let commit = refs[MAIN].clone();
            refs.extend((0..self.packs.branches).map(|n| (format!("refs/heads/b{n}"), commit.clone())));
            return Some(Original { path: path.clone(), kind: Kind::Cluster, refs, password: Some("ab".repeat(32)) });
        }
        let path = self.shared.open.get(&repository)?;
        let refs = refs(self.disk.commit(repository));
        Some(Original { path: path.clone(), kind: Kind::Shared, refs, password: None })
    }

    pub(super) fn work_on_copy(&mut self, work: CopyWork) {
        let CopyWork { repository, action } = work;
        if self.packs.hangs {
            return;
        }
        let outcome = match action {
            CopyAction::Inspect => CopyOutcome::Inspected(Ok(self.original(repository))),
            CopyAction::Pack { .. } if self.packs.fails.is_some() => {
                CopyOutcome::Packed(Err(self.packs.fails.unwrap_or_default().to_owned()))
            }
            CopyAction::Pack { refs, has } => {
                let of = |ids: &mut dyn Iterator<Item = &String>| ids.cloned().collect::<Vec<_>>().join(" ");
                let new = of(&mut refs.values().filter(|id| !has.contains(*id)));
                let mut text = format!("{}|{new}", of(&mut has.iter()));
                text.push_str(&" ".repeat(self.packs.bytes.saturating_sub(text.len())));
                let pack = Pack::new(text.into_bytes().into());
                let file = PackFile { digest: pack.digest().to_owned(), bytes: pack.bytes().len() as u64 };
                self.packs.made.insert(file.digest.clone(), pack);
                CopyOutcome::Packed(Ok((!new.is_empty()).then_some(file)))
            }
            CopyAction::Part { node: to, file, offset } => {
                assert_eq!(to, node());
                let part = self.packs.made[&file.digest].part(offset);
                let HostRequest::Command { device, metrics, .. } = part.to_request(to, repository) else { panic!() };
                let events = self.git.as_mut().map(|git| git.command(device.as_ref(), &metrics));
                return self.feed(events.unwrap_or_default());
            }
            CopyAction::DropPack(_) => {
                self.packs.dropped += 1;
                return;
            }
        };
        self.manager.on_event(Event::Copy(CopyResult { repository, outcome }), self.now);
    }

    /// What the manager's node says of repositories of which the git server has not everything.
    fn not_served(&self) -> Vec<(&str, &str)> {
        self.node.repositories_not_served.iter().map(|(path, reason)| (path.as_str(), reason.as_str())).collect()
    }

    fn is_copied(&self, repository: Uuid) -> bool {
        let stored = self.git.as_ref().and_then(|git| git.stored.get(&repository));
        stored.is_some_and(|stored| {
            stored.shown.applied.is_some()
                && !stored.shown.missing
                && stored.shown.refs.get(MAIN) == Some(&self.disk.commit(repository))
        })
    }

    /// A user commits on the disk, and what may have moved it is reported.
    fn commits(&mut self, cluster: Uuid) {
        self.disk.push(cluster);
        self.manager.copies.changed(cluster);
        self.manager.on_event(Event::DeadlineReached, self.now);
    }
}

fn copied() -> World {
    let mut world = World::new(Kill::Never);
    world.with_git();
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.settle();
    assert!(world.is_copied(CLUSTER));
    world
}

#[test]
fn a_repository_reaches_the_git_server_with_its_password_and_its_commits() {
    let mut world = copied();
    let desired = world.git().stored[&CLUSTER].desired.clone().unwrap();
    let place = desired.place.unwrap();
    assert_eq!((place.path.as_str(), place.kind), ("cluster/Paint_Shop", git_server_contract::Kind::Cluster));
    assert_eq!((desired.password, desired.no_push), (Some("ab".repeat(32)), None));
    let parts = world.git().parts;
    for _ in 0..3 {
        world.commits(CLUSTER);
        world.settle();
        assert!(world.is_copied(CLUSTER));
    }
    assert_eq!(world.git().parts, parts + 3, "each pack is small");
    assert_eq!(world.packs.dropped, 4, "no pack is left");
    let commands = world.git().commands;
    world.run(Duration::from_secs(600));
    assert_eq!(world.git().commands, commands, "nothing is repeated that is agreed");
}

#[test]
fn a_large_pack_travels_in_parts_whatever_is_lost() {
    for (loses, shows_arrival) in [None, Some(2), Some(3), Some(5)].into_iter().zip([true, false].into_iter().cycle()) {
        let mut world = World::new(Kill::Never);
        world.packs.bytes = 5 * PART_BYTES_MAX + 17;
        world.with_git();
        world.git().loses = loses;
        world.git().shows_arrival = shows_arrival;
        world.put_cluster(CLUSTER, "Paint_Shop");
        world.run(Duration::from_secs(300));
        assert!(world.is_copied(CLUSTER), "{loses:?}");
        assert!(world.git().parts < 20, "{loses:?} {}", world.git().parts);
        // A commit while a pack is on its way does not make it useless.
        world.commits(CLUSTER);
        world.run(Duration::from_secs(300));
        assert!(world.is_copied(CLUSTER), "{loses:?}");
    }
}

#[test]
fn commits_while_a_pack_is_on_its_way_follow_it() {
    let mut world = World::new(Kill::Never);
    world.packs.bytes = 4 * PART_BYTES_MAX;
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.settle();
    world.with_git();
    let mut commits = 0;
    for _ in 0..10_000 {
        let effects = world.manager.poll_effects();
        if effects.is_empty() {
            break;
        }
        for effect in effects {
            let is_part = matches!(&effect, Effect::Copy(CopyWork { action: CopyAction::Part { .. }, .. }));
            world.execute(effect);
            if is_part && commits < 6 {
                commits += 1;
                world.commits(CLUSTER);
            }
        }
    }
    world.settle();
    assert!(world.is_copied(CLUSTER));
    assert!(world.git().parts <= 12, "{}", world.git().parts);
}

#[test]
fn a_git_server_that_was_away_or_lost_everything_has_it_again() {
    let mut world = copied();
    world.git_dies();
    world.commits(CLUSTER);
    let commands = world.git().commands;
    world.run(Duration::from_secs(300));
    assert_eq!(world.git().commands, commands, "who is away is sent nothing");
    world.git_returns();
    world.settle();
    assert!(world.is_copied(CLUSTER));

    world.git_dies();
    world.git = Some(Git::up("http://git"));
    world.git_returns();
    world.settle();
    assert!(world.is_copied(CLUSTER));
}

#[test]
fn a_new_process_or_one_that_was_restored_is_followed() {
    let mut world = copied();
    let version = world.git().stored[&CLUSTER].shown.version;
    let before = world.git().desired;
    world.start();
    world.settle();
    assert!(world.is_copied(CLUSTER));
    assert_eq!(world.git().desired, before, "what is agreed is not sent again");
    // The disk came back older: the branch is where it was, which the copy has.
    world.commits(CLUSTER);
    world.settle();
    world.disk.at.insert(CLUSTER, 1);
    world.start();
    world.settle();
    assert!(world.is_copied(CLUSTER) && world.git().stored[&CLUSTER].shown.version > version);
}

#[test]
fn a_push_counts_also_where_the_result_of_what_was_written_before_it_comes_last() {
    let mut world = copied();
    let before = world.disk.commit(CLUSTER);
    world.start();
    // The new process writes what is there already, and the answer takes its time.
    let mut written = None;
    for _ in 0..100 {
        for effect in world.manager.poll_effects() {
            match effect {
                Effect::Git(work) => written = Some(world.disk.carry_out(work)),
                other => world.execute(other),
            }
        }
    }
    world.disk.push(CLUSTER);
    let after = world.disk.commit(CLUSTER);
    assert_ne!(before, after);
    world.manager.on_push(Moved { repository: CLUSTER, shared: false, commit: Some(after.clone()) });
    world.manager.on_event(Event::Git(written.expect("it was written")), world.now);
    world.settle();
    assert_eq!(world.device().git_commit.as_ref(), Some(&after));
    assert!(world.is_copied(CLUSTER));
}

#[test]
fn a_push_into_a_shared_repository_counts_also_where_the_result_of_a_pull_before_it_comes_last() {
    let mut world = copied();
    let pull = json!({"url": "https://code.example/x", "ref": "release", "interval": "never"});
    world.put_repository(SHARED, json!({"path": "shared/charts", "pull": {"release": pull}}));
    world.disk.push(SHARED);
    world.settle();
    world.disk.push(SHARED);
    let outcome = SharedOutcome { main: Some("b".repeat(40)), pulled: None, diverged: false };
    let result = SharedResult { repository: SHARED, branch: Some("release".to_owned()), outcome: Ok(outcome) };
    world.manager.on_event(Event::Shared(result), world.now);
    world.settle();
    assert_eq!(world.shared_metric(SHARED, "Git/Commit"), Some(world.disk.commit(SHARED)));
}

#[test]
fn what_the_git_server_cannot_get_is_said_until_it_has_it_or_the_repository_is_gone() {
    let mut world = copied();
    world.packs.fails = Some("it has more than 256 MiB");
    world.commits(CLUSTER);
    world.settle();
    let reason = "what the git server lacks of it cannot be packed: it has more than 256 MiB";
    assert_eq!(world.not_served(), [("cluster/Paint_Shop", reason)]);
    // A new process finds it again.
    world.start();
    world.settle();
    assert_eq!(world.not_served(), [("cluster/Paint_Shop", reason)]);
    world.packs.fails = None;
    world.run(Duration::from_secs(600));
    assert!(world.is_copied(CLUSTER));
    assert_eq!(world.not_served(), []);
}

#[test]
fn a_pack_that_was_damaged_once_is_not_said_and_one_that_never_arrives_whole_is() {
    let mut world = copied();
    world.git().fails_thin = true;
    world.commits(CLUSTER);
    let mut said = false;
    for _ in 0..600 {
        world.run(Duration::from_secs(1));
        said |= !world.not_served().is_empty();
    }
    assert!(world.is_copied(CLUSTER) && !said);
    world.git().fails_all = true;
    world.commits(CLUSTER);
    world.run(Duration::from_secs(600));
    let reason = "the git server cannot use what is sent of it: the pack cannot be taken: unresolved deltas";
    assert_eq!(world.not_served(), [("cluster/Paint_Shop", reason)]);
}

#[test]
fn branches_that_are_too_many_are_said_with_the_repository_that_has_them() {
    let mut world = copied();
    world.packs.branches = git_server_contract::desired::REFS_MAX;
    world.commits(CLUSTER);
    world.settle();
    let [(path, reason)] = world.not_served()[..] else { panic!("{:?}", world.not_served()) };
    assert_eq!(path, "cluster/Paint_Shop");
    assert!(reason.starts_with("1 branches or tags are not served: at most "), "{reason}");
    assert!(world.is_copied(CLUSTER), "branch main comes first");
    world.packs.branches = 0;
    world.commits(CLUSTER);
    world.settle();
    assert_eq!(world.not_served(), []);
}

#[test]
fn the_manager_may_be_killed_anywhere() {
    for after in 1..60 {
        let mut world = World::new(Kill::After(after));
        world.packs.bytes = 2 * PART_BYTES_MAX;
        world.with_git();
        world.put_cluster(CLUSTER, "Paint_Shop");
        world.run(Duration::from_secs(300));
        assert!(world.is_copied(CLUSTER), "{after}");
    }
}

#[test]
fn a_copy_that_cannot_use_a_pack_gets_all_of_the_repository() {
    let mut world = copied();
    world.git().fails_thin = true;
    world.commits(CLUSTER);
    world.run(Duration::from_secs(120));
    assert!(world.is_copied(CLUSTER));
    // It has lost what it says that it has.
    world.git().fails_thin = false;
    world.git().stored.get_mut(&CLUSTER).unwrap().objects.clear();
    world.commits(CLUSTER);
    world.run(Duration::from_secs(120));
    assert!(world.is_copied(CLUSTER));
}

#[test]
fn objects_that_are_missing_after_their_pack_are_sent_with_all_others_at_once() {
    let mut world = copied();
    world.git().shows_arrival = true;
    world.packs.bytes = 3 * PART_BYTES_MAX;
    world.git().stored.get_mut(&CLUSTER).unwrap().objects.clear();
    world.commits(CLUSTER);
    world.settle();
    assert!(world.is_copied(CLUSTER));
}

#[test]
fn a_version_that_an_earlier_process_gave_to_another_state_is_given_up() {
    let mut world = copied();
    world.git().keeps = true;
    world.commits(CLUSTER);
    world.settle();
    let version = world.git().stored[&CLUSTER].shown.version;
    world.git().keeps = false;
    world.settle();
    assert!(world.is_copied(CLUSTER) && world.git().stored[&CLUSTER].shown.version == version + 1);
}

#[test]
fn a_version_that_an_earlier_process_gave_to_a_state_whose_commits_are_lost_is_given_up() {
    let mut world = copied();
    world.git().keeps = true;
    world.commits(CLUSTER);
    world.settle();
    // The disk of the manager is an older one: the commit that the git server has accepted under that version is nowhere.
    let stored = world.git().stored.get_mut(&CLUSTER).unwrap();
    stored.desired.as_mut().unwrap().refs = [(MAIN.to_owned(), "f".repeat(40))].into();
    stored.shown.missing = true;
    let (version, shown) = (stored.shown.version, stored.shown.clone());
    (world.git().keeps, world.git().shows_arrival) = (false, true);
    world.feed(vec![data(CLUSTER, &shown)]);
    world.run(Duration::from_secs(120));
    assert!(world.is_copied(CLUSTER) && world.git().stored[&CLUSTER].shown.version > version);
    assert_eq!(world.not_served(), []);
}

#[test]
fn what_is_closed_or_unknown_is_served_no_longer_and_what_is_to_be_written_again_is() {
    let mut world = copied();
    world.delete(CLUSTER, "EdgeCluster");
    world.run(Duration::from_secs(120));
    assert!(world.disk.open.is_empty());
    let closed =
        |world: &World, uuid| world.git.as_ref().unwrap().stored[&uuid].desired.as_ref().unwrap().place.is_none();
    assert!(closed(&world, CLUSTER));
    assert_eq!(world.git().stored[&CLUSTER].desired.as_ref().unwrap().password, None);

    // A copy that nothing here knows.
    let unknown = Stored { shown: RepositoryCopy { version: 7, ..RepositoryCopy::default() }, ..Stored::default() };
    world.git().stored.insert(OTHER, unknown);
    world.git_returns();
    world.settle();
    assert!(closed(&world, OTHER) && world.git().stored[&OTHER].shown.version == 8);

    // The disk of the manager is lost: what ConfigDB wants is served on until it is written again.
    let mut world = copied();
    world.disk = Disk { broken: true, ..Disk::default() };
    world.start();
    world.settle();
    assert!(!closed(&world, CLUSTER));
    world.disk.broken = false;
    world.run(Duration::from_secs(120));
    assert!(world.is_copied(CLUSTER));
}

#[test]
fn while_configdb_is_not_known_nothing_is_closed() {
    let mut world = copied();
    world.disk.open.clear();
    world.db.objects.clear();
    world.manager = ClusterManager::new(settings(), PersistedRepositories::default(), 9, world.now);
    world.git_returns();
    world.settle();
    assert!(world.git().stored[&CLUSTER].desired.as_ref().unwrap().place.is_some());
}

#[test]
fn the_branches_that_are_pulled_and_a_repository_that_is_written_here_take_no_push() {
    let mut world = copied();
    let request = WriteRequest::put("", SHARED).create_object(known::class::REPO_GROUP_SHARED, None);
    let pull = json!({"path": "shared/charts", "pull": {"main": {"url": "https://code.example/x", "ref": "release"}}});
    let events = world.db.write(&request.clone().entry("GitConfig", pull));
    world.feed(events);
    world.settle();
    let desired = |world: &World| world.git.as_ref().unwrap().stored[&SHARED].desired.clone().unwrap();
    assert_eq!(desired(&world).pulled, ["main".to_owned()].into());
    let events = world.db.put(SHARED, "GitConfig", json!({"path": "shared/charts"}));
    world.feed(events);
    world.settle();
    assert!(desired(&world).pulled.is_empty());
}

#[test]
fn many_repositories_are_packed_a_few_at_a_time() {
    let mut world = World::new(Kill::Never);
    world.with_git();
    let clusters: Vec<Uuid> = (0..40).map(|n| Uuid::from_u128(0xC000 + n)).collect();
    for (n, cluster) in clusters.iter().enumerate() {
        world.put_cluster(*cluster, &format!("C{n}"));
    }
    world.run(Duration::from_secs(120));
    assert!(clusters.iter().all(|cluster| world.is_copied(*cluster)));
    assert_eq!(world.packs.dropped, 40);
}

#[test]
fn without_an_address_of_the_git_server_nothing_is_written_and_with_another_everything_is_again() {
    let mut world = World::new(Kill::Never);
    let unknown = || {
        let mut settings = settings();
        settings.cluster.git.own.clear();
        settings.deployment.git.own.clear();
        Settings { is_git_fixed: false, ..settings }
    };
    world.manager = ClusterManager::new(unknown(), PersistedRepositories::default(), 3, world.now);
    world.manager.on_event(Event::Host(HostEvent::Online), world.now);
    let births = world.db.birth();
    world.feed(births);
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.put_deployment(DEPLOYMENT, "Robot_Cell_3");
    world.settle();
    assert!(world.disk.open.is_empty());
    assert_eq!(world.state(), SetupState::SettingUp);
    assert!(world.device().setup.reason.as_ref().unwrap().contains("git.public_url"), "{:?}", world.device());
    world.git = Some(Git::up("http://one/"));
    world.git_returns();
    world.settle();
    assert_eq!((world.state(), world.node.git_url.as_str()), (SetupState::Ready, "http://one"));
    assert_eq!(world.device().git_url.as_deref(), Some("http://one/git/cluster/Paint_Shop"));
    world.bootstrap(CLUSTER, "Paint_Shop");
    world.settle();
    assert!(world.is_copied(CLUSTER));
    let before = world.disk.commit(CLUSTER);
    world.git().url = "http://two".to_owned();
    world.git_returns();
    world.settle();
    assert_eq!(world.device().git_url.as_deref(), Some("http://two/git/cluster/Paint_Shop"));
    assert_ne!(world.disk.commit(CLUSTER), before);
    assert!(world.is_copied(CLUSTER));
    assert!(world.db.json(CLUSTER, "EdgeClusterSetup").unwrap()["self_link"].as_str().unwrap().contains("http://two"));
}

#[test]
fn a_cluster_is_ready_when_the_git_server_has_its_repository_and_not_before_that_server_is_received() {
    let mut world = World::new(Kill::Never);
    let settings = Settings { awaits_git: true, ..settings() };
    world.manager = ClusterManager::new(settings, PersistedRepositories::default(), 3, world.now);
    world.manager.on_event(Event::Host(HostEvent::Online), world.now);
    let births = world.db.birth();
    world.feed(births);
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.settle();
    assert!(!world.disk.open.is_empty(), "the repository is written");
    assert_eq!((world.state(), world.device().git_url.clone()), (SetupState::SettingUp, None));
    let reason = world.device().setup.reason.clone().unwrap();
    assert_eq!(reason, "the git server does not have its repository yet");
    world.git = Some(Git::up("http://git/"));
    world.git_returns();
    world.settle();
    assert!(world.is_copied(CLUSTER));
    assert_eq!(world.state(), SetupState::Ready);
    assert_eq!(world.device().git_url.as_deref(), Some("http://git/git/cluster/Paint_Shop"));
}

#[test]
fn an_address_that_is_configured_stays() {
    let mut world = copied();
    world.git().url = "http://other".to_owned();
    world.git_returns();
    world.settle();
    assert_eq!(world.device().git_url.as_deref(), Some("http://git/git/cluster/Paint_Shop"));
}

fn push_of(pack: Option<&Pack>) -> PushDevice {
    let change = RefChange { before: Some("a".repeat(40)), after: Some("b".repeat(40)) };
    let mut push = PushDevice {
        repository: CLUSTER,
        from: "10.0.0.7".to_owned(),
        credential: Arc::from([1, 2, 3]),
        refs: [(MAIN.to_owned(), change)].into(),
        ..PushDevice::default()
    };
    if let Some(pack) = pack {
        push.set_part(pack.part(0));
    }
    push
}

fn a_pack(bytes: usize) -> Pack {
    Pack::new((0..bytes).map(|n| u8::try_from(n % 251).unwrap()).collect())
}

impl World {
    fn push(&mut self, push: PushDevice) {
        let events = self.git().push(push);
        self.feed(events);
        self.settle();
    }

    /// Shows parts until all has arrived.
    fn push_parts(&mut self, pack: &Pack) -> usize {
        let mut shown = 0;
        while self.git().answers[&PUSH].received < pack.bytes().len() as u64 {
            let event = self.git().next_part(pack);
            self.feed(vec![event]);
            self.settle();
            shown += 1;
            assert!(shown < 100);
        }
        shown
    }

    fn pushed(&mut self, outcome: Result<(), String>) {
        let result = PushResult { push: PUSH, repository: CLUSTER, outcome };
        self.manager.on_event(Event::PushTaken(result), self.now);
        self.settle();
    }

    fn answer(&mut self) -> PushAnswer {
        self.git().answers[&PUSH].clone()
    }
}

#[test]
fn a_push_is_received_in_parts_judged_once_and_answered() {
    let mut world = copied();
    let pack = a_pack(3 * PART_BYTES_MAX + 5);
    world.push(push_of(Some(&pack)));
    assert_eq!(world.answer(), PushAnswer { received: PART_BYTES_MAX as u64, outcome: None });
    assert_eq!(world.push_parts(&pack), 3);
    let event = world.git().next_part(&pack);
    world.feed(vec![event.clone()]);
    world.settle();
    assert_eq!(world.packs.pushed.len(), 1);
    let work = world.packs.pushed[0].clone();
    assert_eq!((work.push, work.repository, work.from.as_str()), (PUSH, CLUSTER, "10.0.0.7"));
    assert_eq!((work.pack.as_ref(), work.credential), (Some(pack.bytes()), Arc::from([1, 2, 3])));
    assert_eq!(world.answer(), PushAnswer { received: pack.bytes().len() as u64, outcome: None });
    // The disk has moved the branch: the copy follows.
    world.disk.push(CLUSTER);
    world.pushed(Ok(()));
    assert_eq!(world.answer().outcome, Some(Ok(())));
    assert!(world.is_copied(CLUSTER));
    // An answer that was lost is given again.
    world.git().answers.clear();
    world.feed(vec![event]);
    world.settle();
    assert_eq!(world.answer().outcome, Some(Ok(())));
    assert_eq!(world.packs.pushed.len(), 1);
}

#[test]
fn a_push_that_is_refused_or_without_a_pack_is_answered_with_the_reason() {
    let mut world = copied();
    world.push(push_of(None));
    assert_eq!((world.packs.pushed.len(), world.packs.pushed[0].pack.as_ref()), (1, None));
    world.pushed(Err("Refused: by-hand/ only".to_owned()));
    assert_eq!(world.answer().outcome, Some(Err("Refused: by-hand/ only".to_owned())));
}

#[test]
fn a_push_continues_with_a_new_process_from_its_first_part() {
    let mut world = copied();
    let pack = a_pack(3 * PART_BYTES_MAX);
    world.push(push_of(Some(&pack)));
    let event = world.git().next_part(&pack);
    world.feed(vec![event]);
    world.settle();
    assert_eq!(world.answer().received, 2 * PART_BYTES_MAX as u64);
    world.start();
    world.settle();
    assert_eq!(world.answer().received, 0, "nothing of it is known");
    world.push_parts(&pack);
    assert_eq!(world.packs.pushed.len(), 1);
}

#[test]
fn a_hostile_push_ends() {
    let mut world = copied();
    // Its digest is of something else.
    let mut push = push_of(Some(&a_pack(10)));
    push.digest = "ab".repeat(32);
    world.push(push.clone());
    for _ in 0..5 {
        let (device, metrics) = (git_server_contract::names::push_device(PUSH), push.to_metrics());
        world.feed(vec![HostEvent::DeviceData { node: node(), device, timestamp: 0, metrics }]);
        world.settle();
    }
    assert!(world.answer().outcome.unwrap().unwrap_err().contains("damaged"));
    // Another one is larger than a push may be.
    let push = PushDevice { total: u64::from(u32::MAX), ..push };
    let device = git_server_contract::names::push_device(PUSH);
    world.feed(vec![HostEvent::DeviceDeath { node: node(), device, timestamp: 0 }]);
    world.push(push);
    assert!(world.answer().outcome.unwrap().unwrap_err().contains("larger"));
    assert!(world.packs.pushed.is_empty());
    // Many large ones do not get memory all at once.
    let births: Vec<HostEvent> = (0..5)
        .map(|n| {
            let push = PushDevice { total: 200 << 20, data: vec![1; 10].into(), ..push_of(Some(&a_pack(10))) };
            let device = git_server_contract::names::push_device(Uuid::from_u128(0xA00 + n));
            HostEvent::DeviceBirth { node: node(), device, timestamp: 0, metrics: push.to_metrics().into() }
        })
        .collect();
    world.feed(births);
    world.settle();
    let taken = world.git().answers.values().filter(|answer| answer.outcome.is_none() && answer.received > 0).count();
    assert_eq!(taken, 2, "the others wait");
    assert!(world.manager.fleet.git().devices().pushes.len() == 6, "{:?}", GitDevice::Push(PUSH));
}
