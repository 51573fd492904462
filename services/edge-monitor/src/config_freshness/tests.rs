//! When an agent is asked to reload, how often, and when the alert is raised and cleared: one agent in virtual time.

use super::*;

const POLICY: ReloadPolicy = ReloadPolicy {
    jitter: Duration::from_secs(2),
    pause: (Duration::from_secs(30), Duration::from_secs(600)),
    rest: Duration::from_secs(5),
    attempts_max: 3,
    deadline: Duration::from_secs(300),
};

struct Agent {
    freshness: ConfigFreshness,
    jitter: Jitter,
    second: u64,
    asked: Vec<u64>,
    alerts: Vec<(u64, bool)>,
}

impl Agent {
    fn new() -> Self {
        Self {
            freshness: ConfigFreshness::new(POLICY, 1, at(0)),
            jitter: Jitter::new(2),
            second: 0,
            asked: vec![],
            alerts: vec![],
        }
    }

    /// An agent that is alive and has the revision `a`, which is wanted.
    fn content() -> Self {
        let mut agent = Self::new();
        agent.want(Some("a"));
        agent.born(Some("a"));
        agent.until(10);
        assert_eq!((&agent.asked, &agent.alerts), (&vec![], &vec![]));
        agent
    }

    fn now(&self) -> Now {
        at(self.second)
    }

    fn want(&mut self, revision: Option<&str>) {
        self.freshness.want(revision.map(str::to_owned), at(self.second), &mut self.jitter);
        self.note();
    }

    fn born(&mut self, revision: Option<&str>) {
        let now = self.now();
        self.freshness.set_reachable(true, now, &mut self.jitter);
        self.freshness.report(revision.map(str::to_owned), now, &mut self.jitter);
        self.freshness.born(now, &mut self.jitter);
        self.note();
    }

    fn gone(&mut self) {
        self.freshness.set_reachable(false, at(self.second), &mut self.jitter);
        self.note();
    }

    fn secrets(&mut self, secrets: &[(&str, i64, Option<i64>, bool)]) {
        let all = secrets.iter().map(|&(name, generation, observed_generation, is_synced)| {
            let secret = SealedSecret { uid: "u".to_owned(), generation, observed_generation, is_synced };
            (name.to_owned(), secret)
        });
        self.freshness.see_secrets(&all.collect(), &["s".to_owned()], at(self.second), &mut self.jitter);
        self.note();
    }

    fn until(&mut self, second: u64) {
        while self.second < second {
            self.second += 1;
            let now = self.now();
            while self.freshness.next_deadline().is_some_and(|deadline| deadline <= now.mono) {
                if self.freshness.on_timer(now) {
                    self.asked.push(self.second);
                }
            }
            self.note();
        }
    }

    fn note(&mut self) {
        let active = self.freshness.alert().active;
        if self.alerts.last().map_or(active, |last| last.1 != active) {
            assert_eq!(self.freshness.alert().since, 1_000 * self.second);
            self.alerts.push((self.second, active));
        }
    }
}

fn at(second: u64) -> Now {
    Now::new(Duration::from_secs(second), 1_000 * second)
}

#[test]
fn an_agent_with_the_wanted_revision_is_left_alone() {
    let mut agent = Agent::content();
    agent.until(100_000);
    assert_eq!(agent.asked, [0; 0]);
}

#[test]
fn another_wanted_revision_is_asked_for_until_the_agent_reports_it() {
    let mut agent = Agent::content();
    agent.want(Some("b"));
    agent.until(50);
    assert!((10..=12).contains(&agent.asked[0]) && (25..=43).contains(&agent.asked[1]), "{:?}", agent.asked);
    agent.born(Some("b"));
    let asked = agent.asked.len();
    agent.until(100_000);
    assert_eq!((agent.asked.len(), agent.alerts), (asked, vec![]));
}

#[test]
fn an_agent_that_keeps_its_revision_raises_the_alert_after_three_requests_and_is_asked_ever_more_rarely() {
    let mut agent = Agent::content();
    agent.want(Some("b"));
    agent.until(20_000);
    let (raised, active) = agent.alerts[0];
    assert!(active && raised == agent.asked[3] && agent.alerts.len() == 1, "{:?} {:?}", agent.asked, agent.alerts);
    let last = &agent.asked[agent.asked.len() - 2..];
    assert!((300..=601).contains(&(last[1] - last[0])), "{last:?}");
    agent.born(Some("b"));
    agent.until(30_000);
    assert_eq!(agent.alerts.last(), Some(&(20_000, false)));
}

#[test]
fn the_deadline_raises_the_alert_although_fewer_requests_were_sent() {
    let mut agent = Agent::content();
    agent.freshness.policy.attempts_max = 1000;
    agent.want(Some("b"));
    agent.until(1000);
    assert_eq!(agent.alerts, [(agent.asked[0] + 300, true)]);
}

