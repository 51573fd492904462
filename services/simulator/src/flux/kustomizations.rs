//! Kustomizations: what a checkout says is applied, what it no longer says is pruned.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::condition::{self, Outcome};
use super::manifests::{self, InventoryEntry};
use super::sources::source_of;
use super::{Controllers, KUSTOMIZATION, Key};
use crate::kubernetes::ObjectRef;

const MANAGER: &str = "kustomize-controller";

/// What is remembered of a Kustomization.
#[derive(Debug, Default)]
pub(super) struct Memory {
    applied_revision: Option<String>,
    next_due: Option<Instant>,
}

/// What an attempt to apply came to: which objects are there because of it, and what went wrong.
struct Applied {
    entries: BTreeSet<InventoryEntry>,
    fault: Option<(&'static str, String)>,
}

impl Controllers {
    pub(super) fn reconcile_kustomizations(&mut self) {
        let objects = self.objects(KUSTOMIZATION);
        self.kustomizations.retain(|key, _| objects.contains_key(key));
        for (key, object) in objects {
            if condition::is_deleted(&object) {
                if object["spec"]["prune"] == true && !condition::is_suspended(&object) {
                    self.prune(&manifests::inventory(&object), &BTreeSet::new());
                }
                self.set_finalizer(MANAGER, &object, false);
            } else if !condition::is_suspended(&object) && self.set_finalizer(MANAGER, &object, true) {
                self.reconcile_kustomization(key, &object);
            }
        }
    }

    fn reconcile_kustomization(&mut self, key: Key, object: &Value) {
        let source = source_of(&key, &object["spec"]["sourceRef"]);
        let Some(memory) = self.sources.get(&source) else {
            let message = format!("GitRepository.source.toolkit.fluxcd.io \"{}\" not found", source.1);
            self.report(MANAGER, object, &Outcome::failed("ArtifactFailed", message), json!({}));
            return;
        };
        let (Some(revision), Some(checkout)) = (memory.revision.clone(), memory.checkout.clone()) else {
            let message = "Source artifact not found, retrying";
            self.report(MANAGER, object, &Outcome::failed("ArtifactFailed", message), json!({}));
            return;
        };
        let memory = self.kustomizations.entry(key.clone()).or_default();
        let is_due = memory.next_due.is_none_or(|due| Instant::now() >= due)
            || memory.applied_revision.as_ref() != Some(&revision)
            || !condition::is_observed(object)
            || condition::pending_request(object).is_some();
        if !is_due {
            return;
        }
        memory.applied_revision = Some(revision.clone());
        let path = object["spec"]["path"].as_str().unwrap_or("./");
        let applied = match manifests::read(&checkout.path(), path) {
            Ok(objects) => self.apply_all(&key, object, objects),
            Err(error) => Applied { entries: BTreeSet::new(), fault: Some(("BuildFailed", error.to_string())) },
        };
        self.conclude(key, object, &revision, applied);
    }

    fn apply_all(&self, key: &Key, kustomization: &Value, mut objects: Vec<Value>) -> Applied {
        objects.sort_by_key(manifests::stage);
        let mut entries = BTreeSet::new();
        for object in objects {
            let what = format!(
                "{}/{}",
                object["kind"].as_str().unwrap_or_default(),
                object["metadata"]["name"].as_str().unwrap_or_default()
            );
            match self.apply_one(key, kustomization, object) {
                Ok(entry) => {
                    entries.insert(entry);
                }
                Err(message) => {
                    return Applied { entries, fault: Some(("ReconciliationFailed", format!("{what}: {message}"))) };
                }
            }
        }
        Applied { entries, fault: None }
    }

    fn apply_one(&self, key: &Key, kustomization: &Value, mut object: Value) -> Result<InventoryEntry, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let kind = self.kubernetes.kind(&text(&object["apiVersion"]), &text(&object["kind"])).map_err(|_| {
            format!("no matches for kind \"{}\" in version \"{}\"", text(&object["kind"]), text(&object["apiVersion"]))
        })?;
        if let Some(target) = kustomization["spec"]["targetNamespace"].as_str().filter(|_| kind.namespaced) {
            object["metadata"]["namespace"] = json!(target);
        }
        let namespace = if kind.namespaced { text(&object["metadata"]["namespace"]) } else { String::new() };
        if kind.namespaced && namespace.is_empty() {
            return Err("namespace not specified".to_string());
        }
        if !object["metadata"]["labels"].is_object() {
            object["metadata"]["labels"] = json!({});
        }
        object["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] = json!(key.1);
        object["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/namespace"] = json!(key.0);
        let name = text(&object["metadata"]["name"]);
        self.kubernetes.apply(MANAGER, object).map_err(|error| error.message)?;
        Ok(InventoryEntry::of(&kind, &namespace, &name))
    }

    fn conclude(&mut self, key: Key, object: &Value, revision: &str, applied: Applied) {
        let before = manifests::inventory(object);
        let interval = condition::interval(object, Duration::from_secs(180));
        let mut extra = json!({ "lastAttemptedRevision": revision });
        let (outcome, wait) = match applied.fault {
            None => {
                if object["spec"]["prune"] == true {
                    self.prune(&before, &applied.entries);
                }
                extra["inventory"] = manifests::inventory_status(&applied.entries);
                extra["lastAppliedRevision"] = json!(revision);
                (Outcome::ready("ReconciliationSucceeded", format!("Applied revision: {revision}")), interval)
            }
            Some((reason, message)) => {
                // What was applied before the fault must be found again by a later prune.
                extra["inventory"] = manifests::inventory_status(&before.union(&applied.entries).cloned().collect());
                (Outcome::failed(reason, message), interval.min(self.options.retry))
            }
        };
        self.kustomizations.entry(key).or_default().next_due = Some(Instant::now() + wait);
        self.report(MANAGER, object, &outcome, extra);
    }

    fn prune(&self, before: &BTreeSet<InventoryEntry>, wanted: &BTreeSet<InventoryEntry>) {
        let is_wanted = |entry: &InventoryEntry| wanted.iter().any(|w| w.id == entry.id);
        for entry in before.iter().filter(|entry| !is_wanted(entry)) {
            let Some((namespace, name, api_version, kind)) = entry.parts() else { continue };
            let place = ObjectRef { api_version: &api_version, kind: &kind, namespace: &namespace, name: &name };
            let found = self.kubernetes.get(&api_version, &kind, &namespace, &name);
            if found.is_ok_and(|object| object["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/prune"] == "disabled")
            {
                continue;
            }
            match self.kubernetes.delete(&place) {
                Ok(_) => tracing::debug!(kind, namespace, name, "simulated Flux pruned"),
                Err(error) if error.is_not_found() => {}
                Err(error) => tracing::warn!(kind, namespace, name, %error, "simulated Flux could not prune"),
            }
        }
    }
}
