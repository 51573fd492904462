//! The state of a monitor, at the edge or at the control plane: takes events, decides who is alive and current, and says so.
//!
//! In a turn, one event changes what is known. Then what follows from it is returned, once: whose birth the Host Application manages, the device of each node that changed, and the
//! counts. A monitor owes no one anything that it could forget: all that it knows it receives again after a restart. So there is nothing to save.

use std::collections::BTreeMap;
use std::time::Duration;

use configdb_schema::Organisation;
use edge_monitor_contract::MonitorNode;
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::{EdgeNodeDescriptor, GroupId, Metric, Now, TypedMetrics};
use uuid::Uuid;

use crate::central::{self, Central};
use crate::config_freshness::ReloadPolicy;
use crate::edge::Edge;
use crate::event::{Effect, Event};
use crate::watch;
use crate::watched_nodes::WatchedNodes;

/// Problems that are reported one by one; more are counted. Keeps the metric small whatever the cluster holds.
const PROBLEMS_REPORTED_MAX: usize = 100;
/// Characters of one problem that are reported.
const PROBLEM_CHARACTERS_MAX: usize = 300;

/// Whom a monitor watches.
#[derive(Debug, Clone)]
pub enum Scope {
    /// The nodes of one cluster.
    Edge { group: GroupId, cluster: Uuid },
    /// The monitors of all clusters.
    Central { organisation: Organisation },
}

/// What a state needs before it begins.
#[derive(Debug, Clone)]
pub struct Settings {
    pub scope: Scope,
    pub instance: Uuid,
    pub version: String,
    /// What it watches is a simulation.
    pub is_simulated: bool,
    /// How long a node may be silent that does not say so itself.
    pub interval_default: Duration,
    /// When to ask agents to reload.
    pub reload: ReloadPolicy,
    /// Seed of the jitter.
    pub seed: u64,
}

#[derive(Debug)]
enum Sources {
    Edge(Edge),
    Central(Central),
}

#[derive(Debug)]
pub struct State {
    sources: Sources,
    watched_nodes: WatchedNodes,
    node: MonitorNode,
    effects: Vec<Effect>,
}

