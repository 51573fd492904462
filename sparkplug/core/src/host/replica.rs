//! Replicas of the metrics of edge nodes and devices: the shape of their birth, and current values.
//!
//! Knows what a birth and a data message mean for a replica. Does not know order, time-outs or requests.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::sync::Arc;

use super::shape::{BirthMetric, Details, NO_DETAILS, Shape, Shapes};
use super::{weight, work};
use crate::metric::{DataType, Metric, Properties, Value};
use crate::payload::plain::{self, PlainHead};
use crate::payload::{Limits, MetricRef, number};

/// Metrics of a node or a device as of its birth, with current values.
#[derive(Debug)]
pub(super) struct Replica {
    shape: Arc<Shape>,
    /// One for each column of the shape.
    slots: Box<[Slot]>,
    /// Values of the columns whose datatype is not a number.
    others: Box<[Option<Value>]>,
    /// Columns of numbers that are null.
    nulls: BTreeSet<u32>,
    /// Of columns whose details are not those of the shape.
    details: BTreeMap<u32, Details>,
    /// That it takes, about.
    bytes: usize,
    /// Since when it is dead.
    pub dead_at: Option<u64>,
}

/// Small, because there are as many as metrics in the fleet.
#[derive(Debug)]
struct Slot {
    /// The value, where the datatype is a number; otherwise its place among the others.
    number: u64,
    timestamp: u64,
}

/// What a plain data message changes.
#[derive(Debug)]
pub(super) struct Change {
    index: usize,
    number: u64,
    timestamp: Option<u64>,
}

/// Why a data message does not fit a replica.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unknown(pub String);

impl Replica {
    /// From the metrics of a birth. What cannot be read is left out and named in `problems`.
    pub(super) fn from_birth(
        raws: &[MetricRef<'_>],
        timestamp: u64,
        shapes: &mut Shapes,
        problems: &mut Vec<String>,
    ) -> Self {
        let mut metrics = Vec::with_capacity(raws.len());
        let mut slots = Vec::with_capacity(raws.len());
        let mut details = Vec::with_capacity(raws.len());
        let mut others = Vec::new();
        let mut nulls = BTreeSet::new();
        let mut unreadable = Vec::new();
        let mut bytes = 0;
        for raw in raws {
            work::count(1);
            match birth_metric(raw) {
                Ok((metric, value)) => {
                    let own = details_of(raw, &Properties::new());
                    bytes += weight::of_metric(metric.name, value.as_ref(), &own);
                    let number = if !number::is_number(metric.datatype) {
                        others.push(value);
                        others.len() as u64 - 1
                    } else if let Some(value) = value {
                        number::of_value(&value).unwrap_or_default()
                    } else {
                        nulls.insert(small(metrics.len()));
                        0
                    };
                    metrics.push(metric);
                    slots.push(Slot { number, timestamp: raw.timestamp.unwrap_or(timestamp) });
                    details.push(own);
                }
                Err(problem) => {
                    problems.push(problem);
                    bytes += raw.name.map_or(0, str::len);
                    unreadable.push((raw.name, raw.alias));
                }
            }
        }
        let shape = shapes.of(&metrics, &details, &unreadable);
        problems.extend(shape.doubts.iter().map(|&doubt| doubt.to_owned()));
        let numbered = (0..u32::MAX).zip(details).zip(0..);
        let details = numbered.filter(|((_, own), index)| own != shape.details(*index)).map(|(own, _)| own).collect();
        Self { shape, slots: slots.into(), others: others.into(), nulls, details, bytes, dead_at: None }
    }

    /// Number of metrics.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Memory that it takes, about.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The current value of a column.
    fn value(&self, index: usize) -> Option<Value> {
        let ((_, datatype), slot) = (self.shape.column(index)?, self.slots.get(index)?);
        if !number::is_number(datatype) {
            return self.others.get(place(slot.number))?.clone();
        }
        if self.nulls.contains(&small(index)) { None } else { number::to_value(datatype, slot.number) }
    }

    fn set(&mut self, index: usize, value: Option<&Value>, timestamp: u64) {
        let (Some((_, datatype)), Some(slot)) = (self.shape.column(index), self.slots.get_mut(index)) else { return };
        slot.timestamp = timestamp;
        if !number::is_number(datatype) {
            if let Some(other) = self.others.get_mut(place(slot.number)) {
                self.bytes = (self.bytes + weight::of_value(value)).saturating_sub(weight::of_value(other.as_ref()));
                *other = value.cloned();
            }
        } else if let Some(number) = value.and_then(number::of_value) {
            slot.number = number;
            self.nulls.remove(&small(index));
        } else {
            self.nulls.insert(small(index));
        }
    }

    fn details_of(&self, index: usize) -> &Details {
        let own = if self.details.is_empty() { None } else { self.details.get(&small(index)) };
        own.unwrap_or_else(|| self.shape.details(index))
    }

    /// A metric by its place in the birth.
    pub(super) fn metric(&self, index: usize) -> Option<Metric> {
        let ((name, datatype), slot) = (self.shape.column(index)?, self.slots.get(index)?);
        let details = self.details_of(index);
        Some(Metric {
            name: name.clone(),
            datatype,
            value: self.value(index),
            timestamp: Some(slot.timestamp),
            properties: details.properties.clone(),
            metadata: details.metadata.clone(),
            is_historical: details.is_historical,
            is_transient: details.is_transient,
        })
    }

    /// Names of the birth that have an alias, in the order of their aliases.
    pub(super) fn aliases(&self) -> Vec<(Arc<str>, u64)> {
        self.shape.aliases().map(|(name, alias)| (name.clone(), alias)).collect()
    }

    /// The datatype that a metric was born with.
    pub(super) fn datatype(&self, name: &str) -> Option<DataType> {
        self.shape.column(self.shape.find_name(name, 0)?).map(|(_, datatype)| datatype)
    }

    /// A metric by its name.
    pub(super) fn get(&self, name: &str) -> Option<Metric> {
        self.metric(self.shape.find_name(name, 0)?)
    }

    /// All metrics, in the order of the birth.
    pub(super) fn metrics(&self) -> impl Iterator<Item = Metric> + use<'_> {
        (0..self.len()).filter_map(|index| self.metric(index))
    }

