//! One deployment: its manifests, what was refused, what failed and when it is tried again. What it needs next comes from `reconcile`.

use std::time::Duration;

use edge_sync_contract::{DeploymentDevice, DeploymentState, DesiredDeployment, Digest};
use sparkplug::backoff::Backoff;
use uuid::Uuid;

use crate::event::{ErrorClass, KubernetesError};
use crate::object::{ObjectKey, ObservedObject, Readiness};
use crate::reconcile::{self, Plan};
use crate::validate::ValidManifests;

/// An apply of the same manifests that long after the last one is a repair, not a fight with another writer.
const QUIET: Duration = Duration::from_secs(600);
/// Texts in reports are cut at this length; a message must fit into one Sparkplug message whatever Helm has to say.
const TEXT_MAX: usize = 1024;

/// Message of a deployment that is suspended.
const SUSPENDED: &str = "suspended: Flux changes nothing of it until it is resumed";

#[derive(Debug)]
struct Refused {
    digest: Option<Digest>,
    reason: String,
}

#[derive(Debug)]
struct Failure {
    digest: Digest,
    reason: String,
    class: ErrorClass,
}

/// What the accepted index says of a deployment.
#[derive(Debug, Clone, Copy)]
pub struct Desired<'a> {
    /// There is an accepted index.
    pub has_index: bool,
    /// The entry that is followed; None: not desired.
    pub entry: Option<DesiredDeployment>,
    /// An entry that is not followed because its version fell.
    pub fallen: Option<DesiredDeployment>,
    /// Its name there, which counts until its manifests say one.
    pub name: Option<&'a str>,
}

/// A deployment that is desired, or that has objects in the cluster.
#[derive(Debug)]
pub struct Deployment {
    manifests: Option<ValidManifests>,
    refused: Option<Refused>,
    failure: Option<Failure>,
    plan: Option<Plan>,
    is_applying: bool,
    apply_retry: Backoff,
    applied_last: Option<(Digest, Duration)>,
    apply_at: Option<Duration>,
    to_delete: Vec<ObjectKey>,
    delete_error: Option<String>,
    delete_unanswered: bool,
    delete_retry: Backoff,
    delete_at: Option<Duration>,
}

impl Deployment {
    /// Nothing is known of it.
    pub fn new(retry: Backoff) -> Self {
        Self {
            manifests: None,
            refused: None,
            failure: None,
            plan: None,
            is_applying: false,
            delete_retry: retry.clone(),
            apply_retry: retry,
            applied_last: None,
            apply_at: None,
            to_delete: Vec::new(),
            delete_error: None,
            delete_unanswered: false,
            delete_at: None,
        }
    }

    /// The manifests that arrived last and were accepted.
    pub fn manifests(&self) -> Option<&ValidManifests> {
        self.manifests.as_ref()
    }

    /// Size of the manifests that are kept.
    pub fn bytes(&self) -> usize {
        self.manifests.as_ref().map_or(0, |manifests| manifests.bytes)
    }

    /// Keeps manifests; what was refused before is settled by them.
    pub fn take_manifests(&mut self, manifests: ValidManifests) {
        if self.failure.as_ref().is_some_and(|failure| failure.digest != manifests.entry.digest) {
            self.failure = None;
        }
        self.refused = None;
        self.manifests = Some(manifests);
    }

    /// Lets go of the manifests. The sender has them.
    pub fn drop_manifests(&mut self) -> Option<ValidManifests> {
        self.manifests.take()
    }

    pub fn refuse(&mut self, digest: Option<Digest>, reason: String) {
        self.refused = Some(Refused { digest, reason });
    }

    /// The plan made last.
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// True if nothing is missing and nothing is left over.
    pub fn is_in_place(&self) -> bool {
        matches!(&self.plan, Some(Plan::InPlace { leftovers }) if leftovers.is_empty())
    }

    /// Takes the plan for the entry that is followed; `removal` for a deployment that is not desired.
    pub fn set_plan(&mut self, plan: Option<Plan>, removal: Vec<ObjectKey>) {
        self.to_delete = match &plan {
            Some(Plan::InPlace { leftovers }) => leftovers.clone(),
            Some(_) => Vec::new(),
            None => removal,
        };
        if matches!(plan, Some(Plan::InPlace { .. })) {
            self.failure = None;
        }
        if self.to_delete.is_empty() {
            self.delete_error = None;
            self.delete_at = None;
            self.delete_retry.reset();
        }
        self.plan = plan;
    }

    /// What was said about earlier manifests does not matter to an entry with another digest.
    pub fn entry_changed(&mut self, digest: Digest) {
        self.refused = self.refused.take().filter(|refused| refused.digest == Some(digest));
        self.failure = self.failure.take().filter(|failure| failure.digest == digest);
    }

    /// An apply is under way.
    pub fn is_applying(&self) -> bool {
        self.is_applying
    }

