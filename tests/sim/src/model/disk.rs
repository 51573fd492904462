//! What survives a process: shared with its program, so that a commit inside a turn is durable whatever happens after.
//!
//! The disk of ConfigDB remembers every state that its store ever had, so that any of them can come back, and which state follows which.
//! So a check needs no word of the code under test to know whether one state contains another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use configdb::store::{Commit, MemoryStore};
use identity::issued::Issued;
use sparkplug::BdSeq;
use sparkplug::replication::Point;
use uuid::Uuid;

use crate::model::copies::Copies;
use crate::model::past::Past;

/// A disk; clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Disk(Arc<Mutex<Content>>);

/// What is wrong with a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// There is no room.
    Full,
    /// Nothing can be written.
    Broken,
    /// The next commit is written, but its program does not receive it.
    Torn,
}

/// Why a commit failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitError {
    /// There is no room; nothing was written.
    Full,
    /// It was written or not.
    Unknown,
}

#[derive(Debug, Default)]
struct Content {
    /// bdSeq of the next session, and those that were stored before.
    bd_seqs: Vec<BdSeq>,
    /// What Identity has issued.
    issued: BTreeMap<Uuid, Issued>,
    store: Option<MemoryStore>,
    /// The console's history.
    past: Past,
    /// The git server's copies.
    copies: Copies,
    identity: Uuid,
    fault: Option<DiskFault>,
    /// The run that writes.
    timeline: u64,
    /// The state that the store began with; then each commit, and the state that it led to.
    base: Option<MemoryStore>,
    commits: Vec<(Commit, Option<Point>)>,
    /// Of each state that any store here ever had: the one that it was made from. None: the one that its store began with.
    made_from: BTreeMap<(Uuid, Point), Option<Point>>,
}

impl Content {
    fn state(&self) -> Option<Point> {
        self.commits.last().and_then(|(_, state)| *state)
    }

    fn commit(&mut self, commit: &Commit) {
        let Some(store) = &self.store else { return };
        let identity = self.identity;
        store.commit_now(commit);
        let mut state = self.state();
        for transaction in &commit.transactions {
            let next = Point { timeline: self.timeline, revision: transaction.revision };
            self.made_from.insert((identity, next), state);
            state = Some(next);
        }
        self.commits.push((commit.clone(), state));
    }
}

impl Disk {
    /// A disk with a database on it.
    #[must_use]
    pub fn with_store(store: MemoryStore) -> Self {
        let disk = Self::default();
        disk.replace_store(store);
        disk
    }

    /// bdSeq of the next session.
    #[must_use]
    pub fn bd_seq(&self) -> BdSeq {
        self.lock().bd_seqs.last().copied().unwrap_or(BdSeq::ZERO)
    }

    /// Stores the bdSeq of the next session.
    pub fn store_bd_seq(&self, next: BdSeq) {
        self.lock().bd_seqs.push(next);
    }

    /// The bdSeq becomes the one that was stored so many sessions ago.
    pub fn roll_back_bd_seq(&self, sessions: usize) {
        let mut content = self.lock();
        let kept = content.bd_seqs.len().saturating_sub(sessions);
        content.bd_seqs.truncate(kept);
    }

    /// What Identity has issued.
    #[must_use]
    pub fn issued(&self) -> BTreeMap<Uuid, Issued> {
        self.lock().issued.clone()
    }

    /// Identity has issued something.
    pub fn remember(&self, issued: BTreeMap<Uuid, Issued>) {
        self.lock().issued.extend(issued);
    }

    /// The console's history.
    pub fn with_past<T>(&self, take: impl FnOnce(&mut Past) -> T) -> T {
        take(&mut self.lock().past)
    }

    /// The git server's copies.
    pub fn with_copies<T>(&self, take: impl FnOnce(&mut Copies) -> T) -> T {
        take(&mut self.lock().copies)
    }

    /// The database.
    #[must_use]
    pub fn store(&self) -> Option<MemoryStore> {
        self.lock().store.clone()
    }

    /// Another database takes the place of this one.
    pub fn replace_store(&self, store: MemoryStore) {
        let mut content = self.lock();
        content.identity = store.load_now().identity;
        content.base = Some(store.copy(content.identity));
        content.store = Some(store);
        content.commits.clear();
    }

    /// The database as it was before the last so many commits takes the place of this one.
    pub fn restore(&self, lost: usize) {
        let mut content = self.lock();
        let kept = content.commits.len().saturating_sub(lost);
        content.commits.truncate(kept);
        let Some(base) = &content.base else { return };
        let store = base.copy(content.identity);
        content.commits.iter().for_each(|(commit, _)| store.commit_now(commit));
        content.store = Some(store);
    }

    /// Identity of the database.
    #[must_use]
    pub fn identity(&self) -> Uuid {
        self.lock().identity
    }

    /// How many commits the database consists of.
    #[must_use]
    pub fn commits(&self) -> usize {
        self.lock().commits.len()
    }

    /// A program begins to write.
    pub fn open(&self, timeline: u64) {
        self.lock().timeline = timeline;
    }

    /// What is wrong from here on.
    pub fn set_fault(&self, fault: Option<DiskFault>) {
        self.lock().fault = fault;
    }

    /// Whether anything can be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.lock().fault.is_none()
    }

    /// Stores a commit.
    ///
    /// # Errors
    /// The disk is at fault.
    pub fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let mut content = self.lock();
        match content.fault {
            None => content.commit(commit),
            Some(DiskFault::Full) => return Err(CommitError::Full),
            Some(DiskFault::Broken) => return Err(CommitError::Unknown),
            Some(DiskFault::Torn) => {
                content.fault = None;
                content.commit(commit);
                return Err(CommitError::Unknown);
            }
        }
        Ok(())
    }

    /// Whether a state of a store contains another one of it.
    #[must_use]
    pub fn contains(&self, store: Uuid, newer: Point, older: Point) -> bool {
        let content = self.lock();
        let is_written = |point: Point| content.made_from.contains_key(&(store, point));
        let mut state = Some(newer).filter(|point| is_written(*point));
        while let Some(point) = state {
            if point == older {
                return true;
            }
            state = content.made_from.get(&(store, point)).copied().flatten();
        }
        // What the store began with is contained in everything.
        !is_written(older)
    }

    /// Whether the store as it is now contains a state that someone accepted.
    #[must_use]
    pub fn knows(&self, store: Uuid, accepted: Point) -> bool {
        let (state, identity) = {
            let content = self.lock();
            (content.state(), content.identity)
        };
        identity == store && self.contains(store, state.unwrap_or(Point { timeline: 0, revision: 0 }), accepted)
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
