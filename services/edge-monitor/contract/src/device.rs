//! The device that stands for one monitored node: links, alerts, state, configuration revisions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sparkplug::{DataType, Metric, Value};
use uuid::Uuid;

use crate::{identity, names};

/// Condition of a monitored node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    /// Not born since the monitor began to watch.
    Unknown,
    /// Born, and heard within its interval or not yet overdue.
    Online,
    /// Its death was heard; only a birth ends that.
    Offline,
    /// Born once, and nothing heard for three intervals; only a birth ends that.
    Silent,
}

impl NodeState {
    /// As in [`names::NODE_STATE`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Online => "online",
            Self::Offline => "offline",
            Self::Silent => "silent",
        }
    }

    /// From [`names::NODE_STATE`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Unknown, Self::Online, Self::Offline, Self::Silent].into_iter().find(|state| state.as_str() == text)
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The alerts that a monitor raises for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertKind {
    /// The node died, fell silent, or was not born in time.
    Offline,
    /// An edge agent was told to reload and still has not the wanted configuration, or did not answer.
    WillNotReload,
}

impl AlertKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Offline, Self::WillNotReload];

    /// Folder of its metrics.
    #[must_use]
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Offline => "Alerts/Offline",
            Self::WillNotReload => "Alerts/Will_Not_Reload",
        }
    }

    /// Alert type.
    #[must_use]
    pub const fn type_uuid(self) -> Uuid {
        match self {
            Self::Offline => identity::ALERT_OFFLINE,
            Self::WillNotReload => identity::ALERT_WILL_NOT_RELOAD,
        }
    }

    /// Name of the metric that says whether it is active.
    #[must_use]
    pub const fn active_metric(self) -> &'static str {
        match self {
            Self::Offline => "Alerts/Offline/Active",
            Self::WillNotReload => "Alerts/Will_Not_Reload/Active",
        }
    }
}

/// Whether an alert is active, and since when it is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Alert {
    /// Active or not.
    pub active: bool,
    /// Moment of the last change, UTC ms; the timestamp of the metric.
    pub since: u64,
}

/// What a monitor says about one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitoredNodeDevice {
    /// Identity of the device ([`identity::device`]); those of its links and alerts are derived from it.
    pub identity: Uuid,
    /// The monitored node; None (the Null UUID on the wire) as long as only its address is known.
    pub node: Option<Uuid>,
    /// Condition of the node.
    pub state: NodeState,
    /// Since when, UTC ms.
    pub since: u64,
    /// [`AlertKind::Offline`].
    pub offline: Alert,
    /// [`AlertKind::WillNotReload`].
    pub will_not_reload: Alert,
    /// Configuration revision that an edge agent should have.
    pub config_wanted: Option<String>,
    /// Configuration revision that it says it has.
    pub config_reported: Option<String>,
}

/// Why metrics are not those of a device of a monitor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metric {name:?} of a monitored node is missing, null or not {expected}")]
pub struct DeviceError {
    /// Which metric.
    pub name: &'static str,
    /// What it should be.
    pub expected: &'static str,
}

impl MonitoredNodeDevice {
    /// The alert of that kind.
    #[must_use]
    pub const fn alert(&self, kind: AlertKind) -> Alert {
        match kind {
            AlertKind::Offline => self.offline,
            AlertKind::WillNotReload => self.will_not_reload,
        }
    }

