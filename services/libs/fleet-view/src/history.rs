//! What happened: the differences between two states of the recorded tables, as transitions that lead from one to the other, and as events for people.
//!
//! ```text
//! tables as they were, tables as they are -> transitions -> event.rs: sentences
//!                       tables as they were + transitions = tables as they are
//! ```
//!
//! A transition holds what the state at a later time is made of, whatever field changed. It has an event only if a field changed that says how something stands, so that what
//! changes all the time makes no events. Pure: it must not know what time it is or where transitions are stored.

mod event;
pub mod export;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::deltas::Table;

pub use event::Event;

/// A table whose states are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum View {
    /// Counters.
    Fleet,
    /// Edge clusters.
    Clusters,
    /// Hosts.
    Hosts,
    /// Deployments.
    Deployments,
    /// Active alerts.
    Alerts,
    /// Nodes that say which program they are.
    Services,
    /// Staged rollouts.
    Rollout,
}

impl View {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Fleet, Self::Clusters, Self::Hosts, Self::Deployments, Self::Alerts, Self::Services, Self::Rollout];

    /// Name of the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::Clusters => "clusters",
            Self::Hosts => "hosts",
            Self::Deployments => "deployments",
            Self::Alerts => "alerts",
            Self::Services => "services",
            Self::Rollout => "rollout",
        }
    }

    /// Name of the cluster that a row belongs to; None: it belongs to none, or to several.
    #[must_use]
    pub fn cluster_of(self, row: &Value) -> Option<&str> {
        let field = match self {
            Self::Clusters => "name",
            Self::Hosts | Self::Deployments | Self::Alerts => "cluster",
            Self::Fleet | Self::Services | Self::Rollout => return None,
        };
        row.get(field).and_then(Value::as_str)
    }

    /// Whether its rows are made of those of several clusters.
    #[must_use]
    pub const fn is_joint(self) -> bool {
        matches!(self, Self::Fleet | Self::Rollout)
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// No table of that name is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotRecorded;

impl fmt::Display for NotRecorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its past is not recorded; that of ")?;
        View::ALL.iter().try_for_each(|view| write!(f, "{}{view}", if *view == View::Fleet { "" } else { ", " }))?;
        f.write_str(" is")
    }
}

impl std::error::Error for NotRecorded {}

impl FromStr for View {
    type Err = NotRecorded;

    fn from_str(text: &str) -> Result<Self, NotRecorded> {
        Self::ALL.into_iter().find(|view| view.as_str() == text).ok_or(NotRecorded)
    }
}

/// What became of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It is there now, or is no longer an object of the same kind.
    Row(Value),
    /// Some of its fields are others.
    Fields {
        /// Those that came or changed.
        set: Map<String, Value>,
        /// Names of those that went.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        del: Vec<String>,
    },
    /// It is there no more.
    Gone,
}

impl Change {
    /// What makes `new` of `old`.
    fn between(old: &Value, new: &Value) -> Self {
        let (Value::Object(old), Value::Object(new)) = (old, new) else { return Self::Row(new.clone()) };
        let changed = new.iter().filter(|(name, value)| old.get(*name) != Some(value));
        Self::Fields {
            set: changed.map(|(name, value)| (name.clone(), value.clone())).collect(),
            del: old.keys().filter(|name| !new.contains_key(*name)).cloned().collect(),
        }
    }

    /// Brings the row of `key` up to date.
    pub fn apply(&self, key: &str, table: &mut Table) {
        match self {
            Self::Row(row) => {
                table.insert(key.to_owned(), row.clone());
            }
            Self::Gone => {
                table.remove(key);
            }
            Self::Fields { set, del } => {
                // A change of a row that is not there says what is known of it.
                let row = table.entry(key.to_owned()).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(fields) = row {
                    fields.retain(|name, _| !del.contains(name));
                    fields.extend(set.iter().map(|(name, value)| (name.clone(), value.clone())));
                }
            }
        }
    }
}

/// A row that changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// Its table.
    pub view: View,
    /// Its key.
    pub key: String,
    /// What became of it.
    pub change: Change,
    /// What that means to people; None: it says nothing new of how something stands.
    pub event: Option<Event>,
}

