//! Manifests that arrived -> manifests that may be applied. The edge checks for itself, whatever the control plane checked.
//!
//! What is refused here is refused for one deployment only; the others go on. This module must not know what is in the cluster.

use std::collections::BTreeSet;

use edge_sync_contract::{DesiredDeployment, DesiredManifests, Entries, canonical_json};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::confine::{self, confine};
use crate::object::{Kind, LABEL_MANAGED_BY, LABEL_UUID, MANAGER, ObjectKey};

/// Objects of one deployment, at most: one apply is sequential and must end.
pub(crate) const OBJECTS_MAX: usize = 64;
/// Bytes of the name of a deployment.
pub(crate) const NAME_BYTES_MAX: usize = 256;
/// Longest object name that Kubernetes takes (RFC 1123 subdomain).
const OBJECT_NAME_MAX: usize = 253;

/// Names of ConfigMaps of the edge's own services, which believe what stands there, begin like this.
const OTHERS: [&str; 2] = ["join-", "sparkfleet-"];

/// What may be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The own namespace; no other may be named.
    pub namespace: String,
    pub kinds: Vec<Kind>,
    /// ConfigMap of the accepted index; no manifest may have its name.
    pub record: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ValidManifests {
    pub entry: DesiredDeployment,
    pub name: String,
    /// In the order in which they are to be applied; keys are unique.
    pub objects: Vec<(ObjectKey, Value)>,
    /// Entries that they are made from.
    pub entries: Option<Entries>,
    pub bytes: usize,
}

/// Why manifests may not be applied: which manifest, which field, which rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at} {rule}")]
pub(crate) struct Refusal {
    /// `manifests[2] metadata.namespace`
    pub at: String,
    /// The rule that it breaks.
    pub rule: String,
}

impl Rules {
    /// Checks the manifests of `deployment`.
    ///
    /// # Errors
    /// [`Refusal`] of the first rule that is broken.
    pub(crate) fn validate(&self, deployment: Uuid, desired: DesiredManifests) -> Result<ValidManifests, Refusal> {
        let refuse = |at: &str, rule: String| Err(Refusal { at: at.to_owned(), rule });
        if desired.name.len() > NAME_BYTES_MAX {
            return refuse("name", format!("must have at most {NAME_BYTES_MAX} bytes"));
        }
        // An emptied template does not ask to remove a deployment: that is what the index is for.
        if desired.manifests.is_empty() || desired.manifests.len() > OBJECTS_MAX {
            return refuse("manifests", format!("must be 1 to {OBJECTS_MAX} objects, not {}", desired.manifests.len()));
        }
        let entry = desired.entry();
        let mut objects = Vec::with_capacity(desired.manifests.len());
        let mut keys = BTreeSet::new();
        let mut bytes = 0;
        for (position, mut manifest) in desired.manifests.into_iter().enumerate() {
            let refused =
                |(field, rule): (&str, String)| Refusal { at: format!("manifests[{position}] {field}"), rule };
            let key = self.check(deployment, &manifest).map_err(refused)?;
            confine(&key.kind, &mut manifest, &self.namespace).map_err(refused)?;
            if !keys.insert(key.clone()) {
                return Err(refused(("metadata.name", format!("repeats {key}; each object may occur once"))));
            }
            bytes += canonical_json(&manifest).len();
            objects.push((key, manifest));
        }
        Ok(ValidManifests { entry, name: desired.name, objects, entries: desired.entries, bytes })
    }

    fn check(&self, deployment: Uuid, manifest: &Value) -> Result<ObjectKey, (&'static str, String)> {
        let kind = self.kind_of(manifest)?;
        let Some(metadata) = manifest.get("metadata").and_then(Value::as_object) else {
            return Err(("metadata", "must be an object".to_owned()));
        };
        let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
        if !is_object_name(name) {
            let rule = format!(
                "must be lower-case letters, digits, '-' and '.', 1 to {OBJECT_NAME_MAX} characters, not {name:?}"
            );
            return Err(("metadata.name", rule));
        }
        if &*kind.kind == "ConfigMap" && name == self.record {
            return Err(("metadata.name", format!("must not be {name}, in which Sync keeps the accepted index")));
        }
        if &*kind.kind == "ConfigMap" && OTHERS.iter().any(|prefix| name.starts_with(prefix)) {
            let rule = format!("must not begin with {}, as what the edge's own services keep", OTHERS.join(" or "));
            return Err(("metadata.name", rule));
        }
        confine::own_namespace("metadata.namespace", metadata.get("namespace"), &self.namespace)?;
        for field in ["generateName", "uid", "resourceVersion", "managedFields", "finalizers", "ownerReferences"] {
            if metadata.contains_key(field) {
                return Err(("metadata", format!("must not have {field}, which belongs to the cluster")));
            }
        }
        check_marks(deployment, metadata)?;
        Ok(ObjectKey { kind, name: name.to_owned() })
    }

    fn kind_of(&self, manifest: &Value) -> Result<Kind, (&'static str, String)> {
        let text = |field: &str| manifest.get(field).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if kind.is_empty() || api_version.is_empty() {
            return Err(("kind", "needs apiVersion and kind as texts".to_owned()));
        }
        let allowed = self.kinds.iter().find(|allowed| &*allowed.kind == kind && &*allowed.api_version == api_version);
        allowed.cloned().ok_or_else(|| {
            let kinds: Vec<_> = self.kinds.iter().map(ToString::to_string).collect();
            ("kind", format!("{api_version}/{kind} is not allowed on this cluster; allowed are {}", kinds.join(", ")))
        })
    }
}

