//! The model: what a host has, who answers it, and what goes wrong.

use std::collections::VecDeque;
use std::time::Duration;

use bootstrapper_contract::{HostNode, names};
use join_protocol::message::acknowledgement::Stage;
use join_protocol::message::hello::Hello;
use join_protocol::message::renewal::Renewal;
use join_protocol::metrics::HostMessage;
use join_protocol::secret::Secret;
use join_protocol::simulated::{SimulatedTpm, SimulatedVerifier};
use join_protocol::terms::{Address, Kind, Role, Suite, Variant};
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::{Metric, Now, TypedMetrics as _};
use uuid::Uuid;

use super::issuer::{CLUSTER, GROUP, TestIssuer, anchor, master};
use crate::event::{Done, Effect, Ending, Event, Identity, Inspection, Task, TaskError, TpmAnswer, TpmWork};
use crate::platform::{AttesterKeys, DiskFound, Mark};
use crate::record::{NodeRecord, Progress};
use crate::renewal::ValidityPeriod;
use crate::state::{Settings, State};

pub(super) const DISK: Uuid = Uuid::from_u128(0xD15C);
/// Of every boot, as a second key is named by that in which it was made.
const BOOT: [u8; 16] = [1; 16];
pub(super) const GENERATION: [u8; 16] = [0x6E; 16];
pub(super) const START_MS: u64 = 1_800_000_000_000;
/// More turns than any run takes.
const TURNS_MAX: usize = 10_000;

