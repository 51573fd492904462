//! A Mosquitto of its own for a test: a free port, its own directory, ready when [`Mosquitto::start`] returns, killed when dropped.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::port;

/// Where Debian puts it, which is not in every user's PATH; then wherever PATH says.
const PROGRAMS: [&str; 2] = ["/usr/sbin/mosquitto", "mosquitto"];
/// What it says since it was started, in its directory.
const STARTED: &str = "started.log";

/// A running server.
#[derive(Debug)]
pub struct Mosquitto {
    directory: TempDir,
    address: SocketAddr,
    process: Child,
}

impl Mosquitto {
    /// Plain TCP on loopback, anonymous, unlimited queues.
    ///
    /// # Panics
    /// Mosquitto is not installed or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::with("allow_anonymous true", |_| {})
    }

    /// The same with these lines of mosquitto.conf instead of anonymous access; `{dir}` in them stands for the server's directory, into which `prepare`
    /// writes the files that they name.
    ///
    /// # Panics
    /// Mosquitto is not installed or does not start.
    #[must_use]
    pub fn with(lines: &str, prepare: impl Fn(&Path)) -> Self {
        // Another process may take the free port before Mosquitto binds it; then another one is tried.
        for _ in 0..5 {
            let directory = tempfile::tempdir().expect("the temporary directory can be written");
            let address = port::free();
            prepare(directory.path());
            let path = directory.path().display().to_string();
            // Started by root it would become another user, who cannot read its directory; for others that line means nothing.
            let text = format!(
                "user root\nlistener {} 127.0.0.1\npersistence false\nmax_queued_messages 0\nlog_dest file {path}/mosquitto.log\nlog_dest stderr\nlog_type all\n{}\n",
                address.port(),
                lines.replace("{dir}", &path)
            );
            fs::write(directory.path().join("mosquitto.conf"), text).expect("the directory can be written");
            let mut process = spawn(directory.path());
            if is_ready(directory.path(), &mut process) {
                return Self { directory, address, process };
            }
        }
        panic!("mosquitto does not start; it comes with the Debian package `mosquitto`");
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address as an entry of `mqtt.servers`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }

    /// Its directory: configuration, `mosquitto.log`, and what `prepare` wrote.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// SIGKILL: no wills, no farewell.
    pub fn kill(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts it again on the same port, with nothing remembered.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&mut self) {
        self.process = spawn(self.directory.path());
        assert!(is_ready(self.directory.path(), &mut self.process), "mosquitto does not come back on {}", self.address);
    }
}

impl Drop for Mosquitto {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(directory: &Path) -> Child {
    let start = |program: &str| {
        Command::new(program)
            .arg("-c")
            .arg(directory.join("mosquitto.conf"))
            .stdout(Stdio::null())
            .stderr(File::create(directory.join(STARTED)).expect("the directory can be written"))
            .spawn()
    };
    PROGRAMS
        .into_iter()
        .find_map(|program| start(program).ok())
        .expect("mosquitto is installed (Debian package `mosquitto`)")
}

/// Waits until it says that it runs. That its port answers would not do: it may be another's.
fn is_ready(directory: &Path, process: &mut Child) -> bool {
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        if fs::read_to_string(directory.join(STARTED)).is_ok_and(|text| text.contains(" running")) {
            return true;
        }
        if !matches!(process.try_wait(), Ok(None)) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}
