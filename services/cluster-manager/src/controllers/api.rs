//! Users and programs that ask over HTTP and git: whether they may, and what they are answered. What needs the disk is answered when the disk has answered.

mod bootstrap_commands;
mod tokens;

use std::collections::BTreeMap;
use std::time::Duration;

use access::audit::{AuditRecord, AuditResult};
use access::rate::{Limiter, Rate};
use access::token::Tokens;
use access::{Operation, Principal};
use cluster_manager_contract::{ClusterDevice, SetupState};
use configdb_schema::{Organisation, known};
use sparkplug::Now;
use uuid::Uuid;

use super::bootstrap_grants::BootstrapGrantsController;
use super::shared_repositories::SharedRepositoriesController;
use crate::api::{Answer, Asked, Credential, Question, Refusal, Reply, RepositoryPush};
use crate::devices::ClusterDevices;
use crate::event::{Effect, SecretAction, SecretOutcome, SecretResult, SecretWork};
use crate::fleet::FleetView;
use crate::requests::Requests;
use crate::secrets::{SecretChange, SecretFault};
use crate::shared_repository::CHARTS_WRITTEN;
use bootstrap_commands::BootstrapCommand;
use tokens::{TokenChange, WantedToken};

/// Most principals whose rate is remembered at the same time: some 100 bytes each.
const PRINCIPALS_MAX: usize = 4096;

/// What the controller goes by.
#[derive(Debug)]
pub struct Settings {
    /// Prefix of all groups.
    pub organisation: Organisation,
    /// Base URL of the scripts that bootstrap clusters.
    pub base_url: String,
    /// The manager writes the repository of the well-known charts itself.
    pub charts_written: bool,
    /// How often one principal may ask.
    pub rate: Rate,
}

/// The requests of users.
#[derive(Debug)]
pub struct ApiController {
    settings: Settings,
    /// Whose tokens are accepted.
    tokens: Tokens,
    limiter: Limiter<String>,
    /// Questions that wait for the disk, by id. The adapter bounds how many there are at the same time.
    waiting: BTreeMap<u64, Waiting>,
    /// Bootstrap commands whose tokens are not offered yet.
    commands: Vec<BootstrapCommand>,
    /// Changes of tokens that are not in force yet.
    changes: Vec<WantedToken>,
}

/// What answers are made of.
#[derive(Debug, Clone, Copy)]
pub struct ApiView<'a> {
    /// The fleet.
    pub fleet: &'a FleetView,
    /// The clusters, as they are published.
    pub devices: &'a ClusterDevices,
    /// Which branches are pulled.
    pub shared: &'a SharedRepositoriesController,
}

/// What a request or an answer of the disk comes to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Answers, records and work.
    pub effects: Vec<Effect>,
    /// Branch `main` of a repository is at another commit.
    pub moved: Option<Moved>,
}

/// A repository whose branch `main` is at another commit.
#[derive(Debug)]
pub struct Moved {
    /// Which repository; of a cluster's repository the cluster.
    pub repository: Uuid,
    /// It does not belong to a cluster.
    pub shared: bool,
    /// The commit; None: the branch is gone.
    pub commit: Option<String>,
}

#[derive(Debug)]
struct Waiting {
    who: Who,
    /// Fingerprint of the cluster's certificate when a list was asked for.
    fingerprint: Option<String>,
}

/// What the record of a question says of it.
#[derive(Debug, Clone)]
struct Who {
    name: String,
    from: String,
    operation: Operation,
    cluster: Option<Uuid>,
    target: Option<String>,
}

impl Who {
    fn new(name: String, from: String, question: &Question) -> Self {
        let (operation, cluster, target) = (question.operation(), question.cluster(), question.target());
        Self { name, from, operation, cluster, target }
    }

    /// The record of a write.
    fn record(&self, result: AuditResult, now: Now) -> Option<AuditRecord> {
        let target = self.target.as_ref().filter(|_| self.operation.is_write())?;
        Some(AuditRecord {
            at: now.wall,
            who: self.name.clone(),
            from: self.from.clone(),
            operation: self.operation,
            cluster: self.cluster,
            target: target.clone(),
            request: None,
            result,
        })
    }

    /// Answers a question that is done, and records it.
    fn done(&self, id: u64, reply: Reply, commit: Option<String>, now: Now) -> Effect {
        answer(id, Ok(reply), self.record(AuditResult::Done { commit }, now))
    }

    /// Answers a question that is refused, and records it.
    fn refused(&self, id: u64, refusal: Refusal, now: Now) -> Effect {
        let record = self.record(AuditResult::Refused { reason: refusal.to_string() }, now);
        answer(id, Err(refusal), record)
    }
}

fn answer(id: u64, reply: Result<Reply, Refusal>, audit: Option<AuditRecord>) -> Effect {
    Effect::Answer(Box::new(Answer { id, reply, audit }))
}

