//! What Flux' source-controller does, for its real neighbours: fetches GitRepositories, packs HelmCharts, and serves both as artifacts over HTTP.
//!
//! Fetching is the simulator's, packing is `helm package` and `helm pull`. What it does not do: OCI, buckets, `valuesFiles`, verification.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use flate2::Compression;
use flate2::write::GzEncoder;
use kube::Client;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use simulator::flux::chart::check_chart;
use simulator::flux::condition::{self, Outcome};
use simulator::flux::git::{self, Checkout, Remote};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::control_plane::ControlPlane;
use crate::definitions;
use crate::kubelet::node::now;

const API_VERSION: &str = "source.toolkit.fluxcd.io/v1";
const MANAGER: &str = "source-controller";

/// How often the objects are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// How soon a source that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Hexadecimal digits of a commit in the version of a chart, as Flux has them.
const SHORT_COMMIT: usize = 12;

type Key = (String, String);
type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// The running server and its loop; both end when it is dropped.
#[derive(Debug)]
pub struct Sources {
    _tasks: JoinSet<()>,
}

impl Sources {
    /// Starts it.
    ///
    /// # Panics
    /// No port can be had.
    pub async fn start(plane: &ControlPlane) -> Self {
        let listener = TcpListener::bind(plane.network().control_plane(0)).await.expect("a port can be had");
        let base = format!("http://{}", listener.local_addr().expect("it is bound"));
        let files = Files::default();
        let router = Router::new().fallback(serve).with_state(files.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.expect("the listener stays") });
        let directory = tempfile::tempdir().expect("a directory can be made");
        let helm = plane.programs().program("helm");
        let worker = Worker { client: plane.client(), helm, base, files, directory, known: BTreeMap::new() };
        tasks.spawn(worker.run());
        Self { _tasks: tasks }
    }
}

async fn serve(State(files): State<Files>, uri: Uri) -> Result<Vec<u8>, StatusCode> {
    let files = files.lock().unwrap_or_else(PoisonError::into_inner);
    files.get(uri.path().trim_start_matches('/')).cloned().ok_or(StatusCode::NOT_FOUND)
}

/// What is remembered of an object.
#[derive(Debug, Default)]
struct Memory {
    checkout: Option<Arc<Checkout>>,
    /// Of the git repository that is checked out.
    revision: Option<String>,
    /// Generation, and revision of the source, that were last worked on.
    done: Option<(i64, Option<String>)>,
    due: Option<Instant>,
}

/// A file to be served.
struct Artifact {
    name: String,
    revision: String,
    content: Vec<u8>,
}

