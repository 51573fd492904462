//! The attestation policy on its way to a Join node that lives in this file.

use join_service_contract::JoinNode;
use join_service_contract::policy::PolicyState;
use join_service_contract::{DesiredPolicy, join_node};
use sparkplug::GroupId;

use super::*;

/// A Join node that takes a policy over at once, as the join service does.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Join {
    node: JoinNode,
    invalid: Option<&'static str>,
    deaf: bool,
    /// Versions that came.
    received: Vec<u64>,
}

impl Join {
    fn new(cluster: Uuid, name: &str) -> Self {
        let node = JoinNode { cluster_uuid: cluster, cluster_name: name.to_owned(), ..JoinNode::default() };
        Self { node, invalid: None, deaf: false, received: Vec::new() }
    }

    pub(super) fn address(&self) -> EdgeNodeDescriptor {
        join_node(GroupId::new(format!("ACME-{}", self.node.cluster_name)).unwrap())
    }

    pub(super) fn birth(&self) -> Vec<HostEvent> {
        let metrics = self.node.to_metrics().into();
        vec![HostEvent::NodeBirth { node: self.address(), bd_seq: BdSeq::ZERO, timestamp: 0, uuid: None, metrics }]
    }

    pub(super) fn command(&mut self, metrics: &[Metric]) -> Vec<HostEvent> {
        let desired = DesiredPolicy::from_metrics(metrics).unwrap().unwrap();
        self.received.push(desired.version);
        if self.deaf || desired.version <= self.node.policy_version {
            return Vec::new();
        }
        self.node.policy_version = desired.version;
        self.node.policy_digest = Some(desired.digest());
        self.node.policy_revision = desired.revision;
        let invalid = self.invalid.filter(|_| desired.entry.is_some());
        self.node.policy_state = match (&desired.entry, invalid) {
            (None, _) => PolicyState::None,
            (Some(_), None) => PolicyState::InForce,
            (Some(_), Some(_)) => PolicyState::Invalid,
        };
        self.node.policy_error = invalid.map(str::to_owned);
        let metrics = self.node.to_metrics();
        vec![HostEvent::NodeData { node: self.address(), timestamp: 0, metrics }]
    }
}

fn policy(value: &str) -> Value {
    json!({"bank": "sha256", "pcrs": {"4": {"expected": [value]}}, "lock": {"pcr": 15}, "endorsement": {"require": "enrolment"}})
}

/// A cluster with a Join node that was just born.
fn joining() -> World {
    let mut world = running();
    let join = Join::new(CLUSTER, "Paint_Shop");
    let births = join.birth();
    world.joins.insert("Paint_Shop".to_owned(), join);
    world.feed(births);
    world.settle();
    world
}

fn join(world: &mut World) -> &mut Join {
    world.joins.get_mut("Paint_Shop").unwrap()
}

#[test]
fn a_policy_reaches_join_once_and_its_state_is_in_the_device() {
    let mut world = joining();
    let reported = |world: &World| world.device().join.clone();
    assert_eq!(
        reported(&world).policy_state.as_deref(),
        Some("none"),
        "a cluster without an entry gets the message that there is none"
    );
    assert!(reported(&world).alive && reported(&world).policy_agreed);
    assert!(!world.expected.contains("ACME-Paint_Shop/Join"), "no rebirth of a Join node is requested without need");
    world.put(CLUSTER, "AttestationPolicy", policy("aa"));
    world.settle();
    let revision = world.db.objects[&CLUSTER].entries["AttestationPolicy"].0.revision;
    let first = reported(&world);
    assert_eq!((first.policy_state.as_deref(), first.policy_revision), (Some("in-force"), revision));
    assert!(first.policy_agreed && first.policy_error.is_none());
    assert!(world.expected.contains("ACME-Paint_Shop/Join"));
    assert_eq!(join(&mut world).received.len(), 2, "one command each");
    join(&mut world).invalid = Some("pcrs: no PCR is enforced");
    world.put(CLUSTER, "AttestationPolicy", policy("bb"));
    world.settle();
    let refused = reported(&world);
    assert_eq!(refused.policy_error.as_deref(), Some("pcrs: no PCR is enforced"));
    assert_eq!((refused.policy_state.as_deref(), refused.policy_agreed), (Some("invalid"), true));
    assert_eq!(join(&mut world).received.len(), 3, "a refusal ends the repeating");
    world.delete(CLUSTER, "AttestationPolicy");
    world.settle();
    assert_eq!(reported(&world).policy_state.as_deref(), Some("none"));
    let received = &join(&mut world).received;
    assert!(received.is_sorted() && received.len() == 4, "{received:?}");
}

