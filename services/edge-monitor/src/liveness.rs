//! Is one node alive? Births and deaths decide; silence only where they say nothing.
//!
//! | state | begins with | ends with |
//! |---|---|---|
//! | unknown | the watch | a birth; a death |
//! | online | a birth | a death; three intervals without a packet |
//! | offline | a death | a birth, and nothing else |
//! | silent | three intervals without a packet | a birth; a death |
//!
//! The alert follows the state: it is active when offline and when silent, and when an unknown node was not born within one interval. No death clears it, and no data do.
//! A node that is not received for an interval is asked for rebirth, again after growing times. A dead node is not asked: it cannot answer.
//!
//! While the own session is down nothing is received of anyone, so no time runs: all intervals begin again when it is back. That a birth may have been missed meanwhile is the Host
//! Application's business: it asks every node that it does not know alive when it comes online.

use std::time::Duration;

use edge_monitor_contract::{Alert, NodeState};
use sparkplug::Now;

use crate::jitter::Jitter;

/// Rebirth requests to a silent node are at most this far apart (or one interval, where that is longer).
const ASK_INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Liveness of one node.
#[derive(Debug, Clone)]
pub(crate) struct Liveness {
    interval: Duration,
    state: NodeState,
    since: u64,
    alert: Alert,
    /// The last packet, the begin of the watch, or the end of the own outage, whichever was last. None while the own session is down.
    received: Option<Duration>,
    asks: u32,
    asked: Option<Duration>,
    ask_at: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LivenessRequests {
    /// Ask the node for rebirth.
    pub ask_rebirth: bool,
}

impl Liveness {
    /// An unknown node. `listening`: the own session is up.
    pub(crate) fn new(interval: Duration, listening: bool, now: Now) -> Self {
        Self {
            interval,
            state: NodeState::Unknown,
            since: now.wall,
            alert: Alert { active: false, since: now.wall },
            received: listening.then_some(now.mono),
            asks: 0,
            asked: None,
            ask_at: None,
        }
    }

    /// Condition of the node.
    pub(crate) const fn state(&self) -> NodeState {
        self.state
    }

    /// Since when, UTC ms.
    pub(crate) const fn since(&self) -> u64 {
        self.since
    }

    pub(crate) const fn alert(&self) -> Alert {
        self.alert
    }

    /// Changes the interval; the time since the last packet counts on.
    pub(crate) fn set_interval(&mut self, interval: Duration, jitter: &mut Jitter) {
        if self.interval != interval {
            self.interval = interval;
            self.asks = 0;
            self.plan_ask(jitter);
        }
    }

    /// A birth of the node.
    pub(crate) fn born(&mut self, now: Now, jitter: &mut Jitter) {
        self.enter(NodeState::Online, now);
        self.alarm(false, now);
        self.packet(now, jitter);
    }

    /// Any other packet of the node than its birth or death.
    pub(crate) fn received(&mut self, now: Now, jitter: &mut Jitter) {
        match self.state {
            NodeState::Online => self.packet(now, jitter),
            // Someone is there after all; only its birth says that it is alive, so that is asked for soon, but once an interval.
            NodeState::Silent => {
                let soon = self.asked.map_or(now.mono, |asked| now.mono.max(asked + self.interval));
                self.ask_at = self.ask_at.map(|ask_at| ask_at.min(soon));
            }
            NodeState::Unknown | NodeState::Offline => {}
        }
    }

    /// The death of the node.
    pub(crate) fn died(&mut self, now: Now) {
        self.enter(NodeState::Offline, now);
        self.alarm(true, now);
        self.ask_at = None;
    }

    /// The own session is down.
    pub(crate) fn deafened(&mut self) {
        self.received = None;
        self.ask_at = None;
    }

    /// The own session is up (again).
    pub(crate) fn listening(&mut self, now: Now, jitter: &mut Jitter) {
        self.received = Some(now.mono);
        self.asks = 0;
        self.plan_ask(jitter);
    }