    /// True if an apply may begin.
    pub fn may_apply(&self, now: Duration) -> bool {
        matches!(self.plan, Some(Plan::Apply(_))) && !self.is_applying && self.apply_at.is_none_or(|at| at <= now)
    }

    pub fn begin_apply(&mut self, digest: Digest, now: Duration) {
        let is_again = self.applied_last.is_some_and(|(last, at)| last == digest && now.saturating_sub(at) < QUIET);
        if !is_again {
            self.apply_retry.reset();
        }
        self.applied_last = Some((digest, now));
        self.is_applying = true;
    }

    /// An apply has ended. The next one of the same manifests waits a little also after a success: there may be someone who undoes it.
    pub fn end_apply(&mut self, failed: Option<(ObjectKey, KubernetesError)>, now: Duration) {
        self.is_applying = false;
        self.apply_at = Some(now + self.apply_retry.next_delay());
        self.failure = match (failed, self.applied_last) {
            (Some((key, error)), Some((digest, _))) => {
                Some(Failure { digest, reason: format!("{key}: {}", error.message), class: error.class })
            }
            _ => None,
        };
    }

    /// Other manifests are desired than those that were applied last: no reason to wait.
    pub fn apply_now_unless_again(&mut self, digest: Digest) {
        if self.applied_last.is_some_and(|(last, _)| last != digest) {
            self.apply_at = None;
        }
    }

    /// The API server answers again: what it gave no answer to is tried at once.
    pub fn retry_now(&mut self) {
        if self.failure.as_ref().is_some_and(|failure| failure.class == ErrorClass::Unreachable) {
            self.apply_at = None;
        }
        if std::mem::take(&mut self.delete_unanswered) {
            self.delete_at = None;
        }
    }

    /// Objects to be deleted, if it is time.
    pub fn to_delete(&self, now: Duration) -> &[ObjectKey] {
        let may = !self.is_applying && self.delete_at.is_none_or(|at| at <= now);
        if may { &self.to_delete } else { &[] }
    }

    pub fn delete_failed(&mut self, key: &ObjectKey, error: &KubernetesError, now: Duration) {
        // A conflict only means that the object moved on; the watch brings its state.
        if error.class != ErrorClass::Conflict {
            self.delete_error = Some(format!("{key} cannot be deleted: {}", error.message));
        }
        self.delete_unanswered = error.class == ErrorClass::Unreachable;
        self.delete_at = Some(now + self.delete_retry.next_delay());
    }

    /// When it wants to be looked at again.
    pub fn next_deadline(&self) -> Option<Duration> {
        let apply = self.apply_at.filter(|_| matches!(self.plan, Some(Plan::Apply(_))) && !self.is_applying);
        let delete = self.delete_at.filter(|_| !self.to_delete.is_empty() && !self.is_applying);
        apply.into_iter().chain(delete).min()
    }

    /// What is reported. `runs`: whether what its releases have made runs, None if that is not known yet; `said`: the last report.
    pub fn report(
        &self,
        desired: Desired<'_>,
        observed: &[&ObservedObject],
        runs: Option<&Readiness>,
        said: Option<&DeploymentDevice>,
    ) -> DeploymentDevice {
        let Desired { has_index, entry, fallen, name } = desired;
        let (state, reason) = match entry {
            None if !has_index => (DeploymentState::Pending, Some("no index has been accepted yet".to_owned())),
            entry => self.condition(entry, observed),
        };
        let digest = entry.map(|entry| entry.digest);
        let applied = reconcile::applied_set(observed, digest);
        let is_desired = applied.as_ref().is_some_and(|set| Some(set.digest) == digest);
        let (refused_digest, reason) = self.refusal(entry, fallen, is_desired, reason);
        let is_suspended = observed.iter().any(|object| object.is_suspended);
        let (ready, message) = match (readiness(observed), runs) {
            // What Flux said last is of before.
            _ if is_suspended => (None, Some(SUSPENDED)),
            ((Some(true), _), None) => {
                (said.and_then(|said| said.ready), said.and_then(|said| said.message.as_deref()))
            }
            ((Some(true), _), Some(runs)) if runs.ready != Some(true) => (runs.ready, runs.message.as_deref()),
            (verdict, _) => verdict,
        };
        let mut device = DeploymentDevice {
            uuid: Uuid::nil(),
            name: self.name(observed, said, name),
            state,
            reason: reason.map(|text| cut(&text)),
            since: 0,
            version: match (&applied, entry) {
                (Some(_), Some(entry)) if is_desired => entry.version,
                (Some(set), _) => set.version,
                (None, _) => 0,
            },
            digest: applied.as_ref().map(|set| set.digest),
            refused_digest,
            ready,
            message: message.map(cut),
            applied_at: applied.and_then(|set| set.applied_at),
            suspended: is_suspended,
            entries: None,
        };
        if let Some(said) = said.filter(|_| self.is_applying) {
            // Half of an apply is not a state to report: what was before stays until it has ended.
            device.version = said.version;
            device.digest = said.digest;
            device.applied_at = said.applied_at;
        }
        device
    }

