//! The Sparkplug machines of a process: they start, give out what they have to say, and end with the process.

use sparkplug::Metric;
use sparkplug::edge_node::{EdgeNode, EdgeNodeConfig, NodeEvent, NodeUpdate, OtherSpeaker, Speaker, UpdateError};
use sparkplug::host::{HostApplication, HostConfig, HostRequest};

use crate::model::endpoint::{Endpoint, EndpointOutput, Machine, Side};
use crate::model::happening::Happening;
use crate::model::ids::ProcessId;
use crate::model::mutation::Mutation;
use crate::model::program::Input;
use crate::model::role::Role;
use crate::world::{World, trace};

impl World {
    /// Carries out what a machine gives out.
    pub fn pump(&mut self, id: ProcessId, side: Side) {
        loop {
            let Some(process) = self.processes.get_mut(&id) else { return };
            process.due = None;
            let life = process.life;
            let Some(endpoint) = process.endpoints.get_mut(&side) else { return };
            let Some(output) = endpoint.poll() else { return };
            let input = match output {
                EndpointOutput::Transport(action) => {
                    self.on_action(id, side, action);
                    continue;
                }
                EndpointOutput::Node(NodeEvent::Displaced(other)) => return self.displaced(id, &other),
                EndpointOutput::Node(event) => {
                    let role = process.role.clone();
                    let Some(event) = self.mislead(&role, event) else { continue };
                    Input::Node(event)
                }
                EndpointOutput::Host(event) => {
                    let fault = endpoint.replica.fault.as_deref();
                    self.checks.on_host_event(id, &event, fault, self.mono);
                    Input::Host(event)
                }
            };
            // Events wait a moment in a channel, in order.
            let at = self.mono + self.random.millis(0..3);
            let Some(endpoint) = self.processes.get_mut(&id).and_then(|p| p.endpoints.get_mut(&side)) else { return };
            endpoint.events_at = endpoint.events_at.max(at);
            let at = endpoint.events_at;
            self.at(at, Happening::Input(id, life, Box::new(input)));
        }
    }

    /// Another process of its role stays: this one ends, and its supervisor starts it again.
    fn displaced(&mut self, id: ProcessId, other: &OtherSpeaker) {
        trace!(self, "{} ends: {other}", self.processes[&id].role);
        self.stop(id, true);
        let again = self.random.millis(5_000..20_000);
        self.after(again, Happening::Start(id));
    }

    pub(crate) fn is_crash_due(&mut self, role: &Role) -> bool {
        self.crash_per_million > 0 && role.is_service() && self.random.below(1_000_000) < self.crash_per_million
    }

    /// Gives the Edge Node of a process an update.
    pub fn execute_node(&mut self, id: ProcessId, update: NodeUpdate) {
        let now = self.now_of(id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(Endpoint { machine: Machine::Node(node), .. }) = process.endpoints.get_mut(&Side::Node) else {
            return;
        };
        if let Err(error) = node.update(update, now)
            && error != UpdateError::Stopped
        {
            let role = process.role.clone();
            self.checks.refused(&role, &error.to_string());
        }
        self.pump(id, Side::Node);
    }

    /// Gives the Host Application of a process a request.
    pub(crate) fn execute_host(&mut self, id: ProcessId, request: HostRequest) {
        let now = self.now_of(id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        let Some(Endpoint { machine: Machine::Host(host), replica, .. }) = process.endpoints.get_mut(&Side::Host)
        else {
            return;
        };
        match &request {
            HostRequest::Forget { node } => {
                replica.forget(node);
                self.checks.on_forget(id, node);
            }
            HostRequest::Expect { node } => replica.expect(node),
            _ => {}
        }
        host.request(request, now);
        self.pump(id, Side::Host);
    }

    /// Starts the Host Application of a process.
    pub fn start_host(&mut self, id: ProcessId, config: HostConfig) {
        let now = self.now_of(id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.due = None;
        let client_id = format!("{} host {}", process.role, id.0);
        let filters = config.filters.iter().map(|(filter, _)| filter.clone()).collect();
        let interests = config.interests.clone();
        let machine = Machine::Host(Box::new(HostApplication::new(config, now)));
        process.endpoints.insert(Side::Host, Endpoint { filters, interests, ..Endpoint::new(machine, client_id) });
        self.pump(id, Side::Host);
    }

    /// Starts the Edge Node of a process.
    pub fn start_node(&mut self, id: ProcessId, config: EdgeNodeConfig, metrics: Vec<Metric>) {
        let now = self.now_of(id);
        let Some(process) = self.processes.get_mut(&id) else { return };
        let named = |speaker| Speaker {
            instance: format!("{}-{}", id.0, process.life).into(),
            host: process.role.to_string().into(),
            ..speaker
        };
        let is_nameless = self.mutation == Some(Mutation::NobodyObjects);
        let speaker = config.speaker.filter(|_| !is_nameless).map(named);
        let config = EdgeNodeConfig { bd_seq: process.disk.bd_seq(), speaker, ..config };
        let client_id = format!("{} node {}", config.descriptor, id.0);
        let descriptor = Some(config.descriptor.clone());
        match EdgeNode::new(config, metrics, now) {
            Ok(node) => {
                let endpoint = Endpoint::new(Machine::Node(Box::new(node)), client_id);
                process.endpoints.insert(Side::Node, Endpoint { descriptor, ..endpoint });
                self.pump(id, Side::Node);
            }
            Err(error) => {
                let role = process.role.clone();
                self.checks.refused(&role, &error.to_string());
            }
        }
    }

    /// The process ends: in good order, or killed so that the operating system closes its sockets.
    pub fn stop(&mut self, id: ProcessId, in_good_order: bool) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.program = None;
        process.life += 1;
        self.end_sessions(id, in_good_order);
    }

    /// Both sessions of a process end.
    pub(crate) fn end_sessions(&mut self, id: ProcessId, in_good_order: bool) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.due = None;
        self.checks.on_end(id);
        let endpoints = std::mem::take(&mut process.endpoints);
        let cut_off = process.partitioned_until.is_some();
        for (_, mut endpoint) in endpoints {
            if in_good_order {
                self.farewell(&mut endpoint);
            }
            if let Some(session) = endpoint.session {
                self.network_gone(session, cut_off);
            }
        }
    }

    /// The process is killed and starts again.
    pub fn crash(&mut self, id: ProcessId) {
        self.checks.crashes += 1;
        self.stop(id, false);
        let down = self.random.millis(200..20_000);
        self.after(down, Happening::Start(id));
    }
}
