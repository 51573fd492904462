//! A replica of a join service, and a machine that wants to join.

use std::any::Any;
use std::time::Duration;

use join_protocol::host::Event as HostInput;
use join_protocol::metrics::{HostMessage, IssuerMessage};
use join_protocol::secret::Secret;
use join_protocol::terms::Purpose;
use join_service::event::{Effect, Event};
use join_service::settings::Settings;
use join_service::state::State;
use join_trust::replica::Trust;
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::{EdgeNodeDescriptor, Now, Properties};

use crate::join_site::site;
use crate::model::joins::{HostMachine, Part, join_group, power_on};
use crate::model::kubernetes::Cluster;
use crate::model::program::{Action, Boot, Input, Program};
use crate::model::random::Random;

/// A token that no one uses is revoked within the time in which everything has to converge.
const TOKEN_LIFETIME: Duration = Duration::from_secs(300);

const CONTROL_PLANE_LIFETIME: Duration = Duration::from_secs(120);

#[derive(Debug)]
struct Replica {
    state: State,
    random: Random,
}

/// Starts a replica.
pub(crate) fn boot_service(cluster: &Cluster, seed: u64, now: Now) -> Boot {
    // Each process has an issuer key of its own.
    let issuer = u8::try_from(seed % 100).unwrap_or_default();
    let files = site::files_of(issuer, Purpose::JoinIssuer, cluster.uuid);
    let trust = Trust::read(&files, cluster.uuid).expect("the files of a site are good");
    let settings = Settings {
        cluster_uuid: cluster.uuid,
        cluster_name: cluster.name.clone(),
        join_group: join_group(&cluster.name),
        token_lifetime: TOKEN_LIFETIME,
        control_plane_lifetime: CONTROL_PLANE_LIFETIME,
        ..site::settings(&format!("join-{seed:016x}"))
    };
    let mut replica = Replica { state: State::new(settings, trust, now), random: Random::new(seed) };
    let actions = replica.take(Event::DeadlineReached, now);
    Boot { program: Box::new(replica), node: None, host: None, actions }
}

impl Replica {
    fn take(&mut self, event: Event, now: Now) -> Vec<Action> {
        let mut entropy = [0; 32];
        for part in entropy.chunks_mut(8) {
            part.copy_from_slice(&self.random.number().to_be_bytes());
        }
        self.state.on_event(event, now, Secret::new(entropy));
        self.state.poll_effects().into_iter().map(|effect: Effect| Action::Join(Box::new(effect))).collect()
    }
}

impl Program for Replica {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        let event = match input {
            Input::Timer => Event::DeadlineReached,
            Input::Node(event) => Event::Node(event),
            Input::Host(event) => Event::Host(event),
            Input::Join(event) => event,
            _ => return Vec::new(),
        };
        self.take(event, now)
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.state.next_deadline()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
struct JoiningHost {
    machine: HostMachine,
    published: u64,
}

/// Starts a machine.
pub(crate) fn boot_host(part: Part, machine: &HostMachine, seed: u64, now: Now) -> Boot {
    let mut program = JoiningHost { machine: machine.clone(), published: 0 };
    let (node, messages) = {
        let mut host = machine.lock();
        power_on(part, &mut host);
        let address = host.settings.address.clone();
        (EdgeNodeDescriptor::parse(&address.group, &address.node), host.on_event(HostInput::Start, now))
    };
    let node = node.expect("a disk's address is one of Sparkplug");
    let config = EdgeNodeConfig { seed, ..EdgeNodeConfig::for_any_reader(node) };
    let actions = program.publish(messages);
    Boot { program: Box::new(program), node: Some((config, HostMessage::birth_metrics(&[]))), host: None, actions }
}

impl JoiningHost {
    fn publish(&mut self, messages: Vec<HostMessage>) -> Vec<Action> {
        let update = |message: HostMessage| {
            self.published += 1;
            // A repeat is the same bytes; without another property report by exception would swallow it.
            let mut metric = message.to_metric();
            metric.properties = Properties::new().with("Repeat", self.published);
            Action::Node(NodeUpdate::Set { device: None, metrics: vec![metric] })
        };
        messages.into_iter().map(update).collect()
    }
}

impl Program for JoiningHost {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        let messages = {
            let mut host = self.machine.lock();
            match input {
                Input::Timer => host.on_event(HostInput::Timer, now),
                Input::Node(NodeEvent::Command { metrics, .. }) => {
                    let messages =
                        metrics.iter().filter_map(|metric| IssuerMessage::from_metric(metric).ok().flatten());
                    messages.flat_map(|message| host.on_message(&message, now)).collect()
                }
                _ => Vec::new(),
            }
        };
        self.publish(messages)
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.machine.lock().next_deadline()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
