//! The subscribers in front of a model of the router of `mqtt5`: whatever clients do, what reaches them is what a comparison with every filter says.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// The router of `mqtt5`: filters, and how clients have them.
#[derive(Debug, Default)]
struct Router(BTreeMap<String, BTreeMap<String, Plain>>);

impl Router {
    fn apply(&mut self, changes: Vec<RouterChange>) {
        for change in changes {
            match change {
                RouterChange::Subscribe { client, topic, plain } => {
                    assert!(!has_wildcards(&topic));
                    self.0.entry(topic).or_default().insert(client, plain);
                }
                RouterChange::Unsubscribe { client, filter } => self.remove(&client, &filter),
            }
        }
    }

    fn remove(&mut self, client: &str, filter: &str) {
        if let Some(clients) = self.0.get_mut(filter) {
            clients.remove(client);
        }
        self.0.retain(|_, clients| !clients.is_empty());
    }

    fn strip(&mut self, client: &str) {
        self.0.values_mut().for_each(|clients| _ = clients.remove(client));
        self.0.retain(|_, clients| !clients.is_empty());
    }

    /// QoS of each message that goes out, by client.
    fn route(&self, topic: &str) -> BTreeMap<String, Vec<u8>> {
        let mut out = BTreeMap::<String, Vec<u8>>::new();
        for (_, clients) in self.0.iter().filter(|(filter, _)| topic_matches_filter(topic, filter)) {
            for (client, plain) in clients {
                out.entry(client.clone()).or_default().push(plain.qos as u8);
            }
        }
        out
    }
}

/// A broker: the router with the subscribers, and what clients have subscribed to.
#[derive(Debug)]
struct Bench {
    router: Router,
    subscribers: Subscribers,
    /// QoS, and whether with options, by filter and client.
    wanted: BTreeMap<String, BTreeMap<String, (u8, bool)>>,
    now: Instant,
}

#[derive(Debug, Clone)]
enum Step {
    Connect(usize, bool),
    Disconnect(usize),
    Subscribe(usize, usize, u8, bool),
    Unsubscribe(usize, usize),
    Publish(usize, usize),
    Wait,
}

const CLIENTS: [&str; 3] = ["a", "b", "c"];
const TOPICS: [&str; 6] = ["p/x", "p/x/1", "p", "q/x/1", "$s/x", "p//1"];
const FILTERS: [&str; 11] = ["#", "+/x", "p/#", "p/+/1", "p/x", "p/x/1", "+/+/+", "$s/#", "$s/+", "p/x/#", "+//1"];
/// Does not subscribe, and is never connected: a will, or the server itself.
const DEPARTED: &str = "departed";

