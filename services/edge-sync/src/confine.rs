//! What a manifest may ask of Flux, and as whom Flux acts for it. Flux' controllers may do everything, so a manifest that names another account, namespace or cluster would give its
//! author their rights. The chart `edge-cluster` has the account, and admission policies that refuse the same at the API server. Pure.

use serde_json::{Map, Value};

use crate::object::Kind;

/// Account that Flux acts as for what deployments bring.
pub(crate) const ACCOUNT: &str = "sparkfleet-agents";

/// Secrets and accounts whose names begin like this are those of the edge's own services.
const OWN_PREFIX: &str = "sparkfleet-";

/// A field, and the rule that it breaks.
pub(crate) type Broken = (&'static str, String);

/// Namespace in which Helm keeps the releases of deployments: in the own one the account may read no Secret.
#[must_use]
pub(crate) fn release_namespace(namespace: &str) -> String {
    format!("{namespace}-releases")
}

/// Makes Flux act as [`ACCOUNT`] for an object of Flux, and within `namespace`.
///
/// # Errors
/// The field that asks for more.
pub(crate) fn confine(kind: &Kind, object: &mut Value, namespace: &str) -> Result<(), Broken> {
    let is_release = match kind.group() {
        "helm.toolkit.fluxcd.io" => true,
        "kustomize.toolkit.fluxcd.io" => false,
        "source.toolkit.fluxcd.io" => return check_source(object),
        _ => return Ok(()),
    };
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return Err(("spec", "must be an object".to_owned()));
    };
    if is_release {
        settle(spec, "spec.storageNamespace", "storageNamespace", &release_namespace(namespace))?;
        if spec.contains_key("postRenderers") {
            return Err(("spec.postRenderers", "must be absent: what is deployed is what the chart says".to_owned()));
        }
    }
    settle(spec, "spec.serviceAccountName", "serviceAccountName", ACCOUNT)?;
    if spec.contains_key("kubeConfig") {
        return Err(("spec.kubeConfig", "must be absent: deployments stay on this cluster".to_owned()));
    }
    let here = [
        ("spec.targetNamespace", "/targetNamespace"),
        ("spec.sourceRef.namespace", "/sourceRef/namespace"),
        ("spec.chart.spec.sourceRef.namespace", "/chart/spec/sourceRef/namespace"),
        ("spec.chartRef.namespace", "/chartRef/namespace"),
    ];
    let found = Value::Object(std::mem::take(spec));
    let checked = here.into_iter().try_for_each(|(field, at)| own_namespace(field, found.pointer(at), namespace));
    let checked = checked.and_then(|()| check_lists(&found, namespace));
    if let Value::Object(found) = found {
        *spec = found;
    }
    checked
}

/// Sets a field that is absent, and refuses another value than this.
fn settle(spec: &mut Map<String, Value>, field: &'static str, key: &str, wanted: &str) -> Result<(), Broken> {
    match spec.get(key) {
        None | Some(Value::Null) => {
            spec.insert(key.to_owned(), Value::from(wanted));
            Ok(())
        }
        Some(Value::String(text)) if text == wanted => Ok(()),
        Some(other) => Err((field, format!("must be absent or {wanted:?}, not {other}"))),
    }
}

/// A namespace that is named must be the own one.
///
/// # Errors
/// It is another, or no text.
pub(crate) fn own_namespace(field: &'static str, value: Option<&Value>, namespace: &str) -> Result<(), Broken> {
    match value {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(named)) if named == namespace => Ok(()),
        Some(other) => Err((field, format!("must be absent or {namespace:?}, not {other}"))),
    }
}

fn check_lists(spec: &Value, namespace: &str) -> Result<(), Broken> {
    let items = |at: &str| spec.pointer(at).and_then(Value::as_array).into_iter().flatten();
    items("/dependsOn").try_for_each(|other| own_namespace("spec.dependsOn", other.get("namespace"), namespace))?;
    // Flux reads these itself, with its own rights.
    for (field, at) in
        [("spec.valuesFrom", "/valuesFrom"), ("spec.postBuild.substituteFrom", "/postBuild/substituteFrom")]
    {
        if items(at).any(|from| from.get("kind").and_then(Value::as_str) != Some("ConfigMap")) {
            return Err((field, "must name ConfigMaps only".to_owned()));
        }
    }
    match spec.get("decryption") {
        Some(_) => Err(("spec.decryption", "must be absent: no key is given to a deployment".to_owned())),
        None => Ok(()),
    }
}

