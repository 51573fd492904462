//! People and programs that ask over HTTP: whether they may, and what they are told. What needs the disk is answered when the disk has answered.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster_manager_contract::{ClusterDevice, SetupState};
use configdb_schema::known;
use sparkplug::Now;
use uuid::Uuid;

use super::ClusterManager;
use super::line::BootstrapCommand;
use super::token::{TokenChange, WantedToken};
use crate::api::{Answer, Asked, Credential, Question, Refusal, Reply, RepositoryPush};
use crate::event::{Effect, SecretAction, SecretOutcome, SecretResult, SecretWork};
use crate::secrets::{SecretChange, SecretFault};
use access::audit::{AuditRecord, AuditResult};
use access::rate::{Limiter, Rate};
use access::token::Tokens;
use access::{Operation, Principal};

/// Most principals whose rate is remembered at the same time: some 100 bytes each.
const PRINCIPALS_MAX: usize = 4096;

/// What the state knows of people.
#[derive(Debug)]
pub struct People {
    /// Who is let in by a token.
    pub tokens: Tokens,
    limiter: Limiter<String>,
    /// Questions that wait for the disk, by id. The adapter bounds how many there are at the same time.
    waiting: BTreeMap<u64, Waiting>,
    /// Questions that wait for ConfigDB.
    pub lines: Vec<BootstrapCommand>,
    /// Changes of tokens that are not in force yet.
    pub changes: Vec<WantedToken>,
}

#[derive(Debug)]
struct Waiting {
    who: Who,
    /// Fingerprint of the cluster's certificate when a list was asked for.
    fingerprint: Option<String>,
}

/// What the record of a question says of it.
#[derive(Debug, Clone)]
pub struct Who {
    /// Who asks.
    pub name: String,
    from: String,
    operation: Operation,
    cluster: Option<Uuid>,
    target: Option<String>,
}

impl People {
    /// Nobody is known yet.
    pub fn new(rate: Rate) -> Self {
        let limiter = Limiter::new(rate, PRINCIPALS_MAX);
        Self { tokens: Tokens::default(), limiter, waiting: BTreeMap::new(), lines: Vec::new(), changes: Vec::new() }
    }
}

impl Who {
    /// The record of a write.
    pub fn record(&self, result: AuditResult, now: Now) -> Option<AuditRecord> {
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
}

impl ClusterManager {
    /// Takes a token entry over.
    pub(super) fn on_token(&mut self, object: Uuid, json: Option<&str>) {
        if let Err(reason) = self.people.tokens.set(object, json) {
            tracing::warn!(object = %object, reason, "an ApiToken entry cannot be read; nobody is let in by it");
        }
    }

    /// Answers a question, or sends the disk for the answer.
    pub(super) fn on_asked(&mut self, asked: Asked, now: Now) {
        let Asked { id, from, credential, question } = asked;
        if let (Credential::Verified(who), Question::Pushed(push)) = (&credential, &question) {
            let who = Who {
                name: who.name.clone(),
                from,
                operation: question.operation(),
                cluster: question.cluster(),
                target: question.target(),
            };
            return self.on_pushed(id, &who, push.clone(), now);
        }
        let principal = match self.principal(&credential, now) {
            Ok(principal) => principal,
            Err(refusal) => return self.answer(id, Err(refusal), None),
        };
        // The second half of a write was counted with the first.
        if !matches!(question, Question::PutSecret { .. })
            && let Err(too_often) = self.people.limiter.take(principal.name.clone(), now.mono)
        {
            return self.answer(id, Err(too_often.into()), None);
        }
        let who = Who {
            name: principal.name.clone(),
            from,
            operation: question.operation(),
            cluster: question.cluster(),
            target: question.target(),
        };
        match self.consider(&principal, question) {
            Ok(Considered::Published(reply)) => self.answer(id, Ok(reply), None),
            Ok(Considered::Work { cluster, action, fingerprint }) => {
                self.people.waiting.insert(id, Waiting { who, fingerprint });
                self.effects.push(Effect::Secret(SecretWork { id, cluster, action }));
            }
            Ok(Considered::Line { cluster, hash, lifetime }) => {
                self.want_line(BootstrapCommand { id, cluster, hash, lifetime, who, written: None }, now);
            }
            Ok(Considered::Token { name, change }) => self.want_token(id, &name, change, who, now),
            Err(refusal) => {
                let record = who.record(AuditResult::Refused { reason: refusal.to_string() }, now);
                self.answer(id, Err(refusal), record);
            }
        }
    }

