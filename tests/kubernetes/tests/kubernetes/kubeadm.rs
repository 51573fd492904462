//! What the bootstrapper writes for kubeadm, read by the real one. The control plane that kubeadm makes of it runs. A second control plane and a worker find it by their tickets.
//!
//! There is no kubelet: the phases of kubeadm that wait for one are left out, and static pods are programs that see the host's root as theirs. Hosts share a network namespace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bootstrapper::adapters::kubeadm::Kubeadm;
use bootstrapper::platform::{Activity, Installer as _, JoinPlan};
use bootstrapper_contract::{InitParameters, Manifests};
use jiff::Timestamp;
use join_protocol::message::grant::Membership;
use join_protocol::secret::SecretBytes;
use join_protocol::terms::Role;
use kubernetes_tests::process::{Launch, Process};
use kubernetes_tests::programs::Programs;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::host::installer;

const PATIENCE: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(200);
const MINUTE: Duration = Duration::from_secs(60);
/// Files of a control plane that a ticket brings.
const SHARED: [&str; 8] =
    ["ca.crt", "ca.key", "sa.key", "sa.pub", "front-proxy-ca.crt", "front-proxy-ca.key", "etcd/ca.crt", "etcd/ca.key"];

/// The network namespace that all hosts are in, and the programs.
struct Site {
    programs: Programs,
    directory: TempDir,
    namespace: Process,
}

impl Site {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ready = directory.path().join("ready");
        let script = format!(
            "ip link set lo up && ip route add local 198.18.0.0/15 dev lo && : > {} && exec sleep infinity",
            ready.display()
        );
        let arguments = ["--net", "sh", "-c", &script].map(str::to_owned);
        let launch = Launch::new("namespace", Path::new("unshare"), arguments);
        let mut namespace = Process::start(launch, directory.path()).unwrap();
        while !ready.exists() {
            assert!(namespace.is_running(), "a network namespace needs root: {}", namespace.tail());
            tokio::time::sleep(LOOK).await;
        }
        Self { programs: Programs::find().unwrap(), directory, namespace }
    }

    /// What runs a program within.
    fn within(&self) -> [String; 2] {
        ["nsenter".to_owned(), format!("--net=/proc/{}/ns/net", self.namespace.id().unwrap())]
    }

    fn kubectl(&self, root: &Path, arguments: &[&str]) -> Result<String, String> {
        let [nsenter, net] = self.within();
        let output = Command::new(nsenter)
            .arg(net)
            .arg(self.programs.program("kubectl"))
            .arg("--kubeconfig")
            .arg(root.join("etc/kubernetes/super-admin.conf"))
            .args(arguments)
            .output()
            .unwrap();
        let [out, error] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        if output.status.success() { Ok(out) } else { Err(error) }
    }

    /// Starts a static pod of a host: its program sees the host's root as its own, as it sees its volumes in a container.
    fn start_pod(&self, root: &Path, name: &str) -> Process {
        let manifest = fs::read_to_string(root.join(format!("etc/kubernetes/manifests/{name}.yaml"))).unwrap();
        let pod: Value = serde_saphyr::from_str(&manifest).unwrap();
        for volume in pod["spec"]["volumes"].as_array().unwrap() {
            let path = root.join(volume["hostPath"]["path"].as_str().unwrap().trim_start_matches('/'));
            match volume["hostPath"]["type"].as_str().unwrap() {
                "DirectoryOrCreate" => fs::create_dir_all(&path).unwrap(),
                "FileOrCreate" | "File" => assert!(path.is_file(), "{name} mounts {}", path.display()),
                other => panic!("a volume of type {other}"),
            }
        }
        let program = root.join("bin").join(name);
        fs::create_dir_all(root.join("bin")).unwrap();
        if fs::hard_link(self.programs.program(name), &program).is_err() {
            fs::copy(self.programs.program(name), &program).unwrap();
        }
        let command = pod["spec"]["containers"][0]["command"].as_array().unwrap();
        let arguments = command.iter().skip(1).map(|argument| argument.as_str().unwrap().to_owned());
        let [nsenter, net] = self.within();
        let before = [net, "chroot".to_owned(), root.display().to_string(), format!("/bin/{name}")];
        let launch = Launch::new(name, Path::new(&nsenter), before.into_iter().chain(arguments));
        Process::start(launch, self.directory.path()).unwrap()
    }
}

