//! Messages that come out of order, twice or not at all.

use super::*;

/// tck-id-operational-behavior-host-reordering-start, tck-id-operational-behavior-host-reordering-success
#[test]
fn messages_out_of_order_are_put_in_order_in_time() {
    let mut bench = Bench::with_node(config());
    bench.ddata(4, 4);
    bench.ddata(3, 3);
    bench.expect(&[]);
    bench.pass(Duration::from_millis(1999));
    bench.ndata(2, 2.0);
    bench.expect(&["E data at 2000 T=Double(2.0)", "E/D data at 2000 x=UInt16(3)", "E/D data at 2000 x=UInt16(4)"]);
    bench.pass(Duration::from_secs(300));
    bench.expect(&[]);
    assert_eq!(bench.machine.next_deadline(), None);
}

/// tck-id-operational-behavior-host-reordering-rebirth
#[test]
fn a_gap_that_stays_open_makes_the_replica_stale_and_asks_for_rebirth() {
    let mut bench = Bench::with_node(config());
    bench.ndata(3, 3.0);
    bench.pass(Duration::from_secs(2));
    bench.expect(&["E stale: the message with seq 2 is missing", ASK, "E asked: the message with seq 2 is missing"]);
    assert_eq!(bench.machine.liveness(&e()), Some(Liveness::Stale));
    // What was missing comes too late.
    bench.ndata(2, 2.0);
    bench.expect(&[]);
    bench.nbirth(0, 3000, vec![Metric::new("T", 3.0f64)]);
    bench.expect(&["E born 0 at 3000 bdSeq=Int64(0) T=Double(3.0)"]);
}

#[test]
fn a_second_gap_gets_its_full_time() {
    let mut bench = Bench::with_node(config());
    bench.ndata(3, 3.0);
    bench.pass(Duration::from_millis(1500));
    bench.ndata(5, 5.0);
    bench.ndata(2, 2.0);
    assert_eq!(bench.lines().len(), 2);
    bench.pass(Duration::from_millis(1999));
    bench.expect(&[]);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.lines().len(), 3);
}

/// tck-id-operational-behavior-host-reordering-param
#[test]
fn a_gap_is_waited_for_as_long_as_the_configuration_says() {
    for timeout in [Duration::from_millis(700), Duration::from_secs(9)] {
        let mut bench = Bench::with_node(HostConfig { reorder_timeout: timeout, ..config() });
        bench.ndata(3, 3.0);
        bench.pass(timeout - Duration::from_millis(1));
        bench.expect(&[]);
        bench.pass(Duration::from_millis(1));
        bench.expect(&[
            "E stale: the message with seq 2 is missing",
            ASK,
            "E asked: the message with seq 2 is missing",
        ]);
    }
}

/// tck-id-operational-behavior-host-reordering-start: a node that continues to send does not put it off.
#[test]
fn the_wait_begins_with_the_first_message_behind_the_gap() {
    let mut bench = Bench::with_node(config());
    for seq in 3..6 {
        bench.ndata(seq, 3.0);
        bench.pass(Duration::from_millis(600));
    }
    bench.ndata(6, 6.0);
    bench.pass(Duration::from_millis(199));
    bench.expect(&[]);
    bench.pass(Duration::from_millis(1));
    bench.expect(&["E stale: the message with seq 2 is missing", ASK, "E asked: the message with seq 2 is missing"]);
}

/// tck-id-operational-behavior-host-reordering-param
#[test]
fn a_timeout_of_zero_does_not_wait() {
    let mut bench = Bench::with_node(HostConfig { reorder_timeout: Duration::ZERO, ..config() });
    bench.ndata(3, 3.0);
    bench.expect(&["E stale: the message with seq 2 is missing", ASK, "E asked: the message with seq 2 is missing"]);
}

#[test]
fn a_packet_delivered_twice_is_taken_once() {
    let mut bench = Bench::with_node(config());
    bench.ndata(2, 2.0);
    bench.ndata(2, 2.0);
    bench.expect(&["E data at 2000 T=Double(2.0)"]);
    bench.pass(Duration::from_secs(300));
    bench.expect(&[]);
}

