//! One machine of the join protocol and when it begins again.

use std::time::Duration;

use join_protocol::host::{HostSettings, Machine};
use join_protocol::terms::{Kind, RequestId};

/// See the module.
#[derive(Debug)]
pub(super) struct JoinSession {
    pub(super) kind: Kind,
    pub(super) machine: Machine,
    settings: HostSettings,
    /// The last attempt that was counted.
    counted: Option<RequestId>,
    /// Begin again then.
    restart_at: Option<Duration>,
    /// The session ends then.
    pub(super) ends_at: Option<Duration>,
}

impl JoinSession {
    pub(super) fn new(settings: HostSettings, ends_at: Option<Duration>) -> Self {
        let (kind, machine) = (settings.kind, Machine::new(settings.clone()));
        Self { kind, machine, settings, counted: None, restart_at: None, ends_at }
    }

    /// Name and role that it asks for.
    pub(super) const fn settings(&self) -> &HostSettings {
        &self.settings
    }

    /// True once for each attempt.
    pub(super) fn counts_attempt(&mut self) -> bool {
        let request = self.machine.request();
        let counts = request.is_some() && request != self.counted;
        if counts {
            self.counted = request;
        }
        counts
    }

    /// Forgets the attempt; another begins at `at`.
    pub(super) fn rest_until(&mut self, at: Duration) {
        self.machine = Machine::new(self.settings.clone());
        self.restart_at = Some(at);
    }

    /// True if a rest is over; then the machine waits for its start.
    pub(super) fn restart(&mut self, mono: Duration) -> bool {
        let is_over = self.restart_at.is_some_and(|at| at <= mono);
        if is_over {
            self.restart_at = None;
        }
        is_over
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.machine.next_deadline().into_iter().chain(self.restart_at).chain(self.ends_at).min()
    }

    pub(super) fn is_due(&self, mono: Duration) -> bool {
        self.next_deadline().is_some_and(|at| at <= mono)
    }
}
