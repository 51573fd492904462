//! The files of a host: its record, and what a ticket brings. Each is written completely or not at all, so that a write which was interrupted is simply done again.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use der::Decode as _;
use join_protocol::message::grant::Membership;
use join_protocol::message::renewal::Renewal;
use join_protocol::transcript::Hash;
use join_tickets::certificate::to_pem;
use join_tickets::kubeadm::CONTROL_PLANE_FILES;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use service_runtime::atomic_file::{self, OWNER_ONLY};
use x509_cert::Certificate;
use zeroize::Zeroizing;

use super::certificate_request::der_of;
use crate::config::PathsConfig;
use crate::platform::{Outcome, PlatformError};
use crate::record::NodeRecord;
use crate::renewal::ValidityPeriod;

/// Folder of the record, below the state disk.
const RECORD: &str = "sparkfleet/node_state.json";
/// What the lock PCR is extended with when no issuer answers, hexadecimal, below the state disk.
const CLUSTER_ID: &str = "sparkfleet/cluster_id";
/// The kubelet's serving certificate, below the state disk.
pub const KUBELET_CERTIFICATE: &str = "kubelet/pki/serving.crt";
/// Its key, below the state disk.
pub const KUBELET_KEY: &str = "kubelet/pki/serving.key";
/// Public key of the SSH authority whose users may log in, below the state disk.
pub const SSH_AUTHORITY: &str = "ssh/ssh_ca.pub";
/// Certificate of the SSH host key, below the state disk.
pub const SSH_HOST_CERTIFICATE: &str = "ssh/ssh_host_ed25519_key-cert.pub";
/// Keys and certificates of a control plane.
pub const PKI: &str = "/etc/kubernetes/pki";

const FILE_BYTES_MAX: u64 = 64 * 1024;
const PUBLIC: u32 = 0o644;

/// Files below one root directory.
#[derive(Debug, Clone)]
pub struct Files {
    root: PathBuf,
    state: PathBuf,
}

/// A path below `root`, however it is written.
#[must_use]
pub fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Makes the folder of a file. Any user can pass through folders; a secret file is protected by its own mode.
///
/// # Errors
/// It cannot be made.
pub fn make_folder_of(path: &Path) -> Outcome<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
    made.map_err(|error| PlatformError::new(format_args!("cannot make {}", folder.display()), error))
}

/// Makes a folder of this mode; one that is there keeps its own. Those above it that lack are for any user.
///
/// # Errors
/// It cannot be made.
pub fn make_folder(path: &Path, mode: u32) -> Outcome<()> {
    make_folder_of(path)?;
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(PlatformError::new(format_args!("cannot make {}", path.display()), error))
        }
        _ => Ok(()),
    }
}

/// Writes a file of this mode, with its folder.
///
/// # Errors
/// A step failed; the file is then as it was.
pub fn write(path: &Path, content: &[u8], mode: u32) -> Outcome<()> {
    make_folder_of(path)?;
    let with_cause = |error: atomic_file::AtomicFileError| match std::error::Error::source(&error) {
        Some(cause) => PlatformError::new(&error, cause),
        None => PlatformError(error.to_string()),
    };
    atomic_file::write(path, content, Some(mode)).map_err(with_cause)
}

/// Removes a file; one that is not there is removed already.
///
/// # Errors
/// It is still there.
pub fn remove(path: &Path) -> Outcome<()> {
    removed(path, fs::remove_file(path))
}

/// Removes a folder with what is in it; one that is not there is removed already.
///
/// # Errors
/// Something of it is still there.
pub fn remove_folder(path: &Path) -> Outcome<()> {
    removed(path, fs::remove_dir_all(path))
}

fn removed(path: &Path, removed: io::Result<()>) -> Outcome<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(PlatformError::new(format_args!("cannot remove {}", path.display()), error))
        }
        _ => Ok(()),
    }
}

