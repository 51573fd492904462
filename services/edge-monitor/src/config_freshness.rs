//! Does one edge agent run the configuration and the secrets that it should? If not: reload requests, until it says so.
//!
//! *Configuration*: the wanted revision is compared with the one that the agent reports; unequal means reload, until equal. *Secrets*: a sealed secret that the node's resource names and that
//! was unsealed in another generation than before means reload, until the agent was born again. What is there at first sight is the baseline: a monitor that starts makes
//! no one reload.
//!
//! A request goes only to a node that is alive and can be reached. Requests repeat with growing, jittered pauses; when enough of them or enough time brought nothing, the alert is raised.
//! It falls when nothing is left to ask for, and then only.

use std::collections::BTreeMap;
use std::time::Duration;

use edge_monitor_contract::Alert;
use sparkplug::Now;
use sparkplug::backoff::Backoff;

use crate::jitter::Jitter;

/// When to ask and when to raise the alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReloadPolicy {
    /// The first request of a cause waits at most this long at random.
    pub jitter: Duration,
    /// First and longest pause between two requests for the same.
    pub pause: (Duration, Duration),
    /// Shortest pause between two requests, whatever they are for.
    pub rest: Duration,
    /// Unheeded requests that raise the alert.
    pub attempts_max: u32,
    /// Time since the first request that raises the alert.
    pub deadline: Duration,
}

/// A SealedSecret, as far as it says whether the agent's copy is current.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedSecret {
    /// UID of the resource; another one means that it was deleted and made again.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`; None before the controller saw it.
    pub observed_generation: Option<i64>,
    /// Condition `Synced` is true.
    pub is_synced: bool,
}

impl SealedSecret {
    /// Identity and generation of what the agent can read in the unsealed Secret; None while that is not certain.
    fn unsealed(&self) -> Option<(&str, i64)> {
        (self.is_synced && self.observed_generation == Some(self.generation)).then_some((&self.uid, self.generation))
    }

    /// The same at first sight: what was unsealed last, even if a change is under way.
    fn baseline(&self) -> Option<(&str, i64)> {
        self.observed_generation.map(|generation| (self.uid.as_str(), generation))
    }
}

/// Whether one edge agent runs the configuration that it should.
#[derive(Debug)]
pub struct ConfigFreshness {
    policy: ReloadPolicy,
    /// None: no one said which configuration it should have. Some(None): it should have none.
    wanted: Option<Option<String>>,
    reported: Option<String>,
    /// Uid and generation of each named secret that the agent is taken to have read.
    secrets: Option<BTreeMap<String, (String, i64)>>,
    secrets_changed: bool,
    reachable: bool,
    attempts: u32,
    /// First request for what is wanted at present, or the end of the last time out of reach since.
    asked_first: Option<Duration>,
    ask_at: Option<Duration>,
    /// No request before: the pause after the last one. It outlives the restart that a reload is.
    not_before: Duration,
    backoff: Backoff,
    alert: Alert,
}

impl ConfigFreshness {
    /// Of an agent that was not received yet.
    pub fn new(policy: ReloadPolicy, seed: u64, now: Now) -> Self {
        Self {
            policy,
            wanted: None,
            reported: None,
            secrets: None,
            secrets_changed: false,
            reachable: false,
            attempts: 0,
            asked_first: None,
            ask_at: None,
            not_before: Duration::ZERO,
            backoff: Backoff::new(policy.pause, seed),
            alert: Alert { active: false, since: now.wall },
        }
    }

    /// The wanted revision, if someone wants one.
    pub fn wanted(&self) -> Option<&str> {
        self.wanted.as_ref().and_then(Option::as_deref)
    }

    /// The revision that the agent reports.
    pub fn reported(&self) -> Option<&str> {
        self.reported.as_deref()
    }

    /// The alert that it will not reload.
    pub const fn alert(&self) -> Alert {
        self.alert
    }

    /// Requests sent for what is wanted at present.
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Someone says which revision the agent should have.
    pub fn want(&mut self, revision: Option<String>, now: Now, jitter: &mut Jitter) {
        if revision.is_none() && self.wanted.is_none() {
            return;
        }
        if self.wanted.as_ref() != Some(&revision) {
            self.wanted = Some(revision);
            self.begin_again(now);
            self.plan(now, jitter);
        }
    }

