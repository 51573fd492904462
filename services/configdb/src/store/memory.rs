//! A store in memory whose content outlives the handle: a simulated disk. Clones are the same disk, so a "crashed" service can be started again on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use configdb_contract::{HistoryEntry, ReplayRequest};
use sparkplug::replication::Timelines;
use uuid::Uuid;

use super::{Commit, NOT_RECORDED, ObjectRow, RecordedRequest, Retention, Snapshot, Store, StoreError, WriteRow};
use crate::object::StoredEntry;

/// A handle on the simulated disk.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Debug, Clone)]
struct Disk {
    identity: Uuid,
    timelines: Timelines,
    revision: u64,
    objects: BTreeMap<Uuid, ObjectRow>,
    applications: BTreeMap<Uuid, Arc<str>>,
    entries: BTreeMap<(Uuid, Uuid), StoredEntry>,
    requests: BTreeMap<u64, RecordedRequest>,
    history: Vec<HistoryEntry>,
}

impl MemoryStore {
    /// An empty disk of that identity.
    #[must_use]
    pub fn new(identity: Uuid) -> Self {
        let disk = Disk {
            identity,
            timelines: Timelines::default(),
            revision: 0,
            objects: BTreeMap::new(),
            applications: BTreeMap::new(),
            entries: BTreeMap::new(),
            requests: BTreeMap::new(),
            history: Vec::new(),
        };
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// Another disk with the same content and another identity.
    #[must_use]
    pub fn copy(&self, identity: Uuid) -> Self {
        let disk = Disk { identity, ..self.lock().clone() };
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// As [`Store::load`], at once.
    #[must_use]
    pub fn load_now(&self) -> Snapshot {
        let disk = self.lock();
        Snapshot {
            identity: disk.identity,
            timelines: disk.timelines.clone(),
            revision: disk.revision,
            objects: disk.objects.values().cloned().collect(),
            applications: disk.applications.iter().map(|(uuid, slug)| (*uuid, slug.clone())).collect(),
            entries: disk.entries.iter().map(|((o, a), entry)| (*o, *a, entry.clone())).collect(),
            requests: disk.requests.values().cloned().collect(),
        }
    }

    /// Revision of the last transaction; much cheaper than a snapshot.
    #[must_use]
    pub fn revision_now(&self) -> u64 {
        self.lock().revision
    }

    /// As [`Store::commit`], at once.
    pub fn commit_now(&self, commit: &Commit) {
        let mut disk = self.lock();
        if let Some(timelines) = &commit.timelines {
            disk.timelines = timelines.clone();
        }
        for transaction in &commit.transactions {
            disk.revision = transaction.revision;
            if let Some(row) = &transaction.object {
                disk.objects.insert(row.uuid, row.clone());
            }
            match &transaction.application {
                Some((uuid, Some(slug))) => drop(disk.applications.insert(*uuid, slug.clone())),
                Some((uuid, None)) => drop(disk.applications.remove(uuid)),
                None => {}
            }
            for row in &transaction.entries {
                let key = (row.object, row.application);
                match &row.entry {
                    Some(entry) => drop(disk.entries.insert(key, entry.clone())),
                    None => drop(disk.entries.remove(&key)),
                }
            }
            disk.history.extend(transaction.history.iter().map(|row| HistoryEntry {
                object: row.object,
                slug: row.slug.clone(),
                json: row.new.clone(),
                etag: row.etag,
                revision: transaction.revision,
                time: transaction.time,
                writer: transaction.writer.clone(),
                request: transaction.request.clone(),
            }));
        }
        for request in &commit.requests {
            disk.requests.insert(request.sequence, request.clone());
        }
        disk.requests = disk.requests.split_off(&commit.forget_below);
    }

    /// As [`Store::history`], at once.
    #[must_use]
    pub fn history_now(&self, request: &ReplayRequest) -> Vec<HistoryEntry> {
        let disk = self.lock();
        let wanted = disk.history.iter().filter(|h| {
            h.object == request.object
                && h.revision >= request.from_revision
                && request.slug.as_deref().is_none_or(|slug| slug == &*h.slug)
        });
        wanted.take(usize::try_from(request.limit).unwrap_or(usize::MAX)).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        // A commit is written piece by piece, but by the only writer; a panic in between ends the test that has it.
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    async fn load(&mut self) -> Result<Snapshot, StoreError> {
        Ok(self.load_now())
    }

    async fn commit(&mut self, commit: &Commit) -> Result<(), StoreError> {
        self.commit_now(commit);
        Ok(())
    }

    async fn probe(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn history(&mut self, request: &ReplayRequest) -> Result<Vec<HistoryEntry>, StoreError> {
        Ok(self.history_now(request))
    }

    async fn writes(&mut self, after: (u64, u64), limit: u64) -> Result<Vec<WriteRow>, StoreError> {
        let disk = self.lock();
        let mut place = (0, 0);
        let rows = disk.history.iter().map(|line| {
            place = (line.revision, if place.0 == line.revision { place.1 + 1 } else { 0 });
            WriteRow {
                at: place,
                time: line.time,
                object: line.object,
                slug: line.slug.clone(),
                is_deletion: line.json.is_none(),
                writer: line.writer.clone(),
                request: line.request.clone(),
                token: line.json.clone(),
            }
        });
        let wanted = rows.filter(|row| row.at > after && !NOT_RECORDED.contains(&&*row.slug));
        Ok(wanted.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect())
    }

    async fn prune(&mut self, keep: &Retention, wall: u64) -> Result<u64, StoreError> {
        let mut disk = self.lock();
        let bytes = |entry: &HistoryEntry| entry.json.as_deref().map_or(0, str::len) as u64;
        let mut total: u64 = disk.history.iter().map(bytes).sum();
        let mut pruned = 0;
        while let Some(oldest) = disk.history.get(pruned).filter(|oldest| keep.is_beyond(oldest.time, wall, total)) {
            total -= bytes(oldest);
            pruned += 1;
        }
        disk.history.drain(..pruned);
        Ok(pruned as u64)
    }

    async fn close(self) {}
}
