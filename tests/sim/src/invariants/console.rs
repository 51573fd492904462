//! What the console shows: in the end what is, and of the past what it showed then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_view::Fleet;
use fleet_view::deltas::Table;
use fleet_view::history::View;
use fleet_view::tables::Rows;
use serde_json::Value as Json;
use sparkplug::edge_node::CONTESTED;
use sparkplug::host::HostEvent;
use sparkplug::{BdSeq, DataType, DeviceId, EdgeNodeDescriptor, Metric, Value};

use crate::fleet::console::Console;
use crate::model::checks::Violation;
use crate::model::endpoint::{Machine, Side};
use crate::model::names::organisation;
use crate::model::role::Role;
use crate::model::truth::Truth;
use crate::world::World;

/// When something was received is not the same for two who receive it, nor is what follows from it.
const OF_TIME: [&str; 8] =
    ["since", "alive_since", "edge_since", "setup_since", "at", "applied_at", "first_seen", "path"];

/// In the order of time.
const BY_TIME: &str = "reasons";

fn without_times(value: &Json) -> Json {
    match value {
        Json::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !OF_TIME.contains(&name.as_str()));
            kept.map(|(name, value)| (name.clone(), without_order(name, without_times(value)))).collect()
        }
        Json::Array(values) => values.iter().map(without_times).collect(),
        other => other.clone(),
    }
}

fn without_order(name: &str, mut value: Json) -> Json {
    if let Json::Array(values) = &mut value
        && name == BY_TIME
    {
        values.sort_by_cached_key(Json::to_string);
    }
    value
}

fn rows(table: &Table) -> BTreeMap<&str, Json> {
    table.iter().map(|(key, row)| (key.as_str(), without_times(row))).collect()
}

/// A reader to whom every Edge Node has said everything just now, and who knows of those that are not there what the console received last: it alone was there.
fn reader_of_sources(world: &World) -> Option<Fleet> {
    let mut fleet = Fleet::new(organisation()).ok()?;
    // That another process was born under its id is of the session of an Edge Node, and nowhere among its values.
    let received = &world.processes[&world.process_of(&Role::Console)?].endpoints.get(&Side::Host)?.replica;
    let contested = |node| received.node(node)?.values.get_key_value(CONTESTED);
    let mut born = BTreeSet::new();
    for process in world.processes.values() {
        let Some(endpoint) = process.endpoints.get(&Side::Node) else { continue };
        if let (Machine::Node(node), Some(descriptor)) = (&endpoint.machine, &endpoint.descriptor)
            && node.is_born()
        {
            let own = node.metrics(None).unwrap_or_default().into_iter();
            let metrics = own.chain(contested(descriptor).map(metric)).collect();
            let devices = node.devices().map(|device| (device, node.metrics(Some(device)).unwrap_or_default()));
            births(&mut fleet, descriptor, metrics, devices);
            born.insert(descriptor);
        }
    }
    for (node, view) in received.nodes().filter(|(node, view)| view.bd_seq.is_some() && !born.contains(node)) {
        let metrics = view.values.iter().map(metric).collect();
        let devices = view.devices.iter().map(|(device, values)| (device, values.iter().map(metric).collect()));
        births(&mut fleet, node, metrics, devices);
        let node = node.clone();
        fleet.on_event(&if view.is_dead {
            HostEvent::NodeDeath { node, timestamp: 0 }
        } else {
            HostEvent::NodeStale { node, reason: "it was not received again".into() }
        });
    }
    Some(fleet)
}

fn metric((name, value): (&Arc<str>, &Option<Value>)) -> Metric {
    let name = Arc::clone(name);
    let metric = match value {
        Some(value) => Metric::new(name, value.clone()),
        None => Metric::null(name, DataType::String),
    };
    metric.at(0)
}

fn births<'a>(
    fleet: &mut Fleet,
    node: &EdgeNodeDescriptor,
    metrics: Vec<Metric>,
    devices: impl Iterator<Item = (&'a DeviceId, Vec<Metric>)>,
) {
    let node = || node.clone();
    fleet.on_event(&HostEvent::NodeBirth {
        node: node(),
        bd_seq: BdSeq::ZERO,
        timestamp: 0,
        uuid: None,
        metrics: metrics.into(),
    });
    for (device, metrics) in devices {
        let (device, metrics) = (device.clone(), metrics.into());
        fleet.on_event(&HostEvent::DeviceBirth { node: node(), device, timestamp: 0, metrics });
    }
}

fn console(world: &World) -> Option<&Console> {
    world.processes[&world.process_of(&Role::Console)?].program.as_ref()?.as_any().downcast_ref()
}

/// The console shows what every service says of itself, and what ConfigDB's database wants.
pub(crate) fn shows_what_is(world: &World) -> Result<(), Violation> {
    let violation = |detail| Violation::new("console-shows-what-is", detail);
    let Some(console) = console(world) else { return Ok(()) };
    let fleet = reader_of_sources(world).ok_or_else(|| violation("ACME is not a name".to_owned()))?;
    let made = Rows::of(&fleet);
    let tables = [
        (View::Alerts, made.alerts()),
        (View::Clusters, made.clusters()),
        (View::Hosts, made.hosts().clone()),
        (View::Deployments, made.deployments()),
        (View::Rollout, made.rollout()),
        (View::Fleet, made.fleet()),
    ];
    for (view, is) in &tables {
        let shown = console.table(*view).ok_or_else(|| violation(format!("table {view} was never shown")))?;
        let (shown, is) = (rows(shown), rows(is));
        let keys: BTreeSet<&str> = shown.keys().chain(is.keys()).copied().collect();
        if let Some(key) = keys.into_iter().find(|key| shown.get(*key) != is.get(*key)) {
            let fields = |row: Option<&Json>| row.and_then(Json::as_object).cloned().unwrap_or_default();
            let (shown, is) = (fields(shown.get(key)), fields(is.get(key)));
            let name = shown.keys().chain(is.keys()).find(|name| shown.get(*name) != is.get(*name));
            let name = name.map(String::as_str).unwrap_or_default();
            let (shown, is) = (format!("{:?}", shown.get(name)), format!("{:?}", is.get(name)));
            return Err(violation(format!("{name} of {key} of {view} is shown as {shown:.300}, but it is {is:.300}")));
        }
    }
    let Some(store) = world.process_of(&Role::ConfigDb).and_then(|id| world.processes[&id].disk.store()) else {
        return Ok(());
    };
    let truth = Truth::of(&store.load_now());
    let shown = |view| console.table(view).into_iter().flat_map(Table::keys).cloned().collect::<BTreeSet<String>>();
    let missing = truth.clusters.keys().find(|uuid| !shown(View::Clusters).contains(&uuid.to_string()));
    let missing =
        missing.or_else(|| truth.deployments.keys().find(|uuid| !shown(View::Deployments).contains(&uuid.to_string())));
    missing.map_or(Ok(()), |uuid| Err(violation(format!("{uuid}, which ConfigDB's database has, is not shown"))))
}

/// The state at every recorded time is what was shown at that time.
///
/// # Errors
/// It is not.
pub fn past_is_what_was_shown(world: &World) -> Result<(), Violation> {
    let Some(id) = world.process_of(&Role::Console) else { return Ok(()) };
    let contradiction = world.processes[&id].disk.with_past(|past| past.contradiction());
    contradiction.map_or(Ok(()), |detail| Err(Violation::new("past-is-what-was-shown", detail)))
}
