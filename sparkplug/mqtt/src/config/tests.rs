//! Every refused value names its key; what is valid is taken as it is written.

use super::*;
use crate::password::REDACTED;
use crate::server_address::Scheme;

fn refusal(change: impl FnOnce(&mut MqttConfig)) -> String {
    let mut config = MqttConfig::default();
    change(&mut config);
    config.validate().unwrap_err().to_string()
}

fn server(text: &str) -> Result<ServerAddress, String> {
    ServerAddress::parse(text).map_err(|error| error.to_string())
}

#[test]
fn the_default_is_valid_and_plain_on_this_machine() {
    let config = MqttConfig::default();
    config.validate().unwrap();
    assert_eq!(config.addresses().unwrap()[0].to_string(), "mqtt://127.0.0.1:1883");
}

#[test]
fn server_addresses_are_parsed_with_the_usual_ports() {
    let at = |host: &str, port, scheme, path: &str| {
        Ok(ServerAddress { host: host.to_owned(), port, scheme, path: path.to_owned() })
    };
    let address = |host, port, tls| at(host, port, if tls { Scheme::Tls } else { Scheme::Tcp }, "");
    assert_eq!(server("mqtt://broker"), address("broker", 1883, false));
    assert_eq!(server("mqtts://broker/"), address("broker", 8883, true));
    assert_eq!(server("mqtt://10.0.0.1:2"), address("10.0.0.1", 2, false));
    assert_eq!(server("mqtt://[::1]:2"), address("[::1]", 2, false));
    assert_eq!(server("mqtt://[::1]"), address("[::1]", 1883, false));
    #[cfg(feature = "websocket")]
    {
        assert_eq!(server("ws://broker"), at("broker", 80, Scheme::WebSocket, ""));
        assert_eq!(server("ws://broker:9001/mqtt"), at("broker", 9001, Scheme::WebSocket, "/mqtt"));
        assert_eq!(server("wss://broker/"), at("broker", 443, Scheme::WebSocketTls, "/"));
        assert_eq!(server("wss://broker/a/b").unwrap().to_string(), "wss://broker:443/a/b");
    }
}

#[test]
fn other_server_texts_are_refused_with_the_rule() {
    for (text, rule) in [
        ("broker:1883", "does not begin with mqtt:// or mqtts://"),
        ("http://broker", "does not begin with mqtt:// or mqtts://"),
        ("mqtt://", "has no host"),
        ("mqtt://:1883", "has no host"),
        ("mqtt://broker:0", "has no port from 1 to 65535"),
        ("mqtt://broker:99999", "has no port from 1 to 65535"),
        ("mqtt://broker:1883/path", "has something after the port"),
        ("ws://broker/path?query", "has something after the port, or after the path"),
        ("mqtt://::1:1883", "has an IPv6 address without brackets"),
        ("mqtts://[::1]:8883", "uses TLS with an IPv6 address"),
    ] {
        let error = server(text).unwrap_err();
        assert!(error.contains(rule) && error.contains(text), "{text}: {error}");
    }
}

#[test]
fn a_password_in_a_server_address_is_refused_and_not_repeated() {
    let error = server("mqtt://user:hunter2@broker").unwrap_err();
    assert!(error.starts_with("mqtt.servers ") && !error.contains("hunter2"), "{error}");
}

#[test]
fn every_refused_value_names_its_key() {
    assert!(refusal(|c| c.servers.clear()).starts_with("mqtt.servers is empty"));
    assert!(refusal(|c| c.client_id_prefix = "a/b".into()).starts_with("mqtt.client_id_prefix "));
    assert!(refusal(|c| c.client_id_prefix.clear()).starts_with("mqtt.client_id_prefix "));
    assert!(refusal(|c| c.username = Some(String::new())).starts_with("mqtt.username "));
    assert!(refusal(|c| c.password = "x".into()).starts_with("mqtt.password "));
    assert!(refusal(|c| c.keep_alive_s = 0).starts_with("mqtt.keep_alive_s "));
    assert!(refusal(|c| (c.keep_alive_s, c.protocol) = (4, Protocol::V5)).starts_with("mqtt.keep_alive_s "));
    assert!(refusal(|c| c.store = Store::Disk).starts_with("mqtt.store_directory "));
    assert!(refusal(|c| c.store_bytes_max = 10).starts_with("mqtt.store_bytes_max "));
    assert!(refusal(|c| c.connect_timeout_s = 0).starts_with("mqtt.connect_timeout_s "));
    assert!(refusal(|c| c.packet_bytes_max = 10).starts_with("mqtt.packet_bytes_max "));
    assert!(refusal(|c| c.waiting_events_max = 0).starts_with("mqtt.waiting_events_max "));
    assert!(refusal(|c| c.waiting_bytes_max = 0).starts_with("mqtt.waiting_bytes_max "));
    assert!(refusal(|c| c.servers = vec!["mqtts://b".into()]).starts_with("mqtt.ca_file "));
    assert!(refusal(|c| c.ca_file = Some("ca.pem".into())).starts_with("mqtt.servers has no mqtts://"));
    assert!(refusal(|c| c.cert_file = Some("c.pem".into())).starts_with("mqtt.key_file "));
    assert!(refusal(|c| c.key_file = Some("k.pem".into())).starts_with("mqtt.cert_file "));
    let tls = |c: &mut MqttConfig| {
        c.servers = vec!["mqtts://b".into()];
        c.ca_file = Some("/nonexistent/ca.pem".into());
    };
    assert_eq!(refusal(tls), "mqtt.ca_file: cannot read /nonexistent/ca.pem");
}

#[test]
fn a_password_is_never_shown() {
    let config = MqttConfig { password: "hunter2".into(), ..MqttConfig::default() };
    assert!(!format!("{config:?}").contains("hunter2"));
    let json = serde_json::to_value(&config).unwrap();
    assert_eq!(json["password"], "[redacted]");
    assert!(serde_json::from_value::<MqttConfig>(json).is_err());
    let read: MqttConfig = serde_json::from_str(r#"{"password": "hunter2"}"#).unwrap();
    assert_eq!(read.password.expose(), "hunter2");
    assert!(serde_json::from_str::<MqttConfig>(r#"{"sever": []}"#).is_err());
}

#[test]
fn the_documented_keys_are_the_real_ones_with_their_defaults() {
    let serde_json::Value::Object(real) = serde_json::to_value(MqttConfig::default()).unwrap() else { unreachable!() };
    let text = |value: &serde_json::Value| match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) if text == REDACTED => String::new(),
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(items) => items.iter().filter_map(|item| item.as_str()).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    };
    let real: Vec<_> = real.iter().map(|(key, value)| (format!("mqtt.{key}"), text(value))).collect();
    let documented: Vec<_> = MqttConfig::KEYS.iter().map(|k| (k.key.to_owned(), k.default.to_owned())).collect();
    assert_eq!(documented, real);
}
