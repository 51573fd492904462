//! What people can do with the fleet here: read from a request, judged by its operation, and turned into requests to ConfigDB. Pure.

use std::time::Duration;

use access::{Grant, Operation, Principal};
use configdb_contract::names::HISTORY_LIMIT_MAX;
use configdb_contract::{ReplayRequest, WriteRequest};
use configdb_schema::Document as _;
use configdb_schema::address::{self, CLUSTER_NODES_RESERVED};
use configdb_schema::document::{
    EdgeCluster, EdgeClusterRollout, EdgeDeployment, Info, JsonObject, SealingScope, TokenScope, WAVE_MAX,
};
use fleet_view::explorer::Explorer;
use fleet_view::requests::{
    self, Author, NewDeployment, NewSecretValue, NewToken, RequestError, RolloutChange, SecretPlace, check_cluster,
};
use fleet_view::{AlertRow, Fleet};
use sealed_secrets::SealingCertificate;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sparkplug::{DeviceId, EdgeNodeDescriptor, Metric};
use uuid::Uuid;

/// Namespace of a cluster that names none.
const NAMESPACE: &str = "fplus-edge";

/// How long a token lives if nothing else is asked for.
const TOKEN_LIFETIME: Duration = Duration::from_secs(90 * 24 * 3_600);

/// Every action by name, with what it is for access rules.
pub const ACTIONS: [(&str, Operation); 24] = [
    ("cluster.create", Operation::CreateCluster),
    ("cluster.delete", Operation::DeleteCluster),
    ("cluster.bootstrap", Operation::BootstrapLine),
    ("cluster.wave", Operation::SetWave),
    ("cluster.reconcile", Operation::ReconcileDeployment),
    ("deployment.create", Operation::CreateDeployment),
    ("deployment.move", Operation::MoveDeployment),
    ("deployment.suspend", Operation::SuspendDeployment),
    ("deployment.reconcile", Operation::ReconcileDeployment),
    ("deployment.delete", Operation::DeleteDeployment),
    ("host.move", Operation::MoveDeployment),
    ("secret.put", Operation::PutSecret),
    ("secret.delete", Operation::DeleteSecret),
    ("token.create", Operation::CreateToken),
    ("token.revoke", Operation::RevokeToken),
    ("rollout.hold", Operation::HoldRollout),
    ("rollout.free", Operation::FreeRollout),
    ("alert.acknowledge", Operation::AcknowledgeAlert),
    ("node.rebirth", Operation::AskRebirth),
    ("metric.write", Operation::WriteMetric),
    ("object.create", Operation::PutEntry),
    ("object.history", Operation::ReadHistory),
    ("entry.put", Operation::PutEntry),
    ("entry.delete", Operation::DeleteEntry),
];

/// An action with its arguments.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A new cluster.
    CreateCluster(NewCluster),
    /// Begin the tear-down of a cluster.
    DeleteCluster(ClusterToDelete),
    /// Make a command that bootstraps a cluster.
    Bootstrap(ClusterToBootstrap),
    /// Choose a cluster's wave.
    SetWave(ClusterWave),
    /// A new deployment.
    CreateDeployment(WantedDeployment),
    /// Bind a deployment to a host.
    MoveDeployment(DeploymentMove),
    /// Suspend a deployment, or resume it.
    SuspendDeployment(DeploymentToSuspend),
    /// Ask Flux to reconcile a deployment at once.
    ReconcileDeployment(DeploymentToReconcile),
    /// Ask Flux to reconcile all deployments of a cluster at once.
    ReconcileCluster(ClusterToReconcile),
    /// Delete a deployment.
    DeleteDeployment(DeploymentToDelete),
    /// Bind all deployments of a host to another one.
    MoveHost(HostToMove),
    /// Write a sealed value as one key of a Secret.
    PutSecret(SecretToPut),
    /// Delete keys of a Secret.
    DeleteSecret(SecretToDelete),
    /// Make a token.
    CreateToken(TokenToCreate),
    /// Revoke a token.
    RevokeToken(TokenToRevoke),
    /// Hold the rollout of a chart template, or resume it.
    HoldRollout(RolloutToHold),
    /// Let later waves not wait for a cluster.
    FreeRollout(RolloutToFree),
    /// Say that they look after an alert.
    AcknowledgeAlert(AlertToAcknowledge),
    /// Ask an Edge Node for its birth.
    Rebirth(NodeToBeBorn),
    /// Write a metric of an Edge Node.
    WriteMetric(MetricToWrite),
    /// Create an object.
    CreateObject(NewObject),
    /// Ask ConfigDB for what happened to an object.
    ReadHistory(ObjectHistory),
    /// Write an entry.
    PutEntry(EntryToPut),
    /// Delete an entry.
    DeleteEntry(EntryToDelete),
}