    /// The agent says which revision it has.
    pub fn report(&mut self, revision: Option<String>, now: Now, jitter: &mut Jitter) {
        self.reported = revision;
        self.plan(now, jitter);
    }

    /// All sealed secrets that exist, by name, and the names that concern this agent.
    pub fn see_secrets(
        &mut self,
        all: &BTreeMap<String, SealedSecret>,
        names: &[String],
        now: Now,
        jitter: &mut Jitter,
    ) {
        let named = || names.iter().filter_map(|name| all.get(name).map(|secret| (name, secret)));
        let owned = |name: &String, (uid, generation): (&str, i64)| (name.clone(), (uid.to_owned(), generation));
        let Some(known) = &mut self.secrets else {
            let baseline = named().filter_map(|(name, secret)| secret.baseline().map(|read| owned(name, read)));
            self.secrets = Some(baseline.collect());
            return;
        };
        let mut changed = false;
        for (name, secret) in named() {
            let Some(read) = secret.unsealed() else { continue };
            let (name, read) = owned(name, read);
            changed |= known.get(&name) != Some(&read);
            known.insert(name, read);
        }
        if changed {
            self.secrets_changed = true;
            self.begin_again(now);
            self.plan(now, jitter);
        }
    }

    /// The agent was born. A request that was sent before is answered by that, as far as secrets are concerned.
    pub fn born(&mut self, now: Now, jitter: &mut Jitter) {
        if self.asked_first.is_some() {
            self.secrets_changed = false;
        }
        self.plan(now, jitter);
    }

    /// Whether a request could arrive: the node is alive and the own session is up.
    pub fn set_reachable(&mut self, reachable: bool, now: Now, jitter: &mut Jitter) {
        if self.reachable != reachable {
            self.reachable = reachable;
            // The deadline counts time in which the node could have answered.
            self.asked_first = self.asked_first.map(|_| now.mono);
            self.plan(now, jitter);
        }
    }

    /// When [`ConfigFreshness::on_timer`] has something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.ask_at.map(|ask_at| self.alarm_at().map_or(ask_at, |alarm_at| alarm_at.min(ask_at)))
    }

    /// Does what is due; true: send the reload request.
    pub fn on_timer(&mut self, now: Now) -> bool {
        let is_due = self.ask_at.is_some_and(|at| at <= now.mono);
        let attempts_used_up = is_due && self.attempts >= self.policy.attempts_max;
        if self.ask_at.is_some() && (attempts_used_up || self.alarm_at().is_some_and(|at| at <= now.mono)) {
            self.alarm(true, now);
        }
        if is_due {
            self.attempts = self.attempts.saturating_add(1);
            self.asked_first.get_or_insert(now.mono);
            self.not_before = now.mono + self.backoff.next_delay();
            self.ask_at = Some(self.not_before);
        }
        is_due
    }

    fn is_needed(&self) -> bool {
        self.secrets_changed || self.wanted.as_ref().is_some_and(|wanted| *wanted != self.reported)
    }

    /// After every change: a request is planned exactly while one is needed and can arrive.
    fn plan(&mut self, now: Now, jitter: &mut Jitter) {
        if !self.is_needed() {
            self.begin_again(now);
            self.alarm(false, now);
        } else if self.reachable {
            self.ask_at.get_or_insert_with(|| (now.mono + jitter.up_to(self.policy.jitter)).max(self.not_before));
        } else {
            self.ask_at = None;
        }
    }

    fn begin_again(&mut self, now: Now) {
        self.attempts = 0;
        self.asked_first = None;
        self.ask_at = None;
        self.backoff.reset();
        // What is wanted may change faster than an agent restarts: it still gets some rest between two requests.
        self.not_before = self.not_before.min(now.mono + self.policy.rest);
    }

    fn alarm_at(&self) -> Option<Duration> {
        let first = self.asked_first.filter(|_| !self.alert.active);
        first.map(|first| first + self.policy.deadline)
    }

    fn alarm(&mut self, active: bool, now: Now) {
        if self.alert.active != active {
            self.alert = Alert { active, since: now.wall };
        }
    }
}

#[cfg(test)]
mod tests;
