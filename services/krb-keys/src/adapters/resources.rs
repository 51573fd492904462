//! KerberosKey and LocalSecret resources of the own namespace: their definitions, watched and translated; what is written on them.
//!
//! A watch never ends by itself: after an error it begins again with a complete list. Identifiers are those of Factory+.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use krb_keys_contract::NodeAddress;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::runtime::watcher::Config as WatchConfig;
use kube::{Api, Client, CustomResource, CustomResourceExt, KubeSchema, ResourceExt};
use kubernetes_client::watch::{WatchEvent, Watches};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use service_runtime::health::Health;
use tokio::sync::mpsc;

use crate::account::AccountFields;
use crate::event::{Event, KeyError, Resource, Status};
use crate::reconcile::{KeySpec, Meta, Record};
use crate::spec::{KerberosKeyFields, Kind, ResourceId, SpecError, validate_local};

/// Annotation: another key is wanted.
const FORCE_REKEY: &str = "krbkeys.factoryplus.app.amrc.co.uk/force-rekey";
/// Annotation: nothing is to be done.
const SUSPEND: &str = "krbkeys.factoryplus.app.amrc.co.uk/suspend";
/// Annotation: the [`Record`].
const APPLIED: &str = "krbkeys.factoryplus.app.amrc.co.uk/applied";
/// Annotation: the account that the cluster manager has answered with.
const ACCOUNT_UUID: &str = "krbkeys.factoryplus.app.amrc.co.uk/account-uuid";
/// Label: the keytab has keys that others have followed.
const HAS_OLD_KEYS: &str = "krbkeys.factoryplus.app.amrc.co.uk/has-old-keys";
/// Finalizer.
const FINALIZER: &str = "krbkeys.factoryplus.app.amrc.co.uk/principals";
/// Who writes, for Kubernetes.
const FIELD_MANAGER: &str = "krb-keys";

/// A key in the KDC of the site, mostly kept in a Secret.
#[expect(clippy::duplicated_attributes, reason = "two columns of one type")]
#[derive(Debug, Clone, PartialEq, Default, CustomResource, KubeSchema, Serialize, Deserialize)]
#[kube(
    group = "factoryplus.app.amrc.co.uk",
    version = "v1",
    kind = "KerberosKey",
    plural = "kerberos-keys",
    shortname = "krb",
    namespaced,
    status = "KeyStatus",
    doc = "A key in the KDC of the site, mostly kept in a Secret.",
    printcolumn(json_path = ".spec.type", name = "Type", type_ = "string"),
    printcolumn(json_path = ".spec.principal", name = "Principal", type_ = "string"),
    printcolumn(json_path = ".status.conditions[?(@.type==\"Ready\")].status", name = "Ready", type_ = "string")
)]
#[x_kube(validation = Rule::new("!has(self.additionalPrincipals) || self.type in ['Random', 'Disabled']").message("additionalPrincipals needs the type Random or Disabled"))]
#[x_kube(validation = Rule::new("!has(self.keepOldKeys) || self.type in ['Random', 'Disabled']").message("keepOldKeys needs the type Random or Disabled"))]
#[x_kube(validation = Rule::new("!(has(self.sealWith) || has(self.cluster)) || has(self.secret)").message("sealWith and cluster need secret"))]
#[x_kube(validation = Rule::new("!(self.type in ['Trust', 'PresetTrust', 'PresetPassword']) || has(self.secret)").message("this type needs secret"))]
#[x_kube(validation = Rule::new("!has(self.account) || !has(self.additionalPrincipals)").message("account excludes additionalPrincipals"))]
#[x_kube(validation = Rule::new("!has(self.account) || has(self.account.uuid) || has(self.account.class)").message("account needs uuid or class"))]
#[x_kube(validation = Rule::new("!has(self.account) || !has(self.account.name) || has(self.account.class)").message("name of account needs class"))]
#[serde(rename_all = "camelCase")]
pub(crate) struct KerberosKeySpec {
    /// Disabled, Random, Password, PresetPassword, Trust or PresetTrust.
    #[serde(rename = "type")]
    #[schemars(regex(pattern = r"^(Disabled|Random|Password|PresetPassword|Trust|PresetTrust)$"))]
    pub key_type: String,
    /// The principal, with its realm; of a trust krbtgt/OTHER.REALM@REALM.
    pub principal: String,
    /// More principals whose keys go into the same keytab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_principals: Option<Vec<String>>,
    /// Keys before the newest stay in the keytab for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_old_keys: Option<bool>,
    /// Where the key is kept, `name of the Secret/key in it`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$"))]
    pub secret: Option<String>,
    /// The key is sealed for the certificate (PEM) that stands there, `name of the ConfigMap/key in it`, and goes into a SealedSecret instead of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$"))]
    pub seal_with: Option<String>,
    /// Of Factory+; refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<serde_json::Map<String, Value>>,
    /// The account of the principal: an object in ConfigDB, kept by the cluster manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountSpec>,
}

