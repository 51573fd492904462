//! Transactions whose parts have arrived one by one and wait for their commit. In memory only: a transaction that was not committed when the process ends has changed nothing. Bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use configdb_contract::{PartRequest, WriteRequest, names};

use crate::model::Refusal;

/// Transactions that wait at the same time.
const OPEN_MAX: usize = 4;
/// JSON of all parts that wait, in bytes.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// Parts of all transactions that wait.
const PARTS_MAX: usize = 400_000;
/// A transaction of which nothing has arrived for so long is forgotten.
const IDLE: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
struct Open {
    parts: BTreeMap<u64, WriteRequest>,
    bytes: usize,
    touched: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Transactions {
    open: BTreeMap<String, Open>,
}

impl Transactions {
    /// Keeps a part. `now`: monotonic.
    pub(super) fn stage(&mut self, part: PartRequest, now: Duration) -> Result<(), Refusal> {
        let refuse = |reason: String| Err(Refusal { field: names::TRANSACTION_ID.to_owned(), reason });
        self.open.retain(|_, open| open.touched + IDLE > now);
        let PartRequest { transaction, position, write } = part;
        let waiting = self.open.len();
        let bytes = serde_json::to_vec(&write).map_or(0, |json| json.len());
        let total: usize = self.open.values().map(|open| open.bytes).sum();
        let parts: usize = self.open.values().map(|open| open.parts.len()).sum();
        let known = self.open.get_mut(&transaction);
        if let Some(same) = known.as_ref().and_then(|open| open.parts.get(&position)) {
            return if *same == write {
                Ok(())
            } else {
                refuse(format!("part {position} has arrived with another content; begin another transaction"))
            };
        }
        if total + bytes > BYTES_MAX || parts >= PARTS_MAX {
            return refuse(format!(
                "the parts that wait for a commit would take more than {BYTES_MAX} bytes or {PARTS_MAX} parts; write less in one transaction"
            ));
        }
        let open = match known {
            Some(open) => open,
            None if waiting >= OPEN_MAX => {
                return refuse(format!("{waiting} transactions wait for their commit; try again later"));
            }
            None => self.open.entry(transaction).or_default(),
        };
        open.touched = now;
        open.bytes += bytes;
        open.parts.insert(position, write);
        Ok(())
    }

    /// The parts of a transaction that is to be carried out, in order; it does not wait any more, unless parts are missing.
    pub(super) fn take(&mut self, transaction: &str, parts: u64) -> Result<Vec<WriteRequest>, Refusal> {
        let arrived = self.open.get(transaction).map_or(0, |open| open.parts.len()) as u64;
        let last = self.open.get(transaction).and_then(|open| open.parts.last_key_value()).map(|(last, _)| *last);
        if arrived != parts || last.is_some_and(|last| last.checked_add(1) != Some(parts)) {
            let reason = format!(
                "of {parts} parts {arrived} have arrived; send all of them again, because a ConfigDB that was restarted has none"
            );
            return Err(Refusal { field: names::TRANSACTION_COMMIT.to_owned(), reason });
        }
        let open = self.open.remove(transaction).unwrap_or_default();
        Ok(open.parts.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn part(transaction: &str, position: u64) -> PartRequest {
        let write = WriteRequest::put(format!("r{position}"), Uuid::from_u128(1)).delete("Info");
        PartRequest { transaction: transaction.to_owned(), position, write }
    }

    fn ids(parts: Vec<WriteRequest>) -> Vec<String> {
        parts.into_iter().map(|part| part.id).collect()
    }

    #[test]
    fn parts_are_taken_in_order_once_all_are_there() {
        let mut transactions = Transactions::default();
        for position in [2, 0, 2] {
            transactions.stage(part("t", position), Duration::ZERO).unwrap();
        }
        assert!(transactions.take("t", 3).unwrap_err().reason.starts_with("of 3 parts 2 have arrived"));
        assert!(transactions.take("t", 2).is_err(), "there is a hole");
        transactions.stage(part("t", 1), Duration::ZERO).unwrap();
        assert_eq!(ids(transactions.take("t", 3).unwrap()), ["r0", "r1", "r2"]);
        assert!(transactions.take("t", 3).is_err(), "they are taken once");
        assert_eq!(ids(transactions.take("nothing", 0).unwrap()), [""; 0]);
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_idle_is_forgotten() {
        let mut transactions = Transactions::default();
        for n in 0..OPEN_MAX {
            transactions.stage(part(&n.to_string(), 0), Duration::from_secs(n as u64)).unwrap();
        }
        assert!(transactions.stage(part("more", 0), IDLE / 2).unwrap_err().reason.contains("try again later"));
        transactions.stage(part("more", 0), IDLE).unwrap();
        assert!(transactions.take("0", 1).is_err() && transactions.take("1", 1).is_ok());
        let mut large = part("more", 1);
        large.write = large.write.entry("Info", serde_json::Value::String("x".repeat(BYTES_MAX)));
        assert!(transactions.stage(large, IDLE).is_err());
        let mut other = part("more", 0);
        other.write.id = "other".to_owned();
        assert!(transactions.stage(other, IDLE).unwrap_err().reason.contains("another content"));
    }
}
