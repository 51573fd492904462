//! Each table, as it is for a user of one cluster of two.

use access::Grant;
use configdb_schema::document::TokenScope;
use sparkplug::EdgeNodeDescriptor;

use super::*;

const MARKS: EventMarks = EventMarks::new([7; 16]);
const OWN: Uuid = Uuid::from_u128(0xA);
const OTHER: Uuid = Uuid::from_u128(0xB);
const DEPLOYMENT: Uuid = Uuid::from_u128(0xDA);
const FOREIGN: Uuid = Uuid::from_u128(0xDB);

fn principal(clusters: Option<&[Uuid]>) -> Principal {
    let grants = vec![Grant {
        scope: TokenScope::Operator,
        clusters: clusters.map(|clusters| clusters.iter().copied().collect()),
    }];
    Principal { name: "token:ada".to_owned(), grants }
}

fn sight() -> Sight {
    Sight::of(&principal(Some(&[OWN])), "ACME", MARKS).unwrap()
}

fn table<const N: usize>(rows: [(&str, Value); N]) -> Arc<Table> {
    Arc::new(rows.into_iter().map(|(key, row)| (key.to_owned(), row)).collect())
}

fn node(text: &str) -> TableName {
    let (group, node) = text.split_once('/').unwrap();
    TableName::Metrics(EdgeNodeDescriptor::parse(group, node).unwrap())
}

/// Every table of a fleet with the clusters Paint_Shop, which the user sees, and Press_Shop.
// long: a table each.
fn fleet() -> BTreeMap<TableName, Arc<Table>> {
    let (own, other) = (OWN.to_string(), OTHER.to_string());
    let (deployment, foreign) = (DEPLOYMENT.to_string(), FOREIGN.to_string());
    let good = |cluster: &str| json!({ "cluster": cluster, "health": "good", "acknowledged": null });
    let waits = json!({ "name": "Paint_Shop", "state": "waits", "reason": "Press_Shop has not settled" });
    let blocks = json!({ "name": "Press_Shop", "state": "blocks", "reason": "its pods do not start" });
    BTreeMap::from([
        (
            TableName::Clusters,
            table([
                (
                    &own,
                    json!({ "name": "Paint_Shop", "health": "working", "reasons": ["waits for Press_Shop, wave 1"] }),
                ),
                (&other, json!({ "name": "Press_Shop", "health": "attention", "reasons": [] })),
            ]),
        ),
        (TableName::Hosts, table([("Paint_Shop/a", good("Paint_Shop")), ("Press_Shop/b", good("Press_Shop"))])),
        (
            TableName::Deployments,
            table([
                (&deployment, good("Paint_Shop")),
                (&foreign, json!({ "cluster": "Press_Shop", "health": "away" })),
            ]),
        ),
        (
            TableName::Alerts,
            table([("1", good("Paint_Shop")), ("2", good("Press_Shop")), ("3", json!({ "cluster": null }))]),
        ),
        (
            TableName::Rollout,
            table([
                (
                    "agent",
                    json!({ "blocked": "Press_Shop has not settled", "waves": [
                        { "wave": 1, "clusters": [blocks.clone()] }, { "wave": 2, "clusters": [waits] }] }),
                ),
                ("other", json!({ "blocked": null, "waves": [{ "wave": 1, "clusters": [blocks] }] })),
            ]),
        ),
        (TableName::Fleet, table([("fleet", json!({ "clusters": { "good": 99 } }))])),
        (
            TableName::Events,
            table([
                ("7", json!({ "cluster": "Paint_Shop", "text": "waits for Press_Shop" })),
                ("8", good("Press_Shop")),
            ]),
        ),
        (
            TableName::Services,
            table([
                ("ACME-Paint_Shop/Sync", json!({})),
                ("ACME-Press_Shop/Sync", json!({})),
                ("ACME-Central/ConfigDB", json!({})),
            ]),
        ),
        (
            TableName::Nodes,
            table([
                ("ACME-Paint_Shop/Sync", json!({})),
                ("ACME-Paint_Shop-Join/disk", json!({})),
                ("ACME-Press_Shop/Sync", json!({})),
                ("Paint_Shop/Gateway", json!({})),
                ("ACME-Paint_Shop2/Sync", json!({})),
            ]),
        ),
        (node("ACME-Paint_Shop/Sync"), table([("|A", json!({}))])),
        (node("ACME-Press_Shop/Sync"), table([("|A", json!({}))])),
        (
            TableName::Actions,
            table([
                ("1", json!({ "cluster": own, "who": "token:ben" })),
                ("2", json!({ "cluster": other, "who": "token:ben" })),
                ("3", json!({ "cluster": null, "who": "token:ada" })),
                ("4", json!({ "cluster": null, "who": "token:ben" })),
            ]),
        ),
        (
            TableName::Objects,
            table([(&own, json!({})), (&other, json!({})), (&deployment, json!({})), (&foreign, json!({}))]),
        ),
        (TableName::Entries(OWN), table([("EdgeCluster", json!({}))])),
        (TableName::Entries(OTHER), table([("EdgeCluster", json!({}))])),
        (TableName::Entries(DEPLOYMENT), table([("EdgeDeployment", json!({}))])),
        (TableName::Entries(FOREIGN), table([("EdgeDeployment", json!({}))])),
        (TableName::Manifests(DEPLOYMENT), table([("000", json!({}))])),
        (TableName::Manifests(FOREIGN), table([("000", json!({}))])),
        (TableName::History(OWN), table([("1", json!({}))])),
        (TableName::History(OTHER), table([("1", json!({}))])),
        (TableName::Applications, table([("EdgeCluster", json!({}))])),
        (TableName::Policies, table([(&own, json!({})), (&other, json!({}))])),
        (
            TableName::Secrets,
            table([
                ("a/n/s", json!({ "cluster": "Paint_Shop", "reason": "beside Press_Shop" })),
                ("b/n/s", json!({ "cluster": "Press_Shop" })),
            ]),
        ),
        (
            TableName::Console,
            table([(
                "console",
                json!({ "online": true, "missing": ["edge sync of Press_Shop"], "reasons": ["edge sync of Press_Shop"] }),
            )]),
        ),
    ])
}

