//! Replicas of the metrics of edge nodes and devices: the shape of their birth, and current values.
//!
//! Knows what a birth and a data message mean for a replica. Does not know order, time-outs or requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::shape::{Details, Shape, Shapes, Told};
use super::work;
use crate::metric::{Metric, Properties, Value};
use crate::payload::MetricRef;

/// Metrics of a node or a device as of its birth, with current values.
#[derive(Debug)]
pub(super) struct Replica {
    shape: Arc<Shape>,
    /// One for each column of the shape.
    slots: Box<[Slot]>,
    /// Of columns whose details are not those of the shape.
    details: BTreeMap<u32, Details>,
    /// Since when it is dead.
    pub dead_at: Option<u64>,
}

#[derive(Debug)]
struct Slot {
    value: Option<Value>,
    timestamp: u64,
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
        let mut unreadable = Vec::new();
        for raw in raws {
            work::count(1);
            match birth_metric(raw) {
                Ok((metric, value)) => {
                    told.push(metric);
                    slots.push(Slot { value, timestamp: raw.timestamp.unwrap_or(timestamp) });
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
        Self { shape, slots: slots.into(), details, dead_at: None }
    }

    /// Number of metrics.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// A metric by its place in the birth.
    pub(super) fn metric(&self, index: usize) -> Option<Metric> {
        let (column, slot) = (self.shape.columns.get(index)?, self.slots.get(index)?);
        let details = self.details.get(&small(index)).unwrap_or(&column.details);
        Some(Metric {
            name: column.name.clone(),
            datatype: column.datatype,
            value: slot.value.clone(),
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
            let (column, slot) = (&self.shape.columns[index], &mut self.slots[index]);
            let value = match &raw.value {
                None => None,
                Some(value) => match value.resolve(column.datatype, slot.value.as_ref()) {
                    Ok(value) => Some(value),
                    Err(error) => {
                        problems.push(format!("metric {:?}: {error}", column.name));
                        continue;
                    }
                },
            };
            let timestamp = raw.timestamp.unwrap_or(timestamp);
            if self.details.is_empty() && column.details.is_plain() && is_plain(raw) {
                *slot = Slot { value: value.clone(), timestamp };
                changed.push(Metric {
                    name: column.name.clone(),
                    datatype: column.datatype,
                    value,
                    timestamp: Some(timestamp),
                    properties: column.details.properties.clone(),
                    metadata: None,
                    is_historical: false,
                    is_transient: false,
                });
            } else {
                changed.push(self.apply_details(index, raw, value, timestamp));
            }
        }
        Ok(changed)
    }

    /// Takes over a metric of which more than the value may differ from the birth.
    fn apply_details(&mut self, index: usize, raw: &MetricRef<'_>, value: Option<Value>, timestamp: u64) -> Metric {
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
            self.slots[index] = Slot { value: metric.value.clone(), timestamp };
            if details == column.details {
                self.details.remove(&small(index));
            } else {
                self.details.insert(small(index), details);
            }
        }
        metric
    }
}

/// Whether a message says nothing about a metric but its value.
fn is_plain(raw: &MetricRef<'_>) -> bool {
    raw.properties.is_none() && raw.metadata.is_none() && !raw.is_historical && !raw.is_transient
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