#[test]
fn an_unanswered_policy_is_repeated_with_growing_pauses_and_one_version() {
    let mut world = joining();
    join(&mut world).deaf = true;
    world.put(CLUSTER, "AttestationPolicy", policy("aa"));
    world.run(Duration::from_secs(60));
    let received = join(&mut world).received.clone();
    assert!((5..=12).contains(&(received.len() - 1)), "{received:?}");
    assert!(received[1..].iter().all(|version| *version == received[1]), "{received:?}");
    assert!(!world.device().join.policy_agreed);
    join(&mut world).deaf = false;
    world.run(Duration::from_secs(120));
    assert!(world.device().join.policy_agreed);
}

#[test]
fn a_manager_that_starts_again_sends_nothing_and_one_that_lost_its_memory_continues_above_the_report() {
    let mut world = joining();
    world.put(CLUSTER, "AttestationPolicy", policy("aa"));
    world.settle();
    let received = join(&mut world).received.len();
    world.kills += 1;
    world.start();
    world.settle();
    assert_eq!(join(&mut world).received.len(), received);
    assert!(world.device().join.policy_agreed);
    // Another control plane was at work, and is gone.
    let node = &mut join(&mut world).node;
    (node.policy_version, node.policy_digest) = (1_000_000, None);
    let births = join(&mut world).birth();
    world.feed(births);
    world.settle();
    assert_eq!(join(&mut world).received.last(), Some(&1_000_001));
    assert!(world.device().join.policy_agreed);
}

#[test]
fn a_join_node_of_another_cluster_or_one_that_is_dead_is_sent_nothing() {
    let mut world = joining();
    join(&mut world).node.cluster_uuid = OTHER;
    let births = join(&mut world).birth();
    world.feed(births);
    world.put(CLUSTER, "AttestationPolicy", policy("aa"));
    world.settle();
    assert_eq!((join(&mut world).received.len(), world.device().join.alive), (1, false));
    join(&mut world).node.cluster_uuid = CLUSTER;
    let births = join(&mut world).birth();
    world.feed(births);
    world.settle();
    let node = join(&mut world).address();
    world.feed(vec![HostEvent::NodeDeath { node, timestamp: 0 }]);
    let received = join(&mut world).received.len();
    world.put(CLUSTER, "AttestationPolicy", policy("bb"));
    world.settle();
    assert_eq!(join(&mut world).received.len(), received);
    assert!(!world.device().join.alive && !world.device().join.policy_agreed);
}

#[test]
fn nothing_is_taken_for_absent_from_a_configdb_that_is_not_known_completely_and_a_tear_down_admits_no_host() {
    let mut world = joining();
    world.put(CLUSTER, "AttestationPolicy", policy("aa"));
    world.settle();
    let received = join(&mut world).received.len();
    // A birth of ConfigDB whose objects do not come.
    let birth = world.db.birth().remove(0);
    world.feed(vec![birth]);
    world.settle();
    assert_eq!((join(&mut world).received.len(), join(&mut world).node.policy_state), (received, PolicyState::InForce));
    let births = world.db.birth();
    world.feed(births);
    world.settle();
    assert_eq!(join(&mut world).received.len(), received);
    world.edges.get_mut("Paint_Shop").unwrap().deaf = true;
    world.delete(CLUSTER, "EdgeCluster");
    world.settle();
    assert_eq!(join(&mut world).node.policy_state, PolicyState::None);
}
