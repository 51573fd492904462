//! Births of a simulated edge agent, with the names that Factory+'s agents use. Pure.

use configdb_schema::address::v5;
use configdb_schema::known::{alert, schema, special};
use sparkplug::{DataType, Metric, Value};
use uuid::Uuid;

use super::config::DeviceConfig;
use crate::machine::Machine;

/// Metric that makes an agent read its configuration again.
pub const RELOAD: &str = "Node Control/Reload Edge Agent Config";

/// Metric with the revision of the configuration in force.
pub const CONFIG_REVISION: &str = "Config_Revision";

/// What came of loading the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigState {
    Loaded,
    Unavailable,
    /// It cannot be understood.
    Invalid,
}

fn uuid_metric(name: impl Into<std::sync::Arc<str>>, uuid: Uuid) -> Metric {
    Metric::new(name, Value::Uuid(uuid.to_string().into()))
}

/// The node's own metrics.
pub fn node(agent: Uuid, revision: Option<&str>, state: ConfigState) -> Vec<Metric> {
    let mut metrics = vec![
        uuid_metric("Schema_UUID", schema::EDGE_AGENT),
        uuid_metric("Instance_UUID", agent),
        Metric::new(RELOAD, false),
        Metric::new("Properties/Simulated", true),
        Metric::new("Node Properties/Type", "Simulated edge agent"),
        Metric::new("Node Properties/Version", env!("CARGO_PKG_VERSION")),
    ];
    for (name, alert_type) in
        [("Config_Unavailable", alert::AGENT_CONFIG_UNAVAILABLE), ("Config_Invalid", alert::AGENT_CONFIG_INVALID)]
    {
        let folder = format!("Alerts/{name}");
        let instance = v5(&[&special::V5_METRIC.to_string(), &agent.to_string(), &folder]);
        metrics.push(uuid_metric(format!("{folder}/Schema_UUID"), schema::ALERT));
        metrics.push(uuid_metric(format!("{folder}/Instance_UUID"), instance));
        metrics.push(uuid_metric(format!("{folder}/Type"), alert_type));
    }
    metrics.extend(changing(revision, state));
    metrics
}

/// Those of the node's metrics that loading a configuration changes.
pub fn changing(revision: Option<&str>, state: ConfigState) -> Vec<Metric> {
    let revision = match revision {
        Some(text) => Metric::new(CONFIG_REVISION, Value::Uuid(text.into())),
        None => Metric::null(CONFIG_REVISION, DataType::Uuid),
    };
    vec![
        revision,
        Metric::new("Alerts/Config_Unavailable/Active", state == ConfigState::Unavailable),
        Metric::new("Alerts/Config_Invalid/Active", state == ConfigState::Invalid),
    ]
}

/// All metrics of a device.
pub fn device(agent: Uuid, config: &DeviceConfig, machine: &Machine) -> Vec<Metric> {
    let instance = v5(&["Simulated machine", &agent.to_string(), config.id.as_str()]);
    let mut metrics = vec![uuid_metric("Instance_UUID", instance), Metric::new("Simulated", true)];
    metrics.extend(values(config, machine));
    metrics
}

/// The values of a device's tags.
pub fn values(config: &DeviceConfig, machine: &Machine) -> Vec<Metric> {
    let is_own = |name: &str| matches!(name, "Instance_UUID" | "Simulated");
    config
        .tags
        .iter()
        .filter(|tag| !is_own(&tag.name))
        .map(|tag| Metric::new(tag.name.as_str(), machine.read(tag)))
        .collect()
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
}
