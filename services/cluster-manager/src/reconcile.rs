//! What a cluster shall run, compared with what its Sync reports -> what to send.
//!
//! Nothing is remembered that could not be lost: the versions assigned since process start only keep an unanswered command stable. A deployment that cannot be rendered is
//! kept at the edge as it is (invariant `no-prune-from-ignorance`). Only a deployment without an entry is left out of the index, which is what removes it. This module must not
//! know when to send again.

use std::collections::{BTreeMap, BTreeSet};

use edge_sync_contract::{DeploymentDevice, DesiredDeployment, DesiredIndex, Digest};
use sparkplug::replication::{Comparison, Desired, DesiredSender, Origin, Point, Report};
use uuid::Uuid;

/// What ConfigDB wants of one deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeploymentIntent {
    /// These manifests.
    Rendered(Digest),
    /// It shall run, but cannot be rendered; for this reason.
    Unrenderable(String),
    /// What runs stays, because the cluster's turn has not come.
    Held,
}

/// What a Sync reports, complete.
#[derive(Debug, Clone)]
pub struct Reported<'a> {
    /// The index that it accepted.
    pub index: Report<Digest>,
    /// Its deployments.
    pub deployments: &'a BTreeMap<Uuid, DeploymentDevice>,
}

/// The state of the store that a desired state is derived from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DerivedFrom {
    /// Where that is; None: that is not known.
    pub origin: Option<Origin>,
    /// The last state in this store of the timeline that the receiver reported.
    pub follows: Option<Point>,
    /// Digest of the index that the receiver had accepted when an operator released it to this epoch.
    pub decided_for: Option<Digest>,
    /// The store will forget the timeline that the receiver reported.
    pub is_ageing: bool,
    /// Of the store.
    pub revision: u64,
}

/// What this process of the manager has assigned to a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SentVersions {
    /// Of the index.
    pub index: DesiredSender<Digest>,
    deployments: BTreeMap<Uuid, DesiredDeployment>,
    /// Deployments to be sent once more, with the version that was given to that; None: none yet.
    retried: BTreeMap<Uuid, Option<u64>>,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What the edge shall have.
    pub index: DesiredIndex,
    /// Digest of it.
    pub digest: Digest,
    /// The edge reports this index.
    pub agreed: bool,
    /// What is to be sent of it.
    pub comparison: Comparison<Digest>,
    /// Deployments whose manifests the edge does not have and did not refuse, once the index is agreed.
    pub manifests: BTreeSet<Uuid>,
    /// Deployments that are refused, here or there.
    pub refused: BTreeMap<Uuid, String>,
}

impl SentVersions {
    /// Whether the deployment was listed for the edge since process start.
    pub fn is_listed(&self, deployment: Uuid) -> bool {
        self.deployments.contains_key(&deployment)
    }

    /// Whether the deployment was listed with these manifests since process start.
    pub fn is_listed_with(&self, deployment: Uuid, digest: Digest) -> bool {
        self.deployments.get(&deployment).is_some_and(|assigned| assigned.digest == digest)
    }

    /// Forget that the edge refused this: the same manifests get a greater version and are sent once more.
    pub fn retry(&mut self, deployment: Uuid) {
        self.retried.insert(deployment, None);
    }

    /// The manifests were sent.
    pub fn mark_sent(&mut self, deployment: Uuid) {
        self.retried.remove(&deployment);
    }

    /// Version of a deployment's manifests, as the last plan has it.
    #[must_use]
    pub fn version(&self, deployment: Uuid) -> Option<u64> {
        self.deployments.get(&deployment).map(|assigned| assigned.version)
    }
}

