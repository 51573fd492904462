//! Which resources the API serves: the built-in table, and what a CustomResourceDefinition adds. Pure data; the store asks it for the shape of
//! an object (scope, status subresource, schema), discovery lists it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// Key of a kind of object in storage: all versions of a resource share it. Displays as `helmreleases.helm.toolkit.fluxcd.io`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    /// API group, empty for core.
    pub group: String,
    pub plural: String,
}

impl ResourceId {
    pub fn new(group: &str, plural: &str) -> Self {
        Self { group: group.to_string(), plural: plural.to_string() }
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.write_str(&self.plural) } else { write!(f, "{}.{}", self.plural, self.group) }
    }
}

/// One version of a resource as it is served.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// API group, empty for core.
    pub group: String,
    /// Version, e.g. `v1`.
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    /// Short names for kubectl.
    pub short_names: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether `/status` is a subresource of its own.
    pub has_status: bool,
    /// Whether `metadata.generation` counts changes of the specification.
    pub has_generation: bool,
    /// Whether the resource comes from a CustomResourceDefinition.
    pub custom: bool,
    /// Structural schema, for custom resources.
    pub schema: Option<Arc<Value>>,
    /// `additionalPrinterColumns` of a custom resource.
    pub columns: Vec<Value>,
}

impl Kind {
    pub fn id(&self) -> ResourceId {
        ResourceId::new(&self.group, &self.plural)
    }

    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    fn builtin(row: &Row) -> Self {
        Self {
            group: row.group.to_string(),
            version: row.version.to_string(),
            kind: row.kind.to_string(),
            plural: row.plural.to_string(),
            singular: row.kind.to_lowercase(),
            short_names: row.short.split(' ').filter(|s| !s.is_empty()).map(str::to_string).collect(),
            namespaced: row.flags.contains('n'),
            has_status: row.flags.contains('s'),
            has_generation: row.flags.contains('g'),
            custom: false,
            schema: None,
            columns: Vec::new(),
        }
    }
}

struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static str,
    /// n = namespaced, s = status subresource, g = generation.
    flags: &'static str,
}

const fn row(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static str,
    flags: &'static str,
) -> Row {
    Row { group, version, kind, plural, short, flags }
}

