//! GitRepositories: fetched, one after another, at their interval and on request.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::condition::{self, Outcome};
use super::git::{self, Checkout, Remote};
use super::{Controllers, Key, SOURCE};

const MANAGER: &str = "source-controller";

/// What is remembered of a GitRepository.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// The working copy, once there is something to fetch.
    pub(super) checkout: Option<Arc<Checkout>>,
    /// Revision of what is checked out, such as `main@sha1:<hash>`.
    pub(super) revision: Option<String>,
    fetched_generation: Option<u64>,
    next_due: Option<Instant>,
}

impl Controllers {
    pub(super) async fn reconcile_sources(&mut self) {
        let objects = self.objects(SOURCE);
        self.sources.retain(|key, _| objects.contains_key(key));
        for (key, object) in objects {
            if condition::is_deleted(&object) {
                self.set_finalizer(MANAGER, &object, false);
            } else if !condition::is_suspended(&object) && self.set_finalizer(MANAGER, &object, true) {
                self.reconcile_source(key, &object).await;
            }
        }
    }

    async fn reconcile_source(&mut self, key: Key, object: &Value) {
        let memory = self.sources.entry(key.clone()).or_default();
        let generation = object["metadata"]["generation"].as_u64();
        let is_due = memory.next_due.is_none_or(|due| Instant::now() >= due)
            || memory.fetched_generation != generation
            || condition::pending_request(object).is_some();
        if !is_due {
            return;
        }
        memory.fetched_generation = generation;
        let checkout = memory.checkout.clone();
        let (outcome, revision, checkout) = self.fetch(&key, object, checkout).await;
        let interval = condition::interval(object, Duration::from_secs(180));
        let wait = if outcome.ready { interval } else { interval.min(self.options.retry) };
        let memory = self.sources.entry(key).or_default();
        memory.next_due = Some(Instant::now() + wait);
        memory.checkout = checkout;
        let mut extra = json!({});
        if let Some(revision) = revision {
            if object.pointer("/status/artifact/revision").and_then(Value::as_str) != Some(&revision) {
                let time = crate::kubernetes::store::timestamp(crate::kubernetes::wall_ms());
                extra["artifact"] = json!({ "revision": revision, "lastUpdateTime": time });
            }
            memory.revision = Some(revision);
        }
        self.report(MANAGER, object, &outcome, extra);
    }

    async fn fetch(
        &self,
        key: &Key,
        object: &Value,
        checkout: Option<Arc<Checkout>>,
    ) -> (Outcome, Option<String>, Option<Arc<Checkout>>) {
        let remote = match self.remote(key, object) {
            Ok(remote) => remote,
            Err(message) => return (Outcome::failed("AuthenticationFailed", message), None, checkout),
        };
        let checkout = match checkout.map_or_else(|| Checkout::new().map(Arc::new), Ok) {
            Ok(checkout) => checkout,
            Err(error) => return (Outcome::failed("StorageOperationFailed", error.to_string()), None, None),
        };
        match checkout.update(&remote).await {
            Ok(revision) => {
                let message = format!("stored artifact for revision '{revision}'");
                (Outcome::ready("Succeeded", message), Some(revision), Some(checkout))
            }
            Err(error) => (Outcome::failed("GitOperationFailed", error.to_string()), None, Some(checkout)),
        }
    }

    /// URL, reference and credentials of a repository; refuses when the Secret that it names is absent.
    fn remote(&self, key: &Key, object: &Value) -> Result<Remote, String> {
        let Some(name) = git::secret_name(object) else { return Ok(Remote::of(object, None)) };
        let secret = self
            .kubernetes
            .get("v1", "Secret", &key.0, &name)
            .map_err(|error| format!("failed to get secret '{}/{name}': {error}", key.0))?;
        Ok(Remote::of(object, Some(&secret)))
    }
}

/// The source that a `sourceRef` of an object names.
pub(super) fn source_of(key: &Key, reference: &Value) -> Key {
    let namespace = reference["namespace"].as_str().unwrap_or(&key.0);
    (namespace.to_string(), reference["name"].as_str().unwrap_or_default().to_string())
}
