//! Where a mutation changes what is sent and received.

use bytes::Bytes;
use edge_sync_contract::{DesiredIndex, SyncCommand};
use sparkplug::Metric;
use sparkplug::edge_node::NodeEvent;
use sparkplug::payload::Limits;
use sparkplug::replication::Origin;

use crate::model::endpoint::Side;
use crate::model::ids::ProcessId;
use crate::model::mutation::Mutation;
use crate::model::role::Role;
use crate::world::World;

impl World {
    /// The payload as it arrives.
    pub(crate) fn spoil(&mut self, _: ProcessId, side: Side, topic: &str, payload: Bytes) -> Bytes {
        match (self.mutation, side) {
            (Some(Mutation::SpoilsData), Side::Host) if topic.contains("/DDATA/") && self.random.chance(300) => {
                let mut bytes = payload.to_vec();
                if let Some(last) = bytes.iter_mut().rev().find(|byte| byte.is_ascii_digit()) {
                    *last = if *last == b'1' { b'2' } else { b'1' };
                }
                bytes.into()
            }
            (Some(Mutation::PanicsAtGarbage), Side::Host) => {
                let is_readable =
                    topic.contains("/STATE/") || sparkplug::payload::decode(&payload, &Limits::default()).is_ok();
                assert!(is_readable, "a payload on {topic} cannot be read");
                payload
            }
            _ => payload,
        }
    }

    /// How often a message is sent.
    pub(crate) fn repetitions(&self, topic: &str) -> u32 {
        match self.mutation {
            Some(Mutation::AsksWithoutEnd) if topic.contains("/NCMD/") => 3,
            Some(Mutation::NeverAsks) if topic.contains("/NCMD/") && !topic.contains("-Central/") => 0,
            _ => 1,
        }
    }

    /// What a Sync receives instead of an event; None: the event is lost.
    pub(crate) fn mislead(&mut self, role: &Role, event: NodeEvent) -> Option<NodeEvent> {
        let NodeEvent::Command { device, metrics, timestamp } = event else { return Some(event) };
        if !matches!(role, Role::Sync(_)) {
            return Some(NodeEvent::Command { device, metrics, timestamp });
        }
        match self.mutation {
            Some(Mutation::LosesCommands) => None,
            Some(Mutation::BelievesEveryStore) => {
                let accepted = role.cluster().and_then(|site| self.clusters.get(&site)?.accepted()?.index.origin);
                let index = SyncCommand::from_event(device.as_ref(), &metrics);
                let (Some(accepted), Ok(Some(SyncCommand::Index(index)))) = (accepted, index) else {
                    return Some(NodeEvent::Command { device, metrics, timestamp });
                };
                let origin = index.origin.map(|origin| Origin { point: origin.point, ..accepted });
                let believed = DesiredIndex { origin, follows: Some(accepted.point), ..index };
                let metric = Metric::new(edge_sync_contract::names::DESIRED_INDEX, believed.to_json().to_string());
                Some(NodeEvent::Command { device: None, metrics: vec![metric], timestamp })
            }
            Some(Mutation::PrunesFromIgnorance) if self.random.chance(100) => {
                let Ok(Some(SyncCommand::Index(index))) = SyncCommand::from_event(device.as_ref(), &metrics) else {
                    return Some(NodeEvent::Command { device, metrics, timestamp });
                };
                let empty = DesiredIndex {
                    version: index.version + 1,
                    deployments: std::collections::BTreeMap::new(),
                    ..index
                };
                let metric = Metric::new(edge_sync_contract::names::DESIRED_INDEX, empty.to_json().to_string());
                Some(NodeEvent::Command { device: None, metrics: vec![metric], timestamp })
            }
            _ => Some(NodeEvent::Command { device, metrics, timestamp }),
        }
    }
}
