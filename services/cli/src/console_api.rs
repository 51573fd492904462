//! The console's HTTP API as a command asks it. What is received is bounded in size and time. This module must not know what a request is about.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use https_client::HttpsClient;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use service_runtime::exit;
use zeroize::Zeroizing;

use crate::bearer::{bearer, is_private};
use crate::input::read;
use crate::options::ConsoleAccess;
use crate::output::shell_argument;
use crate::usage_error::usage;

/// Largest answer: a table of a large fleet.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Largest text of a refusal.
const PROBLEM_BYTES_MAX: usize = 64 * 1024;

/// What to do where there is no console.
const HELP: &str = "`sparkfleet up` and `sparkfleet console` serve one, and --console says where";

/// A console. It has no `Debug`, which would show the token.
pub(crate) struct ConsoleApi {
    client: HttpsClient<Empty<Bytes>>,
    base: String,
    token: Option<HeaderValue>,
    limit: Duration,
}

#[derive(Deserialize)]
struct Problem {
    error: String,
}

impl ConsoleApi {
    /// The console at an address, as the holder of the token in a file if one is named. Nothing is sent yet.
    ///
    /// # Errors
    /// The address is not one, or a file cannot be used.
    pub(crate) fn open(console: &str, access: &ConsoleAccess, limit: Duration) -> anyhow::Result<Self> {
        let token = access.token_file.as_deref().map(read).transpose()?.map(Zeroizing::new);
        Self::with_token(console, access.ca_file.as_deref(), token.as_ref().map(|token| token.as_str()), limit)
    }

    /// The console at an address, as the holder of a token. Nothing is sent yet.
    ///
    /// # Errors
    /// As [`ConsoleApi::open`].
    pub(crate) fn with_token(
        console: &str,
        ca_file: Option<&Path>,
        token: Option<&str>,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let config = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
        let base = address(console)?;
        if token.is_some() && !is_private(&base) {
            let error = anyhow!("{base} would show the token to everyone on the way; write it as https://HOST:PORT");
            return Err(usage(error));
        }
        let rule = "the token file must hold a token and nothing else; `sparkfleet token create` makes one";
        let token = token.map(|text| bearer(text).ok_or_else(|| config(anyhow!("{rule}")))).transpose()?;
        let client = https_client::client(ca_file).context("--console-ca-file").map_err(config)?;
        Ok(Self { client, base, token, limit })
    }

