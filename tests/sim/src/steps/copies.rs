//! What the cluster manager asks of its disk for copies is done, and what the git server asks of its own.

use cluster_manager::event::{CopyAction, CopyOutcome, CopyResult, CopyWork, PackFile};
use configdb_schema::known::repository::HELM_CHARTS;
use edge_sync_contract::SyncCommand;
use git_server::event::{CopyWork as Copying, Event};
use git_server_contract::pack::PART_BYTES_MAX;
use sparkplug::host::{HostEvent, HostRequest};

use crate::model::checks::Violation;
use crate::model::copies::{Failure, STEPS};
use crate::model::happening::Happening;
use crate::model::ids::ProcessId;
use crate::model::mutation::Mutation;
use crate::model::names::group;
use crate::model::program::Input;
use crate::model::role::Role;
use crate::world::World;

impl World {
    /// So many bytes a pack has at least: some have several parts.
    pub(crate) fn pack_bytes(&mut self) -> usize {
        if self.random.chance(100) { 1 + self.random.index(3 * PART_BYTES_MAX) } else { 0 }
    }

    /// The cluster manager asks something for a copy.
    pub(crate) fn work_for_copy(&mut self, id: ProcessId, work: CopyWork) {
        let Some(life) = self.processes.get(&id).map(|process| process.life) else { return };
        match work.action {
            CopyAction::Inspect | CopyAction::Pack { .. } => {
                let lag = self.random.millis(1..100);
                self.after(lag, Happening::Copy(id, life, Box::new(work)));
            }
            CopyAction::Part { node, file, offset } => {
                let packs = self.pushing.packs.get(&id);
                let Some(pack) = packs.and_then(|packs| packs.get(&(work.repository, file.digest))) else { return };
                let part = pack.part(offset);
                self.execute_host(id, part.to_request(node, work.repository));
            }
            CopyAction::DropPack(file) => {
                if let Some(packs) = self.pushing.packs.get_mut(&id) {
                    packs.remove(&(work.repository, file.digest));
                }
            }
        }
    }

    /// The disk of the cluster manager works for a copy.
    pub(crate) fn on_copy(&mut self, id: ProcessId, life: u64, work: CopyWork) {
        if self.processes.get(&id).is_none_or(|process| process.life != life) {
            return;
        }
        let CopyWork { repository, action } = work;
        let fails = self.is_git_torn();
        let error = || "input/output error".to_owned();
        let outcome = match action {
            CopyAction::Inspect if fails => CopyOutcome::Inspected(Err(error())),
            CopyAction::Inspect => CopyOutcome::Inspected(Ok(self.git.original(repository))),
            CopyAction::Pack { .. } if fails => CopyOutcome::Packed(Err(error())),
            CopyAction::Pack { refs, has } => {
                let bytes = self.pack_bytes();
                let packed = self.git.pack(repository, &refs, &has);
                CopyOutcome::Packed(packed.map(|content| {
                    let pack = content?.write(bytes);
                    let file = PackFile { digest: pack.digest().to_owned(), bytes: pack.bytes().len() as u64 };
                    self.pushing.packs.entry(id).or_default().insert((repository, file.digest.clone()), pack);
                    Some(file)
                }))
            }
            CopyAction::Part { .. } | CopyAction::DropPack(_) => return,
        };
        let lag = self.random.millis(1..100);
        self.after(lag, Happening::Input(id, life, Box::new(Input::Copy(CopyResult { repository, outcome }))));
    }

    /// The disk of a git server works on a copy; if that was killed, it does a part of it.
    pub(crate) fn on_copying(&mut self, id: ProcessId, life: u64, work: Copying) {
        let loses = self.mutation == Some(Mutation::CopiesLoseCommits) && self.random.chance(300);
        let Some(process) = self.processes.get(&id) else { return };
        let (is_killed, disk, mono) = (process.life != life, process.disk.clone(), self.mono);
        if is_killed && process.program.is_some() {
            return;
        }
        let is_torn = disk.with_copies(|copies| copies.torn_until.is_some_and(|until| until > mono));
        let failure = Failure {
            steps: if is_killed { self.random.below(STEPS + 1) } else { STEPS },
            is_torn: is_torn && self.random.chance(500),
            loses,
        };
        let result = disk.with_copies(|copies| copies.perform(work, mono, failure));
        let lag = self.random.millis(1..100);
        let input = Input::GitServer(Event::Copied(result));
        self.after(lag, Happening::Input(id, life, Box::new(input)));
    }

    /// A cluster manager comes to know that a git server is alive, or is not.
    pub(crate) fn learn_of_git_server(&mut self, id: ProcessId, role: &Role, input: &Input) {
        let Input::Host(event) = input else { return };
        if !self.with_git || *role != Role::ClusterManager {
            return;
        }
        let is_git =
            |node: &sparkplug::EdgeNodeDescriptor| node.edge_node.as_str() == git_server_contract::names::NODE_ID;
        match event {
            HostEvent::NodeBirth { node, metrics, .. } if is_git(node) => {
                let instance = metrics.iter().find(|metric| &*metric.name == "Speaker/Instance");
                let of = instance.and_then(|metric| {
                    let (process, life) = metric.as_str()?.split_once('-')?;
                    Some((ProcessId(process.parse().ok()?), life.parse().ok()?))
                });
                self.pushing.alive.remove(&id);
                self.pushing.alive.extend(of.map(|of| (id, of)));
            }
            HostEvent::NodeDeath { node, .. } | HostEvent::NodeStale { node, .. } if is_git(node) => {
                self.pushing.alive.remove(&id);
            }
            HostEvent::Offline { .. } => drop(self.pushing.alive.remove(&id)),
            _ => {}
        }
    }

    /// An edge is sent a commit: the copy has it. A git server that was killed may have lost it since, as long as the cluster manager does not know that it was killed.
    pub(crate) fn check_what_is_sent(&mut self, id: ProcessId, request: &HostRequest) {
        if !self.with_git {
            return;
        }
        let HostRequest::Command { node, device: None, metrics } = request else { return };
        let Ok(Some(SyncCommand::Source(desired))) = SyncCommand::from_event(None, metrics) else { return };
        let cluster = self.clusters.values().find(|cluster| group(&cluster.name) == node.group);
        let alive = self.pushing.alive.get(&id).copied();
        let lives = |(process, life): (ProcessId, u64)| {
            self.processes.get(&process).is_some_and(|process| process.life == life && process.program.is_some())
        };
        if alive.is_some_and(|alive| !lives(alive)) {
            return;
        }
        let servers = match alive {
            Some((process, _)) => vec![process],
            None => self.processes_of(&Role::GitServer),
        };
        let own = cluster.map(|cluster| (cluster.uuid, desired.sources.repository));
        let charts = desired.sources.charts.map(|commit| (HELM_CHARTS, commit));
        for (repository, commit) in own.into_iter().chain(charts) {
            let commit = commit.to_string();
            let has = |process: &ProcessId| {
                let disk = &self.processes[process].disk;
                disk.with_copies(|copies| {
                    copies.served(repository).is_some_and(|(_, main)| main.as_ref() == Some(&commit))
                })
            };
            if !servers.iter().any(has) {
                let detail = format!(
                    "{node} is sent commit {commit} of {repository}, and the copy of {alive:?} does not have it"
                );
                self.checks.fail_with(Violation::new("served-before-sent", detail));
            }
            self.pushing.sent.insert(commit);
        }
    }
}
