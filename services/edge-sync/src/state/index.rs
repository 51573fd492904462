//! The accepted index: how it is loaded, how the next one is stored, and which one is refused.
//!
//! An index is accepted when the record of it is stored, never before. Only one save is under way; of the indexes that come meanwhile the
//! newest waits. Where it comes from decides whether it is taken at all: from a store that is older than what was accepted, or from another one, nothing is.

use std::time::Duration;

use edge_sync_contract::{CommandError, DesiredDeployment, DesiredIndex, DesiredSource, Digest};
use service_runtime::{Effects, Saved};
use sparkplug::backoff::Backoff;
use sparkplug::replication::{DesiredReceiver, Hold, Outcome};
use uuid::Uuid;

use crate::event::{Effect, ErrorClass, KubernetesError};
use crate::record::{IndexRecord, StoredRecord};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Busy {
    No,
    Loading,
    Saving,
}

/// Keeps the accepted index.
#[derive(Debug, Clone)]
pub struct AcceptedIndex {
    is_loaded: bool,
    accepted: Option<IndexRecord>,
    receiver: DesiredReceiver<Digest>,
    resource_version: Option<String>,
    unreadable: Option<String>,
    refused: Option<String>,
    waiting: Option<DesiredIndex>,
    busy: Busy,
    must_load: bool,
    /// The highest version above the accepted one that was seen on an object.
    later_seen: u64,
    /// `later_seen` when the load that is under way began: what was stored after that it may not have read.
    load_is_for: u64,
    /// No version up to this one is of a later index than that of the record.
    later_ruled_out: u64,
    store_error: Option<String>,
    retry: Backoff,
    retry_at: Option<Duration>,
}

impl AcceptedIndex {
    /// Nothing is known yet.
    pub fn new(retry: Backoff) -> Self {
        Self {
            is_loaded: false,
            accepted: None,
            receiver: DesiredReceiver::default(),
            resource_version: None,
            unreadable: None,
            refused: None,
            waiting: None,
            busy: Busy::No,
            must_load: true,
            later_seen: 0,
            load_is_for: 0,
            later_ruled_out: 0,
            store_error: None,
            retry,
            retry_at: None,
        }
    }

    /// The record has been read once.
    pub fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    pub fn accepted(&self) -> Option<&IndexRecord> {
        self.accepted.as_ref()
    }

    /// Another index is being stored.
    pub fn is_saving(&self) -> bool {
        self.busy == Busy::Saving
    }

    /// What is followed for a deployment; None: it is not desired.
    pub fn entry(&self, deployment: Uuid) -> Option<DesiredDeployment> {
        self.accepted.as_ref().and_then(|record| record.entry(deployment))
    }

    /// Takes an index that arrived. One that is accepted will be stored; a duplicate is stored already.
    pub fn on_command(&mut self, index: DesiredIndex) -> Outcome {
        let outcome = self.receiver.receive(&index.stamp());
        match outcome {
            Outcome::Accepted => {
                self.waiting = Some(index);
                self.know_newest();
            }
            Outcome::Duplicate => {
                self.refused = None;
                if self.waiting.is_some() {
                    return Outcome::Accepted;
                }
            }
            Outcome::Stale | Outcome::Held(_) => {}
            Outcome::Conflict => {
                let (version, digest) = (index.version, index.digest());
                let known = self.newest().map_or(digest, DesiredIndex::digest);
                self.refused = Some(format!(
                    "Desired/Index version {version} was given with digest {known} before, not with {digest}; send it with a version above {version}"
                ));
            }
        }
        outcome
    }

    /// Why what the control plane sends is held.
    pub fn held(&self) -> Option<Hold> {
        self.receiver.held()
    }

    /// Why commits would be held that come from there.
    pub fn hold_of(&self, source: &DesiredSource) -> Option<Hold> {
        self.receiver.hold_of(source.origin, source.follows)
    }

    fn newest(&self) -> Option<&DesiredIndex> {
        self.waiting.as_ref().or(self.accepted.as_ref().map(|record| &record.index))
    }

    fn know_newest(&mut self) {
        let newest = self.newest().map(DesiredIndex::stamp);
        self.receiver.set_accepted(newest);
    }

    /// Takes an index that cannot be read.
    pub fn on_bad_command(&mut self, error: &CommandError) {
        self.refused = Some(error.to_string());
    }

