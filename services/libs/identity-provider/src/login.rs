//! The authorization code flow (OpenID Connect Core 1.0, 3.1) with PKCE (RFC 7636). A user is sent to the provider, and comes back with a code. The code is worth an identity once, and only here.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::provider::{IdentityError, Provider};

/// What stays as it is in a value of a query (RFC 3986, 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Longest code.
const CODE_BYTES_MAX: usize = 4 * 1024;

/// As whom this program is known to the provider.
#[derive(Clone)]
pub struct Client {
    /// Its id; tokens are to be for it.
    pub id: String,
    /// Its secret; None: a public client, which PKCE alone protects.
    pub secret: Option<String>,
    /// Scopes that are asked for beside `openid`.
    pub scopes: Vec<String>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("id", &self.id).field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

/// A way in that has begun. Who comes back has to show that they began it.
#[derive(Clone)]
pub struct Begun {
    state: String,
    nonce: String,
    verifier: String,
    redirect: String,
}

impl std::fmt::Debug for Begun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Begun").field("redirect", &self.redirect).finish_non_exhaustive()
    }
}

impl Begun {
    /// `random`: 32 bytes each, for what comes back in the address, in the token, and for PKCE. `redirect`: where the provider sends people back to.
    #[must_use]
    pub fn new([state, nonce, verifier]: [[u8; 32]; 3], redirect: String) -> Self {
        let text = |bytes: [u8; 32]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        Self { state: text(state), nonce: text(nonce), verifier: text(verifier), redirect }
    }

    /// Whether what came back in the address is what was sent.
    #[must_use]
    pub fn is_state(&self, shown: &str) -> bool {
        // Hashes are compared, so that the time says nothing about the text.
        Sha256::digest(shown) == Sha256::digest(&self.state)
    }
}

/// Why a login fails.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The token.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The provider cannot be asked, or does not do what is needed.
    #[error("the identity provider cannot be asked: {0}")]
    Provider(String),
    /// It does not take the code.
    #[error("the identity provider does not accept the code: {0}")]
    Code(String),
}

/// Signs people in by a provider.
#[derive(Debug, Clone)]
pub struct Login {
    provider: Provider,
    client: Client,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

#[derive(Deserialize)]
struct Refused {
    error: String,
}

impl Login {
    /// `provider`: made for the audience `client.id`.
    #[must_use]
    pub const fn new(provider: Provider, client: Client) -> Self {
        Self { provider, client }
    }

    /// Where a user is sent.
    ///
    /// # Errors
    /// The provider cannot be asked where that is.
    pub async fn address(&self, begun: &Begun) -> Result<String, LoginError> {
        let endpoint = self.provider.endpoints().await.map_err(LoginError::Provider)?.authorization;
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&begun.verifier));
        let scope = ["openid"].into_iter().chain(self.client.scopes.iter().map(String::as_str)).collect::<Vec<_>>();
        let query = query(&[
            ("response_type", "code"),
            ("client_id", &self.client.id),
            ("redirect_uri", &begun.redirect),
            ("scope", &scope.join(" ")),
            ("state", &begun.state),
            ("nonce", &begun.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let mark = if endpoint.contains('?') { '&' } else { '?' };
        Ok(format!("{endpoint}{mark}{query}"))
    }

    /// The claims of who came back with this code.
    ///
    /// # Errors
    /// [`LoginError`]
    pub async fn claims(&self, begun: &Begun, code: &str) -> Result<Map<String, Value>, LoginError> {
        if code.len() > CODE_BYTES_MAX {
            return Err(LoginError::Code("it is too long".to_owned()));
        }
        let endpoint = self.provider.endpoints().await.map_err(LoginError::Provider)?.token;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &begun.redirect),
            ("client_id", &self.client.id),
            ("code_verifier", &begun.verifier),
        ];
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(endpoint)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json");
        if let Some(secret) = &self.client.secret {
            // RFC 6749, 2.3.1: both are encoded as in a form before they are joined.
            let credentials = format!("{}:{}", encoded(&self.client.id), encoded(secret));
            request = request.header(AUTHORIZATION, format!("Basic {}", BASE64_STANDARD.encode(credentials)));
        }
        let request = request.body(Full::new(Bytes::from(query(&form))));
        let request = request.map_err(|_| LoginError::Provider("its token endpoint is not an address".to_owned()))?;
        let (status, body) = self.provider.send(request).await.map_err(LoginError::Provider)?;
        if !status.is_success() {
            let refused: Option<Refused> = serde_json::from_slice(&body).ok();
            return Err(LoginError::Code(refused.map_or_else(|| status.to_string(), |refused| refused.error)));
        }
        let tokens: Tokens =
            serde_json::from_slice(&body).map_err(|_| LoginError::Code("it gives no id_token".to_owned()))?;
        let claims = self.provider.verify(&tokens.id_token).await?;
        self.check(begun, &claims)?;
        Ok(claims)
    }

    /// What only a token of this flow has: the nonce, and for whom it is if it is for several.
    fn check(&self, begun: &Begun, claims: &Map<String, Value>) -> Result<(), IdentityError> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if text("nonce") != Some(&begun.nonce) {
            return Err(IdentityError::Refused("it is of another sign-in"));
        }
        let is_for_several = claims.get("aud").and_then(Value::as_array).is_some_and(|audience| audience.len() > 1);
        let party = text("azp");
        if (is_for_several && party.is_none()) || party.is_some_and(|party| party != self.client.id) {
            return Err(IdentityError::Refused("it was issued to another party"));
        }
        Ok(())
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

fn query(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use serde_json::json;

    fn begun() -> Begun {
        Begun::new([[1; 32], [2; 32], [3; 32]], "https://console.example/back".to_owned())
    }

    fn login() -> Login {
        let provider = Provider::new("https://login.example", "console", None, Limits::default()).unwrap();
        Login::new(provider, Client { id: "console".to_owned(), secret: None, scopes: vec!["groups".to_owned()] })
    }

    #[test]
    fn only_who_began_comes_back() {
        let begun = begun();
        assert!(begun.is_state(&BASE64_URL_SAFE_NO_PAD.encode([1; 32])));
        assert!(!begun.is_state("") && !begun.is_state(&BASE64_URL_SAFE_NO_PAD.encode([2; 32])));
        assert!(!format!("{begun:?}").contains(&begun.verifier), "{begun:?}");
    }

    #[test]
    fn a_token_of_another_sign_in_or_another_party_is_refused() {
        let (login, begun) = (login(), begun());
        let check = |claims: Value| login.check(&begun, claims.as_object().unwrap());
        let nonce = &begun.nonce;
        assert_eq!(check(json!({ "nonce": nonce, "aud": "console" })), Ok(()));
        assert_eq!(check(json!({ "nonce": nonce, "aud": ["console", "other"], "azp": "console" })), Ok(()));
        for wrong in [
            json!({ "aud": "console" }),
            json!({ "nonce": "other", "aud": "console" }),
            json!({ "nonce": nonce, "aud": ["console", "other"] }),
            json!({ "nonce": nonce, "aud": "console", "azp": "other" }),
        ] {
            assert!(check(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_of_a_query_are_encoded() {
        assert_eq!(query(&[("a", "b c&d"), ("e", "https://x/y")]), "a=b%20c%26d&e=https%3A%2F%2Fx%2Fy");
    }
}
