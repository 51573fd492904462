//! What the console says of itself as Edge Node `ORG-Central/Console`, so that the fleet sees who looks at it.

use sparkplug::typed::form;

/// Value of `Properties/Service`.
const SERVICE: &str = "console";

/// The metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ConsoleNode {
    /// Version of the program.
    pub version: String,
    /// Clients that follow tables.
    pub viewers: u32,
    /// Everything that the tables are made of has arrived.
    pub complete: bool,
}

sparkplug::typed_metrics! {
    ConsoleNode {
        /// Which service the node is.
        (|_| SERVICE.into()) => "Properties/Service",
        /// Version of the software.
        version => "Properties/Version",
        /// Clients that follow tables.
        viewers as form::Count => "Sessions/Viewers",
        /// Everything that the tables are made of has arrived.
        complete => "Replica/Complete",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sparkplug::{TypedMetrics as _, Value};

    #[test]
    fn the_page_of_metrics_has_these_metrics_and_no_other() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md")).unwrap();
        let section = page.split("\n## ").find(|section| section.starts_with("`ORG-Central/Console`")).unwrap();
        let written: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
        let row = |metric: &sparkplug::Metric| {
            let meaning = metric.properties.get("documentation").and_then(Value::as_str).unwrap_or_default();
            format!("| `{}` | {:?} |  | {meaning} |", metric.name, metric.datatype)
        };
        assert_eq!(ConsoleNode::default().to_metrics().iter().map(row).collect::<Vec<_>>(), written);
    }

    #[test]
    fn alerts_are_read_under_the_names_that_services_publish_them_under() {
        assert_eq!(fleet_view::DISK_ALERT, service_runtime::disk::ALERT);
    }
}
