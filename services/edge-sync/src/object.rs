//! Kubernetes objects as Sync sees them: their kind and name, the marks that Sync puts on them, and what it reads back.
//!
//! The marks on the objects are the memory of what is applied: after a restart Sync reads from them which version and digest runs.
//! This module knows labels, annotations and conditions; it must not know how objects travel.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use edge_sync_contract::{Digest, Entries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

/// Field manager of every apply, and value of [`LABEL_MANAGED_BY`].
pub const MANAGER: &str = "edge-sync.factoryplus.app.amrc.co.uk";
/// Label of what is managed by Sync.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label: the deployment that an object belongs to.
pub const LABEL_UUID: &str = "factoryplus.app.amrc.co.uk/uuid";
/// Annotation: version of the deployment's manifests.
pub const ANNOTATION_VERSION: &str = "sparkfleet.io/version";
/// Annotation: digest of the deployment's manifests.
pub const ANNOTATION_DIGEST: &str = "sparkfleet.io/digest";
/// Annotation: how many objects the deployment's manifests are, so that a missing one is noticed without them.
pub const ANNOTATION_OBJECTS: &str = "sparkfleet.io/objects";
/// Annotation: name of the deployment for people.
pub const ANNOTATION_NAME: &str = "sparkfleet.io/name";
/// Annotation of one object of a deployment: entries of ConfigDB that the manifests were made from, JSON.
pub const ANNOTATION_ENTRIES: &str = "sparkfleet.io/entries";
/// Annotation: when the object was applied, UTC ms.
pub const ANNOTATION_APPLIED_AT: &str = "sparkfleet.io/applied-at";

/// Annotation: the generation that the object got when it was applied. Another one means that someone else has changed what was applied.
pub const ANNOTATION_GENERATION: &str = "sparkfleet.io/generation";

/// An API version and a kind, written `helm.toolkit.fluxcd.io/v2/HelmRelease` or `v1/ConfigMap`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// `helm.toolkit.fluxcd.io/v2`, `v1`.
    pub api_version: Arc<str>,
    /// `HelmRelease`, `ConfigMap`.
    pub kind: Arc<str>,
}

/// The text is not a kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("kind {0:?} must be written <api version>/<Kind>, for example v1/ConfigMap")]
pub struct KindError(String);

impl Kind {
    /// The group, empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The version without the group.
    #[must_use]
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&*self.api_version, |(_, version)| version)
    }
}

impl FromStr for Kind {
    type Err = KindError;

    fn from_str(text: &str) -> Result<Self, KindError> {
        let (api_version, kind) = text.rsplit_once('/').ok_or_else(|| KindError(text.to_owned()))?;
        let parts_are_good = api_version.split('/').all(|part| !part.is_empty()) && api_version.split('/').count() <= 2;
        if !parts_are_good || !kind.starts_with(|c: char| c.is_ascii_uppercase()) {
            return Err(KindError(text.to_owned()));
        }
        Ok(Self { api_version: api_version.into(), kind: kind.into() })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version, self.kind)
    }
}

/// Names one object of the own namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    pub kind: Kind,
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.kind, self.name)
    }
}

/// The part of an object's status that is looked at. The rest is dropped while it is read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectStatus {
    /// Generation that the status speaks of.
    pub observed_generation: Option<i64>,
    pub conditions: Vec<Condition>,
    /// Of a Kustomization: what it has applied last, such as `main@sha1:<commit>`.
    pub last_applied_revision: Option<String>,
}

/// A condition of an object or of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// `Ready`, ...
    #[serde(rename = "type")]
    pub condition: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub message: Option<String>,
    /// Generation that the condition speaks of.
    pub observed_generation: Option<i64>,
    /// Since when the status is what it is.
    pub last_transition_time: Option<Time>,
}

/// The part of an object's specification that is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ObjectSpec {
    /// Of an object of Flux: nothing is done about it until it is resumed.
    pub suspend: Option<bool>,
}

/// An object as the API server sends it, reduced while reading to what Sync looks at: values of a chart never stay in memory.
pub type WatchedObject = kube::core::Object<Option<ObjectSpec>, ObjectStatus>;

/// Flux' verdict on an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readiness {
    /// None while Flux has not looked at the present generation.
    pub ready: Option<bool>,
    /// Message of the condition.
    pub message: Option<String>,
}

/// An object that carries the label of Sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedObject {
    pub key: ObjectKey,
    /// Distinguishes it from a later object of the same name.
    pub uid: String,
    pub resource_version: String,
    /// The deployment that it belongs to; None: no one's, Sync leaves it alone.
    pub deployment: Option<Uuid>,
    /// Version of the manifests that it comes from.
    pub version: Option<u64>,
    /// Digest of the manifests that it comes from.
    pub digest: Option<Digest>,
    /// Number of objects that it was applied with, itself included.
    pub objects: Option<usize>,
    /// Name of the deployment.
    pub name: Option<String>,
    /// When it was applied, UTC ms.
    pub applied_at: Option<u64>,
    /// How often what is desired of it was changed; None: its kind does not count that.
    pub generation: Option<i64>,
    /// Someone else has changed what is desired of it since it was applied.
    pub is_changed: bool,
    /// Entries that the manifests were made from; the first object of a deployment has them.
    pub entries: Option<Entries>,
    /// It is being deleted and waits for its finalizers.
    pub deleting: bool,
    /// Its Ready condition, if it has one.
    pub readiness: Option<Readiness>,
    /// Flux does nothing about it until it is resumed.
    pub is_suspended: bool,
}

