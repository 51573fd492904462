//! The state disk: LUKS2 by the command `cryptsetup`. Keys go in by standard input or by files of mode 0600 that are removed, never as arguments.
//!
//! The checks read a *copy* of the header, and a member's disk is opened with the very copy that was checked. So a write to the disk in between changes nothing that is used. Changes
//! (key, token) are made by `cryptsetup` in place, because it keeps two copies with sequence numbers and a power cut leaves one of them. The result is checked again.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use join_protocol::secret::Secret;
use service_runtime::atomic_file::OWNER_ONLY;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::command::{Command, Output};
use super::directories::StateDirectories;
use super::files::{below, remove, write};
use crate::config::{Config, DiskConfig};
use crate::luks::{
    CIPHER, CLUSTER_KEY_SLOT, SEALED_KEY_SLOT, SEALED_SLOT, StateHeader, TOKEN_SLOT, check_header, token,
    token_of_sealed,
};
use crate::platform::{DiskFound, Mark, Outcome, PlatformError, SealedKey, StateDisk, UnlockError};

/// So much of a disk must be zero for it to be called blank: more than every partition table, file system and volume manager leaves free at its beginning.
const BLANK_BYTES: u64 = 4 * 1024 * 1024;
/// What `cryptsetup` says to a wrong key.
const WRONG_KEY: i32 = 2;

/// How keys are derived from passphrases. These passphrases have 256 bits and cannot be guessed, and hosts are small: so little work and memory, and none of it measured first.
const PBKDF: [&str; 6] = ["--pbkdf", "argon2id", "--pbkdf-force-iterations", "4", "--pbkdf-memory", "65536"];

/// Authenticated sectors are written once, all of them.
const FORMAT_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// The temporary passphrase of a disk that is not a member's, below `paths.run`.
const TEMPORARY_KEY: &str = "state.key";

/// A state disk on a block device, or on a file.
#[derive(Debug)]
pub struct CryptsetupDisk {
    config: DiskConfig,
    device: PathBuf,
    mapped: PathBuf,
    mount_point: PathBuf,
    mounts: PathBuf,
    run: PathBuf,
    directories: StateDirectories,
    timeout: Duration,
}

/// A file that is removed when it is not needed any longer, also when the caller gives up in between.
#[derive(Debug)]
pub(crate) struct Removed(pub(crate) PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            tracing::error!(%error, "a file with secrets is left");
        }
    }
}

impl CryptsetupDisk {
    /// The disk of this configuration; every path begins at `root`.
    #[must_use]
    pub fn new(config: &Config, root: &Path) -> Self {
        let disk = config.disk.clone();
        Self {
            device: below(root, &disk.device),
            mapped: below(root, &Path::new("/dev/mapper").join(&disk.mapping)),
            mount_point: below(root, &config.paths.state),
            mounts: below(root, Path::new("/proc/self/mounts")),
            run: below(root, &config.paths.run),
            directories: StateDirectories::new(config, root),
            timeout: Duration::from_millis(config.timeouts.command_ms),
            config: disk,
        }
    }

    fn cryptsetup(&self) -> Command {
        Command::new(&self.config.cryptsetup, self.timeout)
    }

    fn temporary_key(&self) -> PathBuf {
        self.run.join(TEMPORARY_KEY)
    }

    /// Mapped, and mounted where files are looked for.
    fn is_open(&self) -> bool {
        let mounts = fs::read_to_string(&self.mounts).unwrap_or_default();
        let wanted = (self.mapped.to_string_lossy(), self.mount_point.to_string_lossy());
        let is_it = |line: &str| {
            let mut fields = line.split(' ');
            fields.next() == Some(&*wanted.0) && fields.next() == Some(&*wanted.1)
        };
        self.mapped.exists() && mounts.lines().any(is_it)
    }

    /// Copies the header, and checks the copy. Gives the copy, the UUID and what the tokens say.
    async fn checked_header(&self) -> Outcome<(Removed, Uuid, StateHeader)> {
        let about =
            |why: &dyn std::fmt::Display| PlatformError::new(format_args!("state disk {}", self.device.display()), why);
        let copy = Removed(self.run.join(format!("header-{}", Uuid::new_v4().simple())));
        super::files::make_folder_of(&copy.0)?;
        let backup = self.cryptsetup().arguments([Path::new("luksHeaderBackup"), &self.device]);
        let backup = backup.arguments([Path::new("--header-backup-file"), &copy.0]).succeed().await;
        backup.map_err(|error| {
            about(&format_args!("holds something that is not a LUKS2 header, and is not touched ({error})"))
        })?;
        let json = self.cryptsetup().arguments([Path::new("luksDump"), Path::new("--dump-json-metadata"), &copy.0]);
        let json = json.succeed().await.map_err(|error| about(&error))?;
        let header = check_header(&json).map_err(|error| about(&format_args!("{error}; it is not touched")))?;
        let uuid = self.cryptsetup().arguments([Path::new("luksUUID"), &copy.0]).succeed().await;
        let uuid = uuid.map_err(|error| about(&error))?;
        let uuid = std::str::from_utf8(&uuid).ok().and_then(|text| text.trim().parse().ok());
        let uuid = uuid.filter(|uuid: &Uuid| !uuid.is_nil()).ok_or_else(|| about(&"has no UUID"))?;
        Ok((copy, uuid, header))
    }

