//! The templates and repositories that clusters and deployments are rendered from, parsed once when they change.
//!
//! An entry that cannot be read is kept as the reason why, so that what needs it is refused with that reason. This module must not know who uses what.

use std::collections::BTreeMap;

use configdb_schema::Document;
use configdb_schema::document::{FluxTemplate, GitConfig, HelmChartTemplate, JsonObject, K8sTemplate};
use configdb_schema::known;
use serde_json::Value;
use uuid::Uuid;

/// A template or what is wrong with it.
type Parsed<T> = Result<T, String>;

/// All templates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    charts: BTreeMap<Uuid, Parsed<HelmChartTemplate>>,
    kinds: BTreeMap<Uuid, Parsed<K8sTemplate>>,
    repositories: BTreeMap<Uuid, Parsed<GitConfig>>,
    flux: Option<Parsed<FluxTemplate>>,
    default_chart: Option<Uuid>,
}

/// What a change of the catalog may affect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Affected {
    /// Whatever is rendered from that chart template.
    Chart(Uuid),
    /// Whatever takes its chart from that repository.
    Repository(Uuid),
    /// Every repository of a cluster.
    Repositories,
    /// Every repository of a cluster, and every deployment.
    Everything,
}

/// A template cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// There is none.
    #[error("{what} {object} has no {slug} entry; write it, or choose another")]
    Missing {
        /// What kind of thing it is.
        what: &'static str,
        /// The object.
        object: Uuid,
        /// The application.
        slug: &'static str,
    },
    /// It is not what it should be.
    #[error("{what} {object}: its {slug} entry cannot be used: {reason}")]
    Unusable {
        /// What kind of thing it is.
        what: &'static str,
        /// The object.
        object: Uuid,
        /// The application.
        slug: &'static str,
        /// Why.
        reason: String,
    },
}

impl Catalog {
    /// Takes the entry of `object` under the application `slug` over; None: there is none. Says what may be affected; None: nothing is.
    pub fn set(&mut self, object: Uuid, slug: &str, json: Option<&str>) -> Option<Affected> {
        if slug == HelmChartTemplate::slug() {
            return set(&mut self.charts, object, json).then_some(Affected::Chart(object));
        }
        if slug == K8sTemplate::slug() {
            let ours = KIND_OBJECTS.contains(&object);
            return (ours && set(&mut self.kinds, object, json)).then_some(Affected::Everything);
        }
        if slug == GitConfig::slug() {
            return set(&mut self.repositories, object, json).then_some(Affected::Repository(object));
        }
        if slug == FluxTemplate::slug() && object == known::application::FLUX_TEMPLATE {
            let flux = json.map(parse);
            let changed = self.flux != flux;
            self.flux = flux;
            return changed.then_some(Affected::Repositories);
        }
        if slug == "ServiceConfig" && object == known::service::CLUSTER_MANAGER {
            let chart = json.and_then(|json| serde_json::from_str::<Value>(json).ok());
            let chart = chart.and_then(|config| config.pointer("/helm/cluster")?.as_str()?.parse().ok());
            let changed = self.default_chart != chart;
            self.default_chart = chart;
            return changed.then_some(Affected::Repositories);
        }
        None
    }

    /// The chart template of that object.
    ///
    /// # Errors
    /// [`CatalogError`] says what is wrong with it.
    pub fn chart(&self, object: Uuid) -> Result<&HelmChartTemplate, CatalogError> {
        get(&self.charts, "chart template", object)
    }

    /// Chart template of clusters that name none: of the manager's `ServiceConfig`, or the well-known one.
    #[must_use]
    pub fn default_chart(&self) -> Uuid {
        self.default_chart.unwrap_or(known::chart::CLUSTER)
    }

    /// Configuration of a git repository.
    ///
    /// # Errors
    /// [`CatalogError`] says what is wrong with it.
    pub fn repository(&self, object: Uuid) -> Result<&GitConfig, CatalogError> {
        get(&self.repositories, "git repository", object)
    }

    /// The template of cluster repositories.
    ///
    /// # Errors
    /// [`CatalogError`] says what is wrong with it.
    pub fn flux(&self) -> Result<&FluxTemplate, CatalogError> {
        let object = known::application::FLUX_TEMPLATE;
        let (what, slug) = ("Flux template", FluxTemplate::slug());
        match &self.flux {
            Some(Ok(template)) => Ok(template),
            Some(Err(reason)) => Err(CatalogError::Unusable { what, object, slug, reason: reason.clone() }),
            None => Err(CatalogError::Missing { what, object, slug }),
        }
    }

    /// The template of a HelmRelease: that of its kind, else the one of old stores.
    ///
    /// # Errors
    /// [`CatalogError`] says what is wrong with it.
    pub fn helm_release(&self) -> Result<&JsonObject, CatalogError> {
        let object = match self.kinds.contains_key(&known::class::KIND_HELM_RELEASE) {
            false if self.kinds.contains_key(&OLD_TEMPLATE) => OLD_TEMPLATE,
            _ => known::class::KIND_HELM_RELEASE,
        };
        get(&self.kinds, "resource kind HelmRelease", object).map(|template| &template.template)
    }

