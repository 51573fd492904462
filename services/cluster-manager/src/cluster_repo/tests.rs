//! The content of a cluster's repository, from the templates that a fresh store has and from odd ones.

use super::*;
use configdb_schema::known;
use serde_json::json;

const CLUSTER: Uuid = Uuid::from_u128(0xC1);

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    for entry in configdb_schema::defaults::entries() {
        catalog.set(entry.object, entry.application.slug, Some(entry.json));
    }
    catalog
}

fn settings() -> Settings {
    Settings {
        organisation: "ACME".to_owned(),
        git: GitAddress { own: "https://git.acme.example".to_owned(), external: None },
        mqtt_servers: vec!["mqtts://broker:8883".to_owned()],
        mqtt_secret: Some("mqtt".to_owned()),
        quarantine: None,
        realm: None,
    }
}

fn spec(json: Value) -> EdgeCluster {
    let spec = json!({"name": "Paint_Shop", "namespace": "fplus-edge"});
    serde_json::from_value(manifests::merge::combine(spec, &json)).unwrap()
}

fn rendered(json: Value, catalog: &Catalog) -> Result<ClusterRepo, ClusterRepoError> {
    render(CLUSTER, &spec(json), catalog, &settings(), &BTreeMap::new())
}

fn text(repo: &ClusterRepo, file: &str) -> String {
    String::from_utf8(repo.files.owned[file].clone()).unwrap()
}

fn parsed(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(yaml).unwrap()
}

#[test]
fn the_shared_charts_stay_where_they_are_pinned() {
    let pins = BTreeMap::from([(known::repository::HELM_CHARTS, GitRef::Tag("v2".to_owned()))]);
    let repo = render(CLUSTER, &spec(json!({})), &catalog(), &settings(), &pins).unwrap();
    let charts = parsed(&text(&repo, "helm-charts.yaml"));
    assert_eq!(charts[0]["spec"]["ref"], json!({"tag": "v2"}));
    // Its own repository must be followed: nothing could ever be taken back otherwise.
    assert_eq!(parsed(&repo.self_link)[3]["spec"]["ref"], json!({"branch": "main"}));
}

#[test]
fn the_default_templates_make_the_repository_of_factory_plus() {
    let repo = rendered(json!({}), &catalog()).unwrap();
    let names: Vec<_> = repo.files.owned.keys().map(String::as_str).collect();
    assert_eq!(names, ["edge-cluster.yaml", "helm-charts.yaml", "rights.yaml", "self-link.yaml"]);
    assert_eq!(repo.files.directory.as_deref(), Some("edo/cluster"));
    assert_eq!(repo.files.initial.keys().collect::<Vec<_>>(), ["README.md", "by-hand/.gitkeep"]);
    let [release] = &parsed(&text(&repo, "edge-cluster.yaml"))[..] else { panic!("one document") };
    assert_eq!(release["metadata"]["name"], format!("edge-cluster-{CLUSTER}"));
    assert_eq!(release["metadata"]["namespace"], "fplus-edge");
    assert_eq!(
        release["spec"]["values"],
        json!({
            "organisation": "ACME",
            "mqtt": {"servers": ["mqtts://broker:8883"], "secretName": "mqtt"},
            "cluster": {"name": "Paint_Shop", "uuid": CLUSTER.to_string()},
        })
    );
    assert_eq!(release["spec"]["serviceAccountName"], FLUX_ACCOUNT);
    let links = parsed(&repo.self_link);
    let kinds: Vec<_> = links.iter().map(|link| link["kind"].as_str().unwrap()).collect();
    // What follows the repository does so with rights that must be there before.
    assert_eq!(kinds, ["Namespace", "ServiceAccount", "ClusterRoleBinding", "GitRepository", "Kustomization"]);
    assert_eq!(links[3]["spec"]["url"], "https://git.acme.example/git/cluster/Paint_Shop");
    assert_eq!(links[4]["spec"]["serviceAccountName"], FLUX_ACCOUNT);
    assert_eq!(links[..3], parsed(&text(&repo, "rights.yaml")));
    assert!(links[..3].iter().all(|link| link["metadata"]["labels"][STAYS] == "disabled"), "{links:?}");
    let charts = parsed(&text(&repo, "helm-charts.yaml"));
    assert_eq!(charts[0]["spec"]["url"], "https://git.acme.example/git/shared/helm");
}

