//! A cluster is set up, its configuration changes, and what is wrong with one is refused.

use super::*;

#[test]
fn a_cluster_is_set_up_step_by_step_and_recorded() {
    let mut world = World::new(Kill::Never);
    world.put_cluster(CLUSTER, "Paint_Shop");
    world.settle();
    let device = world.device();
    assert_eq!((device.setup.state, device.setup.step), (SetupState::Ready, SetupStep::Ready));
    assert_eq!(device.group, "ACME-Paint_Shop");
    assert_eq!(device.git_url.as_deref(), Some("http://git/git/cluster/Paint_Shop"));
    assert!(device.git_commit.is_some() && device.setup.reason.is_none());
    let (flux, krbkeys) = (World::account("flux"), World::account("krbkeys"));
    let setup = world.db.json(CLUSTER, "EdgeClusterSetup").unwrap();
    assert_eq!(setup["spec"], json!({"name": "Paint_Shop", "namespace": "fplus-edge"}));
    assert_eq!(setup["flux"], json!({"uuid": flux, "done": true}));
    assert_eq!(setup["krbkeys"], json!({"uuid": krbkeys, "done": true}));
    assert_eq!(
        (&setup["ready"], &setup["fluxVersion"], &setup["error"]),
        (&json!(true), &json!("2.7.5"), &Value::Null)
    );
    assert!(setup["self_link"].as_str().unwrap().contains("http://git/git/cluster/Paint_Shop"));
    assert_eq!(world.db.json(CLUSTER, "SparkplugAddress").unwrap(), json!({"group_id": "ACME-Paint_Shop"}));
    assert_eq!(world.db.json(CLUSTER, "GitConfig").unwrap(), json!({"path": "cluster/Paint_Shop"}));
    assert!(world.db.objects[&CLUSTER].member_of.contains(&known::class::REPO_GROUP_CLUSTER));
    assert_eq!(world.db.json(flux, "Info").unwrap(), json!({"name": "Edge flux: Paint_Shop"}));
    assert_eq!(world.db.objects[&krbkeys].class, known::class::EDGE_SERVICE_ACCOUNT);
    assert_eq!(world.disk.open, [(CLUSTER, "cluster/Paint_Shop".to_owned())].into());
    assert!(world.expected.contains("ACME-Paint_Shop/Sync"));
    assert_eq!((world.node.clusters_total, world.node.clusters_ready), (1, 1));
}

#[test]
fn a_commit_is_sent_to_the_edge_until_the_edge_reports_it() {
    let mut world = running();
    assert_eq!(world.edges["Paint_Shop"].node.source_version, None, "a Sync that cannot do it gets nothing");
    let mut edge = world.edges.remove("Paint_Shop").unwrap();
    edge.node.source_version = Some(0);
    edge.deaf = true;
    let events = edge.birth();
    world.edges.insert("Paint_Shop".to_owned(), edge);
    world.feed(events);
    world.settle();
    let edge = world.edges.get_mut("Paint_Shop").unwrap();
    assert!(edge.commands > 1, "it is said again");
    edge.deaf = false;
    world.run(Duration::from_secs(120));
    let commit = |world: &World| world.device().git_commit.clone().expect("the repository is written");
    let reported = |world: &World| world.edges["Paint_Shop"].node.source_commit.map(|commit| commit.to_string());
    assert_eq!(reported(&world), Some(commit(&world)));
    assert_eq!(world.edges["Paint_Shop"].node.source_charts, CHARTS.parse().ok(), "that of the charts as well");

    let (before, commands) = (commit(&world), world.edges["Paint_Shop"].commands);
    world.put(CLUSTER, "EdgeCluster", json!({"name": "Paint_Shop", "namespace": "fplus-edge", "values": {"a": 1}}));
    world.settle();
    assert_ne!(commit(&world), before);
    assert_eq!(reported(&world), Some(commit(&world)));
    assert_eq!(world.edges["Paint_Shop"].commands, commands + 1, "once, at once");
}

