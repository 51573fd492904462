//! What a Sync reports -> the `EdgeClusterStatus` entry.
//!
//! A cluster says what it likes: texts are cut, hosts are counted, and what is not a certificate of that size is none.
//!
//! This module must not know when it is written; it never says that a cluster has nothing because its Sync is away.

use configdb_schema::document::{EdgeClusterStatus, Host};
use edge_sync_contract::SyncReplica;
use sealed_secrets::is_certificate;

/// Most hosts in an entry: the first by name.
const HOSTS_MAX: usize = 1000;
/// Longest text of a host, characters; a name in DNS has 253.
const TEXT_CHARACTERS_MAX: usize = 253;
/// Largest certificate, bytes; an ordinary one has 2 KiB.
const CERTIFICATE_BYTES_MAX: usize = 16 * 1024;

fn text(of: &str) -> String {
    of.chars().take(TEXT_CHARACTERS_MAX).collect()
}

/// The entry that shall be, given the one that is. None: nothing complete is known, so it stays.
#[must_use]
pub(crate) fn render(sync: &SyncReplica, before: Option<&EdgeClusterStatus>) -> Option<EdgeClusterStatus> {
    let node = sync.node().filter(|_| sync.is_complete())?;
    let mut hosts: Vec<Host> = sync
        .devices()
        .hosts
        .values()
        .map(|host| Host {
            hostname: text(&host.hostname),
            arch: text(&host.architecture),
            k8s_version: text(&host.kubernetes_version),
            control_plane: host.control_plane,
            os_version: text(&host.operating_system),
            ready: host.ready,
            specialised: host.specialised.as_deref().map(text),
            extra: serde_json::Map::new(),
        })
        .collect();
    hosts.sort_by(|a, b| a.hostname.cmp(&b.hostname));
    hosts.truncate(HOSTS_MAX);
    let before = before.cloned().unwrap_or_default();
    // A certificate that cannot be read for the moment is still the one to seal with.
    let unreadable = node.sealing_error.is_some() && node.sealing_certificate.is_none();
    let reported = node.sealing_certificate.as_ref();
    let is_none = reported.is_some_and(|pem| pem.len() > CERTIFICATE_BYTES_MAX || !is_certificate(pem));
    let kubeseal_cert = if unreadable || is_none { before.kubeseal_cert } else { reported.cloned() };
    Some(EdgeClusterStatus { hosts: Some(hosts), kubeseal_cert, extra: before.extra })
}

#[cfg(test)]
mod tests {
    use super::*;
    use edge_sync_contract::{HostDevice, SyncDevice, SyncNode, names};
    use serde_json::json;
    use sparkplug::host::HostEvent;
    use sparkplug::{BdSeq, EdgeNodeDescriptor, GroupId, TypedMetrics};

    /// Always the same.
    fn certificate() -> String {
        static MADE: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        let make = || rcgen::generate_simple_self_signed(vec!["sealing".to_owned()]).unwrap().cert.pem();
        MADE.get_or_init(make).clone()
    }

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
        let status = render(&replica(&["b", "a"], 2, Some(&certificate()), None), Some(&before)).unwrap();
        let names: Vec<_> = status.hosts.as_ref().unwrap().iter().map(|host| host.hostname.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(status.kubeseal_cert.as_deref(), Some(&*certificate()));
        assert_eq!(status.extra["note"], "by hand");
        assert_eq!(render(&replica(&["b", "a"], 2, Some(&certificate()), None), Some(&status)), Some(status));
    }

    #[test]
    fn what_a_cluster_says_is_bounded() {
        let before = EdgeClusterStatus { kubeseal_cert: Some(certificate()), ..EdgeClusterStatus::default() };
        let long = "x".repeat(200_000);
        let mut sync = replica(&["a"], 1, Some(&long), None);
        let host = HostDevice { operating_system: long, ready: true, ..HostDevice::default() };
        let device = SyncDevice::Host("a".to_owned()).id().unwrap();
        sync.on_event(&HostEvent::DeviceBirth {
            node: node(),
            device,
            timestamp: 2,
            metrics: host.to_metrics().into(),
        });
        let status = render(&sync, Some(&before)).unwrap();
        assert_eq!(status.kubeseal_cert.as_deref(), Some(&*certificate()));
        assert!(serde_json::to_string(&status).unwrap().len() < 1000);
    }

    #[test]
    fn text_that_is_not_a_certificate_does_not_replace_one() {
        let before = EdgeClusterStatus { kubeseal_cert: Some(certificate()), ..EdgeClusterStatus::default() };
        let framed = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
        for foreign in ["PEM".to_owned(), framed, format!("{0}{0}", certificate()), format!("noise\n{}", certificate())]
        {
            let status = render(&replica(&[], 0, Some(&foreign), None), Some(&before)).unwrap();
            assert_eq!(status.kubeseal_cert, Some(certificate()), "{foreign}");
            assert_eq!(render(&replica(&[], 0, Some(&foreign), None), None).unwrap().kubeseal_cert, None);
        }
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
        let before = EdgeClusterStatus { kubeseal_cert: Some(certificate()), ..EdgeClusterStatus::default() };
        let status = render(&replica(&[], 0, None, Some("timeout")), Some(&before)).unwrap();
        assert_eq!(status.kubeseal_cert.as_deref(), Some(&*certificate()));
        let status = render(&replica(&[], 0, None, None), Some(&before)).unwrap();
        assert_eq!(status.kubeseal_cert, None);
    }
}
