//! What is recorded and when, against a store in memory.

use super::*;
use crate::record::Known;
use proptest::prelude::*;
use serde_json::{Value, json};

fn at(ms: u64) -> Now {
    Now::new(Duration::from_millis(ms), 1_000_000 + ms)
}

fn well() -> Outlook {
    Outlook { online: true, complete: true, central: true, unborn: BTreeSet::new() }
}

fn clusters(rows: &[(&str, Value)]) -> Tables {
    let row = |(name, setup): &(&str, Value)| (name.to_string(), json!({ "key": name, "name": name, "setup": setup }));
    let empty = View::ALL.map(|view| (view, Arc::new(Table::new())));
    let mut tables = Tables::from(empty);
    tables.insert(View::Clusters, Arc::new(rows.iter().map(row).collect()));
    tables
}

fn hosts(cluster: &str, names: &[&str]) -> Tables {
    let row =
        |name: &&str| (format!("{cluster}/{name}"), json!({ "cluster": cluster, "name": name, "member": "member" }));
    let mut tables = clusters(&[]);
    tables.insert(View::Hosts, Arc::new(names.iter().map(row).collect()));
    tables
}

/// A recorder on a store that holds nothing.
fn recorder() -> Recorder {
    let mut recorder = Recorder::new(HistoryStatus::Opening);
    recorder.on_answer(StoreEvent::Opened(Box::default()));
    recorder
}

/// One that has recorded these tables.
fn settled(tables: &Tables) -> Recorder {
    let mut recorder = recorder();
    assert!(recorder.poll(tables, &well(), at(0)).is_some());
    recorder.on_answer(StoreEvent::Stored { first: 1 });
    recorder
}

fn texts(record: &Record) -> Vec<String> {
    record.transitions.iter().filter_map(|transition| Some(transition.event.as_ref()?.text.clone())).collect()
}

#[test]
fn the_first_state_is_a_snapshot_and_not_a_change() {
    let tables = clusters(&[("a", json!("spec"))]);
    let mut closed = Recorder::new(HistoryStatus::Opening);
    assert_eq!(closed.poll(&tables, &well(), at(0)), None, "the store is not open");
    let mut recorder = recorder();
    assert_eq!(recorder.poll(&tables, &Outlook { complete: false, ..well() }, at(0)), None, "births are missing");
    let first = recorder.poll(&tables, &well(), at(1)).unwrap();
    assert_eq!((first.at, first.ends_gap, first.snapshot.as_ref()), (1_000_001, true, Some(&tables)));
    assert_eq!(texts(&first), [""; 0]);
}

#[test]
fn a_change_is_recorded_once_and_only_one_record_is_on_its_way() {
    let mut recorder = settled(&clusters(&[("a", json!("spec"))]));
    let later = clusters(&[("a", json!("address"))]);
    let record = recorder.poll(&later, &well(), at(10)).unwrap();
    assert_eq!(texts(&record), ["set-up: spec → address"]);
    let last = clusters(&[("a", json!("ready"))]);
    assert_eq!(recorder.poll(&last, &well(), at(20)), None, "the other one is on its way");
    assert!(recorder.on_answer(StoreEvent::Stored { first: 7 }));
    assert_eq!(recorder.events()["7"]["text"], "set-up: spec → address");
    assert_eq!(texts(&recorder.poll(&last, &well(), at(30)).unwrap()), ["set-up: address → ready"]);
    assert!(recorder.on_answer(StoreEvent::Stored { first: 8 }));
    assert_eq!(recorder.poll(&last, &well(), at(40)), None);
}

#[test]
fn a_lost_session_is_a_gap_that_ends_with_what_changed_in_it() {
    let mut recorder = settled(&clusters(&[("a", json!("spec"))]));
    recorder.lose("connection reset");
    let away = Outlook { online: false, complete: false, ..well() };
    let nothing = clusters(&[]);
    let gap = recorder.poll(&nothing, &away, at(10)).unwrap();
    assert_eq!(gap.begins_gap.as_deref(), Some("no session with the broker: connection reset"));
    assert!(gap.transitions.is_empty(), "what is shown while nothing is received is not what is");
    recorder.on_answer(StoreEvent::Stored { first: 2 });
    assert_eq!(recorder.poll(&nothing, &away, at(20)), None);
    assert!(recorder.farewell("stopped", at(20)).is_none(), "the gap lasts already");
    let incomplete = Outlook { complete: false, ..well() };
    assert_eq!(recorder.poll(&nothing, &incomplete, at(30)), None);
    let back = recorder.poll(&clusters(&[("a", json!("ready"))]), &well(), at(40)).unwrap();
    assert_eq!((back.ends_gap, texts(&back)), (true, vec!["set-up: spec → ready".to_owned()]));
    recorder.on_answer(StoreEvent::Stored { first: 2 });
    assert_eq!(recorder.farewell("stopped", at(50)).unwrap().begins_gap.as_deref(), Some("stopped"));
}

