//! STATE of the Primary Host as an Edge Node sees it: one timestamp a server, kept over reconnects.
//! So an old retained message is recognised, and a server whose host has another clock or history is not judged by it.

use crate::state::HostState;

/// What a STATE message means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Online,
    Offline,
    /// Older than what is known.
    Outdated,
}

#[derive(Debug)]
pub(super) struct PrimaryHost {
    /// Newest timestamp, by server.
    newest: Vec<Option<u64>>,
    /// In the present session.
    online: bool,
}

impl PrimaryHost {
    pub(super) fn new(servers: usize) -> Self {
        Self { newest: vec![None; servers.max(1)], online: false }
    }

    pub(super) const fn begin_session(&mut self) {
        self.online = false;
    }

    /// tck-id-message-flow-edge-node-birth-publish-phid-wait-online
    pub(super) const fn is_online(&self) -> bool {
        self.online
    }

    /// tck-id-message-flow-edge-node-birth-publish-phid-wait-timestamp, tck-id-operational-behavior-edge-node-termination-host-offline-timestamp
    pub(super) fn on_state(&mut self, server: usize, state: HostState) -> Verdict {
        let Some(newest) = self.newest.get_mut(server) else { return Verdict::Outdated };
        if newest.is_some_and(|newest| state.timestamp < newest) {
            return Verdict::Outdated;
        }
        *newest = Some(state.timestamp);
        self.online = state.online;
        if state.online { Verdict::Online } else { Verdict::Offline }
    }
}
