//! A client of the administration server, which it reaches by running `kadmin`, and of the KDC itself, by `kinit`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use zeroize::Zeroizing;

use crate::program::{Said, run};
use crate::{KdcError, KerberosConfig, Principal, answer};

/// Most bytes of a keytab that is read.
const KEYTAB_BYTES_MAX: u64 = 1024 * 1024;
/// Most bytes of a password; the programs read lines of 1024.
const PASSWORD_BYTES_MAX: usize = 512;

/// Whether a principal is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The KDC does not know it.
    Absent,
    /// It gets no tickets.
    Disabled,
    /// It gets tickets.
    Enabled,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Kdc {
    config: Arc<KerberosConfig>,
    directory: Arc<Path>,
    files: Arc<AtomicU64>,
}

impl Kdc {
    /// Keys are handed over in files of `directory`, which is made if it is not there. Of another run's files it is emptied: nobody else may use it.
    ///
    /// # Errors
    /// The directory cannot be made or emptied.
    pub fn open(config: KerberosConfig, directory: &Path) -> io::Result<Self> {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(Self { config: Arc::new(config), directory: Arc::from(directory), files: Arc::default() })
    }

    /// Whether a principal is there.
    ///
    /// # Errors
    /// [`KdcError`]
    pub async fn presence(&self, principal: &Principal) -> Result<Presence, KdcError> {
        answer::presence(&self.kadmin(&format!("getprinc -terse \"{principal}\""), b"").await?)
    }

    /// Makes a principal with a random key that nobody knows. Done if it is there.
    ///
    /// # Errors
    /// [`KdcError`]
    pub async fn create(&self, principal: &Principal) -> Result<(), KdcError> {
        answer::created(&self.kadmin(&format!("addprinc -randkey \"{principal}\""), b"").await?)
    }

    /// Lets a principal get tickets, or not.
    ///
    /// # Errors
    /// [`KdcError`]; also if it is absent.
    pub async fn allow(&self, principal: &Principal, allowed: bool) -> Result<(), KdcError> {
        let sign = if allowed { '+' } else { '-' };
        let said = self.kadmin(&format!("modprinc {sign}allow_tix \"{principal}\""), b"").await?;
        answer::done(&said, "\" modified.")
    }

    /// Gives a principal a password.
    ///
    /// # Errors
    /// [`KdcError`]; also for a password that no program can read.
    pub async fn set_password(&self, principal: &Principal, password: &[u8]) -> Result<(), KdcError> {
        let line = line(password)?;
        let twice = Zeroizing::new([line.as_slice(), line.as_slice()].concat());
        let said = self.kadmin(&format!("cpw \"{principal}\""), &twice).await?;
        answer::done(&said, "\" changed.")
    }

    /// Gives principals new random keys; the keytab with them. The keys before are void from here on.
    ///
    /// # Errors
    /// [`KdcError`]; some of the principals may have new keys then.
    pub async fn new_keys(&self, principals: &[Principal]) -> Result<Zeroizing<Vec<u8>>, KdcError> {
        let file = self.file();
        let names: Vec<String> = principals.iter().map(|principal| format!("\"{principal}\"")).collect();
        let said = self.kadmin(&format!("ktadd -k {} {}", file.0.display(), names.join(" ")), b"").await?;
        let missing = principals.iter().any(|principal| !said.out.contains(&format!("principal {principal} with")));
        if missing {
            return Err(answer::error(&said));
        }
        file.read()
    }

    /// Whether `keytab` holds the key that the KDC has of a principal.
    ///
    /// # Errors
    /// [`KdcError`]: nothing is known about the key.
    pub async fn is_keytab_valid(&self, principal: &Principal, keytab: &[u8]) -> Result<bool, KdcError> {
        let file = self.file();
        file.write(keytab)?;
        let arguments = [OsStr::new("-k"), OsStr::new("-t"), file.0.as_os_str()];
        answer::validity(&self.kinit(principal, &arguments, b"").await?)
    }

    /// Whether `password` is the one that the KDC has of a principal.
    ///
    /// # Errors
    /// [`KdcError`]: nothing is known about the password.
    pub async fn is_password_valid(&self, principal: &Principal, password: &[u8]) -> Result<bool, KdcError> {
        answer::validity(&self.kinit(principal, &[], &line(password)?).await?)
    }

    async fn kadmin(&self, query: &str, input: &[u8]) -> Result<Said, KdcError> {
        let KerberosConfig { admin_principal, keytab_file, .. } = &*self.config;
        let arguments: [OsString; 7] = [
            "-k".into(),
            "-t".into(),
            keytab_file.into(),
            "-p".into(),
            admin_principal.into(),
            "-q".into(),
            query.into(),
        ];
        self.run("kadmin", arguments.iter().map(OsString::as_os_str), input).await
    }

    async fn kinit(&self, principal: &Principal, more: &[&OsStr], input: &[u8]) -> Result<Said, KdcError> {
        // The ticket is not wanted: a cache in memory ends with the program.
        let arguments = [OsStr::new("-c"), OsStr::new("MEMORY:verify")].into_iter().chain(more.iter().copied());
        self.run("kinit", arguments.chain([OsStr::new(principal.as_str())]), input).await
    }

    async fn run<'a>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = &'a OsStr>,
        input: &[u8],
    ) -> Result<Said, KdcError> {
        let limit = Duration::from_secs(self.config.timeout_s);
        run(program, arguments, input, self.config.krb5_conf.as_deref(), limit).await
    }

    fn file(&self) -> KeyFile {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        KeyFile(self.directory.join(format!("{number}.keytab")))
    }
}

fn line(password: &[u8]) -> Result<Zeroizing<Vec<u8>>, KdcError> {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return Err(KdcError::Password("must have 1 to 512 bytes"));
    }
    if std::str::from_utf8(password).is_err() || password.iter().any(u8::is_ascii_control) {
        return Err(KdcError::Password("must be text of one line, without a line break at its end"));
    }
    let mut line = Zeroizing::new(Vec::with_capacity(password.len() + 1));
    line.extend_from_slice(password);
    line.push(b'\n');
    Ok(line)
}

/// A file with keys; gone when this is dropped.
struct KeyFile(PathBuf);

impl KeyFile {
    fn write(&self, keytab: &[u8]) -> Result<(), KdcError> {
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.0);
        file.and_then(|mut file| file.write_all(keytab)).map_err(|error| self.failed(&error))
    }

    fn read(&self) -> Result<Zeroizing<Vec<u8>>, KdcError> {
        let length = fs::metadata(&self.0).map_err(|error| self.failed(&error))?.len();
        if length > KEYTAB_BYTES_MAX {
            return Err(KdcError::Local(format!("{} has more than {KEYTAB_BYTES_MAX} bytes", self.0.display())));
        }
        fs::read(&self.0).map(Zeroizing::new).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> KdcError {
        KdcError::Local(format!("{}: {error}", self.0.display()))
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        // Not there if the program made none; what is left otherwise goes at the next start.
        let _ = fs::remove_file(&self.0);
    }
}
