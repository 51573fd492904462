//! Machines with TPMs of their own (swtpm) and the program `sparkfleet-bootstrapper` as systemd would start it, against everything else as an operator runs it: Mosquitto, control plane, join
//! service. Their state disks are LUKS2 on files, their kubeadm writes down how it was called.

#[path = "../../../../services/bootstrapper/tests/support/programs.rs"]
#[allow(dead_code, reason = "what its own package needs of it is more")]
mod programs;
#[path = "../../../../services/libs/join-attestation/tests/swtpm/mod.rs"]
#[allow(dead_code, reason = "what its own package needs of it is more")]
mod swtpm;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::joining::{CLUSTER, Site, succeed};
use e2e::process::Process;
use e2e::program;
use e2e::wait;
use join_protocol::secret::{Secret, cluster_id};
use join_trust::keys::KeyProvider as _;
use join_trust::replica::{Files, cluster_keys};
use serde_json::{Value, json};
use swtpm::Swtpm;
use tempfile::TempDir;
use uuid::Uuid;

use crate::joining::assert_nothing_secret;

/// What firmware, boot loader and kernel measure into.
const PCRS: [u8; 4] = [4, 7, 9, 11];
const LOCK: u8 = 15;

/// Expects the measurements of this machine, from TPMs by these machines' manufacturers, and the approval of each host by an operator.
async fn set_policy(site: &Site, model: &Machine, machines: &[&Machine]) {
    let of = |pcr: &u8| hex::encode(model.pcr(*pcr));
    let pcrs: Value = PCRS.iter().map(|at| (at.to_string(), json!({"expected": [of(at)]}))).collect();
    let authorities = ["ca/issuercert.pem", "ca/swtpm-localca-rootca-cert.pem"];
    let manufacturers: Vec<String> = machines
        .iter()
        .flat_map(|machine| authorities.map(|file| String::from_utf8(machine.tpm.file(file)).unwrap()))
        .collect();
    // The list of enrolled hosts must not be empty, or no host could satisfy the policy.
    let enrolled = [json!({ "ek": hex::encode(hash(b"a machine elsewhere")), "host": "elsewhere" })];
    let policy = json!({ "bank": "sha256", "pcrs": pcrs, "lock": { "pcr": LOCK },
        "endorsement": { "require": "both", "manufacturers": manufacturers, "enrolled": enrolled } });
    site.set_policy(&policy).await;
}

struct Machine {
    name: String,
    kernel: &'static str,
    tpm: Swtpm,
    process: Option<Process>,
    /// Its root directory.
    root: TempDir,
}

