//! What happens at API servers: what services ask is done, watchers receive it, Flux looks, and agents run where there are releases.

use std::collections::BTreeMap;
use std::time::Duration;

use edge_monitor::event::{AGENT_CONFIG_PREFIX, AgentConfig, Event as MonitorEvent, REVISION_ANNOTATION, Watch};
use edge_monitor::spec::NodeResource;
use edge_sync::event::{Effect, Event, Observation};
use edge_sync::hosts::ObservedNode;
use edge_sync::object::ObjectKey;
use uuid::Uuid;

use crate::model::happening::Happening;
use crate::model::ids::{ClusterId, ProcessId};
use crate::model::kubernetes::{
    Carried, Cluster, Object, Work, annotation, deployment, known_has, refused_all, unreachable,
};
use crate::model::mutation::Mutation;
use crate::model::program::Input;
use crate::model::role::Role;
use crate::world::{World, trace};

impl World {
    /// Sync asks something of Kubernetes.
    pub fn ask_kubernetes(&mut self, id: ProcessId, effect: Effect) {
        let Some(process) = self.processes.get(&id) else { return };
        let (life, Some(cluster)) = (process.life, process.role.cluster()) else { return };
        match effect {
            Effect::Birth(metrics) => {
                let config = crate::fleet::sync::sync_node_config(&self.clusters[&cluster].name, self.random.number());
                self.start_node(id, config, metrics);
            }
            Effect::Node(update) => self.execute_node(id, update),
            Effect::Ready { .. } => {}
            effect => {
                let lag = self.random.millis(1..60);
                self.after(lag, Happening::Kubernetes(cluster, Box::new(Work::Sync(id, life, Box::new(effect)))));
            }
        }
    }

    /// The API server or Flux works.
    pub fn on_kubernetes(&mut self, cluster: ClusterId, work: Work) {
        match work {
            Work::Sync(id, life, effect) => self.carry_out(cluster, id, life, *effect),
            Work::Flux(key, uid) => self.flux_looks(cluster, &key, &uid),
            Work::Finalize(key, uid) => {
                let Some(known) = self.clusters.get_mut(&cluster) else { return };
                if known.objects.get(&key).is_some_and(|object| object.uid == uid && object.is_deleting) {
                    let gone = known.objects.remove(&key);
                    self.notify_of_object(cluster, &key, gone, true);
                    self.pods_follow(cluster);
                }
            }
        }
    }

    fn carry_out(&mut self, cluster: ClusterId, id: ProcessId, life: u64, effect: Effect) {
        let stamp = self.mono;
        let slow_deletion = self.random.chance(200);
        let loses_answer = self.crash_per_million > 0 && self.random.chance(5);
        let rolls_back = self.mutation == Some(Mutation::RecordRollsBack) && self.random.chance(200);
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let is_down = known.down_until.is_some_and(|until| until > stamp);
        let writes = matches!(effect, Effect::SaveIndex { .. } | Effect::Apply { .. } | Effect::Annotate(_));
        let is_full = writes && known.full_until.is_some_and(|until| until > stamp);
        if let Effect::Delete { key, .. } = &effect
            && !is_down
        {
            let body = known.objects.get(key).map(|object| object.body.clone());
            let owner = body.as_ref().and_then(deployment);
            self.checks.on_deletion(cluster, key, owner, stamp);
        }
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let Carried { mut answer, changed } =
            if is_down || is_full { refused_all(effect) } else { known.execute(effect, slow_deletion) };
        if loses_answer && let Event::IndexSaved { .. } = answer {
            answer = Event::IndexNotSaved(unreachable());
        }
        self.checks.is_record_written = true;
        if rolls_back && let Some((text, version)) = known.record.clone() {
            known.record = Some((crate::model::mutation::older_record(&text), version));
        }
        for (key, object) in changed {
            let is_gone = object.is_none() || !known_has(self.clusters.get(&cluster), &key);
            let object = object.or_else(|| self.clusters.get(&cluster)?.objects.get(&key).cloned());
            if &*key.kind.kind == "HelmRelease"
                && !is_gone
                && let Some(object) = &object
            {
                let lag = self.random.millis(500..8_000);
                let work = Work::Flux(key.clone(), object.uid.clone());
                self.after(lag, Happening::Kubernetes(cluster, Box::new(work)));
            }
            if object.as_ref().is_some_and(|object| object.is_deleting) && !is_gone {
                let lag = self.random.millis(500..8_000);
                let uid = object.as_ref().map(|object| object.uid.clone()).unwrap_or_default();
                self.after(lag, Happening::Kubernetes(cluster, Box::new(Work::Finalize(key.clone(), uid))));
            }
            self.notify_of_object(cluster, &key, object, is_gone);
        }
        self.pods_follow(cluster);
        let lag = self.random.millis(1..60);
        self.after(lag, Happening::Input(id, life, Box::new(Input::Sync(answer))));
    }

