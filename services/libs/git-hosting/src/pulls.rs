//! Brings branches of shared repositories to where they are on other git servers. Runs beside everything else, and bounded: a remote that hangs does not delay the others.
//!
//! What is fetched lies at a ref of its own until all branches that change move together. Whatever is killed, a branch is where it was, or where the remote is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::client::{self, Credentials, Remote};
use crate::repositories::Repositories;

/// Where a fetch puts what it has; clients do not see it.
pub const HIDDEN_REFS: &str = "refs/sparkfleet";
const FETCHED: &str = "refs/sparkfleet/pull";

/// The branch that clusters follow.
pub(crate) const MAIN: &str = "refs/heads/main";

/// Pulls at the same time: each may take a core and some 100 MB while it unpacks.
const PULLS_MAX: usize = 4;

/// Longest time that work on the disk alone may take.
pub(crate) const LOCAL_MAX: Duration = Duration::from_secs(60);

/// From where a branch is pulled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pull {
    /// Remote repository.
    pub url: String,
    /// Ref there.
    pub reference: String,
    /// How often, for the program that decides when. None: only when the configuration changes, or on demand.
    pub interval: Option<Duration>,
    /// Branch here that follows, as long as it is where the pulled branch was.
    pub merge: Option<String>,
    /// File with the credentials.
    pub secret: Option<String>,
}

/// A pull that has been carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// Commit of branch `main`, hexadecimal; None: it has none yet.
    pub main: Option<String>,
    /// Commit that was pulled.
    pub commit: String,
    /// The branch that should follow has commits of its own.
    pub diverged: bool,
}

/// Pulls, with what they need. Clones are the same.
#[derive(Debug, Clone)]
pub struct Pulls {
    repositories: Repositories,
    credentials_dir: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    limit: Duration,
    places: Arc<Semaphore>,
}

impl Pulls {
    /// Pulls into these repositories. `credentials_dir`: where `auth.secretRef` names a file; `limit`: what one fetch may take.
    #[must_use]
    pub fn new(
        repositories: Repositories,
        credentials_dir: Option<PathBuf>,
        ca_file: Option<PathBuf>,
        limit: Duration,
    ) -> Self {
        Self { repositories, credentials_dir, ca_file, limit, places: Arc::new(Semaphore::new(PULLS_MAX)) }
    }

    /// Brings a branch to where it is elsewhere.
    ///
    /// # Errors
    /// What git or the other server says, for people, without credentials.
    pub async fn pull(&self, repository: Uuid, branch: &str, pull: &Pull) -> Result<Pulled, String> {
        let _place = self.places.acquire().await;
        let open = self.repositories.by_uuid(repository).ok_or("the repository is not open")?;
        let directory = open.directory.as_path();
        let credentials = match &pull.secret {
            Some(secret) => Some(self.credentials(secret).await?),
            None => None,
        };
        let local = format!("refs/heads/{branch}");
        let follower = pull.merge.as_ref().map(|merge| format!("refs/heads/{merge}"));
        let names: Vec<&str> = [local.as_str(), MAIN, FETCHED].into_iter().chain(follower.as_deref()).collect();
        let before = refs(directory, &names).await?;
        let remote = Remote { url: &pull.url, credentials: credentials.as_ref(), ca_file: self.ca_file.as_deref() };
        let spec = format!("+{}:{FETCHED}", pull.reference);
        let fetch = ["fetch", "--quiet", "--no-write-fetch-head", "--no-recurse-submodules", "--", &pull.url, &spec];
        client::run(directory, Some(&remote), &fetch, "", self.limit).await.map_err(|error| chain(&error))?;
        let after = refs(directory, &names).await?;
        let commit = after.get(FETCHED).ok_or("the ref is not a commit there")?;
        let mut changes = update(&local, commit, before.get(&local));
        let mut diverged = false;
        if let Some(follower) = &follower {
            let at = after.get(follower);
            if at == before.get(&local) {
                changes += &update(follower, commit, at);
            } else {
                diverged = at != Some(commit);
            }
        }
        changes += &format!("delete {FETCHED}\n");
        let moved = client::run(directory, None, &["update-ref", "--stdin"], &changes, LOCAL_MAX).await;
        moved.map_err(|error| chain(&error))?;
        let main = refs(directory, &[MAIN]).await?.remove(MAIN);
        Ok(Pulled { main, commit: commit.clone(), diverged })
    }

    async fn credentials(&self, secret: &str) -> Result<Credentials, String> {
        let directory = self.credentials_dir.as_ref();
        let path = directory.ok_or("auth.secretRef is given, but git.credentials_dir is not configured")?.join(secret);
        let read = tokio::task::spawn_blocking(move || Credentials::read(&path)).await;
        let read = read.map_err(|error| error.to_string())?;
        read.map_err(|error| format!("auth.secretRef: {}", chain(&error)))
    }
}

/// A line for `git update-ref`: the branch must be where it was seen.
pub(crate) fn update(name: &str, commit: &str, before: Option<&String>) -> String {
    let nothing = "0".repeat(commit.len());
    format!("update {name} {commit} {}\n", before.unwrap_or(&nothing))
}

/// The commits that these refs are at.
pub(crate) async fn refs(directory: &Path, names: &[&str]) -> Result<BTreeMap<String, String>, String> {
    let format = "--format=%(refname) %(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end)";
    let list = [&["for-each-ref", format], names].concat();
    let listed = client::run(directory, None, &list, "", LOCAL_MAX).await.map_err(|error| chain(&error))?;
    Ok(listed.lines().filter_map(|line| line.split_once(' ')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect())
}

/// The message with those of its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
