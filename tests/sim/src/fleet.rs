//! What runs: the real states of every service, the machines that they are given, and simple programs for edge agents, the operator and an observer.

pub mod config_db;
pub mod console;
pub mod enrolment;
pub mod hosts;
pub mod joining;
pub mod keys;
pub mod people;

use std::any::Any;
use std::time::Duration;

use access::rate::Rate;
use cluster_manager::event::{
    CopyAction, CopyOutcome, CopyResult, CopyWork, Effect as ManagerEffect, Event as ManagerEvent,
};
use cluster_manager::git_address::GitAddress;
use cluster_manager::state::{ClusterManager, PersistedRepositories, Settings as ManagerSettings};
use edge_monitor::config_freshness::ReloadPolicy;
use edge_monitor::event::{Effect as MonitorEffect, Event as MonitorEvent};
use edge_monitor::state::{Scope, Settings as MonitorSettings, State as MonitorState};
use edge_monitor_contract::{identity, names as monitor_names};
use edge_sync::event::Event as SyncEvent;
use edge_sync::state::prune::PruneLimits;
use edge_sync::state::{Settings as SyncSettings, State as SyncState};
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::host::HostConfig;
use sparkplug::session::QoS;
use sparkplug::{EdgeNodeDescriptor, HostId, Metric, Now, Value};
use uuid::Uuid;

use crate::model::disk::Disk;
use crate::model::kubernetes::{NAMESPACE, kinds};
use crate::model::mutation::Mutation;
use crate::model::names::{group, organisation};
use crate::model::program::{Action, Boot, Input, Program};
use crate::model::role::Role;
use crate::operator::Operator;
use crate::world::World;

/// The Edge Node that Sync starts when it knows everything.
#[must_use]
pub fn sync_node_config(cluster_name: &str, seed: u64) -> EdgeNodeConfig {
    let node = edge_sync_contract::names::sync_node(group(cluster_name));
    EdgeNodeConfig { seed, ..EdgeNodeConfig::for_one_speaker(node) }
}

/// Starts the program of a role.
pub fn boot(role: &Role, disk: &Disk, world: &World, seed: u64, now: Now) -> Boot {
    match role {
        Role::ConfigDb => config_db::boot(disk, world.mutation, seed, now),
        Role::ClusterManager => boot_manager(world, seed, now),
        Role::Identity => enrolment::boot_identity(disk, seed, now),
        Role::Central => boot_monitor(Scope::Central { organisation: organisation() }, seed),
        Role::Sync(cluster) => boot_sync(&world.clusters[cluster], seed, now),
        Role::Monitor(cluster) => {
            let cluster = &world.clusters[cluster];
            boot_monitor(Scope::Edge { group: group(&cluster.name), cluster: cluster.uuid }, seed)
        }
        Role::Keys(cluster) => keys::boot(&world.clusters[cluster], seed),
        Role::Join(cluster, _) => joining::boot_service(&world.clusters[cluster], seed, now),
        Role::Enrolling(cluster, applicant) => enrolment::boot(*cluster, *applicant, world, seed),
        Role::Host(cluster, number) => {
            let (part, host) = &world.joins[cluster].hosts[number];
            joining::boot_host(*part, host, seed, now)
        }
        Role::Agent { cluster, uuid, name, obeys } => {
            let cluster = &world.clusters[cluster];
            let revision = cluster.wanted_revision(*uuid);
            boot_agent(
                EdgeNodeDescriptor::parse(group(&cluster.name).as_str(), name),
                *uuid,
                revision,
                (*obeys, world.mutation == Some(Mutation::StandsStill)),
                seed,
                now,
            )
        }
        Role::Operator => Operator::boot(seed),
        Role::Console => console::boot(disk, world.mutation, seed, now),
        Role::Observer => {
            // ConfigDB, by far the largest node, has listeners enough.
            let nodes = ["Sync", "Monitor", "Join"].map(|node| format!("spBv1.0/+/+/{node}/#"));
            let manager = "spBv1.0/ACME-Central/+/Cluster-Manager/#".to_owned();
            let filters = nodes.into_iter().chain([manager]).map(|filter| (filter, QoS::AtLeastOnce)).collect();
            let config = HostConfig { seed, filters, ..host("observer") };
            Boot { program: Box::new(Listener), node: None, host: Some(config), actions: Vec::new() }
        }
    }
}

