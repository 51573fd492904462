//! Which cluster a test runs on: one function for every test of a service that talks to a Kubernetes API.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use simulator::cluster::{ClusterSpec, SimulatedCluster};
use simulator::flux::chart::Charts;
use tempfile::TempDir;

use crate::audit::{Account, Audit};
use crate::control_plane::{ControlPlane, Options};
use crate::controllers::{self, Flux, FluxOptions};
use crate::definitions;
use crate::kubelet::node;
use crate::programs::Programs;
use crate::proxy::Proxy;

/// The environment variable that chooses: `own` starts a control plane for each test.
pub const CHOICE: &str = "SPARKFLEET_TEST_CLUSTER";

/// The chart of the edge's own services.
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../helm/edge-cluster");

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
    _flux: Option<Flux>,
    directory: TempDir,
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
    /// our chart; else a simulated cluster. Each has the hosts of `spec`, and Flux if `spec` says so (the named one has its own), and a namespace of the test's own.
    ///
    /// # Panics
    /// It cannot be started or reached.
    pub async fn start(spec: ClusterSpec, charts: Charts) -> Self {
        Self::start_in(new_namespace(), spec, charts, Options::default()).await
    }

    /// The same; a control plane of the test's own writes down what a service account of the test's namespace asks of it.
    ///
    /// # Panics
    /// As [`TestCluster::start`].
    pub async fn audited(spec: ClusterSpec, charts: Charts, account: &str) -> (Self, Audit) {
        let namespace = new_namespace();
        let audit = Audit::begin(Account { namespace: namespace.clone(), name: account.to_owned() });
        let options = Options { api_server: audit.flags(), ..Options::default() };
        (Self::start_in(namespace, spec, charts, options).await, audit)
    }

    async fn start_in(namespace: String, spec: ClusterSpec, charts: Charts, options: Options) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let hosts: Vec<String> = spec.hosts.iter().map(|host| host.hostname.clone()).collect();
        let mut kubeconfig = directory.path().join("kubeconfig");
        let mut flux = None;
        let kind = if let Some(named) = std::env::var_os("KUBECONFIG") {
            kubeconfig = PathBuf::from(named);
            Kind::Named
        } else if std::env::var(CHOICE).is_ok_and(|choice| choice == "own") {
            let mut plane = ControlPlane::with(options).await;
            kubeconfig = plane.kubeconfig();
            definitions::apply_all(&plane).await;
            for (index, host) in hosts.iter().enumerate() {
                node::register(&plane.client(), host, plane.network().address(1), index == 0).await;
            }
            if spec.flux {
                flux = Some(Flux::start(&mut plane, &FluxOptions::default()).await);
            }
            Kind::Own(Box::new(plane))
        } else {
            let simulated = SimulatedCluster::start(spec, charts).await.expect("a simulated cluster starts");
            std::fs::write(&kubeconfig, simulated.kube_config()).expect("the directory can be written");
            Kind::Simulated(Box::new(simulated))
        };
        let client = client(&kubeconfig).await;
        let object = serde_json::from_value(json!({ "metadata": { "name": namespace } })).expect("it is a namespace");
        let made = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await;
        made.unwrap_or_else(|error| panic!("namespace {namespace} cannot be made: {error}"));
        Self { kind, client, kubeconfig, namespace, proxy: None, _flux: flux, directory }
    }

    /// An administrator of it.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A service account of the test's namespace, by a token that the API server makes.
    ///
    /// # Panics
    /// There is no such account.
    pub async fn client_of(&self, account: &str) -> Client {
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), &self.namespace);
        let request = serde_json::from_value(json!({ "metadata": {}, "spec": { "audiences": [] } }));
        let request = request.expect("it is a request for a token");
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
        let answer = answer.unwrap_or_else(|error| panic!("no token of {account}: {error}"));
        let mut config = config(&self.kubeconfig).await;
        config.auth_info = AuthInfo { token: answer.status.map(|status| status.token.into()), ..AuthInfo::default() };
        Client::try_from(config).expect("a token makes a client")
    }

    /// Applies accounts, their rights and their namespaces of a template of the chart `edge-cluster`, as Helm renders it and `change` leaves it. Not on a simulated one, where everyone may do
    /// everything.
    ///
    /// # Panics
    /// Helm does not render it, or the API refuses it.
    pub async fn apply_accounts(&self, template: &str, values: &str, change: impl FnOnce(&str) -> String) {
        let programs = Programs::find().unwrap_or_else(|missing| panic!("{missing}"));
        let mut helm = Command::new(programs.program("helm"));
        helm.args([
            "template",
            "edge-cluster",
            CHART,
            "--namespace",
            &self.namespace,
            "--set",
            values,
            "--kube-version",
            "1.36",
        ]);
        helm.args(["--show-only", &format!("templates/{template}")]).env("HOME", self.directory.path());
        let output = helm.output().unwrap_or_else(|error| panic!("helm: {error}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let rendered = change(&String::from_utf8_lossy(&output.stdout));
        let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).expect("Helm writes YAML");
        for object in objects {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
            if ["Namespace", "ServiceAccount"].contains(&kind.as_str()) || api_version.starts_with("rbac.") {
                let namespace = text(&object["metadata"]["namespace"]);
                controllers::apply_by(&self.client, &api_version, &kind, &namespace, &object).await;
            }
        }
    }

    /// The file that programs reach it with.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Where the API answers an administrator without TLS and credentials, as `kubernetes.url` of a service's configuration has it: the simulated one itself, else a [`Proxy`].
    pub async fn url(&mut self) -> String {
        if let Kind::Simulated(simulated) = &self.kind {
            return simulated.url();
        }
        if self.proxy.is_none() {
            self.proxy = Some(Proxy::start(self.client()).await);
        }
        self.proxy.as_ref().map(Proxy::url).unwrap_or_default()
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

fn new_namespace() -> String {
    format!("sparkfleet-test-{}", &uuid::Uuid::new_v4().simple().to_string()[..8])
}

async fn client(kubeconfig: &Path) -> Client {
    Client::try_from(config(kubeconfig).await).expect("a kubeconfig makes a client")
}

async fn config(kubeconfig: &Path) -> Config {
    let read = Kubeconfig::read_from(kubeconfig);
    let read = read.unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()));
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    let mut config = config.unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()));
    config.default_retry = false;
    config
}
