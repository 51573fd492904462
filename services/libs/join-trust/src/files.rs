//! The files of trust: the organisation's root, the certified keys of join services and administrators, the master secret of a cluster.
//!
//! | file | content | mode |
//! |---|---|---|
//! | `root.key`, `issuer.key`, `admin.key`, `policy-signer.key` | seed of an Ed25519 key, 64 hexadecimal digits | 0600 |
//! | `master.key` | secret that a cluster's disk keys are derived from, 64 hexadecimal digits | 0600 |
//! | `root.pub` | public key of the root, 64 hexadecimal digits | 0644 |
//! | `issuer.certificates`, `admin.certificates`, `policy-signer.certificates` | the chain that travels, issuer first, one certificate a line, hexadecimal | 0644 |
//!
//! Keys are written whole or not at all, and replaced only where that is asked for. It must not know how anything of it is used.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use join_protocol::certificate::{IssuerCertificate, PublicKey, SigningKey};
use join_protocol::secret::Secret;
use join_protocol::terms::Purpose;
use service_runtime::atomic_file::{self, OWNER_ONLY};
use service_runtime::exit;
use uuid::Uuid;

use crate::keys::DerivedKeys;
use crate::replica::{self, Files};

/// Name of the file with the root's public key.
pub const ROOT_PUBLIC: &str = "root.pub";
/// Names of the files with the policy signer's key and its certificates.
pub const SIGNER_KEY: &str = "policy-signer.key";
/// See [`SIGNER_KEY`].
pub const SIGNER_CERTIFICATES: &str = "policy-signer.certificates";
const ROOT_KEY: &str = "root.key";
const MASTER_KEY: &str = "master.key";
const READABLE: u32 = 0o644;
const DAY_MS: u64 = 86_400_000;

/// Clocks differ: a certificate is valid from an hour before it was made.
const EARLY_MS: u64 = 3_600_000;

/// A root that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// File of its key.
    pub key_file: PathBuf,
    /// File of its public key.
    pub public_file: PathBuf,
    /// The public key.
    pub public_key: PublicKey,
}

/// What is to be certified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The only cluster that it is for.
    pub cluster: Uuid,
    /// What it may do.
    pub purpose: Purpose,
    /// Days from now that the certificate is valid.
    pub days: u32,
    /// Its epoch.
    pub epoch: u32,
    /// What happens to a key that is there.
    pub present: Present,
}

/// What happens to a key that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Present {
    /// Nothing is made.
    Refuse,
    /// It is certified again.
    Renew,
    /// Another one takes its place.
    Replace,
}

/// A key that was certified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// File of the key.
    pub key_file: PathBuf,
    /// File of its certificates.
    pub certificates_file: PathBuf,
    /// File of the cluster's master secret, if the purpose needs one.
    pub master_file: Option<PathBuf>,
    /// File of the root's public key, beside them.
    pub root_file: PathBuf,
    /// UTC ms after which the certificate is not believed.
    pub not_after_ms: u64,
}

/// Makes the root of an organisation in a directory, which is created if need be.
///
/// # Errors
/// With [`exit::REFUSED`] if there is one and `force` is not given; a file that cannot be written.
pub fn init(dir: &Path, force: bool) -> anyhow::Result<Root> {
    make_directory(dir)?;
    let (key_file, public_file) = (dir.join(ROOT_KEY), dir.join(ROOT_PUBLIC));
    let present = if force { Present::Replace } else { Present::Refuse };
    let key = new_key(&key_file, present, "it is the root of everything that it certified")?;
    let public_key = key.public_key();
    atomic_file::write(&public_file, line(&public_key).as_bytes(), Some(READABLE))?;
    Ok(Root { key_file, public_file, public_key })
}

/// Certifies a key for a cluster, with the root in `dir`; what is made goes to `out`. `now_ms`: UTC ms.
///
/// # Errors
/// With [`exit::CONFIG`] if there is no usable root, [`exit::REFUSED`] if there is a key and nothing says what becomes of it.
pub fn issue(dir: &Path, out: &Path, wanted: &Wanted, now_ms: u64) -> anyhow::Result<Issued> {
    let root = signing_key(&dir.join(ROOT_KEY))
        .with_context(|| format!("there is no root in {}; make one with `sparkfleet trust init`", dir.display()))
        .map_err(|error| exit::with_code(exit::CONFIG, error))?;
    make_directory(out)?;
    let name = match wanted.purpose {
        Purpose::JoinIssuer => "issuer",
        Purpose::ClusterAdmin => "admin",
        Purpose::Authority => "authority",
        Purpose::PolicySigner => "policy-signer",
    };
    let (key_file, certificates_file) = (out.join(format!("{name}.key")), out.join(format!("{name}.certificates")));
    let key = new_key(&key_file, wanted.present, "its certificate may be in use")?;
    let not_after_ms = now_ms.saturating_add(u64::from(wanted.days) * DAY_MS);
    let certificate = IssuerCertificate {
        public_key: key.public_key(),
        purpose: wanted.purpose,
        cluster: wanted.cluster,
        not_before_ms: now_ms.saturating_sub(EARLY_MS),
        not_after_ms,
        epoch: wanted.epoch,
    };
    atomic_file::write(&certificates_file, line(&certificate.sign(&root)).as_bytes(), Some(READABLE))?;
    let root_file = out.join(ROOT_PUBLIC);
    atomic_file::write(&root_file, line(&root.public_key()).as_bytes(), Some(READABLE))?;
    let master_file = match wanted.purpose {
        Purpose::JoinIssuer => Some(master(out)?),
        Purpose::ClusterAdmin | Purpose::Authority | Purpose::PolicySigner => None,
    };
    Ok(Issued { key_file, certificates_file, master_file, root_file, not_after_ms })
}

