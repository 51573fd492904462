//! Ports on loopback that no process takes by accident. Included by path wherever a test names the port of a server, or starts one again where it was.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Ports from here up to those that the system gives to a process that asks for any.
const FIRST: u16 = 20_000;

/// A free port, outside the range from which the system serves connections and listeners that ask for any port.
/// All test processes of the machine count through the rest together, so that a server that is killed finds its port again.
/// Where the rest is too small, it is any port that was free a moment ago.
pub fn free() -> SocketAddr {
    counted().unwrap_or_else(|_| {
        let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        any.expect("loopback has a free port")
    })
}

fn counted() -> io::Result<SocketAddr> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let end = range.split_whitespace().next().and_then(|low| low.parse::<u16>().ok()).unwrap_or_default();
    if end < FIRST + 1_000 {
        return Err(io::Error::other("the range is too small"));
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(std::env::temp_dir().join("sparkfleet-test-port"))?;
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let mut port = text.trim().parse::<u16>().unwrap_or(FIRST);
    for _ in FIRST..end {
        port = if (FIRST..end - 1).contains(&port) { port + 1 } else { FIRST };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            file.rewind()?;
            file.set_len(0)?;
            write!(file, "{port}")?;
            return Ok(address);
        }
    }
    Err(io::Error::other("every port of the range is taken"))
}