#[test]
fn a_fleet_that_is_never_complete_is_recorded_after_a_while() {
    let mut recorder = recorder();
    let incomplete = Outlook { complete: false, ..well() };
    let tables = clusters(&[("a", json!("spec"))]);
    assert_eq!(recorder.poll(&tables, &incomplete, at(0)), None);
    assert_eq!(recorder.poll(&tables, &incomplete, at(59_999)), None);
    assert!(recorder.poll(&tables, &incomplete, at(60_000)).is_some());
}

#[test]
fn hosts_whose_births_are_on_their_way_are_not_gone() {
    let full = hosts("Paint_Shop", &["one", "two"]);
    let mut recorder = settled(&full);
    let unborn = Outlook { unborn: ["Paint_Shop".to_owned()].into(), ..well() };
    let half = hosts("Paint_Shop", &["one"]);
    assert_eq!(recorder.poll(&half, &unborn, at(100)), None);
    assert_eq!(recorder.poll(&full, &well(), at(200)), None, "nothing has happened");
    assert_eq!(recorder.poll(&half, &unborn, at(300)), None);
    let gone = recorder.poll(&half, &unborn, at(30_300)).unwrap();
    assert_eq!(texts(&gone), ["host two removed"], "they do not come any more");
}

#[test]
fn while_the_central_services_are_born_again_nothing_is_gone() {
    let full = clusters(&[("a", json!("ready"))]);
    let mut recorder = settled(&full);
    let reborn = Outlook { central: false, complete: false, ..well() };
    assert_eq!(recorder.poll(&clusters(&[]), &reborn, at(100)), None);
    assert_eq!(recorder.poll(&full, &well(), at(200)), None);
    assert_eq!(recorder.poll(&clusters(&[]), &reborn, at(300)), None);
    assert_eq!(texts(&recorder.poll(&clusters(&[]), &reborn, at(30_300)).unwrap()), ["removed"]);
}

#[test]
fn that_nothing_was_missed_is_recorded_now_and_then() {
    let tables = clusters(&[]);
    let mut recorder = settled(&tables);
    assert_eq!(recorder.poll(&tables, &well(), at(9_999)), None);
    let record = recorder.poll(&tables, &well(), at(10_000)).unwrap();
    assert_eq!(*record, Record::of_time(1_010_000));
}

#[test]
fn a_clock_that_steps_back_makes_no_earlier_record() {
    let mut recorder = settled(&clusters(&[]));
    let stepped = Now::new(Duration::from_millis(10), 5);
    let record = recorder.poll(&clusters(&[("a", json!("spec"))]), &well(), stepped).unwrap();
    assert_eq!(record.at, 1_000_000);
}

fn cause(request: &str, who: Option<&str>, is_applied: bool) -> Cause {
    Cause { request: request.to_owned(), who: who.map(str::to_owned), is_applied }
}

/// The request and the user that the only event of the next record names, once that is stored.
fn explained(recorder: &mut Recorder, setup: &str, now: Now) -> (Option<String>, Option<String>) {
    let record = recorder.poll(&clusters(&[("a", json!(setup))]), &well(), now).unwrap();
    recorder.on_answer(StoreEvent::Stored { first: 2 });
    let [transition] = record.transitions.as_slice() else { panic!("{record:?}") };
    let event = transition.event.as_ref().unwrap();
    (event.request.clone(), event.who.clone())
}

#[test]
fn a_write_is_named_as_the_cause_of_what_follows_it() {
    let mut recorder = settled(&clusters(&[]));
    let named = |request: &str, who: Option<&str>| (Some(request.to_owned()), who.map(str::to_owned));
    recorder.note_cause("a".to_owned(), cause("request-1", Some("token:ada"), true), at(5));
    assert_eq!(explained(&mut recorder, "spec", at(10)), named("request-1", Some("token:ada")));
    assert_eq!(recorder.events()["2"]["who"], "token:ada");
    assert_eq!(explained(&mut recorder, "ready", at(20)), (None, None), "it is used up");
    recorder.note_cause("a".to_owned(), cause("request-2", None, true), at(30));
    assert_eq!(explained(&mut recorder, "failed", at(9_000)), (None, None), "it is too old");
}