/// Kinds that exist without a definition: what edge clusters' manifests and this project's services use.
const BUILTIN: &[Row] = &[
    row("", "v1", "ConfigMap", "configmaps", "cm", "n"),
    row("", "v1", "Event", "events", "ev", "n"),
    row("", "v1", "Namespace", "namespaces", "ns", "s"),
    row("", "v1", "Node", "nodes", "no", "s"),
    row("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", "ns"),
    row("", "v1", "Pod", "pods", "po", "ns"),
    row("", "v1", "ResourceQuota", "resourcequotas", "quota", "ns"),
    row("", "v1", "Secret", "secrets", "", "n"),
    row("", "v1", "Service", "services", "svc", "ns"),
    row("", "v1", "ServiceAccount", "serviceaccounts", "sa", "n"),
    row("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", "crd crds", "sg"),
    row("apps", "v1", "DaemonSet", "daemonsets", "ds", "nsg"),
    row("apps", "v1", "Deployment", "deployments", "deploy", "nsg"),
    row("apps", "v1", "StatefulSet", "statefulsets", "sts", "nsg"),
    row("batch", "v1", "Job", "jobs", "", "nsg"),
    row("coordination.k8s.io", "v1", "Lease", "leases", "", "n"),
    row("events.k8s.io", "v1", "Event", "events", "ev", "n"),
    row("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "netpol", "ng"),
    row("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "", ""),
    row("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", "", ""),
    row("rbac.authorization.k8s.io", "v1", "Role", "roles", "", "n"),
    row("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "", "n"),
];

/// All kinds served at the moment, by group, version and plural.
#[derive(Debug, Clone)]
pub struct Kinds {
    served: BTreeMap<(String, String, String), Arc<Kind>>,
}

impl Kinds {
    pub fn builtin() -> Self {
        let mut served = BTreeMap::new();
        for row in BUILTIN {
            let kind = Kind::builtin(row);
            served.insert((kind.group.clone(), kind.version.clone(), kind.plural.clone()), Arc::new(kind));
        }
        Self { served }
    }

    /// Looks a resource up by its place in a URL.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.served.get(&(group.to_string(), version.to_string(), plural.to_string()))
    }

    /// Looks a kind up by what an object says of itself.
    pub fn by_object(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        self.served.values().find(|k| k.group == group && k.version == version && k.kind == kind)
    }

    /// Looks a kind up by its storage key, in some version of it.
    pub fn by_id(&self, id: &ResourceId) -> Option<Arc<Kind>> {
        self.served.values().find(|kind| kind.group == id.group && kind.plural == id.plural).cloned()
    }

    /// Every served kind in order of group, version, plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.served.values()
    }

    /// Groups with their versions, best version first.
    pub fn groups(&self) -> BTreeMap<String, Vec<String>> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (group, version, _) in self.served.keys() {
            let versions = groups.entry(group.clone()).or_default();
            if !versions.contains(version) {
                versions.push(version.clone());
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by_key(|v| std::cmp::Reverse(version_rank(v)));
        }
        groups
    }

    /// Serves what a CustomResourceDefinition describes, in place of what an earlier text of it described.
    pub fn define(&mut self, definition: &Value) {
        let Some(id) = defined_resource(definition) else { return };
        self.undefine(&id);
        for kind in custom_kinds(definition) {
            self.served.insert((kind.group.clone(), kind.version.clone(), kind.plural.clone()), Arc::new(kind));
        }
    }

    /// Stops serving a custom resource.
    pub fn undefine(&mut self, id: &ResourceId) {
        self.served.retain(|_, kind| !(kind.custom && kind.id() == *id));
    }
}

/// The resource that a CustomResourceDefinition is about.
pub fn defined_resource(definition: &Value) -> Option<ResourceId> {
    let group = definition.pointer("/spec/group")?.as_str()?;
    let plural = definition.pointer("/spec/names/plural")?.as_str()?;
    Some(ResourceId::new(group, plural))
}

fn custom_kinds(definition: &Value) -> Vec<Kind> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string();
    let kind = text("/spec/names/kind");
    let singular = match text("/spec/names/singular") {
        given if given.is_empty() => kind.to_lowercase(),
        given => given,
    };
    let strings = |pointer: &str| -> Vec<String> {
        let list = definition.pointer(pointer).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|v| v.as_str().map(str::to_string)).collect()
    };
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let served = versions.into_iter().flatten().filter(|v| v["served"] != Value::Bool(false));
    served
        .filter_map(|version| {
            Some(Kind {
                group: text("/spec/group"),
                version: version["name"].as_str()?.to_string(),
                kind: kind.clone(),
                plural: text("/spec/names/plural"),
                singular: singular.clone(),
                short_names: strings("/spec/names/shortNames"),
                namespaced: text("/spec/scope") != "Cluster",
                has_status: version.pointer("/subresources/status").is_some(),
                has_generation: true,
                custom: true,
                schema: version.pointer("/schema/openAPIV3Schema").map(|schema| Arc::new(schema.clone())),
                columns: version["additionalPrinterColumns"].as_array().cloned().unwrap_or_default(),
            })
        })
        .collect()
}

/// Kubernetes' version priority: stable before beta before alpha, higher numbers first.
fn version_rank(version: &str) -> (u8, u32, u32) {
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    let rest = version.strip_prefix('v').unwrap_or(version);
    let major = digits(rest);
    let tail = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    if let Some(minor) = tail.strip_prefix("beta") {
        (1, major, digits(minor))
    } else if let Some(minor) = tail.strip_prefix("alpha") {
        (0, major, digits(minor))
    } else {
        (2, major, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn stable_versions_are_preferred_to_beta_and_alpha() {
        let mut versions = vec!["v1alpha1", "v2beta1", "v1", "v2", "v1beta2"];
        versions.sort_by_key(|v| std::cmp::Reverse(version_rank(v)));
        assert_eq!(versions, ["v2", "v1", "v2beta1", "v1beta2", "v1alpha1"]);
    }

    #[test]
    fn a_definition_serves_its_served_versions_and_replaces_its_earlier_text() {
        let mut definition = json!({"spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "shortNames": ["wi"]},
            "versions": [{"name": "v1", "served": true, "subresources": {"status": {}}}, {"name": "v1beta1", "served": false}]}});
        let mut kinds = Kinds::builtin();
        kinds.define(&definition);
        let widget = kinds.get("example.org", "v1", "widgets").expect("served").clone();
        assert!(widget.has_status && widget.namespaced && widget.custom);
        assert_eq!(widget.singular, "widget");
        assert!(kinds.get("example.org", "v1beta1", "widgets").is_none());
        assert_eq!(kinds.by_object("example.org/v1", "Widget"), Some(&widget));

        definition["spec"]["versions"] = json!([{"name": "v2"}]);
        kinds.define(&definition);
        assert!(kinds.get("example.org", "v1", "widgets").is_none());
        assert!(kinds.get("example.org", "v2", "widgets").is_some());

        kinds.undefine(&ResourceId::new("example.org", "widgets"));
        assert!(kinds.get("example.org", "v2", "widgets").is_none());
        assert!(kinds.get("apps", "v1", "deployments").is_some());
    }
}
