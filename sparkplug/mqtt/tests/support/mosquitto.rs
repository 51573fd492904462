//! A Mosquitto of its own for each test: a free port, its own directory, ready when `start` returns, killed when dropped. The tests of services include this file.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sparkplug_mqtt::MqttConfig;
use tempfile::TempDir;

#[path = "port.rs"]
pub mod port;

/// Where Debian puts it; not in every user's PATH.
const PROGRAMS: [&str; 2] = ["/usr/sbin/mosquitto", "mosquitto"];
/// What it says since it was started, in its directory.
const STARTED: &str = "started.log";

pub struct Mosquitto {
    directory: TempDir,
    address: SocketAddr,
    process: Child,
    scheme: &'static str,
}

/// Lines of mosquitto.conf besides listener and log; `{dir}` stands for the test's directory.
pub struct Settings<'a> {
    pub lines: &'a [&'a str],
    pub tls: bool,
    /// Called with the test's directory before the start: for password and certificate files.
    pub prepare: &'a dyn Fn(&Path),
}

impl Mosquitto {
    /// Anonymous, plain TCP, generous queues.
    pub fn start() -> Self {
        Self::with(Settings { lines: &["allow_anonymous true"], tls: false, prepare: &|_| {} })
    }

    pub fn with(settings: Settings<'_>) -> Self {
        // The free port may be taken by another process before Mosquitto binds it; then another one is tried.
        for _ in 0..5 {
            let directory = tempfile::tempdir().unwrap();
            let address = port::free();
            (settings.prepare)(directory.path());
            // Started by root it would become another user, who cannot read the test's directory; for others the line means nothing.
            let mut text = format!(
                "user root\nlistener {} 127.0.0.1\npersistence false\nmax_queued_messages 0\nlog_dest file {}\nlog_dest stderr\nlog_type all\n",
                address.port(),
                directory.path().join("mosquitto.log").display()
            );
            for line in settings.lines {
                text.push_str(&line.replace("{dir}", &directory.path().display().to_string()));
                text.push('\n');
            }
            fs::write(directory.path().join("mosquitto.conf"), text).unwrap();
            let mut process = spawn(directory.path());
            if ready(directory.path(), &mut process) {
                let scheme = if settings.tls { "mqtts" } else { "mqtt" };
                return Self { directory, address, process, scheme };
            }
            let log = fs::read_to_string(directory.path().join("mosquitto.log")).unwrap_or_default();
            eprintln!("mosquitto did not start: {log}");
        }
        panic!("mosquitto does not start; it comes with the Debian package `mosquitto`");
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("{}://localhost:{}", self.scheme, self.address.port())
    }

    /// How a session reaches it.
    pub fn config(&self) -> MqttConfig {
        MqttConfig { servers: vec![self.url()], ..MqttConfig::default() }
    }

    pub fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// SIGKILL: no wills, no farewell.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// The same port again, with nothing remembered.
    pub fn restart(&mut self) {
        self.process = spawn(self.directory.path());
        assert!(ready(self.directory.path(), &mut self.process), "mosquitto does not come back on {}", self.address);
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
        Command::new(program)
            .arg("-c")
            .arg(directory.join("mosquitto.conf"))
            .stdout(Stdio::null())
            .stderr(File::create(directory.join(STARTED)).unwrap())
            .spawn()
    };
    PROGRAMS.into_iter().find_map(|program| start(program).ok()).expect("mosquitto is installed")
}

/// Waits until it says that it runs. That its port answers would not do: it may be another process's.
fn ready(directory: &Path, process: &mut Child) -> bool {
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
