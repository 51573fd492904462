//! What every request has to pass, and what every answer carries. A name in a `Host` field that is not ours means that another site's page was led here by its DNS.

use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::acting::{self, RequestContext};
use super::{Site, host_names, refused};

/// Fields of every answer.
const FIELDS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Checks the host of a request; adds the fields to its answer.
pub(super) async fn check(State(site): State<Site>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let mut response = if host.is_some_and(|host| host_names::is_ours(host, &site.allowed_hosts)) {
        pass(&site, request, next).await
    } else {
        refused(StatusCode::MISDIRECTED_REQUEST, "Host", "must be a loopback name, or one of web.allowed_hosts")
    };
    for (name, value) in FIELDS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Carries a request out, if who asks may read here. The page itself and signing in are open.
async fn pass(site: &Site, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_way_in = path == "/api/v1/session" || path.starts_with("/api/v1/session/");
    if !site.private || !path.starts_with("/api/") || is_way_in || path == "/api/v1/openapi.json" {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let caller = match RequestContext::from_request_parts(&mut parts, site).await {
        Ok(caller) => caller,
        Err(response) => return response,
    };
    match acting::may_read(site, caller).await {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(response) => response,
    }
}
