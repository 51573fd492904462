//! Real Kubernetes in a machine: kubeadm, kubelet, containerd, the programs of a control plane in containers, and a network of pods.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use lab::image::{self, Distribution};
use lab::machine::{Firmware, Hardware, Machine};
use serde_json::{Value, json};

use crate::factory::{Factory, LOCK, ZERO, assert_locked, assert_outside, assert_state_lies_on_its_disk, crypt};
use e2e::joining::CLUSTER;

/// Address that QEMU gives to a machine.
const ADDRESS: &str = "10.0.2.15";
/// dm-integrity would write the whole disk first, which takes minutes. Without hardware virtualisation kubeadm takes longer than the bootstrapper waits by default.
const SLOW: &str = "integrity = false\n[timeouts]\nmember_ms = 3600000\nreboot_ms = 3600000\n";
/// A pod that the network of pods gives an address. It is placed as the chart places the join service: on a control plane, whatever the label's value is.
const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "press"}, "spec": {
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]}]}}},
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}],
    "terminationGracePeriodSeconds": 0,
    "containers": [{"name": "press", "image": "lab.invalid/network:1", "command": ["sleep", "infinity"]}]}}"#;

/// kubectl of an operator, outside of the machine. Inside, each start of it would take seconds from the API server that it asks.
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// What it prints, also if the API server does not answer.
    fn run(&self, machine: &Machine, arguments: &[&str]) -> String {
        let server = format!("https://127.0.0.1:{}", machine.api_port());
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--server", &server, "--tls-server-name", ADDRESS]);
        command.arg("--cache-dir").arg(self.kubeconfig.with_extension("cache"));
        let output = command.args(["--request-timeout", "60s"]).args(arguments).stdin(Stdio::null()).output().unwrap();
        [output.stdout, output.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat()
            .trim()
            .to_owned()
    }

    /// Waits until it prints what `found` likes. The API server may not answer yet.
    fn until(&self, machine: &Machine, what: &str, arguments: &[&str], found: impl Fn(&str) -> bool) -> String {
        machine.until_answered(what, || self.run(machine, arguments), found)
    }
}

