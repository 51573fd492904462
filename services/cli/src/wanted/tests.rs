//! Files, and what they make of a bench.

use configdb_schema::document::{HelmChartTemplate, Info};
use configdb_schema::known;
use fleet_view::bench::{Bench, CLUSTER, NAME};
use proptest::prelude::*;

use super::*;

const OVEN: Uuid = Uuid::from_u128(0x0E);

fn author() -> Author {
    Author { id: "r".to_owned(), writer: "ada".to_owned() }
}

fn bench() -> Bench {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", None);
    bench
}

fn planned(bench: &Bench, text: &str, prune: bool) -> anyhow::Result<Vec<Change>> {
    plan(&bench.fleet, &read(text, "site.yaml")?, prune, 1_800_000_000_000, author)
}

fn shown(changes: &[Change]) -> Vec<String> {
    changes.iter().map(|change| format!("{} {} {}", change.kind, change.name, change.change)).collect()
}

#[test]
fn a_file_names_what_there_is_to_be_and_what_it_does_not_name_stays() {
    let bench = bench();
    let text = format!(
        "kind: Cluster\nname: {NAME}\nwave: 2\n---\nkind: Deployment\ncluster: {NAME}\nname: Oven\nvalues: {{ a: {{ b: 1 }} }}\n"
    );
    let changes = planned(&bench, &text, false).unwrap();
    assert_eq!(shown(&changes), ["cluster Paint_Shop changed", "deployment Paint_Shop/Oven changed"]);
    let [cluster, oven] = &changes[..] else { panic!("{changes:#?}") };
    let written = cluster.write.as_ref().unwrap();
    assert_eq!(
        written.entries.keys().collect::<Vec<_>>(),
        ["EdgeClusterRollout"],
        "its own entry is not written again"
    );
    assert_eq!(cluster.differences[0].place, "EdgeClusterRollout.wave");
    let (written, slug) = (oven.write.as_ref().unwrap(), EdgeDeployment::slug());
    let entry = written.entries[slug].as_ref().unwrap();
    let before = bench.fleet.config.entry(OVEN, slug).unwrap();
    assert_eq!(written.if_match[slug], Some(before.etag), "another writer's change is not overwritten");
    let mut expected = before.value().unwrap();
    expected["values"] = json!({ "a": { "b": 1 } });
    assert_eq!(entry, &expected);
    let place = &oven.differences[0];
    assert_eq!((place.place.as_str(), &place.after), ("EdgeDeployment.values.a.b", &Some(json!(1))));
}

#[test]
fn what_is_as_it_is_wanted_is_not_written() {
    let mut bench = bench();
    let chart = "00000000-0000-0000-0000-0000000000ca";
    let entry = EdgeDeployment {
        cluster: CLUSTER,
        name: "Oven".to_owned(),
        chart: Some(chart.parse().unwrap()),
        hostname: Some("paint-1".to_owned()),
        ..EdgeDeployment::default()
    };
    bench.entry(OVEN, &entry);
    let deployment = format!("kind: Deployment\ncluster: {CLUSTER}\nname: Oven\nchart: {chart}\n");
    let text = format!("kind: Cluster\nname: {NAME}\nbare: false\n---\n{deployment}host: paint-1\n");
    let changes = planned(&bench, &text, true).unwrap();
    assert_eq!(shown(&changes), ["cluster Paint_Shop unchanged", "deployment Paint_Shop/Oven unchanged"]);
    assert!(changes.iter().all(|change| change.write.is_none() && change.differences.is_empty()), "{changes:#?}");
    let floating = planned(&bench, &format!("{deployment}host: null\n"), false).unwrap();
    let [difference] = &floating[0].differences[..] else { panic!("{floating:#?}") };
    assert_eq!((difference.place.as_str(), &difference.after), ("EdgeDeployment.hostname", &None));
    assert_eq!(planned(&bench, &deployment, false).unwrap()[0].change, "unchanged", "a host that is not named stays");
}

