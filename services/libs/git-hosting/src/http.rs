//! Git over smart HTTP: what Flux on the clusters clones and fetches, and where people push.
//!
//! `/git/<group>/<name>`, the same with `.git`, and `/uuid/<uuid>`, each followed by `/info/refs?service=git-upload-pack` or `/git-upload-pack`, and the same with
//! `git-receive-pack` for pushes ([`crate::push`]). Reading is done by `git upload-pack --stateless-rpc`, one child a request, with an empty environment, killed when the client goes away or takes too long.
//!
//! Who may read: HTTP Basic with a cluster's UUID or name as the user and its password; a cluster reads its own repository and the shared ones. A user presents a credential
//! as the password, or as `Authorization: Bearer`, and the [`Gatekeeper`] decides whether they may read, or push. With [`Anonymous::Loopback`] a client on this machine reads without.
//! This module must not know what is in a repository.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{ConnectInfo, FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::{Stream, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc::Sender;

use tokio::time::Instant;
use tokio_util::io::{ReaderStream, StreamReader};
use tower_http::decompression::RequestDecompressionLayer;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::client;
use crate::gatekeeper::{Admission, AdmissionRequest, Denial, Gatekeeper};
use crate::passwords::PasswordDigests;
use crate::places::{Permit, Places};
use crate::pulls::HIDDEN_REFS;
use crate::push::{Allowed, Hooks, Receiver};
use crate::repositories::{Kind, Open, Repositories, cluster_path};
use crate::scratch::Scratches;

/// Most bytes of a request after decompression. A fetch names the commits that it has; these are some 50 bytes each.
const REQUEST_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What a request waits for a free child before it is refused as busy.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// What the first bytes of a request's body may take. Until then there is no child for it.
const BODY_FIRST_MAX: Duration = Duration::from_secs(10);

/// What the whole body of a clone or fetch may take: it is small.
const BODY_MAX: Duration = Duration::from_secs(60);

/// Pushes that are handed on at the same time: each is held in memory until it is decided.
const HANDED_ON_MAX: usize = 4;

/// The name of a client that reads without logging in.
const ANONYMOUS: &str = "anonymous";

const NO_PUSH: &str = "To push, log in with a token (`sparkfleet token create`), or one of the identity provider, as the password: below edo/ the cluster manager writes, below by-hand/ and in shared repositories people do.\n";

/// Who may read without logging in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Anonymous {
    /// No client.
    #[default]
    None,
    /// Clients on this machine. Behind a proxy on this machine that is every client.
    Loopback,
}

/// How repositories are served.
#[derive(Debug)]
pub struct Settings {
    /// Who may read without logging in.
    pub anonymous: Anonymous,
    /// Requests that are served at the same time.
    pub children_max: usize,
    /// What one request may take.
    pub request_timeout: Duration,
    /// By which passwords clusters read.
    pub passwords: PasswordDigests,
    /// Where pushes are judged.
    pub hooks: Hooks,
    /// Receives which repositories were pushed to; while it is full it does not.
    pub pushed: Sender<Uuid>,
    /// Where pushes are received apart, to be handed on ([`Gatekeeper::hand_over`]). None: they are decided here.
    pub scratches: Option<Scratches>,
}

#[derive(Debug, Clone)]
struct Server<G> {
    repositories: Repositories,
    passwords: PasswordDigests,
    gatekeeper: G,
    receiver: Receiver<G>,
    anonymous: Anonymous,
    /// Bounds the children: each takes memory and a core while it packs.
    children: Places,
    scratches: Option<Scratches>,
    /// Bounds the pushes that are handed on: of each repository one at a time.
    handed_on: Places,
    request_timeout: Duration,
}

