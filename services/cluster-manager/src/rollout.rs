//! Which clusters a changed template may reach: those of a wave when every earlier wave has settled.
//!
//! There are two such things: deployments, which wait for those of the same chart template, and the repositories of the clusters themselves, which wait for each other. Nothing is
//! recorded. Whether a cluster has settled is seen by comparing what it shall have with what it reports. So a manager that starts again continues where it was. Until a cluster was
//! compared it counts as not settled. A cluster that is offline does not hold up the others. Clusters of the last wave hold up no other, so where no waves are given this costs
//! nothing. This module must not know how anything is rendered or sent.

use std::collections::{BTreeMap, BTreeSet};

use configdb_schema::document::WAVE_MAX;
use uuid::Uuid;

/// The repository of a cluster, as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WholeRepository;

/// What of a cluster has not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Unsettled<T> {
    /// Not known yet.
    Unknown,
    /// These parts.
    Parts(BTreeSet<T>),
}

impl<T: Ord> Unsettled<T> {
    fn has(&self, part: &T) -> bool {
        match self {
            Self::Unknown => true,
            Self::Parts(unsettled) => unsettled.contains(part),
        }
    }
}

/// What a cluster waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blocker {
    /// An earlier wave.
    pub wave: u8,
    /// A cluster of it that has not settled.
    pub cluster: Uuid,
}

/// All waves. `T` names the part of a cluster that may settle by itself: a chart template, or [`WholeRepository`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rollout<T> {
    /// Of clusters that are not in the last wave.
    waves: BTreeMap<Uuid, u8>,
    unsettled: BTreeMap<(u8, Uuid), Unsettled<T>>,
    /// Clusters that wait, with the parts that they wait for.
    waiting: BTreeMap<Uuid, BTreeSet<T>>,
    /// Parts that an operator holds: where another one runs they wait, whatever has settled.
    held: BTreeSet<T>,
    /// Parts with the clusters that an operator lets later waves not wait for.
    passed: BTreeSet<(T, Uuid)>,
}

impl<T> Default for Rollout<T> {
    fn default() -> Self {
        Self {
            waves: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            waiting: BTreeMap::new(),
            held: BTreeSet::new(),
            passed: BTreeSet::new(),
        }
    }
}

impl<T: Ord + Clone> Rollout<T> {
    /// The wave of a cluster.
    #[must_use]
    pub(crate) fn wave(&self, cluster: Uuid) -> u8 {
        self.waves.get(&cluster).copied().unwrap_or(WAVE_MAX)
    }

    /// Puts a cluster into a wave. Returns the clusters that may continue by that.
    pub(crate) fn set_wave(&mut self, cluster: Uuid, wave: u8) -> Vec<Uuid> {
        let before = self.wave(cluster);
        if before == wave {
            return Vec::new();
        }
        let unsettled = self.unsettled.remove(&(before, cluster));
        if wave < WAVE_MAX {
            self.waves.insert(cluster, wave);
            self.unsettled.insert((wave, cluster), unsettled.unwrap_or(Unsettled::Unknown));
        } else {
            self.waves.remove(&cluster);
        }
        self.released()
    }

    /// Something that the cluster is rendered from has changed: until it is compared again it has not settled.
    pub(crate) fn unknown(&mut self, cluster: Uuid) {
        if let Some(wave) = self.waves.get(&cluster) {
            self.unsettled.insert((*wave, cluster), Unsettled::Unknown);
        }
    }

    /// Whether the cluster may block the rollout to others.
    #[must_use]
    pub(crate) fn blocks_rollout(&self, cluster: Uuid) -> bool {
        self.unsettled.contains_key(&(self.wave(cluster), cluster))
    }

    /// Takes over what a comparison of a cluster has found: the parts that have not settled. Returns the clusters that may continue by that.
    pub(crate) fn compared(&mut self, cluster: Uuid, unsettled: BTreeSet<T>) -> Vec<Uuid> {
        let Some(wave) = self.waves.get(&cluster) else { return Vec::new() };
        let key = (*wave, cluster);
        let before = if unsettled.is_empty() {
            self.unsettled.remove(&key)
        } else {
            let after = Unsettled::Parts(unsettled);
            let before = self.unsettled.insert(key, after.clone());
            before.filter(|before| *before != after)
        };
        if before.is_some() { self.released() } else { Vec::new() }
    }

