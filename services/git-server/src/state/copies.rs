//! The copies of repositories: what each shall be, what it is, and the pack that it is being sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use git_hosting::copies::Refs;
use git_server_contract::names::repository_device;
use git_server_contract::pack::{Pack, Received};
use git_server_contract::{DesiredRepository, PackPart, PackReceiver, RepositoryCopy};
use sparkplug::backoff::Backoff;
use sparkplug::edge_node::NodeUpdate;
use sparkplug::replication::{DesiredReceiver, Outcome, Stamp};
use sparkplug::{Now, TypedMetrics as _};
use uuid::Uuid;

use crate::event::{CopyOutcome, CopyResult, CopyWork, PersistedCopies, PersistedCopy};

/// Most bytes of packs that are being received, for all copies together.
pub(crate) const PACKS_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// After what a pack is dropped of which nothing more comes.
const PACK_IDLE_MAX: Duration = Duration::from_secs(300);

/// How often it is reported that a cluster asks.
const POLLED_EVERY_MS: u64 = 60_000;

const MAIN: &str = "refs/heads/main";

/// One copy.
#[derive(Debug)]
struct Copy {
    /// What it shall be.
    desired: DesiredRepository,
    receiver: DesiredReceiver<String>,
    /// Version that is on the disk.
    recorded: u64,
    /// Objects that are to be taken.
    packs: Vec<Pack>,
    /// What the copy has of objects cannot be trusted: it lacks some after a pack was received for it.
    is_doubtful: bool,
    /// The disk is at work on it.
    is_under_way: bool,
    /// `Now::mono` at which the disk shall work on it.
    due: Option<Duration>,
    retry: Backoff,
    /// The Device as it is to be published.
    report: RepositoryCopy,
    /// And as it is published.
    published: Option<RepositoryCopy>,
}

/// A pack that is being received for a copy, until the disk has taken it.
#[derive(Debug)]
struct Incoming {
    receiver: PackReceiver,
    /// Of all of it.
    bytes: u64,
    /// `Now::mono` of its last part.
    last: Duration,
    /// Version for which it began.
    version: u64,
    /// It is whole.
    is_whole: bool,
}

/// All copies.
#[derive(Debug)]
pub(crate) struct Copies {
    by_repository: BTreeMap<Uuid, Copy>,
    incoming: BTreeMap<Uuid, Incoming>,
    /// Copies that are not as they shall be.
    waiting: BTreeSet<Uuid>,
    /// Copies whose Device or work may have changed.
    dirty: BTreeSet<Uuid>,
    /// Those that wait for a deadline.
    deadlines: BTreeSet<(Duration, Uuid)>,
    retry: (Duration, Duration),
}

/// What a desired state is judged by. A copy is made of what the cluster manager has, whichever store that follows.
fn stamp(desired: &DesiredRepository) -> Stamp<String> {
    Stamp { origin: None, follows: None, decided_for: None, version: desired.version, digest: desired.digest() }
}

impl Copies {
    /// What is on the disk. `retry`: first and longest pause after work that failed.
    pub(crate) fn new(persisted: PersistedCopies, retry: (Duration, Duration), now: Now) -> Self {
        let mut copies = Self {
            by_repository: BTreeMap::new(),
            incoming: BTreeMap::new(),
            waiting: BTreeSet::new(),
            dirty: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            retry,
        };
        for (repository, PersistedCopy { desired, refs, is_placed }) in persisted {
            let is_applied = is_placed && (refs == desired.refs || desired.place.is_none());
            let mut copy = copies.fresh(desired, now);
            let stamp = stamp(&copy.desired);
            let digest = stamp.digest.clone();
            copy.receiver.set_accepted(Some(stamp));
            copy.recorded = copy.desired.version;
            copy.report.version = copy.recorded;
            copy.report.applied = is_applied.then_some(digest);
            let is_served = is_placed && copy.desired.place.is_some();
            copy.report.commit = refs.get(MAIN).filter(|_| is_served).cloned();
            copy.report.refs = refs;
            copy.due = (!is_applied).then_some(now.mono);
            copies.by_repository.insert(repository, copy);
            copies.dirty.insert(repository);
        }
        copies
    }

