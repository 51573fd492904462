//! Puts the messages of one edge node back into the order of their `seq` (tck-id-operational-behavior-host-reordering-start and its siblings).
//! The timer of a gap belongs to the caller.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{BuildHasher, Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::FixedState;

use crate::name::DeviceId;
use crate::seq::Seq;
use crate::topic::MessageKind;

/// A message that came too early.
#[derive(Debug)]
pub(super) struct BufferedMessage {
    pub kind: MessageKind,
    pub device: Option<DeviceId>,
    pub payload: Bytes,
    pub timestamp: Option<u64>,
    /// When it arrived.
    pub received: Duration,
}

/// Where a `seq` belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SequencePosition {
    /// It is the one to process.
    Next,
    /// It has been processed already, bytes and all.
    Duplicate,
    /// Something is missing before it.
    Early,
}

/// Two different messages claim one `seq`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Conflict;

#[derive(Debug)]
pub(super) struct Resequencer {
    next: Seq,
    /// Of the message processed last.
    last_digest: u64,
    held: BTreeMap<Seq, BufferedMessage>,
    held_bytes: usize,
}

impl Resequencer {
    /// After an NBIRTH with this `seq`.
    pub(super) const fn after_birth(seq: Seq, digest: u64) -> Self {
        Self { next: seq.next(), last_digest: digest, held: BTreeMap::new(), held_bytes: 0 }
    }

    /// A `seq` that was processed last is a duplicate only if the bytes are the same: after a loss of 255 messages another message carries it.
    pub(super) fn place(&self, seq: Seq, digest: u64) -> SequencePosition {
        match seq.steps_after(self.next) {
            0 => SequencePosition::Next,
            255 if digest == self.last_digest => SequencePosition::Duplicate,
            _ => SequencePosition::Early,
        }
    }

    /// The message that was [`SequencePosition::Next`] is processed.
    pub(super) const fn advance(&mut self, digest: u64) {
        self.next = self.next.next();
        self.last_digest = digest;
    }

    /// Keeps an early message.
    ///
    /// # Errors
    /// Another message claims the same `seq`.
    pub(super) fn hold(&mut self, seq: Seq, held: BufferedMessage) -> Result<(), Conflict> {
        match self.held.entry(seq) {
            Entry::Vacant(slot) => {
                self.held_bytes += held.payload.len();
                slot.insert(held);
                Ok(())
            }
            Entry::Occupied(slot) => {
                let known = slot.get();
                let same = (known.kind, &known.device, &known.payload) == (held.kind, &held.device, &held.payload);
                if same { Ok(()) } else { Err(Conflict) }
            }
        }
    }

    /// When the message arrived that has been waiting longest.
    pub(super) fn waiting_since(&self) -> Option<Duration> {
        self.held.values().map(|held| held.received).min()
    }

    /// The held message whose turn it is.
    pub(super) fn take_next(&mut self) -> Option<BufferedMessage> {
        let held = self.held.remove(&self.next)?;
        self.held_bytes -= held.payload.len();
        Some(held)
    }

    /// Number and bytes of the held messages.
    pub(super) fn held(&self) -> (usize, usize) {
        (self.held.len(), self.held_bytes)
    }

    /// What is missing first, for people.
    pub(super) const fn missing(&self) -> u64 {
        self.next.get()
    }

    /// Gives up on what is held.
    pub(super) fn clear(&mut self) {
        self.held.clear();
        self.held_bytes = 0;
    }

    /// Takes over what `earlier` holds and was sent after the birth: it overtook the birth on its way.
    pub(super) fn inherit(&mut self, earlier: Self, birth_timestamp: u64) {
        for (seq, held) in earlier.held {
            if held.timestamp.is_some_and(|t| t >= birth_timestamp) {
                self.held_bytes += held.payload.len();
                self.held.insert(seq, held);
            }
        }
    }
}

/// Distinguishes packets that carry the same `seq`. Not meant to resist an adversary: an edge node can only confuse the replica of itself.
pub(super) fn digest(kind: MessageKind, device: Option<&DeviceId>, payload: &[u8]) -> u64 {
    let mut hasher = FixedState::with_seed(kind as u64).build_hasher();
    device.hash(&mut hasher);
    payload.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seq(n: u64) -> Seq {
        Seq::from_wire(n).expect("valid")
    }

    fn held(n: u8) -> BufferedMessage {
        BufferedMessage {
            kind: MessageKind::NData,
            device: None,
            payload: vec![n].into(),
            timestamp: Some(n.into()),
            received: Duration::from_secs(n.into()),
        }
    }

    #[test]
    fn early_messages_come_out_in_order_once_the_gap_is_closed() {
        let mut order = Resequencer::after_birth(seq(254), 0);
        assert_eq!(order.place(seq(1), 9), SequencePosition::Early);
        for n in [1, 0, 0] {
            assert_eq!(order.hold(seq(n.into()), held(n)), Ok(()));
        }
        assert_eq!(order.hold(seq(0), held(7)), Err(Conflict));
        assert_eq!(order.waiting_since(), Some(Duration::ZERO));
        assert_eq!((order.held(), order.missing()), ((2, 2), 255));
        assert!(order.take_next().is_none());
        assert_eq!(order.place(seq(255), 5), SequencePosition::Next);
        order.advance(5);
        for n in [0, 1] {
            assert_eq!(order.take_next().map(|h| h.payload[0]), Some(n));
            order.advance(n.into());
        }
        assert!(order.take_next().is_none());
        assert_eq!(order.held(), (0, 0));
    }

    #[test]
    fn the_same_seq_with_other_bytes_is_not_a_duplicate() {
        let mut order = Resequencer::after_birth(Seq::ZERO, 0);
        order.advance(77);
        assert_eq!(order.place(seq(1), 77), SequencePosition::Duplicate);
        assert_eq!(order.place(seq(1), 78), SequencePosition::Early);
    }

    #[test]
    fn digests_differ_by_kind_device_and_bytes() {
        let device = DeviceId::new("D").expect("valid");
        let all = [
            digest(MessageKind::NData, None, b""),
            digest(MessageKind::NData, None, b"\0"),
            digest(MessageKind::NData, None, b"abcdefgh"),
            digest(MessageKind::NData, None, b"abcdefgi"),
            digest(MessageKind::DData, Some(&device), b"abcdefgh"),
            digest(MessageKind::DDeath, Some(&device), b"abcdefgh"),
        ];
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
    }
}