/// Records what came over the broker, where the name of a writer is only a claim.
pub fn broker_record(who: String, operation: Operation, target: String, now: Now) -> Effect {
    Effect::Record(Box::new(AuditRecord {
        at: now.wall,
        who,
        from: "broker".to_owned(),
        operation,
        cluster: None,
        target,
        request: None,
        result: AuditResult::Done { commit: None },
    }))
}

impl From<Effect> for Outcome {
    fn from(effect: Effect) -> Self {
        Self { effects: vec![effect], moved: None }
    }
}

impl ApiController {
    /// No user is known yet.
    pub fn new(settings: Settings) -> Self {
        let limiter = Limiter::new(settings.rate, PRINCIPALS_MAX);
        let (waiting, commands, changes) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { settings, tokens: Tokens::default(), limiter, waiting, commands, changes }
    }

    /// Answers a question, or sends the disk or ConfigDB for the answer.
    pub fn on_asked(&mut self, asked: Asked, view: ApiView<'_>, requests: &mut Requests, now: Now) -> Outcome {
        let Asked { id, from, credential, question } = asked;
        if let (Credential::Verified(who), Question::Pushed(push)) = (&credential, &question) {
            return on_pushed(id, &Who::new(who.name.clone(), from, &question), push.clone(), now);
        }
        let principal = match self.principal(&credential, view.fleet, now) {
            Ok(principal) => principal,
            Err(refusal) => return answer(id, Err(refusal), None).into(),
        };
        // The second half of a write was counted with the first.
        if !matches!(question, Question::PutSecret { .. })
            && let Err(too_often) = self.limiter.take(principal.name.clone(), now.mono)
        {
            return answer(id, Err(too_often.into()), None).into();
        }
        let who = Who::new(principal.name.clone(), from, &question);
        match self.consider(&principal, question, view) {
            Ok(Considered::Answered(reply)) => answer(id, Ok(reply), None).into(),
            Ok(Considered::Work { cluster, action, fingerprint }) => {
                self.waiting.insert(id, Waiting { who, fingerprint });
                Effect::Secret(SecretWork { id, cluster, action }).into()
            }
            Ok(Considered::Command { cluster, hash, lifetime }) => {
                let command = BootstrapCommand::new(id, cluster, hash, lifetime, who);
                Outcome { effects: self.want_command(command, view, requests, now).into_iter().collect(), moved: None }
            }
            Ok(Considered::Token { name, change }) => {
                let refused = self.want_token(id, (&name, change), who, view, requests, now);
                Outcome { effects: refused.into_iter().collect(), moved: None }
            }
            Err(refusal) => who.refused(id, refusal, now).into(),
        }
    }

    /// Whether a user may read or push a repository, as far as that goes by who they are.
    fn may_use_repository(
        &self,
        who: &Principal,
        (repository, push): (Uuid, bool),
        view: ApiView<'_>,
    ) -> Result<Reply, Refusal> {
        if push && repository == known::repository::HELM_CHARTS && self.settings.charts_written {
            return Err(Refusal::NotAtPresent(CHARTS_WRITTEN.to_owned()));
        }
        Ok(Reply::Repository { who: who.clone(), pulled: view.shared.pulled_branches(repository) })
    }

    /// The disk has answered.
    pub fn on_secret_result(&mut self, result: SecretResult, now: Now) -> Outcome {
        let SecretResult { id, cluster, outcome } = result;
        let Some(Waiting { who, fingerprint }) = self.waiting.remove(&id) else { return Outcome::default() };
        match outcome {
            Ok(SecretOutcome::Written { commit }) => {
                let moved =
                    commit.clone().map(|commit| Moved { repository: cluster, shared: false, commit: Some(commit) });
                Outcome { effects: vec![who.done(id, Reply::Written, commit, now)], moved }
            }
            Ok(SecretOutcome::Listed(secrets)) => who.done(id, Reply::Secrets(secrets, fingerprint), None, now).into(),
            Err(SecretFault::Repository(reason)) => {
                let fault = SecretFault::Repository(reason);
                let record = who.record(AuditResult::Failed { reason: fault.to_string() }, now);
                answer(id, Err(fault.into()), record).into()
            }
            Err(fault) => who.refused(id, fault.into(), now).into(),
        }
    }

    /// ConfigDB has answered a request. None: it was not asked for a user.
    pub fn on_written(&mut self, request: &str, refusal: Option<&str>, now: Now) -> Option<Written> {
        let of_command = self.on_command_written(request, refusal, now);
        of_command.or_else(|| self.on_token_refused(request, refusal?, now))
    }

    /// The client that asks. While ConfigDB is not known completely no client is admitted: a token may have been revoked meanwhile.
    fn principal(&self, credential: &Credential, fleet: &FleetView, now: Now) -> Result<Principal, Refusal> {
        let unauthenticated = |reason: &str| Refusal::Unauthenticated(reason.to_owned());
        if matches!(credential, Credential::None) {
            return Err(unauthenticated("show a token: Authorization: Bearer ..."));
        }
        if !fleet.is_ready() {
            let reason = "ConfigDB is not known completely; no client is admitted until it is";
            return Err(Refusal::NotAtPresent(reason.to_owned()));
        }
        match credential {
            Credential::None => Err(unauthenticated("show a token")),
            Credential::Verified(principal) => Ok(principal.clone()),
            Credential::Token(hash) => {
                let known = self.tokens.authenticate(hash, now.wall);
                known.cloned().map_err(|error| unauthenticated(&error.to_string()))
            }
        }
    }

