//! Fetching a commit of a git repository with the `git` program: what Flux's source-controller does. Credentials travel in the environment of the child, never in
//! its arguments.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use semver::{Version, VersionReq};
use serde_json::Value;
use tempfile::TempDir;

/// A fetch that takes longer has failed.
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes a history whole, whether it was fetched with a depth before or not.
const UNSHALLOW: &str = "--depth=2147483647";

/// How much of git's own words goes into a condition's message.
const MESSAGE_CHARS_MAX: usize = 400;

/// Which commit of a repository, as `spec.ref` of a GitRepository says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// The tip of a branch.
    Branch(String),
    Tag(String),
    /// A commit of any branch: 40 hexadecimal digits.
    Commit(String),
    /// The newest tag in a range of versions, such as `>=1.2 <2`.
    Semver(String),
}

#[derive(Clone)]
pub struct Remote {
    pub url: String,
    pub reference: Reference,
    pub credentials: Option<(String, String)>,
    /// PEM of the authority that signed the server's certificate.
    pub ca: Option<Vec<u8>>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("url", &self.url).field("reference", &self.reference).finish_non_exhaustive()
    }
}

impl Remote {
    /// What a GitRepository names; `secret` is the one of its `spec.secretRef` ([`secret_name`]).
    pub fn of(object: &Value, secret: Option<&Value>) -> Self {
        // The order in which one field outdoes another is that of Flux.
        let reference = None
            .or_else(|| text(object, "/spec/ref/commit").map(Reference::Commit))
            .or_else(|| text(object, "/spec/ref/semver").map(Reference::Semver))
            .or_else(|| text(object, "/spec/ref/tag").map(Reference::Tag))
            .or_else(|| text(object, "/spec/ref/branch").map(Reference::Branch))
            .unwrap_or_else(|| Reference::Branch("master".to_string()));
        let data = |field: &str| secret.and_then(|secret| STANDARD.decode(secret["data"][field].as_str()?).ok());
        let plain = |field: &str| data(field).and_then(|bytes| String::from_utf8(bytes).ok());
        let credentials = plain("username").zip(plain("password"));
        let ca = data("ca.crt").or_else(|| data("caFile"));
        Self { url: text(object, "/spec/url").unwrap_or_default(), reference, credentials, ca }
    }
}

/// The Secret that a GitRepository takes its credentials from, in its own namespace.
pub fn secret_name(object: &Value) -> Option<String> {
    text(object, "/spec/secretRef/name")
}

fn text(object: &Value, pointer: &str) -> Option<String> {
    object.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_string)
}

