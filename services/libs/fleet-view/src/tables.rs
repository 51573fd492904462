//! The tables of the console: rows as JSON, each with its key, and with its health where it can have one. The names of tables and fields are part of the HTTP API.

mod hosts;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use cluster_manager_contract::{ClusterDevice, JoinReport, SetupState, SetupStep};
use configdb_schema::Document as _;
use configdb_schema::document::{ChartRollout, EdgeClusterRollout, EdgeDeployment, HelmChartTemplate, RolloutDecision};
use edge_sync_contract::DeploymentDevice;
use jiff::Timestamp;
use join_service_contract::HostState;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::deltas::Table;
use crate::health::{self, Condition, Health};
use crate::intent::{self, Intent, Progress};
use crate::{AlertRow, ClusterRow, DeploymentRow, Fleet};

pub(crate) use hosts::meaning;
pub use hosts::{host_row, hosts, is_known_to_join, joining_host_row};

/// Longest text of a row, in bytes. What nodes report is cut there.
pub const TEXT_BYTES_MAX: usize = 8 * 1024;

/// A rung of a ladder: something that comes after something else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Name of the step.
    pub name: &'static str,
    /// How far it is.
    pub state: StepState,
    /// Since when, UTC ms.
    pub since: Option<u64>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepState {
    /// It is behind.
    Done,
    /// It is under way.
    Active,
    /// It is where the way ends until someone does something.
    Failed,
    /// It is to come.
    Waiting,
}

