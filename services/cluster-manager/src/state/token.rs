//! Tokens that an administrator makes or revokes over HTTP: on their way into ConfigDB, and the answer once they are in force.
//!
//! The text of a token is made where HTTP is spoken, and never comes here.

use std::time::Duration;

use configdb_contract::{Entry, WriteRequest};
use configdb_schema::document::{ApiToken, Info};
use configdb_schema::{Document as _, known};
use sparkplug::Now;
use uuid::Uuid;

use super::ClusterManager;
use super::people::Who;
use crate::api::{Refusal, Reply};
use crate::authority;
use crate::event::Effect;
use access::audit::{AuditRecord, AuditResult};
use access::{Grant, Operation};
use cluster_manager_contract::api_token::{TokenHash, object};

/// What is to become of a token.
#[derive(Debug)]
pub enum TokenChange {
    /// Made.
    Create {
        /// Of its text.
        hash: TokenHash,
        /// What its holder may do.
        grant: Grant,
        /// How long it lives.
        lifetime: Duration,
    },
    /// Revoked.
    Revoke,
}

/// A change that is waited for.
#[derive(Debug)]
pub struct WantedToken {
    /// The question.
    id: u64,
    /// The token's object.
    object: Uuid,
    /// What stands there when the change is in force; None: nothing.
    hash: Option<TokenHash>,
    /// What is answered then.
    reply: Reply,
    /// The request that brings it into ConfigDB.
    request: String,
    /// Who asks.
    who: Who,
}

impl ClusterManager {
    /// Every token, as ConfigDB has it.
    pub(super) fn tokens(&self) -> Vec<ApiToken> {
        let entries = self.fleet.config().entries(ApiToken::slug());
        let mut tokens: Vec<ApiToken> = entries.filter_map(|(_, entry)| entry.parse().ok()).collect();
        tokens.sort_by(|a, b| a.name.cmp(&b.name));
        tokens
    }

    /// Brings a change into ConfigDB; the answer comes when it is in force.
    pub(super) fn want_token(&mut self, id: u64, name: &str, change: TokenChange, who: Who, now: Now) {
        match self.write_token_entry(id, name, change, &who, now) {
            Ok(wanted) => {
                self.people.changes.push(wanted);
                self.take_writer_outputs(now);
            }
            Err(refusal) => {
                let record = who.record(AuditResult::Refused { reason: refusal.to_string() }, now);
                self.answer(id, Err(refusal), record);
            }
        }
    }

    fn write_token_entry(
        &mut self,
        id: u64,
        name: &str,
        change: TokenChange,
        who: &Who,
        now: Now,
    ) -> Result<WantedToken, Refusal> {
        let object =
            object(&self.settings.organisation, name).map_err(|error| Refusal::Invalid(format!("name {error}")))?;
        let before = self.fleet.config().entry(object, ApiToken::slug()).map(|entry| entry.etag);
        let request = self.requests.next_id();
        let write = WriteRequest::put(request.clone(), object).by(who.name.clone());
        let (write, hash, reply) = match change {
            TokenChange::Create { .. } if before.is_some() => return Err(Refusal::NameTaken),
            TokenChange::Create { hash, grant, lifetime } => {
                let token = self.new_token(name, &hash, grant, lifetime, who, now)?;
                let info = Info { name: format!("API token {name}"), ..Info::default() };
                let write = write.create_object(known::class::API_TOKEN, None).document(&info);
                let write = write.and_then(|write| write.document(&token));
                let write = write.map_err(|error| Refusal::Invalid(error.to_string()))?;
                (write, Some(hash), Reply::Created { expires: token.expires })
            }
            TokenChange::Revoke if before.is_none() => return Err(Refusal::NoToken),
            TokenChange::Revoke => (write.delete(ApiToken::slug()), None, Reply::Written),
        };
        let write = write.if_match(ApiToken::slug(), before);
        self.requests.submit(write, now).map_err(|error| Refusal::NotAtPresent(error.to_string()))?;
        Ok(WantedToken { id, object, hash, reply, request, who: who.clone() })
    }

    fn new_token(
        &self,
        name: &str,
        hash: &TokenHash,
        grant: Grant,
        lifetime: Duration,
        who: &Who,
        now: Now,
    ) -> Result<ApiToken, Refusal> {
        let unknown = grant.clusters.iter().flatten().any(|cluster| !self.clusters.contains_key(cluster));
        if unknown {
            return Err(Refusal::NoCluster);
        }
        let expires = now.wall.saturating_add(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX));
        let text =
            |ms| authority::to_text(ms).ok_or_else(|| Refusal::Invalid("no token can live that long".to_owned()));
        Ok(ApiToken {
            name: name.to_owned(),
            hash: hash.to_hex(),
            scope: grant.scope,
            clusters: grant.clusters.map(|clusters| clusters.into_iter().collect()),
            issued: text(now.wall)?,
            expires: text(expires)?,
            by: who.name.clone(),
        })
    }

    /// ConfigDB has refused a request; True: it was for a token.
    pub(super) fn on_token_entry_refused(&mut self, request: &str, reason: &str, now: Now) -> bool {
        let Some(place) = self.people.changes.iter().position(|wanted| wanted.request == request) else { return false };
        let wanted = self.people.changes.swap_remove(place);
        let refusal = Refusal::NotAtPresent(format!("the token could not be stored: {reason}; try again"));
        let record = wanted.who.record(AuditResult::Refused { reason: refusal.to_string() }, now);
        self.answer(wanted.id, Err(refusal), record);
        true
    }

    /// Records a change of a token that nobody asked for over HTTP: whoever may write to ConfigDB made it, over the broker. The name that they give is their claim.
    pub(super) fn record_token(&mut self, object: Uuid, old: Option<&Entry>, new: Option<&Entry>, now: Now) {
        if self.people.changes.iter().any(|wanted| wanted.object == object) {
            return;
        }
        let token = |entry: &Entry| entry.parse::<ApiToken>().ok();
        let (before, after) = (old.and_then(token), new.and_then(token));
        let operation = if new.is_some() { Operation::CreateToken } else { Operation::RevokeToken };
        let who = after.as_ref().map_or_else(|| "not told".to_owned(), |token| token.by.clone());
        let target = after.or(before).map_or_else(|| object.to_string(), |token| token.name);
        self.record_of_broker(format!("claimed:{who}"), operation, target, now);
    }

    /// Records what came over the broker, where nobody is known by more than what they say.
    pub(super) fn record_of_broker(&mut self, who: String, operation: Operation, target: String, now: Now) {
        self.effects.push(Effect::Record(Box::new(AuditRecord {
            at: now.wall,
            who,
            from: "broker".to_owned(),
            operation,
            cluster: None,
            target,
            request: None,
            result: AuditResult::Done { commit: None },
        })));
    }

    /// Answers those whose change is in force.
    pub(super) fn answer_tokens(&mut self, now: Now) {
        let tokens = &self.people.tokens;
        let in_force = |wanted: &mut WantedToken| tokens.hash(wanted.object) == wanted.hash;
        let done: Vec<_> = self.people.changes.extract_if(.., in_force).collect();
        for wanted in done {
            let record = wanted.who.record(AuditResult::Done { commit: None }, now);
            self.answer(wanted.id, Ok(wanted.reply), record);
        }
    }
}
