//! Whatever is requested: the store and the memory agree, a refused request changes nothing, the revision only grows.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::time::Duration;

use configdb::Event;
use configdb::model::Limits;
use configdb::state::State;
use configdb::store::{MemoryStore, Snapshot};
use configdb_contract::command::device_id;
use configdb_contract::{MembershipChange, Mode, RegistrationChange, WriteRequest};
use configdb_schema::known::class;
use proptest::prelude::*;
use serde_json::{Value, json};
use sparkplug::Now;
use sparkplug::edge_node::NodeEvent;
use uuid::Uuid;

fn small() -> impl Strategy<Value = Uuid> {
    (1_u128..8).prop_map(Uuid::from_u128)
}

fn classes() -> impl Strategy<Value = Uuid> {
    let known = [
        class::EDGE_CLUSTER,
        class::EDGE_DEPLOYMENT,
        class::R1_CLASS,
        class::R2_CLASS,
        class::APPLICATION,
        class::INDIVIDUAL,
    ];
    prop_oneof![3 => proptest::sample::select(known.to_vec()), 2 => small()]
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({"name": "A", "namespace": "n"})),
        Just(json!({"name": "B", "namespace": "n", "bare": true})),
        Just(json!({"name": "shifts"})),
        Just(json!({"name": null})),
        Just(json!({"type": "object"})),
        Just(json!({"type": "number"})),
        Just(json!(7)),
        Just(json!(null)),
    ]
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => proptest::sample::select(vec!["Info", "EdgeCluster", "ConfigSchema", "ServiceConfig"]).prop_map(str::to_owned),
        1 => small().prop_map(|uuid| uuid.to_string()),
        1 => Just("shifts".to_owned()),
    ]
}

/// Likely to be refused.
fn wild() -> impl Strategy<Value = WriteRequest> {
    let registration = proptest::option::weighted(
        0.5,
        prop_oneof![
            4 => (classes(), proptest::option::weighted(0.2, small()))
                .prop_map(|(class, owner)| RegistrationChange::Register { class, owner }),
            1 => Just(RegistrationChange::Delete),
        ],
    );
    let set = || proptest::option::of(proptest::collection::btree_set(classes(), 0..3));
    let membership = (set(), set()).prop_map(|(member_of, subclass_of)| MembershipChange { member_of, subclass_of });
    let entries = proptest::collection::btree_map(names(), proptest::option::weighted(0.8, values()), 0..3);
    let mode = prop_oneof![Just(Mode::Put), Just(Mode::Patch)];
    (small(), registration, proptest::option::weighted(0.3, membership), entries, mode).prop_map(
        |(object, registration, membership, entries, mode)| WriteRequest {
            registration,
            membership,
            entries,
            mode,
            ..WriteRequest::put("", object)
        },
    )
}

/// Makes sense, if the object is as it must be: 1 to 3 are clusters, 4 and 5 classes, 6 and 7 applications.
fn sensible() -> impl Strategy<Value = WriteRequest> {
    let create = (1_u128..8).prop_map(|n| {
        let class = match n {
            1..=3 => class::EDGE_CLUSTER,
            4 | 5 => class::R1_CLASS,
            _ => class::APPLICATION,
        };
        let request = WriteRequest::put("", Uuid::from_u128(n)).create_object(class, None);
        if n >= 6 { request.entry("Info", json!({"name": "shifts"})) } else { request }
    });
    let put = |slug: &'static str, value: fn(u8) -> Value| {
        (small(), any::<u8>()).prop_map(move |(object, n)| WriteRequest::put("", object).entry(slug, value(n % 4)))
    };
    prop_oneof![
        6 => create,
        3 => put("Info", |n| json!({"name": format!("name {n}")})),
        3 => put("EdgeCluster", |n| json!({"name": format!("C{n}"), "namespace": "n"})),
        3 => put("shifts", |n| json!(n)),
        1 => put("ConfigSchema", |n| json!({"maximum": n})),
        1 => (1_u128..4, 4_u128..6)
            .prop_map(|(n, c)| WriteRequest::put("", Uuid::from_u128(n)).member_of([Uuid::from_u128(c)])),
        1 => Just(WriteRequest::put("", Uuid::from_u128(4)).subclass_of([Uuid::from_u128(5)])),
        1 => small().prop_map(|object| WriteRequest::put("", object).delete("EdgeCluster").delete("shifts")),
        1 => small().prop_map(|object| WriteRequest::put("", object).delete_object()),
    ]
}

fn requests() -> impl Strategy<Value = Vec<WriteRequest>> {
    let request = prop_oneof![5 => sensible(), 1 => wild()];
    let repeated = proptest::collection::vec(proptest::option::weighted(0.1, any::<proptest::sample::Index>()), 80);
    (proptest::collection::vec(request, 1..80), repeated).prop_map(|(mut requests, repeated)| {
        for i in 0..requests.len() {
            requests[i].id = format!("r{i}");
            if let Some(earlier) = repeated[i].filter(|_| i > 0) {
                requests[i] = requests[earlier.index(i)].clone();
            }
        }
        requests
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_reloaded_store_equals_the_memory_after_any_requests(requests in requests(), kills in any::<u64>()) {
        let disk = MemoryStore::new(Uuid::from_u128(0x5));
        let mut state = State::new(&disk.load_now(), Limits::default()).unwrap();
        let mut now = Now::default();
        state.on_event(Event::Start { timeline: 1 }, now);
        disk.commit_now(&state.take_turn().commit);
        for (i, request) in requests.iter().enumerate() {
            now.mono += Duration::from_millis(1);
            now.wall += 1;
            let before = state.model().revision();
            let counters = state.counters();
            let event = NodeEvent::Command { device: Some(device_id(request.object)), metrics: request.to_metrics(), timestamp: None };
            state.on_event(Event::Node(event), now);
            let turn = state.take_turn();
            let revision = state.model().revision();
            prop_assert_eq!(turn.commit.transactions.len() as u64, revision - before);
            prop_assert!(revision == before || state.counters().applied == counters.applied + 1);
            if kills >> (i % 64) & 1 == 1 && i % 7 == 0 {
                // Killed before the commit: as if the request had never come.
                state = State::new(&disk.load_now(), Limits::default()).unwrap();
                prop_assert_eq!(state.model().revision(), before);
                continue;
            }
            disk.commit_now(&turn.commit);
            let stored = Snapshot { requests: Vec::new(), ..disk.load_now() };
            prop_assert_eq!(&stored, &state.model().to_snapshot());
            prop_assert_eq!(state.model().live_objects().count(), state.model().object_count());
        }
        let reloaded = State::new(&disk.load_now(), Limits::default()).unwrap();
        prop_assert_eq!(reloaded.model().to_snapshot(), state.model().to_snapshot());
        prop_assert_eq!(reloaded.model().object_count(), state.model().object_count());
    }
}
