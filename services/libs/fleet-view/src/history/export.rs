//! The export of a history: lines of JSON, of which the first says what the file is and the last that nothing is missing.
//!
//! ```text
//! {"sparkfleetHistory":1,"organisation":"ACME","since":1793520000000,"until":1793606400000}
//! {"at":1793520000000,"view":"clusters","key":"6f...","change":{"row":{"key":"6f...","name":"Paint_Shop"}}}
//! {"at":1793520003000,"view":"clusters","key":"6f...","change":{"fields":{"set":{"edge":"dead"}}},"event":{"kind":"edge", ...}}
//! {"gap":{"since":1793530000000,"until":1793530060000,"reason":"the console was not running"}}
//! {"end":2}
//! ```
//!
//! The rows that were there at the beginning come first, as changes of that time. Changes follow in their order, so [`Replayed`] makes of them the tables as they were shown. It holds no
//! messages: what was said over Sparkplug cannot be made of it. Pure: it must not know where lines come from.

use std::collections::BTreeMap;
use std::sync::Arc;

use configdb_schema::timestamp;
use serde::{Deserialize, Serialize};

use super::{Change, Event, NotRecorded, View};
use crate::deltas::Table;

/// The version that is written and read.
pub const VERSION: u64 = 1;

/// Bytes of a line, at most: a row with some dozens of the longest texts.
pub const LINE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a key, at most.
const KEY_BYTES_MAX: usize = 4 * 1024;

/// Bytes of all rows at a time, at most, as JSON: those of more than 20,000 clusters.
const ROWS_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`VERSION`]
    #[serde(rename = "sparkfleetHistory")]
    pub version: u64,
    /// Whose fleet it was.
    pub organisation: String,
    /// From this time on, UTC ms.
    pub since: u64,
    /// Until this time, UTC ms.
    pub until: u64,
}

/// A span in which nothing was received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// When it began, UTC ms.
    pub since: u64,
    /// When it ended; None: it lasted.
    pub until: Option<u64>,
    /// Why nothing was received.
    pub reason: String,
}

/// A row that changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// When, UTC ms.
    pub at: u64,
    /// Its table.
    pub view: View,
    /// Its key.
    pub key: String,
    /// What became of it.
    pub change: Change,
    /// What that means to people; None: it says nothing new of how something stands.
    pub event: Option<Event>,
}

/// A line after the first.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// A row changed.
    Changed(Box<Changed>),
    /// Nothing was received for a time.
    Gap(Gap),
    /// The last line, with the number of changes before it.
    End(u64),
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The first one.
    #[error(
        "it is not an export of a console's history: its first line should be {{\"sparkfleetHistory\":{VERSION},...}}"
    )]
    NotExport,
    /// Another program wrote it.
    #[error("it is an export of version {0}; this program reads version {VERSION}")]
    Version(u64),
    /// It ends before it begins.
    #[error("since is later than until")]
    Times,
    /// It is too long.
    #[error("it is longer than {LINE_BYTES_MAX} bytes")]
    Long,
    /// It is not JSON, or has other fields.
    #[error("it is not a line of an export: {0}")]
    Malformed(String),
    /// The table.
    #[error("view: {0}")]
    View(NotRecorded),
    /// The key.
    #[error("key: it is longer than {KEY_BYTES_MAX} bytes")]
    Key,
    /// The time.
    #[error("at: it is earlier than that of the line before")]
    Earlier,
    /// Too much at a time.
    #[error("more than {} MiB of rows at a time are not replayed", ROWS_BYTES_MAX >> 20)]
    TooMuch,
    /// Lines are missing.
    #[error("end: {said} changes should come before it, and there are {found}")]
    Count {
        /// As the line says.
        said: u64,
        /// As they were counted.
        found: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "there is one of it, while a line is read or written")]
enum Written {
    Changed {
        at: u64,
        view: String,
        key: String,
        change: Change,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        event: Option<Event>,
    },
    Gap {
        gap: Gap,
    },
    End {
        end: u64,
    },
}

