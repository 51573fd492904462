//! Sparkplug: the two sessions of Identity. As Edge Node it is `<ORG>-Central/Identity`; as Host Application it receives ConfigDB, the cluster manager, and clusters that enrol or renew.

use configdb_contract::command::object_of;
use configdb_contract::configdb_node;
use configdb_schema::Organisation;
use configdb_schema::address::{CLUSTER_MANAGER_NODE, host_id};
use enrolment_protocol::metrics::RENEWAL_NODE;
use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug::host::{HostConfig, Interest, RebirthsForHosts};
use sparkplug::session::QoS;
use sparkplug::{EdgeNodeDescriptor, EdgeNodeId, GroupId, HostId, NameError};

/// Memory that the replicas of all nodes may take: those of some thousand clusters do.
const REPLICA_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The own address.
///
/// # Errors
/// The organisation's name makes no group.
pub fn own_descriptor(organisation: &Organisation) -> Result<EdgeNodeDescriptor, NameError> {
    identity_contract::names::node(organisation.as_str())
}

/// The Edge Node.
#[must_use]
pub fn node_config(descriptor: EdgeNodeDescriptor) -> EdgeNodeConfig {
    EdgeNodeConfig::for_one_speaker(descriptor)
}

/// The Host Application. Its filters are those that its user on the MQTT server may subscribe to, and no others.
///
/// # Errors
/// The organisation's name makes no host id.
pub fn host_config(organisation: &Organisation) -> Result<HostConfig, NameError> {
    let EdgeNodeDescriptor { group, edge_node } = own_descriptor(organisation)?;
    let host_id = HostId::new(host_id(group.as_str(), edge_node.as_str()))?;
    let configdb = configdb_node(organisation);
    // A filter `a/#` also takes `a`: messages of the node and of its devices alike.
    let central = [configdb.edge_node.as_str(), CLUSTER_MANAGER_NODE].map(|node| format!("spBv1.0/{group}/+/{node}/#"));
    let asking = [format!("spBv1.0/{}/+/+/#", organisation.enrol_group()), format!("spBv1.0/+/+/{RENEWAL_NODE}/#")];
    // Births and data are published at QoS 0 and stay so; a will is published at QoS 1, and no death may be lost on the way.
    let filters = central.into_iter().chain(asking).map(|filter| (filter, QoS::AtLeastOnce)).collect();
    Ok(HostConfig {
        filters,
        interests: interests(organisation)?,
        // Viewers may not command.
        rebirths_for_hosts: Some(RebirthsForHosts::but_for(organisation.own_host_prefixes())),
        replica_bytes_max: REPLICA_BYTES_MAX,
        ..HostConfig::of_contracts(Some(host_id))
    })
}

/// What the contracts know. In the quarantine group every client may claim any id, so only clusters that are known become nodes there.
fn interests(organisation: &Organisation) -> Result<Vec<Interest>, NameError> {
    let configdb = configdb_node(organisation);
    let enrolling = Interest {
        group: Some(GroupId::new(organisation.enrol_group())?),
        edge_node: None,
        allowed_only: true,
        device: |_| false,
    };
    Ok(vec![
        enrolling,
        Interest::in_edge_node(configdb.edge_node, |device| object_of(device).is_some()),
        // A Device of the cluster manager is a cluster or a shared repository, and any name may be a cluster's.
        Interest::in_edge_node(EdgeNodeId::new(CLUSTER_MANAGER_NODE)?, |_| true),
        Interest::in_edge_node(EdgeNodeId::new(RENEWAL_NODE)?, |_| false),
    ])
}

#[cfg(test)]
mod tests {
    use sparkplug::DeviceId;

    use super::*;

    #[test]
    fn only_nodes_and_devices_of_the_contracts_are_kept() {
        let organisation = Organisation::new("ACME").unwrap();
        let config = host_config(&organisation).unwrap();
        let filters: Vec<&str> = config.filters.iter().map(|(filter, _)| &**filter).collect();
        let central = ["spBv1.0/ACME-Central/+/ConfigDB/#", "spBv1.0/ACME-Central/+/Cluster-Manager/#"];
        assert_eq!(filters[..2], central);
        assert_eq!(filters[2..], ["spBv1.0/ACME-Enrol/+/+/#", "spBv1.0/+/+/Identity/#"]);
        let fits = |node: &str, device: &str| {
            let one = config.interests.iter().find(|one| one.edge_node.as_ref().is_some_and(|id| id.as_str() == node));
            (one.unwrap().device)(&DeviceId::new(device).unwrap())
        };
        let uuid = uuid::Uuid::from_u128(7).to_string();
        assert!(fits("ConfigDB", &uuid) && !fits("ConfigDB", "anything"));
        assert!(fits("Cluster-Manager", "Paint_Shop"));
        assert!(!fits("Identity", "anything") && config.interests[0].allowed_only);
    }
}
