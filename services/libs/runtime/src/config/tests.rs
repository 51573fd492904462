//! The layers together, as a service sees them.

use super::*;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write;
use tempfile::NamedTempFile;

/// Services that share an environment.
const NEIGHBOURS: &[&str] = &["configdb", "edge-sync", "monitor"];

#[derive(Debug, PartialEq, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    Edge,
    Central,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mqtt {
    servers: Vec<String>,
    client_id: String,
    keep_alive_s: u16,
    user: Option<String>,
    retries: Option<u32>,
    password: Secret,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Service {
    organisation: String,
    mode: Mode,
    strict: bool,
    ratio: f64,
    labels: BTreeMap<String, String>,
    ports: Vec<u16>,
    mqtt: Mqtt,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            organisation: "ACME".to_owned(),
            mode: Mode::Edge,
            strict: true,
            ratio: 0.5,
            labels: BTreeMap::new(),
            ports: Vec::new(),
            mqtt: Mqtt {
                servers: vec!["mqtt://localhost:1883".to_owned()],
                client_id: String::new(),
                keep_alive_s: 30,
                user: None,
                retries: None,
                password: Secret::default(),
            },
        }
    }
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn env(variables: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    variables.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn with_env(variables: &[(&str, &str)]) -> Result<Service, ConfigError> {
    load_with("edge-sync", NEIGHBOURS, None, env(variables))
}

fn with_file(text: &str) -> Result<Service, ConfigError> {
    load_with("edge-sync", NEIGHBOURS, Some(file(text).path()), env(&[]))
}

/// The message, with the path of the temporary file replaced.
fn file_error(text: &str) -> String {
    let file = file(text);
    let error = load_with::<Service, _>("edge-sync", NEIGHBOURS, Some(file.path()), env(&[])).unwrap_err();
    let line = crate::exit::one_line(&error);
    assert!(!line.contains('\n'), "{line}");
    line.replace(&file.path().display().to_string(), "FILE").replace("sparkfleet: ", "")
}

fn env_error(variables: &[(&str, &str)]) -> String {
    with_env(variables).unwrap_err().to_string()
}

#[test]
fn without_file_and_environment_the_defaults_hold() {
    let config = with_env(&[("PATH", "/bin"), ("SPARKFLEET_LOG", "debug")]).unwrap();
    assert_eq!((config.organisation.as_str(), config.mode, config.mqtt.keep_alive_s), ("ACME", Mode::Edge, 30));
    assert!(!config.mqtt.password.is_set() && config.mqtt.user.is_none());
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
    let file = file(
        "organisation = \"File\"\n[mqtt]\nclient_id = \"from-file\"\nkeep_alive_s = 10\n[labels]\nsite = \"North\"\n",
    );
    let environment = env(&[("SPARKFLEET__MQTT__CLIENT_ID", "007"), ("SPARKFLEET__LABELS__LINE", "4")]);
    let config: Service = load_with("edge-sync", NEIGHBOURS, Some(file.path()), environment).unwrap();
    assert_eq!(config.organisation, "File");
    assert_eq!((config.mqtt.client_id.as_str(), config.mqtt.keep_alive_s), ("007", 10));
    let labels: Vec<_> = config.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(labels, ["line=4", "site=North"]);
}

#[test]
fn every_type_can_be_set_from_the_environment() {
    let config = with_env(&[
        ("SPARKFLEET__MODE", "central"),
        ("SPARKFLEET__STRICT", "False"),
        ("SPARKFLEET__RATIO", "2"),
        ("SPARKFLEET__PORTS", "1883, 8883"),
        ("SPARKFLEET__MQTT__SERVERS", "mqtt://a,mqtt://b"),
        ("SPARKFLEET__MQTT__RETRIES", "3"),
        ("SPARKFLEET__MQTT__PASSWORD", "12345"),
    ])
    .unwrap();
    assert_eq!((config.mode, config.strict, config.ratio), (Mode::Central, false, 2.0));
    assert_eq!(
        (config.ports, config.mqtt.servers),
        (vec![1883, 8883], vec!["mqtt://a".to_owned(), "mqtt://b".to_owned()])
    );
    assert_eq!((config.mqtt.retries, config.mqtt.password.expose_secret()), (Some(3), "12345"));
    assert!(with_env(&[("SPARKFLEET__MQTT__SERVERS", "")]).unwrap().mqtt.servers.is_empty());
}

#[test]
fn a_variable_with_the_services_name_is_its_own_and_wins() {
    let config = with_env(&[
        ("SPARKFLEET__ORGANISATION", "Everyone"),
        ("SPARKFLEET__EDGE_SYNC__ORGANISATION", "Mine"),
        ("SPARKFLEET__CONFIGDB__DATABASE__PATH", "/not/mine"),
    ])
    .unwrap();
    assert_eq!(config.organisation, "Mine");
    assert_eq!(
        env_error(&[("SPARKFLEET__EDGE_SYNC__MQTT__CLIENT", "x")]),
        "unknown key mqtt.client in environment variable SPARKFLEET__EDGE_SYNC__MQTT__CLIENT, did you mean mqtt.client_id?"
    );
}

#[test]
fn an_unknown_key_is_reported_with_its_place_and_the_nearest_key() {
    assert_eq!(
        file_error("[mqtt]\nkeepalive = 3"),
        "unknown key mqtt.keepalive in FILE, did you mean mqtt.keep_alive_s?"
    );
    assert_eq!(file_error("[mqt]\nuser = 'x'"), "unknown key mqt.user in FILE, did you mean mqtt.user?");
    assert_eq!(
        env_error(&[("SPARKFLEET__MQT__SERVERS", "x")]),
        "unknown key mqt.servers in environment variable SPARKFLEET__MQT__SERVERS, did you mean mqtt.servers?"
    );
}

#[test]
fn a_wrong_type_is_reported_with_key_type_and_place_but_without_the_value() {
    assert_eq!(file_error("[mqtt]\nkeep_alive_s = '30'"), "mqtt.keep_alive_s in FILE must be an integer, not a string");
    assert_eq!(file_error("strict = 1"), "strict in FILE must be true or false, not an integer");
    assert_eq!(file_error("mqtt = 5"), "mqtt in FILE must be a table, not an integer");
    assert_eq!(
        file_error("[mqtt]\nkeep_alive_s = 3.7"),
        "mqtt.keep_alive_s in FILE must be an integer, not a number with a fraction"
    );
    assert_eq!(
        env_error(&[("SPARKFLEET__MQTT__KEEP_ALIVE_S", "hunter2")]),
        "mqtt.keep_alive_s in environment variable SPARKFLEET__MQTT__KEEP_ALIVE_S must be an integer, not other text"
    );
}

#[test]
fn a_value_out_of_range_is_reported_with_its_place() {
    assert_eq!(
        file_error("[mqtt]\nkeep_alive_s = 70000"),
        "mqtt.keep_alive_s in FILE is invalid: expected an unsigned 16 bit integer, found 64-bit unsigned integer"
    );
    assert_eq!(
        env_error(&[("SPARKFLEET__MQTT__RETRIES", "many")]),
        "mqtt.retries in environment variable SPARKFLEET__MQTT__RETRIES is invalid: expected an integer, found string"
    );
    assert_eq!(
        file_error("ports = [1, -2]"),
        "ports[1] in FILE is invalid: expected an unsigned 64 bit or less integer, found 64-bit integer"
    );
}

#[test]
fn an_unknown_choice_lists_the_known_ones() {
    assert_eq!(file_error("mode = 'center'"), "mode in FILE is invalid: it must be `edge` or `central`");
}

#[test]
fn a_secret_or_an_absent_value_can_come_from_a_file() {
    let secret = file("hunter2\n");
    let path = secret.path().display().to_string();
    let config = with_file(&format!("[mqtt]\npassword_file = '{path}'\nuser_file = '{path}'")).unwrap();
    assert_eq!((config.mqtt.password.expose_secret(), config.mqtt.user.as_deref()), ("hunter2", Some("hunter2")));
    assert!(!format!("{config:?}").replace("user: Some(\"hunter2\")", "").contains("hunter2"));

    let config = with_env(&[("SPARKFLEET__MQTT__PASSWORD_FILE", &path)]).unwrap();
    assert_eq!(config.mqtt.password.expose_secret(), "hunter2");

    let twice = file_error(&format!("[mqtt]\npassword = 'a'\npassword_file = '{path}'"));
    assert_eq!(twice, "both mqtt.password and mqtt.password_file are given in FILE: keep one of them");
    assert_eq!(
        file_error("[mqtt]\npassword_file = '/nonexistent'"),
        "cannot read /nonexistent, which mqtt.password_file in FILE names: No such file or directory (os error 2)"
    );
    assert_eq!(
        file_error("organisation_file = 'x'"),
        "unknown key organisation_file in FILE, did you mean organisation?"
    );
}

#[test]
fn an_unreadable_or_malformed_file_is_reported_in_one_line() {
    let error =
        load_with::<Service, _>("edge-sync", NEIGHBOURS, Some(Path::new("/nonexistent.toml")), env(&[])).unwrap_err();
    assert_eq!(
        crate::exit::one_line(&error),
        "sparkfleet: cannot read the configuration file /nonexistent.toml: No such file or directory (os error 2)"
    );
    let syntax = file_error("[mqtt\nuser = 1");
    assert!(syntax.starts_with("FILE is not valid TOML: line 1, column 6: "), "{syntax}");
}

#[test]
fn defaults_that_are_not_a_table_are_refused() {
    let error = load_with::<Vec<u8>, _>("edge-sync", NEIGHBOURS, None, env(&[])).unwrap_err();
    assert_eq!(error.to_string(), "the default configuration cannot be used: they are not a table");
}

#[test]
fn the_address_of_the_health_server_can_be_given_and_is_checked() {
    #[derive(Debug, Default, Serialize, Deserialize)]
    struct Watched {
        http: crate::health::HttpConfig,
    }
    let load = |value: &str| {
        load_with::<Watched, _>("configdb", NEIGHBOURS, None, env(&[("SPARKFLEET__HTTP__LISTEN", value)]))
    };
    assert_eq!(load("127.0.0.1:9090").unwrap().http.listen, Some("127.0.0.1:9090".parse().unwrap()));
    assert_eq!(
        load("9090").unwrap_err().to_string(),
        "http.listen in environment variable SPARKFLEET__HTTP__LISTEN is invalid: invalid socket address syntax"
    );
}
