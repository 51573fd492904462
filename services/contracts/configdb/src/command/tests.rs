//! Requests survive their commands; what is not a request is refused with the metric at fault.

use configdb_schema::Organisation;
use serde_json::json;

use super::*;

const OBJECT: Uuid = Uuid::from_u128(0xabc);

fn parse(metrics: Vec<Metric>) -> Result<Command, CommandError> {
    Command::parse(Some(&device_id(OBJECT)), &metrics)
}

fn error(metrics: Vec<Metric>) -> (String, String) {
    let error = parse(metrics).unwrap_err();
    (error.field, error.reason)
}

#[test]
fn a_write_request_survives_its_command() {
    let class = Uuid::from_u128(1);
    for request in [
        WriteRequest::put("r", OBJECT).entry("Info", json!({"name": "x"})),
        WriteRequest::patch("r", OBJECT).entry("Info", json!({"name": null})).by("me").if_match("Info", Some(class)),
        WriteRequest::put("r", OBJECT).create_object(class, None).member_of([class]).subclass_of([]).delete("Info"),
        WriteRequest::put("r", OBJECT)
            .create_object(class, Some(class))
            .entry("Info", json!(false))
            .if_match("Info", None),
        WriteRequest::put("r", OBJECT).delete_object(),
        WriteRequest::put("r", OBJECT).delete("Info").if_contains(Point { timeline: u64::MAX, revision: 7 }),
    ] {
        let HostRequest::Command { node, device, metrics } =
            request.to_command(&crate::configdb_node(&Organisation::new("ACME").unwrap()))
        else {
            panic!("a request is a command")
        };
        assert_eq!(node.to_string(), "ACME-Central/ConfigDB");
        assert_eq!(Command::parse(device.as_ref(), &metrics), Ok(Command::Write(request)));
    }
}

#[test]
fn a_replay_request_survives_its_command_and_its_limit_is_bounded() {
    let mut request = ReplayRequest { slug: Some("Info".to_owned()), ..ReplayRequest::new("r", OBJECT, 3) };
    assert_eq!(parse(request.to_metrics()), Ok(Command::Replay(request.clone())));
    request.limit = u64::MAX;
    let Ok(Command::Replay(read)) = parse(request.to_metrics()) else { panic!("a replay") };
    assert_eq!(read.limit, names::HISTORY_LIMIT_MAX);
}

#[test]
fn an_operator_with_a_user_of_their_own_sends_to_the_device_of_that_name_and_every_other_client_to_the_object() {
    let organisation = Organisation::new("ACME").unwrap();
    let configdb = crate::configdb_node(&organisation);
    let request = WriteRequest::put("r", OBJECT).entry("Info", json!({"name": "x"}));
    let sent = |user: &str| {
        let command = Sender::new(&organisation, user).send(request.to_command(&configdb), &configdb);
        let HostRequest::Command { device: Some(device), metrics, .. } = command else { panic!("a command") };
        assert_eq!(Command::parse(Some(&device), &metrics), Ok(Command::Write(request.clone())), "{user}");
        device
    };
    let user = "ACME-Central-Operator-ada";
    assert_eq!((sent(user).as_str(), user_of(&sent(user))), (user, Some(user)));
    for user in ["", "ACME-Central-Operator", "ACME-Central", "OTHER-Central-Operator-ada"] {
        assert_eq!((sent(user), user_of(&sent(user))), (device_id(OBJECT), None), "{user}");
    }
}

#[test]
fn a_command_to_the_device_of_a_user_names_one_object_and_one_to_an_object_names_none() {
    let user = DeviceId::new("ACME-Central-Operator-ada").unwrap();
    let object = |text: &str| Metric::new(names::REQUEST_OBJECT, text);
    let write = || WriteRequest::put("r", OBJECT).delete("Info").to_metrics();
    let field = |device: &DeviceId, more: Vec<Metric>| {
        Command::parse(Some(device), &[write(), more].concat()).unwrap_err().field
    };
    assert_eq!(field(&user, vec![]), "device id");
    assert_eq!(field(&user, vec![object("x")]), "device id");
    assert_eq!(field(&user, vec![object(&OBJECT.to_string()), object(&Uuid::nil().to_string())]), "Request/Object");
    assert_eq!(field(&device_id(OBJECT), vec![object(&Uuid::nil().to_string())]), "Request/Object");
}

