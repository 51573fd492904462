//! The git server against the real git client.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use cluster_manager::adapters::repositories::{Kind, Place, Repositories};
use cluster_manager::adapters::{git_http, http};
use cluster_manager::config::{Anonymous, GitConfig};
use cluster_manager::event::RepositoryFiles;
use cluster_manager::password_file;
use service_runtime::shutdown::Shutdown;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinHandle;
use uuid::Uuid;

const A: Uuid = Uuid::from_u128(0xA);
const B: Uuid = Uuid::from_u128(0xB);
const SHARED: Uuid = Uuid::from_u128(0x5);

struct Server {
    state_dir: tempfile::TempDir,
    repositories: Repositories,
    addr: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<std::io::Result<()>>,
}

fn files(release: &str) -> RepositoryFiles {
    RepositoryFiles {
        initial: [("README.md".to_owned(), b"read\n".to_vec())].into(),
        directory: Some("edo/cluster".to_owned()),
        owned: [("a.yaml".to_owned(), release.as_bytes().to_vec())].into(),
        message: "update".to_owned(),
    }
}

impl Server {
    async fn start(anonymous: Anonymous) -> Self {
        Self::start_with(GitConfig { anonymous, ..GitConfig::default() }).await
    }

    async fn start_with(config: GitConfig) -> Self {
        let state_dir = tempfile::tempdir().unwrap();
        let repositories = Repositories::load(state_dir.path()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let task = tokio::spawn(http::server::serve(
            listener,
            git_http::router(repositories.clone(), &config),
            None,
            shutdown.clone(),
        ));
        let server = Self { state_dir, repositories, addr, shutdown, task };
        for (uuid, path, kind) in
            [(A, "cluster/A", Kind::Cluster), (B, "cluster/B", Kind::Cluster), (SHARED, "shared/helm", Kind::Shared)]
        {
            server.write(uuid, path, kind, "a: 1\n");
            server.write(uuid, path, kind, "a: 2\n");
        }
        server
    }

    fn write(&self, uuid: Uuid, path: &str, kind: Kind, release: &str) {
        let place = Place { path: path.to_owned(), kind, store: Uuid::nil() };
        self.repositories.write(uuid, &place, &files(release), 0).unwrap();
    }

    fn password(&self, cluster: Uuid) -> String {
        std::fs::read_to_string(password_file(self.state_dir.path(), cluster)).unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    fn url_as(&self, user: Uuid, password: &str, path: &str) -> String {
        format!("http://{user}:{password}@{}{path}", self.addr)
    }

    fn url_of(&self, cluster: Uuid, path: &str) -> String {
        self.url_as(cluster, &self.password(cluster), path)
    }

    async fn stop(self) {
        self.shutdown.trigger();
        self.task.await.unwrap().unwrap();
    }
}

async fn git(arguments: &[&str]) -> Output {
    Command::new("git")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", "/nonexistent")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=x", "-c", "user.email=x@example"])
        .args(arguments)
        .output()
        .await
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn clone(url: &str, options: &[&str]) -> Result<(tempfile::TempDir, PathBuf), String> {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("clone");
    let target_text = target.to_str().unwrap().to_owned();
    let arguments = [&["clone", "-q"], options, &[url, &target_text]].concat();
    let output = git(&arguments).await;
    if output.status.success() { Ok((directory, target)) } else { Err(stderr(&output)) }
}

async fn commits(directory: &Path) -> usize {
    let output = git(&["-C", directory.to_str().unwrap(), "rev-list", "--count", "HEAD"]).await;
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

fn content(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("edo/cluster/a.yaml")).unwrap()
}

#[tokio::test]
async fn a_cluster_clones_its_repository_at_every_address_of_it() {
    let server = Server::start(Anonymous::None).await;
    for path in ["/git/cluster/A", "/git/cluster/A.git", &format!("/uuid/{A}"), &format!("/uuid/{A}.git")] {
        let (_keep, directory) = clone(&server.url_of(A, path), &[]).await.unwrap();
        assert_eq!((content(&directory).as_str(), commits(&directory).await), ("a: 2\n", 2), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn both_protocol_versions_work_deep_and_shallow() {
    let server = Server::start(Anonymous::None).await;
    let url = server.url_of(A, "/git/cluster/A");
    for version in ["protocol.version=0", "protocol.version=1", "protocol.version=2"] {
        let (_keep, deep) = clone(&url, &["-c", version]).await.unwrap();
        assert_eq!(commits(&deep).await, 2, "{version}");
        let (_keep, shallow) = clone(&url, &["-c", version, "--depth", "1"]).await.unwrap();
        assert_eq!((commits(&shallow).await, content(&shallow).as_str()), (1, "a: 2\n"), "{version}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_fetch_brings_what_was_written_since_the_clone() {
    let server = Server::start(Anonymous::None).await;
    let (_keep, directory) = clone(&server.url_of(A, "/git/cluster/A"), &[]).await.unwrap();
    server.write(A, "cluster/A", Kind::Cluster, "a: 3\n");
    let pulled = git(&["-C", directory.to_str().unwrap(), "pull", "-q"]).await;
    assert!(pulled.status.success(), "{}", stderr(&pulled));
    assert_eq!(content(&directory), "a: 3\n");
    server.stop().await;
}

#[tokio::test]
async fn only_the_own_password_opens_and_only_the_own_and_the_shared_repository() {
    let server = Server::start(Anonymous::None).await;
    let denied = [
        server.url("/git/cluster/A"),
        server.url_as(A, "wrong", "/git/cluster/A"),
        server.url_as(A, &server.password(B), "/git/cluster/A"),
        server.url_of(B, "/git/cluster/A"),
        format!("http://B:{}@{}/git/cluster/A", server.password(B), server.addr),
        format!("http://C:{}@{}/git/cluster/A", server.password(A), server.addr),
        format!("http://A:@{}/git/cluster/A", server.addr),
        server.url_of(B, &format!("/uuid/{A}")),
        server.url_of(A, "/git/cluster/C"),
        server.url_of(A, "/git/cluster/..%2f..%2fsecrets"),
        server.url_of(A, "/uuid/nothing"),
    ];
    for url in denied {
        let error = clone(&url, &[]).await.unwrap_err();
        assert!(!error.contains(&server.password(A)) || url.contains(&server.password(A)), "{error}");
    }
    clone(&server.url_of(A, "/git/shared/helm"), &[]).await.unwrap();
    let by_name = format!("http://A:{}@{}/git/cluster/A", server.password(A), server.addr);
    clone(&by_name, &[]).await.unwrap();
    clone(&server.url_of(B, &format!("/uuid/{SHARED}")), &[]).await.unwrap();
    server.repositories.close(A).unwrap();
    let password = server.password(B);
    clone(&server.url_as(B, &password, "/git/cluster/B"), &[]).await.unwrap();
    clone(&server.url_as(A, &password, "/git/cluster/A"), &[]).await.unwrap_err();
    server.stop().await;
}

#[tokio::test]
async fn a_client_on_this_machine_needs_no_password_if_that_is_configured() {
    let server = Server::start(Anonymous::Loopback).await;
    for path in ["/git/cluster/A", "/git/cluster/B", "/git/shared/helm"] {
        clone(&server.url(path), &[]).await.unwrap();
    }
    clone(&server.url("/git/cluster/C"), &[]).await.unwrap_err();
    server.stop().await;
}

#[tokio::test]
async fn nobody_can_push() {
    let server = Server::start(Anonymous::None).await;
    let url = server.url_of(A, "/git/cluster/A");
    let (_keep, directory) = clone(&url, &[]).await.unwrap();
    let at = directory.to_str().unwrap();
    std::fs::write(directory.join("mine"), "x").unwrap();
    assert!(git(&["-C", at, "add", "-A"]).await.status.success());
    assert!(git(&["-C", at, "commit", "-q", "-m", "x"]).await.status.success());
    let pushed = git(&["-C", at, "push", "-q"]).await;
    assert!(!pushed.status.success());
    let error = stderr(&pushed);
    assert!(error.contains("403"), "{error}");
    let (_keep, again) = clone(&url, &[]).await.unwrap();
    assert_eq!(commits(&again).await, 2);
    for path in ["/git/cluster/A/git-receive-pack", &format!("/uuid/{A}/git-receive-pack")] {
        let answer = raw(&server, &format!("POST {path} HTTP/1.1\r\nContent-Length: 0\r\n"), b"").await;
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("read-only"), "{answer}");
    }
    server.stop().await;
}

/// One request as it is, and the whole answer.
async fn raw(server: &Server, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(format!("{head}Host: x\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn strange_requests_are_refused_without_a_child() {
    let server = Server::start(Anonymous::Loopback).await;
    for (request, status) in [
        ("GET /git/cluster/A/info/refs HTTP/1.1\r\n", 403),
        ("GET /git/cluster/A/info/refs?service=git-receive-pack HTTP/1.1\r\n", 403),
        ("GET /git/cluster/A/info/refs?service=x HTTP/1.1\r\n", 403),
        ("GET /git/cluster/A/HEAD HTTP/1.1\r\n", 404),
        ("GET / HTTP/1.1\r\n", 404),
        ("POST /git/cluster/none/git-upload-pack HTTP/1.1\r\nContent-Length: 0\r\n", 404),
        ("GET /git/cluster/A/git-upload-pack HTTP/1.1\r\n", 405),
    ] {
        let answer = raw(&server, request, b"").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn without_a_password_nobody_learns_which_repositories_there_are() {
    let server = Server::start(Anonymous::None).await;
    let ask = async |path: &str| {
        raw(&server, &format!("GET {path}/info/refs?service=git-upload-pack HTTP/1.1\r\n"), b"").await
    };
    let (there, nowhere) = (ask("/git/cluster/A").await, ask("/git/cluster/none").await);
    assert!(there.starts_with("HTTP/1.1 401") && there.to_lowercase().contains("www-authenticate: basic"), "{there}");
    let without_date =
        |answer: &str| answer.lines().filter(|line| !line.starts_with("date:")).collect::<Vec<_>>().join("\n");
    assert_eq!(without_date(&there), without_date(&nowhere));
    server.stop().await;
}

#[tokio::test]
async fn a_hostile_protocol_header_and_body_harm_nobody() {
    let server = Server::start(Anonymous::Loopback).await;
    let refs = "GET /git/cluster/A/info/refs?service=git-upload-pack HTTP/1.1\r\nGit-Protocol: version=2;$(reboot)\r\n";
    let answer = raw(&server, refs, b"").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("# service=git-upload-pack"), "{answer}");
    let pack = "POST /git/cluster/A/git-upload-pack HTTP/1.1\r\nContent-Length: 8\r\nContent-Encoding: gzip\r\n";
    raw(&server, pack, b"no gzip!").await;
    let pack = "POST /git/cluster/A/git-upload-pack HTTP/1.1\r\nContent-Length: 8\r\n";
    raw(&server, pack, b"zzzzzzzz").await;
    clone(&server.url("/git/cluster/A"), &[]).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_large_negotiation_that_git_compresses_is_understood() {
    let server = Server::start(Anonymous::Loopback).await;
    let (_keep, directory) = clone(&server.url("/git/cluster/A"), &[]).await.unwrap();
    let at = directory.to_str().unwrap();
    // Commits that the server does not have make the client send a long list of what it has; git compresses requests above 1 KiB.
    for n in 0..80 {
        let message = format!("local {n}");
        assert!(git(&["-C", at, "commit", "-q", "--allow-empty", "-m", &message]).await.status.success());
    }
    server.write(A, "cluster/A", Kind::Cluster, "a: 9\n");
    for version in ["protocol.version=0", "protocol.version=2"] {
        let fetched = git(&["-C", at, "-c", version, "fetch", "-q"]).await;
        assert!(fetched.status.success(), "{}", stderr(&fetched));
    }
    let shown = git(&["-C", at, "show", "origin/main:edo/cluster/a.yaml"]).await;
    assert_eq!(shown.stdout, b"a: 9\n");
    server.stop().await;
}

#[tokio::test]
async fn many_clones_at_a_time_wait_for_each_other() {
    let config = GitConfig { anonymous: Anonymous::None, children_max: 2, ..GitConfig::default() };
    let server = Arc::new(Server::start_with(config).await);
    let clones: Vec<_> = (0..12)
        .map(|n| {
            let url = server
                .url_of(if n % 2 == 0 { A } else { B }, if n % 2 == 0 { "/git/cluster/A" } else { "/git/cluster/B" });
            tokio::spawn(async move { clone(&url, &[]).await.map(|(_keep, directory)| content(&directory)) })
        })
        .collect();
    for cloned in clones {
        assert_eq!(cloned.await.unwrap().unwrap(), "a: 2\n");
    }
    Arc::into_inner(server).unwrap().stop().await;
}