    fn condition(
        &self,
        entry: Option<DesiredDeployment>,
        observed: &[&ObservedObject],
    ) -> (DeploymentState, Option<String>) {
        let Some(entry) = entry else {
            let waiting = observed.iter().find(|object| object.deleting);
            let waiting = || waiting.map(|object| format!("{} waits for its finalizers", object.key));
            return (DeploymentState::Deleting, self.delete_error.clone().or_else(waiting));
        };
        if let Some(Plan::InPlace { .. }) = self.plan {
            return (DeploymentState::Applied, self.delete_error.clone());
        }
        if let Some(refused) = self.refused.as_ref().filter(|refused| refused.digest == Some(entry.digest)) {
            return (DeploymentState::Refused, Some(refused.reason.clone()));
        }
        if let Some(failure) = self.failure.as_ref().filter(|failure| failure.digest == entry.digest) {
            return (DeploymentState::Failed, Some(failure.reason.clone()));
        }
        if let Some(changed) = observed.iter().find(|object| object.is_changed) {
            let reason = format!("{} was changed by another writer and is applied again", changed.key);
            return (DeploymentState::Pending, Some(reason));
        }
        match &self.plan {
            Some(Plan::Blocked(reason)) => (DeploymentState::Refused, Some(reason.clone())),
            Some(Plan::Wait(reason)) => (DeploymentState::Pending, Some(reason.clone())),
            Some(Plan::NeedManifests) => (DeploymentState::Pending, Some("waits for its manifests".to_owned())),
            _ => (DeploymentState::Pending, Some("is being applied".to_owned())),
        }
    }

    /// The digest that the sender need not send again, and the reason if the state has none of its own.
    fn refusal(
        &self,
        entry: Option<DesiredDeployment>,
        fallen: Option<DesiredDeployment>,
        is_desired: bool,
        reason: Option<String>,
    ) -> (Option<Digest>, Option<String>) {
        let Some(entry) = entry else { return (None, reason) };
        if let Some(fallen) = fallen.filter(|fallen| fallen.digest != entry.digest) {
            let DesiredDeployment { version, .. } = fallen;
            let known = entry.version;
            let why = format!(
                "version {version} of the index is not above version {known} that is followed; send a version above {known}"
            );
            return (Some(fallen.digest), Some(why));
        }
        if let Some(refused) = &self.refused {
            let digest = refused.digest.filter(|digest| !(is_desired && *digest == entry.digest));
            return (digest, reason.or_else(|| Some(refused.reason.clone())));
        }
        let is_blocked = matches!(self.plan, Some(Plan::Blocked(_)));
        let failed = self.failure.as_ref().map(|failure| failure.digest);
        (failed.or(is_blocked.then_some(entry.digest)).filter(|_| !is_desired), reason)
    }

    fn name(&self, observed: &[&ObservedObject], said: Option<&DeploymentDevice>, listed: Option<&str>) -> String {
        let of_manifests = self.manifests.as_ref().map(|manifests| manifests.name.clone());
        let newest = observed.iter().max_by_key(|object| object.version);
        let of_objects = || newest.and_then(|object| object.name.clone());
        of_manifests
            .or_else(of_objects)
            .or_else(|| said.map(|said| said.name.clone()).filter(|name| !name.is_empty()))
            .or_else(|| listed.map(str::to_owned))
            .map(|name| cut(&name))
            .unwrap_or_default()
    }
}

/// Flux' verdict: that of the HelmReleases if there are any, else that of whatever has one. Ready if all are; the message is that of the
/// first that is not.
fn readiness<'a>(observed: &[&'a ObservedObject]) -> (Option<bool>, Option<&'a str>) {
    let verdicts =
        || observed.iter().filter_map(|object| object.readiness.as_ref().map(|readiness| (object, readiness)));
    let has_release = observed.iter().any(|object| &*object.key.kind.kind == "HelmRelease");
    let counted: Vec<_> =
        verdicts().filter(|(object, _)| !has_release || &*object.key.kind.kind == "HelmRelease").collect();
    let release_without_verdict =
        observed.iter().any(|object| &*object.key.kind.kind == "HelmRelease" && object.readiness.is_none());
    // Not ready beats unknown beats ready.
    let worst = counted.iter().min_by_key(|(_, readiness)| match readiness.ready {
        Some(false) => 0,
        None => 1,
        Some(true) => 2,
    });
    match worst {
        Some((_, readiness)) if release_without_verdict && readiness.ready == Some(true) => (None, None),
        Some((_, readiness)) => (readiness.ready, readiness.message.as_deref()),
        None => (None, None),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
