//! The birth state: current values of the node and its devices, and what an update changes in them. Knows metrics and the size that their birth has;
//! knows no session, queue or topic.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{UpdateError, speaker};
use crate::heartbeat::NODE_REBIRTH;
use crate::metric::{Metric, Template, Value};
use crate::payload::{self, Dialect, Form};
use crate::seq::BD_SEQ;

/// The command that asks for the values of a device.
pub(super) const DEVICE_REBIRTH: &str = "Device Control/Rebirth";

/// Timestamp, seq, uuid key and length of a payload, at most.
const PAYLOAD_BYTES: usize = 24;
/// The two metrics that the machine adds to an NBIRTH, at most.
const NODE_METRICS_BYTES: usize = 96;
/// A timestamp of six bytes as a varint, as all of them are until the year 2109.
const SOME_TIMESTAMP: u64 = 1 << 41;

/// What sizes depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizing {
    pub aliases: bool,
    pub dialect: Dialect,
    pub uuid_bytes: usize,
    /// What an NBIRTH says of the process.
    pub speaker_bytes: usize,
    pub message_bytes_max: usize,
}

impl Sizing {
    /// Bytes that the metric takes in a birth; an alias is counted with the most bytes that this machine gives it.
    pub(super) fn metric(&self, metric: &Metric) -> usize {
        payload::metric_bytes(metric, Form::Birth, self.aliases.then_some(u64::from(u32::MAX)), self.dialect)
    }

    pub(super) const fn node_overhead(&self) -> usize {
        PAYLOAD_BYTES + NODE_METRICS_BYTES + self.uuid_bytes + self.speaker_bytes
    }

    pub(super) const fn device_overhead(&self) -> usize {
        PAYLOAD_BYTES + self.uuid_bytes
    }

    pub(super) fn device_birth(&self, metrics: &[Metric]) -> usize {
        let size = |metric: &Metric| match metric.timestamp {
            Some(_) => self.metric(metric),
            None => self.metric(&metric.clone().at(SOME_TIMESTAMP)),
        };
        self.device_overhead() + metrics.iter().map(size).sum::<usize>()
    }

    fn check(&self, what: impl FnOnce() -> String, bytes: usize) -> Result<(), UpdateError> {
        if bytes > self.message_bytes_max {
            return Err(UpdateError::TooLarge { what: what(), bytes, max: self.message_bytes_max });
        }
        Ok(())
    }
}

/// One metric of the birth.
#[derive(Debug)]
pub(super) struct Slot {
    pub metric: Metric,
    pub alias: Option<u64>,
    bytes: usize,
    /// The birth of this session holds it, so data may.
    pub announced: bool,
    /// Its value was in no birth yet, and is not kept for history either.
    unpublished: bool,
}

/// A changed metric, ready for a data message.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub metric: Metric,
    pub alias: Option<u64>,
    /// Properties changed, too.
    pub properties: bool,
}

/// The node or a device.
#[derive(Debug, Default)]
pub(super) struct Entity {
    pub slots: Vec<Slot>,
    by_name: BTreeMap<Arc<str>, usize>,
    bytes: usize,
}

/// What a set of new values changes; nothing has happened yet.
#[derive(Debug)]
pub(super) struct Change {
    /// Slot, new metric, its size, whether its properties differ.
    changed: Vec<(usize, Metric, usize, bool)>,
    added: Vec<(Metric, usize)>,
}

impl Change {
    /// Whether only a birth can publish it: a new name, or another template definition
    /// (tck-id-payloads-template-definition-nbirth-only).
    pub(super) fn needs_birth(&self) -> bool {
        !self.added.is_empty() || self.changed.iter().any(|(_, metric, ..)| definition(metric).is_some())
    }
}

impl Entity {
    pub(super) fn get(&self, name: &str) -> Option<&Slot> {
        self.by_name.get(name).map(|&i| &self.slots[i])
    }

    /// Gives new values the properties and the metadata of the current ones, where they have none of their own.
    pub(super) fn describe(&self, metrics: &mut [Metric]) {
        for metric in metrics {
            let Some(slot) = self.get(&metric.name) else { continue };
            metric.properties = slot.metric.properties.overlaid(&metric.properties);
            if metric.metadata.is_none() {
                metric.metadata.clone_from(&slot.metric.metadata);
            }
        }
    }

    /// Compares new values with the current ones and checks that the birth stays within its limit.
    pub(super) fn compare(
        &self,
        metrics: Vec<Metric>,
        what: impl FnOnce() -> String,
        overhead: usize,
        sizing: &Sizing,
    ) -> Result<Change, UpdateError> {
        let mut change = Change { changed: Vec::new(), added: Vec::new() };
        let mut bytes = overhead + self.bytes;
        for metric in metrics {
            let Some(&index) = self.by_name.get(&metric.name) else {
                let size = sizing.metric(&metric);
                bytes += size;
                change.added.push((metric, size));
                continue;
            };
            let slot = &self.slots[index];
            if slot.metric.datatype != metric.datatype {
                return Err(UpdateError::Datatype {
                    name: metric.name.to_string(),
                    is: slot.metric.datatype,
                    got: metric.datatype,
                });
            }
            // tck-id-principles-rbe-recommended, tck-id-operational-behavior-data-publish-nbirth-change,
            // tck-id-operational-behavior-data-publish-dbirth-change
            if slot.metric.says_the_same_as(&metric) {
                continue;
            }
            let size = sizing.metric(&metric);
            bytes = bytes - slot.bytes + size;
            let properties = slot.metric.properties != metric.properties;
            change.changed.push((index, metric, size, properties));
        }
        sizing.check(what, bytes)?;
        Ok(change)
    }

