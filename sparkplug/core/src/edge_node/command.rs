//! NCMD and DCMD: bytes -> wanted values with names and types.

use std::sync::Arc;

use super::birth::{DEVICE_REBIRTH, Entity};
use crate::heartbeat::NODE_REBIRTH;
use crate::metric::{DataType, Metric};
use crate::payload::{self, Limits, RawMetric, WireValue};

/// A command that could be read.
#[derive(Debug)]
pub(super) struct Command {
    /// `Node Control/Rebirth` or `Device Control/Rebirth` is among the metrics, with value true.
    pub rebirth: bool,
    /// It is among the metrics, with whatever value, and was left out of them.
    pub rebirth_named: bool,
    /// The other metrics, or why one of them makes no sense. A command is taken whole or not at all, the request for rebirth excepted.
    pub metrics: Result<Vec<Metric>, String>,
    pub timestamp: Option<u64>,
}

/// `entity`: whose command it is, if it exists; it gives the names of aliases, and the datatypes.
pub(super) fn read(entity: Option<&Entity>, of_device: bool, bytes: &[u8], limits: &Limits) -> Result<Command, String> {
    let payload = payload::decode(bytes, limits).map_err(|e| e.to_string())?;
    let rebirth_name = if of_device { DEVICE_REBIRTH } else { NODE_REBIRTH };
    let owned = of_device && entity.is_some_and(|e| e.get(DEVICE_REBIRTH).is_some());
    let is_rebirth = |raw: &RawMetric| raw.name.as_deref() == Some(rebirth_name);
    let rebirth = payload.metrics.iter().any(|raw| is_rebirth(raw) && raw.value == Some(WireValue::Boolean(true)));
    let rebirth_named = !owned && payload.metrics.iter().any(is_rebirth);
    let aliases = Aliases::new(entity, &payload.metrics);
    let others = payload.metrics.into_iter().filter(|raw| owned || !is_rebirth(raw));
    let metrics = others.map(|raw| resolve(entity, &aliases, raw)).collect();
    Ok(Command { rebirth, rebirth_named, metrics, timestamp: payload.timestamp })
}

/// Names by alias, made only for commands that use aliases.
struct Aliases(Vec<(u64, Arc<str>)>);

impl Aliases {
    fn new(entity: Option<&Entity>, metrics: &[RawMetric]) -> Self {
        let used = metrics.iter().any(|raw| raw.name.is_none() && raw.alias.is_some());
        let slots = entity.filter(|_| used).map_or(&[][..], |entity| &entity.slots);
        let mut names: Vec<_> = slots.iter().filter_map(|slot| Some((slot.alias?, slot.metric.name.clone()))).collect();
        names.sort_unstable_by_key(|(alias, _)| *alias);
        Self(names)
    }

    fn name(&self, alias: u64) -> Option<Arc<str>> {
        self.0.binary_search_by_key(&alias, |(alias, _)| *alias).ok().map(|i| self.0[i].1.clone())
    }
}

fn resolve(entity: Option<&Entity>, aliases: &Aliases, raw: RawMetric) -> Result<Metric, String> {
    let name = match (&raw.name, raw.alias) {
        (Some(name), _) => name.clone(),
        (None, Some(alias)) => aliases.name(alias).ok_or_else(|| format!("alias {alias} is not in the birth"))?,
        (None, None) => return Err("a metric has neither name nor alias".to_owned()),
    };
    let known = entity.and_then(|e| e.get(&name));
    let datatype = match known {
        Some(slot) => slot.metric.datatype,
        // A null without a known datatype is still a null.
        None if raw.value.is_none() && raw.datatype.is_none() => DataType::String,
        None => raw.own_datatype().map_err(|e| format!("metric {name:?}: {e}"))?,
    };
    let current = known.and_then(|slot| slot.metric.value.as_ref());
    // tck-id-operational-behavior-data-commands-ncmd-metric-value, tck-id-operational-behavior-data-commands-dcmd-metric-value
    raw.resolve(name.clone(), datatype, current).map_err(|e| format!("metric {name:?}: {e}"))
}
