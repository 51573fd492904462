//! What an action would do, shown before it is sent: the requests that it comes to, each with what is there at present. Pure.

use configdb_contract::{Mode, WriteRequest};
use fleet_view::Fleet;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::action::{MetricCommand, Plan};

/// Of a new token: its hash is of a text that is made when the action is sent.
const HASH: &str = "hash";

/// One thing that an action does.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// What is done.
    pub change: StepChange,
    /// What it is done to, for people: the name of an object, or an Edge Node.
    pub subject: String,
    /// UUID of the object; None: it is done to an Edge Node.
    pub object: Option<Uuid>,
    /// Slug of the application of an entry, or name of a metric; None: the whole object or node.
    pub name: Option<String>,
    /// What is there at present; None: nothing is, or it is not known.
    pub before: Option<Value>,
    /// What is there afterwards; None: nothing is.
    pub after: Option<Value>,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepChange {
    /// An object comes.
    CreateObject,
    /// An object goes, or its registration or relations change.
    ChangeObject,
    /// An entry is written.
    Write,
    /// An entry is deleted.
    Delete,
    /// A metric is written by a command.
    Command,
    /// An Edge Node is asked for its birth.
    AskRebirth,
    /// ConfigDB is asked for changes of the past.
    ReadHistory,
}

/// What a plan does, in this order.
#[must_use]
pub(crate) fn steps(plan: &Plan, fleet: &Fleet) -> Vec<Step> {
    let of_node =
        |change, node: String| Step { change, subject: node, object: None, name: None, before: None, after: None };
    match plan {
        Plan::Rebirth(node) => vec![of_node(StepChange::AskRebirth, node.to_string())],
        Plan::Replay(replay) => {
            let subject = fleet.name_of(replay.object);
            let step = of_node(StepChange::ReadHistory, subject);
            vec![Step { object: Some(replay.object), name: replay.slug.clone(), ..step }]
        }
        Plan::Command(MetricCommand { node, device, metric, .. }) => {
            let device = device.as_ref().map_or_else(String::new, |device| format!("/{device}"));
            let after = metric.value.as_ref().map_or(Value::Null, fleet_view::explorer::to_json);
            let step = of_node(StepChange::Command, format!("{node}{device}"));
            vec![Step { name: Some(metric.name.to_string()), after: Some(after), ..step }]
        }
        Plan::Writes(writes) => writes.iter().flat_map(|write| written(write, fleet)).collect(),
    }
}

fn written(write: &WriteRequest, fleet: &Fleet) -> Vec<Step> {
    let is_new = fleet.config.object(write.object).is_none();
    let subject = if is_new { new_name(write) } else { fleet.name_of(write.object) };
    let step = |change, name: Option<&String>, before, after| Step {
        change,
        subject: subject.clone(),
        object: Some(write.object),
        name: name.cloned(),
        before,
        after,
    };
    let mut steps = Vec::new();
    if write.registration.is_some() || write.membership.is_some() {
        let change = if is_new { StepChange::CreateObject } else { StepChange::ChangeObject };
        steps.push(step(change, None, None, None));
    }
    for (slug, value) in &write.entries {
        let entry = fleet.config.entry(write.object, slug);
        let before: Option<Value> = entry.and_then(|entry| serde_json::from_str(&entry.json).ok());
        steps.push(match value {
            None => step(StepChange::Delete, Some(slug), before, None),
            Some(value) => {
                let mut after = match write.mode {
                    Mode::Put => value.clone(),
                    Mode::Patch => {
                        let mut merged = before.clone().unwrap_or_default();
                        json_patch::merge(&mut merged, value);
                        merged
                    }
                };
                without_hash(&mut after);
                step(StepChange::Write, Some(slug), before, Some(after))
            }
        });
    }
    steps
}

/// What an object is called that does not exist yet: by any of its entries, or its UUID.
fn new_name(write: &WriteRequest) -> String {
    let name = |entry: &Option<Value>| Some(entry.as_ref()?.get("name")?.as_str()?.to_owned());
    write.entries.values().find_map(name).unwrap_or_else(|| write.object.to_string())
}

fn without_hash(entry: &mut Value) {
    if let Some(fields) = entry.as_object_mut() {
        fields.remove(HASH);
    }
}

#[cfg(test)]
mod tests;
