//! What every request has to pass, and what every answer carries. A name in a `Host` field that is not ours means that somebody else's page was led here by its DNS.

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::{Site, refused};

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
pub async fn check(State(site): State<Site>, request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let mut response = if host.is_some_and(|host| is_ours(host, &site.allowed_hosts)) {
        next.run(request).await
    } else {
        refused(StatusCode::MISDIRECTED_REQUEST, "Host", "must be a loopback name, or one of web.allowed_hosts")
    };
    for (name, value) in FIELDS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether a `Host` field names this console.
fn is_ours(host: &str, allowed: &[String]) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.to_ascii_lowercase();
    let is_loopback = name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    name == "localhost" || is_loopback || allowed.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_and_those_that_are_configured_are_ours() {
        let allowed = ["console.example".to_owned()];
        for host in ["localhost", "LocalHost:8482", "127.0.0.1:1", "127.9.9.9", "[::1]:8482", "Console.example:443"] {
            assert!(is_ours(host, &allowed), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example", "192.0.2.1", "[2001:db8::1]:8482", "console.example.evil"]
        {
            assert!(!is_ours(host, &allowed), "{host}");
        }
    }
}