    /// True if the first bytes of the device are all zero.
    fn is_blank(&self) -> Outcome<bool> {
        let unreadable =
            |error: io::Error| PlatformError::new(format_args!("state disk {}", self.device.display()), error);
        let mut start = File::open(&self.device).map_err(unreadable)?.take(BLANK_BYTES);
        let (mut part, mut seen) = (vec![0; 64 * 1024], 0);
        loop {
            match start.read(&mut part).map_err(unreadable)? {
                0 if seen == 0 => return Err(unreadable(io::Error::other("is empty: no medium?"))),
                0 => return Ok(true),
                length if part[..length].iter().any(|byte| *byte != 0) => return Ok(false),
                length => seen += length,
            }
        }
    }

    async fn look(&self) -> Outcome<DiskFound> {
        if self.is_blank()? {
            return Ok(DiskFound::Blank);
        }
        let (_, uuid, header) = self.checked_header().await?;
        if let Some(wanted) = self.config.uuid.filter(|wanted| *wanted != uuid) {
            let name = self.device.display();
            return Err(PlatformError(format!("state disk {name} has the UUID {uuid}, and disk.uuid is {wanted}")));
        }
        let StateHeader { mark, generation, sealed, .. } = header;
        let second_key = sealed.map(|sealed| sealed.id);
        Ok(DiskFound::Ours { uuid, mark, open: self.is_open(), generation, second_key })
    }

    /// Whether this key opens the disk. Needs no device mapper.
    async fn opens(&self, header: Option<&Path>, slot: &str, key: &Secret) -> Outcome<bool> {
        let mut command = self.cryptsetup().arguments(["open", "--test-passphrase", "--key-slot", slot]);
        if let Some(header) = header {
            command = command.arguments([Path::new("--header"), header]);
        }
        let command = command.arguments(["--key-file", "-", "--keyfile-size", "32"]).arguments([&self.device]);
        let output = command.input(key.expose()).run().await?;
        match output.code {
            Some(0) => Ok(true),
            Some(WRONG_KEY) => Ok(false),
            _ => Err(failed("open --test-passphrase", &output)),
        }
    }

    /// Formats the disk, and gives it the token. It is not opened.
    ///
    /// # Errors
    /// cryptsetup refuses.
    pub async fn format(&self, uuid: Uuid) -> Outcome<()> {
        let mut random = Zeroizing::new([0; 32]);
        SystemRandom::new()
            .fill(random.as_mut())
            .map_err(|_| PlatformError("the system has no randomness".to_owned()))?;
        let key = self.temporary_key();
        write(&key, Zeroizing::new(hex::encode(random.as_ref())).as_bytes(), OWNER_ONLY)?;
        let uuid = uuid.hyphenated().to_string();
        let format = Command::new(&self.config.cryptsetup, FORMAT_WITHIN).arguments([
            "luksFormat",
            "--batch-mode",
            "--type",
            "luks2",
            "--uuid",
            &uuid,
        ]);
        let format =
            format.arguments(["--sector-size", "4096", "--cipher", CIPHER, "--key-size", "512", "--hash", "sha256"]);
        let format = format.arguments(PBKDF);
        let mut format = format.arguments(["--key-slot", CLUSTER_KEY_SLOT, "--key-file"]).arguments([&key]);
        if self.config.integrity {
            format = format.arguments(["--integrity", "hmac-sha256"]);
        }
        format.arguments([&self.device]).succeed().await?;
        // The key of the disk follows from this, too: the key of the disk before reveals nothing about this one.
        self.import_token(TOKEN_SLOT, &token(Mark::New, Some(Uuid::new_v4())), false).await
    }

    async fn import_token(&self, slot: &str, token: &str, is_there: bool) -> Outcome<()> {
        let replace: &[&str] = if is_there { &["--token-replace"] } else { &[] };
        let command = self.cryptsetup().arguments(["token", "import", "--token-id", slot, "--json-file", "-"]);
        command.arguments(replace).arguments([&self.device]).input(token.as_bytes()).succeed().await.map(drop)
    }

