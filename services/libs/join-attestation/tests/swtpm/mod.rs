//! A real TPM: swtpm, manufactured with an endorsement certificate of an authority of its own, and driven by tpm2-tools (Debian packages swtpm, swtpm-tools, tpm2-tools).
//!
//! Each test has its own TPM in its own directory. A TPM needs two neighbouring ports and has no resource manager, so that everything transient is flushed after each tool.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Handle of the RSA-2048 endorsement key that `swtpm_setup` makes.
pub const EK_RSA: &str = "0x81010001";
/// Handle of its P-384 endorsement key.
pub const EK_P384: &str = "0x81010016";

/// How long a TPM may take to answer; it takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running TPM.
#[derive(Debug)]
pub struct Swtpm {
    directory: tempfile::TempDir,
    process: Child,
    port: u16,
}

impl Swtpm {
    /// Manufactures a TPM with these banks (such as `sha256` or `sha1,sha256`) and switches it on.
    pub fn manufacture(banks: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("swtpm").tempdir().expect("a directory");
        let root = directory.path();
        for folder in ["state", "ca"] {
            std::fs::create_dir(root.join(folder)).expect("a directory");
        }
        let at = |name: &str| root.join(name).display().to_string();
        let authority = format!(
            "statedir={}\nsigningkey={}\nissuercert={}\ncertserial={}\n",
            at("ca"),
            at("ca/signkey.pem"),
            at("ca/issuercert.pem"),
            at("ca/certserial")
        );
        std::fs::write(root.join("localca.conf"), authority).expect("written");
        std::fs::write(root.join("localca.options"), MODEL).expect("written");
        let setup = format!(
            "create_certs_tool=/usr/bin/swtpm_localca\ncreate_certs_tool_config={}\ncreate_certs_tool_options={}\n",
            at("localca.conf"),
            at("localca.options")
        );
        std::fs::write(root.join("setup.conf"), setup).expect("written");
        let mut command = Command::new("swtpm_setup");
        command.args(["--tpm2", "--create-ek-cert", "--config", &at("setup.conf"), "--tpmstate", &at("state")]);
        succeed(command.args(["--pcr-banks", banks]));
        let (process, port) = switch_on(root);
        Self { directory, process, port }
    }

