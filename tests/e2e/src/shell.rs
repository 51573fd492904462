//! A user's shell: a directory that holds sh, kubectl and curl and nothing else, and an environment that says where the cluster is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::wait;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// See the module.
#[derive(Debug)]
pub struct Shell {
    directory: TempDir,
}

/// How a shell ended.
#[derive(Debug)]
pub struct ExitedCommand {
    /// Its exit code.
    pub code: Option<i32>,
    /// What it printed, standard error last.
    pub output: String,
}

impl ExitedCommand {
    /// Asserts that the bootstrap script says so.
    ///
    /// # Panics
    /// It does not.
    pub fn alive(&self) {
        assert_eq!(self.code, Some(0), "{self:#?}");
        assert!(self.output.contains("Edge cluster Paint_Shop is alive"), "{self:#?}");
    }

    /// Asserts an exit code, and that these texts were printed.
    ///
    /// # Panics
    /// It ended otherwise.
    pub fn failed(&self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for text in texts {
            assert!(self.output.contains(text), "{text:?} is not in: {self:#?}");
        }
    }
}

/// A program of this machine.
///
/// # Panics
/// It is not installed.
#[must_use]
pub fn find(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{program} is not installed; make test installs it"))
}

impl Shell {
    /// With that kubeconfig, and this machine's kubectl.
    ///
    /// # Panics
    /// A program is not installed; the other functions panic when the machine refuses what they do.
    #[must_use]
    pub fn new(kube_config: &str) -> Self {
        Self::with_kubectl(kube_config, &find("kubectl"))
    }

    /// The same with another kubectl.
    #[must_use]
    pub fn with_kubectl(kube_config: &str, kubectl: &Path) -> Self {
        let shell = Self { directory: tempfile::tempdir().unwrap() };
        std::fs::create_dir(shell.path().join("bin")).unwrap();
        std::fs::write(shell.path().join("kubeconfig"), kube_config).unwrap();
        symlink("/bin/sh", shell.bin("sh")).unwrap();
        symlink(kubectl, shell.bin("kubectl")).unwrap();
        symlink(find("curl"), shell.bin("curl")).unwrap();
        shell
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Where a program of it is.
    #[must_use]
    pub fn bin(&self, program: &str) -> PathBuf {
        self.path().join("bin").join(program)
    }

    /// The shell with these arguments.
    #[must_use]
    pub fn command(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
        // In a session of its own it has no terminal, even if the test is run in one.
        // A test that is run in the background ignores SIGINT, and so would all that it starts.
        let mut command = Command::new(find("env"));
        command.arg("--default-signal=INT").arg(find("setsid")).arg("--wait").arg(self.bin("sh")).args(arguments);
        self.clean(command, environment)
    }

    /// Nothing but what is said is in its environment.
    fn clean(&self, mut command: Command, environment: &[(&str, &str)]) -> Command {
        command
            .env_clear()
            .env("PATH", self.path().join("bin"))
            .env("HOME", self.path())
            .env("KUBECONFIG", self.path().join("kubeconfig"))
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs it with text on its standard input.
    pub async fn shell(&self, arguments: &[&str], input: &str, environment: &[(&str, &str)]) -> ExitedCommand {
        Self::ended(self.command(arguments, environment), input).await
    }

    /// Runs a script as `curl ... | sh` does on a terminal, where a user replies.
    pub async fn asked(&self, script: &str, reply: &str) -> ExitedCommand {
        let file = self.path().join("bootstrap.sh");
        std::fs::write(&file, script).unwrap();
        let mut command = Command::new(find("script"));
        command.args(["-qec", &format!("sh <'{}'", file.display()), "/dev/null"]);
        Self::ended(self.clean(command, &[("SHELL", "/bin/sh")]), reply).await
    }

    /// Runs a script as `curl ... | sh -s -- arguments` does.
    pub async fn run(&self, script: &str, arguments: &[&str]) -> ExitedCommand {
        self.shell(&[&["-s", "--"], arguments].concat(), script, &[]).await
    }

    async fn ended(mut command: Command, input: &str) -> ExitedCommand {
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A shell that ends early closes it.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output =
            tokio::time::timeout(2 * wait::PATIENCE, child.wait_with_output()).await.expect("in time").unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ExitedCommand { code: output.status.code(), output: text(&output.stdout) + &text(&output.stderr) }
    }

    /// Replaces a program by one that writes its arguments to `log` and then runs the original.
    pub fn record_arguments(&self, program: &str, log: &Path) {
        std::fs::remove_file(self.bin(program)).unwrap();
        let text = format!(
            "#!/bin/sh\nprintf '%s\\n' \"{program} $*\" >>'{}'\nexec '{}' \"$@\"\n",
            log.display(),
            find(program).display()
        );
        std::fs::write(self.bin(program), text).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(self.bin(program), executable).unwrap();
    }
}