/// The steps of `names`, of which the first `done` are done and the next is in `state`.
pub(crate) fn ladder(names: &[&'static str], done: usize, state: StepState, since: Option<u64>) -> Vec<Step> {
    let step = |(at, name): (usize, &&'static str)| Step {
        name,
        state: match at.cmp(&done) {
            std::cmp::Ordering::Less => StepState::Done,
            std::cmp::Ordering::Equal => state,
            std::cmp::Ordering::Greater => StepState::Waiting,
        },
        since: since.filter(|_| at == done || (done == names.len() && at + 1 == done)),
        detail: None,
    };
    names.iter().enumerate().map(step).collect()
}

/// Adds a row; texts in it are cut to [`TEXT_BYTES_MAX`].
pub(crate) fn add(table: &mut Table, key: String, condition: Option<Condition>, mut row: Value) {
    if let Value::Object(fields) = &mut row {
        fields.insert("key".to_owned(), Value::from(key.clone()));
        if let Some(condition) = condition {
            fields.insert("health".to_owned(), json!(condition.health));
            fields.insert("reasons".to_owned(), json!(condition.reasons));
            fields.insert("since".to_owned(), json!(condition.since));
        }
    }
    bound(&mut row);
    table.insert(key, row);
}

/// Cuts every text in `value`.
pub(crate) fn bound(value: &mut Value) {
    match value {
        Value::String(text) => cut(text, TEXT_BYTES_MAX),
        Value::Array(values) => values.iter_mut().for_each(bound),
        Value::Object(fields) => fields.values_mut().for_each(bound),
        _ => {}
    }
}

/// Cuts a text behind its first `max` bytes, and marks that.
pub(crate) fn cut(text: &mut String, max: usize) {
    if text.len() > max {
        let end = (0..=max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
}

/// What all tables of the fleet are made of, computed once.
#[derive(Debug)]
pub struct Rows<'a> {
    fleet: &'a Fleet,
    clusters: Vec<ClusterRow>,
    deployments: Vec<DeploymentRow>,
    alerts: Vec<AlertRow>,
    conditions: BTreeMap<Uuid, Condition>,
    hosts: OnceCell<Table>,
}

impl<'a> Rows<'a> {
    /// Computes the rows.
    #[must_use]
    pub fn of(fleet: &'a Fleet) -> Self {
        let (clusters, deployments, alerts) = (fleet.clusters(), fleet.deployments(), fleet.alerts());
        let mut alerts_of: BTreeMap<&str, Vec<&AlertRow>> = BTreeMap::new();
        for alert in &alerts {
            alerts_of.entry(alert.cluster.as_deref().unwrap_or_default()).or_default().push(alert);
        }
        let mut deployments_of: BTreeMap<&str, Vec<&DeploymentRow>> = BTreeMap::new();
        for row in &deployments {
            deployments_of.entry(&row.cluster).or_default().push(row);
        }
        let condition = |row: &ClusterRow| {
            // A refused cluster has the name of another one, of which these are.
            let is_named = row.setup != SetupState::Refused.as_str();
            let alerts = alerts_of.get(row.name.as_str()).filter(|_| is_named).map_or(&[][..], Vec::as_slice);
            let own = deployments_of.get(row.name.as_str()).filter(|_| is_named).map_or(&[][..], Vec::as_slice);
            (row.uuid, health::cluster(fleet, row, alerts, own))
        };
        let conditions = clusters.iter().map(condition).collect();
        Self { fleet, clusters, deployments, alerts, conditions, hosts: OnceCell::new() }
    }

    /// Table `hosts`, as [`hosts()`] makes it; made once, because table `fleet` counts its rows.
    #[must_use]
    pub fn hosts(&self) -> &Table {
        self.hosts.get_or_init(|| hosts::hosts(self.fleet))
    }

    /// Table `clusters`, by UUID.
    #[must_use]
    pub fn clusters(&self) -> Table {
        let mut table = Table::new();
        let default = ClusterDevice::default();
        for row in &self.clusters {
            let device = self.fleet.manager.cluster(row.uuid).unwrap_or(&default);
            let rollout: EdgeClusterRollout = self.document(row.uuid).unwrap_or_default();
            let node = self.fleet.sync(&row.name).and_then(edge_sync_contract::SyncReplica::node);
            let git = device.git_commit.as_ref().map(
                |wanted| json!({ "wanted": wanted, "applied": row.flux.as_ref().and_then(|flux| flux.commit.clone()), "url": device.git_url }),
            );
            let repository = device.rollout.repository.as_ref().map(|reason| json!({ "reason": reason }));
            let json = json!({
                "name": row.name, "group": row.group, "wave": rollout.wave, "setup": row.setup,
                "setup_reason": row.reason, "setup_since": row.since, "edge_since": row.alive_since,
                "monitored": row.monitored,
                "steps": setup_steps(device), "edge": row.edge(), "alive_since": row.alive_since.filter(|_| row.alive),
                "held": row.held, "flux": row.flux, "agreed": row.agreed, "hosts": row.hosts,
                "deployments": row.deployments, "alerts": row.alerts,
                "version": node.map(|node| node.version.clone()), "desired_version": device.desired.version,
                "certificate_ends": device.identity.expires, "git": git, "simulated": row.simulated,
                "labels": row.labels, "namespace": device.namespace, "repository": repository,
                "policy": policy_at_join(&device.join),
            });
            add(&mut table, row.uuid.to_string(), self.conditions.get(&row.uuid).cloned(), json);
        }
        table
    }

    /// Table `deployments`, by UUID; what an edge still removes while another cluster has it, by `CLUSTER/UUID`.
    #[must_use]
    pub fn deployments(&self) -> Table {
        let mut table = Table::new();
        let by_name: BTreeMap<&str, &ClusterRow> = self.clusters.iter().map(|row| (row.name.as_str(), row)).collect();
        for row in &self.deployments {
            let cluster = &by_name.get(row.cluster.as_str()).copied();
            let alive = cluster.is_some_and(|cluster| cluster.alive);
            let condition = health::deployment(row, alive);
            let wanted: Option<EdgeDeployment> = self.document(row.uuid).filter(|_| !row.is_being_removed());
            let device = self.fleet.sync(&row.cluster).and_then(|sync| sync.devices().deployments.get(&row.uuid));
            let reported = device.map(|device| {
                let mut reported = json!({ "state": device.state.as_str(), "reason": device.reason,
                    "version": device.version, "digest": device.digest.map(|digest| digest.to_string()),
                    "ready": device.ready, "message": device.message, "applied_at": device.applied_at });
                // Beside `suspend` of the entry, which is there only where it is true.
                if device.suspended {
                    reported["suspend"] = Value::from(true);
                }
                reported
            });
            let revision = wanted.as_ref().and_then(|wanted| self.fleet.revision_of_deployment(row.uuid, wanted));
            let path = revision
                .zip(*cluster)
                .map(|(revision, cluster)| self.way(row, &condition, cluster, revision, device).legs());
            let json = json!({
                "cluster": row.cluster, "name": row.name, "chart": row.chart, "host": row.host, "state": row.state,
                "ready": row.ready, "reason": row.reason, "version": row.version,
                "revision": revision, "path": path.unwrap_or_default(), "wanted": wanted, "reported": reported,
                "labels": row.labels,
            });
            let plain = row.uuid.to_string();
            let key = if table.contains_key(&plain) { format!("{}/{plain}", row.cluster) } else { plain };
            add(&mut table, key, Some(condition), json);
        }
        table
    }

    fn way<'b>(
        &'b self,
        row: &'b DeploymentRow,
        condition: &'b Condition,
        cluster: &ClusterRow,
        revision: u64,
        device: Option<&DeploymentDevice>,
    ) -> Way<'b> {
        let sync = self.fleet.sync(&row.cluster).map(edge_sync_contract::SyncReplica::address);
        let progress = self.fleet.intents().progress(Intent {
            deployment: row.uuid,
            revision,
            cluster: cluster.uuid,
            sync,
            device,
        });
        Way { row, condition, manager: self.fleet.manager.cluster(cluster.uuid), revision, progress }
    }

    /// Table `alerts`, by what they are about and who raised them.
    #[must_use]
    pub fn alerts(&self) -> Table {
        let mut table = Table::new();
        for row in &self.alerts {
            let condition =
                Condition { health: Health::Attention, reasons: vec![row.reason.clone()], since: row.since };
            add(&mut table, row.key(), Some(condition), json!(row));
        }
        table
    }

    /// Table `secrets`: those of clusters, without any value, by `CLUSTER/NAMESPACE/NAME`.
    #[must_use]
    pub fn secrets(&self) -> Table {
        let mut table = Table::new();
        let names: BTreeMap<Uuid, &str> = self.clusters.iter().map(|row| (row.uuid, row.name.as_str())).collect();
        for (cluster, secret) in self.fleet.all_secrets() {
            let Some(name) = names.get(&cluster) else { continue };
            let key = format!("{cluster}/{}/{}", secret.namespace, secret.name);
            let mut json = json!(secret);
            json["cluster"] = Value::from(*name);
            json["reason"] = json!(self.fleet.secrets_reason(cluster));
            add(&mut table, key, None, json);
        }
        table
    }

    /// Table `fleet`: one row of counters.
    #[must_use]
    pub fn fleet(&self) -> Table {
        let mut table = Table::new();
        let mut clusters = Counter::default();
        self.conditions.values().for_each(|condition| clusters.count(condition.health));
        let mut deployments = Counter::default();
        let alive: BTreeSet<&str> = self.clusters.iter().filter(|row| row.alive).map(|row| row.name.as_str()).collect();
        for row in self.deployments.iter().filter(|row| !row.is_being_removed()) {
            deployments.count(health::deployment(row, alive.contains(row.cluster.as_str())).health);
        }
        let mut hosts = Counter::default();
        for row in self.hosts().values() {
            hosts.count_word(row.get("health").and_then(Value::as_str).unwrap_or_default());
        }
        let joining = self.fleet.joining_hosts(None);
        let waiting = joining.iter().filter(|row| row.state == HostState::Pending).count();
        let json = json!({
            "clusters": clusters, "hosts": hosts, "deployments": deployments, "alerts": self.alerts.len(),
            "acknowledged": self.alerts.iter().filter(|alert| alert.acknowledged.is_some()).count(), "waiting": waiting, "rollout": self.rollout_sentence(),
        });
        add(&mut table, "fleet".to_owned(), None, json);
        table
    }

    /// Table `rollout`: each chart template with the clusters that use it, by wave.
    #[must_use]
    pub fn rollout(&self) -> Table {
        let mut waves: BTreeMap<String, BTreeMap<u8, BTreeMap<&str, Value>>> = BTreeMap::new();
        let mut blocked: BTreeMap<String, String> = BTreeMap::new();
        let mut templates: BTreeMap<String, Uuid> = BTreeMap::new();
        let mut decided: BTreeMap<Uuid, (ChartRollout, Option<Uuid>)> = BTreeMap::new();
        let by_name: BTreeMap<&str, &ClusterRow> = self.clusters.iter().map(|row| (row.name.as_str(), row)).collect();
        let wanted = self.deployments.iter().filter(|row| !row.is_being_removed() && !row.chart.is_empty());
        for (row, cluster) in wanted.filter_map(|row| Some((row, *by_name.get(row.cluster.as_str())?))) {
            let report =
                self.fleet.manager.cluster(cluster.uuid).map(|device| device.rollout.clone()).unwrap_or_default();
            let wave = self.document::<EdgeClusterRollout>(cluster.uuid).unwrap_or_default().wave;
            let template = *templates.entry(row.chart.clone()).or_insert_with(|| {
                let wanted: Option<EdgeDeployment> = self.document(row.uuid);
                wanted.and_then(|wanted| wanted.chart_templates().first().copied()).unwrap_or_default()
            });
            let (decision, etag) = decided.entry(template).or_insert_with(|| self.decided(template));
            let passed = decision.passed(*etag).find(|(passed, _)| *passed == cluster.uuid);
            let passed = passed.map(|(_, decision)| described(decision));
            let (state, reason) = if report.waiting > 0 {
                ("waits", report.reason.clone())
            } else if row.state == "refused" || row.state == "failed" || row.ready == Some(false) {
                ("blocks", row.fault().map(str::to_owned).or_else(|| Some(row.described())))
            } else if row.state == "applied" && row.ready == Some(true) {
                ("settled", None)
            } else {
                ("runs", Some(row.described()))
            };
            if state == "waits" {
                blocked.extend(reason.clone().map(|reason| (row.chart.clone(), reason)));
            }
            let of_wave = waves.entry(row.chart.clone()).or_default().entry(wave).or_default();
            let entry = json!({ "cluster": cluster.uuid, "name": cluster.name, "state": state, "reason": reason,
                "passed": passed });
            // Of several deployments of one template on a cluster the one that is furthest behind is shown.
            let rank =
                |value: &Value| ["settled", "runs", "waits", "blocks"].iter().position(|word| value["state"] == **word);
            match of_wave.get(cluster.name.as_str()) {
                Some(known) if rank(known) >= rank(&entry) => {}
                _ => {
                    of_wave.insert(&cluster.name, entry);
                }
            }
        }
        let mut table = Table::new();
        for (template, waves) in waves {
            let waves: Vec<Value> = waves
                .into_iter()
                .map(|(wave, clusters)| json!({ "wave": wave, "clusters": clusters.into_values().collect::<Vec<_>>() }))
                .collect();
            let uuid = templates.get(&template).copied().unwrap_or_default();
            let hold = decided.get(&uuid).and_then(|(decided, _)| decided.hold.as_ref()).map(described);
            let json = json!({ "template": template, "uuid": uuid, "waves": waves, "hold": hold,
                "blocked": blocked.get(&template) });
            add(&mut table, template, None, json);
        }
        table
    }

    /// What operators have decided about the rollout of a chart template, with the ETag of its entry.
    fn decided(&self, template: Uuid) -> (ChartRollout, Option<Uuid>) {
        let etag = self.fleet.config.entry(template, HelmChartTemplate::slug()).map(|entry| entry.etag);
        (self.document(template).unwrap_or_default(), etag)
    }

    fn rollout_sentence(&self) -> Option<String> {
        let waiting = self.fleet.manager.clusters().filter(|(_, cluster)| cluster.rollout.waiting > 0);
        let (count, first) = waiting.fold((0_usize, None), |(count, first), (_, cluster)| {
            (count + 1, first.or_else(|| cluster.rollout.reason.clone()))
        });
        let reason = first.map_or_else(String::new, |reason| format!(": {reason}"));
        (count > 0).then(|| format!("{count} clusters wait for an earlier wave{reason}"))
    }

    fn document<T: configdb_schema::Document>(&self, object: Uuid) -> Option<T> {
        self.fleet.config.document(object).ok().flatten()
    }
}

