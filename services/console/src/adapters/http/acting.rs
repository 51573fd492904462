//! Signing in and acting: the routes that change something. Each of them needs the field `X-Sparkfleet: 1`, which no other site's page can send, and comes from this site's own page or no page.
//!
//! A session's id is in a cookie that scripts cannot read, and the state knows its hash alone. Where TLS is, the cookie is `__Host-`, Secure; on loopback without TLS it cannot be.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use access::Principal;
use access::rate;
use aws_lc_rs::rand;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use cluster_manager_contract::api_token::{self, TokenHash};
use enrolment_protocol::bootstrap;
use enrolment_protocol::token::Token;
use fleet_view::requests::RequestError;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::{Value, json};
use service_runtime::http::server;

use super::{Site, host_names, refused};
use crate::action::{self, Action, ActionError};
use crate::api::{ApiError, ApiOperation, ApiOutcome, Credential, SessionHash};
use crate::config::Role;

/// Longest body: an entry of ConfigDB, and some more.
pub(super) const BODY_BYTES_MAX: usize = 512 * 1024;

/// Longest `Idempotency-Key`.
const KEY_BYTES_MAX: usize = 128;

/// How long a client should wait that came while the console does not know everything.
const TRY_AGAIN: &str = "5";

const SECURE_COOKIE: &str = "__Host-sparkfleet";
const LOOPBACK_COOKIE: &str = "sparkfleet-session";

/// Who asks: what they show, and how.
#[derive(Debug, Clone)]
pub(super) struct RequestContext {
    pub(super) from: String,
    credential: Credential,
    /// Not encrypted, and not from this machine: no secret is accepted.
    pub(super) is_open: bool,
    /// The cookie is one for TLS.
    pub(super) with_tls: bool,
}

impl FromRequestParts<Site> for RequestContext {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Self, Response> {
        let peer: Option<&ConnectInfo<SocketAddr>> = parts.extensions.get();
        let address = peer.map_or(IpAddr::from([0, 0, 0, 0]), |ConnectInfo(peer)| server::peer(peer.ip()));
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let is_local = host_names::is_loopback(host);
        let with_tls = site.with_tls || (site.behind_tls && !is_local);
        let is_open = !with_tls && !is_local;
        let credential = if is_open { Credential::None } else { credential(&parts.headers, with_tls) };
        Ok(Self { from: address.to_string(), credential, is_open, with_tls })
    }
}

impl RequestContext {
    /// They show a token, be it a good one or not.
    pub(super) const fn shows_token(&self) -> bool {
        matches!(self.credential, Credential::Token(_))
    }

    /// They show a token or a session, be it a good one or not.
    pub(super) fn shows_something(&self) -> bool {
        self.credential != Credential::None
    }
}

fn credential(headers: &HeaderMap, with_tls: bool) -> Credential {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    if let Some(shown) = bearer {
        return TokenHash::of(shown.trim()).map_or(Credential::None, Credential::Token);
    }
    let name = cookie_name(with_tls);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let session = pairs.find(|(key, _)| *key == name);
    session.map_or(Credential::None, |(_, id)| Credential::Session(SessionHash::of(id)))
}

const fn cookie_name(with_tls: bool) -> &'static str {
    if with_tls { SECURE_COOKIE } else { LOOPBACK_COOKIE }
}

fn cookie(with_tls: bool, id: &str, age_s: u64) -> String {
    let secure = if with_tls { "; Secure" } else { "" };
    format!("{}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age_s}{secure}", cookie_name(with_tls))
}

/// Whether a request that changes something comes from this site's own page, or from no page at all.
///
/// # Errors
/// The answer.
pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), Box<Response>> {
    let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let refuse = |field: &str, rule: &str| Err(Box::new(refused(StatusCode::FORBIDDEN, field, rule)));
    if field("x-sparkfleet") != Some("1") {
        return refuse("X-Sparkfleet", "must be 1 in every request that changes something");
    }
    if field("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return refuse("Sec-Fetch-Site", "must be same-origin: another site's page has sent this");
    }
    let host = field("host");
    let authority =
        |origin: &str| origin.parse::<Uri>().ok().and_then(|uri| Some(uri.authority()?.as_str().to_owned()));
    if headers.get(header::ORIGIN).is_some() && field("origin").and_then(authority).as_deref() != host {
        return refuse("Origin", "must be this console: another site's page has sent this");
    }
    Ok(())
}

