//! What must be true in the end: after everything is mended, within bounded time.

use std::collections::{BTreeMap, BTreeSet};

use cluster_manager_contract::SetupState;
use edge_monitor_contract::{MonitoredNodeDevice, NodeState};
use edge_sync_contract::{DeploymentDevice, DeploymentState, SyncDevice};
use sparkplug::edge_node::EdgeNode;
use sparkplug::{DeviceId, EdgeNodeDescriptor, TypedMetrics};
use uuid::Uuid;

use crate::fleet::agent::COUNTER;
use crate::fleet::operator::Operator;
use crate::invariants::reports::{cluster_devices, node_of};
use crate::model::broker::matches;
use crate::model::checks::Violation;
use crate::model::endpoint::{Machine, Side};
use crate::model::git;
use crate::model::ids::ClusterId;
use crate::model::names::group;
use crate::model::replica::{Values, values};
use crate::model::role::Role;
use crate::model::script::Fate;
use crate::model::truth::Truth;
use crate::world::World;

type Findings = Result<(), Violation>;

/// The first thing that has not converged.
#[must_use]
pub fn unsettled(world: &World) -> Option<Violation> {
    let checks: [fn(&World) -> Findings; 13] = [
        everything_runs,
        requests_are_answered,
        answers_are_kept,
        clusters_are_set_up_or_gone,
        deployments_are_applied_or_refused,
        secrets_are_written,
        replicas_equal_their_sources,
        monitors_report_what_is_true,
        super::joins::hosts_are_in,
        super::enrolment::clusters_are_enrolled,
        super::console::shows_what_is,
        super::keys::keys_are_in_step,
        super::copies::copies_equal_their_repositories,
    ];
    checks.into_iter().find_map(|check| check(world).err())
}

fn unless(holds: bool, invariant: &'static str, detail: impl FnOnce() -> String) -> Findings {
    if holds { Ok(()) } else { Err(Violation::new(invariant, detail())) }
}

fn everything_runs(world: &World) -> Findings {
    // Who asks to be enrolled runs a command, and again after a refusal.
    let is_command = |role: &Role| matches!(role, Role::Enrolling(..));
    for process in world.processes.values().filter(|process| !is_command(&process.role)) {
        unless(process.program.is_some(), "resume-anywhere", || format!("{} does not run", process.role))?;
        let is_born = process.endpoints.contains_key(&Side::Node) || !matches!(process.role, Role::Sync(_));
        unless(is_born, "resume-anywhere", || format!("{} was never born", process.role))?;
        for endpoint in process.endpoints.values() {
            let is_up = match &endpoint.machine {
                Machine::Node(node) => node.is_born(),
                Machine::Host(_) => endpoint.is_connected,
            };
            unless(is_up, "resume-anywhere", || format!("{} has no session", process.role))?;
        }
    }
    Ok(())
}

fn operator(world: &World) -> Option<&Operator> {
    let process = &world.processes[&world.process_of(&Role::Operator)?];
    process.program.as_ref()?.as_any().downcast_ref()
}

fn requests_are_answered(world: &World) -> Findings {
    let Some(operator) = operator(world) else { return Ok(()) };
    let open = operator.fates.iter().find(|(_, fate)| **fate == Fate::Open);
    unless(open.is_none(), "applied-or-visible", || format!("request {:?} is neither answered nor given up", open))
}

fn store(world: &World) -> Option<configdb::store::Snapshot> {
    Some(world.processes[&world.process_of(&Role::ConfigDb)?].disk.store()?.load_now())
}

fn answers_are_kept(world: &World) -> Findings {
    let (Some(operator), Some(store)) = (operator(world), store(world)) else { return Ok(()) };
    let kept: BTreeSet<&str> = store.requests.iter().map(|request| request.result.id.as_str()).collect();
    let lost = operator
        .fates
        .iter()
        .find(|(id, fate)| **fate == Fate::Applied && !kept.contains(id.as_str()) && !world.checks.is_lost(id));
    unless(lost.is_none(), "resume-anywhere", || {
        format!("request {:?} was answered as applied, but the database does not know it", lost)
    })
}

