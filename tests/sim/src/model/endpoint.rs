//! One Sparkplug machine of a process, and the session that it has. Drives the machine as the MQTT driver does; knows no network.

use std::time::Duration;

use sparkplug::edge_node::{EdgeNode, NodeEvent, NodeOutput};
use sparkplug::host::{HostApplication, HostEvent, HostOutput, Interest};
use sparkplug::session::{TransportAction, TransportEvent};
use sparkplug::{DeviceId, EdgeNodeDescriptor, Now};

use crate::model::broker::SessionId;
use crate::model::replica::Replica;

/// Which of the two machines of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Its Edge Node.
    Node,
    /// Its Host Application.
    Host,
}

/// A machine.
#[derive(Debug)]
pub enum Machine {
    /// Edge Node.
    Node(Box<EdgeNode>),
    /// Host Application.
    Host(Box<HostApplication>),
}

/// What a machine gives out.
#[derive(Debug)]
pub enum EndpointOutput {
    /// For the network.
    Transport(TransportAction),
    /// For the program.
    Node(NodeEvent),
    /// For the program.
    Host(HostEvent),
}

/// A machine with its session.
#[derive(Debug)]
pub struct Endpoint {
    /// The machine.
    pub machine: Machine,
    /// MQTT client id.
    pub client_id: String,
    /// Present session.
    pub session: Option<SessionId>,
    /// CONNACK of it arrived.
    pub is_connected: bool,
    /// Events reach the program in order: not before this time.
    pub events_at: Duration,
    /// What the program of a Host Application has received, as a reader would keep it.
    pub replica: Replica,
    /// Address of an Edge Node.
    pub descriptor: Option<EdgeNodeDescriptor>,
    /// Subscriptions of a Host Application.
    pub filters: Vec<String>,
    /// What a Host Application keeps of what it receives; empty: everything.
    pub interests: Vec<Interest>,
}

impl Endpoint {
    /// A machine without a session.
    pub fn new(machine: Machine, client_id: String) -> Self {
        Self {
            machine,
            client_id,
            session: None,
            is_connected: false,
            events_at: Duration::ZERO,
            replica: Replica::default(),
            descriptor: None,
            filters: Vec::new(),
            interests: Vec::new(),
        }
    }

    /// Whether a Host Application keeps a device of a node.
    #[must_use]
    pub fn keeps(&self, node: &EdgeNodeDescriptor, device: &DeviceId) -> bool {
        let is_of = |one: &&Interest| {
            one.group.as_ref().is_none_or(|group| *group == node.group)
                && one.edge_node.as_ref().is_none_or(|edge_node| *edge_node == node.edge_node)
        };
        self.interests.iter().find(is_of).is_none_or(|one| (one.device)(device))
    }

    /// Something happened to the session.
    pub fn on_transport(&mut self, event: TransportEvent, now: Now) {
        match &event {
            TransportEvent::Connected => self.is_connected = true,
            TransportEvent::Disconnected { .. } => {
                self.is_connected = false;
                self.session = None;
            }
            _ => {}
        }
        match &mut self.machine {
            Machine::Node(machine) => machine.on_transport(event, now),
            Machine::Host(machine) => machine.on_transport(event, now),
        }
    }

    /// When the machine wants to be called.
    pub fn next_deadline(&self) -> Option<Duration> {
        match &self.machine {
            Machine::Node(machine) => machine.next_deadline(),
            Machine::Host(machine) => machine.next_deadline(),
        }
    }

    /// Its deadline has come.
    pub fn handle_timeout(&mut self, now: Now) {
        match &mut self.machine {
            Machine::Node(machine) => machine.handle_timeout(now),
            Machine::Host(machine) => machine.handle_timeout(now),
        }
    }

    /// What the machine gives out next.
    pub fn poll(&mut self) -> Option<EndpointOutput> {
        match &mut self.machine {
            Machine::Node(machine) => machine.poll_output().map(|output| match output {
                NodeOutput::Transport(action) => EndpointOutput::Transport(action),
                NodeOutput::Event(event) => EndpointOutput::Node(event),
            }),
            Machine::Host(machine) => {
                let output = machine.poll_output()?;
                Some(match output {
                    HostOutput::Transport(action) => EndpointOutput::Transport(action),
                    HostOutput::Event(event) => {
                        self.replica.on_event(&event);
                        EndpointOutput::Host(event)
                    }
                })
            }
        }
    }
}
