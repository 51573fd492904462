//! The git server of the site, where clusters follow their repositories instead of ours (Gitea, GitLab, or any other that speaks smart HTTP).
//!
//! Our repositories are where content is made. Before a piece of work, branch `main` is brought to where it is there, so that what people have pushed is kept. After the work the
//! branch is pushed, never by force. What cannot be pushed is taken back here: a commit counts only if the site's server has it. So the two are never apart, whatever is killed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use configdb_schema::address::external_repository;

use crate::client::{self, Credentials, GitError, Remote};
use crate::pulls::{LOCAL_MAX, MAIN, chain, refs, update};

/// Where a fetch puts what it has; clients do not see it.
const THERE: &str = "refs/sparkfleet/external";

/// How long a server that did not answer in time is not asked again: work on other repositories continues meanwhile.
const PAUSE: Duration = Duration::from_secs(30);

/// The site's server. Clones are the same.
#[derive(Debug, Clone)]
pub struct External {
    url: String,
    credentials_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    limit: Duration,
    silent_until: Arc<Mutex<Option<Instant>>>,
}

impl External {
    /// The server at whose `url`, with `{name}` for its name, a repository is. `credentials_file`: who may push there; `limit`: what one call may take.
    #[must_use]
    pub fn new(url: String, credentials_file: Option<PathBuf>, ca_file: Option<PathBuf>, limit: Duration) -> Self {
        Self { url, credentials_file, ca_file, limit, silent_until: Arc::default() }
    }

    /// Does work on the repository in `directory` between [`External::take_over`] and [`External::push`].
    ///
    /// # Errors
    /// What git says, for people: the work was not begun, or taken back.
    pub async fn around<T>(
        &self,
        directory: &Path,
        path: &str,
        work: impl Future<Output = T> + Send,
    ) -> Result<T, String> {
        let there = self.take_over(directory, path).await?;
        let done = work.await;
        self.push(directory, path, there.as_ref()).await?;
        Ok(done)
    }

    /// Brings branch `main` of the repository in `directory` to where it is there; its commit there, if it has one. `path`: such as `cluster/Paint_Shop`.
    ///
    /// # Errors
    /// What git says, for people.
    pub async fn take_over(&self, directory: &Path, path: &str) -> Result<Option<String>, String> {
        let Some(there) = self.reach(directory, path).await? else { return Ok(None) };
        if refs(directory, &[MAIN]).await?.get(MAIN) == Some(&there) {
            return Ok(Some(there));
        }
        let url = external_repository(&self.url, path);
        let spec = format!("+{MAIN}:{THERE}");
        let fetch = ["fetch", "--quiet", "--no-write-fetch-head", "--no-recurse-submodules", "--", &url, &spec];
        self.git(directory, &url, &fetch).await?;
        let seen = refs(directory, &[MAIN, THERE]).await?;
        let there = seen.get(THERE).ok_or("branch main is not a commit there")?;
        if seen.get(MAIN) != Some(there) {
            local(directory, &update(MAIN, there, seen.get(MAIN))).await?;
        }
        Ok(Some(there.clone()))
    }

    /// The commit of branch `main` there, if it has one; nothing is changed here.
    ///
    /// # Errors
    /// What git says, for people.
    pub async fn reach(&self, directory: &Path, path: &str) -> Result<Option<String>, String> {
        let url = external_repository(&self.url, path);
        // A server that makes repositories when they are pushed to knows none before.
        let listed = match self.git(directory, &url, &["ls-remote", "--", &url, MAIN]).await {
            Err(reason) if reason.contains("not found") => String::new(),
            listed => listed?,
        };
        Ok(listed.split_whitespace().next().map(str::to_owned))
    }

    /// Pushes branch `main`, unless it is there already. What cannot be pushed is taken back. `there`: what [`External::take_over`] has said.
    ///
    /// # Errors
    /// What git says, for people.
    pub async fn push(&self, directory: &Path, path: &str, there: Option<&String>) -> Result<(), String> {
        let here = refs(directory, &[MAIN]).await?.remove(MAIN);
        let Some(here) = here.filter(|here| Some(here) != there) else { return Ok(()) };
        let url = external_repository(&self.url, path);
        let spec = format!("{MAIN}:{MAIN}");
        let pushed = self.git(directory, &url, &["push", "--quiet", "--", &url, &spec]).await;
        let Err(reason) = pushed else { return Ok(()) };
        if let Some(there) = there {
            local(directory, &update(MAIN, there, Some(&here))).await?;
        }
        Err(reason)
    }

    async fn git(&self, directory: &Path, url: &str, arguments: &[&str]) -> Result<String, String> {
        let silent = *self.silent_until.lock().unwrap_or_else(PoisonError::into_inner);
        if silent.is_some_and(|until| until > Instant::now()) {
            return Err(format!("{url}: the server did not answer in time; it is asked again in a moment"));
        }
        let credentials = match self.credentials_file.clone() {
            Some(file) => {
                let read = tokio::task::spawn_blocking(move || Credentials::read(&file)).await;
                let read = read.map_err(|error| error.to_string())?;
                Some(read.map_err(|error| format!("git.external.credentials_file: {}", chain(&error)))?)
            }
            None => None,
        };
        let remote = Remote { url, credentials: credentials.as_ref(), ca_file: self.ca_file.as_deref() };
        let done = client::run(directory, Some(&remote), arguments, "", self.limit).await;
        if matches!(done, Err(GitError::TimedOut { .. })) {
            *self.silent_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + PAUSE);
        }
        done.map_err(|error| format!("{url}: {}", chain(&error)))
    }
}

async fn local(directory: &Path, changes: &str) -> Result<(), String> {
    let moved = client::run(directory, None, &["update-ref", "--stdin"], changes, LOCAL_MAX).await;
    moved.map(|_| ()).map_err(|error| chain(&error))
}
