//! Runs a program on the host. There is never a shell, no secret is among the arguments, and the time is limited. The output is bounded, and secrets are removed from it before
//! it is logged or reported.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use join_tickets::kubeadm::BootstrapToken;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use zeroize::Zeroizing;

use crate::platform::{Outcome, PlatformError};

/// Bytes of standard output that are kept; more is an error.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// Bytes at the end of standard error that are reported.
const STDERR_BYTES_MAX: usize = 2 * 1024;
/// A shorter line is not taken for a secret: it would be found everywhere.
const SECRET_BYTES_MIN: usize = 8;
/// What replaces a secret.
const REDACTED: &str = "[redacted]";

/// A program that is to be run.
#[derive(Debug)]
pub struct Command {
    program: PathBuf,
    arguments: Vec<OsString>,
    input: Zeroizing<Vec<u8>>,
    secrets: Vec<Zeroizing<String>>,
    timeout: Duration,
}

/// What a program left.
#[derive(Debug)]
pub struct Output {
    /// Exit code; None: ended by a signal.
    pub code: Option<i32>,
    /// Standard output. May hold secrets.
    pub stdout: Zeroizing<Vec<u8>>,
    /// The end of standard error, without secrets, in one line.
    pub stderr: String,
}

impl Command {
    /// A program by its path; ended after `timeout`.
    #[must_use]
    pub fn new(program: &Path, timeout: Duration) -> Self {
        let input = Zeroizing::new(Vec::new());
        Self { program: program.to_owned(), arguments: Vec::new(), input, secrets: Vec::new(), timeout }
    }

    /// With these arguments. Every process on the host can read them.
    #[must_use]
    pub fn arguments<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// With this standard input.
    #[must_use]
    pub fn input(mut self, bytes: &[u8]) -> Self {
        self.input = Zeroizing::new(bytes.to_vec());
        self
    }

    /// With a text that must not be reported if the program prints it, or a line of it. Lines that are too short to be a secret are reported.
    #[must_use]
    pub fn secret(mut self, secret: &[u8]) -> Self {
        let text = Zeroizing::new(String::from_utf8_lossy(secret).into_owned());
        let lines = text.lines().map(str::trim).filter(|line| line.len() >= SECRET_BYTES_MIN);
        self.secrets.extend(lines.map(|line| Zeroizing::new(line.to_owned())));
        self
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// It does not start, takes too long, or prints too much.
    pub async fn run(self) -> Outcome<Output> {
        let name = self.program.display().to_string();
        let failed = |why: &dyn std::fmt::Display| PlatformError::new(&name, why);
        let mut command = tokio::process::Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().map_err(|error| failed(&error))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let Some(mut stdin) = stdin {
                // A program that does not read its input says by its code what it thinks of it.
                let _ = stdin.write_all(&self.input).await;
            }
        };
        let longest = self.secrets.iter().map(|secret| secret.len()).max().unwrap_or_default();
        let work = async {
            let ((), stdout, stderr, status) = tokio::join!(
                write,
                read_start(stdout, OUTPUT_BYTES_MAX),
                read_end(stderr, STDERR_BYTES_MAX + longest),
                child.wait()
            );
            (stdout, stderr, status)
        };
        let Ok((stdout, (stderr, is_cut), status)) = tokio::time::timeout(self.timeout, work).await else {
            return Err(failed(&format_args!("it did not end within {} s", self.timeout.as_secs())));
        };
        let status = status.map_err(|error| failed(&error))?;
        let Some(stdout) = stdout else {
            return Err(failed(&format_args!("it printed more than {OUTPUT_BYTES_MAX} bytes")));
        };
        // The rest of a secret whose beginning was cut off must not be reported either.
        let start = if is_cut { longest.min(stderr.len()) } else { 0 };
        let stderr = without_secrets(&String::from_utf8_lossy(&stderr[start..]), &self.secrets);
        Ok(Output { code: status.code(), stdout, stderr })
    }

    /// Runs it; any other code than 0 is an error.
    ///
    /// # Errors
    /// As [`Self::run`], and the end of what it printed.
    pub async fn succeed(self) -> Outcome<Zeroizing<Vec<u8>>> {
        let what = match self.arguments.first() {
            Some(first) => format!("{} {}", self.program.display(), first.to_string_lossy()),
            None => self.program.display().to_string(),
        };
        let output = self.run().await?;
        match output.code {
            Some(0) => Ok(output.stdout),
            Some(code) => Err(PlatformError::new(what, format_args!("ended with code {code}: {}", output.stderr))),
            None => Err(PlatformError::new(what, format_args!("was killed: {}", output.stderr))),
        }
    }
}

