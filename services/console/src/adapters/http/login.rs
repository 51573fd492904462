//! Signing in at an identity provider: there (`GET /api/v1/session/oidc`) and back (`.../callback`).
//!
//! What was begun is known by a cookie of its own. That one is `SameSite=Lax`, because the way back is a link of another site; it lives for minutes, and is worth nothing but together with
//! the state in the address. The session's own cookie stays `SameSite=Strict`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use access::rate::{Limiter, Rate};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use identity_provider::{Begun, Client, Limits, Login, Provider};
use service_runtime::config::ExposeSecret as _;
use service_runtime::exit;

use super::acting::{self, RequestContext};
use super::{Site, parameter};
use crate::api::{ApiOperation, ApiOutcome, SessionHash};
use crate::config::OidcConfig;
use access::claims::ClaimRules;

/// How long a user may take at the provider.
const AWAY_MAX: Duration = Duration::from_secs(600);

/// Ways in at the same time; the oldest goes first.
const BEGUN_MAX: usize = 1_000;

/// Ways in that one address may begin.
const BEGINS: Rate = Rate { per_minute: 30, burst: 30 };

/// Addresses whose rate is remembered.
const REMEMBERED_MAX: usize = 4_096;

const CALLBACK: &str = "/api/v1/session/oidc/callback";

/// See the module.
#[derive(Debug)]
pub(super) struct Logins {
    login: Login,
    rules: ClaimRules,
    started: Instant,
    pending: Mutex<Pending>,
}

#[derive(Debug)]
struct Pending {
    begun: BTreeMap<SessionHash, (Begun, Instant)>,
    begins: Limiter<String>,
}

/// How a way in ends that leads nowhere, as the page knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// It was not begun in this browser, or long ago.
    Unknown,
    /// The provider said no.
    Denied,
    /// The provider vouches for them, and they may nothing here.
    NoScope,
    /// The provider cannot be asked, or its answer is not good.
    Provider,
}

impl Failure {
    const fn code(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Denied => "denied",
            Self::NoScope => "no-scope",
            Self::Provider => "provider",
        }
    }

    /// Back to the page, which has the sentence. The code alone: a text in the address would let any site put words into the page.
    fn response(self) -> Response {
        Redirect::to(&format!("/?sign-in={}", self.code())).into_response()
    }
}

impl Logins {
    /// None: no provider is configured. Blocks.
    ///
    /// # Errors
    /// With [`exit::CONFIG`], naming the key.
    pub(super) fn new(config: &OidcConfig) -> anyhow::Result<Option<Self>> {
        let Some(issuer) = &config.issuer else { return Ok(None) };
        let fault = |key: &str, error: String| exit::with_code(exit::CONFIG, anyhow::anyhow!("{key}: {error}"));
        let provider = Provider::new(issuer, &config.client_id, config.ca_file.as_deref(), Limits::default());
        let provider = provider.map_err(|error| fault("oidc.ca_file", error.to_string()))?;
        let secret = config.client_secret.expose_secret();
        let client = Client {
            id: config.client_id.clone(),
            secret: (!secret.is_empty()).then(|| secret.to_owned()),
            scopes: config.scopes.clone(),
        };
        let rules = config.rules().map_err(|error| exit::with_code(exit::CONFIG, error))?;
        let begins = Limiter::new(BEGINS, REMEMBERED_MAX);
        let pending = Mutex::new(Pending { begun: BTreeMap::new(), begins });
        Ok(Some(Self { login: Login::new(provider, client), rules, started: Instant::now(), pending }))
    }

    /// Keeps what was begun; None: this address begins too often.
    fn keep(&self, from: String, id: SessionHash, begun: Begun) -> Option<()> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.begins.take(from, self.started.elapsed()).ok()?;
        pending.begun.retain(|_, (_, at)| at.elapsed() < AWAY_MAX);
        if pending.begun.len() >= BEGUN_MAX {
            let oldest = pending.begun.iter().min_by_key(|(_, (_, at))| *at).map(|(id, _)| *id);
            oldest.map(|id| pending.begun.remove(&id));
        }
        pending.begun.insert(id, (begun, Instant::now()));
        Some(())
    }

    /// What was begun, once.
    fn take(&self, id: SessionHash) -> Option<Begun> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.begun.remove(&id).filter(|(_, at)| at.elapsed() < AWAY_MAX).map(|(begun, _)| begun)
    }
}

const fn cookie_name(with_tls: bool) -> &'static str {
    if with_tls { "__Host-sparkfleet-login" } else { "sparkfleet-login" }
}

fn cookie(with_tls: bool, id: &str, age_s: u64) -> String {
    let secure = if with_tls { "; Secure" } else { "" };
    format!("{}={id}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age_s}{secure}", cookie_name(with_tls))
}

