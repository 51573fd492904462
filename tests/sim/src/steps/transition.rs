//! What happens from outside, done to a world. The seed chooses.

use std::time::Duration;

use configdb_contract::WriteRequest;
use configdb_schema::known::{chart, class};
use serde_json::json;
use sparkplug::session::{Publish, QoS};
use uuid::Uuid;

use crate::model::broker::{SessionId, ToBroker};
use crate::model::copies::Loss;
use crate::model::disk::Disk;
use crate::model::happening::Happening;
use crate::model::ids::{ClusterId, ProcessId};
use crate::model::kubernetes::Cluster;
use crate::model::network::Weather;
use crate::model::role::Role;
use crate::model::script::{ScriptCluster, ScriptDeployment};
use crate::model::transition::{Fault, Joining, Keying, Recovery, Transition};
use crate::world::{World, trace};

/// What the seed chooses from, and how often.
const CHOICES: &[(u64, Transition)] = &[
    (4, Transition::CreateCluster),
    (2, Transition::DeleteCluster),
    (3, Transition::RecreateCluster),
    (14, Transition::CreateDeployment),
    (8, Transition::ChangeDeployment),
    (3, Transition::MoveDeployment),
    (5, Transition::DeleteDeployment),
    (3, Transition::EditTemplate),
    (6, Transition::ConfigureAgent),
    (3, Transition::WriteNonsense),
    (3, Transition::HostChanges),
    (3, Transition::DeleteByHand),
    (3, Transition::RotateSecret),
    (8, Transition::Crash),
    (3, Transition::PowerCut),
    (8, Transition::Cut),
    (5, Transition::Partition),
    (2, Transition::PartitionSite),
    (3, Transition::CrashBroker),
    (6, Transition::Storm),
    (3, Transition::ClockJump),
    (4, Transition::KubernetesOutage),
    (2, Transition::GitFull),
    (6, Transition::Garbage),
    (3, Transition::Fault(Fault::Disk)),
    (2, Transition::Fault(Fault::GitTorn)),
    (2, Transition::Fault(Fault::GitRollsBack)),
    (2, Transition::Fault(Fault::BdSeqRollsBack)),
    (2, Transition::Fault(Fault::ClusterFull)),
    (5, Transition::Fault(Fault::Pause)),
    (2, Transition::Fault(Fault::Steal)),
    (2, Transition::Fault(Fault::SecondInstance)),
    (2, Transition::Fault(Fault::Flood)),
];

/// The same where ConfigDB's store may be restored, rolled back and replaced.
const RECOVERIES: &[(u64, Transition)] = &[
    (3, Transition::Recovery(Recovery::Restore)),
    (2, Transition::Recovery(Recovery::RollBack)),
    (1, Transition::Recovery(Recovery::Replace)),
];

/// The same where clusters enrol, hosts join and people ask.
const JOININGS: &[(u64, Transition)] =
    &[(6, Transition::Joining(Joining::Reset)), (3, Transition::SignPolicy), (8, Transition::Ask)];

/// The same where clusters have Kerberos keys.
const KEYINGS: &[(u64, Transition)] = &[
    (8, Transition::Keying(Keying::Create)),
    (2, Transition::Keying(Keying::Delete)),
    (4, Transition::Keying(Keying::Force)),
    (3, Transition::Keying(Keying::Move)),
    (2, Transition::Keying(Keying::Disable)),
    (3, Transition::Keying(Keying::ChangeByHand)),
    (3, Transition::Keying(Keying::LoseSecret)),
    (2, Transition::Keying(Keying::SpoilSecret)),
    (2, Transition::Keying(Keying::RestoreKdc)),
    (6, Transition::Keying(Keying::KdcAway)),
];

/// The same where clusters have sealed secrets.
const SECRETS: &[(u64, Transition)] = &[(24, Transition::PutSecret)];

/// The same where there is a git server.
const GITS: &[(u64, Transition)] = &[
    (24, Transition::Push),
    (4, Transition::Poll),
    (6, Transition::Fault(Fault::GitCrash)),
    (2, Transition::Fault(Fault::CopiesFull)),
    (2, Transition::Fault(Fault::CopiesTorn)),
    (4, Transition::Fault(Fault::CopiesLost(Loss::RolledBack))),
    (2, Transition::Fault(Fault::CopiesLost(Loss::All))),
    (2, Transition::Fault(Fault::CopiesLost(Loss::Damaged))),
    (1, Transition::Fault(Fault::CopiesLost(Loss::Unrecorded))),
];

