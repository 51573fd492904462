//! One cluster's Join node: which attestation policy it shall judge by, whether it says that it does, and when to say so again.
//!
//! A cluster's credentials reach no other group, so Join cannot read ConfigDB: the entry is brought to it. A cluster without an entry is told that there is none, and one that is
//! torn down as well: nobody joins it.

use std::time::Duration;

use cluster_manager_contract::JoinReport;
use configdb_schema::document::AttestationPolicy;
use configdb_schema::{ClusterName, Document, Organisation};
use join_service_contract::policy::{POLICY_BYTES_MAX, PolicyState};
use join_service_contract::{DesiredPolicy, JoinReplica, PolicyDigest, join_node};
use sparkplug::host::HostEvent;
use sparkplug::{EdgeNodeDescriptor, GroupId, Now};
use uuid::Uuid;

use super::ClusterManager;
use super::edge::{SentOrigin, sent_origin};
use super::repeat::Repeat;
use crate::event::Effect;
use crate::reconcile;

/// Most Join nodes that are listened to; more than any organisation has clusters.
const JOINS_MAX: usize = 20_000;

/// What tells one policy from the next: its version and digest, and what Join judges it by.
type SentPolicy = (u64, PolicyDigest, SentOrigin);

/// The policy of one cluster on its way.
#[derive(Debug, Clone)]
pub struct PolicyForwarding {
    assigned: Option<(u64, PolicyDigest)>,
    repeat: Option<Repeat<SentPolicy>>,
    report: JoinReport,
    retry: (Duration, Duration),
    seed: u64,
}

impl PolicyForwarding {
    /// Nothing was sent.
    pub fn new(retry: (Duration, Duration), seed: u64) -> Self {
        Self { assigned: None, repeat: None, report: JoinReport::default(), retry, seed }
    }

    /// Send what is not agreed again, at once.
    pub fn retry(&mut self) {
        self.repeat = None;
    }

    /// When there is something to repeat.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.repeat.as_ref().map(|repeat| repeat.next)
    }
}

/// The Join node of a cluster.
pub fn node(organisation: &Organisation, cluster: &ClusterName) -> Option<EdgeNodeDescriptor> {
    GroupId::new(organisation.cluster_group(cluster)).ok().map(join_node)
}

impl ClusterManager {
    /// Takes an event of somebody's Join node over.
    pub(super) fn on_join_event(&mut self, node: &EdgeNodeDescriptor, event: &HostEvent) {
        let Some(name) = self.settings.organisation.cluster_of_group(node.group.as_str()) else { return };
        let name = String::from(name);
        if !self.joins.contains_key(&name) {
            if self.joins.len() >= JOINS_MAX || !matches!(event, HostEvent::NodeBirth { .. }) {
                return;
            }
            self.joins.insert(name.clone(), JoinReplica::new(node.clone()));
        }
        let Some(join) = self.joins.get_mut(&name) else { return };
        if join.on_event(event).is_some()
            && let Some(clusters) = self.claims.get(&name)
        {
            self.dirty.extend(clusters);
        }
    }

    /// Whether the Join node of a cluster is to be asked for its birth: one that has a policy is waited for.
    pub(super) fn has_policy(&self, uuid: Uuid) -> bool {
        self.replica.entry(uuid, AttestationPolicy::slug()).is_some()
    }

    /// The policy that Join shall have, without its version.
    fn policy(&self, uuid: Uuid, deleting: bool) -> DesiredPolicy {
        let entry = self.replica.entry(uuid, AttestationPolicy::slug()).filter(|_| !deleting);
        DesiredPolicy {
            version: 0,
            revision: entry.map_or(0, |entry| entry.revision),
            entry: entry.map(|entry| entry.json.to_string()),
            ..DesiredPolicy::default()
        }
    }

    /// Compares the policy that a cluster's Join shall have with what it reports, and sends it until they agree.
    pub(super) fn forward_policy(&mut self, uuid: Uuid, name: &str, deleting: bool, now: Now) -> JoinReport {
        // Without knowing everything, that there is no entry cannot be concluded.
        let known = self.replica.is_complete() && self.replica.is_one_state();
        let mut desired = self.policy(uuid, deleting);
        desired.origin = self.origin(uuid);
        let revision = self.replica.revision().max(self.newest_revision);
        let join = self.joins.get(name).filter(|join| join.node().is_some_and(|node| node.cluster_uuid == uuid));
        let accepted = join.and_then(|join| join.node()?.policy_origin);
        desired.follows = accepted.and_then(|accepted| self.replica.follows(accepted));
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return JoinReport::default() };
        let forwarding = &mut cluster.policy;
        let Some((join, node)) = join.and_then(|join| Some((join, join.node()?))) else {
            forwarding.repeat = None;
            forwarding.report = JoinReport::default();
            return JoinReport::default();
        };
        let before = forwarding.report.clone();
        forwarding.report.alive = join.is_alive();
        forwarding.report.policy_state = Some(node.policy_state.to_string());
        forwarding.report.policy_revision = node.policy_revision;
        forwarding.report.policy_error.clone_from(&node.policy_error);
        let held = node.policy_held == Some(true);
        forwarding.report.policy_held = held.then(|| node.policy_hold_reason.clone().unwrap_or_default());
        if !join.is_alive() || !join.is_in_track() || !known {
            forwarding.repeat = None;
            forwarding.report.policy_agreed = false;
            return forwarding.report.clone();
        }
        let digest = desired.digest();
        let reported = (node.policy_version, node.policy_digest);
        let follows_us = reconcile::follows(desired.origin, node.policy_origin, node.policy_held);
        let agreed = node.policy_digest == Some(digest) && follows_us;
        desired.version = reconcile::version(reported, &mut forwarding.assigned, digest, revision);
        forwarding.report.policy_agreed = agreed;
        if agreed {
            forwarding.repeat = None;
        } else if desired.entry.as_ref().is_some_and(|entry| entry.len() > POLICY_BYTES_MAX) {
            forwarding.repeat = None;
            forwarding.report.policy_error =
                Some(format!("the entry has more than {POLICY_BYTES_MAX} bytes and is not sent"));
        } else if Repeat::send(
            &mut forwarding.repeat,
            (desired.version, digest, sent_origin(desired.origin, desired.follows, accepted)),
            forwarding.retry,
            forwarding.seed,
            now,
        ) {
            self.effects.push(Effect::Host(desired.to_request(join.address().clone())));
        }
        let report = forwarding.report.clone();
        tell(uuid, name, &before, &report, node.policy_state);
        report
    }
}

/// A policy by which nobody is admitted would wake an operator.
fn tell(uuid: Uuid, name: &str, before: &JoinReport, report: &JoinReport, state: PolicyState) {
    let is_new = (before.policy_agreed, before.policy_revision, &before.policy_error)
        != (report.policy_agreed, report.policy_revision, &report.policy_error);
    if !is_new {
        return;
    }
    let revision = report.policy_revision;
    match (&report.policy_error, state) {
        (Some(reason), PolicyState::Invalid) => {
            tracing::warn!(cluster_id = %uuid, name, revision, reason, "the attestation policy is refused: no host can join");
        }
        _ if report.policy_agreed => {
            tracing::info!(cluster_id = %uuid, name, revision, state = %state, "the attestation policy has reached the cluster");
        }
        _ => {}
    }
}
