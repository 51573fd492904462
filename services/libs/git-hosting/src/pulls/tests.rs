//! Pulls from another git server: a real one over smart HTTP, with and without a password, and some that are none.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use service_runtime::http::server;
use service_runtime::shutdown::Shutdown;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{Pull, Pulled, Pulls};
use crate::gatekeeper::fake::{self, FakeGatekeeper};
use crate::http::{Anonymous, Settings, router};
use crate::push::Hooks;
use crate::repositories::{Kind, Repositories, RepositoryFiles, RepositoryRecord};

const THERE: Uuid = Uuid::from_u128(0xA);
const HERE: Uuid = Uuid::from_u128(0xB);

/// The other git server, which has one repository, and ours.
struct Both {
    there: Repositories,
    there_dir: tempfile::TempDir,
    addr: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<std::io::Result<()>>,
    here: Repositories,
    here_dir: tempfile::TempDir,
    credentials: tempfile::TempDir,
}

impl Both {
    async fn start(anonymous: Anonymous) -> Self {
        let (there_dir, here_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let there = Repositories::load(there_dir.path()).unwrap();
        let here = Repositories::load(here_dir.path()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let hooks = Hooks::install(there_dir.path()).unwrap();
        let (polls, _) = mpsc::channel(1);
        let (pushed, _) = mpsc::channel(1);
        let request_timeout = Duration::from_secs(600);
        let passwords = fake::passwords(&[THERE]);
        let settings =
            Settings { anonymous, children_max: 16, request_timeout, passwords, hooks, pushed, scratches: None };
        let router = router(there.clone(), FakeGatekeeper { pushes: Arc::default(), polls }, settings);
        let task = tokio::spawn(server::serve(listener, router, None, shutdown.clone()));
        let credentials = tempfile::tempdir().unwrap();
        let both = Self { there, there_dir, addr, shutdown, task, here, here_dir, credentials };
        both.commit("a: 1\n");
        let place =
            RepositoryRecord { path: "shared/charts".to_owned(), kind: Kind::Shared, store: Uuid::nil(), origin: None };
        assert_eq!(both.here.open(HERE, &place).unwrap(), None);
        both
    }

    fn commit(&self, content: &str) -> String {
        let files = RepositoryFiles {
            directory: Some(String::new()),
            owned: [("a.yaml".to_owned(), content.as_bytes().to_vec())].into(),
            message: "x".to_owned(),
            ..RepositoryFiles::default()
        };
        let place =
            RepositoryRecord { path: "cluster/A".to_owned(), kind: Kind::Cluster, store: Uuid::nil(), origin: None };
        self.there.write(THERE, &place, &files, 0).unwrap().commit
    }

    fn remote_dir(&self) -> PathBuf {
        self.there_dir.path().join("git").join(format!("{THERE}.git"))
    }

    fn local_dir(&self) -> PathBuf {
        self.here_dir.path().join("git").join(format!("{HERE}.git"))
    }

    fn pull_of(&self, secret: Option<&str>, merge: Option<&str>) -> Pull {
        Pull {
            url: format!("http://{}/git/cluster/A", self.addr),
            reference: "main".to_owned(),
            interval: None,
            merge: merge.map(str::to_owned),
            secret: secret.map(str::to_owned),
        }
    }

    fn pulls(&self, limit: Duration) -> Pulls {
        Pulls::new(self.here.clone(), Some(self.credentials.path().to_owned()), None, limit)
    }

    async fn pull(&self, branch: &str, pull: Pull) -> Result<Pulled, String> {
        self.pulls(Duration::from_secs(60)).pull(HERE, branch, &pull).await
    }

    async fn stop(self) {
        self.shutdown.trigger();
        self.task.await.unwrap().unwrap();
    }
}

async fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(["-c", "user.name=x", "-c", "user.email=x@example", "--git-dir"])
        .arg(directory)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

fn pulled(main: Option<&str>, commit: &str, diverged: bool) -> Result<Pulled, String> {
    Ok(Pulled { main: main.map(str::to_owned), commit: commit.to_owned(), diverged })
}

#[tokio::test]
async fn a_branch_follows_the_remote_also_when_that_is_moved_by_force() {
    let both = Both::start(Anonymous::Loopback).await;
    let second = both.commit("a: 2\n");
    let first = git(&both.remote_dir(), &["rev-parse", "main~1"]).await.unwrap();
    assert_eq!(both.pull("main", both.pull_of(None, None)).await, pulled(Some(&second), &second, false));
    // By force: one commit is gone there, another is there instead.
    let tree = git(&both.remote_dir(), &["rev-parse", "main^{tree}"]).await.unwrap();
    let other = git(&both.remote_dir(), &["commit-tree", "-p", &first, "-m", "other", &tree]).await.unwrap();
    git(&both.remote_dir(), &["update-ref", "refs/heads/main", &other]).await.unwrap();
    assert_eq!(both.pull("main", both.pull_of(None, None)).await, pulled(Some(&other), &other, false));
    // A tag is a place as well, and nothing of how it is done stays behind.
    git(&both.remote_dir(), &["tag", "-a", "-m", "x", "v1", &first]).await.unwrap();
    let tag = Pull { reference: "refs/tags/v1".to_owned(), ..both.pull_of(None, None) };
    assert_eq!(both.pull("stable/1", tag).await, pulled(Some(&other), &first, false));
    let refs = git(&both.local_dir(), &["for-each-ref", "--format=%(refname)", "refs/heads", "refs/sparkfleet"]).await;
    assert_eq!(refs.as_deref(), Some("refs/heads/main\nrefs/heads/stable/1"));
    let nothing = Pull { reference: "no-such".to_owned(), ..both.pull_of(None, None) };
    let error = both.pull("main", nothing).await.unwrap_err();
    assert!(error.contains("no-such"), "{error}");
    both.stop().await;
}

#[tokio::test]
async fn the_branch_that_follows_stays_when_it_has_commits_of_its_own() {
    let both = Both::start(Anonymous::Loopback).await;
    let pull = both.pull_of(None, Some("main"));
    let first = both.pull("upstream", pull.clone()).await.unwrap();
    assert_eq!((first.main.as_deref(), first.diverged), (Some(&*first.commit), false));
    let second = both.commit("a: 2\n");
    assert_eq!(both.pull("upstream", pull.clone()).await, pulled(Some(&second), &second, false));
    let tree = git(&both.local_dir(), &["rev-parse", "main^{tree}"]).await.unwrap();
    let own = git(&both.local_dir(), &["commit-tree", "-p", &second, "-m", "own", &tree]).await.unwrap();
    git(&both.local_dir(), &["update-ref", "refs/heads/main", &own]).await.unwrap();
    let third = both.commit("a: 3\n");
    assert_eq!(both.pull("upstream", pull.clone()).await, pulled(Some(&own), &third, true));
    // Back where the pulled branch is, it follows again.
    git(&both.local_dir(), &["update-ref", "refs/heads/main", &third]).await.unwrap();
    let fourth = both.commit("a: 4\n");
    assert_eq!(both.pull("upstream", pull).await, pulled(Some(&fourth), &fourth, false));
    both.stop().await;
}

#[tokio::test]
async fn credentials_are_used_and_never_shown() {
    let both = Both::start(Anonymous::None).await;
    let password = fake::password(THERE);
    let file = |name: &str, content: String| std::fs::write(both.credentials.path().join(name), content).unwrap();
    file("plain", format!("{THERE}:{password}\n"));
    file("json", format!(r#"{{"username": "A", "password": "{password}"}}"#));
    file("wrong", "A:geheim".to_owned());
    file("broken", "geheim".to_owned());
    for secret in ["plain", "json"] {
        assert!(both.pull("main", both.pull_of(Some(secret), None)).await.is_ok(), "{secret}");
    }
    let error = async |secret| both.pull("main", both.pull_of(secret, None)).await.unwrap_err();
    let none = error(None).await;
    assert!(none.contains("could not read Username"), "{none}");
    let wrong = error(Some("wrong")).await;
    assert!(wrong.contains("Authentication failed") && !wrong.contains("geheim"), "{wrong}");
    let broken = error(Some("broken")).await;
    assert!(broken.starts_with("auth.secretRef: file ") && broken.contains("broken must hold"), "{broken}");
    assert!(!broken.contains("geheim"), "{broken}");
    let missing = error(Some("missing")).await;
    assert!(missing.starts_with("auth.secretRef: file ") && missing.contains("missing cannot be read"), "{missing}");
    let unset = Pulls::new(both.here.clone(), None, None, Duration::from_secs(60));
    let unset = unset.pull(HERE, "main", &both.pull_of(Some("plain"), None)).await.unwrap_err();
    assert!(unset.contains("git.credentials_dir is not configured"), "{unset}");
    both.stop().await;
}

#[tokio::test]
async fn a_remote_that_hangs_or_is_away_ends_in_time_and_holds_up_no_other() {
    let both = Both::start(Anonymous::Loopback).await;
    // Accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hanging = Pull { url: format!("http://{}/x", silent.local_addr().unwrap()), ..both.pull_of(None, None) };
    let error = both.pulls(Duration::from_millis(300)).pull(HERE, "main", &hanging).await.unwrap_err();
    assert!(error.starts_with("took longer than"), "{error}");
    let slow = both.pulls(Duration::from_secs(3600));
    let stuck = tokio::spawn(async move { slow.pull(HERE, "stuck", &hanging).await });
    let (_stream, _) = silent.accept().await.unwrap();
    assert!(both.pull("main", both.pull_of(None, None)).await.is_ok(), "another one works");
    stuck.abort();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let away = Pull { url: format!("http://{free}/x"), ..both.pull_of(None, None) };
    let error = both.pull("main", away).await.unwrap_err();
    assert!(error.contains("unable to access") || error.contains("Failed to connect"), "{error}");
    both.stop().await;
}
