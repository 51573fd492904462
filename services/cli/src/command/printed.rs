//! What commands print of a fleet, column by column and line by line: of the bench's events, without a broker.

use cluster_manager_contract::{JoinReport, SetupState};
use configdb_contract::{HistoryEntry, Outcome, RequestResult, WriteRequest};
use configdb_schema::document::{ApiToken, TokenScope};
use edge_sync_contract::{DeploymentState, Entries, SyncNode};
use fleet_view::bench::{Bench, CLUSTER, NAME, reported};
use fleet_view::{ClusterRow, Count, requests};
use join_service_contract::{HostState, JoinHost};
use serde_json::{Value, json};
use service_runtime::exit;
use uuid::Uuid;

use super::{acl_site, administrator, alert, bootstrap, config, deployment, policy, recover, status, token};
use crate::load::Deletion;
use crate::{client, look_up, recovery, tables};

const DISK: Uuid = Uuid::from_u128(0xD1);
const OTHER: Uuid = Uuid::from_u128(0xD2);
const OVEN: Uuid = Uuid::from_u128(0x10);
const PRESS: Uuid = Uuid::from_u128(0x11);

fn joining(name: &str, state: HostState) -> JoinHost {
    JoinHost {
        name: name.to_owned(),
        role: "worker".to_owned(),
        variant: "tpm2".to_owned(),
        endorsement_key: "ab".repeat(32),
        state,
        kind: "join".to_owned(),
        first_seen: 1_000,
        last_seen: 2_000,
        ..JoinHost::default()
    }
}

/// A bench with these hosts at the join service of its cluster.
fn with_hosts(hosts: &[(Uuid, JoinHost)]) -> Bench {
    let mut bench = Bench::with_cluster();
    bench.join(NAME, hosts);
    bench
}

#[test]
fn a_host_shows_how_far_it_is_and_why_it_stops_there() {
    let refused = JoinHost {
        verdict: Some("wrong-pcr".to_owned()),
        detail: Some("PCR 4 has another value".to_owned()),
        ..joining("press-2", HostState::Refused)
    };
    let bench = with_hosts(&[(DISK, joining("", HostState::Pending)), (OTHER, refused)]);
    let expected = [
        "HOST       CLUSTER     STATE    ROLE    EVIDENCE  SEEN   DISK                                  REASON",
        "(unnamed)  Paint_Shop  pending  worker  tpm2      1m00s  00000000-0000-0000-0000-0000000000d1",
        "press-2    Paint_Shop  refused  worker  tpm2      1m00s  00000000-0000-0000-0000-0000000000d2  wrong-pcr: PCR 4 has another value",
    ];
    assert_eq!(tables::joining_hosts(&bench.fleet.joining_hosts(None), 62_000).lines(), expected);
}

#[test]
fn a_member_shows_a_reason_only_if_it_was_refused_since_or_something_is_let_pass() {
    let reason = |change: fn(&mut JoinHost)| {
        let mut one = joining("press-1", HostState::Member);
        change(&mut one);
        let bench = with_hosts(&[(DISK, one)]);
        tables::reason(&bench.fleet.joining_hosts(None)[0])
    };
    assert_eq!(reason(|_| {}), None);
    assert_eq!(reason(|host| host.detail = Some("old".to_owned())), None);
    assert_eq!(reason(|host| host.verdict = Some("busy".to_owned())), Some("busy".to_owned()));
    assert_eq!(reason(|host| host.warnings = Some("old firmware".to_owned())), Some("old firmware".to_owned()));
}

#[test]
fn a_host_is_found_by_name_by_disk_and_by_cluster_and_never_by_chance() {
    let bench =
        with_hosts(&[(DISK, joining("press-1", HostState::Member)), (OTHER, joining("press-2", HostState::Pending))]);
    for wanted in ["press-1", "Paint_Shop/press-1", &DISK.to_string()] {
        assert_eq!(look_up::host(&bench.fleet, wanted).unwrap().id, DISK, "{wanted}");
    }
    let error = look_up::host(&bench.fleet, "pres-1").unwrap_err();
    assert_eq!(exit::code_of(&error), exit::NOT_FOUND);
    assert!(format!("{error:#}").contains("did you mean \"Paint_Shop/press-1\"?"), "{error:#}");
    assert_eq!(exit::code_of(&look_up::host(&bench.fleet, "Body_Shop/press-1").unwrap_err()), exit::NOT_FOUND);
}