    /// All metrics of the device's birth.
    #[must_use]
    pub fn to_metrics(&self) -> Vec<Metric> {
        let node = self.node.unwrap_or(Uuid::nil());
        let mut metrics = vec![
            Metric::new(names::DEVICE_CONTROL_REBIRTH, false),
            uuid_metric(names::SCHEMA_UUID, identity::SCHEMA_EDGE_MONITOR_DEVICE),
            uuid_metric(names::INSTANCE_UUID, self.identity),
        ];
        metrics.extend(link(self.identity, "Links/Node", node));
        for kind in AlertKind::ALL {
            let folder = kind.folder();
            metrics.extend([
                uuid_metric(format!("{folder}/Schema_UUID"), identity::SCHEMA_ALERT),
                uuid_metric(format!("{folder}/Instance_UUID"), identity::metric(self.identity, folder)),
                uuid_metric(format!("{folder}/Type"), kind.type_uuid()),
                self.active(kind),
            ]);
            metrics.extend(link(self.identity, &format!("{folder}/Links/Node"), node));
        }
        metrics.extend([
            Metric::new(names::NODE_STATE, self.state.as_str()).at(self.since),
            Metric::new(names::NODE_SINCE, Value::DateTime(self.since)).at(self.since),
            Metric::string(names::CONFIG_WANTED, self.config_wanted.as_deref()),
            Metric::string(names::CONFIG_REPORTED, self.config_reported.as_deref()),
        ]);
        metrics
    }

    /// The metrics that differ from `earlier`, which must be a device of the same identity.
    #[must_use]
    pub fn changes_since(&self, earlier: &Self) -> Vec<Metric> {
        let before: BTreeMap<Arc<str>, Option<Value>> =
            earlier.to_metrics().into_iter().map(|metric| (metric.name, metric.value)).collect();
        let mut metrics = self.to_metrics();
        metrics.retain(|metric| before.get(&metric.name) != Some(&metric.value));
        metrics
    }

    /// From the metrics of a DBIRTH, with the DDATA since folded in. `received` stands in for a timestamp that is missing.
    ///
    /// # Errors
    /// A metric that every such device has is missing or unreadable.
    pub fn from_metrics<'a>(metrics: impl IntoIterator<Item = &'a Metric>, received: u64) -> Result<Self, DeviceError> {
        let by_name: BTreeMap<&str, &Metric> = metrics.into_iter().map(|metric| (&*metric.name, metric)).collect();
        let uuid = |name: &'static str| {
            let value = text(&by_name, name).and_then(|text| Uuid::parse_str(text).ok());
            value.ok_or(DeviceError { name, expected: "a UUID" })
        };
        let alert = |kind: AlertKind| {
            let name = kind.active_metric();
            let metric = by_name.get(name).copied();
            let active = metric.and_then(Metric::as_bool).ok_or(DeviceError { name, expected: "a Boolean" })?;
            Ok(Alert { active, since: metric.and_then(|metric| metric.timestamp).unwrap_or(received) })
        };
        let state = text(&by_name, names::NODE_STATE).and_then(NodeState::parse);
        let since = by_name.get(names::NODE_SINCE).and_then(|metric| metric.as_u64());
        Ok(Self {
            identity: uuid(names::INSTANCE_UUID)?,
            node: Some(uuid(names::LINK_NODE_TARGET)?).filter(|node| !node.is_nil()),
            state: state
                .ok_or(DeviceError { name: names::NODE_STATE, expected: "one of unknown, online, offline, silent" })?,
            since: since.ok_or(DeviceError { name: names::NODE_SINCE, expected: "a DateTime" })?,
            offline: alert(AlertKind::Offline)?,
            will_not_reload: alert(AlertKind::WillNotReload)?,
            config_wanted: text(&by_name, names::CONFIG_WANTED).map(str::to_owned),
            config_reported: text(&by_name, names::CONFIG_REPORTED).map(str::to_owned),
        })
    }

    fn active(&self, kind: AlertKind) -> Metric {
        let alert = self.alert(kind);
        Metric::new(kind.active_metric(), alert.active).at(alert.since)
    }
}

fn link(owner: Uuid, folder: &str, target: Uuid) -> [Metric; 4] {
    [
        uuid_metric(format!("{folder}/Schema_UUID"), identity::SCHEMA_LINK),
        uuid_metric(format!("{folder}/Instance_UUID"), identity::metric(owner, folder)),
        uuid_metric(format!("{folder}/Target"), target),
        uuid_metric(format!("{folder}/Relation"), identity::RELATION_NODE),
    ]
}

