//! The command line as a script uses it: arguments in, exit code and JSON out.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::program;

/// Commands against one broker.
#[derive(Debug, Clone)]
pub struct Cli {
    program: PathBuf,
    broker: String,
    environment: Vec<(String, String)>,
}

/// What a command did.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The command, for people.
    pub command: String,
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Cli {
    /// Commands against that broker.
    #[must_use]
    pub fn new(broker: &str) -> Self {
        Self { program: program::sparkfleet(), broker: broker.to_owned(), environment: Vec::new() }
    }

    /// The same with these variables in the environment of every command.
    #[must_use]
    pub fn with_environment(self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { environment: self.environment.into_iter().chain(variables).collect(), ..self }
    }

    /// Runs a command as it is: `--broker` is set by the environment.
    ///
    /// # Panics
    /// It cannot be started.
    pub async fn run(&self, arguments: &[&str]) -> Outcome {
        self.run_with(arguments, "").await
    }

    /// The same with text on standard input.
    ///
    /// # Panics
    /// It cannot be started.
    pub async fn run_with(&self, arguments: &[&str], input: &str) -> Outcome {
        let mut child = Command::new(&self.program)
            .args(arguments)
            .env("SPARKFLEET_BROKER", &self.broker)
            .env("USER", "e2e")
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("sparkfleet can be started");
        let mut stdin = child.stdin.take().expect("standard input is a pipe");
        // A command that does not read it closes it.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output: Output = child.wait_with_output().await.expect("the output can be read");
        Outcome {
            command: format!("sparkfleet {}", arguments.join(" ")),
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs a command that must succeed, with `--output json`; returns what it printed.
    ///
    /// # Panics
    /// It fails, or prints something else.
    pub async fn json(&self, arguments: &[&str]) -> Value {
        self.json_with(arguments, "").await
    }

    /// The same with text on standard input.
    ///
    /// # Panics
    /// It fails, or prints something else.
    pub async fn json_with(&self, arguments: &[&str], input: &str) -> Value {
        let arguments = [arguments, &["--output", "json"]].concat();
        self.run_with(&arguments, input).await.json()
    }
}

impl Outcome {
    /// The JSON that a successful command printed.
    ///
    /// # Panics
    /// It failed, or printed something else.
    #[must_use]
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:#?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {self:#?}"))
    }

    /// Asserts a failure with that exit code and exactly one line of explanation that contains `text`; returns the line. Lines that say what is waited
    /// for do not count, nor do those of the progress that the explanation repeats.
    ///
    /// # Panics
    /// It ended otherwise.
    pub fn refused(&self, code: i32, text: &str) -> String {
        assert_eq!(self.code, code, "{self:#?}");
        let last = self.stderr.lines().last().unwrap_or_default();
        let is_progress = |line: &str| line.starts_with("waiting for ") || line != last && last.starts_with(line);
        let lines: Vec<&str> = self.stderr.lines().filter(|line| !is_progress(line)).collect();
        assert_eq!(lines.len(), 1, "one line of explanation: {self:#?}");
        assert!(lines[0].contains(text), "{text:?} is not in: {self:#?}");
        lines[0].to_owned()
    }
}
