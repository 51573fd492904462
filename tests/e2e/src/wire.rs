//! The rules of Sparkplug sessions, checked message by message on a recording, and what nodes and devices say by it. A reader of its own: it shares the payload codec
//! with the services, but none of their machines.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use sparkplug::payload::{Limits, RawMetric, RawPayload, WireValue, decode};
use sparkplug::{DataType, EdgeNodeDescriptor, MessageKind, Topic, Value};

use crate::recorder::{Message, Recorder};

const REBIRTH: &str = "Node Control/Rebirth";
const BD_SEQ: &str = "bdSeq";

/// How many messages of a node a violation of a rule shows.
const RECENT: usize = 4;

/// Metrics of a node or a device by name; None is null.
pub type Metrics = BTreeMap<String, Option<Value>>;

/// A rule that a message breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Index of the message in the recording.
    pub message: usize,
    /// Its topic.
    pub topic: String,
    /// The rule.
    pub rule: String,
    /// Which connection of the recorder it came over, and what was received of the node before it, the newest last.
    pub context: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {}, {}: {} ({})", self.message, self.topic, self.rule, self.context)
    }
}

/// What is known of a node.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Between an NBIRTH and its NDEATH.
    pub is_alive: bool,
    /// bdSeq of the last birth.
    pub bd_seq: Option<u64>,
    /// NBIRTHs with a bdSeq of their own.
    pub sessions: usize,
    /// NBIRTHs.
    pub births: usize,
    /// NDEATHs, the will of a session that has said it itself not counted.
    pub deaths: usize,
    /// bdSeq of the last one.
    dead: Option<u64>,
    /// The node's own metrics.
    pub metrics: Metrics,
    /// Its devices that are born.
    pub devices: BTreeMap<String, Metrics>,
    next_seq: Option<u8>,
    aliases: HashMap<u64, String>,
    types: HashMap<(Option<String>, String), DataType>,
    /// The recorder was away: nothing can be said until the next birth.
    is_unknown: bool,
}

/// Reads a recording.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    nodes: BTreeMap<EdgeNodeDescriptor, Node>,
    hosts: BTreeSet<String>,
    violations: Vec<Violation>,
    recent: BTreeMap<EdgeNodeDescriptor, Vec<String>>,
    count: usize,
    session: usize,
    is_late: bool,
}

impl Reader {
    /// Reads all of it.
    #[must_use]
    pub fn read<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> Self {
        let mut reader = Self::default();
        for message in messages {
            reader.take(message);
        }
        reader
    }

    /// Reads all of a recording that began when nodes were born already: of each, what comes before its first birth is not judged.
    #[must_use]
    pub fn read_late<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> Self {
        let mut reader = Self { is_late: true, ..Self::default() };
        for message in messages {
            reader.take(message);
        }
        reader
    }

    /// Reads what a recorder has received since the last time.
    pub fn follow(&mut self, recorder: &Recorder) {
        for message in recorder.since(self.count) {
            self.take(&message);
        }
    }

    /// Reads one more message.
    pub fn take(&mut self, message: &Message) {
        if message.session != self.session {
            self.session = message.session;
            for node in self.nodes.values_mut() {
                node.is_alive = false;
                node.is_unknown = true;
            }
        }
        if let Err(rule) = self.check(message) {
            let context = format!("session {}, after {:?}", message.session, self.recent_messages(&message.topic));
            self.violations.push(Violation { message: self.count, topic: message.topic.clone(), rule, context });
        }
        self.remember(message);
        self.count += 1;
    }

    fn recent_messages(&self, topic: &str) -> &[String] {
        node_of(topic).and_then(|node| self.recent.get(&node)).map_or(&[], Vec::as_slice)
    }

    fn remember(&mut self, message: &Message) {
        let Some(node) = node_of(&message.topic) else { return };
        let recent = self.recent.entry(node).or_default();
        if recent.len() == RECENT {
            recent.remove(0);
        }
        recent.push(format!("{} in session {}: {}", self.count, message.session, message.topic));
    }

    /// Rules that were broken.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Every node that was received.
    #[must_use]
    pub const fn nodes(&self) -> &BTreeMap<EdgeNodeDescriptor, Node> {
        &self.nodes
    }