/// `cluster.create`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewCluster {
    name: String,
    namespace: Option<String>,
    #[serde(default)]
    bare: bool,
}

/// `cluster.delete`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterToDelete {
    cluster: Uuid,
    /// Delete its deployments, too; without it a cluster that has some is kept.
    #[serde(default)]
    with_deployments: bool,
}

/// `cluster.bootstrap`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterToBootstrap {
    /// Which.
    pub cluster: Uuid,
    /// Seconds that the command can be used.
    pub expires_s: Option<u64>,
}

/// `cluster.wave`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterWave {
    cluster: Uuid,
    wave: u8,
}

/// `deployment.create`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedDeployment {
    cluster: Uuid,
    name: String,
    /// UUID or name of a chart template.
    chart: String,
    host: Option<String>,
    values: Option<JsonObject>,
}

/// `deployment.move`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentMove {
    deployment: Uuid,
    /// None: floating.
    host: Option<String>,
}

/// `deployment.suspend`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentToSuspend {
    deployment: Uuid,
    /// It is resumed.
    #[serde(default)]
    withdraw: bool,
}

/// `deployment.reconcile`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentToReconcile {
    deployment: Uuid,
}

/// `cluster.reconcile`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterToReconcile {
    cluster: Uuid,
}

/// `deployment.delete`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentToDelete {
    deployment: Uuid,
}

/// `host.move`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostToMove {
    cluster: Uuid,
    /// Name of the host.
    host: String,
    /// None: floating.
    to: Option<String>,
}

/// `secret.put`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretToPut {
    cluster: Uuid,
    namespace: Option<String>,
    name: String,
    key: String,
    /// The value, sealed for the cluster's certificate: base64, as `kubeseal --raw` prints it.
    sealed: String,
    /// Fingerprint of the certificate that it is sealed for; None: of the cluster's.
    fingerprint: Option<String>,
    #[serde(default)]
    scope: SealingScope,
    #[serde(rename = "type")]
    secret_type: Option<String>,
}

/// `secret.delete`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretToDelete {
    cluster: Uuid,
    namespace: Option<String>,
    name: String,
    keys: Vec<String>,
}

/// `token.create`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenToCreate {
    name: String,
    scope: TokenScope,
    /// None: all.
    clusters: Option<Vec<Uuid>>,
    /// Seconds that it lives.
    expires_s: Option<u64>,
    /// SHA-256 of its text, hexadecimal: made where the request was read, and never in it.
    #[serde(skip)]
    pub hash: String,
}

/// `token.revoke`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenToRevoke {
    name: String,
}

/// `rollout.hold`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutToHold {
    /// Chart template.
    template: Uuid,
    /// Why.
    note: Option<String>,
    /// It is resumed.
    #[serde(default)]
    withdraw: bool,
}

/// `rollout.free`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutToFree {
    /// Chart template.
    template: Uuid,
    /// Later waves do not wait for this cluster.
    cluster: Uuid,
    /// Why.
    note: Option<String>,
    /// They wait for it again.
    #[serde(default)]
    withdraw: bool,
}

/// `alert.acknowledge`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertToAcknowledge {
    /// Its key in table `alerts`.
    alert: String,
    /// What they do about it.
    note: Option<String>,
    /// Seconds for which it is silenced; None: it is acknowledged until it ends.
    silence_s: Option<u64>,
    /// No user looks after it any more.
    #[serde(default)]
    withdraw: bool,
}

/// `node.rebirth`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeToBeBorn {
    /// `GROUP/NODE`
    node: String,
}

/// `metric.write`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricToWrite {
    /// `GROUP/NODE`
    node: String,
    /// Of which device; None: a metric of the node itself.
    device: Option<String>,
    /// Its name.
    metric: String,
    /// As a user types it; read by the datatype that the birth gives.
    value: String,
}

/// `object.create`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewObject {
    /// None: one is made of the key of the action.
    object: Option<Uuid>,
    /// The class that it belongs to.
    class: Uuid,
    /// Its name, in its `Info` entry.
    name: String,
}

/// `object.history`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectHistory {
    /// Of which object.
    pub object: Uuid,
    /// Only of this application.
    application: Option<String>,
    /// From this revision on; None: from the beginning. At most [`HISTORY_LIMIT_MAX`] changes come.
    since: Option<u64>,
}

/// `entry.put`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryToPut {
    object: Uuid,
    /// Slug of the application.
    application: String,
    value: Value,
    /// ETag of the entry that this one replaces; None: there is none yet.
    etag: Option<Uuid>,
}

