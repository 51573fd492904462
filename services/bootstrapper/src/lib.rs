//! The host's side of an attested join: proves what the machine is, takes its ticket, locks the machine to its cluster and makes it a member.
//!
//! ```text
//!   TPM, state disk, Kubernetes                                          Sparkplug: <organisation>-<cluster>-Join/<disk uuid>
//!   platform.rs (traits)                                                 adapters/sparkplug.rs
//!        ^      |  inspection, results                                     ^                     | Join/Challenge, Join/Ticket, Host/Administrator
//!        |      v                                                          |                     v
//!   adapters/tasks.rs  <---- Effect::Run, Effect::Tpm ----  state.rs  ---- Effect::Node (Join/Hello, Join/Evidence, ..., Host/...)
//!                                                             |
//!                                                join_protocol::host::Machine
//! ```
//!
//! 1. *Look* (`boot.rs`): lock PCR, state disk and the record on it show the state of the host. It has to be joined, is a member that waits for the key of its disk, is a member already, or
//!    was interrupted. What cannot be read is reported and ends the process; it is never taken for an empty disk.
//! 2. *Ask* (`state.rs`): the machine of the join protocol speaks with the join service. When an administrator says so, a second machine asks the administrator as well.
//! 3. *Work* (`state/work.rs`): the ticket is checked (`grant.rs`), then one step follows the other. The lock is the point of no return. Before it a failure is reported and the step tried again;
//!    after it the disk is marked for reset and the host reboots.
//!    A member whose certificates are past two thirds of their validity asks for others in the same way (`renewal.rs`). No lock follows, and a failure costs nothing.
//! 4. *Report* (`state/report.rs`): every step is a metric, so that a dashboard shows a host's way in.
//!
//! `event.rs` lists all that comes in and goes out; `platform.rs` says what a host has; `adapters/simulated.rs` is a host that is not there. There is no `reconcile.rs`: what is desired
//! is one thing, being a member, and the protocol says what is next.
//!
//! Guaranteed: the token of the disk says "initialised" last of all. So a host that is killed at any step either continues, or begins again with a disk that no member needs
//! (`state/work.rs`). A member's disk is never formatted again (`boot.rs`). No log, metric, error or argument of a command holds a secret.
#![warn(unreachable_pub)]

pub mod adapters;
mod boot;
pub mod config;
pub mod event;
mod grant;
mod luks;
pub mod platform;
mod record;
mod renewal;
mod settings;
mod state;

use std::time::Duration;

use anyhow::Context as _;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use join_protocol::secret::Secret;
use service_runtime::exit;
use service_runtime::health::{self, Health};
use service_runtime::service::{self, ServiceIo};
use service_runtime::shutdown::Shutdown;
use sparkplug::edge_node::NodeEvent;
use sparkplug_mqtt::Clock;
use tokio::sync::mpsc;

pub use config::Config;
pub use event::Ending;
pub use platform::Platform;
pub use state::{Settings, State};

use adapters::sparkplug::Session;
use adapters::supervisor::Supervisor;
use adapters::tasks::{Parts, Tasks};
use event::{Effect, Event};

/// Reports of installers that are not read yet; more are dropped, the latest comes again soon.
const ACTIVITIES_MAX: usize = 16;

/// Health component: the Edge Node.
const MQTT: &str = "bootstrapper_mqtt";

/// Runs the bootstrapper until the host is a member, has to be rebooted, cannot be joined, or `stop`; returns when its death is published.
///
/// A simulated host that ended with [`Ending::Reboot`] is to be rebooted and run again by the caller.
///
/// # Errors
/// The configuration is not usable, the address for health is taken, or the stored bdSeq cannot be read.
pub async fn run(config: Config, platform: Platform, supervisor: Supervisor, stop: Shutdown) -> anyhow::Result<Ending> {
    let unusable =
        |error| exit::with_code(exit::CONFIG, anyhow::Error::new(error).context("the configuration is not usable"));
    let checked = config.validate().map_err(unusable)?;
    let health = Health::new();
    health.component(MQTT, false, "waits until the state disk is known");
    if let Some(address) = config.http.listen {
        let serving = health::serve(address, health.clone(), stop.child()).await;
        serving.map_err(|error| exit::with_code(exit::UNAVAILABLE, error))?;
    }
    let clock = Clock::new();
    let Platform { attester, disk, installer, reboot, root, boot } = platform;
    let session = Session::new(checked.group.clone(), config.mqtt.clone(), config.state_dir.to_path_buf(), clock);
    let (say, said) = mpsc::channel(ACTIVITIES_MAX);
    let mut state = State::new(checked.settings.clone());
    let parts = Parts { attester, disk, installer, reboot, root, boot };
    let alive_at = supervisor.interval().map(|interval| clock.now().mono + interval);
    let tasks = Tasks::new(parts, config, checked, say);
    let mut io = Io { session, tasks, said, supervisor, alive_at, clock, ending: None, health };
    io.supervisor.ready();
    service::serve(&mut state, &mut io, clock, &stop).await?;
    io.supervisor.stopping();
    io.session.stop().await;
    io.ending.context("the bootstrapper ended without saying how")
}

service_runtime::service_core!(State, Event, Effect, stop: Event::Stop, entropy: fresh_entropy);

fn fresh_entropy() -> anyhow::Result<Secret> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow::anyhow!("the system has no randomness"))?;
    Ok(Secret::new(bytes))
}

/// Everything outside of the state.
struct Io {
    session: Session,
    tasks: Tasks,
    /// What installers say.
    said: mpsc::Receiver<String>,
    supervisor: Supervisor,
    /// When the supervisor gets the next sign of life.
    alive_at: Option<Duration>,
    clock: Clock,
    ending: Option<Ending>,
    health: Health,
}

impl ServiceIo for Io {
    type Core = State;

    async fn recv(&mut self) -> anyhow::Result<Event> {
        loop {
            return Ok(tokio::select! {
                biased;
                () = self.clock.sleep_until(self.alive_at), if self.alive_at.is_some() => {
                    self.supervisor.alive();
                    self.alive_at = self.supervisor.interval().map(|interval| self.clock.now().mono + interval);
                    continue;
                }
                event = self.session.recv() => Event::Node(event?),
                Some(text) = self.said.recv() => Event::Activity(text),
                event = self.tasks.next() => event?,
            });
        }
    }

    async fn execute(&mut self, effect: Effect) -> anyhow::Result<()> {
        match effect {
            // Nothing is done after the end.
            _ if self.ending.is_some() => {}
            Effect::Birth { disk, metrics } => {
                self.health.component(MQTT, false, "connecting");
                self.session.start(disk, metrics)?;
            }
            Effect::Node(update) => self.session.update(update).await?,
            Effect::Tpm { kind, request, work } => self.tasks.ask_tpm(kind, request, work),
            Effect::Run { number, task } => self.tasks.run(number, task),
            Effect::Cancel => self.tasks.cancel(),
            Effect::Status(text) => {
                tracing::info!(status = text, "bootstrapper");
                self.supervisor.status(&text);
            }
            Effect::End(ending) => self.ending = Some(ending),
        }
        Ok(())
    }

    fn has_ended(&self, _is_stopping: bool) -> bool {
        self.ending.is_some()
    }

    fn report(&mut self, event: &Event) {
        match event {
            Event::Node(NodeEvent::Rejected { topic, reason }) => tracing::warn!(topic, reason, "message dropped"),
            Event::Node(event) => service::report_node(&self.health, MQTT, event),
            _ => {}
        }
    }
}