impl Machine {
    /// A machine that was never switched on.
    fn new(name: &str, kernel: &'static str) -> Self {
        let (root, tpm) = (tempfile::tempdir().unwrap(), Swtpm::manufacture("sha1,sha256"));
        programs::install(root.path());
        let machine = Self { name: name.to_owned(), kernel, tpm, process: None, root };
        for folder in
            ["etc/ssh", "proc/sys/kernel/random", "proc/sys/kernel/keys", "proc/sys/vm", "proc/sys/net/ipv4", "state"]
        {
            fs::create_dir_all(machine.at(folder)).unwrap();
        }
        fs::File::create(machine.at("dev/state")).unwrap().set_len(20 * 1024 * 1024).unwrap();
        let key = machine.at("etc/ssh/ssh_host_ed25519_key").display().to_string();
        succeed("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &key]);
        let record = |name: &str| format!("echo \"{name} $*\" >> {}/commands", machine.root.path().display());
        // What a join leaves: without it no kubelet starts.
        let keep = format!(
            "for last; do :; done; cd {}; cp $last kubeadm.yaml; touch etc/kubernetes/kubelet.conf var/lib/kubelet/config.yaml",
            machine.root.path().display()
        );
        programs::script(&machine.at("bin/kubeadm"), &format!("{}\n{keep}", record("kubeadm")));
        // Nothing runs before it is started.
        let inactive = "[ $1 != show ] || echo inactive";
        programs::script(&machine.at("bin/systemctl"), &format!("{}\n{inactive}", record("systemctl")));
        machine.measure();
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// What every boot measures, and the id that it has.
    fn measure(&self) {
        fs::write(self.at("proc/sys/kernel/random/boot_id"), Uuid::new_v4().to_string()).unwrap();
        for pcr in PCRS {
            let what = if pcr == 11 { self.kernel.to_owned() } else { format!("what is measured into {pcr}") };
            self.tpm.write("event.bin", what.as_bytes());
            self.tpm.tool("tpm2_pcrevent", &[&pcr.to_string(), "event.bin"]);
        }
    }

    fn pcr(&self, pcr: u8) -> Vec<u8> {
        // Behind the number of digests and the size of the only one.
        self.tpm.pcrs("sha256", &[pcr])[6..].to_vec()
    }

    fn is_locked(&self) -> bool {
        self.pcr(LOCK) != [0; 32]
    }

    /// Writes what an operator has prepared for it, as cloud-init would.
    async fn prepare(&self, site: &Site, address: &str) {
        let (trust, password) = (site.trust().display().to_string(), self.at("password"));
        fs::write(&password, "of the broker\n").unwrap();
        let (server, password) = (site.broker.url(), password.display().to_string());
        let of_site = ["host", "prepare", CLUSTER, "--server", &server, "--trust", &trust, "--distribution", "kubeadm"];
        let own = ["--name", &self.name, "--address", address, "--device", "/dev/state"];
        let login = ["--host-password-file", &password];
        let prepared = site.cli.run(&[&of_site[..], &own, &login].concat()).await;
        assert_eq!(prepared.code, 0, "{prepared:#?}");
        let data: Value = serde_saphyr::from_str(&prepared.stdout).unwrap();
        for file in data["write_files"].as_array().unwrap() {
            let path = self.at(file["path"].as_str().unwrap().trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file["content"].as_str().unwrap()).unwrap();
        }
    }

    async fn start(&mut self, site: &Site, address: &str) {
        self.prepare(site, address).await;
        let of = |path: &str| self.at(path).display().to_string();
        // What is of the test: where the machine is, and programs that take the place of those that need root.
        let environment = [
            ("STATE_DIR", of("state")),
            ("ATTESTATION__TCTI", format!("swtpm:host=127.0.0.1,port={}", self.tpm.port())),
            ("DISK__INTEGRITY", "false".to_owned()),
            ("DISK__CRYPTSETUP", of("bin/cryptsetup")),
            ("DISK__MKFS", of("bin/mkfs")),
            ("DISK__MOUNT", of("bin/mount")),
            ("DISK__UMOUNT", of("bin/umount")),
            ("KUBERNETES__PROGRAM", of("bin/kubeadm")),
            ("KUBERNETES__SYSTEMCTL", of("bin/systemctl")),
            ("PATHS__ROOT", self.root.path().display().to_string()),
        ]
        .map(|(key, value)| (format!("SPARKFLEET__{key}"), value));
        let environment = environment.each_ref().map(|(key, value)| (key.as_str(), value.as_str()));
        let arguments = ["--config", &of("etc/sparkfleet/bootstrapper.toml")];
        let process =
            Process::with("bootstrapper", &program::bootstrapper(), &arguments, &environment, self.root.path());
        self.process = Some(process);
    }

    async fn stop(&mut self) {
        let mut process = self.process.take().unwrap();
        process.interrupt();
        let status = process.ended().await;
        assert!(status.success(), "{}: {status}\n{}", self.name, process.tail());
    }

    /// Off and on: the PCRs begin again, the TPM and the disk keep what is theirs.
    async fn reboot(&mut self) {
        self.stop().await;
        self.tpm.reboot();
        programs::reboot(self.root.path());
        self.measure();
    }

    fn commands(&self) -> Vec<String> {
        fs::read_to_string(self.at("commands")).unwrap().lines().map(str::to_owned).collect()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at("bootstrapper.log")).unwrap()
    }

    /// Whether this key opens its state disk.
    fn opens(&self, key: &Secret) -> bool {
        let (file, device) = (self.at("key").display().to_string(), self.at("dev/state").display().to_string());
        fs::write(&file, key.expose()).unwrap();
        let arguments = ["open", "--test-passphrase", "--key-file", &file, &device];
        let opened = Command::new(programs::CRYPTSETUP).args(arguments).output().unwrap().status.success();
        fs::remove_file(file).unwrap();
        opened
    }

    fn token(&self) -> Value {
        let device = self.at("dev/state").display().to_string();
        let token = succeed(programs::CRYPTSETUP, &["token", "export", "--token-id", "0", &device]);
        serde_json::from_str(&token).unwrap()
    }

    /// What the token of its state disk says.
    fn mark(&self) -> String {
        self.token()["state"].as_str().unwrap().to_owned()
    }

    /// What it was given is good: by `openssl` and `ssh-keygen`, with the authority of the cluster.
    fn check_membership(&self, authority: &Path, address: &str) {
        let serving = self.at("run/state/kubelet/pki/serving.crt").display().to_string();
        let authority = authority.display().to_string();
        let verify = ["verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", &authority];
        succeed("openssl", &[&verify[..], &["-verify_hostname", &self.name, &serving]].concat());
        succeed("openssl", &[&verify[..], &["-verify_ip", address, &serving]].concat());
        let key = self.at("run/state/kubelet/pki/serving.key").display().to_string();
        let public = succeed("openssl", &["x509", "-in", &serving, "-noout", "-pubkey"]);
        assert_eq!(succeed("openssl", &["pkey", "-in", &key, "-pubout"]), public);
        let certificate = self.at("run/state/ssh/ssh_host_ed25519_key-cert.pub").display().to_string();
        let shown = succeed("ssh-keygen", &["-L", "-f", &certificate]);
        assert!(shown.contains("host certificate") && shown.contains(&self.name), "{shown}");
        let kubeadm = fs::read_to_string(self.at("kubeadm.yaml")).unwrap();
        assert!(kubeadm.contains("caCertHashes") && kubeadm.contains(&self.name), "{kubeadm}");
        let left = fs::read_dir(self.at("run/sparkfleet")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["attested"], "no passphrase and no configuration with a token is left");
    }
}

// long: one story, from the first boot to the next
#[tokio::test(flavor = "multi_thread")]
async fn machines_with_real_tpms_are_approved_join_come_back_and_one_with_another_kernel_stays_out() {
    let site = Site::start("kubeadm").await;
    let mut machines: Vec<Machine> = (2..=4).map(|n| Machine::new(&format!("cell-{n}"), "the kernel")).collect();
    machines.push(Machine::new("cell-5", "another kernel"));
    set_policy(&site, &machines[0], &machines.iter().collect::<Vec<_>>()).await;
    let addresses: Vec<String> = (1..=4).map(|n| format!("10.1.0.1{n}")).collect();
    for (machine, address) in machines.iter_mut().zip(&addresses) {
        machine.start(&site, address).await;
    }

    // Their manufacturers are known, they are not.
    for machine in &machines {
        let row = site.host(&machine.name, "pending", |row| row["state"] == "pending").await;
        assert_eq!((&row["variant"], &row["verdict"]), (&json!("tpm2"), &json!("approval-pending")), "{row:#}");
        assert_eq!(machine.mark(), "new");
    }
    assert_eq!(site.tokens(), 0, "no host got a token");
    // A host that was refused waits for a minute, unless the join service asks it again.
    let mut revision = Value::Null;
    for machine in &machines {
        revision = site.cli.json(&["host", "approve", &machine.name]).await;
    }
    site.agree(&revision).await;

    let files = [("master.key", site.trust().join(site.uuid.to_string()).join("master.key"))];
    let files: Files = files.map(|(name, path)| (name.to_owned(), fs::read(path).unwrap().into())).into();
    let keys = cluster_keys(&files, site.uuid).unwrap();
    let (secret, salt) = keys.measurement();
    let digest = |parts: &[&[u8]]| hash(&parts.concat());
    let locked = digest(&[&[0; 32], &digest(&[&cluster_id(&secret, &salt)])]);
    let authority = site.trust().join(site.uuid.to_string()).join("ca.crt");
    let mut secret_bytes = vec![secret.expose().to_vec()];
    for (machine, address) in machines.iter().zip(&addresses).take(3) {
        let row = site.in_state(&machine.name, "member").await;
        assert_eq!((&row["kind"], &row["role"]), (&json!("join"), &json!("worker")), "{row:#}");
        let disk: Uuid = row["disk"].as_str().unwrap().parse().unwrap();
        let generation: Uuid = machine.token()["generation"].as_str().unwrap().parse().unwrap();
        let key = keys.state_disk_key(disk, Some(generation.as_bytes()));
        assert!(machine.opens(&key), "the disk has the key that follows from its UUID and generation");
        assert_eq!((machine.mark().as_str(), machine.pcr(LOCK)), ("initialised", locked.clone()));
        machine.check_membership(&authority, address);
        secret_bytes.push(key.expose().to_vec());
    }
    let refused = site.in_state("cell-5", "refused").await;
    assert_eq!(refused["verdict"], "measurement", "{refused:#}");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("PCR 11: wanted") && !detail.contains("PCR 4"), "{detail}");
    machines[3].process.as_ref().unwrap().says("PCR 11: wanted").await;
    assert!(!machines[3].is_locked() && machines[3].mark() == "new" && !machines[3].at("kubeadm.yaml").exists());
    assert_eq!(site.tokens(), 0, "members need none any longer, and the refused never had one");

