//! A machine: QEMU without hardware virtualisation (a build server may have none), UEFI firmware, a TPM, a state disk, a serial console, SSH.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::image::{Image, Uki};
use crate::tpm::{Manufacturer, Tpm};

/// Longest wait for what a machine does. It takes seconds to a minute; the machine that simulates it may be busy.
pub const PATIENCE: Duration = Duration::from_secs(1800);
/// How often a state that sends no events is polled.
const LOOK: Duration = Duration::from_millis(250);
/// What the bootstrapper has said since the machine was switched on.
const JOURNAL: &str = "journalctl -b -u sparkfleet-bootstrapper -o cat --no-pager";
const FIRMWARE: &str = "/usr/share/OVMF";

/// What the firmware asks of what it boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// Nothing.
    Plain,
    /// A signature by the key of Debian's test variables.
    SecureBoot,
}

/// What a machine is made of, beside its TPM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hardware {
    /// What starts it.
    pub firmware: Firmware,
    /// Processors.
    pub processors: u8,
    /// Mebibytes of memory.
    pub memory: u32,
    /// Mebibytes of the state disk.
    pub disk: u64,
    /// Mebibytes that QEMU has for translated code.
    pub translations: u32,
    /// Words on the command line of its kernel.
    pub words: &'static str,
}

impl Hardware {
    /// One that runs little beside the bootstrapper. Its disk is small, because dm-integrity writes every sector of a new disk. Its system wants Kubernetes at boot, as that of an image in which
    /// the unit is enabled.
    #[must_use]
    pub const fn small(firmware: Firmware) -> Self {
        Self {
            firmware,
            processors: 1,
            memory: 512,
            disk: 64,
            translations: 128,
            words: "systemd.wants=k3s-agent.service",
        }
    }

    /// One on which a control plane runs. The clocks of its simulated processors agree, but Linux does not believe it, and would ask a simulated device each time that a program wants to
    /// know the time.
    #[must_use]
    pub const fn large(firmware: Firmware) -> Self {
        let words = "no_timer_check tsc=reliable mitigations=off systemd.wants=containerd.service systemd.wants=kubelet.service";
        Self { firmware, processors: 2, memory: 4096, disk: 4096, translations: 512, words }
    }
}

/// A network of several machines: each has an address of [`Lan::ADDRESSES`] on it, besides its own way out.
#[derive(Debug, Clone, Copy)]
pub struct Lan {
    /// QEMU sends frames as datagrams to a multicast group. They do not leave the machine on which the lab runs.
    port: u16,
}

impl Lan {
    /// Addresses of the machines, in order. An image gives a machine the one that belongs to its network card.
    pub const ADDRESSES: [&str; 3] = ["10.77.0.1", "10.77.0.2", "10.77.0.3"];
    /// The network of these addresses.
    pub const NETWORK: &str = "10.77.0.0/24";

    /// A network of its own.
    ///
    /// # Panics
    /// There is no free port.
    #[must_use]
    pub fn new() -> Self {
        Self { port: crate::port::free().port() }
    }
}

impl Default for Lan {
    fn default() -> Self {
        Self::new()
    }
}

/// A machine, on or off.
#[derive(Debug)]
pub struct Machine {
    name: String,
    hardware: Hardware,
    /// Which address it has there, counted from 1.
    lan: Option<(Lan, usize)>,
    tpm: Tpm,
    ssh_port: u16,
    api_port: u16,
    ssh_key: PathBuf,
    root: PathBuf,
    power: Option<Power>,
    directory: tempfile::TempDir,
}

#[derive(Debug)]
struct Power {
    qemu: Child,
    tpm: Child,
    since: Instant,
}

