//! A process begins a new life: the program of its role, its machines, and what it watches.

use edge_monitor::state::Scope;
use sparkplug::{EdgeNodeDescriptor, Now};

use crate::fleet;
use crate::model::disk::Disk;
use crate::model::ids::ProcessId;
use crate::model::mutation::Mutation;
use crate::model::names::{group, organisation};
use crate::model::program::Boot;
use crate::model::role::Role;
use crate::world::{World, trace};

impl World {
    pub(crate) fn start(&mut self, id: ProcessId) {
        let now = self.now_of(id);
        let seed = self.random.number();
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.program.is_some() {
            return;
        }
        process.life += 1;
        process.due = None;
        process.paused_until = None;
        let (role, disk) = (process.role.clone(), process.disk.clone());
        trace!(self, "{role} starts");
        if role == Role::ClusterManager {
            // The directory of packs is emptied at a start, and the key is another one.
            self.pushing.packs.remove(&id);
            self.pushing.alive.remove(&id);
            self.pushing.seeds.insert(id, seed);
        }
        let Boot { program, node, host, actions } = boot(&role, &disk, self, seed, now);
        let Some(process) = self.processes.get_mut(&id) else { return };
        process.program = Some(program);
        if let Some(config) = host {
            self.start_host(id, config);
        }
        if let Some((config, metrics)) = node {
            self.start_node(id, config, metrics);
        }
        for action in actions {
            self.execute(id, action);
        }
        self.watch_kubernetes(id);
    }
}

/// Starts the program of a role.
fn boot(role: &Role, disk: &Disk, world: &World, seed: u64, now: Now) -> Boot {
    match role {
        Role::ConfigDb => fleet::config_db::boot(disk, world.mutation, seed, now),
        Role::ClusterManager => fleet::cluster_manager::boot(world, seed, now),
        Role::Identity => fleet::enrolment::boot_identity(disk, seed, now),
        Role::GitServer => fleet::git_server::boot(disk, seed, now),
        Role::Central => fleet::monitor::boot(Scope::Central { organisation: organisation() }, seed),
        Role::Sync(cluster) => fleet::sync::boot(&world.clusters[cluster], seed, now),
        Role::Monitor(cluster) => {
            let cluster = &world.clusters[cluster];
            fleet::monitor::boot(Scope::Edge { group: group(&cluster.name), cluster: cluster.uuid }, seed)
        }
        Role::Keys(cluster) => fleet::keys::boot(&world.clusters[cluster], seed),
        Role::Join(cluster, _) => fleet::joining::boot_service(&world.clusters[cluster], seed, now),
        Role::Enrolling(cluster, applicant) => {
            let key = &world.keys[&(*cluster, *applicant)];
            fleet::enrolment::boot(*cluster, *applicant, key, &world.enrolments, seed)
        }
        Role::Host(cluster, number) => {
            let (part, host) = &world.joins[cluster].hosts[number];
            fleet::joining::boot_host(*part, host, seed, now)
        }
        Role::Agent { cluster, uuid, name, obeys } => {
            let cluster = &world.clusters[cluster];
            let revision = cluster.wanted_revision(*uuid);
            fleet::agent::boot(
                EdgeNodeDescriptor::parse(group(&cluster.name).as_str(), name),
                *uuid,
                revision,
                (*obeys, world.mutation == Some(Mutation::StandsStill)),
                seed,
                now,
            )
        }
        Role::Operator => fleet::operator::Operator::boot(seed),
        Role::Console => fleet::console::boot(disk, world.mutation, seed, now),
        Role::Observer => fleet::observer::boot(seed),
    }
}
