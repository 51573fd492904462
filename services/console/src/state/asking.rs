//! What people ask beside reads: who they are is looked up, whether they may is decided, and what they want is begun.

use access::audit::{AuditRecord, AuditResult};
use access::{Operation, Principal};
use fleet_view::policy;
use sparkplug::Now;
use uuid::Uuid;

use super::State;
use super::actions::{Actions, EndedAction, NewCommand, Who};
use super::recorder::Cause;
use crate::action::{Action, Replicas};
use crate::api::{ApiError, ApiOperation, ApiOutcome, ApiRequest, ApiResponse, Credential};
use crate::event::Effect;
use crate::preview::Step;
use crate::published::TableName;

impl State {
    /// Answers a question, or begins what is asked for.
    pub(super) fn on_asked(&mut self, asked: ApiRequest, now: Now) {
        let ApiRequest { id, from, credential, question } = asked;
        if let ApiOperation::Simulate { cluster, policy } = &question {
            let found = policy::simulate(&self.fleet, *cluster, policy);
            return self.answer(id, Ok(ApiOutcome::Simulated(found)), None);
        }
        if question == ApiOperation::SignOut {
            if let Credential::Session(session) = credential {
                self.users.end(session);
                self.keep_sessions(false, now);
            }
            return self.answer(id, Ok(ApiOutcome::SignedOut), None);
        }
        if let ApiOperation::SignInAs(session, principal) = question {
            let who = Who { name: principal.name.clone(), from };
            if let Err(refusal) = self.users.count_action(&principal.name, now) {
                return self.answer(id, Err(refusal), None);
            }
            self.users.begin_as(session, principal.clone(), now);
            self.keep_sessions(false, now);
            let record = sign_in(&who, AuditResult::Done { commit: None }, now);
            return self.answer(id, Ok(ApiOutcome::SignedIn(principal)), Some(record));
        }
        let principal = match self.principal(credential, &from, &question, now) {
            Ok(Some(principal)) => principal,
            Ok(None) => return self.answer(id, Ok(ApiOutcome::Who(None)), None),
            Err(refusal) => {
                // One that comes too often is not recorded: that would cost more than it does.
                let is_recorded =
                    matches!((&question, &refusal), (ApiOperation::SignIn(_), ApiError::Unauthenticated(_)));
                let reason = refusal.to_string();
                let unknown = Who { name: "unknown".to_owned(), from };
                let record = is_recorded.then(|| sign_in(&unknown, AuditResult::Refused { reason }, now));
                return self.answer(id, Err(refusal), record);
            }
        };
        let who = Who { name: principal.name.clone(), from };
        match question {
            ApiOperation::Who
            | ApiOperation::Watches
            | ApiOperation::SignOut
            | ApiOperation::Simulate { .. }
            | ApiOperation::SignInAs(..) => self.answer(id, Ok(ApiOutcome::Who(Some(principal))), None),
            ApiOperation::SignIn(session) => {
                // Each session is a write to the disk.
                if let Err(refusal) = self.users.count_action(&principal.name, now) {
                    return self.answer(id, Err(refusal), None);
                }
                if let Credential::Token(token) = credential {
                    self.users.begin(session, token, now);
                    self.keep_sessions(false, now);
                }
                let record = sign_in(&who, AuditResult::Done { commit: None }, now);
                self.answer(id, Ok(ApiOutcome::SignedIn(principal)), Some(record));
            }
            ApiOperation::Plan(action) => {
                let planned = self.preview(&action, &principal, &who, now).map(ApiOutcome::Planned);
                return self.answer(id, planned, None);
            }
            ApiOperation::Act { key, action } => self.on_action(id, &key, &action, &principal, &who, now),
            ApiOperation::Bootstrap { key, cluster, hash, lifetime } => {
                let wanted = NewCommand { key: &key, cluster, hash: &hash, lifetime };
                self.on_bootstrap(id, wanted, &principal, &who, now);
            }
        }
        self.poll_actions(now);
        self.mark(|name, _| *name == TableName::Actions);
    }

    /// The answer to a command that is begun comes with its end.
    fn on_bootstrap(&mut self, id: u64, wanted: NewCommand<'_>, principal: &Principal, who: &Who, now: Now) {
        let (operation, cluster) = (Operation::BootstrapLine, wanted.cluster);
        let permitted = self.permit(principal, operation, Some(cluster), now);
        match permitted.and_then(|()| self.actions.start_command(id, wanted, who.clone(), &self.fleet, now)) {
            Ok(None) => {}
            Ok(Some(known)) => self.answer(id, Ok(ApiOutcome::Repeated { id: known }), None),
            Err(refusal) => {
                let target = self.fleet.name_of(cluster);
                let record = refused(who, (operation, Some(cluster), target), &refusal, now);
                self.answer(id, Err(refusal), record);
            }
        }
    }

    fn on_action(&mut self, id: u64, key: &str, action: &Action, principal: &Principal, who: &Who, now: Now) {
        let (operation, cluster) = (action.operation(), action.cluster(&self.fleet));
        let permitted = self.permit(principal, operation, cluster, now);
        if let (Ok(()), Action::ReadHistory(of)) = (&permitted, action) {
            self.past.ask(of.object);
        }
        match permitted.and_then(|()| self.start(key, action, who, now)) {
            Ok((action, None)) => self.answer(id, Ok(ApiOutcome::Repeated { id: action }), None),
            Ok((action, record)) => self.answer(id, Ok(ApiOutcome::Accepted { id: action }), record),
            Err(refusal) => {
                let record = refused(who, (operation, cluster, action.target(&self.fleet)), &refusal, now);
                self.answer(id, Err(refusal), record);
            }
        }
    }