impl Drop for Power {
    fn drop(&mut self) {
        for process in [&mut self.qemu, &mut self.tpm] {
            // An error means that it has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Machine {
    /// A machine that was never switched on, with a TPM of that manufacturer and a blank state disk.
    ///
    /// # Panics
    /// Its files cannot be made.
    #[must_use]
    pub fn new(name: &str, hardware: Hardware, manufacturer: &Manufacturer, image: &Image) -> Self {
        let directory = tempfile::Builder::new().prefix("lab-vm").tempdir().expect("a directory");
        let variables = match hardware.firmware {
            Firmware::Plain => "OVMF_VARS_4M.fd",
            Firmware::SecureBoot => "OVMF_VARS_4M.snakeoil.fd",
        };
        fs::copy(Path::new(FIRMWARE).join(variables), directory.path().join("variables.fd")).expect("package ovmf");
        let disk = File::create(directory.path().join("state.img")).expect("a file");
        disk.set_len(hardware.disk << 20).expect("a sparse file");
        let tpm = manufacturer.make(directory.path());
        let (ssh_key, root) = (image.ssh_key().to_owned(), image.root());
        let (ssh_port, api_port) = (crate::port::free().port(), crate::port::free().port());
        let name = name.to_owned();
        Self { name, hardware, lan: None, tpm, ssh_port, api_port, ssh_key, root, power: None, directory }
    }

    /// The same with a second network card, which belongs to that address of [`Lan::ADDRESSES`].
    ///
    /// # Panics
    /// The address is not one of them.
    #[must_use]
    pub fn on(self, lan: Lan, address: &str) -> Self {
        let index = Lan::ADDRESSES.iter().position(|known| *known == address).expect("an address of the network");
        Self { lan: Some((lan, index + 1)), ..self }
    }

    /// Its name, which the board passes to the system.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its TPM.
    #[must_use]
    pub const fn tpm(&self) -> &Tpm {
        &self.tpm
    }

    /// The port of this machine's host that leads to the API server of Kubernetes in the machine.
    #[must_use]
    pub const fn api_port(&self) -> u16 {
        self.api_port
    }

    /// The file of its state disk.
    #[must_use]
    pub fn state_disk(&self) -> PathBuf {
        self.directory.path().join("state.img")
    }

    /// Switches it on with that image; the clock of the board says what the world says, or that time (`2026-01-31T12:00:00`).
    ///
    /// # Panics
    /// It cannot be switched on, or is.
    pub fn power_on(&mut self, uki: &Uki, clock: Option<&str>) {
        assert!(self.power.is_none(), "{} is on", self.name);
        let at = |file: &str| self.directory.path().join(file).display().to_string();
        let (code, secure) = match self.hardware.firmware {
            Firmware::Plain => ("OVMF_CODE_4M.fd", "off"),
            Firmware::SecureBoot => ("OVMF_CODE_4M.secboot.fd", "on"),
        };
        let boot = at("esp.img");
        fs::copy(&uki.disk, &boot).expect("the boot disk can be copied");
        let tpm = self.tpm.switch_on();
        let mut command = Command::new("qemu-system-x86_64");
        // No KVM: what a story shows must not depend on the machine that runs it.
        let translations = format!("tcg,tb-size={}", self.hardware.translations);
        command.args(["-machine", &format!("q35,smm={secure}"), "-accel", &translations, "-cpu", "max"]);
        let (processors, memory) = (self.hardware.processors.to_string(), self.hardware.memory.to_string());
        command.args(["-smp", &processors, "-m", &memory, "-display", "none", "-name", &self.name]);
        command.args(["-global", &format!("driver=cfi.pflash01,property=secure,value={secure}")]);
        command.args(["-drive", &format!("if=pflash,unit=0,format=raw,readonly=on,file={FIRMWARE}/{code}")]);
        command.args(["-drive", &format!("if=pflash,unit=1,format=raw,file={}", at("variables.fd"))]);
        command.args(["-chardev", &format!("socket,id=tpm,path={}", self.tpm.socket().display())]);
        command.args(["-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-crb,tpmdev=tpm0"]);
        // The root is the first disk: /dev/vda of the initrd.
        for (name, file, more) in [
            ("root", self.root.display().to_string(), ("readonly=on", "")),
            ("state", at("state.img"), ("cache=writeback", "")),
            ("esp", boot, ("readonly=on", ",bootindex=1")),
        ] {
            command.args(["-drive", &format!("if=none,id={name},format=raw,{},file={file}", more.0)]);
            command.args(["-device", &format!("virtio-blk-pci,drive={name},serial={name}{}", more.1)]);
        }
        let ports = [(self.ssh_port, 22), (self.api_port, 6443)];
        let ports = ports.map(|(outside, inside)| format!(",hostfwd=tcp:127.0.0.1:{outside}-:{inside}"));
        command.args(["-netdev", &format!("user,id=net{}", ports.concat())]);
        command.args(["-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"]);
        if let Some((Lan { port }, number)) = self.lan {
            command.args(["-netdev", &format!("socket,id=lan,mcast=230.0.0.1:{port},localaddr=127.0.0.1")]);
            command.args(["-device", &format!("virtio-net-pci,netdev=lan,romfile=,mac=52:54:00:77:00:0{number}")]);
        }
        command.args(["-smbios", &format!("type=1,serial={}", self.name)]);
        command.args(["-serial", &format!("file:{}", at("console.log")), "-monitor", "none"]);
        if let Some(clock) = clock {
            command.args(["-rtc", &format!("base={clock}")]);
        }
        let errors = File::create(at("qemu.log")).expect("a file");
        let qemu = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn();
        let qemu = qemu.expect("qemu-system-x86_64 (Debian package qemu-system-x86)");
        self.power = Some(Power { qemu, tpm, since: Instant::now() });
    }

    /// Since when it is on.
    ///
    /// # Panics
    /// It is off.
    #[must_use]
    pub fn on_for(&self) -> Duration {
        self.power.as_ref().expect("the machine is on").since.elapsed()
    }

    /// Megabytes of memory that QEMU takes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let id = self.power.as_ref().map_or(0, |power| power.qemu.id());
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() / 1024
    }

    /// Takes its power away: neither the system nor the TPM is warned.
    pub fn power_cut(&mut self) {
        self.power = None;
    }

    /// Shuts the system down, and waits until the machine is off.
    ///
    /// # Panics
    /// It does not end.
    pub fn shut_down(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        // The connection ends with the system, or is refused while the SSH server reads its certificates again. So the command is repeated until the machine is off.
        let mut is_accepted = false;
        while self.is_running() {
            if !is_accepted {
                is_accepted = self.try_ssh("systemctl poweroff").status.success();
            }
            let (name, directory) = (&self.name, self.directory.path());
            assert!(Instant::now() < deadline, "{name} does not shut down\n{}", tail(directory));
            std::thread::sleep(LOOK);
        }
        self.power = None;
    }

    fn is_running(&mut self) -> bool {
        let power = self.power.as_mut().expect("the machine is on");
        power.qemu.try_wait().expect("a child").is_none()
    }

    /// Runs a command as root; exit code and output.
    ///
    /// # Panics
    /// `ssh` cannot be started.
    #[must_use]
    pub fn try_ssh(&self, command: &str) -> Output {
        let mut ssh = Command::new("ssh");
        ssh.arg("-i").arg(&self.ssh_key).args(["-p", &self.ssh_port.to_string()]);
        for option in
            ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "ConnectTimeout=60", "LogLevel=ERROR"]
        {
            ssh.args(["-o", option]);
        }
        ssh.args(["root@127.0.0.1", command]).stdin(Stdio::null()).output().expect("ssh can be started")
    }