/// Labels and annotations must be texts, and may not say that the object is another's.
fn check_marks(deployment: Uuid, metadata: &Map<String, Value>) -> Result<(), (&'static str, String)> {
    for field in ["labels", "annotations"] {
        let texts = match metadata.get(field) {
            None | Some(Value::Null) => continue,
            Some(Value::Object(texts)) => texts,
            Some(_) => return Err(("metadata", format!("must have an object of texts as {field}"))),
        };
        if let Some((name, _)) = texts.iter().find(|(_, value)| !value.is_string()) {
            return Err(("metadata", format!("{field}.{name} must be a text")));
        }
        if field == "labels" {
            let uuid = deployment.to_string();
            for (name, ours) in [(LABEL_MANAGED_BY, MANAGER), (LABEL_UUID, &*uuid)] {
                if texts.get(name).is_some_and(|value| value != ours) {
                    return Err(("metadata", format!("labels.{name} must be absent or {ours:?}")));
                }
            }
        }
    }
    Ok(())
}

/// RFC 1123 subdomain, as Kubernetes wants object names.
fn is_object_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(label.chars().next())
            && edge(label.chars().last())
            && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    name.len() <= OBJECT_NAME_MAX && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const UUID: Uuid = Uuid::from_u128(1);

    fn rules() -> Rules {
        let kinds = ["helm.toolkit.fluxcd.io/v2/HelmRelease", "v1/ConfigMap"];
        Rules {
            namespace: "edge".to_owned(),
            kinds: kinds.iter().map(|kind| kind.parse().unwrap()).collect(),
            record: "edge-sync-desired".to_owned(),
        }
    }

    fn release() -> Value {
        json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "edge-agent-1", "labels": {LABEL_UUID: UUID.to_string()}}, "spec": {}})
    }

    fn validate(manifests: Vec<Value>) -> Result<ValidManifests, String> {
        rules().validate(UUID, DesiredManifests::new(1, "n", manifests)).map_err(|refusal| refusal.to_string())
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut object = release();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        object
    }

    #[test]
    fn good_manifests_keep_their_order() {
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a.b-c", "namespace": "edge"}});
        let valid = validate(vec![release(), config.clone()]).unwrap();
        let keys: Vec<_> = valid.objects.iter().map(|(key, _)| key.to_string()).collect();
        assert_eq!(keys, ["HelmRelease edge-agent-1", "ConfigMap a.b-c"]);
        assert_eq!(valid.objects[1].1, config);
    }

    #[test]
    fn each_rule_names_the_manifest_and_the_field() {
        let cases = [
            (
                with("/kind", json!("Pod")),
                "manifests[0] kind helm.toolkit.fluxcd.io/v2/Pod is not allowed on this cluster",
            ),
            (
                with("/apiVersion", json!("helm.toolkit.fluxcd.io/v1")),
                "manifests[0] kind helm.toolkit.fluxcd.io/v1/HelmRelease is not",
            ),
            (with("/kind", json!(7)), "manifests[0] kind needs apiVersion and kind as texts"),
            (with("/metadata", json!("x")), "manifests[0] metadata must be an object"),
            (with("/metadata/name", json!("")), "manifests[0] metadata.name must be lower-case"),
            (with("/metadata/name", json!("Upper")), "manifests[0] metadata.name must be lower-case"),
            (with("/metadata/name", json!("../../x")), "manifests[0] metadata.name must be lower-case"),
            (with("/metadata/name", json!("a".repeat(254))), "manifests[0] metadata.name must be lower-case"),
            (
                with("/metadata/namespace", json!("kube-system")),
                "manifests[0] metadata.namespace must be absent or \"edge\"",
            ),
            (with("/metadata/namespace", json!("")), "manifests[0] metadata.namespace must be absent or \"edge\""),
            (
                with("/spec/targetNamespace", json!("other")),
                "manifests[0] spec.targetNamespace must be absent or \"edge\"",
            ),
            (with("/metadata/managedFields", json!([])), "manifests[0] metadata must not have managedFields"),
            (with("/metadata/finalizers", json!(["x"])), "manifests[0] metadata must not have finalizers"),
            (with("/metadata/labels", json!([])), "manifests[0] metadata must have an object of texts as labels"),
            (with("/metadata/annotations", json!({"a": 1})), "manifests[0] metadata annotations.a must be a text"),
            (
                with("/metadata/labels", json!({LABEL_UUID: "other"})),
                "manifests[0] metadata labels.factoryplus.app.amrc.co.uk/uuid must",
            ),
            (
                with("/metadata/labels", json!({LABEL_MANAGED_BY: "Helm"})),
                "manifests[0] metadata labels.app.kubernetes.io/managed-by must",
            ),
        ];
        for (manifest, message) in cases {
            let error = validate(vec![manifest]).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn sets_that_are_empty_too_large_or_repeat_an_object_are_refused() {
        assert_eq!(validate(vec![]).unwrap_err(), "manifests must be 1 to 64 objects, not 0");
        assert_eq!(validate(vec![release(); 65]).unwrap_err(), "manifests must be 1 to 64 objects, not 65");
        let error = validate(vec![release(), release()]).unwrap_err();
        assert_eq!(error, "manifests[1] metadata.name repeats HelmRelease edge-agent-1; each object may occur once");
    }

    #[test]
    fn what_the_services_keep_cannot_be_overwritten() {
        let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        for name in ["join-host-00", "sparkfleet-join"] {
            let error = validate(vec![map(name)]).unwrap_err();
            assert!(
                error.starts_with("manifests[0] metadata.name must not begin with join- or sparkfleet-"),
                "{error}"
            );
        }
        let error = validate(vec![map("edge-sync-desired")]).unwrap_err();
        assert!(error.starts_with("manifests[0] metadata.name must not be edge-sync-desired"), "{error}");
    }
}
