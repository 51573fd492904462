//! Replicas of the metrics of edge nodes and devices: the shape of their birth, and current values.
//!
//! Knows what a birth and a data message mean for a replica. Does not know order, time-outs or requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::shape::{Details, Shape, Shapes, Told};
use super::work;
use crate::metric::{Metric, Properties, Value};
use crate::payload::plain::{self, PlainHead};
use crate::payload::{Limits, MetricRef, number};

/// Metrics of a node or a device as of its birth, with current values.
#[derive(Debug)]
pub(super) struct Replica {
    shape: Arc<Shape>,
    /// One for each column of the shape.
    slots: Box<[Slot]>,
    /// Values of the columns whose datatype is no number.
    others: Box<[Option<Value>]>,
    /// Columns of numbers that are null.
    nulls: BTreeSet<u32>,
    /// Of columns whose details are not those of the shape.
    details: BTreeMap<u32, Details>,
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
    /// From the metrics of a birth. What cannot be read is left out and told in `problems`.
    pub(super) fn from_birth(
        raws: &[MetricRef<'_>],
        timestamp: u64,
        shapes: &mut Shapes,
        problems: &mut Vec<String>,
    ) -> Self {
        let mut told = Vec::with_capacity(raws.len());
        let mut slots = Vec::with_capacity(raws.len());
        let mut details = Vec::with_capacity(raws.len());
        let mut others = Vec::new();
        let mut nulls = BTreeSet::new();
        let mut unreadable = Vec::new();
        for raw in raws {
            work::count(1);
            match birth_metric(raw) {
                Ok((metric, value)) => {
                    let number = if !number::is_number(metric.datatype) {
                        others.push(value);
                        others.len() as u64 - 1
                    } else if let Some(value) = value {
                        number::of_value(&value).unwrap_or_default()
                    } else {
                        nulls.insert(small(told.len()));
                        0
                    };
                    told.push(metric);
                    slots.push(Slot { number, timestamp: raw.timestamp.unwrap_or(timestamp) });
                    details.push(details_of(raw, &Properties::new()));
                }
                Err(problem) => {
                    problems.push(problem);
                    unreadable.push((raw.name, raw.alias));
                }
            }
        }
        let shape = shapes.of(&told, &details, &unreadable);
        problems.extend(shape.doubts.iter().map(|&doubt| doubt.to_owned()));
        let differing = (0..u32::MAX).zip(details).zip(&shape.columns);
        let details = differing.filter(|((_, own), column)| *own != column.details).map(|(own, _)| own).collect();
        Self { shape, slots: slots.into(), others: others.into(), nulls, details, dead_at: None }
    }

    /// Number of metrics.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The current value of a column.
    fn value(&self, index: usize) -> Option<Value> {
        let (column, slot) = (self.shape.columns.get(index)?, self.slots.get(index)?);
        if !number::is_number(column.datatype) {
            return self.others.get(place(slot.number))?.clone();
        }
        if self.nulls.contains(&small(index)) { None } else { number::to_value(column.datatype, slot.number) }
    }

    fn set(&mut self, index: usize, value: Option<&Value>, timestamp: u64) {
        let slot = &mut self.slots[index];
        slot.timestamp = timestamp;
        if !number::is_number(self.shape.columns[index].datatype) {
            if let Some(other) = self.others.get_mut(place(slot.number)) {
                *other = value.cloned();
            }
        } else if let Some(number) = value.and_then(number::of_value) {
            slot.number = number;
            self.nulls.remove(&small(index));
        } else {
            self.nulls.insert(small(index));
        }
    }

    /// A metric by its place in the birth.
    pub(super) fn metric(&self, index: usize) -> Option<Metric> {
        let (column, slot) = (self.shape.columns.get(index)?, self.slots.get(index)?);
        let details = self.details.get(&small(index)).unwrap_or(&column.details);
        Some(Metric {
            name: column.name.clone(),
            datatype: column.datatype,
            value: self.value(index),
            timestamp: Some(slot.timestamp),
            properties: details.properties.clone(),
            metadata: details.metadata.clone(),
            is_historical: details.is_historical,
            is_transient: details.is_transient,
        })
    }

    /// A metric by its name.
    pub(super) fn get(&self, name: &str) -> Option<Metric> {
        self.metric(self.shape.find_name(name, 0)?)
    }

    /// All metrics, in the order of the birth.
    pub(super) fn metrics(&self) -> impl Iterator<Item = Metric> + use<'_> {
        (0..self.len()).filter_map(|index| self.metric(index))
    }

