//! krb-keys: its real state. What it asks of KDC and Kubernetes is carried out by [`crate::steps::keys`].

use std::any::Any;
use std::time::Duration;

use krb_keys::event::{Effect, Event};
use krb_keys::state::{Settings, State};
use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug::{EdgeNodeDescriptor, Now};
use uuid::Uuid;

use crate::model::kubernetes::Cluster;
use crate::model::names::group;
use crate::model::program::{Action, Boot, Input, Program};

#[derive(Debug)]
struct Keys(State);

/// Starts it.
pub(crate) fn boot(cluster: &Cluster, seed: u64) -> Boot {
    let state = State::new(Settings {
        instance: Uuid::from_u128(cluster.uuid.as_u128() ^ 0x6b65_7973),
        cluster: cluster.uuid,
        version: "sim".to_owned(),
        principal: "op1krbkeys/site@ACME.EXAMPLE".to_owned(),
        retry: (Duration::from_secs(1), Duration::from_secs(60)),
        verify: Duration::from_secs(60),
        expire_old: Duration::from_secs(3_600),
    });
    let node = EdgeNodeDescriptor::parse(group(&cluster.name).as_str(), configdb_schema::address::KEYS_NODE);
    let config = EdgeNodeConfig { seed, ..EdgeNodeConfig::for_one_speaker(node.expect("a group and a node are ids")) };
    let node = Some((config, state.node_metrics()));
    Boot { program: Box::new(Keys(state)), node, host: None, actions: Vec::new() }
}

impl Program for Keys {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        let event = match input {
            Input::Timer => Event::DeadlineReached,
            Input::Node(event) => Event::Node(event),
            Input::Keys(event) => event,
            _ => return Vec::new(),
        };
        self.0.on_event(event, now);
        let effects = self.0.poll_effects().into_iter();
        effects
            .map(|effect| match effect {
                Effect::Node(update) => Action::Node(update),
                other => Action::Keys(Box::new(other)),
            })
            .collect()
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.0.next_deadline()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
