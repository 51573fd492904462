//! What the git server's copies shall be: sent until it reports them, with the objects that a copy lacks.
//!
//! What a repository is, the disk says: it is asked after everything that may have changed it. A copy that lacks objects gets a pack, a part at a time. Until that has arrived the copy shall
//! have the refs that the pack was made for, so that commits in the meantime do not make it useless.
//!
//! Nothing here must survive a restart: what the git server reports says where a new process continues.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use git_hosting::repositories;
use git_server_contract::desired::{REF_BYTES_MAX, REFS_MAX, is_object, is_ref};
use git_server_contract::pack::PART_BYTES_MAX;
use git_server_contract::{DesiredRepository, GitDevice, Kind, RepositoryCopy, RepositoryPath};
use sparkplug::replication::{Desired, DesiredSender, Repetition, ReplicaChange, Report};
use sparkplug::{EdgeNodeDescriptor, Now};
use uuid::Uuid;

use super::{Deadlines, Pacing, Wait};
use crate::event::{CopyAction, CopyOutcome, CopyWork, Effect, Original, PackFile};
use crate::fleet::FleetView;

/// Packs that are made or sent at the same time.
const PACKS_MAX: usize = 8;

/// How long the git server may take to judge a pack of several parts before it is sent again.
const JUDGED_MAX: Duration = Duration::from_secs(60);

/// How long the git server may take to apply what it has accepted and has all objects for.
const APPLIED_MAX: Duration = Duration::from_secs(30);

/// How often the same part is sent before the pack is given up, and another is made.
const ATTEMPTS_MAX: u32 = 8;

/// The branch that clusters follow.
const MAIN: &str = "refs/heads/main";

/// Which pushes a repository takes, by what ConfigDB and the configuration say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PushRules {
    /// Branches that are pulled from elsewhere.
    pub pulled: BTreeSet<String>,
    /// Why none is taken.
    pub no_push: Option<String>,
}

/// What other controllers say of repositories.
pub(crate) trait Surroundings {
    /// ConfigDB wants it: it is open, or will be.
    fn is_wanted(&self, repository: Uuid) -> bool;

    /// Which pushes an open one takes.
    fn push_rules(&self, repository: Uuid, original: &Original) -> PushRules;
}

/// All copies.
#[derive(Debug)]
pub(crate) struct GitCopiesController {
    pacing: Pacing,
    known: BTreeMap<Uuid, GitCopy>,
    /// To be looked at in this turn, or when everything about the git server is known.
    stale: BTreeSet<Uuid>,
    /// Those whose pack is made or sent.
    packing: BTreeSet<Uuid>,
    /// Those that wait for their turn to be packed.
    queued: BTreeSet<Uuid>,
    /// When each is looked at again.
    deadlines: Deadlines,
    /// Path of each of which the git server has not everything, and why.
    problems: BTreeMap<Uuid, (String, String)>,
}

/// One copy.
#[derive(Debug)]
struct GitCopy {
    /// As the disk answered last. None: it did not answer yet.
    original: Option<Disk>,
    look: DiskCheck,
    /// The manager has closed it since it started: it is closed at once, whatever ConfigDB says.
    is_closed: bool,
    sender: DesiredSender<String>,
    pack: Option<Sending>,
    /// The copy could not use a pack on top of what it has: the next one has everything.
    whole: bool,
    /// Why it does not get what it lacks, since it was as wanted last.
    problem: Option<String>,
    wait: Wait,
    /// A version that the git server has accepted and does not apply, and `Now::mono` at which it is sent once more under another.
    accepted: Option<(u64, Duration)>,
    /// The copy lacks objects although all of the repository was sent: the accepted version is sent once more under another.
    is_doubted: bool,
}

/// What the disk has of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Disk {
    Open(Original),
    Closed,
}

/// Whether what the disk answered last is of now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiskCheck {
    /// It is.
    Fresh,
    /// The disk is to be asked.
    Due,
    /// It is being asked.
    UnderWay,
    /// It is being asked, and something has changed since.
    Again,
}

