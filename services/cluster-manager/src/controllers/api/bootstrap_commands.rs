//! A bootstrap command that a user asks for: the hash of its token on its way into the `EdgeClusterEnrolment` entry, and the answer once the script is offered to that token.
//!
//! The token itself is made where HTTP is spoken, and never comes here.

use std::time::Duration;

use cluster_manager_contract::SetupState;
use configdb_contract::WriteRequest;
use configdb_schema::document::{EdgeClusterEnrolment, EnrolmentToken};
use configdb_schema::{Document as _, timestamp};
use sparkplug::Now;
use uuid::Uuid;

use super::{ApiController, ApiView, BootstrapGrantsController, Who, Written};
use crate::api::{Refusal, Reply};
use crate::event::Effect;
use crate::requests::Requests;

/// Most tokens of a cluster that count at the same time.
const TOKENS_MAX: usize = 32;

/// A command that is waited for.
#[derive(Debug)]
pub(super) struct BootstrapCommand {
    /// The question.
    id: u64,
    /// For which cluster.
    cluster: Uuid,
    /// Of its token.
    hash: String,
    /// How long that lives.
    lifetime: Duration,
    /// Who asks.
    who: Who,
    /// When the token ends, UTC ms, and the request that brings it into ConfigDB.
    written: Option<(u64, String)>,
}

impl BootstrapCommand {
    /// A command that is not asked of ConfigDB yet.
    pub(super) fn new(id: u64, cluster: Uuid, hash: String, lifetime: Duration, who: Who) -> Self {
        Self { id, cluster, hash, lifetime, who, written: None }
    }

    fn answer(&self, reply: Result<Reply, Refusal>, now: Now) -> Effect {
        match reply {
            Ok(reply) => self.who.done(self.id, reply, None, now),
            Err(refusal) => self.who.refused(self.id, refusal, now),
        }
    }
}

impl ApiController {
    /// Brings the token into ConfigDB; the answer comes when it is in force. Some: it is refused now.
    pub(super) fn want_command(
        &mut self,
        mut command: BootstrapCommand,
        view: ApiView<'_>,
        requests: &mut Requests,
        now: Now,
    ) -> Option<Effect> {
        match write_token(&command, view, requests, now) {
            Ok(written) => {
                command.written = Some(written);
                self.commands.push(command);
                None
            }
            Err(refusal) => Some(command.answer(Err(refusal), now)),
        }
    }

    /// ConfigDB has answered a request. None: it was not for a command.
    pub(super) fn on_command_written(&mut self, request: &str, refusal: Option<&str>, now: Now) -> Option<Written> {
        let of = |command: &BootstrapCommand| command.written.as_ref().is_some_and(|(_, id)| id == request);
        let place = self.commands.iter().position(of)?;
        let Some(reason) = refusal else { return Some(Written::Evaluate(self.commands[place].cluster)) };
        let command = self.commands.swap_remove(place);
        let reason = format!("the token could not be stored: {reason}; try again");
        Some(Written::Answered(command.answer(Err(Refusal::NotAtPresent(reason)), now)))
    }

    /// Answers those who wait for a command of this cluster, if its script is offered to their tokens, or is not offered any more. After the offer was made known.
    pub fn answer_commands(
        &mut self,
        cluster: Uuid,
        is_ready: bool,
        grants: &BootstrapGrantsController,
        now: Now,
    ) -> Vec<Effect> {
        let offer = grants.grant(cluster);
        let is_offered = |command: &BootstrapCommand| {
            offer.is_some_and(|offer| offer.tokens.iter().any(|token| token.hash == command.hash))
        };
        let is_over = |command: &mut BootstrapCommand| command.cluster == cluster && (!is_ready || is_offered(command));
        let base_url = &self.settings.base_url;
        let over = self.commands.extract_if(.., is_over).map(|command| {
            let expires = command.written.as_ref().map_or(0, |(expires, _)| *expires);
            let reply = if is_offered(&command) {
                let url = enrolment_protocol::bootstrap::script_url(base_url, cluster);
                Ok(Reply::Offered { url, expires })
            } else {
                Err(Refusal::NotAtPresent("the cluster cannot be bootstrapped any more".to_owned()))
            };
            command.answer(reply, now)
        });
        over.collect()
    }
}

fn write_token(
    command: &BootstrapCommand,
    view: ApiView<'_>,
    requests: &mut Requests,
    now: Now,
) -> Result<(u64, String), Refusal> {
    let not_now = |reason: String| Refusal::NotAtPresent(reason);
    let device = view.device_of(command.cluster)?;
    if device.setup.state != SetupState::Ready || device.bootstrap.url.is_none() {
        let state = device.setup.state;
        return Err(not_now(format!("the cluster cannot be bootstrapped at present: it is {state}")));
    }
    let entry = view.fleet.config().entry(command.cluster, EdgeClusterEnrolment::slug());
    let etag = entry.map(|entry| entry.etag);
    let before: Option<EdgeClusterEnrolment> =
        entry.map(configdb_contract::Entry::parse).transpose().map_err(|error| not_now(error.to_string()))?;
    let mut enrolment = before.unwrap_or_default();
    // What has expired is of no use.
    enrolment.tokens.retain(|token| timestamp::from_text(&token.expires).is_some_and(|ends| ends > now.wall));
    if enrolment.tokens.len() >= TOKENS_MAX {
        return Err(not_now(format!("the cluster has {TOKENS_MAX} tokens already; revoke those that are not used")));
    }
    let lifetime = u64::try_from(command.lifetime.as_millis()).unwrap_or(u64::MAX);
    let expires = now.wall.saturating_add(lifetime);
    let text = |ms| timestamp::to_text(ms).ok_or_else(|| not_now("the clock is out of range".to_owned()));
    enrolment.tokens.push(EnrolmentToken {
        hash: command.hash.clone(),
        issued: text(now.wall)?,
        expires: text(expires)?,
        by: command.who.name.clone(),
    });
    let id = requests.next_id();
    let write = WriteRequest::put(id.clone(), command.cluster).by(command.who.name.clone());
    let write = write.document(&enrolment).map_err(|error| not_now(error.to_string()))?;
    let write = write.if_match(EdgeClusterEnrolment::slug(), etag);
    requests.submit(write, now).map_err(|error| not_now(error.to_string()))?;
    Ok((expires, id))
}