/// `entry.delete`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryToDelete {
    object: Uuid,
    application: String,
    etag: Uuid,
}

/// What an action comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// Requests, one after the other; the first one that is refused ends it.
    Writes(Vec<WriteRequest>),
    /// An Edge Node is asked for its birth.
    Rebirth(EdgeNodeDescriptor),
    /// ConfigDB is asked for changes of the past.
    Replay(ReplayRequest),
    /// A metric is written by a command.
    Command(MetricCommand),
}

/// A metric that is to have a value.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricCommand {
    /// Whose.
    pub node: EdgeNodeDescriptor,
    /// None: the node's own.
    pub device: Option<DeviceId>,
    /// Its name, datatype and wanted value.
    pub metric: Metric,
    /// The node reports the value already.
    pub is_reported: bool,
}

/// What an action is planned by.
#[derive(Debug, Clone, Copy)]
pub struct Replicas<'a> {
    /// The project's own services.
    pub fleet: &'a Fleet,
    /// Every Edge Node.
    pub explorer: &'a Explorer,
}

/// Why a request names no action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    /// There is none of that name.
    #[error("there is no such action; there are: {}", names())]
    Unknown,
    /// Its arguments.
    #[error("{0}")]
    Body(String),
}

fn names() -> String {
    ACTIONS.map(|(name, _)| name).join(", ")
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ActionError> {
    serde_json::from_slice(body).map_err(|error| ActionError::Body(error.to_string()))
}

/// The actions that a user may do on one cluster at least.
#[must_use]
pub fn allowed(principal: &Principal) -> Vec<&'static str> {
    let some_cluster = |grant: &Grant| grant.clusters.as_ref().and_then(|clusters| clusters.first().copied());
    let places: Vec<Option<Uuid>> = std::iter::once(None).chain(principal.grants.iter().map(some_cluster)).collect();
    let may = |operation: Operation| places.iter().any(|place| principal.may(operation, *place).is_ok());
    ACTIONS.into_iter().filter(|(_, operation)| may(*operation)).map(|(name, _)| name).collect()
}

impl Action {
    /// The action of that name with its arguments.
    ///
    /// # Errors
    /// [`ActionError`]
    pub fn parse(name: &str, body: &[u8]) -> Result<Self, ActionError> {
        Ok(match name {
            "cluster.create" => Self::CreateCluster(read(body)?),
            "cluster.delete" => Self::DeleteCluster(read(body)?),
            "cluster.bootstrap" => Self::Bootstrap(read(body)?),
            "cluster.wave" => Self::SetWave(read(body)?),
            "deployment.create" => Self::CreateDeployment(read(body)?),
            "deployment.move" => Self::MoveDeployment(read(body)?),
            "cluster.reconcile" => Self::ReconcileCluster(read(body)?),
            "deployment.suspend" => Self::SuspendDeployment(read(body)?),
            "deployment.reconcile" => Self::ReconcileDeployment(read(body)?),
            "deployment.delete" => Self::DeleteDeployment(read(body)?),
            "host.move" => Self::MoveHost(read(body)?),
            "secret.put" => Self::PutSecret(read(body)?),
            "secret.delete" => Self::DeleteSecret(read(body)?),
            "token.create" => Self::CreateToken(read(body)?),
            "token.revoke" => Self::RevokeToken(read(body)?),
            "rollout.hold" => Self::HoldRollout(read(body)?),
            "rollout.free" => Self::FreeRollout(read(body)?),
            "alert.acknowledge" => Self::AcknowledgeAlert(read(body)?),
            "node.rebirth" => Self::Rebirth(read(body)?),
            "metric.write" => Self::WriteMetric(read(body)?),
            "object.create" => Self::CreateObject(read(body)?),
            "object.history" => Self::ReadHistory(read(body)?),
            "entry.put" => Self::PutEntry(read(body)?),
            "entry.delete" => Self::DeleteEntry(read(body)?),
            _ => return Err(ActionError::Unknown),
        })
    }