#[test]
fn a_deployment_is_suspended_or_resumed_only_where_a_file_says_so() {
    let mut bench = bench();
    let slug = EdgeDeployment::slug();
    let of = |bench: &Bench, suspend: &str| {
        let text = format!("kind: Deployment\ncluster: {NAME}\nname: Oven\n{suspend}");
        let change = planned(bench, &text, false).unwrap().remove(0);
        change.write.map(|write| write.entries[slug].clone().unwrap())
    };
    let suspended = of(&bench, "suspend: true\n").unwrap();
    assert_eq!((&suspended["suspend"], of(&bench, "suspend: false\n")), (&json!(true), None));
    bench.entry(OVEN, &serde_json::from_value::<EdgeDeployment>(suspended).unwrap());
    assert_eq!((of(&bench, ""), of(&bench, "suspend: true\n")), (None, None));
    assert_eq!(of(&bench, "suspend: false\n").unwrap().get("suspend"), None);
    let new = format!("kind: Deployment\ncluster: {NAME}\nname: New\nsuspend: true\nchart: {OVEN}\n");
    let new = planned(&bench, &new, false).unwrap().remove(0).write.unwrap();
    assert_eq!(new.entries[slug].as_ref().unwrap()["suspend"], true);
}

#[test]
fn a_cluster_and_its_deployments_are_created_together_and_again_are_the_same() {
    let bench = bench();
    let chart = "00000000-0000-0000-0000-0000000000ca";
    let text = format!(
        "kind: Deployment\ncluster: Body_Shop\nname: Press\nchart: {chart}\n---\nkind: Cluster\nname: Body_Shop\nnamespace: edge\nbare: true\nwave: 1\n"
    );
    let changes = planned(&bench, &text, true).unwrap();
    assert_eq!(shown(&changes), ["deployment Body_Shop/Press created", "cluster Body_Shop created"]);
    let [press, body] = &changes[..] else { panic!("{changes:#?}") };
    let entry = body.write.as_ref().unwrap().entries[EdgeCluster::slug()].as_ref().unwrap();
    assert_eq!((&entry["namespace"], &entry["bare"]), (&json!("edge"), &json!(true)));
    let entry = press.write.as_ref().unwrap().entries[EdgeDeployment::slug()].as_ref().unwrap();
    assert_eq!(entry["cluster"], json!(body.uuid));
    assert!(press.write.as_ref().unwrap().if_match.values().all(Option::is_none), "only if there is none yet");
    assert_eq!(planned(&bench, &text, true).unwrap()[1].uuid, body.uuid);
}

#[test]
fn only_what_clusters_of_the_files_have_is_pruned() {
    let mut bench = bench();
    bench.cluster(Uuid::from_u128(0xB), "Body_Shop", |_| {});
    let press = EdgeDeployment { cluster: Uuid::from_u128(0xB), name: "Press".to_owned(), ..EdgeDeployment::default() };
    bench.entry(Uuid::from_u128(0x1E), &press);
    let cluster = format!("kind: Cluster\nname: {NAME}\n");
    assert_eq!(planned(&bench, &cluster, false).unwrap().len(), 1);
    let changes = planned(&bench, &cluster, true).unwrap();
    assert_eq!(shown(&changes), ["cluster Paint_Shop unchanged", "deployment Paint_Shop/Oven deleted"]);
    assert_eq!(changes[1].write.as_ref().unwrap().entries[EdgeDeployment::slug()], None);
    let nothing = planned(&bench, "kind: Deployment\ncluster: Body_Shop\nname: Press\n", true).unwrap();
    assert_eq!(shown(&nothing), ["deployment Body_Shop/Press unchanged"], "its cluster is not of the files");
}

#[test]
fn of_clusters_with_one_name_none_is_chosen() {
    let mut bench = bench();
    bench.cluster(Uuid::from_u128(0xB), NAME, |_| {});
    let error = planned(&bench, &format!("kind: Cluster\nname: {NAME}\n"), false).unwrap_err();
    assert!(error.to_string().contains("several clusters"), "{error}");
    planned(&bench, "kind: Cluster\nname: Body_Shop\n", false).unwrap();
}

#[test]
fn an_entry_of_any_application_is_written_as_it_is() {
    let bench = bench();
    let text = format!("kind: Entry\nobject: {CLUSTER}\napplication: Info\nvalue: {{ name: Paint_Shop, note: x }}\n");
    let changes = planned(&bench, &text, false).unwrap();
    assert_eq!(changes[0].write.as_ref().unwrap().entries["Info"], Some(json!({ "name": "Paint_Shop", "note": "x" })));
}

