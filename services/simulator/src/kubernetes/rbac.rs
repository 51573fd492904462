//! What an account of the simulated API may do, by the rules of roles (RBAC). The API itself grants everything; [`super::Kubernetes::serve_as`] serves it to one account, and what
//! no rule allows is refused with 403. Which rights were used, and what was refused, can be asked afterwards. So a test shows that the roles of a chart are what a program needs and no more.
//!
//! As in the real thing, rules only add up. A list or watch with `metadata.name` in its field selector is about that name. A server-side apply that makes an object needs `create`
//! beside `patch`. There are no rules for paths, no groups, no aggregation.

pub mod chart;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;

use serde::Deserialize;

use super::error::ApiError;
use super::kinds::ResourceId;
use super::locked;

/// Stands for everything in a rule.
const ALL: &str = "*";

/// A rule of a Role or ClusterRole (`rbac.authorization.k8s.io/v1`, `PolicyRule`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// Groups; empty text for the core group.
    pub api_groups: Vec<String>,
    /// Plurals, with a subresource after a slash.
    pub resources: Vec<String>,
    /// Only these objects; none: all.
    #[serde(default)]
    pub resource_names: Vec<String>,
    /// Such as `get`.
    pub verbs: Vec<String>,
}

/// A rule, and where it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// None: in the whole cluster.
    pub namespace: Option<String>,
    pub rule: Rule,
}

/// What a request wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Such as `get`.
    pub verb: &'a str,
    pub group: &'a str,
    /// Plural, with a subresource after a slash.
    pub resource: &'a str,
    /// None: of the cluster, or of all namespaces.
    pub namespace: Option<&'a str>,
    /// None: of no object in particular.
    pub name: Option<&'a str>,
}

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} resource \"{}\" in API group \"{}\" ", self.verb, self.resource, self.group)?;
        match self.namespace {
            Some(namespace) => write!(f, "in the namespace \"{namespace}\""),
            None => f.write_str("at the cluster scope"),
        }
    }
}

fn covers(listed: &[String], wanted: &str) -> bool {
    listed.iter().any(|one| one == wanted || one == ALL)
}

impl Grant {
    fn allows(&self, wanted: &Wanted<'_>) -> bool {
        let Rule { api_groups, resources, resource_names, verbs } = &self.rule;
        let is_here = self.namespace.as_deref().is_none_or(|namespace| wanted.namespace == Some(namespace));
        let is_named = resource_names.is_empty()
            || wanted.name.is_some_and(|wanted| resource_names.iter().any(|name| name == wanted));
        is_here
            && is_named
            && covers(api_groups, wanted.group)
            && covers(resources, wanted.resource)
            && covers(verbs, wanted.verb)
    }

    /// Each single right in it: verb, resource, group, and each name.
    fn rights(&self) -> BTreeSet<Right> {
        let Rule { api_groups, resources, resource_names, verbs } = &self.rule;
        let place = self
            .namespace
            .as_ref()
            .map_or_else(|| "the cluster".to_owned(), |namespace| format!("namespace {namespace}"));
        let each = api_groups.iter().flat_map(|group| resources.iter().map(move |resource| (group, resource)));
        let single = each.flat_map(|(group, resource)| verbs.iter().map(move |verb| (group, resource, verb)));
        let mut rights: BTreeSet<Right> = single
            .map(|(group, resource, verb)| Right(format!("{verb} {} in {place}", ResourceId::new(group, resource))))
            .collect();
        rights.extend(
            resource_names.iter().map(|name| Right(format!("{} named {name} in {place}", resources.join(", ")))),
        );
        rights
    }

    /// Of these the ones that a request uses which it allows.
    fn used(&self, wanted: &Wanted<'_>) -> BTreeSet<Right> {
        let only = |listed: &[String], wanted: &str| {
            listed.iter().filter(|one| *one == wanted || *one == ALL).cloned().collect::<Vec<_>>()
        };
        let names = wanted.name.map(|name| only(&self.rule.resource_names, name)).unwrap_or_default();
        let rule = Rule {
            api_groups: only(&self.rule.api_groups, wanted.group),
            resources: only(&self.rule.resources, wanted.resource),
            resource_names: names,
            verbs: only(&self.rule.verbs, wanted.verb),
        };
        Self { namespace: self.namespace.clone(), rule }.rights()
    }
}

/// A single right, for people: `create secrets in namespace kube-system`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Right(String);

#[derive(Debug, Default)]
struct RightsUsed {
    used: BTreeSet<Right>,
    refused: BTreeSet<String>,
}

/// An account that the API is served to.
#[derive(Debug)]
pub struct Account {
    name: String,
    grants: Vec<Grant>,
    asked: Mutex<RightsUsed>,
}