/// The node is ready, all pods of the control plane and the network run, and what they keep lies on the encrypted disk.
fn assert_is_a_control_plane(factory: &Factory, machine: &Machine, kubectl: &Kubectl) {
    let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    kubectl.until(machine, "be ready", &["get", "node", "cell-2", "--output", ready], |text| text == "True");
    factory.say(&format!("the node is ready, {:.1} s after power-on", machine.on_for().as_secs_f64()));
    let running = ["get", "pods", "--namespace", "kube-system", "--field-selector", "status.phase=Running"];
    kubectl.until(machine, "run its pods", &[&running[..], &["--output", "name"]].concat(), |text| {
        ["etcd-cell-2", "kube-apiserver-cell-2", "kube-controller-manager-cell-2", "kube-scheduler-cell-2"]
            .iter()
            .chain(&["kube-proxy-", "network-"])
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
    assert_ne!(machine.register(LOCK), ZERO, "the machine is locked to its cluster");
}

/// The bootstrapper has made systemd start the runtime and the kubelet, after the lock.
fn assert_was_started_after_the_lock(machine: &Machine) {
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
    // The cluster is not there, so nothing of it answers.
    factory.site.join.kill();
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (trust, own) = (factory.site.trust(), factory.site.trust().join(factory.site.uuid.to_string()));
    let (trust, own, kubeconfig) = (trust.display().to_string(), own.display().to_string(), at("kubeconfig"));
    let cluster = factory.site.uuid.to_string();
    factory.site.cli.json(&["trust", "issue", &cluster, "--purpose", "cluster-admin", "--dir", &trust]).await;
    let mut machine = factory.machine("cell-2");
    let policy = factory.policy(&[&machine]).to_string();
    factory.site.cli.json_with(&["policy", "set", CLUSTER, "-"], &policy).await;

    machine.power_on(&factory.uki, None);
    machine.until_journal("wait for an issuer", |text| text.contains("awaits-challenge"));
    assert_outside(&machine);
    let parameters = json!({
        "podSubnet": "10.42.0.0/16", "labels": ["factory=paint"],
        "manifests": ["/usr/share/sparkfleet/network/bridge.yaml"],
    });
    std::fs::write(at("parameters.json"), parameters.to_string()).unwrap();
    let parameters = at("parameters.json");
    let init = ["host", "init", "cell-2", "--cluster", CLUSTER, "--name", "cell-2", "--trust", &own];
    let more = ["--kubeconfig", &kubeconfig, "--parameters", &parameters, "--timeout", "60m"];
    let made = factory.site.cli.run(&[&init[..], &more].concat()).await;
    assert_eq!(made.code, 0, "{made:#?}\n{}", machine.diagnosis());
    factory.say(&format!(
        "a member, {:.1} s after power-on, QEMU has {} MiB",
        machine.on_for().as_secs_f64(),
        machine.memory()
    ));
    assert!(std::fs::read_to_string(&kubeconfig).unwrap().contains(&format!("https://{ADDRESS}:6443")));
    let kubectl = Kubectl { program: image::kubectl(), kubeconfig: kubeconfig.into() };
    assert_is_a_control_plane(&factory, &machine, &kubectl);
    assert_was_started_after_the_lock(&machine);
    assert_eq!(machine.ssh("systemctl is-active containerd kubelet"), "active\nactive");

    // A pod gets its address by the plugins, and the API server reaches the kubelet by the certificate that the bootstrapper has issued.
    let account = ["get", "serviceaccount", "default", "--output", "name"];
    kubectl.until(&machine, "have an account for pods", &account, |text| text == "serviceaccount/default");
    std::fs::write(at("pod.json"), POD).unwrap();
    let pod = at("pod.json");
    kubectl.until(&machine, "take a pod", &["apply", "--filename", &pod], |text| text.starts_with("pod/press "));
    let address = "jsonpath={.status.phase} {.status.podIP}";
    let address = ["get", "pod", "press", "--output", address];
    let address = kubectl.until(&machine, "run a pod", &address, |text| text.starts_with("Running 10.42."));
    factory.say(&format!("a pod: {address}"));
    let echo = ["exec", "press", "--", "echo", "said in the pod"];
    kubectl.until(&machine, "say something in the pod", &echo, |text| text == "said in the pod");
    let label = ["get", "node", "cell-2", "--output", "jsonpath={.metadata.labels.factory}"];
    let label = kubectl.until(&machine, "say its label", &label, |text| !text.contains(' '));
    assert_eq!(label, "paint");

    machine.power_cut();
    machine.power_on(&factory.uki, None);
    machine.until("be locked to its cluster", "tpm2_pcrread sha256:15", |text| !text.contains(&format!("0x{ZERO}")));
    factory.say(&format!("the disk is open, {:.1} s after power-on", machine.on_for().as_secs_f64()));
    // What the API server knew before is an answer of this boot's.
    machine.until("run the kubelet", "systemctl is-active kubelet || true", |state| state == "active");
    assert_was_started_after_the_lock(&machine);
    let restarts = "jsonpath={.status.containerStatuses[0].restartCount} {.status.phase}";
    let restarts = ["get", "pod", "press", "--output", restarts];
    kubectl.until(&machine, "start its pod again", &restarts, |text| {
        text.ends_with(" Running") && !text.starts_with("0 ")
    });
    factory.say(&format!("its pod runs again, {:.1} s after power-on", machine.on_for().as_secs_f64()));
    assert_is_a_control_plane(&factory, &machine, &kubectl);
    kubectl.until(&machine, "say something in the pod", &echo, |text| text == "said in the pod");

    // Another image gets no key: nothing of the control plane runs or can be read.
    machine.power_cut();
    let other = factory.another_image();
    machine.power_on(&other, None);
    machine.until_journal("be given nothing", |text| text.contains("the second key is not given out"));
    assert_locked(&machine);
}