/// What the join service of a cluster judges by.
#[must_use]
pub fn policy_at_join(report: &JoinReport) -> Value {
    json!({
        "alive": report.alive, "agreed": report.policy_agreed, "revision": report.policy_revision,
        "state": report.policy_state, "error": report.policy_error
    })
}

/// What a value of [`policy_at_join`] was made of; None: it is of something else. Whether something is held is not in it.
#[must_use]
pub fn policy_report(value: &Value) -> Option<JoinReport> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(JoinReport {
        alive: value.get("alive")?.as_bool()?,
        policy_agreed: value.get("agreed")?.as_bool()?,
        policy_revision: value.get("revision")?.as_u64()?,
        policy_state: text("state"),
        policy_error: text("error"),
        policy_held: None,
    })
}

/// Table `fleet` of the clusters that are in these tables alone.
#[must_use]
pub fn counters(clusters: &Table, hosts: &Table, deployments: &Table, alerts: &Table, rollout: &Table) -> Table {
    let word = |row: &Value| row.get("health").and_then(Value::as_str).unwrap_or_default().to_owned();
    let count = |rows: &mut dyn Iterator<Item = &Value>| {
        let mut counter = Counter::default();
        rows.for_each(|row| counter.count_word(&word(row)));
        counter
    };
    let is = |row: &&Value, field: &str, value: &str| row.get(field).and_then(Value::as_str) == Some(value);
    let of_waves = |row: &Value| row.get("waves").and_then(Value::as_array).cloned().unwrap_or_default();
    let of_all_waves = rollout.values().flat_map(of_waves);
    let of_all_clusters =
        of_all_waves.flat_map(|wave| wave.get("clusters").and_then(Value::as_array).cloned().unwrap_or_default());
    let waiting: BTreeSet<String> =
        of_all_clusters.filter(|row| is(&row, "state", "waits")).map(|row| row["name"].to_string()).collect();
    let sentence = (!waiting.is_empty()).then(|| format!("{} clusters wait for an earlier wave", waiting.len()));
    let json = json!({
        "clusters": count(&mut clusters.values()), "hosts": count(&mut hosts.values()),
        "deployments": count(&mut deployments.values().filter(|row| !is(row, "state", crate::REMOVING))),
        "alerts": alerts.len(), "acknowledged": alerts.values().filter(|row| !row["acknowledged"].is_null()).count(),
        "waiting": hosts.values().filter(|row| is(row, "member", "waiting")).count(), "rollout": sentence,
    });
    let mut table = Table::new();
    add(&mut table, "fleet".to_owned(), None, json);
    table
}

