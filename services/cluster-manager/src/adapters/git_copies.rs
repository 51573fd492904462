//! What copies of repositories need of the disk: what a repository is, and packs of what a copy lacks, which are read a part at a time.
//!
//! ```text
//! <state_dir>/packs/<uuid>-<digest>.pack    a pack on its way; the directory is empty at a start
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use git_hosting::originals::{self, Packed};
use git_hosting::repositories::{Open, Repositories};
use git_server_contract::PackPart;
use git_server_contract::pack::PART_BYTES_MAX;
use service_runtime::config::ExposeSecret as _;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::passwords::ClusterPasswords;
use crate::event::{CopyOutcome, CopyResult, Event, Original, PackFile};

/// Repositories that are looked at, or packed, at the same time.
const PLACES: usize = 4;

/// What making one pack may take.
const LIMIT: Duration = Duration::from_secs(600);

/// The disk, as far as copies are concerned. Clones are the same.
#[derive(Debug, Clone)]
pub struct GitCopies {
    repositories: Repositories,
    passwords: ClusterPasswords,
    packs: PathBuf,
    /// Distinguishes packs of one repository while they are made.
    made: Arc<AtomicU64>,
    places: Arc<Semaphore>,
}

impl GitCopies {
    /// Makes the directory of packs, and empties it. Blocks.
    ///
    /// # Errors
    /// The state directory cannot be used.
    pub fn open(state_dir: &Path, repositories: Repositories, passwords: ClusterPasswords) -> io::Result<Self> {
        let packs = state_dir.join("packs");
        match fs::remove_dir_all(&packs) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir_all(&packs)?;
        let (made, places) = (Arc::default(), Arc::new(Semaphore::new(PLACES)));
        Ok(Self { repositories, passwords, packs, made, places })
    }

    /// Says what a repository is.
    pub async fn look(self, repository: Uuid) -> Event {
        let _place = self.places.acquire().await;
        let copies = self.clone();
        let looked = tokio::task::spawn_blocking(move || copies.original(repository)).await;
        let looked = looked.unwrap_or_else(|error| Err(error.to_string()));
        Event::Copy(CopyResult { repository, outcome: CopyOutcome::Inspected(looked) })
    }

    fn original(&self, repository: Uuid) -> Result<Option<Original>, String> {
        let Some(Open { kind, path, directory, .. }) = self.repositories.by_uuid(repository) else { return Ok(None) };
        let password = self.passwords.get(repository);
        let password =
            password.map(|password| hex::encode(digest(&SHA256, password.expose_secret().as_bytes()).as_ref()));
        Ok(Some(Original { path, kind, refs: originals::refs(&directory)?, password }))
    }

    /// Packs what a copy needs.
    pub async fn pack(self, repository: Uuid, refs: BTreeMap<String, String>, has: BTreeSet<String>) -> Event {
        let _place = self.places.acquire().await;
        let packed = self.make_pack(repository, &refs, &has).await;
        Event::Copy(CopyResult { repository, outcome: CopyOutcome::Packed(packed) })
    }

    async fn make_pack(
        &self,
        repository: Uuid,
        refs: &BTreeMap<String, String>,
        has: &BTreeSet<String>,
    ) -> Result<Option<PackFile>, String> {
        let open = self.repositories.by_uuid(repository).ok_or("the repository is not open")?;
        let aside = self.packs.join(format!("{repository}-{}.new", self.made.fetch_add(1, Ordering::Relaxed)));
        let packed = match originals::pack(&open.directory, refs, has, &aside, LIMIT).await {
            Ok(Some(Packed { digest, bytes })) => {
                let file = PackFile { digest, bytes };
                let renamed = tokio::fs::rename(&aside, self.path(repository, &file)).await;
                renamed.map(|()| Some(file)).map_err(|error| format!("the pack cannot be kept: {error}"))
            }
            other => other.map(|_| None),
        };
        if !matches!(packed, Ok(Some(_))) {
            let _ = tokio::fs::remove_file(&aside).await;
        }
        packed
    }

