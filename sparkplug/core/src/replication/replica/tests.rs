//! A source that is born, changes, restarts and dies, and copies of it that miss some of that.

use proptest::prelude::*;

use super::*;
use crate::GroupId;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Default)]
struct Node {
    total: u32,
    word: String,
}

crate::typed_metrics! {
    Node {
        total => "Total",
        word => "Word",
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Part {
    value: u32,
}

crate::typed_metrics! {
    Part {
        value => "Value",
    }
}

/// Devices are called by numbers.
struct Dropping;
/// The same, for readers that show the last known values.
struct Keeping;

impl Contract for Dropping {
    type Node = Node;
    type Key = u8;
    type Devices = BTreeMap<u8, Part>;
    const DEVICES_MAX: usize = 6;

    fn key(device: &DeviceId) -> Option<u8> {
        device.as_str().parse().ok()
    }

    fn devices_total(node: &Node) -> Option<u64> {
        Some(node.total.into())
    }
}

impl Contract for Keeping {
    type Node = Node;
    type Key = u8;
    type Devices = BTreeMap<u8, Part>;
    const KEEPS_DEVICES: bool = true;

    fn key(device: &DeviceId) -> Option<u8> {
        Dropping::key(device)
    }

    fn devices_total(node: &Node) -> Option<u64> {
        Dropping::devices_total(node)
    }
}

fn address() -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse("ACME-Cell", "Press").unwrap()
}

fn id(device: u8) -> DeviceId {
    DeviceId::new(device.to_string()).unwrap()
}

/// The source, and the events by which a host reports it.
#[derive(Debug, Clone, Default)]
struct Source {
    bd_seq: Option<BdSeq>,
    word: u32,
    parts: BTreeMap<u8, Part>,
    clock: u64,
}

impl Source {
    fn node(&self) -> Node {
        Node { total: u32::try_from(self.parts.len()).unwrap(), word: self.word.to_string() }
    }

    fn birth(&mut self) -> HostEvent {
        self.clock += 1;
        let bd_seq = *self.bd_seq.get_or_insert(BdSeq::ZERO);
        let metrics = self.node().to_metrics().into();
        HostEvent::NodeBirth { node: address(), bd_seq, timestamp: self.clock, uuid: None, metrics }
    }

    fn data(&self) -> HostEvent {
        HostEvent::NodeData { node: address(), timestamp: self.clock, metrics: self.node().to_metrics() }
    }

    fn part_birth(&self, part: u8) -> HostEvent {
        let metrics = self.parts[&part].to_metrics().into();
        HostEvent::DeviceBirth { node: address(), device: id(part), timestamp: self.clock, metrics }
    }

    fn births(&mut self) -> Vec<HostEvent> {
        let birth = self.birth();
        [birth].into_iter().chain(self.parts.keys().map(|part| self.part_birth(*part))).collect()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Word,
    Add(u8, u32),
    Change(u8, u32),
    Remove(u8),
    Rebirth,
    Restart,
    Death,
    Gap,
    Offline,
    /// The births that follow the next NBIRTH come one by one, so that something may happen between them.
    Interrupted(u8),
    Unreadable(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let part = || 0_u8..5;
    let step = prop_oneof![
        2 => Just(Step::Word),
        4 => (part(), any::<u32>()).prop_map(|(part, value)| Step::Add(part, value)),
        4 => (part(), any::<u32>()).prop_map(|(part, value)| Step::Change(part, value)),
        2 => part().prop_map(Step::Remove),
        2 => Just(Step::Rebirth),
        1 => Just(Step::Restart),
        1 => Just(Step::Death),
        1 => Just(Step::Gap),
        1 => Just(Step::Offline),
        1 => part().prop_map(Step::Interrupted),
        1 => part().prop_map(Step::Unreadable),
    ];
    prop::collection::vec(step, 1..60)
}

/// The events that a host is given when that happens.
fn happens(source: &mut Source, step: Step) -> Vec<HostEvent> {
    let is_dead = source.bd_seq.is_none();
    match step {
        Step::Gap => return vec![HostEvent::NodeStale { node: address(), reason: "gap".into() }],
        Step::Offline => return vec![HostEvent::Offline { reason: "x".to_owned() }],
        Step::Restart => source.bd_seq = Some(source.bd_seq.unwrap_or(BdSeq::ZERO).next()),
        Step::Rebirth | Step::Interrupted(_) => {}
        Step::Death => {
            source.bd_seq = None;
            return vec![HostEvent::NodeDeath { node: address(), timestamp: source.clock }];
        }
        _ if is_dead => return Vec::new(),
        Step::Word => {
            source.word += 1;
            return vec![source.data()];
        }
        Step::Add(part, value) => {
            source.parts.insert(part, Part { value });
            return vec![source.part_birth(part), source.data()];
        }
        Step::Change(part, value) => {
            let Some(known) = source.parts.get_mut(&part) else { return Vec::new() };
            known.value = value;
            let metrics = known.to_metrics();
            return vec![HostEvent::DeviceData { node: address(), device: id(part), timestamp: source.clock, metrics }];
        }
        Step::Remove(part) => {
            if source.parts.remove(&part).is_none() {
                return Vec::new();
            }
            let death = HostEvent::DeviceDeath { node: address(), device: id(part), timestamp: source.clock };
            return vec![death, source.data()];
        }
        Step::Unreadable(part) => {
            let metrics = vec![Metric::new("Value", "text")];
            return vec![HostEvent::DeviceData { node: address(), device: id(part), timestamp: 0, metrics }];
        }
    }
    let mut births = source.births();
    if let Step::Interrupted(after) = step {
        births.truncate(1 + usize::from(after));
        births.push(HostEvent::NodeStale { node: address(), reason: "gap".into() });
    }
    births
}

/// Follows a source by its events, and compares after each.
fn follow<C>(steps: Vec<Step>)
where
    C: Contract<Node = Node, Key = u8, Devices = BTreeMap<u8, Part>>,
{
    let mut source = Source::default();
    let mut replica = Replica::<C>::new(address());
    for step in steps {
        let is_missed = matches!(step, Step::Gap | Step::Offline | Step::Interrupted(_));
        let was_current = replica.is_current();
        for event in happens(&mut source, step) {
            replica.on_event(&event);
            assert!(!replica.is_complete() || replica.is_current());
        }
        assert_eq!(replica.is_alive(), replica.alive_since().is_some());
        if is_missed {
            assert!(!replica.is_current(), "what was missed is not known");
        } else if was_current && source.bd_seq.is_some() {
            assert!(replica.is_current());
        }
        if source.bd_seq.is_none() {
            assert!(!replica.is_alive(), "only a birth makes it alive");
        }
        if replica.is_complete() {
            assert_eq!((replica.node(), replica.devices()), (Some(&source.node()), &source.parts));
        }
    }
    source.births().iter().for_each(|event| drop(replica.on_event(event)));
    assert!(replica.is_complete() && replica.problems().is_empty() && replica.missing_births().is_none());
    assert_eq!((replica.node(), replica.devices()), (Some(&source.node()), &source.parts));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A copy that says that it is complete equals its source; births after any faults make it complete.
    #[test]
    fn a_complete_copy_equals_its_source(steps in steps()) {
        follow::<Dropping>(steps.clone());
        follow::<Keeping>(steps);
    }
}

fn born<C>(source: &mut Source) -> Replica<C>
where
    C: Contract<Node = Node, Key = u8, Devices = BTreeMap<u8, Part>>,
{
    let mut replica = Replica::new(address());
    source.births().iter().for_each(|event| drop(replica.on_event(event)));
    replica
}

fn two_parts() -> Source {
    Source { parts: [(1, Part { value: 1 }), (2, Part { value: 2 })].into(), ..Source::default() }
}

#[test]
fn after_a_birth_old_devices_are_dropped_at_once_or_when_those_that_are_left_are_born() {
    let mut source = two_parts();
    let (mut dropping, mut keeping) = (born::<Dropping>(&mut source), born::<Keeping>(&mut source));
    source.parts.remove(&2);
    let birth = source.birth();
    assert_eq!(dropping.on_event(&birth), Some(ReplicaChange::Born));
    assert_eq!(keeping.on_event(&birth), Some(ReplicaChange::Born));
    let missing = Some("of ACME-Cell/Press the births of 0 of its 1 devices have arrived".to_owned());
    assert_eq!((dropping.missing_births(), keeping.missing_births()), (missing.clone(), missing));
    assert_eq!((dropping.devices().len(), keeping.devices().len()), (0, 2));
    assert!(!dropping.is_complete() && !keeping.is_complete());
    let part = source.part_birth(1);
    assert_eq!(dropping.on_event(&part), Some(ReplicaChange::Device(1)));
    assert_eq!(keeping.on_event(&part), Some(ReplicaChange::Device(1)));
    assert!(dropping.is_complete() && keeping.is_complete());
    assert_eq!((dropping.devices(), keeping.devices()), (&source.parts, &source.parts));
}

#[test]
fn a_rebirth_continues_the_session_and_a_birth_of_another_begins_one() {
    let mut source = Source::default();
    let mut replica = born::<Dropping>(&mut source);
    replica.on_event(&source.birth());
    assert_eq!(replica.alive_since(), Some(1));
    source.bd_seq = source.bd_seq.map(BdSeq::next);
    replica.on_event(&source.birth());
    assert_eq!(replica.alive_since(), Some(3));
    let death = HostEvent::NodeDeath { node: address(), timestamp: 9 };
    assert_eq!(replica.on_event(&death), Some(ReplicaChange::Dead));
    assert_eq!(replica.on_event(&death), None);
    assert!(replica.node().is_some(), "what it said last is kept");
}

#[test]
fn what_cannot_be_read_or_is_too_much_is_a_problem_and_other_nodes_are_not_looked_at() {
    let mut source = two_parts();
    let mut replica = born::<Dropping>(&mut source);
    let metrics = vec![Metric::new("Value", "text")];
    let data = HostEvent::DeviceData { node: address(), device: id(1), timestamp: 0, metrics };
    assert_eq!(replica.on_event(&data), Some(ReplicaChange::Device(1)));
    assert_eq!(replica.problems()["1"].to_string(), "metric \"Value\" must be a UInt32, but is String");
    assert!(!replica.is_complete() && replica.devices()[&1] == Part { value: 1 });
    replica.on_event(&source.part_birth(1));
    assert!(replica.is_complete());
    let odd = DeviceId::new("odd").unwrap();
    let birth = HostEvent::DeviceBirth { node: address(), device: odd.clone(), timestamp: 0, metrics: [].into() };
    assert_eq!(replica.on_event(&birth), Some(ReplicaChange::Other(odd)));
    assert!(replica.is_complete(), "another kind of device says nothing");
    let before = replica.clone();
    let other = EdgeNodeDescriptor { group: GroupId::new("ACME-Other").unwrap(), ..address() };
    assert_eq!(replica.on_event(&HostEvent::NodeDeath { node: other, timestamp: 0 }), None);
    assert_eq!(replica.on_event(&HostEvent::Online), None);
    assert!(replica == before);
    source.parts = (0..7).map(|part| (part, Part::default())).collect();
    let replica = born::<Dropping>(&mut source);
    assert_eq!((replica.devices().len(), replica.is_complete()), (Dropping::DEVICES_MAX, false));
    assert!(replica.problems().contains_key(""), "one is not kept");
}

#[test]
fn an_edge_node_without_devices_is_complete_with_its_birth_and_no_device_is_kept() {
    let mut source = Source { parts: [(1, Part::default())].into(), ..Source::default() };
    let mut replica: Replica<NodeOnly<Node>> = Replica::new(address());
    assert_eq!(replica.on_event(&source.birth()), Some(ReplicaChange::Born));
    assert_eq!((replica.node(), replica.is_complete()), (Some(&source.node()), true));
    assert_eq!(replica.on_event(&source.part_birth(1)), Some(ReplicaChange::Other(id(1))));
    assert!(replica.devices().is_empty() && replica.is_complete());
}