    /// What it is for access rules.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self {
            Self::CreateCluster(_) => Operation::CreateCluster,
            Self::DeleteCluster(_) => Operation::DeleteCluster,
            Self::Bootstrap(_) => Operation::BootstrapLine,
            Self::SetWave(_) => Operation::SetWave,
            Self::CreateDeployment(_) => Operation::CreateDeployment,
            Self::MoveDeployment(_) | Self::MoveHost(_) => Operation::MoveDeployment,
            Self::SuspendDeployment(_) => Operation::SuspendDeployment,
            Self::ReconcileDeployment(_) | Self::ReconcileCluster(_) => Operation::ReconcileDeployment,
            Self::DeleteDeployment(_) => Operation::DeleteDeployment,
            Self::PutSecret(_) => Operation::PutSecret,
            Self::DeleteSecret(_) => Operation::DeleteSecret,
            Self::CreateToken(_) => Operation::CreateToken,
            Self::RevokeToken(_) => Operation::RevokeToken,
            Self::HoldRollout(_) => Operation::HoldRollout,
            Self::FreeRollout(_) => Operation::FreeRollout,
            Self::AcknowledgeAlert(_) => Operation::AcknowledgeAlert,
            Self::Rebirth(_) => Operation::AskRebirth,
            Self::WriteMetric(_) => Operation::WriteMetric,
            Self::CreateObject(_) | Self::PutEntry(_) => Operation::PutEntry,
            Self::ReadHistory(_) => Operation::ReadHistory,
            Self::DeleteEntry(_) => Operation::DeleteEntry,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CreateCluster(_) => "cluster.create",
            Self::DeleteCluster(_) => "cluster.delete",
            Self::Bootstrap(_) => "cluster.bootstrap",
            Self::SetWave(_) => "cluster.wave",
            Self::CreateDeployment(_) => "deployment.create",
            Self::MoveDeployment(_) => "deployment.move",
            Self::SuspendDeployment(_) => "deployment.suspend",
            Self::ReconcileDeployment(_) => "deployment.reconcile",
            Self::ReconcileCluster(_) => "cluster.reconcile",
            Self::DeleteDeployment(_) => "deployment.delete",
            Self::MoveHost(_) => "host.move",
            Self::PutSecret(_) => "secret.put",
            Self::DeleteSecret(_) => "secret.delete",
            Self::CreateToken(_) => "token.create",
            Self::RevokeToken(_) => "token.revoke",
            Self::HoldRollout(_) => "rollout.hold",
            Self::FreeRollout(_) => "rollout.free",
            Self::AcknowledgeAlert(_) => "alert.acknowledge",
            Self::Rebirth(_) => "node.rebirth",
            Self::WriteMetric(_) => "metric.write",
            Self::CreateObject(_) => "object.create",
            Self::ReadHistory(_) => "object.history",
            Self::PutEntry(_) => "entry.put",
            Self::DeleteEntry(_) => "entry.delete",
        }
    }

    /// The cluster that it concerns; the nil UUID where it is not known, so that only who may on all clusters may there.
    #[must_use]
    pub fn cluster(&self, fleet: &Fleet) -> Option<Uuid> {
        let of_deployment = |uuid: Uuid| {
            let entry: Option<EdgeDeployment> = fleet.config.document(uuid).ok().flatten();
            Some(entry.map_or(Uuid::nil(), |entry| entry.cluster))
        };
        match self {
            Self::CreateCluster(_) | Self::PutEntry(_) | Self::DeleteEntry(_) => None,
            Self::CreateToken(_) | Self::RevokeToken(_) => None,
            Self::HoldRollout(_) | Self::FreeRollout(_) | Self::CreateObject(_) | Self::ReadHistory(_) => None,
            Self::DeleteCluster(of) => Some(of.cluster),
            Self::Bootstrap(of) => Some(of.cluster),
            Self::SetWave(of) => Some(of.cluster),
            Self::CreateDeployment(of) => Some(of.cluster),
            Self::MoveDeployment(of) => of_deployment(of.deployment),
            Self::SuspendDeployment(of) => of_deployment(of.deployment),
            Self::ReconcileDeployment(of) => of_deployment(of.deployment),
            Self::ReconcileCluster(of) => Some(of.cluster),
            Self::DeleteDeployment(of) => of_deployment(of.deployment),
            Self::MoveHost(of) => Some(of.cluster),
            Self::PutSecret(of) => Some(of.cluster),
            Self::DeleteSecret(of) => Some(of.cluster),
            Self::AcknowledgeAlert(of) => {
                let alert = alert(fleet, &of.alert).ok().filter(|alert| alert.cluster.is_some());
                Some(alert.and_then(|alert| fleet.alert_object(&alert)).unwrap_or_default())
            }
            Self::Rebirth(of) => Some(cluster_of_node(fleet, &of.node)),
            Self::WriteMetric(of) => Some(cluster_of_node(fleet, &of.node)),
        }
    }

    /// What it is about, for the record and for people.
    #[must_use]
    pub fn target(&self, fleet: &Fleet) -> String {
        match self {
            Self::CreateCluster(of) => of.name.clone(),
            Self::DeleteCluster(of) => fleet.name_of(of.cluster),
            Self::Bootstrap(of) => fleet.name_of(of.cluster),
            Self::SetWave(of) => format!("{} wave {}", fleet.name_of(of.cluster), of.wave),
            Self::CreateDeployment(of) => format!("{}/{}", fleet.name_of(of.cluster), of.name),
            Self::MoveDeployment(of) => {
                format!("{} to {}", fleet.name_of(of.deployment), of.host.as_deref().unwrap_or("no host"))
            }
            Self::SuspendDeployment(of) if of.withdraw => format!("{} resumed", fleet.name_of(of.deployment)),
            Self::SuspendDeployment(of) => fleet.name_of(of.deployment),
            Self::ReconcileDeployment(of) => fleet.name_of(of.deployment),
            Self::ReconcileCluster(of) => fleet.name_of(of.cluster),
            Self::DeleteDeployment(of) => fleet.name_of(of.deployment),
            Self::MoveHost(of) => {
                let to = of.to.as_deref().unwrap_or("no host");
                format!("all of {}/{} to {to}", fleet.name_of(of.cluster), of.host)
            }
            Self::PutSecret(of) => {
                let namespace = of.namespace.as_deref().unwrap_or(NAMESPACE);
                format!("{} {namespace}/{}/{}", fleet.name_of(of.cluster), of.name, of.key)
            }
            Self::DeleteSecret(of) => {
                let namespace = of.namespace.as_deref().unwrap_or(NAMESPACE);
                format!("{} {namespace}/{}/{}", fleet.name_of(of.cluster), of.name, of.keys.join(","))
            }
            Self::CreateToken(of) => format!("token {}", of.name),
            Self::RevokeToken(of) => format!("token {}", of.name),
            Self::HoldRollout(of) if of.withdraw => format!("rollout of {} resumed", fleet.name_of(of.template)),
            Self::HoldRollout(of) => format!("rollout of {}", fleet.name_of(of.template)),
            Self::FreeRollout(of) => {
                let how = if of.withdraw { "waits for" } else { "without" };
                format!("rollout of {} {how} {}", fleet.name_of(of.template), fleet.name_of(of.cluster))
            }
            Self::AcknowledgeAlert(of) if of.withdraw => format!("{} withdrawn", of.alert),
            Self::AcknowledgeAlert(of) => match of.silence_s {
                Some(seconds) => format!("{} silenced for {seconds} s", of.alert),
                None => of.alert.clone(),
            },
            Self::Rebirth(of) => of.node.clone(),
            Self::WriteMetric(of) => {
                let device = of.device.as_ref().map_or_else(String::new, |device| format!("/{device}"));
                format!("{}{device} {} = {}", of.node, of.metric, of.value)
            }
            Self::CreateObject(of) => format!("object {} of class {}", of.name, of.class),
            Self::ReadHistory(of) => format!("history of {}", fleet.name_of(of.object)),
            Self::PutEntry(of) => format!("{}/{}", of.object, of.application),
            Self::DeleteEntry(of) => format!("{}/{}", of.object, of.application),
        }
    }

    /// What it comes to. `wall`: UTC ms. Every request has an id that begins with `id`.
    ///
    /// # Errors
    /// It cannot be done, as far as that is known before ConfigDB is asked.
    pub fn plan(&self, replicas: Replicas<'_>, id: &str, writer: &str, wall: u64) -> Result<Plan, RequestError> {
        let fleet = replicas.fleet;
        let author = |step: usize| Author { id: format!("{id}-{step}"), writer: writer.to_owned() };
        let one = |request| Ok(Plan::Writes(vec![request]));
        match self {
            Self::CreateCluster(of) => one(create_cluster(fleet, of, author(0))?),
            Self::DeleteCluster(of) => delete_cluster(fleet, of, author),
            Self::SetWave(of) => one(set_wave(fleet, of, author(0))?),
            Self::CreateDeployment(of) => one(create_deployment(fleet, of, wall, author(0))?),
            Self::MoveDeployment(of) => {
                one(requests::move_deployment(fleet, of.deployment, of.host.as_deref(), author(0))?)
            }
            Self::SuspendDeployment(of) => {
                one(requests::suspend_deployment(fleet, of.deployment, !of.withdraw, author(0))?)
            }
            Self::ReconcileDeployment(of) => {
                one(requests::reconcile_deployment(fleet, of.deployment, wall, author(0))?)
            }
            Self::ReconcileCluster(of) => {
                check_cluster(fleet, of.cluster)?;
                requests::reconcile_cluster(fleet, of.cluster, wall, author).map(Plan::Writes)
            }
            Self::DeleteDeployment(of) => {
                if fleet.config.entry(of.deployment, EdgeDeployment::slug()).is_none() {
                    return Err(missing("deployment", of.deployment));
                }
                one(requests::delete_deployment(of.deployment, author(0)))
            }
            Self::MoveHost(of) => {
                check_cluster(fleet, of.cluster)?;
                requests::move_host(fleet, of.cluster, &of.host, of.to.as_deref(), author).map(Plan::Writes)
            }
            Self::PutSecret(of) => one(put_secret(fleet, of, wall, author(0))?),
            Self::DeleteSecret(of) => {
                let place = of.place();
                one(requests::delete_secret_keys(fleet, place, &of.keys, wall, author(0))?)
            }
            Self::CreateToken(of) => one(create_token(fleet, of, wall, author(0))?),
            Self::RevokeToken(of) => one(requests::revoke_token(fleet, &of.name, author(0))?),
            Self::HoldRollout(of) => {
                let change = if of.withdraw { RolloutChange::Resume } else { RolloutChange::Hold };
                one(requests::decide_rollout(fleet, of.template, change, of.note.as_deref(), wall, author(0))?)
            }
            Self::FreeRollout(of) => one(free_rollout(fleet, of, wall, author(0))?),
            Self::AcknowledgeAlert(of) => one(acknowledge_alert(fleet, of, wall, author(0))?),
            Self::Rebirth(of) => node(&of.node).map(Plan::Rebirth),
            Self::WriteMetric(of) => write_metric(replicas, of).map(Plan::Command),
            Self::CreateObject(of) => one(create_object(fleet, of, id, author(0))?),
            Self::ReadHistory(of) => read_history(fleet, of, author(0)).map(Plan::Replay),
            Self::PutEntry(of) => {
                known_object(fleet, of.object)?;
                let Author { id, writer } = author(0);
                let request = WriteRequest::put(id, of.object).by(writer);
                one(request.entry(&*of.application, of.value.clone()).if_match(&*of.application, of.etag))
            }
            Self::DeleteEntry(of) => {
                known_object(fleet, of.object)?;
                let Author { id, writer } = author(0);
                let request = WriteRequest::put(id, of.object).by(writer);
                one(request.delete(&*of.application).if_match(&*of.application, Some(of.etag)))
            }
            Self::Bootstrap(_) => Err(RequestError::NotNow("a bootstrap command is made, not written".to_owned())),
        }
    }
}

