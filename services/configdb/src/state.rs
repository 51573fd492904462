//! The service's decisions: a command becomes a transaction and a publication to readers, or a refusal.
//!
//! All that comes in between two calls of [`State::take_turn`] is one turn: its transactions are committed together, then its effects are executed. In them, data of objects comes
//! first, then the revision it adds up to, then the answers. Before the last two, the turn is recorded: readers have the data meanwhile. A request whose id was answered before gets the same answer and changes nothing.

mod requests;
mod transactions;

use std::collections::BTreeSet;
use std::time::Duration;

use configdb_contract::command::{device_id, user_of};
use configdb_contract::names;
use configdb_contract::{
    Command, CommandError, CommitRequest, HistoryEntry, Outcome, PartRequest, ReplayRequest, RequestResult,
    WriteRequest,
};
use configdb_schema::application::{MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use configdb_schema::known::service;
use service_runtime::{Effects, Unsaved};
use sparkplug::edge_node::{NodeEvent, NodeUpdate};
use sparkplug::{DeviceId, Metric, Now};
use uuid::Uuid;

use crate::event::{Effect, Event};
use crate::model::{Applied, Inconsistent, Limits, Model, Origin, Publication, Refusal};
use crate::store::{Commit, Snapshot};
use crate::{births, builtin};
use requests::{Known, RequestLog};
use transactions::Transactions;

/// Longest reason in an answer; the rest is cut off.
const REASON_BYTES_MAX: usize = 2_000;

/// The turn's outcome: commit, then execute.
#[derive(Debug)]
#[must_use = "a turn that is dropped is neither stored nor published"]
pub struct Turn {
    /// What must survive before anything is published.
    pub commit: Commit,
    /// What follows from it.
    pub effects: Effects<Unsaved, Effect>,
}

/// Counters since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Requests that changed something, or found everything as requested.
    pub applied: u64,
    pub refused: u64,
    /// Requests answered from memory.
    pub repeated: u64,
}

#[derive(Debug)]
pub struct State {
    model: Model,
    requests: RequestLog,
    transactions: Transactions,
    counters: Counters,
    commit: Commit,
    data: Vec<Effect>,
    answers: Vec<Effect>,
    /// Revision and number of objects that were published last.
    published: Option<(u64, usize)>,
    /// Objects born in this turn, those that died in it again included.
    births: usize,
    /// Of this session, until its first transaction has begun it.
    timeline: Option<u64>,
    /// The same, until the next session.
    session: Option<u64>,
    /// Why nothing can be stored at present.
    read_only: Option<String>,
    /// What comes with the program was not looked at, because nothing could be stored.
    defaults_due: bool,
    /// What an operator has to do something about.
    alert: Option<String>,
    /// See [`State::trust_users`].
    are_users_bound: bool,
}

impl State {
    /// The state as it was stored.
    ///
    /// # Errors
    /// [`Inconsistent`], if the store cannot have come from this program.
    pub fn new(snapshot: &Snapshot, limits: Limits) -> Result<Self, Inconsistent> {
        Ok(Self {
            model: Model::from_snapshot(snapshot, limits)?,
            requests: RequestLog::new(&snapshot.requests, limits.requests_max),
            transactions: Transactions::default(),
            counters: Counters::default(),
            commit: Commit::default(),
            data: Vec::new(),
            answers: Vec::new(),
            published: None,
            births: 0,
            timeline: None,
            session: None,
            read_only: None,
            defaults_due: false,
            alert: None,
            are_users_bound: false,
        })
    }

    /// The store in memory.
    #[must_use]
    pub const fn model(&self) -> &Model {
        &self.model
    }

    /// Counters since the start.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Metrics that the edge node is made with.
    #[must_use]
    pub fn node_metrics(&self) -> Vec<Metric> {
        births::node_metrics(&self.model, self.requests.last(), self.alert.clone())
    }

    /// Publishes what an operator has to act on, and when that is over.
    pub fn set_alert(&mut self, alert: Option<String>) {
        if self.alert != alert {
            let metrics = vec![births::alert_metric(alert.as_deref())];
            self.data.push(Effect::Node(NodeUpdate::Set { device: None, metrics }));
            self.alert = alert;
        }
    }

