//! The disk: the copies, and what each shall be.
//!
//! ```text
//! <state_dir>/desired/<uuid>.json   what a copy shall be, with the digest of its cluster's password; for the owner alone
//! <state_dir>/git/                  the copies
//! <state_dir>/scratch/              packs and pushes that are being judged
//! ```
//!
//! Everything here is a copy: what is damaged is left out with a word in the log, and the cluster manager sends it again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use git_hosting::copies::{self, Refs};
use git_hosting::passwords::{PasswordDigest, PasswordDigests};
use git_hosting::repositories::{self, Repositories, RepositoryError};
use git_hosting::scratch::Scratches;
use git_server_contract::{DesiredRepository, Kind, RepositoryPath};
use service_runtime::atomic_file::{self, OWNER_ONLY};
use uuid::Uuid;

use crate::event::{PersistedCopies, PersistedCopy};

/// All that is on the disk. Clones are the same.
#[derive(Debug, Clone)]
pub struct Store {
    desired: PathBuf,
    /// The copies.
    pub repositories: Repositories,
    /// By which passwords clusters read.
    pub passwords: PasswordDigests,
    /// Where packs and pushes are judged.
    pub scratches: Scratches,
}

/// The disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A directory or file.
    #[error("cannot use {}", path.display())]
    Disk {
        /// Which.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The copies.
    #[error(transparent)]
    Repositories(#[from] RepositoryError),
}

/// Where and for whom a copy is served.
#[must_use]
pub fn place(place: &RepositoryPath) -> repositories::RepositoryRecord {
    let kind = match place.kind {
        Kind::Cluster => repositories::Kind::Cluster,
        Kind::Shared => repositories::Kind::Shared,
    };
    repositories::RepositoryRecord { path: place.path.clone(), kind, store: Uuid::nil(), origin: None }
}

impl Store {
    /// Reads what an earlier process left, and serves it from now on. Blocks.
    ///
    /// # Errors
    /// The state directory cannot be used.
    pub fn load(state_dir: &Path) -> Result<(Self, PersistedCopies), StoreError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Disk { path, source }
        };
        let desired = state_dir.join("desired");
        fs::create_dir_all(&desired).map_err(at(&desired))?;
        let store = Self {
            repositories: Repositories::load(state_dir)?,
            passwords: PasswordDigests::default(),
            scratches: Scratches::open(state_dir).map_err(at(state_dir))?,
            desired,
        };
        let mut copies = PersistedCopies::new();
        for entry in fs::read_dir(&store.desired).map_err(at(&store.desired))? {
            let path = entry.map_err(at(&store.desired))?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = fs::read_to_string(&path).map_err(at(&path))?;
            match DesiredRepository::from_json(&text) {
                Ok(desired) => drop(copies.insert(desired.repository, store.persisted(desired))),
                Err(error) => {
                    tracing::warn!(file = %path.display(), error = %error, "a record is damaged; the repository waits until the cluster manager sends it again");
                }
            }
        }
        for kind in [repositories::Kind::Cluster, repositories::Kind::Shared] {
            for (repository, _) in store.repositories.open_of(kind) {
                if copies.get(&repository).is_none_or(|copy| copy.desired.place.is_none()) {
                    store.repositories.close(repository)?;
                }
            }
        }
        Ok((store, copies))
    }

    fn persisted(&self, desired: DesiredRepository) -> PersistedCopy {
        self.set_password(&desired);
        let repository = desired.repository;
        let open = self.repositories.by_uuid(repository);
        let refs = self.refs(repository).unwrap_or_else(|error| {
            tracing::warn!(%repository, error = %error, "a copy is damaged; it is removed, and comes again from the cluster manager");
            self.remove(repository);
            Refs::new()
        });
        let is_placed = match (&desired.place, open) {
            (Some(wanted), Some(open)) => wanted.path == open.path && place(wanted).kind == open.kind,
            (None, None) => true,
            _ => false,
        };
        PersistedCopy { desired, refs, is_placed }
    }

    /// The references of a copy; none if there is none. Blocks.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn refs(&self, repository: Uuid) -> Result<Refs, RepositoryError> {
        let directory = self.repositories.directory(repository);
        if directory.is_dir() { copies::refs(&directory) } else { Ok(Refs::new()) }
    }

    fn remove(&self, repository: Uuid) {
        let directory = self.repositories.directory(repository);
        if let Err(error) = fs::remove_dir_all(&directory) {
            tracing::warn!(%repository, error = %error, "a damaged copy cannot be removed");
        }
    }

    /// Records what a copy shall be. Blocks.
    ///
    /// # Errors
    /// The disk.
    pub fn record(&self, desired: &DesiredRepository) -> Result<(), atomic_file::AtomicFileError> {
        let path = self.desired.join(format!("{}.json", desired.repository));
        atomic_file::write(&path, desired.to_json().as_bytes(), Some(OWNER_ONLY))
    }

    /// The cluster reads by the password of this digest, and by no other.
    pub fn set_password(&self, desired: &DesiredRepository) {
        let is_served = desired.place.as_ref().is_some_and(|place| place.kind == Kind::Cluster);
        let digest = desired.password.as_ref().filter(|_| is_served);
        let mut bytes = [0; 32];
        match digest.map(|digest| hex::decode_to_slice(digest, &mut bytes)) {
            Some(Ok(())) => self.passwords.insert(desired.repository, PasswordDigest::from_bytes(bytes)),
            _ => self.passwords.remove(desired.repository),
        }
    }
}
