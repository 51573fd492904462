//! Active alerts: those of the monitors, and those that no monitor can raise because the service that would is away. The number of alerts, wherever it is shown, is that of these rows.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use cluster_manager_contract::{ClusterDevice, SetupState};
use configdb_schema::address::{self, ClusterName};
use configdb_schema::document::{AlertAcknowledgement, AlertAcknowledgements};
use configdb_schema::known;
use configdb_schema::timestamp::from_text;
use edge_monitor_contract::{AlertKind, BIRTH_REFUSED, MonitorView, MonitoredNodeDevice, NodeState, Presence};
use edge_sync_contract::SyncReplica;
use join_service_contract::HostState;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use sparkplug::EdgeNodeDescriptor;
use uuid::Uuid;

use crate::{Fleet, JoiningHostRow};

const NO_GIT: &str = "the git server is not alive: clusters keep what they have, and fetch nothing new";

/// Where it stands who looks after alerts of the central services.
const CENTRAL: Uuid = known::service::CLUSTER_MANAGER;

/// Name of a kind of alert. It has a name of its own so that serde does not take it for a text that is borrowed from what it reads.
pub(crate) type AlertName = &'static str;

/// All kinds.
const ALERTS: [AlertName; 14] = [
    "Offline",
    "Will_Not_Reload",
    "Held",
    "Unknown_Cluster",
    "Identity",
    "Locked_Out",
    "Moved_Disk",
    "Store",
    "Authority",
    "Git_Server",
    "Repository",
    "Revocations",
    "Second_Speaker",
    "Disk_Space",
];

/// An active alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertRow {
    /// Name of the cluster that it is about; None: it is about a central service.
    pub cluster: Option<String>,
    /// Which node it is about; None: the cluster as a whole.
    pub node: Option<String>,
    /// Its kind.
    ///
    /// - `Offline` and `Will_Not_Reload`: of a node that a monitor watches.
    /// - `Held`: the edge waits for an operator's decision.
    /// - `Unknown_Cluster`: an edge runs whose cluster ConfigDB does not have, as after its loss.
    /// - `Identity`: an operator should look at the cluster's certificates and tokens.
    /// - `Locked_Out`: a member was refused its keys.
    /// - `Moved_Disk`: a machine has the state disk of another host.
    /// - `Store`: ConfigDB's disk.
    /// - `Authority`: no certificate is issued: Identity has other keys than ConfigDB names, or its certificate has expired.
    /// - `Git_Server`: no one reaches repositories.
    /// - `Repository`: the git server has not everything of a repository.
    /// - `Revocations`: a revocation list is not renewed, or cannot be written.
    /// - `Second_Speaker`: another process, or someone who forges births, speaks for a service's Edge Node.
    /// - `Disk_Space`: the disk of a service's state directory has little room.
    #[serde(deserialize_with = "known_alert")]
    pub alert: AlertName,
    /// Since when, UTC ms; None: not known.
    pub since: Option<u64>,
    /// Why it is active.
    pub reason: String,
    /// Who says so.
    pub monitor: String,
    /// Who looks after it; None: no user has said that they do.
    pub acknowledged: Option<Acknowledged>,
}

/// A user looks after an alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    /// Who: the writer of the entry.
    pub by: String,
    /// When they said so, UTC ms; None: the entry holds no time.
    pub at: Option<u64>,
    /// What they do about it.
    pub note: Option<String>,
    /// Until when the alert is silenced, UTC ms; None: it is looked after until it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

impl From<&AlertAcknowledgement> for Acknowledged {
    fn from(known: &AlertAcknowledgement) -> Self {
        let until = known.until.as_deref().and_then(from_text);
        Self { by: known.by.clone(), at: from_text(&known.at), note: known.note.clone(), until }
    }
}

impl AlertRow {
    /// The alert that the central monitor does not answer, which it cannot raise itself.
    #[must_use]
    pub fn of_central_monitor() -> Self {
        Self {
            cluster: None,
            node: Some(address::MONITOR_NODE.to_owned()),
            alert: "Offline",
            since: None,
            reason: "the central monitor does not answer: no service watches the monitors of the clusters".to_owned(),
            monitor: "sparkfleet".to_owned(),
            acknowledged: None,
        }
    }

    /// Names it among all active alerts: `CLUSTER/NODE/ALERT/MONITOR`, with nothing in place of what it has not.
    #[must_use]
    pub fn key(&self) -> String {
        let subject = [self.cluster.as_deref(), self.node.as_deref()].map(Option::unwrap_or_default).join("/");
        format!("{subject}/{}/{}", self.alert, self.monitor)
    }

