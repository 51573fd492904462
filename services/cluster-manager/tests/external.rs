//! The git server of a site: a real one (git http-backend) behind Basic authentication that makes repositories when they are pushed to, as Gitea and GitLab do.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::there;

use std::sync::Arc;
use std::time::Duration;

use cluster_manager::adapters::git_work::{self, Hosted, Work};
use cluster_manager::adapters::passwords::ClusterPasswords;
use cluster_manager::event::{Event, GitAction, GitOutcome, GitResult, GitWork};
use configdb_schema::document::{SealedSecret, SealedValue, SealingScope};
use git_hosting::client::Credentials;
use git_hosting::external::External;
use git_hosting::repositories::{Repositories, RepositoryFiles};
use service_runtime::config::ExposeSecret as _;
use there::{PUSHER, READER, There, git};
use tokio::sync::mpsc;
use uuid::Uuid;

const CLUSTER: Uuid = Uuid::from_u128(0xC1);

/// Our side: the worker, and what it works on.
struct Here {
    directory: tempfile::TempDir,
    hosted: Hosted,
    work: mpsc::Sender<Work>,
    results: mpsc::Receiver<Event>,
}

impl Here {
    fn start(there: &There, pusher: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
            directory.path().join(name)
        };
        let (credentials, readers) = (write("pusher", pusher), Credentials::read(&write("reader", READER)).unwrap());
        let state_dir = directory.path().join("state");
        let repositories = Repositories::load(&state_dir).unwrap();
        let passwords = ClusterPasswords::load(&state_dir, []).unwrap().with_readers(Some(readers));
        let url = format!("{}/factory/{{name}}.git", there.url);
        let external = External::new(url, Some(credentials), None, Duration::from_secs(60));
        let hosted = Hosted { repositories, passwords, external: Some(external) };
        let (work, inbox) = mpsc::channel(1);
        let (result_sender, results) = mpsc::channel(1);
        let (_, pushed) = mpsc::channel(1);
        tokio::spawn(git_work::run(hosted.clone(), inbox, pushed, result_sender));
        Self { directory, hosted, work, results }
    }

    async fn write(&mut self, content: &str) -> GitOutcome {
        self.write_with(content, Vec::new()).await
    }

    async fn write_with(&mut self, content: &str, secrets: Vec<Arc<SealedSecret>>) -> GitOutcome {
        let files = RepositoryFiles {
            initial: [("README.md".to_owned(), b"x".to_vec())].into(),
            directory: Some("edo/cluster".to_owned()),
            owned: [("a.yaml".to_owned(), content.as_bytes().to_vec())].into(),
            message: "x".to_owned(),
        };
        let origin = "00000000-0000-0000-0000-000000000007/0/00000000000000ab/12".parse().unwrap();
        let path = "cluster/Paint_Shop".to_owned();
        let action = GitAction::Write { path, origin, renews: false, files, hold: false, secrets };
        self.work.send(Work::Git(GitWork { cluster: CLUSTER, action })).await.unwrap();
        let Some(Event::Git(GitResult { outcome, .. })) = self.results.recv().await else { panic!("a result") };
        outcome
    }

    fn main(&self) -> String {
        self.hosted.repositories.main(CLUSTER).unwrap().unwrap()
    }
}

fn secret() -> Arc<SealedSecret> {
    let at = "2027-01-15T08:00:00.000Z".to_owned();
    let value = SealedValue { value: Some("AAAA".to_owned()), sealed_for: None, at };
    Arc::new(SealedSecret {
        cluster: CLUSTER,
        namespace: "n".to_owned(),
        name: "login".to_owned(),
        scope: SealingScope::Strict,
        secret_type: "Opaque".to_owned(),
        keys: [("k".to_owned(), value)].into(),
    })
}

fn written(outcome: GitOutcome) -> String {
    let GitOutcome::Written { commit, .. } = outcome else { panic!("{outcome:?}") };
    commit
}