    /// A push has ended: what it changed is told to who follows it, and recorded. One that changed nothing was refused, or was to another branch.
    fn on_pushed(&mut self, id: u64, who: &Who, push: RepositoryPush, now: Now) {
        let RepositoryPush { repository, shared, before, after } = push;
        let moved = before != after;
        if moved && shared {
            self.on_shared_commit(repository, after.clone());
        } else if moved && let Some(cluster) = self.clusters.get_mut(&repository) {
            cluster.git.commit.clone_from(&after);
            self.dirty.insert(repository);
        }
        let result = AuditResult::Done { commit: after.filter(|_| moved) };
        let record = who.record(result, now);
        self.answer(id, Ok(Reply::Written), record);
    }

    /// Somebody may read or push a repository, as far as that goes by who they are.
    fn may_use_repository(&self, who: &Principal, repository: Uuid, push: bool) -> Result<Reply, Refusal> {
        if push && repository == known::repository::HELM_CHARTS && self.settings.charts_written {
            let reason = "git.charts_dir of the cluster manager writes this repository; change the charts there";
            return Err(Refusal::NotAtPresent(reason.to_owned()));
        }
        Ok(Reply::Repository { who: who.clone(), pulled: self.shared.pulled_branches(repository) })
    }

    /// The disk has answered.
    pub(super) fn on_secret_result(&mut self, result: SecretResult, now: Now) {
        let SecretResult { id, cluster, outcome } = result;
        let Some(Waiting { who, fingerprint }) = self.people.waiting.remove(&id) else { return };
        let (reply, result) = match outcome {
            Ok(SecretOutcome::Written { commit }) => {
                if let (Some(commit), Some(known)) = (&commit, self.clusters.get_mut(&cluster)) {
                    known.git.commit = Some(commit.clone());
                    self.dirty.insert(cluster);
                }
                (Ok(Reply::Written), AuditResult::Done { commit })
            }
            Ok(SecretOutcome::Listed(secrets)) => {
                (Ok(Reply::Secrets(secrets, fingerprint)), AuditResult::Done { commit: None })
            }
            Err(fault) => {
                let reason = fault.to_string();
                let is_failure = matches!(fault, SecretFault::Repository(_));
                let result = if is_failure { AuditResult::Failed { reason } } else { AuditResult::Refused { reason } };
                (Err(fault.into()), result)
            }
        };
        let record = who.record(result, now);
        self.answer(id, reply, record);
    }

    pub(super) fn answer(&mut self, id: u64, reply: Result<Reply, Refusal>, audit: Option<AuditRecord>) {
        self.effects.push(Effect::Answer(Box::new(Answer { id, reply, audit })));
    }

    /// Who asks. While ConfigDB is not known completely nobody is let in: a token may have been revoked meanwhile.
    fn principal(&self, credential: &Credential, now: Now) -> Result<Principal, Refusal> {
        let unauthenticated = |reason: &str| Refusal::Unauthenticated(reason.to_owned());
        if matches!(credential, Credential::None) {
            return Err(unauthenticated("show a token: Authorization: Bearer ..."));
        }
        if !self.fleet.is_ready() {
            let reason = "ConfigDB is not known completely; nobody is let in until it is";
            return Err(Refusal::NotAtPresent(reason.to_owned()));
        }
        match credential {
            Credential::None => Err(unauthenticated("show a token")),
            Credential::Verified(principal) => Ok(principal.clone()),
            Credential::Token(hash) => {
                let known = self.people.tokens.authenticate(hash, now.wall);
                known.cloned().map_err(|error| unauthenticated(&error.to_string()))
            }
        }
    }