/// What goes wrong, at the task of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// It fails so often.
    Fails(&'static str, usize),
    /// It never ends.
    Hangs(&'static str),
    /// The process is killed; the task is done, or not.
    Kills(&'static str, bool),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Run {
    Ended(Ending),
    Killed,
}

/// What a host keeps over the end of a process; some of it not over the end of a boot.
pub(super) struct Host {
    tpm: SimulatedTpm,
    pub locked: bool,
    pub mark: Option<Mark>,
    key: Option<Secret>,
    pub open: bool,
    /// The directories of Kubernetes lie on the disk.
    mounted: bool,
    pub record: Option<NodeRecord>,
    /// What the lock PCR is extended with by the second key, if the disk has one.
    pub sealed: Option<join_protocol::transcript::Hash>,
    /// PCRs are not as they were when it was sealed.
    pub has_other_image: bool,
    pub certificates: Vec<ValidityPeriod>,
    pub renewed: Vec<Renewal>,
    pub reboots: usize,
    /// Why Kubernetes does not run after its start.
    pub fault: Option<String>,
}

pub(super) struct World {
    state: Option<State>,
    queue: VecDeque<Event>,
    now: Duration,
    drawn: u64,
    pub host: Host,
    pub join_service: TestIssuer,
    pub administrator: TestIssuer,
    pub join_service_answers: bool,
    pub administrator_answers: bool,
    pub ask_administrator_at_once: bool,
    /// How much the host's clock is ahead.
    pub ahead_ms: u64,
    pub stop_at: Option<&'static str>,
    pub failure: Option<Failure>,
    pub also: Option<Failure>,
    pub tasks: Vec<&'static str>,
    pub stages: Vec<(Stage, String)>,
    pub hellos: Vec<Kind>,
    /// Roles that the hellos ask for.
    pub roles: Vec<Role>,
    /// Data messages.
    pub said: usize,
    /// Everything that was to be done, as it is shown in logs.
    pub shown: String,
    node: Option<HostNode>,
}

pub(super) fn name_of(task: &Task) -> &'static str {
    match task {
        Task::Inspect => "inspect",
        Task::Prepare(_) => "prepare",
        Task::Unlock(_) => "unlock",
        Task::UnlockSealed => "unlock sealed",
        Task::LockAgain => "lock again",
        Task::Seal { .. } => "seal",
        Task::RemoveSealedKey => "remove sealed",
        Task::Close { removes_sealed_key: false } => "close",
        Task::Close { removes_sealed_key: true } => "close and remove sealed",
        Task::Save(record) if record.progress == Progress::Joining => "save joining",
        Task::Save(_) => "save member",
        Task::Lock { .. } => "lock",
        Task::SetKey(_) => "set-key",
        Task::MountDirectories { .. } => "mount-directories",
        Task::Write(_) => "write",
        Task::WriteAuthority(_) => "write-authority",
        Task::Install(_) => "install",
        Task::Join(_) => "join",
        Task::Init(_) => "init",
        Task::Resume => "resume",
        Task::Mark(Mark::Initialised) => "mark initialised",
        Task::Mark(Mark::Reset) => "mark reset",
        Task::Mark(Mark::New) => "mark new",
        Task::Renew(_) => "renew",
        Task::Reboot(_) => "reboot",
    }
}

fn settings() -> Settings {
    let s = Duration::from_secs;
    Settings {
        group: GROUP.to_owned(),
        anchor: anchor(),
        clock_believed: true,
        role: Role::Worker,
        suites: vec![Suite::X25519],
        distribution: "k3s",
        version: "0".to_owned(),
        retry: s(30),
        local_unlock_after: Some(s(60)),
        lock_within: s(120),
        member_within: s(900),
        renew_percent: 66,
        reboot_after: s(60),
        linger: s(0),
        administrator_for: s(600),
    }
}

impl World {
    /// A host that is to do this: new for a join or an init, a member after a reboot for the others.
    pub(super) fn new(kind: Kind) -> Self {
        let issuer = |new: fn(Variant, Box<dyn join_protocol::attestation::Verifier + Send>) -> TestIssuer| {
            let mut issuer = new(Variant::Simulated, Box::<SimulatedVerifier>::default());
            let component = join_protocol::message::grant::Component {
                url: "https://mirror.example/k3s".to_owned(),
                sha256: [7; 32],
                path: "/usr/local/bin/k3s".to_owned(),
            };
            issuer.parameters.ssh_authority = "ssh-ed25519 AAAA".to_owned();
            issuer.parameters.components = vec![bootstrapper_contract::InitComponent {
                url: component.url.clone(),
                sha256: hex::encode(component.sha256),
                path: component.path.clone(),
            }];
            issuer.change = Some(Box::new(move |grant| {
                grant.membership.iter_mut().for_each(|membership| membership.components = vec![component.clone()]);
            }));
            issuer
        };
        let is_member = matches!(kind, Kind::Rejoin | Kind::Recover);
        let record =
            || NodeRecord::new(Progress::Member, CLUSTER, Role::Worker, "edge-1", &master().measurement_salt());
        let by_administrator = matches!(kind, Kind::Init | Kind::Recover);
        Self {
            state: None,
            queue: VecDeque::new(),
            now: Duration::ZERO,
            drawn: 0,
            host: Host {
                tpm: SimulatedTpm::new(&Secret::new([3; 32])).unwrap(),
                locked: false,
                mounted: false,
                mark: is_member.then_some(Mark::Initialised),
                key: is_member.then(|| Secret::new(*master().state_disk_key(DISK, Some(&GENERATION)).expose())),
                open: false,
                record: is_member.then(record),
                sealed: None,
                has_other_image: false,
                certificates: Vec::new(),
                renewed: Vec::new(),
                reboots: 0,
                fault: None,
            },
            join_service: issuer(TestIssuer::join_service),
            administrator: issuer(TestIssuer::administrator),
            join_service_answers: !by_administrator,
            administrator_answers: true,
            ask_administrator_at_once: by_administrator,
            ahead_ms: 0,
            stop_at: None,
            failure: None,
            also: None,
            tasks: Vec::new(),
            stages: Vec::new(),
            hellos: Vec::new(),
            roles: Vec::new(),
            said: 0,
            shown: String::new(),
            node: None,
        }
    }

    pub(super) fn state(&self) -> &State {
        self.state.as_ref().unwrap()
    }

    /// The kind that a dashboard sees.
    pub(super) fn kind(&self) -> &str {
        self.node.as_ref().map_or("", |node| &node.kind)
    }

    /// What a dashboard sees.
    pub(super) const fn dashboard(&self) -> Option<&HostNode> {
        self.node.as_ref()
    }

    pub(super) fn kinds_received(&self) -> Vec<Kind> {
        let mut kinds = self.hellos.clone();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// A boot ends.
    pub(super) fn power_off(&mut self) {
        self.host.tpm.reboot();
        (self.host.locked, self.host.open) = (false, false);
    }

    /// Starts the process and runs it to its end.
    pub(super) fn run(&mut self) -> Run {
        self.start();
        self.go(None).unwrap_or_else(|| panic!("it does not end: {:?}", self.tasks))
    }

    /// Starts processes, and reboots where it is asked for, until the host is a member.
    pub(super) fn run_to_the_end(&mut self, what: &str) {
        for _ in 0..5 {
            match self.run() {
                Run::Ended(Ending::Member) => return,
                Run::Ended(Ending::Reboot(_)) => self.power_off(),
                other => panic!("{what}: {other:?} {:?}", self.tasks),
            }
        }
        panic!("{what}: it never becomes a member: {:?}", self.tasks);
    }

    /// Starts the process unless it runs, and lets it run for so long.
    pub(super) fn run_for(&mut self, ms: u64) {
        if self.state.is_none() {
            self.start();
        }
        let until = self.now + Duration::from_millis(ms);
        assert_eq!(self.go(Some(until)), None);
        self.now = until;
    }

    /// Lets the process run to its end.
    pub(super) fn go_on(&mut self) -> Run {
        self.go(None).unwrap()
    }

    pub(super) fn stop(&mut self) -> Run {
        self.queue.push_back(Event::Stop);
        self.go(None).unwrap()
    }

    pub(super) fn command_administrator(&mut self, wanted: bool) {
        self.command(Metric::new(names::ADMINISTRATOR, wanted));
    }

    pub(super) fn command(&mut self, metric: Metric) {
        let metrics = vec![metric];
        self.queue.push_back(Event::Node(NodeEvent::Command { device: None, metrics, timestamp: None }));
        assert_eq!(self.go(Some(self.now)), None);
    }

    pub(super) fn start(&mut self) {
        self.queue.clear();
        self.node = None;
        self.state = Some(State::new(settings()));
    }

    /// Until the end, or until nothing is due any more before `until`.
    fn go(&mut self, until: Option<Duration>) -> Option<Run> {
        for _ in 0..TURNS_MAX {
            let effects: Vec<Effect> = self.state.as_mut().unwrap().poll_effects();
            for effect in effects {
                self.shown.push_str(&format!("{effect:?}\n"));
                if let Some(run) = self.execute(effect) {
                    return Some(run);
                }
            }
            if self.queue.is_empty() {
                let due = self.state().next_deadline()?;
                if until.is_some_and(|until| due > until) {
                    return None;
                }
                self.now = self.now.max(due);
                self.queue.push_back(Event::DeadlineReached);
            }
            self.drawn += 1;
            let entropy = Secret::new([7; 32]).derive("world", &self.drawn.to_be_bytes());
            let now = Now::new(self.now, START_MS + self.ahead_ms + u64::try_from(self.now.as_millis()).unwrap());
            let event = self.queue.pop_front().unwrap();
            self.state.as_mut().unwrap().on_event(event, now, entropy);
        }
        panic!("too many turns: {:?}", self.tasks);
    }

    fn execute(&mut self, effect: Effect) -> Option<Run> {
        match effect {
            Effect::Birth { disk, metrics } => {
                assert_eq!(disk, DISK);
                self.node = Some(HostNode::from_metrics(&metrics).unwrap());
                if self.ask_administrator_at_once {
                    let metrics = vec![Metric::new(names::ADMINISTRATOR, true)];
                    self.queue.push_back(Event::Node(NodeEvent::Command { device: None, metrics, timestamp: None }));
                }
            }
            Effect::Node(NodeUpdate::Set { metrics, .. }) => self.on_metrics(&metrics),
            Effect::Node(other) => panic!("{other:?}"),
            Effect::Tpm { kind, request, work } => {
                let result = match work {
                    TpmWork::Activate(credential) => {
                        let secret = self.host.tpm.activate_credential(&credential);
                        secret.map(TpmAnswer::Secret).ok_or_else(|| TaskError("another TPM's".to_owned()))
                    }
                    TpmWork::Quote(data, selection, _) => {
                        Ok(TpmAnswer::Quote(self.host.tpm.quote_of(&data, &selection)))
                    }
                };
                self.queue.push_back(Event::Tpm { kind, request, result });
            }
            Effect::Run { number, task } => return self.run_task(number, task),
            Effect::Cancel | Effect::Status(_) => {}
            Effect::End(ending) => return Some(Run::Ended(ending)),
        }
        None
    }

    fn on_metrics(&mut self, metrics: &[Metric]) {
        let address = Address::of_disk(GROUP, DISK);
        self.said += 1;
        self.node.as_mut().unwrap().merge(metrics).unwrap();
        for metric in metrics {
            if let Ok(Some(HostMessage::Hello(bytes))) = HostMessage::from_metric(metric) {
                let hello = Hello::decode(&bytes).unwrap();
                self.hellos.push(hello.kind);
                self.roles.push(hello.role);
            }
            let now_ms = START_MS + u64::try_from(self.now.as_millis()).unwrap();
            let answers = [
                self.join_service_answers.then(|| self.join_service.on_metric(&address, metric, now_ms)).flatten(),
                self.administrator_answers.then(|| self.administrator.on_metric(&address, metric, now_ms)).flatten(),
            ];
            for answer in answers.into_iter().flatten() {
                let command = NodeEvent::Command { device: None, metrics: vec![answer], timestamp: None };
                self.queue.push_back(Event::Node(command));
            }
        }
        for issuer in [&mut self.join_service, &mut self.administrator] {
            self.stages.extend(issuer.stages.drain(..).map(|(_, stage, text)| (stage, text)));
        }
    }

    fn run_task(&mut self, number: u64, task: Task) -> Option<Run> {
        let name = name_of(&task);
        if name != "reboot" {
            self.tasks.push(name);
        }
        if self.stop_at == Some(name) {
            self.queue.push_back(Event::Stop);
        }
        let mut failures = [self.failure, self.also];
        let mine = failures.iter_mut().flatten().find(|failure| {
            matches!(failure, Failure::Fails(at, 1..) | Failure::Hangs(at) | Failure::Kills(at, _) if *at == name)
        });
        let result = match mine {
            Some(Failure::Fails(_, times)) => {
                *times -= 1;
                // What fails may have been half done.
                if name == "lock" {
                    let _ = self.perform(task);
                }
                Err(TaskError("as planned".to_owned()))
            }
            Some(Failure::Hangs(_)) => {
                // Before the lock it is to hang once only: the next try must come through.
                if matches!(name, "save joining" | "unlock") {
                    self.failure = None;
                }
                return None;
            }
            Some(Failure::Kills(_, is_done)) => {
                if *is_done {
                    let _ = self.perform(task);
                }
                return Some(Run::Killed);
            }
            None => self.perform(task),
        };
        [self.failure, self.also] = failures;
        self.queue.push_back(Event::TaskEnded { number, result });
        None
    }

    // long: one arm for each task.
    fn perform(&mut self, task: Task) -> Result<Done, TaskError> {
        let host = &mut self.host;
        let error = |text: &str| Err(TaskError(text.to_owned()));
        match task {
            Task::Inspect => {
                host.open &= host.locked || host.mark != Some(Mark::Initialised);
                return Ok(Done::Inspected(Box::new(host.inspection())));
            }
            Task::Prepare(_) => {
                assert_ne!(host.mark, Some(Mark::Initialised), "a member's disk is never formatted again");
                (host.mark, host.key, host.record, host.open) = (Some(Mark::New), None, None, true);
            }
            Task::Unlock(key) if host.key.as_ref() == Some(&key) => {
                host.open = true;
                return Ok(Done::Unlocked(host.record.clone()));
            }
            Task::Unlock(_) => return error("the key does not open the state disk"),
            Task::UnlockSealed => {
                assert!(!host.locked, "the TPM gives nothing out once the host is locked");
                if host.sealed.is_none() || host.has_other_image {
                    return error("the second key is not given out");
                }
                host.open = true;
                return Ok(Done::Unlocked(host.record.clone()));
            }
            Task::LockAgain => {
                assert!(!host.locked && host.open, "a host locks itself once in a boot");
                host.tpm.lock(&host.sealed.unwrap());
                host.locked = true;
            }
            Task::Seal { key, cluster_id, .. } => {
                assert_eq!(host.key, Some(key), "a key is added by one that opens the disk");
                host.sealed = Some(cluster_id);
            }
            Task::RemoveSealedKey => host.sealed = None,
            Task::Close { removes_sealed_key } => {
                assert!(!host.locked, "a member's disk stays open");
                host.open = false;
                host.sealed = host.sealed.filter(|_| !removes_sealed_key);
            }
            Task::Save(record) => host.record = Some(record),
            Task::Lock { cluster_id, qualifying_data, selection } => {
                assert!(!host.locked, "a host locks itself once in a boot");
                host.tpm.lock(&cluster_id);
                host.locked = true;
                return Ok(Done::Locked(host.tpm.quote_of(&qualifying_data, &selection)));
            }
            Task::SetKey(key) => host.key = Some(key),
            Task::MountDirectories { is_member } => {
                assert!(host.open && host.locked, "nothing is mounted from a disk that is locked");
                let was_member = host.record.as_ref().is_some_and(|record| record.progress == Progress::Member);
                assert_eq!(is_member, was_member);
                host.mounted = true;
            }
            Task::Write(_)
            | Task::WriteAuthority(_)
            | Task::Install(_)
            | Task::Join(_)
            | Task::Init(_)
            | Task::Resume
                if !host.mounted =>
            {
                panic!("what Kubernetes keeps would lie in clear");
            }
            Task::Init(_) => return Ok(Done::Kubeconfig("kubeconfig".into())),
            Task::Mark(mark) => host.mark = Some(mark),
            Task::Reboot(_) => host.reboots += 1,
            Task::Renew(renewal) => {
                host.sealed = host.sealed.filter(|_| renewal.local_unlock.is_some());
                host.renewed.push(*renewal);
            }
            Task::Resume => return Ok(Done::Resumed(host.fault.clone())),
            Task::Write(_) | Task::WriteAuthority(_) | Task::Install(_) | Task::Join(_) => {}
        }
        Ok(Done::Done)
    }
}

impl Host {
    fn inspection(&self) -> Inspection {
        let keys = AttesterKeys {
            variant: Variant::Simulated,
            attestation: self.tpm.attestation_key(),
            endorsement: self.tpm.endorsement_key(),
            certificates: Vec::new(),
            lock_pcr: 15,
            seals: true,
        };
        let disk = match self.mark {
            None => DiskFound::Blank,
            Some(mark) => {
                let (open, generation) = (self.open, Some(Uuid::from_bytes(GENERATION)));
                let second_key = self.sealed.map(|_| BOOT);
                DiskFound::Ours { uuid: DISK, mark, open, generation, second_key }
            }
        };
        let record = self.record.clone().filter(|_| self.open);
        let identity = Identity { boot: BOOT, node_name: "edge-1".to_owned(), ..Identity::default() };
        Inspection { keys, locked: self.locked, disk, record, certificates: self.certificates.clone(), identity }
    }
}
