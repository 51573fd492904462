//! Objects as metrics: what ConfigDB is born with, and how large that is.

use std::sync::Arc;

use configdb_contract::command::device_id;
use configdb_contract::node::Applications;
use configdb_contract::{ConfigNode, RequestResult, entry, names};
use configdb_schema::application::{MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use configdb_schema::known;
use sparkplug::edge_node::NodeUpdate;
use sparkplug::payload::{Dialect, Form, metric_bytes};
use sparkplug::{Metric, Properties, TypedMetrics, Value};
use uuid::Uuid;

use crate::model::{Model, Object};

/// Keys, timestamp and `seq` of a payload, at most.
const PAYLOAD_BYTES: usize = 32;
/// A capture time as long as any until the year 2109.
const SOME_TIME: u64 = 1 << 41;

/// The metrics of the node, without those that belong to the machine.
pub(crate) fn node_metrics(model: &Model, last: Option<&RequestResult>, alert: Option<String>) -> Vec<Metric> {
    let node = ConfigNode {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: Some(model.identity()),
        epoch: model.epoch(),
        timelines: model.timelines().clone(),
        applications: applications(model),
        message_bytes_max: Some(model.limits().message_bytes_max as u64),
        last_request: last.cloned(),
        revision: model.revision(),
        objects: Some(model.object_count() as u64),
        alert,
    };
    node.to_metrics()
}

/// The number of objects as it is told before a turn that gives birth: a birth of the node that falls into the turn must not announce fewer objects than follow.
pub(crate) fn objects_metric(objects: usize) -> Metric {
    Metric::new(names::CONFIG_OBJECTS, objects as u64)
}

fn applications(model: &Model) -> Applications {
    Applications(model.applications().map(|(slug, application)| (slug.clone(), application)).collect())
}

/// What an operator has to do something about.
pub(crate) fn alert_metric(alert: Option<&str>) -> Metric {
    Metric::string(names::CONFIG_ALERT, alert)
}

/// What precedes the data of the first transaction of a run of the process.
pub(crate) fn timelines_metric(model: &Model) -> Metric {
    Metric::new(names::CONFIG_TIMELINES, model.timelines().to_string())
}

/// What follows the data of each turn.
pub(crate) fn revision_metrics(model: &Model) -> Vec<Metric> {
    vec![
        Metric::new(names::CONFIG_APPLICATIONS, applications(model).to_string()),
        Metric::new(names::CONFIG_EPOCH, model.epoch()),
        Metric::new(names::CONFIG_REVISION, model.revision()),
        objects_metric(model.object_count()),
    ]
}

/// The metrics of an object's device: what the object has. An entry that comes makes a birth necessary, one that goes is null until the next birth.
pub(crate) fn object_metrics(model: &Model, uuid: Uuid, object: &Object) -> Vec<Metric> {
    let mut metrics = widest_metrics(model, uuid, object);
    metrics.retain(|metric| metric.value.is_some());
    metrics
}

/// The metrics of a device that had an entry under every application once: its largest birth.
pub(crate) fn widest_metrics(model: &Model, uuid: Uuid, object: &Object) -> Vec<Metric> {
    let mut metrics =
        vec![name_metric(object), class_metric(object), registration_metric(uuid, object), membership_metric(object)];
    metrics.extend(model.applications().map(|(slug, application)| entry_metric(slug, application, object)));
    metrics
}

/// What people call an object.
pub(crate) fn name(object: &Object) -> Option<String> {
    let info = object.entries.get(&known::application::INFO)?;
    let info: serde_json::Value = serde_json::from_str(&info.json).ok()?;
    info.get("name")?.as_str().map(str::to_owned)
}

pub(crate) fn name_metric(object: &Object) -> Metric {
    let described = Properties::described(&["Name of the object, from its entry Info."], true);
    Metric::string(names::OBJECT_NAME, name(object).as_deref()).with_properties(described)
}

pub(crate) fn class_metric(object: &Object) -> Metric {
    let described = Properties::described(&["Primary class of the object."], true);
    Metric::new(names::OBJECT_CLASS, Value::Uuid(object.class.to_string().into())).with_properties(described)
}

pub(crate) fn registration_json(uuid: Uuid, object: &Object) -> String {
    serde_json::to_string(&object.registration(uuid)).expect("UUIDs, a number and truth values have a JSON form")
}

pub(crate) fn membership_json(object: &Object) -> String {
    serde_json::to_string(&object.membership()).expect("sets of UUIDs have a JSON form")
}

pub(crate) fn registration_metric(uuid: Uuid, object: &Object) -> Metric {
    Metric::new(REGISTRATION_SLUG, registration_json(uuid, object))
}

pub(crate) fn membership_metric(object: &Object) -> Metric {
    Metric::new(MEMBERSHIP_SLUG, membership_json(object))
}

pub(crate) fn entry_metric(slug: &Arc<str>, application: Uuid, object: &Object) -> Metric {
    let entry = object.entries.get(&application).map(|entry| entry.published(application));
    entry::to_metric(slug, application, entry.as_ref())
}

/// Bytes of the DBIRTH with these metrics, at most.
pub(crate) fn birth_bytes(metrics: &[Metric]) -> usize {
    PAYLOAD_BYTES
        + metrics
            .iter()
            .map(|m| metric_bytes(&m.clone().at(SOME_TIME), Form::Birth, None, Dialect::Tahu))
            .sum::<usize>()
}

/// Bytes that one more application adds to a birth.
pub(crate) fn null_entry_bytes(slug: &Arc<str>, application: Uuid) -> usize {
    metric_bytes(&entry::to_metric(slug, application, None).at(SOME_TIME), Form::Birth, None, Dialect::Tahu)
}

/// The births of all objects, for a node that knows none of them.
pub(crate) fn everything(model: &Model) -> impl Iterator<Item = NodeUpdate> {
    model.live_objects().map(|(uuid, object)| NodeUpdate::DeviceBirth {
        device: device_id(uuid),
        metrics: object_metrics(model, uuid, object),
    })
}