#[test]
fn of_two_hosts_with_one_name_the_caller_chooses_and_a_thief_is_not_taken_for_the_owner() {
    let twins =
        with_hosts(&[(DISK, joining("press-1", HostState::Member)), (OTHER, joining("press-1", HostState::Pending))]);
    let error = look_up::host(&twins.fleet, "press-1").unwrap_err();
    assert_eq!(exit::code_of(&error), exit::USAGE);
    assert!(error.to_string().contains(&DISK.to_string()) && error.to_string().contains(&OTHER.to_string()), "{error}");
    let thief = JoinHost { foreign_disk: Some(DISK), ..joining("press-1", HostState::Refused) };
    let robbed = with_hosts(&[(DISK, joining("press-1", HostState::Member)), (OTHER, thief)]);
    assert_eq!(look_up::host(&robbed.fleet, "press-1").unwrap().id, DISK);
    assert!(look_up::host(&robbed.fleet, &OTHER.to_string()).unwrap().has_foreign_disk);
}

#[test]
fn the_hosts_of_a_cluster_show_what_kubernetes_says_of_them() {
    let bench = Bench::with_cluster();
    let lines = tables::hosts(&bench.fleet.hosts(Some(NAME))).lines();
    assert_eq!(lines.len(), 2);
    let columns: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(columns[..3], ["paint-1", "Paint_Shop", "yes"]);
    assert!(lines[0].starts_with("HOST") && lines[0].ends_with("SPECIALISED"), "{}", lines[0]);
    assert!(tables::hosts(&bench.fleet.hosts(Some("Body_Shop"))).is_empty());
}

#[test]
fn a_cluster_that_was_refused_shows_the_reason_and_is_not_alive() {
    let mut bench = Bench::new();
    bench.cluster(CLUSTER, NAME, |device| {
        device.setup.state = SetupState::Refused;
        device.setup.reason = Some("the name is taken".to_owned());
    });
    let lines = tables::clusters(&bench.fleet.clusters(), 0).lines();
    assert!(lines[1].starts_with("Paint_Shop  refused"), "{lines:#?}");
    assert!(lines[1].ends_with("the name is taken"), "{lines:#?}");
}

#[test]
fn the_same_name_is_the_same_cluster_in_one_organisation() {
    let uuid = |organisation: &str, name| requests::cluster_uuid(&organisation.parse().unwrap(), name);
    assert_eq!(uuid("ACME", NAME), uuid("ACME", NAME));
    assert_ne!(uuid("ACME", NAME), uuid("WORKS", NAME));
    assert_ne!(uuid("ACME", NAME), uuid("ACME", "Body_Shop"));
}

#[test]
fn alerts_of_a_cluster_are_as_many_as_its_monitor_raises() {
    let mut bench = Bench::with_cluster();
    bench.monitor(NAME, &["Oven_1", "Oven_2"]);
    let lines = tables::alerts(&alert::rows(&bench.fleet, Some(NAME)), 60_005).lines();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines[1].contains("Oven_1") && lines[2].contains("Oven_2"), "{lines:#?}");
    assert!(lines[1..].iter().all(|line| line.starts_with("Paint_Shop") && line.contains("1m00s")), "{lines:#?}");
    assert!(alert::rows(&bench.fleet, Some("Body_Shop")).is_empty());
}

#[test]
fn a_fleet_whose_central_monitor_was_never_born_says_so() {
    let bench = Bench::new();
    let rows = alert::rows(&bench.fleet, None);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!(tables::alerts(&rows, 0).lines()[1].starts_with("(central)"), "{rows:?}");
}

#[test]
fn deleting_a_deployment_takes_its_entry_and_the_configuration_of_its_agent() {
    let request = deployment::deletion(OVEN);
    let deleted: Vec<(&str, bool)> = request.entries.iter().map(|(slug, value)| (&**slug, value.is_none())).collect();
    assert_eq!(deleted, [("AgentConfig", true), ("EdgeDeployment", true)]);
    assert_eq!(request.object, OVEN);
}

