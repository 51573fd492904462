//! A changed template of clusters' own repositories goes from wave to wave, with everything between real: a bad one stops at the first, a better one goes through all.

use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use e2e::cli::Cli;
use e2e::wait;

use crate::factory::Up;

/// Chart template of the edge services.
const EDGE_CHART: &str = "585aee52-838c-5d3c-aa46-ad9517487b54";

/// Waits until the part of a cluster in rollouts is as `found` wants it; returns it.
async fn rollout(cli: &Cli, cluster: &str, what: &str, found: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + wait::PATIENCE;
    loop {
        let last = cli.json(&["cluster", "rollout", cluster]).await;
        if found(&last) {
            return last;
        }
        assert!(Instant::now() < deadline, "{cluster} {what}: {last}");
    }
}

/// The commit that a cluster's repository is at.
async fn commit(up: &Up, cluster: &str) -> String {
    let url = format!("{}/git/cluster/{cluster}", up.git_url().await.trim_end_matches("/git"));
    let output = Command::new("git").args(["ls-remote", &url, "refs/heads/main"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty(), "{url}: {}", String::from_utf8_lossy(&output.stderr));
    text.split_whitespace().next().unwrap().to_owned()
}

async fn put_values(cli: &Cli, template: &Value, simulated: Value) {
    let mut template = template.clone();
    template["values"]["simulated"] = simulated;
    let put = cli.run_with(&["config", "put", EDGE_CHART, "HelmChartTemplate", "-"], &template.to_string()).await;
    assert_eq!(put.code, 0, "{put:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_template_of_the_edge_services_stops_after_the_first_wave_and_a_better_one_reaches_all() {
    let up = Up::embedded().await;
    for cluster in ["Press_Shop", "Body_Shop"] {
        up.process.says(&format!("cluster {cluster}: setup ready, edge alive")).await;
    }
    up.cli.json(&["cluster", "rollout", "Press_Shop", "--wave", "1"]).await;
    let settled = |rollout: &Value| rollout["unsettled"].is_null() && rollout["repository"].is_null();
    rollout(&up.cli, "Press_Shop", "is well on what it has", settled).await;
    let before = [commit(&up, "Press_Shop").await, commit(&up, "Body_Shop").await];

    let template = up.cli.json(&["config", "get", EDGE_CHART, "HelmChartTemplate"]).await;
    put_values(&up.cli, &template, json!({"fails": "values are not as they should be"})).await;
    let failed =
        |rollout: &Value| rollout["unsettled"].as_str().is_some_and(|why| why.contains("not as they should be"));
    let first = rollout(&up.cli, "Press_Shop", "fails", failed).await;
    assert!(first["unsettled"].as_str().unwrap().contains("Helm upgrade failed"), "{first}");
    let waits =
        |rollout: &Value| rollout["repository"].as_str().is_some_and(|why| why.contains("Press_Shop of wave 1"));
    rollout(&up.cli, "Body_Shop", "waits", waits).await;
    assert_ne!(commit(&up, "Press_Shop").await, before[0]);
    assert_eq!(commit(&up, "Body_Shop").await, before[1], "nothing was written there");

    put_values(&up.cli, &template, json!({"note": "better"})).await;
    rollout(&up.cli, "Body_Shop", "continues", |rollout| rollout["repository"].is_null()).await;
    rollout(&up.cli, "Press_Shop", "is well again", settled).await;
    let after = commit(&up, "Body_Shop").await;
    assert_ne!(after, before[1]);
}
