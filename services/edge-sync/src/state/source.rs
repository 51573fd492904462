//! The commits that the cluster's repositories are said to be at, and whether Flux was asked to fetch them.
//!
//! Nothing is stored: the annotation holds the commit, so writing it twice has no further effect, and after a restart the control plane sends it again. Commits that come quickly one after
//! the other are written together: there is a pause after each write.

use std::time::Duration;

use edge_sync_contract::{DesiredSource, Sources};
use sparkplug::backoff::Backoff;
use sparkplug::replication::{DesiredReceiver, Outcome, Stamp};

use crate::event::{Effect, KubernetesError};

/// Least time between two successful writes.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Source {
    wanted: Option<DesiredSource>,
    /// Judges versions alone: where commits come from is judged by the accepted index.
    receiver: DesiredReceiver<Sources>,
    published: Option<Sources>,
    error: Option<String>,
    under_way: Option<Sources>,
    retry: Backoff,
    retry_at: Option<Duration>,
    pause_ends: Option<Duration>,
}

impl Source {
    pub fn new(retry: Backoff) -> Self {
        Self {
            wanted: None,
            receiver: DesiredReceiver::default(),
            published: None,
            error: None,
            under_way: None,
            retry,
            retry_at: None,
            pause_ends: None,
        }
    }

    /// Version of what was received last; 0: nothing.
    pub fn version(&self) -> u64 {
        self.wanted.as_ref().map_or(0, |wanted| wanted.version)
    }

    /// What was last written for Flux.
    pub const fn published(&self) -> Option<&Sources> {
        self.published.as_ref()
    }

    /// Why what came after that could not be written.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Takes a command; true if what is known already has to be said again, because it is not newer.
    pub fn on_command(&mut self, desired: DesiredSource) -> bool {
        let (version, digest) = (desired.version, desired.sources.clone());
        let stamp = Stamp { origin: None, follows: None, decided_for: None, version, digest };
        if self.receiver.receive(&stamp) != Outcome::Accepted {
            return true;
        }
        self.receiver.set_accepted(Some(stamp));
        self.wanted = Some(desired);
        self.retry_now();
        false
    }

    /// What came is not followed.
    pub fn hold(&mut self, reason: String) {
        self.error = Some(reason);
    }

    /// The API answers again.
    pub fn retry_now(&mut self) {
        self.retry_at = None;
    }

    /// Takes the answer to [`Effect::Annotate`].
    pub fn on_answer(&mut self, result: Result<(), KubernetesError>, now: Duration) {
        let Some(asked) = self.under_way.take() else { return };
        match result {
            Ok(()) => {
                self.published = Some(asked);
                self.error = None;
                self.retry.reset();
                self.retry_at = None;
                self.pause_ends = Some(now + PAUSE);
            }
            Err(error) => {
                self.error = Some(error.message);
                self.retry_at = Some(now + self.retry.next_delay());
            }
        }
    }

    /// Asks Flux to fetch, if it is time.
    pub fn next_effect(&mut self, now: Duration) -> Option<Effect> {
        let sources = self.unpublished()?;
        if self.waits_until().is_some_and(|at| at > now) {
            return None;
        }
        (self.retry_at, self.pause_ends) = (None, None);
        self.under_way = Some(sources.clone());
        Some(Effect::Annotate(sources))
    }

    /// When [`Source::next_effect`] has something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.unpublished().and_then(|_| self.waits_until())
    }

    /// What has to be written for Flux, while no write is under way.
    fn unpublished(&self) -> Option<Sources> {
        let wanted = &self.wanted.as_ref()?.sources;
        (self.under_way.is_none() && self.published.as_ref() != Some(wanted)).then(|| wanted.clone())
    }

    fn waits_until(&self) -> Option<Duration> {
        self.retry_at.max(self.pause_ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ErrorClass;
    use edge_sync_contract::OtherCommits;

    fn desired(version: u64) -> DesiredSource {
        let repository = format!("{version:040x}").parse().unwrap();
        let sources = Sources { repository, charts: None, others: OtherCommits::default() };
        DesiredSource { version, sources, origin: None, follows: None }
    }

    fn annotate(version: u64) -> Option<Effect> {
        Some(Effect::Annotate(desired(version).sources))
    }

    #[test]
    fn the_newest_commit_is_sent_until_the_api_takes_it() {
        let second = Duration::from_secs(1);
        let mut source = Source::new(Backoff::new((second, 8 * second), 1));
        assert_eq!((source.next_effect(second), source.next_deadline()), (None, None));
        assert!(!source.on_command(desired(2)));
        assert_eq!((source.version(), source.published()), (2, None), "received, not published");
        assert_eq!(source.next_effect(second), annotate(2));
        assert!(!source.on_command(desired(3)));
        assert_eq!((source.next_effect(second), source.next_deadline()), (None, None), "one at a time");
        source.on_answer(Err(KubernetesError { class: ErrorClass::Refused, message: "no".to_owned() }), second);
        assert_eq!((source.error(), source.published()), (Some("no"), None));
        let at = source.next_deadline().unwrap();
        assert!(at > second && source.next_effect(second).is_none());
        assert_eq!(source.next_effect(at), annotate(3));
        source.on_answer(Ok(()), at);
        assert_eq!((source.published().cloned(), source.error()), (Some(desired(3).sources), None));
        assert_eq!(source.next_deadline(), None);
        for repeat in [3, 2] {
            assert!(source.on_command(desired(repeat)), "what is not newer is only reported again");
            assert_eq!(source.next_effect(at), None);
        }
    }

    #[test]
    fn commits_that_come_quickly_are_sent_together() {
        let second = Duration::from_secs(1);
        let mut source = Source::new(Backoff::new((second, 8 * second), 1));
        source.on_command(desired(1));
        assert_eq!(source.next_effect(second), annotate(1), "the first at once");
        source.on_answer(Ok(()), second);
        for version in 2..10 {
            source.on_command(desired(version));
            assert_eq!(source.next_effect(second), None);
        }
        let at = source.next_deadline().unwrap();
        assert_eq!((at, source.next_effect(at)), (second + PAUSE, annotate(9)));
    }

    #[test]
    fn a_failure_is_over_when_the_api_answers_again() {
        let second = Duration::from_secs(1);
        let mut source = Source::new(Backoff::new((second, 8 * second), 1));
        source.on_command(desired(1));
        assert!(source.next_effect(second).is_some());
        source.on_answer(Err(KubernetesError { class: ErrorClass::Unreachable, message: "away".to_owned() }), second);
        source.retry_now();
        assert_eq!(source.next_effect(second), annotate(1));
    }
}
