//! Messages of a node as they arrived, decoded as far as they and its births say, with what is odd about them.

use std::collections::VecDeque;

use serde_json::{Value as Json, json};
use sparkplug::payload::{self, Limits, RawMetric, RawPayload};
use sparkplug::session::QoS;
use sparkplug::topic::MessageKind;
use sparkplug::{DataType, DeviceId};

use super::births::{Note, Sequence, bd_seq};
use super::value;
use crate::deltas::Table;
use crate::tables::{bound, cut};

/// Messages of one node that are kept.
const MESSAGES_MAX: usize = 200;

/// Bytes of the rows of one node: a browser receives all of them when it begins to look.
const BYTES_MAX: usize = 512 * 1024;

/// Bytes of the rows of all nodes: readers choose how many nodes they look at.
const ALL_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Metrics of a message that are shown.
const METRICS_MAX: usize = 50;

/// Longest value that is shown, in bytes of its JSON.
const VALUE_BYTES_MAX: usize = 400;

/// Two births of different sessions within this time, without a death between, come from two programs rather than from one that started again. In ms.
const RESTART_MS: u64 = 5_000;

/// What the births of a node say of a metric.
#[derive(Debug)]
pub(super) struct Known {
    /// Its name.
    pub name: String,
    /// Its datatype.
    pub datatype: DataType,
}

/// One message.
#[derive(Debug)]
pub(super) struct Arrival<'a> {
    /// Which message.
    pub kind: MessageKind,
    /// None: of the node itself.
    pub device: Option<&'a DeviceId>,
    /// As the server delivered it.
    pub qos: QoS,
    /// Sent by the server from its memory.
    pub retain: bool,
    /// As it came.
    pub payload: &'a [u8],
    /// UTC ms of the receiver.
    pub at: u64,
}

/// The latest messages of one node.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Key, size in bytes and row of each.
    rows: VecDeque<(String, usize, Json)>,
    bytes: usize,
    received: u64,
    sequence: Sequence,
    /// The latest birth: its bdSeq and when it was received; None after a death.
    birth: Option<(u64, u64)>,
}

impl Messages {
    /// Takes a message. `known` finds what births say of a metric, by its name or its alias.
    pub(super) fn receive(
        &mut self,
        message: &Arrival<'_>,
        known: impl Fn(Option<&str>, Option<u64>) -> Option<Known>,
    ) {
        let read = payload::decode(message.payload, &Limits::default());
        let mut notes = Vec::new();
        let mut row = json!({
            "at": message.at, "kind": message.kind.as_str(), "device": message.device.map_or("", DeviceId::as_str),
            "bytes": message.payload.len(), "qos": message.qos as u8, "retained": message.retain,
            "seq": null, "bd_seq": null, "timestamp": null, "metrics": [], "metrics_total": 0,
        });
        match read {
            Ok(read) => {
                // What a server kept is not part of the session.
                if message.retain {
                    notes.push("retained: sent by the server from its memory, and not taken".to_owned());
                } else {
                    notes.extend(self.judge(message, &read));
                }
                row["seq"] = json!(read.seq.map(value::unsigned));
                row["bd_seq"] = json!(bd_seq(&read).map(value::unsigned));
                row["timestamp"] = json!(read.timestamp.map(value::unsigned));
                row["metrics_total"] = json!(read.metrics.len());
                let metrics = read.metrics.into_iter().take(METRICS_MAX);
                row["metrics"] = metrics.map(|metric| shown(metric, &known)).collect();
            }
            Err(error) => notes.push(format!("cannot be read: {error}")),
        }
        // The sections of the payloads, such as tck-id-payloads-nbirth-qos.
        if message.qos != QoS::AtMostOnce && message.kind != MessageKind::NDeath {
            notes.push("QoS 1, where Sparkplug asks for QoS 0".to_owned());
        }
        row["note"] = json!(notes.join("; "));
        self.keep(row);
    }