    /// A node by group and id.
    #[must_use]
    pub fn node(&self, group: &str, id: &str) -> Option<&Node> {
        self.nodes
            .iter()
            .find(|(name, _)| name.group.as_str() == group && name.edge_node.as_str() == id)
            .map(|(_, node)| node)
    }

    /// Host Applications that were received.
    #[must_use]
    pub const fn hosts(&self) -> &BTreeSet<String> {
        &self.hosts
    }

    /// # Panics
    /// A rule was broken.
    pub fn assert_clean(&self) {
        let all: Vec<String> = self.violations.iter().take(20).map(Violation::to_string).collect();
        assert!(
            all.is_empty(),
            "{} rules broken in {} messages:\n{}",
            self.violations.len(),
            self.count,
            all.join("\n")
        );
    }

    fn check(&mut self, message: &Message) -> Result<(), String> {
        match Topic::parse(&message.topic).map_err(|error| error.to_string())? {
            Topic::State { host } => {
                self.hosts.insert(host.as_str().to_owned());
                check_state(&message.payload)
            }
            Topic::Node { node, kind } => self.payload(message, node, kind, None),
            Topic::Device { node, kind, device } => self.payload(message, node, kind, Some(device.as_str().to_owned())),
        }
    }

    fn payload(
        &mut self,
        message: &Message,
        node: EdgeNodeDescriptor,
        kind: MessageKind,
        device: Option<String>,
    ) -> Result<(), String> {
        if message.retain {
            return Err("it is retained".to_owned());
        }
        let limits = Limits { bytes_max: 16 * 1024 * 1024, elements_max: 10_000_000, ..Limits::default() };
        let payload = decode(&message.payload, &limits).map_err(|error| error.to_string())?;
        if matches!(kind, MessageKind::NCmd | MessageKind::DCmd) {
            return check_command(&payload);
        }
        // The recorder was away, so a node that it meets for the first time may have been born meanwhile.
        let is_late = self.is_late || self.session > 0;
        let node = self.nodes.entry(node).or_insert_with(|| Node { is_unknown: is_late, ..Node::default() });
        if node.is_unknown && kind != MessageKind::NBirth {
            node.is_alive = kind != MessageKind::NDeath;
            let died = if kind == MessageKind::NDeath { bd_seq(&payload) } else { None };
            // In MQTT 5 the will follows the death that a node says itself, whether or not its birth was received.
            if died.is_some() && node.dead != died {
                node.dead = died;
                node.deaths += 1;
            }
            return Ok(());
        }
        match kind {
            MessageKind::NBirth => node.born(&payload),
            MessageKind::NDeath => node.died(&payload),
            kind => {
                node.in_order(&payload)?;
                let device = device.as_deref();
                match kind {
                    MessageKind::DBirth => node.device_born(device.unwrap_or_default(), &payload),
                    MessageKind::DDeath => match node.devices.remove(device.unwrap_or_default()) {
                        Some(_) => Ok(()),
                        None => Err("DDEATH of a device that is not born".to_owned()),
                    },
                    _ => node.data(device, &payload),
                }
            }
        }
    }
}

fn node_of(topic: &str) -> Option<EdgeNodeDescriptor> {
    match Topic::parse(topic).ok()? {
        Topic::Node { node, .. } | Topic::Device { node, .. } => Some(node),
        Topic::State { .. } => None,
    }
}

fn check_state(payload: &[u8]) -> Result<(), String> {
    let state: serde_json::Value =
        serde_json::from_slice(payload).map_err(|error| format!("STATE is not JSON: {error}"))?;
    match (state["online"].as_bool(), state["timestamp"].as_u64(), state.as_object().map(serde_json::Map::len)) {
        (Some(_), Some(_), Some(2)) => Ok(()),
        _ => Err(format!("STATE is not {{online, timestamp}}: {state}")),
    }
}

fn check_command(payload: &RawPayload) -> Result<(), String> {
    if payload.seq.is_some() {
        return Err("a command has no seq".to_owned());
    }
    if payload.timestamp.is_none() {
        return Err("a command has a timestamp".to_owned());
    }
    Ok(())
}

