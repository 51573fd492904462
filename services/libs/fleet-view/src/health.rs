//! What is known of a thing, in one of four words that mean the same everywhere, with the reasons in sentences.

use cluster_manager_contract::SetupState;
use join_service_contract::HostState;
use serde::Serialize;

use crate::{AlertRow, ClusterRow, DeploymentRow, Fleet, JoiningHostRow, NOT_DESIRED, SUSPENDED};

/// The four words, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// As it is wanted.
    #[default]
    Good,
    /// Something is on its way, and no person is needed.
    Working,
    /// Nothing is received from it; what is known of it may be old.
    Away,
    /// A person is needed.
    Attention,
}

/// Health with its reasons.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Condition {
    /// The word.
    pub health: Health,
    /// Why it is not `good`, in sentences for people, the worst first.
    pub reasons: Vec<String>,
    /// Since when, UTC ms; None: not known.
    pub since: Option<u64>,
}

/// Collects findings and keeps the worst as the word.
#[derive(Debug, Default)]
struct Findings {
    found: Vec<(Health, String)>,
    since: Option<u64>,
}

impl Findings {
    fn add(&mut self, health: Health, reason: impl Into<String>) {
        let reason = reason.into();
        if !self.found.iter().any(|(_, known)| *known == reason) {
            self.found.push((health, reason));
        }
    }

    /// The worst finding is the word. What is away and was away before it needed a person is away: its own values say nothing of now.
    fn conclude(mut self, since: Option<u64>) -> Condition {
        self.found.sort_by_key(|(health, _)| std::cmp::Reverse(*health));
        Condition {
            health: self.found.first().map(|(health, _)| *health).unwrap_or_default(),
            reasons: self.found.into_iter().map(|(_, reason)| reason).collect(),
            since: self.since.or(since),
        }
    }
}

/// How a cluster stands. `alerts` and `deployments` are those of the whole fleet or of this cluster.
#[must_use]
pub fn cluster(fleet: &Fleet, row: &ClusterRow, alerts: &[&AlertRow], deployments: &[&DeploymentRow]) -> Condition {
    let mut findings = Findings::default();
    let managed = fleet.manager.cluster(row.uuid);
    let reason = |text: &str| row.reason.as_ref().map_or_else(|| text.to_owned(), |reason| format!("{text}: {reason}"));
    match managed.map(|cluster| cluster.setup.state) {
        Some(SetupState::Refused) => findings.add(Health::Attention, reason("the configuration is refused")),
        Some(SetupState::Deleting) => findings.add(Health::Working, reason("the cluster is being deleted")),
        Some(SetupState::Ready) => {}
        Some(state) => findings.add(Health::Working, reason(&format!("set-up: {state}"))),
        None if row.setup == NOT_DESIRED => findings.add(Health::Attention, reason("not desired")),
        None => findings.add(Health::Working, "the cluster manager has not reported this cluster"),
    }
    if let Some(held) = &row.held {
        findings.add(Health::Attention, format!("the edge waits for an operator's decision: {held}"));
    }
    match row.edge() {
        "away" | "?" if managed.is_some_and(|cluster| cluster.setup.state != SetupState::Refused) => {
            findings.add(Health::Away, "edge sync is not alive: the values are the last that were reported");
            findings.since = row.alive_since;
        }
        "not yet" if row.setup == "ready" => {
            findings.add(Health::Working, "the edge was never born: run its bootstrap command on a machine there");
        }
        "unmonitored" => findings.add(Health::Attention, "edge monitor is not alive: the edge's nodes are not watched"),
        _ => {}
    }
    if row.alive {
        of_living_edge(&mut findings, fleet, row, deployments);
    }
    // That the edge is away or holds something is said above. What else an edge that is away says of itself is old.
    for alert in alerts.iter().filter(|alert| alert.alert != "Held" && (row.alive || alert.alert == "Identity")) {
        findings.add(Health::Attention, format!("{} {}: {}", alert.subject(), alert.alert, alert.reason));
        findings.since = findings.since.or(alert.since);
    }
    findings.conclude(row.since.into_iter().chain(row.alive_since).max())
}

