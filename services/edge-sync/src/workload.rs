//! Whether what a release has made runs: Deployments, StatefulSets and DaemonSets by the counts of their pods. Helm is set not to wait for them, because a release that waits can be neither
//! corrected nor removed. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde::Deserialize;

use crate::hosts::LABEL_HOSTNAME;
use crate::object::{Condition, Readiness};

/// Label of what a release has made: its name.
pub(crate) const LABEL_RELEASE: &str = "helm.toolkit.fluxcd.io/name";

/// What is looked at, in `apps/v1`.
pub(crate) const KINDS: [&str; 3] = ["DaemonSet", "Deployment", "StatefulSet"];

/// The part of a workload's specification that is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WorkloadSpec {
    /// Pods that are wanted; a DaemonSet has none here.
    pub replicas: Option<i32>,
    /// What its pods are made by.
    pub template: PodTemplate,
}

/// The part of a template of pods that is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodTemplate {
    /// Specification of the pods.
    pub spec: PodSpec,
}

/// The part of a pod's specification that is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    /// Labels that a Node must have.
    pub node_selector: BTreeMap<String, String>,
}

/// The part of its status. A DaemonSet calls the counts otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WorkloadStatus {
    /// Generation that the status speaks of.
    pub observed_generation: Option<i64>,
    /// Pods of all templates; a DaemonSet has none here.
    pub replicas: i32,
    /// Pods of the present template.
    #[serde(alias = "updatedNumberScheduled")]
    pub updated_replicas: i32,
    /// Pods that are available.
    #[serde(alias = "numberAvailable")]
    pub available_replicas: i32,
    /// Of a DaemonSet: pods that are wanted.
    pub desired_number_scheduled: Option<i32>,
    /// Conditions; of a Deployment `Progressing` says that it has given up.
    pub conditions: Vec<Condition>,
}

/// A workload as the API server sends it, reduced while reading.
pub(crate) type WatchedWorkload = kube::core::Object<WorkloadSpec, WorkloadStatus>;

/// The release that has made it, in this namespace.
#[must_use]
pub(crate) fn release_of(workload: &WatchedWorkload) -> Option<String> {
    workload.labels().get(LABEL_RELEASE).cloned()
}

#[must_use]
pub(crate) fn judge(kind: &str, workload: &WatchedWorkload) -> Readiness {
    let status = workload.status.clone().unwrap_or_default();
    let is_observed = status.observed_generation >= workload.metadata.generation;
    let wanted = status.desired_number_scheduled.or(workload.spec.replicas).unwrap_or(1);
    // Pods of an earlier template run on until those of the present one do.
    let earlier = (status.replicas - status.updated_replicas).max(0);
    let runs = status.updated_replicas.min(status.available_replicas - earlier).max(0);
    if is_observed && runs >= wanted {
        return Readiness { ready: Some(true), message: None };
    }
    let gave_up =
        status.conditions.iter().find(|condition| condition.condition == "Progressing" && condition.status == "False");
    let name = workload.name_any();
    let message = match gave_up.filter(|_| is_observed).and_then(|condition| condition.message.clone()) {
        Some(message) => format!("{kind} {name}: {runs} of {wanted} pods run: {message}"),
        None => format!("{kind} {name}: {runs} of {wanted} pods run"),
    };
    Readiness { ready: gave_up.filter(|_| is_observed).map(|_| false), message: Some(message) }
}

/// The labels that a Node must have for the pods of a workload, as a selector; None: any Node will do.
#[must_use]
pub(crate) fn node_labels(workload: &WatchedWorkload) -> Option<String> {
    let labels = workload.spec.template.spec.node_selector.iter().map(|(label, value)| format!("{label}={value}"));
    Some(labels.collect::<Vec<_>>().join(",")).filter(|selector| !selector.is_empty())
}

/// The verdict on a workload that does not run, when there is no Node with [`node_labels`]: it will not run before there is one.
#[must_use]
pub(crate) fn without_node(verdict: Readiness, workload: &WatchedWorkload) -> Readiness {
    let selector = &workload.spec.template.spec.node_selector;
    let missing = match selector.get(LABEL_HOSTNAME) {
        Some(host) if selector.len() == 1 => format!("no Node matches host {host}"),
        _ => format!("no Node has the labels {}", node_labels(workload).unwrap_or_default()),
    };
    Readiness { ready: Some(false), message: Some(format!("{}: {missing}", verdict.message.unwrap_or_default())) }
}