/// The account of a principal.
#[derive(Debug, Clone, PartialEq, Default, KubeSchema, Serialize, Deserialize)]
pub(crate) struct AccountSpec {
    /// An object that exists and stays when the account goes. Absent: one is made, and goes with the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Class of the object: Edge Agent or Edge service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Name of the object, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Groups that it is a member of, which must be Edge groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    /// Of Factory+; ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aces: Option<Vec<serde_json::Map<String, Value>>>,
    /// Where the account is an Edge Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparkplug: Option<AccountNode>,
}

/// An address on Sparkplug.
#[derive(Debug, Clone, PartialEq, Eq, Default, KubeSchema, Serialize, Deserialize)]
pub(crate) struct AccountNode {
    /// Edge Node id.
    pub node: String,
    /// Group; only that of the cluster, which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// A random value in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, CustomResource, KubeSchema, Serialize, Deserialize)]
#[kube(
    group = "factoryplus.app.amrc.co.uk",
    version = "v1",
    kind = "LocalSecret",
    plural = "localsecrets",
    namespaced,
    status = "KeyStatus",
    doc = "A random value in a Secret; made once, and again when it is deleted."
)]
pub(crate) struct LocalSecretSpec {
    /// Name of the Secret.
    #[schemars(regex(pattern = r"^[a-z0-9.-]+$"))]
    pub secret: String,
    /// Key in it.
    #[schemars(regex(pattern = r"^[A-Za-z0-9._-]+$"))]
    pub key: String,
    /// `Password`: text that is safe in URLs.
    #[schemars(regex(pattern = r"^Password$"))]
    pub format: String,
}

/// How a resource stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, KubeSchema, Serialize, Deserialize)]
pub(crate) struct KeyStatus {
    /// One of the type Ready.
    #[serde(default)]
    pub conditions: Vec<KeyCondition>,
}

/// A condition as Kubernetes has them.
#[derive(Debug, Clone, PartialEq, Eq, Default, KubeSchema, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyCondition {
    /// `Ready`
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    #[serde(default)]
    pub reason: String,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// Version of the spec that it is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// When it was written, RFC 3339.
    #[serde(default)]
    pub last_transition_time: String,
}

/// Both definitions, as they are installed in clusters. Flux does not delete them: every key would go with them.
#[must_use]
pub fn custom_resource_definitions() -> [CustomResourceDefinition; 2] {
    [KerberosKey::crd(), LocalSecret::crd()].map(|mut definition| {
        let label = ("kustomize.toolkit.fluxcd.io/prune".to_owned(), "disabled".to_owned());
        definition.metadata.labels = Some([label].into());
        definition
    })
}

fn api_resource(kind: Kind) -> ApiResource {
    match kind {
        Kind::KerberosKey => ApiResource::erase::<KerberosKey>(&()),
        Kind::LocalSecret => ApiResource::erase::<LocalSecret>(&()),
    }
}

fn api(client: &Client, namespace: &str, kind: Kind) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &api_resource(kind))
}

/// Watches both kinds until the inbox is gone or the result is dropped.
pub(crate) fn watch(client: &Client, namespace: &str, inbox: &mpsc::Sender<Event>, health: &Health) -> Watches {
    let mut watches = Watches::default();
    for kind in [Kind::KerberosKey, Kind::LocalSecret] {
        let read = move |object: DynamicObject| Some((object.name_any(), read(kind, &object)));
        let health = health.clone();
        let event = move |watch_event| event(kind, watch_event, &health);
        watches.follow(api(client, namespace, kind), WatchConfig::default(), read, inbox.clone(), event);
    }
    watches
}