#[test]
fn a_cluster_that_was_admitted_by_the_script_keeps_the_way_back() {
    for (certificate, username) in [(true, None), (false, Some("ACME-Enrol"))] {
        let username = username.map(str::to_owned);
        let settings =
            Settings { quarantine: Some(Quarantine { certificate, username: username.clone() }), ..settings() };
        let repo = render(CLUSTER, &spec(json!({})), &catalog(), &settings, &BTreeMap::new()).unwrap();
        let release = parsed(&text(&repo, "edge-cluster.yaml"))[0].clone();
        let identity = &release["spec"]["values"]["identity"];
        assert_eq!(
            (&identity["enrolmentSecret"], &identity["certificate"]),
            (&json!("sparkfleet-enrolment"), &json!(certificate))
        );
        assert_eq!(identity["username"].as_str(), username.as_deref());
    }
}

#[test]
fn a_site_with_a_kdc_gets_the_keys_of_its_accounts_and_their_definitions_before() {
    let settings = Settings { realm: Some("ACME.EXAMPLE".to_owned()), ..settings() };
    let repo = render(CLUSTER, &spec(json!({})), &catalog(), &settings, &BTreeMap::new()).unwrap();
    let documents = parsed(&text(&repo, "kerberos.yaml"));
    let kinds: Vec<&str> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["CustomResourceDefinition", "CustomResourceDefinition", "KerberosKey", "KerberosKey"]);
    for definition in &documents[..2] {
        // Taking the KDC out of the configuration must not delete every key of the cluster.
        assert_eq!(definition["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/prune"], "disabled");
    }
    assert_eq!(documents[2]["metadata"], json!({"name": "op1flux", "namespace": "fplus-edge"}));
    let flux = json!({"type": "PresetPassword", "principal": "op1flux/Paint_Shop@ACME.EXAMPLE", "secret": "flux-secrets/password"});
    let krbkeys = json!({"type": "Random", "principal": "op1krbkeys/Paint_Shop@ACME.EXAMPLE", "secret": "krb-keys-keytabs/client"});
    assert_eq!([&documents[2]["spec"], &documents[3]["spec"]], [&flux, &krbkeys]);
}

#[test]
fn a_namespace_lets_no_pod_at_its_host_unless_the_cluster_says_so() {
    for (spec, level) in [(json!({}), "baseline"), (json!({"podSecurity": "privileged"}), "privileged")] {
        let namespace = parsed(&text(&rendered(spec, &catalog()).unwrap(), "rights.yaml"))[0].clone();
        assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], level);
        // The script puts the same annotation on: applying the other's manifest takes nothing away.
        assert_eq!(namespace["metadata"]["annotations"][bootstrap::CLUSTER_ANNOTATION], CLUSTER.to_string());
    }
}

#[test]
fn values_of_the_configuration_win_but_not_over_the_identity() {
    let repo =
        rendered(json!({"values": {"sealedSecrets": {"enabled": false}, "organisation": "X"}}), &catalog()).unwrap();
    let release = parsed(&text(&repo, "edge-cluster.yaml"))[0].clone();
    assert_eq!(release["spec"]["values"]["sealedSecrets"]["enabled"], false);
    assert_eq!(release["spec"]["values"]["organisation"], "X");
    let error = rendered(json!({"values": {"cluster": {"name": "Y"}}}), &catalog()).unwrap_err().to_string();
    assert!(error.contains("values.cluster.name may not be set"), "{error}");
}