/// Why a repository cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The program could not be run, or a file not be written.
    #[error("cannot run git: install it, and check the temporary directory")]
    Io(#[from] std::io::Error),
    #[error("failed to checkout and determine revision: git {step}: {message}")]
    Git {
        /// What it was to do.
        step: &'static str,
        message: String,
    },
    /// There is no such commit, or it cannot be found out which.
    #[error("failed to checkout and determine revision: {0}")]
    Reference(String),
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

    /// Fetches the commit, checks it out and returns its revision as Flux writes it: `main@sha1:<hash>`, `v1.2@sha1:<hash>`, or `sha1:<hash>` of a commit.
    ///
    /// # Errors
    /// [`GitError`]; what was checked out before stays.
    pub async fn update(&self, remote: &Remote) -> Result<String, GitError> {
        let tree = self.path();
        if !tree.join(".git").exists() {
            tokio::fs::create_dir_all(&tree).await?;
            self.git("init", &["init", "--quiet", "--template="], remote).await?;
        }
        let (name, commit) = match &remote.reference {
            Reference::Branch(branch) => (branch.clone(), self.tip("heads", branch, remote).await?),
            Reference::Tag(tag) => (tag.clone(), self.tip("tags", tag, remote).await?),
            Reference::Semver(range) => {
                let tag = self.newest_tag(range, remote).await?;
                let commit = self.tip("tags", &tag, remote).await?;
                (tag, commit)
            }
            Reference::Commit(commit) => (String::new(), self.any_commit(commit, remote).await?),
        };
        self.git("checkout", &["checkout", "--quiet", "--force", "--detach", &commit], remote).await?;
        self.git("clean", &["clean", "--quiet", "-ffdx"], remote).await?;
        let at = if name.is_empty() { "" } else { "@" };
        Ok(format!("{name}{at}sha1:{commit}"))
    }

    /// Fetches one branch or tag; its commit.
    async fn tip(&self, kind: &str, name: &str, remote: &Remote) -> Result<String, GitError> {
        let reference = format!("refs/{kind}/{name}");
        let fetch = ["fetch", "--quiet", "--force", "--depth=1", "--no-tags", "--", &remote.url, &reference];
        self.git("fetch", &fetch, remote).await?;
        let commit = self.git("rev-parse", &["rev-parse", "FETCH_HEAD^{commit}"], remote).await?;
        Ok(commit.trim().to_owned())
    }

    /// Fetches all branches whole: a commit is only served to who asks for a branch that has it.
    async fn any_commit(&self, commit: &str, remote: &Remote) -> Result<String, GitError> {
        if commit.len() != 40 || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(GitError::Reference(format!("'{commit}' is not a commit: 40 hexadecimal digits")));
        }
        let all = "+refs/heads/*:refs/remotes/origin/*";
        let fetch = ["fetch", "--quiet", "--force", "--prune", UNSHALLOW, "--no-tags", "--", &remote.url, all];
        self.git("fetch", &fetch, remote).await?;
        let wanted = format!("{commit}^{{commit}}");
        let found = self.git("rev-parse", &["rev-parse", "--quiet", "--verify", &wanted], remote).await;
        let missing = |_| GitError::Reference(format!("no branch has the commit {commit}"));
        Ok(found.map_err(missing)?.trim().to_owned())
    }

    /// The tag with the newest version in the range.
    async fn newest_tag(&self, range: &str, remote: &Remote) -> Result<String, GitError> {
        let comparators: Vec<&str> = range.split([' ', ',']).filter(|part| !part.is_empty()).collect();
        let wanted: VersionReq = comparators
            .join(", ")
            .parse()
            .map_err(|error| GitError::Reference(format!("semver '{range}' is not a range of versions: {error}")))?;
        let listed = self.git("ls-remote", &["ls-remote", "--refs", "--tags", "--", &remote.url], remote).await?;
        let tags = listed.lines().filter_map(|line| line.split_once("refs/tags/")).map(|(_, tag)| tag);
        let version = |tag: &str| Version::parse(tag.strip_prefix('v').unwrap_or(tag)).ok();
        let newest = tags
            .filter_map(|tag| Some((version(tag)?, tag)))
            .filter(|(version, _)| wanted.matches(version))
            .max_by(|(one, _), (other, _)| one.cmp(other));
        let none = || GitError::Reference(format!("no tag has a version in '{range}'"));
        Ok(newest.ok_or_else(none)?.1.to_owned())
    }

    async fn git(&self, step: &'static str, arguments: &[&str], remote: &Remote) -> Result<String, GitError> {
        let mut command = git_hosting::client::program();
        command
            .args(["-c", "core.symlinks=false", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*"])
            .args(arguments)
            .current_dir(self.path())
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

/// Makes a repository in an empty directory, whose branch `main` has a chart without templates at each of these paths; its URL. For tests of what takes charts from one. Blocks.
///
/// # Errors
/// [`GitError`]
pub fn write_charts(directory: &Path, paths: &[&str]) -> Result<String, GitError> {
    std::fs::write(directory.join("README.md"), "Charts for a simulated cluster.\n")?;
    for path in paths {
        std::fs::create_dir_all(directory.join(path))?;
        std::fs::write(directory.join(path).join("Chart.yaml"), "apiVersion: v2\nname: some\nversion: 1.0.0\n")?;
    }
    let identity = ["-c", "user.name=simulator", "-c", "user.email=simulator@sparkfleet.example"];
    let steps: [(&'static str, &[&str]); 3] = [
        ("init", &["init", "--quiet", "--template=", "--initial-branch=main"]),
        ("add", &["add", "--all"]),
        ("commit", &["commit", "--quiet", "--message=Charts"]),
    ];
    for (step, arguments) in steps {
        let output =
            std::process::Command::new("git").current_dir(directory).args(identity).args(arguments).output()?;
        if !output.status.success() {
            return Err(GitError::Git { step, message: String::from_utf8_lossy(&output.stderr).into_owned() });
        }
    }
    Ok(format!("file://{}", directory.display()))
}
