//! What happens around hosts that join: an operator signs policies, machines start, and the Kubernetes API works for the join service.

use std::time::Duration;

use configdb_contract::WriteRequest;
use join_attestation::signed::Claims;
use join_service::document::{Document, Store};
use join_service::event::{Effect, Event, Observation, Operation, Transaction, Written};
use serde_json::{Value, json};
use service_runtime::Effects;

use crate::join_site::site;
use crate::model::disk::Disk;
use crate::model::happening::Happening;
use crate::model::ids::{ClusterId, ProcessId};
use crate::model::joins::{JoinSite, JoinWork, PARTS, Part, REPLICAS, join_group, machine};
use crate::model::mutation::Mutation;
use crate::model::names::group;
use crate::model::program::Input;
use crate::model::role::Role;
use crate::model::transition::{Enrolling, Joining, Transition};
use crate::world::{World, trace};

impl World {
    /// A cluster has a join service, and machines that come one by one.
    pub(crate) fn begin_joins(&mut self, site: ClusterId) {
        let Some(cluster) = self.clusters.get(&site) else { return };
        let (uuid, name) = (cluster.uuid, cluster.name.clone());
        let mut joins = JoinSite::default();
        for (n, part) in (0..).zip(PARTS) {
            let number = u64::from(site.0) * 100 + n;
            joins.hosts.insert(number, (part, machine(part, number, uuid, &name)));
            let later = self.random.millis(2_000..60_000);
            self.after(later, Happening::Transition(Transition::Joining(Joining::PowerOn(site, number))));
        }
        self.joins.insert(site, joins);
        for replica in 0..REPLICAS {
            self.add_process(Role::Join(site, replica), Disk::default());
        }
        let later = self.random.millis(500..20_000);
        self.after(later, Happening::Transition(Transition::Joining(Joining::Sign(site))));
    }

    /// Something happens around joining.
    pub(crate) fn on_joining(&mut self, joining: Joining) {
        match joining {
            Joining::Sign(site) => self.sign_policy(site),
            Joining::PowerOn(site, number) => {
                if self.joins.contains_key(&site) {
                    self.add_process(Role::Host(site, number), Disk::default());
                }
            }
            Joining::ResetOne(id) => {
                if self.processes.get(&id).is_some_and(|process| process.program.is_some()) {
                    self.crash(id);
                }
            }
            Joining::Reset => {
                let is_host = |role: &Role| matches!(role, Role::Host(..));
                let hosts: Vec<ProcessId> = self
                    .processes
                    .iter()
                    .filter(|(_, process)| is_host(&process.role) && process.program.is_some())
                    .map(|(id, _)| *id)
                    .collect();
                if let Some(id) = self.random.pick(&hosts).copied() {
                    trace!(self, "   {}", self.processes[&id].role);
                    self.crash(id);
                }
            }
        }
    }

    /// An operator signs the policy of a cluster and writes it to ConfigDB.
    fn sign_policy(&mut self, site: ClusterId) {
        let Some(cluster) = self.clusters.get(&site).map(|cluster| cluster.uuid) else { return };
        let is_another_out = self.random.chance(150);
        let Some(joins) = self.joins.get_mut(&site) else { return };
        if joins.has_policy && is_another_out {
            let worker = joins.hosts.iter().find(|(_, (part, _))| *part == Part::Worker);
            joins.revoked.extend(worker.map(|(number, _)| *number));
        }
        joins.has_policy = true;
        let is_careless = self.mutation == Some(Mutation::EnrolsStrangers);
        let is_enrolled = |part: Part| part != Part::Unknown || is_careless;
        let enrolled: Vec<Value> = joins
            .hosts
            .values()
            .filter(|(part, _)| is_enrolled(*part))
            .map(|(part, host)| json!({"ek": host.lock().ek(), "controlPlane": *part == Part::ControlPlane}))
            .collect();
        let is_out = |number: &u64, part: Part| part == Part::Barred || joins.revoked.contains(number);
        let revoked: Vec<String> = joins
            .hosts
            .iter()
            .filter(|(number, (part, _))| is_out(number, *part))
            .map(|(_, (_, host))| host.lock().ek())
            .collect();
        self.policies += 1;
        let claims = Claims { cluster, serial: self.policies, not_after_ms: u64::MAX };
        let text = site::signed(&claims, &site::entry(&enrolled, &revoked));
        let entry: Value = serde_json::from_str(&text).expect("a signed policy is JSON");
        let request = WriteRequest::put(self.request_id(), cluster).by("people").entry("AttestationPolicy", entry);
        self.ask(request);
    }

