//! A directory in which `openssl` works: keys, authorities and requests as others make them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

/// The directory.
#[derive(Debug)]
pub struct Bench(TempDir);

impl Bench {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).expect("written");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("readable")
    }

    /// Runs a program with arguments that are divided by blanks.
    pub fn run(&self, program: &str, arguments: &str) -> Output {
        let mut command = Command::new(program);
        command.args(arguments.split(' ')).current_dir(self.0.path());
        command.output().unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    /// Runs it, expects success, and gives what it printed.
    #[track_caller]
    pub fn succeed(&self, program: &str, arguments: &str) -> String {
        let output = self.run(program, arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program} {arguments}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// An authority, `ca.pem` and `ca.key`, with a key made by these arguments of `openssl`.
    pub fn authority(&self, key: &str) {
        self.succeed("openssl", &format!("{key} -out ca.key"));
        let signs = "-addext keyUsage=critical,keyCertSign -days 3650 -out ca.pem";
        self.succeed("openssl", &format!("req -x509 -key ca.key -subj /CN=kubernetes {signs}"));
    }

    /// A request by `openssl req` with a P-256 key and these further arguments.
    pub fn request(&self, arguments: &str) -> Vec<u8> {
        self.request_of("ecparam -name prime256v1 -genkey -noout", arguments)
    }

    /// The same with a key made by these arguments.
    pub fn request_of(&self, key: &str, arguments: &str) -> Vec<u8> {
        self.succeed("openssl", &format!("{key} -out node.key"));
        self.succeed("openssl", &format!("req -new -key node.key {arguments} -outform der -out node.csr"));
        self.read("node.csr")
    }
}
