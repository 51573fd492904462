//! What the edge's services ask of the API server, by its audit log, beside what the chart lets them.

use std::collections::BTreeSet;
use std::fmt;

use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::NAMESPACE;
use super::factory::Factory;

/// The account of the edge's services.
const ACCOUNT: &str = "sparkfleet-edge";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The audit log of an API server.
pub struct Audit(TempDir);

/// One thing that may be done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    verb: String,
    group: String,
    /// With the subresource, if it is about one.
    resource: String,
    /// None: whatever its name is.
    name: Option<String>,
}

impl Right {
    /// True if it is over Secrets.
    pub fn is_of_secrets(&self) -> bool {
        self.resource == "secrets"
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        self.name.as_ref().map_or(Ok(()), |name| write!(f, " {name}"))
    }
}

impl Audit {
    /// Writes the policy that the log is kept by.
    pub fn begin() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
        let policy = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{ "level": "Metadata", "users": [user] }, { "level": "None" }] });
        std::fs::write(directory.path().join("policy.yaml"), policy.to_string()).unwrap();
        Self(directory)
    }

    /// Arguments of the API server.
    pub fn flags(&self) -> Vec<String> {
        let file = |name: &str| self.0.path().join(name).display().to_string();
        vec![format!("--audit-policy-file={}", file("policy.yaml")), format!("--audit-log-path={}", file("log"))]
    }

    fn events(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.0.path().join("log")).unwrap();
        // The last line may be half written.
        log.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Requests that were refused for want of a right.
    pub fn forbidden(&self) -> Vec<String> {
        let refused = |event: &Value| event["annotations"]["authorization.k8s.io/decision"] == "forbid";
        let refused = self.events().into_iter().filter(refused);
        refused.map(|event| format!("{} {}", event["verb"], event["requestURI"])).collect()
    }

    /// Those of the rights that no request has used.
    pub fn unused(&self, granted: &BTreeSet<Right>) -> Vec<String> {
        let events = self.events();
        assert!(!events.is_empty(), "the log is kept");
        let is_used = |right: &Right| events.iter().any(|event| uses(event, right));
        granted.iter().filter(|right| !is_used(right)).map(Right::to_string).collect()
    }
}

fn uses(event: &Value, right: &Right) -> bool {
    let object = &event["objectRef"];
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let resource = match text("subresource") {
        "" => text("resource").to_owned(),
        subresource => format!("{}/{subresource}", text("resource")),
    };
    // An apply of what is not there has to be allowed as its creation, too.
    let has_created = right.verb == "create" && event["verb"] == "patch" && event["responseStatus"]["code"] == 201;
    (event["verb"] == *right.verb || has_created)
        && text("apiGroup") == right.group
        && resource == right.resource
        && right.name.as_ref().is_none_or(|name| text("name") == name)
}

/// What the chart lets the edge's services do.
pub async fn granted(factory: &Factory) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for (binding, role, namespace) in [("RoleBinding", "Role", NAMESPACE), ("ClusterRoleBinding", "ClusterRole", "")] {
        let bindings = factory.api((RBAC, binding, namespace)).list(&ListParams::default()).await.unwrap();
        for found in bindings.items.iter().filter(|found| is_of_edge(found)) {
            let name = found.data["roleRef"]["name"].as_str().unwrap();
            assert_eq!(found.data["roleRef"]["kind"], role, "{name}");
            let role = factory.api((RBAC, role, namespace)).get(name).await.unwrap();
            rights.extend(role.data["rules"].as_array().unwrap().iter().flat_map(of_rule));
        }
    }
    assert!(!rights.is_empty());
    rights
}

fn is_of_edge(binding: &DynamicObject) -> bool {
    let subjects = binding.data["subjects"].as_array().into_iter().flatten();
    let mut subjects = subjects.map(|subject| (&subject["name"], &subject["namespace"]));
    subjects.any(|(name, namespace)| name == ACCOUNT && namespace == NAMESPACE)
}

fn of_rule(rule: &Value) -> Vec<Right> {
    let texts = |key: &str| -> Vec<String> {
        let all = rule[key].as_array().into_iter().flatten();
        all.map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let names: Vec<_> = match texts("resourceNames") {
        names if names.is_empty() => vec![None],
        names => names.into_iter().map(Some).collect(),
    };
    let mut rights = Vec::new();
    for verb in texts("verbs") {
        for group in texts("apiGroups") {
            for resource in texts("resources") {
                rights.extend(names.iter().map(|name| Right {
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                }));
            }
        }
    }
    rights
}