/// Whether a caller may read here.
pub(super) async fn may_read(site: &Site, caller: RequestContext) -> Result<(), Response> {
    if !site.private {
        return Ok(());
    }
    match ask(site, &caller, ApiOperation::Who).await {
        Ok(ApiOutcome::Who(Some(_))) => Ok(()),
        Ok(_) => Err(answer_refusal(&not_known(&caller))),
        Err(refusal) => Err(answer_refusal(&refusal)),
    }
}

/// What is answered to a caller who is not a user: their token does not count, or they have shown nothing to a console that shows nothing to others.
pub(super) fn not_known(caller: &RequestContext) -> ApiError {
    let reason = if caller.shows_token() {
        "the token is unknown or revoked, or has expired"
    } else {
        "sign in; this console shows nothing to others"
    };
    ApiError::Unauthenticated(reason.to_owned())
}

/// The answer of the state to a question of this caller.
pub(super) async fn ask(site: &Site, caller: &RequestContext, question: ApiOperation) -> Result<ApiOutcome, ApiError> {
    site.hub.ask(caller.from.clone(), caller.credential, question).await
}

/// `GET /api/v1/session`
pub(super) async fn session(State(site): State<Site>, caller: RequestContext) -> Response {
    let known = match ask(&site, &caller, ApiOperation::Who).await {
        Ok(ApiOutcome::Who(known)) => known,
        // A program that shows a token learns why it is not judged; the page begins without a user.
        Err(refusal @ (ApiError::NotNow(_) | ApiError::TooOften(_))) if caller.shows_token() => {
            return answer_refusal(&refusal);
        }
        _ => None,
    };
    super::answer(&described(&site, known.as_ref(), &caller), None)
}