fn of_living_edge(findings: &mut Findings, fleet: &Fleet, row: &ClusterRow, deployments: &[&DeploymentRow]) {
    if let Some(flux) = row.flux.as_ref().filter(|flux| flux.ready != Some(true)) {
        let health = if flux.ready == Some(false) { Health::Attention } else { Health::Working };
        findings.add(health, flux.described());
    }
    if !row.agreed {
        findings.add(Health::Working, "the edge has not taken over the latest changes");
    }
    if row.hosts.ready < row.hosts.total {
        let missing = row.hosts.total - row.hosts.ready;
        findings.add(Health::Attention, format!("{missing} of {} hosts are not ready", row.hosts.total));
    }
    let rollout = fleet.manager.cluster(row.uuid).map(|cluster| &cluster.rollout);
    if let Some(repository) = rollout.and_then(|rollout| rollout.repository.as_ref()) {
        findings.add(Health::Working, repository.clone());
    }
    for row in deployments {
        let condition = deployment(row, true);
        if let (Health::Working | Health::Attention, Some(reason)) = (condition.health, condition.reasons.first()) {
            findings.add(condition.health, format!("deployment {}: {reason}", row.name));
        }
    }
}

/// How a deployment stands; `alive`: its cluster's edge sync is.
#[must_use]
pub fn deployment(row: &DeploymentRow, alive: bool) -> Condition {
    let mut findings = Findings::default();
    let with_detail = |text: &str| row.fault().map_or_else(|| text.to_owned(), |fault| format!("{text}: {fault}"));
    match row.state.as_str() {
        "refused" => findings.add(Health::Attention, with_detail("refused")),
        "failed" => findings.add(Health::Attention, with_detail("Kubernetes did not take the manifests")),
        "held" => findings.add(Health::Attention, with_detail("the edge waits for an operator's decision")),
        "applied" => match (row.ready, row.fault()) {
            (Some(true), None) => {}
            (Some(true), Some(fault)) => findings.add(Health::Working, fault),
            (Some(false), _) => findings.add(Health::Attention, with_detail("applied, but not ready")),
            (None, _) => findings.add(Health::Working, with_detail("applied; Flux has not reported on it")),
        },
        SUSPENDED => findings.add(Health::Working, "suspended: Flux changes nothing of it until it is resumed"),
        "sending" => findings.add(Health::Working, with_detail("on its way to the edge")),
        state => findings.add(Health::Working, with_detail(state)),
    }
    // What the control plane itself refuses is as true while the edge is away.
    if !alive && row.version.is_some() && row.state != "refused" {
        findings.found.clear();
        findings.add(Health::Away, "edge sync is not alive: the state is the last that was reported");
    }
    findings.conclude(row.applied_at)
}