/// The cluster in whose group an Edge Node is; nil: it is in no cluster's.
fn cluster_of_node(fleet: &Fleet, node: &str) -> Uuid {
    let group = node.split_once('/').map_or("", |(group, _)| group);
    let name = fleet.organisation().cluster_of_group(group);
    let cluster = fleet.clusters().into_iter().find(|row| name.as_ref().is_some_and(|n| n.as_str() == row.name));
    cluster.map_or(Uuid::nil(), |row| row.uuid)
}

fn node(text: &str) -> Result<EdgeNodeDescriptor, RequestError> {
    let (group, node) = text.split_once('/').unwrap_or((text, ""));
    let invalid = |rule: String| RequestError::Invalid { field: "node", rule };
    EdgeNodeDescriptor::parse(group, node).map_err(|error| invalid(error.to_string()))
}

/// The project's own services take commands with rules of their own, which a written metric would go around.
#[must_use]
pub fn is_own_service(fleet: &Fleet, node: &EdgeNodeDescriptor) -> bool {
    let organisation = fleet.organisation();
    let group = node.group.as_str();
    match organisation.cluster_of_group(group) {
        Some(_) => CLUSTER_NODES_RESERVED.contains(&node.edge_node.as_str()),
        None => organisation.has_group(group),
    }
}

