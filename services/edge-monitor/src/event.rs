//! All that can come in and all that can go out: the reader's index of this service.

use std::collections::BTreeMap;

use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::host::{HostEvent, HostRequest};

use crate::config_freshness::SealedSecret;
use crate::spec::NodeResource;

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A deadline of the state passed.
    DeadlineReached,
    /// From the session as Host Application: the nodes of the own group; at the control plane every monitor and ConfigDB.
    Host(HostEvent),
    /// From the session as Edge Node `<group>/Monitor`.
    Node(NodeEvent),
    /// SparkplugNode resources of the own namespace. Edge only.
    Nodes(Watch<NodeResource>),
    /// SealedSecret resources of the own namespace. Edge only.
    Secrets(Watch<SealedSecret>),
    /// ConfigMaps of the own namespace with agent configurations, by name. Edge only.
    AgentConfigs(Watch<AgentConfig>),
}

/// An event of a watched kind of resource, by name. Nothing is concluded from absence before the first complete list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watch<T> {
    /// These exist, and no others.
    Listed(BTreeMap<String, T>),
    Applied(String, T),
    /// This one is gone.
    Deleted(String),
}

/// What a ConfigMap with an agent's configuration says beside the configuration, which a monitor does not read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentConfig {
    /// Annotation [`REVISION_ANNOTATION`].
    pub revision: Option<String>,
}

/// Annotation with the revision (ETag) of the agent configuration in a ConfigMap.
pub const REVISION_ANNOTATION: &str = "factoryplus.app.amrc.co.uk/config-revision";
/// Name of such a ConfigMap, before the agent's UUID.
pub const AGENT_CONFIG_PREFIX: &str = "edge-agent-config-";

/// What goes out. A monitor promises nothing that must survive it, so every turn is saved by having nothing to save.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// To the own Edge Node.
    Node(NodeUpdate),
    /// To the own Host Application.
    Host(HostRequest),
}

impl<T: PartialEq> Watch<T> {
    /// Folds this into what is known, `known` being None before the first complete list; true if it changed anything.
    pub fn fold_into(self, known: &mut Option<BTreeMap<String, T>>) -> bool {
        match (self, known) {
            (Self::Listed(all), known) => {
                let changed = known.as_ref() != Some(&all);
                *known = Some(all);
                changed
            }
            (Self::Applied(name, value), Some(known)) => {
                let changed = known.get(&name) != Some(&value);
                known.insert(name, value);
                changed
            }
            (Self::Deleted(name), Some(known)) => known.remove(&name).is_some(),
            (Self::Applied(..) | Self::Deleted(_), None) => false,
        }
    }
}