    async fn close_mapping(&self) -> Outcome<()> {
        if self.is_open() {
            Command::new(&self.config.umount, self.timeout).arguments([&self.mount_point]).succeed().await?;
        }
        if self.mapped.exists() {
            self.cryptsetup().arguments(["close", &self.config.mapping]).succeed().await?;
        }
        Ok(())
    }

    async fn mount(&self) -> Outcome<()> {
        fs::create_dir_all(&self.mount_point).map_err(|error| PlatformError::new(self.mount_point.display(), error))?;
        let mount = Command::new(&self.config.mount, self.timeout).arguments(["-t", "ext4"]);
        mount.arguments([&self.mapped, &self.mount_point]).succeed().await.map(drop)
    }

    async fn make(&self, found: &DiskFound) -> Outcome<Uuid> {
        let name = self.device.display();
        let uuid = match found {
            DiskFound::Ours { mark: Mark::Initialised, .. } => {
                return Err(PlatformError(format!("state disk {name} is a member's and is not formatted again")));
            }
            DiskFound::Ours { uuid, .. } => *uuid,
            DiskFound::Blank => self.config.uuid.unwrap_or_else(Uuid::new_v4),
        };
        if !self.config.format {
            let what = if *found == DiskFound::Blank { "is blank" } else { "has to be formatted again" };
            return Err(PlatformError(format!("state disk {name} {what}, and disk.format is not set")));
        }
        // What was found may not be what is there.
        if self.look().await? != *found {
            return Err(PlatformError(format!("state disk {name} changed while it was looked at")));
        }
        self.close_mapping().await?;
        self.format(uuid).await?;
        let (copy, _, _) = self.checked_header().await?;
        let open =
            self.cryptsetup().arguments(["open", "--type", "luks2", "--key-file"]).arguments([&self.temporary_key()]);
        let open = open.arguments([Path::new("--header"), &copy.0, &self.device]);
        open.arguments([&self.config.mapping]).succeed().await?;
        Command::new(&self.config.mkfs, self.timeout).arguments(["-q"]).arguments([&self.mapped]).succeed().await?;
        self.mount().await?;
        Ok(uuid)
    }

    async fn open_with(&self, slot: &str, key: &Secret) -> Result<(), UnlockError> {
        // The key is tried on what is opened here, and on nothing that was open before.
        self.close_mapping().await?;
        let (copy, _, header) = self.checked_header().await?;
        if header.mark != Mark::Initialised {
            return Err(PlatformError("the state disk is not a member's".to_owned()).into());
        }
        if !self.opens(Some(&copy.0), slot, key).await? {
            return Err(UnlockError::WrongKey);
        }
        let open = self.cryptsetup().arguments(["open", "--type", "luks2", "--key-file", "-", "--keyfile-size", "32"]);
        let open = open.arguments(["--key-slot", slot]);
        let open = open.arguments([Path::new("--header"), &copy.0, &self.device]);
        let output = open.arguments([&self.config.mapping]).input(key.expose()).run().await?;
        match output.code {
            Some(0) => {}
            Some(WRONG_KEY) => return Err(UnlockError::WrongKey),
            _ => return Err(failed("open", &output).into()),
        }
        Ok(self.mount().await?)
    }

    async fn change_key(&self, key: &Secret) -> Outcome<()> {
        if !self.opens(None, CLUSTER_KEY_SLOT, key).await? {
            let next = Removed(self.run.join(format!("next-{}.key", Uuid::new_v4().simple())));
            write(&next.0, key.expose(), OWNER_ONLY)?;
            let change =
                self.cryptsetup().arguments(["luksChangeKey", "--key-slot", CLUSTER_KEY_SLOT]).arguments(PBKDF);
            change
                .arguments(["--key-file"])
                .arguments([&self.temporary_key(), &self.device, &next.0])
                .succeed()
                .await?;
            if !self.opens(None, CLUSTER_KEY_SLOT, key).await? {
                return Err(PlatformError("the state disk does not open with its new key".to_owned()));
            }
        }
        remove(&self.temporary_key())
    }

    async fn write_mark(&self, mark: Mark) -> Outcome<()> {
        if mark == Mark::Initialised {
            self.sync().await?;
        }
        let (_, _, before) = self.checked_header().await?;
        self.import_token(TOKEN_SLOT, &token(mark, before.generation), true).await?;
        let (_, _, after) = self.checked_header().await?;
        if after == (StateHeader { mark, ..before }) {
            Ok(())
        } else {
            Err(PlatformError("the token of the state disk was not written".to_owned()))
        }
    }

