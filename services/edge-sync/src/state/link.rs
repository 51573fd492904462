//! Whether the API server answers. Sync works on while it does not; this decides what is said about it, and asks until it answers.
//!
//! A watch that comes back tells nothing until something changes; therefore the question ([`Effect::Probe`]).

use std::collections::BTreeMap;
use std::time::Duration;

use service_runtime::backoff::Backoff;

use crate::event::{Effect, ErrorClass, KubernetesError};
use crate::object::Kind;

/// What is being watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watch {
    /// Nodes.
    Nodes,
    /// Objects of a kind.
    Objects(Kind),
}

/// State of the link.
#[derive(Debug)]
pub struct Link {
    unreachable: Option<String>,
    /// Watches that the API server refuses.
    refused: BTreeMap<Watch, String>,
    retry: Backoff,
    probe_at: Option<Duration>,
}

impl Link {
    /// Nothing is known to be wrong.
    pub fn new(retry: Backoff) -> Self {
        Self { unreachable: None, refused: BTreeMap::new(), retry, probe_at: None }
    }

    /// An answer came, whatever it was. True: the API server was unreachable until now.
    pub fn answered(&mut self) -> bool {
        self.retry.reset();
        self.probe_at = None;
        self.unreachable.take().is_some()
    }

    /// Takes an error. True: it was an answer, and the API server was unreachable until now.
    pub fn failed(&mut self, error: &KubernetesError, now: Duration) -> bool {
        if error.class != ErrorClass::Unreachable {
            return self.answered();
        }
        if self.unreachable.is_none() {
            self.probe_at = Some(now + self.retry.next_delay());
        }
        self.unreachable.get_or_insert_with(|| error.message.clone());
        false
    }

    /// A watch was refused.
    pub fn watch_refused(&mut self, watch: Watch, error: &KubernetesError) {
        self.refused.insert(watch, error.message.clone());
    }

    /// A watch told something.
    pub fn watch_answered(&mut self, watch: &Watch) {
        self.refused.remove(watch);
    }

    /// A probe failed: the next one is later.
    pub fn probe_failed(&mut self, now: Duration) {
        self.probe_at = Some(now + self.retry.next_delay());
    }

    /// Asks, if it is time.
    pub fn next_effect(&mut self, now: Duration) -> Option<Effect> {
        self.probe_at.filter(|at| *at <= now)?;
        self.probe_at = None;
        Some(Effect::Probe)
    }

    /// When [`Link::next_effect`] has something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.probe_at
    }

    /// What is wrong, for people.
    pub fn error(&self) -> Option<String> {
        let unreachable = self.unreachable.as_ref().map(|error| format!("the Kubernetes API is not reached: {error}"));
        unreachable.or_else(|| {
            self.refused.values().next().map(|error| format!("the Kubernetes API refuses a watch: {error}"))
        })
    }
}
