//! The HTTP API: a client with a token writes a secret that reaches a cluster; every other client is refused.

use std::path::Path;

use configdb_schema::known;
use e2e::wait;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::site::{NAME, Site};

const VALUE: &str = "correct horse battery staple";
const OTHER: &str = "Weld_Shop";

struct Response {
    status: u16,
    body: String,
}

async fn request(site: &Site, line: &str, token: Option<&str>, body: &str) -> Response {
    let mut stream = TcpStream::connect(site.central.api()).await.unwrap();
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{token}\r\n");
    // For a caller that is refused the server may close the connection before the value is sent.
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {answer:?}"));
    Response { status: head.split(' ').nth(1).unwrap().parse().unwrap(), body: body.to_owned() }
}

/// Makes a token, and waits until the cluster manager's response to it contains `expected`.
pub async fn token(site: &Site, arguments: &[&str], expected: &str) -> String {
    let made = site.cli.json(&[&["token", "create"], arguments].concat()).await;
    let token = made["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("sfp_"));
    knows(site, &token, expected).await;
    token
}

async fn knows(site: &Site, token: &str, expected: &str) {
    let deadline = std::time::Instant::now() + wait::PATIENCE;
    loop {
        let response = request(site, "GET /v1/clusters", Some(token), "").await;
        if response.body.contains(expected) {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "waited for {expected:?}: {} {}", response.status, response.body);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// From here on the edge's Flux looks at its sources once a day: what arrives sooner was announced to it.
pub async fn flux_sleeps(site: &Site) {
    let template = known::application::FLUX_TEMPLATE.to_string();
    let entry = site.cli.json(&["config", "get", &template, "FluxTemplate"]).await.to_string();
    let rare = entry.replace("\"interval\":\"3m\"", "\"interval\":\"24h\"");
    assert_ne!(rare, entry);
    let put = site.cli.run_with(&["config", "put", &template, "FluxTemplate", "-"], &rare).await;
    assert_eq!(put.code, 0, "{put:#?}");
    let kubernetes = site.edge.cluster.kubernetes().clone();
    let kinds = [("source.toolkit.fluxcd.io/v1", "GitRepository"), ("kustomize.toolkit.fluxcd.io/v1", "Kustomization")];
    let sleeps = || {
        let interval = |(version, kind)| {
            Some(kubernetes.get(version, kind, "fplus-edge", "self-link").ok()?["spec"]["interval"] == "24h")
        };
        kinds.into_iter().all(|kind| interval(kind) == Some(true)).then_some(())
    };
    wait::until("the template's intervals", sleeps, || site.edge.processes.tails()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_put_over_http_opens_in_its_cluster_and_no_other_token_reads_or_writes_it() {
    let site = Site::start().await;
    site.cli.json(&["cluster", "create", OTHER]).await;
    let operator = token(&site, &["press", "--scope", "operator", "--cluster", NAME], "Paint_Shop").await;
    let viewer = token(&site, &["look", "--scope", "viewer"], "Paint_Shop").await;
    let other = token(&site, &["weld", "--scope", "administrator", "--cluster", OTHER], "Weld_Shop").await;
    let expired = token(&site, &["old", "--scope", "operator", "--expires", "1ms"], "has expired").await;
    let twice = site.cli.run(&["token", "create", "press", "--scope", "viewer"]).await;
    twice.refused(5, "there is a token \"press\"");

    flux_sleeps(&site).await;
    let secret = format!("/v1/cluster/{}/secret/fplus-edge/press-login/password", site.cluster);
    let put = format!("PUT {secret}");
    for (who, status) in [(None, 401), (Some(&expired), 401), (Some(&viewer), 403), (Some(&other), 403)] {
        let refused = request(&site, &put, who.map(String::as_str), VALUE).await;
        assert_eq!(refused.status, status, "{}", refused.body);
    }
    let done = request(&site, &put, Some(&operator), VALUE).await;
    assert_eq!(done.status, 204, "{}", done.body);
    let user = put.replace("/password", "/user");
    assert_eq!(request(&site, &user, Some(&operator), "operator-1").await.status, 204);

    let kubernetes = site.edge.cluster.kubernetes().clone();
    let opened = || {
        let secret = kubernetes.get("v1", "Secret", "fplus-edge", "press-login").ok()?;
        secret["data"]["user"].is_string().then_some(secret)
    };
    let opened = wait::until("the Secret", opened, || site.edge.processes.tails()).await;
    assert_eq!(opened["data"]["password"], "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==");

    let listed = request(&site, &format!("GET /v1/cluster/{}/secrets", site.cluster), Some(&viewer), "").await;
    let listed: Value = serde_json::from_str(&listed.body).unwrap();
    let keys = listed["secrets"][0]["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 2, "{listed}");
    assert!(
        keys.iter().all(|key| key["seal_again"] == false && key["sealed_for"] == listed["fingerprint"]),
        "{listed}"
    );

    let post = format!("POST /v1/cluster/{}/bootstrap-url", site.cluster);
    assert_eq!(request(&site, &post, Some(&viewer), "").await.status, 403);
    let made: Value = serde_json::from_str(&request(&site, &post, Some(&operator), "").await.body).unwrap();
    let line = made["line"].as_str().unwrap();
    let once = line[line.find("sft_").unwrap()..][..47].to_owned();
    let script = request(&site, &format!("GET /bootstrap/{}", site.cluster), Some(&once), "").await;
    assert!(
        script.status == 200 && script.body.contains("#!/bin/sh"),
        "the bootstrap command works as soon as it is returned"
    );

    assert_eq!(request(&site, &format!("DELETE {secret}"), Some(&operator), "").await.status, 204);
    assert_eq!(request(&site, &format!("DELETE {secret}"), Some(&operator), "").await.status, 404);
    site.cli.json(&["token", "revoke", "press"]).await;
    knows(&site, &operator, "unknown or revoked").await;
    assert_eq!(request(&site, &put, Some(&operator), VALUE).await.status, 401);

    recorded(&site);
    let tokens = [&operator, &viewer, &other, &expired, &once].map(String::as_str);
    nowhere(&site, &[&[VALUE, "operator-1"][..], &tokens].concat()).await;
}

/// The audit log holds every write of an authenticated caller, with its result.
fn recorded(site: &Site) {
    let file = site.central.state_dir("cluster-manager").join("audit.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // The tokens came over the broker.
    let over_http = records.iter().filter(|record| record["from"] != "broker");
    assert!(over_http.clone().count() < records.len());
    let operations = over_http.map(|record| {
        let text = |key: &str| record[key].as_str().unwrap();
        (text("who"), text("operation"), text("result"))
    });
    let expected = [
        ("token:look", "put-secret", "refused"),
        ("token:weld", "put-secret", "refused"),
        ("token:press", "put-secret", "done"),
        ("token:press", "put-secret", "done"),
        ("token:look", "bootstrap-url", "refused"),
        ("token:press", "bootstrap-url", "done"),
        ("token:press", "delete-secret", "done"),
        ("token:press", "delete-secret", "refused"),
    ];
    assert_eq!(operations.collect::<Vec<_>>(), expected);
    let mut over_http = records.iter().filter(|record| record["from"] != "broker");
    assert!(over_http.all(|record| record["from"] == "127.0.0.1" && record["cluster"] == site.cluster.to_string()));
}

/// None of it is in a message, in ConfigDB, in a log or in any file of the control plane.
pub async fn nowhere(site: &Site, secrets: &[&str]) {
    let dump = site.cli.run(&["config", "dump"]).await.stdout;
    let logs = format!("{}{}", site.central.processes.logs(), site.edge.processes.logs());
    let mut files = Vec::new();
    collect(site.central.directory(), &mut files);
    assert!(files.len() > 10, "there are files to look at");
    // What git keeps is compressed: it is looked at as git shows it.
    let repository = site.central.state_dir("cluster-manager").join("git").join(format!("{}.git", site.cluster));
    let git = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "--git-dir"])
        .arg(&repository)
        .args(["log", "--patch", "--all"])
        .output()
        .unwrap();
    assert!(git.status.success() && git.stdout.len() > 1000, "{}", String::from_utf8_lossy(&git.stderr));
    for secret in secrets {
        let said = site.recorder.messages().iter().any(|message| contains(&message.payload, secret.as_bytes()));
        assert!(!said, "a message holds {secret}");
        assert!(!dump.contains(secret) && !logs.contains(secret), "ConfigDB or a log holds {secret}");
        assert!(!contains(&git.stdout, secret.as_bytes()), "git holds {secret}");
        let file = files.iter().find(|(_, content)| contains(content, secret.as_bytes()));
        assert!(file.is_none(), "{} holds {secret}", file.unwrap().0);
    }
}

fn collect(directory: &Path, files: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if let Ok(content) = std::fs::read(&path) {
            files.push((path.display().to_string(), content));
        }
    }
}

pub fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|part| part == needle)
}
