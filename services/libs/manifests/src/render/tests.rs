//! Manifests of single deployments, from the templates that a fresh store has and from odd ones. What happens to them is not known here.

use super::*;
use configdb_schema::known;
use serde_json::json;

const DEPLOYMENT: Uuid = Uuid::from_u128(0xD1);
const CHART: Uuid = Uuid::from_u128(0xC0);
const SECOND: Uuid = Uuid::from_u128(0xC9);
const SOURCE: Uuid = Uuid::from_u128(0x50);
const ETAG: Uuid = Uuid::from_u128(0xE);

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let mut set = |object, slug, value: Value| {
        catalog.set(object, slug, Some(&value.to_string()));
    };
    let values = json!({"name": "{{name}}", "uuid": "{{uuid}}", "hostname": "{{hostname}}", "k8s": "{{k8sname}}"});
    set(CHART, "HelmChartTemplate", json!({"chart": "edge-agent", "values": values}));
    let mine = json!({"chart": "charts/barcode", "prefix": "barcode", "source": SOURCE, "values": {"id": "{{uuid}}"}});
    set(SECOND, "HelmChartTemplate", mine);
    set(SOURCE, "GitConfig", json!({"path": "shared/site"}));
    for entry in configdb_schema::defaults::entries() {
        if entry.application.slug == "K8sTemplate" {
            set(entry.object, "K8sTemplate", serde_json::from_str(entry.json).unwrap());
        }
    }
    catalog
}

fn entry(json: Value) -> EdgeDeployment {
    let mut entry = json!({"cluster": Uuid::nil(), "name": "Robot_Cell_3", "chart": CHART});
    entry = crate::merge::combine(entry, &json);
    entry.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    serde_json::from_value(entry).unwrap()
}

fn rendered(json: Value, catalog: &Catalog) -> Result<Rendered, RenderError> {
    let settings = Settings {
        git: GitAddress { own: "https://git.acme.example".to_owned(), external: None },
        base_values: json!({"realm": "ACME.EXAMPLE"}).as_object().unwrap().clone(),
        manifests_bytes_max: 10_000,
    };
    let entry = entry(json);
    let input = Input {
        uuid: DEPLOYMENT,
        deployment: &entry,
        k8s_name: "robot-cell-3",
        agent_config: None,
        cluster_name: "Paint_Shop",
        pins: &BTreeMap::new(),
    };
    deployment(input, catalog, &settings)
}

fn reason(json: Value) -> String {
    rendered(json, &catalog()).unwrap_err().to_string()
}

#[test]
fn a_deployment_becomes_a_helm_release_with_its_values_in_layers() {
    let rendered =
        rendered(json!({"hostname": "gw1", "values": {"drivers": {"plc": 1}, "realm": null}}), &catalog()).unwrap();
    let expected = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": {
            "name": format!("edge-agent-{DEPLOYMENT}"),
            "labels": {"factoryplus.app.amrc.co.uk/uuid": DEPLOYMENT.to_string()},
        },
        "spec": {
            "chart": {"spec": {
                "chart": "edge-agent",
                "reconcileStrategy": "Revision",
                "sourceRef": {"kind": "GitRepository", "name": "helm-charts"},
            }},
            "install": {"crds": "CreateReplace", "disableWait": true, "strategy": {"name": "RetryOnFailure", "retryInterval": "10s"}},
            "upgrade": {"crds": "CreateReplace", "disableWait": true, "strategy": {"name": "RetryOnFailure", "retryInterval": "10s"}},
            "interval": "2m0s",
            "maxHistory": 1,
            "driftDetection": {"mode": "enabled"},
            "values": {
                "realm": null,
                "cluster": "Paint_Shop",
                "name": "Robot_Cell_3",
                "uuid": DEPLOYMENT.to_string(),
                "hostname": "gw1",
                "k8s": "robot-cell-3",
                "drivers": {"plc": 1},
            },
        },
    });
    assert_eq!(rendered.manifests, [expected]);
    assert_eq!(rendered.name, "Robot_Cell_3");
    assert_eq!(rendered.digest, Digest::of_manifests(&rendered.manifests));
}