    fn fresh(&self, desired: DesiredRepository, now: Now) -> Copy {
        let seed = desired.repository.as_u64_pair().1;
        Copy {
            desired,
            receiver: DesiredReceiver::default(),
            recorded: 0,
            packs: Vec::new(),
            is_doubtful: false,
            is_under_way: false,
            due: None,
            retry: Backoff::new(self.retry, seed),
            report: RepositoryCopy { since: now.wall, ..RepositoryCopy::default() },
            published: None,
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_repository.len()
    }

    /// How many are not as they shall be.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// What a copy shall be.
    pub(crate) fn desired(&self, repository: Uuid) -> Option<&DesiredRepository> {
        self.by_repository.get(&repository).map(|copy| &copy.desired)
    }

    /// Takes a desired state over, unless it is older than the one that there is.
    pub(crate) fn on_desired(&mut self, desired: DesiredRepository, now: Now) {
        let repository = desired.repository;
        if !self.by_repository.contains_key(&repository) {
            let fresh = self.fresh(desired.clone(), now);
            self.by_repository.insert(repository, fresh);
        }
        let Some(copy) = self.by_repository.get_mut(&repository) else { return };
        let (stamp, version) = (stamp(&desired), desired.version);
        let digest = stamp.digest.clone();
        match copy.receiver.receive(&stamp) {
            Outcome::Accepted => {
                copy.receiver.set_accepted(Some(stamp));
                copy.retry.reset();
                copy.desired = desired;
            }
            Outcome::Duplicate => {}
            Outcome::Stale => {
                tracing::debug!(%repository, version, accepted = copy.desired.version, "an older desired state is ignored");
                return;
            }
            Outcome::Conflict => {
                tracing::warn!(%repository, version, "two desired states have the same version; the later one is ignored");
                return;
            }
            Outcome::Held(hold) => {
                tracing::warn!(%repository, version, %hold, "a desired state is held");
                return;
            }
        }
        let is_applied = copy.report.applied.as_ref() == Some(&digest);
        if copy.recorded != copy.desired.version || !is_applied {
            copy.due = Some(copy.due.map_or(now.mono, |due| due.min(now.mono)));
        }
        self.dirty.insert(repository);
    }

    /// Takes a part of a pack over, if the copy waits for objects.
    pub(crate) fn on_part(&mut self, repository: Uuid, part: &PackPart, now: Now) {
        let Some(copy) = self.by_repository.get_mut(&repository) else { return };
        let is_known = self.incoming.get(&repository).and_then(|one| one.receiver.progress());
        let is_known = is_known.is_some_and(|(digest, _)| digest == part.digest);
        let is_whole = self.incoming.get(&repository).is_some_and(|one| one.is_whole);
        if !copy.report.missing || copy.is_under_way || is_whole || (!is_known && part.offset != 0) {
            return;
        }
        self.dirty.insert(repository);
        if !is_known {
            let others = self.incoming.iter().filter(|(other, _)| **other != repository);
            let bytes: u64 = others.map(|(_, one)| one.bytes).sum();
            if bytes.saturating_add(part.total) > PACKS_BYTES_MAX {
                copy.report.reason =
                    Some("too many packs are being received at the same time; this one waits".to_owned());
                return;
            }
            let incoming = Incoming {
                receiver: PackReceiver::default(),
                bytes: part.total,
                last: now.mono,
                version: copy.recorded,
                is_whole: false,
            };
            self.incoming.insert(repository, incoming);
        }
        let Some(incoming) = self.incoming.get_mut(&repository) else { return };
        incoming.last = now.mono;
        copy.report.reason = None;
        match incoming.receiver.receive(part) {
            Received::More | Received::Repeated => {
                copy.set_progress(incoming.receiver.progress().map(|(digest, bytes)| (digest.to_owned(), bytes)));
            }
            Received::Whole(pack) => {
                incoming.is_whole = true;
                copy.set_progress(Some((pack.digest().to_owned(), part.total)));
                copy.packs.push(pack);
                copy.due = Some(now.mono);
            }
            Received::Wrong => {
                copy.report.reason = Some("a pack arrived that has another digest than was said".to_owned());
                copy.set_progress(None);
                self.incoming.remove(&repository);
            }
        }
    }

    /// Takes the objects of a push over that the cluster manager has accepted: they need not be sent again.
    pub(crate) fn on_pushed(&mut self, repository: Uuid, pack: Pack, now: Now) {
        let Some(copy) = self.by_repository.get_mut(&repository) else { return };
        copy.packs.push(pack);
        copy.due = Some(now.mono);
        self.dirty.insert(repository);
    }

    /// The references that a copy has.
    pub(crate) fn refs(&self, repository: Uuid) -> Option<&Refs> {
        self.by_repository.get(&repository).map(|copy| &copy.report.refs)
    }

    /// The disk has ended work on a copy.
    pub(crate) fn on_copied(&mut self, result: CopyResult, now: Now) {
        let CopyResult { repository, version, is_recorded, refs, is_served, outcome, pack_error } = result;
        let Some(copy) = self.by_repository.get_mut(&repository) else { return };
        self.dirty.insert(repository);
        copy.is_under_way = false;
        if is_recorded {
            copy.recorded = version;
        }
        copy.report.commit = refs.get(MAIN).filter(|_| is_served).cloned();
        copy.report.refs = refs;
        let is_current = version == copy.desired.version;
        let is_whole = self.incoming.get(&repository).is_some_and(|one| one.is_whole);
        let pack = if is_whole { self.incoming.remove(&repository) } else { None };
        if pack.is_some() {
            copy.set_progress(None);
        }
        match outcome {
            CopyOutcome::Failed(reason) => {
                tracing::warn!(%repository, reason, "a copy cannot be changed; it is tried again");
                copy.report.reason = Some(reason);
                copy.due = Some(now.mono + copy.retry.next_delay());
            }
            _ if !is_current => copy.due = Some(now.mono),
            CopyOutcome::Applied => {
                copy.retry.reset();
                copy.is_doubtful = false;
                copy.report.applied = Some(copy.desired.digest());
                (copy.report.missing, copy.report.reason) = (false, None);
            }
            CopyOutcome::Missing => {
                // What the sender has built on is perhaps not there: the next pack is to be whole by itself.
                copy.is_doubtful |= pack.is_some_and(|pack| pack.version == version);
                copy.report.missing = true;
                copy.report.reason = pack_error;
            }
        }
    }

    /// A cluster has asked for a repository.
    pub(crate) fn on_polled(&mut self, cluster: Uuid, now: Now) {
        let Some(copy) = self.by_repository.get_mut(&cluster) else { return };
        if copy
            .report
            .polled
            .is_none_or(|polled| now.wall.saturating_sub(polled) >= POLLED_EVERY_MS || polled > now.wall)
        {
            copy.report.polled = Some(now.wall);
            self.dirty.insert(cluster);
        }
    }

    /// `Now::mono` at which [`Copies::reconcile`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// The work that is due, and what is to be published.
    pub(crate) fn reconcile(&mut self, now: Now) -> (Vec<CopyWork>, Vec<NodeUpdate>) {
        while let Some((at, repository)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now.mono) {
            self.deadlines.remove(&(at, repository));
            self.dirty.insert(repository);
        }
        let (mut works, mut updates) = (Vec::new(), Vec::new());
        while let Some(repository) = self.dirty.pop_first() {
            let Some(copy) = self.by_repository.get_mut(&repository) else { continue };
            let idle_at =
                self.incoming.get(&repository).filter(|one| !one.is_whole).map(|one| one.last + PACK_IDLE_MAX);
            if idle_at.is_some_and(|at| at <= now.mono) {
                self.incoming.remove(&repository);
                copy.set_progress(None);
            }
            works.extend(copy.work(now));
            updates.extend(copy.publish(repository, now));
            if copy.report.state() == "served" {
                self.waiting.remove(&repository);
            } else {
                self.waiting.insert(repository);
            }
            let due = copy.due.filter(|_| !copy.is_under_way);
            let next = due.into_iter().chain(idle_at.filter(|at| *at > now.mono)).min();
            self.deadlines.extend(next.map(|at| (at, repository)));
        }
        (works, updates)
    }
}

impl Copy {
    fn set_progress(&mut self, progress: Option<(String, u64)>) {
        let (digest, bytes) = progress.map_or((None, 0), |(digest, bytes)| (Some(digest), bytes));
        (self.report.pack, self.report.received) = (digest, bytes);
    }

