//! One deployment -> its manifests: HelmRelease, GitRepository when its chart is not in the shared repository, ConfigMap when it has an agent configuration.
//!
//! Pure, and one deployment at a time: what is wrong with one is its own refusal, with a reason. This module must not know versions,
//! nor whether a cluster has the manifests.

use std::collections::BTreeMap;

use configdb_schema::address::CLUSTER_NODES_RESERVED;
use configdb_schema::document::{EdgeDeployment, GitRef, HelmChartTemplate, JsonObject};
use edge_sync_contract::Digest;
use serde_json::{Value, json};
use sparkplug::{EdgeNodeId, NameError};
use uuid::Uuid;

use crate::catalog::{Catalog, CatalogError};
use crate::git_address::GitAddress;
use crate::merge::{self, OverrideError};
use crate::names::{HELM_RELEASE_CHARACTERS_MAX, LABEL_CHARACTERS_MAX, k8sname};
use crate::template::{self, Context, TemplateError};

/// Annotation of an agent's ConfigMap: ETag of the configuration.
pub const CONFIG_REVISION: &str = "factoryplus.app.amrc.co.uk/config-revision";

/// Annotation by which Flux is asked to reconcile at once; any value that it has not seen does.
const RECONCILE_REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Label: the deployment that a manifest belongs to.
pub const UUID_LABEL: &str = "factoryplus.app.amrc.co.uk/uuid";

/// What is the same for every deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where clusters reach shared repositories.
    pub git: GitAddress,
    /// First layer of every deployment's values.
    pub base_values: JsonObject,
    /// Largest JSON of all manifests of a deployment.
    pub manifests_bytes_max: usize,
}

/// One deployment with what belongs to it.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Its object.
    pub uuid: Uuid,
    /// Its entry.
    pub deployment: &'a EdgeDeployment,
    /// Its name in Kubernetes, unique on its cluster.
    pub k8s_name: &'a str,
    /// JSON and ETag of its agent configuration.
    pub agent_config: Option<(&'a str, Uuid)>,
    /// Name of its cluster.
    pub cluster_name: &'a str,
    /// Where its cluster stays in git repositories, by their objects.
    pub pins: &'a BTreeMap<Uuid, GitRef>,
}

/// The manifests of a deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// Name for people.
    pub name: String,
    /// In the order in which they are applied.
    pub manifests: Vec<Value>,
    /// Digest of them.
    pub digest: Digest,
}