    /// Makes sure that everything that was written to the disk is on it. The installers kubeadm and k3s do not sync the keys and configurations that they write once. A member
    /// without them never runs again.
    async fn sync(&self) -> Outcome<()> {
        let mount_point = self.mount_point.clone();
        let sync = move || -> Outcome<()> {
            let sync = File::open(&mount_point).and_then(|disk| Ok(rustix::fs::syncfs(disk)?));
            sync.map_err(|error| PlatformError::new(format_args!("cannot sync {}", mount_point.display()), error))
        };
        tokio::task::spawn_blocking(sync).await.map_err(|error| PlatformError(error.to_string()))?
    }

    /// The token goes first and comes last: one that is there has its key slot.
    async fn remove_second(&self) -> Outcome<()> {
        let (_, _, header) = self.checked_header().await?;
        if header.has_second_token {
            let remove = self.cryptsetup().arguments(["token", "remove", "--token-id", SEALED_SLOT]);
            remove.arguments([&self.device]).succeed().await?;
        }
        if header.has_second_slot {
            let kill = self.cryptsetup().arguments(["luksKillSlot", "--batch-mode"]).arguments([&self.device]);
            kill.arguments([SEALED_KEY_SLOT]).succeed().await?;
        }
        Ok(())
    }

    async fn write_sealed(&self, sealed: &SealedKey, replaces: bool) -> Outcome<()> {
        self.import_token(SEALED_SLOT, &token_of_sealed(sealed), replaces).await?;
        let (_, _, header) = self.checked_header().await?;
        if header.sealed.as_ref() == Some(sealed) {
            Ok(())
        } else {
            Err(PlatformError("the token of the second key was not written".to_owned()))
        }
    }

    async fn add_second(&self, key: &Secret, second: &Secret, sealed: &SealedKey) -> Outcome<()> {
        self.remove_second().await?;
        let next = Removed(self.run.join(format!("second-{}.key", Uuid::new_v4().simple())));
        write(&next.0, second.expose(), OWNER_ONLY)?;
        let add = self.cryptsetup().arguments(["luksAddKey", "--key-slot", SEALED_KEY_SLOT]).arguments(PBKDF);
        let add = add.arguments(["--key-file", "-", "--keyfile-size", "32"]).arguments([&self.device, &next.0]);
        add.input(key.expose()).succeed().await?;
        self.write_sealed(sealed, false).await?;
        if self.opens(None, SEALED_KEY_SLOT, second).await? {
            Ok(())
        } else {
            Err(PlatformError("the state disk does not open with its second key".to_owned()))
        }
    }
}

fn failed(what: &str, output: &Output) -> PlatformError {
    PlatformError(format!("cryptsetup {what}: ended with code {:?}: {}", output.code, output.stderr))
}

impl StateDisk for CryptsetupDisk {
    fn inspect(&mut self) -> BoxFuture<'_, Outcome<DiskFound>> {
        self.look().boxed()
    }

    fn prepare<'a>(&'a mut self, found: &'a DiskFound) -> BoxFuture<'a, Outcome<Uuid>> {
        self.make(found).boxed()
    }

    fn unlock<'a>(&'a mut self, key: &'a Secret) -> BoxFuture<'a, Result<(), UnlockError>> {
        self.open_with(CLUSTER_KEY_SLOT, key).boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, Outcome<()>> {
        self.close_mapping().boxed()
    }

    fn set_key<'a>(&'a mut self, key: &'a Secret) -> BoxFuture<'a, Outcome<()>> {
        self.change_key(key).boxed()
    }

    fn sealed_key(&mut self) -> BoxFuture<'_, Outcome<Option<SealedKey>>> {
        async move { Ok(self.checked_header().await?.2.sealed) }.boxed()
    }

    fn unlock_sealed<'a>(&'a mut self, key: &'a Secret) -> BoxFuture<'a, Result<(), UnlockError>> {
        self.open_with(SEALED_KEY_SLOT, key).boxed()
    }

    fn set_sealed_key<'a>(
        &'a mut self,
        key: &'a Secret,
        second: &'a Secret,
        sealed: &'a SealedKey,
    ) -> BoxFuture<'a, Outcome<()>> {
        self.add_second(key, second, sealed).boxed()
    }

    fn update_sealed_key<'a>(&'a mut self, sealed: &'a SealedKey) -> BoxFuture<'a, Outcome<()>> {
        self.write_sealed(sealed, true).boxed()
    }

    fn remove_sealed_key(&mut self) -> BoxFuture<'_, Outcome<()>> {
        self.remove_second().boxed()
    }

    fn mount_directories(&mut self, is_member: bool) -> BoxFuture<'_, Outcome<()>> {
        self.directories.mount(is_member).boxed()
    }

    fn mark(&mut self, mark: Mark) -> BoxFuture<'_, Outcome<()>> {
        self.write_mark(mark).boxed()
    }
}
