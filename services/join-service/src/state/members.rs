//! Progress and acknowledgement: what a host with a ticket reports, and the end of its attempt.

use join_protocol::issuer::{Phase, Record};
use join_protocol::message::acknowledgement::{Acknowledgement, Authenticated, Progress, Stage};
use join_protocol::metrics::HostMessage;
use join_protocol::terms::{Address, Kind, RequestId};
use join_service_contract::HostState;
use service_runtime::Effects;
use sparkplug::Now;

use super::{PARKED_MAX, State, Work, rebirth};
use crate::cache::Entry;
use crate::document::{HostRecord, Key, Request, to_text};
use crate::event::{Operation, Version};
use crate::limits::{HostClass, Source};
use crate::reconcile::{self, Ending};

impl State {
    pub(super) fn on_progress(&mut self, address: &Address, message: Vec<u8>, now: Now) {
        let body = Authenticated::decode_progress(&message).and_then(|outer| Progress::decode(&outer.body));
        let Ok(Progress { request: id, .. }) = body else { return self.counters.ignore("malformed") };
        let Some((entry, message)) = self.of_member(id, address, HostMessage::Progress(message), now) else { return };
        let progress = match self.issuer.on_progress(&entry.is.record, address, message.bytes()) {
            Ok(progress) => progress,
            Err(_) => return self.counters.ignore("not-believed"),
        };
        tracing::info!(request = %id, stage = %progress.stage, detail = progress.detail, "host reports");
        // A member that has not shown its lock: the attempt stays open for the acknowledgement, which is in the host's birth.
        let is_early = progress.stage == Stage::Member && owes_acknowledgement(&entry.is.record);
        let ending = match progress.stage {
            Stage::Member if is_early => None,
            Stage::Member => Some(Ending::Member),
            Stage::Failed => Some(Ending::Failed),
            _ => None,
        };
        if let Some(ending) = ending {
            return self.end(id, ending, Some(&progress), now);
        }
        let mut request = entry.is.clone();
        request.record.sequence = progress.sequence;
        let text = request.to_text();
        let mut operations =
            vec![Operation::Replace { key: Key::Request(id), text, version: Version::Known(entry.version) }];
        operations.extend(self.change_host(&request.ek, |host| said(host, &progress, now.wall)));
        let rebirth = is_early.then(|| rebirth(address)).flatten();
        self.busy.insert(id);
        self.run(Work::Member(id), operations, rebirth.into_iter().collect());
    }

    /// The attempt that a message is about, if its sender opened the ticket of that attempt, and may report something now. A report that waits for a write is kept; a message of another sender never takes its place.
    fn of_member(
        &mut self,
        id: RequestId,
        address: &Address,
        message: HostMessage,
        now: Now,
    ) -> Option<(Entry<Request>, HostMessage)> {
        let refused = match self.cache.request(id) {
            None => "unknown",
            Some(entry) if matches!(entry.is.record.phase, Phase::Done) => "over",
            Some(entry) if !self.issuer.is_of_member(&entry.is.record, address, &message) => "not-believed",
            Some(_) if self.busy.contains(&id) => {
                self.park(id, address, message);
                return None;
            }
            Some(entry) if !self.limits.host(Source::Member(entry.is.ek), HostClass::Known, now.mono) => "rate",
            Some(entry) => return Some((entry.clone(), message)),
        };
        self.counters.ignore(refused);
        None
    }

