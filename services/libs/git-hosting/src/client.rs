//! The program git as a client of other git servers, and of the repositories on the disk.
//!
//! A child gets an environment of its own: no configuration of this host, no prompts, HTTP only. Credentials are in its environment, which no other process reads. Git gives them
//! out only to the server that they are for. They are in no argument, no file and no error. A child that takes too long ends with everything that it started.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use service_runtime::config::{ExposeSecret as _, Secret};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

/// Largest file of credentials.
const CREDENTIALS_BYTES_MAX: u64 = 64 * 1024;

/// What is kept of a child's output; what it says beyond is read and dropped.
pub(crate) const OUTPUT_BYTES_MAX: u64 = 256 * 1024;

/// How much of a child's error output is reported.
const COMPLAINT_CHARACTERS_MAX: usize = 500;

/// Variables of this process that a child needs as well: how to get out, and whom to trust.
const INHERITED: [&str; 8] =
    ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY", "SSL_CERT_FILE"];

/// Keeps memory constant however large the repository is, and ends connections that stand still.
const SETTINGS: [(&str, &str); 14] = [
    ("core.bigFileThreshold", "16m"),
    ("core.deltaBaseCacheLimit", "16m"),
    ("core.packedGitWindowSize", "16m"),
    ("core.packedGitLimit", "128m"),
    ("pack.threads", "1"),
    ("pack.windowMemory", "32m"),
    ("pack.deltaCacheSize", "16m"),
    // When a fetch tidies up: as [`crate::upkeep`] does.
    ("gc.auto", "1024"),
    ("gc.autoPackLimit", "16"),
    // Whatever tidies up afterwards is part of the child, so that nothing runs on behind it.
    ("gc.autoDetach", "false"),
    ("maintenance.autoDetach", "false"),
    ("http.lowSpeedLimit", "100"),
    ("http.lowSpeedTime", "60"),
    ("safe.directory", "*"),
];

/// Answers git's question for credentials from the environment.
const HELPER: &str = "!f() { test \"$1\" != get || printf 'username=%s\\npassword=%s\\n' \"$SPARKFLEET_GIT_USERNAME\" \"$SPARKFLEET_GIT_PASSWORD\"; }; f";

/// The login at another git server.
#[derive(Debug, Clone)]
pub struct Credentials {
    username: String,
    password: Arc<Secret>,
}

/// A file of credentials cannot be used. Says its name, never what is in it.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// It cannot be read.
    #[error("file {} cannot be read", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// It is not a credential.
    #[error("file {} must hold JSON {{\"username\", \"password\"}} or one line user:password", path.display())]
    Form {
        /// Which.
        path: PathBuf,
    },
}

#[derive(Deserialize)]
struct Pair {
    username: String,
    password: String,
}

impl Credentials {
    /// Reads a file: JSON `{username, password}`, or `user:password` where everything after the first colon is the password. Blocks.
    ///
    /// # Errors
    /// [`CredentialsError`]
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let unreadable = |source| CredentialsError::Unreadable { path: path.to_owned(), source };
        let form = || CredentialsError::Form { path: path.to_owned() };
        let about = std::fs::metadata(path).map_err(unreadable)?;
        if !about.is_file() || about.len() > CREDENTIALS_BYTES_MAX {
            return Err(form());
        }
        let bytes = zeroize::Zeroizing::new(std::fs::read(path).map_err(unreadable)?);
        let text = std::str::from_utf8(&bytes).map_err(|_| form())?;
        Self::parse(text).ok_or_else(form)
    }

    /// The user.
    #[must_use]
    pub fn username(&self) -> &str {
        &self.username
    }

    /// Its password.
    #[must_use]
    pub const fn password(&self) -> &Arc<Secret> {
        &self.password
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim_end_matches(['\r', '\n']);
        let pair = match text.trim_start().starts_with('{') {
            true => serde_json::from_str::<Pair>(text).ok().map(|pair| (pair.username, pair.password)),
            false => text.split_once(':').map(|(username, password)| (username.to_owned(), password.to_owned())),
        };
        let (username, password) = pair?;
        // A line break would end the line of git's question that it is written in.
        let is_line = |text: &str| !text.is_empty() && !text.contains(['\r', '\n', '\0']);
        (is_line(&username) && is_line(&password))
            .then(|| Self { username, password: Arc::new(Secret::from(password)) })
    }
}

