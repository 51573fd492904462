//! A namespace of its own for each test, on the cluster that the tests run on.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_sync::adapters::kubernetes::{Kubernetes, SealingService};
use edge_sync::object::Kind;
use edge_sync::record::RECORD_NAME;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, Config};
use kubernetes_tests::proxy::Proxy;
use serde_json::{Value, json};
use simulator::cluster::{ClusterSpec, SEALED_SECRETS, SEALING_CERTIFICATE, SimulatedCluster};
use simulator::flux::chart::Charts;
use simulator::kubernetes::faults::{Break, Fault};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::in_time;

/// An account that may do little.
const LIMITED: &str = "limited";
const RBAC: &str = "rbac.authorization.k8s.io";

/// A cluster and the namespace of one test.
pub struct TestCluster {
    cluster: kubernetes_tests::cluster::TestCluster,
    /// Of the API.
    pub client: Client,
    /// How the API is reached.
    pub config: Config,
    /// Of the test.
    pub namespace: String,
    certificate: Option<AbortHandle>,
    /// Where an account of few rights finds the API.
    limited: Option<Proxy>,
}

impl TestCluster {
    /// No Flux runs there, but its definitions are installed.
    pub async fn start() -> Self {
        Self::of(false).await
    }

    /// Flux runs there, too, and the account that it acts as for deployments has the rights of the chart.
    pub async fn with_flux() -> Self {
        let own = Self::of(true).await;
        if own.simulated().is_none() {
            own.cluster.apply_accounts("agents.yaml", "cluster.name=Test", str::to_owned).await;
        }
        own
    }

    async fn of(flux: bool) -> Self {
        let spec = ClusterSpec { flux, sealed_secrets: false, ..ClusterSpec::new("Test") };
        let cluster = kubernetes_tests::cluster::TestCluster::start(spec, Charts::new()).await;
        let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let client = kubernetes_client::client(config.clone()).unwrap();
        let namespace = cluster.namespace().to_owned();
        Self { cluster, client, config, namespace, certificate: None, limited: None }
    }

    /// Where a service finds the API.
    pub async fn url(&mut self) -> String {
        self.cluster.url().await
    }

    /// Where a service finds the API that may do all that it does, but not write a ConfigMap of that name until it is allowed to.
    pub async fn url_that_refuses(&mut self, config_map: &str) -> String {
        if let Some(simulated) = self.simulated() {
            let path = format!("/configmaps/{config_map}");
            simulated.kubernetes().inject(Fault::next(u32::MAX, 403).method("PATCH").path(&path));
            return self.url().await;
        }
        let subject = json!({"kind": "ServiceAccount", "name": LIMITED, "namespace": self.namespace});
        let role = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": self.limited_role()});
        let binding = json!({"apiVersion": format!("{}/v1", RBAC), "kind": "ClusterRoleBinding",
            "metadata": {"name": self.limited_role()}, "roleRef": role, "subjects": [subject]});
        self.apply_limits(&[RECORD_NAME, "good"]).await;
        self.apply_to_cluster(&binding).await;
        let mut config = self.config.clone();
        let account = format!("system:serviceaccount:{}:{LIMITED}", self.namespace);
        config.headers.push(("impersonate-user".parse().unwrap(), account.parse().unwrap()));
        let proxy = Proxy::start(kubernetes_client::client(config).unwrap()).await;
        self.limited.insert(proxy).url()
    }

    /// Now it may.
    pub async fn allow(&self, config_map: &str) {
        match self.simulated() {
            Some(simulated) => simulated.kubernetes().heal(),
            None => self.apply_limits(&[RECORD_NAME, "good", config_map]).await,
        }
    }

    /// The rights of the limited account: to write ConfigMaps of these names.
    async fn apply_limits(&self, config_maps: &[&str]) {
        let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
        let flux = ["helm.toolkit.fluxcd.io", "kustomize.toolkit.fluxcd.io", "source.toolkit.fluxcd.io", "apps"];
        let mut names = rule(&[""], &["configmaps"], &["patch"]);
        names["resourceNames"] = json!(config_maps);
        let rules = [
            names,
            rule(&[""], &["configmaps"], &["get", "list", "watch", "create", "delete"]),
            rule(&[""], &["nodes"], &["list", "watch"]),
            rule(&flux, &["*"], &["*"]),
        ];
        let metadata = json!({"name": self.limited_role()});
        let role =
            json!({"apiVersion": format!("{}/v1", RBAC), "kind": "ClusterRole", "metadata": metadata, "rules": rules});
        self.apply_to_cluster(&role).await;
    }

