//! Single files of an open repository: read, and changed on top of whatever is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gix::ObjectId;
use gix::objs::tree::EntryKind;
use uuid::Uuid;

use super::{Repositories, RepositoryError, commit_tree, open, peel, tip};

/// Most files that are read of a directory.
const FILES_MAX: usize = 10_000;

/// A change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Its path.
    pub path: String,
    /// Commit message.
    pub message: String,
    /// UTC, ms.
    pub wall: u64,
}

/// Either the repository or the change is at fault.
enum Fault<E> {
    Repository(RepositoryError),
    Change(E),
}

impl<E> From<RepositoryError> for Fault<E> {
    fn from(error: RepositoryError) -> Self {
        Self::Repository(error)
    }
}

impl Repositories {
    /// Changes one file on branch `main`: `change` makes the content after of that before; None: there is no such file. The commit that the branch is then.
    /// When another writer moves the branch meanwhile, `change` is asked again. Blocks.
    ///
    /// # Errors
    /// The repository's; inside, those of `change`.
    pub fn edit<E>(
        &self,
        uuid: Uuid,
        edit: &Edit,
        mut change: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Result<String, E>, RepositoryError> {
        let directory = self.by_uuid(uuid).ok_or(RepositoryError::Closed)?.directory;
        let fault = RepositoryError::git::<String>;
        let tree = |repository: &gix::Repository, parent: Option<ObjectId>| {
            let before = root(repository, parent).map_err(fault("read", &directory))?;
            let found = file(repository, before, &edit.path).map_err(fault("read", &directory))?;
            let after = change(found.as_deref()).map_err(Fault::Change)?;
            let after = with_file(repository, before, &edit.path, after).map_err(fault("written", &directory))?;
            Ok::<_, Fault<E>>((after, parent.map(|_| before)))
        };
        match commit_tree(&directory, &edit.message, edit.wall, tree) {
            Ok(written) => Ok(Ok(written.commit)),
            Err(Fault::Change(error)) => Ok(Err(error)),
            Err(Fault::Repository(error)) => Err(error),
        }
    }

    /// The files below a directory of branch `main`, by their paths below it; those larger than `bytes_max` are left out. Blocks.
    ///
    /// # Errors
    /// The repository's.
    pub fn read(
        &self,
        uuid: Uuid,
        directory: &str,
        bytes_max: usize,
    ) -> Result<BTreeMap<String, Vec<u8>>, RepositoryError> {
        let place = self.by_uuid(uuid).ok_or(RepositoryError::Closed)?.directory;
        let mut files = BTreeMap::new();
        let Some(commit) = tip(&place)? else { return Ok(files) };
        if self.compared(uuid, &commit).is_some_and(|compared| compared.lacks(directory)) {
            return Ok(files);
        }
        let repository = open(&place)?;
        let parent = ObjectId::from_hex(commit.as_bytes()).map_err(RepositoryError::git("read", &place))?;
        let root = root(&repository, Some(parent)).map_err(RepositoryError::git("read", &place))?;
        let is_there = collect(&repository, root, directory, bytes_max, &mut files);
        if !is_there.map_err(RepositoryError::git("read", &place))? {
            self.note_absent(uuid, &commit, directory);
        }
        Ok(files)
    }
}

/// A chart lies in the directory of such a file.
const CHART_FILE: &str = "/Chart.yaml";

impl Repositories {
    /// The directories of branch `main` that hold a chart. Blocks.
    ///
    /// # Errors
    /// The repository's.
    pub fn charts(&self, uuid: Uuid) -> Result<BTreeSet<String>, RepositoryError> {
        let place = self.by_uuid(uuid).ok_or(RepositoryError::Closed)?.directory;
        let repository = open(&place)?;
        let parent = peel(&repository).map_err(RepositoryError::git("read", &place))?;
        let root = root(&repository, parent).map_err(RepositoryError::git("read", &place))?;
        charts(&repository, root).map_err(RepositoryError::git("read", &place))
    }
}

fn charts(repository: &gix::Repository, root: ObjectId) -> Result<BTreeSet<String>, String> {
    let tree = repository.find_tree(root).map_err(|error| error.to_string())?;
    let files = tree.traverse().breadthfirst.files().map_err(|error| error.to_string())?;
    let paths = files.iter().filter(|file| file.mode.is_blob()).map(|file| file.filepath.to_string());
    Ok(paths.filter_map(|path| path.strip_suffix(CHART_FILE).map(str::to_owned)).collect())
}

fn text(error: gix::Error) -> String {
    error.to_string()
}

/// The tree of a commit; the empty one without a commit.
fn root(repository: &gix::Repository, commit: Option<ObjectId>) -> Result<ObjectId, String> {
    let Some(commit) = commit else { return Ok(ObjectId::empty_tree(repository.object_hash())) };
    let commit = repository.find_commit(commit).map_err(text)?;
    Ok(commit.tree_id().map_err(|error| error.to_string())?.detach())
}

fn file(repository: &gix::Repository, root: ObjectId, path: &str) -> Result<Option<Vec<u8>>, String> {
    let tree = repository.find_tree(root).map_err(|error| error.to_string())?;
    let Some(entry) = tree.lookup_entry_by_path(Path::new(path)).map_err(text)? else { return Ok(None) };
    if !entry.mode().is_blob() {
        return Err(format!("{path} is not a file"));
    }
    Ok(Some(entry.object().map_err(|error| error.to_string())?.data.clone()))
}

fn with_file(
    repository: &gix::Repository,
    root: ObjectId,
    path: &str,
    content: Option<Vec<u8>>,
) -> Result<ObjectId, String> {
    let mut editor = repository.edit_tree(root).map_err(text)?;
    match content {
        Some(content) => {
            let blob = repository.write_blob(&content).map_err(text)?;
            editor.upsert(path, EntryKind::Blob, blob).map_err(text)?;
        }
        None => drop(editor.remove_leaf(path).map_err(text)?),
    }
    Ok(editor.write().map_err(text)?.detach())
}

/// The files two levels below a directory, which is how deep secrets lie. False: there is no such directory.
fn collect(
    repository: &gix::Repository,
    root: ObjectId,
    directory: &str,
    bytes_max: usize,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Result<bool, String> {
    let tree = repository.find_tree(root).map_err(|error| error.to_string())?;
    let Some(entry) = tree.lookup_entry_by_path(Path::new(directory)).map_err(text)? else { return Ok(false) };
    if !entry.mode().is_tree() {
        return Ok(false);
    }
    let top = repository.find_tree(entry.object_id()).map_err(|error| error.to_string())?;
    for folder in top.iter() {
        let folder = folder.map_err(|error| error.to_string())?;
        if !folder.mode().is_tree() {
            continue;
        }
        let below = repository.find_tree(folder.object_id()).map_err(|error| error.to_string())?;
        for file in below.iter() {
            let file = file.map_err(|error| error.to_string())?;
            if !file.mode().is_blob() {
                continue;
            }
            if files.len() >= FILES_MAX {
                return Err(format!("{directory} has more than {FILES_MAX} files"));
            }
            let header = repository.find_header(file.object_id()).map_err(|error| error.to_string())?;
            if header.size() > bytes_max as u64 {
                continue;
            }
            let mut blob = repository.find_blob(file.object_id()).map_err(|error| error.to_string())?;
            files.insert(format!("{}/{}", folder.filename(), file.filename()), blob.take_data());
        }
    }
    Ok(true)
}
