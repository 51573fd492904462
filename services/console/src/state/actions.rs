//! Actions under way: from the request of a person to the answer of ConfigDB, and as rows of table `actions`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use access::Operation;
use access::audit::{AuditRecord, AuditResult};
use cluster_manager_contract::SetupState;
use configdb_contract::{Change, RequestResult, WriteRequest, Writer, WriterConfig, WriterOutput};
use configdb_schema::Document as _;
use configdb_schema::document::EdgeClusterEnrolment;
use fleet_view::Fleet;
use fleet_view::deltas::Table;
use fleet_view::explorer::Explorer;
use fleet_view::requests::{self, Author, RequestError};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sparkplug::host::HostRequest;
use sparkplug::{EdgeNodeDescriptor, Now};
use uuid::Uuid;

use crate::action::{Action, MetricCommand, Plan, Replicas};
use crate::api::{ApiError, ApiOutcome};
use crate::preview::{self, Step};

/// Actions that are remembered: for their rows, and so that the same key does nothing twice.
const ACTIONS_MAX: usize = 500;

/// Actions under way at the same time.
const UNDER_WAY_MAX: usize = 100;

/// How long ConfigDB may take to answer one request.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// How long a node may take to report a value that was written.
const REPORT_MAX: Duration = Duration::from_secs(60);

/// What is said of a value that was written and not reported. A server that refuses a message of QoS 0 says so to no one.
const NOT_REPORTED: &str = "the node has not reported the value; it may or may not have taken it, or the MQTT server does not let the console command its group (sparkfleet acl generate --foreign-group)";

/// How long the cluster manager may take to offer a script.
const OFFER_MAX: Duration = Duration::from_secs(20);

/// Who asks, as it is recorded.
#[derive(Debug, Clone)]
pub(super) struct Who {
    /// Name of the principal.
    pub name: String,
    /// The address.
    pub from: String,
}

/// Where an action stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Sent,
    Done,
    Refused(String),
    Failed(String),
}

#[derive(Debug)]
struct Running {
    name: &'static str,
    operation: Operation,
    cluster: Option<Uuid>,
    target: String,
    who: Who,
    at: u64,
    /// The same key with another content is refused.
    digest: [u8; 32],
    /// What comes after the request that is under way.
    rest: VecDeque<WriteRequest>,
    stage: Stage,
}

/// A bootstrap command that a client waits for.
#[derive(Debug)]
struct WaitingCommand {
    question: u64,
    id: String,
    cluster: Uuid,
    /// Of its token.
    hash: String,
    expires: String,
    deadline: Duration,
    /// ETag of the entry with its token, once that is written.
    etag: Option<Uuid>,
}

/// A written metric that its node has not reported yet.
#[derive(Debug)]
struct AwaitedMetric {
    /// The action.
    id: String,
    command: MetricCommand,
    deadline: Duration,
}

/// The bootstrap command that is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewCommand<'a> {
    /// Chosen by who asks.
    pub key: &'a str,
    pub cluster: Uuid,
    /// Of its token.
    pub hash: &'a str,
    pub lifetime: Duration,
}

/// What came of an action that has ended, or of a command.
#[derive(Debug)]
pub(super) struct EndedAction {
    /// The question that waits for it, and its answer.
    pub answer: Option<(u64, Result<ApiOutcome, ApiError>)>,
    /// Its record.
    pub record: AuditRecord,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Actions {
    writer: Writer,
    all: BTreeMap<String, Running>,
    /// Their keys, the oldest first.
    order: VecDeque<String>,
    commands: Vec<WaitingCommand>,
    metrics: Vec<AwaitedMetric>,
    sends: Vec<HostRequest>,
    /// Writes since they were last taken: the object, and the request.
    submitted: Vec<(Uuid, String)>,
}

impl Running {
    fn record(&self, id: &str, result: AuditResult, now: Now) -> AuditRecord {
        AuditRecord {
            at: now.wall,
            who: self.who.name.clone(),
            from: self.who.from.clone(),
            operation: self.operation,
            cluster: self.cluster.filter(|cluster| !cluster.is_nil()),
            target: self.target.clone(),
            request: Some(id.to_owned()),
            result,
        }
    }
}

/// The id of an action: the same user and key have the same, in every process.
fn action_id(who: &str, key: &str) -> String {
    let mut hasher = Sha256::new();
    for part in [who, "\0", key] {
        hasher.update(part);
    }
    format!("console-{}", hex::encode(&hasher.finalize()[..16]))
}

/// What an action says. The hash of a new token is of a text that was made for this request, and is left out.
fn digest(action: &Action) -> [u8; 32] {
    let mut action = action.clone();
    if let Action::CreateToken(wanted) = &mut action {
        wanted.hash.clear();
    }
    Sha256::digest(format!("{action:?}")).into()
}

/// Whether ConfigDB has a bootstrap token of a cluster.
fn has_token(fleet: &Fleet, cluster: Uuid, hash: &str) -> bool {
    let enrolment = fleet.config.document::<EdgeClusterEnrolment>(cluster).ok().flatten();
    enrolment.is_some_and(|enrolment| enrolment.tokens.iter().any(|token| token.hash == hash))
}

impl Actions {
    /// None yet. `seed` is that of the jitter.
    pub(super) fn new(fleet: &Fleet, seed: u64) -> Self {
        let config = WriterConfig { deadline: ANSWER_MAX, ..WriterConfig::new(fleet.config.node().clone()) };
        let writer = Writer::new(config, seed);
        Self {
            writer,
            all: BTreeMap::new(),
            order: VecDeque::new(),
            commands: Vec::new(),
            metrics: Vec::new(),
            sends: Vec::new(),
            submitted: Vec::new(),
        }
    }