#[test]
fn what_an_operator_asks_of_flux_is_in_the_manifests() {
    let plain = rendered(json!({"chart": SECOND}), &catalog()).unwrap();
    assert!(plain.manifests[1]["spec"].get("suspend").is_none());
    assert!(plain.manifests.iter().all(|manifest| manifest["metadata"].get("annotations").is_none()));
    let asked = json!({"chart": SECOND, "suspend": true, "reconcileRequestedAt": "2027-01-15T08:00:00.123Z"});
    let asked = rendered(asked, &catalog()).unwrap();
    assert_eq!(asked.manifests[1]["spec"]["suspend"], true);
    for manifest in &asked.manifests {
        let requested_at = &manifest["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"];
        assert_eq!(requested_at, "2027-01-15T08:00:00.123Z", "{manifest}");
    }
    assert_ne!(asked.digest, plain.digest);
    let resumed = rendered(json!({"chart": SECOND, "suspend": false}), &catalog()).unwrap();
    assert_eq!(resumed.digest, plain.digest);
}

#[test]
fn a_floating_deployment_has_no_hostname_at_all() {
    let rendered = rendered(json!({}), &catalog()).unwrap();
    let values = rendered.manifests[0].pointer("/spec/values").unwrap().as_object().unwrap();
    assert!(!values.contains_key("hostname"));
}

