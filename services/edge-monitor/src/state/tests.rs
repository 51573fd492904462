//! The whole state at the edge, fed with resources and Host Application events in virtual time; each test also asserts that nothing else came out.

use super::*;
use std::sync::Arc;

use edge_monitor_contract::{MonitoredNodeDevice, NodeState, identity, names};
use sparkplug::host::{HostEvent, HostRequest};
use sparkplug::{BdSeq, DeviceId, EdgeNodeDescriptor, TypedMetrics, Value};

use crate::config_freshness::SealedSecret;
use crate::event::{AgentConfig, Watch};
use crate::spec::NodeResource;

const GROUP: &str = "ACME-Paint";
const AGENT: Uuid = Uuid::from_u128(0xa);
const OTHER: Uuid = Uuid::from_u128(0xb);

/// A monitor in virtual time, with the devices that its Edge Node would have.
struct Monitor {
    state: State,
    second: u64,
    devices: BTreeMap<String, BTreeMap<Arc<str>, Metric>>,
    deaths: Vec<String>,
    /// Requests since they were last taken.
    requests: Vec<HostRequest>,
}

impl Monitor {
    fn new(scope: Scope) -> Self {
        let settings = Settings {
            scope,
            instance: Uuid::from_u128(1),
            version: "0.1.0".into(),
            is_simulated: false,
            interval_default: Duration::from_secs(100),
            reload: ReloadPolicy {
                jitter: Duration::from_secs(2),
                pause: (Duration::from_secs(30), Duration::from_secs(600)),
                rest: Duration::from_secs(5),
                attempts_max: 3,
                deadline: Duration::from_secs(300),
            },
            seed: 1,
        };
        let state = State::new(settings);
        let mut monitor = Self { state, second: 0, devices: BTreeMap::new(), deaths: vec![], requests: vec![] };
        monitor.host(HostEvent::Online);
        monitor
    }

    fn edge() -> Self {
        Self::new(Scope::Edge { group: GroupId::new(GROUP).unwrap(), cluster: Uuid::from_u128(2) })
    }

    /// An edge monitor with these resources and nothing else in its namespace.
    fn watching(resources: &[(&str, NodeResource)]) -> Self {
        let mut monitor = Self::edge();
        monitor.resources(resources);
        monitor.on(Event::Secrets(Watch::Listed(BTreeMap::new())));
        monitor.on(Event::AgentConfigs(Watch::Listed(BTreeMap::new())));
        monitor
    }

    fn resources(&mut self, resources: &[(&str, NodeResource)]) {
        let all = resources.iter().map(|(name, resource)| ((*name).to_owned(), resource.clone())).collect();
        self.on(Event::Nodes(Watch::Listed(all)));
    }

    fn on(&mut self, event: Event) {
        let now = Now::new(Duration::from_secs(self.second), 1_000 * self.second);
        self.state.on_event(event, now);
        for effect in self.state.poll_effects() {
            match effect {
                Effect::Host(request) => self.requests.push(request),
                Effect::Node(NodeUpdate::DeviceBirth { device, metrics }) => {
                    let by_name = metrics.into_iter().map(|metric| (metric.name.clone(), metric)).collect();
                    let before = self.devices.insert(device.to_string(), by_name);
                    assert_eq!(before, None, "device {device} was born twice");
                }
                Effect::Node(NodeUpdate::DeviceDeath { device }) => {
                    assert!(self.devices.remove(device.as_str()).is_some(), "device {device} died unborn");
                    self.deaths.push(device.to_string());
                }
                Effect::Node(NodeUpdate::Set { device: Some(device), metrics }) => {
                    let born = self.devices.get_mut(device.as_str()).expect("data after birth");
                    born.extend(metrics.into_iter().map(|metric| (metric.name.clone(), metric)));
                }
                Effect::Node(NodeUpdate::Set { device: None, .. }) => {}
                Effect::Node(other) => panic!("unexpected {other:?}"),
            }
        }
        let counts = self.state.node();
        assert_eq!(
            counts.nodes_online as usize,
            self.devices().filter(|device| device.state == NodeState::Online).count()
        );
    }

    fn host(&mut self, event: HostEvent) {
        self.on(Event::Host(event));
    }