const CLUSTER_NAMES: &[&str] = &["Paint", "Press", "Weld", "Final"];

const DEPLOYMENT_NAMES: &[&str] = &["Robot", "Oven", "Belt", "Scale", "Gate", "Pump"];

impl World {
    /// Something from outside happens.
    // long: one line for each kind of happening
    pub fn on_transition(&mut self, transition: Transition) {
        if transition != Transition::Something {
            trace!(self, "** {transition:?}");
        }
        match transition {
            Transition::Something => {
                let recoveries = if self.restores { RECOVERIES } else { &[] };
                let joinings = if self.with_joins { JOININGS } else { &[] };
                let keyings = if self.with_keys { KEYINGS } else { &[] };
                let secrets = if self.with_secrets { SECRETS } else { &[] };
                let gits = if self.with_git { GITS } else { &[] };
                let choices =
                    || CHOICES.iter().chain(recoveries).chain(joinings).chain(keyings).chain(secrets).chain(gits);
                let mut at = self.random.below(choices().map(|(weight, _)| weight).sum());
                for (weight, choice) in choices() {
                    if at < *weight {
                        return self.on_transition(choice.clone());
                    }
                    at -= weight;
                }
            }
            Transition::CreateCluster => self.create_cluster(),
            Transition::DeleteCluster => self.delete_cluster(),
            Transition::RecreateCluster => self.recreate_cluster(),
            Transition::Bootstrap(uuid) => self.bootstrap(uuid),
            Transition::Decommission(site) => self.decommission(site),
            Transition::CreateDeployment => self.create_deployment(),
            Transition::ChangeDeployment => self.change_deployment(false),
            Transition::MoveDeployment => self.change_deployment(true),
            Transition::DeleteDeployment => self.delete_deployment(),
            Transition::EditTemplate => {
                let value = json!({"values": {"edited": self.random.below(1_000)}});
                let request =
                    WriteRequest::patch(self.request_id(), chart::EDGE_AGENT).entry("HelmChartTemplate", value);
                self.ask(request);
            }
            Transition::ConfigureAgent => self.configure_agent(),
            Transition::WriteNonsense => {
                let object = Uuid::from_u128(self.random.wide());
                let request = WriteRequest::put(self.request_id(), object).create_object(class::EDGE_CLUSTER, None);
                let nonsense = [json!({"name": 5}), json!({"name": "No-Hyphen", "namespace": "x"}), json!([])];
                let nonsense = self.random.pick(&nonsense).cloned().unwrap_or_default();
                self.ask(request.entry("EdgeCluster", nonsense));
            }
            Transition::HostChanges => self.on_some_site(Self::host_changes),
            Transition::DeleteByHand => self.on_some_site(Self::delete_by_hand),
            Transition::RotateSecret => self.on_some_site(Self::rotate_secret),
            Transition::Crash => self.on_some_service(Self::crash),
            Transition::PowerCut => self.on_some_service(|world, id| {
                if let Some(process) = world.processes.get_mut(&id) {
                    let was = process.partitioned_until;
                    process.partitioned_until = Some(world.mono);
                    world.crash(id);
                    if let Some(process) = world.processes.get_mut(&id) {
                        process.partitioned_until = was;
                    }
                }
            }),
            Transition::Cut => self.on_some_process(Self::cut),
            Transition::Partition => self.on_some_process(|world, id| {
                let until = world.mono + world.random.millis(500..45_000);
                world.partition(id, until);
                world.at(until, Happening::Transition(Transition::Heal(id)));
            }),
            Transition::PartitionSite => self.partition_site(),
            Transition::Heal(id) => {
                let mono = self.mono;
                if let Some(process) =
                    self.processes.get_mut(&id).filter(|p| p.partitioned_until.is_some_and(|until| until <= mono))
                {
                    process.partitioned_until = None;
                }
            }
            Transition::CrashBroker => {
                let down = self.random.millis(100..30_000);
                let keep_retained = self.random.chance(500);
                self.crash_broker(down, keep_retained);
                self.after(down, Happening::Transition(Transition::BrokerBack));
            }
            Transition::BrokerBack => {
                if self.network.broker_down_until.is_some_and(|until| until <= self.mono) {
                    self.network.broker_down_until = None;
                }
            }
            Transition::Storm => {
                self.network.weather = Weather {
                    loss: self.random.below(150),
                    duplication: self.random.below(50),
                    reordering: self.random.below(50),
                    delay_max: self.random.millis(20..800),
                };
                let length = self.random.millis(1_000..30_000);
                self.after(length, Happening::Transition(Transition::Calm));
            }
            Transition::Calm => self.network.weather = Weather::default(),
            Transition::ClockJump => {
                let jumps = [1_000, 60_000, 3_600_000, 86_400_000];
                let jump = self.random.pick(&jumps).copied().unwrap_or_default();
                let is_forward = self.random.chance(500);
                self.wall_base = if is_forward { self.wall_base + jump } else { self.wall_base - jump };
            }
            Transition::KubernetesOutage => self.on_some_site(|world, site| {
                let length = world.random.millis(1_000..40_000);
                world.kubernetes_outage(site, length);
            }),
            Transition::Relist(site) => self.relist(site),
            Transition::GitFull => {
                let length = self.random.millis(1_000..40_000);
                self.git.full_until = Some(self.mono + length);
            }
            Transition::Garbage => self.garbage(),
            Transition::Fault(fault) => self.on_fault(fault),
            Transition::Recovery(recovery) => self.on_recovery(recovery),
            Transition::Enrolling(enrolling) => self.on_enrolling(enrolling),
            Transition::Joining(joining) => self.on_joining(joining),
            Transition::Keying(keying) => self.on_keying(keying),
            Transition::Ask => self.people_ask(),
            Transition::PutSecret => self.put_secret(),
            Transition::Push => self.push(),
            Transition::Poll => self.poll(),
            Transition::SignPolicy => self.on_some_site(|world, site| world.on_joining(Joining::Sign(site))),
        }
    }

