//! Accounts that a Keys node of this file wants, with the manager killed wherever it can be.

use configdb_schema::document::EdgeAccount;
use krb_keys_contract::names::{account_device, keys_node, resource_of};
use krb_keys_contract::{AccountDecision, AccountDevice, AccountRequest, KeysNode, NodeAddress};
use sparkplug::GroupId;

use super::*;

const GROUP: Uuid = Uuid::from_u128(0x61);
const AGENT: Uuid = known::class::EDGE_AGENT;

/// A Keys node that takes answers over at once, as krb-keys does.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Keys {
    node: KeysNode,
    name: String,
    accounts: BTreeMap<String, AccountDevice>,
    deaf: bool,
    commands: usize,
}

impl Keys {
    fn new(cluster: Uuid, name: &str) -> Self {
        let node = KeysNode { cluster, accounts: Some(0), ..KeysNode::default() };
        Self { node, name: name.to_owned(), accounts: BTreeMap::new(), deaf: false, commands: 0 }
    }

    pub(super) fn address(&self) -> EdgeNodeDescriptor {
        keys_node(GroupId::new(format!("ACME-{}", self.name)).unwrap())
    }

    fn total(&self) -> Option<u32> {
        Some(self.accounts.len() as u32)
    }

    pub(super) fn birth(&self) -> Vec<HostEvent> {
        let metrics = KeysNode { accounts: self.total(), ..self.node.clone() }.to_metrics().into();
        let mut events =
            vec![HostEvent::NodeBirth { node: self.address(), bd_seq: BdSeq::ZERO, timestamp: 0, uuid: None, metrics }];
        events.extend(self.accounts.keys().map(|resource| self.device_birth(resource)));
        events
    }

    fn device_birth(&self, resource: &str) -> HostEvent {
        let device = account_device(resource).unwrap();
        let metrics = self.accounts[resource].to_metrics().into();
        HostEvent::DeviceBirth { node: self.address(), device, timestamp: 0, metrics }
    }

    fn counted(&self) -> HostEvent {
        let metrics = KeysNode { accounts: self.total(), ..self.node.clone() }.to_metrics();
        HostEvent::NodeData { node: self.address(), timestamp: 0, metrics }
    }

    fn want(&mut self, resource: &str, request: AccountRequest) -> Vec<HostEvent> {
        self.accounts.insert(resource.to_owned(), AccountDevice { request, ..AccountDevice::default() });
        vec![self.device_birth(resource), self.counted()]
    }

    fn drop(&mut self, resource: &str) -> Vec<HostEvent> {
        self.accounts.remove(resource).unwrap();
        let device = account_device(resource).unwrap();
        vec![HostEvent::DeviceDeath { node: self.address(), device, timestamp: 0 }, self.counted()]
    }

    pub(super) fn command(&mut self, device: &DeviceId, metrics: &[Metric]) -> Vec<HostEvent> {
        self.commands += 1;
        let answer = AccountDecision::from_metrics(metrics).unwrap().unwrap();
        let account = self.accounts.get_mut(&*resource_of(device).unwrap());
        let Some(account) = account.filter(|account| !self.deaf && account.request.digest() == answer.request) else {
            return Vec::new();
        };
        (account.uuid, account.refused) = (answer.uuid, answer.refused);
        let metrics = account.to_metrics();
        vec![HostEvent::DeviceData { node: self.address(), device: device.clone(), timestamp: 0, metrics }]
    }
}

fn request(name: &str) -> AccountRequest {
    AccountRequest {
        principal: format!("nd1/Paint_Shop/{name}@ACME.EXAMPLE"),
        class: Some(AGENT),
        name: Some(name.to_owned()),
        groups: vec![GROUP],
        sparkplug: Some(NodeAddress { node: name.to_owned(), group: None }),
        ..AccountRequest::default()
    }
}

fn object(name: &str) -> Uuid {
    crate::accounts::object_of(CLUSTER, &request(name))
}

impl World {
    fn keys(&mut self) -> &mut Keys {
        self.keys.get_mut("Paint_Shop").unwrap()
    }

