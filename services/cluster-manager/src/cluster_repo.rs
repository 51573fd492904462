//! One cluster -> what is in its git repository.
//!
//! ```text
//! README.md, by-hand/.gitkeep   first commit only; the operator's from then on, like everything that is not listed here
//! edo/cluster/<file>            each file of the Flux template; replaced as a whole
//! edo/secrets/<ns>/<name>.yaml  sealed secrets, brought in key by key ([`crate::secrets`])
//! ```
//!
//! YAML is written so that a reader of YAML 1.1 (Flux, kubectl) understands the same as we do. This module must not know git.

use std::collections::BTreeMap;

use configdb_schema::document::{EdgeCluster, GitRef, JsonObject};
use configdb_schema::known;
use manifests::catalog::{Catalog, CatalogError};
use manifests::git_address::{GitAddress, HELM_PATH};
use manifests::render::{self, Release, RenderError};
use manifests::template::{self, Context, TemplateError};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::bootstrap;
use crate::setup::Account;
use git_hosting::repositories::{RepositoryFiles, cluster_path};

/// Directory in the repository that belongs to the cluster manager.
pub const DIRECTORY: &str = "edo/cluster";

/// The file that makes a cluster follow its repository.
pub const SELF_LINK: &str = "self-link.yaml";

/// The file with the namespace and with the account by which Flux applies the repository; what follows the repository needs them.
const RIGHTS: &str = "rights.yaml";

/// Account by which Flux applies the repository, and with it the cluster's own services. It may do everything: what an operator pushes can be anything.
pub const FLUX_ACCOUNT: &str = "sparkfleet-flux";

/// Label of what Flux leaves when it is in the repository no more: the namespace, because everything is in it, and the rights by which Flux takes the rest away.
const STAYS: &str = "kustomize.toolkit.fluxcd.io/prune";

/// The file for the repository of the cluster's own chart, if that is not the shared one.
const CHART_SOURCE: &str = "edge-cluster-source.yaml";

/// The file with the keys of the cluster's accounts, if the site has a KDC, and the definitions that they need: Flux applies definitions first.
const KERBEROS: &str = "kerberos.yaml";

/// Definitions of KerberosKey and LocalSecret, as the chart has them.
const KERBEROS_DEFINITIONS: [&str; 2] = [
    include_str!("../../../helm/edge-cluster/crds/kerberos-keys.yaml"),
    include_str!("../../../helm/edge-cluster/crds/localsecrets.yaml"),
];

const README: &str = "# Configuration of an edge cluster

Flux on the cluster applies every manifest in this repository.

- `edo/` is written by the cluster manager. What you change below it is undone.
- `by-hand/` is yours. Put your own manifests there, or anywhere else outside `edo/`.
";

/// What is the same for every cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Prefix of the Sparkplug groups.
    pub organisation: String,
    /// Where clusters reach their repositories.
    pub git: GitAddress,
    /// MQTT servers for the cluster's own services.
    pub mqtt_servers: Vec<String>,
    /// Kubernetes Secret with the credentials for them.
    pub mqtt_secret: Option<String>,
    /// What the bootstrap script leaves for the way back after a certificate has expired. None: it leaves nothing.
    pub quarantine: Option<Quarantine>,
    /// Realm of the site's KDC.
    pub realm: Option<String>,
}

/// How a cluster gets into the quarantine group with the Secret that its bootstrap script left, `sparkfleet-enrolment`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// It has a client certificate, `tls.crt` and `tls.key`.
    pub certificate: bool,
    /// User whose `password` it has.
    pub username: Option<String>,
}

/// Why there can be no repository content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterRepoError {
    /// A template is missing or unusable.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The chart of the cluster's services cannot be rendered.
    #[error(transparent)]
    Release(#[from] RenderError),
    /// The Flux template cannot be expanded.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// An item of the Flux template is not a manifest.
    #[error("Flux template, {file}, document {number}: {rule}")]
    Document {
        /// Which file.
        file: String,
        /// Counted from 1.
        number: usize,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// YAML cannot express it.
    #[error("Flux template, {file}: cannot be written as YAML: {reason}")]
    Yaml {
        /// Which file.
        file: String,
        /// Why.
        reason: String,
    },
}

/// What a cluster's repository shall hold, but for its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRepo {
    /// The files.
    pub files: RepositoryFiles,
    /// Content of `RIGHTS` and [`SELF_LINK`], for the bootstrap.
    pub self_link: String,
}

/// URL of a cluster's repository.
#[must_use]
pub fn url(settings: &Settings, cluster_name: &str) -> String {
    settings.git.written(&cluster_path(cluster_name))
}