    /// Everything that is broken is mended; no one wants anything new.
    pub fn mend(&mut self) {
        trace!(self, "** everything is mended");
        self.crash_per_million = 0;
        self.network.weather = Weather::default();
        self.network.broker_down_until = None;
        self.git.full_until = None;
        for process in self.processes.values_mut() {
            process.partitioned_until = None;
        }
        self.mend_troubles();
        self.mend_joins();
        self.mend_keys();
        for site in self.strays() {
            let later = self.random.millis(1_000..60_000);
            self.after(later, Happening::Transition(Transition::Recovery(Recovery::Decide(site))));
        }
        // What an edge took over from the old store while it was replaced shows only now.
        self.after(Duration::from_secs(120), Happening::Transition(Transition::Recovery(Recovery::Review)));
        for id in self.cluster_ids() {
            if let Some(cluster) = self.clusters.get_mut(&id) {
                cluster.down_until = None;
            }
            self.relist(id);
        }
    }

    fn on_some_site(&mut self, act: impl FnOnce(&mut Self, ClusterId)) {
        let sites: Vec<ClusterId> = self.clusters.keys().copied().collect();
        if let Some(site) = self.random.pick(&sites).copied() {
            act(self, site);
        }
    }

    fn on_some_service(&mut self, act: impl FnOnce(&mut Self, ProcessId)) {
        let services = self.services();
        if let Some(id) = self.random.pick(&services).copied().filter(|id| self.processes[id].program.is_some()) {
            trace!(self, "   {}", self.processes[&id].role);
            act(self, id);
        }
    }

    fn on_some_process(&mut self, act: impl FnOnce(&mut Self, ProcessId)) {
        let all: Vec<ProcessId> = self.processes.keys().copied().collect();
        if let Some(id) = self.random.pick(&all).copied().filter(|id| self.processes[id].program.is_some()) {
            trace!(self, "   {}", self.processes[&id].role);
            act(self, id);
        }
    }

    fn create_cluster(&mut self) {
        let uuid = Uuid::from_u128(self.random.wide());
        let is_taken = |name: &&&str| self.script.clusters.iter().any(|cluster| cluster.name == ***name);
        let free: Vec<&str> = CLUSTER_NAMES.iter().filter(|name| !is_taken(name)).copied().collect();
        // Now and then someone takes a name that is taken.
        let name = if self.random.chance(100) {
            self.random.pick(CLUSTER_NAMES).copied()
        } else {
            self.random.pick(&free).copied()
        };
        let Some(name) = name else { return };
        self.script.clusters.push(ScriptCluster { uuid, name: name.to_owned(), site: None, is_deleted: false });
        self.put_cluster(uuid, name);
        let later = self.random.millis(1_000..30_000);
        self.after(later, Happening::Transition(Transition::Bootstrap(uuid)));
    }

