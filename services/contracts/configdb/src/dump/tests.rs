//! Dump files in both versions against replicas in miniature.

use super::*;
use crate::command::RegistrationChange;
use crate::replica::tests::{STORE, info, no_info, node, node_birth, object_birth, uuid};

fn replica(objects: &[(u128, Option<&str>)]) -> ConfigReplica {
    let mut replica = ConfigReplica::new(node());
    replica.on_event(&node_birth(STORE, 1, objects.len() as u64));
    for (object, name) in objects {
        let info = name.map_or_else(no_info, |name| info(1, &json!({ "name": name }).to_string()));
        replica.on_event(&object_birth(uuid(*object), info));
    }
    replica
}

fn options() -> LoadOptions {
    LoadOptions { id_prefix: "load-1".to_owned(), writer: "tester".to_owned() }
}

fn id(n: u128) -> String {
    uuid(n).to_string()
}

fn error(text: &str) -> String {
    Dump::parse(text).unwrap_err().to_string()
}

#[test]
fn version_1_lists_classes_objects_and_configs() {
    let text = json!({
        "service": service::CONFIGDB, "version": 1, "overwrite": false,
        "classes": [id(1)], "objects": {id(1): [id(2)]},
        "configs": {known::application::INFO.to_string(): {id(2): {"name": "two"}, id(9): {"name": "nine"}}},
    });
    let dump = Dump::parse(&text.to_string()).unwrap();
    let phases = dump.requests(&replica(&[(9, Some("kept"))]), &options()).unwrap();
    assert_eq!(phases.len(), 3);
    let register = |class| Some(RegistrationChange::Register { class, owner: None });
    assert_eq!((phases[0][0].object, &phases[0][0].registration), (uuid(1), &register(class::R1_CLASS)));
    assert_eq!((phases[1][0].object, &phases[1][0].registration), (uuid(2), &register(uuid(1))));
    assert_eq!(phases[2].len(), 1, "overwrite: false keeps what is there");
    assert_eq!(phases[2][0].entries["Info"], Some(json!({"name": "two"})));
    let request = &phases[2][0];
    assert_eq!((request.id.as_str(), request.writer.as_deref()), (&*format!("load-1/2/{}", id(2)), Some("tester")));
}

#[test]
fn version_2_lists_relations_too_and_several_documents_are_one() {
    let text = format!(
        "service: {service}\nversion: 2\nobjects:\n  {r1}:\n    {a}: {{name: A, subclassOf: [{x}], enum: [{c}]}}\n---\n\
         service: {service}\nversion: 2\nobjects:\n  {a}:\n    {b}: {{name: B, memberOf: [{y}]}}\n\
         configs:\n  {schema}:\n    {a}: {{type: object}}\n  {custom}:\n    {b}: {{n: 1}}\n",
        service = service::CONFIGDB,
        r1 = class::R1_CLASS,
        schema = known::application::CONFIG_SCHEMA,
        a = id(1),
        b = id(2),
        c = id(3),
        x = id(10),
        y = id(11),
        custom = id(12),
    );
    let phases = Dump::parse(&text).unwrap().requests(&replica(&[(3, None)]), &options()).unwrap();
    let objects = |phase: usize| phases[phase].iter().map(|r| r.object).collect::<Vec<_>>();
    assert_eq!((objects(0), objects(1)), (vec![uuid(1)], vec![uuid(2)]));
    assert_eq!(objects(2), [uuid(1), uuid(2), uuid(3)]);
    let member_of = |i: usize| phases[2][i].membership.clone().unwrap().member_of;
    assert_eq!(member_of(1), Some([uuid(11)].into()));
    assert_eq!(member_of(2), Some([uuid(1), uuid(0xc)].into()), "memberships that are not listed stay");
    assert_eq!(phases[3][0].entries["ConfigSchema"], Some(json!({"type": "object"})));
    assert_eq!(phases[4][0].entries[&id(12)], Some(json!({"n": 1})), "an unknown application goes by its UUID");
    assert_eq!(phases[0][0].entries["Info"], Some(json!({"name": "A"})));
}

#[test]
fn tags_are_refused_with_what_to_do() {
    for text in ["a: !u Class.Device\n", "a: !acs \"x ${y}\"\n"] {
        let error = error(text);
        assert!(error.contains("must be replaced by what they stand for"), "{error}");
    }
    let quoted = format!(
        "service: {}\nversion: 2\nconfigs:\n  {}:\n    {}: {{name: '!u x'}}\n",
        service::CONFIGDB,
        id(1),
        id(2)
    );
    assert!(Dump::parse(&quoted).is_ok());
}

#[test]
fn what_is_not_a_configdb_dump_is_refused_by_document() {
    let head = format!("service: {}\nversion: 2\n", service::CONFIGDB);
    assert!(
        error(&format!("{head}---\nservice: {}\nversion: 1\n", service::AUTH))
            .starts_with("document 2 of the dump: is a dump of service")
    );
    assert!(error(&head.replace("version: 2", "version: 3")).contains("has version 3; versions 1 and 2 can be loaded"));
    assert!(error("service: x\nversion: 2\n").starts_with("document 1"));
    assert!(error(&format!("{head}grants: {{}}\n")).contains("unknown field `grants`"));
    assert!(
        error(&format!("{head}configs:\n  {}:\n    {}: {{}}\n", known::application::REGISTRATION, id(1)))
            .contains("computed")
    );
    assert!(error("{").starts_with("the dump is not plain YAML or JSON"));
}

#[test]
fn an_object_under_two_classes_and_classes_in_a_circle_are_refused() {
    let object = |class: u128, object: u128| {
        json!({"service": service::CONFIGDB, "version": 2, "objects": {id(class): {id(object): {}}}}).to_string()
    };
    assert!(error(&format!("{}\n---\n{}\n", object(1, 3), object(2, 3))).contains("one primary class"));
    let circle = Dump::parse(&format!("{}\n---\n{}\n", object(1, 2), object(2, 1))).unwrap();
    assert!(matches!(circle.requests(&replica(&[]), &options()), Err(DumpError::Cycle { .. })));
}

#[test]
fn a_dumped_replica_is_stable_and_loading_it_where_it_came_from_writes_nothing() {
    let replica = replica(&[(1, Some("one")), (2, None), (3, Some("three"))]);
    let dump = Dump::from_replica(&replica).unwrap();
    let yaml = dump.to_yaml().unwrap();
    assert_eq!(yaml, Dump::from_replica(&replica).unwrap().to_yaml().unwrap());
    let read = Dump::parse(&yaml).unwrap();
    assert_eq!(read, dump);
    assert_eq!(read.requests(&replica, &options()).unwrap(), Vec::<Vec<WriteRequest>>::new());
    assert_eq!(dump.to_value()["objects"][id(0xc)][id(1)], json!({"name": "one", "owner": id(0xffff)}));
}

#[test]
fn an_incomplete_replica_is_neither_dumped_nor_loaded_into() {
    let replica = ConfigReplica::new(node());
    assert_eq!(Dump::from_replica(&replica), Err(DumpError::Incomplete));
    assert_eq!(Dump::default().requests(&replica, &options()), Err(DumpError::Incomplete));
}