    /// A replica of the join service wants something done.
    pub(crate) fn execute_join(&mut self, id: ProcessId, effect: Effect) {
        let Some(process) = self.processes.get(&id) else { return };
        let (life, Some(site)) = (process.life, process.role.cluster()) else { return };
        match effect {
            Effect::Run(_) | Effect::Read(_) => {
                let lag = self.random.millis(1..60);
                let work = JoinWork { replica: id, life, effect };
                self.after(lag, Happening::Join(site, Box::new(work)));
            }
            Effect::BecomeLeader(metrics) => {
                let Some(name) = self.clusters.get(&site).map(|cluster| cluster.name.clone()) else { return };
                let node = join_service_contract::join_node(group(&name));
                let host = join_service::adapters::sparkplug::host_config(&node, &join_group(&name));
                let config = join_service::adapters::sparkplug::node_config(node);
                let (node_seed, host_seed) = (self.random.number(), self.random.number());
                self.start_node(id, sparkplug::edge_node::EdgeNodeConfig { seed: node_seed, ..config }, metrics);
                self.start_host(id, sparkplug::host::HostConfig { seed: host_seed, ..host });
            }
            Effect::StepDown => self.end_sessions(id, true),
            Effect::Node(update) => self.execute_node(id, update),
            Effect::Host(request) => self.execute_host(id, request),
            Effect::Ready { .. } => {}
        }
    }

    /// The Kubernetes API works for a replica.
    pub(crate) fn on_join_work(&mut self, site: ClusterId, work: JoinWork) {
        let JoinWork { replica, life, effect } = work;
        if self.processes.get(&replica).is_none_or(|process| process.life != life) {
            return;
        }
        let mono = self.mono;
        let Some(cluster) = self.clusters.get(&site) else { return };
        let is_down = cluster.down_until.is_some_and(|until| until > mono);
        let is_full = cluster.full_until.is_some_and(|until| until > mono);
        let Some(joins) = self.joins.get_mut(&site) else { return };
        let answer = match effect {
            Effect::Read(key) => {
                joins.store.is_away = is_down;
                let result = joins.store.read(&key);
                Event::Read { key, result }
            }
            Effect::Run(transaction) => {
                joins.store.is_away = is_down || is_full;
                let Some(answer) = self.run_transaction(site, replica, transaction) else { return };
                answer
            }
            _ => return,
        };
        let lag = self.random.millis(1..60);
        self.after(lag, Happening::Input(replica, life, Box::new(Input::Join(answer))));
    }

    /// Carries a transaction out, one operation after the other. None: the replica was killed in between.
    fn run_transaction(&mut self, site: ClusterId, replica: ProcessId, transaction: Transaction) -> Option<Event> {
        let Transaction { id, operations, then } = transaction;
        let role = self.processes.get(&replica)?.role.clone();
        let (mut written, mut failed) = (Vec::<Written>::new(), None);
        for operation in operations {
            let is_kept = self.mutation == Some(Mutation::KeepsTokens);
            if is_kept && matches!(operation, Operation::DeleteToken { .. }) {
                continue;
            }
            match self.joins.get_mut(&site)?.store.apply(operation, &written) {
                Ok(None) => {}
                Ok(Some(one)) => {
                    self.notify_written(site, &one);
                    written.push(one);
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
            if self.is_crash_due(&role) {
                trace!(self, "{role} crashes between two writes");
                self.crash(replica);
                return None;
            }
        }
        let committed: Result<((), Effects<_, _>), _> = then.commit(|| failed.map_or(Ok(()), Err));
        let result = committed.map(|((), saved)| saved).map_err(|(error, _)| error);
        Some(Event::Written { transaction: id, written, result })
    }

    /// Watches receive a write.
    fn notify_written(&mut self, site: ClusterId, Written { key, document }: &Written) {
        let (version, text) = document.clone().unwrap_or_default();
        let known = Document { key: key.clone(), version, text };
        let observation = || {
            if document.is_some() { Observation::Changed(known.clone()) } else { Observation::Gone(known.clone()) }
        };
        for replica in 0..REPLICAS {
            let input = || Input::Join(Event::Documents(key.store(), observation()));
            self.notify(site, &Role::Join(site, replica), input);
        }
    }

    /// A replica begins to watch: complete lists first.
    pub(crate) fn watch_joins(&mut self, site: ClusterId, id: ProcessId) {
        for store in [Store::ConfigMaps, Store::Leases] {
            let Some(joins) = self.joins.get(&site) else { return };
            let listed = Event::Documents(store, Observation::Listed(joins.store.list(store)));
            self.notify_process(site, id, Input::Join(listed));
        }
        self.notify_process(site, id, Input::Join(Event::Nodes(Observation::Listed(Vec::new()))));
    }

    /// After everything is mended an operator signs once more, and hosts that wait are reset: what was restored may have lost a policy, and a host may wait for long.
    pub(crate) fn mend_joins(&mut self) {
        let sites: Vec<ClusterId> = self.joins.keys().copied().collect();
        for site in sites {
            let later = self.random.millis(150_000..180_000);
            self.after(later, Happening::Transition(Transition::Joining(Joining::Sign(site))));
            self.after(later, Happening::Transition(Transition::Enrolling(Enrolling::Again(site))));
        }
        let hosts = self.processes.iter().filter(|(_, process)| matches!(process.role, Role::Host(..)));
        let hosts: Vec<ProcessId> = hosts.map(|(id, _)| *id).collect();
        for id in hosts {
            let later = Duration::from_secs(200) + self.random.millis(0..30_000);
            self.after(later, Happening::Transition(Transition::Joining(Joining::ResetOne(id))));
        }
    }
}