    /// A part of a pack.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn part(&self, repository: Uuid, file: PackFile, offset: u64) -> io::Result<PackPart> {
        let path = self.path(repository, &file);
        let read = move || {
            let length = file.bytes.saturating_sub(offset).min(PART_BYTES_MAX as u64);
            let mut data = vec![0; usize::try_from(length).unwrap_or(0)];
            File::open(path)?.read_exact_at(&mut data, offset)?;
            Ok(PackPart { digest: file.digest, total: file.bytes, offset, data: data.into() })
        };
        tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
    }

    /// Removes a pack.
    pub async fn drop_pack(&self, repository: Uuid, file: &PackFile) {
        if let Err(error) = tokio::fs::remove_file(self.path(repository, file)).await {
            tracing::debug!(%repository, error = %error, "a pack that is not needed any more cannot be removed");
        }
    }

    fn path(&self, repository: Uuid, file: &PackFile) -> PathBuf {
        self.packs.join(format!("{repository}-{}.pack", file.digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use git_hosting::repositories::{Kind, RepositoryFiles, RepositoryRecord};
    use git_server_contract::pack::{PackReceiver, Received};

    const CLUSTER: Uuid = Uuid::from_u128(0xC1);

    fn outcome(event: Event) -> CopyOutcome {
        let Event::Copy(CopyResult { repository: CLUSTER, outcome }) = event else { panic!("{event:?}") };
        outcome
    }

    #[tokio::test]
    async fn a_repository_is_looked_at_and_its_pack_is_read_in_parts() {
        let state_dir = tempfile::tempdir().unwrap();
        let repositories = Repositories::load(state_dir.path()).unwrap();
        let passwords = ClusterPasswords::load(state_dir.path(), []).unwrap();
        fs::create_dir(state_dir.path().join("packs")).unwrap();
        fs::write(state_dir.path().join("packs/left.pack"), "x").unwrap();
        let copies = GitCopies::open(state_dir.path(), repositories.clone(), passwords.clone()).unwrap();
        assert!(!state_dir.path().join("packs/left.pack").exists());
        assert_eq!(outcome(copies.clone().look(CLUSTER).await), CopyOutcome::Inspected(Ok(None)));

        let place =
            RepositoryRecord { path: "cluster/A".to_owned(), kind: Kind::Cluster, store: Uuid::nil(), origin: None };
        let noise: Vec<u8> =
            (0..40_000_u32).flat_map(|n| digest(&SHA256, &n.to_be_bytes()).as_ref()[..8].to_vec()).collect();
        let files = RepositoryFiles {
            initial: [("noise".to_owned(), noise)].into(),
            message: "x".to_owned(),
            ..RepositoryFiles::default()
        };
        let commit = repositories.write(CLUSTER, &place, &files, 0).unwrap().commit;
        passwords.ensure(CLUSTER).unwrap();
        let CopyOutcome::Inspected(Ok(Some(original))) = outcome(copies.clone().look(CLUSTER).await) else { panic!() };
        assert_eq!(original.refs, [("refs/heads/main".to_owned(), commit)].into());
        assert_eq!((original.path.as_str(), original.kind), ("cluster/A", Kind::Cluster));
        let password = passwords.get(CLUSTER).unwrap();
        let expected = hex::encode(digest(&SHA256, password.expose_secret().as_bytes()).as_ref());
        assert_eq!(original.password, Some(expected));

        let packed = outcome(copies.clone().pack(CLUSTER, original.refs.clone(), BTreeSet::new()).await);
        let CopyOutcome::Packed(Ok(Some(file))) = packed else { panic!("{packed:?}") };
        assert!(file.bytes > 2 * PART_BYTES_MAX as u64, "{}", file.bytes);
        let mut receiver = PackReceiver::default();
        let whole = loop {
            let offset = receiver.progress().map_or(0, |(_, received)| received);
            let part = copies.part(CLUSTER, file.clone(), offset).await.unwrap();
            assert!(PackPart::from_metrics(&part.to_metrics()).unwrap().is_ok());
            match receiver.receive(&part) {
                Received::Whole(whole) => break whole,
                other => assert_eq!(other, Received::More),
            }
        };
        assert_eq!(whole.bytes().len() as u64, file.bytes);
        copies.drop_pack(CLUSTER, &file).await;
        assert!(copies.part(CLUSTER, file, 0).await.is_err());
        assert_eq!(fs::read_dir(state_dir.path().join("packs")).unwrap().count(), 0);
        let has = original.refs.values().cloned().collect();
        let nothing = outcome(copies.clone().pack(CLUSTER, original.refs, has).await);
        assert_eq!(nothing, CopyOutcome::Packed(Ok(None)));
        assert_eq!(fs::read_dir(state_dir.path().join("packs")).unwrap().count(), 0);
    }
}
