//! The [`State`] as the loop of all services drives it: what waits is one turn with one commit, and every few seconds the store is looked after.

use std::time::Duration;

use configdb_contract::RequestResult;
use service_runtime::service::Service;
use sparkplug::Now;

use crate::event::Event;
use crate::state::{State, Turn};
use crate::store::Snapshot;

/// How often the store is looked after.
const UPKEEP: Duration = Duration::from_secs(5);
/// Wait for the next time while there is more history to be forgotten.
const UPKEEP_AGAIN: Duration = Duration::from_millis(100);

/// What comes in.
#[derive(Debug)]
pub(crate) enum Input {
    /// What is to share one commit.
    Events(Vec<Event>),
    /// Nothing of the last turn could be stored.
    NotStored(Box<NotStored>),
    /// It is time to look after the store.
    UpkeepDue,
    /// The store was looked after.
    Upkept {
        /// A disk that was full takes writes again.
        has_room: bool,
        /// There is more history to be forgotten.
        has_more: bool,
    },
}

/// A turn that could not be stored.
#[derive(Debug)]
pub(crate) struct NotStored {
    /// What the store holds.
    pub stored: Snapshot,
    /// What the requests of the turn would have been answered.
    pub answers: Vec<RequestResult>,
    /// Why, for people.
    pub reason: String,
}

/// What goes out.
#[derive(Debug)]
pub(crate) enum Output {
    /// To be stored, and then done.
    Turn(Turn),
    /// Record what is not recorded yet, and forget old history; the answer is [`Input::Upkept`].
    Upkeep {
        /// Try also whether there is room for writes again.
        is_read_only: bool,
    },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Turns {
    state: State,
    upkeep_at: Duration,
    is_upkeep_due: bool,
}

impl Turns {
    /// The store is looked after for the first time as soon as the loop runs.
    #[must_use]
    pub(crate) const fn new(state: State, now: Now) -> Self {
        Self { state, upkeep_at: now.mono, is_upkeep_due: false }
    }

    /// The state.
    #[must_use]
    pub(crate) const fn state(&self) -> &State {
        &self.state
    }

    fn on_upkept(&mut self, has_room: bool, has_more: bool, now: Now) {
        if has_room && self.state.read_only().is_some() {
            tracing::info!("there is room again; writes are carried out");
            self.state.set_writable(now);
        }
        let full = self.state.read_only().map(|reason| format!("{reason}: writes are refused; make room"));
        self.state.set_alert(full);
        if has_more {
            self.upkeep_at = now.mono + UPKEEP_AGAIN;
        }
    }
}

impl Service for Turns {
    type Event = Input;
    type Effect = Output;

    fn deadline_reached() -> Input {
        Input::UpkeepDue
    }

    fn on_event(&mut self, event: Input, now: Now) -> anyhow::Result<()> {
        match event {
            Input::Events(events) => events.into_iter().for_each(|event| self.state.on_event(event, now)),
            Input::NotStored(turn) => self.state.roll_back(&turn.stored, &turn.answers, &turn.reason, now)?,
            Input::UpkeepDue => {
                self.is_upkeep_due = true;
                self.upkeep_at = now.mono + UPKEEP;
            }
            Input::Upkept { has_room, has_more } => self.on_upkept(has_room, has_more, now),
        }
        Ok(())
    }

    fn poll_effects(&mut self) -> Vec<Output> {
        let is_read_only = self.state.read_only().is_some();
        let upkeep = std::mem::take(&mut self.is_upkeep_due).then_some(Output::Upkeep { is_read_only });
        std::iter::once(Output::Turn(self.state.take_turn())).chain(upkeep).collect()
    }

    fn next_deadline(&self) -> Option<Duration> {
        Some(self.upkeep_at)
    }
}