/// A Host Application of that name.
pub(crate) fn host(name: &str) -> HostConfig {
    HostConfig::of_contracts(Some(HostId::new(name).expect("host names of a run are host ids")))
}

fn boot_manager(world: &World, seed: u64, now: Now) -> Boot {
    let organisation = organisation();
    let git = GitAddress { own: "http://git.example:8480".to_owned(), external: None };
    let settings = ManagerSettings {
        version: "sim".to_owned(),
        cluster: cluster_manager::cluster_repo::Settings {
            organisation: organisation.to_string(),
            git: git.clone(),
            mqtt_servers: vec!["mqtt://broker.example:1883".to_owned()],
            mqtt_secret: None,
            quarantine: None,
            realm: None,
        },
        deployment: cluster_manager::render::Settings {
            git,
            base_values: serde_json::Map::new(),
            manifests_bytes_max: 200 * 1024,
        },
        away: Duration::from_secs(30),
        flux_away: Duration::from_secs(600),
        rate: Rate::per_minute(300),
        retry: (Duration::from_secs(1), Duration::from_secs(60)),
        realm: None,
        charts_commit: Some(format!("{:040x}", 1)),
        charts: None,
        charts_written: false,
        scripts_url: "http://api.example:8483".to_owned(),
        git_key: String::new(),
        is_git_fixed: true,
        organisation: organisation.clone(),
    };
    let left = PersistedRepositories { clusters: world.git.left(), shared: Vec::new() };
    let mut state = ClusterManager::new(settings, left, seed, now);
    let node = cluster_manager::adapters::sparkplug::own_descriptor(&organisation).expect("ACME is a name");
    let host = cluster_manager::adapters::sparkplug::host_config(&organisation).expect("ACME is a name");
    let config = EdgeNodeConfig { seed, ..cluster_manager::adapters::sparkplug::node_config(node) };
    let node = (config, state.node_metrics());
    let actions = manager_actions(&mut state, now);
    Boot { program: Box::new(state), node: Some(node), host: Some(HostConfig { seed: seed ^ 1, ..host }), actions }
}

/// What the disk answers where no copy is wanted.
fn no_copy(action: CopyAction) -> Option<CopyOutcome> {
    match action {
        CopyAction::Look => Some(CopyOutcome::Looked(Ok(None))),
        CopyAction::Pack { .. } => Some(CopyOutcome::Packed(Ok(None))),
        CopyAction::Part { .. } | CopyAction::DropPack(_) => None,
    }
}

