//! Decides what a host does: who it asks, what it does with a ticket, and what it does when something fails. Around [`join_protocol::host::Machine`], which knows the protocol.
//!
//! ```text
//! Looking -> Preparing -> Looking -> Asking <--> Working -- lock --> Working -> Member
//!                                       ^            |                  |
//!                                       +- failed ---+                  +- failed --> Failing: mark the disk, reboot
//! ```
//!
//! A member whose certificates have to be renewed asks as well, when it runs: `Working -> Asking <--> Working -> Member`. It is locked already, and stays a member if the renewal fails.
//!
//! Two machines may ask side by side: one the join service, one an administrator. The first ticket is worked on. The *lock* decides: the flag here is set before the PCR is
//! extended and never unset, and the other machine ends with it. From there on only a reboot leads back.

mod commands;
mod failing;
mod join_session;
mod local;
mod report;
mod work;

#[cfg(test)]
mod tests;

use std::time::Duration;

use bootstrapper_contract::HostNode;
use join_protocol::host::{Condition, Effect as MachineEffect, Event as MachineEvent, HostSettings};
use join_protocol::message::evidence::EvidenceBody;
use join_protocol::secret::{Entropy, Secret};
use join_protocol::terms::{Address, HostClock, Kind, RequestId};
use sparkplug::Now;
use sparkplug::edge_node::NodeEvent;
use uuid::Uuid;

use crate::boot::{Decision, decide};
use crate::event::{Done, Effect, Ending, Event, Inspection, Task, TaskError, TpmAnswer, TpmWork};
use crate::platform::DiskFound;
use crate::renewal::is_due;
pub use crate::settings::Settings;
use join_session::JoinSession;
use work::{Step, Work};

/// A wall clock that says less was never set: 2025-01-01, UTC ms.
const CLOCK_MIN: u64 = 1_735_689_600_000;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// Finds out what is there.
    Looking,
    /// Makes the state disk.
    Preparing,
    /// Asks for a ticket.
    Asking,
    /// Works on a ticket, or on being a member again.
    Working,
    /// Failed after the lock: marks the disk, then waits until it can be read.
    Failing { marked: bool, reboot_at: Duration, reason: String },
    /// A reboot is being asked for.
    Rebooting(String),
    /// Is a member.
    Member { until: Duration },
    /// Nothing more is done.
    Ended,
}

/// Clocks and randomness of one turn.
struct Turn {
    now: Now,
    entropy: Secret,
    drawn: u64,
}

impl Turn {
    fn entropy(&mut self) -> Entropy {
        self.drawn += 1;
        Entropy::new(*self.entropy.derive("bootstrapper turn", &self.drawn.to_be_bytes()).expose())
    }
}

/// See the module.
#[derive(Debug)]
pub struct State {
    settings: Settings,
    phase: Phase,
    /// The disk has a second key.
    is_sealed: bool,
    /// When the second key is taken, if no issuer answers.
    unlocks_at: Option<Duration>,
    /// What a member lacks: Kubernetes does not run yet, or the disk has no second key although it could.
    fault: Option<String>,
    /// Has looked around and made a disk once; a disk that is still to be made then is an error.
    prepared: bool,
    host: Option<HostSettings>,
    sessions: Vec<JoinSession>,
    work: Option<Work>,
    /// A member whose certificates are to be renewed once it runs.
    renews: Option<Box<(Uuid, Inspection)>>,
    /// The one-way lock: set before the PCR is extended, never unset.
    is_committed: bool,
    is_stopping: bool,
    task: u64,
    /// How often something was said; makes a repeat another metric than the one before.
    said: u64,
    reminded_at: Option<Duration>,
    node: HostNode,
    published: Option<HostNode>,
    /// When something was published last, and what time it is.
    published_at: Duration,
    mono: Duration,
    status: String,
    effects: Vec<Effect>,
}