    /// What holds up any of these parts of a cluster.
    #[must_use]
    pub(crate) fn blocker(&self, cluster: Uuid, parts: &BTreeSet<T>) -> Option<Blocker> {
        let earlier = self.unsettled.range(..(self.wave(cluster), Uuid::nil()));
        let blocks = |((_, cluster), unsettled): &(&(u8, Uuid), &Unsettled<T>)| {
            let is_passed = |part: &T| self.passed.contains(&(part.clone(), *cluster));
            parts.iter().any(|part| unsettled.has(part) && !is_passed(part))
        };
        earlier.into_iter().find(blocks).map(|((wave, cluster), _)| Blocker { wave: *wave, cluster: *cluster })
    }

    /// The first of these parts that an operator holds.
    #[must_use]
    pub(crate) fn held<'a>(&self, parts: &'a BTreeSet<T>) -> Option<&'a T> {
        parts.iter().find(|part| self.held.contains(part))
    }

    /// Begins or ends the hold of a part. Says which clusters may continue because of that.
    pub(crate) fn set_held(&mut self, part: T, is_held: bool) -> Vec<Uuid> {
        if is_held {
            self.held.insert(part);
            return Vec::new();
        }
        if self.held.remove(&part) { self.released() } else { Vec::new() }
    }

    /// For a part, later waves wait for none of these clusters. Says which clusters may continue because of that.
    pub(crate) fn set_passed(&mut self, part: &T, clusters: impl IntoIterator<Item = Uuid>) -> Vec<Uuid> {
        let before = self.passed.clone();
        self.passed.retain(|(of, _)| of != part);
        self.passed.extend(clusters.into_iter().map(|cluster| (part.clone(), cluster)));
        if self.passed.is_subset(&before) { Vec::new() } else { self.released() }
    }

    /// Remembers which parts of a cluster wait; none: it does not wait.
    pub(crate) fn wait(&mut self, cluster: Uuid, parts: BTreeSet<T>) {
        if parts.is_empty() {
            self.waiting.remove(&cluster);
        } else {
            self.waiting.insert(cluster, parts);
        }
    }

    /// The cluster is gone. Returns the clusters that may continue by that.
    pub(crate) fn remove(&mut self, cluster: Uuid) -> Vec<Uuid> {
        self.waiting.remove(&cluster);
        self.set_wave(cluster, WAVE_MAX)
    }

    fn released(&self) -> Vec<Uuid> {
        // One part suffices: what else a cluster waits for is found when it is compared.
        let may_go = |(cluster, parts): (&Uuid, &BTreeSet<T>)| {
            let free = parts.iter().filter(|part| !self.held.contains(part));
            let mut one = free.map(|part| BTreeSet::from([part.clone()]));
            one.any(|part| self.blocker(*cluster, &part).is_none()).then_some(*cluster)
        };
        self.waiting.iter().filter_map(may_go).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CANARY: Uuid = Uuid::from_u128(1);
    const SECOND: Uuid = Uuid::from_u128(2);
    const NO_CLUSTER: [Uuid; 0] = [];
    const LAST: Uuid = Uuid::from_u128(3);

    fn charts(numbers: &[u128]) -> BTreeSet<Uuid> {
        numbers.iter().map(|number| Uuid::from_u128(100 + number)).collect()
    }

    fn waves() -> Rollout<Uuid> {
        let mut rollout = Rollout::default();
        assert_eq!(rollout.set_wave(CANARY, 1), NO_CLUSTER);
        assert_eq!(rollout.set_wave(SECOND, 2), NO_CLUSTER);
        rollout
    }

    #[test]
    fn a_wave_goes_when_every_earlier_one_has_settled() {
        let mut rollout = waves();
        // Nothing was compared yet: only the first wave may go.
        assert_eq!(rollout.blocker(CANARY, &charts(&[1])), None);
        let by =
            |rollout: &Rollout<Uuid>, cluster| rollout.blocker(cluster, &charts(&[1])).map(|by| (by.wave, by.cluster));
        assert_eq!(by(&rollout, SECOND), Some((1, CANARY)));
        rollout.wait(SECOND, charts(&[1]));
        rollout.wait(LAST, charts(&[1]));
        assert_eq!(rollout.compared(SECOND, charts(&[1])), NO_CLUSTER, "it waits itself");
        assert_eq!(rollout.compared(CANARY, charts(&[1])), NO_CLUSTER);
        assert_eq!(rollout.compared(CANARY, charts(&[])), [SECOND]);
        rollout.wait(SECOND, charts(&[]));
        assert_eq!(by(&rollout, LAST), Some((2, SECOND)));
        assert_eq!(rollout.compared(SECOND, charts(&[])), [LAST]);
        assert_eq!(by(&rollout, LAST), None);
        // The next change.
        rollout.unknown(CANARY);
        assert_eq!(by(&rollout, LAST), Some((1, CANARY)));
    }

    #[test]
    fn only_deployments_of_the_same_template_hold_up() {
        let mut rollout = waves();
        rollout.compared(SECOND, charts(&[]));
        rollout.compared(CANARY, charts(&[1]));
        assert_eq!(rollout.blocker(LAST, &charts(&[2])), None);
        rollout.wait(LAST, charts(&[1, 2]));
        assert_eq!(rollout.compared(CANARY, charts(&[2])), [LAST], "one of the two may go");
    }

    #[test]
    fn a_cluster_that_is_put_into_another_wave_or_is_gone_blocks_accordingly() {
        let mut rollout = waves();
        rollout.compared(SECOND, charts(&[]));
        rollout.wait(LAST, charts(&[1]));
        assert_eq!(rollout.set_wave(LAST, 1), [LAST], "beside the first one no cluster is before it");
        assert!(rollout.blocks_rollout(LAST));
        assert_eq!(rollout.set_wave(LAST, WAVE_MAX), NO_CLUSTER);
        assert!(!rollout.blocks_rollout(LAST));
        assert_eq!(rollout.remove(CANARY), [LAST]);
        assert_eq!(rollout.blocker(LAST, &charts(&[1])), None);
    }

    #[test]
    fn what_is_held_waits_and_who_is_passed_blocks_no_later_wave() {
        let mut rollout = waves();
        rollout.compared(SECOND, charts(&[]));
        assert!(rollout.compared(CANARY, charts(&[1, 2])).is_empty());
        rollout.wait(LAST, charts(&[1]));
        assert!(rollout.set_passed(&charts(&[1]).pop_first().unwrap(), [SECOND]).is_empty(), "it is another one");
        assert_eq!(rollout.set_passed(&charts(&[1]).pop_first().unwrap(), [CANARY]), [LAST]);
        assert!(rollout.blocker(LAST, &charts(&[1])).is_none() && rollout.blocker(LAST, &charts(&[2])).is_some());
        rollout.unknown(CANARY);
        assert!(rollout.blocker(LAST, &charts(&[1])).is_none() && rollout.blocker(LAST, &charts(&[2])).is_some());
        let chart = charts(&[1]).pop_first().unwrap();
        assert!(rollout.set_held(chart, true).is_empty());
        assert_eq!((rollout.held(&charts(&[1, 2])), rollout.held(&charts(&[2]))), (Some(&chart), None));
        assert_eq!(rollout.set_held(chart, false), [LAST]);
        assert!(rollout.set_passed(&chart, []).is_empty());
        assert!(rollout.blocker(LAST, &charts(&[1])).is_some());
    }

    proptest! {
        /// Whatever happens, each cluster that may continue has been returned, and the last wave costs nothing.
        #[test]
        fn each_cluster_that_may_continue_is_returned(steps in proptest::collection::vec((0..8_u8, 1..6_u128, 1..=WAVE_MAX, 0..8_usize), 1..60)) {
            let mut rollout = Rollout::<Uuid>::default();
            let mut named = BTreeSet::new();
            for (what, cluster, wave, mask) in steps {
                let cluster = Uuid::from_u128(cluster);
                let some: BTreeSet<Uuid> = charts(&[0, 1, 2]).into_iter().enumerate().filter(|(bit, _)| mask & (1 << bit) != 0).map(|(_, chart)| chart).collect();
                let released = match what {
                    0 => rollout.set_wave(cluster, wave),
                    1 => { rollout.unknown(cluster); Vec::new() }
                    2 | 3 => rollout.compared(cluster, some),
                    4 => rollout.remove(cluster),
                    5 => rollout.set_held(*charts(&[0]).first().unwrap(), mask & 1 != 0),
                    6 => rollout.set_passed(charts(&[1]).first().unwrap(), (mask & 1 != 0).then_some(cluster)),
                    _ => {
                        named.remove(&cluster);
                        let waits = |chart: &Uuid| {
                            rollout.held.contains(chart) || rollout.blocker(cluster, &[*chart].into()).is_some()
                        };
                        let blocked = some.into_iter().filter(waits);
                        let blocked = blocked.collect();
                        rollout.wait(cluster, blocked);
                        Vec::new()
                    }
                };
                named.extend(released);
                for (cluster, charts) in &rollout.waiting {
                    let free = |chart: &Uuid| {
                        !rollout.held.contains(chart) && rollout.blocker(*cluster, &[*chart].into()).is_none()
                    };
                    let goes = charts.iter().any(free);
                    prop_assert!(!goes || named.contains(cluster), "{} waits for nothing", cluster);
                    if !goes {
                        named.remove(cluster);
                    }
                }
                prop_assert!(rollout.unsettled.keys().all(|(wave, cluster)| rollout.waves.get(cluster) == Some(wave)));
            }
        }

        /// A change of every repository, in any order of what happens: each settles after it was written, some never. No cluster is written while an earlier wave has not settled,
        /// and each cluster that is not behind one that never settles is written in the end.
        #[test]
        fn a_change_reaches_each_cluster_that_is_not_behind_a_failure(
            waves in proptest::collection::vec(1..=WAVE_MAX, 2..8),
            fails in proptest::collection::vec(any::<bool>(), 8),
            turns in proptest::collection::vec(any::<u8>(), 64),
        ) {
            let one = BTreeSet::from([WholeRepository]);
            let id = |index: usize| Uuid::from_u128(index as u128 + 1);
            let mut rollout = Rollout::<WholeRepository>::default();
            for (index, wave) in waves.iter().enumerate() {
                rollout.set_wave(id(index), *wave);
                rollout.compared(id(index), BTreeSet::new());
            }
            (0..waves.len()).for_each(|index| rollout.unknown(id(index)));
            let (mut written, mut settled) = (BTreeSet::<usize>::new(), BTreeSet::<usize>::new());
            let mut due: Vec<usize> = (0..waves.len()).collect();
            for turn in 0.. {
                // Those that are due are looked at in any order; then those that were written settle, one after the other.
                let index = match due.is_empty() {
                    false => due.swap_remove(usize::from(turns[turn % turns.len()]) % due.len()),
                    true => match written.iter().copied().find(|index| !fails[*index] && !settled.contains(index)) {
                        Some(index) => { settled.insert(index); index }
                        None => break,
                    },
                };
                let blocker = rollout.blocker(id(index), &one).filter(|_| !written.contains(&index));
                rollout.wait(id(index), if blocker.is_some() { one.clone() } else { BTreeSet::new() });
                if blocker.is_none() && written.insert(index) {
                    let earlier = (0..waves.len()).filter(|other| waves[*other] < waves[index]);
                    prop_assert!(earlier.into_iter().all(|other| settled.contains(&other)), "{} came too early", index);
                }
                let unsettled = if settled.contains(&index) { BTreeSet::new() } else { one.clone() };
                let released = rollout.compared(id(index), unsettled);
                due.extend((0..waves.len()).filter(|other| released.contains(&id(*other))));
            }
            for index in 0..waves.len() {
                let behind = (0..waves.len()).any(|other| fails[other] && waves[other] < waves[index]);
                prop_assert_eq!(written.contains(&index), !behind, "{} of {:?}, failing {:?}", index, &waves, &fails);
            }
        }
    }
}