impl Files {
    /// Files below `root`.
    #[must_use]
    pub fn new(root: &Path, paths: &PathsConfig) -> Self {
        Self { root: root.to_owned(), state: below(root, &paths.state) }
    }

    /// The record, if there is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn record(&self) -> Outcome<Option<NodeRecord>> {
        let Some(bytes) = self.read(RECORD)? else { return Ok(None) };
        let record = NodeRecord::from_bytes(&bytes);
        record.map(Some).map_err(|error| PlatformError::new(self.state.join(RECORD).display(), error))
    }

    /// Reads a file below the state disk; None: there is none. Before the lock the disk may be a forged one, so only a regular file of bounded size is read, and no symbolic link is
    /// followed.
    fn read(&self, name: &str) -> Outcome<Option<Zeroizing<Vec<u8>>>> {
        let path = self.state.join(name);
        let open = || -> io::Result<File> {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            Ok(rustix::fs::openat2(File::open(&self.state)?, name, flags, Mode::empty(), resolve)?.into())
        };
        let unreadable = |error: &dyn std::fmt::Display| PlatformError::new(path.display(), error);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| unreadable(&error))?,
        };
        if !file.metadata().map_err(|error| unreadable(&error))?.is_file() {
            return Err(unreadable(&"is not a regular file"));
        }
        let mut bytes = Zeroizing::new(Vec::new());
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(unreadable(&format_args!("has more than {FILE_BYTES_MAX} bytes")));
        }
        Ok(Some(bytes))
    }

    fn read_text(&self, name: &str) -> Option<Zeroizing<String>> {
        let bytes = self.read(name).ok().flatten()?;
        std::str::from_utf8(&bytes).ok().map(|text| Zeroizing::new(text.to_owned()))
    }

    /// Writes the record.
    ///
    /// # Errors
    /// It is as it was.
    pub fn save(&self, record: &NodeRecord) -> Outcome<()> {
        write(&self.state.join(RECORD), &record.to_bytes(), OWNER_ONLY)
    }

    /// The cluster id, if it lies on the disk.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn cluster_id(&self) -> Outcome<Option<Hash>> {
        let Some(text) = self.read(CLUSTER_ID)? else { return Ok(None) };
        let mut id = [0; 32];
        let decoded = hex::decode_to_slice(text.trim_ascii(), &mut id);
        let path = self.state.join(CLUSTER_ID);
        decoded.map_err(|_| PlatformError(format!("{}: must have 64 hexadecimal digits", path.display())))?;
        Ok(Some(id))
    }

    /// Writes the cluster id, which only members know.
    ///
    /// # Errors
    /// It is as it was.
    pub fn save_cluster_id(&self, id: &Hash) -> Outcome<()> {
        write(&self.state.join(CLUSTER_ID), Zeroizing::new(hex::encode(id)).as_bytes(), OWNER_ONLY)
    }

    /// Removes the cluster id.
    ///
    /// # Errors
    /// It is still there.
    pub fn remove_cluster_id(&self) -> Outcome<()> {
        remove(&self.state.join(CLUSTER_ID))
    }

    /// Writes what a ticket brings: certificates, SSH authority, files of a control plane. `kubelet_key`: PEM.
    ///
    /// # Errors
    /// The first file that could not be written; writing all again later is right.
    pub fn write_membership(&self, membership: &Membership, kubelet_key: Option<&Zeroizing<String>>) -> Outcome<()> {
        if let Some((path, _)) = membership.files.iter().find(|(path, _)| !CONTROL_PLANE_FILES.contains(&path.as_str()))
        {
            return Err(PlatformError(format!("{path:?} is not a file of a control plane")));
        }
        for (path, content) in &membership.files {
            let is_public =
                Path::new(path).extension().is_some_and(|extension| extension == "crt" || extension == "pub");
            let path = below(&self.root, Path::new(PKI)).join(path);
            write(&path, content.expose(), if is_public { PUBLIC } else { OWNER_ONLY })?;
        }
        if let Some(key) = kubelet_key.filter(|_| !membership.kubelet_certificate.is_empty()) {
            self.write_kubelet_pair(&membership.kubelet_certificate, key)?;
        }
        self.write_line(SSH_HOST_CERTIFICATE, &membership.ssh_host_certificate)?;
        self.write_ssh_authority(&membership.ssh_authority)
    }

    /// Writes renewed certificates. `kubelet_key`: PEM, of the request.
    ///
    /// # Errors
    /// The first file that could not be written; the others are as they were.
    pub fn write_renewal(&self, renewal: &Renewal, kubelet_key: Option<&Zeroizing<String>>) -> Outcome<()> {
        if let Some(key) = kubelet_key.filter(|_| !renewal.kubelet_certificate.is_empty()) {
            self.write_kubelet_pair(&renewal.kubelet_certificate, key)?;
        }
        self.write_line(SSH_HOST_CERTIFICATE, &renewal.ssh_host_certificate)?;
        self.write_ssh_authority(&renewal.ssh_authority)
    }

    /// Writes the kubelet's serving certificate (DER) and its key (PEM). A key that is there already is not written again.
    ///
    /// # Errors
    /// One of both is as it was.
    pub fn write_kubelet_pair(&self, certificate: &[u8], key: &Zeroizing<String>) -> Outcome<()> {
        // The key first: a certificate without its key would be taken for a finished pair.
        if self.kubelet_key().as_ref() != Some(key) {
            write(&self.state.join(KUBELET_KEY), key.as_bytes(), OWNER_ONLY)?;
        }
        write(&self.state.join(KUBELET_CERTIFICATE), to_pem(certificate).as_bytes(), PUBLIC)
    }

    /// The kubelet's key, PEM, if there is one.
    #[must_use]
    pub fn kubelet_key(&self) -> Option<Zeroizing<String>> {
        self.read_text(KUBELET_KEY)
    }

    /// How long the certificates live that are there. One that cannot be read is logged and skipped: no program uses it.
    #[must_use]
    pub fn certificates(&self) -> Vec<ValidityPeriod> {
        let read = |name: &str| self.read_text(name);
        let kubelet = read(KUBELET_CERTIFICATE).map(|text| (KUBELET_CERTIFICATE, certificate_lifetime(&text)));
        let ssh = read(SSH_HOST_CERTIFICATE).map(|text| (SSH_HOST_CERTIFICATE, ssh_lifetime(&text)));
        let found = kubelet.into_iter().chain(ssh);
        found
            .filter_map(|(name, lifetime)| {
                if lifetime.is_none() {
                    tracing::warn!(name, "the certificate cannot be read");
                }
                lifetime
            })
            .collect()
    }

    /// Writes the SSH authority whose users may log in; an empty text means no authority.
    ///
    /// # Errors
    /// It is as it was.
    pub fn write_ssh_authority(&self, authority: &str) -> Outcome<()> {
        self.write_line(SSH_AUTHORITY, authority)
    }

    fn write_line(&self, name: &str, line: &str) -> Outcome<()> {
        if line.is_empty() {
            return Ok(());
        }
        write(&self.state.join(name), format!("{line}\n").as_bytes(), PUBLIC)
    }
}

