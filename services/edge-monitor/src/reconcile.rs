//! Pure: resources and what is watched in, what to watch and what to stop watching out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sparkplug::GroupId;

use crate::spec::{NodeResource, NodeSpec, Subject};

/// What is to be watched, by name of the resource, and what is wrong with the resources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Desired {
    /// Valid resources, each subject once.
    pub nodes: BTreeMap<String, NodeSpec>,
    /// Problems of each resource that has any.
    pub problems: BTreeMap<String, Vec<String>>,
}

/// How to get from what is watched to what is desired.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Plan {
    pub remove: Vec<String>,
    /// Wanted and not watched.
    pub add: Vec<(String, NodeSpec)>,
    /// Watched otherwise than wanted.
    pub change: Vec<(String, NodeSpec)>,
}

/// Validates all resources. Where two name the same subject, the one that is watched already keeps it, else the first by name.
pub(crate) fn desired(
    resources: &BTreeMap<String, NodeResource>,
    watched: &BTreeSet<String>,
    group: &GroupId,
    interval_default: Duration,
) -> Desired {
    let mut desired = Desired::default();
    let mut owners: BTreeMap<Subject, &String> = BTreeMap::new();
    let (first, then): (Vec<_>, Vec<_>) = resources.iter().partition(|(name, _)| watched.contains(*name));
    for (name, resource) in first.into_iter().chain(then) {
        let (spec, problems) = resource.validate(group, interval_default);
        let mut problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        if let Some(spec) = spec {
            match owners.get(&spec.subject) {
                Some(owner) => {
                    problems.push(format!("names the same node as SparkplugNode {owner}; delete one of them"))
                }
                None => {
                    owners.insert(spec.subject.clone(), name);
                    desired.nodes.insert(name.clone(), spec);
                }
            }
        }
        if !problems.is_empty() {
            desired.problems.insert(name.clone(), problems);
        }
    }
    desired
}

/// Compares. Empty if everything is as desired.
pub(crate) fn plan(watched: &BTreeMap<String, NodeSpec>, desired: &BTreeMap<String, NodeSpec>) -> Plan {
    let mut plan = Plan::default();
    for name in watched.keys().filter(|name| !desired.contains_key(*name)) {
        plan.remove.push(name.clone());
    }
    for (name, spec) in desired {
        match watched.get(name) {
            None => plan.add.push((name.clone(), spec.clone())),
            Some(present) if present != spec => plan.change.push((name.clone(), spec.clone())),
            Some(_) => {}
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "5b2e0d3c-7c3b-4c51-9a86-0f6a1c1f9a10";

    fn resources(names: &[&str]) -> BTreeMap<String, NodeResource> {
        let resource = NodeResource { uuid: Some(UUID.to_owned()), ..NodeResource::default() };
        names.iter().map(|name| ((*name).to_owned(), resource.clone())).collect()
    }

    fn desired_of(names: &[&str], watched: &[&str]) -> Desired {
        let watched = watched.iter().map(|name| (*name).to_owned()).collect();
        desired(&resources(names), &watched, &GroupId::new("ACME-Paint").unwrap(), Duration::from_secs(180))
    }

    #[test]
    fn of_two_resources_for_one_node_the_first_by_name_is_watched_and_the_other_is_reported() {
        let desired = desired_of(&["a", "b"], &[]);
        assert_eq!(desired.nodes.keys().collect::<Vec<_>>(), ["a"]);
        assert!(desired.problems["b"][0].contains("SparkplugNode a"), "{:?}", desired.problems);
    }

    #[test]
    fn a_resource_that_is_watched_keeps_its_node() {
        let desired = desired_of(&["a", "b"], &["b"]);
        assert_eq!(desired.nodes.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(desired.problems.keys().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn the_plan_of_what_is_as_desired_is_empty() {
        let desired = desired_of(&["a"], &[]).nodes;
        assert_eq!(plan(&desired, &desired), Plan::default());
    }

    #[test]
    fn a_plan_removes_adds_and_changes() {
        let before = desired_of(&["a"], &[]).nodes;
        let spec = before["a"].clone();
        let slower = NodeSpec { interval: Duration::from_secs(999), ..spec.clone() };
        let both = BTreeMap::from([("a".to_owned(), slower.clone()), ("b".to_owned(), spec.clone())]);
        assert_eq!(
            plan(&before, &both),
            Plan { remove: vec![], add: vec![("b".to_owned(), spec)], change: vec![("a".to_owned(), slower)] }
        );
        assert_eq!(plan(&before, &BTreeMap::new()).remove, ["a"]);
    }
}
