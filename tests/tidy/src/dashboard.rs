//! Every number that the dashboard of `examples/grafana` asks Prometheus for is one that a service gives.

use std::collections::BTreeSet;

use crate::Finding;

/// How names of our services begin. Functions of PromQL do not.
const PREFIXES: [&str; 6] = ["sparkfleet_", "configdb_", "edge_", "join_", "console_", "krb_"];

/// The names in the queries (`"expr"`) of a dashboard.
#[must_use]
pub fn names(dashboard: &str) -> BTreeSet<&str> {
    let queries = dashboard.lines().filter_map(|line| line.trim_start().strip_prefix("\"expr\": "));
    let words = queries.flat_map(|query| query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    words.filter(|word| PREFIXES.iter().any(|prefix| word.starts_with(prefix))).collect()
}

/// Checks that each name of the dashboard is a text of the code.
#[must_use]
pub fn check(place: &str, dashboard: &str, code: &[&str]) -> Vec<Finding> {
    let is_given = |name: &&str| code.iter().any(|text| text.contains(&format!("\"{name}\"")));
    let unknown = names(dashboard).into_iter().filter(|name| !is_given(name));
    unknown.map(|name| Finding::of(place, format!("no service gives Prometheus {name}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_service_gives_is_found() {
        let dashboard = "{\n \"expr\": \"sum by (cluster) (edge_nodes - edge_gone) + max(join_hosts)\",\n \"title\": \"edge_title\"\n}";
        assert_eq!(names(dashboard).into_iter().collect::<Vec<_>>(), ["edge_gone", "edge_nodes", "join_hosts"]);
        let code = ["gauge!(\"edge_nodes\")", "gauge!(\"join_hosts\")"];
        let found = check("d.json", dashboard, &code);
        assert_eq!(found, [Finding::of("d.json", "no service gives Prometheus edge_gone")]);
    }
}
