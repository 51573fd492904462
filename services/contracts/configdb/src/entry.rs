//! Entries and their history, to and from metrics. The JSON stays text until a caller parses it.

use std::sync::Arc;

use configdb_schema::Document;
use serde_json::Value;
use sparkplug::{DataType, Metric, Properties};
use uuid::Uuid;

use crate::names;

/// An entry: what one object holds under one application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The application.
    pub application: Uuid,
    /// The JSON, as text.
    pub json: Arc<str>,
    /// Differs after every change.
    pub etag: Uuid,
    /// Revision of the transaction that wrote it.
    pub revision: u64,
}

/// Why an entry cannot be read as what it should be.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// Not JSON.
    #[error("the entry is not JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// JSON, but not of this application.
    #[error("the entry is not of type {slug}: {source}")]
    Shape {
        /// The application it was read as.
        slug: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl Entry {
    /// The JSON.
    ///
    /// # Errors
    /// [`EntryError::Json`].
    pub fn value(&self) -> Result<Value, EntryError> {
        serde_json::from_str(&self.json).map_err(EntryError::Json)
    }

    /// The document.
    ///
    /// # Errors
    /// [`EntryError::Shape`] says what does not fit `T`.
    pub fn parse<T: Document>(&self) -> Result<T, EntryError> {
        serde_json::from_str(&self.json).map_err(|source| EntryError::Shape { slug: T::slug(), source })
    }
}

/// The metric that carries an entry, or its absence.
#[must_use]
pub fn to_metric(slug: &Arc<str>, application: Uuid, entry: Option<&Entry>) -> Metric {
    let properties = Properties::new().with(names::APPLICATION, application.to_string());
    match entry {
        Some(entry) => Metric::new(slug.clone(), entry.json.clone()).with_properties(
            properties.with(names::ETAG, entry.etag.to_string()).with(names::REVISION, entry.revision),
        ),
        None => Metric::null(slug.clone(), DataType::String).with_properties(properties),
    }
}

/// The application of a metric that carries an entry or its absence; None for every other metric.
#[must_use]
pub fn application_of(metric: &Metric) -> Option<Uuid> {
    property_uuid(metric, names::APPLICATION)
}

/// The entry that a metric carries; Ok(None) is the absence of one.
///
/// # Errors
/// What is missing in the metric.
pub fn from_metric(metric: &Metric) -> Result<Option<Entry>, String> {
    let missing = |what: &str| format!("metric {}: property {what} is missing or malformed", metric.name);
    if metric.value.is_none() {
        return Ok(None);
    }
    Ok(Some(Entry {
        application: application_of(metric).ok_or_else(|| missing(names::APPLICATION))?,
        json: text_of(metric).ok_or_else(|| format!("metric {}: the value is not a String", metric.name))?,
        etag: property_uuid(metric, names::ETAG).ok_or_else(|| missing(names::ETAG))?,
        revision: property_u64(metric, names::REVISION).ok_or_else(|| missing(names::REVISION))?,
    }))
}

/// A change of the past, as a replay brings it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEntry {
    /// The object.
    pub object: Uuid,
    /// Slug of the application, or [`configdb_schema::application::REGISTRATION_SLUG`] / [`configdb_schema::application::MEMBERSHIP_SLUG`].
    pub slug: Arc<str>,
    /// The JSON after the change; None: the entry was deleted.
    pub json: Option<Arc<str>>,
    /// ETag after the change; None: the entry was deleted, or it is not an entry.
    pub etag: Option<Uuid>,
    /// Revision of the transaction.
    pub revision: u64,
    /// UTC ms of the transaction.
    pub time: u64,
    /// Who wrote.
    pub writer: Arc<str>,
    /// Request that wrote.
    pub request: Arc<str>,
}