    fn work(&mut self, now: Now) -> Option<CopyWork> {
        self.due.filter(|due| *due <= now.mono && !self.is_under_way)?;
        self.due = None;
        self.is_under_way = true;
        Some(CopyWork {
            desired: self.desired.clone(),
            is_recorded: self.recorded == self.desired.version,
            packs: std::mem::take(&mut self.packs),
            builds_on: !self.is_doubtful,
        })
    }

    /// What the Device says that it has not said yet.
    fn publish(&mut self, repository: Uuid, now: Now) -> Option<NodeUpdate> {
        self.report.version = self.recorded;
        self.report.path = self.desired.place.as_ref().map(|place| place.path.clone()).unwrap_or_default();
        let mut report = self.report.clone();
        if self.is_doubtful {
            report.refs.clear();
        }
        let before = self.published.as_ref();
        if before.is_none_or(|before| before.state() != report.state()) {
            self.report.since = now.wall;
            report.since = now.wall;
        }
        if before == Some(&report) {
            return None;
        }
        let device = repository_device(repository);
        let update = match before {
            Some(before) => NodeUpdate::Set { device: Some(device), metrics: report.changes_since(before) },
            None => NodeUpdate::DeviceBirth { device, metrics: report.to_metrics() },
        };
        self.published = Some(report);
        Some(update)
    }
}
