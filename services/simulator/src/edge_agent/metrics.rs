//! Births of a simulated edge agent, with the names that Factory+'s agents use. Pure.

use std::sync::Arc;

use configdb_schema::address::v5;
use configdb_schema::known::{alert, schema, special};
use sparkplug::{DataType, Metric, Properties, Value};
use uuid::Uuid;

use super::config::DeviceConfig;
use crate::machine::{Machine, Signal, Tag};

/// Metric that makes an agent read its configuration again.
pub const RELOAD: &str = "Node Control/Reload Edge Agent Config";

/// Metric with the revision of the configuration in force.
pub const CONFIG_REVISION: &str = "Config_Revision";

const STATE: &str = "Status/State";
const REASON: &str = "Status/Reason";
const SINCE: &str = "Status/Since";

/// Metrics of a device that no tag of a configuration replaces.
const OWN: [&str; 5] = ["Instance_UUID", "Simulated", STATE, REASON, SINCE];

/// What came of loading the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigState {
    Loaded,
    Unavailable,
    /// It cannot be understood.
    Invalid,
}

/// What a machine does, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    state: &'static str,
    /// UTC ms.
    since: u64,
}

impl Status {
    /// `now`: UTC ms.
    pub fn of(machine: &Machine, now: u64) -> Self {
        let spent = u64::try_from(machine.spent().as_millis()).unwrap_or(u64::MAX);
        Self { state: machine.state(), since: now.saturating_sub(spent) }
    }

    /// The status after a step of the machine: a new one if it does something else.
    pub fn after(self, machine: &Machine, now: u64) -> Self {
        if machine.state() == self.state { self } else { Self::of(machine, now) }
    }

    fn reason(self) -> Option<&'static str> {
        match self.state {
            "blocked" => Some("the next station does not take the part"),
            "fault" => Some("the drive has stopped"),
            _ => None,
        }
    }

    fn metrics(self) -> [Metric; 3] {
        let reason =
            self.reason().map_or_else(|| Metric::null(REASON, DataType::String), |text| Metric::new(REASON, text));
        [Metric::new(STATE, self.state), reason, Metric::new(SINCE, Value::DateTime(self.since))]
    }
}

fn uuid_metric(name: impl Into<Arc<str>>, uuid: Uuid) -> Metric {
    Metric::new(name, Value::Uuid(uuid.to_string().into()))
}

/// A metric of a birth, which says what it means.
fn described(metric: Metric, what: &str) -> Metric {
    metric.with_properties(Properties::described(&[what], true))
}

/// The node's own metrics.
pub fn node(agent: Uuid, revision: Option<&str>, state: ConfigState) -> Vec<Metric> {
    let reload = Properties::described(&["True as a command: the agent reads its configuration again."], false);
    let mut metrics = vec![
        described(uuid_metric("Schema_UUID", schema::EDGE_AGENT), "Schema of an edge agent, as Factory+ knows it."),
        described(uuid_metric("Instance_UUID", agent), "Object of the deployment in ConfigDB."),
        Metric::new(RELOAD, false).with_properties(reload),
        described(Metric::new("Properties/Simulated", true), "The edge agent is simulated."),
        described(Metric::new("Node Properties/Type", "Simulated edge agent"), "Kind of edge agent."),
        described(Metric::new("Node Properties/Version", env!("CARGO_PKG_VERSION")), "Version of the software."),
    ];
    for (name, alert_type) in
        [("Config_Unavailable", alert::AGENT_CONFIG_UNAVAILABLE), ("Config_Invalid", alert::AGENT_CONFIG_INVALID)]
    {
        let folder = format!("Alerts/{name}");
        let instance = v5(&[&special::V5_METRIC.to_string(), &agent.to_string(), &folder]);
        metrics.extend([
            described(uuid_metric(format!("{folder}/Schema_UUID"), schema::ALERT), "Schema of the alert."),
            described(uuid_metric(format!("{folder}/Instance_UUID"), instance), "Identity of the alert."),
            described(uuid_metric(format!("{folder}/Type"), alert_type), "Type of the alert."),
        ]);
    }
    let meanings = [
        "Revision of the configuration in force; null: none is.",
        "The edge agent has no configuration yet.",
        "The edge agent does not understand its configuration.",
    ];
    metrics.extend(changing(revision, state).into_iter().zip(meanings).map(|(metric, what)| described(metric, what)));
    metrics
}

/// Those of the node's metrics that loading a configuration changes.
pub fn changing(revision: Option<&str>, state: ConfigState) -> [Metric; 3] {
    let revision = match revision {
        Some(text) => Metric::new(CONFIG_REVISION, Value::Uuid(text.into())),
        None => Metric::null(CONFIG_REVISION, DataType::Uuid),
    };
    [
        revision,
        Metric::new("Alerts/Config_Unavailable/Active", state == ConfigState::Unavailable),
        Metric::new("Alerts/Config_Invalid/Active", state == ConfigState::Invalid),
    ]
}

/// All metrics of a device, as its birth has them.
pub fn device(agent: Uuid, config: &DeviceConfig, machine: &Machine, status: Status) -> Vec<Metric> {
    let instance = v5(&["Simulated machine", &agent.to_string(), config.id.as_str()]);
    let mut metrics = vec![
        described(uuid_metric("Instance_UUID", instance), "Identity of the machine."),
        described(Metric::new("Simulated", true), "The machine is simulated."),
    ];
    let meanings = [
        "What the machine does: idle, running, blocked or fault.",
        "Why it does not work; null: it does, or has nothing to do.",
        "Since when it is in that state.",
    ];
    metrics.extend(status.metrics().into_iter().zip(meanings).map(|(metric, what)| described(metric, what)));
    metrics.extend(tags(config).map(|tag| value(tag, machine).with_properties(properties(tag))));
    metrics
}

