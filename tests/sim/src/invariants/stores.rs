//! Stores that are restored or replaced: what is lost with them, and what an edge may follow.

use configdb_schema::document::EdgeDeployment;
use edge_sync::record::IndexRecord;
use uuid::Uuid;

use super::{Checks, Violation};
use crate::fleet::Role;
use crate::kubernetes::Cluster;
use crate::world::World;

impl Checks {
    /// Another store, or another state of it, takes the place of ConfigDB's; these requests are not recorded any more, and these clusters are not in it.
    pub fn on_store_replaced(&mut self, lost: impl Iterator<Item = String>, clusters: impl Iterator<Item = Uuid>) {
        self.lost_requests.extend(lost);
        self.lost_clusters.extend(clusters);
        self.store_state = None;
        self.was_store_replaced = true;
    }

    /// A restored store brought back clusters with the names of these.
    pub fn on_names_contested(&mut self, clusters: impl Iterator<Item = Uuid>) {
        self.contested_clusters.extend(clusters);
    }

    /// The store of a second ConfigDB is gone, with these requests and clusters.
    pub fn on_second_store_gone(&mut self, lost: impl Iterator<Item = String>, clusters: impl Iterator<Item = Uuid>) {
        self.lost_requests.extend(lost);
        self.lost_clusters.extend(clusters);
    }

    /// An operator lets a cluster delete a deployment.
    pub fn release(&mut self, cluster: Uuid, deployment: Uuid) {
        self.released.insert((cluster, deployment));
    }

    /// An operator decides that a cluster follows the store.
    pub fn on_decision(&mut self, cluster: Uuid, epoch: u64) {
        self.decisions.insert((cluster, epoch));
    }

    /// A deployment as it was in a store last.
    #[must_use]
    pub fn entry(&self, deployment: Uuid) -> Option<EdgeDeployment> {
        self.entries.get(&deployment).cloned()
    }

    /// Whether another store, or another state of it, has taken the place of ConfigDB's.
    #[must_use]
    pub const fn was_store_replaced(&self) -> bool {
        self.was_store_replaced
    }

    /// Whether a restored store brought back another cluster of its name.
    #[must_use]
    pub fn is_cluster_contested(&self, cluster: Uuid) -> bool {
        self.contested_clusters.contains(&cluster)
    }

    /// Whether a cluster was lost with a store.
    #[must_use]
    pub fn is_cluster_lost(&self, cluster: Uuid) -> bool {
        self.lost_clusters.contains(&cluster)
    }

    /// Whether the record of a request was lost with a store.
    #[must_use]
    pub fn is_lost(&self, request: &str) -> bool {
        self.lost_requests.contains(request)
    }
}

impl World {
    /// What an edge accepts contains what it accepted before, unless an operator decided otherwise.
    pub(super) fn acknowledged_is_kept(
        &self,
        cluster: &Cluster,
        old: &IndexRecord,
        new: &IndexRecord,
    ) -> Result<(), Violation> {
        let (Some(before), Some(after)) = (old.index.origin, new.index.origin) else {
            let detail = format!("{} follows what does not say where it comes from", cluster.name);
            return if old.index.origin.is_some() {
                Err(Violation::new("acknowledged-is-kept", detail))
            } else {
                Ok(())
            };
        };
        let disk = self.process_of(&Role::ConfigDb).map(|id| &self.processes[&id].disk);
        let is_kept = match after.epoch.cmp(&before.epoch) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => {
                let contains = |disk: &crate::disk::Disk| disk.contains(after.store, after.point, before.point);
                after.store == before.store && disk.is_some_and(contains)
            }
            std::cmp::Ordering::Greater => self.checks.decisions.contains(&(cluster.uuid, after.epoch)),
        };
        let detail = || format!("{} accepted {before} and then {after}, which does not contain it", cluster.name);
        if is_kept { Ok(()) } else { Err(Violation::new("acknowledged-is-kept", detail())) }
    }
}
