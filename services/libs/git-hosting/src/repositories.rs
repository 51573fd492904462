//! Bare git repositories on disk: which there are, which of them are open, and what is on their branch `main`.
//!
//! ```text
//! <state_dir>/git/<uuid>.git    the repository; stays when it is closed
//! <state_dir>/git/<uuid>.json   its path and kind, only while it is open
//! <state_dir>/git/<uuid>.compared
//!                               what a commit is known to hold; may be removed at any time
//! ```
//!
//! Everything here is idempotent and may be killed anywhere. A repository is made aside and renamed. Objects come before the reference, the reference
//! changes by compare-and-set, and the `.json` is written last. This module must not know what the files in a repository mean, nor HTTP.

mod compared;
mod edit;
mod references;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use serde::{Deserialize, Serialize};
use service_runtime::atomic_file::{self, AtomicFileError};
use uuid::Uuid;

pub use edit::Edit;
pub(crate) use references::refs;
use references::tip;

/// The branch that clusters follow.
const BRANCH: &str = "refs/heads/main";

/// What a bare repository needs besides `HEAD` and `config`.
const DIRECTORIES: [&str; 4] = ["objects/info", "objects/pack", "refs/heads", "refs/tags"];

/// Configuration of a bare repository, as git writes it.
pub(crate) const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n";

/// How often a lost race for the branch is run again. Only an operator who pushes on the disk races with us.
const RACES_MAX: usize = 5;

/// Who commits.
const COMMITTER: &str = "Sparkfleet cluster manager";
const COMMITTER_EMAIL: &str = "cluster-manager@sparkfleet.invalid";

/// A step on the disk failed.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// A directory or file cannot be used.
    #[error("cannot {step} {}", path.display())]
    Disk {
        /// What was tried.
        step: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A small file cannot be replaced.
    #[error(transparent)]
    File(#[from] AtomicFileError),
    /// Git objects or references cannot be read or written.
    #[error("repository {} cannot be {step} ({reason}); if it is damaged, move it away and it is written again", path.display())]
    Git {
        /// What was tried.
        step: &'static str,
        /// Which repository.
        path: PathBuf,
        /// What the library says.
        reason: String,
    },
    /// Another writer moves the branch all the time.
    #[error("branch main of {} was moved by another writer {RACES_MAX} times in a row; try again", path.display())]
    Raced {
        /// Which repository.
        path: PathBuf,
    },
    /// It is not open.
    #[error("the cluster has no repository at present")]
    Closed,
}

impl RepositoryError {
    fn disk(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk { step, path: path.to_owned(), source }
    }

    pub(crate) fn git<E: std::fmt::Display>(step: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |error| Self::Git { step, path: path.to_owned(), reason: error.to_string() }
    }
}

/// Full names of references, each with the object that it names, hexadecimal.
pub type Refs = BTreeMap<String, String>;

/// Whose a repository is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One cluster's: only that cluster may read it.
    Cluster,
    /// Every cluster may read it.
    Shared,
}

/// An open repository.
#[derive(Debug, Clone)]
pub struct Open {
    /// Its UUID; of a cluster's repository the cluster's.
    pub uuid: Uuid,
    /// Whose it is.
    pub kind: Kind,
    /// Where it is served, such as `cluster/Paint_Shop`.
    pub path: String,
    /// Where it is on the disk.
    pub directory: PathBuf,
}

/// What a repository shall hold. Everything outside `directory` belongs to others and stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepositoryFiles {
    /// Files of the first commit only, with their paths.
    pub initial: BTreeMap<String, Vec<u8>>,
    /// The directory that is replaced; empty for the whole tree. None: nothing is.
    pub directory: Option<String>,
    /// Its files, with their paths below it.
    pub owned: BTreeMap<String, Vec<u8>>,
    /// Commit message.
    pub message: String,
}

/// Where a repository is served, and for whom. This is recorded beside an open one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryRecord {
    /// Such as `cluster/Paint_Shop`.
    pub path: String,
    /// Whose it is.
    pub kind: Kind,
    /// The ConfigDB that wants it; nil for what no ConfigDB wants.
    pub store: Uuid,
    /// The state of that ConfigDB that it was brought to, as its owner writes it. None: that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