#[test]
fn the_effect_of_a_write_names_it_also_before_the_answer_and_after_a_write_without_effect() {
    let mut recorder = settled(&clusters(&[]));
    let named = |request: &str, who: Option<&str>| (Some(request.to_owned()), who.map(str::to_owned));
    recorder.note_cause("a".to_owned(), cause("request-1", None, true), at(5));
    recorder.note_cause("a".to_owned(), cause("request-2", Some("token:ada"), false), at(6));
    recorder.note_cause("a".to_owned(), cause("request-2", Some("token:ada"), true), at(7));
    assert_eq!(explained(&mut recorder, "spec", at(10)), named("request-2", Some("token:ada")), "the later one");
    assert_eq!(explained(&mut recorder, "ready", at(20)), (None, None), "nor has the earlier one another effect");
    recorder.note_cause("a".to_owned(), cause("request-3", Some("token:ben"), false), at(30));
    assert_eq!(explained(&mut recorder, "failed", at(40)), named("request-3", Some("token:ben")), "before its answer");
    recorder.note_cause("a".to_owned(), cause("request-3", Some("token:ben"), true), at(50));
    assert_eq!(explained(&mut recorder, "spec", at(60)), (None, None), "its answer is not another cause");
    recorder.note_cause("a".to_owned(), cause("request-4", Some("token:ben"), false), at(70));
    recorder.forget_cause("request-4");
    assert_eq!(explained(&mut recorder, "ready", at(80)), (None, None), "it was refused");
    recorder.note_cause("a".to_owned(), cause("request-5", None, true), at(90));
    recorder.note_cause("a".to_owned(), cause("request-6", Some("token:ben"), false), at(91));
    assert_eq!(explained(&mut recorder, "failed", at(95)), named("request-5", None), "one that is applied goes first");
}

#[test]
fn what_could_not_be_stored_is_recorded_when_the_store_is_there_again() {
    let first = clusters(&[("a", json!("spec"))]);
    let mut recorder = settled(&first);
    let later = clusters(&[("a", json!("ready"))]);
    assert!(recorder.poll(&later, &well(), at(10)).is_some());
    recorder.on_answer(StoreEvent::Failed { reason: "the disk is full".to_owned() });
    assert_eq!(recorder.status().reason().as_deref(), Some("this console keeps no history: the disk is full"));
    assert_eq!(recorder.poll(&later, &well(), at(20)), None);
    let tables = first.iter().map(|(view, table)| (*view, (**table).clone())).collect();
    let known = Known { at: 1_000_000, tables, snapshot_at: Some(1_000_000), ..Known::default() };
    recorder.on_answer(StoreEvent::Opened(Box::new(known)));
    let again = recorder.poll(&later, &well(), at(30)).unwrap();
    assert_eq!((again.ends_gap, texts(&again)), (true, vec!["set-up: spec → ready".to_owned()]));
}

proptest! {
    /// Whenever nothing is on its way, the fold of what was recorded is what is shown; and each state that was recorded is found again at its time.
    #[test]
    fn the_fold_of_the_records_is_what_was_shown(
        steps in proptest::collection::vec((proptest::collection::btree_map("[a-d]", 0_u8..3, 0..4), any::<bool>()), 1..40)
    ) {
        let mut recorder = recorder();
        let (mut stored, mut shown) = (Vec::<Arc<Record>>::new(), Vec::new());
        let fold = |stored: &[Arc<Record>], until: u64| {
            let mut tables = BTreeMap::new();
            let past = stored.iter().filter(|record| record.at <= until);
            past.flat_map(|record| &record.transitions).for_each(|transition| transition.apply(&mut tables));
            tables.remove(&View::Clusters).unwrap_or_default()
        };
        for (n, (rows, is_stored)) in (1..).zip(steps) {
            let rows: Vec<(&str, Value)> = rows.iter().map(|(key, setup)| (key.as_str(), json!(setup))).collect();
            let live = clusters(&rows);
            let record = recorder.poll(&live, &well(), at(n));
            stored.extend(record);
            if recorder.on_its_way.is_none() || stored.last().is_some_and(|last| last.at == at(n).wall) {
                shown.push((at(n).wall, Table::clone(&live[&View::Clusters])));
            }
            if is_stored {
                recorder.on_answer(StoreEvent::Stored { first: 1 });
            }
        }
        for (time, table) in shown {
            prop_assert_eq!(fold(&stored, time), table);
        }
    }
}