fn clusters_are_set_up_or_gone(world: &World) -> Findings {
    let Some(snapshot) = store(world) else { return Ok(()) };
    let truth = Truth::of(&snapshot);
    let devices = cluster_devices(world);
    for (uuid, cluster) in &truth.clusters {
        let device = devices.get(uuid);
        let is_settled = device.is_some_and(|device| match device.setup.state {
            SetupState::Ready => true,
            SetupState::Refused => device.setup.reason.is_some(),
            SetupState::Pending | SetupState::SettingUp | SetupState::Deleting | SetupState::Waiting => false,
        });
        unless(is_settled, "applied-or-visible", || {
            format!("cluster {} ({uuid}) is neither ready nor refused: {:?}", cluster.name, device.map(|d| &d.setup))
        })?;
    }
    for (uuid, device) in &devices {
        unless(truth.clusters.contains_key(uuid), "applied-or-visible", || {
            format!("cluster {} ({uuid}) is deleted, but still {:?}", device.name, device.setup)
        })?;
    }
    let state = |uuid: &Uuid| devices.get(uuid).map(|device| device.setup.state);
    // No one deletes the repository of a cluster that the store has lost, nor if it came back and is refused, because its name is another one's by now.
    // Nor that of a cluster which is refused because another one of its name came back, or whose tear-down is recorded in a lost store alone.
    let is_kept = |uuid: &Uuid| {
        let is_refused = state(uuid) == Some(SetupState::Refused);
        let is_out = !truth.clusters.contains_key(uuid) || is_refused;
        let is_forgotten = state(uuid).is_none() && world.checks.was_store_replaced();
        is_forgotten
            || world.checks.is_cluster_lost(*uuid) && is_out
            || world.checks.is_cluster_contested(*uuid) && is_refused
    };
    for (uuid, repository) in world.git.repositories.iter().filter(|(uuid, _)| !is_kept(uuid)) {
        let is_wanted = state(uuid) == Some(SetupState::Ready);
        unless(is_wanted == repository.is_open, "applied-or-visible", || {
            format!("repository {} is open: {}, but wanted: {is_wanted}", repository.path, repository.is_open)
        })?;
    }
    for uuid in world.git.acknowledged().filter(|uuid| state(uuid) == Some(SetupState::Ready)) {
        let lost = world.git.lost(uuid);
        unless(lost.is_none(), "written-is-kept", || {
            format!("the cluster manager's disk has lost {}", lost.unwrap_or_default())
        })?;
    }
    Ok(())
}

fn secrets_are_written(world: &World) -> Findings {
    let Some(snapshot) = store(world) else { return Ok(()) };
    let truth = Truth::of(&snapshot);
    let devices = cluster_devices(world);
    let is_ready = |uuid: &Uuid| devices.get(uuid).is_some_and(|device| device.setup.state == SetupState::Ready);
    for secret in truth.secrets.iter().filter(|secret| is_ready(&secret.cluster)) {
        let stored = world.git.secrets(secret.cluster);
        for (key, value) in &secret.keys {
            let path = format!("{}/{}/{key}", secret.namespace, secret.name);
            let at = stored.get(&path);
            let holds = match &value.value {
                Some(_) => at.is_some_and(|at| *at >= value.at),
                None => at.is_none_or(|at| *at > value.at),
            };
            unless(holds, "applied-or-visible", || {
                format!("{path} of {} is wanted as of {}, and in the repository as of {at:?}", secret.cluster, value.at)
            })?;
            let is_later = at.is_some_and(|at| *at > value.at);
            let reason = devices.get(&secret.cluster).and_then(|device| device.secrets.reason.as_ref());
            unless(!is_later || reason.is_some(), "applied-or-visible", || {
                format!("{path} of {} is later in the repository, and the Device does not say so", secret.cluster)
            })?;
        }
    }
    Ok(())
}

