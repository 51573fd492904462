//! The service as a whole, without a broker: what works without one, and how it ends.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::SocketAddr;
use std::time::Duration;

use cluster_manager::config::{Anonymous, GitConfig};
use cluster_manager::{Config, run};
use service_runtime::health::Health;
use service_runtime::shutdown::Shutdown;
use sparkplug_mqtt::MqttConfig;
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
