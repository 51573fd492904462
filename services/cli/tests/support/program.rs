//! A command as a user runs it: words in, and out come text, exit code, and what has changed.
//!
//! This test program is the program, too: started with [`WORDS`] in its environment it carries out that command line and nothing else. So what is tested is what was compiled with the
//! test, and the commands need no service to be built.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use serde_json::Value;
use service_runtime::exit;
use sparkfleet_cli::arguments::ConfigCommand;
use tempfile::TempDir;

/// Names the words of the command line that a process carries out, as JSON.
const WORDS: &str = "SPARKFLEET_TEST_WORDS";

/// What the test harness says before a test runs.
const HEADER: &str = "\nrunning 1 test\n";

/// The commands on a fleet as `sparkfleet` has them.
#[derive(Debug, Parser)]
#[command(name = "sparkfleet")]
struct Arguments {
    #[command(subcommand)]
    command: AnyCommand,
}

#[derive(Debug, Subcommand)]
enum AnyCommand {
    #[command(flatten)]
    Fleet(sparkfleet_cli::Command),
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[test]
#[ignore = "a process that other tests start"]
fn a_command_line() {
    let Ok(words) = std::env::var(WORDS) else { return };
    let words: Vec<String> = serde_json::from_str(&words).unwrap();
    std::process::exit(i32::from(carried_out(words.into_iter().map(OsString::from).collect())));
}

/// What `main` of the program does; the exit code.
fn carried_out(words: Vec<OsString>) -> u8 {
    let ended = || {
        let parse = |command: clap::Command, words: Vec<OsString>| command.try_get_matches_from(words);
        let matches = sparkfleet_cli::context::read(Arguments::command(), words, parse)?;
        let matches = matches.unwrap_or_else(|error| error.exit());
        let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        sparkfleet_cli::output::colour::detect();
        runtime.block_on(async {
            match arguments.command {
                AnyCommand::Fleet(command) => sparkfleet_cli::run(command).await,
                AnyCommand::Config(command) => sparkfleet_cli::command::config::run(command).await,
            }
        })
    };
    match ended() {
        Ok(()) => exit::OK,
        Err(error) => {
            exit::report(&error);
            exit::code_of(&error)
        }
    }
}

/// A user: a directory of settings and of files, and an environment.
#[derive(Debug)]
pub struct User {
    directory: TempDir,
    environment: Vec<(String, String)>,
}

/// What a command did.
#[derive(Debug)]
pub struct Outcome {
    /// The command line.
    #[expect(dead_code, reason = "shown where an outcome is not as expected")]
    line: String,
    /// How it ended.
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl User {
    /// A user whose commands reach that broker.
    pub fn of(broker: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, environment: Vec::new() }.with("SPARKFLEET_BROKER", broker)
    }

