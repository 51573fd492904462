//! Edge agents: simple programs that count and obey.

use std::any::Any;
use std::time::Duration;

use edge_monitor_contract::{identity, names as monitor_names};
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::{EdgeNodeDescriptor, Metric, Now, Value};
use uuid::Uuid;

use crate::model::program::{Action, Boot, Input, Program};

/// Name of the metric of an agent that counts up: a reader that receives a smaller value has received events out of order.
pub const COUNTER: &str = "Counter";

const COUNT_EVERY: Duration = Duration::from_secs(10);

/// An edge agent: counts, reports its configuration, and restarts when it is asked to reload.
#[derive(Debug)]
pub(crate) struct Agent {
    obeys: bool,
    stands_still: bool,
    counter: u64,
    next: Duration,
}

pub(crate) fn boot(
    node: Result<EdgeNodeDescriptor, sparkplug::NameError>,
    uuid: Uuid,
    revision: Option<String>,
    (obeys, stands_still): (bool, bool),
    seed: u64,
    now: Now,
) -> Boot {
    let agent = Agent { obeys, stands_still, counter: 0, next: now.mono + COUNT_EVERY };
    let of_type_uuid = |name: &str, text: String| Metric {
        value: Some(Value::Uuid(text.into())),
        ..Metric::null(name, sparkplug::DataType::Uuid)
    };
    let metrics = vec![
        of_type_uuid(monitor_names::SCHEMA_UUID, identity::SCHEMA_EDGE_AGENT.to_string()),
        of_type_uuid(monitor_names::INSTANCE_UUID, uuid.to_string()),
        of_type_uuid(monitor_names::AGENT_CONFIG_REVISION, revision.unwrap_or_else(|| Uuid::nil().to_string())),
        Metric::new(monitor_names::AGENT_RELOAD, false),
        Metric::new(COUNTER, 0_u64),
    ];
    let node = node.ok().map(|node| (EdgeNodeConfig { seed, aliases: true, ..EdgeNodeConfig::new(node) }, metrics));
    Boot { program: Box::new(agent), node, host: None, actions: Vec::new() }
}

impl Program for Agent {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        match input {
            Input::Timer => {
                if !self.stands_still {
                    self.next = now.mono + COUNT_EVERY;
                }
                self.counter += 1;
                let metrics = vec![Metric::new(COUNTER, self.counter)];
                vec![Action::Node(NodeUpdate::Set { device: None, metrics })]
            }
            Input::Node(NodeEvent::Command { device: None, metrics, .. }) if self.obeys => {
                let is_reload = metrics.iter().any(|metric| &*metric.name == monitor_names::AGENT_RELOAD);
                let exit = Action::Exit { again_after: Some(Duration::from_secs(2)) };
                if is_reload { vec![exit] } else { Vec::new() }
            }
            _ => Vec::new(),
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        Some(self.next)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