impl HistoryEntry {
    /// The historical metric of the object's device.
    #[must_use]
    pub fn to_metric(&self) -> Metric {
        let mut properties = Properties::new().with(names::REVISION, self.revision);
        if let Some(etag) = self.etag {
            properties = properties.with(names::ETAG, etag.to_string());
        }
        let properties = properties.with(names::WRITER, self.writer.clone()).with(names::REQUEST, self.request.clone());
        Metric::string(self.slug.clone(), self.json.as_deref()).at(self.time).with_properties(properties).historical()
    }

    /// From a historical metric.
    ///
    /// # Errors
    /// What is missing in the metric.
    pub fn from_metric(object: Uuid, metric: &Metric) -> Result<Self, String> {
        let missing = |what: &str| format!("historical metric {}: {what} is missing or malformed", metric.name);
        Ok(Self {
            object,
            slug: metric.name.clone(),
            json: text_of(metric),
            etag: property_uuid(metric, names::ETAG),
            revision: property_u64(metric, names::REVISION).ok_or_else(|| missing(names::REVISION))?,
            time: metric.timestamp.ok_or_else(|| missing("timestamp"))?,
            writer: property_text(metric, names::WRITER).ok_or_else(|| missing(names::WRITER))?.into(),
            request: property_text(metric, names::REQUEST).ok_or_else(|| missing(names::REQUEST))?.into(),
        })
    }
}

/// The shared text of a String or Text value.
pub(crate) fn text_of(metric: &Metric) -> Option<Arc<str>> {
    match metric.value.as_ref()? {
        sparkplug::Value::String(text) | sparkplug::Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

fn property_text<'a>(metric: &'a Metric, key: &str) -> Option<&'a str> {
    metric.properties.get(key)?.as_str()
}

fn property_uuid(metric: &Metric, key: &str) -> Option<Uuid> {
    property_text(metric, key)?.parse().ok()
}

fn property_u64(metric: &Metric, key: &str) -> Option<u64> {
    metric.properties.get(key)?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const APPLICATION: Uuid = configdb_schema::known::application::INFO;

    fn entry() -> Entry {
        Entry { application: APPLICATION, json: r#"{"name":"x"}"#.into(), etag: Uuid::from_u128(7), revision: 12 }
    }

    #[test]
    fn an_entry_survives_its_metric_and_so_does_its_absence() {
        let slug: Arc<str> = "Info".into();
        let metric = to_metric(&slug, APPLICATION, Some(&entry()));
        assert_eq!(from_metric(&metric), Ok(Some(entry())));
        let none = to_metric(&slug, APPLICATION, None);
        assert_eq!((from_metric(&none), application_of(&none)), (Ok(None), Some(APPLICATION)));
        assert_eq!(none.datatype, DataType::String);
    }

    #[test]
    fn an_entry_without_its_etag_is_refused_by_name() {
        let mut metric = to_metric(&"Info".into(), APPLICATION, Some(&entry()));
        metric.properties = Properties::new().with(names::APPLICATION, APPLICATION.to_string());
        assert_eq!(from_metric(&metric), Err("metric Info: property ETag is missing or malformed".to_owned()));
    }

    #[test]
    fn history_survives_its_metric() {
        let mut history = HistoryEntry {
            object: Uuid::from_u128(1),
            slug: "Info".into(),
            json: Some("1".into()),
            etag: Some(Uuid::from_u128(7)),
            revision: 3,
            time: 99,
            writer: "me".into(),
            request: "r".into(),
        };
        assert!(history.to_metric().is_historical);
        assert_eq!(HistoryEntry::from_metric(history.object, &history.to_metric()), Ok(history.clone()));
        (history.json, history.etag) = (None, None);
        assert_eq!(HistoryEntry::from_metric(history.object, &history.to_metric()), Ok(history));
    }

    #[test]
    fn a_document_of_another_shape_is_refused_by_slug() {
        use configdb_schema::document::{EdgeCluster, Info};
        assert_eq!(entry().parse::<Info>().unwrap().name, "x");
        let error = entry().parse::<EdgeCluster>().unwrap_err().to_string();
        assert!(error.starts_with("the entry is not of type EdgeCluster: missing field `namespace`"), "{error}");
    }
}