/// Compares. `invalid_deployments` are deployments whose entry does not even say which cluster it is for: wherever they are, they stay.
#[must_use]
pub fn plan(
    intents: &BTreeMap<Uuid, DeploymentIntent>,
    invalid_deployments: &BTreeMap<Uuid, String>,
    reported: &Reported<'_>,
    assigned: &mut SentVersions,
    from: DerivedFrom,
) -> Plan {
    let DerivedFrom { origin, follows, decided_for, is_ageing, revision } = from;
    let mut deployments = BTreeMap::new();
    let mut refused = BTreeMap::new();
    for (uuid, intent) in intents {
        let device = reported.deployments.get(uuid);
        let before = assigned.deployments.get(uuid).copied();
        let desired = match intent {
            DeploymentIntent::Rendered(digest) => {
                let retry = assigned.retried.get_mut(uuid);
                if let (None, Some(reason)) = (&retry, device.and_then(|device| refusal(device, *digest))) {
                    refused.insert(*uuid, reason);
                }
                Some(rendered(*digest, device, before, retry, revision))
            }
            DeploymentIntent::Unrenderable(reason) => {
                refused.insert(*uuid, reason.clone());
                kept(device, before)
            }
            DeploymentIntent::Held => kept(device, before),
        };
        if let Some(desired) = desired {
            deployments.insert(*uuid, desired);
        }
    }
    for (uuid, reason) in invalid_deployments.iter().filter(|(uuid, _)| !intents.contains_key(uuid)) {
        let device = reported.deployments.get(uuid);
        if let Some(desired) = kept(device, assigned.deployments.get(uuid).copied()) {
            refused.insert(*uuid, reason.clone());
            deployments.insert(*uuid, desired);
        }
    }
    assigned.deployments.clone_from(&deployments);
    assigned.retried.retain(|uuid, _| intents.contains_key(uuid));
    let mut index =
        DesiredIndex { version: 0, deployments, origin, follows, decided_for, entries: None, names: BTreeMap::new() };
    let digest = index.digest();
    let comparison = assigned.index.compare(&Desired { digest, origin, follows, is_ageing, revision }, &reported.index);
    index.version = comparison.version;
    let agreed = comparison.is_agreed();
    let manifests = if agreed { missing(intents, reported.deployments, assigned) } else { BTreeSet::new() };
    Plan { index, digest, agreed, comparison, manifests, refused }
}

/// A version that the receiver has not seen.
fn above(seen: u64, revision: u64) -> u64 {
    revision.max(seen.saturating_add(1))
}

fn rendered(
    digest: Digest,
    device: Option<&DeploymentDevice>,
    before: Option<DesiredDeployment>,
    retry: Option<&mut Option<u64>>,
    revision: u64,
) -> DesiredDeployment {
    let reported = device.map_or(0, |device| device.version);
    let seen = reported.max(before.map_or(0, |before| before.version));
    // The version that was refused must not come again with the same number.
    if let Some(retry @ None) = retry {
        let version = above(seen, revision);
        *retry = Some(version);
        return DesiredDeployment { version, digest };
    }
    let version = match before {
        Some(before) if before.digest == digest && before.version >= reported => before.version,
        None if reported > 0 && device.and_then(|device| device.digest) == Some(digest) => reported,
        _ => above(seen, revision),
    };
    DesiredDeployment { version, digest }
}

/// What the edge has, or was promised.
fn kept(device: Option<&DeploymentDevice>, before: Option<DesiredDeployment>) -> Option<DesiredDeployment> {
    let applied = device.and_then(|device| {
        let digest = device.digest?;
        device.runs().then_some(DesiredDeployment { version: device.version, digest })
    });
    match (before, applied) {
        // A version never falls: what was listed last stays listed.
        (Some(before), Some(applied)) if applied.version > before.version => Some(applied),
        (Some(before), _) => Some(before),
        (None, applied) => applied,
    }
}

/// Why the edge does not run these manifests although it has them.
fn refusal(device: &DeploymentDevice, digest: Digest) -> Option<String> {
    (device.refused_digest == Some(digest)).then(|| {
        let reason = device.reason.as_deref().unwrap_or("no reason given");
        format!("{} by the edge: {reason}", device.state)
    })
}

