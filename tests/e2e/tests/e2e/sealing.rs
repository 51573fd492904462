//! A secret on its way from an operator's keyboard into a cluster, sealed all the way.

use std::fs;

use e2e::wait;
use serde_json::Value;

use crate::site::{NAME, Site};

const VALUE: &str = "correct horse battery staple";

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_sealed_on_the_command_line_opens_in_its_cluster_and_is_read_by_nobody_between() {
    let site = Site::start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), VALUE).unwrap();
    let from_file = format!("password={}", file.path().display());
    let seal = ["secret", "seal", NAME, "--name", "press-login", "--from-file", &from_file, "--from-file", "user=-"];
    let sealed = site.cli.json_with(&seal, "operator-1").await;
    let shown = sealed.to_string();
    assert!(!shown.contains(VALUE) && !shown.contains("operator-1"), "{shown}");

    // As Flux would, from by-hand/ of the cluster's repository.
    let kubernetes = site.edge.cluster.kubernetes().clone();
    kubernetes.apply("test", sealed).unwrap();
    let opened = || kubernetes.get("v1", "Secret", "fplus-edge", "press-login").ok();
    let secret = wait::until("the Secret", opened, String::new).await;
    assert_eq!(decoded(&secret["data"]["password"]), VALUE);
    assert_eq!(decoded(&secret["data"]["user"]), "operator-1");
    let said = site.recorder.messages().iter().any(|message| contains(&message.payload, VALUE.as_bytes()));
    assert!(!said, "no message holds the value");

    let missing = site.cli.run(&["secret", "seal", NAME, "--name", "x", "--from-file", "password=/nonexistent"]).await;
    missing.refused(3, "cannot read /nonexistent");
    let bad = site.cli.run(&["secret", "seal", NAME, "--name", "Not_A_Name", "--from-file", &from_file]).await;
    bad.refused(2, "name \"Not_A_Name\" must be");
    let nowhere = site.cli.run(&["secret", "seal", "Nowhere", "--name", "x", "--from-file", &from_file]).await;
    nowhere.refused(2, "there is no cluster \"Nowhere\"");
}

/// Base64, by the program that everybody has.
fn decoded(value: &Value) -> String {
    let text = value.as_str().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let output = std::process::Command::new("base64").arg("-d").arg(file.path()).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|part| part == needle)
}
