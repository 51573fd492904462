//! State disks by the real `cryptsetup`, on files. What needs the kernel's device mapper (mapping, mounting) is done by scripts in its place, which check the key with the real one.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use crate::programs;

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::process::Command;

use bootstrapper::adapters::cryptsetup::CryptsetupDisk;
use bootstrapper::adapters::directories::StateDirectories;
use bootstrapper::adapters::files::mode_of;
use bootstrapper::config::{Config, DiskConfig, PathsConfig};
use bootstrapper::platform::{DiskFound, Mark, SealedKey, StateDisk as _, UnlockError};
use join_protocol::message::local_unlock::{LocalUnlock, UnlockValue};
use join_protocol::secret::Secret;
use join_protocol::selection::Bank;
use programs::CRYPTSETUP;
use tempfile::TempDir;
use uuid::Uuid;

pub struct Bench {
    root: TempDir,
    format: bool,
    uuid: Option<Uuid>,
}

impl Bench {
    /// A disk of zeros.
    pub fn new() -> Self {
        let bench = Self { root: tempfile::tempdir().unwrap(), format: true, uuid: None };
        programs::install(bench.root.path());
        fs::File::create(bench.at("dev/state")).unwrap().set_len(20 * 1024 * 1024).unwrap();
        bench
    }

    /// The same, with this UUID.
    #[cfg(feature = "tpm")]
    pub fn with_uuid(uuid: Uuid) -> Self {
        Self { uuid: Some(uuid), ..Self::new() }
    }

