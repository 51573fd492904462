//! A host that was a member of a real etcd and lost its disk: the bootstrapper takes it out before kubeadm joins it again. Here a recording program replaces kubeadm.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bootstrapper::adapters::kubeadm::Kubeadm;
use bootstrapper::platform::{Activity, Installer as _, JoinPlan};
use join_protocol::message::grant::Membership;
use join_protocol::terms::Role;
use kubernetes_tests::network::Network;
use kubernetes_tests::process::{Launch, Process};
use kubernetes_tests::programs::Programs;
use tokio::sync::mpsc;

use crate::host::installer;

const CLIENT: u16 = 2379;
/// Ports of the members of which two run.
const PEERS: [(&str, u16); 3] = [("first", 2380), ("second", 2382), ("edge-1", 2390)];
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(100);

fn openssl(directory: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// etcd's authority where kubeadm has it, and a certificate of the members as kubeadm issues them. On one machine peers are seen to come from 127.0.0.1.
fn certificates(pki: &Path, address: &str) {
    fs::create_dir_all(pki).unwrap();
    for key in ["ca.key", "server.key"] {
        openssl(pki, &format!("ecparam -name prime256v1 -genkey -noout -out {key}"));
    }
    openssl(pki, "req -x509 -key ca.key -subj /CN=etcd-ca -days 2 -out ca.crt");
    openssl(pki, "req -new -key server.key -subj /CN=member -out server.csr");
    let extensions =
        format!("[leaf]\nsubjectAltName=IP:{address},IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n");
    fs::write(pki.join("extensions"), extensions).unwrap();
    let signed = "-CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -extensions leaf";
    openssl(pki, &format!("x509 -req -in server.csr {signed} -out server.crt"));
}

fn member(programs: &Programs, directory: &Path, network: &Network, pki: &Path, at: usize) -> Process {
    let (name, peer) = PEERS[at];
    let url = |port| format!("https://{}", network.control_plane(port));
    let client = url(CLIENT + 10 * u16::try_from(at).unwrap());
    let cluster = PEERS.map(|(name, port)| format!("{name}={}", url(port))).join(",");
    let file = |flag: &str, file: &str| format!("--{flag}={}", pki.join(file).display());
    let flags = [
        format!("--name={name}"),
        format!("--data-dir={}", directory.join(name).display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={}", url(peer)),
        format!("--initial-advertise-peer-urls={}", url(peer)),
        format!("--initial-cluster={cluster}"),
        file("cert-file", "server.crt"),
        file("key-file", "server.key"),
        file("trusted-ca-file", "ca.crt"),
        file("peer-cert-file", "server.crt"),
        file("peer-key-file", "server.key"),
        file("peer-trusted-ca-file", "ca.crt"),
        "--client-cert-auth".to_owned(),
        "--peer-client-cert-auth".to_owned(),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    Process::start(Launch::new(name, &programs.program("etcd"), flags), directory).unwrap()
}

/// The bootstrapper's kubeadm on the host `edge-1`, whose programs write down how they were called.
struct Host {
    root: tempfile::TempDir,
    kubeadm: Kubeadm,
    activity: Activity,
    said: mpsc::Receiver<String>,
}

impl Host {
    fn new(network: &Network) -> Self {
        let root = tempfile::tempdir().unwrap();
        let record = |name: &str| format!("echo {name} $1 >> {}/commands", root.path().display());
        let (programs, address) = ([record("kubeadm"), record("systemctl")], network.address(7));
        let mut kubeadm = installer(root.path(), address, programs.each_ref().map(String::as_str), |_| {});
        (kubeadm.etcd_port, kubeadm.retry_after) = (CLIENT, LOOK);
        let (sender, said) = mpsc::channel(64);
        Self { root, kubeadm, activity: Activity::new(sender), said }
    }

    /// What it says about etcd while it joins as a control plane; or why it does not.
    async fn join(&mut self, network: &Network) -> Result<Vec<String>, String> {
        let membership = Membership {
            node_name: "edge-1".to_owned(),
            servers: vec![format!("https://{}", network.control_plane(6443))],
            token: "abcdef.0123456789abcdef".into(),
            authority_pin: format!("sha256:{}", "ab".repeat(32)),
            ..Membership::default()
        };
        let plan = JoinPlan { role: Role::ControlPlane, membership };
        self.kubeadm.join(&plan, self.activity.clone()).await.map_err(|error| error.0)?;
        let commands = fs::read_to_string(self.root.path().join("commands")).unwrap();
        assert!(commands.ends_with("kubeadm join\n"), "{commands}");
        let said = std::iter::from_fn(|| self.said.try_recv().ok());
        Ok(said.filter(|text| text.contains("etcd")).collect())
    }
}

#[tokio::test]
#[ignore = "needs real Kubernetes: make kubernetes"]
async fn a_control_plane_that_lost_its_disk_leaves_etcd_before_it_joins_again() {
    let (programs, network) = (Programs::find().unwrap(), Network::reserve());
    let directory = tempfile::tempdir().unwrap();
    let mut host = Host::new(&network);
    let pki = host.root.path().join("etc/kubernetes/pki/etcd");
    certificates(&pki, &network.address(1).to_string());
    // As after a power cut: the third member is known, and its log is gone.
    let members = [0, 1].map(|at| member(&programs, directory.path(), &network, &pki, at));

    // With data of its own it is a member, and not asked to leave.
    let data = host.root.path().join("var/lib/etcd/member");
    fs::create_dir_all(&data).unwrap();
    assert_eq!(host.join(&network).await, Ok(Vec::new()));
    fs::remove_dir(&data).unwrap();

    // Until both have elected a leader, none answers; until they have been together for some seconds, etcd changes no members, and the join fails.
    let deadline = Instant::now() + PATIENCE;
    let said = loop {
        match host.join(&network).await {
            Ok(said) if !said.is_empty() => break said,
            Ok(_) => {}
            Err(error) => assert!(error.starts_with("etcd https://"), "{error}"),
        }
        assert!(Instant::now() < deadline, "{}", members.each_ref().map(Process::tail).join("\n"));
        tokio::time::sleep(LOOK).await;
    };
    assert_eq!(said, ["etcd no longer counts edge-1, which this host was before"]);
    assert_eq!(host.join(&network).await, Ok(Vec::new()), "it is gone, and the others are left alone");
}
