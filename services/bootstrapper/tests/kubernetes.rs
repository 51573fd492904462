//! kubeadm and k3s as recording programs: what is rendered is what their documentation says, secrets are removed, a failed join is reset before the next.
#![allow(clippy::unwrap_used, reason = "the lint exempts test functions, not their helpers")]

use crate::programs;

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bootstrapper::adapters::files::mode_of;
use bootstrapper::adapters::k3s::K3s;
use bootstrapper::adapters::kubeadm::Kubeadm;
use bootstrapper::config::{Config, KubernetesConfig};
use bootstrapper::platform::{Activity, Installer as _, JoinPlan};
use bootstrapper_contract::{InitParameters, Manifests};
use join_protocol::message::grant::Membership;
use join_protocol::terms::Role;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;

const TOKEN: &str = "abcdef.0123456789abcdef";
const PASSWORD: &str = "the-password-of-the-node";
const KEY: &str = "THE-KEY-OF-THE-AUTHORITY";

struct Bench {
    root: TempDir,
    said: mpsc::Receiver<String>,
    activity: Activity,
}

impl Bench {
    /// `kubeadm`: what the program does after it wrote down how it was called and what its configuration was.
    fn new(kubeadm: &str, systemctl: &str) -> Self {
        let (sender, said) = mpsc::channel(64);
        let bench = Self { root: tempfile::tempdir().unwrap(), said, activity: Activity::new(sender) };
        let keep = "for last; do :; done; case \"$*\" in *--config*) cp \"$last\" \"$ROOT/config.seen\"; stat -c %a \"$last\" > \"$ROOT/config.mode\" ;; esac";
        for folder in ["vm", "kernel/keys", "net/ipv4"] {
            fs::create_dir_all(bench.at("proc/sys").join(folder)).unwrap();
        }
        let programs = [
            ("kubeadm", format!("{keep}\n{kubeadm}")),
            ("systemctl", systemctl.to_owned()),
            ("kubectl", String::new()),
        ];
        for (name, text) in programs {
            bench.write_program(name, &text);
        }
        bench
    }

