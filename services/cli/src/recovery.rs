//! What a cluster's edge has and ConfigDB has, side by side; and the writes that bring ConfigDB to what the edge has. Pure.

use std::collections::BTreeSet;

use configdb_contract::{ObjectReplica, WriteRequest};
use configdb_schema::document::{
    AttestationPolicy, EdgeCluster, EdgeClusterRecovery, EdgeClusterSetup, EdgeDeployment, RecoveryDecision,
};
use configdb_schema::{Document, known};
use edge_sync_contract::{DeploymentState, Entries, SyncReplica};
use join_service_contract::JoinReplica;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;
use sparkplug::replication::Point;
use uuid::Uuid;

use crate::output::shell_argument;
use fleet_view::Fleet;

/// A deployment by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Named {
    /// For people.
    pub name: String,
    /// Its object.
    pub uuid: Uuid,
}

/// How a cluster's edge and ConfigDB stand to each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Comparison {
    /// The cluster's name.
    pub cluster: String,
    /// Its object.
    pub uuid: Uuid,
    /// Why it holds what it is sent; None: it does not.
    pub held: Option<String>,
    /// ConfigDB has no `EdgeCluster` entry of it.
    pub is_unknown: bool,
    /// It accepted what it runs from another store.
    pub follows_another: bool,
    /// Deployments that ConfigDB has and the edge has not.
    pub only_here: Vec<Named>,
    /// Deployments that run at the edge and ConfigDB does not have: what a release would delete. By name.
    pub only_at_edge: Vec<Named>,
    /// Deployments whose entries are others here than those that run at the edge.
    pub different: Vec<Named>,
    /// The edge keeps other entries of the cluster itself than ConfigDB has, from a later state of the same store: values of its services, its name for people.
    pub cluster_differs: bool,
    /// Deployments at the edge that keep no entries to compare or to write back.
    pub without_entries: Vec<Named>,
    /// Epoch that an operator's decision needs.
    pub next_epoch: u64,
    /// Digest of the index that the edge has accepted: the decision counts for that one.
    pub accepted: Option<String>,
    /// State of ConfigDB's store that was compared: the decision counts for a store that contains it. None: what was received is not one state.
    #[serde(skip)]
    pub state: Option<Point>,
}

impl Comparison {
    /// Whether an operator has to decide before the cluster follows this control plane.
    #[must_use]
    pub(crate) const fn is_open(&self) -> bool {
        self.held.is_some() || self.is_unknown || self.follows_another
    }

    /// Whether ConfigDB has everything that runs at the edge, as it runs there.
    #[must_use]
    pub(crate) const fn has_all_of_edge(&self) -> bool {
        !self.is_unknown && !self.cluster_differs && self.only_at_edge.is_empty() && self.different.is_empty()
    }

    /// What is another here than at the edge, for people.
    #[must_use]
    pub(crate) fn all_different(&self) -> String {
        let own = self.cluster_differs.then_some("the cluster itself");
        own.into_iter().chain(self.different.iter().map(|named| named.name.as_str())).collect::<Vec<_>>().join(", ")
    }

    /// How it stands, for people.
    #[must_use]
    pub(crate) fn described(&self) -> String {
        match &self.held {
            Some(reason) => format!("held: {reason}"),
            None if self.is_unknown => "ConfigDB does not know this cluster".to_owned(),
            None if self.follows_another => "follows another store".to_owned(),
            None => "follows".to_owned(),
        }
    }
}

/// Whether everything that was asked for with `Recover/Entries` has been given, as far as the edge has it.
#[must_use]
pub(crate) fn has_given(sync: &SyncReplica) -> bool {
    let applied = sync.devices().deployments.values().filter(|device| device.runs());
    let own = sync.node().is_some_and(|node| node.cluster_entries.is_some());
    own && sync.is_complete() && applied.clone().count() == applied.filter(|device| device.entries.is_some()).count()
}