    /// Takes the answer of a load. True: another index is accepted than before.
    pub fn on_loaded(&mut self, stored: StoredRecord) -> bool {
        self.busy = Busy::No;
        self.is_loaded = true;
        self.later_ruled_out = self.load_is_for;
        let read = stored.record.as_ref().map_or(0, |record| record.index.version);
        self.must_load = self.later_seen > self.load_is_for.max(read);
        self.settled();
        self.resource_version = stored.resource_version;
        self.unreadable = stored.unreadable;
        let known = self.accepted.as_ref().map_or(0, |record| record.index.version);
        match stored.record {
            // Someone else, who is being replaced by this process, may have stored a later one.
            Some(record) if record.index.version > known => {
                self.accept(record);
                true
            }
            _ => false,
        }
    }

    /// Takes the answer of a save that succeeded.
    pub fn on_saved(&mut self, resource_version: String, saved: Effects<Saved, IndexRecord>) {
        self.busy = Busy::No;
        self.settled();
        self.resource_version = Some(resource_version);
        self.unreadable = None;
        self.refused = None;
        for record in saved {
            self.accept(record);
        }
    }

    /// Takes the error of a load or a save.
    pub fn on_error(&mut self, error: &KubernetesError, now: Duration) {
        self.busy = Busy::No;
        self.must_load |= error.class == ErrorClass::Conflict;
        self.store_error = Some(error.message.clone());
        self.retry_at = Some(now + self.retry.next_delay());
    }

    /// The API server answers again: no reason to wait.
    pub fn retry_now(&mut self) {
        if self.retry_at.is_some() {
            self.retry_at = Some(Duration::ZERO);
        }
    }

    /// Whether another process may have stored a later index and applied `version` by it. It is not so when the record was read since: then the mark on the
    /// object is wrong, or the record was lost.
    pub fn may_be_behind(&self, version: u64) -> bool {
        self.accepted.as_ref().is_none_or(|record| version > record.index.version) && version > self.later_ruled_out
    }

    /// An object carries a later version than the accepted index. The record is read, once for each version.
    pub fn later_is_applied(&mut self, version: u64, now: Duration) -> Option<Effect> {
        if version <= self.later_seen {
            return None;
        }
        self.later_seen = version;
        self.must_load = true;
        self.next_effect(now, false)
    }

    /// What is to be done, if it is time. `may_save`: nothing is under way that only the accepted index allows.
    pub fn next_effect(&mut self, now: Duration, may_save: bool) -> Option<Effect> {
        if self.busy != Busy::No || self.retry_at.is_some_and(|at| at > now) {
            return None;
        }
        if self.must_load {
            self.busy = Busy::Loading;
            self.load_is_for = self.later_seen;
            return Some(Effect::LoadIndex);
        }
        let index = self.waiting.clone().filter(|_| may_save)?;
        let record = IndexRecord::following(self.accepted.as_ref(), index);
        self.busy = Busy::Saving;
        let then = [record.clone()].into_iter().collect();
        Some(Effect::SaveIndex { record, replaces: self.resource_version.clone(), then })
    }

    /// When [`AcceptedIndex::next_effect`] has something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        let has_work = self.must_load || self.waiting.is_some();
        if self.busy == Busy::No && has_work { self.retry_at } else { None }
    }

    /// For `Desired/Reason`.
    pub fn errors(&self) -> impl Iterator<Item = String> {
        let waiting = match (&self.store_error, &self.waiting) {
            (Some(error), Some(index)) => {
                Some(format!("Desired/Index version {} waits until it can be stored: {error}", index.version))
            }
            (Some(error), None) => Some(format!("the accepted index cannot be read: {error}")),
            (None, _) => None,
        };
        let unreadable = self.unreadable.as_ref().map(|reason| {
            format!("the stored index {reason}; versions start again with the next Desired/Index, which replaces it")
        });
        self.refused.clone().into_iter().chain(waiting).chain(unreadable)
    }

    fn accept(&mut self, record: IndexRecord) {
        if self.waiting.as_ref().is_some_and(|waiting| waiting.version <= record.index.version) {
            self.waiting = None;
        }
        self.accepted = Some(record);
        self.know_newest();
    }

    fn settled(&mut self) {
        self.store_error = None;
        self.retry.reset();
        self.retry_at = None;
    }
}
