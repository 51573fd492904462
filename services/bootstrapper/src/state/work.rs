//! What is done with a ticket, one step after the other.
//!
//! | kind | before the lock | after it |
//! |---|---|---|
//! | join | record "joining" | key of the disk, directories, files, components, join, record "member", token |
//! | init | record "joining" | key of the disk, directories, SSH authority, components, init, record "member", token |
//! | rejoin, recover | unlock the disk, compare its record | directories, start |
//!
//! Then the disk gets its second key, or loses it, as the ticket says. A failure of that costs nothing else.
//!
//! The token says "initialised" last of all, so whatever interrupts a host before it leaves a disk that no member needs. What fails before the lock is tried again. After the lock the disk is
//! marked for reset (of a join or an init: a member's disk never is) and the host reboots.

use std::collections::VecDeque;
use std::time::Duration;

use bootstrapper_contract::InitParameters;
use join_protocol::host::{Condition, Event as MachineEvent};
use join_protocol::message::acknowledgement::Stage;
use join_protocol::message::grant::{Component, Grant};
use join_protocol::secret::SecretBytes;
use join_protocol::selection::Selection;
use join_protocol::terms::{Kind, RequestId, Role};
use join_protocol::transcript::Hash;

use super::{Phase, State, Turn};
use crate::event::{Done, Ending, Task, TaskError};
use crate::grant::{check_grant, init_parameters};
use crate::platform::{JoinPlan, Mark};
use crate::record::{NodeRecord, Progress};

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Unlock,
    UnlockSealed,
    SaveJoining,
    Lock,
    LockAgain,
    SetKey,
    MountDirectories,
    Write,
    Install,
    Join,
    Init,
    SaveMember,
    MarkMember,
    Resume,
    Seal,
    Renew,
}

impl Step {
    /// For people.
    const fn text(self) -> &'static str {
        match self {
            Self::Unlock => "unlocking the state disk",
            Self::UnlockSealed => "unlocking the state disk by the TPM",
            Self::SaveJoining | Self::SaveMember => "writing the record of the node",
            Self::Lock | Self::LockAgain => "locking the host to the cluster",
            Self::Seal => "giving the state disk its second key",
            Self::SetKey => "giving the state disk its key",
            Self::MountDirectories => "mounting the directories of Kubernetes from the state disk",
            Self::Write => "writing the files of the ticket",
            Self::Install => "installing components",
            Self::Join => "joining the Kubernetes cluster",
            Self::Init => "making the Kubernetes cluster",
            Self::MarkMember => "marking the state disk as a member's",
            Self::Resume => "starting Kubernetes",
            Self::Renew => "putting renewed certificates in place",
        }
    }

    /// What is reached when it is done.
    const fn stage(self) -> Option<Stage> {
        match self {
            Self::SetKey => Some(Stage::DiskReady),
            Self::Install => Some(Stage::Installed),
            _ => None,
        }
    }
}

fn steps_of(kind: Kind) -> Vec<Step> {
    use Step::{
        Init, Install, Join, Lock, MarkMember, MountDirectories, Renew, Resume, SaveJoining, SaveMember, Seal, SetKey,
        Unlock, Write,
    };
    match kind {
        Kind::Join | Kind::Init => {
            let last = if kind == Kind::Join { Join } else { Init };
            vec![SaveJoining, Lock, SetKey, MountDirectories, Write, Install, last, SaveMember, MarkMember, Seal]
        }
        Kind::Rejoin | Kind::Recover => vec![Unlock, Lock, MountDirectories, Resume, Seal],
        Kind::Renew => vec![Renew],
    }
}

/// A ticket that is worked on, or a member that starts.
#[derive(Debug)]
pub(super) struct Work {
    /// None: a member that starts, without a ticket.
    pub(super) kind: Option<Kind>,
    /// The last stage that was reported.
    pub(super) stage: Option<Stage>,
    /// When it has taken too long.
    pub(super) until: Duration,
    request: Option<RequestId>,
    cluster_id: Hash,
    qualifying_data: Hash,
    /// What the second quote shows.
    selection: Option<Selection>,
    steps: VecDeque<Step>,
    running: Step,
    /// The second quote of an init, which is sent with the result.
    quote: Option<Vec<u8>>,
}