    fn until(&mut self, second: u64) {
        while self.second < second {
            self.second += 1;
            let mono = Duration::from_secs(self.second);
            while self.state.next_deadline().is_some_and(|deadline| deadline <= mono) {
                self.on(Event::DeadlineReached);
            }
        }
    }

    fn born(&mut self, node: &EdgeNodeDescriptor, uuid: Uuid, revision: Option<&str>) {
        let uuid_metric = |name: &str, text: &str| Metric {
            value: Some(Value::Uuid(text.into())),
            ..Metric::null(name, sparkplug::DataType::Uuid)
        };
        let mut metrics = vec![uuid_metric(names::INSTANCE_UUID, &uuid.to_string())];
        metrics.extend(revision.map(|revision| uuid_metric(names::AGENT_CONFIG_REVISION, revision)));
        let node = node.clone();
        self.host(HostEvent::NodeBirth {
            node,
            bd_seq: BdSeq::ZERO,
            timestamp: 0,
            uuid: None,
            metrics: metrics.into(),
        });
    }

    fn died(&mut self, node: &EdgeNodeDescriptor) {
        self.host(HostEvent::NodeDeath { node: node.clone(), timestamp: 0 });
    }

    fn data(&mut self, node: &EdgeNodeDescriptor) {
        self.host(HostEvent::NodeData { node: node.clone(), timestamp: 0, metrics: vec![] });
    }

    fn configs(&mut self, agent: Uuid, revision: &str) {
        let config = AgentConfig { revision: Some(revision.to_owned()) };
        self.on(Event::AgentConfigs(Watch::Applied(format!("edge-agent-config-{agent}"), config)));
    }

    fn devices(&self) -> impl Iterator<Item = MonitoredNodeDevice> {
        self.devices
            .values()
            .map(|metrics| MonitoredNodeDevice::from_metrics(metrics.values()).expect("a complete device"))
    }

    fn device(&self, id: &str) -> MonitoredNodeDevice {
        let metrics = self.devices.get(id).unwrap_or_else(|| panic!("no device {id} in {:?}", self.devices.keys()));
        MonitoredNodeDevice::from_metrics(metrics.values()).unwrap()
    }

    /// State, and whether the offline alert is active.
    fn condition(&self, id: &str) -> (NodeState, bool) {
        let device = self.device(id);
        (device.state, device.offline.active)
    }

    fn problem(&self, key: &str) -> Option<&str> {
        self.state.node().problems.get(key).map(String::as_str)
    }

    fn take_requests(&mut self) -> Vec<HostRequest> {
        std::mem::take(&mut self.requests)
    }

    fn reloads(&mut self) -> usize {
        self.take_requests().iter().filter(|request| matches!(request, HostRequest::Command { .. })).count()
    }
}

fn node(id: &str) -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse(GROUP, id).unwrap()
}

fn by_uuid(uuid: Uuid) -> NodeResource {
    NodeResource { uuid: Some(uuid.to_string()), ..NodeResource::default() }
}

fn by_address(id: &str) -> NodeResource {
    NodeResource { address: Some(format!("{GROUP}/{id}")), ..NodeResource::default() }
}

fn agent(uuid: Uuid) -> NodeResource {
    NodeResource { edge_agent: true, secrets: vec!["s".into()], ..by_uuid(uuid) }
}

#[test]
fn a_node_named_by_address_is_expected_and_shown_at_once() {
    let mut monitor = Monitor::watching(&[("r", by_address("Robot"))]);
    let expected = ["Sync", "Robot"].map(|id| HostRequest::Expect { node: node(id) });
    assert_eq!(monitor.take_requests(), expected);
    assert_eq!(monitor.condition("Robot"), (NodeState::Unknown, false));
    assert_eq!(monitor.device("Robot").node, None);
    monitor.born(&node("Robot"), AGENT, None);
    assert_eq!(monitor.condition("Robot"), (NodeState::Online, false));
    let device = monitor.device("Robot");
    assert_eq!((device.node, device.identity), (Some(AGENT), identity::device_of_address(&node("Robot"))));
    assert_eq!(monitor.take_requests(), []);
}

