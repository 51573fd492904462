//! Edge monitor of a cluster, and the central one: their real state.

use std::any::Any;
use std::time::Duration;

use edge_monitor::config_freshness::ReloadPolicy;
use edge_monitor::event::{Effect as MonitorEffect, Event as MonitorEvent};
use edge_monitor::state::{Scope, Settings as MonitorSettings, State as MonitorState};
use edge_monitor_contract::identity;
use sparkplug::Now;
use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug::host::HostConfig;
use uuid::Uuid;

use crate::model::program::{Action, Boot, Input, Program};

pub(crate) fn boot(scope: Scope, seed: u64) -> Boot {
    let instance = match &scope {
        Scope::Edge { cluster, .. } => identity::monitor_of_cluster(*cluster),
        Scope::Central { .. } => Uuid::from_u128(0xCE),
    };
    let node = edge_monitor::adapters::sparkplug::own_descriptor(&scope).expect("groups of a run are ids");
    let host = edge_monitor::adapters::sparkplug::host_config(&scope).expect("groups of a run are ids");
    let mut state = MonitorState::new(MonitorSettings {
        scope,
        instance,
        version: "sim".to_owned(),
        is_simulated: true,
        interval_default: Duration::from_secs(60),
        reload: ReloadPolicy {
            jitter: Duration::from_secs(2),
            pause: (Duration::from_secs(10), Duration::from_secs(60)),
            rest: Duration::from_secs(5),
            attempts_max: 3,
            deadline: Duration::from_secs(120),
        },
        seed,
    });
    let config = EdgeNodeConfig { seed, ..edge_monitor::adapters::sparkplug::node_config(node) };
    let node = Some((config, state.node_metrics()));
    let actions = monitor_actions(&mut state);
    Boot { program: Box::new(state), node, host: Some(HostConfig { seed: seed ^ 1, ..host }), actions }
}

fn monitor_actions(state: &mut MonitorState) -> Vec<Action> {
    let effects = state.poll_effects().into_iter();
    effects
        .map(|effect| match effect {
            MonitorEffect::Host(request) => Action::Host(request),
            MonitorEffect::Node(update) => Action::Node(update),
        })
        .collect()
}

impl Program for MonitorState {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        let event = match input {
            Input::Timer => MonitorEvent::DeadlineReached,
            Input::Node(event) => MonitorEvent::Node(event),
            Input::Host(event) => MonitorEvent::Host(event),
            Input::Monitor(event) => event,
            _ => return Vec::new(),
        };
        self.on_event(event, now);
        monitor_actions(self)
    }

    fn next_deadline(&self) -> Option<Duration> {
        Self::next_deadline(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