/// A host with the bootstrapper's installer.
struct Host {
    root: PathBuf,
    kubeadm: Kubeadm,
    activity: Activity,
    _said: mpsc::Receiver<String>,
}

impl Host {
    fn new(site: &Site, name: &str, address: &str) -> Self {
        let root = site.directory.path().join(name);
        fs::create_dir_all(root.join("tmp")).unwrap();
        let programs = [&without_kubelet(site, &root), ""];
        let kubeadm = installer(&root, address.parse().unwrap(), programs, |kubernetes| kubernetes.attempts_max = 1);
        let (sender, said) = mpsc::channel(64);
        Self { root, kubeadm, activity: Activity::new(sender), _said: said }
    }

    async fn join(&mut self, role: Role, membership: Membership) {
        // The files of a ticket are in place before.
        for (path, content) in &membership.files {
            let path = self.root.join("etc/kubernetes/pki").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content.expose()).unwrap();
        }
        // It was never a member, and etcd is asked only by who lost what it had.
        fs::create_dir_all(self.root.join("var/lib/etcd/member")).unwrap();
        self.kubeadm.join(&JoinPlan { role, membership }, self.activity.clone()).await.unwrap();
    }

    fn manifests(&self) -> Vec<String> {
        let files = fs::read_dir(self.root.join("etc/kubernetes/manifests")).unwrap();
        let mut names: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// The real kubeadm with the host's root as its own, but for the phases that wait for a kubelet. It keeps the last configuration.
fn without_kubelet(site: &Site, root: &Path) -> String {
    let kubeadm = site.programs.program("kubeadm").display().to_string();
    let (within, root) = (site.within().join(" "), root.display());
    format!(
        r#"
set -eu
kubeadm() {{ {within} {kubeadm} --rootfs {root} "$@"; }}
for last; do :; done
config=${{last#{root}}}
case $* in
version*) exec {kubeadm} "$@" ;;
*--config*) {kubeadm} config validate --config "$last"; cp "$last" {root}/config.seen ;;
esac
case $* in
"init phase "*) kubeadm init phase certs ca --config "$config" ;;
"init "*)
    for phase in "certs all" "kubeconfig all" "control-plane all" "etcd local"; do
        kubeadm init phase $phase --config "$config"
    done ;;
"join "*)
    kubeadm join phase preflight --ignore-preflight-errors=all --config "$config"
    [ ! -f {root}/etc/kubernetes/pki/ca.key ] || for phase in certs kubeconfig control-plane; do
        kubeadm join phase control-plane-prepare $phase --config "$config"
    done ;;
*) ;;
esac"#
    )
}

