//! A deployment that is suspended, with separate processes: it stays as it is whatever is desired and whatever is killed, until it is resumed. What `check` says of such a site.

use std::time::Instant;

use e2e::cli::Outcome;
use e2e::wait::PATIENCE;
use serde_json::{Value, json};

use crate::site::{NAME, Site};

const OVEN: &str = "Paint_Shop/Oven_1";

/// The release of the deployment, as the cluster's Kubernetes has it.
fn release(site: &Site) -> Value {
    let all = site.edge.cluster.kubernetes().list("helm.toolkit.fluxcd.io/v2", "HelmRelease", None);
    let of_oven = |object: &Value| object["metadata"]["annotations"]["sparkfleet.io/name"] == "Oven_1";
    all.into_iter().map(|object| object.as_ref().clone()).find(of_oven).expect("the deployment has a release")
}

// long: one story in its order
#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_deployment_stays_as_it_is_until_it_is_resumed_whatever_is_killed() {
    let site = Site::start().await;
    let cli = &site.cli;
    let create = ["deployment", "create", "Oven_1", "--cluster", NAME];
    cli.json(&[&create[..], &["--wait"]].concat()).await;
    assert_eq!(release(&site)["spec"].get("suspend"), None);
    let looked_at = |release: &Value| release["status"]["observedGeneration"].clone();
    let installed = looked_at(&release(&site));
    let suspend = ["deployment", "suspend", OVEN, "--wait"];
    let suspended = cli.json(&suspend).await;
    assert_eq!(
        (&suspended["state"], &suspended["change"]),
        (&json!("suspended"), &json!("suspended")),
        "{suspended:#}"
    );
    assert_eq!(release(&site)["spec"]["suspend"], true);
    cli.run(&["deployment", "reconcile", OVEN]).await.refused(5, "is suspended; resume it first");

    // What is desired meanwhile arrives, and Flux does nothing about it.
    let again = cli.json_with(&[&create[..], &["--values", "-"]].concat(), r#"{ "replicas": 3 }"#).await;
    assert_eq!(again["change"], "changed", "{again:#}");
    site.central.processes.kill("cluster-manager");
    site.edge.processes.kill("edge-sync");
    site.central.processes.restart("cluster-manager");
    site.edge.processes.restart("edge-sync");
    let still = cli.json(&suspend).await;
    assert_eq!((&still["state"], &still["change"]), (&json!("suspended"), &json!("unchanged")), "{still:#}");
    let kept = release(&site);
    assert_eq!((&kept["spec"]["values"]["replicas"], looked_at(&kept)), (&json!(3), installed.clone()), "{kept:#}");
    let listed = cli.json(&["deployment", "list"]).await;
    assert_eq!((&listed[0]["state"], &listed[0]["ready"]), (&json!("suspended"), &Value::Null), "{listed:#}");

    let resumed = cli.json(&["deployment", "resume", OVEN, "--wait"]).await;
    assert_eq!(
        (&resumed["state"], &resumed["deployment"]["state"]),
        (&json!("ready"), &json!("applied")),
        "{resumed:#}"
    );
    let running = release(&site);
    assert_eq!(running["spec"].get("suspend"), None);
    assert_ne!(looked_at(&running), installed, "what was desired meanwhile is installed");

    let reconciled = cli.json(&["deployment", "reconcile", OVEN, "--wait"]).await;
    assert_eq!(reconciled["state"], "ready", "{reconciled:#}");
    let requested = |release: &Value| release["metadata"]["annotations"]["reconcile.fluxcd.io/requestedAt"].clone();
    let first = requested(&release(&site));
    assert!(first.is_string(), "{first}");
    let all = cli.json(&["cluster", "reconcile", NAME]).await;
    assert_eq!(all["deployments"], json!(["Oven_1"]));
    cli.json(&["deployment", "reconcile", OVEN, "--wait"]).await;
    assert_ne!(requested(&release(&site)), first);
}

/// What a check found, by its name.
fn found(outcome: &Outcome, check: &str) -> Value {
    let findings: Vec<Value> = serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{outcome:#?}"));
    findings.into_iter().find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("{check}: {outcome:#?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_says_what_works_and_what_does_not_and_its_bundle_holds_no_secret() {
    let site = Site::start().await;
    let cli = &site.cli;
    let values = r#"{ "password": "geheim-in-values" }"#;
    cli.json_with(&["deployment", "create", "Oven_1", "--cluster", NAME, "--values", "-", "--wait"], values).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("support.tar.gz").display().to_string();
    let good = cli.run(&["check", "--bundle", &file, "--output", "json"]).await;
    assert_eq!(good.code, 0, "{good:#?}");
    for check in
        ["broker", "ACME-Central/ConfigDB", "ACME-Central/Git", "git server", "message size", "versions", "clocks"]
    {
        assert_eq!(found(&good, check)["outcome"], "ok", "{check}: {good:#?}");
    }
    let listed = std::process::Command::new("tar").args(["-xzOf", &file]).output().unwrap();
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(text.contains("Oven_1") && !text.contains("geheim"), "{text}");

    site.central.processes.kill("git-server");
    let without = async || cli.run(&["check", "--output", "json"]).await;
    let mut bad = without().await;
    // Its death takes the time of its keep-alive at most.
    let deadline = Instant::now() + PATIENCE;
    while bad.code == 0 && Instant::now() < deadline {
        bad = without().await;
    }
    let git = found(&bad, "git server");
    assert_eq!((bad.code, &git["outcome"]), (1, &json!("failed")), "{bad:#?}");
    assert!(git["help"].as_str().unwrap().contains("start it"), "{git:#}");
    let nowhere = e2e::cli::Cli::new("mqtt://127.0.0.1:1");
    let nowhere = nowhere.run(&["check", "--output", "json"]).await;
    assert_eq!((nowhere.code, &found(&nowhere, "broker")["outcome"]), (1, &json!("failed")), "{nowhere:#?}");
}
