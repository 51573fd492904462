//! The cluster manager: its real state.

use std::any::Any;
use std::time::Duration;

use access::rate::Rate;
use cluster_manager::event::{
    CopyAction, CopyOutcome, CopyResult, CopyWork, Effect as ManagerEffect, Event as ManagerEvent,
};
use cluster_manager::state::{ClusterManager, PersistedRepositories, Settings as ManagerSettings};
use configdb_schema::known::repository::HELM_CHARTS;
use manifests::git_address::GitAddress;
use sparkplug::Now;
use sparkplug::edge_node::EdgeNodeConfig;
use sparkplug::host::HostConfig;

use crate::fleet::enrolment::seal_login;
use crate::model::git::commit;
use crate::model::mutation::Mutation;
use crate::model::names::organisation;
use crate::model::program::{Action, Boot, Input, Program};
use crate::model::pushing::key_pair;
use crate::world::World;

pub(crate) fn boot(world: &World, seed: u64, now: Now) -> Boot {
    let (git, with_git) = (&world.git, world.with_git);
    let organisation = organisation();
    let address = GitAddress { own: "http://git.example:8480".to_owned(), external: None };
    let settings = ManagerSettings {
        version: "sim".to_owned(),
        cluster: cluster_manager::cluster_repo::Settings {
            organisation: organisation.to_string(),
            git: address.clone(),
            mqtt_servers: vec!["mqtt://broker.example:1883".to_owned()],
            mqtt_secret: None,
            quarantine: None,
            realm: None,
        },
        deployment: manifests::render::Settings {
            git: address,
            base_values: serde_json::Map::new(),
            manifests_bytes_max: 200 * 1024,
        },
        away: Duration::from_secs(30),
        flux_away: Duration::from_secs(600),
        rate: Rate::per_minute(300),
        retry: (Duration::from_secs(1), Duration::from_secs(60)),
        realm: None,
        charts_commit: Some(commit(git.charts.as_ref().map_or(1, |charts| charts.commits))),
        charts: None,
        charts_written: false,
        scripts_url: "http://api.example:8483".to_owned(),
        git_key: if with_git { key_pair(seed).public().to_string() } else { String::new() },
        is_git_fixed: true,
        awaits_git: with_git && world.mutation != Some(Mutation::SendsBeforeItKnows),
        organisation: organisation.clone(),
    };
    let shared = git.charts.iter().map(|charts| (HELM_CHARTS, charts.wanted_by));
    let left = PersistedRepositories { clusters: git.left(), shared: shared.collect() };
    let state = ClusterManager::new(settings, left, seed, now);
    let mut program = Manager { state, with_git, is_busy: seed.is_multiple_of(2), taken: 0, turn_at: None };
    let node = cluster_manager::adapters::sparkplug::own_descriptor(&organisation).expect("ACME is a name");
    let host = cluster_manager::adapters::sparkplug::host_config(&organisation).expect("ACME is a name");
    let config = EdgeNodeConfig { seed, ..cluster_manager::adapters::sparkplug::node_config(node) };
    let node = (config, program.state.node_metrics());
    let actions = program.actions(now);
    Boot { program: Box::new(program), node: Some(node), host: Some(HostConfig { seed: seed ^ 1, ..host }), actions }
}

/// The cluster manager.
#[derive(Debug)]
struct Manager {
    state: ClusterManager,
    with_git: bool,
    /// Events wait for each other; else each is followed by a turn at once, as where there is little to do.
    is_busy: bool,
    /// Events so far.
    taken: u64,
    /// `Now::mono` of the next turn, if events wait for it.
    turn_at: Option<Duration>,
}

/// Of so many events one is followed by a turn at once also if the manager is busy.
const TURNS: u64 = 3;
/// The others wait so long for more, as events that are there together are followed by one turn.
const TOGETHER: Duration = Duration::from_millis(20);

/// What the disk answers where no copy is wanted.
fn no_copy(action: CopyAction) -> Option<CopyOutcome> {
    match action {
        CopyAction::Inspect => Some(CopyOutcome::Inspected(Ok(None))),
        CopyAction::Pack { .. } => Some(CopyOutcome::Packed(Ok(None))),
        CopyAction::Part { .. } | CopyAction::DropPack(_) => None,
    }
}

impl Manager {
    fn actions(&mut self, now: Now) -> Vec<Action> {
        let state = &mut self.state;
        let mut effects = Vec::new();
        loop {
            let next = state.poll_effects();
            if next.is_empty() {
                break;
            }
            for effect in next {
                match effect {
                    ManagerEffect::SealLogin { cluster, key } => {
                        state.on_event(ManagerEvent::LoginSealed(seal_login(cluster, key)), now);
                    }
                    // There is no git server here that could have copies.
                    ManagerEffect::Copy(CopyWork { repository, action }) if !self.with_git => {
                        let outcome = no_copy(action);
                        let result = outcome.map(|outcome| ManagerEvent::Copy(CopyResult { repository, outcome }));
                        result.into_iter().for_each(|event| state.on_event(event, now));
                    }
                    other => effects.push(other),
                }
            }
        }
        effects
            .into_iter()
            .filter_map(|effect| match effect {
                ManagerEffect::Host(request) => Some(Action::Host(request)),
                ManagerEffect::Node(update) => Some(Action::Node(update)),
                ManagerEffect::Git(work) => Some(Action::Git(work)),
                // No one fetches a script here.
                ManagerEffect::BootstrapGrant { .. } | ManagerEffect::Script(_) => None,
                ManagerEffect::SealLogin { .. } => unreachable!("it is sealed before"),
                ManagerEffect::Copy(work) => Some(Action::Copy(work)),
                ManagerEffect::Push(work) => Some(Action::Push(work)),
                // This site has no KDC.
                ManagerEffect::Principals(_) => None,
                ManagerEffect::Shared(_) => unreachable!("that of the charts is the only shared repository"),
                ManagerEffect::GitResponse(answer) => Some(Action::GitResponse(answer)),
            })
            .collect()
    }
}

impl Program for Manager {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        let is_timer = matches!(input, Input::Timer);
        let event = match input {
            Input::Timer => ManagerEvent::DeadlineReached,
            Input::Node(event) => ManagerEvent::Node(event),
            Input::Host(event) => ManagerEvent::Host(event),
            Input::Git(result) => ManagerEvent::Git(result),
            Input::Copy(result) => ManagerEvent::Copy(result),
            Input::PushTaken(result) => ManagerEvent::PushTaken(result),
            Input::GitRequest(asked) => ManagerEvent::GitRequest(asked),
            _ => return Vec::new(),
        };
        self.state.on_event(event, now);
        self.taken += 1;
        if self.is_busy && !is_timer && !self.taken.is_multiple_of(TURNS) {
            self.turn_at = Some(self.turn_at.unwrap_or(now.mono + TOGETHER));
            return Vec::new();
        }
        self.turn_at = None;
        self.actions(now)
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.turn_at.or_else(|| self.state.next_deadline())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
