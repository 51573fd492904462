//! Tokens that an administrator makes or revokes: on their way into ConfigDB, and the answer once they are in force.
//!
//! The text of a token is made where HTTP is spoken, and never comes here.

use std::time::Duration;

use access::token::Tokens;
use access::{Grant, Operation};
use cluster_manager_contract::api_token::{TokenHash, object};
use configdb_contract::{Entry, WriteRequest};
use configdb_schema::document::{ApiToken, Info};
use configdb_schema::{Document as _, known, timestamp};
use sparkplug::Now;
use uuid::Uuid;

use super::{ApiController, ApiView, Who, Written, broker_record};
use crate::api::{Refusal, Reply};
use crate::event::Effect;
use crate::fleet::FleetView;
use crate::requests::Requests;

/// What is to become of a token.
#[derive(Debug)]
pub(super) enum TokenChange {
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
pub(super) struct WantedToken {
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

/// Every token, as ConfigDB has it.
pub(super) fn all(fleet: &FleetView) -> Vec<ApiToken> {
    let entries = fleet.config().entries(ApiToken::slug());
    let mut tokens: Vec<ApiToken> = entries.filter_map(|(_, entry)| entry.parse().ok()).collect();
    tokens.sort_by(|a, b| a.name.cmp(&b.name));
    tokens
}

impl ApiController {
    /// Takes a token entry over.
    pub fn on_token(&mut self, object: Uuid, json: Option<&str>) {
        if let Err(reason) = self.tokens.set(object, json) {
            tracing::warn!(object = %object, reason, "an ApiToken entry cannot be read; it admits no one");
        }
    }

    /// Everything about ConfigDB is learnt again.
    pub fn forget_tokens(&mut self) {
        self.tokens = Tokens::default();
    }

    /// Brings a change into ConfigDB; the answer comes when it is in force. Some: it is refused now.
    pub(super) fn want_token(
        &mut self,
        id: u64,
        (name, change): (&str, TokenChange),
        who: Who,
        view: ApiView<'_>,
        requests: &mut Requests,
        now: Now,
    ) -> Option<Effect> {
        match self.write_token(id, (name, change), &who, view, requests, now) {
            Ok(wanted) => {
                self.changes.push(wanted);
                None
            }
            Err(refusal) => Some(who.refused(id, refusal, now)),
        }
    }

    fn write_token(
        &self,
        id: u64,
        (name, change): (&str, TokenChange),
        who: &Who,
        view: ApiView<'_>,
        requests: &mut Requests,
        now: Now,
    ) -> Result<WantedToken, Refusal> {
        let object =
            object(&self.settings.organisation, name).map_err(|error| Refusal::Invalid(format!("name {error}")))?;
        let before = view.fleet.config().entry(object, ApiToken::slug()).map(|entry| entry.etag);
        let request = requests.next_id();
        let write = WriteRequest::put(request.clone(), object).by(who.name.clone());
        let (write, hash, reply) = match change {
            TokenChange::Create { .. } if before.is_some() => return Err(Refusal::NameTaken),
            TokenChange::Create { hash, grant, lifetime } => {
                let token = new_token(name, (&hash, lifetime), grant, who, view, now)?;
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
        requests.submit(write, now).map_err(|error| Refusal::NotAtPresent(error.to_string()))?;
        Ok(WantedToken { id, object, hash, reply, request, who: who.clone() })
    }

    /// ConfigDB has refused a request. None: it was not for a token.
    pub(super) fn on_token_refused(&mut self, request: &str, reason: &str, now: Now) -> Option<Written> {
        let place = self.changes.iter().position(|wanted| wanted.request == request)?;
        let wanted = self.changes.swap_remove(place);
        let refusal = Refusal::NotAtPresent(format!("the token could not be stored: {reason}; try again"));
        Some(Written::Answered(wanted.who.refused(wanted.id, refusal, now)))
    }

    /// Records a change of a token that was not asked for here: a writer of ConfigDB made it, over the broker. The name that they give is their claim.
    pub fn record_token(&self, object: Uuid, old: Option<&Entry>, new: Option<&Entry>, now: Now) -> Option<Effect> {
        if self.changes.iter().any(|wanted| wanted.object == object) {
            return None;
        }
        let token = |entry: &Entry| entry.parse::<ApiToken>().ok();
        let (before, after) = (old.and_then(token), new.and_then(token));
        let operation = if new.is_some() { Operation::CreateToken } else { Operation::RevokeToken };
        let who = after.as_ref().map_or_else(|| "unnamed".to_owned(), |token| token.by.clone());
        let target = after.or(before).map_or_else(|| object.to_string(), |token| token.name);
        Some(broker_record(format!("claimed:{who}"), operation, target, now))
    }

    /// Answers those whose change is in force.
    pub fn answer_tokens(&mut self, now: Now) -> Vec<Effect> {
        let tokens = &self.tokens;
        let is_in_force = |wanted: &mut WantedToken| tokens.hash(wanted.object) == wanted.hash;
        let done = self.changes.extract_if(.., is_in_force);
        done.map(|wanted| wanted.who.done(wanted.id, wanted.reply, None, now)).collect()
    }
}

fn new_token(
    name: &str,
    (hash, lifetime): (&TokenHash, Duration),
    grant: Grant,
    who: &Who,
    view: ApiView<'_>,
    now: Now,
) -> Result<ApiToken, Refusal> {
    let unknown = grant.clusters.iter().flatten().any(|cluster| view.devices.get(*cluster).is_none());
    if unknown {
        return Err(Refusal::NoCluster);
    }
    let expires = now.wall.saturating_add(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX));
    let text = |ms| timestamp::to_text(ms).ok_or_else(|| Refusal::Invalid("no token can live that long".to_owned()));
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