#[test]
fn a_node_named_by_uuid_stands_under_its_uuid_until_it_is_born_and_then_under_its_node_id() {
    let mut monitor = Monitor::watching(&[("r", by_uuid(AGENT))]);
    assert_eq!(monitor.condition(&AGENT.to_string()), (NodeState::Unknown, false));
    assert!(monitor.problem("r").unwrap().contains("no edge node of group ACME-Paint was born with Instance_UUID"));
    monitor.until(100);
    assert_eq!(monitor.condition(&AGENT.to_string()), (NodeState::Unknown, true));
    monitor.born(&node("Robot"), AGENT, None);
    assert_eq!(monitor.deaths, [AGENT.to_string()]);
    assert_eq!(monitor.condition("Robot"), (NodeState::Online, false));
    assert_eq!(monitor.device("Robot").identity, identity::device(AGENT));
    assert_eq!(monitor.problem("r"), None);
}

#[test]
fn a_resource_made_after_the_birth_finds_the_node_alive() {
    let mut monitor = Monitor::watching(&[]);
    monitor.born(&node("Robot"), AGENT, None);
    monitor.born(&node("Robot_2"), OTHER, None);
    monitor.died(&node("Robot_2"));
    monitor.resources(&[("r", by_uuid(AGENT)), ("s", by_address("Robot_2"))]);
    assert_eq!(monitor.condition("Robot"), (NodeState::Online, false));
    assert_eq!(monitor.condition("Robot_2"), (NodeState::Unknown, false));
}

#[test]
fn edge_sync_publishes_where_a_node_that_was_not_received_may_be() {
    let mut monitor = Monitor::watching(&[("r", by_uuid(AGENT))]);
    assert_eq!(monitor.take_requests(), [HostRequest::Expect { node: node("Sync") }]);
    monitor.host(HostEvent::DeviceBirth {
        node: node("Sync"),
        device: DeviceId::new("deployment-Robot").unwrap(),
        timestamp: 0,
        metrics: Arc::from([
            Metric::new("Deployment/UUID", sparkplug::Value::Uuid(AGENT.to_string().into())),
            Metric::new("Deployment/Name", "Robot"),
        ]),
    });
    assert_eq!(monitor.take_requests(), [HostRequest::Expect { node: node("Robot") }]);
    monitor.born(&node("Robot"), OTHER, None);
    assert_eq!(monitor.condition(&AGENT.to_string()), (NodeState::Unknown, false), "a hint is not a proof");
    monitor.born(&node("Robot"), AGENT, None);
    assert_eq!(monitor.condition("Robot"), (NodeState::Online, false));
    assert_eq!(monitor.take_requests(), []);
}

#[test]
fn the_alert_of_a_node_that_is_not_born_says_why_its_birth_was_refused() {
    let mut monitor = Monitor::watching(&[("r", by_address("Robot"))]);
    let refused = |topic: String| HostEvent::Rejected { topic, reason: "bdSeq is missing".to_owned() };
    monitor.host(refused(format!("spBv1.0/{}/NDATA/Robot", node("Robot").group)));
    assert_eq!(monitor.device("Robot").reason.as_deref(), Some("no birth was received yet"));
    monitor.host(refused(format!("spBv1.0/{}/NBIRTH/Robot", node("Robot").group)));
    monitor.until(5_000);
    assert_eq!(monitor.condition("Robot"), (NodeState::Unknown, true));
    let refusal = "no birth was received yet; a birth was refused: NBIRTH: bdSeq is missing";
    assert_eq!(monitor.device("Robot").reason.as_deref(), Some(refusal));
    monitor.born(&node("Robot"), AGENT, None);
    assert_eq!(monitor.device("Robot").reason, None);
    monitor.died(&node("Robot"));
    assert_eq!(monitor.device("Robot").reason.as_deref(), Some("its death was published"));
}

