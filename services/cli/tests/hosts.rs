//! `sparkfleet host ...`, `policy ...`, `recover ...` and `status` of fleets that someone made up, whole pages as a user reads them; and of the factory, whose hosts have joined.

use std::collections::BTreeMap;

use configdb_schema::document::{
    AttestationPolicy, EndorsementProof, EndorsementRules, EnrolledHost, PcrBank, PcrLock,
};
use edge_sync_contract::{DeploymentState, SyncNode};
use fleet_view::bench::{Bench, CLUSTER, NAME, reported};
use join_service_contract::{HostState, JoinHost};
use serde_json::json;
use uuid::Uuid;

use crate::support::factory::{until, user};
use crate::support::made_up::MadeUp;

const DISK: Uuid = Uuid::from_u128(0xD1);
const OTHER: Uuid = Uuid::from_u128(0xD2);
const OVEN: Uuid = Uuid::from_u128(0x10);
const PRESS: Uuid = Uuid::from_u128(0x11);

fn joining(name: &str, key: &str, state: HostState) -> JoinHost {
    JoinHost {
        name: name.to_owned(),
        role: "worker".to_owned(),
        variant: "tpm2".to_owned(),
        endorsement_key: key.repeat(32),
        state,
        kind: "join".to_owned(),
        policy_revision: 7,
        first_seen: 1_700_000_000_000,
        last_seen: 1_700_000_060_000,
        ..JoinHost::default()
    }
}

/// A fleet with two hosts that ask, one of them enrolled.
fn asking() -> MadeUp {
    let mut bench = Bench::with_cluster();
    let enrolled = EnrolledHost {
        ek: "ab".repeat(32),
        host: Some("press-1".to_owned()),
        disk: Some(DISK),
        iak: None,
        control_plane: true,
    };
    let policy = AttestationPolicy {
        variants: Vec::new(),
        bank: PcrBank::Sha256,
        pcrs: BTreeMap::new(),
        boot: None,
        lock: PcrLock { pcr: 15, before: None, after: None },
        local_unlock: None,
        endorsement: EndorsementRules {
            require: EndorsementProof::Enrolment,
            manufacturers: Vec::new(),
            device_manufacturers: Vec::new(),
            enrolled: vec![enrolled],
            revoked: Vec::new(),
        },
        signature: None,
    };
    bench.entry(CLUSTER, &policy);
    let refused = JoinHost {
        verdict: Some("wrong-pcr".to_owned()),
        detail: Some("PCR 4 has another value".to_owned()),
        warnings: Some("old firmware".to_owned()),
        stage: Some("opened".to_owned()),
        pcrs: Some([(0, "00".repeat(32)), (4, "0c".repeat(32)), (7, "00".repeat(32))].into()),
        ..joining("press-2", "cd", HostState::Refused)
    };
    bench.join(NAME, &[(DISK, joining("press-1", "ab", HostState::Pending)), (OTHER, refused)]);
    bench.cluster(CLUSTER, NAME, |cluster| cluster.join.alive = true);
    MadeUp::of(&bench)
}

#[test]
fn a_host_is_shown_with_its_key_its_policy_and_its_pcrs() {
    let fleet = asking();
    let user = fleet.user();
    let shown = user.run("host show press-2");
    let lines = shown.lines();
    assert!(lines[0].starts_with("HOST     CLUSTER     STATE    ROLE    EVIDENCE  SEEN"), "{shown:#?}");
    assert!(lines[1].ends_with("wrong-pcr: PCR 4 has another value"), "{shown:#?}");
    let expected = [
        "".to_owned(),
        format!("endorsement key  {} (not enrolled)", "cd".repeat(32)),
        "judged by        policy revision 7 for join".to_owned(),
        "first seen       2023-11-14T22:13:20Z".to_owned(),
        "last judged      2023-11-14T22:14:20Z".to_owned(),
        "stage            opened".to_owned(),
        "warnings         old firmware".to_owned(),
        "".to_owned(),
        format!("PCR  4  {}", "0c".repeat(32)),
        "all zero     0, 7".to_owned(),
    ];
    assert_eq!(lines[2..], expected, "{shown:#?}");
    let enrolled = user.run("host show Paint_Shop/press-1");
    assert!(
        enrolled.done().contains(&format!("{} (enrolled, may be a control plane)\n", "ab".repeat(32))),
        "{enrolled:#?}"
    );
    let json = user.run(&format!("host show {DISK} -o json")).json();
    assert_eq!((&json["host"]["name"], &json["revoked"]), (&json!("press-1"), &json!(false)), "{json:#}");
    assert_eq!(
        json["enrolment"]["control_plane"].as_bool().or(json["enrolment"]["controlPlane"].as_bool()),
        Some(true),
        "{json:#}"
    );
    assert_eq!(user.run("host list -o name").done(), "Paint_Shop/press-1\nPaint_Shop/press-2\n");
    let wide = user.run("host list -o wide");
    assert!(wide.lines()[0].contains("ENDORSEMENT KEY") && wide.lines()[1].contains(&"ab".repeat(32)), "{wide:#?}");
}

