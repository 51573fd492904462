//! A running program. It ends with this process: the kernel kills it when the thread that has started it ends, and that thread lives as long as the process.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of a log that a diagnosis shows.
const TAIL_LINES: usize = 25;

/// How often it is looked whether a program that was asked to end has done so.
const LOOK: Duration = Duration::from_millis(10);

type Request = (Command, Sender<io::Result<Child>>);

/// The thread that starts everything. A thread of a runtime may end long before the test does.
static STARTER: LazyLock<Mutex<Sender<Request>>> = LazyLock::new(|| {
    let (sender, requests) = mpsc::channel::<Request>();
    std::thread::spawn(move || {
        for (mut command, reply) in requests {
            // The receiver is gone only when the caller panicked; the child is dropped, and the kernel ends it with this process.
            let _ = reply.send(command.spawn());
        }
    });
    Mutex::new(sender)
});

fn spawn(command: Command) -> io::Result<Child> {
    let (reply, child) = mpsc::channel();
    let starter = STARTER.lock().unwrap_or_else(PoisonError::into_inner);
    starter.send((command, reply)).map_err(io::Error::other)?;
    child.recv().map_err(io::Error::other)?
}

/// What to start.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Of the log.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// All of its environment; `PATH` of this process is there, too.
    pub environment: Vec<(String, String)>,
    /// Where it starts.
    pub directory: PathBuf,
}

impl Launch {
    /// A program with its arguments.
    pub fn new(name: &str, program: &Path, arguments: impl IntoIterator<Item = String>) -> Self {
        let command = std::iter::once(program.display().to_string()).chain(arguments).collect();
        Self { name: name.to_owned(), command, environment: Vec::new(), directory: PathBuf::from("/") }
    }

    /// Adds a variable.
    #[must_use]
    pub fn with_env(mut self, key: &str, value: impl Into<String>) -> Self {
        self.environment.push((key.to_owned(), value.into()));
        self
    }
}

/// A program with its log, running or not.
#[derive(Debug)]
pub struct Process {
    launch: Launch,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// Starts it; standard output and standard error go to `<logs>/<name>.log`.
    ///
    /// # Errors
    /// The log cannot be opened, or the program not be started.
    pub fn start(launch: Launch, logs: &Path) -> io::Result<Self> {
        let log = logs.join(format!("{}.log", launch.name));
        let mut process = Self { launch, log, child: None };
        process.restart()?;
        Ok(process)
    }

    /// Kills it if it runs, and starts it again; the log continues.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .args(&self.launch.command)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(self.launch.environment.iter().cloned())
            .current_dir(&self.launch.directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.child = Some(spawn(command)?);
        Ok(())
    }

    /// SIGKILL, and its end.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// SIGTERM; SIGKILL when it has not ended after `grace`.
    pub async fn stop(&mut self, grace: Duration) {
        if let Some(child) = &self.child {
            // It may have ended already.
            let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).stderr(Stdio::null()).status();
        }
        let deadline = Instant::now() + grace;
        while self.is_running() && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
        self.kill();
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// How it ended; None while it runs, and when it was killed by this side.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }

    /// Its process id, while it has one.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// All that it has printed.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The end of what it has printed, for people.
    #[must_use]
    pub fn tail(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        format!("--- the end of {}\n{}", self.launch.name, last.join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
