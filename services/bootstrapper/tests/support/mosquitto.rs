//! A Mosquitto of its own for each test: ephemeral port, own directory, ready when `start` returns, killed when dropped.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sparkplug_mqtt::MqttConfig;
use tempfile::TempDir;

/// Where Debian puts it; not in every user's PATH.
const PROGRAMS: [&str; 2] = ["/usr/sbin/mosquitto", "mosquitto"];
/// What it says, in its directory.
const STARTED: &str = "started.log";

/// A running server.
pub struct Mosquitto {
    directory: TempDir,
    address: SocketAddr,
    process: Child,
}

impl Mosquitto {
    /// Anonymous, plain TCP, nothing persistent.
    pub fn start() -> Self {
        // The free port may be taken by somebody else before Mosquitto binds it; then another one is tried.
        for _ in 0..5 {
            let directory = tempfile::tempdir().unwrap();
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            // Started by root it would become another user, who cannot read the test's directory.
            let text = format!(
                "user root\nlistener {} 127.0.0.1\nallow_anonymous true\npersistence false\nmax_queued_messages 0\n",
                address.port()
            );
            fs::write(directory.path().join("mosquitto.conf"), text).unwrap();
            let mut process = spawn(directory.path());
            if is_ready(directory.path(), &mut process) {
                return Self { directory, address, process };
            }
        }
        panic!("mosquitto does not start; it comes with the Debian package `mosquitto`");
    }

    /// How to reach it.
    pub fn config(&self) -> MqttConfig {
        MqttConfig { servers: vec![format!("mqtt://{}", self.address)], ..MqttConfig::default() }
    }

    /// SIGKILL: no wills, no farewell.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// The same port again, with nothing remembered.
    pub fn restart(&mut self) {
        self.process = spawn(self.directory.path());
        assert!(is_ready(self.directory.path(), &mut self.process), "mosquitto does not come back on {}", self.address);
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(directory: &Path) -> Child {
    let start = |program: &str| {
        let config = directory.join("mosquitto.conf");
        let log = File::create(directory.join(STARTED)).unwrap();
        Command::new(program).arg("-c").arg(config).stdout(Stdio::null()).stderr(log).spawn()
    };
    PROGRAMS.into_iter().find_map(|program| start(program).ok()).expect("mosquitto is installed")
}

/// Waits until it says that it runs. That its port answers would not do: it may be somebody else's.
fn is_ready(directory: &Path, process: &mut Child) -> bool {
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        if fs::read_to_string(directory.join(STARTED)).unwrap().contains(" running") {
            return true;
        }
        if process.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}