/// Chart template of the cluster's own services.
#[must_use]
pub fn chart(spec: &EdgeCluster, catalog: &Catalog) -> Uuid {
    spec.chart.unwrap_or_else(|| catalog.default_chart())
}

/// Renders the repository of a cluster, but for its secrets.
///
/// # Errors
/// [`ClusterRepoError`] says what is to be changed.
pub fn render(
    cluster: Uuid,
    spec: &EdgeCluster,
    catalog: &Catalog,
    settings: &Settings,
    pins: &BTreeMap<Uuid, GitRef>,
) -> Result<ClusterRepo, ClusterRepoError> {
    let shared = settings.git.written(HELM_PATH);
    let shared_pin = pins.get(&known::repository::HELM_CHARTS).map(|pin| (shared.as_str(), pin));
    let context = Context::default()
        .with("helm", helm_release(cluster, spec, catalog, settings)?)
        .with("namespace", spec.namespace.as_str())
        .with("url.self", url(settings, &spec.name))
        .with("url.helm", shared.as_str())
        .with("name", spec.name.as_str())
        .with("uuid", cluster.to_string());
    let rights = yaml(RIGHTS, &rights(cluster, spec))?;
    let mut owned = BTreeMap::from([(RIGHTS.to_owned(), rights.clone().into_bytes())]);
    let mut self_link = String::new();
    for (file, items) in catalog.flux()?.all_files() {
        let items: Vec<Value> = items.iter().map(configdb_schema::document::FluxItem::to_value).collect();
        let yaml = documents(file, &items, &context, shared_pin)?;
        if file == SELF_LINK {
            self_link = format!("{rights}---\n{yaml}");
        }
        owned.insert(file.to_owned(), yaml.into_bytes());
    }
    if let Some(source) = chart_source(spec, catalog, settings, pins)? {
        owned.insert(CHART_SOURCE.to_owned(), yaml(CHART_SOURCE, &[source])?.into_bytes());
    }
    if let Some(realm) = &settings.realm {
        let keys = yaml(KERBEROS, &kerberos_keys(spec, realm))?;
        let [first, second] = KERBEROS_DEFINITIONS;
        owned.insert(KERBEROS.to_owned(), format!("{first}---\n{second}---\n{keys}").into_bytes());
    }
    let initial = [("README.md", README), ("by-hand/.gitkeep", "")];
    let files = RepositoryFiles {
        initial: initial.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into(),
        directory: Some(DIRECTORY.to_owned()),
        owned,
        message: "Cluster flux update".to_owned(),
    };
    Ok(ClusterRepo { files, self_link })
}

/// The HelmRelease of the chart with the cluster's own services.
fn helm_release(
    cluster: Uuid,
    spec: &EdgeCluster,
    catalog: &Catalog,
    settings: &Settings,
) -> Result<Value, ClusterRepoError> {
    let chart = chart(spec, catalog);
    let template = catalog.chart(chart)?;
    let context = Context::default()
        .with("uuid", cluster.to_string())
        .with("name", spec.name.as_str())
        .with("namespace", spec.namespace.as_str())
        .with("organisation", settings.organisation.as_str())
        .with("mqtt.servers", settings.mqtt_servers.clone());
    let values = render::layered(base_values(settings), chart, template, &context, spec.values.as_ref())?;
    let repository = render::git_repository_name(template.source, None);
    let release = Release { uuid: cluster, template, repository, values };
    Ok(by_flux_account(in_namespace(release.manifest(catalog)?, spec)))
}

/// The namespace of the cluster, and the account by which Flux applies its repository.
fn rights(cluster: Uuid, spec: &EdgeCluster) -> [Value; 3] {
    let namespace = spec.namespace.as_str();
    let stays = || json!({ STAYS: "disabled" });
    let mut labels = stays();
    labels["pod-security.kubernetes.io/enforce"] = Value::from(spec.pod_security.name());
    let annotations = json!({ bootstrap::CLUSTER_ANNOTATION: cluster });
    let bound = format!("{FLUX_ACCOUNT}-{namespace}");
    [
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": namespace, "labels": labels, "annotations": annotations },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": FLUX_ACCOUNT, "namespace": namespace, "labels": stays() },
            "automountServiceAccountToken": false,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": bound, "labels": stays() },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": FLUX_ACCOUNT, "namespace": namespace }],
        }),
    ]
}

