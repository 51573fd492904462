//! What the births seen so far say about later messages: names behind aliases, datatypes, and whether a message has its place in its session. Pure.
//!
//! This is a reader's aid, not a replica: values are not kept, and a message that does not fit is shown with a note, not refused.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use sparkplug::payload::{RawMetric, RawPayload};
use sparkplug::{DataType, DeviceId, EdgeNodeDescriptor, MessageKind};

/// Nodes and metrics remembered at most; what is beyond is shown as it stands on the wire.
const NODES_MAX: usize = 20_000;
const METRICS_MAX: usize = 2_000_000;

/// What a person should know about a message's place in its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A birth in the session that is known already.
    Rebirth,
    /// An NBIRTH whose `seq` is not 0.
    BirthSeq,
    /// A death with another `bdSeq` than the birth: its own, the birth's.
    OtherDeath(Option<u64>, Option<u64>),
    /// No birth of the node was seen.
    UnknownNode,
    /// No birth of the device was seen.
    UnknownDevice,
    /// Messages are missing, or came in another order: the `seq`, and the one that was due.
    Gap(u64, u64),
    /// A message that needs a `seq` has none.
    WithoutSeq,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |number: &Option<u64>| number.map_or_else(|| "none".to_owned(), |number| number.to_string());
        match self {
            Self::Rebirth => f.write_str("rebirth"),
            Self::BirthSeq => f.write_str("seq of an NBIRTH should be 0"),
            Self::OtherDeath(died, born) => {
                write!(f, "death of another session: bdSeq {}, the birth had {}", number(died), number(born))
            }
            Self::UnknownNode => f.write_str("stale: no birth of this node seen"),
            Self::UnknownDevice => f.write_str("stale: no birth of this device seen"),
            Self::Gap(seq, due) => write!(f, "stale: seq {seq} where {due} was due"),
            Self::WithoutSeq => f.write_str("stale: without seq"),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Births {
    nodes: BTreeMap<EdgeNodeDescriptor, Node>,
    metrics: usize,
}

#[derive(Debug, Default)]
struct Node {
    born: bool,
    bd_seq: Option<u64>,
    sequence: Sequence,
    /// Unique in the whole node, devices included.
    aliases: HashMap<u64, (Arc<str>, DataType)>,
    types: HashMap<Option<DeviceId>, HashMap<Arc<str>, DataType>>,
    metrics: usize,
}

/// The `seq` of a session, message by message.
#[derive(Debug, Default)]
pub struct Sequence {
    /// That of the next message; None: it is not known.
    due: Option<u64>,
}

impl Sequence {
    /// Behind the NBIRTH of a session.
    #[must_use]
    pub fn behind(birth: &RawPayload) -> Self {
        Self { due: birth.seq.map(following) }
    }

    /// Takes the next message; what is wrong with its place.
    pub fn next(&mut self, payload: &RawPayload) -> Option<Note> {
        let due = std::mem::replace(&mut self.due, payload.seq.map(following));
        match (payload.seq, due) {
            (Some(seq), Some(due)) if seq != due => Some(Note::Gap(seq, due)),
            (None, _) => Some(Note::WithoutSeq),
            _ => None,
        }
    }
}

/// The `bdSeq` metric of a birth or death.
#[must_use]
pub fn bd_seq(payload: &RawPayload) -> Option<u64> {
    use sparkplug::payload::WireValue;
    let metric = payload.metrics.iter().find(|metric| metric.name.as_deref() == Some("bdSeq"))?;
    match metric.value {
        Some(WireValue::Long(number)) => Some(number),
        Some(WireValue::Int(number)) => Some(number.into()),
        _ => None,
    }
}

impl Births {
    /// Whether a birth of this node was seen, and no death after it.
    #[must_use]
    pub fn is_born(&self, node: &EdgeNodeDescriptor) -> bool {
        self.nodes.get(node).is_some_and(|node| node.born)
    }

    /// Takes notice of a message; returns what a person should know about its place in the session.
    pub fn learn(
        &mut self,
        node: &EdgeNodeDescriptor,
        kind: MessageKind,
        device: Option<&DeviceId>,
        payload: &RawPayload,
    ) -> Vec<Note> {
        if !self.nodes.contains_key(node) && self.nodes.len() >= NODES_MAX {
            return Vec::new();
        }
        let room = METRICS_MAX.saturating_sub(self.metrics);
        let known = self.nodes.entry(node.clone()).or_default();
        let before = known.metrics;
        let notes = match kind {
            MessageKind::NBirth => known.on_node_birth(payload, room),
            MessageKind::NDeath => known.on_node_death(payload),
            MessageKind::DBirth => {
                let notes = known.in_sequence(payload);
                known.remember(device, payload, room);
                notes
            }
            MessageKind::NData | MessageKind::DData | MessageKind::DDeath => {
                let mut notes = known.in_sequence(payload);
                if kind == MessageKind::DData && known.born && !known.types.contains_key(&device.cloned()) {
                    notes.push(Note::UnknownDevice);
                }
                if kind == MessageKind::DDeath
                    && let Some(types) = known.types.remove(&device.cloned())
                {
                    known.metrics -= types.len();
                }
                notes
            }
            MessageKind::NCmd | MessageKind::DCmd | MessageKind::State => Vec::new(),
        };
        self.metrics = (self.metrics + known.metrics).saturating_sub(before);
        notes
    }

    /// Name and datatype of a metric, as far as message and births say them.
    #[must_use]
    pub fn name_and_type(
        &self,
        node: &EdgeNodeDescriptor,
        device: Option<&DeviceId>,
        metric: &RawMetric,
    ) -> (Option<Arc<str>>, Option<DataType>) {
        let known = self.nodes.get(node);
        let by_alias = metric.alias.and_then(|alias| known?.aliases.get(&alias));
        let name = metric.name.clone().or_else(|| by_alias.map(|(name, _)| name.clone()));
        let of_birth = || match by_alias {
            Some((_, datatype)) => Some(*datatype),
            None => known?.types.get(&device.cloned())?.get(name.as_deref()?).copied(),
        };
        let declared = metric.declared_datatype().ok().flatten();
        (name.clone(), declared.or_else(of_birth).or_else(|| metric.suggested_datatype()))
    }
}

impl Node {
    fn on_node_birth(&mut self, payload: &RawPayload, room: usize) -> Vec<Note> {
        let rebirth = self.born && self.bd_seq == bd_seq(payload);
        let freed = self.metrics;
        *self = Self { born: true, bd_seq: bd_seq(payload), ..Self::default() };
        self.sequence = Sequence::behind(payload);
        self.remember(None, payload, room + freed);
        let mut notes = Vec::new();
        if rebirth {
            notes.push(Note::Rebirth);
        }
        if payload.seq != Some(0) {
            notes.push(Note::BirthSeq);
        }
        notes
    }

    fn on_node_death(&mut self, payload: &RawPayload) -> Vec<Note> {
        if !self.born {
            return Vec::new();
        }
        let died = bd_seq(payload);
        if died != self.bd_seq {
            return vec![Note::OtherDeath(died, self.bd_seq)];
        }
        *self = Self::default();
        Vec::new()
    }

    /// Compares `seq` with what should come next.
    fn in_sequence(&mut self, payload: &RawPayload) -> Vec<Note> {
        if !self.born {
            return vec![Note::UnknownNode];
        }
        self.sequence.next(payload).into_iter().collect()
    }

    fn remember(&mut self, device: Option<&DeviceId>, payload: &RawPayload, room: usize) {
        let types = self.types.entry(device.cloned()).or_default();
        self.metrics -= types.len();
        types.clear();
        for metric in payload.metrics.iter().take(room) {
            let Some(name) = &metric.name else { continue };
            let Ok(datatype) = metric.own_datatype() else { continue };
            types.insert(name.clone(), datatype);
            if let Some(alias) = metric.alias {
                self.aliases.insert(alias, (name.clone(), datatype));
            }
        }
        self.metrics += types.len();
    }
}

const fn following(seq: u64) -> u64 {
    // A foreign payload may have any number there.
    (seq % 256 + 1) % 256
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::payload::WireValue;

    fn node() -> EdgeNodeDescriptor {
        EdgeNodeDescriptor::parse("G", "E").unwrap()
    }

    fn named(name: &str, alias: Option<u64>, datatype: DataType) -> RawMetric {
        let (name, datatype) = (Some(Arc::from(name)), Some(datatype.to_wire()));
        RawMetric { name, alias, datatype, ..RawMetric::default() }
    }

    fn payload(seq: Option<u64>, metrics: Vec<RawMetric>) -> RawPayload {
        RawPayload { seq, metrics, ..RawPayload::default() }
    }

    fn session(bd_seq: u64, seq: Option<u64>) -> RawPayload {
        let number = RawMetric { value: Some(WireValue::Long(bd_seq)), ..named("bdSeq", None, DataType::Int64) };
        payload(seq, vec![number, named("Temperature", Some(17), DataType::Float)])
    }

    #[test]
    fn an_alias_has_the_name_and_type_of_the_birth_until_the_death() {
        let mut births = Births::default();
        let by_alias = RawMetric { alias: Some(17), value: Some(WireValue::Int(1)), ..RawMetric::default() };
        assert_eq!(births.name_and_type(&node(), None, &by_alias), (None, Some(DataType::Int32)));
        assert!(births.learn(&node(), MessageKind::NBirth, None, &session(4, Some(0))).is_empty());
        assert!(births.is_born(&node()));
        assert_eq!(
            births.name_and_type(&node(), None, &by_alias),
            (Some(Arc::from("Temperature")), Some(DataType::Float))
        );
        let by_name = RawMetric { name: Some(Arc::from("Temperature")), ..RawMetric::default() };
        assert_eq!(births.name_and_type(&node(), None, &by_name).1, Some(DataType::Float));
        assert!(births.learn(&node(), MessageKind::NDeath, None, &session(4, None)).is_empty());
        assert!(!births.is_born(&node()));
        assert_eq!(births.name_and_type(&node(), None, &by_alias).0, None);
        assert_eq!(births.metrics, 0);
    }

    #[test]
    fn what_is_out_of_place_is_noted() {
        let mut births = Births::default();
        let device = DeviceId::new("D").unwrap();
        let mut learn = |kind, device: Option<&DeviceId>, payload: &RawPayload| -> Vec<String> {
            births.learn(&node(), kind, device, payload).iter().map(ToString::to_string).collect()
        };
        let data = |seq| payload(Some(seq), Vec::new());
        assert_eq!(learn(MessageKind::NData, None, &data(3)), ["stale: no birth of this node seen"]);
        assert_eq!(learn(MessageKind::NBirth, None, &session(4, Some(0))), [""; 0]);
        assert_eq!(learn(MessageKind::DData, Some(&device), &data(1)), ["stale: no birth of this device seen"]);
        assert_eq!(learn(MessageKind::DBirth, Some(&device), &data(2)), [""; 0]);
        assert_eq!(learn(MessageKind::DData, Some(&device), &data(3)), [""; 0]);
        assert_eq!(learn(MessageKind::NData, None, &data(6)), ["stale: seq 6 where 4 was due"]);
        assert_eq!(learn(MessageKind::NData, None, &payload(None, Vec::new())), ["stale: without seq"]);
        assert_eq!(learn(MessageKind::NCmd, None, &payload(None, Vec::new())), [""; 0]);
        let late = learn(MessageKind::NDeath, None, &session(3, None));
        assert_eq!(late, ["death of another session: bdSeq 3, the birth had 4"]);
        assert_eq!(learn(MessageKind::NBirth, None, &session(4, Some(0))), ["rebirth"]);
        assert_eq!(learn(MessageKind::NBirth, None, &session(5, Some(9))), ["seq of an NBIRTH should be 0"]);
    }

    #[test]
    fn seq_0_follows_255() {
        let mut births = Births::default();
        births.learn(&node(), MessageKind::NBirth, None, &session(0, Some(0)));
        for seq in (1..=255).chain([0, 1]) {
            let notes = births.learn(&node(), MessageKind::NData, None, &payload(Some(seq), Vec::new()));
            assert!(notes.is_empty(), "{notes:?}");
        }
    }

    #[test]
    fn room_is_given_back_by_every_kind_of_end() {
        let mut births = Births::default();
        let device = DeviceId::new("D").unwrap();
        for _ in 0..3 {
            births.learn(&node(), MessageKind::NBirth, None, &session(0, Some(0)));
            births.learn(&node(), MessageKind::DBirth, Some(&device), &session(0, Some(1)));
            births.learn(&node(), MessageKind::DBirth, Some(&device), &session(0, Some(2)));
            assert_eq!(births.metrics, 4);
        }
        births.learn(&node(), MessageKind::NDeath, None, &session(0, None));
        assert_eq!(births.metrics, 0);
    }
}
