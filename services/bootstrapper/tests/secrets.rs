//! A control plane joins by a kubeadm that fails, and prints all it knows, before it succeeds. The test keeps all that can be seen of it: no secret is in it.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use crate::{programs, support};

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use bootstrapper::Ending;
use bootstrapper::adapters::files::mode_of;
use bootstrapper::adapters::kubeadm::Kubeadm;
use bootstrapper::adapters::simulated::SimulatedHost;
use bootstrapper::adapters::supervisor::Supervisor;
use bootstrapper::config::{Distribution, RoleChoice};
use join_protocol::secret::Secret;
use join_protocol::simulated::SimulatedVerifier;
use join_protocol::terms::Variant;
use service_runtime::logging::{self, LogFormat};
use support::issuer::{KEY_FILE, NODE_PASSWORD, TOKEN, TestIssuer, master};
use support::mosquitto::Mosquitto;
use support::site::{Running, Site, config};
use uuid::Uuid;

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

// long: one join from its beginning to its end, and then every place that is looked at.
#[tokio::test]
async fn no_secret_is_in_a_log_a_metric_a_status_or_a_file_for_others() {
    let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let log = outside.path().join("log");
    logging::init_to_file(LogFormat::Human, "trace", &log).unwrap();
    let root = directory.path();
    let script = |name: &str, text: &str| {
        let path = outside.path().join(name);
        programs::write_program(&path, &format!("#!/bin/sh\n{text}\n"));
        path
    };
    let tries = outside.path().join("tries").display().to_string();
    let kubeadm = format!(
        "for last; do :; done\ncase $1 in join) cat $last {}/etc/kubernetes/pki/ca.key >&2; cat $last; echo x >> {tries}; [ $(wc -l < {tries}) -ge 2 ] ;; esac",
        root.display()
    );
    let broker = Mosquitto::start();
    let mut configuration = config(&broker, root, "edge-1");
    configuration.role = RoleChoice::ControlPlane;
    configuration.kubernetes.distribution = Distribution::Kubeadm;
    configuration.kubernetes.program = Some(script("kubeadm", &kubeadm));
    configuration.kubernetes.systemctl = script("systemctl", "[ $1 != show ] || echo inactive");
    for folder in ["vm", "kernel/keys", "net/ipv4"] {
        fs::create_dir_all(root.join("proc/sys").join(folder)).unwrap();
    }
    let disk = Uuid::from_u128(0x5EC);
    let host = SimulatedHost::new(root, disk, Secret::new([9; 32])).unwrap();
    let mut installer = Kubeadm::new(&configuration, root, &[]);
    installer.retry_after = std::time::Duration::ZERO;
    let mut platform = host.platform();
    platform.installer = Box::new(installer);
    let systemd = UnixDatagram::bind(outside.path().join("notify")).unwrap();
    let socket = UnixDatagram::unbound().unwrap();
    socket.connect(outside.path().join("notify")).unwrap();
    let supervisor = Supervisor::new(Some(socket), None);
    let listening = std::thread::spawn(move || {
        let (mut status, mut bytes) = (String::new(), [0; 4096]);
        while !status.ends_with("STOPPING=1") {
            let length = systemd.recv(&mut bytes).unwrap();
            status.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
        status
    });

    let service = TestIssuer::join_service(Variant::Simulated, Box::new(SimulatedVerifier::default()));
    let mut site = Site::start(&broker, vec![service]);
    let running = Running::supervised(configuration, platform, supervisor);
    site.until("the member", |site| site.state(disk) == "member").await;
    assert_eq!(running.stop().await, Ending::Member);
    assert_eq!(fs::read_to_string(&tries).unwrap().lines().count(), 2, "it failed once");

    let status = listening.join().unwrap();
    assert!(status.starts_with("READY=1STATUS="), "{status}");
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("kubeadm join failed, and is reset"), "the log is there");

    let header: serde_json::Value = serde_json::from_slice(&fs::read(root.join("disk.json")).unwrap()).unwrap();
    let generation: Uuid = serde_json::from_value(header["generation"].clone()).unwrap();
    let secrets = [
        TOKEN.to_owned(),
        TOKEN.split('.').next_back().unwrap().to_owned(),
        NODE_PASSWORD.to_owned(),
        KEY_FILE.to_owned(),
        hex::encode(master().state_disk_key(disk, Some(generation.as_bytes())).expose()),
        hex::encode(master().measurement_secret().expose()),
    ];
    for (place, text) in [("log", &log), ("metrics", &site.received), ("status", &status)] {
        for secret in &secrets {
            assert!(!text.contains(secret.as_str()), "{place}: {secret}");
        }
    }
    let mut with_secrets = Vec::new();
    for path in files(root) {
        let content = fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&content);
        if secrets.iter().any(|secret| text.contains(secret.as_str())) || text.contains("PRIVATE KEY") {
            assert_eq!(mode_of(&path), Ok(0o600), "{}", path.display());
            with_secrets.push(path.strip_prefix(root).unwrap().display().to_string());
        }
    }
    with_secrets.sort();
    assert_eq!(with_secrets, ["etc/kubernetes/pki/ca.key"], "and no configuration with a token is left");
}
