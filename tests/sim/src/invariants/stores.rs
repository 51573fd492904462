//! Stores that are restored or replaced: what is lost with them, and what an edge may follow.

use edge_sync::record::IndexRecord;

use crate::model::checks::Violation;
use crate::model::kubernetes::Cluster;
use crate::model::role::Role;
use crate::world::World;

/// What an edge accepts contains what it accepted before, unless an operator decided otherwise.
pub(crate) fn acknowledged_is_kept(
    world: &World,
    cluster: &Cluster,
    old: &IndexRecord,
    new: &IndexRecord,
) -> Result<(), Violation> {
    let (Some(before), Some(after)) = (old.index.origin, new.index.origin) else {
        let detail = format!("{} follows what does not say where it comes from", cluster.name);
        return if old.index.origin.is_some() { Err(Violation::new("acknowledged-is-kept", detail)) } else { Ok(()) };
    };
    let disk = world.process_of(&Role::ConfigDb).map(|id| &world.processes[&id].disk);
    let is_kept = match after.epoch.cmp(&before.epoch) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => {
            let contains = |disk: &crate::model::disk::Disk| disk.contains(after.store, after.point, before.point);
            after.store == before.store && disk.is_some_and(contains)
        }
        std::cmp::Ordering::Greater => world.checks.decisions.contains(&(cluster.uuid, after.epoch)),
    };
    let detail = || format!("{} accepted {before} and then {after}, which does not contain it", cluster.name);
    if is_kept { Ok(()) } else { Err(Violation::new("acknowledged-is-kept", detail())) }
}
