//! Subscribers by topic levels. The router of `mqtt5` compares each message with every filter that holds a wildcard, but finds filters without one by their hash. So filters with
//! wildcards are kept here, in a tree of levels. The router gets the topics that someone publishes to at the moment, as filters without wildcards of their subscribers.
//!
//! Only plain filters of sessions that end with their connection are kept here. Filters with options of MQTT 5, shared ones, and those of sessions that outlive their connection
//! stay in the router. A client that has several filters for a topic receives the message once, at the highest of their QoS.
//!
//! Pure: what the router has to do is returned as [`RouterChange`].

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use mqtt5::QoS;
use mqtt5::validation::topic_matches_filter;

/// A topic stays in the router for so long after a client has begun to publish to it, also when that client turns to another topic. When a client takes its own session over, both
/// of its connections may publish.
const KEPT_MIN: Duration = Duration::from_secs(1);

/// Messages of QoS 2 that one client may have begun and not released. They are routed when they are released.
pub(super) const EXACTLY_ONCE_MAX: u16 = 1024;

/// Levels of a filter in the tree, which is walked recursively. Longer ones stay in the router.
const LEVELS_MAX: usize = 32;

/// How a filter without options was subscribed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plain {
    pub(super) qos: QoS,
    /// Of MQTT, spoken by the client.
    pub(super) version: u8,
}

impl Plain {
    fn or_higher(self, other: Option<Self>) -> Self {
        other.filter(|other| other.qos as u8 > self.qos as u8).unwrap_or(self)
    }
}

/// What has to change in the router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RouterChange {
    Subscribe { client: String, topic: String, plain: Plain },
    Unsubscribe { client: String, filter: String },
}

/// One level of the tree of filters.
#[derive(Debug, Default)]
struct Level {
    next: HashMap<String, Level>,
    /// Clients whose filter ends here.
    here: HashMap<String, Plain>,
    /// Clients whose filter ends with `#` below this level, which this level belongs to.
    below: HashMap<String, Plain>,
}

impl Level {
    fn is_empty(&self) -> bool {
        self.next.is_empty() && self.here.is_empty() && self.below.is_empty()
    }

    fn insert(&mut self, filter: &str, client: &str, plain: Plain) {
        let (first, rest) = split(filter);
        if first == "#" {
            self.below.insert(client.to_owned(), plain);
            return;
        }
        let next = self.next.entry(first.to_owned()).or_default();
        match rest {
            Some(rest) => next.insert(rest, client, plain),
            None => _ = next.here.insert(client.to_owned(), plain),
        }
    }

    fn remove(&mut self, filter: &str, client: &str) {
        let (first, rest) = split(filter);
        if first == "#" {
            self.below.remove(client);
            return;
        }
        let Some(next) = self.next.get_mut(first) else { return };
        match rest {
            Some(rest) => next.remove(rest, client),
            None => _ = next.here.remove(client),
        }
        if next.is_empty() {
            self.next.remove(first);
        }
    }

    /// Adds the clients that receive what is published to a topic; `topic` is what is left of it below this level.
    fn find<'a>(&'a self, topic: Option<&str>, wildcards: bool, found: &mut HashMap<&'a str, Plain>) {
        let mut add = |clients: &'a HashMap<String, Plain>| {
            for (client, plain) in clients {
                let known = found.get(client.as_str()).copied();
                found.insert(client, plain.or_higher(known));
            }
        };
        if wildcards {
            add(&self.below);
        }
        let Some(topic) = topic else {
            add(&self.here);
            return;
        };
        let (first, rest) = split(topic);
        let any = self.next.get("+").filter(|_| wildcards);
        for next in [self.next.get(first), any].into_iter().flatten() {
            next.find(rest, true, found);
        }
    }
}

/// First level of a topic or filter, and the rest if there is one.
fn split(topic: &str) -> (&str, Option<&str>) {
    topic.split_once('/').map_or((topic, None), |(first, rest)| (first, Some(rest)))
}

/// A connected client.
#[derive(Debug, Default)]
struct Client {
    /// Whether its session ends with its connection.
    is_indexed: bool,
    /// Its filters that are in the tree.
    wildcards: HashSet<String>,
    /// Its filters without wildcards, which are in the router; None: with options.
    exact: HashMap<String, Option<Plain>>,
    /// Topics that it published to, the latest last, and when.
    recent: VecDeque<(String, Instant)>,
    /// Topics of its messages of QoS 2, the latest last.
    exactly_once: VecDeque<String>,
}