fn described(site: &Site, known: Option<&Principal>, caller: &RequestContext) -> Value {
    let actions = known.filter(|_| site.read_only.is_none()).map(action::allowed).unwrap_or_default();
    let scope = known.and_then(|known| known.grants.iter().map(|grant| grant.scope).max());
    json!({
        "organisation": site.organisation, "user": known.map(|known| &known.name),
        "role": scope.map_or("viewer", |scope| scope.as_str()), "version": site.version, "actions": actions,
        "read_only": site.read_only, "private": site.private,
        "single_sign_on": site.logins.is_some(), "can_sign_in": site.role == Role::Console && !caller.is_open, "now": site.clock.now().wall,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    token: String,
}

/// `POST /api/v1/session`
pub(super) async fn sign_in(
    State(site): State<Site>,
    caller: RequestContext,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(response) = check_write(&site, &caller, &headers) {
        return *response;
    }
    let Ok(SignIn { token }) = serde_json::from_slice(&body) else {
        return refused(StatusCode::BAD_REQUEST, "token", "must be a text in a JSON object");
    };
    let Some(hash) = TokenHash::of(token.trim()) else {
        return refused(StatusCode::UNAUTHORIZED, "token", "is not a token; `sparkfleet token create` makes one");
    };
    let Some(random) = random::<32>() else { return no_randomness() };
    let id = hex::encode(random);
    let caller = RequestContext { credential: Credential::Token(hash), ..caller };
    match ask(&site, &caller, ApiOperation::SignIn(SessionHash::of(&id))).await {
        Ok(ApiOutcome::SignedIn(principal)) => {
            let mut response = super::answer(&described(&site, Some(&principal), &caller), None);
            give_session(&mut response, caller.with_tls, &id);
            response
        }
        Ok(_) => unexpected(),
        Err(refusal) => answer_refusal(&refusal),
    }
}

/// `DELETE /api/v1/session`
pub(super) async fn sign_out(State(site): State<Site>, caller: RequestContext, headers: HeaderMap) -> Response {
    if let Err(response) = check_origin(&headers) {
        return *response;
    }
    let _ = ask(&site, &caller, ApiOperation::SignOut).await;
    let mut response = StatusCode::NO_CONTENT.into_response();
    set_cookie(&mut response, &cookie(caller.with_tls, "", 0));
    response
}

/// `POST /api/v1/actions/{name}`
pub(super) async fn act(
    State(site): State<Site>,
    Path(name): Path<String>,
    caller: RequestContext,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(response) = check_write(&site, &caller, &headers) {
        return *response;
    }
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let is_key = |key: &&str| !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    let Some(key) = key.filter(is_key) else {
        let rule = format!("must be 1 to {KEY_BYTES_MAX} bytes, and new for each action");
        return refused(StatusCode::BAD_REQUEST, "Idempotency-Key", rule);
    };
    let action = match Action::parse(&name, &body) {
        Ok(action) => action,
        Err(error @ ActionError::Unknown) => return refused(StatusCode::NOT_FOUND, "action", error),
        Err(error) => return refused(StatusCode::BAD_REQUEST, "body", error),
    };
    if let Action::Bootstrap(wanted) = action {
        let lifetime = wanted.expires_s.map_or(bootstrap::LIFETIME, Duration::from_secs);
        return make_command(&site, &caller, key.to_owned(), wanted.cluster, lifetime).await;
    }
    // The text of a token is made here: the state, ConfigDB and the record know its hash alone, and who asked has it alone.
    let (action, token) = match action {
        Action::CreateToken(mut wanted) => {
            let Some(text) = random().map(|random| api_token::text(&random)) else { return no_randomness() };
            wanted.hash = TokenHash::of(text.expose_secret()).map(|hash| hash.to_hex()).unwrap_or_default();
            (Action::CreateToken(wanted), Some(text))
        }
        action => (action, None),
    };
    match ask(&site, &caller, ApiOperation::Act { key: key.to_owned(), action }).await {
        Ok(ApiOutcome::Accepted { id }) => match token {
            Some(token) => {
                let body = json!({ "id": id, "token": token.expose_secret() });
                (StatusCode::ACCEPTED, [(header::CACHE_CONTROL, "no-store")], axum::Json(body)).into_response()
            }
            None => accepted(&id),
        },
        // The text that was made for this request is of no token.
        Ok(ApiOutcome::Repeated { id }) => accepted(&id),
        Ok(_) => unexpected(),
        Err(refusal) => answer_refusal(&refusal),
    }
}

/// `POST /api/v1/actions/{name}/plan`
pub(super) async fn plan(
    State(site): State<Site>,
    Path(name): Path<String>,
    caller: RequestContext,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(response) = check_write(&site, &caller, &headers) {
        return *response;
    }
    let action = match Action::parse(&name, &body) {
        Ok(action) => action,
        Err(error @ ActionError::Unknown) => return refused(StatusCode::NOT_FOUND, "action", error),
        Err(error) => return refused(StatusCode::BAD_REQUEST, "body", error),
    };
    match ask(&site, &caller, ApiOperation::Plan(action)).await {
        Ok(ApiOutcome::Planned(steps)) => super::answer(&json!({ "steps": steps }), None),
        Ok(_) => unexpected(),
        Err(refusal) => answer_refusal(&refusal),
    }
}

fn accepted(id: &str) -> Response {
    (StatusCode::ACCEPTED, axum::Json(json!({ "id": id }))).into_response()
}

/// The token is made here: the state, ConfigDB and the record know its hash alone, and who asked has it alone.
async fn make_command(
    site: &Site,
    caller: &RequestContext,
    key: String,
    cluster: uuid::Uuid,
    lifetime: Duration,
) -> Response {
    if !(bootstrap::LIFETIME_MIN..=bootstrap::LIFETIME_MAX).contains(&lifetime) {
        let (min, max) = (bootstrap::LIFETIME_MIN.as_secs(), bootstrap::LIFETIME_MAX.as_secs());
        return refused(StatusCode::BAD_REQUEST, "expires_s", format!("must be from {min} to {max}"));
    }
    let Some(random) = random() else { return no_randomness() };
    let token = Token::new(random);
    let question = ApiOperation::Bootstrap { key, cluster, hash: token.hash().as_str().to_owned(), lifetime };
    match ask(site, caller, question).await {
        Ok(ApiOutcome::Offered { id, url, expires }) => {
            let body = json!({ "id": id, "command": bootstrap::command_for(&url, &token), "expires": expires });
            ([(header::CACHE_CONTROL, "no-store")], axum::Json(body)).into_response()
        }
        Ok(ApiOutcome::Repeated { id }) => accepted(&id),
        Ok(_) => unexpected(),
        Err(refusal) => answer_refusal(&refusal),
    }
}

fn check_write(site: &Site, caller: &RequestContext, headers: &HeaderMap) -> Result<(), Box<Response>> {
    check_origin(headers)?;
    if site.role != Role::Console {
        return Err(Box::new(refused(StatusCode::FORBIDDEN, "path", site.read_only.unwrap_or("it only looks"))));
    }
    if caller.is_open {
        let rule = "signing in and acting need TLS, but on this machine: set web.cert_file, or web.behind_tls behind a proxy that ends TLS";
        return Err(Box::new(refused(StatusCode::FORBIDDEN, "Host", rule)));
    }
    let content = headers.get(header::CONTENT_TYPE).and_then(|content| content.to_str().ok()).unwrap_or_default();
    if !content.starts_with("application/json") {
        let rule = "must be application/json";
        return Err(Box::new(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type", rule)));
    }
    Ok(())
}

/// Lets the browser keep a session that has begun.
pub(super) fn give_session(response: &mut Response, with_tls: bool, id: &str) {
    set_cookie(response, &cookie(with_tls, id, crate::state::SESSION_AGE_MAX.as_secs()));
}

pub(super) fn set_cookie(response: &mut Response, cookie: &str) {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
}

pub(super) fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).ok().map(|()| bytes)
}

pub(super) fn no_randomness() -> Response {
    refused(StatusCode::INTERNAL_SERVER_ERROR, "console", "the system yields no random numbers")
}

/// The state answered something that was not asked; the caller gets no more than that.
pub(super) fn unexpected() -> Response {
    refused(StatusCode::INTERNAL_SERVER_ERROR, "console", "the answer is not to the question")
}

/// A refusal as it is answered.
pub(super) fn answer_refusal(refusal: &ApiError) -> Response {
    let (status, field) = match refusal {
        ApiError::Unauthenticated(_) => (StatusCode::UNAUTHORIZED, "Authorization"),
        ApiError::Forbidden(_) | ApiError::ReadOnly(_) => (StatusCode::FORBIDDEN, "action"),
        ApiError::TooOften(_) => (StatusCode::TOO_MANY_REQUESTS, "action"),
        ApiError::Request(RequestError::Invalid { field, .. }) => (StatusCode::BAD_REQUEST, *field),
        ApiError::Request(RequestError::Missing { field, .. }) => (StatusCode::NOT_FOUND, *field),
        ApiError::Request(RequestError::NotNow(_)) => (StatusCode::CONFLICT, "action"),
        ApiError::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "Idempotency-Key"),
        ApiError::NotNow(_) => (StatusCode::SERVICE_UNAVAILABLE, "console"),
    };
    let mut response = refused(status, field, refusal);
    let retry_after = match refusal {
        ApiError::TooOften(too_often) => Some(HeaderValue::from(rate::seconds(too_often.wait))),
        ApiError::NotNow(_) => Some(HeaderValue::from_static(TRY_AGAIN)),
        _ => None,
    };
    if let Some(wait) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, wait);
    }
    if status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer realm=\"Sparkfleet\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair =
            |(name, value): &(&'static str, &str)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap());
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn another_sites_page_changes_nothing() {
        let own = [("x-sparkfleet", "1"), ("host", "127.0.0.1:8482")];
        assert!(check_origin(&headers(&own)).is_ok(), "curl");
        let with = |name, value| check_origin(&headers(&[own[0], own[1], (name, value)])).is_ok();
        assert!(with("origin", "http://127.0.0.1:8482"));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:9999", "http://127.0.0.1:8482.evil.example", ""]
        {
            assert!(!with("origin", origin), "{origin}");
        }
        assert!(with("sec-fetch-site", "same-origin") && !with("sec-fetch-site", "cross-site"));
        assert!(!with("sec-fetch-site", "same-site"), "another port of this machine is another site's page");
        assert!(check_origin(&headers(&own[1..])).is_err(), "a form of another page cannot send the field");
    }

    #[test]
    fn the_cookie_of_one_kind_is_not_taken_for_the_other() {
        let session = |with_tls, cookies| credential(&headers(&[("cookie", cookies)]), with_tls);
        assert_eq!(session(true, "a=b; __Host-sparkfleet=x"), Credential::Session(SessionHash::of("x")));
        assert_eq!(session(true, "sparkfleet-session=x"), Credential::None);
        assert_eq!(session(false, "__Host-sparkfleet=x"), Credential::None);
        assert_eq!(credential(&headers(&[("authorization", "Bearer short")]), true), Credential::None);
        let cookie = cookie(true, "x", 5);
        assert_eq!(cookie, "__Host-sparkfleet=x; Path=/; HttpOnly; SameSite=Strict; Max-Age=5; Secure");
    }
}