/// A pack on its way.
#[derive(Debug)]
struct Sending {
    /// The refs that it was made for.
    refs: BTreeMap<String, String>,
    /// None: it is being made.
    file: Option<PackFile>,
    /// Why the copy was not as wanted when it was begun.
    reason: Option<String>,
    /// The part that was sent last.
    sent: Option<Repetition<u64>>,
    /// `Now::mono` until which the git server judges a pack of several parts, the last of which was sent.
    judged_until: Option<Duration>,
    /// How often all of it was sent.
    rounds: u32,
    /// The git server has reported that all of it has arrived.
    has_arrived: bool,
}

impl Sending {
    fn new(refs: BTreeMap<String, String>, reason: Option<String>) -> Self {
        Self { refs, file: None, reason, sent: None, judged_until: None, rounds: 0, has_arrived: false }
    }

    /// Which part is due by what is reported of the copy. None: the pack is being judged.
    fn next_part(&mut self, file: &PackFile, reported: &RepositoryCopy, now: Now) -> Option<u64> {
        self.note_arrival(reported);
        if reported.pack.as_ref() == Some(&file.digest) {
            self.judged_until = None;
            return Some(reported.received).filter(|_| !self.has_arrived);
        }
        match self.judged_until {
            Some(until) if until > now.mono => None,
            // It was not taken in that time: the first part begins it again.
            Some(_) => {
                self.judged_until = None;
                self.sent = None;
                Some(0)
            }
            None => Some(0),
        }
    }

    /// Notes whether all of it has arrived, if the report is about it.
    fn note_arrival(&mut self, reported: &RepositoryCopy) {
        if let Some(file) = self.file.as_ref().filter(|file| reported.pack.as_ref() == Some(&file.digest)) {
            self.has_arrived = reported.received >= file.bytes;
        }
    }

    /// Notes that a part was sent.
    fn on_sent(&mut self, file: &PackFile, offset: u64, now: Now) {
        if offset == 0 {
            self.rounds += 1;
        }
        if offset > 0 && is_last(file, offset) {
            self.judged_until = Some(now.mono + JUDGED_MAX);
        }
    }

    /// The last part was sent.
    fn is_sent(&self, file: &PackFile) -> bool {
        self.sent.as_ref().is_some_and(|sent| is_last(file, *sent.what()))
    }

    /// Why the pack is of no use, by what is reported of a copy that lacks objects. None: it may be.
    fn refusal(&self, file: &PackFile, reported: &RepositoryCopy, now: Now) -> Option<String> {
        let is_over = reported.pack.as_ref() != Some(&file.digest);
        let is_new = reported.reason != self.reason && reported.reason.is_some();
        let reason = |otherwise: &str| reported.reason.clone().unwrap_or_else(|| otherwise.to_owned());
        if is_over && (self.has_arrived || self.is_sent(file) && is_new) {
            return Some(reason("the copy lacks objects although its pack has arrived"));
        }
        self.is_hopeless(now).then(|| reason("the git server does not take the pack"))
    }

    /// A part was sent so often that it will not be taken.
    fn is_hopeless(&self, now: Now) -> bool {
        let sent = self.sent.as_ref().filter(|sent| sent.next() <= now.mono);
        sent.is_some_and(|sent| sent.attempts() >= ATTEMPTS_MAX) || self.rounds > ATTEMPTS_MAX
    }
}

/// The part that begins there ends the pack.
const fn is_last(file: &PackFile, offset: u64) -> bool {
    offset + PART_BYTES_MAX as u64 >= file.bytes
}

impl GitCopy {
    fn new(wait: Wait) -> Self {
        Self {
            original: None,
            look: DiskCheck::Due,
            is_closed: false,
            sender: DesiredSender::default(),
            pack: None,
            whole: false,
            problem: None,
            wait,
            accepted: None,
            is_doubted: false,
        }
    }