/// The routes below `/git` and `/uuid`.
pub fn router<G: Gatekeeper>(repositories: Repositories, gatekeeper: G, settings: Settings) -> Router {
    let Settings { anonymous, children_max, request_timeout, passwords, hooks, pushed, scratches } = settings;
    let receiver = Receiver {
        hooks,
        gatekeeper: gatekeeper.clone(),
        repositories: repositories.clone(),
        limit: request_timeout,
        pushed,
    };
    let children = Places::new(children_max);
    let handed_on = Places::one_each(HANDED_ON_MAX);
    let server = Server {
        repositories,
        passwords,
        gatekeeper,
        receiver,
        anonymous,
        children,
        scratches,
        handed_on,
        request_timeout,
    };
    Router::new()
        .route("/git/{group}/{name}/info/refs", get(refs::<G>))
        .route("/git/{group}/{name}/git-upload-pack", post(pack::<G>))
        .route("/git/{group}/{name}/git-receive-pack", post(push::<G>))
        .route("/uuid/{uuid}/info/refs", get(refs::<G>))
        .route("/uuid/{uuid}/git-upload-pack", post(pack::<G>))
        .route("/uuid/{uuid}/git-receive-pack", post(push::<G>))
        .layer(RequestDecompressionLayer::new())
        .with_state(server)
}

/// Why a request is not served.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(
        "Log in with the cluster's UUID or name as user and its git password, or with a token (`sparkfleet token create`) as the password.\n"
    )]
    Unauthorised,
    #[error("{0}.\n")]
    NotAccepted(String),
    #[error("{0}.\n")]
    Forbidden(String),
    #[error("{0}.\n")]
    TooOften(String),
    #[error("{0}.\n")]
    NotAtPresent(String),
    #[error("There is no such repository, or it is not for this user.\n")]
    NotFound,
    #[error("{NO_PUSH}")]
    Push,
    #[error("Only git's smart HTTP protocol is served here; use a git client.\n")]
    NotSmart,
    #[error("Too many clones at a time; try again.\n")]
    Busy,
    #[error("Other pushes are under way; try again.\n")]
    Pushing,
    #[error("The body of the request did not come in time.\n")]
    Slow,
    #[error("The repository cannot be read; see the log of the server.\n")]
    Broken,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let text = self.to_string();
        let mut response = match self {
            Self::Unauthorised | Self::NotAccepted(_) => {
                let mut response = (StatusCode::UNAUTHORIZED, text).into_response();
                let challenge = HeaderValue::from_static("Basic realm=\"Sparkfleet git\", charset=\"UTF-8\"");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
                response
            }
            Self::NotFound => (StatusCode::NOT_FOUND, text).into_response(),
            Self::TooOften(_) => (StatusCode::TOO_MANY_REQUESTS, text).into_response(),
            Self::NotAtPresent(_) | Self::Busy | Self::Pushing => {
                (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")], text).into_response()
            }
            Self::Forbidden(_) | Self::Push | Self::NotSmart => (StatusCode::FORBIDDEN, text).into_response(),
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, text).into_response(),
            Self::Broken => (StatusCode::INTERNAL_SERVER_ERROR, text).into_response(),
        };
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

#[derive(Debug, Deserialize)]
struct RefsQuery {
    service: Option<String>,
}

type Peer = ConnectInfo<SocketAddr>;

/// The repository that a request names by its path or its UUID. None: there is none.
struct Named(Option<Open>);

impl<G: Gatekeeper> FromRequestParts<Server<G>> for Named {
    type Rejection = PathRejection;

    async fn from_request_parts(parts: &mut Parts, server: &Server<G>) -> Result<Self, PathRejection> {
        let Path(parameters) = Path::<BTreeMap<String, String>>::from_request_parts(parts, server).await?;
        let of = |name| parameters.get(name).map(|value: &String| value.strip_suffix(".git").unwrap_or(value));
        Ok(Self(match (of("uuid"), parameters.get("group"), of("name")) {
            (Some(uuid), ..) => Uuid::parse_str(uuid).ok().and_then(|uuid| server.repositories.by_uuid(uuid)),
            (None, Some(group), Some(name)) => server.repositories.by_path(&format!("{group}/{name}")),
            _ => None,
        }))
    }
}