/// How a host stands, by what Kubernetes says of it (None: it is not a Kubernetes Node) and by its way in (None: it did not join by attestation).
#[must_use]
pub fn host(ready: Option<bool>, joining: Option<&JoiningHostRow>, alive: bool) -> Condition {
    let mut findings = Findings::default();
    match ready {
        Some(_) if !alive => {
            findings.add(Health::Away, "edge sync is not alive: the values are the last that were reported")
        }
        Some(false) => findings.add(Health::Attention, "Kubernetes finds the host not ready"),
        Some(true) | None => {}
    }
    if let Some(row) = joining {
        let with_detail =
            |text: &str| row.detail.as_ref().map_or_else(|| text.to_owned(), |detail| format!("{text}: {detail}"));
        match row.state {
            HostState::Pending => findings.add(Health::Attention, with_detail("the host waits for approval")),
            HostState::Refused => findings.add(Health::Attention, with_detail("the host is refused")),
            HostState::LockedOut => {
                findings.add(
                    Health::Attention,
                    with_detail("the member was refused its keys: its state disk stays closed"),
                );
            }
            HostState::Failed => {
                findings.add(Health::Attention, with_detail("the host had a ticket and did not become a member"))
            }
            HostState::Revoked if ready.is_some() => {
                findings
                    .add(Health::Attention, "the endorsement key is revoked, and the host is still a Kubernetes Node");
            }
            HostState::Revoked => {
                findings.add(Health::Good, "the endorsement key is revoked: the host is not admitted")
            }
            HostState::Admitted => findings.add(Health::Working, "the host has its ticket"),
            HostState::Locked => findings.add(Health::Working, "the host is locked to the cluster and installs itself"),
            HostState::Member if ready.is_none() && alive => {
                findings.add(Health::Working, "the host is a member; Kubernetes does not list it yet");
            }
            HostState::Member => {}
        }
    }
    findings.conclude(joining.map(|row| row.last_seen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Bench, CLUSTER, NAME, reported};
    use edge_sync_contract::{DeploymentState, SyncNode};
    use uuid::Uuid;

    const OVEN: Uuid = Uuid::from_u128(0x0E);

    fn of(bench: &Bench) -> Condition {
        let (alerts, deployments) = (bench.fleet.alerts(), bench.fleet.deployments());
        let row = bench.fleet.clusters().into_iter().find(|row| row.uuid == CLUSTER).unwrap();
        cluster(&bench.fleet, &row, &alerts.iter().collect::<Vec<_>>(), &deployments.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_cluster_as_wanted_is_good_and_has_no_reasons() {
        let condition = of(&Bench::with_cluster());
        assert_eq!((condition.health, condition.reasons), (Health::Good, vec![]));
    }

    #[test]
    fn a_cluster_that_was_never_born_is_working_and_one_that_died_is_away() {
        let mut bench = Bench::new();
        bench.cluster(CLUSTER, NAME, |_| {});
        assert_eq!(of(&bench).health, Health::Working);
        bench.cluster(CLUSTER, NAME, |device| device.sync_since = Some(7));
        let condition = of(&bench);
        assert_eq!((condition.health, condition.since), (Health::Away, Some(7)));
        assert_eq!(condition.reasons.len(), 1, "its alert is not a second reason: {:?}", condition.reasons);
    }

    #[test]
    fn what_needs_a_person_comes_before_what_is_on_its_way() {
        let mut bench = Bench::with_cluster();
        bench.deployment(OVEN, "Oven", None);
        bench.cluster(CLUSTER, NAME, |device| device.desired.agreed = false);
        assert_eq!(of(&bench).health, Health::Working);
        let failed = reported("Oven", DeploymentState::Failed, Some(false));
        bench.sync(NAME, &SyncNode { source_ready: Some(true), ..SyncNode::default() }, &[(OVEN, failed)]);
        let condition = of(&bench);
        assert_eq!(condition.health, Health::Attention);
        assert_eq!(condition.reasons[0], "deployment Oven: Kubernetes did not take the manifests");
        assert!(condition.reasons[1].contains("latest changes"), "{:?}", condition.reasons);
    }

    #[test]
    fn a_refused_cluster_and_one_that_is_held_need_a_person_although_they_are_away() {
        let mut bench = Bench::new();
        bench.cluster(CLUSTER, NAME, |device| {
            device.sync_since = Some(7);
            device.desired.held = Some("another store".to_owned());
        });
        assert_eq!(of(&bench).health, Health::Attention);
        bench.cluster(CLUSTER, NAME, |device| device.setup.state = SetupState::Refused);
        assert_eq!(of(&bench).reasons, ["the configuration is refused"]);
    }

    #[test]
    fn a_deployment_of_an_edge_that_is_away_is_away_unless_it_is_refused() {
        let row = |state: &str, version| DeploymentRow {
            uuid: OVEN,
            name: "Oven".to_owned(),
            cluster: NAME.to_owned(),
            chart: String::new(),
            host: None,
            state: state.to_owned(),
            ready: Some(true),
            reason: None,
            message: None,
            applied_at: Some(3),
            version,
            labels: std::collections::BTreeMap::new(),
        };
        assert_eq!(deployment(&row("applied", Some(1)), true).health, Health::Good);
        assert_eq!(deployment(&row("applied", Some(1)), false).health, Health::Away);
        assert_eq!(deployment(&row("refused", Some(1)), false).health, Health::Attention);
        assert_eq!(deployment(&row("sending", None), false).health, Health::Working);
    }
}
