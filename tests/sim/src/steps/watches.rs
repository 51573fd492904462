//! Watches of an API server: they begin with complete lists, fail, and list again.

use std::time::Duration;

use edge_monitor::event::{AGENT_CONFIG_PREFIX, AgentConfig, Event as MonitorEvent, REVISION_ANNOTATION, Watch};
use edge_sync::event::{Event, Observation};
use edge_sync::hosts::ObservedNode;

use crate::model::happening::Happening;
use crate::model::ids::{ClusterId, ProcessId};
use crate::model::kubernetes::{annotation, kinds, unreachable};
use crate::model::program::Input;
use crate::model::role::Role;
use crate::world::World;

impl World {
    /// A process begins to watch: complete lists first.
    pub fn watch_kubernetes(&mut self, id: ProcessId) {
        let Some(role) = self.processes.get(&id).map(|process| process.role.clone()) else { return };
        let Some(cluster) = role.cluster() else { return };
        let Some(known) = self.clusters.get(&cluster) else { return };
        match role {
            Role::Sync(_) => {
                let hosts =
                    known.nodes.iter().map(|(node, host)| ObservedNode { node: node.clone(), host: host.clone() });
                let mut events = vec![Event::Nodes(Observation::Listed(hosts.collect()))];
                events.extend(kinds().into_iter().map(|kind| {
                    let listed = known.list(&kind);
                    Event::Objects(kind, Observation::Listed(listed))
                }));
                for event in events {
                    self.notify_process(cluster, id, Input::Sync(event));
                }
            }
            Role::Monitor(_) => {
                let configs = known.objects.iter().filter(|(key, _)| key.name.starts_with(AGENT_CONFIG_PREFIX));
                let configs = configs.map(|(key, object)| {
                    let revision = annotation(&object.body, REVISION_ANNOTATION).map(str::to_owned);
                    (key.name.clone(), AgentConfig { revision })
                });
                let events = [
                    MonitorEvent::Nodes(Watch::Listed(known.sparkplug_nodes.clone())),
                    MonitorEvent::Secrets(Watch::Listed(known.secrets.clone())),
                    MonitorEvent::AgentConfigs(Watch::Listed(configs.collect())),
                ];
                for event in events {
                    self.notify_process(cluster, id, Input::Monitor(event));
                }
            }
            Role::Join(..) => self.watch_joins(cluster, id),
            Role::Keys(_) => self.watch_keys(cluster),
            _ => {}
        }
    }

    /// All watches of a cluster are interrupted and list again.
    pub fn relist(&mut self, cluster: ClusterId) {
        let joins = (0..crate::model::joins::REPLICAS).map(|replica| Role::Join(cluster, replica));
        for role in [Role::Sync(cluster), Role::Monitor(cluster)].into_iter().chain(joins) {
            for id in self.processes_of(&role) {
                if self.processes[&id].program.is_some() {
                    self.watch_kubernetes(id);
                }
            }
        }
    }

    /// The API server does not answer for some time; watches fail and list again afterwards.
    pub fn kubernetes_outage(&mut self, cluster: ClusterId, length: Duration) {
        let until = self.mono + length;
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        known.down_until = Some(until);
        let failed = || Input::Sync(Event::Nodes(Observation::Failed(unreachable())));
        self.notify(cluster, &Role::Sync(cluster), failed);
        for kind in kinds() {
            let failed = || Input::Sync(Event::Objects(kind.clone(), Observation::Failed(unreachable())));
            self.notify(cluster, &Role::Sync(cluster), failed);
        }
        self.at(until, Happening::Transition(crate::model::transition::Transition::Relist(cluster)));
    }
}
