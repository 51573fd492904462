//! A factory whose hosts are machines of the lab, and what all stories look at.

use std::path::Path;
use std::time::{Duration, Instant};

use e2e::joining::{CLUSTER, Site, listed_within};
use e2e::program;
use lab::image::{Distribution, Image, Uki};
use lab::machine::{Firmware, Hardware, Machine};
use lab::tpm::Manufacturer;
use serde_json::{Map, Value, json};

/// What firmware and boot loader measure, as a policy judges it, but for the PCR that is predicted.
const SEEN: [u8; 3] = [4, 7, 9];
/// What the image is measured into.
const IMAGE: u8 = 11;
pub const LOCK: u8 = 15;
pub const ZERO: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// Longest wait for what a host and its operator do together. A host that was refused asks again after a minute; Argon2 takes some seconds without hardware virtualisation.
const PATIENCE: Duration = Duration::from_secs(1200);
/// How often an operator looks. A command line that is started all the time takes from the machines what they need.
const INTERVAL: Duration = Duration::from_secs(5);
/// Where Kubernetes keeps its state, by default.
pub const STATE_DIRECTORIES: [&str; 9] = [
    "/etc/kubernetes",
    "/etc/rancher",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/etcd",
    "/var/lib/kubelet",
    "/var/lib/rancher",
    "/var/log/kubernetes",
    "/var/log/pods",
];

pub struct Factory {
    pub site: Site,
    pub image: Image,
    /// What its hosts boot.
    pub uki: Uki,
    pub manufacturer: Manufacturer,
    hardware: Hardware,
    distribution: Distribution,
    /// Its members may open their disk by their TPM.
    pub has_local_unlock: bool,
    started: Instant,
    story: &'static str,
}

impl Factory {
    pub async fn start(story: &'static str, firmware: Firmware) -> Self {
        let configuration = ["role = \"worker\"\n", ""];
        Self::with(story, Distribution::K3s, Hardware::small(firmware), configuration).await
    }

    /// One with other machines. `configuration` of the bootstrapper: what stands before its tables, and what its table `disk` has beside device and format, with further tables.
    pub async fn with(
        story: &'static str,
        distribution: Distribution,
        hardware: Hardware,
        [first, disk]: [&str; 2],
    ) -> Self {
        let started = Instant::now();
        let site = Site::start(distribution.name()).await;
        let configuration = format!(
            "{first}[cluster]\nname = \"{CLUSTER}\"\nuuid = \"{}\"\n[trust]\nroot = \"{}\"\n\
             [attestation]\nlock_pcr = {LOCK}\n\
             [disk]\ndevice = \"/dev/disk/by-id/virtio-state\"\nformat = true\n{disk}\
             [kubernetes]\ndistribution = \"{}\"\n[mqtt]\nservers = [\"mqtt://10.0.2.2:{}\"]\n\
             [log]\nfilter = \"info,bootstrapper=debug\"\n",
            site.uuid,
            site.root(),
            distribution.name(),
            site.broker.address().port()
        );
        let image = Image::build(&program::bootstrapper_with("release"), distribution, &configuration);
        let uki = image.uki("uki", hardware.words, hardware.firmware == Firmware::SecureBoot);
        let manufacturer = Manufacturer::new();
        let factory =
            Self { site, image, uki, manufacturer, hardware, distribution, has_local_unlock: false, started, story };
        factory.say("factory and image are there");
        factory
    }

    /// Prints when something happened.
    pub fn say(&self, text: &str) {
        println!("{}: {:6.1} s: {text}", self.story, self.started.elapsed().as_secs_f64());
    }

    /// A machine that is off.
    pub fn machine(&self, name: &str) -> Machine {
        Machine::new(name, self.hardware, &self.manufacturer, &self.image)
    }

    /// What boots with the same image as a machine whose bootstrapper has these settings, as `ROLE=control-plane`.
    pub fn image_with(&self, name: &str, settings: &[&str]) -> Uki {
        let own: Vec<String> = settings.iter().map(|text| format!(" systemd.setenv=SPARKFLEET__{text}")).collect();
        let words = self.hardware.words.to_owned() + &own.concat();
        self.image.uki(name, &words, self.hardware.firmware == Firmware::SecureBoot)
    }

    /// What boots with another command line, and is not signed.
    pub fn another_image(&self) -> Uki {
        self.image.uki("other", &format!("{} another.word=1", self.hardware.words), false)
    }

    /// The predicted image is wanted; other PCRs are quoted and judge nothing yet.
    pub async fn set_policy(&self, enrolled: &[&Machine]) {
        self.site.set_policy(&self.policy(enrolled)).await;
    }

    /// The policy. Hosts of kubeadm may be control planes.
    pub fn policy(&self, enrolled: &[&Machine]) -> Value {
        let is_control_plane = self.distribution == Distribution::Kubeadm;
        let enrolled: Vec<_> = enrolled.iter().map(|machine| (*machine, is_control_plane)).collect();
        self.policy_of(&enrolled, &[&self.uki])
    }

