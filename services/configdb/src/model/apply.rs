//! One request, one transaction: validate everything, then change everything.

use std::sync::Arc;

use configdb_contract::{RegistrationChange, WriteRequest, names};
use configdb_schema::application::{MEMBERSHIP_SLUG, REGISTRATION_SLUG};
use configdb_schema::known;
use sparkplug::Metric;
use uuid::Uuid;

use super::Model;
use super::draft::Draft;
use crate::object_metrics;
use crate::store::{EntryRow, HistoryRow, Transaction};

/// Who writes, and with which request.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    pub writer: &'a str,
    /// What comes with the program, and not from a person or service.
    pub builtin: bool,
    pub time: u64,
}

/// Why a request is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Refusal {
    /// The metric at fault, with the place in its value: `EdgeCluster/name`.
    pub field: String,
    /// The rule that it breaks and what to do.
    pub reason: String,
}

impl Refusal {
    pub(super) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

/// What must be published to readers.
#[derive(Debug, Clone, PartialEq)]
pub enum Publication {
    Nothing,
    /// The object is born.
    Born,
    /// The object is gone.
    Died,
    /// These metrics of the object have other values.
    Changed(Vec<Metric>),
}

/// A request that was carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// What must be stored; None if everything was as requested already.
    pub transaction: Option<Transaction>,
    /// What must be published to readers.
    pub publication: Publication,
    /// The object exists that did not before.
    pub is_birth: bool,
    /// ETags of the entries named in the request that exist after it, by slug.
    pub etags: Vec<(String, Uuid)>,
}

impl Model {
    /// Carries a request out, or refuses it and changes nothing. Refused or not, the model is consistent afterwards.
    ///
    /// # Errors
    /// [`Refusal`] names the metric and the rule.
    pub fn apply(&mut self, request: &WriteRequest, origin: Origin<'_>) -> Result<Applied, Refusal> {
        self.check_expectations(request)?;
        let deletes = matches!(request.registration, Some(RegistrationChange::Delete));
        let draft = if deletes { self.draft_of_deletion(request)? } else { self.draft_of_write(request, origin)? };
        let etags = request
            .entries
            .keys()
            .filter_map(|name| {
                let application = self.application(name)?;
                Some((self.name_of(application), draft.object.entries.get(&application)?.etag))
            })
            .collect();
        if !draft.is_changed() {
            return Ok(Applied { transaction: None, publication: Publication::Nothing, is_birth: false, etags });
        }
        self.check_sizes(&draft)?;
        let publication = self.publication(&draft);
        let transaction = self.transaction(&draft, request, origin);
        let is_birth = draft.is_born();
        self.install(draft);
        Ok(Applied { transaction: Some(transaction), publication, is_birth, etags })
    }

    fn check_expectations(&self, request: &WriteRequest) -> Result<(), Refusal> {
        if let Some(state) = request.if_contains.filter(|state| !self.timelines.contain(*state, self.revision)) {
            let reason = format!(
                "is {state}, which this store does not contain: it was restored to an older state since; read what it holds, and decide again"
            );
            return Err(Refusal::new(names::REQUEST_IF_CONTAINS, reason));
        }
        for (name, expected) in &request.if_match {
            let application = self.application_named(name)?;
            let actual = self.live_object(request.object).and_then(|o| o.entries.get(&application)).map(|e| e.etag);
            if actual != *expected {
                let text =
                    |etag: Option<Uuid>| etag.map_or_else(|| "no entry".to_owned(), |etag| format!("ETag {etag}"));
                let reason = format!(
                    "there is {}, but the request expects {}; read the entry again and decide again",
                    text(actual),
                    text(*expected)
                );
                return Err(Refusal::new(name, reason));
            }
        }
        Ok(())
    }

    pub(super) fn application_named(&self, name: &str) -> Result<Uuid, Refusal> {
        self.application(name).ok_or_else(|| {
            let known: Vec<&str> = self.slugs.keys().take(30).map(|slug| &**slug).collect();
            Refusal::new(name, format!("no application has this name; known are {}", known.join(", ")))
        })
    }