/// Another git server, as far as one call is concerned.
#[derive(Debug, Clone)]
pub struct Remote<'a> {
    /// URL of the repository there; `http://` or `https://`.
    pub url: &'a str,
    /// Who we are there.
    pub credentials: Option<&'a Credentials>,
    /// PEM file of the authorities to trust. None: the system's.
    pub ca_file: Option<&'a Path>,
}

/// A call of git did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// It cannot be started.
    #[error("program git cannot be started; is it installed?")]
    Start(#[source] io::Error),
    /// Its input or output broke.
    #[error("program git broke off")]
    Broken(#[source] io::Error),
    /// It took too long.
    #[error("took longer than {} s", limit.as_secs())]
    TimedOut {
        /// The limit.
        limit: Duration,
    },
    /// It says why not.
    #[error("{complaint}")]
    Failed {
        /// What git and the other server said, without credentials.
        complaint: String,
    },
}

/// What a child reads.
#[derive(Debug)]
pub enum Input<'a> {
    /// This text.
    Text(&'a str),
    /// These bytes.
    Bytes(&'a [u8]),
    /// What is in this file from its position on.
    File(File),
}

/// Runs git in a bare repository and returns what it wrote. `remote`: the server that it speaks with.
///
/// # Errors
/// [`GitError`]
pub async fn run(
    directory: &Path,
    remote: Option<&Remote<'_>>,
    arguments: &[&str],
    input: &str,
    limit: Duration,
) -> Result<String, GitError> {
    let mut command = command(directory, remote);
    command.args(arguments);
    let credentials = remote.and_then(|remote| remote.credentials);
    output_of(command, Input::Text(input), credentials, limit).await
}

/// Runs git in a bare repository, speaking with no server. `output`: where it writes; None: what it writes is returned.
///
/// # Errors
/// [`GitError`]
pub async fn run_on_files(
    directory: &Path,
    arguments: &[&str],
    input: Input<'_>,
    output: Option<File>,
    limit: Duration,
) -> Result<String, GitError> {
    let mut command = command(directory, None);
    command.args(arguments);
    if let Some(output) = output {
        command.stdout(output);
    }
    output_of(command, input, None, limit).await
}

async fn output_of(
    mut command: Command,
    input: Input<'_>,
    credentials: Option<&Credentials>,
    limit: Duration,
) -> Result<String, GitError> {
    let input = match input {
        Input::Text(text) => text.as_bytes(),
        Input::Bytes(bytes) => bytes,
        Input::File(file) => {
            command.stdin(file);
            &[]
        }
    };
    let mut child = command.spawn().map_err(GitError::Start)?;
    let mut group = Group(child.id());
    let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let work = async {
        let feed = async {
            if let Some(mut stdin) = stdin.take() {
                // A child that has seen enough does not read the rest.
                let _ = stdin.write_all(input).await;
            }
        };
        let ((), stdout, stderr) = tokio::join!(feed, collect(stdout), collect(stderr));
        let status = child.wait().await?;
        Ok::<_, io::Error>((status, stdout?, stderr?))
    };
    let ended = tokio::time::timeout(limit, work).await;
    let (status, stdout, stderr) = ended.map_err(|_| GitError::TimedOut { limit })?.map_err(GitError::Broken)?;
    // It has ended by itself, and its children before it.
    group.0 = None;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let complaint = complaint(&String::from_utf8_lossy(&stderr), credentials);
    Err(GitError::Failed {
        complaint: if complaint.is_empty() { format!("git ended with {status}") } else { complaint },
    })
}

/// The program git, with an environment of its own: no configuration of this host, and no words in its language.
pub fn program() -> Command {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    // By its place: where only a name is known beside a `PATH` of its own, a child is made by fork, which copies the page tables of a whole service.
    let place = std::env::split_paths(&path).map(|directory| directory.join("git")).find(|place| place.is_file());
    let mut command = Command::new(place.unwrap_or_else(|| "git".into()));
    command
        .env_clear()
        .env("PATH", path)
        .env("HOME", "/nonexistent")
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_NO_REPLACE_OBJECTS", "1");
    command
}

pub(crate) fn command(directory: &Path, remote: Option<&Remote<'_>>) -> Command {
    let mut command = program();
    command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_ALLOW_PROTOCOL", "http:https");
    for name in INHERITED {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let mut settings: Vec<(String, String)> =
        SETTINGS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    if let Some(remote) = remote {
        if let Some(Credentials { username, password }) = remote.credentials {
            settings.push((format!("credential.{}.helper", origin(remote.url)), HELPER.to_owned()));
            command.env("SPARKFLEET_GIT_USERNAME", username).env("SPARKFLEET_GIT_PASSWORD", password.expose_secret());
        }
        if let Some(file) = remote.ca_file {
            command.env("GIT_SSL_CAINFO", file);
        }
    }
    command.env("GIT_CONFIG_COUNT", settings.len().to_string());
    for (index, (key, value)) in settings.iter().enumerate() {
        command.env(format!("GIT_CONFIG_KEY_{index}"), key).env(format!("GIT_CONFIG_VALUE_{index}"), value);
    }
    command.arg("--git-dir").arg(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, so that it can be ended with all its children.
    command.process_group(0).kill_on_drop(true);
    command
}

/// Scheme, host and port of a URL.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find('/').map_or(url.len(), |at| host + at);
    &url[..end]
}

async fn collect(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let Some(mut stream) = stream else { return Ok(Vec::new()) };
    let mut kept = Vec::new();
    (&mut stream).take(OUTPUT_BYTES_MAX).read_to_end(&mut kept).await?;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(kept)
}

/// What git says, on one line, without what a server could smuggle into a terminal or reveal of our credentials.
pub(crate) fn complaint(stderr: &str, credentials: Option<&Credentials>) -> String {
    let mut text = stderr.to_owned();
    if let Some(credentials) = credentials {
        text = text.replace(credentials.password.expose_secret(), "***");
    }
    let words = text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(COMPLAINT_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// A group of processes that ends with this value, unless it has ended already.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let Some(leader) = self.0 else { return };
        // Every sh has a kill of its own.
        let ended = std::process::Command::new("sh")
            .args(["-c", "kill -s KILL -- \"-$0\"", &leader.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if let Err(error) = ended {
            tracing::warn!(error = %error, "a child that took too long could not be ended with its own children");
        }
    }
}

#[cfg(test)]
pub(crate) mod bare;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(String, String)> {
        let Credentials { username, password } = Credentials::parse(text)?;
        Some((username, password.expose_secret().to_owned()))
    }

    #[test]
    fn both_forms_of_credentials_are_read_and_nothing_else() {
        let pair = |username: &str, password: &str| Some((username.to_owned(), password.to_owned()));
        assert_eq!(parsed("bot:a:b:c\n"), pair("bot", "a:b:c"), "the first colon alone divides");
        assert_eq!(parsed(r#"{"username": "bot", "password": "p\"w"}"#), pair("bot", "p\"w"));
        for text in [
            "",
            "bot",
            "bot:",
            ":pw",
            "{\"username\": \"bot\"}",
            "{",
            "bot:a\nquit=1",
            r#"{"username":"a","password":"b\nc"}"#,
        ] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_error_about_credentials_names_the_file_and_nothing_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("code-bot");
        let missing = Credentials::read(&file).unwrap_err().to_string();
        assert!(missing.contains("code-bot") && missing.contains("cannot be read"), "{missing}");
        for content in ["geheim", r#"{"username": "geheim"}"#, r#"{"username": 5, "password": "geheim"}"#] {
            std::fs::write(&file, content).unwrap();
            let error = format!("{:?} {0}", Credentials::read(&file).unwrap_err());
            assert!(error.contains("code-bot") && !error.contains("geheim"), "{error}");
        }
        std::fs::write(&file, "bot:geheim").unwrap();
        assert!(!format!("{:?}", Credentials::read(&file).unwrap()).contains("geheim"));
    }

    #[test]
    fn a_complaint_is_one_harmless_line() {
        let credentials = Credentials::parse("bot:geheim").unwrap();
        let text = complaint("remote: no \u{1b}[31mgeheim\r\nfatal: x\n", Some(&credentials));
        assert_eq!(text, "remote: no [31m*** fatal: x");
        assert_eq!(complaint(&"é".repeat(600), None).chars().count(), COMPLAINT_CHARACTERS_MAX + 3);
    }

    #[test]
    fn credentials_are_for_one_server() {
        assert_eq!(origin("https://code.example:8443/a/b.git"), "https://code.example:8443");
        assert_eq!(origin("http://code.example"), "http://code.example");
    }
}
