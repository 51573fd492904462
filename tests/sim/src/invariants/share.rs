//! One group's flood does not keep another group's nodes from being asked for their births.

use std::time::Duration;

use crate::model::checks::Violation;
use crate::model::endpoint::Side;
use crate::model::ids::ProcessId;
use crate::world::World;

/// A host that has a session asks a node whose replica is stale within this time, whatever others send. The time allows for the slowest repetition, and for the slots of the floods of a run.
const ASKED_WITHIN: Duration = Duration::from_secs(75);

pub(crate) fn fair_share(world: &mut World) -> Result<(), Violation> {
    if !world.steps.is_multiple_of(64) {
        return Ok(());
    }
    let mono = world.mono;
    let is_able = |id: &ProcessId| {
        let process = world.processes.get(id).filter(|process| process.paused_until.is_none());
        let endpoint = process.and_then(|process| process.endpoints.get(&Side::Host));
        endpoint.is_some_and(|endpoint| endpoint.is_connected)
    };
    world.checks.unasked.retain(|(id, _), _| is_able(id));
    let late = world.checks.unasked.iter().find(|(_, since)| **since + ASKED_WITHIN < mono);
    let Some(((id, node), since)) = late else { return Ok(()) };
    let detail = format!("{id:?} has not asked {node} for its birth since {since:?}, it is {mono:?}");
    Err(Violation::new("fair-share", detail))
}
