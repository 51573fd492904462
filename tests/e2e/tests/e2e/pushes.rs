//! Users push with git, and another server is mirrored: what arrives where, and what is refused with which message.

use std::fs;
use std::path::{Path, PathBuf};

use e2e::git_backend::GitBackend;
use e2e::wait;
use serde_json::json;
use tempfile::TempDir;
use uuid::Uuid;

use crate::git::git;
use crate::site::{NAME, Site};
use crate::tokens::{flux_sleeps, token};

const PRINTER: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: printer\n  namespace: fplus-edge\ndata:\n  paper: a4\n";

/// A user with a directory to clone into.
struct Person<'a> {
    site: &'a Site,
    user: String,
    password: String,
    directory: TempDir,
}

impl<'a> Person<'a> {
    fn with(site: &'a Site, user: &str, password: &str) -> Self {
        let (user, password) = (user.to_owned(), password.to_owned());
        Self { site, user, password, directory: tempfile::tempdir().unwrap() }
    }

    /// The holder of a token of that name.
    async fn known(site: &'a Site, name: &str, grant: &[&str]) -> Self {
        Self::with(site, "any", &token(site, &[&[name], grant].concat()).await)
    }

    /// The cluster itself, as its Flux logs in.
    async fn cluster(site: &'a Site) -> Self {
        Self::with(site, &site.cluster.to_string(), &site.central.git_password(site.cluster).await)
    }

    fn try_clone(&self, path: &str) -> Result<PathBuf, String> {
        let target = self.directory.path().join(Uuid::new_v4().to_string());
        let Self { user, password, .. } = self;
        let url = format!("http://{user}:{password}@{}/git/{path}", self.site.central.git());
        match git(self.directory.path(), &["clone", "--quiet", &url, &target.display().to_string()]) {
            (true, _) => Ok(target),
            (false, text) => Err(text),
        }
    }

    fn clone(&self, path: &str) -> PathBuf {
        self.try_clone(path).unwrap_or_else(|text| panic!("{path}: {text}"))
    }
}

