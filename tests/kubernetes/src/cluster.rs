//! Which cluster a test runs on: one function for every test of a service that talks to a Kubernetes API.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use simulator::cluster::{ClusterSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use tempfile::TempDir;

use crate::control_plane::ControlPlane;
use crate::definitions;
use crate::kubelet::node;
use crate::process::{Launch, Process};
use crate::programs::Programs;

/// The environment variable that chooses: `own` starts a control plane for each test.
pub const CHOICE: &str = "SPARKFLEET_TEST_CLUSTER";

/// How often a starting program is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// What answers.
#[derive(Debug)]
enum Kind {
    /// What KUBECONFIG names.
    Named,
    Own(Box<ControlPlane>),
    Simulated(Box<SimulatedCluster>),
}

/// The cluster of one test.
pub struct TestCluster {
    kind: Kind,
    client: Client,
    kubeconfig: PathBuf,
    namespace: String,
    proxy: Option<Proxy>,
    directory: TempDir,
}

/// What answers without TLS and credentials, and speaks to the API with those of the kubeconfig.
struct Proxy {
    url: String,
    _process: Process,
}

impl std::fmt::Debug for TestCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestCluster")
            .field("kind", &self.kind)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl TestCluster {
    /// The cluster that `KUBECONFIG` names; else, with `SPARKFLEET_TEST_CLUSTER=own`, a control plane of the test's own with the definitions of Flux, Sealed Secrets and
    /// our chart; else a simulated cluster. Each has the hosts of `spec` (the named one has its own), and a namespace of the test's own.
    ///
    /// # Panics
    /// It cannot be started or reached.
    pub async fn start(spec: ClusterSpec, charts: Charts) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let hosts: Vec<String> = spec.hosts.iter().map(|host| host.hostname.clone()).collect();
        let mut kubeconfig = directory.path().join("kubeconfig");
        let kind = if let Some(named) = std::env::var_os("KUBECONFIG") {
            kubeconfig = PathBuf::from(named);
            Kind::Named
        } else if std::env::var(CHOICE).is_ok_and(|choice| choice == "own") {
            let plane = ControlPlane::start().await;
            kubeconfig = plane.kubeconfig();
            definitions::apply_all(&plane).await;
            for (index, host) in hosts.iter().enumerate() {
                node::register(&plane.client(), host, plane.network().address(1), index == 0).await;
            }
            Kind::Own(Box::new(plane))
        } else {
            let simulated = SimulatedCluster::start(spec, charts).await.expect("a simulated cluster starts");
            std::fs::write(&kubeconfig, simulated.kube_config()).expect("the directory can be written");
            Kind::Simulated(Box::new(simulated))
        };
        let client = client(&kubeconfig).await;
        let namespace = format!("sparkfleet-test-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let object = serde_json::from_value(json!({ "metadata": { "name": namespace } })).expect("it is a namespace");
        let made = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await;
        made.unwrap_or_else(|error| panic!("namespace {namespace} cannot be made: {error}"));
        Self { kind, client, kubeconfig, namespace, proxy: None, directory }
    }

    /// An administrator of it.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The file that programs reach it with.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Where the API answers an administrator without TLS and credentials, as `kubernetes.url` of a service's configuration has it: the simulated one itself, else `kubectl proxy`.
    ///
    /// # Panics
    /// The proxy cannot be started.
    pub async fn url(&mut self) -> String {
        if let Kind::Simulated(simulated) = &self.kind {
            return simulated.url();
        }
        if self.proxy.is_none() {
            self.proxy = Some(Proxy::start(&self.kubeconfig, self.directory.path()).await);
        }
        self.proxy.as_ref().map(|proxy| proxy.url.clone()).unwrap_or_default()
    }

    /// Of the test.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The control plane, when it is the test's own.
    pub fn own(&mut self) -> Option<&mut ControlPlane> {
        if let Kind::Own(plane) = &mut self.kind { Some(plane) } else { None }
    }

    /// The simulated one, when it is that: for faults that a real API does not have at hand.
    #[must_use]
    pub fn simulated(&self) -> Option<&SimulatedCluster> {
        if let Kind::Simulated(simulated) = &self.kind { Some(simulated) } else { None }
    }

    /// Ends it; of a named cluster the test's namespace is deleted.
    pub async fn stop(self) {
        match self.kind {
            Kind::Simulated(simulated) => simulated.stop().await,
            Kind::Own(_) => {}
            Kind::Named => {
                let namespaces = Api::<Namespace>::all(self.client);
                // A cluster that is gone has no namespaces.
                let _ = namespaces.delete(&self.namespace, &DeleteParams::default()).await;
            }
        }
    }
}

impl Proxy {
    async fn start(kubeconfig: &Path, logs: &Path) -> Self {
        let programs = Programs::find().unwrap_or_else(|missing| panic!("{missing}"));
        let flags = ["proxy".to_owned(), "--port=0".to_owned(), format!("--kubeconfig={}", kubeconfig.display())];
        let launch = Launch::new("kubectl-proxy", &programs.program("kubectl"), flags);
        let mut process = Process::start(launch, logs).unwrap_or_else(|error| panic!("kubectl proxy: {error}"));
        loop {
            if let Some(address) = process.output().lines().find_map(|line| line.strip_prefix("Starting to serve on "))
            {
                return Self { url: format!("http://{address}"), _process: process };
            }
            assert!(process.is_running(), "{}", process.tail());
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn client(kubeconfig: &Path) -> Client {
    let read = Kubeconfig::read_from(kubeconfig);
    let read = read.unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()));
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    let mut config = config.unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()));
    config.default_retry = false;
    Client::try_from(config).expect("a kubeconfig makes a client")
}