impl Node {
    fn born(&mut self, payload: &RawPayload) -> Result<(), String> {
        let bd_seq = bd_seq(payload).ok_or("NBIRTH without bdSeq")?;
        let again = self.is_alive && self.bd_seq == Some(bd_seq);
        // A CONNECT that the server never answered has used up a number too, so it need not be the next one.
        let is_other = self.bd_seq != Some(bd_seq);
        let was_unknown = std::mem::replace(&mut self.is_unknown, false);
        let was_alive = std::mem::replace(&mut self.is_alive, true) && !was_unknown;
        self.bd_seq = Some(bd_seq);
        self.births += 1;
        self.sessions += usize::from(!again);
        self.next_seq = Some(1);
        self.devices.clear();
        self.aliases.clear();
        self.types.clear();
        self.metrics = self.birth(None, payload)?;
        if payload.seq != Some(0) {
            return Err(format!("NBIRTH has seq {:?}, not 0", payload.seq));
        }
        if payload.timestamp.is_none() {
            return Err("NBIRTH without timestamp".to_owned());
        }
        if was_alive && !again {
            return Err("a session begins before the death of the one before it".to_owned());
        }
        if !again && !is_other {
            return Err(format!("a second session with bdSeq {bd_seq}"));
        }
        match self.metrics.get(REBIRTH) {
            Some(Some(Value::Boolean(false))) => Ok(()),
            other => Err(format!("{REBIRTH} is {other:?} in NBIRTH")),
        }
    }

    fn died(&mut self, payload: &RawPayload) -> Result<(), String> {
        if payload.seq.is_some() {
            return Err("NDEATH has no seq".to_owned());
        }
        let died = bd_seq(payload).ok_or("NDEATH without bdSeq")?;
        // In MQTT 5 the will follows the death that a node says itself (tck-id-payloads-ndeath-will-message-publisher-disconnect-mqtt50).
        if self.dead == Some(died) && !(self.is_alive && self.bd_seq == self.dead) {
            return Ok(());
        }
        // A session that ends before its births has an NDEATH, too.
        if !self.is_unknown && !self.is_alive && self.bd_seq != Some(died) {
            return Ok(());
        }
        self.dead = Some(died);
        self.deaths += 1;
        if self.bd_seq != Some(died) {
            return Err(format!("NDEATH of bdSeq {died}, but the birth has {:?}", self.bd_seq));
        }
        if !std::mem::take(&mut self.is_alive) {
            return Err("NDEATH of a node that is not alive".to_owned());
        }
        self.devices.clear();
        Ok(())
    }

    fn in_order(&mut self, payload: &RawPayload) -> Result<(), String> {
        if !self.is_alive {
            return Err("before NBIRTH, or after NDEATH".to_owned());
        }
        if payload.timestamp.is_none() {
            return Err("without timestamp".to_owned());
        }
        let expected = self.next_seq.unwrap_or_default();
        self.next_seq = Some(expected.wrapping_add(1));
        if payload.seq == Some(expected.into()) {
            return Ok(());
        }
        self.next_seq = payload.seq.and_then(|seq| u8::try_from(seq).ok()).map(|seq| seq.wrapping_add(1));
        Err(format!("seq is {:?}, not {expected}", payload.seq))
    }

    fn device_born(&mut self, device: &str, payload: &RawPayload) -> Result<(), String> {
        let metrics = self.birth(Some(device), payload)?;
        match self.devices.insert(device.to_owned(), metrics) {
            None => Ok(()),
            Some(_) => Err("DBIRTH of a device that is already born".to_owned()),
        }
    }