    /// Where it answers.
    #[allow(dead_code, reason = "for tests that reach it without the tools")]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path of a file in the TPM's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The content of such a file.
    pub fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Writes such a file.
    pub fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.path(name), content).expect("written");
    }

    /// Runs a tool in that directory; true if it succeeded.
    pub fn try_tool(&self, tool: &str, arguments: &[&str]) -> bool {
        let done = self.command(tool, arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let done = done.unwrap_or_else(|error| panic!("{tool}: {error}")).success();
        succeed(&mut self.command("tpm2_flushcontext", &["-t"]));
        done
    }

    /// Runs a tool that has to succeed, and gives its standard output.
    pub fn tool(&self, tool: &str, arguments: &[&str]) -> Vec<u8> {
        let output = succeed(&mut self.command(tool, arguments));
        // These load nothing, or what the next tool needs.
        if !matches!(tool, "tpm2_startauthsession" | "tpm2_policysecret" | "tpm2_pcrevent") {
            succeed(&mut self.command("tpm2_flushcontext", &["-t"]));
        }
        output
    }

    fn command(&self, tool: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(tool);
        command.current_dir(self.directory.path()).args(arguments);
        command.env("TPM2TOOLS_TCTI", format!("swtpm:host=127.0.0.1,port={}", self.port));
        command
    }

    /// Switches the machine off and on again: PCRs are zero, what was transient is gone.
    pub fn reboot(&mut self) {
        self.tool("tpm2_shutdown", &["--clear"]);
        self.power_cut();
    }

    /// The same without a warning to the TPM.
    pub fn power_cut(&mut self) {
        self.switch_off();
        (self.process, self.port) = switch_on(self.directory.path());
    }

    /// Makes an attestation key below an endorsement key: `ak.ctx`, `ak.pub`, `ak.priv`. Gives its `TPM2B_PUBLIC`.
    pub fn make_attestation_key(&self, endorsement: &str, algorithm: &[&str]) -> Vec<u8> {
        let fixed = ["-C", endorsement, "-c", "ak.ctx", "-u", "ak.pub", "-r", "ak.priv", "-f", "tss"];
        self.tool("tpm2_createak", &[&fixed, algorithm].concat());
        self.file("ak.pub")
    }

    /// A session that satisfies the policy of an endorsement key, in `session.ctx`, for `use_it`.
    pub fn with_endorsement_session<T>(&self, use_it: impl FnOnce() -> T) -> T {
        self.tool("tpm2_startauthsession", &["--policy-session", "-S", "session.ctx"]);
        self.tool("tpm2_policysecret", &["-S", "session.ctx", "-c", "e"]);
        let result = use_it();
        self.tool("tpm2_flushcontext", &["session.ctx"]);
        result
    }

    /// The values of PCRs of a bank as `TPML_DIGEST`s, at most eight in each, as a TPM gives them.
    pub fn pcrs(&self, bank: &str, indices: &[u8]) -> Vec<u8> {
        let mut lists = Vec::new();
        for some in indices.chunks(8) {
            let names: Vec<String> = some.iter().map(u8::to_string).collect();
            self.tool("tpm2_pcrread", &[&format!("{bank}:{}", names.join(",")), "-o", "PCRs.bin"]);
            let values = self.file("PCRs.bin");
            let size = values.len() / some.len();
            lists.extend((some.len() as u32).to_be_bytes());
            for value in values.chunks(size) {
                lists.extend((size as u16).to_be_bytes());
                lists.extend(value);
            }
        }
        lists
    }

    /// Quotes with `ak.ctx`: `TPMS_ATTEST` and `TPMT_SIGNATURE`.
    pub fn quote(&self, key: &str, selection: &str, extra_data: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let extra_data: String = extra_data.iter().map(|byte| format!("{byte:02x}")).collect();
        let out = ["-m", "quote.msg", "-s", "quote.sig", "-f", "tss", "-g", "sha256"];
        self.tool("tpm2_quote", &[&["-c", key, "-l", selection, "-q", &extra_data], out.as_slice()].concat());
        (self.file("quote.msg"), self.file("quote.sig"))
    }

    fn switch_off(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Swtpm {
    fn drop(&mut self) {
        self.switch_off();
    }
}

/// What the endorsement certificate says about the TPM.
const MODEL: &str = "--platform-manufacturer Sparkfleet\n--platform-version 1\n--platform-model test\n";

fn switch_on(root: &Path) -> (Child, u16) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let port = neighbouring_ports();
        let address = |port: u16| format!("type=tcp,bindaddr=127.0.0.1,port={port}");
        let mut command = Command::new("swtpm");
        command.args(["socket", "--tpm2", "--tpmstate", &format!("dir={}", root.join("state").display())]);
        command.args(["--server", &address(port), "--ctrl", &address(port + 1)]);
        command.args(["--flags", "not-need-init,startup-clear"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("swtpm (Debian package swtpm): {error}"));
        // It answers, or it is gone because another process took one of the ports in between.
        while process.try_wait().expect("a child").is_none() {
            let mut probe = Command::new("tpm2_getcap");
            probe.env("TPM2TOOLS_TCTI", format!("swtpm:host=127.0.0.1,port={port}")).arg("properties-fixed");
            if probe.output().is_ok_and(|output| output.status.success()) {
                return (process, port);
            }
            assert!(Instant::now() < deadline, "swtpm does not answer");
        }
        assert!(Instant::now() < deadline, "swtpm does not start");
    }
}

/// A free port whose successor is free, too: tpm2-tools want the control channel there.
fn neighbouring_ports() -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = first.local_addr().expect("an address").port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return port;
        }
    }
}

fn succeed(command: &mut Command) -> Vec<u8> {
    let output = command.output();
    let name = command.get_program().to_owned();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", AsRef::<OsStr>::as_ref(&name).display()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}{}", String::from_utf8_lossy(&output.stdout));
    output.stdout
}