fn write_metric(replicas: Replicas<'_>, of: &MetricToWrite) -> Result<MetricCommand, RequestError> {
    let invalid = |field, rule: String| RequestError::Invalid { field, rule };
    let node = node(&of.node)?;
    if is_own_service(replicas.fleet, &node) {
        let rule = "is a service of this fleet; other actions change what it does".to_owned();
        return Err(invalid("node", rule));
    }
    let device = of.device.as_deref().map(DeviceId::new).transpose();
    let device = device.map_err(|error| invalid("device", error.to_string()))?;
    let metric = replicas.explorer.written(&node, device.as_ref(), &of.metric, &of.value)?;
    let reported = replicas.explorer.metric(&node, device.as_ref(), &of.metric);
    let is_reported = reported.is_some_and(|reported| reported.value == metric.value);
    Ok(MetricCommand { node, device, metric, is_reported })
}

fn create_cluster(fleet: &Fleet, of: &NewCluster, author: Author) -> Result<WriteRequest, RequestError> {
    let namespace = of.namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned());
    let entry = EdgeCluster { name: of.name.clone(), namespace, bare: of.bare, ..EdgeCluster::default() };
    if fleet.cluster_entries().any(|(_, known)| known.name == of.name) {
        let rule = "there is a cluster of that name already".to_owned();
        return Err(RequestError::Invalid { field: "name", rule });
    }
    let request = requests::put_cluster(fleet, &entry, None, author)?;
    Ok(request.if_match(EdgeCluster::slug(), None))
}

