//! What a state comes to once the channel is fair and nothing new happens. From every state that can be reached it has to come to an end, and to the right one.
//!
//! Stateright's own `eventually` does not see paths that end in a circle, and a sender that repeats itself is one. So the fair continuation is carried out from each state.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use crate::fault::Fault;
use crate::manager::Message;
use crate::system::{System, runs};

/// Rounds that are enough: each is one message, and no state needs more than a hold, a release and an agreement.
const ROUNDS: usize = 8;

/// When what is still on the way arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    /// Before anything new.
    First,
    /// After everything else.
    Last,
    /// Never.
    Never,
}

/// Lets the sender repeat itself over a fair channel until it has nothing more to say; false: it never ends.
pub(crate) fn fairly(system: &mut System, fault: Option<Fault>) -> bool {
    for _ in 0..ROUNDS {
        system.save();
        system.learn();
        system.receive();
        let Some(message) = system.manager.plan(fault) else { return true };
        let before = system.edge.report();
        system.channel.insert(message.clone());
        system.deliver(&message);
        system.save();
        // The same message leads to the same answer.
        if system.edge.report() == before {
            return system.edge.report().held;
        }
    }
    false
}

/// States that are known to settle, by what that depends on: the sender's replica and what it has received are replaced before anything else happens.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settled(Arc<Mutex<HashSet<u64>>>);

impl Settled {
    /// Whether a state comes to an agreement, or to a hold that has a reason, whenever what is on the way arrives.
    pub(crate) fn settles(&self, fault: Option<Fault>, state: &System) -> bool {
        if state.broken.is_some() || self.contains(state) {
            return true;
        }
        let on_the_way =
            if state.channel.is_empty() { &[Late::Never][..] } else { &[Late::First, Late::Last, Late::Never] };
        let settles = on_the_way.iter().all(|late| comes_well(fault, state, *late));
        if settles {
            self.insert(state);
        }
        settles
    }

    fn key(state: &System) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&state.store, &state.edge, &state.channel, &state.known).hash(&mut hasher);
        format!("{:?}", state.manager.assigned).hash(&mut hasher);
        hasher.finish()
    }

    fn contains(&self, state: &System) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&Self::key(state))
    }

    fn insert(&self, state: &System) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(Self::key(state));
    }
}

fn comes_well(fault: Option<Fault>, state: &System, late: Late) -> bool {
    let mut system = state.clone();
    let on_the_way: Vec<Message> = system.channel.iter().cloned().collect();
    if late == Late::First {
        on_the_way.iter().for_each(|message| system.deliver(message));
    }
    let mut ends = fairly(&mut system, fault);
    if late == Late::Last {
        on_the_way.iter().for_each(|message| system.deliver(message));
        ends &= fairly(&mut system, fault);
    }
    ends && (is_agreed(&system) || is_held_for_a_reason(&system))
}

fn is_agreed(system: &System) -> bool {
    let report = system.edge.report();
    let is_ours = report.origin.zip(system.store.origin()).is_some_and(|(theirs, ours)| theirs.is_of(ours));
    is_ours && !report.held && runs(&report) == system.store.deployments()
}

/// The edge holds and says so, its store lacks something that was accepted, and no operator has decided for that store and for what the edge has accepted since.
fn is_held_for_a_reason(system: &System) -> bool {
    let report = system.edge.report();
    let Some(accepted) = report.origin else { return false };
    let is_contained = system.store.identity == accepted.store && system.store.log.starts_with(&system.known);
    // A decision counts for the index that the edge had accepted when it was made. With another one it holds until the operator compares again.
    let is_released = system.store.release().is_some_and(|epoch| epoch > accepted.epoch)
        && system.store.decided_for() == report.digest;
    report.held && !is_contained && !is_released
}
