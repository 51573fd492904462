//! Desired and reported, for writers: a request is repeated, with back-off and jitter, until ConfigDB answers it or its deadline ends it visibly.
//!
//! Requests to one object go one after the other, so that a repeated older one never overtakes a newer one. Requests to different objects go at the
//! same time, up to a window. Repeating is harmless: ConfigDB answers a known id with the recorded result.
//!
//! Feed it with the changes of the [`crate::ConfigReplica`] and the time; send what it puts out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sparkplug::host::HostRequest;
use sparkplug::{EdgeNodeDescriptor, Now};
use uuid::Uuid;

use crate::command::{Command, CommitRequest, PartRequest, ReplayRequest, WriteRequest};
use crate::replica::Change;
use crate::result::RequestResult;

/// Settings of a [`Writer`].
#[derive(Debug, Clone)]
pub struct WriterConfig {
    /// The ConfigDB.
    pub node: EdgeNodeDescriptor,
    /// First and longest wait before a repetition; between them it doubles. Half of each wait is jitter.
    pub repeat: (Duration, Duration),
    /// How long a request is repeated, from when it is first sent.
    pub deadline: Duration,
    /// Requests under way at the same time. Commands are QoS 0: a burst that overruns a queue only costs repetitions.
    pub window: usize,
    /// Requests that wait or are under way; more are not accepted.
    pub requests_max: usize,
}

impl WriterConfig {
    /// Repeat after 1 s to 15 s for 2 minutes, 64 at a time, 20,000 in all.
    #[must_use]
    pub const fn new(node: EdgeNodeDescriptor) -> Self {
        Self {
            node,
            repeat: (Duration::from_secs(1), Duration::from_secs(15)),
            deadline: Duration::from_secs(120),
            window: 64,
            requests_max: 20_000,
        }
    }
}

/// What [`Writer::poll_output`] yields.
#[derive(Debug, Clone, PartialEq)]
pub enum WriterOutput {
    /// For the Host Application.
    Send(HostRequest),
    /// ConfigDB answered: applied, staged or refused.
    Answered(RequestResult),
    /// There is no answer. The request may or may not have been carried out; ask again with the same id.
    GaveUp {
        /// Id of the request.
        id: String,
        /// The object.
        object: Uuid,
        /// How often it was sent.
        attempts: u32,
        /// Why it is not sent again.
        reason: GaveUpReason,
    },
}

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GaveUpReason {
    /// Its deadline passed.
    Deadline,
    /// The ConfigDB that it was sent to is replaced by one with another store.
    OtherStore,
}

/// Why a request is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Too many requests wait.
    #[error(
        "{waiting} requests to ConfigDB wait for an answer; at most {max} are allowed, submit again when some are answered"
    )]
    Full {
        /// How many.
        waiting: usize,
        /// The limit.
        max: usize,
    },
    /// That id waits already.
    #[error("request {id:?} waits for an answer already; ids must differ")]
    Duplicate {
        /// The id.
        id: String,
    },
}

#[derive(Debug)]
struct UnderWay {
    request: Command,
    /// The store that it is for: the one that was known when it was sent first.
    store: Option<Uuid>,
    attempts: u32,
    repeat_at: Duration,
    deadline: Duration,
}

/// The machine.
#[derive(Debug)]
pub struct Writer {
    config: WriterConfig,
    store: Option<Uuid>,
    waiting: VecDeque<Command>,
    ids: BTreeSet<String>,
    under_way: BTreeMap<String, UnderWay>,
    busy: BTreeSet<Uuid>,
    random: u64,
    outputs: VecDeque<WriterOutput>,
}

impl Writer {
    /// A writer with nothing to do. `seed` is that of its jitter.
    #[must_use]
    pub const fn new(config: WriterConfig, seed: u64) -> Self {
        Self {
            config,
            store: None,
            waiting: VecDeque::new(),
            ids: BTreeSet::new(),
            under_way: BTreeMap::new(),
            busy: BTreeSet::new(),
            random: seed,
            outputs: VecDeque::new(),
        }
    }

    /// Sends a write request until it is answered.
    ///
    /// # Errors
    /// [`SubmitError`]; the request was not taken then.
    pub fn submit(&mut self, request: WriteRequest, now: Now) -> Result<(), SubmitError> {
        self.take(Command::Write(request), now)
    }

    /// Sends a part of a transaction until it is answered.
    ///
    /// # Errors
    /// [`SubmitError`]; the request was not taken then.
    pub fn submit_part(&mut self, part: PartRequest, now: Now) -> Result<(), SubmitError> {
        self.take(Command::Part(part), now)
    }

    /// Asks for the commit of a transaction until it is answered.
    ///
    /// # Errors
    /// [`SubmitError`]; the request was not taken then.
    pub fn submit_commit(&mut self, commit: CommitRequest, now: Now) -> Result<(), SubmitError> {
        self.take(Command::Commit(commit), now)
    }

    /// Sends a replay request until it is answered. Its history comes as [`Change::History`] before the answer, again with each repetition.
    ///
    /// # Errors
    /// [`SubmitError`]; the request was not taken then.
    pub fn submit_replay(&mut self, request: ReplayRequest, now: Now) -> Result<(), SubmitError> {
        self.take(Command::Replay(request), now)
    }