#[test]
fn a_cluster_offers_its_script_to_its_tokens_as_long_as_it_is_set_up() {
    let token = |hash: &str| json!({"hash": hash, "issued": "2026-01-01T00:00:00Z", "expires": "2026-01-02T00:00:00Z", "by": "me"});
    for kill in [Kill::Never, Kill::AfterEach] {
        let mut world = World::new(kill);
        world.put(CLUSTER, "EdgeClusterEnrolment", json!({"tokens": [token("aa")]}));
        world.settle();
        assert!(world.offers.values().all(|grant| grant.values.is_none()), "a token alone does not make a cluster");
        world.put_cluster(CLUSTER, "Paint_Shop");
        world.settle();
        let offer = world.offers[&CLUSTER].values.as_ref().unwrap();
        assert_eq!((offer.name.as_str(), offer.namespace.as_str(), offer.bare), ("Paint_Shop", "fplus-edge", false));
        assert!(offer.self_link.contains("http://git/git/cluster/Paint_Shop") && offer.identity_key.is_none());
        assert_eq!(world.offers[&CLUSTER].tokens, [OfferedToken { hash: "aa".to_owned(), expires: 1_767_312_000_000 }]);
        let url = format!("http://api/bootstrap/{CLUSTER}");
        assert_eq!(world.device().bootstrap.url.as_deref(), Some(url.as_str()));
        let before = world.device().bootstrap.enrolment.clone().expect("the entry that it goes by");

        world.put(CLUSTER, "EdgeClusterIdentity", json!({"key": "k", "authority": ""}));
        world.put(CLUSTER, "EdgeClusterEnrolment", json!({"tokens": [token("bb")], "fence": 1}));
        world.settle();
        assert_eq!(world.offers[&CLUSTER].tokens[0].hash, "bb");
        assert_eq!(world.offers[&CLUSTER].values.as_ref().unwrap().identity_key.as_deref(), Some("k"));
        assert_ne!(world.device().bootstrap.enrolment, Some(before));

        world.put(CLUSTER, "EdgeClusterEnrolment", json!({"tokens": []}));
        world.settle();
        assert!(world.offers.is_empty(), "revoked");
        world.put(CLUSTER, "EdgeClusterEnrolment", json!({"tokens": [token("cc")]}));
        world.delete(CLUSTER, "EdgeCluster");
        world.settle();
        assert!(world.offers.is_empty(), "torn down");
    }
}

#[test]
fn a_sites_own_script_is_used_if_it_can_be_and_else_the_shipped_one_visibly() {
    let mut world = running();
    let object = known::application::BOOTSTRAP_SCRIPT;
    assert_eq!((world.node.bootstrap_script.as_str(), &world.node.bootstrap_error), ("shipped", &None));
    world.put(object, "BootstrapScript", json!({"files": {}, "wrapper": "echo \"$cluster_name\""}));
    // An upgrade of the manager starts another instance of it, which takes what the site wants.
    for _ in 0..2 {
        world.settle();
        assert_eq!((world.node.bootstrap_script.as_str(), &world.node.bootstrap_error), ("site", &None));
        assert_eq!(world.script.as_ref().unwrap().text(), "echo \"$cluster_name\"");
        world.start();
    }
    world.put(object, "BootstrapScript", json!({"files": {}, "wrapper": "echo '{{realm}}'"}));
    world.settle();
    let error = world.node.bootstrap_error.clone().unwrap();
    assert!(error.starts_with("BootstrapScript: wrapper, line 1: nothing is put in"), "{error}");
    assert_eq!((world.node.bootstrap_script.as_str(), &world.script), ("shipped", &None));
    world.delete(object, "BootstrapScript");
    world.settle();
    assert_eq!((world.node.bootstrap_script.as_str(), &world.node.bootstrap_error), ("shipped", &None));
}

#[test]
fn a_changed_configuration_is_followed_and_a_changed_name_is_refused() {
    let mut world = running();
    world.put(CLUSTER, "EdgeCluster", json!({"name": "Paint_Shop", "namespace": "edge-2"}));
    world.settle();
    assert_eq!((world.state(), world.device().namespace.as_str()), (SetupState::Ready, "edge-2"));
    let release = world.disk.repositories[&CLUSTER].owned["edge-cluster.yaml"].clone();
    assert!(String::from_utf8(release).unwrap().contains("namespace: edge-2"));
    world.put(CLUSTER, "EdgeCluster", json!({"name": "Welding", "namespace": "edge-2"}));
    world.settle();
    assert_eq!((world.state(), world.device().name.as_str()), (SetupState::Refused, "Paint_Shop"));
    let reason = world.device().setup.reason.clone().unwrap();
    assert!(reason.contains("cannot be renamed"), "{reason}");
    assert_eq!(world.db.json(CLUSTER, "EdgeClusterSetup").unwrap()["error"], json!(reason));
    assert!(world.device().desired.agreed, "the cluster keeps its name");
    world.put(CLUSTER, "EdgeCluster", json!({"name": "Paint_Shop", "namespace": "edge-2"}));
    world.settle();
    assert_eq!(world.state(), SetupState::Ready);
    assert_eq!(world.db.json(CLUSTER, "EdgeClusterSetup").unwrap().get("error"), None);
}