    /// The metrics of a birth, each with name, datatype, timestamp, and a value or null.
    fn birth(&mut self, device: Option<&str>, payload: &RawPayload) -> Result<Metrics, String> {
        let mut metrics = Metrics::new();
        for metric in &payload.metrics {
            let name = metric.name.clone().ok_or("a metric of a birth has no name")?;
            let datatype = metric.declared_datatype().map_err(|error| format!("{name}: {error}"))?;
            let datatype = datatype.ok_or_else(|| format!("{name} has no datatype in its birth"))?;
            if metric.timestamp.is_none() {
                return Err(format!("{name} has no timestamp"));
            }
            if let Some(alias) = metric.alias
                && self.aliases.insert(alias, name.to_string()).is_some()
            {
                return Err(format!("alias {alias} of {name} is taken"));
            }
            self.types.insert((device.map(str::to_owned), name.to_string()), datatype);
            let value = value(metric, datatype)?;
            if metrics.insert(name.to_string(), value).is_some() {
                return Err(format!("{name} stands twice in a birth"));
            }
        }
        Ok(metrics)
    }

    fn data(&mut self, device: Option<&str>, payload: &RawPayload) -> Result<(), String> {
        if device.is_some_and(|device| !self.devices.contains_key(device)) {
            return Err("DDATA of a device that is not born".to_owned());
        }
        for metric in &payload.metrics {
            let by_alias = || metric.alias.and_then(|alias| self.aliases.get(&alias).cloned());
            let name = metric
                .name
                .as_deref()
                .map(str::to_owned)
                .or_else(by_alias)
                .ok_or("a metric without name or known alias")?;
            let datatype = self.types.get(&(device.map(str::to_owned), name.clone()));
            let datatype = *datatype.ok_or_else(|| format!("{name} is not in the birth"))?;
            if metric.timestamp.is_none() {
                return Err(format!("{name} has no timestamp"));
            }
            let value = value(metric, datatype)?;
            if metric.is_historical {
                continue;
            }
            let metrics = match device {
                Some(device) => self.devices.entry(device.to_owned()).or_default(),
                None => &mut self.metrics,
            };
            metrics.insert(name, value);
        }
        Ok(())
    }
}

fn value(metric: &RawMetric, datatype: DataType) -> Result<Option<Value>, String> {
    let value = metric.value.clone().map(|value| value.resolve(datatype, None)).transpose();
    value.map_err(|error| format!("{}: {error}", metric.name.as_deref().unwrap_or("a metric")))
}

/// The bdSeq that a birth or death carries.
#[must_use]
pub fn bd_seq(payload: &RawPayload) -> Option<u64> {
    match payload.metrics.iter().find(|metric| metric.name.as_deref() == Some(BD_SEQ))?.value {
        Some(WireValue::Long(number)) => Some(number),
        Some(WireValue::Int(number)) => Some(number.into()),
        _ => None,
    }
}

/// The text of a String metric of that name in a message's payload.
#[must_use]
pub fn text(message: &Message, name: &str) -> Option<String> {
    let payload = decode(&message.payload, &Limits::default()).ok()?;
    let metric = payload.metrics.into_iter().find(|metric| metric.name.as_deref() == Some(name))?;
    match metric.value {
        Some(WireValue::String(text)) => Some(text.to_string()),
        _ => None,
    }
}