impl Work {
    pub(super) fn of_member(steps: Vec<Step>, until: Duration) -> Self {
        Self {
            kind: None,
            stage: None,
            until,
            request: None,
            cluster_id: [0; 32],
            qualifying_data: [0; 32],
            selection: None,
            steps: steps.into(),
            running: Step::Resume,
            quote: None,
        }
    }
}

impl State {
    /// A machine opened a ticket.
    pub(super) fn on_ticket(
        &mut self,
        kind: Kind,
        request: RequestId,
        (cluster_id, qualifying_data, selection): (Hash, Hash, Selection),
        turn: &mut Turn,
    ) {
        if self.work.is_some() {
            // Another ticket came first; this one is for nothing.
            return self.rest(kind, "another ticket is being worked on", turn);
        }
        let Some(session) = self.sessions.iter().find(|session| session.kind == kind) else { return };
        let checked = session.machine.grant().map(|grant| check_grant(grant, session.settings()));
        if let Some(Err(error)) = checked {
            return self.rest(kind, &format!("the ticket cannot be used: {error}"), turn);
        }
        let membership = session.machine.grant().and_then(|grant| grant.membership.as_ref());
        if let Some(version) = membership.map(|membership| membership.kubernetes_version.clone()) {
            self.node.kubernetes_version = (!version.is_empty()).then_some(version);
        }
        let until = turn.now.mono + self.settings.lock_within;
        let stage = Some(Stage::Opened);
        let (kind, request) = (Some(kind), Some(request));
        let selection = Some(selection);
        let given = Work { cluster_id, qualifying_data, selection, ..Work::of_member(Vec::new(), until) };
        let work = Work { kind, stage, request, ..given };
        self.node.stage = Some(Stage::Opened.name().to_owned());
        self.begin_work(work, turn);
    }

    /// A machine opened a ticket with certificates.
    pub(super) fn on_renewal(&mut self, request: RequestId, turn: &mut Turn) {
        let Some(session) = self.sessions.iter().find(|session| session.kind == Kind::Renew) else { return };
        let name = session.machine.renewal().map(|renewal| renewal.node_name.clone()).unwrap_or_default();
        if name != session.settings().body.node_name {
            return self.rest(Kind::Renew, &format!("the certificates are of {name:?}, which is another node"), turn);
        }
        // No longer than it is asked for at all.
        let until = session.ends_at.unwrap_or(turn.now.mono + self.settings.member_within);
        let work = Work::of_member(Vec::new(), until);
        self.node.stage = Some(Stage::Opened.name().to_owned());
        let work = Work { kind: Some(Kind::Renew), stage: Some(Stage::Opened), request: Some(request), ..work };
        self.begin_work(work, turn);
    }

    pub(super) fn begin_work(&mut self, mut work: Work, turn: &mut Turn) {
        if let Some(kind) = work.kind {
            work.steps = steps_of(kind).into();
        }
        self.work = Some(work);
        self.phase = Phase::Working;
        self.next_step(turn);
    }

    fn next_step(&mut self, turn: &mut Turn) {
        let Some(work) = &mut self.work else { return };
        let Some(step) = work.steps.pop_front() else { return self.on_member(turn) };
        work.running = step;
        let kind = work.kind;
        self.node.activity = Some(step.text().to_owned());
        if matches!(step, Step::Lock | Step::LockAgain) {
            // Before the PCR is extended; there is no way back from here.
            self.is_committed = true;
            self.unlocks_at = None;
            self.sessions.retain(|session| Some(session.kind) == kind);
        }
        match self.task_of(step) {
            Ok(Some(task)) => self.run(task),
            Ok(None) => self.on_step_ended(Ok(Done::Done), turn),
            Err(error) => self.step_failed(&error, turn),
        }
    }

