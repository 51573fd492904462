//! Replicas of edge nodes and devices: names, aliases and types of their births, and current values.
//!
//! Knows what a birth and a data message mean for a replica. Does not know order, time-outs or requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Liveness;
use super::rebirth::Asking;
use super::resequencer::Resequencer;
use crate::metric::Metric;
use crate::name::DeviceId;
use crate::payload::{MetricRef, PayloadRef, ValueRef};
use crate::seq::BdSeq;

/// Metrics of a node or a device as of its birth, with current values.
#[derive(Debug)]
pub(super) struct Replica {
    pub metrics: Arc<[Metric]>,
    /// Indices into `metrics`, in the order of the names.
    by_name: Vec<u32>,
    /// Aliases and indices, in the order of the aliases.
    by_alias: Vec<(u64, u32)>,
    /// Names and aliases of the birth that could not be read; data of them is passed over.
    unreadable: Vec<(Option<Arc<str>>, Option<u64>)>,
    /// Since when it is dead.
    pub dead_at: Option<u64>,
}

/// Why a data message does not fit a replica.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unknown(pub String);

impl Replica {
    /// From the metrics of a birth. What cannot be read is left out and told in `problems`.
    pub(super) fn from_birth(raws: &[MetricRef<'_>], timestamp: u64, problems: &mut Vec<String>) -> Self {
        let mut metrics = Vec::with_capacity(raws.len());
        let mut by_alias = Vec::new();
        let mut unreadable = Vec::new();
        for raw in raws {
            match birth_metric(raw, timestamp) {
                Ok(metric) => {
                    let index = u32::try_from(metrics.len()).unwrap_or(u32::MAX);
                    if let Some(alias) = raw.alias {
                        by_alias.push((alias, index));
                    }
                    metrics.push(metric);
                }
                Err(problem) => {
                    problems.push(problem);
                    unreadable.push((raw.name.map(Arc::from), raw.alias));
                }
            }
        }
        let index = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let mut by_name: Vec<u32> = (0..index(metrics.len())).collect();
        by_name.sort_by(|a, b| metrics[*a as usize].name.cmp(&metrics[*b as usize].name));
        if by_name.windows(2).any(|w| metrics[w[0] as usize].name == metrics[w[1] as usize].name) {
            problems.push("a name occurs more than once; data of it goes to one of them".to_owned());
        }
        by_alias.sort_unstable();
        if by_alias.windows(2).any(|w| w[0].0 == w[1].0) {
            problems.push("an alias occurs more than once; data of it goes to one of them".to_owned());
        }
        Self { metrics: metrics.into(), by_name, by_alias, unreadable, dead_at: None }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Metric> {
        self.find_name(name).map(|i| &self.metrics[i])
    }

    fn find_name(&self, name: &str) -> Option<usize> {
        let at = self.by_name.binary_search_by(|i| (*self.metrics[*i as usize].name).cmp(name)).ok()?;
        Some(self.by_name[at] as usize)
    }

    fn find_alias(&self, alias: u64) -> Option<usize> {
        let at = self.by_alias.binary_search_by_key(&alias, |(a, _)| *a).ok()?;
        Some(self.by_alias[at].1 as usize)
    }

    /// Takes the metrics of a data message over; yields them with names and types. Nothing changes when one of them is unknown. A value that cannot be read is told in
    /// `problems` and left out.
    pub(super) fn apply(
        &mut self,
        raws: &[MetricRef<'_>],
        timestamp: u64,
        problems: &mut Vec<String>,
    ) -> Result<Vec<Metric>, Unknown> {
        let mut resolved = Vec::with_capacity(raws.len());
        for raw in raws {
            let found = match (raw.name, raw.alias) {
                (Some(name), _) => self.find_name(name),
                (None, Some(alias)) => self.find_alias(alias),
                (None, None) => {
                    problems.push("a metric has neither name nor alias".to_owned());
                    continue;
                }
            };
            match found {
                Some(index) => resolved.push((index, raw)),
                None if self.unreadable.iter().any(|(name, alias)| match raw.name {
                    Some(_) => name.as_deref() == raw.name,
                    None => *alias == raw.alias,
                }) => {}
                None => return Err(Unknown(unknown(raw))),
            }
        }
        let mut changed = Vec::with_capacity(resolved.len());
        for (index, raw) in resolved {
            let current = &self.metrics[index];
            let keeps_properties = raw.properties.is_none() && !raw.is_historical;
            match raw.resolve(current.name.clone(), current.datatype, current.value.as_ref()) {
                Ok(mut metric) => {
                    metric.timestamp.get_or_insert(timestamp);
                    if keeps_properties {
                        metric.properties = current.properties.clone();
                    }
                    if !metric.is_historical {
                        Arc::make_mut(&mut self.metrics)[index] = metric.clone();
                    }
                    changed.push(metric);
                }
                Err(error) => problems.push(format!("metric {:?}: {error}", current.name)),
            }
        }
        Ok(changed)
    }
}

fn unknown(raw: &MetricRef<'_>) -> String {
    match (raw.name, raw.alias) {
        (Some(name), _) => format!("metric {name:?} is not in the birth"),
        (None, Some(alias)) => format!("alias {alias} is not in the birth"),
        (None, None) => "a metric has neither name nor alias".to_owned(),
    }
}

fn birth_metric(raw: &MetricRef<'_>, timestamp: u64) -> Result<Metric, String> {
    let Some(name) = raw.name else {
        return Err("a metric of the birth has no name".to_owned());
    };
    let datatype = raw.own_datatype().map_err(|e| format!("metric {name:?}: {e}"))?;
    let metric = raw.resolve(name.into(), datatype, None).map_err(|e| format!("metric {name:?}: {e}"))?;
    Ok(Metric { timestamp: metric.timestamp.or(Some(timestamp)), ..metric })
}

/// bdSeq of a birth or a death.
pub(super) fn bd_seq(payload: &PayloadRef<'_>) -> Result<BdSeq, String> {
    let metric = payload.metrics.iter().find(|m| m.name == Some("bdSeq")).ok_or("it has no metric bdSeq")?;
    let number = match metric.value {
        Some(ValueRef::Long(n)) => n,
        Some(ValueRef::Int(n)) => n.into(),
        _ => return Err("its bdSeq is not a number".to_owned()),
    };
    let number = i64::try_from(number).map_err(|_| "its bdSeq is not within 0..=255".to_owned())?;
    BdSeq::from_wire(number).map_err(|n| format!("its bdSeq {n} is not within 0..=255"))
}

/// The birth of a node, with what followed it.
#[derive(Debug)]
pub(super) struct Birth {
    pub bd_seq: BdSeq,
    /// Payload timestamp.
    pub timestamp: u64,
    /// Of the NBIRTH.
    pub digest: u64,
    /// When it arrived.
    pub received: Duration,
    pub replica: Replica,
    pub order: Resequencer,
}

/// One edge node.
#[derive(Debug)]
pub(super) struct Node {
    pub liveness: Liveness,
    /// A message of it arrived.
    pub heard: bool,
    /// The application counts on it.
    pub expected: bool,
    pub birth: Option<Birth>,
    pub devices: BTreeMap<DeviceId, Replica>,
    /// Since when it is stale or dead, UTC ms of this host.
    pub stale_at: Option<u64>,
    /// When the gap in `seq` becomes a loss.
    pub gap_due: Option<Duration>,
    pub asking: Asking,
    /// It was told that there are more devices, or metrics, than are kept.
    pub devices_refused: bool,
    pub metrics_refused: bool,
}

impl Node {
    pub(super) fn unheard() -> Self {
        Self {
            liveness: Liveness::Dead,
            heard: false,
            expected: false,
            birth: None,
            devices: BTreeMap::new(),
            stale_at: None,
            gap_due: None,
            asking: Asking::default(),
            devices_refused: false,
            metrics_refused: false,
        }
    }

    /// Whether an NBIRTH is one that arrived before, late or twice, or is older than what is known.
    pub(super) fn judge_birth(&self, bd_seq: BdSeq, timestamp: Option<u64>, digest: u64) -> BirthVerdict {
        let Some(known) = &self.birth else { return BirthVerdict::Take };
        let asked = self.asking.last().is_some_and(|at| at >= known.received);
        let dead = self.liveness == Liveness::Dead;
        if digest == known.digest && (!asked || dead && timestamp.is_some()) {
            return BirthVerdict::Duplicate;
        }
        match timestamp {
            Some(t) if t < known.timestamp && !asked => BirthVerdict::Doubt,
            Some(t) if t == known.timestamp && dead && bd_seq == known.bd_seq && !asked => BirthVerdict::Doubt,
            _ => BirthVerdict::Take,
        }
    }
}

/// What to do with an NBIRTH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BirthVerdict {
    Take,
    /// Those very bytes were taken before.
    Duplicate,
    /// Older than the known birth: a late packet, or a clock that was set back. Asking for rebirth tells which.
    Doubt,
}
