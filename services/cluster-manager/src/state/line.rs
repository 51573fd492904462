//! A bootstrap line that somebody asks for over HTTP: the hash of its token on its way into the `EdgeClusterEnrolment` entry, and the answer once the script is offered to that token.
//!
//! The token itself is made where HTTP is spoken, and never comes here.

use std::time::Duration;

use cluster_manager_contract::SetupState;
use configdb_contract::WriteRequest;
use configdb_schema::Document as _;
use configdb_schema::document::{EdgeClusterEnrolment, EnrolmentToken};
use sparkplug::Now;
use uuid::Uuid;

use super::ClusterManager;
use super::people::Who;
use crate::api::{Refusal, Reply};
use crate::authority;
use access::audit::AuditResult;

/// Most tokens of a cluster that count at the same time.
const TOKENS_MAX: usize = 32;

/// A line that is waited for.
#[derive(Debug)]
pub struct BootstrapCommand {
    /// The question.
    pub id: u64,
    /// For which cluster.
    pub cluster: Uuid,
    /// Of its token.
    pub hash: String,
    /// How long that lives.
    pub lifetime: Duration,
    /// Who asks.
    pub who: Who,
    /// When the token ends, UTC ms, and the request that brings it into ConfigDB.
    pub written: Option<(u64, String)>,
}

impl ClusterManager {
    /// Brings the token into ConfigDB; the answer comes when it is in force.
    pub(super) fn want_line(&mut self, mut line: BootstrapCommand, now: Now) {
        match self.write_token(&line, now) {
            Ok(written) => {
                line.written = Some(written);
                self.people.lines.push(line);
                self.take_writer_outputs(now);
            }
            Err(refusal) => self.answer_line(&line, Err(refusal), now),
        }
    }

    fn write_token(&mut self, line: &BootstrapCommand, now: Now) -> Result<(u64, String), Refusal> {
        let not_now = |reason: String| Refusal::NotAtPresent(reason);
        let device = self.device_of(line.cluster)?;
        if device.setup.state != SetupState::Ready || device.bootstrap.url.is_none() {
            let state = device.setup.state;
            return Err(not_now(format!("the cluster cannot be bootstrapped at present: it is {state}")));
        }
        let entry = self.fleet.config().entry(line.cluster, EdgeClusterEnrolment::slug());
        let etag = entry.map(|entry| entry.etag);
        let before: Option<EdgeClusterEnrolment> =
            entry.map(configdb_contract::Entry::parse).transpose().map_err(|error| not_now(error.to_string()))?;
        let mut enrolment = before.unwrap_or_default();
        // What has expired is of no use to anybody.
        enrolment.tokens.retain(|token| authority::from_text(&token.expires).is_some_and(|ends| ends > now.wall));
        if enrolment.tokens.len() >= TOKENS_MAX {
            return Err(not_now(format!("the cluster has {TOKENS_MAX} tokens already; revoke those that nobody uses")));
        }
        let lifetime = u64::try_from(line.lifetime.as_millis()).unwrap_or(u64::MAX);
        let expires = now.wall.saturating_add(lifetime);
        let text = |ms| authority::to_text(ms).ok_or_else(|| not_now("the clock is out of range".to_owned()));
        enrolment.tokens.push(EnrolmentToken {
            hash: line.hash.clone(),
            issued: text(now.wall)?,
            expires: text(expires)?,
            by: line.who.name.clone(),
        });
        let id = self.requests.next_id();
        let write = WriteRequest::put(id.clone(), line.cluster).by(line.who.name.clone());
        let write = write.document(&enrolment).map_err(|error| not_now(error.to_string()))?;
        let write = write.if_match(EdgeClusterEnrolment::slug(), etag);
        self.requests.submit(write, now).map_err(|error| not_now(error.to_string()))?;
        Ok((expires, id))
    }

    /// ConfigDB has answered a request; True: it was for a line.
    pub(super) fn on_token_written(&mut self, request: &str, refusal: Option<&str>, now: Now) -> bool {
        let of = |line: &BootstrapCommand| line.written.as_ref().is_some_and(|(_, id)| id == request);
        let Some(place) = self.people.lines.iter().position(of) else { return false };
        match refusal {
            Some(reason) => {
                let line = self.people.lines.swap_remove(place);
                let reason = format!("the token could not be stored: {reason}; try again");
                self.answer_line(&line, Err(Refusal::NotAtPresent(reason)), now);
            }
            None => drop(self.dirty.insert(self.people.lines[place].cluster)),
        }
        true
    }

    /// Answers those who wait for a line of this cluster, if its script is offered to their tokens, or is not offered any more. After the offer was made known.
    pub(super) fn answer_lines(&mut self, cluster: Uuid, is_ready: bool, now: Now) {
        let offer = self.bootstrap_grants.grant(cluster);
        let is_offered = |line: &BootstrapCommand| {
            offer.is_some_and(|offer| offer.tokens.iter().any(|token| token.hash == line.hash))
        };
        let is_over = |line: &mut BootstrapCommand| line.cluster == cluster && (!is_ready || is_offered(line));
        let over = self.people.lines.extract_if(.., is_over);
        let over: Vec<_> = over.map(|line| (is_offered(&line), line)).collect();
        for (is_offered, line) in over {
            let expires = line.written.as_ref().map_or(0, |(expires, _)| *expires);
            let reply = if is_offered {
                Ok(Reply::Offered {
                    url: enrolment_protocol::bootstrap::script_url(&self.settings.cluster.git.own, cluster),
                    expires,
                })
            } else {
                Err(Refusal::NotAtPresent("the cluster cannot be bootstrapped any more".to_owned()))
            };
            self.answer_line(&line, reply, now);
        }
    }

    fn answer_line(&mut self, line: &BootstrapCommand, reply: Result<Reply, Refusal>, now: Now) {
        let result = match &reply {
            Ok(_) => AuditResult::Done { commit: None },
            Err(refusal) => AuditResult::Refused { reason: refusal.to_string() },
        };
        let record = line.who.record(result, now);
        self.answer(line.id, reply, record);
    }
}
