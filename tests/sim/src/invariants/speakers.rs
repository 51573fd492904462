//! Of two processes with one Edge Node id one continues.

use std::collections::BTreeMap;
use std::time::Duration;

use sparkplug::EdgeNodeDescriptor;

use crate::model::checks::Violation;
use crate::model::endpoint::{Machine, Side};
use crate::model::network::Weather;
use crate::world::World;

/// Two processes that both have a session in fair weather know of each other within this time, and one of them has ended.
const ONE_WITHIN: Duration = Duration::from_secs(20);

pub(crate) fn one_speaker(world: &mut World) -> Result<(), Violation> {
    if !world.steps.is_multiple_of(16) {
        return Ok(());
    }
    let is_fair = world.network.weather == Weather::default() && world.network.broker_down_until.is_none();
    let mut speak: BTreeMap<&EdgeNodeDescriptor, u32> = BTreeMap::new();
    // What is not a service names no process: of two agents or thieves with one name no one knows better.
    for process in world.processes.values().filter(|process| is_fair && process.role.is_service()) {
        let is_reached = process.paused_until.is_none() && process.partitioned_until.is_none();
        let Some(endpoint) = process.endpoints.get(&Side::Node).filter(|_| is_reached) else { continue };
        if let (Machine::Node(node), Some(descriptor)) = (&endpoint.machine, &endpoint.descriptor)
            && endpoint.is_connected
            && node.is_born()
        {
            *speak.entry(descriptor).or_default() += 1;
        }
    }
    let two: Vec<EdgeNodeDescriptor> =
        speak.into_iter().filter(|(_, number)| *number > 1).map(|(node, _)| node.clone()).collect();
    let mono = world.mono;
    let known = std::mem::take(&mut world.checks.two_speak);
    for node in two {
        let since = known.get(&node).copied().unwrap_or(mono);
        if since + ONE_WITHIN < mono {
            let detail = format!("two processes speak as {node} since {since:?}, it is {mono:?}");
            return Err(Violation::new("one-speaker", detail));
        }
        world.checks.two_speak.insert(node, since);
    }
    Ok(())
}