/// Flux that is installed for several tenants gives no rights to what names no account.
fn by_flux_account(mut manifest: Value) -> Value {
    if let Some(Value::Object(spec)) = manifest.get_mut("spec") {
        spec.entry("serviceAccountName").or_insert_with(|| Value::from(FLUX_ACCOUNT));
    }
    manifest
}

/// The GitRepository of a chart that is not in the shared repository.
fn chart_source(
    spec: &EdgeCluster,
    catalog: &Catalog,
    settings: &Settings,
    pins: &BTreeMap<Uuid, GitRef>,
) -> Result<Option<Value>, ClusterRepoError> {
    let Some(source) = catalog.chart(chart(spec, catalog))?.source else { return Ok(None) };
    let manifest = render::git_repository(source, None, catalog, &settings.git, pins)?;
    Ok(Some(in_namespace(manifest, spec)))
}

/// The keys of the cluster's accounts. Flux' password is also that of its repository, so the repository's writer makes it; the KDC follows.
fn kerberos_keys(spec: &EdgeCluster, realm: &str) -> [Value; 2] {
    let keys = [
        (Account::Flux, "op1flux", "PresetPassword", "flux-secrets/password"),
        (Account::Krbkeys, "op1krbkeys", "Random", "krb-keys-keytabs/client"),
    ];
    keys.map(|(account, name, key_type, secret)| {
        json!({
            "apiVersion": "factoryplus.app.amrc.co.uk/v1",
            "kind": "KerberosKey",
            "metadata": { "name": name, "namespace": spec.namespace },
            "spec": { "type": key_type, "principal": account.principal(&spec.name, realm), "secret": secret },
        })
    })
}

/// A Kustomization applies what is in the repository, and needs the namespace in it; what Sync applies gets its namespace there.
fn in_namespace(mut manifest: Value, spec: &EdgeCluster) -> Value {
    if let Some(Value::Object(metadata)) = manifest.get_mut("metadata") {
        metadata.entry("namespace").or_insert_with(|| Value::from(spec.namespace.as_str()));
    }
    manifest
}

fn base_values(settings: &Settings) -> JsonObject {
    let mut mqtt = Map::new();
    if !settings.mqtt_servers.is_empty() {
        mqtt.insert("servers".to_owned(), Value::from(settings.mqtt_servers.clone()));
    }
    if let Some(secret) = &settings.mqtt_secret {
        mqtt.insert("secretName".to_owned(), Value::from(secret.as_str()));
    }
    let mut base = Map::new();
    if let Some(Quarantine { certificate, username }) = &settings.quarantine {
        let mut identity = json!({ "enrolmentSecret": bootstrap::ENROLMENT, "certificate": certificate });
        if let Some(username) = username {
            identity["username"] = Value::from(username.as_str());
        }
        base.insert("identity".to_owned(), identity);
    }
    base.insert("organisation".to_owned(), Value::from(settings.organisation.as_str()));
    if !mqtt.is_empty() {
        base.insert("mqtt".to_owned(), Value::Object(mqtt));
    }
    base
}

/// `pinned`: the repository with that URL stays at a place.
fn documents(
    file: &str,
    items: &[Value],
    context: &Context,
    pinned: Option<(&str, &GitRef)>,
) -> Result<String, ClusterRepoError> {
    let mut documents = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let at = |rule| ClusterRepoError::Document { file: file.to_owned(), number: index + 1, rule };
        let name = format!("FluxTemplate {file}, document {}", index + 1);
        let mut document = template::expand(&name, item, context)?.ok_or_else(|| at("has no value"))?;
        for field in ["/apiVersion", "/kind", "/metadata/name"] {
            if document.pointer(field).and_then(Value::as_str).is_none_or(str::is_empty) {
                return Err(at("must be a manifest with apiVersion, kind and metadata.name"));
            }
        }
        if let Some((url, pin)) = pinned
            && document.get("kind").and_then(Value::as_str) == Some("GitRepository")
            && document.pointer("/spec/url").and_then(Value::as_str) == Some(url)
        {
            render::stay_at(&mut document, pin);
        }
        let is_followed = document.get("kind").and_then(Value::as_str) == Some("Kustomization")
            && document["apiVersion"]
                .as_str()
                .is_some_and(|version| version.starts_with("kustomize.toolkit.fluxcd.io/"));
        documents.push(if is_followed { by_flux_account(document) } else { document });
    }
    yaml(file, &documents)
}

fn yaml(file: &str, documents: &[Value]) -> Result<String, ClusterRepoError> {
    serde_saphyr::to_string_multiple(documents)
        .map_err(|error| ClusterRepoError::Yaml { file: file.to_owned(), reason: error.to_string() })
}

#[cfg(test)]
mod tests;