    /// The policy that admits these machines, and whether they may be control planes, with any of these images.
    pub fn policy_of(&self, enrolled: &[(&Machine, bool)], images: &[&Uki]) -> Value {
        let mut pcrs: Map<String, Value> =
            SEEN.iter().map(|pcr| (pcr.to_string(), json!({"warnOnly": true}))).collect();
        let expected: Vec<&str> = images.iter().map(|image| image.pcr_11.as_str()).collect();
        pcrs.insert(IMAGE.to_string(), json!({ "expected": expected }));
        let of = |(machine, is_control_plane): &(&Machine, bool)| json!({ "ek": machine.tpm().endorsement, "host": machine.name(), "controlPlane": is_control_plane });
        // A host that is elsewhere changes nothing for those that are here.
        let mut list = vec![json!({ "ek": "5e".repeat(31) + "01", "host": "elsewhere" })];
        list.extend(enrolled.iter().map(of));
        let mut policy = json!({ "bank": "sha256", "pcrs": pcrs, "lock": { "pcr": LOCK },
            "endorsement": { "require": "both", "manufacturers": self.manufacturer.certificates(), "enrolled": list } });
        if self.has_local_unlock {
            policy["localUnlock"] = json!({});
        }
        policy
    }

    /// Takes the join service away, as there is no cluster yet. Its administrator has a key, and the policy is written.
    pub async fn prepare_init(&mut self, policy: &Value) {
        self.site.join.kill();
        let (cluster, trust) = (self.site.uuid.to_string(), self.site.trust().display().to_string());
        self.site.cli.json(&["trust", "issue", &cluster, "--purpose", "cluster-admin", "--dir", &trust]).await;
        self.site.cli.json_with(&["policy", "set", CLUSTER, "-"], &policy.to_string()).await;
    }

    /// Makes a machine that was switched on the first member, as its administrator, who gets the kubeconfig. `more`: further arguments of `host init`.
    pub async fn init(&self, machine: &Machine, kubeconfig: &Path, more: &[&str]) {
        machine.until_journal("wait for an issuer", |text| text.contains("awaits-challenge"));
        assert_outside(machine);
        let own = self.site.trust().join(self.site.uuid.to_string()).display().to_string();
        let (name, kubeconfig) = (machine.name(), kubeconfig.display().to_string());
        let init = ["host", "init", name, "--cluster", CLUSTER, "--name", name, "--trust", &own];
        let made = self.site.cli.run(&[&init[..], &["--kubeconfig", &kubeconfig], more].concat()).await;
        assert_eq!(made.code, 0, "{made:#?}\n{}", machine.diagnosis());
        let seconds = machine.on_for().as_secs_f64();
        self.say(&format!("the first member, {seconds:.1} s after power-on, QEMU has {} MiB", machine.memory()));
    }

    /// From here on what this host has shown is wanted in all PCRs.
    pub async fn capture(&self, name: &str) {
        let pcrs = SEEN.map(|pcr| pcr.to_string()).join(",");
        let written = self.site.cli.json(&["policy", "capture", name, "--pcr", &pcrs]).await;
        self.site.agree(&written).await;
    }

    /// What `host list` says of a machine, as soon as `found` likes it.
    pub async fn host(&self, machine: &Machine, what: &str, found: impl Fn(&Value) -> bool) -> Value {
        let row = listed_within(PATIENCE, INTERVAL, &self.site.cli, machine.name(), what, found).await;
        let row = row.unwrap_or_else(|text| panic!("{text}\n{}\n{}", machine.diagnosis(), self.site.join.tail()));
        let memory = machine.memory();
        let on = machine.on_for().as_secs_f64();
        self.say(&format!("{} is {what}, {on:.1} s after power-on, QEMU has {memory} MiB", machine.name()));
        row
    }

    /// A machine that is enrolled and has joined; all PCRs are wanted as it showed them.
    pub async fn member(&self, name: &str) -> Machine {
        let mut machine = self.machine(name);
        self.set_policy(&[&machine]).await;
        machine.power_on(&self.uki, None);
        self.host(&machine, "a member", |row| row["state"] == "member").await;
        self.capture(name).await;
        assert_runs_on_its_disk(&machine);
        machine
    }

    /// Waits until a machine that was switched on again is back.
    pub async fn back(&self, machine: &Machine) {
        self.back_as(machine, "agent").await;
    }

    /// The same of one whose k3s is an `agent` or a `server`.
    pub async fn back_as(&self, machine: &Machine, k3s: &str) {
        // A member's row may say so before it is true again; the lock PCR is extended when the disk is opened.
        until_locked(machine);
        self.host(machine, "a member again", |row| row["state"] == "member" && row["kind"] == "rejoin").await;
        assert_runs_on_its_disk_as(machine, k3s);
    }
}

