//! A control plane as processes: etcd, API server, controller-manager and, on request, the scheduler.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::http::Request;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::network::Network;
use crate::process::{Launch, Process};
use crate::programs::Programs;

/// Longest wait for anything of the control plane, which is ready within seconds on a machine with nothing else to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often a state that sends no events is polled.
const LOOK: Duration = Duration::from_millis(50);

const API_PORT: u16 = 6443;
const ETCD_PORT: u16 = 2379;

/// Addresses of Services.
const SERVICES: &str = "10.96.0.0/16";

/// What is started beside etcd, API server and controller-manager.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The scheduler; without it pods stay unbound unless a test binds them.
    pub scheduler: bool,
    /// More arguments of the API server.
    pub api_server: Vec<String>,
}

/// A running control plane. It is killed when it is dropped, and when the test's process ends in any other way.
pub struct ControlPlane {
    programs: Programs,
    certificates: Certificates,
    client: Client,
    etcd: Process,
    api_server: Process,
    others: Vec<Process>,
    network: Network,
    directory: TempDir,
}

impl std::fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlPlane").field("network", &self.network).finish_non_exhaustive()
    }
}

impl ControlPlane {
    /// Starts etcd, API server and controller-manager.
    ///
    /// # Panics
    /// The programs are not there, or do not get ready; the message holds the ends of their logs.
    pub async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// Starts it with more or with other things.
    ///
    /// # Panics
    /// As [`ControlPlane::start`].
    pub async fn with(options: Options) -> Self {
        let programs = Programs::find().unwrap_or_else(|missing| panic!("{missing}"));
        let directory = tempfile::Builder::new().prefix("kubernetes-").tempdir().expect("a directory can be made");
        let network = Network::reserve();
        let certificates = sign(directory.path(), &network);
        let etcd = start(etcd(&programs, &network, directory.path()), directory.path());
        let launch = api_server(&programs, &network, &certificates, &options);
        let api_server = start(launch, directory.path());
        let client = client(&write_kubeconfig(directory.path(), &network, &certificates, "admin")).await;
        let others = Vec::new();
        let mut started = Self { programs, certificates, client, etcd, api_server, others, network, directory };
        started.ready().await;
        started.start_controllers(&options);
        started.has_service_account("default").await;
        started
    }

    fn start_controllers(&mut self, options: &Options) {
        let kubeconfig = self.write_kubeconfig("controller-manager");
        let flags = [
            format!("--kubeconfig={kubeconfig}"),
            format!("--bind-address={}", self.network.address(1)),
            format!("--service-account-private-key-file={}", self.certificates.path("sa.key")),
            format!("--root-ca-file={}", self.certificates.path("ca.crt")),
            format!("--cluster-signing-cert-file={}", self.certificates.path("ca.crt")),
            format!("--cluster-signing-key-file={}", self.certificates.path("ca.key")),
            "--use-service-account-credentials".to_owned(),
            "--leader-elect=false".to_owned(),
            "--controllers=*,bootstrapsigner,tokencleaner".to_owned(),
        ];
        let program = self.programs.program("kube-controller-manager");
        self.run(Launch::new("kube-controller-manager", &program, flags));
        if options.scheduler {
            let kubeconfig = self.write_kubeconfig("scheduler");
            let flags = [
                format!("--kubeconfig={kubeconfig}"),
                format!("--bind-address={}", self.network.address(1)),
                "--leader-elect=false".to_owned(),
            ];
            self.run(Launch::new("kube-scheduler", &self.programs.program("kube-scheduler"), flags));
        }
    }

    /// Starts a program that belongs to this control plane and ends with it.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn run(&mut self, launch: Launch) {
        let process = start(launch, self.directory.path());
        self.others.push(process);
    }

    /// An administrator.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The administrator's kubeconfig file.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("admin.conf")
    }

    /// Writes the kubeconfig of a program whose client certificate has been signed; its path.
    pub(crate) fn write_kubeconfig(&self, name: &str) -> String {
        write_kubeconfig(self.directory.path(), &self.network, &self.certificates, name).display().to_string()
    }

    /// The programs that it is made of, kubectl and helm among them.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Its addresses.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// PEM of its authority.
    #[must_use]
    pub fn authority(&self) -> String {
        self.certificates.authority()
    }

    /// A directory that goes with it.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Port and address of the API.
    #[must_use]
    pub fn api_address(&self) -> std::net::SocketAddr {
        self.network.control_plane(API_PORT)
    }

    /// SIGKILL to the API server.
    pub fn kill_api_server(&mut self) {
        self.api_server.kill();
    }

    /// Starts the API server again, at the same address, and waits until it is ready.
    ///
    /// # Panics
    /// It does not get ready.
    pub async fn start_api_server(&mut self) {
        self.api_server.restart().expect("the API server has been started before");
        self.ready().await;
    }

    /// Makes another key of service accounts: from the API server's next start no token of before is taken.
    ///
    /// # Panics
    /// The key cannot be written.
    pub fn void_tokens(&self) {
        self.certificates.service_accounts();
    }

    /// Compacts etcd up to what it holds now: a watch that continues from an older version after the API server's next start gets 410.
    ///
    /// # Panics
    /// etcd refuses.
    pub async fn compact(&self) {
        let url = format!("http://{}", self.network.control_plane(ETCD_PORT));
        let etcd = Client::try_from(Config::new(url.parse().expect("an address makes a URL"))).expect("a plain client");
        // A key that does not exist: the answer's header has the revision.
        let found = ask_etcd(&etcd, "/v3/kv/range", &json!({ "key": "AA==" })).await;
        let revision = found["header"]["revision"].clone();
        ask_etcd(&etcd, "/v3/kv/compaction", &json!({ "revision": revision, "physical": true })).await;
    }

    /// Waits until a namespace of that name has its service account, without which no pod can be made.
    ///
    /// # Panics
    /// It does not get one.
    pub async fn has_service_account(&mut self, namespace: &str) {
        let accounts = Api::<ServiceAccount>::namespaced(self.client(), namespace);
        let deadline = Instant::now() + PATIENCE;
        while !matches!(accounts.get_opt("default").await, Ok(Some(_))) {
            assert!(Instant::now() < deadline, "namespace {namespace} gets no service account\n{}", self.tails());
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let request = Request::get("/readyz").body(Vec::new()).expect("a path makes a request");
            let answered = tokio::time::timeout(Duration::from_secs(2), self.client.request_text(request)).await;
            if matches!(answered, Ok(Ok(_))) {
                return;
            }
            let runs = self.api_server.is_running() && self.etcd.is_running();
            assert!(runs && Instant::now() < deadline, "the API server does not get ready\n{}", self.tails());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The ends of all logs, for the message of a test that fails.
    #[must_use]
    pub fn tails(&self) -> String {
        let all = [&self.etcd, &self.api_server].into_iter().chain(&self.others);
        all.map(Process::tail).collect::<Vec<_>>().join("\n")
    }

    /// The ids of all that runs for it.
    #[must_use]
    pub fn process_ids(&self) -> Vec<u32> {
        [&self.etcd, &self.api_server].into_iter().chain(&self.others).filter_map(Process::id).collect()
    }

    /// Everything that a program of that name has printed.
    #[must_use]
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(format!("{name}.log"))).unwrap_or_default()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.tails());
        }
    }
}