struct Worker {
    client: Client,
    helm: PathBuf,
    base: String,
    files: Files,
    directory: TempDir,
    known: BTreeMap<(&'static str, Key), Memory>,
}

impl Worker {
    async fn run(mut self) {
        loop {
            for kind in ["GitRepository", "HelmRepository", "HelmChart"] {
                // The API server may be away in a test about that.
                let api = definitions::api_everywhere(self.client.clone(), API_VERSION, kind);
                let Ok(found) = api.list(&ListParams::default()).await else { continue };
                for object in found.items {
                    self.reconcile(kind, &object).await;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn reconcile(&mut self, kind: &'static str, object: &DynamicObject) {
        let key =
            (object.metadata.namespace.clone().unwrap_or_default(), object.metadata.name.clone().unwrap_or_default());
        let value = serde_json::to_value(object).expect("what came as JSON goes as JSON");
        let source = (kind == "HelmChart").then(|| self.revision_of(&key, &value)).flatten();
        let done = (object.metadata.generation.unwrap_or_default(), source);
        let memory = self.known.entry((kind, key.clone())).or_default();
        let is_due = memory.due.is_none_or(|due| Instant::now() >= due)
            || memory.done.as_ref() != Some(&done)
            || condition::pending_request(&value).is_some();
        if !is_due || condition::is_suspended(&value) || condition::is_deleted(&value) {
            return;
        }
        let made = match kind {
            "GitRepository" => self.fetch(&key, &value).await.map(Some),
            "HelmChart" => self.pack(&key, &value).await.map(Some),
            _ => Ok(None),
        };
        let is_made = made.is_ok();
        let reported = self.report(kind, &key, &value, made).await;
        let interval = condition::interval(&value, Duration::from_secs(60));
        let memory = self.known.entry((kind, key)).or_default();
        memory.done = Some(done);
        memory.due = Some(Instant::now() + if is_made && reported { interval } else { RETRY });
    }

    async fn fetch(&mut self, key: &Key, object: &Value) -> Result<Artifact, Outcome> {
        let secret = match git::secret_name(object) {
            Some(name) => {
                let found = definitions::api(self.client.clone(), "v1", "Secret", &key.0).get(&name).await;
                let missing = |error| format!("failed to get secret '{}/{name}': {error}", key.0);
                let secret = found.map_err(|error| Outcome::failed("AuthenticationFailed", missing(error)))?;
                Some(serde_json::to_value(&secret).expect("what came as JSON goes as JSON"))
            }
            None => None,
        };
        let memory = self.known.entry(("GitRepository", key.clone())).or_default();
        let failed = |error: git::GitError| Outcome::failed("GitOperationFailed", error.to_string());
        let checkout = match memory.checkout.clone() {
            Some(checkout) => checkout,
            None => Arc::new(Checkout::new().map_err(failed)?),
        };
        memory.checkout = Some(checkout.clone());
        let revision = checkout.update(&Remote::of(object, secret.as_ref())).await.map_err(failed)?;
        let content = pack_tree(&checkout.path()).map_err(storage)?;
        memory.revision = Some(revision.clone());
        let commit = revision.rsplit(':').next().unwrap_or_default();
        let name = format!("gitrepository/{}/{}/{commit}.tar.gz", key.0, key.1);
        Ok(Artifact { name, revision, content })
    }

    /// The revision of the git repository that a chart comes from.
    fn revision_of(&self, key: &Key, chart: &Value) -> Option<String> {
        self.known.get(&("GitRepository", source_of(key, chart)))?.revision.clone()
    }

    async fn pack(&mut self, key: &Key, object: &Value) -> Result<Artifact, Outcome> {
        let spec = &object["spec"];
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        let out = self.directory.path().join("charts").join(&key.0).join(&key.1);
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir_all(&out).map_err(storage)?;
        let mut helm = Command::new(&self.helm);
        helm.env("HOME", self.directory.path());
        if spec["sourceRef"]["kind"] == "GitRepository" {
            let source = source_of(key, object);
            let memory = self.known.get(&("GitRepository", source));
            let fetched = memory.and_then(|memory| memory.checkout.clone().zip(memory.revision.clone()));
            let absent = || Outcome::failed("SourceUnavailable", "no artifact available for GitRepository source");
            let (checkout, revision) = fetched.ok_or_else(absent)?;
            let chart = text("chart");
            let refused = |rule| Outcome::failed("InvalidChartReference", format!("chart '{chart}' {rule}"));
            check_chart(&checkout.path(), &chart).map_err(refused)?;
            let path = checkout.path().join(chart.trim_start_matches("./"));
            helm.arg("package").arg(&path).arg("--destination").arg(&out);
            if spec["reconcileStrategy"] == "Revision" {
                let commit: String =
                    revision.rsplit(':').next().unwrap_or_default().chars().take(SHORT_COMMIT).collect();
                helm.args(["--version", &format!("{}+{commit}", version_of(&path).map_err(storage)?)]);
            }
        } else {
            let (namespace, name) = source_of(key, object);
            let repository = definitions::api(self.client.clone(), API_VERSION, "HelmRepository", &namespace);
            let found = repository.get(&name).await;
            let found = found.map_err(|error| Outcome::failed("SourceUnavailable", error.to_string()))?;
            let url = found.data["spec"]["url"].as_str().unwrap_or_default();
            helm.args(["pull", &text("chart"), "--repo", url, "--version", &text("version"), "--destination"])
                .arg(&out);
        }
        let output = helm.output().await.map_err(storage)?;
        if !output.status.success() {
            return Err(Outcome::failed("ChartPackageError", String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        chart_artifact(key, &out).map_err(storage)
    }

    /// Serves the artifact and writes the status; false: the API does not take it.
    async fn report(&self, kind: &str, key: &Key, object: &Value, made: Result<Option<Artifact>, Outcome>) -> bool {
        let (outcome, artifact) = match made {
            Ok(Some(artifact)) => {
                let message = format!("stored artifact for revision '{}'", artifact.revision);
                (Outcome::ready("Succeeded", message), Some(artifact))
            }
            Ok(None) => (Outcome::ready("Succeeded", "a repository of charts"), None),
            Err(outcome) => (outcome, None),
        };
        let mut status = condition::status(object, &outcome, &now());
        if let Some(artifact) = artifact {
            let url = format!("{}/{}", self.base, artifact.name);
            status["artifact"] = json!({
                "path": artifact.name, "url": url, "revision": artifact.revision, "size": artifact.content.len(),
                "digest": format!("sha256:{}", hex::encode(Sha256::digest(&artifact.content))), "lastUpdateTime": now()
            });
            if kind == "HelmChart" {
                status["observedChartName"] = object["spec"]["chart"].clone();
                status["observedSourceArtifactRevision"] = json!(self.revision_of(key, object).unwrap_or_default());
            }
            self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(artifact.name, artifact.content);
        }
        let api = definitions::api(self.client.clone(), API_VERSION, kind, &key.0);
        let patch = Patch::Merge(json!({ "status": status }));
        api.patch_status(
            &key.1,
            &PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() },
            &patch,
        )
        .await
        .is_ok()
    }
}

fn source_of(key: &Key, chart: &Value) -> Key {
    (key.0.clone(), chart["spec"]["sourceRef"]["name"].as_str().unwrap_or_default().to_owned())
}

fn storage(error: io::Error) -> Outcome {
    Outcome::failed("StorageOperationFailed", error.to_string())
}

/// The version in a `Chart.yaml`, which [`check_chart`] has seen.
fn version_of(chart: &Path) -> io::Result<String> {
    let text = std::fs::read_to_string(chart.join("Chart.yaml"))?;
    let read: Value = serde_saphyr::from_str(&text).map_err(io::Error::other)?;
    Ok(read["version"].as_str().unwrap_or_default().to_owned())
}

/// The one file that helm has written; its version is the artifact's revision.
fn chart_artifact(key: &Key, directory: &Path) -> io::Result<Artifact> {
    let entry = std::fs::read_dir(directory)?.next().ok_or_else(|| io::Error::other("helm wrote no chart"))??;
    let content = std::fs::read(entry.path())?;
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(content.as_slice()));
    for file in archive.entries()? {
        let mut file = file?;
        let path = file.path()?.into_owned();
        if path.components().count() == 2 && path.ends_with("Chart.yaml") {
            let mut text = String::new();
            io::Read::read_to_string(&mut file, &mut text)?;
            let read: Value = serde_saphyr::from_str(&text).map_err(io::Error::other)?;
            let revision = read["version"].as_str().unwrap_or_default().to_owned();
            let name = format!("helmchart/{}/{}/{}", key.0, key.1, entry.file_name().to_string_lossy());
            return Ok(Artifact { name, revision, content });
        }
    }
    Err(io::Error::other("helm wrote a chart without Chart.yaml"))
}

/// Everything of a checkout but git's own directory; the same files make the same bytes.
fn pack_tree(tree: &Path) -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    builder.mode(tar::HeaderMode::Deterministic);
    builder.follow_symlinks(false);
    let mut entries: Vec<_> = std::fs::read_dir(tree)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        if entry.file_name() == ".git" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            builder.append_dir_all(entry.file_name(), entry.path())?;
        } else {
            builder.append_path_with_name(entry.path(), entry.file_name())?;
        }
    }
    builder.into_inner()?.finish()
}