fn manager_actions(state: &mut ClusterManager, now: Now) -> Vec<Action> {
    let mut effects = Vec::new();
    loop {
        let next = state.poll_effects();
        if next.is_empty() {
            break;
        }
        for effect in next {
            match effect {
                ManagerEffect::SealLogin { cluster, key } => {
                    state.on_event(ManagerEvent::LoginSealed(enrolment::seal_login(cluster, key)), now);
                }
                // There is no git server here that could have copies.
                ManagerEffect::Copy(CopyWork { repository, action }) => {
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
            // No one keeps records here.
            ManagerEffect::Record(_) => None,
            // No one fetches a script here.
            ManagerEffect::BootstrapGrant { .. } | ManagerEffect::Script(_) => None,
            ManagerEffect::SealLogin { .. } => unreachable!("it is sealed before"),
            ManagerEffect::Copy(_) => unreachable!("it is answered before"),
            ManagerEffect::Push(_) => unreachable!("no git server receives a push"),
            // This site has no KDC.
            ManagerEffect::Principals(_) => None,
            ManagerEffect::Shared(_) => unreachable!("that of the charts is the only shared repository"),
            ManagerEffect::Answer(answer) => Some(Action::Answer(answer)),
            ManagerEffect::Secret(_) => unreachable!("no one writes secrets"),
        })
        .collect()
}

impl Program for ClusterManager {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        let event = match input {
            Input::Timer => ManagerEvent::DeadlineReached,
            Input::Node(event) => ManagerEvent::Node(event),
            Input::Host(event) => ManagerEvent::Host(event),
            Input::Git(result) => ManagerEvent::Git(result),
            Input::Asked(asked) => ManagerEvent::Asked(asked),
            Input::Sync(_) | Input::Monitor(_) | Input::Join(_) | Input::Keys(_) | Input::Person(_) => {
                return Vec::new();
            }
        };
        self.on_event(event, now);
        manager_actions(self, now)
    }

    fn next_deadline(&self) -> Option<Duration> {
        Self::next_deadline(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn boot_monitor(scope: Scope, seed: u64) -> Boot {
    let instance = match &scope {
        Scope::Edge { cluster, .. } => identity::monitor_of_cluster(*cluster),
        Scope::Central { .. } => Uuid::from_u128(0xCE),
    };
    let node = edge_monitor::adapters::sparkplug::own_descriptor(&scope).expect("groups of a run are ids");
    let host = edge_monitor::adapters::sparkplug::host_config(&scope).expect("groups of a run are ids");
    let mut state = MonitorState::new(MonitorSettings {
        scope,
        instance,
        version: "sim".to_owned(),
        is_simulated: true,
        interval_default: Duration::from_secs(60),
        reload: ReloadPolicy {
            jitter: Duration::from_secs(2),
            pause: (Duration::from_secs(10), Duration::from_secs(60)),
            rest: Duration::from_secs(5),
            attempts_max: 3,
            deadline: Duration::from_secs(120),
        },
        seed,
    });
    let config = EdgeNodeConfig { seed, ..edge_monitor::adapters::sparkplug::node_config(node) };
    let node = Some((config, state.node_metrics()));
    let actions = monitor_actions(&mut state);
    Boot { program: Box::new(state), node, host: Some(HostConfig { seed: seed ^ 1, ..host }), actions }
}

fn monitor_actions(state: &mut MonitorState) -> Vec<Action> {
    let effects = state.poll_effects().into_iter();
    effects
        .map(|effect| match effect {
            MonitorEffect::Host(request) => Action::Host(request),
            MonitorEffect::Node(update) => Action::Node(update),
        })
        .collect()
}

impl Program for MonitorState {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        let event = match input {
            Input::Timer => MonitorEvent::DeadlineReached,
            Input::Node(event) => MonitorEvent::Node(event),
            Input::Host(event) => MonitorEvent::Host(event),
            Input::Monitor(event) => event,
            Input::Sync(_) | Input::Join(_) | Input::Keys(_) | Input::Git(_) | Input::Asked(_) | Input::Person(_) => {
                return Vec::new();
            }
        };
        self.on_event(event, now);
        monitor_actions(self)
    }

    fn next_deadline(&self) -> Option<Duration> {
        Self::next_deadline(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn boot_sync(cluster: &crate::model::kubernetes::Cluster, seed: u64, now: Now) -> Boot {
    let mut state = SyncState::new(
        SyncSettings {
            cluster_uuid: cluster.uuid,
            cluster_name: cluster.name.clone(),
            version: "sim".to_owned(),
            simulated: true,
            namespace: NAMESPACE.to_owned(),
            kinds: kinds(),
            applies_max: 4,
            retry: (Duration::from_secs(1), Duration::from_secs(60)),
            prune: PruneLimits {
                max_per_pass: 20,
                interval: Duration::from_secs(10),
                max_percent: 50,
                guard_delay: Duration::from_secs(30),
            },
            sealing: true,
            sealing_refresh: Duration::from_secs(3600),
            sealing_retry: (Duration::from_secs(5), Duration::from_secs(60)),
            seed,
        },
        now,
    );
    let actions = sync_actions(&mut state);
    Boot { program: Box::new(state), node: None, host: None, actions }
}

fn sync_actions(state: &mut SyncState) -> Vec<Action> {
    state.poll_effects().into_iter().map(Action::Sync).collect()
}

impl Program for SyncState {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        let event = match input {
            Input::Timer => SyncEvent::DeadlineReached,
            Input::Node(event) => SyncEvent::Node(event),
            Input::Sync(event) => event,
            Input::Host(_)
            | Input::Monitor(_)
            | Input::Join(_)
            | Input::Keys(_)
            | Input::Git(_)
            | Input::Asked(_)
            | Input::Person(_) => return Vec::new(),
        };
        self.on_event(event, now);
        sync_actions(self)
    }

    fn next_deadline(&self) -> Option<Duration> {
        Self::next_deadline(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Someone who only listens; what is received is kept by the endpoint.
#[derive(Debug)]
struct Listener;

impl Program for Listener {
    fn on_input(&mut self, _: Input, _: Now) -> Vec<Action> {
        Vec::new()
    }

    fn next_deadline(&self) -> Option<Duration> {
        None
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Name of the metric of an agent that counts up: a reader that receives a smaller value has received events out of order.
pub const COUNTER: &str = "Counter";

const COUNT_EVERY: Duration = Duration::from_secs(10);

/// An edge agent: counts, reports its configuration, and restarts when it is asked to reload.
#[derive(Debug)]
pub(crate) struct Agent {
    obeys: bool,
    stands_still: bool,
    counter: u64,
    next: Duration,
}

fn boot_agent(
    node: Result<EdgeNodeDescriptor, sparkplug::NameError>,
    uuid: Uuid,
    revision: Option<String>,
    (obeys, stands_still): (bool, bool),
    seed: u64,
    now: Now,
) -> Boot {
    let agent = Agent { obeys, stands_still, counter: 0, next: now.mono + COUNT_EVERY };
    let of_type_uuid = |name: &str, text: String| Metric {
        value: Some(Value::Uuid(text.into())),
        ..Metric::null(name, sparkplug::DataType::Uuid)
    };
    let metrics = vec![
        of_type_uuid(monitor_names::SCHEMA_UUID, identity::SCHEMA_EDGE_AGENT.to_string()),
        of_type_uuid(monitor_names::INSTANCE_UUID, uuid.to_string()),
        of_type_uuid(monitor_names::AGENT_CONFIG_REVISION, revision.unwrap_or_else(|| Uuid::nil().to_string())),
        Metric::new(monitor_names::AGENT_RELOAD, false),
        Metric::new(COUNTER, 0_u64),
    ];
    let node = node.ok().map(|node| (EdgeNodeConfig { seed, aliases: true, ..EdgeNodeConfig::new(node) }, metrics));
    Boot { program: Box::new(agent), node, host: None, actions: Vec::new() }
}

impl Program for Agent {
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action> {
        match input {
            Input::Timer => {
                if !self.stands_still {
                    self.next = now.mono + COUNT_EVERY;
                }
                self.counter += 1;
                let metrics = vec![Metric::new(COUNTER, self.counter)];
                vec![Action::Node(NodeUpdate::Set { device: None, metrics })]
            }
            Input::Node(NodeEvent::Command { device: None, metrics, .. }) if self.obeys => {
                let is_reload = metrics.iter().any(|metric| &*metric.name == monitor_names::AGENT_RELOAD);
                let exit = Action::Exit { again_after: Some(Duration::from_secs(2)) };
                if is_reload { vec![exit] } else { Vec::new() }
            }
            _ => Vec::new(),
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        Some(self.next)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
