//! A process: what runs, and what survives it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::disk::Disk;
use crate::model::endpoint::{Endpoint, Side};
use crate::model::program::Program;
use crate::model::role::Role;

/// A process: what runs, and what survives it.
#[derive(Debug)]
pub struct Process {
    /// What it is.
    pub role: Role,
    /// Counts its lives: what was meant for an earlier one is lost.
    pub life: u64,
    /// None while it is down.
    pub program: Option<Box<dyn Program>>,
    /// Its machines.
    pub endpoints: BTreeMap<Side, Endpoint>,
    /// What survives.
    pub disk: Disk,
    /// Its network is cut off until then.
    pub partitioned_until: Option<Duration>,
    /// It is frozen until then: it neither receives nor says anything, and its operating system keeps its sockets.
    pub paused_until: Option<Duration>,
    /// It runs beside another process of its role, and is not the one that counts.
    pub is_second: bool,
    /// So many milliseconds its wall clock is ahead of the world's.
    pub skew: i64,
    /// The time up to which its program has been called without having anything to do: a deadline that does not move is a fault.
    pub(crate) spins: (Duration, u32),
    /// Its earliest deadline, and of which machine (None: of the program); None until it is asked for again.
    pub(crate) due: Option<Option<(Duration, Option<Side>)>>,
}

impl Process {
    pub(crate) fn next_deadline(&self) -> Option<(Duration, Option<Side>)> {
        let program = self.program.as_ref().and_then(|program| program.next_deadline());
        let program = program.map(|at| (at, None));
        let machines =
            self.endpoints.iter().filter_map(|(side, endpoint)| Some((endpoint.next_deadline()?, Some(*side))));
        program.into_iter().chain(machines).min_by_key(|(at, _)| *at)
    }
}