impl Transition {
    /// Brings the table of its view up to date.
    pub fn apply(&self, tables: &mut BTreeMap<View, Table>) {
        self.change.apply(&self.key, tables.entry(self.view).or_default());
    }
}

/// What leads from one state of a table to another, by key.
#[must_use]
pub fn transitions(view: View, old: &Table, new: &Table) -> Vec<Transition> {
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key, Change::Gone));
    let set = new.iter().filter_map(|(key, row)| match old.get(key) {
        None => Some((key, Change::Row(row.clone()))),
        Some(known) if known == row => None,
        Some(known) => Some((key, Change::between(known, row))),
    });
    let of = |(key, change): (&String, Change)| Transition {
        view,
        key: key.clone(),
        event: Event::of(view, key, old.get(key), new.get(key)),
        change,
    };
    gone.chain(set).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn row() -> impl Strategy<Value = Value> {
        let field = prop_oneof![Just(Value::Null), (0_u8..3).prop_map(Value::from), "[a-c]".prop_map(Value::from)];
        let name = prop_oneof![Just("state"), Just("health"), Just("name"), Just("git")].prop_map(str::to_owned);
        let object = proptest::collection::btree_map(name, field, 0..4).prop_map(|fields| json!(fields));
        prop_oneof![9 => object, 1 => Just(json!([1]))]
    }

    fn table() -> impl Strategy<Value = Table> {
        proptest::collection::btree_map("[a-d]", row(), 0..5)
    }

    proptest! {
        /// The state at any time is what was shown at that time.
        #[test]
        fn the_tables_at_a_time_are_those_that_were_shown_then(
            states in proptest::collection::vec((0_usize..View::ALL.len(), table()), 1..20),
            snapshot_each in 1_usize..6,
        ) {
            let (mut live, mut shown) = (BTreeMap::<View, Table>::new(), Vec::new());
            let (mut log, mut snapshots) = (Vec::new(), vec![(0, BTreeMap::new())]);
            for (n, (view, table)) in states.into_iter().enumerate() {
                let view = View::ALL[view];
                log.extend(transitions(view, live.get(&view).unwrap_or(&Table::new()), &table));
                live.insert(view, table);
                shown.push((log.len(), live.clone()));
                if n % snapshot_each == 0 {
                    snapshots.push((log.len(), live.clone()));
                }
            }
            for (until, shown) in shown {
                let (from, snapshot) = snapshots.iter().rev().find(|(from, _)| *from <= until).unwrap();
                let mut then = snapshot.clone();
                log[*from..until].iter().for_each(|transition| transition.apply(&mut then));
                for view in View::ALL {
                    prop_assert_eq!(then.remove(&view).unwrap_or_default(), shown.get(&view).cloned().unwrap_or_default());
                }
            }
        }

        #[test]
        fn a_change_is_read_as_it_was_written(old in table(), new in table()) {
            for transition in transitions(View::Hosts, &old, &new) {
                let text = serde_json::to_string(&transition.change).unwrap();
                prop_assert_eq!(serde_json::from_str::<Change>(&text).unwrap(), transition.change);
            }
        }

        #[test]
        fn what_did_not_change_makes_no_transition(table in table()) {
            prop_assert!(transitions(View::Clusters, &table, &table).is_empty());
        }
    }

    #[test]
    fn a_transition_holds_the_fields_that_changed_and_no_others() {
        let table = |row| Table::from([("k".to_owned(), row)]);
        let (old, new) = (json!({ "key": "k", "a": 1, "b": [2] }), json!({ "key": "k", "b": [3], "c": null }));
        let found = transitions(View::Hosts, &table(old), &table(new));
        let text = serde_json::to_string(&found[0].change).unwrap();
        assert_eq!((found.len(), text.as_str()), (1, r#"{"fields":{"set":{"b":[3],"c":null},"del":["a"]}}"#));
    }

    #[test]
    fn views_are_read_by_their_names() {
        for view in View::ALL {
            assert_eq!(view.to_string().parse(), Ok(view));
        }
        let error = "nodes".parse::<View>().unwrap_err().to_string();
        assert!(error.contains("that of fleet, clusters, hosts,") && error.ends_with("rollout is"), "{error}");
    }
}
