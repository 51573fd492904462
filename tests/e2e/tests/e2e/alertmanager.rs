//! Alerts reach Debian's Alertmanager: also one that was away when they were raised, and end there when they have ended.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use e2e::central_services::{free_port, service_process};
use e2e::process::Process;
use e2e::wait;
use serde_json::{Value, json};

use crate::site::{NAME, Site};

const USER: &str = "console";
const PASSWORD: &str = "taken";

/// Who the Alertmanager admits; the password is a bcrypt hash of [`PASSWORD`].
const USERS: &str = "basic_auth_users:\n  console: \"$2b$04$/OFuYDuA6nV9qL68eUSLiuEES6WTEp2C/c/frwCHH3UQD3bMRABGy\"\n";

/// It only keeps alerts.
const CONFIGURATION: &str = "route:\n  receiver: none\nreceivers:\n  - name: none\n";

fn alertmanager(listen: SocketAddr, directory: &Path) -> Process {
    std::fs::write(directory.join("alertmanager.yml"), CONFIGURATION).unwrap();
    std::fs::write(directory.join("web.yml"), USERS).unwrap();
    let inside = |option: &str, name: &str| format!("--{option}={}", directory.join(name).display());
    let arguments = [
        inside("config.file", "alertmanager.yml"),
        inside("web.config.file", "web.yml"),
        inside("storage.path", "data"),
        "--cluster.listen-address=".to_owned(),
        format!("--web.listen-address={listen}"),
    ];
    let arguments = arguments.each_ref().map(String::as_str);
    Process::start("alertmanager", Path::new("prometheus-alertmanager"), &arguments, directory)
}

/// What is read at an address; None: not now.
fn read(url: &str) -> Option<Value> {
    let output = Command::new("curl").args(["-sSf", "-u", &format!("{USER}:{PASSWORD}"), url]).output().unwrap();
    serde_json::from_slice(&output.stdout).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_reaches_an_alertmanager_that_was_away_and_ends_there() {
    let site = Site::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (listen, of_alertmanager) = (free_port(), free_port());
    let tables = format!(
        "[web]\nlisten = \"{listen}\"\n[alertmanager]\nurl = \"http://{of_alertmanager}\"\nuser = \"{USER}\"\npassword = \"{PASSWORD}\"\nlink = \"https://console.example\"\n"
    );
    let console = service_process("console", "", &tables, site.server.address(), site.central.directory());
    site.central.processes.insert(console);
    let row = || read(&format!("http://{listen}/api/v1/console"))?["rows"].get(0).cloned();
    let logs = || site.central.processes.logs();

    site.edge.processes.kill("edge-sync");
    let refuses = |row: &Value| row["reasons"].to_string().contains("the Alertmanager does not take the alerts");
    let refused = wait::until("the console to say that it cannot pass alerts on", || row().filter(refuses), logs).await;
    assert_eq!(refused["health"], "attention", "{refused:#}");
    assert!(refused["reasons"].to_string().contains("Connection refused"), "{refused:#}");

    let mut running = alertmanager(of_alertmanager, directory.path());
    let alerts = || read(&format!("http://{of_alertmanager}/api/v2/alerts"))?.as_array().cloned();
    let of_sync = |alert: &Value| alert["labels"]["alertname"] == "Offline" && alert["labels"]["node"] == "Sync";
    let find = || alerts()?.into_iter().find(of_sync);
    let alert = wait::until("the Alertmanager to have the alert", find, || running.output() + &logs()).await;
    // Who raised it: the monitor of the cluster, or the cluster manager.
    let monitor = alert["labels"]["monitor"].clone();
    assert!(monitor.as_str().unwrap().starts_with("ACME-"), "{alert:#}");
    assert_eq!(
        alert["labels"],
        json!({ "alertname": "Offline", "organisation": "ACME", "cluster": NAME, "node": "Sync", "monitor": monitor })
    );
    let links = [&alert["generatorURL"], &alert["annotations"]["runbook_url"]];
    assert_eq!(links, [&json!("https://console.example/alerts"), &json!("https://console.example/runbook/Offline")]);
    assert_eq!(alert["status"]["state"], "active", "{alert:#}");
    assert!(!alert["annotations"]["description"].as_str().unwrap().is_empty(), "{alert:#}");
    let is_good = |row: &Value| row["reasons"] == json!([]);
    wait::until("the console to say that alerts are passed on", || row().filter(is_good), logs).await;

    site.edge.processes.restart("edge-sync");
    let is_over = || (!alerts()?.iter().any(of_sync)).then_some(());
    wait::until("the alert to have ended there", is_over, || running.output() + &logs()).await;
    assert!(!logs().contains(PASSWORD), "no log has the password");
    running.kill();
}