#[test]
fn a_host_is_approved_by_the_key_that_was_read_off_it_and_nothing_is_signed_before() {
    let fleet = asking();
    let user = fleet.user();
    let refused = [
        ("host approve press-9", 7, "there is no host \"press-9\"; did you mean \"Paint_Shop/press-"),
        ("host approve press-2 --ek 12", 2, "--ek must be 16 to 64 hexadecimal digits"),
        ("host approve press-2 --ek 0123456789abcdefg", 2, "--ek must be"),
        ("host approve press-2 --ek abababababababab", 5, "press-2 has the endorsement key cdcd"),
        ("host revoke saw-1", 7, "there is no host \"saw-1\""),
        ("host show press-9", 7, "among the hosts that have proven their TPM to a join service"),
        ("policy show Pain_Shop", 7, "did you mean \"Paint_Shop\"?"),
    ];
    let outcomes = user.run_all(&refused.map(|(line, ..)| line));
    for (outcome, (_, code, part)) in outcomes.iter().zip(refused) {
        assert!(outcome.refused(code).contains(part), "{part}: {outcome:#?}");
    }
    // Without a key that signs nothing is written.
    let unsigned = user.run("host approve press-2 --trust-root @/none");
    assert_ne!(unsigned.code(), 0, "{unsigned:#?}");
}

#[test]
fn hosts_of_the_factory_have_joined_and_the_policy_that_they_joined_by_is_shown() {
    let user = user();
    let joined = |outcome: &crate::support::program::Outcome| {
        let rows = outcome.json();
        let rows = rows.as_array().unwrap();
        rows.len() == 2 && rows.iter().all(|row| row["state"] == "member")
    };
    let rows = until(|| user.run("host list --cluster Press_Shop -o json"), joined).json();
    for row in rows.as_array().unwrap() {
        let shown = user.run(&format!("host show Press_Shop/{} -o json", row["name"].as_str().unwrap())).json();
        assert_eq!(shown["host"]["endorsement_key"], row["endorsement_key"]);
        assert_eq!(shown["revoked"], false);
    }
    let policy = user.run("policy show Press_Shop");
    assert!(policy.done().contains("in-force"), "{policy:#?}");
    let missing = user.run("policy set Press_Shop @/none.yaml");
    assert!(missing.refused(3).contains("cannot read"), "{missing:#?}");
    let moved = user.run("host move Press_Shop/press-shop-9 --dry-run");
    moved.refused(7);
}

/// A cluster that holds what it is sent: it runs `Oven_1`, which ConfigDB does not have, and not `Press_1`, which it has.
fn held() -> MadeUp {
    let mut bench = Bench::with_cluster();
    let node = SyncNode {
        cluster_uuid: CLUSTER,
        cluster_name: NAME.to_owned(),
        desired_held: Some(true),
        desired_hold_reason: Some("another store".to_owned()),
        source_ready: Some(true),
        ..SyncNode::default()
    };
    bench.sync(NAME, &node, &[(OVEN, reported("Oven_1", DeploymentState::Applied, Some(true)))]);
    bench.deployment(PRESS, "Press_1", None);
    bench.cluster(CLUSTER, NAME, |cluster| cluster.sync_alive = true);
    MadeUp::of(&bench)
}

#[test]
fn what_a_cluster_would_lose_is_compared_and_not_deleted_unasked() {
    let fleet = held();
    let user = fleet.user();
    let expected = "CLUSTER     ONLY HERE  ONLY AT EDGE  DIFFERENT  STATE\nPaint_Shop  Press_1    Oven_1                   held: another store\n";
    assert_eq!(user.run("recover status").done(), expected);
    assert_eq!(user.run("recover status Paint_Shop").done(), expected);
    let row = user.run("recover status -o json").json();
    assert_eq!((&row[0]["held"], &row[0]["only_at_edge"][0]["name"]), (&json!("another store"), &json!("Oven_1")));
    let unasked = user.run_with("recover discard Paint_Shop", "y\n");
    assert_eq!(unasked.refused(2), "there is no terminal to ask on; add --yes to delete 1 deployments: Oven_1");
    let adopted = user.run("recover adopt Paint_Shop");
    let error = adopted.refused(5);
    assert_eq!(error, "nothing was changed: Paint_Shop: the edge keeps no entries of Oven_1; write them by hand first");
    let deleted = user.run("cluster delete Paint_Shop");
    assert_eq!(deleted.refused(5), "Paint_Shop has deployments: Press_1; delete them first, or add --with-deployments");
    let rows = user.run("deployment list");
    assert!(
        rows.done().contains("ConfigDB does not have it, and the edge keeps it until an operator decides"),
        "{rows:#?}"
    );
}

#[test]
fn the_page_of_the_status_is_the_same_for_who_reads_it_twice() {
    let fleet = held();
    let user = fleet.user();
    let page = user.run("status");
    let lines = page.lines();
    let broker = fleet.server.url();
    assert_eq!(lines[0], format!("broker        {broker} reached, organisation ACME"));
    assert_eq!(lines[1], "clusters      1: 1 setup ready, edge alive");
    assert_eq!(lines[2], "hosts         1/1 ready");
    let waiting = lines.iter().position(|line| *line == "WAITING").unwrap();
    let expected = [
        "deployment Paint_Shop/Oven_1: held, ready (ConfigDB does not have it, and the edge keeps it until an operator decides: another store)",
        "deployment Paint_Shop/Press_1: sending",
    ];
    assert_eq!(lines[waiting + 1..], expected, "{page:#?}");
    let json = user.run("status -o json").json();
    let fields: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(
        fields,
        ["broker", "console", "organisation", "services", "clusters", "hosts", "deployments", "alerts", "waiting"]
    );
    assert_eq!(json["waiting"].as_array().unwrap().len(), lines.len() - waiting - 1, "{json:#}");
    let name = user.run("status -o name");
    assert!(name.refused(2).contains("has no name"), "{name:#?}");
}
