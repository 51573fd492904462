//! The account of a principal on its whole way: a KerberosKey at the edge, krb-keys with a real KDC, the cluster manager and ConfigDB as processes, and back.

use std::net::SocketAddr;

use e2e::central_services::{CentralServices, free_port};
use e2e::cli::Cli;
use e2e::wait;
use serde_json::{Value, json};
use site::kdc::REALM;
use site::{Running, Site};
use uuid::Uuid;

#[path = "../../../../services/krb-keys/tests/support/mod.rs"]
mod site;

const AGENT: &str = "00da3c0b-f62b-4761-a689-39ad0c33f864";
const EDGE_GROUP: &str = "9ba0de4b-056f-4b5e-b966-2d5d85d07767";
const GROUP: &str = "7b7e8c0e-0f0a-4b57-9a39-0a7a7e1f6c11";

fn key(principal: &str, account: Value) -> Value {
    json!({ "type": "Disabled", "principal": format!("{principal}@{REALM}"), "account": account })
}

/// Waits until an entry is there, or is not.
async fn until_entry(cli: &Cli, account: &str, application: &str, exists: bool) {
    let deadline = tokio::time::Instant::now() + wait::PATIENCE;
    loop {
        let outcome = cli.run(&["config", "get", account, application]).await;
        if (outcome.code == 0) == exists {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{application} of {account}: {outcome:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_principal_has_an_account_as_long_as_its_resource_and_its_cluster() {
    let site = Site::start().await;
    let port = site.broker.url().rsplit(':').next().unwrap().parse().unwrap();
    let broker = SocketAddr::from(([127, 0, 0, 1], port));
    let central = CentralServices::start(broker, free_port());
    let cli = Cli::new(&format!("mqtt://{broker}"));
    let cluster = cli.json(&["cluster", "create", "Test"]).await;
    let cluster: Uuid = cluster["uuid"].as_str().unwrap().parse().unwrap();
    let group = ["config", "put", GROUP, "Info", "-", "--class", EDGE_GROUP];
    cli.json_with(&group, r#"{"name": "Edge agents"}"#).await;

    let account = json!({ "class": AGENT, "name": "Robot", "groups": [GROUP], "sparkplug": { "node": "Robot" } });
    site.apply_key("robot", key("nd1/Test/Robot", account.clone()));
    site.apply_key("stranger", key("nd1/Test/Stranger", json!({ "class": EDGE_GROUP })));
    let config = krb_keys::Config {
        cluster: krb_keys::config::ClusterConfig { name: "Test".to_owned(), uuid: Some(cluster) },
        ..site.config()
    };
    let running = Running::start(config.clone());
    site.until_in_step("robot").await;
    let annotation = |site: &Site| {
        let resource = site.get("KerberosKey", "robot").unwrap();
        resource["metadata"]["annotations"]["krbkeys.factoryplus.app.amrc.co.uk/account-uuid"]
            .as_str()
            .map(str::to_owned)
    };
    let uuid = annotation(&site).unwrap();
    let entry = cli.json(&["config", "get", &uuid, "EdgeAccount"]).await;
    let expected = json!({
        "cluster": cluster, "principal": format!("nd1/Test/Robot@{REALM}"), "managed": true, "groups": [GROUP], "node": "Robot"
    });
    assert_eq!(entry, expected);
    let address = cli.json(&["config", "get", &uuid, "SparkplugAddress"]).await;
    assert_eq!(address, json!({ "group_id": "ACME-Test", "node_id": "Robot" }));
    let members = cli.json(&["config", "get", &uuid, "Membership"]).await;
    assert_eq!(members["memberOf"], json!([AGENT, GROUP]));
    let reason = site.until_is("KerberosKey", "stranger", "Refused").await;
    assert!(reason.contains("is not a class that an edge may use"), "{reason}");

    // krb-keys stops, and no account is deleted.
    running.stop().await;
    let running = Running::start(config);
    site.apply_key("robot", key("nd1/Test/Robot", json!({ "class": AGENT, "name": "Robot 2" })));
    site.until_in_step("robot").await;
    assert_eq!(annotation(&site).as_ref(), Some(&uuid), "the same account");
    assert_eq!(cli.json(&["config", "get", &uuid, "Info"]).await["name"], "Robot 2");
    until_entry(&cli, &uuid, "SparkplugAddress", false).await;

    // The resource ends while the control plane is away, which manages the account when it is back.
    assert!(central.processes.kill("cluster-manager"));
    site.delete("KerberosKey", "robot");
    site.until("the end of the resource", |site| site.get("KerberosKey", "robot").is_none()).await;
    until_entry(&cli, &uuid, "EdgeAccount", true).await;
    central.processes.restart("cluster-manager");
    until_entry(&cli, &uuid, "EdgeAccount", false).await;

    // The accounts of a cluster are deleted with it.
    site.apply_key("robot", key("nd1/Test/Robot", account));
    site.until_in_step("robot").await;
    running.stop().await;
    cli.json(&["cluster", "delete", "Test"]).await;
    until_entry(&cli, &uuid, "EdgeAccount", false).await;
    until_entry(&cli, &uuid, "Registration", false).await;
    site.stop().await;
}
