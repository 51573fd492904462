//! Metrics of the manager's own node: what it is, how many clusters it has in which state, where git is.

use std::collections::BTreeMap;

use sparkplug::typed::form;
use uuid::Uuid;

use crate::names;

/// Most rows of [`NodeMetrics::clusters_unknown`].
pub const UNKNOWN_MAX: usize = 100;

/// Columns of [`NodeMetrics::clusters_unknown`].
struct Unknown;

impl form::Columns for Unknown {
    const KEY: &'static str = "Cluster";
    const VALUE: &'static str = "UUID";
}

/// Most rows of [`NodeMetrics::repositories_not_served`].
pub const NOT_SERVED_MAX: usize = 100;

/// Columns of [`NodeMetrics::repositories_not_served`].
struct NotServed;

impl form::Columns for NotServed {
    const KEY: &'static str = "Repository";
    const VALUE: &'static str = "Reason";
}

/// The node metrics, without those that every Edge Node has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeMetrics {
    /// Version of the program.
    pub version: String,
    /// Clusters with a Device.
    pub clusters_total: u32,
    /// Clusters that are set up.
    pub clusters_ready: u32,
    /// Clusters whose configuration is refused.
    pub clusters_refused: u32,
    /// Clusters under tear-down.
    pub clusters_deleting: u32,
    /// Clusters that hold what they are sent.
    pub clusters_held: u32,
    /// Clusters whose edge sync is alive, and which ConfigDB does not have, by name; [`UNKNOWN_MAX`] at most.
    pub clusters_unknown: BTreeMap<String, Uuid>,
    /// Why the git server has not everything of a repository, by its path; [`NOT_SERVED_MAX`] at most.
    pub repositories_not_served: BTreeMap<String, String>,
    /// Deployments on clusters that have a Device.
    pub deployments_total: u32,
    /// Deployments that are refused centrally or by their edge.
    pub deployments_refused: u32,
    /// JSON object of the values that every deployment's chart gets, below those of its template; empty: a manager of an earlier version.
    pub deployments_values: String,
    /// Base URL of the git server; empty: not known yet.
    pub git_url: String,
    /// URL of a repository on the git server of the site, with `{name}` for its name, where clusters follow that.
    pub git_external_url: Option<String>,
    /// The git server is alive; None: nothing was received of it yet.
    pub git_alive: Option<bool>,
    /// Its version.
    pub git_version: Option<String>,
    /// Public key that credentials of users who push are sealed to, base64url without padding.
    pub git_key: String,
    /// Which script bootstraps clusters: [`names::SCRIPT_SHIPPED`] or [`names::SCRIPT_SITE`].
    pub bootstrap_script: String,
    /// Why the site's own script cannot be used.
    pub bootstrap_error: Option<String>,
}

// A reader takes what a manager of another version says and leaves the rest at its default.
sparkplug::typed_metrics! {
    NodeMetrics {
        /// Which service the node is.
        (|_| names::SERVICE.into()) => names::PROPERTIES_SERVICE,
        /// Version of the software.
        #[optional]
        version => names::PROPERTIES_VERSION,
        /// What stands behind the node is a simulator.
        (|_| false.into()) => names::PROPERTIES_SIMULATED,
        /// Clusters with a device.
        #[optional]
        clusters_total as form::Count => names::CLUSTERS_TOTAL,
        /// Clusters that are set up.
        #[optional]
        clusters_ready as form::Count => names::CLUSTERS_READY,
        /// Clusters whose configuration is refused.
        #[optional]
        clusters_refused as form::Count => names::CLUSTERS_REFUSED,
        /// Clusters under tear-down, those that wait for its end included.
        #[optional]
        clusters_deleting as form::Count => names::CLUSTERS_DELETING,
        /// Clusters that hold what they are sent, until an operator decides.
        #[optional]
        clusters_held as form::Count => names::CLUSTERS_HELD,
        /// Clusters whose edge sync is alive, and which ConfigDB does not have, as after its loss; absent from births: none is known.
        #[optional]
        #[omit_null]
        clusters_unknown as form::Table<Unknown> => names::CLUSTERS_UNKNOWN,
        /// Repositories of which the git server has not everything, and why; absent from births: it has all.
        #[optional]
        #[omit_null]
        repositories_not_served as form::Table<NotServed> => names::REPOSITORIES_NOT_SERVED,
        /// Deployments on clusters that have a device.
        #[optional]
        deployments_total as form::Count => names::DEPLOYMENTS_TOTAL,
        /// Deployments that are refused centrally or by their edge.
        #[optional]
        deployments_refused as form::Count => names::DEPLOYMENTS_REFUSED,
        /// JSON of the values that every deployment's chart gets, below those of its template.
        #[optional]
        deployments_values => names::DEPLOYMENTS_VALUES,
        /// Base URL of the git server.
        #[optional]
        git_url => names::GIT_URL,
        /// URL of a repository on the git server of the site, with {name} for its name; null: clusters follow ours.
        #[optional]
        git_external_url => names::GIT_EXTERNAL_URL,
        /// The git server is alive: clusters and users reach repositories; null: nothing was received of it yet.
        #[optional]
        git_alive => names::GIT_ALIVE,
        /// Version of the git server; null: nothing was received of it yet.
        #[optional]
        git_version => names::GIT_VERSION,
        /// Public key that the git server seals credentials of users who push to, base64url without padding.
        #[optional]
        git_key => names::GIT_KEY,
        /// Which script bootstraps clusters: shipped, or site for the one of the BootstrapScript entry.
        #[optional]
        bootstrap_script => names::BOOTSTRAP_SCRIPT,
        /// Why the BootstrapScript entry cannot be used; null: it can, or there is none.
        #[optional]
        bootstrap_error => names::BOOTSTRAP_REASON,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::{Metric, TypedMetrics};

    #[test]
    fn node_metrics_survive_the_wire() {
        let metrics = NodeMetrics {
            version: "1.2.3".to_owned(),
            clusters_total: 7,
            clusters_ready: 4,
            clusters_refused: 1,
            clusters_deleting: 2,
            clusters_held: 1,
            clusters_unknown: [("Paint_Shop".to_owned(), Uuid::from_u128(7))].into(),
            repositories_not_served: [("cluster/Paint_Shop".to_owned(), "it is too large".to_owned())].into(),
            deployments_total: 90,
            deployments_refused: 3,
            deployments_values: r#"{"organisation":"ACME"}"#.to_owned(),
            git_url: "http://127.0.0.1:4000".to_owned(),
            git_external_url: Some("https://gitea.example/f/{name}.git".to_owned()),
            git_alive: Some(true),
            git_version: Some("1.2.4".to_owned()),
            git_key: "KEY".to_owned(),
            bootstrap_script: names::SCRIPT_SITE.to_owned(),
            bootstrap_error: Some("wrapper is empty".to_owned()),
        };
        let mut read = NodeMetrics::from_metrics(&metrics.to_metrics()).unwrap();
        assert_eq!(read, metrics);
        let error = read
            .merge(&[Metric::new(names::CLUSTERS_READY, 5_u32), Metric::new(names::CLUSTERS_TOTAL, "many")])
            .unwrap_err();
        assert_eq!((error.metric.as_str(), &read), (names::CLUSTERS_TOTAL, &metrics));
        read.merge(&[Metric::new(names::CLUSTERS_READY, 5_u32)]).unwrap();
        assert_eq!(read, NodeMetrics { clusters_ready: 5, ..metrics });
    }
}
