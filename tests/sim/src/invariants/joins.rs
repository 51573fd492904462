//! Hosts that join: who gets a ticket, how long a token lives, what the broker sees; and in the end everyone who may be in is in.

use std::collections::BTreeSet;

use join_protocol::issuer::Phase;
use join_protocol::terms::Role as JoinRole;

use crate::invariants::reports::is_set_up;
use crate::model::checks::Violation;
use crate::model::joins::{JoinSite, Part};
use crate::world::World;

/// At every moment, whatever was killed.
pub(crate) fn nothing_without_verdict(world: &mut World) -> Result<(), Violation> {
    for joins in world.joins.values_mut() {
        if joins.checked == joins.store.changes {
            continue;
        }
        joins.checked = joins.store.changes;
        tokens_are_owned(joins)?;
        strangers_have_nothing(joins)?;
    }
    Ok(())
}

fn strangers_have_nothing(joins: &JoinSite) -> Result<(), Violation> {
    for (number, (part, host)) in &joins.hosts {
        let host = host.lock();
        let is_stranger = matches!(part, Part::Unknown | Part::Changed | Part::Barred);
        let has_something = !host.tokens.is_empty() || !host.disk_keys.is_empty();
        if is_stranger && has_something {
            let detail = format!("machine {number}, which is {part:?}, has got a ticket");
            return Err(Violation::new("no-ticket-without-verdict", detail));
        }
    }
    Ok(())
}

/// No token is without a live attempt that names it, no host has two, and one control plane joins at a time.
fn tokens_are_owned(joins: &JoinSite) -> Result<(), Violation> {
    let fault = |detail: String| Err(Violation::new("token-once", detail));
    let requests = joins.store.requests();
    let mut owners = BTreeSet::new();
    for (token, id) in &joins.store.tokens {
        let Some(owner) = requests.iter().find(|request| request.record.request == *id) else {
            return fault(format!("token {token} is without a record"));
        };
        if !owner.is_live() || owner.token.as_ref() != Some(token) {
            return fault(format!("token {token} outlives its attempt, or is not the one that it names"));
        }
        if !owners.insert(owner.ek) {
            return fault(format!("a host has two live tokens; one is {token}"));
        }
    }
    let joining = requests.iter().filter(|request| {
        let is_granted = matches!(request.record.phase, Phase::Granted { .. } | Phase::Acknowledged { .. });
        is_granted && request.record.role == JoinRole::ControlPlane
    });
    if joining.count() > 1 { fault("two control planes join at once".to_owned()) } else { Ok(()) }
}

/// Everyone who may be in is in, and no token is left.
pub(crate) fn hosts_are_in(world: &World) -> Result<(), Violation> {
    for (site, joins) in &world.joins {
        // A cluster that is gone, or whose name another one has, has no policy: no one joins it.
        let is_there = world.clusters.get(site).is_some_and(|cluster| {
            let is_it = |known: &&crate::model::script::ScriptCluster| known.uuid == cluster.uuid;
            world.script.clusters.iter().find(is_it).is_some_and(|known| !known.is_deleted)
        });
        if !is_there || !is_set_up(world, *site) {
            continue;
        }
        let known = joins.store.hosts();
        for (number, (part, host)) in &joins.hosts {
            let may_be_in = matches!(part, Part::Worker | Part::ControlPlane) && !joins.revoked.contains(number);
            let host = host.lock();
            if may_be_in && known.get(&host.ek_bytes()).is_none_or(|record| record.state != "member") {
                let refusal = host.refusals.last();
                let condition = host.machine.condition();
                let detail = format!("machine {number} of {site:?} ({part:?}) is not in: {condition:?} {refusal:?}");
                return Err(Violation::new("applied-or-visible", detail));
            }
        }
        if let Some(token) = joins.store.tokens.keys().next() {
            return Err(Violation::new("token-once", format!("token {token} of {site:?} is left")));
        }
    }
    Ok(())
}

/// In all that the broker carried for hosts there is no disk key and no token.
///
/// # Errors
/// There is.
pub fn secrets_on_the_wire(world: &World) -> Result<(), Violation> {
    let mut secrets = Vec::new();
    for (number, (_, host)) in world.joins.values().flat_map(|joins| &joins.hosts) {
        let host = host.lock();
        secrets.extend(host.disk_keys.iter().map(|key| (format!("disk key of {number}"), key.to_vec())));
        // The id of a join token is not secret; that of a server has none.
        let secret = |token: &String| token.rsplit_once('.').map_or(token.as_str(), |(_, end)| end).as_bytes().to_vec();
        secrets.extend(host.tokens.iter().map(|token| (format!("token of {number}"), secret(token))));
    }
    let found = world.join_wire.found(&secrets);
    if found.is_empty() { Ok(()) } else { Err(Violation::new("ciphertext-only", format!("the broker saw {found:?}"))) }
}
