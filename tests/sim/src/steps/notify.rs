//! Watchers of an API server receive what is new, in order.

use crate::model::happening::Happening;
use crate::model::ids::{ClusterId, ProcessId};
use crate::model::program::Input;
use crate::model::role::Role;
use crate::world::World;

impl World {
    /// News for every process that watches as that role.
    pub(crate) fn notify(&mut self, cluster: ClusterId, role: &Role, news: impl Fn() -> Input) {
        for id in self.processes_of(role) {
            self.notify_process(cluster, id, news());
        }
    }

    /// News for a watcher, in order with all other news of the cluster.
    pub(crate) fn notify_process(&mut self, cluster: ClusterId, id: ProcessId, input: Input) {
        let lag = self.random.millis(1..80);
        let life = self.processes[&id].life;
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        known.news_at = known.news_at.max(self.mono + lag);
        let at = known.news_at;
        self.at(at, Happening::Input(id, life, Box::new(input)));
    }
}