    /// No birth may become too large: neither the object's nor, through another application, anyone's.
    fn check_sizes(&self, draft: &Draft) -> Result<(), Refusal> {
        if draft.object.deleted {
            return Ok(());
        }
        let max = self.limits.message_bytes_max;
        if draft.is_born() && self.live >= self.limits.objects_max {
            let reason = format!("there are {} objects already; no more are allowed", self.live);
            return Err(Refusal::new(REGISTRATION_SLUG, reason));
        }
        let bytes = self.birth_bytes(draft.uuid, &draft.object);
        let grown = match &draft.application {
            Some(Some(slug)) => object_metrics::null_entry_bytes(slug, draft.uuid),
            _ => 0,
        };
        if bytes + grown > max {
            let field = draft.changed.first().map_or_else(|| MEMBERSHIP_SLUG.to_owned(), |a| self.name_of(*a));
            let reason = format!(
                "the object would take {} bytes in one message; at most {max} are allowed, store less in it",
                bytes + grown
            );
            return Err(Refusal::new(field, reason));
        }
        if grown > 0 {
            if self.applications.len() >= self.limits.applications_max {
                let reason = format!("there are {} applications already; no more are allowed", self.applications.len());
                return Err(Refusal::new(REGISTRATION_SLUG, reason));
            }
            let full = self.live_objects().find(|(uuid, object)| self.birth_bytes(*uuid, object) + grown > max);
            if let Some((uuid, _)) = full {
                let reason =
                    format!("one more application would make object {uuid} larger than the {max} bytes of a message");
                return Err(Refusal::new(REGISTRATION_SLUG, reason));
            }
        }
        Ok(())
    }

    fn publication(&self, draft: &Draft) -> Publication {
        match (draft.was_live(), !draft.object.deleted) {
            (false, true) => Publication::Born,
            (true, false) => Publication::Died,
            (false, false) => Publication::Nothing,
            (true, true) => Publication::Changed(self.changed_metrics(draft)),
        }
    }

    fn changed_metrics(&self, draft: &Draft) -> Vec<Metric> {
        let mut metrics = Vec::new();
        let name = draft.before.as_ref().and_then(object_metrics::name);
        if name != object_metrics::name(&draft.object) {
            metrics.push(object_metrics::name_metric(&draft.object));
        }
        if draft.registration_changed() {
            metrics.push(object_metrics::class_metric(&draft.object));
            metrics.push(object_metrics::registration_metric(draft.uuid, &draft.object));
        }
        if draft.membership_changed() {
            metrics.push(object_metrics::membership_metric(&draft.object));
        }
        for application in &draft.changed {
            if let Some(slug) = self.slug(*application) {
                metrics.push(object_metrics::entry_metric(slug, *application, &draft.object));
            }
        }
        metrics
    }

    fn transaction(&self, draft: &Draft, request: &WriteRequest, origin: Origin<'_>) -> Transaction {
        let mut history = Vec::new();
        let mut record = |slug: &str, old: Option<Arc<str>>, new: Option<Arc<str>>, etag| {
            history.push(HistoryRow { object: draft.uuid, slug: slug.into(), old, new, etag });
        };
        let text = |json: String| Some(Arc::from(json));
        let object_changed = draft.registration_changed() || draft.membership_changed();
        if draft.registration_changed() {
            let old = draft.before.as_ref().and_then(|o| text(object_metrics::registration_json(draft.uuid, o)));
            record(REGISTRATION_SLUG, old, text(object_metrics::registration_json(draft.uuid, &draft.object)), None);
        }
        if draft.membership_changed() {
            let old = draft.before.as_ref().and_then(|o| text(object_metrics::membership_json(o)));
            record(MEMBERSHIP_SLUG, old, text(object_metrics::membership_json(&draft.object)), None);
        }
        let mut entries = Vec::new();
        for application in &draft.changed {
            let old = draft.before.as_ref().and_then(|o| o.entries.get(application)).map(|e| e.json.clone());
            let new = draft.object.entries.get(application);
            record(&self.name_of(*application), old, new.map(|e| e.json.clone()), new.map(|e| e.etag));
            entries.push(EntryRow { object: draft.uuid, application: *application, entry: new.cloned() });
        }
        Transaction {
            revision: self.revision + 1,
            time: origin.time,
            writer: origin.writer.into(),
            request: request.id.as_str().into(),
            object: object_changed.then(|| draft.object.row(draft.uuid)),
            entries,
            application: draft.application.clone().map(|slug| (draft.uuid, slug)),
            history,
        }
    }

    fn install(&mut self, draft: Draft) {
        self.revision += 1;
        self.live += usize::from(draft.is_born());
        self.live -= usize::from(draft.was_live() && draft.object.deleted);
        match draft.application {
            Some(Some(slug)) => self.put_application(draft.uuid, slug),
            Some(None) => self.remove_application(draft.uuid),
            None => {}
        }
        if let Some(recovery) = draft.object.entries.get(&known::application::EDGE_CLUSTER_RECOVERY) {
            self.raise_epoch(known::application::EDGE_CLUSTER_RECOVERY, recovery);
        }
        self.objects.insert(draft.uuid, draft.object);
        if let Some(schema) = draft.schema {
            self.set_schema(draft.uuid, schema);
        }
    }

    /// The slug of an application, its UUID if it has none.
    pub(super) fn name_of(&self, application: Uuid) -> String {
        self.slug(application).map_or_else(|| application.to_string(), ToString::to_string)
    }
}
