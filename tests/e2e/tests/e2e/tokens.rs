//! Tokens of users, and what of a secret must be nowhere.

use std::path::Path;

use configdb_schema::known;
use e2e::wait;
use serde_json::Value;

use crate::git::git;
use crate::site::Site;

/// Makes a token, and waits until git server and cluster manager know it.
pub async fn token(site: &Site, arguments: &[&str]) -> String {
    let made = site.cli.json(&[&["token", "create"], arguments].concat()).await;
    let token = made["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("sfp_"));
    let (name, url) = (arguments[0], format!("http://any:{token}@{}/git/shared/helm", site.central.git()));
    let text = std::fs::read_to_string(site.central.state_dir("configdb").join("audit.jsonl")).unwrap();
    let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let recorded = records.filter(|record| record["operation"] == "create-token" && record["target"] == name).count();
    assert_eq!(recorded, 1, "it is recorded before it is answered: {text}");
    let known = || {
        let logs = site.central.processes.logs();
        let at_manager =
            |line: &str| line.contains("a token of users changed") && line.contains(&format!("\"{name}\""));
        if !logs.lines().any(at_manager) {
            return None;
        }
        git(site.central.directory(), &["ls-remote", &url]).0.then_some(())
    };
    wait::until("the token to be known", known, || site.central.processes.tails()).await;
    token
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