#[test]
fn what_is_wrong_is_named_with_its_file_and_document() {
    for (text, part) in [
        ("kind: Clutser\nname: x\n", "site.yaml: document 1"),
        ("---\nkind: Cluster\nname: A\n---\nkind: Cluster\nname: B\ncolour: red\n", "document 2"),
        ("kind: [", "site.yaml is neither YAML nor JSON"),
        ("kind: Cluster\nname: Paint Shop\n", "name: "),
        ("kind: Deployment\ncluster: Paint_Shp\nname: x\n", "did you mean \"Paint_Shop\"?"),
        ("kind: Entry\nobject: Nothing\napplication: Info\nvalue: {}\n", "there is no object named"),
        ("kind: Cluster\nname: A\n---\nkind: Cluster\nname: A\n", "two documents are about cluster A"),
    ] {
        let error = format!("{:#}", planned(&bench(), text, false).unwrap_err());
        assert!(error.contains(part), "{text}: {error}");
    }
    assert!(read("---\n---\n", "empty").unwrap().is_empty());
}

/// Values of a chart; some are what an entry without them means.
fn any_values() -> impl Strategy<Value = JsonObject> {
    let value = prop_oneof![
        Just(json!(null)),
        Just(json!({})),
        any::<bool>().prop_map(|truth| json!(truth)),
        any::<i32>().prop_map(|number| json!({ "number": number })),
        "\\PC{0,4}".prop_map(|text| json!([text])),
    ];
    proptest::collection::btree_map("[a-c]", value, 0..3).prop_map(|values| values.into_iter().collect())
}

/// What files may want of two clusters, one of which is there, and of deployments on them.
fn any_wanted() -> impl Strategy<Value = Vec<Wanted>> {
    use proptest::option::of;
    let cluster = (of(Just("edge".to_owned())), of(any::<bool>()), of(1..=9_u8), of(any_values()));
    let host = of(of(Just("paint-1".to_owned())));
    let deployment = (of(Just("Edge agent".to_owned())), host, of(any_values()));
    let clusters = proptest::collection::btree_map(prop_oneof![Just(NAME), Just("Body_Shop")], cluster, 0..3);
    let deployments = proptest::collection::btree_map("Oven|Press|Saw", deployment, 0..3);
    (clusters, deployments).prop_map(|(clusters, deployments)| {
        let clusters = clusters.into_iter().map(|(name, (namespace, bare, wave, values))| Wanted::Cluster {
            name: name.to_owned(),
            namespace,
            bare,
            wave,
            values,
        });
        let deployments = deployments.into_iter().map(|(name, (chart, host, values))| Wanted::Deployment {
            cluster: NAME.to_owned(),
            name,
            chart,
            host,
            values,
            suspend: None,
        });
        clusters.chain(deployments).collect()
    })
}

proptest! {
    #[test]
    fn what_is_applied_is_unchanged_the_second_time_and_each_difference_is_one(wanted in any_wanted(), prune in any::<bool>()) {
        let mut bench = bench();
        bench.entry(known::chart::EDGE_AGENT, &HelmChartTemplate::default());
        bench.entry(known::chart::EDGE_AGENT, &Info { name: "Edge agent".to_owned(), ..Info::default() });
        let first = plan(&bench.fleet, &wanted, prune, 1_800_000_000_000, author).unwrap();
        for change in &first {
            prop_assert_eq!(change.write.is_none(), change.change == "unchanged", "{:?}", change);
            prop_assert_eq!(change.differences.is_empty(), matches!(change.change, "unchanged" | "deleted"), "{:?}", change);
            for difference in &change.differences {
                prop_assert_ne!(&difference.before, &difference.after, "{:?}", change);
            }
            if let Some(write) = &change.write {
                prop_assert_eq!(write.if_match.keys().collect::<Vec<_>>(), write.entries.keys().filter(|slug| change.change != "deleted" || *slug == EdgeDeployment::slug()).collect::<Vec<_>>());
            }
        }
        first.iter().filter_map(|change| change.write.as_ref()).for_each(|write| bench.apply(write));
        // A later time does not make the same documents want something else.
        let second = plan(&bench.fleet, &wanted, prune, 1_900_000_000_000, author).unwrap();
        prop_assert!(second.iter().all(|change| change.change == "unchanged"), "{:#?}\n{:#?}", first, second);
        prop_assert_eq!(second.len() + first.iter().filter(|change| change.change == "deleted").count(), first.len());
    }
}