    fn keep(&mut self, mut row: Json) {
        let key = format!("{:010}", self.received);
        row["key"] = json!(key);
        bound(&mut row);
        let size = row.to_string().len();
        self.rows.push_back((key, size, row));
        self.received += 1;
        self.bytes += size;
        if self.rows.len() > MESSAGES_MAX
            && let Some((_, size, _)) = self.rows.pop_front()
        {
            self.bytes -= size;
        }
    }

    /// Drops the oldest rows beyond this node's share of the memory. `nodes`: how many nodes share it.
    pub(super) fn shrink(&mut self, nodes: usize) {
        let share = BYTES_MAX.min(ALL_BYTES_MAX / nodes.max(1));
        while self.bytes > share
            && let Some((_, size, _)) = self.rows.pop_front()
        {
            self.bytes -= size;
        }
    }

    /// What is odd about a message in the order in which it came.
    fn judge(&mut self, message: &Arrival<'_>, read: &RawPayload) -> Option<String> {
        match message.kind {
            MessageKind::NBirth => {
                let before = self.birth.take();
                self.birth = bd_seq(read).map(|bd_seq| (bd_seq, message.at));
                self.sequence = Sequence::behind(read);
                let ((earlier, at), (bd_seq, _)) = (before?, self.birth?);
                let ago = message.at.saturating_sub(at);
                (bd_seq != earlier && ago < RESTART_MS).then(|| {
                    format!("bdSeq {bd_seq} {ago} ms after bdSeq {earlier}, without an NDEATH between: two programs may send as this node")
                })
            }
            MessageKind::NDeath => {
                let before = self.birth;
                let of = bd_seq(read);
                let is_of_session = before.is_none_or(|(bd_seq, _)| Some(bd_seq) == of);
                if is_of_session {
                    (self.birth, self.sequence) = (None, Sequence::default());
                }
                (!is_of_session).then(|| "of an earlier session: its bdSeq is not that of the latest NBIRTH".to_owned())
            }
            MessageKind::NData | MessageKind::DBirth | MessageKind::DData | MessageKind::DDeath => {
                Some(match self.sequence.next(read)? {
                    Note::Gap(seq, due) => format!("seq {seq}, expected {due}"),
                    _ => "has no seq".to_owned(),
                })
            }
            MessageKind::NCmd | MessageKind::DCmd | MessageKind::State => None,
        }
    }

    /// Table `messages:GROUP/NODE`, by the number of the message.
    pub(super) fn table(&self) -> Table {
        self.rows.iter().map(|(key, _, row)| (key.clone(), row.clone())).collect()
    }
}

fn shown(metric: RawMetric, known: impl Fn(Option<&str>, Option<u64>) -> Option<Known>) -> Json {
    let born = known(metric.name.as_deref(), metric.alias);
    // What the message does not declare its birth has said; without that, the field of the value suggests it.
    let declared = metric.declared_datatype().ok().flatten();
    let of_birth = || born.as_ref().map(|born| born.datatype);
    let datatype = declared.or_else(of_birth).or_else(|| metric.own_datatype().ok());
    let name = metric.name.as_deref().or_else(|| born.as_ref().map(|born| &*born.name));
    let (value, problem) = match (metric.value, datatype) {
        (None, _) => (Json::Null, None),
        (Some(value), Some(datatype)) => match value.resolve(datatype, None) {
            Ok(value) => (bounded(value::to_json(&value)), None),
            Err(error) => (Json::Null, Some(error.to_string())),
        },
        (Some(_), None) => {
            (Json::Null, Some("its datatype is unknown: neither the message nor a birth has it".to_owned()))
        }
    };
    json!({
        "name": name, "alias": metric.alias.map(value::unsigned),
        "datatype": datatype.map(|datatype| format!("{datatype:?}")),
        "value": value, "historical": metric.is_historical, "problem": problem,
    })
}

fn bounded(value: Json) -> Json {
    let mut text = match value {
        Json::String(text) => text,
        Json::Object(_) | Json::Array(_) if value.to_string().len() > VALUE_BYTES_MAX => value.to_string(),
        value => return value,
    };
    cut(&mut text, VALUE_BYTES_MAX);
    Json::from(text)
}

#[cfg(test)]
mod tests;
