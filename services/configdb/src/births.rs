//! Objects as metrics: what ConfigDB is born with, and how large that is.

use configdb_contract::command::device_id;
use configdb_contract::node::Applications;
use configdb_contract::{ConfigNode, RequestResult, names};
use sparkplug::edge_node::NodeUpdate;
use sparkplug::{Metric, TypedMetrics};
use uuid::Uuid;

use crate::model::Model;
use crate::object::Object;
use crate::object_metrics::widest_metrics;

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

/// The number of objects, as it is published before a turn that gives birth. A birth of the node that falls into the turn must not announce fewer objects than follow.
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

/// What precedes the data of the first transaction of a session.
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
    let mut metrics = widest_metrics(model.applications(), uuid, object);
    metrics.retain(|metric| metric.value.is_some());
    metrics
}

/// The births of all objects, for a node that knows none of them.
pub(crate) fn everything(model: &Model) -> impl Iterator<Item = NodeUpdate> {
    model.live_objects().map(|(uuid, object)| NodeUpdate::DeviceBirth {
        device: device_id(uuid),
        metrics: object_metrics(model, uuid, object),
    })
}
