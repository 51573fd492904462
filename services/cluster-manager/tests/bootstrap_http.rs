//! The script of a cluster over HTTP, as curl fetches it: a client with one of its tokens gets it, any other learns nothing.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::SocketAddr;

use cluster_manager::adapters::bootstrap_http::{self, ScriptStore, Settings};
use cluster_manager::adapters::passwords::ClusterPasswords;
use cluster_manager::adapters::quarantine::QuarantineFiles;
use cluster_manager::bootstrap::{BootstrapGrant, FluxSource, OfferedToken, ScriptValues};
use enrolment_protocol::token::Token;
use service_runtime::config::ExposeSecret as _;
use service_runtime::http::server;
use service_runtime::shutdown::Shutdown;
use sparkplug_mqtt::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

const CLUSTER: Uuid = Uuid::from_u128(0xA);
const OTHER: Uuid = Uuid::from_u128(0xB);

struct Server {
    script_store: ScriptStore,
    passwords: ClusterPasswords,
    addr: SocketAddr,
    shutdown: Shutdown,
    _state_dir: tempfile::TempDir,
}

impl Server {
    async fn start(image: Option<&str>) -> Self {
        let server = Self::starting(image).await;
        server.script_store.complete();
        server
    }

    /// One that does not know the tokens of the clusters yet.
    async fn starting(image: Option<&str>) -> Self {
        let state_dir = tempfile::tempdir().unwrap();
        let passwords = ClusterPasswords::load(state_dir.path(), []).unwrap();
        for cluster in [CLUSTER, OTHER] {
            passwords.ensure(cluster).unwrap();
        }
        let settings = Settings {
            organisation: "ACME".to_owned(),
            flux: FluxSource::Manifests("kind: Flux\n".into()),
            image: image.map(str::to_owned),
            mqtt_servers: vec!["mqtts://broker:8883".to_owned()],
            login: QuarantineFiles::default(),
        };
        let script_store = ScriptStore::default();
        let router = bootstrap_http::router(script_store.clone(), passwords.clone(), settings, Clock::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        tokio::spawn(server::serve(listener, router, None, shutdown.clone()));
        Self { script_store, passwords, addr, shutdown, _state_dir: state_dir }
    }

    /// The whole answer.
    async fn get(&self, cluster: &str, authorization: Option<&str>) -> String {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        let header = authorization.map(|value| format!("Authorization: {value}\r\n")).unwrap_or_default();
        let request = format!("GET /bootstrap/{cluster} HTTP/1.1\r\nHost: a\r\n{header}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let text = String::from_utf8(answer).unwrap();
        // The time differs between two answers that are the same.
        text.lines().filter(|line| !line.starts_with("date:")).map(|line| format!("{line}\n")).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.trigger();
    }
}

fn offer(tokens: &[(&Token, u64)], identity_key: Option<&str>) -> BootstrapGrant {
    let values = ScriptValues {
        name: "Paint_Shop".to_owned(),
        namespace: "fplus-edge".to_owned(),
        bare: false,
        self_link: "kind: SelfLink\n".to_owned(),
        identity_key: identity_key.map(str::to_owned),
    };
    BootstrapGrant {
        values: Some(values),
        tokens: tokens
            .iter()
            .map(|(token, expires)| OfferedToken { hash: token.hash().as_str().to_owned(), expires: *expires })
            .collect(),
    }
}

#[tokio::test]
async fn one_of_its_tokens_opens_a_clusters_script_as_often_as_needed() {
    let server = Server::start(None).await;
    let (first, second) = (Token::new([1; 32]), Token::new([2; 32]));
    server.script_store.set(CLUSTER, Some(offer(&[(&first, u64::MAX), (&second, u64::MAX)], None)));
    for token in [&first, &second, &first] {
        let answer = server.get(&CLUSTER.to_string(), Some(&format!("Bearer {}", token.expose()))).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("cache-control: no-store\n") && answer.contains("\n#!/bin/sh\n"), "{answer}");
        let password = server.passwords.get(CLUSTER).unwrap();
        assert!(answer.contains(password.expose_secret()) && answer.contains("kind: Flux\n"));
        assert!(!answer.contains(token.expose()), "a token that does not enrol stays where it is");
    }
    let enrolling = Server::start(Some("sparkfleet:1")).await;
    enrolling.script_store.set(CLUSTER, Some(offer(&[(&first, u64::MAX)], Some("the-key"))));
    let answer = enrolling.get(&CLUSTER.to_string(), Some(&format!("bearer {}", first.expose()))).await;
    let password = enrolling.passwords.get(CLUSTER).unwrap();
    assert!(answer.contains(first.expose()) && answer.contains("the-key") && answer.contains("sparkfleet:1"));
    assert!(!answer.contains(password.expose_secret()), "a cluster that enrols gets its credentials by enrolment");
}

#[tokio::test]
async fn whatever_is_wrong_is_the_same_404() {
    let server = Server::start(None).await;
    let (good, expired, foreign) = (Token::new([1; 32]), Token::new([2; 32]), Token::new([3; 32]));
    server.script_store.set(CLUSTER, Some(offer(&[(&good, u64::MAX), (&expired, 1)], None)));
    server.script_store.set(OTHER, Some(offer(&[(&foreign, u64::MAX)], None)));
    let bearer = |token: &Token| format!("Bearer {}", token.expose());
    let (cluster, unknown) = (CLUSTER.to_string(), Uuid::from_u128(0xC).to_string());
    let expected = server.get(&cluster, None).await;
    assert!(expected.starts_with("HTTP/1.1 404") && expected.contains("cache-control: no-store"), "{expected}");
    for (cluster, authorization) in [
        (&unknown, bearer(&good)),
        (&cluster, bearer(&expired)),
        (&cluster, bearer(&foreign)),
        (&cluster, format!("Basic {}", good.expose())),
        (&cluster, "Bearer".to_owned()),
        (&cluster, "Bearer sft_x".to_owned()),
        (&cluster, good.expose().to_owned()),
        (&"x".to_owned(), bearer(&good)),
    ] {
        assert_eq!(server.get(cluster, Some(&authorization)).await, expected, "{cluster} {authorization}");
    }
    assert!(server.get(&cluster, Some(&bearer(&good))).await.starts_with("HTTP/1.1 200"));
    server.script_store.set(CLUSTER, None);
    assert_eq!(server.get(&cluster, Some(&bearer(&good))).await, expected, "revoked or torn down");
}

#[tokio::test]
async fn what_passes_by_itself_is_a_503_that_curl_repeats_and_says_nothing_of_clusters() {
    let server = Server::start(None).await;
    let (good, other) = (Token::new([1; 32]), Token::new([2; 32]));
    let bearer = |token: &Token| format!("Bearer {}", token.expose());
    let waiting = BootstrapGrant { values: None, ..offer(&[(&good, u64::MAX)], None) };
    server.script_store.set(CLUSTER, Some(waiting));
    let cluster = CLUSTER.to_string();
    let later = server.get(&cluster, Some(&bearer(&good))).await;
    assert!(later.starts_with("HTTP/1.1 503") && later.contains("\nretry-after: 2\n"), "being set up: {later}");
    assert!(later.contains("cache-control: no-store"), "{later}");
    assert!(
        server.get(&cluster, Some(&bearer(&other))).await.starts_with("HTTP/1.1 404"),
        "only its tokens learn that"
    );

    let server = Server::starting(None).await;
    for (cluster, token) in [(&cluster, &good), (&OTHER.to_string(), &other)] {
        assert_eq!(server.get(cluster, Some(&bearer(token))).await, later, "started a moment ago");
    }
    server.script_store.complete();
    assert!(server.get(&cluster, Some(&bearer(&good))).await.starts_with("HTTP/1.1 404"), "no cluster has it");
}

#[tokio::test]
async fn a_sites_own_script_is_given_out_with_its_values_put_in() {
    let server = Server::start(None).await;
    let token = Token::new([5; 32]);
    server.script_store.set(CLUSTER, Some(offer(&[(&token, u64::MAX)], None)));
    let entry =
        r#"{"files": {"hello.txt": "it's $(a) file"}, "wrapper": "echo \"$cluster_name\" \"$file_hello_txt\""}"#;
    let script = cluster_manager::bootstrap::site::SiteScript::read(entry).unwrap();
    server.script_store.set_script(Some(std::sync::Arc::new(script)));
    let bearer = format!("Bearer {}", token.expose());
    let answer = server.get(&CLUSTER.to_string(), Some(&bearer)).await;
    let (preamble, text) = answer.trim_end().rsplit_once('\n').unwrap();
    assert!(preamble.contains("\ncluster_name='Paint_Shop'\n"), "{answer}");
    assert!(preamble.ends_with(r"file_hello_txt='it'\''s $(a) file'"), "{answer}");
    assert_eq!(text, "echo \"$cluster_name\" \"$file_hello_txt\"");
    server.script_store.set_script(None);
    assert!(server.get(&CLUSTER.to_string(), Some(&bearer)).await.contains("kubectl"));
}
