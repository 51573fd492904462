//! The program systemctl, which starts units and makes them read what has changed.
//!
//! systemd starts a unit of Kubernetes only on a host that is attested in this boot: a drop-in of each unit (`systemd/kubelet.service.d`) asserts that `ATTESTED` is there. A host with a unit
//! that has no such drop-in is refused, because the unit could run before anything of this program does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::command::Command;
use super::files::{below, remove, write};
use crate::config::KubernetesConfig;
use crate::platform::{Activity, Outcome, PlatformError};

/// It reads its host certificate at its start and at a reload.
const SSH: &str = "ssh.service";

/// The file that lets systemd start Kubernetes in this boot. The drop-ins name it, so it lies nowhere else.
const ATTESTED: &str = "/run/sparkfleet/attested";
/// The drop-in of a unit that waits for it.
const DROP_IN: &str = "50-attested.conf";

/// States of a unit that neither runs nor waits to be started again.
const STOPPED: [&str; 2] = ["inactive", "failed"];

/// See the module.
#[derive(Debug)]
pub struct Systemctl {
    program: PathBuf,
    attested: PathBuf,
    timeout: Duration,
}

impl Systemctl {
    /// The program of this configuration on the host with this root directory; ended after `timeout`.
    #[must_use]
    pub fn new(config: &KubernetesConfig, root: &Path, timeout: Duration) -> Self {
        Self { program: config.systemctl.clone(), attested: below(root, Path::new(ATTESTED)), timeout }
    }

    /// Lets systemd start Kubernetes until the next boot: the host is attested, and the directories lie on its state disk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn release(&self) -> Outcome<()> {
        write(&self.attested, b"", 0o644)
    }

    /// Runs it.
    ///
    /// # Errors
    /// It cannot be run, or did not succeed in time.
    pub async fn run(&self, arguments: &[&str]) -> Outcome<()> {
        self.command(arguments).succeed().await.map(drop)
    }

    /// What systemd calls the state of a unit: `active`, `activating`, `inactive` and others.
    ///
    /// # Errors
    /// It cannot be asked.
    pub async fn state(&self, unit: &str) -> Outcome<String> {
        let state = self.command(&["show", "--property=ActiveState", "--value", unit]).succeed().await?;
        Ok(String::from_utf8_lossy(&state).trim().to_owned())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        Command::new(&self.program, self.timeout).arguments(arguments)
    }

    /// Ends these units, and keeps systemd from starting them before the host is attested. Those that are not there are left alone.
    ///
    /// # Errors
    /// One still runs, is about to be started again, or has no drop-in that holds it back at the next boot.
    pub async fn stop(&self, units: &[&str]) -> Outcome<()> {
        remove(&self.attested)?;
        for unit in units {
            let found = self.found(unit).await?;
            if found.is_enabled {
                tracing::warn!(unit, "is enabled, and only the bootstrapper may start it: it is disabled");
            }
            // Both fail for a unit that is not there, and the first on a root that cannot be written; what counts is whether it runs.
            for arguments in [["disable", unit], ["stop", unit]] {
                if let Err(error) = self.run(&arguments).await {
                    tracing::debug!(unit, command = arguments[0], %error, "was not carried out");
                }
            }
            let state = self.state(unit).await?;
            if !STOPPED.contains(&&*state) {
                let text = format!("{unit} runs although the host is not attested, and does not stop");
                return Err(PlatformError(format!(
                    "{text} (its state is {state:?}): disable it in the image of the host"
                )));
            }
            if !found.is_held {
                let text =
                    format!("{unit} has no drop-in {DROP_IN}, so systemd could start it before the host is attested");
                return Err(PlatformError(format!(
                    "{text}: put that of the package into the image of the host (/etc/systemd/system/{unit}.d), or mask the unit"
                )));
            }
        }
        Ok(())
    }

    /// What systemd has of a unit.
    async fn found(&self, unit: &str) -> Outcome<Found> {
        let properties = ["show", "--property=LoadState", "--property=UnitFileState", "--property=DropInPaths", unit];
        let shown = self.command(&properties).succeed().await?;
        let shown = String::from_utf8_lossy(&shown);
        let value = |name| shown.lines().find_map(|line| line.split_once('=').filter(|(key, _)| *key == name));
        let value = |name| value(name).map_or("", |(_, value)| value);
        let has_drop_in = value("DropInPaths").split(' ').any(|path| Path::new(path).ends_with(DROP_IN));
        Ok(Found {
            is_enabled: value("UnitFileState").starts_with("enabled"),
            // Another state than loaded (not-found, masked, bad-setting) is never started.
            is_held: value("LoadState") != "loaded" || has_drop_in,
        })
    }

    /// Makes SSH and these units read renewed certificates. A unit that cannot be reloaded reads them at its next start.
    pub async fn renewed(&self, units: &[&str], activity: &Activity) {
        for unit in [SSH].iter().chain(units) {
            activity.say(format!("making {unit} read the renewed certificates"));
            if let Err(error) = self.run(&["try-reload-or-restart", "--no-block", unit]).await {
                tracing::warn!(unit, %error, "was not made to read the renewed certificates");
            }
        }
    }
}

/// What systemd has of a unit.
struct Found {
    /// It is started at boot.
    is_enabled: bool,
    /// It cannot be started on a host that is not attested.
    is_held: bool,
}