#[test]
fn a_changed_template_reaches_existing_clusters_and_only_those_it_concerns() {
    let mut world = running();
    world.put_cluster(OTHER, "Welding");
    world.settle();
    let mine = Uuid::from_u128(0xAB);
    world.put(mine, "HelmChartTemplate", json!({"chart": "mine", "values": {"a": 1}}));
    world.put(OTHER, "EdgeCluster", json!({"name": "Welding", "namespace": "fplus-edge", "chart": mine}));
    world.settle();
    let before = world.disk.repositories.clone();
    world.put(mine, "HelmChartTemplate", json!({"chart": "mine", "values": {"a": 2}}));
    world.settle();
    assert_eq!(world.disk.repositories[&CLUSTER], before[&CLUSTER]);
    assert_ne!(world.disk.repositories[&OTHER], before[&OTHER]);
    assert_eq!(world.devices[&OTHER].setup.state, SetupState::Ready);
    let agent = json!({"chart": "edge-agent", "values": {"name": "{{name}}", "new": true}});
    let version = world.edges["Paint_Shop"].deployments[&DEPLOYMENT].version;
    world.put(known::chart::EDGE_AGENT, "HelmChartTemplate", agent);
    world.settle();
    assert!(world.edges["Paint_Shop"].deployments[&DEPLOYMENT].version > version);
    assert!(world.device().desired.agreed);
}

#[test]
fn bad_configurations_are_refused_with_a_reason_and_recover_by_themselves() {
    let cases = [
        (json!({"name": "Paint-Shop", "namespace": "x"}), "only A-Z, a-z, 0-9 and _"),
        (json!({"name": "Central", "namespace": "x"}), "reserved"),
        (json!({"name": "Paint_Shop", "namespace": "No_Namespace"}), "namespace \"No_Namespace\""),
        (json!({"name": "Paint_Shop", "namespace": "x", "chart": OTHER}), "has no HelmChartTemplate entry"),
        (json!({"name": 5, "namespace": "x"}), "EdgeCluster cannot be read"),
        (json!({"name": "Paint_Shop", "namespace": "x", "values": {"cluster": {"uuid": 1}}}), "values.cluster.uuid"),
    ];
    for (config, expected) in cases {
        let mut world = World::new(Kill::Never);
        world.put(CLUSTER, "EdgeCluster", config.clone());
        world.settle();
        assert_eq!(world.state(), SetupState::Refused, "{config}");
        let reason = world.device().setup.reason.clone().unwrap();
        assert!(reason.contains(expected), "{reason}");
        let record = json!({"error": reason});
        assert_eq!(world.db.json(CLUSTER, "EdgeClusterSetup"), Some(record), "nothing but the reason is recorded");
        assert_eq!(world.node.clusters_refused, 1);
        world.put_cluster(CLUSTER, "Paint_Shop");
        world.settle();
        assert_eq!(world.state(), SetupState::Ready, "{config}");
        assert_eq!((world.node.clusters_refused, world.node.clusters_ready), (0, 1));
    }
}

#[test]
fn a_missing_chart_that_appears_ends_the_refusal() {
    let mut world = World::new(Kill::Never);
    world.put(CLUSTER, "EdgeCluster", json!({"name": "A", "namespace": "x", "chart": OTHER}));
    world.settle();
    assert_eq!(world.state(), SetupState::Refused);
    world.put(OTHER, "HelmChartTemplate", json!({"chart": "c", "values": {}}));
    world.settle();
    assert_eq!(world.state(), SetupState::Ready);
}

#[test]
fn the_first_cluster_keeps_a_name_and_the_second_gets_it_when_it_is_free() {
    let mut world = World::new(Kill::Never);
    // The one with the greater UUID is first.
    world.put_cluster(OTHER, "A");
    world.put_cluster(CLUSTER, "A");
    world.settle();
    assert_eq!((world.devices[&OTHER].setup.state, world.state()), (SetupState::Ready, SetupState::Refused));
    assert!(world.device().setup.reason.as_ref().unwrap().contains("is taken by cluster"));
    // Editing the first does not cost it the name, nor does a restart.
    world.put(OTHER, "EdgeCluster", json!({"name": "A", "namespace": "y"}));
    world.start();
    world.settle();
    assert_eq!((world.devices[&OTHER].setup.state, world.state()), (SetupState::Ready, SetupState::Refused));
    world.delete(OTHER, "EdgeCluster");
    world.run(Duration::from_secs(120));
    assert!(!world.devices.contains_key(&OTHER));
    assert_eq!(world.state(), SetupState::Ready);
    assert_eq!(world.disk.open, [(CLUSTER, "cluster/A".to_owned())].into());
}