/// Compares one cluster. None: nothing was received from its Sync.
#[must_use]
pub(crate) fn compare(fleet: &Fleet, name: &str) -> Option<Comparison> {
    let sync = fleet.sync(name)?;
    let node = sync.node()?;
    let uuid = node.cluster_uuid;
    let join = fleet.join(name).and_then(JoinReplica::node);
    let held = node.desired_hold_reason.clone().or_else(|| join?.policy_hold_reason.clone());
    // The cluster manager holds what is in the repository.
    let held = held.or_else(|| fleet.manager.cluster(uuid)?.held().map(str::to_owned));
    let mut here: BTreeSet<Named> = fleet
        .deployment_entries()
        .filter(|(_, entry)| entry.cluster == uuid)
        .map(|(uuid, entry)| Named { name: entry.name, uuid })
        .collect();
    let mut comparison = Comparison {
        cluster: name.to_owned(),
        uuid,
        held,
        is_unknown: fleet.config.entry(uuid, EdgeCluster::slug()).is_none(),
        follows_another: node.desired_origin.is_some_and(|origin| Some(origin.store) != fleet.config.store()),
        only_here: Vec::new(),
        only_at_edge: Vec::new(),
        different: Vec::new(),
        cluster_differs: false,
        without_entries: Vec::new(),
        next_epoch: 0,
        accepted: node.desired_digest.map(|digest| digest.to_string()),
        state: fleet.config.state(),
    };
    let running = sync.devices().deployments.iter().filter(|(_, device)| device.state != DeploymentState::Deleting);
    for (uuid, device) in running {
        let named = Named { name: device.name.clone(), uuid: *uuid };
        let is_here = here.iter().any(|known| known.uuid == *uuid);
        here.retain(|known| known.uuid != *uuid);
        if device.entries.is_none() {
            comparison.without_entries.push(named.clone());
        }
        if !is_here {
            comparison.only_at_edge.push(named);
        } else if device.entries.as_ref().is_some_and(|kept| differs(fleet, *uuid, kept)) {
            comparison.different.push(named);
        }
    }
    // An edge keeps what it was sent with its last index. Of another store it may be the older one.
    let is_later = node.desired_held == Some(true) && !comparison.follows_another && !comparison.is_unknown;
    comparison.cluster_differs =
        is_later && node.cluster_entries.as_ref().is_some_and(|kept| differs(fleet, uuid, kept));
    comparison.only_at_edge.sort();
    comparison.only_here = here.into_iter().collect();
    let reported = [node.desired_origin, join.and_then(|join| join.policy_origin)];
    let newest = reported.into_iter().flatten().map(|origin| origin.epoch).max().unwrap_or(0);
    comparison.next_epoch = newest.max(fleet.config.epoch()).saturating_add(1);
    Some(comparison)
}

fn differs(fleet: &Fleet, uuid: Uuid, kept: &Entries) -> bool {
    kept.0.iter().any(|(slug, value)| {
        let here = fleet.config.entry(uuid, slug).and_then(|entry| entry.value().ok());
        here.as_ref() != Some(value)
    })
}

/// Why a cluster cannot be adopted: something at its edge cannot be written back, and would be deleted.
#[must_use]
pub(crate) fn obstacle(fleet: &Fleet, comparison: &Comparison) -> Option<String> {
    let lost: Vec<&str> = comparison
        .without_entries
        .iter()
        .filter(|named| comparison.only_at_edge.contains(named))
        .map(|named| named.name.as_str())
        .collect();
    if !lost.is_empty() {
        return Some(format!("the edge keeps no entries of {}; write them by hand first", lost.join(", ")));
    }
    // Under one name both would be one Edge Node.
    let twin = |named: &&Named| comparison.only_here.iter().any(|other| other.name == named.name);
    if let Some(named) = comparison.only_at_edge.iter().find(twin) {
        let name = &named.name;
        let title = shell_argument(&format!("{}/{name}", comparison.cluster));
        return Some(format!(
            "ConfigDB has another deployment with the name {name}; delete that one first: sparkfleet deployment delete {title}"
        ));
    }
    let record = fleet.config.document::<EdgeClusterSetup>(comparison.uuid).ok().flatten();
    if record.is_some_and(|record| record.is_deleting()) {
        let cluster = &comparison.cluster;
        return Some(format!(
            "ConfigDB tears it down, which deletes what runs there, also if it is created again; sparkfleet recover discard {cluster} lets that happen"
        ));
    }
    let kept = fleet.sync(&comparison.cluster).and_then(|sync| sync.node()?.cluster_entries.clone());
    let has_cluster = kept.is_some_and(|entries| entries.0.contains_key(EdgeCluster::slug()));
    (comparison.is_unknown && !has_cluster).then(|| {
        let Comparison { cluster, uuid, .. } = comparison;
        format!(
            "the edge keeps no EdgeCluster entry; create it first: sparkfleet cluster create {cluster} --uuid {uuid}"
        )
    })
}