/// Waits until a machine that was switched on belongs to its cluster in this boot.
pub fn until_locked(machine: &Machine) {
    let read = format!("tpm2_pcrread sha256:{LOCK}");
    machine.until("be locked to its cluster", &read, |text| !text.contains(&format!("0x{ZERO}")));
}

/// Kubernetes runs, was started by the bootstrapper, and everything that it keeps is on a disk with encrypted and authenticated sectors.
pub fn assert_runs_on_its_disk(machine: &Machine) {
    assert_runs_on_its_disk_as(machine, "agent");
}

/// The same of k3s as an `agent` or a `server`.
pub fn assert_runs_on_its_disk_as(machine: &Machine, k3s: &str) {
    let unit = if k3s == "server" { "k3s.service" } else { "k3s-agent.service" };
    machine.until("run k3s", &format!("systemctl is-active {unit} || true"), |state| state == "active");
    // Below the mapping that is mounted is another one with the tags of its sectors.
    let table = machine.ssh("dmsetup table");
    let crypt = crypt(&table);
    assert!(crypt.contains("integrity"), "{crypt}");
    assert!(table.lines().any(|line| line.contains(" integrity ")), "no dm-integrity: {table}");
    assert_state_lies_on_its_disk(machine);
    assert_ne!(machine.pcr(LOCK), ZERO, "the machine is locked to its cluster");
    let calls = machine.ssh("cat /var/lib/rancher/k3s/calls");
    assert!(calls.lines().all(|line| line == format!("k3s {k3s}")), "{calls}");
}

/// The line of `dmsetup table` that says how the state disk is encrypted.
pub fn crypt(table: &str) -> &str {
    let line = table.lines().find(|line| line.starts_with("state:")).unwrap_or_else(|| panic!("no mapping: {table}"));
    assert!(line.contains(" crypt "), "{line}");
    line
}

/// Each directory in which Kubernetes keeps its state is one mount of the state disk, and systemd starts nothing of Kubernetes by itself.
pub fn assert_state_lies_on_its_disk(machine: &Machine) {
    let mounts = machine.ssh("findmnt --noheadings --list --output TARGET,SOURCE");
    for directory in STATE_DIRECTORIES {
        // One that is mounted twice would show the later mount only.
        let sources: Vec<&str> = mounts
            .lines()
            .filter_map(|line| line.split_once(' ').filter(|(target, _)| *target == directory))
            .map(|(_, source)| source.trim())
            .collect();
        assert!(
            sources.len() == 1 && sources[0].starts_with("/dev/mapper/state["),
            "{directory} is not on the state disk: {sources:?}"
        );
    }
    // One at a time: systemctl says nothing of those that follow one that is not there.
    let units = "k3s.service k3s-agent.service kubelet.service containerd.service";
    let enabled = machine.ssh(&format!("for unit in {units}; do systemctl is-enabled $unit 2>/dev/null; done; true"));
    // What the command line of the kernel wants at boot is enabled for this boot.
    let is_there = |line: &str| ["disabled", "enabled-runtime"].contains(&line);
    assert!(enabled.lines().any(is_there), "at least one is there: {enabled}");
    assert!(!enabled.lines().any(|line| line == "enabled"), "systemd starts Kubernetes by itself: {enabled}");
}

/// Nothing of Kubernetes runs or lies in clear, and the machine belongs to no cluster in this boot. Its system wanted Kubernetes at boot, and a drop-in has held it back.
pub fn assert_outside(machine: &Machine) {
    let tried = machine.ssh("systemctl show --property=AssertResult,AssertTimestampMonotonic k3s-agent kubelet");
    let times = tried.lines().filter_map(|line| line.strip_prefix("AssertTimestampMonotonic="));
    assert!(times.clone().any(|time| time != "0"), "systemd did not try to start Kubernetes: {tried}");
    assert!(!tried.contains("AssertResult=yes"), "Kubernetes was not held back: {tried}");
    let active = machine.ssh("systemctl is-active k3s k3s-agent kubelet containerd || true");
    assert!(active.lines().all(|state| state == "inactive"), "Kubernetes runs: {active}");
    let processes = machine.ssh("ps -eo comm,args");
    let is_absent = |program: &&str| !processes.contains(*program);
    assert!(["k3s", "kubelet", "containerd", "kube-"].iter().all(is_absent), "{processes}");
    let directories = STATE_DIRECTORIES.join(" ");
    let left = machine.ssh(&format!("find {directories} -type f"));
    assert_eq!(left, "", "files of a member lie in clear");
    assert_eq!(machine.pcr(LOCK), ZERO, "the machine is not locked to a cluster");
}

/// The same of a machine whose disk is a member's: it stays closed.
pub fn assert_locked(machine: &Machine) {
    assert_outside(machine);
    let table = machine.ssh("dmsetup table");
    assert!(!table.contains("state"), "the disk is open: {table}");
    assert_eq!(machine.ssh("ls /run/state 2>/dev/null || true"), "", "something is mounted");
}