/// Whether a message's payload has a metric of that name without a value.
#[must_use]
pub fn is_null(message: &Message, name: &str) -> bool {
    let Ok(payload) = decode(&message.payload, &Limits::default()) else { return false };
    payload.metrics.iter().any(|metric| metric.name.as_deref() == Some(name) && metric.value.is_none())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sparkplug::Metric;
    use sparkplug::payload::{EncodeOptions, Form, Payload, encode};

    use super::*;

    fn message(topic: &str, form: Form, seq: Option<u64>, metrics: Vec<Metric>) -> Message {
        let metrics = metrics.into_iter().map(|metric| metric.at(5)).collect();
        let payload = Payload { timestamp: Some(5), seq, metrics, ..Payload::default() };
        let payload = encode(&payload, &EncodeOptions::new(form)).to_vec();
        Message { at: Duration::ZERO, session: 0, topic: topic.to_owned(), payload, retain: false }
    }

    fn nbirth(bd_seq: u64) -> Message {
        let metrics = vec![Metric::new(BD_SEQ, bd_seq), Metric::new(REBIRTH, false), Metric::new("T", 1.5_f64)];
        message("spBv1.0/G/NBIRTH/N", Form::Birth, Some(0), metrics)
    }

    fn ndata(seq: u64) -> Message {
        message("spBv1.0/G/NDATA/N", Form::Data, Some(seq), vec![Metric::new("T", 2.5_f64)])
    }

    fn ndeath(bd_seq: u64) -> Message {
        message("spBv1.0/G/NDEATH/N", Form::Birth, None, vec![Metric::new(BD_SEQ, bd_seq)])
    }

    fn rules(messages: Vec<Message>) -> Vec<String> {
        let messages: Vec<Arc<Message>> = messages.into_iter().map(Arc::new).collect();
        Reader::read(&messages).violations().iter().map(|violation| violation.rule.clone()).collect()
    }

    #[test]
    fn a_node_that_was_born_while_the_recorder_was_away_is_not_judged_before_its_next_birth() {
        let later = |message: Message| Message { session: 1, ..message };
        let messages = vec![nbirth(7), later(ndata(3)), later(nbirth(8)), later(ndata(2))];
        assert_eq!(rules(messages), ["seq is Some(2), not 1"]);
        assert_eq!(rules(vec![later(ndata(3)), later(nbirth(0)), later(ndata(1))]), Vec::<String>::new());
    }

    #[test]
    fn a_death_that_is_followed_by_its_will_is_one_death_to_a_recorder_that_missed_the_birth_too() {
        let messages: Vec<Arc<Message>> = [ndata(3), ndeath(7), ndeath(7)].into_iter().map(Arc::new).collect();
        let reader = Reader::read_late(&messages);
        let (_, node) = reader.nodes().iter().next().expect("the node is known");
        assert_eq!((node.is_alive, node.deaths), (false, 1));
    }

    #[test]
    fn a_session_in_order_breaks_no_rule() {
        let device = message("spBv1.0/G/DBIRTH/N/D", Form::Birth, Some(1), vec![Metric::new("X", 1_u64)]);
        let gone = message("spBv1.0/G/DDEATH/N/D", Form::Data, Some(3), vec![]);
        let messages = vec![nbirth(7), device, ndata(2), gone, ndata(4), ndeath(7), ndeath(7), nbirth(8), ndata(1)];
        assert_eq!(rules(messages), Vec::<String>::new());
        let without_births = vec![ndeath(6), nbirth(7), ndeath(7), ndeath(8), nbirth(9)];
        assert_eq!(rules(without_births), Vec::<String>::new());
    }

    #[test]
    fn each_broken_rule_is_found() {
        let ddata = message("spBv1.0/G/DDATA/N/D", Form::Data, Some(1), vec![Metric::new("X", 1_u64)]);
        let other = message("spBv1.0/G/NDATA/N", Form::Data, Some(1), vec![Metric::new("Y", 1_u64)]);
        let cases: Vec<(&str, Vec<Message>)> = vec![
            ("before NBIRTH, or after NDEATH", vec![ndata(0)]),
            ("seq is Some(2), not 1", vec![nbirth(0), ndata(2), ndata(3)]),
            ("before NBIRTH, or after NDEATH", vec![nbirth(0), ndeath(0), ndata(1)]),
            ("NDEATH of bdSeq 3, but the birth has Some(4)", vec![nbirth(4), ndeath(3)]),
            ("a session begins before the death of the one before it", vec![nbirth(4), nbirth(5)]),
            ("a second session with bdSeq 4", vec![nbirth(4), ndeath(4), nbirth(4)]),
            ("DDATA of a device that is not born", vec![nbirth(4), ddata]),
            ("Y is not in the birth", vec![nbirth(4), other]),
        ];
        for (rule, messages) in cases {
            assert_eq!(rules(messages), [rule]);
        }
    }

    #[test]
    fn topics_outside_the_namespace_and_garbage_are_found() {
        let message = |topic: &str, payload: &[u8]| Message {
            at: Duration::ZERO,
            session: 0,
            topic: topic.to_owned(),
            payload: payload.to_vec(),
            retain: false,
        };
        let found = rules(vec![
            message("factory/oven", b"1"),
            message("spBv1.0/G/NBIRTH/N", b"\xff\xff"),
            message("spBv1.0/STATE/H", b"ONLINE"),
        ]);
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
