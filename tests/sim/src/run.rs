//! One run: a fleet, some minutes of life with faults, then none; in the end everything must be as people want it, or visibly not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use uuid::Uuid;

use crate::errors;
use crate::fleet::config_db::fresh_store;
use crate::invariants::console::past_is_what_was_shown;
use crate::invariants::joins::secrets_on_the_wire;
use crate::invariants::settled::unsettled;
use crate::model::checks::Violation;
use crate::model::disk::Disk;
use crate::model::happening::Happening;
use crate::model::mutation::Mutation;
use crate::model::role::Role;
use crate::model::transition::Transition;
use crate::world::World;

/// Time that the fleet has to converge after everything is mended. Longer than any wait in it: three intervals of silence, back-offs, deadlines.
const PEACE_MAX: Duration = Duration::from_secs(1_200);

/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// So long it must stay as it should be.
const STAYS: Duration = Duration::from_secs(20);

/// What to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// How many things happen from outside.
    pub steps: u32,
    /// What is wrong on purpose.
    pub mutation: Option<Mutation>,
    /// Keep a trace.
    pub is_traced: bool,
    /// Operators adopt deployments also where another one has the name.
    pub adopts_taken_names: bool,
    /// ConfigDB's store is restored, rolled back and replaced.
    pub restores: bool,
    /// Hosts join the clusters.
    pub joins: bool,
    /// There is a web console.
    pub console: bool,
    /// Clusters have Kerberos keys.
    pub keys: bool,
    /// Clusters have sealed secrets.
    pub secrets: bool,
    /// There is a git server.
    pub git: bool,
}

impl Plan {
    /// A run of that seed.
    #[must_use]
    pub const fn of(seed: u64) -> Self {
        Self {
            seed,
            steps: 40,
            mutation: None,
            is_traced: false,
            adopts_taken_names: false,
            restores: false,
            joins: false,
            console: false,
            keys: false,
            secrets: false,
            git: false,
        }
    }

    /// How to see a run again.
    #[must_use]
    pub fn command(&self) -> String {
        let restores = if self.restores { " --restores" } else { "" };
        let joins = if self.joins { " --joins" } else { "" };
        let console = if self.console { " --console" } else { "" };
        let keys = if self.keys { " --keys" } else { "" };
        let names = if self.adopts_taken_names { " --adopt-taken-names" } else { "" };
        let secrets = if self.secrets { " --secrets" } else { "" };
        let git = if self.git { " --git" } else { "" };
        let options = format!("{restores}{joins}{console}{keys}{secrets}{git}{names}");
        format!("cargo run -p sim -- --seed {} --steps {}{options} --trace", self.seed, self.steps)
    }
}

/// A run that ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Digest of everything that happened.
    pub digest: u64,
    /// Steps of the world.
    pub steps: u64,
    /// Virtual time.
    pub lasted: Duration,
    /// Virtual time from the end of all faults until everything was as it should be.
    pub converged_in: Duration,
    /// Crashes of services.
    pub crashes: u64,
    /// Messages that the broker took.
    pub messages: u64,
    /// Kerberos keys that were made.
    pub rotations: u64,
    /// Pushes whose users know that they were taken.
    pub pushes: u64,
    /// Commits that edges were sent.
    pub sent: usize,
    /// Clusters and deployments that people made.
    pub made: (usize, usize),
}

/// A run that did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What was seen.
    pub violation: Violation,
    /// When.
    pub at: Duration,
    /// The trace, if one was wanted.
    pub trace: Vec<String>,
}