    /// What a `GET` answers.
    ///
    /// # Errors
    /// There is no console, it does not answer in time, or it refuses; the message says why and what to do.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<T> {
        let base = &self.base;
        let exchange = async {
            let body = Limited::new(self.answer(path, query).await?, ANSWER_BYTES_MAX).collect().await;
            anyhow::Ok(body.map_err(|error| anyhow!("the answer of {base} broke off: {error}"))?.to_bytes())
        };
        let late = |_| exit::with_code(exit::TIMEOUT, anyhow!("{base} has not answered in {:?}", self.limit));
        let body = tokio::time::timeout(self.limit, exchange).await.map_err(late)??;
        serde_json::from_slice(&body).with_context(|| format!("what {base} answers is not of a console; {HELP}"))
    }

    /// The body of the answer to a `GET`, which has to begin in time.
    ///
    /// # Errors
    /// As [`ConsoleApi::get`].
    pub(crate) async fn open_stream(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<Incoming> {
        let base = &self.base;
        let late = |_| exit::with_code(exit::TIMEOUT, anyhow!("{base} has not answered in {:?}", self.limit));
        tokio::time::timeout(self.limit, self.answer(path, query)).await.map_err(late)?
    }

    async fn answer(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<Incoming> {
        let base = &self.base;
        let mut request = Request::get(format!("{base}{path}{}", query_text(query)));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Empty::new()).context("no request")?;
        let response = self.client.request(request).await.map_err(|error| {
            let error = anyhow::Error::new(error).context(format!("there is no console at {base}; {HELP}"));
            exit::with_code(exit::UNAVAILABLE, error)
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let body = Limited::new(response.into_body(), PROBLEM_BYTES_MAX).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Err(refusal(status, &body, base))
    }

    /// Address of the console, without a slash at its end.
    #[must_use]
    pub(crate) fn address(&self) -> &str {
        &self.base
    }
}

fn refusal(status: StatusCode, body: &[u8], base: &str) -> anyhow::Error {
    let Ok(Problem { error }) = serde_json::from_slice(body) else {
        return exit::with_code(exit::REFUSED, anyhow!("{base} answers {status} and is not a console; {HELP}"));
    };
    let code = match status {
        StatusCode::NOT_FOUND => exit::NOT_FOUND,
        StatusCode::SERVICE_UNAVAILABLE => exit::UNAVAILABLE,
        _ => exit::REFUSED,
    };
    let help = match status {
        StatusCode::UNAUTHORIZED => {
            format!("; `sparkfleet login {}` makes a context with a token", shell_argument(base))
        }
        _ => String::new(),
    };
    exit::with_code(code, anyhow!("{error}{help}"))
}

fn query_text(query: &[(&str, String)]) -> String {
    let pair = |(name, value): &(&str, String)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
    let pairs: Vec<String> = query.iter().map(pair).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// The address of a console as it is used: without a slash at its end.
///
/// # Errors
/// With [`exit::USAGE`] and the form of an address.
pub(crate) fn address(text: &str) -> anyhow::Result<String> {
    let uri: Option<Uri> = text.parse().ok();
    let is_good = uri.is_some_and(|uri| {
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() && uri.query().is_none() && !has_user
    });
    if !is_good || text.contains('#') {
        return Err(usage(anyhow!("{text:?} is not the address of a console; write it as http://HOST:PORT")));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_and_a_host() {
        for good in ["http://127.0.0.1:8482", "http://127.0.0.1:8482/", "https://console.example/fleet"] {
            assert_eq!(address(good).unwrap(), good.trim_end_matches('/'));
        }
        for bad in ["", "127.0.0.1:8482", "ftp://a", "http://", "http://a/?b=c", "http://ada:pw@a", "http://a/#b"] {
            let error = address(bad).unwrap_err();
            assert!(exit::code_of(&error) == exit::USAGE && error.to_string().contains("http://HOST:PORT"), "{bad}");
        }
    }

    #[test]
    fn values_of_the_query_are_encoded() {
        let query = [("cluster", "a&b=ü".to_owned()), ("at", "5".to_owned())];
        assert_eq!(query_text(&query), "?cluster=a%26b%3D%C3%BC&at=5");
        assert_eq!(query_text(&[]), "");
    }

    #[test]
    fn a_refusal_says_why() {
        let of = |status, body: &str| refusal(status, body.as_bytes(), "http://c");
        let before = of(StatusCode::NOT_FOUND, r#"{"error":"the history begins at 5 (UTC ms)","field":"at"}"#);
        assert_eq!(
            (exit::code_of(&before), before.to_string().as_str()),
            (exit::NOT_FOUND, "the history begins at 5 (UTC ms)")
        );
        let unknown = refusal(StatusCode::UNAUTHORIZED, br#"{"error":"sign in"}"#, "http://[::1]:8482");
        assert_eq!(unknown.to_string(), "sign in; `sparkfleet login 'http://[::1]:8482'` makes a context with a token");
        let other = of(StatusCode::BAD_GATEWAY, "<html>");
        assert!(other.to_string().contains("is not a console; `sparkfleet up`"), "{other}");
    }

    #[test]
    fn each_status_has_its_exit_code_and_one_without_a_credential_says_what_to_do() {
        let body = br#"{"error":"the reason","field":"x"}"#;
        for (status, code) in [
            (400, exit::REFUSED),
            (401, exit::REFUSED),
            (403, exit::REFUSED),
            (404, exit::NOT_FOUND),
            (409, exit::REFUSED),
            (421, exit::REFUSED),
            (429, exit::REFUSED),
            (500, exit::REFUSED),
            (503, exit::UNAVAILABLE),
        ] {
            let error = refusal(StatusCode::from_u16(status).unwrap(), body, "http://c");
            assert_eq!(exit::code_of(&error), code, "{status}");
            let text = error.to_string();
            assert!(text.starts_with("the reason"), "{status}: {text}");
            assert_eq!(text.contains("`sparkfleet login http://c`"), status == 401, "{status}: {text}");
        }
    }

    #[test]
    fn a_token_goes_to_this_machine_or_encrypted_and_a_file_holds_nothing_else() {
        let open = |address: &str, token: &str| {
            ConsoleApi::with_token(address, None, Some(token), Duration::from_secs(1))
                .map(|api| api.address().to_owned())
        };
        for good in ["http://127.0.0.1:8482", "http://localhost:8482/", "https://console.example"] {
            assert_eq!(open(good, "sfp_abc\n").unwrap(), good.trim_end_matches('/'));
        }
        let away = open("http://console.example", "sfp_abc").unwrap_err();
        assert!(exit::code_of(&away) == exit::USAGE && !away.to_string().contains("sfp_"), "{away}");
        for bad in ["", "two words", "a\nb"] {
            let error = open("https://console.example", bad).unwrap_err();
            assert!(
                exit::code_of(&error) == exit::CONFIG && error.to_string().contains("token create"),
                "{bad:?}: {error}"
            );
        }
    }

    #[tokio::test]
    async fn where_there_is_no_console_it_is_said_what_serves_one() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let api = ConsoleApi::open(&address, &ConsoleAccess::default(), Duration::from_secs(20)).unwrap();
        let error = api.get::<serde_json::Value>("/api/v1/events", &[]).await.unwrap_err();
        assert_eq!(exit::code_of(&error), exit::UNAVAILABLE);
        assert!(error.to_string().contains("`sparkfleet up` and `sparkfleet console` serve one"), "{error}");
    }
}
