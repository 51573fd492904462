//! What Flux has made of the cluster's own repository: which commit is applied, and whether the releases that came with it are ready. Pure.

use edge_sync_contract::Commit;
use kube::ResourceExt;

use crate::object::{Readiness, WatchedObject, readiness};

/// Label that Flux gives to what a Kustomization applies.
pub const LABEL_KUSTOMIZATION: &str = "kustomize.toolkit.fluxcd.io/name";

/// Of the messages that are reported together.
const MESSAGE_CHARACTERS_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FluxReport {
    /// Commit that was applied last, as a whole.
    pub applied: Option<Commit>,
    /// Everything is ready; None: Flux has not looked at all of it.
    pub ready: Option<bool>,
    /// What is not ready, and why.
    pub message: Option<String>,
}

/// Judges the Kustomization of the cluster's repository, the releases that it has applied, and the workloads of those. Each must have been read after what made it: what is read before may be
/// of an earlier commit.
#[must_use]
pub fn judge(
    kustomization: Option<&WatchedObject>,
    name: &str,
    releases: &[WatchedObject],
    workloads: Vec<Readiness>,
) -> FluxReport {
    let Some(kustomization) = kustomization else {
        return FluxReport { message: Some(format!("there is no Kustomization {name}")), ..FluxReport::default() };
    };
    let applied = kustomization.status.as_ref().and_then(|status| status.last_applied_revision.as_deref());
    let applied = applied.and_then(|revision| revision.rsplit(':').next()?.parse().ok());
    let all = std::iter::once(("Kustomization", kustomization)).chain(releases.iter().map(|one| ("HelmRelease", one)));
    let (mut has_failed, mut is_under_way) = (false, false);
    let mut unready = Vec::new();
    for (kind, object) in all {
        let seen = object.status.as_ref().and_then(|status| readiness(&object.metadata, status));
        let Readiness { ready: is_ready, message } = seen.unwrap_or(Readiness { ready: None, message: None });
        if is_ready == Some(true) {
            continue;
        }
        has_failed |= is_ready.is_some();
        is_under_way |= is_ready.is_none();
        let message = message.filter(|_| is_ready.is_some());
        let message = message.unwrap_or_else(|| "Flux has not finished with it".to_owned());
        unready.push(format!("{kind} {}: {message}", object.name_any()));
    }
    for Readiness { ready, message } in workloads {
        has_failed |= ready == Some(false);
        is_under_way |= ready.is_none();
        unready.extend(message.filter(|_| ready != Some(true)));
    }
    // What has failed has failed, whatever is still under way.
    let ready = (has_failed || !is_under_way).then_some(!has_failed);
    let message = unready.join("; ").chars().take(MESSAGE_CHARACTERS_MAX).collect();
    FluxReport { applied, ready, message: (!unready.is_empty()).then_some(message) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn object(name: &str, ready: &str, observed: i64) -> Value {
        json!({"metadata": {"name": name, "generation": 2}, "status": {"observedGeneration": observed,
            "conditions": [{"type": "Ready", "status": ready, "message": format!("{name} says {ready}")}]}})
    }

    fn kustomization(ready: &str, revision: &str) -> WatchedObject {
        let mut object = object("self-link", ready, 2);
        object["status"]["lastAppliedRevision"] = json!(revision);
        serde_json::from_value(object).unwrap()
    }

    fn release(name: &str, ready: &str, observed: i64) -> WatchedObject {
        serde_json::from_value(object(name, ready, observed)).unwrap()
    }

    fn judged(releases: &[WatchedObject]) -> (Option<bool>, Option<String>) {
        let report = judge(Some(&kustomization("True", &format!("main@sha1:{COMMIT}"))), "self-link", releases, vec![]);
        assert_eq!(report.applied, COMMIT.parse().ok());
        (report.ready, report.message)
    }

    #[test]
    fn a_commit_is_ready_when_every_release_of_it_is() {
        assert_eq!(judged(&[]), (Some(true), None));
        assert_eq!(judged(&[release("a", "True", 2), release("b", "True", 2)]), (Some(true), None));
        let (under_way, failed) = (release("a", "True", 1), release("b", "False", 2));
        let message = |text: &str| Some(text.to_owned());
        let waits = "HelmRelease a: Flux has not finished with it";
        assert_eq!(judged(std::slice::from_ref(&under_way)), (None, message(waits)));
        assert_eq!(judged(std::slice::from_ref(&failed)), (Some(false), message("HelmRelease b: b says False")));
        let both = format!("{waits}; HelmRelease b: b says False");
        assert_eq!(judged(&[under_way.clone(), failed.clone()]), (Some(false), Some(both)));
        assert_eq!(judged(&[failed, under_way]).0, Some(false));
    }

    #[test]
    fn what_is_not_applied_is_not_said_to_be() {
        let failed = judge(Some(&kustomization("False", "")), "self-link", &[], vec![]);
        assert_eq!((failed.applied, failed.ready), (None, Some(false)));
        assert_eq!(failed.message.as_deref(), Some("Kustomization self-link: self-link says False"));
        let none = judge(None, "self-link", &[], vec![]);
        assert_eq!((none.applied, none.ready), (None, None));
        assert_eq!(none.message.as_deref(), Some("there is no Kustomization self-link"));
    }

    #[test]
    fn what_a_release_has_made_must_run() {
        let judged = |ready| {
            let workload = Readiness { ready, message: Some("Deployment a: 0 of 1 pods run".to_owned()) };
            let kustomization = kustomization("True", &format!("main@sha1:{COMMIT}"));
            let report = judge(Some(&kustomization), "self-link", &[release("a", "True", 2)], vec![workload]);
            (report.ready, report.message.is_some())
        };
        assert_eq!(judged(Some(true)), (Some(true), false));
        assert_eq!(judged(None), (None, true));
        assert_eq!(judged(Some(false)), (Some(false), true));
    }

    #[test]
    fn messages_are_bounded() {
        let many: Vec<_> = (0..500).map(|n| release(&format!("release-{n}"), "False", 2)).collect();
        assert_eq!(judged(&many).1.unwrap().chars().count(), MESSAGE_CHARACTERS_MAX);
    }
}