fn shown(headers: &HeaderMap, with_tls: bool) -> Option<SessionHash> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == cookie_name(with_tls)).map(|(_, id)| SessionHash::of(id))
}

/// `GET /api/v1/session/oidc`
pub(super) async fn begin(State(site): State<Site>, caller: RequestContext, headers: HeaderMap) -> Response {
    let Some(logins) = site.logins.as_ref().filter(|_| !caller.is_open) else {
        return Failure::Provider.response();
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let scheme = if caller.with_tls { "https" } else { "http" };
    let (Some(state), Some(nonce), Some(verifier), Some(id)) =
        (acting::random(), acting::random(), acting::random(), acting::random::<32>())
    else {
        return acting::no_randomness();
    };
    let begun = Begun::new([state, nonce, verifier], format!("{scheme}://{host}{CALLBACK}"));
    let address = match logins.login.address(&begun).await {
        Ok(address) => address,
        Err(error) => {
            tracing::warn!(error = %error, "no user can sign in at the identity provider");
            return Failure::Provider.response();
        }
    };
    let id = hex::encode(id);
    if logins.keep(caller.from, SessionHash::of(&id), begun).is_none() {
        return Failure::Denied.response();
    }
    let mut response = Redirect::to(&address).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    acting::set_cookie(&mut response, &cookie(caller.with_tls, &id, AWAY_MAX.as_secs()));
    response
}

/// `GET /api/v1/session/oidc/callback`
pub(super) async fn end(
    State(site): State<Site>,
    caller: RequestContext,
    query: RawQuery,
    headers: HeaderMap,
) -> Response {
    let mut response = match came_back(&site, &caller, &query, &headers).await {
        Ok(id) => {
            let mut response = Redirect::to("/").into_response();
            acting::give_session(&mut response, caller.with_tls, &id);
            response
        }
        Err(failure) => failure.response(),
    };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Added, not replaced: the session has a cookie, too.
    if let Ok(over) = HeaderValue::from_str(&cookie(caller.with_tls, "", 0)) {
        response.headers_mut().append(header::SET_COOKIE, over);
    }
    response
}

/// The id of the session that has begun.
async fn came_back(
    site: &Site,
    caller: &RequestContext,
    query: &RawQuery,
    headers: &HeaderMap,
) -> Result<String, Failure> {
    let logins = site.logins.as_ref().filter(|_| !caller.is_open).ok_or(Failure::Provider)?;
    let begun = shown(headers, caller.with_tls).and_then(|id| logins.take(id)).ok_or(Failure::Unknown)?;
    let state = parameter(query, "state").unwrap_or_default();
    if !begun.is_state(&state) {
        return Err(Failure::Unknown);
    }
    let code = parameter(query, "code").ok_or(Failure::Denied)?;
    let claims = logins.login.claims(&begun, &code).await.map_err(|error| {
        tracing::warn!(error = %error, "a sign-in at the identity provider was not accepted");
        Failure::Provider
    })?;
    let principal = logins.rules.principal(&claims).map_err(|_| Failure::NoScope)?;
    let id = hex::encode(acting::random::<32>().ok_or(Failure::Provider)?);
    match acting::ask(site, caller, ApiOperation::SignInAs(SessionHash::of(&id), principal)).await {
        Ok(ApiOutcome::SignedIn(_)) => Ok(id),
        _ => Err(Failure::Provider),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logins() -> Logins {
        let config = OidcConfig { issuer: Some("https://login.example".to_owned()), ..OidcConfig::default() };
        Logins::new(&config).unwrap().unwrap()
    }

    fn begun() -> Begun {
        Begun::new([[1; 32], [2; 32], [3; 32]], "https://console.example/back".to_owned())
    }

    #[test]
    fn what_was_begun_is_taken_once_and_is_bounded() {
        let logins = logins();
        let id = |n: usize| SessionHash::of(&n.to_string());
        for n in 0..BEGUN_MAX + 10 {
            logins.keep(n.to_string(), id(n), begun()).unwrap();
        }
        assert!(logins.take(id(0)).is_none(), "the oldest has gone");
        assert!(logins.take(id(500)).is_some() && logins.take(id(500)).is_none());
        let many = (0..100).filter(|_| logins.keep("a".to_owned(), id(1), begun()).is_some()).count();
        assert_eq!(many, 30);
    }

    #[test]
    fn the_cookie_of_a_way_in_is_not_that_of_a_session() {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_static("__Host-sparkfleet=x; __Host-sparkfleet-login=y"));
        assert_eq!(shown(&headers, true), Some(SessionHash::of("y")));
        assert_eq!(shown(&headers, false), None);
        assert!(cookie(true, "y", 5).contains("SameSite=Lax") && cookie(true, "y", 5).ends_with("; Secure"));
        assert_eq!(Failure::NoScope.response().headers()[header::LOCATION], "/?sign-in=no-scope");
    }
}
