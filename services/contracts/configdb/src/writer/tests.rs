//! Every test sees all that comes out of the machine.

use std::collections::BTreeMap;

use super::*;
use crate::result::Outcome;

fn at(ms: u64) -> Now {
    Now::new(Duration::from_millis(ms), 0)
}

fn writer() -> Writer {
    let node = EdgeNodeDescriptor::parse("ACME-Central", "ConfigDB").unwrap();
    Writer::new(WriterConfig { window: 2, ..WriterConfig::new(node) }, 7)
}

fn request(id: &str, object: u128) -> WriteRequest {
    WriteRequest::put(id, Uuid::from_u128(object)).delete("Info")
}

fn answer(id: &str) -> Change {
    Change::Result(RequestResult {
        id: id.to_owned(),
        object: Uuid::nil(),
        outcome: Outcome::Refused,
        revision: 1,
        etags: BTreeMap::new(),
        reason: None,
        field: None,
        store: None,
        at: 0,
    })
}

/// What came out, in short: ids of what was sent, answered, given up.
fn outputs(writer: &mut Writer) -> Vec<String> {
    std::iter::from_fn(|| writer.poll_output())
        .map(|output| match output {
            WriterOutput::Send(HostRequest::Command { metrics, .. }) => {
                format!(
                    "send {}",
                    metrics.iter().find(|m| &*m.name == crate::names::REQUEST_ID).unwrap().as_str().unwrap()
                )
            }
            WriterOutput::Send(other) => format!("{other:?}"),
            WriterOutput::Answered(result) => format!("answered {}", result.id),
            WriterOutput::GaveUp { id, attempts, reason, .. } => format!("gave up {id} after {attempts}: {reason:?}"),
        })
        .collect()
}

#[test]
fn a_request_is_sent_once_and_ends_with_its_answer() {
    let mut writer = writer();
    writer.submit(request("a", 1), at(0)).unwrap();
    assert_eq!(outputs(&mut writer), ["send a"]);
    writer.on_change(&answer("another client's"), at(1));
    assert!(outputs(&mut writer).is_empty() && writer.is_waiting("a"));
    writer.on_change(&answer("a"), at(2));
    assert_eq!(outputs(&mut writer), ["answered a"]);
    assert!(writer.is_idle());
    assert_eq!(writer.next_deadline(), None);
    writer.on_change(&answer("a"), at(3));
    assert!(outputs(&mut writer).is_empty());
}

#[test]
fn an_unanswered_request_is_repeated_with_growing_waits_until_its_deadline() {
    let mut writer = writer();
    writer.submit(request("a", 1), at(0)).unwrap();
    assert_eq!(outputs(&mut writer), ["send a"]);
    let mut sent = Vec::new();
    let mut last = 0;
    while let Some(deadline) = writer.next_deadline() {
        let now = u64::try_from(deadline.as_millis()).unwrap() + 1;
        writer.handle_timeout(at(now));
        sent.push((now - last, outputs(&mut writer)));
        last = now;
    }
    let (_, end) = sent.pop().unwrap();
    assert_eq!(end, [format!("gave up a after {}: Deadline", sent.len() + 1)]);
    assert!((120_000..120_100).contains(&last));
    for (i, (wait, outputs)) in sent.iter().enumerate() {
        let full = (1_000_u64 << i.min(4)).min(15_000);
        assert!((full / 2..=full + 1).contains(wait), "wait {i} is {wait} ms, full is {full}");
        assert_eq!(outputs, &["send a"]);
    }
    assert!(writer.is_idle());
}

#[test]
fn requests_to_one_object_go_one_after_the_other_and_others_up_to_the_window() {
    let mut writer = writer();
    for (id, object) in [("a1", 1), ("a2", 1), ("b", 2), ("c", 3)] {
        writer.submit(request(id, object), at(0)).unwrap();
    }
    assert_eq!(outputs(&mut writer), ["send a1", "send b"]);
    writer.on_change(&answer("a1"), at(1));
    assert_eq!(outputs(&mut writer), ["answered a1", "send a2"]);
    writer.on_change(&answer("b"), at(1));
    assert_eq!(outputs(&mut writer), ["answered b", "send c"]);
}

