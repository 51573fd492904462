//! A git repository that Flux can fetch.

use std::path::PathBuf;
use std::process::Command;

use crate::git_backend::GitBackend;

/// A served repository whose files a test writes.
pub struct Repository {
    backend: GitBackend,
    directory: PathBuf,
}

impl Repository {
    pub async fn start() -> Self {
        let backend = GitBackend::start().await;
        let directory = backend.directory("factory");
        std::fs::create_dir_all(&directory).unwrap();
        let repository = Self { backend, directory };
        repository.git(&["init", "--quiet", "--template=", "--initial-branch=main"]);
        repository
    }

    pub fn url(&self) -> String {
        self.backend.url("factory/.git")
    }

    /// Writes files and commits them.
    pub fn commit(&self, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = self.directory.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message=files"]);
    }

    fn git(&self, arguments: &[&str]) {
        let identity = ["-c", "user.name=test", "-c", "user.email=test@sparkfleet.example"];
        let status = Command::new("git").current_dir(&self.directory).args(identity).args(arguments).status().unwrap();
        assert!(status.success(), "git {arguments:?}");
    }
}
