//! Nodes, and pods as processes: a kubelet without containers.
//!
//! The programs that stand for images run in a mount namespace and a root directory of their own, as user 65532, with ConfigMaps, Secrets and bound tokens where they
//! expect them. That needs the right to mount; [`Kubelet::start`] says so where it is missing. A pod without a known image is said to run.
//! What it does not do: init containers, volumes of other kinds, `envFrom`, probes other than HTTP, limits.

pub mod images;
pub mod node;
mod pod;
mod probe;
mod volumes;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Binding, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use serde_json::json;
use tokio::task::JoinSet;

use crate::control_plane::ControlPlane;

/// How often pods are looked at.
const LOOK: Duration = Duration::from_millis(150);

/// How often leases are renewed, as real kubelets do.
const LEASES: Duration = Duration::from_secs(10);

/// Last number of the first pod's address.
const FIRST_ADDRESS: u8 = 10;

/// What runs in the place of a container.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Arguments after those of the container.
    pub arguments: Vec<String>,
    /// Variables before those of the container.
    pub environment: Vec<(String, String)>,
}

impl Program {
    /// A program with nothing added.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, arguments: Vec::new(), environment: Vec::new() }
    }
}

/// The program for an image, in a pod with that address: all pods have the machine's network, so each has to listen on its own address.
pub type Images = Box<dyn Fn(&str, IpAddr) -> Option<Program> + Send + Sync>;

/// What a kubelet knows of its surroundings.
struct Surroundings {
    client: Client,
    images: Images,
    hosts: Vec<String>,
    host_address: IpAddr,
    api: std::net::SocketAddr,
    directory: PathBuf,
    /// Whether pods are bound here, because there is no scheduler.
    binds: bool,
    /// How often all tokens were due before their time.
    renewals: Arc<AtomicU32>,
}

/// The kubelets of some hosts; pods end when it is dropped.
#[derive(Debug)]
pub struct Kubelet {
    renewals: Arc<AtomicU32>,
    _task: JoinSet<()>,
}

impl Kubelet {
    /// Registers hosts, the first as control plane, and runs what is bound to them. Without a scheduler in the control plane (`binds`) it binds pods itself, to the host
    /// that their node selector names, else to the first.
    ///
    /// # Panics
    /// This process may not mount.
    pub async fn start(plane: &ControlPlane, hosts: &[&str], binds: bool, images: Images) -> Self {
        let allowed = std::process::Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
        assert!(
            allowed.is_ok_and(|status| status.success()),
            "pods as processes need a mount namespace: run the test as root (unshare --mount is refused)"
        );
        let surroundings = Surroundings {
            client: plane.client(),
            images,
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            host_address: plane.network().address(1),
            api: plane.api_address(),
            directory: plane.directory().join("pods"),
            binds,
            renewals: Arc::default(),
        };
        let renewals = Arc::clone(&surroundings.renewals);
        for (index, host) in hosts.iter().enumerate() {
            node::register(&surroundings.client, host, surroundings.host_address, index == 0).await;
        }
        let addresses = (FIRST_ADDRESS..=u8::MAX - 1).map(|last| plane.network().address(last)).collect();
        let mut task = JoinSet::new();
        task.spawn(Loop { surroundings, addresses, pods: BTreeMap::new() }.run());
        Self { renewals, _task: task }
    }

    /// Writes another token into each pod soon, as kubelets do when four fifths of its life have passed. Kubelets do not renew a token because the API server rejects it.
    pub fn renew_tokens(&self) {
        self.renewals.fetch_add(1, Ordering::SeqCst);
    }
}

struct Loop {
    surroundings: Surroundings,
    /// Those that no pod has.
    addresses: std::collections::VecDeque<IpAddr>,
    /// By uid.
    pods: BTreeMap<String, pod::PodProcess>,
}

impl Loop {
    async fn run(mut self) {
        let mut leased = Instant::now();
        loop {
            if leased.elapsed() > LEASES {
                for host in &self.surroundings.hosts {
                    // The next round tries again.
                    let _ = node::renew(&self.surroundings.client, host).await;
                }
                leased = Instant::now();
            }
            // The API server may be away in a test about that; pods run on meanwhile.
            let listed = Api::<Pod>::all(self.surroundings.client.clone()).list(&ListParams::default()).await;
            if let Ok(found) = listed {
                self.reconcile(found.items).await;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn reconcile(&mut self, found: Vec<Pod>) {
        let uids: Vec<String> = found.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
        let gone: Vec<String> = self.pods.keys().filter(|uid| !uids.contains(uid)).cloned().collect();
        for uid in gone {
            self.end(&uid).await;
        }
        for pod in found {
            let host = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            match host {
                None if self.surroundings.binds && pod.metadata.deletion_timestamp.is_none() => self.bind(&pod).await,
                Some(host) if self.surroundings.hosts.contains(&host) => self.step(pod).await,
                _ => {}
            }
        }
    }

    async fn bind(&self, pod: &Pod) {
        let selected = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
        let selected = selected.and_then(|labels| labels.get("kubernetes.io/hostname")).cloned();
        let Some(host) = selected.or_else(|| self.surroundings.hosts.first().cloned()) else { return };
        let (name, namespace) = name_of(pod);
        let binding = json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": host } });
        let binding: Binding = serde_json::from_value(binding).expect("it is a binding");
        let pods = Api::<Pod>::namespaced(self.surroundings.client.clone(), &namespace);
        // Refused when it is bound or gone meanwhile, which the next round sees.
        let _: Result<serde_json::Value, _> =
            pods.create_subresource("binding", &name, &PostParams::default(), &binding).await;
    }

    async fn step(&mut self, pod: Pod) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if pod.metadata.deletion_timestamp.is_some() {
            self.end(&uid).await;
            let (name, namespace) = name_of(&pod);
            let pods = Api::<Pod>::namespaced(self.surroundings.client.clone(), &namespace);
            let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
            let params = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
            // Gone meanwhile is as good.
            let _ = pods.delete(&name, &params).await;
            return;
        }
        if !self.pods.contains_key(&uid) {
            let Some(address) = self.addresses.pop_front() else { return };
            self.pods.insert(uid.clone(), pod::PodProcess::new(pod, address, &self.surroundings));
        }
        if let Some(process) = self.pods.get_mut(&uid) {
            process.step(&self.surroundings).await;
        }
    }

    async fn end(&mut self, uid: &str) {
        if let Some(mut process) = self.pods.remove(uid) {
            process.stop().await;
            self.addresses.push_back(process.address());
        }
    }
}

/// Name and namespace.
fn name_of(pod: &Pod) -> (String, String) {
    (pod.metadata.name.clone().unwrap_or_default(), pod.metadata.namespace.clone().unwrap_or_default())
}
