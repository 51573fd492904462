//! The parts of a pack on its way, from the cluster manager to the git server or back.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use sparkplug::host::HostRequest;
use sparkplug::typed::form;
use sparkplug::{EdgeNodeDescriptor, Metric, Value};
use uuid::Uuid;

use crate::names::{PACK_BYTES, PACK_DATA, PACK_DIGEST, PACK_OFFSET, repository_device};

/// Most bytes of one part.
pub const PART_BYTES_MAX: usize = 128 * 1024;
/// Most bytes of a pack.
pub const PACK_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// A whole pack, with its digest. Clones share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Pack {
    digest: String,
    bytes: Arc<[u8]>,
}

impl fmt::Debug for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pack({}, {} bytes)", self.digest, self.bytes.len())
    }
}

impl Pack {
    /// These bytes.
    #[must_use]
    pub fn new(bytes: Arc<[u8]>) -> Self {
        Self { digest: hex::encode(Sha256::digest(&bytes)), bytes }
    }

    /// SHA-256 of all its bytes, 64 lower-case hex digits.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// All its bytes.
    #[must_use]
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// The part that begins at `offset`; at the end of the pack, or behind it, an empty one.
    #[must_use]
    pub fn part(&self, offset: u64) -> PackPart {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let end = begin.saturating_add(PART_BYTES_MAX).min(self.bytes.len());
        PackPart {
            digest: self.digest.clone(),
            total: self.bytes.len() as u64,
            offset: begin as u64,
            data: self.bytes[begin..end].into(),
        }
    }
}

/// A part of a pack.
#[derive(Clone, PartialEq, Eq)]
pub struct PackPart {
    /// Of the whole pack.
    pub digest: String,
    /// Bytes of the whole pack.
    pub total: u64,
    /// Where the part begins.
    pub offset: u64,
    /// The part.
    pub data: Arc<[u8]>,
}

impl Default for PackPart {
    fn default() -> Self {
        Self { digest: String::new(), total: 0, offset: 0, data: Arc::new([]) }
    }
}

impl fmt::Debug for PackPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackPart({}, {}+{} of {})", self.digest, self.offset, self.data.len(), self.total)
    }
}

/// A part that cannot be used. Names the field and the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub struct PartError {
    /// Which metric.
    pub field: &'static str,
    /// The rule that it breaks.
    pub rule: String,
}

impl PackPart {
    /// As on the wire.
    #[must_use]
    pub fn to_metrics(&self) -> Vec<Metric> {
        vec![
            Metric::new(PACK_DIGEST, self.digest.as_str()),
            Metric::new(PACK_BYTES, self.total),
            Metric::new(PACK_OFFSET, self.offset),
            Metric::new(PACK_DATA, Value::Bytes(Arc::clone(&self.data))),
        ]
    }

    /// From the metrics of a DCMD. None: it holds no part.
    ///
    /// # Errors
    /// [`PartError`] names the metric and the rule.
    #[must_use]
    pub fn from_metrics(metrics: &[Metric]) -> Option<Result<Self, PartError>> {
        let find = |name: &str| metrics.iter().find(|metric| &*metric.name == name);
        let digest = find(PACK_DIGEST)?;
        let number = |field| {
            let value = find(field).and_then(|metric| metric.value.as_ref());
            <form::Count as form::Form<u64>>::read(value).map_err(|rule| PartError { field, rule })
        };
        let read = || {
            let wrong = |field, rule: &str| PartError { field, rule: rule.to_owned() };
            let digest = digest.as_str().ok_or_else(|| wrong(PACK_DIGEST, "must be a String"))?;
            let data = match find(PACK_DATA).and_then(|metric| metric.value.as_ref()) {
                Some(Value::Bytes(data)) => Arc::clone(data),
                _ => return Err(wrong(PACK_DATA, "must be Bytes")),
            };
            let part =
                Self { digest: digest.to_owned(), total: number(PACK_BYTES)?, offset: number(PACK_OFFSET)?, data };
            part.check()?;
            Ok(part)
        };
        Some(read())
    }

    fn check(&self) -> Result<(), PartError> {
        let wrong = |field, rule: &str| Err(PartError { field, rule: rule.to_owned() });
        if self.digest.len() != 64 || !self.digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return wrong(PACK_DIGEST, "must be the 64 lower-case hex digits of a digest");
        }
        if self.total == 0 || self.total > PACK_BYTES_MAX {
            return wrong(PACK_BYTES, "must be 1 to 268435456");
        }
        if self.data.len() > PART_BYTES_MAX {
            return wrong(PACK_DATA, "has more than 131072 bytes");
        }
        if self.offset.checked_add(self.data.len() as u64).is_none_or(|end| end > self.total) {
            return wrong(PACK_OFFSET, "is behind the end of the pack");
        }
        Ok(())
    }

    /// The request to a Host Application that sends it to the git server, for a repository.
    #[must_use]
    pub fn to_request(&self, node: EdgeNodeDescriptor, repository: Uuid) -> HostRequest {
        HostRequest::Command { node, device: Some(repository_device(repository)), metrics: self.to_metrics() }
    }
}

/// Puts the parts of one pack together.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PackReceiver {
    digest: Option<String>,
    total: u64,
    data: Vec<u8>,
}

