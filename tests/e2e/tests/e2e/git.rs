//! A cluster's repository with the ordinary client, over HTTP.

use std::path::Path;
use std::process::Command;

use e2e::mosquitto::Mosquitto;

use crate::factory::{Up, uuid};

/// Runs git; whether it succeeded, and what it said.
pub fn git(directory: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new("git")
        .current_dir(directory)
        .args(arguments)
        // Never prompt, and take nothing from the machine's own configuration.
        .envs([("GIT_TERMINAL_PROMPT", "0"), ("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_ASKPASS", "true")])
        .env("HOME", directory)
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clusters_repository_is_cloned_over_http_and_holds_its_manifests() {
    let server = Mosquitto::start();
    let up = Up::on(server.address()).await;
    let created = up.cli.json(&["cluster", "create", "Paint_Shop", "--wait"]).await;
    let url = up.cli.json(&["cluster", "show", "Paint_Shop"]).await["git"].as_str().unwrap().to_owned();
    assert_eq!(url, format!("{}/cluster/Paint_Shop", up.git_url().await));
    let directory = tempfile::tempdir().unwrap();

    let (cloned, text) = git(directory.path(), &["clone", &url, "repo"]);
    assert!(cloned, "{text}");
    let repo = directory.path().join("repo");
    let (_, files) = git(&repo, &["ls-files"]);
    let files: Vec<&str> = files.lines().collect();
    for file in ["README.md", "by-hand/.gitkeep", "edo/cluster/self-link.yaml"] {
        assert!(files.contains(&file), "{file} is not among {files:?}");
    }
    let setup = up.cli.json(&["config", "get", &uuid(&created).to_string(), "EdgeClusterSetup"]).await;
    let self_link = std::fs::read_to_string(repo.join("edo/cluster/self-link.yaml")).unwrap();
    let rights = std::fs::read_to_string(repo.join("edo/cluster/rights.yaml")).unwrap();
    assert_eq!(setup["self_link"], format!("{rights}---\n{self_link}"));
    assert!(self_link.contains(&url), "it follows itself: {self_link}");
    let manifests: String = files
        .iter()
        .filter(|file| file.starts_with("edo/"))
        .map(|file| std::fs::read_to_string(repo.join(file)).unwrap())
        .collect();
    assert!(manifests.contains("kind: HelmRelease") && manifests.contains(&uuid(&created).to_string()), "{manifests}");
    let password = up.git_password(uuid(&created)).await;
    assert!(!manifests.contains(&password), "the password is in the repository");

    // What is written into the repository by hand is not what a clone may do.
    std::fs::write(repo.join("by-hand/x.yaml"), "a: 1\n").unwrap();
    git(&repo, &["add", "."]);
    git(&repo, &["-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "-m", "x"]);
    let (pushed, text) = git(&repo, &["push"]);
    assert!(!pushed, "{text}");

    // A changed configuration is one more commit on the same branch.
    let patch = r#"{"values": {"extra": {"colour": "green"}}}"#;
    let cluster = uuid(&created).to_string();
    up.cli.json_with(&["config", "patch", &cluster, "EdgeCluster", "-"], patch).await;
    let fresh = directory.path().join("fresh");
    let found = || {
        let _ = std::fs::remove_dir_all(&fresh);
        let (cloned, _) = git(directory.path(), &["clone", &url, "fresh"]);
        let (_, log) = git(&fresh, &["log", "--format=%H"]);
        let (_, holds) = git(&fresh, &["grep", "-l", "colour"]);
        (cloned && log.lines().count() == 2 && holds.contains("edo/cluster")).then_some(())
    };
    e2e::wait::until("the second commit", found, || up.process.tail()).await;

    for missing in ["cluster/Other_Shop", "cluster/../secrets", "x"] {
        let (cloned, text) = git(directory.path(), &["clone", &format!("{}/{missing}", up.git_url().await), "other"]);
        assert!(!cloned, "{missing}: {text}");
    }
    up.cli.json(&["cluster", "delete", "Paint_Shop", "--wait"]).await;
    let (cloned, text) = git(directory.path(), &["clone", &url, "closed"]);
    assert!(!cloned, "a deleted cluster's repository is served no more: {text}");
}