/// Runs a plan.
///
/// # Errors
/// A check failed, or something panicked.
pub fn run(plan: &Plan) -> Result<Summary, Box<Failure>> {
    let mut world = World::new(plan.seed, plan.mutation, plan.is_traced);
    world.adopts_taken_names = plan.adopts_taken_names;
    world.restores = plan.restores;
    world.with_joins = plan.joins;
    world.with_keys = plan.keys;
    world.with_secrets = plan.secrets;
    world.with_git = plan.git;
    let ended = errors::watched(|| catch_unwind(AssertUnwindSafe(|| live(&mut world, plan))));
    let violation = match ended {
        Ok(Ok(converged_in)) => {
            return Ok(Summary {
                digest: world.digest(),
                steps: world.steps,
                lasted: world.mono,
                converged_in,
                crashes: world.checks.crashes,
                messages: world.checks.messages.values().sum(),
                rotations: world.checks.rotations,
                pushes: world.pushing.taken,
                sent: world.pushing.sent.len(),
                made: (world.script.clusters.len(), world.script.deployments.len()),
            });
        }
        Ok(Err(violation)) => violation,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("something panicked");
            Violation::new("input-is-hostile", format!("panic: {text}"))
        }
    };
    Err(Box::new(Failure { violation, at: world.mono, trace: world.trace.unwrap_or_default() }))
}

/// The life of a world; yields how long it took to converge.
fn live(world: &mut World, plan: &Plan) -> Result<Duration, Violation> {
    if plan.mutation == Some(Mutation::SwallowsDeaths) {
        world.broker.swallows = Some("NDEATH");
    }
    world.skew_max = if world.random.chance(500) { 0 } else { world.random.below(120_000) };
    let store = fresh_store().copy(Uuid::from_u128(world.random.wide()));
    world.add_process(Role::ConfigDb, Disk::with_store(store));
    for role in [Role::ClusterManager, Role::Central, Role::Operator, Role::Observer] {
        world.add_process(role, Disk::default());
    }
    if world.with_joins || plan.console {
        world.add_process(Role::Identity, Disk::default());
    }
    if plan.git {
        world.git.begin_charts();
        world.add_process(Role::GitServer, Disk::default());
    }
    if plan.console {
        world.add_process(Role::Console, Disk::default());
    }
    let quiet = world.random.millis(0..4_000);
    for n in 0..2 {
        let at = quiet + Duration::from_millis(n * 700);
        world.at(at, Happening::Transition(Transition::CreateCluster));
        world.at(at + Duration::from_secs(1), Happening::Transition(Transition::CreateDeployment));
    }
    world.crash_per_million = if world.random.chance(500) { 0 } else { world.random.below(400) };
    let mut at = Duration::from_secs(5);
    for _ in 0..plan.steps {
        at += world.random.millis(50..12_000);
        world.at(at, Happening::Transition(Transition::Something));
    }
    world.run_until(at + Duration::from_secs(5))?;
    world.mend();
    let mended = world.mono;
    while world.mono < mended + PEACE_MAX {
        world.run_until(world.mono + LOOK_EVERY)?;
        if unsettled(world).is_some() {
            continue;
        }
        let settled = world.mono;
        // It must stay so.
        world.run_until(settled + STAYS)?;
        if unsettled(world).is_none() {
            secrets_on_the_wire(world)?;
            past_is_what_was_shown(world)?;
            return Ok(settled.saturating_sub(mended));
        }
    }
    let Violation { invariant, detail } = unsettled(world).unwrap_or_else(|| {
        Violation::new("replica-equals-source", "it converges and diverges again and again".to_owned())
    });
    Err(Violation::new(invariant, format!("{PEACE_MAX:?} after everything was mended: {detail}")))
}

/// Runs many seeds like a plan on several threads; yields the first failure by seed, and the summaries of the others.
#[must_use]
pub fn run_many(
    seeds: std::ops::Range<u64>,
    like: Plan,
    threads: usize,
) -> (Vec<Summary>, Option<(Plan, Box<Failure>)>) {
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let results = std::sync::Mutex::new((Vec::new(), None::<(Plan, Box<Failure>)>));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let plan = Plan { seed, ..like };
                    let result = run(&plan);
                    let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match result {
                        Ok(summary) => results.0.push(summary),
                        Err(failure) => {
                            if results.1.as_ref().is_none_or(|(known, _)| plan.seed < known.seed) {
                                results.1 = Some((plan, failure));
                            }
                            // No one needs more than one.
                            next.store(seeds.end, std::sync::atomic::Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
