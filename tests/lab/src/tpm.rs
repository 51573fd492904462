//! Software TPMs (swtpm) with endorsement certificates. All of an authority are made by the same manufacturer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::programs::succeed;

/// What the endorsement certificates say about the TPMs.
const MODEL: &str = "--platform-manufacturer Sparkfleet\n--platform-version 1\n--platform-model lab\n";
/// How long a TPM may take to listen; it takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A manufacturer of TPMs.
#[derive(Debug)]
pub struct Manufacturer {
    directory: tempfile::TempDir,
}

impl Default for Manufacturer {
    fn default() -> Self {
        Self::new()
    }
}

impl Manufacturer {
    /// One with an authority of its own, which is made with its first TPM.
    ///
    /// # Panics
    /// The temporary directory cannot be written.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("lab-ca").tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name).display().to_string();
        let authority = format!(
            "statedir={}\nsigningkey={}\nissuercert={}\ncertserial={}\n",
            at(""),
            at("signkey.pem"),
            at("issuercert.pem"),
            at("certserial")
        );
        fs::write(at("localca.conf"), authority).expect("written");
        fs::write(at("localca.options"), MODEL).expect("written");
        let setup = format!(
            "create_certs_tool=/usr/bin/swtpm_localca\ncreate_certs_tool_config={}\ncreate_certs_tool_options={}\n",
            at("localca.conf"),
            at("localca.options")
        );
        fs::write(at("setup.conf"), setup).expect("written");
        Self { directory }
    }

    /// The certificates of its authority, PEM, as a policy names them.
    ///
    /// # Panics
    /// It has made no TPM yet.
    #[must_use]
    pub fn certificates(&self) -> Vec<String> {
        let files = ["issuercert.pem", "swtpm-localca-rootca-cert.pem"];
        files.map(|file| fs::read_to_string(self.directory.path().join(file)).expect("a TPM was made")).into()
    }

    /// Makes the TPM in that directory, or replaces it: another seed, other keys, as after a change of the board.
    ///
    /// # Panics
    /// `swtpm_setup` fails.
    #[must_use]
    pub fn make(&self, directory: &Path) -> Tpm {
        let state = directory.join("tpm");
        fs::create_dir_all(&state).expect("a directory");
        let setup = self.directory.path().join("setup.conf");
        let mut command = Command::new("swtpm_setup");
        command.args(["--tpm2", "--overwrite", "--create-ek-cert", "--pcr-banks", "sha256"]);
        command.arg("--config").arg(setup).arg("--tpmstate").arg(&state).arg("--write-ek-cert-files").arg(&state);
        succeed(&mut command);
        let public = state.join("ek.pem");
        let certificate = state.join("ek-rsa2048.crt");
        let mut command = Command::new("openssl");
        command.args(["x509", "-inform", "der", "-noout", "-pubkey", "-in"]).arg(certificate);
        fs::write(&public, succeed(&mut command)).expect("written");
        let der = state.join("ek.der");
        let mut command = Command::new("openssl");
        command.args(["pkey", "-pubin", "-outform", "der", "-in"]).arg(public).arg("-out").arg(&der);
        succeed(&mut command);
        let endorsement = hex::encode(Sha256::digest(fs::read(der).expect("written")));
        Tpm { state, socket: directory.join("tpm.sock"), endorsement }
    }
}

/// A TPM that is switched on with its machine.
#[derive(Debug)]
pub struct Tpm {
    state: PathBuf,
    socket: PathBuf,
    /// SHA-256 of its RSA endorsement key, hexadecimal: how a policy enrols it.
    pub endorsement: String,
}

impl Tpm {
    /// The socket of its control channel, for QEMU.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Starts it; it ends when the machine lets go of it.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn switch_on(&self) -> Child {
        // That of the last time.
        let _ = fs::remove_file(&self.socket);
        let mut command = Command::new("swtpm");
        command.args(["socket", "--tpm2", "--terminate", "--tpmstate", &format!("dir={}", self.state.display())]);
        command.args(["--ctrl", &format!("type=unixio,path={}", self.socket.display())]);
        let mut process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("swtpm can be started");
        let deadline = Instant::now() + PATIENCE;
        while !self.socket.exists() {
            assert!(process.try_wait().expect("a child").is_none(), "swtpm ends at once");
            assert!(Instant::now() < deadline, "swtpm does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        process
    }
}
