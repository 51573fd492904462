//! An in-process Kubernetes API: a store of objects behind the real API's HTTP interface, good enough that kube-rs, kubectl and controllers written
//! for the real thing work on it. It simulates the API server, its storage and its garbage collection; no container ever runs.
//!
//! ```text
//!   kube-rs / kubectl ── HTTP/1.1 ──> http.rs ─┬─> store.rs ──> watch.rs (log) ──> stream.rs ──> watches
//!   simulated controllers (in process) ────────┘      │
//!                                 admission.rs, schema.rs, apply.rs + fields.rs, merge.rs, selector.rs: pure rules
//! ```
//!
//! It says of itself that it is simulated (`/version`), and has no authentication, no TLS, no admission webhooks and no protobuf. So it must never listen on anything but the
//! loopback interface, and [`Kubernetes::serve`] does not. A client that reaches it may do everything, except on an address that it is served on to one account ([`Kubernetes::serve_as`]).

pub mod access;
pub mod admission;
pub mod apply;
pub mod discovery;
pub mod error;
pub mod faults;
pub mod fields;
mod form;
pub mod http;
pub mod kinds;
pub mod merge;
pub mod rbac;
pub mod schema;
pub mod selector;
pub mod store;
pub mod stream;
pub mod table;
pub mod watch;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use access::Denied;
use error::ApiError;
use faults::{Break, Fault, Faults};
use kinds::{Kind, ResourceId};
use rbac::Account;
use store::{DeleteOptions, Deleted, ListOptions, Patch, Store, WriteOptions};

/// How a simulated API behaves.
#[derive(Debug, Clone)]
pub struct KubernetesOptions {
    /// Name; UIDs are derived from it.
    pub name: String,
    /// Changes kept for watches; older ones are answered 410 Gone.
    pub log_capacity: usize,
    /// How often an idle watch is sent a bookmark.
    pub bookmark_interval: Duration,
    /// Whether the definitions of Flux, Sealed Secrets and Factory+ are there from the start.
    pub with_definitions: bool,
}

impl Default for KubernetesOptions {
    fn default() -> Self {
        Self {
            name: "simulated".to_string(),
            log_capacity: 4096,
            bookmark_interval: Duration::from_secs(30),
            with_definitions: true,
        }
    }
}

/// Definitions that a cluster has after the bootstrap script and the edge-cluster chart.
const DEFINITIONS: &str = include_str!("../data/definitions.yaml");

/// The definitions that clusters have from the start.
pub(crate) fn definitions() -> Vec<Value> {
    serde_saphyr::from_multiple(DEFINITIONS).expect("the definitions in the package are YAML, as a test shows")
}

/// Namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Handle on a simulated API; clones share it.
#[derive(Debug, Clone)]
pub struct Kubernetes {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: KubernetesOptions,
    store: Mutex<Store>,
    faults: Mutex<Faults>,
    denied: Mutex<Vec<Denied>>,
    /// What answers behind a Service, by namespace and name: path -> text.
    backends: Mutex<BTreeMap<(String, String), BTreeMap<String, String>>>,
    changed: tokio::sync::watch::Sender<u64>,
    address: OnceLock<SocketAddr>,
    stop: CancellationToken,
}

