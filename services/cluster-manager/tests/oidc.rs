//! Identities of a provider that this test runs: discovery, keys, and tokens with one thing wrong at a time.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use axum::Router;
use axum::routing::get;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use cluster_manager::adapters::http::oidc::{IdentityError, Limits, Provider};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const AUDIENCE: &str = "sparkfleet";

/// Keys are fetched for every token that names another one.
const EAGER: Limits = Limits { old: Duration::from_secs(3600), again: Duration::ZERO };

struct Key {
    id: &'static str,
    private: EncodingKey,
    public: Value,
}

impl Key {
    fn new(id: &'static str) -> Self {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref()).unwrap();
        let point = pair.public_key().as_ref()[1..].chunks(32).map(|part| BASE64_URL_SAFE_NO_PAD.encode(part));
        let [x, y]: [String; 2] = point.collect::<Vec<_>>().try_into().unwrap();
        let public = json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": id, "x": x, "y": y});
        Self { id, private: EncodingKey::from_ec_der(pkcs8.as_ref()), public }
    }

    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, &self.private).unwrap()
    }
}

/// A provider on this machine, with how often it was asked for its keys.
struct Issuer {
    url: String,
    keys: Arc<Mutex<Vec<Value>>>,
    asked: Arc<AtomicUsize>,
}

impl Issuer {
    async fn start(keys: &[&Key]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let keys = Arc::new(Mutex::new(keys.iter().map(|key| key.public.clone()).collect::<Vec<_>>()));
        let asked = Arc::new(AtomicUsize::new(0));
        let discovery = json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string();
        let (published, counted) = (Arc::clone(&keys), Arc::clone(&asked));
        let set = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let keys = published.lock().unwrap().clone();
            std::future::ready(json!({ "keys": keys }).to_string())
        };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(move || std::future::ready(discovery)))
            .route("/keys", get(set));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, keys, asked }
    }

    fn provider(&self, limits: Limits) -> Provider {
        Provider::new(&self.url, AUDIENCE, None, limits).unwrap()
    }

    fn claims(&self) -> Value {
        json!({"iss": self.url, "aud": [AUDIENCE, "other"], "sub": "ada", "exp": now() + 600, "groups": ["ops"]})
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

#[tokio::test]
async fn a_token_of_the_provider_in_time_and_for_this_audience_is_taken() {
    let key = Key::new("k1");
    let issuer = Issuer::start(&[&key]).await;
    let provider = issuer.provider(Limits::default());
    for _ in 0..3 {
        let claims = provider.verify(&key.sign(&issuer.claims())).await.unwrap();
        assert_eq!((&claims["sub"], &claims["groups"]), (&json!("ada"), &json!(["ops"])));
    }
    assert_eq!(issuer.asked(), 1, "the keys are kept");
}

#[tokio::test]
async fn with_one_thing_wrong_it_is_refused_with_the_reason() {
    let (key, stranger) = (Key::new("k1"), Key::new("k1"));
    let issuer = Issuer::start(&[&key]).await;
    let provider = issuer.provider(Limits::default());
    let changed = |name: &str, value: Value| {
        let mut claims = issuer.claims();
        claims[name] = value;
        claims
    };
    let lacking = |name: &str| {
        let mut claims = issuer.claims();
        claims.as_object_mut().unwrap().remove(name);
        claims
    };
    let cases = [
        (changed("aud", json!("other")), "it is for another audience"),
        (changed("iss", json!("https://elsewhere.example")), "it is of another issuer"),
        (changed("exp", json!(now() - 120)), "it has expired"),
        (changed("nbf", json!(now() + 300)), "it is not valid yet"),
        (lacking("exp"), "it lacks a claim: exp, iss, aud or sub"),
        (lacking("aud"), "it lacks a claim: exp, iss, aud or sub"),
        (lacking("iss"), "it lacks a claim: exp, iss, aud or sub"),
        (lacking("sub"), "it lacks a claim: exp, iss, aud or sub"),
    ];
    for (claims, reason) in cases {
        let refused = provider.verify(&key.sign(&claims)).await;
        assert_eq!(refused, Err(IdentityError::Refused(reason)), "{claims}");
    }
    let forged = provider.verify(&stranger.sign(&issuer.claims())).await;
    assert_eq!(forged, Err(IdentityError::Refused("its signature is wrong")));
    let good = key.sign(&issuer.claims());
    let (head, signature) = good.rsplit_once('.').unwrap();
    let (_, claims) = head.split_once('.').unwrap();
    let header = |header: &Value| BASE64_URL_SAFE_NO_PAD.encode(header.to_string());
    // What everybody knows is no secret to sign with; nothing is no signature.
    let secret = EncodingKey::from_secret(key.public.to_string().as_bytes());
    let shared = Header { kid: Some("k1".to_owned()), ..Header::new(Algorithm::HS256) };
    let shared = jsonwebtoken::encode(&shared, &issuer.claims(), &secret).unwrap();
    for (token, part) in [
        (shared, "asymmetric"),
        (format!("{}.{claims}.", header(&json!({"alg": "none", "kid": "k1"}))), "no JSON Web Token"),
        (format!("{}.{claims}.{signature}", header(&json!({"alg": "ES256"}))), "names no key"),
        (format!("{}.{claims}.{signature}", header(&json!({"alg": "ES384", "kid": "k1"}))), "not one of"),
        ("a.b".to_owned(), "no JSON Web Token"),
        ("x".repeat(20_000), "too long"),
    ] {
        let error = provider.verify(&token).await.unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(issuer.asked(), 1);
}

#[tokio::test]
async fn a_key_that_is_not_known_is_asked_for_but_not_all_the_time() {
    let (first, second) = (Key::new("k1"), Key::new("k2"));
    let issuer = Issuer::start(&[&first]).await;
    let (patient, eager) = (issuer.provider(Limits::default()), issuer.provider(EAGER));
    let token = second.sign(&issuer.claims());
    let unknown = Err(IdentityError::Refused("its key is not one of the identity provider's"));
    for _ in 0..5 {
        assert_eq!(patient.verify(&token).await, unknown);
    }
    assert_eq!(issuer.asked(), 1);
    assert_eq!(eager.verify(&token).await, unknown);
    issuer.keys.lock().unwrap().push(second.public.clone());
    assert!(eager.verify(&token).await.is_ok(), "the provider has changed its keys");
    issuer.keys.lock().unwrap().clear();
    assert!(eager.verify(&token).await.is_ok(), "a known key is not asked for");
}

#[tokio::test]
async fn without_its_keys_nobody_is_taken_and_a_provider_that_calls_itself_otherwise_is_not_believed() {
    let key = Key::new("k1");
    let issuer = Issuer::start(&[&key]).await;
    let other = format!("{}/", issuer.url);
    let otherwise = Provider::new(&other, AUDIENCE, None, EAGER).unwrap();
    let mut claims = issuer.claims();
    claims["iss"] = json!(other);
    assert_eq!(otherwise.verify(&key.sign(&claims)).await, Err(IdentityError::Away));
    let away = Provider::new("http://127.0.0.1:1", AUDIENCE, None, EAGER).unwrap();
    assert_eq!(away.verify(&key.sign(&claims)).await, Err(IdentityError::Away));
}