#[tokio::test]
async fn a_repository_is_made_there_and_what_people_push_is_kept() {
    let there = There::start().await;
    let mut here = Here::start(&there, PUSHER);
    let first = written(here.write("a: 1\n").await);
    assert_eq!(git(&there.repository(), &["rev-parse", "main"]).await, Some(first.clone()));
    assert_eq!(there.file("edo/cluster/a.yaml").await.as_deref(), Some("a: 1"));
    let (user, password) = here.hosted.passwords.login(CLUSTER).unwrap();
    assert_eq!(format!("{user}:{}", password.expose_secret()), READER, "the cluster gets the login to read it there");

    // A user works with it there.
    let clone = here.directory.path().join("clone");
    let url = there.url.replace("http://", &format!("http://{PUSHER}@")) + "/factory/cluster-Paint_Shop.git";
    git(here.directory.path(), &["clone", "--quiet", &url, "clone"]).await.unwrap();
    std::fs::create_dir_all(clone.join("by-hand")).unwrap();
    std::fs::write(clone.join("by-hand/mine.yaml"), "b: 1\n").unwrap();
    git(&clone, &["add", "."]).await.unwrap();
    git(&clone, &["commit", "--quiet", "-m", "by hand"]).await.unwrap();
    git(&clone, &["push", "--quiet"]).await.unwrap();

    let second = written(here.write("a: 2\n").await);
    assert_eq!(git(&there.repository(), &["rev-parse", "main"]).await, Some(second.clone()));
    assert_eq!(there.file("edo/cluster/a.yaml").await.as_deref(), Some("a: 2"));
    assert_eq!(there.file("by-hand/mine.yaml").await.as_deref(), Some("b: 1"));
    assert_eq!(
        git(&there.repository(), &["rev-list", "--count", "main"]).await.as_deref(),
        Some("3"),
        "nothing by force"
    );
    let commit = written(here.write_with("a: 2\n", vec![secret()]).await);
    assert_eq!(git(&there.repository(), &["rev-parse", "main"]).await, Some(commit));
    assert!(there.file("edo/secrets/n/login.yaml").await.unwrap().contains("AAAA"));
    assert_eq!(written(here.write("a: 2\n").await), here.main(), "what is there already makes no new commit");
}

#[tokio::test]
async fn while_the_server_is_away_nothing_counts_as_written_and_nothing_is_lost() {
    let there = There::start().await;
    let mut here = Here::start(&there, PUSHER);
    there.away(true);
    let GitOutcome::Failed { reason } = here.write("a: 1\n").await else { panic!("it is away") };
    assert!(reason.contains(&there.url) && reason.contains("503"), "{reason}");
    there.away(false);
    let first = written(here.write("a: 1\n").await);
    there.away(true);
    assert!(matches!(here.write("a: 2\n").await, GitOutcome::Failed { .. }));
    assert!(matches!(here.write_with("a: 1\n", vec![secret()]).await, GitOutcome::Failed { .. }));
    assert_eq!(here.main(), first);
    there.away(false);
    let second = written(here.write("a: 2\n").await);
    assert_eq!(git(&there.repository(), &["rev-parse", "main"]).await, Some(second));
    assert_eq!(there.file("edo/secrets/n/login.yaml").await, None, "it was answered that it was not stored");
}

#[tokio::test]
async fn what_the_server_refuses_is_taken_back_and_no_password_is_shown() {
    let there = There::start().await;
    let mut here = Here::start(&there, PUSHER);
    let first = written(here.write("a: 1\n").await);
    // A rule of the server: this branch does not move.
    let hook = there.repository().join("hooks/pre-receive");
    std::fs::write(&hook, "#!/bin/sh\necho 'main is protected' >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let GitOutcome::Failed { reason } = here.write("a: 2\n").await else { panic!("refused") };
    assert!(reason.contains("main is protected"), "{reason}");
    assert_eq!(here.main(), first, "taken back");
    std::fs::remove_file(&hook).unwrap();
    written(here.write("a: 2\n").await);

    // Who only reads cannot push; what is not known there is not.
    for login in [READER, "unknown:geheim-3"] {
        let mut stranger = Here::start(&there, login);
        let GitOutcome::Failed { reason } = stranger.write("a: 3\n").await else { panic!("{login}") };
        assert!(!reason.contains("geheim"), "{reason}");
    }
    assert_eq!(there.file("edo/cluster/a.yaml").await.as_deref(), Some("a: 2"));
}