/// A topic that someone publishes to.
#[derive(Debug, Default)]
struct Active {
    /// How many entries of clients hold it.
    publishers: usize,
    /// Clients that are subscribed in the router because of a filter in the tree.
    subscribed: HashSet<String>,
}

/// Who receives what.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    tree: Level,
    clients: HashMap<String, Client>,
    active: BTreeMap<String, Active>,
    /// As `Client::recent`, of clients without a connection: their wills.
    departed: VecDeque<(String, Instant)>,
}

impl Subscribers {
    /// A client has a new connection, on which it has not subscribed to anything. `is_indexed`: its session ends with this connection.
    pub(super) fn connected(&mut self, client: &str, is_indexed: bool) -> Vec<RouterChange> {
        let changes = self.forget_filters(client);
        self.clients.entry(client.to_owned()).or_default().is_indexed = is_indexed;
        changes
    }

    /// A client's last connection has ended, and its will is published.
    pub(super) fn disconnected(&mut self, client: &str) -> Vec<RouterChange> {
        let mut changes = self.forget_filters(client);
        if let Some(gone) = self.clients.remove(client) {
            for topic in gone.recent.into_iter().map(|(topic, _)| topic).chain(gone.exactly_once) {
                self.release(&topic, &mut changes);
            }
        }
        changes
    }

    /// A client has subscribed; plain: without options. The router has the filter.
    pub(super) fn subscribed(&mut self, client: &str, filter: &str, plain: Option<Plain>) -> Vec<RouterChange> {
        let mut changes = Vec::new();
        let plain = plain.filter(|_| !has_wildcards(filter) || filter.split('/').count() <= LEVELS_MAX);
        let Some(known) = self.clients.get_mut(client).filter(|known| known.is_indexed) else { return changes };
        if !has_wildcards(filter) {
            known.exact.insert(filter.to_owned(), plain);
        } else if let Some(plain) = plain {
            known.wildcards.insert(filter.to_owned());
            self.tree.insert(filter, client, plain);
        } else if known.wildcards.remove(filter) {
            self.tree.remove(filter, client);
        } else {
            return changes;
        }
        self.refresh(client, filter, &mut changes);
        if plain.is_some() && has_wildcards(filter) {
            changes.push(RouterChange::Unsubscribe { client: client.to_owned(), filter: filter.to_owned() });
        }
        changes
    }

    /// A client has unsubscribed. The router does not have the filter.
    pub(super) fn unsubscribed(&mut self, client: &str, filter: &str) -> Vec<RouterChange> {
        let mut changes = Vec::new();
        let Some(known) = self.clients.get_mut(client) else { return changes };
        // Also of a filter that it did not have the router has forgotten the topic.
        known.exact.remove(filter);
        if known.wildcards.remove(filter) {
            self.tree.remove(filter, client);
        }
        self.refresh(client, filter, &mut changes);
        changes
    }

    /// A client is about to publish to a topic, or its will is.
    pub(super) fn publishing(&mut self, client: &str, topic: &str, now: Instant) -> Vec<RouterChange> {
        let mut changes = Vec::new();
        let recent = self.clients.get_mut(client).map_or(&mut self.departed, |known| &mut known.recent);
        let is_latest = recent.back().is_some_and(|(latest, _)| latest == topic);
        if is_latest {
            recent.pop_back();
        }
        recent.push_back((topic.to_owned(), now));
        let mut old = Vec::new();
        while recent.len() > 1 && recent.front().is_some_and(|(_, since)| now.duration_since(*since) >= KEPT_MIN) {
            old.extend(recent.pop_front().map(|(topic, _)| topic));
        }
        if !is_latest {
            self.hold(topic, &mut changes);
        }
        for topic in old {
            self.release(&topic, &mut changes);
        }
        changes
    }