    /// From here on every write is refused for that reason, and everything can be read.
    pub fn set_read_only(&mut self, reason: String) {
        self.read_only = Some(reason);
    }

    /// Why nothing is written at present.
    #[must_use]
    pub fn read_only(&self) -> Option<&str> {
        self.read_only.as_deref()
    }

    /// Writes are carried out again.
    pub fn set_writable(&mut self, now: Now) {
        self.read_only = None;
        if std::mem::take(&mut self.defaults_due) {
            self.write_defaults(now, true);
        }
    }

    /// The turn that had these answers could not be stored: the state is what is stored, and the requests are refused.
    ///
    /// # Errors
    /// [`Inconsistent`], if the store cannot have come from this program.
    pub fn roll_back(
        &mut self,
        stored: &Snapshot,
        answers: &[RequestResult],
        reason: &str,
        now: Now,
    ) -> Result<(), Inconsistent> {
        let limits = *self.model.limits();
        self.model = Model::from_snapshot(stored, limits)?;
        self.requests = RequestLog::new(&stored.requests, limits.requests_max);
        let is_unknown = |timeline: &u64| self.model.timelines().last_of(*timeline, self.model.revision()).is_none();
        self.timeline = self.session.filter(is_unknown);
        self.published = self.published.map(|_| (self.model.revision(), self.model.object_count()));
        self.read_only = Some(reason.to_owned());
        for answer in answers {
            self.refuse_unrecorded(&answer.id, answer.object, no_room(reason), now);
        }
        Ok(())
    }

    /// The MQTT server lets a client send to the Device that is called as its user, and to no other such Device.
    pub const fn trust_users(&mut self) {
        self.are_users_bound = true;
    }

    /// Under what name a write is stored; None: the one that it gives. What only looks as if this program or the server said it is marked.
    fn writer_of(&self, device: Option<&DeviceId>, claimed: Option<&str>) -> Option<String> {
        let user = device.and_then(user_of);
        match (user, claimed) {
            (Some(user), _) if self.are_users_bound => Some(format!("{}{user}", names::WRITER_USER)),
            (_, Some(name)) if is_reserved(name) => Some(format!("{}{name}", names::WRITER_CLAIMED)),
            (Some(user), None) => Some(user.to_owned()),
            _ => None,
        }
    }

    /// Takes an event in.
    pub fn on_event(&mut self, event: Event, now: Now) {
        match event {
            Event::Start { timeline } => self.start(timeline, now),
            Event::SessionEnded { timeline } => self.draw(timeline),
            Event::Node(NodeEvent::Command { device, metrics, .. }) => {
                let meant = Command::store(&metrics).filter(|store| *store != self.model.identity());
                let parsed = Command::parse(device.as_ref(), &metrics).map(|mut command| {
                    if let Some(writer) = self.writer_of(device.as_ref(), command.writer()) {
                        command.set_writer(writer);
                    }
                    command
                });
                match parsed {
                    Ok(command) if let Some(meant) = meant => {
                        let refusal = other_store(meant, self.model.identity());
                        self.refuse_unrecorded(command.id(), command.object(), refusal, now);
                    }
                    Ok(Command::Write(request)) => self.on_write(&request, now),
                    Ok(Command::Part(part)) => self.on_part(part, now),
                    Ok(Command::Commit(commit)) => self.on_commit(&commit, now),
                    Ok(Command::Replay(request)) => self.on_replay(request, now),
                    Err(error) => self.on_malformed(error, now),
                }
            }
            Event::Node(_) => {}
            Event::History { request, history } => self.on_history(&request, history, now),
        }
    }