/// What of a device changes: its status, and the values of its tags.
pub fn values(config: &DeviceConfig, machine: &Machine, status: Status) -> Vec<Metric> {
    status.metrics().into_iter().chain(tags(config).map(|tag| value(tag, machine))).collect()
}

fn tags(config: &DeviceConfig) -> impl Iterator<Item = &Tag> {
    config.tags.iter().filter(|tag| !OWN.contains(&tag.name.as_str()))
}

fn value(tag: &Tag, machine: &Machine) -> Metric {
    Metric::new(tag.name.as_str(), machine.read(tag))
}

/// What a tag means, and in which unit a number of it is.
fn properties(tag: &Tag) -> Properties {
    let (what, unit) = match tag.signal {
        Signal::State => ("What the machine does: idle, running, blocked or fault.", None),
        Signal::Temperature => ("Temperature of the tool.", Some("°C")),
        Signal::Force => ("Force of the stroke at the moment.", Some("kN")),
        Signal::Power => ("Electrical power.", Some("kW")),
        Signal::CycleCount => ("Cycles since the machine was switched on.", None),
        Signal::CycleTime => ("Duration of the last cycle.", Some("s")),
        Signal::Fault => ("The machine has a fault.", None),
        Signal::Wave(_) => ("A slow wave; it stands for nothing.", None),
    };
    let is_number = !matches!(tag.datatype, DataType::String | DataType::Text | DataType::Boolean);
    let described = Properties::described(&[what], true);
    unit.filter(|_| is_number).map_or(described.clone(), |unit| described.with("engUnit", unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_birth_names_the_agent_its_revision_and_quiet_alerts() {
        let agent = Uuid::from_u128(7);
        let metrics = node(agent, Some("5b2e0000-0000-4000-8000-000000000001"), ConfigState::Loaded);
        let find =
            |name: &str| metrics.iter().find(|m| &*m.name == name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(find("Schema_UUID").as_str(), Some("15360868-2f35-4b52-990b-49329fb246fe"));
        assert_eq!(find("Instance_UUID").as_str(), Some(agent.to_string().as_str()));
        assert_eq!(find(CONFIG_REVISION).datatype, DataType::Uuid);
        assert_eq!(find("Alerts/Config_Invalid/Active").as_bool(), Some(false));
        assert_eq!(find("Alerts/Config_Invalid/Type").as_str(), Some("99c54cb2-2bb9-45c8-88f9-c1a0f792cfd6"));
        let mut names: Vec<&str> = metrics.iter().map(|m| &*m.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), metrics.len());
    }

    fn press() -> DeviceConfig {
        let id = sparkplug::DeviceId::new("Press_1").unwrap();
        DeviceConfig { id, tags: Tag::defaults(), interval: std::time::Duration::from_secs(1) }
    }

    #[test]
    fn a_status_lasts_as_long_as_the_machine_does_the_same() {
        let mut machine = Machine::new(3);
        let mut now = 1_700_000_000_000;
        let mut status = Status::of(&machine, now);
        assert_eq!((status.state, status.since, status.reason()), ("idle", now, None));
        let mut reasons = std::collections::BTreeSet::new();
        for _ in 0..2_000 {
            machine.step(std::time::Duration::from_millis(500));
            now += 500;
            let before = status;
            status = before.after(&machine, now);
            assert_eq!(status.state, machine.state());
            if before.state == status.state {
                assert_eq!(before.since, status.since, "it is not sent again");
            } else {
                assert!(status.since > before.since && status.since <= now);
            }
            reasons.extend(status.reason());
            assert_eq!(status.reason().is_some(), matches!(status.state, "blocked" | "fault"));
        }
        assert_eq!(reasons.len(), 2, "{reasons:?}");
    }

    #[test]
    fn the_page_of_metrics_has_these_metrics_and_data_name_no_other() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
        let machine = Machine::new(3);
        let status = Status::of(&machine, 1_700_000_000_000);
        let birth = device(Uuid::nil(), &press(), &machine, status);
        for (title, metrics) in [
            ("`ORG-<cluster>/<deployment>`: an edge agent that", &node(Uuid::nil(), None, ConfigState::Loaded)),
            ("Device of a machine, below a simulated", &birth),
        ] {
            let section = page.split("\n## ").find(|section| section.starts_with(title)).unwrap();
            let written: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
            let row = |metric: &Metric| {
                let property = |key| metric.properties.get(key).and_then(Value::as_str).unwrap_or_default();
                let (unit, meaning) = (property("engUnit"), property("documentation"));
                let writable =
                    if metric.properties.get("readOnly") == Some(&Value::Boolean(true)) { "" } else { " Writable." };
                format!("| `{}` | {:?} | {unit} | {meaning}{writable} |", metric.name, metric.datatype)
            };
            assert_eq!(metrics.iter().map(row).collect::<Vec<_>>(), written, "{title}");
        }
        for metric in values(&press(), &machine, status) {
            assert!(
                birth.iter().any(|born| born.name == metric.name && born.datatype == metric.datatype),
                "{metric:?}"
            );
        }
    }

    #[test]
    fn no_tag_takes_the_place_of_what_every_device_has() {
        let tags = vec![Tag::named(STATE, DataType::Double, 0), Tag::named("Speed", DataType::Double, 1)];
        let config = DeviceConfig { tags, ..press() };
        let machine = Machine::new(3);
        let metrics = device(Uuid::nil(), &config, &machine, Status::of(&machine, 5_000));
        assert_eq!(metrics.len(), OWN.len() + 1);
        let state = metrics.iter().find(|metric| &*metric.name == STATE).unwrap();
        assert_eq!(state.as_str(), Some("idle"));
    }
}
