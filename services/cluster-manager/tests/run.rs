//! The service as a whole, without a broker: what works without one, and how it ends.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::SocketAddr;
use std::time::Duration;

use cluster_manager::config::{Anonymous, GitConfig};
use cluster_manager::{Config, run};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use sparkplug_mqtt::MqttConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::port;

fn config(state_dir: &tempfile::TempDir, git: SocketAddr) -> Config {
    Config {
        state_dir: state_dir.path().into(),
        mqtt: MqttConfig { servers: vec![format!("mqtt://{}", port::free())], ..MqttConfig::default() },
        git: GitConfig { listen: git, anonymous: Anonymous::Loopback, ..GitConfig::default() },
        ..Config::default()
    }
}

#[tokio::test]
async fn without_a_broker_git_is_served_nothing_is_ready_and_a_stop_is_clean() {
    let state_dir = tempfile::tempdir().unwrap();
    let git = port::free();
    let (shutdown, health) = (Shutdown::new(), Health::new());
    let running = tokio::spawn(run(config(&state_dir, git), shutdown.clone(), health.clone()));
    let url = format!("http://{git}/git/shared/helm");
    let mut served = false;
    for _ in 0..200 {
        let listed =
            Command::new("git").args(["ls-remote", &url]).env("GIT_TERMINAL_PROMPT", "0").output().await.unwrap();
        served = listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("refs/heads/main");
        if served {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(served);
    assert!(!health.is_ready());
    shutdown.trigger();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_address_that_is_taken_is_named_by_its_key() {
    let state_dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = config(&state_dir, taken.local_addr().unwrap());
    let error = run(config, Shutdown::new(), Health::new()).await.unwrap_err();
    assert!(format!("{error:#}").starts_with("git.listen: cannot listen on 127.0.0.1:"), "{error:#}");
}

#[tokio::test]
async fn a_bad_configuration_is_named_by_its_key() {
    let state_dir = tempfile::tempdir().unwrap();
    let bad = Config { organisation: "A-B".to_owned(), ..config(&state_dir, port::free()) };
    let error = run(bad, Shutdown::new(), Health::new()).await.unwrap_err();
    assert!(format!("{error:#}").starts_with("organisation: "), "{error:#}");
}

/// Status line of the answer to a GET; None: no one listens there yet.
async fn status(addr: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(addr).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    Some(String::from_utf8(answer).unwrap().lines().next().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn an_api_with_an_address_of_its_own_is_not_where_git_is() {
    const API: &str = "/v1/openapi.json";
    const GIT: &str = "/git/shared/helm/info/refs?service=git-upload-pack";
    let absent = Some("HTTP/1.1 404 Not Found".to_owned());
    let found = Some("HTTP/1.1 200 OK".to_owned());
    for is_apart in [true, false] {
        let state_dir = tempfile::tempdir().unwrap();
        let (git, api) = (port::free(), port::free());
        let mut config = config(&state_dir, git);
        config.api.listen = is_apart.then_some(api);
        let shutdown = Shutdown::new();
        let running = tokio::spawn(run(config, shutdown.clone(), Health::new()));
        while status(git, GIT).await.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(status(git, GIT).await, found);
        assert_eq!(status(git, API).await, if is_apart { absent.clone() } else { found.clone() });
        assert_eq!(status(api, API).await, found.clone().filter(|_| is_apart));
        assert_eq!(status(api, GIT).await, absent.clone().filter(|_| is_apart));
        shutdown.trigger();
        running.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_address_of_the_api_that_is_taken_is_named_by_its_key() {
    let state_dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = config(&state_dir, port::free());
    config.api.listen = Some(taken.local_addr().unwrap());
    let error = run(config, Shutdown::new(), Health::new()).await.unwrap_err();
    assert!(format!("{error:#}").starts_with("api.listen: cannot listen on 127.0.0.1:"), "{error:#}");
}