    /// The part of its reason by which it is recognised where it is not known since when it is active.
    pub(crate) fn sign(&self) -> Option<String> {
        self.since.is_none().then(|| self.reason.chars().take(AlertAcknowledgement::REASON_CHARS).collect())
    }

    /// The order of lists: the oldest first, before it those of which it is not known since when they are active.
    #[must_use]
    pub fn by_age(&self, other: &Self) -> Ordering {
        let key = |row: &Self| (row.since, row.cluster.clone(), row.node.clone(), row.alert, row.monitor.clone());
        key(self).cmp(&key(other))
    }

    /// What it is about: `CLUSTER/NODE`.
    #[must_use]
    pub fn subject(&self) -> String {
        let parts = [self.cluster.as_deref(), self.node.as_deref()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    }
}

impl Fleet {
    /// Active alerts of all clusters and of what the central monitor watches, the oldest first.
    #[must_use]
    pub fn alerts(&self) -> Vec<AlertRow> {
        let counts = self.counts();
        // What a dead monitor has raised stays for people to see, unless its cluster was deleted.
        let counted = |(at, view): &(&EdgeNodeDescriptor, &MonitorView)| match view.presence() {
            Presence::Alive => true,
            Presence::Stale | Presence::Dead => counts(at, Presence::Stale),
        };
        let monitors = self.monitors.monitors().filter(counted);
        let mut rows: Vec<AlertRow> = monitors.flat_map(|(monitor, view)| self.raised_by(monitor, view)).collect();
        // A refused cluster has the name of another one, whose alerts these would seem to be.
        let clusters = self.manager.clusters().filter(|(_, cluster)| cluster.setup.state != SetupState::Refused);
        for (uuid, cluster) in clusters {
            let is_alive = self.sync(&cluster.name).is_some_and(SyncReplica::is_alive);
            let is_wanted = cluster.setup.state != SetupState::Deleting;
            if is_wanted && !is_alive && self.was_seen(uuid, Some(cluster)) {
                rows.push(self.sync_away(cluster));
            }
            rows.extend(cluster.held().map(|reason| AlertRow {
                cluster: Some(cluster.name.clone()),
                node: None,
                alert: "Held",
                since: cluster.desired.held_since,
                reason: reason.to_owned(),
                monitor: self.manager.node().to_string(),
                acknowledged: None,
            }));
            rows.extend(cluster.identity.alert.as_ref().map(|alert| AlertRow {
                cluster: Some(cluster.name.clone()),
                node: None,
                alert: "Identity",
                since: None,
                reason: alert.clone(),
                monitor: self.manager.node().to_string(),
                acknowledged: None,
            }));
        }
        rows.extend(self.manager.unknown_clusters().map(|(name, uuid)| self.unknown_cluster(name, uuid)));
        rows.extend(self.joining_hosts(None).iter().filter_map(|row| self.joining_alert(row)));
        rows.extend(self.config.alert().map(|reason| own_alert(self.config.node(), "Store", reason)));
        let authority = self.identity.authority_alert();
        rows.extend(authority.map(|reason| own_alert(self.identity.node(), "Authority", reason)));
        let revocations = self.identity.revocations_alert();
        rows.extend(revocations.map(|reason| own_alert(self.identity.node(), "Revocations", reason)));
        let is_away = self.manager.git_alive() == Some(false);
        rows.extend(is_away.then(|| AlertRow {
            node: Some(address::GIT_NODE.to_owned()),
            ..own_alert(self.manager.node(), "Git_Server", NO_GIT)
        }));
        rows.extend(self.manager.repositories_not_served().map(|(path, reason)| AlertRow {
            node: Some(path.to_owned()),
            ..own_alert(self.manager.node(), "Repository", reason)
        }));
        rows.extend(self.said_by_nodes("Second_Speaker", &self.contested));
        rows.extend(self.said_by_nodes("Disk_Space", &self.disks));
        let is_dead = self.central_monitor().is_some_and(|view| view.presence() == Presence::Dead);
        rows.extend(is_dead.then(AlertRow::of_central_monitor));
        self.note_acknowledgements(&mut rows);
        rows.sort_by(AlertRow::by_age);
        rows
    }

    /// That no one watches the monitors of the clusters, because the central one has never been received. Only who has asked for its birth and waited can know. That it died is
    /// one of [`Fleet::alerts`].
    #[must_use]
    pub fn central_monitor_away(&self) -> Option<AlertRow> {
        let is_listed = self.central_monitor().is_some_and(|view| view.presence() == Presence::Dead);
        (!is_listed && !self.is_central_monitor_alive()).then(AlertRow::of_central_monitor)
    }