// long: each host joins the cluster that the ones before it have made
#[tokio::test]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn a_control_plane_of_real_kubeadm_runs_as_it_is_configured_and_others_find_it_by_their_tickets() {
    let site = Site::start().await;
    let mut first = Host::new(&site, "edge-1", "198.18.7.1");
    let parameters = InitParameters {
        node_name: "edge-1".to_owned(),
        cluster_name: "Paint_Shop".to_owned(),
        labels: vec!["factory=paint".to_owned()],
        taints: vec!["dedicated=press:NoSchedule".to_owned()],
        pod_subnet: "10.42.0.0/16".to_owned(),
        manifests: Manifests::None,
        kubernetes_version: String::new(),
        endpoint: String::new(),
        certificate_names: vec!["api.paint.example".to_owned()],
        service_subnet: String::new(),
        components: Vec::new(),
        ssh_authority: String::new(),
    };
    let kubeconfig = first.kubeadm.init(&parameters, first.activity.clone()).await.unwrap();
    assert!(String::from_utf8_lossy(kubeconfig.expose()).contains("https://198.18.7.1:6443"));
    assert_eq!(
        first.manifests(),
        ["etcd.yaml", "kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml"]
    );

    // Every flag and file is one that the real programs accept.
    let names = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
    let mut pods = names.map(|name| site.start_pod(&first.root, name));
    let deadline = Instant::now() + PATIENCE;
    let healthy = |text: &str| text.lines().filter(|line| line.contains(" Healthy ")).count() == 3;
    while !site.kubectl(&first.root, &["get", "componentstatuses"]).is_ok_and(|text| healthy(&text)) {
        let ended = pods.iter_mut().find_map(|pod| pod.exit_status().map(|status| format!("{status}: {}", pod.tail())));
        assert!(
            ended.is_none() && Instant::now() < deadline,
            "{ended:?}\n{}",
            pods.each_ref().map(Process::tail).join("\n")
        );
        tokio::time::sleep(LOOK).await;
    }
    let audit = fs::read_to_string(first.root.join("var/log/kubernetes/audit/audit.log")).unwrap();
    assert!(audit.contains("\"level\":\"Metadata\""), "requests are recorded");

    // What the phases that were left out say to the cluster.
    let node = site.directory.path().join("node.json");
    fs::write(&node, r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge-1"}}"#).unwrap();
    site.kubectl(&first.root, &["apply", "-f", &node.display().to_string()]).unwrap();
    let kubeadm = |arguments: &[&str]| {
        let [nsenter, net] = site.within();
        let mut command = Command::new(nsenter);
        command.arg(net).arg(site.programs.program("kubeadm")).arg("--rootfs").arg(&first.root).args(arguments);
        let output = command.args(["--config", "/config.seen"]).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    kubeadm(&["init", "phase", "upload-config", "all"]);
    kubeadm(&["init", "phase", "bootstrap-token"]);
    let tokens = ["get", "secrets", "--namespace", "kube-system", "--field-selector"];
    let expiration = "go-template={{range .items}}{{.data.expiration | base64decode}}{{end}}";
    let of_kubeadm = ["type=bootstrap.kubernetes.io/token", "--output", expiration];
    let expires = site.kubectl(&first.root, &[&tokens[..], &of_kubeadm].concat()).unwrap();
    let expires: Timestamp = expires.parse().unwrap();
    assert!(expires <= Timestamp::now() + MINUTE, "the token that kubeadm makes by itself ends: {expires}");
    let token = kubeadm(&["token", "create"]);

    let pki = first.root.join("etc/kubernetes/pki");
    let membership = |node_name: &str, files: Vec<(String, SecretBytes)>| Membership {
        node_name: node_name.to_owned(),
        servers: vec!["https://198.18.7.1:6443".to_owned()],
        token: token.trim().into(),
        authority_pin: pin(&pki.join("ca.crt")),
        labels: vec!["factory=paint".to_owned()],
        taints: vec!["dedicated=press:NoSchedule".to_owned()],
        files,
        ..Membership::default()
    };
    let mut second = Host::new(&site, "edge-2", "198.18.7.2");
    let shared = SHARED.map(|path| (path.to_owned(), SecretBytes::new(fs::read(pki.join(path)).unwrap())));
    second.join(Role::ControlPlane, membership("edge-2", shared.to_vec())).await;
    assert_eq!(second.manifests(), ["kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml"]);
    let flags = fs::read_to_string(second.root.join("etc/kubernetes/manifests/kube-apiserver.yaml")).unwrap();
    for flag in ["audit-policy-file=/etc/kubernetes/audit-policy.yaml", "kubelet-certificate-authority="] {
        assert!(flags.contains(flag), "every control plane has {flag}");
    }
    assert!(second.root.join("etc/kubernetes/audit-policy.yaml").is_file());

    let mut worker = Host::new(&site, "edge-3", "198.18.7.3");
    worker.join(Role::Worker, membership("edge-3", Vec::new())).await;
    assert!(worker.manifests().is_empty());

    // A ticket whose pin is of another authority is of no use.
    let wrong = Membership { authority_pin: format!("sha256:{}", "ab".repeat(32)), ..membership("edge-4", Vec::new()) };
    let mut stranger = Host::new(&site, "edge-4", "198.18.7.4");
    let plan = JoinPlan { role: Role::Worker, membership: wrong };
    let error = stranger.kubeadm.join(&plan, stranger.activity.clone()).await.unwrap_err().0;
    assert!(error.contains("pinned") && !error.contains(token.trim()), "{error}");
}

/// SHA-256 of the authority's public key, as kubeadm wants it.
fn pin(certificate: &Path) -> String {
    let script =
        "openssl x509 -pubkey -noout -in \"$0\" | openssl pkey -pubin -outform der | sha256sum | cut -d' ' -f1";
    let output = Command::new("sh").args(["-c", script]).arg(certificate).output().unwrap();
    format!("sha256:{}", String::from_utf8(output.stdout).unwrap().trim())
}
