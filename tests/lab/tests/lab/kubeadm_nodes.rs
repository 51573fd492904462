//! Real Kubernetes in several machines: further members of a cluster of kubeadm, which the join service admits.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::joining::CLUSTER;
use lab::image::{Distribution, Uki};
use lab::machine::{Firmware, Hardware, Lan, Machine};
use serde_json::json;

use crate::factory::{Factory, assert_locked, assert_state_lies_on_its_disk, until_locked};
use crate::kubeadm::{
    Kubectl, ON_A_CONTROL_PLANE, SLOW, assert_is_a_control_plane, assert_was_started_after_the_lock, init,
};

/// Where the services of an edge are.
const NAMESPACE: &str = "fplus-edge";

/// A cluster with one control plane and a join service.
struct Cluster {
    factory: Factory,
    first: Machine,
    /// What the first one boots.
    image: Uki,
    kubectl: Kubectl,
    /// What boots as a further member.
    uki: Uki,
    further: Machine,
    _directory: tempfile::TempDir,
}

impl Cluster {
    /// Makes it. `role`: that of the machine that joins later. Of control planes the policy allows a second key.
    async fn begin(story: &'static str, role: &str) -> Self {
        let configuration = ["role = \"worker\"\n", SLOW];
        let hardware = Hardware::large(Firmware::Plain);
        let mut factory = Factory::with(story, Distribution::Kubeadm, hardware, configuration).await;
        factory.has_local_unlock = role == "control-plane";
        let [address, of_further, _] = Lan::ADDRESSES;
        let [image, uki] = [("control-plane", address), (role, of_further)].map(|(role, address)| {
            factory.image_with(address, &[&format!("ROLE={role}"), &format!("ADDRESSES={address}")])
        });
        let lan = Lan::new();
        let mut first = factory.machine("cell-1").on(lan, address);
        let further = factory.machine("cell-2").on(lan, of_further);
        let enrolled = [(&first, true), (&further, role == "control-plane")];
        let policy = factory.policy_of(&enrolled, &[&image, &uki]);
        factory.prepare_init(&policy).await;
        let directory = tempfile::tempdir().unwrap();
        first.power_on(&image, None);
        let kubectl = init(&factory, &first, address, directory.path()).await;
        assert_is_a_control_plane(&factory, &first, &kubectl);

        // As the guide says: the files of a control plane become the join service's Secret.
        let pki = copy_pki(&first, directory.path());
        // One whose answer did not come was made all the same.
        let is_there = |text: &str| text.ends_with(" created") || text.contains("AlreadyExists");
        kubectl.until(&first, "have a namespace", &["create", "namespace", NAMESPACE], is_there);
        let kubeconfig = kubectl.kubeconfig.display().to_string();
        let cli = factory.site.cli.clone().with_environment([("KUBECONFIG".to_owned(), kubeconfig)]);
        let trust = factory.site.trust().display().to_string();
        let pki = pki.display().to_string();
        let secret = cli.json(&["trust", "secret", CLUSTER, "--dir", &trust, "--pki", &pki]).await;
        factory.say(&format!("the join service's Secret: {}", secret["serves"]));
        factory.site.start_join_by_kubeconfig(&kubectl.kubeconfig, &format!("{address}:6443"), Lan::NETWORK);
        Self { factory, first, image, kubectl, uki, further, _directory: directory }
    }

    /// Switches the further machine on, and waits until it is a member.
    async fn join(&mut self) {
        self.further.power_on(&self.uki, None);
        self.factory.host(&self.further, "a member", |row| row["state"] == "member" && row["kind"] == "join").await;
        self.kubectl.until_ready(&self.factory, &self.further);
        let address = "jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
        let address = ["get", "node", "cell-2", "--output", address];
        let address = self.kubectl.until(&self.further, "have an address", &address, |text| !text.contains(' '));
        assert_eq!(address, Lan::ADDRESSES[1], "not that of the way out, which every machine has");
        assert_was_started_after_the_lock(&self.further);
        assert_state_lies_on_its_disk(&self.further);
        // That of `kubeadm init` has ended after a minute.
        let tokens = ["get", "secrets", "--namespace", "kube-system", "--output", "name"];
        let of_tokens = ["--field-selector", "type=bootstrap.kubernetes.io/token"];
        let tokens = self
            .kubectl
            .until(&self.first, "list tokens", &[&tokens[..], &of_tokens].concat(), |text| !text.contains(' '));
        assert_eq!(tokens, "", "a token has ended with the join that it was for");
    }

