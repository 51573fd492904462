//! Waiting for the Primary Host, following it to another server.

use super::*;

fn with_primary_host(servers: usize) -> Bench {
    let primary_host = Some(HostId::new("H").expect("valid"));
    let mut bench = Bench::new(EdgeNodeConfig { primary_host, servers, ..config() }, vec![]);
    bench.go_online();
    bench.expect(&[
        "connect 0 will [NDEATH E - qos1 bdSeq=Int64(0)]",
        "subscribe spBv1.0/G/NCMD/E 1, spBv1.0/G/DCMD/E/+ 1, spBv1.0/STATE/H 1",
    ]);
    bench
}

impl Bench {
    fn state(&mut self, online: bool, timestamp: u64) {
        self.receive("spBv1.0/STATE/H", HostState { online, timestamp }.encode());
    }

    /// The session ends, the next one is up to its SUBACK.
    fn return_online(&mut self) {
        self.lose(true);
        self.pass(Duration::from_secs(1));
        self.go_online();
    }
}

const BIRTH: [&str; 2] = ["NBIRTH E 0 bdSeq=Int64(0) Node Control/Rebirth=Boolean(false)", "born 0 false"];

/// tck-id-message-flow-edge-node-birth-publish-phid-wait, tck-id-message-flow-edge-node-birth-publish-phid-wait-id,
/// tck-id-message-flow-edge-node-birth-publish-phid-wait-online, tck-id-operational-behavior-edge-node-birth-sequence-wait,
/// tck-id-operational-behavior-primary-application-state-with-multiple-servers-state-subs
#[test]
fn births_wait_for_the_primary_host_to_be_online() {
    let mut bench = with_primary_host(1);
    bench.pass(Duration::from_secs(100));
    bench.state(false, 10);
    bench.expect(&[]);
    bench.receive("spBv1.0/STATE/other", HostState { online: true, timestamp: 11 }.encode());
    bench.receive("spBv1.0/STATE/H", "ONLINE");
    bench.expect(&[
        "rejected spBv1.0/STATE/other: it is not addressed to this edge node",
        "rejected spBv1.0/STATE/H: STATE payload is not `{\"online\": <boolean>, \"timestamp\": <integer ms>}`: `{` is missing",
    ]);
    bench.state(true, 10);
    bench.expect(&BIRTH);
    bench.state(true, 12);
    bench.expect(&[]);
}

#[test]
fn a_state_that_arrives_before_the_suback_counts() {
    let primary_host = Some(HostId::new("H").expect("valid"));
    let mut bench = Bench::new(EdgeNodeConfig { primary_host, ..config() }, vec![]);
    bench.on(TransportEvent::Connected);
    bench.outputs();
    bench.state(true, 10);
    bench.expect(&[]);
    bench.on(TransportEvent::Subscribed);
    bench.expect(&BIRTH);
}

/// tck-id-message-flow-edge-node-birth-publish-phid-wait-timestamp
#[test]
fn an_online_state_older_than_what_is_known_is_ignored_also_after_a_reconnect() {
    let mut bench = with_primary_host(1);
    bench.state(false, 10);
    bench.state(true, 9);
    bench.expect(&[]);
    bench.return_online();
    bench.outputs();
    bench.state(true, 9);
    bench.expect(&[]);
    bench.state(true, 10);
    assert_eq!(bench.lines().len(), 2);
}

/// tck-id-message-flow-edge-node-birth-publish-phid-offline, tck-id-operational-behavior-edge-node-termination-host-offline,
/// tck-id-operational-behavior-edge-node-termination-host-offline-reconnect,
/// tck-id-operational-behavior-primary-application-state-with-multiple-servers-walk,
/// tck-id-operational-behavior-primary-application-state-with-multiple-servers-single-server
#[test]
fn a_primary_host_that_goes_offline_is_followed_to_the_next_server() {
    let mut bench = with_primary_host(2);
    bench.state(true, 10);
    bench.expect(&BIRTH);
    bench.state(false, 10);
    bench.expect(&["NDEATH E - qos1 bdSeq=Int64(0)", "disconnect"]);
    bench.lose(true);
    bench.pass(Duration::from_secs(1));
    bench.expect(&["offline primary host went offline", "connect 1 will [NDEATH E - qos1 bdSeq=Int64(1)]"]);
    // Each server has its own timestamp.
    bench.go_online();
    bench.outputs();
    bench.state(true, 3);
    bench.expect(&["NBIRTH E 0 bdSeq=Int64(1) Node Control/Rebirth=Boolean(false)", "born 1 false"]);
}

/// tck-id-operational-behavior-edge-node-termination-host-offline-timestamp
#[test]
fn an_offline_state_older_than_the_online_one_is_ignored() {
    let mut bench = with_primary_host(1);
    bench.state(true, 10);
    bench.outputs();
    bench.state(false, 9);
    bench.expect(&[]);
    assert!(bench.machine.is_born());
}

#[test]
fn with_several_servers_an_absent_primary_host_is_looked_for_on_the_next() {
    let mut bench = with_primary_host(2);
    bench.state(false, 10);
    bench.expect(&["NDEATH E - qos1 bdSeq=Int64(0)", "disconnect"]);
    bench.lose(true);
    bench.pass(Duration::from_secs(1));
    bench
        .expect(&["offline primary host is offline on this server", "connect 1 will [NDEATH E - qos1 bdSeq=Int64(1)]"]);
    bench.go_online();
    bench.outputs();
    bench.pass(Duration::from_secs(29));
    bench.expect(&[]);
    bench.pass(Duration::from_secs(1));
    bench.expect(&["NDEATH E - qos1 bdSeq=Int64(1)", "disconnect"]);
}

#[test]
fn a_host_that_was_online_in_an_earlier_session_is_waited_for_in_the_next() {
    let mut bench = with_primary_host(1);
    bench.state(true, 10);
    bench.expect(&BIRTH);
    bench.return_online();
    let is_birth = |line: &String| line.starts_with("NBIRTH");
    assert!(!bench.lines().iter().any(is_birth), "STATE of this session has not arrived");
    bench.state(true, 10);
    assert!(bench.lines().iter().any(is_birth));
}
