//! Messages of followed nodes as they arrived.

use super::*;

fn sent(bench: &mut Bench) -> Vec<String> {
    bench.lines().into_iter().filter(|line| line.contains(" sent ")).collect()
}

#[test]
fn messages_of_a_followed_node_are_reported_first_and_those_of_others_are_not() {
    let mut bench = Bench::online(config());
    bench.nbirth(0, 1000, vec![]);
    assert_eq!(sent(&mut bench), Vec::<String>::new(), "no node is followed yet");
    bench.request(HostRequest::Follow { node: e() });
    let birth = message("NBIRTH", Some(0), 1001, vec![Metric::new("bdSeq", 1_i64)], None);
    bench.receive(&topic("NBIRTH", None), birth.clone());
    let lines = bench.lines();
    assert_eq!(lines[0], format!("E sent NBIRTH of {} bytes", birth.len()), "{lines:#?}");
    assert!(lines[1].starts_with("E born 1"), "{lines:#?}");
    bench.receive("spBv1.0/G/NDATA/F", message("NDATA", Some(1), 1000, vec![], None));
    bench.receive("spBv1.0/H/NDATA/E", message("NDATA", Some(1), 1000, vec![], None));
    assert_eq!(sent(&mut bench), Vec::<String>::new());
    bench.request(HostRequest::Unfollow { node: e() });
    bench.receive(&topic("NBIRTH", None), birth);
    assert_eq!(sent(&mut bench), Vec::<String>::new());
}

#[test]
fn what_is_retained_unreadable_out_of_order_or_a_command_is_reported_as_it_came() {
    let mut bench = Bench::online(config());
    bench.request(HostRequest::Follow { node: e() });
    for (kind, device, retain, line) in [
        ("NDATA", None, true, "E sent NDATA of 3 bytes retained"),
        ("DDATA", Some("D"), false, "E/D sent DDATA of 3 bytes"),
        ("NCMD", None, false, "E sent NCMD of 3 bytes"),
        ("DCMD", Some("D"), false, "E/D sent DCMD of 3 bytes"),
        ("NDEATH", None, false, "E sent NDEATH of 3 bytes at least once"),
    ] {
        bench.on(TransportEvent::Message {
            topic: topic(kind, device),
            payload: Bytes::from_static(&[0xff, 1, 2]),
            qos: if kind == "NDEATH" { QoS::AtLeastOnce } else { QoS::AtMostOnce },
            retain,
        });
        assert_eq!(sent(&mut bench), [line]);
    }
}

#[test]
fn a_node_is_followed_from_session_to_session() {
    let mut bench = Bench::online(config());
    bench.request(HostRequest::Follow { node: e() });
    bench.lose();
    bench.pass(Duration::from_secs(60));
    bench.go_online();
    bench.outputs();
    bench.receive(&topic("NDATA", None), message("NDATA", Some(1), 1000, vec![], None));
    assert_eq!(sent(&mut bench).len(), 1);
}
