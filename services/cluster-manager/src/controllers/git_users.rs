//! Users who read and push repositories over git: whether they may, and what of it is recorded.

use access::audit::{AuditRecord, AuditResult};
use access::rate::{Limiter, Rate};
use access::token::Tokens;
use access::{Operation, Principal};
use configdb_schema::document::ApiToken;
use configdb_schema::known;
use sparkplug::Now;
use uuid::Uuid;

use super::shared_repositories::SharedRepositoriesController;
use crate::event::Effect;
use crate::fleet::FleetView;
use crate::git_users::{Credential, GitAccessError, GitOperation, GitOutcome, GitRequest, GitResponse, RepositoryPush};
use crate::shared_repository::CHARTS_WRITTEN;

/// Most principals whose rate is remembered at the same time: some 100 bytes each.
const PRINCIPALS_MAX: usize = 4096;

/// What the controller goes by.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The manager writes the repository of the well-known charts itself.
    pub charts_written: bool,
    /// How often one principal may ask.
    pub rate: Rate,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct GitUsersController {
    settings: Settings,
    /// Whose tokens are accepted.
    tokens: Tokens,
    limiter: Limiter<String>,
}

/// What a question comes to.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The answer, with its record.
    pub answer: Effect,
    /// Branch `main` of a repository is at another commit.
    pub moved: Option<Moved>,
}

/// A repository whose branch `main` is at another commit.
#[derive(Debug)]
pub(crate) struct Moved {
    /// Which repository; of a cluster's repository the cluster.
    pub repository: Uuid,
    /// It does not belong to a cluster.
    pub shared: bool,
    /// The commit; None: the branch is gone.
    pub commit: Option<String>,
}

impl From<Effect> for Outcome {
    fn from(answer: Effect) -> Self {
        Self { answer, moved: None }
    }
}

/// What the record of a question says of it.
struct Who {
    name: String,
    from: String,
    operation: Operation,
    cluster: Option<Uuid>,
    target: Option<String>,
}

impl Who {
    fn new(name: String, from: String, question: &GitOperation) -> Self {
        let (operation, cluster, target) = (question.operation(), question.cluster(), question.target());
        Self { name, from, operation, cluster, target }
    }

    /// The record of a write.
    fn record(self, result: AuditResult, now: Now) -> Option<AuditRecord> {
        let target = self.target.filter(|_| self.operation.is_write())?;
        Some(AuditRecord {
            at: now.wall,
            who: self.name,
            from: self.from,
            operation: self.operation,
            cluster: self.cluster,
            target,
            request: None,
            result,
        })
    }
}

fn answer(id: u64, reply: Result<GitOutcome, GitAccessError>, audit: Option<AuditRecord>) -> Effect {
    Effect::GitResponse(Box::new(GitResponse { id, reply, audit }))
}

impl GitUsersController {
    /// No user is known yet.
    pub(crate) fn new(settings: Settings) -> Self {
        let limiter = Limiter::new(settings.rate, PRINCIPALS_MAX);
        Self { settings, tokens: Tokens::default(), limiter }
    }

    /// Takes a token entry over.
    pub(crate) fn on_token(&mut self, object: Uuid, json: Option<&str>) {
        match self.tokens.set(object, json) {
            Ok(()) => {
                let name = json.and_then(|json| serde_json::from_str::<ApiToken>(json).ok()).map(|token| token.name);
                tracing::debug!(object = %object, name, "a token of users changed");
            }
            Err(reason) => {
                tracing::warn!(object = %object, reason, "an ApiToken entry cannot be read; it admits no one");
            }
        }
    }

    /// Everything about ConfigDB is learnt again.
    pub(crate) fn forget_tokens(&mut self) {
        self.tokens = Tokens::default();
    }

    /// Answers a question.
    pub(crate) fn on_asked(
        &mut self,
        asked: GitRequest,
        fleet: &FleetView,
        shared: &SharedRepositoriesController,
        now: Now,
    ) -> Outcome {
        let GitRequest { id, from, credential, question } = asked;
        if let (Credential::Verified(who), GitOperation::Pushed(push)) = (&credential, &question) {
            return on_pushed(id, Who::new(who.name.clone(), from, &question), push.clone(), now);
        }
        let principal = match self.principal(&credential, fleet, now) {
            Ok(principal) => principal,
            Err(refusal) => return answer(id, Err(refusal), None).into(),
        };
        if let Err(too_often) = self.limiter.take(principal.name.clone(), now.mono) {
            return answer(id, Err(too_often.into()), None).into();
        }
        let who = Who::new(principal.name.clone(), from, &question);
        match self.consider(principal, &question, shared) {
            Ok(reply) => answer(id, Ok(reply), None).into(),
            Err(refusal) => {
                let record = who.record(AuditResult::Refused { reason: refusal.to_string() }, now);
                answer(id, Err(refusal), record).into()
            }
        }
    }

    /// The user who asks. While ConfigDB is not known completely no user is admitted: a token may have been revoked meanwhile.
    fn principal(&self, credential: &Credential, fleet: &FleetView, now: Now) -> Result<Principal, GitAccessError> {
        let unauthenticated = |reason: &str| GitAccessError::Unauthenticated(reason.to_owned());
        match credential {
            Credential::None => Err(unauthenticated("show a token")),
            _ if !fleet.is_ready() => {
                let reason = "ConfigDB is not known completely; no client is admitted until it is";
                Err(GitAccessError::NotAtPresent(reason.to_owned()))
            }
            Credential::Verified(principal) => Ok(principal.clone()),
            Credential::Token(hash) => {
                let known = self.tokens.authenticate(hash, now.wall);
                known.cloned().map_err(|error| unauthenticated(&error.to_string()))
            }
        }
    }

    /// Whether a user may read or push a repository, as far as that goes by who they are.
    fn consider(
        &self,
        who: Principal,
        question: &GitOperation,
        shared: &SharedRepositoriesController,
    ) -> Result<GitOutcome, GitAccessError> {
        who.may(question.operation(), question.cluster())?;
        let GitOperation::Repository { repository, push, .. } = *question else { return Ok(GitOutcome::Recorded) };
        if push && repository == known::repository::HELM_CHARTS && self.settings.charts_written {
            return Err(GitAccessError::NotAtPresent(CHARTS_WRITTEN.to_owned()));
        }
        Ok(GitOutcome::Repository { who, pulled: shared.pulled_branches(repository) })
    }
}

/// A push has ended: what it changed is sent to the edges that follow the repository, and recorded. One that changed nothing was refused, or was to another branch.
fn on_pushed(id: u64, who: Who, push: RepositoryPush, now: Now) -> Outcome {
    let RepositoryPush { repository, shared, before, after } = push;
    let has_moved = before != after;
    let moved = has_moved.then(|| Moved { repository, shared, commit: after.clone() });
    let record = who.record(AuditResult::Done { commit: after.filter(|_| has_moved) }, now);
    Outcome { answer: answer(id, Ok(GitOutcome::Recorded), record), moved }
}