impl State {
    /// A host that looks around first.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let node = HostNode {
            version: settings.version.clone(),
            state: Condition::Stopped.name().to_owned(),
            role: settings.role.name().to_owned(),
            distribution: settings.distribution.to_owned(),
            ..HostNode::default()
        };
        let mut state = Self {
            settings,
            phase: Phase::Looking,
            is_sealed: false,
            unlocks_at: None,
            fault: None,
            prepared: false,
            host: None,
            sessions: Vec::new(),
            work: None,
            renews: None,
            is_committed: false,
            is_stopping: false,
            task: 0,
            said: 0,
            reminded_at: None,
            node,
            published: None,
            published_at: Duration::ZERO,
            mono: Duration::ZERO,
            status: String::new(),
            effects: Vec::new(),
        };
        state.run(Task::Inspect);
        state
    }

    /// What the host says of itself.
    #[must_use]
    pub const fn node(&self) -> &HostNode {
        &self.node
    }

    /// True once there is no way back.
    #[must_use]
    pub const fn is_committed(&self) -> bool {
        self.is_committed
    }

    /// What is to be done, in this order.
    pub fn poll_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// When [`Event::DeadlineReached`] is due, on the monotonic clock.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let of_phase = match &self.phase {
            Phase::Failing { reboot_at, .. } => Some(*reboot_at),
            Phase::Member { until } => Some(*until),
            Phase::Working => self.work.as_ref().map(|work| work.until),
            Phase::Ended => return None,
            Phase::Asking => self.unlocks_at,
            Phase::Looking | Phase::Preparing | Phase::Rebooting(_) => None,
        };
        self.sessions.iter().filter_map(JoinSession::next_deadline).chain(of_phase).min()
    }

    /// Takes an event. `entropy`: 32 fresh random bytes.
    pub fn on_event(&mut self, event: Event, now: Now, entropy: Secret) {
        if self.phase == Phase::Ended {
            return;
        }
        let mut turn = Turn { now, entropy, drawn: 0 };
        self.mono = now.mono;
        match event {
            Event::Node(NodeEvent::Command { device: None, metrics, .. }) => self.on_command(&metrics, &mut turn),
            Event::Node(_) => {}
            Event::Tpm { kind, request, result } => self.on_tpm(kind, request, result, &mut turn),
            Event::TaskEnded { number, result } if number == self.task => self.on_ended(result, &mut turn),
            // Of a task that was given up.
            Event::TaskEnded { .. } => {}
            Event::Activity(text) => self.on_activity(text, &mut turn),
            Event::DeadlineReached => self.on_deadline(&mut turn),
            Event::Stop => self.on_stop(),
        }
        self.report();
    }

    fn run(&mut self, task: Task) {
        self.task += 1;
        self.effects.push(Effect::Run { number: self.task, task });
    }

    /// The running task is over, whatever it still does.
    fn cancel(&mut self) {
        self.task += 1;
        self.effects.push(Effect::Cancel);
    }

    fn end(&mut self, ending: Ending) {
        self.phase = Phase::Ended;
        self.report();
        self.effects.push(Effect::End(ending));
    }

    fn on_ended(&mut self, result: Result<Done, TaskError>, turn: &mut Turn) {
        match (&self.phase, result) {
            (Phase::Looking, Ok(Done::Inspected(inspection))) => self.on_inspected(*inspection, turn),
            (Phase::Preparing, Ok(_)) => {
                self.prepared = true;
                self.phase = Phase::Looking;
                self.run(Task::Inspect);
            }
            (Phase::Looking | Phase::Preparing, Err(error)) => self.end(Ending::Blocked(error.0)),
            (Phase::Working, result) => self.on_step_ended(result, turn),
            (Phase::Failing { .. }, result) => self.on_marked(result.err(), turn),
            (Phase::Rebooting(reason), result) => {
                let reason = match result {
                    Ok(_) => reason.clone(),
                    Err(error) => format!("{reason}; and the reboot failed: {error}"),
                };
                self.end(Ending::Reboot(reason));
            }
            (Phase::Asking, Err(error)) => {
                tracing::warn!(%error, "the state disk is not closed, or its second key is still there");
                // The next refusal tries it again.
                self.is_sealed = true;
            }
            (Phase::Looking | Phase::Asking | Phase::Member { .. } | Phase::Ended, _) => {}
        }
    }

    fn on_inspected(&mut self, inspection: Inspection, turn: &mut Turn) {
        let decision = decide(inspection.locked, inspection.disk, inspection.record.as_ref());
        let DiskFound::Ours { uuid, second_key, .. } = inspection.disk else {
            return match decision {
                Decision::Blocked(reason) => self.end(Ending::Blocked(reason.to_owned())),
                _ if self.prepared => self.end(Ending::Blocked("the state disk is blank again".to_owned())),
                _ => self.prepare(inspection.disk),
            };
        };
        let is_sealed = second_key.is_some();
        self.is_sealed = is_sealed;
        match decision {
            Decision::Blocked(reason) => self.end(Ending::Blocked(reason.to_owned())),
            Decision::Prepare if self.prepared => {
                self.end(Ending::Blocked("the state disk was formatted again and still cannot be used".to_owned()));
            }
            Decision::Prepare => self.prepare(inspection.disk),
            Decision::Join => self.ask(Kind::Join, uuid, inspection, turn),
            Decision::Rejoin => {
                let after = self.settings.local_unlock_after.filter(|_| is_sealed);
                self.unlocks_at = after.map(|after| turn.now.mono + after);
                self.ask(Kind::Rejoin, uuid, inspection, turn);
            }
            Decision::Member { unmarked } => {
                self.is_committed = true;
                let believed = self.settings.clock_believed && turn.now.wall >= CLOCK_MIN;
                let is_due = || is_due(&inspection.certificates, self.settings.renew_percent, turn.now.wall);
                // A host that can come back without being asked learns by this whether it still may.
                if is_sealed || (believed && is_due()) {
                    self.renews = Some(Box::new((uuid, inspection)));
                }
                let marked = unmarked.then_some(Step::MarkMember);
                let steps = marked.into_iter().chain([Step::MountDirectories, Step::Resume]).collect();
                self.begin_work(Work::of_member(steps, turn.now.mono + self.settings.member_within), turn);
            }
            Decision::Interrupted => {
                self.birth(uuid, &inspection);
                self.is_committed = true;
                self.fail("the host was interrupted after its lock and before it was a member", true, turn);
            }
        }
    }

    fn prepare(&mut self, disk: DiskFound) {
        self.phase = Phase::Preparing;
        self.run(Task::Prepare(disk));
    }

    fn ask(&mut self, kind: Kind, disk: Uuid, inspection: Inspection, turn: &mut Turn) {
        self.birth(disk, &inspection);
        let Inspection { keys, identity, disk: found, record, .. } = inspection;
        // The first member is a control plane, whatever its bootstrapper is configured for.
        let recorded = record.filter(|_| kind == Kind::Renew).and_then(|record| record.known_role());
        let (disk_generation, second_key) = match found {
            DiskFound::Ours { generation, second_key, .. } => (generation.map(Uuid::into_bytes), second_key),
            DiskFound::Blank => (None, None),
        };
        // A ticket makes a new one, at most once in a boot; a renewal is about the one that is there.
        let id = if kind == Kind::Renew { second_key } else { Some(identity.boot) };
        let settings = HostSettings {
            address: Address::of_disk(&*self.settings.group, disk),
            disk,
            kind,
            role: recorded.unwrap_or(self.settings.role),
            suites: self.settings.suites.clone(),
            variant: keys.variant,
            attestation_key: keys.attestation,
            endorsement_key: keys.endorsement,
            endorsement_certificates: keys.certificates,
            lock_pcr: keys.lock_pcr,
            body: EvidenceBody {
                boot: identity.boot,
                node_name: identity.node_name,
                certificate_request: identity.certificate_request,
                ssh_host_key: identity.ssh_host_key,
                principals: identity.principals,
                node_password_hash: None,
                disk_generation,
                local_unlock: id.filter(|_| keys.seals && self.settings.local_unlock_after.is_some()),
            },
            anchor: self.settings.anchor.clone(),
        };
        self.node.kind = kind.name().to_owned();
        self.host = Some(settings.clone());
        self.phase = Phase::Asking;
        // A member continues either way, and checks its certificates again at its next start.
        let ends_at = (kind == Kind::Renew).then_some(turn.now.mono + self.settings.member_within);
        self.sessions.push(JoinSession::new(settings, ends_at));
        self.drive(kind, MachineEvent::Start, turn);
    }

    fn on_tpm(&mut self, kind: Kind, request: RequestId, result: Result<TpmAnswer, TaskError>, turn: &mut Turn) {
        let event = match result {
            Ok(TpmAnswer::Secret(secret)) => MachineEvent::CredentialActivated(request, secret),
            Ok(TpmAnswer::Quote(quote)) => MachineEvent::Quoted(request, quote),
            Err(error) => {
                self.node.last_error = Some(error.0.clone());
                MachineEvent::TpmFailed(request, error.0)
            }
        };
        self.drive(kind, event, turn);
    }

    fn on_activity(&mut self, text: String, turn: &mut Turn) {
        let Some(work) = self.work.as_ref().filter(|_| self.phase == Phase::Working) else { return };
        let (kind, stage) = (work.kind, work.stage);
        self.node.activity = Some(text.clone());
        if let (Some(kind), Some(stage)) = (kind, stage) {
            self.drive(kind, MachineEvent::Stage(stage, text), turn);
        }
    }

    fn on_deadline(&mut self, turn: &mut Turn) {
        let mono = turn.now.mono;
        match &self.phase {
            Phase::Failing { marked: true, reboot_at, reason } if *reboot_at <= mono => {
                return self.reboot(reason.clone());
            }
            // The disk does not answer; the reboot is what helps.
            Phase::Failing { marked: false, reboot_at, .. } if *reboot_at <= mono => {
                self.cancel();
                return self.on_marked(Some(TaskError("the state disk could not be marked in time".to_owned())), turn);
            }
            Phase::Member { until } if *until <= mono => return self.end(Ending::Member),
            Phase::Asking if self.unlocks_at.is_some_and(|at| at <= mono) => return self.unlock_locally(turn),
            Phase::Working if self.work.as_ref().is_some_and(|work| work.until <= mono) => {
                self.cancel();
                return self.step_failed(&TaskError("it took too long".to_owned()), turn);
            }
            _ => {}
        }
        let kinds: Vec<Kind> =
            self.sessions.iter().filter(|session| session.is_due(mono)).map(|session| session.kind).collect();
        for kind in kinds {
            self.on_track_due(kind, turn);
        }
    }

    fn on_track_due(&mut self, kind: Kind, turn: &mut Turn) {
        let mono = turn.now.mono;
        let worked_on = self.work.as_ref().is_some_and(|work| work.kind == Some(kind));
        let Some(session) = self.sessions.iter_mut().find(|session| session.kind == kind) else { return };
        if session.ends_at.is_some_and(|at| at <= mono) {
            session.ends_at = None;
            if !worked_on {
                self.sessions.retain(|session| session.kind != kind);
                if kind == Kind::Renew {
                    tracing::warn!("the certificates are not renewed; the next start tries again");
                    self.end(Ending::Member);
                }
                return;
            }
        }
        let event = if session.restart(mono) { MachineEvent::Start } else { MachineEvent::Timer };
        self.drive(kind, event, turn);
    }

    fn on_stop(&mut self) {
        match &self.phase {
            Phase::Member { .. } => self.end(Ending::Member),
            // It is a member, whatever its certificates are.
            Phase::Asking if self.is_committed => self.end(Ending::Member),
            Phase::Failing { marked: true, reason, .. } => {
                let reason = format!("{reason}; the host has to be rebooted");
                self.end(Ending::Blocked(reason));
            }
            // It finishes, or marks.
            _ if self.is_committed => self.is_stopping = true,
            _ => self.end(Ending::Stopped),
        }
    }

    /// Gives a machine an event and carries out what it wants.
    fn drive(&mut self, kind: Kind, event: MachineEvent<'_>, turn: &mut Turn) {
        let effects = self.effects_of(kind, event, turn);
        self.carry_out(kind, effects, turn);
    }

    fn effects_of(&mut self, kind: Kind, event: MachineEvent<'_>, turn: &mut Turn) -> Vec<MachineEffect> {
        let clock = match turn.now.wall {
            wall if self.settings.clock_believed && wall >= CLOCK_MIN => HostClock::Trusted(wall),
            _ => HostClock::Unset,
        };
        let entropy = turn.entropy();
        let Some(session) = self.sessions.iter_mut().find(|session| session.kind == kind) else { return Vec::new() };
        let effects = session.machine.on_event(event, turn.now.mono, clock, entropy);
        if session.counts_attempt() {
            self.node.attempts += 1;
        }
        effects
    }

    fn carry_out(&mut self, kind: Kind, effects: Vec<MachineEffect>, turn: &mut Turn) {
        for effect in effects {
            match effect {
                MachineEffect::Publish(message) => self.publish(&message),
                MachineEffect::ActivateCredential { request, credential } => {
                    self.effects.push(Effect::Tpm { kind, request, work: TpmWork::Activate(credential) });
                }
                MachineEffect::Quote { request, variant, qualifying_data, selection } => {
                    let work = TpmWork::Quote(qualifying_data, selection, variant);
                    self.effects.push(Effect::Tpm { kind, request, work });
                }
                MachineEffect::Lock { request, cluster_id, qualifying_data, selection } => {
                    self.on_ticket(kind, request, (cluster_id, qualifying_data, selection), turn);
                }
                MachineEffect::Renew { request } => self.on_renewal(request, turn),
                MachineEffect::Refused(refusal) => {
                    self.node.refusals += 1;
                    tracing::warn!(kind = kind.name(), refusal = %refusal, "refused");
                    self.obey(kind, refusal.code);
                    self.node.last_error = Some(format!("{kind} refused: {refusal}"));
                }
                MachineEffect::Hindered { reason } => self.hindered(reason),
                MachineEffect::Ignored { message, reason } => self.ignored(&format!("{message}: {reason}")),
            }
        }
    }
}
