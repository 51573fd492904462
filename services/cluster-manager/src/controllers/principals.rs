//! The principals of the clusters' own accounts in the site's KDC: what is known of them, and work on them.
//!
//! Nothing is recorded: after a start the KDC is asked again, and what is done twice is done once.

use std::collections::BTreeMap;
use std::time::Duration;

use sparkplug::Now;
use uuid::Uuid;

use super::{Controller, Forgotten, Pacing, Wait};
use crate::event::{Effect, PrincipalsResult, PrincipalsWork};
use crate::setup::{Account, Principals};

/// The principals of all clusters.
#[derive(Debug)]
pub(crate) struct PrincipalsController {
    /// Of the site's KDC; None: it has none, or keeps principals by itself.
    realm: Option<String>,
    pacing: Pacing,
    clusters: BTreeMap<Uuid, Known>,
}

/// What is known of the principals of one cluster.
#[derive(Debug)]
struct Known {
    /// As the KDC answered last.
    state: Principals,
    is_under_way: bool,
    wait: Wait,
}

impl Controller for PrincipalsController {
    fn retry(&mut self, uuid: Uuid) {
        if let Some(known) = self.clusters.get_mut(&uuid) {
            known.wait.retry_now();
        }
    }

    fn next_deadline(&self, uuid: Uuid, _now: Now) -> Option<Duration> {
        self.clusters.get(&uuid)?.wait.until()
    }

    fn clear(&mut self) {
        for (uuid, known) in &mut self.clusters {
            known.state = Principals::Behind;
            known.wait = self.pacing.wait(*uuid, 29);
        }
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

impl PrincipalsController {
    /// Nothing is known. `realm`: of the site's KDC; None: it has none, or keeps principals by itself.
    pub(crate) const fn new(realm: Option<String>, pacing: Pacing) -> Self {
        Self { realm, pacing, clusters: BTreeMap::new() }
    }

    /// For a decision about the set-up.
    pub(crate) fn state(&self, uuid: Uuid, now: Now) -> Principals {
        if self.realm.is_none() {
            return Principals::Off;
        }
        match self.clusters.get(&uuid) {
            None => Principals::Behind,
            Some(Known { state: Principals::Failed(_), wait, .. }) if wait.is_over(now) => Principals::Behind,
            Some(known) => known.state.clone(),
        }
    }

    /// Begins work on the principals of the cluster of that name, unless some is under way. `allowed`: they get tickets, or none.
    pub(crate) fn allow(&mut self, uuid: Uuid, name: &str, allowed: bool) -> Option<Effect> {
        let realm = self.realm.as_ref()?;
        let principals = Account::ALL.map(|account| account.principal(name, realm)).into();
        let fresh = || Known { state: Principals::Behind, is_under_way: false, wait: self.pacing.wait(uuid, 29) };
        let known = self.clusters.entry(uuid).or_insert_with(fresh);
        let is_free = !std::mem::replace(&mut known.is_under_way, true);
        is_free.then_some(Effect::Principals(PrincipalsWork { cluster: uuid, principals, allowed }))
    }

    /// The KDC has answered.
    pub(crate) fn on_result(&mut self, answer: PrincipalsResult, now: Now) {
        let PrincipalsResult { cluster: uuid, allowed, result } = answer;
        let Some(known) = self.clusters.get_mut(&uuid) else { return };
        known.is_under_way = false;
        match result {
            Ok(()) => {
                known.wait.succeeded();
                known.state = if allowed { Principals::Enabled } else { Principals::Disabled };
            }
            Err(reason) => {
                tracing::warn!(cluster_id = %uuid, error = reason, "work on principals failed");
                known.state = Principals::Failed(reason.clone());
                known.wait.failed(reason, now);
            }
        }
    }
}