/// State of branch `main` after a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its commit, hexadecimal.
    pub commit: String,
    /// There was something to commit.
    pub changed: bool,
    /// It holds other files, and was left as it is.
    pub held: bool,
}

#[derive(Debug, Default)]
struct Table {
    records: BTreeMap<Uuid, RepositoryRecord>,
    by_path: BTreeMap<String, Uuid>,
}

/// All repositories of one state directory. Clones are the same.
#[derive(Debug, Clone)]
pub struct Repositories {
    git: PathBuf,
    table: Arc<RwLock<Table>>,
    /// The present start of the machine.
    boot: Option<Arc<str>>,
}

/// Where the repository of the cluster of that name is served.
#[must_use]
pub fn cluster_path(name: &str) -> String {
    format!("cluster/{name}")
}

impl Repositories {
    /// Reads what is there; makes the directories; removes what a killed process left half done. Blocks.
    ///
    /// # Errors
    /// The state directory cannot be used.
    pub fn load(state_dir: &Path) -> Result<Self, RepositoryError> {
        let store = Self { git: state_dir.join("git"), table: Arc::default(), boot: compared::boot().map(Arc::from) };
        fs::create_dir_all(&store.git).map_err(RepositoryError::disk("create", &store.git))?;
        let mut table = Table::default();
        let mut records = Vec::new();
        for entry in fs::read_dir(&store.git).map_err(RepositoryError::disk("list", &store.git))? {
            let entry = entry.map_err(RepositoryError::disk("list", &store.git))?;
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".new") {
                fs::remove_dir_all(&path).map_err(RepositoryError::disk("remove", &path))?;
            } else if let Some(uuid) = uuid_of(&name, ".json") {
                let text = fs::read_to_string(&path).map_err(RepositoryError::disk("read", &path))?;
                let Ok(record) = serde_json::from_str::<RepositoryRecord>(&text) else { continue };
                if store.directory(uuid).is_dir() {
                    let opened = entry.metadata().and_then(|metadata| metadata.modified());
                    let opened = opened.map_err(RepositoryError::disk("read", &path))?;
                    records.push((opened, uuid, record));
                }
            } else if uuid_of(&name, ".git").is_some() {
                // We are the only writer, and we are only just starting: a lock is left over.
                for lock in ["refs/heads/main.lock", "HEAD.lock", "packed-refs.lock"] {
                    match fs::remove_file(path.join(lock)) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => {
                            return Err(RepositoryError::disk("remove the left-over lock in", &path)(error));
                        }
                        _ => {}
                    }
                }
            }
        }
        // Of two with one path the one that was opened last is served, as before the restart.
        records.sort_by_key(|(opened, uuid, ..)| (*opened, *uuid));
        for (_, uuid, record) in records {
            table.insert(uuid, record);
        }
        *store.table.write().unwrap_or_else(PoisonError::into_inner) = table;
        Ok(store)
    }

    /// The open repositories of a kind, each with its place.
    #[must_use]
    pub fn open_of(&self, kind: Kind) -> Vec<(Uuid, RepositoryRecord)> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let of_kind = table.records.iter().filter(|(_, place)| place.kind == kind);
        of_kind.map(|(uuid, place)| (*uuid, place.clone())).collect()
    }

    /// The open repository of that UUID.
    #[must_use]
    pub fn by_uuid(&self, uuid: Uuid) -> Option<Open> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let record = table.records.get(&uuid)?;
        Some(Open { uuid, kind: record.kind, path: record.path.clone(), directory: self.directory(uuid) })
    }

    /// The open repository at that path, such as `cluster/Paint_Shop`.
    #[must_use]
    pub fn by_path(&self, path: &str) -> Option<Open> {
        let uuid = *self.table.read().unwrap_or_else(PoisonError::into_inner).by_path.get(path)?;
        self.by_uuid(uuid)
    }

    /// The place that is recorded of an open repository.
    #[must_use]
    pub fn place(&self, uuid: Uuid) -> Option<RepositoryRecord> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).records.get(&uuid).cloned()
    }

    /// Brings branch `main` to `files` and opens the repository at its place. One that holds them keeps the origin that is recorded. Blocks.
    ///
    /// # Errors
    /// [`RepositoryError`]; doing it again continues from there.
    pub fn write(
        &self,
        uuid: Uuid,
        place: &RepositoryRecord,
        files: &RepositoryFiles,
        wall: u64,
    ) -> Result<Written, RepositoryError> {
        let directory = self.make(uuid)?;
        let digest = files.digest();
        if let Some(found) = self.known(uuid, &directory, &digest)? {
            self.open_as_before(uuid, place)?;
            return Ok(found);
        }
        // Whatever interrupts the commit, what is recorded is not older than what is there.
        let before = || if self.place(uuid).is_some() { self.open_at(uuid, place) } else { Ok(()) };
        let written = commit(&directory, files, wall, before)?;
        if written.changed {
            self.open_at(uuid, place)?;
        } else {
            self.open_as_before(uuid, place)?;
        }
        self.note_files(uuid, &written.commit, digest);
        Ok(written)
    }

    /// Branch `main`, where its commit is known to hold the files of that digest.
    fn known(&self, uuid: Uuid, directory: &Path, digest: &str) -> Result<Option<Written>, RepositoryError> {
        let Some(commit) = tip(directory)? else { return Ok(None) };
        let compared = self.compared(uuid, &commit).filter(|compared| compared.holds(digest));
        Ok(compared.map(|_| Written { commit, changed: false, held: false }))
    }

    /// The directory of a repository; an empty one is made if there is none. It is not served by that. Blocks.
    ///
    /// # Errors
    /// The disk.
    pub fn make(&self, uuid: Uuid) -> Result<PathBuf, RepositoryError> {
        let directory = self.directory(uuid);
        if !directory.is_dir() {
            self.create(&directory)?;
        }
        Ok(directory)
    }

    /// Opens a repository at its place, whatever is in it; an empty one is made if there is none. The commit of branch `main`, if it has one. Blocks.
    ///
    /// # Errors
    /// [`RepositoryError`]; doing it again continues from there.
    pub fn open(&self, uuid: Uuid, place: &RepositoryRecord) -> Result<Option<String>, RepositoryError> {
        let directory = self.make(uuid)?;
        let main = tip(&directory)?;
        self.open_at(uuid, place)?;
        Ok(main)
    }

    /// Serves a repository at its place without looking at what is in it; an empty one is made if there is none. Blocks.
    ///
    /// # Errors
    /// The disk; doing it again continues from there.
    pub fn serve(&self, uuid: Uuid, place: &RepositoryRecord) -> Result<(), RepositoryError> {
        self.make(uuid)?;
        self.open_at(uuid, place)
    }

    /// Commit of branch `main` of an open repository, if it has one. Blocks.
    ///
    /// # Errors
    /// It is not open, or cannot be read.
    pub fn main(&self, uuid: Uuid) -> Result<Option<String>, RepositoryError> {
        let directory = self.by_uuid(uuid).ok_or(RepositoryError::Closed)?.directory;
        tip(&directory)
    }

    /// As [`Repositories::write`], but what is on branch `main` stays, also if it is something else. Blocks.
    ///
    /// # Errors
    /// [`RepositoryError`]; doing it again continues from there.
    pub fn hold(
        &self,
        uuid: Uuid,
        place: &RepositoryRecord,
        files: &RepositoryFiles,
        wall: u64,
    ) -> Result<Written, RepositoryError> {
        let directory = self.directory(uuid);
        let found = if directory.is_dir() { self.compare(uuid, &directory, files)? } else { None };
        let Some(found) = found else { return self.write(uuid, place, files, wall) };
        self.open_as_before(uuid, place)?;
        Ok(found)
    }

    /// Branch `main`, compared with `files`; None: there is none yet.
    fn compare(
        &self,
        uuid: Uuid,
        directory: &Path,
        files: &RepositoryFiles,
    ) -> Result<Option<Written>, RepositoryError> {
        let digest = files.digest();
        if let Some(found) = self.known(uuid, directory, &digest)? {
            return Ok(Some(found));
        }
        let found = compare(directory, files)?;
        if let Some(found) = found.as_ref().filter(|found| !found.held) {
            self.note_files(uuid, &found.commit, digest);
        }
        Ok(found)
    }

    /// Serves the repository at its place; where it is of another state than that of `place`, that stays recorded.
    fn open_as_before(&self, uuid: Uuid, place: &RepositoryRecord) -> Result<(), RepositoryError> {
        let recorded = self.place(uuid).map(|recorded| RepositoryRecord {
            path: place.path.clone(),
            kind: place.kind,
            ..recorded
        });
        self.open_at(uuid, recorded.as_ref().unwrap_or(place))
    }

    /// Serves the repository at its place.
    fn open_at(&self, uuid: Uuid, place: &RepositoryRecord) -> Result<(), RepositoryError> {
        if self.table.read().unwrap_or_else(PoisonError::into_inner).records.get(&uuid) != Some(place) {
            let text = serde_json::to_vec(place).expect("a text and a name are JSON");
            atomic_file::write(&self.record(uuid), &text, None)?;
            self.table.write().unwrap_or_else(PoisonError::into_inner).insert(uuid, place.clone());
        }
        Ok(())
    }

    /// Serves the repository no longer; the storage stays. Blocks.
    ///
    /// # Errors
    /// A file cannot be removed; doing it again continues from there.
    pub fn close(&self, uuid: Uuid) -> Result<(), RepositoryError> {
        self.table.write().unwrap_or_else(PoisonError::into_inner).remove(uuid);
        let path = self.record(uuid);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(RepositoryError::disk("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    /// Where a repository is on the disk, or would be.
    #[must_use]
    pub fn directory(&self, uuid: Uuid) -> PathBuf {
        self.git.join(format!("{uuid}.git"))
    }

    fn record(&self, uuid: Uuid) -> PathBuf {
        self.git.join(format!("{uuid}.json"))
    }

    /// Makes an empty repository aside and renames it: no reader ever sees half of one.
    fn create(&self, directory: &Path) -> Result<(), RepositoryError> {
        let aside = directory.with_extension("git.new");
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(RepositoryError::disk("remove", &aside))?;
        }
        // By hand: the library writes eleven samples of hooks, and tries the file system out, in each of thousands of repositories.
        for below in DIRECTORIES {
            let below = aside.join(below);
            fs::create_dir_all(&below).map_err(RepositoryError::disk("create", &below))?;
        }
        let config = aside.join("config");
        fs::write(&config, CONFIG).map_err(RepositoryError::disk("write", &config))?;
        // Synced, because what has no HEAD is not a repository. The branch does not depend on the default of this machine.
        atomic_file::write(&aside.join("HEAD"), format!("ref: {BRANCH}\n").as_bytes(), None)?;
        fs::rename(&aside, directory).map_err(RepositoryError::disk("rename a new repository to", directory))
    }
}

impl Table {
    fn insert(&mut self, uuid: Uuid, place: RepositoryRecord) {
        self.remove(uuid);
        self.by_path.insert(place.path.clone(), uuid);
        self.records.insert(uuid, place);
    }

    fn remove(&mut self, uuid: Uuid) {
        if let Some(record) = self.records.remove(&uuid)
            && self.by_path.get(&record.path) == Some(&uuid)
        {
            self.by_path.remove(&record.path);
            // Another one may have had the path before, such as a cluster whose name was given away in a restored store.
            let other = self.records.iter().find(|(_, other)| other.path == record.path).map(|(uuid, _)| *uuid);
            self.by_path.extend(other.map(|uuid| (record.path.clone(), uuid)));
        }
    }
}

fn uuid_of(name: &str, suffix: &str) -> Option<Uuid> {
    Uuid::parse_str(name.strip_suffix(suffix)?).ok()
}

/// Commits `files` to branch `main`, if that changes anything; `before` is done before that.
fn commit(
    directory: &Path,
    files: &RepositoryFiles,
    wall: u64,
    before: impl Fn() -> Result<(), RepositoryError>,
) -> Result<Written, RepositoryError> {
    let tree = |repository: &gix::Repository, parent| {
        let (wanted, found) = tree(repository, parent, files).map_err(RepositoryError::git("written", directory))?;
        if found != Some(wanted) {
            before()?;
        }
        Ok((wanted, found))
    };
    commit_tree(directory, &files.message, wall, tree)
}

/// Branch `main`, compared with `files`; None: there is none yet.
fn compare(directory: &Path, files: &RepositoryFiles) -> Result<Option<Written>, RepositoryError> {
    let repository = open(directory)?;
    let Some(tip) = peel(&repository).map_err(RepositoryError::git("read", directory))? else { return Ok(None) };
    let (wanted, found) = tree(&repository, Some(tip), files).map_err(RepositoryError::git("read", directory))?;
    Ok(Some(Written { commit: tip.to_string(), changed: false, held: found != Some(wanted) }))
}

/// Commits the tree that `tree` makes on top of a commit (and says which tree that has) to branch `main`, if it is another one.
fn commit_tree<E: From<RepositoryError>>(
    directory: &Path,
    message: &str,
    wall: u64,
    mut tree: impl FnMut(&gix::Repository, Option<ObjectId>) -> Result<(ObjectId, Option<ObjectId>), E>,
) -> Result<Written, E> {
    let repository = open(directory)?;
    for _ in 0..RACES_MAX {
        let parent = peel(&repository).map_err(RepositoryError::git("read", directory))?;
        let (tree, before) = tree(&repository, parent)?;
        if let Some(parent) = parent
            && before == Some(tree)
        {
            return Ok(Written { commit: parent.to_string(), changed: false, held: false });
        }
        let time = format!("{} +0000", wall / 1000);
        let signature = gix::actor::SignatureRef { name: COMMITTER.into(), email: COMMITTER_EMAIL.into(), time: &time };
        // The reference must still be the parent (or absent): otherwise a user pushed meanwhile, and the tree is made again on top of that.
        match repository.commit_as(signature, signature, BRANCH, message, tree, parent) {
            Ok(id) => return Ok(Written { commit: id.to_string(), changed: true, held: false }),
            Err(error) => {
                let now = peel(&repository).map_err(RepositoryError::git("read", directory))?;
                if now == parent {
                    return Err(RepositoryError::git("written", directory)(error).into());
                }
            }
        }
    }
    Err(RepositoryError::Raced { path: directory.to_owned() }.into())
}

pub(crate) fn open(directory: &Path) -> Result<gix::Repository, RepositoryError> {
    gix::open_opts(directory, gix::open::Options::isolated()).map_err(RepositoryError::git("opened", directory))
}

/// Commit of branch `main`, if there is one.
fn peel(repository: &gix::Repository) -> Result<Option<ObjectId>, String> {
    match repository.try_find_reference(BRANCH).map_err(|e| e.to_string())? {
        Some(mut reference) => Ok(Some(reference.peel_to_id().map_err(|e| e.to_string())?.detach())),
        None => Ok(None),
    }
}

/// The tree that shall be, and the one that is.
fn tree(
    repository: &gix::Repository,
    parent: Option<ObjectId>,
    files: &RepositoryFiles,
) -> Result<(ObjectId, Option<ObjectId>), String> {
    let text = |error: gix::Error| error.to_string();
    let empty = ObjectId::empty_tree(repository.object_hash());
    let before = match parent {
        Some(parent) => {
            let commit = repository.find_commit(parent).map_err(text)?;
            Some(commit.tree_id().map_err(|e| e.to_string())?.detach())
        }
        None => None,
    };
    let mut editor = repository.edit_tree(before.unwrap_or(empty)).map_err(text)?;
    if before.is_none() {
        for (path, content) in &files.initial {
            let blob = repository.write_blob(content).map_err(text)?;
            editor.upsert(path, EntryKind::Blob, blob).map_err(text)?;
        }
    }
    // The directory is made from nothing, so that a file that is not wanted any more is gone.
    let mut owned = repository.edit_tree(empty).map_err(text)?;
    for (path, content) in &files.owned {
        let blob = repository.write_blob(content).map_err(text)?;
        owned.upsert(path, EntryKind::Blob, blob).map_err(text)?;
    }
    let owned = owned.write().map_err(text)?.detach();
    match files.directory.as_deref() {
        Some("") => return Ok((owned, before)),
        Some(directory) => {
            editor.upsert(directory, EntryKind::Tree, owned).map_err(text)?;
        }
        None => {}
    }
    Ok((editor.write().map_err(text)?.detach(), before))
}

#[cfg(test)]
mod tests;