/// Why a deployment cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The name makes no edge node id.
    #[error("name: {0}")]
    Name(#[from] NameError),
    /// The name is that of a service of every cluster.
    #[error("name {name:?} is that of a service on every cluster ({}); choose another", CLUSTER_NODES_RESERVED.join(", "))]
    ReservedName {
        /// The name.
        name: String,
    },
    /// The name has a dot, which some MQTT servers take for a level of the topic.
    #[error(
        "name {name:?} has a dot; it becomes an edge node id, in which some MQTT servers and Host Applications allow none: use - or _"
    )]
    Dot {
        /// The name.
        name: String,
    },
    /// No chart is named.
    #[error("chart is missing; name the object of a chart template")]
    NoChart,
    /// A template is missing or unusable.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A template cannot be expanded.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// Values override an identity.
    #[error(transparent)]
    Override(#[from] OverrideError),
    /// A template makes something that Kubernetes does not know.
    #[error("{template} makes no manifest: {field} is missing")]
    NotAManifest {
        /// Which template.
        template: String,
        /// What it lacks.
        field: &'static str,
    },
    /// Two charts of one deployment make the same object.
    #[error("two manifests are both {kind} {name}; name each chart template once, with different prefixes")]
    SameName {
        /// Kind of both.
        kind: String,
        /// Name of both.
        name: String,
    },
    /// Too large for a message.
    #[error("its manifests have {bytes} bytes together; at most {max} fit into one message")]
    TooLarge {
        /// Their size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
}

/// Renders one deployment.
///
/// # Errors
/// [`RenderError`] says what is to be changed.
pub fn deployment(input: Input<'_>, catalog: &Catalog, settings: &Settings) -> Result<Rendered, RenderError> {
    let name = &input.deployment.name;
    EdgeNodeId::new(name)?;
    if name.contains('.') {
        return Err(RenderError::Dot { name: name.clone() });
    }
    if CLUSTER_NODES_RESERVED.contains(&name.as_str()) {
        return Err(RenderError::ReservedName { name: name.clone() });
    }
    let mut manifests = Vec::new();
    for chart in input.deployment.chart_templates() {
        let template = catalog.chart(*chart)?;
        let source = input.deployment.source.or(template.source);
        if let Some(source) = source {
            let mut repository = git_repository(source, Some(input.uuid), catalog, &settings.git, input.pins)?;
            request_reconcile(&mut repository, input.deployment);
            push(&mut manifests, repository)?;
        }
        let values = values(input, *chart, template, settings)?;
        let repository = git_repository_name(source, Some(input.uuid));
        let release = Release { uuid: input.uuid, template, repository, values };
        let mut release = release.manifest(catalog)?;
        request_reconcile(&mut release, input.deployment);
        if let (true, Some(Value::Object(spec))) = (input.deployment.suspend, release.get_mut("spec")) {
            spec.insert("suspend".to_owned(), Value::from(true));
        }
        push(&mut manifests, release)?;
    }
    if manifests.is_empty() {
        return Err(RenderError::NoChart);
    }
    if let Some((json, etag)) = input.agent_config {
        push(&mut manifests, agent_config(input.uuid, json, etag))?;
    }
    let bytes = manifests.iter().map(|manifest| manifest.to_string().len() + 1).sum::<usize>();
    if bytes > settings.manifests_bytes_max {
        return Err(RenderError::TooLarge { bytes, max: settings.manifests_bytes_max });
    }
    let digest = Digest::of_manifests(&manifests);
    Ok(Rendered { name: name.clone(), manifests, digest })
}

/// The repositories that a deployment takes charts from, as far as its templates can be read.
pub fn sources<'a>(deployment: &'a EdgeDeployment, catalog: &'a Catalog) -> impl Iterator<Item = Uuid> + 'a {
    let charts = deployment.chart_templates().iter();
    charts.filter_map(|chart| deployment.source.or_else(|| catalog.chart(*chart).ok()?.source))
}

/// A HelmRelease to be made, of a deployment or of a cluster's own chart.
#[derive(Debug, Clone)]
pub struct Release<'a> {
    /// Object that it stands for.
    pub uuid: Uuid,
    /// Its chart.
    pub template: &'a HelmChartTemplate,
    /// Name of the GitRepository that holds the chart.
    pub repository: String,
    /// Its values.
    pub values: JsonObject,
}

impl Release<'_> {
    /// The manifest.
    ///
    /// # Errors
    /// [`RenderError`]
    pub fn manifest(self, catalog: &Catalog) -> Result<Value, RenderError> {
        let uuid = self.uuid.to_string();
        let prefix = self.template.prefix.as_deref().unwrap_or(&self.template.chart);
        let context = Context::default()
            .with("uuid", uuid.as_str())
            .with("name", k8sname(&[prefix, &uuid], HELM_RELEASE_CHARACTERS_MAX))
            .with("prefix", prefix)
            .with("chart", self.template.chart.as_str())
            .with("source", self.repository)
            .with("values", Value::Object(self.values));
        manifest("K8sTemplate of kind HelmRelease", catalog.helm_release()?, &context)
    }
}

/// Name of the GitRepository for charts of that source. `helm-charts` is part of the cluster's own repository. What a deployment brings is its own: an object has
/// one owner at the edge, and two deployments that shared it would lose it with the first that goes.
#[must_use]
pub fn git_repository_name(source: Option<Uuid>, deployment: Option<Uuid>) -> String {
    let text = |uuid: Uuid| uuid.to_string();
    let source = source.map_or_else(|| "charts".to_owned(), text);
    match deployment.filter(|_| source != "charts").map(text) {
        Some(deployment) => k8sname(&["helm", &source, &deployment], LABEL_CHARACTERS_MAX),
        None => k8sname(&["helm", &source], LABEL_CHARACTERS_MAX),
    }
}

/// The GitRepository for charts of that source, for a deployment or for the cluster itself.
///
/// # Errors
/// [`RenderError`]
pub fn git_repository(
    source: Uuid,
    deployment: Option<Uuid>,
    catalog: &Catalog,
    git: &GitAddress,
    pins: &BTreeMap<Uuid, GitRef>,
) -> Result<Value, RenderError> {
    catalog.repository(source)?;
    let context = Context::default()
        .with("uuid", deployment.unwrap_or(source).to_string())
        .with("name", git_repository_name(Some(source), deployment))
        .with("url", git.shared(source));
    let mut manifest = manifest("K8sTemplate of kind GitRepository", catalog.git_repository()?, &context)?;
    if let Some(pin) = pins.get(&source) {
        stay_at(&mut manifest, pin);
    }
    Ok(manifest)
}

