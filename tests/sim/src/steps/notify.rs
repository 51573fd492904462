//! Watchers of an API server receive what is new, in order.

use crate::model::happening::Happening;
use crate::model::ids::{ClusterId, ProcessId};
use crate::model::program::Input;
use crate::model::role::Role;
use crate::world::World;

impl World {
    /// An input for every process that watches as that role.
    pub(crate) fn notify(&mut self, cluster: ClusterId, role: &Role, input: impl Fn() -> Input) {
        for id in self.processes_of(role) {
            self.notify_process(cluster, id, input());
        }
    }

    /// An input for a watcher, in order with all other inputs of the cluster.
    pub(crate) fn notify_process(&mut self, cluster: ClusterId, id: ProcessId, input: Input) {
        let lag = self.random.millis(1..80);
        let life = self.processes[&id].life;
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        known.next_event_at = known.next_event_at.max(self.mono + lag);
        let at = known.next_event_at;
        self.at(at, Happening::Input(id, life, Box::new(input)));
    }
}
