//! A program that a test starts, types lines into, and reads lines of.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Longest time that anything may take.
const SOON: Duration = Duration::from_secs(120);

/// A running program. It is killed when dropped.
pub struct Program {
    name: String,
    process: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    /// What it said, for the message of a failure.
    said: Vec<String>,
}

impl Program {
    pub fn start(command: &mut Command) -> Self {
        let name = command.get_program().display().to_string();
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { name, input: process.stdin.take(), process, output, said: Vec::new() }
    }

    pub fn type_line(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits for exactly these lines, one directly after the other; other lines may come before them.
    pub fn says(&mut self, lines: &[&str]) {
        let mut next = 0;
        while next < lines.len() {
            let line = self.line(lines);
            next = if line == lines[next] { next + 1 } else { usize::from(line == lines[0]) };
        }
    }

    /// Waits for a line that begins so; yields the rest of it.
    pub fn says_of(&mut self, beginning: &str) -> String {
        loop {
            if let Some(rest) = self.line(&[beginning]).strip_prefix(beginning) {
                return rest.to_owned();
            }
        }
    }

    fn line(&mut self, wanted: &[&str]) -> String {
        match self.output.recv_timeout(SOON) {
            Ok(line) => {
                self.said.push(line.clone());
                line
            }
            Err(error) => panic!("{} does not say {wanted:?} ({error}), but {:#?}", self.name, self.said),
        }
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Waits for the end of it, and returns whether it calls that a success.
    pub fn ends(mut self) -> bool {
        let until = Instant::now() + SOON;
        loop {
            match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return self.process.wait().unwrap().success(),
                Err(RecvTimeoutError::Timeout) => panic!("{} does not end", self.name),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