/// Asks Flux to reconcile an object once for each time at which an operator asks for it.
fn request_reconcile(manifest: &mut Value, deployment: &EdgeDeployment) {
    let Some(requested_at) = &deployment.reconcile_requested_at else { return };
    let Some(Value::Object(metadata)) = manifest.get_mut("metadata") else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if let Value::Object(annotations) = annotations {
        annotations.insert(RECONCILE_REQUESTED_AT.to_owned(), Value::from(requested_at.as_str()));
    }
}

/// Makes a GitRepository stay at a place, wherever its template lets it be.
pub fn stay_at(repository: &mut Value, pin: &GitRef) {
    let (field, place) = match pin {
        GitRef::Commit(place) => ("commit", place),
        GitRef::Tag(place) => ("tag", place),
        GitRef::Semver(place) => ("semver", place),
        GitRef::Branch(place) => ("branch", place),
    };
    if let Some(Value::Object(spec)) = repository.get_mut("spec") {
        spec.insert("ref".to_owned(), json!({ field: place }));
    }
}

fn values(
    input: Input<'_>,
    chart: Uuid,
    template: &HelmChartTemplate,
    settings: &Settings,
) -> Result<JsonObject, RenderError> {
    let context = Context::default()
        .with("uuid", input.uuid.to_string())
        .with("name", input.deployment.name.as_str())
        .with_optional("hostname", input.deployment.hostname.as_deref())
        .with("k8sname", input.k8s_name);
    let mut base = settings.base_values.clone();
    base.insert("cluster".to_owned(), Value::from(input.cluster_name));
    layered(base, chart, template, &context, input.deployment.values.as_ref())
}

/// `base`, then the expanded values of the template, then `over`: the last wins, but none overrides an identity.
///
/// # Errors
/// [`RenderError`]
pub fn layered(
    base: JsonObject,
    chart: Uuid,
    template: &HelmChartTemplate,
    context: &Context,
    over: Option<&JsonObject>,
) -> Result<JsonObject, RenderError> {
    let name = format!("HelmChartTemplate of {chart}");
    let expanded = template::expand(&name, &Value::Object(template.values.clone()), context)?;
    let mut values = merge::combine(Value::Object(base), &expanded.unwrap_or_default());
    if let Some(over) = over {
        merge::check_identity(&template.values, over)?;
        values = merge::combine(values, &Value::Object(over.clone()));
    }
    match values {
        Value::Object(values) => Ok(values),
        _ => Err(RenderError::NotAManifest { template: name, field: "an object of values" }),
    }
}

fn agent_config(uuid: Uuid, json: &str, etag: Uuid) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": format!("edge-agent-config-{uuid}"),
            "labels": {UUID_LABEL: uuid.to_string()},
            "annotations": {CONFIG_REVISION: etag.to_string()},
        },
        "data": {"config.json": json},
    })
}

/// Expands a template of a kind and checks that the result is one object that Kubernetes could know.
///
/// # Errors
/// [`RenderError`]
pub fn manifest(name: &str, template: &JsonObject, context: &Context) -> Result<Value, RenderError> {
    let manifest = template::expand(name, &Value::Object(template.clone()), context)?.unwrap_or_default();
    for field in ["/apiVersion", "/kind", "/metadata/name"] {
        if manifest.pointer(field).and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(RenderError::NotAManifest { template: name.to_owned(), field: &field[1..] });
        }
    }
    Ok(manifest)
}

/// Adds a manifest; an equal one is there once (two charts of one repository), a different one of the same kind and name is an error.
fn push(manifests: &mut Vec<Value>, manifest: Value) -> Result<(), RenderError> {
    let identity = |manifest: &Value| {
        let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("/kind"), text("/metadata/name"))
    };
    if manifests.contains(&manifest) {
        return Ok(());
    }
    let (kind, name) = identity(&manifest);
    if manifests.iter().any(|other| identity(other) == (kind.clone(), name.clone())) {
        return Err(RenderError::SameName { kind, name });
    }
    manifests.push(manifest);
    Ok(())
}

#[cfg(test)]
mod tests;
