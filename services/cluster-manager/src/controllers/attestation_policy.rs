//! Which attestation policy each cluster's Join shall judge by, whether it says that it does, and when to send it again.
//!
//! A cluster's credentials reach no other group, so Join cannot read ConfigDB: the entry is brought to it. A cluster without an entry gets the message that there is none, and so does one that is
//! torn down: no host joins it.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster_manager_contract::JoinReport;
use configdb_schema::Document;
use configdb_schema::document::AttestationPolicy;
use join_service_contract::policy::{POLICY_BYTES_MAX, PolicyState};
use join_service_contract::{DesiredPolicy, PolicyDigest};
use sparkplug::Now;
use sparkplug::replication::{Desired, DesiredSender, Report};
use uuid::Uuid;

use super::{Controller, Forgotten, Pacing};
use crate::event::Effect;
use crate::fleet::FleetView;

/// The policies of all clusters.
#[derive(Debug)]
pub(crate) struct AttestationPolicyController {
    pacing: Pacing,
    clusters: BTreeMap<Uuid, Forwarding>,
}

/// The policy of one cluster on its way.
#[derive(Debug, Default)]
struct Forwarding {
    sender: DesiredSender<PolicyDigest>,
    report: JoinReport,
}

impl Controller for AttestationPolicyController {
    fn retry(&mut self, uuid: Uuid) {
        if let Some(forwarding) = self.clusters.get_mut(&uuid) {
            forwarding.sender.pause();
        }
    }

    fn next_deadline(&self, uuid: Uuid, _now: Now) -> Option<Duration> {
        self.clusters.get(&uuid)?.sender.next_deadline()
    }

    fn retain(&mut self, is_left: &dyn Fn(&Uuid) -> bool) -> Vec<Effect> {
        self.clusters.retain(|uuid, _| is_left(uuid));
        Vec::new()
    }

    fn forget(&mut self, uuid: Uuid) -> Forgotten {
        self.clusters.remove(&uuid);
        Forgotten::default()
    }
}

impl AttestationPolicyController {
    /// Nothing was sent.
    pub(crate) const fn new(pacing: Pacing) -> Self {
        Self { pacing, clusters: BTreeMap::new() }
    }

    /// Whether the Join node of a cluster is to be asked for its birth: one that has a policy is waited for.
    pub(crate) fn waits_for_join(&self, fleet: &FleetView, uuid: Uuid) -> bool {
        fleet.config().entry(uuid, AttestationPolicy::slug()).is_some()
    }

    /// Compares the policy that the Join of the cluster of that name shall have with what it reports, and sends it until they agree.
    pub(crate) fn reconcile(
        &mut self,
        fleet: &FleetView,
        (uuid, name): (Uuid, &str),
        deleting: bool,
        now: Now,
    ) -> (JoinReport, Option<Effect>) {
        let pace = self.pacing.of(uuid, 51);
        let forwarding = self.clusters.entry(uuid).or_default();
        let join = fleet.join_of(uuid, name);
        let Some((join, node)) = join.and_then(|join| Some((join, join.node()?))) else {
            *forwarding = Forwarding { sender: std::mem::take(&mut forwarding.sender), ..Forwarding::default() };
            forwarding.sender.pause();
            return (JoinReport::default(), None);
        };
        let before = forwarding.report.clone();
        let report = &mut forwarding.report;
        report.alive = join.is_alive();
        report.policy_state = Some(node.policy_state.to_string());
        report.policy_revision = node.policy_revision;
        report.policy_error.clone_from(&node.policy_error);
        let held = node.policy_held == Some(true);
        report.policy_held = held.then(|| node.policy_hold_reason.clone().unwrap_or_default());
        // Without knowing everything, that there is no entry cannot be concluded.
        if !join.is_current() || !fleet.config().is_complete() || !fleet.config().is_one_state() {
            forwarding.sender.pause();
            report.policy_agreed = false;
            return (report.clone(), None);
        }
        let mut desired = wanted(fleet, uuid, deleting);
        desired.follows = node.policy_origin.and_then(|accepted| fleet.config().follows(accepted));
        let reported = Report {
            version: node.policy_version,
            digest: node.policy_digest,
            origin: node.policy_origin,
            held: node.policy_held,
        };
        let (origin, follows) = (desired.origin, desired.follows);
        let is_ageing = node.policy_origin.is_some_and(|accepted| fleet.config().is_ageing(accepted));
        let compared = Desired { digest: desired.digest(), origin, follows, is_ageing, revision: fleet.revision() };
        let comparison = forwarding.sender.compare(&compared, &reported);
        desired.version = comparison.version;
        report.policy_agreed = comparison.is_agreed();
        let is_too_large = desired.entry.as_ref().is_some_and(|entry| entry.len() > POLICY_BYTES_MAX);
        let is_sent = if is_too_large && !comparison.is_agreed() {
            forwarding.sender.pause();
            report.policy_error = Some(format!("the entry has more than {POLICY_BYTES_MAX} bytes and is not sent"));
            false
        } else {
            forwarding.sender.send(comparison, pace, now)
        };
        log(uuid, name, &before, report, node.policy_state);
        (report.clone(), is_sent.then(|| Effect::Host(desired.to_request(join.address().clone()))))
    }
}

/// The policy that Join shall have, without its version.
fn wanted(fleet: &FleetView, uuid: Uuid, deleting: bool) -> DesiredPolicy {
    let entry = fleet.config().entry(uuid, AttestationPolicy::slug()).filter(|_| !deleting);
    DesiredPolicy {
        version: 0,
        revision: entry.map_or(0, |entry| entry.revision),
        entry: entry.map(|entry| entry.json.to_string()),
        origin: fleet.origin(uuid),
        follows: None,
    }
}

/// A policy by which no host is admitted is a warning.
fn log(uuid: Uuid, name: &str, before: &JoinReport, report: &JoinReport, state: PolicyState) {
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
