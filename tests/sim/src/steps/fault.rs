//! What breaks beside crashes and the network: disks, frozen processes, wrong clocks, a second instance of a service; and what a hostile member of a group does with its certificate.

use std::time::Duration;

use sparkplug::Metric;
use sparkplug::payload::{EncodeOptions, Form, Payload, encode};
use sparkplug::session::{Publish, QoS};
use uuid::Uuid;

use crate::model::broker::{SessionId, ToBroker};
use crate::model::disk::{Disk, DiskFault};
use crate::model::happening::Happening;
use crate::model::ids::{ClusterId, ProcessId};
use crate::model::names::group;
use crate::model::role::Role;
use crate::model::transition::{Fault, Transition};
use crate::world::{World, trace};

/// Messages of one part of a flood.
const FLOOD_PART: u32 = 60;

impl World {
    /// Something breaks.
    pub(crate) fn on_fault(&mut self, fault: Fault) {
        match fault {
            Fault::Disk => self.break_disk(),
            Fault::DiskIsWell => {
                if let Some(id) = self.process_of(&Role::ConfigDb) {
                    self.processes[&id].disk.set_fault(None);
                }
            }
            Fault::GitTorn => self.git.torn_until = Some(self.mono + self.random.millis(1_000..40_000)),
            Fault::GitRollsBack => {
                if self.git.roll_back()
                    && let Some(id) = self.process_of(&Role::ClusterManager)
                {
                    trace!(self, "   it is rolled back");
                    self.crash(id);
                }
            }
            Fault::CopiesFull | Fault::CopiesTorn | Fault::CopiesLost(_) | Fault::GitCrash => self.on_git_fault(&fault),
            Fault::BdSeqRollsBack => {
                let running: Vec<ProcessId> =
                    self.services().into_iter().filter(|id| self.processes[id].program.is_some()).collect();
                let Some(id) = self.random.pick(&running).copied() else { return };
                trace!(self, "   {}", self.processes[&id].role);
                let lost = 1 + self.random.index(4);
                self.processes[&id].disk.roll_back_bd_seq(lost);
                self.crash(id);
            }
            Fault::ClusterFull => {
                let until = self.mono + self.random.millis(1_000..40_000);
                let sites: Vec<ClusterId> = self.clusters.keys().copied().collect();
                if let Some(site) = self.random.pick(&sites).and_then(|site| self.clusters.get_mut(site)) {
                    site.full_until = Some(until);
                }
            }
            Fault::Pause => {
                let Some(id) = self.some_running() else { return };
                let until = self.mono + self.random.millis(500..45_000);
                trace!(self, "   {}", self.processes[&id].role);
                self.pause(id, until);
                self.at(until, Happening::Transition(Transition::Fault(Fault::Resume(id))));
            }
            Fault::Resume(id) => {
                let mono = self.mono;
                let is_over = |until: Duration| until <= mono;
                if let Some(process) = self.processes.get_mut(&id).filter(|p| p.paused_until.is_some_and(is_over)) {
                    process.paused_until = None;
                    process.partitioned_until = process.partitioned_until.filter(|until| *until > mono);
                }
            }
            Fault::Steal => {
                let Some(id) = self.some_running() else { return };
                trace!(self, "   {}", self.processes[&id].role);
                let mut later = Duration::ZERO;
                for _ in 0..1 + self.random.index(12) {
                    self.after(later, Happening::Transition(Transition::Fault(Fault::TakeOver(id))));
                    later += self.random.millis(300..3_000);
                }
            }
            Fault::TakeOver(id) => self.take_over(id),
            Fault::SecondInstance => self.second_instance(),
            Fault::Flood => {
                let names: Vec<String> = self.clusters.values().map(|cluster| cluster.name.clone()).collect();
                let Some(name) = self.random.pick(&names).cloned() else { return };
                let messages = FLOOD_PART * u32::try_from(1 + self.random.index(8)).unwrap_or(1);
                self.on_fault(Fault::FloodsOn(group(&name).to_string(), messages));
            }
            Fault::FloodsOn(group, messages) => self.flood(group, messages),
        }
    }

    /// Something breaks at the git server, or at the cluster manager beside it.
    fn on_git_fault(&mut self, fault: &Fault) {
        let Some(id) = self.process_of(&Role::GitServer) else { return };
        let disk = self.processes[&id].disk.clone();
        match fault {
            Fault::CopiesFull => {
                let until = self.mono + self.random.millis(1_000..40_000);
                disk.with_copies(|copies| copies.full_until = Some(until));
            }
            Fault::CopiesTorn => {
                let until = self.mono + self.random.millis(1_000..40_000);
                disk.with_copies(|copies| copies.torn_until = Some(until));
            }
            Fault::CopiesLost(loss) => {
                let which = self.random.index(8);
                if disk.with_copies(|copies| copies.lose(*loss, which)) {
                    trace!(self, "   it is lost");
                    self.crash(id);
                }
            }
            _ => {
                let role = if self.random.chance(500) { Role::ClusterManager } else { Role::GitServer };
                if let Some(id) = self.process_of(&role).filter(|id| self.processes[id].program.is_some()) {
                    trace!(self, "   {role}");
                    self.crash(id);
                }
            }
        }
    }

    /// Everything of this kind is over.
    pub(crate) fn mend_troubles(&mut self) {
        self.on_fault(Fault::DiskIsWell);
        self.git.torn_until = None;
        for id in self.processes_of(&Role::GitServer) {
            self.processes[&id].disk.with_copies(|copies| (copies.full_until, copies.torn_until) = (None, None));
        }
        // Who is frozen continues at its time: what waits for it comes in order.
        for cluster in self.clusters.values_mut() {
            cluster.full_until = None;
        }
        let second: Vec<ProcessId> =
            self.processes.iter().filter(|(_, process)| process.is_second).map(|(id, _)| *id).collect();
        for id in second {
            self.after(Duration::ZERO, Happening::Remove(id));
        }
    }