    /// What nodes of services say of themselves, with the moment since when.
    fn said_by_nodes<'a>(
        &'a self,
        alert: AlertName,
        said: &'a BTreeMap<EdgeNodeDescriptor, (String, u64)>,
    ) -> impl Iterator<Item = AlertRow> + 'a {
        let (central, is_gone) = (self.organisation().central_group(), self.gone());
        let living = said.iter().filter(move |(node, _)| !is_gone(node));
        living.filter_map(move |(node, (reason, since))| {
            let cluster = self.organisation().cluster_of_group(node.group.as_str());
            (cluster.is_some() || node.group.as_str() == central).then(|| AlertRow {
                cluster: cluster.map(|name| name.as_str().to_owned()),
                node: Some(node.edge_node.to_string()),
                alert,
                since: Some(*since),
                reason: reason.clone(),
                monitor: node.to_string(),
                acknowledged: None,
            })
        })
    }

    /// The central monitor as it was received.
    #[must_use]
    pub fn central_monitor(&self) -> Option<&MonitorView> {
        let central = self.organisation().central_group();
        let node = EdgeNodeDescriptor::parse(&central, address::MONITOR_NODE).ok()?;
        self.monitors.monitor(&node)
    }

    /// Whether the central monitor is alive.
    #[must_use]
    pub fn is_central_monitor_alive(&self) -> bool {
        self.central_monitor().is_some_and(|view| view.presence() == Presence::Alive)
    }

    fn raised_by<'a>(
        &'a self,
        monitor: &'a EdgeNodeDescriptor,
        view: &'a MonitorView,
    ) -> impl Iterator<Item = AlertRow> + 'a {
        let is_central = monitor.group.as_str() == self.organisation().central_group();
        view.devices().flat_map(move |(id, device)| {
            // The central monitor watches one monitor in each group, and names its Device by the group.
            let group = if is_central { id.as_str() } else { monitor.group.as_str() };
            let cluster = self.organisation().cluster_of_group(group).map(|name| name.as_str().to_owned());
            let node = if is_central && cluster.is_some() { address::MONITOR_NODE } else { id.as_str() };
            let active = AlertKind::ALL.into_iter().filter(|kind| device.alert(*kind).active);
            let rows = active.map(|kind| AlertRow {
                cluster: cluster.clone(),
                node: Some(node.to_owned()),
                alert: match kind {
                    AlertKind::Offline => "Offline",
                    AlertKind::WillNotReload => "Will_Not_Reload",
                },
                since: Some(device.alert(kind).since),
                reason: reason(kind, device, view.presence()),
                monitor: monitor.to_string(),
                acknowledged: None,
            });
            rows.collect::<Vec<_>>()
        })
    }

    /// What the join service says of a host that someone should look at.
    fn joining_alert(&self, row: &JoiningHostRow) -> Option<AlertRow> {
        let (alert, meaning) = match row.state {
            HostState::LockedOut => ("Locked_Out", "a member was refused its keys, and its state disk stays closed"),
            _ if row.has_foreign_disk => ("Moved_Disk", "a machine asks for the keys of a disk that is another host's"),
            _ => return None,
        };
        let detail = row.detail.as_deref().or(row.verdict.as_deref()).unwrap_or_default();
        let group = self.organisation().cluster_group(&ClusterName::new(row.cluster.clone()).ok()?);
        Some(AlertRow {
            cluster: Some(row.cluster.clone()),
            node: Some(row.title()),
            alert,
            since: None,
            reason: format!("{meaning}: {detail}"),
            monitor: format!("{group}/{}", address::JOIN_NODE),
            acknowledged: None,
        })
    }

    /// There is no entry of the cluster that could say who looks after the alert, so it is one of the central services.
    fn unknown_cluster(&self, name: &str, uuid: Uuid) -> AlertRow {
        AlertRow {
            cluster: None,
            node: Some(name.to_owned()),
            alert: "Unknown_Cluster",
            since: None,
            reason: format!(
                "the edge of cluster {name} ({uuid}) is alive, and ConfigDB does not have that cluster; if it was lost: sparkfleet recover adopt {name}; if it was deleted: stop what runs there"
            ),
            monitor: self.manager.node().to_string(),
            acknowledged: None,
        }
    }

    fn sync_away(&self, cluster: &ClusterDevice) -> AlertRow {
        AlertRow {
            cluster: Some(cluster.name.clone()),
            node: Some(address::SYNC_NODE.to_owned()),
            alert: "Offline",
            since: cluster.sync_since.filter(|_| !cluster.sync_alive),
            reason: "edge sync is not alive: no change reaches the cluster, and nothing new is known of it".to_owned(),
            monitor: self.manager.node().to_string(),
            acknowledged: None,
        }
    }

    /// Says of each who looks after it.
    fn note_acknowledgements(&self, rows: &mut [AlertRow]) {
        if rows.is_empty() {
            return;
        }
        let clusters: BTreeMap<&str, Uuid> = self.alerting_clusters().collect();
        let mut known: BTreeMap<Option<String>, AlertAcknowledgements> = BTreeMap::new();
        for row in rows {
            let of_cluster = known.entry(row.cluster.clone()).or_insert_with(|| {
                let object = row.cluster.as_deref().map_or(Some(CENTRAL), |name| clusters.get(name).copied());
                object.map(|object| self.acknowledgements(object)).unwrap_or_default()
            });
            let found = of_cluster.alerts.get(&row.key());
            // A silence is for a time, also where the alert ends meanwhile and becomes active again.
            let is_meant = |found: &&AlertAcknowledgement| match &found.until {
                Some(until) => from_text(until).is_some_and(|until| until > self.wall()),
                None => found.since == row.since && found.reason == row.sign(),
            };
            row.acknowledged = found.filter(is_meant).map(Acknowledged::from);
        }
    }

    /// A refused cluster has the name of another one, whose alerts its own would seem to be.
    fn alerting_clusters(&self) -> impl Iterator<Item = (&str, Uuid)> {
        let named = self.manager.clusters().filter(|(_, cluster)| cluster.setup.state != SetupState::Refused);
        named.map(|(uuid, cluster)| (cluster.name.as_str(), uuid))
    }

    pub(crate) fn acknowledgements(&self, object: Uuid) -> AlertAcknowledgements {
        self.config.document(object).ok().flatten().unwrap_or_default()
    }

    /// The object whose entry says who looks after an alert: its cluster's. None: its cluster is not known.
    #[must_use]
    pub fn alert_object(&self, alert: &AlertRow) -> Option<Uuid> {
        match alert.cluster.as_deref() {
            None => Some(CENTRAL),
            Some(wanted) => self.alerting_clusters().find(|(name, _)| *name == wanted).map(|(_, uuid)| uuid),
        }
    }
}

