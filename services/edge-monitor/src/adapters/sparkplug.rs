//! Sparkplug: the two sessions of a monitor. As Edge Node it is `<group>/Monitor`; as Host Application it receives what it watches.

use std::sync::Arc;

use configdb_schema::address::{MONITOR_NODE, host_id};
use edge_monitor_contract::identity;
use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug::host::{HostConfig, RebirthsForHosts};
use sparkplug::session::QoS;
use sparkplug::{EdgeNodeDescriptor, GroupId, HostId, NameError};

use crate::state::Scope;

/// Nodes of one cluster's group that are kept. More than any cluster runs; a bound for what a hostile client can make us hold.
const NODES_MAX_EDGE: usize = 10_000;

/// The own address.
///
/// # Errors
/// The organisation's name makes no group.
pub fn own_descriptor(scope: &Scope) -> Result<EdgeNodeDescriptor, NameError> {
    match scope {
        Scope::Edge { group, .. } => EdgeNodeDescriptor::parse(group.as_str(), MONITOR_NODE),
        Scope::Central { organisation } => EdgeNodeDescriptor::parse(&organisation.central_group(), MONITOR_NODE),
    }
}

/// The Edge Node: no aliases, the Factory+ marker in every payload.
#[must_use]
pub fn node_config(descriptor: EdgeNodeDescriptor) -> EdgeNodeConfig {
    EdgeNodeConfig {
        payload_uuid: Some(Arc::from(identity::FACTORY_PLUS.to_string())),
        ..EdgeNodeConfig::for_one_speaker(descriptor)
    }
}

/// The Host Application: at the edge the own group, at the control plane every monitor and ConfigDB.
///
/// # Errors
/// The organisation's name makes no host id.
pub fn host_config(scope: &Scope) -> Result<HostConfig, NameError> {
    let EdgeNodeDescriptor { group, edge_node } = own_descriptor(scope)?;
    let host_id = HostId::new(host_id(group.as_str(), edge_node.as_str()))?;
    let config = HostConfig::of_contracts(Some(host_id));
    // Births and data are published at QoS 0 and stay so; a will is published at QoS 1, and no death may be lost on the way.
    let filter = |filter: String| (filter, QoS::AtLeastOnce);
    Ok(match scope {
        Scope::Edge { .. } => {
            HostConfig { filters: vec![filter(group_filter(&group))], nodes_max: NODES_MAX_EDGE, ..config }
        }
        Scope::Central { organisation } => {
            let configdb = configdb_contract::configdb_node(organisation);
            let monitors = filter(format!("spBv1.0/+/+/{MONITOR_NODE}/#"));
            let configdb = filter(format!("spBv1.0/{}/+/{}/#", configdb.group, configdb.edge_node));
            // Viewers may not command. ConfigDB is asked by the cluster manager.
            let rebirths = RebirthsForHosts {
                nodes: |node| node.edge_node.as_str() == MONITOR_NODE,
                ..RebirthsForHosts::but_for(organisation.own_host_prefixes())
            };
            HostConfig { filters: vec![monitors, configdb], rebirths_for_hosts: Some(rebirths), ..config }
        }
    })
}

fn group_filter(group: &GroupId) -> String {
    format!("spBv1.0/{group}/#")
}
