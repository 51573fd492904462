//! What survives a process: shared with its program, so that a commit inside a turn is durable whatever happens after.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use configdb::store::MemoryStore;
use sparkplug::BdSeq;

/// A disk; clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Disk(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    bd_seq: Option<BdSeq>,
    store: Option<MemoryStore>,
}

impl Disk {
    /// A disk with a database on it.
    #[must_use]
    pub fn with_store(store: MemoryStore) -> Self {
        let disk = Self::default();
        disk.lock().store = Some(store);
        disk
    }

    /// bdSeq of the next session.
    #[must_use]
    pub fn bd_seq(&self) -> BdSeq {
        self.lock().bd_seq.unwrap_or(BdSeq::ZERO)
    }

    /// Stores the bdSeq of the next session.
    pub fn store_bd_seq(&self, next: BdSeq) {
        self.lock().bd_seq = Some(next);
    }

    /// The database.
    #[must_use]
    pub fn store(&self) -> Option<MemoryStore> {
        self.lock().store.clone()
    }

    /// Another database takes the place of this one: what a broken disk does.
    pub fn replace_store(&self, store: MemoryStore) {
        self.lock().store = Some(store);
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