    fn flux_looks(&mut self, cluster: ClusterId, key: &ObjectKey, uid: &str) {
        let is_failing = self.random.chance(100);
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let version = known.next_version();
        let Some(object) = known.objects.get_mut(key).filter(|object| object.uid == uid) else { return };
        if object.verdict.as_ref().is_some_and(|(generation, ready, _)| *generation == object.generation && *ready) {
            return;
        }
        let message = if is_failing { "install retries exhausted" } else { "Release reconciliation succeeded" };
        object.verdict = Some((object.generation, !is_failing, message.to_owned()));
        object.version = version;
        let object = object.clone();
        if is_failing {
            let lag = self.random.millis(5_000..20_000);
            let work = Work::Flux(key.clone(), uid.to_owned());
            self.after(lag, Happening::Kubernetes(cluster, Box::new(work)));
        }
        self.notify_of_object(cluster, key, Some(object), false);
    }

    /// Notifies the watchers of a cluster that an object changed or is gone.
    fn notify_of_object(&mut self, cluster: ClusterId, key: &ObjectKey, object: Option<Object>, is_gone: bool) {
        let Some(object) = object else { return };
        if let Some(observed) = Cluster::observe(key, &object) {
            let observation = if is_gone { Observation::Gone(observed) } else { Observation::Changed(observed) };
            let input = || Input::Sync(Event::Objects(key.kind.clone(), observation.clone()));
            self.notify(cluster, &Role::Sync(cluster), input);
        }
        if key.name.starts_with(AGENT_CONFIG_PREFIX) {
            let watch = if is_gone {
                Watch::Deleted(key.name.clone())
            } else {
                let revision = annotation(&object.body, REVISION_ANNOTATION).map(str::to_owned);
                Watch::Applied(key.name.clone(), AgentConfig { revision })
            };
            let input = || Input::Monitor(MonitorEvent::AgentConfigs(watch.clone()));
            self.notify(cluster, &Role::Monitor(cluster), input);
        }
    }

    /// Someone deletes an object by hand.
    pub fn delete_by_hand(&mut self, cluster: ClusterId) {
        let Some(known) = self.clusters.get(&cluster) else { return };
        let keys: Vec<ObjectKey> = known.objects.keys().cloned().collect();
        let Some(key) = self.random.pick(&keys).cloned() else { return };
        trace!(self, "{key} is deleted by hand");
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let gone = known.objects.remove(&key);
        self.notify_of_object(cluster, &key, gone, true);
        self.pods_follow(cluster);
    }

    /// A host comes, goes, or changes.
    pub fn host_changes(&mut self, cluster: ClusterId) {
        let chance = self.random.below(3);
        let number = self.random.below(4);
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let node = format!("{}-{number}", known.name.to_lowercase());
        let may_go = chance == 0 && known.nodes.len() > 1;
        let gone = if may_go { known.nodes.remove(&node) } else { None };
        let observation = match (gone, known.nodes.get_mut(&node)) {
            (Some(host), _) => Observation::Gone(ObservedNode { node, host }),
            (None, Some(host)) => {
                host.ready = !host.ready;
                Observation::Changed(ObservedNode { node, host: host.clone() })
            }
            (None, None) => {
                let mut host = known.nodes.values().next().cloned().unwrap_or_default();
                host.hostname.clone_from(&node);
                known.nodes.insert(node.clone(), host.clone());
                Observation::Changed(ObservedNode { node, host })
            }
        };
        let input = || Input::Sync(Event::Nodes(observation.clone()));
        self.notify(cluster, &Role::Sync(cluster), input);
    }

