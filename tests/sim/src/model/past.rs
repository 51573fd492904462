//! The console's history as its disk has it, beside what was shown whenever something was recorded.

use std::collections::BTreeMap;

use console::record::{Known, Record, Tables};
use fleet_view::deltas::Table;
use fleet_view::history::View;

/// What the console has recorded, and what it showed whenever it did.
#[derive(Debug, Default)]
pub struct Past {
    records: Vec<Record>,
    /// How many records there were, and the tables that were shown then.
    shown: Vec<(usize, Tables)>,
}

impl Past {
    /// The tables after so many records: the last snapshot before, and the transitions since.
    fn tables(&self, records: usize) -> BTreeMap<View, Table> {
        let before = &self.records[..records];
        let snapshot = before.iter().rposition(|record| record.snapshot.is_some());
        let mut tables = BTreeMap::new();
        if let Some(snapshot) = snapshot.and_then(|at| before[at].snapshot.as_ref()) {
            tables.extend(snapshot.iter().map(|(view, table)| (*view, Table::clone(table))));
        }
        for record in &before[snapshot.map_or(0, |at| at + 1)..] {
            record.transitions.iter().for_each(|transition| transition.apply(&mut tables));
        }
        tables
    }

    /// The first time at which the past is not what was shown then.
    #[must_use]
    pub fn contradiction(&self) -> Option<String> {
        if !self.records.is_sorted_by_key(|record| record.at) {
            return Some("the times of records go back".to_owned());
        }
        let (mut tables, mut shown) = (BTreeMap::<View, Table>::new(), self.shown.iter().peekable());
        for (record, number) in self.records.iter().zip(1..) {
            record.transitions.iter().for_each(|transition| transition.apply(&mut tables));
            let then = shown.next_if(|(records, _)| *records == number).map(|(_, tables)| tables);
            for was in [then, record.snapshot.as_ref()].into_iter().flatten() {
                let other =
                    was.iter().find(|(view, was)| tables.get(view).map_or(!was.is_empty(), |then| *then != ***was));
                if let Some((view, was)) = other {
                    let text = format!("{was:?}");
                    return Some(format!(
                        "table {view} at {} is not the one that was shown then: {text:.300}",
                        record.at
                    ));
                }
            }
            // As a reader does, who begins at a snapshot.
            if let Some(snapshot) = &record.snapshot {
                tables = snapshot.iter().map(|(view, table)| (*view, Table::clone(table))).collect();
            }
        }
        None
    }

    /// Number of records, and of times at which it is known what was shown.
    #[must_use]
    pub const fn len(&self) -> (usize, usize) {
        (self.records.len(), self.shown.len())
    }

    /// Stores a record, and what is shown now; gives the number of its first transition.
    pub fn store(&mut self, record: Record, shown: Option<Tables>) -> u64 {
        let first: usize = self.records.iter().map(|record| record.transitions.len()).sum();
        self.records.push(record);
        self.shown.extend(shown.map(|shown| (self.records.len(), shown)));
        first as u64
    }

    /// What a console is given that starts.
    #[must_use]
    pub fn known(&self) -> Known {
        let snapshot = self.records.iter().rposition(|record| record.snapshot.is_some());
        let since = self.records[snapshot.map_or(0, |at| at + 1)..].iter();
        Known {
            at: self.records.last().map_or(0, |record| record.at),
            tables: self.tables(self.records.len()),
            since_snapshot: since.map(|record| record.transitions.len() as u64).sum(),
            snapshot_at: snapshot.map(|at| self.records[at].at),
            events: Vec::new(),
        }
    }
}
