//! One step after the other, in virtual time.
//!
//! A step takes the earliest thing: a queued happening, or the deadline of a machine or a program.
//! Everything that follows at the same moment follows in the same step.
//! After each step the checks of [`crate::invariants`] are made.

use std::time::Duration;

use crate::invariants::after_step;
use crate::model::checks::Violation;
use crate::model::endpoint::Side;
use crate::model::happening::Happening;
use crate::model::ids::ProcessId;
use crate::model::program::Input;
use crate::world::World;

impl World {
    /// Takes one step; false if nothing is left to happen before `until`.
    ///
    /// # Errors
    /// A check failed.
    pub fn step(&mut self, until: Duration) -> Result<bool, Violation> {
        let queued = self.next_queued();
        let due = self.earliest_deadline();
        let when = match (queued, due) {
            (Some(queued), Some((at, ..))) => queued.min(at),
            (Some(queued), None) => queued,
            (None, Some((at, ..))) => at,
            (None, None) => return Ok(false),
        };
        if when > until {
            self.mono = until;
            return Ok(false);
        }
        self.mono = self.mono.max(when);
        self.steps += 1;
        if queued.is_some_and(|queued| queued <= when) {
            if let Some(what) = self.take_queued() {
                self.happen(what);
            }
        } else if let Some((_, process, side)) = due {
            self.deadline(process, side)?;
        }
        after_step(self)?;
        Ok(true)
    }

    /// Steps until `until`.
    ///
    /// # Errors
    /// A check failed.
    pub fn run_until(&mut self, until: Duration) -> Result<(), Violation> {
        while self.step(until)? {}
        self.mono = self.mono.max(until);
        Ok(())
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Packet(session, packet) => self.on_packet(session, packet),
            Happening::Input(process, life, input) => {
                if let Some(until) = self.processes.get(&process).and_then(|process| process.paused_until) {
                    return self.at(until, Happening::Input(process, life, input));
                }
                if self.processes.get(&process).is_some_and(|process| process.life == life) {
                    self.turn(process, *input);
                }
            }
            Happening::Kubernetes(cluster, work) => self.on_kubernetes(cluster, *work),
            Happening::Git(process, life, work) => self.on_git(process, life, *work),
            Happening::Copy(process, life, work) => self.on_copy(process, life, *work),
            Happening::Copying(process, life, work) => self.on_copying(process, life, *work),
            Happening::Push(process, life, work) => self.on_push(process, life, *work),
            Happening::Keys(site, process, life, work) => self.on_keys(site, process, life, *work),
            Happening::Join(site, work) => self.on_join_work(site, *work),
            Happening::Start(process) => self.start(process),
            Happening::Remove(process) => {
                self.stop(process, false);
                if let Some(gone) = self.processes.remove(&process) {
                    self.store_is_gone(&gone.disk);
                }
            }
            Happening::Transition(transition) => self.on_transition(transition),
        }
    }

    /// The earliest deadline of any machine or program: when, whose, and of which machine (None: the program's).
    fn earliest_deadline(&mut self) -> Option<(Duration, ProcessId, Option<Side>)> {
        let mut earliest: Option<(Duration, ProcessId, Option<Side>)> = None;
        for (id, process) in self.processes.iter_mut().filter(|(_, process)| process.paused_until.is_none()) {
            if process.due.is_none() {
                process.due = Some(process.next_deadline());
            }
            if let Some(Some((at, side))) = process.due
                && earliest.as_ref().is_none_or(|(known, ..)| at < *known)
            {
                earliest = Some((at, *id, side));
            }
        }
        earliest
    }

    fn deadline(&mut self, id: ProcessId, side: Option<Side>) -> Result<(), Violation> {
        let now = self.now_of(id);
        let Some(process) = self.processes.get_mut(&id) else { return Ok(()) };
        if process.spins.0 == now.mono {
            process.spins.1 += 1;
            if process.spins.1 > 1_000 {
                let who = format!("{} ({side:?})", process.role);
                return Err(Violation::new("time-advances", format!("{who} is due again and again at the same time")));
            }
        } else {
            process.spins = (now.mono, 0);
        }
        match side {
            None => self.turn(id, Input::Timer),
            Some(side) => {
                if let Some(endpoint) = process.endpoints.get_mut(&side) {
                    endpoint.handle_timeout(now);
                    self.pump(id, side);
                }
            }
        }
        Ok(())
    }
}