    fn delete_cluster(&mut self) {
        let alive: Vec<usize> =
            (0..self.script.clusters.len()).filter(|n| !self.script.clusters[*n].is_deleted).collect();
        let Some(n) = self.random.pick(&alive).copied() else { return };
        self.script.clusters[n].is_deleted = true;
        let ScriptCluster { uuid, site, .. } = self.script.clusters[n].clone();
        if let Some(site) = site
            && let Some(enrolment) = self.enrolments.lock().get_mut(&site)
        {
            enrolment.was_deleted = true;
        }
        let request = WriteRequest::put(self.request_id(), uuid).delete("EdgeCluster").by("people");
        // As the command line does: who deletes a cluster whose edge holds what it is sent decides that it follows.
        let held = site.filter(|site| self.strays().contains(site));
        let index = held.and_then(|site| self.clusters.get(&site)?.accepted()).map(|record| record.index);
        let accepted = index.as_ref().map(|index| index.digest().to_string());
        for deployment in index.into_iter().flat_map(|index| index.deployments.into_keys()) {
            self.checks.release(uuid, deployment);
        }
        let decided = held.and_then(|site| self.decided(site, false, accepted, request.clone()));
        self.ask(decided.unwrap_or(request));
        if let Some(site) = site.filter(|_| self.random.chance(500)) {
            let later = self.random.millis(1_000..60_000);
            self.after(later, Happening::Transition(Transition::Decommission(site)));
        }
    }

    fn recreate_cluster(&mut self) {
        let gone: Vec<usize> =
            (0..self.script.clusters.len()).filter(|n| self.script.clusters[*n].is_deleted).collect();
        let Some(n) = self.random.pick(&gone).copied() else { return };
        self.script.clusters[n].is_deleted = false;
        let ScriptCluster { uuid, name, .. } = self.script.clusters[n].clone();
        self.put_cluster(uuid, &name);
        let later = self.random.millis(1_000..60_000);
        self.after(later, Happening::Transition(Transition::Bootstrap(uuid)));
    }

    fn bootstrap(&mut self, uuid: Uuid) {
        let names: Vec<String> = self.clusters.values().map(|cluster| cluster.name.clone()).collect();
        let Some(cluster) = self.script.clusters.iter_mut().find(|cluster| cluster.uuid == uuid) else { return };
        // One site at a time speaks for a name: the broker gives its credentials to one.
        if cluster.site.is_some() || cluster.is_deleted || names.contains(&cluster.name) {
            return;
        }
        self.script.sites += 1;
        let id = ClusterId(self.script.sites);
        cluster.site = Some(id);
        let name = cluster.name.clone();
        let hosts = 1 + self.random.index(3);
        self.clusters.insert(id, Cluster::new(name, uuid, hosts));
        self.add_process(Role::Sync(id), Disk::default());
        self.add_process(Role::Monitor(id), Disk::default());
        if self.with_joins {
            self.begin_enrolment(id);
            self.begin_joins(id);
        }
        if self.with_keys {
            self.begin_keys(id);
        }
    }

    fn decommission(&mut self, site: ClusterId) {
        for id in self.processes_at(site) {
            self.stop(id, false);
            self.processes.remove(&id);
        }
        self.clusters.remove(&site);
        self.joins.remove(&site);
        self.key_sites.remove(&site);
        self.enrolments.lock().remove(&site);
        for cluster in self.script.clusters.iter_mut().filter(|cluster| cluster.site == Some(site)) {
            cluster.site = None;
            let (uuid, is_deleted) = (cluster.uuid, cluster.is_deleted);
            if !is_deleted {
                // It was made again in the meantime: someone sets new machines up.
                self.order_bootstrap.push(uuid);
            }
        }
        for uuid in std::mem::take(&mut self.order_bootstrap) {
            let later = self.random.millis(1_000..30_000);
            self.after(later, Happening::Transition(Transition::Bootstrap(uuid)));
        }
    }

    fn some_cluster(&mut self) -> Option<Uuid> {
        let all: Vec<Uuid> = self.script.clusters.iter().map(|cluster| cluster.uuid).collect();
        self.random.pick(&all).copied()
    }

    fn create_deployment(&mut self) {
        let Some(cluster) = self.some_cluster() else { return };
        let uuid = Uuid::from_u128(self.random.wide());
        let base = self.random.pick(DEPLOYMENT_NAMES).copied().unwrap_or("Robot");
        self.script.deployments_made += 1;
        let taken: Vec<String> = self.script.deployments.iter().map(|deployment| deployment.name.clone()).collect();
        // Now and then someone takes a name that is taken.
        let name = match self.random.pick(&taken) {
            Some(taken) if self.random.chance(100) => taken.clone(),
            _ => format!("{base}_{}", self.script.deployments_made),
        };
        self.script.deployments.push(ScriptDeployment { uuid, name: name.clone(), cluster });
        let request = WriteRequest::put(self.request_id(), uuid).create_object(class::EDGE_AGENT, None).by("people");
        let entry = json!({"cluster": cluster, "name": name, "chart": chart::EDGE_AGENT});
        self.ask(request.entry("EdgeDeployment", entry));
    }

