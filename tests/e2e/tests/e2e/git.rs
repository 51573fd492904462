//! A cluster's repository with the ordinary client, over HTTP.

use std::path::Path;
use std::process::Command;

use e2e::mosquitto::Mosquitto;

use crate::factory::{Up, uuid};

fn git(directory: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new("git")
        .current_dir(directory)
        .args(arguments)
        // Never ask anybody, and take nothing from the machine's own configuration.
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
    assert_eq!(setup["self_link"], self_link.as_str());
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

#[tokio::test(flavor = "multi_thread")]
async fn a_person_pushes_by_hand_and_a_shared_repository_follows_another_one() {
    let server = Mosquitto::start();
    let up = Up::on(server.address()).await;
    up.cli.json(&["cluster", "create", "Paint_Shop", "--wait"]).await;
    let made = up.cli.json(&["token", "create", "ada", "--scope", "operator"]).await;
    let token = made["token"].as_str().unwrap();
    let place = up.git_url().await;
    let url = format!("{place}/cluster/Paint_Shop");
    let with_token = url.replace("http://", &format!("http://ada:{token}@"));
    let directory = tempfile::tempdir().unwrap();
    let (cloned, text) = git(directory.path(), &["clone", &url, "repo"]);
    assert!(cloned, "{text}");
    let repo = directory.path().join("repo");
    let commit = |path: &str| {
        std::fs::write(repo.join(path), "a: 1\n").unwrap();
        git(&repo, &["add", "."]);
        git(&repo, &["-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "-m", "x"]);
        git(&repo, &["rev-parse", "HEAD"]).1.trim().to_owned()
    };
    let pushed = commit("by-hand/mine.yaml");
    // The manager hears of the token a moment later.
    let push = || git(&repo, &["push", &with_token, "main"]).0.then_some(());
    e2e::wait::until("a push with a token", push, || up.process.tail()).await;
    commit("README.md");
    let (again, text) = git(&repo, &["push", &with_token, "main"]);
    assert!(!again && text.contains("only what is below by-hand/ is yours"), "{text}");
    assert!(!up.process.tail().contains(token), "a token is in no log");

    let entry =
        serde_json::json!({"path": "shared/mirror", "pull": {"main": {"url": url, "ref": "main", "interval": "10s"}}});
    let object = uuid::Uuid::new_v4().to_string();
    let put = ["config", "put", &object, "GitConfig", "-", "--class", "Shared repositories"];
    up.cli.json_with(&put, &entry.to_string()).await;
    let mirror = format!("{place}/shared/mirror");
    let at = |commit: &str| {
        git(directory.path(), &["ls-remote", &mirror, "refs/heads/main"]).1.starts_with(commit).then_some(())
    };
    e2e::wait::until("the mirror", || at(&pushed), || up.process.tail()).await;
    git(&repo, &["reset", "--hard", &pushed]);
    let next = commit("by-hand/more.yaml");
    let (again, text) = git(&repo, &["push", &with_token, "main"]);
    assert!(again, "{text}");
    e2e::wait::until("the mirror of the next commit", || at(&next), || up.process.tail()).await;
    up.cli.json(&["config", "delete", &object, "GitConfig"]).await;
    let closed = || (!git(directory.path(), &["ls-remote", &mirror]).0).then_some(());
    e2e::wait::until("the end of the mirror", closed, || up.process.tail()).await;
}
