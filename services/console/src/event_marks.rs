//! Numbers of events for users whose credential is for some clusters. A number counts the events of all clusters, so two of them would say how much happened elsewhere. Such a user
//! gets it encrypted, as a mark. Only the console that made a mark can read it.

use std::fmt;

use aws_lc_rs::cipher::{AES_128, DecryptingKey, DecryptionContext, EncryptingKey, UnboundCipherKey};

/// Bytes of the key, and of the one block that a mark is.
pub(crate) const KEY_BYTES: usize = 16;

/// The bytes of a block before the number; that they are zero shows that a mark was made here.
const PADDING: usize = KEY_BYTES - size_of::<u64>();

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EventMarks {
    key: [u8; KEY_BYTES],
}

impl EventMarks {
    /// Marks under a key that no other process has.
    #[must_use]
    pub const fn new(key: [u8; KEY_BYTES]) -> Self {
        Self { key }
    }

    /// The mark of a number: 32 hexadecimal digits, the same ones each time.
    #[must_use]
    pub fn mark(&self, number: u64) -> String {
        let mut block = [0; KEY_BYTES];
        block[PADDING..].copy_from_slice(&number.to_be_bytes());
        let key = UnboundCipherKey::new(&AES_128, &self.key).and_then(EncryptingKey::ecb);
        // A key of this length and a single block are always taken.
        let encrypted = key.and_then(|key| key.encrypt(&mut block));
        encrypted.map_or_else(|_| String::new(), |_| hex::encode(block))
    }

    /// The number of a mark; None: it was not made under this key.
    #[must_use]
    pub fn number(&self, mark: &str) -> Option<u64> {
        let mut block = [0; KEY_BYTES];
        hex::decode_to_slice(mark, &mut block).ok()?;
        let key = UnboundCipherKey::new(&AES_128, &self.key).and_then(DecryptingKey::ecb).ok()?;
        let plain = key.decrypt(&mut block, DecryptionContext::None).ok()?;
        let (padding, number) = plain.split_at_checked(PADDING)?;
        let is_own = padding.iter().all(|byte| *byte == 0);
        number.try_into().ok().map(u64::from_be_bytes).filter(|_| is_own)
    }
}

impl fmt::Debug for EventMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventMarks").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_by_who_made_it_and_shows_no_order() {
        let marks = EventMarks::new([7; KEY_BYTES]);
        for number in [0, 1, 2, 1_000_000, u64::MAX] {
            let mark = marks.mark(number);
            assert_eq!((mark.len(), marks.number(&mark)), (32, Some(number)));
            assert_eq!(EventMarks::new([8; KEY_BYTES]).number(&mark), None, "another process");
        }
        assert_eq!(marks.mark(5), marks.mark(5));
        let shared = marks.mark(1).bytes().zip(marks.mark(2).bytes()).filter(|(a, b)| a == b).count();
        assert!(shared < 16, "two neighbours have little in common: {shared} of 32 digits");
        for wrong in ["", "5", "xyz", &"0".repeat(32), &"0".repeat(64)] {
            assert_eq!(marks.number(wrong), None, "{wrong}");
        }
        assert!(!format!("{marks:?}").contains('7'));
    }
}