    fn change_deployment(&mut self, moves: bool) {
        let all: Vec<usize> = (0..self.script.deployments.len()).collect();
        let Some(n) = self.random.pick(&all).copied() else { return };
        let other = self.some_cluster();
        let ScriptDeployment { uuid, name, mut cluster } = self.script.deployments[n].clone();
        if moves {
            cluster = other.unwrap_or(cluster);
            self.script.deployments[n].cluster = cluster;
        }
        let is_broken = self.random.chance(150);
        let chart = if is_broken { Uuid::from_u128(0xBAD) } else { chart::EDGE_AGENT };
        let entry =
            json!({"cluster": cluster, "name": name, "chart": chart, "values": {"turn": self.random.below(100)}});
        let request = WriteRequest::put(self.request_id(), uuid).by("people").entry("EdgeDeployment", entry);
        self.ask(request);
    }

    fn delete_deployment(&mut self) {
        let all: Vec<usize> = (0..self.script.deployments.len()).collect();
        let Some(n) = self.random.pick(&all).copied() else { return };
        let uuid = self.script.deployments.remove(n).uuid;
        let request = WriteRequest::put(self.request_id(), uuid).by("people");
        let request = if self.random.chance(300) { request.delete_object() } else { request.delete("EdgeDeployment") };
        self.ask(request);
    }

    fn configure_agent(&mut self) {
        let all: Vec<Uuid> = self.script.deployments.iter().map(|deployment| deployment.uuid).collect();
        let Some(uuid) = self.random.pick(&all).copied() else { return };
        let request = WriteRequest::put(self.request_id(), uuid).by("people");
        let request = if self.random.chance(150) {
            request.delete("AgentConfig")
        } else {
            request.entry("AgentConfig", json!({"deviceConnections": [], "turn": self.random.below(1_000)}))
        };
        self.ask(request);
    }

    fn partition_site(&mut self) {
        let until = self.mono + self.random.millis(1_000..60_000);
        let sites: Vec<ClusterId> = self.clusters.keys().copied().collect();
        let Some(site) = self.random.pick(&sites).copied() else { return };
        for id in self.processes_at(site) {
            self.partition(id, until);
            self.at(until, Happening::Transition(Transition::Heal(id)));
        }
    }

    fn garbage(&mut self) {
        let names: Vec<String> = self.clusters.values().map(|cluster| cluster.name.clone()).collect();
        let group = match self.random.pick(&names) {
            Some(name) if self.random.chance(700) => format!("ACME-{name}"),
            _ => "ACME-Central".to_owned(),
        };
        let node = ["Sync", "Monitor", "ConfigDB", "Cluster-Manager", "No-Service"];
        let node = self.random.pick(&node).copied().unwrap_or_default();
        let kinds = ["NBIRTH", "NDATA", "NDEATH", "NCMD", "DBIRTH/x", "DDATA/x", "DDEATH/x", "DCMD/x", "XYZ", ""];
        let kind = self.random.pick(&kinds).copied().unwrap_or_default();
        let topic = match kind.split_once('/') {
            Some((kind, device)) => format!("spBv1.0/{group}/{kind}/{node}/{device}"),
            None => format!("spBv1.0/{group}/{kind}/{node}"),
        };
        let length = self.random.index(200);
        let payload: Vec<u8> = (0..length).map(|_| u8::try_from(self.random.below(256)).unwrap_or_default()).collect();
        trace!(self, "garbage on {topic}");
        let publish = Publish { topic, payload: payload.into(), qos: QoS::AtMostOnce, retain: self.random.chance(100) };
        self.checks.garbage += 1;
        // A client of its own, as far as the broker can see.
        let session = SessionId(u64::MAX);
        if self.network.broker_down_until.is_none() {
            self.broker.on_packet(session, ToBroker::Connect { client_id: "vandal".to_owned(), will: None });
            self.broker.on_packet(session, ToBroker::Publish(publish));
            self.broker.on_packet(session, ToBroker::Disconnect);
            self.flush_broker();
        }
    }
}
