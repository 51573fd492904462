//! `cargo run -p prove`: judges the model of the join protocol as it is, then with more in the attacker's hands, then with each seeded fault.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use prove::syntax::{ModelError, lines};
use prove::variant::{Purpose, Variant, variants};
use prove::verdict::{Report, Verdict, judge};

const MODEL: &str = include_str!("../join.model");

#[expect(clippy::print_stdout, reason = "this program's purpose is to print")]
fn main() -> ExitCode {
    // Names of settings, limits and faults: only these are judged, and their attacks are shown step by step.
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let variants = match lines(MODEL, &BTreeSet::new()).and_then(|lines| variants(&lines)) {
        Ok(variants) => variants,
        Err(error) => {
            println!("join.model: {}", error.0);
            return ExitCode::FAILURE;
        }
    };
    let started = Instant::now();
    let mut tasks: Vec<Option<&Variant>> =
        variants.iter().filter(|variant| wanted.is_empty() || wanted.contains(&variant.name)).map(Some).collect();
    if wanted.is_empty() {
        tasks.insert(0, None);
    }
    let count = tasks.len();
    let waiting = Mutex::new(tasks.into_iter());
    let unexpected = Mutex::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = || waiting.lock().ok().and_then(|mut waiting| waiting.next());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(task) = next() {
                    let started = Instant::now();
                    let names = task.map(Variant::names).unwrap_or_default();
                    let report = judge(MODEL, &names, &task.map(Variant::attacked).unwrap_or_default());
                    let (text, is_expected) =
                        describe(task, &report, started.elapsed().as_secs_f64(), !wanted.is_empty());
                    println!("{text}");
                    if let Ok(mut unexpected) = unexpected.lock() {
                        *unexpected += u32::from(!is_expected);
                    }
                }
            });
        }
    });
    let unexpected = unexpected.into_inner().unwrap_or(u32::MAX);
    println!("{count} searches, {unexpected} not as expected, {:.1} s", started.elapsed().as_secs_f64());
    if unexpected == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is printed of a search, and whether it found what it had to.
fn describe(
    task: Option<&Variant>,
    report: &Result<Report, ModelError>,
    seconds: f64,
    shows_steps: bool,
) -> (String, bool) {
    let heading = task.map_or_else(
        || "the protocol as it is".to_owned(),
        |variant| {
            let with = variant.with.as_ref().map(|with| format!(" with {with}")).unwrap_or_default();
            format!("{}{with}: {}", variant.name, variant.text)
        },
    );
    let report = match report {
        Ok(report) => report,
        Err(error) => return (format!("NO ANSWER  {heading}: {}", error.0), false),
    };
    let is_expected = task.map_or_else(|| report.unproven().is_empty(), |variant| variant.is_as_expected(report));
    let purpose = task.map_or(Purpose::Setting, |variant| variant.purpose);
    let word = match (purpose, is_expected) {
        (Purpose::Setting, true) => "judged",
        (Purpose::Limit | Purpose::Fault, true) => "found ",
        (Purpose::Setting, false) => "UNEXPECTED",
        (Purpose::Limit | Purpose::Fault, false) => "MISSED",
    };
    let mut text = format!("{word}  {heading} ({} clauses, {seconds:.1} s)", report.clauses);
    for (id, verdict) in &report.verdicts {
        let is_named = task.is_some_and(|variant| variant.breaks.contains(id));
        match verdict {
            // A search for an attack ends with it, so it says nothing of the other claims.
            _ if purpose != Purpose::Setting && !is_named => {}
            Verdict::Proven => text += &format!("\n    proven   {id}"),
            Verdict::Vacuous => text += &format!("\n    vacuous  {id}"),
            Verdict::Attack(steps) => {
                text += &format!("\n    attack   {id}");
                if shows_steps || !is_expected {
                    steps.iter().for_each(|step| text += &format!("\n        {step}"));
                }
            }
        }
    }
    (text, is_expected)
}