#[test]
fn a_deployment_shows_what_is_wanted_and_what_the_edge_says() {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven_1", Some("paint-1"));
    bench.deployment(PRESS, "Press_1", None);
    bench.sync(NAME, &SyncNode::default(), &[(OVEN, reported("Oven_1", DeploymentState::Applied, Some(true)))]);
    let lines = tables::deployments(&bench.fleet.deployments(), 0).lines();
    let columns = |line: &str| {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(columns(&lines[0]), ["DEPLOYMENT", "CLUSTER", "CHART", "HOST", "STATE", "READY", "SINCE", "MESSAGE"]);
    let oven = columns(&lines[1]);
    assert_eq!(oven[..2], ["Oven_1", "Paint_Shop"], "{lines:#?}");
    assert!(oven.contains(&"paint-1".to_owned()) && oven.contains(&"applied".to_owned()), "{lines:#?}");
    assert_eq!(columns(&lines[2])[..2], ["Press_1", "Paint_Shop"], "{lines:#?}");
    assert!(!lines[2].contains("applied"), "nothing was reported of it: {lines:#?}");
}

/// A cluster that holds what it is sent, and runs `Oven_1`, which ConfigDB does not have.
fn held() -> Bench {
    let mut bench = Bench::with_cluster();
    let node = SyncNode {
        cluster_uuid: CLUSTER,
        desired_held: Some(true),
        desired_hold_reason: Some("another store".to_owned()),
        ..SyncNode::default()
    };
    let mut running = reported("Oven_1", DeploymentState::Applied, Some(true));
    running.entries = Some(Entries::default());
    bench.sync(NAME, &node, &[(OVEN, running)]);
    bench.deployment(PRESS, "Press_1", None);
    bench
}

#[test]
fn a_comparison_shows_both_sides_and_why_it_is_held() {
    let rows = [recovery::compare(&held().fleet, NAME).unwrap()];
    let expected = [
        "CLUSTER     ONLY HERE  ONLY AT EDGE  DIFFERENT  STATE",
        "Paint_Shop  Press_1    Oven_1                   held: another store",
    ];
    assert_eq!(recover::table(&rows).lines(), expected);
    let value = json!(rows);
    assert_eq!((&value[0]["only_at_edge"][0]["name"], &value[0]["is_unknown"]), (&json!("Oven_1"), &json!(false)));
}

#[test]
fn a_decision_needs_a_later_epoch_and_names_the_store() {
    let bench = held();
    let comparison = recovery::compare(&bench.fleet, NAME).unwrap();
    assert_eq!(comparison.next_epoch, bench.fleet.config.epoch() + 1);
    let request = WriteRequest::put("r", CLUSTER);
    let request =
        recovery::release(&bench.fleet, &comparison, configdb_schema::document::RecoveryDecision::Adopt, request)
            .unwrap();
    let entry = request.entries.get("EdgeClusterRecovery").unwrap().clone().unwrap();
    assert_eq!(entry["epoch"], json!(comparison.next_epoch));
    assert_eq!(entry["store"], json!(Uuid::from_u128(5)));
    let compared = bench.fleet.config.state();
    assert!(compared.is_some() && request.if_contains == compared, "a store that was restored since refuses it");
}

#[test]
fn a_cluster_that_was_not_received_cannot_be_compared() {
    assert!(recovery::compare(&Bench::new().fleet, NAME).is_none());
}

fn api_token(name: &str, expires: &str, clusters: Option<Vec<Uuid>>) -> ApiToken {
    ApiToken {
        name: name.to_owned(),
        hash: "0f".repeat(32),
        scope: TokenScope::Operator,
        clusters,
        issued: "2026-01-01T00:00:00Z".to_owned(),
        expires: expires.to_owned(),
        by: "ada".to_owned(),
    }
}

#[test]
fn tokens_show_whom_they_are_for_and_whether_they_are_over_and_never_a_hash() {
    let mut bench = Bench::with_cluster();
    bench.entry(Uuid::from_u128(0x21), &api_token("nightly", "2026-01-02T00:00:00Z", None));
    let clusters = vec![CLUSTER, Uuid::from_u128(0xEE)];
    bench.entry(Uuid::from_u128(0x20), &api_token("ci", "2027-01-01T00:00:00Z", Some(clusters)));
    let tokens = token::tokens(&bench.fleet);
    let lines = token::table(&tokens, &bench.fleet, "2026-06-01T00:00:00Z".parse().unwrap()).lines();
    assert!(lines[1].starts_with("ci "), "sorted by name: {lines:#?}");
    assert!(lines[1].contains("Paint_Shop,00000000-0000-0000-0000-0000000000ee"), "{lines:#?}");
    assert!(lines[2].starts_with("nightly") && lines[2].contains(" all "), "{lines:#?}");
    assert!(lines[2].contains("2026-01-02T00:00:00Z (over)") && !lines[1].contains("(over)"), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("0f0f")), "{lines:#?}");
}

