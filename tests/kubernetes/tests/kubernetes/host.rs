//! The bootstrapper's installer on a host that is a directory.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use bootstrapper::adapters::kubeadm::Kubeadm;
use bootstrapper::config::{Config, KubernetesConfig};

/// The installer, with these shell scripts instead of kubeadm and systemctl. `change`: its configuration. What it writes of the kernel lies below the root, too.
pub fn installer(
    root: &Path,
    address: IpAddr,
    [kubeadm, systemctl]: [&str; 2],
    change: impl FnOnce(&mut KubernetesConfig),
) -> Kubeadm {
    for folder in ["proc/sys/vm", "proc/sys/kernel/keys", "proc/sys/net/ipv4"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let program = |name: &str, text: &str| {
        let path = root.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let mut kubernetes = KubernetesConfig {
        program: Some(program("kubeadm", kubeadm)),
        systemctl: program("systemctl", systemctl),
        ..KubernetesConfig::default()
    };
    change(&mut kubernetes);
    Kubeadm::new(&Config { kubernetes, ..Config::default() }, root, &[address])
}