    /// The message that a client is about to publish has QoS 2: it is routed later.
    pub(super) fn exactly_once(&mut self, client: &str, topic: &str) -> Vec<RouterChange> {
        let mut changes = Vec::new();
        let Some(known) = self.clients.get_mut(client) else { return changes };
        known.exactly_once.push_back(topic.to_owned());
        let old =
            if known.exactly_once.len() > EXACTLY_ONCE_MAX.into() { known.exactly_once.pop_front() } else { None };
        self.hold(topic, &mut changes);
        if let Some(old) = old {
            self.release(&old, &mut changes);
        }
        changes
    }

    fn hold(&mut self, topic: &str, changes: &mut Vec<RouterChange>) {
        if let Some(active) = self.active.get_mut(topic) {
            active.publishers += 1;
            return;
        }
        let mut found = HashMap::new();
        self.tree.find(Some(topic), !topic.starts_with('$'), &mut found);
        let mut subscribed = HashSet::new();
        for (client, plain) in found {
            if let Some(plain) = beside_exact(&self.clients, client, topic, plain) {
                subscribed.insert(client.to_owned());
                changes.push(RouterChange::Subscribe { client: client.to_owned(), topic: topic.to_owned(), plain });
            }
        }
        self.active.insert(topic.to_owned(), Active { publishers: 1, subscribed });
    }

    fn release(&mut self, topic: &str, changes: &mut Vec<RouterChange>) {
        let Some(active) = self.active.get_mut(topic) else { return };
        active.publishers -= 1;
        if active.publishers > 0 {
            return;
        }
        let Some(active) = self.active.remove(topic) else { return };
        changes.extend(active.subscribed.iter().filter_map(|client| as_before(&self.clients, client, topic)));
    }

    /// A filter of a client has come or gone: what follows for the topics that it stands for.
    fn refresh(&mut self, client: &str, filter: &str, changes: &mut Vec<RouterChange>) {
        let literal = filter.find(['+', '#']).map_or(filter, |wildcard| filter[..wildcard].trim_end_matches('/'));
        let may_fit = self.active.range_mut(literal.to_owned()..).take_while(|(topic, _)| topic.starts_with(literal));
        for (topic, active) in may_fit.filter(|(topic, _)| topic_matches_filter(topic, filter)) {
            let mut found = HashMap::new();
            self.tree.find(Some(topic), !topic.starts_with('$'), &mut found);
            let plain = found.get(client).and_then(|plain| beside_exact(&self.clients, client, topic, *plain));
            if let Some(plain) = plain {
                active.subscribed.insert(client.to_owned());
                changes.push(RouterChange::Subscribe { client: client.to_owned(), topic: topic.clone(), plain });
            } else if active.subscribed.remove(client) {
                changes.extend(as_before(&self.clients, client, topic));
            }
        }
    }

    fn forget_filters(&mut self, client: &str) -> Vec<RouterChange> {
        let Some(known) = self.clients.get_mut(client) else { return Vec::new() };
        known.exact.clear();
        for filter in known.wildcards.drain() {
            self.tree.remove(&filter, client);
        }
        let subscribed = self.active.iter_mut().filter_map(|(topic, active)| {
            let filter = active.subscribed.remove(client).then(|| topic.clone())?;
            Some(RouterChange::Unsubscribe { client: client.to_owned(), filter })
        });
        subscribed.collect()
    }
}

fn has_wildcards(filter: &str) -> bool {
    filter.contains(['+', '#'])
}

/// How the router has to have a topic for a client with a filter in the tree; None: as it has it, by a filter of the client without wildcards.
fn beside_exact(clients: &HashMap<String, Client>, client: &str, topic: &str, plain: Plain) -> Option<Plain> {
    match clients.get(client).and_then(|known| known.exact.get(topic)) {
        None => Some(plain),
        Some(Some(exact)) => (plain.qos as u8 > exact.qos as u8).then_some(plain),
        Some(None) => None,
    }
}

/// What makes the router as it was before a topic became active; None: it has a filter with options, which nothing has changed.
fn as_before(clients: &HashMap<String, Client>, client: &str, topic: &str) -> Option<RouterChange> {
    let exact = clients.get(client).and_then(|known| known.exact.get(topic));
    let (client, topic) = (client.to_owned(), topic.to_owned());
    match exact {
        None => Some(RouterChange::Unsubscribe { client, filter: topic }),
        Some(plain) => plain.map(|plain| RouterChange::Subscribe { client, topic, plain }),
    }
}

#[cfg(test)]
mod tests;