pub(crate) fn uuid_metric(name: impl Into<Arc<str>>, uuid: Uuid) -> Metric {
    Metric { value: Some(Value::Uuid(uuid.to_string().into())), ..Metric::null(name, DataType::Uuid) }
}

pub(crate) fn text<'a>(by_name: &BTreeMap<&str, &'a Metric>, name: &str) -> Option<&'a str> {
    by_name.get(name).and_then(|metric| metric.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> MonitoredNodeDevice {
        let node = Uuid::from_u128(7);
        MonitoredNodeDevice {
            identity: identity::device(node),
            node: Some(node),
            state: NodeState::Silent,
            since: 5,
            offline: Alert { active: true, since: 6 },
            will_not_reload: Alert { active: false, since: 1 },
            config_wanted: Some("b".into()),
            config_reported: None,
        }
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(MonitoredNodeDevice::from_metrics(&device().to_metrics(), 99), Ok(device()));
    }

    #[test]
    fn names_and_types_are_those_of_factory_plus_and_the_additions() {
        let metrics = device().to_metrics();
        let listed: Vec<String> =
            metrics.iter().map(|metric| format!("{} {:?}", metric.name, metric.datatype)).collect();
        let mut expected =
            vec!["Device Control/Rebirth Boolean".to_owned(), "Schema_UUID Uuid".into(), "Instance_UUID Uuid".into()];
        let link = |folder: &str| {
            ["Schema_UUID", "Instance_UUID", "Target", "Relation"].map(|end| format!("{folder}/{end} Uuid"))
        };
        expected.extend(link("Links/Node"));
        for folder in ["Alerts/Offline", "Alerts/Will_Not_Reload"] {
            expected.extend(["Schema_UUID", "Instance_UUID", "Type"].map(|end| format!("{folder}/{end} Uuid")));
            expected.push(format!("{folder}/Active Boolean"));
            expected.extend(link(&format!("{folder}/Links/Node")));
        }
        expected.extend(
            ["Node/State String", "Node/Since DateTime", "Config/Wanted String", "Config/Reported String"]
                .map(str::to_owned),
        );
        assert_eq!(listed, expected);
    }

    #[test]
    fn the_timestamp_of_an_alert_is_the_moment_of_its_change() {
        let metrics = device().to_metrics();
        let active = metrics.iter().find(|metric| &*metric.name == "Alerts/Offline/Active").unwrap();
        assert_eq!((active.as_bool(), active.timestamp), (Some(true), Some(6)));
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let earlier = device();
        assert_eq!(earlier.changes_since(&earlier), vec![]);
        let later = MonitoredNodeDevice { offline: Alert { active: false, since: 9 }, ..device() };
        assert_eq!(later.changes_since(&earlier), vec![Metric::new("Alerts/Offline/Active", false).at(9)]);
    }

    #[test]
    fn an_unknown_node_is_the_null_uuid_on_the_wire() {
        let unknown = MonitoredNodeDevice { node: None, ..device() };
        let metrics = unknown.to_metrics();
        let target = metrics.iter().find(|metric| &*metric.name == names::LINK_NODE_TARGET).unwrap();
        assert_eq!(target.as_str(), Some("00000000-0000-0000-0000-000000000000"));
        assert_eq!(MonitoredNodeDevice::from_metrics(&metrics, 0), Ok(unknown));
    }

    #[test]
    fn a_state_that_is_no_state_is_refused_by_name() {
        let mut metrics = device().to_metrics();
        for metric in &mut metrics {
            if &*metric.name == names::NODE_STATE {
                *metric = Metric::new(names::NODE_STATE, "asleep");
            }
        }
        assert_eq!(MonitoredNodeDevice::from_metrics(&metrics, 0).unwrap_err().name, names::NODE_STATE);
    }
}
