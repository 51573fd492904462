//! Writing: server-side apply, deletion with preconditions, the record of the accepted index.

use edge_sync_contract::source::{CHARTS_SOURCE, REPOSITORY_SOURCE};
use edge_sync_contract::{Commit, OtherCommits, Sources};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use service_runtime::{Effects, Unsaved};
use uuid::Uuid;

use super::{Kubernetes, within_time};
use crate::event::{Deletion, ErrorClass, Event, KubernetesError, PreparedObject};
use crate::object::{ANNOTATION_GENERATION, LABEL_MANAGED_BY, MANAGER, ObjectKey, ObservedObject};
use crate::record::{IndexRecord, RECORD_KEY, RECORD_NAME};

/// Annotation by which Flux is asked to reconcile at once; any value that it has not seen does.
const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

impl Kubernetes {
    /// Applies the objects one after another, until one fails.
    pub async fn apply(&self, deployment: Uuid, objects: Vec<PreparedObject>) -> Event {
        let mut applied = Vec::with_capacity(objects.len());
        for object in objects {
            match self.apply_one(deployment, &object).await {
                Ok(observed) => applied.push(observed),
                Err(error) => {
                    metrics::counter!("edge_sync_applies_total", "outcome" => "failed").increment(1);
                    tracing::warn!(%deployment, object = %object.key, %error, "object not applied");
                    return Event::Applied { deployment, applied, failed: Some((object.key, error)) };
                }
            }
            metrics::counter!("edge_sync_applies_total", "outcome" => "applied").increment(1);
        }
        Event::Applied { deployment, applied, failed: None }
    }

    /// Applies an object, and once more if it did not get the generation that it is marked with.
    async fn apply_one(&self, deployment: Uuid, object: &PreparedObject) -> Result<ObservedObject, KubernetesError> {
        let api = self.api(&object.key.kind)?;
        let refused = |message: String| KubernetesError { class: ErrorClass::Refused, message };
        if !object.is_ours
            && let Some(found) = within_time(api.get_opt(&object.key.name)).await?
        {
            match ObservedObject::read(&object.key.kind, &found) {
                None => {
                    let rule = format!(
                        "exists and is not managed by Sync; delete it, or give it the label {LABEL_MANAGED_BY}={MANAGER}"
                    );
                    return Err(refused(rule));
                }
                Some(ObservedObject { deployment: Some(other), .. }) if other != deployment => {
                    return Err(refused(format!("belongs to deployment {other}")));
                }
                Some(_) => {}
            }
        }
        let params = PatchParams::apply(MANAGER).force();
        let mut answer = within_time(api.patch(&object.key.name, &params, &Patch::Apply(&object.body))).await?;
        if let Some(generation) = answer.metadata.generation {
            let mut body = object.body.clone();
            let mark = &mut body["metadata"]["annotations"][ANNOTATION_GENERATION];
            let present = Value::from(generation.to_string());
            if *mark != present {
                *mark = present;
                answer = within_time(api.patch(&object.key.name, &params, &Patch::Apply(&body))).await?;
            }
        }
        ObservedObject::read(&object.key.kind, &answer)
            .ok_or_else(|| refused(format!("was applied, but lacks the label {LABEL_MANAGED_BY} in the answer")))
    }

    /// Deletes this very object in this very state.
    pub async fn delete(&self, key: ObjectKey, uid: String, resource_version: String) -> Event {
        let result = self.delete_one(&key, &uid, resource_version).await;
        match &result {
            Ok(deletion) => tracing::info!(object = %key, ?deletion, "object deleted"),
            Err(error) => tracing::warn!(object = %key, %error, "object not deleted"),
        }
        metrics::counter!("edge_sync_deletes_total", "outcome" => if result.is_ok() { "deleted" } else { "failed" })
            .increment(1);
        Event::Deleted { key, uid, result }
    }