    /// A sealed secret is sealed again.
    pub fn rotate_secret(&mut self, cluster: ClusterId) {
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let Some((name, secret)) = known.secrets.iter_mut().next() else { return };
        secret.generation += 1;
        secret.observed_generation = Some(secret.generation);
        let watch = Watch::Applied(name.clone(), secret.clone());
        let input = || Input::Monitor(MonitorEvent::Secrets(watch.clone()));
        self.notify(cluster, &Role::Monitor(cluster), input);
    }

    /// Agents run where there are releases, and nowhere else.
    fn pods_follow(&mut self, cluster: ClusterId) {
        let Some(known) = self.clusters.get(&cluster) else { return };
        let wanted: BTreeMap<Uuid, String> = known.agents().collect();
        let running: Vec<(ProcessId, Uuid, String)> = self
            .processes
            .iter()
            .filter_map(|(id, process)| match &process.role {
                Role::Agent { cluster: of, uuid, name, .. } if *of == cluster => Some((*id, *uuid, name.clone())),
                _ => None,
            })
            .collect();
        for (id, uuid, name) in &running {
            if wanted.get(uuid) != Some(name) {
                self.stop(*id, true);
                self.after(Duration::ZERO, Happening::Remove(*id));
                self.forget_node_resource(cluster, *uuid);
            }
        }
        for (uuid, name) in wanted {
            if !running.iter().any(|(_, known, known_name)| *known == uuid && *known_name == name) {
                let obeys = !self.random.chance(100);
                self.add_process(
                    Role::Agent { cluster, uuid, name: name.clone(), obeys },
                    crate::model::disk::Disk::default(),
                );
                self.notify_of_node_resource(cluster, uuid, &name);
            }
        }
    }

    fn notify_of_node_resource(&mut self, cluster: ClusterId, uuid: Uuid, name: &str) {
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let secret = format!("edge-agent-sensitive-information-{uuid}");
        let resource = NodeResource {
            uuid: Some(uuid.to_string()),
            edge_agent: true,
            interval: Some("30s".to_owned()),
            secrets: vec![secret.clone()],
            ..NodeResource::default()
        };
        let sealed = edge_monitor::config_freshness::SealedSecret {
            uid: format!("{secret}-1"),
            generation: 1,
            observed_generation: Some(1),
            is_synced: true,
        };
        let key = format!("edge-agent.{}.{uuid}", name.to_lowercase());
        known.sparkplug_nodes.insert(key.clone(), resource.clone());
        known.secrets.insert(secret.clone(), sealed.clone());
        let monitor = Role::Monitor(cluster);
        let resource = || Input::Monitor(MonitorEvent::Nodes(Watch::Applied(key.clone(), resource.clone())));
        self.notify(cluster, &monitor, resource);
        let sealed = || Input::Monitor(MonitorEvent::Secrets(Watch::Applied(secret.clone(), sealed.clone())));
        self.notify(cluster, &monitor, sealed);
    }

    fn forget_node_resource(&mut self, cluster: ClusterId, uuid: Uuid) {
        let Some(known) = self.clusters.get_mut(&cluster) else { return };
        let end = uuid.to_string();
        let keys: Vec<String> = known.sparkplug_nodes.keys().filter(|key| key.ends_with(&end)).cloned().collect();
        for key in keys {
            if let Some(known) = self.clusters.get_mut(&cluster) {
                known.sparkplug_nodes.remove(&key);
            }
            let gone = || Input::Monitor(MonitorEvent::Nodes(Watch::Deleted(key.clone())));
            self.notify(cluster, &Role::Monitor(cluster), gone);
        }
    }
}
