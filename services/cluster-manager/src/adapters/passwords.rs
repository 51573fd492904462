//! Passwords with which clusters read their repositories: one for each cluster that has an open repository.
//!
//! ```text
//! <state_dir>/secrets/<uuid>    password of a cluster, mode 0600
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use git_hosting::client::Credentials;
use git_hosting::passwords::{PasswordDigest, PasswordDigests};
use service_runtime::atomic_file::{self, AtomicFileError, OWNER_ONLY};
use service_runtime::config::{ExposeSecret, Secret};
use uuid::Uuid;

/// A step on the disk failed.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
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
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] AtomicFileError),
    /// The system has no random numbers.
    #[error("the system yields no random numbers for a password")]
    Random,
}

impl PasswordError {
    fn disk(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk { step, path: path.to_owned(), source }
    }
}

/// The passwords of one state directory. Clones are the same.
#[derive(Debug, Clone)]
pub struct ClusterPasswords {
    directory: PathBuf,
    known: Arc<RwLock<BTreeMap<Uuid, Arc<Secret>>>>,
    digests: PasswordDigests,
    readers: Option<Arc<Credentials>>,
}

/// The file that holds the git password of a cluster, for bootstrapping it.
#[must_use]
pub fn password_file(state_dir: &Path, cluster: Uuid) -> PathBuf {
    state_dir.join("secrets").join(cluster.to_string())
}

impl ClusterPasswords {
    /// Reads the passwords of these clusters; makes the directory. Blocks.
    ///
    /// # Errors
    /// The state directory cannot be used.
    pub fn load(state_dir: &Path, clusters: impl IntoIterator<Item = Uuid>) -> Result<Self, PasswordError> {
        let directory = state_dir.join("secrets");
        fs::create_dir_all(&directory).map_err(PasswordError::disk("create", &directory))?;
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&directory, private).map_err(PasswordError::disk("close", &directory))?;
        let passwords = Self { directory, known: Arc::default(), digests: PasswordDigests::default(), readers: None };
        for cluster in clusters {
            if let Some(password) = passwords.stored(cluster)? {
                passwords.insert(cluster, password);
            }
        }
        Ok(passwords)
    }

    /// How clusters read their repositories elsewhere; None: here, each with its own password.
    #[must_use]
    pub fn with_readers(self, readers: Option<Credentials>) -> Self {
        Self { readers: readers.map(Arc::new), ..self }
    }

    /// User and password with which a cluster reads its repository, if it has a password.
    #[must_use]
    pub fn login(&self, cluster: Uuid) -> Option<(String, Arc<Secret>)> {
        let own = self.get(cluster)?;
        Some(match &self.readers {
            Some(readers) => (readers.username().to_owned(), Arc::clone(readers.password())),
            None => (cluster.to_string(), own),
        })
    }

    /// The password of a cluster on our server.
    #[must_use]
    pub fn get(&self, cluster: Uuid) -> Option<Arc<Secret>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(&cluster).cloned()
    }

    /// Their digests, which follow what becomes of the passwords: all that the git server needs.
    #[must_use]
    pub fn digests(&self) -> PasswordDigests {
        self.digests.clone()
    }

    /// Makes a password for a cluster that has none, and the file of one that has lost it. Blocks.
    ///
    /// # Errors
    /// The disk; doing it again continues from there.
    pub fn ensure(&self, cluster: Uuid) -> Result<(), PasswordError> {
        let stored = self.stored(cluster)?;
        match (self.get(cluster), stored) {
            (Some(_), Some(_)) => {}
            (None, Some(stored)) => self.insert(cluster, stored),
            // Without its file the cluster would get another password at the next start, and its Flux would be locked out.
            (Some(known), None) => self.store(cluster, &known)?,
            (None, None) => {
                let password = Self::generate()?;
                self.store(cluster, &password)?;
                self.insert(cluster, password);
            }
        }
        Ok(())
    }

    /// Forgets the password of a cluster. Blocks.
    ///
    /// # Errors
    /// The file cannot be removed; the password is not accepted any more.
    pub fn forget(&self, cluster: Uuid) -> Result<(), PasswordError> {
        self.digests.remove(cluster);
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&cluster);
        let path = self.file(cluster);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(PasswordError::disk("remove", &path)(error)),
            // A loss of power must not bring it back.
            Ok(()) => File::open(&self.directory)
                .and_then(|directory| directory.sync_all())
                .map_err(PasswordError::disk("sync", &self.directory)),
        }
    }

    fn file(&self, cluster: Uuid) -> PathBuf {
        self.directory.join(cluster.to_string())
    }

    fn insert(&self, cluster: Uuid, password: Secret) {
        self.digests.insert(cluster, PasswordDigest::of(password.expose_secret()));
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(cluster, Arc::new(password));
    }

    fn stored(&self, cluster: Uuid) -> Result<Option<Secret>, PasswordError> {
        let path = self.file(cluster);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim()).filter(|text| !text.is_empty()).map(Secret::from)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(PasswordError::disk("read the password in", &path)(error)),
        }
    }

    fn generate() -> Result<Secret, PasswordError> {
        let mut bytes = [0_u8; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| PasswordError::Random)?;
        Ok(Secret::from(BASE64_URL_SAFE_NO_PAD.encode(bytes)))
    }

    fn store(&self, cluster: Uuid, password: &Secret) -> Result<(), PasswordError> {
        atomic_file::write(&self.file(cluster), password.expose_secret().as_bytes(), Some(OWNER_ONLY))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: Uuid = Uuid::from_u128(0xC1);

    #[test]
    fn a_password_is_made_once_kept_private_and_gone_when_it_is_forgotten() {
        let state_dir = tempfile::tempdir().unwrap();
        let passwords = ClusterPasswords::load(state_dir.path(), []).unwrap();
        assert!(passwords.get(CLUSTER).is_none() && !passwords.digests().is_password(CLUSTER, ""));
        passwords.ensure(CLUSTER).unwrap();
        let file = password_file(state_dir.path(), CLUSTER);
        let password = fs::read_to_string(&file).unwrap();
        assert_eq!(password.len(), 43);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(
            passwords.digests().is_password(CLUSTER, &password)
                && !passwords.digests().is_password(Uuid::nil(), &password)
        );
        assert!(!format!("{passwords:?}").contains(&password));
        passwords.ensure(CLUSTER).unwrap();
        let again = ClusterPasswords::load(state_dir.path(), [CLUSTER, Uuid::nil()]).unwrap();
        assert!(again.digests().is_password(CLUSTER, &password) && again.get(Uuid::nil()).is_none());
        fs::remove_file(&file).unwrap();
        passwords.ensure(CLUSTER).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), password, "a lost file is made again");
        // One that was there already, of a repository that was not open at the start.
        let later = ClusterPasswords::load(state_dir.path(), []).unwrap();
        assert!(later.get(CLUSTER).is_none());
        later.ensure(CLUSTER).unwrap();
        assert!(later.digests().is_password(CLUSTER, &password));
        passwords.forget(CLUSTER).unwrap();
        passwords.forget(CLUSTER).unwrap();
        assert!(!file.exists() && passwords.get(CLUSTER).is_none());
        passwords.ensure(CLUSTER).unwrap();
        assert!(!passwords.digests().is_password(CLUSTER, &password), "it is another one");
    }
}
