//! Whether what a release has made runs, and when to look. A look is due when the release or a workload of it has changed. While the release does not run, a change of the hosts
//! makes one due, too. A release has one look at a time. What Flux says of a release counts only together with a look that began after it, because two watches do not report in the
//! order of what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sparkplug::backoff::Backoff;

use crate::event::{Effect, ErrorClass, KubernetesError};
use crate::object::Readiness;

/// Looks that are under way at the same time.
const LOOKS_MAX: usize = 8;

#[derive(Debug)]
struct Release {
    /// State of the HelmRelease as it was seen last.
    version: String,
    /// State at which the look under way began.
    looking: Option<String>,
    is_due: bool,
    /// State at which the last look began, and what it said.
    seen: Option<(String, Readiness)>,
}

#[derive(Debug)]
pub struct Workloads {
    releases: BTreeMap<String, Release>,
    retry: Backoff,
    retry_at: Option<Duration>,
}

impl Workloads {
    pub const fn new(retry: Backoff) -> Self {
        Self { releases: BTreeMap::new(), retry, retry_at: None }
    }

    /// What runs of a release whose HelmRelease is in state `version`; None: not known yet, it will be looked at.
    pub fn of(&mut self, name: &str, version: &str) -> Option<&Readiness> {
        let release = self.releases.entry(name.to_owned()).or_insert_with(|| Release {
            version: String::new(),
            looking: None,
            is_due: true,
            seen: None,
        });
        if release.version != version {
            release.version = version.to_owned();
            release.is_due = true;
        }
        release.seen.as_ref().filter(|(seen, _)| seen == version).map(|(_, readiness)| readiness)
    }

    /// A workload of a release has changed. False: no one asks for that release.
    pub fn changed(&mut self, name: &str) -> bool {
        let release = self.releases.get_mut(name);
        release.map(|release| release.is_due = true).is_some()
    }

    /// A host has come or gone: what does not run may have waited for it.
    pub fn hosts_changed(&mut self) {
        for release in self.releases.values_mut() {
            release.is_due |= release.seen.as_ref().is_some_and(|(_, seen)| seen.ready != Some(true));
        }
    }

    /// Only these releases are there.
    pub fn keep(&mut self, names: &BTreeSet<&str>) {
        self.releases.retain(|name, _| names.contains(name.as_str()));
    }

    /// The API answers again.
    pub const fn retry_now(&mut self) {
        self.retry_at = None;
    }

    /// Takes the answer to [`Effect::LookAtWorkloads`].
    pub fn on_answer(&mut self, name: &str, seen: Result<Readiness, KubernetesError>, now: Duration) {
        let Some(release) = self.releases.get_mut(name) else { return };
        let Some(version) = release.looking.take() else { return };
        match seen {
            Ok(readiness) => {
                release.seen = Some((version, readiness));
                self.retry.reset();
                self.retry_at = None;
            }
            Err(error) => {
                if error.class != ErrorClass::Unreachable {
                    release.seen = Some((version, Readiness { ready: None, message: Some(error.message) }));
                }
                release.is_due = true;
                self.retry_at = Some(now + self.retry.next_delay());
            }
        }
    }

    /// Looks that are due.
    pub fn next_effects(&mut self, now: Duration) -> Vec<Effect> {
        if self.retry_at.is_some_and(|at| at > now) {
            return Vec::new();
        }
        let under_way = self.releases.values().filter(|release| release.looking.is_some()).count();
        let due = self.releases.iter_mut().filter(|(_, release)| release.is_due && release.looking.is_none());
        let looks = due.take(LOOKS_MAX.saturating_sub(under_way)).map(|(name, release)| {
            // What changes from here on asks for another look.
            release.is_due = false;
            release.looking = Some(release.version.clone());
            Effect::LookAtWorkloads { release: name.clone() }
        });
        looks.collect()
    }

    /// When [`Workloads::next_effects`] has something to do.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.retry_at.filter(|_| self.releases.values().any(|release| release.is_due && release.looking.is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn workloads() -> Workloads {
        Workloads::new(Backoff::new((SECOND, 8 * SECOND), 1))
    }

    fn runs() -> Readiness {
        Readiness { ready: Some(true), message: None }
    }

    #[test]
    fn a_verdict_counts_for_the_state_that_it_was_made_after() {
        let mut all = workloads();
        assert_eq!(all.of("a", "1"), None);
        let look = Effect::LookAtWorkloads { release: "a".to_owned() };
        assert_eq!(all.next_effects(SECOND), std::slice::from_ref(&look));
        assert_eq!(all.of("a", "1"), None);
        assert_eq!(all.next_effects(SECOND), [], "one look at a time");
        // The release continues while it is looked at.
        assert_eq!(all.of("a", "2"), None);
        all.on_answer("a", Ok(runs()), SECOND);
        assert_eq!(all.of("a", "2"), None, "that was before");
        assert_eq!(all.next_effects(SECOND), std::slice::from_ref(&look));
        all.on_answer("a", Ok(runs()), SECOND);
        assert_eq!(all.of("a", "2"), Some(&runs()));
        assert!(all.next_effects(SECOND).is_empty());
        assert!(all.changed("a") && !all.changed("other"));
        assert_eq!(all.of("a", "2"), Some(&runs()), "what was seen counts until it is looked at again");
        assert_eq!(all.next_effects(SECOND), [look]);
    }

    #[test]
    fn another_host_is_a_reason_to_look_at_what_does_not_run() {
        let mut all = workloads();
        let waits = Readiness { ready: Some(false), message: None };
        for (name, seen) in [("a", runs()), ("b", waits)] {
            all.of(name, "1");
            all.next_effects(SECOND);
            all.on_answer(name, Ok(seen), SECOND);
        }
        all.hosts_changed();
        assert_eq!(all.next_effects(SECOND), [Effect::LookAtWorkloads { release: "b".to_owned() }]);
    }

    #[test]
    fn what_cannot_be_read_is_not_known_and_looked_at_again() {
        let mut all = workloads();
        all.of("a", "1");
        all.next_effects(SECOND);
        let error = KubernetesError { class: ErrorClass::Refused, message: "no right".to_owned() };
        all.on_answer("a", Err(error), SECOND);
        assert_eq!(all.of("a", "1"), Some(&Readiness { ready: None, message: Some("no right".to_owned()) }));
        let at = all.next_deadline().unwrap();
        assert!(at > SECOND && all.next_effects(SECOND).is_empty());
        assert_eq!(all.next_effects(at).len(), 1);
        all.keep(&BTreeSet::new());
        assert!(all.of("a", "1").is_none() && all.next_effects(at).len() == 1, "another one of that name is new");
    }

    #[test]
    fn looks_are_bounded() {
        let mut all = workloads();
        for n in 0..50 {
            all.of(&n.to_string(), "1");
        }
        assert_eq!(all.next_effects(SECOND).len(), LOOKS_MAX);
        all.on_answer("0", Ok(runs()), SECOND);
        assert_eq!(all.next_effects(SECOND).len(), 1);
    }
}
