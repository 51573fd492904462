//! Whether the API server answers. Sync works on while it does not; this decides what is said about it, and asks until it answers.
//!
//! One request without an answer may be that request's own fault. Therefore the question ([`Effect::Probe`]): only if that has no answer either, the API server is away, and only
//! its return is a reason to try at once what waits.

use std::collections::BTreeMap;
use std::time::Duration;

use sparkplug::backoff::Backoff;

use crate::event::{Effect, ErrorClass, KubernetesError};
use crate::object::Kind;

/// An outage that begins so soon after the last one is the same: the pauses between questions keep growing.
const QUIET: Duration = Duration::from_secs(60);
/// A watch that has no answer so often in a row is reported even if the API server answers otherwise.
const INTERRUPTIONS: u32 = 2;

/// What is being watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watch {
    Nodes,
    /// Objects of a kind.
    Objects(Kind),
}

#[derive(Debug)]
enum Outage {
    /// The last request was answered.
    None,
    /// A request was not answered, and the question is asked.
    Suspected,
    /// Nor was the question.
    Certain(String),
}

#[derive(Debug)]
struct Interruption {
    error: KubernetesError,
    times: u32,
}

/// State of the link.
#[derive(Debug)]
pub struct Link {
    outage: Outage,
    /// When the last outage ended.
    ended: Option<Duration>,
    /// Watches that are not running.
    interrupted: BTreeMap<Watch, Interruption>,
    retry: Backoff,
    probe_at: Option<Duration>,
}

impl Link {
    /// Nothing is known to be wrong.
    pub fn new(retry: Backoff) -> Self {
        Self { outage: Outage::None, ended: None, interrupted: BTreeMap::new(), retry, probe_at: None }
    }

    /// An answer came, whatever it was. True: it ends an outage.
    pub fn answered(&mut self, now: Duration) -> bool {
        self.probe_at = None;
        let was_away = matches!(std::mem::replace(&mut self.outage, Outage::None), Outage::Certain(_));
        if was_away {
            self.ended = Some(now);
        }
        was_away
    }

    /// Takes an error. True: it was an answer, and ends an outage.
    pub fn failed(&mut self, error: &KubernetesError, now: Duration) -> bool {
        if error.class != ErrorClass::Unreachable {
            return self.answered(now);
        }
        if matches!(self.outage, Outage::None) {
            self.outage = Outage::Suspected;
            self.probe_at = Some(now);
        }
        false
    }

    /// The question had no answer: the next one is later.
    pub fn probe_failed(&mut self, error: &KubernetesError, now: Duration) {
        let is_new = self.ended.is_none_or(|at| now >= at + QUIET);
        let reason = match std::mem::replace(&mut self.outage, Outage::None) {
            Outage::Certain(reason) => reason,
            Outage::None | Outage::Suspected => {
                if is_new {
                    self.retry.reset();
                }
                error.message.clone()
            }
        };
        self.outage = Outage::Certain(reason);
        self.probe_at = Some(now + self.retry.next_delay());
    }

    /// A watch is interrupted.
    pub fn watch_interrupted(&mut self, watch: Watch, error: &KubernetesError) {
        let times = self.interrupted.get(&watch).map_or(1, |before| before.times.saturating_add(1));
        self.interrupted.insert(watch, Interruption { error: error.clone(), times });
    }

    /// A watch has reported something.
    pub fn watch_answered(&mut self, watch: &Watch) {
        self.interrupted.remove(watch);
    }

    /// Asks, if it is time.
    pub fn next_effect(&mut self, now: Duration) -> Option<Effect> {
        self.probe_at.filter(|at| *at <= now)?;
        self.probe_at = None;
        Some(Effect::Probe)
    }

    /// When [`Link::next_effect`] has something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.probe_at
    }

    /// What is wrong, for people.
    pub fn error(&self) -> Option<String> {
        if let Outage::Certain(reason) = &self.outage {
            return Some(format!("the Kubernetes API is not reached: {reason}"));
        }
        let is_reported =
            |one: &&Interruption| one.error.class != ErrorClass::Unreachable || one.times >= INTERRUPTIONS;
        let reported = self.interrupted.values().find(is_reported)?;
        Some(format!("the Kubernetes API refuses a watch: {}", reported.error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn away() -> KubernetesError {
        KubernetesError { class: ErrorClass::Unreachable, message: "away".to_owned() }
    }

    fn link() -> Link {
        Link::new(Backoff::new((SECOND, 10 * SECOND), 1))
    }

    #[test]
    fn one_request_without_an_answer_is_not_an_outage_while_the_question_is_answered() {
        let mut link = link();
        for second in 1..100 {
            assert!(!link.failed(&away(), second * SECOND));
            assert_eq!(link.next_effect(second * SECOND), Some(Effect::Probe), "asked at once");
            assert_eq!((link.error(), link.next_effect(second * SECOND)), (None, None));
            assert!(!link.answered(second * SECOND), "nothing has ended");
        }
    }

    #[test]
    fn an_outage_ends_once() {
        let mut link = link();
        link.failed(&away(), SECOND);
        link.probe_failed(&away(), SECOND);
        assert_eq!(link.error().as_deref(), Some("the Kubernetes API is not reached: away"));
        assert!(link.next_deadline().is_some_and(|at| at <= 2 * SECOND));
        assert!(link.answered(2 * SECOND) && !link.answered(2 * SECOND));
        assert_eq!((link.error(), link.next_deadline()), (None, None));
    }

    #[test]
    fn outages_that_come_quickly_one_after_the_other_are_asked_about_ever_more_seldom() {
        let mut link = link();
        let mut now = SECOND;
        for _ in 0..8 {
            link.failed(&away(), now);
            link.probe_failed(&away(), now);
            now = link.next_deadline().unwrap();
            assert!(link.answered(now));
        }
        link.failed(&away(), now);
        link.probe_failed(&away(), now);
        assert!(link.next_deadline().is_some_and(|at| at >= now + 5 * SECOND));
        link.answered(now);
        now += QUIET;
        link.failed(&away(), now);
        link.probe_failed(&away(), now);
        assert!(link.next_deadline().is_some_and(|at| at <= now + SECOND), "a new one");
    }

    #[test]
    fn a_watch_that_begins_again_at_once_is_not_reported() {
        let mut link = link();
        link.watch_interrupted(Watch::Nodes, &away());
        assert_eq!(link.error(), None);
        link.watch_interrupted(Watch::Nodes, &away());
        assert_eq!(link.error().as_deref(), Some("the Kubernetes API refuses a watch: away"));
        link.watch_answered(&Watch::Nodes);
        assert_eq!(link.error(), None);
    }
}
