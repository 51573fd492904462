//! Objects as metrics: what ConfigDB is born with, and how large that is.

use std::sync::Arc;

use configdb_contract::command::device_id;
use configdb_contract::{ConfigNode, RequestResult, entry, names};
use configdb_schema::application::{MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use sparkplug::edge_node::NodeUpdate;
use sparkplug::payload::{Dialect, Form, metric_bytes};
use sparkplug::{Metric, TypedMetrics};
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
        Metric::new(names::CONFIG_EPOCH, model.epoch()),
        Metric::new(names::CONFIG_REVISION, model.revision()),
        objects_metric(model.object_count()),
    ]
}

/// The metrics of an object's device.
pub(crate) fn object_metrics(model: &Model, uuid: Uuid, object: &Object) -> Vec<Metric> {
    let mut metrics = vec![registration_metric(uuid, object), membership_metric(object)];
    metrics.extend(model.applications().map(|(slug, application)| entry_metric(slug, application, object)));
    metrics
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

/// The births of all objects in another shape than before, without the death of any.
pub(crate) fn everything_anew(model: &Model) -> NodeUpdate {
    let births = model.live_objects().map(|(uuid, object)| (device_id(uuid), object_metrics(model, uuid, object)));
    NodeUpdate::Reshape { devices: births.collect() }
}
