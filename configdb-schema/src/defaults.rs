//! What a fresh store starts with: the well-known objects, the schemas of the applications, and templates with which clusters and deployments can be
//! rendered at once. All of it is the site's to edit.

use uuid::Uuid;

use crate::application::{self, APPLICATIONS, Application};
use crate::known::{self, KnownObject, chart, class, repository};

/// An entry of a fresh store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultEntry {
    /// Whose.
    pub object: Uuid,
    /// Under which application.
    pub application: &'static Application,
    /// The JSON, as text.
    pub json: &'static str,
}

const fn individual(uuid: Uuid, name: &'static str, class: Uuid) -> KnownObject {
    KnownObject { uuid, name, class, rank: 0, subclass_of: &[] }
}

static OBJECTS: &[KnownObject] = &[
    individual(chart::CLUSTER, "Edge cluster services", class::SYSTEM_HELM_CHART),
    individual(chart::EDGE_AGENT, "Edge agent", class::SYSTEM_HELM_CHART),
    individual(repository::HELM_CHARTS, "Shared Helm charts", class::REPO_GROUP_SHARED),
];

/// The objects of a fresh store, each after the classes that it needs.
pub fn objects() -> impl Iterator<Item = &'static KnownObject> {
    known::objects().chain(OBJECTS)
}

/// The entries of a fresh store, without the general information of each object, which is its name.
pub fn entries() -> impl Iterator<Item = DefaultEntry> {
    let schemas = APPLICATIONS.iter().map(|application| DefaultEntry {
        object: application.uuid,
        application: &application::CONFIG_SCHEMA,
        json: application.schema,
    });
    schemas.chain(TEMPLATES.iter().map(|(object, application, json)| DefaultEntry {
        object: *object,
        application,
        json,
    }))
}

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("../defaults/", $name, ".json"))
    };
}

static TEMPLATES: &[(Uuid, &Application, &str)] = &[
    (chart::CLUSTER, &application::HELM_CHART_TEMPLATE, file!("chart-cluster")),
    (chart::EDGE_AGENT, &application::HELM_CHART_TEMPLATE, file!("chart-edge-agent")),
    (class::KIND_GIT_REPOSITORY, &application::K8S_TEMPLATE, file!("k8s-git-repository")),
    (class::KIND_HELM_RELEASE, &application::K8S_TEMPLATE, file!("k8s-helm-release")),
    (known::application::FLUX_TEMPLATE, &application::FLUX_TEMPLATE, file!("flux-template")),
    (repository::HELM_CHARTS, &application::GIT_CONFIG, file!("git-shared-helm")),
    (known::service::CLUSTER_MANAGER, &application::SERVICE_CONFIG, file!("service-config-cluster-manager")),
];
