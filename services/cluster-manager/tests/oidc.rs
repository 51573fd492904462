//! Identities of a provider that this test runs: discovery, keys, and tokens with one thing wrong at a time.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use access::claims::ClaimRules;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use axum::Router;
use axum::routing::get;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use cluster_manager::adapters::gatekeeper::StateGatekeeper;
use cluster_manager::git_users::RepositoryPush;
use git_hosting::http::{Anonymous, Settings, router};
use git_hosting::repositories::{Kind, Repositories, RepositoryFiles, RepositoryRecord};
use identity_provider::{Identities, IdentityError, Limits, Provider};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use service_runtime::http::server;
use service_runtime::shutdown::Shutdown;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::{RwLock, mpsc};
use uuid::Uuid;

use crate::state_client;

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
    /// It answers while this can be read-locked.
    open: Arc<RwLock<()>>,
}

impl Issuer {
    async fn start(keys: &[&Key]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let keys = Arc::new(Mutex::new(keys.iter().map(|key| key.public.clone()).collect::<Vec<_>>()));
        let asked = Arc::new(AtomicUsize::new(0));
        let discovery = json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string();
        let (published, counted) = (Arc::clone(&keys), Arc::clone(&asked));
        let open = Arc::new(RwLock::new(()));
        let entrance = Arc::clone(&open);
        let set = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let keys = published.lock().unwrap().clone();
            let entrance = Arc::clone(&entrance);
            async move {
                let _guard = entrance.read().await;
                json!({ "keys": keys }).to_string()
            }
        };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(move || std::future::ready(discovery)))
            .route("/keys", get(set));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, keys, asked, open }
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
    // A public value is not a secret to sign with; nothing is not a signature.
    let secret = EncodingKey::from_secret(key.public.to_string().as_bytes());
    let shared = Header { kid: Some("k1".to_owned()), ..Header::new(Algorithm::HS256) };
    let shared = jsonwebtoken::encode(&shared, &issuer.claims(), &secret).unwrap();
    for (token, part) in [
        (shared, "asymmetric"),
        (format!("{}.{claims}.", header(&json!({"alg": "none", "kid": "k1"}))), "not a JSON Web Token"),
        (format!("{}.{claims}.{signature}", header(&json!({"alg": "ES256"}))), "names no key"),
        (format!("{}.{claims}.{signature}", header(&json!({"alg": "ES384", "kid": "k1"}))), "not one of"),
        ("a.b".to_owned(), "not a JSON Web Token"),
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
async fn no_user_whose_key_is_known_waits_for_a_provider_that_does_not_answer() {
    let (known, unknown) = (Key::new("k1"), Key::new("k2"));
    let issuer = Issuer::start(&[&known]).await;
    let provider = issuer.provider(EAGER);
    let token = known.sign(&issuer.claims());
    provider.verify(&token).await.unwrap();
    let closed = issuer.open.write().await;
    let (asking, strange) = (provider.clone(), unknown.sign(&issuer.claims()));
    let waiting = tokio::spawn(async move { asking.verify(&strange).await });
    while issuer.asked() < 2 {
        tokio::task::yield_now().await;
    }
    provider.verify(&token).await.unwrap();
    assert!(!waiting.is_finished(), "the provider has not answered yet");
    drop(closed);
    assert!(waiting.await.unwrap().is_err());
}

#[tokio::test]
async fn without_its_keys_no_user_is_accepted_and_a_provider_that_calls_itself_otherwise_is_not_believed() {
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

/// Runs git in a directory; what it says if it fails.
async fn git(directory: &std::path::Path, arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("git");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", "/nonexistent");
    command.args(["-c", "user.name=x", "-c", "user.email=x@example", "-c", "credential.helper="]);
    command.env("GIT_TERMINAL_PROMPT", "0").current_dir(directory).args(arguments);
    let output = command.output().await.unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

const CLUSTER: Uuid = Uuid::from_u128(0xA);

/// A git server with a cluster's repository, which lets operators of `ops` and viewers of `guests` in.
struct GitServer {
    addr: SocketAddr,
    directory: tempfile::TempDir,
    pushes: Arc<Mutex<Vec<RepositoryPush>>>,
    /// Repositories that were pushed to.
    touched: mpsc::Receiver<Uuid>,
    stop: Shutdown,
}

async fn git_server(issuer: &Issuer) -> GitServer {
    let set = |group: &str| [group.to_owned()].into();
    let rules = ClaimRules {
        claim: "groups".to_owned(),
        viewers: set("guests"),
        operators: set("ops"),
        administrators: [].into(),
        clusters: [].into(),
    };
    let identities = Some(Identities { provider: issuer.provider(Limits::default()), rules });
    let directory = tempfile::tempdir().unwrap();
    let repositories = Repositories::load(directory.path()).unwrap();
    let files = RepositoryFiles {
        initial: [("by-hand/.gitkeep".to_owned(), Vec::new())].into(),
        message: "x".to_owned(),
        ..RepositoryFiles::default()
    };
    let place =
        RepositoryRecord { path: "cluster/A".to_owned(), kind: Kind::Cluster, store: Uuid::nil(), origin: None };
    repositories.write(CLUSTER, &place, &files, 0).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (state_client, pushes) = state_client::start();
    let (pushed, touched) = mpsc::channel(1);
    let gatekeeper = StateGatekeeper { identities, ..state_client::gatekeeper(state_client) };
    let settings = Settings { pushed, ..state_client::settings(directory.path(), Anonymous::None) };
    let router = router(repositories, gatekeeper, settings);
    let stop = Shutdown::new();
    tokio::spawn(server::serve(listener, router, None, stop.clone()));
    GitServer { addr, directory, pushes, touched, stop }
}

#[tokio::test]
async fn a_user_whom_the_provider_vouches_for_clones_and_pushes_as_far_as_their_groups_go() {
    let (key, stranger) = (Key::new("k1"), Key::new("k1"));
    let issuer = Issuer::start(&[&key]).await;
    let GitServer { addr, directory, pushes, mut touched, stop } = git_server(&issuer).await;
    let of = |groups: Value| {
        let mut claims = issuer.claims();
        claims["groups"] = groups;
        claims
    };
    let url = |token: &str| format!("http://ada:{token}@{addr}/git/cluster/A");
    let operator = key.sign(&of(json!(["ops"])));
    let viewer = key.sign(&of(json!("guests")));
    git(directory.path(), &["clone", "--quiet", &url(&operator), "work"]).await.unwrap();
    let work = directory.path().join("work");
    std::fs::write(work.join("by-hand/a.yaml"), "a: 1\n").unwrap();
    git(&work, &["add", "."]).await.unwrap();
    git(&work, &["commit", "--quiet", "--message", "a"]).await.unwrap();
    git(&work, &["push", "--quiet", "origin", "main"]).await.unwrap();
    assert_eq!(pushes.lock().unwrap().len(), 1);
    assert_eq!(touched.recv().await, Some(CLUSTER), "the repository is looked after");

    // As a bearer, which credential helpers for OpenID Connect can do.
    let header = format!("http.extraHeader=Authorization: Bearer {viewer}");
    let plain = format!("http://{addr}/git/cluster/A");
    git(directory.path(), &["-c", &header, "clone", "--quiet", &plain, "seen"]).await.unwrap();
    assert!(directory.path().join("seen/by-hand/a.yaml").is_file());

    let mut over = of(json!(["ops"]));
    over["exp"] = json!(now() - 120);
    for (token, reason) in [
        (viewer, "push needs the scope operator"),
        (key.sign(&of(json!(["cooks"]))), "gives you no scope here"),
        (key.sign(&over), "it has expired"),
        (stranger.sign(&of(json!(["ops"]))), "its signature is wrong"),
        ("a.b.c".to_owned(), "not a JSON Web Token"),
        ("geheim".to_owned(), "To push, log in with a token"),
    ] {
        let error = git(&work, &["push", &url(&token), "main:main"]).await.unwrap_err();
        assert!(error.contains(reason), "{reason}: {error}");
    }
    let error = git(directory.path(), &["clone", &url("geheim"), "none"]).await.unwrap_err();
    assert!(error.contains("Log in with"), "{error}");
    assert_eq!(pushes.lock().unwrap().len(), 1);
    stop.trigger();
}