impl ObservedObject {
    /// From what the API server sent. None: it does not carry the label of Sync, or has no name.
    #[must_use]
    pub fn read(kind: &Kind, object: &WatchedObject) -> Option<Self> {
        let meta = &object.metadata;
        let label = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name)).map(String::as_str);
        if label(LABEL_MANAGED_BY) != Some(MANAGER) {
            return None;
        }
        let number = |name: &str| annotation(name).and_then(|text| text.parse().ok());
        let applied = annotation(ANNOTATION_GENERATION).and_then(|text| text.parse::<i64>().ok());
        Some(Self {
            key: ObjectKey { kind: kind.clone(), name: meta.name.clone()? },
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            deployment: label(LABEL_UUID).and_then(|text| Uuid::try_parse(text).ok()),
            version: number(ANNOTATION_VERSION),
            digest: annotation(ANNOTATION_DIGEST).and_then(|text| text.parse().ok()),
            objects: annotation(ANNOTATION_OBJECTS).and_then(|text| text.parse().ok()),
            name: annotation(ANNOTATION_NAME).map(str::to_owned),
            applied_at: number(ANNOTATION_APPLIED_AT),
            generation: meta.generation,
            is_changed: applied.zip(meta.generation).is_some_and(|(applied, present)| applied != present),
            entries: annotation(ANNOTATION_ENTRIES).and_then(|text| Entries::from_text(text).ok()),
            deleting: meta.deletion_timestamp.is_some(),
            readiness: object.status.as_ref().and_then(|status| readiness(meta, status)),
            is_suspended: object.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true)),
        })
    }

    /// True if `self` is certainly an older state of the same object than `known`.
    #[must_use]
    pub fn is_older_than(&self, known: &Self) -> bool {
        let number = |object: &Self| object.resource_version.parse::<u64>().ok();
        self.uid == known.uid && matches!((number(self), number(known)), (Some(mine), Some(theirs)) if mine < theirs)
    }
}

/// The Ready condition of an object.
pub(crate) fn readiness(meta: &ObjectMeta, status: &ObjectStatus) -> Option<Readiness> {
    let condition = status.conditions.iter().find(|condition| condition.condition == "Ready")?;
    let observed = condition.observed_generation.or(status.observed_generation);
    // A verdict on an earlier generation says nothing of what was just applied.
    let is_current = !matches!((observed, meta.generation), (Some(observed), Some(present)) if observed < present);
    let ready = match &*condition.status {
        "True" if is_current => Some(true),
        "False" if is_current => Some(false),
        _ => None,
    };
    Some(Readiness { ready, message: condition.message.clone() })
}

/// What Sync adds to a manifest: where it belongs, and the marks.
#[derive(Debug, Clone, Copy)]
pub struct Marks<'a> {
    pub namespace: &'a str,
    pub deployment: Uuid,
    /// Name of the deployment.
    pub name: &'a str,
    /// Version of its manifests.
    pub version: u64,
    /// Digest of its manifests.
    pub digest: Digest,
    /// Number of its objects.
    pub objects: usize,
    pub applied_at: u64,
    /// Generation that the object is expected to have when it is applied; None: its kind does not count them.
    pub generation: Option<i64>,
    /// Entries that they are made from; only on one of the objects.
    pub entries: Option<&'a Entries>,
}