#[test]
fn a_chart_from_elsewhere_brings_its_own_git_repository() {
    let rendered = rendered(json!({"chart": SECOND}), &catalog()).unwrap();
    let [repository, release] = &rendered.manifests[..] else { panic!("{:?}", rendered.manifests) };
    assert_eq!(repository["kind"], "GitRepository");
    assert_eq!(repository["spec"]["url"], format!("https://git.acme.example/uuid/{SOURCE}"));
    let name = repository["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with(&format!("helm-{SOURCE}-")) && name.len() <= LABEL_CHARACTERS_MAX, "{name}");
    assert_eq!(release.pointer("/spec/chart/spec/sourceRef/name").unwrap(), name);
    assert_eq!(release["metadata"]["name"], format!("barcode-{DEPLOYMENT}"));
    assert_eq!(repository.pointer("/metadata/labels").unwrap()[UUID_LABEL], DEPLOYMENT.to_string());
}

#[test]
fn a_pinned_repository_stays_where_it_is_whatever_its_template_says() {
    let entry = entry(json!({"chart": SECOND}));
    let pins = BTreeMap::from([(SOURCE, GitRef::Commit("c0".repeat(20)))]);
    let input = Input {
        uuid: DEPLOYMENT,
        deployment: &entry,
        k8s_name: "x",
        agent_config: None,
        cluster_name: "Paint_Shop",
        pins: &pins,
    };
    let settings =
        Settings { git: GitAddress::default(), base_values: serde_json::Map::new(), manifests_bytes_max: 10_000 };
    let rendered = deployment(input, &catalog(), &settings).unwrap();
    assert_eq!(rendered.manifests[0]["spec"]["ref"], json!({"commit": "c0".repeat(20)}));
    for (pin, expected) in [
        (GitRef::Tag("v1".to_owned()), json!({"tag": "v1"})),
        (GitRef::Semver(">=1".to_owned()), json!({"semver": ">=1"})),
        (GitRef::Branch("next".to_owned()), json!({"branch": "next"})),
    ] {
        let mut repository = json!({"spec": {"ref": {"branch": "main", "name": "refs/heads/main"}, "url": "u"}});
        stay_at(&mut repository, &pin);
        assert_eq!(repository, json!({"spec": {"ref": expected, "url": "u"}}));
    }
}

#[test]
fn two_deployments_never_share_an_object() {
    let name = |deployment| git_repository_name(Some(SOURCE), Some(deployment));
    assert_ne!(name(Uuid::from_u128(1)), name(Uuid::from_u128(2)));
    assert_eq!(git_repository_name(Some(SOURCE), None), format!("helm-{SOURCE}"));
    assert_eq!(git_repository_name(None, Some(DEPLOYMENT)), "helm-charts");
}

#[test]
fn the_source_of_a_deployment_wins_over_that_of_its_template() {
    let rendered = rendered(json!({"source": SOURCE}), &catalog()).unwrap();
    assert_eq!(rendered.manifests.len(), 2);
    assert_eq!(rendered.manifests[0]["kind"], "GitRepository");
}

#[test]
fn the_form_of_old_stores_may_name_several_charts() {
    let rendered = rendered(json!({"chart": null, "charts": [CHART, SECOND]}), &catalog()).unwrap();
    let kinds: Vec<_> = rendered.manifests.iter().map(|manifest| manifest["kind"].clone()).collect();
    assert_eq!(kinds, ["HelmRelease", "GitRepository", "HelmRelease"]);
}

#[test]
fn an_agent_configuration_becomes_a_config_map_with_its_revision() {
    let entry = entry(json!({}));
    let input = Input {
        uuid: DEPLOYMENT,
        deployment: &entry,
        k8s_name: "robot-cell-3",
        agent_config: Some((r#"{"deviceConnections":[]}"#, ETAG)),
        cluster_name: "Paint_Shop",
        pins: &BTreeMap::new(),
    };
    let settings =
        Settings { git: GitAddress::default(), base_values: serde_json::Map::new(), manifests_bytes_max: 10_000 };
    let rendered = deployment(input, &catalog(), &settings).unwrap();
    assert_eq!(
        rendered.manifests[1],
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": format!("edge-agent-config-{DEPLOYMENT}"),
                "labels": {"factoryplus.app.amrc.co.uk/uuid": DEPLOYMENT.to_string()},
                "annotations": {"factoryplus.app.amrc.co.uk/config-revision": ETAG.to_string()},
            },
            "data": {"config.json": r#"{"deviceConnections":[]}"#},
        })
    );
    let tight = Settings { manifests_bytes_max: 100, ..settings };
    assert!(matches!(deployment(input, &catalog(), &tight), Err(RenderError::TooLarge { max: 100, .. })));
}

#[test]
fn what_cannot_be_rendered_says_what_to_change() {
    for (json, expected) in [
        (json!({"chart": null}), "chart is missing"),
        (json!({"chart": ETAG}), "has no HelmChartTemplate entry"),
        (json!({"name": "a/b"}), "name: edge node id \"a/b\" contains '/'"),
        (json!({"name": ""}), "name: edge node id is empty"),
        (json!({"name": "Sync"}), "is that of a service on every cluster"),
        (json!({"name": "Identity"}), "(Sync, Monitor, Join, Keys, Identity); choose another"),
        (json!({"values": {"uuid": "x"}}), "values.uuid may not be set"),
        (json!({"values": {"hostname": "x"}}), "values.hostname may not be set"),
        (json!({"source": ETAG}), "has no GitConfig entry"),
        (json!({"chart": null, "charts": [CHART, SECOND, CHART], "values": {"x": 1}, "name": "Join"}), "Join"),
    ] {
        let reason = reason(json.clone());
        assert!(reason.contains(expected), "{json}: {reason}");
    }
}

#[test]
fn templates_at_fault_are_named() {
    let mut catalog = catalog();
    let typo = json!({"chart": "c", "values": {"a": ["{{hostnme}}"]}});
    catalog.set(CHART, "HelmChartTemplate", Some(&typo.to_string()));
    let reason = rendered(json!({}), &catalog).unwrap_err().to_string();
    assert!(
        reason.starts_with(&format!("HelmChartTemplate of {CHART} at $.a[0]: unknown placeholder {{{{hostnme}}}}")),
        "{reason}"
    );
    let nameless = json!({"template": {"apiVersion": "v1", "kind": "HelmRelease", "metadata": {}}, "resources": []});
    catalog.set(known::class::KIND_HELM_RELEASE, "K8sTemplate", Some(&nameless.to_string()));
    catalog.set(CHART, "HelmChartTemplate", Some(r#"{"chart": "c", "values": {}}"#));
    let reason = rendered(json!({}), &catalog).unwrap_err().to_string();
    assert_eq!(reason, "K8sTemplate of kind HelmRelease makes no manifest: metadata/name is missing");
}

#[test]
fn the_template_of_old_stores_is_understood() {
    let mut catalog = Catalog::default();
    catalog.set(CHART, "HelmChartTemplate", Some(r#"{"chart": "edge-agent", "values": {}}"#));
    let old = json!({"resources": [], "template": {"apiVersion": "helm.toolkit.fluxcd.io/v2beta1", "kind": "HelmRelease",
        "metadata": {"name": "{{prefix}}-{{uuid}}"}, "spec": {"chart": "{{chart}}", "values": "{{values}}"}}});
    catalog.set(known::application::K8S_TEMPLATE, "K8sTemplate", Some(&old.to_string()));
    let rendered = rendered(json!({}), &catalog).unwrap();
    assert_eq!(rendered.manifests[0]["metadata"]["name"], format!("edge-agent-{DEPLOYMENT}"));
}

#[test]
fn long_release_names_are_cut_for_helm() {
    let mut catalog = catalog();
    let long = json!({"chart": "a-directory-with-a-rather-long-name", "values": {}});
    catalog.set(CHART, "HelmChartTemplate", Some(&long.to_string()));
    let rendered = rendered(json!({}), &catalog).unwrap();
    let name = rendered.manifests[0]["metadata"]["name"].as_str().unwrap();
    assert_eq!(name.len(), HELM_RELEASE_CHARACTERS_MAX);
}