    /// What the copy shall be. None: nothing is concluded.
    fn desired(
        &self,
        repository: Uuid,
        around: &impl Surroundings,
        is_config_known: bool,
    ) -> Option<DesiredRepository> {
        let closed = DesiredRepository {
            repository,
            version: 0,
            place: None,
            refs: BTreeMap::new(),
            password: None,
            pulled: BTreeSet::new(),
            no_push: None,
        };
        let original = match self.original.as_ref()? {
            Disk::Open(original) => original,
            // What ConfigDB wants and the disk does not have is being written, such as on a disk that was lost. Until then the copy serves what it has.
            Disk::Closed if self.is_closed || is_config_known && !around.is_wanted(repository) => return Some(closed),
            Disk::Closed => return None,
        };
        let PushRules { pulled, no_push } = around.push_rules(repository, original);
        let refs = self.pack.as_ref().map_or(&original.refs, |pack| &pack.refs);
        let kind = match original.kind {
            repositories::Kind::Cluster => Kind::Cluster,
            repositories::Kind::Shared => Kind::Shared,
        };
        let is_branch = |branch: &String| is_ref(&format!("refs/heads/{branch}"));
        Some(DesiredRepository {
            place: Some(RepositoryPath { path: original.path.clone(), kind }),
            refs: served(refs),
            password: original.password.clone(),
            pulled: pulled.into_iter().filter(is_branch).take(REFS_MAX).collect(),
            no_push,
            ..closed
        })
    }

    /// The git server has accepted that version and should have all objects for it, but does not apply it. It may have accepted another state under the same version, of an earlier process,
    /// whose objects this one does not have if the disk is an older one.
    fn is_overdue(&mut self, reported: Option<&RepositoryCopy>, version: u64, now: Now) -> bool {
        if self.is_doubted {
            return true;
        }
        if reported.is_none_or(|copy| copy.missing || copy.reason.is_some()) {
            self.accepted = None;
            return false;
        }
        let until = self.accepted.filter(|(accepted, _)| *accepted == version).map(|(_, until)| until);
        let until = until.unwrap_or(now.mono + APPLIED_MAX);
        self.accepted = Some((version, until));
        until <= now.mono
    }

    /// Where it would be served, and why not all of it is.
    fn problem(&self, repository: Uuid) -> Option<(String, String)> {
        let (path, left_out) = match &self.original {
            Some(Disk::Open(original)) => (original.path.clone(), left_out(original)),
            Some(Disk::Closed) | None => (repository.to_string(), None),
        };
        self.problem.clone().or(left_out).map(|reason| (path, reason))
    }

    fn next_deadline(&self, now: Now) -> Option<Duration> {
        let pack = self.pack.as_ref();
        let part = pack.and_then(|pack| pack.sent.as_ref()).map(Repetition::next);
        let judged = pack.and_then(|pack| pack.judged_until);
        let accepted = self.accepted.map(|(_, until)| until);
        let deadlines = [self.sender.next_deadline(), part, judged, accepted, self.wait.until()];
        deadlines.into_iter().flatten().filter(|at| *at > now.mono).min()
    }
}

/// Why not all refs of a repository reach its copy. None: they do.
fn left_out(original: &Original) -> Option<String> {
    let count = original.refs.len() - can_be_sent(&original.refs).count();
    (count > 0).then(|| {
        format!(
            "{count} branches or tags are not served: at most {REFS_MAX} are, with names of at most {REF_BYTES_MAX} bytes; delete those that are not needed"
        )
    })
}

/// The refs that can be sent, branch `main` before all others.
fn can_be_sent(refs: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    let is_valid = |(name, object): &(&String, &String)| is_ref(name) && is_object(object);
    let main = refs.get_key_value(MAIN).into_iter();
    let others = refs.iter().filter(|(name, _)| *name != MAIN);
    main.chain(others).filter(is_valid).take(REFS_MAX)
}

fn served(refs: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    can_be_sent(refs).map(|(name, object)| (name.clone(), object.clone())).collect()
}

impl GitCopiesController {
    /// `open`: the repositories that are open on the disk.
    pub(crate) fn new(pacing: Pacing, open: impl IntoIterator<Item = Uuid>) -> Self {
        let mut controller = Self {
            pacing,
            known: BTreeMap::new(),
            stale: BTreeSet::new(),
            packing: BTreeSet::new(),
            queued: BTreeSet::new(),
            deadlines: Deadlines::default(),
            problems: BTreeMap::new(),
        };
        open.into_iter().for_each(|repository| controller.changed(repository));
        controller
    }

    fn copy(&mut self, repository: Uuid) -> &mut GitCopy {
        let pacing = self.pacing;
        self.known.entry(repository).or_insert_with(|| GitCopy::new(pacing.wait(repository, 23)))
    }