    /// When [`Liveness::on_timer`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        [self.ask_at, self.alarm_at()].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn on_timer(&mut self, now: Now, jitter: &mut Jitter) -> LivenessRequests {
        if self.alarm_at().is_some_and(|at| at <= now.mono) {
            if self.state == NodeState::Online {
                self.enter(NodeState::Silent, now);
            }
            self.alarm(true, now);
        }
        let ask_rebirth = self.ask_at.is_some_and(|at| at <= now.mono);
        if ask_rebirth {
            self.asks = self.asks.saturating_add(1);
            self.asked = Some(now.mono);
            let pause = self.interval.saturating_mul(1 << self.asks.min(16).saturating_sub(1));
            let pause = pause.min(ASK_INTERVAL_MAX.max(self.interval));
            self.ask_at = Some(now.mono + pause + jitter.up_to(self.interval / 4));
        }
        LivenessRequests { ask_rebirth }
    }

    fn packet(&mut self, now: Now, jitter: &mut Jitter) {
        self.received = Some(now.mono);
        self.asks = 0;
        self.plan_ask(jitter);
    }

    /// An unknown node is not asked from here: the Host Application expects it and asks by itself.
    fn plan_ask(&mut self, jitter: &mut Jitter) {
        let overdue = matches!(self.state, NodeState::Online | NodeState::Silent);
        let received = self.received.filter(|_| overdue);
        self.ask_at = received.map(|received| received + self.interval + jitter.up_to(self.interval / 4));
    }

    fn alarm_at(&self) -> Option<Duration> {
        let intervals = match self.state {
            NodeState::Unknown if !self.alert.active => 1,
            NodeState::Online => 3,
            NodeState::Unknown | NodeState::Offline | NodeState::Silent => return None,
        };
        self.received.map(|received| received + self.interval * intervals)
    }

    fn enter(&mut self, state: NodeState, now: Now) {
        if self.state != state {
            self.state = state;
            self.since = now.wall;
        }
    }