#[test]
fn yaml_of_tricky_texts_means_the_same_to_a_reader_of_yaml_1_1() {
    let tricky = [
        "yes",
        "no",
        "on",
        "off",
        "y",
        "n",
        "~",
        "null",
        "true",
        "1_000",
        "0x1f",
        "0o17",
        "012",
        "1e3",
        ".5",
        "2001-01-01",
        "<<",
        "=",
        "- a",
        "a: b",
        "# c",
        "'",
        "\"",
        "\\",
        "*x",
        "&x",
        "!x",
        "%x",
        "@x",
        "`x",
        "{a}",
        "[a]",
        " lead",
        "trail ",
        "a\nb\n",
        "\ttab",
        "",
        "é",
        "12:30:45",
        "? x",
        "| x",
        "> x",
    ];
    let mut catalog = catalog();
    let data: serde_json::Map<String, Value> =
        tricky.iter().enumerate().map(|(n, text)| (format!("k{n}"), json!(text))).collect();
    let keys: serde_json::Map<String, Value> = tricky.iter().map(|text| ((*text).to_owned(), json!(1))).collect();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data, "keys": keys});
    let template = json!({"self-link.yaml": [map, map]});
    catalog.set(known::application::FLUX_TEMPLATE, "FluxTemplate", Some(&template.to_string()));
    let repo = rendered(json!({}), &catalog).unwrap();
    assert_eq!(parsed(&repo.self_link)[3..], [map.clone(), map.clone()]);
    // The words that YAML 1.1 reads as something else than text are quoted.
    for word in ["yes", "no", "on", "off", "y", "n", "1_000", "0x1f", "2001-01-01", "12:30:45", "="] {
        assert!(!repo.self_link.contains(&format!(": {word}\n")), "{word} is not quoted");
        assert!(!repo.self_link.contains(&format!("  {word}:")), "key {word} is not quoted");
    }
}

#[test]
fn a_chart_from_elsewhere_brings_its_repository() {
    let mut catalog = catalog();
    let source = Uuid::from_u128(0x50);
    let chart = json!({"chart": "mine", "values": {}, "source": source});
    catalog.set(known::chart::CLUSTER, "HelmChartTemplate", Some(&chart.to_string()));
    let error = rendered(json!({}), &catalog).unwrap_err().to_string();
    assert!(error.contains("has no GitConfig entry"), "{error}");
    catalog.set(source, "GitConfig", Some(r#"{"path": "shared/site"}"#));
    let repo = rendered(json!({}), &catalog).unwrap();
    let repository = parsed(&text(&repo, "edge-cluster-source.yaml"))[0].clone();
    assert_eq!(repository["metadata"]["name"], format!("helm-{source}"));
    assert_eq!(repository["metadata"]["namespace"], "fplus-edge");
    let release = parsed(&text(&repo, "edge-cluster.yaml"))[0].clone();
    assert_eq!(release["spec"]["chart"]["spec"]["sourceRef"]["name"], format!("helm-{source}"));
}

#[test]
fn a_template_at_fault_is_named() {
    let mut catalog = catalog();
    let mut set = |template: Value| {
        catalog.set(known::application::FLUX_TEMPLATE, "FluxTemplate", Some(&template.to_string()));
        rendered(json!({}), &catalog).unwrap_err().to_string()
    };
    let error = set(json!({"self-link.yaml": ["{{url.slef}}"]}));
    assert!(
        error.starts_with("FluxTemplate self-link.yaml, document 1 at $: unknown placeholder {{url.slef}}"),
        "{error}"
    );
    let error = set(json!({"self-link.yaml": [], "x.yaml": ["{{namespace}}"]}));
    assert_eq!(error, "Flux template, x.yaml, document 1: must be a manifest with apiVersion, kind and metadata.name");
    assert!(rendered(json!({}), &Catalog::default()).unwrap_err().to_string().contains("HelmChartTemplate"));
}
