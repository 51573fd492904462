//! What a service account asks of the API server, by the server's audit log, beside what roles let it do.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::definitions;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Longest wait until roles are in force.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// A service account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

impl Account {
    /// The user that the API server knows it as.
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// The audit log of an API server, about one account.
#[derive(Debug)]
pub struct Audit {
    account: Account,
    directory: TempDir,
}

/// One thing that may be done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    verb: String,
    group: String,
    /// With the subresource, if it is about one.
    resource: String,
    /// None: whatever its name is.
    name: Option<String>,
    /// None: wherever it is.
    namespace: Option<String>,
}

impl Right {
    /// True if it is over Secrets.
    #[must_use]
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
    ///
    /// # Panics
    /// The temporary directory cannot be written.
    #[must_use]
    pub fn begin(account: Account) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let policy = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{ "level": "Metadata", "users": [account.user()] }, { "level": "None" }] });
        std::fs::write(directory.path().join("policy.yaml"), policy.to_string()).expect("the directory can be written");
        Self { account, directory }
    }

    /// Arguments of the API server.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let file = |name: &str| self.directory.path().join(name).display().to_string();
        vec![format!("--audit-policy-file={}", file("policy.yaml")), format!("--audit-log-path={}", file("log"))]
    }

    fn events(&self) -> Vec<Value> {
        // There is none before the first request.
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        // The last line may be half written.
        let lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| serde_json::from_str(line).expect("a line of the log is an event")).collect()
    }

    /// Requests that were refused for want of a right.
    #[must_use]
    pub fn forbidden(&self) -> Vec<String> {
        let refused = |event: &Value| event["annotations"]["authorization.k8s.io/decision"] == "forbid";
        let refused = self.events().into_iter().filter(refused);
        refused.map(|event| format!("{} {}", event["verb"], event["requestURI"])).collect()
    }

    /// Those of the rights that no request has used.
    ///
    /// # Panics
    /// The log is empty.
    #[must_use]
    pub fn unused(&self, granted: &BTreeSet<Right>) -> Vec<String> {
        let events = self.events();
        assert!(!events.is_empty(), "the log is kept");
        let is_used = |right: &Right| events.iter().any(|event| uses(event, right));
        granted.iter().filter(|right| !is_used(right)).map(Right::to_string).collect()
    }

    /// What roles let the account do.
    ///
    /// # Panics
    /// They cannot be read, or there are none.
    pub async fn granted(&self, client: &Client) -> BTreeSet<Right> {
        let mut rights = BTreeSet::new();
        for kind in ["RoleBinding", "ClusterRoleBinding"] {
            let bindings = definitions::api_everywhere(client.clone(), RBAC, kind).list(&ListParams::default()).await;
            let bindings = bindings.unwrap_or_else(|error| panic!("{kind}s cannot be listed: {error}"));
            for binding in bindings.items.iter().filter(|binding| self.is_bound_by(binding)) {
                let namespace = binding.metadata.namespace.clone();
                let role = &binding.data["roleRef"];
                let (kind, name) = (text(&role["kind"]), text(&role["name"]));
                let roles = match &namespace {
                    Some(namespace) if kind == "Role" => definitions::api(client.clone(), RBAC, kind, namespace),
                    _ => definitions::api_everywhere(client.clone(), RBAC, kind),
                };
                let role = roles.get(name).await.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
                let rules = role.data["rules"].as_array().into_iter().flatten();
                rights.extend(rules.flat_map(|rule| of_rule(rule, namespace.as_ref())));
            }
        }
        assert!(!rights.is_empty(), "no role is bound to {}", self.account.user());
        rights
    }

    /// Waits until the API server knows that the account may do all this: it learns of roles a moment after they are there.
    ///
    /// # Panics
    /// It is not known within `PATIENCE`.
    pub async fn until_in_force(&self, client: &Client, rights: &BTreeSet<Right>) {
        let reviews = Api::<SubjectAccessReview>::all(client.clone());
        let deadline = Instant::now() + PATIENCE;
        for right in rights {
            let asked = json!({ "verb": right.verb, "group": right.group, "resource": right.resource, "name": right.name,
                "namespace": right.namespace });
            let review =
                json!({ "metadata": {}, "spec": { "user": self.account.user(), "resourceAttributes": asked } });
            let review = serde_json::from_value(review).expect("it is a review");
            loop {
                let answer = reviews.create(&PostParams::default(), &review).await;
                if answer.is_ok_and(|answer| answer.status.is_some_and(|status| status.allowed)) {
                    break;
                }
                assert!(Instant::now() < deadline, "{} may not {right}", self.account.user());
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    fn is_bound_by(&self, binding: &DynamicObject) -> bool {
        let mut subjects = binding.data["subjects"].as_array().into_iter().flatten();
        subjects.any(|subject| {
            subject["kind"] == "ServiceAccount"
                && subject["name"] == *self.account.name
                && subject["namespace"] == *self.account.namespace
        })
    }
}

fn uses(event: &Value, right: &Right) -> bool {
    let object = &event["objectRef"];
    let resource = match text(&object["subresource"]) {
        "" => text(&object["resource"]).to_owned(),
        subresource => format!("{}/{subresource}", text(&object["resource"])),
    };
    // An apply of what is not there has to be allowed as its creation, too.
    let has_created = right.verb == "create" && event["verb"] == "patch" && event["responseStatus"]["code"] == 201;
    (event["verb"] == *right.verb || has_created)
        && text(&object["apiGroup"]) == right.group
        && resource == right.resource
        && right.name.as_ref().is_none_or(|name| text(&object["name"]) == name)
        && right.namespace.as_ref().is_none_or(|namespace| text(&object["namespace"]) == namespace)
}

fn of_rule(rule: &Value, namespace: Option<&String>) -> Vec<Right> {
    let texts = |key: &str| -> Vec<String> {
        let all = rule[key].as_array().into_iter().flatten();
        all.map(|value| text(value).to_owned()).collect()
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
                    namespace: namespace.cloned(),
                }));
            }
        }
    }
    rights
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