fn deployments_are_applied_or_refused(world: &World) -> Findings {
    let Some(snapshot) = store(world) else { return Ok(()) };
    let truth = Truth::of(&snapshot);
    let devices = cluster_devices(world);
    for site in world.cluster_ids() {
        let cluster = &world.clusters[&site];
        let ready = devices.get(&cluster.uuid).filter(|device| device.setup.state == SetupState::Ready);
        let mut refused: BTreeSet<Uuid> = BTreeSet::new();
        if let Some(device) = ready {
            refused.extend(device.deployments_refused.0.keys());
            unless(device.desired.agreed, "applied-or-visible", || {
                format!("cluster {} has not agreed to index version {}", cluster.name, device.desired.version)
            })?;
            let commits = world.git.repositories.get(&cluster.uuid).map_or(0, |repository| repository.commits);
            let announced = cluster.flux_sources.as_ref().map(|sources| sources.repository.to_string());
            unless(announced.as_ref() == Some(&git::commit(commits)), "applied-or-visible", || {
                format!("Flux of cluster {} was sent {announced:?}, its repository has {commits} commits", cluster.name)
            })?;
        }
        let wanted =
            truth.deployments.iter().filter(|(_, deployment)| deployment.cluster == cluster.uuid && ready.is_some());
        let wanted: BTreeSet<Uuid> = wanted.map(|(uuid, _)| *uuid).collect();
        for uuid in wanted.difference(&refused) {
            is_applied_or_refused(world, site, *uuid)?;
        }
        // Of a cluster that is gone or refused nothing is said any more; its machines keep what they have.
        if ready.is_some() {
            only_wanted_objects(world, site, &wanted)?;
        }
    }
    Ok(())
}

fn is_applied_or_refused(world: &World, site: ClusterId, uuid: Uuid) -> Findings {
    let cluster = &world.clusters[&site];
    let entry = cluster.accepted().and_then(|record| record.entry(uuid));
    let Some(entry) = entry else {
        let detail = format!("deployment {uuid} is not in the accepted index of {}", cluster.name);
        return Err(Violation::new("applied-or-visible", detail));
    };
    let reported = node_of(world, &Role::Sync(site)).and_then(|node| {
        let devices = node.devices().filter(|id| matches!(SyncDevice::parse(id), Some(SyncDevice::Deployment(_))));
        let mut devices = devices.filter_map(|id| DeploymentDevice::from_metrics(&node.metrics(Some(id))?).ok());
        devices.find(|device| device.uuid == uuid)
    });
    let Some(reported) = reported else {
        let detail = format!("deployment {uuid} is not reported by {}", cluster.name);
        return Err(Violation::new("applied-or-visible", detail));
    };
    let is_refused = reported.state == DeploymentState::Refused && reported.reason.is_some();
    unless(is_refused || reported.is_applied(entry.digest), "applied-or-visible", || {
        format!("deployment {uuid} on {} is {reported:?}, but the index lists {entry:?}", cluster.name)
    })?;
    let digest = entry.digest.to_string();
    let objects = cluster
        .objects
        .values()
        .filter(|object| object.body["metadata"]["labels"]["factoryplus.app.amrc.co.uk/uuid"] == *uuid.to_string());
    let digests: Vec<&str> =
        objects.filter_map(|object| object.body["metadata"]["annotations"]["sparkfleet.io/digest"].as_str()).collect();
    unless(
        is_refused || (!digests.is_empty() && digests.iter().all(|known| *known == digest)),
        "applied-or-visible",
        || {
            format!(
                "deployment {uuid} is reported as applied on {}, but its objects there are {digests:?}",
                cluster.name
            )
        },
    )
}

fn only_wanted_objects(world: &World, site: ClusterId, wanted: &BTreeSet<Uuid>) -> Findings {
    let cluster = &world.clusters[&site];
    for (key, object) in &cluster.objects {
        let owner = object.body["metadata"]["labels"]["factoryplus.app.amrc.co.uk/uuid"].as_str();
        let owner = owner.and_then(|text| text.parse::<Uuid>().ok());
        unless(owner.is_some_and(|owner| wanted.contains(&owner)), "applied-or-visible", || {
            format!("{key} of {owner:?} is still on {}, but no deployment wants it there", cluster.name)
        })?;
    }
    Ok(())
}