    /// Starts an action that the user may do. The record says that it was accepted; None: it was before.
    ///
    /// # Errors
    /// Why it is not begun.
    pub(super) fn start(
        &mut self,
        key: &str,
        action: &Action,
        who: Who,
        replicas: Replicas<'_>,
        now: Now,
    ) -> Result<(String, Option<AuditRecord>), ApiError> {
        let fleet = replicas.fleet;
        let id = action_id(&who.name, key);
        let digest = digest(action);
        if self.is_repeated(&id, digest)? {
            return Ok((id, None));
        }
        self.make_room()?;
        let plan = action.plan(replicas, &id, &writer_name(&who.name), now.wall)?;
        let mut running = Running {
            name: action.name(),
            operation: action.operation(),
            cluster: action.cluster(fleet),
            target: action.target(fleet),
            who,
            at: now.wall,
            digest,
            rest: VecDeque::new(),
            stage: Stage::Sent,
        };
        match plan {
            Plan::Rebirth(node) => {
                self.sends.push(HostRequest::Rebirth { node });
                running.stage = Stage::Done;
            }
            Plan::Command(command) => {
                let MetricCommand { node, device, metric, is_reported } = command.clone();
                self.sends.push(HostRequest::Command { node, device, metrics: vec![metric] });
                if is_reported {
                    // A node that reports by exception says nothing more of it.
                    running.stage = Stage::Done;
                } else {
                    self.metrics.push(AwaitedMetric { id: id.clone(), command, deadline: now.mono + REPORT_MAX });
                }
            }
            Plan::Replay(replay) => {
                self.writer.submit_replay(replay, now).map_err(|error| ApiError::NotNow(error.to_string()))?;
            }
            Plan::Writes(writes) => {
                running.rest = writes.into();
                if let Some(first) = running.rest.pop_front() {
                    self.submit(first, now)?;
                }
            }
        }
        let result =
            if running.stage == Stage::Sent { AuditResult::Accepted } else { AuditResult::Done { commit: None } };
        let record = running.record(&id, result, now);
        self.insert(id.clone(), running);
        Ok((id, Some(record)))
    }

    /// Starts to make a bootstrap command; the answer comes with its end. Its id if the key was used for it before: the command was shown then, and no other token is made.
    ///
    /// # Errors
    /// Why it is not begun.
    pub(super) fn start_command(
        &mut self,
        question: u64,
        NewCommand { key, cluster, hash, lifetime }: NewCommand<'_>,
        who: Who,
        fleet: &Fleet,
        now: Now,
    ) -> Result<Option<String>, ApiError> {
        let id = action_id(&who.name, key);
        let digest = Sha256::digest(format!("cluster.bootstrap {cluster} {}", lifetime.as_secs())).into();
        if self.is_repeated(&id, digest)? {
            return Ok(Some(id));
        }
        self.make_room()?;
        let missing = || RequestError::Missing { field: "cluster", wanted: cluster.to_string() };
        let device = fleet.manager.cluster(cluster).ok_or_else(missing)?;
        if device.setup.state != SetupState::Ready || device.bootstrap.url.is_none() {
            let state = device.setup.state;
            return Err(ApiError::NotNow(format!("the cluster cannot be bootstrapped at present: it is {state}")));
        }
        let author = Author { id: format!("{id}-0"), writer: writer_name(&who.name) };
        let (request, expires) = requests::add_bootstrap_token(fleet, cluster, hash, lifetime, now.wall, author)?;
        self.submit(request, now)?;
        let (operation, name) = (Operation::BootstrapLine, "cluster.bootstrap");
        let target = format!("{} token {}", fleet.name_of(cluster), hash.get(..8).unwrap_or_default());
        let cluster_id = Some(cluster);
        let running = Running {
            name,
            operation,
            cluster: cluster_id,
            target,
            who,
            at: now.wall,
            digest,
            rest: VecDeque::new(),
            stage: Stage::Sent,
        };
        self.insert(id.clone(), running);
        let deadline = now.mono + OFFER_MAX;
        let hash = hash.to_owned();
        self.commands.push(WaitingCommand { question, id, cluster, hash, expires, deadline, etag: None });
        Ok(None)
    }

