//! Alertmanager: sends alerts to its API v2, one request at a time.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use https_client::{HttpsClient, HttpsError};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request};
use secrecy::ExposeSecret as _;
use tokio::task::JoinHandle;

use crate::config::AlertmanagerConfig;
use crate::notice::Notice;

/// Longest time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Largest answer that is read, and what of it is shown.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const SHOWN_MAX: usize = 300;

/// Where alerts are sent, and the request that is under way.
#[derive(Debug)]
pub struct Alertmanager {
    client: HttpsClient<Full<Bytes>>,
    address: String,
    credential: Option<HeaderValue>,
    under_way: Option<JoinHandle<Result<(), String>>>,
}

impl Alertmanager {
    /// None: no address is configured. Blocks.
    ///
    /// # Errors
    /// The certificate authorities cannot be read, or TLS cannot be set up.
    pub fn new(config: &AlertmanagerConfig) -> Result<Option<Self>, HttpsError> {
        let Some(url) = &config.url else { return Ok(None) };
        let client = https_client::client(config.ca_file.as_deref())?;
        let pair = format!("{}:{}", config.user, config.password.expose_secret());
        let credential = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)));
        let credential = credential.ok().filter(|_| !config.user.is_empty()).map(|mut value| {
            value.set_sensitive(true);
            value
        });
        let address = format!("{}/api/v2/alerts", url.trim_end_matches('/'));
        Ok(Some(Self { client, address, credential, under_way: None }))
    }

    /// Begins to send; [`Self::recv`] yields how it ended.
    pub fn send(&mut self, notices: &[Notice]) {
        let mut request =
            Request::builder().method(Method::POST).uri(&self.address).header(CONTENT_TYPE, "application/json");
        if let Some(credential) = &self.credential {
            request = request.header(AUTHORIZATION, credential);
        }
        let client = self.client.clone();
        let body = serde_json::to_vec(notices);
        self.under_way = Some(tokio::spawn(async move {
            let body = body.map_err(|error| error.to_string())?;
            let request = request.body(Full::from(body)).map_err(|error| error.to_string())?;
            tokio::time::timeout(ANSWER_MAX, sent(client, request)).await.map_err(|_| "it took too long".to_owned())?
        }));
    }

    /// How the request that is under way ended; never, if there is none.
    pub async fn recv(alertmanager: &mut Option<Self>) -> Result<(), String> {
        let Some(Self { under_way, .. }) = alertmanager else { return std::future::pending().await };
        let Some(request) = under_way else { return std::future::pending().await };
        let ended = request.await;
        *under_way = None;
        ended.unwrap_or_else(|error| Err(error.to_string()))
    }
}

impl Drop for Alertmanager {
    fn drop(&mut self) {
        if let Some(under_way) = &self.under_way {
            under_way.abort();
        }
    }
}

async fn sent(client: HttpsClient<Full<Bytes>>, request: Request<Full<Bytes>>) -> Result<(), String> {
    // Hyper's own text says only that a connection failed; what it comes from says why.
    let response = client.request(request).await.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let shown: String = String::from_utf8_lossy(&body).chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
    Err(format!("it answered {status}: {shown}"))
}
