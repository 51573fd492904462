//! Git over smart HTTP: what Flux on the clusters clones and fetches, and where people push.
//!
//! `/git/<group>/<name>`, the same with `.git`, and `/uuid/<uuid>`, each followed by `/info/refs?service=git-upload-pack` or `/git-upload-pack`, and the same with
//! `git-receive-pack` for pushes ([`super::git_push`]). Reading is done by `git upload-pack --stateless-rpc`, one child a request, with an empty environment, killed when the client goes away or takes too long.
//!
//! Who may read: HTTP Basic with a cluster's UUID or name as the user and its password; a cluster reads its own repository and the shared ones. A person shows a token of ours or of the
//! identity provider as the password, or as `Authorization: Bearer`, and the state says whether they may read, or push. With `anonymous = "loopback"` a client on this machine reads without. This module must not know what is in a repository.

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
use serde::Deserialize;
use service_runtime::config::ExposeSecret;
use subtle::ConstantTimeEq;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc::Sender;

use tokio::time::Instant;
use tokio_util::io::{ReaderStream, StreamReader};
use tower_http::decompression::RequestDecompressionLayer;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::git_client;
use super::git_places::{Place, Places};
use super::git_push::{Allowed, Hooks, Receiver};
use super::http::bearer;
use super::http::identities::{self, Identities, IdentityFault};
use super::http::state_client::StateClient;
use super::pulls::HIDDEN_REFS;
use super::repositories::{Kind, Open, Repositories};
use crate::api::{self, Credential, Question, Reply};
use crate::cluster_repo;
use crate::config::{Anonymous, GitConfig};
use crate::shared_repository::HELM_PATH;
use access::Denied;

/// Most bytes of a request after decompression. A fetch names the commits that it has; these are some 50 bytes each.
const REQUEST_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What a request waits for a free child before it is told to come back.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// What the first bytes of a request's body may take. Until then there is no child for it.
const BODY_FIRST_MAX: Duration = Duration::from_secs(10);

/// What the whole body of a clone or fetch may take: it is small.
const BODY_MAX: Duration = Duration::from_secs(60);

/// Who somebody is that reads without logging in.
const ANONYMOUS: &str = "anonymous";

const NO_PUSH: &str = "To push, log in with a token of the HTTP API, or of the identity provider, as the password: below edo/ the cluster manager writes, below by-hand/ and in shared repositories people do.\n";

#[derive(Debug, Clone)]
struct Server {
    repositories: Repositories,
    desk: StateClient,
    identities: Option<Identities>,
    receiver: Receiver,
    anonymous: Anonymous,
    /// Clusters follow their repositories elsewhere.
    has_external: bool,
    /// Told which clusters ask.
    polls: Sender<Uuid>,
    /// Bounds the children: each takes memory and a core while it packs.
    children: Places,
    request_timeout: Duration,
}

/// Whom the git server asks and tells.
#[derive(Debug)]
pub struct Links {
    /// Where people are known.
    pub desk: StateClient,
    /// Who vouches for people, if somebody does.
    pub identities: Option<Identities>,
    /// Where pushes are judged.
    pub hooks: Hooks,
    /// Told which clusters ask; while it is full it is not.
    pub polls: Sender<Uuid>,
    /// Told which repositories were pushed to; while it is full it is not.
    pub pushed: Sender<Uuid>,
}

/// The routes below `/git` and `/uuid`.
pub fn router(repositories: Repositories, links: Links, config: &GitConfig) -> Router {
    let Links { desk, identities, hooks, polls, pushed } = links;
    let request_timeout = Duration::from_secs(config.request_timeout_s);
    let (asked, all) = (desk.clone(), repositories.clone());
    let receiver = Receiver { hooks, desk: asked, repositories: all, limit: request_timeout, pushed };
    let server = Server {
        repositories,
        desk,
        identities,
        receiver,
        anonymous: config.anonymous,
        has_external: config.external.url.is_some(),
        polls,
        children: Places::new(config.children_max),
        request_timeout,
    };
    Router::new()
        .route("/git/{group}/{name}/info/refs", get(refs))
        .route("/git/{group}/{name}/git-upload-pack", post(pack))
        .route("/git/{group}/{name}/git-receive-pack", post(push))
        .route("/uuid/{uuid}/info/refs", get(refs))
        .route("/uuid/{uuid}/git-upload-pack", post(pack))
        .route("/uuid/{uuid}/git-receive-pack", post(push))
        .layer(RequestDecompressionLayer::new())
        .with_state(server)
}

