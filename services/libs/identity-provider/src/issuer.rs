//! What an issuer may be: the one rule of all services that believe an identity provider. Pure.

use hyper::Uri;

/// The rule, for messages: `KEY` and then this.
pub const RULE: &str = "must be https://HOST without user, query and fragment, or http:// on this machine";

/// Whether keys may be fetched from this issuer. Without TLS an attacker on the way could give other ones, so that is for this machine alone.
#[must_use]
pub fn is_issuer(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let Some(authority) = uri.authority() else { return false };
    let host = uri.host().unwrap_or_default();
    // A host of the URI's syntax, which has no port that cannot be read.
    let has_port = authority.as_str().len() > host.len();
    let is_plain = !host.is_empty() && !text.contains(['?', '#', '@']) && (!has_port || authority.port_u16().is_some());
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    let is_local = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    is_plain && (uri.scheme_str() == Some("https") || (uri.scheme_str() == Some("http") && is_local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_has_tls_or_is_on_this_machine() {
        for good in [
            "https://login.acme.example",
            "https://login.acme.example:8443/realms/factory",
            "http://127.0.0.1",
            "http://127.0.0.1:9000/realms/factory",
            "http://localhost:9000",
            "http://[::1]:9000/",
        ] {
            assert!(is_issuer(good), "{good}");
        }
        for bad in [
            "",
            "login.acme.example",
            "http://login.acme.example",
            "http://127.0.0.1.evil.example",
            "http://localhost.evil.example",
            "http://127.0.0.1@evil.example",
            "https://",
            "https:///realms",
            "https://ada:secret@login.acme.example",
            "https://login.acme.example/?realm=a",
            "https://login.acme.example/#a",
            "https://login.acme.example:port",
            "https://login.acme.example:99999",
            "ftp://127.0.0.1",
            "HTTPS",
        ] {
            assert!(!is_issuer(bad), "{bad}");
        }
    }
}