fn missing(
    intents: &BTreeMap<Uuid, DeploymentIntent>,
    reported: &BTreeMap<Uuid, DeploymentDevice>,
    assigned: &SentVersions,
) -> BTreeSet<Uuid> {
    let lacks = |(uuid, intent): (&Uuid, &DeploymentIntent)| {
        let DeploymentIntent::Rendered(digest) = intent else { return None };
        let device = reported.get(uuid);
        let is_reported =
            device.is_some_and(|device| device.digest == Some(*digest) || device.refused_digest == Some(*digest));
        (!is_reported || assigned.retried.contains_key(uuid)).then_some(*uuid)
    };
    intents.iter().filter_map(lacks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use edge_sync_contract::{DeploymentState, DesiredManifests};
    use serde_json::json;

    const A: Uuid = Uuid::from_u128(1);
    const B: Uuid = Uuid::from_u128(2);

    fn digest(n: u32) -> Digest {
        DesiredManifests::new(1, "x", vec![json!({"n": n})]).digest()
    }

    fn intent(n: u32) -> DeploymentIntent {
        DeploymentIntent::Rendered(digest(n))
    }

    fn broken() -> DeploymentIntent {
        DeploymentIntent::Unrenderable("no chart".to_owned())
    }

    /// An edge that takes what it is given, at once.
    #[derive(Default)]
    struct Edge {
        version: u64,
        digest: Option<Digest>,
        deployments: BTreeMap<Uuid, DeploymentDevice>,
    }

    fn at(revision: u64) -> DerivedFrom {
        DerivedFrom { revision, ..DerivedFrom::default() }
    }

    impl Edge {
        fn report(&self) -> Report<Digest> {
            Report { version: self.version, digest: self.digest, origin: None, held: None }
        }

        fn plan(&self, intents: &[(Uuid, DeploymentIntent)], assigned: &mut SentVersions, revision: u64) -> Plan {
            let intents = intents.iter().cloned().collect();
            let reported = Reported { index: self.report(), deployments: &self.deployments };
            plan(&intents, &BTreeMap::new(), &reported, assigned, at(revision))
        }

        fn accept(&mut self, plan: &Plan) {
            assert!(plan.index.version > self.version, "an index that is not newer is ignored");
            self.version = plan.index.version;
            self.digest = Some(plan.digest);
            self.deployments.retain(|uuid, _| plan.index.deployments.contains_key(uuid));
            for uuid in plan.index.deployments.keys() {
                self.deployments.entry(*uuid).or_default();
            }
        }

        fn apply(&mut self, plan: &Plan) {
            for uuid in &plan.manifests {
                let desired = plan.index.deployments[uuid];
                let device = self.deployments.get_mut(uuid).unwrap();
                assert!(desired.version > device.version, "older or equal manifests are ignored");
                device.state = DeploymentState::Applied;
                device.version = desired.version;
                device.digest = Some(desired.digest);
                device.refused_digest = None;
            }
        }

        fn refuse(&mut self, plan: &Plan) {
            for uuid in &plan.manifests {
                let device = self.deployments.get_mut(uuid).unwrap();
                device.state = DeploymentState::Refused;
                device.reason = Some("kind Pod is not allowed".to_owned());
                device.refused_digest = Some(plan.index.deployments[uuid].digest);
            }
        }
    }

    #[test]
    fn the_index_comes_first_then_the_manifests_then_nothing() {
        let (mut edge, mut assigned) = (Edge::default(), SentVersions::default());
        let intents = [(A, intent(1)), (B, intent(2))];
        let first = edge.plan(&intents, &mut assigned, 40);
        assert_eq!((first.index.version, first.agreed, first.manifests.len()), (40, false, 0));
        assert_eq!(first.index.deployments[&A], DesiredDeployment { version: 40, digest: digest(1) });
        assert_eq!(edge.plan(&intents, &mut assigned, 57), first, "an unanswered index stays as it is");
        edge.accept(&first);
        let second = edge.plan(&intents, &mut assigned, 57);
        assert_eq!((second.agreed, second.manifests.len()), (true, 2));
        edge.apply(&second);
        let third = edge.plan(&intents, &mut assigned, 99);
        assert_eq!((third.agreed, third.manifests.len(), third.refused.len()), (true, 0, 0));
        assert_eq!(third.index, first.index);
    }

    #[test]
    fn a_restarted_manager_finds_everything_agreed() {
        let (mut edge, mut assigned) = (Edge::default(), SentVersions::default());
        let intents = [(A, intent(1))];
        edge.accept(&edge.plan(&intents, &mut assigned, 5));
        edge.apply(&edge.plan(&intents, &mut assigned, 5));
        let mut forgotten = SentVersions::default();
        let plan = edge.plan(&intents, &mut forgotten, 1);
        assert!(plan.agreed && plan.manifests.is_empty());
        assert_eq!(plan.index.version, 5);
    }

    #[test]
    fn what_is_held_stays_and_is_not_refused() {
        let (mut edge, mut assigned) = (Edge::default(), SentVersions::default());
        let plan = edge.plan(&[(A, intent(1))], &mut assigned, 5);
        edge.accept(&plan);
        let plan = edge.plan(&[(A, intent(1))], &mut assigned, 5);
        edge.apply(&plan);
        let plan = edge.plan(&[(A, DeploymentIntent::Held)], &mut assigned, 6);
        assert!(plan.agreed && plan.refused.is_empty() && plan.manifests.is_empty());
        assert!(assigned.is_listed_with(A, digest(1)) && !assigned.is_listed_with(A, digest(2)));
        // Also by a manager that has just begun.
        let plan = edge.plan(&[(A, DeploymentIntent::Held)], &mut SentVersions::default(), 6);
        assert!(plan.agreed && plan.refused.is_empty());
        let plan = edge.plan(&[(A, intent(2))], &mut assigned, 7);
        assert_eq!(plan.index.deployments[&A], DesiredDeployment { version: 7, digest: digest(2) });
    }

    #[test]
    fn versions_grow_also_when_the_revision_began_again() {
        let (mut edge, mut assigned) = (Edge::default(), SentVersions::default());
        edge.accept(&edge.plan(&[(A, intent(1))], &mut assigned, 1000));
        edge.apply(&edge.plan(&[(A, intent(1))], &mut assigned, 1000));
        let mut restored = SentVersions::default();
        let plan = edge.plan(&[(A, intent(2))], &mut restored, 3);
        assert_eq!(plan.index.version, 1001);
        assert_eq!(plan.index.deployments[&A].version, 1001);
        edge.accept(&plan);
        edge.apply(&edge.plan(&[(A, intent(2))], &mut restored, 3));
        assert!(edge.plan(&[(A, intent(2))], &mut restored, 3).manifests.is_empty());
    }

    #[test]
    fn going_back_to_what_the_edge_has_is_a_greater_version_without_manifests() {
        let (mut edge, mut assigned) = (Edge::default(), SentVersions::default());
        edge.accept(&edge.plan(&[(A, intent(1))], &mut assigned, 5));
        edge.apply(&edge.plan(&[(A, intent(1))], &mut assigned, 5));
        edge.accept(&edge.plan(&[(A, intent(2))], &mut assigned, 6));
        let back = edge.plan(&[(A, intent(1))], &mut assigned, 7);
        assert_eq!(back.index.deployments[&A], DesiredDeployment { version: 7, digest: digest(1) });
        edge.accept(&back);
        assert!(edge.plan(&[(A, intent(1))], &mut assigned, 7).manifests.is_empty());
    }

    #[test]
    fn a_deployment_without_entry_leaves_the_index() {
        let (mut edge, mut assigned) = (Edge::default(), SentVersions::default());
        edge.accept(&edge.plan(&[(A, intent(1)), (B, intent(2))], &mut assigned, 5));
        edge.apply(&edge.plan(&[(A, intent(1)), (B, intent(2))], &mut assigned, 5));
        let plan = edge.plan(&[(B, intent(2))], &mut assigned, 6);
        assert_eq!(plan.index.deployments.keys().collect::<Vec<_>>(), [&B]);
        assert_eq!((plan.index.version, plan.agreed), (6, false));
        edge.accept(&plan);
        let empty = edge.plan(&[], &mut assigned, 7);
        assert!(empty.index.deployments.is_empty() && !empty.agreed);
    }

    #[test]
    fn a_deployment_that_cannot_be_rendered_stays_as_it_is() {
        let (mut edge, mut assigned) = (Edge::default(), SentVersions::default());
        edge.accept(&edge.plan(&[(A, intent(1)), (B, intent(2))], &mut assigned, 5));
        edge.apply(&edge.plan(&[(A, intent(1)), (B, intent(2))], &mut assigned, 5));
        for assigned in [&mut assigned, &mut SentVersions::default()] {
            let plan = edge.plan(&[(A, broken()), (B, intent(2))], assigned, 9);
            assert!(plan.agreed, "nothing changes at the edge");
            assert_eq!(plan.index.deployments[&A], DesiredDeployment { version: 5, digest: digest(1) });
            assert_eq!(plan.refused, [(A, "no chart".to_owned())].into());
            assert!(plan.manifests.is_empty());
        }
    }

    #[test]
    fn a_deployment_that_never_could_be_rendered_is_not_listed() {
        let (edge, mut assigned) = (Edge::default(), SentVersions::default());
        let plan = edge.plan(&[(A, broken())], &mut assigned, 5);
        assert!(plan.index.deployments.is_empty());
        assert_eq!(plan.refused.len(), 1);
    }

    #[test]
    fn a_promise_is_kept_listed_when_its_template_goes_before_the_edge_answered() {
        let (mut edge, mut assigned) = (Edge::default(), SentVersions::default());
        edge.accept(&edge.plan(&[(A, intent(1))], &mut assigned, 5));
        let plan = edge.plan(&[(A, broken())], &mut assigned, 9);
        assert!(plan.agreed && plan.manifests.is_empty());
        assert_eq!(plan.index.deployments[&A].version, 5);
    }

    #[test]
    fn a_deployment_of_which_only_the_uuid_is_known_stays_where_it_is() {
        let (mut edge, mut assigned) = (Edge::default(), SentVersions::default());
        edge.accept(&edge.plan(&[(A, intent(1))], &mut assigned, 5));
        edge.apply(&edge.plan(&[(A, intent(1))], &mut assigned, 5));
        let invalid_deployments = [(A, "no JSON".to_owned()), (B, "no JSON".to_owned())].into();
        let reported = Reported { index: edge.report(), deployments: &edge.deployments };
        let plan = plan(&BTreeMap::new(), &invalid_deployments, &reported, &mut SentVersions::default(), at(9));
        assert!(plan.agreed);
        assert_eq!(plan.refused, [(A, "no JSON".to_owned())].into());
    }

    #[test]
    fn refused_manifests_are_not_sent_again_until_an_operator_asks_or_they_change() {
        let (mut edge, mut assigned) = (Edge::default(), SentVersions::default());
        edge.accept(&edge.plan(&[(A, intent(1))], &mut assigned, 5));
        edge.refuse(&edge.plan(&[(A, intent(1))], &mut assigned, 5));
        let plan = edge.plan(&[(A, intent(1))], &mut assigned, 6);
        assert!(plan.agreed && plan.manifests.is_empty());
        assert_eq!(plan.refused[&A], "refused by the edge: kind Pod is not allowed");
        assigned.retry(A);
        let retry = edge.plan(&[(A, intent(1))], &mut assigned, 6);
        assert_eq!((retry.index.deployments[&A].version, retry.agreed), (6, false));
        edge.accept(&retry);
        let again = edge.plan(&[(A, intent(1))], &mut assigned, 6);
        assert_eq!(again.index.deployments[&A].version, 6, "the version of a retry is stable");
        assert_eq!((again.agreed, again.manifests.contains(&A)), (true, true));
        assigned.mark_sent(A);
        let refused = edge.plan(&[(A, intent(1))], &mut assigned, 9);
        assert_eq!((refused.manifests.len(), refused.refused.len(), refused.agreed), (0, 1, true));
    }

    #[test]
    fn after_a_lost_memory_versions_continue_above_what_is_reported() {
        let (mut edge, mut assigned) = (Edge::default(), SentVersions::default());
        edge.accept(&edge.plan(&[(A, intent(1))], &mut assigned, 5));
        // Another manager wrote meanwhile.
        edge.version = 80;
        edge.digest = Some(digest(99));
        edge.deployments.get_mut(&A).unwrap().version = 70;
        edge.deployments.get_mut(&A).unwrap().digest = Some(digest(98));
        let plan = edge.plan(&[(A, intent(1))], &mut assigned, 6);
        assert_eq!((plan.index.version, plan.index.deployments[&A].version), (81, 71));
    }
}