/// Why a request is not served.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(
        "Log in with the cluster's UUID or name as user and its git password, or with a token of the HTTP API as the password.\n"
    )]
    Unauthorised,
    #[error("{0}.\n")]
    NotAccepted(String),
    #[error("{0}.\n")]
    NoScope(String),
    #[error("There is no such repository, or it is not for this user.\n")]
    NotFound,
    #[error("{NO_PUSH}")]
    Push,
    #[error("Clusters follow this repository on the site's own git server (git.external): push there.\n")]
    Elsewhere,
    #[error("{0}.\n")]
    Published(api::Refusal),
    #[error("Only git's smart HTTP protocol is served here; use a git client.\n")]
    NotSmart,
    #[error("Too many clones at a time; try again.\n")]
    Busy,
    #[error("The body of the request did not come in time.\n")]
    Slow,
    #[error("The repository cannot be read; see the log of the cluster manager.\n")]
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
            Self::Published(api::Refusal::TooOften(_)) => (StatusCode::TOO_MANY_REQUESTS, text).into_response(),
            Self::Published(api::Refusal::NotAtPresent(_)) => {
                (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")], text).into_response()
            }
            Self::Published(_) => (StatusCode::FORBIDDEN, text).into_response(),
            Self::NoScope(_) | Self::Push | Self::Elsewhere | Self::NotSmart => {
                (StatusCode::FORBIDDEN, text).into_response()
            }
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")], text).into_response(),
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

impl FromRequestParts<Server> for Named {
    type Rejection = PathRejection;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, PathRejection> {
        let Path(parameters) = Path::<BTreeMap<String, String>>::from_request_parts(parts, server).await?;
        let of = |name| parameters.get(name).map(|value: &String| value.strip_suffix(".git").unwrap_or(value));
        Ok(Self(match (of("uuid"), parameters.get("group"), of("name")) {
            (Some(uuid), ..) => Uuid::parse_str(uuid).ok().and_then(|uuid| server.repositories.by_uuid(uuid)),
            (None, Some(group), Some(name)) => server.repositories.by_path(&format!("{group}/{name}")),
            _ => None,
        }))
    }
}

async fn refs(
    State(server): State<Server>,
    Named(repository): Named,
    Query(query): Query<RefsQuery>,
    ConnectInfo(peer): Peer,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    server.refs(repository, query, peer, &headers).await
}

async fn pack(
    State(server): State<Server>,
    Named(repository): Named,
    ConnectInfo(peer): Peer,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    server.pack(repository, peer, &headers, body).await
}

async fn push(
    State(server): State<Server>,
    Named(repository): Named,
    ConnectInfo(peer): Peer,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    server.push(repository, peer, &headers, body).await
}

impl Server {
    /// The repository, and who reads it. Whoever is not logged in learns nothing about which repositories there are.
    async fn authorise(
        &self,
        repository: Option<Open>,
        peer: SocketAddr,
        headers: &HeaderMap,
    ) -> Result<(Open, String), Refusal> {
        let shown = credentials(headers);
        let cluster = shown.as_ref().and_then(|(user, password)| self.log_in(user, password));
        // A poll that is not told is followed by another.
        let _ = cluster.map(|cluster| self.polls.try_send(cluster));
        if self.anonymous == Anonymous::Loopback && peer.ip().to_canonical().is_loopback() {
            let who = cluster.map_or_else(|| ANONYMOUS.to_owned(), |cluster| cluster.to_string());
            return repository.map(|open| (open, who)).ok_or(Refusal::NotFound);
        }
        let (_, password) = shown.ok_or(Refusal::Unauthorised)?;
        let Some(user) = cluster else {
            let person = self.person(&password).await?.ok_or(Refusal::Unauthorised)?;
            let allowed = self.ask(repository, person, peer, false).await?;
            return Ok((allowed.repository, allowed.who.name));
        };
        let may_read = |open: &Open| open.kind == Kind::Shared || open.uuid == user;
        repository.filter(may_read).map(|open| (open, user.to_string())).ok_or(Refusal::NotFound)
    }

    /// Who shows that as a password. None: it has the form of no credential of a person.
    async fn person(&self, password: &str) -> Result<Option<Credential>, Refusal> {
        // A password of a cluster that is wrong is no matter of the provider's.
        let is_signed = password.bytes().filter(|byte| *byte == b'.').count() == 2;
        let identities = self.identities.as_ref().filter(|_| is_signed);
        match identities::credential(identities, password).await {
            Ok(Credential::None) => Ok(None),
            Ok(credential) => Ok(Some(credential)),
            Err(IdentityFault::Refused(api::Refusal::Unauthenticated(reason))) => Err(Refusal::NotAccepted(reason)),
            Err(IdentityFault::Refused(refusal)) => Err(Refusal::Published(refusal)),
            Err(IdentityFault::NoScope(reason)) => Err(Refusal::NoScope(reason)),
        }
    }

    /// Whether a person may. Of a repository that there is not, no more is said than of one that is not for them.
    async fn ask(
        &self,
        repository: Option<Open>,
        person: Credential,
        peer: SocketAddr,
        push: bool,
    ) -> Result<Allowed, Refusal> {
        let nowhere = (Uuid::nil(), false);
        let (uuid, shared) = repository.as_ref().map_or(nowhere, |open| (open.uuid, open.kind == Kind::Shared));
        let question = Question::Repository { repository: uuid, shared, push };
        let from = peer.ip().to_canonical();
        match self.desk.ask(from, person, question).await {
            Ok(Reply::Repository { who, pulled }) => {
                let repository = repository.ok_or(Refusal::NotFound)?;
                Ok(Allowed { repository, who, from, pulled })
            }
            Ok(_) => Err(Refusal::Broken),
            Err(api::Refusal::Unauthenticated(_)) => Err(Refusal::Unauthorised),
            Err(api::Refusal::Forbidden(Denied::Cluster)) if !shared => Err(Refusal::NotFound),
            Err(refusal) => Err(Refusal::Published(refusal)),
        }
    }

    /// Whether somebody may push. A cluster's password, and being on this machine, are for reading.
    async fn may_push(
        &self,
        repository: Option<Open>,
        peer: SocketAddr,
        headers: &HeaderMap,
    ) -> Result<Allowed, Refusal> {
        let (_, password) = credentials(headers).ok_or(Refusal::Unauthorised)?;
        let person = self.person(&password).await?.ok_or(Refusal::Push)?;
        let allowed = self.ask(repository, person, peer, true).await?;
        // What is pushed to ours would be lost when it is brought to where the site's server is.
        let is_elsewhere = allowed.repository.kind == Kind::Cluster || allowed.repository.path == HELM_PATH;
        if self.has_external && is_elsewhere { Err(Refusal::Elsewhere) } else { Ok(allowed) }
    }

    async fn push(
        &self,
        repository: Option<Open>,
        peer: SocketAddr,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response, Refusal> {
        let allowed = self.may_push(repository, peer, headers).await?;
        let body = begun(body).await?;
        let place = self.place(&allowed.who.name).await?;
        // A task of its own: a push that has begun is told and recorded, also when its sender goes away.
        let received = tokio::spawn(self.receiver.clone().receive(allowed, body, place)).await;
        let answered = received.unwrap_or_else(|error| Err(error.to_string())).map_err(broken)?;
        Ok(answer("application/x-git-receive-pack-result", Body::from(answered)))
    }

    /// A place for a child of somebody.
    async fn place(&self, who: &str) -> Result<Place, Refusal> {
        self.children.take(who, WAIT_MAX).await.ok_or(Refusal::Busy)
    }

    fn log_in(&self, user: &str, password: &str) -> Option<Uuid> {
        let cluster = match Uuid::parse_str(user) {
            Ok(cluster) => cluster,
            Err(_) => self.repositories.by_path(&cluster_repo::path(user))?.uuid,
        };
        let expected = self.repositories.password(cluster)?;
        let equal = expected.expose_secret().as_bytes().ct_eq(password.as_bytes());
        bool::from(equal).then_some(cluster)
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
                let allowed = self.may_push(repository, peer, headers).await?;
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
        let mut command = git_client::program();
        command
            // On some volumes the files belong to somebody else than the user of this process.
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

#[allow(clippy::needless_pass_by_value, reason = "it stands in map_err")]
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
    _place: Place,
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
                    // An error in the body tells the client that it is not complete.
                    Ok(Ok(status)) => Some((Err(std::io::Error::other(format!("git ended with {status}"))), None)),
                    Ok(Err(error)) => Some((Err(error), None)),
                    Err(_) => Some((Err(std::io::ErrorKind::TimedOut.into()), None)),
                },
                Err(_) => Some((Err(std::io::ErrorKind::TimedOut.into()), None)),
            }
        })
    }
}