    async fn delete_one(
        &self,
        key: &ObjectKey,
        uid: &str,
        resource_version: String,
    ) -> Result<Deletion, KubernetesError> {
        let api = self.api(&key.kind)?;
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: Some(resource_version) }),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        within_time(async {
            match api.delete(&key.name, &params).await {
                Ok(answer) => Ok(answer.either(|_| Deletion::Waiting, |_| Deletion::Gone)),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(Deletion::Gone),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Makes Flux fetch the cluster's repositories at once. Flux handles a request once: the same commit again asks for nothing. A source that is not there needs no request,
    /// because Flux fetches a source that is made.
    pub async fn annotate_sources(&self, sources: Sources) -> Result<(), KubernetesError> {
        let named = [(REPOSITORY_SOURCE, Some(sources.repository)), (CHARTS_SOURCE, sources.charts)];
        let named = named.into_iter().filter_map(|(name, commit)| Some((name.to_owned(), commit?)));
        let others = if sources.others.0.is_empty() { Vec::new() } else { self.sources_of(&sources.others).await? };
        for (name, commit) in named.chain(others) {
            match self.annotate_source(&name, commit).await {
                Ok(true) => tracing::info!(name, %commit, "asked Flux to fetch a repository"),
                Ok(false) => tracing::debug!(name, %commit, "no such GitRepository: Flux is not asked to fetch it"),
                Err(error) => {
                    tracing::warn!(name, %commit, %error, "Flux could not be asked to fetch a repository");
                    return Err(KubernetesError { message: format!("{name}: {}", error.message), ..error });
                }
            }
        }
        Ok(())
    }

    /// The GitRepositories that follow one of these repositories, with the commits of those.
    async fn sources_of(&self, others: &OtherCommits) -> Result<Vec<(String, Commit)>, KubernetesError> {
        let listed = within_time(self.sources().list(&ListParams::default())).await?;
        let follows = |source: &DynamicObject| {
            let url = source.data.pointer("/spec/url")?.as_str()?;
            Some((source.metadata.name.clone()?, *others.0.get(url)?))
        };
        Ok(listed.items.iter().filter_map(follows).collect())
    }

    fn sources(&self) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "GitRepository"));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// False: there is no such source.
    async fn annotate_source(&self, name: &str, commit: Commit) -> Result<bool, KubernetesError> {
        let api = self.sources();
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { REQUESTED_AT: commit.to_string() } } }));
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        within_time(async {
            match api.patch(name, &params, &patch).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
                answer => answer.map(|_| true),
            }
        })
        .await
    }

    /// Stores an index: the commit of what follows from it.
    pub async fn save_index(
        &self,
        record: &IndexRecord,
        replaces: Option<String>,
        then: Effects<Unsaved, IndexRecord>,
    ) -> Event {
        match then.commit_async(self.write_record(record, replaces)).await {
            Ok((resource_version, saved)) => Event::IndexSaved { resource_version, saved },
            Err((error, _)) => {
                tracing::warn!(version = record.index.version, %error, "index not stored");
                Event::IndexNotSaved(error)
            }
        }
    }

    async fn write_record(&self, record: &IndexRecord, replaces: Option<String>) -> Result<String, KubernetesError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        // Without the label of managed objects: the record is not a deployment's.
        let metadata = ObjectMeta {
            name: Some(RECORD_NAME.to_owned()),
            resource_version: replaces.clone(),
            ..ObjectMeta::default()
        };
        let data = Some([(RECORD_KEY.to_owned(), record.to_text())].into());
        let object = ConfigMap { metadata, data, ..ConfigMap::default() };
        let written = match replaces {
            None => within_time(api.create(&params, &object)).await,
            Some(_) => within_time(api.replace(RECORD_NAME, &params, &object)).await,
        };
        let written = written.map_err(|error| match error.class {
            // It was deleted, or its namespace is going: look again.
            ErrorClass::Refused if error.message.ends_with("(404)") => {
                KubernetesError { class: ErrorClass::Conflict, ..error }
            }
            _ => error,
        })?;
        Ok(written.resource_version().unwrap_or_default())
    }
}