#[test]
fn a_device_whose_birth_is_too_large_is_named_with_its_size_and_the_limit_until_it_is_born() {
    let mut monitor = Monitor::watching(&[("r", by_address("Robot"))]);
    let group = node("Robot").group;
    let reason = "its payload of 300000 bytes is too large: packets of at most 65536 bytes are taken";
    let refused =
        || HostEvent::Rejected { topic: format!("spBv1.0/{group}/DBIRTH/Robot/Arm"), reason: reason.to_owned() };
    let shown = |monitor: &Monitor| monitor.device("Robot").reason.clone();
    let arm = |monitor: &mut Monitor, device: &str| {
        let (node, device) = (node("Robot"), sparkplug::DeviceId::new(device).unwrap());
        monitor.host(HostEvent::DeviceDeath { node, device, timestamp: 0 });
    };
    let expected = format!("a birth was refused: DBIRTH of device Arm: {reason}");
    monitor.born(&node("Robot"), AGENT, None);
    monitor.host(refused());
    assert_eq!(shown(&monitor).as_deref(), Some(&*expected));
    assert_eq!(monitor.condition("Robot").0, NodeState::Online);
    // Neither the next birth of the node nor one of another device ends it: the host does not say every time that it is too large.
    monitor.born(&node("Robot"), AGENT, None);
    arm(&mut monitor, "Gripper");
    assert_eq!(shown(&monitor).as_deref(), Some(&*expected));
    arm(&mut monitor, "Arm");
    assert_eq!(shown(&monitor), None);
    monitor.host(refused());
    monitor.data(&node("Robot"));
    assert_eq!(shown(&monitor), None, "data come only from a node that is followed");
    monitor.host(refused());
    monitor.died(&node("Robot"));
    assert_eq!(shown(&monitor).as_deref(), Some("its death was published"));
}

#[test]
fn a_death_is_an_alert_at_once_and_only_a_birth_ends_it() {
    let mut monitor = Monitor::watching(&[("r", by_address("Robot"))]);
    monitor.born(&node("Robot"), AGENT, None);
    monitor.until(7);
    monitor.died(&node("Robot"));
    assert_eq!(monitor.condition("Robot"), (NodeState::Offline, true));
    assert_eq!((monitor.device("Robot").offline.since, monitor.device("Robot").since), (7_000, 7_000));
    assert_eq!(monitor.state.node().alerts_active, 1);
    monitor.data(&node("Robot"));
    monitor.died(&node("Robot"));
    monitor.host(HostEvent::NodeStale { node: node("Robot"), reason: "gap".into() });
    monitor.until(5_000);
    assert_eq!(monitor.condition("Robot"), (NodeState::Offline, true));
    monitor.born(&node("Robot"), AGENT, None);
    assert_eq!(monitor.condition("Robot"), (NodeState::Online, false));
    assert_eq!(monitor.state.node().alerts_active, 0);
}

#[test]
fn a_gap_is_not_a_death() {
    let mut monitor = Monitor::watching(&[("r", by_address("Robot"))]);
    monitor.born(&node("Robot"), AGENT, None);
    monitor.host(HostEvent::NodeStale { node: node("Robot"), reason: "gap".into() });
    assert_eq!(monitor.condition("Robot"), (NodeState::Online, false));
}

#[test]
fn a_silent_node_is_asked_for_rebirth_and_then_reported_silent() {
    let resource = NodeResource { interval: Some("10s".into()), ..by_address("Robot") };
    let mut monitor = Monitor::watching(&[("r", resource)]);
    monitor.born(&node("Robot"), AGENT, None);
    monitor.take_requests();
    monitor.until(13);
    assert_eq!(monitor.take_requests(), [HostRequest::Rebirth { node: node("Robot") }]);
    monitor.until(30);
    assert_eq!(monitor.condition("Robot"), (NodeState::Silent, true));
}

#[test]
fn of_two_nodes_that_claim_one_uuid_the_first_keeps_it_while_it_is_alive() {
    let mut monitor = Monitor::watching(&[("r", by_uuid(AGENT))]);
    monitor.born(&node("Robot"), AGENT, None);
    monitor.born(&node("Clone"), AGENT, None);
    assert_eq!(monitor.condition("Robot"), (NodeState::Online, false));
    assert!(
        monitor
            .problem("r")
            .unwrap()
            .contains("ACME-Paint/Clone was born with the same Instance_UUID as ACME-Paint/Robot")
    );
    assert_eq!(monitor.devices.len(), 1);
    monitor.deaths.clear();
    monitor.died(&node("Robot"));
    assert_eq!(monitor.condition("Clone"), (NodeState::Online, false));
    assert_eq!((monitor.problem("r"), monitor.deaths.as_slice()), (None, ["Robot".to_owned()].as_slice()));
}

#[test]
fn a_node_that_fell_silent_loses_its_uuid_to_another_claimant() {
    let mut monitor = Monitor::watching(&[("r", by_uuid(AGENT))]);
    monitor.born(&node("Robot"), AGENT, None);
    monitor.until(200);
    monitor.born(&node("Moved"), AGENT, None);
    monitor.until(310);
    assert_eq!(monitor.condition("Moved"), (NodeState::Online, false));
}