    /// Work on a repository has ended: the disk is to be asked what it is now.
    pub(crate) fn changed(&mut self, repository: Uuid) {
        let copy = self.copy(repository);
        copy.look = match copy.look {
            DiskCheck::Fresh | DiskCheck::Due => DiskCheck::Due,
            DiskCheck::UnderWay | DiskCheck::Again => DiskCheck::Again,
        };
        self.stale.insert(repository);
    }

    /// Branch `main` of an open repository is at that commit by what the disk has answered, or will be asked.
    pub(crate) fn is_at(&self, repository: Uuid, commit: Option<&str>) -> bool {
        let Some(copy) = self.known.get(&repository).filter(|copy| !copy.is_closed) else { return false };
        match copy.look {
            DiskCheck::Due => true,
            DiskCheck::Fresh => self.main(repository).map(|(_, main)| main) == commit,
            DiskCheck::UnderWay | DiskCheck::Again => false,
        }
    }

    /// The manager has closed a repository, or opened it.
    pub(crate) fn set_closed(&mut self, repository: Uuid, is_closed: bool) {
        self.copy(repository).is_closed = is_closed;
        self.changed(repository);
    }

    /// Something about the object has changed in ConfigDB.
    pub(crate) fn mark(&mut self, object: Uuid) {
        if self.known.contains_key(&object) {
            self.stale.insert(object);
        }
    }

    /// Everything is to be compared again.
    pub(crate) fn mark_all(&mut self) {
        self.stale.extend(self.known.keys());
    }

    /// The git server has said something.
    pub(crate) fn on_git_change(&mut self, fleet: &FleetView, change: &ReplicaChange<GitDevice>) {
        match change {
            ReplicaChange::Born => {
                self.pause();
                self.stale.extend(fleet.git().devices().repositories.keys());
            }
            ReplicaChange::Device(GitDevice::Repository(repository)) => {
                self.note_arrival(fleet, *repository);
                self.stale.insert(*repository);
            }
            ReplicaChange::Dead | ReplicaChange::Stale => self.pause(),
            ReplicaChange::Node | ReplicaChange::Device(GitDevice::Push(_)) | ReplicaChange::Other(_) => {}
        }
    }

    /// That all of a pack has arrived shows for a moment, and the next turn may see only what came of it.
    fn note_arrival(&mut self, fleet: &FleetView, repository: Uuid) {
        let pack = self.known.get_mut(&repository).and_then(|copy| copy.pack.as_mut());
        if let Some((pack, reported)) = pack.zip(fleet.git().devices().repositories.get(&repository)) {
            pack.note_arrival(reported);
        }
    }

    /// What was sent may be lost: it is sent again when the git server is known again.
    fn pause(&mut self) {
        for copy in self.known.values_mut() {
            copy.sender.pause();
            copy.accepted = None;
            if let Some(pack) = &mut copy.pack {
                pack.sent = None;
                pack.judged_until = None;
                pack.has_arrived = false;
            }
        }
        self.mark_all();
    }

    /// The disk has answered.
    pub(crate) fn on_result(&mut self, repository: Uuid, outcome: CopyOutcome, now: Now) -> Option<Effect> {
        self.stale.insert(repository);
        let copy = self.known.get_mut(&repository)?;
        match outcome {
            CopyOutcome::Inspected(result) => {
                copy.look = if copy.look == DiskCheck::Again { DiskCheck::Due } else { DiskCheck::Fresh };
                match result {
                    Ok(original) => copy.original = Some(original.map_or(Disk::Closed, Disk::Open)),
                    Err(reason) => {
                        copy.look = DiskCheck::Due;
                        copy.problem = Some(format!("it cannot be read: {reason}"));
                        copy.wait.failed(reason, now);
                    }
                }
                None
            }
            CopyOutcome::Packed(result) => {
                let whole = copy.whole;
                let pack = copy.pack.as_mut().filter(|pack| pack.file.is_none());
                let reason = match (result, pack) {
                    (Ok(Some(file)), Some(pack)) => {
                        pack.file = Some(file);
                        return None;
                    }
                    // It was given up meanwhile.
                    (Ok(file), None) => return file.map(|file| drop_pack(repository, file)),
                    // The copy says that it lacks something that it should have.
                    (Ok(None), Some(_)) if !whole => {
                        copy.whole = true;
                        return self.end_pack(repository);
                    }
                    (Ok(None), Some(_)) => "there is nothing to pack".to_owned(),
                    (Err(reason), _) => reason,
                };
                copy.whole = true;
                copy.problem = Some(format!("what the git server lacks of it cannot be packed: {reason}"));
                copy.wait.failed(reason, now);
                self.end_pack(repository)
            }
        }
    }

