//! What the program says of itself, for people and for programs, without a broker.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::process::Command;

use serde_json::{Value, json};

/// What the program prints with a broker in its environment that nothing listens at, and a context that does not exist.
fn printed(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sparkfleet"));
    command.env("SPARKFLEET_BROKER", "mqtt://127.0.0.1:1").env("SPARKFLEET_CONTEXT", "none");
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_command_prints_what_the_option_prints() {
    let text = printed(&["version"]);
    assert_eq!(text, concat!("sparkfleet ", env!("CARGO_PKG_VERSION"), "\n"));
    assert_eq!(text, printed(&["--version"]));
    assert_eq!(printed(&["version", "-o", "name"]), "sparkfleet\n");
}

#[test]
fn programs_read_the_version_as_a_value() {
    let expected = json!({
        "name": "sparkfleet", "version": env!("CARGO_PKG_VERSION"),
        "os": std::env::consts::OS, "arch": std::env::consts::ARCH,
    });
    let json: Value = serde_json::from_str(&printed(&["version", "-o", "json"])).unwrap();
    assert_eq!(json, expected);
    let yaml: Value = serde_saphyr::from_str(&printed(&["version", "--output", "yaml"])).unwrap();
    assert_eq!(yaml, expected);
}
