//! Every Edge Node that is received, foreign ones too: what it is, what it says, and the last numbers of the metrics that someone looks at.
//!
//! Births are shared with other replicas that keep them; a node costs its own changes since. The Host Application bounds which nodes are kept at all.

pub mod births;
mod messages;
mod typed;
mod value;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::json;
use sparkplug::host::HostEvent;
use sparkplug::metric::Properties;
use sparkplug::{BdSeq, DeviceId, EdgeNodeDescriptor, Metric, Value};

use crate::deltas::Table;
use crate::health::{Condition, Health};
use crate::requests::RequestError;
use crate::tables::add;

use messages::{Arrival, Known, Messages};

pub use typed::{ValueError, from_text};
pub use value::to_json;

/// Values of a trend.
pub const TREND_MAX: usize = 300;

/// Metrics of one table, and devices named in a row: a browser shows no more.
const ROWS_MAX: usize = 20_000;

/// Nodes that are kept; beyond it new ones are left out.
const NODES_MAX: usize = 100_000;

/// Time over which the rate of messages is taken, ms.
const RATE_MS: u64 = 10_000;

/// Names of metrics that say which program a node is.
const SERVICE: &str = "Properties/Service";
const VERSION: &str = "Properties/Version";
const INSTANCE: &str = "Instance_UUID";

/// Everything that was received.
#[derive(Debug, Default)]
pub struct Explorer {
    nodes: BTreeMap<EdgeNodeDescriptor, Node>,
    watched: BTreeMap<EdgeNodeDescriptor, usize>,
    followed: BTreeMap<EdgeNodeDescriptor, Followed>,
}

/// A node whose messages someone looks at.
#[derive(Debug, Default)]
struct Followed {
    viewers: usize,
    messages: Messages,
}

/// One Edge Node.
#[derive(Debug, Default)]
struct Node {
    alive: bool,
    stale: Option<String>,
    since: Option<u64>,
    bd_seq: Option<BdSeq>,
    messages: u64,
    window: (u64, u32),
    rate: f64,
    gaps: u64,
    rebirths: u64,
    rejected: Option<String>,
    /// What its NBIRTH lacks.
    lacks: Option<&'static str>,
    own: Metrics,
    devices: BTreeMap<DeviceId, Metrics>,
    trends: BTreeMap<String, VecDeque<(u64, f64)>>,
}

/// Metrics of a node or device.
#[derive(Debug, Default)]
struct Metrics {
    birth: Arc<[Metric]>,
    born_at: u64,
    changed: BTreeMap<Arc<str>, Metric>,
    /// By name, of the birth.
    aliases: BTreeMap<Arc<str>, u64>,
    dead: bool,
}

impl Metrics {
    fn born(metrics: &Arc<[Metric]>, at: u64) -> Self {
        Self { birth: Arc::clone(metrics), born_at: at, ..Self::default() }
    }

    fn get(&self, name: &str) -> Option<&Metric> {
        self.changed.get(name).or_else(|| self.birth.iter().find(|metric| &*metric.name == name))
    }

    /// What the birth says of the metric with this name or, in a message without names, this alias.
    fn known(&self, name: Option<&str>, alias: Option<u64>) -> Option<Known> {
        let name = match name {
            Some(name) => name,
            None => &**self.aliases.iter().find(|(_, of)| Some(**of) == alias)?.0,
        };
        self.get(name).map(|metric| Known { name: name.to_owned(), datatype: metric.datatype })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.value.as_ref()?.as_str()
    }
}

