//! `cargo run -p sim -- --seed N [--steps M] [--trace]`, or `--seeds A..B` for many.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use sim::run::{Plan, run, run_many};

/// Runs the fleet in virtual time.
#[derive(Debug, Parser)]
struct Arguments {
    /// Run this seed
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run these seeds: FIRST..END
    #[arg(long, value_parser = range)]
    seeds: Option<(u64, u64)>,
    /// How many things happen from outside in a run
    #[arg(long, default_value_t = 40)]
    steps: u32,
    /// Adopt deployments also where another one has the name
    #[arg(long)]
    adopt_taken_names: bool,
    /// Restore, roll back and replace ConfigDB's store
    #[arg(long)]
    restores: bool,
    /// Let hosts join the clusters
    #[arg(long)]
    joins: bool,
    /// Let a web console look
    #[arg(long)]
    console: bool,
    /// Let clusters have Kerberos keys
    #[arg(long)]
    keys: bool,
    /// Let clusters have sealed secrets
    #[arg(long)]
    secrets: bool,
    /// Let there be a git server, and users who push
    #[arg(long)]
    git: bool,
    /// Print what happened
    #[arg(long)]
    trace: bool,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let (first, end) = text.split_once("..").ok_or("write it as FIRST..END")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    Ok((number(first)?, number(end)?))
}

#[expect(clippy::print_stdout, reason = "this program's purpose is to print")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let started = Instant::now();
    let plan = Plan {
        steps: arguments.steps,
        is_traced: arguments.trace,
        adopts_taken_names: arguments.adopt_taken_names,
        restores: arguments.restores,
        joins: arguments.joins,
        console: arguments.console,
        keys: arguments.keys,
        secrets: arguments.secrets,
        git: arguments.git,
        ..Plan::of(arguments.seed.unwrap_or(1))
    };
    if let Some((first, end)) = arguments.seeds {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (summaries, failure) = run_many(first..end, Plan { is_traced: false, ..plan }, threads);
        let elapsed = started.elapsed();
        println!("{} seeds in {elapsed:.1?}", summaries.len());
        let Some((plan, failure)) = failure else { return ExitCode::SUCCESS };
        println!("seed {} failed: {} (at {:?})\n{}", plan.seed, failure.violation, failure.at, plan.command());
        return ExitCode::FAILURE;
    }
    let seed = plan.seed;
    match run(&plan) {
        Ok(summary) => {
            println!("{summary:#?}\nin {:.1?}", started.elapsed());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            for line in &failure.trace {
                println!("{line}");
            }
            println!("seed {seed} failed: {} (at {:?})\n{}", failure.violation, failure.at, plan.command());
            ExitCode::FAILURE
        }
    }
}
