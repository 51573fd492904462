//! Where the programs are: `<target>/kubernetes/<hash of the go.mod files>`, as `.ci/kubernetes` builds them.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// Hexadecimal digits of the hash that name a directory.
const HASH_DIGITS: usize = 16;

/// The minor version of Kubernetes that is built unless [`MINOR`] says another.
const DEFAULT_MINOR: &str = "1.36";

/// The environment variable that chooses the minor version, as `make kubernetes KUBERNETES=1.35` sets it.
const MINOR: &str = "KUBERNETES";

/// A complete set of programs.
#[derive(Debug, Clone)]
pub struct Programs {
    directory: PathBuf,
}

impl Programs {
    /// The set that belongs to this checkout.
    ///
    /// # Errors
    /// Where it was looked for, and how it is built.
    pub fn find() -> Result<Self, String> {
        let minor = std::env::var(MINOR).ok().filter(|minor| !minor.is_empty());
        let hash = hash(minor.as_deref().unwrap_or(DEFAULT_MINOR))?;
        let directory = target()?.join("kubernetes").join(hash);
        if directory.join("complete").is_file() {
            return Ok(Self { directory });
        }
        Err(format!("no Kubernetes programs in {}: build them with `make kubernetes`", directory.display()))
    }

    /// A program.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join("bin").join(name)
    }

    /// Where all of them are, for a `PATH`.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.directory.join("bin")
    }

    /// Where the resource definitions of Flux and Sealed Secrets are.
    #[must_use]
    pub fn definitions(&self) -> PathBuf {
        self.directory.join("definitions")
    }
}

/// The folders of modules whose go.mod files are hashed, in this order.
fn folders(minor: &str) -> [String; 3] {
    ["definitions".to_owned(), format!("kubernetes-{minor}"), "neighbours".to_owned()]
}

fn hash(minor: &str) -> Result<String, String> {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let mut digest = Sha256::new();
    for folder in folders(minor) {
        let file = modules.join(folder).join("go.mod");
        digest.update(std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?);
    }
    let mut hash = hex::encode(digest.finalize());
    hash.truncate(HASH_DIGITS);
    Ok(hash)
}

/// The target directory that this executable was built in: `<target>/<profile>/<program>` or `<target>/<profile>/deps/<test>`.
fn target() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let is_test = own.parent().is_some_and(|directory| directory.ends_with("deps"));
    let target = own.ancestors().nth(if is_test { 3 } else { 2 });
    Ok(target.ok_or_else(|| format!("{} is in no target directory", own.display()))?.to_owned())
}