/// The row of a cluster that a row of table `clusters` was made of; None: it is of another table.
#[must_use]
pub fn cluster_row(row: &Value) -> Option<ClusterRow> {
    let edge = row.get("edge")?.as_str()?;
    let mut fields = row.as_object()?.clone();
    let of = |name: &str| row.get(name).cloned().unwrap_or_default();
    fields.insert("uuid".to_owned(), of("key"));
    fields.insert("reason".to_owned(), of("setup_reason"));
    fields.insert("since".to_owned(), of("setup_since"));
    fields.insert("alive_since".to_owned(), of("edge_since"));
    fields.insert("alive".to_owned(), json!(matches!(edge, "alive" | "unmonitored")));
    fields.insert("seen".to_owned(), json!(edge != "not yet"));
    serde_json::from_value(Value::Object(fields)).ok()
}

/// The row of a deployment that a row of table `deployments` was made of; None: it is of another table.
#[must_use]
pub fn deployment_row(row: &Value) -> Option<DeploymentRow> {
    let mut fields = row.as_object()?.clone();
    let key = row.get("key")?.as_str()?;
    let reported = |name: &str| row.pointer(&format!("/reported/{name}")).cloned().unwrap_or_default();
    let reason = row.get("reason").filter(|reason| !reason.is_null()).cloned();
    fields.insert("uuid".to_owned(), json!(key.rsplit('/').next()));
    fields.insert("message".to_owned(), reason.unwrap_or_else(|| reported("message")));
    fields.insert("applied_at".to_owned(), reported("applied_at"));
    serde_json::from_value(Value::Object(fields)).ok()
}

