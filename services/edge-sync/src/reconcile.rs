//! (desired, observed) -> plan, for one deployment. Pure: what is to be done follows from its arguments alone.
//!
//! What is in place is decided by the marks on the objects, so a restart changes no plan. Objects are pruned only after the desired
//! ones are in place, and only those that carry this deployment's label.

use std::collections::BTreeSet;

use edge_sync_contract::{DesiredDeployment, Digest};
use uuid::Uuid;

use crate::object::{ObjectKey, ObservedObject};
use crate::validate::ValidManifests;

/// What a deployment needs next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Everything is in place; these objects are left over from earlier manifests (often none).
    InPlace { leftovers: Vec<ObjectKey> },
    /// Something is missing or old, and the manifests are not here.
    NeedManifests,
    /// Apply the manifests at these positions.
    Apply(Vec<usize>),
    /// An object has to go first; for people.
    Wait(String),
    /// An object is another deployment's; for people.
    Blocked(String),
}

/// Which manifests the objects of a deployment come from, if a complete set of them is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AppliedSet {
    /// Digest of the manifests.
    pub digest: Digest,
    /// Version, the highest on the objects.
    pub version: u64,
    /// When the last of them was applied.
    pub applied_at: Option<u64>,
}

/// Plans one deployment. `owner` returns the deployment of an object that does not carry this deployment's label.
pub(crate) fn plan(
    entry: DesiredDeployment,
    manifests: Option<&ValidManifests>,
    observed: &[&ObservedObject],
    owner: impl Fn(&ObjectKey) -> Option<Uuid>,
) -> Plan {
    let Some(manifests) = manifests.filter(|manifests| manifests.entry.digest == entry.digest) else {
        if !is_complete(observed, entry.digest) {
            return Plan::NeedManifests;
        }
        let of_others = observed.iter().filter(|object| object.digest != Some(entry.digest));
        return Plan::InPlace { leftovers: deletable(of_others.copied()) };
    };
    let mut missing = Vec::new();
    let mut going = None;
    for (position, (key, _)) in manifests.objects.iter().enumerate() {
        match observed.iter().find(|object| object.key == *key) {
            Some(object) if object.deleting => going = Some(key),
            Some(object) if is_of(object, entry.digest) && object.objects == Some(manifests.objects.len()) => {}
            Some(_) => missing.push(position),
            None => match owner(key) {
                Some(other) => return Plan::Blocked(format!("{key} belongs to deployment {other}")),
                None => missing.push(position),
            },
        }
    }
    if !missing.is_empty() {
        return Plan::Apply(missing);
    }
    if let Some(key) = going {
        return Plan::Wait(format!("{key} is being deleted; it is applied again when it is gone"));
    }
    let wanted: BTreeSet<_> = manifests.objects.iter().map(|(key, _)| key).collect();
    let leftovers = observed.iter().filter(|object| !wanted.contains(&object.key));
    Plan::InPlace { leftovers: deletable(leftovers.copied()) }
}

/// What is to be deleted of a deployment that is not desired any more.
#[must_use]
pub(crate) fn removal(observed: &[&ObservedObject]) -> Vec<ObjectKey> {
    deletable(observed.iter().copied())
}

/// The set of manifests that is in place: `preferred` if it is, else the one with the highest version.
#[must_use]
pub(crate) fn applied_set(observed: &[&ObservedObject], preferred: Option<Digest>) -> Option<AppliedSet> {
    let digests: BTreeSet<_> = observed.iter().filter_map(|object| object.digest).collect();
    let complete = digests.into_iter().filter(|digest| is_complete(observed, *digest));
    let sets = complete.map(|digest| {
        let of_it = || observed.iter().filter(|object| object.digest == Some(digest));
        AppliedSet {
            digest,
            version: of_it().filter_map(|object| object.version).max().unwrap_or_default(),
            applied_at: of_it().filter_map(|object| object.applied_at).max(),
        }
    });
    sets.max_by_key(|set| (Some(set.digest) == preferred, set.version))
}

/// What was applied with that digest, and no one has changed since.
fn is_of(object: &ObservedObject, digest: Digest) -> bool {
    object.digest == Some(digest) && !object.is_changed
}

/// Every object that was applied with that digest is still there. Each of them says how many they were.
fn is_complete(observed: &[&ObservedObject], digest: Digest) -> bool {
    let complete = observed.iter().filter(|object| is_of(object, digest) && !object.deleting);
    let (mut count, mut objects) = (0, BTreeSet::new());
    for object in complete {
        count += 1;
        objects.insert(object.objects);
    }
    count > 0 && objects.len() == 1 && objects.contains(&Some(count))
}