#[test]
fn another_node_born_at_the_place_of_a_watched_one_means_that_this_one_is_gone() {
    let mut monitor = Monitor::watching(&[("r", by_uuid(AGENT))]);
    monitor.born(&node("Robot"), AGENT, None);
    monitor.born(&node("Robot"), OTHER, None);
    assert_eq!(monitor.condition(&AGENT.to_string()), (NodeState::Offline, true));
}

#[test]
fn a_problem_names_the_resource_and_the_rule() {
    let both = NodeResource { address: Some("ACME-Paint/X".into()), ..by_uuid(OTHER) };
    let foreign = NodeResource { address: Some("ACME-Other/X".into()), ..NodeResource::default() };
    let monitor = Monitor::watching(&[("a", by_uuid(AGENT)), ("b", by_uuid(AGENT)), ("c", both), ("d", foreign)]);
    assert!(monitor.problem("b").unwrap().contains("same node as SparkplugNode a"));
    assert!(monitor.problem("c").unwrap().contains("exactly one of uuid and address"));
    assert!(monitor.problem("d").unwrap().contains("foreign group"));
    assert_eq!(monitor.devices.len(), 1);
}

#[test]
fn many_long_problems_stay_a_small_metric() {
    let resources: BTreeMap<String, NodeResource> = (0..2_000)
        .map(|n| (format!("r{n:04}"), NodeResource { uuid: Some("x".repeat(5_000)), ..NodeResource::default() }))
        .collect();
    let mut monitor = Monitor::edge();
    monitor.on(Event::Nodes(Watch::Listed(resources)));
    let problems = serde_json::to_string(&monitor.state.node().problems).unwrap();
    assert!(problems.len() < 64 * 1024, "{}", problems.len());
    assert_eq!(monitor.problem("..."), Some("and 1900 more"));
}

#[test]
fn a_removed_resource_ends_the_device_and_a_changed_one_keeps_its_state() {
    let mut monitor = Monitor::watching(&[("r", by_uuid(AGENT)), ("s", by_address("Press"))]);
    monitor.born(&node("Robot"), AGENT, None);
    monitor.died(&node("Robot"));
    let slower = NodeResource { interval: Some("1h".into()), ..by_uuid(AGENT) };
    monitor.on(Event::Nodes(Watch::Applied("r".into(), slower)));
    assert_eq!(monitor.condition("Robot"), (NodeState::Offline, true));
    assert_eq!(monitor.deaths, [AGENT.to_string()], "of the device that stood for it before its birth");
    monitor.deaths.clear();
    monitor.take_requests();
    monitor.on(Event::Nodes(Watch::Deleted("r".into())));
    assert_eq!(monitor.deaths, ["Robot"]);
    assert_eq!(monitor.take_requests(), [HostRequest::Forget { node: node("Robot") }]);
    assert_eq!(monitor.devices.keys().collect::<Vec<_>>(), ["Press"]);
}

#[test]
fn a_resource_that_changes_from_uuid_to_the_address_of_the_same_node_keeps_its_state() {
    let mut monitor = Monitor::watching(&[("r", by_uuid(AGENT))]);
    monitor.born(&node("Robot"), AGENT, None);
    monitor.until(10);
    monitor.on(Event::Nodes(Watch::Applied("r".into(), by_address("Robot"))));
    assert_eq!((monitor.device("Robot").state, monitor.device("Robot").since), (NodeState::Online, 0));
    monitor.on(Event::Nodes(Watch::Applied("r".into(), by_address("Press"))));
    assert_eq!(monitor.condition("Press"), (NodeState::Unknown, false));
}

#[test]
fn nothing_is_watched_or_dropped_before_the_first_complete_list() {
    let mut monitor = Monitor::edge();
    monitor.on(Event::Nodes(Watch::Applied("r".into(), by_address("Robot"))));
    monitor.on(Event::Nodes(Watch::Deleted("r".into())));
    assert!(monitor.devices.is_empty());
    assert_eq!(monitor.take_requests(), [HostRequest::Expect { node: node("Sync") }]);
}

