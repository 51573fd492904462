//! Metrics of the manager's own node: what it is, how many clusters it has in which state, where git is.

use sparkplug::Metric;

use crate::names;

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
    /// Deployments on clusters that have a Device.
    pub deployments_total: u32,
    /// Deployments that are refused centrally or by their edge.
    pub deployments_refused: u32,
    /// Base URL of the git server.
    pub git_url: String,
}

impl NodeMetrics {
    /// As metrics of the birth.
    #[must_use]
    pub fn to_metrics(&self) -> Vec<Metric> {
        vec![
            Metric::new(names::PROPERTIES_SERVICE, names::SERVICE),
            Metric::new(names::PROPERTIES_VERSION, self.version.as_str()),
            Metric::new(names::PROPERTIES_SIMULATED, false),
            Metric::new(names::CLUSTERS_TOTAL, self.clusters_total),
            Metric::new(names::CLUSTERS_READY, self.clusters_ready),
            Metric::new(names::CLUSTERS_REFUSED, self.clusters_refused),
            Metric::new(names::CLUSTERS_DELETING, self.clusters_deleting),
            Metric::new(names::DEPLOYMENTS_TOTAL, self.deployments_total),
            Metric::new(names::DEPLOYMENTS_REFUSED, self.deployments_refused),
            Metric::new(names::GIT_URL, self.git_url.as_str()),
        ]
    }

    /// Takes over what `metrics` (of a birth or of data) say; what they do not mention stays, what has another type is passed over.
    pub fn update(&mut self, metrics: &[Metric]) {
        for metric in metrics {
            let number = metric.as_u64().and_then(|number| u32::try_from(number).ok());
            let text = metric.as_str().map(str::to_owned);
            match &*metric.name {
                names::PROPERTIES_VERSION => set(&mut self.version, text),
                names::CLUSTERS_TOTAL => set(&mut self.clusters_total, number),
                names::CLUSTERS_READY => set(&mut self.clusters_ready, number),
                names::CLUSTERS_REFUSED => set(&mut self.clusters_refused, number),
                names::CLUSTERS_DELETING => set(&mut self.clusters_deleting, number),
                names::DEPLOYMENTS_TOTAL => set(&mut self.deployments_total, number),
                names::DEPLOYMENTS_REFUSED => set(&mut self.deployments_refused, number),
                names::GIT_URL => set(&mut self.git_url, text),
                _ => {}
            }
        }
    }
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_metrics_survive_the_wire() {
        let metrics = NodeMetrics {
            version: "1.2.3".to_owned(),
            clusters_total: 7,
            clusters_ready: 4,
            clusters_refused: 1,
            clusters_deleting: 2,
            deployments_total: 90,
            deployments_refused: 3,
            git_url: "http://127.0.0.1:4000".to_owned(),
        };
        let mut read = NodeMetrics::default();
        read.update(&metrics.to_metrics());
        assert_eq!(read, metrics);
        read.update(&[Metric::new(names::CLUSTERS_READY, 5_u32), Metric::new(names::CLUSTERS_TOTAL, "many")]);
        assert_eq!(read, NodeMetrics { clusters_ready: 5, ..metrics });
    }
}
