//! A Kubernetes API in memory, as far as the service uses it: versions that grow, conflicts, tokens.

use std::collections::BTreeMap;

use join_protocol::terms::RequestId;
use join_service::document::{Document, HostRecord, Key, Request, Store, from_text};
use join_service::event::{ErrorClass, Operation, StoreError, TransactionError, Version, Written};

#[derive(Default)]
pub struct MemoryStore {
    documents: BTreeMap<Key, (u64, String)>,
    /// Live tokens, and for which request each was made.
    pub tokens: BTreeMap<String, RequestId>,
    /// Every token that was ever made.
    pub made: Vec<String>,
    version: u64,
    /// How often anything was written.
    pub changes: u64,
    /// The API server does not answer.
    pub is_away: bool,
}

impl MemoryStore {
    pub fn apply(&mut self, operation: Operation, written: &[Written]) -> Result<Option<Written>, TransactionError> {
        let key = match &operation {
            Operation::Create { key, .. } | Operation::Replace { key, .. } | Operation::Delete { key, .. } => {
                Some(key.clone())
            }
            _ => None,
        };
        let failed = |class, message: &str| {
            let error = StoreError { class, message: message.to_owned() };
            TransactionError { at: "operation".to_owned(), key: key.clone(), error }
        };
        if self.is_away {
            return Err(failed(ErrorClass::Unreachable, "away"));
        }
        self.changes += 1;
        let conflict = || failed(ErrorClass::Conflict, "another version");
        match operation {
            Operation::Create { key, text } => {
                if self.documents.contains_key(&key) {
                    return Err(conflict());
                }
                Ok(Some(self.put(key, text)))
            }
            Operation::Replace { key, text, version } => {
                let version = match version {
                    Version::Known(version) => version,
                    Version::Own => {
                        let own = written.iter().rev().find(|one| one.key == key).unwrap();
                        own.document.as_ref().unwrap().0.clone()
                    }
                };
                match self.documents.get(&key) {
                    Some((known, _)) if known.to_string() == version => Ok(Some(self.put(key, text))),
                    _ => Err(conflict()),
                }
            }
            Operation::Delete { key, version } => match self.documents.get(&key) {
                Some((known, _)) if known.to_string() != version => Err(conflict()),
                _ => {
                    self.documents.remove(&key);
                    Ok(Some(Written { key, document: None }))
                }
            },
            Operation::CreateToken(token) => {
                let id = token.token.id().to_owned();
                self.made.push(id.clone());
                self.tokens.insert(id, token.request);
                Ok(None)
            }
            // Nodes are the world's.
            Operation::DeleteNode { .. } => Ok(None),
            Operation::DeleteToken { id } => {
                self.tokens.remove(&id);
                Ok(None)
            }
        }
    }

    fn put(&mut self, key: Key, text: String) -> Written {
        self.version += 1;
        self.documents.insert(key.clone(), (self.version, text.clone()));
        Written { key, document: Some((self.version.to_string(), text)) }
    }

    pub fn read(&self, key: &Key) -> Result<Option<Document>, StoreError> {
        if self.is_away {
            return Err(StoreError { class: ErrorClass::Unreachable, message: "away".to_owned() });
        }
        Ok(self.documents.get(key).map(|found| document(key, found)))
    }

    pub fn list(&self, store: Store) -> Vec<Document> {
        let ours = self.documents.iter().filter(|(key, _)| key.store() == store);
        ours.map(|(key, found)| document(key, found)).collect()
    }

    pub fn requests(&self) -> Vec<Request> {
        let requests = self.documents.iter().filter(|(key, _)| matches!(key, Key::Request(_)));
        requests.map(|(_, (_, text))| Request::from_text(text).unwrap()).collect()
    }

    pub fn hosts(&self) -> BTreeMap<[u8; 32], HostRecord> {
        let host = |(key, (_, text)): (&Key, &(u64, String))| match key {
            Key::Host(ek) => Some((*ek, from_text(text).unwrap())),
            _ => None,
        };
        self.documents.iter().filter_map(host).collect()
    }

    pub fn text(&self, key: &Key) -> Option<&str> {
        self.documents.get(key).map(|(_, text)| text.as_str())
    }
}

fn document(key: &Key, (version, text): &(u64, String)) -> Document {
    Document { key: key.clone(), version: version.to_string(), text: text.clone() }
}
