//! What a SparkplugNode resource asks for: raw fields in, a validated [`NodeSpec`] and named problems out.

use std::time::Duration;

use edge_monitor_contract::EDGE_NODE_ID;
use sparkplug::{EdgeNodeDescriptor, GroupId};
use uuid::Uuid;

/// Shortest interval that is watched; below it a rebirth request would be traffic, not a question.
pub const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Longest interval that is watched.
pub const INTERVAL_MAX: Duration = Duration::from_secs(24 * 3600);

/// `spec` of a SparkplugNode, as it is in the resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeResource {
    /// `uuid`: Instance_UUID of the node.
    pub uuid: Option<String>,
    /// `address`: `<group>/<edge node>`.
    pub address: Option<String>,
    /// `edgeAgent`: it takes reload requests and reports a configuration revision.
    pub edge_agent: bool,
    /// `interval`: a duration such as `90s`.
    pub interval: Option<String>,
    /// `secrets`: names of SealedSecrets that the agent reads.
    pub secrets: Vec<String>,
    /// The resource has not the form of a SparkplugNode; why not.
    pub unreadable: Option<String>,
}

/// Which node is meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The node born with this Instance_UUID, wherever that is in the group.
    Uuid(Uuid),
    /// The node at this address, whatever it calls itself.
    Address(EdgeNodeDescriptor),
}

/// What is to be watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    pub subject: Subject,
    /// How long it may be silent.
    pub interval: Duration,
    /// Configuration and secrets are watched, too.
    pub is_edge_agent: bool,
    /// SealedSecrets that it reads.
    pub secrets: Vec<String>,
}

/// A rule that a resource breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not the form of a SparkplugNode.
    #[error("the resource is not readable: {reason}")]
    Unreadable { reason: String },
    /// Neither or both of the two forms.
    #[error("spec must have exactly one of uuid and address, but has {has}; set one of them")]
    Subject {
        /// `both` or `neither`.
        has: &'static str,
    },
    /// The UUID is none.
    #[error("spec.uuid {uuid:?} is not a UUID, or the null UUID; give the Instance_UUID of the node")]
    Uuid { uuid: String },
    /// The address has another form.
    #[error("spec.address {address:?} is not <group>/<edge node>: {reason}")]
    Address {
        address: String,
        /// Which rule it breaks.
        reason: String,
    },
    /// The address lies in another group.
    #[error("spec.address {address:?} is in a foreign group; this monitor watches group {group} only")]
    ForeignGroup { address: String, group: GroupId },
    /// The address is the monitor's own.
    #[error("spec.address {address:?} is this monitor itself; the central monitor watches it")]
    Itself { address: String },
    /// The interval is not a duration, or out of range.
    #[error(
        "spec.interval {interval:?} is not a duration from 1s to 24h (such as 90s or 3m); the default {default:?} is used"
    )]
    Interval {
        interval: String,
        /// What is used instead.
        default: Duration,
    },
    /// Edge agents are known by UUID.
    #[error("spec.edgeAgent needs spec.uuid, the UUID of the agent's configuration; only liveness is watched")]
    AgentWithoutUuid,
    /// Secrets belong to edge agents.
    #[error("spec.secrets needs spec.edgeAgent true; they are not watched")]
    SecretsWithoutAgent,
}

impl NodeResource {
    /// Checks the resource. With a problem that leaves the node in doubt there is no spec; with a smaller one there is, beside the problem.
    pub fn validate(&self, group: &GroupId, interval_default: Duration) -> (Option<NodeSpec>, Vec<SpecError>) {
        let mut problems = Vec::new();
        let subject = match self.subject(group) {
            Ok(subject) => subject,
            Err(problem) => return (None, vec![problem]),
        };
        let interval = self.interval(interval_default).unwrap_or_else(|problem| {
            problems.push(problem);
            interval_default
        });
        let is_edge_agent = self.edge_agent && matches!(subject, Subject::Uuid(_));
        if self.edge_agent && !is_edge_agent {
            problems.push(SpecError::AgentWithoutUuid);
        } else if !self.edge_agent && !self.secrets.is_empty() {
            problems.push(SpecError::SecretsWithoutAgent);
        }
        let secrets = if is_edge_agent { self.secrets.clone() } else { Vec::new() };
        (Some(NodeSpec { subject, interval, is_edge_agent, secrets }), problems)
    }

    fn subject(&self, group: &GroupId) -> Result<Subject, SpecError> {
        if let Some(reason) = &self.unreadable {
            return Err(SpecError::Unreadable { reason: reason.clone() });
        }
        match (&self.uuid, &self.address) {
            (Some(text), None) => match Uuid::try_parse(text) {
                Ok(uuid) if !uuid.is_nil() => Ok(Subject::Uuid(uuid)),
                Ok(_) | Err(_) => Err(SpecError::Uuid { uuid: text.clone() }),
            },
            (None, Some(text)) => Self::address(text, group).map(Subject::Address),
            (Some(_), Some(_)) => Err(SpecError::Subject { has: "both" }),
            (None, None) => Err(SpecError::Subject { has: "neither" }),
        }
    }

