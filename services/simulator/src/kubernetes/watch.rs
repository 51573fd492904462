//! The bounded log of changes, and reading it: watches, and lists at an older version. Pure.
//!
//! The log is the only buffer there is between a writer and a watch: a reader that falls behind its beginning gets 410 Gone and lists again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::error::ApiError;
use super::kinds::ResourceId;
use super::selector::Selector;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

#[derive(Debug, Clone)]
pub struct LogEntry {
    /// resourceVersion of the write.
    pub version: u64,
    /// Kind of the object.
    pub resource: ResourceId,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    pub name: String,
    pub change: Change,
    /// The object after the write; for a deletion its last state with the version of the deletion.
    pub object: Arc<Value>,
    /// The object before the write.
    pub previous: Option<Arc<Value>>,
}

/// The changes since `compacted`.
#[derive(Debug)]
pub struct EventLog {
    entries: VecDeque<LogEntry>,
    capacity: usize,
    compacted: u64,
}

impl EventLog {
    /// A log that keeps at most `capacity` changes after version `compacted`.
    pub fn new(capacity: usize, compacted: u64) -> Self {
        Self { entries: VecDeque::new(), capacity, compacted }
    }

    /// Appends a change and forgets the oldest beyond the capacity.
    pub fn push(&mut self, entry: LogEntry) {
        self.entries.push_back(entry);
        while self.entries.len() > self.capacity {
            if let Some(dropped) = self.entries.pop_front() {
                self.compacted = dropped.version;
            }
        }
    }

    /// Forgets everything up to `version`.
    pub fn expire(&mut self, version: u64) {
        self.entries.clear();
        self.compacted = version;
    }

    /// Refuses a version that the log no longer reaches back to.
    pub fn check(&self, version: u64) -> Result<(), ApiError> {
        if version < self.compacted {
            return Err(ApiError::expired(format!("too old resource version: {version} ({})", self.compacted)));
        }
        Ok(())
    }

    /// Changes after `version`, oldest first.
    pub fn since(&self, version: u64) -> impl DoubleEndedIterator<Item = &LogEntry> {
        let start = self.entries.partition_point(|entry| entry.version <= version);
        self.entries.range(start..)
    }

    /// Turns the current objects of a resource into those of an older version, by undoing what happened since.
    pub fn rewind(
        &self,
        resource: &ResourceId,
        current: &BTreeMap<(String, String), Arc<Value>>,
        version: u64,
    ) -> Result<BTreeMap<(String, String), Arc<Value>>, ApiError> {
        self.check(version)?;
        let mut objects = current.clone();
        for entry in self.since(version).rev().filter(|e| e.resource == *resource) {
            let key = (entry.namespace.clone(), entry.name.clone());
            match &entry.previous {
                Some(previous) => objects.insert(key, previous.clone()),
                None => objects.remove(&key),
            };
        }
        Ok(objects)
    }
}

/// One event of a watch, before it is written as JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchEvent {
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub kind: &'static str,
    pub object: Arc<Value>,
}

/// Where a watch has got to.
#[derive(Debug, Clone)]
pub struct Cursor {
    pub resource: ResourceId,
    /// One namespace, or all.
    pub namespace: Option<String>,
    pub selector: Selector,
    /// Everything up to this version has been delivered.
    pub version: u64,
}

/// Events delivered by one poll at most, so that one slow watch does not hold the store's lock for long.
const EVENTS_PER_POLL_MAX: usize = 256;

impl Cursor {
    /// The next events; empty when the cursor has reached `current`. Objects that enter or leave the selection appear as added or deleted.
    pub fn poll(&mut self, log: &EventLog, current: u64) -> Result<Vec<WatchEvent>, ApiError> {
        log.check(self.version)?;
        let mut events = Vec::new();
        for entry in log.since(self.version) {
            if events.len() >= EVENTS_PER_POLL_MAX {
                return Ok(events);
            }
            self.version = entry.version;
            if entry.resource == self.resource && self.namespace.as_ref().is_none_or(|ns| *ns == entry.namespace) {
                events.extend(self.event(entry));
            }
        }
        self.version = self.version.max(current);
        Ok(events)
    }

    fn event(&self, entry: &LogEntry) -> Option<WatchEvent> {
        let was = entry.previous.as_ref().is_some_and(|previous| self.selector.matches(previous));
        let is = entry.change != Change::Deleted && self.selector.matches(&entry.object);
        let kind = match (was, is) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return None,
        };
        Some(WatchEvent { kind, object: entry.object.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(version: u64, change: Change, before: Option<&str>, after: &str) -> LogEntry {
        let object = |label: &str| Arc::new(json!({"metadata": {"name": "n", "labels": {"app": label}}}));
        LogEntry {
            version,
            resource: ResourceId::new("", "configmaps"),
            namespace: "ns".to_string(),
            name: "n".to_string(),
            change,
            object: object(after),
            previous: before.map(object),
        }
    }

    fn cursor(labels: &str, version: u64) -> Cursor {
        let resource = ResourceId::new("", "configmaps");
        let selector = Selector::parse(&resource, labels, "").unwrap();
        Cursor { resource, namespace: None, selector, version }
    }

    #[test]
    fn objects_entering_and_leaving_a_selection_are_added_and_deleted() {
        let mut log = EventLog::new(10, 0);
        log.push(entry(1, Change::Added, None, "x"));
        log.push(entry(2, Change::Modified, Some("x"), "wanted"));
        log.push(entry(3, Change::Modified, Some("wanted"), "wanted"));
        log.push(entry(4, Change::Modified, Some("wanted"), "x"));
        log.push(entry(5, Change::Deleted, Some("x"), "x"));
        let mut cursor = cursor("app=wanted", 0);
        let kinds: Vec<_> = cursor.poll(&log, 5).unwrap().iter().map(|e| e.kind).collect();
        assert_eq!(kinds, ["ADDED", "MODIFIED", "DELETED"]);
        assert_eq!(cursor.version, 5);
        assert_eq!(cursor.poll(&log, 5), Ok(Vec::new()));
    }

    #[test]
    fn a_reader_behind_the_log_gets_an_error() {
        let mut log = EventLog::new(2, 0);
        for version in 1..=4 {
            log.push(entry(version, Change::Modified, Some("x"), "x"));
        }
        assert_eq!(cursor("", 1).poll(&log, 4).map_err(|e| e.code), Err(410));
        assert_eq!(cursor("", 2).poll(&log, 4).map(|e| e.len()), Ok(2));
        log.expire(5);
        assert_eq!(cursor("", 4).poll(&log, 5).map_err(|e| e.code), Err(410));
        assert_eq!(cursor("", 5).poll(&log, 5), Ok(Vec::new()));
    }

    #[test]
    fn rewinding_undoes_creations_changes_and_deletions() {
        let mut log = EventLog::new(10, 0);
        log.push(entry(1, Change::Added, None, "one"));
        log.push(entry(2, Change::Modified, Some("one"), "two"));
        log.push(entry(3, Change::Deleted, Some("two"), "two"));
        let resource = ResourceId::new("", "configmaps");
        let label_at = |version| {
            let objects = log.rewind(&resource, &BTreeMap::new(), version).unwrap();
            objects.values().next().map(|o| o["metadata"]["labels"]["app"].as_str().unwrap().to_string())
        };
        assert_eq!(label_at(0), None);
        assert_eq!(label_at(1), Some("one".to_string()));
        assert_eq!(label_at(2), Some("two".to_string()));
        assert_eq!(label_at(3), None);
    }
}