/// None: nothing is known that was not.
fn event(kind: Kind, watch_event: WatchEvent<(String, Resource)>, health: &Health) -> Option<Event> {
    let component = match kind {
        Kind::KerberosKey => "kerberos_keys",
        Kind::LocalSecret => "local_secrets",
    };
    let event = match watch_event {
        WatchEvent::Listed(all) => Event::Listed(kind, all.into_iter().collect::<BTreeMap<_, _>>()),
        WatchEvent::Changed((name, resource)) => Event::Applied(ResourceId { kind, name }, resource),
        WatchEvent::Gone((name, _)) => Event::Deleted(ResourceId { kind, name }),
        WatchEvent::NotInstalled => {
            health.component(component, false, "the cluster does not know the kind");
            return None;
        }
        WatchEvent::Interrupted(error) => {
            health.component(component, false, format!("cannot watch: {error}"));
            return None;
        }
    };
    health.component(component, true, "watching");
    Some(event)
}

/// What an object says; what is wrong with its spec is part of that.
fn read(kind: Kind, object: &DynamicObject) -> Resource {
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    let unreadable = |error: serde_json::Error| SpecError::Unreadable { reason: error.to_string() };
    let spec = match kind {
        Kind::KerberosKey => serde_json::from_value(spec).map_err(unreadable).and_then(|spec| fields(spec).validate()),
        Kind::LocalSecret => serde_json::from_value::<LocalSecretSpec>(spec)
            .map_err(unreadable)
            .and_then(|spec| validate_local(&spec.secret, &spec.key, &spec.format)),
    };
    let is_set = |name: &str| object.annotations().get(name).is_some_and(|value| value != "false");
    let record = object.annotations().get(APPLIED).and_then(|text| serde_json::from_str::<Record>(text).ok());
    let meta = Meta {
        finalizer: object.finalizers().iter().any(|name| name == FINALIZER),
        record: record.unwrap_or_default(),
        force_rekey: is_set(FORCE_REKEY),
        has_old_keys: object.labels().get(HAS_OLD_KEYS).is_some_and(|value| value == "true"),
    };
    let condition = object.data.pointer("/status/conditions").and_then(Value::as_array).and_then(|all| all.first());
    let condition = condition.and_then(|condition| serde_json::from_value::<KeyCondition>(condition.clone()).ok());
    Resource {
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation.unwrap_or_default(),
        key_spec: KeySpec {
            meta,
            deleting: object.metadata.deletion_timestamp.is_some(),
            suspended: is_set(SUSPEND),
            spec: spec.map_err(|error| error.to_string()),
        },
        status: condition.map(|condition| Status {
            status: condition.status,
            reason: condition.reason,
            message: condition.message,
            observed_generation: condition.observed_generation,
        }),
    }
}

fn fields(spec: KerberosKeySpec) -> KerberosKeyFields {
    KerberosKeyFields {
        key_type: spec.key_type,
        principal: spec.principal,
        additional_principals: spec.additional_principals.unwrap_or_default(),
        keep_old_keys: spec.keep_old_keys.unwrap_or_default(),
        secret: spec.secret,
        seal_with: spec.seal_with,
        has_cluster: spec.cluster.is_some(),
        account: spec.account.map(account),
    }
}

fn account(spec: AccountSpec) -> AccountFields {
    AccountFields {
        uuid: spec.uuid,
        class: spec.class,
        name: spec.name,
        groups: spec.groups.unwrap_or_default(),
        has_aces: spec.aces.is_some_and(|aces| !aces.is_empty()),
        sparkplug: spec.sparkplug.map(|address| NodeAddress { node: address.node, group: address.group }),
    }
}

/// Writes our part of the metadata of the object with that uid; takes the request for another key away if it is `fulfilled`.
///
/// # Errors
/// Kubernetes, or another object has the name.
pub(crate) async fn mark(
    client: &Client,
    namespace: &str,
    (id, uid): (&ResourceId, &str),
    meta: &Meta,
    fulfilled: bool,
) -> Result<(), KeyError> {
    let api = api(client, namespace, id.kind);
    let object = api.get(&id.name).await.map_err(|error| key_error(&error))?;
    if object.uid().as_deref() != Some(uid) {
        return Err(KeyError::Conflict(id.to_string()));
    }
    let mut finalizers: Vec<&str> =
        object.finalizers().iter().map(String::as_str).filter(|name| *name != FINALIZER).collect();
    finalizers.extend(meta.finalizer.then_some(FINALIZER));
    let record = serde_json::to_string(&meta.record).map_err(|error| KeyError::Kubernetes(error.to_string()))?;
    let account = meta.record.account.as_ref().and_then(|account| account.uuid);
    let mut annotations = json!({ APPLIED: record, ACCOUNT_UUID: account });
    if fulfilled {
        annotations[FORCE_REKEY] = Value::Null;
    }
    let patch = json!({ "metadata": {
        "resourceVersion": object.resource_version(),
        "finalizers": finalizers,
        "annotations": annotations,
        "labels": { HAS_OLD_KEYS: meta.has_old_keys.then_some("true") },
    }});
    api.patch(&id.name, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(patch))
        .await
        .map_err(|error| key_error(&error))?;
    Ok(())
}