/// The alert that a row of table `alerts` was made of; None: it is of another table, or an alert that this version does not know.
#[must_use]
pub fn alert_row(row: &Value) -> Option<AlertRow> {
    serde_json::from_value(row.clone()).ok()
}

/// Who decided, when (UTC ms), and why.
fn described(decision: &RolloutDecision) -> Value {
    let at = decision.at.parse::<Timestamp>().ok().map(Timestamp::as_millisecond);
    json!({ "by": decision.by, "at": at, "note": decision.note })
}

/// How many things have which health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
struct Counter {
    good: usize,
    working: usize,
    attention: usize,
    away: usize,
}

impl Counter {
    fn count(&mut self, health: Health) {
        *match health {
            Health::Good => &mut self.good,
            Health::Working => &mut self.working,
            Health::Away => &mut self.away,
            Health::Attention => &mut self.attention,
        } += 1;
    }

    fn count_word(&mut self, word: &str) {
        self.count(match word {
            "working" => Health::Working,
            "away" => Health::Away,
            "attention" => Health::Attention,
            _ => Health::Good,
        });
    }
}

const SETUP: [SetupStep; 7] = [
    SetupStep::Spec,
    SetupStep::Address,
    SetupStep::FluxAccount,
    SetupStep::KrbkeysAccount,
    SetupStep::GitConfig,
    SetupStep::Repository,
    SetupStep::Ready,
];

const TEAR_DOWN: [SetupStep; 5] = [
    SetupStep::TearDown,
    SetupStep::EdgeEmptied,
    SetupStep::AccountsRemoved,
    SetupStep::ConfigRemoved,
    SetupStep::RepositoryClosed,
];

