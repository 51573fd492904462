//! Reads the files of [`join_trust::replica`]: from a directory that no other user may read, or from a Kubernetes Secret.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use uuid::Uuid;
use zeroize::{Zeroize, Zeroizing};

use crate::config::TrustConfig;
use join_trust::replica::{FILES, Files, Trust};

/// The most bytes of one file.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Files that are not secret: other users may read them.
const PUBLIC: [&str; 6] = ["issuer.certificates", "root.pub", "ca.crt", "sa.pub", "front-proxy-ca.crt", "etcd-ca.crt"];

/// Reads what the configuration names.
///
/// # Errors
/// A file cannot be read, may be read by others, is missing or wrong; or the Secret cannot be read.
pub async fn read(config: &TrustConfig, client: &Client, namespace: &str, cluster: Uuid) -> anyhow::Result<Trust> {
    let files = match (&config.directory, &config.secret) {
        (Some(directory), _) => from_directory(directory)?,
        (None, Some(secret)) => from_secret(client, namespace, secret).await?,
        (None, None) => bail!("neither trust.directory nor trust.secret is given"),
    };
    Ok(Trust::read(&files, cluster)?)
}

fn from_directory(directory: &Path) -> anyhow::Result<Files> {
    let mut files = Files::new();
    for name in FILES {
        let path = directory.join(name);
        let metadata = match std::fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 && !PUBLIC.contains(name) {
            bail!("{} has mode {mode:o}: others may read it; set it to 600", path.display());
        }
        if metadata.len() > FILE_BYTES_MAX {
            bail!("{} has {} bytes; at most {FILE_BYTES_MAX} are allowed", path.display(), metadata.len());
        }
        let content = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        files.insert((*name).to_owned(), Zeroizing::new(content));
    }
    Ok(files)
}

async fn from_secret(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Files> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret =
        api.get(name).await.with_context(|| format!("cannot read the Secret {name} in namespace {namespace}"))?;
    let mut files = Files::new();
    for (key, mut content) in secret.data.into_iter().flatten() {
        if FILES.contains(&key.as_str()) {
            files.insert(key, Zeroizing::new(content.0));
        } else {
            content.0.zeroize();
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_that_others_may_read_is_refused_by_name_and_mode() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, mode: u32| {
            let path = directory.path().join(name);
            std::fs::write(&path, b"00").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write("ca.crt", 0o644);
        write("master.key", 0o600);
        write("unrelated", 0o644);
        let files = from_directory(directory.path()).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["ca.crt", "master.key"]);
        write("master.key", 0o640);
        let error = from_directory(directory.path()).unwrap_err().to_string();
        assert!(error.ends_with("master.key has mode 640: others may read it; set it to 600"), "{error}");
    }
}
