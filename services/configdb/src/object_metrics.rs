//! What an object has, each as a metric, and how many bytes of a birth that takes.

use std::sync::Arc;

use configdb_contract::{entry, names};
use configdb_schema::application::{MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use configdb_schema::known;
use sparkplug::payload::{Dialect, Form, metric_bytes};
use sparkplug::{Metric, Properties, Value};
use uuid::Uuid;

use crate::object::Object;

/// Keys, timestamp and `seq` of a payload, at most.
const PAYLOAD_BYTES: usize = 32;
/// A capture time as long as any until the year 2109.
const SOME_TIME: u64 = 1 << 41;

/// The metrics of a device that had an entry under every one of these applications once: its largest birth.
pub(crate) fn widest_metrics<'a>(
    applications: impl Iterator<Item = (&'a Arc<str>, Uuid)>,
    uuid: Uuid,
    object: &Object,
) -> Vec<Metric> {
    let mut metrics =
        vec![name_metric(object), class_metric(object), registration_metric(uuid, object), membership_metric(object)];
    metrics.extend(applications.map(|(slug, application)| entry_metric(slug, application, object)));
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