impl Explorer {
    /// Takes one event, received at `now` (UTC ms).
    pub fn on_event(&mut self, event: &HostEvent, now: u64) {
        match event {
            HostEvent::NodeBirth { node, bd_seq, timestamp, metrics, .. } => {
                let Some(known) = self.received(node, now) else { return };
                // The same bdSeq again is a rebirth in the same session.
                if !known.alive || known.bd_seq != Some(*bd_seq) {
                    known.since = Some(*timestamp);
                }
                (known.alive, known.stale, known.bd_seq) = (true, None, Some(*bd_seq));
                known.own = Metrics::born(metrics, *timestamp);
                known.devices.clear();
                let is_born_with = |name: &str| metrics.iter().any(|metric| &*metric.name == name);
                known.lacks = (!is_born_with("Node Control/Rebirth")).then_some("Node Control/Rebirth");
                self.note(node, None, metrics, now);
            }
            HostEvent::Aliases { node, device, aliases } => self.on_aliases(node, device.as_ref(), aliases),
            HostEvent::Message { .. } => self.on_message(event, now),
            HostEvent::NodeData { node, timestamp, metrics } => {
                let Some(known) = self.received(node, now) else { return };
                fold(&mut known.own, metrics, *timestamp);
                self.note(node, None, metrics, now);
            }
            HostEvent::DeviceBirth { node, device, timestamp, metrics } => {
                let Some(known) = self.received(node, now) else { return };
                known.devices.insert(device.clone(), Metrics::born(metrics, *timestamp));
                self.note(node, Some(device), metrics, now);
            }
            HostEvent::DeviceData { node, device, timestamp, metrics } => {
                let Some(known) = self.received(node, now) else { return };
                if let Some(of_device) = known.devices.get_mut(device) {
                    fold(of_device, metrics, *timestamp);
                }
                self.note(node, Some(device), metrics, now);
            }
            HostEvent::DeviceDeath { node, device, .. } => {
                let Some(known) = self.received(node, now) else { return };
                if let Some(of_device) = known.devices.get_mut(device) {
                    of_device.dead = true;
                }
            }
            HostEvent::NodeDeath { node, timestamp } => {
                let Some(known) = self.received(node, now) else { return };
                (known.alive, known.since) = (false, Some(*timestamp));
            }
            HostEvent::NodeStale { node, reason } => {
                if let Some(known) = self.nodes.get_mut(node) {
                    known.gaps += 1;
                    known.stale = Some(reason.clone());
                }
            }
            HostEvent::RebirthRequested { node, .. } => {
                if let Some(known) = self.nodes.get_mut(node) {
                    known.rebirths += 1;
                }
            }
            HostEvent::Rejected { topic, reason } => {
                if let Some(known) = of_topic(topic).and_then(|node| self.nodes.get_mut(&node)) {
                    known.rejected = Some(reason.clone());
                }
            }
            HostEvent::Online
            | HostEvent::Offline { .. }
            | HostEvent::HostState { .. }
            | HostEvent::HostServed { .. }
            | HostEvent::NodeMessages { .. }
            | HostEvent::Stopped => {}
        }
    }

    fn on_message(&mut self, event: &HostEvent, now: u64) {
        let HostEvent::Message { node, device, kind, qos, retain, payload } = event else { return };
        let count = self.followed.len();
        let Some(Followed { messages, .. }) = self.followed.get_mut(node) else { return };
        let of = self.nodes.get(node);
        let message = Arrival { kind: *kind, device: device.as_ref(), qos: *qos, retain: *retain, payload, at: now };
        messages.receive(&message, |name, alias| match device {
            Some(device) => of?.devices.get(device)?.known(name, alias),
            None => of?.own.known(name, alias),
        });
        messages.shrink(count);
    }

    fn on_aliases(&mut self, node: &EdgeNodeDescriptor, device: Option<&DeviceId>, aliases: &[(Arc<str>, u64)]) {
        let Some(known) = self.nodes.get_mut(node) else { return };
        let of = match device {
            Some(device) => known.devices.get_mut(device),
            None => Some(&mut known.own),
        };
        if let Some(of) = of {
            of.aliases = aliases.iter().cloned().collect();
        }
    }