    /// Runs a command that has to succeed, as soon as the machine accepts a login; its standard output.
    ///
    /// # Panics
    /// It fails, or the machine accepts no login.
    #[must_use]
    pub fn ssh(&self, command: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = self.try_ssh(command);
            let errors = String::from_utf8_lossy(&output.stderr);
            // 255: ssh itself failed.
            if output.status.code() != Some(255) {
                let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                assert!(output.status.success(), "{}: {command}: {}\n{errors}{text}", self.name, output.status);
                return text;
            }
            assert!(Instant::now() < deadline, "{} cannot be reached: {errors}\n{}", self.name, self.diagnosis());
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until a command prints what `found` likes, and returns that.
    ///
    /// # Panics
    /// It never does.
    pub fn until(&self, what: &str, command: &str, found: impl Fn(&str) -> bool) -> String {
        self.until_answered(what, || self.ssh(command), found)
    }

    /// Waits until `ask` returns what `found` likes, and returns that.
    ///
    /// # Panics
    /// It never does.
    pub fn until_answered(&self, what: &str, ask: impl Fn() -> String, found: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let asked = Instant::now();
            let text = ask();
            if found(&text) {
                return text;
            }
            assert!(Instant::now() < deadline, "waited for {} to {what}:\n{text}\n{}", self.name, self.diagnosis());
            // A machine that is slow is not kept busy by answers.
            std::thread::sleep(LOOK.max(asked.elapsed()));
        }
    }

    /// The value of a PCR, hexadecimal.
    ///
    /// # Panics
    /// It cannot be read.
    #[must_use]
    pub fn pcr(&self, pcr: u8) -> String {
        let text = self.ssh(&format!("tpm2_pcrread -Q -o /dev/stdout sha256:{pcr} | od -An -v -tx1"));
        text.split_whitespace().collect()
    }

    /// What the bootstrapper has said in this boot.
    #[must_use]
    pub fn journal(&self) -> String {
        self.ssh(JOURNAL)
    }

    /// Waits until the bootstrapper has said what `found` likes.
    ///
    /// # Panics
    /// It never does.
    pub fn until_journal(&self, what: &str, found: impl Fn(&str) -> bool) {
        let _ = self.until(what, JOURNAL, found);
    }

    /// What firmware and system have written to the serial console in this boot.
    #[must_use]
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.directory.path().join("console.log")).unwrap_or_default()).into_owned()
    }

    /// Waits until the console shows what `found` likes.
    ///
    /// # Panics
    /// It never does.
    pub fn until_console(&self, what: &str, found: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !found(&self.console()) {
            assert!(
                Instant::now() < deadline,
                "waited for {} to {what}
{}",
                self.name,
                self.diagnosis()
            );
            std::thread::sleep(LOOK);
        }
    }

    /// The last of what it has shown, for people.
    #[must_use]
    pub fn diagnosis(&self) -> String {
        let journal = "journalctl -b -u sparkfleet-bootstrapper -o short-monotonic --no-pager | tail -n 40";
        let journal = if self.power.is_some() { self.try_ssh(journal).stdout } else { Vec::new() };
        format!("{}\n{}", String::from_utf8_lossy(&journal), tail(self.directory.path()))
    }
}

/// The last lines of console and QEMU.
fn tail(directory: &Path) -> String {
    let mut text = String::new();
    for file in ["console.log", "qemu.log"] {
        let content = fs::read(directory.join(file)).unwrap_or_default();
        let content = String::from_utf8_lossy(&content).into_owned();
        let lines: Vec<&str> = content.lines().collect();
        text += &format!("--- {file}\n{}\n", lines[lines.len().saturating_sub(15)..].join("\n"));
    }
    text
}
