//! Edge sync: its real state. The Edge Node starts when it knows everything.

use std::any::Any;
use std::time::Duration;

use edge_sync::event::Event as SyncEvent;
use edge_sync::state::prune::PruneLimits;
use edge_sync::state::{Settings as SyncSettings, State as SyncState};
use sparkplug::Now;
use sparkplug::edge_node::EdgeNodeConfig;

use crate::model::kubernetes::{NAMESPACE, kinds};
use crate::model::names::group;
use crate::model::program::{Action, Boot, Input, Program};

/// The Edge Node that Sync starts when it knows everything.
#[must_use]
pub fn sync_node_config(cluster_name: &str, seed: u64) -> EdgeNodeConfig {
    let node = edge_sync_contract::names::sync_node(group(cluster_name));
    EdgeNodeConfig { seed, ..EdgeNodeConfig::for_one_speaker(node) }
}

pub(crate) fn boot(cluster: &crate::model::kubernetes::Cluster, seed: u64, now: Now) -> Boot {
    let mut state = SyncState::new(
        SyncSettings {
            cluster_uuid: cluster.uuid,
            cluster_name: cluster.name.clone(),
            version: "sim".to_owned(),
            simulated: true,
            namespace: NAMESPACE.to_owned(),
            kinds: kinds(),
            applies_max: 4,
            retry: (Duration::from_secs(1), Duration::from_secs(60)),
            prune: PruneLimits {
                max_per_pass: 20,
                interval: Duration::from_secs(10),
                max_percent: 50,
                guard_delay: Duration::from_secs(30),
            },
            sealing: true,
            sealing_refresh: Duration::from_secs(3600),
            sealing_retry: (Duration::from_secs(5), Duration::from_secs(60)),
            seed,
        },
        now,
    );
    let actions = sync_actions(&mut state);
    Boot { program: Box::new(state), node: None, host: None, actions }
}

fn sync_actions(state: &mut SyncState) -> Vec<Action> {
    state.poll_effects().into_iter().map(Action::Sync).collect()
}

impl Program for SyncState {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        let event = match input {
            Input::Timer => SyncEvent::DeadlineReached,
            Input::Node(event) => SyncEvent::Node(event),
            Input::Sync(event) => event,
            _ => return Vec::new(),
        };
        self.on_event(event, now);
        sync_actions(self)
    }

    fn next_deadline(&self) -> Option<Duration> {
        Self::next_deadline(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
