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

/// How long Helm waits for what it has installed, unless the release says otherwise.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Pause of the strategy RetryOnFailure, unless the release says otherwise.
const RETRY_INTERVAL: Duration = Duration::from_secs(300);

/// What is remembered of a HelmRelease.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Number of the release's version, as `helm history` counts.
    version: u64,
    attempted_generation: Option<u64>,
    /// Revision of the source that the chart came from.
    attempted_revision: Option<String>,
    next_due: Option<Instant>,
    /// What is attempted makes another version of the release.
    is_new: bool,
    /// Failures since the last success or change.
    failures: u64,
    /// Until when Helm waits for what it has installed; meanwhile it does nothing else with the release.
    waits_until: Option<Instant>,
    /// Why the release failed for good.
    stalled: Option<Outcome>,
    /// It is installed, and its pods do not all run.
    is_pending: bool,
}

impl Controllers {
    pub(super) async fn reconcile_releases(&mut self) {
        let objects = self.objects(RELEASE);
        self.releases.retain(|key, _| objects.contains_key(key));
        for (key, object) in objects {
            if self.releases.get(&key).is_some_and(|memory| memory.waits_until.is_some()) {
                self.wait(key, &object).await;
            } else if condition::is_deleted(&object) {
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
        let is_changed = memory.attempted_generation != generation;
        let is_other = is_changed || memory.attempted_revision.as_ref() != Some(&revision);
        if !is_other
            && !condition::asks_again(object)
            && let Some(stalled) = memory.stalled.clone()
        {
            if condition::pending_request(object).is_some() {
                self.report(MANAGER, object, &stalled, json!({}));
            }
            return;
        }
        let is_due = memory.next_due.is_none_or(|due| Instant::now() >= due)
            || is_other
            || condition::pending_request(object).is_some();
        if !is_due {
            if memory.is_pending {
                self.schedule(&key, object).await;
            }
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
        memory.attempted_generation = generation;
        memory.stalled = None;
        if is_other {
            memory.failures = 0;
        }
        memory.is_new = is_changed || memory.version == 0;
        let timeout = condition::duration(&object["spec"]["timeout"]).unwrap_or(TIMEOUT);
        let release = self.release(&key, object);
        let installed = self.charts.find(&release.chart).install(&release).await;
        // What a failing release has made stays.
        let installed = installed.and_then(|()| match release.failure() {
            Some(reason) => Err(ChartError(reason.to_owned())),
            None => Ok(()),
        });
        // What was ready is not waited for again when its interval has passed.
        let is_attempt = is_other || !condition::is_ready(object);
        let waits = is_attempt && object["spec"][self.action(&key)]["disableWait"] != true;
        match installed {
            Ok(()) if waits && !release.is_available() => {
                let message = format!("Running '{}' action with timeout of {}s", self.action(&key), timeout.as_secs());
                self.report(MANAGER, object, &Outcome::progressing(message), json!({}));
                self.releases.entry(key).or_default().waits_until = Some(Instant::now() + timeout);
            }
            installed => self.finish(key, object, &release, installed),
        }
    }

    /// What the scheduler does with pods that found no host when they were made.
    async fn schedule(&mut self, key: &Key, object: &Value) {
        let release = self.release(key, object);
        if let Err(error) = self.charts.find(&release.chart).install(&release).await {
            tracing::debug!(release = release.name, %error, "pods are not looked at again, next look");
        }
        self.releases.entry(key.clone()).or_default().is_pending = !release.is_available();
    }

    /// Looks whether what was installed is available now. What had no host may have one.
    async fn wait(&mut self, key: Key, object: &Value) {
        let release = self.release(&key, object);
        let memory = self.releases.entry(key.clone()).or_default();
        let is_over = memory.waits_until.is_none_or(|until| Instant::now() >= until);
        let is_same = memory.attempted_generation == object["metadata"]["generation"].as_u64();
        if is_same && !condition::is_deleted(object) && !release.is_available() {
            // A pod that found no host is looked at again.
            let again = self.charts.find(&release.chart).install(&release).await;
            if let Err(error) = again {
                return self.finish(key, object, &release, Err(error));
            }
        }
        if release.is_available() {
            self.finish(key, object, &release, Ok(()));
        } else if is_over {
            self.finish(key, object, &release, Err(ChartError("context deadline exceeded".to_owned())));
        }
    }

    /// What Helm is about with a release.
    fn action(&self, key: &Key) -> &'static str {
        let is_upgrade = self.releases.get(key).is_some_and(|memory| memory.version > 0);
        if is_upgrade { "upgrade" } else { "install" }
    }

    fn finish(&mut self, key: Key, object: &Value, release: &Release, installed: Result<(), ChartError>) {
        let action = self.action(&key);
        let longest = self.options.retry;
        let interval = condition::interval(object, Duration::from_secs(120));
        let memory = self.releases.entry(key).or_default();
        memory.waits_until = None;
        memory.is_pending = installed.is_ok() && !release.is_available();
        let (outcome, wait) = match installed {
            Ok(()) => {
                memory.version += u64::from(std::mem::take(&mut memory.is_new));
                memory.failures = 0;
                let reason = if memory.version > 1 { "UpgradeSucceeded" } else { "InstallSucceeded" };
                let action = if memory.version > 1 { "upgrade" } else { "install" };
                let message = format!(
                    "Helm {action} succeeded for release {}/{}.v{} with chart {} (simulated)",
                    release.namespace, release.name, memory.version, release.chart
                );
                (Outcome::ready(reason, message), interval)
            }
            Err(error) => {
                memory.failures += 1;
                let reason = if action == "upgrade" { "UpgradeFailed" } else { "InstallFailed" };
                let message = format!(
                    "Helm {action} failed for release {}/{} with chart {}: {error}",
                    release.namespace, release.name, release.chart
                );
                let mut outcome = Outcome::failed(reason, message);
                let pause = retry_pause(&object["spec"][action], memory.failures);
                if pause.is_none() {
                    outcome.stalled = Some(format!("Failed to {action} after {} attempt(s)", memory.failures));
                    memory.stalled = Some(outcome.clone());
                }
                (outcome, pause.unwrap_or(interval).min(longest))
            }
        };
        memory.next_due = Some(Instant::now() + wait);
        let generation = memory.attempted_generation;
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

/// When a failed action is tried again, by its `strategy` and `remediation`; None: never, until something changes.
fn retry_pause(action: &Value, failures: u64) -> Option<Duration> {
    if action["strategy"]["name"] == "RetryOnFailure" {
        return Some(condition::duration(&action["strategy"]["retryInterval"]).unwrap_or(RETRY_INTERVAL));
    }
    let retries = action["remediation"]["retries"].as_i64().unwrap_or(0);
    let has_more = u64::try_from(retries).map_or(true, |retries| failures <= retries);
    has_more.then_some(Duration::ZERO)
}

/// A source, for people.
fn name_of(source: &Key) -> String {
    format!("GitRepository '{}/{}'", source.0, source.1)
}

fn chart_path(release: &Value) -> &str {
    release.pointer("/spec/chart/spec/chart").and_then(Value::as_str).unwrap_or_default()
}