#[test]
fn an_own_outage_raises_no_alert_and_revives_no_node() {
    let mut monitor = Monitor::watching(&[("r", by_address("Robot")), ("p", by_address("Press"))]);
    monitor.born(&node("Robot"), AGENT, None);
    monitor.born(&node("Press"), OTHER, None);
    monitor.died(&node("Press"));
    monitor.until(50);
    monitor.host(HostEvent::Offline { reason: "broker gone".into() });
    monitor.until(10_000);
    assert_eq!(monitor.condition("Robot"), (NodeState::Online, false));
    monitor.take_requests();
    monitor.host(HostEvent::Online);
    monitor.until(10_006);
    assert_eq!(monitor.take_requests(), []);
    assert_eq!(monitor.condition("Press"), (NodeState::Offline, true));
}

#[test]
fn an_agent_with_another_revision_than_wanted_is_asked_to_reload_until_it_reports_it() {
    let (first, second) = (Uuid::from_u128(100), Uuid::from_u128(101));
    let mut monitor = Monitor::watching(&[("r", agent(AGENT))]);
    monitor.configs(AGENT, &first.to_string());
    monitor.born(&node("Robot"), AGENT, Some(&first.to_string()));
    monitor.until(50);
    assert_eq!(monitor.reloads(), 0);
    monitor.configs(AGENT, &second.to_string().to_uppercase());
    monitor.until(53);
    let reload = HostRequest::Command {
        node: node("Robot"),
        device: None,
        metrics: vec![Metric::new(names::AGENT_RELOAD, true)],
    };
    assert_eq!(monitor.take_requests(), [reload]);
    let device = monitor.device("Robot");
    assert_eq!((device.config_wanted, device.config_reported), (Some(second.to_string()), Some(first.to_string())));
    monitor.until(95);
    assert!(monitor.reloads() > 0, "repeated");
    monitor.died(&node("Robot"));
    monitor.born(&node("Robot"), AGENT, Some(&second.to_string()));
    monitor.data(&node("Robot"));
    assert_eq!(monitor.device("Robot").config_reported, Some(second.to_string()));
    monitor.until(150);
    assert_eq!(monitor.reloads(), 0);
    assert!(!monitor.device("Robot").will_not_reload.active);
}

#[test]
fn a_null_revision_is_none_and_unheeded_requests_raise_will_not_reload() {
    let mut monitor = Monitor::watching(&[("r", agent(AGENT))]);
    monitor.born(&node("Robot"), AGENT, Some("00000000-0000-0000-0000-000000000000"));
    assert_eq!(monitor.device("Robot").config_reported, None);
    monitor.configs(AGENT, &Uuid::from_u128(100).to_string());
    for second in (10..400).step_by(50) {
        monitor.until(second);
        monitor.data(&node("Robot"));
    }
    let device = monitor.device("Robot");
    assert!(device.will_not_reload.active && !device.offline.active, "{device:?}");
    assert_eq!(monitor.state.node().alerts_active, 1);
}

#[test]
fn neither_a_dead_nor_a_silent_nor_an_unreachable_agent_is_asked_to_reload() {
    for cause in 0..3 {
        let mut monitor = Monitor::watching(&[("r", agent(AGENT))]);
        monitor.born(&node("Robot"), AGENT, None);
        match cause {
            0 => monitor.died(&node("Robot")),
            1 => monitor.until(301),
            _ => monitor.host(HostEvent::Offline { reason: "broker gone".into() }),
        }
        monitor.configs(AGENT, &Uuid::from_u128(100).to_string());
        monitor.until(3_000);
        assert_eq!(monitor.reloads(), 0, "cause {cause}");
    }
}

#[test]
fn a_monitor_that_starts_makes_no_agent_reload_and_a_later_change_of_a_secret_does() {
    let secret = |generation| SealedSecret {
        uid: "u".into(),
        generation,
        observed_generation: Some(generation),
        is_synced: true,
    };
    let mut monitor = Monitor::edge();
    monitor.on(Event::Secrets(Watch::Listed(BTreeMap::from([("s".to_owned(), secret(3))]))));
    monitor.born(&node("Robot"), AGENT, None);
    monitor.resources(&[("r", agent(AGENT))]);
    monitor.until(50);
    assert_eq!(monitor.reloads(), 0);
    monitor.on(Event::Secrets(Watch::Applied("s".into(), secret(4))));
    monitor.until(53);
    assert_eq!(monitor.reloads(), 1);
    monitor.born(&node("Robot"), AGENT, None);
    monitor.until(99);
    assert_eq!(monitor.reloads(), 0);
}

mod central;