impl SecretToDelete {
    fn place(&self) -> SecretPlace<'_> {
        let namespace = self.namespace.as_deref().unwrap_or(NAMESPACE);
        SecretPlace { cluster: self.cluster, namespace, name: &self.name }
    }
}

fn create_token(fleet: &Fleet, of: &TokenToCreate, wall: u64, author: Author) -> Result<WriteRequest, RequestError> {
    let lifetime = of.expires_s.map_or(TOKEN_LIFETIME, Duration::from_secs);
    let (hash, clusters) = (of.hash.clone(), of.clusters.clone());
    let wanted = NewToken { name: &of.name, hash, scope: of.scope, clusters, lifetime };
    requests::create_token(fleet, wanted, wall, author).map(|(request, _)| request)
}

/// Writes a sealed value, if it can be what is sealed for the certificate that the cluster has.
fn put_secret(fleet: &Fleet, of: &SecretToPut, wall: u64, author: Author) -> Result<WriteRequest, RequestError> {
    check_cluster(fleet, of.cluster)?;
    let invalid = |field, rule: String| RequestError::Invalid { field, rule };
    let no_certificate = "the cluster has published no sealing certificate yet; is its edge sync there?";
    let pem = fleet.sealing_certificate(of.cluster).ok_or_else(|| RequestError::NotNow(no_certificate.to_owned()))?;
    let certificate = SealingCertificate::from_pem(&pem, Duration::from_millis(wall))
        .map_err(|error| RequestError::NotNow(error.to_string()))?;
    let own = sealed_secrets::fingerprint(&pem).unwrap_or_default();
    if of.fingerprint.as_ref().is_some_and(|fingerprint| *fingerprint != own) {
        return Err(invalid("fingerprint", format!("the cluster's certificate is {own}; seal the value for that one")));
    }
    let (namespace, secret_type) =
        (of.namespace.as_deref().unwrap_or(NAMESPACE), of.secret_type.as_deref().unwrap_or("Opaque"));
    let request = sealed_secrets::Request { namespace, name: &of.name, scope: of.scope, secret_type };
    sealed_secrets::of_sealed(&certificate, request, &of.key, &of.sealed)
        .map_err(|error| invalid("sealed", error.to_string()))?;
    let place = SecretPlace { cluster: of.cluster, namespace, name: &of.name };
    let (scope, key, sealed, fingerprint) = (of.scope, of.key.as_str(), of.sealed.as_str(), own.as_str());
    let wanted = NewSecretValue { place, scope, secret_type, key, sealed, fingerprint };
    requests::put_secret_value(fleet, wanted, wall, author)
}

fn missing(field: &'static str, uuid: Uuid) -> RequestError {
    RequestError::Missing { field, wanted: uuid.to_string() }
}

fn alert(fleet: &Fleet, key: &str) -> Result<AlertRow, RequestError> {
    let missing = || RequestError::Missing { field: "alert", wanted: key.to_owned() };
    fleet.alerts().into_iter().find(|alert| alert.key() == key).ok_or_else(missing)
}

fn acknowledge_alert(
    fleet: &Fleet,
    of: &AlertToAcknowledge,
    wall: u64,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    let alert = alert(fleet, &of.alert)?;
    match of.withdraw {
        true => requests::withdraw_acknowledgements(fleet, &[&alert], wall, author),
        false => {
            let silence = of.silence_s.map(Duration::from_secs);
            requests::acknowledge_alerts(fleet, &[&alert], of.note.as_deref(), silence, wall, author)
        }
    }
}

fn free_rollout(fleet: &Fleet, of: &RolloutToFree, wall: u64, author: Author) -> Result<WriteRequest, RequestError> {
    let change = if of.withdraw { RolloutChange::WaitFor } else { RolloutChange::Pass };
    requests::decide_rollout(fleet, of.template, change(of.cluster), of.note.as_deref(), wall, author)
}