#[test]
fn where_a_policy_stands_is_said_in_a_line() {
    let report = |state: Option<&str>| JoinReport {
        alive: true,
        policy_revision: 7,
        policy_state: state.map(str::to_owned),
        ..JoinReport::default()
    };
    let accepted = JoinReport { policy_agreed: true, ..report(Some("in-force")) };
    let error = Some("no variant".to_owned());
    assert!(policy::described(&report(None)).contains("no join service judges by this policy"));
    assert!(policy::described(&JoinReport { alive: false, ..report(Some("in-force")) }).starts_with("away"));
    assert_eq!(policy::described(&report(Some("in-force"))), "has revision 7; this one is on its way");
    assert_eq!(policy::described(&accepted), "in-force");
    let refused = JoinReport { policy_error: error.clone(), ..report(Some("in-force")) };
    assert_eq!(policy::described(&refused), "refuses this policy: no variant");
    let other_refused = JoinReport { policy_error: error.clone(), ..accepted };
    assert_eq!(policy::described(&other_refused), "in-force; another policy was refused: no variant");
    let invalid = JoinReport { policy_agreed: true, policy_error: error, ..report(Some("invalid")) };
    assert_eq!(policy::described(&invalid), "invalid: no variant; no host is admitted");
}

#[test]
fn a_load_shows_each_object_and_what_edges_would_delete() {
    let writes = [
        WriteRequest::put("r", OVEN).entry("EdgeDeployment", json!({})).entry("EdgeAgentConfig", json!({})),
        WriteRequest::put("r", PRESS).create_object(CLUSTER, None),
    ];
    let lines = config::planned(&writes);
    assert_eq!(lines[0], "OBJECT                                WRITES");
    assert!(lines[1].ends_with("EdgeAgentConfig,EdgeDeployment"), "{lines:#?}");
    assert!(lines[2].contains("Registration"), "{lines:#?}");
    let deletion = Deletion {
        cluster: NAME.to_owned(),
        deployment: "Oven_1".to_owned(),
        uuid: OVEN,
        reason: "its entry is deleted".to_owned(),
    };
    let expected = format!("deleted at the edge of Paint_Shop: Oven_1 ({OVEN}), because its entry is deleted");
    assert_eq!(config::going(&[deletion]), [expected]);
}

