//! The service as a whole, without a broker: what works without one, and how it ends.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::SocketAddr;
use std::time::Duration;

use cluster_manager::config::BootstrapConfig;
use cluster_manager::{Config, run};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use sparkplug_mqtt::MqttConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::mosquitto::port;

fn config(state_dir: &tempfile::TempDir, scripts: SocketAddr) -> Config {
    Config {
        state_dir: state_dir.path().into(),
        mqtt: MqttConfig { servers: vec![format!("mqtt://{}", port::free())], ..MqttConfig::default() },
        bootstrap: BootstrapConfig { listen: scripts, ..BootstrapConfig::default() },
        ..Config::default()
    }
}

#[tokio::test]
async fn without_a_broker_the_scripts_are_served_but_no_git_and_no_api_nothing_is_ready_and_a_stop_is_clean() {
    let state_dir = tempfile::tempdir().unwrap();
    let addr = port::free();
    let (shutdown, health) = (Shutdown::new(), Health::new());
    let running = tokio::spawn(run(config(&state_dir, addr), shutdown.clone(), health.clone()));
    while status(addr, "/").await.is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let bootstrap = format!("/bootstrap/{}", uuid::Uuid::nil());
    for (path, answer) in [
        ("/v1/clusters", "404 Not Found"),
        (bootstrap.as_str(), "503 Service Unavailable"),
        ("/git/shared/helm/info/refs?service=git-upload-pack", "404 Not Found"),
        ("/git/shared/helm/info/refs?service=git-receive-pack", "404 Not Found"),
    ] {
        assert_eq!(status(addr, path).await, Some(format!("HTTP/1.1 {answer}")), "{path}");
    }
    assert!(!health.is_ready());
    shutdown.trigger();
    running.await.unwrap().unwrap();
    assert!(state_dir.path().join("git").is_dir() && state_dir.path().join("packs").is_dir());
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
async fn an_address_of_the_scripts_that_is_taken_is_named_by_its_key() {
    let state_dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = config(&state_dir, taken.local_addr().unwrap());
    let error = run(config, Shutdown::new(), Health::new()).await.unwrap_err();
    assert!(format!("{error:#}").starts_with("bootstrap.listen: cannot listen on 127.0.0.1:"), "{error:#}");
}