    /// What an action would do.
    ///
    /// # Errors
    /// It cannot be done.
    pub(super) fn preview(
        action: &Action,
        who: &Who,
        replicas: Replicas<'_>,
        now: Now,
    ) -> Result<Vec<Step>, RequestError> {
        let id = action_id(&who.name, "");
        let plan = action.plan(replicas, &id, &writer_name(&who.name), now.wall)?;
        Ok(preview::steps(&plan, replicas.fleet))
    }

    /// The user who asked for what led to this request; None: it was asked for elsewhere.
    pub(super) fn who(&self, request: &str) -> Option<&str> {
        self.all.get(action_of(request)).map(|running| running.who.name.as_str())
    }

    /// Whether a written metric of this node is still to be reported.
    pub(super) fn awaits(&self, node: &EdgeNodeDescriptor) -> bool {
        self.metrics.iter().any(|awaited| awaited.command.node == *node)
    }

    /// Takes a change of ConfigDB's replica.
    pub(super) fn on_change(&mut self, change: &Change, now: Now) {
        self.writer.on_change(change, now);
    }

    /// Does what is due, and says what has ended since.
    pub(super) fn poll(&mut self, replicas: Replicas<'_>, now: Now) -> Vec<EndedAction> {
        self.writer.handle_timeout(now);
        let mut ended = Vec::new();
        while let Some(output) = self.writer.poll_output() {
            match output {
                WriterOutput::Send(request) => self.sends.push(request),
                WriterOutput::Answered(result) => ended.extend(self.on_result(&result, now)),
                WriterOutput::GaveUp { id, .. } => {
                    let reason = "ConfigDB has not answered; it may or may not have been carried out".to_owned();
                    ended.extend(self.end(action_of(&id), Stage::Failed(reason), now));
                }
            }
        }
        ended.extend(self.poll_commands(replicas.fleet, now));
        ended.extend(self.poll_metrics(replicas.explorer, now));
        ended
    }

    /// Written metrics that are reported, and those that have waited too long.
    fn poll_metrics(&mut self, explorer: &Explorer, now: Now) -> Vec<EndedAction> {
        let mut ended = Vec::new();
        for at in (0..self.metrics.len()).rev() {
            let AwaitedMetric { command, deadline, .. } = &self.metrics[at];
            let reported = explorer.metric(&command.node, command.device.as_ref(), &command.metric.name);
            let stage = if reported.is_some_and(|reported| reported.value == command.metric.value) {
                Stage::Done
            } else if *deadline <= now.mono {
                Stage::Failed(NOT_REPORTED.to_owned())
            } else {
                continue;
            };
            let awaited = self.metrics.swap_remove(at);
            ended.extend(self.end(&awaited.id, stage, now));
        }
        ended
    }

    /// What is to be sent.
    pub(super) fn take_sends(&mut self) -> Vec<HostRequest> {
        std::mem::take(&mut self.sends)
    }

    /// The writes that were submitted since, with the objects that they change.
    pub(super) fn take_submitted(&mut self) -> Vec<(Uuid, String)> {
        std::mem::take(&mut self.submitted)
    }

    /// When [`Actions::poll`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let metrics = self.metrics.iter().map(|awaited| awaited.deadline);
        self.commands.iter().map(|command| command.deadline).chain(metrics).chain(self.writer.next_deadline()).min()
    }

    /// Table `actions`.
    pub(super) fn rows(&self) -> Table {
        let row = |(id, running): (&String, &Running)| {
            let (state, text) = match &running.stage {
                Stage::Sent => ("sent", ""),
                Stage::Done => ("done", ""),
                Stage::Refused(reason) => ("refused", reason.as_str()),
                Stage::Failed(reason) => ("failed", reason.as_str()),
            };
            let cluster = running.cluster.filter(|cluster| !cluster.is_nil());
            let row = json!({ "key": id, "name": running.name, "target": running.target, "cluster": cluster, "who": running.who.name,
                "at": running.at, "state": state, "text": text });
            (id.clone(), row)
        };
        self.all.iter().map(row).collect()
    }

    fn insert(&mut self, id: String, running: Running) {
        self.order.push_back(id.clone());
        self.all.insert(id, running);
    }

