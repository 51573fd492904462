//! The protocol as the checker sees it: where it begins, what can happen, and what has to hold.

use stateright::{Model, Property};

use crate::fault::Fault;
use crate::settle::{self, Settled};
use crate::system::{Action, Budget, KEPT, NO_PRUNE, System, VERSION};

/// With a fair channel, and nothing new from outside, edge and store agree, or the edge holds for a reason and says so.
pub const SETTLES: &str = "agreed-or-held";

/// The protocol, with a fault or without.
#[derive(Debug, Clone)]
pub struct Protocol {
    /// What is seeded.
    pub fault: Option<Fault>,
    /// What may happen.
    pub budget: Budget,
    settled: Settled,
}

impl Protocol {
    /// With nothing tried yet.
    #[must_use]
    pub fn new(fault: Option<Fault>, budget: Budget) -> Self {
        Self { fault, budget, settled: Settled::default() }
    }
}

impl Model for Protocol {
    type State = System;
    type Action = Action;

    /// A store with two deployments, both of them at the edge.
    fn init_states(&self) -> Vec<System> {
        let mut system = System::new(self.fault, self.budget);
        settle::fairly(&mut system, self.fault.filter(|fault| fault.is_of_the_wire()));
        system.channel.clear();
        vec![system]
    }

    fn actions(&self, state: &System, actions: &mut Vec<Action>) {
        state.actions(actions);
    }

    fn next_state(&self, last: &System, action: Action) -> Option<System> {
        last.after(action, self.fault)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_PRUNE, |_: &Protocol, state: &System| state.broken != Some(NO_PRUNE)),
            Property::always(KEPT, |_: &Protocol, state: &System| state.broken != Some(KEPT)),
            Property::always(VERSION, |_: &Protocol, state: &System| state.broken != Some(VERSION)),
            Property::always("only-what-was-sent", |_: &Protocol, state: &System| {
                state.broken.is_none_or(|rule| [NO_PRUNE, KEPT, VERSION].contains(&rule))
            }),
            Property::always(SETTLES, |protocol: &Protocol, state: &System| {
                protocol.settled.settles(protocol.fault, state)
            }),
            Property::sometimes("an edge holds and says so", |_: &Protocol, state: &System| state.edge.report().held),
            Property::sometimes("a decision ends a hold", |protocol: &Protocol, state: &System| {
                let released = state.edge.report().origin.is_some_and(|origin| origin.epoch > 0);
                released && state.left.decisions < protocol.budget.decisions && !state.edge.report().held
            }),
            Property::sometimes("something is deleted", |_: &Protocol, state: &System| {
                state.edge.report().deployments.is_empty()
            }),
        ]
    }
}
