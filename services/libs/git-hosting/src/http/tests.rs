//! The git server against the real git client.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use service_runtime::http::server;
use service_runtime::shutdown::Shutdown;
use service_runtime::state_dir::StateDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{Anonymous, Settings, router};
use crate::gatekeeper::fake::{self, FakeGatekeeper, Pushed};
use crate::push::Hooks;
use crate::repositories::{Kind, Repositories, RepositoryFiles, RepositoryRecord};

const A: Uuid = Uuid::from_u128(0xA);
const B: Uuid = Uuid::from_u128(0xB);
const SHARED: Uuid = Uuid::from_u128(0x5);

type Pushes = Arc<std::sync::Mutex<Vec<Pushed>>>;

/// As many children as are configured where nothing else is.
const CHILDREN_MAX: usize = 16;

struct Server {
    state_dir: tempfile::TempDir,
    repositories: Repositories,
    addr: SocketAddr,
    shutdown: Shutdown,
    /// What was reported of pushes.
    pushes: Pushes,
    task: JoinHandle<std::io::Result<()>>,
    polled: mpsc::Receiver<Uuid>,
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
        Self::start_with(anonymous, CHILDREN_MAX).await
    }

    async fn start_with(anonymous: Anonymous, children_max: usize) -> Self {
        let state_dir = tempfile::tempdir().unwrap();
        let path = state_dir.path().to_owned();
        Self::start_in(state_dir, &path, anonymous, children_max).await
    }

    /// `path`: how the program names that directory.
    async fn start_in(state_dir: tempfile::TempDir, path: &Path, anonymous: Anonymous, children_max: usize) -> Self {
        let repositories = Repositories::load(path).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let hooks = Hooks::install(path).unwrap();
        let (polls, polled) = mpsc::channel(64);
        let pushes = Pushes::default();
        let gatekeeper = FakeGatekeeper { pushes: Arc::clone(&pushes), polls };
        let (pushed, _) = mpsc::channel(1);
        let request_timeout = Duration::from_secs(600);
        let passwords = fake::passwords(&[A, B]);
        let settings = Settings { anonymous, children_max, request_timeout, passwords, hooks, pushed, scratches: None };
        let router = router(repositories.clone(), gatekeeper, settings);
        let task = tokio::spawn(server::serve(listener, router, None, shutdown.clone()));
        let server = Self { state_dir, repositories, addr, shutdown, pushes, task, polled };
        for (uuid, path, kind) in
            [(A, "cluster/A", Kind::Cluster), (B, "cluster/B", Kind::Cluster), (SHARED, "shared/helm", Kind::Shared)]
        {
            server.write(uuid, path, kind, "a: 1\n");
            server.write(uuid, path, kind, "a: 2\n");
        }
        server
    }

    fn write(&self, uuid: Uuid, path: &str, kind: Kind, release: &str) {
        let place = RepositoryRecord { path: path.to_owned(), kind, store: Uuid::nil(), origin: None };
        self.repositories.write(uuid, &place, &files(release), 0).unwrap();
    }

    fn password(&self, cluster: Uuid) -> String {
        fake::password(cluster)
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
    let mut server = Server::start(Anonymous::None).await;
    for path in ["/git/cluster/A", "/git/cluster/A.git", &format!("/uuid/{A}"), &format!("/uuid/{A}.git")] {
        let (_keep, directory) = clone(&server.url_of(A, path), &[]).await.unwrap();
        assert_eq!((content(&directory).as_str(), commits(&directory).await), ("a: 2\n", 2), "{path}");
        assert_eq!(server.polled.try_recv(), Ok(A), "its Flux is noticed: {path}");
        while server.polled.try_recv().is_ok() {}
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

/// A clone to change and to push from.
struct Work {
    _keep: tempfile::TempDir,
    directory: PathBuf,
}

impl Work {
    async fn clone(url: &str) -> Self {
        let (_keep, directory) = clone(url, &[]).await.unwrap();
        Self { _keep, directory }
    }

    async fn git(&self, arguments: &[&str]) -> Output {
        git(&[&["-C", self.directory.to_str().unwrap()], arguments].concat()).await
    }

    async fn commit(&self, path: &str, content: &str) -> String {
        let file = self.directory.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
        assert!(self.git(&["add", "-A"]).await.status.success());
        assert!(self.git(&["commit", "-q", "-m", path]).await.status.success());
        self.head("HEAD").await
    }

    async fn head(&self, name: &str) -> String {
        String::from_utf8(self.git(&["rev-parse", name]).await.stdout).unwrap().trim().to_owned()
    }

    /// Pushes; Err: what git says.
    async fn push(&self, arguments: &[&str]) -> Result<(), String> {
        let pushed = self.git(&[&["push", "-q"], arguments].concat()).await;
        if pushed.status.success() { Ok(()) } else { Err(stderr(&pushed)) }
    }
}

impl Server {
    fn url_with(&self, token: &str, path: &str) -> String {
        format!("http://ada:{token}@{}{path}", self.addr)
    }

    fn main(&self, uuid: Uuid) -> String {
        self.repositories.main(uuid).unwrap().unwrap()
    }
}

#[tokio::test]
async fn people_push_by_hand_and_nothing_else_of_a_clusters_repository() {
    let server = Server::start(Anonymous::Loopback).await;
    let url = server.url_with(&fake::token("operator"), "/git/cluster/A");
    let work = Work::clone(&url).await;
    let before = server.main(A);
    let commit = work.commit("by-hand/mine.yaml", "a: 1\n").await;
    work.push(&["origin", "main"]).await.unwrap();
    assert_eq!(server.main(A), commit);
    assert_eq!(*server.pushes.lock().unwrap(), [(A, Some(before), Some(commit.clone()))]);
    // The manager writes on top of it, and keeps it.
    server.write(A, "cluster/A", Kind::Cluster, "a: 3\n");
    let error = work.push(&["--force", "origin", "HEAD~1:main"]).await.unwrap_err();
    assert!(error.contains("main is only added to") || error.contains("non-fast-forward"), "{error}");
    assert!(work.git(&["pull", "-q", "--rebase"]).await.status.success());
    assert!(work.directory.join("by-hand/mine.yaml").exists());
    let main = server.main(A);
    for path in ["edo/cluster/a.yaml", "edo/secrets/x/y.yaml", "README.md", "by-handy/x", "other/by-hand/x"] {
        work.commit(path, "evil\n").await;
        let error = work.push(&["origin", "main"]).await.unwrap_err();
        assert!(error.contains("only what is below by-hand/ is yours") && error.contains(path), "{error}");
        assert!(work.git(&["reset", "-q", "--hard", "origin/main"]).await.status.success());
    }
    // The directory itself is not a file of theirs either.
    assert!(work.git(&["rm", "-q", "-r", "by-hand"]).await.status.success());
    work.commit("by-hand", "a file").await;
    let error = work.push(&["origin", "main"]).await.unwrap_err();
    assert!(error.contains("only what is below by-hand/"), "{error}");
    assert!(work.git(&["reset", "-q", "--hard", "origin/main"]).await.status.success());
    for (spec, rule) in [
        ("main:refs/heads/other", "only branch main"),
        (":main", "neither made nor deleted"),
        ("main:refs/tags/x", "only branch main"),
    ] {
        let error = work.push(&["origin", spec]).await.unwrap_err();
        assert!(error.contains(rule), "{error}");
    }
    assert_eq!(server.main(A), main);
    // Strange names within it are fine, and so is another address of it.
    work.commit("by-hand/zw\u{f6}lf \"x\"\n.yaml", "a: 1\n").await;
    work.push(&[&server.url_with(&fake::token("operator"), &format!("/uuid/{A}")), "main"]).await.unwrap();
    assert_eq!(server.main(A), work.head("HEAD").await);
    server.stop().await;
}

#[tokio::test]
async fn only_a_token_pushes_and_only_where_it_is_for() {
    let server = Server::start(Anonymous::Loopback).await;
    let work = Work::clone(&server.url("/git/cluster/A")).await;
    work.commit("by-hand/x", "x").await;
    let before = server.main(A);
    let cluster = work.push(&[&server.url_of(A, "/git/cluster/A"), "main"]).await.unwrap_err();
    assert!(cluster.contains("log in with a token") && cluster.contains("403"), "{cluster}");
    let anonymous = work.push(&[&server.url("/git/cluster/A"), "main"]).await.unwrap_err();
    assert!(anonymous.contains("could not read Username"), "{anonymous}");
    let unknown = work.push(&[&server.url_with(&fake::token("unknown"), "/git/cluster/A"), "main"]).await.unwrap_err();
    assert!(unknown.contains("Authentication failed"), "{unknown}");
    let viewer = work.push(&[&server.url_with(&fake::token("viewer"), "/git/cluster/A"), "main"]).await.unwrap_err();
    assert!(viewer.contains("push needs the scope operator"), "{viewer}");
    let other = work.push(&[&server.url_with(&fake::token("b-only"), "/git/cluster/A"), "main"]).await.unwrap_err();
    let nowhere = work.push(&[&server.url_with(&fake::token("b-only"), "/git/cluster/C"), "main"]).await.unwrap_err();
    assert!(other.contains("not found") && nowhere.contains("not found"), "{other} {nowhere}");
    assert_eq!(server.main(A), before);
    assert!(server.pushes.lock().unwrap().is_empty());
    clone(&server.url_with(&fake::token("viewer"), "/git/cluster/A"), &[]).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn shared_repositories_take_pushes_but_not_to_what_is_pulled_from_elsewhere() {
    let server = Server::start(Anonymous::None).await;
    let url = server.url_with(&fake::token("operator"), "/git/shared/helm");
    let work = Work::clone(&url).await;
    let before = server.main(SHARED);
    let commit = work.commit("charts/x/Chart.yaml", "name: x\n").await;
    work.push(&["origin", "main", "main:refs/tags/v1", "main:refs/heads/next"]).await.unwrap();
    assert_eq!(*server.pushes.lock().unwrap(), [(SHARED, Some(before.clone()), Some(commit.clone()))]);
    let error = work.push(&["origin", &format!("main:refs/heads/{}", fake::PULLED)]).await.unwrap_err();
    assert!(error.contains("is pulled from another server"), "{error}");
    let error = work.push(&["origin", ":main"]).await.unwrap_err();
    assert!(error.contains("main cannot be deleted"), "{error}");
    let error = work.push(&["--force", "origin", &format!("{before}:main")]).await.unwrap_err();
    assert!(error.contains("non-fast-forward"), "{error}");
    work.push(&["origin", ":next"]).await.unwrap();
    assert_eq!(server.main(SHARED), commit);
    // More than one message of HTTP, and more than git unpacks into single objects.
    for n in 0..150 {
        let noise: String = (0..2000_u64).map(|i| ((i * i + n * 7919) * 2_654_435_761).to_string()).collect();
        std::fs::write(work.directory.join(format!("big-{n}")), noise).unwrap();
    }
    let large = work.commit("last", "x").await;
    work.push(&["origin", "main"]).await.unwrap();
    assert_eq!(server.main(SHARED), large);
    server.write(SHARED, "shared/helm", Kind::Shared, "a: 9\n");
    assert_ne!(server.main(SHARED), large, "the library reads what git has packed");
    server.stop().await;
}

#[tokio::test]
async fn without_the_hook_nothing_is_pushed() {
    let server = Server::start(Anonymous::Loopback).await;
    let work = Work::clone(&server.url_with(&fake::token("operator"), "/git/cluster/A")).await;
    work.commit("README.md", "evil").await;
    let before = server.main(A);
    let hook = server.state_dir.path().join("hooks/pre-receive");
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let error = work.push(&["origin", "main"]).await.unwrap_err();
    assert!(error.contains("500"), "{error}");
    assert_eq!(server.main(A), before);
    server.stop().await;
}

#[tokio::test]
async fn the_rules_of_pushes_hold_with_a_relative_state_directory() {
    let state_dir = tempfile::tempdir().unwrap();
    let up = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect::<PathBuf>();
    let relative = up.join(state_dir.path().strip_prefix("/").unwrap());
    assert!(relative.is_relative() && relative.is_dir());
    let config = StateDir::from(relative.as_path());
    let server = Server::start_in(state_dir, &config, Anonymous::None, CHILDREN_MAX).await;
    let work = Work::clone(&server.url_with(&fake::token("operator"), "/git/cluster/A")).await;
    work.commit("edo/cluster/evil.yaml", "evil").await;
    let before = server.main(A);
    let error = work.push(&["origin", "main"]).await.unwrap_err();
    assert!(error.contains("only what is below by-hand/ is yours"), "{error}");
    assert_eq!(server.main(A), before);
    // A relative path that is given to the hooks themselves works as well.
    let hooks = Hooks::install(&relative).unwrap();
    assert!(format!("{hooks:?}").contains("\"/"), "{hooks:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_push_that_the_hook_has_not_marked_is_undone() {
    let server = Server::start(Anonymous::Loopback).await;
    let work = Work::clone(&server.url_with(&fake::token("operator"), "/git/shared/helm")).await;
    let before = server.main(SHARED);
    std::fs::write(server.state_dir.path().join("hooks/pre-receive"), "#!/bin/sh\nexit 0\n").unwrap();
    work.commit("evil", "evil").await;
    let error = work.push(&["origin", "main", "main:refs/heads/evil"]).await.unwrap_err();
    assert!(error.contains("500"), "{error}");
    assert_eq!(server.main(SHARED), before);
    let refs = git(&["ls-remote", &server.url("/git/shared/helm")]).await;
    assert!(!String::from_utf8(refs.stdout).unwrap().contains("evil"));
    server.stop().await;
}

#[tokio::test]
async fn malformed_objects_are_not_taken() {
    let server = Server::start(Anonymous::Loopback).await;
    let work = Work::clone(&server.url_with(&fake::token("operator"), "/git/shared/helm")).await;
    let at = work.directory.to_str().unwrap();
    let before = server.main(SHARED);
    // A tree whose entry a checkout would place into the repository itself.
    let script = "blob=$(echo evil | git hash-object -w --stdin) && \
        tree=$(printf '100644 blob %s\\t.git\\n' $blob | git mktree) && \
        commit=$(git -c user.name=x -c user.email=x@example commit-tree -p HEAD -m evil $tree) && git update-ref refs/heads/main $commit";
    let made = Command::new("sh").args(["-ec", script]).current_dir(at).output().await.unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    let error = work.push(&["origin", "main"]).await.unwrap_err();
    assert!(error.contains("hasDotgit"), "{error}");
    assert_eq!(server.main(SHARED), before);
    server.stop().await;
}

/// One request without a body, and the whole answer.
async fn raw_at(addr: SocketAddr, head: String) -> String {
    exchange(addr, &head, b"").await
}

/// One request as it is, and the whole answer.
async fn raw(server: &Server, head: &str, body: &[u8]) -> String {
    exchange(server.addr, head, body).await
}

async fn exchange(addr: SocketAddr, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
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
        ("GET /git/cluster/A/info/refs?service=git-receive-pack HTTP/1.1\r\n", 401),
        ("POST /git/cluster/A/git-receive-pack HTTP/1.1\r\nContent-Length: 0\r\n", 401),
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
async fn without_a_password_no_client_learns_which_repositories_there_are() {
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
async fn a_hostile_protocol_header_and_body_harm_no_one() {
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

/// As many as there are children for all, and more than that: with nothing of the body, with its first byte, and with a part of it.
#[tokio::test(flavor = "multi_thread")]
async fn open_bodies_with_one_clusters_password_leave_every_other_cluster_its_clones() {
    let children = CHILDREN_MAX;
    let server = Server::start_with(Anonymous::None, children).await;
    let login = BASE64_STANDARD.encode(format!("{A}:{}", server.password(A)));
    let head = format!(
        "POST /git/cluster/A/git-upload-pack HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {login}\r\n\
         Content-Type: application/x-git-upload-pack-request\r\nContent-Length: 100000\r\n\r\n"
    );
    let mut open = Vec::new();
    for body in ["", "0", "0014command=ls-refs\n"].iter().cycle().take(6 * children) {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        open.push(stream);
    }
    let refs = format!("/git/cluster/A/info/refs?service=git-upload-pack HTTP/1.1\r\nAuthorization: Basic {login}\r\n");
    // The cluster itself is not served meanwhile: its children are taken by its bodies.
    let own = tokio::spawn(raw_at(server.addr, format!("GET {refs}")));
    for _ in 0..3 {
        let url = server.url_of(B, "/git/cluster/B");
        let clones = (0..children / 4).map(|_| clone(&url, &[]));
        for cloned in futures::future::join_all(clones).await {
            let (_keep, directory) = cloned.unwrap();
            assert_eq!(content(&directory), "a: 2\n");
        }
    }
    if own.is_finished() {
        let answer = own.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 503"), "its own children were taken all the time: {answer}");
    } else {
        own.abort();
    }
    drop(open);
    clone(&server.url_of(A, "/git/cluster/A"), &[]).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn many_clones_at_a_time_wait_for_each_other() {
    let server = Arc::new(Server::start_with(Anonymous::None, 2).await);
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

#[test]
fn a_hook_that_is_there_is_not_written_again_so_that_a_start_needs_no_room() {
    use std::os::unix::fs::MetadataExt as _;
    let directory = tempfile::tempdir().unwrap();
    let hook = directory.path().join("hooks/pre-receive");
    Hooks::install(directory.path()).unwrap();
    let first = std::fs::metadata(&hook).unwrap().ino();
    Hooks::install(directory.path()).unwrap();
    assert_eq!(std::fs::metadata(&hook).unwrap().ino(), first);
    std::fs::write(&hook, "another").unwrap();
    Hooks::install(directory.path()).unwrap();
    assert_ne!(std::fs::read(&hook).unwrap(), b"another");
}