#[test]
fn a_restart_into_the_old_revision_keeps_the_pause_and_counts_as_an_attempt() {
    let mut agent = Agent::content();
    agent.want(Some("b"));
    for second in 10..400 {
        agent.until(second);
        if agent.asked.last() == Some(&second) {
            agent.gone();
            agent.born(Some("a"));
        }
    }
    assert!(agent.asked.windows(2).all(|pair| pair[1] - pair[0] >= 15), "{:?}", agent.asked);
    assert_eq!(agent.alerts, [(agent.asked[3], true)]);
}

#[test]
fn a_dead_agent_is_not_asked_and_no_alert_is_raised_for_it() {
    let mut agent = Agent::content();
    agent.gone();
    agent.want(Some("b"));
    agent.until(10_000);
    assert_eq!((&agent.asked, &agent.alerts), (&vec![], &vec![]));
    agent.born(Some("a"));
    agent.until(10_010);
    assert_eq!(agent.asked.len(), 1);
}

#[test]
fn an_agent_that_was_never_born_is_not_asked() {
    let mut agent = Agent::new();
    agent.want(Some("b"));
    agent.until(10_000);
    assert_eq!((agent.asked, agent.alerts), (vec![], vec![]));
}

#[test]
fn a_further_wanted_revision_begins_to_count_again_but_the_alert_stays_until_equal() {
    let mut agent = Agent::content();
    agent.want(Some("b"));
    agent.until(1_000);
    assert_eq!(agent.alerts.len(), 1);
    let before = agent.asked.len();
    agent.want(Some("c"));
    assert_eq!(agent.freshness.attempts(), 0);
    agent.until(1_010);
    assert_eq!(agent.asked.len(), before + 1, "asked at once: {:?}", agent.asked);
    agent.born(Some("c"));
    assert_eq!(agent.alerts.last(), Some(&(1_010, false)));
}

#[test]
fn revisions_that_change_fast_give_the_agent_a_rest_between_two_requests() {
    let mut agent = Agent::content();
    for second in 10..100 {
        agent.want(Some(&format!("r{second}")));
        agent.until(second + 1);
    }
    assert!(agent.asked.windows(2).all(|pair| pair[1] - pair[0] >= 5), "{:?}", agent.asked);
    assert!(agent.asked.len() > 5, "{:?}", agent.asked);
}

#[test]
fn an_unknown_desired_configuration_does_not_cause_a_reload_but_a_desired_none_does() {
    let mut agent = Agent::new();
    agent.want(None);
    agent.born(Some("a"));
    agent.until(1_000);
    assert_eq!(agent.asked, [0; 0]);
    agent.want(Some("a"));
    agent.want(None);
    agent.until(1_010);
    assert_eq!(agent.asked.len(), 1);
}

#[test]
fn secrets_at_first_sight_are_the_baseline() {
    let mut agent = Agent::content();
    agent.secrets(&[("s", 4, Some(4), true)]);
    agent.secrets(&[("s", 4, Some(4), true), ("other", 9, Some(9), true)]);
    agent.until(1_000);
    assert_eq!(agent.asked, [0; 0]);
}

#[test]
fn a_changed_secret_is_asked_for_once_it_is_unsealed_until_a_birth_after_the_request() {
    let mut agent = Agent::content();
    agent.secrets(&[("s", 4, Some(4), true)]);
    agent.secrets(&[("s", 5, Some(4), true)]);
    agent.secrets(&[("s", 5, Some(5), false)]);
    agent.until(1_000);
    assert_eq!(agent.asked, [0; 0], "it is not unsealed yet");
    agent.secrets(&[("s", 5, Some(5), true)]);
    // A birth before the request is not an answer to it.
    agent.born(Some("a"));
    agent.until(1_100);
    assert!(agent.asked.len() >= 2, "repeated: {:?}", agent.asked);
    agent.gone();
    agent.born(Some("a"));
    let asked = agent.asked.len();
    agent.until(100_000);
    assert_eq!((agent.asked.len(), agent.alerts), (asked, vec![]));
}

#[test]
fn an_agent_that_does_not_answer_a_reload_for_secrets_raises_the_alert() {
    let mut agent = Agent::content();
    agent.secrets(&[("s", 4, Some(4), true)]);
    agent.secrets(&[("s", 5, Some(5), true)]);
    agent.until(1_000);
    assert_eq!(agent.alerts.len(), 1);
    agent.born(Some("a"));
    assert_eq!(agent.alerts.last(), Some(&(1_000, false)));
}

#[test]
fn a_secret_whose_change_was_under_way_at_first_sight_and_one_that_is_made_later_are_changes() {
    let mut agent = Agent::content();
    agent.secrets(&[("s", 5, Some(4), true)]);
    agent.secrets(&[("s", 5, Some(5), true)]);
    agent.until(20);
    assert_eq!(agent.asked.len(), 1);
    let mut agent = Agent::content();
    agent.secrets(&[]);
    agent.secrets(&[("s", 1, Some(1), true)]);
    agent.until(20);
    assert_eq!(agent.asked.len(), 1);
}

#[test]
fn a_deleted_secret_is_not_a_change() {
    let mut agent = Agent::content();
    agent.secrets(&[("s", 4, Some(4), true)]);
    agent.secrets(&[]);
    agent.until(1_000);
    assert_eq!(agent.asked, [0; 0]);
}
