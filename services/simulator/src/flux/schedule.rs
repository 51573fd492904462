//! Where a pod can run: the hosts whose labels its node selector matches and whose taints it tolerates.

use serde_json::Value;

use crate::kubernetes::Kubernetes;

/// Whether a host of the cluster takes a pod.
pub(super) fn has_host(kubernetes: &Kubernetes, pod: &Value) -> bool {
    kubernetes.list("v1", "Node", None).iter().any(|node| takes(node, pod))
}

fn takes(node: &Value, pod: &Value) -> bool {
    let labels = &node["metadata"]["labels"];
    let mut selector = pod["nodeSelector"].as_object().into_iter().flatten();
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    selector.all(|(name, value)| labels.get(name) == Some(value))
        && node["spec"]["unschedulable"] != true
        && taints.all(|taint| taint["effect"] == "PreferNoSchedule" || is_tolerated(taint, pod))
}

fn is_tolerated(taint: &Value, pod: &Value) -> bool {
    pod["tolerations"].as_array().into_iter().flatten().any(|toleration| {
        let is_key = toleration["key"].as_str().is_none_or(|key| taint["key"] == key);
        let is_effect =
            toleration["effect"].as_str().is_none_or(|effect| effect.is_empty() || taint["effect"] == effect);
        let is_value = toleration["operator"] == "Exists" || toleration["value"] == taint["value"];
        is_key && is_effect && is_value
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_and_taints_are_matched() {
        let node = json!({"metadata": {"labels": {"kubernetes.io/hostname": "a"}}});
        let tainted = json!({"metadata": {"labels": {"kubernetes.io/hostname": "a"}},
            "spec": {"taints": [{"key": "special", "value": "x", "effect": "NoExecute"}]}});
        let on = |host: &str, tolerations: Value| json!({"nodeSelector": {"kubernetes.io/hostname": host}, "tolerations": tolerations});
        assert!(takes(&node, &json!({})) && takes(&node, &on("a", json!([]))));
        assert!(!takes(&node, &on("b", json!([]))), "another host");
        assert!(!takes(&tainted, &on("a", json!([]))), "reserved");
        assert!(takes(&tainted, &on("a", json!([{"key": "special", "operator": "Exists"}]))));
        assert!(takes(&tainted, &on("a", json!([{"key": "special", "value": "x", "effect": "NoExecute"}]))));
        assert!(!takes(&tainted, &on("a", json!([{"key": "special", "value": "y"}]))));
        assert!(!takes(&json!({"spec": {"unschedulable": true}}), &json!({})));
    }
}
