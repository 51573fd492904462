//! What is shown of a plan.

use configdb_schema::document::Info;
use fleet_view::bench::{Bench, CLUSTER};
use fleet_view::explorer::Explorer;
use serde_json::json;

use super::*;
use crate::action::{Action, Replicas};

const WALL: u64 = 1_800_000_000_000;
const OVEN: Uuid = Uuid::from_u128(0x0E);

fn shown(bench: &Bench, name: &str, body: Value) -> Vec<Step> {
    let action = Action::parse(name, body.to_string().as_bytes()).unwrap();
    let replicas = Replicas { fleet: &bench.fleet, explorer: &Explorer::default() };
    steps(&action.plan(replicas, "a1", "console/token:ada", WALL).unwrap(), &bench.fleet)
}

#[test]
fn a_patch_is_shown_as_the_entry_that_it_leads_to() {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", Some("paint-1"));
    bench.entry(OVEN, &Info { name: "Oven".to_owned(), ..Info::default() });
    let before: Value = serde_json::from_str(&bench.fleet.config.entry(OVEN, "EdgeDeployment").unwrap().json).unwrap();
    let steps = shown(&bench, "deployment.suspend", json!({ "deployment": OVEN }));
    let [step] = steps.as_slice() else { panic!("{steps:?}") };
    let mut after = before.clone();
    after["suspend"] = json!(true);
    assert_eq!(
        (step.change, step.subject.as_str(), step.name.as_deref()),
        (StepChange::Write, "Oven", Some("EdgeDeployment"))
    );
    assert_eq!((step.before.as_ref(), step.after.as_ref()), (Some(&before), Some(&after)));
}

#[test]
fn what_goes_is_shown_with_what_it_was() {
    let mut bench = Bench::with_cluster();
    bench.deployment(OVEN, "Oven", None);
    let steps = shown(&bench, "deployment.delete", json!({ "deployment": OVEN }));
    let entry = steps.iter().find(|step| step.name.as_deref() == Some("EdgeDeployment")).unwrap();
    assert_eq!((entry.change, entry.after.as_ref()), (StepChange::Delete, None));
    assert_eq!(entry.before.as_ref().unwrap()["name"], "Oven");
}

#[test]
fn what_comes_is_shown_by_its_name_and_a_token_without_its_hash() {
    let bench = Bench::with_cluster();
    let steps = shown(&bench, "token.create", json!({ "name": "ci", "scope": "viewer" }));
    assert_eq!((steps[0].change, steps[0].before.as_ref()), (StepChange::CreateObject, None));
    let token = steps.iter().find(|step| step.name.as_deref() == Some("ApiToken")).unwrap();
    let after = token.after.as_ref().unwrap();
    assert_eq!((&after["name"], after.get("hash")), (&json!("ci"), None));
    assert!(token.subject.contains("ci"), "{}", token.subject);
    let rebirth = shown(&bench, "node.rebirth", json!({ "node": "Foreign/Gateway" }));
    assert_eq!((rebirth[0].change, rebirth[0].subject.as_str()), (StepChange::AskRebirth, "Foreign/Gateway"));
    let history = shown(&bench, "object.history", json!({ "object": CLUSTER, "application": "EdgeCluster" }));
    assert_eq!((history[0].change, history[0].name.as_deref()), (StepChange::ReadHistory, Some("EdgeCluster")));
}
