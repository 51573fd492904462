//! The console's HTTP API as a command asks it. What is received is bounded in size and time. This module must not know what a request is about.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use https_client::HttpsClient;
use hyper::{StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use service_runtime::exit;

use crate::command::usage;

/// Largest answer: a table of a large fleet.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What to do where there is no console.
const HELP: &str = "`sparkfleet up` and `sparkfleet console` serve one, and --console says where";

/// A console.
#[derive(Debug)]
pub struct ConsoleApi {
    client: HttpsClient<Empty<Bytes>>,
    base: String,
    limit: Duration,
}

#[derive(Deserialize)]
struct Problem {
    error: String,
}

impl ConsoleApi {
    /// The console at an address. Nothing is sent yet.
    ///
    /// # Errors
    /// `address` is none.
    pub fn open(address: &str, limit: Duration) -> anyhow::Result<Self> {
        let base = base(address).map_err(usage)?;
        Ok(Self { client: https_client::client(None)?, base, limit })
    }

    /// What a `GET` answers.
    ///
    /// # Errors
    /// There is no console, it does not answer in time, or it refuses; the message says why and what to do.
    pub async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<T> {
        let base = &self.base;
        let uri: Uri = format!("{base}{path}{}", query_text(query)).parse().context("no request")?;
        let exchange = async {
            let response = self.client.get(uri).await.map_err(|error| {
                let error = anyhow::Error::new(error).context(format!("there is no console at {base}; {HELP}"));
                exit::with_code(exit::UNAVAILABLE, error)
            })?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| anyhow!("the answer of {base} broke off: {error}"))?.to_bytes();
            anyhow::Ok((status, body))
        };
        let late = |_| exit::with_code(exit::TIMEOUT, anyhow!("{base} has not answered in {:?}", self.limit));
        let (status, body) = tokio::time::timeout(self.limit, exchange).await.map_err(late)??;
        if !status.is_success() {
            return Err(refusal(status, &body, base));
        }
        serde_json::from_slice(&body).with_context(|| format!("what {base} answers is not of a console; {HELP}"))
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
    exit::with_code(code, anyhow!("{error}"))
}

fn query_text(query: &[(&str, String)]) -> String {
    let pair = |(name, value): &(&str, String)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
    let pairs: Vec<String> = query.iter().map(pair).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn base(address: &str) -> anyhow::Result<String> {
    let uri: Option<Uri> = address.parse().ok();
    let is_good = uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() && uri.query().is_none()
    });
    if !is_good {
        return Err(anyhow!("--console {address:?} is not an address; write it as http://HOST:PORT"));
    }
    Ok(address.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_scheme_and_a_host() {
        for good in ["http://127.0.0.1:8482", "http://127.0.0.1:8482/", "https://console.example/fleet"] {
            assert_eq!(base(good).unwrap(), good.trim_end_matches('/'));
        }
        for bad in ["", "127.0.0.1:8482", "ftp://a", "http://", "http://a/?b=c"] {
            assert!(base(bad).unwrap_err().to_string().contains("--console"), "{bad}");
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
        let other = of(StatusCode::BAD_GATEWAY, "<html>");
        assert!(other.to_string().contains("is not a console; `sparkfleet up`"), "{other}");
    }

    #[tokio::test]
    async fn where_there_is_no_console_it_is_said_what_serves_one() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let api = ConsoleApi::open(&address, Duration::from_secs(20)).unwrap();
        let error = api.get::<serde_json::Value>("/api/v1/events", &[]).await.unwrap_err();
        assert_eq!(exit::code_of(&error), exit::UNAVAILABLE);
        assert!(error.to_string().contains("`sparkfleet up` and `sparkfleet console` serve one"), "{error}");
    }
}
