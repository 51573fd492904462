//! The git server's disk: the copies, and what each shall be. Its own adapter does the same with git.

use std::collections::BTreeMap;
use std::time::Duration;

use git_server::event::{CopyOutcome, CopyResult, CopyWork, PersistedCopies, PersistedCopy};
use git_server_contract::{DesiredRepository, RepositoryPath};
use uuid::Uuid;

use crate::model::git::{MAIN, commit, number};
use crate::model::pack::Content;

/// Steps of the work on a copy: the record, the objects, the refs, the place.
pub const STEPS: u64 = 4;

/// What becomes of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// All are as they were some time ago.
    RolledBack,
    /// None is left.
    All,
    /// One cannot be read.
    Damaged,
    /// What one shall be cannot be read.
    Unrecorded,
}

/// What is on the disk of one repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Stored {
    desired: Option<DesiredRepository>,
    /// The commits that are there, with those that they were made on.
    commits: BTreeMap<u32, u32>,
    main: Option<u32>,
    /// Where it is served.
    place: Option<RepositoryPath>,
}

/// All copies.
#[derive(Debug, Default)]
pub struct Copies {
    stored: BTreeMap<Uuid, Stored>,
    /// The disk is full until then.
    pub full_until: Option<Duration>,
    /// Until then the disk may carry work out and say that it failed.
    pub torn_until: Option<Duration>,
    /// An older state of the whole disk, which may come back.
    snapshot: Option<BTreeMap<Uuid, Stored>>,
}

/// How work on a copy goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// So many of [`STEPS`] are done.
    pub steps: u64,
    /// It is done, and is said to have failed.
    pub is_torn: bool,
    /// It is said that refs have moved that have not.
    pub loses: bool,
}

impl Stored {
    fn refs(&self) -> BTreeMap<String, String> {
        self.main.map(|main| (MAIN.to_owned(), commit(main))).into_iter().collect()
    }

    /// Takes a pack, or nothing of it.
    fn take(&mut self, content: Option<Content>, builds_on: bool) -> Result<(), String> {
        let Content { base, commits } = content.ok_or("it is damaged")?;
        let has = |commit: &u32| builds_on && self.commits.contains_key(commit);
        let is_linked = |parent: &u32| *parent == 0 || commits.contains_key(parent) || has(parent);
        if !base.iter().all(has) || !commits.values().all(is_linked) {
            return Err("it has unresolved deltas".to_owned());
        }
        self.commits.extend(commits);
        Ok(())
    }

    /// Everything that the commit leads to is there.
    fn is_connected(&self, commit: u32) -> bool {
        let next = |commit: &u32| self.commits.get(commit).copied().filter(|parent| *parent != 0);
        std::iter::successors(Some(commit), next).all(|commit| self.commits.contains_key(&commit))
    }
}

impl Copies {
    /// What a new life of the git server finds. What shall not be served is closed.
    pub fn load(&mut self) -> PersistedCopies {
        let mut persisted = PersistedCopies::new();
        for (repository, stored) in &mut self.stored {
            let place = stored.desired.as_ref().and_then(|desired| desired.place.clone());
            if let Some(desired) = &stored.desired {
                let (desired, is_placed) = (desired.clone(), stored.place == place);
                persisted.insert(*repository, PersistedCopy { desired, refs: stored.refs(), is_placed });
            }
            if place.is_none() {
                stored.place = None;
            }
        }
        persisted
    }

    /// Branch `main` of a repository, if that is served.
    #[must_use]
    pub fn served(&self, repository: Uuid) -> Option<(&RepositoryPath, Option<String>)> {
        let stored = self.stored.get(&repository)?;
        Some((stored.place.as_ref()?, stored.main.map(commit)))
    }

    /// Number of the commit that branch `main` of a repository is at, if that is served; 0: it has none.
    #[must_use]
    pub fn main(&self, repository: Uuid) -> Option<u32> {
        let stored = self.stored.get(&repository).filter(|stored| stored.place.is_some())?;
        Some(stored.main.unwrap_or(0))
    }

    /// Repositories that are served.
    pub fn open(&self) -> impl Iterator<Item = Uuid> {
        self.stored.iter().filter(|(_, stored)| stored.place.is_some()).map(|(repository, _)| *repository)
    }

    /// The first time the disk is copied for [`Loss::RolledBack`], the next time the copy takes its place. True: something is lost.
    pub fn lose(&mut self, loss: Loss, which: usize) -> bool {
        let number = self.stored.len();
        let one = self.stored.values_mut().nth(which % number.max(1));
        match (loss, one) {
            (Loss::RolledBack, _) => match self.snapshot.take() {
                Some(snapshot) => self.stored = snapshot,
                None => {
                    self.snapshot = Some(self.stored.clone());
                    return false;
                }
            },
            (Loss::All, _) => self.stored.clear(),
            (Loss::Damaged, Some(stored)) => (stored.commits, stored.main) = (BTreeMap::new(), None),
            (Loss::Unrecorded, Some(stored)) => stored.desired = None,
            (Loss::Damaged | Loss::Unrecorded, None) => return false,
        }
        true
    }

    /// Works on a copy, in the order of the adapter.
    pub(crate) fn perform(&mut self, work: CopyWork, now: Duration, failure: Failure) -> CopyResult {
        let (repository, version) = (work.desired.repository, work.desired.version);
        let is_full = self.full_until.is_some_and(|until| until > now);
        let stored = self.stored.entry(repository).or_default();
        let mut result = CopyResult {
            repository,
            version,
            is_recorded: work.is_recorded,
            refs: BTreeMap::new(),
            is_served: false,
            outcome: CopyOutcome::Missing,
            pack_error: None,
        };
        if is_full {
            result.outcome = CopyOutcome::Failed("no space left on device".to_owned());
        } else {
            stored.change(work, failure, &mut result);
            if failure.is_torn {
                result.outcome = CopyOutcome::Failed("input/output error".to_owned());
            }
        }
        (result.refs, result.is_served) = (stored.refs(), stored.place.is_some());
        if failure.loses && result.outcome == CopyOutcome::Applied {
            let refs = stored.desired.as_ref().map(|desired| desired.refs.clone());
            result.refs = refs.unwrap_or_default();
        }
        result
    }
}

impl Stored {
    fn change(&mut self, work: CopyWork, failure: Failure, result: &mut CopyResult) {
        let CopyWork { desired, is_recorded, packs, builds_on } = work;
        if failure.steps < 1 {
            return;
        }
        if !is_recorded {
            self.desired = Some(desired.clone());
        }
        result.is_recorded = true;
        let Some(place) = desired.place else {
            self.place = None;
            result.outcome = CopyOutcome::Applied;
            return;
        };
        // Another name counts at once; what has never been whole is not served before it is.
        if self.place.is_some() {
            self.place = Some(place.clone());
        }
        for pack in packs.iter().filter(|_| failure.steps > 1) {
            if let Err(reason) = self.take(Content::read(pack), builds_on) {
                result.pack_error = Some(format!("a pack is not taken: {reason}"));
            }
        }
        let wanted = desired.refs.get(MAIN).and_then(|commit| number(commit));
        if failure.steps < 3 || wanted != self.main && wanted.is_some_and(|commit| !self.is_connected(commit)) {
            return;
        }
        if !failure.loses {
            self.main = wanted;
        }
        if failure.steps > 3 {
            self.place = Some(place);
            result.outcome = CopyOutcome::Applied;
        }
    }
}
