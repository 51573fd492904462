//! Fetching a branch of a git repository with the `git` program: what Flux's source-controller does. Credentials travel in the environment of the child, never in
//! its arguments.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;
use tokio::process::Command;

/// A fetch that takes longer has failed.
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);

/// How much of git's own words goes into a condition's message.
const MESSAGE_CHARS_MAX: usize = 400;

/// What to fetch.
#[derive(Clone, Default)]
pub struct Remote {
    /// URL.
    pub url: String,
    /// Branch.
    pub branch: String,
    /// Basic authentication.
    pub credentials: Option<(String, String)>,
    /// PEM of the authority that signed the server's certificate.
    pub ca: Option<Vec<u8>>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("url", &self.url).field("branch", &self.branch).finish_non_exhaustive()
    }
}

/// Why a repository cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The program could not be run, or a file not be written.
    #[error("cannot run git: install it, and check the temporary directory")]
    Io(#[from] std::io::Error),
    /// git said no.
    #[error("failed to checkout and determine revision: git {step}: {message}")]
    Git {
        /// What it was to do.
        step: &'static str,
        /// Its own words.
        message: String,
    },
    /// It took too long.
    #[error("git {step} took longer than {} s", FETCH_TIMEOUT.as_secs())]
    Timeout {
        /// What it was to do.
        step: &'static str,
    },
}

/// A working copy that is brought up to date by fetching.
#[derive(Debug)]
pub struct Checkout {
    directory: TempDir,
}

impl Checkout {
    /// An empty working copy in a temporary directory.
    pub fn new() -> Result<Self, GitError> {
        Ok(Self { directory: tempfile::Builder::new().prefix("sparkfleet-flux-").tempdir()? })
    }

    /// Where the files are.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("tree")
    }

    /// Fetches the tip of the branch, checks it out and returns its hash.
    pub async fn update(&self, remote: &Remote) -> Result<String, GitError> {
        let tree = self.path();
        if !tree.join(".git").exists() {
            tokio::fs::create_dir_all(&tree).await?;
            self.git("init", &["init", "--quiet", "--template="], remote).await?;
        }
        let reference = format!("refs/heads/{}", remote.branch);
        let fetch = ["fetch", "--quiet", "--force", "--depth=1", "--no-tags", "--", &remote.url, &reference];
        self.git("fetch", &fetch, remote).await?;
        self.git("checkout", &["checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"], remote).await?;
        self.git("clean", &["clean", "--quiet", "-ffdx"], remote).await?;
        let hash = self.git("rev-parse", &["rev-parse", "HEAD"], remote).await?;
        Ok(hash.trim().to_string())
    }

    async fn git(&self, step: &'static str, arguments: &[&str], remote: &Remote) -> Result<String, GitError> {
        let mut command = Command::new("git");
        command
            .args(["-c", "core.symlinks=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*"])
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.directory.path())
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ALLOW_PROTOCOL", "http:https:file")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if let Some((username, password)) = &remote.credentials {
            let basic = STANDARD.encode(format!("{username}:{password}"));
            command
                .env("GIT_CONFIG_COUNT", "1")
                .env("GIT_CONFIG_KEY_0", "http.extraHeader")
                .env("GIT_CONFIG_VALUE_0", format!("Authorization: Basic {basic}"));
        }
        if let Some(ca) = &remote.ca {
            command.env("GIT_SSL_CAINFO", self.write_ca(ca).await?);
        }
        let output =
            tokio::time::timeout(FETCH_TIMEOUT, command.output()).await.map_err(|_| GitError::Timeout { step })??;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let message: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(MESSAGE_CHARS_MAX).collect();
        Err(GitError::Git { step, message })
    }

    async fn write_ca(&self, ca: &[u8]) -> Result<PathBuf, GitError> {
        let path: &Path = self.directory.path();
        let file = path.join("ca.pem");
        tokio::fs::write(&file, ca).await?;
        Ok(file)
    }
}