    /// Cuts the power of the further machine, and waits until it is back by the join service.
    async fn cut_power(&mut self) {
        self.further.power_cut();
        self.further.power_on(&self.uki, None);
        until_locked(&self.further);
        let is_back = |row: &serde_json::Value| row["state"] == "member" && row["kind"] == "rejoin";
        self.factory.host(&self.further, "a member again", is_back).await;
        assert_was_started_after_the_lock(&self.further);
    }

    /// Cuts the power of both machines, and waits until both are back by their TPMs: the join service writes down whom it answers, which needs the API server.
    fn cut_power_of_all(&mut self) {
        self.first.power_cut();
        self.further.power_cut();
        self.first.power_on(&self.image, None);
        self.further.power_on(&self.uki, None);
        for machine in [&self.first, &self.further] {
            until_locked(machine);
            machine.until("run the kubelet", "systemctl is-active kubelet || true", |state| state == "active");
            let seconds = machine.on_for().as_secs_f64();
            self.factory.say(&format!("{} is back, {seconds:.1} s after power-on", machine.name()));
            let journal = machine.journal();
            assert!(journal.contains("the TPM is asked for the second one"), "by its TPM: {journal}");
            assert_was_started_after_the_lock(machine);
        }
    }
}

/// A copy of the files of a control plane, for its owner alone.
fn copy_pki(machine: &Machine, directory: &Path) -> PathBuf {
    let archive = directory.join("pki.tar");
    let packed = machine.try_ssh("tar --create --directory=/etc/kubernetes pki");
    assert!(packed.status.success(), "{packed:?}");
    std::fs::write(&archive, packed.stdout).unwrap();
    std::fs::set_permissions(&archive, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut tar = Command::new("tar");
    let unpacked = tar.args(["--extract", "--file"]).arg(archive).arg("--directory").arg(directory).status().unwrap();
    assert!(unpacked.success());
    directory.join("pki")
}

// long: two machines, one of them is switched on three times
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; make lab"]
async fn a_worker_of_kubeadm_joins_by_the_join_service_comes_back_after_a_power_cut_and_not_once_it_is_revoked() {
    let mut cluster = Cluster::begin("kubeadm worker", "worker").await;
    cluster.join().await;
    let place = json!({"nodeName": "cell-2"}).to_string();
    cluster.kubectl.run_pod(&cluster.factory, &cluster.further, "press", &place);
    cluster.kubectl.run_pod(&cluster.factory, &cluster.first, "hall", ON_A_CONTROL_PLANE);
    cluster.kubectl.until_reaches(&cluster.further, "press", "hall");
    cluster.cut_power().await;
    cluster.kubectl.until_runs_again(&cluster.factory, &cluster.further, "press");
    cluster.kubectl.until_answers(&cluster.further, "press");
    cluster.kubectl.until_reaches(&cluster.further, "press", "hall");

    let revoked = cluster.factory.site.cli.json(&["host", "revoke", "cell-2"]).await;
    cluster.factory.site.agree(&revoked).await;
    cluster.further.power_cut();
    cluster.further.power_on(&cluster.uki, None);
    cluster.factory.host(&cluster.further, "revoked", |row| row["state"] == "revoked").await;
    cluster.further.until_journal("be refused", |text| text.contains("revoked"));
    assert_locked(&cluster.further);
}

// long: two machines, which are both control planes, each switched on twice
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; make lab"]
async fn a_further_control_plane_of_kubeadm_joins_by_the_join_service_and_both_come_back_after_a_power_cut() {
    let mut cluster = Cluster::begin("kubeadm control plane", "control-plane").await;
    cluster.join().await;
    assert_is_a_control_plane(&cluster.factory, &cluster.further, &cluster.kubectl);
    let place = json!({"nodeName": "cell-2"}).to_string();
    cluster.kubectl.run_pod(&cluster.factory, &cluster.further, "press", &place);

    cluster.cut_power_of_all();
    // Of two members of etcd both are needed, so this was agreed between them.
    cluster.kubectl.until_runs_again(&cluster.factory, &cluster.further, "press");
    cluster.kubectl.until_answers(&cluster.further, "press");
    for machine in [&cluster.first, &cluster.further] {
        assert_is_a_control_plane(&cluster.factory, machine, &cluster.kubectl);
    }
}