    /// Whether this very action was begun before with its key.
    ///
    /// # Errors
    /// Another one was.
    fn is_repeated(&self, id: &str, digest: [u8; 32]) -> Result<bool, ApiError> {
        match self.all.get(id) {
            Some(known) if known.digest != digest => Err(ApiError::KeyReused),
            known => Ok(known.is_some()),
        }
    }

    fn make_room(&mut self) -> Result<(), ApiError> {
        let under_way = self.all.values().filter(|running| running.stage == Stage::Sent).count();
        if under_way >= UNDER_WAY_MAX {
            return Err(ApiError::NotNow(format!("{under_way} actions are under way already; try again")));
        }
        while self.all.len() >= ACTIONS_MAX {
            let is_over = |id: &String| self.all.get(id).is_none_or(|running| running.stage != Stage::Sent);
            let Some(id) = self.order.iter().position(is_over).and_then(|at| self.order.remove(at)) else { break };
            self.all.remove(&id);
        }
        Ok(())
    }

    fn on_result(&mut self, result: &RequestResult, now: Now) -> Option<EndedAction> {
        let id = action_of(&result.id);
        if !result.is_applied() {
            let field = result.field.as_ref().map_or_else(String::new, |field| format!("{field}: "));
            let reason = format!("{field}{}", result.reason.as_deref().unwrap_or("no reason given"));
            return self.end(id, Stage::Refused(reason), now);
        }
        if let Some(command) = self.commands.iter_mut().find(|command| command.id == id) {
            command.etag = result.etags.get(EdgeClusterEnrolment::slug()).copied();
            return None;
        }
        let next = self.all.get_mut(id)?.rest.pop_front();
        match next.map(|next| self.submit(next, now)) {
            None => self.end(id, Stage::Done, now),
            Some(Ok(())) => None,
            Some(Err(error)) => self.end(id, Stage::Failed(error.to_string()), now),
        }
    }

    fn submit(&mut self, request: WriteRequest, now: Now) -> Result<(), ApiError> {
        let submitted = (request.object, request.id.clone());
        self.writer.submit(request, now).map_err(|error| ApiError::NotNow(error.to_string()))?;
        self.submitted.push(submitted);
        Ok(())
    }

    fn end(&mut self, id: &str, stage: Stage, now: Now) -> Option<EndedAction> {
        let running = self.all.get_mut(id)?;
        let (result, refusal) = match &stage {
            Stage::Refused(reason) => (AuditResult::Refused { reason: reason.clone() }, Some(reason)),
            Stage::Failed(reason) => (AuditResult::Failed { reason: reason.clone() }, Some(reason)),
            Stage::Sent | Stage::Done => (AuditResult::Done { commit: None }, None),
        };
        let record = running.record(id, result, now);
        let command = self.commands.iter().position(|command| command.id == id).map(|at| self.commands.swap_remove(at));
        let answer = command.zip(refusal.cloned());
        running.stage = stage;
        Some(EndedAction {
            answer: answer.map(|(command, reason)| (command.question, Err(ApiError::NotNow(reason)))),
            record,
        })
    }

    /// Commands whose token is in force, and those that have waited too long.
    fn poll_commands(&mut self, fleet: &Fleet, now: Now) -> Vec<EndedAction> {
        let mut ended = Vec::new();
        for at in (0..self.commands.len()).rev() {
            let command = &self.commands[at];
            let report = fleet.manager.cluster(command.cluster).map(|device| &device.bootstrap);
            let is_written = |reported: &String| command.etag.is_some_and(|etag| etag.to_string() == *reported);
            // To a key that an earlier process had, ConfigDB gives the answer of then: the token of now is not written.
            let has_token = has_token(fleet, command.cluster, &command.hash);
            let is_in_force = has_token && report.and_then(|report| report.enrolment.as_ref()).is_some_and(is_written);
            let url = report.and_then(|report| report.url.clone()).filter(|_| is_in_force);
            let (id, is_late) = (command.id.clone(), command.deadline <= now.mono);
            if let Some(url) = url {
                let (question, expires) = (command.question, command.expires.clone());
                let done = self.end(&id, Stage::Done, now);
                let answer = Some((question, Ok(ApiOutcome::Offered { id, url, expires })));
                ended.extend(done.map(|done| EndedAction { answer, ..done }));
            } else if is_late {
                let reason = if has_token {
                    "the cluster manager does not offer the script; the token counts all the same"
                } else {
                    "no token was written: the Idempotency-Key was used before, or the token was revoked; choose a new key"
                };
                ended.extend(self.end(&id, Stage::Failed(reason.to_owned()), now));
            }
        }
        ended
    }
}

/// The action of a request: its id without the step.
fn action_of(request: &str) -> &str {
    request.rsplit_once('-').map_or(request, |(id, _)| id)
}

/// `Request/Writer`: who acts, through which program.
fn writer_name(name: &str) -> String {
    format!("console/{name}")
}
