//! One Host Application on several servers that know nothing of each other (Sparkplug 3.0, 5.12 and 5.16): a session on each, and one replica of all.
//!
//! Each session is a [`HostApplication`](super::HostApplication) of its own, with its own will, STATE and timestamps
//! (tck-id-operational-behavior-host-application-multi-server-timestamp, tck-id-operational-behavior-primary-application-state-with-multiple-servers-state).
//! An Edge Node is on one server at a time; the server of its latest birth is its home. What other servers say of it is of an earlier time and is left out, and their
//! sessions are asked to forget it. Commands go to the home, or everywhere while there is none: a node that is not there does not receive them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{HostEvent, HostRequest};
use crate::name::EdgeNodeDescriptor;

/// What comes out of a [`HostMerge`].
#[derive(Debug, Clone, PartialEq)]
pub enum MergeOutput {
    /// For the application.
    Event(HostEvent),
    /// For the session on one of the servers.
    Request {
        /// Its index.
        server: usize,
        /// What it is asked for.
        request: HostRequest,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reported {
    Alive,
    Stale,
    Dead,
}

#[derive(Debug)]
struct Home {
    server: usize,
    reported: Reported,
    /// Timestamp of its birth there.
    born: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Server {
    is_online: bool,
    has_stopped: bool,
}

/// See the module.
#[derive(Debug)]
pub struct HostMerge {
    servers: Vec<Server>,
    homes: BTreeMap<EdgeNodeDescriptor, Home>,
    expected: BTreeSet<EdgeNodeDescriptor>,
    allowed: BTreeSet<EdgeNodeDescriptor>,
    outputs: VecDeque<MergeOutput>,
}

impl HostMerge {
    /// For so many servers, all of them offline.
    #[must_use]
    pub fn new(servers: usize) -> Self {
        Self {
            servers: vec![Server::default(); servers],
            homes: BTreeMap::new(),
            expected: BTreeSet::new(),
            allowed: BTreeSet::new(),
            outputs: VecDeque::new(),
        }
    }

    /// The next thing to report or to ask, in order.
    pub fn poll_output(&mut self) -> Option<MergeOutput> {
        self.outputs.pop_front()
    }

    /// Takes what the application has to say.
    pub fn request(&mut self, request: HostRequest) {
        match &request {
            HostRequest::Command { node, .. } | HostRequest::Rebirth { node } => match self.living(node) {
                Some(server) => self.ask(server, request),
                None => self.ask_all(&request, None),
            },
            HostRequest::Expect { node } => {
                self.expected.insert(node.clone());
                match self.homes.get(node).filter(|home| home.reported == Reported::Alive) {
                    Some(home) => self.ask(home.server, request),
                    None => self.ask_all(&request, None),
                }
            }
            HostRequest::Allow { node } => {
                self.allowed.insert(node.clone());
                match self.homes.get(node).filter(|home| home.reported == Reported::Alive) {
                    Some(home) => self.ask(home.server, request),
                    None => self.ask_all(&request, None),
                }
            }
            HostRequest::Forget { node } => {
                self.expected.remove(node);
                self.allowed.remove(node);
                self.homes.remove(node);
                self.ask_all(&request, None);
            }
            // A node is wherever it sends; commands to it are sent everywhere while it is nowhere.
            HostRequest::Follow { .. } | HostRequest::Unfollow { .. } | HostRequest::Stop => {
                self.ask_all(&request, None);
            }
        }
    }

    /// Takes what the session on a server has to say.
    pub fn on_event(&mut self, server: usize, event: HostEvent) {
        if server >= self.servers.len() {
            return;
        }
        match event {
            HostEvent::Online => self.online(server),
            HostEvent::Offline { reason } => self.offline(server, reason),
            HostEvent::Stopped => {
                self.servers[server].has_stopped = true;
                if self.servers.iter().all(|server| server.has_stopped) {
                    self.report(HostEvent::Stopped);
                }
            }
            HostEvent::NodeBirth { ref node, timestamp, .. } => {
                let node = node.clone();
                if self.move_in(server, &node, timestamp) {
                    self.report(event);
                }
            }
            HostEvent::NodeDeath { ref node, .. } => {
                if let Some(home) = self.homes.get_mut(node).filter(|home| home.server == server) {
                    home.reported = Reported::Dead;
                    self.expect_elsewhere(&node.clone(), server);
                    self.report(event);
                }
            }
            HostEvent::NodeStale { ref node, .. } => {
                let is_change = match self.homes.get_mut(node) {
                    Some(home) if home.server == server => {
                        home.reported = Reported::Stale;
                        true
                    }
                    Some(_) => false,
                    None => true,
                };
                if is_change {
                    self.report(event);
                }
            }
            HostEvent::Aliases { ref node, .. }
            | HostEvent::NodeData { ref node, .. }
            | HostEvent::DeviceBirth { ref node, .. }
            | HostEvent::DeviceData { ref node, .. }
            | HostEvent::DeviceDeath { ref node, .. } => {
                if self.homes.get(node).is_some_and(|home| home.server == server && home.reported == Reported::Alive) {
                    self.report(event);
                }
            }
            HostEvent::Message { .. }
            | HostEvent::NodeMessages { .. }
            | HostEvent::RebirthRequested { .. }
            | HostEvent::HostState { .. }
            | HostEvent::HostServed { .. }
            | HostEvent::Rejected { .. } => self.report(event),
        }
    }

    fn online(&mut self, server: usize) {
        let was_online = self.is_online();
        self.servers[server].is_online = true;
        if !was_online {
            self.report(HostEvent::Online);
        }
    }

    /// The statement of chapter 5 that has no id: a host that loses a server marks everything that came from it stale. With the last one `Offline` says that.
    fn offline(&mut self, server: usize, reason: String) {
        self.servers[server].is_online = false;
        let is_online = self.is_online();
        let mut stale = Vec::new();
        for (node, home) in self.homes.iter_mut().filter(|(_, home)| home.server == server) {
            if home.reported == Reported::Alive {
                home.reported = Reported::Stale;
                stale.push(node.clone());
            }
        }
        for node in stale {
            self.expect_elsewhere(&node, server);
            if is_online {
                self.report(HostEvent::NodeStale { node, reason: format!("its server is lost: {reason}") });
            }
        }
        if !is_online {
            self.report(HostEvent::Offline { reason });
        }
    }

    /// A birth came from this server. False: it is older than the one that counts.
    fn move_in(&mut self, server: usize, node: &EdgeNodeDescriptor, born: u64) -> bool {
        let before = self.homes.get(node);
        if before.is_some_and(|home| home.server != server && home.reported == Reported::Alive && home.born > born) {
            self.ask(server, HostRequest::Forget { node: node.clone() });
            return false;
        }
        let left = before.map(|home| home.server).filter(|left| *left != server);
        let forget = HostRequest::Forget { node: node.clone() };
        if self.expected.contains(node) || self.allowed.contains(node) {
            self.ask_all(&forget, Some(server));
        } else if let Some(left) = left {
            self.ask(left, forget);
        }
        self.homes.insert(node.clone(), Home { server, reported: Reported::Alive, born });
        true
    }

    /// It may come back on another server.
    fn expect_elsewhere(&mut self, node: &EdgeNodeDescriptor, server: usize) {
        if self.expected.contains(node) {
            self.ask_all(&HostRequest::Expect { node: node.clone() }, Some(server));
        }
        if self.allowed.contains(node) {
            self.ask_all(&HostRequest::Allow { node: node.clone() }, Some(server));
        }
    }

    fn living(&self, node: &EdgeNodeDescriptor) -> Option<usize> {
        self.homes.get(node).filter(|home| home.reported == Reported::Alive).map(|home| home.server)
    }

    fn is_online(&self) -> bool {
        self.servers.iter().any(|server| server.is_online)
    }

    fn ask_all(&mut self, request: &HostRequest, except: Option<usize>) {
        for server in (0..self.servers.len()).filter(|server| Some(*server) != except) {
            self.ask(server, request.clone());
        }
    }

    fn ask(&mut self, server: usize, request: HostRequest) {
        self.outputs.push_back(MergeOutput::Request { server, request });
    }

    fn report(&mut self, event: HostEvent) {
        self.outputs.push_back(MergeOutput::Event(event));
    }
}

#[cfg(test)]
mod tests;
