//! A simulated edge cluster: an API, hosts, a Sealed Secrets controller and Flux, as the bootstrap script leaves them. No kubelet runs; hosts
//! are what tests and demonstrations say they are.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::flux::chart::Charts;
use crate::flux::manifests::{self, BuildError};
use crate::flux::{Flux, FluxOptions, install};
use crate::jobs::{Hook, Jobs};
use crate::kubernetes::discovery::GIT_VERSION;
use crate::kubernetes::error::ApiError;
use crate::kubernetes::{Kubernetes, KubernetesOptions, ObjectRef, wall_ms};
use crate::sealed_secrets::SealedSecrets;

/// Taint that reserves a host for deployments that ask for it.
pub const SPECIALISED: &str = "factoryplus.app.amrc.co.uk/specialised";

/// Namespace and Service of the simulated Sealed Secrets controller; the defaults of the edge-cluster chart.
pub const SEALED_SECRETS: (&str, &str) = ("sealed-secrets", "sealed-secrets");

pub use crate::sealed_secrets::CERTIFICATE as SEALING_CERTIFICATE;

/// Certificate of the authority of every simulated cluster; no one has its key, because a simulated API speaks plain HTTP.
pub const CLUSTER_AUTHORITY: &str = include_str!("../data/cluster-authority-simulated.crt");

const KUBELET: &str = "kubelet";

/// A host of a simulated cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSpec {
    /// Name, also of the Node.
    pub hostname: String,
    /// `amd64`, `arm64`, ...
    pub arch: String,
    /// Whether it carries the control plane.
    pub control_plane: bool,
    /// Operating system; the simulator adds that it is simulated.
    pub os: String,
    pub k8s_version: String,
    /// Value of the taint that reserves the host.
    pub specialised: Option<String>,
}

impl HostSpec {
    pub fn worker(hostname: &str) -> Self {
        Self {
            hostname: hostname.to_string(),
            arch: "amd64".to_string(),
            control_plane: false,
            os: "Debian GNU/Linux 12 (bookworm)".to_string(),
            k8s_version: GIT_VERSION.to_string(),
            specialised: None,
        }
    }

    /// A host with the control plane.
    pub fn control_plane(hostname: &str) -> Self {
        Self { control_plane: true, ..Self::worker(hostname) }
    }

    #[must_use]
    pub fn specialised(mut self, value: &str) -> Self {
        self.specialised = Some(value.to_string());
        self
    }

    fn node(&self) -> Value {
        let mut labels = json!({
            "kubernetes.io/hostname": self.hostname, "kubernetes.io/arch": self.arch, "kubernetes.io/os": "linux", "sparkfleet.simulated": "true"
        });
        if self.control_plane {
            labels["node-role.kubernetes.io/control-plane"] = json!("true");
        }
        let mut spec = json!({});
        if let Some(value) = &self.specialised {
            spec["taints"] = json!([{ "key": SPECIALISED, "value": value, "effect": "NoExecute" }]);
        }
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": self.hostname, "labels": labels }, "spec": spec })
    }

    fn status(&self, ready: bool) -> Value {
        json!({
            "nodeInfo": {
                "architecture": self.arch, "kubeletVersion": self.k8s_version, "kubeProxyVersion": self.k8s_version,
                "osImage": format!("{} (simulated)", self.os), "operatingSystem": "linux", "kernelVersion": "simulated",
                "containerRuntimeVersion": "simulated://0", "machineID": "simulated", "systemUUID": "simulated", "bootID": "simulated"
            },
            "addresses": [{ "type": "Hostname", "address": self.hostname }],
            "capacity": { "cpu": "4", "memory": "8Gi", "pods": "110" },
            "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" },
            "conditions": conditions(ready)
        })
    }
}

fn conditions(ready: bool) -> Value {
    let time = crate::kubernetes::store::timestamp(wall_ms());
    let (status, reason, message) = if ready {
        ("True", "KubeletReady", "simulated kubelet is posting ready status")
    } else {
        ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    };
    json!([{
        "type": "Ready", "status": status, "reason": reason, "message": message, "lastHeartbeatTime": time, "lastTransitionTime": time
    }])
}

