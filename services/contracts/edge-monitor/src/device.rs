//! The device that stands for one monitored node: links, alerts, state, configuration revisions.

use std::fmt;
use std::str::FromStr;

use sparkplug::typed::{FieldError, Form, TypedMetrics, form};
use sparkplug::{DataType, Metric, Value};
use uuid::Uuid;

use crate::{identity, names};

/// Condition of a monitored node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum NodeState {
    /// Not born since the monitor began to watch.
    #[default]
    Unknown,
    /// Born; its last message came within its interval, or is not yet overdue.
    Online,
    /// Its death was received; only a birth ends that.
    Offline,
    /// Born once, and no message received for three intervals; only a birth ends that.
    Silent,
}

impl NodeState {
    /// As in [`names::STATUS_STATE`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Online => "online",
            Self::Offline => "offline",
            Self::Silent => "silent",
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not one of the states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be unknown, online, offline or silent")]
pub struct UnknownNodeState;

impl FromStr for NodeState {
    type Err = UnknownNodeState;

    fn from_str(text: &str) -> Result<Self, UnknownNodeState> {
        let states = [Self::Unknown, Self::Online, Self::Offline, Self::Silent];
        states.into_iter().find(|state| state.as_str() == text).ok_or(UnknownNodeState)
    }
}

/// In [`MonitoredNodeDevice::reason`], before which birth of the node was refused, and why.
pub const BIRTH_REFUSED: &str = "a birth was refused: ";

/// The alerts that a monitor raises for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertKind {
    /// The node died, fell silent, or was not born in time.
    Offline,
    /// An edge agent got the command to reload and still does not have the wanted configuration, or did not answer.
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonitoredNodeDevice {
    /// Identity of the device ([`identity::device`]); those of its links and alerts are derived from it.
    pub identity: Uuid,
    /// The monitored node; None (the Null UUID on the wire) as long as only its address is known.
    pub node: Option<Uuid>,
    /// Condition of the node.
    pub state: NodeState,
    /// Why it is not online, or has not its configuration; None: nothing is wrong.
    pub reason: Option<String>,
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

impl MonitoredNodeDevice {
    /// The alert of that kind.
    #[must_use]
    pub const fn alert(&self, kind: AlertKind) -> Alert {
        match kind {
            AlertKind::Offline => self.offline,
            AlertKind::WillNotReload => self.will_not_reload,
        }
    }

    /// From the metrics of a DBIRTH, with the DDATA since folded in. An alert without a moment gets `received`.
    ///
    /// # Errors
    /// A metric that every such device has is missing or unreadable.
    pub fn received<'a>(metrics: impl IntoIterator<Item = &'a Metric>, received: u64) -> Result<Self, FieldError> {
        let alert = Alert { active: false, since: received };
        Self { offline: alert, will_not_reload: alert, ..Self::default() }.born(metrics)
    }
}

sparkplug::typed_metrics! {
    MonitoredNodeDevice {
        /// True as a command: the device is published again.
        #[writable]
        (|_| false.into()) => names::DEVICE_CONTROL_REBIRTH,
        /// Schema of the device, as Factory+ has it.
        (|_| uuid(identity::SCHEMA_EDGE_MONITOR_DEVICE)) => names::SCHEMA_UUID,
        /// Identity of the device.
        identity as form::Uuid => names::INSTANCE_UUID,
        /// Schema of the link to the monitored node.
        (|_| uuid(identity::SCHEMA_LINK)) => names::LINK_NODE_SCHEMA,
        /// Identity of the link to the monitored node.
        (|device| uuid(identity::metric(device.identity, "Links/Node"))) => names::LINK_NODE_INSTANCE,
        /// The monitored node; the Null UUID while only its address is known.
        node as NullUuid => names::LINK_NODE_TARGET,
        /// Relation to the node: monitored node.
        (|_| uuid(identity::RELATION_NODE)) => names::LINK_NODE_RELATION,

        /// Schema of the alert.
        (|_| uuid(identity::SCHEMA_ALERT)) => "Alerts/Offline/Schema_UUID",
        /// Identity of the alert.
        (|device| uuid(identity::metric(device.identity, "Alerts/Offline"))) => "Alerts/Offline/Instance_UUID",
        /// Type of the alert.
        (|_| uuid(AlertKind::Offline.type_uuid())) => "Alerts/Offline/Type",
        /// The node is dead, silent, or was not born in time; the timestamp is the moment of the last change.
        #[at(offline.since)]
        offline.active => AlertKind::Offline.active_metric(),
        /// Schema of the alert's link.
        (|_| uuid(identity::SCHEMA_LINK)) => "Alerts/Offline/Links/Node/Schema_UUID",
        /// Identity of the alert's link.
        (|device| uuid(identity::metric(device.identity, "Alerts/Offline/Links/Node")))
            => "Alerts/Offline/Links/Node/Instance_UUID",
        /// The node that the alert is about; the Null UUID while only its address is known.
        (|device| uuid(device.node.unwrap_or_default())) => "Alerts/Offline/Links/Node/Target",
        /// Relation of the alert to the node: monitored node.
        (|_| uuid(identity::RELATION_NODE)) => "Alerts/Offline/Links/Node/Relation",

        /// Schema of the alert.
        (|_| uuid(identity::SCHEMA_ALERT)) => "Alerts/Will_Not_Reload/Schema_UUID",
        /// Identity of the alert.
        (|device| uuid(identity::metric(device.identity, "Alerts/Will_Not_Reload"))) => "Alerts/Will_Not_Reload/Instance_UUID",
        /// Type of the alert.
        (|_| uuid(AlertKind::WillNotReload.type_uuid())) => "Alerts/Will_Not_Reload/Type",
        /// The edge agent was asked to reload and has not the wanted configuration; the timestamp is the moment of the last change.
        #[at(will_not_reload.since)]
        will_not_reload.active => AlertKind::WillNotReload.active_metric(),
        /// Schema of the alert's link.
        (|_| uuid(identity::SCHEMA_LINK)) => "Alerts/Will_Not_Reload/Links/Node/Schema_UUID",
        /// Identity of the alert's link.
        (|device| uuid(identity::metric(device.identity, "Alerts/Will_Not_Reload/Links/Node")))
            => "Alerts/Will_Not_Reload/Links/Node/Instance_UUID",
        /// The node that the alert is about; the Null UUID while only its address is known.
        (|device| uuid(device.node.unwrap_or_default())) => "Alerts/Will_Not_Reload/Links/Node/Target",
        /// Relation of the alert to the node: monitored node.
        (|_| uuid(identity::RELATION_NODE)) => "Alerts/Will_Not_Reload/Links/Node/Relation",

        /// Condition of the node: unknown, online, offline (its death was published) or silent.
        #[at(since)]
        state as form::Parsed => names::STATUS_STATE,
        /// Why the node is not online or not as configured, or which birth was refused; null: nothing is wrong.
        #[optional]
        reason => names::STATUS_REASON,
        /// Since when the node is in that state.
        #[at(since)]
        since as form::DateTime => names::STATUS_SINCE,
        /// Revision of the configuration that the edge agent should have.
        #[optional]
        config_wanted => names::CONFIG_WANTED,
        /// Revision of the configuration that the edge agent reports.
        #[optional]
        config_reported => names::CONFIG_REPORTED,
    }
}

/// A UUID, or the Null UUID for none.
struct NullUuid;

impl Form<Option<Uuid>> for NullUuid {
    const DATATYPE: DataType = DataType::Uuid;