    fn consider(&self, principal: &Principal, question: Question, view: ApiView<'_>) -> Result<Considered, Refusal> {
        principal.may(question.operation(), question.cluster())?;
        let answered = |reply| Ok(Considered::Answered(reply));
        match question {
            Question::Clusters => {
                let seen = view.devices.iter().filter(|(uuid, _)| principal.sees(*uuid));
                answered(Reply::Clusters(seen.map(|(uuid, device)| (uuid, device.clone())).collect()))
            }
            Question::Status { cluster } => {
                answered(Reply::Status(cluster, Box::new(view.device_of(cluster)?.clone())))
            }
            Question::Certificate { cluster, .. } | Question::SealingCertificate { cluster } => {
                answered(Reply::Certificate(view.sealing_certificate(cluster)?))
            }
            Question::Secrets { cluster } => {
                view.with_repository(cluster)?;
                let pem = view.sealing_certificate(cluster).ok();
                let fingerprint = pem.and_then(|pem| sealed_secrets::fingerprint(&pem));
                Ok(Considered::Work { cluster, action: SecretAction::List, fingerprint })
            }
            Question::PutSecret { cluster, key, sealed, fingerprint, dry_run } => {
                view.with_repository(cluster)?;
                let change = SecretChange::Put { key, sealed, fingerprint };
                Ok(Considered::Work { cluster, action: SecretAction::Change { change, dry_run }, fingerprint: None })
            }
            Question::Repository { repository, push, .. } => {
                answered(self.may_use_repository(principal, (repository, push), view)?)
            }
            // It was taken before anything else.
            Question::Pushed(_) => answered(Reply::Written),
            Question::BootstrapLine { cluster, hash, lifetime } => Ok(Considered::Command { cluster, hash, lifetime }),
            Question::Tokens => answered(Reply::Tokens(tokens::all(view.fleet))),
            Question::CreateToken { name, hash, grant, lifetime } => {
                Ok(Considered::Token { name, change: TokenChange::Create { hash, grant, lifetime } })
            }
            Question::RevokeToken { name } => Ok(Considered::Token { name, change: TokenChange::Revoke }),
            Question::Audit => answered(Reply::Permitted),
            Question::DeleteSecret { cluster, key, dry_run } => {
                view.with_repository(cluster)?;
                let change = SecretChange::Delete { key };
                Ok(Considered::Work { cluster, action: SecretAction::Change { change, dry_run }, fingerprint: None })
            }
        }
    }
}

/// A push has ended: what it changed is sent to the edges that follow the repository, and recorded. One that changed nothing was refused, or was to another branch.
fn on_pushed(id: u64, who: &Who, push: RepositoryPush, now: Now) -> Outcome {
    let RepositoryPush { repository, shared, before, after } = push;
    let has_moved = before != after;
    let moved = has_moved.then(|| Moved { repository, shared, commit: after.clone() });
    Outcome { effects: vec![who.done(id, Reply::Written, after.filter(|_| has_moved), now)], moved }
}

impl<'a> ApiView<'a> {
    fn device_of(self, cluster: Uuid) -> Result<&'a ClusterDevice, Refusal> {
        self.devices.get(cluster).ok_or(Refusal::NoCluster)
    }

    /// The cluster is one whose repository can be changed.
    fn with_repository(self, cluster: Uuid) -> Result<&'a ClusterDevice, Refusal> {
        let device = self.device_of(cluster)?;
        let going = matches!(device.setup.state, SetupState::Deleting | SetupState::Waiting | SetupState::Refused);
        if going || device.git_url.is_none() {
            let state = device.setup.state;
            return Err(Refusal::NotAtPresent(format!("the cluster has no repository at present: it is {state}")));
        }
        Ok(device)
    }

    /// The certificate that the cluster's Sync reports; of one that is away the last that it did.
    fn sealing_certificate(self, cluster: Uuid) -> Result<String, Refusal> {
        let name = &self.with_repository(cluster)?.name;
        let reason = "the cluster has not published its sealing certificate yet; is its edge sync there?";
        let certificate = self.fleet.sealing_certificate(cluster, name);
        certificate.ok_or_else(|| Refusal::NotAtPresent(reason.to_owned()))
    }
}

/// What the answer of ConfigDB to a request comes to.
#[derive(Debug)]
pub enum Written {
    /// Its user is answered.
    Answered(Effect),
    /// Its user is answered once this cluster offers its script to the token.
    Evaluate(Uuid),
}

/// What a question comes to.
enum Considered {
    Answered(Reply),
    Work { cluster: Uuid, action: SecretAction, fingerprint: Option<String> },
    Command { cluster: Uuid, hash: String, lifetime: Duration },
    Token { name: String, change: TokenChange },
}
