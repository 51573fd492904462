//! Tokens as HTTP carries them, and over which addresses they may go.

use std::net::IpAddr;

use hyper::Uri;
use hyper::header::HeaderValue;

/// The token in a text, as it is shown.
pub(crate) fn bearer(text: &str) -> Option<HeaderValue> {
    let text = text.trim();
    let is_one = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic()) && !text.contains(['{', '"']);
    let mut token = HeaderValue::try_from(format!("Bearer {text}")).ok().filter(|_| is_one)?;
    token.set_sensitive(true);
    Some(token)
}

/// Whether what is sent to an address can be read by its receiver alone: it is encrypted, or does not leave this machine.
#[must_use]
pub(crate) fn is_private(address: &str) -> bool {
    let Ok(uri) = address.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => true,
        Some("http") => is_here,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word() {
        assert_eq!(bearer("sfp_abc\n").unwrap(), "Bearer sfp_abc");
        assert!(!format!("{:?}", bearer("sfp_abc").unwrap()).contains("sfp_abc"));
        for bad in ["", "\n", "a b", "{\"token\":\"sfp_a\"}", "sfp_a\nsfp_b", "ä"] {
            assert!(bearer(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn a_token_goes_over_tls_or_stays_on_this_machine() {
        for good in ["https://c.example", "http://127.0.0.1:8482", "http://localhost", "http://[::1]:1/"] {
            assert!(is_private(good), "{good}");
        }
        for bad in ["http://c.example", "http://127.0.0.1.example", "http://localhost.example", "ftp://localhost", ""] {
            assert!(!is_private(bad), "{bad}");
        }
    }
}