impl Header {
    /// Reads the first line.
    ///
    /// # Errors
    /// [`LineError`]
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        let value: serde_json::Value = serde_json::from_slice(line).map_err(|_| LineError::NotExport)?;
        let version = value.get("sparkfleetHistory").and_then(serde_json::Value::as_u64).ok_or(LineError::NotExport)?;
        if version != VERSION {
            return Err(LineError::Version(version));
        }
        let header: Self = serde_json::from_value(value).map_err(|error| LineError::Malformed(error.to_string()))?;
        if header.since > header.until { Err(LineError::Times) } else { Ok(header) }
    }
}

impl Line {
    /// Reads a line after the first.
    ///
    /// # Errors
    /// [`LineError`]
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        if line.len() > LINE_BYTES_MAX {
            return Err(LineError::Long);
        }
        let written = serde_json::from_slice(line).map_err(|error| {
            let forms = "it has none of the forms of one".to_owned();
            LineError::Malformed(if error.is_data() { forms } else { error.to_string() })
        })?;
        Ok(match written {
            Written::Changed { key, .. } if key.len() > KEY_BYTES_MAX => return Err(LineError::Key),
            Written::Changed { at, view, key, change, event } => {
                let view = view.parse().map_err(LineError::View)?;
                Self::Changed(Box::new(Changed { at, view, key, change, event }))
            }
            Written::Gap { gap } => Self::Gap(gap),
            Written::End { end } => Self::End(end),
        })
    }

    /// The line as it is written, with its end.
    #[must_use]
    pub fn to_text(self) -> String {
        let written = match self {
            Self::Changed(changed) => {
                let Changed { at, view, key, change, event } = *changed;
                Written::Changed { at, view: view.to_string(), key, change, event }
            }
            Self::Gap(gap) => Written::Gap { gap },
            Self::End(end) => Written::End { end },
        };
        // Its keys are texts, so that it has a JSON form.
        serde_json::to_string(&written).map(|text| text + "\n").unwrap_or_default()
    }
}

