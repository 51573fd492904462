//! One cluster's repository in staged rollouts: what it waits for, and whether it has settled.

use std::collections::BTreeSet;
use std::time::Duration;

use configdb_schema::document::{EdgeClusterRollout, WAVE_MAX};
use sparkplug::Now;
use uuid::Uuid;

use super::ClusterManager;
use super::cluster::Read;
use crate::rollout::{Blocker, WholeRepository};
use crate::setup::{self, Repository};

impl ClusterManager {
    /// Takes over what ConfigDB says of a cluster's rollout; what cannot be read says nothing. Of what is no cluster nothing could ever settle, so it has no wave.
    pub(super) fn read_rollout(&mut self, uuid: Uuid) {
        let entry = self.fleet.config().document::<EdgeClusterRollout>(uuid).unwrap_or_else(|error| {
            tracing::warn!(cluster_id = %uuid, error = %error, "EdgeClusterRollout cannot be read; the cluster is in the last wave");
            None
        });
        let EdgeClusterRollout { wave, pins } = entry.unwrap_or_default();
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        cluster.rendered = None;
        self.fleet.set_pins(uuid, pins);
        self.dirty.insert(uuid);
        self.dirty.extend(self.deployments.set_wave(uuid, wave));
        self.dirty.extend(self.repositories.set_wave(uuid, wave));
    }

    fn waits_for(&self, blocker: Blocker) -> String {
        let Blocker { wave, cluster } = blocker;
        format!("waits for cluster {} of wave {wave}", self.devices.name_of(cluster))
    }

    /// What a cluster's repository would have to wait for if it shall hold something else. What is set up waits; what is new, and what was changed itself, does not: somebody
    /// wants that on this cluster.
    pub(super) fn repository_blocker(&self, uuid: Uuid, read: &Read) -> Option<Blocker> {
        let (Some(record), Some(Ok(config))) = (read.recorded(), &read.config) else { return None };
        let is_set_up = setup::is_set_up_for(record, config, self.fleet.pins(uuid));
        let blocker = self.repositories.blocker(uuid, &BTreeSet::from([WholeRepository]));
        blocker.filter(|_| is_set_up)
    }

    /// Notes whether the cluster's repository waits, and whether it has settled. `name` is None while the cluster is torn down or has none.
    pub(super) fn settle_repository(
        &mut self,
        uuid: Uuid,
        name: Option<&str>,
        read: &Read,
        evaluated: Evaluated<'_>,
        now: Now,
    ) {
        let Evaluated { repository, reason, blocker } = evaluated;
        let whole = BTreeSet::from([WholeRepository]);
        let blocker = blocker.filter(|_| repository != Repository::Written);
        self.repositories.wait(uuid, if blocker.is_some() { whole.clone() } else { BTreeSet::new() });
        let waits = blocker.map(|blocker| format!("{}, whose own repository has not settled", self.waits_for(blocker)));
        let is_in_a_wave = self.repositories.wave(uuid) < WAVE_MAX;
        let mut unsettled = None;
        if is_in_a_wave {
            match name
                .map_or(Finding::Nobody, |name| self.repository_finding(uuid, name, read, (&repository, reason), now))
            {
                Finding::Nobody | Finding::Settled => {
                    self.dirty.extend(self.repositories.compared(uuid, BTreeSet::new()));
                }
                Finding::Unsettled(why) => {
                    unsettled = Some(why);
                    self.dirty.extend(self.repositories.compared(uuid, whole));
                }
                Finding::NotHeard => {
                    let is_open = self.repositories.holds_up(uuid);
                    unsettled = is_open.then(|| "its edge sync is not heard".to_owned());
                }
            }
        }
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        cluster.settling = RolloutStatus { waits, unsettled };
    }

    fn repository_finding(
        &mut self,
        uuid: Uuid,
        name: &str,
        read: &Read,
        (repository, reason): (&Repository, Option<&str>),
        now: Now,
    ) -> Finding {
        let Some(sync) = self.fleet.sync_of(uuid, name).filter(|sync| sync.is_current() && sync.replica.is_complete())
        else {
            let is_away = self.flux_away_at(uuid, name).is_some_and(|at| at <= now.mono);
            // What was never bootstrapped has no status.
            let is_there = read.status.is_some() || self.fleet.sync_of(uuid, name).is_some();
            return if is_away || !is_there { Finding::Nobody } else { Finding::NotHeard };
        };
        let node = sync.replica.node();
        let applied = node.and_then(|node| node.source_applied).map(|commit| commit.to_string());
        let (ready, message) = node.map(|node| (node.source_ready, node.source_message.clone())).unwrap_or_default();
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return Finding::Nobody };
        if *repository != Repository::Written {
            return Finding::Unsettled(reason.unwrap_or("its repository is not written yet").to_owned());
        }
        if applied == cluster.git.commit {
            let why = || message.unwrap_or_else(|| "what Flux has applied is not ready".to_owned());
            return if ready == Some(true) { Finding::Settled } else { Finding::Unsettled(why()) };
        }
        // Somebody else may have pushed: the branch is looked at once for each commit that is not known.
        if applied.is_some() && applied != cluster.git.looked_for && cluster.git.under_way.is_none() {
            cluster.git.looked_for.clone_from(&applied);
            cluster.git.look_again();
            self.dirty.insert(uuid);
        }
        let because = message.map(|message| format!(": {message}")).unwrap_or_default();
        Finding::Unsettled(format!("Flux has not applied its repository yet{because}"))
    }

    /// When nobody waits for the repository of a cluster any more whose Sync is not followed: its Flux asked for nothing either. None: it is followed, or nobody can hear it now.
    pub(super) fn flux_away_at(&self, uuid: Uuid, name: &str) -> Option<Duration> {
        let heard_at = self.fleet.lost_at(name)?;
        let polled_at = self.clusters.get(&uuid)?.git.polled_at.unwrap_or_default();
        Some(heard_at.max(polled_at) + self.settings.flux_away)
    }
}

/// What an evaluation has found out about a repository.
#[derive(Debug, Clone)]
pub struct Evaluated<'a> {
    /// What it is.
    pub repository: Repository,
    /// Why the set-up does not go on.
    pub reason: Option<&'a str>,
    /// What it has to wait for, if it shall hold something else.
    pub blocker: Option<Blocker>,
}

/// A cluster's repository in staged rollouts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RolloutStatus {
    /// Why it keeps what it holds.
    pub waits: Option<String>,
    /// Why it has not settled, so that later waves wait.
    pub unsettled: Option<String>,
}

/// What can be seen of a cluster's repository.
enum Finding {
    /// It holds what it shall hold, and the edge is well on it.
    Settled,
    /// It does not, and why.
    Unsettled(String),
    /// Nothing at present.
    NotHeard,
    /// There is no edge, or it is away: nobody waits for it.
    Nobody,
}