/// Of a certificate in PEM.
fn certificate_lifetime(pem: &str) -> Option<ValidityPeriod> {
    let certificate = Certificate::from_der(&der_of(pem)?).ok()?;
    let validity = certificate.tbs_certificate().validity();
    let ms = |time: x509_cert::time::Time| u64::try_from(time.to_unix_duration().as_millis()).ok();
    Some(ValidityPeriod { from_ms: ms(validity.not_before)?, until_ms: ms(validity.not_after)? })
}

/// Of an SSH certificate, one line.
fn ssh_lifetime(line: &str) -> Option<ValidityPeriod> {
    let (from_s, until_s) = join_tickets::ssh::validity(line)?;
    Some(ValidityPeriod { from_ms: from_s.saturating_mul(1_000), until_ms: until_s.saturating_mul(1_000) })
}

/// Mode bits of a file; for tests and for checks before secrets are read.
///
/// # Errors
/// The file cannot be looked at.
pub fn mode_of(path: &Path) -> Outcome<u32> {
    let metadata = fs::metadata(path).map_err(|error| PlatformError::new(path.display(), error))?;
    Ok(metadata.permissions().mode() & 0o777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Progress;
    use join_protocol::terms::Role;
    use uuid::Uuid;

    fn files(root: &Path) -> Files {
        Files::new(root, &PathsConfig::default())
    }

    fn membership() -> Membership {
        Membership {
            node_name: "edge-1".to_owned(),
            kubelet_certificate: vec![0x30, 0],
            ssh_authority: "ssh-ed25519 AAAA".to_owned(),
            ssh_host_certificate: "ssh-ed25519-cert-v01@openssh.com BBBB edge-1".to_owned(),
            files: vec![("etcd/ca.key".to_owned(), "PRIVATE".into()), ("ca.crt".to_owned(), "PUBLIC".into())],
            ..Membership::default()
        }
    }

    #[test]
    fn renewed_certificates_replace_those_that_are_there_and_their_life_is_read() {
        const CERTIFICATE: &str = include_str!("../../../libs/join-attestation/tests/recorded/root.pem");
        let root = tempfile::tempdir().unwrap();
        let (files, key) = (files(root.path()), Zeroizing::new("KEY".to_owned()));
        let read = |name: &str| fs::read_to_string(root.path().join("run/state").join(name)).unwrap();
        assert_eq!((files.certificates(), files.kubelet_key()), (Vec::new(), None));
        files.write_membership(&membership(), Some(&key)).unwrap();
        assert_eq!(files.certificates(), [], "what cannot be read has no validity");
        let renewal = Renewal {
            node_name: "edge-1".to_owned(),
            kubelet_certificate: der_of(CERTIFICATE).unwrap().to_vec(),
            ssh_authority: "ssh-ed25519 CCCC".to_owned(),
            ssh_host_certificate: String::new(),
            local_unlock: None,
        };
        let inode = |name: &str| {
            std::os::unix::fs::MetadataExt::ino(&fs::metadata(root.path().join("run/state").join(name)).unwrap())
        };
        let key_file = inode(KUBELET_KEY);
        files.write_renewal(&renewal, Some(&key)).unwrap();
        assert_eq!(inode(KUBELET_KEY), key_file, "the key stays where it is");
        let validity = ValidityPeriod { from_ms: 1_795_295_582_000, until_ms: 253_402_300_799_000 };
        assert_eq!(files.certificates(), [validity]);
        assert_eq!(read(SSH_AUTHORITY), "ssh-ed25519 CCCC\n");
        assert_eq!(
            read(SSH_HOST_CERTIFICATE),
            "ssh-ed25519-cert-v01@openssh.com BBBB edge-1\n",
            "none came, so it stays"
        );
        files.write_renewal(&renewal, Some(&Zeroizing::new("OTHER".to_owned()))).unwrap();
        assert_eq!(files.kubelet_key().as_deref().map(String::as_str), Some("OTHER"));
    }

    #[test]
    fn what_a_ticket_brings_is_written_with_its_modes_and_again_over_a_half_written_state() {
        let root = tempfile::tempdir().unwrap();
        let key = Zeroizing::new("KEY".to_owned());
        let at = |path: &str| root.path().join(path);
        // What a process left that was killed in between, one of them a directory's worth of another attempt.
        fs::create_dir_all(at("etc/kubernetes/pki/etcd")).unwrap();
        fs::write(at("etc/kubernetes/pki/etcd/ca.key"), "PRI").unwrap();
        for _ in 0..2 {
            files(root.path()).write_membership(&membership(), Some(&key)).unwrap();
        }
        let wanted = [
            ("etc/kubernetes/pki/etcd/ca.key", "PRIVATE", 0o600),
            ("etc/kubernetes/pki/ca.crt", "PUBLIC", 0o644),
            ("run/state/kubelet/pki/serving.key", "KEY", 0o600),
            ("run/state/ssh/ssh_ca.pub", "ssh-ed25519 AAAA\n", 0o644),
        ];
        for (path, content, mode) in wanted {
            assert_eq!(
                (fs::read_to_string(at(path)).unwrap().as_str(), mode_of(&at(path))),
                (content, Ok(mode)),
                "{path}"
            );
        }
        let certificate = fs::read_to_string(at("run/state/kubelet/pki/serving.crt")).unwrap();
        assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----\nMAA="), "{certificate}");
    }

    #[test]
    fn the_cluster_id_is_read_as_it_was_written_and_one_that_cannot_be_read_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let (files, path) = (files(root.path()), root.path().join("run/state/sparkfleet/cluster_id"));
        assert_eq!((files.remove_cluster_id(), files.cluster_id()), (Ok(()), Ok(None)));
        files.save_cluster_id(&[7; 32]).unwrap();
        assert_eq!((files.cluster_id(), mode_of(&path)), (Ok(Some([7; 32])), Ok(0o600)));
        fs::write(&path, "07").unwrap();
        assert!(files.cluster_id().unwrap_err().0.ends_with("must have 64 hexadecimal digits"));
        assert_eq!((files.remove_cluster_id(), files.cluster_id()), (Ok(()), Ok(None)));
    }

    /// A disk may be another than that of this host until it is locked.
    #[test]
    fn what_a_forged_disk_holds_is_read_only_if_it_is_a_small_file_of_that_disk() {
        let root = tempfile::tempdir().unwrap();
        let (files, folder) = (files(root.path()), root.path().join("run/state/sparkfleet"));
        let record = NodeRecord::new(Progress::Member, Uuid::from_u128(1), Role::Worker, "edge-1", &[1; 32]);
        files.save(&record).unwrap();
        let (own, elsewhere) = (folder.join("node_state.json"), root.path().join("elsewhere"));
        fs::create_dir(&elsewhere).unwrap();
        fs::rename(&own, elsewhere.join("node_state.json")).unwrap();
        std::os::unix::fs::symlink(elsewhere.join("node_state.json"), &own).unwrap();
        assert!(files.record().is_err(), "a link to a file");
        fs::remove_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &folder).unwrap();
        assert!(files.record().is_err(), "a link to a folder");
        fs::remove_file(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &own, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(files.record().is_err(), "a pipe, which would be waited for");
        fs::remove_file(&own).unwrap();
        fs::write(&own, vec![b' '; 70_000]).unwrap();
        assert!(files.record().unwrap_err().0.ends_with("more than 65536 bytes"));
        std::os::unix::fs::symlink("/dev/zero", folder.join("cluster_id")).unwrap();
        assert!(files.cluster_id().is_err(), "endless");
    }

    #[test]
    fn files_that_are_none_of_a_control_plane_are_not_written() {
        let root = tempfile::tempdir().unwrap();
        let membership = Membership { files: vec![("admin.conf".to_owned(), "x".into())], ..membership() };
        let error = files(root.path()).write_membership(&membership, None).unwrap_err();
        assert_eq!(error.0, "\"admin.conf\" is not a file of a control plane");
        assert!(!root.path().join("etc").exists());
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error_and_not_absent() {
        let root = tempfile::tempdir().unwrap();
        let files = files(root.path());
        assert_eq!(files.record(), Ok(None));
        let record = NodeRecord::new(Progress::Joining, Uuid::from_u128(1), Role::Worker, "edge-1", &[1; 32]);
        files.save(&record).unwrap();
        assert_eq!(files.record(), Ok(Some(record)));
        fs::write(root.path().join("run/state/sparkfleet/node_state.json"), "{\"version\"").unwrap();
        let error = files.record().unwrap_err().0;
        assert!(error.contains("node_state.json: node_state.json: EOF"), "{error}");
    }
}