impl fmt::Debug for PackReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackReceiver({:?}, {} of {})", self.digest, self.data.len(), self.total)
    }
}

/// What a part has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// It was added.
    More,
    /// It was there already, or one before it is missing: nothing has changed, and the sender is to be answered again.
    Repeated,
    /// The pack is whole, and its digest is right. The receiver is empty again.
    Whole(Pack),
    /// All bytes are there, and the digest is another: everything was dropped.
    Wrong,
}

impl PackReceiver {
    /// Digest of the pack that is being received, and how many bytes of it have arrived. None: none is.
    #[must_use]
    pub fn progress(&self) -> Option<(&str, u64)> {
        self.digest.as_deref().map(|digest| (digest, self.data.len() as u64))
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Drops what has arrived.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes a part. The first part of another pack drops what has arrived of the one before.
    pub fn receive(&mut self, part: &PackPart) -> Received {
        if self.digest.as_ref() != Some(&part.digest) || self.total != part.total {
            if part.offset != 0 {
                return Received::Repeated;
            }
            *self = Self { digest: Some(part.digest.clone()), total: part.total, data: Vec::new() };
        }
        if part.offset != self.data.len() as u64 || part.data.is_empty() {
            return Received::Repeated;
        }
        self.data.extend_from_slice(&part.data);
        if (self.data.len() as u64) < self.total {
            return Received::More;
        }
        let Self { digest, data, .. } = std::mem::take(self);
        let pack = Pack::new(data.into());
        if Some(&pack.digest) == digest.as_ref() { Received::Whole(pack) } else { Received::Wrong }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(bytes: usize) -> Pack {
        Pack::new((0..bytes).map(|n| u8::try_from(n % 251).unwrap()).collect())
    }

    #[test]
    fn a_part_travels() {
        let pack = pack(PART_BYTES_MAX + 5);
        let part = pack.part(PART_BYTES_MAX as u64);
        assert_eq!((part.data.len(), part.total), (5, PART_BYTES_MAX as u64 + 5));
        assert_eq!(PackPart::from_metrics(&part.to_metrics()), Some(Ok(part)));
        assert_eq!(pack.part(u64::MAX).data.len(), 0);
        assert_eq!(PackPart::from_metrics(&[]), None);
    }

    #[test]
    fn whatever_is_lost_or_repeated_the_pack_arrives() {
        let pack = pack(3 * PART_BYTES_MAX + 17);
        for lost in 1..=4_u32 {
            let (mut receiver, mut sent) = (PackReceiver::default(), 0);
            let whole = loop {
                let (_, arrived) = receiver.progress().unwrap_or_default();
                let part = pack.part(arrived);
                sent += 1;
                assert!(sent < 40, "it does not end");
                if sent % (lost + 1) == 0 {
                    continue;
                }
                match receiver.receive(&part) {
                    Received::Whole(whole) => break whole,
                    Received::More => assert_eq!(receiver.receive(&part), Received::Repeated),
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!((whole, receiver.progress()), (pack.clone(), None));
        }
    }

    #[test]
    fn another_pack_takes_the_place_of_one_that_is_not_whole() {
        let (one, other) = (pack(2 * PART_BYTES_MAX), pack(10));
        let mut receiver = PackReceiver::default();
        assert_eq!(receiver.receive(&one.part(0)), Received::More);
        assert_eq!(receiver.receive(&one.part(5)), Received::Repeated, "a gap or an overlap adds nothing");
        assert_eq!(receiver.receive(&other.part(0)), Received::Whole(other.clone()));
        assert_eq!(receiver.receive(&one.part(PART_BYTES_MAX as u64)), Received::Repeated, "its begin is gone");
        let changed = PackPart { data: vec![9; 10].into(), ..other.part(0) };
        assert_eq!(receiver.receive(&changed), Received::Wrong);
        assert_eq!(receiver.progress(), None);
    }

    #[test]
    fn a_fault_names_its_metric() {
        let part = pack(10).part(0);
        let cases = [
            (PackPart { digest: "x".repeat(64), ..part.clone() }, PACK_DIGEST),
            (PackPart { total: 0, ..part.clone() }, PACK_BYTES),
            (PackPart { total: PACK_BYTES_MAX + 1, ..part.clone() }, PACK_BYTES),
            (PackPart { offset: 1, ..part.clone() }, PACK_OFFSET),
            (PackPart { offset: u64::MAX, ..part.clone() }, PACK_OFFSET),
            (PackPart { data: vec![0; PART_BYTES_MAX + 1].into(), total: PACK_BYTES_MAX, ..part.clone() }, PACK_DATA),
        ];
        for (part, field) in cases {
            assert_eq!(PackPart::from_metrics(&part.to_metrics()).unwrap().unwrap_err().field, field);
        }
        let mut metrics = part.to_metrics();
        metrics[3] = Metric::new(PACK_DATA, "text");
        assert_eq!(PackPart::from_metrics(&metrics).unwrap().unwrap_err().to_string(), "Pack/Data must be Bytes");
        metrics[0] = Metric::new(PACK_DIGEST, 1_u32);
        assert_eq!(PackPart::from_metrics(&metrics).unwrap().unwrap_err().field, PACK_DIGEST);
    }
}