    fn limited_role(&self) -> String {
        format!("{}-{LIMITED}", self.namespace)
    }

    async fn apply_to_cluster(&self, object: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let api = self.cluster_api(&text(&object["apiVersion"]), &text(&object["kind"]));
        let params = PatchParams::apply("test").force();
        api.patch(&text(&object["metadata"]["name"]), &params, &Patch::Apply(object)).await.unwrap();
    }

    /// The API server is killed, or answers nothing any more.
    pub fn lose_api(&mut self) {
        if let Some(simulated) = self.simulated() {
            simulated.kubernetes().inject(Fault::next(u32::MAX, 503));
            simulated.kubernetes().break_watches(Break::Cut);
            return;
        }
        self.cluster.own().expect("an API server of others is not killed").kill_api_server();
    }

    /// It answers again.
    pub async fn regain_api(&mut self) {
        if let Some(simulated) = self.simulated() {
            return simulated.kubernetes().heal();
        }
        self.cluster.own().expect("it was killed").start_api_server().await;
    }

    /// None on a real API server.
    pub fn simulated(&self) -> Option<&SimulatedCluster> {
        self.cluster.simulated()
    }

    pub fn kubernetes(&self, kinds: &[&str]) -> Kubernetes {
        self.kubernetes_by(self.client.clone(), kinds)
    }