#[test]
fn a_malformed_command_names_the_metric_and_the_rule() {
    let id = || Metric::new(names::REQUEST_ID, "r");
    let info = || Metric::new("Info", "{}");
    let field = |metrics| error(metrics).0;
    assert_eq!(field(vec![info()]), "Request/Id");
    assert_eq!(field(vec![id()]), "Request/Id");
    assert_eq!(field(vec![Metric::new(names::REQUEST_ID, "x".repeat(129)), info()]), "Request/Id");
    assert_eq!(field(vec![Metric::new(names::REQUEST_ID, "a\nb"), info()]), "Request/Id");
    assert_eq!(field(vec![id(), id(), info()]), "Request/Id");
    assert_eq!(field(vec![id(), Metric::new("Request/Modus", "put"), info()]), "Request/Modus");
    assert_eq!(field(vec![id(), Metric::new(names::REQUEST_MODE, "merge"), info()]), "Request/Mode");
    assert_eq!(field(vec![id(), Metric::new(names::REQUEST_IF_MATCH, r#"{"Info":"x"}"#), info()]), "Request/If_Match");
    let state = |text: &str| field(vec![id(), Metric::new(names::REQUEST_IF_CONTAINS, text), info()]);
    assert_eq!([state("7"), state("7/7"), state("")], ["Request/If_Contains"; 3]);
    assert_eq!(field(vec![id(), Metric::new(names::HISTORY_REPLAY, -1_i64)]), "History/Replay");
    assert_eq!(field(vec![id(), info(), Metric::new(names::HISTORY_REPLAY, 1_u64)]), "History/Replay");
    assert_eq!(field(vec![id(), Metric::new("Registration", r#"{"class":"x"}"#)]), "Registration");
    assert_eq!(field(vec![id(), Metric::new("Registration", r#"{"rank":1}"#)]), "Registration");
    assert_eq!(field(vec![id(), Metric::new("Membership", r#"{"memberof":[]}"#)]), "Membership");
    assert_eq!(field(vec![id(), Metric::null("Membership", DataType::String)]), "Membership");
    let (field, reason) = error(vec![id(), Metric::new("Info", "{")]);
    assert_eq!(field, "Info");
    assert!(reason.starts_with("is not JSON: EOF"), "{reason}");
    assert_eq!(error(vec![id(), Metric::new("Info", 3_u64)]).1, "is UInt64; it must be a String");
}

#[test]
fn a_refused_command_keeps_its_id_only_if_that_can_be_answered() {
    let bad = |id: &str| parse(vec![Metric::new(names::REQUEST_ID, id), Metric::new("Info", "{")]).unwrap_err();
    assert_eq!((bad("r").id.as_deref(), bad("r").object), (Some("r"), Some(OBJECT)));
    assert_eq!(bad(&"x".repeat(200)).id, None);
}

#[test]
fn a_command_to_the_node_or_to_something_other_than_an_object_is_refused() {
    let metrics = [Metric::new(names::REQUEST_ID, "r"), Metric::new("Info", "{}")];
    assert_eq!(Command::parse(None, &metrics).unwrap_err().field, "device id");
    for device in ["pump", "00000000-0000-0000-0000-000000000ABC", "{00000000-0000-0000-0000-000000000abc}"] {
        let error = Command::parse(Some(&DeviceId::new(device).unwrap()), &metrics).unwrap_err();
        assert_eq!((error.field.as_str(), error.object), ("device id", None));
    }
}

#[test]
fn hugely_nested_json_is_an_error_not_a_crash() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(error(vec![Metric::new(names::REQUEST_ID, "r"), Metric::new("Info", deep)]).0, "Info");
}

#[test]
fn parts_and_commits_of_a_transaction_survive_their_commands() {
    let configdb = crate::configdb_node(&Organisation::new("ACME").unwrap());
    let parsed = |request: HostRequest| {
        let HostRequest::Command { device, metrics, .. } = request else { panic!("a request is a command") };
        Command::parse(device.as_ref(), &metrics)
    };
    let write = WriteRequest::put("r", OBJECT).entry("Info", json!({"name": "x"}));
    let part = PartRequest { transaction: "t".to_owned(), position: 7, write };
    assert_eq!(parsed(part.to_command(&configdb)), Ok(Command::Part(part)));
    let commit = CommitRequest { id: "c".to_owned(), transaction: "t".to_owned(), parts: 8 };
    assert_eq!(parsed(commit.to_command(&configdb)), Ok(Command::Commit(commit)));
}

#[test]
fn what_is_neither_part_nor_commit_is_refused() {
    let id = || Metric::new(names::REQUEST_ID, "r");
    let transaction = || Metric::new(names::TRANSACTION_ID, "t");
    let position = || Metric::new(names::TRANSACTION_POSITION, 0u64);
    let commit = || Metric::new(names::TRANSACTION_COMMIT, 1u64);
    let info = || Metric::new("Info", "{}");
    for metrics in [
        vec![id(), transaction()],
        vec![id(), transaction(), info()],
        vec![id(), transaction(), position()],
        vec![id(), transaction(), commit(), info()],
        vec![id(), transaction(), position(), commit(), info()],
        vec![id(), position(), info()],
        vec![id(), commit()],
        vec![id(), transaction(), position(), info(), Metric::new(names::HISTORY_REPLAY, 1u64)],
    ] {
        assert_eq!(error(metrics).0, names::TRANSACTION_ID);
    }
}