/// The writes that bring ConfigDB to what runs at the edge: first the cluster, then what is on it. Ids and writer are the caller's.
#[must_use]
pub(crate) fn adoption(
    fleet: &Fleet,
    comparison: &Comparison,
    mut request: impl FnMut(Uuid) -> WriteRequest,
) -> [Vec<WriteRequest>; 2] {
    let Some(sync) = fleet.sync(&comparison.cluster) else { return Default::default() };
    let put = |request: WriteRequest, entries: &std::collections::BTreeMap<String, Value>| {
        entries.iter().fold(request, |request, (slug, value)| request.entry(slug.as_str(), value.clone()))
    };
    let own = sync.node().and_then(|node| node.cluster_entries.clone());
    let cluster = own.filter(|_| comparison.is_unknown || comparison.cluster_differs).map(|entries| {
        let request = request(comparison.uuid);
        let is_new = comparison.is_unknown;
        put(if is_new { request.create_object(known::class::EDGE_CLUSTER, None) } else { request }, &entries.0)
    });
    let mut on_it = Vec::new();
    for named in comparison.only_at_edge.iter().chain(&comparison.different) {
        let Some(entries) = sync.devices().deployments.get(&named.uuid).and_then(|device| device.entries.as_ref())
        else {
            continue;
        };
        let is_live = |object: &ObjectReplica| object.registration.as_ref().is_some_and(|known| !known.deleted);
        let written = match fleet.config.object(named.uuid).filter(|object| is_live(object)) {
            Some(_) => request(named.uuid),
            None => request(named.uuid).create_object(class_of(entries), None),
        };
        on_it.push(put(written, &entries.0));
    }
    let policy =
        fleet.join(&comparison.cluster).and_then(JoinReplica::node).and_then(|join| join.policy_entry.as_ref());
    let policy = policy.and_then(|text| serde_json::from_str::<Value>(text).ok());
    if let Some(policy) = policy.filter(|_| fleet.config.entry(comparison.uuid, AttestationPolicy::slug()).is_none()) {
        on_it.push(request(comparison.uuid).entry(AttestationPolicy::slug(), policy));
    }
    [cluster.into_iter().collect(), on_it]
}

/// The class that `sparkfleet deployment create` gives such a deployment.
fn class_of(entries: &Entries) -> Uuid {
    let entry = entries.0.get(EdgeDeployment::slug()).and_then(|entry| EdgeDeployment::deserialize(entry).ok());
    let is_agent = entry.is_some_and(|entry| entry.chart_templates() == [known::chart::EDGE_AGENT]);
    if is_agent { known::class::EDGE_AGENT } else { known::class::EDGE_DEPLOYMENT }
}

/// Their names, for people.
#[must_use]
pub(crate) fn names(named: &[Named]) -> String {
    named.iter().map(|named| named.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The write that releases the cluster.
///
/// # Errors
/// As [`decided`].
pub(crate) fn release(
    fleet: &Fleet,
    comparison: &Comparison,
    decision: RecoveryDecision,
    request: WriteRequest,
) -> anyhow::Result<WriteRequest> {
    decided(fleet, comparison, decision, request.create_object(known::class::EDGE_CLUSTER, None))
}

/// The write, with the decision that its cluster follows this control plane.
///
/// # Errors
/// Nothing was received from ConfigDB, or it was not one state of its store.
pub(crate) fn decided(
    fleet: &Fleet,
    comparison: &Comparison,
    decision: RecoveryDecision,
    request: WriteRequest,
) -> anyhow::Result<WriteRequest> {
    let store = fleet.config.store().ok_or_else(|| anyhow::anyhow!("ConfigDB does not say which store it has"))?;
    let recovery =
        EdgeClusterRecovery { store, epoch: comparison.next_epoch, decision, accepted: comparison.accepted.clone() };
    let state = comparison.state.ok_or_else(|| {
        anyhow::anyhow!("ConfigDB was publishing another state while it was compared; run the command again")
    })?;
    Ok(request.document(&recovery)?.if_contains(state))
}

#[cfg(test)]
mod tests;
