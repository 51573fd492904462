//! Copies: repositories whose commits are made elsewhere. Objects come as packs, references as the whole of what there shall be.
//!
//! A reference moves only when everything that its commit leads to is there, and all references move together, also when the machine loses power. A pack is judged in a scratch repository: of one that is damaged, has
//! malformed objects or leaves something out, nothing gets into the copy. This module must not know from where a pack comes.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use service_runtime::atomic_file;

use crate::client::{self, GitError, Input};
use crate::repositories::{self, RepositoryError};
use crate::scratch::Scratches;

pub use crate::repositories::Refs;

/// Most bytes of a pack.
pub const PACK_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Longest time that a call of git may take.
const LIMIT: Duration = Duration::from_secs(600);

/// What is written is on the disk before a reference names it.
const SYNC: [&str; 2] = ["-c", "core.fsync=objects"];

/// A copy could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// It cannot be read.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// A file or directory cannot be used.
    #[error("the disk")]
    Disk(#[from] io::Error),
    /// The program git.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The pack is not one, or not whole.
    #[error("the pack cannot be taken: {0}")]
    Pack(String),
    /// A reference may not have this name.
    #[error("{0:?} is not the name of a branch or tag")]
    Name(String),
}

/// What became of the references of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// They are as they shall be.
    Done,
    /// They are as before: objects are missing.
    Missing,
}

/// What is known of the objects of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connectivity {
    /// There is everything that they lead to.
    Known,
    /// Git has to look.
    Unknown,
}

/// What is known of the objects of a copy before packs are taken into it. It stays true of all objects then: git takes no pack whose objects lead to one that is neither in it nor
/// in the copy. Blocks.
///
/// # Errors
/// It cannot be read.
pub fn connectivity(directory: &Path) -> io::Result<Connectivity> {
    let objects = directory.join("objects");
    for entry in fs::read_dir(&objects)? {
        let name = entry?.file_name();
        if name != "info" && (name != "pack" || fs::read_dir(objects.join(name))?.next().is_some()) {
            return Ok(Connectivity::Unknown);
        }
    }
    // It has none.
    Ok(Connectivity::Known)
}

/// The references of a repository. Blocks.
///
/// # Errors
/// It cannot be read.
pub fn refs(directory: &Path) -> Result<Refs, RepositoryError> {
    repositories::refs(directory, &["refs/"])
}

/// Takes the objects of a pack into a copy. `builds_on`: they may build on those that the copy has.
///
/// # Errors
/// [`CopyError`]; nothing of the pack is in the copy then.
pub async fn take_pack(
    directory: &Path,
    builds_on: bool,
    scratches: &Scratches,
    pack: Input<'_>,
) -> Result<(), CopyError> {
    let (scratches, of) = (scratches.clone(), builds_on.then(|| directory.to_owned()));
    let made = tokio::task::spawn_blocking(move || scratches.make(of.as_deref(), &Refs::new())).await;
    let scratch = made.map_err(io::Error::other)??;
    let size = format!("--max-input-size={PACK_BYTES_MAX}");
    let arguments = [SYNC[0], SYNC[1], "index-pack", "--strict", "--stdin", "--fix-thin", &size];
    let taken = client::run_on_files(scratch.directory(), &arguments, pack, None, LIMIT).await;
    taken.map_err(|error| match error {
        GitError::Failed { complaint } => CopyError::Pack(complaint),
        other => other.into(),
    })?;
    let to = directory.to_owned();
    let moved = tokio::task::spawn_blocking(move || scratch.move_packs(&to)).await;
    Ok(moved.map_err(io::Error::other)??)
}

/// Brings the references of a copy to `wanted`, if all objects are there.
///
/// # Errors
/// [`CopyError`]; doing it again continues from there.
pub async fn apply(directory: &Path, wanted: &Refs, connectivity: Connectivity) -> Result<Applied, CopyError> {
    let (at, of) = (directory.to_owned(), wanted.clone());
    let compared = tokio::task::spawn_blocking(move || compare(&at, &of)).await.map_err(io::Error::other)??;
    let tips = match compared {
        Compared::Same => return Ok(Applied::Done),
        Compared::Missing => return Ok(Applied::Missing),
        Compared::Differs { tips } => tips,
    };
    if !tips.is_empty() && connectivity == Connectivity::Unknown && !is_connected(directory, &tips).await? {
        return Ok(Applied::Missing);
    }
    let (at, of) = (directory.to_owned(), wanted.clone());
    tokio::task::spawn_blocking(move || write_refs(&at, &of)).await.map_err(io::Error::other)??;
    Ok(Applied::Done)
}

/// Replaces all references together, in one file. Only this process moves references of a copy.
fn write_refs(directory: &Path, refs: &Refs) -> Result<(), CopyError> {
    let lines: String = refs.iter().map(|(name, id)| format!("{id} {name}\n")).collect();
    let file = format!("# pack-refs with: sorted \n{lines}");
    atomic_file::write(&directory.join("packed-refs"), file.as_bytes(), None).map_err(io::Error::other)?;
    // A reference with a file of its own would count instead.
    for kind in ["refs/heads", "refs/tags"] {
        let kind = directory.join(kind);
        match fs::remove_dir_all(&kind) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => fs::create_dir_all(&kind)?,
        }
    }
    Ok(())
}

/// Whether everything that these objects lead to is there.
async fn is_connected(directory: &Path, tips: &BTreeSet<String>) -> Result<bool, GitError> {
    let input: String = tips.iter().map(|tip| format!("{tip}\n")).collect();
    let arguments = ["rev-list", "--objects", "--quiet", "--stdin", "--not", "--all"];
    match client::run(directory, None, &arguments, &input, LIMIT).await {
        Ok(_) => Ok(true),
        Err(GitError::Failed { complaint }) => {
            tracing::debug!(directory = %directory.display(), reason = complaint, "objects are missing");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

enum Compared {
    Same,
    /// Objects are missing that references shall name.
    Missing,
    Differs {
        /// Objects that no reference names yet.
        tips: BTreeSet<String>,
    },
}

fn compare(directory: &Path, wanted: &Refs) -> Result<Compared, CopyError> {
    let before = refs(directory)?;
    if before == *wanted {
        return Ok(Compared::Same);
    }
    let repository = repositories::open(directory)?;
    let known: BTreeSet<&String> = before.values().collect();
    let mut tips = BTreeSet::new();
    for (name, id) in wanted {
        let is_of_git = gix::refs::FullName::try_from(name.as_str()).is_ok();
        if !is_of_git || !(name.starts_with("refs/heads/") || name.starts_with("refs/tags/")) {
            return Err(CopyError::Name(name.clone()));
        }
        if known.contains(id) {
            continue;
        }
        let object = gix::ObjectId::from_hex(id.as_bytes()).map_err(|_| CopyError::Name(format!("{name} {id}")))?;
        if !repository.has_object(object) {
            return Ok(Compared::Missing);
        }
        tips.insert(id.clone());
    }
    Ok(Compared::Differs { tips })
}

#[cfg(test)]
mod tests;