#[test]
fn a_change_is_printed_with_its_value_as_json_and_a_deletion_with_null() {
    let change = |json: Option<&str>| HistoryEntry {
        object: OVEN,
        slug: "EdgeDeployment".into(),
        json: json.map(Into::into),
        etag: json.map(|_| PRESS),
        revision: 9,
        time: 0,
        writer: "ada".into(),
        request: "r1".into(),
    };
    let value = config::described(&change(Some(r#"{"name":"Oven_1"}"#)));
    assert_eq!((&value["revision"], &value["time"]), (&json!(9), &json!("1970-01-01T00:00:00Z")));
    assert_eq!((&value["value"]["name"], &value["writer"]), (&json!("Oven_1"), &json!("ada")));
    let value = config::described(&change(None));
    assert_eq!((&value["value"], &value["etag"]), (&Value::Null, &Value::Null));
}

#[test]
fn an_application_is_known_by_slug_and_uuid() {
    let applications = [("EdgeCluster".to_owned(), CLUSTER)].into();
    assert_eq!(config::slug_among(&applications, "EdgeCluster").unwrap(), "EdgeCluster");
    assert_eq!(config::slug_among(&applications, &CLUSTER.to_string()).unwrap(), "EdgeCluster");
    let error = config::slug_among(&applications, "EdgeClusterr").unwrap_err();
    assert_eq!(exit::code_of(&error), exit::NOT_FOUND);
    assert!(error.to_string().contains("did you mean \"EdgeCluster\"?"), "{error}");
}

#[test]
fn the_bootstrap_command_stands_alone_on_its_line_between_what_it_is_and_how_to_revoke_it() {
    let lines = bootstrap::instructions(NAME, "printf x | sh", "2026-01-02T00:00:00Z");
    assert_eq!(lines.iter().filter(|line| *line == "printf x | sh").count(), 1, "{lines:#?}");
    assert!(lines[0].contains("a cluster that has it can become Paint_Shop, until 2026-01-02T00:00:00Z"), "{lines:#?}");
    assert!(lines.last().unwrap().ends_with("sparkfleet cluster bootstrap Paint_Shop --revoke"), "{lines:#?}");
}

#[test]
fn a_cluster_without_an_enrolment_entry_has_no_tokens_and_no_version() {
    let (enrolment, etag) = bootstrap::enrolment(&Bench::with_cluster().fleet, CLUSTER).unwrap();
    assert!(enrolment.tokens.is_empty() && etag.is_none());
}

#[test]
fn a_list_of_clusters_is_one_only_if_every_row_has_a_name() {
    assert_eq!(acl_site::names_in(&json!([{ "name": "Paint" }, { "name": "Body" }])).unwrap(), ["Paint", "Body"]);
    assert!(acl_site::names_in(&json!([])).unwrap().is_empty());
    assert_eq!(acl_site::names_in(&json!([{ "uuid": 1 }])).unwrap_err().to_string(), "a cluster in it has no `name`");
    assert!(acl_site::names_in(&json!({})).is_err());
}

#[test]
fn the_first_member_needs_a_name_and_gets_the_name_of_its_cluster() {
    let error = administrator::init_parameters(None, None, NAME, DISK).unwrap_err();
    assert_eq!(exit::code_of(&error), exit::USAGE);
    assert!(error.to_string().starts_with("say with --name"), "{error}");
    let named = administrator::init_parameters(None, Some("press-1".to_owned()), NAME, DISK).unwrap();
    let value: Value = serde_json::from_slice(&named.to_bytes()).unwrap();
    assert_eq!((&value["nodeName"], &value["clusterName"]), (&json!("press-1"), &json!(NAME)));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("parameters.yaml");
    std::fs::write(&file, "nodeName: from-file\nclusterName: other\n").unwrap();
    let read = administrator::init_parameters(Some(&file), None, NAME, DISK).unwrap();
    let value: Value = serde_json::from_slice(&read.to_bytes()).unwrap();
    assert_eq!((&value["nodeName"], &value["clusterName"]), (&json!("from-file"), &json!("other")));
    std::fs::write(&file, "- 1\n").unwrap();
    let error = administrator::init_parameters(Some(&file), None, NAME, DISK).unwrap_err();
    assert_eq!(exit::code_of(&error), exit::CONFIG);
}

#[test]
fn a_refusal_names_the_field_and_the_reason() {
    let result = |field: Option<&str>, reason: Option<&str>| RequestResult {
        id: "r".to_owned(),
        object: OVEN,
        outcome: Outcome::Refused,
        store: None,
        revision: 1,
        etags: std::collections::BTreeMap::new(),
        reason: reason.map(str::to_owned),
        field: field.map(str::to_owned),
        at: 0,
    };
    assert_eq!(
        client::refusal(&result(Some("EdgeCluster/name"), Some("is taken"))),
        "refused: EdgeCluster/name: is taken"
    );
    assert_eq!(client::refusal(&result(None, None)), "refused: no reason given");
}

#[test]
fn a_command_subscribes_to_no_more_than_it_shows() {
    let organisation = configdb_schema::address::Organisation::new("ACME").unwrap();
    let topics = |scope| client::filters(&organisation, scope).into_iter().map(|(topic, _)| topic).collect::<Vec<_>>();
    let config = topics(client::Scope::Config);
    assert_eq!(config, ["spBv1.0/ACME-Central/+/ConfigDB", "spBv1.0/ACME-Central/+/ConfigDB/+"]);
    let joining = topics(client::Scope::Joining);
    assert!(
        joining.iter().any(|topic| topic.ends_with("/Join")) && !joining.iter().any(|topic| topic.ends_with("/Sync"))
    );
    let fleet = topics(client::Scope::Fleet);
    assert!(
        fleet.iter().any(|topic| topic.ends_with("/Sync")) && fleet.iter().any(|topic| topic.ends_with("/Monitor"))
    );
    assert!(config.iter().all(|topic| joining.contains(topic)) && joining.iter().all(|topic| fleet.contains(topic)));
}

#[test]
fn a_status_counts_and_lists_what_is_not_well() {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven_1", None);
    let status = status::status(&bench.fleet, "mqtt://b");
    let lines = status::lines(&status, 0);
    assert!(lines[0].contains("mqtt://b reached, organisation ACME"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("deployment Paint_Shop/Oven_1")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("ConfigDB") && line.contains("alive")), "{lines:#?}");
    let value = json!(status);
    assert_eq!(value["broker"], json!("mqtt://b"));
}

#[test]
fn hosts_of_an_edge_that_is_away_are_marked_as_what_was_said_last() {
    let hosts = |change: fn(&mut ClusterRow)| {
        let mut row = Bench::with_cluster().fleet.clusters().remove(0);
        change(&mut row);
        let shown = tables::clusters(&[row], 0).lines().remove(1);
        shown.split_whitespace().find(|word| word.contains('/') || *word == "?").unwrap_or_default().to_owned()
    };
    assert_eq!(hosts(|_| {}), "1/1");
    assert_eq!(hosts(|row| row.alive = false), "1/1?");
    assert_eq!(hosts(|row| (row.alive, row.hosts) = (false, Count::default())), "?");
    assert_eq!(
        hosts(|row| (row.alive, row.seen, row.hosts) = (false, false, Count::default())),
        "0/0",
        "it has none yet"
    );
}
