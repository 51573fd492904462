//! The store in the Kubernetes API: documents in ConfigMaps and Leases of one namespace, tokens in Secrets of `kube-system`. Creation is the atomic claim, `resourceVersion` the
//! compare-and-swap. Secrets are only created and deleted, never read.

mod watch;

use std::future::Future;
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use kubernetes_client::error;
use serde_json::{Value, json};

use crate::document::{Document, Key, Leader, Store, from_text};
use crate::event::{
    ErrorClass, Event, NewToken, Operation, StoreError, Transaction, TransactionError, Version, Written,
};

/// Label of everything that the service keeps.
const LABEL: &str = "app.kubernetes.io/managed-by";
/// Its value.
const MANAGER: &str = "sparkfleet-join-service";
/// The place of a document: key of a ConfigMap, annotation of a Lease.
const DOCUMENT: &str = "document.json";
const ANNOTATION: &str = "sparkfleet.io/document";
/// Annotation of a token: the attempt that it was made for.
const REQUEST: &str = "sparkfleet.io/join-request";
/// Where Kubernetes looks for tokens.
const TOKENS: &str = "kube-system";
/// No single request takes longer, whatever the API server does.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// A client of the cluster's API, limited to one namespace, and to tokens and nodes.
#[derive(Clone)]
pub struct Kubernetes {
    client: Client,
    namespace: String,
}

impl std::fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubernetes").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

fn resource(store: Store) -> ApiResource {
    match store {
        Store::ConfigMaps => ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap")),
        Store::Leases => ApiResource::from_gvk(&GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease")),
    }
}

impl Kubernetes {
    /// Keeps documents in `namespace`.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned() }
    }

    fn api(&self, store: Store) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(store))
    }

    fn tokens(&self) -> Api<DynamicObject> {
        let secret = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
        Api::namespaced_with(self.client.clone(), TOKENS, &secret)
    }

    fn nodes(&self) -> Api<DynamicObject> {
        let node = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node"));
        Api::all_with(self.client.clone(), &node)
    }

    /// Runs a transaction; the answer is an event.
    pub async fn run(&self, transaction: Transaction) -> Event {
        let Transaction { id, operations, then } = transaction;
        let mut written = Vec::new();
        let done = then.commit_async(self.operate(operations, &mut written)).await;
        let result = done.map(|((), saved)| saved).map_err(|(error, _)| error);
        Event::Written { transaction: id, written, result }
    }

    async fn operate(&self, operations: Vec<Operation>, written: &mut Vec<Written>) -> Result<(), TransactionError> {
        for operation in operations {
            let (at, key) = named(&operation);
            match self.operate_one(operation, written).await {
                Ok(one) => written.extend(one),
                Err(error) => return Err(TransactionError { at, key, error }),
            }
        }
        Ok(())
    }

    async fn operate_one(&self, operation: Operation, written: &[Written]) -> Result<Option<Written>, StoreError> {
        match operation {
            Operation::Create { key, text } => {
                let object = object(&key, &text, None);
                let made = within_time(self.api(key.store()).create(&PostParams::default(), &object)).await?;
                Ok(Some(Written { document: Some((made.resource_version().unwrap_or_default(), text)), key }))
            }
            Operation::Replace { key, text, version } => {
                let own = written.iter().rev().find(|written| written.key == key);
                let version = match version {
                    Version::Known(version) => version,
                    Version::Own => {
                        own.and_then(|own| own.document.as_ref()).map(|(v, _)| v.clone()).unwrap_or_default()
                    }
                };
                let object = object(&key, &text, Some(version));
                let name = key.to_string();
                let made = within_time(self.api(key.store()).replace(&name, &PostParams::default(), &object)).await;
                let made = made.map_err(gone_is_a_conflict)?;
                Ok(Some(Written { document: Some((made.resource_version().unwrap_or_default(), text)), key }))
            }
            Operation::Delete { key, version } => {
                let params = DeleteParams {
                    preconditions: Some(Preconditions { uid: None, resource_version: Some(version) }),
                    ..DeleteParams::default()
                };
                within_time(absent_is_done(self.api(key.store()).delete(&key.to_string(), &params))).await?;
                Ok(Some(Written { key, document: None }))
            }
            Operation::CreateToken(token) => {
                let object = token_object(&token)?;
                match within_time(self.tokens().create(&PostParams::default(), &object)).await {
                    // It was made before a crash: what it is follows from the request.
                    Err(StoreError { class: ErrorClass::Conflict, .. }) => Ok(None),
                    other => other.map(|_| None),
                }
            }
            Operation::DeleteNode { name } => {
                within_time(absent_is_done(self.nodes().delete(&name, &DeleteParams::default()))).await?;
                Ok(None)
            }
            Operation::DeleteToken { id } => {
                let name = format!("bootstrap-token-{id}");
                within_time(absent_is_done(self.tokens().delete(&name, &DeleteParams::default()))).await?;
                Ok(None)
            }
        }
    }

    /// Reads one document; the answer is an event.
    pub async fn read(&self, key: Key) -> Event {
        let result = within_time(self.api(key.store()).get_opt(&key.to_string())).await;
        let result = result.map(|found| found.and_then(|object| document(key.store(), &object)));
        Event::Read { key, result }
    }
}