/// An alert that a central service raises about itself.
fn own_alert(node: &EdgeNodeDescriptor, alert: &'static str, reason: &str) -> AlertRow {
    AlertRow {
        cluster: None,
        node: Some(node.edge_node.to_string()),
        alert,
        since: None,
        reason: reason.to_owned(),
        monitor: node.to_string(),
        acknowledged: None,
    }
}

fn known_alert<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AlertName, D::Error> {
    let text = String::deserialize(deserializer)?;
    let known = ALERTS.into_iter().find(|known| *known == text);
    known.ok_or_else(|| D::Error::custom("an alert that this version does not know"))
}

fn reason(kind: AlertKind, device: &MonitoredNodeDevice, presence: Presence) -> String {
    let reason = match (kind, device.state) {
        (AlertKind::WillNotReload, _) => {
            let revision = |revision: &Option<String>| revision.clone().unwrap_or_else(|| "none".to_owned());
            let (wanted, reported) = (revision(&device.config_wanted), revision(&device.config_reported));
            format!("it was asked to reload its configuration: wanted is revision {wanted}, it reports {reported}")
        }
        (AlertKind::Offline, NodeState::Offline) => "its death was received; only a birth ends this".to_owned(),
        (AlertKind::Offline, NodeState::Silent) => "nothing was received from it for three intervals".to_owned(),
        (AlertKind::Offline, _) => "it was not born in time".to_owned(),
    };
    let refused = device.reason.as_ref().filter(|_| kind == AlertKind::Offline);
    let refused = refused.and_then(|reason| Some(&reason[reason.find(BIRTH_REFUSED)?..]));
    let reason = refused.map_or_else(|| reason.clone(), |refused| format!("{reason}; {refused}"));
    if presence == Presence::Alive { reason } else { format!("{reason}; last known, its monitor is away itself") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_an_alert_says_why_the_birth_was_refused() {
        let refusal = format!("no birth was received yet; {}NBIRTH: bdSeq is missing", BIRTH_REFUSED);
        let device = MonitoredNodeDevice { reason: Some(refusal), ..MonitoredNodeDevice::default() };
        let offline = reason(AlertKind::Offline, &device, Presence::Alive);
        assert_eq!(offline, "it was not born in time; a birth was refused: NBIRTH: bdSeq is missing");
        assert!(!reason(AlertKind::WillNotReload, &device, Presence::Alive).contains("NBIRTH"));
    }
}