#[test]
fn of_each_table_a_user_of_one_cluster_sees_the_rows_of_that_cluster() {
    let (fleet, sight) = (fleet(), sight());
    let keys = |name: &TableName| sight.table(name, &fleet).into_keys().collect::<Vec<_>>();
    let (own, deployment) = (OWN.to_string(), DEPLOYMENT.to_string());
    for (name, expected) in [
        (TableName::Clusters, vec![own.as_str()]),
        (TableName::Hosts, vec!["Paint_Shop/a"]),
        (TableName::Deployments, vec![deployment.as_str()]),
        (TableName::Alerts, vec!["1"]),
        (TableName::Rollout, vec!["agent"]),
        (TableName::Fleet, vec!["fleet"]),
        (TableName::Events, vec![&*MARKS.mark(7)]),
        (TableName::Services, vec!["ACME-Paint_Shop/Sync"]),
        (TableName::Nodes, vec!["ACME-Paint_Shop-Join/disk", "ACME-Paint_Shop/Sync"]),
        (node("ACME-Paint_Shop/Sync"), vec!["|A"]),
        (node("ACME-Press_Shop/Sync"), vec![]),
        (TableName::Actions, vec!["1", "3"]),
        (TableName::Objects, vec![own.as_str(), deployment.as_str()]),
        (TableName::Entries(OWN), vec!["EdgeCluster"]),
        (TableName::Entries(OTHER), vec![]),
        (TableName::Entries(DEPLOYMENT), vec!["EdgeDeployment"]),
        (TableName::Entries(FOREIGN), vec![]),
        (TableName::Manifests(DEPLOYMENT), vec!["000"]),
        (TableName::Manifests(FOREIGN), vec![]),
        (TableName::History(OWN), vec!["1"]),
        (TableName::History(OTHER), vec![]),
        (TableName::Applications, vec![]),
        (TableName::Policies, vec![own.as_str()]),
        (TableName::Secrets, vec!["a/n/s"]),
        (TableName::Console, vec!["console"]),
    ] {
        assert_eq!(keys(&name), expected, "{name}");
        let text = json!(sight.table(&name, &fleet)).to_string();
        assert!(!text.contains("Press_Shop") && !text.contains(&OTHER.to_string()), "{name}: {text}");
    }
    assert!(TableName::FIXED.iter().all(|name| fleet.contains_key(name)), "a table is not tried");
}

#[test]
fn what_is_needed_for_a_table_is_enough() {
    let (fleet, sight) = (fleet(), sight());
    for name in fleet.keys() {
        let known = Sight::needs(name).iter().chain([name]).map(|name| (name.clone(), Arc::clone(&fleet[name])));
        assert_eq!(sight.table(name, &known.collect()), sight.table(name, &fleet), "{name}");
    }
}

#[test]
fn counts_are_those_of_the_rows_that_are_seen() {
    let row = &sight().table(&TableName::Fleet, &fleet())["fleet"];
    let one = |word: &str| {
        let count = |name: &str| u64::from(name == word);
        json!({ "good": count("good"), "working": count("working"), "attention": 0, "away": 0 })
    };
    assert_eq!((&row["clusters"], &row["hosts"], &row["deployments"]), (&one("working"), &one("good"), &one("good")));
    assert_eq!((&row["alerts"], &row["rollout"]), (&json!(1), &json!("1 clusters wait for an earlier wave")));
}

#[test]
fn a_refused_cluster_does_not_lend_the_rows_of_the_one_whose_name_it_has() {
    let clusters = table([
        (&OWN.to_string(), json!({ "name": "Press_Shop", "setup": "refused" })),
        (&OTHER.to_string(), json!({ "name": "Press_Shop", "setup": "ready" })),
    ]);
    let known =
        BTreeMap::from([(TableName::Clusters, clusters), (TableName::Hosts, Arc::clone(&fleet()[&TableName::Hosts]))]);
    assert!(sight().table(&TableName::Hosts, &known).is_empty());
    assert_eq!(sight().table(&TableName::Clusters, &known).len(), 1);
}

#[test]
fn who_has_a_credential_for_all_clusters_has_no_sight_that_is_limited() {
    assert_eq!(Sight::of(&principal(None), "ACME", MARKS), None);
    let mut both = principal(Some(&[OWN]));
    both.grants.extend(principal(None).grants);
    assert_eq!(Sight::of(&both, "ACME", MARKS), None);
    let stranger = Principal { name: "oidc:eve".to_owned(), grants: Vec::new() };
    assert!(Sight::of(&stranger, "ACME", MARKS).unwrap().table(&TableName::Hosts, &fleet()).is_empty());
}
