//! What a Join node counts since the start of its replica. Each count is a metric of its own, `Refusals/measurement` for example; the names behind the slash are those
//! of the join protocol, so the counting service knows them.

use std::collections::BTreeMap;

use sparkplug::{Metric, Properties, Value};

use crate::names::{IGNORED, REFUSALS, REQUESTS};

/// The most names that a reader keeps of each group.
const NAMES_MAX: usize = 128;

/// Counts by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JoinCounters {
    /// Requests of hosts that have proven their TPM, by kind.
    pub requests: BTreeMap<String, u64>,
    /// Refusals by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Messages without an answer, by reason.
    pub ignored: BTreeMap<String, u64>,
}

impl JoinCounters {
    /// Every name with zero: what the first birth has.
    #[must_use]
    pub fn zero<'a>(
        kinds: impl IntoIterator<Item = &'a str>,
        refusals: impl IntoIterator<Item = &'a str>,
        ignored: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        fn zeros<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, u64> {
            names.into_iter().map(|name| (name.to_owned(), 0)).collect()
        }
        Self { requests: zeros(kinds), refusals: zeros(refusals), ignored: zeros(ignored) }
    }

    /// Counts one request.
    pub fn request(&mut self, kind: &str) {
        count(&mut self.requests, kind);
    }

    /// Counts one refusal.
    pub fn refusal(&mut self, reason: &str) {
        count(&mut self.refusals, reason);
    }

    /// Counts one message without an answer.
    pub fn ignore(&mut self, reason: &str) {
        count(&mut self.ignored, reason);
    }

    /// Folder of the names, what is counted there, and the counts.
    fn groups(&self) -> [(&'static str, &'static str, &BTreeMap<String, u64>); 3] {
        [
            (
                REQUESTS,
                "Requests of this kind by hosts that have proven their TPM, since the start of the replica.",
                &self.requests,
            ),
            (REFUSALS, "Refusals for this reason, since the start of the replica.", &self.refusals),
            (IGNORED, "Messages without an answer for this reason, since the start of the replica.", &self.ignored),
        ]
    }

    /// All metrics, as a birth has them.
    #[must_use]
    pub fn to_metrics(&self) -> Vec<Metric> {
        self.changes_since(&Self::default())
    }

    /// The metrics whose value is another than in `earlier`.
    #[must_use]
    pub fn changes_since(&self, earlier: &Self) -> Vec<Metric> {
        let mut metrics = Vec::new();
        let groups = self.groups().into_iter().zip(earlier.groups());
        // This is asked after each event, and most change no count.
        for ((prefix, what, now), (.., before)) in groups.filter(|((.., now), (.., before))| now != before) {
            let changed = now.iter().filter(|(name, count)| before.get(*name) != Some(*count));
            let properties = Properties::described(&[what], true);
            let metric = |(name, count): (&String, &u64)| Metric::new(format!("{prefix}{name}"), *count);
            metrics.extend(changed.map(metric).map(|metric| metric.with_properties(properties.clone())));
        }
        metrics
    }

    /// Takes over the counts of a birth or a data message. Other metrics, and counts that are not numbers, are ignored.
    pub fn merge<'a>(&mut self, metrics: impl IntoIterator<Item = &'a Metric>) {
        for metric in metrics {
            let Some(count) = metric.value.as_ref().and_then(Value::as_u64) else { continue };
            let groups = [(REQUESTS, &mut self.requests), (REFUSALS, &mut self.refusals), (IGNORED, &mut self.ignored)];
            for (prefix, counts) in groups {
                if let Some(name) = metric.name.strip_prefix(prefix)
                    && (counts.len() < NAMES_MAX || counts.contains_key(name))
                {
                    counts.insert(name.to_owned(), count);
                }
            }
        }
    }
}

fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    let count = counts.entry(name.to_owned()).or_default();
    *count = count.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_the_trip_and_only_changes_are_published() {
        let zero = JoinCounters::zero(["join", "rejoin"], ["measurement"], ["cookie"]);
        let names: Vec<String> = zero.to_metrics().iter().map(|metric| metric.name.to_string()).collect();
        assert_eq!(names, ["Requests/join", "Requests/rejoin", "Refusals/measurement", "Ignored/cookie"]);
        let mut later = zero.clone();
        later.request("join");
        later.refusal("measurement");
        later.refusal("measurement");
        later.ignore("cookie");
        let changes = later.changes_since(&zero);
        assert_eq!(changes.len(), 3);
        let mut read = JoinCounters::default();
        read.merge(&zero.to_metrics());
        read.merge(&changes);
        read.merge(&[Metric::new("Ignored/x", "many"), Metric::new("Other/x", 1_u64)]);
        assert_eq!(read, later);
    }

    #[test]
    fn a_reader_keeps_no_more_names_than_it_can_need() {
        let mut read = JoinCounters::default();
        let metrics: Vec<Metric> = (0..1_000_u64).map(|n| Metric::new(format!("Refusals/{n}"), n)).collect();
        read.merge(&metrics);
        assert_eq!(read.refusals.len(), NAMES_MAX);
    }
}
