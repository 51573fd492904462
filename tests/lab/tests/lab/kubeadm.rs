//! Real Kubernetes in a machine: kubeadm, kubelet, containerd, the programs of a control plane in containers, and a network of pods.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lab::image::{self, Distribution};
use lab::machine::{Firmware, Hardware, Machine};
use serde_json::{Value, json};

use crate::factory::{Factory, LOCK, ZERO, assert_locked, assert_state_lies_on_its_disk, crypt, until_locked};

/// Address that QEMU gives to a machine.
const ADDRESS: &str = "10.0.2.15";
/// dm-integrity would write the whole disk first, which takes minutes. Without hardware virtualisation kubeadm takes longer than the bootstrapper waits by default.
pub const SLOW: &str = "integrity = false\n[timeouts]\nmember_ms = 3600000\nreboot_ms = 3600000\n";
/// Where a pod is placed as the chart places the join service: on a control plane, whatever the label's value is.
pub const ON_A_CONTROL_PLANE: &str = r#"{
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}]}}},
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}]}"#;

/// kubectl of an operator, outside of the machines. Inside, each start of it would take seconds from the API server that it asks.
pub struct Kubectl {
    program: PathBuf,
    /// The administrator's, which names a port that leads to the API server in a machine.
    pub kubeconfig: PathBuf,
}

impl Kubectl {
    /// By the kubeconfig that `host init` has written.
    fn of(kubeconfig: PathBuf, machine: &Machine, address: &str) -> Self {
        let kubectl = Self { program: image::kubectl(), kubeconfig };
        assert!(std::fs::read_to_string(&kubectl.kubeconfig).unwrap().contains(&format!("https://{address}:6443")));
        let name = kubectl.run(&["config", "view", "--output", "jsonpath={.clusters[0].name}"]);
        let server = format!("https://127.0.0.1:{}", machine.api_port());
        let set = kubectl.run(&["config", "set-cluster", &name, "--server", &server, "--tls-server-name", address]);
        assert!(set.ends_with(" set."), "{set}");
        kubectl
    }

    /// What it prints, also if the API server does not answer.
    pub fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.arg("--cache-dir").arg(self.kubeconfig.with_extension("cache"));
        let output = command.args(["--request-timeout", "60s"]).args(arguments).stdin(Stdio::null()).output().unwrap();
        [output.stdout, output.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat()
            .trim()
            .to_owned()
    }

    /// Waits until it prints what `found` likes. The API server may not answer yet.
    pub fn until(&self, machine: &Machine, what: &str, arguments: &[&str], found: impl Fn(&str) -> bool) -> String {
        machine.until_answered(what, || self.run(arguments), found)
    }

    /// Waits until the node of a machine is ready.
    pub fn until_ready(&self, factory: &Factory, machine: &Machine) {
        let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        self.until(machine, "be ready", &["get", "node", machine.name(), "--output", ready], |text| text == "True");
        factory.say(&format!(
            "the node {} is ready, {:.1} s after power-on",
            machine.name(),
            machine.on_for().as_secs_f64()
        ));
    }

    /// Starts a pod that the network of pods gives an address, and in which a shell answers: the API server reaches the kubelet by its certificate. `place`: fields of its specification.
    pub fn run_pod(&self, factory: &Factory, machine: &Machine, name: &str, place: &str) {
        let account = ["get", "serviceaccount", "default", "--output", "name"];
        self.until(machine, "have an account for pods", &account, |text| text == "serviceaccount/default");
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": serde_json::from_str::<Value>(place).unwrap()});
        pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
        pod["spec"]["containers"] =
            json!([{"name": "press", "image": "lab.invalid/network:1", "command": ["sleep", "infinity"]}]);
        let file = self.kubeconfig.with_extension(format!("{name}.json"));
        std::fs::write(&file, pod.to_string()).unwrap();
        let applied = format!("pod/{name} ");
        let file = file.display().to_string();
        self.until(machine, "take a pod", &["apply", "--filename", &file], |text| text.starts_with(&applied));
        let address = ["get", "pod", name, "--output", "jsonpath={.status.phase} {.status.podIP}"];
        let address = self.until(machine, "run a pod", &address, |text| text.starts_with("Running 10.42."));
        factory.say(&format!("a pod of {}: {address}", machine.name()));
        self.until_answers(machine, name);
    }

    /// Waits until something can be said in a pod.
    pub fn until_answers(&self, machine: &Machine, pod: &str) {
        let echo = ["exec", pod, "--", "echo", "said in the pod"];
        self.until(machine, "say something in the pod", &echo, |text| text == "said in the pod");
    }

    /// Waits until a pod of this machine reaches a pod of another one.
    pub fn until_reaches(&self, machine: &Machine, from: &str, to: &str) {
        let address = ["get", "pod", to, "--output", "jsonpath={.status.podIP}"];
        let address = self.until(machine, "know an address", &address, |text| text.starts_with("10.42."));
        let ping = ["exec", from, "--", "ping", "-c", "1", "-W", "10", &address];
        self.until(machine, "reach another machine's pod", &ping, |text| text.contains(" 0% packet loss"));
    }

    /// Waits until a pod runs that was started before this boot.
    pub fn until_runs_again(&self, factory: &Factory, machine: &Machine, pod: &str) {
        let restarts = "jsonpath={.status.containerStatuses[0].restartCount} {.status.phase}";
        self.until(machine, "start its pod again", &["get", "pod", pod, "--output", restarts], |text| {
            text.ends_with(" Running") && !text.starts_with("0 ")
        });
        factory.say(&format!("its pod runs again, {:.1} s after power-on", machine.on_for().as_secs_f64()));
    }
}

