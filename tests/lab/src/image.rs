//! What boots, made by the scripts of `examples/host-image`. The tree of Debian packages takes a minute and is kept in `<target>/lab`, by the hash of what it is made of. The rest takes
//! some seconds and belongs to one story, because each has a cluster of its own in its image.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

use crate::programs::succeed;

/// Key and certificate of Debian's firmware variables for tests, with the passphrase of the key.
const SIGN: [(&str, &str); 3] = [
    ("SIGN_KEY", "/usr/share/ovmf/PkKek-1-snakeoil.key"),
    ("SIGN_CERTIFICATE", "/usr/share/ovmf/PkKek-1-snakeoil.pem"),
    ("SIGN_PASSPHRASE", "snakeoil"),
];

/// The minor version of Kubernetes that hosts of kubeadm have.
const KUBERNETES: &str = "1.36";

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn recipe(file: &str) -> PathBuf {
    sources().join("examples/host-image").join(file)
}

/// The directory of the build.
fn target() -> PathBuf {
    let own = std::env::current_exe().expect("a program knows its path");
    // <target>/<profile>/deps/<this program>
    own.ancestors().nth(3).expect("tests are built into a target directory").to_owned()
}

/// The directory that keeps what is expensive, below that of the build.
fn kept() -> PathBuf {
    let kept = target().join("lab");
    fs::create_dir_all(&kept).expect("the target directory can be written");
    kept
}

/// Prints the current step, because it takes long.
#[allow(clippy::print_stdout, reason = "stories print figures")]
fn say(text: &str) {
    println!("lab: {text}");
}

/// What makes a host a member of Kubernetes, and what the image has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// A program that leaves the files of k3s.
    K3s,
    /// kubeadm, kubelet and their neighbours as `.ci/kubernetes` builds them, and Debian's containerd.
    Kubeadm,
}

impl Distribution {
    /// The name that configurations have for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::K3s => "k3s",
            Self::Kubeadm => "kubeadm",
        }
    }

    /// Lists of Debian packages beside `packages`, files of the recipe.
    const fn lists(self) -> &'static [&'static str] {
        match self {
            Self::K3s => &[],
            Self::Kubeadm => &["packages-kubeadm"],
        }
    }

    /// What is laid over the tree; `made` is where it is made, if it has to be.
    fn overlay(self, tree: &Path, made: PathBuf) -> PathBuf {
        let own = sources().join("tests/lab");
        match self {
            Self::K3s => own.join("image"),
            Self::Kubeadm => {
                let mut command = Command::new(own.join("kubeadm/overlay.sh"));
                succeed(command.args([&kubernetes(), tree, &made]));
                made
            }
        }
    }
}

/// The program kubectl, of the version that hosts of kubeadm have.
///
/// # Panics
/// It cannot be built; the message is that of the script.
#[must_use]
pub fn kubectl() -> PathBuf {
    kubernetes().join("bin/kubectl")
}

/// Programs of Kubernetes, as `.ci/kubernetes` builds them once: that takes minutes.
fn kubernetes() -> PathBuf {
    let mut command = Command::new(sources().join(".ci/kubernetes"));
    command.args([KUBERNETES, "host"]).env("CARGO_TARGET_DIR", target());
    let said = succeed(&mut command);
    PathBuf::from(said.lines().next_back().expect("the last line is the directory"))
}

/// The tree of Debian packages with those of further lists: from the cache, or made.
fn tree(lists: &[&str]) -> PathBuf {
    let mut hash = Sha256::new();
    for file in ["root-tree.sh", "packages"].iter().chain(lists) {
        hash.update(fs::read(recipe(file)).expect("the recipe is there"));
    }
    let kept = kept();
    let directory = kept.join(format!("tree-{}", &hex::encode(hash.finalize())[..16]));
    // One story makes it, the others wait.
    let lock = File::create(kept.join("lock")).expect("the target directory can be written");
    lock.lock().expect("the lock is taken");
    if !directory.join("complete").exists() {
        say("making the tree of Debian packages");
        fs::create_dir_all(&directory).expect("the target directory can be written");
        let lists = lists.iter().map(|list| recipe(list));
        succeed(Command::new(recipe("root-tree.sh")).arg(directory.join("tree")).args(lists));
        File::create(directory.join("complete")).expect("the target directory can be written");
    }
    directory.join("tree")
}

/// The key by which the stories reach machines: its private file.
#[derive(Debug)]
struct SshKey(PathBuf);

/// A root file system with what one cluster's hosts have in it.
#[derive(Debug)]
pub struct Image {
    directory: tempfile::TempDir,
    key: SshKey,
}

impl Image {
    /// Makes it of the tree, the bootstrapper, what the distribution has, and the configuration of the bootstrapper.
    ///
    /// # Panics
    /// It cannot be made; the message is that of the script.
    #[must_use]
    pub fn build(bootstrapper: &Path, distribution: Distribution, configuration: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("lab-image").tempdir().expect("a directory");
        let key = SshKey(directory.path().join("ssh-key"));
        succeed(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key.0));
        let own = directory.path().join("own");
        for folder in ["etc/sparkfleet", "root/.ssh"] {
            fs::create_dir_all(own.join(folder)).expect("a directory");
        }
        fs::write(own.join("etc/sparkfleet/bootstrapper.toml"), configuration).expect("written");
        fs::copy(key.0.with_extension("pub"), own.join("root/.ssh/authorized_keys")).expect("written");
        let tree = tree(distribution.lists());
        let overlay = distribution.overlay(&tree, directory.path().join("overlay"));
        let mut command = Command::new(recipe("root-image.sh"));
        command.args([&tree, &directory.path().join("image"), bootstrapper]);
        succeed(command.args([&overlay, &own]));
        Self { directory, key }
    }

    /// The disk with the root.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("image/root.img")
    }

    /// The key of the machines' root.
    #[must_use]
    pub fn ssh_key(&self) -> &Path {
        &self.key.0
    }

    /// A unified kernel image that starts this root, with these further words on the kernel's command line; signed for Secure Boot if wanted.
    ///
    /// # Panics
    /// It cannot be made; the message is that of the script.
    #[must_use]
    pub fn uki(&self, name: &str, words: &str, signed: bool) -> Uki {
        let out = self.directory.path().join(name);
        let mut command = Command::new(recipe("uki.sh"));
        command.arg(self.directory.path().join("image")).args([out.as_os_str(), words.as_ref()]);
        if signed {
            command.envs(SIGN);
        }
        succeed(&mut command);
        let pcr = fs::read_to_string(out.join("pcr11")).expect("the script writes it");
        Uki { disk: out.join("esp.img"), file: out.join("uki.efi"), pcr_11: pcr.trim().to_owned() }
    }
}

/// A unified kernel image on a disk that firmware boots.
#[derive(Debug)]
pub struct Uki {
    /// The disk.
    pub disk: PathBuf,
    /// The unified kernel image alone.
    pub file: PathBuf,
    /// What PCR 11 is after it has booted, hexadecimal: predicted.
    pub pcr_11: String,
}