    /// What a step is to do; None: nothing.
    fn task_of(&self, step: Step) -> Result<Option<Task>, TaskError> {
        let Some(work) = &self.work else { return Ok(None) };
        // Steps of a member that only starts need no ticket.
        match step {
            Step::MarkMember => return Ok(Some(Task::Mark(Mark::Initialised))),
            Step::Resume => return Ok(Some(Task::Resume)),
            Step::UnlockSealed => return Ok(Some(Task::UnlockSealed)),
            Step::LockAgain => return Ok(Some(Task::LockAgain)),
            Step::MountDirectories => {
                let is_member = !matches!(work.kind, Some(Kind::Join | Kind::Init));
                return Ok(Some(Task::MountDirectories { is_member }));
            }
            Step::Lock => {
                let (cluster_id, qualifying_data) = (work.cluster_id, work.qualifying_data);
                let selection = work.selection.clone().ok_or_else(|| TaskError("the ticket is gone".to_owned()))?;
                return Ok(Some(Task::Lock { cluster_id, qualifying_data, selection }));
            }
            _ => {}
        }
        let session = self.sessions.iter().find(|session| Some(session.kind) == work.kind);
        if step == Step::Renew {
            let renewal = session.and_then(|session| session.machine.renewal());
            let renewal = renewal.ok_or_else(|| TaskError("the ticket is gone".to_owned()))?;
            return Ok(Some(Task::Renew(Box::new(renewal.clone()))));
        }
        let Some((grant, role)) = session.and_then(|session| Some((session.machine.grant()?, session.settings().role)))
        else {
            return Err(TaskError("the ticket is gone".to_owned()));
        };
        Ok(match step {
            Step::Unlock => Some(Task::Unlock(grant.disk_key.clone())),
            Step::SetKey => Some(Task::SetKey(grant.disk_key.clone())),
            Step::SaveJoining => Some(Task::Save(self.record(Progress::Joining, grant, role)?)),
            Step::SaveMember => Some(Task::Save(self.record(Progress::Member, grant, role)?)),
            Step::Write => match &grant.membership {
                Some(membership) => Some(Task::Write(Box::new(membership.clone()))),
                None => {
                    let authority = parameters(grant)?.ssh_authority;
                    (!authority.is_empty()).then_some(Task::WriteAuthority(authority))
                }
            },
            Step::Install => {
                let components = components(grant)?;
                (!components.is_empty()).then_some(Task::Install(components))
            }
            Step::Join => {
                let membership = grant.membership.clone().unwrap_or_default();
                Some(Task::Join(Box::new(JoinPlan { role, membership })))
            }
            Step::Init => Some(Task::Init(Box::new(parameters(grant)?))),
            Step::Seal => {
                match grant.local_unlock.clone().zip(self.host.as_ref().and_then(|host| host.body.local_unlock)) {
                    Some((unlock, id)) => {
                        let (key, cluster_id) = (grant.disk_key.clone(), work.cluster_id);
                        Some(Task::Seal { key, id, unlock: Box::new(unlock), cluster_id })
                    }
                    None => self.is_sealed.then_some(Task::RemoveSealedKey),
                }
            }
            Step::Lock
            | Step::LockAgain
            | Step::UnlockSealed
            | Step::MountDirectories
            | Step::MarkMember
            | Step::Resume
            | Step::Renew => None,
        })
    }

    fn record(&self, progress: Progress, grant: &Grant, role: Role) -> Result<NodeRecord, TaskError> {
        let name = match &grant.membership {
            Some(membership) => membership.node_name.clone(),
            None => parameters(grant)?.node_name,
        };
        let salt = grant.measurement_salt.expose();
        Ok(NodeRecord::new(progress, self.settings.anchor.cluster, role, &name, salt))
    }