/// Milliseconds since 1970, for the rim.
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A panic elsewhere while the lock was held leaves a store that is still consistent: every write commits at its end.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kubernetes {
    /// A cluster with its usual namespaces and nothing else.
    pub fn new(options: KubernetesOptions) -> Self {
        let seed =
            Uuid::new_v5(&Uuid::NAMESPACE_DNS, format!("{}.clusters.sparkfleet.simulated", options.name).as_bytes());
        // Versions start at the time, so that those of an earlier life of the same cluster are all smaller.
        let store = Store::new(seed, options.log_capacity, wall_ms());
        let version = store.version();
        let with_definitions = options.with_definitions;
        let inner = Inner {
            options,
            store: Mutex::new(store),
            faults: Mutex::default(),
            denied: Mutex::default(),
            backends: Mutex::default(),
            changed: tokio::sync::watch::Sender::new(version),
            address: OnceLock::new(),
            stop: CancellationToken::new(),
        };
        let kubernetes = Self { inner: Arc::new(inner) };
        for name in NAMESPACES {
            kubernetes.ensure_namespace(name);
        }
        if with_definitions {
            kubernetes.install_definitions();
        }
        kubernetes
    }

    fn install_definitions(&self) {
        for definition in definitions() {
            self.apply("sparkfleet-simulator", definition)
                .expect("the definitions in the package are valid, as a test shows");
        }
    }

    /// Serves the API on a free port of 127.0.0.1 (or the given one) until [`Self::stop`].
    pub async fn serve(&self, port: u16) -> io::Result<SocketAddr> {
        let address = self.listen(port, None).await?;
        // Served twice, it has two addresses; the first is the one it is known by.
        let _ = self.inner.address.set(address);
        Ok(address)
    }

    /// Serves the same on a further port of 127.0.0.1 to an account: what its rights do not allow is refused.
    pub async fn serve_as(&self, account: Arc<Account>) -> io::Result<SocketAddr> {
        self.listen(0, Some(account)).await
    }

    async fn listen(&self, port: u16, account: Option<Arc<Account>>) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let app = http::router(self.clone(), account);
        let stop = self.inner.stop.clone();
        tokio::spawn(async move {
            let served = axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned()).await;
            if let Err(error) = served {
                tracing::warn!(%error, "simulated Kubernetes API stopped serving");
            }
        });
        Ok(address)
    }

    /// Base URL, once it is served.
    pub fn url(&self) -> Option<String> {
        self.inner.address.get().map(|address| format!("http://{address}"))
    }

    /// Ends all watches and the server.
    pub fn stop(&self) {
        self.inner.stop.cancel();
    }

    /// Resolves when the API has been stopped.
    pub async fn stopped(&self) {
        self.inner.stop.cancelled().await;
    }

    /// The store, for reading.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        locked(&self.inner.store)
    }

    /// One write; watches are woken after it.
    pub fn write<T>(&self, change: impl FnOnce(&mut Store) -> Result<T, ApiError>) -> Result<T, ApiError> {
        let (result, version) = {
            let mut store = self.store();
            (change(&mut store), store.version())
        };
        self.inner.changed.send_if_modified(|seen| {
            let is_later = version > *seen;
            *seen = version.max(*seen);
            is_later
        });
        result
    }

    /// Changes with every write; controllers in process wait on it and look again.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// How often an idle watch is sent a bookmark.
    pub fn bookmark_interval(&self) -> Duration {
        self.inner.options.bookmark_interval
    }

    /// The kind behind a URL.
    pub fn served(&self, group: &str, version: &str, plural: &str) -> Result<Arc<Kind>, ApiError> {
        self.store().kinds().get(group, version, plural).cloned().ok_or_else(ApiError::no_such_resource)
    }

    /// The kind of an object.
    pub fn kind(&self, api_version: &str, kind: &str) -> Result<Arc<Kind>, ApiError> {
        self.store().kinds().by_object(api_version, kind).cloned().ok_or_else(ApiError::no_such_resource)
    }

    pub fn get(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<Arc<Value>, ApiError> {
        let kind = self.kind(api_version, kind)?;
        self.store().get(&kind, namespace, name)
    }

    /// All objects of a kind, of one namespace or all; none if the kind is not served.
    pub fn list(&self, api_version: &str, kind: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let Ok(kind) = self.kind(api_version, kind) else { return Vec::new() };
        self.store().list(&kind, namespace, &ListOptions::default()).map(|page| page.items).unwrap_or_default()
    }

    /// Applies an object, taking fields from other managers. Cluster-scoped kinds lose a stray namespace.
    pub fn apply(&self, manager: &str, object: Value) -> Result<Arc<Value>, ApiError> {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_string();
        let kind = self.kind(&text("apiVersion"), &text("kind"))?;
        let (namespace, name) = store::key_of(&object);
        let namespace = if kind.namespaced { namespace } else { String::new() };
        let options = WriteOptions::by(manager, wall_ms()).forced();
        self.write(|store| store.patch(&kind, &namespace, &name, &Patch::Apply(object), &options))
            .map(|(stored, _)| stored)
    }

    /// Merges a patch into an object.
    pub fn merge(&self, manager: &str, at: &ObjectRef<'_>, patch: Value) -> Result<Arc<Value>, ApiError> {
        let kind = self.kind(at.api_version, at.kind)?;
        let options = WriteOptions::by(manager, wall_ms());
        self.write(|store| store.patch(&kind, at.namespace, at.name, &Patch::Merge(patch), &options))
            .map(|(stored, _)| stored)
    }

    /// Merges a patch into the status of an object.
    pub fn merge_status(&self, manager: &str, at: &ObjectRef<'_>, status: Value) -> Result<Arc<Value>, ApiError> {
        let kind = self.kind(at.api_version, at.kind)?;
        let options = WriteOptions::by(manager, wall_ms()).status();
        let patch = Patch::Merge(serde_json::json!({ "status": status }));
        self.write(|store| store.patch(&kind, at.namespace, at.name, &patch, &options)).map(|(stored, _)| stored)
    }

    pub fn delete(&self, at: &ObjectRef<'_>) -> Result<Deleted, ApiError> {
        let kind = self.kind(at.api_version, at.kind)?;
        self.write(|store| store.delete(&kind, at.namespace, at.name, &DeleteOptions::default(), wall_ms()))
    }

    /// Creates a namespace unless it is there.
    pub fn ensure_namespace(&self, name: &str) {
        let object = serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        if let Err(error) = self.apply("sparkfleet-simulator", object) {
            tracing::warn!(namespace = name, %error, "simulated namespace could not be created");
        }
    }

    pub fn inject(&self, fault: Fault) {
        locked(&self.inner.faults).add(fault);
    }

    /// Requests do not fail any more.
    pub fn heal(&self) {
        locked(&self.inner.faults).clear();
    }

    /// Replaces the list of what is denied to users.
    pub fn deny(&self, denied: Vec<Denied>) {
        *locked(&self.inner.denied) = denied;
    }

    /// Delays every request from here on.
    pub fn set_latency(&self, latency: Duration) {
        locked(&self.inner.faults).set_latency(latency);
    }

    /// Breaks all watches that are open.
    pub fn break_watches(&self, how: Break) {
        locked(&self.inner.faults).break_watches(how);
    }

    /// What a restart of the API server is for its clients: watches end, and those that missed a write are answered 410 Gone when they come back.
    pub fn restart(&self) {
        self.store().restart_log();
        self.break_watches(Break::Cut);
    }

    /// Forgets the log: every watch, open or resumed, is answered 410 Gone.
    pub fn expire_log(&self) {
        // An expiry cannot be refused.
        let _ = self.write(|store| {
            store.expire_log();
            Ok(())
        });
    }

    fn breaks(&self) -> tokio::sync::watch::Receiver<Option<Break>> {
        locked(&self.inner.faults).breaks()
    }

    fn review(&self, request: &Value) -> Value {
        access::review(request, &locked(&self.inner.denied))
    }

    fn fault(&self, method: &str, path: &str) -> (Duration, Option<u16>) {
        let mut faults = locked(&self.inner.faults);
        (faults.latency(), faults.strike(method, path))
    }

    /// Puts something behind a Service that the API proxies GET requests to.
    pub fn set_backend(&self, namespace: &str, name: &str, paths: BTreeMap<String, String>) {
        locked(&self.inner.backends).insert((namespace.to_string(), name.to_string()), paths);
    }

    /// Takes it away again: the proxy answers 503.
    pub fn remove_backend(&self, namespace: &str, name: &str) {
        locked(&self.inner.backends).remove(&(namespace.to_string(), name.to_string()));
    }

    /// Answers `.../services/<[scheme:]name[:port]>/proxy/<path>`.
    fn proxy(&self, namespace: &str, target: &str, path: &str) -> Result<String, ApiError> {
        let parts: Vec<&str> = target.split(':').collect();
        let name = match parts.as_slice() {
            [name] | [name, _] => *name,
            [_, name, _] => *name,
            _ => return Err(ApiError::bad_request(format!("invalid service request {target:?}"))),
        };
        let services = ResourceId::new("", "services");
        self.get("v1", "Service", namespace, name).map_err(|_| ApiError::not_found(&services, name))?;
        let backends = locked(&self.inner.backends);
        let backend = backends
            .get(&(namespace.to_string(), name.to_string()))
            .ok_or_else(|| ApiError::unavailable(format!("no endpoints available for service \"{name}\"")))?;
        backend.get(path).cloned().ok_or_else(ApiError::no_such_resource)
    }
}

/// Where an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectRef<'a> {
    /// `apiVersion`.
    pub api_version: &'a str,
    pub kind: &'a str,
    /// Namespace, empty for cluster scope.
    pub namespace: &'a str,
    pub name: &'a str,
}

impl<'a> ObjectRef<'a> {
    /// The place of an object.
    pub fn of(object: &'a Value) -> Self {
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        Self {
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]),
        }
    }
}
