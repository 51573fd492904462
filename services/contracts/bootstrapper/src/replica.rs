//! What a typed copy of a host is made of; [`sparkplug::replication::Replica`] keeps it.

use std::collections::BTreeMap;

use sparkplug::DeviceId;
use sparkplug::replication::Contract;

use crate::node::HostNode;

/// What a host publishes on its way in.
#[derive(Debug)]
pub enum HostContract {}

impl Contract for HostContract {
    type Node = HostNode;
    type Key = DeviceId;
    // It has no Devices; any that are born in its name are not kept.
    type Devices = BTreeMap<DeviceId, HostNode>;

    fn key(_: &DeviceId) -> Option<DeviceId> {
        None
    }

    fn devices_total(_: &HostNode) -> Option<u64> {
        Some(0)
    }
}
