//! The chain of the records of writes. Each line has its number and the hash of the line before it, so that no line can be changed, left out or inserted unnoticed.
//!
//! A user who can write the file can also write all of it again from one line on. Keep the head elsewhere from time to time (the log has every record, too): what follows a kept head is as it was.

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Map, Value};

/// Member with the number of the record.
pub const NUMBER: &str = "number";
/// Member with the hash of the line before: SHA-256 of its bytes without the line break, 64 hexadecimal digits.
pub const PREVIOUS: &str = "previous";

/// Where a chain is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Number of the last record; 0: there is none.
    pub number: u64,
    /// Hash of the last line; zeros: there is none.
    pub head: String,
}

/// A file that holds together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Lines from before records were chained: nothing is said of them.
    pub unchained: usize,
    /// Chained records.
    pub records: usize,
    /// What the first chained record says of the line before it. It is zeros if the chain begins in this file, otherwise the head of the file that was rotated away before it.
    pub begins_after: String,
    /// Where the chain is at the end.
    pub end: Chain,
}

/// A line does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} {rule}")]
pub struct ChainFault {
    /// Which, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub rule: &'static str,
}

impl Chain {
    /// Before the first record.
    #[must_use]
    pub fn begin() -> Self {
        Self { number: 0, head: "0".repeat(64) }
    }

    /// After an existing line.
    #[must_use]
    pub fn after(line: &[u8]) -> Self {
        let number = serde_json::from_slice::<Value>(line).ok().and_then(|value| value.get(NUMBER)?.as_u64());
        Self { number: number.unwrap_or(0), head: hash(line) }
    }

    /// The line of the next record, without the line break.
    #[must_use]
    pub fn line(&self, mut record: Map<String, Value>) -> Vec<u8> {
        record.insert(NUMBER.to_owned(), self.number.saturating_add(1).into());
        record.insert(PREVIOUS.to_owned(), self.head.clone().into());
        Value::Object(record).to_string().into_bytes()
    }
}

fn hash(line: &[u8]) -> String {
    hex::encode(digest(&SHA256, line))
}

/// Follows the chain through a file.
///
/// # Errors
/// The first line that does not fit.
pub fn verify(file: &[u8]) -> Result<Verified, ChainFault> {
    let mut verified = Verified { unchained: 0, records: 0, begins_after: "0".repeat(64), end: Chain::begin() };
    let lines = file.strip_suffix(b"\n").unwrap_or(file).split(|byte| *byte == b'\n').enumerate();
    for (index, line) in lines.filter(|_| !file.is_empty()) {
        let fault = |rule| Err(ChainFault { line: index + 1, rule });
        let Ok(Value::Object(record)) = serde_json::from_slice(line) else { return fault("is not a record") };
        let number = record.get(NUMBER).and_then(Value::as_u64);
        let previous = record.get(PREVIOUS).and_then(Value::as_str);
        match (number, previous) {
            (Some(number), Some(previous)) => {
                let is_first = verified.records == 0 && verified.unchained == 0;
                if is_first {
                    previous.clone_into(&mut verified.begins_after);
                } else if previous != verified.end.head {
                    return fault("does not follow the line before it: one of them was changed, or lines are missing");
                } else if number != verified.end.number + 1 {
                    return fault("has another number than the one that follows");
                }
                verified.records += 1;
            }
            _ if verified.records == 0 => verified.unchained += 1,
            _ => return fault("is not chained, and the one before it is"),
        }
        verified.end = Chain::after(line);
    }
    Ok(verified)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn file(records: usize) -> Vec<Vec<u8>> {
        let mut chain = Chain::begin();
        let mut lines = Vec::new();
        for at in 0..records {
            let Value::Object(record) = json!({"at": at, "who": "token:ada", "result": "done"}) else { unreachable!() };
            let line = chain.line(record);
            chain = Chain::after(&line);
            lines.push(line);
        }
        lines
    }

    fn joined(lines: &[Vec<u8>]) -> Vec<u8> {
        lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect()
    }

    #[test]
    fn a_file_holds_together_alone_and_after_one_that_was_rotated_away() {
        let lines = file(5);
        let whole = verify(&joined(&lines)).unwrap();
        assert_eq!((whole.records, whole.unchained, whole.end.number), (5, 0, 5));
        assert_eq!(whole.begins_after, "0".repeat(64));
        let (old, new) = (verify(&joined(&lines[..2])).unwrap(), verify(&joined(&lines[2..])).unwrap());
        assert_eq!(new.begins_after, old.end.head);
        assert_eq!(new.end, whole.end);
        assert_eq!(verify(b"").unwrap().end, Chain::begin());
    }

    #[test]
    fn what_was_there_before_the_chain_is_part_of_its_first_link() {
        let old = br#"{"at":1,"who":"token:a"}"#;
        let Value::Object(record) = json!({"at": 2}) else { unreachable!() };
        let line = Chain::after(old).line(record);
        let text = |old: &[u8]| [old, b"\n", &line, b"\n"].concat();
        assert_eq!(verify(&text(old)).map(|v| (v.unchained, v.records)), Ok((1, 1)));
        assert!(verify(&text(br#"{"at":1,"who":"token:b"}"#)).is_err());
        assert!(
            verify(&[&line[..], b"\n", old].concat()).unwrap_err().to_string().starts_with("line 2 is not chained")
        );
        assert!(verify(b"{\n").unwrap_err().to_string().starts_with("line 1 is not a record"));
    }

    proptest! {
        #[test]
        fn a_line_that_is_changed_left_out_repeated_or_exchanged_is_noticed(at in 0_usize..9, how in 0_u8..4) {
            let mut lines = file(10);
            match how {
                0 => {
                    let text = String::from_utf8(lines[at].clone()).unwrap();
                    lines[at] = text.replace("ada", "bob").into_bytes();
                }
                1 => lines.insert(at, lines[at].clone()),
                2 => lines.swap(at, at + 1),
                _ => drop(lines.remove(at)),
            }
            let verified = verify(&joined(&lines));
            // Without its first line a file looks like one that follows another; what it follows is reported.
            let is_cut = how == 3 && at == 0;
            prop_assert_eq!(verified.is_err(), !is_cut);
            if let Ok(verified) = verified {
                prop_assert_ne!(verified.begins_after, "0".repeat(64));
            }
        }
    }
}