    /// The pack is not needed any more. Another repository may be packed now.
    fn end_pack(&mut self, repository: Uuid) -> Option<Effect> {
        let ended = self.known.get_mut(&repository).and_then(|copy| copy.pack.take())?;
        self.packing.remove(&repository);
        let next = self.queued.pop_first();
        self.stale.extend(next);
        ended.file.map(|file| drop_pack(repository, file))
    }

    /// Commit of branch `main` of an open repository, as the disk has answered after everything that may have moved it.
    pub(crate) fn main(&self, repository: Uuid) -> Option<(repositories::Kind, &str)> {
        let copy = self.known.get(&repository).filter(|copy| copy.look == DiskCheck::Fresh)?;
        let Some(Disk::Open(original)) = &copy.original else { return None };
        original.refs.get(MAIN).map(|commit| (original.kind, commit.as_str()))
    }

    /// Path of each repository of which the git server has not everything, and why.
    pub(crate) fn problems(&self) -> impl Iterator<Item = (String, String)> {
        self.problems.values().cloned()
    }

    /// When there is something to do without an event.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first()
    }

    /// Compares each copy of which something has changed, or whose time has come. Nothing is concluded before the git server is known completely.
    pub(crate) fn reconcile(&mut self, fleet: &FleetView, around: &impl Surroundings, now: Now) -> Vec<Effect> {
        while let Some(repository) = self.deadlines.pop_due(now) {
            self.stale.insert(repository);
        }
        let mut effects = Vec::new();
        if !fleet.git().is_complete() {
            return effects;
        }
        while let Some(repository) = self.stale.pop_first() {
            self.reconcile_one(fleet, around, repository, &mut effects, now);
            self.set_deadline(repository, now);
            self.note_problem(repository);
        }
        effects
    }

    fn set_deadline(&mut self, repository: Uuid, now: Now) {
        if let Some(copy) = self.known.get(&repository) {
            self.deadlines.set(repository, copy.next_deadline(now));
        }
    }

    /// Keeps what [`GitCopiesController::problems`] says of a repository as it is now.
    fn note_problem(&mut self, repository: Uuid) {
        let found = self.known.get(&repository).and_then(|copy| copy.problem(repository));
        if self.problems.get(&repository) == found.as_ref() {
            return;
        }
        self.problems.remove(&repository);
        if let Some((path, reason)) = found {
            tracing::warn!(%repository, path, reason, "not all of a repository is served");
            self.problems.insert(repository, (path, reason));
        }
    }

    fn reconcile_one(
        &mut self,
        fleet: &FleetView,
        around: &impl Surroundings,
        repository: Uuid,
        effects: &mut Vec<Effect>,
        now: Now,
    ) {
        let reported = fleet.git().devices().repositories.get(&repository);
        if !self.look(repository, effects, now) {
            return;
        }
        let desired = self.copy(repository).desired(repository, around, fleet.is_ready());
        let Some(desired) = desired.filter(|desired| desired.place.is_some() || reported.is_some()) else {
            self.queued.remove(&repository);
            effects.extend(self.end_pack(repository));
            if reported.is_none() {
                self.forget_closed(repository);
            }
            return;
        };
        let node = fleet.git().address();
        effects.extend(self.send_desired(desired, reported, node, now));
        match reported.filter(|copy| copy.missing) {
            Some(reported) => self.bring_pack(repository, reported, node, effects, now),
            None => {
                self.queued.remove(&repository);
                if self.known.get(&repository).is_some_and(|copy| copy.pack.is_some()) {
                    // The refs may have moved while the pack was on its way.
                    self.stale.insert(repository);
                }
                effects.extend(self.end_pack(repository));
            }
        }
    }

    /// Whether what the disk answered last is of now; else it is asked.
    fn look(&mut self, repository: Uuid, effects: &mut Vec<Effect>, now: Now) -> bool {
        let copy = self.copy(repository);
        if copy.look == DiskCheck::Due && copy.wait.is_over(now) {
            copy.look = DiskCheck::UnderWay;
            copy.wait.retry_now();
            effects.push(Effect::Copy(CopyWork { repository, action: CopyAction::Inspect }));
        }
        copy.look == DiskCheck::Fresh
    }

    /// What is neither here nor there is not known any more: a later copy begins with a look at the disk.
    fn forget_closed(&mut self, repository: Uuid) {
        if self.copy(repository).original == Some(Disk::Closed) {
            self.known.remove(&repository);
            self.deadlines.set(repository, None);
        }
    }

    /// Sends what a copy shall be, until the git server has accepted it.
    fn send_desired(
        &mut self,
        desired: DesiredRepository,
        reported: Option<&RepositoryCopy>,
        node: &EdgeNodeDescriptor,
        now: Now,
    ) -> Option<Effect> {
        let pace = self.pacing.of(desired.repository, 23);
        let copy = self.copy(desired.repository);
        let digest = desired.digest();
        let report = Report {
            version: reported.map_or(0, |copy| copy.version),
            // Of a copy that lacks objects it is that of the state before.
            digest: reported.filter(|copy| !copy.missing).and_then(|copy| copy.applied.clone()),
            origin: None,
            held: None,
        };
        let is_accepted = copy.sender.has_assigned(report.version, &digest);
        let is_applied = report.digest.as_ref() == Some(&digest);
        if is_accepted && !is_applied && !copy.is_overdue(reported, report.version, now) {
            copy.sender.pause();
            return None;
        }
        copy.accepted = None;
        copy.is_doubted = false;
        let comparison = copy
            .sender
            .compare(&Desired { digest, origin: None, follows: None, is_ageing: false, revision: 1 }, &report);
        let version = comparison.version;
        if comparison.is_agreed() {
            copy.wait.succeeded();
            copy.whole = false;
            copy.problem = None;
        }
        let is_sent = copy.sender.send(comparison, pace, now);
        is_sent.then(|| Effect::Host(DesiredRepository { version, ..desired }.to_request(node.clone())))
    }

    /// Brings a copy what it lacks: the pack is made, and sent a part at a time.
    fn bring_pack(
        &mut self,
        repository: Uuid,
        reported: &RepositoryCopy,
        node: &EdgeNodeDescriptor,
        effects: &mut Vec<Effect>,
        now: Now,
    ) {
        let pace = self.pacing.of(repository, 29);
        let Some(copy) = self.known.get_mut(&repository) else { return };
        let Some(pack) = &mut copy.pack else {
            let Some(Disk::Open(original)) = copy.original.as_ref().filter(|_| copy.wait.is_over(now)) else { return };
            if self.packing.len() >= PACKS_MAX {
                self.queued.insert(repository);
                return;
            }
            self.packing.insert(repository);
            copy.wait.retry_now();
            let refs = original.refs.clone();
            let has = if copy.whole { BTreeSet::new() } else { reported.refs.values().cloned().collect() };
            let action = CopyAction::Pack { refs: served(&refs), has };
            copy.pack = Some(Sending::new(refs, reported.reason.clone()));
            effects.push(Effect::Copy(CopyWork { repository, action }));
            return;
        };
        let Some(file) = pack.file.clone() else { return };
        if let Some(reason) = pack.refusal(&file, reported, now) {
            tracing::warn!(%repository, error = reason, "a copy cannot use its pack; all of the repository is sent to it");
            // It may have been damaged on its way, or lack a base. Once all of the repository was sent, it is the repository.
            copy.problem = copy.whole.then(|| format!("the git server cannot use what is sent of it: {reason}"));
            copy.is_doubted = copy.whole;
            copy.whole = true;
            copy.wait.failed(reason, now);
            effects.extend(self.end_pack(repository));
            return;
        }
        let Some(offset) = pack.next_part(&file, reported, now) else { return };
        if Repetition::send(&mut pack.sent, offset, pace, now) {
            pack.on_sent(&file, offset, now);
            let action = CopyAction::Part { node: node.clone(), file, offset };
            effects.push(Effect::Copy(CopyWork { repository, action }));
        }
    }
}

const fn drop_pack(repository: Uuid, file: PackFile) -> Effect {
    Effect::Copy(CopyWork { repository, action: CopyAction::DropPack(file) })
}