impl Account {
    /// An account with these rights.
    pub fn new(name: impl Into<String>, grants: Vec<Grant>) -> Self {
        Self { name: name.into(), grants, asked: Mutex::default() }
    }

    /// Allows a request, or refuses it, and remembers which.
    pub fn check(&self, wanted: &Wanted<'_>) -> Result<(), ApiError> {
        let mut asked = locked(&self.asked);
        let allowing: Vec<&Grant> = self.grants.iter().filter(|grant| grant.allows(wanted)).collect();
        asked.used.extend(allowing.iter().flat_map(|grant| grant.used(wanted)));
        if !allowing.is_empty() {
            return Ok(());
        }
        let why = format!("User \"{}\" cannot {wanted}", self.name);
        let error =
            ApiError::forbidden(&ResourceId::new(wanted.group, wanted.resource), wanted.name.unwrap_or_default(), &why);
        asked.refused.insert(error.message.clone());
        Err(error)
    }

    /// What was refused, for people.
    pub fn refused(&self) -> Vec<String> {
        locked(&self.asked).refused.iter().cloned().collect()
    }

    /// The rights that no request has used, for people.
    pub fn unused(&self) -> Vec<String> {
        let asked = locked(&self.asked);
        let rights = self.grants.iter().flat_map(Grant::rights).collect::<BTreeSet<Right>>();
        rights.difference(&asked.used).map(|right| right.0.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn account() -> Account {
        let grant = |namespace: Option<&str>, rule| Grant {
            namespace: namespace.map(str::to_owned),
            rule: serde_json::from_value(rule).unwrap(),
        };
        Account::new(
            "system:serviceaccount:edge:one",
            vec![
                grant(None, json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]})),
                grant(
                    Some("edge"),
                    json!({"apiGroups": ["", "apps"], "resources": ["configmaps"], "verbs": ["get", "create"]}),
                ),
                grant(
                    Some("edge"),
                    json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get"]}),
                ),
            ],
        )
    }

    const GET: Wanted<'_> =
        Wanted { verb: "get", group: "", resource: "configmaps", namespace: Some("edge"), name: Some("x") };

    #[test]
    fn a_rule_allows_its_verbs_groups_resources_namespaces_and_names_and_no_others() {
        let account = account();
        let allowed = |wanted: Wanted<'_>| account.check(&wanted).is_ok();
        assert!(allowed(GET));
        assert!(allowed(Wanted { verb: "create", name: None, ..GET }));
        assert!(allowed(Wanted { resource: "nodes", verb: "list", namespace: None, name: None, ..GET }));
        assert!(allowed(Wanted { resource: "secrets", name: Some("a"), ..GET }));
        for wrong in [
            Wanted { verb: "list", ..GET },
            Wanted { group: "batch", ..GET },
            Wanted { resource: "configmaps/status", ..GET },
            Wanted { namespace: Some("other"), ..GET },
            Wanted { namespace: None, ..GET },
            Wanted { resource: "secrets", name: Some("c"), ..GET },
            Wanted { resource: "secrets", name: None, ..GET },
        ] {
            assert!(!allowed(wrong), "{wrong}");
        }
        assert_eq!(account.refused().len(), 7);
    }

    #[test]
    fn a_refusal_says_what_the_real_server_says() {
        let error = account().check(&Wanted { verb: "delete", ..GET }).unwrap_err();
        let message = "configmaps \"x\" is forbidden: User \"system:serviceaccount:edge:one\" cannot delete resource \"configmaps\" in API group \"\" in the namespace \"edge\"";
        assert_eq!((error.code, error.reason, error.message.as_str()), (403, "Forbidden", message));
        let nodes = Wanted { verb: "watch", resource: "nodes", namespace: None, name: None, ..GET };
        let error = account().check(&nodes).unwrap_err();
        let message = "nodes is forbidden: User \"system:serviceaccount:edge:one\" cannot watch resource \"nodes\" in API group \"\" at the cluster scope";
        assert_eq!(error.to_status()["message"], message);
        assert_eq!(error.to_status()["details"], json!({"kind": "nodes"}));
    }

    #[test]
    fn every_single_right_that_was_not_used_is_reported() {
        let account = account();
        account.check(&GET).unwrap();
        account.check(&Wanted { resource: "secrets", name: Some("a"), ..GET }).unwrap();
        let unused = [
            "create configmaps in namespace edge",
            "create configmaps.apps in namespace edge",
            "get configmaps.apps in namespace edge",
            "list nodes in the cluster",
            "secrets named b in namespace edge",
        ];
        assert_eq!(account.unused(), unused);
    }
}