    pub(super) fn on_step_ended(&mut self, result: Result<Done, TaskError>, turn: &mut Turn) {
        let Some(step) = self.work.as_ref().map(|work| work.running) else { return };
        let done = match result {
            Ok(done) => done,
            Err(error) => return self.step_failed(&error, turn),
        };
        let went_on = match (step, done) {
            (Step::LockAgain, Done::Done) => return self.look_again(),
            (Step::UnlockSealed, Done::Unlocked(record)) => self.check_member(record.as_ref()).map(drop),
            (Step::Unlock, Done::Unlocked(record)) => self.check_record(record.as_ref()),
            (Step::Lock, Done::Locked(quote)) => self.on_locked(quote, turn),
            (Step::Resume, Done::Resumed(fault)) => {
                self.fault = fault;
                Ok(())
            }
            (Step::Init, Done::Kubeconfig(kubeconfig)) => self.on_initialised(&kubeconfig, turn),
            (Step::Unlock | Step::UnlockSealed | Step::Lock | Step::LockAgain | Step::Init, _) => {
                Err(TaskError("it gave no result".to_owned()))
            }
            _ => Ok(()),
        };
        if let Err(error) = went_on {
            return self.step_failed(&error, turn);
        }
        if let Some(stage) = step.stage() {
            self.reach(stage, turn);
        }
        self.next_step(turn);
    }

