//! From Kubernetes nodes to hosts: pure mapping, and the names under which they are reported.

use std::collections::BTreeMap;

use edge_sync_contract::HostDevice;
use serde::Deserialize;

use crate::object::Condition;

/// Label with the host's name.
pub const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";
/// Label of control planes; k3s gives it the value `true`, kubeadm an empty one.
const LABEL_CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// Taint that sets a host apart.
const TAINT_SPECIALISED: &str = "factoryplus.app.amrc.co.uk/specialised";

/// Characters of a reason that are reported.
const REASON_CHARACTERS_MAX: usize = 300;

/// A node as the API server sends it, reduced while reading to what is reported.
pub type WatchedNode = kube::core::Object<Option<NodeSpec>, NodeStatus>;

/// The part of a node's spec that is looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Taint {
    key: String,
    value: Option<String>,
}

/// The part of a node's status that is looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    node_info: NodeInfo,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeInfo {
    architecture: String,
    kubelet_version: String,
    os_image: String,
}

/// A Kubernetes node and the host that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedNode {
    /// Name of the Kubernetes node; unique in the cluster.
    pub node: String,
    /// What is reported, with the hostname of the label.
    pub host: HostDevice,
}

impl ObservedNode {
    /// From what the API server sent. None: it has no name.
    #[must_use]
    pub fn read(object: &WatchedNode) -> Option<Self> {
        let node = object.metadata.name.clone()?;
        let label =
            |name: &str| object.metadata.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
        let status = object.status.clone().unwrap_or_default();
        let condition = status.conditions.iter().find(|c| c.condition == "Ready");
        let ready = condition.is_some_and(|c| c.status == "True");
        let since = condition.and_then(|c| c.last_transition_time.as_ref());
        let reason = condition.map_or(Some("Kubernetes reports no condition Ready"), |c| c.message.as_deref());
        let taints = object.spec.as_ref().map(|spec| &*spec.taints).unwrap_or_default();
        let specialised = taints.iter().find(|taint| taint.key == TAINT_SPECIALISED);
        let host = HostDevice {
            hostname: label(LABEL_HOSTNAME).filter(|name| !name.is_empty()).unwrap_or(&node).to_owned(),
            architecture: status.node_info.architecture,
            kubernetes_version: status.node_info.kubelet_version,
            operating_system: status.node_info.os_image,
            // The label's presence counts. Only an explicit "false" takes it back.
            control_plane: label(LABEL_CONTROL_PLANE).is_some_and(|value| value != "false"),
            ready,
            reason: reason.filter(|_| !ready).map(|reason| reason.chars().take(REASON_CHARACTERS_MAX).collect()),
            since: since.and_then(|time| time.0.as_millisecond().try_into().ok()),
            specialised: specialised.map(|taint| taint.value.clone().unwrap_or_default()),
        };
        Some(Self { node, host })
    }
}

/// The hosts to report, by the name under which each is reported. Of two nodes with the same hostname the one whose node name comes
/// first keeps it; the other is reported under its node name.
#[must_use]
pub fn named(nodes: &BTreeMap<String, HostDevice>) -> BTreeMap<String, HostDevice> {
    let mut named = BTreeMap::new();
    let mut doubles = Vec::new();
    for (node, host) in nodes {
        if named.contains_key(&host.hostname) {
            doubles.push((node, host));
        } else {
            named.insert(host.hostname.clone(), host.clone());
        }
    }
    for (node, host) in doubles {
        // Free unless a third node took this one's name for its hostname; that one is then the only one reported.
        named.entry(node.clone()).or_insert_with(|| HostDevice { hostname: node.clone(), ..host.clone() });
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(object: Value) -> Option<ObservedNode> {
        ObservedNode::read(&serde_json::from_value(object).unwrap())
    }

    fn node() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node-1", "labels": {"kubernetes.io/hostname": "ps-gw1", "node-role.kubernetes.io/control-plane": ""}},
            "spec": {"podCIDR": "10.0.0.0/24", "taints": [
                {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
                {"key": "factoryplus.app.amrc.co.uk/specialised", "value": "vision", "effect": "NoSchedule"}]},
            "status": {
                "conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "True", "lastTransitionTime": "2023-11-14T22:13:20Z"}],
                "images": [{"names": ["x"], "sizeBytes": 1}],
                "nodeInfo": {"architecture": "arm64", "kubeletVersion": "v1.31.4+k3s1", "osImage": "Debian GNU/Linux 12 (bookworm)", "machineID": "m"}}
        })
    }

    #[test]
    fn a_node_becomes_a_host() {
        let expected = HostDevice {
            hostname: "ps-gw1".to_owned(),
            architecture: "arm64".to_owned(),
            kubernetes_version: "v1.31.4+k3s1".to_owned(),
            operating_system: "Debian GNU/Linux 12 (bookworm)".to_owned(),
            control_plane: true,
            ready: true,
            reason: None,
            since: Some(1_700_000_000_000),
            specialised: Some("vision".to_owned()),
        };
        assert_eq!(read(node()), Some(ObservedNode { node: "node-1".to_owned(), host: expected }));
    }

    #[test]
    fn a_node_without_labels_taints_and_status_is_a_host_by_its_node_name() {
        let host = read(json!({"metadata": {"name": "bare"}})).unwrap().host;
        assert_eq!(
            host,
            HostDevice {
                hostname: "bare".to_owned(),
                reason: Some("Kubernetes reports no condition Ready".to_owned()),
                ..HostDevice::default()
            }
        );
        assert_eq!(read(json!({"metadata": {}})), None);
    }

    #[test]
    fn control_plane_is_the_labels_presence_whatever_distribution_wrote_it() {
        for (value, control_plane) in [("", true), ("true", true), ("false", false)] {
            let mut object = node();
            object["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = json!(value);
            assert_eq!(read(object).unwrap().host.control_plane, control_plane, "{value:?}");
        }
    }

    #[test]
    fn a_host_is_ready_only_if_kubernetes_says_so() {
        for status in ["False", "Unknown"] {
            let mut object = node();
            object["status"]["conditions"][1]["status"] = json!(status);
            assert!(!read(object).unwrap().host.ready, "{status}");
        }
    }

    #[test]
    fn two_nodes_with_one_hostname_are_two_hosts() {
        let host = |hostname: &str| HostDevice { hostname: hostname.to_owned(), ..HostDevice::default() };
        let nodes = BTreeMap::from([
            ("a".to_owned(), host("same")),
            ("b".to_owned(), host("same")),
            ("c".to_owned(), host("z")),
        ]);
        let named = named(&nodes);
        assert_eq!(named.keys().collect::<Vec<_>>(), ["b", "same", "z"]);
        assert_eq!(named["b"].hostname, "b");
    }
}
