//! A request of the API: who asks, and why it is not carried out.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use access::rate::{self, Limiter};
use axum::Json;
use axum::extract::rejection::ExtensionRejection;
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use git_hosting::http::bearer;
use identity_provider::{Identities, IdentityFault};
use sparkplug_mqtt::Clock;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::identities;
use super::shapes;
use super::state_client::StateClient;
use crate::api::{Credential, Question, Refusal, Reply};
use crate::secrets::SecretFault;

/// After what a client may try again, when nothing says how long it takes.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// What the routes share.
#[derive(Debug, Clone)]
pub(super) struct Server {
    pub(super) desk: StateClient,
    pub(super) peers: Arc<Mutex<Limiter<IpAddr>>>,
    pub(super) clock: Clock,
    pub(super) with_tls: bool,
    pub(super) identities: Option<Identities>,
    /// The record of writes.
    pub(super) audit: Arc<Path>,
}

/// Why a request is not carried out.
#[derive(Debug)]
pub(super) enum Fault {
    Refused(Refusal),
    /// The request itself is at fault.
    Request(StatusCode, String),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let (status, error) = match &self {
            Self::Request(status, reason) => (*status, reason.clone()),
            Self::Refused(Refusal::Secret(SecretFault::Repository(reason))) => {
                tracing::warn!(error = reason, "work on the secrets of a repository failed");
                let error = "the repository cannot be used; see the log of the cluster manager";
                (StatusCode::INTERNAL_SERVER_ERROR, error.to_owned())
            }
            Self::Refused(refusal) => (status_of(refusal), refusal.to_string()),
        };
        let mut response = (status, Json(shapes::Problem { error })).into_response();
        let wait = match &self {
            Self::Refused(Refusal::TooOften(too_often)) => Some(rate::seconds(too_often.wait)),
            Self::Refused(Refusal::NotAtPresent(_)) => Some(TRY_AGAIN.as_secs()),
            _ => None,
        };
        if let Some(wait) = wait {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait));
        }
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"Sparkfleet\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

const fn status_of(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
        Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
        Refusal::TooOften(_) => StatusCode::TOO_MANY_REQUESTS,
        Refusal::Invalid(_) => StatusCode::BAD_REQUEST,
        Refusal::NameTaken => StatusCode::CONFLICT,
        Refusal::NoCluster | Refusal::NoToken | Refusal::Secret(SecretFault::Missing(_)) => StatusCode::NOT_FOUND,
        Refusal::NotAtPresent(_) => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::Secret(SecretFault::Differs { .. } | SecretFault::Foreign { .. }) => StatusCode::CONFLICT,
        Refusal::Secret(SecretFault::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
        Refusal::Secret(SecretFault::Repository(_)) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A request, as far as it says who asks.
pub(super) struct RequestContext {
    server: Server,
    from: IpAddr,
    headers: HeaderMap,
}

impl FromRequestParts<Server> for RequestContext {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, ExtensionRejection> {
        let ConnectInfo(peer) = ConnectInfo::<SocketAddr>::from_request_parts(parts, server).await?;
        Ok(Self { server: server.clone(), from: peer.ip().to_canonical(), headers: parts.headers.clone() })
    }
}

impl RequestContext {
    /// Who asks.
    pub(super) async fn caller(self) -> Result<AuthenticatedCaller, Fault> {
        let credential = self.credential().await?;
        Ok(AuthenticatedCaller { server: self.server, from: self.from, credential })
    }

    async fn credential(&self) -> Result<Credential, Fault> {
        let Some(shown) = bearer(&self.headers) else { return Ok(Credential::None) };
        identities::credential(self.server.identities.as_ref(), shown).await.map_err(|fault| match fault {
            IdentityFault::Away(reason) => Refusal::NotAtPresent(reason).into(),
            IdentityFault::NotAccepted(reason) => Refusal::Unauthenticated(reason).into(),
            IdentityFault::NoScope(reason) => Fault::Request(StatusCode::FORBIDDEN, reason),
        })
    }

    /// Asks the state as who this is.
    pub(super) async fn ask(self, question: Question) -> Result<Reply, Fault> {
        self.caller().await?.ask(question).await
    }
}

/// Who asks, and from where.
pub(super) struct AuthenticatedCaller {
    pub(super) server: Server,
    from: IpAddr,
    credential: Credential,
}

impl AuthenticatedCaller {
    /// Asks the state as who this is.
    pub(super) async fn ask(&self, question: Question) -> Result<Reply, Fault> {
        Ok(self.server.desk.ask(self.from, self.credential.clone(), question).await?)
    }
}

/// The state answered something that was not asked; the client learns no more than that.
pub(super) fn unexpected() -> Fault {
    Fault::Request(StatusCode::INTERNAL_SERVER_ERROR, "the answer is not to the question".to_owned())
}

/// Bytes that cannot be guessed.
pub(super) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, Fault> {
    let mut random = Zeroizing::new([0; N]);
    let no_random = |_| Fault::from(Refusal::NotAtPresent("the system yields no random numbers".to_owned()));
    aws_lc_rs::rand::fill(&mut random[..]).map_err(no_random)?;
    Ok(random)
}

/// The cluster that a path names.
pub(super) fn uuid(text: &str) -> Result<Uuid, Fault> {
    Uuid::try_parse(text).map_err(|_| Fault::Request(StatusCode::BAD_REQUEST, "the cluster is not a UUID".to_owned()))
}
