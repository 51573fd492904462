//! Answered requests, so that a repeated one gets the same answer. Bounded: the oldest are forgotten.

use std::collections::BTreeMap;

use configdb_contract::RequestResult;
use serde::Serialize;
use uuid::Uuid;

use crate::store::RecordedRequest;

/// What is known of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    No,
    Same(RequestResult),
    /// Another request had this id.
    Other,
}

#[derive(Debug)]
pub(super) struct RequestLog {
    requests_max: u64,
    next: u64,
    by_sequence: BTreeMap<u64, RecordedRequest>,
    sequences: BTreeMap<String, u64>,
}

impl RequestLog {
    pub(super) fn new(recorded: &[RecordedRequest], requests_max: usize) -> Self {
        let requests_max = requests_max.max(1) as u64;
        let mut log = Self { requests_max, next: 0, by_sequence: BTreeMap::new(), sequences: BTreeMap::new() };
        for request in recorded {
            log.next = request.sequence;
            log.insert(request.clone());
        }
        log
    }

    pub(super) fn find(&self, id: &str, digest: Uuid) -> Known {
        match self.sequences.get(id).and_then(|sequence| self.by_sequence.get(sequence)) {
            None => Known::No,
            Some(known) if known.digest == digest => Known::Same(known.result.clone()),
            Some(_) => Known::Other,
        }
    }

    pub(super) fn record(&mut self, digest: Uuid, result: RequestResult) -> RecordedRequest {
        let request = RecordedRequest { sequence: self.next, digest, result };
        self.insert(request.clone());
        request
    }

    fn insert(&mut self, request: RecordedRequest) {
        self.next += 1;
        self.sequences.insert(request.result.id.clone(), request.sequence);
        self.by_sequence.insert(request.sequence, request);
        let below = self.forget_below();
        while let Some(oldest) = self.by_sequence.first_entry().filter(|entry| *entry.key() < below) {
            self.sequences.remove(&oldest.remove().result.id);
        }
    }

    pub(super) const fn forget_below(&self) -> u64 {
        self.next.saturating_sub(self.requests_max)
    }

    pub(super) fn last(&self) -> Option<&RequestResult> {
        self.by_sequence.last_key_value().map(|(_, request)| &request.result)
    }
}

/// The same for two requests exactly when they say the same.
pub(super) fn digest(request: &impl Serialize) -> Uuid {
    let text = serde_json::to_vec(request).expect("a request consists of texts, numbers, UUIDs and JSON");
    Uuid::new_v5(&Uuid::nil(), &text)
}

#[cfg(test)]
mod tests {
    use configdb_contract::{Outcome, WriteRequest};

    use super::*;

    fn result(id: &str) -> RequestResult {
        RequestResult {
            id: id.to_owned(),
            object: Uuid::nil(),
            outcome: Outcome::Applied,
            revision: 1,
            etags: BTreeMap::new(),
            reason: None,
            field: None,
            store: None,
            at: 0,
        }
    }

    #[test]
    fn the_oldest_are_forgotten_in_memory_and_in_the_store() {
        let digest = Uuid::from_u128(1);
        let mut log = RequestLog::new(&[], 2);
        let recorded: Vec<_> = ["a", "b", "c"].iter().map(|id| log.record(digest, result(id))).collect();
        assert_eq!(log.find("a", digest), Known::No);
        assert_eq!(log.find("b", digest), Known::Same(result("b")));
        assert_eq!(log.forget_below(), 1);
        let again = RequestLog::new(&recorded[1..], 2);
        assert_eq!((again.find("c", digest), again.next), (Known::Same(result("c")), 3));
        assert_eq!(again.last(), Some(&result("c")));
    }

    #[test]
    fn an_id_with_other_content_is_distinguished() {
        let mut log = RequestLog::new(&[], 2);
        log.record(digest(&WriteRequest::put("a", Uuid::nil()).delete("Info")), result("a"));
        assert_eq!(log.find("a", digest(&WriteRequest::put("a", Uuid::nil()).delete("GitConfig"))), Known::Other);
        let same = digest(&WriteRequest::put("a", Uuid::nil()).delete("Info"));
        assert_eq!(log.find("a", same), Known::Same(result("a")));
    }
}