    /// The disk that was unlocked must be that of a member of the host's cluster.
    fn check_member<'a>(&self, record: Option<&'a NodeRecord>) -> Result<&'a NodeRecord, TaskError> {
        let wrong = |text: &str| Err(TaskError(text.to_owned()));
        let Some(record) = record else { return wrong("the state disk has no node_state.json") };
        if record.progress != Progress::Member {
            return wrong("node_state.json says that the host was never a member");
        }
        if record.cluster != self.settings.anchor.cluster {
            return wrong("the state disk belongs to a member of another cluster than the host's");
        }
        Ok(record)
    }

    /// And of the cluster of the ticket.
    fn check_record(&mut self, record: Option<&NodeRecord>) -> Result<(), TaskError> {
        let wrong = |text: &str| Err(TaskError(text.to_owned()));
        let record = self.check_member(record)?;
        let work = self.work.as_ref();
        let session = self.sessions.iter().find(|session| Some(session.kind) == work.and_then(|work| work.kind));
        let Some(grant) = session.and_then(|session| session.machine.grant()) else {
            return wrong("the ticket is gone");
        };
        let salt = hex::encode(grant.measurement_salt.expose());
        if record.measurement_salt != salt {
            return wrong("the state disk belongs to a member of another cluster than the ticket");
        }
        self.node.node_name = Some(record.node_name.clone());
        Ok(())
    }

    /// The PCR is extended.
    fn on_locked(&mut self, quote: Vec<u8>, turn: &mut Turn) -> Result<(), TaskError> {
        let Some(work) = &mut self.work else { return Ok(()) };
        work.until = turn.now.mono + self.settings.member_within;
        match work.kind {
            Some(Kind::Init) => {
                work.quote = Some(quote);
                self.reach(Stage::Locked, turn);
            }
            Some(kind) => {
                self.acknowledge(kind, quote, None, turn)?;
                if matches!(kind, Kind::Rejoin | Kind::Recover) {
                    self.reach(Stage::DiskReady, turn);
                }
            }
            None => {}
        }
        Ok(())
    }

    /// The cluster is made: the acknowledgement carries its kubeconfig.
    fn on_initialised(&mut self, kubeconfig: &SecretBytes, turn: &mut Turn) -> Result<(), TaskError> {
        let Some(quote) = self.work.as_mut().and_then(|work| work.quote.take()) else { return Ok(()) };
        self.acknowledge(Kind::Init, quote, Some(kubeconfig.expose().to_vec()), turn)
    }

    fn acknowledge(
        &mut self,
        kind: Kind,
        quote: Vec<u8>,
        result: Option<Vec<u8>>,
        turn: &mut Turn,
    ) -> Result<(), TaskError> {
        let Some(request) = self.work.as_ref().and_then(|work| work.request) else { return Ok(()) };
        self.drive(kind, MachineEvent::Locked { request, quote, result }, turn);
        let session = self.sessions.iter().find(|session| session.kind == kind);
        if session.is_none_or(|session| session.machine.condition() != Condition::Committed) {
            return Err(TaskError("the lock could not be acknowledged: quote or result is too large".to_owned()));
        }
        self.note(Stage::Locked);
        Ok(())
    }

    /// Reports a stage.
    fn reach(&mut self, stage: Stage, turn: &mut Turn) {
        self.note(stage);
        if let Some(kind) = self.work.as_ref().and_then(|work| work.kind) {
            self.drive(kind, MachineEvent::Stage(stage, String::new()), turn);
        }
    }

    /// The reported stage never goes back.
    fn note(&mut self, stage: Stage) {
        let Some(work) = &mut self.work else { return };
        if work.stage.is_none_or(|reached| reached < stage) {
            work.stage = Some(stage);
            self.node.stage = Some(stage.name().to_owned());
        }
    }

    fn on_member(&mut self, turn: &mut Turn) {
        self.reach(Stage::Member, turn);
        self.node.activity = None;
        self.node.last_error = self.fault.take();
        let had_ticket = self.work.take().is_some_and(|work| work.kind.is_some());
        tracing::info!("the host is a member");
        if let Some((disk, inspection)) = self.renews.take().filter(|_| !self.is_stopping).map(|renews| *renews) {
            tracing::info!("its certificates are to be renewed");
            return self.ask(Kind::Renew, disk, inspection, turn);
        }
        self.phase = Phase::Member { until: turn.now.mono + self.settings.linger };
        // A member without a ticket has no issuer to answer.
        if self.is_stopping || !had_ticket {
            self.report();
            self.end(Ending::Member);
        }
    }

    pub(super) fn step_failed(&mut self, error: &TaskError, turn: &mut Turn) {
        let Some(work) = &self.work else { return };
        let (kind, step) = (work.kind, work.running);
        let reason = format!("{}: {error}", step.text());
        match kind {
            // It is a member either way.
            Some(_) if step == Step::Seal => {
                tracing::warn!(reason, "the host does not come back by itself");
                self.fault.get_or_insert(reason);
                self.next_step(turn);
            }
            None if step == Step::UnlockSealed => self.locally_failed(reason),
            Some(kind) if !self.is_committed || kind == Kind::Renew => {
                self.work = None;
                self.phase = Phase::Asking;
                self.rest(kind, &reason, turn);
                // A member that has to end has nothing to finish.
                if self.is_stopping {
                    self.on_stop();
                }
            }
            kind => self.fail(&reason, matches!(kind, Some(Kind::Join | Kind::Init)), turn),
        }
    }

    /// Nothing is lost: reports why, forgets the ticket, and asks again later.
    fn rest(&mut self, kind: Kind, reason: &str, turn: &mut Turn) {
        tracing::warn!(kind = kind.name(), reason, "the ticket is given up");
        self.drive(kind, MachineEvent::Stage(Stage::Failed, reason.to_owned()), turn);
        self.node.last_error = Some(reason.to_owned());
        if self.work.is_none() {
            self.node.activity = None;
            self.node.stage = None;
        }
        let until = turn.now.mono + self.settings.retry;
        if let Some(session) = self.sessions.iter_mut().find(|session| session.kind == kind) {
            session.rest_until(until);
        }
    }
}

fn parameters(grant: &Grant) -> Result<InitParameters, TaskError> {
    init_parameters(grant).map_err(|error| TaskError(error.to_string()))
}

fn components(grant: &Grant) -> Result<Vec<Component>, TaskError> {
    match &grant.membership {
        Some(membership) => Ok(membership.components.clone()),
        None => {
            let component = |one: &bootstrapper_contract::InitComponent| {
                let sha256 = one.hash().map_err(|error| TaskError(error.to_string()))?;
                Ok(Component { url: one.url.clone(), sha256, path: one.path.clone() })
            };
            parameters(grant)?.components.iter().map(component).collect()
        }
    }
}
