//! Sparkplug: the two sessions of the cluster manager. As Edge Node it is `<ORG>-Central/Cluster-Manager`; as Host Application it subscribes to ConfigDB, Identity, the git server, and Sync, Join and Keys of every cluster.

use configdb_contract::command::object_of;
use configdb_contract::configdb_node;
use configdb_schema::Organisation;
use configdb_schema::address::{GIT_NODE, IDENTITY_NODE, host_id};
use git_server_contract::names as git_names;
use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug::host::{HostConfig, Interest, RebirthsForHosts};
use sparkplug::session::QoS;
use sparkplug::{DeviceId, EdgeNodeDescriptor, EdgeNodeId, GroupId, HostId, NameError};

/// Memory that the replicas of all nodes may take: those of some thousand clusters do.
const REPLICA_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The own address.
///
/// # Errors
/// The organisation's name makes no group.
pub fn own_descriptor(organisation: &Organisation) -> Result<EdgeNodeDescriptor, NameError> {
    cluster_manager_contract::names::node(organisation.as_str())
}

/// The Edge Node.
#[must_use]
pub fn node_config(descriptor: EdgeNodeDescriptor) -> EdgeNodeConfig {
    EdgeNodeConfig::for_one_speaker(descriptor)
}

/// The Host Application: ConfigDB, Identity and the git server, and Sync, Join and Keys of every group.
///
/// # Errors
/// The organisation's name makes no host id.
pub fn host_config(organisation: &Organisation) -> Result<HostConfig, NameError> {
    let EdgeNodeDescriptor { group, edge_node } = own_descriptor(organisation)?;
    let host_id = HostId::new(host_id(group.as_str(), edge_node.as_str()))?;
    let configdb = configdb_node(organisation);
    let edge = [
        edge_sync_contract::names::EDGE_NODE_ID,
        join_service_contract::names::EDGE_NODE_ID,
        krb_keys_contract::names::EDGE_NODE_ID,
    ];
    // A filter `a/#` also takes `a`: messages of the node and of its devices alike.
    let central = [configdb.edge_node.as_str(), IDENTITY_NODE, GIT_NODE]
        .map(|node| format!("spBv1.0/{}/+/{node}/#", configdb.group));
    let filters = central.into_iter().chain(edge.map(|node| format!("spBv1.0/+/+/{node}/#")));
    // Births and data are published at QoS 0 and stay so; a will is published at QoS 1, and no death may be lost on the way.
    let filters = filters.map(|filter| (filter, QoS::AtLeastOnce)).collect();
    let interests = interests(organisation)?;
    Ok(HostConfig {
        filters,
        interests,
        // Viewers may not command.
        rebirths_for_hosts: Some(RebirthsForHosts::but_for(organisation.own_host_prefixes())),
        replica_bytes_max: REPLICA_BYTES_MAX,
        // Each group has a few nodes of a few kilobytes: 10,000 nodes are asked within four seconds. After a restart of the MQTT server they are born in less, without being asked.
        rebirths_per_second_max: 2_500,
        ..HostConfig::of_contracts(Some(host_id))
    })
}

/// What the contracts know.
fn interests(organisation: &Organisation) -> Result<Vec<Interest>, NameError> {
    let configdb = configdb_node(organisation);
    let sync = EdgeNodeId::new(edge_sync_contract::names::EDGE_NODE_ID)?;
    let join = EdgeNodeId::new(join_service_contract::names::EDGE_NODE_ID)?;
    let keys = EdgeNodeId::new(krb_keys_contract::names::EDGE_NODE_ID)?;
    let identity = EdgeNodeId::new(IDENTITY_NODE)?;
    let git = EdgeNodeId::new(GIT_NODE)?;
    // A node of that id in a cluster's group is one that renews its certificate.
    let group = Some(configdb.group.clone());
    let identity = Interest { group: group.clone(), ..Interest::in_edge_node(identity, |_| false) };
    let is_of_git =
        |device: &DeviceId| git_names::repository_of(device).is_some() || git_names::push_of(device).is_some();
    let git = Interest { group, ..Interest::in_edge_node(git, is_of_git) };
    // In the quarantine group every client may claim any id. No one there concerns the manager.
    let quarantine = Interest {
        group: Some(GroupId::new(organisation.enrol_group())?),
        edge_node: None,
        allowed_only: true,
        device: |_| false,
    };
    Ok(vec![
        quarantine,
        Interest::in_edge_node(configdb.edge_node, |device| object_of(device).is_some()),
        Interest::in_edge_node(sync, |device| edge_sync_contract::SyncDevice::parse(device).is_some()),
        Interest::in_edge_node(join, |device| join_service_contract::names::host_of(device).is_some()),
        Interest::in_edge_node(keys, |device| krb_keys_contract::names::resource_of(device).is_some()),
        identity,
        git,
    ])
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use sparkplug::Metric;
    use sparkplug::host::HostApplication;
    use sparkplug::payload::{EncodeOptions, Form, Payload};
    use sparkplug::session::TransportEvent;
    use sparkplug::time::Now;

    use super::*;

    fn birth() -> Bytes {
        let payload = Payload {
            timestamp: Some(1),
            seq: Some(0),
            metrics: vec![Metric::new("bdSeq", 0_i64)],
            ..Payload::default()
        };
        sparkplug::payload::encode(&payload, &EncodeOptions::new(Form::Birth))
    }

    #[test]
    fn only_nodes_and_devices_of_the_contracts_are_kept() {
        let organisation = Organisation::new("ACME").unwrap();
        let config = host_config(&organisation).unwrap();
        let now = Now::new(std::time::Duration::ZERO, 1);
        let mut host = HostApplication::new(config.clone(), now);
        host.on_transport(TransportEvent::Connected, now);
        host.on_transport(TransportEvent::Subscribed, now);
        let uuid = uuid::Uuid::from_u128(7).to_string();
        for (group, node, kept) in [
            ("ACME-Alpha", "Sync", true),
            ("ACME-Alpha", "Join", true),
            ("ACME-Alpha", "Keys", true),
            ("ACME-Alpha", "Identity", false),
            ("ACME-Central", "Identity", true),
            ("ACME-Alpha", "Git", false),
            ("ACME-Central", "Git", true),
            ("ACME-Central", "ConfigDB", true),
            ("ACME-Enrol", uuid.as_str(), false),
            ("ACME-Enrol", "Sync", false),
            ("ACME-Alpha", "Robot", false),
        ] {
            let topic = format!("spBv1.0/{group}/NBIRTH/{node}");
            host.on_transport(
                TransportEvent::Message { topic, payload: birth(), qos: QoS::AtMostOnce, retain: false },
                now,
            );
            let node = EdgeNodeDescriptor::parse(group, node).unwrap();
            assert_eq!(host.liveness(&node).is_some(), kept, "{node}");
        }
        let fits = |node: &str, device: &str| {
            let one = config.interests.iter().find(|one| one.edge_node.as_ref().is_some_and(|id| id.as_str() == node));
            (one.unwrap().device)(&DeviceId::new(device).unwrap())
        };
        assert!(fits("Sync", &format!("deployment-{uuid}")) && !fits("Sync", "anything"));
        assert!(fits("ConfigDB", &uuid) && !fits("ConfigDB", "anything"));
        assert!(fits("Git", &format!("push-{uuid}")) && fits("Git", &format!("repository-{uuid}")));
        assert!(!fits("Git", &uuid));
        assert!(!fits("Join", "anything") && !fits("Keys", "anything") && !fits("Identity", "anything"));
    }
}