    /// Of another client.
    pub fn kubernetes_by(&self, client: Client, kinds: &[&str]) -> Kubernetes {
        let kinds: Vec<Kind> = kinds.iter().map(|kind| kind.parse().unwrap()).collect();
        let sealing = SealingService { namespace: self.namespace.clone(), service: SEALED_SECRETS.1.to_owned() };
        Kubernetes::new(client, &self.namespace, &kinds, sealing)
    }

    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Objects of any kind in the namespace of the test.
    pub fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(api_version, kind))
    }

    fn cluster_api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource(api_version, kind))
    }

    /// Someone makes a ConfigMap.
    pub async fn make(&self, name: &str, metadata: Value) {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        object["metadata"]["name"] = json!(name);
        let object = serde_json::from_value(object).unwrap();
        self.config_maps().create(&PostParams::default(), &object).await.unwrap();
    }

    /// Someone applies an object, and its controller says how it stands.
    pub async fn put(&self, object: Value, status: Value) {
        let text = |field: &str| object[field].as_str().unwrap().to_owned();
        let api = self.api(&text("apiVersion"), &text("kind"));
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::apply("test").force();
        api.patch(name, &params, &Patch::Apply(&object)).await.unwrap();
        let status = Patch::Merge(json!({ "status": status }));
        api.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    }

    /// Name of the node of the test's own, which need not be there.
    pub fn node(&self) -> String {
        format!("{}-node", self.namespace)
    }

    /// Makes the node of the test's own, as a kubelet registers it.
    pub async fn make_node(&self) -> String {
        let name = self.node();
        let nodes = self.cluster_api("v1", "Node");
        let metadata = json!({"name": name, "labels": {"kubernetes.io/hostname": name}});
        let node = serde_json::from_value(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata})).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let keys = [
            "machineID",
            "systemUUID",
            "bootID",
            "kernelVersion",
            "osImage",
            "containerRuntimeVersion",
            "kubeProxyVersion",
            "operatingSystem",
            "architecture",
        ];
        let mut info: Value = keys.into_iter().map(|key| (key.to_owned(), json!("test"))).collect();
        info["kubeletVersion"] = json!("v1.34.0");
        let status = Patch::Merge(json!({"status": {"nodeInfo": info}}));
        nodes.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
        name
    }

    pub async fn remove_node(&self, name: &str) {
        self.cluster_api("v1", "Node").delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// A token that the API server knows; of an account without rights.
    pub async fn token(&self) -> String {
        if self.simulated().is_some() {
            return "known".to_owned();
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let account = serde_json::from_value(json!({"metadata": {"name": "no-rights"}})).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
        let request = serde_json::from_value(json!({"spec": {"audiences": []}})).unwrap();
        let answer = accounts.create_token_request("no-rights", &PostParams::default(), &request).await.unwrap();
        answer.status.unwrap().token
    }

    /// Someone gives an object a finalizer, or takes all away.
    pub async fn set_finalizers(&self, name: &str, finalizers: &[&str]) -> ConfigMap {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        self.config_maps().patch(name, &PatchParams::default(), &patch).await.unwrap()
    }

    /// A sealed secrets controller answers with its certificate behind a Service of the test's namespace.
    pub async fn start_sealing(&mut self) {
        let (service, ports) = (SEALED_SECRETS.1, json!([{"name": "http", "port": 8080}]));
        let object =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": service}, "spec": {"ports": ports}});
        let services = self.api("v1", "Service");
        services.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        if self.simulated().is_none() {
            return self.serve_certificate().await;
        }
        let paths = BTreeMap::from([("v1/cert.pem".to_owned(), SEALING_CERTIFICATE.to_owned())]);
        self.simulated().unwrap().kubernetes().set_backend(&self.namespace, service, paths);
    }

    /// It answers no more.
    pub async fn stop_sealing(&mut self) {
        match self.simulated() {
            Some(simulated) => simulated.kubernetes().remove_backend(&self.namespace, SEALED_SECRETS.1),
            None => {
                let none = Patch::Merge(json!({"subsets": []}));
                self.api("v1", "Endpoints").patch(SEALED_SECRETS.1, &PatchParams::default(), &none).await.unwrap();
            }
        }
    }

    /// A real API server does not proxy to loopback addresses: the certificate is served on that of the machine.
    async fn serve_certificate(&mut self) {
        let listener = TcpListener::bind((self.address_of_pods(), 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                if stream.read(&mut request).await.is_ok() {
                    let length = SEALING_CERTIFICATE.len();
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                    let answer = format!("{head}{SEALING_CERTIFICATE}");
                    stream.write_all(answer.as_bytes()).await.ok();
                }
            }
        };
        self.certificate = Some(tokio::spawn(serve).abort_handle());
        self.pod_at(address.ip()).await;
        let ports = json!([{"name": "http", "port": address.port()}]);
        let pod = json!({"kind": "Pod", "namespace": self.namespace, "name": "sealing"});
        let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": SEALED_SECRETS.1},
            "subsets": [{"addresses": [{"ip": address.ip().to_string(), "targetRef": pod}], "ports": ports}]});
        let api = self.api("v1", "Endpoints");
        api.create(&PostParams::default(), &serde_json::from_value(endpoints).unwrap()).await.unwrap();
    }

    /// The API server proxies only to addresses of pods. This one never runs.
    async fn pod_at(&self, address: IpAddr) {
        let pods = self.api("v1", "Pod");
        let spec = json!({"nodeName": "nowhere", "containers": [{"name": "main", "image": "none"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sealing"}, "spec": spec});
        let pod: DynamicObject = serde_json::from_value(pod).unwrap();
        // Refused until the namespace has its service account.
        let made = async {
            while pods.create(&PostParams::default(), &pod).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        in_time("a pod", made).await;
        let address = address.to_string();
        let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}});
        pods.patch_status("sealing", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// An address that endpoints may have.
    fn address_of_pods(&mut self) -> IpAddr {
        match self.cluster.own() {
            Some(plane) => plane.network().address(2),
            None => own_address(),
        }
    }

    pub async fn stop(self) {
        if let Some(certificate) = self.certificate {
            certificate.abort();
        }
        self.cluster.stop().await;
    }
}

fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The address by which this machine reaches others. No packet is sent.
fn own_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").unwrap();
    socket.local_addr().unwrap().ip()
}

/// What lies between a client and the API server, and can be cut.
pub struct Cable {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    connections: Arc<Mutex<JoinSet<()>>>,
    _accepting: JoinSet<()>,
}

impl Cable {
    pub async fn to(cluster: &TestCluster) -> Self {
        let url = &cluster.config.cluster_url;
        let server = (url.host().unwrap().to_owned(), url.port_u16().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let is_cut = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(Mutex::new(JoinSet::new()));
        let mut accepting = JoinSet::new();
        let (is_cut_now, all) = (is_cut.clone(), connections.clone());
        accepting.spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                if is_cut_now.load(Ordering::SeqCst) {
                    continue;
                }
                let server = server.clone();
                all.lock().unwrap().spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(server).await {
                        tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
                    }
                });
            }
        });
        Self { address, is_cut, connections, _accepting: accepting }
    }

    /// A client that reaches the API server over it.
    pub fn client(&self, cluster: &TestCluster) -> Client {
        let mut config = cluster.config.clone();
        let scheme = config.cluster_url.scheme_str().unwrap().to_owned();
        // The certificate is not made out for the cable's address.
        config.tls_server_name = Some("kubernetes".to_owned());
        config.cluster_url = format!("{scheme}://{}", self.address).parse().unwrap();
        kubernetes_client::client(config).unwrap()
    }

    /// Ends all connections, and takes no more until it is mended.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.connections.lock().unwrap().abort_all();
    }

    pub fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}