    /// Takes the metrics of a data message over; yields them with names and types. Nothing changes when one of them is unknown. A value that cannot be read is named in
    /// `problems` and left out. `found` is memory that the next message uses again.
    pub(super) fn apply(
        &mut self,
        raws: &[MetricRef<'_>],
        timestamp: u64,
        found: &mut Vec<Option<usize>>,
        problems: &mut Vec<String>,
    ) -> Result<Vec<Metric>, Unknown> {
        found.clear();
        let mut hint = 0;
        for raw in raws {
            let index = match (raw.name, raw.alias) {
                (Some(name), _) => self.shape.find_name(name, hint),
                (None, Some(alias)) => self.shape.find_alias(alias),
                (None, None) => {
                    problems.push("a metric has neither name nor alias".to_owned());
                    found.push(None);
                    continue;
                }
            };
            if index.is_none() && !self.shape.passes_over(raw.name, raw.alias) {
                return Err(unknown(raw));
            }
            found.push(index);
            hint = index.map_or(hint, |index| index + 1);
        }
        let mut changed = Vec::with_capacity(raws.len());
        for (raw, index) in raws.iter().zip(found) {
            let Some(index) = *index else { continue };
            work::count(1);
            let Some((name, datatype)) = self.shape.column(index) else { continue };
            // Only of a template it matters what it was before.
            let current = if number::is_number(datatype) { None } else { self.value(index) };
            let value = match &raw.value {
                None => None,
                Some(value) => match value.resolve(datatype, current.as_ref()) {
                    Ok(value) => Some(value),
                    Err(error) => {
                        problems.push(format!("metric {name:?}: {error}"));
                        continue;
                    }
                },
            };
            let (name, timestamp) = (name.clone(), raw.timestamp.unwrap_or(timestamp));
            let metric = Metric { timestamp: Some(timestamp), value, ..Metric::null(name, datatype) };
            changed.push(self.apply_one(index, raw, metric));
        }
        Ok(changed)
    }

    /// The short way of a data message, if it is a plain one: finds its metrics, and changes nothing. None: it has to go the long way.
    pub(super) fn find_plain(&self, bytes: &[u8], limits: &Limits, changes: &mut Vec<Change>) -> Option<PlainHead> {
        changes.clear();
        let shape = &*self.shape;
        let mut hint = 0;
        plain::walk(bytes, limits, |metric| {
            work::count(1);
            let index = match (metric.name, metric.alias) {
                (Some(name), _) => shape.find_name(name, hint)?,
                (None, alias) => shape.find_alias(alias?)?,
            };
            let (_, datatype) = shape.column(index)?;
            let number = number::of_basic_value(datatype, &metric.value)?;
            if !self.details_of(index).is_plain() {
                return None;
            }
            // Asked for while the rest is decoded: the values of thousands of nodes are far from the processor, and to wait for them later would hold up all else.
            black_box(self.slots.get(index)?.timestamp);
            changes.push(Change { index, number, timestamp: metric.timestamp });
            hint = index + 1;
            Some(())
        })
    }

    /// Takes over what [`Self::find_plain`] found; yields it with names and types.
    pub(super) fn apply_plain(&mut self, changes: &[Change], timestamp: u64) -> Vec<Metric> {
        for Change { index, number, timestamp: own } in changes {
            if let Some(slot) = self.slots.get_mut(*index) {
                *slot = Slot { number: *number, timestamp: own.unwrap_or(timestamp) };
            }
            if !self.nulls.is_empty() {
                self.nulls.remove(&small(*index));
            }
        }
        let shape = &*self.shape;
        // Made where it stays: what has just been put together in parts is slow to move.
        let changed = changes.iter().map(|change| {
            let (name, datatype) = (&shape.names[change.index], shape.datatypes[change.index]);
            Metric {
                name: name.clone(),
                datatype,
                value: number::to_value(datatype, change.number),
                timestamp: Some(change.timestamp.unwrap_or(timestamp)),
                properties: self.details_of(change.index).properties.clone(),
                metadata: None,
                is_historical: false,
                is_transient: false,
            }
        });
        changed.collect()
    }

    /// Takes over a metric of which more than the value may differ from the birth. `metric`: its name, type, value and time.
    fn apply_one(&mut self, index: usize, raw: &MetricRef<'_>, metric: Metric) -> Metric {
        let kept = if raw.is_historical { &NO_DETAILS } else { self.details_of(index) };
        let details = details_of(raw, &kept.properties);
        if !raw.is_historical {
            self.set(index, metric.value.as_ref(), metric.timestamp.unwrap_or_default());
            let before = weight::of_details(self.details_of(index));
            self.bytes = (self.bytes + weight::of_details(&details)).saturating_sub(before);
            if details == *self.shape.details(index) {
                self.details.remove(&small(index));
            } else {
                self.details.insert(small(index), details.clone());
            }
        }
        Metric {
            properties: details.properties,
            metadata: details.metadata,
            is_historical: details.is_historical,
            is_transient: details.is_transient,
            ..metric
        }
    }
}

/// What a message says about a metric beside its value; without properties it has those that are `kept`.
fn details_of(raw: &MetricRef<'_>, kept: &Properties) -> Details {
    Details {
        properties: raw.properties.map_or_else(|| kept.clone(), |properties| properties.decode()),
        metadata: raw.metadata.map(|metadata| Box::new(metadata.decode())),
        is_historical: raw.is_historical,
        is_transient: raw.is_transient,
    }
}

/// Metrics of a birth are fewer than the bytes of its payload.
fn small(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Of a place among the others, as a slot keeps it.
fn place(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn unknown(raw: &MetricRef<'_>) -> Unknown {
    Unknown(match (raw.name, raw.alias) {
        (Some(name), _) => format!("metric {name:?} is not in the birth"),
        (None, Some(alias)) => format!("alias {alias} is not in the birth"),
        (None, None) => "a metric has neither name nor alias".to_owned(),
    })
}

fn birth_metric<'a>(raw: &MetricRef<'a>) -> Result<(BirthMetric<'a>, Option<Value>), String> {
    let Some(name) = raw.name else {
        return Err("a metric of the birth has no name".to_owned());
    };
    let of_metric = |error| format!("metric {name:?}: {error}");
    let datatype = raw.own_datatype().map_err(of_metric)?;
    let value = raw.value.as_ref().map(|value| value.resolve(datatype, None)).transpose().map_err(of_metric)?;
    Ok((BirthMetric { name, alias: raw.alias, datatype }, value))
}

#[cfg(test)]
mod tests;