impl State {
    /// Watches no one yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let Settings { scope, instance, version, is_simulated, interval_default, reload, seed } = settings;
        let (sources, cluster, device_id): (_, _, fn(&watch::Watched) -> _) = match scope {
            Scope::Edge { group, cluster } => {
                (Sources::Edge(Edge::new(group, interval_default)), Some(cluster), watch::device_id)
            }
            Scope::Central { organisation } => {
                (Sources::Central(Central::new(organisation, interval_default)), None, central::device_id)
            }
        };
        let node = MonitorNode {
            instance,
            cluster,
            version,
            simulated: is_simulated,
            nodes_total: 0,
            nodes_online: 0,
            alerts_active: 0,
            problems: BTreeMap::new(),
        };
        Self { sources, watched_nodes: WatchedNodes::new(reload, seed, device_id), node, effects: Vec::new() }
    }

    /// The metrics with which the own Edge Node begins.
    #[must_use]
    pub fn node_metrics(&self) -> Vec<Metric> {
        self.node.to_metrics()
    }

    /// What the monitor says about itself.
    #[must_use]
    pub const fn node(&self) -> &MonitorNode {
        &self.node
    }

    pub fn on_event(&mut self, event: Event, now: Now) {
        match event {
            Event::DeadlineReached => self.on_timer(now),
            Event::Host(event) => match &mut self.sources {
                Sources::Edge(edge) => edge.on_host(&event, &mut self.watched_nodes, now),
                Sources::Central(central) => {
                    let asked = central.on_host(&event, &mut self.watched_nodes, now);
                    self.effects.extend(asked.map(rebirth));
                    if matches!(event, HostEvent::HostServed { .. }) {
                        self.effects.push(Effect::Node(NodeUpdate::Rebirth));
                    }
                }
            },
            Event::Node(event) => on_node(&event),
            Event::Nodes(watch) => self.edge(|edge, watched_nodes| edge.on_resources(watch, watched_nodes, now)),
            Event::Secrets(watch) => self.edge(|edge, watched_nodes| edge.on_secrets(watch, watched_nodes, now)),
            Event::AgentConfigs(watch) => self.edge(|edge, watched_nodes| edge.on_configs(watch, watched_nodes, now)),
        }
        self.settle();
    }

    /// `Now::mono` at which [`Event::DeadlineReached`] is due.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Duration> {
        self.watched_nodes.next_deadline()
    }

    /// What is to be done, in order.
    pub fn poll_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn on_timer(&mut self, now: Now) {
        let timed_out = self.watched_nodes.on_timer(&mut self.effects, now);
        if timed_out.is_empty() {
            return;
        }
        match &mut self.sources {
            Sources::Edge(edge) => edge.on_silent(&timed_out, &mut self.watched_nodes, now),
            Sources::Central(central) => central.sweep(&mut self.watched_nodes),
        }
    }

    fn edge(&mut self, change: impl FnOnce(&mut Edge, &mut WatchedNodes)) {
        match &mut self.sources {
            Sources::Edge(edge) => change(edge, &mut self.watched_nodes),
            Sources::Central(_) => tracing::debug!("a central monitor has no use for Kubernetes resources"),
        }
    }

    /// Says what follows from the turn.
    fn settle(&mut self) {
        let (others, problems) = match &self.sources {
            Sources::Edge(edge) => (edge.expected(&self.watched_nodes), edge.problems(&self.watched_nodes)),
            Sources::Central(central) => (central.expected(), central.problems(&self.watched_nodes)),
        };
        self.watched_nodes.expect(others, &mut self.effects);
        let is_changed = self.watched_nodes.show(&mut self.effects);
        let problems = short(problems);
        if !is_changed && problems == self.node.problems {
            return;
        }
        let counts = self.watched_nodes.counts();
        let before = self.node.clone();
        self.node.nodes_total = counts.total;
        self.node.nodes_online = counts.online;
        self.node.alerts_active = counts.alerts;
        self.node.problems = problems;
        let metrics = self.node.changes_since(&before);
        if !metrics.is_empty() {
            self.effects.push(Effect::Node(NodeUpdate::Set { device: None, metrics }));
        }
    }
}

/// Asks once, as seldom as the Host Application asks anyone, and waits for nothing: the answer is for someone else.
const fn rebirth(node: EdgeNodeDescriptor) -> Effect {
    Effect::Host(HostRequest::Rebirth { node })
}

/// Bounded, so that resources full of mistakes cannot make the birth too large.
fn short(problems: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let more = problems.len().saturating_sub(PROBLEMS_REPORTED_MAX);
    let mut short: BTreeMap<String, String> = problems
        .into_iter()
        .take(PROBLEMS_REPORTED_MAX)
        .map(|(key, problem)| (key, problem.chars().take(PROBLEM_CHARACTERS_MAX).collect()))
        .collect();
    if more > 0 {
        short.insert("...".to_owned(), format!("and {more} more"));
    }
    short
}

fn on_node(event: &NodeEvent) {
    match event {
        NodeEvent::Born { bd_seq, rebirth } => tracing::debug!(bd_seq = bd_seq.get(), rebirth, "monitor is born"),
        NodeEvent::Offline { reason } => tracing::warn!(reason, "monitor lost its session as edge node"),
        NodeEvent::Forwarded { sent, dropped } => tracing::info!(sent, dropped, "stored values were forwarded"),
        NodeEvent::Command { metrics, .. } => {
            tracing::debug!(metrics = metrics.len(), "command ignored: a monitor takes no command but rebirth")
        }
        NodeEvent::Rejected { topic, reason } => tracing::debug!(topic, reason, "message dropped"),
        NodeEvent::Displaced(_)
        | NodeEvent::Contested(_)
        | NodeEvent::BirthNotReceived(_)
        | NodeEvent::BirthReceived
        | NodeEvent::Stopped => tracing::debug!(?event, "edge node"),
    }
}

#[cfg(test)]
mod tests;
