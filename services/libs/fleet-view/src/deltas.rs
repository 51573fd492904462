//! What changed between two states of a table: `apply(old, between(old, new)) == new`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

/// The rows of a table by key.
pub type Table = BTreeMap<String, Value>;

/// Rows that came or changed, and keys of rows that went.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Deltas {
    /// Whole rows as they are now.
    pub set: Table,
    /// Keys of rows that are there no more.
    pub del: BTreeSet<String>,
}

impl Deltas {
    /// What makes `new` of `old`.
    #[must_use]
    pub fn between(old: &Table, new: &Table) -> Self {
        let changed = new.iter().filter(|(key, row)| old.get(*key) != Some(row));
        Self {
            set: changed.map(|(key, row)| (key.clone(), row.clone())).collect(),
            del: old.keys().filter(|key| !new.contains_key(*key)).cloned().collect(),
        }
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.del.is_empty()
    }

    /// Brings `table` up to date.
    pub fn apply(&self, table: &mut Table) {
        table.retain(|key, _| !self.del.contains(key));
        table.extend(self.set.iter().map(|(key, row)| (key.clone(), row.clone())));
    }

    /// These, and then `later`, as one.
    pub fn followed_by(&mut self, later: &Self) {
        for key in &later.del {
            self.set.remove(key);
            self.del.insert(key.clone());
        }
        for (key, row) in &later.set {
            self.del.remove(key);
            self.set.insert(key.clone(), row.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table() -> impl Strategy<Value = Table> {
        proptest::collection::btree_map("[a-f]", (0_u8..4).prop_map(|n| serde_json::json!({ "n": n })), 0..6)
    }

    proptest! {
        #[test]
        fn deltas_applied_to_the_old_table_give_the_new_one(old in table(), new in table()) {
            let mut applied = old.clone();
            Deltas::between(&old, &new).apply(&mut applied);
            prop_assert_eq!(applied, new);
        }

        #[test]
        fn deltas_one_after_the_other_are_as_one(a in table(), b in table(), c in table()) {
            let mut both = Deltas::between(&a, &b);
            both.followed_by(&Deltas::between(&b, &c));
            let mut applied = a.clone();
            both.apply(&mut applied);
            prop_assert_eq!(applied, c);
        }

        #[test]
        fn nothing_changes_between_a_table_and_itself(table in table()) {
            prop_assert!(Deltas::between(&table, &table).is_empty());
        }
    }
}