/// The file of the cluster's master secret. It is made once and never replaced: every disk of the cluster hangs on it.
fn master(out: &Path) -> anyhow::Result<PathBuf> {
    let file = out.join(MASTER_KEY);
    secret_or_new(&file).map(|_| file)
}

/// Reads 32 bytes from a file of 64 hexadecimal digits.
///
/// # Errors
/// With [`exit::CONFIG`]: the file cannot be read or holds something else; the error does not show what it holds.
pub fn secret(file: &Path) -> anyhow::Result<Secret> {
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
    let text = text.map_err(wrong)?;
    let bytes = hex::decode(text.trim()).ok();
    let secret = bytes.as_deref().and_then(Secret::from_slice);
    secret.ok_or_else(|| wrong(anyhow!("{} does not hold 64 hexadecimal digits", file.display())))
}

/// As [`secret`], after making the file with 32 random bytes if there is none.
///
/// # Errors
/// As [`secret`], or the file cannot be written.
pub fn secret_or_new(file: &Path) -> anyhow::Result<Secret> {
    match atomic_file::create(file, line(random()?.expose()).as_bytes(), Some(OWNER_ONLY)) {
        Err(error) if !error.is_taken() => Err(error.into()),
        _ => secret(file),
    }
}

/// The wall clock, UTC ms.
#[must_use]
pub fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default()
}

/// Reads a key that signs.
///
/// # Errors
/// As [`secret`].
pub fn signing_key(file: &Path) -> anyhow::Result<SigningKey> {
    SigningKey::from_seed(&secret(file)?)
        .ok_or_else(|| exit::with_code(exit::CONFIG, anyhow!("{} holds no key", file.display())))
}

/// Reads a chain of certificates, encoded, the issuer first.
///
/// # Errors
/// With [`exit::CONFIG`]: the file cannot be read or has a line that is not hexadecimal.
pub fn certificates(file: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
    let text = text.map_err(wrong)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let chain: Result<Vec<_>, _> = lines.map(hex::decode).collect();
    chain.map_err(|_| wrong(anyhow!("{} has a line that is not hexadecimal", file.display())))
}

/// The keys of a cluster, as its join service derives them from `master.key` and, if there is one, `master.salt`.
///
/// # Errors
/// With [`exit::CONFIG`]: a file is missing or wrong.
pub fn cluster_keys(dir: &Path, cluster: Uuid) -> anyhow::Result<DerivedKeys> {
    let wrong = |error: anyhow::Error| exit::with_code(exit::CONFIG, error.context(dir.display().to_string()));
    let mut files = Files::new();
    for name in [MASTER_KEY, "master.salt"] {
        match std::fs::read(dir.join(name)) {
            Ok(content) => drop(files.insert(name.to_owned(), content.into())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(wrong(anyhow::Error::new(error).context(name))),
        }
    }
    replica::cluster_keys(&files, cluster).map_err(|error| wrong(error.into()))
}

/// The key of a file: a fresh one, or the one that is there if it shall be renewed.
fn new_key(file: &Path, present: Present, why: &str) -> anyhow::Result<SigningKey> {
    if present == Present::Renew {
        return signing_key(file);
    }
    let seed = random()?;
    let text = line(seed.expose());
    let written = match present {
        Present::Replace => atomic_file::write(file, text.as_bytes(), Some(OWNER_ONLY)),
        Present::Refuse | Present::Renew => atomic_file::create(file, text.as_bytes(), Some(OWNER_ONLY)),
    };
    if let Err(error) = written {
        if error.is_taken() {
            let error = anyhow!("{} is there already, and {why}; --force replaces it", file.display());
            return Err(exit::with_code(exit::REFUSED, error));
        }
        return Err(error.into());
    }
    SigningKey::from_seed(&seed).context("every seed makes a key")
}

/// 32 random bytes.
///
/// # Errors
/// The system yields none.
pub fn random() -> anyhow::Result<Secret> {
    let mut bytes = [0; 32];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| anyhow!("the system yields no random numbers"))?;
    Ok(Secret::new(bytes))
}

fn line(bytes: &[u8]) -> String {
    format!("{}\n", hex::encode(bytes))
}

fn make_directory(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)
        .with_context(|| format!("cannot create {}", dir.display()))
        .map_err(|error| exit::with_code(exit::CONFIG, error))
}

#[cfg(test)]
mod tests;
