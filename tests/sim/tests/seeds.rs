//! Many seeds, the same seed twice, and one broken thing for each check.

/// Named, so that this can run beside tests that wait.
mod simulated_fleet {
    use std::num::NonZero;
    use std::ops::Range;
    use std::time::{Duration, Instant, SystemTime};

    use sim::model::mutation::Mutation;
    use sim::run::{Plan, run, run_many};

    /// Seeds of every ordinary test run, some of them with hosts that join, and those that the date chooses, with everything. `SPARKFLEET_SEEDS` asks for more: `make soak`.
    const SEEDS: u64 = 700;
    const SEEDS_WITH_JOINS: u64 = 60;
    const SEEDS_WITH_CONSOLE: u64 = 60;
    const SEEDS_WITH_KEYS: u64 = 60;
    const SEEDS_WITH_SECRETS: u64 = 60;
    const SEEDS_WITH_GIT: u64 = 60;
    const SEEDS_OF_THE_DAY: u64 = 60;
    /// A soak begins here, so that it tries what was not tried before.
    const SOAK: u64 = 1_000;
    /// A soak names each so many seeds when it begins with them.
    const SOAK_PART: usize = 250;
    /// One of so many parts has the console, with which a seed takes three times as long.
    const SOAK_PARTS_TO_CONSOLE: usize = 4;
    /// Things from outside in each of them; a soak has more.
    const STEPS: u32 = 12;
    const STEPS_SOAK: u32 = 40;
    /// Seeds among which a broken thing must be noticed. Most are within forty; that deaths are swallowed shows only where a process dies and nothing else reveals it.
    const SEEDS_MUTATED: u64 = 400;

    fn threads() -> usize {
        std::thread::available_parallelism().map_or(1, NonZero::get)
    }

    #[test]
    fn whatever_happens_everything_that_people_want_is_applied_or_visibly_refused_in_the_end() {
        let asked = std::env::var("SPARKFLEET_SEEDS").ok();
        let asked: Option<u64> = asked.map(|text| text.parse().expect("SPARKFLEET_SEEDS is a number"));
        let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
        let of_the_day = 1_000_000 + day * SEEDS_OF_THE_DAY;
        let plan = Plan { steps: STEPS, ..Plan::of(0) };
        let all = Plan { restores: true, joins: true, console: true, keys: true, secrets: true, git: true, ..plan };
        let parts = match asked {
            Some(seeds) => in_parts(SOAK..SOAK + seeds, Plan { steps: STEPS_SOAK, ..all }),
            None => vec![
                (0..SEEDS, plan),
                (0..SEEDS_WITH_JOINS, Plan { joins: true, ..plan }),
                (0..SEEDS_WITH_CONSOLE, Plan { console: true, restores: true, ..plan }),
                (0..SEEDS_WITH_KEYS, Plan { keys: true, ..plan }),
                (0..SEEDS_WITH_SECRETS, Plan { secrets: true, restores: true, ..plan }),
                (0..SEEDS_WITH_GIT, Plan { git: true, ..plan }),
                (of_the_day..of_the_day + SEEDS_OF_THE_DAY, all),
            ],
        };
        let started = Instant::now();
        let (mut summaries, mut failure) = (Vec::new(), None);
        for (seeds, like) in parts.iter().cloned() {
            if failure.is_some() {
                break;
            }
            eprintln!("seeds {seeds:?}, such as: {}", Plan { seed: seeds.start, ..like }.command());
            let (some, failed) = run_many(seeds, like, threads());
            summaries.extend(some);
            failure = failed;
        }
        let (real, seeds) = (started.elapsed(), parts.iter().map(|(seeds, _)| seeds.end - seeds.start).sum::<u64>());
        let lasted: Duration = summaries.iter().map(|summary| summary.lasted).sum();
        let times = lasted.as_secs_f64() / real.as_secs_f64();
        eprintln!("{} seeds: {lasted:.0?} of virtual time in {real:.0?}, {times:.0} times as fast", summaries.len());
        if let Some((plan, failure)) = failure {
            panic!(
                "seed {} at {:?}: {}\nto see it again: {}",
                plan.seed,
                failure.at,
                failure.violation,
                plan.command()
            );
        }
        assert_eq!(summaries.len() as u64, seeds);
        // The runs are about something.
        let crashes: u64 = summaries.iter().map(|summary| summary.crashes).sum();
        let messages: u64 = summaries.iter().map(|summary| summary.messages).sum();
        let rotations: u64 = summaries.iter().map(|summary| summary.rotations).sum();
        let deployments: usize = summaries.iter().map(|summary| summary.made.1).sum();
        let pushes: u64 = summaries.iter().map(|summary| summary.pushes).sum();
        assert!(rotations > 100 && pushes > 50, "{rotations} {pushes}");
        assert!(
            crashes > seeds && messages > 500 * seeds && deployments as u64 > 2 * seeds,
            "{crashes} {messages} {deployments}"
        );
    }

    /// A soak takes hours and shows how far it is.
    fn in_parts(seeds: Range<u64>, like: Plan) -> Vec<(Range<u64>, Plan)> {
        let end = seeds.end;
        let part = |(number, first): (usize, u64)| {
            let console = number.is_multiple_of(SOAK_PARTS_TO_CONSOLE);
            (first..end.min(first + SOAK_PART as u64), Plan { console, ..like })
        };
        seeds.step_by(SOAK_PART).enumerate().map(part).collect()
    }

    #[test]
    fn one_seed_is_one_run() {
        for seed in [7, 8] {
            let plan = Plan { steps: STEPS, joins: seed == 8, ..Plan::of(seed) };
            let (first, second) = (run(&plan).unwrap(), run(&plan).unwrap());
            assert_eq!(first, second);
            let traced = run(&Plan { is_traced: true, ..plan }).unwrap();
            assert_eq!(traced.digest, first.digest, "looking at it changes nothing");
        }
    }

    #[test]
    fn every_check_notices_what_it_is_for() {
        // A panic is what one of them is about; its message need not be printed each time.
        std::panic::set_hook(Box::new(|_| {}));
        let unnoticed: Vec<String> =
            Mutation::ALL.into_iter().filter_map(|mutation| unnoticed(mutation).err()).collect();
        drop(std::panic::take_hook());
        assert_eq!(unnoticed, Vec::<String>::new());
    }

    /// Looks for a seed in which the check that is meant notices the mutation first.
    fn unnoticed(mutation: Mutation) -> Result<(), String> {
        let mut others = Vec::new();
        for seed in 0..SEEDS_MUTATED {
            let (joins, console) = (mutation.needs_joins(), mutation.needs_console());
            let keys = mutation.needs_keys();
            let (secrets, git) = (mutation.needs_secrets(), mutation.needs_git());
            // A value that goes back needs two writes of a secret and a process that forgot the first: few short runs have them.
            let steps = if secrets { STEPS_SOAK } else { STEPS };
            let like = Plan { steps, mutation: Some(mutation), restores: !joins, ..Plan::of(seed) };
            let plan = Plan { joins, console, keys, secrets, git, ..like };
            match run(&plan) {
                Err(failure) if failure.violation.invariant == mutation.noticed_by() => return Ok(()),
                Err(failure) => others.push(failure.violation.to_string()),
                Ok(_) => {}
            }
        }
        Err(format!(
            "{mutation:?} is not noticed by {} in {SEEDS_MUTATED} seeds, but: {others:?}",
            mutation.noticed_by()
        ))
    }
}
