//! The cluster manager's HTTP API as a command asks it: one request after the other, over one address, as the holder of one token.
//!
//! What is sent and received is bounded in size and time. This module must not know what a request is about.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use https_client::HttpsClient;
use hyper::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode, Uri};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use service_runtime::exit;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::arguments::secret::ApiOptions;
use crate::bearer::{bearer, is_private};
use crate::input::read;
use crate::usage_error::{not_found, usage};

/// Largest answer: a list of everything that there is.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How a token of ours comes to be.
const TOKEN_HELP: &str = "`sparkfleet token create NAME --scope operator > FILE` makes one";

/// The API. Shows no token.
#[expect(missing_debug_implementations, reason = "the token in it is not to be shown")]
pub struct Api {
    client: HttpsClient<Full<Bytes>>,
    base: String,
    token: HeaderValue,
    limit: Duration,
}

/// A cluster that the token is for.
#[derive(Debug, Clone, Deserialize)]
pub struct ClusterRow {
    /// UUID of its object.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
}

#[derive(Deserialize)]
struct Problem {
    error: String,
}

impl Api {
    /// The API at an address, as the holder of the token in a file. Nothing is sent yet.
    ///
    /// # Errors
    /// An option or a file cannot be used.
    pub fn open(options: &ApiOptions) -> anyhow::Result<Self> {
        let base = base(&options.url, options.allow_http).map_err(usage)?;
        let config = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
        let client = https_client::client(options.ca_file.as_deref()).context("--ca-file").map_err(config)?;
        let text = Zeroizing::new(read(&options.token_file)?);
        let file = options.token_file.display();
        let token =
            bearer(&text).ok_or_else(|| config(anyhow!("{file} must hold a token and nothing else; {TOKEN_HELP}")))?;
        Ok(Self { client, base, token, limit: options.presentation.timeout })
    }

    /// The cluster with that UUID or name.
    ///
    /// # Errors
    /// There is none that the token is for, or as [`Api::send`].
    pub async fn cluster(&self, wanted: &str) -> anyhow::Result<ClusterRow> {
        let rows: Vec<ClusterRow> = self.get("/v1/clusters").await?;
        let uuid = Uuid::try_parse(wanted).ok();
        let found = rows.iter().find(|row| Some(row.uuid) == uuid || row.name == wanted);
        found.cloned().ok_or_else(|| {
            let error = not_found("cluster", wanted, rows.iter().map(|row| row.name.as_str()));
            error.context("among the clusters that the token is for")
        })
    }

    /// What a `GET` answers.
    ///
    /// # Errors
    /// As [`Api::send`], or the answer is not what is expected.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let answer = self.send(Method::GET, path, String::new()).await?;
        let unreadable = || format!("what {} answers is not of this API; is --url the cluster manager's?", self.base);
        serde_json::from_slice(&answer).with_context(unreadable)
    }

    /// Sends a request and returns the body of its answer.
    ///
    /// # Errors
    /// It cannot be sent, takes too long, or is not carried out; the message says why and what to do.
    pub async fn send(&self, method: Method, path: &str, body: String) -> anyhow::Result<Bytes> {
        let base = &self.base;
        let request = Request::builder().method(method).uri(format!("{base}{path}"));
        let request = request.header(AUTHORIZATION, &self.token).body(Full::from(body)).context("no request")?;
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| {
                let error = anyhow::Error::new(error).context(format!("cannot reach {base}"));
                exit::with_code(exit::UNAVAILABLE, error)
            })?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| anyhow!("the answer of {base} broke off: {error}"))?.to_bytes();
            anyhow::Ok(Response::from_parts(head, body))
        };
        let late = |_| exit::with_code(exit::TIMEOUT, anyhow!("{base} has not answered in {:?}", self.limit));
        let response = tokio::time::timeout(self.limit, exchange).await.map_err(late)??;
        if response.status().is_success() { Ok(response.into_body()) } else { Err(refusal(&response, base)) }
    }
}

/// Why a request was not carried out, and what to do.
fn refusal(response: &Response<Bytes>, base: &str) -> anyhow::Error {
    let status = response.status();
    let Ok(Problem { error }) = serde_json::from_slice(response.body()) else {
        let help = "is --url the address of the cluster manager?";
        return exit::with_code(exit::REFUSED, anyhow!("{base} answers {status} and does not say why; {help}"));
    };
    let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    match (status, wait) {
        (StatusCode::UNAUTHORIZED, _) => exit::with_code(exit::REFUSED, anyhow!("{error}; {TOKEN_HELP}")),
        (_, Some(wait)) => exit::with_code(exit::UNAVAILABLE, anyhow!("{error}; try again in {wait} s")),
        _ => exit::with_code(exit::REFUSED, anyhow!("{error}")),
    }
}

/// The address that paths are appended to.
fn base(url: &str, allow_http: bool) -> anyhow::Result<String> {
    let help = "write it as https://HOST:PORT";
    let uri: Uri = url.parse().map_err(|_| anyhow!("--url {url:?} is not an address; {help}"))?;
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if host.is_empty() || has_user || uri.query().is_some() || url.contains('#') {
        return Err(anyhow!("--url {url:?} must be a scheme, a host and nothing of a user or a query; {help}"));
    }
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") if allow_http || is_private(url) => {}
        Some("http") => {
            let help = "write https://, or --allow-http where no one else is on the way";
            return Err(anyhow!("--url {url:?} would show the token to everyone on the way; {help}"));
        }
        _ => return Err(anyhow!("--url {url:?} is neither http nor https; {help}")),
    }
    Ok(url.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_this_machine_unless_it_is_allowed() {
        for good in ["http://127.0.0.1:8480", "http://localhost:8480/", "http://[::1]:8480", "https://m.example/fleet/"]
        {
            assert_eq!(base(good, false).unwrap(), good.trim_end_matches('/'));
        }
        assert!(base("http://m.example:8480", true).is_ok());
        for (bad, why) in [
            ("http://m.example:8480", "--allow-http"),
            ("http://127.0.0.1.example", "--allow-http"),
            ("ftp://m.example", "neither http nor https"),
            ("m.example", "https://HOST"),
            ("/v1", "https://HOST"),
            ("https://ada:pw@m.example", "nothing of a user"),
            ("https://m.example/?a=b", "nothing of a user"),
            ("", "is not an address"),
        ] {
            let error = base(bad, false).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let answer = |status: u16, wait: Option<&str>, body: &'static str| {
            let builder = Response::builder().status(status);
            let builder = wait.into_iter().fold(builder, |builder, wait| builder.header(RETRY_AFTER, wait));
            builder.body(Bytes::from_static(body.as_bytes())).unwrap()
        };
        let (problem, at) = (r#"{"error": "the reason"}"#, "http://m.example");
        for (response, code, text) in [
            (answer(401, None, problem), exit::REFUSED, "the reason; `sparkfleet token create"),
            (answer(403, None, problem), exit::REFUSED, "the reason"),
            (answer(503, Some("5"), problem), exit::UNAVAILABLE, "the reason; try again in 5 s"),
            (answer(404, None, "<html>"), exit::REFUSED, "404 Not Found and does not say why; is --url"),
        ] {
            let error = refusal(&response, at);
            assert_eq!(exit::code_of(&error), code);
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