    /// A program that writes down how it was called, and does this.
    fn write_program(&self, name: &str, text: &str) {
        let (path, root) = (self.at(name), self.root.path().display());
        let script = format!("#!/bin/sh\nROOT={root}\necho \"{name} $*\" >> \"$ROOT/commands\"\n{text}\n");
        programs::write_program(&path, &script);
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn config(&self) -> Config {
        let mut config = Config {
            kubernetes: KubernetesConfig {
                program: Some(self.at("kubeadm")),
                systemctl: self.at("systemctl"),
                kubectl: self.at("kubectl"),
                ..KubernetesConfig::default()
            },
            ..Config::default()
        };
        config.timeouts.member_ms = 60_000;
        config
    }

    fn kubeadm(&self) -> Kubeadm {
        let mut kubeadm = Kubeadm::new(&self.config(), self.root.path(), &[address()]);
        kubeadm.retry_after = Duration::ZERO;
        kubeadm
    }

    fn k3s(&self, role: Role) -> K3s {
        K3s::new(&self.config(), self.root.path(), &[address()], role)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_default()
    }

    /// How the programs were called, paths below the root and random names left out.
    fn commands(&self) -> Vec<String> {
        let root = self.root.path().display().to_string();
        let line = |line: &str| match line.split_once("--config ") {
            Some((start, _)) => format!("{start}--config ..."),
            None => line.replace(&root, ""),
        };
        self.text("commands").lines().map(line).collect()
    }

    /// No configuration with a token is left.
    fn is_clean(&self) -> bool {
        let is_attested = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name() == "attested";
        fs::read_dir(self.at("run/sparkfleet")).map_or(true, |mut entries| entries.all(is_attested))
    }

    /// A server of k3s has what its API server is configured with.
    fn assert_k3s_audits(&self) {
        let policy = documents(&self.text("var/lib/rancher/k3s/server/audit.yaml"));
        assert_eq!((&policy[0]["kind"], &policy[0]["rules"][0]["level"]), (&json!("Policy"), &json!("Metadata")));
        assert_eq!(mode_of(&self.at("var/lib/rancher/k3s/server/logs")), Ok(0o700));
    }

    /// systemd may start Kubernetes.
    fn is_released(&self) -> bool {
        self.at("run/sparkfleet/attested").exists()
    }
}

fn address() -> IpAddr {
    "10.0.0.7".parse().unwrap()
}

fn plan(role: Role) -> JoinPlan {
    let files = match role {
        Role::ControlPlane => vec![("ca.key".to_owned(), KEY.into())],
        Role::Worker => Vec::new(),
    };
    let membership = Membership {
        node_name: "edge-1".to_owned(),
        servers: vec!["https://10.0.0.1:6443".to_owned()],
        token: TOKEN.into(),
        authority_pin: format!("sha256:{}", "ab".repeat(32)),
        node_password: PASSWORD.into(),
        kubelet_certificate: vec![0x30, 0],
        labels: vec!["factory=paint".to_owned(), "line=3".to_owned()],
        taints: vec!["dedicated=press:NoSchedule".to_owned()],
        files,
        ..Membership::default()
    };
    JoinPlan { role, membership }
}

fn parameters() -> InitParameters {
    InitParameters {
        node_name: "first".to_owned(),
        cluster_name: "paint".to_owned(),
        kubernetes_version: "v1.33.2".to_owned(),
        endpoint: "api.paint.example:6443".to_owned(),
        certificate_names: vec!["10.0.0.100".to_owned()],
        pod_subnet: "10.42.0.0/16".to_owned(),
        service_subnet: "10.43.0.0/16".to_owned(),
        labels: Vec::new(),
        taints: Vec::new(),
        components: Vec::new(),
        manifests: Manifests::None,
        ssh_authority: String::new(),
    }
}

/// The documents of a YAML text.
fn documents(text: &str) -> Vec<Value> {
    let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
    documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

#[track_caller]
fn assert_documented(rendered: &str, fixture: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documented");
    let documented = documents(&fs::read_to_string(folder.join(fixture)).unwrap());
    let rendered = documents(rendered);
    assert_eq!(rendered.len(), documented.len(), "{fixture}");
    for (rendered, documented) in rendered.iter().zip(&documented) {
        assert_eq!(rendered, documented, "{fixture}");
    }
}

/// What is done before kubeadm is called.
const RUNTIME: &str = "systemctl restart containerd.service";

#[tokio::test]
async fn a_worker_joins_by_a_configuration_as_documented_that_is_gone_afterwards() {
    let mut bench = Bench::new("exit 0", "exit 0");
    bench.kubeadm().join(&plan(Role::Worker), bench.activity.clone()).await.unwrap();
    assert_documented(&bench.text("config.seen"), "kubeadm-join-worker.yaml");
    assert_eq!(bench.text("config.mode"), "600\n");
    assert_eq!(bench.commands(), [RUNTIME, "kubeadm join --config ..."]);
    assert!(bench.is_clean() && bench.at("etc/kubernetes/manifests").is_dir());
    let mut said = std::iter::from_fn(|| bench.said.try_recv().ok());
    assert!(said.any(|text| text == "kubeadm join, try 1 of 3"));
    // As kubelet's protectKernelDefaults wants them.
    let parameters = [("vm/overcommit_memory", "1"), ("kernel/panic", "10"), ("kernel/keys/root_maxbytes", "25000000")];
    for (name, value) in parameters {
        assert_eq!(bench.text(&format!("proc/sys/{name}")), value, "{name}");
    }
}

#[tokio::test]
async fn a_control_plane_that_fails_is_reset_and_gets_its_keys_again() {
    // A reset takes the keys away, and the join wants them.
    let script = "case $1 in reset) rm -rf $ROOT/etc/kubernetes/pki ;; join) \
        echo x >> $ROOT/tries; [ $(wc -l < $ROOT/tries) -ge 2 ] || { echo \"cannot join with $(cat $last)\" >&2; exit 1; }; cat $ROOT/etc/kubernetes/pki/ca.key > $ROOT/key.seen ;; esac";
    let bench = Bench::new(script, "exit 0");
    bench.kubeadm().join(&plan(Role::ControlPlane), bench.activity.clone()).await.unwrap();
    let socket = "unix:///run/containerd/containerd.sock";
    let reset = format!("kubeadm reset --force --cri-socket {socket}");
    assert_eq!(bench.commands(), [RUNTIME, "kubeadm join --config ...", &reset, "kubeadm join --config ..."]);
    assert!(bench.text("etc/kubernetes/audit-policy.yaml").contains("level: Metadata"), "the API server mounts it");
    assert_documented(&bench.text("config.seen"), "kubeadm-join-control-plane.yaml");
    assert_eq!(bench.text("key.seen"), KEY);
    assert!(bench.is_clean());
}

#[tokio::test]
async fn a_join_that_fails_for_good_says_why_without_the_token_and_leaves_no_configuration() {
    let bench = Bench::new(
        "cat $last >&2; echo \"error: token $(grep -o 'abcdef[.a-z0-9]*' $last | head -1) is over\" >&2; exit 1",
        "exit 0",
    );
    let error = bench.kubeadm().join(&plan(Role::Worker), bench.activity.clone()).await.unwrap_err().0;
    assert!(error.contains("ended with code 1") && error.ends_with("error: token [redacted] is over"), "{error}");
    assert!(!error.contains(TOKEN) && !error.contains("0123456789abcdef"), "{error}");
    for call in ["kubeadm join", "kubeadm reset"] {
        let calls = bench.commands().iter().filter(|line| line.starts_with(call)).count();
        assert_eq!(calls, 3, "{call}: what the last try left is reset too, or etcd counts it for its quorum");
    }
    assert!(bench.is_clean());
}

#[tokio::test]
async fn each_try_asks_another_server() {
    let bench =
        Bench::new("grep -o '[a-z0-9.]*:6443' $last >> $ROOT/servers; [ $(wc -l < $ROOT/servers) -ge 3 ]", "exit 0");
    let mut plan = plan(Role::Worker);
    plan.membership.servers.push("https://10.0.0.2:6443".to_owned());
    bench.kubeadm().join(&plan, bench.activity.clone()).await.unwrap();
    let asked: Vec<String> = bench.text("servers").lines().map(str::to_owned).collect();
    assert_eq!(asked, ["10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.1:6443"]);
}

#[tokio::test]
async fn a_join_that_is_given_up_leaves_no_configuration() {
    let bench = Bench::new("exec sleep 600", "exit 0");
    let (mut kubeadm, plan, activity) = (bench.kubeadm(), plan(Role::Worker), bench.activity.clone());
    let joining = tokio::spawn(async move { kubeadm.join(&plan, activity).await });
    while bench.text("config.mode").is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!bench.is_clean());
    joining.abort();
    assert!(joining.await.unwrap_err().is_cancelled());
    assert!(bench.is_clean());
}

#[tokio::test]
async fn a_first_member_is_made_by_a_configuration_as_documented_and_its_kubeconfig_comes_back() {
    let bench = Bench::new(INIT, "exit 0");
    bench.kubeadm().resume(bench.activity.clone()).await.unwrap_err();
    let kubeconfig = bench.kubeadm().init(&parameters(), bench.activity.clone()).await.unwrap();
    assert_eq!(kubeconfig.expose(), b"kubeconfig\n");
    assert_documented(&bench.text("config.seen"), "kubeadm-init.yaml");
    let wanted = [RUNTIME, "kubeadm init phase certs ca --config ...", "kubeadm init --skip-token-print --config ..."];
    assert_eq!(bench.commands(), wanted);
    assert!(bench.is_clean() && bench.text("etc/kubernetes/audit-policy.yaml").contains("level: Metadata"));
    // Its kubelet serves with a certificate that the API server, which gets the authority's certificate, accepts.
    let verified = Command::new("openssl")
        .args(["verify", "-purpose", "sslserver", "-verify_ip", "10.0.0.7", "-CAfile"])
        .args([bench.at("etc/kubernetes/pki/ca.crt"), bench.at("run/state/kubelet/pki/serving.crt")])
        .output()
        .unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    assert_eq!(mode_of(&bench.at("run/state/kubelet/pki/serving.key")), Ok(0o600));
    bench.kubeadm().resume(bench.activity.clone()).await.unwrap();
    assert_eq!(bench.commands()[3..], [RUNTIME, "systemctl start kubelet.service"]);
}

#[tokio::test]
async fn a_first_member_without_version_and_endpoint_has_those_of_its_programs_and_its_address() {
    let version = |text: &str| format!("case $1 in version) echo {text}; exit 0 ;; esac; {INIT}");
    let given = InitParameters { kubernetes_version: String::new(), endpoint: String::new(), ..parameters() };
    let bench = Bench::new(&version("v1.36.3"), "exit 0");
    bench.kubeadm().init(&given, bench.activity.clone()).await.unwrap();
    let cluster = &documents(&bench.text("config.seen"))[1];
    assert_eq!(cluster["kubernetesVersion"], "v1.36.3", "without one kubeadm asks the Internet");
    assert_eq!(cluster["controlPlaneEndpoint"], "10.0.0.7:6443", "without one no further control plane joins");
    let bench = Bench::new(&version("nothing"), "exit 0");
    let error = bench.kubeadm().init(&given, bench.activity.clone()).await.unwrap_err().0;
    assert!(error.contains("\"nothing\"") && error.ends_with("name it in kubernetesVersion"), "{error}");
}

#[tokio::test]
async fn the_network_of_pods_is_applied_once_the_api_answers_and_one_that_is_missing_is_named_before_anything_is_made()
{
    let bench = Bench::new(INIT, "exit 0");
    let network =
        InitParameters { manifests: Manifests::Files(vec!["/etc/sparkfleet/cni.yaml".to_owned()]), ..parameters() };
    let error = bench.kubeadm().init(&network, bench.activity.clone()).await.unwrap_err().0;
    assert!(error.starts_with("manifests: ") && error.ends_with("cni.yaml is missing on this host"), "{error}");
    assert!(bench.commands().is_empty());
    fs::create_dir_all(bench.at("etc/sparkfleet")).unwrap();
    fs::write(bench.at("etc/sparkfleet/cni.yaml"), "kind: DaemonSet\n").unwrap();
    bench.kubeadm().init(&network, bench.activity.clone()).await.unwrap();
    let applied =
        "kubectl apply --server-side --kubeconfig /etc/kubernetes/admin.conf --filename /etc/sparkfleet/cni.yaml";
    assert_eq!(bench.commands().last().unwrap(), applied);
    let error = bench.k3s(Role::ControlPlane).init(&network, bench.activity.clone()).await.unwrap_err().0;
    assert!(error.starts_with("manifests: k3s applies"), "{error}");
}

#[tokio::test]
async fn without_another_word_the_network_of_pods_is_that_of_the_package_with_the_addresses_of_the_cluster() {
    let bench = Bench::new(INIT, "exit 0");
    bench.write_program("kubectl", "for last; do :; done; cp \"$last\" \"$ROOT/applied.seen\"");
    let unset = InitParameters { manifests: Manifests::Package, ..parameters() };
    let refused = async |bench: &Bench, parameters: &InitParameters| {
        bench.kubeadm().init(parameters, bench.activity.clone()).await.unwrap_err().0
    };
    let error = refused(&bench, &unset).await;
    let missing = "flannel.yaml is missing on this host; name the network of pods in manifests, or write none";
    assert!(error.ends_with(missing), "{error}");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("network/flannel.yaml");
    fs::create_dir_all(bench.at("usr/share/sparkfleet/network")).unwrap();
    fs::copy(own, bench.at("usr/share/sparkfleet/network/flannel.yaml")).unwrap();
    let error = refused(&bench, &unset).await;
    assert!(error.contains("needs the plugin ") && error.contains("/opt/cni/bin/bridge"), "{error}");
    fs::create_dir_all(bench.at("opt/cni/bin")).unwrap();
    for plugin in ["bridge", "host-local", "loopback", "portmap"] {
        fs::write(bench.at("opt/cni/bin").join(plugin), "").unwrap();
    }
    let two = InitParameters { pod_subnet: "10.42.0.0/16,fd00::/56".to_owned(), ..unset.clone() };
    let error = refused(&bench, &two).await;
    assert!(error.starts_with("podSubnet: ") && error.ends_with("or write none"), "{error}");
    assert!(bench.commands().is_empty(), "what is missing is named before anything is made");

    // Of the cluster's addresses, and of its own where the cluster names none.
    for (given, subnet) in [("10.42.0.0/16", "10.42.0.0/16"), ("", "10.244.0.0/16")] {
        let parameters = InitParameters { pod_subnet: given.to_owned(), ..unset.clone() };
        bench.kubeadm().init(&parameters, bench.activity.clone()).await.unwrap();
        let cluster = &documents(&bench.text("config.seen"))[1];
        assert_eq!(cluster["networking"]["podSubnet"], subnet, "kubeadm gives nodes their part of it");
        let applied = documents(&bench.text("applied.seen"));
        let config = applied.iter().find(|document| document["kind"] == "ConfigMap").unwrap();
        let network: Value = serde_json::from_str(config["data"]["net-conf.json"].as_str().unwrap()).unwrap();
        assert_eq!(network["Network"], subnet);
        assert!(bench.is_clean() && applied.iter().any(|document| document["kind"] == "DaemonSet"));
    }
    let bench = Bench::new("exit 1", ACCEPTED);
    bench.k3s(Role::ControlPlane).init(&unset, bench.activity.clone()).await.unwrap();
    assert!(!bench.text("commands").contains("kubectl"), "k3s brings a network");
}

/// What `kubeadm init` leaves, with a real authority.
const INIT: &str = "mkdir -p $ROOT/etc/kubernetes/pki $ROOT/var/lib/kubelet; case \"$*\" in *certs*) \
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /CN=kubernetes -days 2 \
    -keyout $ROOT/etc/kubernetes/pki/ca.key -out $ROOT/etc/kubernetes/pki/ca.crt ;; *) \
    [ -f $ROOT/run/state/kubelet/pki/serving.crt ] || exit 1; touch $ROOT/etc/kubernetes/kubelet.conf \
    $ROOT/var/lib/kubelet/config.yaml; echo kubeconfig > $ROOT/etc/kubernetes/admin.conf ;; esac";

#[tokio::test]
async fn before_the_attestation_nothing_of_kubernetes_runs_and_nothing_starts_it_at_boot() {
    let stops = "[ $1 != show ] || echo inactive";
    let bench = Bench::new("exit 1", stops);
    bench.k3s(Role::Worker).stop().await.unwrap();
    bench.kubeadm().stop().await.unwrap();
    for unit in ["k3s.service", "k3s-agent.service", "kubelet.service", "containerd.service"] {
        for command in ["disable", "stop"] {
            assert!(bench.commands().contains(&format!("systemctl {command} {unit}")), "{command} {unit}");
        }
    }
    assert!(!bench.text("commands").contains("systemctl enable"));
    // On a root that cannot be written, nothing is disabled; it is stopped nevertheless.
    let read_only = "case $1 in disable) exit 1 ;; stop) touch $ROOT/stopped.$2 ;; show) for last; do :; done; \
        [ -e $ROOT/stopped.$last ] && echo inactive || echo active ;; is-active) [ ! -e $ROOT/stopped.$3 ] ;; esac";
    Bench::new("exit 1", read_only).k3s(Role::Worker).stop().await.unwrap();
    // A unit that cannot be stopped is an error, also one that systemd is about to start again: the host is not attested, and runs.
    for state in ["active", "activating", "deactivating", "reloading", ""] {
        let systemctl = format!("case $1 in show) echo {state} ;; is-active) [ {state}x = activex ] || exit 3 ;; esac");
        let error = Bench::new("exit 1", &systemctl).k3s(Role::Worker).stop().await.unwrap_err().0;
        assert!(error.starts_with("k3s.service runs although the host is not attested"), "{error}");
    }
    let failed = Bench::new("exit 1", "[ $1 != show ] || echo failed").k3s(Role::Worker).stop().await;
    assert_eq!(failed, Ok(()));
}

/// How a systemctl answers that has these properties of each unit.
fn systemd_with(load: &str, drop_ins: &str) -> String {
    format!(
        "case \"$*\" in *ActiveState*) echo inactive ;; show*) printf 'DropInPaths={drop_ins}\\nUnitFileState=enabled\\nLoadState={load}\\n' ;; esac"
    )
}

#[tokio::test]
async fn a_unit_that_systemd_could_start_before_the_attestation_is_refused_by_its_name() {
    const HELD: &str = "/usr/lib/systemd/system/kubelet.service.d/50-attested.conf";
    let stop = async |load: &str, drop_ins: &str| {
        Bench::new("exit 1", &systemd_with(load, drop_ins)).kubeadm().stop().await.map_err(|error| error.0)
    };
    for others in ["", "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", "/x/150-attested.conf"] {
        let error = stop("loaded", others).await.unwrap_err();
        assert!(error.starts_with("kubelet.service has no drop-in 50-attested.conf"), "{error}");
        assert!(
            error.contains("/etc/systemd/system/kubelet.service.d") && error.ends_with("or mask the unit"),
            "{error}"
        );
        assert_eq!(stop("loaded", &format!("{HELD} {others}")).await, Ok(()));
        // What is not there, or masked, is never started.
        for state in ["not-found", "masked"] {
            assert_eq!(stop(state, others).await, Ok(()), "{state}");
        }
    }
}

#[tokio::test]
async fn systemd_may_start_kubernetes_once_the_host_is_attested_and_not_after_the_next_look_before_it() {
    // systemd, with the drop-ins of the package.
    let holds = "case $1 in restart | start) [ -e $ROOT/run/sparkfleet/attested ] || exit 1 ;; esac";
    let systemctl = format!("{holds}\n[ $1 != show ] || echo inactive");
    let bench = Bench::new("exit 0", &systemctl);
    bench.kubeadm().join(&plan(Role::Worker), bench.activity.clone()).await.unwrap();
    assert!(bench.is_released());
    bench.kubeadm().stop().await.unwrap();
    assert!(!bench.is_released());
    bench.write_program("systemctl", &format!("{holds}\n{ACCEPTED}"));
    bench.k3s(Role::Worker).join(&plan(Role::Worker), bench.activity.clone()).await.unwrap();
    assert!(bench.is_released());
    bench.write_program("systemctl", &systemctl);
    bench.k3s(Role::Worker).stop().await.unwrap();
    assert!(!bench.is_released());
    bench.write_program("systemctl", &format!("{holds}\n{ACCEPTED}"));
    bench.k3s(Role::Worker).resume(bench.activity.clone()).await.unwrap();
    assert!(bench.is_released());
}

const ACCEPTED: &str = "case \"$*\" in show*) echo active ;; *restart*) mkdir -p $ROOT/var/lib/rancher/k3s/agent; touch $ROOT/var/lib/rancher/k3s/agent/kubelet.kubeconfig; echo 'server: https://127.0.0.1:6443' > $ROOT/etc/rancher/k3s/k3s.yaml ;; esac";

#[tokio::test]
async fn a_k3s_agent_joins_with_a_pinned_token_in_a_file() {
    let bench = Bench::new("exit 1", ACCEPTED);
    bench.k3s(Role::Worker).join(&plan(Role::Worker), bench.activity.clone()).await.unwrap();
    assert_documented(&bench.text("etc/rancher/k3s/config.yaml"), "k3s-agent.yaml");
    let secrets = [
        ("etc/rancher/k3s/token", format!("K10{}::{TOKEN}", "ab".repeat(32))),
        ("etc/rancher/node/password", PASSWORD.to_owned()),
    ];
    for (path, content) in secrets {
        assert_eq!((bench.text(path), mode_of(&bench.at(path))), (content, Ok(0o600)), "{path}");
    }
    assert_eq!(bench.commands(), ["systemctl restart --no-block k3s-agent.service"]);
    bench.k3s(Role::Worker).resume(bench.activity.clone()).await.unwrap();
    assert!(bench.commands().contains(&"systemctl start --no-block k3s-agent.service".to_owned()));
    assert!(!bench.at("var/lib/rancher/k3s/server").exists(), "an agent has no API server");
}

#[tokio::test]
async fn a_further_k3s_server_writes_down_who_asks_its_api_for_what() {
    let bench = Bench::new("exit 1", ACCEPTED);
    bench.k3s(Role::ControlPlane).join(&plan(Role::ControlPlane), bench.activity.clone()).await.unwrap();
    assert_documented(&bench.text("etc/rancher/k3s/config.yaml"), "k3s-server.yaml");
    bench.assert_k3s_audits();
    assert_eq!(bench.commands(), ["systemctl restart --no-block k3s.service"]);
}

#[tokio::test]
async fn a_k3s_agent_joins_by_the_first_server_that_answers_and_does_not_start_without_its_configuration() {
    let bench = Bench::new("exit 1", ACCEPTED);
    let error = bench.k3s(Role::Worker).resume(bench.activity.clone()).await.unwrap_err().0;
    assert!(error.contains("config.yaml") && error.ends_with("reset the host to join again"), "{error}");
    assert!(bench.commands().is_empty());
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut plan = plan(Role::Worker);
    plan.membership.servers = vec![format!("https://{silent}"), format!("https://{}", server.local_addr().unwrap())];
    bench.k3s(Role::Worker).join(&plan, bench.activity.clone()).await.unwrap();
    let config: Value = serde_json::from_str(&bench.text("etc/rancher/k3s/config.yaml")).unwrap();
    assert_eq!(config["server"], plan.membership.servers[1].as_str());
}

#[tokio::test]
async fn a_k3s_server_begins_a_cluster_and_its_kubeconfig_names_the_endpoint() {
    let bench = Bench::new("exit 1", ACCEPTED);
    let kubeconfig = bench.k3s(Role::ControlPlane).init(&parameters(), bench.activity.clone()).await.unwrap();
    assert_eq!(kubeconfig.expose(), b"server: https://api.paint.example:6443\n");
    assert_documented(&bench.text("etc/rancher/k3s/config.yaml"), "k3s-init.yaml");
    bench.assert_k3s_audits();
    // A worker by its configuration, but the first member all the same.
    bench.k3s(Role::Worker).resume(bench.activity.clone()).await.unwrap();
    assert!(bench.commands().contains(&"systemctl start --no-block k3s.service".to_owned()));
}

#[tokio::test]
async fn a_k3s_member_that_does_not_run_after_its_start_says_so_and_stays_a_member() {
    // One that never runs; one that ends at once, again and again; and one that takes its time.
    let crashing = "case $1 in show) [ -e $ROOT/ran ] && { rm $ROOT/ran; echo activating; } || { touch $ROOT/ran; echo active; } ;; esac";
    let late = "case $1 in show) [ $(grep -c show $ROOT/commands) -ge 4 ] && echo active || echo activating ;; esac";
    for (systemctl, runs) in [("[ $1 != show ] || echo activating", false), (crashing, false), (late, true)] {
        let bench = Bench::new("exit 1", systemctl);
        let mut config = bench.config();
        config.timeouts.member_ms = if runs { 60_000 } else { 6_000 };
        fs::create_dir_all(bench.at("etc/rancher/k3s")).unwrap();
        fs::write(bench.at("etc/rancher/k3s/config.yaml"), "{}").unwrap();
        let mut k3s = K3s::new(&config, bench.root.path(), &[address()], Role::Worker);
        k3s.resume(bench.activity.clone()).await.unwrap();
        let fault = k3s.fault();
        assert_eq!(fault.is_none(), runs, "{systemctl}: {fault:?}");
        let is_named =
            fault.is_none_or(|fault| fault.starts_with("k3s-agent.service does not run 2 s after its start: "));
        assert!(is_named, "{systemctl}");
    }
}

#[tokio::test]
async fn a_k3s_node_that_is_not_accepted_is_reported_and_a_token_without_a_pin_is_not_used() {
    let bench = Bench::new("exit 1", "exit 0");
    let mut config = bench.config();
    config.timeouts.member_ms = 300;
    let mut k3s = K3s::new(&config, bench.root.path(), &[address()], Role::Worker);
    let error = k3s.join(&plan(Role::Worker), bench.activity.clone()).await.unwrap_err().0;
    assert!(error.ends_with("kubelet.kubeconfig did not appear within 0 s"), "{error}");
    let mut unpinned = plan(Role::Worker);
    unpinned.membership.authority_pin.clear();
    let error = k3s.join(&unpinned, bench.activity.clone()).await.unwrap_err().0;
    assert_eq!(error, "the token pins no authority, and the ticket has no pin");
}