    /// The node that a message came from; None: there is no room for another one.
    fn received(&mut self, node: &EdgeNodeDescriptor, now: u64) -> Option<&mut Node> {
        if !self.nodes.contains_key(node) && self.nodes.len() >= NODES_MAX {
            return None;
        }
        let known = self.nodes.entry(node.clone()).or_default();
        known.messages += 1;
        let (since, count) = &mut known.window;
        if now.saturating_sub(*since) >= RATE_MS {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        Some(known)
    }

    /// Brings the rates up to date; `now` in UTC ms.
    pub fn handle_time(&mut self, now: u64) {
        for known in self.nodes.values_mut() {
            let (since, count) = known.window;
            let elapsed = now.saturating_sub(since);
            if elapsed >= RATE_MS {
                // Nothing came for longer than the window: the count is of before.
                let is_old = elapsed >= 2 * RATE_MS;
                known.rate = if is_old { 0.0 } else { f64::from(count) * 1000.0 / RATE_MS as f64 };
                known.window = (now, 0);
            }
        }
    }

    /// Someone looks at the metrics of this node: their numbers are kept from now on.
    pub fn watch(&mut self, node: &EdgeNodeDescriptor) {
        *self.watched.entry(node.clone()).or_default() += 1;
    }

    /// Someone has stopped looking; after the last one the numbers are dropped.
    pub fn unwatch(&mut self, node: &EdgeNodeDescriptor) {
        let Some(count) = self.watched.get_mut(node) else { return };
        *count -= 1;
        if *count == 0 {
            self.watched.remove(node);
            if let Some(known) = self.nodes.get_mut(node) {
                known.trends.clear();
            }
        }
    }

    /// Someone looks at the messages of this node: they are kept from now on. True: that is the first one, so they are to be asked for.
    pub fn follow(&mut self, node: &EdgeNodeDescriptor) -> bool {
        let followed = self.followed.entry(node.clone()).or_default();
        followed.viewers += 1;
        let is_first = followed.viewers == 1;
        if is_first {
            let count = self.followed.len();
            self.followed.values_mut().for_each(|followed| followed.messages.shrink(count));
        }
        is_first
    }

    /// Someone has stopped looking. True: that was the last one; the messages are dropped, and are not wanted any more.
    pub fn unfollow(&mut self, node: &EdgeNodeDescriptor) -> bool {
        let Some(followed) = self.followed.get_mut(node) else { return false };
        followed.viewers -= 1;
        let is_last = followed.viewers == 0;
        if is_last {
            self.followed.remove(node);
        }
        is_last
    }

    /// Table `messages:GROUP/NODE`: the latest messages of a node that someone looks at, by their number.
    #[must_use]
    pub fn messages(&self, node: &EdgeNodeDescriptor) -> Table {
        self.followed.get(node).map_or_else(Table::new, |followed| followed.messages.table())
    }

    fn note(&mut self, node: &EdgeNodeDescriptor, device: Option<&DeviceId>, metrics: &[Metric], now: u64) {
        if !self.watched.contains_key(node) {
            return;
        }
        let Some(known) = self.nodes.get_mut(node) else { return };
        for metric in metrics.iter().filter(|metric| !metric.is_historical) {
            let Some(number) = metric.value.as_ref().and_then(value::number) else { continue };
            let key = key(device, &metric.name);
            if known.trends.len() >= ROWS_MAX && !known.trends.contains_key(&key) {
                continue;
            }
            let trend = known.trends.entry(key).or_default();
            if trend.len() >= TREND_MAX {
                trend.pop_front();
            }
            trend.push_back((metric.timestamp.unwrap_or(now), number));
        }
    }

    /// A metric of a node, or of a device of it, as it was said last; None: it is not known.
    #[must_use]
    pub fn metric(&self, node: &EdgeNodeDescriptor, device: Option<&DeviceId>, name: &str) -> Option<&Metric> {
        let known = self.nodes.get(node)?;
        match device {
            Some(device) => known.devices.get(device).filter(|of| !of.dead)?.get(name),
            None => known.own.get(name),
        }
    }

    /// The metric of a command that writes `text` to a metric, with the datatype that its birth gives.
    ///
    /// # Errors
    /// The node is away, its birth has no such metric or says that it is read-only (property `readOnly`), or the text does not fit the datatype.
    pub fn written(
        &self,
        node: &EdgeNodeDescriptor,
        device: Option<&DeviceId>,
        name: &str,
        text: &str,
    ) -> Result<Metric, RequestError> {
        let invalid = |field, rule: String| RequestError::Invalid { field, rule };
        let missing = |field, wanted: &str| RequestError::Missing { field, wanted: wanted.to_owned() };
        let known = self.nodes.get(node).ok_or_else(|| missing("node", &node.to_string()))?;
        if !known.alive {
            return Err(RequestError::NotNow(format!("{node} is away; a command would not arrive")));
        }
        if let Some(device) = device.filter(|device| known.devices.get(*device).is_none_or(|of| of.dead)) {
            return Err(missing("device", device.as_str()));
        }
        let metric = self.metric(node, device, name).ok_or_else(|| missing("metric", name))?;
        if is_read_only(&metric.properties) {
            return Err(invalid("metric", format!("{name} is read-only, as its birth says (property readOnly)")));
        }
        let value = from_text(metric.datatype, text).map_err(|error| invalid("value", error.to_string()))?;
        Ok(Metric { value, ..Metric::null(metric.name.clone(), metric.datatype) })
    }

    /// Table `nodes`, by `GROUP/NODE`.
    #[must_use]
    pub fn nodes(&self) -> Table {
        let mut table = Table::new();
        for (node, known) in &self.nodes {
            let mut notes: Vec<String> = Vec::new();
            notes.extend(known.rejected.as_ref().map(|reason| format!("a message was not usable: {reason}")));
            notes.extend(known.lacks.map(|name| format!("its birth has no {name}")));
            let compliant = notes.is_empty();
            notes.extend(known.stale.as_ref().map(|reason| format!("not in sync: {reason}")));
            let health = match (known.alive, compliant, &known.stale) {
                (false, ..) => Health::Away,
                (true, false, _) => Health::Attention,
                (true, true, Some(_)) => Health::Working,
                (true, true, None) => Health::Good,
            };
            let condition = Condition { health, reasons: notes.clone(), since: known.since };
            let devices: Vec<&str> = known
                .devices
                .iter()
                .filter(|(_, metrics)| !metrics.dead)
                .map(|(id, _)| id.as_str())
                .take(ROWS_MAX)
                .collect();
            let row = json!({
                "group": node.group.as_str(), "node": node.edge_node.as_str(), "alive": known.alive,
                "bd_seq": known.bd_seq.map(BdSeq::get), "messages": known.messages,
                "rate": known.rate, "gaps": known.gaps, "rebirths": known.rebirths, "devices": devices,
                "compliant": compliant, "note": notes.join("; "),
            });
            add(&mut table, node.to_string(), Some(condition), row);
        }
        table
    }

    /// Table `services`: nodes that say which program they are, by `GROUP/NODE`.
    #[must_use]
    pub fn services(&self) -> Table {
        let mut table = Table::new();
        for (node, known) in &self.nodes {
            let Some(service) = known.own.text(SERVICE) else { continue };
            let (health, reasons) = if known.alive {
                (Health::Good, Vec::new())
            } else {
                (Health::Away, vec!["its death was received".to_owned()])
            };
            let row = json!({
                "name": node.edge_node.as_str(), "group": node.group.as_str(), "service": service, "alive": known.alive,
                "version": known.own.text(VERSION), "instance": known.own.text(INSTANCE),
            });
            add(&mut table, node.to_string(), Some(Condition { health, reasons, since: known.since }), row);
        }
        table
    }

    /// Table `metrics:GROUP/NODE`, by `DEVICE|METRIC`; empty for a node that was never received.
    #[must_use]
    pub fn metrics(&self, node: &EdgeNodeDescriptor) -> Table {
        let mut table = Table::new();
        let Some(known) = self.nodes.get(node) else { return table };
        let own = std::iter::once((None, &known.own));
        let devices = known.devices.iter().map(|(device, metrics)| (Some(device), metrics));
        for (device, of) in own.chain(devices) {
            let born: BTreeSet<&str> = of.birth.iter().map(|metric| &*metric.name).collect();
            let later = of.changed.values().filter(|metric| !born.contains(&*metric.name));
            let current = of.birth.iter().map(|metric| of.changed.get(&metric.name).unwrap_or(metric));
            for metric in current.chain(later) {
                if table.len() >= ROWS_MAX {
                    return table;
                }
                let key = key(device, &metric.name);
                let row = json!({
                    "device": device.map_or("", DeviceId::as_str), "name": &*metric.name,
                    "datatype": format!("{:?}", metric.datatype),
                    "alias": of.aliases.get(&metric.name).map(|alias| value::unsigned(*alias)),
                    "value": metric.value.as_ref().map(to_json),
                    "quality": value::quality(metric, known.alive && !of.dead && known.stale.is_none()),
                    "historical": metric.is_historical, "at": metric.timestamp.unwrap_or(of.born_at),
                    "properties": value::properties(&metric.properties), "writable": !is_read_only(&metric.properties),
                    "trend": known.trends.get(&key),
                });
                add(&mut table, key, None, row);
            }
        }
        table
    }
}

fn fold(of: &mut Metrics, metrics: &[Metric], at: u64) {
    for metric in metrics.iter().filter(|metric| !metric.is_historical) {
        let mut metric = metric.clone();
        metric.timestamp.get_or_insert(at);
        // Properties come with the birth, and with data when they changed.
        if metric.properties.is_empty()
            && let Some(known) = of.get(&metric.name)
        {
            metric.properties = known.properties.clone();
        }
        of.changed.insert(metric.name.clone(), metric);
    }
}

/// Whether a birth says that a metric must not be written.
#[must_use]
pub fn is_read_only(properties: &Properties) -> bool {
    properties.get("readOnly") == Some(&Value::Boolean(true))
}

fn key(device: Option<&DeviceId>, metric: &str) -> String {
    format!("{}|{metric}", device.map_or("", DeviceId::as_str))
}

/// The node of `spBv1.0/GROUP/KIND/NODE[/DEVICE]`.
fn of_topic(topic: &str) -> Option<EdgeNodeDescriptor> {
    let mut parts = topic.strip_prefix("spBv1.0/")?.split('/');
    let group = parts.next()?;
    EdgeNodeDescriptor::parse(group, parts.nth(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::{DataType, Quality};

    fn node() -> EdgeNodeDescriptor {
        EdgeNodeDescriptor::parse("Foreign", "Gateway <b>").unwrap()
    }

    fn birth(metrics: Vec<Metric>) -> HostEvent {
        HostEvent::NodeBirth { node: node(), bd_seq: BdSeq::ZERO, timestamp: 5, uuid: None, metrics: metrics.into() }
    }

    fn data(metrics: Vec<Metric>) -> HostEvent {
        HostEvent::NodeData { node: node(), timestamp: 7, metrics }
    }

    fn rebirth() -> Metric {
        Metric::new("Node Control/Rebirth", false)
    }

    #[test]
    fn a_foreign_node_has_its_row_and_its_metrics() {
        let mut explorer = Explorer::default();
        explorer
            .on_event(&birth(vec![rebirth(), Metric::new("Speed", 3_u32), Metric::null("Name", DataType::String)]), 1);
        explorer.on_event(&data(vec![Metric::new("Speed", 4_u32)]), 2);
        let nodes = explorer.nodes();
        let row = &nodes["Foreign/Gateway <b>"];
        assert_eq!((&row["alive"], &row["messages"], &row["compliant"]), (&json!(true), &json!(2), &json!(true)));
        let metrics = explorer.metrics(&node());
        assert_eq!((&metrics["|Speed"]["value"], &metrics["|Speed"]["at"]), (&json!(4), &json!(7)));
        assert_eq!((&metrics["|Name"]["value"], &metrics["|Name"]["datatype"]), (&json!(null), &json!("String")));
    }

    #[test]
    fn a_metric_is_written_with_the_datatype_of_its_birth_where_that_allows_it() {
        let mut explorer = Explorer::default();
        let read_only = Properties::new().with("readOnly", true);
        let metrics =
            vec![rebirth(), Metric::new("Speed", 3_u32), Metric::new("Serial", 7_u32).with_properties(read_only)];
        explorer.on_event(&birth(metrics), 1);
        explorer.on_event(&data(vec![Metric::new("Serial", 8_u32)]), 2);
        let write = |explorer: &Explorer, device: Option<&str>, name: &str, text: &str| {
            let device = device.map(|device| DeviceId::new(device).unwrap());
            explorer.written(&node(), device.as_ref(), name, text).map_err(|error| error.to_string())
        };
        let rows = explorer.metrics(&node());
        assert_eq!((&rows["|Speed"]["writable"], &rows["|Serial"]["writable"]), (&json!(true), &json!(false)));
        assert_eq!(write(&explorer, None, "Speed", "4"), Ok(Metric::new("Speed", 4_u32)));
        assert_eq!(write(&explorer, None, "Speed", "null"), Ok(Metric::null("Speed", DataType::UInt32)));
        for (device, name, text, refusal) in [
            (
                None,
                "Speed",
                "-1",
                "value: -1 does not fit into datatype UInt32, which the birth gives: it takes 0 to 4294967295",
            ),
            (None, "Serial", "9", "metric: Serial is read-only, as its birth says (property readOnly)"),
            (None, "Torque", "1", "metric: there is no \"Torque\""),
            (Some("Motor"), "Speed", "1", "device: there is no \"Motor\""),
        ] {
            assert_eq!(write(&explorer, device, name, text), Err(refusal.to_owned()));
        }
        explorer.on_event(&HostEvent::NodeDeath { node: node(), timestamp: 9 }, 9);
        assert_eq!(
            write(&explorer, None, "Speed", "4"),
            Err("Foreign/Gateway <b> is away; a command would not arrive".to_owned())
        );
    }

    #[test]
    fn metrics_have_the_alias_of_their_birth_until_the_next_one() {
        let mut explorer = Explorer::default();
        let device = DeviceId::new("Motor").unwrap();
        let aliases = |device: Option<&DeviceId>, alias: u64| HostEvent::Aliases {
            node: node(),
            device: device.cloned(),
            aliases: vec![("Speed".into(), alias)],
        };
        let alias = |explorer: &Explorer, key: &str| explorer.metrics(&node())[key]["alias"].clone();
        explorer.on_event(&birth(vec![rebirth(), Metric::new("Speed", 3_u32)]), 1);
        explorer.on_event(&aliases(None, 7), 1);
        let of_device = HostEvent::DeviceBirth {
            node: node(),
            device: device.clone(),
            timestamp: 6,
            metrics: vec![Metric::new("Speed", 5_u32)].into(),
        };
        explorer.on_event(&of_device, 1);
        explorer.on_event(&aliases(Some(&device), u64::MAX), 1);
        explorer.on_event(&data(vec![Metric::new("Speed", 4_u32)]), 2);
        assert_eq!((alias(&explorer, "|Speed"), alias(&explorer, "|Node Control/Rebirth")), (json!(7), json!(null)));
        assert_eq!(alias(&explorer, "Motor|Speed"), "18446744073709551615", "JavaScript would round the number");
        assert_eq!(explorer.nodes()["Foreign/Gateway <b>"]["messages"], 3, "an alias is not a message");
        explorer.on_event(&birth(vec![rebirth(), Metric::new("Speed", 3_u32)]), 3);
        assert_eq!(alias(&explorer, "|Speed"), json!(null));
    }

    #[test]
    fn values_of_a_node_that_died_are_stale_and_its_row_is_away() {
        let mut explorer = Explorer::default();
        explorer.on_event(&birth(vec![rebirth(), Metric::new("Speed", 3_u32)]), 1);
        explorer.on_event(&HostEvent::NodeDeath { node: node(), timestamp: 9 }, 9);
        assert_eq!(explorer.nodes()["Foreign/Gateway <b>"]["health"], "away");
        assert_eq!(explorer.metrics(&node())["|Speed"]["quality"], Quality::Stale as i32);
    }

    #[test]
    fn a_birth_without_rebirth_and_an_unusable_message_do_not_comply() {
        let mut explorer = Explorer::default();
        explorer.on_event(&birth(vec![]), 1);
        let topic = "spBv1.0/Foreign/NDATA/Gateway <b>".to_owned();
        explorer.on_event(&HostEvent::Rejected { topic, reason: "no seq".to_owned() }, 2);
        let nodes = explorer.nodes();
        let row = &nodes["Foreign/Gateway <b>"];
        assert_eq!((&row["compliant"], &row["health"]), (&json!(false), &json!("attention")));
        assert_eq!(row["note"], "a message was not usable: no seq; its birth has no Node Control/Rebirth");
    }

    #[test]
    fn a_trend_is_kept_only_while_a_viewer_looks_and_is_bounded() {
        let mut explorer = Explorer::default();
        explorer.on_event(&birth(vec![rebirth(), Metric::new("Speed", 0_u32)]), 1);
        assert_eq!(explorer.metrics(&node())["|Speed"]["trend"], json!(null));
        explorer.watch(&node());
        for n in 0..400_u32 {
            explorer.on_event(&data(vec![Metric::new("Speed", n).at(n.into())]), 2);
        }
        let metrics = explorer.metrics(&node());
        let trend = metrics["|Speed"]["trend"].as_array().unwrap();
        assert_eq!((trend.len(), &trend[0], &trend[299]), (300, &json!([100, 100.0]), &json!([399, 399.0])));
        explorer.unwatch(&node());
        assert_eq!(explorer.metrics(&node())["|Speed"]["trend"], json!(null));
    }

    #[test]
    fn what_says_which_program_it_is_is_a_service() {
        let mut explorer = Explorer::default();
        explorer.on_event(&birth(vec![rebirth(), Metric::new(SERVICE, "edge-sync"), Metric::new(VERSION, "1.0")]), 1);
        let services = explorer.services();
        assert_eq!(services["Foreign/Gateway <b>"]["version"], "1.0");
    }

    #[test]
    fn the_rate_is_that_of_the_last_window() {
        let mut explorer = Explorer::default();
        explorer.on_event(&birth(vec![rebirth()]), 100_000);
        (0..19).for_each(|_| explorer.on_event(&data(vec![]), 100_001));
        explorer.handle_time(110_000);
        assert_eq!(explorer.nodes()["Foreign/Gateway <b>"]["rate"], 2.0);
        explorer.handle_time(130_000);
        assert_eq!(explorer.nodes()["Foreign/Gateway <b>"]["rate"], 0.0);
    }
}
