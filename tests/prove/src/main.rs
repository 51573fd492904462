//! `cargo run -p prove`: judges the model of the join protocol, then with more in the attacker's hands, then with each seeded fault.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use prove::syntax::{ModelError, lines};
use prove::variant::{Purpose, Variant, variants};
use prove::verdict::{Report, Verdict, judge};

const MODEL: &str = include_str!("../join.model");

struct Judged {
    report: Result<Report, ModelError>,
    seconds: f64,
}

#[expect(clippy::print_stdout, reason = "this program's purpose is to print")]
fn main() -> ExitCode {
    // Names of settings and faults show their attacks step by step.
    let shown: Vec<String> = std::env::args().skip(1).collect();
    let variants = match lines(MODEL, &BTreeSet::new()).and_then(|lines| variants(&lines)) {
        Ok(variants) => variants,
        Err(error) => {
            println!("join.model: {}", error.0);
            return ExitCode::FAILURE;
        }
    };
    let started = Instant::now();
    let tasks: Vec<Option<&Variant>> = [None].into_iter().chain(variants.iter().map(Some)).collect();
    let mut is_expected = true;
    for (task, judged) in tasks.iter().zip(judge_all(&tasks)) {
        let (heading, expected) = task.map_or_else(
            || ("the protocol as it is".to_owned(), "proven".to_owned()),
            |variant| {
                let with = variant.with.as_ref().map(|with| format!(" ({with})")).unwrap_or_default();
                (format!("{}{with}: {}", variant.name, variant.text), String::new())
            },
        );
        let report = match judged.report {
            Ok(report) => report,
            Err(error) => {
                println!("NO ANSWER  {heading}: {}", error.0);
                is_expected = false;
                continue;
            }
        };
        let broken = report.broken();
        let holds = task.map_or(broken.is_empty(), |variant| variant.is_as_expected(&broken));
        is_expected &= holds;
        let word = match (task.map(|variant| variant.purpose), holds) {
            (Some(Purpose::Fault), true) => "found ",
            (Some(Purpose::Fault), false) => "MISSED",
            (_, true) => "as expected",
            (_, false) => "UNEXPECTED",
        };
        println!(
            "{word}  {heading}{} [{} clauses, {:.1} s]",
            if expected.is_empty() { "" } else { ":" },
            report.clauses,
            judged.seconds
        );
        let shows_all = task.is_none_or(|variant| variant.purpose == Purpose::Setting);
        for (id, verdict) in &report.verdicts {
            match verdict {
                Verdict::Proven if shows_all => println!("    proven  {id}"),
                Verdict::Proven => {}
                Verdict::Attack(steps) => {
                    println!("    attack  {id}");
                    if !holds || task.is_some_and(|variant| shown.contains(&variant.name)) {
                        steps.iter().for_each(|step| println!("        {step}"));
                    }
                }
            }
        }
    }
    println!("{:.1} s in all", started.elapsed().as_secs_f64());
    if is_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Judges them on all cores; the answers stand in the order of the tasks.
fn judge_all(tasks: &[Option<&Variant>]) -> Vec<Judged> {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut judged: Vec<(usize, Judged)> = std::thread::scope(|scope| {
        let work = || {
            let mut done = Vec::new();
            while let Some((at, task)) =
                Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, tasks.get(at)?)))
            {
                let started = Instant::now();
                let report = judge(MODEL, &task.map(Variant::names).unwrap_or_default());
                done.push((at, Judged { report, seconds: started.elapsed().as_secs_f64() }));
            }
            done
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    });
    judged.sort_by_key(|(at, _)| *at);
    judged.into_iter().map(|(_, judged)| judged).collect()
}
