//! Repositories over many commits: their files stay few, and a clone meanwhile gets all of it.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;
use std::process::Output;

use cluster_manager::adapters::git_work::{self, Hosted, Work};
use cluster_manager::adapters::passwords::ClusterPasswords;
use cluster_manager::event::{Event, GitAction, GitOutcome, GitResult, GitWork};
use git_hosting::http::{Anonymous, router};
use git_hosting::repositories::{Repositories, RepositoryFiles};
use git_hosting::upkeep::{LOOSE_MAX, PACKS_MAX};
use service_runtime::http::server;
use service_runtime::shutdown::Shutdown;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::state_client;

const CLUSTER: Uuid = Uuid::from_u128(0xC1);

/// Enough for the limit to be passed: each makes five objects.
const COMMITS: usize = 300;

async fn git(arguments: &[&str]) -> Output {
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*"]).args(arguments);
    command.env("GIT_TERMINAL_PROMPT", "0").output().await.unwrap()
}

fn action(n: usize) -> GitAction {
    let files = RepositoryFiles {
        initial: [("README.md".to_owned(), b"x".to_vec())].into(),
        directory: Some("edo/cluster".to_owned()),
        owned: [("a.yaml".to_owned(), format!("a: {n}\n").into_bytes())].into(),
        message: "x".to_owned(),
    };
    let origin = "00000000-0000-0000-0000-000000000007/0/00000000000000ab/12".parse().unwrap();
    GitAction::Write { path: "cluster/A".to_owned(), origin, renews: false, files, hold: false, secrets: Vec::new() }
}

/// Clones until `stop` is set; returns how often it did.
async fn clone_on(url: String, mut stop: watch::Receiver<bool>) -> usize {
    let mut clones = 0;
    while !*stop.borrow_and_update() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("clone").display().to_string();
        let cloned = git(&["clone", "--quiet", &url, &target]).await;
        assert!(cloned.status.success(), "{}", String::from_utf8_lossy(&cloned.stderr));
        assert!(Path::new(&target).join("edo/cluster/a.yaml").is_file());
        clones += 1;
    }
    clones
}

#[tokio::test(flavor = "multi_thread")]
async fn many_commits_leave_few_files_and_clones_go_on_meanwhile() {
    let state_dir = tempfile::tempdir().unwrap();
    let repositories = Repositories::load(state_dir.path()).unwrap();
    let (work, inbox) = mpsc::channel(1);
    let (result_sender, mut results) = mpsc::channel(1);
    let (_pushed, pushes) = mpsc::channel(1);
    let passwords = ClusterPasswords::load(state_dir.path(), []).unwrap();
    let hosted = Hosted { repositories: repositories.clone(), passwords, external: None };
    let worker = tokio::spawn(git_work::run(hosted, inbox, pushes, result_sender));
    let mut write = async |n: usize| {
        work.send(Work::Git(GitWork { cluster: CLUSTER, action: action(n) })).await.unwrap();
        let Some(Event::Git(GitResult { outcome: GitOutcome::Written { .. }, .. })) = results.recv().await else {
            panic!("commit {n}")
        };
    };
    write(0).await;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/git/cluster/A", listener.local_addr().unwrap());
    let gatekeeper = state_client::gatekeeper(state_client::start().0);
    let settings = state_client::settings(state_dir.path(), Anonymous::Loopback);
    let shutdown = Shutdown::new();
    let router = router(repositories.clone(), gatekeeper, settings);
    let server = tokio::spawn(server::serve(listener, router, None, shutdown.clone()));
    let (stop, stopped) = watch::channel(false);
    let cloning = tokio::spawn(clone_on(url, stopped));

    for n in 1..COMMITS {
        write(n).await;
    }
    stop.send(true).unwrap();
    assert!(cloning.await.unwrap() > 1, "clones went on all the time");
    // The worker has looked after the last commit when it takes no more.
    drop(work);
    worker.await.unwrap();
    let directory = state_dir.path().join("git").join(format!("{CLUSTER}.git")).display().to_string();
    let counted = git(&["--git-dir", &directory, "count-objects", "-v"]).await;
    let counted = String::from_utf8(counted.stdout).unwrap();
    let number = |name: &str| {
        let line = counted.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap();
        line.parse::<usize>().unwrap()
    };
    assert!(number("in-pack") > LOOSE_MAX, "{counted}");
    // What is counted is a sample.
    assert!(number("count") < 2 * LOOSE_MAX && number("packs") <= PACKS_MAX, "{counted}");
    let checked = git(&["--git-dir", &directory, "fsck", "--strict", "--full"]).await;
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let commits = git(&["--git-dir", &directory, "rev-list", "--count", "main"]).await;
    assert_eq!(String::from_utf8(commits.stdout).unwrap().trim(), COMMITS.to_string());
    shutdown.trigger();
    server.await.unwrap().unwrap();
}