    fn some_running(&mut self) -> Option<ProcessId> {
        let running: Vec<ProcessId> =
            self.processes.iter().filter(|(_, process)| process.program.is_some()).map(|(id, _)| *id).collect();
        self.random.pick(&running).copied()
    }

    fn break_disk(&mut self) {
        let Some(id) = self.process_of(&Role::ConfigDb) else { return };
        let faults = [DiskFault::Full, DiskFault::Broken, DiskFault::Torn];
        let fault = self.random.pick(&faults).copied().unwrap_or(DiskFault::Full);
        trace!(self, "   {fault:?}");
        self.processes[&id].disk.set_fault(Some(fault));
        let length = self.random.millis(1_000..40_000);
        self.after(length, Happening::Transition(Transition::Fault(Fault::DiskIsWell)));
    }

    /// Another client connects with the client ids of a process, and goes away again.
    fn take_over(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get(&id).filter(|_| self.network.broker_down_until.is_none()) else {
            return;
        };
        let client_ids: Vec<String> = process.endpoints.values().map(|endpoint| endpoint.client_id.clone()).collect();
        for client_id in client_ids {
            let thief = SessionId(u64::MAX);
            self.broker.on_packet(thief, ToBroker::Connect { client_id, will: None });
            self.broker.on_packet(thief, ToBroker::Disconnect);
            self.flush_broker();
        }
    }

    /// Starts a process of the same role as another one, on a disk of its own: an operator has started a service twice.
    fn second_instance(&mut self) {
        let is_alone = |role: &Role| self.processes.values().filter(|process| process.role == *role).count() == 1;
        let services = self.processes.values().map(|process| &process.role).filter(|role| role.is_service());
        // The Deployment of krb-keys starts none before the other has ended.
        let services = services.filter(|role| !matches!(role, Role::Keys(_)));
        let roles: Vec<Role> = services.filter(|role| is_alone(role)).cloned().collect();
        let Some(role) = self.random.pick(&roles).cloned() else { return };
        trace!(self, "   {role}");
        let disk = if role == Role::ConfigDb {
            self.checks.had_two_stores = true;
            Disk::with_store(crate::fleet::config_db::fresh_store().copy(Uuid::from_u128(self.random.wide())))
        } else if let Some(first) = self.process_of(&role).filter(|_| role == Role::Identity) {
            // With other keys than ConfigDB names, it would do nothing.
            self.processes[&first].disk.clone()
        } else {
            Disk::default()
        };
        let id = self.add_process(role, disk);
        if let Some(process) = self.processes.get_mut(&id) {
            process.is_second = true;
        }
        let length = self.random.millis(1_000..40_000);
        self.after(length, Happening::Remove(id));
    }

    fn flood(&mut self, group: String, messages: u32) {
        if self.network.broker_down_until.is_some() {
            return;
        }
        let session = SessionId(u64::MAX);
        self.broker.on_packet(session, ToBroker::Connect { client_id: "member".to_owned(), will: None });
        let now = self.now();
        for n in 0..messages.min(FLOOD_PART) {
            let kinds = ["NDATA", "NDATA", "DDATA", "NBIRTH", "DBIRTH", "NDEATH"];
            let kind = self.random.pick(&kinds).copied().unwrap_or("NDATA");
            let node = format!("Forged-{}", self.random.below(1_000));
            let topic = match kind {
                "DDATA" | "DBIRTH" => format!("spBv1.0/{group}/{kind}/{node}/x"),
                _ => format!("spBv1.0/{group}/{kind}/{node}"),
            };
            let mut metrics = vec![Metric::new("Value", u64::from(n))];
            if matches!(kind, "NBIRTH" | "NDEATH") {
                metrics.push(Metric::new("bdSeq", 0_u64));
            }
            let seq = if kind == "NBIRTH" { 0 } else { self.random.below(256) };
            let seq = (kind != "NDEATH").then_some(seq);
            let payload = Payload { timestamp: Some(now.wall), seq, metrics, ..Payload::default() };
            let payload = encode(&payload, &EncodeOptions::new(Form::Birth));
            self.checks.expect_forged(kind, &topic);
            self.broker
                .on_packet(session, ToBroker::Publish(Publish { topic, payload, qos: QoS::AtMostOnce, retain: false }));
        }
        self.broker.on_packet(session, ToBroker::Disconnect);
        self.flush_broker();
        if let Some(left) = messages.checked_sub(FLOOD_PART).filter(|left| *left > 0) {
            let later = self.random.millis(50..500);
            self.after(later, Happening::Transition(Transition::Fault(Fault::FloodsOn(group, left))));
        } else {
            self.bury_forged();
        }
    }

    /// The forger lets its nodes die at last.
    fn bury_forged(&mut self) {
        let session = SessionId(u64::MAX);
        self.broker.on_packet(session, ToBroker::Connect { client_id: "member".to_owned(), will: None });
        for topic in self.checks.take_forged() {
            let metrics = vec![Metric::new("bdSeq", 0_u64)];
            let payload = Payload { timestamp: Some(self.now().wall), metrics, ..Payload::default() };
            let payload = encode(&payload, &EncodeOptions::new(Form::Birth));
            let publish = Publish { topic, payload, qos: QoS::AtLeastOnce, retain: false };
            self.broker.on_packet(session, ToBroker::Publish(publish));
        }
        self.broker.on_packet(session, ToBroker::Disconnect);
        self.flush_broker();
    }
}
