//! A running program: what it prints goes to a file, it can be killed, interrupted and started again, and it does not outlive the test.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::wait;

/// Lines of the log that a diagnosis shows.
const TAIL_LINES: usize = 15;

/// A program with its arguments, running or not.
#[derive(Debug)]
pub struct Process {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// What it leaves in temporary files when it is killed goes with the test's directory.
    directory: PathBuf,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// Starts a program. Standard output and standard error go to `<directory>/<name>.log`.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    pub fn start(name: &str, program: &Path, arguments: &[&str], directory: &Path) -> Self {
        Self::with(name, program, arguments, &[], directory)
    }

    /// The same with variables added to its environment.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    pub fn with(
        name: &str,
        program: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
        directory: &Path,
    ) -> Self {
        let mut process = Self {
            name: name.to_owned(),
            program: program.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            environment: environment.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
            directory: directory.to_owned(),
            log: directory.join(format!("{name}.log")),
            child: None,
        };
        process.restart();
        process
    }

    /// Starts it again, with the same arguments; the log continues.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn restart(&mut self) {
        self.kill();
        let log: File = OpenOptions::new().create(true).append(true).open(&self.log).expect("the log can be opened");
        let same = log.try_clone().expect("an open file can be opened once more");
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .env("TMPDIR", &self.directory)
            .envs(self.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(same)
            .spawn();
        self.child =
            Some(child.unwrap_or_else(|error| panic!("{} cannot be started: {error}", self.program.display())));
    }

    /// SIGKILL, and its end.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// What Ctrl-C does.
    ///
    /// # Panics
    /// It does not run, or `kill` is not there.
    pub fn interrupt(&self) {
        let id = self.id().to_string();
        let status = Command::new("kill").args(["-INT", &id]).status().expect("kill can be started");
        assert!(status.success(), "{} cannot be interrupted\n{}", self.name, self.tail());
    }

    /// Its process id.
    ///
    /// # Panics
    /// It does not run.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.as_ref().map(Child::id).unwrap_or_else(|| panic!("{} does not run", self.name))
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// It does not end.
    pub async fn ended(&mut self) -> ExitStatus {
        let (name, log) = (self.name.clone(), self.log.clone());
        // It stays ours until it has ended: a test that waits in vain leaves nothing behind.
        let child = self.child.as_mut().unwrap_or_else(|| panic!("{name} does not run"));
        let ended = || child.try_wait().ok().flatten();
        let status = wait::until(&format!("the end of {name}"), ended, || tail(&log)).await;
        self.child = None;
        status
    }

    /// Waits until a line of its output contains `text`, and returns that line.
    ///
    /// # Panics
    /// No such line comes.
    pub async fn says(&self, text: &str) -> String {
        let found = || self.output().lines().find(|line| line.contains(text)).map(str::to_owned);
        wait::until(&format!("{} to say {text:?}", self.name), found, || self.tail()).await
    }

    /// Everything that it has printed so far, in all its lives.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The end of its output, for people.
    #[must_use]
    pub fn tail(&self) -> String {
        tail(&self.log)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Whatever the test fails at, a process that ended by itself may be why.
        if thread::panicking() && self.child.is_some() {
            let state = if self.is_running() { "runs" } else { "has ended by itself" };
            eprintln!("{} {state}; the end of its output:\n{}", self.name, self.tail());
        }
        self.kill();
    }
}

/// Processes by name; clones are the same ones.
#[derive(Debug, Clone, Default)]
pub struct Processes(Arc<Mutex<BTreeMap<String, Process>>>);

impl Processes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Process>> {
        // A panic while it was held has been reported; the map is whole in any case.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one in; one that was there under its name is killed.
    pub fn insert(&self, process: Process) {
        self.lock().insert(process.name.clone(), process);
    }

    /// Whether there is one of that name, running or not.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    /// Whether it runs.
    #[must_use]
    pub fn runs(&self, name: &str) -> bool {
        self.lock().get_mut(name).is_some_and(Process::is_running)
    }

    /// The exit code with which it ended; None while it runs, or if a signal ended it.
    #[must_use]
    pub fn exit_code(&self, name: &str) -> Option<i32> {
        let mut all = self.lock();
        all.get_mut(name)?.child.as_mut()?.try_wait().ok().flatten()?.code()
    }

    /// SIGKILL. False: there is none of that name.
    pub fn kill(&self, name: &str) -> bool {
        self.lock().get_mut(name).map(Process::kill).is_some()
    }

    /// Starts it again.
    ///
    /// # Panics
    /// There is none of that name, or it cannot be started.
    pub fn restart(&self, name: &str) {
        self.lock().get_mut(name).unwrap_or_else(|| panic!("there is no {name}")).restart();
    }

    /// Starts it again with more arguments, which it keeps.
    ///
    /// # Panics
    /// There is none of that name, or it cannot be started.
    pub fn restart_with(&self, name: &str, more: &[&str]) {
        let mut all = self.lock();
        let process = all.get_mut(name).unwrap_or_else(|| panic!("there is no {name}"));
        process.arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        process.restart();
    }

    /// Its process id.
    ///
    /// # Panics
    /// It does not run.
    #[must_use]
    pub fn id(&self, name: &str) -> u32 {
        self.lock().get(name).unwrap_or_else(|| panic!("there is no {name}")).id()
    }

    /// Kills all.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// The end of every log, for people.
    #[must_use]
    pub fn tails(&self) -> String {
        self.lock().values().map(Process::tail).collect::<Vec<_>>().join("\n")
    }

    /// All logs.
    #[must_use]
    pub fn logs(&self) -> String {
        self.lock().values().map(Process::output).collect()
    }

    /// SIGINT to all that run, and their ends.
    ///
    /// # Panics
    /// One does not end, or not with exit code 0.
    pub async fn stop(&self) {
        let all = std::mem::take(&mut *self.lock());
        for (name, mut process) in all {
            if process.is_running() {
                process.interrupt();
                let status = process.ended().await;
                assert!(status.success(), "{name} ended with {status}\n{}", process.tail());
            }
        }
    }
}

fn tail(log: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    format!("--- the end of {}\n{}", log.display(), last.join("\n"))
}
