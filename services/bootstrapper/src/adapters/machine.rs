//! The machine that the program runs on: its TPM, its disk, its Kubernetes, its power switch.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use uuid::Uuid;

use super::command::Command;
use super::cryptsetup::CryptsetupDisk;
use super::files::below;
use super::k3s::K3s;
use super::kubeadm::Kubeadm;
use crate::config::{Checked, Config, Distribution};
use crate::platform::{Attester, Installer, Outcome, Platform, Reboot};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The power switch of a machine with systemd.
#[derive(Debug)]
struct Systemd {
    systemctl: PathBuf,
    timeout: Duration,
}

impl Reboot for Systemd {
    fn reboot<'a>(&'a mut self, reason: &'a str) -> BoxFuture<'a, Outcome<()>> {
        tracing::error!(reason, "rebooting");
        let command = Command::new(&self.systemctl, self.timeout).arguments(["--no-block", "reboot"]);
        async move { command.succeed().await.map(drop) }.boxed()
    }
}

/// Everything that the configuration names. Nothing of it is touched yet.
///
/// # Errors
/// There is no boot id, or the program was built without the feature `tpm`.
pub fn platform(config: &Config, checked: &Checked) -> anyhow::Result<Platform> {
    let root = config.paths.root.clone();
    let boot_id = below(&root, Path::new(BOOT_ID));
    let boot = std::fs::read_to_string(&boot_id).with_context(|| format!("cannot read {}", boot_id.display()))?;
    let boot: Uuid = boot.trim().parse().with_context(|| format!("{} holds no UUID", boot_id.display()))?;
    Ok(Platform {
        attester: attester(config, checked)?,
        disk: Box::new(CryptsetupDisk::new(config, &root)),
        installer: installer(config, checked, &root),
        reboot: Box::new(Systemd {
            systemctl: config.kubernetes.systemctl.clone(),
            timeout: Duration::from_millis(config.timeouts.command_ms),
        }),
        boot: *boot.as_bytes(),
        root,
    })
}

fn installer(config: &Config, checked: &Checked, root: &Path) -> Box<dyn Installer> {
    match config.kubernetes.distribution {
        Distribution::Kubeadm => Box::new(Kubeadm::new(config, root, &checked.addresses)),
        Distribution::K3s => Box::new(K3s::new(config, root, &checked.addresses, checked.settings.role)),
    }
}

#[cfg(feature = "tpm")]
fn attester(config: &Config, checked: &Checked) -> anyhow::Result<Box<dyn Attester>> {
    Ok(Box::new(super::tpm::TpmAttester::new(&config.attestation, checked.lock_before.clone())))
}

#[cfg(not(feature = "tpm"))]
fn attester(_: &Config, _: &Checked) -> anyhow::Result<Box<dyn Attester>> {
    use service_runtime::exit;
    let error = anyhow::anyhow!("this program was built without a TPM: build it with `--features tpm`");
    Err(exit::with_code(exit::CONFIG, error))
}