    fn write(field: &Option<Uuid>) -> Option<Value> {
        Some(uuid(field.unwrap_or_default()))
    }

    fn read(value: Option<&Value>) -> Result<Option<Uuid>, String> {
        let uuid: Uuid = form::Uuid::read(value)?;
        Ok(Some(uuid).filter(|uuid| !uuid.is_nil()))
    }
}

pub(crate) fn uuid(uuid: Uuid) -> Value {
    Value::Uuid(uuid.to_string().into())
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
            reason: Some("nothing was received".into()),
            since: 5,
            offline: Alert { active: true, since: 6 },
            will_not_reload: Alert { active: false, since: 1 },
            config_wanted: Some("b".into()),
            config_reported: None,
        }
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(MonitoredNodeDevice::received(&device().to_metrics(), 99), Ok(device()));
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
            [
                "Status/State String",
                "Status/Reason String",
                "Status/Since DateTime",
                "Config/Wanted String",
                "Config/Reported String",
            ]
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
    fn an_alert_without_a_moment_is_as_old_as_its_message() {
        let mut metrics = device().to_metrics();
        for metric in &mut metrics {
            metric.timestamp = None;
        }
        let read = MonitoredNodeDevice::received(&metrics, 99).unwrap();
        assert_eq!((read.offline.since, read.since), (99, 5));
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let earlier = device();
        assert_eq!(earlier.changes_since(&earlier), vec![]);
        let later = MonitoredNodeDevice { offline: Alert { active: false, since: 9 }, ..device() };
        let changes = later.changes_since(&earlier);
        let changes: Vec<_> = changes.iter().map(|m| (&*m.name, m.as_bool(), m.timestamp)).collect();
        assert_eq!(changes, [("Alerts/Offline/Active", Some(false), Some(9))]);
    }

    #[test]
    fn an_unknown_node_is_the_null_uuid_on_the_wire() {
        let unknown = MonitoredNodeDevice { node: None, ..device() };
        let metrics = unknown.to_metrics();
        let target = metrics.iter().find(|metric| &*metric.name == names::LINK_NODE_TARGET).unwrap();
        assert_eq!(target.as_str(), Some("00000000-0000-0000-0000-000000000000"));
        assert_eq!(MonitoredNodeDevice::from_metrics(&metrics), Ok(unknown));
    }

    #[test]
    fn an_unknown_state_is_refused_by_name() {
        let mut metrics = device().to_metrics();
        for metric in &mut metrics {
            if &*metric.name == names::STATUS_STATE {
                *metric = Metric::new(names::STATUS_STATE, "asleep");
            }
        }
        assert_eq!(MonitoredNodeDevice::from_metrics(&metrics).unwrap_err().metric, names::STATUS_STATE);
    }
}