    /// ConfigDB acts only on what comes in.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Duration> {
        None
    }

    /// What the events since the last turn add up to.
    pub fn take_turn(&mut self) -> Turn {
        let mut effects = Effects::new();
        let of_node = |metrics| Effect::Node(NodeUpdate::Set { device: None, metrics });
        let births = std::mem::take(&mut self.births);
        let announced = self.published.map_or(0, |(_, objects)| objects) + births;
        if births > 0 {
            effects.push(of_node(vec![births::objects_metric(announced)]));
        }
        if self.commit.timelines.is_some() {
            effects.push(of_node(vec![births::timelines_metric(&self.model)]));
        }
        effects.extend(std::mem::take(&mut self.data));
        if !self.commit.transactions.is_empty() {
            effects.push(Effect::Record);
        }
        let present = (self.model.revision(), self.model.object_count());
        if self.published.replace(present) != Some(present) {
            effects.push(of_node(births::revision_metrics(&self.model)));
        }
        effects.extend(std::mem::take(&mut self.answers));
        let mut commit = std::mem::take(&mut self.commit);
        commit.forget_below = self.requests.forget_below();
        Turn { commit, effects }
    }

    /// What is written from here on is of another timeline, which the first transaction begins.
    fn draw(&mut self, timeline: u64) {
        self.timeline = Some(timeline);
        self.session = Some(timeline);
    }

    fn start(&mut self, timeline: u64, now: Now) {
        self.draw(timeline);
        self.defaults_due = self.read_only.is_some();
        if !self.defaults_due {
            self.write_defaults(now, false);
        }
        self.data = births::everything(&self.model).map(Effect::Node).collect();
        self.births = self.model.object_count();
    }

    /// Writes what comes with the program. `is_born`: readers know the objects already.
    fn write_defaults(&mut self, now: Now, is_born: bool) {
        if self.model.timelines().is_empty() {
            self.begin_timeline(self.model.revision());
        }
        for request in builtin::requests(&self.model) {
            let origin = Origin { writer: builtin::WRITER, builtin: true, time: now.wall };
            match self.apply(&request, origin) {
                Ok(applied) => {
                    self.commit.transactions.extend(applied.transaction);
                    if is_born {
                        self.births += usize::from(applied.is_birth);
                        self.publish(request.object, applied.publication);
                    }
                }
                // The site has arranged its objects such that the default does not fit; it is the site's store.
                Err(refusal) => tracing::info!(object_id = %request.object, error = %refusal, "default not written"),
            }
        }
    }

    fn on_write(&mut self, request: &WriteRequest, now: Now) {
        let digest = requests::digest(request);
        if self.is_answered(&request.id, digest, request.object, now) {
            return;
        }
        let applied = self.apply(request, origin(request, now));
        let result = match applied {
            Ok(applied) => {
                self.counters.applied += 1;
                self.births += usize::from(applied.is_birth);
                self.publish(request.object, applied.publication);
                self.commit.transactions.extend(applied.transaction);
                let etags = applied.etags.into_iter().collect();
                self.result(&request.id, request.object, Outcome::Applied, now, |result| result.etags = etags)
            }
            Err(refusal) => {
                self.counters.refused += 1;
                self.refusal(&request.id, request.object, refusal, now)
            }
        };
        self.record(digest, &result);
    }

    fn on_part(&mut self, part: PartRequest, now: Now) {
        let (id, object) = (part.write.id.clone(), part.write.object);
        if let Some(reason) = &self.read_only {
            let refusal = no_room(reason);
            return self.refuse_unrecorded(&id, object, refusal, now);
        }
        match self.transactions.stage(part, now.mono) {
            Ok(()) => {
                let result = self.result(&id, object, Outcome::Staged, now, |_| {});
                self.answer(&result);
            }
            Err(refusal) => self.refuse_unrecorded(&id, object, refusal, now),
        }
    }

    fn on_commit(&mut self, commit: &CommitRequest, now: Now) {
        let digest = requests::digest(commit);
        if self.is_answered(&commit.id, digest, service::CONFIGDB, now) {
            return;
        }
        let parts = match self.transactions.take(&commit.transaction, commit.parts) {
            Ok(parts) => parts,
            Err(refusal) => return self.refuse_unrecorded(&commit.id, service::CONFIGDB, refusal, now),
        };
        let result = match self.apply_all(&parts, now) {
            Ok(()) => {
                self.counters.applied += 1;
                self.result(&commit.id, service::CONFIGDB, Outcome::Applied, now, |_| {})
            }
            Err((object, refusal)) => {
                self.counters.refused += 1;
                self.refusal(&commit.id, object, refusal, now)
            }
        };
        self.record(digest, &result);
    }

    /// Applies all requests, or none; then the object that is at fault comes with the refusal.
    fn apply_all(&mut self, requests: &[WriteRequest], now: Now) -> Result<(), (Uuid, Refusal)> {
        let before = (self.model.clone(), self.timeline, self.commit.timelines.clone());
        let mut all = Vec::with_capacity(requests.len());
        for request in requests {
            match self.apply(request, origin(request, now)) {
                Ok(applied) => all.push((request.object, applied)),
                Err(refusal) => {
                    (self.model, self.timeline, self.commit.timelines) = before;
                    return Err((request.object, refusal));
                }
            }
        }
        for (object, applied) in all {
            self.births += usize::from(applied.is_birth);
            self.commit.transactions.extend(applied.transaction);
            self.publish(object, applied.publication);
        }
        Ok(())
    }

    /// Answers a request whose id was used before, or that cannot be stored.
    fn is_answered(&mut self, id: &str, digest: Uuid, object: Uuid, now: Now) -> bool {
        match self.requests.find(id, digest) {
            Known::No => match &self.read_only {
                None => return false,
                Some(reason) => {
                    let refusal = no_room(reason);
                    self.refuse_unrecorded(id, object, refusal, now);
                }
            },
            Known::Same(mut result) => {
                self.counters.repeated += 1;
                result.at = now.wall;
                self.answer(&result);
            }
            Known::Other => {
                let reason = "this id was used for another request; give every request an id of its own";
                let refusal = Refusal { field: "Request/Id".to_owned(), reason: reason.to_owned() };
                self.refuse_unrecorded(id, object, refusal, now);
            }
        }
        true
    }

    fn record(&mut self, digest: Uuid, result: &RequestResult) {
        self.commit.requests.push(self.requests.record(digest, result.clone()));
        self.answer(result);
    }

    /// Applies a request; the first that changes something begins the timeline of this session.
    fn apply(&mut self, request: &WriteRequest, origin: Origin<'_>) -> Result<Applied, Refusal> {
        let revision = self.model.revision();
        let applied = self.model.apply(request, origin)?;
        if applied.transaction.is_some() {
            self.begin_timeline(revision);
        }
        Ok(applied)
    }

    fn begin_timeline(&mut self, revision: u64) {
        let Some(timeline) = self.timeline.take() else { return };
        self.model.begin_timeline(timeline, revision);
        self.commit.timelines = Some(self.model.timelines().clone());
    }

    fn publish(&mut self, object: Uuid, publication: Publication) {
        let device = device_id(object);
        let update = match publication {
            Publication::Nothing => return,
            Publication::Died => NodeUpdate::DeviceDeath { device },
            // An entry that is gone has no ETag any more.
            Publication::Changed(metrics) => NodeUpdate::Replace { device: Some(device), metrics },
            Publication::Born => {
                let Some(born) = self.model.live_object(object) else { return };
                NodeUpdate::DeviceBirth { device, metrics: births::object_metrics(&self.model, object, born) }
            }
        };
        self.data.push(Effect::Node(update));
    }

    fn on_malformed(&mut self, error: CommandError, now: Now) {
        self.counters.refused += 1;
        let object = error.object.unwrap_or(Uuid::nil());
        let refusal = Refusal { field: error.field, reason: error.reason };
        match error.id {
            Some(id) => {
                let result = self.refusal(&id, object, refusal, now);
                self.answer(&result);
            }
            // No one could recognise an answer as his.
            None => {
                tracing::warn!(object_id = %object, error = %refusal, "command without a usable request id refused")
            }
        }
    }

    fn refuse_unrecorded(&mut self, id: &str, object: Uuid, refusal: Refusal, now: Now) {
        self.counters.refused += 1;
        let result = self.refusal(id, object, refusal, now);
        self.answer(&result);
    }

    fn on_replay(&mut self, request: ReplayRequest, now: Now) {
        let refusal = if self.model.live_object(request.object).is_none() {
            Some((
                "device id",
                "the object does not exist; only objects that exist have a history to replay".to_owned(),
            ))
        } else {
            let unknown = request.slug.as_deref().filter(|slug| !self.is_metric(slug));
            unknown.map(|slug| ("History/Application", format!("no application has the slug {slug:?}")))
        };
        match refusal {
            None => {
                if request.values {
                    self.data.push(Effect::Node(NodeUpdate::Resend { device: device_id(request.object) }));
                }
                self.data.push(Effect::ReadHistory(request));
            }
            Some((field, reason)) => {
                let refusal = Refusal { field: field.to_owned(), reason };
                self.refuse_unrecorded(&request.id, request.object, refusal, now);
            }
        }
    }

    fn on_history(&mut self, request: &ReplayRequest, history: Result<Vec<HistoryEntry>, String>, now: Now) {
        let refusal = match history {
            Ok(_) if self.model.live_object(request.object).is_none() => "the object is gone".to_owned(),
            Ok(history) => {
                let device = device_id(request.object);
                let absent = self.absent_entries(request.object, &history);
                if !absent.is_empty() {
                    self.data.push(Effect::Node(NodeUpdate::Set { device: Some(device.clone()), metrics: absent }));
                }
                for past in history {
                    // An application that is gone has no metric that could carry its past.
                    if self.is_metric(&past.slug) {
                        let metrics = vec![past.to_metric()];
                        self.data.push(Effect::Node(NodeUpdate::Historical { device: Some(device.clone()), metrics }));
                    }
                }
                let result = self.result(&request.id, request.object, Outcome::Applied, now, |_| {});
                return self.answer(&result);
            }
            Err(reason) => format!("the history cannot be read: {reason}"),
        };
        let refusal = Refusal { field: "History/Replay".to_owned(), reason: refusal };
        self.refuse_unrecorded(&request.id, request.object, refusal, now);
    }

    /// Metrics of entries that an object does not have but had: the birth must hold what carries the past.
    fn absent_entries(&self, object: Uuid, history: &[HistoryEntry]) -> Vec<Metric> {
        let Some(present) = self.model.live_object(object) else { return Vec::new() };
        let slugs: BTreeSet<&str> = history.iter().map(|past| &*past.slug).collect();
        let applications = self.model.applications().filter(|(slug, _)| slugs.contains(&***slug));
        let absent = applications.filter(|(_, application)| !present.entries.contains_key(application));
        absent.map(|(slug, application)| crate::object_metrics::entry_metric(slug, application, present)).collect()
    }

    /// Whether objects may have a metric of this name, so that it can be replayed.
    fn is_metric(&self, slug: &str) -> bool {
        slug == REGISTRATION_SLUG
            || slug == MEMBERSHIP_SLUG
            || self.model.applications().any(|(known, _)| &**known == slug)
    }

    fn refusal(&self, id: &str, object: Uuid, refusal: Refusal, now: Now) -> RequestResult {
        self.result(id, object, Outcome::Refused, now, |result| {
            result.field = Some(cut(refusal.field));
            result.reason = Some(cut(refusal.reason));
        })
    }

    fn result(
        &self,
        id: &str,
        object: Uuid,
        outcome: Outcome,
        now: Now,
        complete: impl FnOnce(&mut RequestResult),
    ) -> RequestResult {
        let mut result = RequestResult {
            id: id.to_owned(),
            object,
            outcome,
            store: Some(self.model.identity()),
            revision: self.model.revision(),
            etags: std::collections::BTreeMap::new(),
            reason: None,
            field: None,
            at: now.wall,
        };
        complete(&mut result);
        result
    }

    fn answer(&mut self, result: &RequestResult) {
        self.answers.push(Effect::Node(NodeUpdate::Set { device: None, metrics: vec![result.to_metric()] }));
    }
}

fn no_room(reason: &str) -> Refusal {
    let reason = format!("{reason}; nothing was written, and everything can be read. Make room, and write again");
    Refusal { field: "Config/Store".to_owned(), reason }
}

fn other_store(meant: Uuid, own: Uuid) -> Refusal {
    let reason = format!("is {meant}, but this ConfigDB has the store {own}; read what it holds, and ask again");
    Refusal { field: names::REQUEST_STORE.to_owned(), reason }
}

/// Names of writers that only this program gives.
fn is_reserved(name: &str) -> bool {
    name == builtin::WRITER || [names::WRITER_USER, names::WRITER_CLAIMED].iter().any(|prefix| name.starts_with(prefix))
}

fn origin(request: &WriteRequest, now: Now) -> Origin<'_> {
    Origin { writer: request.writer.as_deref().unwrap_or("unknown"), builtin: false, time: now.wall }
}

fn cut(mut text: String) -> String {
    if text.len() > REASON_BYTES_MAX {
        let end = (0..=REASON_BYTES_MAX).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests;