fn start(launch: Launch, logs: &Path) -> Process {
    let name = launch.name.clone();
    Process::start(launch, logs).unwrap_or_else(|error| panic!("{name} cannot be started by setpriv: {error}"))
}

fn sign(directory: &Path, network: &Network) -> Certificates {
    let certificates = Certificates::create(&directory.join("pki"));
    let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let first_service = [10, 96, 0, 1].into();
    certificates.server("api-server", &names, &[network.address(1), first_service]);
    certificates.client("admin", "admin", Some("system:masters"));
    certificates.client("controller-manager", "system:kube-controller-manager", None);
    certificates.client("scheduler", "system:kube-scheduler", None);
    certificates.client("proxy-client", "front-proxy", None);
    certificates
}

fn etcd(programs: &Programs, network: &Network, directory: &Path) -> Launch {
    let client = format!("http://{}", network.control_plane(ETCD_PORT));
    let peer = format!("http://{}", network.control_plane(ETCD_PORT + 1));
    let flags = [
        format!("--data-dir={}", directory.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    Launch::new("etcd", &programs.program("etcd"), flags)
}

fn api_server(programs: &Programs, network: &Network, certificates: &Certificates, options: &Options) -> Launch {
    let file = |flag: &str, file: &str| format!("--{flag}={}", certificates.path(file));
    let flags = [
        format!("--etcd-servers=http://{}", network.control_plane(ETCD_PORT)),
        format!("--bind-address={}", network.address(1)),
        format!("--advertise-address={}", network.address(1)),
        format!("--secure-port={API_PORT}"),
        format!("--service-cluster-ip-range={SERVICES}"),
        file("tls-cert-file", "api-server.crt"),
        file("tls-private-key-file", "api-server.key"),
        file("client-ca-file", "ca.crt"),
        file("service-account-key-file", "sa.pub"),
        file("service-account-signing-key-file", "sa.key"),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--anonymous-auth=false".to_owned(),
        "--enable-bootstrap-token-auth".to_owned(),
        // As kubeadm and k3s have it: what is privileged is for Pod Security to judge.
        "--allow-privileged=true".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        file("requestheader-client-ca-file", "ca.crt"),
        "--requestheader-allowed-names=front-proxy".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        file("proxy-client-cert-file", "proxy-client.crt"),
        file("proxy-client-key-file", "proxy-client.key"),
    ];
    let flags = flags.into_iter().chain(options.api_server.iter().cloned());
    Launch::new("kube-apiserver", &programs.program("kube-apiserver"), flags)
}

fn write_kubeconfig(directory: &Path, network: &Network, certificates: &Certificates, name: &str) -> PathBuf {
    let server = format!("https://{}", network.control_plane(API_PORT));
    let file = |file: &str| certificates.path(file);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{ "name": "test", "cluster": { "server": server, "certificate-authority": file("ca.crt") } }],
        "users": [{ "name": name, "user": {
            "client-certificate": file(&format!("{name}.crt")), "client-key": file(&format!("{name}.key"))
        } }],
        "contexts": [{ "name": name, "context": { "cluster": "test", "user": name } }]
    });
    let path = directory.join(format!("{name}.conf"));
    // JSON is YAML.
    std::fs::write(&path, config.to_string()).expect("the directory can be written");
    path
}

async fn client(kubeconfig: &Path) -> Client {
    let read = Kubeconfig::read_from(kubeconfig).expect("the file has just been written");
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.expect("it is whole");
    config.default_retry = false;
    Client::try_from(config).expect("the certificates have just been made")
}

async fn ask_etcd(etcd: &Client, path: &str, question: &Value) -> Value {
    let body = question.to_string().into_bytes();
    let request = Request::post(path).header("content-type", "application/json").body(body);
    let request = request.expect("a path makes a request");
    etcd.request(request).await.unwrap_or_else(|error| panic!("etcd does not answer {path}: {error}"))
}