    fn want(&mut self, resource: &str, request: AccountRequest) {
        let events = self.keys().want(resource, request);
        self.feed(events);
        self.settle();
    }

    fn unwant(&mut self, resource: &str) {
        let events = self.keys().drop(resource);
        self.feed(events);
        self.settle();
    }

    fn shown(&mut self, resource: &str) -> AccountDevice {
        self.keys().accounts[resource].clone()
    }

    fn keys_are_born(&mut self) {
        let births = self.keys().birth();
        self.feed(births);
        self.settle();
    }

    fn accounts(&self) -> Vec<EdgeAccount> {
        let entries = self.db.objects.keys().filter_map(|uuid| self.db.json(*uuid, "EdgeAccount"));
        entries.map(|entry| serde_json::from_value(entry).unwrap()).collect()
    }
}

/// A cluster with a Keys node that was just born, and a group for edges.
fn keeping(kill: Kill) -> World {
    let mut world = running();
    world.kill = kill;
    let group = WriteRequest::put("", GROUP).create_object(known::class::EDGE_GROUP, None);
    let events = world.db.write(&group);
    world.feed(events);
    world.keys.insert("Paint_Shop".to_owned(), Keys::new(CLUSTER, "Paint_Shop"));
    world.keys_are_born();
    world
}

#[test]
fn an_account_is_made_answered_once_and_goes_with_its_resource() {
    let mut world = keeping(Kill::Never);
    assert!(!world.expected.contains("ACME-Paint_Shop/Keys"), "no rebirth of a Keys node is requested without need");
    world.want("robot", request("Robot"));
    assert_eq!((world.shown("robot").uuid, world.keys().commands), (Some(object("Robot")), 1));
    let made = &world.db.objects[&object("Robot")];
    assert_eq!((made.class, &made.member_of), (AGENT, &[AGENT, GROUP].into()));
    let json = |slug| world.db.json(object("Robot"), slug).unwrap();
    assert_eq!(json("SparkplugAddress"), json!({"group_id": "ACME-Paint_Shop", "node_id": "Robot"}));
    assert_eq!(json("Info"), json!({"name": "Robot"}));
    assert!(world.expected.contains("ACME-Paint_Shop/Keys"));
    world.unwant("robot");
    assert!(!world.db.objects.contains_key(&object("Robot")));
}

#[test]
fn killed_anywhere_it_comes_to_the_same_end_and_leaves_no_object_behind() {
    let ends = |kill| {
        let mut world = keeping(kill);
        world.want("a", request("A"));
        world.want("b", request("B"));
        world.unwant("a");
        world.run(Duration::from_secs(120));
        world.kill = Kill::Never;
        world.settle();
        assert_eq!(world.shown("b").uuid, Some(object("B")));
        world.db.objects
    };
    let undisturbed = ends(Kill::Never);
    assert_eq!(ends(Kill::AfterEach), undisturbed);
    let effects = running().effects;
    for kill in 1..30 {
        assert_eq!(ends(Kill::After(effects + kill)), undisturbed, "killed after {kill} more effects");
    }
}

#[test]
fn nothing_is_removed_because_keys_is_dead_or_not_known_completely() {
    let mut world = keeping(Kill::Never);
    world.want("robot", request("Robot"));
    let node = world.keys().address();
    world.feed(vec![HostEvent::NodeDeath { node, timestamp: 0 }]);
    world.run(Duration::from_secs(3600));
    assert_eq!(world.accounts().len(), 1);
    // A birth whose Devices do not come.
    let birth = world.keys().birth().remove(0);
    world.feed(vec![birth]);
    world.run(Duration::from_secs(3600));
    assert_eq!(world.accounts().len(), 1);
    // One that does not know its resources yet.
    let mut unlisted = world.keys().birth();
    let metrics = KeysNode { accounts: None, ..world.keys().node.clone() }.to_metrics();
    let HostEvent::NodeBirth { metrics: of_birth, .. } = &mut unlisted[0] else { panic!("{unlisted:?}") };
    *of_birth = metrics.into();
    world.feed(unlisted.drain(..1).collect());
    world.run(Duration::from_secs(3600));
    assert_eq!(world.accounts().len(), 1);
    // Another cluster's Keys in this group wants nothing.
    let mut other = Keys::new(OTHER, "Paint_Shop");
    other.node.cluster = OTHER;
    world.feed(other.birth());
    world.run(Duration::from_secs(3600));
    assert_eq!(world.accounts().len(), 1);
    // What was dropped while no manager ran is removed.
    world.keys().accounts.clear();
    world.keys_are_born();
    assert_eq!(world.accounts().len(), 0);
}