#[test]
fn the_return_of_configdb_brings_repetitions_forward() {
    let mut writer = writer();
    writer.submit(request("a", 1), at(0)).unwrap();
    for _ in 0..5 {
        let deadline = writer.next_deadline().unwrap();
        writer.handle_timeout(Now::new(deadline, 0));
    }
    let now = Now::new(writer.next_deadline().unwrap() - Duration::from_secs(5), 0);
    writer.on_change(&Change::BecameComplete { store: None }, now);
    assert!(writer.next_deadline().unwrap() <= now.mono + Duration::from_secs(1));
}

/// Stores that the sent commands are for.
fn stores(writer: &mut Writer) -> Vec<Option<Uuid>> {
    std::iter::from_fn(|| writer.poll_output())
        .filter_map(|output| match output {
            WriterOutput::Send(HostRequest::Command { metrics, .. }) => Some(Command::store(&metrics)),
            _ => None,
        })
        .collect()
}

fn answer_of(store: Option<Uuid>, id: &str) -> Change {
    match answer(id) {
        Change::Result(result) => Change::Result(RequestResult { store, ..result }),
        other => other,
    }
}

#[test]
fn requests_name_the_store_that_is_known_and_take_no_answer_of_another() {
    let (mine, other) = (Some(Uuid::from_u128(1)), Some(Uuid::from_u128(2)));
    let mut writer = writer();
    writer.submit(request("early", 9), at(0)).unwrap();
    writer.on_change(&Change::BecameComplete { store: mine }, at(0));
    writer.submit(request("a", 1), at(0)).unwrap();
    assert_eq!(stores(&mut writer), [None, mine]);
    writer.on_change(&answer_of(other, "a"), at(1));
    assert!(outputs(&mut writer).is_empty() && writer.is_waiting("a"));
    writer.on_change(&answer_of(mine, "a"), at(2));
    // A client that asked before any store was known takes the answer of any store, and also that of a ConfigDB that names none.
    writer.on_change(&answer_of(other, "early"), at(2));
    assert_eq!(outputs(&mut writer), ["answered a", "answered early"]);
    writer.submit(request("b", 1), at(3)).unwrap();
    writer.on_change(&answer_of(None, "b"), at(3));
    assert_eq!(outputs(&mut writer), ["send b", "answered b"]);
}

#[test]
fn what_was_asked_of_a_store_that_is_replaced_is_given_up_and_not_asked_of_the_next() {
    let (mine, other) = (Some(Uuid::from_u128(1)), Some(Uuid::from_u128(2)));
    let mut writer = writer();
    writer.on_change(&Change::BecameComplete { store: mine }, at(0));
    for (id, object) in [("a", 1), ("b", 2), ("c", 3)] {
        writer.submit(request(id, object), at(0)).unwrap();
    }
    assert_eq!(outputs(&mut writer), ["send a", "send b"]);
    writer.on_change(&Change::BecameComplete { store: other }, at(1));
    assert_eq!(outputs(&mut writer), ["gave up a after 1: OtherStore", "gave up b after 1: OtherStore", "send c"]);
    writer.on_change(&answer_of(other, "c"), at(2));
    assert!(writer.is_idle());
}

#[test]
fn what_cannot_be_taken_is_refused_with_the_limit() {
    let mut writer = writer();
    writer.config.requests_max = 1;
    writer.submit(request("a", 1), at(0)).unwrap();
    assert_eq!(writer.submit(request("b", 1), at(0)), Err(SubmitError::Full { waiting: 1, max: 1 }));
    writer.config.requests_max = 2;
    assert_eq!(writer.submit(request("a", 2), at(0)), Err(SubmitError::Duplicate { id: "a".to_owned() }));
}

#[test]
fn the_same_seed_waits_the_same() {
    let deadline = |seed| {
        let mut writer = writer();
        writer.random = seed;
        writer.submit(request("a", 1), at(0)).unwrap();
        writer.next_deadline()
    };
    assert_eq!(deadline(1), deadline(1));
    assert_ne!(deadline(1), deadline(2));
}
