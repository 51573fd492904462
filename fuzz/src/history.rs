//! What `sparkfleet up --replay` reads: no file makes the reader of exports of a history panic, and lines that are read are written and read again as the same.
//!
//! Apart from the other targets, because a test of `fleet-view` includes this file by its path.

use fleet_view::history::View;
use fleet_view::history::export::{Header, Line, LineError, Replayed};

/// A fuzz target: its name, which is that of its folder of seeds, too, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 1] = [("history_export", export)];

/// Bytes as the lines of an export; a line that is wrong ends it, as it ends a replay.
pub fn export(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    match Header::parse(first) {
        Ok(header) => assert!(header.since <= header.until),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let mut replayed = Replayed::default();
    for line in lines {
        let line = match Line::parse(line) {
            Ok(line) => line,
            Err(error) => return assert!(!error.to_string().is_empty()),
        };
        let written = line.clone().to_text();
        assert_eq!(Line::parse(written.trim_end().as_bytes()).as_ref(), Ok(&line), "a line of a line says the same");
        let (changes, at) = (replayed.changes(), replayed.at());
        match replayed.apply(&line) {
            Ok(()) => assert!(replayed.at() >= at, "time does not go back"),
            Err(LineError::TooMuch) => return,
            Err(_) => {
                assert_eq!(
                    (replayed.changes(), replayed.at()),
                    (changes, at),
                    "a line that is refused changes nothing"
                );
                return;
            }
        }
    }
    let rows: usize = View::ALL.into_iter().map(|view| replayed.table(view).len()).sum();
    assert!(u64::try_from(rows).is_ok_and(|rows| rows <= replayed.changes()), "a row comes by a change");
}