async fn refs<G: Gatekeeper>(
    State(server): State<Server<G>>,
    Named(repository): Named,
    Query(query): Query<RefsQuery>,
    ConnectInfo(peer): Peer,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    server.refs(repository, query, peer, &headers).await
}

async fn pack<G: Gatekeeper>(
    State(server): State<Server<G>>,
    Named(repository): Named,
    ConnectInfo(peer): Peer,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    server.pack(repository, peer, &headers, body).await
}

async fn push<G: Gatekeeper>(
    State(server): State<Server<G>>,
    Named(repository): Named,
    ConnectInfo(peer): Peer,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    server.push(repository, peer, &headers, body).await
}

impl<G: Gatekeeper> Server<G> {
    /// The repository, and who reads it. A client that is not logged in does not learn which repositories exist.
    async fn authorise(
        &self,
        repository: Option<Open>,
        peer: SocketAddr,
        headers: &HeaderMap,
    ) -> Result<(Open, String), Refusal> {
        let shown = credentials(headers);
        let cluster = shown.as_ref().and_then(|(user, password)| self.log_in(user, password));
        if let Some(cluster) = cluster {
            self.gatekeeper.polled(cluster);
        }
        if self.anonymous == Anonymous::Loopback && peer.ip().to_canonical().is_loopback() {
            let who = cluster.map_or_else(|| ANONYMOUS.to_owned(), |cluster| cluster.to_string());
            return repository.map(|open| (open, who)).ok_or(Refusal::NotFound);
        }
        let (_, password) = shown.ok_or(Refusal::Unauthorised)?;
        let Some(user) = cluster else {
            let allowed = self.admit(repository, password, peer, false).await?;
            return Ok((allowed.repository, allowed.who.name));
        };
        let may_read = |open: &Open| open.kind == Kind::Shared || open.uuid == user;
        repository.filter(may_read).map(|open| (open, user.to_string())).ok_or(Refusal::NotFound)
    }

    /// Whether a user may. Of a repository that does not exist, no more is said than of one that is not for them.
    async fn admit(
        &self,
        repository: Option<Open>,
        credential: Zeroizing<String>,
        peer: SocketAddr,
        push: bool,
    ) -> Result<Allowed, Refusal> {
        let from = peer.ip().to_canonical();
        let request = AdmissionRequest { repository: repository.clone(), credential, from, push };
        match self.gatekeeper.admit(request).await {
            Ok(Admission { who, pulled }) => {
                let repository = repository.ok_or(Refusal::NotFound)?;
                Ok(Allowed { repository, who, from, pulled })
            }
            Err(denial) => Err(refusal(denial, push)),
        }
    }

    /// Whether a user may push. A cluster's password, and being on this machine, are for reading.
    async fn may_push(
        &self,
        repository: Option<Open>,
        peer: SocketAddr,
        headers: &HeaderMap,
    ) -> Result<(Allowed, Zeroizing<String>), Refusal> {
        let (_, password) = credentials(headers).ok_or(Refusal::Unauthorised)?;
        Ok((self.admit(repository, password.clone(), peer, true).await?, password))
    }

