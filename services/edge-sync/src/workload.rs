//! Whether what a release has made runs: Deployments, StatefulSets and DaemonSets by the counts of their pods. Helm is told not to wait for them, because a release that waits can be neither
//! corrected nor removed. Pure.

use kube::ResourceExt;
use serde::Deserialize;

use crate::object::{Condition, Readiness};

/// Label of what a release has made: its name.
pub const LABEL_RELEASE: &str = "helm.toolkit.fluxcd.io/name";

/// What is looked at, in `apps/v1`.
pub const KINDS: [&str; 3] = ["DaemonSet", "Deployment", "StatefulSet"];

/// The part of a workload's specification that is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    /// Pods that are wanted; a DaemonSet has none here.
    pub replicas: Option<i32>,
}

/// The part of its status. A DaemonSet calls the counts otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadStatus {
    /// Generation that the status speaks of.
    pub observed_generation: Option<i64>,
    /// Pods of the present template.
    #[serde(alias = "updatedNumberScheduled")]
    pub updated_replicas: i32,
    /// Pods that are available.
    #[serde(alias = "numberAvailable")]
    pub available_replicas: i32,
    /// Of a DaemonSet: pods that are wanted.
    pub desired_number_scheduled: Option<i32>,
    /// Conditions; of a Deployment `Progressing` tells that it has given up.
    pub conditions: Vec<Condition>,
}

/// A workload as the API server sends it, reduced while reading.
pub type WatchedWorkload = kube::core::Object<WorkloadSpec, WorkloadStatus>;

/// The release that has made it, in this namespace.
#[must_use]
pub fn release_of(workload: &WatchedWorkload) -> Option<String> {
    workload.labels().get(LABEL_RELEASE).cloned()
}

/// Judges one.
#[must_use]
pub fn judge(kind: &str, workload: &WatchedWorkload) -> Readiness {
    let status = workload.status.clone().unwrap_or_default();
    let is_observed = status.observed_generation >= workload.metadata.generation;
    let wanted = status.desired_number_scheduled.or(workload.spec.replicas).unwrap_or(1);
    let runs = status.updated_replicas.min(status.available_replicas);
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

/// The verdict on all of them: what has failed, before what is under way, before what runs.
#[must_use]
pub fn worst(verdicts: impl IntoIterator<Item = Readiness>) -> Readiness {
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
        let told = |text: &str| (None, Some(text.to_owned()));
        assert_eq!(judged("Deployment", &two, &status(1, 2, 2)), told("Deployment a: 2 of 2 pods run"));
        assert_eq!(judged("Deployment", &two, &status(2, 1, 2)), told("Deployment a: 1 of 2 pods run"));
        assert_eq!(judged("Deployment", &json!({}), &json!({})), told("Deployment a: 0 of 1 pods run"));
        assert_eq!(judged("StatefulSet", &json!({"replicas": 0}), &status(2, 0, 0)), (Some(true), None));
        let each = json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberAvailable": 2});
        assert_eq!(judged("DaemonSet", &json!({}), &each), told("DaemonSet a: 2 of 3 pods run"));
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
    fn the_worst_counts_and_nothing_is_well() {
        let one = |ready| Readiness { ready, message: Some(format!("{ready:?}")) };
        let all = [Some(true), None, Some(false)].map(one);
        assert_eq!(worst(all.clone()).ready, Some(false));
        assert_eq!(worst(all[..2].to_vec()).ready, None);
        assert_eq!(worst([]), Readiness { ready: Some(true), message: None });
    }
}