#[test]
fn a_refusal_is_reported_and_ends_when_its_reason_does() {
    let mut world = keeping(Kill::Never);
    let group = Uuid::from_u128(0x62);
    world.want("robot", AccountRequest { groups: vec![group], ..request("Robot") });
    let refused = world.shown("robot").refused.unwrap();
    assert!(refused.contains("is not an Edge group"), "{refused}");
    assert_eq!((world.accounts().len(), world.keys().commands), (0, 1));
    let write = WriteRequest::put("", group).create_object(known::class::EDGE_GROUP, None);
    let events = world.db.write(&write);
    world.feed(events);
    world.settle();
    assert_eq!((world.shown("robot").uuid, world.shown("robot").refused), (Some(object("Robot")), None));
}

#[test]
fn what_configdb_refuses_is_reported_with_its_reason_and_tried_again() {
    let mut world = keeping(Kill::Never);
    world.db.refuse = Some("too many objects");
    world.want("robot", request("Robot"));
    let refused = world.shown("robot").refused.unwrap();
    assert!(refused.contains("too many objects"), "{refused}");
    assert_eq!(world.state(), SetupState::Ready, "the cluster itself is not held up");
    world.db.refuse = None;
    world.run(Duration::from_secs(120));
    assert_eq!(world.shown("robot").uuid, Some(object("Robot")));
}

#[test]
fn an_answer_that_is_not_shown_is_repeated_with_growing_pauses() {
    let mut world = keeping(Kill::Never);
    world.keys().deaf = true;
    world.want("robot", request("Robot"));
    world.run(Duration::from_secs(60));
    let commands = world.keys().commands;
    assert!((5..=12).contains(&commands), "{commands}");
    world.keys().deaf = false;
    world.run(Duration::from_secs(120));
    assert_eq!(world.shown("robot").uuid, Some(object("Robot")));
    let commands = world.keys().commands;
    world.run(Duration::from_secs(600));
    assert_eq!(world.keys().commands, commands);
}

#[test]
fn what_another_writer_changes_about_an_account_is_set_right() {
    let mut world = keeping(Kill::Never);
    world.want("robot", request("Robot"));
    world.delete(object("Robot"), "SparkplugAddress");
    world.settle();
    assert!(world.db.json(object("Robot"), "SparkplugAddress").is_some());
}

#[test]
fn the_accounts_of_a_cluster_go_with_it_also_when_its_keys_are_silent() {
    let mut world = keeping(Kill::Never);
    // More than one step of the tear-down takes.
    for number in 0..20 {
        world.want(&format!("robot-{number}"), request(&format!("Robot{number}")));
    }
    let given = Uuid::from_u128(0x64);
    let write = WriteRequest::put("", given).create_object(AGENT, None);
    let events = world.db.write(&write);
    world.feed(events);
    world.want("given", AccountRequest { uuid: Some(given), ..request("Given") });
    assert_eq!(world.accounts().len(), 21);
    let node = world.keys().address();
    world.feed(vec![HostEvent::NodeDeath { node, timestamp: 0 }]);
    world.delete(CLUSTER, "EdgeCluster");
    world.run(Duration::from_secs(600));
    assert_eq!((world.accounts().len(), world.devices.get(&CLUSTER)), (0, None));
    assert_eq!(world.db.objects[&given].member_of, [AGENT].into(), "what was given stays");
    assert!(!world.expected.contains("ACME-Paint_Shop/Keys"));
}