/// A cluster to simulate.
#[derive(Clone)]
pub struct ClusterSpec {
    /// Name of the cluster, as in its configuration.
    pub name: String,
    /// Namespace of the edge services.
    pub namespace: String,
    /// Hosts from the start.
    pub hosts: Vec<HostSpec>,
    /// Port of the API on 127.0.0.1; 0 for a free one.
    pub port: u16,
    /// Whether a Sealed Secrets controller answers.
    pub sealed_secrets: bool,
    pub flux: bool,
    /// Whether it does so only when someone has installed it ([`install`]).
    pub flux_to_install: bool,
    /// What does the work of Jobs; none: they stay as they are.
    pub jobs: Option<Hook>,
    pub flux_options: FluxOptions,
    /// How the API behaves; its name is set to the cluster's.
    pub kubernetes: KubernetesOptions,
}

impl fmt::Debug for ClusterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterSpec").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ClusterSpec {
    /// A cluster in namespace `fplus-edge` with one control plane host and everything switched on.
    pub fn new(name: &str) -> Self {
        let hostname = format!("{}-1", configdb_schema::address::k8s_name(&[name]));
        Self {
            name: name.to_string(),
            namespace: "fplus-edge".to_string(),
            hosts: vec![HostSpec::control_plane(&hostname)],
            port: 0,
            sealed_secrets: true,
            flux: true,
            flux_to_install: false,
            jobs: None,
            flux_options: FluxOptions::default(),
            kubernetes: KubernetesOptions::default(),
        }
    }
}

/// A running simulated cluster.
#[derive(Debug)]
pub struct SimulatedCluster {
    name: String,
    namespace: String,
    kubernetes: Kubernetes,
    address: SocketAddr,
    flux: Option<Flux>,
    jobs: Option<Jobs>,
    sealed_secrets: Mutex<Option<SealedSecrets>>,
}

impl SimulatedCluster {
    /// Starts a cluster whose Flux can install these charts.
    pub async fn start(spec: ClusterSpec, charts: Charts) -> io::Result<Self> {
        let kubernetes = Kubernetes::new(KubernetesOptions { name: spec.name.clone(), ..spec.kubernetes });
        if spec.flux_to_install {
            install::remove_definitions(&kubernetes).map_err(io::Error::other)?;
        } else {
            kubernetes.ensure_namespace(&spec.namespace);
        }
        let address = kubernetes.serve(spec.port).await?;
        let start = if spec.flux_to_install { Flux::when_installed } else { Flux::start };
        let flux = spec.flux.then(|| start(kubernetes.clone(), charts, spec.flux_options));
        let jobs = spec.jobs.map(|hook| Jobs::start(kubernetes.clone(), hook));
        let sealed_secrets = Mutex::default();
        let cluster =
            Self { name: spec.name, namespace: spec.namespace, kubernetes, address, flux, jobs, sealed_secrets };
        for host in &spec.hosts {
            cluster.add_host(host).map_err(io::Error::other)?;
        }
        cluster.set_sealed_secrets(spec.sealed_secrets).await.map_err(io::Error::other)?;
        tracing::info!(
            cluster = cluster.name,
            url = cluster.url(),
            hosts = spec.hosts.len(),
            "simulated cluster is up"
        );
        Ok(cluster)
    }

    /// Name of the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Namespace of the edge services.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The API in process: faults, direct reads and writes.
    pub fn kubernetes(&self) -> &Kubernetes {
        &self.kubernetes
    }

