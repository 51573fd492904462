//! Repositories for a moment: they see the objects of another one, and what is written to them is not in that one. A push is received in one, and a pack from elsewhere judged.
//!
//! ```text
//! <state_dir>/scratch/<uuid>.git
//! ```
//!
//! Nothing there outlives the process: each is removed when it is dropped, and what a killed process left is removed at the next start.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::repositories::{CONFIG, Refs};

/// Where they are made. Clones are the same.
#[derive(Debug, Clone)]
pub struct Scratches(PathBuf);

impl Scratches {
    /// Those below `state_dir`; what a killed process left is removed. Blocks.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn open(state_dir: &Path) -> io::Result<Self> {
        let directory = state_dir.join("scratch");
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir_all(&directory)?;
        // Git reads the path of the other repository's objects from a file, and works in another directory.
        Ok(Self(directory.canonicalize()?))
    }

    /// A bare repository with these references, which sees the objects of the repository in `of`; None: it sees only its own. Blocks.
    ///
    /// # Errors
    /// The disk.
    pub fn make(&self, of: Option<&Path>, refs: &Refs) -> io::Result<Scratch> {
        let scratch = Scratch(self.0.join(format!("{}.git", Uuid::new_v4())));
        let below = |name: &str| scratch.0.join(name);
        for directory in ["objects/info", "objects/pack", "refs"] {
            fs::create_dir_all(below(directory))?;
        }
        if let Some(of) = of {
            let objects = of.canonicalize()?.join("objects");
            let alternates = [objects.as_os_str().as_encoded_bytes(), b"\n"].concat();
            fs::write(below("objects/info/alternates"), alternates)?;
        }
        let lines: String = refs.iter().map(|(name, id)| format!("{id} {name}\n")).collect();
        fs::write(below("packed-refs"), lines)?;
        fs::write(below("config"), CONFIG)?;
        fs::write(below("HEAD"), "ref: refs/heads/main\n")?;
        Ok(scratch)
    }
}

/// A repository that is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// Brings the packs that were written to it into the repository in `to`, on the same file system. Blocks.
    ///
    /// # Errors
    /// The disk; doing it again continues from there.
    pub fn move_packs(&self, to: &Path) -> io::Result<()> {
        let to = to.join("objects/pack");
        let mut files = Vec::new();
        for entry in fs::read_dir(self.0.join("objects/pack"))? {
            files.push(entry?.path());
        }
        // A pack is there for a reader when its index is.
        files.sort_by_key(|file| file.extension().is_some_and(|extension| extension == "idx"));
        for file in files {
            let Some(name) = file.file_name() else { continue };
            fs::rename(&file, to.join(name))?;
        }
        File::open(&to)?.sync_all()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(directory = %self.0.display(), error = %error, "a scratch repository cannot be removed; the next start does");
        }
    }
}
