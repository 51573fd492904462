//! One factory for all tests of this program: `sparkfleet up` with its broker, every central service, and a simulated edge for each cluster. Each test has clusters of its own names.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::program::{Outcome, User};

/// Longer than anything takes on a machine under load; only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Ends the factory and removes its directory when the test program has gone, whatever way: then its end of the pipe is closed.
const GUARD: &str =
    r#"exec 3<&0; "$@" </dev/null & up=$!; cat <&3 >/dev/null; kill $up; wait $up; rm -rf "$DIRECTORY""#;

/// See the module.
#[derive(Debug)]
pub struct Factory {
    /// URL of its broker.
    pub broker: String,
    /// URL of its console.
    pub console: String,
    _guard: ChildStdin,
}

/// The factory, with its two clusters and four deployments well.
pub fn factory() -> &'static Factory {
    static FACTORY: OnceLock<Factory> = OnceLock::new();
    FACTORY.get_or_init(|| {
        let factory = start();
        let user = User::of(&factory.broker);
        let is_well = |rows: &Value| {
            let rows = rows.as_array().unwrap();
            rows.len() == 4 && rows.iter().all(|row| row["state"] == "applied" && row["ready"] == true)
        };
        until(|| user.run("deployment list -o json"), |outcome| outcome.code() == 0 && is_well(&outcome.json()));
        factory
    })
}

/// A user of the factory.
pub fn user() -> User {
    User::of(&factory().broker)
}

/// Runs a command until its outcome is as wanted.
pub fn until(run: impl Fn() -> Outcome, is_wanted: impl Fn(&Outcome) -> bool) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let outcome = run();
        if is_wanted(&outcome) {
            return outcome;
        }
        assert!(Instant::now() < deadline, "{outcome:#?}");
    }
}

fn start() -> Factory {
    let directory = tempfile::tempdir().unwrap().keep();
    let mut command = Command::new("sh");
    command.args(["-c", GUARD, "sh"]).arg(program()).args(["up", "--plain", "--data-dir"]).arg(directory.join("data"));
    for option in ["--listen", "--git", "--bootstrap", "--http", "--console-listen"] {
        command.args([option, "127.0.0.1:0"]);
    }
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("SPARKFLEET") {
            command.env_remove(variable);
        }
    }
    let log = std::fs::File::create(directory.join("up.log")).unwrap();
    command.env("DIRECTORY", &directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    let mut process = command.spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut word_after = |mark: &str| {
        let line = lines.by_ref().map(Result::unwrap).find(|line| line.contains(mark));
        let line = line.unwrap_or_else(|| panic!("{}", std::fs::read_to_string(directory.join("up.log")).unwrap()));
        let (_, rest) = line.split_once(mark).unwrap();
        format!("{mark}{}", rest.split_whitespace().next().unwrap().trim_end_matches('/'))
    };
    let (console, broker) = (word_after("http://"), word_after("mqtt://"));
    let guard = process.stdin.take().unwrap();
    // What it says of changes has to be read, or it would wait.
    std::thread::spawn(move || {
        lines.for_each(drop);
        process.wait()
    });
    Factory { broker, console, _guard: guard }
}

/// The program `sparkfleet`, which cargo does not build for every test: in `SPARKFLEET_PROGRAMS`, or where cargo puts those of the test's own profile.
pub fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let beside = own.parent().and_then(|deps| deps.parent()).unwrap().to_owned();
    let directory = std::env::var_os("SPARKFLEET_PROGRAMS").map_or(beside, PathBuf::from);
    let program = directory.join("sparkfleet");
    assert!(program.is_file(), "{} is not built: cargo build --package sparkfleet", program.display());
    program
}
