//! References of a repository, read without opening it: that costs far more than a file, and a start reads those of thousands.

use std::path::Path;

use gix::refs::{Target, file::Store};

use super::{BRANCH, Refs, RepositoryError, open, peel};

/// A repository has each of these.
const PARTS: [&str; 3] = ["HEAD", "objects", "refs"];

/// Without the check any other directory, or a repository that was half removed, would be one without references.
fn store(directory: &Path) -> Result<Store, RepositoryError> {
    match PARTS.into_iter().find(|part| !directory.join(part).exists()) {
        Some(part) => Err(RepositoryError::git("opened", directory)(format!("it has no {part}"))),
        None => Ok(Store::at(directory.to_owned(), gix::hash::Kind::Sha1)),
    }
}

/// The references whose full names begin with one of these, such as `refs/heads/`. Blocks.
///
/// # Errors
/// It cannot be read.
pub(crate) fn refs(directory: &Path, prefixes: &[&str]) -> Result<Refs, RepositoryError> {
    let store = store(directory)?;
    let read = || {
        let all = store.iter().map_err(|error| error.to_string())?;
        let mut refs = Refs::new();
        for prefix in prefixes {
            let prefix = (*prefix).try_into().map_err(|error: gix::Error| error.to_string())?;
            for reference in all.prefixed(prefix).map_err(|error| error.to_string())? {
                let reference = reference.map_err(|error| error.to_string())?;
                if let Target::Object(id) = reference.target {
                    refs.insert(reference.name.as_bstr().to_string(), id.to_string());
                }
            }
        }
        Ok::<_, String>(refs)
    };
    read().map_err(RepositoryError::git("read", directory))
}

/// Commit of branch `main`, hexadecimal, if there is one. Blocks.
///
/// # Errors
/// It cannot be read.
pub(super) fn tip(directory: &Path) -> Result<Option<String>, RepositoryError> {
    let fault = RepositoryError::git::<String>;
    let found = store(directory)?.try_find(BRANCH).map_err(|error| fault("read", directory)(error.to_string()))?;
    match found.map(|reference| reference.target) {
        Some(Target::Object(commit)) => Ok(Some(commit.to_string())),
        // An operator may have made the branch another name of a branch.
        Some(Target::Symbolic(_)) => {
            let commit = peel(&open(directory)?).map_err(fault("read", directory))?;
            Ok(commit.map(|commit| commit.to_string()))
        }
        None => Ok(None),
    }
}