    /// The same with another variable in the environment.
    pub fn with(mut self, variable: &str, value: &str) -> Self {
        self.environment.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// Takes a variable out of the environment.
    pub fn forget(&mut self, variable: &str) {
        self.environment.retain(|(name, _)| name != variable);
    }

    /// The directory of the user's files, `@/` in a command line.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes one of the user's files.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs `sparkfleet <line>`, whose words have blanks between them; `@/` is the user's directory.
    pub fn run(&self, line: &str) -> Outcome {
        self.run_with(line, "")
    }

    /// The same with text on standard input.
    pub fn run_with(&self, line: &str, input: &str) -> Outcome {
        self.run_words(&line.split(' ').collect::<Vec<_>>(), input)
    }

    /// The same with words that may have blanks.
    pub fn run_words(&self, words: &[&str], input: &str) -> Outcome {
        let mut child = self.start(words);
        // A command that reads no input closes it.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        Outcome::of(words, child)
    }

    /// Runs command lines at the same time; what each did, in their order. The nodes of a fleet answer who asks for their births at their own pace, all of them at once.
    pub fn run_all(&self, lines: &[&str]) -> Vec<Outcome> {
        std::thread::scope(|scope| {
            let runs: Vec<_> = lines.iter().map(|line| scope.spawn(|| self.run(line))).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        })
    }

    /// Starts a command, with all three streams as pipes.
    pub fn start(&self, words: &[&str]) -> Child {
        self.command(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The program `sparkfleet` with these words, for what the harness of tests cannot be: one whose standard output cannot be written.
    pub fn program(&self, words: &[&str]) -> Command {
        let mut command = Command::new(super::factory::program());
        command.args(words).stdin(Stdio::null());
        self.prepare(&mut command);
        command
    }

    fn command(&self, words: &[&str]) -> Command {
        let directory = format!("{}/", self.directory.path().display());
        let words = words.iter().map(|word| word.replace("@/", &directory));
        let words: Vec<String> = std::iter::once("sparkfleet".to_owned()).chain(words).collect();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["support::program::a_command_line", "--exact", "--ignored", "--nocapture", "--quiet"])
            .args(["--test-threads", "1"]);
        self.prepare(&mut command);
        command.env(WORDS, serde_json::to_string(&words).unwrap());
        command
    }

    /// The user's environment and nothing of the machine's that changes what a command does.
    fn prepare(&self, command: &mut Command) {
        let of_machine = |variable: &str| {
            variable.starts_with("SPARKFLEET")
                || ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "VISUAL"].contains(&variable)
        };
        for (variable, _) in std::env::vars().filter(|(variable, _)| of_machine(variable)) {
            command.env_remove(variable);
        }
        command.env("XDG_CONFIG_HOME", self.directory.path()).env("USER", "ada").env("EDITOR", "true");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
    }
}

impl Outcome {
    /// Waits for the end of a command. Whatever it is given to show, it never steers a terminal.
    pub fn of(words: &[&str], child: Child) -> Self {
        let ended = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let stdout = text(ended.stdout);
        let stdout = stdout.strip_prefix(HEADER).unwrap_or(&stdout).to_owned();
        let outcome = Self { line: words.join(" "), status: ended.status, stdout, stderr: text(ended.stderr) };
        for text in [&outcome.stdout, &outcome.stderr] {
            let steers =
                |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c) || c == '\u{feff}';
            assert!(!text.contains(steers), "{outcome:#?}");
        }
        outcome
    }

    /// Exit code, or that of a shell for a command that a signal has ended.
    pub fn code(&self) -> i32 {
        self.status.code().or_else(|| Some(128 + self.status.signal()?)).unwrap()
    }

    /// What was printed by a command that is done.
    pub fn done(&self) -> &str {
        assert_eq!(self.code(), i32::from(exit::OK), "{self:#?}");
        &self.stdout
    }

    /// The lines of it.
    pub fn lines(&self) -> Vec<&str> {
        self.done().lines().collect()
    }

    /// The document of it.
    pub fn json(&self) -> Value {
        serde_json::from_str(self.done()).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// The one line of explanation of a command that is not done, which has that exit code, and has printed nothing else.
    pub fn refused(&self, code: u8) -> &str {
        assert_eq!(self.code(), i32::from(code), "{self:#?}");
        assert_eq!(self.stdout, "", "{self:#?}");
        let line = self.stderr.lines().last().unwrap_or_default();
        line.strip_prefix("sparkfleet: ").unwrap_or_else(|| panic!("{self:#?}"))
    }

    /// The lines of an explanation: what was printed beside the result, without the remarks of a command that waits.
    pub fn explained(&self) -> Vec<&str> {
        explained(&self.stderr)
    }
}

/// The lines of a text on stderr without the remarks of a command that waits: how many of these there are is the speed of the machine.
pub fn explained(stderr: &str) -> Vec<&str> {
    let is_remark = |line: &&str| line.starts_with("waiting for ") || line.contains("not received in time");
    stderr.lines().filter(|line| !is_remark(line)).collect()
}

/// The mode of a file.
pub fn mode(file: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).unwrap().permissions().mode() & 0o777
}
