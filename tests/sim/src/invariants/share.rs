//! One group's flood does not keep another group's nodes from being asked for their births.

use std::time::Duration;

use sparkplug::EdgeNodeDescriptor;
use sparkplug::host::HostEvent;

use super::{Checks, Violation};
use crate::endpoint::Side;
use crate::world::{ProcessId, World};

/// A host that has a session asks a node of which it lost track within this time, whatever others send: the slowest repetition, and the slots of the floods of a run.
const ASKED_WITHIN: Duration = Duration::from_secs(75);

impl Checks {
    /// A forged birth needs a death.
    pub fn expect_forged(&mut self, kind: &str, topic: &str) {
        if kind == "NBIRTH" {
            self.forged.insert(topic.replace("/NBIRTH/", "/NDEATH/"));
        }
    }

    /// Topics of the deaths that end what was forged.
    pub fn take_forged(&mut self) -> std::collections::BTreeSet<String> {
        std::mem::take(&mut self.forged)
    }

    /// A host lost track of a node, or has it again.
    pub(super) fn follow(&mut self, id: ProcessId, event: &HostEvent, mono: Duration) {
        match event {
            HostEvent::NodeStale { node, .. } if !is_forged(node) => {
                self.unasked.entry((id, node.clone())).or_insert(mono);
            }
            HostEvent::NodeBirth { node, .. } | HostEvent::NodeDeath { node, .. } => {
                self.unasked.remove(&(id, node.clone()));
            }
            HostEvent::Offline { .. } => self.unasked.retain(|(host, _), _| *host != id),
            _ => {}
        }
    }

    /// A request for a birth went out.
    pub(super) fn asked(&mut self, id: ProcessId, node: &EdgeNodeDescriptor) {
        self.unasked.remove(&(id, node.clone()));
    }

    /// A host ended, or forgot a node.
    pub(super) fn unfollow(&mut self, id: ProcessId, node: Option<&EdgeNodeDescriptor>) {
        self.unasked.retain(|(host, known), _| *host != id || node.is_some_and(|node| node != known));
    }

    pub(super) fn fair_share(world: &mut World) -> Result<(), Violation> {
        if !world.steps.is_multiple_of(64) {
            return Ok(());
        }
        let mono = world.mono;
        let is_able = |id: &ProcessId| {
            let process = world.processes.get(id).filter(|process| process.paused_until.is_none());
            let endpoint = process.and_then(|process| process.endpoints.get(&Side::Host));
            endpoint.is_some_and(|endpoint| endpoint.is_connected)
        };
        world.checks.unasked.retain(|(id, _), _| is_able(id));
        let late = world.checks.unasked.iter().find(|(_, since)| **since + ASKED_WITHIN < mono);
        let Some(((id, node), since)) = late else { return Ok(()) };
        let detail = format!("{id:?} has not asked {node} for its birth since {since:?}, it is {mono:?}");
        Err(Violation::new("fair-share", detail))
    }
}

fn is_forged(node: &EdgeNodeDescriptor) -> bool {
    node.edge_node.as_str().starts_with("Forged-")
}
