//! A git repository that Flux can fetch.

use std::path::PathBuf;
use std::process::Command;

#[path = "../../e2e/src/git_backend.rs"]
mod git_backend;

use git_backend::GitBackend;

/// A served repository whose files a test writes.
#[derive(Debug)]
pub struct Repository {
    backend: GitBackend,
    directory: PathBuf,
}

impl Repository {
    /// Starts the server, with an empty repository.
    ///
    /// # Panics
    /// git is not there.
    pub async fn start() -> Self {
        let backend = GitBackend::start().await;
        let directory = backend.directory("factory");
        std::fs::create_dir_all(&directory).expect("the server's directory can be written");
        let repository = Self { backend, directory };
        repository.git(&["init", "--quiet", "--template=", "--initial-branch=main"]);
        repository
    }

    /// Where it is served.
    #[must_use]
    pub fn url(&self) -> String {
        self.backend.url("factory/.git")
    }

    /// Writes files and commits them on branch `main`.
    ///
    /// # Panics
    /// Nothing is changed by them.
    pub fn commit(&self, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = self.directory.join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(&self.directory)).expect("the directory can be written");
            std::fs::write(path, text).expect("the directory can be written");
        }
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message=files"]);
    }

    fn git(&self, arguments: &[&str]) {
        let identity = ["-c", "user.name=test", "-c", "user.email=test@sparkfleet.example"];
        let status = Command::new("git").current_dir(&self.directory).args(identity).args(arguments).status();
        assert!(status.is_ok_and(|status| status.success()), "git {arguments:?}");
    }
}