/// Makes a machine that was switched on the first member. `directory`: for what an operator has in files.
pub async fn init(factory: &Factory, machine: &Machine, address: &str, directory: &Path) -> Kubectl {
    let parameters = json!({
        "podSubnet": "10.42.0.0/16", "labels": ["factory=paint"],
        "manifests": ["/usr/share/sparkfleet/network/bridge.yaml"],
    });
    let (kubeconfig, file) = (directory.join("kubeconfig"), directory.join("parameters.json"));
    std::fs::write(&file, parameters.to_string()).unwrap();
    factory.init(machine, &kubeconfig, &["--parameters", &file.display().to_string(), "--timeout", "60m"]).await;
    Kubectl::of(kubeconfig, machine, address)
}

/// The node is ready, all pods of the control plane and the network run, and what they keep lies on the encrypted disk.
pub fn assert_is_a_control_plane(factory: &Factory, machine: &Machine, kubectl: &Kubectl) {
    kubectl.until_ready(factory, machine);
    let running = ["get", "pods", "--namespace", "kube-system", "--field-selector", "status.phase=Running"];
    kubectl.until(machine, "run its pods", &[&running[..], &["--output", "name"]].concat(), |text| {
        ["etcd-", "kube-apiserver-", "kube-controller-manager-", "kube-scheduler-"]
            .map(|program| format!("{program}{}", machine.name()))
            .into_iter()
            .chain(["kube-proxy-", "network-"].map(ToOwned::to_owned))
            .all(|name| text.contains(&format!("pod/{name}")))
    });
    let table = machine.ssh("dmsetup table");
    assert!(crypt(&table).contains("aes-xts-plain64"), "{table}");
    assert_state_lies_on_its_disk(machine);
    for (directory, file) in [
        ("/var/lib/etcd", "member/wal"),
        ("/var/lib/kubelet", "config.yaml"),
        ("/var/lib/containerd", "io.containerd.content.v1.content/blobs"),
        ("/etc/kubernetes", "pki/ca.key"),
    ] {
        let source = machine.ssh(&format!("findmnt --noheadings --output SOURCE --target {directory}/{file}"));
        assert!(source.starts_with("/dev/mapper/state["), "{directory}/{file} lies on {source}");
    }
    assert_ne!(machine.pcr(LOCK), ZERO, "the machine is locked to its cluster");
}

/// The bootstrapper has made systemd start the runtime and the kubelet, after the lock.
pub fn assert_was_started_after_the_lock(machine: &Machine) {
    let at = |unit: &str| {
        let show = format!("systemctl show --property ActiveEnterTimestampMonotonic --value {unit}");
        machine.ssh(&show).parse::<u64>().unwrap()
    };
    // The first is the lock itself.
    let committed = "journalctl -b -u sparkfleet-bootstrapper --grep committed --output json --no-pager | head -n 1";
    let committed = machine.ssh(committed);
    let locked = serde_json::from_str::<Value>(&committed).unwrap_or_else(|_| panic!("{}", machine.journal()));
    let locked: u64 = locked["__MONOTONIC_TIMESTAMP"].as_str().unwrap().parse().unwrap();
    let (runtime, kubelet) = (at("containerd.service"), at("kubelet.service"));
    assert!(locked < runtime && runtime < kubelet, "locked {locked}, containerd {runtime}, kubelet {kubelet}");
}

// long: it makes a control plane, and starts it again
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; make lab"]
async fn a_control_plane_of_kubeadm_is_made_by_host_init_and_comes_back_by_its_tpm_after_a_power_cut() {
    let first = format!("role = \"control-plane\"\naddresses = [\"{ADDRESS}\"]\n");
    let hardware = Hardware::large(Firmware::Plain);
    let mut factory = Factory::with("kubeadm", Distribution::Kubeadm, hardware, [&first, SLOW]).await;
    factory.has_local_unlock = true;
    let directory = tempfile::tempdir().unwrap();
    let mut machine = factory.machine("cell-2");
    let policy = factory.policy(&[&machine]);
    factory.prepare_init(&policy).await;

    machine.power_on(&factory.uki, None);
    let kubectl = init(&factory, &machine, ADDRESS, directory.path()).await;
    assert_is_a_control_plane(&factory, &machine, &kubectl);
    assert_was_started_after_the_lock(&machine);
    assert_eq!(machine.ssh("systemctl is-active containerd kubelet"), "active\nactive");
    kubectl.run_pod(&factory, &machine, "press", ON_A_CONTROL_PLANE);
    let label = ["get", "node", "cell-2", "--output", "jsonpath={.metadata.labels.factory}"];
    let label = kubectl.until(&machine, "say its label", &label, |text| !text.contains(' '));
    assert_eq!(label, "paint");

    machine.power_cut();
    machine.power_on(&factory.uki, None);
    until_locked(&machine);
    factory.say(&format!("the disk is open, {:.1} s after power-on", machine.on_for().as_secs_f64()));
    // What the API server knew before is an answer of this boot's.
    machine.until("run the kubelet", "systemctl is-active kubelet || true", |state| state == "active");
    assert_was_started_after_the_lock(&machine);
    kubectl.until_runs_again(&factory, &machine, "press");
    assert_is_a_control_plane(&factory, &machine, &kubectl);
    kubectl.until_answers(&machine, "press");

    // Another image gets no key: nothing of the control plane runs or can be read.
    machine.power_cut();
    let other = factory.another_image();
    machine.power_on(&other, None);
    machine.until_journal("be given nothing", |text| text.contains("the second key is not given out"));
    assert_locked(&machine);
}
