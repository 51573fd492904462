//! Requests against a store with everything that comes with the program. A refused request is checked to have changed nothing.

use configdb_contract::WriteRequest;
use configdb_schema::document::EdgeCluster;
use configdb_schema::known::{application, chart, class, special};
use serde_json::json;
use sparkplug::replication::Point;

use super::*;
use crate::{builtin, object_metrics};

pub(crate) const SITE: Origin<'static> = Origin { writer: "site", builtin: false, time: 1_000 };
const CLUSTER: Uuid = Uuid::from_u128(0xc1);
const OTHER: Uuid = Uuid::from_u128(0xc2);

/// A store with what comes with the program.
pub(crate) fn fresh(limits: Limits) -> Model {
    let mut model = Model::new(Uuid::from_u128(0x5), limits);
    for request in builtin::requests(&model.clone()) {
        let origin = Origin { writer: "program", builtin: true, time: 1 };
        model.apply(&request, origin).unwrap_or_else(|refusal| panic!("{}: {refusal}", request.object));
    }
    model
}

fn put(object: Uuid) -> WriteRequest {
    WriteRequest::put("r", object)
}

fn apply(model: &mut Model, request: &WriteRequest) -> Applied {
    model.apply(request, SITE).unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn create_cluster(model: &mut Model, object: Uuid) -> Applied {
    apply(model, &put(object).create_object(class::EDGE_CLUSTER, None).entry("EdgeCluster", cluster("Paint_Shop")))
}

fn cluster(name: &str) -> serde_json::Value {
    json!({"name": name, "namespace": "edge"})
}

/// The request is refused with this field and (part of a) reason, and nothing has changed.
#[track_caller]
fn refused(model: &mut Model, request: &WriteRequest, field: &str, reason: &str) {
    let before = model.to_snapshot();
    let refusal = model.apply(request, SITE).unwrap_err();
    assert_eq!(refusal.field, field, "{refusal}");
    assert!(refusal.reason.contains(reason), "{refusal}");
    assert_eq!(model.to_snapshot(), before);
}

#[test]
fn a_fresh_store_can_create_clusters_and_deployments() {
    let mut model = fresh(Limits::default());
    assert_eq!(model.applications().count(), configdb_schema::APPLICATIONS.len());
    create_cluster(&mut model, CLUSTER);
    let deployment = json!({"cluster": CLUSTER, "name": "Robot", "chart": chart::EDGE_AGENT});
    apply(&mut model, &put(OTHER).create_object(class::EDGE_AGENT, None).entry("EdgeDeployment", deployment));
    for object in [chart::CLUSTER, chart::EDGE_AGENT] {
        assert!(model.live_object(object).unwrap().entries.contains_key(&application::HELM_CHART_TEMPLATE));
    }
    assert!(builtin::requests(&model).is_empty(), "nothing is written again");
}

#[test]
fn creating_an_object_gives_birth_to_it_with_everything_in_one_transaction() {
    let mut model = fresh(Limits::default());
    let (revision, objects) = (model.revision(), model.object_count());
    let applied = create_cluster(&mut model, CLUSTER);
    let transaction = applied.transaction.unwrap();
    assert_eq!(
        (transaction.revision, model.revision(), model.object_count()),
        (revision + 1, revision + 1, objects + 1)
    );
    assert_eq!((applied.publication, applied.is_birth), (Publication::Born, true));
    let slugs: Vec<_> = transaction.history.iter().map(|row| &*row.slug).collect();
    assert_eq!(slugs, ["Registration", "Membership", "EdgeCluster"]);
    let row = transaction.object.unwrap();
    assert_eq!((row.rank, row.owner, row.deleted), (0, special::UNOWNED, false));
    assert_eq!(row.member_of, [class::EDGE_CLUSTER].into());
    assert_eq!(applied.etags, [("EdgeCluster".to_owned(), transaction.entries[0].entry.as_ref().unwrap().etag)]);
}

#[test]
fn repeating_what_is_so_already_changes_nothing_and_keeps_the_etag() {
    let mut model = fresh(Limits::default());
    let first = create_cluster(&mut model, CLUSTER);
    let revision = model.revision();
    let again = put(CLUSTER)
        .create_object(class::EDGE_CLUSTER, None)
        .member_of([])
        .entry("EdgeCluster", json!({"namespace": "edge", "name": "Paint_Shop"}));
    let second = apply(&mut model, &again);
    assert_eq!((second.transaction, second.publication), (None, Publication::Nothing));
    assert_eq!(second.etags, first.etags);
    assert_eq!(model.revision(), revision);
}

#[test]
fn a_changed_entry_gets_another_etag_and_only_its_metric_is_published() {
    let mut model = fresh(Limits::default());
    let first = create_cluster(&mut model, CLUSTER);
    let second = apply(&mut model, &put(CLUSTER).entry("EdgeCluster", cluster("Press_Shop")));
    assert_ne!(second.etags, first.etags);
    let Publication::Changed(metrics) = second.publication else { panic!("a change") };
    assert_eq!(metrics.iter().map(|m| &*m.name).collect::<Vec<_>>(), ["EdgeCluster"]);
    let history = &second.transaction.unwrap().history;
    assert!(
        history[0].old.as_ref().unwrap().contains("Paint_Shop")
            && history[0].new.as_ref().unwrap().contains("Press_Shop")
    );
}

#[test]
fn an_entry_that_breaks_its_schema_is_refused_with_place_and_keyword() {
    let mut model = fresh(Limits::default());
    create_cluster(&mut model, CLUSTER);
    let bad = put(CLUSTER).entry("EdgeCluster", cluster("Paint-Shop"));
    refused(&mut model, &bad, "EdgeCluster/name", "keyword pattern");
    let bad = put(CLUSTER).entry("EdgeCluster", json!({"name": "A"}));
    refused(&mut model, &bad, "EdgeCluster", "keyword required");
    let bad = put(CLUSTER).entry("Info", json!({"name": "fine"})).entry("EdgeCluster", json!(1));
    refused(&mut model, &bad, "EdgeCluster", "keyword type");
}

#[test]
fn a_stored_schema_adds_to_that_of_a_system_application_and_never_replaces_it() {
    let mut model = fresh(Limits::default());
    create_cluster(&mut model, CLUSTER);
    let bad = put(CLUSTER).entry("EdgeCluster", cluster("Paint-Shop"));
    // As a dump that is loaded does it, and one without the entry.
    apply(&mut model, &put(application::EDGE_CLUSTER).entry("ConfigSchema", json!({"type": "object"})));
    refused(&mut model, &bad, "EdgeCluster/name", "keyword pattern");
    apply(&mut model, &put(application::EDGE_CLUSTER).delete("ConfigSchema"));
    refused(&mut model, &bad, "EdgeCluster/name", "keyword pattern");
    let mut reloaded = Model::from_snapshot(&model.to_snapshot(), Limits::default()).unwrap();
    refused(&mut reloaded, &bad, "EdgeCluster/name", "keyword pattern");
    let fitting = json!({"name": "Paint_Shop", "namespace": "edge", "bare": true});
    apply(&mut model, &put(CLUSTER).entry("EdgeCluster", fitting));
    apply(&mut model, &put(application::EDGE_CLUSTER).entry("ConfigSchema", json!({"required": ["bare"]})));
    let less = put(CLUSTER).entry("EdgeCluster", cluster("Paint_Shop"));
    refused(&mut model, &less, "EdgeCluster", "keyword required");
}

#[test]
fn a_request_that_was_decided_on_a_state_is_refused_by_a_store_that_was_restored_to_an_older_one() {
    let mut model = fresh(Limits::default());
    model.begin_timeline(7, model.revision());
    let seen = |revision| Point { timeline: 7, revision };
    let write = |name: &str| put(CLUSTER).create_object(class::EDGE_CLUSTER, None).entry("Info", json!({"name": name}));
    apply(&mut model, &write("A"));
    let (older, decided_on) = (model.clone(), model.revision() + 1);
    apply(&mut model, &write("B"));
    apply(&mut model, &write("C").if_contains(seen(decided_on)));
    let mut restored = older;
    let rule = "restored to an older state since";
    refused(&mut restored, &write("C").if_contains(seen(decided_on)), "Request/If_Contains", rule);
    // It counts the same numbers again for other transactions.
    restored.begin_timeline(8, restored.revision());
    apply(&mut restored, &write("D"));
    apply(&mut restored, &write("E"));
    refused(&mut restored, &write("C").if_contains(seen(decided_on)), "Request/If_Contains", rule);
    apply(&mut restored, &write("C").if_contains(seen(decided_on - 1)));
}

#[test]
fn if_match_lets_a_request_through_only_on_the_entry_it_was_made_for() {
    let mut model = fresh(Limits::default());
    let etag = create_cluster(&mut model, CLUSTER).etags[0].1;
    let write = |name: &str| put(CLUSTER).entry("EdgeCluster", cluster(name));
    refused(&mut model, &write("B").if_match("EdgeCluster", None), "EdgeCluster", "the request expects no entry");
    apply(&mut model, &write("B").if_match("EdgeCluster", Some(etag)));
    refused(&mut model, &write("C").if_match("EdgeCluster", Some(etag)), "EdgeCluster", "read the entry again");
    apply(&mut model, &put(CLUSTER).entry("Info", json!({"name": "x"})).if_match("Info", None));
    let new = put(OTHER).create_object(class::EDGE_CLUSTER, None).if_match("EdgeCluster", None);
    apply(&mut model, &new);
}

#[test]
fn patches_merge_create_and_are_validated() {
    let mut model = fresh(Limits::default());
    create_cluster(&mut model, CLUSTER);
    let patch = |value| WriteRequest::patch("r", CLUSTER).entry("EdgeCluster", value);
    apply(&mut model, &patch(json!({"bare": true, "values": {"a": 1}})));
    apply(&mut model, &patch(json!({"bare": null, "values": {"b": 2}})));
    let entry = &model.live_object(CLUSTER).unwrap().entries[&application::EDGE_CLUSTER];
    let document: EdgeCluster = serde_json::from_str(&entry.json).unwrap();
    assert_eq!((document.bare, document.values.map(|v| v.len())), (false, Some(2)));
    refused(&mut model, &patch(json!({"name": null})), "EdgeCluster", "keyword required");
    apply(&mut model, &WriteRequest::patch("r", CLUSTER).entry("Info", json!({"name": "made by a patch"})));
    apply(&mut model, &WriteRequest::patch("r", CLUSTER).delete("Info"));
    assert!(!model.live_object(CLUSTER).unwrap().entries.contains_key(&application::INFO));
}

#[test]
fn deleting_an_entry_publishes_its_absence() {
    let mut model = fresh(Limits::default());
    create_cluster(&mut model, CLUSTER);
    let applied = apply(&mut model, &put(CLUSTER).delete("EdgeCluster"));
    let Publication::Changed(metrics) = applied.publication else { panic!("a change") };
    assert!(metrics.len() == 1 && metrics[0].value.is_none() && applied.etags.is_empty());
    assert_eq!(apply(&mut model, &put(CLUSTER).delete("EdgeCluster")).transaction, None);
}

#[test]
fn what_does_not_exist_cannot_be_written_and_the_message_says_what_to_do() {
    let mut model = fresh(Limits::default());
    refused(
        &mut model,
        &put(CLUSTER).entry("Info", json!({"name": "x"})),
        "Registration",
        "create it with Registration",
    );
    refused(&mut model, &put(CLUSTER).create_object(OTHER, None), "Registration", "does not exist; create it first");
    refused(&mut model, &put(CLUSTER).create_object(chart::EDGE_AGENT, None), "Registration", "is an individual");
    refused(&mut model, &put(CLUSTER).create_object(class::EDGE_CLUSTER, Some(OTHER)), "Registration", "owner");
    create_cluster(&mut model, CLUSTER);
    refused(&mut model, &put(CLUSTER).entry("Colour", json!(1)), "Colour", "known are AgentConfig");
    refused(&mut model, &put(CLUSTER).entry(OTHER.to_string(), json!(1)), &OTHER.to_string(), "no application");
    refused(&mut model, &put(CLUSTER).delete_object().delete("Info"), "Registration", "send two requests");
}

#[test]
fn an_application_may_be_named_by_its_uuid_but_not_twice() {
    let mut model = fresh(Limits::default());
    create_cluster(&mut model, CLUSTER);
    let by_uuid = put(CLUSTER).entry(application::INFO.to_string(), json!({"name": "x"}));
    assert_eq!(apply(&mut model, &by_uuid).etags[0].0, "Info");
    refused(&mut model, &put(CLUSTER).delete("Info").delete(application::INFO.to_string()), "Info", "twice");
}

#[test]
fn ranks_rule_membership_and_subclasses() {
    let mut model = fresh(Limits::default());
    create_cluster(&mut model, CLUSTER);
    let (a, b, c) = (Uuid::from_u128(0xa), Uuid::from_u128(0xb), Uuid::from_u128(0xc));
    for class in [a, b, c] {
        apply(&mut model, &put(class).create_object(class::R1_CLASS, None));
    }
    apply(&mut model, &put(b).subclass_of([a]));
    apply(&mut model, &put(c).subclass_of([a, b]));
    assert_eq!(model.object(c).unwrap().subclass_of, [b].into(), "what b implies is left out");
    refused(&mut model, &put(a).subclass_of([c]), "Membership", "a circle is not possible");
    refused(&mut model, &put(a).subclass_of([a]), "Membership", "circle");
    refused(&mut model, &put(a).subclass_of([class::APPLICATION]), "Membership", "must be equal");
    refused(&mut model, &put(CLUSTER).subclass_of([a]), "Membership", "is an individual");
    refused(&mut model, &put(CLUSTER).member_of([class::R1_CLASS]), "Membership", "have rank 1");
    refused(&mut model, &put(a).member_of([a]), "Membership", "member of itself");
    refused(&mut model, &put(CLUSTER).member_of([OTHER]), "Membership", "does not exist");
    apply(&mut model, &put(CLUSTER).member_of([a]));
    assert_eq!(model.object(CLUSTER).unwrap().member_of, [a, class::EDGE_CLUSTER].into(), "the primary class stays");
    refused(&mut model, &put(CLUSTER).create_object(class::R1_CLASS, None), "Registration", "ranks do not change");
    apply(&mut model, &put(CLUSTER).create_object(b, None));
    assert_eq!(model.object(CLUSTER).unwrap().member_of, [a, b].into());
}

#[test]
fn an_object_in_use_or_of_the_system_cannot_be_deleted() {
    let mut model = fresh(Limits::default());
    let class = Uuid::from_u128(0xa);
    apply(&mut model, &put(class).create_object(class::R1_CLASS, None));
    apply(&mut model, &put(CLUSTER).create_object(class, None));
    refused(&mut model, &put(class).delete_object(), "Registration", &format!("{CLUSTER} is a member of it"));
    refused(&mut model, &put(class::EDGE_CLUSTER).delete_object(), "Registration", "belongs to the system");
    refused(&mut model, &put(OTHER).delete_object(), "Registration", "does not exist");
    apply(&mut model, &put(CLUSTER).delete_object());
    apply(&mut model, &put(class).delete_object());
}

#[test]
fn a_deleted_object_loses_its_entries_dies_and_can_come_back() {
    let mut model = fresh(Limits::default());
    create_cluster(&mut model, CLUSTER);
    let objects = model.object_count();
    let deleted = apply(&mut model, &put(CLUSTER).delete_object());
    assert_eq!((deleted.publication, model.object_count()), (Publication::Died, objects - 1));
    let transaction = deleted.transaction.unwrap();
    assert!(transaction.object.unwrap().deleted && transaction.entries[0].entry.is_none());
    assert_eq!(apply(&mut model, &put(CLUSTER).delete_object()).transaction, None);
    refused(&mut model, &put(CLUSTER).entry("Info", json!({"name": "x"})), "Registration", "does not exist");
    let back = apply(&mut model, &put(CLUSTER).create_object(class::EDGE_CLUSTER, None));
    assert_eq!((back.publication, model.object_count()), (Publication::Born, objects));
}

/// An application of the site's own.
fn create_application(model: &mut Model, uuid: Uuid, name: &str) -> Applied {
    let request = put(uuid).create_object(class::APPLICATION, None);
    apply(model, &request.entry("Info", json!({ "name": name })))
}

#[test]
fn a_new_application_gets_a_slug_and_objects_have_no_metric_of_it_before_an_entry() {
    let mut model = fresh(Limits::default());
    let custom = Uuid::from_u128(0xabc);
    let applied = create_application(&mut model, custom, "Shift plan");
    assert_eq!(applied.publication, Publication::Born);
    assert_eq!(applied.transaction.unwrap().application, Some((custom, Some("Shiftplan".into()))));
    create_cluster(&mut model, CLUSTER);
    let names = |metrics: Vec<sparkplug::Metric>| metrics.iter().map(|m| m.name.to_string()).collect::<Vec<_>>();
    let cluster = || model.object(CLUSTER).unwrap();
    let born = names(crate::births::object_metrics(&model, CLUSTER, cluster()));
    assert_eq!(born[..2], ["Object/Class", "Registration"], "it has no name");
    assert!(!born.contains(&"Shiftplan".to_owned()));
    assert!(
        names(object_metrics::widest_metrics(model.applications(), CLUSTER, cluster()))
            .contains(&"Shiftplan".to_owned())
    );
    apply(&mut model, &put(custom).entry("Info", json!({"name": "Renamed"})));
    assert!(model.application("Shiftplan").is_some(), "a slug stays");
    let second = create_application(&mut model, Uuid::from_u128(0xabd), "Shift plan");
    let slug = second.transaction.unwrap().application.unwrap().1.unwrap();
    assert_eq!(&*slug, "Shiftplan_00000000");
}

#[test]
fn an_application_with_entries_cannot_be_deleted_and_one_without_can() {
    let mut model = fresh(Limits::default());
    let custom = Uuid::from_u128(0xabc);
    create_application(&mut model, custom, "Shifts");
    create_cluster(&mut model, CLUSTER);
    apply(&mut model, &put(CLUSTER).entry("Shifts", json!([1])));
    refused(&mut model, &put(custom).delete_object(), "Registration", "has an entry under it");
    apply(&mut model, &put(CLUSTER).delete("Shifts"));
    let gone = apply(&mut model, &put(custom).delete_object());
    assert_eq!(gone.publication, Publication::Died);
    assert_eq!(model.application("Shifts"), None);
}

#[test]
fn what_stops_being_an_application_has_no_entry_under_itself() {
    let mut model = fresh(Limits::default());
    let custom = Uuid::from_u128(0xabc);
    create_application(&mut model, custom, "Shifts");
    let stop = put(custom).create_object(class::R1_CLASS, None);
    refused(&mut model, &stop.clone().entry("Shifts", json!(7)), "Shifts", "stops being an application");
    apply(&mut model, &put(custom).entry("Shifts", json!(7)));
    refused(&mut model, &stop, "Membership", "delete the entries first");
    apply(&mut model, &put(custom).delete("Shifts"));
    apply(&mut model, &stop);
    let again = Model::from_snapshot(&model.to_snapshot(), Limits::default()).unwrap();
    assert_eq!(again.application("Shifts"), None);
}

#[test]
fn a_schema_is_tried_on_every_existing_entry_first() {
    let mut model = fresh(Limits::default());
    let custom = Uuid::from_u128(0xabc);
    create_application(&mut model, custom, "Shifts");
    create_cluster(&mut model, CLUSTER);
    apply(&mut model, &put(CLUSTER).entry("Shifts", json!("early")));
    let schema = |schema| put(custom).entry("ConfigSchema", schema);
    refused(&mut model, &schema(json!({"type": "number"})), "ConfigSchema", &format!("object {CLUSTER} has an entry"));
    refused(&mut model, &schema(json!({"type": "nothing"})), "ConfigSchema", "not a JSON Schema");
    refused(&mut model, &schema(json!({"$ref": "#"})), "ConfigSchema", "recursive");
    apply(&mut model, &schema(json!({"enum": ["early", "late"]})));
    refused(&mut model, &put(CLUSTER).entry("Shifts", json!("night")), "Shifts", "keyword enum");
    apply(&mut model, &put(custom).delete("ConfigSchema"));
    apply(&mut model, &put(CLUSTER).entry("Shifts", json!("night")));
    refused(
        &mut model,
        &put(CLUSTER).entry("ConfigSchema", json!({"type": "object"})),
        "ConfigSchema",
        "is not an application",
    );
}

#[test]
fn an_application_can_come_with_its_schema_at_once() {
    let mut model = fresh(Limits::default());
    let request = put(OTHER).create_object(class::APPLICATION, None);
    let request = request.entry("Info", json!({"name": "Shifts"})).entry("ConfigSchema", json!({"type": "number"}));
    apply(&mut model, &request);
    create_cluster(&mut model, CLUSTER);
    refused(&mut model, &put(CLUSTER).entry("Shifts", json!("x")), "Shifts", "keyword type");
}

#[test]
fn a_class_below_application_makes_applications_only_while_it_has_no_members() {
    let mut model = fresh(Limits::default());
    let class = Uuid::from_u128(0xa);
    apply(&mut model, &put(class).create_object(class::R2_CLASS, None));
    apply(&mut model, &put(OTHER).create_object(class, None));
    refused(&mut model, &put(class).subclass_of([class::APPLICATION]), "Membership", "remove its members");
    apply(&mut model, &put(OTHER).delete_object());
    apply(&mut model, &put(class).subclass_of([class::APPLICATION]));
    let applied = apply(&mut model, &put(Uuid::from_u128(0xd)).create_object(class, None));
    assert_eq!(applied.publication, Publication::Born);
    assert!(applied.transaction.unwrap().application.is_some());
}

#[test]
fn what_would_not_fit_a_message_is_refused_and_what_is_accepted_fits() {
    let limits = Limits { message_bytes_max: 16 * 1024, ..Limits::default() };
    let mut model = fresh(limits);
    create_cluster(&mut model, CLUSTER);
    let photo = |bytes: usize| put(CLUSTER).entry("Info", json!({"name": "x", "photo": "p".repeat(bytes)}));
    refused(&mut model, &photo(16 * 1024), "Info", "at most 16384 are allowed");
    let mut bytes = 16 * 1024;
    while model.apply(&photo(bytes), SITE).is_err() {
        bytes -= 64;
    }
    assert!(bytes > 10_000, "the limit is used");
    let object = model.object(CLUSTER).unwrap();
    assert!(
        object_metrics::birth_bytes(&object_metrics::widest_metrics(model.applications(), CLUSTER, object))
            <= limits.message_bytes_max
    );
    let mut applications = 0_u32;
    let refusal = loop {
        let uuid = Uuid::from_u128(0x1000 + u128::from(applications));
        let info = json!({"name": format!("A{}", "x".repeat(40))});
        match model.apply(&put(uuid).create_object(class::APPLICATION, None).entry("Info", info), SITE) {
            Ok(_) => applications += 1,
            Err(refusal) => break refusal,
        }
    };
    assert!(refusal.reason.contains(&format!("would make object {CLUSTER} larger")), "{refusal}");
}

#[test]
fn nesting_and_numbers_of_objects_and_applications_are_bounded() {
    let count = fresh(Limits::default()).object_count();
    let applications_max = configdb_schema::APPLICATIONS.len() + 1;
    let mut model = fresh(Limits { objects_max: count + 1, applications_max, ..Limits::default() });
    create_application(&mut model, OTHER, "Deep");
    refused(&mut model, &put(CLUSTER).create_object(class::EDGE_CLUSTER, None), "Registration", "no more are allowed");
    let nested = |levels: usize| (1..levels).fold(json!(1), |inner, _| json!([inner]));
    apply(&mut model, &put(OTHER).entry("Deep", nested(64)));
    refused(&mut model, &put(OTHER).entry("Deep", nested(65)), "Deep", "65 levels deep; at most 64");
    let mut model = fresh(Limits { applications_max, ..Limits::default() });
    create_application(&mut model, OTHER, "Deep");
    let one_more = put(CLUSTER).create_object(class::APPLICATION, None);
    refused(&mut model, &one_more, "Registration", &format!("{applications_max} applications already"));
}

#[test]
fn a_snapshot_gives_the_same_model_with_its_schemas() {
    let mut model = fresh(Limits::default());
    create_cluster(&mut model, CLUSTER);
    create_application(&mut model, OTHER, "Shifts");
    apply(&mut model, &put(OTHER).entry("ConfigSchema", json!({"type": "number"})));
    let mut again = Model::from_snapshot(&model.to_snapshot(), Limits::default()).unwrap();
    assert_eq!(again.to_snapshot(), model.to_snapshot());
    assert_eq!(again.object_count(), model.object_count());
    refused(&mut again, &put(CLUSTER).entry("Shifts", json!("x")), "Shifts", "keyword type");
    refused(&mut again, &put(CLUSTER).entry("EdgeCluster", json!({})), "EdgeCluster", "keyword required");
}

#[test]
fn a_store_that_fits_no_model_is_reported_by_row() {
    let model = fresh(Limits::default());
    let mut snapshot = model.to_snapshot();
    snapshot.objects.retain(|row| row.uuid != application::INFO);
    let error = Model::from_snapshot(&snapshot, Limits::default()).unwrap_err().to_string();
    assert!(error.contains(&application::INFO.to_string()) && error.contains("backup"), "{error}");
}

#[test]
fn defaults_follow_the_program_until_the_site_touches_them() {
    let mut model = fresh(Limits::default());
    let flux = application::FLUX_TEMPLATE;
    let older = |model: &mut Model, builtin| {
        let request = put(flux).entry("FluxTemplate", json!({"self-link.yaml": []}));
        model.apply(&request, Origin { builtin, ..SITE }).unwrap();
    };
    older(&mut model, true);
    let requests = builtin::requests(&model);
    assert_eq!(requests.iter().map(|r| r.object).collect::<Vec<_>>(), [flux]);
    older(&mut model, true);
    apply(&mut model, &put(flux).entry("FluxTemplate", json!({"self-link.yaml": [], "mine.yaml": []})));
    assert!(builtin::requests(&model).is_empty());
    apply(&mut model, &put(flux).delete("FluxTemplate"));
    apply(&mut model, &put(chart::EDGE_AGENT).delete_object());
    assert!(builtin::requests(&model).is_empty(), "what the site deleted stays deleted");
}
