//! Installs components: downloads each to its end, looks at its SHA-256, and only then puts it in its place. There is no component without a hash.
//!
//! Archives (`.tgz`, `.tar.gz`) are unpacked below their path. Only files, folders and links that stay below it are taken.

use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Component as Part, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::header::LOCATION;
use hyper::{Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use join_protocol::message::grant::Component;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use uuid::Uuid;

use super::cryptsetup::Removed;
use super::files::{below, make_folder_of};
use crate::platform::{Activity, Outcome, PlatformError};

/// Where Debian and others keep the authorities of the system.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// How often a download is tried.
const ATTEMPTS_MAX: u32 = 4;
/// First wait before the next; it doubles.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Longest time without a byte.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Redirects that are followed.
const REDIRECTS_MAX: usize = 5;
/// An archive may be so many times larger than it is packed.
const UNPACKED_FACTOR: u64 = 8;
/// Files and folders that an archive may hold.
const ENTRIES_MAX: usize = 10_000;
const EXECUTABLE: u32 = 0o755;

type HttpsClient = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

/// Installs components below a root directory.
#[derive(Debug, Clone)]
pub struct Components {
    root: PathBuf,
    bytes_max: u64,
    ca_file: Option<PathBuf>,
}

/// Why a download failed.
enum DownloadError {
    /// It may go better later.
    Passing(String),
    /// It will not.
    Lasting(String),
}

fn passing(error: impl std::fmt::Display) -> DownloadError {
    DownloadError::Passing(error.to_string())
}

fn lasting(error: impl std::fmt::Display) -> DownloadError {
    DownloadError::Lasting(error.to_string())
}

impl Components {
    /// `bytes_max`: of one component; `ca_file`: authorities for HTTPS, those of the system if None.
    #[must_use]
    pub const fn new(root: PathBuf, bytes_max: u64, ca_file: Option<PathBuf>) -> Self {
        Self { root, bytes_max, ca_file }
    }

    /// Installs them, one after another.
    ///
    /// # Errors
    /// The first that cannot be had, is too large, has another hash, or cannot be written.
    pub async fn install(&self, components: &[Component], activity: &Activity) -> Outcome<()> {
        for (at, component) in components.iter().enumerate() {
            activity.say(format!("component {} of {}: {}", at + 1, components.len(), component.path));
            let installed = self.install_one(component).await;
            installed.map_err(|error| PlatformError::new(format_args!("component {}", component.url), error))?;
        }
        Ok(())
    }

    async fn install_one(&self, component: &Component) -> Outcome<()> {
        let target = below(&self.root, Path::new(&component.path));
        let is_archive = is_archive(&component.url);
        if !is_archive && hash_of(&target).is_some_and(|hash| hash == component.sha256) {
            return Ok(());
        }
        let folder = if is_archive { target.clone() } else { target.parent().unwrap_or(&target).to_owned() };
        make_folder_of(&folder.join("x"))?;
        let part = Removed(folder.join(format!(".part-{}", Uuid::new_v4().simple())));
        self.download(&component.url, &part.0).await?;
        let found = hash_of(&part.0).ok_or_else(|| PlatformError("the download cannot be read".to_owned()))?;
        if found != component.sha256 {
            let (found, wanted) = (hex::encode(found), hex::encode(component.sha256));
            return Err(PlatformError(format!("its SHA-256 is {found}, and {wanted} is wanted")));
        }
        if is_archive {
            let (archive, bytes_max) = (part.0.clone(), self.bytes_max.saturating_mul(UNPACKED_FACTOR));
            let unpacked = tokio::task::spawn_blocking(move || unpack(&archive, &target, bytes_max)).await;
            return unpacked.map_err(|error| PlatformError::new("unpacking", error))?;
        }
        let executable = File::open(&part.0)
            .and_then(|file| {
                file.set_permissions(fs::Permissions::from_mode(EXECUTABLE)).and_then(|()| file.sync_all())
            })
            .and_then(|()| fs::rename(&part.0, &target));
        executable.map_err(|error| PlatformError::new(target.display(), error))
    }

    async fn download(&self, url: &str, to: &Path) -> Outcome<()> {
        let mut wait = RETRY_AFTER;
        for attempt in 1.. {
            match self.try_download(url, to).await {
                Ok(()) => return Ok(()),
                Err(DownloadError::Passing(reason)) if attempt < ATTEMPTS_MAX => {
                    tracing::warn!(url, reason, attempt, "download failed, tries again");
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                Err(DownloadError::Passing(reason) | DownloadError::Lasting(reason)) => {
                    return Err(PlatformError(format!("cannot be downloaded: {reason}")));
                }
            }
        }
        Ok(())
    }

    async fn try_download(&self, url: &str, to: &Path) -> Result<(), DownloadError> {
        if let Some(path) = url.strip_prefix("file://") {
            let from = File::open(below(&self.root, Path::new(path))).map_err(lasting)?;
            return copy_bounded(from, to, self.bytes_max);
        }
        let client = self.client().map_err(lasting)?;
        let mut uri: Uri = url.parse().map_err(lasting)?;
        for _ in 0..=REDIRECTS_MAX {
            let answer = tokio::time::timeout(STALL_MAX, client.get(uri.clone())).await.map_err(passing)?;
            let answer = answer.map_err(|error| passing(chain(&error)))?;
            let status = answer.status();
            if status.is_redirection() {
                uri = redirected(&uri, &answer).ok_or_else(|| lasting(format!("{status} leads nowhere")))?;
                continue;
            }
            if !status.is_success() {
                let may_pass = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429);
                return Err(if may_pass { passing(status) } else { lasting(status) });
            }
            return self.save(answer.into_body(), to).await;
        }
        Err(lasting("too many redirects"))
    }

    async fn save(&self, mut body: Incoming, to: &Path) -> Result<(), DownloadError> {
        let mut file = create(to).map_err(lasting)?;
        let mut left = self.bytes_max;
        while let Some(frame) = tokio::time::timeout(STALL_MAX, body.frame()).await.map_err(passing)? {
            let Ok(data) = frame.map_err(|error| passing(chain(&error)))?.into_data() else { continue };
            left = left
                .checked_sub(data.len() as u64)
                .ok_or_else(|| lasting(format!("it has more than {} bytes", self.bytes_max)))?;
            file.write_all(&data).map_err(lasting)?;
        }
        Ok(())
    }

    fn client(&self) -> Outcome<HttpsClient> {
        let authorities = match &self.ca_file {
            Some(path) => below(&self.root, path),
            None => PathBuf::from(SYSTEM_AUTHORITIES),
        };
        let mut roots = RootCertStore::empty();
        // Without any authority only HTTP works, and HTTPS says so.
        if let Ok(certificates) = CertificateDer::pem_file_iter(&authorities) {
            roots.add_parsable_certificates(certificates.filter_map(Result::ok));
        } else if self.ca_file.is_some() {
            return Err(PlatformError::new(authorities.display(), "cannot be read"));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| PlatformError::new("TLS", error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
        Ok(Client::builder(TokioExecutor::new()).build(connector))
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Where an answer leads: never from HTTPS to anything else.
fn redirected(from: &Uri, answer: &Response<Incoming>) -> Option<Uri> {
    let location: Uri = answer.headers().get(LOCATION)?.to_str().ok()?.parse().ok()?;
    let mut parts = location.into_parts();
    if parts.scheme.is_none() {
        parts.scheme = from.scheme().cloned();
        parts.authority = from.authority().cloned();
    }
    let uri = Uri::from_parts(parts).ok()?;
    (uri.scheme_str() == Some("https") || from.scheme_str() == Some("http")).then_some(uri)
}

fn is_archive(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    path.ends_with(".tgz") || path.ends_with(".tar.gz")
}

fn create(path: &Path) -> std::io::Result<File> {
    fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn copy_bounded(from: impl Read, to: &Path, bytes_max: u64) -> Result<(), DownloadError> {
    let mut file = create(to).map_err(lasting)?;
    let copied = std::io::copy(&mut from.take(bytes_max.saturating_add(1)), &mut file).map_err(lasting)?;
    if copied > bytes_max { Err(lasting(format!("it has more than {bytes_max} bytes"))) } else { Ok(()) }
}

/// SHA-256 of a file, if it can be read.
fn hash_of(path: &Path) -> Option<[u8; 32]> {
    let mut file = File::open(path).ok()?;
    let (mut context, mut part) = (digest::Context::new(&digest::SHA256), vec![0; 64 * 1024]);
    loop {
        match file.read(&mut part).ok()? {
            0 => return context.finish().as_ref().try_into().ok(),
            length => context.update(&part[..length]),
        }
    }
}

/// Unpacks an archive below `folder`.
fn unpack(archive: &Path, folder: &Path, bytes_max: u64) -> Outcome<()> {
    let failed = |error: std::io::Error| PlatformError::new("archive", error);
    let packed = File::open(archive).map_err(failed)?;
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed));
    let mut left = bytes_max;
    for (at, entry) in archive.entries().map_err(failed)?.enumerate() {
        let mut entry = entry.map_err(failed)?;
        let name = entry.path().map_err(failed)?.into_owned();
        if at == ENTRIES_MAX {
            return Err(PlatformError(format!("archive: it holds more than {ENTRIES_MAX} entries")));
        }
        let Some(path) = place(folder, &name)? else { continue };
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            make_folder_of(&path.join("x"))?;
        } else if kind.is_file() {
            let size = entry.header().size().map_err(failed)?;
            left =
                left.checked_sub(size).ok_or_else(|| PlatformError("archive: it is too large unpacked".to_owned()))?;
            let mode = entry.header().mode().map_err(failed)? & 0o755;
            write_entry(&mut entry, &path, mode).map_err(failed)?;
        } else if kind.is_symlink() {
            let target = entry.link_name().map_err(failed)?.unwrap_or_default().into_owned();
            link(folder, &path, &target)?;
        } else {
            return Err(PlatformError(format!("archive: {} is neither file, folder nor link", name.display())));
        }
    }
    Ok(())
}

/// Where an entry goes; None: it is the folder itself. No part of the way may be a link, which another entry may have made.
fn place(folder: &Path, name: &Path) -> Outcome<Option<PathBuf>> {
    let mut path = folder.to_owned();
    for part in name.components() {
        match part {
            Part::Normal(part) => path.push(part),
            Part::CurDir => continue,
            Part::ParentDir | Part::RootDir | Part::Prefix(_) => {
                return Err(PlatformError(format!("archive: {} leaves its folder", name.display())));
            }
        }
    }
    let is_link = |path: &Path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    let between = path.ancestors().skip(1).take_while(|ancestor| *ancestor != folder);
    if path != folder && between.into_iter().any(is_link) {
        return Err(PlatformError(format!("archive: {} goes through a link", name.display())));
    }
    Ok((path != folder).then_some(path))
}

/// Written beside its place first: a program that runs from there keeps the old file.
fn write_entry(from: &mut impl Read, path: &Path, mode: u32) -> std::io::Result<()> {
    let make = make_folder_of(path);
    make.map_err(|error| std::io::Error::other(error.0))?;
    let part = path.with_file_name(format!(".part-{}", Uuid::new_v4().simple()));
    let written = create(&part).and_then(|mut file| {
        std::io::copy(from, &mut file)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()
    });
    let moved = written.and_then(|()| fs::rename(&part, path));
    if moved.is_err() {
        // Best effort: the error above is the one worth telling.
        let _ = fs::remove_file(&part);
    }
    moved
}

/// A link at `path` to `target`, which must lie below the folder.
fn link(folder: &Path, path: &Path, target: &Path) -> Outcome<()> {
    let stays = target.components().all(|part| matches!(part, Part::Normal(_) | Part::CurDir));
    if !stays || target.as_os_str().is_empty() || !path.starts_with(folder) {
        return Err(PlatformError(format!("archive: the link {} leads to {}", path.display(), target.display())));
    }
    make_folder_of(path)?;
    super::files::remove(path)?;
    symlink(target, path).map_err(|error| PlatformError::new(path.display(), error))
}

#[cfg(test)]
mod tests;