    #[cfg(feature = "tpm")]
    pub fn root(&self) -> &std::path::Path {
        self.root.path()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub fn disk(&self) -> CryptsetupDisk {
        let config = Config {
            disk: DiskConfig {
                device: "/dev/state".into(),
                format: self.format,
                uuid: self.uuid,
                integrity: false,
                cryptsetup: self.at("bin/cryptsetup"),
                mkfs: self.at("bin/mkfs"),
                mount: self.at("bin/mount"),
                umount: self.at("bin/umount"),
                ..DiskConfig::default()
            },
            paths: PathsConfig::default(),
            ..Config::default()
        };
        CryptsetupDisk::new(&config, self.root.path())
    }

    /// The disk is a member's, with this key.
    pub async fn make_member(&self, key: &Secret) {
        self.disk().prepare(&DiskFound::Blank).await.unwrap();
        self.disk().set_key(key).await.unwrap();
        self.disk().mark(Mark::Initialised).await.unwrap();
    }

    /// Off and on: nothing is mapped, what lay in `/run` is gone.
    pub fn reboot(&self) {
        programs::reboot(self.root.path());
    }

    /// What a look shows, but for what was drawn.
    async fn found(&self) -> Result<DiskFound, String> {
        let found = self.disk().inspect().await.map_err(|error| error.0)?;
        Ok(match found {
            DiskFound::Ours { uuid, mark, open, second_key, .. } => {
                DiskFound::Ours { uuid, mark, open, generation: None, second_key }
            }
            DiskFound::Blank => DiskFound::Blank,
        })
    }

    /// What was drawn when it was made.
    async fn generation(&self) -> Uuid {
        let DiskFound::Ours { generation: Some(generation), .. } = self.disk().inspect().await.unwrap() else {
            panic!("the disk was made without");
        };
        generation
    }

    fn cryptsetup(&self, arguments: &[&str]) {
        let done = Command::new(CRYPTSETUP).args(arguments).arg(self.at("dev/state")).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn overwrite(&self, offset: u64, bytes: &[u8]) {
        let mut device = fs::OpenOptions::new().write(true).open(self.at("dev/state")).unwrap();
        device.seek(SeekFrom::Start(offset)).unwrap();
        device.write_all(bytes).unwrap();
    }

    fn content(&self) -> Vec<u8> {
        fs::read(self.at("dev/state")).unwrap()
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(folder)).map(|entries| entries.collect::<Vec<_>>()).unwrap_or_default();
        entries.into_iter().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

pub fn key(byte: u8) -> Secret {
    Secret::new([byte; 32])
}

fn ours(uuid: Uuid, mark: Mark, open: bool) -> Result<DiskFound, String> {
    Ok(DiskFound::Ours { uuid, mark, open, generation: None, second_key: None })
}

#[tokio::test]
async fn a_disk_is_made_given_its_key_marked_and_opened_again_after_a_reboot() {
    let bench = Bench::new();
    assert_eq!(bench.found().await, Ok(DiskFound::Blank));
    let uuid = bench.disk().prepare(&DiskFound::Blank).await.unwrap();
    assert_eq!(bench.found().await, ours(uuid, Mark::New, true));
    assert_eq!(mode_of(&bench.at("run/sparkfleet/state.key")), Ok(0o600));

    let generation = bench.generation().await;
    // As often as it takes.
    for _ in 0..2 {
        bench.disk().set_key(&key(7)).await.unwrap();
    }
    assert!(
        bench.names("run/sparkfleet").is_empty(),
        "no key and no header is left: {:?}",
        bench.names("run/sparkfleet")
    );
    assert_eq!(bench.found().await, ours(uuid, Mark::New, true));
    bench.disk().mark(Mark::Initialised).await.unwrap();
    assert_eq!(bench.found().await, ours(uuid, Mark::Initialised, true));

    bench.reboot();
    assert_eq!(bench.found().await, ours(uuid, Mark::Initialised, false));
    let before = bench.content();
    assert_eq!(bench.disk().unlock(&key(8)).await, Err(UnlockError::WrongKey));
    assert_eq!(bench.found().await, ours(uuid, Mark::Initialised, false));
    // What is open is opened again, with this key.
    for _ in 0..2 {
        bench.disk().unlock(&key(7)).await.unwrap();
    }
    bench.disk().close().await.unwrap();
    bench.disk().close().await.unwrap();
    assert_eq!(bench.found().await, ours(uuid, Mark::Initialised, false));
    bench.disk().unlock(&key(7)).await.unwrap();
    assert_eq!(bench.found().await, ours(uuid, Mark::Initialised, true));
    assert!(bench.content() == before, "nothing was written by looking and opening");

    bench.disk().mark(Mark::Reset).await.unwrap();
    bench.reboot();
    assert_eq!(bench.found().await, ours(uuid, Mark::Reset, false));
    assert_eq!(bench.generation().await, generation, "marks leave it as it is");
    let found = bench.disk().inspect().await.unwrap();
    assert_eq!(bench.disk().prepare(&found).await, Ok(uuid), "it keeps its UUID, by which the host speaks");
    assert_eq!(bench.found().await, ours(uuid, Mark::New, true));
    assert_ne!(bench.generation().await, generation, "and has another key");
    assert_eq!(bench.disk().set_key(&key(7)).await, Ok(()));

    let commands = fs::read_to_string(bench.at("commands")).unwrap();
    assert!(!commands.contains(&hex::encode([7; 32])) && !commands.contains(&"\u{7}".repeat(32)), "{commands}");
    let opened: Vec<&str> = commands.lines().filter(|line| line.starts_with("open --type")).collect();
    assert!(
        opened.len() == 5 && opened.iter().all(|line| line.contains("--header")),
        "with the checked copy: {opened:?}"
    );
}

#[tokio::test]
async fn a_disk_gets_the_uuid_of_the_configuration_and_one_with_another_is_reported_and_not_used() {
    let wanted = Uuid::from_u128(0x6ba7_b810_9dad_11d1_80b4_00c0_4fd4_30c8);
    let mut bench = Bench { uuid: Some(wanted), ..Bench::new() };
    assert_eq!(bench.disk().prepare(&DiskFound::Blank).await, Ok(wanted));
    assert_eq!(bench.found().await, ours(wanted, Mark::New, true));
    let before = bench.content();
    let other = Uuid::from_u128(1);
    bench.uuid = Some(other);
    let error = bench.found().await.unwrap_err();
    assert!(error.ends_with(&format!("has the UUID {wanted}, and disk.uuid is {other}")), "{error}");
    assert!(bench.disk().prepare(&ours(wanted, Mark::New, true).unwrap()).await.is_err());
    assert!(bench.content() == before, "nothing was written");
}

#[tokio::test]
async fn a_disk_that_cannot_be_read_is_reported_and_never_formatted_again() {
    let bench = Bench::new();
    let uuid = bench.disk().prepare(&DiskFound::Blank).await.unwrap();
    bench.reboot();
    // Both copies of the header's beginning.
    bench.overwrite(0, &[0xff; 4096]);
    bench.overwrite(16 * 1024, &[0xff; 4096]);
    let before = bench.content();
    let error = bench.found().await.unwrap_err();
    assert!(error.contains("holds something that is not a LUKS2 header, and is not touched"), "{error}");
    for pretended in [DiskFound::Blank, ours(uuid, Mark::New, false).unwrap()] {
        bench.disk().prepare(&pretended).await.unwrap_err();
    }
    assert!(bench.content() == before, "not a byte was written");
}

#[tokio::test]
async fn a_disk_of_another_program_is_not_touched() {
    let bench = Bench::new();
    bench.overwrite(1080, &[0x53, 0xEF]);
    let error = bench.found().await.unwrap_err();
    assert!(error.contains("not a LUKS2 header"), "{error}");

    // LUKS, but without our token; and with the token of another program.
    let bench = Bench::new();
    fs::write(bench.at("password"), "x").unwrap();
    let file = bench.at("password").display().to_string();
    bench.cryptsetup(&[
        "luksFormat",
        "--batch-mode",
        "--type",
        "luks2",
        "--sector-size",
        "4096",
        "--pbkdf-memory",
        "1000",
        "--pbkdf-force-iterations",
        "4",
        "--key-size",
        "512",
        "--key-file",
        &file,
    ]);
    let error = bench.found().await.unwrap_err();
    assert!(error.contains("LUKS2 header: has no token 0") && error.ends_with("it is not touched"), "{error}");
}

#[tokio::test]
async fn a_header_that_asks_for_another_cipher_is_not_opened() {
    let bench = Bench::new();
    fs::write(bench.at("password"), [7; 32]).unwrap();
    let file = bench.at("password").display().to_string();
    let cipher =
        ["luksFormat", "--batch-mode", "--type", "luks2", "--sector-size", "4096", "--cipher", "aes-cbc-essiv:sha256"];
    bench.cryptsetup(
        &[
            &cipher,
            ["--key-size", "256", "--pbkdf-memory", "1000", "--pbkdf-force-iterations", "4", "--key-file", &file]
                .as_slice(),
        ]
        .concat(),
    );
    let token = bench.at("token");
    fs::write(&token, r#"{"type":"sparkfleet","keyslots":[],"state":"initialised"}"#).unwrap();
    bench.cryptsetup(&["token", "import", "--token-id", "0", "--json-file", &token.display().to_string()]);
    let Err(UnlockError::Failed(error)) = bench.disk().unlock(&key(7)).await else { panic!("it was opened") };
    assert!(error.0.contains("key_size must be 64 or 96"), "{error}");
    assert!(!bench.at("dev/mapper/state").exists());
}

#[tokio::test]
async fn no_disk_is_formatted_again_unless_the_configuration_says_so_and_a_members_never() {
    let mut bench = Bench::new();
    bench.format = false;
    let error = bench.disk().prepare(&DiskFound::Blank).await.unwrap_err().0;
    assert!(error.ends_with("is blank, and disk.format is not set"), "{error}");
    bench.format = true;
    let uuid = bench.disk().prepare(&DiskFound::Blank).await.unwrap();
    bench.disk().mark(Mark::Initialised).await.unwrap();
    let member = ours(uuid, Mark::Initialised, true).unwrap();
    let error = bench.disk().prepare(&member).await.unwrap_err().0;
    assert!(error.ends_with("is a member's and is not formatted again"), "{error}");
    // Nor if it pretends to be another while it is looked at.
    let pretended = ours(uuid, Mark::New, true).unwrap();
    let error = bench.disk().prepare(&pretended).await.unwrap_err().0;
    assert!(error.ends_with("changed while it was looked at"), "{error}");
}

fn sealed(byte: u8) -> SealedKey {
    let value = UnlockValue { value: vec![byte; 32], signature: [byte; 64] };
    let pcrs = [(4, vec![value.clone()]), (15, vec![value])].into();
    let unlock = LocalUnlock { bank: Bank::Sha256, key: [byte; 64], pcrs };
    SealedKey { id: [byte; 16], unlock, public: vec![byte; 80], private: vec![byte; 160] }
}

#[tokio::test]
async fn a_second_key_opens_the_disk_until_it_is_taken_away_and_a_slot_without_its_token_is_cleared() {
    let bench = Bench::new();
    bench.make_member(&key(7)).await;
    bench.disk().set_sealed_key(&key(9), &key(1), &sealed(1)).await.unwrap_err();
    assert_eq!(bench.disk().sealed_key().await, Ok(None), "only who opens the disk gives it another key");
    // Again with another, in place of the first.
    for byte in [1, 2] {
        bench.disk().set_sealed_key(&key(7), &key(byte), &sealed(byte)).await.unwrap();
        assert_eq!(bench.disk().sealed_key().await, Ok(Some(sealed(byte))));
    }
    // As many values as there may be fit into the header, those of the longer bank.
    let mut full = sealed(2);
    let value = |byte| UnlockValue { value: vec![byte; 48], signature: [byte; 64] };
    full.unlock.bank = Bank::Sha384;
    full.unlock.pcrs = [(4, (0..31).map(value).collect()), (15, vec![value(0)])].into();
    full.public = vec![2; 300];
    bench.disk().update_sealed_key(&full).await.unwrap();
    assert_eq!(bench.disk().sealed_key().await, Ok(Some(full)));
    bench.reboot();
    assert!(matches!(bench.found().await, Ok(DiskFound::Ours { second_key: Some(_), open: false, .. })));
    for wrong in [1, 7] {
        assert_eq!(bench.disk().unlock_sealed(&key(wrong)).await, Err(UnlockError::WrongKey), "of another slot");
    }
    assert_eq!(bench.disk().unlock(&key(2)).await, Err(UnlockError::WrongKey));
    bench.disk().unlock_sealed(&key(2)).await.unwrap();
    // Killed between the removal of the token and that of the key slot.
    bench.cryptsetup(&["token", "remove", "--token-id", "1"]);
    assert!(matches!(bench.found().await, Ok(DiskFound::Ours { second_key: None, open: true, .. })));
    bench.disk().remove_sealed_key().await.unwrap();
    bench.reboot();
    bench.disk().unlock_sealed(&key(2)).await.unwrap_err();
    bench.disk().unlock(&key(7)).await.unwrap();
    assert!(bench.names("run/sparkfleet").is_empty(), "no key is left");
}

/// As its second key opens it, which a forger can have sealed to the TPM himself.
#[tokio::test]
async fn a_disk_that_is_open_is_not_taken_for_the_one_that_a_ticket_opens() {
    let bench = Bench::new();
    bench.make_member(&key(9)).await;
    bench.disk().set_sealed_key(&key(9), &key(1), &sealed(1)).await.unwrap();
    bench.reboot();
    bench.disk().unlock_sealed(&key(1)).await.unwrap();
    assert!(bench.at("dev/mapper/state").exists());
    assert_eq!(bench.disk().unlock(&key(7)).await, Err(UnlockError::WrongKey));
    assert!(!bench.at("dev/mapper/state").exists(), "nothing is left open");
    assert!(matches!(bench.found().await, Ok(DiskFound::Ours { open: false, .. })));
}

#[tokio::test]
async fn a_key_that_was_changed_before_a_crash_is_not_changed_again() {
    let bench = Bench::new();
    bench.disk().prepare(&DiskFound::Blank).await.unwrap();
    let temporary = fs::read(bench.at("run/sparkfleet/state.key")).unwrap();
    bench.disk().set_key(&key(7)).await.unwrap();
    // Killed between the change and the removal of the temporary passphrase.
    fs::write(bench.at("run/sparkfleet/state.key"), temporary).unwrap();
    bench.disk().set_key(&key(7)).await.unwrap();
    assert!(bench.names("run/sparkfleet").is_empty());
    // Without the temporary passphrase no other key can be set.
    let error = bench.disk().set_key(&key(9)).await.unwrap_err().0;
    assert!(error.contains("luksChangeKey: ended with code"), "{error}");
    assert!(bench.names("run/sparkfleet").is_empty(), "the key that was not set is gone");
}

/// Where the directories of the configuration lie.
const DIRECTORIES: [&str; 3] = ["/var/lib/kubelet", "/etc/rancher", "/var/lib/cni"];

/// Mounts the directories with the mount program and the list of mounts that are given.
async fn mount_directories(bench: &Bench, mount: &str, is_member: bool) -> Result<(), String> {
    let disk = DiskConfig {
        directories: DIRECTORIES.map(PathBuf::from).to_vec(),
        mount: mount.into(),
        ..DiskConfig::default()
    };
    let directories = StateDirectories::new(&Config { disk, ..Config::default() }, bench.root.path());
    directories.mount(is_member).await.map_err(|error| error.0)
}

#[tokio::test]
async fn directories_of_kubernetes_lie_on_the_disk_also_after_a_reboot_and_what_lies_elsewhere_is_reported() {
    let bench = Bench::new();
    let mount = bench.at("bin/mount").display().to_string();
    bench.disk().prepare(&DiskFound::Blank).await.unwrap();
    // What a package left behind is covered.
    fs::create_dir_all(bench.at("var/lib/kubelet")).unwrap();
    for _ in 0..2 {
        mount_directories(&bench, &mount, false).await.unwrap();
    }
    let commands = fs::read_to_string(bench.at("commands")).unwrap();
    assert_eq!(commands.lines().filter(|line| line.starts_with("mount --bind")).count(), DIRECTORIES.len());
    fs::write(bench.at("var/lib/kubelet/config.yaml"), "x").unwrap();
    assert!(bench.at("content/directories/var/lib/kubelet/config.yaml").exists(), "it is on the disk");

    // A member's file that lies beside the disk is neither covered nor used.
    bench.reboot();
    programs::mount_state(bench.root.path());
    fs::create_dir_all(bench.at("etc/rancher/k3s")).unwrap();
    fs::remove_dir(bench.at("content/directories/etc/rancher")).unwrap();
    let error = mount_directories(&bench, &mount, true).await.unwrap_err();
    assert!(error.contains("etc/rancher holds 1 entries in clear, outside of the state disk; move them to"), "{error}");
    fs::remove_dir(bench.at("etc/rancher/k3s")).unwrap();
    mount_directories(&bench, &mount, true).await.unwrap();
    assert!(bench.at("var/lib/kubelet/config.yaml").exists(), "it came back with the disk");

    // A mount of something else, and a program that mounts nothing.
    bench.reboot();
    programs::mount_state(bench.root.path());
    let elsewhere = format!("9 1 8:1 / {} rw - ext4 /dev/sdb1 rw\n", bench.at("etc/rancher").display());
    let mountinfo = fs::read_to_string(bench.at("proc/self/mountinfo")).unwrap();
    fs::write(bench.at("proc/self/mountinfo"), mountinfo + &elsewhere).unwrap();
    let error = mount_directories(&bench, &mount, true).await.unwrap_err();
    assert!(error.contains("etc/rancher is a mount of /dev/sdb1, and must lie on the state disk"), "{error}");
    bench.reboot();
    programs::mount_state(bench.root.path());
    let error = mount_directories(&bench, "/bin/true", true).await.unwrap_err();
    assert!(error.ends_with("var/lib/kubelet does not lie on the state disk after it was mounted"), "{error}");
}

/// As containerd, libcni and host-local leave them when power is cut: empty.
#[tokio::test]
async fn what_network_plugins_noted_of_pods_ends_with_the_boot_and_nothing_else_does() {
    let bench = Bench::new();
    let mount = bench.at("bin/mount").display().to_string();
    bench.disk().prepare(&DiskFound::Blank).await.unwrap();
    mount_directories(&bench, &mount, false).await.unwrap();
    let of_the_boot = ["results/pods-4711-eth0", "networks/pods/10.42.0.2"];
    let kept = ["var/lib/cni/bin/bridge", "var/lib/kubelet/results/x"];
    let written: Vec<String> = of_the_boot.iter().map(|name| format!("var/lib/cni/{name}")).collect();
    for path in written.iter().map(String::as_str).chain(kept) {
        fs::create_dir_all(bench.at(path).parent().unwrap()).unwrap();
        fs::write(bench.at(path), "").unwrap();
    }
    // A bootstrapper that is started again while pods run.
    mount_directories(&bench, &mount, true).await.unwrap();
    assert!(written.iter().all(|path| bench.at(path).exists()), "pods that run keep their addresses");
    bench.reboot();
    programs::mount_state(bench.root.path());
    mount_directories(&bench, &mount, true).await.unwrap();
    assert_eq!(bench.names("var/lib/cni"), ["bin"]);
    assert!(kept.iter().all(|path| bench.at(path).exists()));
}

/// With the mounts of the kernel, in a mount name space of the test's own: the same test again, within it.
#[tokio::test]
async fn directories_are_bind_mounts_as_the_kernel_lists_them() {
    const WITHIN: &str = "SPARKFLEET_TEST_MOUNT_NAMESPACE";
    if std::env::var_os(WITHIN).is_none() {
        let unshared = |program: &str| {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--mount", program]);
            command
        };
        let is_allowed = unshared("/bin/true").status().unwrap().success();
        assert!(
            is_allowed,
            "bind mounts need a mount name space, and `unshare --map-root-user --mount` is refused here: run the test as root, or allow users to have name spaces of their own (sysctl user.max_user_namespaces)"
        );
        let name = "disk::directories_are_bind_mounts_as_the_kernel_lists_them";
        let exe = std::env::current_exe().unwrap().display().to_string();
        let ended = unshared(&exe).args(["--exact", name]).env(WITHIN, "1").output().unwrap();
        let stdout = String::from_utf8_lossy(&ended.stdout);
        return assert!(ended.status.success() && stdout.contains("1 passed"), "{stdout}");
    }
    let bench = Bench::new();
    for folder in ["run/state", "var/lib/kubelet"] {
        fs::create_dir_all(bench.at(folder)).unwrap();
    }
    fs::remove_dir_all(bench.at("proc")).unwrap();
    std::os::unix::fs::symlink("/proc", bench.at("proc")).unwrap();
    let state = bench.at("run/state");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "state"]).arg(&state).status().unwrap();
    assert!(mounted.success());
    fs::write(bench.at("var/lib/kubelet/left"), "in clear").unwrap();
    for _ in 0..2 {
        mount_directories(&bench, "/usr/bin/mount", false).await.unwrap();
    }
    assert!(!bench.at("var/lib/kubelet/left").exists(), "covered");
    fs::write(bench.at("var/lib/kubelet/config.yaml"), "x").unwrap();
    assert!(state.join("directories/var/lib/kubelet/config.yaml").exists());
    // Something else on top of it is seen.
    let covered =
        Command::new("mount").args(["-t", "tmpfs", "other"]).arg(bench.at("var/lib/kubelet")).status().unwrap();
    assert!(covered.success());
    let error = mount_directories(&bench, "/usr/bin/mount", true).await.unwrap_err();
    assert!(error.contains("var/lib/kubelet is a mount of other"), "{error}");
}