/// A time in UTC ms for people.
#[must_use]
pub fn moment(ms: u64) -> String {
    timestamp::at(ms).map_or_else(|| format!("{ms} ms"), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// The tables at a point of an export.
#[derive(Debug, Clone, Default)]
pub struct Replayed {
    tables: BTreeMap<View, Arc<Table>>,
    /// Bytes of all rows, as JSON.
    bytes: usize,
    at: u64,
    changes: u64,
}

impl Replayed {
    /// Takes the next line.
    ///
    /// # Errors
    /// [`LineError`]; the tables are those before it.
    pub fn apply(&mut self, line: &Line) -> Result<(), LineError> {
        match line {
            Line::Changed(changed) => self.change(changed),
            Line::Gap(_) => Ok(()),
            Line::End(said) if *said != self.changes => Err(LineError::Count { said: *said, found: self.changes }),
            Line::End(_) => Ok(()),
        }
    }

    fn change(&mut self, changed: &Changed) -> Result<(), LineError> {
        if changed.at < self.at {
            return Err(LineError::Earlier);
        }
        let table = Arc::make_mut(self.tables.entry(changed.view).or_default());
        let size = |table: &Table| table.get(&changed.key).map_or(0, |row| changed.key.len() + row.to_string().len());
        let before = size(table);
        changed.change.apply(&changed.key, table);
        self.bytes = self.bytes.saturating_sub(before) + size(table);
        (self.at, self.changes) = (changed.at, self.changes + 1);
        if self.bytes > ROWS_BYTES_MAX { Err(LineError::TooMuch) } else { Ok(()) }
    }

    /// A table as it was then.
    #[must_use]
    pub fn table(&self, view: View) -> Arc<Table> {
        self.tables.get(&view).map(Arc::clone).unwrap_or_default()
    }

    /// The time of the last change, UTC ms; 0: there was none.
    #[must_use]
    pub const fn at(&self) -> u64 {
        self.at
    }

    /// Changes until now.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::transitions;
    use proptest::prelude::*;
    use serde_json::json;

    fn table() -> impl Strategy<Value = Table> {
        let row = (0_u8..3, "[a-c]").prop_map(|(n, text)| json!({ "state": text, "n": n }));
        proptest::collection::btree_map("[a-d]", row, 0..5)
    }

    proptest! {
        #[test]
        fn what_is_replayed_is_what_was_shown(states in proptest::collection::vec((0_usize..View::ALL.len(), table()), 1..20)) {
            let (mut shown, mut replayed) = (BTreeMap::<View, Table>::new(), Replayed::default());
            for (at, (view, table)) in (1..).zip(states) {
                let view = View::ALL[view];
                for transition in transitions(view, shown.get(&view).unwrap_or(&Table::new()), &table) {
                    let (key, change, event) = (transition.key, transition.change, transition.event);
                    let text = Line::Changed(Box::new(Changed { at, view, key, change, event })).to_text();
                    replayed.apply(&Line::parse(text.trim_end().as_bytes()).unwrap()).unwrap();
                }
                shown.insert(view, table);
                for view in View::ALL {
                    prop_assert_eq!(&*replayed.table(view), &shown.get(&view).cloned().unwrap_or_default());
                }
            }
            prop_assert_eq!(replayed.apply(&Line::End(replayed.changes())), Ok(()));
            let missing = Line::End(replayed.changes() + 1);
            let is_missing = matches!(replayed.apply(&missing), Err(LineError::Count { .. }));
            prop_assert!(is_missing);
        }
    }

    #[test]
    fn another_file_is_refused_by_what_is_wrong_with_it() {
        let header = r#"{"sparkfleetHistory":1,"organisation":"ACME","since":1,"until":2}"#;
        assert_eq!(Header::parse(header.as_bytes()).unwrap().organisation, "ACME");
        for (text, wrong) in [
            ("", "not an export"),
            (r#"{"sparkplugRecording":1}"#, "not an export"),
            (r#"{"sparkfleetHistory":2}"#, "of version 2"),
            (r#"{"sparkfleetHistory":1}"#, "missing field `organisation`"),
            (r#"{"sparkfleetHistory":1,"organisation":"A","since":2,"until":1}"#, "since is later"),
        ] {
            let error = Header::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(wrong), "{text}: {error}");
        }
        let deep = format!(
            r#"{{"at":1,"view":"hosts","key":"k","change":{{"row":{}1{}}}}}"#,
            "[".repeat(5_000),
            "]".repeat(5_000)
        );
        let foreign = r#"{"at":1,"view":"nodes","key":"k","change":"gone"}"#.to_owned();
        let key = format!(r#"{{"at":1,"view":"hosts","key":"{}","change":"gone"}}"#, "k".repeat(KEY_BYTES_MAX + 1));
        let long = format!(r#"{{"end":{}1}}"#, " ".repeat(LINE_BYTES_MAX));
        let of_message = r#"{"time":"2026-11-24T08:00:00Z","topic":"a","payload":"CAE="}"#.to_owned();
        for (text, wrong) in [
            (deep, "not a line of an export"),
            (foreign, "view: its past is not recorded"),
            (key, "key: it is longer"),
            (long, "longer than 1048576 bytes"),
            (of_message, "not a line of an export"),
        ] {
            let error = Line::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.len() < 300, "{error}");
        }
    }

    #[test]
    fn rows_without_end_and_a_time_that_falls_are_refused() {
        let row = |at, n: usize| {
            let change = Change::Row(json!({ "text": "x".repeat(LINE_BYTES_MAX - 4_096) }));
            Line::Changed(Box::new(Changed { at, view: View::Hosts, key: n.to_string(), change, event: None }))
        };
        let mut replayed = Replayed::default();
        let refused = (0..1_000).find_map(|n| replayed.apply(&row(5, n)).err());
        assert_eq!(refused, Some(LineError::TooMuch));
        assert!(replayed.changes() < 260);
        // The same row again and again is one row.
        let mut replayed = Replayed::default();
        assert!((0..400).all(|_| replayed.apply(&row(5, 1)).is_ok()));
        assert_eq!(replayed.apply(&row(4, 1)), Err(LineError::Earlier));
    }
}
