//! Several servers: where a node is, what of it is reported, where commands go.

use super::*;
use crate::seq::BdSeq;
use crate::session::QoS;

struct Merged(HostMerge);

fn node(id: &str) -> EdgeNodeDescriptor {
    EdgeNodeDescriptor::parse("G", id).expect("valid")
}

fn birth(timestamp: u64) -> HostEvent {
    HostEvent::NodeBirth { node: node("E"), bd_seq: BdSeq::ZERO, timestamp, uuid: None, metrics: Vec::new().into() }
}

fn data() -> HostEvent {
    HostEvent::NodeData { node: node("E"), timestamp: 1, metrics: Vec::new() }
}

fn aliases() -> HostEvent {
    HostEvent::Aliases { node: node("E"), device: None, aliases: vec![("T".into(), 1)] }
}

fn death() -> HostEvent {
    HostEvent::NodeDeath { node: node("E"), timestamp: 1 }
}

fn lost() -> HostEvent {
    HostEvent::Offline { reason: "cut".to_owned() }
}

fn rebirth() -> HostRequest {
    HostRequest::Rebirth { node: node("E") }
}

fn text(output: MergeOutput) -> String {
    match output {
        MergeOutput::Event(HostEvent::Online) => "online".to_owned(),
        MergeOutput::Event(HostEvent::Offline { reason }) => format!("offline {reason}"),
        MergeOutput::Event(HostEvent::NodeBirth { timestamp, .. }) => format!("birth {timestamp}"),
        MergeOutput::Event(HostEvent::NodeDeath { .. }) => "death".to_owned(),
        MergeOutput::Event(HostEvent::Aliases { .. }) => "aliases".to_owned(),
        MergeOutput::Event(HostEvent::NodeData { .. }) => "data".to_owned(),
        MergeOutput::Event(HostEvent::NodeStale { reason, .. }) => format!("stale {reason}"),
        MergeOutput::Event(HostEvent::Message { payload, .. }) => format!("message of {} bytes", payload.len()),
        MergeOutput::Event(HostEvent::Stopped) => "stopped".to_owned(),
        MergeOutput::Request { server, request: HostRequest::Rebirth { .. } } => format!("{server}: rebirth"),
        MergeOutput::Request { server, request: HostRequest::Expect { .. } } => format!("{server}: expect"),
        MergeOutput::Request { server, request: HostRequest::Forget { .. } } => format!("{server}: forget"),
        MergeOutput::Request { server, request: HostRequest::Follow { .. } } => format!("{server}: follow"),
        MergeOutput::Request { server, request: HostRequest::Unfollow { .. } } => format!("{server}: unfollow"),
        MergeOutput::Request { server, request: HostRequest::Stop } => format!("{server}: stop"),
        other => panic!("{other:?}"),
    }
}

impl Merged {
    /// Two servers, both online.
    fn online() -> Self {
        let mut merged = Self(HostMerge::new(2));
        merged.receives(0, HostEvent::Online, &["online"]);
        merged.receives(1, HostEvent::Online, &[]);
        merged
    }

    fn receives(&mut self, server: usize, event: HostEvent, expected: &[&str]) {
        self.0.on_event(server, event);
        self.expect(expected);
    }

    fn asks(&mut self, request: HostRequest, expected: &[&str]) {
        self.0.request(request);
        self.expect(expected);
    }

    fn expect(&mut self, expected: &[&str]) {
        let said: Vec<String> = std::iter::from_fn(|| self.0.poll_output()).map(text).collect();
        assert_eq!(said, expected);
    }
}

/// tck-id-operational-behavior-primary-application-state-with-multiple-servers-state: it is online as long as one of its sessions is.
#[test]
fn it_is_online_with_the_first_session_and_offline_with_the_last() {
    let mut merged = Merged::online();
    merged.receives(0, lost(), &[]);
    merged.receives(1, lost(), &["offline cut"]);
    // Attempts that fail are reported as by a single session.
    merged.receives(0, lost(), &["offline cut"]);
    merged.receives(1, HostEvent::Online, &["online"]);
    merged.asks(HostRequest::Stop, &["0: stop", "1: stop"]);
    merged.receives(1, HostEvent::Stopped, &[]);
    merged.receives(0, HostEvent::Stopped, &["stopped"]);
}