    fn start(
        &mut self,
        key: &str,
        action: &Action,
        who: &Who,
        now: Now,
    ) -> Result<(String, Option<AuditRecord>), ApiError> {
        let replicas = Replicas { fleet: &self.fleet, explorer: &self.explorer };
        self.actions.start(key, action, who.clone(), replicas, now)
    }

    /// What an action would do. Nothing comes of it, so that it is neither recorded nor counted.
    fn preview(&self, action: &Action, principal: &Principal, who: &Who, now: Now) -> Result<Vec<Step>, ApiError> {
        self.check(principal, action.operation(), action.cluster(&self.fleet))?;
        self.check_complete()?;
        let replicas = Replicas { fleet: &self.fleet, explorer: &self.explorer };
        Ok(Actions::preview(action, who, replicas, now)?)
    }

    /// Who asks; None: a caller who is not known, and the question needs no user.
    fn principal(
        &mut self,
        credential: Credential,
        from: &str,
        question: &ApiOperation,
        now: Now,
    ) -> Result<Option<Principal>, ApiError> {
        let is_open = matches!(question, ApiOperation::Who | ApiOperation::Watches);
        if is_open && credential == Credential::None {
            return Ok(None);
        }
        // A token may have been revoked meanwhile; whom the identity provider vouched for has none.
        if !self.users.is_person(credential) && !self.fleet.config.is_complete() {
            let reason = "ConfigDB is not known completely; no token is accepted until it is".to_owned();
            return Err(ApiError::NotNow(reason));
        }
        match self.users.principal(credential, from, *question != ApiOperation::Watches, now) {
            Ok(principal) => Ok(Some(principal)),
            Err(ApiError::Unauthenticated(_)) if is_open => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Whether a user may do that now.
    fn permit(
        &mut self,
        principal: &Principal,
        operation: Operation,
        cluster: Option<Uuid>,
        now: Now,
    ) -> Result<(), ApiError> {
        self.check(principal, operation, cluster)?;
        self.users.count_action(&principal.name, now)?;
        self.check_complete()
    }

    /// Whether a user may do that at all.
    fn check(&self, principal: &Principal, operation: Operation, cluster: Option<Uuid>) -> Result<(), ApiError> {
        match self.settings.read_only {
            Some(reason) => Err(ApiError::ReadOnly(reason)),
            None => Ok(principal.may(operation, cluster)?),
        }
    }

    /// Whether enough of the fleet is known to act.
    fn check_complete(&self) -> Result<(), ApiError> {
        if self.online.is_ok() && self.fleet.manager.is_complete() {
            return Ok(());
        }
        Err(ApiError::NotNow("the fleet is not known completely; see the header of the page".to_owned()))
    }

    /// Sends what actions want sent, and answers those that have ended.
    pub(super) fn poll_actions(&mut self, now: Now) {
        let replicas = Replicas { fleet: &self.fleet, explorer: &self.explorer };
        let ended = self.actions.poll(replicas, now);
        for (object, request) in self.actions.take_submitted() {
            let who = self.actions.who(&request).map(str::to_owned);
            self.recorder.note_cause(object.to_string(), Cause { request, who, is_applied: false }, now);
        }
        self.effects.extend(self.actions.take_sends().into_iter().map(Effect::Host));
        if !ended.is_empty() {
            self.mark(|name, _| *name == TableName::Actions);
        }
        for EndedAction { answer, record } in ended {
            match answer {
                Some((id, reply)) => self.answer(id, reply, Some(record)),
                None => self.effects.push(Effect::Keep(Box::new(record))),
            }
        }
    }

    fn answer(&mut self, id: u64, reply: Result<ApiOutcome, ApiError>, audit: Option<AuditRecord>) {
        self.effects.push(Effect::ApiResponse(Box::new(ApiResponse { id, reply, audit })));
    }
}

/// The record of a sign-in.
fn sign_in(who: &Who, result: AuditResult, now: Now) -> AuditRecord {
    record(who, (Operation::SignIn, None, "console".to_owned()), result, now)
}

/// The record of what was refused to a known user. That it came too often is not recorded: that would cost more than it.
fn refused(who: &Who, what: (Operation, Option<Uuid>, String), refusal: &ApiError, now: Now) -> Option<AuditRecord> {
    let is_recorded = !matches!(refusal, ApiError::TooOften(_));
    is_recorded.then(|| record(who, what, AuditResult::Refused { reason: refusal.to_string() }, now))
}

fn record(
    who: &Who,
    (operation, cluster, target): (Operation, Option<Uuid>, String),
    result: AuditResult,
    now: Now,
) -> AuditRecord {
    let (who, from) = (who.name.clone(), who.from.clone());
    let cluster = cluster.filter(|cluster| !cluster.is_nil());
    AuditRecord { at: now.wall, who, from, operation, cluster, target, request: None, result }
}

#[cfg(test)]
mod tests;