fn read_history(fleet: &Fleet, of: &ObjectHistory, author: Author) -> Result<ReplayRequest, RequestError> {
    known_object(fleet, of.object)?;
    let replay = ReplayRequest::new(author.id, of.object, of.since.unwrap_or(0));
    Ok(ReplayRequest { slug: of.application.clone(), limit: HISTORY_LIMIT_MAX, ..replay })
}

fn set_wave(fleet: &Fleet, of: &ClusterWave, author: Author) -> Result<WriteRequest, RequestError> {
    if !(1..=WAVE_MAX).contains(&of.wave) {
        let rule = format!("must be from 1 to {WAVE_MAX}");
        return Err(RequestError::Invalid { field: "wave", rule });
    }
    check_cluster(fleet, of.cluster)?;
    let slug = EdgeClusterRollout::slug();
    let etag = fleet.config.entry(of.cluster, slug).map(|entry| entry.etag);
    let before: EdgeClusterRollout = fleet.config.document(of.cluster).ok().flatten().unwrap_or_default();
    let request = WriteRequest::put(author.id, of.cluster).by(author.writer).if_match(slug, etag);
    let request = request.document(&EdgeClusterRollout { wave: of.wave, ..before });
    request.map_err(|error| RequestError::NotNow(error.to_string()))
}

fn create_object(fleet: &Fleet, of: &NewObject, id: &str, author: Author) -> Result<WriteRequest, RequestError> {
    let object = of.object.unwrap_or_else(|| address::v5(&["Object", id]));
    if fleet.config.object(object).is_some() {
        let rule = "there is an object of that UUID already".to_owned();
        return Err(RequestError::Invalid { field: "object", rule });
    }
    fleet.config.object(of.class).ok_or_else(|| missing("class", of.class))?;
    if of.name.trim().is_empty() {
        return Err(RequestError::Invalid { field: "name", rule: "must not be empty".to_owned() });
    }
    let Author { id, writer } = author;
    let request = WriteRequest::put(id, object).by(writer).create_object(of.class, None);
    let info = Info { name: of.name.clone(), ..Info::default() };
    let request = request.document(&info).map_err(|error| RequestError::NotNow(error.to_string()))?;
    Ok(request.if_match(Info::slug(), None))
}

fn known_object(fleet: &Fleet, object: Uuid) -> Result<(), RequestError> {
    fleet.config.object(object).map(drop).ok_or_else(|| missing("object", object))
}

fn delete_cluster(fleet: &Fleet, of: &ClusterToDelete, author: impl Fn(usize) -> Author) -> Result<Plan, RequestError> {
    check_cluster(fleet, of.cluster)?;
    let name = fleet.name_of(of.cluster);
    if fleet.manager.cluster(of.cluster).is_some_and(|device| device.held().is_some()) {
        let reason = format!(
            "the edge of {name} waits for a decision, because this control plane was restored; see `sparkfleet recover status {name}`"
        );
        return Err(RequestError::NotNow(reason));
    }
    let own: Vec<(Uuid, String)> = fleet
        .deployment_entries()
        .filter(|(_, entry)| entry.cluster == of.cluster)
        .map(|(uuid, entry)| (uuid, entry.name))
        .collect();
    if !own.is_empty() && !of.with_deployments {
        let names = own.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ");
        let reason = format!("{name} has deployments: {names}; delete them first, or set with_deployments");
        return Err(RequestError::NotNow(reason));
    }
    let deployments = own.iter().zip(1..).map(|((uuid, _), step)| requests::delete_deployment(*uuid, author(step)));
    let cluster = requests::delete_cluster(of.cluster, author(0));
    Ok(Plan::Writes(deployments.chain([cluster]).collect()))
}

fn create_deployment(
    fleet: &Fleet,
    of: &WantedDeployment,
    wall: u64,
    author: Author,
) -> Result<WriteRequest, RequestError> {
    check_cluster(fleet, of.cluster)?;
    let mut charts = Uuid::try_parse(&of.chart).ok().into_iter().chain(fleet.named(&of.chart));
    let chart = charts.next();
    let chart = chart.ok_or_else(|| RequestError::Missing { field: "chart", wanted: of.chart.clone() })?;
    let is_taken = |(_, entry): (Uuid, EdgeDeployment)| entry.cluster == of.cluster && entry.name == of.name;
    if fleet.deployment_entries().any(is_taken) {
        let rule = "the cluster has a deployment of that name already".to_owned();
        return Err(RequestError::Invalid { field: "name", rule });
    }
    let WantedDeployment { cluster, name, host, values, .. } = of.clone();
    let request = requests::put_deployment(fleet, NewDeployment { cluster, name, chart, host, values }, wall, author)?;
    Ok(request.if_match(EdgeDeployment::slug(), None))
}

#[cfg(test)]
mod tests;