#[test]
fn commands_go_where_the_node_is_and_everywhere_while_that_is_unknown() {
    let mut merged = Merged::online();
    merged.asks(rebirth(), &["0: rebirth", "1: rebirth"]);
    merged.receives(1, birth(5), &["birth 5"]);
    merged.asks(rebirth(), &["1: rebirth"]);
    merged.receives(1, data(), &["data"]);
    merged.receives(1, death(), &["death"]);
    merged.asks(rebirth(), &["0: rebirth", "1: rebirth"]);
}

#[test]
fn a_node_that_moved_is_where_its_latest_birth_came_from_whatever_the_old_server_still_says() {
    let mut merged = Merged::online();
    merged.receives(0, birth(5), &["birth 5"]);
    merged.receives(1, birth(9), &["0: forget", "birth 9"]);
    merged.receives(0, data(), &[]);
    merged.receives(0, death(), &[]);
    merged.receives(0, HostEvent::NodeStale { node: node("E"), reason: "old".to_owned() }, &[]);
    // The old server passes on an old birth late.
    merged.receives(0, birth(5), &["0: forget"]);
    merged.receives(0, aliases(), &[]);
    merged.receives(1, aliases(), &["aliases"]);
    merged.receives(1, data(), &["data"]);
    merged.asks(rebirth(), &["1: rebirth"]);
    // Back again.
    merged.receives(0, birth(12), &["1: forget", "birth 12"]);
}

#[test]
fn a_lost_server_makes_its_nodes_stale_and_only_those() {
    let mut merged = Merged::online();
    merged.receives(0, birth(5), &["birth 5"]);
    merged.receives(1, lost(), &[]);
    merged.receives(0, data(), &["data"]);
    merged.receives(1, HostEvent::Online, &[]);
    merged.receives(0, lost(), &["stale its server is lost: cut"]);
    merged.receives(0, data(), &[]);
    // Its clock was set back meanwhile; that does not matter to a node that is not alive.
    merged.receives(1, birth(3), &["0: forget", "birth 3"]);
}

#[test]
fn an_expected_node_is_asked_for_on_every_server_until_it_is_somewhere() {
    let mut merged = Merged::online();
    merged.asks(HostRequest::Expect { node: node("E") }, &["0: expect", "1: expect"]);
    merged.receives(0, birth(5), &["1: forget", "birth 5"]);
    merged.receives(0, death(), &["1: expect", "death"]);
    merged.receives(1, birth(6), &["0: forget", "birth 6"]);
    merged.receives(1, lost(), &["0: expect", "stale its server is lost: cut"]);
    merged.asks(HostRequest::Forget { node: node("E") }, &["0: forget", "1: forget"]);
    merged.receives(0, birth(7), &["birth 7"]);
}

#[test]
fn a_followed_node_is_followed_on_every_server_and_its_messages_are_reported_from_each() {
    let mut merged = Merged::online();
    merged.asks(HostRequest::Follow { node: node("E") }, &["0: follow", "1: follow"]);
    merged.receives(0, birth(5), &["birth 5"]);
    let payload = bytes::Bytes::from_static(b"abc");
    let kind = crate::topic::MessageKind::NData;
    let message =
        HostEvent::Message { node: node("E"), device: None, kind, qos: QoS::AtMostOnce, retain: false, payload };
    merged.receives(0, message.clone(), &["message of 3 bytes"]);
    // What the old server of a node that moved still says of it is what a reader of messages looks for.
    merged.receives(1, message, &["message of 3 bytes"]);
    merged.asks(HostRequest::Unfollow { node: node("E") }, &["0: unfollow", "1: unfollow"]);
}
