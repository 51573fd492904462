//! The git server of a site: a real one (git http-backend) behind Basic authentication that makes repositories when they are pushed to, as Gitea and GitLab do.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::Command;

/// Who may push.
pub const PUSHER: &str = "pusher:geheim-1";
/// Who may only read.
pub const READER: &str = "edge:geheim-2";

/// The other server.
#[derive(Clone)]
pub struct There {
    root: Arc<tempfile::TempDir>,
    is_away: Arc<AtomicBool>,
    /// Where it is.
    pub url: String,
}

impl There {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let there = Self { root: Arc::new(tempfile::tempdir().unwrap()), is_away: Arc::default(), url };
        let router = Router::new().fallback(serve).with_state(there.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        there
    }

    /// The repository of cluster Paint_Shop.
    pub fn repository(&self) -> PathBuf {
        self.root.path().join("factory/cluster-Paint_Shop.git")
    }

    /// It answers nothing, or again.
    pub fn away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// A file on branch `main` there.
    pub async fn file(&self, path: &str) -> Option<String> {
        git(&self.repository(), &["show", &format!("main:{path}")]).await
    }
}

async fn serve(State(there): State<There>, request: Request) -> Response {
    if there.is_away.load(Ordering::SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let (parts, body) = request.into_parts();
    let shown = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is = |login: &str| shown == format!("Basic {}", BASE64_STANDARD.encode(login));
    let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default().to_owned());
    let pushes = path.ends_with("git-receive-pack") || query.ends_with("git-receive-pack");
    if !is(PUSHER) && (pushes || !is(READER)) {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Basic realm=\"x\"")]).into_response();
    }
    let repository = path.split(".git").next().map(|name| there.root.path().join(format!("{}.git", &name[1..])));
    let repository = repository.unwrap();
    if !repository.exists() {
        if !pushes {
            return StatusCode::NOT_FOUND.into_response();
        }
        std::fs::create_dir_all(&repository).unwrap();
        git(&repository, &["init", "--quiet", "--bare", "--initial-branch=main"]).await.unwrap();
    }
    let body = to_bytes(body, 64 << 20).await.unwrap();
    let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let mut backend = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", there.root.path())
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", &path)
        .env("QUERY_STRING", &query)
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("CONTENT_TYPE", text(header::CONTENT_TYPE))
        .env("HTTP_CONTENT_ENCODING", text(header::CONTENT_ENCODING))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("REMOTE_USER", "a-user")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    backend.stdin.take().unwrap().write_all(&body).await.unwrap();
    let output = Bytes::from(backend.wait_with_output().await.unwrap().stdout);
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let mut response = Response::new(axum::body::Body::from(output.slice(end + 4..)));
    for line in std::str::from_utf8(&output[..end]).unwrap().lines() {
        let (name, value) = line.split_once(": ").unwrap();
        if name == "Status" {
            *response.status_mut() = StatusCode::from_bytes(&value.as_bytes()[..3]).unwrap();
        } else {
            let name: header::HeaderName = name.parse().unwrap();
            response.headers_mut().insert(name, value.parse().unwrap());
        }
    }
    response
}

/// What git prints, if it succeeds.
pub async fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let who = ["-c", "user.name=x", "-c", "user.email=x@example", "-c", "safe.directory=*"];
    let mut command = Command::new("git");
    command.args(who).args(arguments).current_dir(directory).env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null());
    let output = command.output().await.unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}
