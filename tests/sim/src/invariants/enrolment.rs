//! A token certifies one key; and in the end who asks by it is answered, and of two who ask an operator knows.

use configdb_schema::Document as _;
use configdb_schema::document::{EdgeClusterIdentity, IdentityAlertKind};
use enrolment_protocol::refusal::RefusalCode;

use crate::invariants::reports::is_set_up;
use crate::model::checks::Violation;
use crate::model::enrolment::Applicant;
use crate::model::ids::ClusterId;
use crate::model::role::Role;
use crate::world::World;

/// At every moment. A store that came back from before its use knows a token as unused, and Identity remembers it.
pub(crate) fn token_once(world: &World) -> Result<(), Violation> {
    for (site, enrolment) in world.enrolments.lock().iter() {
        if enrolment.answers.len() > 1 && enrolment.answers.values().all(Result::is_ok) {
            let detail = format!("the token of {site:?} certified two keys");
            return Err(Violation::new("token-once", detail));
        }
    }
    Ok(())
}

/// Every cluster that is set up has a certificate, or a thief has used its token and an operator sees it.
pub(crate) fn clusters_are_enrolled(world: &World) -> Result<(), Violation> {
    for (site, enrolment) in world.enrolments.lock().iter() {
        if !is_set_up(world, *site) || world.restores || world.checks.had_two_stores {
            continue;
        }
        let thief = enrolment.answers.get(&Applicant::Thief);
        match enrolment.answers.get(&Applicant::Cluster) {
            Some(Ok(_)) => {}
            // Made again under the same id while its machines ran on: the refusal says that it needs another token.
            Some(Err(refusal)) if refusal.code == RefusalCode::Revoked && enrolment.was_deleted => {}
            Some(Err(refusal)) if refusal.code == RefusalCode::TokenUsed => {
                if !is_reuse_known(world, *site) {
                    let detail = format!("{site:?}: a thief was certified, and no one says so");
                    return Err(Violation::new("applied-or-visible", detail));
                }
            }
            other => {
                let detail = format!("{site:?} asks to be enrolled and is answered {other:?}; the thief {thief:?}");
                return Err(Violation::new("applied-or-visible", detail));
            }
        }
    }
    Ok(())
}

/// The alert that a token of a cluster was used twice, as ConfigDB has it.
pub(crate) fn is_reuse_known(world: &World, site: ClusterId) -> bool {
    let Some(uuid) = world.clusters.get(&site).map(|cluster| cluster.uuid) else { return false };
    let store = world.process_of(&Role::ConfigDb).and_then(|id| world.processes[&id].disk.store());
    let entries = store.map(|store| store.load_now().entries).unwrap_or_default();
    let application = EdgeClusterIdentity::application().uuid;
    let mut entries = entries.iter().filter(|(object, of, _)| *object == uuid && *of == application);
    entries.any(|(_, _, entry)| {
        let identity = serde_json::from_str::<EdgeClusterIdentity>(&entry.json);
        identity.is_ok_and(|known| known.alerts.iter().any(|alert| alert.kind == IdentityAlertKind::TokenReused))
    })
}
