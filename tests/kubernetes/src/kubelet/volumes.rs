//! ConfigMaps, Secrets and tokens as files below a pod's root, kept up to date.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret, ServiceAccount, Volume, VolumeProjection};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;

use super::{Surroundings, name_of};

/// User and group of the programs.
pub const USER: u32 = 65532;

/// Shortest life of a token that the API server gives, in seconds.
const TOKEN_SECONDS_MIN: i64 = 600;

type Files = BTreeMap<String, Vec<u8>>;

/// Where the files of a pod go, and when its token is due.
#[derive(Debug)]
pub struct Volumes {
    root: PathBuf,
    /// When the token is due, and how often all were due before their time when it was made.
    renew: Option<(Instant, u32)>,
}

impl Volumes {
    /// Below this root.
    pub fn new(root: PathBuf) -> Self {
        Self { root, renew: None }
    }

    /// Writes what has changed. False: something that the pod needs is not there yet.
    pub async fn update(&mut self, surroundings: &Surroundings, pod: &Pod, container: &Container) -> bool {
        let (_, namespace) = name_of(pod);
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        for mount in container.volume_mounts.as_deref().unwrap_or_default() {
            let Some(volume) = volumes.iter().find(|volume| volume.name == mount.name) else { return false };
            let Some(files) = self.files(surroundings, pod, &namespace, volume).await else { return false };
            let at = self.root.join(mount.mount_path.trim_start_matches('/'));
            let written = match &mount.sub_path {
                Some(path) => files.get(path).map(|content| write(&at, content)),
                None => Some(write_all(&at, &files)),
            };
            if !matches!(written, Some(Ok(()))) {
                return false;
            }
        }
        true
    }

    async fn files(
        &mut self,
        surroundings: &Surroundings,
        pod: &Pod,
        namespace: &str,
        volume: &Volume,
    ) -> Option<Files> {
        let client = &surroundings.client;
        if let Some(source) = &volume.config_map {
            let found = config_map(client, namespace, &source.name).await;
            return found.or_else(|| (source.optional == Some(true)).then(Files::new));
        }
        if let Some(source) = &volume.secret {
            let found = secret(client, namespace, source.secret_name.as_deref().unwrap_or_default()).await;
            return found.or_else(|| (source.optional == Some(true)).then(Files::new));
        }
        let Some(projected) = &volume.projected else { return Some(Files::new()) };
        let mut files = Files::new();
        for source in projected.sources.as_deref().unwrap_or_default() {
            files.extend(self.projection(surroundings, pod, namespace, source).await?);
        }
        Some(files)
    }

    async fn projection(
        &mut self,
        surroundings: &Surroundings,
        pod: &Pod,
        namespace: &str,
        source: &VolumeProjection,
    ) -> Option<Files> {
        let client = &surroundings.client;
        if let Some(source) = &source.config_map {
            return config_map(client, namespace, &source.name).await;
        }
        if source.downward_api.is_some() {
            return Some(Files::from([("namespace".to_owned(), namespace.as_bytes().to_vec())]));
        }
        let Some(source) = &source.service_account_token else { return Some(Files::new()) };
        let renewals = surroundings.renewals.load(Ordering::SeqCst);
        if self.renew.is_some_and(|(due, at)| Instant::now() < due && at == renewals) {
            return Some(Files::new());
        }
        let seconds = source.expiration_seconds.unwrap_or(3600).max(TOKEN_SECONDS_MIN);
        let token = token(client, pod, namespace, seconds).await?;
        // Kubelets renew at four fifths of a token's life.
        self.renew = Some((Instant::now() + Duration::from_secs(seconds.unsigned_abs()) * 4 / 5, renewals));
        Some(Files::from([(source.path.clone(), token.into_bytes())]))
    }
}

/// The data of a ConfigMap; None: it is not there.
pub async fn config_map(client: &Client, namespace: &str, name: &str) -> Option<Files> {
    let found = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(name).await.ok()??;
    Some(found.data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes())).collect())
}

/// The data of a Secret; None: it is not there.
pub async fn secret(client: &Client, namespace: &str, name: &str) -> Option<Files> {
    let found = Api::<Secret>::namespaced(client.clone(), namespace).get_opt(name).await.ok()??;
    Some(found.data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0)).collect())
}

/// A token of the pod's service account that is bound to the pod.
async fn token(client: &Client, pod: &Pod, namespace: &str, seconds: i64) -> Option<String> {
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
    let bound = json!({ "kind": "Pod", "apiVersion": "v1", "name": pod.metadata.name, "uid": pod.metadata.uid });
    let spec = json!({ "audiences": [], "expirationSeconds": seconds, "boundObjectRef": bound });
    let request: TokenRequest = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).ok()?;
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let answered = accounts.create_token_request(account, &PostParams::default(), &request).await.ok()?;
    Some(answered.status?.token)
}

fn write_all(directory: &Path, files: &Files) -> io::Result<()> {
    make(directory)?;
    files.iter().try_for_each(|(name, content)| write(&directory.join(name), content))
}

/// Replaces a file in one step, so that no program reads half of it.
fn write(file: &Path, content: &[u8]) -> io::Result<()> {
    if std::fs::read(file).is_ok_and(|before| before == content) {
        return Ok(());
    }
    make(file.parent().unwrap_or(file))?;
    let new = file.with_file_name(format!(".{}.new", file.file_name().unwrap_or_default().to_string_lossy()));
    std::fs::write(&new, content)?;
    std::os::unix::fs::chown(&new, Some(USER), Some(USER))?;
    std::fs::rename(new, file)
}

/// Makes a directory that belongs to the programs.
pub fn make(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    std::os::unix::fs::chown(directory, Some(USER), Some(USER))
}