/// The verdict on all of them: what has failed, before what is under way, before what runs.
#[must_use]
pub(crate) fn worst(verdicts: impl IntoIterator<Item = Readiness>) -> Readiness {
    let rank = |readiness: &Readiness| match readiness.ready {
        Some(false) => 0,
        None => 1,
        Some(true) => 2,
    };
    verdicts.into_iter().min_by_key(rank).unwrap_or(Readiness { ready: Some(true), message: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn judged(kind: &str, spec: &Value, status: &Value) -> (Option<bool>, Option<String>) {
        let object = json!({"metadata": {"name": "a", "generation": 2}, "spec": spec, "status": status});
        let Readiness { ready, message } = judge(kind, &serde_json::from_value(object).unwrap());
        (ready, message)
    }

    #[test]
    fn a_workload_runs_when_as_many_pods_of_its_present_template_are_available_as_it_wants() {
        let two = json!({"replicas": 2});
        let status = |generation: i64, updated: i32, available: i32| json!({"observedGeneration": generation, "updatedReplicas": updated, "availableReplicas": available});
        assert_eq!(judged("Deployment", &two, &status(2, 2, 2)), (Some(true), None));
        let message = |text: &str| (None, Some(text.to_owned()));
        assert_eq!(judged("Deployment", &two, &status(1, 2, 2)), message("Deployment a: 2 of 2 pods run"));
        assert_eq!(judged("Deployment", &two, &status(2, 1, 2)), message("Deployment a: 1 of 2 pods run"));
        assert_eq!(judged("Deployment", &json!({}), &json!({})), message("Deployment a: 0 of 1 pods run"));
        assert_eq!(judged("StatefulSet", &json!({"replicas": 0}), &status(2, 0, 0)), (Some(true), None));
        let moving = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 1});
        assert_eq!(
            judged("Deployment", &json!({}), &moving),
            message("Deployment a: 0 of 1 pods run"),
            "the old one runs"
        );
        let moved = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 2});
        assert_eq!(judged("Deployment", &json!({}), &moved), (Some(true), None), "both run");
        let each = json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberAvailable": 2});
        assert_eq!(judged("DaemonSet", &json!({}), &each), message("DaemonSet a: 2 of 3 pods run"));
    }

    #[test]
    fn what_has_given_up_has_failed_and_says_why() {
        let mut status = json!({"observedGeneration": 2, "conditions": [{"type": "Progressing", "status": "False", "message": "exceeded its progress deadline"}]});
        let failed = judged("Deployment", &json!({}), &status);
        let message = "Deployment a: 0 of 1 pods run: exceeded its progress deadline";
        assert_eq!(failed, (Some(false), Some(message.to_owned())));
        status["observedGeneration"] = json!(1);
        assert_eq!(judged("Deployment", &json!({}), &status).0, None, "that was about what it was before");
    }

    #[test]
    fn what_no_node_is_there_for_does_not_get_ready_and_says_what_it_asks_of_one() {
        let workload = |selector: Value| -> WatchedWorkload {
            let spec = json!({"template": {"spec": {"nodeSelector": selector}}});
            serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap()
        };
        let said = |workload: &WatchedWorkload| without_node(judge("Deployment", workload), workload);
        let on_host = workload(json!({"kubernetes.io/hostname": "press-9"}));
        assert_eq!(node_labels(&on_host).as_deref(), Some("kubernetes.io/hostname=press-9"));
        let message = "Deployment a: 0 of 1 pods run: no Node matches host press-9";
        assert_eq!(said(&on_host), Readiness { ready: Some(false), message: Some(message.to_owned()) });
        let labelled = workload(json!({"disk": "fast", "kubernetes.io/hostname": "press-1"}));
        let message = "Deployment a: 0 of 1 pods run: no Node has the labels disk=fast,kubernetes.io/hostname=press-1";
        assert_eq!(said(&labelled).message.as_deref(), Some(message));
        assert_eq!(node_labels(&workload(json!({}))), None);
    }

    #[test]
    fn the_worst_counts_and_nothing_is_well() {
        let one = |ready| Readiness { ready, message: Some(format!("{ready:?}")) };
        let all = [Some(true), None, Some(false)].map(one);
        assert_eq!(worst(all.clone()).ready, Some(false));
        assert_eq!(worst(all[..2].to_vec()).ready, None);
        assert_eq!(worst([]), Readiness { ready: Some(true), message: None });
    }
}