    fn alarm(&mut self, active: bool, now: Now) {
        if self.alert.active != active {
            self.alert = Alert { active, since: now.wall };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use NodeState::{Offline, Online, Silent, Unknown};

    const INTERVAL: Duration = Duration::from_secs(100);

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Born,
        Received,
        Died,
        Deaf,
        Listening,
    }

    /// What happened until `until` seconds: (second, state, alert) at each change, and the seconds of rebirth requests.
    fn run(steps: &[(u64, Step)], until: u64) -> (Vec<(u64, NodeState, bool)>, Vec<u64>) {
        let at = |second: u64| Now::new(Duration::from_secs(second), 1_000 * second);
        let mut jitter = Jitter::new(1);
        let mut node = Liveness::new(INTERVAL, true, at(0));
        let (mut changes, mut asked) = (vec![(0, node.state(), node.alert().active)], Vec::new());
        for second in 0..=until {
            let now = at(second);
            for (_, step) in steps.iter().filter(|(when, _)| *when == second) {
                match step {
                    Step::Born => node.born(now, &mut jitter),
                    Step::Received => node.received(now, &mut jitter),
                    Step::Died => node.died(now),
                    Step::Deaf => node.deafened(),
                    Step::Listening => node.listening(now, &mut jitter),
                }
            }
            let due = node.next_deadline().is_some_and(|deadline| deadline <= now.mono);
            assert!(due || !node.clone().on_timer(now, &mut jitter.clone()).ask_rebirth, "asked before its deadline");
            if due && node.on_timer(now, &mut jitter).ask_rebirth {
                asked.push(second);
            }
            let (_, state, alert) = *changes.last().unwrap();
            if (node.state(), node.alert().active) != (state, alert) {
                changes.retain(|(when, _, _)| *when != second);
                changes.push((second, node.state(), node.alert().active));
                let is_moment_of_change = node.alert().since == 1_000 * second;
                assert!(node.alert().active == alert || is_moment_of_change, "{:?}", node.alert());
            }
        }
        (changes, asked)
    }

    #[test]
    fn a_node_that_is_not_born_within_one_interval_raises_the_alert_and_stays_unknown() {
        let (changes, asked) = run(&[], 1000);
        assert_eq!(changes, [(0, Unknown, false), (100, Unknown, true)]);
        assert_eq!(asked, Vec::<u64>::new(), "the Host Application expects it and asks");
    }

    #[test]
    fn a_death_raises_the_alert_at_once_and_a_birth_clears_it() {
        let (changes, _) = run(&[(5, Step::Born), (20, Step::Died), (30, Step::Born)], 40);
        assert_eq!(changes, [(0, Unknown, false), (5, Online, false), (20, Offline, true), (30, Online, false)]);
    }

    #[test]
    fn neither_data_nor_another_death_revives_a_dead_node_and_it_is_not_asked() {
        let (changes, asked) = run(&[(5, Step::Born), (20, Step::Died), (30, Step::Received), (40, Step::Died)], 2000);
        assert_eq!(changes, [(0, Unknown, false), (5, Online, false), (20, Offline, true)]);
        assert_eq!(asked, Vec::<u64>::new());
    }

    #[test]
    fn a_death_of_a_silent_node_keeps_the_alert() {
        let (changes, _) = run(&[(0, Step::Born), (350, Step::Died)], 360);
        assert_eq!(changes, [(0, Online, false), (300, Silent, true), (350, Offline, true)]);
    }

    #[test]
    fn silence_is_asked_after_an_interval_and_a_bit_then_ever_more_rarely_and_alarms_after_three() {
        let (changes, asked) = run(&[(0, Step::Born)], 4000);
        assert_eq!(changes, [(0, Online, false), (300, Silent, true)]);
        assert!((100..=125).contains(&asked[0]), "{asked:?}");
        for (pause, gap) in [100, 200, 400, 800, 1600].into_iter().zip(asked.windows(2)) {
            assert!((pause..=pause + 26).contains(&(gap[1] - gap[0])), "{asked:?}");
        }
        assert!(asked.len() <= 6, "{asked:?}");
    }

    #[test]
    fn packets_keep_a_node_online_without_any_request() {
        let steps: Vec<(u64, Step)> =
            std::iter::once((0, Step::Born)).chain((1..40).map(|n| (n * 90, Step::Received))).collect();
        assert_eq!(run(&steps, 3600), (vec![(0, Online, false)], vec![]));
    }

    #[test]
    fn data_of_a_silent_node_lead_to_one_request_and_only_its_birth_to_life() {
        let steps =
            [(0, Step::Born), (700, Step::Received), (701, Step::Received), (702, Step::Received), (710, Step::Born)];
        let (changes, asked) = run(&steps, 720);
        assert_eq!(changes, [(0, Online, false), (300, Silent, true), (710, Online, false)]);
        assert_eq!(
            asked.iter().filter(|second| (600..=710).contains(*second)).collect::<Vec<_>>(),
            [&700],
            "{asked:?}"
        );
    }

    #[test]
    fn an_own_outage_changes_nothing_for_a_dead_node() {
        let steps = [(0, Step::Born), (20, Step::Died), (50, Step::Deaf), (60, Step::Listening)];
        let (changes, asked) = run(&steps, 5000);
        assert_eq!((changes.last(), asked), (Some(&(20, Offline, true)), vec![]));
    }

    #[test]
    fn no_time_runs_while_the_own_session_is_down() {
        let (changes, asked) = run(&[(0, Step::Born), (50, Step::Deaf), (5000, Step::Listening)], 5099);
        assert_eq!((changes, asked), (vec![(0, Online, false)], vec![]));
        let (changes, _) = run(&[(0, Step::Born), (50, Step::Deaf), (5000, Step::Listening)], 5400);
        assert_eq!(changes.last(), Some(&(5300, Silent, true)));
    }
}
