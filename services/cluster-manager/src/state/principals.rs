//! The principals of a cluster's accounts in the site's KDC: what is known of them, and work on them.
//!
//! Nothing is recorded: after a start the KDC is asked again, and what is done twice is done once.

use sparkplug::Now;
use uuid::Uuid;

use super::ClusterManager;
use super::cluster::Wait;
use crate::event::{Effect, PrincipalsResult, PrincipalsWork};
use crate::setup::{Account, Principals};

/// What is known of a cluster's principals.
#[derive(Debug, Clone)]
pub struct Known {
    /// As the KDC answered last.
    pub state: Principals,
    /// Work under way.
    pub under_way: bool,
    /// Waiting after a failure.
    pub wait: Wait,
}

impl ClusterManager {
    /// For a decision.
    pub(super) fn principals(&self, uuid: Uuid, now: Now) -> Principals {
        let Some(cluster) = self.clusters.get(&uuid).filter(|_| self.settings.realm.is_some()) else {
            return Principals::Off;
        };
        match &cluster.principals.state {
            Principals::Failed(_) if cluster.principals.wait.is_over(now) => Principals::Behind,
            known => known.clone(),
        }
    }

    /// Begins work, unless some is under way.
    pub(super) fn allow_principals(&mut self, uuid: Uuid, name: Option<&str>, allowed: bool) {
        let (Some(realm), Some(name)) = (&self.settings.realm, name) else { return };
        let principals = Account::ALL.map(|account| account.principal(name, realm)).into();
        let Some(cluster) = self.clusters.get_mut(&uuid).filter(|cluster| !cluster.principals.under_way) else {
            return;
        };
        cluster.principals.under_way = true;
        self.effects.push(Effect::Principals(PrincipalsWork { cluster: uuid, principals, allowed }));
    }

    pub(super) fn on_principals_result(&mut self, answer: PrincipalsResult, now: Now) {
        let PrincipalsResult { cluster: uuid, allowed, result } = answer;
        let Some(cluster) = self.clusters.get_mut(&uuid) else { return };
        cluster.principals.under_way = false;
        match result {
            Ok(()) => {
                cluster.principals.wait.succeeded();
                cluster.principals.state = if allowed { Principals::Enabled } else { Principals::Disabled };
            }
            Err(reason) => {
                tracing::warn!(cluster_id = %uuid, error = reason, "work on principals failed");
                cluster.principals.state = Principals::Failed(reason.clone());
                cluster.principals.wait.failed(reason, now);
            }
        }
        self.dirty.insert(uuid);
    }
}