    pub(super) fn on_acknowledgement(&mut self, address: &Address, message: Vec<u8>, now: Now) {
        let body =
            Authenticated::decode_acknowledgement(&message).and_then(|outer| Acknowledgement::decode(&outer.body));
        let Ok(Acknowledgement { request: id, .. }) = body else { return self.counters.ignore("malformed") };
        let message = HostMessage::Acknowledgement(message);
        let Some((entry, message)) = self.of_member(id, address, message, now) else { return };
        if !matches!(entry.is.record.phase, Phase::Granted { .. }) {
            // Hosts repeat it for some time; once is enough.
            return self.counters.ignore("over");
        }
        let verifier = self.policy.verifier();
        let record = &entry.is.record;
        if let Err(error) = self.issuer.on_acknowledgement(record, address, message.bytes(), &self.cluster_id, verifier)
        {
            tracing::warn!(request = %id, %error, "acknowledgement not believed");
            return self.counters.ignore("not-believed");
        }
        tracing::info!(request = %id, disk = %record.disk, "host is locked to the cluster");
        self.totals.acknowledged += 1;
        // A rejoin has its keys again, and nothing else was given; others may have said before that they are members.
        if entry.is.record.kind == Kind::Rejoin || self.said_member(&entry.is.ek, id) {
            return self.end(id, Ending::Member, None, now);
        }
        let mut request = entry.is.clone();
        request.record = request.record.acknowledged();
        request.changed_ms = now.wall;
        let (ek, text) = (request.ek, request.to_text());
        let mut operations =
            vec![Operation::Replace { key: Key::Request(id), text, version: Version::Known(entry.version) }];
        operations.extend(self.change_host(&ek, |host| {
            host.bound = true;
            host.state = HostState::Locked.to_string();
            host.last_seen = now.wall;
        }));
        self.busy.insert(id);
        self.run(Work::Member(id), operations, Effects::new());
    }

    /// True if the host has said in this attempt that it is a member.
    fn said_member(&self, ek: &join_attestation::EkHash, id: RequestId) -> bool {
        let host = self.cache.host(ek).map(|entry| &entry.is);
        let host = host.filter(|host| host.request.as_deref() == Some(&*id.to_string()));
        host.is_some_and(|host| host.stage.as_deref() == Some(Stage::Member.name()))
    }

    /// The write of a host's record with a change; None: there is none.
    fn change_host(&self, ek: &join_attestation::EkHash, change: impl FnOnce(&mut HostRecord)) -> Option<Operation> {
        let entry = self.cache.host(ek)?;
        let mut host = entry.is.clone();
        change(&mut host);
        let version = Version::Known(entry.version.clone());
        Some(Operation::Replace { key: Key::Host(*ek), text: to_text(&host), version })
    }

    /// Ends an attempt: its token is revoked, its lease given back.
    pub(super) fn end(&mut self, id: RequestId, ending: Ending, progress: Option<&Progress>, now: Now) {
        let Some(entry) = self.cache.request(id).filter(|entry| entry.is.is_live()) else { return };
        tracing::info!(request = %id, disk = %entry.is.record.disk, why = ending.detail(), "attempt ends");
        let mut operations = reconcile::end(&self.cache, entry, ending, now.wall);
        for operation in &mut operations {
            if let (Operation::Replace { key: Key::Host(_), text, .. }, Some(progress)) = (operation, progress)
                && let Ok(mut host) = crate::document::from_text::<HostRecord>(text)
            {
                said(&mut host, progress, now.wall);
                *text = to_text(&host);
            }
        }
        self.busy.insert(id);
        self.run(Work::Ending(id, ending), operations, Effects::new());
    }

    /// Keeps a message until the write that is under way has ended. Where there are too many, what a host reported gives way to what it reported later; its acknowledgement stays.
    fn park(&mut self, id: RequestId, address: &Address, message: HostMessage) {
        let parked = self.parked.entry(id).or_default();
        if parked.len() >= PARKED_MAX {
            let is_report = |(_, message): &(Address, HostMessage)| matches!(message, HostMessage::Progress(_));
            parked.remove(parked.iter().position(is_report).unwrap_or(0));
        }
        parked.push_back((address.clone(), message));
    }

    /// Nothing is under way about an attempt any more: what waited is looked at.
    pub(super) fn free(&mut self, id: RequestId, now: Now) {
        self.busy.remove(&id);
        if std::mem::take(&mut self.sweep_again) {
            self.sweep_at = now.mono;
        }
        for (address, message) in self.parked.remove(&id).into_iter().flatten() {
            self.on_message(&address, message, now);
        }
    }
}

/// True if a host with a ticket has still to show its lock. That of a renewal is in its first quote.
fn owes_acknowledgement(record: &Record) -> bool {
    record.kind != Kind::Renew && matches!(record.phase, Phase::Granted { .. })
}

fn said(host: &mut HostRecord, progress: &Progress, wall_ms: u64) {
    host.stage = Some(progress.stage.name().to_owned());
    host.detail = (!progress.detail.is_empty()).then(|| progress.detail.clone());
    host.last_seen = wall_ms;
}