fn commit(repository: &Path, file: &str, content: &str) {
    let path = repository.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    for arguments in [
        &["add", "--all"][..],
        &["-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "--quiet", "--message", file],
    ] {
        let (done, text) = git(repository, arguments);
        assert!(done, "{arguments:?}: {text}");
    }
}

fn push(repository: &Path, branch: &str) -> (bool, String) {
    git(repository, &["push", "origin", &format!("HEAD:refs/heads/{branch}")])
}

fn refused((pushed, text): (bool, String), reasons: &[&str]) {
    assert!(!pushed, "{text}");
    for reason in reasons {
        assert!(text.contains(reason), "{reason:?} is not in: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_pushed_below_by_hand_is_applied_at_once_and_a_refusal_says_why() {
    let site = Site::start().await;
    let operator = Person::known(&site, "press", &["--scope", "operator", "--cluster", NAME]).await;
    let viewer = Person::known(&site, "look", &["--scope", "viewer"]).await;
    let edge = Person::cluster(&site).await;
    flux_sleeps(&site).await;
    let path = format!("cluster/{NAME}");

    let repository = operator.clone(&path);
    commit(&repository, "by-hand/printer.yaml", PRINTER);
    let (pushed, text) = push(&repository, "main");
    assert!(pushed, "{text}");
    let kubernetes = site.edge.cluster.kubernetes().clone();
    let paper = || Some(kubernetes.get("v1", "ConfigMap", "fplus-edge", "printer").ok()?["data"]["paper"].clone());
    let tails = || format!("{}\n{}", site.central.processes.tails(), site.edge.processes.tails());
    assert_eq!(wait::until("the printer", paper, tails).await, "a4");

    let ours = &["only what is below by-hand/ is yours", "edo/cluster/mine.yaml"];
    commit(&repository, "edo/cluster/mine.yaml", PRINTER);
    refused(push(&repository, "main"), ours);
    refused(push(&repository, "other"), &["only branch main can be pushed"]);
    assert!(git(&repository, &["reset", "--quiet", "--hard", "HEAD~2"]).0);
    commit(&repository, "by-hand/other.yaml", PRINTER);
    refused(git(&repository, &["push", "--force", "origin", "HEAD:main"]), &["only added to"]);

    let looked = viewer.clone(&path);
    assert_eq!(fs::read_to_string(looked.join("by-hand/printer.yaml")).unwrap(), PRINTER);
    commit(&looked, "by-hand/scanner.yaml", PRINTER);
    refused(push(&looked, "main"), &["push needs the scope operator"]);
    let read = edge.clone(&path);
    commit(&read, "by-hand/scanner.yaml", PRINTER);
    refused(push(&read, "main"), &["To push, log in with a token"]);
    let stranger = Person::with(&site, "any", "sfp_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    assert!(stranger.try_clone(&path).is_err());

    let files = git(&operator.clone(&path), &["ls-files", "by-hand"]).1;
    assert_eq!(files.lines().collect::<Vec<_>>(), ["by-hand/.gitkeep", "by-hand/printer.yaml"]);
    let record = fs::read_to_string(site.central.state_dir("cluster-manager").join("audit.jsonl")).unwrap();
    let done = record.lines().filter(|line| line.contains("token:press") && line.contains("\"commit\":\""));
    assert_eq!(done.count(), 1, "{record}");
    // What does not reach the cluster manager is in the git server's own record.
    let record = fs::read_to_string(site.central.state_dir("git-server").join("audit.jsonl")).unwrap();
    assert!(record.lines().any(|line| line.contains("token:look") && line.contains("refused")), "{record}");
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_are_pushed_by_operators_of_all_clusters_and_a_mirror_follows_its_source() {
    let site = Site::start().await;
    let operator = Person::known(&site, "press", &["--scope", "operator", "--cluster", NAME]).await;
    let fleet = Person::known(&site, "charts", &["--scope", "operator"]).await;
    let edge = Person::cluster(&site).await;

    let charts = fleet.clone("shared/helm");
    commit(&charts, "press/Chart.yaml", "name: press\n");
    let (pushed, text) = push(&charts, "main");
    assert!(pushed, "{text}");
    assert_eq!(fs::read_to_string(edge.clone("shared/helm").join("press/Chart.yaml")).unwrap(), "name: press\n");
    let own = operator.clone("shared/helm");
    commit(&own, "press/Chart.yaml", "name: mine\n");
    refused(push(&own, "main"), &["push-shared needs a credential for all clusters"]);

    let server = GitBackend::start().await;
    let source = server.directory("charts.git");
    fs::create_dir_all(&source).unwrap();
    assert!(git(&source, &["init", "--quiet", "--bare", "--initial-branch=release"]).0);
    let work = tempfile::tempdir().unwrap();
    assert!(git(work.path(), &["clone", "--quiet", &source.display().to_string(), "work"]).0);
    let work = work.path().join("work");
    commit(&work, "robot/Chart.yaml", "version: 1\n");
    assert!(push(&work, "release").0);
    let pull = json!({"url": server.url("charts.git"), "ref": "release", "interval": "10s"});
    let entry = json!({"path": "shared/site-charts", "pull": {"main": pull}}).to_string();
    let object = Uuid::new_v4().to_string();
    site.cli.json_with(&["config", "put", &object, "GitConfig", "-", "--class", "Shared repositories"], &entry).await;
    let tails = || site.central.processes.tails();
    let has = |version: &'static str| {
        let edge = &edge;
        move || {
            let clone = edge.try_clone("shared/site-charts").ok()?;
            (fs::read_to_string(clone.join("robot/Chart.yaml")).ok()? == version).then_some(clone)
        }
    };
    wait::until("the mirror", has("version: 1\n"), tails).await;
    commit(&work, "robot/Chart.yaml", "version: 2\n");
    assert!(push(&work, "release").0);
    wait::until("what came later", has("version: 2\n"), tails).await;

    let mirror = fleet.clone("shared/site-charts");
    commit(&mirror, "robot/Chart.yaml", "version: 3\n");
    refused(push(&mirror, "main"), &["branch main is pulled from another server; push there"]);
    let (pushed, text) = push(&mirror, "site");
    assert!(pushed, "{text}");
}
