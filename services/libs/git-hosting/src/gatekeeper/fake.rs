//! A gatekeeper for tests: three users are known by their tokens, and what is reported of pushes is kept. Passwords of clusters are derived from their UUIDs.

use std::sync::{Arc, Mutex};

use access::{Denied, Grant, Operation, Principal};
use configdb_schema::document::TokenScope;
use tokio::sync::mpsc::Sender;
use uuid::Uuid;

use super::{Admission, AdmissionRequest, Denial, Gatekeeper, Push};
use crate::passwords::{PasswordDigest, PasswordDigests};
use crate::repositories::Kind;

/// A branch that takes no pushes.
pub(crate) const PULLED: &str = "upstream";

/// What is reported of a push: repository, commit of `main` before it and after it.
pub(crate) type Pushed = (Uuid, Option<String>, Option<String>);

#[derive(Debug, Clone)]
pub(crate) struct FakeGatekeeper {
    pub pushes: Arc<Mutex<Vec<Pushed>>>,
    pub polls: Sender<Uuid>,
}

/// The token that the tests call `name`.
pub(crate) fn token(name: &str) -> String {
    format!("token-{name}")
}

pub(crate) fn password(cluster: Uuid) -> String {
    format!("password-{}", cluster.simple())
}

/// The digests of the passwords of these clusters.
pub(crate) fn passwords(clusters: &[Uuid]) -> PasswordDigests {
    let digests = PasswordDigests::default();
    for cluster in clusters {
        digests.insert(*cluster, PasswordDigest::of(&password(*cluster)));
    }
    digests
}

/// An operator of all, a viewer of all, and an operator of cluster 0xB alone.
fn principal(presented: &str) -> Option<Principal> {
    let known = [("operator", TokenScope::Operator), ("viewer", TokenScope::Viewer), ("b-only", TokenScope::Operator)];
    let (name, scope) = known.into_iter().find(|(name, _)| token(name) == presented)?;
    let clusters = (name == "b-only").then(|| [Uuid::from_u128(0xB)].into());
    Some(Principal { name: format!("token:{name}"), grants: vec![Grant { scope, clusters }] })
}

impl Gatekeeper for FakeGatekeeper {
    fn polled(&self, cluster: Uuid) {
        let _ = self.polls.try_send(cluster);
    }

    async fn admit(&self, request: AdmissionRequest) -> Result<Admission, Denial> {
        if !request.credential.starts_with("token-") {
            return Err(Denial::NotACredential);
        }
        let who = principal(&request.credential).ok_or(Denial::Unknown)?;
        let shared = request.repository.as_ref().is_some_and(|open| open.kind == Kind::Shared);
        let cluster = request.repository.map_or(Uuid::nil(), |open| open.uuid);
        let operation = match (request.push, shared) {
            (false, _) => Operation::ReadRepository,
            (true, true) => Operation::PushShared,
            (true, false) => Operation::Push,
        };
        match who.may(operation, (!shared).then_some(cluster)) {
            Ok(()) => Ok(Admission { who, pulled: [PULLED.to_owned()].into() }),
            Err(Denied::Cluster) => Err(Denial::NotFound),
            Err(denied) => Err(Denial::Forbidden(denied.to_string())),
        }
    }

    async fn pushed(&self, push: Push) -> bool {
        self.pushes.lock().unwrap().push((push.repository.uuid, push.before, push.after));
        true
    }
}