    /// Base URL of the API.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig for kubectl.
    pub fn kube_config(&self) -> String {
        let name = format!("sparkfleet-simulated-{}", self.name);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name, "preferences": {},
            "clusters": [{ "name": name, "cluster": { "server": self.url() } }],
            "contexts": [{ "name": name, "context": { "cluster": name, "user": name, "namespace": self.namespace } }],
            "users": [{ "name": name, "user": {} }]
        });
        // JSON is YAML.
        format!("{config:#}\n")
    }

    /// Adds a host, or changes one.
    pub fn add_host(&self, host: &HostSpec) -> Result<(), ApiError> {
        add_host(&self.kubernetes, host)
    }

    /// Takes a host out of the cluster.
    pub fn remove_host(&self, hostname: &str) -> Result<(), ApiError> {
        self.kubernetes.delete(&node(hostname)).map(|_| ())
    }

    /// A host becomes ready, or its kubelet falls silent.
    pub fn set_host_ready(&self, hostname: &str, ready: bool) -> Result<(), ApiError> {
        self.kubernetes.merge_status(KUBELET, &node(hostname), json!({ "conditions": conditions(ready) })).map(|_| ())
    }

    /// Renews the heartbeat of a ready host: a change that means nothing.
    pub fn heartbeat(&self, hostname: &str) -> Result<(), ApiError> {
        let present = self.kubernetes.get("v1", "Node", "", hostname)?;
        let mut renewed = present["status"]["conditions"].clone();
        let time = jiff::Timestamp::now().to_string();
        for condition in renewed.as_array_mut().into_iter().flatten() {
            condition["lastHeartbeatTime"] = json!(time);
        }
        self.kubernetes.merge_status(KUBELET, &node(hostname), json!({ "conditions": renewed })).map(|_| ())
    }

    /// Reserves a host, or frees it.
    pub fn taint(&self, hostname: &str, specialised: Option<&str>) -> Result<(), ApiError> {
        let taints = specialised.map(|value| json!([{ "key": SPECIALISED, "value": value, "effect": "NoExecute" }]));
        self.kubernetes.merge("kubectl", &node(hostname), json!({ "spec": { "taints": taints } })).map(|_| ())
    }

    /// Switches the Sealed Secrets controller on or off. Its Service, once there, stays; without the controller the API answers 503 for it.
    pub async fn set_sealed_secrets(&self, on: bool) -> Result<(), ApiError> {
        let (namespace, name) = SEALED_SECRETS;
        let mut running = self.sealed_secrets.lock().await;
        if !on {
            self.kubernetes.remove_backend(namespace, name);
            if let Some(controller) = running.take() {
                controller.stop().await;
            }
            return Ok(());
        }
        if running.is_none() {
            *running = Some(SealedSecrets::start(self.kubernetes.clone()));
        }
        self.kubernetes.ensure_namespace(namespace);
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "namespace": namespace, "labels": { "sparkfleet.simulated": "true" } },
            "spec": { "selector": { "app.kubernetes.io/name": "sealed-secrets" }, "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }] }
        });
        self.kubernetes.apply("helm-controller", service)?;
        let paths = BTreeMap::from([("v1/cert.pem".to_string(), SEALING_CERTIFICATE.to_string())]);
        self.kubernetes.set_backend(namespace, name, paths);
        Ok(())
    }

    /// What `kubectl apply -f` does with these manifests: how the bootstrap script's last step brings `self-link.yaml` in. Objects without namespace go to the cluster's.
    pub fn apply_manifests(&self, yaml: &str) -> Result<(), ManifestError> {
        let mut objects = manifests::documents("manifests", yaml)?;
        objects.sort_by_key(manifests::stage);
        for mut object in objects {
            if object["metadata"]["namespace"].as_str().is_none_or(str::is_empty) {
                object["metadata"]["namespace"] = json!(self.namespace);
            }
            let kind = self.kubernetes.kind(ObjectRef::of(&object).api_version, ObjectRef::of(&object).kind)?;
            if !kind.namespaced
                && let Some(metadata) = object["metadata"].as_object_mut()
            {
                metadata.shift_remove("namespace");
            }
            self.kubernetes.apply("kubectl", object)?;
        }
        Ok(())
    }

    /// Creates or changes the Secret that Flux reads repositories with.
    pub fn set_git_credentials(&self, username: &str, password: &str) -> Result<(), ApiError> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "flux-secrets", "namespace": self.namespace },
            "stringData": { "username": username, "password": password }
        });
        self.kubernetes.apply("kubectl", secret).map(|_| ())
    }

    /// Stops Flux, what charts have started in this process, and the API.
    pub async fn stop(self) {
        if let Some(flux) = self.flux {
            flux.stop().await;
        }
        if let Some(jobs) = self.jobs {
            jobs.stop().await;
        }
        if let Some(controller) = self.sealed_secrets.lock().await.take() {
            controller.stop().await;
        }
        self.kubernetes.stop();
    }
}

/// Why manifests cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// They cannot be read.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The API refuses one.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// What the kubelet of a host does when it registers: adds its Node, or changes it, and says that it is ready.
pub fn add_host(kubernetes: &Kubernetes, host: &HostSpec) -> Result<(), ApiError> {
    kubernetes.apply(KUBELET, host.node())?;
    kubernetes.merge_status(KUBELET, &node(&host.hostname), host.status(true))?;
    Ok(())
}

fn node(hostname: &str) -> ObjectRef<'_> {
    ObjectRef { api_version: "v1", kind: "Node", namespace: "", name: hostname }
}