    // A reboot: the disk is closed until the join service gives its key again.
    for (machine, address) in machines.iter_mut().zip(&addresses).take(3) {
        machine.reboot().await;
        assert!(!machine.is_locked() && !machine.at("run/state").exists());
        machine.start(&site, address).await;
    }
    for machine in &machines[..3] {
        site.host(&machine.name, "back", |row| row["state"] == "member" && row["kind"] == "rejoin").await;
        // The last thing that it does as a member.
        let started = || machine.commands().into_iter().find(|line| line == "systemctl start kubelet.service");
        wait::until("the kubelet to be started", started, || machine.log()).await;
        assert!(machine.at("run/state/sparkfleet/node_state.json").is_file(), "its disk is open");
        assert_eq!(machine.pcr(LOCK), locked);
        assert!(
            machine.at("content/directories/var/lib/kubelet/config.yaml").is_file(),
            "Kubernetes' state lies on it"
        );
        let commands = machine.commands();
        assert_eq!(commands.iter().filter(|line| line.starts_with("kubeadm")).count(), 1, "{commands:#?}");
        assert!(!commands.iter().any(|line| line.starts_with("systemctl enable")), "{commands:#?}");
    }

    let logs = machines.iter().map(Machine::log).collect::<String>() + &site.join.output();
    assert!(!logs.contains("panicked"), "{logs}");
    for name in ["master.key", "issuer.key"] {
        let text = fs::read_to_string(site.trust().join(site.uuid.to_string()).join(name)).unwrap();
        secret_bytes.push(hex::decode(text.trim()).unwrap());
    }
    assert_nothing_secret(&site.recorder, &logs, &secret_bytes);
    for machine in &mut machines {
        machine.stop().await;
    }
    site.cluster.stop().await;
}

/// SHA-256.
fn hash(bytes: &[u8]) -> Vec<u8> {
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref().to_vec()
}