fn named(operation: &Operation) -> (String, Option<Key>) {
    match operation {
        Operation::Create { key, .. } | Operation::Replace { key, .. } | Operation::Delete { key, .. } => {
            (key.to_string(), Some(key.clone()))
        }
        Operation::CreateToken(token) => (format!("bootstrap-token-{}", token.token.id()), None),
        Operation::DeleteNode { name } => (format!("node {name}"), None),
        Operation::DeleteToken { id } => (format!("bootstrap-token-{id}"), None),
    }
}

fn object(key: &Key, text: &str, version: Option<String>) -> DynamicObject {
    let mut object = DynamicObject::new(&key.to_string(), &resource(key.store()));
    object.metadata.labels = Some([(LABEL.to_owned(), MANAGER.to_owned())].into());
    object.metadata.resource_version = version;
    match key.store() {
        Store::ConfigMaps => object.data = json!({"data": {DOCUMENT: text}}),
        Store::Leases => {
            object.metadata.annotations = Some([(ANNOTATION.to_owned(), text.to_owned())].into());
            // For people with kubectl; only the document counts.
            let holder = from_text::<Leader>(text).map(|leader| leader.holder).unwrap_or_else(|_| key.to_string());
            object.data = json!({"spec": {"holderIdentity": holder}});
        }
    }
    object
}

/// The document in an object; None: it is not one of this service.
fn document(store: Store, object: &DynamicObject) -> Option<Document> {
    let key = Key::parse(object.metadata.name.as_deref()?)?;
    let text = match store {
        Store::ConfigMaps => object.data.get("data").and_then(|data| data.get(DOCUMENT)).and_then(Value::as_str),
        Store::Leases => {
            object.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION)).map(String::as_str)
        }
    };
    let version = object.resource_version().unwrap_or_default();
    Some(Document { key, version, text: text.unwrap_or_default().to_owned() })
}

fn token_object(token: &NewToken) -> Result<DynamicObject, StoreError> {
    let (now, seconds) = token.times;
    let unusable = || StoreError {
        class: ErrorClass::Refused,
        message: "the clock shows no time that a token can have".to_owned(),
    };
    let mut manifest = token.token.manifest(now, seconds).ok_or_else(unusable)?;
    manifest["stringData"]["auth-extra-groups"] = json!(token.group);
    manifest["metadata"]["labels"] = json!({LABEL: MANAGER});
    manifest["metadata"]["annotations"] = json!({REQUEST: token.request.to_string()});
    serde_json::from_value(manifest).map_err(|_| unusable())
}

async fn absent_is_done<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<(), kube::Error> {
    match request.await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

/// It was deleted: look again.
fn gone_is_a_conflict(error: StoreError) -> StoreError {
    match error.class {
        ErrorClass::Refused if error.message.ends_with("(404)") => StoreError { class: ErrorClass::Conflict, ..error },
        _ => error,
    }
}

/// One request, or the error that it took too long.
async fn within_time<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, StoreError> {
    error::within(REQUEST_TIMEOUT, request).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Binding, to_text};
    use join_protocol::terms::RequestId;
    use join_tickets::kubeadm::BootstrapToken;

    #[test]
    fn documents_are_read_as_they_are_written() {
        for key in [Key::Name("a".to_owned()), Key::Leader] {
            let text = to_text(&Binding { ek: [1; 32], since_ms: 1 });
            let object = object(&key, &text, Some("7".to_owned()));
            let found = document(key.store(), &object);
            assert_eq!(found, Some(Document { key, version: "7".to_owned(), text }));
        }
    }

    #[test]
    fn a_token_is_in_the_group_of_its_distribution_and_says_for_whom_it_is() {
        let token = BootstrapToken::parse("abc123.0123456789abcdef").unwrap();
        let token = NewToken { token, request: RequestId([7; 16]), group: "system:x", times: (1_800_000_000, 60) };
        let object = token_object(&token).unwrap();
        assert_eq!(object.metadata.name.as_deref(), Some("bootstrap-token-abc123"));
        assert_eq!(object.data["stringData"]["auth-extra-groups"], "system:x");
        assert_eq!(object.metadata.annotations.unwrap()[REQUEST], "07".repeat(16));
        let debug = format!("{token:?}");
        assert!(!debug.contains("0123456789abcdef"), "{debug}");
    }
}