    fn address(text: &str, group: &GroupId) -> Result<EdgeNodeDescriptor, SpecError> {
        let shape = |reason: String| SpecError::Address { address: text.to_owned(), reason };
        let (of_group, edge_node) = text.split_once('/').ok_or_else(|| shape("it has no `/`".to_owned()))?;
        let address = EdgeNodeDescriptor::parse(of_group, edge_node).map_err(|error| shape(error.to_string()))?;
        if address.group != *group {
            return Err(SpecError::ForeignGroup { address: text.to_owned(), group: group.clone() });
        }
        if address.edge_node.as_str() == EDGE_NODE_ID {
            return Err(SpecError::Itself { address: text.to_owned() });
        }
        Ok(address)
    }

    fn interval(&self, default: Duration) -> Result<Duration, SpecError> {
        let Some(text) = &self.interval else { return Ok(default) };
        match humantime::parse_duration(text) {
            Ok(interval) if (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) => Ok(interval),
            Ok(_) | Err(_) => Err(SpecError::Interval { interval: text.clone(), default }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Duration = Duration::from_secs(180);
    const UUID: &str = "5b2e0d3c-7c3b-4c51-9a86-0f6a1c1f9a10";

    fn check(resource: &NodeResource) -> (Option<NodeSpec>, Vec<String>) {
        let (spec, problems) = resource.validate(&GroupId::new("ACME-Paint").unwrap(), DEFAULT);
        (spec, problems.iter().map(ToString::to_string).collect())
    }

    fn resource(uuid: Option<&str>, address: Option<&str>) -> NodeResource {
        NodeResource { uuid: uuid.map(str::to_owned), address: address.map(str::to_owned), ..NodeResource::default() }
    }

    #[test]
    fn a_uuid_names_a_node_and_may_be_an_edge_agent_with_secrets() {
        let resource = NodeResource {
            edge_agent: true,
            interval: Some("90s".into()),
            secrets: vec!["s".into()],
            ..resource(Some(UUID), None)
        };
        let spec = NodeSpec {
            subject: Subject::Uuid(UUID.parse().unwrap()),
            interval: Duration::from_secs(90),
            is_edge_agent: true,
            secrets: vec!["s".into()],
        };
        assert_eq!(check(&resource), (Some(spec), vec![]));
    }

    #[test]
    fn an_address_in_the_own_group_names_a_node() {
        let (spec, problems) = check(&resource(None, Some("ACME-Paint/Robot")));
        let address = EdgeNodeDescriptor::parse("ACME-Paint", "Robot").unwrap();
        assert_eq!(spec.map(|spec| (spec.subject, spec.interval)), Some((Subject::Address(address), DEFAULT)));
        assert_eq!(problems, Vec::<String>::new());
    }

    #[test]
    fn a_resource_that_leaves_the_node_in_doubt_is_refused_by_rule() {
        let table = [
            (resource(None, None), "exactly one of uuid and address, but has neither"),
            (resource(Some(UUID), Some("ACME-Paint/Robot")), "has both"),
            (resource(Some("robot"), None), "spec.uuid \"robot\" is not a UUID"),
            (resource(Some("00000000-0000-0000-0000-000000000000"), None), "null UUID"),
            (resource(None, Some("Robot")), "it has no `/`"),
            (resource(None, Some("ACME-Paint/a/b")), "is not <group>/<edge node>"),
            (resource(None, Some("ACME-Other/Robot")), "foreign group; this monitor watches group ACME-Paint only"),
            (resource(None, Some("ACME-Paint/Monitor")), "is this monitor itself"),
        ];
        for (resource, part) in table {
            let (spec, problems) = check(&resource);
            assert_eq!(spec, None, "{resource:?}");
            assert!(problems.len() == 1 && problems[0].contains(part), "{problems:?} should say {part:?}");
        }
    }

    #[test]
    fn smaller_problems_are_reported_and_the_node_is_watched_all_the_same() {
        let agent_by_address = NodeResource { edge_agent: true, ..resource(None, Some("ACME-Paint/Robot")) };
        let bad_interval = NodeResource { interval: Some("soon".into()), ..resource(Some(UUID), None) };
        let too_short = NodeResource { interval: Some("10ms".into()), ..resource(Some(UUID), None) };
        let stray_secrets = NodeResource { secrets: vec!["s".into()], ..resource(Some(UUID), None) };
        for resource in [agent_by_address, bad_interval, too_short, stray_secrets] {
            let (spec, problems) = check(&resource);
            let spec = spec.unwrap();
            assert_eq!((spec.interval, spec.is_edge_agent, spec.secrets, problems.len()), (DEFAULT, false, vec![], 1));
        }
    }
}
