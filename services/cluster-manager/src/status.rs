//! What a Sync reports -> the `EdgeClusterStatus` entry.
//!
//! This module must not know when it is written; it never says that a cluster has nothing because its Sync is away.

use configdb_schema::document::{EdgeClusterStatus, Host};
use edge_sync_contract::SyncReplica;

/// The entry that shall be, given the one that is. None: nothing complete is known, so it stays.
#[must_use]
pub fn render(sync: &SyncReplica, before: Option<&EdgeClusterStatus>) -> Option<EdgeClusterStatus> {
    let node = sync.node().filter(|_| sync.is_complete())?;
    let mut hosts: Vec<Host> = sync
        .hosts()
        .values()
        .map(|host| Host {
            hostname: host.hostname.clone(),
            arch: host.architecture.clone(),
            k8s_version: host.kubernetes_version.clone(),
            control_plane: host.control_plane,
            os_version: host.operating_system.clone(),
            ready: host.ready,
            specialised: host.specialised.clone(),
            extra: serde_json::Map::new(),
        })
        .collect();
    hosts.sort_by(|a, b| a.hostname.cmp(&b.hostname));
    let before = before.cloned().unwrap_or_default();
    // A certificate that cannot be read for the moment is still the one to seal with.
    let unreadable = node.sealing_error.is_some() && node.sealing_certificate.is_none();
    let kubeseal_cert = if unreadable { before.kubeseal_cert } else { node.sealing_certificate.clone() };
    Some(EdgeClusterStatus { hosts: Some(hosts), kubeseal_cert, extra: before.extra })
}

#[cfg(test)]
mod tests {
    use super::*;
    use edge_sync_contract::{HostDevice, SyncDevice, SyncNode, names};
    use serde_json::json;
    use sparkplug::host::HostEvent;
    use sparkplug::{BdSeq, EdgeNodeDescriptor, GroupId, TypedMetrics};

    fn node() -> EdgeNodeDescriptor {
        names::sync_node(GroupId::new("ACME-Cell").unwrap())
    }

    fn replica(hosts: &[&str], announced: u32, cert: Option<&str>, error: Option<&str>) -> SyncReplica {
        let mut replica = SyncReplica::new(node());
        let metrics = SyncNode {
            hosts_total: announced,
            sealing_certificate: cert.map(str::to_owned),
            sealing_error: error.map(str::to_owned),
            ..SyncNode::default()
        };
        let metrics = metrics.to_metrics().into();
        replica.on_event(&HostEvent::NodeBirth {
            node: node(),
            bd_seq: BdSeq::ZERO,
            timestamp: 1,
            uuid: None,
            metrics,
        });
        for hostname in hosts {
            let host = HostDevice { hostname: (*hostname).to_owned(), ready: true, ..HostDevice::default() };
            let device = SyncDevice::Host((*hostname).to_owned()).id().unwrap();
            replica.on_event(&HostEvent::DeviceBirth {
                node: node(),
                device,
                timestamp: 1,
                metrics: host.to_metrics().into(),
            });
        }
        replica
    }

    #[test]
    fn hosts_are_sorted_and_nothing_else_is_lost() {
        let before: EdgeClusterStatus = serde_json::from_value(json!({"hosts": [], "note": "by hand"})).unwrap();
        let status = render(&replica(&["b", "a"], 2, Some("PEM"), None), Some(&before)).unwrap();
        let names: Vec<_> = status.hosts.as_ref().unwrap().iter().map(|host| host.hostname.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(status.kubeseal_cert.as_deref(), Some("PEM"));
        assert_eq!(status.extra["note"], "by hand");
        assert_eq!(render(&replica(&["b", "a"], 2, Some("PEM"), None), Some(&status)), Some(status));
    }

    #[test]
    fn an_incomplete_or_absent_sync_says_nothing() {
        assert_eq!(render(&replica(&["a"], 2, None, None), None), None);
        let mut dead = replica(&["a"], 1, None, None);
        dead.on_event(&HostEvent::NodeDeath { node: node(), timestamp: 2 });
        assert_eq!(render(&dead, None), None);
        assert_eq!(render(&SyncReplica::new(node()), None), None);
    }

    #[test]
    fn a_certificate_that_cannot_be_read_for_the_moment_stays() {
        let before = EdgeClusterStatus { kubeseal_cert: Some("PEM".to_owned()), ..EdgeClusterStatus::default() };
        let status = render(&replica(&[], 0, None, Some("timeout")), Some(&before)).unwrap();
        assert_eq!(status.kubeseal_cert.as_deref(), Some("PEM"));
        let status = render(&replica(&[], 0, None, None), Some(&before)).unwrap();
        assert_eq!(status.kubeseal_cert, None);
    }
}