/// A source must not send the credentials of the edge's own services to where a manifest says.
fn check_source(object: &Value) -> Result<(), Broken> {
    for (field, at) in [
        ("spec.secretRef.name", "/spec/secretRef/name"),
        ("spec.proxySecretRef.name", "/spec/proxySecretRef/name"),
        ("spec.serviceAccountName", "/spec/serviceAccountName"),
    ] {
        if object.pointer(at).and_then(Value::as_str).is_some_and(|name| name.starts_with(OWN_PREFIX)) {
            return Err((
                field,
                format!("must not begin with {OWN_PREFIX}, as what belongs to the edge's own services"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn confined(kind: &str, spec: &Value) -> Result<Value, String> {
        let mut object = json!({"spec": spec});
        let done = confine(&kind.parse().unwrap(), &mut object, "edge");
        done.map(|()| object["spec"].take()).map_err(|(field, rule)| format!("{field} {rule}"))
    }

    const RELEASE: &str = "helm.toolkit.fluxcd.io/v2/HelmRelease";
    const KUSTOMIZATION: &str = "kustomize.toolkit.fluxcd.io/v1/Kustomization";
    const SOURCE: &str = "source.toolkit.fluxcd.io/v1/GitRepository";

    #[test]
    fn flux_acts_as_the_account_of_deployments() {
        let account = json!({"serviceAccountName": ACCOUNT, "storageNamespace": "edge-releases", "values": {"a": 1}});
        assert_eq!(confined(RELEASE, &json!({"values": {"a": 1}})).unwrap(), account);
        assert_eq!(confined(RELEASE, &account).unwrap(), account, "what says so itself is the same");
        assert_eq!(confined(KUSTOMIZATION, &json!({})).unwrap(), json!({"serviceAccountName": ACCOUNT}));
        assert_eq!(confined("v1/ConfigMap", &json!({"kubeConfig": 1})).unwrap(), json!({"kubeConfig": 1}));
    }

    #[test]
    fn what_asks_for_more_is_refused_by_the_name_of_its_field() {
        let other = json!("kube-system");
        let cases = [
            (RELEASE, json!({"serviceAccountName": "sparkfleet-flux"}), "spec.serviceAccountName"),
            (RELEASE, json!({"storageNamespace": "edge"}), "spec.storageNamespace"),
            (RELEASE, json!({"targetNamespace": other}), "spec.targetNamespace"),
            (RELEASE, json!({"postRenderers": []}), "spec.postRenderers"),
            (RELEASE, json!({"kubeConfig": {}}), "spec.kubeConfig"),
            (RELEASE, json!({"valuesFrom": [{"kind": "Secret", "name": "sparkfleet-join"}]}), "spec.valuesFrom"),
            (RELEASE, json!({"chart": {"spec": {"sourceRef": {"namespace": other}}}}), "spec.chart.spec.sourceRef"),
            (RELEASE, json!({"chartRef": {"namespace": other}}), "spec.chartRef.namespace"),
            (RELEASE, json!({"dependsOn": [{"name": "x"}, {"namespace": other}]}), "spec.dependsOn"),
            (RELEASE, json!("x"), "spec must be an object"),
            (KUSTOMIZATION, json!({"serviceAccountName": "default"}), "spec.serviceAccountName"),
            (KUSTOMIZATION, json!({"targetNamespace": other}), "spec.targetNamespace"),
            (KUSTOMIZATION, json!({"sourceRef": {"namespace": other}}), "spec.sourceRef.namespace"),
            (KUSTOMIZATION, json!({"postBuild": {"substituteFrom": [{"kind": "Secret"}]}}), "spec.postBuild"),
            (KUSTOMIZATION, json!({"decryption": {}}), "spec.decryption"),
            (SOURCE, json!({"secretRef": {"name": "sparkfleet-identity"}}), "spec.secretRef.name"),
            (SOURCE, json!({"serviceAccountName": "sparkfleet-flux"}), "spec.serviceAccountName"),
        ];
        for (kind, spec, part) in cases {
            let error = confined(kind, &spec).unwrap_err();
            assert!(error.starts_with(part), "{spec}: {error}");
        }
    }
}
