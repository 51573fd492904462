//! `cargo run -p model`: checks the protocol of desired states, and says how much was tried.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use model::fault::Fault;
use model::protocol::Protocol;
use model::system::Budget;
use stateright::{Checker, Model};

/// Checks the protocol of desired states: every order of everything that can happen, within a budget.
#[derive(Debug, Parser)]
struct Arguments {
    /// The small budget that tests use
    #[arg(long)]
    short: bool,
    /// Seed a fault, and show how it breaks the protocol; by its name, for example NoOrigin
    #[arg(long, value_parser = fault)]
    fault: Option<Fault>,
    /// Threads; all cores without it
    #[arg(long)]
    threads: Option<usize>,
}

fn fault(name: &str) -> Result<Fault, String> {
    let named = Fault::ALL.into_iter().find(|fault| format!("{fault:?}") == name);
    named.ok_or_else(|| format!("must be one of {:?}", Fault::ALL))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let budgets =
        if arguments.short { [Budget::SHORT, Budget::RESTORED_AGAIN] } else { [Budget::LONG, Budget::RESTORED_AGAIN] };
    let threads = arguments.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    let is_proven = budgets.map(|budget| check(arguments.fault, budget, threads.unwrap_or(1)));
    if is_proven.iter().all(|is_proven| *is_proven) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tries everything within a budget, and says what was found; true: all of it holds.
#[expect(clippy::print_stdout, reason = "this program's purpose is to print")]
fn check(fault: Option<Fault>, budget: Budget, threads: usize) -> bool {
    let protocol = Protocol::new(fault, budget);
    println!("{budget:?}");
    let started = Instant::now();
    let checker = protocol.checker().threads(threads).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{states} states, depth {depth}, {:.1} s", started.elapsed().as_secs_f64());
    let mut is_proven = true;
    for property in checker.model().properties() {
        let found = checker.discovery(property.name);
        let is_sometimes = property.expectation == stateright::Expectation::Sometimes;
        let holds = found.is_some() == is_sometimes;
        is_proven &= holds;
        println!("{} {}", if holds { "holds " } else { "BROKEN" }, property.name);
        if let Some(path) = found.filter(|_| !holds) {
            path.into_actions().iter().for_each(|action| println!("    {action:?}"));
        }
    }
    is_proven
}
