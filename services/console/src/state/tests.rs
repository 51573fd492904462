//! What is published, and when.

use sparkplug::BdSeq;
use sparkplug::session::QoS;

use super::*;
use crate::Config;
use crate::config::AlertmanagerConfig;

fn at(ms: u64) -> Now {
    Now::new(Duration::from_millis(ms), 1_000_000 + ms)
}

fn state() -> State {
    State::new(Config::default().validate(1_000_000).unwrap(), at(0)).unwrap()
}

fn birth(metrics: Vec<Metric>) -> Event {
    let node = EdgeNodeDescriptor::parse("Foreign", "Gateway").unwrap();
    Event::Host(HostEvent::NodeBirth { node, bd_seq: BdSeq::ZERO, timestamp: 5, uuid: None, metrics: metrics.into() })
}

fn published(state: &mut State) -> Vec<(String, u64)> {
    let effects = state.poll_effects();
    effects
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Publish(table) => Some((table.name.to_string(), table.rows.len() as u64)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_table_that_no_client_looks_at_is_not_made() {
    let mut state = state();
    state.on_event(birth(vec![]), at(1));
    state.on_event(Event::DeadlineReached, at(5_000));
    assert!(published(&mut state).is_empty());
    assert_eq!(state.read(&TableName::Nodes, at(5_001)).rows.len(), 1);
}

#[test]
fn a_table_that_is_followed_is_made_ten_times_a_second_at_most() {
    let mut state = state();
    state.on_event(Event::Watch(vec![TableName::Nodes]), at(0));
    assert_eq!(published(&mut state), [("nodes".to_owned(), 0)], "who follows it gets what there is");
    for ms in 1..=1_000 {
        state.on_event(birth(vec![]), at(ms));
        if state.next_deadline().is_some_and(|due| due <= at(ms).mono) {
            state.on_event(Event::DeadlineReached, at(ms));
        }
    }
    let count = published(&mut state).len();
    assert!((9..=11).contains(&count), "{count}");
    state.on_event(Event::Unwatch(vec![TableName::Nodes]), at(1_001));
    state.on_event(birth(vec![]), at(1_002));
    state.on_event(Event::DeadlineReached, at(3_000));
    assert!(published(&mut state).is_empty());
}

#[test]
fn what_takes_long_is_made_seldom() {
    let mut state = state();
    state.on_event(Event::Watch(vec![TableName::Nodes]), at(0));
    state.on_event(Event::Computed { cost: Duration::from_millis(80) }, at(0));
    state.on_event(birth(vec![]), at(10));
    state.on_event(Event::DeadlineReached, at(700));
    assert_eq!(published(&mut state).len(), 1);
    state.on_event(Event::DeadlineReached, at(800));
    assert_eq!(published(&mut state).len(), 1);
}

#[test]
fn a_table_that_did_not_change_keeps_its_revision() {
    let mut state = state();
    let first = state.read(&TableName::Clusters, at(0)).rev;
    state.on_event(birth(vec![]), at(1));
    assert_eq!(state.read(&TableName::Clusters, at(500)).rev, first);
    assert!(state.read(&TableName::Nodes, at(500)).rev > first);
}

#[test]
fn a_heartbeat_makes_only_the_tables_that_count_messages() {
    let mut state = state();
    let group = state.settings.organisation.central_group();
    let node = EdgeNodeDescriptor::parse(&group, "Cluster-Manager").unwrap();
    let data = |metric: Metric| {
        let (node, metrics) = (node.clone(), [metric].into());
        Event::Host(HostEvent::NodeData { node, timestamp: 6, metrics })
    };
    let is_due = |state: &State, ms| state.next_deadline().is_some_and(|due| due <= at(ms).mono);
    let metrics = [].into();
    let born = HostEvent::NodeBirth { node: node.clone(), bd_seq: BdSeq::ZERO, timestamp: 5, uuid: None, metrics };
    state.on_event(Event::Watch(vec![TableName::Clusters, TableName::Services]), at(0));
    state.on_event(Event::Host(born), at(1));
    assert!(is_due(&state, 200));
    state.on_event(Event::DeadlineReached, at(200));
    state.on_event(data(Metric::new("Node Control/Rebirth", false)), at(300));
    assert!(!is_due(&state, 500), "it says nothing new");
    state.on_event(data(Metric::new("Clusters/Count", 1_i64)), at(300));
    assert!(is_due(&state, 500));
    state.on_event(Event::DeadlineReached, at(500));
    state.on_event(Event::Watch(vec![TableName::Nodes]), at(501));
    state.on_event(data(Metric::new("Node Control/Rebirth", false)), at(510));
    assert!(is_due(&state, 700), "messages are counted");
}

#[test]
fn metrics_that_no_client_follows_leave_nothing_behind() {
    let mut state = state();
    let table: TableName = "metrics:Foreign/Gateway".parse().unwrap();
    state.on_event(birth(vec![Metric::new("Speed", 1_u32)]), at(1));
    assert_eq!(state.read(&table, at(2)).rows["|Speed"]["value"], 1);
    assert_eq!(state.slots.len(), TableName::FIXED.len());
    state.on_event(Event::Watch(vec![table.clone()]), at(3));
    assert_eq!(state.slots.len(), TableName::FIXED.len() + 1);
    state.on_event(Event::Unwatch(vec![table]), at(4));
    assert_eq!(state.slots.len(), TableName::FIXED.len());
}

#[test]
fn messages_of_a_node_are_asked_for_while_a_client_follows_them() {
    let mut state = state();
    let node = EdgeNodeDescriptor::parse("Foreign", "Gateway").unwrap();
    let table: TableName = "messages:Foreign/Gateway".parse().unwrap();
    let asked = |state: &mut State| -> Vec<HostRequest> {
        let effects = state.poll_effects();
        effects
            .into_iter()
            .filter_map(|effect| if let Effect::Host(request) = effect { Some(request) } else { None })
            .collect()
    };
    let message = || {
        let payload = bytes::Bytes::from_static(&[0xff]);
        let kind = sparkplug::MessageKind::NData;
        Event::Host(HostEvent::Message {
            node: node.clone(),
            device: None,
            kind,
            qos: QoS::AtMostOnce,
            retain: false,
            payload,
        })
    };
    state.on_event(message(), at(1));
    assert_eq!(state.read(&table, at(2)).rows.len(), 0, "no client looked when it came");
    asked(&mut state);
    for ms in [3, 4] {
        state.on_event(Event::Watch(vec![table.clone()]), at(ms));
    }
    assert_eq!(asked(&mut state), [HostRequest::Follow { node: node.clone() }]);
    state.on_event(message(), at(500));
    state.on_event(Event::DeadlineReached, at(1_000));
    assert_eq!(published(&mut state), [("messages:Foreign/Gateway".to_owned(), 1)]);
    state.on_event(Event::Unwatch(vec![table.clone()]), at(1_001));
    assert_eq!(asked(&mut state), []);
    state.on_event(Event::Unwatch(vec![table.clone()]), at(1_002));
    assert_eq!(asked(&mut state), [HostRequest::Unfollow { node: node.clone() }]);
    assert_eq!(state.read(&table, at(1_003)).rows.len(), 0);
}

#[test]
fn alerts_are_passed_on_although_no_client_looks_and_there_is_no_history() {
    let config = Config {
        history_days: 0,
        alertmanager: AlertmanagerConfig {
            url: Some("http://127.0.0.1:9093".to_owned()),
            ..AlertmanagerConfig::default()
        },
        ..Config::default()
    };
    let mut state = State::new(config.validate(1_000_000).unwrap(), at(0)).unwrap();
    let sent = |state: &mut State| -> Vec<String> {
        let effects = state.poll_effects();
        let notices = effects
            .into_iter()
            .filter_map(|effect| if let Effect::Notify(notices) = effect { Some(notices) } else { None });
        notices.flatten().map(|notice| notice.labels["alertname"].clone()).collect()
    };
    // A monitor that is born and dies: no service watches the clusters then.
    let node = EdgeNodeDescriptor::parse("ACME-Central", "Monitor").unwrap();
    let metrics = edge_monitor_contract::MonitorNode::default().to_metrics().into();
    let born = HostEvent::NodeBirth { node: node.clone(), bd_seq: BdSeq::ZERO, timestamp: 5, uuid: None, metrics };
    state.on_event(Event::Host(HostEvent::Online), at(1));
    state.on_event(Event::Host(born), at(2));
    state.on_event(Event::Host(HostEvent::NodeDeath { node, timestamp: 6 }), at(3));
    state.on_event(Event::DeadlineReached, at(1_000));
    assert_eq!(sent(&mut state), Vec::<String>::new(), "births may be on their way");
    state.on_event(Event::DeadlineReached, at(61_001));
    assert_eq!(sent(&mut state), ["Offline"]);
    state.on_event(Event::Notified(Err("it answered 503".to_owned())), at(61_100));
    state.on_event(Event::DeadlineReached, at(65_000));
    assert_eq!(sent(&mut state), Vec::<String>::new());
    state.on_event(Event::DeadlineReached, at(71_200));
    assert_eq!(sent(&mut state), ["Offline"]);
}

#[test]
fn the_console_says_whether_it_is_online_and_complete() {
    let mut state = state();
    let row = |state: &mut State, ms| state.read(&TableName::Console, at(ms)).rows["console"].clone();
    assert_eq!(
        (row(&mut state, 0)["online"].clone(), row(&mut state, 0)["health"].clone()),
        (json!(false), json!("away"))
    );
    state.on_event(Event::Host(HostEvent::Online), at(500));
    let online = row(&mut state, 1_000);
    assert_eq!(
        (&online["online"], &online["complete"], &online["health"]),
        (&json!(true), &json!(false), &json!("working"))
    );
    assert_eq!(online["since"], 1_000_500);
}

/// The state at a time needs what was there when no client looked.
#[test]
fn a_table_that_is_recorded_is_made_although_no_client_looks_at_it() {
    let mut state = state();
    let service = || birth(vec![Metric::new("Properties/Service", "historian")]);
    let records = |state: &mut State| -> Vec<Arc<Record>> {
        let effects = state.poll_effects();
        effects
            .into_iter()
            .filter_map(|effect| if let Effect::Record(record) = effect { Some(record) } else { None })
            .collect()
    };
    state.on_event(service(), at(1));
    state.on_event(Event::DeadlineReached, at(500));
    assert_eq!(records(&mut state), [], "there is no store");
    state.on_event(Event::History(StoreEvent::Opened(Box::default())), at(501));
    state.on_event(Event::Host(HostEvent::Online), at(502));
    state.on_event(Event::DeadlineReached, at(1_000));
    assert_eq!(records(&mut state), [], "births are missing");
    state.on_event(Event::DeadlineReached, at(61_100));
    let first = records(&mut state);
    assert_eq!((first.len(), first[0].snapshot.as_ref().unwrap()[&View::Services].len()), (1, 1));
    assert!(state.next_deadline().unwrap() <= at(62_100).mono);
    state.on_event(Event::History(StoreEvent::Stored { first: 1 }), at(61_200));
    let node = EdgeNodeDescriptor::parse("Foreign", "Gateway").unwrap();
    state.on_event(Event::Host(HostEvent::NodeDeath { node, timestamp: 9 }), at(61_300));
    assert!(state.next_deadline().unwrap() <= at(61_550).mono, "four times a second");
    state.on_event(Event::DeadlineReached, at(61_550));
    assert_eq!(records(&mut state)[0].transitions[0].event.as_ref().unwrap().kind, "death");
    state.on_event(Event::History(StoreEvent::Stored { first: 2 }), at(61_560));
    assert_eq!(state.read(&TableName::Events, at(62_600)).rows["2"]["text"], "service Foreign/Gateway died");
    state.on_event(Event::Host(HostEvent::Offline { reason: "reset".to_owned() }), at(62_700));
    state.on_event(Event::DeadlineReached, at(63_000));
    assert!(records(&mut state)[0].begins_gap.is_some());
}

#[test]
fn reading_has_no_effect_on_the_broker() {
    let mut state = state();
    state.on_event(Event::Started, at(0));
    let _ = state.poll_effects();
    for name in TableName::FIXED {
        state.read(&name, at(10));
    }
    let effects = state.poll_effects();
    assert!(effects.into_iter().all(|effect| matches!(effect, Effect::Publish(_))));
}
