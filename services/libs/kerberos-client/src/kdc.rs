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
use crate::{EncryptionType, KdcError, KerberosConfig, Principal, answer};

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

/// What the KDC says of a principal's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    /// Version of the newest.
    pub version: u32,
    /// When they were last changed, seconds since 1970 by the KDC's clock.
    pub changed_s: u64,
    /// All of them in the KDC's order: version, number of the encryption type, whether the salt is the usual one (principal and realm).
    pub keys: Vec<(u32, i32, bool)>,
}

impl KeyInfo {
    /// Whether there are keys of that version and those types, and no others.
    #[must_use]
    pub fn is_exactly(&self, version: u32, types: &[EncryptionType]) -> bool {
        let is_wanted = |(at, number, is_usual): &(u32, i32, bool)| {
            *at == version && *is_usual && types.iter().any(|wanted| wanted.number() == *number)
        };
        let is_there = |wanted: &EncryptionType| self.keys.iter().any(|(_, number, _)| *number == wanted.number());
        self.keys.iter().all(is_wanted) && types.iter().all(is_there)
    }

    /// Types of the newest keys, without deprecated ones, in the KDC's order.
    #[must_use]
    pub fn types(&self) -> Vec<EncryptionType> {
        let newest = self.keys.iter().filter(|(version, ..)| *version == self.version);
        newest.filter_map(|(_, number, _)| EncryptionType::of_number(*number)).collect()
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Kdc {
    config: Arc<KerberosConfig>,
    directory: Arc<Path>,
    files: Arc<AtomicU64>,
}

impl Kdc {
    /// Keys are handed over in files of `directory`, which is made if it is not there. Of another run's files it is emptied: no one else may use it.
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

    /// Makes a principal with a random key that no one knows. Done if it is there.
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
        let said = self.change(&format!("cpw \"{principal}\""), password).await?;
        answer::done(&said, "\" changed.")
    }

    /// What the KDC says of a principal's keys.
    ///
    /// # Errors
    /// [`KdcError`]; also if it is absent.
    pub async fn key_info(&self, principal: &Principal) -> Result<KeyInfo, KdcError> {
        answer::key_info(&self.kadmin(&format!("getprinc -terse \"{principal}\""), b"").await?)
    }

    /// Gives a principal the keys that follow from a password, in that version and those types, and no others: two KDCs that get the same have the same.
    ///
    /// # Errors
    /// [`KdcError`]; the keys may be others then, or of another version. Also if the KDC has not made of it what was asked for.
    pub async fn set_keys(
        &self,
        principal: &Principal,
        password: &[u8],
        version: u32,
        types: &[EncryptionType],
    ) -> Result<KeyInfo, KdcError> {
        let types_and_salts: Vec<String> = types.iter().map(|one| format!("{one}:normal")).collect();
        let said = self.change(&format!("cpw -e {} \"{principal}\"", types_and_salts.join(",")), password).await?;
        answer::done(&said, "\" changed.")?;
        let said = self.kadmin(&format!("modprinc -kvno {version} \"{principal}\""), b"").await?;
        answer::done(&said, "\" modified.")?;
        // What the administration server does not know it leaves out without a word.
        let info = self.key_info(principal).await?;
        if info.is_exactly(version, types) {
            return Ok(info);
        }
        Err(KdcError::Refused(format!("{principal} has got keys of other versions or types than asked for")))
    }

    /// Gives principals new random keys; the keytab with them. The keys before are not valid from here on.
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

    /// Whether this KDC gives tickets to the principals of that one's realm. Of others it can have keys (see [`Principal::is_trust`]), but no one can ask it whether they are valid.
    #[must_use]
    pub fn is_home(&self, principal: &Principal) -> bool {
        self.config.admin_principal.rsplit_once('@').is_some_and(|(_, realm)| realm == principal.realm())
    }

    /// Runs a query that asks for a password twice.
    async fn change(&self, query: &str, password: &[u8]) -> Result<Said, KdcError> {
        let line = line(password)?;
        let twice = Zeroizing::new([line.as_slice(), line.as_slice()].concat());
        self.kadmin(query, &twice).await
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

/// Checks that the programs can read a password.
///
/// # Errors
/// [`KdcError::Password`]
pub fn check_password(password: &[u8]) -> Result<(), KdcError> {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return Err(KdcError::Password("must have 1 to 512 bytes"));
    }
    if std::str::from_utf8(password).is_err() || password.iter().any(u8::is_ascii_control) {
        return Err(KdcError::Password("must be text of one line, without a line break at its end"));
    }
    Ok(())
}

fn line(password: &[u8]) -> Result<Zeroizing<Vec<u8>>, KdcError> {
    check_password(password)?;
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
