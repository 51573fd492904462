//! Runs one program of MIT Kerberos: its time is limited, so is what it may say, and its environment holds nothing that would lead it elsewhere.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::KdcError;

/// More than any answer that is read has.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;
/// Variables that would choose other credentials, or write what happens to a file.
const FORGOTTEN: &[&str] = &["KRB5CCNAME", "KRB5_KTNAME", "KRB5_CLIENT_KTNAME", "KRB5_TRACE"];

/// What a program said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Said {
    /// It ended with code 0. `kadmin` does so whatever happened.
    pub ok: bool,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Runs `program`, with `input` on its standard input. It is killed when its time is over, and when this is dropped.
///
/// # Errors
/// It cannot be started, or did not end in time.
pub(crate) async fn run<'a>(
    program: &str,
    arguments: impl IntoIterator<Item = &'a OsStr>,
    input: &[u8],
    krb5_conf: Option<&Path>,
    limit: Duration,
) -> Result<Said, KdcError> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for variable in FORGOTTEN {
        command.env_remove(variable);
    }
    if let Some(path) = krb5_conf {
        command.env("KRB5_CONFIG", path);
    }
    let mut child = command.spawn().map_err(|error| {
        KdcError::Local(format!("cannot start {program} ({error}); it is in the package krb5-user or krb5-workstation"))
    })?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(KdcError::Local(format!("{program} has no standard streams")));
    };
    let talk = async {
        let write = async {
            // A program that ends without reading is judged by what it says.
            let _ = stdin.write_all(input).await;
            drop(stdin);
        };
        let ((), out, err) = tokio::join!(write, read(stdout), read(stderr));
        Ok::<_, std::io::Error>(Said { ok: child.wait().await?.success(), out: out?, err: err? })
    };
    match tokio::time::timeout(limit, talk).await {
        Ok(said) => said.map_err(|error| KdcError::Local(format!("{program}: {error}"))),
        Err(_) => Err(KdcError::Unreachable(format!("{program} did not end within {} s", limit.as_secs()))),
    }
}

async fn read(mut stream: impl tokio::io::AsyncRead + Unpin) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    (&mut stream).take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await?;
    // What is too much is thrown away, so that the program does not wait for a reader.
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sh(script: &str, input: &[u8], limit: Duration) -> Result<Said, KdcError> {
        run("sh", [OsStr::new("-c"), OsStr::new(script)], input, Some(Path::new("/x")), limit).await
    }

    #[tokio::test]
    async fn a_program_receives_its_input_and_knows_the_configuration() {
        let said = sh("cat; echo $KRB5_CONFIG$KRB5CCNAME >&2; exit 3", b"one", Duration::from_secs(60)).await.unwrap();
        assert_eq!(said, Said { ok: false, out: "one".to_owned(), err: "/x\n".to_owned() });
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_an_unreachable_kdc() {
        let error = sh("exec sleep 1000", b"", Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(error, KdcError::Unreachable(_)), "{error}");
    }

    #[tokio::test]
    async fn what_a_program_says_is_bounded() {
        let said = sh("head -c 1000000 /dev/zero", b"", Duration::from_secs(60)).await.unwrap();
        assert_eq!((said.ok, said.out.len()), (true, 64 * 1024));
    }

    #[tokio::test]
    async fn a_program_that_is_missing_is_named() {
        let error = run("kadmin-is-missing", [], b"", None, Duration::from_secs(60)).await.unwrap_err();
        assert!(error.to_string().contains("kadmin-is-missing"), "{error}");
    }
}