/// Writes the condition.
///
/// # Errors
/// Kubernetes.
pub(crate) async fn write_status(
    client: &Client,
    namespace: &str,
    id: &ResourceId,
    status: &Status,
) -> Result<(), KeyError> {
    let condition = KeyCondition {
        kind: "Ready".to_owned(),
        status: status.status.clone(),
        reason: status.reason.clone(),
        message: status.message.clone(),
        observed_generation: status.observed_generation,
        last_transition_time: jiff::Timestamp::now().to_string(),
    };
    let patch = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
    let written =
        api(client, namespace, id.kind).patch_status(&id.name, &PatchParams::apply(FIELD_MANAGER), &patch).await;
    match written {
        // It is gone, or the definition of Factory+ is installed, which has no status.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(|_| ()).map_err(|error| key_error(&error)),
    }
}

/// An error of the API, without what was sent: that may be secret.
pub(crate) fn key_error(error: &kube::Error) -> KeyError {
    match error {
        kube::Error::Api(status) if status.code == 409 => KeyError::Conflict("the object".to_owned()),
        kube::Error::Api(status) => KeyError::Kubernetes(format!("{} ({})", status.reason, status.code)),
        kube::Error::SerdeError(_) => KeyError::Kubernetes("the answer cannot be read".to_owned()),
        other => KeyError::Kubernetes(format!("not reachable: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: Value) -> DynamicObject {
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn an_object_is_read_with_its_annotations() {
        const CLASS: &str = "00da3c0b-f62b-4761-a689-39ad0c33f864";
        let object = object(json!({
            "apiVersion": "factoryplus.app.amrc.co.uk/v1", "kind": "KerberosKey",
            "metadata": {
                "name": "op1flux", "uid": "u", "generation": 3, "finalizers": ["other", FINALIZER], "labels": { HAS_OLD_KEYS: "true" },
                "annotations": { FORCE_REKEY: "yes", SUSPEND: "false", APPLIED: r#"{"principals":["a/T@A"],"secrets":["s/k"]}"# },
            },
            "spec": { "type": "Random", "principal": "a/T@A", "secret": "s/k", "account": { "class": CLASS, "sparkplug": { "node": "y" } } },
            "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "InStep", "observedGeneration": 3 }] },
        }));
        let resource = read(Kind::KerberosKey, &object);
        let KeySpec { meta, deleting, suspended, spec } = &resource.key_spec;
        assert!(meta.finalizer && meta.force_rekey && meta.has_old_keys && !suspended && !deleting);
        let spec = spec.as_ref().unwrap();
        assert_eq!(meta.record, Record::of(spec));
        let account = spec.account.as_ref().unwrap();
        assert_eq!(account.class, CLASS.parse().ok());
        assert_eq!(account.sparkplug, Some(NodeAddress { node: "y".to_owned(), group: None }));
        assert_eq!((resource.uid.as_str(), resource.generation), ("u", 3));
        assert_eq!(resource.status.map(|status| status.status), Some("True".to_owned()));
    }

    #[test]
    fn an_object_that_cannot_be_read_says_why() {
        let object = object(json!({ "metadata": { "name": "x" }, "spec": { "type": 3 } }));
        let error = read(Kind::KerberosKey, &object).key_spec.spec.unwrap_err();
        assert!(error.starts_with("the resource is not readable: "), "{error}");
    }

    #[test]
    fn every_name_is_under_the_prefix_of_factory_plus() {
        for name in [FORCE_REKEY, SUSPEND, APPLIED, ACCOUNT_UUID, HAS_OLD_KEYS, FINALIZER] {
            assert_eq!(name.split('/').next(), Some(crate::MANAGER));
        }
    }
}