impl Marks<'_> {
    /// A validated manifest with the marks on it, ready to be applied.
    #[must_use]
    pub fn put_on(&self, manifest: &Value) -> Value {
        let mut object = manifest.clone();
        let metadata = &mut object["metadata"];
        metadata["namespace"] = Value::from(self.namespace);
        let labels = [(LABEL_MANAGED_BY, MANAGER.to_owned()), (LABEL_UUID, self.deployment.to_string())];
        let annotations = [
            (ANNOTATION_VERSION, self.version.to_string()),
            (ANNOTATION_DIGEST, self.digest.to_string()),
            (ANNOTATION_OBJECTS, self.objects.to_string()),
            (ANNOTATION_NAME, self.name.to_owned()),
            (ANNOTATION_APPLIED_AT, self.applied_at.to_string()),
        ];
        for (name, value) in labels {
            metadata["labels"][name] = Value::from(value);
        }
        let generation = self.generation.map(|generation| (ANNOTATION_GENERATION, generation.to_string()));
        for (name, value) in annotations.into_iter().chain(generation) {
            metadata["annotations"][name] = Value::from(value);
        }
        if let Some(text) = self.entries.and_then(Entries::to_text) {
            metadata["annotations"][ANNOTATION_ENTRIES] = Value::from(text);
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kind() -> Kind {
        "helm.toolkit.fluxcd.io/v2/HelmRelease".parse().unwrap()
    }

    fn read(object: Value) -> Option<ObservedObject> {
        ObservedObject::read(&kind(), &serde_json::from_value(object).unwrap())
    }

    fn marked() -> Value {
        let marks = Marks {
            namespace: "edge",
            deployment: Uuid::from_u128(1),
            name: "Cell 1",
            version: 4,
            digest: Digest::of(&json!([])),
            objects: 2,
            applied_at: 99,
            generation: Some(3),
            entries: Some(&Entries([("Info".to_owned(), json!({"name": "x"}))].into())),
        };
        marks.put_on(&json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "x", "labels": {"own": "y"}}, "spec": {"values": {"a": 1}}}))
    }

    #[test]
    fn marks_are_read_back_and_what_the_manifest_had_stays() {
        let object = marked();
        assert_eq!(object["metadata"]["labels"]["own"], "y");
        assert_eq!(object["metadata"]["namespace"], "edge");
        assert_eq!(object["spec"]["values"]["a"], 1);
        let observed = read(object).unwrap();
        assert_eq!(observed.deployment, Some(Uuid::from_u128(1)));
        assert_eq!((observed.version, observed.objects, observed.applied_at), (Some(4), Some(2), Some(99)));
        assert_eq!((observed.digest, observed.name.as_deref()), (Some(Digest::of(&json!([]))), Some("Cell 1")));
        assert_eq!(observed.entries.unwrap().0["Info"]["name"], "x");
        assert_eq!((observed.deleting, observed.readiness), (false, None));
    }

    #[test]
    fn another_generation_than_that_of_the_apply_is_a_change_by_another_writer() {
        for (generation, is_changed) in [(json!(3), false), (json!(4), true), (Value::Null, false)] {
            let mut object = marked();
            object["metadata"]["generation"] = generation.clone();
            assert_eq!(read(object).unwrap().is_changed, is_changed, "{generation}");
        }
        let mut unmarked = marked();
        unmarked["metadata"]["generation"] = json!(4);
        unmarked["metadata"]["annotations"].as_object_mut().unwrap().remove(ANNOTATION_GENERATION);
        assert!(!read(unmarked).unwrap().is_changed, "applied by an older version");
    }

    #[test]
    fn objects_of_others_are_not_read() {
        assert_eq!(read(json!({"metadata": {"name": "x"}})), None);
        assert_eq!(read(json!({"metadata": {"name": "x", "labels": {LABEL_MANAGED_BY: "Helm"}}})), None);
        let ours = read(json!({"metadata": {"name": "x", "labels": {LABEL_MANAGED_BY: MANAGER, LABEL_UUID: "?"}}}));
        assert_eq!(ours.unwrap().deployment, None, "no deployment has it");
    }

    #[test]
    fn a_verdict_on_an_older_generation_is_unknown() {
        for (status, generation, observed, ready) in [
            ("True", 2, Some(2), Some(true)),
            ("False", 2, Some(2), Some(false)),
            ("Unknown", 2, Some(2), None),
            ("True", 2, Some(1), None),
            ("True", 2, None, Some(true)),
        ] {
            let mut object = marked();
            object["metadata"]["generation"] = json!(generation);
            object["status"] = json!({"observedGeneration": observed,
                "conditions": [{"type": "Released", "status": "False"}, {"type": "Ready", "status": status, "message": "m"}]});
            let readiness = read(object).unwrap().readiness.unwrap();
            assert_eq!((readiness.ready, readiness.message.as_deref()), (ready, Some("m")), "{status} {observed:?}");
        }
    }

    #[test]
    fn an_object_that_flux_leaves_alone_is_read_as_such() {
        for (suspend, is_suspended) in [(json!(true), true), (json!(false), false), (Value::Null, false)] {
            let mut object = marked();
            object["spec"]["suspend"] = suspend.clone();
            assert_eq!(read(object).unwrap().is_suspended, is_suspended, "{suspend}");
        }
    }

    #[test]
    fn kinds_are_read_and_written() {
        for text in ["v1/ConfigMap", "helm.toolkit.fluxcd.io/v2/HelmRelease"] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        assert_eq!((kind().group(), kind().version()), ("helm.toolkit.fluxcd.io", "v2"));
        for text in ["ConfigMap", "v1/", "/ConfigMap", "v1/configMap", "a/b/c/D", ""] {
            assert_eq!(text.parse::<Kind>(), Err(KindError(text.to_owned())));
        }
    }

    #[test]
    fn only_a_lower_number_of_the_same_object_is_older() {
        let object = |uid: &str, version: &str| ObservedObject {
            uid: uid.to_owned(),
            resource_version: version.to_owned(),
            ..read(marked()).unwrap()
        };
        assert!(object("a", "9").is_older_than(&object("a", "10")));
        assert!(!object("a", "10").is_older_than(&object("a", "10")));
        assert!(!object("b", "9").is_older_than(&object("a", "10")));
        assert!(!object("a", "x").is_older_than(&object("a", "10")));
    }
}