impl Bench {
    fn new() -> Self {
        let (router, subscribers) = (Router::default(), Subscribers::default());
        Self { router, subscribers, wanted: BTreeMap::new(), now: Instant::now() }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Connect(client, is_indexed) => {
                let client = CLIENTS[client];
                self.router.strip(client);
                self.wanted.remove(client);
                self.wanted.insert(client.to_owned(), BTreeMap::new());
                let changes = self.subscribers.connected(client, is_indexed);
                self.router.apply(changes);
            }
            Step::Disconnect(client) => {
                let client = CLIENTS[client];
                self.router.strip(client);
                self.wanted.remove(client);
                let changes = self.subscribers.disconnected(client);
                self.router.apply(changes);
            }
            Step::Subscribe(client, filter, qos, has_options) => {
                let (client, filter) = (CLIENTS[client], FILTERS[filter]);
                let Some(wanted) = self.wanted.get_mut(client) else { return };
                wanted.insert(filter.to_owned(), (qos, has_options));
                let plain = Plain { qos: QoS::from(qos), version: 4 };
                self.router.0.entry(filter.to_owned()).or_default().insert(client.to_owned(), plain);
                let changes = self.subscribers.subscribed(client, filter, (!has_options).then_some(plain));
                self.router.apply(changes);
            }
            Step::Unsubscribe(client, filter) => {
                let (client, filter) = (CLIENTS[client], FILTERS[filter]);
                let Some(wanted) = self.wanted.get_mut(client) else { return };
                wanted.remove(filter);
                self.router.remove(client, filter);
                let changes = self.subscribers.unsubscribed(client, filter);
                self.router.apply(changes);
            }
            Step::Publish(client, topic) => {
                let client = CLIENTS.get(client).copied().filter(|client| self.wanted.contains_key(*client));
                let changes = self.subscribers.publishing(client.unwrap_or(DEPARTED), TOPICS[topic], self.now);
                self.router.apply(changes);
                self.check(TOPICS[topic]);
            }
            Step::Wait => self.now += KEPT_MIN,
        }
    }

    /// A client with a filter that fits receives the message, at the highest QoS and once, as far as its filters have no options.
    fn check(&self, topic: &str) {
        let routed = self.router.route(topic);
        for (client, wanted) in &self.wanted {
            let fits: Vec<_> = wanted.iter().filter(|(filter, _)| topic_matches_filter(topic, filter)).collect();
            let received = routed.get(client).cloned().unwrap_or_default();
            assert_eq!(fits.is_empty(), received.is_empty(), "{client} at {topic}: {self:?}");
            let indexed = self.subscribers.clients[client].is_indexed;
            if indexed && !fits.is_empty() && fits.iter().all(|(_, (_, has_options))| !has_options) {
                let highest = fits.iter().map(|(_, (qos, _))| *qos).max();
                assert_eq!(received, Vec::from_iter(highest), "{client} at {topic}: {self:?}");
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let (client, filter) = (0..CLIENTS.len(), 0..FILTERS.len());
    prop_oneof![
        1 => (client.clone(), prop::bool::weighted(0.9)).prop_map(|(client, indexed)| Step::Connect(client, indexed)),
        1 => client.clone().prop_map(Step::Disconnect),
        6 => (client.clone(), filter.clone(), 0..3_u8, prop::bool::weighted(0.1))
            .prop_map(|(client, filter, qos, options)| Step::Subscribe(client, filter, qos, options)),
        3 => (client, filter).prop_map(|(client, filter)| Step::Unsubscribe(client, filter)),
        8 => (0..=CLIENTS.len(), 0..TOPICS.len()).prop_map(|(client, topic)| Step::Publish(client, topic)),
        2 => Just(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn all_receive_what_they_have_subscribed_to_and_nothing_stays_behind(
        steps in prop::collection::vec(step(), 0..60)
    ) {
        let mut bench = Bench::new();
        for client in 0..CLIENTS.len() {
            bench.step(&Step::Connect(client, true));
        }
        for step in &steps {
            bench.step(step);
        }
        for client in 0..CLIENTS.len() {
            bench.step(&Step::Disconnect(client));
        }
        prop_assert!(bench.router.0.is_empty(), "{bench:?}");
        prop_assert!(bench.subscribers.tree.is_empty() && bench.subscribers.clients.is_empty());
        bench.step(&Step::Wait);
        bench.step(&Step::Publish(CLIENTS.len(), 0));
        prop_assert!(bench.subscribers.active.len() <= 2, "{bench:?}");
    }
}

#[test]
fn the_router_has_no_filter_with_wildcards_and_only_topics_that_are_published_to() {
    let mut bench = Bench::new();
    for client in 0..CLIENTS.len() {
        bench.step(&Step::Connect(client, true));
        bench.step(&Step::Subscribe(client, 0, 0, false));
    }
    assert!(bench.router.0.is_empty());
    bench.step(&Step::Publish(0, 0));
    bench.step(&Step::Wait);
    bench.step(&Step::Publish(0, 1));
    assert_eq!(bench.router.0.keys().collect::<Vec<_>>(), [TOPICS[1]]);
}

#[test]
fn messages_of_qos_2_keep_their_topic_until_too_many_have_begun() {
    let mut bench = Bench::new();
    bench.step(&Step::Connect(0, true));
    bench.step(&Step::Subscribe(0, 0, 2, false));
    let changes = bench.subscribers.exactly_once(CLIENTS[0], "first");
    bench.router.apply(changes);
    for number in 1..EXACTLY_ONCE_MAX {
        let changes = bench.subscribers.exactly_once(CLIENTS[0], &format!("more/{number}"));
        bench.router.apply(changes);
    }
    bench.check("first");
    let changes = bench.subscribers.exactly_once(CLIENTS[0], "one more");
    bench.router.apply(changes);
    assert!(bench.router.route("first").is_empty());
}

#[test]
fn a_filter_of_too_many_levels_stays_in_the_router() {
    let mut bench = Bench::new();
    bench.step(&Step::Connect(0, true));
    let long = "+/".repeat(LEVELS_MAX) + "#";
    let plain = Plain { qos: QoS::AtMostOnce, version: 4 };
    assert!(bench.subscribers.subscribed(CLIENTS[0], &long, Some(plain)).is_empty());
    assert!(bench.subscribers.tree.is_empty());
}
