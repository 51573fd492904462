//! Users who read and push: who they are, and whether they may. The rules are those by which the cluster manager decides again over a push.

use access::audit::{AuditRecord, AuditResult};
use access::rate::{Limiter, Rate};
use access::token::Tokens;
use access::{Denied, Operation, Principal};
use configdb_contract::ConfigReplica;
use configdb_schema::Document as _;
use configdb_schema::document::ApiToken;
use git_hosting::gatekeeper::{Admission, Denial};
use git_server_contract::DesiredRepository;
use sparkplug::Now;
use uuid::Uuid;

use crate::event::{Credential, GitRequest};

/// Most principals whose rate is remembered at the same time: some 100 bytes each.
const PRINCIPALS_MAX: usize = 4096;

/// Whose tokens are accepted, and who has asked how often.
#[derive(Debug)]
pub(crate) struct Users {
    tokens: Tokens,
    limiter: Limiter<String>,
    /// Pushes that were refused, to be recorded.
    refused: Vec<AuditRecord>,
}

impl Users {
    /// No user is known.
    pub(crate) fn new(rate: Rate) -> Self {
        Self { tokens: Tokens::default(), limiter: Limiter::new(rate, PRINCIPALS_MAX), refused: Vec::new() }
    }

    /// Learns all tokens from a replica that is complete for the first time.
    pub(crate) fn learn(&mut self, config: &ConfigReplica) {
        self.tokens = Tokens::default();
        for (object, entry) in config.entries(ApiToken::slug()) {
            self.set(object, Some(&entry.json));
        }
    }

    /// Forgets all of them.
    pub(crate) fn forget(&mut self) {
        self.tokens = Tokens::default();
    }

    /// Takes the entry of an object over; None: there is none any more.
    pub(crate) fn set(&mut self, object: Uuid, json: Option<&str>) {
        if let Err(reason) = self.tokens.set(object, json) {
            tracing::warn!(object = %object, reason, "a token cannot be read; it admits no one");
        }
    }

    /// Pushes that were refused since the last call.
    pub(crate) fn take_refused(&mut self) -> Vec<AuditRecord> {
        std::mem::take(&mut self.refused)
    }

    /// Whether a user may. `desired`: the repository, if there is one. A push that is refused is to be recorded.
    pub(crate) fn admit(
        &mut self,
        asked: &GitRequest,
        desired: Option<&DesiredRepository>,
        now: Now,
    ) -> Result<Admission, Denial> {
        let who = self.principal(&asked.credential, now)?;
        if let Err(too_often) = self.limiter.take(who.name.clone(), now.mono) {
            return Err(Denial::TooOften(too_often.to_string()));
        }
        let (repository, is_shared) = asked.repository.unwrap_or((Uuid::nil(), false));
        let operation = match (asked.push, is_shared) {
            (false, _) => Operation::ReadRepository,
            (true, true) => Operation::PushShared,
            (true, false) => Operation::Push,
        };
        let name = who.name.clone();
        let answer = consider(who, asked, operation, (repository, is_shared), desired);
        if let Err(denial) = &answer
            && asked.push
        {
            self.refused.push(AuditRecord {
                at: now.wall,
                who: name,
                from: asked.from.clone(),
                operation,
                cluster: (!is_shared).then_some(repository),
                target: format!("repository {repository}"),
                request: None,
                result: AuditResult::Refused { reason: denial.reason().to_owned() },
            });
        }
        answer
    }

    fn principal(&self, credential: &Credential, now: Now) -> Result<Principal, Denial> {
        match credential {
            Credential::Verified(principal) => Ok(principal.clone()),
            Credential::Token(hash) => self.tokens.authenticate(hash, now.wall).cloned().map_err(|_| Denial::Unknown),
        }
    }
}

fn consider(
    who: Principal,
    asked: &GitRequest,
    operation: Operation,
    (repository, is_shared): (Uuid, bool),
    desired: Option<&DesiredRepository>,
) -> Result<Admission, Denial> {
    match who.may(operation, (!is_shared).then_some(repository)) {
        Ok(()) => {}
        // Of a cluster that is not for them no more is said than of one that does not exist.
        Err(Denied::Cluster) if !is_shared => return Err(Denial::NotFound),
        Err(denied) => return Err(Denial::Forbidden(denied.to_string())),
    }
    let Some(desired) = desired else { return Err(Denial::NotFound) };
    match desired.no_push.clone().filter(|_| asked.push) {
        Some(reason) => Err(Denial::Forbidden(reason)),
        None => Ok(Admission { who, pulled: desired.pulled.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_push_that_is_refused_is_recorded_and_a_read_is_not() {
        let mut users = Users::new(Rate::per_minute(300));
        let repository = Uuid::from_u128(7);
        let ada = Principal { name: "token:ada".to_owned(), grants: Vec::new() };
        let now = Now { mono: Duration::from_secs(1), wall: 5 };
        let mut asks = |push| {
            let credential = Credential::Verified(ada.clone());
            let asked = GitRequest {
                id: 1,
                from: "10.0.0.7".to_owned(),
                credential,
                repository: Some((repository, true)),
                push,
            };
            let denial = users.admit(&asked, None, now).unwrap_err();
            (denial, users.take_refused())
        };
        assert_eq!(asks(false).1, []);
        let (denial, records) = asks(true);
        let record = &records[0];
        assert_eq!((record.at, record.who.as_str(), record.from.as_str()), (5, "token:ada", "10.0.0.7"));
        assert_eq!((record.operation, &record.target), (Operation::PushShared, &format!("repository {repository}")));
        assert_eq!(record.result, AuditResult::Refused { reason: denial.reason().to_owned() });
    }
}
