//! Git in a bare repository, for tests.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// What git writes; `input` is what it reads. It must succeed.
pub(crate) fn git(directory: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("git")
        .args(["-c", "safe.directory=*", "-c", "user.name=x", "-c", "user.email=x@example", "--git-dir"])
        .arg(directory)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    output.stdout
}

/// As [`git`], a text without white space around it.
pub(crate) fn text(directory: &Path, arguments: &[&str], input: &[u8]) -> String {
    String::from_utf8(git(directory, arguments, input)).unwrap().trim().to_owned()
}
