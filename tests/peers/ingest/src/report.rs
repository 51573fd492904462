//! What was seen, as Markdown.

use std::fmt::Write as _;

use crate::Fleet;
use crate::kind::Kind;
use crate::stream::CHANGED;

/// What a contender says of itself at its end.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// CPU time for all births, ns.
    pub births_ns: u64,
    /// CPU time for all data, ns.
    pub data_ns: u64,
    /// Allocations for all data.
    pub data_allocations: u64,
    /// Resident memory after the births minus that before, bytes.
    pub resident: i64,
    /// The same of what was allocated and not given back, bytes.
    pub held: i64,
    pub messages: u64,
    pub metrics: u64,
}

impl Run {
    pub fn line(&self) -> String {
        let Self { births_ns, data_ns, data_allocations, resident, held, messages, metrics } = self;
        format!("{births_ns} {data_ns} {data_allocations} {resident} {held} {messages} {metrics}")
    }

    pub fn parse(line: &str) -> Self {
        let numbers: Vec<i64> = line.split(' ').map(|n| n.parse().expect("a number")).collect();
        let [births_ns, data_ns, data_allocations, resident, held, messages, metrics] = numbers[..] else {
            panic!("{line:?} is not a report")
        };
        let unsigned = |n: i64| n.unsigned_abs();
        Self {
            births_ns: unsigned(births_ns),
            data_ns: unsigned(data_ns),
            data_allocations: unsigned(data_allocations),
            resident,
            held,
            messages: unsigned(messages),
            metrics: unsigned(metrics),
        }
    }

    fn ns(&self) -> f64 {
        self.data_ns as f64 / self.messages as f64
    }
}

/// All runs on one fleet.
pub struct Table {
    fleet: Fleet,
    rows: Vec<(Kind, Vec<Run>)>,
}

impl Table {
    pub const fn new(fleet: Fleet) -> Self {
        Self { fleet, rows: Vec::new() }
    }

    pub fn add(&mut self, kind: Kind, run: Run) {
        match self.rows.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, runs)) => runs.push(run),
            None => self.rows.push((kind, vec![run])),
        }
    }

    fn runs(&self, kind: Kind) -> &[Run] {
        self.rows.iter().find(|(known, _)| *known == kind).map_or(&[], |(_, runs)| runs)
    }

    /// Median over the rounds of the speed of one beside that of another in the same round.
    fn ratio(&self, kind: Kind, reference: Kind) -> f64 {
        median(self.runs(reference).iter().zip(self.runs(kind)).map(|(theirs, own)| theirs.ns() / own.ns()).collect())
    }

    pub fn ingest(&self) -> String {
        let mut text = String::from(
            "| | ns CPU a message, median (min) | messages/s | M metrics/s | allocations a message | × TCP and visitor | × raw rumqttc | × srad, store |\n|---|---|---|---|---|---|---|---|\n",
        );
        for (kind, runs) in &self.rows {
            let kind = *kind;
            let ns = median(runs.iter().map(Run::ns).collect());
            let least = runs.iter().map(Run::ns).fold(f64::INFINITY, f64::min);
            let allocations = median(runs.iter().map(|r| r.data_allocations as f64 / r.messages as f64).collect());
            let metrics =
                if kind == Kind::Raw { "–".to_owned() } else { format!("{:.1}", CHANGED as f64 * 1e3 / ns) };
            let _ = writeln!(
                text,
                "| {} | {ns:.0} ({least:.0}) | {:.0} | {metrics} | {allocations:.1} | {:.2} | {:.2} | {:.2} |",
                kind.name(),
                1e9 / ns,
                self.ratio(kind, Kind::Visitor),
                self.ratio(kind, Kind::Raw),
                self.ratio(kind, Kind::SradStore),
            );
        }
        text
    }

    pub fn memory(&self) -> String {
        let mut text = String::from(
            "| | resident, kB a node | allocated, kB a node | allocated, bytes a metric | µs CPU a birth |\n|---|---|---|---|---|\n",
        );
        let nodes = self.fleet.nodes as f64;
        for (kind, runs) in &self.rows {
            let Run { births_ns, resident, held, .. } = runs[0];
            let metrics = nodes * (self.fleet.metrics + 2) as f64;
            let _ = writeln!(
                text,
                "| {} | {:.2} | {:.2} | {:.0} | {:.1} |",
                kind.name(),
                resident as f64 / nodes / 1e3,
                held as f64 / nodes / 1e3,
                held as f64 / metrics,
                births_ns as f64 / nodes / 1e3,
            );
        }
        text
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
