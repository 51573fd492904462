//! The program systemctl, which starts units and makes them read what has changed.

use std::path::Path;
use std::time::Duration;

use super::command::Command;
use crate::config::KubernetesConfig;
use crate::platform::{Activity, Outcome, PlatformError};

/// It reads its host certificate at its start and at a reload.
const SSH: &str = "ssh.service";

/// States of a unit that neither runs nor waits to be started again.
const STOPPED: [&str; 2] = ["inactive", "failed"];

/// See the module.
#[derive(Debug)]
pub struct Systemctl {
    program: std::path::PathBuf,
    timeout: Duration,
}

impl Systemctl {
    /// The program of this configuration; ended after `timeout`.
    #[must_use]
    pub fn new(config: &KubernetesConfig, timeout: Duration) -> Self {
        let program: &Path = &config.systemctl;
        Self { program: program.to_owned(), timeout }
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

    /// Ends these units, and keeps systemd from starting them at boot. Those that are not there are left alone.
    ///
    /// # Errors
    /// One still runs, or is about to be started again.
    pub async fn stop(&self, units: &[&str]) -> Outcome<()> {
        for unit in units {
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
        }
        Ok(())
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