    async fn push(
        &self,
        repository: Option<Open>,
        peer: SocketAddr,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, Refusal> {
        let (allowed, credential) = self.may_push(repository, peer, headers).await?;
        let body = begun(body).await?;
        let place = self.place(&allowed.who.name).await?;
        let receiver = self.receiver.clone();
        // A task of its own: a push that has begun is reported and recorded, also when its sender goes away.
        let received = match self.scratches.clone() {
            None => tokio::spawn(receiver.receive(allowed, body, place)).await,
            Some(scratches) => {
                let only = self.handed_on.take(&allowed.repository.uuid.to_string(), WAIT_MAX).await;
                let only = only.ok_or(Refusal::Pushing)?;
                tokio::spawn(receiver.hand_over(scratches, allowed, credential, body, (place, only))).await
            }
        };
        let answered = received.unwrap_or_else(|error| Err(error.to_string())).map_err(broken)?;
        Ok(answer("application/x-git-receive-pack-result", Body::from(answered)))
    }

    /// A place for a child of this user.
    async fn place(&self, who: &str) -> Result<Permit, Refusal> {
        self.children.take(who, WAIT_MAX).await.ok_or(Refusal::Busy)
    }

    fn log_in(&self, user: &str, password: &str) -> Option<Uuid> {
        let cluster = match Uuid::parse_str(user) {
            Ok(cluster) => cluster,
            Err(_) => self.repositories.by_path(&cluster_path(user))?.uuid,
        };
        self.passwords.is_password(cluster, password).then_some(cluster)
    }

    async fn refs(
        &self,
        repository: Option<Open>,
        query: RefsQuery,
        peer: SocketAddr,
        headers: &HeaderMap,
    ) -> Result<Response, Refusal> {
        match query.service.as_deref() {
            Some("git-upload-pack") => {}
            Some("git-receive-pack") => {
                let (allowed, _) = self.may_push(repository, peer, headers).await?;
                let _place = self.place(&allowed.who.name).await?;
                let refs = self.receiver.advertise(&allowed).await.map_err(broken)?;
                return Ok(answer("application/x-git-receive-pack-advertisement", Body::from(refs)));
            }
            _ => return Err(Refusal::NotSmart),
        }
        let reader = self.authorise(repository, peer, headers).await?;
        let protocol = protocol(headers);
        let (child, _stdin) = self.spawn(&reader, &["--advertise-refs"], protocol.as_deref()).await?;
        // Protocol version 2 begins without the line that names the service.
        let preamble: &[u8] = match protocol.as_deref() {
            Some(protocol) if protocol.split(':').any(|part| part == "version=2") => b"",
            _ => b"001e# service=git-upload-pack\n0000",
        };
        let preamble = futures::stream::once(std::future::ready(Ok(Bytes::from_static(preamble))));
        let body = Body::from_stream(preamble.chain(child.output()));
        Ok(answer("application/x-git-upload-pack-advertisement", body))
    }

    async fn pack(
        &self,
        repository: Option<Open>,
        peer: SocketAddr,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, Refusal> {
        let reader = self.authorise(repository, peer, headers).await?;
        let body = begun(body).await?;
        let (child, stdin) = self.spawn(&reader, &[], protocol(headers).as_deref()).await?;
        let deadline = child.deadline.min(Instant::now() + BODY_MAX);
        // Both ways at the same time: the child may answer before it has read everything.
        tokio::spawn(async move {
            let copied = tokio::time::timeout_at(deadline, feed(body, stdin)).await;
            if let Ok(Err(error)) = copied {
                tracing::debug!(error = %error, "request to git was cut short");
            }
        });
        Ok(answer("application/x-git-upload-pack-result", Body::from_stream(child.output())))
    }

    async fn spawn(
        &self,
        (repository, who): &(Open, String),
        arguments: &[&str],
        protocol: Option<&str>,
    ) -> Result<(Running, ChildStdin), Refusal> {
        let place = self.place(who).await?;
        let mut safe_directory = std::ffi::OsString::from("safe.directory=");
        safe_directory.push(&repository.directory);
        let mut command = client::program();
        command
            // On some volumes the files belong to another user than that of this process.
            .arg("-c")
            .arg(safe_directory)
            .arg("-c")
            .arg(format!("transfer.hideRefs={HIDDEN_REFS}"))
            .args(["upload-pack", "--strict", "--stateless-rpc"])
            .args(arguments)
            .arg("--")
            .arg(&repository.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        if let Some(protocol) = protocol {
            command.env("GIT_PROTOCOL", protocol);
        }
        let mut child = command.spawn().map_err(|error| {
            tracing::warn!(error = %error, "program git could not be started; is it installed?");
            Refusal::Broken
        })?;
        let stdin = child.stdin.take().expect("stdin was asked for");
        Ok((Running { child, deadline: Instant::now() + self.request_timeout, _place: place }, stdin))
    }
}

fn refusal(denial: Denial, push: bool) -> Refusal {
    match denial {
        Denial::NotACredential if push => Refusal::Push,
        Denial::NotACredential | Denial::Unknown => Refusal::Unauthorised,
        Denial::NotAccepted(reason) => Refusal::NotAccepted(reason),
        Denial::NotFound => Refusal::NotFound,
        Denial::Forbidden(reason) => Refusal::Forbidden(reason),
        Denial::TooOften(reason) => Refusal::TooOften(reason),
        Denial::NotAtPresent(reason) => Refusal::NotAtPresent(reason),
        Denial::Broken(reason) => broken(reason),
    }
}

/// What is presented as `Authorization: Bearer`, without white space around it.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, shown) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| shown.trim())
}

/// User and password, as HTTP Basic has them; what is shown as a bearer is a password without a user.
fn credentials(headers: &HeaderMap) -> Option<(String, Zeroizing<String>)> {
    if let Some(shown) = bearer(headers) {
        return Some((String::new(), Zeroizing::new(shown.to_owned())));
    }
    let (scheme, credentials) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = Zeroizing::new(BASE64_STANDARD.decode(credentials.trim()).ok()?);
    let (user, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some((user.to_owned(), Zeroizing::new(password.to_owned())))
}

#[allow(clippy::needless_pass_by_value, reason = "it is used in map_err")]
fn broken(reason: String) -> Refusal {
    tracing::warn!(reason, "git does not work");
    Refusal::Broken
}

fn answer(content_type: &'static str, body: Body) -> Response {
    let headers = [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-store")];
    (headers, body).into_response()
}

/// Value for `GIT_PROTOCOL`: what the client sent, if it has the form that git writes.
fn protocol(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("git-protocol")?.to_str().ok()?;
    let harmless = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '=' | ':' | '.' | '-');
    (value.len() <= 100 && value.chars().all(harmless)).then(|| value.to_owned())
}

/// The body, once its first bytes are there.
async fn begun(body: Body) -> Result<Body, Refusal> {
    let mut stream = body.into_data_stream();
    let first = tokio::time::timeout(BODY_FIRST_MAX, stream.next()).await.map_err(|_| Refusal::Slow)?;
    Ok(Body::from_stream(futures::stream::iter(first).chain(stream)))
}

async fn feed(body: Body, mut stdin: ChildStdin) -> std::io::Result<()> {
    let stream = body.into_data_stream().map_err(std::io::Error::other);
    let mut reader = Box::pin(StreamReader::new(stream)).take(REQUEST_BYTES_MAX);
    tokio::io::copy(&mut reader, &mut stdin).await?;
    stdin.shutdown().await
}

/// A child under way: dropping it kills it and frees its place.
#[derive(Debug)]
struct Running {
    child: Child,
    deadline: Instant,
    _place: Permit,
}

impl Running {
    /// What the child writes, until its end or its deadline.
    fn output(mut self) -> impl Stream<Item = std::io::Result<Bytes>> {
        let stdout = self.child.stdout.take().expect("stdout was asked for");
        futures::stream::unfold(Some((ReaderStream::new(stdout), self)), |state| async move {
            let (mut stdout, mut running) = state?;
            match tokio::time::timeout_at(running.deadline, stdout.next()).await {
                Ok(Some(Ok(bytes))) => Some((Ok(bytes), Some((stdout, running)))),
                Ok(Some(Err(error))) => Some((Err(error), None)),
                Ok(None) => match tokio::time::timeout_at(running.deadline, running.child.wait()).await {
                    Ok(Ok(status)) if status.success() => None,
                    // An error in the body shows the client that it is not complete.
                    Ok(Ok(status)) => Some((Err(std::io::Error::other(format!("git ended with {status}"))), None)),
                    Ok(Err(error)) => Some((Err(error), None)),
                    Err(_) => Some((Err(std::io::ErrorKind::TimedOut.into()), None)),
                },
                Err(_) => Some((Err(std::io::ErrorKind::TimedOut.into()), None)),
            }
        })
    }
}

#[cfg(test)]
mod tests;