fn replicas_equal_their_sources(world: &World) -> Findings {
    let mut sources: BTreeMap<EdgeNodeDescriptor, (&EdgeNode, String)> = BTreeMap::new();
    for process in world.processes.values() {
        if let Some((Machine::Node(node), descriptor)) = process
            .endpoints
            .get(&Side::Node)
            .and_then(|endpoint| Some((&endpoint.machine, endpoint.descriptor.clone()?)))
        {
            sources.insert(descriptor, (node, process.role.to_string()));
        }
    }
    for process in world.processes.values() {
        // What joining hosts publish are messages, which are passed on and not kept.
        let keeps = !matches!(process.role, Role::Join(..));
        let Some(endpoint) = process.endpoints.get(&Side::Host).filter(|_| keeps) else { continue };
        let subscribes = |node: &EdgeNodeDescriptor| {
            let topic = format!("spBv1.0/{}/NBIRTH/{}", node.group, node.edge_node);
            endpoint.filters.iter().any(|filter| matches(filter, &topic))
        };
        for (descriptor, view) in endpoint.replica.nodes() {
            let is_there = sources.get(descriptor).is_some_and(|(node, _)| node.is_born());
            unless(!view.is_alive || is_there, "alive-means-born", || {
                format!("{} takes {descriptor} for alive, which does not run", process.role)
            })?;
        }
        for (descriptor, (node, _)) in sources.iter().filter(|(descriptor, _)| subscribes(descriptor)) {
            if !endpoint.replica.must_know(descriptor) {
                continue;
            }
            let Some(view) = endpoint.replica.node(descriptor).filter(|view| view.is_alive) else {
                let detail = format!("{} has no replica of {descriptor}, which is alive", process.role);
                return Err(Violation::new("replica-equals-source", detail));
            };
            same_values(&process.role, descriptor, None, node, &view.values)?;
            for device in node.devices().filter(|device| endpoint.keeps(descriptor, device)) {
                let held = view.devices.get(device);
                let held = held.cloned().unwrap_or_default();
                same_values(&process.role, descriptor, Some(device), node, &held)?;
            }
            let extra = view.devices.keys().find(|device| node.metrics(Some(device)).is_none());
            unless(extra.is_none(), "replica-equals-source", || {
                format!("{} has device {extra:?} of {descriptor}, which is gone", process.role)
            })?;
        }
    }
    Ok(())
}

fn same_values(
    role: &Role,
    descriptor: &EdgeNodeDescriptor,
    device: Option<&DeviceId>,
    node: &EdgeNode,
    held: &Values,
) -> Findings {
    let source = values(&node.metrics(device).unwrap_or_default());
    // An agent counts for ever; its last count may be on its way.
    let is_moving = |name: &str| matches!(name, COUNTER | "Node Control/Rebirth");
    let different = source.iter().find(|(name, value)| !is_moving(name) && held.get(*name) != Some(value));
    unless(different.is_none(), "replica-equals-source", || {
        let (name, value) =
            different.map(|(name, value)| (name.clone(), value.clone())).unwrap_or_else(|| ("".into(), None));
        let text = format!("{:?}", held.get(&name));
        let other = format!("{value:?}");
        format!("{role} has {name} of {descriptor} {device:?} as {:.300}, but it is {:.300}", text, other)
    })
}

fn monitors_report_what_is_true(world: &World) -> Findings {
    for site in world.cluster_ids() {
        let Some(node) = node_of(world, &Role::Monitor(site)) else { continue };
        let cluster = &world.clusters[&site];
        for (uuid, name) in cluster.agents() {
            let Ok(id) = DeviceId::new(&name) else { continue };
            let device = node.metrics(Some(&id)).and_then(|metrics| MonitoredNodeDevice::from_metrics(&metrics).ok());
            let is_right = device.as_ref().is_some_and(|device| {
                device.state == NodeState::Online && !device.offline.active && device.node == Some(uuid)
            });
            unless(is_right, "alive-means-born", || {
                format!("the monitor of {} says of agent {name} ({uuid}), which is alive: {device:?}", cluster.name)
            })?;
            let device = device.unwrap_or_else(|| unreachable!("it was just found right"));
            let is_current = device.config_wanted.is_none() || device.config_wanted == device.config_reported;
            unless(is_current || device.will_not_reload.active, "applied-or-visible", || {
                format!("agent {name} on {} has not its configuration, and no alert says so: {device:?}", cluster.name)
            })?;
        }
    }
    let Some(central) = node_of(world, &Role::Central) else { return Ok(()) };
    for cluster in world.clusters.values() {
        let id =
            DeviceId::new(group(&cluster.name).as_str()).unwrap_or_else(|_| unreachable!("group ids are device ids"));
        let device = central.metrics(Some(&id)).and_then(|metrics| MonitoredNodeDevice::from_metrics(&metrics).ok());
        unless(device.as_ref().is_some_and(|device| device.state == NodeState::Online), "alive-means-born", || {
            format!("the central monitor says of cluster {}, whose monitor is alive: {device:?}", cluster.name)
        })?;
    }
    Ok(())
}