    fn take(&mut self, request: Command, now: Now) -> Result<(), SubmitError> {
        if self.ids.len() >= self.config.requests_max {
            return Err(SubmitError::Full { waiting: self.ids.len(), max: self.config.requests_max });
        }
        if !self.ids.insert(request.id().to_owned()) {
            return Err(SubmitError::Duplicate { id: request.id().to_owned() });
        }
        self.waiting.push_back(request);
        self.start_waiting(now);
        Ok(())
    }

    /// Takes a change of the replica: answers, and that ConfigDB is back.
    pub fn on_change(&mut self, change: &Change, now: Now) {
        match change {
            Change::Result(result) => self.on_result(result, now),
            Change::BecameComplete { store } => {
                self.store = *store;
                self.give_up_other_stores(now);
                self.repeat_soon(now);
            }
            _ => {}
        }
    }

    fn on_result(&mut self, result: &RequestResult, now: Now) {
        // Of two ConfigDBs on one server, the other one has not carried it out.
        let is_meant =
            |asked: &UnderWay| asked.store.is_none() || result.store.is_none() || asked.store == result.store;
        if !self.under_way.get(&result.id).is_some_and(is_meant) {
            return;
        }
        let Some(answered) = self.under_way.remove(&result.id) else { return };
        self.finish(&answered.request);
        self.outputs.push_back(WriterOutput::Answered(result.clone()));
        self.start_waiting(now);
    }

    /// The store that these were asked of is not there any more.
    fn give_up_other_stores(&mut self, now: Now) {
        let other = |asked: &UnderWay| asked.store.is_some() && asked.store != self.store;
        let ids: Vec<String> = self.under_way.iter().filter(|(_, u)| other(u)).map(|(id, _)| id.clone()).collect();
        for under_way in ids.into_iter().filter_map(|id| self.under_way.remove(&id)).collect::<Vec<_>>() {
            self.give_up(under_way, GaveUpReason::OtherStore);
        }
        self.start_waiting(now);
    }

    fn give_up(&mut self, under_way: UnderWay, reason: GaveUpReason) {
        self.finish(&under_way.request);
        let UnderWay { request, attempts, .. } = under_way;
        self.outputs.push_back(WriterOutput::GaveUp {
            id: request.id().to_owned(),
            object: request.object(),
            attempts,
            reason,
        });
    }

    /// ConfigDB was away: what was sent to it is probably lost, so the next repetition need not wait for its turn.
    fn repeat_soon(&mut self, now: Now) {
        let soon = now.mono + self.config.repeat.0;
        let late: Vec<String> =
            self.under_way.iter().filter(|(_, u)| u.repeat_at > soon).map(|(id, _)| id.clone()).collect();
        for id in late {
            let at = now.mono + self.jittered(self.config.repeat.0);
            if let Some(under_way) = self.under_way.get_mut(&id) {
                under_way.repeat_at = at;
            }
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now) {
        let due: Vec<String> = self
            .under_way
            .iter()
            .filter(|(_, u)| u.repeat_at.min(u.deadline) <= now.mono)
            .map(|(id, _)| id.clone())
            .collect();
        for id in due {
            let Some(mut under_way) = self.under_way.remove(&id) else { continue };
            if under_way.deadline <= now.mono {
                self.give_up(under_way, GaveUpReason::Deadline);
                continue;
            }
            self.outputs
                .push_back(WriterOutput::Send(under_way.request.to_command(&self.config.node, under_way.store)));
            let doubled = self.config.repeat.0.saturating_mul(1 << under_way.attempts.min(16));
            under_way.attempts += 1;
            under_way.repeat_at = now.mono + self.jittered(doubled.min(self.config.repeat.1));
            self.under_way.insert(id, under_way);
        }
        self.start_waiting(now);
    }

    /// `Now::mono` at which [`Writer::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.under_way.values().map(|u| u.repeat_at.min(u.deadline)).min()
    }

    /// The next thing to do or to report, in order.
    pub fn poll_output(&mut self) -> Option<WriterOutput> {
        self.outputs.pop_front()
    }

    /// Whether a request with that id waits for its answer.
    #[must_use]
    pub fn is_waiting(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    /// Whether every request has been answered or given up.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.ids.is_empty()
    }

    fn start_waiting(&mut self, now: Now) {
        let mut at = 0;
        while self.under_way.len() < self.config.window && at < self.waiting.len() {
            if self.busy.contains(&self.waiting[at].object()) {
                at += 1;
                continue;
            }
            let Some(request) = self.waiting.remove(at) else { break };
            self.busy.insert(request.object());
            self.outputs.push_back(WriterOutput::Send(request.to_command(&self.config.node, self.store)));
            let under_way = UnderWay {
                store: self.store,
                repeat_at: now.mono + self.jittered(self.config.repeat.0),
                deadline: now.mono + self.config.deadline,
                attempts: 1,
                request,
            };
            self.under_way.insert(under_way.request.id().to_owned(), under_way);
        }
    }

    fn finish(&mut self, request: &Command) {
        self.busy.remove(&request.object());
        self.ids.remove(request.id());
    }

    /// Between half of `wait` and all of it.
    fn jittered(&mut self, wait: Duration) -> Duration {
        // splitmix64: good enough to spread repetitions, and the same for the same seed.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let fraction = u32::try_from((z ^ (z >> 31)) % 1_000).unwrap_or(0);
        wait / 2 + wait * fraction / 2_000
    }
}

#[cfg(test)]
mod tests;
