//! Sparkplug: the two sessions of the git server. As Edge Node it is `<ORG>-Central/Git`; as Host Application it receives ConfigDB and the cluster manager.

use configdb_contract::command::object_of;
use configdb_contract::configdb_node;
use configdb_schema::Organisation;
use configdb_schema::address::{CLUSTER_MANAGER_NODE, host_id};
use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug::host::{HostConfig, Interest, RebirthsForHosts};
use sparkplug::session::QoS;
use sparkplug::{EdgeNodeDescriptor, EdgeNodeId, HostId, NameError};

/// Memory that the replicas of both nodes may take.
const REPLICA_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Most bytes of one message: the references of a repository, or a part of a push.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// The own address.
///
/// # Errors
/// The organisation's name makes no group.
pub fn own_descriptor(organisation: &Organisation) -> Result<EdgeNodeDescriptor, NameError> {
    git_server_contract::names::node(organisation.as_str())
}

/// The Edge Node.
#[must_use]
pub fn node_config(descriptor: EdgeNodeDescriptor) -> EdgeNodeConfig {
    EdgeNodeConfig { message_bytes_max: MESSAGE_BYTES_MAX, ..EdgeNodeConfig::for_one_speaker(descriptor) }
}

/// The Host Application. Its filters are those that its user on the MQTT server may subscribe to, and no others.
///
/// # Errors
/// The organisation's name makes no host id.
pub fn host_config(organisation: &Organisation) -> Result<HostConfig, NameError> {
    let EdgeNodeDescriptor { group, edge_node } = own_descriptor(organisation)?;
    let host_id = HostId::new(host_id(group.as_str(), edge_node.as_str()))?;
    let configdb = configdb_node(organisation).edge_node;
    let manager = EdgeNodeId::new(CLUSTER_MANAGER_NODE)?;
    // A filter `a/#` also takes `a`: messages of the node and of its devices alike. Births and data are published at QoS 0 and stay so; a will is published at QoS 1, and no death may
    // be lost on the way.
    let filters = [&configdb, &manager].map(|node| (format!("spBv1.0/{group}/+/{node}/#"), QoS::AtLeastOnce));
    Ok(HostConfig {
        filters: filters.into(),
        interests: vec![
            Interest::in_edge_node(configdb, |device| object_of(device).is_some()),
            Interest::in_edge_node(manager, |_| false),
        ],
        // Viewers may not command.
        rebirths_for_hosts: Some(RebirthsForHosts::but_for(organisation.own_host_prefixes())),
        replica_bytes_max: REPLICA_BYTES_MAX,
        ..HostConfig::of_contracts(Some(host_id))
    })
}

#[cfg(test)]
mod tests {
    use sparkplug::DeviceId;

    use super::*;

    #[test]
    fn only_nodes_and_devices_of_the_contracts_are_kept() {
        let config = host_config(&Organisation::new("ACME").unwrap()).unwrap();
        let filters: Vec<&str> = config.filters.iter().map(|(filter, _)| &**filter).collect();
        assert_eq!(filters, ["spBv1.0/ACME-Central/+/ConfigDB/#", "spBv1.0/ACME-Central/+/Cluster-Manager/#"]);
        let fits = |node: &str, device: &str| {
            let one = config.interests.iter().find(|one| one.edge_node.as_ref().is_some_and(|id| id.as_str() == node));
            (one.unwrap().device)(&DeviceId::new(device).unwrap())
        };
        let uuid = uuid::Uuid::from_u128(7).to_string();
        assert!(fits("ConfigDB", &uuid) && !fits("ConfigDB", "anything"));
        assert!(!fits("Cluster-Manager", "Paint_Shop"));
    }
}