/// Everything, or None if there is more than `max`; the rest is read and dropped, so that the program can end.
async fn read_start(pipe: Option<impl AsyncRead + Unpin>, max: usize) -> Option<Zeroizing<Vec<u8>>> {
    // With its room from the beginning: a vector that grows leaves copies behind.
    let mut kept = Zeroizing::new(Vec::with_capacity(max));
    let mut fits = true;
    each_part(pipe, |part| {
        fits = fits && kept.len() + part.len() <= max;
        if fits {
            kept.extend_from_slice(part);
        }
    })
    .await;
    fits.then_some(kept)
}

/// The last `max` bytes, and whether others came before.
async fn read_end(pipe: Option<impl AsyncRead + Unpin>, max: usize) -> (Vec<u8>, bool) {
    let (mut kept, mut is_cut) = (Vec::new(), false);
    each_part(pipe, |part| {
        kept.extend_from_slice(part);
        if kept.len() > max {
            is_cut = true;
            kept.drain(..kept.len() - max);
        }
    })
    .await;
    (kept, is_cut)
}

async fn each_part(pipe: Option<impl AsyncRead + Unpin>, mut take: impl FnMut(&[u8])) {
    let Some(mut pipe) = pipe else { return };
    let mut part = Zeroizing::new([0; 8 * 1024]);
    // A pipe that breaks ends like one that is closed.
    while let Ok(length @ 1..) = pipe.read(part.as_mut()).await {
        take(&part[..length]);
    }
}

/// The text in one line, the named secrets and everything that is a bootstrap token taken out.
fn without_secrets(text: &str, secrets: &[Zeroizing<String>]) -> String {
    let mut text = text.to_owned();
    for secret in secrets {
        text = text.replace(secret.as_str(), REDACTED);
    }
    let word = |word: &str| {
        let is_token = |part: &str| BootstrapToken::parse(part).is_ok();
        let hides = word.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).any(is_token);
        if hides { REDACTED.to_owned() } else { word.chars().filter(|c| !c.is_control()).collect() }
    };
    text.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        Command::new(Path::new("/bin/sh"), Duration::from_secs(60)).arguments(["-c", script])
    }

    #[tokio::test]
    async fn output_comes_back_and_a_code_is_an_error_with_its_reason() {
        let output = shell("cat; echo no >&2; exit 3").input(b"in").run().await.unwrap();
        assert_eq!((output.code, output.stdout.as_slice(), output.stderr.as_str()), (Some(3), b"in".as_slice(), "no"));
        let error = shell("echo one >&2; echo two >&2; exit 1").succeed().await.unwrap_err().0;
        assert_eq!(error, "/bin/sh -c: ended with code 1: one two");
        let error = Command::new(Path::new("/nonexistent/kubeadm"), Duration::from_secs(1)).run().await.unwrap_err().0;
        assert!(error.starts_with("/nonexistent/kubeadm: No such file"), "{error}");
    }

    #[tokio::test]
    async fn what_a_program_prints_is_bounded() {
        let error = shell("head -c 400000 /dev/zero").run().await.unwrap_err().0;
        assert_eq!(error, "/bin/sh: it printed more than 262144 bytes");
        let output = shell("head -c 400000 /dev/zero | tr '\\0' 'x' >&2").run().await.unwrap();
        assert_eq!(output.stderr.len(), STDERR_BYTES_MAX);
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_ended() {
        let command = Command::new(Path::new("/bin/sleep"), Duration::from_millis(50)).arguments(["600"]);
        assert_eq!(command.run().await.unwrap_err().0, "/bin/sleep: it did not end within 0 s");
    }

    #[tokio::test]
    async fn secrets_are_not_reported_not_even_the_rest_of_one() {
        let secret = "s3cr3t-of-the-node";
        let script = format!("echo '{secret} --token=abcdef.0123456789abcdef x' >&2; exit 1");
        let error = shell(&script).secret(secret.as_bytes()).succeed().await.unwrap_err().0;
        assert_eq!(error, "/bin/sh -c: ended with code 1: [redacted] [redacted] x");
        // One line of a key that has several.
        let key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n-----END PRIVATE KEY-----\n";
        let error =
            shell("echo at MIGHAgEAMBMGByqGSM49. >&2; exit 1").secret(key.as_bytes()).succeed().await.unwrap_err().0;
        assert!(error.ends_with("at [redacted]."), "{error}");
        // The secret lies across the place where the output is cut.
        let filler = "y".repeat(STDERR_BYTES_MAX - 4);
        let script = format!("printf '{secret}{filler}' >&2; exit 1");
        let error = shell(&script).secret(secret.as_bytes()).succeed().await.unwrap_err().0;
        assert!(!error.contains("node") && error.ends_with("yyyy"), "{error}");
    }
}
