//! The directories of the host that lie on the state disk. What Kubernetes keeps (etcd, keys, Secrets of pods, images, logs) is encrypted with it, and is not there before the disk is open.
//!
//! Each is a bind mount of a directory below `FOLDER` of the state disk. Only the kernel's list of mounts counts (`/proc/self/mountinfo`, proc_pid_mountinfo(5)).
//!
//! What network plugins noted of the pods of an earlier boot is removed before it is mounted (`OF_ONE_BOOT`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::command::Command;
use super::files::{below, make_folder, remove_folder};
use crate::config::Config;
use crate::platform::{Outcome, PlatformError};

/// Folder of the state disk with the directories, each under its path on the host.
const FOLDER: &str = "directories";
/// etcd wants a directory that no other user can read; for the others, files have their own modes.
const PRIVATE: &str = "/var/lib/etcd";

/// Records of addresses and interfaces of pods, which end with the boot: libcni's results, and the addresses that the plugin host-local gave out. Neither is synced when it is
/// written. A power cut leaves empty files. An empty result cannot be read when a pod's old sandbox is removed, so the pod would not run again. An address in an empty file is never given back.
const OF_ONE_BOOT: [&str; 2] = ["/var/lib/cni/results", "/var/lib/cni/networks"];

/// See the module.
#[derive(Debug)]
pub struct StateDirectories {
    root: PathBuf,
    state: PathBuf,
    directories: Vec<PathBuf>,
    mount: PathBuf,
    timeout: Duration,
}

impl StateDirectories {
    /// Those of the configuration; every path begins at `root`.
    #[must_use]
    pub fn new(config: &Config, root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            state: below(root, &config.paths.state),
            directories: config.disk.directories.clone(),
            mount: config.disk.mount.clone(),
            timeout: Duration::from_millis(config.timeouts.command_ms),
        }
    }

    /// Mounts those that are not mounted yet. `is_member`: of a host whose state disk holds them already.
    ///
    /// # Errors
    /// The first that does not lie on the state disk afterwards. Something else is mounted there, it cannot be made, or a member's files lie in clear outside of the state disk.
    pub async fn mount(&self, is_member: bool) -> Outcome<()> {
        for directory in &self.directories {
            self.mount_one(directory, is_member).await?;
        }
        Ok(())
    }

    async fn mount_one(&self, directory: &Path, is_member: bool) -> Outcome<()> {
        let (source, target) = (below(&self.state.join(FOLDER), directory), below(&self.root, directory));
        match self.found(&source, &target)? {
            Found::OnStateDisk => return Ok(()),
            Found::Elsewhere(what) => {
                let text = format!("{} is a mount of {what}, and must lie on the state disk", target.display());
                return Err(PlatformError(format!("{text}; unmount it, or take it out of disk.directories")));
            }
            Found::NotMounted => {}
        }
        let mode = if directory == Path::new(PRIVATE) { 0o700 } else { 0o755 };
        make_folder(&target, mode)?;
        let entries = fs::read_dir(&target).map_err(|error| PlatformError::new(target.display(), error))?.count();
        if entries > 0 {
            let directory = target.display();
            if is_member && !source.exists() {
                return Err(PlatformError(format!(
                    "{directory} holds {entries} entries in clear, outside of the state disk; move them to {}, or reset the host",
                    source.display()
                )));
            }
            tracing::warn!(
                %directory,
                entries,
                "what lies in clear outside of the state disk is covered, and no program reads it any more"
            );
        }
        make_folder(&source, mode)?;
        for records in OF_ONE_BOOT.map(Path::new).into_iter().filter(|records| records.starts_with(directory)) {
            remove_folder(&below(&self.state.join(FOLDER), records))?;
        }
        let mount = Command::new(&self.mount, self.timeout).arguments(["--bind"]);
        mount.arguments([&source, &target]).succeed().await?;
        match self.found(&source, &target)? {
            Found::OnStateDisk => Ok(()),
            _ => {
                Err(PlatformError(format!("{} does not lie on the state disk after it was mounted", target.display())))
            }
        }
    }

    /// What is mounted at `target`.
    fn found(&self, source: &Path, target: &Path) -> Outcome<Found> {
        let path = below(&self.root, Path::new("/proc/self/mountinfo"));
        let text = fs::read_to_string(&path).map_err(|error| PlatformError::new(path.display(), error))?;
        let Some(found) = mount_at(&text, target) else { return Ok(Found::NotMounted) };
        let state = mount_at(&text, &self.state);
        // Nothing but the state disk itself is mounted on the way to the source.
        let root = state.and_then(|state| Some(below(Path::new(state.root), source.strip_prefix(&self.state).ok()?)));
        let is_ours =
            state.is_some_and(|state| state.device == found.device) && root.as_deref() == Some(Path::new(found.root));
        Ok(if is_ours { Found::OnStateDisk } else { Found::Elsewhere(found.source.to_owned()) })
    }
}

/// What lies at a directory.
enum Found {
    NotMounted,
    OnStateDisk,
    /// A mount of this.
    Elsewhere(String),
}

/// One line of mountinfo.
#[derive(Clone, Copy)]
struct Mount<'a> {
    /// Major and minor number.
    device: &'a str,
    /// Directory of the file system that is mounted.
    root: &'a str,
    /// Its device or file system.
    source: &'a str,
}

/// The mount at this path; the last line is on top. Paths of the configuration hold nothing that mountinfo escapes.
fn mount_at<'a>(mountinfo: &'a str, path: &Path) -> Option<Mount<'a>> {
    let of_line = |line: &'a str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(2);
        let (device, root, point) = (fields.next()?, fields.next()?, fields.next()?);
        let source = file_system.split(' ').nth(1)?;
        (Path::new(point) == path).then_some(Mount { device, root, source })
    };
    mountinfo.lines().filter_map(of_line).next_back()
}