    /// Takes the metrics of a data message over; yields them with names and types. Nothing changes when one of them is unknown. A value that cannot be read is told in
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
            let column = &self.shape.columns[index];
            // Only of a template it matters what it was before.
            let current = if number::is_number(column.datatype) { None } else { self.value(index) };
            let value = match &raw.value {
                None => None,
                Some(value) => match value.resolve(column.datatype, current.as_ref()) {
                    Ok(value) => Some(value),
                    Err(error) => {
                        problems.push(format!("metric {:?}: {error}", column.name));
                        continue;
                    }
                },
            };
            changed.push(self.apply_one(index, raw, value, raw.timestamp.unwrap_or(timestamp)));
        }
        Ok(changed)
    }

    /// The short way of a data message, if it is a plain one: finds its metrics, and changes nothing. None: it has to go the long way.
    pub(super) fn find_plain(&self, bytes: &[u8], limits: &Limits, changes: &mut Vec<Change>) -> Option<PlainHead> {
        changes.clear();
        if !self.details.is_empty() {
            return None;
        }
        let shape = &*self.shape;
        let mut hint = 0;
        plain::walk(bytes, limits, |metric| {
            work::count(1);
            let index = match (metric.name, metric.alias) {
                (Some(name), _) => shape.find_name(name, hint)?,
                (None, alias) => shape.find_alias(alias?)?,
            };
            let column = &shape.columns[index];
            let number = number::of_carrier(column.datatype, &metric.value)?;
            if !column.details.is_plain() {
                return None;
            }
            changes.push(Change { index, number, timestamp: metric.timestamp });
            hint = index + 1;
            Some(())
        })
    }

    /// Takes over what [`Self::find_plain`] found; yields it with names and types.
    pub(super) fn apply_plain(&mut self, changes: &[Change], timestamp: u64) -> Vec<Metric> {
        let Self { shape, slots, nulls, .. } = self;
        let changed = changes.iter().map(|change| {
            let timestamp = change.timestamp.unwrap_or(timestamp);
            let (column, slot) = (&shape.columns[change.index], &mut slots[change.index]);
            slot.number = change.number;
            slot.timestamp = timestamp;
            if !nulls.is_empty() {
                nulls.remove(&small(change.index));
            }
            Metric {
                name: column.name.clone(),
                datatype: column.datatype,
                value: number::to_value(column.datatype, change.number),
                timestamp: Some(timestamp),
                properties: column.details.properties.clone(),
                metadata: None,
                is_historical: false,
                is_transient: false,
            }
        });
        changed.collect()
    }

    /// Takes over a metric of which more than the value may differ from the birth.
    fn apply_one(&mut self, index: usize, raw: &MetricRef<'_>, value: Option<Value>, timestamp: u64) -> Metric {
        let column = &self.shape.columns[index];
        let current = self.details.get(&small(index)).unwrap_or(&column.details);
        let details =
            if raw.is_historical { details_of(raw, &Properties::new()) } else { details_of(raw, &current.properties) };
        let metric = Metric {
            name: column.name.clone(),
            datatype: column.datatype,
            value,
            timestamp: Some(timestamp),
            properties: details.properties.clone(),
            metadata: details.metadata.clone(),
            is_historical: raw.is_historical,
            is_transient: raw.is_transient,
        };
        if !raw.is_historical {
            let is_as_born = details == column.details;
            self.set(index, metric.value.as_ref(), timestamp);
            if is_as_born {
                self.details.remove(&small(index));
            } else {
                self.details.insert(small(index), details);
            }
        }
        metric
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

fn birth_metric<'a>(raw: &MetricRef<'a>) -> Result<(Told<'a>, Option<Value>), String> {
    let Some(name) = raw.name else {
        return Err("a metric of the birth has no name".to_owned());
    };
    let of_metric = |error| format!("metric {name:?}: {error}");
    let datatype = raw.own_datatype().map_err(of_metric)?;
    let value = raw.value.as_ref().map(|value| value.resolve(datatype, None)).transpose().map_err(of_metric)?;
    Ok((Told { name, alias: raw.alias, datatype }, value))
}

#[cfg(test)]
mod tests;