#[test]
fn the_same_seq_with_other_content_is_a_loss() {
    let mut bench = Bench::with_node(config());
    bench.ndata(2, 2.0);
    bench.ndata(2, 9.0);
    bench.expect(&["E data at 2000 T=Double(2.0)"]);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.lines().len(), 3);
}

#[test]
fn seq_wraps() {
    let mut bench = Bench::with_node(config());
    for n in 2..=600u64 {
        bench.ndata(n % 256, 0.5);
    }
    assert_eq!(bench.lines().len(), 599);
    assert_eq!(bench.machine.liveness(&e()), Some(Liveness::Alive));
}

#[test]
fn a_dbirth_that_overtakes_its_nbirth_is_kept() {
    // Of the next millisecond, or of the same.
    for time in [3001, 3000] {
        let mut bench = Bench::with_node(config());
        bench.send("DBIRTH", Some("D"), Some(1), time, vec![Metric::new("x", 7u16)]);
        bench.ndata(9, 9.0);
        bench.nbirth(1, 3000, vec![]);
        bench.expect(&["E born 1 at 3000 bdSeq=Int64(1)", &format!("E/D born at {time} x=UInt16(7)")]);
        bench.pass(Duration::from_secs(300));
        bench.expect(&[]);
    }
}

#[test]
fn a_message_from_before_the_birth_is_not_taken_into_its_order() {
    let mut bench = Bench::with_node(config());
    bench.nbirth(0, 5000, vec![Metric::new("T", 5.0f64)]);
    bench.outputs();
    bench.ndata(2, 2.0);
    bench.send("NDATA", None, Some(1), 5001, vec![Metric::new("T", 6.0f64)]);
    bench.send("NDATA", None, Some(2), 5002, vec![Metric::new("T", 7.0f64)]);
    bench.expect(&["E data at 5001 T=Double(6.0)", "E data at 5002 T=Double(7.0)"]);
    bench.pass(Duration::from_secs(300));
    bench.expect(&[]);
}

#[test]
fn more_early_messages_than_are_held_are_a_loss() {
    let mut bench = Bench::with_node(HostConfig { reorder_messages_max: 2, ..config() });
    for seq in [3, 4] {
        bench.ndata(seq, 1.0);
    }
    bench.expect(&[]);
    bench.ndata(5, 1.0);
    let reason = "too many messages wait for a missing one";
    bench.expect(&[&format!("E stale: {reason}"), ASK, &format!("E asked: {reason}")]);
    bench.pass(Duration::from_millis(1000));
    bench.expect(&[]);
}

#[test]
fn a_death_ends_the_wait_for_a_missing_message() {
    let mut bench = Bench::with_node(config());
    bench.ndata(3, 3.0);
    bench.ndeath(0);
    bench.expect(&["E dead at 1700000000000"]);
    bench.pass(Duration::from_secs(300));
    bench.expect(&[]);
}

#[test]
fn a_message_that_never_gets_its_turn_is_a_loss_however_many_others_pass() {
    let mut bench = Bench::with_node(config());
    bench.ndata(200, 9.0);
    for seq in 2..=5 {
        bench.pass(Duration::from_millis(450));
        bench.ndata(seq, 1.0);
    }
    assert_eq!(bench.lines().len(), 4);
    bench.pass(Duration::from_millis(200));
    bench.expect(&["E stale: the message with seq 6 is missing", ASK, "E asked: the message with seq 6 is missing"]);
}

#[test]
fn two_early_messages_with_one_seq_are_a_loss() {
    let mut bench = Bench::with_node(config());
    bench.ndata(4, 1.0);
    bench.ndata(4, 1.0);
    bench.expect(&[]);
    bench.ndata(4, 2.0);
    let reason = "two messages have the same seq";
    bench.expect(&[&format!("E stale: {reason}"), ASK, &format!("E asked: {reason}")]);
}