    fn consider(&self, principal: &Principal, question: Question) -> Result<Considered, Refusal> {
        principal.may(question.operation(), question.cluster())?;
        let told = |reply| Ok(Considered::Published(reply));
        match question {
            Question::Clusters => {
                let devices = self.clusters.iter().filter(|(uuid, _)| principal.sees(**uuid));
                let devices = devices.filter_map(|(uuid, cluster)| Some((*uuid, cluster.device()?.clone())));
                told(Reply::Clusters(devices.collect()))
            }
            Question::Status { cluster } => told(Reply::Status(cluster, Box::new(self.device_of(cluster)?.clone()))),
            Question::Certificate { cluster, .. } | Question::SealingCertificate { cluster } => {
                told(Reply::Certificate(self.sealing_certificate(cluster)?))
            }
            Question::Secrets { cluster } => {
                self.with_repository(cluster)?;
                let pem = self.sealing_certificate(cluster).ok();
                let fingerprint = pem.and_then(|pem| sealed_secrets::fingerprint(&pem));
                Ok(Considered::Work { cluster, action: SecretAction::List, fingerprint })
            }
            Question::PutSecret { cluster, key, sealed, fingerprint, dry_run } => {
                self.with_repository(cluster)?;
                let change = SecretChange::Put { key, sealed, fingerprint };
                Ok(Considered::Work { cluster, action: SecretAction::Change { change, dry_run }, fingerprint: None })
            }
            Question::Repository { repository, push, .. } => {
                told(self.may_use_repository(principal, repository, push)?)
            }
            // It was heard before anything else.
            Question::Pushed(_) => told(Reply::Written),
            Question::BootstrapLine { cluster, hash, lifetime } => Ok(Considered::Line { cluster, hash, lifetime }),
            Question::Tokens => told(Reply::Tokens(self.tokens())),
            Question::CreateToken { name, hash, grant, lifetime } => {
                Ok(Considered::Token { name, change: TokenChange::Create { hash, grant, lifetime } })
            }
            Question::RevokeToken { name } => Ok(Considered::Token { name, change: TokenChange::Revoke }),
            Question::Audit => told(Reply::Permitted),
            Question::DeleteSecret { cluster, key, dry_run } => {
                self.with_repository(cluster)?;
                let change = SecretChange::Delete { key };
                Ok(Considered::Work { cluster, action: SecretAction::Change { change, dry_run }, fingerprint: None })
            }
        }
    }

    pub(super) fn device_of(&self, cluster: Uuid) -> Result<&ClusterDevice, Refusal> {
        self.clusters.get(&cluster).and_then(super::cluster::Cluster::device).ok_or(Refusal::NoCluster)
    }

    /// The cluster is one whose repository can be changed.
    fn with_repository(&self, cluster: Uuid) -> Result<&ClusterDevice, Refusal> {
        let device = self.device_of(cluster)?;
        let going = matches!(device.setup.state, SetupState::Deleting | SetupState::Waiting | SetupState::Refused);
        if going || device.git_url.is_none() {
            let state = device.setup.state;
            return Err(Refusal::NotAtPresent(format!("the cluster has no repository at present: it is {state}")));
        }
        Ok(device)
    }

    /// The certificate that the cluster's Sync reports; of one that is away the last that it did.
    fn sealing_certificate(&self, cluster: Uuid) -> Result<String, Refusal> {
        let name = &self.with_repository(cluster)?.name;
        let reason = "the cluster has not published its sealing certificate yet; is its edge sync there?";
        let certificate = self.fleet.sealing_certificate(cluster, name);
        certificate.ok_or_else(|| Refusal::NotAtPresent(reason.to_owned()))
    }
}

/// What a question comes to.
enum Considered {
    Published(Reply),
    Work { cluster: Uuid, action: SecretAction, fingerprint: Option<String> },
    Line { cluster: Uuid, hash: String, lifetime: Duration },
    Token { name: String, change: TokenChange },
}
