//! The rules of a chart: reads Roles, ClusterRoles and their bindings out of Helm templates. It is not a renderer. In these objects it knows the namespace of the release, values
//! (also with `quote`) and conditions, which it takes for true. Anything else in them is an error. Other objects of a template are not looked at.

use serde_json::Value;

use super::{Grant, Rule};

/// Why the rules cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ChartError(String);

fn error<T>(text: impl Into<String>) -> Result<T, ChartError> {
    Err(ChartError(text.into()))
}

/// What a service account may do by the roles of these templates, when the chart is installed into `namespace` with these values.
///
/// # Errors
/// An object that has to do with rights cannot be read, or a binding names a role that the templates do not have.
pub fn grants(templates: &[&str], values: &Value, namespace: &str, account: &str) -> Result<Vec<Grant>, ChartError> {
    let mut objects = Vec::new();
    for template in templates {
        for document in template.split("\n---") {
            let kind = document.lines().find_map(|line| line.strip_prefix("kind: ")).unwrap_or_default().trim();
            if ["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"].contains(&kind) {
                objects.push(object(document, values, namespace)?);
            }
        }
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut grants = Vec::new();
    for binding in objects.iter().filter(|object| text(&object["kind"]).ends_with("Binding")) {
        let subjects = binding["subjects"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_meant = |subject: &Value| {
            subject["kind"] == "ServiceAccount" && subject["name"] == account && subject["namespace"] == namespace
        };
        if !subjects.iter().any(is_meant) {
            continue;
        }
        let place = (binding["kind"] == "RoleBinding").then(|| text(&binding["metadata"]["namespace"]));
        let (kind, name) = (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]);
        let is_bound = |role: &&Value| {
            role["kind"] == *kind
                && role["metadata"]["name"] == *name
                && (*kind == "ClusterRole" || Some(text(&role["metadata"]["namespace"])) == place)
        };
        let Some(role) = objects.iter().find(is_bound) else {
            return error(format!("{kind} {name} is bound and not in the templates"));
        };
        let rules: Vec<Rule> = match serde_json::from_value(role["rules"].clone()) {
            Ok(rules) => rules,
            Err(reason) => return error(format!("rules of {kind} {name}: {reason}")),
        };
        grants.extend(rules.into_iter().map(|rule| Grant { namespace: place.clone(), rule }));
    }
    Ok(grants)
}

fn object(document: &str, values: &Value, namespace: &str) -> Result<Value, ChartError> {
    let is_condition = |line: &&str| {
        let inner = line.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")).unwrap_or_default();
        let inner = inner.trim_matches('-').trim();
        inner == "end" || inner.starts_with("if ")
    };
    let lines = document.lines().filter(|line| !is_condition(line));
    let text = lines.map(|line| filled(line, values, namespace)).collect::<Result<Vec<_>, _>>()?.join("\n");
    serde_saphyr::from_str(&text).or_else(|reason| error(format!("{reason} in {text}")))
}

/// A line with its expressions replaced.
fn filled(line: &str, values: &Value, namespace: &str) -> Result<String, ChartError> {
    let mut done = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((expression, after)) = after.split_once("}}") else { return error(format!("no end: {line}")) };
        let (expression, quote) = match expression.trim().split_once('|') {
            Some((expression, "quote" | " quote")) => (expression.trim(), true),
            Some(_) => return error(format!("a function that is not known: {line}")),
            None => (expression.trim(), false),
        };
        let value = if expression == ".Release.Namespace" {
            namespace
        } else {
            let path = expression.strip_prefix(".Values.").map(|path| format!("/{}", path.replace('.', "/")));
            let value = path.and_then(|path| values.pointer(&path)).and_then(Value::as_str);
            value.ok_or_else(|| ChartError(format!("no text among the values: {line}")))?
        };
        done.push_str(before);
        done.push_str(&if quote { Value::from(value).to_string() } else { value.to_owned() });
        rest = after;
    }
    done.push_str(rest);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEMPLATE: &str = r#"{{- if .Values.on }}
kind: Role
metadata:
  name: one-{{ .Release.Namespace }}
  namespace: kube-system
rules:
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: [{{ .Values.of.secret | quote }}, "http:{{ .Values.of.secret }}:http"]
    verbs: [get]
---
kind: ConfigMap
data: {{ toYaml .Values.anything }}
---
kind: RoleBinding
metadata: { namespace: kube-system }
roleRef: { kind: Role, name: one-{{ .Release.Namespace }} }
subjects: [{ kind: ServiceAccount, name: me, namespace: {{ .Release.Namespace }} }]
{{- end }}
"#;

    #[test]
    fn rules_are_read_with_their_values_for_the_account_that_they_are_bound_to() {
        let values = json!({"on": true, "of": {"secret": "s"}});
        let found = grants(&[TEMPLATE], &values, "edge", "me").unwrap();
        let [Grant { namespace, rule }] = &found[..] else { panic!("{found:?}") };
        assert_eq!(namespace.as_deref(), Some("kube-system"));
        assert_eq!(rule.resource_names, ["s", "http:s:http"]);
        assert_eq!(grants(&[TEMPLATE], &values, "edge", "someone"), Ok(Vec::new()));
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let values = json!({"of": {"secret": "s"}});
        let refused = |from: &str, to: &str| {
            grants(&[&TEMPLATE.replace(from, to)], &values, "edge", "me").unwrap_err().to_string()
        };
        assert!(refused("| quote", "| upper").starts_with("a function that is not known"));
        assert!(refused(".Values.of.secret | quote", ".Values.of.other").starts_with("no text among the values"));
        assert!(
            refused("name: one-{{ .Release.Namespace }} }", "name: two }")
                .contains("is bound and not in the templates")
        );
        assert!(refused("verbs: [get]", "verb: [get]").starts_with("rules of"));
    }
}