fn setup_steps(device: &ClusterDevice) -> Vec<Step> {
    let setup = &device.setup;
    let steps: &[SetupStep] = if TEAR_DOWN.contains(&setup.step) { &TEAR_DOWN } else { &SETUP };
    let names: Vec<&'static str> = steps.iter().map(|step| step.as_str()).collect();
    let done = steps.iter().position(|step| *step == setup.step).map_or(0, |at| at + 1);
    let state = if setup.state == SetupState::Refused { StepState::Failed } else { StepState::Active };
    let mut steps = ladder(&names, done, state, Some(setup.since).filter(|since| *since > 0));
    if let Some(step) = steps.get_mut(done) {
        step.detail.clone_from(&setup.reason);
    }
    steps
}

/// A step on the way from a written deployment to a ready one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Leg {
    leg: &'static str,
    /// When it was reported first, UTC ms; None: not yet, or not known.
    at: Option<u64>,
    /// Milliseconds after the step before, where both times are known. Negative: the clocks of the two services differ by more than the step took.
    ms: Option<i64>,
    state: StepState,
    detail: Option<String>,
}

/// What the way of an intent is made of.
struct Way<'a> {
    row: &'a DeploymentRow,
    condition: &'a Condition,
    manager: Option<&'a ClusterDevice>,
    /// Highest revision among the entries that the deployment is made of.
    revision: u64,
    progress: Progress,
}

impl Way<'_> {
    /// Nothing of the revision has led to other manifests, as far as the edge reports.
    fn is_without_effect(&self) -> bool {
        self.row.state == "applied" && self.row.version.is_some_and(|version| version < self.revision)
    }

    fn waits(&self) -> Option<&str> {
        let rollout = &self.manager?.rollout;
        (rollout.waiting > 0).then(|| rollout.reason.as_deref().unwrap_or("waits for an earlier wave"))
    }

    /// How many steps are done.
    fn done(&self) -> usize {
        let Progress { is_acknowledged, is_received, .. } = self.progress;
        let is_without_effect = self.is_without_effect();
        match (self.row.state.as_str(), self.row.version) {
            ("refused", None) => 1,
            (_, None) if self.manager.is_none() => 1,
            ("sending" | "held", None) if self.waits().is_some() || !is_acknowledged => 1,
            ("sending" | "held", None) => 2,
            ("applied", _) if is_without_effect && self.waits().is_some() => 1,
            ("applied", _) if is_without_effect && is_acknowledged && !is_received => 2,
            ("applied", _) if self.row.ready == Some(true) => 5,
            ("applied" | crate::SUSPENDED, _) => 4,
            _ => 3,
        }
    }

    fn detail(&self, step: &str) -> Option<String> {
        match step {
            "desired" => {
                let request = self.progress.request.as_ref().map(|request| format!(", request {request}"));
                Some(format!("revision {}{}", self.revision, request.unwrap_or_default()))
            }
            "acknowledged" => self.manager.map(|cluster| format!("desired state v{}", cluster.desired.version)),
            "applied" if self.is_without_effect() => {
                let version = self.row.version.unwrap_or_default();
                Some(format!("v{version}; revision {} has not changed what runs", self.revision))
            }
            "applied" => self.row.version.filter(|version| *version > 0).map(|version| format!("v{version}")),
            _ => None,
        }
    }

    fn legs(&self) -> Vec<Leg> {
        let state = if self.condition.health == Health::Attention { StepState::Failed } else { StepState::Active };
        let steps = ladder(&intent::STEPS, self.done(), state, None);
        let mut legs: Vec<Leg> = Vec::with_capacity(steps.len());
        for (step, at) in steps.into_iter().zip(self.progress.at) {
            let at = at.filter(|_| step.state == StepState::Done);
            let before = legs.last().and_then(|leg| leg.at);
            let ms = at.zip(before).and_then(|(at, before)| i64::try_from(i128::from(at) - i128::from(before)).ok());
            let detail = match step.state {
                StepState::Done => self.detail(step.name),
                StepState::Active | StepState::Failed => {
                    let reason = self.condition.reasons.first().cloned();
                    reason.or_else(|| self.waits().map(str::to_owned))
                }
                StepState::Waiting => None,
            };
            // What runs was applied at that time, whichever revision it is of.
            let runs_since = self.row.applied_at.filter(|_| step.name == "applied" && step.state == StepState::Done);
            legs.push(Leg { leg: step.name, at: at.or(runs_since), ms, state: step.state, detail });
        }
        legs
    }
}

#[cfg(test)]
mod tests;
