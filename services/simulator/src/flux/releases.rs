//! HelmReleases: charts are installed, upgraded and uninstalled.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::chart::{ChartError, Release, chart_name, check_chart};
use super::condition::{self, Outcome};
use super::git::Checkout;
use super::sources::source_of;
use super::{Controllers, Key, RELEASE, SOURCE};

const MANAGER: &str = "helm-controller";

/// What is remembered of a HelmRelease.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Number of the release's version, as `helm history` counts.
    version: u64,
    attempted_generation: Option<u64>,
    /// Revision of the source that the chart came from.
    attempted_revision: Option<String>,
    next_due: Option<Instant>,
}

impl Controllers {
    pub(super) async fn reconcile_releases(&mut self) {
        let objects = self.objects(RELEASE);
        self.releases.retain(|key, _| objects.contains_key(key));
        for (key, object) in objects {
            if condition::is_deleted(&object) {
                self.uninstall(key, &object).await;
            } else if !condition::is_suspended(&object) && self.set_finalizer(MANAGER, &object, true) {
                self.reconcile_release(key, &object).await;
            }
        }
    }

    /// What a release takes its chart from: the revision and where it is checked out. None: nothing is known of it, and what was installed before the simulator's start stays as it is.
    ///
    /// # Errors
    /// What is missing.
    fn chart_source(&self, source: &Key, object: &Value) -> Result<Option<(String, Arc<Checkout>)>, String> {
        if self.kubernetes.get(SOURCE.0, SOURCE.1, &source.0, &source.1).is_err() {
            return Err(format!("{} not found", name_of(source)));
        }
        let memory = self.sources.get(source);
        match memory.and_then(|memory| memory.revision.clone().zip(memory.checkout.clone())) {
            None if !condition::is_ready(object) => Err(format!("{} has not been fetched", name_of(source))),
            fetched => Ok(fetched),
        }
    }

    fn refuse(&mut self, key: Key, object: &Value, missing: &str) {
        let message = format!("HelmChart is not ready: {missing}");
        self.report(MANAGER, object, &Outcome::failed("SourceNotReady", message), json!({}));
        self.releases.entry(key).or_default().next_due = None;
    }

    async fn reconcile_release(&mut self, key: Key, object: &Value) {
        let source = source_of(&key, &object["spec"]["chart"]["spec"]["sourceRef"]);
        let (revision, checkout) = match self.chart_source(&source, object) {
            Ok(Some(fetched)) => fetched,
            Ok(None) => return,
            Err(missing) => return self.refuse(key, object, &missing),
        };
        let generation = object["metadata"]["generation"].as_u64();
        let memory = self.releases.entry(key.clone()).or_default();
        let is_due = memory.next_due.is_none_or(|due| Instant::now() >= due)
            || memory.attempted_generation != generation
            || memory.attempted_revision.as_ref() != Some(&revision)
            || condition::pending_request(object).is_some();
        if !is_due {
            return;
        }
        let path = chart_path(object);
        let found = if self.charts.knows(path) { Ok(()) } else { check_chart(&checkout.path(), path) };
        if let Err(rule) = found {
            let missing = format!("{} at {revision}: chart '{path}' {rule}", name_of(&source));
            return self.refuse(key, object, &missing);
        }
        let memory = self.releases.entry(key.clone()).or_default();
        memory.attempted_revision = Some(revision);
        let is_upgrade = memory.version > 0;
        let is_changed = memory.attempted_generation != generation;
        memory.attempted_generation = generation;
        let release = self.release(&key, object);
        let installed = match release.told_to_fail() {
            Some(reason) => Err(ChartError(reason.to_owned())),
            None => self.charts.find(&release.chart).install(&release).await,
        };

        let interval = condition::interval(object, Duration::from_secs(120));
        let memory = self.releases.entry(key).or_default();
        let (outcome, wait) = match installed {
            Ok(()) => {
                memory.version += u64::from(is_changed || !is_upgrade);
                let (reason, action) =
                    if memory.version > 1 { ("UpgradeSucceeded", "upgrade") } else { ("InstallSucceeded", "install") };
                let message = format!(
                    "Helm {action} succeeded for release {}/{}.v{} with chart {} (simulated)",
                    release.namespace, release.name, memory.version, release.chart
                );
                (Outcome::ready(reason, message), interval)
            }
            Err(error) => {
                let (reason, action) =
                    if is_upgrade { ("UpgradeFailed", "upgrade") } else { ("InstallFailed", "install") };
                let message = format!(
                    "Helm {action} failed for release {}/{} with chart {}: {error}",
                    release.namespace, release.name, release.chart
                );
                (Outcome::failed(reason, message), interval.min(self.options.retry))
            }
        };
        memory.next_due = Some(Instant::now() + wait);
        tracing::debug!(
            release = release.name,
            chart = release.chart,
            ready = outcome.ready,
            "simulated Flux reconciled a release"
        );
        self.report(MANAGER, object, &outcome, json!({ "lastAttemptedGeneration": generation }));
    }

    async fn uninstall(&mut self, key: Key, object: &Value) {
        let is_due = self.releases.get(&key).and_then(|m| m.next_due).is_none_or(|due| Instant::now() >= due)
            || condition::is_ready(object)
            || !condition::is_observed(object);
        if !is_due {
            return;
        }
        let release = self.release(&key, object);
        match self.charts.find(&release.chart).uninstall(&release).await {
            Ok(()) => {
                self.set_finalizer(MANAGER, object, false);
            }
            Err(error) => {
                let message =
                    format!("Helm uninstall failed for release {}/{}: {error}", release.namespace, release.name);
                self.releases.entry(key).or_default().next_due = Some(Instant::now() + self.options.retry);
                self.report(MANAGER, object, &Outcome::failed("UninstallFailed", message), json!({}));
            }
        }
    }

    fn release(&self, key: &Key, object: &Value) -> Release {
        let chart = chart_path(object);
        Release {
            kubernetes: self.kubernetes.clone(),
            namespace: key.0.clone(),
            name: key.1.clone(),
            chart: chart_name(chart).to_string(),
            values: object["spec"]["values"].clone(),
        }
    }
}

/// A source, for people.
fn name_of(source: &Key) -> String {
    format!("GitRepository '{}/{}'", source.0, source.1)
}

fn chart_path(release: &Value) -> &str {
    release.pointer("/spec/chart/spec/chart").and_then(Value::as_str).unwrap_or_default()
}
