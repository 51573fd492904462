//! A secret on its way from an operator's keyboard into a cluster, sealed all the way.

use std::fs;

use e2e::wait;
use serde_json::Value;

use crate::site::{NAME, Site};
use crate::tokens::{contains, flux_sleeps, nowhere};

const VALUE: &str = "correct horse battery staple";

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_sealed_on_the_command_line_opens_in_its_cluster_and_is_readable_nowhere_between() {
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
    nowhere.refused(7, "there is no cluster \"Nowhere\"");
}

/// Base64, decoded by the program `base64`.
fn decoded(value: &Value) -> String {
    let text = value.as_str().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let output = std::process::Command::new("base64").arg("-d").arg(file.path()).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_put_on_the_command_line_comes_sealed_into_the_repository_and_opens_in_its_cluster() {
    let site = Site::start().await;
    flux_sleeps(&site).await;
    let cli = &site.cli;
    let directory = tempfile::tempdir().unwrap();
    let put = ["secret", "put", NAME, "press-login", "password"];
    let tried = cli.json_with(&[&put[..], &["--dry-run"]].concat(), VALUE).await;
    assert_eq!(tried["pinned"], false, "{tried}");
    assert_eq!(cli.json(&["secret", "list", NAME]).await["secrets"].as_array().unwrap().len(), 0);
    let used = tried["fingerprint"].as_str().unwrap();
    let pinned = [&put[..], &["--fingerprint", used]].concat();
    assert_eq!(cli.json_with(&pinned, VALUE).await["pinned"], true);
    let file = directory.path().join("user.txt");
    fs::write(&file, "operator-1").unwrap();
    let file = file.display().to_string();
    let shown = cli.run(&["secret", "put", NAME, "press-login", "user", "--file", &file]).await;
    assert!(shown.code == 0 && shown.stdout.contains(&format!("not pinned: --fingerprint {used}")), "{shown:#?}");

    let kubernetes = site.edge.cluster.kubernetes().clone();
    let get = || kubernetes.get("v1", "Secret", "fplus-edge", "press-login").ok();
    let both = || get().filter(|secret| secret["data"]["user"].is_string() && secret["data"]["password"].is_string());
    let secret = wait::until("the Secret", both, || site.edge.processes.tails()).await;
    assert_eq!(decoded(&secret["data"]["password"]), VALUE);
    assert_eq!(decoded(&secret["data"]["user"]), "operator-1");
    let listed = cli.json(&["secret", "list", NAME]).await;
    assert_eq!(listed["fingerprint"], used);
    let keys = listed["secrets"][0]["keys"].as_array().unwrap();
    let is_there = |key: &Value| key["fingerprint"] == used && key["seal_again"] == false && key["state"] == "written";
    assert!(keys.len() == 2 && keys.iter().all(is_there), "{listed}");
    let table = cli.run(&["secret", "list", NAME]).await.stdout;
    assert!(table.contains("press-login") && table.contains("password,user"), "{table}");

    let other = "0f".repeat(32);
    let refused = cli.run_with(&[&put[..], &["--fingerprint", &other]].concat(), VALUE).await;
    refused.refused(5, "nothing was sent");
    let wide = cli.run_with(&[&put[..], &["--scope", "cluster-wide"]].concat(), VALUE).await;
    wide.refused(2, "scope: fplus-edge/press-login has strict, not cluster-wide");
    let unknown = cli.run_with(&["secret", "put", "Nowhere", "x", "y"], VALUE).await;
    unknown.refused(7, "there is no cluster \"Nowhere\"");
    cli.run_with(&["secret", "put", NAME, "Not_A_Name", "y"], VALUE).await.refused(2, "name \"Not_A_Name\" must be");

    // While the manager is away ConfigDB takes it, and it comes into the repository later.
    site.central.processes.kill("cluster-manager");
    let later = cli.run_with(&[&put[..], &["--timeout", "3s"]].concat(), "another value").await;
    assert_ne!(later.code, 0, "{later:#?}");
    site.central.processes.restart("cluster-manager");
    assert_eq!(cli.json_with(&put, "another value").await["key"], "password");
    let changed = || get().filter(|secret| decoded(&secret["data"]["password"]) == "another value");
    wait::until("the other value", changed, || site.edge.processes.tails()).await;

    let delete = ["secret", "delete", NAME, "press-login", "password"];
    cli.json(&[&delete[..], &["--dry-run"]].concat()).await;
    cli.json(&[&delete[..], &["user"]].concat()).await;
    let gone = || get().is_none().then_some(());
    wait::until("the Secret to go", gone, || site.edge.processes.tails()).await;
    assert_eq!(cli.json(&["secret", "list", NAME]).await["secrets"].as_array().unwrap().len(), 0);
    cli.run(&delete).await.refused(7, "there is no \"fplus-edge/press-login/password\"");
    nowhere(&site, &[VALUE, "operator-1", "another value"]).await;
}