    /// The template of a GitRepository.
    ///
    /// # Errors
    /// [`CatalogError`] says what is wrong with it.
    pub fn git_repository(&self) -> Result<&JsonObject, CatalogError> {
        let object = known::class::KIND_GIT_REPOSITORY;
        get(&self.kinds, "resource kind GitRepository", object).map(|template| &template.template)
    }
}

/// Object of the only K8s template that stores had before there was one for each kind: the application itself. It describes a HelmRelease.
const OLD_TEMPLATE: Uuid = known::application::K8S_TEMPLATE;

/// Objects whose `K8sTemplate` entry is used: those of the kinds, and that of old stores.
pub const KIND_OBJECTS: [Uuid; 3] = [known::class::KIND_HELM_RELEASE, known::class::KIND_GIT_REPOSITORY, OLD_TEMPLATE];

fn parse<T: Document>(json: &str) -> Parsed<T> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

fn set<T: Document + PartialEq>(map: &mut BTreeMap<Uuid, Parsed<T>>, object: Uuid, json: Option<&str>) -> bool {
    match json.map(parse) {
        Some(parsed) => {
            let changed = map.get(&object) != Some(&parsed);
            map.insert(object, parsed);
            changed
        }
        None => map.remove(&object).is_some(),
    }
}

fn get<'a, T: Document>(
    map: &'a BTreeMap<Uuid, Parsed<T>>,
    what: &'static str,
    object: Uuid,
) -> Result<&'a T, CatalogError> {
    match map.get(&object) {
        Some(Ok(template)) => Ok(template),
        Some(Err(reason)) => Err(CatalogError::Unusable { what, object, slug: T::slug(), reason: reason.clone() }),
        None => Err(CatalogError::Missing { what, object, slug: T::slug() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHART: Uuid = Uuid::from_u128(9);

    #[test]
    fn a_chart_template_is_found_changed_and_gone() {
        let mut catalog = Catalog::default();
        let json = r#"{"chart": "edge-agent", "values": {}}"#;
        assert_eq!(catalog.set(CHART, "HelmChartTemplate", Some(json)), Some(Affected::Chart(CHART)));
        assert_eq!(catalog.set(CHART, "HelmChartTemplate", Some(json)), None);
        assert_eq!(catalog.chart(CHART).unwrap().chart, "edge-agent");
        assert_eq!(catalog.set(CHART, "HelmChartTemplate", None), Some(Affected::Chart(CHART)));
        let error = catalog.chart(CHART).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("chart template {CHART} has no HelmChartTemplate entry; write it, or choose another")
        );
        assert_eq!(catalog.set(CHART, "HelmChartTemplate", None), None);
    }

    #[test]
    fn an_unreadable_template_says_why() {
        let mut catalog = Catalog::default();
        catalog.set(CHART, "HelmChartTemplate", Some(r#"{"chart": 5, "values": {}}"#));
        assert!(catalog.chart(CHART).unwrap_err().to_string().contains("invalid type: integer `5`"));
    }

    #[test]
    fn the_template_of_a_kind_wins_over_the_one_of_old_stores() {
        let mut catalog = Catalog::default();
        let template =
            |kind: &str| format!(r#"{{"template": {{"apiVersion": "v1", "kind": "{kind}"}}, "resources": []}}"#);
        assert!(
            matches!(catalog.helm_release(), Err(CatalogError::Missing { object, .. }) if object == known::class::KIND_HELM_RELEASE)
        );
        let old = template("Old");
        assert_eq!(catalog.set(OLD_TEMPLATE, "K8sTemplate", Some(&old)), Some(Affected::Everything));
        assert_eq!(catalog.helm_release().unwrap()["kind"], "Old");
        catalog.set(known::class::KIND_HELM_RELEASE, "K8sTemplate", Some(&template("HelmRelease")));
        assert_eq!(catalog.helm_release().unwrap()["kind"], "HelmRelease");
        assert!(catalog.git_repository().is_err());
        assert_eq!(catalog.set(CHART, "K8sTemplate", Some(&old)), None);
    }

    #[test]
    fn the_default_chart_comes_from_the_service_config() {
        let mut catalog = Catalog::default();
        assert_eq!(catalog.default_chart(), known::chart::CLUSTER);
        let json = format!(r#"{{"helm": {{"cluster": "{CHART}"}}}}"#);
        let touched = catalog.set(known::service::CLUSTER_MANAGER, "ServiceConfig", Some(&json));
        assert_eq!((touched, catalog.default_chart()), (Some(Affected::Repositories), CHART));
        assert_eq!(catalog.set(CHART, "ServiceConfig", Some("{}")), None);
    }
}