fn deletable<'a>(objects: impl Iterator<Item = &'a ObservedObject>) -> Vec<ObjectKey> {
    objects.filter(|object| !object.deleting).map(|object| object.key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { kind: "v1/ConfigMap".parse().unwrap(), name: name.to_owned() }
    }

    fn digest(content: u64) -> Digest {
        Digest::of(&json!(content))
    }

    fn entry(content: u64) -> DesiredDeployment {
        DesiredDeployment { version: content, digest: digest(content) }
    }

    fn object(name: &str, content: u64, objects: usize) -> ObservedObject {
        ObservedObject {
            key: key(name),
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            deployment: Some(Uuid::nil()),
            version: Some(content),
            digest: Some(digest(content)),
            objects: Some(objects),
            name: None,
            applied_at: Some(content * 10),
            generation: None,
            is_changed: false,
            entries: None,
            deleting: false,
            readiness: None,
            is_suspended: false,
        }
    }

    fn manifests(content: u64, names: &[&str]) -> ValidManifests {
        let objects = names.iter().map(|name| (key(name), json!({}))).collect();
        ValidManifests { entry: entry(content), name: String::new(), objects, entries: None, bytes: 0 }
    }

    fn planned(wanted: u64, manifests: Option<&ValidManifests>, observed: &[ObservedObject]) -> Plan {
        plan(entry(wanted), manifests, &observed.iter().collect::<Vec<_>>(), |_| None)
    }

    fn in_place(leftovers: &[&str]) -> Plan {
        Plan::InPlace { leftovers: leftovers.iter().map(|name| key(name)).collect() }
    }

    #[test]
    fn an_applied_state_needs_nothing_with_or_without_manifests() {
        let set = manifests(1, &["a", "b"]);
        let observed = [object("a", 1, 2), object("b", 1, 2)];
        assert_eq!(planned(1, Some(&set), &observed), in_place(&[]));
        assert_eq!(planned(1, None, &observed), in_place(&[]));
        // Manifests of another digest are as good as none.
        assert_eq!(planned(1, Some(&manifests(2, &["a"])), &observed), in_place(&[]));
    }

    #[test]
    fn only_what_is_missing_or_old_is_applied() {
        let set = manifests(2, &["a", "b", "c"]);
        let observed = [object("a", 2, 3), object("b", 1, 2)];
        assert_eq!(planned(2, Some(&set), &observed), Plan::Apply(vec![1, 2]));
        assert_eq!(planned(2, None, &observed), Plan::NeedManifests);
        assert_eq!(planned(2, Some(&set), &[]), Plan::Apply(vec![0, 1, 2]));
        assert_eq!(planned(2, None, &[]), Plan::NeedManifests);
    }

    #[test]
    fn what_another_writer_changed_is_applied_again_and_not_complete() {
        let set = manifests(1, &["a", "b"]);
        let mut observed = [object("a", 1, 2), object("b", 1, 2)];
        observed[1].is_changed = true;
        assert_eq!(planned(1, Some(&set), &observed), Plan::Apply(vec![1]));
        assert_eq!(planned(1, None, &observed), Plan::NeedManifests);
    }

    #[test]
    fn leftovers_go_only_after_the_desired_objects_are_in_place() {
        let set = manifests(2, &["a", "b"]);
        let mut observed = vec![object("a", 2, 2), object("old", 1, 2)];
        assert_eq!(planned(2, Some(&set), &observed), Plan::Apply(vec![1]));
        observed.push(object("b", 2, 2));
        assert_eq!(planned(2, Some(&set), &observed), in_place(&["old"]));
        assert_eq!(planned(2, None, &observed), in_place(&["old"]));
        observed[1].deleting = true;
        assert_eq!(planned(2, Some(&set), &observed), in_place(&[]));
    }

    #[test]
    fn forged_marks_are_repaired_and_never_taken_for_complete() {
        let set = manifests(1, &["a", "b"]);
        let observed = [object("a", 1, 1), object("b", 1, 2)];
        assert_eq!(planned(1, None, &observed), Plan::NeedManifests);
        assert_eq!(planned(1, Some(&set), &observed), Plan::Apply(vec![0]));
    }

    #[test]
    fn an_object_that_is_being_deleted_is_waited_for_and_another_deployments_object_blocks() {
        let set = manifests(1, &["a", "b"]);
        let mut observed = vec![object("a", 1, 2), object("b", 1, 2)];
        observed[0].deleting = true;
        assert!(
            matches!(planned(1, Some(&set), &observed), Plan::Wait(reason) if reason.starts_with("ConfigMap a is being"))
        );
        assert_eq!(planned(1, None, &observed), Plan::NeedManifests);
        let other = Uuid::from_u128(9);
        let blocked = plan(entry(1), Some(&set), &[&observed[1]], |key| (key.name == "a").then_some(other));
        assert_eq!(blocked, Plan::Blocked(format!("ConfigMap a belongs to deployment {other}")));
    }

    #[test]
    fn the_reported_set_is_the_desired_one_if_it_is_complete_and_none_if_none_is() {
        let observed = [object("a", 1, 1), object("b", 2, 1)];
        let all: Vec<_> = observed.iter().collect();
        let set =
            |content: u64| AppliedSet { digest: digest(content), version: content, applied_at: Some(content * 10) };
        assert_eq!(applied_set(&all, Some(digest(1))), Some(set(1)));
        assert_eq!(applied_set(&all, None), Some(set(2)));
        assert_eq!(applied_set(&[&object("a", 1, 2)], None), None);
    }
}