    /// Values that a data message cannot publish, because no birth of this session holds their names. The first are those that the change replaces and that were never published.
    /// The second are those that it brings. The next birth publishes what it adds.
    pub(super) fn unsayable(&self, change: &Change) -> [Vec<Metric>; 2] {
        let slots = || change.changed.iter().map(|(index, metric, ..)| (&self.slots[*index], metric));
        let unannounced = || slots().filter(|(slot, _)| !slot.announced);
        let replaced = unannounced().filter(|(slot, _)| slot.unpublished).map(|(slot, _)| slot.metric.clone());
        [replaced.collect(), unannounced().map(|(_, metric)| metric.clone()).collect()]
    }

    /// Makes the change. Yields the samples of the metrics that the birth of this session holds already.
    pub(super) fn apply(&mut self, change: Change, mut alias: impl FnMut(&str) -> Option<u64>) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (index, metric, bytes, properties) in change.changed {
            let slot = &mut self.slots[index];
            self.bytes = self.bytes - slot.bytes + bytes;
            slot.bytes = bytes;
            slot.metric = metric;
            slot.unpublished = false;
            slot.announced &= definition(&slot.metric).is_none();
            if slot.announced {
                samples.push(Sample { metric: slot.metric.clone(), alias: slot.alias, properties });
            }
        }
        for (metric, bytes) in change.added {
            let name = metric.name.clone();
            self.bytes += bytes;
            self.by_name.insert(name.clone(), self.slots.len());
            self.slots.push(Slot { alias: alias(&name), metric, bytes, announced: false, unpublished: true });
        }
        samples
    }

    /// Whether it has exactly these names and types.
    pub(super) fn has_shape_of(&self, metrics: &[Metric]) -> bool {
        metrics.len() == self.slots.len()
            && metrics.iter().all(|m| self.get(&m.name).is_some_and(|slot| slot.metric.datatype == m.datatype))
    }

    /// The birth went out, or the session that held it is over.
    pub(super) fn set_announced(&mut self, announced: bool) {
        for slot in &mut self.slots {
            slot.announced = announced;
            slot.unpublished &= !announced;
        }
    }
}

/// Rules for metrics that come from the application: names, types that fit, timestamps filled in.
pub(super) fn admit(metrics: &mut [Metric], of_node: bool, wall: u64) -> Result<(), UpdateError> {
    let refuse = |metric: &Metric, rule| Err(UpdateError::Name { name: metric.name.to_string(), rule });
    for metric in metrics.iter_mut() {
        if metric.name.is_empty() {
            return refuse(metric, "it is empty");
        }
        if of_node
            && (&*metric.name == BD_SEQ || &*metric.name == NODE_REBIRTH || metric.name.starts_with(speaker::PREFIX))
        {
            return refuse(metric, "the edge node itself owns it");
        }
        if let Err(rule) = metric.check() {
            return refuse(metric, rule);
        }
        // tck-id-payloads-name-birth-data-requirement
        metric.timestamp.get_or_insert(wall);
    }
    let mut names: Vec<&Arc<str>> = metrics.iter().map(|m| &m.name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(UpdateError::Name { name: pair[0].to_string(), rule: "it occurs twice in one update" }),
        None => Ok(()),
    }
}

/// The template that the metric defines.
fn definition(metric: &Metric) -> Option<&Template> {
    template(metric).filter(|template| template.is_definition)
}

fn template(metric: &Metric) -> Option<&Template> {
    match &metric.value {
        Some(Value::Template(template)) => Some(template),
        _ => None,
    }
}

/// Template definitions are metrics of the node; an instance has the members of its definition, all of them, and no other parameters
/// (tck-id-topics-nbirth-templates, tck-id-payloads-template-definition-nbirth, tck-id-payloads-template-definition-members,
/// tck-id-payloads-template-definition-parameters, tck-id-payloads-template-instance-members,
/// tck-id-payloads-template-instance-members-birth).
pub(super) fn admit_templates(node: &Entity, metrics: &[Metric], of_node: bool) -> Result<(), UpdateError> {
    for metric in metrics {
        let refuse = |rule| Err(UpdateError::Name { name: metric.name.to_string(), rule });
        let Some(instance) = template(metric) else { continue };
        let Some(reference) = instance.template_ref.as_deref() else {
            if of_node {
                continue;
            }
            return refuse("a template definition is a metric of the node, not of a device");
        };
        let of_update = metrics.iter().find(|m| of_node && &*m.name == reference).and_then(definition);
        let Some(definition) = of_update.or_else(|| node.get(reference).and_then(|slot| definition(&slot.metric)))
        else {
            return refuse("the node has no metric that defines its template");
        };
        let is_defined = |m: &Metric| definition.metrics.iter().any(|d| d.name == m.name && d.datatype == m.datatype);
        if instance.metrics.len() != definition.metrics.len() || !instance.metrics.iter().all(is_defined) {
            return refuse("a template instance has exactly the members of its definition");
        }
        if !instance
            .parameters
            .iter()
            .all(|(name, t, _)| definition.parameters.iter().any(|(n, d, _)| n == name && d == t))
        {
            return refuse("a template instance has no parameters beyond those of its definition");
        }
    }
    Ok(())
}

/// Historical values belong to [`super::NodeUpdate::Historical`].
pub(super) fn admit_current(metrics: &[Metric]) -> Result<(), UpdateError> {
    match metrics.iter().find(|m| m.is_historical) {
        Some(metric) => Err(UpdateError::Name {
            name: metric.name.to_string(),
            rule: "a historical value is not a current value; send it as Historical",
        }),
        None => Ok(()),
    }
}
