//! What must always be true, and what must be true in the end. Names are those of the architecture's invariants.
//!
//! `after_step` is called after every step. `unsettled` says what has not converged; after everything is mended it must come to say nothing.

pub mod console;
pub mod copies;
pub mod enrolment;
pub mod joins;
pub mod keys;
pub mod reports;
pub mod settled;
pub mod share;
pub mod speakers;
pub mod stores;

use std::collections::BTreeSet;

use edge_sync::record::IndexRecord;

use crate::model::checks::Violation;
use crate::model::role::Role;
use crate::model::truth::Truth;
use crate::world::World;

/// Called after every step.
///
/// # Errors
/// A check failed.
pub fn after_step(world: &mut World) -> Result<(), Violation> {
    if let Some(failed) = world.checks.failed.take() {
        return Err(failed);
    }
    if let Some(error) = crate::errors::take() {
        return Err(Violation::new("input-is-hostile", format!("an ERROR was logged: {error}")));
    }
    if let Some(refusal) = world.checks.refusals.pop() {
        return Err(Violation::new("input-is-hostile", format!("an Edge Node refused its own application: {refusal}")));
    }
    version_never_falls(world)?;
    no_prune_from_ignorance(world)?;
    joins::nothing_without_verdict(world)?;
    enrolment::token_once(world)?;
    speakers::one_speaker(world)?;
    copies::pushed_is_kept(world)?;
    share::fair_share(world)
}

/// A release is deleted only if someone has taken its deployment away from that cluster since.
fn no_prune_from_ignorance(world: &mut World) -> Result<(), Violation> {
    learn_what_is_wanted(world);
    for (site, key, owner) in std::mem::take(&mut world.checks.deletions) {
        let (Some(cluster), Some(owner)) = (world.clusters.get(&site), owner) else { continue };
        let place = (cluster.uuid, owner);
        if &*key.kind.kind == "HelmRelease" && !world.checks.released.contains(&place) {
            let detail =
                format!("{key} of deployment {owner} is deleted on {}, but was not taken away from it", cluster.name);
            return Err(Violation::new("no-prune-from-ignorance", detail));
        }
    }
    Ok(())
}

fn version_never_falls(world: &mut World) -> Result<(), Violation> {
    if !std::mem::take(&mut world.checks.is_record_written) {
        return Ok(());
    }
    for (id, cluster) in &world.clusters {
        let Some((text, _)) = &cluster.record else { continue };
        let before = world.checks.records.get(id);
        if before == Some(text) {
            continue;
        }
        let (old, new) = (before.and_then(|text| IndexRecord::from_text(text).ok()), IndexRecord::from_text(text));
        let new = new.map_err(|error| Violation::new("version-never-falls", format!("unreadable record: {error}")))?;
        if let Some(old) = old {
            stores::acknowledged_is_kept(world, cluster, &old, &new)?;
            let fallen = new.index.deployments.keys().find(|uuid| {
                let version = |record: &IndexRecord| record.entry(**uuid).map(|entry| entry.version);
                version(&old).is_some_and(|before| version(&new).is_some_and(|after| after < before))
            });
            if new.index.version < old.index.version || fallen.is_some() {
                let (from, to) = (old.index.version, new.index.version);
                let detail =
                    format!("the index of {} went from version {from} to {to}, deployment {fallen:?}", cluster.name);
                return Err(Violation::new("version-never-falls", detail));
            }
        }
        world.checks.records.insert(*id, text.clone());
    }
    Ok(())
}

/// What ConfigDB's database wants where, and what it has ceased to want.
fn learn_what_is_wanted(world: &mut World) {
    let Some(disk) = world.process_of(&Role::ConfigDb).map(|id| world.processes[&id].disk.clone()) else { return };
    let Some(store) = disk.store() else { return };
    let state = Some((disk.identity(), store.revision_now()));
    if state == world.checks.store_state {
        return;
    }
    // What a store that came back older does not list, or another one, no one has taken away.
    let is_continued = world.checks.store_state.is_some();
    world.checks.store_state = state;
    let truth = Truth::of(&store.load_now());
    world.checks.entries.extend(truth.deployments.clone());
    let (wanted, homeless): (BTreeSet<_>, BTreeSet<_>) = truth
        .deployments
        .iter()
        .map(|(uuid, deployment)| (deployment.cluster, *uuid))
        .partition(|(cluster, _)| truth.clusters.contains_key(cluster));
    // A manager that has not received yet that the cluster is deleted brings the deployment there all the same, and takes it away as soon as it receives.
    world.checks.released.extend(homeless);
    for place in world.checks.wanted.difference(&wanted).filter(|_| is_continued) {
        world.checks.released.insert(*place);
    }
    world.checks.wanted = wanted;
}
