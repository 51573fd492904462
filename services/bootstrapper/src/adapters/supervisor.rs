//! The supervisor, which started the process and waits for its notifications: systemd, by its notification socket (`sd_notify(3)`).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Notifies the supervisor of progress; does nothing without one.
#[derive(Debug, Default)]
pub struct Supervisor {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// Without a supervisor: for simulations and tests.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The one that the variables `NOTIFY_SOCKET` and `WATCHDOG_USEC` name, if there is one that can be reached.
    #[must_use]
    pub fn from_environment() -> Self {
        let socket = std::env::var("NOTIFY_SOCKET").ok().and_then(|path| connect(&path));
        let micros = std::env::var("WATCHDOG_USEC").ok().and_then(|micros| micros.parse::<u64>().ok());
        Self::new(socket, micros.map(Duration::from_micros))
    }

    /// With this socket; `watchdog`: how long it waits for a sign of life.
    #[must_use]
    pub fn new(socket: Option<UnixDatagram>, watchdog: Option<Duration>) -> Self {
        // A supervisor that does not read must not block this process: what does not fit is dropped.
        let socket = socket.filter(|socket| socket.set_nonblocking(true).is_ok());
        let watchdog = watchdog.filter(|_| socket.is_some());
        Self { socket, watchdog }
    }

    /// How often a sign of life is due.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        self.watchdog.map(|watchdog| (watchdog / 2).max(Duration::from_millis(1)))
    }

    /// The process runs.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// What it does, in one line.
    pub fn status(&self, text: &str) {
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.say(&format!("STATUS={line}"));
    }

    /// A sign of life.
    pub fn alive(&self) {
        self.say("WATCHDOG=1");
    }

    /// The process ends.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    fn say(&self, text: &str) {
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| socket.send(text.as_bytes())) {
            tracing::debug!(%error, "the supervisor could not be notified");
        }
    }
}

/// A name that begins with `@` is in the abstract name space.
fn connect(path: &str) -> Option<UnixDatagram> {
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(path),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn a_supervisor_is_notified_in_its_words() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor::new(connect(path.to_str().unwrap()), Some(Duration::from_secs(30)));
        assert_eq!(supervisor.interval(), Some(Duration::from_secs(15)));
        supervisor.ready();
        supervisor.status("join\nawaits-ticket");
        supervisor.alive();
        supervisor.stopping();
        let notified = [(); 4].map(|()| received(&systemd));
        assert_eq!(notified, ["READY=1", "STATUS=join awaits-ticket", "WATCHDOG=1", "STOPPING=1"]);
    }

    #[test]
    fn a_supervisor_that_does_not_read_blocks_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let _systemd = UnixDatagram::bind(&path).unwrap();
        let socket = UnixDatagram::unbound().unwrap();
        socket.connect(&path).unwrap();
        let supervisor = Supervisor::new(Some(socket), None);
        (0..10_000).for_each(|_| supervisor.alive());
    }

    #[test]
    fn without_a_supervisor_nothing_is_sent_and_nothing_is_due() {
        assert!(connect("/nonexistent/notify").is_none());
        let supervisor = Supervisor::new(None, Some(Duration::from_secs(1)));
        supervisor.ready();
        assert_eq!(supervisor.interval(), None);
    }
}
